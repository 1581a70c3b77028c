"""Flipped Huber noise in several dimensions (Figure 4, Table II, and beyond): part of the study `flipped-huber`."""

from __future__ import annotations

import math

import pandas as pd

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report
from mechdesign_studies.pictures import nested

from .calibrated import saving, sufficient_variance, variance
from .profiles import decibel

EPSILONS = (0.2, 0.4, 1.0, 2.2, 5.0)
PRINTED_SUFFICIENT = (7237.09, 1971.36, 359.57, 87.09, 19.49)
PRINTED_LAPLACE = (20000.0, 5000.0, 800.0, 165.29, 32.0)
DELTAS = (0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-6, 1e-8, 1e-12)
FAMILIES = {
    "flipped Huber": "flipped_huber",
    "Laplace": "laplace",
    "Gaussian": "gaussian",
    "truncated Laplace": "truncated_laplace",
}
PRINTED_STAIRCASE = (19999.92, 4999.92, 799.92, 165.21, 31.92)


def few_dimensions(report: Report) -> None:
    """Figure 4: K = 3 and K = 5 at δ = 1e-8, and the two values printed for K = 5, ε = 0.3."""
    rows = []
    for k in (3, 5):
        for epsilon in (0.3, 1.0, 2.0):
            rows.append(
                {
                    "K": k,
                    "epsilon": epsilon,
                    "flipped Huber, exact": variance("flipped_huber", epsilon, 1e-8, k),
                    "flipped Huber, sufficient": sufficient_variance(epsilon, 1e-8, k),
                    "Gaussian": variance("gaussian", epsilon, 1e-8, k),
                    "Laplace": variance("laplace", epsilon, 1e-8, k),
                    "OSGT": variance("osgt", epsilon, 1e-8, k),
                }
            )
    table = pd.DataFrame(rows)
    report.table("figure4", table, caption="Figure 4: least variance per coordinate, δ = 1e-8", rtol=1e-3)
    gains = {
        k: decibel(float(part["Gaussian"].iloc[0] / part["flipped Huber, exact"].iloc[0]))
        for k, part in table[table["epsilon"] == 0.3].groupby("K")
    }
    report.text(
        f"At ε = 0.3 flipped Huber noise saves {gains[3]:.2f} dB of variance over Gaussian noise in three dimensions and "
        f"{gains[5]:.2f} dB in five: the gain shrinks by {gains[3] - gains[5]:.2f} dB, where the paper prints 1.7."
    )
    fig, axes = figure(1, 2, width=9.0, height=3.4)
    for axis, (k, part) in zip(axes, table.groupby("K"), strict=True):
        nested(axis, part["epsilon"], part[part.columns[2:]])
        axis.set(xlabel="ε", ylabel="variance", title=f"K = {k}")
    axes[0].legend(fontsize=7)
    report.figure(
        "figure4",
        fig,
        caption="Figure 4: K = 3 and K = 5; where curves coincide their markers lie in one another",
    )

    rows = []
    for delta in (1e-8, 1e-6, 1e-5, 1e-4):
        rows.append(
            {
                "delta": delta,
                "exact": variance("flipped_huber", 0.3, delta, 5),
                "sufficient": sufficient_variance(0.3, delta, 5),
                "Gaussian": variance("gaussian", 0.3, delta, 5),
            }
        )
    report.table(
        "k5", pd.DataFrame(rows), caption="K = 5, ε = 0.3: printed 502 (exact), 557 (sufficient)", rtol=1e-3
    )
    low, where = least_delta(502.0, 5, 0.3)
    report.record(least_delta_at_502=low)
    report.text(
        "Printed: exact 502, sufficient 557, said to be at δ = 1e-8. As α/γ grows Theorem 8 tends to Laplace noise by basic composition, "
        "2(K/ε)² = 555.6, at every δ; 557 needs an α of tens of millions. Within the printed region of search, α ≤ 150 and γ ≤ 50, its least variance "
        f"is next to the Gaussian's, {rows[0]['Gaussian']:.1f} (study `errata`). Nor is the exact value explained: among flipped Huber laws of variance 502 with "
        f"K = 5 and ε = 0.3, over the shapes α/γ tried, none has δ below {low:.2g} (reached near α/γ = {where:.2g}), "
        "thousands of times the stated 1e-8; at 1e-6 the least variance is still above 550. The nested numerical integration of the "
        "paper, which its authors call unstable for small α and γ, must have lost the tail of δ."
    )


