r"""Tables of output probabilities that are affine in the input between knots, in doubles and in rationals; checks of bins; the least ε of outputs.

.. math:: p(x, i) = (1 - t)\, s_{k,i} + t\, e_{k,i}, \qquad x \in [x_k, x_{k+1}),\; t = \frac{x - x_k}{x_{k+1} - x_k}

Bins and knots cut the input range into cells, on each of which every probability is affine and every error :math:`B_i - x` keeps its
sign: :math:`E\,\ell(M(x) - x)` is a quadratic there for absolute and squared losses, and smooth for any smooth loss.

An `ExactLaw` is such a table in rationals: certificates describe it, and releases draw from it. Linear constraints that hold for the rows
at both ends of a segment hold on the whole segment. A law next to a solver's answer may exceed the privacy budget by the solver's
tolerance: `tightened` solves again for a budget smaller by the excess, until the law is inside.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from flint import fmpq

from mechdesign import checks
from mechdesign.checks import FINITE, as_given, check_preserved, increasing, one_of, refuse, settle
from mechdesign.checks import doubles as as_doubles
from mechdesign.errors import DataError, DesignError, SolverError
from mechdesign.evidence.exact import exp_lower, fraction, rational
from mechdesign.evidence.results import Accuracy, quantile
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.moments import integrated
from mechdesign.typing import Array, Numbers, Weights

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
    with DataError.where(f"x: inputs {FINITE}"):
        given = as_given(x)
        values = as_doubles("x", given)
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
class PiecewiseTable(checks.Checked):
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

    bins: Array = checks.field(check=increasing)
    knots: Array = checks.field(check=increasing)
    starts: Array = checks.field()
    ends: Array = checks.field()

    def _post_check(self) -> None:
        if not 1 / LARGEST <= self.knots[-1] / 2 - self.knots[0] / 2 <= LARGEST:
            span = f"knots: inputs in [{self.knots[0]:g}, {self.knots[-1]:g}] span too little or too much"
            raise DesignError(f"{span} for doubles: measure in other units")
        settle(self, starts=self._rows("starts"), ends=self._rows("ends"))

    def _rows(self, name: str) -> Array:
        shape = (len(self.knots) - 1, len(self.bins))
        table = np.array(as_doubles(name, getattr(self, name), "must be an array of probabilities"))
        allowed = f"must be {shape}, one row a segment, one column a bin"
        refuse(table.shape != shape, f"shape of {name}", table.shape, allowed)
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
    return float(integrated(value, edges, prior.moments(edges)).sum())


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


# -- bins --------------------------------------------------------------------------------------------------


_UNITS = f"must be within ±{LARGEST:g}; measure in larger units"


def check_bins(name: str, bins: Numbers) -> Array:
    """Return bins as a read-only float array, or raise DesignError."""
    found = checks.increasing(name, bins)
    refuse(max(-found[0], found[-1]) > LARGEST, name, found[[0, -1]].tolist(), _UNITS)
    allowed = "must be at most 4096: their probabilities fill squares of that side"
    refuse(len(found) > 4096, name, len(found), allowed)
    return found


def check_range(input_range: object, bins: Array | None = None) -> tuple[float, float]:
    """Return the input range as two floats; raise DesignError unless the bins cover it."""
    lower, upper = checks.interval("input_range", input_range)
    refuse(max(-lower, upper) > LARGEST, "input_range", (lower, upper), _UNITS)
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
    found = mirrored_bins(check_bins("bins", outputs))
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


# -- in exact arithmetic --------------------------------------------------------------------------------

T = TypeVar("T")


def common_denominator(values: Iterable[Fraction]) -> int:
    """Return the least common denominator."""
    return math.lcm(*(v.denominator for v in values))


class ExactLaw(ABC):
    """A rational quantizer.

    Attributes
    ----------
    bins : tuple of Fraction, length m
    knots : tuple of Fraction, length K + 1
    """

    bins: tuple[Fraction, ...]
    knots: tuple[Fraction, ...]

    @abstractmethod
    def row(self, segment: int, end: int) -> list[Fraction]:
        """Return the probabilities at the start (``end=0``) or the end (``end=1``) of a segment, as one-sided limits."""

    def weights(self, segment: int, end: int) -> tuple[list[int], int]:
        """Return the row as integers over a common denominator."""
        row = self.row(segment, end)
        common = math.lcm(*{p.denominator for p in row})
        return [p.numerator * (common // p.denominator) for p in row], common

    def at(self, x: Fraction) -> list[Fraction]:
        """Return the row of a continuous law at any input."""
        k = min(max(bisect_right(self.knots, x) - 1, 0), len(self.knots) - 2)
        t = (x - self.knots[k]) / (self.knots[k + 1] - self.knots[k])
        return [(1 - t) * p + t * q for p, q in zip(self.row(k, 0), self.row(k, 1))]

    def limits(self) -> Iterator[tuple[Fraction, list[int], int]]:
        """Yield every knot with the row's limits there from either side, as integers over a common denominator."""
        for k, ends in enumerate(pairwise(self.knots)):
            for end in (0, 1):
                yield ends[end], *self.weights(k, end)

    def inner_edges(self, start: Fraction, end: Fraction) -> list[Fraction]:
        """Return the ends of a segment and the outputs between."""
        return [start, *self.bins[bisect_right(self.bins, start) : bisect_left(self.bins, end)], end]

    def cell_edges(self) -> list[Fraction]:
        """Return knots and the outputs between: on each cell the expected loss is a quadratic."""
        return [self.knots[0], *(x for ends in pairwise(self.knots) for x in self.inner_edges(*ends)[1:])]

    def extremes(self) -> tuple[list[Fraction], list[Fraction]]:
        """Return the smallest and largest probability of every output over the whole input range."""
        low: dict[int, list[int]] = {}
        high: dict[int, list[int]] = {}
        for _, weights, common in self.limits():
            low[common] = list(map(min, low.get(common, weights), weights))
            high[common] = list(map(max, high.get(common, weights), weights))
        return _extreme(low, 1), _extreme(high, -1)

    def ratio(self) -> Fraction | None:
        """Return the largest ratio of probabilities of one output over two inputs; None if it is infinite."""
        low, high = self.extremes()
        if any(a == 0 < b for a, b in zip(low, high)):
            return None
        return max((b / a for a, b in zip(low, high) if a > 0), default=Fraction(1))

    def knot_rows(self) -> list[list[Fraction]]:
        """Return the rows of a continuous law at its knots."""
        return [self.row(0, 0), *(self.row(k, 1) for k in range(len(self.knots) - 1))]

    def tables(self) -> tuple[Array, Array]:
        """Return the rows at the starts and at the ends, rounded to doubles; each of shape (K, m)."""
        count = len(self.knots) - 1
        starts, ends = (
            np.array([[float(p) for p in self.row(k, end)] for k in range(count)]) for end in (0, 1)
        )
        return starts, ends


