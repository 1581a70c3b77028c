"""Convex functions of tables that are not piecewise linear: solve by tangents, whose programs are linear, and stay inside the functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np
from flint import fmpq
from scipy.optimize import minimize_scalar

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.exact import fraction, rational, round_up
from mechdesign.evidence.results import SolveReport
from mechdesign.model.declared import Declared
from mechdesign.model.exactly import Exact, Face, mixed, near, proved_bounds, repaired, weights_of
from mechdesign.model.problem import labelled
from mechdesign.model.program import Program
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.solvers.registry import Solution, solve
from mechdesign.typing import Array

S = TypeVar("S")
T = TypeVar("T")
CURVED = 1e-8
"""Largest violation of a convex, not piecewise linear function at the law, in doubles, relative to the size of its tangents."""
_TANGENTS = 100  # most rounds of tangents
_NEAR = 0.01
"""Share of the way from an optimum inside functions to that of their tangents at which the next are taken: their heights err by its square."""
_INSIDE = 3e-10
"""Room that a law has in convex functions, relative to the size of their tangents: these then hold exactly."""
_ROUNDS = 30  # most rounds of tangents near an optimum inside
_STALLED = 20  # rounds that must close a hundredth of the gap


@dataclass
class Tangents:
    """Solve a `FiniteProblem` with convex functions: its law is inside them, its bound that of their tangents."""

    problem: Any
    clock: Clock
    solver: str | None
    options: dict[str, Any]

    def solved(self) -> Iterator[Law | Bound]:
        """Solve as a conic program for a law, then linear programs with more and more tangents for the bound.

        The law moves to the last table inside the functions on the way from one well inside to the tangents' optimum; the next
        tangents are taken there (Veinott 1967).
        """
        report, declared, columns, missed = self._inside()
        inner, kept, apart = columns, self._kept(self.problem.value_of(columns)), list[float]()
        if not kept and (found := self._well_inside()) is not None:
            inner, columns, kept = found, self._last_inside(found, columns), True
        while True:
            program = Program(declared, self.clock)
            try:
                program.solve()
            except InfeasibleError as error:  # a solver's word, until it is proved
                raise self.problem.explained(error, self.clock) from None
            bounds = [*proved_bounds(declared, *program.multipliers())]
            tables = [_stochastic(program.columns()[: declared.cells].reshape(self.problem.unknown.shape))]
            if kept:
                with suppress(SolverError):  # of the repair, or out of time
                    points = near(declared, [program.columns()], self.clock)
                    outer, off = repaired(declared, points, self.clock, spared=self.clock.gap / 4)
                    found, missed = self._last_inside(inner, outer), {**missed, **off}
                    tables.append(self.problem.value_of(found))
                    columns = min(columns, self._cheapest(columns, found), key=self._cost)
            columns = Face(declared, declared.zeros).lowered(columns)
            value = self._cost(columns)
            apart.append(value - max(bound.value for bound in bounds))
            stalled = len(apart) > _STALLED and apart[-1] > 0.99 * apart[-1 - _STALLED]
            over = stalled or self.clock.passed or len(apart) == _TANGENTS or not kept
            if over or apart[-1] <= self.clock.gap * abs(value):
                break
            if len(apart) == 1:
                inner = self._well_inside() or inner
            tables[0] = (tables[0] + self.problem.value_of(columns)) / 2  # where slopes are finite
            declared = declared.with_tangents(self.problem.compiled({"": tables}))
        self.problem.__dict__["_declared"] = declared
        yield from bounds
        yield replace(self.problem.law_at(columns, report, missed=missed), value=value)

    def _cost(self, columns: Exact) -> float:
        """Return the cost of columns, rounded up; that of a convex objective in doubles."""
        worth = self.problem.worth_at(self.problem.value_of(columns))
        cost = round_up(fraction(self.problem.declared.value(columns)))
        return max(cost, float(worth.get("objective", -math.inf)))

    def _kept(self, table: Array) -> bool:
        """Return whether a table is inside the convex functions."""
        return all(
            worth <= 0 for label, worth in self.problem.worth_at(table).items() if label != "objective"
        )

    def _last_inside(self, inner: Exact, outer: Exact) -> Exact:
        """Return the last point inside the convex functions on the way from one inside to another."""
        start, end = self.problem.value_of(inner), self.problem.value_of(outer)
        least, most, share = 0.0, 1.0, 1.0
        while most - least > 1e-12:
            kept = self._kept(start + share * (end - start))
            least, most = (share, most) if kept else (least, share)
            share = (least + most) / 2
        return mixed(outer, inner, rational(least))

    def _cheapest(self, start: Exact, end: Exact) -> Exact:
        """Return the cheapest point between two if the objective is convex, else the second."""
        if "objective" not in self.problem.declared.curved:
            return end
        one, other = self.problem.value_of(start), self.problem.value_of(end)

        def cost(share: float) -> float:
            return float(self.problem.worth_at(one + share * (other - one))["objective"])

        share = minimize_scalar(cost, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12}).x
        return mixed(end, start, rational(share))

    def _inside(self) -> tuple[SolveReport, Declared, Exact, dict[str, fmpq]]:
        """Return a table inside the convex functions: a cone solver's optimum, repaired, as far as it is inside."""
        program, report = self.problem.to_cvxpy(), SolveReport("tangents")
        equal, outer = np.full(self.problem.unknown.shape, 1 / self.problem.declared.m), list[Exact]()
        parts = {
            label: f / self.problem.tangent_size(label, equal)
            for label, f in self.problem.functions().items()
        }
        curved = parts.pop("objective", None) is not None
        goal = program.objective.expr / (self._spread() if curved else self.problem.declared.units[0])
        scaled = {id(one) for label, one in labelled(self.problem.constraints) if label in parts}
        rest = [one for one in program.constraints if id(one) not in scaled]
        for stricter in (CURVED, 0.0):  # there may be no room
            rows = [*rest, *(part <= -stricter for part in parts.values())]
            try:
                found = conic(cp.Problem(cp.Minimize(goal), rows), self.solver, self.clock, **self.options)
            except (InfeasibleError, SolverError) as error:
                if getattr(error, "status", "") == "limit":
                    raise
                continue
            table = _stochastic(found.primal[self.problem.unknown.name()])
            declared, report = self.problem.compiled({"": [table]}), SolveReport.of(found)
            start = _settled(declared, [rational(x) for x in table.ravel().tolist()])
            above = np.nextafter([float(x) for x in start], np.inf)
            points = near(declared, [np.append(table, above[declared.cells :])], self.clock)
            columns, missed = repaired(declared, points, self.clock)
            law = self.problem.deployed(weights_of(declared, columns))
            if not self.problem.missed_by(law, self.problem.worth(law)):
                return report, declared, columns, missed
            outer.append(columns)
        if (inner := self._well_inside()) is None:
            raise self.problem.explained(
                InfeasibleError("no table is inside the convex functions"), self.clock
            )
        columns = self._last_inside(inner, outer[0]) if outer else inner
        declared = self.problem.compiled({"": [self.problem.value_of(columns)]})
        return report, declared, Face(declared, declared.zeros).lowered(columns), {}

    def _spread(self) -> float:
        """Return the range of the objective over some tables, which scales it to about 1 for a solver's tolerances."""
        n, m = self.problem.declared.n, self.problem.declared.m
        corners = (np.eye(m)[(np.arange(n) + x) % m] for x in range(min(m, 8)))
        tables = [np.full((n, m), 1 / m), *((corner + 1 / m) / 2 for corner in corners)]
        worth = [
            self.problem.worth_at(table.reshape(self.problem.unknown.shape))["objective"] for table in tables
        ]
        return float(np.ptp([one for one in worth if math.isfinite(one)] or [0.0])) or 1.0

    def _well_inside(self) -> Exact | None:
        """Return a table inside the convex functions: the farthest inside tangents, of which more are taken there until it is; None if they leave none."""
        declared = self.problem.declared
        with suppress(InfeasibleError):
            for _ in range(_TANGENTS):
                program = Program(declared, self.clock, room=True)
                program.solve()
                if not program.solution.primal["room"][0] > 0:
                    break
                table = _stochastic(program.columns()[: declared.cells].reshape(self.problem.unknown.shape))
                if self._kept(table):
                    inner, _ = repaired(declared, near(declared, [program.columns()], self.clock), self.clock)
                    if self._kept(self.problem.value_of(inner)):
                        return inner
                self.problem.__dict__["_declared"] = declared = declared.with_tangents(
                    self.problem.compiled({"": [table]})
                )
        return None


