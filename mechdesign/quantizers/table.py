r"""Tables of output probabilities that are affine in the input between knots, their errors and losses, the least ε of outputs, and privacy between rows.

.. math:: p(x, i) = (1 - t)\, s_{k,i} + t\, e_{k,i}, \qquad x \in [x_k, x_{k+1}),\; t = \frac{x - x_k}{x_{k+1} - x_k}

Bins and knots together cut the input range into cells, on each of which every probability is affine and every error
:math:`B_i - x` keeps its sign: :math:`E\,\ell(M(x) - x)` is a quadratic there for absolute and squared losses, smooth for any smooth
loss, and expected losses are sums over cells.

**Privacy between rows**, metric or approximate. On the continuum, for rows interpolated linearly between knots, :math:`p(x, i) \le e^{\varepsilon |x - x'|} p(x', i)` for all
inputs is *equivalent* to neighbouring rows k, l with

.. math:: P_{k,i} \le (1 + \varepsilon |x_k - x_l|)\, P_{l,i} ,

as an affine function is steepest, relative to itself, where it is smallest. On a fixed grid of inputs all pairs are
compared at :math:`e^{\varepsilon d(x_k, x_l)}`; for :math:`d = |x - x'|` and :math:`|x - x'|^2` chains of neighbours
imply the others, since :math:`d(x, z) \ge d(x, y) + d(y, z)` for y between.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign import checks
from mechdesign.checks import FINITE, as_given, check_preserved, increasing, one_of, settle
from mechdesign.checks import doubles as as_doubles
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.results import Accuracy, quantile
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP
from mechdesign.typing import Array, Indices, Numbers

LARGEST = 1e100
"""Largest magnitude: beyond it, or below its inverse, squares and products with them leave the range of doubles."""
LARGEST_EPSILON = 23.0
"""ε beyond which doubles do not resolve floors: designs with more are solved at it, or near the least feasible ε."""
RESOLVED = 16.0
"""ε up to which every floor that privacy requires is above a linear program's tolerance."""


def inside(x: Numbers, input_range: tuple[float, float], *, clip: bool = False) -> Array:
    """Return inputs as an array, or raise `DataError` if one is outside the range (unless `clip`) or NaN."""
    one_of("clip", clip, (True, False))
    values = doubles(x)
    if not clip:
        check_inside(values, input_range)
    elif np.isnan(values).any():
        raise DataError(f"x: inputs {FINITE}")
    return np.clip(values, *input_range) if clip else values


def check_inside(values: Array, input_range: tuple[float, float]) -> None:
    """Raise `DataError` if an input is outside the range, or NaN."""
    lower, upper = input_range
    # NaN makes either comparison false
    if values.size and not (values.min() >= lower and values.max() <= upper):
        raise DataError(f"x: inputs must be in [{lower:g}, {upper:g}]; or pass clip=True")


def doubles(x: Numbers) -> Array:
    """Return inputs as an array of doubles, or raise `DataError` if they are no numbers or would be rounded."""
    try:
        given = as_given(x)
        values = as_doubles("x", given)
    except Exception:  # whatever an object raises when it is read
        raise DataError(f"x: inputs {FINITE}") from None
    check_preserved("x", given, values)
    return values


def cell_edges(bins: Array, knots: Array) -> Array:
    """Return the sorted union of the knots and the bins between the first and the last knot.

    Examples
    --------
    >>> cell_edges(np.array([-3.0, -0.5, 0.5, 3.0]), np.array([-1.0, 0.5, 1.0]))
    array([-1. , -0.5,  0.5,  1. ])
    """
    return np.union1d(knots, bins[(bins > knots[0]) & (bins < knots[-1])])


def smallest_epsilon(bins: Array, lower: float, upper: float) -> float:
    r"""Return the smallest ε at which some ε-LDP mechanism with these outputs is unbiased on [lower, upper].

    Splitting every output between the two extreme ones, with means preserved, is post-processing; so two
    outputs decide: :math:`\varepsilon = \log\max\{(B_m - lo)/(B_m - hi), (hi - B_1)/(lo - B_1)\}`.
    It is infinite if an extreme output lies at an end of the range, and 0 if one mean suffices for all inputs
    (a bias budget can make ``lower`` at least ``upper``).

    Examples
    --------
    >>> import math
    >>> A = (math.e + 1) / (math.e - 1)
    >>> round(smallest_epsilon(np.array([-A, A]), -1.0, 1.0), 12)
    1.0
    """
    needed = least_ratio(bins, Fraction(lower), Fraction(upper))
    return math.inf if needed is None else math.log(min(needed, Fraction(10**300)))


