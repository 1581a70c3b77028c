"""Proofs about a rational quantizer, checked with integers and fractions alone.

Two theorems, each applied to the question (a `QuantizerDesign`) and the law (a `Quantizer` with its exact law):

- `QuantizerProof`: since p is affine between knots, the ends of the segments are all there is to check of rows, bias and privacy;
  the expected (or worst-case) loss is a sum (or a maximum) of quadratics between knots and outputs;
- `DualBound`: multipliers bound the loss of every mechanism from below (`dual_pieces`).

Masses and moments of a prior that is not rational are stored with the proof that integrates over them, and recomputed
(`moments`).

**Exact expected and worst-case loss** of a rational quantizer, for losses :math:`w_1 |t| + w_2 t^2`. Between neighbouring knots and bins E ℓ(M(x) − x) is a quadratic in x, so its values at both ends and in the middle of
the cell say everything. Each is a combination of the rows at the ends of the segment, and running sums over the
outputs give it in a few operations.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import mul

import numpy as np
from flint import fmpq

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower, round_down, round_up
from mechdesign.evidence.proofs import (
    ABOUT_FILE,
    CLAIMED,
    PROVED,
    RECOMPUTED,
    Certificate,
    Claim,
    MechanismClass,
    Proof,
    every,
    menu,
)
from mechdesign.evidence.serialize import UnavailableCallable, serializable
from mechdesign.evidence.vipr import FUNCTION, LinearBound, NoProgramError, fraction
from mechdesign.problem.checks import instance
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Law
from mechdesign.quantizers.design import EXACT, QuantizerDesign
from mechdesign.quantizers.dual_pieces import Asked, DualPieces, bound_words
from mechdesign.quantizers.exact_law import ExactLaw, excess_loss, outermost_law
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.quantizers.moments import BITS, Moments, PriorMoments, rational
from mechdesign.quantizers.selection import BiasedQuantizer
from mechdesign.typing import Numbers

# Agreement asked of what is computed again in floats.
_FLOATS = 1e-9
# Of bounds computed again with 60 digits: half of what they are widened by.
_APART = 2.0**-101
# What the floats of a value may have lost.
_MARGIN = 5e-13
# The ε from which floats may be off by more than that: costs come with a factor of e^ε into the bound.
_STEEP = 7.0


def _parts(stated: Certificate) -> tuple[QuantizerDesign, ExactLaw]:
    """Return question and exact law of a certificate about a quantizer.

    Raises
    ------
    DesignError
        They are of other classes, or do not fit together: another input range, or outputs that were not asked for.
    """
    design = instance("question", stated.question, QuantizerDesign)
    law = instance("law", instance("law", stated.law, Quantizer).law, ExactLaw)
    if (law.knots[0], law.knots[-1]) != tuple(map(Fraction, design.input_range)):
        raise DesignError.of("law", law.knots, f"must be on the question's inputs {design.input_range}")
    if not design.allows(stated.law.bins):
        raise DesignError.of("law", stated.law.bins, "must have outputs that the question allows")
    return design, law


def _outputs(stated: Certificate) -> tuple[QuantizerDesign, tuple[Fraction, ...]]:
    """Return question and outputs of a certificate about a quantizer, unbiased or not; errors as `_parts`."""
    if not isinstance(stated.law, BiasedQuantizer):
        design, law = _parts(stated)
        return design, law.bins
    design = instance("question", stated.question, QuantizerDesign)
    if stated.law.input_range != design.input_range or not design.allows(stated.law.bins):
        raise DesignError("law: must have the input range, and outputs that the question allows")
    return design, tuple(map(Fraction, stated.law.bins.tolist()))


def law_claims(law: ExactLaw, max_bias: float) -> Iterator[Claim]:
    """Whether an exact law is one, and its bias within what is allowed."""
    unit = math.lcm(*(b.denominator for b in law.bins))
    bins = [int(b * unit) for b in law.bins]
    least = total = bias = Fraction(0)
    for x, weights, common in law.limits():
        # in integers first: of a sound law nothing is left to divide
        over, low = sum(weights) - common, min(weights)
        scale = common * unit * x.denominator
        off = sum(map(mul, bins, weights)) * x.denominator - common * unit * x.numerator
        total = max(total, Fraction(abs(over), common)) if over else total
        least = min(least, Fraction(low, common)) if low < 0 else least
        bias = max(bias, Fraction(abs(off), scale)) if off else bias
    ordered = all(a < b for values in (law.knots, law.bins) for a, b in pairwise(values))
    slack = Fraction(max_bias) - bias
    yield Claim("knots and outputs increase", PROVED, 0.0, ordered, ABOUT_FILE)
    yield Claim("rows sum to 1", PROVED, round_down(-total), total == 0, ABOUT_FILE)
    yield Claim("no probability is negative", PROVED, round_down(least), least == 0, ABOUT_FILE)
    yield Claim(f"bias at most {max_bias!r}", PROVED, round_down(slack), slack >= 0)


def private_claims(design: QuantizerDesign, law: ExactLaw) -> Iterator[Claim]:
    """Whether a law is one, its bias within what is allowed, and private as the question says (`privacy_claims`)."""
    yield from law_claims(law, design.max_bias)
    yield from design.privacy_claims(law)


def _moments_claim(
    design: QuantizerDesign, stated: PriorMoments | None, needed: PriorMoments | None
) -> Claim | None:
    """Whether stored moments are those of the question's prior; None where none are stored, nor needed."""
    if stated is None and needed is None:
        return None
    apart = math.inf if stated is None or needed is None else stated.apart(needed)
    how, near = (PROVED, _APART) if Moments(design.prior).proved else (RECOMPUTED, _FLOATS)
    return Claim("the prior's masses and moments are those stated", how, near - apart, apart <= near)