def least_delta(v: float, k: int, epsilon: float) -> tuple[float, float]:
    """Least δ (certified from below) of flipped Huber laws of variance v, over their shape."""
    best = (1.0, 0.0)
    for b in (0.0, 0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 2.6, 3.3, 4.0, 6.0):
        law = md.noise.flipped_huber(b, scale=math.sqrt(v / md.noise.flipped_huber(b).var()))
        best = min(
            best,
            (
                md.accounting.delta_interval(md.accounting.NoiseTerm(law, 1.0, k), epsilon, width=0.02).lower,
                b,
            ),
        )
    return best


def table_two(report: Report) -> None:
    """Table II, K = 20, with the exact rows, the plain Gaussian and other readings of δ; then K up to 1,000."""
    rows = []

    def add(name: str, delta: float | None, values: list[float] | tuple[float, ...]) -> None:
        rows.append(
            {
                "noise": name,
                "delta": delta,
                **{f"ε = {e:g}": v for e, v in zip(EPSILONS, values, strict=True)},
            }
        )

    add("flipped Huber, sufficient (printed)", None, PRINTED_SUFFICIENT)
    for delta in (1e-8, 1e-6):
        add("flipped Huber, sufficient", delta, [sufficient_variance(e, delta, 20) for e in EPSILONS])
        add("flipped Huber, exact", delta, [variance("flipped_huber", e, delta, 20) for e in EPSILONS])
        add("Gaussian, exact", delta, [variance("gaussian", e, delta, 20) for e in EPSILONS])
        add("Laplace, exact", delta, [variance("laplace", e, delta, 20) for e in EPSILONS])
        add("OSGT, exact", delta, [variance("osgt", e, delta, 20) for e in EPSILONS])
    add("Laplace, basic composition (printed)", 0.0, PRINTED_LAPLACE)
    add("Laplace, basic composition", 0.0, [variance("laplace", e, 0.0, 20) for e in EPSILONS])
    add("staircase, independent (printed)", 0.0, PRINTED_STAIRCASE)
    add("staircase, independent", 0.0, [variance("staircase", e, 0.0, 20) for e in EPSILONS])
    report.table(
        "table2", pd.DataFrame(rows), caption="Table II: variance per coordinate, K = 20, Δ = 1", rtol=1e-3
    )

    rows = []
    for epsilon, printed in zip(EPSILONS, PRINTED_SUFFICIENT, strict=True):
        gaussian = md.accounting.gaussian_profile(epsilon, math.sqrt(20 / printed))
        low, _ = least_delta(printed, 20, epsilon)
        rows.append(
            {
                "epsilon": epsilon,
                "printed variance": printed,
                "δ of a Gaussian of that variance": gaussian,
                "least δ of a flipped Huber of that variance": low,
                "printed / Gaussian at 1e-6": printed / variance("gaussian", epsilon, 1e-6, 20),
                "printed / Gaussian at 1e-8": printed / variance("gaussian", epsilon, 1e-8, 20),
            }
        )
    report.table(
        "readings", pd.DataFrame(rows), caption="Which δ does the printed row of Table II have?", rtol=2e-2
    )
    report.text(
        "The row is printed for δ = 1e-8, at which it is impossible: no flipped Huber law of those variances has δ anywhere "
        "near 1e-8 (fourth column, proved lower bounds at the shapes tried). Read at δ = 1e-6 it is 0.03% to 4% *above* "
        "the plain Gaussian. At α = 0 Theorem 8 is the exact Gaussian condition, so its true best at 1e-6 is never above "
        "the Gaussian: the row is Theorem 8 at δ = 1e-6 minimised over a grid too coarse in γ (1971.36 is 44.4²), with the "
        "wrong δ in the caption. Other readings do not help: a smaller δ, or Δ₂ larger than √K, only raises the variances. "
        "Laplace at ε = 2.2 is 165.289, staircase as printed."
    )

    rows = []
    for k in (20, 100, 1000):
        for epsilon in (0.4, 1.0, 5.0):
            noise = md.calibrate(
                "flipped_huber", privacy=md.ApproximateDP(epsilon, 1e-8), sensitivity=1.0, dimension=k
            )
            gaussian = variance("gaussian", epsilon, 1e-8, k)
            rows.append(
                {
                    "K": k,
                    "epsilon": epsilon,
                    "flipped Huber": noise.value,
                    "α/γ": noise.mechanism.parameters["b"],
                    "δ from": noise.proofs[0].given.lower,
                    "δ to": noise.proofs[0].given.upper,
                    "Gaussian": gaussian,
                    "gain over Gaussian, %": saving(noise.value, gaussian),
                }
            )
    report.table(
        "many_dimensions",
        pd.DataFrame(rows),
        caption="Exact calibration up to K = 1,000, δ = 1e-8",
        rtol=1e-3,
        atol=5e-3,
        volatile=("α/γ", "δ from", "δ to"),
    )


