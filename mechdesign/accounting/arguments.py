"""Checks of arguments that accounting shares; every message names the remedy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.problem.checks import doubles, non_negative, number, one_of, positive
from mechdesign.typing import Array

__all__ = ["ACCOUNTING", "beyond_condition", "excess", "inside", "item_level", "levels", "shuffled"]

ACCOUNTING = ("numerical", "closed-form", "composition")


def levels(name: str, value: Any, *, above_zero: bool = False) -> Array:
    """Return `value` as an array of any shape of numbers of at least 0, infinity allowed, or raise DesignError."""
    allowed = f"must be {'positive' if above_zero else 'non-negative'} numbers"
    found = doubles(name, value, allowed)
    if not np.all(found > 0 if above_zero else found >= 0):
        raise DesignError.of(name, value, allowed)
    return found


def inside(name: str, value: Any, low: float, high: float, remedy: str = "") -> float:
    """Return `value` as a float strictly between two numbers, or raise DesignError."""
    found = number(name, value, allowed := f"must be in ({low:g}, {high:g}){remedy}")
    if not low < found < high:
        raise DesignError.of(name, value, allowed)
    return found


def item_level(value: Any) -> float:
    """An item's α₀, or a DesignError where shuffling leaves of it what doubles do not hold to full precision."""
    found = positive("item_alpha", value)
    if found < 1e-290:
        raise DesignError.of("item_alpha", value, "must be at least 1e-290: what shuffling leaves is less")
    return found


def shuffled(accounting: Any, delta: Any, unit: float, item_epsilon: Any) -> tuple[str, float, float]:
    """Return accounting, δ and ε₀ for the clones: α₀ · diameter, or the channel's own smaller loss."""
    name = one_of("accounting", accounting, ACCOUNTING)
    if name != "composition":
        delta = inside(
            "delta", delta, 0, 1, ' (a shuffling bound; for delta = 0 use accounting="composition")'
        )
    own = unit if item_epsilon is None else min(unit, non_negative("item_epsilon", item_epsilon))
    return name, delta, own


def excess(value: float, budget: float) -> float:
    """How far `value` is over `budget`: the log of their ratio above it, a relative difference below; its sign is exact.

    Examples
    --------
    >>> excess(math.nextafter(0.1, 1), 0.1) > 0, excess(0.0, 0.1)
    (True, -1.0)
    """
    over = (min(value, 1e300) - budget) / budget
    return math.log1p(over) if over > 0 else over


def beyond_condition(alpha: float, diameter: float, total: int, delta: float) -> DesignError:
    """Return the error for an α₀ above the closed form's condition."""
    room = total / (16 * math.log(2 / delta))
    limit = math.log(room) / diameter if room > 1 else 0.0
    return DesignError.of(
        "item_alpha",
        alpha,
        f"the closed form needs item_alpha <= log(N / (16 log(2/δ'))) / diameter, at most {limit:.4g} here; "
        'use accounting="numerical", which has no such condition',
    )
