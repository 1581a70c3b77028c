"""How a law is measured against a privacy requirement: what it spends, from above, and what it may spend."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from mechdesign.accounting.composition import composed_delta
from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.accounting.interval import (
    SMALLEST_DELTA,
    GridPlan,
    apart,
    delta_interval,
    plan_grid,
    upper_delta,
)
from mechdesign.accounting.losses import frozen_parts, loss_of
from mechdesign.accounting.profile import fast_profile, profile_interval
from mechdesign.accounting.sufficient import flipped_huber_sufficient, flipped_huber_zcdp, zcdp_delta
from mechdesign.accounting.terms import NoiseTerm, is_gaussian
from mechdesign.errors import DesignError
from mechdesign.noise.calibration.renyi import worst_rho
from mechdesign.noise.worst_case import Terms, WorstCases, amplified, worst_cases
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers.deadline import Deadline

__all__ = ["Meter", "Query", "Requirement"]

Meter = Callable[[Any], float]
"""What a law spends, from above; falls as the law's scale grows."""


@dataclass(frozen=True)
class Query:
    """What is asked, in numbers.

    Parameters
    ----------
    sensitivity : float or Sensitivity
    dimension : int
    rounds : int
    sampling_rate : float
    """

    sensitivity: float | Sensitivity
    dimension: int
    rounds: int = 1
    sampling_rate: float = 1.0

    def worst(self, law: Any) -> WorstCases:
        """What the law must be private for, in one round."""
        return worst_cases(law, self.sensitivity, self.dimension)

    @property
    def several(self) -> Sensitivity:
        """The sensitivity as a set of bounds."""
        return Sensitivity.of(self.sensitivity)

    @property
    def top(self) -> float:
        """The most one coordinate changes."""
        return self.several.largest_linf(self.dimension)

    @property
    def norm(self) -> float:
        """Largest ℓ₂ norm, rounds included."""
        if isinstance(self.sensitivity, Sensitivity):
            return math.sqrt(self.rounds) * self.sensitivity.largest_l2(self.dimension)
        return math.sqrt(self.dimension * self.rounds) * self.sensitivity

    @property
    def plain(self) -> bool:
        """One round, not sampled."""
        return self.rounds == 1 and self.sampling_rate == 1.0

    def in_rounds(self, terms: Terms) -> Terms:
        """Terms of all rounds, which are not sampled."""
        return tuple(NoiseTerm(t.law, t.sensitivity, t.count * self.rounds) for t in terms)


@dataclass(frozen=True)
class Requirement:
    """A privacy requirement on a query, as a budget that a law spends.

    Parameters
    ----------
    query : Query
    target : float
        The budget: δ, the largest privacy loss, or ρ.
    meter : callable
        Returns a fresh meter for a search, cheap.
    final : callable
        The meter that the law returned is held to.
    refined : callable
        A meter as tight as can be had, for laws of which `final` sees too little.
    sigma : float or None
        Standard deviation of the Gaussian that spends exactly the budget, where a formula knows it.
    guess : float
        A scale to start from.
    slope : float
        Rough d log(spent)/d log(scale).
    epsilon, delta : float
        (ε, δ) of about this strength, for the closed-form starts of a family; δ = 0 under pure privacy.
    far : tuple of float
        Shapes to try beyond a family's own starts.
    tolerance : float
        Share of the budget that may be left.
    exact : bool
        Whether (ε, δ) is the requirement itself, not its likeness.
    """

    query: Query
    target: float
    meter: Callable[[], Meter]
    final: Meter
    refined: Meter
    guess: float
    slope: float
    epsilon: float
    delta: float
    sigma: float | None = None
    far: tuple[float, ...] = ()
    tolerance: float = 1e-9
    exact: bool = True

    @classmethod
    def of(
        cls,
        privacy: PureDP | ApproximateDP | ZeroConcentratedDP,
        query: Query,
        accounting: str = "exact",
        deadline: Deadline | None = None,
    ) -> Requirement:
        """Return the requirement in numbers; past the deadline its meters see less, from above as ever.

        Raises
        ------
        DesignError
            δ is below what double precision certifies.
        """
        if isinstance(privacy, ZeroConcentratedDP):
            return _concentrated(privacy, query)
        delta, deadline = getattr(privacy, "delta", 0.0), Deadline.of(deadline)
        if delta == 0:
            return _pure(privacy.epsilon, query)
        if delta < SMALLEST_DELTA:
            raise DesignError.of(
                "delta", delta, f"double precision certifies no delta below {SMALLEST_DELTA}"
            )
        if query.sampling_rate < 1:
            return _sampled(privacy.epsilon, delta, query, deadline)
        return _approximate(privacy.epsilon, delta, query, accounting, deadline)


