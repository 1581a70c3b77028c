"""The optimal quantizer's own method against the monolithic linear program, and how its time grows.

Run as ``python -m studies.benchmarks.bench_optimal_quantizer``; ``--quick`` leaves the 256-output program out.
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import highspy
import numpy as np
from scipy import sparse, stats

import mechdesign as md
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.optimal.design import hat_costs
from mechdesign.quantizers.optimal.methods import best_floors

UNIFORM = stats.uniform(-1, 2)


def timed(call: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Best time of some calls, and the last answer."""
    best, answer = math.inf, None
    for _ in range(repeats):
        start = time.perf_counter()
        answer = call()
        best = min(best, time.perf_counter() - start)
    return best, answer


def monolithic(bins: np.ndarray, epsilon: float, knots: int) -> tuple[float, float]:
    """Value and seconds inside HiGHS of the program on a grid of knots (matrices ready, no modelling layer)."""
    x = np.linspace(-1, 1, knots)
    K, m, rho = knots, len(bins), math.exp(epsilon)
    costs, _ = hat_costs(bins, x, Prior.of(UNIFORM), Loss.of("absolute"))
    N = K * m
    row, column = np.arange(N), np.arange(N)
    floor = N + np.tile(np.arange(m), K)
    point = np.repeat(np.arange(K), m)
    one = np.ones(N)
    entries = [
        (row, column, one),
        (row, floor, -one),
        (N + row, floor, rho * one),
        (N + row, column, -one),
        (2 * N + point, column, one),
        (2 * N + K + point, column, np.tile(bins, K)),
    ]
    r, c, v = (np.concatenate(part) for part in zip(*entries))
    matrix = sparse.csc_matrix((v, (r, c)), shape=(2 * N + 2 * K, N + m))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = N + m, 2 * N + 2 * K
    lp.col_cost_ = np.concatenate([costs.ravel(), np.zeros(m)])
    lp.col_lower_, lp.col_upper_ = np.zeros(N + m), np.full(N + m, highspy.kHighsInf)
    lp.row_lower_ = np.concatenate([np.zeros(2 * N), np.ones(K), x])
    lp.row_upper_ = np.concatenate([np.full(2 * N, highspy.kHighsInf), np.ones(K), x])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr, matrix.indices
    lp.a_matrix_.value_ = matrix.data
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.passModel(lp)
    seconds, _ = timed(highs.run)
    return float(highs.getInfo().objective_function_value), seconds


def design(m: int, epsilon: float = 5.0, R: float = 2.0, **changes: Any) -> md.OptimalQuantizer:
    """Outputs spread evenly over [−R, R], uniform inputs on [−1, 1]."""
    bins = np.linspace(-R, R, m)
    return md.OptimalQuantizer(**{"bins": bins, "privacy": md.PureDP(epsilon), "prior": UNIFORM, **changes})


def side_by_side(m: int, knots: int, gap: float) -> None:
    """Ours, with its proof, and the program, without one, on the same outputs."""
    ours, result = timed(lambda: design(m).solve(gap=gap), repeats=3)
    value, seconds = monolithic(np.linspace(-2, 2, m), 5.0, knots)
    print(
        f"{m:5d} outputs: ours {ours:8.3f} s, value {result.value:.7f}, proved gap {result.gap:.1e}; "
        f"program on {knots} knots {seconds:8.3f} s, value {value:.7f}; ratio {seconds / ours:.0f}x"
    )


def growth() -> None:
    """Time from 16 to 1,024 outputs, floors only and with the deployed exact mechanism."""
    rows = []
    print("outputs  floors s  solve s  iterations  gap")
    for m in (16, 32, 64, 128, 256, 512, 1024):
        repeats = 5 if m <= 256 else 2
        floors, solution = timed(lambda m=m: best_floors(design(m).problem, 1e-4), repeats)
        whole, result = timed(lambda m=m: design(m).solve(gap=1e-4), repeats)
        rows.append((m, floors, whole))
        print(f"{m:7d}  {floors:8.4f}  {whole:7.3f}  {solution.iterations:10d}  {result.gap:.1e}")
    logs = np.log(np.array(rows))
    for name, column in (("floors", 1), ("solve", 2)):
        fit = np.polyfit(logs[:, 0], logs[:, column], 1)[0]
        ends = (logs[-1, column] - logs[0, column]) / (logs[-1, 0] - logs[0, 0])
        print(f"growth of {name}: m^{fit:.2f} (fitted), m^{ends:.2f} (from 16 to 1,024)")


def small() -> None:
    """Designs of up to four bits at gap 1e-6: median and slowest."""
    rng = np.random.default_rng(0)
    design(4).solve()
    times: dict[str, list[float]] = {}
    for _ in range(60):
        m = int(rng.choice([2, 3, 4, 6, 8, 12, 16]))
        epsilon = float(rng.uniform(0.5, 5))
        R = (math.exp(epsilon) + 1) / math.expm1(epsilon) * rng.uniform(1.1, 2.5)
        bins = np.sort(np.concatenate([[-R, R], rng.uniform(-R, R, m - 2)]))
        loss = str(rng.choice(["absolute", "squared"]))
        objective = "worst" if rng.uniform() < 0.25 else "mean"
        prior = UNIFORM if rng.uniform() < 0.5 else md.clipped(stats.norm(0.3, 0.5), -1, 1)
        wanted = md.OptimalQuantizer(
            bins=bins, privacy=md.PureDP(epsilon), prior=prior, loss=loss, objective=objective
        )
        seconds, result = timed(lambda wanted=wanted: wanted.solve(gap=1e-6))
        assert result.gap <= 1e-6
        times.setdefault(objective, []).append(seconds)
    for objective, values in times.items():
        print(
            f"up to 4 bits, gap 1e-6, {objective}: median {1e3 * statistics.median(values):.1f} ms, "
            f"slowest {1e3 * max(values):.1f} ms of {len(values)} designs"
        )


def methods() -> None:
    """Interior point and cutting planes, and the worst case."""
    for m in (16, 64, 128):
        one, a = timed(lambda m=m: design(m).solve(solver="newton"))
        two, b = timed(lambda m=m: design(m).solve(solver="cutting-planes"))
        three, c = timed(lambda m=m: design(m, objective="worst").solve())
        print(
            f"{m:5d} outputs, gap 1e-6: newton {one:.3f} s ({a.solver_report.iterations} steps, gap {a.gap:.0e}), cutting planes "
            f"{two:.3f} s (gap {b.gap:.0e}); worst case {three:.3f} s (gap {c.gap:.0e})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    design(16).solve()
    side_by_side(16, 65, 1e-6)
    side_by_side(64, 65, 1e-6)
    if not quick:
        side_by_side(256, 65, 1e-4)
    growth()
    small()
    methods()
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
