r"""The lower bound of a grid in closed form, from the multipliers of sums and means alone: no program, whatever the size.

With multipliers :math:`u_k, v_k` of :math:`\sum_i P_{k,i} = 1` and :math:`\sum_i B_i P_{k,i} = x_k`, and costs c, every
mechanism loses at least

.. math:: \sum_k (u_k + v_k x_k) + \sum_i \min_{p} \sum_k g_{k,i}\, p_k , \qquad g_{k,i} = c_{k,i} - u_k - v_k B_i ,

the least over columns p in [0, 1] that privacy allows. They form a cone, so that it is 0 where a linear form of them is not
negative, and that is decided by signs:

- one ratio for all pairs, :math:`a \le p_k \le \rho a`: :math:`h = \sum_k g_k^+ - \rho\, g_k^-`;
- ratios :math:`f_k` of neighbours: the least sum up to k is :math:`V_k p_k`, and :math:`V_{k+1} = g_{k+1} + V_k / f_k`, or
  :math:`V_k f_k` where that is negative;
- (ε, δ): of the multipliers :math:`\mu_{kl} = g_k^- g_l^+ / \sum g^+` that prove :math:`h \ge 0`, the largest of all outputs
  costs δ (`known`).

The worst case has multipliers :math:`w_x` of some inputs x, in [0, 1] together, whose losses weighted by them are the costs; of
inputs between knots the loss is the interpolated row's. Every sum is rounded outward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import optimize

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import MetricDP
from mechdesign.quantizers.metric.notion import PairwisePrivacy
from mechdesign.quantizers.metric.program import about_zero, hats
from mechdesign.quantizers.optimal.model import hat_costs
from mechdesign.typing import Array

__all__ = ["Multipliers", "hat_masses"]

_ULP = 2.0**-53
_LARGEST = 700.0  # of exponents; beyond, a ratio is as good as none
_HIGHEST = 1e200  # shift that is tried
_NEAR = 3e-3  # relative error of the least shift that is left


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Multipliers of one question on a grid.

    Parameters
    ----------
    bins, knots : arrays, shapes (m,) and (n,)
    notion : PairwisePrivacy
        On a grid; one ratio for all pairs, or ratios of neighbours, or none (None).
    question : tuple
        Prior, loss, objective.
    places : array
        Inputs between knots whose loss the worst case is over too.
    values : array
        u, v and, for the worst case, minus w, of the knots first: the duals of the program's rows in their order.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.problem.privacy import PureDP
    >>> question = Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"), "mean"
    >>> notion, none = PairwisePrivacy(PureDP(1.2)), np.zeros(4)
    >>> zero = Multipliers(np.array([-2.0, 2.0]), np.array([-1.0, 1.0]), notion, question, none[:0], none)
    >>> abs(zero.bound) < 1e-300, round(zero.settled().bound, 1)
    (True, 1.8)
    """

    bins: Array
    knots: Array
    notion: PairwisePrivacy | None
    question: tuple[Prior, Loss, str]
    places: Array
    values: Array

    @staticmethod
    def apply(notion: PairwisePrivacy | None) -> bool:
        """Whether there is a closed form for a notion."""
        private = None if notion is None else notion.privacy
        return notion is None or not (notion.continuum or callable(getattr(private, "metric", None)))

    @staticmethod
    def count(knots: Array, places: Array, objective: str) -> int:
        """How many there are."""
        return 2 * len(knots) + (len(knots) + len(places)) * (objective == "worst")

    @cached_property
    def _centred(self) -> tuple[Array, Array, Prior]:
        return about_zero(self.bins, self.knots, self.question[0])

    @cached_property
    def _sums(self) -> tuple[Array, Array, Array]:
        n = len(self.knots)
        weights = np.maximum(-self.values[2 * n :], 0.0)
        return self.values[:n], self.values[n : 2 * n], weights

    @cached_property
    def _losses(self) -> Array:
        """Of every output at the knots and the places, shape (n + places, m)."""
        bins, knots, _ = self._centred
        places = self.places - (self.knots[0] / 2 + self.knots[-1] / 2)
        return np.asarray(self.question[1](bins - np.concatenate([knots, places])[:, None]), dtype=float)

    @cached_property
    def _costs(self) -> tuple[Array, float, Array]:
        """c, what is added to it, and the masses of the knots."""
        (bins, knots, prior), (_, loss, objective) = self._centred, self.question
        if objective != "worst":
            return *hat_costs(bins, knots, prior, loss), hat_masses(knots, prior)
        n, weights, losses = len(knots), self._sums[2], self._losses
        between = hats(self.knots, self.places)
        costs = weights[:n, None] * losses[:n] + between.T @ (weights[n:, None] * losses[n:])
        # the worst case itself is between the least and the largest of all costs
        rest = 1 - math.fsum(weights.tolist())
        return costs, min(rest * losses.min(), rest * losses.max()), weights[:n] + weights[n:] @ between

    @cached_property
    def _lost(self) -> Array | float:
        """What rounding may have taken from c, beyond a double's own."""
        if self.question[2] != "worst":
            return 0.0
        return 8 * (len(self.places) + 2) * _ULP * np.abs(self._losses).max() * self._costs[2][:, None]

    def _reduced(self, shift: float) -> tuple[Array, Array]:
        """Lower bounds of g, with u less by `shift` for a unit of mass; and what they may have lost."""
        u, v, _ = self._sums
        (bins, _, _), (costs, _, mass), lost = self._centred, self._costs, self._lost
        u = u - shift * mass
        products = v[:, None] * bins
        error = 4 * _ULP * (np.abs(costs) + np.abs(u)[:, None] + np.abs(products)) + lost
        return costs - u[:, None] - products - error, u

    def _least(self, g: Array) -> Array:
        """A lower bound of the least of the linear form g for every output, a multiple of its largest entry."""
        if self.notion is None:
            return np.full(g.shape[1], -np.inf)
        privacy = self.notion.privacy
        if isinstance(privacy, MetricDP):
            return self._chain(g)
        power = privacy.epsilon
        ratio = math.exp(power) * (1 + _ULP * 8) if power <= _LARGEST else np.inf
        with np.errstate(invalid="ignore", over="ignore"):
            parts = np.where(g < 0, g * ratio, g)
            return _down(parts.sum(axis=0) - (len(g) + 2) * _ULP * np.abs(parts).sum(axis=0))

    def _chain(self, g: Array) -> Array:
        assert self.notion is not None
        _, _, power = self.notion.powers(self.knots)
        power = power[: len(g) - 1]
        ratio = np.where(
            power > _LARGEST, np.inf, np.exp(np.minimum(power, _LARGEST)) * (1 + _ULP * (8 + 4 * power))
        )
        value = g[0]
        with np.errstate(over="ignore", invalid="ignore"):
            for row, f in zip(g[1:], ratio.tolist()):
                value = _down(row + _down(np.where(value < 0, value * f, value / f)))
        return value

    @property
    def slacks(self) -> Array:
        """The least sum of every output: where it is negative, the output would serve."""
        return self._least(self._reduced(0.0)[0])

    def _slack(self, shift: float) -> float:
        return float(self._least(self._reduced(shift)[0]).min())

    def settled(self) -> Multipliers:
        """With the u that prove most: raised or lowered by what makes the least sum 0, or as they are."""
        slack = self._slack(0.0) if self.notion is not None and self._costs[2].any() else 0.0
        if slack == 0 or not math.isfinite(slack):
            return self
        costs, _, mass = self._costs
        scale = float(np.abs(costs).max()) / max(float(mass.max()), 1e-300)
        near, far = 0.0, math.copysign(1e-3 * max(scale, 1e-300), -slack)
        while math.isfinite(after := self._slack(far)) and (after < 0) == (slack < 0) and abs(far) < _HIGHEST:
            near, far = far, 30 * far
        if not math.isfinite(after) or abs(far) >= _HIGHEST:
            return self
        # the slack is concave in the shift, and increases
        root = (
            optimize.toms748(self._slack, min(near, far), max(near, far), rtol=_NEAR, k=1) if after else far
        )
        values = self.values.copy()
        values[: len(self.knots)] -= min(max(near, far), root + 2 * _NEAR * abs(root)) * self._costs[2]
        return max((self, replace(self, values=values)), key=lambda found: found.bound)

    @cached_property
    def bound(self) -> float:
        """The lower bound, rounded down; −∞ where these are no multipliers of the question."""
        if not np.isfinite(self.values).all():
            return -math.inf
        (_, knots, _), (_, constant, _), v = self._centred, self._costs, self._sums[1]
        g, u = self._reduced(0.0)
        private, alone = self._least(g), np.minimum(g, 0.0).sum(axis=0) * (1 + len(g) * _ULP)
        least = np.maximum(np.minimum(private, 0.0), alone)
        products = [*u.tolist(), *(v * knots).tolist(), *least.tolist(), constant]
        largest = float(np.abs(self._losses).max()) if self.question[2] == "worst" else 0.0
        margin = (
            4 * _ULP * math.fsum(map(abs, [*products, largest])) + self._spent(g[:, least > alone]) + 5e-324
        )
        return math.nextafter(math.fsum(products) - 1.01 * margin, -math.inf)

    def _spent(self, g: Array) -> float:
        """What δ takes off, rounded up, for outputs whose least sum privacy raises."""
        if self.notion is None or not self.notion.delta:
            return 0.0
        below, above = np.maximum(-g, 0.0), np.maximum(g, 0.0)
        used = below.any(axis=0)
        below, above = below[:, used], above[:, used]
        shares = above / above.sum(axis=0)
        rows = np.flatnonzero(below.any(axis=1))
        return (
            self.notion.delta
            * math.fsum(float((below[k] * shares).max(axis=1).sum()) for k in rows.tolist())
            * (1 + 4 * len(g) * _ULP)
        )


def _down(values: Array) -> Array:
    return np.nextafter(values, -np.inf)


def hat_masses(knots: Array, prior: Prior) -> Array:
    """The mass of every knot: the prior's, shared by the two knots around each input."""
    return hat_costs(np.array([-1.0, 1.0]), knots, prior, Loss.of("squared"))[0].mean(axis=1)