def _integrals(design: QuantizerDesign, stated: PriorMoments | None) -> Moments:
    return Moments(design.prior, stated)


def _integrated(design: QuantizerDesign, loss: Loss) -> bool:
    """Whether a proof integrates over the prior: the mean of a polynomial loss."""
    return loss.polynomial and design.objective != "worst"


@serializable("quantizer-proof")
@dataclass(frozen=True, eq=False)
class QuantizerProof(Proof):
    """An affine law is private, and has a bias of at most b, if its rows at the ends of every segment are and do.

    Its loss is a quadratic in the input between neighbouring knots and outputs (`quadratics`): the expectation is a combination of the prior's masses and
    moments on these cells, the supremum the largest end or peak.
    A loss given as a callable is recomputed in floats.

    Parameters
    ----------
    moments : PriorMoments, optional
        Of a prior that is not rational, on the cells of the law.
    """

    moments: PriorMoments | None = None

    speaks_of = ("privacy", "bias", "value")

    @classmethod
    def of(cls, design: QuantizerDesign, law: ExactLaw) -> QuantizerProof:
        """Store the moments that this question and law need."""
        return cls(cls._needed(design, law))

    @staticmethod
    def _needed(design: QuantizerDesign, law: ExactLaw) -> PriorMoments | None:
        moments = Moments(design.prior)
        used = _integrated(design, design.loss) or design.max_mse is not None
        return (
            PriorMoments.of(moments, cell_edges(law), (), Fraction(0))
            if used and not moments.rational
            else None
        )

    def exactly(self, design: QuantizerDesign, law: ExactLaw, loss: Loss, objective: str) -> Fraction:
        """The loss of the law, rounded up by the width of the prior's enclosures only."""
        if objective == "worst":
            return worst_upper(law, loss)
        return expected_upper(law, _integrals(design, self.moments), loss)

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, law = _parts(stated)
        yield from private_claims(design, law)
        fits = _moments_claim(design, self.moments, self._needed(design, law))
        if fits is not None:
            yield fits
            if not math.isfinite(fits.margin):  # nothing can be integrated
                return
        worst, value = design.objective == "worst", stated.value
        claim = f"{'worst-case' if worst else 'expected'} loss at most {value!r}"
        if isinstance(design.loss.function, UnavailableCallable):
            yield Claim(claim, CLAIMED, math.nan, math.isfinite(value))
        elif design.loss.polynomial:
            yield self._at_most(claim, design, law, design.loss, value, design.objective)
        else:
            found = design.loss_of(stated.law)
            # of a loss that cancels, the rounding is that of its size
            apart = stated.law.bins[:, None] - stated.law.input_range
            room = _FLOATS * abs(found) + 1e-14 * float(abs(design.loss(apart)).max())
            yield Claim(claim, RECOMPUTED, value - found, abs(value - found) <= room)
        if design.max_mse is not None:
            claim = f"mean squared error at most {design.max_mse!r}"
            yield self._at_most(claim, design, law, Loss(squared=1.0), design.max_mse, "mean")

    def _at_most(
        self, claim: str, design: QuantizerDesign, law: ExactLaw, loss: Loss, most: float, objective: str
    ) -> Claim:
        margin = Fraction(most) - self.exactly(design, law, loss, objective)
        exact = objective == "worst" or Moments(design.prior).proved
        tolerance = 0.0 if exact else _FLOATS * abs(most)
        return Claim(claim, PROVED if exact else RECOMPUTED, round_down(margin), margin >= -tolerance)


