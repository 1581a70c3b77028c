"""Checks of the arguments of the shuffling accounting; every message names the remedy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mechdesign.errors import DesignError

__all__ = [
    "ACCOUNTING",
    "beyond_condition",
    "check_accounting",
    "check_delta",
    "largest_loss",
]

ACCOUNTING = ("numerical", "closed-form", "composition")


def largest_loss(unit: float, item_epsilon: float | None) -> float:
    """ε₀ for the clones: α₀ · diameter, or the channel's own smaller loss."""
    if item_epsilon is None:
        return unit
    value = float(item_epsilon)
    if not value >= 0:
        raise DesignError.of("item_epsilon", item_epsilon, "must be non-negative")
    return min(unit, value)


def check_delta(delta: Any) -> None:
    """Refuse δ outside (0, 1)."""
    if not (isinstance(delta, (int, float, np.floating)) and 0 < delta < 1):
        raise DesignError.of(
            "delta",
            delta,
            'a shuffling bound needs 0 < delta < 1; for delta = 0 use accounting="composition"',
        )


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


def check_accounting(accounting: Any) -> None:
    """Refuse an unknown accounting."""
    if accounting not in ACCOUNTING:
        raise DesignError.of("accounting", accounting, f"must be one of {', '.join(map(repr, ACCOUNTING))}")
