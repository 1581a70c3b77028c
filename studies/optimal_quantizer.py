r"""The provably optimal quantizer against everything published.

Inputs are uniform on [−1, 1]. *Optimum* is the exact least expected loss of any unbiased ε-LDP quantizer with the
given outputs, with a proved lower bound; everything else is a member of some family, evaluated exactly. Comparisons
across bits let every mechanism use outputs within ±C(ε), C(ε) = coth(ε/4), the range of the piecewise mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.report import Report, study

UNIFORM = stats.uniform(-1, 2)
EPSILONS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
LOSSES = ("absolute", "squared")
TITLES = ("mean absolute error", "mean squared error")
BITS = range(1, 9)
SEARCHED_BITS = 5  # up to here every output is searched; beyond, evenly spread outputs lose less than 0.1 %
CERTIFIED_BITS = 6  # beyond, exact arithmetic takes seconds a mechanism


def reference(report: Report) -> None:
    """The reference table: OPTM, the optimum for its outputs, the best outputs in its range, any number of outputs."""
    rows = []
    for epsilon, bins in ((0.5, [-6, -0.4, 0.4, 6]), (1.0, [-3, -0.5, 0.5, 3]), (1.5, [-3, -0.5, 0.5, 3])):
        privacy, reach = md.PureDP(epsilon), float(bins[-1])
        optm = md.OPTM(bins, privacy, UNIFORM).solve()
        same = md.OptimalQuantizer(bins, privacy, UNIFORM).solve()
        best = md.OptimalQuantizer(
            md.BinSearch(m=4, max_abs=reach, symmetric=True, exhaustive=False), privacy, UNIFORM
        ).solve()
        fine = md.OptimalQuantizer(md.Alphabet(max_abs=reach, step=reach / 100), privacy, UNIFORM).solve()
        rows.append(
            {
                "epsilon": epsilon,
                "bins": ", ".join(f"{b:g}" for b in bins),
                "OPTM (exact)": optm.value,
                "optimum, same bins": same.value,
                "lower bound, same bins": same.lower_bound,
                "certified": same.certify().verify() and same.certify().epsilon_upper <= epsilon,
                "best 4 bins": best.value,
                "at": ", ".join(f"{b:.4f}" for b in best.mechanism.bins[2:]),
                "201 outputs": fine.value,
                "any outputs, at least": fine.any_outputs_bound,
            }
        )
    sixteen = np.linspace(-2, 2, 16)
    compact = md.OPTM(sixteen, md.PureDP(5.0), UNIFORM).solve()
    same = md.OptimalQuantizer(sixteen, md.PureDP(5.0), UNIFORM).solve()
    rows.append(
        {
            "epsilon": 5.0,
            "bins": "16 uniform on [-2, 2]",
            "OPTM (exact)": compact.value,
            "optimum, same bins": same.value,
            "lower bound, same bins": same.lower_bound,
            "certified": same.certify().verify() and same.certify().epsilon_upper <= 5.0,
        }
    )
    report.table(
        "reference",
        pd.DataFrame(rows),
        caption="Mean absolute error, uniform inputs, exact",
        rtol=3e-5,
        volatile=("at",),
    )
    report.text(
        "OPTM with 16 outputs is Theorem 5 with successive bounds. The best four outputs found here are below those in earlier "
        "tables (1.6895 against 1.6986 at ε = 1): the outermost outputs need not be at the ends of the range."
    )


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
                ("piecewise", md.PiecewiseMechanism(epsilon)),
                ("hybrid", md.HybridMechanism(epsilon)),
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
                    two = {loss: Found.of(md.duchi(epsilon), loss) for loss in LOSSES}
                    for name in ("Duchi et al.", "RQM", "ERM", "OPTM"):
                        add(name, epsilon, bits, two)
                else:
                    for family in (md.RQM, md.ERM):
                        members = {loss: member(family, m, privacy, reach, loss) for loss in LOSSES}
                        add(family.__name__, epsilon, bits, members)
                    add(
                        "OPTM",
                        epsilon,
                        bits,
                        {loss: optm(m, privacy, reach, loss, best[loss].bins) for loss in LOSSES},
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
        f"Every mechanism may use outputs within ±C(ε). Optimum: outputs searched up to {SEARCHED_BITS} bits, evenly spread or at MVU's "
        "beyond, always with a proved lower bound for its outputs. RQM: q and Δ searched; ERM: γ, Δ and the inner outputs searched; "
        "from 3 bits on and at small ε ERM has no member within the budget, for its loss grows like the logarithm of the "
        "number of outputs. MVU: inputs dithered to as many points as there are outputs (four at least), alphabet searched. OPTM: the "
        "published search at 2 bits, followed from its best point down to a local optimum; from 3 bits on local optima by successive "
        "linearisation, for evenly spread outputs and for the optimum's, the better one; at 6 bits and more it draws from 32 of the "
        "outputs, and the others only divide the inputs. With one bit all of them are the mechanism of Duchi et al. "
        f"Exact arithmetic certifies the optimum and MVU up to {CERTIFIED_BITS} bits; other losses are floats rounded up."
    )
    report.text(
        "Two findings. OPTM's family costs less and less as outputs are added, because every unbiased law at one input is "
        "one of its members there; RQM and ERM gain nothing from more bits. And with the squared loss and many outputs the optimum is "
        "below the hybrid mechanism at every ε."
    )


@dataclass(frozen=True)
class Found:
    """A mechanism's error under one loss, its exact privacy loss, and where there is one its proved bound."""

    value: float
    epsilon: float
    lower_bound: float = math.nan
    bins: object = None

    @classmethod
    def of(cls, mechanism: md.Quantizer, loss: str, lower_bound: float = math.nan) -> Found:
        """Evaluate a quantizer exactly."""
        value = mechanism.expected_loss(UNIFORM, loss)
        return cls(value, mechanism.privacy_loss(), lower_bound, mechanism.bins)


