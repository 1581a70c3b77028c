r"""Discrete Laplace and discrete Gaussian noise: laws and profiles here, exact samplers from OpenDP.

The laws are `scipy.stats` distributions on the integers: ``dlaplace(a)``, scale 1/a (SciPy's own), and
``discrete_gaussian(sigma)`` with :math:`P(k) \propto e^{-k^2/2\sigma^2}`. Floating-point samplers leak; releases should
use `opendp_sample`, which draws with OpenDP's exact arithmetic.

Source: Canonne, Kamath and Steinke, *The discrete Gaussian for differential privacy*, 2020.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from flint import acb, arb, ctx
from scipy import stats

from mechdesign.accounting.losses import AtomicLoss, PreciseLoss
from mechdesign.errors import DesignError, MissingExtra
from mechdesign.evidence.serialize import register_law
from mechdesign.problem.checks import integer, positive
from mechdesign.problem.law_moments import frozen_parts
from mechdesign.typing import Array, FrozenLaw, Indices, Values

_LARGE = 100
"""Up to this σ the profile is summed in high precision: about 15 σ terms."""


LARGEST_SIGMA = 5e4
"""The table of probabilities has 77 σ entries."""


@functools.lru_cache(maxsize=8)
def _table(sigma: float) -> tuple[Indices, Array, Array]:
    """Integers as far as their probability is representable, that probability, and P(K ≥ k) (one entry more)."""
    if sigma > LARGEST_SIGMA:
        allowed = f"must be at most {LARGEST_SIGMA:g}: its table has 77 sigma entries; use the Gaussian"
        raise DesignError.of("sigma", sigma, allowed)
    reach = int(math.ceil(38.5 * sigma)) + 2
    k = np.arange(-reach, reach + 1, dtype=np.int64)
    weights = np.exp(-((k / sigma) ** 2) / 2)
    mass = weights / weights.sum()
    return k, mass, np.append(np.cumsum(mass[::-1])[::-1], 0.0)


def _per_sigma(function: Callable[[float, Array], Array | float], sigma: Values, values: Values) -> Array:
    """Apply ``function(sigma, values)`` where each σ applies."""
    values, sigma = np.broadcast_arrays(np.asarray(values, dtype=float), np.asarray(sigma, dtype=float))
    out = np.empty(values.shape)
    for s in np.unique(sigma):
        here = sigma == s
        out[here] = function(float(s), values[here])
    return out


def _upper(sigma: float, k: Array) -> Array:
    support, _, tail = _table(sigma)
    return np.asarray(tail[np.clip(np.floor(k) + 1 - support[0], 0, support.size).astype(np.int64)])


def _quantile(sigma: float, s: Array) -> Array:
    """The least k with P(K > k) ≤ s."""
    support, _, tail = _table(sigma)
    return np.asarray(support[0] - 1 + np.searchsorted(-tail, -s), dtype=float)


class DiscreteGaussian(stats.rv_discrete):  # type: ignore[misc]
    """Generator of the discrete Gaussian law (see `discrete_gaussian`)."""

    def _argcheck(self, sigma: Values) -> Values:
        return (sigma > 0) & np.isfinite(sigma)

    def _shape_info(self) -> list[object]:
        return []

    def _logpmf(self, k: Values, sigma: Values) -> Values:
        def log_mass(s: float, k: Array) -> Array:
            return math.log(_table(s)[1].max()) - (k / s) ** 2 / 2

        return _per_sigma(log_mass, sigma, k)

    def _pmf(self, k: Values, sigma: Values) -> Values:
        return np.exp(self._logpmf(k, sigma))

    def _sf(self, k: Values, sigma: Values) -> Values:
        return _per_sigma(_upper, sigma, k)

    def _cdf(self, k: Values, sigma: Values) -> Values:
        return self._sf(-np.floor(k) - 1, sigma)

    def _isf(self, s: Values, sigma: Values) -> Values:
        return _per_sigma(_quantile, sigma, s)

    def _ppf(self, q: Values, sigma: Values) -> Values:
        return -self._isf(q, sigma)

    def _stats(self, sigma: Values) -> Values:
        def moment(p: int, s: float, _: Array) -> float:
            if s > _LARGE:  # by Poisson summation off the normal law's by less than σ⁴ e^(-2π²σ²) of it
                return float(s**p * (1 if p == 2 else 3))
            k, mass, _ = _table(s)
            return float(k.astype(float) ** p @ mass)

        second, fourth = (_per_sigma(functools.partial(moment, p), sigma, sigma) for p in (2, 4))
        return 0.0, second, 0.0, fourth / second**2 - 3

    def _rvs(self, sigma: Values, size: tuple[int, ...] | None = None, random_state: Values = None) -> Values:
        return self._isf(random_state.random(size), sigma).astype(np.int64)

    def mean_absolute(self, sigma: float) -> float:
        """E|K|."""
        k, mass, _ = _table(float(sigma))
        return float(np.abs(k) @ mass)

    def precise(self, sigma: arb) -> PreciseLoss:
        def delta(ratio: arb, epsilon: arb) -> arb | None:
            if sigma > _LARGE:
                return None
            shift, unit = int(float(ratio)), 1 / (2 * sigma * sigma)
            # losses pass ε after this one
            k = math.floor(float(((epsilon / unit / shift - shift) / 2).lower())) - 1
            total, centre = arb(0), max(k, 0)
            # weights fall by ratios that fall themselves, and e^{ε - loss} by a constant one: no function in the loop
            weight, fall = (-k * k * unit).exp(), (-(2 * k + 1) * unit).exp()
            short, slower = (epsilon - shift * (shift + 2 * k) * unit).exp(), (-2 * unit).exp()
            sooner, tiny = (-2 * shift * unit).exp(), arb(2) ** -ctx.prec
            while True:
                total += weight * (1 - short).nonnegative_part()
                k, weight, fall, short = k + 1, weight * fall, fall * slower, short * sooner
                if k > centre and (rest := weight / (1 - fall)) < total * tiny:
                    break
            theta = acb.modular_theta(acb(0), acb(0, unit / arb.pi()))[2].real
            return (total + arb(0).union(rest)) / theta

        return PreciseLoss(delta)

    def privacy_loss(self, ratio: float, sigma: float) -> AtomicLoss:
        shift = _whole(ratio)
        k, mass, _ = _table(sigma)
        return AtomicLoss((shift * (shift + 2 * k)) / (2 * sigma**2), mass)


discrete_gaussian = DiscreteGaussian(name="discrete_gaussian", a=-np.inf, shapes="sigma")
r"""The discrete Gaussian as a `scipy.stats` distribution: ``discrete_gaussian(sigma)``.

