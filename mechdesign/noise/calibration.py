r"""Calibration: the least noise of one family (flipped Huber, Laplace, Gaussian, …) that meets a privacy requirement.

The variance (or E|T|) of the law is minimised over its shape and scale, subject to δ(ε) ≤ δ in K dimensions, each coordinate
of sensitivity Δ.

The law is found, and its consumption proved on another grid, in `mechdesign.noise.calibration_search` (`ShapeSearch`, `consumed`); δ(ε) is that of
`mechdesign.accounting.interval`. The release is `AdditiveNoise`, the lower bound `least_symmetric`; `JointCalibration` takes several mechanisms.

**The lower bound in closed form.** A change v of the answer moves the statistic :math:`\sum_i v_i T_i/\lVert v\rVert_2` by
:math:`\lVert v\rVert_2`; its variance is that of one coordinate, it is symmetric, and (ε, δ)-private as the answer is.
In units of that move, its survival function S has S(0) = ½ and :math:`S(t + 1) \ge e^{-\varepsilon}(S(t) - \delta)`; if
the law is log-concave, so is S, and between 0 and 1 it lies above the logarithmic chord. Var = ∫ 4tS(t) dt and E|T| = ∫ 2S(t) dt
over t > 0 are then bounded from below by a sum. Rounds are more coordinates. A round that is sampled at rate q is
(log(1 + (e^ε − 1)/q), δ/q)-private without sampling. Under zCDP the variance is at least
:math:`\lVert v\rVert^2/(e^{\xi + 2\rho} - 1)` by the Hammersley–Chapman–Robbins inequality; under μ-GDP the exponent is μ².

**Several mechanisms about the same people**: the least common factor on their noise at which all of it is private.

minimise    f > 0
subject to  δ(ε) ≤ δ of all mechanisms together, mechanism i answering :math:`r_i` rounds, each about a Poisson sample
            at rate :math:`q_i`, with noise of its own law at f times its scale

Pairs of laws that dominate each mechanism's neighbours compose to one that dominates all of them, however later questions are chosen
(`mechdesign.accounting.sampling`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import Any, ClassVar, get_args

import numpy as np
import pandas as pd

from mechdesign import checks
from mechdesign.accounting.interval import DeltaInterval, Rounds, joint_interval, joint_upper
from mechdesign.accounting.losses import AtomicLoss, loss_of
from mechdesign.accounting.sampling import loss_before
from mechdesign.checks import field, frozen_parts, refuse
from mechdesign.errors import DesignError, MechdesignError, SolverError
from mechdesign.evidence import proofs
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import at_least, at_most, shown
from mechdesign.evidence.exact import excess, least_kept
from mechdesign.evidence.page import Saved
from mechdesign.evidence.results import Result, SolveReport, audit_row
from mechdesign.evidence.serialize import serializable
from mechdesign.noise import calibration_search as search
from mechdesign.noise.additive import AdditiveNoise, law_name, worst_cases
from mechdesign.noise.families import FAMILIES, Family, family_of
from mechdesign.noise.laws import draw_laws
from mechdesign.problem.law_moments import STAIRCASES, law_variance
from mechdesign.problem.privacy import (
    ApproximateDP,
    CentralPrivacy,
    Consumption,
    Description,
    GaussianDP,
    MembershipAdvantage,
    PureDP,
    ZeroConcentratedDP,
    parts_of,
)
from mechdesign.problem.sensitivity import Protection, Sensitivity, sensitivity
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Figure, FrozenLaw, Numbers, Values


@serializable("calibration")
class Calibration(Design):
    r"""The least noise of one family that meets `privacy`.

    Parameters
    ----------
    noise : str or frozen scipy.stats distribution
        ``"gaussian"``, ``"laplace"``, ``"logistic"``, ``"flipped_huber"``, ``"osgt"``, ``"gennorm"``,
        ``"truncated_laplace"``, ``"staircase"``, ``"discrete_laplace"``, ``"discrete_gaussian"``; or any symmetric
        log-concave law, whose scale is chosen.
    privacy : PureDP, ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
        GaussianDP is for Gaussian noise without sampling only; a TradeOff asks for all its points at once.
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
        q: each round sees a Poisson sample of the records. Under ``neighbours="replace"`` the noise must be Gaussian and the bounds state `own`. For
        Gaussian noise, ε, δ, q and a number of steps give the noise multiplier of private stochastic gradients (`AdditiveNoise.noise_multiplier`).

    Raises
    ------
    DesignError
        The input is not valid; the family has no law at δ = 0 (the message names those that have); δ is too small to
        certify; the law has no finite variance.

    Notes
    -----
    The lower bound holds for this family where the scale alone is free: a smaller scale exceeds the budget. Where a shape is searched it holds for all
    symmetric log-concave noise, or for staircases for independent noise of one law. So a result is the best of its family, never optimal.

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
    def mechanism_class(self) -> proofs.MechanismClass:
        """The laws of the family: other noise may cost less."""
        return proofs.family(f"{law_name(self.family.member)} noise")

    def protection(self) -> Protection:
        changes = Sensitivity.of(self.sensitivity)
        return Protection(self.dimension, changes, self.rounds, self.sampling_rate, self.family.discrete)

    def _post_check(self) -> None:
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
            remedy = f"{family.name} noise needs delta > 0; these can do delta = 0: {able}"
            raise DesignError.of("delta", 0.0, remedy)

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
        checks.refuse(remedy, "sampling_rate", rate, remedy)
        # refuses what is not accounted for
        worst_cases(self.family.member, self.sensitivity, self.dimension, rate)

    @cached_property
    def requirement(self) -> search.Target:
        """The requirement in numbers."""
        return search.Target.of(self.privacy, self._answer(self.family.member))

    def _answer(self, law: FrozenLaw) -> AdditiveNoise:
        """Return noise of this law for the query."""
        return AdditiveNoise(law, self.sensitivity, self.dimension, self.rounds, self.sampling_rate)

    @property
    def family(self) -> Family:
        """The family whose shape and scale are sought."""
        return family_of(self.noise)

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield the laws of the family that closed forms and a search find, and a lower bound for every law."""
        family, requirement = self.family, replace(self.requirement, deadline=clock)
        noise = None
        for law in search.laws_of(family, requirement, self.loss, clock):
            with np.errstate(under="ignore"):  # tails underflow, even if NumPy is set to raise
                if not 0 < law_variance(law) < math.inf:  # a tiny ε has such members
                    continue
                noise = self._answer(law)
                value = search.cost_of(noise, self.loss)
                least = least_symmetric(noise, self.privacy, self.loss)
            if least:
                yield Bound(least * (1 - search.OFF), proofs.ClosedBound(0.0))
            yield Law(noise, value, report=SolveReport("family search"))
        if noise is None:
            allowed = f"no {family.name} noise of finite, positive variance was found: raise it, or choose other units where doubles do not hold it"
            raise DesignError.of("epsilon", requirement.epsilon, allowed)
        proving = clock.certify and not clock.passed and family.scale_only
        if proving and (part := search.too_small(noise, self.privacy, clock)):
            yield Bound(value * part**self._power * (1 - search.OFF), proofs.ClosedBound(part))

    @property
    def _power(self) -> int:
        return 2 if self.loss == "squared" else 1

    def certified(self, law: Law, clock: Clock) -> Law:
        """Enclose the budget that the law consumes, on a grid that no search uses.

        If no time is left for that grid, what the search itself proved stands: the law is within the budget.

        Raises
        ------
        SolverError
            It is over the budget, or two evaluations contradict each other.
        """
        noise, privacy = law.mechanism, self.privacy
        spent, allowed = search.consumed(noise, privacy, clock), search.budget_of(privacy)
        if clock.passed and self.requirement.composed and spent.how == proofs.RECOMPUTED:
            spent = replace(spent, upper=max(min(spent.upper, allowed), spent.lower))
        claims = search.evaluated(noise, privacy, stated=spent, fresh=spent)
        if failed := [claim.claim for claim in claims if not claim.holds]:
            found = f"[{spent.lower:.6g}, {spent.upper:.6g}] is consumed, {allowed:.6g} allowed"
            message = f"calibration check failed ({'; '.join(failed)}): {found}"
            raise SolverError(message, solver="calibrate", status="check")
        return replace(law, proofs=(proofs.LawProof(spent),))

    law_takes = DeltaInterval

    def law_claims(self, stated: proofs.Certificate, given: DeltaInterval) -> Iterator[proofs.Claim]:
        """Recompute the budget that all rounds of a law consume, and its cost.

        One coordinate: the exact profile (`mechdesign.accounting.profile`); Gaussian noise: that of Balle and Wang (2018);
        elsewhere the composed privacy loss, enclosed on a grid (Doroshenko et al. 2022); ρ from Rényi divergences.
        """
        noise = checks.instance("law", stated.law, AdditiveNoise)
        fits = _fits(self, noise)
        if fits:  # a law for another question is not evaluated
            consumed = partial(search.consumed, noise, self.privacy)
            fresh = search.recomputed(given, search.budget_of(self.privacy), consumed)
            yield from search.evaluated(noise, self.privacy, stated=given, fresh=fresh)
            above = stated.value / search.cost_of(noise, self.loss) - 1
            claim = f"the {self.loss} loss is {stated.value:.9g}"
            yield proofs.Claim(claim, proofs.RECOMPUTED, 1e-6 - abs(above), -1e-12 <= above <= 1e-6)
        claim = "the law is of the family and for the query asked for"
        yield proofs.Claim(claim, proofs.PROVED, math.nan, fits, proofs.ABOUT_FILE)

    bound_how = proofs.RECOMPUTED
    bound_takes = float

    def bounded_class(self, stated: proofs.Certificate, given: float) -> proofs.MechanismClass:
        """Return the class that the bound holds for: this family if a share of its scale is given, else log-concave noise, or for staircases independent noise of one law."""
        noise = checks.instance("law", stated.law, AdditiveNoise)
        if given and self.family.scale_only:
            return self.mechanism_class
        # a symmetrised law is as private and costs as much: a bound for symmetric laws holds for all
        return proofs.INDEPENDENT_NOISE if noise.law.dist.name in STAIRCASES else proofs.LOG_CONCAVE_NOISE

    def least_cost(self, stated: proofs.Certificate, given: float) -> float:
        """Return a lower bound on the cost of every symmetric law that is as private (log-concave, if the mechanism's is), or of every scale of this law.

        The first is a closed form (`least_symmetric`). The second is the cost at the share `given` of the law's scale, where the scale alone was free and that
        share provably exceeds the budget: less noise of a continuous law is less private. A share of 0 gives no such bound.
        """
        noise, share = checks.instance("law", stated.law, AdditiveNoise), checks.probability("given", given)
        if not _fits(self, noise):
            return 0.0
        least = least_symmetric(noise, self.privacy, self.loss)
        if share and self.family.scale_only and search.over_budget(noise.times(share), self.privacy):
            least = max(least, search.cost_of(noise, self.loss) * share**self._power)
        return min(least, stated.value)

    # -- what a result asks --------------------------------------------------------------------------------

    def audit(self, result: Result) -> pd.DataFrame:
        if (spent := search.enclosure_of(result)) is None:
            return super().audit(result)
        units: dict[type, str] = {
            ZeroConcentratedDP: "ρ",
            GaussianDP: "μ",
            TradeOff: "largest share of a δ",
            MembershipAdvantage: "δ at ε = 0",
        }
        unit = units.get(type(self.privacy), "ε")
        if isinstance(self.privacy, ApproximateDP) and self.privacy.delta:
            unit = f"δ at ε = {self.privacy.epsilon:g}"
        return audit_row(unit, spent.upper, search.budget_of(self.privacy))

    def frame(self, result: Result) -> pd.DataFrame:
        """Return one row: the law and its cost."""
        noise = result.mechanism
        row = {"noise": noise.law.dist.name, "dimension": noise.dimension, **noise.parameters}
        return pd.DataFrame([{**row, "variance": noise.variance, "absolute error": noise.absolute_error}])

    def lines(self, result: Result) -> list[str]:
        """Say what the law is, whether its worst change is exact, how it is released, and what it consumes."""
        noise, spent = result.mechanism, search.enclosure_of(result)
        out = [noise.summary()]
        if not noise.worst_cases.exact and not isinstance(self.privacy, PureDP):
            out.append(
                "the worst change is bounded from above: for these bounds and this law none is proved to be the worst"
            )
        out.append(release_words(noise))
        if spent is not None:
            ends = f"[{at_least(spent.lower)}, {at_most(spent.upper)}] of {shown(search.budget_of(self.privacy))}"
            out.append(f"enclosed apart from the search: {ends}")
        return out

    def describe(self, result: Result) -> Description:
        size, family = self.dimension, law_name(result.mechanism.law)
        numbers = "one number" if size == 1 else f"{size} numbers"
        return Description(
            title=f"{family[0].upper()}{family[1:]} noise for {numbers}",
            what=f"{self.protection()} Noise is added to {'it' if size == 1 else 'each of them'}.",
            loss=f"{'variance' if self.loss == 'squared' else 'mean absolute error'} of one number",
            picture="Above: the law of the noise on one number. Below: how often the noise is larger than t.",
        )

    def _rivals(self, noise: AdditiveNoise) -> dict[str, Result]:
        """Calibrate Gaussian noise and, for one number in one round, Laplace noise to the same requirement."""
        found = {}
        for name in ("gaussian", "laplace") if self.dimension == 1 and noise.once else ("gaussian",):
            if family_of(name).member.dist.name != noise.law.dist.name:
                with suppress(MechdesignError):  # this law cannot meet the requirement
                    found[name] = replace(self, noise=name).solve(certify=False)
        return found

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield the usual laws, each at its least scale."""
        return [(f"{name} noise", found.value) for name, found in self._rivals(result.mechanism).items()]

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the law and its tail, with the usual laws at the same privacy."""
        noise = result.mechanism
        others = self._rivals(noise) if noise.continuous else {}
        laws = {name: r.mechanism.law for name, r in others.items()}
        return draw_laws({"this noise": noise.law, **laws}, **options)


def release_words(noise: AdditiveNoise) -> str:
    """Describe how the law is released."""
    try:
        lattice = noise.lattice
    except DesignError as error:
        return f"not released: {error}"
    if not noise.continuous:
        return "released exactly: the numbers are whole, and so is the noise"
    return (
        f"released on multiples of {lattice.step:.6g}, wider by {lattice.cost:.2g} for the rounding to them"
    )


def _fits(design: Calibration, noise: AdditiveNoise) -> bool:
    """Return whether noise answers the query with a law of the family, which has the family's shape if only the scale is free."""
    asked = (design.sensitivity, design.dimension, design.rounds, design.sampling_rate)
    same = (noise.sensitivity, noise.dimension, noise.rounds, noise.sampling_rate) == asked
    dist, shapes, _, _ = frozen_parts(noise.law)
    family = design.family
    member, known, _, _ = frozen_parts(family.member)
    return bool(same and dist.name == member.name and (shapes == known or not family.scale_only))


def calibrate(
    noise: FrozenLaw | None = None,
    *,
    privacy: CentralPrivacy,
    sensitivity: float | Sensitivity | None = None,
    dimension: int = 1,
    loss: str = "squared",
    rounds: int = 1,
    sampling_rate: float = 1.0,
    terms: Iterable[AdditiveNoise] | None = None,
    time_limit: float | None = None,
) -> Result:
    """Return the least noise of one family that meets `privacy`: `Calibration`, solved.

    The parameters are those of `Calibration`, and `time_limit` of its `solve`: seconds after which the best shape found is returned (status
    ``"limit"``).

    Give `terms` instead of `noise` and its parameters for several mechanisms about the same people, each an `AdditiveNoise` with its
    rounds and its sampling rate. All scales are multiplied by the least factor (the value) at which the mechanisms together meet `privacy`, an
    `ApproximateDP`; the mechanism found holds them as `noises`.

    Examples
    --------
    >>> from mechdesign.problem.privacy import PureDP
    >>> noise = calibrate("laplace", privacy=PureDP(1.0), sensitivity=1.0)
    >>> round(noise.value, 6), round(noise.mechanism.epsilon(0.0), 6)
    (2.0, 1.0)

    A thousand sampled steps, and a count with ten times their noise:

    >>> from scipy import stats
    >>> steps = AdditiveNoise(stats.norm(), 1.0, rounds=1000, sampling_rate=0.01)
    >>> both = calibrate(terms=[steps, AdditiveNoise(stats.laplace(scale=10), 1.0)], privacy=ApproximateDP(2, 1e-5))
    >>> round(both.value, 2), both.certificate.verify()
    (0.97, True)
    """
    if terms is not None:
        if (noise, sensitivity, dimension, loss, rounds, sampling_rate) != (None, None, 1, "squared", 1, 1.0):
            remedy = "must be left out, with all its parameters, where terms are given"
            raise DesignError.of("noise", noise, remedy)
        return JointCalibration(terms, privacy).solve(time_limit=time_limit)  # type: ignore[arg-type]
    if noise is None or sensitivity is None:
        raise DesignError.of("sensitivity", sensitivity, "must be given with noise, or terms instead of both")
    return Calibration(noise, privacy, sensitivity, dimension, loss, rounds, sampling_rate).solve(
        time_limit=time_limit
    )


# -- the lower bound --------------------------------------------------------------------------------------------------


def least_symmetric(noise: AdditiveNoise, privacy: CentralPrivacy, loss: str) -> float:
    """Return a lower bound on the cost of every symmetric law that is as private, log-concave unless `noise` is a staircase; 0 for discrete laws.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.problem.privacy import PureDP
    >>> three = AdditiveNoise(stats.laplace(scale=3.0), 1.0, 3)
    >>> round(least_symmetric(three, PureDP(1.0), "squared"), 2), three.variance   # three coordinates: 3 · 2/ε²
    (6.0, 18.0)
    """
    if not noise.continuous:
        return 0.0
    if isinstance(privacy, TradeOff):
        return max(least_symmetric(noise, part, loss) for part in parts_of(privacy))
    top, square = _moves(noise)
    rounds, rate = noise.rounds, noise.sampling_rate
    if isinstance(privacy, ZeroConcentratedDP | GaussianDP):
        exponent = privacy.mu**2 if isinstance(privacy, GaussianDP) else privacy.xi + 2 * privacy.rho
        known = loss == "squared" and exponent < 700
        return rounds * square / math.expm1(exponent) * (1 - search.OFF) if known else 0.0
    epsilon, delta = privacy.epsilon, getattr(privacy, "delta", 0.0)
    if rate < 1:
        epsilon, delta, rounds = loss_before(epsilon, rate), delta / rate, 1
    steps = isinstance(loss_of(noise.law, top), AtomicLoss)
    least = unit_cost(epsilon * (1 + 1e-12), delta * (1 + 1e-12), loss, log_concave=not steps)
    return least * (rounds * square if loss == "squared" else top) * (1 - search.OFF)


def _moves(noise: AdditiveNoise) -> tuple[float, float]:
    """Return the largest change of one coordinate, and the largest ‖v‖₂² of an allowed change."""
    s, k = noise.sensitivity, noise.dimension
    if isinstance(s, Sensitivity) and noise.sampling_rate < 1 and s.own is not None:
        move = min(s.own, s.largest_l2(k))  # the other record may contribute nothing
        return move, move * move
    if not isinstance(s, Sensitivity):
        return s, k * s * s
    changes = s.attained(k)
    return max(v[0][0] for v in changes), max(sum(count * size * size for size, count in v) for v in changes)


def unit_cost(epsilon: float, delta: float, loss: str, *, log_concave: bool = True) -> float:
    """Return a lower bound on the variance or E|T| of every symmetric law that is (ε, δ)-private for a shift of 1.

    Examples
    --------
    >>> round(unit_cost(0.1, 0.0, "squared"), 1)   # Laplace noise: 200
    199.9
    """
    epsilon = max(epsilon, 1e-9)  # privacy at ε implies it above
    after = math.exp(-epsilon) * (0.5 - delta)  # S(1)
    if after <= 0:
        return 0.0
    reach = 60 / epsilon
    if delta > 0:
        reach = min(
            reach, (math.log(-math.expm1(-epsilon) / (2 * delta) + math.exp(-epsilon)) + epsilon) / epsilon
        )
    t = (reach + 1) * np.linspace(0.0, 1.0, 20_001) ** 2
    whole = np.floor(t)
    part = t - whole
    first = 0.5 * (2 * after) ** part if log_concave else np.where(part > 0, after, 0.5)
    fallen = np.exp(-epsilon * whole)
    spent = delta * math.exp(-epsilon) * np.expm1(-epsilon * whole) / math.expm1(-epsilon)
    kept = first * fallen
    survival = np.maximum(kept - spent - 1e-14 * (kept + spent) * (1 + whole * epsilon), 0.0)
    moment = 2 * t**2 if loss == "squared" else 2 * t
    return float(np.sum(survival[1:] * np.diff(moment))) * (1 - search.OFF)


# -- several mechanisms together --------------------------------------------------------------------------------------


_POINTS = 2**13
"""Points of the search's grid: as coarse as that of the stand-alone verifier."""
_WIDEST = 60.0
"""Largest logarithm of a factor in the search."""


def _noises(name: str, value: Any) -> tuple[AdditiveNoise, ...]:
    """Read a tuple of continuous noise, all for the same neighbours."""
    found = tuple(checks.instance(name, v, AdditiveNoise) for v in checks.instance(name, value, tuple, list))
    allowed = "must be AdditiveNoise of laws with a scale: none is for whole numbers"
    checks.refuse(not found or not all(noise.continuous for noise in found), name, value, allowed)
    refuse(len({noise.neighbours for noise in found}) > 1, name, value, "must be for the same neighbours")
    return found


@serializable("joint-noise")
class JointNoise(checks.Checked, Saved):
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
        asked = [(n.sensitivity, n.dimension, n.rounds, n.sampling_rate) for n in self.noises]
        return [*zip(laws, asked)]

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

    def _post_check(self) -> None:
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
        start, delta = JointNoise(self.terms), self.privacy.delta

        def over(log_factor: float) -> float:
            return excess(self._upper(start.times(math.exp(log_factor)), clock), delta)

        found = least_kept(over, 0.0, step=0.3, least=-_WIDEST, most=_WIDEST, xtol=1e-5, deadline=clock)
        refuse(not abs(found) < _WIDEST, "delta", delta, "is met by no factor, or by all: state other terms")
        factor = math.exp(found)
        yield Law(start.times(factor), factor, report=SolveReport("scale search"))

    def certified(self, law: Law, clock: Clock) -> Law:
        spent = self._consumed(law.mechanism, clock)
        if clock.passed:  # the search has proved that much
            spent = replace(spent, upper=max(min(spent.upper, self.privacy.delta), spent.lower))
        return replace(law, proofs=(proofs.LawProof(spent),))

    def _upper(self, noise: JointNoise, deadline: Deadline | None) -> float:
        """Bound δ at ε on the search's grid."""
        options: dict[str, Any] = {"neighbours": self.neighbours, "points": _POINTS, "deadline": deadline}
        return joint_upper(noise.rounds, self.privacy.epsilon, **options)

    @np.errstate(under="ignore")
    def _consumed(
        self, noise: JointNoise, deadline: Deadline | None = None, width: float = 0.0
    ) -> DeltaInterval:
        """Enclose δ at ε on another grid than the search's; if that exceeds the budget, take the search's upper bound."""
        found = noise.delta_interval(self.privacy.epsilon, width=max(1.7e-2, width), deadline=deadline)
        if found.upper > self.privacy.delta:
            again = self._upper(noise, deadline)
            found = replace(found, lower=min(found.lower, again), upper=min(found.upper, again))
        return found

    law_takes = DeltaInterval

    def law_claims(self, stated: proofs.Certificate, given: DeltaInterval) -> Iterator[proofs.Claim]:
        """Recompute the budget of all rounds of all mechanisms, and check that every scale is the factor times the one asked for."""
        noise = checks.instance("law", stated.law, JointNoise)
        same = noise.stated == JointNoise(self.terms).times(stated.value).stated
        consumed = partial(self._consumed, noise)
        fresh = search.recomputed(given, self.privacy.delta, consumed) if same else DeltaInterval(0.0, 1.0)
        yield from search.kept(self.privacy, given, fresh, " by all mechanisms together")
        claim, exact = f"every scale is {stated.value:.9g} times the one asked for", 0.0 if same else math.nan
        yield proofs.Claim(claim, proofs.PROVED, exact, same)

    def audit(self, result: Result) -> pd.DataFrame:
        spent = (search.enclosure_of(result) or self._consumed(result.mechanism)).upper
        return audit_row(f"δ at ε = {self.privacy.epsilon:g}", spent, self.privacy.delta)

    def frame(self, result: Result) -> pd.DataFrame:
        """Return a row for each mechanism."""
        found = [
            {"noise": n.law.dist.name, "dimension": n.dimension, "rounds": n.rounds}
            | {"sampling rate": n.sampling_rate, "standard deviation": n.standard_deviation}
            for n in result.mechanism.noises
        ]
        return pd.DataFrame(found)

    def errors(self, result: Result, question: object = None) -> Any:
        raise DesignError.of("terms", len(self.terms), "err separately: ask mechanism.noises[k].errors()")

    def lines(self, result: Result) -> list[str]:
        return [
            f"{shown(n.rounds)} rounds at rate {n.sampling_rate:g}: {n.summary()}"
            for n in result.mechanism.noises
        ]

    def describe(self, result: Result) -> Description:
        return Description(
            title=f"Noise of {len(self.terms)} mechanisms together",
            what="Mechanisms answer about the same people, each with noise of its own. All scales are multiplied by one factor.",
            loss="factor on every scale",
        )
