r"""Proximal coordinate descent on clipped gradients.

minimise :math:`J(\theta) = \frac1N\sum_n \ell(\theta; x_n, y_n) + \psi(\theta)`, ψ separable. For passes l = 1..L and
coordinates i = 1..K,

.. math::
    g = \frac1N\sum_n \mathrm{clip}(\partial_i \ell_n;\, C_i), \qquad
    \theta_i \leftarrow \mathrm{prox}_{\tau_i\psi_i}\bigl(\theta_i - \tau_i (g + T)\bigr), \qquad \tau_i = \tau / M_i.

Replacing one record moves g by at most :math:`2C_i/N`. A record's state is one number: its residual (least squares) or its
margin (logistic), which follows the released iterate; nothing else of a record is seen.

Sums over records whose sensitivity is exact, and noise on them that leaves the machine as it was accounted.

Every record's contribution is clipped and rounded to a whole number of at most 2^b. Sums of those stay below 2⁵³, so
doubles add them without any rounding, in whatever order; another record changes the sum by at most 2·2^b, exactly.
The sum is brought to units of the noise, and rounded to the lattice of the release, in rational numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mechdesign.learning.plan import NoisePlan
from mechdesign.typing import Array

__all__ = ["CURVATURE", "NoisyAnswers", "descend", "largest_whole", "objective", "smoothness_of"]


CURVATURE = {"squared": 1.0, "logistic": 0.25}
"""The largest second derivative of each loss in the score."""

Answer = Callable[[int, int, int, int], float]


def smoothness_of(x: Array, loss: str) -> Array:
    """M_i: the largest second derivative of the mean loss along each coordinate.

    Examples
    --------
    >>> smoothness_of(np.array([[1.0, 2.0], [1.0, 0.0]]), "logistic")
    array([0.25, 0.5 ])
    """
    return np.asarray(CURVATURE[loss] * np.einsum("ni,ni->i", x, x) / len(x))


def objective(x: Array, y: Array, theta: Array, *, loss: str, penalty: Array, power: int) -> float:
    """J(θ): the mean loss with its penalty, Σ a_i|θ_i| (power 1) or Σ a_i θ_i²/2 (power 2)."""
    score = x @ theta
    data = np.mean((score - y) ** 2) / 2 if loss == "squared" else np.mean(np.logaddexp(0.0, -y * score))
    return float(data + np.sum(penalty * np.abs(theta) ** power) / power)


def proximal(value: float, weight: float, power: int) -> float:
    """The proximal operator of weight·|θ|^power/power."""
    return math.copysign(max(abs(value) - weight, 0.0), value) if power == 1 else value / (1 + weight)


def descend(
    x: Array,
    y: Array,
    *,
    loss: str,
    clips: Array,
    steps: Array,
    penalty: Array,
    power: int,
    passes: int,
    answer: Answer,
) -> Array:
    """Return the iterates after each pass, shape (passes, K).

    Parameters
    ----------
    x : ndarray, shape (N, K)
    y : ndarray, shape (N,)
        Numbers (squared loss), or ±1 (logistic).
    clips, steps, penalty : ndarray, shape (K,)
        C_i, τ_i, and the weight of each coordinate's penalty.
    power : {1, 2}
    answer : callable
        ``answer(pass, i, total, change)``: the noisy gradient of a whole number that changes by at most `change`.
    """
    users, k = x.shape
    whole = largest_whole(users)
    with np.errstate(all="ignore"):  # a record that overflows is clipped, or counts 0: that is its own affair
        # columns in units of the rounded contributions: one product gives what is clipped and summed
        signed = x if loss == "squared" else x * -y[:, None]
        columns = [np.ascontiguousarray(signed[:, i]) * (whole / clips[i]) for i in range(k)]
        state = -y if loss == "squared" else np.zeros(users)
        one, theta, path = np.empty(users), [0.0] * k, np.empty((passes, k))
        for round in range(passes):
            for i, column in enumerate(columns):
                total = _total(state, column, one, whole, loss)
                gradient = answer(round, i, total, 2 * whole)
                moved = proximal(theta[i] - steps[i] * gradient, steps[i] * penalty[i], power)
                np.multiply(column, (moved - theta[i]) * (clips[i] / whole), out=one)
                state += one
                theta[i] = moved
            path[round] = theta
    return path


def _total(state: Array, column: Array, one: Any, whole: int, loss: str) -> int:
    """The sum of all records' clipped and rounded contributions: exact, a whole number."""
    if loss == "squared":
        np.multiply(state, column, out=one)
    else:  # the state is minus the margin: σ(−m) = 1/(1 + e^m)
        np.negative(state, out=one)
        np.exp(one, out=one)
        one += 1.0
        np.divide(column, one, out=one)
    np.clip(one, -whole, whole, out=one)
    np.rint(one, out=one)
    total = float(one.sum())
    return int(total) if math.isfinite(total) else int(np.nan_to_num(one, nan=0.0).sum())


def largest_whole(records: int) -> int:
    """The largest 2^b such that `records` of them sum to at most 2⁵².

    Examples
    --------
    >>> largest_whole(1000) == 2**42
    True
    """
    return 1 << (52 - (records - 1).bit_length())


class NoisyAnswers:
    """Adds the noise of a plan, coordinate by coordinate.

    Parameters
    ----------
    plan : NoisePlan
    rng : numpy.random.Generator or RandomState, optional
        For simulation, in doubles. Without it the noise is drawn exactly, from the operating system's randomness, on
        the lattice of the law's release.
    """

    def __init__(self, plan: NoisePlan, rng: Any = None) -> None:
        noise = plan.calibration.mechanism
        shape = (plan.rounds, plan.units.shape[1])
        if rng is None:
            zeros = np.zeros(shape).reshape(-1, noise.dimension)
            step = noise.lattice.step
            drawn = (np.asarray(noise.release(zeros)) / step).astype(np.int64)
            self._log_step: int | None = math.frexp(step)[1] - 1
        else:
            drawn = np.asarray(noise.law.rvs(size=shape, random_state=rng), dtype=float)
            self._log_step = None
        self._drawn = drawn.reshape(shape).tolist()
        self._units = np.broadcast_to(plan.units, shape).tolist()
        self._shifts = np.broadcast_to(plan.shifts, shape).tolist()

    def answer(self, round: int, i: int, total: int, change: int) -> float:
        """Return λ_i/`change` times `total`, with noise: a whole number that changes by at most `change`, a power of two."""
        shift, noise = self._shifts[round][i], self._drawn[round][i]
        if self._log_step is None:
            return float((total / change * shift + noise) * self._units[round][i])
        # in steps, rounded to the nearest: every denominator is a power of two
        over, under = shift.as_integer_ratio()
        bits = under.bit_length() + change.bit_length() - 2 + self._log_step
        steps = (total * over + (1 << bits >> 1)) >> bits if bits > 0 else (total * over) << -bits
        return float(math.ldexp(float(steps + noise), self._log_step) * self._units[round][i])
