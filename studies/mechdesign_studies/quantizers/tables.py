r"""Tables 1 and 2, Figures 2 and 3 and Theorem 1 of *Privacy-Aware Randomized Quantization via Linear Programming*.

Inputs are in [−1, 1]; the loss is the mean absolute error; every mechanism has m = 4 outputs. The paper averages the
error over the 51 points −1, −0.96, …, 1; the exact mean is the integral against the prior. Both are given, under
different names, with the exact privacy loss of every mechanism.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import stats

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report

UNIFORM = stats.uniform(-1, 2)
POINTS = np.linspace(-1, 1, 51)

# (ε, mechanism) → what the paper prints: value, bins, parameter.
TABLE_1 = [
    (0.5, "OPTM", 3.904, [-6.0, -0.4, 0.4, 6.0], None),
    (1.0, "OPTM", 1.882, [-3.0, -0.5, 0.5, 3.0], None),
    (1.5, "OPTM", 1.179, [-3.0, -0.5, 0.5, 3.0], None),
    (1.0, "RQM", 1.993, [-2.7, -0.9, 0.9, 2.7], 0.220),
    (1.5, "RQM", 1.310, [-2.6, -2.6 / 3, 2.6 / 3, 2.6], 0.498),
    (1.0, "ERM", 2.216, [-5.1, -0.1, 0.1, 5.1], 0.026),
    (1.5, "ERM", 1.304, [-2.7, -0.4, 0.4, 2.7], 0.043),
    (0.5, "MVU", 3.959, [-4.34, -3.60, 3.60, 4.34], None),
    (1.0, "MVU", 1.930, [-2.42, -1.69, 1.69, 2.42], None),
    (1.5, "MVU", 1.254, [-1.83, -1.11, 1.11, 1.83], None),
]
TABLE_2 = {"OPTM": (1.778, 1.836, 1.972), "MVU": (2.053, 2.052, 2.002), "RQM": (2.028, 2.010, 2.000)}
SIGMAS = (0.1, 0.2, 0.3)


def mechanism_of(name: str, epsilon: float, bins: list[float], parameter: float | None) -> md.Quantizer:
    """The mechanism of a row of Table 1, exact and certified."""
    if name == "OPTM":
        return md.OPTM(bins=bins, privacy=md.PureDP(epsilon), prior=UNIFORM).solve("highs").mechanism
    if name == "RQM":
        return md.Quantizer.rqm(bins, parameter, (-1, 1)).certified()
    if name == "ERM":
        return md.Quantizer.erm(bins, parameter, (-1, 1)).certified()
    return md.MVU(m=4, privacy=md.PureDP(epsilon), input_range=(-1, 1)).solve(starts=1).mechanism


def row(name: str, epsilon: float, paper: float | None, mechanism: md.Quantizer) -> dict[str, object]:
    """One row of Table 1."""
    loss = mechanism.privacy_loss()
    return {
        "epsilon": epsilon,
        "mechanism": name,
        "bins": ", ".join(f"{b:.4g}" for b in mechanism.bins),
        "paper": paper,
        "51-point mean": mechanism.loss_at(POINTS).mean(),
        "exact mean": mechanism.expected_loss(UNIFORM),
        "worst case": mechanism.worst_case_loss()[0],
        "exact epsilon": loss,
        "over budget by": max(0.0, loss - epsilon),
        "within budget": loss <= epsilon,
    }


def table_1(report: Report) -> dict[tuple[float, str], md.Quantizer]:
    """The published rows, certified; then OPTM in floats, and what wider searches find."""
    made = {(e, n): mechanism_of(n, e, bins, p) for e, n, _, bins, p in TABLE_1}
    rows = [row(n, e, paper, made[e, n]) for e, n, paper, _, _ in TABLE_1]
    report.table(
        "table1",
        pd.DataFrame(rows),
        caption="Table 1: mean absolute error, uniform inputs, certified mechanisms",
        rtol=2e-5,
    )
    rows = []
    for epsilon in (0.5, 1.0, 1.5):
        bins = next(b for e, n, _, b, _ in TABLE_1 if (e, n) == (epsilon, "OPTM"))
        design = md.OPTM(bins=bins, privacy=md.PureDP(epsilon), prior=UNIFORM)
        floats = design.solve("clarabel", certify=False, tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
        exact = made[epsilon, "OPTM"]
        rows.append(
            {
                "epsilon": epsilon,
                "floats: epsilon": floats.mechanism.privacy_loss(),
                # a difference near the last digits, of which processors agree on few
                "floats: over budget by": float(f"{max(0.0, floats.mechanism.privacy_loss() - epsilon):.3g}"),
                "certified: epsilon": exact.privacy_loss(),
                "certified: over budget by": max(0.0, exact.privacy_loss() - epsilon),
                "certified: within budget": exact.privacy_loss() <= epsilon,
            }
        )
    report.table(
        "floats",
        pd.DataFrame(rows),
        caption="OPTM in floats by an interior-point solver at tolerance 1e-8, and certified",
        rtol=1e-6,
        atol=1e-6,
        volatile=("floats: over budget by",),
        digits=12,
    )
    return made


def searched(report: Report) -> None:
    """What searching the published families' parameters finds, beyond the printed ones."""
    rows = []
    with report.progress("searches", 11) as step:
        for epsilon in (1.0, 1.5):
            found = md.OPTMSearch(md.PureDP(epsilon), UNIFORM).solve(bar=False)
            rows.append(row("OPTM", epsilon, None, found.mechanism))
            step()
        for epsilon in (0.5, 1.0, 1.5):
            best = md.RQM(4, md.PureDP(epsilon), UNIFORM).solve(zoom=3, starts=2)
            rows.append(row("RQM", epsilon, None, best.mechanism))
            step()
            best = md.MVU(m=4, privacy=md.PureDP(epsilon), input_range=(-1, 1)).solve(starts=12)
            rows.append(row("MVU", epsilon, None, best.mechanism))
            step()
            best = md.ERM(4, md.PureDP(epsilon), UNIFORM).solve(zoom=2, starts=6)
            rows.append(row("ERM", epsilon, None, best.mechanism))
            step()
    frame = pd.DataFrame(rows).sort_values(["mechanism", "epsilon"], kind="stable")
    frame = frame.drop(columns=["paper", "over budget by"])
    report.text(
        "**Beyond the printed parameters.** OPTM: the authors' own grid (10,890 linear programs per ε, "
        "outer bins up to ±3), judged by the exact error. RQM, ERM, MVU: wider searches than the paper's. ERM at ε = 1 and MVU at "
        "ε = 1.5 do clearly better than the paper prints, and RQM and ERM have members at ε = 0.5, where it prints none; ERM's best at "
        "ε ≤ 1 are nearly the two-output mechanism of Duchi et al."
    )
    report.table(
        "searched",
        frame,
        caption="Best parameters found",
        rtol=2e-3,
        volatile=("bins", "exact epsilon", "worst case"),
    )


