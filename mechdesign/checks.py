"""Checks of arguments that many designs share."""

from __future__ import annotations

import math
from typing import Any

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
    """Return `value` as an int, or raise DesignError unless it is an integer from `least` to `most`.

    Examples
    --------
    >>> whole("m", 4.0, 2)
    4
    """
    try:
        number = int(value)
        good = not isinstance(value, (bool, str)) and number == value
    except (TypeError, ValueError, OverflowError):
        good, number = False, 0
    if not good or number < least or (most is not None and number > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise DesignError.of(name, value, f"must be an integer {limits}")
    return number
