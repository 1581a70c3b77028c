"""Variances of calibrated noise: what the files of the study `flipped-huber` share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scipy import optimize

import mechdesign as md

from .flipped_huber_bounds import flipped_huber_sufficient, flipped_huber_zcdp, zcdp_delta

FARTHEST = 1e4
"""The largest α/γ tried: Theorem 8 tends to basic composition of Laplace noise as it grows."""


def variance(family: str, epsilon: float, delta: float, k: int = 1) -> float:
    """Least variance per coordinate of a family, sensitivity 1 in every coordinate."""
    privacy = md.ApproximateDP(epsilon, delta)
    return float(md.calibrate(family, privacy=privacy, sensitivity=1.0, dimension=k).value)


def sufficient_variance(epsilon: float, delta: float, k: int) -> float:
    """Least variance of flipped Huber noise by Theorem 8 of its paper."""

    def bound(law: Any) -> float:
        return flipped_huber_sufficient(law, 1.0, k, epsilon)

    return least_flipped_huber(bound, delta, math.sqrt(k) / md.accounting.gaussian_mu(epsilon, delta))


def concentrated_variance(epsilon: float, delta: float, k: int) -> float:
    """Least variance of flipped Huber noise by its zero-concentrated privacy, Theorem 9."""

    def bound(law: Any) -> float:
        return zcdp_delta(flipped_huber_zcdp(law, 1.0, k), epsilon)

    return least_flipped_huber(bound, delta, math.sqrt(k) / md.accounting.gaussian_mu(epsilon, delta))


def least_flipped_huber(bound: Callable[[Any], float], delta: float, sigma: float) -> float:
    """The least variance over the shape α/γ, each at the scale at which a closed-form bound on δ reaches `delta`."""

    def at(u: float) -> float:
        shape = math.expm1(u)
        laplace = sigma * max(1.0, shape)  # the scale of that order of variance

        def over(v: float) -> float:
            return math.log(
                max(bound(md.noise.flipped_huber(shape, scale=laplace * math.exp(v))), 1e-300) / delta
            )

        root = optimize.brentq(over, -8.0, 12.0, xtol=1e-13)
        return float(md.noise.flipped_huber(shape, scale=laplace * math.exp(root)).var())

    ends = [math.log1p(b) for b in (0.0, 0.3, 1.2, 2.4, 4.0, 8.0, 30.0, 300.0, 3000.0, FARTHEST)]
    costs = [at(u) for u in ends]
    i = min(range(len(ends)), key=costs.__getitem__)
    bounds = ends[max(i - 1, 0)], ends[min(i + 1, len(ends) - 1)]
    found = optimize.minimize_scalar(at, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return min(costs[i], float(found.fun))


def saving(ours: float, theirs: float) -> float:
    """Variance saved, in percent."""
    return round(100 * (1 - ours / theirs), 6) + 0.0
