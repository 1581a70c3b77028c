"""Rounding to the safe side: doubles next to exact numbers, and roots that stay inside a budget."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction

from scipy import optimize

from mechdesign.errors import SolverError

__all__ = ["excess", "round_down", "round_up", "safe_root"]


def round_down(value: Fraction | float | int) -> float:
    """Return the largest double not above `value` (to one step).

    Examples
    --------
    >>> round_down(Fraction(1, 3)) <= Fraction(1, 3) < round_up(Fraction(1, 3))
    True
    """
    near = _near(value)
    return math.nextafter(near, -math.inf) if Fraction(near) > value else near


def round_up(value: Fraction | float | int) -> float:
    """Return the smallest double not below `value` (to one step)."""
    near = _near(value)
    return math.nextafter(near, math.inf) if Fraction(near) < value else near


def _near(value: Fraction | float | int) -> float:
    """A double next to `value`, the outermost finite one beyond the range of doubles."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(sys.float_info.max, 1 if value > 0 else -1)


def safe_root(
    excess: Callable[[float], float], low: float, high: float, *, xtol: float = 1e-13, rtol: float = 1e-15
) -> float:
    """Return a point next to the root of a monotone `excess` where ``excess(x) <= 0`` was seen to hold.

    Parameters
    ----------
    excess : callable
        What is over the budget; of opposite sign at the two ends.
    low, high : float
        Bracket, either way round.

    Raises
    ------
    SolverError
        The ends do not bracket a root, or no safe point was found beside it.
    """
    at_low, at_high = excess(low), excess(high)
    if not (at_low <= 0 or at_high <= 0) or math.isnan(at_low) or math.isnan(at_high):
        raise SolverError("no point of the bracket is within the budget", solver="root", status="no bracket")
    safe, unsafe = (low, high) if at_low <= 0 else (high, low)
    if excess(unsafe) <= 0:
        return unsafe
    root = float(optimize.brentq(excess, low, high, xtol=xtol, rtol=max(rtol, 4 * 2.3e-16)))
    step = max(abs(root) * 1e-16, xtol * 0.5, 5e-324)
    for _ in range(200):
        if excess(root) <= 0:
            return root
        root += math.copysign(step, safe - root)
        if (root - safe) * (unsafe - safe) <= 0:
            return safe
        step *= 2
    raise SolverError("no point beside the root is within the budget", solver="root", status="rounding")


def excess(value: float, budget: float) -> float:
    """How far `value` is over `budget`: the log of their ratio above it, a relative difference below; its sign is exact.

    Examples
    --------
    >>> excess(math.nextafter(0.1, 1), 0.1) > 0, excess(0.0, 0.1)
    (True, -1.0)
    """
    over = (min(value, 1e300) - budget) / budget
    return math.log1p(over) if over > 0 else over
