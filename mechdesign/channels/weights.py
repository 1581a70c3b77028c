"""Channels by integer weights: row x reports y with probability w[x][y] over the total, the same for all rows."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.typing import Array

__all__ = ["integer_weights", "rounded_weights"]


def integer_weights(given: Any) -> tuple[tuple[int, ...], ...]:
    """Return `given` as integer rows of one length and one positive total, or raise a `DesignError`."""
    try:
        rows = tuple(tuple(map(index, row)) for row in given)
    except TypeError:
        raise DesignError.of("weights", given, "must be rows of integers") from None
    same = len({(len(row), sum(row)) for row in rows}) == 1
    if not same or not rows[0] or min(map(min, rows)) < 0 or not sum(rows[0]):
        raise DesignError("weights: must be non-negative integers with the same total in every row")
    return rows


def rounded_weights(weights: tuple[tuple[int, ...], ...]) -> Array:
    """Return the rows of probabilities, each rounded once."""
    total = sum(weights[0])
    return np.array([[w / total for w in row] for row in weights])  # int / int rounds correctly
