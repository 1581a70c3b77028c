r"""Exact evidence: what a rational quantizer is said to do, checked with integers and fractions alone.

A certificate holds the problem, the rational law itself and multipliers, and recomputes from them, with nothing of any solver,

- *privacy*: :math:`\max_x p(x, i) \le \rho \min_x p(x, i)` for every output, ρ a proved rational lower bound of
  :math:`e^{\varepsilon}`;
- *bias*: :math:`|\sum_i B_i p(x, i) - x| \le b` at both ends of every segment (b = 0: unbiased), rows that sum to 1 and are
  non-negative. Since p is affine between knots, the ends of the segments are all there is to check;
- *value*: the expected (or worst-case) loss of the law is at most what is stated (`exact_loss`); the masses and moments of a
  prior that is not rational are stored, and recomputed (`enclosures`);
- *lower bound*: no mechanism does better than what is stated (`dual_pieces`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from operator import mul
from typing import Any

import pandas as pd

from mechdesign.errors import DesignError, MechdesignError, MissingExtra
from mechdesign.evidence.certificate import (
    CLAIMED,
    PROVED,
    RECOMPUTED,
    Check,
    OldCertificate,
    check_table,
    fitting,
)
from mechdesign.evidence.exact import exp_lower, log_upper
from mechdesign.evidence.rounding import round_down, round_up
from mechdesign.evidence.serialize import UnavailableCallable, serializable
from mechdesign.problem.checks import instance, non_negative, number, positive, settle
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.common.dual_pieces import DualPieces, bound_words
from mechdesign.quantizers.common.enclosures import Moments, PriorMoments, StatedMoments
from mechdesign.quantizers.common.proofs import cell_edges, expected_upper, worst_upper
from mechdesign.quantizers.mechanism.exact_law import ExactLaw
from mechdesign.quantizers.mechanism.quantizer import Quantizer

__all__ = ["QuantizerCertificate"]

# What floats may have lost in a value or bound before it is stated.
_MARGIN = 5e-13
# From this ε on, ρ multiplies the rounding of the floats' bound by so much that the exact one is stated.
_WIDE = 7.0
# Entries of a law whose loss is not computed exactly before it is stated: that would take longer than the design.
_MANY = 10_000
# Agreement asked of what is computed again in floats.
_FLOATS = 1e-9
# Of bounds computed again with 60 digits: half of what they are widened by.
_APART = 2.0**-101


@serializable("quantizer-certificate")
@dataclass(frozen=True, eq=False)
class QuantizerCertificate(OldCertificate):
    """Exact proof that a rational quantizer is ε-LDP and unbiased, and of its value and a lower bound where stated.

    Parameters
    ----------
    law : ExactLaw
        The rational mechanism.
    epsilon : float
        The budget, a double taken at face value.
    max_bias : float
        The allowed bias.
    prior, loss, objective, max_mse : optional
        What is minimised: the expected loss ("mean"), or the worst-case one ("worst"), maybe under a cap.
    value, lower_bound : float, optional
        What the law achieves at most, and what every mechanism loses at least.
    duals : DualPieces, optional
        Multipliers that prove the lower bound.
    moments : PriorMoments, optional
        What was taken for the masses and moments of a prior that is not rational.

    Examples
    --------
    >>> mechanism = Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)).certified()
    >>> QuantizerCertificate(mechanism.law, 2.0).verify()
    True
    >>> QuantizerCertificate(mechanism.law, 1.0).verify()
    False
    """

    law: ExactLaw
    epsilon: float
    max_bias: float = 0.0
    prior: Prior | None = None
    loss: Loss | None = None
    objective: str = "mean"
    max_mse: float | None = None
    value: float | None = None
    lower_bound: float | None = None
    duals: DualPieces | None = None
    moments: PriorMoments | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.law, ExactLaw):
            raise DesignError.of("law", self.law, "must be an exact law, that of a certified quantizer")
        settle(
            self, epsilon=positive("epsilon", self.epsilon), max_bias=non_negative("max_bias", self.max_bias)
        )

    @classmethod
    def of(
        cls,
        design: Any,
        law: ExactLaw,
        value: float,
        lower_bound: float | None = None,
        duals: DualPieces | None = None,
    ) -> QuantizerCertificate:
        """State a design's problem, and a value and lower bound that floats computed, to the safe side of them.

        Multipliers without a bound state the one that they prove, if they prove any above 0.
        """
        parts = (getattr(design, "privacy", None), "epsilon"), (design, "prior"), (design, "loss")
        if not all(hasattr(*part) for part in parts):
            raise DesignError.of("design", design, "must be the design of a quantizer")
        if lower_bound is not None:
            lower_bound = number("lower_bound", lower_bound)
        if duals is not None:
            instance("duals", duals, DualPieces)
        value = number("value", value)
        margin = _MARGIN * abs(value)
        stated = cls(
            law,
            design.privacy.epsilon,
            getattr(design, "max_bias", 0.0),
            design.prior,
            design.loss,
            getattr(design, "objective", "mean"),
            getattr(design, "max_mse", None),
            value + margin,
            None if lower_bound is None else lower_bound - margin,
            duals,
        )
        stated = replace(stated, moments=stated._prior_moments)
        stated = replace(stated, value=stated._safe_value())
        if duals is not None and lower_bound is None:
            found = round_down(stated.proved_bound())
            if found > 0:
                return replace(stated, lower_bound=found)
            bare = replace(stated, duals=None, moments=None)
            return replace(bare, moments=bare._prior_moments)
        if duals is None or lower_bound is None or stated.epsilon < _WIDE:
            return stated
        return replace(stated, lower_bound=min(lower_bound - margin, round_down(stated.proved_bound())))

    def shown(self, value: float) -> float:
        """The value a result shows: `value`, or what is stated where floats had lost more than their usual digits."""
        value = number("value", value)
        stated = value if self.value is None else self.value
        return value if stated <= value + 2 * _MARGIN * abs(value) else stated

    def bound_below(self, value: float) -> float | None:
        """The lower bound a result shows beside its value."""
        value = number("value", value)
        return None if self.lower_bound is None else min(self.lower_bound, value)

    def _safe_value(self) -> float | None:
        """The value, raised to the exact one where cancellation or a rounding took more than the margin."""
        if self.value is None or self.loss is None or not self.loss.polynomial:
            return self.value
        if len(self.law.knots) * len(self.law.bins) > _MANY:
            return self.value
        exact = self._exactly(self.loss, self.objective)
        return self.value if exact <= self.value else round_up(exact)

    @property
    def rho(self) -> Fraction:
        """A rational lower bound of e^ε, proved by its Taylor series; e^700 is one for every larger ε."""
        return exp_lower(min(self.epsilon, 700.0))

    @property
    def ratio(self) -> Fraction:
        """The exact largest ratio of probabilities of one output over two inputs."""
        ratio = self.law.ratio()
        if ratio is None:
            raise DesignError("the privacy loss is infinite: an output is impossible for some inputs only")
        return ratio

    @property
    def epsilon_upper(self) -> float:
        """The exact privacy loss log(ratio), rounded up to a double."""
        return log_upper(self.ratio)

    @property
    def statement(self) -> Mapping[str, Any]:
        """Budget (ε, and ρ ≤ e^ε), allowed bias, inputs, outputs and cost, all rational; value and bound if stated."""
        ends = self.law.knots[0], self.law.knots[-1]
        stated: dict[str, Any] = {
            "epsilon": Fraction(self.epsilon),
            "rho": self.rho,
            "max_bias": Fraction(self.max_bias),
        }
        stated |= {"input_range": ends, "bins": self.law.bins}
        if (
            self.prior is not None or self.value is not None
        ):  # a value of no stated loss would be nobody's claim
            costs = {"prior": self.prior, "loss": self.loss, "objective": self.objective}
            stated |= {**costs, "max_mse": self.max_mse}
        if self.moments is not None:
            stated["moments"] = self.moments
        if self.duals is not None and self.duals.outputs is not None:
            stated["bound_outputs"] = tuple(map(Fraction, self.duals.outputs.tolist()))
        claims = {"value": self.value, "lower_bound": self.lower_bound}
        return {**stated, **{name: Fraction(v) for name, v in claims.items() if v is not None}}

    def checks(self) -> pd.DataFrame:
        """Claim by claim, each with its worst exact margin (as a double)."""
        return check_table([check for part in self._parts() for check in part])

    def verify(self) -> bool:
        """Whether every claim holds; ends at the first that does not."""
        try:
            with fitting():
                return all(
                    holds and margin != math.inf for part in self._parts() for *_, margin, holds in part
                )
        except MissingExtra:
            raise
        except MechdesignError:  # parts that do not fit together prove nothing
            return False

    def _parts(self) -> Iterator[Iterator[Check]]:
        yield self._law_checks()
        apart = self._apart
        if apart is not None:
            how, near = (PROVED, _APART) if self._prior.proved else (RECOMPUTED, _FLOATS)
            claim = "the prior's masses and moments are those stated"
            yield iter([(claim, how, near - apart, apart <= near)])
            if not math.isfinite(apart):  # nothing can be integrated
                return
        yield self.cost_checks()

    def cost_checks(self) -> Iterator[Check]:
        """The claims on value and lower bound, from what is stated of the prior."""
        yield from self._value_checks()
        yield from self._bound_checks()

    @cached_property
    def _prior(self) -> Moments:
        return Moments(Prior.of(self.prior))

    @cached_property
    def _prior_moments(self) -> PriorMoments | None:
        """What is to be stated of the prior: None where it is rational, or not integrated."""
        costs = self.loss is not None and self.loss.polynomial and self.objective != "worst"
        if self.value is None or self.prior is None or self._prior.rational:
            return None
        if not costs and self.max_mse is None:
            return None
        spans, origin = (set(), Fraction(0)) if self.duals is None or not costs else self.duals.spans()
        return PriorMoments.of(self._prior, cell_edges(self.law), spans, origin)

    @property
    def _apart(self) -> float | None:
        """How far the stated moments are from those computed here; None where neither are needed."""
        stated, found = self.moments, self._prior_moments
        if stated is None and found is None:
            return None
        return math.inf if stated is None or found is None else stated.apart(found)

    @property
    def _integrals(self) -> Moments | StatedMoments:
        return self._prior if self.moments is None else self.moments.on(self._prior)

    def _law_checks(self) -> Iterator[Check]:
        law = self.law
        unit = math.lcm(*(b.denominator for b in law.bins))
        bins = [int(b * unit) for b in law.bins]
        least = total = bias = Fraction(0)
        for x, weights, common in law.limits():
            # in whole numbers first: of a sound law nothing is left to divide
            over, low = sum(weights) - common, min(weights)
            scale = common * unit * x.denominator
            off = sum(map(mul, bins, weights)) * x.denominator - common * unit * x.numerator
            total = max(total, Fraction(abs(over), common)) if over else total
            least = min(least, Fraction(low, common)) if low < 0 else least
            bias = max(bias, Fraction(abs(off), scale)) if off else bias
        ordered = all(a < b for values in (law.knots, law.bins) for a, b in pairwise(values))
        slack = Fraction(self.max_bias) - bias
        yield "knots and outputs increase", PROVED, 0.0, ordered
        yield "rows sum to 1", PROVED, round_down(-total), total == 0
        yield "no probability is negative", PROVED, round_down(least), least == 0
        yield f"bias at most {self.max_bias!r}", PROVED, round_down(slack), slack >= 0
        yield self._privacy_check()

    def _privacy_check(self) -> Check:
        slack = min(self.rho * low - high for low, high in zip(*ExactLaw.extremes(self.law)))
        return f"privacy loss at most {self.epsilon!r}", PROVED, round_down(slack), slack >= 0

    def _value_checks(self) -> Iterator[Check]:
        if self.value is None or self.loss is None:
            return
        claim = f"{'worst-case' if self.objective == 'worst' else 'expected'} loss at most {self.value!r}"
        if isinstance(self.loss.function, UnavailableCallable):
            yield claim, CLAIMED, math.nan, math.isfinite(self.value)
        elif self.loss.polynomial:
            yield self._at_most(claim, self.loss, self.value, self.objective)
        else:
            mechanism = Quantizer.of_law(self.law)
            worst = self.objective == "worst"
            found = (
                mechanism.worst_case_loss(self.loss)[0]
                if worst
                else mechanism.expected_loss(self.prior, self.loss)
            )
            # of a loss that cancels, the rounding is that of its size
            apart = mechanism.bins[:, None] - mechanism.input_range
            room = _FLOATS * abs(found) + 1e-14 * float(abs(self.loss(apart)).max())
            yield claim, RECOMPUTED, self.value - found, abs(self.value - found) <= room
        if self.max_mse is not None:
            claim = f"mean squared error at most {self.max_mse!r}"
            yield self._at_most(claim, Loss(squared=1.0), self.max_mse, "mean")

    def _at_most(self, claim: str, loss: Loss, stated: float, objective: str) -> Check:
        margin, how, tolerance = Fraction(stated) - self._exactly(loss, objective), PROVED, 0.0
        if objective != "worst":
            how, tolerance = (PROVED, 0.0) if self._prior.proved else (RECOMPUTED, _FLOATS * abs(stated))
        return claim, how, round_down(margin), margin >= -tolerance

    def _exactly(self, loss: Loss, objective: str) -> Fraction:
        """The loss of the law, rounded up by the width of the prior's enclosures only."""
        if objective == "worst":
            return worst_upper(self.law, loss)
        return expected_upper(self.law, self._integrals, loss)

    @property
    def bound_how(self) -> str:
        if self.duals is None or self.loss is None or not self.loss.polynomial:
            return CLAIMED
        return PROVED if self.objective == "worst" or self._prior.proved else RECOMPUTED

    def _bound_checks(self) -> Iterator[Check]:
        if self.lower_bound is None:
            return
        among = "" if self.duals is None or self.duals.outputs is None else f" {bound_words(self.duals)}"
        claim, how = f"every mechanism{among} loses at least {self.lower_bound!r}", self.bound_how
        if how == CLAIMED or self.duals is None:
            yield claim, CLAIMED, math.nan, self.value is None or self.lower_bound <= self.value
            return
        if not self.duals.sound(self.law.bins, worst=self.objective == "worst"):
            yield claim, PROVED, -math.inf, False
            return
        margin = self.proved_bound() - Fraction(self.lower_bound)
        # The floats of a prior's moments come with a factor ρ into the bound.
        loose = _FLOATS + 1e-3 * _FLOATS * float(min(self.rho, Fraction(10**300)))
        tolerance = 0.0 if how == PROVED else loose * abs(self.lower_bound)
        yield claim, how, round_down(margin), margin >= -tolerance

    def proved_bound(self) -> Fraction:
        """The lower bound that the multipliers prove, in exact arithmetic."""
        if self.duals is None or self.loss is None:
            raise DesignError("duals: this certificate has no multipliers to prove a lower bound with")
        return self.duals.lower_bound(
            self.law.bins,
            (self.law.knots[0], self.law.knots[-1]),
            self.epsilon,
            self.loss,
            max_bias=self.max_bias,
            moments=None if self.objective == "worst" else self._integrals,
            max_mse=self.max_mse,
        )

    def summary(self) -> str:
        """One line for reports."""
        return f"certificate: exact loss {self.epsilon_upper!r} <= {self.epsilon!r}: {self.verify()}"
