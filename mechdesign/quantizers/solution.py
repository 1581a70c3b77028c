r"""What every method hands back, and the lower bound that each of them proves in the same way.

Any slopes λ(x), μ(x) give a gradient G and a constant with

.. math:: \text{loss} \ge \int (\lambda + \mu x - b|\mu|)\,dF + \min_{a \in A} G \cdot a

for all mechanisms with these outputs (`expected_loss`); the minimum over the polytope A is bounded by the
multipliers of its rows.

From what a method leaves behind to multipliers that prove its bound: the fill's chords, as `DualPieces`.

A method says at which floors the fill's chords are taken, on which inputs and with which weights (`Chords`), and which
lines it takes at point masses or worst inputs (`Lines`). The frame of the methods is undone here.

**The law in exact arithmetic**, `extreme_law` and `widened` at the very edge of what is feasible. Two outputs that are as far out as ε just requires (Duchi et al.'s) leave one mechanism, which maximises
:math:`P(B_m \mid hi)/P(B_m \mid lo)`; a double rounds such outputs slightly too far in or out. Too far in, they are
`widened` by a few units in the last place; so close to the edge that floats cannot tell, the law of the two
outermost outputs is taken (`extreme_law`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.exact import exp_lower
from mechdesign.quantizers.dual_pieces import DualPieces
from mechdesign.quantizers.exact_law import (
    BlockFillLaw,
    ExactLaw,
    RationalTable,
    excess_loss,
    outermost_law,
    rational_row,
)
from mechdesign.quantizers.floors import FloorProblem, Pieces, interior_floors, pieces, smallest_epsilon
from mechdesign.quantizers.table import largest_loss
from mechdesign.typing import Array

_LARGEST = 200.0  # the largest ε that is inside the stated magnitudes


@dataclass(frozen=True, eq=False)
class FloorSolution:
    """Floors, what they achieve and what is proved.

    Attributes
    ----------
    floors : ndarray (m,)
    value : float
        The loss of the block fill of `floors`.
    lower_bound : float
        No ε-LDP mechanism with these outputs, and no more bias than allowed, does better.
    iterations : int
        Newton steps, or rounds of a cutting-plane method.
    multipliers : ndarray
        Of the rows of `range_constraints`.
    methods : tuple of str
        The methods tried, in order.
    proof : DualSolution, optional
        What the lower bound was found from.
    margin : float
        What rounding took off the lower bound.
    """

    floors: Array
    value: float
    lower_bound: float
    iterations: int
    multipliers: Array
    methods: tuple[str, ...] = ()
    proof: DualSolution | None = None
    margin: float = 0.0

    @property
    def gap(self) -> float:
        """Relative distance between value and bound."""
        return (self.value - self.lower_bound) / max(abs(self.value), 1e-300)

    def merged(self, other: FloorSolution | None) -> FloorSolution:
        """Return the better floors with the better bound and what belongs to it, efforts added."""
        if other is None:
            return self
        best = other if other.value < self.value else self
        return replace(
            other if other.lower_bound > self.lower_bound else self,
            floors=best.floors,
            value=best.value,
            iterations=self.iterations + other.iterations,
            methods=self.methods + other.methods,
        )


def patience(value: float, bound: float, margin: float) -> int:
    """How many steps may bring nothing: one where next to nothing but the margin for rounding keeps value and bound apart."""
    return 1 if value - bound <= 1.05 * margin else 25


def lower_bound(
    problem: FloorProblem, constant: float, gradient: Array, multipliers: Array
) -> tuple[float, float]:
    r"""Bound ∫(λ + μx) dF + min_{a ∈ A} G·a from below, rounding included; and return what rounding took off it.

    For any ν ≥ 0 on the rows of C that fix the range of means, the minimum is at least
    :math:`\nu \cdot b + \min_k (G - C^\top \nu)_k \cdot \{1/\rho \text{ or } 1\}`, the last factor being the
    extreme of Σa that is worse. The margin covers the errors of the integrals that made G. Those of a callable loss, by
    quadrature, are in proportion to what the own output can cost: an output far out that is not used then costs the bound
    nothing, however steep the loss.
    """
    C, b = problem.constraints
    nu = np.maximum(multipliers, 0.0)
    nu[:2] = 0.0

    def least(rest: Array) -> float:
        found = float(rest.min())
        return found / problem.rho if found >= 0 else found

    rest, fixed = gradient - nu @ C, constant + float(nu @ b)
    bound, common = fixed + least(rest), float(nu @ np.abs(b))
    if problem.loss.polynomial:
        size = problem.scale + common + float(np.abs(gradient).max()) + float((nu @ np.abs(C)).max())
        margin = float(problem.accuracy * size)
        return float(bound) - margin, margin
    own = 2 * problem.largest + np.abs(gradient) + nu @ np.abs(C)
    lowered = fixed + least(rest - problem.accuracy * own)
    lowered -= problem.accuracy * (float(problem.largest.min()) + abs(constant) + common)
    return float(lowered), float(bound - lowered)


def without_privacy(problem: FloorProblem, solution: FloorSolution, epsilon: float) -> FloorSolution:
    """Return the solution with a bound for a budget beyond that of the problem: the loss without privacy.

    Its lines are chords through neighbouring outputs, so that no reduced cost is negative and ρ multiplies none.
    """
    if not problem.loss.polynomial or epsilon > _LARGEST:
        return replace(solution, lower_bound=-np.inf, proof=None)
    floors, nothing = (
        np.full(len(problem.bins), 1.0 / (problem.rho - 1.0)),
        np.zeros_like(solution.multipliers),
    )
    proof, fill = fill_proof(problem, floors, nothing), pieces(problem, floors)
    value = fill.expected_loss(problem)
    if problem.objective == "worst":
        value, x = largest_loss(fill.table, problem.loss)
        lines = Lines(np.array([x]), np.ones(1), *problem.slopes(np.array([x]), *fill.outputs(np.array([x]))))
        proof = DualSolution((), (lines,), nothing)
    margin = problem.scale * (problem.accuracy + len(floors) * float(floors[0]))
    return replace(solution, lower_bound=value - margin, proof=proof, multipliers=nothing)


def at_point_masses(
    problem: FloorProblem, floors: Array, lam: Array, mu: Array
) -> tuple[float, float, Array]:
    """What point masses add to the loss of the floors' fill; and, with slopes there, to a bound's constant and gradient."""
    points, weights = problem.atoms
    table = pieces(problem, floors)
    rows = table.rows_at(points, table.at(points))
    value = float(weights @ np.sum(rows * problem.loss(problem.bins - points[:, None]), axis=1))
    return value, float(weights @ (lam + mu * points)), weights @ problem.reduced(points, lam, mu)


@dataclass(frozen=True, eq=False)
class Chords:
    """The fill's chords on the inputs from `start` to `stop`, with weight `share`; `table` is the fill's."""

    table: Pieces
    start: float
    stop: float
    share: float = 1.0


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines λ + μB at single inputs, with weights that are shares of the prior's point masses there."""

    x: Array
    share: Array
    lam: Array
    mu: Array


