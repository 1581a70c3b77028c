r"""The numbers behind a calibration: what a law consumes and costs, and the search for shape and scale.

*Consumption* is enclosed by closed forms, or on grids that the search does not use.

*Scales of one law.* Less noise of a continuous law is less private: where a scale provably consumes more than the budget,
every smaller one does.

*The search* finds the scale by root finding, and the shape by one-dimensional minimisation.
A `Target` bounds what a law consumes and states the budget. For a fixed shape consumption falls as the scale grows, so
that the constraint is an equation for log scale. With the scale it determines, the cost is a smooth function of the shape, minimised
by Brent's method from the best of a few closed-form starts. Each step of the search uses one coarse upper bound; the scale
returned keeps the budget by a finer one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import starmap
from typing import Any

import numpy as np
from scipy import optimize

from mechdesign.accounting.composition import GridPlan, apart, plan_grid
from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.accounting.interval import (
    DeltaInterval,
    delta_interval,
    in_time,
    lower_delta,
    upper_delta,
    verified_delta,
)
from mechdesign.accounting.losses import NoiseTerm, in_sigmas, loss_of
from mechdesign.accounting.profile import fast_profile, integrated_profile, profile_interval
from mechdesign.accounting.sampling import loss_before
from mechdesign.checks import frozen_parts, refuse
from mechdesign.doubles import SMALLEST
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import least_kept, round_down, round_up
from mechdesign.evidence.proofs import ABOUT_FILE, PROVED, RECOMPUTED, Claim
from mechdesign.evidence.results import Result
from mechdesign.noise.additive import AdditiveNoise, Terms, WorstCases, amplified, worst_rho
from mechdesign.noise.families import Family
from mechdesign.problem.law_moments import is_gaussian, law_variance
from mechdesign.problem.privacy import (
    ApproximateDP,
    CentralPrivacy,
    GaussianDP,
    MembershipAdvantage,
    ZeroConcentratedDP,
    parts_of,
)
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, FrozenLaw

OFF = 1e-9
"""Relative error allowed to sums in doubles."""
_SHARES = (1 - 3e-9, 1 - 6e-7, 0.999, 0.99, 0.97, 0.94, 0.9, 0.8, 0.65, 0.5)
"""Shares of the scale found at which the budget may be proved exceeded, the largest first; exact accounting stops at one of the first."""
Meter = Callable[[FrozenLaw], float]
"""Upper bound of the budget that a law consumes; decreases in the law's scale."""


def budget_of(privacy: CentralPrivacy) -> float:
    """Return the budget in the requirement's measure: ρ, μ, δ at its ε, or ε under pure privacy; 1 for several points, each of which is consumed by a share."""
    if isinstance(privacy, ZeroConcentratedDP):
        return privacy.rho
    if isinstance(privacy, GaussianDP):
        return privacy.mu
    if isinstance(privacy, TradeOff):
        return 1.0
    return float(getattr(privacy, "delta", 0.0) or privacy.epsilon)


def cost_of(noise: AdditiveNoise, loss: str) -> float:
    """Return the variance, or E|T|, of one coordinate."""
    return noise.variance if loss == "squared" else noise.absolute_error


