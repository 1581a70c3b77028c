r"""Exact expected and worst-case loss of a rational quantizer, for losses :math:`w_1 |t| + w_2 t^2`.

Between neighbouring knots and bins E ℓ(M(x) − x) is a quadratic in x, so its values at both ends and in the middle of
the cell say everything. Each is a combination of the rows at the ends of the segment, and running sums over the
outputs give it in a few operations.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import mul

from mechdesign.problem.losses import Loss
from mechdesign.quantizers.common.enclosures import BITS, Moments, StatedMoments
from mechdesign.quantizers.mechanism.exact_law import ExactLaw

__all__ = ["cell_edges", "expected_upper", "quadratics", "upper", "worst_upper"]

Quadratic = tuple[Fraction, Fraction, Fraction, Fraction, Fraction]


class _Row:
    """One law of the outputs, which are integers in units of 1/unit: its mean loss at any input."""

    def __init__(self, bins: list[int], unit: int, weights: list[int], common: int, loss: Loss) -> None:
        self.bins, self.unit, self.common = bins, unit, common
        self.first, self.second = Fraction(loss.absolute), Fraction(loss.squared)
        self.mass = list(accumulate(weights, initial=0))
        moments = list(map(mul, bins, weights))
        self.moment = list(accumulate(moments, initial=0))
        self.square = sum(map(mul, bins, moments)) if self.second else 0

    def loss(self, x: Fraction) -> Fraction:
        # Everything over x's denominator d and the outputs' unit: x = n / (d · unit).
        n, d = x.numerator * self.unit, x.denominator
        k = bisect_right(self.bins, n // d)
        away = d * (self.moment[-1] - 2 * self.moment[k]) - n * (self.mass[-1] - 2 * self.mass[k])
        total = self.first * Fraction(away, d * self.unit * self.common)
        if self.second:
            square = d * (d * self.square - 2 * n * self.moment[-1]) + n * n * self.mass[-1]
            total += self.second * Fraction(square, (d * self.unit) ** 2 * self.common)
        return total


def inner_edges(law: ExactLaw, start: Fraction, end: Fraction) -> list[Fraction]:
    """The ends of a segment and the outputs between."""
    return [start, *law.bins[bisect_right(law.bins, start) : bisect_left(law.bins, end)], end]


def cell_edges(law: ExactLaw) -> list[Fraction]:
    """Knots and the outputs between: on each cell the expected loss is a quadratic."""
    return [law.knots[0], *(x for ends in pairwise(law.knots) for x in inner_edges(law, *ends)[1:])]


def quadratics(law: ExactLaw, loss: Loss) -> Iterator[Quadratic]:
    """Ends u, v of every cell, and a, b, c: E ℓ = a + b t + c t² there, t = (x − u)/(v − u)."""
    unit = math.lcm(*(b.denominator for b in law.bins))
    bins = [int(b * unit) for b in law.bins]
    last: tuple[list[int], int] = [], 1
    row = _Row(bins, unit, *law.weights(0, 0), loss)
    for k, (start, end) in enumerate(pairwise(law.knots)):
        rows = []
        for side in (0, 1):
            if (found := law.weights(k, side)) != last:  # where the law is continuous, once a knot
                row, last = _Row(bins, unit, *found, loss), found
            rows.append(row)

        def at(
            x: Fraction, rows: list[_Row] = rows, start: Fraction = start, end: Fraction = end
        ) -> Fraction:
            t = (x - start) / (end - start)
            return (1 - t) * rows[0].loss(x) + t * rows[1].loss(x)

        edges = inner_edges(law, start, end)
        values = [at(x) for x in edges]
        for (u, v), (low, high) in zip(pairwise(edges), pairwise(values)):
            middle = at((u + v) / 2)
            yield u, v, low, 4 * middle - 3 * low - high, 2 * (low + high - 2 * middle)


def upper(coefficient: Fraction, enclosure: tuple[int, int]) -> Fraction:
    """The largest the product can be, in units of 2⁻¹⁶⁰."""
    return coefficient * enclosure[1 if coefficient > 0 else 0]


def expected_upper(law: ExactLaw, moments: Moments | StatedMoments, loss: Loss) -> Fraction:
    """An upper bound of E ℓ(M(X) − X), above it by the width of the prior's enclosures only."""
    cells = list(quadratics(law, loss))
    edges = [cells[0][0], *(v for _, v, *_ in cells)]
    total = Fraction(0)
    for (_, _, *coefficients), parts in zip(cells, moments.density(edges)):
        total += sum(map(upper, coefficients, parts), Fraction(0))
    for x, weight in moments.atoms:
        k = min(max(bisect_right(edges, x) - 1, 0), len(cells) - 1)
        u, v, a, b, c = cells[k]
        t = (x - u) / (v - u)
        total += upper(a + b * t + c * t * t, weight)
    return total / (1 << BITS)


def worst_upper(law: ExactLaw, loss: Loss) -> Fraction:
    """sup over inputs of E ℓ(M(x) − x): the largest end or peak of the quadratics, exact."""
    best = Fraction(0)
    for _, _, a, b, c in quadratics(law, loss):
        best = max(best, a, a + b + c)
        if c < 0 < b and b < -2 * c:
            best = max(best, a - b * b / (4 * c))
    return best
