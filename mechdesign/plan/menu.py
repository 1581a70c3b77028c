r"""Which noise a part may get, and what it consumes: one law on all its numbers, of a scale to be chosen.

What an item consumes at scale s is stated as Rényi divergences :math:`D_\alpha(s)` of order α, which add up over the parts and rounds of a plan:
α = ∞ is the largest privacy loss; of normal noise, for which alone ρ is counted, D is αρ.
At a price λ of the budget a part takes the item and the scale of least error plus λD. Whole numbers take whole noise, whose losses are atoms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import optimize

from mechdesign.accounting.losses import NoiseTerm
from mechdesign.errors import DesignError
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.families import FAMILIES as LAWS
from mechdesign.noise.families import LEAST_GAUSSIAN, LEAST_LAPLACE
from mechdesign.noise.laws import staircase_gamma
from mechdesign.noise.worst_case import worst_cases
from mechdesign.plan.tasks import Part
from mechdesign.problem.law_moments import frozen_parts
from mechdesign.typing import FrozenLaw

FAMILIES = ("laplace", "gaussian", "staircase")
_MOST = 1e150
"""A scale whose square is a double."""


def _stair_variance(s: float, top: float) -> float:
    b = math.exp(-top / s)
    near = top / -math.expm1(-top / s)  # s, of steps much larger than the shift
    return float(near * near * ((b * (1 + b) / 2) ** (2 / 3) + b))


def _discrete_laplace_variance(s: float, top: float) -> float:
    near = 1 / math.sinh(0.5 / s)
    return 0.5 * near * near


def _whole_variance(s: float, top: float) -> float:
    if s > 3:
        return s * s
    k = np.arange(1, 60)
    weights = np.exp(-((k / s) ** 2) / 2)
    return float(2 * (k * k) @ weights / (1 + 2 * weights.sum()))


_VARIANCES: dict[str, Callable[[float, float], float]] = {
    "laplace": lambda s, top: 2 * s * s,
    "gaussian": lambda s, top: s * s,
    "staircase": _stair_variance,
    "discrete_laplace": _discrete_laplace_variance,
    "discrete_gaussian": _whole_variance,
}
"""By scale, for shifts of at most `top`."""


def _divergence(r: float, order: float) -> float:
    """D of Laplace noise moved by r scales; about that of a staircase and of whole noise, too."""
    theta = order - 1
    if order * r < 1e-5:
        return order * r * r / 2
    rest = theta * math.exp(-(2 * theta + 1) * r)
    return r + math.log((theta + 1 + rest) / (2 * theta + 1)) / theta


@dataclass(frozen=True, eq=False)
class Item:
    """One family of noise on one part.

    Parameters
    ----------
    part : Part
    family : str
        One of `FAMILIES`; of whole numbers it is the discrete law.
    weight : float
        Of the task's squared error.
    rounds : int
    """

    part: Part
    family: str
    weight: float
    rounds: int

    @staticmethod
    def of(part: Part, families: tuple[str, ...], weight: float, rounds: int) -> list[Item]:
        """The items of a part."""
        found = [Item(part, name, weight, rounds) for name in families]
        return [item for item in found if item.name in _VARIANCES]

    @property
    def name(self) -> str:
        """Of the laws, in `mechdesign.noise.families`."""
        return f"discrete_{self.family}" if self.part.whole else self.family

    @property
    def normal(self) -> bool:
        return self.family == "gaussian"

    @cached_property
    def shifts(self) -> tuple[tuple[float, int], ...]:
        """The worst change: sizes, and how many numbers move so far in all rounds."""
        return tuple((t.sensitivity, t.count * self.rounds) for t in self._alternatives[0])

    @cached_property
    def attained(self) -> tuple[tuple[float, int], ...]:
        """A change that is made, of the largest norm: sizes, and how many numbers move so far in one round."""
        allowed, k = self.part.sensitivity, self.part.dimension
        changes = [*allowed.attained(k), ((allowed.largest_linf(k), 1),)]
        if self.part.whole:
            changes = [tuple((math.floor(v), n) for v, n in change if v >= 1) for change in changes]
        if self.family == "staircase":  # is known where it moves by its step
            changes = [tuple((v, n) for v, n in change if v == self.top) for change in changes]
        return max(changes, key=lambda shifts: sum(n * v ** (2 if self.normal else 1) for v, n in shifts))

    @property
    def unit(self) -> float:
        """What scales are relative to where tasks are alike."""
        return 1.0 if self.part.whole else self.top

    @cached_property
    def figures(self) -> tuple[tuple[object, ...], list[float]]:
        """What items share that lose alike at the same error, but for units: exactly, and but for rounding."""
        part, u = self.part, self.unit
        moved = *self.shifts, *self.attained
        costs = [self.weight * part.worth * part.dimension * u * u, self.weight * part.bias]
        sizes = [self._total / u, self._square / (u * u), *(v / u for v, _ in moved)]
        return (self.name, self.rounds, len(self.shifts), *(n for _, n in moved)), [*costs, *sizes]

    @cached_property
    def _alternatives(self) -> tuple[tuple[NoiseTerm, ...], ...]:
        # at a scale at which no shift is beyond the law's step
        top = self.part.sensitivity.largest_linf(self.part.dimension)
        return worst_cases(self._law(top, top), self.part.sensitivity, self.part.dimension).alternatives

    @cached_property
    def _total(self) -> float:
        """The least sum of shifts of a change that is as bad as all: what the largest loss goes by."""
        return self.rounds * min(sum(t.sensitivity * t.count for t in case) for case in self._alternatives)

    @cached_property
    def _square(self) -> float:
        return self.rounds * self.part.sensitivity.largest_l2(self.part.dimension) ** 2

    @property
    def moved(self) -> float:
        """The largest Euclidean norm of a change in all rounds."""
        return math.sqrt(self._square)

    @property
    def top(self) -> float:
        """The largest shift of a number."""
        return self.shifts[0][0]

    def cost(self, scale: float) -> float:
        """Weighted squared error of all numbers."""
        part = self.part
        noise = part.worth * part.dimension * _VARIANCES[self.name](scale, self.top)
        return self.weight * (noise + part.bias)

    def continuous(self, scale: float) -> float:
        """Standard deviation of the best noise that is not whole, of this scale."""
        families = ("gaussian",) if self.normal else ("laplace", "staircase")
        return math.sqrt(min(_VARIANCES[name](scale, self.top) for name in families))

    def consumed(self, scale: float, order: float) -> float:
        """D of this order, of all numbers and rounds."""
        if order == math.inf:
            return math.inf if self.normal else self._total / scale
        if self.normal:
            return order * self._square / scale**2 / 2
        return sum(count * _divergence(v / scale, order) for v, count in self.shifts)

    @property
    def least(self) -> float:
        """The smallest scale whose variance is a double."""
        least = {
            "staircase": self.top / 600,
            "discrete_laplace": LEAST_LAPLACE,
            "discrete_gaussian": LEAST_GAUSSIAN,
        }
        return least.get(self.name, 1e-100 * self.top)

    def best(self, price: float, order: float) -> float:
        """The scale of least cost plus `price` times D: in closed form where both are powers of it, else by Brent's method."""
        unit, price = self.weight * self.part.worth * self.part.dimension, float(price)
        plain, least = not self.part.whole, self.least
        # roots of factors, whose product may be no double
        cubic: float = (price * self._total) ** (1 / 3) / (4 * unit) ** (1 / 3)
        fourth = (price * order * self._square) ** 0.25 / (2 * unit) ** 0.25 if order < math.inf else math.inf
        powers = plain and (self.normal or (order == math.inf and self.family == "laplace"))

        def paid(log_scale: float) -> float:
            scale, below = max(math.exp(min(log_scale, 300.0)), least), max(math.log(least) - log_scale, 0.0)
            return (self.cost(scale) + price * self.consumed(scale, order)) * (1 + below)

        near = max(fourth if plain and self.normal else min(cubic, fourth), least)
        if powers:
            return min(near, _MOST)
        if not 0 < near < math.inf:
            size, other = ("large", "larger") if near > 0 else ("small", "smaller")
            remedy = f"choose other units or weights, or a {other} budget"
            raise DesignError(f"privacy, weights: ask for noise that is too {size} for doubles: {remedy}")
        start = math.log(near)
        found = optimize.minimize_scalar(paid, bracket=(start, start + 0.1), tol=1e-9)
        return max(math.exp(float(found.x)), least)

    def scale_of(self, variance: float) -> float | None:
        """The scale of this variance; None where it is less than doubles hold."""
        near = math.sqrt(variance / (2 if self.family == "laplace" else 1))
        if not self.part.whole and self.family != "staircase":
            return near

        def over(log_scale: float) -> float:
            return _VARIANCES[self.name](math.exp(log_scale), self.top) / variance - 1

        low = math.log(self.least)
        if over(low) > 0:
            return None
        high = max(low, math.log(near)) + 0.1
        while over(high) < 0:
            high += 0.5
        return max(math.exp(float(optimize.brentq(over, low, high, xtol=1e-14))) * (1 - 1e-13), self.least)

    def scale_at(self, budget: float) -> float:
        """The scale at which the largest loss is this, and of normal noise ρ; not below the least one."""
        return max(
            math.sqrt(self._square / (2 * budget)) if self.normal else self._total / budget, self.least
        )

    def scale_in(self, law: FrozenLaw) -> float | None:
        """The scale of a law of this family, of the shape that the menu has; None of another one."""
        dist, shapes, loc, scale = frozen_parts(law)
        if dist.name != self._law(1.0, 1.0).dist.name:
            return None
        if self.family == "staircase":
            scale = self.top / shapes[0]
        elif shapes:
            scale = 1 / shapes[0] if self.family == "laplace" else shapes[0]
        own = frozen_parts(self.law(scale))
        stated = [*shapes, loc, frozen_parts(law)[3]]
        if len(shapes) != len(own[1]):
            return None
        return scale if np.allclose(stated, [*own[1], *own[2:]], rtol=1e-12, atol=0) else None

    def law(self, scale: float) -> FrozenLaw:
        """The law of one number."""
        return self._law(scale, self.top)

    def _law(self, scale: float, top: float) -> FrozenLaw:
        gamma = staircase_gamma(top / scale, "squared") if self.family == "staircase" else 0.0
        return LAWS[self.name].make(gamma, scale, top)

    def noise(self, scale: float) -> AdditiveNoise:
        """The mechanism of this part."""
        part = self.part
        return AdditiveNoise(self.law(scale), part.sensitivity, part.dimension, self.rounds)