def optimum(m: int, privacy: md.PureDP, reach: float, loss: str, others: np.ndarray) -> Found:
    """The certified optimum at the best outputs known: searched, evenly spread, or another mechanism's."""
    if m <= 2**SEARCHED_BITS:
        choices: list[object] = [md.BinSearch(m, reach, symmetric=True, exhaustive=False, starts=2)]
    else:
        choices = [np.linspace(-reach, reach, m)]
    if m >= 4 and abs(others[-1]) <= reach * (1 + 1e-12):
        choices.append(others)
    results = [md.OptimalQuantizer(c, privacy, UNIFORM, loss).solve(gap=1e-6) for c in choices]
    best = min(results, key=lambda r: r.value)
    return Found(best.value, best.epsilon, best.lower_bound, best.mechanism.bins)


def member(family: type, m: int, privacy: md.PureDP, reach: float, loss: str) -> Found | None:
    """The family's best member with outputs within the range; None where none is within the budget."""
    least = 1 / math.tanh(
        privacy.epsilon / 2
    )  # the outermost outputs of Duchi et al.: nearer ones cannot be unbiased
    deltas = least - 1 + np.array([0.001, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0]) * (reach - least)
    if family is md.RQM:
        grid = md.Grid(delta=deltas, q=np.geomspace(0.02 / m, 0.97, 24))
    else:
        grid = md.Grid(
            delta=deltas, inner=np.geomspace(0.2, 0.97 * reach, 5), gamma=np.geomspace(1e-3, 30, 10)
        )
    try:
        result = family(m, privacy, UNIFORM, loss, grid=grid).solve(
            zoom=1 if m <= 32 else 0, starts=1, certify=False
        )
    except md.InfeasibleError:
        return None
    return Found(result.value, result.epsilon)


def optm(m: int, privacy: md.PureDP, reach: float, loss: str, others: object) -> Found:
    """The best of OPTM's local optima: from the published grid at 2 bits, by successive linearisation beyond."""
    outputs = [np.linspace(-reach, reach, m)]
    if not np.allclose(outputs[0], others, rtol=1e-9):
        outputs.append(others)
    if m == 4:
        inner, outer = (
            np.linspace(0.1, 1.0, 10) * min(1.0, reach / 2),
            np.array([0.25, 0.5, 1.0]) * (reach - 1),
        )
        try:
            search = md.OPTMSearch(privacy, UNIFORM, loss, bins=md.Grid(delta=outer, inner=inner))
            outputs.append(search.run(progress=False, certify=False).best.mechanism.bins)
        except md.InfeasibleError:
            pass
    found = [
        md.OPTM(bins, privacy, UNIFORM, loss, bounds="successive").solve(outputs=32, certify=False)
        for bins in outputs
    ]
    best = min(found, key=lambda r: r.value)
    return Found(best.value, best.epsilon, best.lower_bound)


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
    grid[0][0].legend(fontsize=7, frameon=False)
    report.figure(
        "bits", fig, caption="What more bits bring: error against bits, relative to the optimum with 8"
    )


def frontiers(report: Report) -> None:
    """MAE against MSE at fixed outputs, every point certified."""
    design = md.OptimalQuantizer(np.linspace(-4, 4, 33), md.PureDP(1.0), UNIFORM)
    curve = md.frontier(design, "max_mse")
    report.table("mae-mse", curve.table, caption="Absolute against squared error, ε = 1, 33 outputs on [−4, 4]", rtol=1e-4, atol=1e-6,
                 volatile=("seconds", "gap", "exact epsilon", "epsilon_upper"))  # fmt: skip
    report.figure("mae-mse", curve.figure(), caption="The frontier of absolute and squared error")