@np.errstate(under="ignore")
def consumed(
    noise: AdditiveNoise, privacy: CentralPrivacy, deadline: Deadline | None = None, *, width: float = 0.0
) -> DeltaInterval:
    """Enclose what all rounds consume, in the measure of `budget_of`: δ at ε, the largest privacy loss, ρ, μ, or the largest share of several points; `width` is enough."""
    if isinstance(privacy, TradeOff):
        each = [(consumed(noise, part, deadline, width=width), budget_of(part)) for part in parts_of(privacy)]
        how = PROVED if all(used.how == PROVED for used, _ in each) else RECOMPUTED
        lower = max(round_down(Fraction(used.lower) / Fraction(budget)) for used, budget in each)
        upper = max(
            math.inf if used.upper == math.inf else round_up(Fraction(used.upper) / Fraction(budget))
            for used, budget in each
        )
        return DeltaInterval(lower, upper, how)
    cases, rounds = noise.worst_cases, noise.in_rounds
    if isinstance(privacy, GaussianDP):
        terms = map(in_sigmas, cases.alternatives[0])
        square = noise.rounds * sum(n * h * (Fraction(v) / Fraction(s)) ** 2 for n, v, s, h in terms)
        mu = math.sqrt(round_up(square))
        return DeltaInterval(mu * (1 - 1e-15), math.nextafter(mu, math.inf), PROVED)
    if isinstance(privacy, ZeroConcentratedDP):
        rho = noise.rounds * worst_rho(
            noise.law, noise.sensitivity, noise.dimension, privacy.xi / noise.rounds
        )
        return DeltaInterval(rho * (1 - 3e-9), rho)
    if not (delta := getattr(privacy, "delta", 0.0)):
        loss = amplified(cases.largest_loss(), **rounds)
        closed = noise.sampling_rate == 1 and cases.loss_is_closed
        return DeltaInterval(loss * (1 - 1e-14), loss, PROVED if closed else RECOMPUTED)
    lone = cases.single is not None and noise.rounds == 1
    if lone or (is_gaussian(noise.law) and (noise.sampling_rate == 1 or noise.rounds == 1)):
        return cases.delta_interval(privacy.epsilon, **rounds)
    return _composed(cases, privacy.epsilon, delta, Deadline.of(deadline), width, **rounds)


def recomputed(stated: DeltaInterval, most: float, consumed: Callable[..., DeltaInterval]) -> DeltaInterval:
    """Enclose what is consumed no more narrowly than is stated, or as narrowly as ever if that does not vouch for it."""
    found = consumed(width=stated.width)
    return found if stated.vouched(found, most) else consumed()


def _composed(
    cases: WorstCases, epsilon: float, delta: float, deadline: Deadline, enough: float, **rounds: Any
) -> DeltaInterval:
    """Enclose δ of several coordinates or rounds, by the search's own grids where the upper end is over the budget."""
    sampled = rounds["sampling_rate"] < 1 and rounds["rounds"] > 1  # one round needs none of it
    width, points = (1.7e-2, 2**20) if sampled else (7.3e-3, 2**16)
    width = min(max(width, enough), 1 - OFF)
    options = {"closed_form": False, "width": width, "points": points, "deadline": deadline}
    found = cases.delta_interval(epsilon, **options, **rounds)
    if found.upper > delta:
        upper = min(found.upper, *(verified_delta(terms, epsilon, **rounds) for terms in cases.alternatives))
        found = replace(found, lower=min(found.lower, upper), upper=upper)
    return found


def kept(
    privacy: CentralPrivacy, stated: DeltaInterval, fresh: DeltaInterval, more: str = ""
) -> Iterator[Claim]:
    """Claim that the budget consumed is within the requirement, and near the enclosure that a file states."""
    yield Claim.of(f"{privacy} is kept{more}", fresh.how, budget_of(privacy) - fresh.upper)
    agrees, claim = stated.vouched(fresh, budget_of(privacy)), "the enclosure stored is that of the law"
    yield Claim(claim, RECOMPUTED, stated.upper - fresh.upper, agrees, ABOUT_FILE)


@np.errstate(under="ignore")
def evaluated(
    noise: AdditiveNoise,
    privacy: CentralPrivacy,
    *,
    stated: DeltaInterval,
    fresh: DeltaInterval,
) -> list[Claim]:
    """Return the claims about a law: its privacy, the enclosure stated, and a second evaluation where there is one."""
    claims = [*kept(privacy, stated, fresh)]
    normal = noise.dimension > 1 and is_gaussian(noise.law)
    shift = noise.worst_cases.single if noise.once and not normal else None
    if isinstance(privacy, ApproximateDP | MembershipAdvantage) and privacy.delta and shift is not None:
        second = integrated_profile(noise.law, shift, privacy.epsilon)
        # near an atom's loss δ is known only to the rounding of ε, and far out only to the rounding of log densities
        room = 1e-5 * fresh.upper + 3e-13 - abs(second - fresh.upper)
        claims.append(Claim.of("quadrature of the density agrees", RECOMPUTED, room))
    return claims