def table_2(report: Report) -> None:
    """Normal inputs N(0.5, σ²) clipped to [−1, 1]."""
    budget = md.PureDP(1.0)
    pairs = md.Grid(delta=[1, 2, 3], left=[-0.6, -0.2, 0.2, 0.6], right=[-0.6, -0.2, 0.2, 0.6])
    steps = np.arange(1, 20) / 20
    levels = md.Grid(level=steps, level_right=steps, width=[0.01])
    printed = [-2.42, -1.69, 1.69, 2.42]
    mvu = {
        bits: md.MVU(m=4, privacy=budget, input_range=(-1, 1), input_bits=bits, bins=printed)
        .solve()
        .mechanism
        for bits in (1, 2)
    }
    rqm = md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)).certified()
    rows = []
    for k, sigma in enumerate(SIGMAS):
        prior = md.clipped(stats.norm(0.5, sigma), -1, 1)

        def search(constraints: str, judge: str, prior: object = prior) -> md.Quantizer:
            found = md.OPTMSearch(
                budget,
                prior,
                constraints=constraints,
                bins=pairs,
                boxes=levels,
                families="separate",
                judge=judge,
            ).solve(bar=False)
            return found.mechanism

        mechanisms = [
            ("OPTM", "authors' program, judged by its objective", search("across-outputs", "objective")),
            ("OPTM", "authors' program, judged by the exact error", search("across-outputs", "loss")),
            ("OPTM", "per-output constraints (Theorem 5)", search("theorem5", "loss")),
            ("MVU", "inputs dithered to ±1", mvu[1]),
            ("MVU", "inputs dithered to 4 points, as in Table 1", mvu[2]),
            ("RQM", "printed parameters", rqm),
        ]
        for name, variant, mechanism in mechanisms:
            paper = np.nan if "per-output" in variant else TABLE_2[name][k]
            exact = mechanism.expected_loss(prior)
            rows.append(
                {
                    "sigma": sigma,
                    "mechanism": name,
                    "variant": variant,
                    "bins": ", ".join(f"{b:.3g}" for b in mechanism.bins),
                    "paper": paper,
                    "exact, clipped": exact,
                    "off by %": 100 * (exact / paper - 1),
                    "exact, truncated": mechanism.expected_loss(md.truncated(stats.norm(0.5, sigma), -1, 1)),
                    "exact epsilon": mechanism.privacy_loss(),
                    "within budget": mechanism.privacy_loss() <= 1.0,
                }
            )
    caption = "Table 2: mean absolute error, inputs N(0.5, σ²) cut to [−1, 1], ε = 1"
    report.table("table2", pd.DataFrame(rows), caption=caption, rtol=5e-4, atol=2e-2, digits=5)
    found = pd.DataFrame(rows)
    authors = found[found["variant"] == "authors' program, judged by its objective"]
    mae = ", ".join(f"{v:.4f}" for v in authors["exact, clipped"])
    losses = ", ".join(f"{v:.3f}" for v in authors["exact epsilon"])
    off = authors["off by %"].abs().max()
    report.text(
        "The paper says *truncated*; its numbers come from clipping 1,000 samples (point masses at ±1). The authors' linear program "
        "compares every largest probability with every smallest one across different outputs, which is stricter than "
        "differential privacy; it puts 1 for the outer factors of the largest, and in the smallest the bounds o stand for the "
        "*inner* factors (q₂ of the other side) while the outer factor stays the unknown. Solved so over their grid, judged by "
        f"its own objective and integrated exactly, the errors are {mae} at exact privacy losses of {losses}: within "
        f"{off:.2f}% of the print, which is what 1,000 samples leave open. Judged by the exact error instead of the objective, the same "
        "programs give less; per-output constraints are private too, and give less still. MVU's printed row is "
        "neither of the two here: the authors' program compares inputs in [−1, 1] with outputs decoded on [0, 1] and doubles the distance, which "
        "with four input points gives the print within the error of 1,000 samples (study `errata`)."
    )


