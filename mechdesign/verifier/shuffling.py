"""What shuffled reports tell of one user's items: amplification by shuffling under a metric.

**Theorem** (Feldman, McMillan and Talwar 2021, with distances). N items are reported through a channel that loses α₀ d(x, x') between two items
and ε₀ at most; the reports are released in random order. Where one item moves by t, a = e^(α₀ t), each of the others is with probability
e^(−ε₀) a clone of the two, so that with C ~ Bin(N − 1, e^(−ε₀)), A ~ Bin(C, ½) and X = (A + 1, C − A), Y = (A, C − A + 1), for u ≥ 1

    δ(ln((u a + 1)/(u + a))) = w(t) h(u),   w = (a − 1)/(a + u),   h(u) = Σ [X − u Y]₊.

Given C = c, h is Σ_b [P(A = b − 1) − u P(A = b)]₊ = Σ_b P(A = b) [b/(c + 1 − b) − u]₊, with 2^(−c) for b = c + 1. It falls with c.

**k items** that move by t each on average: one after the other, those that move least first. With f(t) = ln((u a + 1)/(u + a)), which is concave, the
whole is (k f(t), δ)-private, where δ is h(u) times the less of w(the most that one moves) Σ_{j<k} e^(j f(t)) and e^(k f(t)) λ k t, λ ≥ w(s)/s for all s.
A u that fits at t fits at smaller distances, where f(t)/t is larger: it is taken at the near end of each of some cells, and at 0 it is
α₀ (u − 1)/(u + 1). Every u is sound; any search may choose it.

Exponentials and logarithms are decimals of 40 digits, sums over b are of doubles: n positive terms made by n products are off by 4 n 2⁻⁵³ at most.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import NamedTuple

ONE = Decimal(1)
MORE = 1 + Decimal("1e-9")
"""Above the roundings of a sum over b, of at most 10⁵ terms, and of decimals."""
BLOCKS, STEP = 45, Decimal("0.6")
"""Numbers of clones that are looked at, as far below their mean as 27 standard deviations: e^(−364)."""
FINE = 60
"""Steps of a sum over b in a standard deviation, about."""
CELLS = tuple(0.8**i for i in range(16))
LEVELS, LEAST = 32, 1e-7
EXACT = 200
PI = Decimal("3.14159265358979323846264338327950288419716939937510582")


@cache
def log_factorial(n: int) -> Decimal:
    """By Stirling's series, whose error is less than the first term left out; exactly for small n."""
    if n < EXACT:
        return Decimal(math.factorial(n)).ln()
    x = Decimal(n)
    terms = ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156))
    return (
        x * x.ln()
        - x
        + (2 * PI * x).ln() / 2
        + sum(Decimal(a) / b / x ** (2 * k + 1) for k, (a, b) in enumerate(terms))
    )


def fewer(trials: int, chance: Decimal, count: int) -> Decimal:
    """P[C < count] of a binomial C, from above: its largest chance and quotients that fall make a geometric series."""
    n = count - 1
    falls = n * (1 - chance) / ((trials - n + 1) * chance)
    if falls >= 1:
        return ONE
    power = log_factorial(trials) - log_factorial(n) - log_factorial(trials - n)
    power += n * chance.ln() + (trials - n) * (1 - chance).ln()
    return min(power.exp() / (1 - falls) * MORE, ONE)