def one_number(report: Report) -> None:
    """One number, δ from 1e-12 to 0.1: flipped Huber noise beside Laplace, Gaussian, truncated Laplace and the best noise of any shape."""
    rows = []
    for delta in DELTAS:
        for epsilon in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0):
            best = md.OptimalNoise(md.ApproximateDP(epsilon, delta), loss="squared").solve(gap=1e-3)
            found = variances(epsilon, delta, 1)
            rows.append({**found, "optimum, from": best.lower_bound, "optimum, to": best.value})
    table = pd.DataFrame(rows)
    report.table(
        "one_number",
        table,
        caption="One number: variance of flipped Huber, Laplace, Gaussian and truncated Laplace noise, and the least of any additive noise",
        rtol=2e-3,
        atol=1e-3,
        inline=60,
    )
    saved, most = table["gain, %"], table.loc[table["gain, %"].idxmax()]
    ours, truncated, optimum = (table[c] for c in ("flipped Huber", "truncated Laplace", "optimum, from"))
    small = table["epsilon"] <= 0.3
    report.text(
        f"One number: over these {len(table)} settings flipped Huber noise saves up to {most['gain, %']:.1f}% of the variance of the better of "
        f"Laplace and Gaussian noise (ε = {most['epsilon']:g}, δ = {most['delta']:g}: {most['flipped Huber']:.1f} for {most['Laplace']:.1f} and "
        f"{most['Gaussian']:.1f}), and more than 5% in {int((saved > 5).sum())}, all with δ ≥ {table[saved > 5]['delta'].min():g}. "
        f"Truncated Laplace noise has less still (more than flipped Huber in {int((truncated > ours * (1 + 1e-6)).sum())} of them), "
        f"up to {saving(1.0, (ours / truncated).max()):.0f}% less. The least of all additive noise is up to "
        f"{saving(1.0, (truncated / optimum)[small].max()):.1f}% below truncated Laplace noise where ε ≤ 0.3, up to "
        f"{saving(1.0, (truncated / optimum)[~small].max()):.0f}% at a larger ε, where the best noise is a staircase."
    )


def variances(epsilon: float, delta: float, k: int) -> dict[str, object]:
    """A row: the least variances of four families, and what flipped Huber noise saves over the better of its two limits."""
    row = {name: variance(family, epsilon, delta, k) for name, family in FAMILIES.items()}
    better = min("Laplace", "Gaussian", key=row.__getitem__)
    gain = saving(row["flipped Huber"], row[better])
    return {"delta": delta, "epsilon": epsilon, "K": k, **row, "better": better, "gain, %": gain}


