r"""What one person does to the counts: at most c of n change, each by at most a.

With signs the changes are the hull of all :math:`\pm a` on c counts; without them, of a on at most c counts, all up or all down.
What a strategy R spends, :math:`\lVert R d \rVert^2`, is convex in d, so that vertices are enough. One changed count needs no
list: its vertices are the columns of the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.noise.correlated.whitened import largest_spent
from mechdesign.typing import Array

__all__ = ["Changes"]

_LISTED = 10_000_000
"""Entries of the list of changes, at most."""


@dataclass(frozen=True)
class Changes:
    """At most `changed` of `size` counts change, each by at most `most`.

    Parameters
    ----------
    size, changed : int
    most : float
    signed : bool
        Whether some counts may rise while others fall.

    Examples
    --------
    >>> Changes(20, 3, 1.0, signed=False).count, Changes(20, 3, 1.0, signed=True).count
    (1350, 4560)
    """

    size: int
    changed: int
    most: float
    signed: bool

    @property
    def count(self) -> int:
        """How many vertices there are, up to sign."""
        n, c = self.size, self.changed
        if self.signed:
            return int(math.comb(n, c) * 2 ** (c - 1))
        return sum(math.comb(n, k) for k in range(1, c + 1))

    def check(self) -> None:
        """Raise DesignError where the list is too long."""
        if self.changed > 1 and self.count * self.size > _LISTED:
            raise DesignError.of(
                "changed",
                self.changed,
                f"of {self.size} counts makes {self.count} different changes, too many to list; ask for fewer counts, or, of "
                "all counts, CountsGaussian, which needs no list",
            )

    def vectors(self) -> Array:
        """The vertices over a, up to sign, shape (k, n)."""
        self.check()
        n, c = self.size, self.changed
        if c == 1:
            return np.eye(n)
        sizes = (c,) if self.signed else range(1, c + 1)
        patterns = {
            k: list(product((1.0, -1.0), repeat=k - 1)) if self.signed else [(1.0,) * (k - 1)] for k in sizes
        }
        rows = np.zeros((self.count, n))
        at = 0
        for k in sizes:
            signs = np.array([(1.0, *p) for p in patterns[k]])
            for places in combinations(range(n), k):
                rows[at : at + len(signs), places] = signs
                at += len(signs)
        return rows

    def spent(self, strategy: Array) -> tuple[float, bool]:
        """The most that a change spends of the budget under a strategy, rounded up, and whether it was rational before."""
        return largest_spent(strategy, self.most * self.vectors())