def conic(asked: cp.Problem, solver: str | None, deadline: Deadline, **options: Any) -> Solution:
    """Solve as a cone program by Clarabel, whose nearly accurate answers are closer than a coarser solver's accurate ones, or by another."""
    for variable in asked.variables():
        variable.save_value(None)  # CVXPY fails to reduce sum_largest of a table with values
    with suppress(InfeasibleError, SolverError):
        return solve(asked, solver or "clarabel", deadline=deadline, fallback=False, **options)
    return solve(asked, solver, deadline=deadline, **options)


def _stochastic(table: Array) -> Array:
    """Return probabilities next to a solver's."""
    held = np.maximum(table, 0.0)
    found: Array = held / held.sum(axis=-1, keepdims=True)
    return found


def _settled(declared: Declared, cells: Exact) -> Exact:
    """Return columns with these cells and the least further ones that their rows allow."""
    further, above = declared.matrix[:, declared.cells :], np.zeros(len(declared.cost) - declared.cells)
    if (np.diff((further < 0).tocsr().indptr) > 1).any():  # one is the lower, the higher another
        given = -declared.offsets - declared.matrix[:, : declared.cells] @ [float(x) for x in cells]
        least = LinearProgram("further columns")
        least.add_columns("x", declared.cost[declared.cells :], lower=-np.inf, upper=np.inf)
        least.add_rows("rows", {"x": further}, lower=np.where(declared.equal, given, -np.inf), upper=given)
        with suppress(InfeasibleError, SolverError):
            least.solve()
            above = least.primal("x")
    return Face(declared, declared.zeros).lowered([*cells, *map(rational, above.tolist())])