def too_small(noise: AdditiveNoise, privacy: CentralPrivacy, deadline: Deadline) -> float:
    """Return a share of the scale, as near 1 as a few evaluations show, at which the law is not private; 0 if none is found in time."""
    return next(
        (x for x in _SHARES if not deadline.passed and over_budget(noise.times(x), privacy, deadline)), 0.0
    )


@np.errstate(under="ignore")
def over_budget(noise: AdditiveNoise, privacy: CentralPrivacy, deadline: Deadline | None = None) -> bool:
    """Return whether a law provably consumes more than the budget."""
    if isinstance(privacy, TradeOff):
        return any(over_budget(noise, part, deadline) for part in parts_of(privacy))
    if not (delta := getattr(privacy, "delta", 0.0)):
        # of several bounds the largest ρ, and of some μ, are known from above alone
        known = not isinstance(privacy, ZeroConcentratedDP) or not isinstance(noise.sensitivity, Sensitivity)
        known = known and (not isinstance(privacy, GaussianDP) or noise.worst_cases.exact)
        return known and consumed(noise, privacy).lower > budget_of(privacy)
    cases = noise.worst_cases
    changes = cases.attained or (cases.alternatives[:1] if cases.exact else ())
    seen = {**noise.in_rounds, "deadline": deadline}
    return any(lower_delta(terms, privacy.epsilon, **seen) > delta for terms in changes)  # type: ignore[union-attr]


def enclosure_of(result: Result) -> DeltaInterval | None:
    """Return the enclosure of the budget that a proof holds, if any does."""
    found = (getattr(proof, "given", None) for proof in result.proofs)
    return next((given for given in found if isinstance(given, DeltaInterval)), None)