def _in_floats(design: QuantizerDesign, entries: int) -> bool:
    """Whether floats with a margin are stated in place of what exact arithmetic takes longer for than a design."""
    return entries > EXACT and design.privacy.epsilon < _STEEP


def certified_value(design: QuantizerDesign, mechanism: Quantizer) -> tuple[float, QuantizerProof]:
    """Return the loss of a mechanism with an exact law, rounded up, and its proof.

    Exact where that takes no longer than a design; else the floats' loss and what their sums may have lost.
    """
    law = instance("law", mechanism.law, ExactLaw)
    proof = QuantizerProof.of(design, law)
    if design.loss.polynomial and not _in_floats(design, len(law.knots) * len(law.bins)):
        return round_up(proof.exactly(design, law, design.loss, design.objective)), proof
    value = design.loss_of(mechanism)
    return (value + _MARGIN * abs(value) if design.loss.polynomial else value), proof


@serializable("quantizer-dual-bound")
@dataclass(frozen=True, eq=False)
class DualBound(Proof):
    """Lines below the loss, averaged over the inputs, bound the loss of every mechanism (`dual_pieces`).

    Parameters
    ----------
    duals : DualPieces
    moments : PriorMoments, optional
        Of a prior that is not rational, on the stretches of inputs that the multipliers speak of.
    """

    duals: DualPieces
    moments: PriorMoments | None = None

    speaks_of = ("lower bound",)

    def __post_init__(self) -> None:
        instance("duals", self.duals, DualPieces)

    @classmethod
    def of(cls, design: QuantizerDesign, duals: DualPieces) -> DualBound:
        """Store the moments that these multipliers need."""
        if design.objective == "worst":
            duals = duals.moved_within(design.input_range)
        return cls(duals, cls._needed(design, duals))

    @staticmethod
    def _needed(design: QuantizerDesign, duals: DualPieces) -> PriorMoments | None:
        moments = Moments(design.prior)
        used = _integrated(design, design.loss) and not moments.rational
        return PriorMoments.of(moments, (), *duals.spans()) if used else None

    def bound_checked(self, stated: Certificate) -> str:
        design = instance("question", stated.question, QuantizerDesign)
        return PROVED if design.objective == "worst" or Moments(design.prior).proved else RECOMPUTED

    def among(self, stated: Certificate) -> MechanismClass:
        """Every mechanism with the law's outputs, or with any between two; those of some outputs where a search chose among them."""
        design, duals = instance("question", stated.question, QuantizerDesign), self.duals
        if duals.outputs is None and design.searches_outputs:
            return design.among
        noun = design.with_outputs(bound_words(duals))
        return every(noun) if duals.outputs is None or duals.between else menu(noun)

    def _asked(self, design: QuantizerDesign, outputs: tuple[Fraction, ...]) -> Asked:
        """What the multipliers bound; `outputs` are the law's. The bias is that allowed, or the largest that any mechanism has."""
        (low, high), places = map(Fraction, design.input_range), self.duals.places(outputs)
        moments = None if design.objective == "worst" else _integrals(design, self.moments)
        bias = min(design.max_bias, float(max(high - places[0], places[-1] - low)))
        return Asked(places, (low, high), design.privacy.epsilon, design.loss, moments, bias, design.max_mse)

    def proved(self, design: QuantizerDesign, outputs: tuple[Fraction, ...]) -> Fraction:
        """The bound that the multipliers prove, in exact arithmetic."""
        return self.duals.lower_bound(self._asked(design, outputs))

    def linear_bound(self, stated: Certificate) -> LinearBound:
        design, outputs = _outputs(stated)
        if not design.loss.polynomial:
            raise NoProgramError(FUNCTION)
        return self.duals.program(self._asked(design, outputs))

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, outputs = _outputs(stated)
        privacy = instance("privacy", design.privacy, PureDP)
        if stated.lower_bound is None or not design.loss.polynomial:
            raise DesignError(
                "proofs: multipliers prove a lower bound of a polynomial loss, and none is stated"
            )
        fits = _moments_claim(design, self.moments, self._needed(design, self.duals))
        if fits is not None:
            yield fits
            if not math.isfinite(fits.margin):
                return
        space = design.output_space
        if space is not None:
            held = space.bounded_by(self.duals)
            yield Claim(
                "the lower bound speaks of all outputs that are searched", PROVED, math.nan, held, ABOUT_FILE
            )
        claim, how = (
            f"no {self.among(stated).noun} costs less than {stated.lower_bound!r}",
            self.bound_checked(stated),
        )
        worst = design.objective == "worst"
        if not self.duals.sound(outputs, worst=worst) or (
            worst and not self.duals.within(design.input_range)
        ):
            yield Claim(claim, PROVED, -math.inf, False)
            return
        margin = self.proved(design, outputs) - Fraction(stated.lower_bound)
        # The floats of a prior's moments come with a factor ρ into the bound.
        loose = _FLOATS + 1e-3 * _FLOATS * float(
            min(exp_lower(min(privacy.epsilon, 700.0)), Fraction(10**300))
        )
        tolerance = 0.0 if how == PROVED else loose * abs(stated.lower_bound)
        yield Claim(claim, how, round_down(margin), margin >= -tolerance)