def gains(report: Report) -> None:
    """Flipped Huber against the better of Laplace and Gaussian, truncated Laplace beside it; then two other families."""
    cells = [(k, e, d) for d in DELTAS for e in (0.1, 1.0, 10.0) for k in (1, 2, 3, 5, 10, 20, 50, 100)]
    rows = []
    with report.progress("calibrations", len(cells)) as step:
        for k, epsilon, delta in cells:
            rows.append(variances(epsilon, delta, k))
            step()
    table = pd.DataFrame(rows)
    report.table(
        "gain",
        table,
        caption="Flipped Huber against the better of Laplace and Gaussian, and truncated Laplace",
        rtol=1e-3,
        atol=5e-2,
        inline=0,
    )
    fig, axes = figure(2, 4, width=12.0, height=5.6, sharex=True, sharey=True)
    for axis, (delta, part) in zip(axes.flat, table.groupby("delta", sort=False), strict=True):
        for colour, (epsilon, line) in zip(COLOURS, part.groupby("epsilon"), strict=False):
            axis.semilogx(line["K"], line["gain, %"], "o-", ms=3, color=colour, label=f"ε = {epsilon:g}")
        axis.set(title=f"δ = {delta:g}")
    for axis in axes[1]:
        axis.set_xlabel("K")
    for axis in axes[:, 0]:
        axis.set_ylabel("variance saved, %")
    axes[0, 0].legend(fontsize=7)
    report.figure(
        "gain", fig, caption="Variance that flipped Huber saves over the better of Laplace and Gaussian"
    )
    saved, best = table["gain, %"], table.loc[table["gain, %"].idxmax()]
    shorter = table["truncated Laplace"] < table["flipped Huber"] * (1 - 1e-6)
    large = table["delta"] >= 1e-4
    ten = table[large & (table["K"] >= 10)]
    ten = ten.loc[ten["gain, %"].idxmax()]
    report.text(
        f"Under exact accounting, over {len(table)} settings with δ from {min(DELTAS):g} to {max(DELTAS):g}, flipped Huber noise saves more than 1% of the "
        f"variance of the better of Laplace and Gaussian noise in {int((saved > 1).sum())}, more than 5% in {int((saved > 5).sum())}, and a median of "
        f"{saved.median():.2g}%. What it saves lies at few numbers and large δ, where Laplace hands over to Gaussian: up to "
        f"{best['gain, %']:.1f}% (K = {best['K']}, ε = {best['epsilon']:g}, δ = {best['delta']:g}), up to "
        f"{saved[large & table['K'].between(2, 5)].max():.1f}% for two to five numbers, up to {ten['gain, %']:.1f}% from ten on "
        f"(K = {ten['K']}, ε = {ten['epsilon']:g}, δ = {ten['delta']:g}), and up to {saved[~large].max():.1f}% for δ ≤ 1e-6. From the handover on the best "
        f"flipped Huber law *is* Gaussian noise (α = 0 or nearly). It is never worse than either, which it contains as limits. Truncated Laplace "
        f"noise needs less than flipped Huber for one number (in {int(shorter.sum())} settings by more than a millionth; for K > 1 in "
        f"{int((shorter & (table['K'] > 1)).sum())}); of many numbers it needs as much as Laplace noise."
    )

    rows = []
    for k in (5, 10, 20, 100):
        base = {
            f: variance(f, 1.0, 1e-6, k)
            for f in ("gaussian", "laplace", "flipped_huber", "osgt", "logistic", "gennorm")
        }
        better = min(base["gaussian"], base["laplace"])
        rows.append(
            {
                "K": k,
                **base,
                **{f"{f}, %": saving(base[f], better) for f in ("flipped_huber", "osgt", "gennorm")},
            }
        )
    report.table(
        "other_families",
        pd.DataFrame(rows),
        caption="Other log-concave families, ε = 1, δ = 1e-6: variance, and what they save over Laplace and Gaussian",
        rtol=1e-3,
        atol=5e-2,
    )
    report.text(
        "Other ways of joining a sharp centre to a light tail do better than splicing: near the handover from Laplace to "
        "Gaussian, OSGT (a Gaussian tail with an offset) and generalised normal noise of exponent between 1 and 2 save "
        "about 9% and 11% at K = 10 where flipped Huber saves 0.2%; even logistic noise beats it there. The advantage fades "
        "as K grows. The study `many-coordinates` maps which family is best where and what lies above all of "
        "them; for K = 1 the study `optimal-noise` shows what any density could save."
    )
