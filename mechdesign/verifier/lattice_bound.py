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

*Lattices.* Entries are masses of points 0, ±h, …, ±Rh. Tails repeat the outermost n points, times r each time: an outermost entry then is the mass of a point and of
all its repetitions, of which the point itself has 1 − r. Mirrored entries are masses of a point and its mirror image together. At a shift by s points
every point j of mass a p gives a row  a p − ρ b q − S_j ≤ 0, b q the mass of j + s, with ρ ≥ e^ε; Σ S_j ≤ δ. Points are those within the reach; with tails
and δ > 0 the first repetition too, whose excesses over 1 − r are those of all. A row whose partner is beyond a free reach, where all other mass is, in
one more entry, is none.

*Every noise.* T, rounded at random and without bias to a neighbouring point, is private at whole shifts and costs no more than these costs say: |j|h, or
j²h² − h²/4; of noise on the whole numbers the loss itself. Entries of the free lattice are its masses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from mechdesign.verifier.reading import Account, Json, Refused, exp_bounds
from mechdesign.verifier.rows import Row, lower_bound

MOST = 128
STEPS = 400
ROOM = 1 + Decimal("1e-30")


Points = list[tuple[Fraction, Fraction]]
"""e^ε, from above, and δ of all that is asked, by increasing ε."""


def staircase_bound(
    stated: Json, loss: str, points: Points, sensitivity: Fraction, times: int = 1, counts: bool = False
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
    if counts:
        sent = open_points(c, r, level, int(sensitivity))
        if sent is None or min(lowest, sum(c)) < 0:
            return Fraction(0)
        return Fraction((level - 2 * delta * (max(highest, sum(c)) + sent)) * unit)
    low, high = Fraction(0), Fraction(1)
    while high - low > low / 2**200 and c[0] < 0:
        middle = (low + high) / 2
        low, high = (middle, high) if c[0] + c[1] * middle + c[2] * middle**2 < 0 else (low, middle)
    left, right, whole = (sum(v * x ** (k + 1) / (k + 1) for k, v in enumerate(c)) for x in (low, high, 1))
    sent = (high - low) * -(c[0] + c[1] * low + c[2] * low**2) - left
    if (c[0] < 0 and (right >= whole or sent > r * (whole - right))) or min(lowest, c[0] + c[1] + c[2]) < 0:
        return Fraction(0)
    share = Fraction(0)
    if c[0] < 0:
        at = 1 - high
        near, share = c[0] + c[1] * at + c[2] * at**2, 1 + high * sum(c) / (whole - right)
        if high <= at:  # half of it to either side, but for the last
            share = min(share, (1 + high * (4 * sum(c) - near) / (whole - right)) / 2)
    charge = -c[0] / r * share
    return Fraction((level - 2 * delta * (highest + charge)) * unit)


def open_points(c: list[Fraction], r: Fraction, level: Fraction, n: int) -> Fraction | None:
    """What the points of [0, 1) charge that send what they lack to those with G > 0; None where they cannot.

    The point 0 sends G(1) to both sides at the shift by n, and half of the rest to each.
    """
    points = [c[0] + Fraction(k, n) * (c[1] + Fraction(k, n) * c[2]) for k in range(1, n)]
    sent = [max(level - 2 * sum(c), Fraction(0)) / 2, *(-g / r for g in points if g < 0)]
    received = [g for g in points if g > 0]
    total, room = sum(sent), sum(received)
    if total > room:
        return None
    return max(sent) * (1 + (n - len(received) - 1) * received[-1] / room) if total else Fraction(0)


class Lattice(NamedTuple):
    """Points to either side, points a sensitivity, decay of the tails; whether mirrored, whether free."""

    side: int
    change: int
    decay: Fraction
    mirrored: bool = False
    free: bool = False

    @property
    def entries(self) -> int:
        """How many entries stand for points."""
        return self.side + 1 if self.mirrored else 2 * self.side + 1

    def place(self, at: int, repeated: bool = False) -> tuple[int, Fraction] | None:
        """The entry of a point, and its mass for each unit of that; over 1 − r next to a repeated point."""
        r, far = self.decay, abs(at)
        out = max(0, -((self.side - far) // self.change))
        if out and not r:
            return None
        inside = far - out * self.change
        mass = r**out * (1 if repeated or inside <= self.side - self.change or not r else 1 - r)
        entry = inside if self.mirrored else (inside if at >= 0 else -inside) + self.side
        return entry, Fraction(mass) / (2 if self.mirrored and inside else 1)

    def rows(self, points: list[tuple[Fraction, Fraction]], first: int, proof: Json) -> Iterator[Row]:
        """The rows that have multipliers, by the numbers of a problem with so many rows of its own."""
        n, high = self.change, first
        shifts = range(1, n + 1) if self.mirrored else [s for s in range(-n, n + 1) if s]
        parts = []
        for growth, delta in points:
            reach = self.side + (n if self.decay and delta else 0)
            low, high = high, high + len(shifts) * (2 * reach + 1 + bool(delta))
            parts.append((low, high, growth, delta, reach))
        for number, multiplier in zip(proof["rows"], proof["multipliers"], strict=True):
            if number < first:
                continue
            p = next((k for k, (low, high, *_) in enumerate(parts) if low <= number < high), None)
            if p is None:
                raise Refused("a row that the problem has not")
            low, _, growth, delta, reach = parts[p]
            k, y = divmod(number - low, 2 * reach + 1)
            if k >= len(shifts):
                k = number - low - len(shifts) * (2 * reach + 1)
                yield (
                    [(("over", p, k, y), Fraction(1)) for y in range(2 * reach + 1)],
                    delta,
                    False,
                    multiplier,
                )
                continue
            at, terms = y - reach, dict[Json, Fraction]()
            repeated = abs(at) > self.side
            here, there = self.place(at, repeated), self.place(at + shifts[k], repeated)
            if here is None or (there is None and self.free):
                raise Refused("a row that the problem has not")
            for found, factor in ((here, Fraction(1)), (there, -growth)):
                if found is not None:
                    terms[found[0]] = terms.get(found[0], Fraction(0)) + factor * found[1]
            if delta:
                terms["over", p, k, y] = Fraction(-1)
            yield list(terms.items()), Fraction(0), False, multiplier


def increasing(proof: Json) -> None:
    numbers = proof["rows"]
    if any(b <= a for a, b in zip(numbers, numbers[1:])) or any(number < 0 for number in numbers):
        raise Refused("numbers of rows that do not increase")


def noise_bound(
    stated: Json,
    loss: str,
    points: list[tuple[Fraction, Fraction]],
    sensitivity: Fraction,
    times: int = 1,
    counts: bool = False,
) -> Fraction:
    """The bound of every noise for one number, of `times` the loss; of noise of `counts`, on the whole numbers."""
    n, side = stated["cells"], stated["side"]
    if not (1 <= n <= side <= 10**5) or (counts and n != sensitivity):
        raise Refused("a lattice that is none, or of another change")
    increasing(stated)
    h = sensitivity / n
    offset = 0 if counts else h**2 / 4

    def cost(j: int) -> Fraction:
        return times * Fraction(j * h if loss == "absolute" else (j * h) ** 2 - offset)

    lattice = Lattice(side, n, Fraction(0), mirrored=True, free=True)
    costs: dict[Json, Fraction] = {j: cost(j) for j in range(side + 2)}
    # no multipliers at all prove the least cost
    return max(lower_bound(costs, lattice.rows(points, 0, stated), [list(costs)], set()), cost(0))


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
