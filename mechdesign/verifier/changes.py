"""What one record changes, within several bounds: how far coordinates move, how large a change is in a norm, and what it consumes at most.

A change moves coordinate i by |v_i| ≤ a_i, at most c coordinates at once, with ‖v‖₁ ≤ L₁ and ‖v‖₂ ≤ L₂.

**Lists of shifts**, each of which alone is as bad for privacy as every change: `worst_shifts`.

**Σ (|v_i|/s_i)^m** is bounded in fractions, by prices. *Prices* θ ≥ 0 of a changed coordinate, of L₁ and of L₂² prove, whatever they are, that no change consumes more than

    θ₁ c + θ₂ L₁ + θ₃ L₂² + Σ_i max(0, max over 0 < v ≤ a_i of (v/s_i)^m − θ₁ − θ₂ v − θ₃ v²).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, combinations, pairwise, product
from typing import NamedTuple, TypeAlias

from mechdesign.verifier.arithmetic import between, decimal
from mechdesign.verifier.laws import ROUND, WHOLE, ZERO
from mechdesign.verifier.reading import STAIRS, Account, Json, Refused, TooLarge

BITS = 800
MOST_EXACT = 2000


Shifts: TypeAlias = list[tuple[Decimal, int]]
"""Sizes, the largest first, and how many coordinates move so far."""
MOST_BOUNDS = 10**5
GROUPS = 12
"""Of coordinates that move alike."""


class Changes(NamedTuple):
    """Coordinates that change, by at most a_i each, and the other bounds."""

    sizes: list[Fraction]
    l0: int | None
    l1: Fraction | None
    l2: Fraction | None


def changes_of(bounds: Json, count: int) -> Changes:
    each, most = bounds["each"], [bounds[name] for name in ("linf", "l1", "l2") if bounds[name] is not None]
    if each is None or len(each) != count or not min([*each, *most, 1]) >= 0 or (bounds["l0"] or 0) > count:
        raise Refused("bounds of other coordinates than the answer's")
    return Changes(coordinates(bounds), bounds["l0"], *norms(bounds))


def norms(bounds: Json) -> tuple[Fraction | None, Fraction | None]:
    """L₁ and L₂."""
    l1, l2 = (None if bounds[name] is None else Fraction(bounds[name]) for name in ("l1", "l2"))
    return l1, l2


def left_of_total(parts: Iterator[Fraction] | list[Fraction], budget: Fraction) -> Fraction:
    """Return a budget less a sum, rounded down: the sum is rounded up, or exact if that leaves nothing."""
    held = list(parts)
    above = Fraction(sum(-((-part.numerator << BITS) // part.denominator) for part in held), 2**BITS)
    if above <= budget:
        return budget - above
    while len(held) > 1 and len(held) <= MOST_EXACT:
        held = [sum(held[i : i + 2], Fraction(0)) for i in range(0, len(held), 2)]
    return budget - (held[0] if len(held) == 1 else above)


def left_of_budget(
    asked: Changes, scales: list[Fraction], m: int, stated: list[float], budget: Fraction
) -> Fraction:
    """Return the slack of the budget that prices prove for every change; negative if they prove none."""
    prices = [Fraction(p) for p in stated]
    bounds = asked.l0, asked.l1, asked.l2 and asked.l2**2
    if len(prices) != 3 or min(prices) < 0 or any(p and b is None for p, b in zip(prices, bounds)):
        return Fraction(-1)
    paid = sum((p * b for p, b in zip(prices, bounds) if b is not None), Fraction(0))
    moved = [(a, s) for a, s in zip(asked.sizes, scales) if a > 0]
    return left_of_total([beyond(a, s, m, prices) for a, s in moved], budget - paid)


def beyond(a: Fraction, s: Fraction, m: int, prices: list[Fraction]) -> Fraction:
    """The most that a change of one coordinate consumes beyond its price."""
    one, two, three = prices
    if m == 2:
        return max((a / s) ** 2 - one - two * a - three * a * a, Fraction(0))
    rate = 1 / s - two
    if rate <= 0:
        return Fraction(0)
    v = min(a, rate / (2 * three)) if three else a
    return max(v * rate - three * v * v - one, Fraction(0))


def worst_shifts(sensitivity: Json, dimension: int, name: str, account: Account) -> list[Shifts]:
    """Lists of shifts and of how many coordinates move so far; each list alone is as bad as every change that is allowed.

    Sorted by size, the k-th coordinate of a change moves by at most its bound, by L₁/k and by L₂/√k. Under a log-concave law two
    coordinates that move by a and b are more private than one that moves by a + b (by way of the data set in which the first
    alone has moved, and as tests by thresholds are the best ones), so that all of L₁ may stand on one coordinate. Normal noise
    sees the ℓ₂ norm alone, a staircase whether a coordinate moves.
    """
    sizes, l1, l2 = bounds_of(sensitivity, dimension)
    if not isinstance(sensitivity, dict) or (sensitivity["each"] is l1 is l2 is None):
        ((size, count),) = sizes
        counted = name in WHOLE and isinstance(sensitivity, dict)
        return [[(Decimal(int(size)) if counted else decimal(size), count)]]
    if dimension > MOST_BOUNDS:
        raise TooLarge(f"too large to check: bounds of more than {MOST_BOUNDS} coordinates")
    account.takes(25 * dimension)
    if name == "norm":
        norms_of = [decimal(filled(sizes, l1)).sqrt(), *([] if l2 is None else [decimal(l2)])]
        return [[(min(norms_of) * ROUND, 1)]]
    bounds = [decimal(size) for size, count in sizes for _ in range(count)]
    if name in STAIRS:
        return [[(bounds[0], len(bounds))]]
    total = decimal(reached(1, sizes, l1, None))
    if l2 is not None:
        total = min(total, decimal(watered(sizes, l2)) * ROUND)
        if name in WHOLE:
            total = min(total, Decimal(most_whole([int(b) for b in bounds], int(l2**2))))
    norm = decimal(l2) * ROUND if l2 is not None else Decimal(len(bounds)).sqrt() * bounds[0] * ROUND
    envelope = [min(b, total / k * ROUND, norm / Decimal(k).sqrt()) for k, b in enumerate(bounds, 1)]
    top, whole = bounds[0], min(total, sum(envelope, ZERO), Decimal(len(bounds)).sqrt() * norm)
    # two that fit into one largest bound are moved into one
    fewer = min(len(bounds), max(math.ceil(2 * whole / top) - 1, 1))
    packed = [min(top, whole / k * ROUND) for k in range(1, fewer + 1)]
    found = [envelope, packed, [whole]]
    if name in WHOLE:
        found = [[Decimal(int(v)) for v in vector] for vector in found]
    cases = (grouped([v for v in vector if v > 0]) for vector in found)
    return sorted({tuple(case): case for case in cases}.values(), key=len)


def most_whole(bounds: list[int], square: int) -> int:
    """The largest sum of whole numbers within these bounds whose squares add up to so much: each further 1 goes where it adds least."""
    level, open_, total = 0, bounds, 0
    while open_ := [b for b in open_ if b > level]:
        steps = min(len(open_), square // (2 * level + 1))
        total, square, level = total + steps, square - steps * (2 * level + 1), level + 1
        if steps < len(open_):
            break
    return total


def grouped(vector: list[Decimal]) -> Shifts:
    """Equal shifts counted; where there are many, groups as large as their largest, cut where the sum of squares falls most."""
    sizes = sorted(Counter(vector).items(), reverse=True)
    squares, counts = [float(v) ** 2 for v, _ in sizes], [count for _, count in sizes]
    before = [0, *accumulate(counts)]
    cuts = [0, len(sizes)]
    while len(cuts) <= min(GROUPS, len(sizes)):
        inside = [(a, i, b) for a, b in pairwise(cuts) for i in range(a + 1, b)]
        saved = (((squares[a] - squares[i]) * (before[b] - before[i]), i) for a, i, b in inside)
        cuts = sorted([*cuts, max(saved)[1]])
    return [(sizes[a][0], before[b] - before[a]) for a, b in pairwise(cuts)]


Bounds = list[tuple[Fraction, int]]
"""Sizes, and how many coordinates have them, from the largest on."""


def coordinates(sensitivity: Json) -> list[Fraction]:
    """What each coordinate changes by at most; one number where it is the same for all."""
    if not isinstance(sensitivity, dict):
        return [Fraction(sensitivity)]
    most = [sensitivity[name] for name in ("linf", "l1", "l2") if sensitivity[name] is not None]
    if sensitivity["each"] is None:
        return [Fraction(min(most))]
    return [Fraction(min([b, *most])) for b in sensitivity["each"]]


def widths(sensitivity: Json, dimension: int) -> list[Fraction]:
    """What each of so many coordinates changes by at most."""
    each = coordinates(sensitivity)
    return each * dimension if len(each) == 1 else each


def share(sensitivity: Json, dimension: int) -> Fraction:
    """Return the largest Σ |v_i|/b_i of a change v, b_i the bounds of the coordinates."""
    sizes = sorted(b for b in widths(sensitivity, dimension) if b)
    if not isinstance(sensitivity, dict):
        return Fraction(len(sizes))
    found = Fraction(min(sensitivity["l0"] or len(sizes), len(sizes)))
    if sensitivity["l1"] is not None:
        left, filled = Fraction(sensitivity["l1"]), Fraction(0)
        for size in sizes:
            filled, left = filled + min(left / size, Fraction(1)), left - min(left, size)
        found = min(found, filled)
    if sensitivity["l2"] is not None:
        squares = math.fsum(float(Fraction(sensitivity["l2"]) / size) ** 2 for size in sizes)
        found = min(found, Fraction(math.sqrt(squares) * (1 + 1e-14)))
    return max(found, Fraction(1))


def bounds_of(sensitivity: Json, dimension: int) -> tuple[Bounds, Fraction | None, Fraction | None]:
    """Return the bounds of single coordinates, and L₁ and L₂."""
    if not isinstance(sensitivity, dict):
        return [(Fraction(sensitivity), dimension)], None, None
    count, each = sensitivity["l0"] or dimension, coordinates(sensitivity)
    if count > dimension:
        raise Refused("more coordinates that change than there are")
    if sensitivity["each"] is None:
        return [(each[0], count)], *norms(sensitivity)
    if len(each) != dimension or min(sensitivity["each"]) < 0:
        raise Refused("bounds of other coordinates than the answer's, or negative ones")
    sizes = Counter(sorted((size for size in each if size > 0), reverse=True)[:count])
    if not sizes:
        raise Refused("bounds that allow no change")
    return sorted(sizes.items(), reverse=True), *norms(sensitivity)


def filled(bounds: Bounds, l1: Fraction | None) -> Fraction:
    """The largest Σ v² within ‖v‖₁ ≤ L₁: the largest bounds, filled."""
    square, left = Fraction(0), l1
    for size, count in bounds:
        if left is None:
            square += count * size**2
            continue
        whole = min(count, int(left / size))
        part = min(left - whole * size, size) if whole < count else Fraction(0)
        square, left = square + whole * size**2 + part**2, left - whole * size - part
    return square


def watered(bounds: Bounds, l2: Fraction) -> Fraction:
    """The largest ‖v‖₁ within ‖v‖₂ ≤ L₂, from above."""
    if sum(count * size**2 for size, count in bounds) <= l2**2:
        return sum((count * size for size, count in bounds), Fraction(0))

    def within(level: float) -> bool:
        return math.fsum(n * min(float(size), level) ** 2 for size, n in bounds) <= float(l2) ** 2

    _, high = between(0.0, float(bounds[0][0]), within)
    level, found = Fraction(high), Fraction(0)
    for size, count in bounds:
        v = min(size, level)
        found += count * (v - v * v / (2 * level))
    return found + l2**2 / (2 * level)


def beyond_changes(
    norm: float, bounds: Bounds, l1: Fraction | None, l2: Fraction | None, largest: Fraction
) -> Fraction:
    """Return the slack of the largest norm over all changes (of ℓ₂, of its square); negative if a change has a larger norm."""
    if norm != 2:
        return largest - reached(norm, bounds, l1, l2)
    left = largest**2 - filled(bounds, l1)
    return left if l2 is None else max(left, largest - l2)


def reached(norm: float, bounds: Bounds, l1: Fraction | None, l2: Fraction | None) -> Fraction:
    """The largest norm of a change: that of ℓ₂ to rounding, the others from above."""
    if norm == math.inf:
        return bounds[0][0]
    if norm == 2:
        found = Fraction(math.sqrt(filled(bounds, l1)))
        return found if l2 is None else min(found, l2)
    parts = [sum((count * size for size, count in bounds), Fraction(0))]
    parts += [] if l1 is None else [l1]
    parts += [] if l2 is None else [watered(bounds, l2)]
    return min(parts)


def box(each: list[Fraction], asked: Json) -> tuple[list[int], Iterable[int], int]:
    """Which coordinates move, how many of them in a corner, and how many corners there are, up to sign."""
    moved = [i for i, size in enumerate(each) if size]
    count = min(asked["l0"] or len(moved), len(moved))
    if asked["l1"] is not None and all(each[i] == asked["l1"] for i in moved):
        count = 1  # the corners of the ℓ₁ ball
    sizes, signs = (range(count, count + 1), 2) if asked["signed"] else (range(1, count + 1), 1)
    return moved, sizes, sum(math.comb(len(moved), c) * signs ** (c - 1) for c in sizes)


def corners(each: list[Fraction], asked: Json) -> Iterator[tuple[Fraction, ...]]:
    """The corners of a box, of which so many coordinates change."""
    moved, sizes, _ = box(each, asked)
    for count in sizes:
        for places in combinations(moved, count):
            for signs in product((1, -1) if asked["signed"] else (1,), repeat=count):
                yield tuple(dict(zip(places, signs)).get(i, 0) * size for i, size in enumerate(each))
