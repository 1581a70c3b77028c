r"""Base of quantizer designs: question, results, and proofs that are checked with integers and fractions only.

Two theorems are applied to the question (a `QuantizerDesign`) and the law (a `Quantizer` with its exact law):

- `QuantizerProof`: since p is affine between knots, rows, bias and privacy need checks at the ends of the segments only;
  the expected (or worst-case) loss is a sum (or a maximum) of quadratics between knots and outputs;
- `DualBound`: multipliers bound the loss of every mechanism from below (`dual_pieces`).

Masses and moments of a prior that is not rational are stored with the proof that integrates over them, and recomputed (`moments`).

**Exact expected and worst-case loss** of a rational quantizer, for losses :math:`w_1 |t| + w_2 t^2`. Between neighbouring knots and bins E ℓ(M(x) − x)
is a quadratic in x, determined by its values at both ends and in the middle of the cell, each a combination of rows at the ends of the segment, by running sums.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from operator import mul
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from flint import fmpq

from mechdesign.checks import Checked, field, instance, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import exp_lower, fraction, round_down, round_up
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
from mechdesign.evidence.results import ACTIVE, Accuracy, Result, audit_rows
from mechdesign.evidence.serialize import UnavailableCallable, serializable
from mechdesign.evidence.vipr import FUNCTION, LinearBound, NoProgramError
from mechdesign.plotting import COLOURS, figure, plain, plot_curves, sized
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior, prior_words
from mechdesign.problem.privacy import FARTHEST, Description, MetricDP, PureDP, never_sent
from mechdesign.problem.spine import Bound, Design, Law
from mechdesign.quantizers.biased import BiasedQuantizer
from mechdesign.quantizers.dual_pieces import Asked, DualPieces, OutputSpace, bound_words
from mechdesign.quantizers.mechanism import Quantizer, duchi
from mechdesign.quantizers.moments import BITS, Moments, PriorMoments, rational
from mechdesign.quantizers.table import LARGEST, ExactLaw, excess_loss, outermost_law
from mechdesign.typing import Figure, Numbers

EXACT = 4096
"""Most entries of a law whose loss is computed in fractions before certification; more use floats with a margin, as fractions take four times the design's time."""