def least_ratio(bins: Array, lower: Fraction, upper: Fraction) -> Fraction | None:
    """Return the ratio of probabilities that the two outermost outputs need, exactly; None if no ratio suffices."""
    first, last = Fraction(float(bins[0])), Fraction(float(bins[-1]))
    if lower >= upper and first <= lower and last >= upper:
        return Fraction(1)
    if first >= lower or last <= upper:
        return None
    return max((last - lower) / (last - upper), (upper - first) / (lower - first))


def solved_epsilon(epsilon: float, least: float, resolved: float = LARGEST_EPSILON) -> float:
    """Return the ε at which a design is solved: the budget, capped at what doubles resolve; `least` is the least feasible ε."""
    return min(epsilon, max(resolved, least + 2.0))


def loss_from_floats(low: Array, high: Array, slack: float | None = None) -> float:
    """Return the privacy loss of outputs with these least and largest probabilities, plus rounding errors: by default those of sums of positive terms."""
    reachable = high > 0
    if np.any(low[reachable] == 0):
        return math.inf
    if slack is None:
        slack = 2 * (len(low) + 8) * np.finfo(float).eps
    return float(np.log(high[reachable] / low[reachable]).max() + slack)


@dataclass(frozen=True, eq=False)
class PiecewiseTable:
    """Output probabilities at both ends of every segment.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values, increasing.
    knots : array_like, shape (K + 1,)
        Increasing; the first and last are the input range.
    starts, ends : array_like, shape (K, m)
        Output probabilities at the start of each segment (limit from the right) and at its end (limit from
        the left). At a knot the value is that from the right, at the last knot from the left.
    """

    bins: Array
    knots: Array
    starts: Array
    ends: Array

    def __post_init__(self) -> None:
        settle(self, bins=increasing("bins", self.bins), knots=increasing("knots", self.knots))
        if not 1 / LARGEST <= self.knots[-1] / 2 - self.knots[0] / 2 <= LARGEST:
            span = f"knots: inputs in [{self.knots[0]:g}, {self.knots[-1]:g}] span too little or too much"
            raise DesignError(f"{span} for doubles: measure in other units")
        settle(self, starts=self._rows("starts"), ends=self._rows("ends"))

    def _rows(self, name: str) -> Array:
        shape = (len(self.knots) - 1, len(self.bins))
        try:
            table: Array = np.array(getattr(self, name), dtype=float)
        except (TypeError, ValueError, OverflowError):
            raise DesignError.of(name, getattr(self, name), "must be an array of probabilities") from None
        if table.shape != shape:
            raise DesignError(
                f"{name} has shape {table.shape}: must be {shape}, one row a segment, one column a bin"
            )
        if not (table >= -1e-12).all() or not (np.abs(table.sum(axis=1) - 1) <= 1e-9).all():
            raise DesignError(f"{name}: every row must be non-negative and sum to 1")
        np.maximum(table, 0.0, out=table)
        table.setflags(write=False)
        return table

    @property
    def input_range(self) -> tuple[float, float]:
        """Range of the inputs."""
        return float(self.knots[0]), float(self.knots[-1])

    @property
    def rows(self) -> Array:
        """Starts and ends alternating, segment by segment; shape (2 K, m)."""
        return np.stack([self.starts, self.ends], axis=1).reshape(-1, len(self.bins))

    @property
    def knot_rows(self) -> Array:
        """Rows of a continuous table at its knots, shape (K + 1, m)."""
        return np.vstack([self.starts, self.ends[-1:]])

    def segment(self, x: Array) -> npt.NDArray[np.intp]:
        """Return the index of the segment of each input."""
        x = inside(x, self.input_range, clip=True)
        return np.clip(np.searchsorted(self.knots, x, side="right") - 1, 0, len(self.knots) - 2)

    def probabilities(self, x: Numbers, *, clip: bool = False) -> Array:
        """Return output probabilities p(x, ·) for inputs of any shape, with outputs in a further axis of length m.

        Raises
        ------
        DataError
            An input outside the range (unless `clip`), or NaN.

        Examples
        --------
        >>> PiecewiseTable([-1, 1], [-1, 1], [[1, 0]], [[0, 1]]).probabilities([-1.0, 0.2])
        array([[1. , 0. ],
               [0.4, 0.6]])
        """
        x = inside(x, self.input_range, clip=clip)
        k = self.segment(x)
        t = ((x - self.knots[k]) / (self.knots[k + 1] - self.knots[k]))[..., None]
        return (1 - t) * self.starts[k] + t * self.ends[k]

    def cells(self) -> tuple[Array, Array, Array]:
        """Return the edges of the cells (n + 1,), the probabilities at the start of each and their slopes, both (n, m)."""
        edges = cell_edges(self.bins, self.knots)
        k = self.segment(edges[:-1])
        slope = (self.ends[k] - self.starts[k]) / np.diff(self.knots)[k][:, None]
        return edges, self.starts[k] + slope * (edges[:-1] - self.knots[k])[:, None], slope

    def extremes(self) -> tuple[Array, Array]:
        """Return the smallest and largest probability of each output over the input range, each (m,)."""
        rows = self.rows
        return rows.min(axis=0), rows.max(axis=0)


