r"""Exact arithmetic of channels: from a solver's table to integer weights that are private exactly, and what they cost.

Everything is integers and fractions. The doubles of a design (α, distances, prior, losses) are taken as the rationals they
are, and :math:`e^{αd}` is replaced by a proved rational bound on the side that makes a claim harder.

A solver returns doubles that break :math:`C[x,y] \le e^{αd(x,x')} C[x',y]` within its tolerance. `private_weights`
replaces them by integers, in three steps that keep the set of private channels' structure in view (columns
form a convex cone: sums of private columns are private):

1. **Closure.** Every column is raised to the least private column above it,
   :math:`v_x = \max_{x'} C[x', y]\, e^{-αd(x,x')}`; nothing moves where nothing was broken.
2. **Integers.** Columns are rounded up to multiples of :math:`2^{-B}`, and pairs still broken in exact
   arithmetic are raised, until none is.
3. **Rows.** Sums :math:`s_x` now differ slightly. With :math:`D = \max s + b` the deficits
   :math:`δ_x = D - s_x` are themselves a private column once b is large enough; they are added to the one
   report where they cost least, and every row sums to D.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np

from mechdesign.channels.channel_loss import Weights
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower, exp_upper
from mechdesign.typing import Array

BITS = 120
_SHIFT = 192  # bits kept in bounds of exponentials
_FAR = 128  # αd beyond which the bound of e^{αd} stays: weights span less than e^{84}, so it asks for nothing
_EMPTY = 1e-28  # columns below this everywhere are the solver's zeros


class Growth:
    """Bounds of :math:`e^{αd}` as integers over ``2**shift``, each computed once, and only where doubles do not decide."""

    shift = _SHIFT

    def __init__(self, alpha: float) -> None:
        self._alpha = Fraction(alpha)
        self.lower, self.upper = cache(self._lower), cache(self._upper)

    def _lower(self, distance: float) -> int:
        """Lower bound of e^{αd}."""
        low = exp_lower(min(self._alpha * Fraction(distance), Fraction(_FAR)))
        return (low.numerator << _SHIFT) // low.denominator

    def _upper(self, distance: float) -> int:
        """Upper bound of e^{αd}."""
        high = exp_upper(self._alpha * Fraction(distance))
        return -((-high.numerator << _SHIFT) // high.denominator)

    def near(self, distances: Array) -> Array:
        """`lower` minus 1 in doubles, to one part in 10¹³."""
        with np.errstate(over="ignore", under="ignore"):
            return np.expm1(np.minimum(float(self._alpha) * distances, _FAR))


def _decay(distances: Array, alpha: float) -> Array:
    """e^{-αd}, never so small that the smallest weight next to the largest is not one unit."""
    return np.exp(-np.minimum(alpha * distances, _FAR / 2))


def _closure(matrix: Array, distances: Array, alpha: float) -> Array:
    decay = _decay(distances, alpha)
    closed = np.zeros_like(matrix)
    for x in range(len(matrix)):
        np.maximum(closed, decay[:, x, None] * matrix[x], out=closed)
    return closed


def _raise_broken(weights: list[list[int]], distances: Array, alpha: float, rates: Growth) -> None:
    """Raise entries until ``w[x][y] <= e^{αd} w[x'][y]`` holds for all pairs, with proved bounds of e^{αd}."""
    rows, shift = len(weights), rates.shift
    decay = _decay(distances, alpha)
    np.fill_diagonal(decay, 0.0)
    apart = distances.tolist()
    for _ in range(50 * rows):
        changed = False
        floats = np.array([[float(w) for w in row] for row in weights])
        for x in range(rows):
            # Only pairs within one part in 10¹² of their bound can be broken; doubles find them.
            near = np.argwhere(decay[x][:, None] * floats[x] > floats * (1 - 1e-12))
            for other, y in near.tolist():
                need = weights[x][y] << shift
                lower = rates.lower(apart[x][other])
                if need > lower * weights[other][y]:
                    weights[other][y] = -(-need // lower)
                    floats[other, y] = float(weights[other][y])
                    changed = True
        if not changed:
            return
    raise DesignError("matrix: could not be made private; its distances are far from a metric")


def _surplus(sums: Sequence[int], distances: Array, rates: Growth) -> int:
    """Least b for which the deficits ``b + max(sums) - sums`` are a private column."""
    top, unit = max(sums), 1 << rates.shift
    deficits = [top - s for s in sums]
    # Only the pairs that may need most by doubles are looked at in integers.
    short, growth = np.array(deficits, dtype=float), rates.near(distances)
    with np.errstate(all="ignore"):
        least = (np.subtract.outer(short, short) - growth * short) / growth
        error = 1e-12 * (np.add.outer(short, short) / growth + short + np.abs(least)) + 1
        np.fill_diagonal(least, -np.inf)
        clear = least + error < max(float(np.nanmax(least - error, initial=0.0)), 0.0)
    need = 0
    for x, other in np.argwhere(~clear).tolist():
        rate = rates.lower(float(distances[x, other]))
        excess = deficits[x] * unit - rate * deficits[other]
        if other != x and excess > 0:
            need = max(need, -(-excess // (rate - unit)))
    return need


def private_weights(matrix: Array, distances: Array, alpha: float, cost: Array) -> Weights:
    """Return integer weights, rows of one total, that satisfy α-d-privacy exactly and are close to `matrix`.

    Parameters
    ----------
    matrix : array, shape (n, k)
        Nearly private probabilities.
    distances : array, shape (n, n)
    alpha : float
        Taken as the exact rational the double stands for, as are the distances.
    cost : array, shape (n, k)
        Prior times loss: decides where the last correction goes.
    """
    rates = Growth(alpha)
    closed = _closure(np.maximum(matrix, 0.0), distances, alpha)
    closed[:, closed.max(axis=0) < _EMPTY] = 0.0
    weights = [[-((-n << BITS) // d) for n, d in map(float.as_integer_ratio, row)] for row in closed.tolist()]
    _raise_broken(weights, distances, alpha, rates)
    sums = [sum(row) for row in weights]
    total = max(sums) + _surplus(sums, distances, rates)
    deficits = [total - s for s in sums]
    if any(deficits):
        # Any report will do for privacy; the one that costs least.
        shares = np.array([float(Fraction(d, total)) for d in deficits])
        target = int((shares @ cost).argmin())
        for row, deficit in zip(weights, deficits):
            row[target] += deficit
    return tuple(map(tuple, weights))


def first_broken(weights: Weights, distances: Array, alpha: float) -> tuple[int, int, int] | None:
    """(x, x', y) of the first privacy constraint that does not hold, None where all do; exact.

    Constraints that doubles show to hold, by a margin far above what they round, need no integers.
    """
    rates, total = Growth(alpha), sum(weights[0])
    growth = (1 + rates.near(distances)) * (1 - 1e-12)
    floats = np.array([[w / total for w in row] for row in weights])
    for x, row in enumerate(weights):
        most = growth[x][:, None] * floats
        close = ~((floats[x] < most) & (most > 1e-290))
        close[x] = False
        close[:, [y for y, w in enumerate(row) if w == 0]] = False  # weights are not negative
        for other, y in np.argwhere(close).tolist():
            if row[y] << rates.shift > rates.lower(float(distances[x, other])) * weights[other][y]:
                return x, other, y
    return None


def least_slack(weights: Weights, distances: Array, alpha: float) -> float:
    """Least of αd minus the log-ratio over pairs and reports, in doubles: for the reader's eye."""
    total = sum(weights[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.array([[w / total for w in row] for row in weights]))
        gaps = [np.nanmax(row - logs, axis=1, initial=0.0) for row in logs]
    slack = alpha * distances - np.array(gaps)
    return float(slack[~np.eye(len(slack), dtype=bool)].min()) if len(slack) > 1 else 0.0
