r"""From floors to a law in exact arithmetic, and what to do at the very edge of what is feasible.

Two outputs that are as far out as ε just requires (Duchi et al.'s) leave one mechanism, which maximises
:math:`P(B_m \mid hi)/P(B_m \mid lo)`; a double rounds such outputs slightly too far in or out. Too far in, they are
`widened` by a few units in the last place; so close to the edge that floats cannot tell, the law of the two
outermost outputs is taken (`extreme_law`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise

import numpy as np

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.exact import exp_lower
from mechdesign.quantizers.mechanism.exact_law import (
    BlockFillLaw,
    ExactLaw,
    RationalTable,
    excess_loss,
    rational_row,
)
from mechdesign.quantizers.optimal.floors import (
    FloorProblem,
    Pieces,
    interior_floors,
    pieces,
    smallest_epsilon,
)
from mechdesign.typing import Array


def rational_ratio(epsilon: float) -> Fraction:
    """Return a proved lower bound of e^ε with 64 fractional bits: what exact laws are made for."""
    unit = 1 << 64
    return Fraction(int(exp_lower(float(epsilon)) * unit), unit)


def exact_block_fill(
    bins: Array, floors: Array, epsilon: float, lower: float | Fraction, upper: float | Fraction
) -> BlockFillLaw:
    r"""Block fill in exact arithmetic of floors close to the given ones: what certificates are made of.

    Floors are rounded to multiples of 2⁻⁶⁴ and ρ to a rational of 64 fractional bits below :math:`e^\varepsilon`.
    Where rounding has put the floors outside the polytope of `range_constraints`, as little of
    `interior_floors` as will do is mixed in.

    Parameters
    ----------
    bins, floors : ndarray (m,)
    epsilon : float
    lower, upper : float or Fraction
        The input range, taken exactly.

    Raises
    ------
    InfeasibleError
        At this ε and with these outputs no rational mechanism was found (ε is the smallest feasible one to
        within rounding).

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
        try:
            return BlockFillLaw(
                exact_bins, tuple(Fraction(round(v * unit), unit) for v in mixed.tolist()), rho, *ends
            )
        except InfeasibleError as error:
            failure = error
    assert failure is not None
    raise InfeasibleError(
        f"no exactly unbiased rational mechanism at epsilon = {epsilon!r} with these outputs: {failure.reason}",
        smallest_epsilon=smallest_epsilon(np.asarray(bins, dtype=float), float(lower), float(upper)),
    )


def _required(bins: Array, lower: float, upper: float, bias: float) -> Fraction | None:
    """The exact ratio of probabilities that two outermost outputs need; None where no ratio suffices."""
    first, last = Fraction(float(bins[0])), Fraction(float(bins[-1]))
    low, high = Fraction(lower) + Fraction(bias), Fraction(upper) - Fraction(bias)
    if low >= high:
        return Fraction(1)
    if first >= low or last <= high:
        return None
    return max((last - low) / (last - high), (high - first) / (low - first))


def widened(bins: Array, input_range: tuple[float, float], epsilon: float, bias: float) -> tuple[Array, int]:
    """Return outputs that are exactly feasible, and by how many units in the last place the outermost were moved.

    At most 8 units: what lies further in is not a matter of rounding, and is returned as it is.

    Examples
    --------
    >>> import numpy as np
    >>> A = (math.exp(0.1) + 1) / (math.exp(0.1) - 1)
    >>> widened(np.array([-A, A]), (-1.0, 1.0), 0.1, 0.0)[1]
    4
    """
    rho, out = rational_ratio(epsilon), bins.copy()
    for units in range(9):
        needed = _required(out, *input_range, bias)
        if needed is not None and needed <= rho:
            return out, units
        out[0], out[-1] = math.nextafter(out[0], -math.inf), math.nextafter(out[-1], math.inf)
    return bins, 0


