r"""A lower bound on every mechanism's loss, from multipliers that anyone can check.

Let :math:`a_k` be the least probability of output k of an ε-LDP mechanism, ρ ≥ e^ε, :math:`h(c) = \min(c, \rho c)`. For any
line :math:`\lambda + \mu B` at an input x, with reduced costs :math:`c_k = \ell(B_k - x) - \lambda - \mu B_k`,

.. math:: \sum_k p(x, k)\, \ell(B_k - x) \ge \lambda + \mu x - b |\mu| + \sum_k a_k h(c_k(x)),

as the bias is at most b and :math:`a_k \le p(x, k) \le \rho a_k`. Averaged over inputs (with the prior, or for the worst
case with any law on finitely many inputs) that is a constant plus :math:`G \cdot a`. The probabilities at the upper end hi of the range are between a and ρa,
sum to 1 and have a mean of at least hi − b, so that for any ν ≥ 0, with :math:`e_k = \sum_j \nu_j (B_k - B_j)`,

.. math:: \sum_k a_k \max(e_k, \rho e_k) \ge \sum_j \nu_j (hi - b - B_j),

and mirrored at the lower end. As :math:`1/\rho \le \sum_k a_k \le 1`, :math:`G \cdot a` is at least the right sides and
:math:`\min_k (G_k - \max(e_k, \rho e_k) - \text{its mirror image}) \{1/\rho \text{ or } 1\}`. The bound is valid for any λ, μ and ν; good ones make it
tight. They are stored as doubles, and the rest is computed in integers, rounded down.

On a piece [u, v] without an output inside, λ and μ are chosen such that :math:`c_k` is affine in x: with coordinates y = x − origin,
:math:`\lambda = w_2 y^2 + L`, :math:`\mu = M - 2 w_2 y`, L and M affine. h is concave, hence above its chord from end to end.

A search does not know its outputs beforehand. If the multipliers have outputs :math:`g_1 < \dots < g_n` of their own, the
bound holds for every mechanism whose outputs are among them; with `between`, for any number of outputs anywhere from :math:`g_1`
to :math:`g_n`. The reduced cost of an output :math:`(1 - t) g_k + t g_{k+1}` must not be below the mean of its neighbours' costs, which h
preserves, as it is concave. So :math:`c_k` is lowered by :math:`w_2 \max(g_{k+1} - g_k, g_k - g_{k-1})^2 / 4`, and in
:math:`w_1 |g_k - x| \ge \pm w_1 (g_k - x)` the sign changes at a neighbour of x's cell, never across x. The prices by ν are convex in
the output.

**As a finite linear program** over the pieces of the prior (`DualPieces.program`), third-party programs can check the bound.

Its variables are the floors a (least probabilities) of a mechanism, its rows at the two ends of the range, and for every piece
[u, v] of the multipliers the means of :math:`(1 - t)\, p(x, k)` and of :math:`t\, p(x, k)` under the piece's share of the prior,
t = (x − u)/(v − u). Any mechanism satisfies linear constraints in these: probabilities lie between a and ρa and sum to one, and the bias is
within its bound. On a piece without an output inside the loss is affine in x up to :math:`w_2 x^2`, so that its expectation is
linear in them. The multipliers of `DualPieces` are multipliers of these rows: lines λ + μB of the sums and the means, reduced costs of the
floors and caps.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq
from scipy import optimize

from mechdesign.checks import Checked, array, field, increasing, number, one_of, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_upper, fraction, round_down, round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import LinearBound
from mechdesign.problem.losses import Loss
from mechdesign.quantizers.moments import BITS, Cell, Moments, rational
from mechdesign.solvers.deadline import pause
from mechdesign.typing import Array

_RHO_BITS = 64


@serializable("dual-pieces", eq=False)
class DualPieces(Checked):
    """Multipliers that prove a lower bound.

    Parameters
    ----------
    pieces : array, shape (S, 7)
        u, v, share, L(u), L(v), M(u), M(v): a line on the inputs from u to v, and the share of the prior there to which it applies. If
        u = v, the share is that of the point mass at this input, or, for the worst case, the weight of this input.
    multipliers : array, shape (2, m)
        ν of the range's upper end, then of its lower one.
    origin : float
        Origin of u, v, L and M.
    cap_price : float
        Multiplier of the cap on the mean squared error, which is added to the loss: ℓ + price·t².
    outputs : array, shape (m,), optional
        Outputs for which the bound holds, if they differ from those of the mechanism.
    between : bool
        Whether the bound holds for any outputs from the first to the last of them.
    """

    pieces: Array = field(check=array, ndim=2, empty=True)
    multipliers: Array = field(check=array, ndim=2)
    origin: float = field(check=number, default=0.0)
    cap_price: float = field(check=number, default=0.0)
    outputs: Array | None = field(check=increasing, default=None)
    between: bool = field(check=one_of, allowed=(True, False), default=False)

    def _post_check(self) -> None:
        allowed = "needs the outputs between which others may be"
        refuse(self.between and self.outputs is None, "between", True, allowed)

    def sound(self, bins: tuple[Fraction, ...], *, worst: bool) -> bool:
        """Whether the bound is valid for these bins: shapes fit, multipliers are non-negative, no part of the prior is counted twice."""
        table, prices, places = self.pieces, self.multipliers, self.places(bins)
        if table.shape[1:] != (7,) or prices.shape != (2, len(places)) or prices.min() < 0:
            return False
        if self.cap_price < 0 or not self.cover(bins):
            return False
        u, v, share = table[:, :3].T
        if (v < u).any() or (share < 0).any():
            return False
        points = _summed(u[u == v], share[u == v])
        if worst:  # a law on finitely many inputs
            return bool((u == v).all()) and sum(points.values(), Fraction(0)) <= 1
        changes = _summed([*u[u < v], *v[u < v]], [*share[u < v], *-share[u < v]])
        covered = accumulate(change for _, change in sorted(changes.items()))
        return all(c <= 1 for c in (*covered, *points.values()))

    def within(self, input_range: tuple[float, float]) -> bool:
        """Whether every input with a weight in the worst case lies exactly in the design's range."""
        low, high = (Fraction(end) - Fraction(self.origin) for end in input_range)
        return all(low <= Fraction(u) <= high for u in self.pieces[:, 0].tolist())

    def moved_within(self, input_range: tuple[float, float]) -> DualPieces:
        """Return the multipliers with inputs moved into the design's range, exactly, if rounding put one outside."""
        table = self.pieces.copy()
        low, high = (Fraction(end) - Fraction(self.origin) for end in input_range)
        table[:, :2] = np.clip(table[:, :2], round_up(low), round_down(high))
        return replace(self, pieces=table)

    def places(self, bins: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
        """Return the outputs of the multipliers, by default `bins`."""
        return bins if self.outputs is None else tuple(map(Fraction, self.outputs.tolist()))

    def cover(self, bins: Iterable[float | Fraction]) -> bool:
        """Whether the bound holds for a mechanism with these outputs; it does if the multipliers have no outputs of their own."""
        if self.outputs is None:
            return True
        held = self.outputs.tolist()
        return all(held[0] <= b <= held[-1] if self.between else b in held for b in bins)

    def in_units(self, centre: float, unit: float) -> DualPieces:
        """Return the multipliers for inputs and outputs that are `unit` times as large, around `centre`."""
        table = self.pieces * np.array([unit, unit, 1.0, 1.0, 1.0, 1 / unit, 1 / unit])
        return replace(
            self,
            pieces=table,
            multipliers=self.multipliers / unit,
            origin=centre,
            cap_price=self.cap_price / unit**2,
        )

    def lowered(self, asked: Asked) -> DualPieces:
        """Return the lines lowered by the κ that proves most for outputs between those listed: .3% of the bound at ε = 1, 2 to 11% at ε = 2 to 4, all at 8.

        Doubles suffice to find κ, as the bound is valid for any.
        """
        if not len(self.pieces):  # nothing is proved
            return self
        rows, rho = _Rows(self, asked), math.exp(min(asked.epsilon, 700.0))
        bins, reductions = (np.array(part, dtype=float) for part in (rows.bins, rows.reductions))
        first, second = float(rows.first), float(rows.second)
        weights, costs, most = list[float](), list[Array](), second * float(reductions.max())
        for ends, turn, *_ in rows.pieces():
            signs = np.where(np.arange(len(bins)) < turn, -first, first)
            for end in ends:
                y, level, tilt = map(float, (end.y, end.level, end.tilt))
                weights.append(float(end.weight[0]))
                costs.append(signs * (bins - y) + second * (bins**2 - reductions) - level - tilt * bins)
            most += 2 * sum(weights[-len(ends) :]) * float(np.abs(costs[-len(ends)]).min())
        (upper, lower), rise = self.multipliers, np.maximum(bins - bins[:, None], 0.0)
        priced = upper @ (rho * rise - rise.T) + lower @ (rho * rise.T - rise)

        def lost(kappa: float) -> float:
            high = np.array(costs) + kappa
            least = float((np.array(weights) @ np.where(high > 0, high, rho * high) - priced).min())
            return kappa * sum(weights) - (least / rho if least > 0 else least)

        most = max(1e-300, most + first * float(np.diff(bins).min()))
        found = optimize.minimize_scalar(lost, bounds=(0.0, most), method="bounded", options={"maxiter": 16})
        table = self.pieces.copy()
        table[:, 3:5] -= found.x if found.fun < lost(0.0) else 0.0
        return replace(self, pieces=table)

    def spans(self) -> tuple[set[tuple[Fraction, Fraction]], Fraction]:
        """Return the intervals u < v of inputs over which the prior is integrated, and their origin."""
        found = {(Fraction(u), Fraction(v)) for u, v in self.pieces[:, :2].tolist() if u < v}
        return found, Fraction(self.origin)

    def lower_bound(self, asked: Asked) -> Fraction:
        """Return the proved bound for a problem."""
        if self.cap_price and asked.max_mse is None:
            raise DesignError.of("cap_price", self.cap_price, "must be 0: no mean squared error is capped")
        return fraction(_Rows(self, asked).bound())

    def program(self, asked: Asked) -> LinearBound:
        """Return the linear program whose multipliers these are, for the same problem."""
        return _Rows(self, asked).written()


class Asked(NamedTuple):
    """The problem that a lower bound is for.

    Parameters
    ----------
    outputs : tuple of Fraction
        Outputs of the multipliers (`DualPieces.places`).
    input_range : (Fraction, Fraction)
    epsilon : float
    loss : Loss
    moments : Moments or None
        Moments of the prior; None for the worst case.
    max_bias : float
    max_mse : float, optional
    """

    outputs: tuple[Fraction, ...]
    input_range: tuple[Fraction, Fraction]
    epsilon: float
    loss: Loss
    moments: Moments | None
    max_bias: float = 0.0
    max_mse: float | None = None


def less(whole: tuple[Any, Any], part: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return bounds on a whole less a part, at least 0."""
    return max(whole[0] - part[1], type(whole[0])(0)), whole[1] - part[0]


def _summed(keys: Iterable[float], values: Iterable[float]) -> dict[float, Fraction]:
    found: dict[float, Fraction] = {}
    for key, value in zip(keys, values):
        found[float(key)] = found.get(float(key), Fraction(0)) + Fraction(float(value))
    return found


def _pieces(duals: DualPieces, moments: Moments | None) -> Iterator[tuple[list[fmpq], Cell]]:
    """Yield the rows of the table, exact, with the prior's mass and moments on each piece, and with at most the whole of each point mass; without `moments` (the worst case) shares are weights."""
    origin, used = rational(duals.origin), dict[fmpq, fmpq]()
    table = [[*map(rational, row)] for row in duals.pieces.tolist()]
    cells = {} if moments is None else moments.over({(u, v) for u, v, *_ in table if u < v}, origin)
    atoms = [] if moments is None else [(rational(x) - origin, mass) for x, mass in moments.atoms]
    for u, v, share, L0, L1, M0, M1 in table:
        masses: Cell = cells.get((u, v), ((1 << BITS, 1 << BITS), (0, 0), (0, 0)))
        if u == v and moments is not None:
            if not atoms:
                continue
            # u is a rounded distance from the origin: take the nearest point mass
            k = bisect_left(atoms, (u, (0, 0)))
            u, mass = min(atoms[max(k - 1, 0) : k + 1], key=lambda atom: abs(atom[0] - u))
            v, masses = u, (mass, (0, 0), (0, 0))
            used[u] = used.get(u, fmpq(0)) + share
            if used[u] > 1:
                continue
        yield [u, v, share, L0, L1, M0, M1], masses


@dataclass(frozen=True)
class OutputSpace:
    """All outputs that a search may choose from.

    Parameters
    ----------
    points : tuple of float
        The outputs; or, `between`, the first and the last of a range.
    between : bool
        Whether any output of the range may be chosen.

    Examples
    --------
    >>> OutputSpace.of_alphabets([(-2.0, 0.0, 2.0), (-2.0, -1.0, 2.0)])
    OutputSpace(points=(-2.0, -1.0, 0.0, 2.0), between=False)
    """

    points: tuple[float, ...]
    between: bool

    @classmethod
    def of_alphabets(cls, alphabets: Iterable[Iterable[float]]) -> OutputSpace:
        """Return the space of the outputs of some alphabets."""
        points = sorted({b for bins in alphabets for b in bins})
        # of more outputs the bound covers any from the first to the last
        return cls(tuple(points), False) if len(points) <= 129 else cls((points[0], points[-1]), True)

    @classmethod
    def around(cls, input_range: tuple[float, float], reach: float) -> OutputSpace:
        """Return the space of outputs within `reach` half widths of the centre of the range, plus 1e-9 for rounding."""
        low, high = input_range
        centre, far = low / 2 + high / 2, (1 + 1e-9) * reach * (high / 2 - low / 2)
        return cls((centre - far, centre + far), True)

    def reaches(self, outputs: Array) -> bool:
        """Whether increasing outputs lie between the first and the last."""
        return bool(self.points[0] <= outputs[0] and outputs[-1] <= self.points[-1])

    def bounded_by(self, duals: DualPieces) -> bool:
        """Whether the multipliers' bound holds for the whole space."""
        return duals.outputs is not None and (duals.between or not self.between) and duals.cover(self.points)


def bound_words(duals: object) -> str:
    """Describe the outputs for which a lower bound holds."""
    if not isinstance(duals, DualPieces) or duals.outputs is None:
        return "these outputs"
    which = "any outputs" if duals.between else f"outputs among {len(duals.outputs)}"
    return f"{which} from {duals.outputs[0]:g} to {duals.outputs[-1]:g}"


LEMMA = (
    "Variables: a_k is the least probability of output k of a mechanism that is epsilon-locally private, over all inputs; high_k and low_k are its probabilities at the two ends "
    "of the range of inputs; the pieces are stretches [u, v] of inputs with a share of the prior each (of no part more than all), and rN_0_k and rN_1_k are the "
    "integrals over piece N, under its share of the prior, of (1 - t) p(x, k) and t p(x, k), t = (x - u)/(v - u) (rN_0_k alone for a point mass). "
    "All inputs and outputs are measured from {origin}. Rows: p is at most e^epsilon a (a rational number above stands for it), not less than a, sums to "
    "1, and is right on average to within the bias allowed; integrated, with masses and moments of the prior {moments}. "
    "Objective: on a piece |b - x| is at least sign (b - x), with one sign for each output, so that the loss is at least a function that is affine in "
    "x but for the square of x, which is the same for all outputs (variable 'one'); what the prior has outside of the pieces costs no less than 0.{more} "
    "So every such mechanism gives a point of this program that costs no more than its own expected loss, and none has a "
    "smaller one than the bound derived below."
)
WORST = (
    "Variables: a_k is the least probability of output k of a mechanism that is epsilon-locally private, over all inputs; high_k and low_k are its probabilities at the two ends "
    "of the range of inputs, rN_0_k those at the input number N; 'worst' is its largest expected loss. All inputs and outputs are measured from {origin}. Rows: p is "
    "at most e^epsilon a (a rational number above stands for it), not less than a, sums to 1, and is right on average to within the bias allowed; "
    "'worst' is not less than the expected loss at any of the inputs.{more} "
    "So every such mechanism gives a point of this program that costs no more than its own worst expected loss, and none has a "
    "smaller one than the bound derived below."
)
_BETWEEN = (
    " Outputs between two of those listed are drawn at random, and without bias, as one of these two: the program's loss at the listed outputs is lowered "
    "by what that adds to a square, and |b - x| >= +-(b - x) is used with one sign for both."
)
_CAP = " Row 'cap': the mean squared error is at most what the design allows."


class _End(NamedTuple):
    """One end of a piece: bounds of the prior's weight there, such as ∫ (1 − t) dF, and of x with this weight."""

    y: fmpq
    level: fmpq
    tilt: fmpq
    weight: tuple[fmpq, fmpq]
    mean: tuple[fmpq, fmpq]


class _Rows:
    """The linear program whose multipliers these are."""

    def __init__(self, duals: DualPieces, asked: Asked) -> None:
        self.duals, self.asked, self.worst = duals, asked, asked.moments is None
        self.origin, self.bias = rational(duals.origin), rational(asked.max_bias)
        loss, self.price = asked.loss, rational(duals.cap_price)
        self.first, self.second = rational(loss.absolute), rational(loss.squared)
        self.ends = [rational(x) - self.origin for x in asked.input_range]
        self.bins = [rational(b) - self.origin for b in asked.outputs]
        apart = [fmpq(0), *(b - a for a, b in pairwise(self.bins)), fmpq(0)]
        self.reductions = [max(pair) ** 2 / 4 * duals.between for pair in pairwise(apart)]
        """Amount by which the square of each output is lowered."""
        self.rho = fmpq(math.ceil(exp_upper(asked.epsilon) * (1 << _RHO_BITS)), 1 << _RHO_BITS)
        self.capped: list[tuple[int, fmpq]] = []

    def bound(self) -> fmpq:
        """Return the bound that the multipliers prove."""
        constant, gradient = self.averaged()
        paid = sum(level + tilt * mean for level, tilt, (_, mean) in self._ends_of_range(gradient))
        found: fmpq = constant + paid - self.price * rational(self.asked.max_mse or 0.0)
        return found

    def averaged(self) -> tuple[fmpq, list[fmpq]]:
        """Return lower bounds of the constant and of G, summed in integers: writing the rows takes 4 to 7 times as long."""
        pieces, bins, curve = list(self.pieces()), self.bins, self.second + self.price
        ends = [end for both, *_ in pieces for end in both]
        unit = math.lcm(*(int(x.q) for x in (*bins, *(end.y for end in ends))))
        lines = (x for end in ends for x in (end.level, end.tilt))
        fine = unit * unit * math.lcm(*(int(x.q) for x in (self.first, curve, *lines)))
        places, slope = [int(b * unit) for b in bins], int(self.first * (fine // unit))
        squares = [math.floor(curve * (b * b - r) * fine) for b, r in zip(bins, self.reductions)]
        rho, charged, constant = int(self.rho * (1 << _RHO_BITS)), [0] * len(bins), fmpq(0)
        for both, turn, share, square in pieces:
            pause("lower bound")
            scale = share if self.worst else fmpq(1)
            constant += curve * square * scale
            for end in both:
                least, most = (int(w * scale * (1 << BITS)) for w in end.weight)
                if not most:
                    continue
                constant += scale * self._constant(end)
                y, level, tilt = int(end.y * unit), int(end.level * fine), int(end.tilt * (fine // unit))
                # w1 |B − y| + w2 B² − L − M B, the sign of B − y fixed on the piece.
                costs = [
                    s + (sign - tilt) * b - sign * y - level
                    for sign, part in ((-slope, slice(0, turn)), (slope, slice(turn, None)))
                    for b, s in zip(places[part], squares[part])
                ]
                grown = (c * least if c > 0 else ((c * rho) >> _RHO_BITS) * most for c in costs)
                charged = list(map(add, charged, grown))
        return constant, [fmpq(g, fine << BITS) for g in charged]

    def _steep(self, end: _End) -> fmpq:
        """The slope of the line at an end of a piece."""
        found: fmpq = end.tilt - 2 * (self.second + self.price) * end.y
        return found

    def _means(self, end: _End) -> tuple[fmpq, fmpq]:
        """Return bounds of the mean of the outputs there."""
        reach = self.bias * end.weight[1]
        return end.mean[0] - reach, end.mean[1] + reach

    def _constant(self, end: _End) -> fmpq:
        """Return a lower bound of ∫ (L + μy − b|μ|) dF; |μ| is convex, hence below its chord."""
        level, steep, (least, most) = end.level, self._steep(end), self._means(end)
        low, high = end.weight
        found: fmpq = level * (low if level > 0 else high) + steep * (least if steep > 0 else most)
        return found

    def written(self) -> LinearBound:
        """Return the linear program."""
        asked, duals = self.asked, self.duals
        moments, constant = asked.moments, fmpq(0)
        stated = "as stored in the result" if moments is not None and moments.stated else "computed exactly"
        lemma = (WORST if self.worst else LEMMA).format(
            origin=repr(duals.origin),
            moments=f"{stated}, between bounds",
            more=_BETWEEN * duals.between + _CAP * bool(duals.cap_price),
        )
        program = LinearBound(lemma, (2 * len(self.bins) + 4) * len(duals.pieces))
        floors = [program.variable(f"a_{k}") for k in range(len(self.bins))]
        peak = program.variable("worst", 1) if self.worst else -1
        for place, (ends, turn, share, square) in enumerate(self.pieces()):
            constant += square
            signs = [-1 if k < turn else 1 for k in range(len(self.bins))]
            parts = [
                self._end(program, floors, f"r{place}_{side}", end, signs, share)
                for side, end in enumerate(ends)
            ]
            if self.worst:
                loss = [(k, -cost) for k, cost in parts[0]]
                program.row("worst", [(peak, 1), *loss], "G", 0, share)
        if not self.worst:
            one = program.variable("one", self.second * constant)
            if self.price:
                self.capped.append((one, constant))
                program.row("cap", self.capped, "L", asked.max_mse or 0.0, -self.price)
            program.sums_to(1, [one])
        outer = self._ends_of_range([program.reduced(k) for k in floors])
        for name, (level, tilt, means) in zip(("high", "low"), outer):
            own = [program.variable(f"{name}_{k}") for k in range(len(self.bins))]
            for k, (floor, ceiling) in enumerate(self._bought(level, tilt)):
                program.row("floor", [(own[k], 1), (floors[k], -1)], "G", 0, floor)
                program.row("ceiling", [(own[k], 1), (floors[k], -self.rho)], "L", 0, -ceiling)
            program.row("total", [(var, 1) for var in own], "E", 1, level)
            program.row("mean", list(zip(own, self.bins)), *means, tilt)
        return program

    def pieces(self) -> Iterator[tuple[list[_End], int, fmpq, fmpq]]:
        """Yield for each piece its ends, the first output on its right, its share of the prior, and a lower bound of ∫ x²."""
        unit = fmpq(1, 1 << BITS)
        for (u, v, share, low, high, tilt, tilted), masses in _pieces(self.duals, self.asked.moments):
            scale, width = fmpq(1) if self.worst else share, v - u
            n, t, t2 = (
                (unit * math.floor(max(a, 0) * scale), unit * math.ceil(b * scale)) for a, b in masses
            )
            turn = self._turn(u, v)
            if u == v:
                yield [_End(u, low, tilt, n, _scaled(n, u))], turn, share, _scaled(n, u * u)[0]
                continue
            later = less(n, t)  # ∫ (1 − t) dF
            # x = u + t · width: its means with weights 1 − t and t, and the mean of its square
            middle = less(t, t2)
            first = _sum(_scaled(later, u), _scaled(middle, width))
            second = _sum(_scaled(t, u), _scaled(t2, width))
            square = _sum(_scaled(n, u * u), _scaled(t, 2 * u * width), _scaled(t2, width * width))
            ends = [_End(u, low, tilt, later, first), _End(v, high, tilted, t, second)]
            yield ends, turn, share, square[0]

    def _turn(self, u: fmpq, v: fmpq) -> int:
        """Return the first output right of a piece; an output inside counts to the nearer side, which lowers the cost."""
        if not self.duals.between:
            return bisect_left(self.bins, (u + v) / 2)
        # at the neighbouring output left of the piece, or after the one right of it
        left, right = bisect_right(self.bins, u) - 1, bisect_left(self.bins, v)
        near = right == len(self.bins) or (left >= 0 and u + v < self.bins[left] + self.bins[right])
        return max(left, 0) if near else right + 1

    def _end(
        self, program: LinearBound, floors: list[int], name: str, end: _End, signs: list[int], share: fmpq
    ) -> list[tuple[int, fmpq]]:
        """Write the rows of the probabilities at one end of a piece; return the columns with their costs."""
        y, worst, scale, steep = end.y, self.worst, share if self.worst else fmpq(1), self._steep(end)
        level = end.level + (self.second * y * y if worst else 0)
        out: list[tuple[int, fmpq]] = []
        for k, (b, sign, reduction) in enumerate(zip(self.bins, signs, self.reductions)):
            square = b * b - 2 * b * y - reduction + (y * y if worst else 0)
            cost = self.first * sign * (b - y) + self.second * square
            var = program.variable(f"{name}_{k}", 0 if worst else cost)
            out.append((var, cost))
            if self.price:
                self.capped.append((var, square))
            reduced = scale * (cost + self.price * square - level - steep * b)
            if reduced > 0:
                program.row("floor", [(var, 1), (floors[k], -end.weight[0])], "G", 0, reduced)
            else:
                program.row("ceiling", [(var, 1), (floors[k], -self.rho * end.weight[1])], "L", 0, reduced)
        total = ("G", end.weight[0]) if level > 0 else ("L", end.weight[1])
        program.row("total", [(var, 1) for var, _ in out], *total, scale * level)
        means = ("G", self._means(end)[0]) if steep > 0 else ("L", self._means(end)[1])
        program.row("mean", [(var, b) for (var, _), b in zip(out, self.bins)], *means, scale * steep)
        return out

    def _bought(self, level: fmpq, tilt: fmpq) -> list[tuple[fmpq, fmpq]]:
        """Return multipliers of floor and ceiling that make each probability's reduced cost 0."""
        lines = [level + tilt * b for b in self.bins]
        return [(max(-c, fmpq(0)), max(c, fmpq(0))) for c in lines]

    def _ends_of_range(self, rest: list[fmpq]) -> list[tuple[fmpq, fmpq, tuple[str, fmpq]]]:
        """Return level, tilt, and the bound of the mean, at the upper and the lower end of the range, for reduced costs of the floors."""
        low, high = self.ends
        prices = [list(map(rational, row)) for row in self.duals.multipliers.tolist()]
        means = [sum((p * b for p, b in zip(row, self.bins)), fmpq(0)) for row in prices]
        levels, tilts = [-means[0], means[1]], [sum(prices[0], fmpq(0)), -sum(prices[1], fmpq(0))]
        for level, tilt in zip(levels, tilts):
            rest = [g + f - self.rho * c for g, (f, c) in zip(rest, self._bought(level, tilt))]
        least = min(rest)
        levels[0] += least / self.rho if least > 0 else least
        sides = [
            ("G", end - self.bias) if tilt > 0 else ("L", end + self.bias)
            for tilt, end in zip(tilts, (high, low))
        ]
        return list(zip(levels, tilts, sides))


def _scaled(pair: tuple[fmpq, fmpq], factor: fmpq) -> tuple[fmpq, fmpq]:
    low, high = pair[0] * factor, pair[1] * factor
    return (low, high) if factor >= 0 else (high, low)


def _sum(*pairs: tuple[fmpq, fmpq]) -> tuple[fmpq, fmpq]:
    lows, highs = zip(*pairs)
    return sum(lows, fmpq(0)), sum(highs, fmpq(0))
