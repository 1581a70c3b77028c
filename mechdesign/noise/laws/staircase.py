r"""Staircase noise: the least of every ε-DP additive noise for one number; of several `mechdesign.noise.radial` has it.

The density is constant on shells and falls by :math:`e^{-\varepsilon}` from one to the next:

.. math:: f(t) \propto e^{-k\varepsilon} \text{ for } |t|/\Delta \in [k, k+\gamma), \qquad
          e^{-(k+1)\varepsilon} \text{ for } |t|/\Delta \in [k+\gamma, k+1).

Source: Geng and Viswanath, *The optimal noise-adding mechanism in differential privacy* (2016).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from flint import arb
from scipy import special

from mechdesign.accounting.losses import AtomicLoss, PreciseLoss
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import register_law
from mechdesign.noise.laws.symmetric import SymmetricLaw
from mechdesign.problem.checks import DOWN, UP, one_of, positive
from mechdesign.typing import FrozenLaw, Values


def staircase_gamma(epsilon: float, loss: str = "absolute") -> float:
    r"""Return the step fraction γ that minimises the ℓ₁ or the squared error at ε.

    ``"absolute"``: :math:`1/(1 + e^{\varepsilon/2})`, with error :math:`\Delta e^{\varepsilon/2}/(e^\varepsilon - 1)`.
    ``"squared"``: where :math:`\gamma(1 - b) + b = (b(1 + b)/2)^{1/3}`, :math:`b = e^{-\varepsilon}` (Geng and Viswanath, Theorem 8).

    Examples
    --------
    >>> round(staircase_gamma(1.0), 4), round(staircase_gamma(1.0, "squared"), 4)
    (0.3775, 0.4167)
    """
    epsilon = positive("epsilon", epsilon, side=DOWN)
    if one_of("loss", loss, ("absolute", "squared")) == "absolute":
        return float(special.expit(-epsilon / 2))
    b = math.exp(-epsilon)
    return float(min(max(((b * (1 + b) / 2) ** (1 / 3) - b) / -math.expm1(-epsilon), 0.0), 0.5))


def _mass(epsilon: Values, gamma: Values) -> Values:
    """Half the mass when the first level is 1."""
    b = np.exp(-epsilon)
    return (gamma + b * (1 - gamma)) / -np.expm1(-epsilon)


def _scaled_moment(p: int, epsilon: Values, gamma: Values) -> Values:
    r"""ε^{p+1}/p! times ∫_0^∞ t^p (levels 1, b, b², …) dt, b = e^{-ε}: of order one whatever p.

    Shell k has level b^k on [k, k + γ) and b^{k+1} on [k + γ, k + 1); expanding (k + γ)^{p+1} leaves sums Σ k^j b^k,
    here times ε^{j+1}/j!, which obey the Eulerian recursion Σ k^j b^k = b/(1-b) Σ_{i<j} C(j, i) Σ k^i b^k.
    """
    b, unit = np.exp(-epsilon), epsilon / -np.expm1(-epsilon)
    # ε^n/(n+1)! for n = 0, 1, …
    powers = [epsilon * 0 + 1.0]
    for n in range(1, p + 1):
        powers.append(powers[-1] * epsilon / (n + 1))
    sums = [unit]
    for j in range(1, p + 1):
        sums.append(b * unit * sum(sums[i] * powers[j - i - 1] for i in range(j)))
    total = 0.0
    for j in range(p + 1):
        low = gamma ** (p + 1 - j)
        total = total + sums[j] * powers[p - j] * (low + b * (1 - low))
    return total


def _moment(p: int, epsilon: Values, gamma: Values) -> Values:
    """∫_0^∞ t^p (levels 1, b, b², …) dt."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # infinite where a tiny ε makes it so
        return math.factorial(p) * _scaled_moment(p, epsilon, gamma) / epsilon ** (p + 1)


