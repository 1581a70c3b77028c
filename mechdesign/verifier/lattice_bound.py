"""Optimal noise: lower bounds that hold for any additive noise for one number, by weak duality, and what they say of several.

*Several numbers.* Of c that change each is ε/c-private if all of them are ε-private (their largest losses add up), and the mean of m of them,
the others left alone, keeps the (ε, δ) of all of them. That mean T̄ is noise for one number, of the same sensitivity: E|T̄| ≤ E|T|, and
E T² = m E T̄² of symmetric laws, which suffice, as a change of all signs keeps privacy and cost. So a bound for one number, of m t² under the
squared loss, is one for each of several. `times` is that m.

*Independent copies* that are private together say of one of them:
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

from mechdesign.verifier.reading import Account, Json, Refused, exp_bounds

MOST = 128
STEPS = 400
ROOM = 1 + Decimal("1e-30")


Points = list[tuple[Fraction, Fraction]]
"""e^ε, from above, and δ of all that is asked, by increasing ε."""


def staircase_bound(
    stated: Json, loss: str, points: Points, sensitivity: Fraction, times: int = 1
) -> Fraction:
    """Of one point ε > 0, weak duality with G(t) = (ℓ(t) − λ + G(t + 1))/e^ε, 0 from `periods` on (0 of them: for ever), at the shift 1.

    What is missing on [0, 1) below the root γ of G is sent to what G leaves above it: noise/optimal/staircase.py says why.
    """
    growth, delta = points[0]
    if len(points) > 1 or growth - 1 < Fraction(1, 2**100):
        raise Refused("a bound of one epsilon, where more are asked or none is above 0")
    periods, b = stated["periods"], int(loss == "squared")
    a, unit = 1 - b, times * sensitivity ** (1 + b)  # the loss is |t| or t² in this unit
    level, bits = stated["level"] / unit, 400 + 4 * math.floor(math.log2(growth))
    if not 0 <= periods <= 50_000 or level <= 0 or (not periods and delta) or 0 < periods ** (1 + b) < level:
        raise Refused("a level without periods, or with too many")
    r = Fraction(math.floor(2**bits / growth), 2**bits)
    highest = lowest = Fraction(0)
    z, c = r / (1 - r), [Fraction(0)] * 3
    if not periods:
        c = [((a + 2 * b * z) * z + b * z - level) * z, (a + 2 * b * z) * z, b * z]
    for j in reversed(range(periods)):  # coefficients of G(j + u), rounded down
        now = a * j + b * j * j - level + c[0], a + 2 * b * j + c[1], b + c[2]
        c = [Fraction(math.floor(r * v * 2**bits), 2**bits) for v in now]
        highest, lowest = (max(highest, c[0] + c[1] + c[2]), min(lowest, c[0])) if j else (highest, lowest)
    low, high = Fraction(0), Fraction(1)
    while high - low > low / 2**200 and c[0] < 0:
        middle = (low + high) / 2
        low, high = (middle, high) if c[0] + c[1] * middle + c[2] * middle**2 < 0 else (low, middle)
    left, right, whole = (sum(v * x ** (k + 1) / (k + 1) for k, v in enumerate(c)) for x in (low, high, 1))
    sent = (high - low) * -(c[0] + c[1] * low + c[2] * low**2) - left
    if (c[0] < 0 and (right >= whole or sent > r * (whole - right))) or min(lowest, c[0] + c[1] + c[2]) < 0:
        return Fraction(0)
    charge = -c[0] / r * (1 + high * sum(c) / (whole - right)) if c[0] < 0 else 0
    return Fraction((level - 2 * delta * (highest + charge)) * unit)


def lattice_bound(
    stated: Json,
    loss: str,
    points: Points,
    sensitivity: Fraction,
    times: int = 1,
    counts: bool = False,
) -> Fraction:
    """Weak duality: min_j (c_j + Σ_s ψ_s(j) − e^ε ψ_s(j − s)) − Σ_s δ μ_s, averaged with the mirror image if asked.

    ε and δ are those of the point that a shift s is for; with one point no shift says which.
    c is a lower bound of the loss of noise rounded at random to the lattice; of noise of `counts`, on the whole numbers, the loss itself.
    """
    n, psi, spent = stated["cells"], stated["psi"], Fraction(0)
    half = (len(psi[0]) - 1) // 2 if psi else 0
    step, reach = sensitivity / n, half + n + 1
    offset = 0 if counts else step**2 / 4
    plus: list[Json] = [0] * (2 * reach + 1)
    minus = [list(plus) for _ in points]
    shifts = stated["shifts"] if len(points) > 1 else [[s, 0] for s in stated["shifts"]]
    if not all(isinstance(row, list) and len(row) == 2 and row[1] in range(len(points)) for row in shifts):
        raise Refused("multipliers of points other than those asked")
    # Any multipliers prove a bound; these are the file's, rounded down as the claim was.
    largest = max([1e-250, *map(sum, psi), *stated["totals"]])
    bits = 55 - math.ceil(math.log2(largest) + math.log2(max(1, len(psi))))
    scale = Fraction(2) ** bits
    for (s, at), given, cap in zip(shifts, psi, stated["totals"]):
        whole = [max(math.floor(math.ldexp(p, bits)), 0) for p in given]
        spent += max([math.ceil(math.ldexp(cap, bits)), *whole]) * points[at][1]
        if abs(s) > n or len(whole) != 2 * half + 1:
            raise Refused("shifts beyond the sensitivity")
        for i, p in enumerate(whole, start=n + 1):
            plus[i] += p
            minus[at][i + s] += p
    if stated["mirrored"]:
        plus, *minus = ([(a + b) / Fraction(2) for a, b in zip(v, v[::-1])] for v in (plus, *minus))

    def cost(j: int) -> Fraction:
        return times * Fraction(abs(j) * step if loss == "absolute" else (j * step) ** 2 - offset)

    received = (sum(g * b for (g, _), b in zip(points, row) if b) for row in zip(*minus))
    gains = (a - b for a, b in zip(plus, received))
    least = min(cost(j) + g / scale for j, g in enumerate(gains, start=-reach))
    return Fraction(least - spent / scale)


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
