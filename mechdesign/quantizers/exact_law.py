r"""Rational quantizers, which certificates describe and the exact sampler draws from.

An exact law is a quantizer whose knots and probabilities are rational numbers. It gives its rows at the
two ends of every segment; between them every probability is affine in the input, so that linear constraints that hold for
the rows hold on the whole segment.

**Block fill**: the optimal mechanism of given floors in rationals. Floors a, a ratio ρ and the outputs determine the mechanism (see `mechdesign.quantizers.floors`): the weights
:math:`(\rho - 1) a_i` lie side by side on a line, and the row at x adds to the floors the part of each weight that a block of length
:math:`1 - \sum a` covers; :math:`\sum_i B_i p(x, i) = x` fixes the block's place. The law is
piecewise affine with rational breakpoints, so with rational a and ρ the constraints

.. math:: a_i \le p(x, i) \le \rho a_i, \qquad \sum_i p(x, i) = 1, \qquad \sum_i B_i p(x, i) = x

hold exactly, for every x. A row differs from floors and caps in two entries only, so the law is stored by its
floors and rows are computed when needed. Knots closer than 2⁻⁴⁰ of the range are merged (interpolating between
rows that satisfy the constraints keeps them satisfied), so that knots stay distinct as doubles.

**From floats to exact rows**: a row is rounded to multiples of 2⁻⁸⁰, and its sum and mean are corrected exactly by moving its two
largest entries (by about 1e-17, the error of the float solution). The result may exceed the privacy budget by the tolerance of the
solver: `tightened` then solves again for a budget smaller by the excess, until the exact law is inside. A user's own
table has no solver and no budget: its doubles are taken as exact rationals, its rows repaired (`repaired_row`), and its
privacy loss computed.

**At the edge of feasibility**, two outputs with exactly the reach that ε requires (Duchi et al.'s) admit one mechanism, which maximises
:math:`P(B_m \mid hi)/P(B_m \mid lo)`; rounding to doubles moves such outputs slightly inwards or outwards. Outputs too far in are
`widened` by a few units in the last place; so close to the edge that floats cannot decide, the law of the two
outermost outputs is taken.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.floors import FloorProblem, interior_floors, pieces
from mechdesign.quantizers.table import least_ratio, smallest_epsilon
from mechdesign.typing import Array, Weights


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
@dataclass(frozen=True)
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
@dataclass(frozen=True)
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
        """Probabilities at the start (``end=0``) or the end (``end=1``) of a segment, as one-sided limits.

        With all positions scaled to integers b, X, and N_l, N_r the weights of a pair,
        p(x, l) = N_l Σ_r N_r (b_r − X)/(b_r − b_l) over the product of the two weight totals.
        """
        scale = _common(self)
        b = [int(v * scale) for v in self.bins]
        m, x = len(b), int(self.knots[segment + end] * scale)
        j = min(sum(v <= self.knots[segment] for v in self.bins), m - 1)
        nl = self.left[j - 1]
        nr = self.right[m - j - 1][::-1]  # weights of r = j+1 … m
        total = sum(nl) * sum(nr)
        right = [(b[j + k], w) for k, w in enumerate(nr) if w]
        left = [(b[k], w) for k, w in enumerate(nl) if w]
        found = [Fraction(0)] * m
        for first, own, opposite in ((0, nl, right), (j, nr, left)):
            for k, weight in enumerate(own, start=first):
                if weight:  # skip bins that are never drawn
                    gaps = [abs(v - b[k]) for v, _ in opposite]
                    common = math.lcm(*gaps)
                    inner = sum(w * abs(v - x) * (common // gap) for (v, w), gap in zip(opposite, gaps))
                    found[k] = Fraction(weight * inner, common * total)
        return found


class _Line(NamedTuple):
    """Floors, caps and running sums of the weights, and the block, as integers in units of 1/unit."""

    unit: int
    floors: list[int]
    caps: list[int]
    sums: list[int]
    block: int


def _common(law: SelectionLaw | BlockFillLaw) -> int:
    """Return the common denominator of outputs and range."""
    return math.lcm(*(v.denominator for v in (*law.bins, law.lower, law.upper)))


@serializable("block-fill-law")
@dataclass(frozen=True)
class BlockFillLaw(ExactLaw):
    r"""Exact block fill of rational floors.

    Parameters
    ----------
    bins : tuple of Fraction, length m
        Outputs, doubles as exact rationals ``Fraction(b)``.
    floors : tuple of Fraction, length m
        a ≥ 0.
    rho : Fraction
        A proved rational lower bound of :math:`e^\varepsilon`.
    lower, upper : Fraction
        The input range.

    Raises
    ------
    InfeasibleError
        The floors do not reach every mean of the range exactly.

    Examples
    --------
    >>> F = Fraction
    >>> law = BlockFillLaw((F(-2), F(0), F(2)), (F(1, 5),) * 3, F(3), F(-1, 2), F(1, 2))
    >>> [str(p) for p in law.row(0, 0)]
    ['9/20', '7/20', '1/5']
    >>> law.ratio() <= 3
    True
    """

    bins: tuple[Fraction, ...]
    floors: tuple[Fraction, ...]
    rho: Fraction
    lower: Fraction
    upper: Fraction

    def __post_init__(self) -> None:
        *_, sums, block = self._line
        if block < 0 or sums[-1] < block or min(self.floors) < 0:
            raise InfeasibleError(
                "the floors cannot be completed to probabilities: need a >= 0 and 1/rho <= sum(a) <= 1"
            )
        knots, wanted = self.knots, [float(self.lower), float(self.upper)]
        if len(knots) < 2 or knots[0] != self.lower or knots[-1] != self.upper:
            met = [float(x) for x in (*knots[:1], *knots[1:][-1:])]
            raise InfeasibleError(f"the floors reach the means {met}, not all of {wanted}")

    @cached_property
    def _line(self) -> _Line:
        unit = math.lcm(*(a.denominator for a in self.floors)) * self.rho.denominator
        floors, caps = ([int(factor * a * unit) for a in self.floors] for factor in (1, self.rho))
        sums = accumulate((c - a for a, c in zip(floors, caps)), initial=0)
        return _Line(unit, floors, caps, list(sums), unit - sum(floors))

    @cached_property
    def knots(self) -> tuple[Fraction, ...]:  # type: ignore[override]
        unit = self._line.unit * _common(self)
        return tuple(Fraction(x, unit) for x, *_ in self._places)

    @cached_property
    def _places(self) -> list[tuple[int, int, int, Fraction]]:
        """For every knot: the mean, the outputs i and j in whose weights the block begins and ends, and its start."""
        (unit, floors, _, S, W), m, scale = self._line, len(self.bins), _common(self)
        B = [int(b * scale) for b in self.bins]
        lower, upper = (int(v * scale) * unit for v in (self.lower, self.upper))
        base = sum(a * b for a, b in zip(floors, B))
        moments = list(accumulate(((t - s) * b for s, t, b in zip(S, S[1:], B)), initial=base))
        events = {S[k] - d for k in range(1, m) for d in (0, W)}
        positions = [0, *sorted(s for s in events if 0 < s < S[m] - W), S[m] - W]
        nearest = (upper - lower) >> 40
        places: list[tuple[int, int, int, Fraction]] = []
        for start, stop in pairwise(positions):
            i, j = (bisect_right(S, s, 1, m) - 1 for s in (start, start + W))
            slope = B[j] - B[i]
            first = moments[j] + (start + W - S[j]) * B[j] - (moments[i] - base) - (start - S[i]) * B[i]
            last = first + (stop - start) * slope
            if slope == 0 or last <= lower or first >= upper:
                continue
            for x in (max(first, lower), min(last, upper)):
                if x == upper and len(places) > 1 and x - places[-1][0] < nearest:
                    places.pop()
                if not places or x - places[-1][0] >= nearest:
                    places.append((x, i, j, start + Fraction(x - first, slope)))
        return places

    def _fractional(self, knot: int) -> tuple[int, int, Fraction, Fraction]:
        """Return the two outputs at the block's ends at a knot, with their probabilities in units of 1/_unit."""
        (_, i, j, s), (_, floors, _, sums, block) = self._places[knot], self._line
        return i, j, floors[i] + sums[i + 1] - s, floors[j] + s + block - sums[j]

    def weights(self, segment: int, end: int) -> tuple[list[int], int]:
        return self._weights(segment + end)

    def limits(self) -> Iterator[tuple[Fraction, list[int], int]]:
        for knot, x in enumerate(self.knots):  # continuous: both limits are the same
            yield x, *self._weights(knot)

    def _weights(self, knot: int) -> tuple[list[int], int]:
        (i, j, low, high), (unit, floors, caps, *_) = self._fractional(knot), self._line
        row, common = [*floors[: i + 1], *caps[i + 1 : j], *floors[j:]], low.denominator
        row = [common * v for v in row]
        row[i], row[j] = int(common * low), int(common * high)
        return row, common * unit

    def row(self, segment: int, end: int) -> list[Fraction]:
        weights, common = self.weights(segment, end)
        return [Fraction(w, common) for w in weights]

    def tables(self) -> tuple[Array, Array]:
        # row by row in fractions, designs of 64 and 128 outputs took 1.8 and 2.3 times as long
        unit, *parts = self._line[:3]
        floors, caps = (np.array([v / unit for v in part]) for part in parts)
        table = np.tile(floors, (len(self.knots), 1))
        for k, row in enumerate(table):
            i, j, low, high = self._fractional(k)
            row[i + 1 : j] = caps[i + 1 : j]
            row[i], row[j] = float(low / unit), float(high / unit)
        return table[:-1], table[1:]


