r"""Staircase noise: the optimal ε-DP noise, in one dimension and with ℓ₁ shells in several.

The density is constant on shells and falls by :math:`e^{-\varepsilon}` from one to the next:

.. math:: f(t) \propto e^{-k\varepsilon} \text{ for } |t|/\Delta \in [k, k+\gamma), \qquad
          e^{-(k+1)\varepsilon} \text{ for } |t|/\Delta \in [k+\gamma, k+1).

Source: Geng and Viswanath, *The optimal noise-adding mechanism in differential privacy* (2016), and, for ℓ₁
shells, *The optimal mechanism in differential privacy: multidimensional setting* (2013).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats

from mechdesign.accounting.law import AtomicLoss
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import register_law, serializable
from mechdesign.problem.checks import whole

__all__ = ["L1Staircase", "Staircase", "staircase", "staircase_gamma", "staircase_law"]


def staircase_gamma(epsilon: float, loss: str = "absolute") -> float:
    r"""Return the step fraction γ that minimises the ℓ₁ or the squared error at ε.

    ``"absolute"``: :math:`1/(1 + e^{\varepsilon/2})`, with error :math:`\Delta e^{\varepsilon/2}/(e^\varepsilon - 1)`.
    ``"squared"``: the root of the stationarity condition of the variance (Geng and Viswanath, Theorem 8).

    Examples
    --------
    >>> round(staircase_gamma(1.0), 4), round(staircase_gamma(1.0, "squared"), 4)
    (0.3775, 0.4167)
    """
    if loss == "absolute":
        return 1 / (1 + math.exp(epsilon / 2))
    if loss != "squared":
        raise DesignError.of("loss", loss, 'must be "absolute" or "squared"')
    b = math.exp(-epsilon)
    found = optimize.minimize_scalar(
        lambda g: float(_raw_moment(2, b, g)) / _mass(b, g),
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return float(found.x)


def _mass(b: Any, gamma: Any) -> Any:
    """Half the mass when the first level is 1."""
    return (gamma + b * (1 - gamma)) / (1 - b)


def _raw_moment(p: int, b: Any, gamma: Any) -> Any:
    r"""∫_0^∞ t^p (levels 1, b, b², …) dt, by the binomial sums Σ k^j b^k."""
    sums = _power_sums(p, b)
    total = 0.0
    # shell k: level b^k on [k, k+γ), b^{k+1} on [k+γ, k+1)
    for j in range(p + 1):
        c = math.comb(p + 1, j)
        low = gamma ** (p + 1 - j)
        total = total + c * sums[j] * (low + b * (1 - low))
    return total / (p + 1)


def _power_sums(p: int, b: Any) -> list[Any]:
    """Σ_k k^j b^k for j = 0, …, p (Eulerian recursion: T f = b f')."""
    sums = [1 / (1 - b)]
    for j in range(1, p + 1):
        # Σ k^j b^k = b/(1-b) Σ_{i<j} C(j,i) Σ k^i b^k
        sums.append(b / (1 - b) * sum(math.comb(j, i) * sums[i] for i in range(j)))
    return sums


class Staircase(stats.rv_continuous):
    """Generator of one-dimensional staircase noise (see `staircase`)."""

    def _argcheck(self, epsilon: Any, gamma: Any) -> Any:
        return (epsilon > 0) & np.isfinite(epsilon) & (gamma >= 0) & (gamma <= 1)

    def _shape_info(self) -> list[Any]:
        return []

    def _pdf(self, t: Any, epsilon: Any, gamma: Any) -> Any:
        b = np.exp(-epsilon)
        u = np.abs(t)
        k = np.floor(u)
        level = k + (u - k >= gamma)
        return np.exp(-epsilon * level) / (2 * _mass(b, gamma))

    def _logpdf(self, t: Any, epsilon: Any, gamma: Any) -> Any:
        u = np.abs(t)
        k = np.floor(u)
        return -epsilon * (k + (u - k >= gamma)) - np.log(2 * _mass(np.exp(-epsilon), gamma))

    def _sf(self, t: Any, epsilon: Any, gamma: Any) -> Any:
        b = np.exp(-epsilon)
        u = np.abs(t)
        k = np.floor(u)
        rest = u - k
        inside = gamma + b * (1 - gamma) - np.where(rest < gamma, rest, gamma + b * (rest - gamma))
        upper = b**k * (inside / (2 * _mass(b, gamma)) + b / 2)
        return np.where(t >= 0, upper, 1 - upper)

    def _cdf(self, t: Any, epsilon: Any, gamma: Any) -> Any:
        return self._sf(-t, epsilon, gamma)

    def _isf(self, s: Any, epsilon: Any, gamma: Any) -> Any:
        s = np.asarray(s, dtype=float)
        b = np.exp(-epsilon)
        small = np.minimum(s, 1 - s)
        # sf at the integers is b^k/2
        with np.errstate(divide="ignore"):
            k = np.floor(-np.log(2 * small) / epsilon + 1e-14)
        k = np.maximum(k, 0)
        with np.errstate(invalid="ignore", over="ignore"):
            left = (b / 2 - small / b**k) * 2 * _mass(b, gamma) + gamma + b * (1 - gamma)
        rest = np.where(left <= gamma, left, gamma + (left - gamma) / b)
        u = np.where(small > 0, k + np.clip(rest, 0, 1), np.inf)
        return np.where(s <= 0.5, u, -u)

    def _ppf(self, q: Any, epsilon: Any, gamma: Any) -> Any:
        return -self._isf(q, epsilon, gamma)

    def _rvs(self, epsilon: Any, gamma: Any, size: Any = None, random_state: Any = None) -> Any:
        # Shell, side of the step, place within it, sign: exact, no inversion of rounded tails.
        b = np.exp(-epsilon)
        k = random_state.geometric(-np.expm1(-epsilon), size) - 1
        first = random_state.random(size) < gamma / (gamma + b * (1 - gamma))
        place = random_state.random(size)
        u = k + np.where(first, gamma * place, gamma + (1 - gamma) * place)
        return np.where(random_state.random(size) < 0.5, -u, u)

    def _munp(self, n: int, epsilon: Any, gamma: Any) -> Any:
        if n % 2:
            return 0.0
        b = np.exp(-epsilon)
        return _raw_moment(n, b, gamma) / _mass(b, gamma)

    def mean_absolute(self, epsilon: float, gamma: float) -> float:
        b = math.exp(-epsilon)
        return float(_raw_moment(1, b, gamma) / _mass(b, gamma))

    def _stats(self, epsilon: Any, gamma: Any) -> Any:
        variance = self._munp(2, epsilon, gamma)
        return 0.0, variance, 0.0, self._munp(4, epsilon, gamma) / variance**2 - 3

    def privacy_loss(self, ratio: float, epsilon: float, gamma: float) -> AtomicLoss:
        """Losses −ε, 0, ε at a shift of at most one step, which dominates all smaller shifts."""
        r = ratio
        if r > 1 + 1e-12:
            raise DesignError.of("sensitivity", r, "must be at most the staircase's step (its scale, here 1)")
        b = math.exp(-epsilon)
        level = 1 / (2 * _mass(b, gamma))
        # right of zero the loss is ε when an edge k + γ lies in (t, t + r]; left of it when one lies between
        right = min(gamma, r) + r * b / (1 - b)
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


def staircase_law(epsilon: float, sensitivity: float = 1.0, *, loss: str = "absolute") -> Any:
    r"""Return the ε-DP staircase law that is optimal for the loss.

    Raises
    ------
    DesignError
        ε or sensitivity not positive and finite; an unknown loss.

    Examples
    --------
    >>> float(round(staircase_law(1.0, loss="squared").var(), 3))
    1.918
    """
    for name, value in (("epsilon", epsilon), ("sensitivity", sensitivity)):
        if not (math.isfinite(value) and value > 0):
            raise DesignError.of(name, value, "must be positive and finite")
    return staircase(epsilon, staircase_gamma(epsilon, loss), scale=sensitivity)


@serializable("l1-staircase")
@dataclass(frozen=True)
class L1Staircase:
    r"""Staircase noise on ℓ₁ shells in d dimensions: ε-DP for queries of ℓ₁ sensitivity Δ.

    Parameters
    ----------
    epsilon : float
    sensitivity : float
        Δ₁ > 0.
    dimension : int
        d ≥ 1.
    gamma : float, optional
        Step fraction; the minimiser of the ℓ₁ error when not given.

    Examples
    --------
    >>> round(L1Staircase(0.5, 1.0, 2).absolute_error, 4)
    3.9962
    """

    epsilon: float
    sensitivity: float = 1.0
    dimension: int = 2
    gamma: float | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "sensitivity"):
            value = float(getattr(self, name))
            if not (math.isfinite(value) and value > 0):
                raise DesignError.of(name, value, "must be positive and finite")
        object.__setattr__(self, "dimension", whole("dimension", self.dimension, 1))
        if self.gamma is None:
            found = optimize.minimize_scalar(
                lambda g: self._radial(1, g) / self._radial(0, g),
                bounds=(0.0, 1.0),
                method="bounded",
                options={"xatol": 1e-10},
            )
            object.__setattr__(self, "gamma", float(found.x))
        elif not 0 <= self.gamma <= 1:
            raise DesignError.of("gamma", self.gamma, "must be in [0, 1]")

    def _radial(self, power: int, gamma: float) -> float:
        """∫_0^∞ r^{d-1+power} (levels 1, b, b², …) dr: ℓ₁ spheres grow like r^{d-1}."""
        return float(_raw_moment(self.dimension - 1 + power, math.exp(-self.epsilon), gamma))

    @property
    def absolute_error(self) -> float:
        """E‖T‖₁."""
        assert self.gamma is not None
        return self.sensitivity * self._radial(1, self.gamma) / self._radial(0, self.gamma)

    @property
    def squared_error(self) -> float:
        """E‖T‖₂²; given ‖T‖₁ = R, the shares are Dirichlet, so E‖T‖₂² = 2 E R²/(d + 1)."""
        assert self.gamma is not None
        second = self._radial(2, self.gamma) / self._radial(0, self.gamma)
        return 2 * self.sensitivity**2 * second / (self.dimension + 1)

    def logpdf(self, t: Any) -> Any:
        """Log density at points of shape (..., d)."""
        assert self.gamma is not None
        u = np.abs(np.asarray(t, dtype=float)).sum(axis=-1) / self.sensitivity
        k = np.floor(u)
        level = k + (u - k >= self.gamma)
        # ℓ₁ sphere of radius r bounds 2^d r^d/d!, so its shells weigh 2^d r^{d-1}/(d-1)!
        area = self.dimension * math.log(2) - math.lgamma(self.dimension)
        log_mass = area + math.log(self._radial(0, self.gamma)) + self.dimension * math.log(self.sensitivity)
        return -self.epsilon * level - log_mass

    def pdf(self, t: Any) -> Any:
        """Density at points of shape (..., d)."""
        return np.exp(self.logpdf(t))

    def rvs(self, size: int | None = None, *, random_state: Any = None) -> np.ndarray:
        """Sample exactly: a shell, the radius in it, then a uniform point of the ℓ₁ sphere.

        Returns
        -------
        ndarray, shape (d,) or (size, d)
        """
        assert self.gamma is not None
        rng = np.random.default_rng(random_state)
        n = 1 if size is None else int(size)
        d, b, g = self.dimension, math.exp(-self.epsilon), self.gamma
        radius = np.empty(n)
        # shell weights ∝ b^k[(k+γ)^d - k^d] and b^{k+1}[(k+1)^d - (k+γ)^d], listed until they vanish
        shells = int((750 + 60 * d) / self.epsilon) + 2 * d + 2
        shells = min(shells, 2_000_000)
        k = np.arange(shells, dtype=float)
        weights = np.concatenate([b**k * ((k + g) ** d - k**d), b ** (k + 1) * ((k + 1) ** d - (k + g) ** d)])
        low = np.concatenate([k, k + g])
        high = np.concatenate([k + g, k + 1])
        cell = rng.choice(weights.size, size=n, p=weights / weights.sum())
        share = rng.random(n)
        radius = (low[cell] ** d + share * (high[cell] ** d - low[cell] ** d)) ** (1 / d)
        direction = rng.dirichlet(np.ones(d), size=n) * rng.choice([-1.0, 1.0], size=(n, d))
        out = self.sensitivity * radius[:, None] * direction
        return out[0] if size is None else out
