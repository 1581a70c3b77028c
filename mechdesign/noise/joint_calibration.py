r"""Calibrate several mechanisms about the same people: the least common factor on their noise at which all of it is private.

minimise    f > 0
subject to  δ(ε) ≤ δ of all mechanisms together, mechanism i answering :math:`r_i` rounds, each about a Poisson sample
            at rate :math:`q_i`, with noise of its own law at f times its scale

Pairs of laws that dominate each mechanism's neighbours compose to one that dominates all of them, however later questions are chosen
(`mechdesign.accounting.sampling`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.accounting.interval import DeltaInterval, Rounds, joint_interval, joint_upper
from mechdesign.errors import DesignError
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.exact import excess, least_kept
from mechdesign.evidence.page import Saved
from mechdesign.evidence.proofs import ABOUT_FILE, PROVED, RECOMPUTED, Certificate, Claim, LawProof
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise, stated_parameters
from mechdesign.noise.calibration_search import budget_row, enclosure_of
from mechdesign.problem import checks
from mechdesign.problem.checks import Checked, field
from mechdesign.problem.law_moments import frozen_parts
from mechdesign.problem.privacy import ApproximateDP, Consumption
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.problem.words import Description
from mechdesign.typing import Numbers, Values

_POINTS = 2**13
"""Points of the search's grid: as coarse as that of the stand-alone verifier."""


_WIDEST = 60.0
"""Largest logarithm of a factor in the search."""
_COLUMNS = ["noise", "dimension", "rounds", "sampling rate", "standard deviation"]


def _noises(name: str, value: Any) -> tuple[AdditiveNoise, ...]:
    """Read a tuple of continuous noise, all for the same neighbours."""
    found = tuple(checks.instance(name, v, AdditiveNoise) for v in checks.instance(name, value, tuple, list))
    if not found or not all(noise.continuous for noise in found):
        raise DesignError.of(
            name, value, "must be AdditiveNoise of laws with a scale: none is for whole numbers"
        )
    if len({noise.neighbours for noise in found}) > 1:
        raise DesignError.of(name, value, "must be noise for the same neighbours")
    return found


@serializable("joint-noise")
@dataclass(frozen=True)
class JointNoise(Checked, Saved):
    """Independent additive noise of several mechanisms about the same people.

    Parameters
    ----------
    noises : tuple of AdditiveNoise
        Each with its rounds and its sampling rate.
    """

    noises: tuple[AdditiveNoise, ...] = field(check=_noises)

    @property
    def rounds(self) -> list[Rounds]:
        """Return the terms that accounting composes."""
        return [(n.worst_cases.alternatives[0], n.rounds, n.sampling_rate) for n in self.noises]

    @property
    def stated(self) -> list[Any]:
        """Laws, changes and rounds, in a form that can be compared."""
        laws = [(n.law.dist.name, frozen_parts(n.law)[1:]) for n in self.noises]
        return [
            (law, n.sensitivity, n.dimension, n.rounds, n.sampling_rate) for law, n in zip(laws, self.noises)
        ]

    def times(self, factor: float) -> JointNoise:
        """Return the same noise with every scale multiplied."""
        return JointNoise(tuple(noise.times(factor) for noise in self.noises))

    def delta_interval(self, epsilon: float, **options: Any) -> DeltaInterval:
        """Enclose δ(ε) of all rounds of all mechanisms, with the options of `mechdesign.accounting.interval.joint_interval`."""
        found = joint_interval(self.rounds, epsilon, neighbours=self.noises[0].neighbours, **options)
        return found if all(n.worst_cases.exact for n in self.noises) else replace(found, lower=0.0)

    def consumption(self) -> Consumption:
        """Return the sum of what the mechanisms consume."""
        return reduce(operator.add, (noise.consumption() for noise in self.noises))

    def release(self, x: Numbers, *, term: int) -> Values:
        """Return one round's answer of one mechanism (`AdditiveNoise.release`); rounds are not counted.

        Parameters
        ----------
        x : array
        term : int
            Which mechanism answers.

        Raises
        ------
        DataError
            The mechanism's `AdditiveNoise.release` refuses `x`.
        """
        return self.noises[checks.integer("term", term, 0, len(self.noises) - 1)].release(x)


