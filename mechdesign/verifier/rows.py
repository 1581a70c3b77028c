"""A lower bound as rational rows with multipliers.

Over points x ≥ 0 (some columns of either sign) that meet rows a·x ≤ b and a·x = b, and groups of columns that sum to 1, and for multipliers λ ≥ 0
of the inequalities and ν of the equalities, with reduced costs r = c + Σ λ a + Σ ν a,

    c·x ≥ − Σ λ b − Σ ν b + Σ over groups of the least r in it,

if r ≥ 0 of every column in no group, and r = 0 of those of either sign: each row is added with a sum that is at most 0 on every such x, and a
group's columns are weights of an average. No multiplier needs to be a solver's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from fractions import Fraction

from mechdesign.verifier.reading import Refused

Column = Hashable
Row = tuple[list[tuple[Column, Fraction]], Fraction, bool, Fraction]
"""Coefficients, right side, whether it is an equality, multiplier."""


def lower_bound(
    costs: dict[Column, Fraction], rows: Iterable[Row], groups: Iterable[list[Column]], signed: set[Column]
) -> Fraction:
    """The bound that the multipliers prove; Refused where they prove none."""
    reduced, bound = dict(costs), Fraction(0)
    for terms, right, equal, multiplier in rows:
        if multiplier < 0 and not equal:
            raise Refused("a multiplier of an inequality that is negative")
        bound -= multiplier * right
        for column, factor in terms:
            reduced[column] = reduced.get(column, Fraction(0)) + multiplier * factor
    for group in groups:
        bound += min(reduced.pop(column, Fraction(0)) for column in group)
    if any(left < 0 or (left and column in signed) for column, left in reduced.items()):
        raise Refused("multipliers that leave a reduced cost of the wrong sign")
    return bound
