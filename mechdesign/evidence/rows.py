r"""The one check of a lower bound that comes from a linear program: rational rows and their multipliers.

For :math:`\min c x` subject to rows :math:`A x \lessgtr b`, multipliers y of the sign that the senses allow, with reduced costs
:math:`c - y A \ge 0` (0 for a variable of either sign), prove :math:`c x \ge y b`. No multiplier needs to be a solver's, or good: those that
are only prove less. At cost 0 a positive bound proves that the rows have no solution (Farkas).

A question whose bounds come from rows numbers them and states each in rationals (`Rowed.linear_bound`); a proof holds numbers and multipliers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

from mechdesign.errors import DesignError, ResultFormatError, instance
from mechdesign.evidence.proofs import PROVED, Certificate, Claim, Proof
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import LinearBound
from mechdesign.typing import Indices


@runtime_checkable
class Rowed(Protocol):
    """A question that numbers the rows of its linear program."""

    def linear_bound(self, rows: Indices, multipliers: tuple[Fraction, ...]) -> LinearBound:
        """Return the program with these rows, each with its multiplier, and no other."""


@serializable("rows-bound")
@dataclass(frozen=True, eq=False)
class RowsBound(Proof):
    r"""Rows of the question's linear program with multipliers: nothing that the rows allow costs less than :math:`\sum_i y_i b_i`.

    Parameters
    ----------
    rows : array of int, shape (t,)
        Numbers of the rows, increasing.
    multipliers : tuple of Fraction, length t
        Of an inequality, as the question states it, not negative; of an equality of either sign.
    """

    rows: Indices
    multipliers: tuple[Fraction, ...]

    speaks_of = ("lower bound",)

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.multipliers) or (self.rows[1:] <= self.rows[:-1]).any():
            raise DesignError("rows: must be increasing numbers, each with its multiplier")

    def bound_checked(self, stated: Certificate) -> str:
        """Proved, unless the question says that its rows are computed in doubles."""
        return getattr(stated.question, "rows_how", PROVED)

    def program(self, stated: Certificate) -> LinearBound:
        """The rows with their multipliers."""
        return instance("question", stated.question, Rowed).linear_bound(self.rows, self.multipliers)

    def linear_bound(self, stated: Certificate) -> LinearBound:
        return self.program(stated)

    def check(self, stated: Certificate) -> Iterator[Claim]:
        program = self.program(stated)
        if not program.admissible:
            raise ResultFormatError("multipliers leave a negative reduced cost")
        yield self.least(stated, Fraction(int(program.bound.p), int(program.bound.q)))
