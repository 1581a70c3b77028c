"""Solve OPTM's linear program for many bounds: compiled once, warm-started from the last point.

The first axis of bounds is Algorithm 2 of the paper: one pair (o, u) of a grid at a time, keep the best. Theorem 6
has three bounds whatever m is, searched on a grid of their own.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.errors import InfeasibleError
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.quantizers.mechanism.selection import Selection
from mechdesign.quantizers.optm.model import OPTMProgram
from mechdesign.runs.grid import Grid
from mechdesign.solvers import CompiledLP, HighsSession, Solution
from mechdesign.typing import Array

__all__ = ["BoundPoint", "LevelSolver", "default_levels", "grid_bounds", "search_theorem6", "solve_bounds"]

_ACTIVE = 1e-9


@dataclass(frozen=True)
class BoundPoint:
    """The best point of a bound search: its solution vector, objective, bounds and solver's answer."""

    program: OPTMProgram
    q: Array
    objective: float
    low: Array
    high: Array
    solution: Solution

    def selection(self) -> Selection:
        """The mechanism's selection probabilities."""
        return Selection(self.program.bins, *self.program.unpack(self.q))

    def tighter(self, epsilon: float, solver: str | None, options: Any) -> BoundPoint | None:
        """Solve again with the same bounds and a smaller budget."""
        return solve_bounds(self.program, epsilon, self.low[None], self.high[None], solver, options)

    def audit(self, selection: Selection, epsilon: float) -> pd.DataFrame:
        """The linear program's constraints evaluated at the final mechanism, with the solver's duals."""
        program = self.program
        q = program.flatten(selection.left, selection.right)
        rows: list[tuple[str, str, float, float, float, float, bool]] = []

        def add(family: str, labels: list[str], lhs: Array, rhs: Array) -> None:
            given = self.solution.dual.get(family)
            dual = np.full(len(lhs), np.nan) if given is None else np.ravel(given)
            for label, a, b, y in zip(labels, lhs.tolist(), rhs.tolist(), dual.tolist()):
                rows.append((f"model: {family}", label, a, b, b - a, y, b - a <= _ACTIVE))

        pairs = program.structure.pairs
        if pairs.upper:
            factor_high = np.array([1.0 if f.bound < 0 else self.high[f.bound] for f in pairs.forms])
            factor_low = np.array([1.0 if f.bound < 0 else self.low[f.bound] for f in pairs.forms])
            value = np.array([f.coefficients @ q for f in pairs.forms])
            lhs = (factor_high * value)[pairs.upper]
            rhs = math.exp(epsilon) * (factor_low * value)[pairs.lower]
            add("privacy", pairs.labels(), lhs, rhs)
        bigger, smaller = program.dominance()
        add("dominance", [f"q[{b}] >= q[{s}]" for b, s in zip(bigger, smaller)], q[smaller], q[bigger])
        bounded = program.bounded
        names = [f"q[{k}]" for k in bounded]
        add("lower bounds", names, self.low[bounded], q[bounded])
        add("upper bounds", names, q[bounded], self.high[bounded])
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)


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
        best = int(np.nanargmin(program.judged(values, found)))
    elif len(low) > 1:
        answers = [
            solve_bounds(program, epsilon, low[[k]], high[[k]], solver, options) for k in range(len(low))
        ]
        feasible = [a for a in answers if a is not None]
        if not feasible:
            return None
        judged = program.judged(np.array([a.objective for a in feasible]), np.array([a.q for a in feasible]))
        return feasible[int(np.argmin(judged))]
    model = program.model(epsilon, low[best], high[best])
    try:
        solution = solvers.solve(model, solver or "highs", **options)
    except InfeasibleError:
        return None
    return BoundPoint(program, solution.primal["q"], solution.value, low[best], high[best], solution)


def search_theorem6(
    program: OPTMProgram, epsilon: float, solver: str | None, options: Any
) -> tuple[BoundPoint | None, int]:
    """Grid over Theorem 6's bounds, refined twice around the best; o must make e^ε w large, u must keep z small.

    Returns the best point and the number of linear programs solved.
    """
    bounded, pairs = program.bounded, program.structure.pairs
    uppers = {f.bound for k, f in enumerate(pairs.forms) if k in pairs.upper and f.bound >= 0}
    axes = [
        np.array([0.05, 0.1, 0.2, 0.4, 0.7, 1.0]) if k in uppers else np.geomspace(1e-3, 0.3, 7)
        for k in bounded
    ]
    best, count = None, 0
    for _ in range(3):
        for values in itertools.product(*axes):
            low, high = np.zeros(program.width), np.ones(program.width)
            for k, v in zip(bounded, values):
                (high if k in uppers else low)[k] = v
            count += 1
            point = solve_bounds(program, epsilon, low[None], high[None], solver, options)
            if point is not None and (best is None or point.objective < best.objective):
                best, chosen = point, values
        if best is None:
            break
        axes = [np.clip(v * np.array([0.7, 0.85, 1.0, 1.2, 1.45]), 0, 1) for v in chosen]
    return best, count