def accuracy(mechanism: Any, prior: object) -> Accuracy:
    """Return the errors of a mechanism averaged over a prior; the half-width uses rows at the middles of 2,000 equal intervals."""
    law = Prior.of(prior, mechanism.input_range)
    low, high = mechanism.input_range
    edges = np.linspace(low, high, 2001)
    middle = (edges[:-1] + edges[1:]) / 2
    weights = law.moments(edges)[:, :1] * mechanism.probabilities(middle)
    return Accuracy(
        math.sqrt(mechanism.expected_loss(law, "squared")),
        mechanism.expected_loss(law, "absolute"),
        quantile(np.abs(mechanism.bins - middle[:, None]), weights) + (edges[1] - edges[0]) / 2,
    )


def loss_at(table: PiecewiseTable, x: Array, loss: Loss) -> Array:
    """Return E ℓ(M(x) − x), element-wise."""
    means: Array = np.sum(table.probabilities(x) * loss(table.bins - x[..., None]), axis=-1)
    return means


def _on_cells(table: PiecewiseTable, loss: Loss) -> tuple[Array, Callable[[Any], Array]]:
    """Return the edges of the cells, and E ℓ as a function of the share of each cell that is left of the input."""
    edges, start, slope = table.cells()
    width = np.diff(edges)

    def value(share: Any) -> Array:
        h = np.asarray(share * width)[..., None]
        errors = table.bins - edges[:-1, None] - h
        return np.asarray(np.sum((start + slope * h) * loss(errors), axis=-1))

    return edges, value


def _quadratics(value: Callable[[Any], Array]) -> tuple[Array, Array, Array]:
    """Return a, b, c with E ℓ = a + b t + c t² on each cell, t the share of it left of the input."""
    low, middle, high = (value(t) for t in (0.0, 0.5, 1.0))
    return low, 4 * middle - 3 * low - high, 2 * (low + high - 2 * middle)


def mean_loss(table: PiecewiseTable, prior: Prior, loss: Loss) -> float:
    """Return E ℓ(M(X) − X), by partial moments of order 0–2 on every cell, or adaptive quadrature for callables."""
    edges, value = _on_cells(table, loss)
    if not loss.polynomial:

        def integrand(x: Array) -> Array:
            return loss_at(table, np.clip(x, *table.input_range), loss)[:, None]

        return float(prior.integrals(integrand, edges).sum())
    (a, b, c), (m0, m1, m2) = _quadratics(value), prior.moments(edges).T
    left, width = edges[:-1], np.diff(edges)
    # 0 ≤ E t² ≤ E t ≤ E 1, also where a cell is so narrow that rounding says otherwise
    t1 = np.clip((m1 - left * m0) / width, 0.0, m0)
    t2 = np.clip((m2 - 2 * left * m1 + left * left * m0) / width**2, 0.0, t1)
    return float(np.sum(a * m0 + b * t1 + c * t2))


