r"""The staircase is optimal: its dual in closed form, checked in exact numbers, and what a small δ takes from it.

Let ℓ be even, convex and least at 0, sensitivity 1, :math:`g \ge e^\varepsilon`. Suppose functions Out, In ≥ 0 are moved along
changes of at most 1, so that :math:`E\,\mathrm{Out}(T) \le g\,E\,\mathrm{In}(T) + \delta C` for every (ε, δ)-DP noise T, and
:math:`\ell + \mathrm{Out} - g\,\mathrm{In} \ge \lambda` everywhere. Then :math:`E\,\ell(T) \ge \lambda - \delta C`. On the right half
(the left is its mirror image), with In = 0 from K on,

.. math:: G(t) = \big(\ell(t) - \lambda + G(t + 1)\big)/g , \qquad \mathrm{In} = G \text{ on } [1, K), \qquad G(t) = 0 \text{ for } t \ge K .

- The shift by 1 moves ψ(t) = G(t + 1), t ≥ 0: it leaves nothing open on [1, ∞) where :math:`\ell(K) \ge \lambda`.
- On [0, 1) G increases. Below its root γ, R(t) = -g G(t) is still to be sent; above, G(t) may still be received. All these
  points are less than 1 apart, so that everything can be sent, a share of G(t') to every t', if
  :math:`\int_0^\gamma R \le \int_\gamma^1 G`: the one condition, and an equation at the best λ.
- In charges :math:`C = 2 \sup_{t \ge 1} G + 2 \int_0^1 \sup_u R(u) G(u + d)\,dd / \int_\gamma^1 G`, the second at most
  :math:`2 R(0) (1 + \gamma G(1) / \int_\gamma^1 G)`.

With δ = 0 and K = ∞ that is the cost of the staircase with its step at γ, so that no noise is better: Geng and Viswanath's
theorem, for every such loss, by a dual. Here for a|t| + bt², where G is a quadratic on each [j, j + 1) and increases there; G ≥ 0
on [1, K) then is a sign for every j. All is computed in integers, the coefficients of G rounded down, which keeps
:math:`g\,G \le \ell - \lambda + G(\cdot + 1)`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from mechdesign.evidence.exact import exp_upper
from mechdesign.problem.losses import Loss
from mechdesign.solvers.deadline import Deadline

__all__ = ["MOST_PERIODS", "Climb", "best_climb"]

MOST_PERIODS = 50_000
_HALVINGS = 46  # and what the level is smaller than 1: it is known to 12 digits
_SHARES = (1.0, 0.85, 1.2, 0.7, 1.5)
_MANY = 2000  # periods that take a tenth of a second


@dataclass(frozen=True)
class Climb:
    """G of one level λ and so many periods K: what it proves.

    Parameters
    ----------
    absolute, squared : Fraction
        a, b ≥ 0 of the loss, in units of the sensitivity.
    epsilon : float
    delta : float
    periods : int
        K; 0 stands for infinitely many, which only δ = 0 allows.
    """

    absolute: Fraction
    squared: Fraction
    epsilon: float
    delta: float
    periods: int

    @classmethod
    def of(cls, loss: Loss, sensitivity: float, *, epsilon: float, delta: float, periods: int) -> Climb:
        """Bring a loss to units of the sensitivity."""
        unit = Fraction(sensitivity)
        return cls(Fraction(loss.absolute) * unit, Fraction(loss.squared) * unit**2, epsilon, delta, periods)

    @cached_property
    def _bits(self) -> int:
        """Behind the point of r and, times the unit, of coefficients: more than e^{-2ε} and the loss need."""
        return 120 + math.ceil(4 * self.epsilon)

    @cached_property
    def _r(self) -> Fraction:
        """At most e^{-ε}, dyadic."""
        return Fraction(math.floor(2**self._bits / exp_upper(self.epsilon)), 2**self._bits)

    @cached_property
    def _unit(self) -> Fraction:
        """Coefficients are whole multiples of this."""
        return Fraction(2) ** (
            math.floor(math.log2(max(self.absolute, self.squared, Fraction(1, 2**900)))) - self._bits
        )

    def _forever(self, level: Fraction) -> tuple[Fraction, Fraction, Fraction]:
        """Coefficients of G(t) where K is infinite: a fixed point, no rounding."""
        r, a, b = self._r, self.absolute, self.squared
        whole = r / (1 - r)
        second = whole * b
        first = whole * (a + 2 * second)
        return whole * (first + second - level), first, second

    def _downwards(self, level: Fraction) -> Iterator[tuple[int, int, int]]:
        """The coefficients of G(j + u) in units, j from K - 1 to 0, each rounded down."""
        scale, shift = self._r.numerator, self._r.denominator.bit_length() - 1
        a, b = self.absolute / self._unit, self.squared / self._unit
        if a.denominator > 1 or b.denominator > 1:
            a, b = Fraction(math.floor(a)), Fraction(math.floor(b))  # a smaller loss
        first_order, second_order, held = int(a), int(b), math.ceil(level / self._unit)
        c = (0, 0, 0)
        for j in range(self.periods - 1, -1, -1):
            c = (
                scale * (first_order * j + second_order * j * j - held + c[0]) >> shift,
                scale * (first_order + 2 * second_order * j + c[1]) >> shift,
                scale * (second_order + c[2]) >> shift,
            )
            yield c

    def root(self, c: tuple[Fraction, Fraction, Fraction]) -> tuple[Fraction, Fraction]:
        """Enclose where a quadratic that increases on [0, 1] changes its sign; (0, 0) where it is never negative."""
        if c[0] >= 0:
            return Fraction(0), Fraction(0)
        # 2 c0 / (-c1 - √(c1² - 4 c0 c2)), the root of the discriminant between two whole numbers
        square = c[1] ** 2 - 4 * c[0] * c[2]
        scale = 1 << max(
            0, self._bits - (square.numerator.bit_length() - square.denominator.bit_length()) // 2
        )
        below = math.isqrt(math.floor(square * scale * scale))
        low, high = (-2 * c[0] / (c[1] + Fraction(v, scale)) for v in (below + 1, below))
        return low, min(high, Fraction(1))

    def _balanced(self, c: tuple[Fraction, Fraction, Fraction]) -> tuple[bool, Fraction]:
        """Whether what is to be sent on [0, 1) can be received there; and what it charges, per side and per δ."""
        if sum(c) < 0:
            return False, Fraction(0)
        low, high = self.root(c)
        if high == 0:
            return True, Fraction(0)

        def integral(x: Fraction) -> Fraction:
            return x * (c[0] + x * (c[1] / 2 + x * c[2] / 3))

        received = integral(Fraction(1)) - integral(high)
        lowest = c[0] + low * (c[1] + low * c[2])
        sent = (-integral(low) - (high - low) * lowest) / self._r
        if sent > received or received <= 0:
            return False, Fraction(0)
        return True, -c[0] / self._r * (1 + high * sum(c) / received)

    def bound(self, level: Fraction) -> Fraction:
        """What the level proves: λ - δC, or 0 where it fails a condition."""
        if level <= 0 or (self.periods == 0 and self.delta > 0):
            return Fraction(0)
        if self.periods == 0:
            c = self._forever(level)
            return level if sum(c) >= 0 and self._balanced(c)[0] else Fraction(0)
        if self.absolute * self.periods + self.squared * self.periods**2 < level:
            return Fraction(0)
        highest, left = 0, self.periods
        first, second, third = 0, 0, 0
        for first, second, third in self._downwards(level):
            left -= 1
            if left:
                if first < 0:
                    return Fraction(0)
                highest = max(highest, first + second + third)
        held, charge = self._balanced((self._unit * first, self._unit * second, self._unit * third))
        # a hair more: whoever rounds more finely finds it too
        charged = 2 * Fraction(self.delta) * (self._unit * highest + charge) * (1 + Fraction(1, 2**60))
        return max(level - charged, Fraction(0)) if held else Fraction(0)

    def highest(self) -> tuple[Fraction, Fraction]:
        """The highest level that balances, but for rounding, and its γ: G is linear in the level."""
        zero, one = (self._last(Fraction(v)) for v in (0, 1))
        slope = [b - a for a, b in zip(zero, one)]

        def at(level: Fraction) -> tuple[Fraction, Fraction, Fraction]:
            return tuple(a + level * s for a, s in zip(zero, slope))  # type: ignore[return-value]

        far = 1 + math.ceil(3 / self.epsilon)  # Laplace noise costs less
        low, high = Fraction(0), self.absolute * far + self.squared * far**2
        for _ in range(_HALVINGS + math.ceil(1.5 * self.epsilon)):
            middle = (low + high) / 2
            low, high = (middle, high) if self._balanced(at(middle))[0] else (low, middle)
        return low, self.root(at(low))[1]

    def _last(self, level: Fraction) -> tuple[Fraction, Fraction, Fraction]:
        if self.periods == 0:
            return self._forever(level)
        first, second, third = deque(self._downwards(level), maxlen=1)[0]
        return self._unit * first, self._unit * second, self._unit * third


def best_climb(
    loss: Loss, sensitivity: float, *, epsilon: float, delta: float, gap: float, deadline: Deadline
) -> tuple[int, Fraction, Fraction, float]:
    """Return K, the level and the bound that prove most, and the step γ of the staircase they belong to.

    Of many periods the first that prove the gap asked for do, and those that time is left for.
    """
    counts = [0]
    if delta > 0:
        whole = max(3.0, -math.log(delta * min(epsilon, 1.0)) / epsilon)
        counts = list(dict.fromkeys(math.ceil(s * whole) + 1 for s in _SHARES if s * whole < MOST_PERIODS))
    best, step = (0, Fraction(0), Fraction(0)), math.nan
    for periods in counts:
        if deadline.passed and periods > _MANY:
            break
        climb = Climb.of(loss, sensitivity, epsilon=epsilon, delta=delta, periods=periods)
        level, root = climb.highest()
        for shave in (0, 100, 60, 40):
            held = level * (1 - Fraction(1, 2**shave)) if shave else level
            bound = climb.bound(held)
            if bound > best[2]:
                best, step = (periods, held, bound), float(root)
            if bound > 0:
                break
        if periods > _MANY and best[2] > best[1] * Fraction(1 - gap / 10):
            break
    return (*best, step)
