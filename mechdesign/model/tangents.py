"""Convex functions of tables that are not piecewise linear: solve by tangents, whose programs are linear, and stay inside the functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np
from flint import fmpq

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.exact import fraction, rational, round_up
from mechdesign.evidence.results import SolveReport
from mechdesign.model.declared import Declared
from mechdesign.model.exactly import Exact, Face, near, proved_bounds, repaired, weights_of
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
_TANGENTS = 100  # most rounds of tangents until a table is inside
_NEAR = 0.01
"""Share of the way from an optimum inside functions to that of their tangents at which the next are taken: their heights err by its square."""
_INSIDE = 1e-12
"""Room that a law has in convex functions, relative to the size of their tangents: these then hold exactly."""
_ROUNDS = 30  # most rounds of tangents near an optimum inside


def solved(problem: Any, clock: Clock, solver: str | None, options: dict[str, Any]) -> Iterator[Law | Bound]:
    """Solve a `FiniteProblem` with convex functions: a cone solver's law inside them, or one well inside, then linear programs with tangents, whose bound counts."""

    def bounded(tangents: Declared) -> tuple[float, list[Bound], Array]:
        program = Program(tangents, clock)
        try:
            program.solve()
        except InfeasibleError as error:  # a solver's word, until it is proved
            raise problem.explained(error, clock) from None
        bounds = [*proved_bounds(tangents, *program.multipliers())]
        return max(bound.value for bound in bounds), bounds, program.columns()

    def delivered(columns: Array) -> tuple[float, tuple[Exact, dict[str, fmpq]]]:
        with suppress(SolverError):  # of the repair, or out of time
            exact, missed = _exact(problem, columns, clock, spared=clock.gap / 4)
            if problem.keeps(problem.value_of(exact)):
                return cost(exact), (exact, missed)
        return math.inf, start

    def cost(columns: Exact) -> float:
        worth = problem.worth_at(problem.value_of(columns)).get("objective")
        return round_up(fraction(problem.declared.value(columns))) if worth is None else float(worth)

    report, start = _inside(problem, clock, solver, options)
    first = cost(start[0]), start, np.array([float(x) for x in start[0]])
    (columns, missed), bounds = between(problem, bounded, delivered, first, clock)
    columns = Face(problem.declared, problem.declared.zeros).lowered(columns)  # under the last tangents
    yield from bounds
    yield replace(problem.law_at(columns, report, missed=missed), value=cost(columns))


def _exact(
    problem: Any, columns: Array, clock: Clock, *, spared: float = 0.0
) -> tuple[Exact, dict[str, fmpq]]:
    """Return the exact private point near columns, further ones as low as their rows allow, and the residuals of dependent equalities."""
    declared = problem.declared
    exact, missed = repaired(declared, near(declared, [columns], clock), clock, spared=spared)
    return Face(declared, declared.zeros).lowered(exact), missed


def _inside(
    problem: Any, clock: Clock, solver: str | None, options: dict[str, Any]
) -> tuple[SolveReport, tuple[Exact, dict[str, fmpq]]]:
    """Return a cone solver's optimum, repaired, if it is inside the convex functions, else a table well inside, else one inside within the tolerance."""
    within = list[tuple[SolveReport, tuple[Exact, dict[str, fmpq]]]]()
    program, equal = problem.to_cvxpy(), np.full(problem.unknown.shape, 1 / problem.declared.m)
    unit = _spread(problem) if "objective" in problem.functions() else problem.declared.units[0]
    curved = {id(one) for label, one in labelled(problem.constraints) if label in problem.functions()}
    rest = [one for one in program.constraints if id(one) not in curved]
    for stricter in (CURVED, 0.0):  # there may be no room
        rows = [*rest, *inside(problem, stricter, equal, problem.unknown)]
        goal = cp.Minimize(program.objective.expr / unit)
        try:
            found = conic(cp.Problem(goal, rows), solver, clock, **options)
        except (InfeasibleError, SolverError) as error:
            if getattr(error, "status", "") == "limit":
                raise
            continue
        table = _stochastic(found.primal[problem.unknown.name()])
        declared = problem.__dict__["_declared"] = problem.compiled({"": [table]})
        least = _settled(declared, [rational(x) for x in table.ravel().tolist()])[declared.cells :]
        above = np.nextafter([float(x) for x in least], np.inf)
        exact, missed = _exact(problem, np.append(table, above), clock)
        law = problem.deployed(weights_of(declared, exact))
        if not problem.missed_by(law, problem.worth(law)):
            within.append((SolveReport.of(found), (exact, missed)))
        if problem.keeps(problem.value_of(exact)):
            return within[-1]
    try:
        return SolveReport("tangents"), (_well_inside(problem, clock), {})
    except InfeasibleError:
        if not within:
            raise
    return within[-1]