def _extreme(rows: dict[int, list[int]], sign: int) -> list[Fraction]:
    """Return the least (or, for sign −1, largest) entry of every column; the keys are the denominators of the rows."""
    (common, best), *others = rows.items()
    kept = [(n, common) for n in best]
    for d, row in others:
        kept = [(n, d) if sign * (n * e - b * d) < 0 else (b, e) for n, (b, e) in zip(row, kept)]
    return [Fraction(n, d) for n, d in kept]


@serializable("rational-table")
class RationalTable(ExactLaw):
    """An exact law given by its rows.

    Parameters
    ----------
    bins, knots : tuples of Fraction
    starts, ends : tuples of K rows of m Fractions
        One-sided limits at the start and the end of each segment.
    """

    bins: tuple[Fraction, ...]
    knots: tuple[Fraction, ...]
    starts: tuple[tuple[Fraction, ...], ...]
    ends: tuple[tuple[Fraction, ...], ...]

    def __post_init__(self) -> None:
        if not len(self.starts) == len(self.ends) == len(self.knots) - 1:
            raise DesignError("a law's rows must be two for each segment between knots")

    def row(self, segment: int, end: int) -> list[Fraction]:
        return list((self.ends if end else self.starts)[segment])

    @classmethod
    def continuous(
        cls, bins: Sequence[Fraction], knots: Sequence[Fraction], rows: Sequence[Sequence[Fraction]]
    ) -> RationalTable:
        """Interpolate rows given at the knots themselves."""
        table = tuple(tuple(row) for row in rows)
        return cls(tuple(bins), tuple(knots), table[:-1], table[1:])

    @classmethod
    def interpolated(cls, bins: Iterable[float], knots: Iterable[float], weights: Weights) -> RationalTable:
        """Interpolate integer weights of rows at the knots."""
        rows = [[Fraction(w, total) for w in row] for row, total in zip(weights, map(sum, weights))]
        return cls.continuous(tuple(map(Fraction, bins)), [Fraction(float(x)) for x in knots], rows)


