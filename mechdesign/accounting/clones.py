r"""The clone reduction of shuffling, as numbers: the divergence h(u) and the pieces of its k-step bound.

The mathematics is in `mechdesign.accounting.shuffling`; here is what it computes with. Every value rounds up.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from mechdesign.accounting.arguments import excess
from mechdesign.evidence.rounding import safe_root
from mechdesign.typing import Array

__all__ = [
    "Clones",
    "Failure",
    "geometric",
    "lower_level",
    "smallest_level",
    "step_epsilon",
    "step_weight",
    "weight_slope",
]

ROUNDING = 1e-10  # relative error allowed for SciPy's binomial functions (they reach about 1e-13)
NEGLIGIBLE = 1e-150  # tail of C counted as no clone at all; group privacy may multiply it by e^{kε}
CELLS = 1024  # blocks of the clone count C; more would not change six digits
_RARE, _ABOVE = 1e-30, 1e-12  # probability of fewer, and of more clones than are looked at one by one
_SHARE = 1e-10  # of a divergence, that may come from fewer clones without a look at them


@dataclass(frozen=True)
class Clones:
    """Binned law of the clone count: `counts` (lowest of each block) and `weights` (summing to at least 1)."""

    counts: Array
    weights: Array

    @classmethod
    def build(cls, total: int, item_epsilon: float) -> Clones:
        """The clone count among `total` items whose channel loses at most `item_epsilon`."""
        others, share = total - 1, math.exp(-item_epsilon)
        if others == 0 or share == 0.0:
            return cls(np.zeros(1), np.ones(1))
        law = stats.binom(others, min(share, 1.0))
        # Where the tails become negligible; SciPy's isf goes through 1 − q, which is 1 for such q.
        low = _first(lambda c: float(law.cdf(c)) > NEGLIGIBLE, others)
        high = _first(lambda c: float(law.sf(c)) <= NEGLIGIBLE, others)
        edges = np.unique(np.linspace(low, high + 1, min(CELLS, high + 1 - low) + 1).astype(np.int64))
        starts, ends = edges[:-1], edges[1:] - 1
        lower, upper = law.cdf(ends), law.sf(starts - 1)
        # A difference of tails, taken on the side where they are small, plus what their rounding may hide.
        near_top = lower > upper
        mass = np.where(near_top, upper - law.sf(ends), lower - law.cdf(starts - 1))
        mass = np.maximum(mass, 0.0) + ROUNDING * np.minimum(lower, upper)
        below, above = float(law.cdf(low - 1)), float(law.sf(high))
        counts = np.concatenate([[0], starts, [high + 1]]).astype(float)
        weights = np.concatenate([[below], mass, [above]]) * (1 + ROUNDING)
        weights[0] += max(0.0, 1.0 - float(weights.sum()))  # whatever is missing counts as no clone at all
        return cls(counts, weights)

    @cached_property
    def _inner(self) -> tuple[int, Array, Array, float]:
        """The blocks that nearly always decide: their first, counts and weights, and the weight of those below.

        More clones hide more, so what lies above goes with the last of them.
        """
        below = np.cumsum(self.weights)
        first = int(np.searchsorted(below, _RARE))
        above = np.cumsum(self.weights[::-1])[::-1]
        last = max(int(np.searchsorted(-above, -_ABOVE)) - 1, first)
        weights = self.weights[first : last + 1].copy()
        weights[-1] = above[last] * (1 + ROUNDING)
        return first, self.counts[first : last + 1], weights, float(below[first - 1]) if first else 0.0

    def divergence(self, u: float) -> float:
        """An upper bound on h(u) = Σ [X − uY]₊, in [0, 1]."""
        first, counts, weights, below = self._inner
        value = float(weights @ self._values(counts, u))
        if below > _SHARE * value:  # then the few clones that are rare count
            value, below = value + float(self.weights[:first] @ self._values(self.counts[:first], u)), 0.0
        return min(1.0, value + below + 1e-290)

    @staticmethod
    def _values(c: Array, u: float) -> Array:
        """The divergence of each count of clones."""
        # ⌊u(c+1)/(1+u)⌋ + 1, written so that a huge u cannot round it past c + 1, where X/Y is infinite.
        threshold = c + 2 - np.ceil((c + 1) / (1 + u))
        edge = stats.binom.pmf(threshold - 1, c, 0.5)
        tail = (u - 1) * stats.binom.sf(threshold - 1, c, 0.5)
        value: Array = np.clip(edge - tail + ROUNDING * (edge + tail), 0.0, 1.0)
        return value


def _first(holds: Callable[[int], bool], most: int) -> int:
    """The first count in 0..most from which `holds` (monotone) is true."""
    low, high = -1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def step_epsilon(s: float, y: float) -> float:
    """f_u(t) for u = e^s, y = α₀t: the ε of one step."""
    # log1p form of log((ua + 1)/(u + a)): no cancellation for small s or y.
    return (
        math.log1p(math.expm1(s) * math.expm1(y) / (math.exp(s) + math.exp(y)))
        if s < 300 and y < 300
        else min(s, y)
    )


def step_weight(s: float, y: float) -> float:
    """w(t) = (a − 1)/(a + u), growing in y."""
    return 1 - math.exp(-y) if y > 300 else math.expm1(y) / (math.exp(y) + math.exp(s))


def weight_slope(s: float, y: float) -> float:
    """An upper bound on w/y over (0, y]: w is convex while e^y ≤ u, and its slope never exceeds (1 + u)/(4u)."""
    return step_weight(s, y) / y if 1e-300 < y <= s else (1 + math.exp(-s)) / 4


def geometric(epsilon: float, k: int) -> float:
    """Σ_{j<k} e^{jε}."""
    if k * epsilon > 700:
        return math.inf
    return float(k) if epsilon <= 0 else math.expm1(k * epsilon) / math.expm1(epsilon)


@dataclass(frozen=True)
class Failure:
    """δ of equation (2) as a function of s = log u, for k positions moved by kt in all; diameter 1, α₀ = `unit`."""

    unit: float
    t: float
    k: int
    clones: Clones

    def __call__(self, s: float) -> float:
        return self.divergence(s) * self.factor(s)

    def divergence(self, s: float) -> float:
        """h(e^s), which falls in s."""
        return self.clones.divergence(math.exp(s))

    def factor(self, s: float) -> float:
        """What the steps make of it."""
        epsilon, most = step_epsilon(s, self.unit * self.t), self.unit * min(self.k * self.t, 1.0)
        by_order = step_weight(s, most) * geometric(epsilon, self.k)
        by_mass = math.exp(min(self.k * epsilon, 700.0)) * weight_slope(s, most) * self.unit * self.k * self.t
        return min(by_order, by_mass)


def smallest_level(failure: Failure, delta: float) -> float | None:
    """The least level s in [1e-7, 50] found with failure(s) ≤ δ (evaluated there); None when there is none."""
    levels = [float(s) for s in np.geomspace(1e-7, 50.0, 32)]
    # a divergence that no level's factor allows is that of a level too low, and so are all before it
    most = max(delta / max(failure.factor(s), 1e-300) for s in levels)
    start = bisect.bisect_left(levels, True, key=lambda s: failure.divergence(s) <= most)
    first = next((i for i in range(start, len(levels)) if failure(levels[i]) <= delta), None)
    if first is None or first == 0:
        return None if first is None else levels[0]
    low, high = levels[first - 1], levels[first]
    return safe_root(lambda s: excess(failure(s), delta), low, high, xtol=1e-12 * high, rtol=1e-12)


def lower_level(failure: Failure, delta: float, level: float) -> float:
    """A level below `level`, which fits, that fits too: to 10⁻⁴ of the least one where the failure is monotone."""
    seen: dict[float, float] = {level: -1.0}

    def over(s: float) -> float:
        if s not in seen:
            seen[s] = excess(failure(s), delta)
        return seen[s]

    low, high, step = 0.98 * level, level, 0.96
    while low > 1e-7 and over(low) <= 0:
        low, high, step = step * low, low, step**2
    if over(low) <= 0:
        return low
    seen[high] = min(seen[high], excess(failure(high), delta))
    return safe_root(over, low, high, xtol=5e-5 * high, rtol=1e-4)