_UNBIASED = Fraction(1, 10**9)

T = TypeVar("T")


def rational_row(row: Sequence[Fraction], bins: Sequence[Fraction], mean: Fraction) -> list[Fraction]:
    """Return `row` with its two largest entries moved so that Σp = 1 and Σ B p = `mean`; the caller checks that they stay non-negative.

    Examples
    --------
    >>> row = rational_row([Fraction(1, 5), Fraction(0), Fraction(4, 5)], [Fraction(-1), Fraction(0), Fraction(1)], Fraction(2, 5))
    >>> [str(p) for p in row]
    ['3/10', '0', '7/10']
    """
    out, moment = list(row), sum((p * b for p, b in zip(row, bins) if p), Fraction(0))
    i, j = sorted(range(len(out)), key=lambda k: -out[k])[:2]
    missing = 1 - sum(out, Fraction(0))
    # d_i + d_j = missing, B_i d_i + B_j d_j = mean - moment
    change = (mean - moment - bins[i] * missing) / (bins[j] - bins[i])
    out[i] += missing - change
    out[j] += change
    return out


def repaired_row(row: Sequence[float], bins: Sequence[Fraction], x: Fraction) -> tuple[Fraction, ...]:
    """Return a rational row near a row in floats that sums to 1, and has mean x if the row's mean is within 10⁻⁹ of the outputs' range.

    The two largest entries absorb the difference, so that an entry of 0 stays 0. A row with one entry, or whose two largest are too
    small for it, is divided by its sum.

    Examples
    --------
    >>> [str(p) for p in repaired_row([0.3, 0.0, 0.7], [Fraction(-1), Fraction(0), Fraction(1)], Fraction(2, 5))]
    ['3/10', '0', '7/10']
    """
    exact = [Fraction(p) for p in row]
    total, moment = sum(exact, Fraction(0)), sum((p * b for p, b in zip(exact, bins)), Fraction(0))
    if sum(p > 0 for p in exact) > 1 and abs(moment - x) <= _UNBIASED * (bins[-1] - bins[0]):
        moved = rational_row(exact, bins, x)
        if all(p > 0 for p, before in zip(moved, exact) if before):
            return tuple(moved)
    return tuple(p / total for p in exact)


