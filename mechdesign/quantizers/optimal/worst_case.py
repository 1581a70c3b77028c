r"""Least worst-case loss: cuts at the worst inputs, with a least favourable prior as the proof.

.. math:: \min_{a \in A} \max_{x \in [lo, hi]} V(x; a)

V(·; a) of the block fill is a quadratic on each piece (polynomial losses), so all its local maxima are found exactly.
Each one gives a plane below the maximum, :math:`z \ge \lambda + \mu x - b|\mu| + \sum_k a_k h(c_k)`, for a linear program
over (a, z) that HiGHS keeps warm: an exchange of worst inputs as in Remez's algorithm, with the floors as the only
variables (`cutting_planes.minimise`). The multipliers ω ≥ 0, Σω = 1 of the planes are a prior on finitely many inputs, and the planes averaged
with them bound the *expected* loss of every mechanism under that prior from below, hence the worst case too: the same
bound as in `expected_loss`, exact for the continuum. A handful of rounds suffices, whatever the number of outputs.
"""

from __future__ import annotations

import numpy as np

from mechdesign.quantizers.mechanism.error_curve import peaks
from mechdesign.quantizers.optimal.cutting_planes import Planes, minimise
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.lower_bound import FloorSolution
from mechdesign.quantizers.optimal.pieces import pieces
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["worst_case", "worst_planes"]


def worst_planes(problem: FloorProblem, floors: Array) -> Planes:
    """Return a plane for each local maximum."""
    table = pieces(problem, floors)
    where, height = peaks(table.table, problem.loss)
    x = np.unique(where)
    constants, gradients, _ = table.duals(problem, x, table.at(x))
    group = np.zeros(len(x), dtype=int)
    return Planes(float(height.max()), group, constants, gradients, table=table, inputs=x)


def worst_case(
    problem: FloorProblem, *, gap: float = 1e-6, start: Array | None = None, deadline: Deadline | None = None
) -> FloorSolution:
    """Minimise the worst-case loss over all inputs.

    Parameters
    ----------
    problem : FloorProblem
        Its prior plays no part.
    gap : float
        Relative gap to stop at.
    start : ndarray (m,), optional
        Floors to cut at first.
    deadline : Deadline, optional

    Returns
    -------
    FloorSolution
        ``iterations`` counts programs, ``cuts`` the planes of the last one.

    Examples
    --------
    Two outputs leave no choice; the worst input of Duchi et al.'s mechanism is the centre:

    >>> from scipy import stats
    >>> from mechdesign.problem.losses import Loss
    >>> from mechdesign.problem.priors import Prior
    >>> A = (np.e + 1) / (np.e - 1)
    >>> problem = FloorProblem(np.array([-A, A]), np.e * (1 + 1e-12), -1.0, 1.0,
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"))
    >>> round(worst_case(problem).value - A, 9)
    0.0
    """
    return minimise(
        problem, lambda floors: worst_planes(problem, floors), 1, "exchange", gap, start, deadline
    )
