r"""The best covariance as a fixed point, with two bounds at every step.

Let V be the changes, weighted by :math:`w`, and A the answers whose error counts, weighted by :math:`q`. With singular
values :math:`\sqrt q\,A\,V^\top\sqrt w = U S W^\top` the program's dual is the largest :math:`(\operatorname{tr} S)^2/\mu^2`
over w of sum 1 (and, for the largest error, over q of sum 1), jointly concave by Lieb's theorem in the form of Carlen, Frank
and Lieb. Its optimum consumes :math:`g_v` on a change and gives the answer j the share :math:`h_j` of the largest error,

.. math:: g_v = \frac{(W S W^\top)_{vv}}{w_v \operatorname{tr} S}, \qquad h_j = \frac{(U S U^\top)_{jj}}{q_j \operatorname{tr} S},

and :math:`w \leftarrow w g`, :math:`q \leftarrow q h` raise the lower bound, one at a time at every step; the upper bound is
the lower one times :math:`\max g \cdot \max h`. For the total error q stays 1 and h is left out. The singular values are
those of the product, never roots of eigenvalues of its square.

Steps are extrapolated from the last few (Anderson's method in :math:`\log w` and :math:`\log q`), and taken so only while the
lower bound rises.

On the deployed grid (results/ablations) the fixed point is a median 141 times as fast as the semidefinite program; without
extrapolation 3 of 10 designs lose up to 73% of value within 30 seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mechdesign.errors import SolverError
from mechdesign.solvers.deadline import Deadline, one_thread
from mechdesign.typing import Array

_PATIENCE = 2000
"""Steps without progress by a hundredth, after which the best so far is all there is."""


@dataclass(frozen=True, eq=False)
class Balance:
    """What weights on the vectors, and on the answers, say.

    Attributes
    ----------
    weights : ndarray, shape (k,)
        w, of sum 1.
    loads : ndarray, shape (m,), or None
        q, of sum 1; None for the total error.
    singular : ndarray, shape (r,)
        S.
    whitening : ndarray, shape (r, r)
        R with Σ⁻¹ = RᵀR/tr S at μ = 1.
    share : ndarray, shape (k,)
        g; where it is largest the budget binds.
    burden : ndarray, shape (m,), or None
        h; where it is largest the error is.
    """

    weights: Array
    loads: Array | None
    singular: Array
    whitening: Array
    share: Array
    burden: Array | None

    @property
    def excess(self) -> float:
        """Upper bound over lower bound, minus 1."""
        worst = 1.0 if self.burden is None else float(self.burden.max())
        return float(self.share.max()) * worst - 1.0

    @property
    def lower_bound(self) -> float:
        """(tr S)²: no covariance costs less, at μ = 1."""
        return float(self.singular.sum()) ** 2


def balance(
    vectors: Array, weights: Array, answers: Array | None = None, loads: Array | None = None
) -> Balance | None:
    """Return the balance of `weights` and `loads`; None where they leave a direction without weight.

    Parameters
    ----------
    vectors : ndarray, shape (k, r)
    weights : ndarray, shape (k,)
    answers : ndarray, shape (m, r), optional
        A; the loss is the plain trace when not given.
    loads : ndarray, shape (m,), optional
    """
    rank = vectors.shape[1]
    weights = weights / weights.sum()
    right = _root(vectors, weights, most=2 * rank)
    left = None
    if answers is not None and loads is not None:
        loads = loads / loads.sum()
        left = _root(answers, loads, most=rank)
    if len(right) < rank or (left is not None and len(left) < rank):
        return None
    core = right if left is None else right @ left.T
    outer, singular, directions = np.linalg.svd(core, full_matrices=False)
    if not (singular[-1] > 0 and np.isfinite(directions).all()):
        return None
    total, burden = singular.sum(), None
    with np.errstate(over="ignore", invalid="ignore"):
        whitening = directions / np.sqrt(singular)[:, None]
        if left is not None:
            whitening = whitening @ left
        share = ((vectors @ whitening.T) ** 2).sum(axis=1) / total
        if left is not None and answers is not None:
            back = (outer / np.sqrt(singular)).T @ right
            burden = ((answers @ back.T) ** 2).sum(axis=1) / total
    if not (np.isfinite(share).all() and (burden is None or np.isfinite(burden).all())):
        return None
    return Balance(weights, loads, singular, whitening, share, burden)


def _root(rows: Array, weights: Array, *, most: int) -> Array:
    """A matrix with the second moments of the weighted rows, of no more rows than columns where there are more than `most`."""
    keep = weights > 0
    scaled: Array = np.sqrt(weights[keep])[:, None] * rows[keep]
    if len(scaled) > most:
        scaled = np.asarray(np.linalg.qr(scaled, mode="r"))
    return scaled


@dataclass(frozen=True, eq=False)
class Found:
    """The best balance of an iteration, and its steps."""

    best: Balance
    steps: int


class Weighing(Protocol):
    """A problem whose balances are known by the logarithms of weights and loads."""

    @property
    def equal(self) -> Array:
        """Logarithms of equal weights on all that is not zero."""

    @property
    def sure(self) -> float:
        """The power of the gains at which the lower bound rises for sure."""

    def at(self, logs: Array) -> Balance | None:
        """The balance of these weights; None where they leave a direction without weight."""


def iterate(problem: Weighing, gap: float, deadline: Deadline) -> Found:
    """Iterate from equal weights until upper and lower bound are within `gap`, or the deadline; return the best balance and the steps.

    Raises SolverError where squares underflow. On one thread: factorizations of this size gain little from more, and lose much to others on a busy machine.
    """
    with one_thread():
        return _iterated(problem, gap, deadline)


def _iterated(problem: Weighing, gap: float, deadline: Deadline) -> Found:
    def at(logs: Array) -> Balance | None:
        return None if np.isnan(logs).any() else problem.at(logs)

    now = at(problem.equal)
    if now is None:
        raise SolverError(
            "the vectors are further apart in size than doubles can square",
            solver="fixed-point",
            status="range",
        )
    best, step, seen = now, 0, (0, now.excess)
    path: list[tuple[Array, Array]] = []
    while best.excess > gap and not deadline.passed and step - seen[0] < _PATIENCE:
        step += 1
        logs, gains = _logs_of(now), _gains(now)
        path = [*path[-5:], (logs, gains)]  # an extrapolation looks back six steps
        new = _rising(at(_extrapolated(path)), now) if len(path) > 1 else None
        if new is None:
            path = path[-1:]
            new = at(logs + problem.sure * gains) or now
        now = new
        best = min(best, now, key=lambda found: found.excess)
        if best.excess < 0.99 * seen[1]:
            seen = (step, best.excess)
    return Found(best, step)


def weights_of(logs: Array) -> Array:
    """Weights by their logarithms, the largest 1."""
    found: Array = np.exp(logs - logs.max())
    return found


def _logs_of(now: Balance) -> Array:
    """Logarithms of the weights, and of the loads after them."""
    with np.errstate(divide="ignore"):
        found: Array = np.log(now.weights if now.loads is None else np.concatenate([now.weights, now.loads]))
    return found


def _gains(now: Balance) -> Array:
    shares = now.share if now.burden is None else np.concatenate([now.share, now.burden])
    found: Array = np.log(np.maximum(shares, 1e-300))
    return found


def _rising(new: Balance | None, now: Balance) -> Balance | None:
    """The new balance, if its lower bound is no worse."""
    return new if new is not None and new.lower_bound >= now.lower_bound * (1 - 1e-13) else None


def _extrapolated(path: list[tuple[Array, Array]]) -> Array:
    """Where the gains would vanish, were they linear along the path; weights count by their square roots."""
    logs, gains = path[-1]
    live = np.isfinite(logs)
    for old, _ in path:
        live &= np.isfinite(old)
    moved = np.diff([old[live] for old, _ in path], axis=0)
    changed = np.diff([old[live] for _, old in path], axis=0)
    size = np.exp(logs[live] / 2)
    along = np.linalg.lstsq((size * changed).T, size * gains[live], rcond=1e-10)[0]
    found = logs + gains
    found[live] -= np.clip(along @ (moved + changed), -4.0, 4.0)  # no weight changes by a factor above e⁴
    return found