# -- the search ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A privacy requirement on noise for a query, as a budget that its law consumes.

    Parameters
    ----------
    privacy : CentralPrivacy
    asked : AdditiveNoise
        Noise of any law for the query.
    top : float
        Largest change of one coordinate.
    different : bool
        Whether some change moves numbers by different amounts.
    guess : float
        A scale to start from.
    epsilon, delta : float
        (ε, δ) of about the same strength, from which a family's closed-form starts are made; δ = 0 under pure privacy.
    sigma : float or None
        Standard deviation of the Gaussian law that consumes exactly the budget, where there is a formula.
    tolerance : float
        Share of the budget that may be left.
    exact : bool
        Whether (ε, δ) is the requirement itself, not a substitute for it.
    deadline : Deadline
        The meter is coarser the less time is left.
    """

    privacy: CentralPrivacy
    asked: AdditiveNoise
    top: float
    different: bool
    guess: float
    epsilon: float
    delta: float
    sigma: float | None = None
    tolerance: float = 1e-9
    exact: bool = True
    deadline: Deadline = field(default_factory=Deadline)

    @classmethod
    @np.errstate(under="ignore")
    def of(cls, privacy: CentralPrivacy, asked: AdditiveNoise) -> Target:
        """Return the requirement in numbers.

        Raises
        ------
        DesignError
            δ is below what double precision certifies.
        """
        rounds, rate = asked.rounds, asked.sampling_rate
        if rounds == 1 and rate < 1 and asked.neighbours != "replace":
            return cls.of(_unsampled(privacy, rate), replace(asked, sampling_rate=1.0))
        if isinstance(privacy, TradeOff):
            return _of_points(privacy, [cls.of(part, asked) for part in parts_of(privacy)])
        changes, size, losses = Sensitivity.of(asked.sensitivity), asked.dimension, asked.dimension * rounds
        once, top = changes.largest_l2(size), changes.largest_linf(size)
        made = partial(cls, privacy, asked, top, any(len(change) > 1 for change in changes.attained(size)))
        norm = math.sqrt(rounds) * once
        if isinstance(privacy, GaussianDP):
            sigma = norm / privacy.mu * (1 + 8e-15)  # above the rounding of the closed form
            return made(sigma, privacy.mu, 1e-6, sigma, exact=False)
        if isinstance(privacy, ZeroConcentratedDP):
            sigma = norm / math.sqrt(2 * privacy.rho) * (1 + 8e-15)
            epsilon = privacy.xi + privacy.rho + 2 * math.sqrt(-privacy.rho * math.log(1e-6))
            return made(sigma, epsilon, 1e-6, sigma, exact=False)
        epsilon, delta = privacy.epsilon, getattr(privacy, "delta", 0.0)
        laplace = losses * top / (epsilon or math.inf)
        if delta == 0:
            return made(laplace, epsilon, 0.0)
        refuse(delta < SMALLEST, "delta", delta, f"double precision certifies no delta below {SMALLEST}")
        if rate < 1:
            # a round of μ = Δ₂/σ sampled at rate q is worth q²(e^{μ²} − 1) of μ² (Bu, Dong, Long and Su 2020)
            worth = math.log1p(float(gaussian_mu(epsilon, delta)) ** 2 / (rate**2 * rounds))
            sure = 1e-9 if rounds == 1 else 2e-3
            return made(once / math.sqrt(worth), epsilon, delta, tolerance=sure)
        # μ slightly below the root, so that the profile's evaluation, which rounds up, stays within δ too
        slack = 1e-10 * min(delta, 1 - delta) + (2e-15 if delta > 0.5 else 0.0)
        sigma = norm / gaussian_mu(epsilon, delta - slack)
        sure = 1e-9 if losses == 1 else 1e-8  # what a grid resolves for many coordinates
        return made(min(sigma, laplace or sigma), epsilon, delta, sigma, sure)

    def noise(self, law: FrozenLaw) -> AdditiveNoise:
        """Return noise of this law for the query."""
        return replace(self.asked, law=law)

    @property
    def losses(self) -> int:
        """Number of composed losses if rounds are not sampled."""
        return self.asked.dimension * self.asked.rounds

    @property
    def target(self) -> float:
        """The budget: δ, the largest privacy loss, ρ or μ."""
        return budget_of(self.privacy)

    @property
    def composed(self) -> bool:
        """Whether δ is composed of several losses."""
        return self.delta > 0 and self.losses > 1 and self.exact

    @cached_property
    def meter(self) -> Meter:
        """A function that bounds the budget a law consumes, fast enough for a search."""
        return _meter(self.privacy, self)

    def final(self, law: FrozenLaw) -> float:
        """Return the budget that the returned law consumes, from above."""
        return used(self.noise(law), self.privacy, deadline=self.deadline)


def _unsampled(privacy: CentralPrivacy, rate: float) -> CentralPrivacy:
    """Return the requirement on a round without sampling that implies the requirement if sampled at this rate."""
    points = [(p.epsilon, getattr(p, "delta", 0.0)) for p in parts_of(privacy)]  # type: ignore[union-attr]
    less = 1 - 1e-13
    before = TradeOff(
        tuple((loss_before(e, rate) * less, d / rate * less if d < rate else 1.0) for e, d in points)
    )
    parts = parts_of(before)
    return parts[0] if len(parts) == 1 else before


def _of_points(privacy: TradeOff, parts: list[Target]) -> Target:
    """Combine the requirements of several points: a law consumes the largest share of any of them."""
    sigmas = [part.sigma for part in parts if part.sigma is not None]
    return replace(
        max(parts, key=lambda part: part.guess),
        privacy=privacy,
        sigma=max(sigmas) if len(sigmas) == len(parts) else None,
        epsilon=min(part.epsilon for part in parts),
        delta=max(part.delta for part in parts),
        tolerance=max(part.tolerance for part in parts),
    )


def used(noise: AdditiveNoise, privacy: CentralPrivacy, *, coarse: bool = False, deadline: Deadline) -> float:
    """Return an upper bound on what all rounds consume, by a coarse grid for sampled rounds or the verifier's; `consumed` adds a lower bound."""
    if isinstance(privacy, TradeOff):
        parts = parts_of(privacy)
        return max(used(noise, part, coarse=coarse, deadline=deadline) / budget_of(part) for part in parts)
    if not getattr(privacy, "delta", 0.0):
        # the verifier encloses the moments of laws without a closed form on cells, off by less than this
        closed = is_gaussian(noise.law) or noise.law.dist.name == "discrete_gaussian"
        room = 1e-6 if isinstance(privacy, ZeroConcentratedDP) and not closed else 0.0
        return consumed(noise, privacy).upper * (1 + room)
    epsilon, cases = privacy.epsilon, noise.worst_cases.alternatives  # type: ignore[union-attr]
    if noise.sampling_rate < 1:
        bound = partial(upper_delta, width=0.03, enough=0.0) if coarse else verified_delta
        return min(bound(terms, epsilon, **noise.in_rounds, deadline=deadline) for terms in cases)

    def one(terms: Terms) -> float:
        if is_gaussian(noise.law):
            return delta_interval(terms, epsilon, rounds=noise.rounds).upper
        if len(terms) == terms[0].count == noise.rounds == 1:
            # in doubles: the certificate proves the one law that is left
            return profile_interval(noise.law, terms[0].sensitivity, epsilon)[1]
        return verified_delta(terms, epsilon, rounds=noise.rounds, deadline=deadline)

    return min(map(one, cases))


