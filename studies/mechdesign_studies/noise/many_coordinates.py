r"""Which noise is best for K coordinates: a map over K, ε and δ, and what independent noise cannot reach.

Every coordinate moves by at most 1, all K at once; the cost is the variance of one. Every named family is calibrated exactly, and so is
noise that is drawn together: K-norm noise of the cube, or its staircase, which is pure and so (ε, δ)-private, and exponential ℓ₂ noise,
whose δ is counted. A second table goes up to 200 numbers.
For K > 1 the best family is what `OptimalNoise(dimension=K)` returns, for K = 1 the optimum of one coordinate, if it is better.
The lower bound is of *independent noise of one law*: the privacy of all the answers makes the mean of some of them so
much more private than it need be alone, and what that costs is the optimum of one coordinate. Noise drawn together may lie below it.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import joblib
import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report

COORDINATES = (1, 3, 8, 20, 50)
EPSILONS = (0.1, 0.5, 1.0, 3.0, 10.0)
DELTAS = (1e-3, 1e-6, 1e-9, 1e-12)
QUICK = (
    *itertools.product((1,), (1.0, 5.0), (1e-3, 1e-6)),
    (1, 10.0, 1e-3),
    (3, 5.0, 1e-3),
    (8, 1.0, 1e-3),
    (8, 5.0, 1e-3),
    *itertools.product((20,), (1.0, 5.0), (1e-3, 1e-6)),
)
MANY = tuple(itertools.product((0.5, 1.0, 3.0), (2, 5, 10, 20, 30, 40, 50, 70, 100, 200)))
QUICK_MANY = tuple(itertools.product((1.0,), (5, 50, 100)))
TOGETHER = {"k-norm": math.inf, "l2": 2.0}
FAMILIES = (
    "gaussian",
    "laplace",
    "flipped_huber",
    "gennorm",
    "osgt",
    "logistic",
    "staircase",
    "truncated_laplace",
)


def drawn_together(k: int, privacy: md.ApproximateDP) -> dict[str, float]:
    """Variances of noise of the cube and of ℓ₂."""
    return {name: md.noise.KNorm(k, privacy, norm=norm).solve().value for name, norm in TOGETHER.items()}


def many(epsilon: float, k: int) -> dict[str, Any]:
    """Noise drawn together and the best named independent noise, at δ = 10⁻⁶."""
    privacy = md.ApproximateDP(epsilon, 1e-6)
    found = drawn_together(k, privacy)
    for family in ("gaussian", "gennorm"):
        found[family] = md.calibrate(family, privacy=privacy, sensitivity=1.0, dimension=k).value
    best = min(found, key=lambda name: found[name])
    others = min(found[name] for name in ("k-norm", "gaussian", "gennorm"))
    return {"epsilon": epsilon, "K": k, **found, "best": best, "l2 over the best other": found["l2"] / others}


def cell(k: int, epsilon: float, delta: float) -> dict[str, Any]:
    """Variances at one point: of every family, of noise drawn together, the least found, and the lower bound of independent noise."""
    privacy = md.ApproximateDP(epsilon, delta)
    found: dict[str, float] = {}
    for family in FAMILIES:
        try:
            found[family] = md.calibrate(family, privacy=privacy, sensitivity=1.0, dimension=k).value
        except md.MechdesignError:
            continue
    if k == 1:
        result = md.OptimalNoise(privacy, loss="squared").solve(gap=0.01, time_limit=20)
    else:
        result = md.OptimalNoise(privacy, loss="squared", dimension=k).solve(time_limit=60)
    named = {family: found.get(family, math.nan) for family in FAMILIES}
    family = min((f for f in FAMILIES if f in found), key=lambda f: found[f])
    least = min(result.value, named[family])  # K = 1: the gap asked for may be wider than what separates them
    both = drawn_together(k, privacy)
    drawn = min(both, key=lambda name: both[name])
    return {
        "K": k,
        "epsilon": epsilon,
        "delta": delta,
        **named,
        **both,
        "best family": family,
        "best": drawn if k > 1 and both[drawn] < least else family,
        "least independent": least,
        "least": min(both[drawn], least),
        "lower bound of independent": result.lower_bound,
    }


def drawn(report: Report, table: pd.DataFrame) -> None:
    """The map: one panel a δ, the best noise as colour, the least independent over the least of all as a number."""
    deltas = sorted(table["delta"].unique(), reverse=True)
    fig, axes = figure(1, len(deltas), width=3.2 * len(deltas), height=3.4)
    families = [f for f in (*FAMILIES, *TOGETHER) if (table["best"] == f).any()]
    for axis, delta in zip(np.atleast_1d(axes), deltas, strict=True):
        part = table[table["delta"] == delta]
        rows, columns = sorted(part["K"].unique()), sorted(part["epsilon"].unique())
        for _, row in part.iterrows():
            x, y = columns.index(row["epsilon"]), rows.index(row["K"])
            colour = COLOURS[families.index(row["best"]) % len(COLOURS)]
            axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, alpha=0.5))
            gain = row["least independent"] / row["least"]
            axis.text(x, y, f"{gain:.2f}", ha="center", va="center", fontsize=7)
        axis.set_xticks(range(len(columns)), [f"{e:g}" for e in columns])
        axis.set_yticks(range(len(rows)), [str(k) for k in rows])
        axis.set(
            xlim=(-0.5, len(columns) - 0.5),
            ylim=(-0.5, len(rows) - 0.5),
            xlabel="ε",
            ylabel="K",
            title=f"δ = {delta:g}",
        )
    for i, family in enumerate(families):
        np.atleast_1d(axes)[0].plot(
            [], [], "s", color=COLOURS[i % len(COLOURS)], alpha=0.5, label=family.replace("_", " ")
        )
    np.atleast_1d(axes)[0].legend(fontsize=6, loc="lower left", bbox_to_anchor=(0, 1.1), ncols=3)
    report.figure(
        "map",
        fig,
        caption="Best noise of all (colour), and how many times its variance the best independent noise has",
    )


def up_to_many(report: Report) -> None:
    """Where noise of the cube, of ℓ₂ and independent noise win up to 200 numbers."""
    rows = joblib.Parallel(n_jobs=report.jobs)(
        joblib.delayed(many)(*point) for point in (QUICK_MANY if report.quick else MANY)
    )
    table = pd.DataFrame(rows)
    report.table("many", table, caption="Up to 200 numbers at δ = 10⁻⁶", rtol=1e-3, atol=1e-6)
    for epsilon, part in table.groupby("epsilon"):
        won = part[part["best"] == "l2"]
        saved = 100 * (1 - won["l2 over the best other"])
        report.text(
            f"At ε = {epsilon:g} noise of the cube is best up to K = {part['K'][part['best'] == 'k-norm'].max()}, ℓ₂ noise from {won['K'].min()} on, by "
            f"{saved.max():.1f}% at K = {won['K'][saved.idxmax()]} and {saved.iloc[-1]:.1f}% at {won['K'].iloc[-1]}."
        )


def run(report: Report) -> None:
    """Fill the report."""
    grid = QUICK if report.quick else tuple(itertools.product(COORDINATES, EPSILONS, DELTAS))
    rows = joblib.Parallel(n_jobs=report.jobs)(joblib.delayed(cell)(*point) for point in grid)
    table = pd.DataFrame(rows)
    report.table(
        "map", table, caption="Variances of one coordinate, sensitivity 1 in each", rtol=1e-3, atol=0.05
    )
    drawn(report, table)
    several = table[table["K"] > 1]
    together = several[list(TOGETHER)].min(axis=1)
    gain = several["least independent"] / together
    won = gain > 1
    lost = several[~won]
    report.text(
        f"Over {len(several)} settings with K > 1 noise drawn together (of the cube or of ℓ₂) has less variance than the "
        f"best independent noise found in {int(won.sum())}: {gain[won].median():.2f} times less in the median, at most {gain.max():.2f} times."
        + (
            f" It loses at K = {' and '.join(map(str, sorted(lost['K'].unique())))}, where ε is small or δ large."
            if len(lost)
            else ""
        )
    )
    below = together < several["lower bound of independent"]
    report.text(
        f"In {int(below.sum())} of them it lies below the lower bound, which is of independent noise of one law and of nothing else."
    )
    wins = several["best family"].value_counts()
    report.text(
        "Of independent noise the best named family is "
        + ", ".join(f"{name.replace('_', ' ')} in {count}" for name, count in wins.items())
        + "."
    )
    alone = table[table["K"] == 1]
    below = 100 * (1 - alone["least independent"] / alone[list(FAMILIES)].min(axis=1))
    report.text(
        f"For K = 1 the law found lies below the best named family by {below.max():.2g}% at most; in {int((below < 1e-3).sum())} of "
        f"{len(alone)} settings by less than .001%."
    )
    ends = several[["gaussian", "laplace"]].min(axis=1)
    huber, gennorm = (100 * (1 - several[f] / ends) for f in ("flipped_huber", "gennorm"))
    report.text(
        f"Against the better of Gaussian and Laplace noise, flipped Huber noise saves {huber.median():.2g}% in the median and at most "
        f"{huber.max():.2f}%; generalised normal noise {gennorm.median():.2g}% and at most {gennorm.max():.2f}%."
    )
    above = several["least independent"] / several["lower bound of independent"]
    worst = several.loc[above.idxmax()]
    report.text(
        f"The least independent noise found is {above.median():.2f} times the lower bound of its class in the median, between {above.min():.2f} and "
        f"{above.max():.2f} times (K = {worst['K']}, ε = {worst['epsilon']:g}, δ = {worst['delta']:g})."
    )
    up_to_many(report)
