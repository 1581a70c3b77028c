r"""Published quantizers against the certified optimum, for every ε and 1 to 8 bits: part of the study `optimal-quantizer`.

Inputs are uniform on [−1, 1], and every mechanism may use outputs within ±C(ε), C(ε) = coth(ε/4), the range of the piecewise
mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter
from scipy import stats

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report
from mechdesign_studies.quantizers.baselines import HybridMechanism, PiecewiseMechanism

UNIFORM = stats.uniform(-1, 2)
EPSILONS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
LOSSES = ("absolute", "squared")
TITLES = ("mean absolute error", "mean squared error")
BITS = range(1, 9)
SEARCHED_BITS = 5  # up to here every output is searched; beyond, evenly spread outputs lose less than 0.1 %
CERTIFIED_BITS = 5  # beyond, exact arithmetic takes seconds a mechanism


def comparison(report: Report) -> None:
    """Every mechanism, ε and number of bits, both losses."""
    rows: list[dict[str, object]] = []

    def add(name: str, epsilon: float, bits: float, found: dict[str, Found | None]) -> None:
        for loss in LOSSES:
            f = found[loss]
            rows.append(
                {
                    "epsilon": epsilon,
                    "bits": bits,
                    "mechanism": name,
                    "loss": loss,
                    "value": math.nan if f is None else f.value,
                    "lower bound": math.nan if f is None else f.lower_bound,
                    "exact epsilon": math.nan if f is None else f.epsilon,
                }
            )

    with report.progress("epsilon and bits", len(EPSILONS) * len(BITS)) as step:
        for epsilon in EPSILONS:
            privacy, reach = md.PureDP(epsilon), 1 / math.tanh(epsilon / 4)
            for name, law in (
                ("piecewise", PiecewiseMechanism(epsilon)),
                ("hybrid", HybridMechanism(epsilon)),
            ):
                values = {loss: Found(law.expected_loss(UNIFORM, loss), epsilon) for loss in LOSSES}
                add(name, epsilon, math.inf, values)
            for bits in BITS:
                m = 2**bits
                mvu = (
                    md.MVU(m, privacy, (-1, 1), max(2, bits), max_abs=reach)
                    .solve(starts=2, certify=bits <= CERTIFIED_BITS)
                    .mechanism
                )
                best = {loss: optimum(m, privacy, reach, loss, mvu.bins) for loss in LOSSES}
                add("optimum", epsilon, bits, best)
                add("MVU", epsilon, bits, {loss: Found.of(mvu, loss) for loss in LOSSES})
                if bits == 1:
                    # With two outputs at ±A nothing is left to choose: every mechanism here is that of Duchi et al.
                    two = (1 + 1e-12) / math.tanh(epsilon / 2)
                    duchi = md.OPTM((-two, two), privacy, UNIFORM).solve().mechanism
                    two_outputs = {loss: Found.of(duchi, loss) for loss in LOSSES}
                    for name in ("Duchi et al.", "RQM", "ERM", "OPTM"):
                        add(name, epsilon, bits, two_outputs)
                else:
                    for family in (md.RQM, md.ERM):
                        members = {loss: member(family, m, privacy, reach, loss) for loss in LOSSES}
                        add(family.__name__, epsilon, bits, members)
                    add(
                        "OPTM",
                        epsilon,
                        bits,
                        {loss: optm(m, privacy, reach, loss) for loss in LOSSES},
                    )
                step()
    table = pd.DataFrame(rows)
    report.table(
        "comparison",
        table,
        caption="Error against ε and bits (bits = inf: continuous outputs)",
        rtol=5e-3,
        show=0,
        inline=0,
    )
    for loss, title in zip(LOSSES, TITLES):
        part = table[table["loss"] == loss]
        wide = part.pivot_table(index=["epsilon", "mechanism"], columns="bits", values="value").reset_index()
        wide.columns = [
            c if isinstance(c, str) else "inf" if math.isinf(c) else f"{c:g} bits" for c in wide.columns
        ]
        report.table(
            f"bits-{loss}",
            wide,
            caption=f"Least {title} at every ε and number of bits (inf: continuous outputs; empty: no member in the budget)",
            rtol=5e-3,
            show=60,
        )
        best = part.groupby(["mechanism", "epsilon"])["value"].min().unstack("epsilon")
        report.table(
            f"best-{loss}",
            best.reset_index(),
            caption=f"Least {title} of each mechanism over the numbers of bits",
            rtol=5e-3,
        )
    draw(report, table)
    report.text(
        f"Every mechanism may use outputs within ±C(ε). Optimum: mirrored outputs searched up to {SEARCHED_BITS} bits, evenly spread or at MVU's "
        "beyond, always with a proved lower bound for its outputs. RQM: q and Δ searched. ERM: γ, Δ and the inner outputs searched; "
        "its loss grows like the logarithm of the number of outputs, so that from 4 bits on it has no member within most budgets. MVU: "
        "inputs dithered to as many points as there are outputs (four at least), alphabet searched. OPTM: the published search at 2 bits, "
        "followed from its best point down to a local optimum; from 3 bits on local optima by successive linearisation for "
        "evenly spread outputs, of four widths up to 5 bits; at 6 bits and more it draws from 32 of the outputs, and the others only "
        "divide the inputs. With one bit all of them are the mechanism of Duchi et al.; piecewise and hybrid have no bits. "
        f"Exact arithmetic certifies the optimum at every number of bits and MVU up to {CERTIFIED_BITS}; other losses are floats rounded up."
    )
    report.text(
        "Findings. OPTM's family costs less and less as outputs are added, because every unbiased law at one input is one of "
        "its members there: with 8 bits it is within 7 % of the optimum at ε = 5 and within 2 % up to ε = 2. RQM and ERM gain nothing "
        "beyond 3 bits. With many outputs MVU is all but optimal in the squared error, which it minimises, but not in the absolute one; and "
        "with the squared loss the optimum is then below the hybrid mechanism at every ε."
    )


@dataclass(frozen=True)
class Found:
    """A mechanism's error under one loss, its exact privacy loss, and where there is one its proved bound."""

    value: float
    epsilon: float
    lower_bound: float = math.nan

    @classmethod
    def of(cls, mechanism: md.Quantizer, loss: str, lower_bound: float = math.nan) -> Found:
        """Evaluate a quantizer exactly."""
        value = mechanism.expected_loss(UNIFORM, loss)
        return cls(value, mechanism.privacy_loss(), lower_bound)