def _meter(privacy: CentralPrivacy, r: Target) -> Meter:
    """Return a coarse, fast upper bound on the budget that a law consumes, for one search."""
    if isinstance(privacy, TradeOff):
        parts = [(_meter(part, r), budget_of(part)) for part in parts_of(privacy)]
        return lambda law: max(meter(law) / budget for meter, budget in parts)
    if getattr(privacy, "delta", 0.0) and r.asked.sampling_rate == 1:
        return _planned(privacy, r)
    return lambda law: used(r.noise(law), privacy, coarse=True, deadline=r.deadline)


def _planned(privacy: Any, r: Target) -> Meter:
    """Return an upper bound on δ at a fixed ε, cheap enough for a search.

    For one coordinate it is the exact profile. For several it is one upper bound on a grid for each worst case; step, tails and
    tilt come from a full plan, which is made again only where shape or scale have changed by more than a few percent.
    """
    epsilon, plans = privacy.epsilon, dict[int, tuple[GridPlan, Array]]()
    # below this no double differs from 0 next to δ, and a closer value takes seconds
    nothing = 1e-18 * privacy.delta

    def one(which: int, terms: Terms) -> float:
        law = terms[0].law
        terms = tuple(NoiseTerm(law, t.sensitivity, t.count * r.asked.rounds) for t in terms)
        if len(terms) == terms[0].count == 1:
            return fast_profile(law, terms[0].sensitivity, epsilon)
        if apart(terms):
            return 1.0
        # a shape may change much before the plan does, unless the loss turns into an atom
        kind = np.log([math.sqrt(law_variance(law)), *(1 + s**0.25 for s in frozen_parts(law)[1])])
        plan, at = plans.get(which, (None, kind))
        if plan is None or np.abs(kind - at).max() > 0.18 or len(plan.losses) != len(terms):
            plan, at = plan_grid(terms, epsilon, 0.01), kind
        plan = replace(plan, losses=tuple((loss_of(law, t.sensitivity), t.count) for t in terms))
        plans[which] = plan, at
        return in_time(plan, epsilon, plan.align(plan.step), r.deadline, pessimistic=True, enough=nothing)

    return lambda law: min(starmap(one, enumerate(r.noise(law).worst_cases.alternatives)))


