r"""Exact arithmetic: proved rational bounds of the exponential, doubles next to exact numbers; and searches for the least point within a budget.

Everything "certified" in this package rests on these few functions and on `fractions.Fraction`. A double is a
dyadic rational, so bins, budgets and inputs enter exactly.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from flint import arb, ctx, fmpq
from scipy import optimize

from mechdesign.checks import refuse
from mechdesign.errors import SolverError
from mechdesign.solvers.deadline import Deadline, too_late

EXP_BITS = 256
LARGEST = 2**14  # exponent: sums have as many digits


def whole_parts(value: Callable[[], arb], bits: int) -> tuple[int, int]:
    """Return whole numbers around a number, which is enclosed at the working precision, in units of 2^−bits."""
    with ctx.workprec(bits + 64):
        scaled = value() * arb(2) ** bits
        low, high = scaled.lower().floor().unique_fmpz(), scaled.upper().ceil().unique_fmpz()
    assert low is not None and high is not None
    return int(low), int(high)


def fraction_of(x: Any) -> Fraction:
    """Return a number as a fraction; those of NumPy are no rationals, but know their ratio."""
    return Fraction(*x.as_integer_ratio()) if hasattr(x, "as_integer_ratio") else Fraction(x)


@lru_cache(maxsize=1 << 14)
def _exp_bounds(x: Any) -> tuple[Fraction, Fraction]:
    refuse(not abs(x) <= LARGEST, "exponent", x, f"must be finite, and at most {LARGEST} in absolute value")
    if x < 0:
        below, above = _exp_bounds(-x)
        return 1 / above, 1 / below
    low, high = whole_parts(lambda: arb(rational(fraction_of(x))).exp(), EXP_BITS)
    return Fraction(max(low, 1 << EXP_BITS), 1 << EXP_BITS), Fraction(high, 1 << EXP_BITS)


def exp_lower(x: Fraction | float) -> Fraction:
    r"""Return a rational r with :math:`e^x (1 - 2^{-240}) < r \le e^x`.

    Examples
    --------
    >>> exp_lower(1.0) < exp_upper(1.0)
    True
    >>> float(exp_lower(1.0))
    2.718281828459045
    """
    return _exp_bounds(x)[0]


def exp_upper(x: Fraction | float) -> Fraction:
    r"""Return a rational r with :math:`e^x \le r < e^x (1 + 2^{-240})`."""
    return _exp_bounds(x)[1]


def log_upper(ratio: Fraction) -> float:
    """Return a double ε with e^ε ≥ `ratio`, proved, and at most two units in the last place too large.

    Examples
    --------
    >>> log_upper(exp_lower(1.0))
    1.0
    """
    return round_up(log_above(ratio))


def log_above(ratio: Fraction) -> Fraction:
    """Return a rational that is proved to be at least the logarithm of `ratio`, and above it by about 2^-300 of its size."""
    if ratio <= 0:
        raise ValueError("ratio must be positive")
    with ctx.workprec(EXP_BITS + 64):  # next to one the logarithm of the difference
        ball = arb(rational(ratio - 1)).log1p() if 1 < 2 * ratio < 4 else arb(rational(ratio)).log()
        digits, power = ball.upper().man_exp()
    return Fraction(int(digits)) * Fraction(2) ** int(power)


def round_down(value: Fraction | float | int) -> float:
    """Return the largest double not above `value` (to one step).

    Examples
    --------
    >>> round_down(Fraction(1, 3)) <= Fraction(1, 3) < round_up(Fraction(1, 3))
    True
    """
    near = nearest(value)
    return math.nextafter(near, -math.inf) if Fraction(near) > value else near


def round_up(value: Fraction | float | int) -> float:
    """Return the smallest double not below `value` (to one step)."""
    near = nearest(value)
    return math.nextafter(near, math.inf) if Fraction(near) < value else near


def nearest(value: Any) -> float:
    """Return the double nearest to an exact number, or the outermost finite double beyond their range."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(sys.float_info.max, 1 if value > 0 else -1)


def rational(value: Any) -> fmpq:
    """Return the exact value of an integer, a double or a fraction."""
    return value if isinstance(value, fmpq) else fmpq(*value.as_integer_ratio())


def fraction(value: fmpq) -> Fraction:
    """Return the same number in the standard library's arithmetic."""
    return Fraction(int(value.p), int(value.q))


def safe_root(
    excess: Callable[[float], float], low: float, high: float, *, xtol: float = 1e-13, rtol: float = 1e-15
) -> float:
    """Return a point next to the root of a monotone `excess` at which ``excess(x) <= 0`` was computed.

    Parameters
    ----------
    excess : callable
        Excess over the budget; of opposite sign at the two ends.
    low, high : float
        Bracket, either way round.

    Raises
    ------
    SolverError
        The ends do not bracket a root, or no safe point was found next to it.
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
    raise SolverError("no point next to the root is within the budget", solver="root", status="rounding")


def excess(value: float, budget: float) -> float:
    """Return the excess of `value` over `budget`: the log of their ratio above it, the relative difference below; its sign is exact.

    Examples
    --------
    >>> excess(math.nextafter(0.1, 1), 0.1) > 0, excess(0.0, 0.1)
    (True, -1.0)
    """
    over = (min(value, 1e300) - budget) / budget
    return math.log1p(over) if over > 0 else over


def least_kept(
    over: Callable[[float], float],
    start: float,
    *,
    step: float = 1.0,
    growth: float = 2.0,
    least: float = -math.inf,
    most: float = math.inf,
    xtol: float = 1e-13,
    rtol: float = 1e-15,
    deadline: Deadline | None = None,
) -> float:
    """Return the least point found at which a falling `over` is at most 0: a scale, its logarithm, or an ε within a budget.

    Steps grow from `start` until two points are on either side of the budget; between them a root is found.

    Parameters
    ----------
    over : callable
        Excess of a point over the budget; called once a point.
    start, step, growth : float
        The first point, the first step, and the factor of each step to the next.
    least, most : float
        Limits of the points tried. Returns `least` if it is within the budget, ``inf`` if `most` is not.
    xtol, rtol : float
        Tolerances of the root.
    deadline : Deadline, optional
        Past it, the least point within the budget is returned as soon as one is seen; SolverError if a second later there is none.

    Examples
    --------
    >>> from mechdesign.evidence.exact import excess
    >>> round(least_kept(lambda x: excess(1 / x, 0.1), 1.0), 9), least_kept(lambda x: 1 - x, 0.0, most=0.5)
    (10.0, inf)
    """
    clock, seen = Deadline.of(deadline), dict[float, float]()

    def ends() -> tuple[float, float]:
        """Return the largest point seen over the budget, and the least within it."""
        most_over = max((x for x, far in seen.items() if far > 0), default=-math.inf)
        return most_over, min((x for x, far in seen.items() if far <= 0), default=math.inf)

    def kept(x: float) -> float:
        if x not in seen:
            if clock.passed and (ends()[1] < math.inf or clock.elapsed > clock.seconds + 1):
                raise too_late("root")
            seen[x] = over(x)
        return seen[x]

    try:
        at, width, sign = start, step, 1 if kept(start) > 0 else -1
        while math.inf in map(abs, ends()):
            if at == (most if sign > 0 else least):
                return math.inf if sign > 0 else least
            at, width = min(max(at + sign * width, least), most), width * growth
            kept(at)
        return safe_root(kept, *ends(), xtol=xtol, rtol=rtol)
    except SolverError:
        if not clock.passed or ends()[1] == math.inf:
            raise
        return ends()[1]
