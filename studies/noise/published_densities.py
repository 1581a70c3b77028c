r"""The densities of the literature for many compositions, calibrated to (ε, δ) and set beside the named families.

Cactus noise minimises the Kullback–Leibler divergence between the law and its shift at a given cost, which decides when
infinitely many coordinates are composed; least-Rényi noise minimises the divergence of order a > 1. Both are scaled to the
requirement and certified as any other law, at K coordinates of sensitivity 1.
"""

from __future__ import annotations

import math
from typing import Any

import joblib
import pandas as pd

import mechdesign as md
from mechdesign.shell.studykit import Report

POINTS = ((3, 4.0, 1e-2), (8, 4.0, 1e-3), (20, 5.0, 1e-6), (20, 8.0, 1e-3), (50, 10.0, 1e-6))
QUICK = ((20, 8.0, 1e-3),)


def row(k: int, epsilon: float, delta: float) -> dict[str, Any]:
    """Variances at one point."""
    privacy = md.ApproximateDP(epsilon, delta)
    found: dict[str, float] = {}
    for family in ("gaussian", "gennorm", "staircase"):
        found[family] = md.calibrate(family, privacy=privacy, sensitivity=1.0, dimension=k).value
    for order in (1.0, 3.0, 10.0):
        name = "cactus" if order == 1 else f"Rényi, order {order:g}"
        try:
            found[name] = md.noise.LeastDivergence(privacy, dimension=k, order=order).solve().value
        except md.SolverError:
            found[name] = math.nan
    found["best found"] = md.OptimalNoise(privacy, loss="squared", dimension=k).solve().value
    return {"K": k, "epsilon": epsilon, "delta": delta, **found}


def run(report: Report) -> None:
    """Fill the report."""
    points = QUICK if report.quick else POINTS
    table = pd.DataFrame(joblib.Parallel(n_jobs=report.jobs)(joblib.delayed(row)(*p) for p in points))
    report.table("densities", table, caption="Least variance of one coordinate", rtol=2e-3)
    least = table[["cactus", "Rényi, order 3", "Rényi, order 10"]].min(axis=1)
    over = 100 * (least / table["best found"] - 1)
    under = 100 * (1 - least / table["gaussian"])
    report.text(
        f"The better of the published densities saves {under.min():.2f}% to {under.max():.2f}% of Gaussian noise's variance and stays "
        f"{over.min():.2f}% to {over.max():.2f}% above the best law found; generalised normal noise is cheaper than all of them in "
        f"{int((table['gennorm'] <= least).sum())} of {len(table)} settings."
    )
