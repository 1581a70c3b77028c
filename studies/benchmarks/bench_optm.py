"""OPTM: the authors' search against HiGHS alone and against a rebuilt CVXPY model; larger programs' build and solve times.

Run with ``python -m studies.benchmarks.bench_optm``. Bars: the whole search, what it builds, reads and certifies included,
at most 1.5 × what HiGHS itself takes for all its programs, each re-solved from the last basis; at least 100 × faster than a
CVXPY model rebuilt at each point; from m = 16 on building a program costs at most as much as solving it.
"""

from __future__ import annotations

import statistics
import time

import cvxpy as cp
import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.quantizers.optm.design import Sweep, authors_levels, grid_boxes
from mechdesign.quantizers.optm.search import authors_bins
from mechdesign.solvers import LinearProgram
from mechdesign.typing import Status
from studies.benchmarks.turns import Ratio

UNIFORM = stats.uniform(-1, 2)


def authors_search() -> list[Ratio]:
    """10,890 linear programs at m = 4, ε = 1, on one core."""
    search = md.OPTMSearch(md.PureDP(1.0), UNIFORM, bins=authors_bins(), levels=authors_levels())
    run = LinearProgram.run
    own, runs = [], []

    def timed(self: LinearProgram) -> Status:
        started = time.process_time()
        status = run(self)
        runs[-1].append(time.process_time() - started)
        return status

    for _ in range(7):  # in turn, as the machine may be busy
        started = time.process_time()
        found = search.solve(bar=False)
        own.append(time.process_time() - started)
        runs.append([])
        LinearProgram.run = timed  # type: ignore[method-assign]
        search.solve(bar=False)
        LinearProgram.run = run  # type: ignore[method-assign]
    seconds, inside = statistics.median(own), statistics.median(map(sum, runs))
    programs = int(found.table["programs"].sum())
    per_point = seconds / programs
    print(f"authors' search: {programs} programs in {seconds:.3f} s ({1e6 * per_point:.0f} us each)")
    print(
        f"  HiGHS itself, {len(runs[-1])} runs: {inside:.3f} s; ratio {seconds / inside:.2f} (bar: at most 1.5)"
    )

    design = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM)
    program = design.program
    low, high = grid_boxes(program, authors_levels())
    started = time.perf_counter()
    for k in range(200):
        model = program.model(1.0, low[k % 99], high[k % 99])
        model.problem.solve(solver=cp.HIGHS)
    rebuilt = (time.perf_counter() - started) / 200
    print(
        f"  CVXPY model rebuilt at each point: {1e3 * rebuilt:.2f} ms; ratio {rebuilt / per_point:.0f} (bar: at least 100)"
    )
    return [
        Ratio("search / HiGHS itself", seconds / inside, 1.5),
        Ratio("rebuilt CVXPY model / a point", rebuilt / per_point, 100, at_least=True),
    ]


def larger_programs() -> None:
    """Theorem 5 at m = 8, 16 and Theorem 6 at m = 16, 64: size, build, solve (medians of 7)."""
    print("program          variables  constraints   model ms   numbers ms   solve ms   model/solve")
    for theorem, m, epsilon in (
        ("theorem5", 8, 2.0),
        ("theorem5", 16, 5.0),
        ("theorem6", 16, 5.0),
        ("theorem6", 64, 6.0),
    ):
        bins = np.linspace(-2, 2, m)
        rows = []
        for _ in range(7):
            started = time.perf_counter()
            design = md.OPTM(bins, md.PureDP(epsilon), UNIFORM, constraints=theorem)
            program = design.program
            low, high = np.full(program.width, 1e-3), np.ones(program.width)
            program.model(epsilon, low, high)
            built = time.perf_counter()
            numbers = program.in_numbers(epsilon, low, high)
            ready = time.perf_counter()
            numbers.run()
            rows.append((built - started, ready - built, time.perf_counter() - ready))
        build, prepare, solve = (1e3 * statistics.median(v) for v in zip(*rows))
        rows, columns = numbers.shape
        size = f"{columns:>9}  {rows:>11}"
        print(
            f"{theorem} m={m:<4}  {size}  {build:>9.1f}  {prepare:>11.1f}  {solve:>9.1f}  {build / solve:>12.2f}"
        )


def levels() -> None:
    """The level search of one design."""
    design = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM)
    boxes = grid_boxes(design.program, authors_levels())
    sweep = Sweep()
    started = time.perf_counter()
    sweep(design.program, 1.0, boxes)
    print(f"99 levels of one program: {1e3 * (time.perf_counter() - started):.1f} ms")


def main() -> list[Ratio]:
    """Print all three."""
    ratios = authors_search()
    larger_programs()
    levels()
    return ratios


if __name__ == "__main__":
    main()
