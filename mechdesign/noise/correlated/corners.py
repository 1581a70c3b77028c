r"""The corners of what a sensitivity allows, listed: what a covariance or a strategy must cover.

What a strategy R consumes, :math:`\lVert R d \rVert^2`, is convex in the change d, so that vertices are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from math import comb

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.noise.correlated.noise import EXACT, column_spent, largest_spent
from mechdesign.problem.checks import UP, instance, integer, positive
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array

LISTED = 10_000_000
"""Entries of a list of changes, at most."""


def size_of_change(name: str, value: object) -> float:
    """The most that one count changes, where doubles hold its square: between 1e-100 and 1e100."""
    found = positive(name, value, side=UP)
    if not 1e-100 <= found <= 1e100:
        raise DesignError.of(name, found, "must be between 1e-100 and 1e100: choose another unit")
    return found


def count_of(size: int, l0: int, *, signed: bool) -> int:
    """How many corners there are, up to sign.

    Examples
    --------
    >>> count_of(20, 3, signed=False), count_of(20, 3, signed=True)
    (1350, 4560)
    """
    if signed:
        return int(comb(size, l0) * 2 ** (l0 - 1))
    return sum(comb(size, k) for k in range(1, l0 + 1))


def signed_supports(size: int, l0: int, *, signed: bool) -> Array:
    """Corners of {|v_i| ≤ 1, at most c not zero}, up to sign; without signs those of {0 ≤ v_i ≤ 1}.

    With signs those of c entries are enough: the others are their averages.

    Examples
    --------
    >>> signed_supports(3, 2, signed=False).astype(int).tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]]
    """
    rows, at = np.zeros((count_of(size, l0, signed=signed), size)), 0
    for k in (l0,) if signed else range(1, l0 + 1):
        signs = (
            np.array([(1.0, *p) for p in product((1.0, -1.0), repeat=k - 1)]) if signed else np.ones((1, k))
        )
        for places in combinations(range(size), k):
            rows[at : at + len(signs), places] = signs
            at += len(signs)
    return rows


def corners(sensitivity: Sensitivity, dimension: int) -> Array:
    """The corners of the changes that bounds of single coordinates and a number of changed ones allow, up to sign.

    An ℓ₁ bound alone has one corner a coordinate. Other sets, and those of too many corners, are refused.

    Examples
    --------
    >>> corners(Sensitivity(l1=2.0), 2)
    array([[2., 0.],
           [0., 2.]])
    """
    s = instance("sensitivity", sensitivity, Sensitivity)
    if s.each is None and not dimension:
        raise DesignError.of(
            "vectors",
            str(s),
            "do not say how many coordinates there are: use CorrelatedGaussian.of_sensitivity, or each=",
        )
    s.check(integer("dimension", dimension, 1))
    single = min((b for b in (s.linf, s.l1, s.l2) if b is not None), default=np.inf)
    bounds = np.full(dimension, single) if s.each is None else np.minimum(s.each, single)
    moved = np.flatnonzero(bounds)
    count = min(s.l0 or len(moved), len(moved))
    if s.l1 is not None and (bounds[moved] == s.l1).all():
        count = 1
    elif s.l1 is not None or s.l2 is not None:
        raise DesignError.of(
            "sensitivity",
            str(s),
            "has no list of corners: bounds of single coordinates, l0=, or l1= alone have one",
        )
    if count_of(len(moved), count, signed=s.signed) * dimension > LISTED:
        raise DesignError.of(
            "sensitivity",
            str(s),
            "has too many corners to list; where all coordinates are alike, CountsGaussian needs no list",
        )
    found = np.zeros((count_of(len(moved), count, signed=s.signed), dimension))
    found[:, moved] = signed_supports(len(moved), count, signed=s.signed) * bounds[moved]
    return found


@dataclass(frozen=True)
class Changes:
    """At most `l0` of `size` counts change, each by at most `most`.

    Parameters
    ----------
    size, l0 : int
    most : float
    signed : bool
        Whether some counts may rise while others fall.

    Examples
    --------
    >>> Changes(20, 3, 1.0, signed=False).count, Changes(20, 3, 1.0, signed=True).count
    (1350, 4560)
    """

    size: int
    l0: int
    most: float
    signed: bool

    @property
    def count(self) -> int:
        """How many vertices there are, up to sign."""
        return count_of(self.size, self.l0, signed=self.signed)

    @property
    def listed(self) -> bool:
        """Whether `vectors` are all of them: a few prove a lower bound, but not that a strategy keeps the budget."""
        return True

    def check(self) -> None:
        """Raise DesignError where the list is too long."""
        if self.l0 > 1 and self.count * self.size > LISTED:
            raise DesignError.of(
                "l0",
                self.l0,
                f"of {self.size} counts makes {self.count} different changes, too many to list; ask for fewer counts, or, of "
                "all counts, CountsGaussian, which needs no list",
            )

    def vectors(self) -> Array:
        """The vertices over a, up to sign, shape (k, n)."""
        return signed_supports(self.size, self.l0, signed=self.signed)

    def spent(self, strategy: Array) -> tuple[float, bool]:
        """Upper bound on the budget that a change consumes under a strategy, and whether it is a rational number rounded up."""
        if self.l0 == 1 and self.size > EXACT:
            return column_spent(strategy, self.most), False
        return largest_spent(strategy, self.most * self.vectors())