def theorem_1(report: Report) -> None:
    """Theorem 1 says that ERM's privacy loss is below γ + log(2m(c + Δ)/c) on uniform bins; it is not where Δ < c."""
    rows = []
    for m in (4, 8, 16):
        for reach in (0.1, 0.25, 0.5, 1.0, 2.0):
            for gamma in (0.1, 1.0, 5.0):
                bins = np.linspace(-1 - reach, 1 + reach, m)
                loss = md.Quantizer.erm(bins, gamma, (-1, 1)).certified().privacy_loss()
                printed = gamma + math.log(2 * m * (1 + reach))
                rows.append(
                    {
                        "m": m,
                        "delta / c": reach,
                        "gamma": gamma,
                        "exact loss": loss,
                        "Theorem 1": printed,
                        "with min(c, delta) below": printed - math.log(min(1.0, reach)),
                        "Theorem 1 holds": loss < printed,
                    }
                )
    table = pd.DataFrame(rows)
    report.table("theorem1", table, caption="Theorem 1: ERM on m uniform bins of [−c − Δ, c + Δ]", rtol=1e-6)
    first = table[(table["m"] == 4) & (table["delta / c"] == 0.25) & (table["gamma"] == 1)].iloc[0]
    wrong, small = table[~table["Theorem 1 holds"]], table[table["delta / c"] < 1]
    large = int((wrong["delta / c"] >= 1).sum())
    mended = bool((table["exact loss"] < table["with min(c, delta) below"]).all())
    report.text(
        f"**An erratum.** At m = 4, Δ = c/4 and γ = 1 the exact loss is {first['exact loss']:.4f}, and Theorem 1 promises less than "
        f"{first['Theorem 1']:.4f}. It fails in {len(wrong) - large} of the {len(small)} rows with Δ < c and in {large} of the others: as Δ → 0 "
        "the outermost outputs are hardly ever drawn at the other end of the range, and the loss grows without limit, "
        "which the bound does not. With min(c, Δ) in place of c in its denominator the bound "
        f"{'holds' if mended else 'does not hold'} in all {len(table)} rows."
    )


