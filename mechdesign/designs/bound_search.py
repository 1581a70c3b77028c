"""Solve OPTM's linear program for many bounds: compiled once, warm-started from the last point.

The first axis of bounds is Algorithm 2 of the paper: one pair (o, u) of a grid at a time, keep the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign import solvers
from mechdesign.designs.optm_model import OPTMProgram
from mechdesign.errors import InfeasibleError
from mechdesign.search.grid import Grid
from mechdesign.solvers import CompiledLP, HighsSession, Solution

__all__ = ["BoundPoint", "LevelSolver", "default_levels", "grid_bounds", "solve_bounds"]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BoundPoint:
    """The best point of a bound search: its solution vector, objective, bounds, solver's answer, and objective if not Lemma 1's."""

    q: Array
    objective: float
    low: Array
    high: Array
    solution: Solution
    linearised: tuple[Array, float] | None = None


def default_levels() -> Grid:
    """The authors' grid at m = 4: o = 0.01, …, 0.99 and u = o + 0.01."""
    return Grid(level=np.arange(1, 100) / 100, width=[0.01])


def grid_bounds(program: OPTMProgram, grid: Grid | None) -> tuple[Array, Array] | None:
    """Bounds (N, width) of a grid over the one or two rows that have products; None where there are more.

    A row q_n of two unknowns has one degree of freedom: q_n(1) in [o, u], q_n(2) in [1 − u, 1 − o].
    """
    rows = sorted({program_row(program, k) for k in program.bounded.tolist()})
    if any(stop - start != 2 for start, stop in rows) or len(rows) > 2:
        return None
    if grid is None:
        if len(rows) == 1:
            grid = default_levels()
        else:
            steps = np.arange(1, 20) / 20
            grid = Grid(level=steps, level_right=steps, width=[0.01])
    if "level" not in grid.axes:
        return None
    points = grid.columns()
    width = points.get("width", np.full(len(grid), 0.01))
    levels = [points["level"], points.get("level_right", points["level"])]
    low, high = np.zeros((len(grid), program.width)), np.ones((len(grid), program.width))
    for (start, _), level in zip(rows, levels):
        low[:, start], high[:, start] = level, np.minimum(level + width, 1.0)
        low[:, start + 1], high[:, start + 1] = np.maximum(1.0 - level - width, 0.0), 1.0 - level
    return low, high


def program_row(program: OPTMProgram, position: int) -> tuple[int, int]:
    """Start and stop of the row q_n that holds an unknown."""
    for family in program.families:
        for n in range(1, program.m):
            row = family.row(n)
            if row.start <= position < row.stop:
                return row.start, row.stop
    raise IndexError(position)


class LevelSolver:
    """One compiled OPTM program, solved for many (bins, ε, bounds); reusable across bins of one structure."""

    def __init__(self, program: OPTMProgram, epsilon: float, low: Array, high: Array) -> None:
        self._compiled = CompiledLP(program.model(epsilon, low, high, parametrised=True))
        self._session: HighsSession | None = None

    def points(self, program: OPTMProgram, epsilon: float, low: Array, high: Array) -> Array:
        """Parameter points (P + 1, N) of bounds (N, width): all privacy coefficients at once."""
        compiled = self._compiled
        cost, constant = program.objective()
        points = np.ones((compiled.point().size, len(low)))
        for name in compiled.model.parameters:
            if name == "low":
                points[compiled.slots(name)] = low[:, program.bounded].T
            elif name == "high":
                points[compiled.slots(name)] = high[:, program.bounded].T
            elif name == "privacy":
                points[compiled.slots(name)] = program.privacy_coefficients(epsilon, low, high).T
            elif name == "cost":
                points[compiled.slots(name)] = cost[:, None]
            else:
                points[compiled.slots(name)] = constant
        return points

    def run(self, program: OPTMProgram, epsilon: float, low: Array, high: Array) -> tuple[Array, Array]:
        """Objective values (N,) and solutions (N, width) of all points, from a cold start; NaN where infeasible."""
        compiled = self._compiled
        matrix, rhs, cost = compiled.coefficients(self.points(program, epsilon, low, high))
        if self._session is None:
            self._session = HighsSession(compiled, compiled.point())
        self._session.forget_basis()
        _, values, solutions = self._session.sweep(
            np.ascontiguousarray(matrix[compiled.varying].T),
            np.ascontiguousarray(rhs.T),
            np.ascontiguousarray(cost.T),
        )
        return values, solutions


def solve_bounds(
    program: OPTMProgram,
    epsilon: float,
    low: Array,
    high: Array,
    solver: str | None,
    options: Any,
    *,
    objective: tuple[Array, float] | None = None,
) -> BoundPoint | None:
    """Solve for every row of bounds and return the one of least exact loss; None if all are infeasible.

    With HiGHS the points share one compiled, warm-started model; the best point is solved once more through the
    registry for its duals. Other solvers get a model each.
    """
    best = 0
    if len(low) > 1 and solver in (None, "highs"):
        values, found = LevelSolver(program, epsilon, low[0], high[0]).run(program, epsilon, low, high)
        if not np.isfinite(values).any():
            return None
        import os

        if os.environ.get("EXACT"):
            values = program.exact_loss(found)
        best = int(np.nanargmin(values))
    elif len(low) > 1:
        answers = [
            solve_bounds(program, epsilon, low[[k]], high[[k]], solver, options) for k in range(len(low))
        ]
        feasible = [a for a in answers if a is not None]
        if not feasible:
            return None
        judged = program.judged(np.array([a.objective for a in feasible]), np.array([a.q for a in feasible]))
        return feasible[int(np.argmin(judged))]
    model = program.model(epsilon, low[best], high[best], objective=objective)
    try:
        solution = solvers.solve(model, solver or "highs", **options)
    except InfeasibleError:
        return None
    return BoundPoint(solution.primal["q"], solution.value, low[best], high[best], solution, objective)