def given(clones: int, u: Fraction) -> Decimal:
    """h(u) where there are so many clones, from above."""
    total = Decimal(2) ** -clones
    b = max(math.floor(u * (clones + 1) / (1 + u)), 0)  # terms are positive from the next on
    if b > clones:
        return min(total * MORE, ONE)
    scale = log_factorial(clones) - log_factorial(b) - log_factorial(clones - b) - clones * Decimal(2).ln()
    step, level = max(math.isqrt(clones) // FINE, 1), float(u) * (1 - 1e-15)
    found, mass = 0.0, 1.0
    while b <= clones and mass > 1e-40:  # masses fall: a step's first one, its last quotient
        last = min(b + step - 1, clones)
        found += mass * max(last / (clones + 1 - last) - level, 0.0) * (last + 1 - b)
        mass *= ((clones - b) / (b + 1)) ** (last + 1 - b)
        b = last + 1
    rest = mass * clones * clones if b <= clones else 0.0
    return min((total + scale.exp() * Decimal(found + rest)) * MORE, ONE)


class Clones(NamedTuple):
    """How many others are clones: numbers that fall, and the chances of fewer."""

    counts: list[int]
    chances: list[Decimal]

    @classmethod
    def of(cls, total: int, loss: Decimal) -> Clones:
        trials, chance = total - 1, (-loss).exp()
        if trials < 1:
            return cls([0], [Decimal(0)])
        chance = min(chance, ONE - Decimal("1e-30"))
        mean = trials * chance
        places = {max(mean - j * STEP * mean.sqrt(), Decimal(0)) for j in range(BLOCKS + 1)}
        counts = sorted({*map(int, places)}, reverse=True)
        return cls(counts, [fewer(trials, chance, c) if c else Decimal(0) for c in counts])

    def divergence(self, u: Fraction) -> Decimal:
        """h(u), from above: of no more clones than each of the numbers."""
        found = highest = given(self.counts[0], u)
        for chance, count in zip(self.chances, self.counts[1:]):
            value = max(given(count, u), highest)
            found, highest = found + chance * (value - highest), value
        return min(found + self.chances[-1] * (1 - highest), ONE)


class Shuffled(NamedTuple):
    """k items of which each moves by at most 1; α₀ is `unit`."""

    unit: Decimal
    k: int
    clones: Clones

    def loss(self, gamma: Decimal, t: Decimal) -> Decimal:
        """f(t) at u = 1 + γ: (u a + 1)/(u + a) = 1 + γ (a − 1)/(u + a)."""
        a = (self.unit * t).exp()
        return (1 + gamma * (a - 1) / (1 + gamma + a)).ln() * MORE

    def factor(self, gamma: Decimal, t: Decimal) -> Decimal:
        """What the k steps make of h(u)."""
        u, each = 1 + gamma, self.loss(gamma, t)
        most = self.unit * min(self.k * t, ONE)
        a = most.exp()
        weight, whole = (a - 1) / (a + u), (self.k * each).exp()
        steps = (whole - 1) / (each.exp() - 1)
        slope = weight / most if most <= u.ln() else (1 + 1 / u) / 4
        return min(weight * steps, whole * slope * self.unit * self.k * t) * MORE

    def fits(self, gamma: Decimal, t: Decimal, delta: Decimal) -> bool:
        factor = self.factor(gamma, t)
        return factor <= delta or self.clones.divergence(1 + Fraction(gamma)) * factor <= delta

    def level(self, t: Decimal, delta: Decimal, above: Decimal | None = None) -> Decimal | None:
        """A small γ that fits at t; None where none is found. Those that fit need not lie side by side.

        `above`: one that is known to fit, in the place of a search from e^50 − 1 on.
        """

        def fits(s: float) -> bool:
            return self.fits(Decimal(math.expm1(s)), t, delta)

        if above is None:
            tried = [50 * 1.9**-j for j in range(LEVELS)]
            high = next((s for s in reversed(tried) if fits(s)), 0.0)
            low = high / 1.9
        else:
            high = math.log1p(float(above)) * (1 + 1e-12)
            low = 0.9 * high
            while low > LEAST and fits(low):
                low, high = 0.9 * low, low
        if high <= 0 or not fits(high):
            return above
        while high > low * 1.001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if fits(middle) else (middle, high)
        return Decimal(math.expm1(high))

    def rate(self, delta: Decimal) -> Decimal | None:
        """The most that a distance of 1 costs k items on average, over all distances up to 1; None where no u fits."""
        gamma = self.level(ONE, delta)
        if gamma is None:
            return None
        worst = Decimal(0)
        for far, near in pairwise((*CELLS, 0.0)):
            if self.slope(gamma, Decimal(near)) > worst:
                gamma = self.level(Decimal(far), delta, gamma) or gamma
                worst = max(worst, self.slope(gamma, Decimal(near)))
        return worst * self.k * MORE

    def slope(self, gamma: Decimal, near: Decimal) -> Decimal:
        return self.loss(gamma, near) / near if near else self.unit * gamma / (2 + gamma)