def _pure(epsilon: float, query: Query) -> Requirement:
    """The largest privacy loss: rounds add, sampling amplifies."""

    def largest(law: Any) -> float:
        return amplified(
            query.worst(law).largest_loss(), rounds=query.rounds, sampling_rate=query.sampling_rate
        )

    guess = query.dimension * query.top * query.rounds / epsilon
    return Requirement(query, epsilon, lambda: largest, largest, largest, guess, -1.0, epsilon, 0.0)


def _approximate(
    epsilon: float, delta: float, query: Query, accounting: str, deadline: Deadline
) -> Requirement:
    """δ at ε: exact, or from above by a closed form."""
    sensitivity, k = query.top, query.dimension

    def sufficient(law: Any) -> float:
        return flipped_huber_sufficient(law, query.sensitivity, k, epsilon)

    def concentrated(law: Any) -> float:
        return zcdp_delta(flipped_huber_zcdp(law, query.sensitivity, k), epsilon)

    def one(terms: Terms) -> float:
        if is_gaussian(terms[0].law):
            return delta_interval(terms, epsilon).upper
        if (
            len(terms) == 1 and terms[0].count == 1
        ):  # in doubles: the certificate proves the one law that is left
            return profile_interval(terms[0].law, terms[0].sensitivity, epsilon)[1]
        return upper_delta(terms, epsilon, width=1e-3, deadline=deadline)

    def exact(law: Any) -> float:
        return _least(one, map(query.in_rounds, query.worst(law).alternatives), deadline, delta)

    def refined(law: Any) -> float:
        seen = exact(law)
        if deadline.passed:
            return seen
        options: dict[str, Any] = {"width": 3e-3, "points": 2**17, "deadline": deadline}
        return min(seen, query.worst(law).delta_interval(epsilon, rounds=query.rounds, **options).upper)

    closed = {"sufficient": sufficient, "zcdp": concentrated}.get(accounting)
    # μ a hair inside the root, so that the profile's evaluation, which rounds up, stays within δ too
    hair = 1e-10 * min(delta, 1 - delta) + (2e-15 if delta > 0.5 else 0.0)
    sigma = query.norm / gaussian_mu(epsilon, delta - hair)
    lone = k == 1 and query.rounds == 1
    return Requirement(
        query,
        delta,
        (lambda: closed) if closed else (lambda: _Planned(epsilon, delta, query, deadline)),
        closed or exact,
        closed or (exact if lone else refined),
        min(sigma, k * query.rounds * sensitivity / epsilon),
        -2.0 * max(abs(math.log(delta)), 1.0),
        epsilon,
        delta,
        # Theorem 8 is exact for the Gaussian, zCDP is not
        sigma=None if accounting == "zcdp" else sigma,
        tolerance=1e-9 if lone else 1e-8,  # what a grid of many coordinates is certain to
        # Theorem 8 only closes in on basic composition of Laplace noise as α/γ grows
        far=(30.0, 300.0, 3000.0, 1e4) if accounting == "sufficient" else (),
    )