@serializable("selection-law")
class SelectionLaw(ExactLaw):
    r"""The selection family with integer weights.

    For x in :math:`[B_j, B_{j+1})` a left index l ≤ j is drawn with probability ``left[j-1][l-1]/Σ left[j-1]``,
    a right index r > j with ``right[m-j-1][m-r]/Σ right[m-j-1]``, and the output is :math:`B_l` with
    probability :math:`(B_r - x)/(B_r - B_l)`, else :math:`B_r`. Rows therefore sum to one and have mean x
    identically, whatever the weights.

    Parameters
    ----------
    bins : tuple of Fraction, length m
    left, right : tuples of m − 1 tuples of non-negative integers, the n-th of length n
    lower, upper : Fraction
        The input range.
    """

    bins: tuple[Fraction, ...]
    left: tuple[tuple[int, ...], ...]
    right: tuple[tuple[int, ...], ...]
    lower: Fraction
    upper: Fraction

    def __post_init__(self) -> None:
        for family in (self.left, self.right):
            if any(sum(row) <= 0 or min(row) < 0 for row in family):
                raise DesignError("selection weights must be non-negative integers, not all zero in a row")

    @cached_property
    def knots(self) -> tuple[Fraction, ...]:  # type: ignore[override]
        return self.lower, *(b for b in self.bins if self.lower < b < self.upper), self.upper

    def row(self, segment: int, end: int) -> list[Fraction]:
        b, x, m = [*map(rational, self.bins)], rational(self.knots[segment + end]), len(self.bins)
        j = min(sum(v <= self.knots[segment] for v in self.bins), m - 1)
        left, right = self.left[j - 1], self.right[m - j - 1][::-1]
        found, total = [fmpq(0)] * m, sum(left) * sum(right)
        for (l, w), (r, v) in product(enumerate(left), enumerate(right, start=j)):
            if w and v:  # skip bins that are never drawn
                share = w * v * (b[r] - x) / (b[r] - b[l])
                found[l] += share
                found[r] += w * v - share
        return [fraction(p / total) for p in found]


def excess_loss(law: ExactLaw, epsilon: float) -> float:
    """Return the excess of the exact privacy loss of `law` over ε: at most 0 inside, ∞ if the loss is infinite or an entry negative.

    The sign is exact; `tightened` lowers the budget by the size, which is rounded.

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


def tightened(solve: Callable[[float], T | None], excess: Callable[[T], float], budget: float) -> T:
    """Call ``solve(b)`` for budgets b falling from `budget`, and return the first answer that is within `budget` exactly.

    A float solver exceeds the budget by the order of its tolerance, so that a budget smaller by one and a half times the excess
    usually suffices at once.

    Parameters
    ----------
    solve : callable
        Maps a budget to an answer, the exact law or any argument of `excess`; None ends the search.
    excess : callable
        Maps an answer to its excess over `budget`: at most 0 inside, ∞ if the size is unknown
        (`excess_loss` for pure privacy).
    budget : float
        The privacy budget.

    Raises
    ------
    SolverError
        No answer was inside.

    Examples
    --------
    >>> tightened(lambda budget: budget + 1e-9, lambda loss: loss - 1.0, 1.0) <= 1.0
    True
    """
    shrink = 0.0
    for _ in range(12):
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
    message = (
        f"no exactly private mechanism within {budget!r} was found next to the solver's: ask for a slightly larger "
        "epsilon, or try another solver"
    )
    raise SolverError(message, solver="exact arithmetic", status="repair")


def outermost_law(bins: Iterable[float], knots: Iterable[float]) -> RationalTable:
    """Return the exact unbiased law that uses the first and the last output only.

    Examples
    --------
    >>> law = outermost_law([-2.0, 0.0, 2.0], [-1.0, 1.0])
    >>> [[str(p) for p in law.row(0, end)] for end in (0, 1)]
    [['3/4', '0', '1/4'], ['1/4', '0', '3/4']]
    """
    b, x = ([Fraction(float(v)) for v in values] for values in (bins, knots))
    high = [(v - b[0]) / (b[-1] - b[0]) for v in x]
    inner = [Fraction(0)] * (len(b) - 2)
    return RationalTable.continuous(b, x, [[1 - p, *inner, p] for p in high])
