"""How a law is measured against a privacy requirement: what it spends, from above, and what it may spend."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechdesign.accounting.composition import composed_delta
from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.accounting.interval import (
    SMALLEST_DELTA,
    GridPlan,
    delta_interval,
    is_gaussian,
    plan_grid,
    upper_delta,
)
from mechdesign.accounting.loss import frozen_parts, loss_of
from mechdesign.accounting.profile import privacy_profile, profile_epsilon, profile_interval
from mechdesign.accounting.sufficient import flipped_huber_sufficient, flipped_huber_zcdp, zcdp_delta
from mechdesign.accounting.terms import NoiseTerm
from mechdesign.errors import DesignError
from mechdesign.noise.calibration.renyi import concentrated_rho
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP

__all__ = ["Meter", "Requirement"]

Meter = Callable[[Any], float]
"""What a law spends, from above; falls as the law's scale grows."""


@dataclass(frozen=True)
class Requirement:
    """A privacy requirement on K coordinates of sensitivity Δ, as a budget that a law spends.

    Parameters
    ----------
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
    """

    sensitivity: float
    dimension: int
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

    @classmethod
    def of(
        cls,
        privacy: PureDP | ApproximateDP | ZeroConcentratedDP,
        sensitivity: float,
        dimension: int,
        accounting: str = "exact",
    ) -> Requirement:
        """Return the requirement in numbers.

        Raises
        ------
        DesignError
            δ is below what double precision certifies.
        """
        if isinstance(privacy, ZeroConcentratedDP):
            return _concentrated(privacy, sensitivity, dimension)
        delta = getattr(privacy, "delta", 0.0)
        if delta == 0:
            return _pure(privacy.epsilon, sensitivity, dimension)
        if delta < SMALLEST_DELTA:
            raise DesignError.of(
                "delta", delta, f"double precision certifies no delta below {SMALLEST_DELTA}"
            )
        return _approximate(privacy.epsilon, delta, sensitivity, dimension, accounting)


def _pure(epsilon: float, sensitivity: float, k: int) -> Requirement:
    """The largest privacy loss, K times that of one coordinate."""

    def largest(law: Any) -> float:
        return k * profile_epsilon(law, sensitivity, 0.0)

    guess = k * sensitivity / epsilon
    return Requirement(sensitivity, k, epsilon, lambda: largest, largest, largest, guess, -1.0, epsilon, 0.0)


def _approximate(epsilon: float, delta: float, sensitivity: float, k: int, accounting: str) -> Requirement:
    """δ at ε: exact, or from above by a closed form."""

    def sufficient(law: Any) -> float:
        return flipped_huber_sufficient(law, sensitivity, k, epsilon)

    def concentrated(law: Any) -> float:
        return zcdp_delta(flipped_huber_zcdp(law, sensitivity, k), epsilon)

    def exact(law: Any) -> float:
        term = NoiseTerm(law, sensitivity, k)
        if is_gaussian(law):
            return delta_interval(term, epsilon).upper
        if (
            k == 1
        ):  # in doubles, as a search has many laws to look at; the certificate proves the one that is left
            return profile_interval(law, sensitivity, epsilon)[1]
        return upper_delta(term, epsilon, width=1e-3)

    def refined(law: Any) -> float:
        term = NoiseTerm(law, sensitivity, k)
        return min(exact(law), delta_interval(term, epsilon, width=3e-3, points=2**17).upper)

    closed = {"sufficient": sufficient, "zcdp": concentrated}.get(accounting)
    # μ a hair inside the root, so that the profile's evaluation, which rounds up, stays within δ too
    sigma = math.sqrt(k) * sensitivity / gaussian_mu(epsilon, delta * (1 - 1e-10))
    return Requirement(
        sensitivity,
        k,
        delta,
        (lambda: closed) if closed else (lambda: _Planned(epsilon, sensitivity, k)),
        closed or exact,
        closed or (refined if k > 1 else exact),
        min(sigma, k * sensitivity / epsilon),
        -2.0 * max(abs(math.log(delta)), 1.0),
        epsilon,
        delta,
        # Theorem 8 is exact for the Gaussian, zCDP is not
        sigma=None if accounting == "zcdp" else sigma,
        # Theorem 8 only closes in on basic composition of Laplace noise as α/γ grows
        far=(30.0, 300.0, 3000.0, 1e4) if accounting == "sufficient" else (),
    )


def _concentrated(privacy: ZeroConcentratedDP, sensitivity: float, k: int) -> Requirement:
    """The least ρ beside ξ, from Rényi divergences of every order."""

    def rho(law: Any) -> float:
        return concentrated_rho(law, sensitivity, k, privacy.xi)

    sigma = sensitivity * math.sqrt(k / (2 * privacy.rho)) * (1 + 2e-15)
    delta = 1e-6
    epsilon = privacy.xi + privacy.rho + 2 * math.sqrt(-privacy.rho * math.log(delta))
    return Requirement(
        sensitivity, k, privacy.rho, lambda: rho, rho, rho, sigma, -2.0, epsilon, delta, sigma=sigma
    )


class _Planned:
    """Upper bound on δ at a fixed ε, cheap enough for a search.

    In one dimension the exact profile. In several, one gridded upper bound; its step, tails and tilt come from
    a full plan made once and again only when shape or scale have changed by more than some percent.
    """

    def __init__(self, epsilon: float, sensitivity: float, dimension: int) -> None:
        self._epsilon, self._sensitivity, self._dimension = epsilon, sensitivity, dimension
        self._plan: GridPlan | None = None
        self._planned_at = np.zeros(0)
        self._theta = 0.0

    def __call__(self, law: Any) -> float:
        if self._dimension == 1:
            return float(privacy_profile(law, self._sensitivity, self._epsilon))
        # a shape may change much before the plan does, unless the loss turns into an atom
        kind = np.log([float(law.std()), *(1 + s**0.25 for s in frozen_parts(law)[1])])
        if self._plan is None or np.abs(kind - self._planned_at).max() > 0.18:
            term = NoiseTerm(law, self._sensitivity, self._dimension)
            self._plan, self._planned_at = plan_grid((term,), self._epsilon, 0.01), kind
            self._theta = self._plan.theta
        losses = ((loss_of(law, self._sensitivity), self._dimension),)
        plan = GridPlan(losses, self._plan.step, self._theta, self._plan.upper_tail, self._plan.lower_tail)
        parts = plan.parts(plan.align(plan.step), pessimistic=True)
        value, tilt = composed_delta(parts, self._epsilon, guess=self._theta)
        self._theta = tilt.theta
        return value