def optimum(m: int, privacy: md.PureDP, reach: float, loss: str, others: np.ndarray) -> Found:
    """The certified optimum at the best outputs known: searched, evenly spread, or another mechanism's."""
    if m <= 2**SEARCHED_BITS:
        choices: list[object] = [md.BinSearch(m, reach, symmetric=True, exhaustive=False, starts=2)]
    else:
        choices = [np.linspace(-reach, reach, m)]
    if abs(others[-1]) <= reach * (1 + 1e-12):
        choices.append(others)
    results = [md.OptimalQuantizer(c, privacy, UNIFORM, loss).solve(gap=2e-7) for c in choices]
    best = min(results, key=lambda r: r.value)
    return Found(best.value, best.mechanism.privacy_loss(), best.lower_bound)


def member(family: type, m: int, privacy: md.PureDP, reach: float, loss: str) -> Found | None:
    """The family's best member with outputs within the range; None where none is within the budget."""
    # The outermost outputs of Duchi et al.: with nearer ones nothing is unbiased.
    least = 1 / math.tanh(privacy.epsilon / 2)
    few = m > 32  # every member of a large family takes milliseconds to evaluate
    shares = np.array([0.001, 0.1, 0.4, 1.0] if few else [0.001, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0])
    deltas = least - 1 + shares * (reach - least)
    if family is md.RQM:
        grid = md.Grid(delta=deltas, q=np.geomspace(1e-7, 0.97, 24 if few else 36))
    else:
        inner, gamma = (
            np.geomspace(0.2, 0.97 * reach, 3 if few else 5),
            np.geomspace(1e-3, 30, 6 if few else 10),
        )
        grid = md.Grid(delta=deltas, inner=inner, gamma=gamma)
    try:
        result = family(m, privacy, UNIFORM, loss, grid=grid).solve(
            zoom=1 if m <= 32 else 0, starts=1, certify=False
        )
    except md.InfeasibleError:
        return None
    return Found(result.value, result.mechanism.privacy_loss())


