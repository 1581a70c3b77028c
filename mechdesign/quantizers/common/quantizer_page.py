"""What a quantizer's page says: the question in words, its output probabilities and error drawn, and known rivals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.evidence.account import Account
from mechdesign.evidence.digits import at_most, shown
from mechdesign.plotting import COLOURS, figure, legend_above, plain, sized
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import MetricDP, PureDP
from mechdesign.problem.words import LOCAL, guarantee, loss_words, never_sent, prior_words, privacy_words
from mechdesign.quantizers.common.dual_pieces import bound_words
from mechdesign.quantizers.mechanism.continuous_ldp import PiecewiseMechanism, duchi
from mechdesign.quantizers.mechanism.quantizer import Quantizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_quantizer", "quantizer_account", "quantizer_alternatives", "quantizer_remarks"]

_LINES = 8  # outputs that are drawn as lines; more as shades


def quantizer_account(result: Any, *, among: str) -> Account:
    """What was asked of a quantizer, `among` which mechanisms it was chosen.

    Parameters
    ----------
    result : Result
    among : str
        Follows "the mechanism of least loss among".
    """
    design, mechanism = result.design, result.mechanism
    low, high = (shown(v) for v in mechanism.input_range)
    outputs = [shown(b) for b in mechanism.bins]
    named = ", ".join(outputs if len(outputs) <= 12 else [*outputs[:4], "…", *outputs[-3:]])
    cost = loss_words(design.loss)
    worst = getattr(design, "objective", "mean") == "worst"
    value = f"{'largest' if worst else 'expected'} {cost}"
    bias = getattr(design, "max_bias", 0.0)
    mean = (
        "is right on average, whatever the input"
        if not bias
        else f"is off by at most {shown(bias)} on average"
    )
    cap = getattr(design, "max_mse", None)
    question = [
        f"A number between {low} and {high} is to be reported in {_bits(len(outputs))}: one of the {len(outputs)} "
        f"outputs {named}. The report {mean}.",
        privacy_words(design.privacy, LOCAL),
        "The unit of privacy is one report of one person: each input is randomized by itself before it leaves the device, "
        "and nobody has to be trusted with it. Whoever reports several times spends the budget each time.",
        f"{'The error is the largest over all inputs.' if worst else f'Inputs follow {prior_words(design.prior)}.'} "
        f"What is minimised is the {value}"
        + (f", with a mean squared error of at most {shown(cap)}" if cap else "")
        + f", among {among}. Privacy holds for every input, whatever law inputs follow.",
    ]
    loss = result.epsilon if hasattr(result, "epsilon") else mechanism.privacy_loss()
    spent = f"exact loss at most {at_most(loss)}"
    return Account(
        f"{len(outputs)}-output quantizer at {guarantee(design.privacy)}",
        f"{type(design).__name__}: inputs in [{low}, {high}], {value}.",
        "\n\n".join(question),
        value,
        (
            guarantee(design.privacy),
            spent + (" per unit of distance" if isinstance(design.privacy, MetricDP) else ""),
        ),
        "Above: the probability of each output, for every input. Below: the expected error at every input.",
        "Mechanisms that are known, for the same inputs, loss and privacy. They may have other outputs; continuous ones "
        "cannot be sent in a few bits.",
    )


def _bits(count: int) -> str:
    bits = max(1, math.ceil(math.log2(count)))
    return f"{bits} bit{'s' if bits > 1 else ''}"


def _duchi(result: Any) -> Quantizer:
    """Duchi's two outputs over the design's inputs."""
    unit = duchi(result.design.privacy.epsilon)
    low, high = result.mechanism.input_range
    return Quantizer(
        (low + high) / 2 + (high - low) / 2 * unit.bins, np.array([low, high]), unit.starts, unit.ends
    )


def quantizer_remarks(result: Any) -> list[str]:
    """The outputs that practically never come."""
    return never_sent([shown(b) for b in result.mechanism.bins], result.mechanism.extremes()[1], "outputs")


def quantizer_alternatives(result: Any) -> pd.DataFrame:
    """The losses of Duchi's two outputs, of the piecewise mechanism and of Laplace noise at the same ε."""
    design, loss = result.design, Loss.of(result.design.loss)
    low, high = result.mechanism.input_range
    worst = getattr(design, "objective", "mean") == "worst"
    rows: list[tuple[str, float]] = [("this quantizer", result.value)]
    pure = isinstance(design.privacy, PureDP)
    if pure:
        rival = _duchi(result)
        error = rival.worst_case_loss(loss)[0] if worst else rival.expected_loss(design.prior, loss)
        rows.append(("two outputs (Duchi et al.)", error))
    if pure and (low, high) == (-1.0, 1.0) and not worst and design.privacy.epsilon <= 700:
        rows.append(
            (
                "piecewise (Wang et al.)",
                PiecewiseMechanism(design.privacy.epsilon).expected_loss(design.prior, loss),
            )
        )
    metric = isinstance(design.privacy, MetricDP) and design.privacy.metric == "absolute"
    if loss.polynomial and (pure or metric):
        scale = (high - low if pure else 1.0) / design.privacy.epsilon
        rows.append(("Laplace noise", loss.absolute * scale + 2 * loss.squared * scale**2))
    if result.lower_bound is not None:
        words = bound_words(_duals(result))
        if result.certificate is None and getattr(design, "output_space", None) is not None:
            words = "with any outputs that were searched"
        rows.append((f"{result.bound_how} least {words}", result.lower_bound))
    if len(rows) == 1:
        return pd.DataFrame(columns=["mechanism", "error", "relative"])
    return pd.DataFrame([(name, e, e / result.value if result.value else math.nan) for name, e in rows],
                        columns=["mechanism", "error", "relative"])  # fmt: skip


