r"""From floats to exact rows: the repair of sums and means, and the loop that stays inside the budget.

A row is rounded to multiples of 2⁻⁸⁰, and its sum and mean are put right exactly by moving its two largest entries (by
about 1e-17, the error of the float solution). What comes out may be over the privacy budget by the tolerance of
the solver: `tightened` then asks the solver again for a budget smaller by that hair, until the exact law is inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.exact import exp_lower
from mechdesign.quantizers.mechanism.exact_law import ExactLaw, RationalTable
from mechdesign.typing import Array

__all__ = ["certified_law", "excess_loss", "rational_row", "rational_table", "tightened"]

_UNIT = 1 << 80
_NOTHING = Fraction(0)

T = TypeVar("T")


def rational_row(row: Sequence[float], bins: Sequence[Fraction], mean: Fraction) -> list[Fraction]:
    """Return the rational row next to `row` with Σp = 1 and Σ B p = `mean`, its two largest entries moved.

    Entries other than those two stay non-negative; whether the two do is for the caller to check.

    Examples
    --------
    >>> row = rational_row([0.3, 0.0, 0.7], [Fraction(-1), Fraction(0), Fraction(1)], Fraction(2, 5))
    >>> [str(p) for p in row]
    ['3/10', '0', '7/10']
    """
    return _row(row, bins, mean, *_in_units(bins))


def _in_units(bins: Sequence[Fraction]) -> tuple[list[int], int]:
    """The outputs as multiples of one over a whole number."""
    unit = math.lcm(*(b.denominator for b in bins))
    return [b.numerator * (unit // b.denominator) for b in bins], unit


def _row(
    row: Sequence[float], bins: Sequence[Fraction], mean: Fraction, whole: list[int], unit: int
) -> list[Fraction]:
    counts = [round(p * _UNIT) if p > 0 else 0 for p in map(float, row)]
    out = [Fraction(n, _UNIT) if n else _NOTHING for n in counts]
    i, j = sorted(range(len(out)), key=lambda k: -counts[k])[:2]
    missing = Fraction(_UNIT - sum(counts), _UNIT)
    # in whole numbers first: most rows have many outputs, and few in use
    moment = mean - Fraction(sum(n * b for n, b in zip(counts, whole) if n), unit * _UNIT)
    # d_i + d_j = missing, B_i d_i + B_j d_j = moment
    change = (moment - bins[i] * missing) / (bins[j] - bins[i])
    out[i] += missing - change
    out[j] += change
    return out


def rational_table(bins: Any, knots: Any, rows: Array) -> RationalTable:
    """Return the exactly unbiased law next to `rows` (n, m) at `knots` (n,), interpolated between them."""
    b, x = ([Fraction(float(v)) for v in values] for values in (bins, knots))
    units = _in_units(b)
    return RationalTable.continuous(b, x, [_row(row, b, mean, *units) for row, mean in zip(rows.tolist(), x)])


def excess_loss(law: ExactLaw, epsilon: float) -> float:
    """By how much the exact privacy loss of `law` is over ε: at most 0 inside, ∞ where it is infinite or no law.

    The sign is exact; the size, rounded, is what `tightened` takes off the budget.

    Examples
    --------
    >>> half = (Fraction(1, 2), Fraction(1, 2))
    >>> law = RationalTable.continuous((Fraction(-1), Fraction(1)), (Fraction(0), Fraction(1)), (half, half))
    >>> excess_loss(law, 1.0)
    -1.0
    """
    low, _ = law.extremes()
    ratio = law.ratio()
    if ratio is None or min(low) < 0:
        return math.inf
    rho = exp_lower(min(epsilon, 700.0))
    relative = ratio / rho
    if relative > Fraction(11, 10) or relative < Fraction(9, 10):
        return math.log(relative.numerator) - math.log(relative.denominator)
    over = math.log1p(float(relative - 1))
    return max(over, math.ulp(0.0)) if relative > 1 else min(over, 0.0)


def tightened(
    solve: Callable[[float], T | None],
    excess: Callable[[T], float],
    budget: float,
    *,
    shrink: float = 0.0,
    attempts: int = 12,
) -> T:
    """Return the first answer of ``solve(b)``, for budgets b falling from `budget`, that is exactly inside it.

    A float solver oversteps by the order of its tolerance, so that a budget smaller by one and a half times the excess
    suffices, mostly at once.

    Parameters
    ----------
    solve : callable
        Budget to answer: the exact law, or whatever `excess` can judge; None ends the search.
    excess : callable
        Answer to what it is over `budget`: at most 0 when it is inside, ∞ when no size can be given
        (`excess_loss` for pure privacy).
    budget : float
        The privacy budget.
    shrink : float
        How much smaller, relative, the first budget is.
    attempts : int
        Solves at most.

    Raises
    ------
    InfeasibleError
        No answer was inside.

    Examples
    --------
    >>> tightened(lambda budget: budget + 1e-9, lambda loss: loss - 1.0, 1.0) <= 1.0
    True
    """
    for _ in range(attempts):
        answer = solve(budget * (1 - shrink))
        if answer is None:
            break
        over = excess(answer)
        if over <= 0:
            return answer
        least = 4e-16 * max(1.0, 1.0 / budget)
        shrink = max(least, 10 * shrink if math.isinf(over) else shrink + 1.5 * over / budget)
        if shrink >= 1:
            break
    raise InfeasibleError(
        f"no exactly private mechanism within {budget!r} was found next to the solver's: ask for a slightly larger "
        "epsilon, or try another solver"
    )


def certified_law(bins: Any, knots: Any, solve: Callable[[float], Array], epsilon: float) -> RationalTable:
    """Return the exact law of the table that ``solve(budget)`` returns, `tightened` until it is inside ε."""
    return tightened(
        lambda budget: rational_table(bins, knots, solve(budget)),
        lambda law: excess_loss(law, epsilon),
        epsilon,
    )
