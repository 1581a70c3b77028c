"""Noise accounting against dp-accounting, side by side: ratios, not times.

Run: python -m studies.benchmarks.bench_noise_accounting
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dp_accounting.pld import privacy_loss_distribution as library
from scipy import stats

import mechdesign as md
from studies.benchmarks.turns import Ratio


def best_of(function: Callable[[], object], repeats: int = 7) -> float:
    """Least time of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def library_interval(scale: float, k: int, epsilon: float, step: float) -> tuple[float, float]:
    """Laplace noise composed k times by dp-accounting, from below and from above."""
    bounds = []
    for pessimistic in (False, True):
        pld = library.from_laplace_mechanism(
            scale,
            pessimistic_estimate=pessimistic,
            value_discretization_interval=step,
            use_connect_dots=pessimistic,
        ).self_compose(k, tail_mass_truncation=1e-15 if pessimistic else 0.0)
        bounds.append(pld.get_delta_for_epsilon(epsilon))
    return bounds[0], bounds[1]


def main() -> list[Ratio]:
    """Print the ratios the project promises."""
    k, epsilon = 20, 1.0
    ratios = []
    laplace = md.calibrate("laplace", privacy=md.ApproximateDP(epsilon, 1e-6), sensitivity=1.0, dimension=k)
    scale = laplace.mechanism.parameters["scale"]

    print(
        "certified interval at K = 20 and its cost against K = 1,000 (flipped Huber, Gaussian-like and mixed)"
    )
    for delta in (1e-4, 1e-6, 1e-8, 1e-10):
        widths, seconds = [], []
        for dimension in (k, 1000):
            noise = md.calibrate(
                "flipped_huber",
                privacy=md.ApproximateDP(epsilon, delta),
                sensitivity=1.0,
                dimension=dimension,
            )
            law = md.noise.flipped_huber(0.5, scale=noise.mechanism.parameters["gamma"])
            term = md.accounting.NoiseTerm(law, 1.0, dimension)
            widths.append(md.accounting.delta_interval(term, epsilon).width)
            seconds.append(best_of(lambda term=term: md.accounting.delta_interval(term, epsilon)))
        print(
            f"  delta ~ {delta:g}: width {widths[0]:.2%} (K = 20), {widths[1]:.2%} (K = 1,000); "
            f"time ratio {seconds[1] / seconds[0]:.2f} (bar 10)"
        )
        ratios.append(Ratio(f"K = 1,000 / K = 20, delta {delta:g}", seconds[1] / seconds[0], 10))

    print("calibrating flipped Huber at K = 20 against one dp-accounting composition of Laplace noise")
    for step in (1e-4, 1e-5):
        low, high = library_interval(scale, k, epsilon, step)
        composition = best_of(lambda step=step: library_interval(scale, k, epsilon, step))
        for delta in (1e-6, 1e-8):
            privacy = md.ApproximateDP(epsilon, delta)
            calibration = best_of(
                lambda privacy=privacy: md.calibrate(
                    "flipped_huber", privacy=privacy, sensitivity=1.0, dimension=k
                ),
                3,
            )
            print(
                f"  library step {step:g} (interval width {(high - low) / high:.2%}): delta {delta:g}: "
                f"ratio {calibration / composition:.1f} (bar 20)"
            )
            name = f"flipped Huber / one composition, delta {delta:g}, step {step:g}"
            ratios.append(Ratio(name, calibration / composition, 20))

    print("one certified interval against the library's two compositions at the same width (Laplace, K = 20)")
    term = md.accounting.NoiseTerm(stats.laplace(scale=scale), 1.0, k)
    for step in (1e-4, 1e-5):
        low, high = library_interval(scale, k, epsilon, step)
        width = max((high - low) / high, 1e-6)
        ours = best_of(lambda width=width: md.accounting.delta_interval(term, epsilon, width=width))
        theirs = best_of(lambda step=step: library_interval(scale, k, epsilon, step))
        print(f"  width {width:.3%}: ours / library = {ours / theirs:.2f}")
    return ratios


if __name__ == "__main__":
    main()
