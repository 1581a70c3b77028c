"""OPTM: the authors' search against HiGHS alone and against a CVXPY model at each point; larger programs' build and solve times.

Run with ``python -m studies.benchmarks.bench_optm``. Bars: the whole search, what it builds, reads and certifies included,
at most 1.5 × what HiGHS takes for the same programs with their numbers at hand, each re-solved from the last basis; at least 100 ×
faster than CVXPY's compiled model with other parameters at each point.
"""

from __future__ import annotations

import statistics
import time

import cvxpy as cp
import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.quantizers.optm import authors_bins
from mechdesign.quantizers.selection_problem import BoxSearch
from mechdesign.quantizers.selection_program import authors_boxes
from mechdesign.solvers.linear_program import Programs
from studies.benchmarks.turns import Ratio

UNIFORM = stats.uniform(-1, 2)


def directly(programs: list[Programs]) -> float:
    """Seconds of HiGHS for all programs, by its own interface alone: numbers are lists, a change of bins changes all of them."""
    held, work = {}, []
    for one in programs:
        lp = held.setdefault(one.structure(), one.program())
        first = np.cumsum([0, *(b.right.shape[-1] for b in one.blocks)])
        places = [
            (int(start + row), int(column))
            for start, b in zip(first, one.blocks)
            for row, column in zip(b.rows, b.columns)
        ]
        values, right = (
            np.hstack([np.broadcast_to(part, (one.count, part.shape[-1])) for part in parts])
            for parts in ([b.values for b in one.blocks], [b.right for b in one.blocks])
        )
        moving = np.flatnonzero(np.ptp(values, axis=0)).tolist()
        moved = np.flatnonzero(np.ptp(right, axis=0)).astype(np.int32)
        work.append((lp.highs, one.cost, places, values.tolist(), moving, right[:, moved], moved))
    started = time.process_time()
    for highs, cost, places, values, moving, right, moved in work:
        below = np.full(len(moved), -np.inf)
        highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)
        highs.clearSolver()
        for k, row in enumerate(values):
            for place in moving if k else range(len(places)):
                highs.changeCoeff(*places[place], row[place])
            highs.changeRowsBounds(len(moved), moved, below, right[k])
            highs.run()
            if str(highs.getModelStatus()).endswith("kOptimal"):
                np.array(highs.getSolution().col_value)
    return time.process_time() - started


def authors_search() -> list[Ratio]:
    """10,890 linear programs at m = 4, ε = 1, on one core."""
    search = md.OPTMSearch(md.PureDP(1.0), UNIFORM, bins=authors_bins(), boxes=authors_boxes())
    programs = []
    for bins in search.alphabets():
        problem = search.at(bins, search.boxes).searched_problem()
        programs.append((swept := BoxSearch(problem)).programs(swept.boxes(), problem.solved_epsilon))
    level = cp.Parameter(name="level")
    lines = md.Grid(
        delta=authors_bins().axes["delta"], inner=authors_bins().axes["inner"], level=np.arange(1, 100) / 100
    )

    def build(delta: float, inner: float) -> md.Problem:
        Q = md.Selection([-1 - delta, -inner, inner, 1 + delta], (-1, 1))
        o, u = Q.box_at(level, 0.01)
        return md.Problem(md.Minimize(Q.lemma1(UNIFORM)), [Q.private(md.PureDP(1.0), box=(o, u))])

    own, three, alone = [], [], []
    for _ in range(7):  # in turn, as the machine may be busy
        started = time.process_time()
        found = search.solve(bar=False)
        own.append(time.process_time() - started)
        started = time.process_time()
        md.search(build, lines, bar=False)
        three.append(time.process_time() - started)
        alone.append(directly(programs))
    seconds, inside = statistics.median(own), statistics.median(alone)
    count = int(found.table["programs"].sum())
    print(f"authors' search: {count} programs in {seconds:.3f} s ({1e6 * seconds / count:.0f} us each)")
    print(
        f"  by md.search: {statistics.median(three):.3f} s; HiGHS alone: {inside:.3f} s; ratio {seconds / inside:.2f}"
    )

    problem = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).problem()
    (low, high), compiled = problem.parameters, problem.to_cvxpy()
    boxes = BoxSearch(problem).boxes()
    started = time.perf_counter()
    for k in range(99):
        low.value, high.value = boxes[0][..., k], boxes[1][..., k]
        compiled.solve(solver=cp.HIGHS)
    rebuilt = (time.perf_counter() - started) / 99
    print(f"  CVXPY at each point: {1e3 * rebuilt:.2f} ms; ratio {rebuilt * count / seconds:.0f}")
    return [
        Ratio("search / HiGHS alone", seconds / inside, 1.5),
        Ratio("md.search / HiGHS alone", statistics.median(three) / inside, 1.5),
    ]


def larger_programs() -> None:
    """Theorem 5 at m = 8, 16 and Theorem 6 at m = 16, 64: size, build, solve (medians of 7)."""
    print("program          variables  constraints   declare ms   numbers ms   solve ms")
    for theorem, m, epsilon in (
        ("theorem5", 8, 2.0),
        ("theorem5", 16, 5.0),
        ("theorem6", 16, 5.0),
        ("theorem6", 64, 6.0),
    ):
        rows = []
        for _ in range(7):
            started = time.perf_counter()
            Q = md.Selection(np.linspace(-2, 2, m), (-1, 1))
            box = Q.box(1e-3)
            problem = md.Problem(
                md.Minimize(Q.lemma1(UNIFORM)), [Q.private(md.PureDP(epsilon), theorem=theorem, box=box)]
            )
            built = time.perf_counter()
            low, high = problem.box
            numbers = BoxSearch(problem).programs((low[..., None], high[..., None])).program()
            ready = time.perf_counter()
            numbers.run()
            rows.append((built - started, ready - built, time.perf_counter() - ready))
        declare, prepare, solve = (1e3 * statistics.median(v) for v in zip(*rows))
        constraints, variables = numbers.shape
        print(
            f"{theorem} m={m:<4}  {variables:>9}  {constraints:>11}  {declare:>10.1f}  {prepare:>11.1f}  {solve:>9.1f}"
        )


def main() -> list[Ratio]:
    """Print both."""
    ratios = authors_search()
    larger_programs()
    return ratios


if __name__ == "__main__":
    main()