def proved_law(design: QuantizerDesign, law: Law, mechanism: Quantizer) -> Law:
    """Return a law with the exact mechanism in its place, its loss rounded up, and the proofs of both."""
    value, proof = certified_value(design, mechanism)
    return replace(law, mechanism=mechanism, value=value, proofs=(proof,))


OUTERMOST = "only the two outermost outputs are used: no program was solved"


def outermost(design: QuantizerDesign, bins: Iterable[float]) -> Iterator[Law]:
    """Yield the unbiased mechanism that uses the first and the last of these outputs, where it is within ε."""
    law = outermost_law(bins, design.input_range)
    if excess_loss(law, design.privacy.epsilon) <= 0:
        mechanism = Quantizer.of_law(law)
        value, proof = certified_value(design, mechanism)
        yield Law(mechanism, value, (proof,), notes=(OUTERMOST,))


def proved_bound(
    design: QuantizerDesign, duals: DualPieces, outputs: Numbers, found: float | None = None
) -> Bound:
    """Return the lower bound that multipliers prove for mechanisms with these outputs, rounded down.

    Where exact arithmetic takes longer than a design, and `found` is what floats say, it is that less what they may have lost.
    """
    proof = DualBound.of(design, duals)
    if found is not None and _in_floats(design, len(duals.pieces) * np.size(outputs)):
        return Bound(found - _MARGIN * abs(found), proof)
    exact = tuple(map(Fraction, np.asarray(outputs, dtype=float).tolist()))
    return Bound(round_down(proof.proved(design, exact)), proof)


Quadratic = tuple[fmpq, fmpq, fmpq, fmpq, fmpq]