def biased(report: Report) -> None:
    """The published biased extension, and the exact optimum with the same bias budget."""
    rows = []
    for epsilon in (1.0, 2.0):
        grid = md.Grid(
            delta=np.linspace(0.0, 2.0, 9),
            q=np.linspace(0.1, 0.9, 9),
            beta=np.append(0.0, np.geomspace(0.02, 5, 12)),
        )
        found = md.BiasedSelection(4, md.PureDP(epsilon), UNIFORM, grid=grid).solve().to_frame()
        for budget in (0.1, 0.2, 0.4, 0.6, 1.0):
            part = found[found["bias"] <= budget]
            best = part.iloc[0] if len(part) else None
            outputs = np.linspace(-3, 3, 13)
            optimum = md.OptimalQuantizer(outputs, md.PureDP(epsilon), UNIFORM, max_bias=budget).solve(
                gap=1e-5
            )
            rows.append(
                {
                    "epsilon": epsilon,
                    "bias budget": budget,
                    "biased selection: MAE": math.nan if best is None else best["value"],
                    "its bias": math.nan if best is None else best["bias"],
                    "its exact epsilon": math.nan if best is None else best["epsilon"],
                    "optimum, 13 outputs on [−3, 3]: MAE": optimum.value,
                    "its lower bound": optimum.lower_bound,
                }
            )
    report.table("biased", pd.DataFrame(rows), caption="Bias, privacy and error", rtol=1e-4)


def vectors(report: Report) -> None:
    """Figures 4a and 4b of the OPTM paper: Euclidean error of vectors, every coordinate at ε, 10,000 trials."""
    trials, rows = 10_000, []
    inputs = report.rng("vectors")
    cube = inputs.uniform(-1, 1, (trials, 10))
    ball = inputs.normal(size=(trials, 100))
    ball *= (inputs.random(trials) ** (1 / 100) / np.linalg.norm(ball, axis=1))[:, None]
    for epsilon in (1.0, 1.5, 2.0, 2.5, 3.0):
        privacy = md.PureDP(epsilon)
        bins = [-3, -0.5, 0.5, 3]
        made = {
            "OPTM": md.OPTM(bins, privacy, UNIFORM).solve().mechanism,
            "RQM": md.RQM(4, privacy, UNIFORM, grid=md.Grid(delta=[2.0], q=np.linspace(0.02, 0.98, 30))).solve(zoom=0).mechanism,
            "ERM": md.ERM(4, privacy, UNIFORM, grid=md.Grid(delta=[2.0, 2.5, 4.1], inner=[0.1, 0.5, 1.0, 1.4], gamma=np.geomspace(1e-3, 30, 30))).solve(zoom=0).mechanism,
            "MVU": md.MVU(m=4, privacy=privacy, input_range=(-1, 1)).solve(starts=2).mechanism,
            "optimum (MAE, OPTM's bins)": md.OptimalQuantizer(bins, privacy, UNIFORM).solve().mechanism,
            "optimum (MSE, 17 outputs)": md.OptimalQuantizer(np.linspace(-3, 3, 17), privacy, UNIFORM, "squared").solve().mechanism,
        }  # fmt: skip
        for name, mechanism in made.items():
            for figure_name, x in (("4a", cube), ("4b", ball)):
                vector = md.VectorQuantizer(mechanism, x.shape[1])
                draws = vector.sample(x, report.rng(f"{figure_name}/{name}/{epsilon}"))
                error = np.linalg.norm(draws - x, axis=1)
                rows.append(
                    {
                        "figure": figure_name,
                        "epsilon per coordinate": epsilon,
                        "mechanism": name,
                        "mean error": error.mean(),
                        "deviation": error.std(),
                        "epsilon of the vector (split)": vector.privacy_loss(),
                    }
                )
    table = pd.DataFrame(rows)
    report.table(
        "vectors", table, caption="Euclidean error of vectors, 10,000 trials", rtol=2e-2, atol=2e-2, show=24
    )
    fig, axes = figure(1, 2, width=9.5, height=3.6)
    for axis, name, title in zip(
        axes, ("4a", "4b"), ("d = 10, uniform in the cube", "d = 100, uniform in the unit ball")
    ):
        for colour, (mechanism, part) in zip(
            COLOURS, table[table["figure"] == name].groupby("mechanism", sort=False)
        ):
            axis.errorbar(part["epsilon per coordinate"], part["mean error"], part["deviation"], fmt="o-", color=colour,
                          label=mechanism, capsize=2, markersize=3)  # fmt: skip
        axis.set(title=title, xlabel="ε per coordinate", ylabel="Euclidean error")
    axes[0].legend(fontsize=7, frameon=False)
    report.figure("figure4", fig, caption="Figures 4a and 4b: mean and deviation over 10,000 trials")


@study(
    "optimal-quantizer",
    title="The provably optimal quantizer against everything published",
    paper="Privacy-Aware Randomized Quantization via Linear Programming, Figure 4; Wang et al. 2019; Chaudhuri et al. 2022",
)
def run(report: Report) -> None:
    """The reference table, comparisons over ε and bits, frontiers, the biased extension, vectors."""
    reference(report)
    comparison(report)
    frontiers(report)
    biased(report)
    vectors(report)
