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

from mechdesign.quantizers.optimal.cutting_planes import Planes, minimise
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.lower_bound import FloorSolution
from mechdesign.quantizers.optimal.pieces import Pieces, pieces
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["local_maxima", "worst_case"]


def local_maxima(problem: FloorProblem, table: Pieces) -> tuple[Array, Array]:
    """Inputs and values of the local maxima of the fill's expected loss (largest value on each piece)."""
    cells, at = table.cells()

    def loss(share: float) -> tuple[Array, Array]:
        x = cells[:-1] + share * np.diff(cells)
        return x, np.einsum("nk,nk->n", table.rows_at(x, at), problem.loss(problem.bins - x[:, None]))

    if problem.loss.polynomial:
        (x0, v0), (_, v1), (x2, v2) = loss(0.0), loss(0.5), loss(1.0)
        # v0 + b t + c t²
        c = 2 * (v0 + v2 - 2 * v1)
        b = v2 - v0 - c
        t = np.clip(np.divide(-b, 2 * c, out=np.zeros_like(b), where=c < 0), 0.0, 1.0)
        peak = v0 + b * t + c * t * t
        t = np.where(v2 >= peak, 1.0, t)
        t = np.where(v0 >= np.maximum(peak, v2), 0.0, t)
        return x0 + t * (x2 - x0), np.maximum(np.maximum(v0, v2), peak)
    samples = [loss(s) for s in (1 - np.cos(np.linspace(0, np.pi, 33))) / 2]
    xs, vs = np.stack([x for x, _ in samples]), np.stack([v for _, v in samples])
    best = np.argmax(vs, axis=0)
    column = np.arange(vs.shape[1])
    return xs[best, column], vs[best, column]


def worst_planes(problem: FloorProblem, floors: Array) -> Planes:
    """Return a plane for each local maximum."""
    table = pieces(problem, floors)
    where, height = local_maxima(problem, table)
    x = np.unique(where[where >= -1e-12 * problem.upper] if problem.symmetric else where)
    constants, gradients, _ = table.duals(problem, x, table.at(x))
    return Planes(float(height.max()), np.zeros(len(x), dtype=int), constants, gradients)


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
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"), mirrored=True)
    >>> round(worst_case(problem).value - A, 9)
    0.0
    """
    return minimise(problem, lambda floors: worst_planes(problem, floors), 1, "exchange", gap, start, deadline)
