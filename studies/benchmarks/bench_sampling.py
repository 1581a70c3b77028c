"""Samplers: the fast one against the bare random generator, the exact one in values a second.

Bars: 10⁷ values into 16 outputs in at most 3 × ``rng.random(10**7)``; at least 2·10⁵ exact values a second.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from scipy import stats

import mechdesign as md


def seconds(function: object, repeats: int = 7) -> float:
    """Median time of a call."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()  # type: ignore[operator]
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    """Print ratios and rates."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 10**7)
    bare = seconds(lambda: rng.random(10**7))
    bins = np.linspace(-2, 2, 16)
    made = {
        "RQM": md.Quantizer.rqm(bins, 0.3, (-1, 1)).certified(),
        "optimum": md.OptimalQuantizer(bins, md.PureDP(5.0), stats.uniform(-1, 2)).solve().mechanism,
    }
    print(f"rng.random(10**7): {1e3 * bare:.0f} ms")
    for name, mechanism in made.items():
        fast = seconds(lambda mechanism=mechanism: mechanism.sample(x, rng=rng))
        few = x[: 10**6]
        exact = seconds(lambda mechanism=mechanism, few=few: mechanism.release(few), 3)
        print(
            f"{name}: sample {1e3 * fast:.0f} ms, ratio {fast / bare:.2f} (bar: 3); exact {1e6 / exact:.3g} a second (bar: 2e5)"
        )


if __name__ == "__main__":
    main()