def figures(report: Report, made: dict[tuple[float, str], md.Quantizer]) -> None:
    """Figure 2: two output probabilities of ERM at m = 8. Figure 3: the error at every input."""
    erm = md.Quantizer.erm(np.linspace(-2, 2, 8), 1.0, (-1, 1))
    x = np.linspace(-1, 1, 2001)
    p = erm.probabilities(x)
    fig, axes = figure(1, 2, width=8, height=3)
    for axis, i in zip(axes, (3, 6)):
        breaks = np.searchsorted(x, erm.knots[1:-1])
        for part in np.split(np.arange(len(x)), breaks):
            axis.plot(x[part], p[part, i - 1], color=COLOURS[0])
        for b in erm.bins[(erm.bins > -1) & (erm.bins < 1)]:
            axis.axvline(b, color="0.8", linewidth=0.8, zorder=0)
        axis.set(title=f"p(x, {i})", xlabel="input x", ylabel="probability")
    report.figure(
        "figure2", fig, caption="Figure 2: output probabilities of ERM, m = 8, γ = 1, bins uniform on [−2, 2]"
    )

    fig, axes = figure(1, 3, width=10, height=3.2)
    for axis, epsilon in zip(axes, (0.5, 1.0, 1.5)):
        for colour, name in zip(COLOURS, ("OPTM", "RQM", "ERM", "MVU")):
            mechanism = made.get((epsilon, name))
            if mechanism is not None:
                axis.plot(x, mechanism.loss_at(x), label=name, color=colour)
        axis.set(title=f"ε = {epsilon}", xlabel="input x")
    axes[0].set_ylabel("E |M(x) − x|")
    axes[1].legend(frameon=False)
    report.figure("figure3", fig, caption="Figure 3: mean absolute error at every input, same privacy")


def run(report: Report) -> None:
    """Regenerate both tables and both figures."""
    report.record(solver="highs")
    made = table_1(report)
    table_2(report)
    theorem_1(report)
    searched(report)
    figures(report, made)
    report.text(
        "The paper has OPTM ahead of MVU in both tables. **The order reverses** in Table 1 at ε = 1.5, where MVU with its outputs searched "
        "is below OPTM (last table), and in Table 2 at σ = 0.3, where MVU with its four input points is. The study `errata` computes both, and "
        "the printed row of MVU in Table 2.",
        of=("table1", "table2", "searched"),
    )
