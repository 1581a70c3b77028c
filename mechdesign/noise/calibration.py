r"""Calibration: the least noise of a family that meets a privacy requirement.

minimise    the variance (or E|T|) of the law, over its shape and scale
subject to  δ(ε) ≤ δ in K dimensions, each coordinate of sensitivity Δ

For a fixed shape δ falls as the scale grows, so the constraint is an equation for log scale; along it the cost is
a smooth function of the shape, minimised by Brent's method from the best of a few closed-form starts. The
search uses one coarse upper bound of δ per step; what is returned has been certified with a finer one, and
checked once more on a different grid.
"""

from __future__ import annotations

import math
from typing import Any

from scipy import optimize

from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.accounting.interval import (
    SMALLEST_DELTA,
    DeltaInterval,
    delta_interval,
    is_gaussian,
    upper_delta,
)
from mechdesign.accounting.profile import integrated_profile, profile_epsilon
from mechdesign.accounting.sufficient import flipped_huber_sufficient, flipped_huber_zcdp, zcdp_delta
from mechdesign.accounting.terms import NoiseTerm
from mechdesign.errors import DesignError, SolverError
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.laws.families import FAMILIES, Family
from mechdesign.noise.laws.flipped_huber import flipped_huber
from mechdesign.noise.scale_search import Evaluator, ExactDelta, cost_of, least_cost, scale_for
from mechdesign.problem.checks import whole
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP

__all__ = ["calibrate"]

_ACCOUNTING = ("exact", "sufficient", "zcdp")


def _validate(
    family: Any, privacy: Any, sensitivity: Any, dimension: Any, loss: str, accounting: str
) -> tuple[Family, float]:
    if isinstance(family, str) and family in FAMILIES:
        chosen = FAMILIES[family]
    elif hasattr(family, "dist") and hasattr(family.dist, "_logpdf"):
        chosen = _user_family(family)
    else:
        raise DesignError.of(
            "noise", family, f"must be one of {sorted(FAMILIES)} or a frozen scipy.stats law"
        )
    if not isinstance(privacy, PureDP | ApproximateDP | ZeroConcentratedDP):
        raise DesignError.of("privacy", privacy, "must be PureDP, ApproximateDP or ZeroConcentratedDP")
    try:
        value = float(sensitivity)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise DesignError.of("sensitivity", sensitivity, "must be a positive, finite number")
    if chosen.discrete and value != int(value):
        raise DesignError.of("sensitivity", sensitivity, "must be a whole number for discrete noise")
    dimension = whole("dimension", dimension, 1)
    if loss not in ("squared", "absolute"):
        raise DesignError.of("loss", loss, 'must be "squared" (variance) or "absolute"')
    if accounting not in _ACCOUNTING:
        raise DesignError.of("accounting", accounting, f"must be one of {_ACCOUNTING}")
    if accounting != "exact" and chosen.name not in ("flipped_huber", "gaussian"):
        raise DesignError.of(
            "accounting", accounting, 'only flipped Huber noise has it; use accounting="exact"'
        )
    return chosen, value


def _user_family(law: Any) -> Family:
    """Any frozen symmetric log-concave law, rescaled."""
    variance = float(law.var())
    if not (math.isfinite(variance) and variance > 0):
        raise DesignError.of("noise", law.dist.name, "must have a finite, positive variance")
    shapes, loc, _ = law.dist._parse_args(*law.args, **law.kwds)
    if loc != 0:
        raise DesignError.of("noise", law.dist.name, "must be centred: loc = 0")
    return Family(law.dist.name, lambda shape, scale, d: law.dist(*shapes, scale=scale), pure=True)


