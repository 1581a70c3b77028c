"""Checks of arguments that many designs share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mechdesign.errors import DesignError

__all__ = ["positive", "whole"]


def positive(name: str, value: Any) -> float:
    """Return `value` as a float, or raise DesignError unless it is a positive, finite number.

    Examples
    --------
    >>> positive("epsilon", 1)
    1.0
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DesignError.of(name, value, "must be a positive, finite number") from None
    if not (math.isfinite(number) and number > 0):
        raise DesignError.of(name, value, "must be a positive, finite number")
    return number


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return `value` as an int, or raise DesignError unless it is an integer (no bool) from `least` to `most`.

    Examples
    --------
    >>> whole("m", 4, 2)
    4
    """
    good = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not good or value < least or (most is not None and value > most):
        if most is not None:
            wanted = f"an integer from {least} to {most}"
        else:
            wanted = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise DesignError.of(name, value, f"must be {wanted}")
    return int(value)
