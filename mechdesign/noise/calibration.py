"""Calibration: the least noise of a family that meets a privacy requirement.

minimise    the variance (or E|T|) of the law, over its shape and scale
subject to  δ(ε) ≤ δ in K dimensions, each coordinate of sensitivity Δ

`mechdesign.noise.calibration_search` finds the law; what it consumes is enclosed on a different grid
(`mechdesign.noise.calibration_evaluation`), which is the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, get_args, runtime_checkable

import numpy as np
import pandas as pd

from mechdesign.accounting.interval import DeltaInterval
from mechdesign.errors import DesignError, MechdesignError, SolverError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import at_least, at_most, shown
from mechdesign.evidence.proofs import (
    ABOUT_FILE,
    INDEPENDENT_NOISE,
    LOG_CONCAVE_NOISE,
    PROVED,
    RECOMPUTED,
    Certificate,
    Claim,
    MechanismClass,
    Proof,
    family,
)
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise, law_name, stated_parameters
from mechdesign.noise.calibration_evaluation import (
    OFF,
    budget_of,
    consumed,
    cost_of,
    evaluated,
    exceeds,
    least_cost,
    too_small,
)
from mechdesign.noise.calibration_search import Query, Requirement, laws_of
from mechdesign.noise.families import FAMILIES, Family, family_of
from mechdesign.noise.pictures import draw_laws, half_width
from mechdesign.noise.worst_case import worst_cases
from mechdesign.problem import checks
from mechdesign.problem.checks import field
from mechdesign.problem.law_moments import frozen_parts, law_variance
from mechdesign.problem.privacy import (
    ApproximateDP,
    CentralPrivacy,
    GaussianDP,
    MembershipAdvantage,
    PureDP,
    ZeroConcentratedDP,
    parts_of,
)
from mechdesign.problem.sensitivity import Protection, Sensitivity, sensitivity
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.problem.words import Description
from mechdesign.typing import FrozenLaw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FITS = "the law is of the family and for the query asked for"


@serializable("calibration")
@dataclass(frozen=True)
class Calibration(Design):
    r"""The least noise of one family that meets `privacy`.

    Parameters
    ----------
    noise : str or frozen scipy.stats distribution
        ``"gaussian"``, ``"laplace"``, ``"logistic"``, ``"flipped_huber"``, ``"osgt"``, ``"gennorm"``,
        ``"truncated_laplace"``, ``"staircase"``, ``"discrete_laplace"``, ``"discrete_gaussian"``; or any symmetric
        log-concave law, of which the scale is chosen.
    privacy : PureDP, ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
        GaussianDP of Gaussian noise alone, without samples; of a TradeOff all points at once.
    sensitivity : float or Sensitivity
        Δ > 0, the most any coordinate changes between neighbours (add-remove), where all K may change at once; or several
        bounds together, ``Sensitivity(linf=1, l0=3)``, which may say ``neighbours="replace"``.
    dimension : int
        K: the same law, independent, on every coordinate.
    loss : {"squared", "absolute"}
        What is minimised per coordinate: the variance or E|T|.
    rounds : int
        How often the query is answered; `privacy` is for all answers together.
    sampling_rate : float
        q: each round sees a Poisson sample of the records, under ``neighbours="replace"`` for Gaussian noise, of bounds that state `own`. With the Gaussian, ε, δ, q and the number of steps this is
        the noise multiplier of private stochastic gradients (`AdditiveNoise.noise_multiplier`).

    Raises
    ------
    DesignError
        Bad input; δ = 0 for a family that cannot do it (the message names those that can); a δ too small to
        certify; a law without finite variance.

    Notes
    -----
    The lower bound is of this family where scale alone is free: a smaller scale is over the budget. Where a shape is searched it is of all
    symmetric log-concave noise, for staircases of independent noise of one law. So a result is the best of its family, never optimal.

    One dimension: δ(ε) is the exact profile. Gaussian: μ₀ in any dimension (`gaussian_mu`). Other families in
    several dimensions: `delta_interval`.

    Examples
    --------
    >>> result = Calibration("gaussian", ApproximateDP(0.3, 1e-6), sensitivity=1.0).solve()
    >>> round(result.value, 2), result.status_words
    (168.8, 'best of this family (any Gaussian noise), to a gap of 0.001%')

    Twenty counts of which one person changes three by one:

    >>> three = Sensitivity(linf=1, l0=3)
    >>> round(Calibration("gaussian", ApproximateDP(1, 1e-6), three, dimension=20).solve().value * 20, 2)
    1070.87
    """

    asks: ClassVar[str] = "numbers"

    noise: FrozenLaw
    privacy: CentralPrivacy = field(*get_args(CentralPrivacy))
    sensitivity: float | Sensitivity = field(check=sensitivity)
    dimension: int = field(check=checks.integer, least=1, most=10**9, default=1)
    loss: str = field(check=checks.one_of, allowed=("squared", "absolute"), default="squared")
    rounds: int = field(check=checks.integer, least=1, most=10**9, default=1)
    sampling_rate: float = field(check=checks.share, side=checks.UP, default=1.0)

    default_gap = 1e-5  # composed scales leave some 1e-6 to the grids of those who check them

    @property
    def among(self) -> MechanismClass:
        """The laws of the family: other noise may cost less."""
        return family(f"{law_name(self.family.member)} noise")

    def protection(self) -> Protection:
        changes = Sensitivity.of(self.sensitivity)
        return Protection(self.dimension, changes, self.rounds, self.sampling_rate, self.family.discrete)

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in parts_of(self.privacy):
            for name in ("rho", "mu", "epsilon"):
                if getattr(part, name, 0.0):
                    checks.magnitude(name, getattr(part, name))
        family = self.family
        Sensitivity.of(self.sensitivity).check(self.dimension)
        if not isinstance(self.sensitivity, Sensitivity) and family.discrete and self.sensitivity % 1:
            raise DesignError.of("sensitivity", self.sensitivity, "must be a whole number for discrete noise")
        self._check_sampling()
        if isinstance(self.privacy, GaussianDP) and (family.name != "gaussian" or self.sampling_rate < 1):
            remedy = 'is exact for noise="gaussian" that sees everybody: state points of its curve, TradeOff([(epsilon, delta), ...])'
            raise DesignError.of("privacy", self.privacy, remedy)
        pure = any(isinstance(p, PureDP) or getattr(p, "delta", 1.0) == 0 for p in parts_of(self.privacy))
        if pure and not family.pure:
            able = sorted(f.name for f in FAMILIES.values() if f.pure)
            raise DesignError.of(
                "delta", 0.0, f"{family.name} noise needs delta > 0; these can do delta = 0: {able}"
            )

    def _check_sampling(self) -> None:
        rate = self.sampling_rate
        if rate == 1:
            return
        delta = min(getattr(part, "delta", 0.0) for part in parts_of(self.privacy))
        seen, remedy = -math.expm1(self.rounds * math.log1p(-rate)), ""
        if rate < 1e-12:
            remedy = "must be in [1e-12, 1]; 1 samples everybody"
        elif isinstance(self.privacy, ZeroConcentratedDP):
            remedy = "is not accounted for under zCDP; ask for ApproximateDP"
        elif seen <= delta:
            remedy = f"leaves a person out of every round but with probability {seen:.3g} <= delta: this delta asks for no noise; lower it"
        if remedy:
            raise DesignError.of("sampling_rate", rate, remedy)
        worst_cases(
            self.family.member, self.sensitivity, self.dimension, rate
        )  # refuses what is not accounted for

    @cached_property
    def query(self) -> Query:
        """Sensitivity, dimension, rounds and sampling."""
        return Query(self.sensitivity, self.dimension, self.rounds, self.sampling_rate)

    @property
    def family(self) -> Family:
        """The family whose shape and scale are chosen."""
        return family_of(self.noise)

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield the laws of the family that closed forms and a search find, and what every law costs at least."""
        requirement, noise = Requirement.of(self.privacy, self.query), None
        for law in laws_of(self.family, requirement, self.loss, clock):
            if (priced := self._priced(law)) is None:
                continue
            noise, value, least = priced
            if least:
                yield Bound(least * (1 - OFF), CalibrationBound())
            yield Law(noise, value, report=SolveReport("family search"))
        if noise is None:
            allowed = f"no {self.family.name} noise of finite variance was found: raise it"
            raise DesignError.of("epsilon", requirement.epsilon, allowed)
        if (
            clock.certify
            and not clock.passed
            and self.has_scale_only
            and (part := too_small(noise, self.privacy))
        ):
            power = 2 if self.loss == "squared" else 1
            yield Bound(value * part**power * (1 - OFF), CalibrationBound(part))

    @np.errstate(under="ignore")  # far out in a tail nothing is left, whatever NumPy was asked to raise
    def _priced(self, law: FrozenLaw) -> tuple[AdditiveNoise, float, float] | None:
        """The mechanism, its cost, and what every law costs at least; None where no double holds its variance."""
        if not 0 < law_variance(law) < math.inf:  # a tiny ε has such members
            return None
        noise = self.query.noise(law)
        return noise, cost_of(noise, self.loss), least_cost(noise, self.privacy, self.loss)

    @property
    def has_scale_only(self) -> bool:
        """Whether the family is all scales of one continuous law."""
        return self.family.starts is None and not self.family.discrete

    def certified(self, law: Law, clock: Clock) -> Law:
        """Enclose what the law consumes on a grid that no search uses.

        Raises
        ------
        SolverError
            It is over the budget, or two evaluations contradict each other.
        """
        noise, privacy = law.mechanism, self.privacy
        spent = consumed(noise, privacy)
        claims = evaluated(noise, privacy, self.loss, law.value, stated=spent, fresh=spent)
        if failed := [claim.claim for claim in claims if not claim.holds]:
            found = f"[{spent.lower:.6g}, {spent.upper:.6g}] is consumed, {budget_of(privacy):.6g} allowed"
            message = f"calibration check failed ({'; '.join(failed)}): {found}"
            raise SolverError(message, solver="calibrate", status="check")
        return replace(law, proofs=(SpentProof(spent),))

    def spent_claims(self, stated: Certificate, spent: DeltaInterval) -> Iterator[Claim]:
        """What all rounds of a law consume of the budget.

        One coordinate: the exact profile (Muthukrishnan and Kalyani, Theorem 6); Gaussian noise: that of Balle and Wang (2018);
        elsewhere the composed privacy loss, enclosed on a grid (Doroshenko et al. 2022); ρ from Rényi divergences.
        """
        noise = checks.instance("law", stated.law, AdditiveNoise)
        fits = _fits(self, noise)
        if fits:  # nothing is evaluated of the law of another question
            fresh = consumed(noise, self.privacy)
            yield from evaluated(noise, self.privacy, self.loss, stated.value, stated=spent, fresh=fresh)
        yield Claim(_FITS, PROVED, math.nan, fits, ABOUT_FILE)

    # -- what a result asks --------------------------------------------------------------------------------

    def audit(self, result: Result) -> pd.DataFrame:
        if (spent := _enclosure(result)) is None:
            return super().audit(result)
        budget = budget_of(self.privacy)
        slack = budget - spent.upper
        units: dict[type, str] = {
            ZeroConcentratedDP: "ρ",
            GaussianDP: "μ",
            TradeOff: "largest share of a δ",
            MembershipAdvantage: "δ at ε = 0",
        }
        unit = units.get(type(self.privacy), "ε")
        if isinstance(self.privacy, ApproximateDP) and self.privacy.delta:
            unit = f"δ at ε = {self.privacy.epsilon:g}"
        row = ("privacy", unit, spent.upper, budget, slack, math.nan, slack <= 1e-2 * budget)
        return pd.DataFrame([row], columns=AUDIT_COLUMNS)

    def frame(self, result: Result) -> pd.DataFrame:
        """One row: the law and what it costs."""
        noise = result.mechanism
        row = {"noise": noise.law.dist.name, "dimension": noise.dimension, **noise.parameters}
        return pd.DataFrame([{**row, "variance": noise.variance, "absolute error": noise.absolute_error}])

    def lines(self, result: Result) -> list[str]:
        """The law, the requirement, how the law is released, what it consumes."""
        noise, spent = result.mechanism, _enclosure(result)
        out = [noise.summary()]
        if not noise.worst_cases.exact and not isinstance(self.privacy, PureDP):
            out.append(
                "the worst change is bounded from above: no exact one is proved for these bounds and this law"
            )
        out.append(_release_words(noise))
        if spent is not None:
            ends = f"[{at_least(spent.lower)}, {at_most(spent.upper)}] of {shown(budget_of(self.privacy))}"
            out.append(f"enclosed apart from the search: {ends}")
        return out

    def describe(self, result: Result) -> Description:
        noise, spent, size = result.mechanism, _enclosure(result), self.dimension
        family, deviation = law_name(noise.law), shown(noise.standard_deviation)
        each = "the number" if size == 1 else "a number"
        consumed = ""
        if spent is not None:
            consumed = f"consumes at most {at_most(spent.upper, 4)} of {shown(budget_of(self.privacy))}"
        numbers = "one number" if size == 1 else f"{size} numbers"
        return Description(
            title=f"{family[0].upper()}{family[1:]} noise for {numbers}",
            what=f"{self.protection()} Noise is added to {'it' if size == 1 else 'each of them'}.",
            loss=f"{'variance' if self.loss == 'squared' else 'mean absolute error'} of one number",
            more=(
                f"The {family} law found ({stated_parameters(noise)}) has standard deviation {deviation} and mean absolute error "
                f"{shown(noise.absolute_error)}; 19 times out of 20 {each} is off by at most {shown(half_width(noise.law))}"
                f"{'' if size == 1 else f', each by itself (that all {size} are is rarer)'}.",
                f"The noise is {_release_words(noise)}.",
            ),
            consumed=consumed,
            picture="Above: the law of the noise on one number. Below: how often the noise is larger than t.",
            rivals="The same requirement met by the usual laws, each at its least scale. md.compare tries every mechanism that applies.",
        )

    def _rivals(self, noise: AdditiveNoise) -> dict[str, Result]:
        """The usual laws calibrated to the same requirement; in several dimensions those that have a formula."""
        found = {}
        for name in ("gaussian", "laplace") if self.dimension == 1 and noise.once else ("gaussian",):
            if family_of(name).member.dist.name != noise.law.dist.name:
                with suppress(MechdesignError):  # this law cannot meet the requirement
                    found[name] = replace(self, noise=name).solve(certify=False)
        return found

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """The usual laws, each at its least scale."""
        return [(f"{name} noise", found.value) for name, found in self._rivals(result.mechanism).items()]

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the law and its tail, with the usual laws at the same privacy."""
        noise = result.mechanism
        others = self._rivals(noise) if noise.continuous else {}
        laws = {name: r.mechanism.law for name, r in others.items()}
        return draw_laws({"this noise": noise.law, **laws}, **options)


def _release_words(noise: AdditiveNoise) -> str:
    """How `release` answers."""
    try:
        lattice = noise.lattice
    except DesignError as error:
        return f"not released: {error}"
    if not noise.continuous:
        return "released exactly: the numbers are whole, and so is the noise"
    return (
        f"released on multiples of {lattice.step:.6g}, wider by {lattice.cost:.2g} for the rounding to them"
    )


def _enclosure(result: Result) -> DeltaInterval | None:
    """What the proof says of the budget."""
    return next((proof.spent for proof in result.proofs if isinstance(proof, SpentProof)), None)


@runtime_checkable
class Spending(Protocol):
    """A question whose law consumes a budget in all rounds, as an interval encloses it."""

    def spent_claims(self, stated: Certificate, spent: DeltaInterval) -> Iterator[Claim]:
        """Recompute that the law keeps the budget, that the interval is what it consumes, and what it costs."""


@serializable("spent-proof")
@dataclass(frozen=True, eq=False)
class SpentProof(Proof):
    """What all rounds consume of the budget lies in an interval, whose upper end keeps to it (`spent_claims` of the question).

    Parameters
    ----------
    spent : DeltaInterval
        Encloses δ at ε; the largest privacy loss under pure privacy; ρ under zCDP.
    """

    spent: DeltaInterval
    speaks_of = ("privacy", "value")

    def __post_init__(self) -> None:
        checks.instance("spent", self.spent, DeltaInterval)

    def privacy_checked(self, stated: Certificate) -> str:
        return self.spent.how

    def check(self, stated: Certificate) -> Iterator[Claim]:
        return checks.instance("question", stated.question, Spending).spent_claims(stated, self.spent)


def _parts(stated: Certificate) -> tuple[Calibration, AdditiveNoise]:
    return checks.instance("question", stated.question, Calibration), checks.instance(
        "law", stated.law, AdditiveNoise
    )


def _fits(design: Calibration, noise: AdditiveNoise) -> bool:
    """Whether noise is for the query asked for, and of the family; where scale alone is free, of its shape."""
    asked = (design.sensitivity, design.dimension, design.rounds, design.sampling_rate)
    same = (noise.sensitivity, noise.dimension, noise.rounds, noise.sampling_rate) == asked
    dist, shapes, _, _ = frozen_parts(noise.law)
    member, known, _, _ = frozen_parts(design.family.member)
    return bool(same and dist.name == member.name and (shapes == known or not design.has_scale_only))


@serializable("calibration-bound")
@dataclass(frozen=True, eq=False)
class CalibrationBound(Proof):
    """What every symmetric law costs at least that is as private (log-concave, where the mechanism's is), or every scale of this law.

    A closed form (`mechdesign.noise.calibration_evaluation`); or, as less noise of a continuous law is less private, the cost at a
    scale that is seen, from below, to consume more than the budget: a bound of this family alone.

    Parameters
    ----------
    share : float
        A share of the law's scale at which it consumes more than the budget, where scale is all that was free; 0: none.
    """

    share: float = 0.0
    speaks_of = ("lower bound",)
    not_linear = "a closed form, or from the scales of one family"
    bound_how = RECOMPUTED

    def __post_init__(self) -> None:
        checks.settle(self, share=checks.probability("share", self.share))

    def among(self, stated: Certificate) -> MechanismClass:
        design, noise = _parts(stated)
        if self.share and design.has_scale_only:
            return design.among
        # a symmetrised law is as private and costs as much, so that the bound of symmetric laws is one of all
        return INDEPENDENT_NOISE if noise.law.dist.name == "staircase" else LOG_CONCAVE_NOISE

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, noise = _parts(stated)
        if stated.lower_bound is None:
            return
        least = 0.0
        if _fits(design, noise):
            least = least_cost(noise, design.privacy, design.loss)
            if self.share and design.has_scale_only and exceeds(noise, design.privacy, self.share):
                power = 2 if design.loss == "squared" else 1
                least = max(least, cost_of(noise, design.loss) * self.share**power)
        yield self.least(stated, min(least, stated.value))
