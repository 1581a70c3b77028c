r"""Rational quantizers: what a certificate speaks of and what the exact sampler draws from.

An exact law is a quantizer whose knots and probabilities are rational numbers. It offers its rows at the
two ends of every segment; between them every probability is affine in the input, so that whatever holds for
the rows holds on the whole segment.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.typing import Array

__all__ = ["ExactLaw", "RationalTable", "SelectionLaw"]


class ExactLaw(ABC):
    """A rational quantizer.

    Attributes
    ----------
    bins : tuple of Fraction, length m
    knots : tuple of Fraction, length K + 1
    """

    bins: tuple[Fraction, ...]
    knots: tuple[Fraction, ...]

    @abstractmethod
    def row(self, segment: int, end: int) -> list[Fraction]:
        """Probabilities at the start (``end=0``) or the end (``end=1``) of a segment, as one-sided limits."""

    def weights(self, segment: int, end: int) -> tuple[list[int], int]:
        """The row as integers over a common denominator."""
        row = self.row(segment, end)
        common = math.lcm(*{p.denominator for p in row})
        return [p.numerator * (common // p.denominator) for p in row], common

    def limits(self) -> Iterator[tuple[Fraction, list[int], int]]:
        """Every knot with the row's limits there from either side, as integers over a common denominator."""
        for k, ends in enumerate(pairwise(self.knots)):
            for end in (0, 1):
                yield ends[end], *self.weights(k, end)

    def extremes(self) -> tuple[list[Fraction], list[Fraction]]:
        """Smallest and largest probability of every output over the whole input range."""
        low: dict[int, list[int]] = {}
        high: dict[int, list[int]] = {}
        for _, weights, common in self.limits():
            low[common] = list(map(min, low.get(common, weights), weights))
            high[common] = list(map(max, high.get(common, weights), weights))
        return _extreme(low, 1), _extreme(high, -1)

    def ratio(self) -> Fraction | None:
        """Largest ratio of probabilities of one output over two inputs; None when it is infinite."""
        low, high = self.extremes()
        if any(a == 0 < b for a, b in zip(low, high)):
            return None
        return max((b / a for a, b in zip(low, high) if a > 0), default=Fraction(1))

    def tables(self) -> tuple[Array, Array]:
        """Rows at the starts and at the ends, rounded to doubles; each of shape (K, m)."""
        count = len(self.knots) - 1
        starts, ends = (
            np.array([[float(p) for p in self.row(k, end)] for k in range(count)]) for end in (0, 1)
        )
        return starts, ends


def _extreme(rows: dict[int, list[int]], sign: int) -> list[Fraction]:
    """Least (or, for sign −1, largest) entry of every column; the keys are the denominators of the rows."""
    (common, best), *others = rows.items()
    kept = [(n, common) for n in best]
    for d, row in others:
        kept = [(n, d) if sign * (n * e - b * d) < 0 else (b, e) for n, (b, e) in zip(row, kept)]
    return [Fraction(n, d) for n, d in kept]


@serializable("rational-table")
@dataclass(frozen=True)
class RationalTable(ExactLaw):
    """An exact law given by its rows.

    Parameters
    ----------
    bins, knots : tuples of Fraction
    starts, ends : tuples of K rows of m Fractions
        One-sided limits at the start and the end of each segment.
    """

    bins: tuple[Fraction, ...]
    knots: tuple[Fraction, ...]
    starts: tuple[tuple[Fraction, ...], ...]
    ends: tuple[tuple[Fraction, ...], ...]

    def __post_init__(self) -> None:
        if not len(self.starts) == len(self.ends) == len(self.knots) - 1:
            raise DesignError("a law's rows must be two for each segment between knots")

    def row(self, segment: int, end: int) -> list[Fraction]:
        return list((self.ends if end else self.starts)[segment])

    def tables(self) -> tuple[Array, Array]:
        starts, ends = self._doubles
        return starts.copy(), ends.copy()

    @cached_property
    def _doubles(self) -> tuple[Array, Array]:
        # a continuous law's rows stand in both tables, and most entries of a large one are 0
        rows = {id(row): row for row in (*self.starts, *self.ends)}
        floats = {key: [float(p) if p else 0.0 for p in row] for key, row in rows.items()}
        starts, ends = (np.array([floats[id(row)] for row in part]) for part in (self.starts, self.ends))
        return starts, ends

    @classmethod
    def continuous(
        cls, bins: Sequence[Fraction], knots: Sequence[Fraction], rows: Sequence[Sequence[Fraction]]
    ) -> RationalTable:
        """Interpolate rows given at the knots themselves."""
        table = tuple(tuple(row) for row in rows)
        return cls(tuple(bins), tuple(knots), table[:-1], table[1:])


