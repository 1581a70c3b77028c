r"""A lower bound on every mechanism's loss, from multipliers that anyone can check.

Let :math:`a_k` be the least probability of output k of an ε-LDP mechanism, ρ ≥ e^ε, :math:`h(c) = \min(c, \rho c)`. For any
line :math:`\lambda + \mu B` at an input x, with reduced costs :math:`c_k = \ell(B_k - x) - \lambda - \mu B_k`,

.. math:: \sum_k p(x, k)\, \ell(B_k - x) \ge \lambda + \mu x - b |\mu| + \sum_k a_k h(c_k(x)),

as the bias is at most b and :math:`a_k \le p(x, k) \le \rho a_k`. Averaged over inputs (with the prior, or for the worst
case with any law on finitely many inputs) that is a constant plus :math:`G \cdot a`. The floors of a mechanism whose mean comes
within b of the range's ends [lo, hi] satisfy :math:`1/\rho \le \sum_k a_k \le 1` and, for every j,

.. math:: \sum_k a_k \bigl(\rho (B_k - B_j)^+ - (B_j - B_k)^+\bigr) \ge hi - B_j

with its mirror image, so that :math:`G \cdot a \ge \nu \cdot \text{right sides} + \min_k (G - C^\top \nu)_k \{1/\rho \text{ or } 1\}` for any
ν ≥ 0. The bound is valid for any λ, μ and ν; good ones make it tight. They are stored as doubles, and the rest is computed in
integers, rounded down.

On a piece [u, v] without an output inside, λ and μ are chosen such that :math:`c_k` is affine in x: with coordinates y = x − origin,
:math:`\lambda = w_2 y^2 + L`, :math:`\mu = M - 2 w_2 y`, L and M affine. h is concave, hence above its chord from end to end.

A search does not know its outputs beforehand. If the multipliers have outputs :math:`g_1 < \dots < g_n` of their own, the
bound holds for every mechanism whose outputs are among them; with `between`, for any number of outputs anywhere from :math:`g_1`
to :math:`g_n`. The reduced cost of an output :math:`(1 - t) g_k + t g_{k+1}` must not be below the mean of its neighbours' costs, which h
preserves, as it is concave. So :math:`c_k` is lowered by :math:`w_2 \max(g_{k+1} - g_k, g_k - g_{k-1})^2 / 4`, and in
:math:`w_1 |g_k - x| \ge \pm w_1 (g_k - x)` the sign changes at a neighbour of x's cell, never across x. The right side of ν's rows has kinks
at the :math:`g_j` only.

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
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq

from mechdesign.errors import DesignError
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import exp_upper, fraction, round_down, round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import LinearBound
from mechdesign.problem.checks import array, increasing, number, one_of
from mechdesign.problem.losses import Loss
from mechdesign.quantizers.moments import BITS, Cell, Enclosure, Moments, rational
from mechdesign.solvers.deadline import pause
from mechdesign.typing import Array

_RHO_BITS = 64


@serializable("dual-pieces")
@dataclass(frozen=True, eq=False)
class DualPieces:
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

    pieces: Array
    multipliers: Array
    origin: float = 0.0
    cap_price: float = 0.0
    outputs: Array | None = None
    between: bool = False

    def __post_init__(self) -> None:
        table, multipliers = (
            array("pieces", self.pieces, ndim=2, empty=True),
            array("multipliers", self.multipliers, ndim=2),
        )
        object.__setattr__(self, "pieces", table)
        object.__setattr__(self, "multipliers", multipliers)
        object.__setattr__(self, "origin", number("origin", self.origin))
        object.__setattr__(self, "cap_price", number("cap_price", self.cap_price))
        one_of("between", self.between, (True, False))
        if self.outputs is not None:
            object.__setattr__(self, "outputs", increasing("outputs", self.outputs))
        elif self.between:
            raise DesignError.of("between", True, "needs the outputs between which others may be")

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
        """Return the same weights on inputs that lie exactly in the design's range, if rounding put one outside."""
        table, origin = self.pieces.copy(), Fraction(self.origin)
        low, high = (Fraction(end) - origin for end in input_range)
        inside = [
            u if low <= u <= high else round_up(low) if u < low else round_down(high)
            for u in map(Fraction, table[:, 0].tolist())
        ]
        table[:, 0] = table[:, 1] = np.array([float(u) for u in inside])
        return replace(self, pieces=table)

    def places(self, bins: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
        """Return the outputs of the multipliers, by default `bins`."""
        return bins if self.outputs is None else tuple(map(Fraction, self.outputs.tolist()))

    def cover(self, bins: Iterable[float | Fraction]) -> bool:
        """Whether the bound holds for a mechanism with these outputs; without outputs of its own, it does."""
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

    def spans(self) -> tuple[set[tuple[Fraction, Fraction]], Fraction]:
        """Return the intervals u < v of inputs over which the prior is integrated, and their origin."""
        found = {(Fraction(u), Fraction(v)) for u, v in self.pieces[:, :2].tolist() if u < v}
        return found, Fraction(self.origin)

    def lower_bound(self, asked: Asked) -> Fraction:
        """Return the proved bound for a problem."""
        if self.cap_price and asked.max_mse is None:
            raise DesignError.of("cap_price", self.cap_price, "must be 0: no mean squared error is capped")
        rows = _pieces(self, asked.moments)
        problem = _Problem.of(self, rows, asked)
        bias, low, high = (rational(x) for x in (asked.max_bias, *asked.input_range))
        constant, gradient = problem.averaged(rows, bias)
        price = rational(self.cap_price) * rational(asked.max_mse or 0.0)
        least = problem.least(gradient, self.multipliers.tolist(), low + bias, high - bias)
        return fraction(constant + least - price)

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
    """Return bounds of the difference of a whole and a part, at least 0."""
    return max(whole[0] - part[1], type(whole[0])(0)), whole[1] - part[0]


def _summed(keys: Iterable[float], values: Iterable[float]) -> dict[float, Fraction]:
    found: dict[float, Fraction] = {}
    for key, value in zip(keys, values):
        found[float(key)] = found.get(float(key), Fraction(0)) + Fraction(float(value))
    return found


@dataclass(frozen=True)
class _Piece:
    """A row of the table, exact, with the prior's mass and moments on the piece; for a single input its mass only."""

    u: fmpq
    v: fmpq
    share: fmpq
    lam: tuple[fmpq, fmpq]
    mu: tuple[fmpq, fmpq]
    masses: Cell


def _pieces(duals: DualPieces, moments: Moments | None) -> list[_Piece]:
    """Return the rows of the table, with at most the whole of each point mass; without `moments` (the worst case) shares are weights."""
    origin, found, used = rational(duals.origin), list[_Piece](), dict[fmpq, fmpq]()
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
        found.append(_Piece(u, v, share, (L0, L1), (M0, M1), masses))
    return found


class _Outputs:
    """The outputs of the multipliers, relative to the origin."""

    def __init__(self, duals: DualPieces, outputs: Iterable[Fraction]) -> None:
        self.between = duals.between
        self.bins = [rational(b) - rational(duals.origin) for b in outputs]
        apart = [fmpq(0), *(b - a for a, b in pairwise(self.bins)), fmpq(0)]
        self.reductions = [max(pair) ** 2 / 4 * self.between for pair in pairwise(apart)]
        """What the square of each is lowered by."""

    def turn(self, u: fmpq, v: fmpq) -> int:
        """Return the first output right of a piece; an output inside counts to the nearer side, which lowers the cost."""
        if not self.between:
            return bisect_left(self.bins, (u + v) / 2)
        # at the neighbouring output left of the piece, or after the one right of it
        left, right = bisect_right(self.bins, u) - 1, bisect_left(self.bins, v)
        near = right == len(self.bins) or (left >= 0 and u + v < self.bins[left] + self.bins[right])
        return max(left, 0) if near else right + 1


@dataclass(frozen=True)
class _Problem:
    """Outputs relative to the origin, as integers in units of 1/unit; costs in units of 1/fine."""

    outputs: _Outputs
    bins: list[int]
    unit: int
    rho: int
    first: fmpq
    second: fmpq
    fine: int
    origin: fmpq

    @classmethod
    def of(cls, duals: DualPieces, rows: list[_Piece], asked: Asked) -> _Problem:
        outputs, loss = _Outputs(duals, asked.outputs), asked.loss
        first, second = rational(loss.absolute), rational(loss.squared) + rational(duals.cap_price)
        unit = math.lcm(*(int(x.q) for x in (*outputs.bins, *(x for row in rows for x in (row.u, row.v)))))
        lines = (x for row in rows for x in (*row.lam, *row.mu))
        parts = math.lcm(*(int(x.q) for x in (first, second, *lines)))
        rho = math.ceil(exp_upper(asked.epsilon) * (1 << _RHO_BITS))
        places = [int(b * unit) for b in outputs.bins]
        return cls(outputs, places, unit, rho, first, second, unit * unit * parts, rational(duals.origin))

    def averaged(self, rows: list[_Piece], bias: fmpq) -> tuple[fmpq, list[int]]:
        """Return lower bounds of the constant and of G, the latter in units of 1/(fine · 2¹⁶⁰)."""
        lowered = zip(self.outputs.bins, self.outputs.reductions)
        squares = [math.floor(self.second * (b * b - reduction) * self.fine) for b, reduction in lowered]
        gradient, constant = [0] * len(self.bins), fmpq(0)
        for row in rows:
            pause("lower bound")
            scaled = [(int(math.floor(a * row.share)), int(math.ceil(b * row.share))) for a, b in row.masses]
            if not scaled[0][1]:
                continue
            # The chord of h has weight ∫ (1 − t) dF at u and ∫ t dF at v.
            n, (t0, t1) = scaled[0], scaled[1]
            for (least, most), costs in zip(
                (less(n, (t0, t1)), (max(t0, 0), t1)), self._reduced(row, squares)
            ):
                if most:
                    gradient = [g + c * (least if c > 0 else most) for g, c in zip(gradient, costs)]
            constant += self._constant(row, bias, scaled)
        return constant, gradient

    def _reduced(self, row: _Piece, squares: list[int]) -> list[list[int]]:
        """Return h(c_k) at both ends of a piece, rounded down; an output inside counts to the nearer side, which lowers the cost."""
        slope = int(self.first * (self.fine // self.unit))
        at = [int(y * self.unit) for y in (row.u, row.v)]
        turn = self.outputs.turn(row.u, row.v)
        out = []
        for y, lam, mu in zip(at, row.lam, row.mu):
            level, tilt = int(lam * self.fine), int(mu * (self.fine // self.unit))
            # w1 |B − y| + w2 B² − L − M B, the sign of B − y fixed on the piece.
            costs = [
                s + (sign - tilt) * b - sign * y - level
                for sign, part in ((-slope, slice(0, turn)), (slope, slice(turn, None)))
                for b, s in zip(self.bins[part], squares[part])
            ]
            out.append([c if c > 0 else (c * self.rho) >> _RHO_BITS for c in costs])
        return out

    def _constant(self, row: _Piece, bias: fmpq, masses: list[Enclosure]) -> fmpq:
        """Return a lower bound of ∫ (λ + μy − b|μ|) dF; |μ| is convex, hence below its chord."""
        y, width = row.u, row.v - row.u
        (L0, L1), (M0, M1) = row.lam, row.mu
        w2 = self.second
        steep = [abs(m - 2 * w2 * z) for m, z in ((M0, y), (M1, y + width))]
        # λ + μy = L + M y − w2 y², as a polynomial in t, y = u + t · width.
        parts = [
            L0 + M0 * y - w2 * y * y - bias * steep[0],
            L1 - L0 + (M1 - M0) * y + M0 * width - 2 * w2 * y * width - bias * (steep[1] - steep[0]),
            (M1 - M0) * width - w2 * width * width,
        ]
        return sum((c * m[0 if c > 0 else 1] for c, m in zip(parts, masses)), fmpq(0)) / (1 << BITS)

    def least(self, gradient: list[int], multipliers: list[list[float]], low: fmpq, high: fmpq) -> fmpq:
        """Return a lower bound of min G·a over floors that reach all means from `low` to `high`."""
        scale = self.fine << BITS
        rest = [fmpq(g, scale) for g in gradient]
        rho, total = fmpq(self.rho, 1 << _RHO_BITS), fmpq(0)
        bins = [fmpq(b, self.unit) for b in self.bins]
        m = len(bins)
        for side, (end, row) in enumerate(zip((high, low), multipliers)):
            sign, prices = -1 if side else 1, [rational(p) for p in row]
            # Σ_j ν_j (ρ (B_k − B_j)^+ − (B_j − B_k)^+), by running sums over j on either side of k.
            total += sum((p * sign * (end - self.origin - b) for p, b in zip(prices, bins)), fmpq(0))
            mass, moment = sum(prices, fmpq(0)), sum((p * b for p, b in zip(prices, bins)), fmpq(0))
            before, moment_before = fmpq(0), fmpq(0)
            for k in range(m):
                before, moment_before = before + prices[k], moment_before + prices[k] * bins[k]
                left = bins[k] * before - moment_before
                right = (moment - moment_before) - bins[k] * (mass - before)
                rest[k] -= rho * (right if side else left) - (left if side else right)
        smallest = min(rest)
        return total + (smallest / rho if smallest > 0 else smallest)


_FEW = 129
"""Most outputs that are bounded as a list; for more, the bound covers any output from the first to the last."""


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
    >>> OutputSpace.among([(-2.0, 0.0, 2.0), (-2.0, -1.0, 2.0)])
    OutputSpace(points=(-2.0, -1.0, 0.0, 2.0), between=False)
    """

    points: tuple[float, ...]
    between: bool

    @classmethod
    def among(cls, alphabets: Iterable[Iterable[float]]) -> OutputSpace:
        """Return the space of the outputs of some alphabets."""
        points = sorted({b for bins in alphabets for b in bins})
        return cls(tuple(points), False) if len(points) <= _FEW else cls((points[0], points[-1]), True)

    @classmethod
    def around(cls, input_range: tuple[float, float], reach: float) -> OutputSpace:
        """Return the space of outputs within `reach` half widths of the centre of the range, plus 1e-9 for rounding."""
        low, high = input_range
        centre, far = low / 2 + high / 2, (1 + 1e-9) * reach * (high / 2 - low / 2)
        return cls((centre - far, centre + far), True)

    def bounded_by(self, duals: DualPieces) -> bool:
        """Whether the multipliers' bound holds for the whole space."""
        return duals.outputs is not None and (duals.between or not self.between) and duals.cover(self.points)

    def with_ends(self, inner: Array) -> Array:
        """Return the listed outputs, or those of a grid inside the range together with its ends."""
        if not self.between:
            return np.array(self.points)
        low, high = self.points
        return np.concatenate([[low], inner[(inner > low) & (inner < high)], [high]])


def bound_words(duals: object) -> str:
    """Describe the outputs for which a lower bound holds."""
    if not isinstance(duals, DualPieces) or duals.outputs is None:
        return "these outputs"
    low, high = (shown(b) for b in (duals.outputs[0], duals.outputs[-1]))
    return (
        f"any outputs from {low} to {high}"
        if duals.between
        else f"outputs among {len(duals.outputs)} from {low} to {high}"
    )


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
    """Writer of the rows of the linear program."""

    def __init__(self, duals: DualPieces, asked: Asked) -> None:
        moments, loss = asked.moments, asked.loss
        stated = "as stored in the result" if moments is not None and moments.stated else "computed exactly"
        lemma = (WORST if moments is None else LEMMA).format(
            origin=repr(duals.origin),
            moments=f"{stated}, between bounds",
            more=_BETWEEN * duals.between + _CAP * bool(duals.cap_price),
        )
        program = LinearBound(lemma, (2 * len(asked.outputs) + 4) * len(duals.pieces))
        self.duals, self.program, self.moments, self.max_mse = duals, program, moments, asked.max_mse
        self.origin, self.bias = rational(duals.origin), rational(asked.max_bias)
        self.first, self.second, self.price = map(rational, (loss.absolute, loss.squared, duals.cap_price))
        self.ends = [rational(x) - self.origin for x in asked.input_range]
        self.outputs = _Outputs(duals, asked.outputs)
        self.bins = self.outputs.bins
        self.rho = fmpq(math.ceil(exp_upper(asked.epsilon) * (1 << _RHO_BITS)), 1 << _RHO_BITS)
        self.floors = [program.variable(f"a_{k}") for k in range(len(self.bins))]
        self.capped: list[tuple[int, fmpq]] = []

    def written(self) -> LinearBound:
        worst, constant = self.moments is None, fmpq(0)
        peak = self.program.variable("worst", 1) if worst else -1
        for place, (ends, signs, share, square) in enumerate(self._pieces()):
            constant += square
            parts = [self._end(f"r{place}_{side}", end, signs, share, worst) for side, end in enumerate(ends)]
            if worst:
                loss = [(k, -cost) for k, cost in parts[0]]
                self.program.row("worst", [(peak, 1), *loss], "G", 0, share)
        if not worst:
            one = self.program.variable("one", self.second * constant)
            if self.price:
                self.capped.append((one, constant))
                self.program.row("cap", self.capped, "L", self.max_mse or 0.0, -self.price)
            self.program.sums_to(1, [one])
        self._ends_of_range()
        return self.program

    def _pieces(self) -> Iterator[tuple[list[_End], list[int], fmpq, fmpq]]:
        """Yield for each piece its ends, the sign of b − x for every output, its share of the prior, and a lower bound of ∫ x²."""
        worst, unit = self.moments is None, fmpq(1, 1 << BITS)
        for row in _pieces(self.duals, self.moments):
            (u, v), (low, high), (tilt, tilted) = (row.u, row.v), row.lam, row.mu
            scale, width = unit if worst else unit * row.share, v - u
            n, t, t2 = ((max(a, 0) * scale, b * scale) for a, b in row.masses)
            turn = self.outputs.turn(u, v)
            signs = [-1 if k < turn else 1 for k in range(len(self.bins))]
            if u == v:
                yield [_End(u, low, tilt, n, _scaled(n, u))], signs, row.share, _scaled(n, u * u)[0]
                continue
            later = less(n, t)  # ∫ (1 − t) dF
            # x = u + t · width: its means with weights 1 − t and t, and the mean of its square
            middle = less(t, t2)
            first = _sum(_scaled(later, u), _scaled(middle, width))
            second = _sum(_scaled(t, u), _scaled(t2, width))
            square = _sum(_scaled(n, u * u), _scaled(t, 2 * u * width), _scaled(t2, width * width))
            ends = [_End(u, low, tilt, later, first), _End(v, high, tilted, t, second)]
            yield ends, signs, row.share, square[0]

    def _end(
        self, name: str, end: _End, signs: list[int], share: fmpq, worst: bool
    ) -> list[tuple[int, fmpq]]:
        """Write the rows of the probabilities at one end of a piece; return the columns with their costs."""
        y, program, scale = end.y, self.program, share if worst else fmpq(1)
        steep = end.tilt - 2 * (self.second + self.price) * y  # of the line at this end
        level = end.level + (self.second * y * y if worst else 0)
        out: list[tuple[int, fmpq]] = []
        for k, (b, sign, reduction) in enumerate(zip(self.bins, signs, self.outputs.reductions)):
            square = b * b - 2 * b * y - reduction + (y * y if worst else 0)
            cost = self.first * sign * (b - y) + self.second * square
            var = program.variable(f"{name}_{k}", 0 if worst else cost)
            out.append((var, cost))
            if self.price:
                self.capped.append((var, square))
            reduced = scale * (cost + self.price * square - level - steep * b)
            if reduced > 0:
                program.row("floor", [(var, 1), (self.floors[k], -end.weight[0])], "G", 0, reduced)
            else:
                program.row(
                    "ceiling", [(var, 1), (self.floors[k], -self.rho * end.weight[1])], "L", 0, reduced
                )
        everything = [(var, 1) for var, _ in out]
        low, high = end.weight
        program.row("total", everything, *(("G", low) if level > 0 else ("L", high)), scale * level)
        means = [(var, b) for (var, _), b in zip(out, self.bins)]
        least, most = end.mean[0] - self.bias * high, end.mean[1] + self.bias * high
        program.row("mean", means, *(("G", least) if steep > 0 else ("L", most)), scale * steep)
        return out

    def _ends_of_range(self) -> None:
        """Write the rows at both ends of the range, with prices ν: some mechanism has these floors."""
        program, (low, high) = self.program, self.ends
        prices = [list(map(rational, row)) for row in self.duals.multipliers.tolist()]
        tilts = [sum(prices[0], fmpq(0)), -sum(prices[1], fmpq(0))]
        levels = [
            -side * sum((p * b for p, b in zip(row, self.bins)), fmpq(0))
            for side, row in zip((1, -1), prices)
        ]

        def bought(level: fmpq, tilt: fmpq) -> list[tuple[fmpq, fmpq]]:
            """Return multipliers of floor and ceiling that make each probability's reduced cost 0."""
            lines = [level + tilt * b for b in self.bins]
            return [(max(-c, fmpq(0)), max(c, fmpq(0))) for c in lines]

        rest = [program.reduced(k) for k in self.floors]
        for level, tilt in zip(levels, tilts):
            rest = [g + f - self.rho * c for g, (f, c) in zip(rest, bought(level, tilt))]
        least = min(rest)
        levels[0] += least / self.rho if least > 0 else least
        for name, level, tilt, end in zip(("high", "low"), levels, tilts, (high, low)):
            own = [program.variable(f"{name}_{k}") for k in range(len(self.bins))]
            for k, (floor, ceiling) in enumerate(bought(level, tilt)):
                program.row("floor", [(own[k], 1), (self.floors[k], -1)], "G", 0, floor)
                program.row("ceiling", [(own[k], 1), (self.floors[k], -self.rho)], "L", 0, -ceiling)
            program.row("total", [(var, 1) for var in own], "E", 1, level)
            means, side = (
                list(zip(own, self.bins)),
                ("G", end - self.bias) if tilt > 0 else ("L", end + self.bias),
            )
            program.row("mean", means, *side, tilt)


def _scaled(pair: tuple[fmpq, fmpq], factor: fmpq) -> tuple[fmpq, fmpq]:
    low, high = pair[0] * factor, pair[1] * factor
    return (low, high) if factor >= 0 else (high, low)


def _sum(*pairs: tuple[fmpq, fmpq]) -> tuple[fmpq, fmpq]:
    lows, highs = zip(*pairs)
    return sum(lows, fmpq(0)), sum(highs, fmpq(0))
