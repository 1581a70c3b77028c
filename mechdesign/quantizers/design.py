"""What every quantizer design shares: its question, what a result of it says, and how its floats become an exact law."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cache
from operator import mul
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.exact import exp_lower, round_down
from mechdesign.evidence.proofs import PROVED, Claim, MechanismClass, family
from mechdesign.evidence.results import ACTIVE, Accuracy, Result, audit_rows
from mechdesign.plotting import COLOURS, figure, legend_above, plain, sized
from mechdesign.problem.checks import instance
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import MetricDP, PureDP
from mechdesign.problem.spine import Design
from mechdesign.problem.words import Description, loss_words, never_sent, prior_words
from mechdesign.quantizers.dual_pieces import OutputSpace
from mechdesign.quantizers.exact_law import ExactLaw
from mechdesign.quantizers.mechanism import Quantizer, duchi
from mechdesign.quantizers.table import LARGEST
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Units in the last place by which outputs may differ from those asked for: what an exact law needs at the edge.
_ULPS = 16
EXACT = 4096
"""Entries of a law that are valued in fractions, and verified before they are certified: of more, floats with a margin: with 64 outputs bound and value in fractions took
.4 s, four times the design."""


class _ExactRows:
    """The rows of an exact law at both ends of every segment, and how far each is from its limits in fractions."""

    def __init__(self, law: ExactLaw, ratio: Fraction, max_bias: float) -> None:
        segments = range(len(law.knots) - 1)
        self.law, self.rows = law, [law.weights(k, end) for k in segments for end in (0, 1)]
        self.tops = [ratio * low for low in law.extremes()[0]]
        self.allowed = Fraction(min(max_bias, LARGEST))
        self.unit = math.lcm(*(b.denominator for b in law.bins))
        self.places = [int(b * self.unit) for b in law.bins]

    def near(self, family: str, slack: Array) -> Array:
        """The slacks of a family, those of at most 1e-9 computed anew and rounded down."""
        per_row, found = len(slack) // len(self.rows), slack.copy()
        below = cache(lambda output, weight, total: round_down(self.tops[output] - Fraction(weight, total)))
        for n in np.flatnonzero(slack <= ACTIVE).tolist():
            row, output = divmod(n, per_row)
            weights, total = self.rows[row]
            if family == "normalisation":
                found[n] = round_down(-abs(Fraction(sum(weights), total) - 1))
            elif family == "unbiased":
                mean = Fraction(sum(map(mul, weights, self.places)), total * self.unit)
                found[n] = round_down(self.allowed - abs(mean - self.law.knots[(row + 1) // 2]))
            elif family == "privacy":
                found[n] = below(output, weights[output], total)
            else:
                found[n] = round_down(Fraction(weights[output], total))
        return found


class QuantizerDesign(Design):
    """A design whose mechanism is a `Quantizer`.

    Attributes
    ----------
    privacy : PureDP, or of `MetricQuantizer` others
    prior : Prior
    loss : Loss
    input_range : (float, float)
    objective : {"mean", "worst"}
    max_bias : float
    max_mse : float or None
    """

    asks: ClassVar[str] = "report"

    privacy: Any
    prior: Prior
    loss: Loss
    input_range: Any
    objective: str = "mean"
    max_bias: float = 0.0
    max_mse: float | None = None

    @property
    def among(self) -> MechanismClass:
        """The family of the design, if it is not one that seeks the best of every mechanism."""
        return family(f"{type(self).__name__} mechanism")

    def with_outputs(self, which: str) -> str:
        """One of all mechanisms with such outputs that meet the design's requirements, in words."""
        cap = "" if self.max_mse is None else " within the cap on the squared error"
        if not self.max_bias:
            return f"unbiased mechanism with {which}{cap}"
        bias = f" biased by at most {shown(self.max_bias)}" if math.isfinite(self.max_bias) else ""
        return f"mechanism with {which}{bias}{cap}"

    @property
    def searches_outputs(self) -> bool:
        """Whether the outputs are those that a search found, and the lower bound without outputs of its own speaks of these only."""
        return False

    @property
    def output_space(self) -> OutputSpace | None:
        """All outputs that a search may choose from, of which its lower bound speaks; None where they are given."""
        return None

    def privacy_claims(self, law: ExactLaw) -> Iterator[Claim]:
        r"""Whether :math:`\max_x p(x, i) \le \rho \min_x p(x, i)` for every output, with a proved rational :math:`\rho \le e^{\varepsilon}`."""
        privacy = instance("privacy", self.privacy, PureDP)
        rho = exp_lower(min(privacy.epsilon, 700.0))
        slack = min(rho * low - high for low, high in zip(*law.extremes()))
        yield Claim(f"privacy loss at most {privacy.epsilon!r}", PROVED, round_down(slack), slack >= 0)

    def allows(self, outputs: object) -> bool:
        """Whether a mechanism with these outputs is one that the design allows; a search overrides this."""
        asked = np.asarray(getattr(self, "bins"), dtype=float)  # noqa: B009
        given = np.asarray(outputs, dtype=float)
        return asked.shape == given.shape and np.allclose(given, asked, _ULPS * np.finfo(float).eps, 0)

    def loss_of(self, mechanism: Quantizer) -> float:
        """The expected or the worst-case loss of a mechanism, in floats."""
        instance("mechanism", mechanism, Quantizer)
        if self.objective == "worst":
            return mechanism.worst_case_loss(self.loss)[0]
        return mechanism.expected_loss(self.prior, self.loss)

    def audit(self, result: Result) -> pd.DataFrame:
        r"""Every constraint of the definition at both ends of every segment, recomputed from the mechanism alone.

        :math:`p(x, i) \le e^{\varepsilon} \min_{x'} p(x', i)`, :math:`\sum_i p(x, i) = 1`, :math:`\sum_i B_i p(x, i) = x` and
        :math:`p(x, i) \ge 0`. Of an exact law a slack of at most 1e-9 is computed in fractions, and rounded down.
        """
        mechanism, epsilon = result.mechanism, min(self.privacy.epsilon, 700.0)
        law, rows = mechanism.law, mechanism.rows
        x, bins = mechanism.knots[np.arange(1, len(rows) + 1) // 2], mechanism.bins
        labels = [f"x={v:g}{'+-'[n % 2]}" for n, v in enumerate(x)]
        total, mean, top = rows.sum(axis=1), rows @ bins, math.exp(epsilon) * rows.min(axis=0) + 0 * rows
        bias = self.max_bias - abs(mean - x)
        exact = None if law is None else _ExactRows(law, exp_lower(epsilon), self.max_bias)
        each = [f"{label} i={i}" for label in labels for i in range(1, len(bins) + 1)]
        families = [
            ("normalisation", labels, total, 1 + 0 * total, -abs(total - 1), True),
            ("unbiased", labels, mean, x, bias, (self.max_bias == 0) | (bias <= ACTIVE)),
            ("privacy", each, rows, top, top - rows, None),
            ("non-negativity", each, rows, 0 * rows, rows, None),
        ]
        parts = []
        for name, index, lhs, rhs, slack, active in families:
            left, right = (side.ravel().astype(float) for side in (lhs, rhs))
            near = slack.ravel() if exact is None else exact.near(name, slack.ravel())
            parts.append(audit_rows(name, index, left, right, near, active=active))
        return pd.concat(parts, ignore_index=True)

    def frame(self, result: Result) -> pd.DataFrame:
        m = result.mechanism
        if m.selection is not None:
            return m.selection.to_frame()
        columns = {f"{b:g}": np.append(m.starts[:, i], m.ends[-1, i]) for i, b in enumerate(m.bins)}
        return pd.DataFrame({"x": m.knots, **columns})

    def lines(self, result: Result) -> list[str]:
        budget, loss = self.privacy.epsilon, result.mechanism.privacy_loss()
        words = "in exact arithmetic" if result.proofs else "computed in floats, rounded up"
        table = QuantizerDesign.audit(self, result)
        worst = table.loc[table["slack"].where(table["family"] == "privacy").idxmin()]
        return [
            f"exact loss: {loss!r} {'<=' if loss <= budget else '> OVER'} budget {budget!r} ({words})",
            f"tightest privacy constraint: {worst['index']}, slack {worst['slack']:.2g} ({len(table)} constraints are audited)",
        ]

    def describe(self, result: Result) -> Description:
        mechanism, worst = result.mechanism, self.objective == "worst"
        low, high = (shown(v) for v in mechanism.input_range)
        outputs = [shown(b) for b in mechanism.bins]
        named = ", ".join(outputs if len(outputs) <= 12 else [*outputs[:4], "…", *outputs[-3:]])
        bits = max(1, math.ceil(math.log2(len(outputs))))
        right = "is right on average, whatever the input"
        if self.max_bias:
            most = f"off by at most {shown(self.max_bias)}" if math.isfinite(self.max_bias) else "biased"
            right = f"may be {most} on average"
        inputs = (
            "The error is the largest over all inputs"
            if worst
            else f"Inputs follow {prior_words(self.prior)}"
        )
        capped = f" The mean squared error is at most {shown(self.max_mse)}." if self.max_mse else ""
        distance = " per unit of distance" if isinstance(self.privacy, MetricDP) else ""
        return Description(
            title=f"{len(outputs)}-output quantizer",
            what=f"A number between {low} and {high} is reported in {bits} bit{'s' if bits > 1 else ''}: one of the {len(outputs)} outputs {named}. "
            f"The report {right}. {inputs}; privacy holds for every input, whatever law inputs follow.{capped}",
            loss=f"{'largest' if worst else 'expected'} {loss_words(self.loss)}",
            consumed=f"exact loss at most {at_most(mechanism.privacy_loss())}{distance}",
            picture="Above: the probability of each output, for every input. Below: the expected error at every input.",
            rivals="Known mechanisms for the same inputs, loss and privacy. They may have other outputs; Laplace noise is not sent in "
            "a few bits.",
        )

    def _two_outputs(self) -> Quantizer:
        """Duchi's two outputs over the design's inputs."""
        unit, (low, high) = duchi(self.privacy.epsilon), self.input_range
        bins = (low + high) / 2 + (high - low) / 2 * unit.bins
        return Quantizer(bins, np.array([low, high]), unit.starts, unit.ends)

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Duchi's two outputs and Laplace noise at the same ε."""
        loss, pure = self.loss, isinstance(self.privacy, PureDP)
        low, high = self.input_range
        if pure:
            yield "two outputs (Duchi et al.)", self.loss_of(self._two_outputs())
        metric = isinstance(self.privacy, MetricDP) and self.privacy.metric == "absolute"
        if loss.polynomial and (pure or metric):
            scale = (high - low if pure else 1.0) / self.privacy.epsilon
            yield "Laplace noise", loss.absolute * scale + 2 * loss.squared * scale**2

    def remarks(self, result: Result) -> list[str]:
        """The outputs that practically never come."""
        return never_sent(
            [shown(b) for b in result.mechanism.bins], result.mechanism.extremes()[1], "outputs"
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the probability of every output, and the expected error, over the inputs."""
        mechanism, loss = result.mechanism, self.loss
        low, high = mechanism.input_range
        x, bins = np.linspace(low, high, 241), mechanism.bins
        rows = mechanism.probabilities(x)
        fig, (above, below) = figure(2, 1, sharex=True, **sized(options, 5.0, 5.2))
        if len(bins) <= len(COLOURS):
            for k, bin_ in enumerate(bins):
                above.plot(x, rows[:, k], label=f"output {bin_:.4g}", linestyle=("-", "--")[k % 2])
            legend_above(above)
            above.set(ylabel="probability", ylim=(0, None))
        else:
            edges = np.concatenate([bins[:1], (bins[1:] + bins[:-1]) / 2, bins[-1:]])
            edges[0], edges[-1] = 2 * edges[0] - edges[1], 2 * edges[-1] - edges[-2]
            across = np.append(x - (x[1] - x[0]) / 2, high)
            shades = above.pcolormesh(across, edges, rows.T, cmap="viridis", rasterized=True)
            fig.colorbar(shades, ax=above, label="probability")
            above.set(ylabel="output")
            above.grid(False)
        errors = np.sum(rows * loss(bins - x[:, None]), axis=-1)
        below.plot(x, errors, color=COLOURS[0], label="this quantizer")
        if isinstance(self.privacy, PureDP):
            rival = self._two_outputs().loss_at(x, loss)
            below.plot(x, rival, "--", color=COLOURS[1], label="two outputs (Duchi et al.)")
            legend_above(below)
        below.set(xlabel="input", ylabel=plain(loss_words(loss)), ylim=(0, None))
        return fig

    def errors(self, result: Result, question: Any = None) -> Accuracy:
        """Errors averaged over the prior of `question`, or of this design; of the mean, where the question has clients."""
        if getattr(question, "clients", None) is not None:
            return question.mean.accuracy(result.mechanism)  # type: ignore[no-any-return]
        found: Accuracy = result.mechanism.errors((self if question is None else question).prior)
        return found