@dataclass(frozen=True, eq=False)
class DualSolution:
    """Multipliers, by piece and by point mass, that prove a lower bound."""

    chords: tuple[Chords, ...]
    lines: tuple[Lines, ...]
    multipliers: Array
    cap_price: float = 0.0


def fill_proof(
    problem: FloorProblem, floors: Array, multipliers: Array, duals: tuple[Array, Array] | None = None
) -> DualSolution:
    """The fill's own chords everywhere; at point masses the given λ and μ, or those chords too."""
    table, x = pieces(problem, floors), problem.atoms[0]
    if duals is None:
        duals = problem.slopes(x, *table.outputs(x))
    return DualSolution(
        (Chords(table, problem.lower, problem.upper),), (Lines(x, np.ones(len(x)), *duals),), multipliers
    )


def dual_pieces(problem: FloorProblem, proof: DualSolution, frame: tuple[float, float]) -> DualPieces:
    """Return the multipliers in the design's own units."""
    m, (centre, unit) = len(problem.bins), frame
    chords = proof.chords if problem.has_density else ()
    parts = [_chords(problem, c, proof.cap_price) for c in chords]
    parts += [_lines(problem, p, proof.cap_price) for p in proof.lines]
    table = np.concatenate([np.zeros((0, 7)), *parts])
    # Weights that were divided by their sum may add up to slightly more than one.
    table[table[:, 2] % 0.5 != 0, 2] *= 1 - 1e-13
    table[:, :2] *= unit
    table[:, 5:] /= unit
    upper, lower = np.maximum(proof.multipliers[2:], 0.0).reshape(2, m) / unit
    return DualPieces(table, np.stack([upper, lower]), centre, proof.cap_price / unit**2)


