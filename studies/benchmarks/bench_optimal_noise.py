"""The optimal noise: generated cuts against listing every row, and the whole grid.

    python -m studies.benchmarks.bench_optimal_noise [--grid]

1. The same upper program, with cuts generated on HiGHS and with every row listed in CVXPY (HiGHS too): times of the
   solves and values. The cut version also computes the lower bound, the repair and both exact proofs.
2. With --grid: the 10 × 10 grid of (ε, δ) for both losses at a gap of 1%, one process.
"""

from __future__ import annotations

import argparse
import math
import time

import pandas as pd

import mechdesign as md
from mechdesign import solvers

EPSILONS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
DELTAS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.75)


def against_listing() -> pd.DataFrame:
    """Cuts against all rows."""
    rows = []
    for epsilon, delta, cells in ((1.0, 0.2, 8), (1.0, 0.2, 16), (2.0, 0.1, 16), (2.0, 0.1, 24)):
        design = md.OptimalNoise(privacy=md.ApproximateDP(epsilon, delta))
        started = time.perf_counter()
        cuts = design.solve(cells=cells)
        ours = time.perf_counter() - started
        reach = 1 + math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon
        started = time.perf_counter()
        listed = solvers.solve(design.model(cells=cells, reach=reach), "highs")
        rows.append(
            {
                "epsilon": epsilon,
                "delta": delta,
                "cells": cells,
                "cuts, s": ours,
                "listed, s": time.perf_counter() - started,
                "value": cuts.value,
                "listed value": listed.value,
                "rows": cuts.solver_report.constraints,
                "listed rows": listed.constraints,
            }
        )
    frame = pd.DataFrame(rows)
    frame["listed / cuts"] = frame["listed, s"] / frame["cuts, s"]
    return frame


def grid() -> pd.DataFrame:
    """Gap and time per ε over the grid."""
    rows = []
    for loss in ("absolute", "squared"):
        for epsilon in EPSILONS:
            for delta in DELTAS:
                result = md.OptimalNoise(privacy=md.ApproximateDP(epsilon, delta), loss=loss).solve(gap=0.01)
                rows.append(
                    (loss, epsilon, result.gap, result.certificate.verify(), result.solver_report.seconds)
                )
    frame = pd.DataFrame(rows, columns=["loss", "epsilon", "gap", "checked", "seconds"])
    table = frame.groupby(["loss", "epsilon"], as_index=False).agg(
        {"gap": "max", "checked": "all", "seconds": "sum"}
    )
    print(f"all cells: largest gap {frame['gap'].max():.4f}, {frame['seconds'].sum():.1f} s")
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", action="store_true")
    arguments = parser.parse_args()
    print(against_listing().to_markdown(index=False, floatfmt=".5g"))
    if arguments.grid:
        print(grid().to_markdown(index=False, floatfmt=".3g"))


if __name__ == "__main__":
    main()
