r"""Closed-form guarantees of flipped Huber noise for K numbers, which audit published calibrations: sufficient, not necessary.

With :math:`R(\alpha) = \alpha^2 - ([\alpha - \Delta]_+)^2` the loss in K dimensions is below an affine function of the
noise, whose upper tail is below the normal law's of scale γ: the noise is more peaked, which sums keep (sub-Gaussian
moments alone would not do). That gives a sufficient condition for (ε, δ)-DP (Theorem 8) and zero-concentrated DP
(Theorem 9) of Muthukrishnan and Kalyani, *Grafting Laplace and Gaussian distributions*, from the sensitivities Δ, Δ₁
and Δ₂ in ℓ∞, ℓ₁ and ℓ₂. A coordinate that does not change adds nothing, so K stands for how many change.
"""

from __future__ import annotations

import math

from flint import arb, ctx
from scipy import special

from mechdesign.accounting.gaussian import normal_tail
from mechdesign.errors import DesignError
from mechdesign.problem.checks import integer, non_negative
from mechdesign.problem.law_moments import frozen_parts
from mechdesign.problem.privacy import ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import FrozenLaw


class _Moved:
    r"""In balls: :math:`b = \alpha/\gamma`, :math:`K R(\alpha)/\gamma^2`, :math:`\Delta_1/\gamma` and :math:`\Delta_2/\gamma`."""

    def __init__(self, law: FrozenLaw, sensitivity: float | Sensitivity, dimension: int) -> None:
        dist, shapes, location, gamma = frozen_parts(law)
        if dist.name != "flipped_huber" or location:
            raise DesignError.of("law", dist.name, "must be flipped_huber(alpha=..., gamma=...), centred")
        known, k = Sensitivity.of(sensitivity), integer("dimension", dimension, 1)
        known.check(k)
        self.b = arb(shapes[0])
        most, self.d1, self.d2 = (
            arb(largest(k)) / arb(gamma)
            for largest in (known.largest_linf, known.largest_l1, known.largest_l2)
        )
        inside = most.min(self.b)
        self.reach = known.count(k) * inside * (2 * self.b - inside)


def _up(value: arb) -> float:
    near = float(value.upper())
    return near if value <= near else math.nextafter(near, math.inf)


def _shift(b: arb) -> arb:
    r"""Return slightly more than θ/γ, where :math:`Q(\theta/\gamma) = \sqrt{\pi/2}/\omega`: a larger value is safe."""
    if b == 0:
        return arb(0)
    root = (arb.pi() / 2).sqrt()
    share = root / (4 * root * normal_tail(b) + 4 / b * (b * b / 2).sinh())  # √(π/2)/ω
    shift, step = max(-float(special.ndtri_exp(float(share.log()))), 0.0), 1e-12
    while not normal_tail(arb(shift)) <= share:
        shift, step = shift + step, 2 * step
    return arb(shift)


def flipped_huber_sufficient(
    law: FrozenLaw, epsilon: float, sensitivity: float | Sensitivity = 1.0, dimension: int = 1
) -> float:
    r"""Return an upper bound on δ(ε) in K dimensions by Theorem 8: the audit of a published calibration.

    .. math:: Q\!\left(\tfrac{\gamma\varepsilon}{\Delta_2} - \tfrac{\Delta_2}{2\gamma} - \tfrac{KR}{2\gamma\Delta_2}\right)
        - e^\varepsilon Q\!\left(\tfrac{\gamma\varepsilon}{\Delta_2} + \tfrac{\Delta_2}{2\gamma} + \tfrac{KR}{2\gamma\Delta_2}
        + \tfrac{\theta\Delta_1}{\gamma\Delta_2}\right),\qquad \theta = \gamma Q^{-1}(\sqrt{\pi/2}/\omega).

    The exact δ of a law is `AdditiveNoise.privacy_profile`; `calibrate` seeks the law of least variance by it.

    Parameters
    ----------
    law : frozen flipped_huber
    epsilon : float
        ε ≥ 0.
    sensitivity : float or Sensitivity
        Δ of every coordinate (then Δ₂ = √K Δ, Δ₁ = K Δ); or several bounds, whose largest norms are Δ, Δ₁ and Δ₂.
    dimension : int
        K.

    Returns
    -------
    float
        δ, rounded up; 1 where the theorem does not apply (R(α) > (2γ²ε − Δ₂²)/K).

    Raises
    ------
    DesignError
        The law is not flipped Huber, or not centred.

    Examples
    --------
    Table II prints a variance of 359.57 at K = 20, ε = 1 and δ = 1e-8. Gaussian noise of that variance is α = 0:

    >>> from mechdesign.noise import flipped_huber
    >>> f"{flipped_huber_sufficient(flipped_huber(alpha=0, gamma=359.57**0.5), 1.0, dimension=20):.2g}"
    '9.3e-07'
    """
    with ctx.workprec(256):  # two numbers that nearly cancel
        moved, e = _Moved(law, sensitivity, dimension), arb(non_negative("epsilon", epsilon))
        if moved.d2 == 0:
            return 0.0
        if not moved.reach <= 2 * e - moved.d2**2:
            return 1.0
        centre, offset = e / moved.d2, (moved.d2 + moved.reach / moved.d2) / 2
        beyond = centre + offset + _shift(moved.b) * moved.d1 / moved.d2
        found = normal_tail(centre - offset) - e.exp() * normal_tail(beyond)
        return min(max(_up(found), 0.0), 1.0)


def flipped_huber_zcdp(
    law: FrozenLaw, sensitivity: float | Sensitivity = 1.0, dimension: int = 1
) -> ZeroConcentratedDP:
    r"""Return the zCDP guarantee ξ = K R(α)/2γ², ρ = Δ₂²/2γ² of flipped Huber noise (Theorem 9), rounded up.

    Parameters
    ----------
    law, sensitivity, dimension
        As of `flipped_huber_sufficient`.

    Examples
    --------
    >>> from mechdesign.noise import flipped_huber
    >>> flipped_huber_zcdp(flipped_huber(alpha=1, gamma=4), 1.0, 4).xi
    0.125
    """
    with ctx.workprec(256):
        moved = _Moved(law, sensitivity, dimension)
        return ZeroConcentratedDP(_up(moved.d2**2 / 2), _up(moved.reach / 2))


# -- quantiles ---------------------------------------------------------------------------------------------------