def repaired_table(bins: Array, knots: Array, starts: Array, ends: Array) -> RationalTable:
    """Return the exact law near a table in floats, with each row repaired separately (`repaired_row`)."""
    b, x = ([Fraction(v) for v in values.tolist()] for values in (bins, knots))
    rows = (
        tuple(repaired_row(row, b, at) for row, at in zip(part.tolist(), places))
        for part, places in ((starts, x[:-1]), (ends, x[1:]))
    )
    return RationalTable(tuple(b), tuple(x), *rows)


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
    """Return the first answer of ``solve(b)``, for budgets b falling from `budget`, that is exactly within `budget`.

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


def rational_ratio(epsilon: float) -> Fraction:
    """Return a proved lower bound of e^ε with 64 fractional bits, the ratio of exact laws."""
    unit = 1 << 64
    return Fraction(int(exp_lower(float(epsilon)) * unit), unit)


def exact_block_fill(
    bins: Array, floors: Array, epsilon: float, lower: float | Fraction, upper: float | Fraction
) -> BlockFillLaw:
    r"""Return the block fill in exact arithmetic of floors close to the given ones, for certificates.

    Floors are rounded to multiples of 2⁻⁶⁴ and ρ to a rational of 64 fractional bits below :math:`e^\varepsilon`.
    If rounding puts the floors outside the polytope of `range_constraints`, the least share of
    `interior_floors` that suffices is mixed in.

    Parameters
    ----------
    bins, floors : ndarray (m,)
    epsilon : float
    lower, upper : float or Fraction
        The input range, taken exactly.

    Raises
    ------
    InfeasibleError
        No rational mechanism was found for this ε and these outputs (ε is within rounding of the smallest feasible
        one).

    Examples
    --------
    >>> law = exact_block_fill(np.array([-2.0, 0.0, 2.0]), np.full(3, 0.2), 1.1, -0.5, 0.5)
    >>> [str(x) for x in law.knots]
    ['-1/2', '0', '1/2']
    """
    unit = 1 << 64
    rho = rational_ratio(epsilon)
    exact_bins = tuple(Fraction(float(b)) for b in bins)
    ends = Fraction(lower), Fraction(upper)
    target = np.maximum(np.asarray(floors, dtype=float), 0.0)
    inside: Array | None = None
    failure: InfeasibleError | None = None
    for share in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6, 1e-4, 1.0):
        if share and inside is None:
            inside = interior_floors(np.asarray(bins, dtype=float), float(rho), float(lower), float(upper))
        mixed = target if inside is None else (1 - share) * target + share * inside
        rounded = tuple(Fraction(round(v * unit), unit) for v in mixed.tolist())
        try:
            return BlockFillLaw(exact_bins, rounded, rho, *ends)
        except InfeasibleError as error:
            failure = error
    assert failure is not None
    raise InfeasibleError(
        f"no exactly unbiased rational mechanism at epsilon = {epsilon!r} with these outputs: {failure.reason}",
        smallest_epsilon=smallest_epsilon(np.asarray(bins, dtype=float), float(lower), float(upper)),
    )


def widened(bins: Array, input_range: tuple[float, float], epsilon: float, bias: float) -> tuple[Array, int]:
    """Return outputs that are exactly feasible, and the units in the last place by which the outermost were moved.

    Outputs that need more than 8 units are infeasible beyond rounding, and returned unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> A = (math.exp(0.1) + 1) / (math.exp(0.1) - 1)
    >>> widened(np.array([-A, A]), (-1.0, 1.0), 0.1, 0.0)[1]
    4
    """
    rho, out, inset = rational_ratio(epsilon), bins.copy(), Fraction(bias)
    for units in range(9):
        needed = least_ratio(out, Fraction(input_range[0]) + inset, Fraction(input_range[1]) - inset)
        if needed is not None and needed <= rho:
            return out, units
        out[0], out[-1] = math.nextafter(out[0], -math.inf), math.nextafter(out[-1], math.inf)
    return bins, 0


def exact_law(
    problem: FloorProblem,
    floors: Array,
    bins: Array,
    input_range: tuple[float, float],
    frame: tuple[float, float],
    epsilon: float,
    bias: float,
) -> ExactLaw:
    """Return the exact law of some floors; with a bias budget, one with an exact row at both ends of every piece.

    Parameters
    ----------
    problem : FloorProblem
        Centred and scaled by `frame`; the other arguments are in the units of the design.
    floors : ndarray (m,)

    Raises
    ------
    InfeasibleError
        No rational law was found within ε.
    """
    lower, upper = input_range
    if bias == 0:
        try:
            return exact_block_fill(bins, floors, epsilon, lower, upper)
        except InfeasibleError as error:
            outermost = outermost_law(bins.tolist(), input_range)
            if excess_loss(outermost, epsilon) > 0:
                raise error
            return outermost
    table, budget = pieces(problem, floors), Fraction(bias)
    centre, unit = (Fraction(v) for v in frame)
    means = table.fill.means
    inset = 1e-12 * (means[-1] - means[0])
    # slightly inside the floors' own means, and out to those that the bias budget requires
    start, stop = (centre + unit * Fraction(float(v)) for v in (means[0] + inset, means[-1] - inset))
    low, high = min(start, Fraction(lower) + budget), max(stop, Fraction(upper) - budget)
    if high - low < 1e-9 * (bins[-1] - bins[0]):
        return _constant_law(bins, floors, Fraction(lower), Fraction(upper), budget)
    base = exact_block_fill(bins, floors, epsilon, low, high)
    first, last = base.knots[0], base.knots[-1]
    knots = [centre + unit * Fraction(float(x)) for x in table.edges]
    knots[0], knots[-1] = Fraction(lower), Fraction(upper)
    # far from 0 doubles are coarser
    kept = [k for k, (a, b) in enumerate(pairwise(knots)) if float(a) < float(b)]
    knots = [Fraction(lower), *(knots[k] for k in kept[1:]), Fraction(upper)]
    rows: list[list[tuple[Fraction, ...]]] = [[], []]
    for end in (0, 1):
        for i, k in enumerate(kept):
            x = knots[i + end]
            if table.position[k] >= 0:
                mean = centre + unit * Fraction(float(means[table.position[k]]))
            else:
                mean = x + (budget if table.shift[k] > 0 else -budget)
            mean = min(max(mean, x - budget, first), x + budget, last)
            rows[end].append(tuple(base.at(mean)))
    return RationalTable(base.bins, tuple(knots), tuple(rows[0]), tuple(rows[1]))


def _constant_law(bins: Array, floors: Array, lower: Fraction, upper: Fraction, budget: Fraction) -> ExactLaw:
    """Return a mechanism independent of its input, near one that hardly depends on it."""
    exact = tuple(Fraction(float(b)) for b in bins)
    row = [Fraction(max(float(a), 0.0)) for a in floors]
    row = [p / sum(row, Fraction(0)) for p in row]
    mean = sum((b * p for b, p in zip(exact, row)), Fraction(0))
    within = min(max(mean, upper - budget), lower + budget)
    if mean != within:
        row = rational_row(row, exact, within)
    return RationalTable(exact, (lower, upper), (tuple(row),), (tuple(row),))