def extreme_law(bins: Array, lower: float, upper: float, epsilon: float) -> ExactLaw:
    """Return the exact unbiased law that uses the two outermost outputs only.

    Raises
    ------
    InfeasibleError
        It is over the budget.
    """
    exact, ends = tuple(Fraction(float(b)) for b in bins), (Fraction(lower), Fraction(upper))
    rows = []
    for x in ends:
        share = (x - exact[0]) / (exact[-1] - exact[0])
        rows.append([1 - share, *[Fraction(0)] * (len(exact) - 2), share])
    law = RationalTable.continuous(exact, ends, rows)
    if excess_loss(law, epsilon) > 0:
        raise InfeasibleError(
            f"no exactly unbiased rational mechanism at epsilon = {epsilon!r} with these outputs"
        )
    return law


def exact_law(
    problem: FloorProblem,
    floors: Array,
    bins: Array,
    input_range: tuple[float, float],
    frame: tuple[float, float],
    epsilon: float,
    bias: float,
) -> ExactLaw:
    """Return the exact law of some floors; with a bias budget: an exact row at both ends of every piece.

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
        except InfeasibleError:
            return extreme_law(bins, lower, upper, epsilon)
    table = pieces(problem, floors)
    budget = Fraction(bias)
    centre, unit = (Fraction(v) for v in frame)
    low, high = _covered(table, centre, unit, Fraction(lower) + budget, Fraction(upper) - budget)
    if high - low < 1e-9 * (bins[-1] - bins[0]):
        return _constant_law(bins, floors, Fraction(lower), Fraction(upper), budget)
    base = exact_block_fill(bins, floors, epsilon, low, high)
    first, last = base.knots[0], base.knots[-1]
    knots = [centre + unit * Fraction(float(x)) for x in table.edges]
    knots[0], knots[-1] = Fraction(lower), Fraction(upper)
    kept = [
        k for k, (a, b) in enumerate(pairwise(knots)) if float(a) < float(b)
    ]  # far from 0 doubles are coarser
    knots = [Fraction(lower), *(knots[k] for k in kept[1:]), Fraction(upper)]
    rows: list[list[tuple[Fraction, ...]]] = [[], []]
    for end in (0, 1):
        for i, k in enumerate(kept):
            x = knots[i + end]
            if table.position[k] >= 0:
                mean = centre + unit * Fraction(float(table.fill.means[table.position[k]]))
            else:
                mean = x + (budget if table.shift[k] > 0 else -budget)
            mean = min(max(mean, x - budget, first), x + budget, last)
            rows[end].append(tuple(_row_at(base, mean)))
    return RationalTable(base.bins, tuple(knots), tuple(rows[0]), tuple(rows[1]))


def _constant_law(bins: Array, floors: Array, lower: Fraction, upper: Fraction, budget: Fraction) -> ExactLaw:
    """A mechanism that does not depend on its input, next to one that hardly does."""
    exact = tuple(Fraction(float(b)) for b in bins)
    row = [Fraction(max(float(a), 0.0)) for a in floors]
    row = [p / sum(row, Fraction(0)) for p in row]
    mean = sum((b * p for b, p in zip(exact, row)), Fraction(0))
    within = min(max(mean, upper - budget), lower + budget)
    if mean != within:
        row = rational_row([float(p) for p in row], exact, within)
    return RationalTable(exact, (lower, upper), (tuple(row),), (tuple(row),))


def _covered(
    table: Pieces, centre: Fraction, unit: Fraction, low: Fraction, high: Fraction
) -> tuple[Fraction, Fraction]:
    """Means that the pieces use: a little inside what the floors reach, and all that the budget requires."""
    means = table.fill.means
    inset = 1e-12 * (means[-1] - means[0])
    start, stop = (centre + unit * Fraction(float(v)) for v in (means[0] + inset, means[-1] - inset))
    return min(start, low), max(stop, high)


def _row_at(law: ExactLaw, mean: Fraction) -> list[Fraction]:
    """Row of a continuous exact law at any point of its range."""
    k = min(max(bisect_right(law.knots, mean) - 1, 0), len(law.knots) - 2)
    t = (mean - law.knots[k]) / (law.knots[k + 1] - law.knots[k])
    return [(1 - t) * p + t * q for p, q in zip(law.row(k, 0), law.row(k, 1))]
