r"""A type for each coordinate: Laplace noise where one coordinate's loss matters alone, Gaussian where many add up.

Gaussian noise costs half of what Laplace noise does where losses are small and many; Laplace noise has no tail of losses, and
is better where few coordinates carry them. So coordinates are sorted by :math:`\lambda_i/\sigma_i` of the Gaussian allocation,
and the first j get Laplace noise. For each j tried the Gaussian coordinates share :math:`\mu^2` as in P3, the Laplace ones have the
ratios of P4, and one number, how much the Gaussian ones take, is searched; the other follows from δ of the exact composition. Laplace
noise on all coordinates keeps Corollary 6.
Of all, and of both pure types, the cheapest is returned: a search, with no lower bound. On the deployed grid
(results/ablations) one of six designs costs 65% more with the better pure type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from scipy import optimize, stats

from mechdesign.accounting.interval import upper_delta
from mechdesign.accounting.least_kept import least_kept
from mechdesign.accounting.losses import NoiseTerm
from mechdesign.evidence.exact import excess
from mechdesign.noise.calibration_evaluation import budget_of
from mechdesign.noise.vector_noise import MixedNoise
from mechdesign.problem.law_moments import absolute_moment
from mechdesign.problem.privacy import Pointwise, pairs_of
from mechdesign.solvers import Deadline
from mechdesign.typing import Array, Flags, Indices

_LEVELS = 8
"""Different Laplace ratios, at most: each is composed on its own. With 4 one of six designs costs 1.1% more (results/ablations)."""
_WIDTH = 0.03
"""Width of the intervals that the search goes by."""
_FAR = 1e200
"""Stands for no mix at all."""
_SPREAD = 16.0
"""Laplace ratios within a mix are at most this factor apart. Else 200 coordinates take at least 14 times as long (results/ablations)."""
REACH = 0.02
"""Logarithm of the factor that a mix is scaled by until it is proved private, at most, either way."""

Mix: TypeAlias = tuple[float, Array, Flags]
"""Cost, scales, and which of them are of Laplace noise."""


@dataclass(frozen=True, eq=False)
class MixedProblem:
    """Coordinates that need noise, and what an error costs.

    Parameters
    ----------
    sensitivities : ndarray, shape (K,)
        Positive.
    weights : ndarray, shape (K,)
    order : float
    privacy : ApproximateDP, MembershipAdvantage or TradeOff
    mu : float
        Of a Gaussian that consumes all of it.
    normal, peaked : ndarray, shape (K,)
        Scales of Gaussian (P3) and of Laplace noise (P4) on all coordinates.
    """

    sensitivities: Array
    weights: Array
    order: float
    privacy: Pointwise
    mu: float
    normal: Array
    peaked: Array

    @cached_property
    def ratios(self) -> Array:
        """λ/β of Laplace noise, up to a factor."""
        return self.sensitivities / self.peaked

    def levels(self, laplace: Flags) -> Array:
        """Ratios of these coordinates over the largest; many are put on a few levels."""
        found = self.ratios[laplace] / self.ratios[laplace].max()
        if len(np.unique(found)) > _LEVELS:
            step = -math.log(float(found.min())) / (_LEVELS - 1)
            found = np.exp(-step * np.rint(-np.log(found) / step))
        return np.asarray(found)

    @property
    def most(self) -> int:
        """How many coordinates may get Laplace noise: the ratios of others are too small to matter alone."""
        return int((self.ratios > self.ratios.max() / _SPREAD).sum())

    @cached_property
    def order_of_laplace(self) -> Indices:
        """Coordinates by λ/σ of the Gaussian allocation, largest first."""
        return np.argsort(-self.sensitivities / self.normal, kind="stable")

    def cost(self, scales: Array, laplace: Flags) -> float:
        r"""Σ w E|T|^p."""
        unit = np.where(
            laplace, absolute_moment("laplace", self.order), absolute_moment("gaussian", self.order)
        )
        return float((self.weights * unit * scales**self.order).sum())

    def scales(self, laplace: Flags, mu: float, ratio: float) -> Array:
        """Scales at which the Gaussian coordinates take μ and the largest Laplace ratio is `ratio`."""
        lam, out = self.sensitivities, np.empty(len(self.sensitivities))
        if laplace.any():
            out[laplace] = lam[laplace] / (self.levels(laplace) * ratio)
        rest = ~laplace
        if rest.any():
            unit = self.normal[rest]
            out[rest] = unit * (math.sqrt(float(((lam[rest] / unit) ** 2).sum())) / mu)
        return out

    def best_of(self, count: int, deadline: Deadline) -> Mix | None:
        """The cheapest mix found where `count` coordinates get Laplace noise."""
        laplace = np.zeros(len(self.sensitivities), dtype=bool)
        laplace[self.order_of_laplace[:count]] = True
        if laplace.all():
            return self.cost(self.peaked, laplace), self.peaked, laplace
        sizes, counts = np.unique(self.levels(laplace), return_counts=True)
        found: list[Mix] = []

        def cost(share: float) -> float:
            if deadline.passed or not (ratio := self._ratio(self.mu * share, sizes, counts)):
                return _FAR
            scales = self.scales(laplace, self.mu * share, ratio)
            found.append((self.cost(scales, laplace), scales, laplace))
            return min(found[-1][0], _FAR)

        options = {"xatol": 1e-2, "maxiter": 14}
        optimize.minimize_scalar(cost, bounds=(0.02, 0.9999), method="bounded", options=options)
        return min(found, key=lambda mix: mix[0], default=None)

    def _ratio(self, mu: float, sizes: Array, counts: Indices) -> float:
        """The largest Laplace ratio next to a Gaussian of μ; 0 where δ leaves no room."""
        points = pairs_of(self.privacy)
        reach = max(epsilon for epsilon, _ in points) + 5.0

        def excess(log_ratio: float) -> float:
            ratio = math.exp(log_ratio)
            terms = [NoiseTerm(stats.norm(), mu, 1)]
            terms += [NoiseTerm(stats.laplace(), float(ratio * v), int(c)) for v, c in zip(sizes, counts)]
            used = (upper_delta(tuple(terms), epsilon, width=_WIDTH) / delta for epsilon, delta in points)
            return math.log(max(*used, 1e-300))

        high = math.log(reach)
        low = math.log(min(epsilon or delta for epsilon, delta in points) / 4 / float(counts.sum()))
        for _ in range(3):
            if excess(low) <= 0:
                inside = excess(high) <= 0
                return reach if inside else math.exp(float(optimize.brentq(excess, low, high, xtol=3e-4)))
            low, high = low - 3, low
        return 0.0


def mixed_scales(problem: MixedProblem, deadline: Deadline) -> list[Mix]:
    """Candidates, cheapest first: numbers of Laplace coordinates by doubling, then between the neighbours of the best."""
    found: dict[int, Mix | None] = {}

    def cost(count: int) -> float:
        if count not in found:
            found[count] = problem.best_of(count, deadline)
        mix = found[count]
        return math.inf if mix is None else mix[0]

    best = math.inf
    for k in range(problem.most.bit_length()):
        best = min(best, value := cost(2**k))
        if value > 1.05 * best:
            break  # what is left is worse
    cost(problem.most)
    for _ in range(6):
        known = sorted(found)
        at = known.index(min(known, key=cost))
        around = known[max(at - 1, 0) : at + 2]
        middle = {(a + b) // 2 for a, b in pairwise(around)} - set(found)
        if not middle:
            break
        for count in sorted(middle):
            cost(count)
    return sorted(filter(None, found.values()), key=lambda mix: mix[0])


def within_budget(
    scales: Array, laplace: Flags, sensitivities: Array, privacy: Pointwise, deadline: Deadline
) -> MixedNoise | None:
    """The law scaled by the least common factor at which the composition is proved to keep δ; None beyond `REACH`, Laplace noise alone as it is.

    At the deadline it is the least factor at which it was.
    """

    def law(log_factor: float) -> MixedNoise:
        return MixedNoise(scales * math.exp(log_factor), laplace, sensitivities)

    def over(log_factor: float) -> float:
        return excess(law(log_factor).composed(privacy)[0], budget_of(privacy))

    # a pure type that keeps the budget as it is comes back as it is
    if laplace[sensitivities > 0].all():  # by Corollary 6
        return next((law(factor) for factor in (1e-12, REACH) if over(factor) <= 0), None)
    factor = least_kept(
        over, 1e-12, step=REACH, least=-REACH, most=REACH, xtol=2e-7, rtol=1e-9, deadline=deadline
    )
    return law(factor) if factor < math.inf else None
