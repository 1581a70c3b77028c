"""Variances of calibrated noise: what the files of the study `flipped-huber` share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize

import mechdesign as md

FARTHEST = 1e4
"""The largest α/γ tried: Theorem 8 tends to basic composition of Laplace noise as it grows."""


def variance(family: str, epsilon: float, delta: float, k: int = 1) -> float:
    """Least variance per coordinate of a family, sensitivity 1 in every coordinate."""
    privacy = md.ApproximateDP(epsilon, delta)
    return float(md.calibrate(family, privacy=privacy, sensitivity=1.0, dimension=k).value)


def sufficient_variance(epsilon: float, delta: float, k: int) -> float:
    """Least variance of flipped Huber noise by Theorem 8 of its paper."""

    def bound(law: Any) -> float:
        return md.noise.flipped_huber_sufficient(law, epsilon, 1.0, k)

    return least_flipped_huber(bound, delta, math.sqrt(k) / md.accounting.gaussian_mu(epsilon, delta))


def concentrated_variance(epsilon: float, delta: float, k: int) -> float:
    """Least variance of flipped Huber noise by its zero-concentrated privacy, Theorem 9."""

    def bound(law: Any) -> float:
        return zcdp_delta(md.noise.flipped_huber_zcdp(law, 1.0, k), epsilon)

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


def zcdp_delta(privacy: md.ZeroConcentratedDP, epsilon: float) -> float:
    r"""Return the δ that (ξ, ρ)-zCDP implies at ε, by the best Rényi order (Canonne, Kamath, Steinke 2020).

    .. math:: \delta = \inf_{a>1} \frac{e^{(a-1)(\xi + a\rho - \varepsilon)}}{a - 1}\left(1 - \frac1a\right)^a

    Parameters
    ----------
    privacy : md.ZeroConcentratedDP
    epsilon : float

    Returns
    -------
    float

    Examples
    --------
    >>> zcdp_delta(md.ZeroConcentratedDP(rho=0.01), 1.0) < 1e-10
    True
    """
    best = 1.0
    # The exponent is a convex function of log(a - 1) near its least; a geometric sweep then a local one.
    centre = max((epsilon - privacy.xi - privacy.rho) / (2 * privacy.rho), 1e-6)
    grid = centre * np.geomspace(1e-3, 1e3, 601)
    for _ in range(3):
        a = 1 + grid
        with np.errstate(over="ignore"):
            log_delta = grid * (privacy.xi + a * privacy.rho - epsilon) - np.log(grid) + a * np.log1p(-1 / a)
        i = int(np.argmin(log_delta))
        best = min(best, math.exp(min(float(log_delta[i]), 0.0)) * (1 + 1e-12))
        grid = np.linspace(grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)], 401)
    return best