def inside(problem: Any, room: float, at: Array, unknown: cp.Expression) -> list[cp.Constraint]:
    """Return the convex functions of a problem as constraints on what stands for its unknown, with room relative to the size of their tangents at a value."""
    return [
        f.tree_copy({id(problem.unknown): unknown}) / problem.tangent_size(label, at) + room <= 0
        for label, f in problem.functions().items()
    ]


def between(
    problem: Any,
    bounded: Callable[[Any], tuple[float, S, Array]],
    delivered: Callable[[Array], tuple[float, T]],
    start: tuple[float, T, Array],
    clock: Clock,
) -> tuple[T, S]:
    """Return a law inside convex functions, and what proves a bound by tangents, until they are close.

    The law moves to the last one inside on the way from the start to the tangents' optimum (Veinott 1967); the next tangents are
    taken near it, and at their optimum.

    Parameters
    ----------
    bounded : callable
        The problem in numbers → (lower bound, what proves it, columns of its optimum).
    delivered : callable
        Columns → (cost, law); the cost is infinite if the law does not pass its own checks.
    start : tuple
        Cost, law and columns, the unknown first, of a law inside the functions.
    clock : Clock
    """
    unknown = problem.unknown

    def shaped(columns: Array) -> Array:
        return columns[: unknown.size].reshape(unknown.shape)

    value, law, inner = start
    inside = inner
    points, best = [inner], list[tuple[float, Any, S]]()
    while len(points) <= 2 * _ROUNDS and not (best and clock.passed):
        declared = problem.__dict__["_declared"] = problem.compiled({"": map(shaped, points)})
        try:
            bound, found, outside = bounded(declared)
        except SolverError:
            if not best:
                raise
            break
        if not best or bound > best[-1][0]:
            best.append((bound, declared, found))
        way = outside - inner
        share = float(problem.keeps(shaped(outside), _INSIDE))
        for step in 0.5 ** np.arange(1, 1 if share else 40):
            share += step * problem.keeps(shaped(inner + (share + step) * way), _INSIDE)
        cost, further = delivered(inner + share * way)
        if cost < value:
            value, law, inside = cost, further, inner + share * way
        if value - best[-1][0] <= clock.gap * abs(value):
            break
        points += [inside + _NEAR * (outside - inside), outside][: 1 + (share < 1)]
    problem.__dict__["_declared"] = best[-1][1]
    return law, best[-1][2]
