r"""The exact metric loss of a channel: the least double that bounds it.

.. math:: \alpha_0 = \max_{x \ne x'} \frac{1}{d(x, x')} \max_y \log \frac{C[x, y]}{C[x', y]} .

Doubles find the maximum up to a few units in the last place, with a proved margin above it. The few quotients
within reach of the maximum are then compared, as integers, with proved lower bounds of :math:`e^{ad}` for doubles
a inside the margin: the least a that passes is returned. It is at least the true loss, and less than one unit in
the last place above it (up to the 2⁻²⁴⁰ of the exponential's bound).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from operator import index

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.exact import exp_lower
from mechdesign.solvers.deadline import Deadline
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices

Weights = tuple[tuple[int, ...], ...]
"""Integer weights of the reports (columns) of every item (row)."""

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
    low, high = max(0.0, upper - margin), upper
    while low < (middle := low + (high - low) / 2) < high:
        if _holds(pairs, middle):
            high = middle
        else:
            low = middle
    return high


def _holds(pairs: list[tuple[int, int, float]], alpha: float) -> bool:
    """Whether every quotient is proved to be at most e^{αd}."""
    rates = {d: exp_lower(Fraction(alpha) * Fraction(d)) for d in {d for _, _, d in pairs}}
    sides = {d: (rate.numerator, rate.denominator) for d, rate in rates.items()}
    return all(high * sides[d][1] <= sides[d][0] * low for high, low, d in pairs)


def integer_weights(name: str, given: Iterable[Iterable[int]]) -> Weights:
    """Return `given` as integer rows of one length and one positive total, or raise a `DesignError`."""
    try:
        rows = tuple(tuple(map(index, row)) for row in given)
    except TypeError:
        raise DesignError.of(name, given, "must be rows of integers") from None
    same = len({(len(row), sum(row)) for row in rows}) == 1
    if not same or not rows[0] or min(map(min, rows)) < 0 or not sum(rows[0]):
        raise DesignError(f"{name}: must be non-negative integers with the same total in every row")
    return rows


def rounded_weights(weights: Weights) -> Array:
    """Return the rows of probabilities, each rounded once."""
    total = sum(weights[0])
    return np.array([[w / total for w in row] for row in weights])  # int / int rounds correctly
