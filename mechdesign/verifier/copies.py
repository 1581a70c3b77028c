"""What independent copies that are private together say of one of them.

Let n copies be (ε, δ)-private together when all of them move, p and q the probabilities of an event under one of them and under the moved one,
and S_j(p) = P[Bin(n, p) ≥ j]. "The event happens for at least j of n" is an event of all copies, and so is its complement with the two
exchanged: for every j

    S_j(p) ≤ e^ε S_j(q) + δ,    1 − S_j(q) ≤ e^ε (1 − S_j(p)) + δ.

A q that breaks one of them is too small, and so is every smaller one. Tests may toss coins, so that the least q is at least p times the least
q' over p' of any p' ≤ p. One copy is (ε₁, δ₁)-private if p − e^ε₁ q ≤ δ₁ for all p: p walks from 0 to 1, in steps over which the
ratio met so far is enough. Steps are chosen in doubles; that a q is too small is shown in decimals.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

from mechdesign.verifier.reading import Account, Json, exp_bounds

MOST = 128
STEPS = 400
ROOM = 1 + Decimal("1e-30")


@cache
def choices(n: int) -> list[int]:
    return [math.comb(n, i) for i in range(n + 1)]


def tail(n: int, j: int, p: Json) -> Json:
    """P[Bin(n, p) ≥ j], in the arithmetic of p."""
    ways = choices(n)
    return sum(ways[i] * p**i * (1 - p) ** (n - i) for i in range(j, n + 1))


def inverse(n: int, j: int, mass: float) -> float:
    """The p at which the tail is this mass, about."""
    low, high = 1e-30, 1.0
    while high > low * (1 + 1e-10):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if tail(n, j, middle) >= mass else (middle, high)
    return low


class Copies:
    """n copies that are (ε, δ)-private together."""

    def __init__(self, n: int, epsilon: float, delta: float, account: Account) -> None:
        self.n, self.epsilon, self.delta, self.account = n, epsilon, delta, account
        self.work = 120 * n * n.bit_length()

    def guess(self, p: float, j: int, direct: bool) -> float:
        """The least q that the j-th requirement leaves."""
        growth = math.exp(self.epsilon)
        if direct:
            mass = (tail(self.n, j, p) - self.delta) / growth
        else:  # 1 − S_j(p) is the tail of the others
            mass = 1 - self.delta - growth * tail(self.n, self.n + 1 - j, 1 - p)
        return inverse(self.n, j, mass) if mass > 0 else 0.0

    def least(self, p: float) -> float:
        """A q that is no larger than the least one."""
        self.account.takes(self.work)
        found = []
        for direct in (True, False):
            low, high = 1, self.n
            while low < high:  # what the j-th one leaves rises to one peak
                middle = (low + high) // 2
                falls = self.guess(p, middle, direct) >= self.guess(p, middle + 1, direct)
                low, high = (low, middle) if falls else (middle + 1, high)
            found.append((self.guess(p, low, direct), low, direct))
        q, j, direct = max(found)
        q *= 1 - 1e-8
        return q if q > 0 and self.breaks(p, q, j, direct) else 0.0

    def breaks(self, p: float, q: float, j: int, direct: bool) -> bool:
        before, after, delta = Decimal(p), Decimal(q), Decimal(self.delta)
        growth = Decimal(self.epsilon).exp() * ROOM
        if direct:
            return bool(growth * tail(self.n, j, after) * ROOM <= tail(self.n, j, before) - delta)
        others = self.n + 1 - j
        return bool(
            growth * tail(self.n, others, 1 - before) * ROOM + delta <= tail(self.n, others, 1 - after)
        )

    def imply(self, epsilon: float, delta: float) -> bool:
        """Whether one of them is (ε₁, δ₁)-private, as far as the work that is left shows."""
        growth, ratio, at = exp_bounds(epsilon)[0], Fraction(0), 0.0
        with localcontext() as context:
            context.prec = 60
            for _ in range(STEPS):
                lost = 1 - growth * ratio  # for each unit of p
                if lost <= Fraction(delta):
                    return True
                after = float(Fraction(delta) / lost) * (1 - 1e-15)
                if after >= 1 or after - at < 1e-3 * delta or self.work > self.account.left / 2:
                    return after >= 1
                at = after
                ratio = max(ratio, Fraction(self.least(at)) / Fraction(at))
        return False