Examples
--------
>>> round(discrete_gaussian(3.0).var(), 6)
9.0
"""
register_law("discrete_gaussian", discrete_gaussian)


def _whole(sensitivity: float) -> int:
    if not (sensitivity >= 1 and sensitivity == int(sensitivity)):
        raise DesignError.of("sensitivity", sensitivity, "must be a positive whole number for discrete noise")
    return int(sensitivity)


def discrete_laplace_law(scale: float) -> FrozenLaw:
    r"""Return SciPy's discrete Laplace law with :math:`P(k) \propto e^{-|k|/\text{scale}}`.

    Examples
    --------
    >>> law = discrete_laplace_law(2.0)
    >>> float(round(law.pmf(1) / law.pmf(0), 6))   # e^{-1/2}
    0.606531
    """
    return stats.dlaplace(1 / positive("scale", scale))


def opendp_sample(law: FrozenLaw, size: int) -> Indices:
    """Draw exact samples of a discrete law with OpenDP (``pip install mechdesign[opendp]``).

    Parameters
    ----------
    law : frozen ``dlaplace`` or ``discrete_gaussian``
    size : int

    Returns
    -------
    ndarray of int, shape (size,)
        OpenDP draws from the operating system's randomness; it takes no seed.

    Raises
    ------
    DesignError
        Another law.
    MissingExtra
        OpenDP is not installed.
    """
    if (name := frozen_parts(law)[0].name) not in ("dlaplace", "discrete_gaussian"):
        raise DesignError.of("law", name, "must be a discrete Laplace or discrete Gaussian law")
    measurement = opendp_measurement(law)
    return np.asarray(measurement([0] * integer("size", size, 0, 2**40)), dtype=np.int64)


def opendp_measurement(law: FrozenLaw) -> Any:
    """Return the ``opendp.mod.Measurement`` that adds noise of this law to a vector (extra ``[opendp]``): whole numbers for a discrete law.

    Its privacy map takes the ℓ₁ norm of a change for Laplace noise and says ε; the ℓ₂ norm for Gaussian noise, and says ρ.

    Raises
    ------
    DesignError
        OpenDP has no noise of this law.
    MissingExtra
        OpenDP is not installed.
    """
    try:
        import opendp.prelude as dp
    except ImportError:
        raise MissingExtra.of("opendp", "OpenDP's noise") from None
    kind, shapes, _, scale = frozen_parts(law)
    name = kind.name
    if name not in ("dlaplace", "discrete_gaussian", "laplace", "norm"):
        raise DesignError.of("law", name, "is not in OpenDP, which has Laplace and Gaussian noise")
    dp.enable_features("contrib")
    whole = name in ("dlaplace", "discrete_gaussian")
    atoms = dp.atom_domain(T="i64") if whole else dp.atom_domain(T="f64", nan=False)
    if name in ("dlaplace", "laplace"):
        metric = dp.l1_distance(T="i64" if whole else "f64")
        return dp.m.make_laplace(
            dp.vector_domain(atoms), metric, scale=1 / float(shapes[0]) if whole else scale
        )
    return dp.m.make_gaussian(
        dp.vector_domain(atoms), dp.l2_distance(T="f64"), scale=float(shapes[0]) if whole else scale
    )
