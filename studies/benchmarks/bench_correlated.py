"""Correlated Gaussian noise: the fixed point against the semidefinite program and against plain steps.

    python -m studies.benchmarks.bench_correlated [--large]

1. Twenty prefix counts: processor time of the fixed point, and of the semidefinite program solved by Clarabel, in turns.
2. Fixed-point steps with and without extrapolation, to the same gap.
3. "At most 3 of 20 counts", signed and not; prefix sums of 256 counts, and of 1,024 with --large, total and largest error.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pandas as pd

import mechdesign as md

PRIVACY = md.ApproximateDP(1.0, 1e-6)


def timed(function: Callable[[], md.Result]) -> tuple[float, md.Result]:
    """Processor seconds, and what came of them."""
    started = time.process_time()
    result = function()
    return time.process_time() - started, result


def against_the_program(sizes: tuple[int, ...] = (8, 20)) -> pd.DataFrame:
    """The same question by both routes."""
    rows = []
    for n in sizes:
        vectors = np.tril(np.ones((n, n)))
        md.CorrelatedGaussian(vectors, PRIVACY).solve()
        fast, found = min(
            (timed(lambda v=vectors: md.CorrelatedGaussian(v, PRIVACY).solve()) for _ in range(5)),
            key=lambda r: r[0],
        )
        slow, program = timed(lambda v=vectors: md.CorrelatedGaussian(v, PRIVACY).solve("clarabel"))
        rows.append(
            {
                "prefix counts": n,
                "fixed point, s": fast,
                "gap": found.gap,
                "semidefinite program, s": slow,
                "its gap": program.gap,
                "ratio": slow / fast,
            }
        )
    return pd.DataFrame(rows)


def plain_steps(vectors: np.ndarray, gap: float, most: int = 20_000) -> int:
    """Steps of w ← w g alone."""
    weights = np.full(len(vectors), 1 / len(vectors))
    for step in range(most):
        _, singular, directions = np.linalg.svd(np.sqrt(weights)[:, None] * vectors, full_matrices=False)
        share = ((vectors @ directions.T) ** 2 / singular).sum(axis=1) / singular.sum()
        if share.max() - 1 <= gap:
            return step
        weights = weights * share
    return most


def steps() -> pd.DataFrame:
    """To a gap of 1e-6."""
    rng = np.random.default_rng(0)
    sets = {
        "prefix counts, 20": np.tril(np.ones((20, 20))),
        "prefix counts, 64": np.tril(np.ones((64, 64))),
        "e1, e2, (1, 1)/√2": np.array([[1, 0], [0, 1], [0.5**0.5, 0.5**0.5]]),
        "30 normal vectors in 6 dimensions": rng.normal(size=(30, 6)),
    }
    rows = []
    for name, vectors in sets.items():
        result = md.CorrelatedGaussian(vectors, PRIVACY).solve(gap=1e-6)
        plain = plain_steps(vectors, 1e-6)
        taken = max(result.solver_report.iterations, 1)
        rows.append({"set": name, "steps": taken, "plain steps": plain, "ratio": plain / taken})
    return pd.DataFrame(rows)


def scale(*, large: bool) -> pd.DataFrame:
    """Times of what the documentation promises."""
    jobs: dict[str, Callable[[], md.Result]] = {
        "at most 3 of 20, one sign": lambda: md.CountsGaussian(20, 3, PRIVACY, signed=False).solve(),
        "at most 3 of 20, any signs": lambda: md.CountsGaussian(20, 3, PRIVACY).solve(),
    }
    for n in (20, 256, *((1024,) if large else ())):
        for loss in ("total", "largest"):
            jobs[f"prefix sums of {n}, {loss} error"] = lambda n=n, loss=loss: md.MatrixMechanism(
                md.Workload.prefix_sums(n), PRIVACY, loss=loss
            ).solve()
    rows = []
    for name, job in jobs.items():
        seconds, result = timed(job)
        verifying, holds = timed(lambda r=result: r.certificate.verify())
        rows.append(
            {
                "question": name,
                "seconds": seconds,
                "gap": result.gap,
                "verified": holds,
                "verifying, s": verifying,
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    for table in (against_the_program(), steps(), scale(large=arguments.large)):
        print(table.to_markdown(index=False, floatfmt=".3g"))
        print()


if __name__ == "__main__":
    main()
