r"""What one person does to the counts: at most c of n change, each by at most a.

With signs the changes are the hull of all :math:`\pm a` on c counts; without them, of a on at most c counts, all up or all down.
What a strategy R spends, :math:`\lVert R d \rVert^2`, is convex in d, so that vertices are enough. One changed count needs no
list: its vertices are the columns of the identity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.noise.correlated.corners import LISTED, count_of, signed_supports
from mechdesign.noise.correlated.noise import EXACT, column_spent, largest_spent
from mechdesign.typing import Array

__all__ = ["Changes"]


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
        return count_of(self.size, self.changed, signed=self.signed)

    def check(self) -> None:
        """Raise DesignError where the list is too long."""
        if self.changed > 1 and self.count * self.size > LISTED:
            raise DesignError.of(
                "changed",
                self.changed,
                f"of {self.size} counts makes {self.count} different changes, too many to list; ask for fewer counts, or, of "
                "all counts, CountsGaussian, which needs no list",
            )

    def vectors(self) -> Array:
        """The vertices over a, up to sign, shape (k, n)."""
        self.check()
        if self.changed == 1:
            return np.eye(self.size)
        return signed_supports(self.size, self.changed, signed=self.signed)

    def spent(self, strategy: Array) -> tuple[float, bool]:
        """The most that a change spends of the budget under a strategy, rounded up, and whether it was rational before."""
        if self.changed == 1 and self.size > EXACT:
            return column_spent(strategy, self.most), False
        return largest_spent(strategy, self.most * self.vectors())