def loss_peaks(table: PiecewiseTable, loss: Loss) -> tuple[Array, Array]:
    """Return, for each cell, the input at which E ℓ(M(x) − x) is largest, and its value there.

    A quadratic's peak is exact; for callables the best of 33 points per cell is refined.
    """
    edges, value = _on_cells(table, loss)
    if loss.polynomial:
        a, b, c = _quadratics(value)
        peak = np.clip(np.divide(-b, 2 * c, out=np.zeros_like(b), where=c < 0), 0, 1)
        t = np.stack([np.zeros_like(peak), np.ones_like(peak), peak])
        values = a + b * t + c * t * t
    else:
        share = (1 - np.cos(np.linspace(0, np.pi, 33))) / 2
        best = np.argmax(value(share[:, None]), axis=0)
        low, high = (share[np.clip(best + step, 0, 32)] for step in (-1, 1))
        for _ in range(60):
            third = (high - low) / 3
            right = value(low + third) < value(high - third)
            low, high = np.where(right, low + third, low), np.where(right, high, high - third)
        t = np.stack([share[best], low, high])
        values = value(t)
    first = np.argmax(values, axis=0)[None]
    where = edges[:-1] + np.take_along_axis(t, first, 0)[0] * np.diff(edges)
    return np.minimum(where, edges[1:]), np.take_along_axis(values, first, 0)[0]


def largest_loss(table: PiecewiseTable, loss: Loss) -> tuple[float, float]:
    """Return sup over inputs of E ℓ(M(x) − x), and its place; for a callable loss, an upper bound within 1e-9 of it.

    On a cell probabilities are affine and a convex ℓ is below its chord, so that the product of the two, a quadratic, is above the
    curve; cells on which it exceeds the best value so far are halved.
    """
    if loss.polynomial:
        where, values = loss_peaks(table, loss)
        worst = int(np.argmax(values))
        return float(values[worst]), float(where[worst])
    edges, start, slope = table.cells()
    u, v = edges[:-1], edges[1:]
    end = start + slope * (v - u)[:, None]
    best, ceiling = float("-inf"), float("-inf")
    at_best = float(u[0])
    for _ in range(60):
        left, right = loss(table.bins - u[:, None]), loss(table.bins - v[:, None])
        low, high = np.sum(start * left, axis=1), np.sum(end * right, axis=1)
        both = np.sum(start * right + end * left, axis=1)
        for x, values in ((u, low), (v, high)):
            if values.max() > best:
                best, at_best = float(values.max()), float(x[np.argmax(values)])
        # low (1 − t)² + both t (1 − t) + high t²
        curve = low + high - both
        t = np.clip(np.divide(low - both / 2, curve, out=np.zeros_like(low), where=curve < 0), 0.0, 1.0)
        above = np.maximum(low * (1 - t) ** 2 + both * t * (1 - t) + high * t * t, np.maximum(low, high))
        open_ = above > best + 1e-9 * abs(best)
        ceiling = max(ceiling, float(above[~open_].max(initial=best)))
        if not open_.any() or np.count_nonzero(open_) > 1 << 14:
            break
        u, v, start, end, above = u[open_], v[open_], start[open_], end[open_], above[open_]
        middle, row = (u + v) / 2, (start + end) / 2
        u, v = np.concatenate([u, middle]), np.concatenate([middle, v])
        start, end = np.concatenate([start, row]), np.concatenate([row, end])
    return max(ceiling, float(above.max())), at_best