def _duals(result: Any) -> Any:
    """The multipliers that prove a result's lower bound; None where nothing does."""
    found = [proof.duals for proof in getattr(result, "proofs", ()) if hasattr(proof, "duals")]
    return found[0] if found else getattr(result.certificate, "duals", None)


def draw_quantizer(result: Any, **options: Any) -> Figure:
    """Draw the probability of every output, and the expected error, over the inputs."""
    mechanism, loss = result.mechanism, Loss.of(result.design.loss)
    low, high = mechanism.input_range
    x = np.linspace(low, high, 241)
    rows = mechanism.probabilities(x)
    fig, (above, below) = figure(2, 1, sharex=True, **sized(options, 5.0, 5.2))
    if len(mechanism.bins) <= _LINES:
        for k, bin_ in enumerate(mechanism.bins):
            above.plot(x, rows[:, k], label=f"output {bin_:.4g}", linestyle=("-", "--")[k % 2])
        legend_above(above)
        above.set(ylabel="probability", ylim=(0, None))
    else:
        edges = np.concatenate(
            [[mechanism.bins[0]], (mechanism.bins[1:] + mechanism.bins[:-1]) / 2, [mechanism.bins[-1]]]
        )
        edges[0], edges[-1] = 2 * edges[0] - edges[1], 2 * edges[-1] - edges[-2]
        shades = above.pcolormesh(
            np.append(x - (x[1] - x[0]) / 2, high), edges, rows.T, cmap="viridis", rasterized=True
        )
        fig.colorbar(shades, ax=above, label="probability")
        above.set(ylabel="output")
        above.grid(False)
    errors = np.sum(rows * loss(mechanism.bins - x[:, None]), axis=-1)
    below.plot(x, errors, color=COLOURS[0], label="this quantizer")
    if isinstance(result.design.privacy, PureDP):
        below.plot(
            x, _duchi(result).loss_at(x, loss), "--", color=COLOURS[1], label="two outputs (Duchi et al.)"
        )
        legend_above(below)
    below.set(xlabel="input", ylabel=plain(loss_words(loss)), ylim=(0, None))
    return fig
