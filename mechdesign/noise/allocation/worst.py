"""What no change spends more than, by the proof that is named: prices alone, one norm filled, or every set of coordinates."""

from __future__ import annotations

from fractions import Fraction

from mechdesign.noise.allocation.every_set import most_of_sets
from mechdesign.noise.allocation.filling import most_filled
from mechdesign.noise.allocation.several import Changes, Prices
from mechdesign.typing import Array

__all__ = ["most_spent"]


def most_spent(asked: Changes, scales: Array, prices: Prices, held: str | None = None) -> Fraction | float:
    """An upper bound of what any change spends: held is None (`Changes.spent`), "l1", "l2" (`most_filled`) or "sets" (`most_of_sets`).

    Examples
    --------
    >>> import numpy as np
    >>> asked = Changes(np.ones(4), 2, l1=1.5)
    >>> float(most_spent(asked, np.ones(4), (0.0, 1.0, 0.0))), round(most_spent(asked, np.ones(4), (0.0, 0.0, 0.0), "sets"), 6)
    (1.5, 1.25)
    """
    if held is None or not asked.priced(scales, prices):
        return asked.spent(scales, prices)
    return (
        most_of_sets(asked, scales, prices) if held == "sets" else most_filled(asked, scales, prices, held)[0]
    )