def laws_of(family: Family, r: Target, loss: str, deadline: Deadline) -> Iterator[FrozenLaw]:
    """Yield laws of `family` that meet the requirement: closed forms, then what a search finds.

    Raises
    ------
    DesignError
        The family's privacy loss is unbounded and the requirement is pure.
    SolverError
        No scale meets the requirement.
    """
    pure, different = None, r.composed and r.different
    several = (different or not family.scale_only) and r.exact and r.epsilon > 0
    if family.closed_form is not None and (r.delta == 0 or several):
        pure = _pure_law(family, family.closed_form, r, loss)
        yield pure  # what is private without δ is so with it
        if r.delta == 0:
            return
    known = pure is not None
    if family.normal is not None and r.sigma is not None:
        # the Gaussian member is known in closed form, so that the family never costs more
        shape, unit = family.normal
        yield family.make(shape, unit * r.sigma, r.top)
        known = True
    if not family.scale_only or different or not known:
        try:
            law = _searched(family, r, loss, deadline)
            # grids hardly tell losses of different steps from their sum: the proof of the pure law is exact
            if pure is None or not different or law_variance(law) < law_variance(pure) * (1 - 1e-4):
                yield law
        except SolverError as error:  # no scale of a shape tried meets the requirement, or every one does
            if not known:
                raise
            deadline.failed(error, "the closed form is used")


@np.errstate(under="ignore")  # far out in a tail nothing is left, whatever NumPy was asked to raise
def _searched(family: Family, r: Target, loss: str, deadline: Deadline) -> FrozenLaw:
    """Return the best shape and scale that a search finds; half of the time is for the scale of the final shape."""

    def make(shape: float, scale: float) -> FrozenLaw:
        return family.make(shape, scale, r.top)

    search = ShapeSearch(make, r, lambda law: cost_of(AdditiveNoise(law, 1.0), loss), deadline.part(0.5))
    starts = (0.0,) if family.starts is None else family.starts(r.epsilon, r.delta, r.losses)
    shape, scale = search.best(starts)
    scale = scale_for(make, shape, r.final, r, scale, safe=True, deadline=deadline)
    # the verifier's grid splits atoms that lie on points of the search's grid: its δ is that much larger
    split = r.composed and not is_gaussian(make(shape, scale))
    return make(shape, scale * (1 + 4.5e-7 * split))


@np.errstate(under="ignore")
def _pure_law(family: Family, closed: Callable[..., FrozenLaw], r: Target, loss: str) -> FrozenLaw:
    """Return the closed form for the worst case that needs least noise: all of ℓ₁ on one coordinate, or a step on every coordinate."""
    rounds, rate = r.asked.rounds, r.asked.sampling_rate
    terms = min(
        r.noise(closed(1.0, r.top, loss)).worst_cases.alternatives,
        key=lambda terms: sum(t.sensitivity * t.count for t in terms),
    )
    epsilon = r.epsilon / rounds
    if rate < 1:
        epsilon = loss_before(epsilon, rate)
    if rate < 1 or rounds > 1:
        epsilon *= 1 - 1e-14
    if len(terms) == 1:
        return closed(epsilon / terms[0].count, terms[0].sensitivity, loss)
    total = sum(Fraction(t.sensitivity) * t.count for t in terms)
    return closed(epsilon, round_up(total), loss)