def _spread(problem: Any) -> float:
    """Return the range of the objective over some tables, which scales it to about 1 for a solver's tolerances."""
    n, m = problem.declared.n, problem.declared.m
    corners = (np.eye(m)[(np.arange(n) + x) % m] for x in range(min(m, 8)))
    tables = [np.full((n, m), 1 / m), *((corner + 1 / m) / 2 for corner in corners)]
    worth = [problem.worth_at(table.reshape(problem.unknown.shape))["objective"] for table in tables]
    return float(np.ptp([one for one in worth if math.isfinite(one)] or [0.0])) or 1.0


def _well_inside(problem: Any, clock: Clock) -> Exact:
    """Return a table inside the convex functions: the farthest inside tangents, of which more are taken there until it is; raise the error of a problem without one."""
    tables = [problem.start]
    with suppress(InfeasibleError):
        for _ in range(_TANGENTS):
            declared = problem.__dict__["_declared"] = problem.compiled({"": tables})
            program = Program(declared, clock, room=True)
            program.solve()
            if not program.solution.primal["room"][0] > 0:
                break
            tables.append(_stochastic(program.columns()[: declared.cells].reshape(problem.unknown.shape)))
            if problem.keeps(tables[-1]):
                exact, _ = _exact(problem, program.columns(), clock)
                if problem.keeps(problem.value_of(exact)):
                    return exact
    raise problem.explained(InfeasibleError("no table is inside the convex functions"), clock)


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
    """Return the convex functions of a problem except its objective as constraints on what stands for its unknown, with room relative to the size of their tangents at a value."""
    return [
        f.tree_copy({id(problem.unknown): unknown}) / problem.tangent_size(label, at) + room <= 0
        for label, f in problem.functions().items()
        if label != "objective"
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
    cheapest = inner
    points, best, room = [inner], list[tuple[float, Any, S]](), dict[str, float]()
    while len(points) <= 2 * _ROUNDS and not (best and clock.passed):
        declared = problem.__dict__["_declared"] = problem.compiled({"": map(shaped, points)})
        for label in () if room else problem.functions():
            room[label] = _INSIDE * problem.tangent_size(label, shaped(inner))
        try:
            bound, found, outside = bounded(declared)
        except SolverError:
            if not best:
                raise
            break
        if not best or bound > best[-1][0]:
            best.append((bound, declared, found))
        way = outside - inner
        share = float(problem.keeps(shaped(outside), room))
        for step in 0.5 ** np.arange(1, 1 if share else 40):
            share += step * problem.keeps(shaped(inner + (share + step) * way), room)
        last = inner + share * way
        cost, further = delivered(last)
        if cost < value:
            value, law, cheapest = cost, further, last
        if value - best[-1][0] <= clock.gap * abs(value):
            break
        at = last if share < 1 else cheapest
        parts = (_NEAR, 0.9) if share < 1 or "objective" in room else (_NEAR,)  # slopes are finite there
        points += [at + part * (outside - at) for part in parts]
    problem.__dict__["_declared"] = best[-1][1]
    return law, best[-1][2]
