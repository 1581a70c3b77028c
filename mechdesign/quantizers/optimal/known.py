r"""What is known without any method: losses of simple feasible mechanisms, and the loss without privacy.

A method's lower bound that exceeds the loss of a feasible mechanism is wrong, whatever proved it; and beyond
`LARGEST_EPSILON` e^ε has no digits left in which floors could differ, so designs are solved there and their bound is
carried over: any ε-LDP mechanism M, mixed with a simple one Q whose probabilities are all at least δ,

.. math:: M' = (1 - t) M + t Q, \qquad t = e^{-\varepsilon'} / \delta,

is ε'-LDP, hence :math:`\text{loss}(M) \ge (\text{bound}(\varepsilon') - t\,\text{loss}(Q)) / (1 - t)`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mechdesign.problem.losses import Loss
from mechdesign.quantizers.mechanism.error_curve import largest
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.floors import interior_floors, smallest_epsilon
from mechdesign.quantizers.optimal.lower_bound import FloorSolution
from mechdesign.quantizers.optimal.pieces import pieces
from mechdesign.typing import Array

__all__ = ["LARGEST_EPSILON", "carried_over", "known_loss", "solved_epsilon"]

LARGEST_EPSILON = 23.0
_ROOM = (
    2.0  # by which a budget exceeds the least feasible one, so that a simple mechanism makes no output rare
)


def solved_epsilon(epsilon: float, least: float) -> float:
    """Return the ε at which a design is solved for budget ε, the least feasible one being `least`."""
    return min(epsilon, max(LARGEST_EPSILON, least + _ROOM))


def _loss(problem: FloorProblem, floors: Array) -> float:
    """Expected or largest loss of the fill of some floors."""
    table = pieces(problem, floors)
    return (
        largest(table.table, problem.loss)[0]
        if problem.objective == "worst"
        else table.expected_loss(problem)
    )


def known_loss(problem: FloorProblem) -> float:
    """Return the loss of a mechanism that is feasible for certain; infinite where a cap on the squared error forbids."""
    if problem.max_mse is not None:
        return math.inf
    known = [_loss(problem, problem.centre)]
    low, high = problem.reach[1], problem.reach[0]
    for k in np.flatnonzero((problem.bins >= low) & (problem.bins <= high)):
        # The bias budget allows to answer this output always.
        known.append(_loss(problem, np.eye(len(problem.bins))[k]))
    return min(known)


def carried_over(problem: FloorProblem, solution: FloorSolution) -> FloorSolution:
    """Return the solution for `LARGEST_EPSILON` with a lower bound for every larger budget."""
    # A simple mechanism for a budget not much larger than needed, so that no output is rare.
    rho = min(problem.rho, math.exp(smallest_epsilon(problem.bins, *problem.reach) + _ROOM))
    floors = interior_floors(problem.bins, rho, *problem.reach)
    share = 1.0 / (problem.rho * float(floors.min()))
    easy = replace(problem, rho=rho)
    simple = _loss(easy, floors)
    if problem.max_mse is not None and solution.proof is not None:
        # The bound is that of the loss with the cap's price on it.
        square = replace(easy, loss=Loss(squared=1.0))
        simple += solution.proof.cap_price * (_loss(square, floors) - problem.max_mse)
    if not share < 0.5:
        return replace(solution, lower_bound=-math.inf, proof=None)
    return replace(solution, lower_bound=(solution.lower_bound - share * simple) / (1 - share), proof=None)