@serializable("selection-law")
@dataclass(frozen=True)
class SelectionLaw(ExactLaw):
    r"""The selection family with integer weights.

    For x in :math:`[B_j, B_{j+1})` a left index l ≤ j is drawn with probability ``left[j-1][l-1]/Σ left[j-1]``,
    a right index r > j with ``right[m-j-1][m-r]/Σ right[m-j-1]``, and the output is :math:`B_l` with
    probability :math:`(B_r - x)/(B_r - B_l)`, else :math:`B_r`. Rows therefore sum to one and have mean x
    identically, whatever the weights.

    Parameters
    ----------
    bins : tuple of Fraction, length m
    left, right : tuples of m − 1 tuples of non-negative integers, the n-th of length n
    lower, upper : Fraction
        The input range.
    """

    bins: tuple[Fraction, ...]
    left: tuple[tuple[int, ...], ...]
    right: tuple[tuple[int, ...], ...]
    lower: Fraction
    upper: Fraction

    def __post_init__(self) -> None:
        for family in (self.left, self.right):
            if any(sum(row) <= 0 or min(row) < 0 for row in family):
                raise DesignError("selection weights must be non-negative integers, not all zero in a row")

    @cached_property
    def knots(self) -> tuple[Fraction, ...]:  # type: ignore[override]
        return self.lower, *(b for b in self.bins if self.lower < b < self.upper), self.upper

    @cached_property
    def _scale(self) -> int:
        """Common denominator of all positions: scaled by it, extremes compare integers."""
        return math.lcm(*(v.denominator for v in (*self.bins, self.lower, self.upper)))

    def _numerators(self, segment: int, end: int) -> tuple[list[int], list[int]]:
        """Numerators and (unreduced) denominators of the row.

        With all positions scaled to integers b, X, and N_l, N_r the weights of a pair,
        p(x, l) = N_l Σ_r N_r (b_r − X)/(b_r − b_l) over the product of the two weight totals.
        """
        b = [int(v * self._scale) for v in self.bins]
        m, x = len(b), int(self.knots[segment + end] * self._scale)
        j = min(sum(v <= self.knots[segment] for v in self.bins), m - 1)
        nl = self.left[j - 1]
        nr = self.right[m - j - 1][::-1]  # weights of r = j+1 … m
        total = sum(nl) * sum(nr)
        right = [(b[j + k], w) for k, w in enumerate(nr) if w]
        left = [(b[k], w) for k, w in enumerate(nl) if w]
        numerators, denominators = [0] * m, [1] * m
        for l, weight in enumerate(nl):
            if weight:  # bins that are never drawn cost nothing
                common = math.lcm(*(v - b[l] for v, _ in right))
                inner = sum(w * (v - x) * (common // (v - b[l])) for v, w in right)
                numerators[l], denominators[l] = weight * inner, common * total
        for r, weight in enumerate(nr, start=j):
            if weight:
                common = math.lcm(*(b[r] - v for v, _ in left))
                inner = sum(w * (x - v) * (common // (b[r] - v)) for v, w in left)
                numerators[r], denominators[r] = weight * inner, common * total
        return numerators, denominators

    def row(self, segment: int, end: int) -> list[Fraction]:
        return [Fraction(n, d) for n, d in zip(*self._numerators(segment, end))]

    def tables(self) -> tuple[Array, Array]:
        def table(end: int) -> Array:
            rows = [self._numerators(k, end) for k in range(len(self.knots) - 1)]
            return np.array([[n / d for n, d in zip(*row)] for row in rows])  # int/int rounds correctly

        return table(0), table(1)
