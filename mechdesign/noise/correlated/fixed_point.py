r"""The best covariance as a fixed point, with two bounds at every step.

In coordinates where the loss is the plain trace, with weights :math:`w` on the vectors and
:math:`M = \sum_v w_v v v^\top`, the program's dual is :math:`\max (\operatorname{tr} M^{1/2})^2 / \mu^2 \sum w` and its
optimum :math:`\Sigma = M^{1/2} \operatorname{tr} M^{1/2}/\mu^2`. The update

.. math:: w_v \leftarrow w_v \cdot g_v, \qquad g_v = v^\top M^{-1/2} v / \operatorname{tr} M^{1/2}

raises the lower bound at every step, and :math:`\max_v g_v` is the upper bound over the lower. M^{1/2} comes from the
singular values of :math:`\sqrt w\,V`, never from M, whose conditioning is squared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from mechdesign.errors import SolverError
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["Balance", "balance", "fixed_point"]

_GRADED = 1e-7
"""Ratio of singular values below which they are computed by Jacobi's method, each to full relative accuracy."""


@dataclass(frozen=True, eq=False)
class Balance:
    """What weights on the vectors say.

    Attributes
    ----------
    weights : ndarray, shape (m,)
        Sum 1.
    singular, directions : ndarray, shapes (r,) and (r, r)
        M^{1/2} = directionsᵀ · diag(singular) · directions.
    share : ndarray, shape (m,)
        g_v; where it is largest the budget binds.
    """

    weights: Array
    singular: Array
    directions: Array
    share: Array

    @property
    def excess(self) -> float:
        """Upper bound over lower bound, minus 1."""
        return float(self.share.max()) - 1.0

    @property
    def lower_bound(self) -> float:
        """(tr M^{1/2})²: no covariance costs less, at μ = 1."""
        return float(self.singular.sum()) ** 2


def balance(vectors: Array, weights: Array) -> Balance | None:
    """Return the balance of `weights`; None where they leave a direction of the span without weight."""
    weights = weights / weights.sum()
    keep = weights > 0
    scaled = np.sqrt(weights[keep])[:, None] * vectors[keep]
    if len(scaled) < vectors.shape[1]:
        return None
    _, singular, directions = np.linalg.svd(scaled, full_matrices=False)
    if singular[-1] < _GRADED * singular[0]:
        singular, directions = _jacobi(scaled)
    if not singular[-1] > 0:
        return None
    inner = vectors @ directions.T
    share = (inner * (inner / singular)).sum(axis=1) / singular.sum()
    return Balance(weights, singular, directions, share)


def _jacobi(matrix: Array) -> tuple[Array, Array]:
    """Singular values, descending, and right singular vectors as rows, accurate however the columns are scaled."""
    found, _, right, work, _, info = lapack.dgejsv(matrix, joba=0, jobu=3, jobv=0)
    if info != 0:
        _, singular, directions = np.linalg.svd(matrix, full_matrices=False)
        return singular, directions
    return found * (work[0] / work[1]), right.T


def fixed_point(
    vectors: Array, gap: float, deadline: Deadline, *, steps: int = 20_000
) -> tuple[Balance, int]:
    """Iterate until upper and lower bound are within `gap`, or the deadline; return the best balance and the steps.

    Raises SolverError where squares underflow. Steps are doubled in log weight while that helps, and a weight that keeps dying is set to zero: a vector that the
    others already cover fades like one over the number of steps only. It returns if the budget says so.
    """
    lengths = (vectors * vectors).sum(axis=1)
    now = balance(vectors, np.where(lengths > 0, 1.0, 0.0))
    if now is None:
        raise SolverError(
            "the vectors are further apart in size than doubles can square",
            solver="fixed-point",
            status="range",
        )
    best, power, check, before = now, 2.0, 16, now.weights
    for step in range(1, steps + 1):
        if best.excess <= gap or deadline.passed:
            return best, step - 1
        new = balance(vectors, now.weights * now.share**power)
        if new is None or new.lower_bound < now.lower_bound * (1 - 1e-13):
            power = max(1.0, power / 2) if power > 1 else 1.0
            new = balance(vectors, now.weights * now.share) or now
        now = new
        best = min(best, now, key=lambda b: b.excess)
        if step == check:
            check, power = 2 * check, 2.0
            dying = (now.weights < 0.7 * before) & (now.share < 1)
            pruned = balance(vectors, np.where(dying, 0.0, now.weights))
            if pruned is not None:
                best = min(best, pruned, key=lambda b: b.excess)
                # what was dropped wrongly is over its share: it comes back with a little weight
                now = (
                    balance(vectors, np.where(dying & (pruned.share > 1), now.weights, pruned.weights)) or now
                )
            before = now.weights
    return best, steps