def _straight(problem: FloorProblem, x: Array, lam: Array, mu: Array, price: float) -> tuple[Array, Array]:
    """L and M, which are affine where no output is passed."""
    w2 = problem.loss.squared + price
    # Lowered by a slack, so that rounding leaves no cost below zero at the line's own outputs: ρ would multiply it.
    slack = 4e-16 * (problem.scale + price * problem.span**2)
    return lam - w2 * x * x - slack, mu + 2 * w2 * x


def _chords(problem: FloorProblem, chords: Chords, price: float) -> Array:
    table = chords.table
    cells, at = table.cells(np.array([chords.start, chords.stop]))
    inside = (cells[:-1] >= chords.start) & (cells[1:] <= chords.stop)
    u, v, at = cells[:-1][inside], cells[1:][inside], at[inside]
    i, j = table.left[at], table.right[at]
    middle, loss = (u + v) / 2, problem.loss
    # One-sided limits: the sign of B − x is the one inside the cell.
    low, high = problem.bins[i], problem.bins[j]
    sign_low, sign_high = np.where(low < middle, -1.0, 1.0), np.where(high < middle, -1.0, 1.0)
    ends = []
    for x in (u, v):
        cost_low = loss.absolute * sign_low * (low - x) + (loss.squared + price) * (low - x) ** 2
        cost_high = loss.absolute * sign_high * (high - x) + (loss.squared + price) * (high - x) ** 2
        mu = np.where(i == j, 0.0, (cost_high - cost_low) / np.where(i == j, 1.0, high - low))
        ends.append(_straight(problem, x, cost_low - mu * low, mu, price))
    (L0, M0), (L1, M1) = ends
    return np.stack([u, v, np.full(len(u), chords.share), L0, L1, M0, M1], axis=1)


def _lines(problem: FloorProblem, lines: Lines, price: float) -> Array:
    x, share, mu = lines.x, lines.share, lines.mu
    L, M = _straight(problem, x, lines.lam, mu, price)
    return np.stack([x, x, share, L, L, M, M], axis=1)


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
    law = outermost_law(bins.tolist(), (lower, upper))
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
            rows[end].append(tuple(base.at(mean)))
    return RationalTable(base.bins, tuple(knots), tuple(rows[0]), tuple(rows[1]))


def _constant_law(bins: Array, floors: Array, lower: Fraction, upper: Fraction, budget: Fraction) -> ExactLaw:
    """A mechanism that does not depend on its input, next to one that hardly does."""
    exact = tuple(Fraction(float(b)) for b in bins)
    row = [Fraction(max(float(a), 0.0)) for a in floors]
    row = [p / sum(row, Fraction(0)) for p in row]
    mean = sum((b * p for b, p in zip(exact, row)), Fraction(0))
    within = min(max(mean, upper - budget), lower + budget)
    if mean != within:
        row = rational_row(row, exact, within)
    return RationalTable(exact, (lower, upper), (tuple(row),), (tuple(row),))


def _covered(
    table: Pieces, centre: Fraction, unit: Fraction, low: Fraction, high: Fraction
) -> tuple[Fraction, Fraction]:
    """Means that the pieces use: a little inside what the floors reach, and all that the budget requires."""
    means = table.fill.means
    inset = 1e-12 * (means[-1] - means[0])
    start, stop = (centre + unit * Fraction(float(v)) for v in (means[0] + inset, means[-1] - inset))
    return min(start, low), max(stop, high)