def scale_for(
    make: Callable[[float, float], FrozenLaw],
    shape: float,
    meter: Meter,
    requirement: Target,
    guess: float,
    *,
    safe: bool = False,
    deadline: Deadline,
) -> float:
    """Return the scale at which the budget is consumed, by its logarithm.

    Parameters
    ----------
    make : callable
        (shape, scale) → law, more private as the scale grows.
    shape : float
    meter : callable
    requirement : Target
    guess : float
        A starting scale.
    safe : bool
        Return a scale that was evaluated and keeps the budget.
    deadline : Deadline
        Past it the least scale known to keep the budget is returned.
    """
    tolerance = requirement.tolerance if safe else max(1e-6, requirement.tolerance)
    # a safe scale is sought in the middle of its tolerance: the verifier's grid is coarser
    room = tolerance / 2 if safe else tolerance

    def over(u: float) -> float:
        # log(consumed/target) above the target, consumed/target − 1 below: smooth, and bounded where δ falls to zero
        ratio = meter(make(shape, math.exp(u))) / requirement.target
        f = (math.log(ratio) if ratio > 1 else ratio - 1) + (room if safe else 0.0)
        return 0.0 if abs(f) < room else f  # as near as is asked for

    start, least = math.log(guess), -math.inf
    if requirement.asked.dimension == 1:
        least = min(start, math.log(requirement.top / 690))  # below, e^(-top/scale) is 0 in doubles
    ends = {"least": max(least, start - 200), "most": min(start + 200, 700.0)}
    xtol = 1e-7 * tolerance if safe else 0.01 * tolerance
    found = least_kept(over, start, step=0.03, growth=4.0, xtol=xtol, deadline=deadline, **ends)
    if found == start - 200 or found == math.inf:
        none, every = "the search found no scale of this law that meets", "every scale of this law meets"
        fault = none if found > start else every
        raise SolverError(f"{fault} the requirement", solver="calibrate", status="unbounded")
    return math.exp(found)


@dataclass
class ShapeSearch:
    """Minimises the cost over the shape; the budget then determines the scale."""

    make: Callable[[float, float], FrozenLaw]
    requirement: Target
    cost: Callable[[FrozenLaw], float]
    deadline: Deadline
    known: dict[float, tuple[float, float]] = field(default_factory=dict)
    """Cost and scale of the shapes tried."""
    spread: float = 0.0

    def best(self, starts: tuple[float, ...]) -> tuple[float, float]:
        """Try the starts in order, each from the last scale, then run Brent's method between the neighbours of the best.

        Returns
        -------
        shape, scale : float
        """
        for start in starts:
            if (
                30 * min((cost for cost, _ in self.known.values()), default=math.inf)
                < self.value(start)
                < math.inf
            ):
                break  # shapes that follow are worse still
        if not self.known:
            words = "the search found no scale of this law that meets the requirement, or every scale does"
            raise SolverError(words, solver="calibrate", status="unbounded")
        shapes = sorted(self.known)
        i = min(range(len(shapes)), key=lambda j: self.known[shapes[j]][0])
        self.spread = math.sqrt(law_variance(self.make(shapes[i], self.known[shapes[i]][1])))
        if len(shapes) > 1:
            # shapes range over decades: log(1 + shape) is the natural variable
            low, high = (math.log1p(shapes[min(max(j, 0), len(shapes) - 1)]) for j in (i - 1, i + 1))
            optimize.minimize_scalar(
                lambda u: self.value(math.expm1(u)),
                bounds=(low, high),
                method="bounded",
                options={"xatol": 2e-4 * (high - low), "maxiter": 14},
            )
        shape = min(self.known, key=lambda s: self.known[s][0])
        return shape, self.known[shape][1]

    def value(self, shape: float) -> float:
        """Return the cost of the law of this shape that consumes the budget; infinity if no scale does, or past the deadline once a shape is known."""
        shape = float(shape)
        if self.deadline.passed and self.known:
            return math.inf
        guess = self.requirement.guess
        if self.spread > 0:
            # keep the standard deviation: neighbouring shapes need nearly the same
            ratio = self.spread / float(self.make(shape, guess).std())
            guess = guess * ratio if 1e-3 < ratio < 1e3 else guess
        elif not math.isfinite(self.requirement.meter(self.make(shape, guess))):
            allowed = "has unbounded privacy loss: it needs delta > 0"
            raise DesignError.of("noise", self.make(shape, guess).dist.name, allowed)
        r = self.requirement
        try:
            scale = scale_for(self.make, shape, r.meter, r, guess, deadline=self.deadline)
        except SolverError:
            if self.deadline.passed and not self.known:
                raise
            return math.inf
        law = self.make(shape, scale)
        self.spread = math.sqrt(law_variance(law))
        self.known[shape] = self.cost(law), scale
        return self.known[shape][0]
