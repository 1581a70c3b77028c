r"""Repair a float table of probabilities into exact rationals that are unbiased and within the budget.

Every row is rounded to multiples of 2^-80, and its sum and mean are put right exactly by moving its two
largest entries (by about 1e-17, the error of the float solution). The result is accepted only if the exact
ratio is within the budget; a caller whose table was a hair outside solves again for a budget smaller by that hair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.exact import exp_lower
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.mechanism.exact_law import RationalTable
from mechdesign.typing import Array

__all__ = ["certified_table", "rational_table"]

_UNIT = 1 << 80


def rational_table(bins: Any, knots: Any, rows: Array) -> RationalTable:
    """Return the exactly unbiased law next to `rows` (n, m) at `knots` (n,)."""
    b = [Fraction(float(v)) for v in bins]
    x = [Fraction(float(v)) for v in knots]
    table = [
        _moments_repaired([Fraction(round(max(float(p), 0.0) * _UNIT), _UNIT) for p in row], b, v)
        for row, v in zip(rows, x)
    ]
    return RationalTable.continuous(b, x, table)


def certified_table(
    bins: Any, knots: Any, solve: Callable[[float], Array], epsilon: float
) -> QuantizerCertificate:
    """Certify the table that ``solve(budget)`` returns, asking for slightly smaller budgets until it fits.

    Raises
    ------
    InfeasibleError
        The solver's tables stay outside the budget.
    """
    rho = exp_lower(epsilon)
    for shrink in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7):
        law = rational_table(bins, knots, solve(epsilon * (1 - shrink)))
        ratio = law.ratio()
        if ratio is not None and ratio <= rho and all(min(r) >= 0 for r in (*law.starts, *law.ends)):
            return QuantizerCertificate(law, epsilon)
    raise InfeasibleError("no exactly private table was found near the solver's; try another solver")


def _moments_repaired(row: list[Fraction], bins: Sequence[Fraction], x: Fraction) -> list[Fraction]:
    """Make Σp = 1 and Σ B p = x by moving the two largest entries at the outer sides."""
    order = sorted(range(len(row)), key=lambda i: -row[i])
    i = order[0]
    j = next(k for k in order[1:])
    missing = 1 - sum(row)
    moment = x - sum((v * p for v, p in zip(bins, row)), Fraction(0))
    # d_i + d_j = missing, B_i d_i + B_j d_j = moment
    dj = (moment - bins[i] * missing) / (bins[j] - bins[i])
    out = list(row)
    out[i] += missing - dj
    out[j] += dj
    return out