def optm(m: int, privacy: md.PureDP, reach: float, loss: str) -> Found:
    """The best of OPTM's local optima: from the published grid at 2 bits, by successive linearisation beyond."""
    least = (1 + 1e-9) / math.tanh(
        privacy.epsilon / 2
    )  # with these outermost outputs no worse than Duchi et al.
    ends = least + np.array([0.0, 0.25, 0.5, 1.0] if m <= 32 else [1.0]) * (reach - least)
    outputs = [np.linspace(-end, end, m) for end in ends]
    if m == 4:
        inner = np.linspace(0.1, 1.0, 10) * min(1.0, reach / 2)
        outer = np.array([0.25, 0.5, 1.0]) * (reach - 1)
        try:
            search = md.OPTMSearch(privacy, UNIFORM, loss, bins=md.Grid(delta=outer, inner=inner))
            outputs.append(search.solve(bar=False, certify=False).mechanism.bins)
        except md.InfeasibleError:
            pass
    found = [
        md.OPTM(bins, privacy, UNIFORM, loss, box="successive").solve(outputs=32, certify=False)
        for bins in outputs
    ]
    best = min(found, key=lambda r: r.value)
    return Found(best.value, best.mechanism.privacy_loss(), best.lower_bound)


def draw(report: Report, table: pd.DataFrame) -> None:
    """Error against ε at each mechanism's best bits, relative to the optimum; and against bits."""
    least = table.groupby(["loss", "mechanism", "epsilon"])["value"].min()
    fig, axes = figure(1, 2, width=9.5, height=3.6)
    for axis, loss in zip(axes, LOSSES):
        floor = least[loss]["optimum"]
        names = [n for n in table["mechanism"].unique() if n != "optimum"]
        for colour, name in zip(COLOURS, names):
            values = least[loss][name]
            axis.plot(values.index, values / floor, "o-", color=colour, label=name, markersize=3)
        axis.set(xscale="log", yscale="log", xlabel="ε", title=f"{loss} loss over the optimum's")
        axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axis.minorticks_off()
        plain_ticks(axis)
    axes[1].legend(fontsize=7, frameon=False)
    report.figure(
        "over-optimum",
        fig,
        caption="Every mechanism at its best number of bits, relative to the optimum at its best",
    )

    shown = (1.0, 3.0, 5.0)
    fig, grid = figure(2, len(shown), width=11, height=6)
    for line, loss in zip(grid, LOSSES):
        for axis, epsilon in zip(line, shown):
            part = table[(table["loss"] == loss) & (table["epsilon"] == epsilon) & np.isfinite(table["bits"])]
            floor = least[loss]["optimum"][epsilon]
            for colour, name in zip(COLOURS, ("RQM", "ERM", "MVU", "OPTM", "optimum")):
                curve = part[part["mechanism"] == name].dropna(subset="value")
                axis.plot(curve["bits"], curve["value"] / floor, "o-", color=colour, label=name, markersize=3)
            axis.set(title=f"{loss}, ε = {epsilon:g}", xlabel="bits", yscale="log")
            plain_ticks(axis)
    grid[0][0].legend(fontsize=7, frameon=False)
    report.figure(
        "bits", fig, caption="What more bits bring: error against bits, relative to the optimum with 8"
    )


def plain_ticks(axis: Axes) -> None:
    """Label a logarithmic axis that spans little with plain numbers."""
    axis.yaxis.set_major_formatter("{x:g}")
    low, high = axis.get_ylim()
    axis.yaxis.set_minor_formatter("{x:g}" if high < 4 * low else NullFormatter())
