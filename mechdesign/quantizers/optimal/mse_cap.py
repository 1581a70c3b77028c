r"""Least loss under a cap on the mean squared error.

.. math:: \min_{a \in A} F(a) \quad \text{subject to} \quad F_2(a) \le \text{cap},

F₂ the expected squared loss. The block fill of given floors is optimal for *every* convex loss at once, so both
functions belong to the same mechanism. For a multiplier ν ≥ 0 the loss :math:`\ell + \nu (\cdot)^2` is convex
again, and its lower bound minus ν·cap is a lower bound for the capped problem; ν is found by intersecting the two
dual lines next to the optimum. Floors on either side of the cap are mixed until F₂ equals it: F₂ is convex, so
the mixture keeps the cap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scipy import optimize

from mechdesign.errors import InfeasibleError
from mechdesign.problem.losses import Loss
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.newton import FloorSolution
from mechdesign.quantizers.optimal.pieces import pieces
from mechdesign.typing import Array

__all__ = ["capped", "expected"]

Solve = Callable[[FloorProblem, float], FloorSolution]


def expected(problem: FloorProblem, floors: Array) -> float:
    """F(a), with the bias budget of the problem."""
    return problem.value(floors) if problem.bias == 0 else pieces(problem, floors).expected_loss(problem)


def capped(
    problem: FloorProblem, cap: float, solve: Solve, *, gap: float = 1e-6, rounds: int = 60
) -> FloorSolution:
    """Minimise F with F₂ ≤ `cap`.

    Parameters
    ----------
    problem : FloorProblem
    cap : float
        Largest expected squared error.
    solve : callable
        ``solve(problem, gap)`` for one loss without a cap.
    gap : float
        Relative gap to stop at.

    Raises
    ------
    InfeasibleError
        The cap is below the least possible mean squared error, which `least` of the error holds.
    """
    square = replace(problem, loss=Loss(squared=1.0))
    inner = 0.1 * gap

    def with_multiplier(nu: float) -> FloorSolution:
        loss = replace(problem.loss, squared=problem.loss.squared + nu)
        return solve(replace(problem, loss=loss), inner)

    free = with_multiplier(0.0)
    iterations, cuts = free.iterations, free.cuts
    above = (free.floors, free.value, expected(square, free.floors))
    if above[2] <= cap:
        return free
    least = solve(square, inner)
    if least.lower_bound <= cap < least.value:
        # Too close to call at this gap.
        least = solve(square, 1e-12)
    if least.value > cap:
        raise InfeasibleError(
            f"max_mse = {cap:.9g} is below the least possible mean squared error {least.value:.9g} "
            "(at this epsilon, with these outputs and this range)",
            least=least.value,
        )
    below = (least.floors, expected(problem, least.floors), least.value)
    best, value = below[0], below[1]
    bound, nu_bound = free.lower_bound, free
    for _ in range(rounds):
        # Where the two dual lines F + ν (F₂ − cap) meet.
        nu = max((below[1] - above[1]) / max(above[2] - below[2], 1e-300), 0.0)
        solution = with_multiplier(nu)
        iterations += solution.iterations
        cuts += solution.cuts
        if solution.lower_bound - nu * cap > bound:
            bound, nu_bound = solution.lower_bound - nu * cap, solution
        point = (
            solution.floors,
            expected(problem, solution.floors),
            expected(square, solution.floors),
        )
        moved = abs(point[2] - (above if point[2] > cap else below)[2])
        if point[2] > cap:
            above = point
        else:
            below = point
        # On the segment between the two, the point that uses the cap fully.
        low, high = below[0], above[0]

        def excess(share: float, low: Array = low, high: Array = high) -> float:
            return expected(square, (1 - share) * low + share * high) - cap

        share = 0.0
        if excess(1.0) > 0 >= excess(0.0):
            share = float(optimize.brentq(excess, 0.0, 1.0, xtol=1e-14, rtol=1e-14))
            while share > 0 and excess(share) > 0:
                share = max(0.0, share - 1e-13)
        mixed = (1 - share) * low + share * high
        for floors, height in ((mixed, expected(problem, mixed)), (below[0], below[1])):
            if height < value:
                best, value = floors, height
        if value - bound <= gap * abs(value) or moved <= 1e-13 * abs(cap):
            break
    return replace(nu_bound, floors=best, value=value, lower_bound=bound, iterations=iterations, cuts=cuts)
