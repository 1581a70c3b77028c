"""Checks of arguments that many designs share."""

from __future__ import annotations

import math
from typing import Any

from mechdesign.errors import DesignError

__all__ = ["positive"]


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