@serializable("joint-calibration")
@dataclass(frozen=True)
class JointCalibration(Design):
    """The least factor on the scales of several mechanisms whose composition meets the requirement.

    Parameters
    ----------
    terms : tuple of AdditiveNoise
        Noise of continuous laws, each with its rounds and its sampling rate; the ratios of their scales are kept.
    privacy : ApproximateDP
        With δ > 0.
    """

    central: ClassVar[bool] = True

    terms: tuple[AdditiveNoise, ...] = field(check=_noises)
    privacy: ApproximateDP = field(ApproximateDP)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.privacy.delta:
            raise DesignError.of("delta", 0.0, "must be positive: sampled rounds are composed at some delta")

    @property
    def neighbours(self) -> str:
        return self.terms[0].neighbours

    @property
    def answer_size(self) -> int:
        remedy = "must be released term by term: enter all rounds by Ledger.charge, then call mechanism.release(x, term=...)"
        raise DesignError.of("terms", len(self.terms), remedy)

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield the noise at the least factor within the budget, on a grid as coarse as the verifier's."""
        start, epsilon, delta = JointNoise(self.terms), self.privacy.epsilon, self.privacy.delta

        def over(log_factor: float) -> float:
            noise = start.times(math.exp(log_factor))
            return excess(
                joint_upper(noise.rounds, epsilon, neighbours=self.neighbours, points=_POINTS), delta
            )

        found = least_kept(over, 0.0, step=0.3, least=-_WIDEST, most=_WIDEST, xtol=1e-5, deadline=clock)
        if not abs(found) < _WIDEST:
            raise DesignError.of("delta", delta, "is kept by no factor, or by every one: state other terms")
        factor = math.exp(found)
        yield Law(start.times(factor), factor, report=SolveReport("scale search"))

    def certified(self, law: Law, clock: Clock) -> Law:
        return replace(law, proofs=(LawProof(self._consumed(law.mechanism)),))

    @np.errstate(under="ignore")
    def _consumed(self, noise: JointNoise) -> DeltaInterval:
        """Enclose δ at ε on another grid than the search's; if that exceeds the budget, by the search's own upper bound."""
        found = noise.delta_interval(self.privacy.epsilon, width=1.7e-2)
        if found.upper > self.privacy.delta:
            again = joint_upper(
                noise.rounds, self.privacy.epsilon, neighbours=self.neighbours, points=_POINTS
            )
            found = replace(found, lower=min(found.lower, again), upper=min(found.upper, again))
        return found

    law_takes = DeltaInterval

    def law_claims(self, stated: Certificate, given: DeltaInterval) -> Iterator[Claim]:
        """Recompute the budget of all rounds of all mechanisms, and check that every scale is the factor times the one asked for."""
        noise = checks.instance("law", stated.law, JointNoise)
        same = noise.stated == JointNoise(self.terms).times(stated.value).stated
        fresh = self._consumed(noise) if same else DeltaInterval(0.0, 1.0)
        margin = self.privacy.delta - fresh.upper
        yield Claim(f"{self.privacy} is kept by all mechanisms together", fresh.how, margin, margin >= 0)
        agrees, claim = given.vouched(fresh, self.privacy.delta), "the enclosure stored is that of the noise"
        yield Claim(claim, RECOMPUTED, given.upper - fresh.upper, agrees, ABOUT_FILE)
        exact = 0.0 if same else math.nan
        yield Claim(f"every scale is {stated.value:.9g} times the one asked for", PROVED, exact, same)

    def audit(self, result: Result) -> pd.DataFrame:
        spent = (enclosure_of(result) or self._consumed(result.mechanism)).upper
        return budget_row(f"δ at ε = {self.privacy.epsilon:g}", spent, self.privacy.delta)

    def frame(self, result: Result) -> pd.DataFrame:
        """Return a row for each mechanism."""
        rows = [
            (n.law.dist.name, n.dimension, n.rounds, n.sampling_rate, n.standard_deviation)
            for n in result.mechanism.noises
        ]
        return pd.DataFrame(rows, columns=_COLUMNS)

    def errors(self, result: Result, question: object = None) -> Any:
        raise DesignError.of("terms", len(self.terms), "err each by itself: ask mechanism.noises[k].errors()")

    def lines(self, result: Result) -> list[str]:
        return [
            f"{shown(n.rounds)} rounds at rate {n.sampling_rate:g}: {n.summary()}"
            for n in result.mechanism.noises
        ]

    def describe(self, result: Result) -> Description:
        said = "; ".join(
            f"{n.rounds} rounds at sampling rate {n.sampling_rate:g} ({stated_parameters(n)})"
            for n in result.mechanism.noises
        )
        return Description(
            title=f"Noise of {len(self.terms)} mechanisms together",
            what="Mechanisms answer about the same people, each with noise of its own. All scales are multiplied by one factor.",
            loss="factor on every scale",
            more=(f"The factor found is {at_most(result.value)}: {said}.",),
        )
