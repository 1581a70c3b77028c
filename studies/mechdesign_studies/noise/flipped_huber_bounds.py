r"""Closed-form guarantees of flipped Huber noise in K dimensions: sufficient, not necessary.

With :math:`R(\alpha) = \alpha^2 - ([\alpha - \Delta]_+)^2` the loss in K dimensions is below an affine function of
the noise, whose upper tail is below the normal law's of scale γ: the noise is more peaked, which sums keep (sub-Gaussian moments alone
would not do). That gives a sufficient condition for (ε, δ)-DP (Theorem 8) and
zero-concentrated DP (Theorem 9) of Muthukrishnan and Kalyani, from the sensitivities Δ, Δ₁ and Δ₂ in ℓ∞, ℓ₁ and ℓ₂.
A coordinate that does not change adds nothing, so K stands for how many change.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

import mechdesign as md


def _parameters(
    law: Any, sensitivity: float | md.Sensitivity, dimension: int
) -> tuple[float, float, float, int, float, float]:
    """α/γ, γ, R(α), how many coordinates change, Δ₂ and Δ₁."""
    b, gamma = law.args[0], law.kwds["scale"]
    known = sensitivity if isinstance(sensitivity, md.Sensitivity) else md.Sensitivity(linf=sensitivity)
    top, d2, d1 = (largest(dimension) for largest in (known.largest_linf, known.largest_l2, known.largest_l1))
    alpha = b * gamma
    r = min(top, alpha) * (2 * alpha - min(top, alpha))
    return b, gamma, r, known.count(dimension), d2, d1


def flipped_huber_sufficient(
    law: Any, sensitivity: float | md.Sensitivity, dimension: int, epsilon: float
) -> float:
    r"""Return an upper bound on δ(ε) in K dimensions by Theorem 8.

    .. math:: Q\!\left(\tfrac{\gamma\varepsilon}{\Delta_2} - \tfrac{\Delta_2}{2\gamma} - \tfrac{KR}{2\gamma\Delta_2}\right)
        - e^\varepsilon Q\!\left(\tfrac{\gamma\varepsilon}{\Delta_2} + \tfrac{\Delta_2}{2\gamma} + \tfrac{KR}{2\gamma\Delta_2}
        + \tfrac{\theta\Delta_1}{\gamma\Delta_2}\right),\qquad \theta = \gamma Q^{-1}(\sqrt{\pi/2}/\omega).

    Parameters
    ----------
    law : frozen flipped_huber
    sensitivity : float or Sensitivity
        Δ of every coordinate (then Δ₂ = √K Δ, Δ₁ = K Δ); or several bounds, whose largest norms are Δ, Δ₁ and Δ₂.
    dimension : int
        K.
    epsilon : float
        ε ≥ 0.

    Returns
    -------
    float
        δ; 1 where the theorem does not apply (R(α) > (2γ²ε − Δ₂²)/K).

    Examples
    --------
    >>> round(flipped_huber_sufficient(md.noise.flipped_huber(0.0, scale=168.802**0.5), 1.0, 1, 0.3) * 1e6, 3)
    1.0

    A change of ℓ₂ norm at most 1 and ℓ₁ norm at most 2, no coordinate by more than 1:

    >>> law, known = md.noise.flipped_huber(0.125, scale=8.0), md.Sensitivity(linf=1, l1=2, l2=1)
    >>> flipped_huber_sufficient(law, known, 9, 1.0) < flipped_huber_sufficient(law, 1.0, 9, 1.0)
    True
    """
    b, gamma, r, count, d2, d1 = _parameters(law, sensitivity, dimension)
    if r > (2 * gamma**2 * epsilon - d2**2) / count:
        return 1.0
    # √(π/2)/ω: half of what the density at zero would be to a Gaussian with the same tails
    log_peak = float(law.logpdf(0.0)) + math.log(gamma)
    share = 0.5 * math.exp(0.5 * math.log(2 * math.pi) - b * b / 2 + log_peak)
    theta = gamma * -float(special.ndtri(min(share, 0.5))) if share > 0 else math.inf
    centre = gamma * epsilon / d2
    offset = d2 / (2 * gamma) + count * r / (2 * gamma * d2)
    first = float(special.log_ndtr(-(centre - offset)))
    second = epsilon + float(special.log_ndtr(-(centre + offset + theta * d1 / (gamma * d2))))
    gap = -math.expm1(min(second - first, 0.0))
    return min(math.exp(first) * gap, 1.0)


def flipped_huber_zcdp(
    law: Any, sensitivity: float | md.Sensitivity, dimension: int
) -> md.ZeroConcentratedDP:
    r"""Return the zCDP guarantee ξ = K R(α)/2γ², ρ = Δ₂²/2γ² of flipped Huber noise.

    Examples
    --------
    >>> round(flipped_huber_zcdp(md.noise.flipped_huber(0.0, scale=2.0), 1.0, 4).rho, 9)
    0.5
    """
    _, gamma, r, count, d2, _ = _parameters(law, sensitivity, dimension)
    return md.ZeroConcentratedDP(rho=d2**2 / (2 * gamma**2), xi=count * r / (2 * gamma**2))


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
