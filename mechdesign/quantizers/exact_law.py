r"""The exact law of the optimal mechanism of given floors, and exact rows next to rows in doubles.

**Block fill** in rationals (`mechdesign.quantizers.floors`). The law of floors a, a ratio ρ and outputs B is piecewise affine with rational
breakpoints, so the constraints

.. math:: a_i \le p(x, i) \le \rho a_i, \qquad \sum_i p(x, i) = 1, \qquad \sum_i B_i p(x, i) = x

hold exactly, for every x. A row differs from floors and caps in two entries only, so the law is stored by its
floors, and rows are computed when needed. Knots closer than 2⁻⁴⁰ of the range are merged, so that they stay distinct as doubles.

**From doubles to exact rows**: a row is rounded to multiples of 2⁻⁸⁰, and its sum and mean are corrected by moving its two
largest entries, by about 1e-17. The rows of a user's own table are repaired in the same way (`repaired_row`).

**At the edge of feasibility** two outputs with exactly the reach that ε requires (Duchi et al.'s) admit one mechanism, and rounding moves
them slightly inwards or outwards. Outputs too far in are `widened` by a few units in the last place; where doubles cannot decide, the
law of the two outermost outputs is taken.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.floors import FloorProblem, interior_floors, pieces
from mechdesign.quantizers.table import (
    ExactLaw,
    RationalTable,
    common_denominator,
    excess_loss,
    least_ratio,
    outermost_law,
    smallest_epsilon,
)
from mechdesign.typing import Array


class _Line(NamedTuple):
    """Floors, caps and running sums of the weights, and the block, as integers in units of 1/unit."""

    unit: int
    floors: list[int]
    caps: list[int]
    sums: list[int]
    block: int


@serializable("block-fill-law")
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
        allowed = "the floors cannot be completed to probabilities: need a >= 0 and 1/rho <= sum(a) <= 1"
        InfeasibleError.when(block < 0 or sums[-1] < block or min(self.floors) < 0, allowed)
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
        unit = self._line.unit * common_denominator((*self.bins, self.lower, self.upper))
        return tuple(Fraction(x, unit) for x, *_ in self._places)

    @cached_property
    def _places(self) -> list[tuple[int, int, int, Fraction]]:
        """For every knot: the mean, the outputs i and j in whose weights the block begins and ends, and its start."""
        (unit, floors, _, S, W), m, scale = (
            self._line,
            len(self.bins),
            common_denominator((*self.bins, self.lower, self.upper)),
        )
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
    target, outputs = np.maximum(np.asarray(floors, dtype=float), 0.0), np.asarray(bins, dtype=float)
    reason = ""
    for share in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6, 1e-4, 1.0):
        inside = interior_floors(outputs, float(rho), float(lower), float(upper)) if share else target
        mixed = (1 - share) * target + share * inside
        rounded = tuple(Fraction(round(v * unit), unit) for v in mixed.tolist())
        try:
            return BlockFillLaw(exact_bins, rounded, rho, *ends)
        except InfeasibleError as error:
            reason = error.reason
    raise InfeasibleError(
        f"no exactly unbiased rational mechanism at epsilon = {epsilon!r} with these outputs: {reason}",
        smallest_epsilon=smallest_epsilon(outputs, float(lower), float(upper)),
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
    # nearly constant means are spread a little, within the bias budget
    room = Fraction(max(0.0, 1e-12 * (bins[-1] - bins[0]) - float(high - low))) / 2
    low, high = low - room, high + room
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
