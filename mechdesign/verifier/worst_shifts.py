"""How far each coordinate may move: lists of shifts, each of which alone is as bad for privacy as every change that is allowed."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import accumulate, pairwise
from math import ceil
from typing import TypeAlias

from mechdesign.verifier.discrete_laws import WHOLE
from mechdesign.verifier.noise_laws import ROUND, ZERO
from mechdesign.verifier.reading import Account, Json, Refused, TooLarge

Shifts: TypeAlias = list[tuple[Decimal, int]]
"""Sizes, the largest first, and how many coordinates move so far."""
MOST_BOUNDS = 10**5
GROUPS = 12
"""Of coordinates that move alike."""


def worst_shifts(sensitivity: Json, dimension: int, name: str, account: Account) -> list[Shifts]:
    """Lists of shifts and of how many coordinates move so far; each list alone is as bad as every change that is allowed.

    Sorted by size, the k-th coordinate of a change moves by at most its bound, by L₁/k and by L₂/√k. Under a log-concave law two
    coordinates that move by a and b are more private than one that moves by a + b (by way of the data set in which the first
    alone has moved, and as tests by thresholds are the best ones), so that all of L₁ may stand on one coordinate. Normal noise
    sees the ℓ₂ norm alone, a staircase whether a coordinate moves.
    """
    if not isinstance(sensitivity, dict):
        return [[(Decimal(sensitivity), dimension)]]
    most = [sensitivity[bound] for bound in ("linf", "l1", "l2") if sensitivity[bound] is not None]
    if not all(b > 0 for b in most):
        raise Refused("bounds that allow no change")
    moving = min(sensitivity["l0"] or dimension, dimension)
    if sensitivity["each"] is None and most == [sensitivity["linf"]]:
        return [[(Decimal(int(most[0]) if name in WHOLE else most[0]), moving)]]
    if dimension > MOST_BOUNDS:
        raise TooLarge(f"too large to check: bounds of more than {MOST_BOUNDS} coordinates")
    account.takes(25 * dimension)
    each = sensitivity["each"] or [min(most)] * dimension
    if len(each) != dimension or not all(b >= 0 for b in each):
        raise Refused("bounds of other coordinates than the answer's")
    moved = [Decimal(least) for b in each if (least := min([b, *most])) > 0]
    bounds = sorted(moved, reverse=True)[:moving]
    if not bounds:
        raise Refused("bounds that allow no change")
    total = Decimal(sensitivity["l1"] or sum(bounds))
    norm = Decimal(sensitivity["l2"] or Decimal(dimension).sqrt() * bounds[0]) * ROUND
    if name == "norm":
        square, left = ZERO, total
        for bound in bounds:  # the largest squares within ‖v‖₁: the largest bounds, filled
            square, left = square + min(bound, left) ** 2, max(left - bound, ZERO)
        return [[(min(square.sqrt() * ROUND, norm), 1)]]
    if name == "staircase":
        return [[(bounds[0], len(bounds))]]
    envelope = [min(b, total / k * ROUND, norm / Decimal(k).sqrt()) for k, b in enumerate(bounds, 1)]
    top, whole = bounds[0], min(total, sum(envelope, ZERO), Decimal(len(bounds)).sqrt() * norm)
    # two that fit into one largest bound are moved into one
    fewer = min(len(bounds), max(ceil(2 * whole / top) - 1, 1))
    packed = [min(top, whole / k * ROUND) for k in range(1, fewer + 1)]
    found = [envelope, packed, [whole]]
    if name in WHOLE:
        found = [[Decimal(int(v)) for v in vector] for vector in found]
    cases = (grouped([v for v in vector if v > 0]) for vector in found)
    return sorted({tuple(case): case for case in cases}.values(), key=len)


def grouped(vector: list[Decimal]) -> Shifts:
    """Equal shifts counted; where there are many, groups as large as their largest, cut where the sum of squares falls most."""
    sizes = sorted(Counter(vector).items(), reverse=True)
    squares, counts = [float(v) ** 2 for v, _ in sizes], [count for _, count in sizes]
    before = [0, *accumulate(counts)]
    cuts = [0, len(sizes)]
    while len(cuts) <= min(GROUPS, len(sizes)):
        saved = (
            ((squares[a] - squares[i]) * (before[b] - before[i]), i)
            for a, b in pairwise(cuts)
            for i in range(a + 1, b)
        )
        cuts = sorted([*cuts, max(saved)[1]])
    return [(sizes[a][0], before[b] - before[a]) for a, b in pairwise(cuts)]
