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

**The exact metric loss of a channel** is the least double that bounds

.. math:: \alpha_0 = \max_{x \ne x'} \frac{1}{d(x, x')} \max_y \log \frac{C[x, y]}{C[x', y]} .

Doubles find the maximum up to a few units in the last place, with a proved margin above it. The few quotients
within reach of the maximum are then compared, as integers, with proved lower bounds of :math:`e^{ad}` for doubles
a inside the margin: the least a that passes is returned. It is at least the true loss, and less than one unit in
the last place above it (up to the 2⁻²⁴⁰ of the exponential's bound).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.exact import exp_lower, exp_upper
from mechdesign.solvers.deadline import Deadline
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices, Weights

# Relative error of a quotient of two entries and two row sums (each correctly rounded, weights rounded to
# doubles first), doubled; and of a logarithm accurate to an ulp.
_ROUNDING = 16 * 2.0**-53
_MANY = 300_000  # quotients near the maximum beyond which the margin is left as it is


def shortest(space: MetricSpace, labels: Indices | None = None) -> tuple[float, float]:
    """Smallest distance of two points with one label, and of two with different ones; of any two without labels.

    Examples
    --------
    >>> shortest(MetricSpace.line([0.0, 1.0, 5.0]), np.array([0, 1, 0]))
    (5.0, 1.0)
    >>> shortest(MetricSpace.line(np.arange(50_000.0)))
    (1.0, 1.0)
    """
    if labels is not None:
        distances, apart = space.distances, np.not_equal.outer(labels, labels)
        across = float(distances[apart].min(initial=math.inf))
        np.fill_diagonal(apart, True)
        return float(distances[~apart].min(initial=math.inf)), across
    if space.kind == "line" and space.points is not None:
        least = float(np.diff(np.sort(space.points[:, 0])).min(initial=math.inf))
    elif space.kind == "clustered":
        least = space.within if space.shape[1] > 1 else space.across
    else:
        least = float(space.distances[~np.eye(space.size, dtype=bool)].min(initial=math.inf))
    return least, least


def common_integers(values: Array) -> tuple[npt.NDArray[np.object_], int]:
    """Return doubles as an array of integers of any size over one common power of two."""
    pairs = [v.as_integer_ratio() for v in values.ravel().tolist()]
    common = max((d for _, d in pairs), default=1)
    return np.array([n * (common // d) for n, d in pairs], dtype=object).reshape(values.shape), common


def integer_rows(matrix: Array) -> Weights:
    """Return integers proportional to each row of doubles, exactly (no rounding).

    Examples
    --------
    >>> integer_rows(np.array([[0.5, 0.25, 0.25]]))
    ((2, 1, 1),)
    """
    return tuple(tuple(common_integers(row)[0].tolist()) for row in matrix)


def _quotients(matrix: Array, sums: Array, x: int, others: Indices) -> Array:
    """C[x, y] / C[x', y] for some x' and all y, with rows relative to their sums; 0/0 counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = matrix[x] / matrix[others]
        ratio[np.isnan(ratio)] = 0.0
        return np.asarray(ratio * (sums[others] / sums[x])[:, None])


def _row_sums(matrix: Array) -> Array:
    return np.array([math.fsum(row.tolist()) for row in matrix])


def largest_quotients(matrix: Array, deadline: Deadline | None = None) -> Array:
    """The largest of them over y, for every x and x'; 1 where both are the same. A step for each item twice and each report.

    Raises SolverError once the deadline has passed: no loss is known before the last row.
    """
    sums = _row_sums(matrix)
    best, ratio, zeros = np.empty((len(matrix), len(matrix))), np.empty_like(matrix), not matrix.all()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for x, row in enumerate(matrix):
            if deadline is not None and deadline.passed:
                raise SolverError(
                    f"the exact loss of a channel of {len(matrix)} items was not known within the time limit: give it more "
                    "time, fewer points, or a clustered space, whose channel needs no table",
                    solver="metric-loss",
                    status="limit",
                )
            np.divide(row, matrix, out=ratio)
            if zeros:
                ratio[np.isnan(ratio)] = 0.0
            best[x] = ratio.max(axis=1) * (sums / sums[x])  # rounding keeps the order: the largest stays so
    np.fill_diagonal(best, 1.0)
    best.setflags(write=False)
    return best


def _upper(best: Array, distances: Array) -> float:
    above = best > 1.0
    if not above.any():
        return 0.0
    if np.isinf(best[above]).any() or (distances[above] == 0).any():
        return math.inf
    logs = np.log(best[above]) * (1 + _ROUNDING) + _ROUNDING
    return float(np.nextafter((logs / distances[above]).max(), np.inf))


def metric_loss(
    matrix: Array,
    distances: Array,
    weights: Sequence[Sequence[int]] | None = None,
    *,
    best: Array | None = None,
) -> float:
    """Exact metric loss α₀ of a row-stochastic matrix, rounded up; ``inf`` where a zero meets a positive.

    Parameters
    ----------
    matrix : array, shape (n, k)
        Rows are taken relative to their own exact sums.
    distances : array, shape (n, n)
    weights : integers, shape (n, k), optional
        The exact rows where `matrix` is rounded from them.
    best : array, shape (n, n), optional
        `largest_quotients` of the matrix, where they are known.

    Examples
    --------
    >>> round(metric_loss(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([[0.0, 2.0], [2.0, 0.0]])), 6)
    0.549306
    """
    sums, best = _row_sums(matrix), largest_quotients(matrix) if best is None else best
    upper = _upper(best, distances)
    if not 0 < upper < math.inf:
        return upper
    shortest = float(distances[distances > 0].min())
    margin = 4 * _ROUNDING * (upper + 1 / shortest)
    reach = (upper - 2 * margin) * distances - _ROUNDING
    near: list[tuple[int, int, int]] = []
    with np.errstate(divide="ignore"):
        close = np.log(best) >= reach
        np.fill_diagonal(close, False)
        for x in np.flatnonzero(close.any(axis=1)).tolist():
            others = np.flatnonzero(close[x])
            hits = np.log(_quotients(matrix, sums, x, others)) >= reach[x, others, None]
            near += [(x, int(others[i]), y) for i, y in np.argwhere(hits).tolist()]
            if len(near) > _MANY:
                return upper
    asked = sorted({item for x, other, _ in near for item in (x, other)})
    exact = integer_rows(matrix[asked]) if weights is None else [weights[x] for x in asked]
    rows = dict(zip(asked, exact))
    totals = {x: sum(row) for x, row in rows.items()}
    products = [
        (rows[x][y] * totals[other], rows[other][y] * totals[x], float(distances[x, other]))
        for x, other, y in near
    ]
    if not (
        pairs := [p for p in products if p[0] > p[1]]
    ):  # equal in exact arithmetic, different only by rounding
        return 0.0
    found = max(0.0, upper - margin)
    while pairs:  # a few: what holds for one holds for most others
        one, low, high = pairs.pop(), found, upper
        while low < (middle := low + (high - low) / 2) < high:
            low, high = (low, middle) if _holds(one, middle) else (middle, high)
        found = high
        pairs = [pair for pair in pairs if not _holds(pair, found)]
    return found


def _holds(pair: tuple[int, int, float], alpha: float) -> bool:
    """Whether a quotient is proved to be at most e^{αd}."""
    high, low, distance = pair
    rate = exp_lower(Fraction(alpha) * Fraction(distance))
    return high * rate.denominator <= rate.numerator * low


BITS = 120
_SHIFT = 192  # bits kept in bounds of exponentials
_FAR = 128  # αd beyond which the bound of e^{αd} stays: weights span less than e^{84}, so it asks for nothing
_WHAT = "exact channel"
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


def _closure(matrix: Array, distances: Array, alpha: float, deadline: Deadline) -> Array:
    decay = _decay(distances, alpha)
    closed = np.zeros_like(matrix)
    for x in range(len(matrix)):
        deadline.hold(_WHAT)
        np.maximum(closed, decay[:, x, None] * matrix[x], out=closed)
    return closed


def _raise_broken(
    weights: list[list[int]], distances: Array, alpha: float, rates: Growth, deadline: Deadline
) -> None:
    """Raise entries until ``w[x][y] <= e^{αd} w[x'][y]`` holds for all pairs, with proved bounds of e^{αd}."""
    rows, shift = len(weights), rates.shift
    decay = _decay(distances, alpha)
    np.fill_diagonal(decay, 0.0)
    apart = distances.tolist()
    for _ in range(50 * rows):
        changed = False
        floats = np.array([[float(w) for w in row] for row in weights])
        for x in range(rows):
            deadline.hold(_WHAT)
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


def private_weights(
    matrix: Array, distances: Array, alpha: float, cost: Array, deadline: Deadline | None = None
) -> Weights:
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
    deadline : Deadline, optional
        SolverError once it has passed.
    """
    rates, deadline = Growth(alpha), Deadline.of(deadline)
    used = np.flatnonzero(matrix.max(axis=0) >= _EMPTY)
    closed = _closure(np.maximum(matrix[:, used], 0.0), distances, alpha, deadline)
    weights = [[-((-n << BITS) // d) for n, d in map(float.as_integer_ratio, row)] for row in closed.tolist()]
    _raise_broken(weights, distances, alpha, rates, deadline)
    sums = [sum(row) for row in weights]
    total = max(sums) + _surplus(sums, distances, rates)
    deficits = [total - s for s in sums]
    whole = np.zeros(matrix.shape, dtype=object)
    whole[:, used] = weights
    weights = whole.tolist()
    if any(deficits):
        # Any report will do for privacy; the one that costs least.
        shares = np.array([float(Fraction(d, total)) for d in deficits])
        target = int((shares @ cost).argmin())
        for row, deficit in zip(weights, deficits):
            row[target] += deficit
    return tuple(map(tuple, weights))
