"""Samplers: the fast one against the bare random generator, the exact one in values a second.

Bars, of processor time on all threads: 10⁷ values into 16 outputs in at most 3 × ``rng.random(10**7)``; at least 2·10⁵ exact values a second.

    python -m studies.benchmarks.bench_sampling
"""

from __future__ import annotations

import numpy as np
from scipy import stats

import mechdesign as md
from studies.benchmarks.turns import Ratio, medians


def main() -> list[Ratio]:
    """Print ratios and rates."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 10**7)
    bins = np.linspace(-2, 2, 16)
    made = {
        "RQM": md.Quantizer.rqm(bins, 0.3, (-1, 1)).certified(),
        "optimum": md.OptimalQuantizer(bins, md.PureDP(5.0), stats.uniform(-1, 2)).solve().mechanism,
    }
    samples = [lambda mechanism=mechanism: mechanism.sample(x, rng=rng) for mechanism in made.values()]
    bare, *fast = medians(lambda: rng.random(10**7), *samples, rounds=15)
    print(f"rng.random(10**7): {1e3 * bare:.0f} ms")
    few, ratios = x[: 10**6], []
    for (name, mechanism), own in zip(made.items(), fast):
        (exact,) = medians(lambda mechanism=mechanism: mechanism.release(few), rounds=3)
        print(
            f"{name}: sample {1e3 * own:.0f} ms, ratio {own / bare:.2f} (bar: 3); exact {1e6 / exact:.3g} a second (bar: 2e5)"
        )
        ratios.append(Ratio(f"{name}: sample / rng.random", own / bare, 3))
        ratios.append(Ratio(f"{name}: exact values a second", 1e6 / exact, 2e5, at_least=True))
    return ratios


if __name__ == "__main__":
    main()