class Staircase(SymmetricLaw):
    """Generator of one-dimensional staircase noise (see `staircase`)."""

    def _argcheck(self, epsilon: Values, gamma: Values) -> Values:
        return (epsilon > 0) & np.isfinite(epsilon) & (gamma >= 0) & (gamma <= 1)

    def _logpdf(self, t: Values, epsilon: Values, gamma: Values) -> Values:
        u = np.abs(t)
        k = np.floor(u)
        return -epsilon * (k + (u - k >= gamma)) - np.log(2 * _mass(epsilon, gamma))

    def _upper(self, u: Values, epsilon: Values, gamma: Values) -> Values:
        b = np.exp(-epsilon)
        k = np.floor(u)
        rest = u - k
        inside = np.where(rest < gamma, gamma - rest + b * (1 - gamma), b * (1 - rest))
        return b**k * (inside / (2 * _mass(epsilon, gamma)) + b / 2)

    def _reach(self, s: Values, epsilon: Values, gamma: Values) -> Values:
        b = np.exp(-epsilon)
        # sf at the integers is b^k/2
        k = np.maximum(np.floor(-np.log(2 * s) / epsilon + 1e-14), 0)
        left = (b / 2 - s / b**k) * 2 * _mass(epsilon, gamma) + gamma + b * (1 - gamma)
        rest = np.where(left <= gamma, left, gamma + (left - gamma) / b)
        return np.where(s > 0, k + np.clip(rest, 0, 1), np.inf)

    def _rvs(
        self, *shapes: Values, size: tuple[int, ...] | None = None, random_state: Values = None
    ) -> Values:
        epsilon, gamma = shapes
        # Shell, side of the step, place within it, sign: exact, no inversion of rounded tails.
        b = np.exp(-epsilon)
        k = random_state.geometric(-np.expm1(-epsilon), size) - 1
        first = random_state.random(size) < gamma / (gamma + b * (1 - gamma))
        place = random_state.random(size)
        u = k + np.where(first, gamma * place, gamma + (1 - gamma) * place)
        return np.where(random_state.random(size) < 0.5, -u, u)

    def _absolute_moment(self, p: float, epsilon: Values, gamma: Values) -> Values:
        with np.errstate(invalid="ignore"):
            return _moment(int(p), epsilon, gamma) / _mass(epsilon, gamma)

    def _entropy(self, epsilon: Values, gamma: Values) -> Values:
        # log of the first level's inverse, and ε for every step down: their mean is Σ k b^k over the mass
        steps = np.exp(-epsilon) / np.expm1(-epsilon) ** 2 / _mass(epsilon, gamma)
        return np.log(2 * _mass(epsilon, gamma)) + epsilon * steps

    def precise(self, epsilon0: arb, gamma: arb) -> PreciseLoss:
        def delta(r: Values, epsilon: Values) -> Values:
            if r > 1:  # by rounding: `privacy_loss` has a tolerance of 1e-12
                return None
            b = (-epsilon0).exp()
            level = (1 - b) / (2 * (gamma + b * (1 - gamma)))
            high = level * (gamma.min(r) + r * b / (1 - b) + gamma.min(r - gamma).nonnegative_part())
            return high * (1 - (epsilon - epsilon0).exp()).nonnegative_part()

        return PreciseLoss(delta, lambda r: Fraction(float(epsilon0)) if r <= 1 else None)

    def privacy_loss(self, ratio: float, epsilon: float, gamma: float) -> AtomicLoss:
        """Losses −ε, 0, ε at a shift of at most one step, which dominates all smaller shifts."""
        r = ratio
        if r > 1 + 1e-12:
            raise DesignError.of("sensitivity", r, "must be at most the staircase's step (its scale, here 1)")
        b = math.exp(-epsilon)
        level = 1 / (2 * _mass(epsilon, gamma))
        # right of zero the loss is ε when an edge k + γ lies in (t, t + r]; left of it when one lies between
        right = min(gamma, r) + r * b / -math.expm1(-epsilon)
        left = max(0.0, min(gamma, r - gamma))
        high = level * (right + left)
        low = high * b
        mass = np.array([low, max(1 - high - low, 0.0), high])
        return AtomicLoss(np.array([-epsilon, 0.0, epsilon]), mass)


staircase = Staircase(name="staircase", shapes="epsilon, gamma")
r"""Staircase noise as a `scipy.stats` distribution: ``staircase(epsilon, gamma, scale=sensitivity)``.

Examples
--------
>>> law = staircase(1.0, 0.4, scale=2.0)
>>> round(law.sf(2.0) * 2, 12) == round(float(np.exp(-1.0)), 12)
True
"""
register_law("staircase", staircase)


def staircase_law(epsilon: float, sensitivity: float = 1.0, *, loss: str = "absolute") -> FrozenLaw:
    r"""Return the ε-DP staircase law of least loss; for one number no additive noise costs less.

    Raises
    ------
    DesignError
        ε or sensitivity not positive and finite; an unknown loss.

    Examples
    --------
    >>> float(round(staircase_law(1.0, loss="squared").var(), 3))
    1.918
    """
    epsilon, sensitivity = (
        positive("epsilon", epsilon, side=DOWN),
        positive("sensitivity", sensitivity, side=UP),
    )
    return staircase(epsilon, staircase_gamma(epsilon, loss), scale=sensitivity)
