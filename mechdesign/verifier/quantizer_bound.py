"""Quantizers: the lower bound, by weak duality; docs/theory says why it holds for every mechanism with these outputs."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import add, mul

from mechdesign.verifier.prior_moments import Moments
from mechdesign.verifier.reading import Account, Json, Refused

UNIT = 1 << 160  # weights of the prior are rounded to multiples of 1/UNIT


def nearest(moments: Moments, points: list[Fraction], x: Fraction) -> Json:
    """The point mass nearest to an input, with its bounds."""
    k = bisect_left(points, x)
    atoms = moments.atoms[max(k - 1, 0) : k + 1] or [(x, (Fraction(0), Fraction(0)))]
    return min(atoms, key=lambda atom: abs(atom[0] - x))


def below(parts: Json, bounds: Json) -> Json:
    """Σ c·m from below, each m between its bounds."""
    return sum(c * m[c <= 0] for c, m in zip(parts, bounds))


def chord(mass: Json, later: Json) -> Json:
    """Bounds of ∫ (1 − t) dF and of ∫ t dF."""
    return (mass[0] - later[1], mass[1] - later[0]), later


def dual_bound(
    duals: Json,
    bins: list[Fraction],
    ends: Json,
    bias: Fraction,
    rho: Fraction,
    loss: Json,
    moments: Moments | None,
    account: Account,
) -> Fraction:
    """Lines under the loss on pieces of the inputs, averaged: a constant plus G · a for the floors a, minimised over a."""
    origin, price, nu = Fraction(duals["origin"]), Fraction(duals["cap_price"]), duals["multipliers"]
    table: Json
    own, between = [Fraction(b) for b in duals.get("outputs") or bins], duals.get("between", False)
    held = all(own[0] <= b <= own[-1] if between else b in own for b in bins)
    if not held or own != sorted({*own}):
        raise Refused("a lower bound for other outputs")
    bins, table = own, [list(map(Fraction, piece)) for piece in duals["pieces"]]
    account.takes(8 * len(table) * len(bins))
    good = all(share >= 0 and u <= (u if moments is None else v) and u <= v for u, v, share, *_ in table)
    low, high = ends[0] - bias - origin, ends[1] + bias - origin
    good = good and (moments is not None or all(low <= u <= high for u, *_ in table))
    if not good or [len(v) for v in nu] != [len(bins)] * 2 or min(map(min, nu)) < 0 or price < 0:
        raise Refused("multipliers that are none")
    spans = sorted({(u, v) for u, v, *_ in table if u < v})
    if spans and moments is None:
        raise Refused("multipliers of stretches where no prior is")
    known = moments.over([(origin + u, origin + v) for u, v in spans], "spans") if moments else []
    cells: Json = dict(zip(spans, known))
    points = [] if moments is None else moments.places
    used, changes = Counter[Json](), Counter[Json]()
    for u, v, share, *_ in table:
        if u < v:
            changes[u], changes[v] = changes[u] + share, changes[v] - share
        else:
            used[None if moments is None else nearest(moments, points, origin + u)[0] - origin] += share
    covered = accumulate(change for _, change in sorted(changes.items()))
    if max([0, *covered, *used.values()]) > 1:
        raise Refused("a part of the prior is counted twice")
    first, second = Fraction(loss["absolute"]), Fraction(loss["squared"]) + price
    unit, rho = math.lcm(*((b - origin).denominator for b in bins)), Fraction(math.ceil(rho * 2**64), 2**64)
    places = [int((b - origin) * unit) for b in bins]
    gradient, total = [0] * len(bins), Fraction(0)
    # In between the reduced cost is convex: it lies below the chord by at most w₂ (step/2)², and by what the turn below takes.
    steps: list[int] = [0, *(b - a for a, b in pairwise(places)), 0]
    dented = [(b, second * max(h) ** 2 / (4 * unit**2) * between) for b, h in zip(places, pairwise(steps))]
    for u, v, share, L, L1, M, M1 in table:
        if u < v:
            masses = cells[u, v]
        else:  # a point mass: u is its rounded distance from the origin; or, for the worst case, a weight
            x, mass = (origin + u, (1, 1)) if moments is None else nearest(moments, points, origin + u)
            u = v = x - origin
            masses = [mass, (0, 0), (0, 0)]
        masses = [(low * share, high * share) for low, high in masses]
        # ∫ (λ + μy − b|μ|) dF with λ = L + w₂y², μ = M − 2w₂y; |μ| lies below its chord.
        dL, dM, w = L1 - L, M1 - M, v - u
        steep, steeper = abs(M - 2 * second * u), abs(M1 - 2 * second * v)
        parts = (
            L + M * u - second * u * u - bias * steep,
            dL + dM * u + M * w - 2 * second * u * w - bias * (steeper - steep),
            dM * w - second * w * w,
        )
        total += below(parts, masses)
        # min(c, ρc) of the reduced cost c is concave in y: above its chord, weighted ∫ (1 − t) dF and ∫ t dF.
        turn = bisect_right(places, (u + v) / 2 * unit)
        if between:  # |b − x| ≥ ±(b − x): the sign turns between two outputs on the same side of the piece
            left, right = bisect_right(places, u * unit) - 1, bisect_left(places, v * unit)
            before = right == len(places) or (left >= 0 and (u + v) * unit < places[left] + places[right])
            turn = max(left, 0) if before else right + 1
        for y, level, tilt, (low, high) in zip((u, v), (L, L1), (M, M1), chord(*masses[:2])):
            up, down = math.floor(max(low, 0) * UNIT), math.ceil(high * rho * UNIT)
            for sign, part in ((-first, slice(0, turn)), (first, slice(turn, None))) if down > 0 else ():
                line = (sign - tilt) / unit, -sign * y - level, second / unit**2
                scale = math.lcm(*(c.denominator for c in line))
                slope, rest, curve = (int(c * scale) for c in line)
                reduced = ((slope + curve * b) * b + rest - math.ceil(d * scale) for b, d in dented[part])
                grown = (c * (up if c > 0 else down) // scale for c in reduced)
                gradient[part] = map(add, gradient[part], grown)
    # G · a ≥ ν · right sides + min_k (G − Cᵀν)_k {1/ρ or 1}, for floors that reach all means of the range.
    least = [Fraction(g, UNIT) for g in gradient]
    sides: list[tuple[Fraction, int, Json]] = [(ends[1], 1, nu[0]), (ends[0], -1, nu[1])]
    for end, side, given in sides:
        prices = list(map(Fraction, given))
        total += sum(p * side * (end - b) for p, b in zip(prices, bins))
        mass, sums = list(accumulate(prices)), list(accumulate(map(mul, prices, bins)))
        for k, b in enumerate(bins):
            left, right = b * mass[k] - sums[k], sums[-1] - sums[k] - b * (mass[-1] - mass[k])
            least[k] -= rho * left - right if side > 0 else rho * right - left
    return total + min(least) * (1 / rho if min(least) > 0 else 1)