def calibrate(
    noise: Any,
    *,
    privacy: PureDP | ApproximateDP | ZeroConcentratedDP,
    sensitivity: float,
    dimension: int = 1,
    loss: str = "squared",
    accounting: str = "exact",
) -> AdditiveNoise:
    r"""Return the least noise of one family that meets `privacy`.

    Parameters
    ----------
    noise : str or frozen scipy.stats distribution
        ``"gaussian"``, ``"laplace"``, ``"logistic"``, ``"flipped_huber"``, ``"osgt"``, ``"gennorm"``,
        ``"truncated_laplace"``, ``"staircase"``, ``"discrete_laplace"``, ``"discrete_gaussian"``; or any symmetric
        log-concave law, of which the scale is chosen.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    sensitivity : float
        Δ > 0, the most any coordinate changes between neighbours; all K may change at once.
    dimension : int
        K: the same law, independent, on every coordinate.
    loss : {"squared", "absolute"}
        What is minimised per coordinate: the variance or E|T|.
    accounting : {"exact", "sufficient", "zcdp"}
        ``"sufficient"`` (Theorem 8) and ``"zcdp"`` are closed forms for flipped Huber noise, more careful than
        needed.

    Returns
    -------
    AdditiveNoise
        With `certificate`, the proved interval for δ at ε from an evaluation after and apart from the search.

    Raises
    ------
    DesignError
        Bad input; δ = 0 for a family that cannot do it (the message names those that can); a δ too small to
        certify; a law without finite variance.

    Notes
    -----
    One dimension: δ(ε) is the exact profile. Gaussian: μ₀ in any dimension (`gaussian_mu`). Other families in
    several dimensions: `delta_interval`.

    Examples
    --------
    >>> law = calibrate("gaussian", privacy=ApproximateDP(0.3, 1e-6), sensitivity=1.0)
    >>> round(law.variance, 2)
    168.8
    """
    family, value = _validate(noise, privacy, sensitivity, dimension, loss, accounting)
    k = int(dimension)
    if isinstance(privacy, ZeroConcentratedDP):
        law = _concentrated(family, privacy, value, k, loss)
        return AdditiveNoise(law, value, k, privacy, None, family.name, "zcdp")
    epsilon = privacy.epsilon
    delta = privacy.delta if isinstance(privacy, ApproximateDP) else 0.0
    if delta == 0:
        law = _pure(family, epsilon, value, k, loss)
        return AdditiveNoise(law, value, k, privacy, DeltaInterval(0.0, 0.0), family.name, "exact")
    if delta < SMALLEST_DELTA:
        raise DesignError.of("delta", delta, f"double precision certifies no delta below {SMALLEST_DELTA}")
    if family.name == "gaussian" and accounting == "exact":
        law = family.make(0.0, math.sqrt(k) * value / _normal_mu(epsilon, delta), value)
    else:
        law = _search(family, epsilon, delta, value, k, loss, accounting)
    certificate = _check(law, value, k, epsilon, delta, exact=accounting == "exact")
    return AdditiveNoise(law, value, k, privacy, certificate, family.name, accounting)


def _pure(family: Family, epsilon: float, sensitivity: float, dimension: int, loss: str) -> Any:
    """δ = 0: the largest loss, K times that of one coordinate, must be at most ε."""
    if not family.pure:
        able = sorted(f.name for f in FAMILIES.values() if f.pure)
        raise DesignError.of(
            "delta", 0.0, f"{family.name} noise needs delta > 0; these can do delta = 0: {able}"
        )
    share = epsilon / dimension
    if family.name == "staircase":
        from mechdesign.noise.laws.staircase import staircase_law

        return staircase_law(share * (1 - 1e-15), sensitivity, loss=loss)
    if family.name in ("laplace", "logistic", "discrete_laplace"):
        return family.make(0.0, sensitivity / share * (1 + 1e-15), sensitivity)

    def excess(log_scale: float) -> float:
        return profile_epsilon(family.make(0.0, math.exp(log_scale), sensitivity), sensitivity, 0.0) - share

    start = math.log(sensitivity / share)
    if not math.isfinite(excess(start)):
        raise DesignError.of(
            "delta", 0.0, f"{family.name} noise has unbounded privacy loss: it needs delta > 0"
        )
    root = optimize.brentq(excess, start - 7, start + 7, xtol=1e-13)
    while excess(root) > 0:
        root += 1e-12
    return family.make(0.0, math.exp(root), sensitivity)


def _evaluator(
    family: Family, epsilon: float, sensitivity: float, dimension: int, accounting: str
) -> Evaluator:
    if accounting == "sufficient":
        return lambda law: flipped_huber_sufficient(law, sensitivity, dimension, epsilon)
    if accounting == "zcdp":
        return lambda law: zcdp_delta(flipped_huber_zcdp(law, sensitivity, dimension), epsilon)
    return ExactDelta(epsilon, sensitivity, dimension)


