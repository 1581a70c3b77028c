"""Allocation of non-identical noise: closed form against one pass of `np.sqrt`, and against Clarabel.

    python -m studies.benchmarks.bench_allocation [--coordinates 1000000] [--profiles 500]

1. Time of the closed form, and of the whole `solve`, over that of one `np.sqrt` pass over as many coordinates.
2. Random profiles (K 1–500, ratios up to 1e6, p 1–4, both laws): relative difference between the closed form and the
   convex model with Clarabel, and whether the exact rational budget is kept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pandas as pd

import mechdesign as md
from studies.benchmarks.turns import Ratio

PRIVACY = md.ApproximateDP(0.5, 1e-6)


def best_time(function: Callable[[], object], repetitions: int = 25) -> float:
    """Least of several processor times, in seconds: both sides run on one thread."""
    times = []
    for _ in range(repetitions):
        started = time.process_time()
        function()
        times.append(time.process_time() - started)
    return min(times)


def speed(size: int) -> pd.DataFrame:
    """Multiples of one np.sqrt pass."""
    lam = np.random.default_rng(0).random(size) + 0.01
    base = best_time(lambda: np.sqrt(lam))
    rows = []
    for noise in ("gaussian", "laplace"):
        for order in (1, 1.5, 1.7, 2, 2.5, 3, 4):
            design = md.NoiseAllocation(noise=noise, sensitivities=lam, privacy=PRIVACY, loss=order)
            rows.append(
                {
                    "noise": noise,
                    "p": order,
                    "np.sqrt, ms": 1e3 * base,
                    "solve, ms": 1e3 * best_time(lambda d=design: d.solve("closed-form")),
                }
            )
    frame = pd.DataFrame(rows)
    frame["solve / np.sqrt (bar: 8)"] = frame["solve, ms"] / frame["np.sqrt, ms"]
    return frame


def agreement(count: int) -> pd.DataFrame:
    """Closed form against Clarabel."""
    rng = np.random.default_rng(1)
    rows = []
    for index in range(count):
        size, noise = int(rng.integers(1, 501)), ("gaussian", "laplace")[index % 2]
        order = float(rng.choice([1, 2, 3, 4, rng.uniform(1, 4)]))
        ratio = 10 ** rng.uniform(0, 6)
        lam = np.exp(rng.uniform(-np.log(ratio), 0, size)) * 10 ** rng.uniform(-3, 3)
        privacy = md.ApproximateDP(10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-9, -2))
        design = md.NoiseAllocation(noise=noise, sensitivities=lam, privacy=privacy, loss=order)
        formula, model = design.solve("closed-form"), design.solve("clarabel")
        rows.append(
            {
                "noise": noise,
                "difference": abs(formula.value - model.value) / formula.value,
                "by Clarabel": model.solver_report.solver == "clarabel",
                "budget kept": formula.certificate.verify() and model.certificate.verify(),
                "closed form, ms": 1e3 * formula.solver_report.seconds,
                "model, ms": 1e3 * (model.solver_report.seconds + model.solver_report.build_seconds),
            }
        )
    frame = pd.DataFrame(rows)
    return frame.groupby("noise").agg(
        profiles=("difference", "size"),
        largest_difference=("difference", "max"),
        by_clarabel=("by Clarabel", "all"),
        budget_kept=("budget kept", "all"),
        closed_form_ms=("closed form, ms", "median"),
        model_ms=("model, ms", "median"),
    )


def main() -> list[Ratio]:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coordinates", type=int, default=1_000_000)
    parser.add_argument("--profiles", type=int, default=500)
    arguments = parser.parse_args()
    print("against one pass of np.sqrt over as many coordinates; bar: at most 8 times, whatever p")
    times = speed(arguments.coordinates)
    print(times.to_markdown(index=False, floatfmt=".3g"))
    print()
    print(agreement(arguments.profiles).to_markdown(floatfmt=".3g"))
    return [Ratio("solve / np.sqrt", float(times["solve / np.sqrt (bar: 8)"].max()), 8)]


if __name__ == "__main__":
    main()
