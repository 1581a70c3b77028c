"""Which method finds the floors: tried in order until the gap is proved, their results merged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.quantizers.optimal.cutting_planes import cutting_planes
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.floors import smallest_epsilon
from mechdesign.quantizers.optimal.lower_bound import FloorSolution
from mechdesign.quantizers.optimal.newton import newton
from mechdesign.quantizers.optimal.worst_case import worst_case
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["METHODS", "check_feasible", "uncapped"]

METHODS = ("newton", "cutting-planes", "exchange")
# Below this the bound's rounding margin decides, not the method.
LEAST_GAP = 1e-13

Method = Callable[[FloorProblem, float, Array | None, Deadline], FloorSolution]


def check_feasible(problem: FloorProblem, epsilon: float, unit: tuple[float, float] = (0.0, 1.0)) -> None:
    """Raise InfeasibleError, with the smallest feasible ε, unless the outermost outputs allow unbiasedness."""
    needed = smallest_epsilon(problem.bins, *problem.reach)
    # Equality up to rounding is let through: Duchi et al.'s outputs sit exactly there, and are checked exactly later.
    if needed > epsilon * (1 + 1e-15) + 1e-15:
        first, last, lower, upper = (
            unit[0] + unit[1] * v for v in (problem.bins[0], problem.bins[-1], problem.lower, problem.upper)
        )
        raise InfeasibleError(
            f"outputs in [{first:g}, {last:g}] cannot be unbiased on [{lower:g}, {upper:g}] at epsilon = {epsilon:g}: "
            f"the smallest feasible epsilon is {_distinct(needed, epsilon)}; widen the outputs or raise epsilon",
            smallest_epsilon=needed,
        )


def _distinct(number: float, other: float) -> str:
    """The number in as few digits as tell it from the other."""
    short = f"{number:.9g}"
    return repr(number) if short == f"{other:.9g}" else short


def uncapped(
    problem: FloorProblem,
    gap: float,
    method: str | None = None,
    start: Array | None = None,
    deadline: Deadline | None = None,
) -> FloorSolution:
    """Find floors of least loss.

    Parameters
    ----------
    problem : FloorProblem
    gap : float
        Relative gap between value and lower bound to stop at.
    method : {"newton", "cutting-planes", "exchange"}, optional
        The only one to try; by default those that fit, in order.
    start : ndarray (m,), optional
        Floors that cutting planes begin with.
    deadline : Deadline, optional

    Returns
    -------
    FloorSolution
        The best found and the best bound; the caller judges its `gap`.

    Raises
    ------
    DesignError
        A method that does not fit the objective.
    """
    deadline, gap = deadline or Deadline(None), max(gap, LEAST_GAP)
    if method is not None and (method == "exchange") != (problem.objective == "worst"):
        raise DesignError.of("solver", method, '"exchange" is for objective="worst", and only it is')
    found: FloorSolution | None = None
    failure = SolverError("no method was tried", solver=str(method), status="none")
    for attempt in _methods(problem, method, start is not None):
        begin = start if found is None or not np.isfinite(found.value) else found.floors
        try:
            found = attempt(problem, gap, begin, deadline).merged(found)
        except SolverError as error:
            failure = error
            continue
        if found.proved(gap) or deadline.passed:
            break
    if found is None:
        raise failure
    return found


def _methods(problem: FloorProblem, method: str | None, guessed: bool) -> list[Method]:
    """What to try, in order; only cutting planes can use a guess."""
    m, atoms = len(problem.bins), len(problem.atoms[0])
    if method is not None:
        return [_BY_NAME[method]]
    if problem.objective == "worst":
        return [_exchange]
    if problem.bias > 0:
        return [_planes]
    if guessed:
        return [_planes, _newton]
    # Many point masses make the loss piecewise linear: planes fit it better than Newton's quadratics.
    if atoms > 30:
        return [_planes, _newton] if atoms * m <= 20_000 else [_planes]
    return [_newton, _planes] if m <= 512 else [_newton]


def _newton(problem: FloorProblem, gap: float, start: Array | None, deadline: Deadline) -> FloorSolution:
    return newton(problem, gap=gap, deadline=deadline)


def _planes(problem: FloorProblem, gap: float, start: Array | None, deadline: Deadline) -> FloorSolution:
    return cutting_planes(problem, gap=gap, start=start, deadline=deadline)


def _exchange(problem: FloorProblem, gap: float, start: Array | None, deadline: Deadline) -> FloorSolution:
    return worst_case(problem, gap=gap, start=start, deadline=deadline)


_BY_NAME: dict[str, Method] = {
    "newton": _newton,
    "cutting-planes": _planes,
    "exchange": _exchange,
}