# -- privacy between rows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairwisePrivacy:
    """A privacy notion between the rows at knots.

    Parameters
    ----------
    privacy : MetricDP, ApproximateDP or PureDP
    continuum : bool
        Whether the rows are interpolated and privacy is required between all inputs, not only the knots.

    Examples
    --------
    >>> PairwisePrivacy(MetricDP(2.0), continuum=True).pairs(3)
    (array([0, 1, 1, 2]), array([1, 0, 2, 1]))
    """

    privacy: MetricDP | ApproximateDP | PureDP
    continuum: bool = False

    @property
    def delta(self) -> float:
        """Largest sum of the excesses of a pair; 0 except for approximate privacy."""
        return float(getattr(self.privacy, "delta", 0.0))

    @property
    def neighbours(self) -> bool:
        """Whether comparing neighbouring knots suffices."""
        return isinstance(self.privacy, MetricDP) and not callable(self.privacy.metric)

    def pairs(self, count: int) -> tuple[Indices, Indices]:
        """Return the pairs (k, l) of `count` knots whose rows are compared: P_k at most a multiple of P_l."""
        k, l = (v.ravel() for v in np.indices((count, count)))
        kept = np.abs(k - l) == 1 if self.neighbours else k != l
        return k[kept], l[kept]

    def _distances(self, x: Array, y: Array) -> Array:
        if not isinstance(self.privacy, MetricDP):
            return np.ones(len(x))
        distance = np.asarray(self.privacy.distance(x, y), dtype=float)
        if distance.shape != x.shape or not np.isfinite(distance).all() or (distance < 0).any():
            allowed = "must be vectorised, finite and non-negative on the inputs"
            raise DesignError.of("metric", self.privacy.metric, allowed)
        return distance

    def exact_slack(self, knots: list[Fraction], rows: list[list[Fraction]]) -> Fraction:
        """Return the least slack of all pairs in exact arithmetic, with exponentials rounded down."""
        if not isinstance(self.privacy, MetricDP):
            # one ratio for all pairs: the extremes decide whether any excess is positive
            ratio, delta = _growth(Fraction(self.privacy.epsilon)), Fraction(self.delta)
            worst: Fraction = min(ratio * min(column) - max(column) for column in zip(*rows))
            if not delta or worst >= 0:
                return delta or worst
            raised = [[ratio * q for q in row] for row in rows]
            return delta - max(
                sum((p - q for p, q in zip(row, other) if p > q), Fraction(0))
                for row, other in product(rows, raised)
            )

        slacks = list[Fraction]()
        for k, l in zip(*(v.tolist() for v in self.pairs(len(knots)))):
            power = Fraction(self.privacy.epsilon) * self._exact_distance(knots[k], knots[l])
            ratio = 1 + power if self.continuum else _growth(power)
            slacks += (ratio * q - p for p, q in zip(rows[k], rows[l]))
        return min(slacks)

    def _exact_distance(self, x: Fraction, y: Fraction) -> Fraction:
        assert isinstance(self.privacy, MetricDP)
        if self.privacy.metric == "absolute":
            return abs(x - y)
        if self.privacy.metric == "squared":
            return (x - y) ** 2
        return Fraction(float(self.privacy.distance(float(x), float(y))))

    def needed(self, knots: Array, rows: Array) -> float:
        """Return the smallest ε at which the rows satisfy a notion without δ, rounded up."""
        k, l = self.pairs(len(knots))
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.log(np.where(rows[k] > 0, rows[k] / rows[l], 1.0)).max(axis=1)
            per_unit = loss / self._distances(knots[k], knots[l])
        return float(np.max(np.where(loss > 0, per_unit, 0.0)) * (1 + 1e-13))

    def smallest_epsilon(self, knots: Array, first: float, last: float) -> float:
        """Return the smallest ε at which some unbiased mechanism with outputs in [first, last] exists; ∞ if none does.

        Splitting every output between the two extreme ones, with means preserved, is post-processing; so the mechanism
        with those two outputs decides, and its probabilities are affine in the input.
        """
        lower, upper = float(knots[0]), float(knots[-1])
        if self.delta:  # the ends are furthest apart
            ends = np.array([[last - x, x - first] for x in (lower, upper)]) / (last - first)
            with np.errstate(divide="ignore", invalid="ignore"):
                loss = np.log(np.maximum(ends.max(axis=0) - self.delta, 0.0) / ends.min(axis=0))
            return max(0.0, float(np.nanmax(loss, initial=0.0))) * (1 + 1e-13)
        if first >= lower or last <= upper:
            return math.inf
        if self.continuum:
            return max(1 / (last - upper), 1 / (lower - first))
        return self.needed(knots, np.stack([last - knots, knots - first], axis=1) / (last - first))


