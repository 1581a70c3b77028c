r"""The finite linear program behind the lower bound of a quantizer, over the pieces of the prior (`dual_pieces`).

Its variables are the floors a (least probabilities) of a mechanism, its rows at the two ends of the range, and for every piece
[u, v] of the multipliers the means of :math:`(1 - t)\, p(x, k)` and of :math:`t\, p(x, k)` under the piece's share of the prior,
t = (x − u)/(v − u). Any mechanism satisfies linear constraints in these: probabilities lie between a and ρa and sum to one, means are
within the bias allowed. On a piece without an output inside the loss is affine in x up to :math:`w_2 x^2`, so that its expectation is
linear in them. The multipliers of `DualPieces` are multipliers of these rows: lines λ + μB of the sums and the means, reduced costs of the
floors and caps.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from flint import fmpq

from mechdesign.evidence.exact import exp_upper
from mechdesign.evidence.vipr import LinearBound, rational
from mechdesign.quantizers.common.dual_pieces import DualPieces
from mechdesign.quantizers.common.enclosures import BITS, Enclosure, Moments, StatedMoments

_RHO_BITS = 64

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
    """One end of a piece: the weight of the prior there, ∫ (1 − t) dF say, and of x, between bounds."""

    y: fmpq
    level: fmpq
    tilt: fmpq
    weight: tuple[fmpq, fmpq]
    mean: tuple[fmpq, fmpq]


@dataclass(frozen=True)
class BoundProblem:
    """What the multipliers speak of.

    Parameters
    ----------
    outputs : tuple of Fraction
    ends : tuple of Fraction
        Of the range of inputs.
    epsilon, max_bias : float
    losses : tuple of float
        w₁ and w₂ of the loss w₁\\|t\\| + w₂t².
    moments : Moments or StatedMoments, optional
        None for the worst case.
    max_mse : float, optional
    """

    outputs: tuple[Fraction, ...]
    ends: tuple[Fraction, Fraction]
    epsilon: float
    max_bias: float
    losses: tuple[float, float]
    moments: Moments | StatedMoments | None
    max_mse: float | None

    def program(self, duals: DualPieces) -> LinearBound:
        """The rows that the multipliers belong to."""
        worst, size = self.moments is None, 2 * len(duals.pieces) * len(self.outputs)
        stated = "as stored in the result" if isinstance(self.moments, StatedMoments) else "computed exactly"
        lemma = (WORST if worst else LEMMA).format(
            origin=repr(duals.origin),
            moments=f"{stated}, between bounds",
            more=_BETWEEN * duals.between + _CAP * bool(duals.cap_price),
        )
        return _Rows(self, duals, LinearBound(lemma, size + 4 * len(duals.pieces))).written()


class _Rows:
    """The rows as they are written."""

    def __init__(self, problem: BoundProblem, duals: DualPieces, program: LinearBound) -> None:
        self.problem, self.duals, self.program = problem, duals, program
        self.origin, self.bias = rational(duals.origin), rational(problem.max_bias)
        self.first, self.second = map(rational, problem.losses)
        self.price = rational(duals.cap_price)
        self.bins = [rational(b) - self.origin for b in problem.outputs]
        self.rho = fmpq(math.ceil(exp_upper(problem.epsilon) * (1 << _RHO_BITS)), 1 << _RHO_BITS)
        apart = [fmpq(0), *(b - a for a, b in pairwise(self.bins)), fmpq(0)]
        self.dents = [max(pair) ** 2 / 4 * duals.between for pair in pairwise(apart)]
        self.floors = [program.variable(f"a_{k}") for k in range(len(self.bins))]
        self.capped: list[tuple[int, fmpq]] = []

    def written(self) -> LinearBound:
        worst, constant = self.problem.moments is None, fmpq(0)
        peak = self.program.variable("worst", 1) if worst else -1
        for number, (ends, signs, share, square) in enumerate(self._pieces()):
            constant += square
            parts = [
                self._end(f"r{number}_{side}", end, signs, share, worst) for side, end in enumerate(ends)
            ]
            if worst:
                loss = [(k, -cost) for k, cost in parts[0]]
                self.program.row("worst", [(peak, 1), *loss], "G", 0, share)
        if not worst:
            one = self.program.variable("one", self.second * constant)
            if self.price:
                self.capped.append((one, constant))
                self.program.row("cap", self.capped, "L", self.problem.max_mse or 0.0, -self.price)
            self.program.sums_to(1, [one])
        self._ends_of_range()
        return self.program

    def _pieces(self) -> Iterator[tuple[list[_End], list[int], fmpq, fmpq]]:
        """Of every piece its ends, the sign of b − x for every output, its share, and ∫ x² from below."""
        moments, unit = self.problem.moments, fmpq(1, 1 << BITS)
        spans = {(rational(u), rational(v)) for u, v in self.duals.pieces[:, :2].tolist() if u < v}
        cells = {} if moments is None else moments.over(spans, self.origin)
        atoms = [] if moments is None else [(rational(x) - self.origin, mass) for x, mass in moments.atoms]
        for row in self.duals.pieces.tolist():
            u, v, share, low, high, tilt, tilted = map(rational, row)
            masses: tuple[Enclosure, ...]
            if u < v:
                masses = cells[u, v]
            elif moments is None:
                masses = ((1 << BITS, 1 << BITS),)
            elif (
                atoms
            ):  # u is a rounded distance from the origin: the point mass it stands for is the next one
                x, mass = min(atoms, key=lambda atom: abs(atom[0] - u))
                u, v, masses = x, x, (mass,)
            else:
                continue
            scale = unit if moments is None else unit * share
            n, *rest = ((max(a, 0) * scale, b * scale) for a, b in masses)
            signs = self._signs(u, v)
            if not rest:
                yield [_End(u, low, tilt, n, _scaled(n, u))], signs, share, _scaled(n, u * u)[0]
                continue
            t, t2 = rest
            width = v - u
            later = (max(n[0] - t[1], fmpq(0)), n[1] - t[0])  # ∫ (1 − t) dF
            # x = u + t · width: its means with weights 1 − t and t, and that of its square
            middle = (max(t[0] - t2[1], fmpq(0)), t[1] - t2[0])
            first = _sum(_scaled(later, u), _scaled(middle, width))
            second = _sum(_scaled(t, u), _scaled(t2, width))
            square = _sum(_scaled(n, u * u), _scaled(t, 2 * u * width), _scaled(t2, width * width))
            yield (
                [_End(u, low, tilt, later, first), _End(v, high, tilted, t, second)],
                signs,
                share,
                square[0],
            )

    def _signs(self, u: fmpq, v: fmpq) -> list[int]:
        """1 for an output on the right of the piece, −1 on its left; one inside counts as on the nearer side, which is less."""
        turn = bisect_left(self.bins, (u + v) / 2)
        if (
            self.duals.between
        ):  # before the output next to the piece on its left, or after the one on its right
            left, right = bisect_right(self.bins, u) - 1, bisect_left(self.bins, v)
            near = right == len(self.bins) or (left >= 0 and u + v < self.bins[left] + self.bins[right])
            turn = max(left, 0) if near else right + 1
        return [-1 if k < turn else 1 for k in range(len(self.bins))]

    def _end(
        self, name: str, end: _End, signs: list[int], share: fmpq, worst: bool
    ) -> list[tuple[int, fmpq]]:
        """Rows of the probabilities at one end of a piece; returned are they and what they cost."""
        y, program, scale = end.y, self.program, share if worst else fmpq(1)
        steep = end.tilt - 2 * (self.second + self.price) * y  # of the line at this end
        level = end.level + (self.second * y * y if worst else 0)
        out: list[tuple[int, fmpq]] = []
        for k, (b, sign, dent) in enumerate(zip(self.bins, signs, self.dents)):
            square = b * b - 2 * b * y - dent + (y * y if worst else 0)
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
        """The rows at both ends of the range, whose prices ν say that the floors are those of some mechanism."""
        program, (low, high) = self.program, (rational(x) - self.origin for x in self.problem.ends)
        prices = [list(map(rational, row)) for row in self.duals.multipliers.tolist()]
        tilts = [sum(prices[0], fmpq(0)), -sum(prices[1], fmpq(0))]
        levels = [
            -side * sum((p * b for p, b in zip(row, self.bins)), fmpq(0))
            for side, row in zip((1, -1), prices)
        ]

        def bought(level: fmpq, tilt: fmpq) -> list[tuple[fmpq, fmpq]]:
            """Multipliers of floor and ceiling of each probability, whose reduced cost is 0."""
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
