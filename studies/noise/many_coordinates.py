r"""Which noise is best for K coordinates: a map over K, ε and δ, and what independent noise cannot reach.

Every coordinate moves by at most 1, all K at once; the cost is the variance of one. Every named family is calibrated exactly, and so is
noise that is drawn together: K-norm noise of the cube, or its staircase, which is pure and so (ε, δ)-private.
For K > 1 the best family is what `OptimalNoise(dimension=K)` returns, for K = 1 the optimum of one coordinate, if it is better.
The lower bound is of *independent noise of one law*: the privacy of all the answers makes the mean of some of them so
much more private than it need be alone, and what that costs is the optimum of one coordinate. K-norm noise may lie below it.
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
    together = md.noise.KNorm(k, privacy).solve().value
    return {
        "K": k,
        "epsilon": epsilon,
        "delta": delta,
        **named,
        "k-norm": together,
        "best family": family,
        "best": "k-norm" if k > 1 and together < least else family,
        "least independent": least,
        "least": min(together, least),
        "lower bound of independent": result.lower_bound,
    }


def drawn(report: Report, table: pd.DataFrame) -> None:
    """The map: one panel a δ, the best noise as colour, the least independent over the least of all as a number."""
    deltas = sorted(table["delta"].unique(), reverse=True)
    fig, axes = figure(1, len(deltas), width=3.2 * len(deltas), height=3.4)
    families = [f for f in (*FAMILIES, "k-norm") if (table["best"] == f).any()]
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
    gain = several["least independent"] / several["k-norm"]
    won = gain > 1
    lost = several[~won]
    report.text(
        f"Over {len(several)} settings with K > 1 noise drawn together (K-norm noise of the cube, or its staircase) has less variance than the "
        f"best independent noise found in {int(won.sum())}: {gain[won].median():.2f} times less in the median, at most {gain.max():.2f} times. It loses at "
        f"K = {' and '.join(str(k) for k in sorted(lost['K'].unique()))} where ε is small for so many numbers."
    )
    below = several["k-norm"] < several["lower bound of independent"]
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
