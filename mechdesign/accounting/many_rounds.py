r"""Many sampled rounds as a normal law, with the distance that Berry and Esseen prove: their number costs nothing.

With P' the law of a sample's answers, Q that of the others' and :math:`r = dP'/dQ - 1`, tilted moments of a round's loss :math:`\pm\log(1 + r)` are sums of
:math:`(1 + r)^a` under Q. As r has mean 0 under Q, :math:`(1 + r)^a - 1 - a r` has the mean of :math:`(1 + r)^a - 1`: a term of second order, which keeps its digits however
small the rate is. Under the tilt θ,

.. math:: \delta = e^{\log M(\theta) - \theta\varepsilon}\,\tilde E f(L - \varepsilon),\quad f(x) = (1 - e^{-x})_+ e^{-\theta x},

and an expectation of f under a law at distance d from the normal one is within d times the variation of f, twice its largest value. The distance of a sum is at
most 0.56 times the third absolute moments over the variance to the power 3/2 (Shevtsova 2010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.polynomial import polyval
from scipy.special import erfcx

from mechdesign.accounting.grids import far_end
from mechdesign.accounting.losses import CentredLoss
from mechdesign.doubles import LARGEST_POWER
from mechdesign.typing import Array

_LEAST = 1e-190
"""Variance whose power of 3/2 is a double."""
_OFF = 1e-11
"""Relative rounding error of a sum over the cells."""


@dataclass(frozen=True)
class Round:
    """A sampled round: outcomes with their masses under Q, and r; `end`: mass of an infinite loss if a record is removed.

    Attributes
    ----------
    q, r, off : ndarray
        `off` bounds the errors of r.
    count : int
        Number of rounds.
    """

    q: Array
    r: Array
    off: Array
    end: float
    count: int

    @classmethod
    def of(cls, loss: CentredLoss, rate: float, count: int, tail: float, *, pessimistic: bool) -> Round:
        """Return a round that dominates (its outcomes are split between the ends of cells) or is dominated (cells are merged)."""
        half = loss.sensitivity / 2
        far = min(far_end(loss, tail)[0], float(loss.isf(tail)) + half)
        x = np.unique(np.concatenate([np.linspace(-far, far, 2**13), np.linspace(-half, half, 2**10)]))
        p, q, p_error, q_error = loss.masses(np.concatenate([[-np.inf], x, [np.inf]]))
        error = p_error + q_error
        if not pessimistic:
            seen = q > 0
            p, q, error = p[seen], q[seen], error[seen]
            return cls(q, rate * (p - q) / q, rate * error / q, 0.0, count)
        with np.errstate(over="ignore"):
            ratio = np.exp(np.minimum(loss.loss(x), LARGEST_POWER))
        low, high = np.append(0.0, ratio[:-1]), ratio
        wide = np.maximum(high - low, 1e-300)
        up = np.clip((p[:-1] - low * q[:-1]) / wide, 0.0, q[:-1])
        masses = np.concatenate([q[:-1] - up, up])
        masses[-1] += q[-1]  # of what lies beyond, the loss is the last or infinite
        ends = rate * (np.concatenate([low, high]) - 1)
        # an error of a split moves mass by the cell's width
        off = (
            rate * np.tile(np.minimum(error[:-1] * (1 + high), wide * q[:-1]), 2) / np.maximum(masses, 1e-300)
        )
        seen = masses > 0
        end = rate * p[-1]
        return cls(masses[seen], ends[seen], off[seen], float(end * (1 + 1e-9)), count)

    def tilted(self, theta: float, *, removed: bool) -> tuple[Array, float]:
        """Return count times log M, mean, variance and third absolute moment of the loss, and how far the first two are off: of what has infinite loss r lacks its mean."""
        a, sign = (1 + theta, 1.0) if removed else (-theta, -1.0)
        loss, less = np.log1p(self.r), _log_less(self.r)
        with np.errstate(over="ignore"):
            grown = np.expm1(np.minimum(a * loss, LARGEST_POWER))
            u = float(np.sum(self.q * (_exp_less(a * loss) + a * less)))
            first = float(np.sum(self.q * (grown * loss + less)))
            weights = self.q * (1 + grown) / (1 + u)
            mean = first / (1 + u)
            away = np.abs(loss - mean)
            slope = np.abs(np.expm1((a - 1) * loss) * (1 + np.abs(a * loss)) + a * loss) * (1 + abs(a))
            off = float(np.sum(self.q * self.off * slope))
        found = [
            math.log1p(u),
            sign * mean,
            float(np.sum(weights * away**2)),
            float(np.sum(weights * away**3)),
        ]
        return self.count * np.array(found), self.count * (off + self.end + _OFF * (abs(u) + abs(mean)))


def _log_less(r: Array) -> Array:
    """Return log(1 + r) − r, of second order, without cancellation."""
    small = np.abs(r) < 1e-2
    s = np.where(small, r, 0.0)
    series = polyval(-s, [1 / (k + 2) for k in range(8)]) * -(s**2)
    return np.asarray(np.where(small, series, np.log1p(r) - r))


def _exp_less(y: Array) -> Array:
    """Return e^y − 1 − y, of second order, without cancellation."""
    small = np.abs(y) < 1e-2
    s = np.where(small, y, 0.0)
    series = polyval(s, [1 / math.factorial(k + 2) for k in range(8)]) * s**2
    return np.asarray(np.where(small, series, np.expm1(np.minimum(y, LARGEST_POWER)) - y))


def normal_delta(rounds: Sequence[Round], epsilon: float, *, pessimistic: bool) -> float:
    """Bound δ(ε) of sampled rounds from above or from below."""
    return max(
        _one_way(rounds, epsilon, removed=removed, pessimistic=pessimistic) for removed in (True, False)
    )


@np.errstate(over="ignore", invalid="ignore")  # what overflows proves nothing
def _one_way(rounds: Sequence[Round], epsilon: float, *, removed: bool, pessimistic: bool) -> float:
    """Return the best bound of the tilts on the way to a mean just above ε: rare large losses may be all of the last one."""

    def sums(theta: float) -> tuple[Array, float]:
        each = [one.tilted(theta, removed=removed) for one in rounds]
        return np.sum([v for v, _ in each], axis=0), sum(off for _, off in each)

    best, better = (1.0, min) if pessimistic else (0.0, max)
    ends = sum(one.count * one.end for one in rounds) if removed and pessimistic else 0.0
    moments, off = sums(0.0)
    theta = 0.25 / math.sqrt(max(moments[2], _LEAST))
    for _ in range(20):  # steps of Newton: any tilt is valid
        moments, off = sums(theta)
        if not _LEAST < moments[2] < 1 / _LEAST:
            break
        found = _normal(theta, moments, off, epsilon, 1 if pessimistic else -1)
        if math.isfinite(found):
            best = float(better(best, found + ends))
        spread = math.sqrt(moments[2])
        lack = epsilon + spread - float(moments[1])
        if not abs(lack) > 0.05 * spread:
            break
        theta = min(max(theta + lack / float(moments[2]), theta / 2), 2 * theta)
    return best


def _normal(theta: float, moments: Array, off: float, epsilon: float, sign: int) -> float:
    """Bound δ(ε) under one tilt from its moments, from above for a sign of 1, from below for −1."""
    log_mgf, mean, variance, third = moments  # of NumPy, whose powers overflow to infinity
    spread, ahead = math.sqrt(variance), mean - epsilon
    starts = np.array([(theta + more) * spread - ahead / spread for more in (0, 1)])
    near, further = erfcx(starts / math.sqrt(2))
    value = (near - further) / 2 * math.exp(-((ahead / spread) ** 2) / 2) * (1 + sign * 1e-9)
    largest = math.exp(-theta * math.log1p(1 / theta)) / (1 + theta)
    far = 0.56 * third / variance**1.5 + off / spread  # Berry and Esseen
    log = log_mgf - theta * epsilon + sign * (off * (1 + theta) + _OFF)
    value = float(value) + sign * 2 * largest * far
    return max(value, 0.0) * math.exp(min(log, LARGEST_POWER)) if log < LARGEST_POWER else math.nan
