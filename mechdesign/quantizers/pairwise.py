r"""Metric and approximate privacy between the rows of a table at its knots.

On the continuum, for rows interpolated linearly between knots, :math:`p(x, i) \le e^{\varepsilon |x - x'|} p(x', i)` for all
inputs is *equivalent* to neighbouring rows k, l with

.. math:: P_{k,i} \le (1 + \varepsilon |x_k - x_l|)\, P_{l,i} ,

as an affine function is steepest, relative to itself, where it is smallest. On a fixed grid of inputs all pairs are
compared at :math:`e^{\varepsilon d(x_k, x_l)}`; for :math:`d = |x - x'|` and :math:`|x - x'|^2` chains of neighbours
imply the others, since :math:`d(x, z) \ge d(x, y) + d(y, z)` for y between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP
from mechdesign.typing import Array, Indices


@dataclass(frozen=True)
class PairwisePrivacy:
    """A privacy notion between the rows at knots.

    Parameters
    ----------
    privacy : MetricDP, ApproximateDP or PureDP
    continuum : bool
        Whether the rows are interpolated and privacy is required between all inputs, not only the knots.

    Examples
    --------
    >>> PairwisePrivacy(MetricDP(2.0), continuum=True).pairs(3)
    (array([0, 1, 1, 2]), array([1, 0, 2, 1]))
    """

    privacy: MetricDP | ApproximateDP | PureDP
    continuum: bool = False

    @property
    def delta(self) -> float:
        """Largest sum of the excesses of a pair; 0 except for approximate privacy."""
        return float(getattr(self.privacy, "delta", 0.0))

    @property
    def neighbours(self) -> bool:
        """Whether comparing neighbouring knots suffices."""
        return isinstance(self.privacy, MetricDP) and not callable(self.privacy.metric)

    def pairs(self, count: int) -> tuple[Indices, Indices]:
        """Return the pairs (k, l) of `count` knots whose rows are compared: P_k at most a multiple of P_l."""
        k, l = (v.ravel() for v in np.indices((count, count)))
        kept = np.abs(k - l) == 1 if self.neighbours else k != l
        return k[kept], l[kept]

    def _distances(self, x: Array, y: Array) -> Array:
        if not isinstance(self.privacy, MetricDP):
            return np.ones(len(x))
        distance = np.asarray(self.privacy.distance(x, y), dtype=float)
        if distance.shape != x.shape or not np.isfinite(distance).all() or (distance < 0).any():
            allowed = "must be vectorised, finite and non-negative on the inputs"
            raise DesignError.of("metric", self.privacy.metric, allowed)
        return distance

    def exact_slack(self, knots: list[Fraction], rows: list[list[Fraction]]) -> Fraction:
        """Return the least slack of all pairs in exact arithmetic, with exponentials rounded down."""
        if not isinstance(self.privacy, MetricDP):
            # one ratio for all pairs: the extremes decide whether any excess is positive
            ratio, delta = _growth(Fraction(self.privacy.epsilon)), Fraction(self.delta)
            worst: Fraction = min(ratio * min(column) - max(column) for column in zip(*rows))
            if not delta or worst >= 0:
                return delta or worst
            raised = [[ratio * q for q in row] for row in rows]
            return delta - max(
                sum((p - q for p, q in zip(row, other) if p > q), Fraction(0))
                for row, other in product(rows, raised)
            )

        slacks = list[Fraction]()
        for k, l in zip(*(v.tolist() for v in self.pairs(len(knots)))):
            power = Fraction(self.privacy.epsilon) * self._exact_distance(knots[k], knots[l])
            ratio = 1 + power if self.continuum else _growth(power)
            slacks += (ratio * q - p for p, q in zip(rows[k], rows[l]))
        return min(slacks)

    def _exact_distance(self, x: Fraction, y: Fraction) -> Fraction:
        assert isinstance(self.privacy, MetricDP)
        if self.privacy.metric == "absolute":
            return abs(x - y)
        if self.privacy.metric == "squared":
            return (x - y) ** 2
        return Fraction(float(self.privacy.distance(float(x), float(y))))

    def needed(self, knots: Array, rows: Array) -> float:
        """Return the smallest ε at which the rows satisfy a notion without δ, rounded up."""
        k, l = self.pairs(len(knots))
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.log(np.where(rows[k] > 0, rows[k] / rows[l], 1.0)).max(axis=1)
            per_unit = loss / self._distances(knots[k], knots[l])
        return float(np.max(np.where(loss > 0, per_unit, 0.0)) * (1 + 1e-13))

    def smallest_epsilon(self, knots: Array, first: float, last: float) -> float:
        """Return the smallest ε at which some unbiased mechanism with outputs in [first, last] exists; ∞ if none does.

        Splitting every output between the two extreme ones, with means preserved, is post-processing; so the mechanism
        with those two outputs decides, and its probabilities are affine in the input.
        """
        lower, upper = float(knots[0]), float(knots[-1])
        if self.delta:  # the ends are furthest apart
            ends = np.array([[last - x, x - first] for x in (lower, upper)]) / (last - first)
            with np.errstate(divide="ignore", invalid="ignore"):
                loss = np.log(np.maximum(ends.max(axis=0) - self.delta, 0.0) / ends.min(axis=0))
            return max(0.0, float(np.nanmax(loss, initial=0.0))) * (1 + 1e-13)
        if first >= lower or last <= upper:
            return math.inf
        if self.continuum:
            return max(1 / (last - upper), 1 / (lower - first))
        return self.needed(knots, np.stack([last - knots, knots - first], axis=1) / (last - first))


@lru_cache(maxsize=4096)
def _growth(power: Fraction) -> Fraction:
    """Return a rational below e^power; for powers beyond 700 one below e^700."""
    return exp_lower(power if power < 700 else Fraction(700))