def _exact_slacks(law: ExactLaw, ratio: Fraction, max_bias: float) -> dict[str, Callable[[int, int], float]]:
    """Return the slack of each family of constraints at a row, an end of a segment, and an output: in fractions, rounded down."""
    rows = [law.weights(k, end) for k in range(len(law.knots) - 1) for end in (0, 1)]
    tops, allowed = [ratio * low for low in law.extremes()[0]], Fraction(min(max_bias, LARGEST))
    unit = math.lcm(*(b.denominator for b in law.bins))
    places = [int(b * unit) for b in law.bins]
    below = cache(lambda k, weight, total: round_down(tops[k] - Fraction(weight, total)))

    def unbiased(row: int, _: int) -> float:
        weights, total = rows[row]
        mean = Fraction(sum(map(mul, weights, places)), total * unit)
        return round_down(allowed - abs(mean - law.knots[(row + 1) // 2]))

    return {
        "normalisation": lambda row, _: round_down(-abs(Fraction(sum(rows[row][0]), rows[row][1]) - 1)),
        "unbiased": unbiased,
        "privacy": lambda row, k: below(k, rows[row][0][k], rows[row][1]),
        "non-negativity": lambda row, k: round_down(Fraction(rows[row][0][k], rows[row][1])),
    }


class QuantizerDesign(Design):
    """A design whose mechanism is a `Quantizer`.

    Attributes
    ----------
    privacy : PureDP, or others for `MetricQuantizer`
    prior : Prior
    loss : Loss
    input_range : (float, float)
    objective : {"mean", "worst"}
    max_bias : float
    max_mse : float or None
    """

    asks: ClassVar[str] = "report"

    privacy: Any
    prior: Prior
    loss: Loss
    input_range: Any
    objective: str = "mean"
    max_bias: float = 0.0
    max_mse: float | None = None
    pair: ClassVar[Any] = ""
    """The inputs between which privacy holds, in words, if not any two."""

    def with_outputs(self, which: str) -> str:
        """Describe in words the mechanisms with such outputs that meet the design's requirements."""
        cap = "" if self.max_mse is None else " within the cap on the squared error"
        if not self.max_bias:
            return f"unbiased mechanism with {which}{cap}"
        bias = f" biased by at most {shown(self.max_bias)}" if math.isfinite(self.max_bias) else ""
        return f"mechanism with {which}{bias}{cap}"

    @property
    def searches_outputs(self) -> bool:
        """Whether a search finds the outputs, so that a lower bound without outputs of its own holds for these only."""
        return False

    @property
    def output_space(self) -> OutputSpace | None:
        """Space of outputs from which a search may choose and for which its lower bound holds; None if they are given."""
        return None

    def largest_bias(self, places: Sequence[float | Fraction]) -> float:
        """Return the allowed bias, at most the largest that outputs at these places can have."""
        low, high = map(Fraction, self.input_range)
        return min(self.max_bias, float(max(high - Fraction(places[0]), Fraction(places[-1]) - low)))

    def privacy_claims(self, law: ExactLaw) -> Iterator[Claim]:
        r"""Check that :math:`\max_x p(x, i) \le \rho \min_x p(x, i)` for every output, with a proved rational :math:`\rho \le e^{\varepsilon}`."""
        privacy = instance("privacy", self.privacy, PureDP)
        rho = exp_lower(min(privacy.epsilon, 700.0))
        slack = min(rho * low - high for low, high in zip(*law.extremes()))
        yield Claim(f"privacy loss at most {privacy.epsilon!r}", PROVED, round_down(slack), slack >= 0)

    def own_claims(self, law: ExactLaw, witness: tuple[Fraction, ...]) -> Iterator[Claim]:
        """Claim that the user's own rows hold: a design without any takes no `witness`."""
        DesignError.when(witness, "witness: must be empty, as the design has no rows of one's own")
        yield from ()

    def allows(self, outputs: object) -> bool:
        """Whether the design allows a mechanism with these outputs; a search overrides this."""
        asked = np.asarray(getattr(self, "bins"), dtype=float)  # noqa: B009
        given = np.asarray(outputs, dtype=float)
        # an exact law may need outputs off by some units in the last place, at the edge of feasibility
        return asked.shape == given.shape and np.allclose(given, asked, 16 * np.finfo(float).eps, 0)

    def loss_of(self, mechanism: Quantizer) -> float:
        """Return the expected or the worst-case loss of a mechanism, in floats."""
        instance("mechanism", mechanism, Quantizer)
        if self.objective == "worst":
            return mechanism.worst_case_loss(self.loss)[0]
        return mechanism.expected_loss(self.prior, self.loss)

    def audit(self, result: Result) -> pd.DataFrame:
        r"""Tabulate every constraint of the definition at both ends of every segment, recomputed from the mechanism alone.

        :math:`p(x, i) \le e^{\varepsilon} \min_{x'} p(x', i)`, :math:`\sum_i p(x, i) = 1`, :math:`\sum_i B_i p(x, i) = x` and
        :math:`p(x, i) \ge 0`. For an exact law, slacks of at most 1e-9 are computed in fractions, and rounded down.
        """
        mechanism, epsilon = result.mechanism, min(self.privacy.epsilon, 700.0)
        law, rows = mechanism.law, mechanism.rows
        x, bins = mechanism.knots[np.arange(1, len(rows) + 1) // 2], mechanism.bins
        labels = [f"x={v:g}{'+-'[n % 2]}" for n, v in enumerate(x)]
        total, mean, top = rows.sum(axis=1), rows @ bins, math.exp(epsilon) * rows.min(axis=0) + 0 * rows
        bias = self.max_bias - abs(mean - x)
        exact = {} if law is None else _exact_slacks(law, exp_lower(epsilon), self.max_bias)
        each = [f"{label} i={i}" for label in labels for i in range(1, len(bins) + 1)]
        families = [
            ("normalisation", labels, total, 1 + 0 * total, -abs(total - 1), True),
            ("unbiased", labels, mean, x, bias, (self.max_bias == 0) | (bias <= ACTIVE)),
            ("privacy", each, rows, top, top - rows, None),
            ("non-negativity", each, rows, 0 * rows, rows, None),
        ]
        parts = []
        for name, index, lhs, rhs, slack, active in families:
            left, right, near = (side.ravel().astype(float) for side in (lhs, rhs, slack))
            for n in np.flatnonzero(near <= ACTIVE).tolist() if exact else ():
                near[n] = exact[name](*divmod(n, len(near) // len(rows)))
            parts.append(audit_rows(name, index, left, right, near, active=active))
        return pd.concat(parts, ignore_index=True)

    def frame(self, result: Result) -> pd.DataFrame:
        m = result.mechanism
        if m.selection is not None:
            return m.selection.to_frame()
        columns = {f"{b:g}": np.append(m.starts[:, i], m.ends[-1, i]) for i, b in enumerate(m.bins)}
        return pd.DataFrame({"x": m.knots, **columns})

    def lines(self, result: Result) -> list[str]:
        budget, loss = self.privacy.epsilon, result.mechanism.privacy_loss()
        words = "in exact arithmetic" if result.proofs else "computed in floats, rounded up"
        table = QuantizerDesign.audit(self, result)
        worst = table.loc[table["slack"].where(table["family"] == "privacy").idxmin()]
        return [
            f"exact loss: {loss!r} {'<=' if loss <= budget else '> OVER'} budget {budget!r} ({words})",
            f"tightest privacy constraint: {worst['index']}, slack {worst['slack']:.2g} ({len(table)} constraints are audited)",
        ]

    def describe(self, result: Result) -> Description:
        mechanism, worst = result.mechanism, self.objective == "worst"
        low, high = (shown(v) for v in mechanism.input_range)
        outputs = [shown(b) for b in mechanism.bins]
        named = ", ".join(outputs if len(outputs) <= 12 else [*outputs[:4], "…", *outputs[-3:]])
        bits = max(1, math.ceil(math.log2(len(outputs))))
        right = "is right on average, whatever the input"
        if self.max_bias:
            most = f"off by at most {shown(self.max_bias)}" if math.isfinite(self.max_bias) else "biased"
            right = f"may be {most} on average"
        inputs = (
            "The error is the largest over all inputs"
            if worst
            else f"Inputs follow {prior_words(self.prior)}"
        )
        capped = f" The mean squared error is at most {shown(self.max_mse)}." if self.max_mse else ""
        held = f"between {self.pair}" if self.pair else "for every input"
        return Description(
            title=f"{len(outputs)}-output quantizer",
            what=f"A number between {low} and {high} is reported in {bits} bit{'s' if bits > 1 else ''}: one of the {len(outputs)} outputs {named}. "
            f"The report {right}. {inputs}; privacy holds {held}, whatever law inputs follow.{capped}",
            loss=f"{'largest' if worst else 'expected'} {self.loss.words}",
            pair=self.pair,
            picture="Above: the probability of each output, for every input. Below: the expected error at every input.",
            attacked=FARTHEST if isinstance(self.privacy, MetricDP) else "",
            rivals="Known mechanisms for the same inputs, loss and privacy. They may have other outputs; Laplace noise is not sent in "
            "a few bits.",
        )

    def _two_outputs(self) -> Quantizer:
        """Return Duchi's two outputs over the design's inputs."""
        unit, (low, high) = duchi(self.privacy.epsilon), self.input_range
        bins = (low + high) / 2 + (high - low) / 2 * unit.bins
        return Quantizer(bins, np.array([low, high]), unit.starts, unit.ends)

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield Duchi's two outputs and Laplace noise at the same ε."""
        loss, pure = self.loss, isinstance(self.privacy, PureDP)
        low, high = self.input_range
        if pure:
            yield "two outputs (Duchi et al.)", self.loss_of(self._two_outputs())
        metric = isinstance(self.privacy, MetricDP) and self.privacy.metric == "absolute"
        if loss.polynomial and (pure or metric):
            scale = (high - low if pure else 1.0) / self.privacy.epsilon
            yield "Laplace noise", loss.absolute * scale + 2 * loss.squared * scale**2

    def remarks(self, result: Result) -> list[str]:
        """Name the outputs of negligible probability."""
        return never_sent(
            [shown(b) for b in result.mechanism.bins], result.mechanism.extremes()[1], "outputs"
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the probability of every output, and the expected error, over the inputs."""
        mechanism, loss = result.mechanism, self.loss
        low, high = mechanism.input_range
        x, bins = np.linspace(low, high, 241), mechanism.bins
        rows = mechanism.probabilities(x)
        fig, (above, below) = figure(2, 1, sharex=True, **sized(options, 5.0, 5.2))
        if len(bins) <= len(COLOURS):
            curves = {f"output {b:.4g}": (x, row) for b, row in zip(bins, rows.T)}
            plot_curves(above, curves, ylabel="probability", ylim=(0, None))
        else:
            shades = above.pcolormesh(x, bins, rows.T, shading="nearest", cmap="viridis", rasterized=True)
            fig.colorbar(shades, ax=above, label="probability")
            above.set(ylabel="output")
            above.grid(False)
        errors = {"this quantizer": (x, np.sum(rows * loss(bins - x[:, None]), axis=-1))}
        if isinstance(self.privacy, PureDP):
            errors["two outputs (Duchi et al.)"] = x, self._two_outputs().loss_at(x, loss)
        plot_curves(below, errors, xlabel="input", ylabel=plain(loss.words), ylim=(0, None))
        return fig

    def errors(self, result: Result, question: Any = None) -> Accuracy:
        """Return errors averaged over the prior of `question`, or of this design; for a question with clients, those of the mean."""
        if getattr(question, "clients", None) is not None:
            return question.mean.accuracy(result.mechanism)  # type: ignore[no-any-return]
        found: Accuracy = result.mechanism.errors((self if question is None else question).prior)
        return found


# Tolerance for numbers recomputed in floats.
_FLOATS = 1e-9
# Tolerance for bounds recomputed with 60 digits: half of their widening.
_APART = 2.0**-101
# Relative rounding error of a value in floats.
_MARGIN = 5e-13
# ε from which floats may be off by more than that: costs enter the bound with a factor of e^ε.
_STEEP = 7.0


def _parts(stated: Certificate) -> tuple[QuantizerDesign, ExactLaw]:
    """Return question and exact law of a certificate about a quantizer.

    Raises
    ------
    DesignError
        Their classes are wrong, or they do not fit together: another input range, or outputs that the question does not allow.
    """
    design = instance("question", stated.question, QuantizerDesign)
    law = instance("law", instance("law", stated.law, Quantizer).law, ExactLaw)
    if (law.knots[0], law.knots[-1]) != tuple(map(Fraction, design.input_range)):
        raise DesignError.of("law", law.knots, f"must be on the question's inputs {design.input_range}")
    refuse(not design.allows(stated.law.bins), "law", stated.law.bins, "must have outputs of the question")
    return design, law


def _outputs(stated: Certificate) -> tuple[QuantizerDesign, tuple[Fraction, ...]]:
    """Return question and outputs of a certificate about a quantizer, unbiased or not; errors as in `_parts`."""
    if not isinstance(stated.law, BiasedQuantizer):
        design, law = _parts(stated)
        return design, law.bins
    design = instance("question", stated.question, QuantizerDesign)
    if stated.law.input_range != design.input_range or not design.allows(stated.law.bins):
        raise DesignError("law: must have the input range, and outputs that the question allows")
    return design, tuple(map(Fraction, stated.law.bins.tolist()))


def law_claims(law: ExactLaw, max_bias: float) -> Iterator[Claim]:
    """Check that rows of an exact law are probabilities, and its bias within `max_bias`."""
    unit = math.lcm(*(b.denominator for b in law.bins))
    bins = [int(b * unit) for b in law.bins]
    least = total = bias = Fraction(0)
    for x, weights, common in law.limits():
        # in integers first: for a sound law there is nothing to divide
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
    """Check that rows are probabilities, the bias is within its bound, and the law is private (`privacy_claims`)."""
    yield from law_claims(law, design.max_bias)
    yield from design.privacy_claims(law)


def _moments_claim(
    design: QuantizerDesign, stated: PriorMoments | None, needed: PriorMoments | None
) -> Claim | None:
    """Claim that stored moments are those of the question's prior; return None if moments are neither stored nor needed."""
    if stated is None and needed is None:
        return None
    apart = math.inf if stated is None or needed is None else stated.apart(needed)
    how, near = (PROVED, _APART) if Moments(design.prior).proved else (RECOMPUTED, _FLOATS)
    return Claim("the prior's masses and moments are those stated", how, near - apart, apart <= near)


def _integrated(design: QuantizerDesign, loss: Loss) -> bool:
    """Whether a proof integrates over the prior: the mean of a polynomial loss."""
    return loss.polynomial and design.objective != "worst"


@serializable("quantizer-proof", eq=False)
class QuantizerProof(Proof):
    """Theorem: an affine law is private, with a bias of at most b, if its rows at the ends of every segment are.

    Its loss is a quadratic in the input between neighbouring knots and outputs (`quadratics`): the expectation is a combination of the prior's masses and
    moments on these cells, the supremum the largest end or peak.
    A loss given as a callable is recomputed in floats.

    Parameters
    ----------
    moments : PriorMoments, optional
        Moments of a prior that is not rational, on the cells of the law.
    witness : tuple of Fraction
        Values of the further columns of a user's own rows, which stand for piecewise linear functions: any that meet their rows bound these from above.
    """

    moments: PriorMoments | None = None
    witness: tuple[Fraction, ...] = ()

    speaks_of = ("privacy", "bias", "value")

    @classmethod
    def of(cls, design: QuantizerDesign, law: ExactLaw) -> QuantizerProof:
        """Store the moments that this question and law need."""
        return cls(cls._needed(design, law))

    @staticmethod
    def _needed(design: QuantizerDesign, law: ExactLaw) -> PriorMoments | None:
        moments = Moments(design.prior)
        used = _integrated(design, design.loss) or design.max_mse is not None
        if moments.rational or not used:
            return None
        return PriorMoments.of(moments, law.cell_edges(), (), Fraction(0))

    def exactly(self, design: QuantizerDesign, law: ExactLaw, loss: Loss, objective: str) -> Fraction:
        """Return an upper bound of the law's loss, exact up to the width of the prior's enclosures."""
        if objective == "worst":
            return worst_upper(law, loss)
        return expected_upper(law, Moments(design.prior, self.moments), loss)

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, law = _parts(stated)
        yield from private_claims(design, law)
        yield from design.own_claims(law, self.witness)
        fits = _moments_claim(design, self.moments, self._needed(design, law))
        if fits is not None:
            yield fits
            if not math.isfinite(fits.margin):  # integration is impossible
                return
        worst, value = design.objective == "worst", stated.value
        claim = f"{'worst-case' if worst else 'expected'} loss at most {value!r}"
        if isinstance(design.loss.function, UnavailableCallable):
            yield Claim(claim, CLAIMED, math.nan, math.isfinite(value))
        elif design.loss.polynomial:
            yield self._at_most(claim, design, law, design.loss, value, design.objective)
        else:
            found = design.loss_of(stated.law)
            # if terms of the loss cancel, rounding is relative to their size
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
    """Whether to use floats with a margin, as exact arithmetic would take longer than the design."""
    return entries > EXACT and design.privacy.epsilon < _STEEP


def certified_value(design: QuantizerDesign, mechanism: Quantizer) -> tuple[float, QuantizerProof]:
    """Return the loss of a mechanism with an exact law, rounded up, and its proof.

    It is exact if that takes no longer than the design; otherwise the loss in floats plus a margin for rounding.
    """
    law = instance("law", mechanism.law, ExactLaw)
    proof = QuantizerProof.of(design, law)
    if design.loss.polynomial and not _in_floats(design, len(law.knots) * len(law.bins)):
        return round_up(proof.exactly(design, law, design.loss, design.objective)), proof
    value = design.loss_of(mechanism)
    return (value + _MARGIN * abs(value) if design.loss.polynomial else value), proof


@serializable("quantizer-dual-bound", eq=False)
class DualBound(Checked, Proof):
    """Theorem: lines below the loss, averaged over the inputs, bound the loss of every mechanism (`dual_pieces`).

    Parameters
    ----------
    duals : DualPieces
    moments : PriorMoments, optional
        Moments of a prior that is not rational, on the multipliers' intervals of inputs.
    """

    duals: DualPieces = field(DualPieces)
    moments: PriorMoments | None = None

    speaks_of = ("lower bound",)

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

    def mechanism_class(self, stated: Certificate) -> MechanismClass:
        """Return the class that the bound covers: mechanisms with the multipliers' outputs, or with the law's; the design's class if a search chose these."""
        design, duals = instance("question", stated.question, QuantizerDesign), self.duals
        if duals.outputs is None and design.searches_outputs:
            return design.mechanism_class
        noun = design.with_outputs(bound_words(duals))
        return every(noun) if duals.outputs is None or duals.between else menu(noun)

    def asked(self, design: QuantizerDesign, outputs: tuple[Fraction, ...]) -> Asked:
        """Return the problem that the multipliers bound; `outputs` are the law's. Its bias is the allowed one, at most the largest of any mechanism."""
        (low, high), places = map(Fraction, design.input_range), self.duals.places(outputs)
        moments = None if design.objective == "worst" else Moments(design.prior, self.moments)
        bias, epsilon = design.largest_bias(places), design.privacy.epsilon
        return Asked(places, (low, high), epsilon, design.loss, moments, bias, design.max_mse)

    def proved(self, design: QuantizerDesign, outputs: tuple[Fraction, ...]) -> Fraction:
        """Return the bound that the multipliers prove, in exact arithmetic."""
        return self.duals.lower_bound(self.asked(design, outputs))

    def linear_bound(self, stated: Certificate) -> LinearBound:
        design, outputs = _outputs(stated)
        if not design.loss.polynomial:
            raise NoProgramError(FUNCTION)
        return self.duals.program(self.asked(design, outputs))

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, outputs = _outputs(stated)
        privacy = instance("privacy", design.privacy, PureDP)
        if stated.lower_bound is None or not design.loss.polynomial:
            allowed = "proofs: multipliers prove a lower bound of a polynomial loss, and none is stated"
            raise DesignError(allowed)
        fits = _moments_claim(design, self.moments, self._needed(design, self.duals))
        if fits is not None:
            yield fits
            if not math.isfinite(fits.margin):
                return
        space = design.output_space
        if space is not None:
            claim = "the lower bound speaks of all outputs that are searched"
            yield Claim(claim, PROVED, math.nan, space.bounded_by(self.duals), ABOUT_FILE)
        claim = f"no {self.mechanism_class(stated).noun} costs less than {stated.lower_bound!r}"
        how, worst = self.bound_checked(stated), design.objective == "worst"
        inside = not worst or self.duals.within(design.input_range)
        if not inside or not self.duals.sound(outputs, worst=worst):
            yield Claim(claim, PROVED, -math.inf, False)
            return
        margin = self.proved(design, outputs) - Fraction(stated.lower_bound)
        # Errors of a prior's moments in floats enter the bound with a factor ρ.
        growth = float(min(exp_lower(min(privacy.epsilon, 700.0)), Fraction(10**300)))
        loose = _FLOATS + 1e-3 * _FLOATS * growth
        tolerance = 0.0 if how == PROVED else loose * abs(stated.lower_bound)
        yield Claim(claim, how, round_down(margin), margin >= -tolerance)


def proved_law(design: QuantizerDesign, law: Law, mechanism: Quantizer) -> Law:
    """Return a law with the exact mechanism, its loss rounded up, and their proofs."""
    value, proof = certified_value(design, mechanism)
    return replace(law, mechanism=mechanism, value=value, proofs=(proof,))


OUTERMOST = "only the two outermost outputs are used: no program was solved"


def outermost(design: QuantizerDesign, bins: Iterable[float]) -> Iterator[Law]:
    """Yield the unbiased mechanism that uses the first and the last of these outputs, if it is within ε."""
    law = outermost_law(bins, design.input_range)
    if excess_loss(law, design.privacy.epsilon) <= 0:
        mechanism = Quantizer.of_law(law)
        value, proof = certified_value(design, mechanism)
        yield Law(mechanism, value, (proof,), notes=(OUTERMOST,))


def proved_bound(
    design: QuantizerDesign, duals: DualPieces, outputs: Numbers, found: float | None = None
) -> Bound:
    """Return the lower bound that multipliers prove for mechanisms with these outputs, rounded down.

    If exact arithmetic takes longer than the design, it is the bound in floats, `found`, minus a margin for rounding.
    """
    proof = DualBound.of(design, duals)
    if found is not None and _in_floats(design, len(duals.pieces) * np.size(outputs)):
        return Bound(found - _MARGIN * abs(found), proof)
    exact = tuple(map(Fraction, np.asarray(outputs, dtype=float).tolist()))
    return Bound(round_down(proof.proved(design, exact)), proof)


Quadratic = tuple[fmpq, fmpq, fmpq, fmpq, fmpq]


def quadratics(law: ExactLaw, loss: Loss) -> Iterator[Quadratic]:
    """Yield ends u, v of every cell, and a, b, c with E ℓ = a + b t + c t² there, t = (x − u)/(v − u)."""
    unit = math.lcm(*(b.denominator for b in law.bins))
    bins, first, second = [int(b * unit) for b in law.bins], rational(loss.absolute), rational(loss.squared)
    for k, ends in enumerate(pairwise(law.knots)):
        edges = [rational(x) for x in law.inner_edges(*ends)]
        rows = [law.weights(k, side) for side in (0, 1)]

        def at(x: fmpq, rows: list[Any] = rows, start: fmpq = edges[0], end: fmpq = edges[-1]) -> fmpq:
            """Return E ℓ at x; each row's means are summed in integers, with outputs and x in units of 1/scale."""
            n, d, scale = int(x.p) * unit, int(x.q), int(x.q) * unit
            off, t, total = [abs(d * b - n) for b in bins], (x - start) / (end - start), fmpq(0)
            squares = [o * o for o in off] if second else []
            for share, (weights, common) in zip((1 - t, t), rows):
                if share:
                    total += share * first * fmpq(sum(map(mul, weights, off)), scale * common)
                    total += share * second * fmpq(sum(map(mul, weights, squares)), scale**2 * common)
            return total

        values = [at(x) for x in edges]
        for (u, v), (low, high) in zip(pairwise(edges), pairwise(values)):
            middle = at((u + v) / 2)
            yield u, v, low, 4 * middle - 3 * low - high, 2 * (low + high - 2 * middle)


def upper(coefficient: fmpq, enclosure: tuple[int, int]) -> fmpq:
    """Return the largest value of the product, in units of 2⁻¹⁶⁰."""
    return coefficient * enclosure[1 if coefficient > 0 else 0]


def expected_upper(law: ExactLaw, moments: Moments, loss: Loss) -> Fraction:
    """Return an upper bound of E ℓ(M(X) − X), exact up to the width of the prior's enclosures."""
    cells = list(quadratics(law, loss))
    edges = [cells[0][0], *(v for _, v, *_ in cells)]
    total, (sums, atoms) = fmpq(0), moments.all_parts(edges)
    for (_, _, *coefficients), parts in zip(cells, sums):
        total += sum(map(upper, coefficients, parts), fmpq(0))
    for place, weight in atoms:
        x = rational(place)
        k = min(max(bisect_right(edges, x) - 1, 0), len(cells) - 1)
        u, v, a, b, c = cells[k]
        t = (x - u) / (v - u)
        total += upper(a + b * t + c * t * t, weight)
    return fraction(total / (1 << BITS))


def worst_upper(law: ExactLaw, loss: Loss) -> Fraction:
    """Return sup over inputs of E ℓ(M(x) − x), the largest end or peak of the quadratics, exactly."""
    best = fmpq(0)
    for _, _, a, b, c in quadratics(law, loss):
        best = max(best, a, a + b + c)
        if c < 0 < b and b < -2 * c:
            best = max(best, a - b * b / (4 * c))
    return fraction(best)