def _sampled(epsilon: float, delta: float, query: Query, deadline: Deadline) -> Requirement:
    """δ at ε of Poisson-sampled rounds, whose composition is nearly Gaussian: where to start."""

    def meter(width: float) -> Meter:
        options: dict[str, Any] = {
            "rounds": query.rounds,
            "sampling_rate": query.sampling_rate,
            "width": width,
        }
        return lambda law: _least(
            lambda terms: upper_delta(terms, epsilon, deadline=deadline, **options),
            query.worst(law).alternatives,
            deadline,
            delta,
        )

    # a round of μ = Δ₂/σ sampled at rate q is worth q²(e^{μ²} − 1) of μ² (Bu, Dong, Long and Su 2020)
    mu = float(gaussian_mu(epsilon, delta))
    worth = math.log1p(mu**2 / (query.sampling_rate**2 * query.rounds))
    sigma = query.norm / math.sqrt(query.rounds * worth)
    fine = meter(5e-3)

    def final(law: Any) -> float:
        return fine(law) * (1 + 2e-4)  # room for the certificate, whose grid is another

    return Requirement(
        query,
        delta,
        lambda: meter(0.03),
        final,
        final,
        sigma,
        -2.0 * abs(math.log(delta)),
        epsilon,
        delta,
        tolerance=2e-3,
    )


def _concentrated(privacy: ZeroConcentratedDP, query: Query) -> Requirement:
    """The least ρ beside ξ, from Rényi divergences of every order."""

    def rho(law: Any) -> float:
        return query.rounds * worst_rho(law, query.sensitivity, query.dimension, privacy.xi / query.rounds)

    sigma = query.norm / math.sqrt(2 * privacy.rho) * (1 + 8e-15)
    delta = 1e-6
    epsilon = privacy.xi + privacy.rho + 2 * math.sqrt(-privacy.rho * math.log(delta))
    return Requirement(
        query, privacy.rho, lambda: rho, rho, rho, sigma, -2.0, epsilon, delta, sigma=sigma, exact=False
    )


T = TypeVar("T")


def _least(bound: Callable[[T], float], cases: Iterable[T], deadline: Deadline, target: float) -> float:
    """The least of several upper bounds; past the deadline the first that keeps to the target is enough."""
    least = math.inf
    for case in cases:
        if least <= target and deadline.passed:
            break
        least = min(least, bound(case))
    return least


class _Planned:
    """Upper bound on δ at a fixed ε, cheap enough for a search.

    Of one coordinate the exact profile. Of several, one gridded upper bound a worst case; its step, tails and tilt come
    from a full plan made once and again only when shape or scale have changed by more than some percent.
    """

    def __init__(self, epsilon: float, delta: float, query: Query, deadline: Deadline) -> None:
        self._epsilon, self._delta, self._query, self._deadline = epsilon, delta, query, deadline
        self._nothing = 1e-18 * delta  # beside δ no double sees it, and finding out more takes seconds
        self._plans: dict[int, tuple[GridPlan, np.ndarray]] = {}

    def __call__(self, law: Any) -> float:
        cases = self._query.worst(law).alternatives
        return _least(
            lambda case: self._one(case[0], self._query.in_rounds(case[1])),
            enumerate(cases),
            self._deadline,
            self._delta,
        )

    def _one(self, which: int, terms: Terms) -> float:
        law = terms[0].law
        if len(terms) == 1 and terms[0].count == 1:
            return float(fast_profile(law, terms[0].sensitivity, self._epsilon))
        if apart(terms):
            return 1.0
        # a shape may change much before the plan does, unless the loss turns into an atom
        kind = np.log([float(law.std()), *(1 + s**0.25 for s in frozen_parts(law)[1])])
        plan, at = self._plans.get(which, (None, kind))
        if plan is None or np.abs(kind - at).max() > 0.18 or len(plan.losses) != len(terms):
            plan, at = plan_grid(terms, self._epsilon, 0.01), kind
            if self._deadline.passed:
                return composed_delta(plan.coarse, self._epsilon, guess=plan.theta, enough=self._nothing)[0]
        plan = replace(plan, losses=tuple((loss_of(law, t.sensitivity), t.count) for t in terms))
        parts = plan.parts(plan.align(plan.step), pessimistic=True)
        value, tilt = composed_delta(parts, self._epsilon, guess=plan.theta, enough=self._nothing)
        self._plans[which] = replace(plan, theta=tilt.theta), at
        return value
