r"""Which rows of a quantizer are compared, and by how much they may differ: metric and approximate privacy at knots.

On the continuum, for rows interpolated linearly between knots, :math:`p(x, i) \le e^{\varepsilon |x - x'|} p(x', i)` for all
inputs is *equivalent* to neighbouring rows k, l with

.. math:: P_{k,i} \le (1 + \varepsilon |x_k - x_l|)\, P_{l,i} ,

as an affine function is steepest, relative to itself, where it is smallest. On a fixed grid of inputs all pairs are
compared at :math:`e^{\varepsilon d(x_k, x_l)}`; for :math:`d = |x - x'|` chains of neighbours imply the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP
from mechdesign.typing import Array, Indices

__all__ = ["PairwisePrivacy"]


@serializable("pairwise-privacy")
@dataclass(frozen=True)
class PairwisePrivacy:
    """A privacy notion between the rows at knots.

    Parameters
    ----------
    privacy : MetricDP, ApproximateDP or PureDP
    continuum : bool
        Whether the rows are interpolated and privacy is asked for between all inputs, not only the knots.

    Examples
    --------
    >>> first, second, ratio = PairwisePrivacy(MetricDP(2.0), continuum=True).ratios(np.array([0.0, 0.5, 1.5]))
    >>> first, second, ratio
    (array([0, 1, 1, 2]), array([1, 2, 0, 1]), array([2., 3., 2., 3.]))
    """

    privacy: MetricDP | ApproximateDP | PureDP
    continuum: bool = False

    @property
    def delta(self) -> float:
        """What the excesses of a pair may sum to; 0 but for approximate privacy."""
        return float(getattr(self.privacy, "delta", 0.0))

    @property
    def neighbours(self) -> bool:
        """Whether comparing neighbouring knots is enough."""
        return isinstance(self.privacy, MetricDP) and self.privacy.metric == "absolute"

    def pairs(self, count: int) -> tuple[Indices, Indices]:
        """The pairs (k, l) of `count` knots whose rows are compared: P_k at most a multiple of P_l."""
        if self.neighbours:
            k = np.arange(count - 1)
            return np.append(k, k + 1), np.append(k + 1, k)
        k, l = (v.ravel() for v in np.indices((count, count)))
        return k[k != l], l[k != l]

    def ratios(self, knots: Array, shrink: float = 0.0) -> tuple[Indices, Indices, Array]:
        """The pairs (k, l) and the largest allowed P_k / P_l, for ε smaller by `shrink` relative."""
        k, l = self.pairs(len(knots))
        power = self.privacy.epsilon * (1 - shrink) * self._distances(knots[k], knots[l])
        return k, l, 1.0 + power if self.continuum else np.exp(power)

    def _distances(self, x: Array, y: Array) -> Array:
        if not isinstance(self.privacy, MetricDP):
            return np.ones(len(x))
        distance = np.asarray(self.privacy.distance(x, y), dtype=float)
        if distance.shape != x.shape or not np.isfinite(distance).all() or (distance < 0).any():
            allowed = "must be vectorised, finite and non-negative on the inputs"
            raise DesignError.of("metric", self.privacy.metric, allowed)
        return distance

    def slack(self, knots: Array, rows: Array) -> Array:
        """Slack of every pair: least of ratio · P_l − P_k over outputs, or δ − Σ(P_k − e^ε P_l)⁺."""
        k, l, ratio = self.ratios(knots)
        out = np.empty(len(k))
        for start in range(0, len(k), 4096):
            part = slice(start, start + 4096)
            excess = rows[k[part]] - ratio[part, None] * rows[l[part]]
            out[part] = (
                self.delta - np.maximum(excess, 0.0).sum(axis=1) if self.delta else -excess.max(axis=1)
            )
        return out

    def exact_slack(self, knots: list[Fraction], rows: list[list[Fraction]]) -> Fraction:
        """The least slack of all pairs in exact arithmetic, exponentials rounded down."""
        delta, exp = Fraction(self.delta), cache(exp_lower)
        if (
            not isinstance(self.privacy, MetricDP) and not delta
        ):  # one ratio for all pairs: the extremes decide
            ratio = exp(Fraction(self.privacy.epsilon))
            return min(ratio * min(column) - max(column) for column in zip(*rows))

        def slack(k: int, l: int) -> Fraction:
            power = Fraction(self.privacy.epsilon) * self._exact_distance(knots[k], knots[l])
            ratio = 1 + power if self.continuum else exp(power)
            excess = [p - ratio * q for p, q in zip(rows[k], rows[l])]
            return delta - sum(max(e, Fraction(0)) for e in excess) if delta else -max(excess)

        return min(slack(k, l) for k, l in zip(*(v.tolist() for v in self.pairs(len(knots)))))

    def _exact_distance(self, x: Fraction, y: Fraction) -> Fraction:
        if not isinstance(self.privacy, MetricDP):
            return Fraction(1)
        if self.privacy.metric == "absolute":
            return abs(x - y)
        if self.privacy.metric == "squared":
            return (x - y) ** 2
        return Fraction(float(self.privacy.distance(float(x), float(y))))

    def needed(self, knots: Array, rows: Array) -> float:
        """Smallest ε at which the rows satisfy a notion without δ, rounded up."""
        k, l = self.pairs(len(knots))
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.log(np.where(rows[k] > 0, rows[k] / rows[l], 1.0)).max(axis=1)
            per_unit = loss / self._distances(knots[k], knots[l])
        return float(np.max(np.where(loss > 0, per_unit, 0.0)) * (1 + 1e-13))

    def raised(self, knots: Array, rows: Array, shrink: float) -> Array:
        """The smallest majorant of the rows that respects the ratios (without δ); sums and means are not kept."""
        k, l, ratio = self.ratios(knots, shrink)
        P = np.array(rows, dtype=float)
        if not self.neighbours:
            np.maximum.at(P, l, rows[k] / ratio[:, None])
            return P
        # Neighbours need a sweep each way.
        for r in range(1, len(P)):
            P[r] = np.maximum(P[r], P[r - 1] / ratio[r - 1])
        for r in range(len(P) - 2, -1, -1):
            P[r] = np.maximum(P[r], P[r + 1] / ratio[r])
        return P

    def smallest_epsilon(self, knots: Array, first: float, last: float) -> float | None:
        """Smallest ε at which some unbiased mechanism with outputs in [first, last] exists; None with δ.

        Splitting every output between the two extreme ones, keeping means, is post-processing; so the mechanism
        with those two outputs decides, and its probabilities are affine in the input.
        """
        lower, upper = float(knots[0]), float(knots[-1])
        if first >= lower or last <= upper:
            return math.inf
        if self.continuum:
            return max(1 / (last - upper), 1 / (lower - first))
        if self.delta:
            return None
        return self.needed(knots, np.stack([last - knots, knots - first], axis=1) / (last - first))
