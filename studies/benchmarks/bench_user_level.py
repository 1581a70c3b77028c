"""Times of the user-level parts as ratios against a named alternative in the same run.

Run with ``python -m studies.benchmarks.bench_user_level``. Times are the best of a few repetitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import ot
import pandas as pd

import mechdesign as md
from studies.benchmarks.turns import Ratio


def best(run: Callable[[], object], repetitions: int = 3) -> float:
    """Least wall time in seconds."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def emd_rows() -> list[dict[str, object]]:
    """1,000 pairs of 100-point histograms against a loop over `ot.emd2`."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(100), (2, 1000))
    rows = []
    for name, space, bar in (
        ("EMD, 1,000 pairs in the plane", md.MetricSpace.euclidean(rng.random((100, 2))), 1 / 1.5),
        ("EMD, 1,000 pairs on 10 × 10 clusters", md.MetricSpace.clustered(10, 10, within=0.01), 50),
        ("EMD, 1,000 pairs on a line", md.MetricSpace.line(np.sort(rng.random(100))), 50),
    ):
        distances = space.distances.copy()
        ours = best(lambda space=space: md.emd(p, q, space))
        theirs = best(lambda d=distances: [ot.emd2(a, b, d) for a, b in zip(p, q)])
        gap = np.abs(md.emd(p, q, space) - [ot.emd2(a, b, distances) for a, b in zip(p, q)]).max()
        rows.append(
            {
                "task": name,
                "against": "ot.emd2",
                "seconds": ours,
                "ratio": theirs / ours,
                "bar": bar,
                "gap": gap,
            }
        )
    return rows


def amplification_rows() -> list[dict[str, object]]:
    """Numerical amplification at N = 10⁶: its time, and the closed form's ε over its ε."""
    rows = []
    for total, moved, positions in ((10**3, 0.1, 1), (10**6, 0.1, 1), (10**6, 3.0, 30), (10**9, 1.0, 1)):
        keywords = {"moved": moved, "positions": positions, "total": total, "delta": 1e-6}
        seconds = best(lambda k=keywords: md.amplification(1.0, **k))
        numerical = md.amplification(1.0, **keywords).epsilon
        closed = md.amplification(1.0, accounting="closed-form", **keywords).epsilon
        name = f"amplification, N = {total:.0e}, {positions} positions: closed ε / numerical ε"
        rows.append(
            {
                "task": name,
                "against": "closed form",
                "seconds": seconds,
                "ratio": closed / numerical,
                "bar": 3,
            }
        )
    return rows


def main() -> list[Ratio]:
    """Print the table."""
    table = pd.DataFrame(emd_rows() + amplification_rows())
    table["reached"] = table["ratio"] >= table["bar"]
    print(table.to_markdown(index=False, floatfmt=".3g"))
    rows = zip(table["task"], table["ratio"], table["bar"])
    return [Ratio(task, ratio, bar, at_least=True) for task, ratio, bar in rows]


if __name__ == "__main__":
    main()
