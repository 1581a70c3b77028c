"""The laws of quantizers, each as rows that are affine in the input between knots.

Three kinds of law stand in files. A *rational table* states the rows at the start and at the end of every segment between two
knots. A *selection law* draws an output on each side of the input and rounds between the two without bias. A *block fill* adds to
floors a what a block of length 1 − Σa covers of the weights (ρ − 1)a laid side by side, its place being such that the row's mean is
the input.

Theorem: for each of them every probability p(x, i) is an affine function of the input x between neighbouring knots. So what is
linear in a row, its sum, its mean and every p(x, i) ≤ c p(x', i), holds for all inputs once it holds at both ends of every segment.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

from mechdesign.verifier.reading import Account, Json, Refused


class Segments(NamedTuple):
    """Knots, and a row at the start and one at the end of each segment between them: integers over a common denominator."""

    knots: list[Fraction]
    rows: list[list[int]]
    common: int

    @property
    def continuous(self) -> bool:
        """Whether each segment begins with the row that the one before ends with."""
        return self.rows[1:-1:2] == self.rows[2::2]

    @property
    def at_knots(self) -> list[list[int]]:
        """The rows at the knots of a continuous law."""
        return [self.rows[0], *self.rows[1::2]]


def segments_of(law: Json, account: Account) -> Segments:
    """The segments of a law of any of the three kinds."""
    if law is None or law[""] not in LAWS:
        raise Refused("no exact law")
    found = LAWS[law[""]](law, account)
    if len(found.knots) < 2 or len(found.rows) != 2 * len(found.knots) - 2:
        raise Refused("segments that are not those between the knots")
    return found


def rational_table(law: Json, account: Account) -> Segments:
    rows = [law[name][k] for k in range(len(law["starts"])) for name in ("starts", "ends")]
    if len(law["starts"]) != len(law["ends"]):
        raise Refused("a table with more starts than ends, or fewer")
    return over_common(law["knots"], rows, account)


def over_common(knots: list[Fraction], rows: list[list[Fraction]], account: Account) -> Segments:
    common = 1
    for denominator in {p.denominator for row in rows for p in row}:
        account.divides(1, denominator.bit_length())
        account.takes(1, common.bit_length())
        common = math.lcm(common, denominator)
    widest = max(p.denominator.bit_length() for row in rows for p in row)
    account.divides(sum(map(len, rows)), widest)
    account.takes(sum(map(len, rows)), common.bit_length())
    return Segments(knots, [[int(p * common) for p in row] for row in rows], common)


def selection_law(law: Json, account: Account) -> Segments:
    """For x in [B_j, B_{j+1}) a left output l ≤ j and a right one r > j by their weights; then l with probability
    (B_r − x)/(B_r − B_l), else r."""
    bins, lower, upper = law["bins"], law["lower"], law["upper"]
    m = len(bins)
    sides = law["left"], law["right"]
    if any([len(weights) for weights in side] != [*range(1, m)] for side in sides):
        raise Refused("selection weights of other lengths than 1, 2, …")
    if any(min(weights) < 0 or sum(weights) <= 0 for side in sides for weights in side):
        raise Refused("selection weights must not be negative")
    knots = [lower, *[b for b in bins if lower < b < upper], upper]
    bits = m * max((b.numerator * b.denominator).bit_length() for b in bins)  # of a sum of 1/(r − l)
    account.divides(len(knots) * m * (8 + m / 8), min(bits, 60 * m))
    rows = []
    for start, end in pairwise(knots):
        j = min(sum(b <= start for b in bins), m - 1)
        left, right = law["left"][j - 1], law["right"][m - j - 1][::-1]
        total_left, total_right = sum(left), sum(right)
        # Of a left output l: Σ_r w_r (r − x)/(r − l) = Σ_r w_r + (l − x) Σ_r w_r/(r − l); of a right one its mirror image.
        shares = [sum(Fraction(w) / (r - l) for w, r in zip(right, bins[j:]) if w) for l in bins[:j]]
        shares += [-sum(Fraction(w) / (r - l) for w, l in zip(left, bins[:j]) if w) for r in bins[j:]]
        others = [total_right] * j + [total_left] * (m - j)
        for x in (start, end):
            parts = zip([*left, *right], bins, shares, others, strict=True)
            rows.append(
                [w * (other + (b - x) * share) / (total_left * total_right) for w, b, share, other in parts]
            )
    return over_common(knots, rows, account)


def block_fill_law(law: Json, account: Account) -> Segments:
    """Knots are where an end of the block passes the border of a weight, and the ends of the inputs."""
    bins, floors, rho, lower, upper = (law[key] for key in ("bins", "floors", "rho", "lower", "upper"))
    unit = math.lcm(*(a.denominator for a in floors)) * rho.denominator
    account.takes(8 * len(bins) ** 2, unit.bit_length())
    base, caps = [int(a * unit) for a in floors], [int(a * rho * unit) for a in floors]
    edges = list(accumulate((c - a for a, c in zip(base, caps)), initial=0))
    block, least = unit - sum(base), sum(map(mul, base, bins))
    if len(floors) != len(bins) or not 0 <= block <= edges[-1] or min(floors) < 0:
        raise Refused("floors that no block fills")
    areas = (((end - start) * b) for start, end, b in zip(edges, edges[1:], bins))
    moments = list(accumulate(areas, initial=Fraction(0)))

    def moment_up_to(place: Fraction) -> Fraction:
        k = min(bisect_right(edges, place), len(bins)) - 1
        return Fraction(moments[k] + (place - edges[k]) * bins[k])

    last = edges[-1] - block
    inside = {edge - shift for edge in edges for shift in (0, block)}
    places = [0, *sorted(place for place in inside if 0 < place < last), last]
    means = [(least + moment_up_to(place + block) - moment_up_to(place)) / unit for place in places]
    knots: list[tuple[Fraction, Fraction]] = []  # each with the place of the block there
    nearest = (upper - lower) / 2**40  # closer knots are one
    for (s, t), (mean, following) in zip(pairwise(places), pairwise(means)):
        if mean >= following or following <= lower or mean >= upper:
            continue
        for x in (max(mean, lower), min(following, upper)):
            if x == upper and len(knots) > 1 and x - knots[-1][0] < nearest:
                knots.pop()
            if not knots or x - knots[-1][0] >= nearest:
                knots.append((x, s + (t - s) * (x - mean) / (following - mean)))
    scale, rows = math.lcm(*(place.denominator for _, place in knots)), []
    account.takes(4 * len(knots) * len(bins), unit.bit_length() + scale.bit_length())
    for start in (int(place * scale) for _, place in knots):
        stop = start + block * scale
        covered = (max(min(stop, v * scale) - max(start, u * scale), 0) for u, v in pairwise(edges))
        rows.append([a * scale + c for a, c in zip(base, covered)])
    return Segments([x for x, _ in knots], [row for pair in pairwise(rows) for row in pair], unit * scale)


LAWS: dict[str, Callable[[Json, Account], Segments]] = {
    "block-fill-law": block_fill_law,
    "selection-law": selection_law,
    "rational-table": rational_table,
}