@lru_cache(maxsize=4096)
def _growth(power: Fraction) -> Fraction:
    """Return a rational below e^power; for powers beyond 700 one below e^700."""
    return exp_lower(power if power < 700 else Fraction(700))


# -- bins --------------------------------------------------------------------------------------------------


_UNITS = f"must be within ±{LARGEST:g}; measure in larger units"


def check_bins(bins: Numbers, name: str = "bins") -> Array:
    """Return bins as a read-only float array, or raise DesignError."""
    found = checks.increasing(name, bins)
    if max(-found[0], found[-1]) > LARGEST:
        raise DesignError.of(name, found[[0, -1]].tolist(), _UNITS)
    return found


def check_range(input_range: object, bins: Array | None = None) -> tuple[float, float]:
    """Return the input range as two floats; raise DesignError unless the bins cover it."""
    lower, upper = checks.interval("input_range", input_range)
    if max(-lower, upper) > LARGEST:
        raise DesignError.of("input_range", (lower, upper), _UNITS)
    if bins is not None and (bins[0] > lower or bins[-1] < upper):
        raise DesignError(
            f"bins = [{bins[0]:g}, …, {bins[-1]:g}]: must cover the input range [{lower:g}, {upper:g}], "
            "or no mechanism can be unbiased"
        )
    return lower, upper


MOST_OUTPUTS = 1025
"""Most outputs: with more, one step of any method, cubic in their number, exceeds a time limit (4,096 outputs: 200 s for a limit of 100 s)."""


def check_outputs(outputs: Numbers) -> Array:
    """Return outputs as `check_bins` does, symmetric where they are so up to rounding, or raise DesignError if there are too many."""
    found = mirrored_bins(check_bins(outputs))
    if len(found) > MOST_OUTPUTS:
        raise DesignError.of("bins", f"{len(found)} outputs", f"must be at most {MOST_OUTPUTS}")
    return found


def units_of(input_range: tuple[float, float], centred: bool = True) -> tuple[float, float]:
    """Return the range's centre, or 0, and a unit, a power of two, in which the methods measure inputs and outputs."""
    lower, upper = input_range
    return lower / 2 + upper / 2 if centred else 0.0, 2.0 ** math.floor(math.log2(upper / 2 - lower / 2))


def symmetric_bins(bins: Array) -> bool:
    """Whether the bins are exactly symmetric about zero."""
    return bool(np.all(bins == -bins[::-1]))


def mirrored_bins(bins: Array) -> Array:
    """Make bins exactly symmetric about zero if they are so up to rounding (as from ``linspace``)."""
    mirrored = (bins - bins[::-1]) / 2
    if np.all(np.abs(mirrored - bins) <= 8 * np.finfo(float).eps * np.abs(bins).max()):
        mirrored.setflags(write=False)
        return mirrored
    return bins


class SelectionPlaces:
    """Geometry shared by all selection mechanisms with the same bins and input range.

    Parameters
    ----------
    bins : array, shape (m,)
    input_range : (float, float)

    Attributes
    ----------
    knots : array, shape (K + 1,)
        The range's ends and the bins between them.
    """

    def __init__(self, bins: Array, input_range: tuple[float, float]) -> None:
        self.bins, self.knots = bins, cell_edges(bins, np.array(input_range))
        starts, ends = self.knots[:-1, None], self.knots[1:, None]
        self._below = np.minimum(np.searchsorted(bins, self.knots[:-1], side="right"), len(bins) - 1)
        gaps = bins[None, :] - bins[:, None]
        self._inverse = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > 0)
        self._ends = [(bins - x, x - bins) for x in (starts, ends)]

    def tables(self, left: Array, right: Array) -> tuple[Array, Array]:
        """Return the one-sided limits of p at the segments' ends, each (K, m), for two families of selection probabilities."""
        j, m = self._below, len(self.bins)
        ql, qr = np.zeros((2, len(j), m))
        ql[:, :-1] = left[j - 1]
        qr[:, 1:] = right[m - j - 1, ::-1]
        # Both factors of every term are non-negative: the bins with ql are left of x, those with qr right of it.
        first, last = (
            ql * ((qr * to_right) @ self._inverse.T) + qr * ((ql * to_left) @ self._inverse)
            for to_right, to_left in self._ends
        )
        return first, last