def _search(
    family: Family,
    epsilon: float,
    delta: float,
    sensitivity: float,
    dimension: int,
    loss: str,
    accounting: str,
) -> Any:
    evaluate = _evaluator(family, epsilon, sensitivity, dimension, accounting)
    # the Gaussian of the same budget is never far: a start for every family's scale
    sigma = math.sqrt(dimension) * sensitivity / gaussian_mu(epsilon, min(delta, 0.9))
    if family.name == "staircase":
        sigma = dimension / epsilon
    elif family.name in ("laplace", "truncated_laplace", "discrete_laplace"):
        sigma = min(sigma, dimension * sensitivity / epsilon)

    def make(shape: float, scale: float) -> Any:
        return family.make(shape, scale, sensitivity)

    if family.starts is None:
        shape, scale = 0.0, scale_for(lambda s: make(0.0, s), evaluate, delta, sigma)[0]
    else:
        starts = family.starts(epsilon, delta, dimension)
        if accounting == "sufficient":
            # the closed form only closes in on basic composition of Laplace noise as α/γ grows
            starts = (*starts, 30.0, 300.0, 3000.0, 1e4)
        shape, scale = least_cost(make, starts, evaluate, delta, sigma, lambda law: cost_of(law, loss))
    if dimension == 1 or accounting != "exact":
        final = evaluate
    else:

        def final(law: Any) -> float:
            return upper_delta(NoiseTerm(law, sensitivity, dimension), epsilon, width=1e-3)

    found = make(shape, scale_for(lambda s: make(shape, s), final, delta * (1 - 1e-7), scale, safe=True)[0])
    if family.normal is not None and accounting != "zcdp":
        # the Gaussian member costs nothing to know exactly, so the family is never worse
        shape, unit = family.normal
        gaussian = make(shape, unit * math.sqrt(dimension) * sensitivity / _normal_mu(epsilon, delta))
        if cost_of(gaussian, loss) <= cost_of(found, loss):
            return gaussian
    return found


def _check(
    law: Any, sensitivity: float, dimension: int, epsilon: float, delta: float, *, exact: bool
) -> DeltaInterval:
    """Evaluate δ apart from the search: by quadrature of the density, or on another grid."""
    term = NoiseTerm(law, sensitivity, dimension)
    if dimension == 1:
        proved = delta_interval(term, epsilon)
        second = integrated_profile(law, sensitivity, epsilon)
        # near an atom's loss δ is only defined to the rounding of ε; 1e-15 is that rounding
        if abs(second - proved.upper) > 1e-5 * proved.upper + 1e-15:
            raise _failed(second, proved.upper, delta)
        low, upper = proved.lower, proved.upper
    else:
        other = delta_interval(term, epsilon, width=7.3e-3, closed_form=False, points=2**16)
        proved_upper = delta_interval(term, epsilon).upper if is_gaussian(law) else upper_delta(term, epsilon)
        low, upper = other.lower, min(proved_upper, other.upper)
    # A closed-form sufficient condition is its own proof; there the evaluation only must not contradict it.
    if low > delta or (exact and upper > delta):
        raise _failed(low, upper, delta)
    return DeltaInterval(min(low, upper), upper if exact else min(upper, delta))


def _normal_mu(epsilon: float, delta: float) -> float:
    """μ a hair inside the root, so that the profile's evaluation, which rounds up, stays within δ too."""
    return gaussian_mu(epsilon, delta * (1 - 1e-10))


def _failed(low: float, upper: float, delta: float) -> SolverError:
    message = f"calibration check failed: δ is in [{low:.6g}, {upper:.6g}], allowed {delta:.6g}"
    return SolverError(message, solver="calibrate", status="check")


def _concentrated(
    family: Family, privacy: ZeroConcentratedDP, sensitivity: float, dimension: int, loss: str
) -> Any:
    """Zero-concentrated DP: Gaussian and flipped Huber noise have closed forms."""
    if family.name not in ("gaussian", "flipped_huber"):
        raise DesignError.of(
            "noise", family.name, "has no zCDP calibration here; use gaussian or flipped_huber"
        )
    least = sensitivity * math.sqrt(dimension / (2 * privacy.rho))
    if family.name == "gaussian" or privacy.xi == 0:
        return family.make(0.0, least, sensitivity)

    def law(log_gamma: float) -> Any:
        # the largest α with K R(α) ≤ 2γ²ξ: R is α² up to Δ, then 2αΔ − Δ²
        gamma = math.exp(log_gamma)
        r = 2 * gamma**2 * privacy.xi / dimension
        alpha = math.sqrt(r) if r <= sensitivity**2 else (r + sensitivity**2) / (2 * sensitivity)
        return flipped_huber(alpha * (1 - 1e-14) / gamma, scale=gamma)

    start = math.log(least)
    found = optimize.minimize_scalar(
        lambda u: cost_of(law(u), loss), bounds=(start, start + 5), method="bounded"
    )
    best = min((start, float(found.x)), key=lambda u: cost_of(law(u), loss))
    return law(best + 1e-15)