class _Row:
    """One law of the outputs, which are integers in units of 1/unit: its mean loss at any input."""

    def __init__(self, bins: list[int], unit: int, weights: list[int], common: int, loss: Loss) -> None:
        self.bins, self.unit, self.common = bins, unit, common
        self.first, self.second = rational(loss.absolute), rational(loss.squared)
        self.mass = list(accumulate(weights, initial=0))
        moments = list(map(mul, bins, weights))
        self.moment = list(accumulate(moments, initial=0))
        self.square = sum(map(mul, bins, moments)) if self.second else 0

    def loss(self, x: fmpq) -> fmpq:
        # Everything over x's denominator d and the outputs' unit: x = n / (d · unit).
        n, d = int(x.p) * self.unit, int(x.q)
        k = bisect_right(self.bins, n // d)
        away = d * (self.moment[-1] - 2 * self.moment[k]) - n * (self.mass[-1] - 2 * self.mass[k])
        total: fmpq = self.first * fmpq(away, d * self.unit * self.common)
        if self.second:
            square = d * (d * self.square - 2 * n * self.moment[-1]) + n * n * self.mass[-1]
            total += self.second * fmpq(square, (d * self.unit) ** 2 * self.common)
        return total


def inner_edges(law: ExactLaw, start: Fraction, end: Fraction) -> list[Fraction]:
    """The ends of a segment and the outputs between."""
    return [start, *law.bins[bisect_right(law.bins, start) : bisect_left(law.bins, end)], end]


def cell_edges(law: ExactLaw) -> list[Fraction]:
    """Knots and the outputs between: on each cell the expected loss is a quadratic."""
    return [law.knots[0], *(x for ends in pairwise(law.knots) for x in inner_edges(law, *ends)[1:])]


def quadratics(law: ExactLaw, loss: Loss) -> Iterator[Quadratic]:
    """Ends u, v of every cell, and a, b, c: E ℓ = a + b t + c t² there, t = (x − u)/(v − u)."""
    unit = math.lcm(*(b.denominator for b in law.bins))
    bins = [int(b * unit) for b in law.bins]
    last: tuple[list[int], int] = [], 1
    row = _Row(bins, unit, *law.weights(0, 0), loss)
    for k, ends in enumerate(pairwise(law.knots)):
        rows = []
        for side in (0, 1):
            if (found := law.weights(k, side)) != last:  # where the law is continuous, once a knot
                row, last = _Row(bins, unit, *found, loss), found
            rows.append(row)

        edges = [rational(x) for x in inner_edges(law, *ends)]

        def at(x: fmpq, rows: list[_Row] = rows, start: fmpq = edges[0], end: fmpq = edges[-1]) -> fmpq:
            t = (x - start) / (end - start)
            return (1 - t) * rows[0].loss(x) + t * rows[1].loss(x)

        values = [at(x) for x in edges]
        for (u, v), (low, high) in zip(pairwise(edges), pairwise(values)):
            middle = at((u + v) / 2)
            yield u, v, low, 4 * middle - 3 * low - high, 2 * (low + high - 2 * middle)


def upper(coefficient: fmpq, enclosure: tuple[int, int]) -> fmpq:
    """The largest the product can be, in units of 2⁻¹⁶⁰."""
    return coefficient * enclosure[1 if coefficient > 0 else 0]


def expected_upper(law: ExactLaw, moments: Moments, loss: Loss) -> Fraction:
    """An upper bound of E ℓ(M(X) − X), above it by the width of the prior's enclosures only."""
    cells = list(quadratics(law, loss))
    edges = [cells[0][0], *(v for _, v, *_ in cells)]
    total = fmpq(0)
    for (_, _, *coefficients), parts in zip(cells, moments.density(edges)):
        total += sum(map(upper, coefficients, parts), fmpq(0))
    for place, weight in moments.atoms:
        x = rational(place)
        k = min(max(bisect_right(edges, x) - 1, 0), len(cells) - 1)
        u, v, a, b, c = cells[k]
        t = (x - u) / (v - u)
        total += upper(a + b * t + c * t * t, weight)
    return fraction(total / (1 << BITS))


def worst_upper(law: ExactLaw, loss: Loss) -> Fraction:
    """sup over inputs of E ℓ(M(x) − x): the largest end or peak of the quadratics, exact."""
    best = fmpq(0)
    for _, _, a, b, c in quadratics(law, loss):
        best = max(best, a, a + b + c)
        if c < 0 < b and b < -2 * c:
            best = max(best, a - b * b / (4 * c))
    return fraction(best)
