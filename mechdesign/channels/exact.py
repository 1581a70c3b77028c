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

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower, exp_upper
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices

__all__ = [
    "Growth",
    "bias_allowed",
    "exact_bias",
    "exact_bound",
    "exact_value",
    "first_broken",
    "least_slack",
    "private_weights",
]

Weights = tuple[tuple[int, ...], ...]


BITS = 120
_SHIFT = 192  # bits kept in bounds of exponentials
_FAR = 128  # αd beyond which the bound of e^{αd} stays: weights span less than e^{84}, so it asks for nothing
_EMPTY = 1e-28  # columns below this everywhere are the solver's zeros

_FIXED = 256  # bits of the fixed point in which the dual bound is accumulated, below 1 or the largest loss
_EQUAL = 1e-6  # largest violation of an equality, relative to the reports' values: what rounding leaves


class Question(Protocol):
    """What of a `MetricChannel` its arithmetic reads."""

    @property
    def alpha(self) -> float: ...
    @property
    def space(self) -> MetricSpace: ...
    @property
    def weights(self) -> Array: ...
    @property
    def losses(self) -> Array: ...
    @property
    def equalities(self) -> tuple[Array, Array] | None: ...


class Growth:
    """Bounds of :math:`e^{αd}` as integers over ``2**shift``, each computed once, and only where doubles do not decide."""

    shift = _SHIFT

    def __init__(self, alpha: float) -> None:
        self._alpha = Fraction(alpha)
        self._lower: dict[float, int] = {}
        self._upper: dict[float, int] = {}

    def lower(self, distance: float) -> int:
        """Lower bound of e^{αd}."""
        if distance not in self._lower:
            low = exp_lower(min(self._alpha * Fraction(distance), Fraction(_FAR)))
            self._lower[distance] = (low.numerator << _SHIFT) // low.denominator
        return self._lower[distance]

    def upper(self, distance: float) -> int:
        """Upper bound of e^{αd}."""
        if distance not in self._upper:
            high = exp_upper(self._alpha * Fraction(distance))
            self._upper[distance] = -((-high.numerator << _SHIFT) // high.denominator)
        return self._upper[distance]

    def near(self, distances: Array) -> Array:
        """`lower` minus 1 in doubles, to one part in 10¹³."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.expm1(np.minimum(float(self._alpha) * distances, _FAR)))


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


def private_weights(
    matrix: Array, distances: Array, alpha: float, cost: Array
) -> tuple[tuple[int, ...], ...]:
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
    weights = []
    for row in closed.tolist():
        pairs = [v.as_integer_ratio() for v in row]
        weights.append([-((-n << BITS) // d) for n, d in pairs])
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
    return tuple(tuple(row) for row in weights)


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


def _scaled(values: Iterable[float]) -> tuple[list[int], int]:
    """Doubles as integers over one common power of two."""
    pairs = [float(v).as_integer_ratio() for v in values]
    common = max((d for _, d in pairs), default=1)
    return [n * (common // d) for n, d in pairs], common


def exact_value(design: Question, weights: Weights) -> Fraction:
    """Expected loss of the channel, exactly; the prior is taken relative to its exact sum."""
    counts, _ = _scaled(design.weights.tolist())
    losses, scale = _scaled(design.losses.ravel().tolist())
    k = design.losses.shape[1]
    found = sum(
        count * sum(w * loss for w, loss in zip(row, losses[x * k : (x + 1) * k]))
        for x, (count, row) in enumerate(zip(counts, weights))
    )
    return Fraction(found, sum(counts) * scale * sum(weights[0]))


def exact_bias(design: Question, weights: Weights) -> Fraction:
    """Largest violation of the equalities, exactly; 0 where there are none."""
    if design.equalities is None:
        return Fraction(0)
    query, values = design.equalities
    total, columns = sum(weights[0]), [[Fraction(v) for v in column] for column in values.T.tolist()]
    return max(
        abs(sum((w * h for w, h in zip(row, column)), Fraction(0)) / total - Fraction(goal))
        for row, target in zip(weights, query.tolist())
        for column, goal in zip(columns, target)
    )


def bias_allowed(design: Question) -> float:
    """How large a violation of the equalities may be."""
    return 0.0 if design.equalities is None else _EQUAL * float(np.abs(design.equalities[1]).max(initial=0.0))


def exact_bound(design: Question, triples: Indices, multipliers: Array, free: Array | None) -> Fraction:
    """The lower bound that the multipliers prove.

    Raises
    ------
    DesignError
        The multipliers are not admissible, or not those of this design.
    """
    (n, k), alpha, distances = design.losses.shape, design.alpha, design.space.distances.tolist()
    if (multipliers < 0).any() or (triples >= (n, n, k)).any():
        raise DesignError("multipliers: must be non-negative, of pairs of items and of reports")
    if (free is None) != (design.equalities is None):
        raise DesignError("free: must be the multipliers of the design's equalities")
    counts, _ = _scaled(design.weights.tolist())
    mass = sum(counts)
    losses, scale = _scaled(design.losses.ravel().tolist())
    unit = 1 << (_FIXED + max(0, -math.frexp(float(np.abs(design.losses).max()))[1]))
    reduced = [[(counts[x] * losses[x * k + y] * unit) // (mass * scale) for y in range(k)] for x in range(n)]
    rates = Growth(alpha)
    for (x, other, y), multiplier in zip(triples.tolist(), multipliers.tolist()):
        numerator, denominator = multiplier.as_integer_ratio()
        held = (numerator * unit) // denominator  # the multiplier that is used; any will do
        reduced[x][y] += held
        reduced[other][y] -= -((-rates.upper(distances[x][other]) * held) >> rates.shift)
    offset = 0
    if free is not None and design.equalities is not None:
        query, values = design.equalities
        if free.shape != query.shape:
            raise DesignError.of("free", free.shape, f"must have shape {query.shape}")
        (nus, fs), (goals, gs), (means, ms) = (_scaled(v.ravel().tolist()) for v in (free, query, values))
        width = query.shape[1]
        for at, nu in enumerate(nus):
            row, j = reduced[at // width], at % width
            offset += (nu * goals[at] * unit) // (fs * gs)
            for y in range(k):
                row[y] += (-nu * means[y * width + j] * unit) // (fs * ms)
    return Fraction(offset + sum(map(min, reduced)), unit)
