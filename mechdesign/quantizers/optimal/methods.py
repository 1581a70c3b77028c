r"""Which method finds the floors: tried in order until the gap is proved, their results merged.

Least loss under a cap on the mean squared error.

.. math:: \min_{a \in A} F(a) \quad \text{subject to} \quad F_2(a) \le \text{cap},

F₂ the expected squared loss. The block fill of given floors is optimal for *every* convex loss at once, so both
functions belong to the same mechanism. For a multiplier ν ≥ 0 the loss :math:`\ell + \nu (\cdot)^2` is convex
again, and its lower bound minus ν·cap is a lower bound for the capped problem; ν is found by intersecting the two
dual lines next to the optimum. Floors on either side of the cap are mixed until F₂ equals it: F₂ is convex, so
the mixture keeps the cap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.exact import safe_root
from mechdesign.problem.losses import Loss
from mechdesign.quantizers.optimal.cutting_planes import cutting_planes, worst_case
from mechdesign.quantizers.optimal.floors import FloorProblem, pieces, smallest_epsilon
from mechdesign.quantizers.optimal.newton import newton
from mechdesign.quantizers.optimal.solution import FloorSolution, patience
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

Method = Callable[..., FloorSolution]
METHODS: dict[str, Method] = {"newton": newton, "cutting-planes": cutting_planes, "exchange": worst_case}
LEAST_GAP = 1e-13
"""Below it the margins for rounding decide, not the method."""


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
    **options: int,
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
    **options
        `steps` that each method takes at most, for an expected loss.

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
    if method == "newton" and not problem.has_density:
        raise DesignError.of("solver", method, 'needs a prior with a density; "cutting-planes" takes samples')
    found: FloorSolution | None = None
    failure = SolverError("no method was tried", solver=str(method), status="none")
    for attempt in _methods(problem, method, start is not None):
        begin = start if found is None or not np.isfinite(found.value) else found.floors
        try:
            guess = {} if attempt is newton else {"start": begin}
            found = attempt(problem, gap=gap, deadline=deadline, **guess, **options).merged(found)
        except SolverError as error:
            failure = error
            continue
        except InfeasibleError as error:  # the outermost outputs decide, and were asked
            words = f"{attempt.__name__} calls feasible floors infeasible ({error.reason})"
            failure = SolverError(words, solver=attempt.__name__, status="defect")
            continue
        if found.gap <= gap or patience(found.value, found.lower_bound, found.margin) == 1 or deadline.passed:
            break
    if found is None:
        raise failure
    if failure.status != "none":
        deadline.failed(failure, f"{' + '.join(dict.fromkeys(found.methods))} found the floors instead")
    return found


def _methods(problem: FloorProblem, method: str | None, guessed: bool) -> list[Method]:
    """What to try, in order; only cutting planes can use a guess."""
    if method is not None:
        return [METHODS[method]]
    if problem.objective == "worst":
        return [worst_case]
    # Point masses alone make the loss piecewise linear, which planes fit and Newton's quadratics do not.
    if problem.bias > 0 or not problem.has_density:
        return [cutting_planes]
    return [cutting_planes, newton] if guessed else [newton, cutting_planes]


def expected(problem: FloorProblem, floors: Array) -> float:
    """F(a), with the bias budget of the problem."""
    return pieces(problem, floors).expected_loss(problem)


@dataclass(frozen=True, eq=False)
class _Point:
    """Floors with their loss and their squared loss."""

    floors: Array
    loss: float
    square: float


def best_floors(
    problem: FloorProblem,
    gap: float,
    method: str | None = None,
    start: Array | None = None,
    deadline: Deadline | None = None,
) -> FloorSolution:
    """Find floors of least loss, under the problem's cap on the squared error if it has one.

    Parameters
    ----------
    problem, gap, method, start, deadline
        As in `uncapped`.

    Raises
    ------
    InfeasibleError
        The cap is below the least possible mean squared error, which `least` of the error holds.
    """
    if problem.max_mse is None:
        return uncapped(problem, gap, method, start, deadline)
    cap, deadline = problem.max_mse, deadline or Deadline(None)
    # The exact law's squared error is the floors' to rounding, and must be within the cap.
    goal = cap * (1 - LEAST_GAP)
    problem = replace(problem, max_mse=None)
    square = replace(problem, loss=Loss(squared=1.0))

    def point(floors: Array) -> _Point:
        return _Point(floors, expected(problem, floors), expected(square, floors))

    free = uncapped(problem, 0.1 * gap, method, start, deadline)
    above = point(free.floors)
    if above.square <= goal:
        return free
    least = uncapped(square, 0.1 * gap, method, start, deadline)
    if least.lower_bound <= cap < least.value:
        # Too close to call at this gap.
        least = uncapped(square, 1e-12, method, least.floors, deadline)
    if least.value > cap:
        if least.lower_bound <= cap:
            raise SolverError("no floors within the cap were found in time", solver="cap", status="limit")
        raise InfeasibleError(
            f"max_mse = {cap:.9g} is below the least possible mean squared error {least.value:.9g} "
            "(at this epsilon, with these outputs and this range)",
            least=least.value,
        )
    goal = min(cap, max(goal, least.value))
    best = below = point(least.floors)
    bound, proof, price = free.lower_bound, free, 0.0
    for _ in range(60):
        if best.loss - bound <= gap * abs(best.loss) or deadline.passed:
            break
        # Where the two dual lines F + ν (F₂ − cap) meet.
        nu = max((below.loss - above.loss) / max(above.square - below.square, 1e-300), 0.0)
        penalised = replace(problem, loss=replace(problem.loss, squared=problem.loss.squared + nu))
        solution = uncapped(penalised, 0.1 * gap, method, best.floors, deadline)
        if solution.lower_bound - nu * cap > bound:
            bound, proof = solution.lower_bound - nu * cap, solution
            price = nu
        here = point(solution.floors)
        moved = abs(here.square - (above if here.square > goal else below).square)
        above, below = (here, below) if here.square > goal else (above, here)
        best = min(best, below, _mixture(square, goal, below, above, point), key=lambda p: p.loss)
        if moved <= 1e-13 * abs(cap):
            break
    priced = None if proof.proof is None else replace(proof.proof, cap_price=price)
    return replace(proof, floors=best.floors, value=best.loss, lower_bound=bound, proof=priced)


def _mixture(
    square: FloorProblem, cap: float, below: _Point, above: _Point, point: Callable[[Array], _Point]
) -> _Point:
    """On the segment between the two, the point that uses the cap fully."""

    def excess(share: float) -> float:
        return expected(square, (1 - share) * below.floors + share * above.floors) - cap

    share = safe_root(excess, 0.0, 1.0, xtol=1e-14)
    return point((1 - share) * below.floors + share * above.floors)
