r"""Discrete Laplace and discrete Gaussian noise: laws and profiles here, exact samplers from OpenDP.

The laws are `scipy.stats` distributions on the integers: ``dlaplace(a)``, scale 1/a (SciPy's own), and
``discrete_gaussian(sigma)`` with :math:`P(k) \propto e^{-k^2/2\sigma^2}`. Floating-point samplers leak; releases should
use `opendp_sample`, which draws with OpenDP's exact arithmetic.

Source: Canonne, Kamath and Steinke, *The discrete Gaussian for differential privacy*, 2020.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from mechdesign.accounting.law import AtomicLoss
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import register_law

__all__ = ["DiscreteGaussian", "discrete_gaussian", "discrete_laplace_law", "opendp_sample"]


class DiscreteGaussian(stats.rv_discrete):
    """Generator of the discrete Gaussian law (see `discrete_gaussian`)."""

    def _argcheck(self, sigma: Any) -> Any:
        return (sigma > 0) & np.isfinite(sigma)

    def _shape_info(self) -> list[Any]:
        return []

    def _table(self, sigma: float) -> tuple[np.ndarray, np.ndarray]:
        reach = int(math.ceil(38.5 * sigma)) + 2
        k = np.arange(-reach, reach + 1)
        weights = np.exp(-((k / sigma) ** 2) / 2)
        return k, weights / weights.sum()

    def _logpmf(self, k: Any, sigma: Any) -> Any:
        k, sigma = np.broadcast_arrays(np.asarray(k, dtype=float), np.asarray(sigma, dtype=float))
        out = -((k / sigma) ** 2) / 2
        for s in np.unique(sigma):
            _, mass = self._table(float(s))
            out = np.where(sigma == s, out + math.log(mass.max()), out)
        return out

    def _pmf(self, k: Any, sigma: Any) -> Any:
        return np.exp(self._logpmf(k, sigma))

    def _sf(self, k: Any, sigma: Any) -> Any:
        k, sigma = np.broadcast_arrays(np.floor(k), np.asarray(sigma, dtype=float))
        out = np.empty(k.shape)
        for s in np.unique(sigma):
            support, mass = self._table(float(s))
            tail = np.append(np.cumsum(mass[::-1])[::-1], 0.0)  # P(K >= support[i]), relative accuracy
            here = sigma == s
            index = np.clip(k[here].astype(np.int64) + 1 - support[0], 0, support.size)
            out[here] = tail[index]
        return out

    def _cdf(self, k: Any, sigma: Any) -> Any:
        return self._sf(-np.floor(k) - 1, sigma)

    def _stats(self, sigma: Any) -> Any:
        values = [self._table(float(s)) for s in np.atleast_1d(sigma)]
        second = np.array([float(k * k @ m) for k, m in values]).reshape(np.shape(sigma))
        fourth = np.array([float(k**4 @ m) for k, m in ((k.astype(float), m) for k, m in values)])
        return 0.0, second, 0.0, fourth.reshape(np.shape(sigma)) / second**2 - 3

    def _rvs(self, sigma: Any, size: Any = None, random_state: Any = None) -> Any:
        support, mass = self._table(float(np.ravel(sigma)[0]))
        return random_state.choice(support, p=mass, size=size)

    def mean_absolute(self, sigma: float) -> float:
        k, mass = self._table(sigma)
        return float(np.abs(k) @ mass)

    def privacy_loss(self, ratio: float, sigma: float) -> AtomicLoss:
        shift = _whole(ratio)
        k, mass = self._table(sigma)
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


def discrete_laplace_law(scale: float) -> Any:
    r"""Return SciPy's discrete Laplace law with :math:`P(k) \propto e^{-|k|/\text{scale}}`.

    Examples
    --------
    >>> law = discrete_laplace_law(2.0)
    >>> float(round(law.pmf(1) / law.pmf(0), 6))   # e^{-1/2}
    0.606531
    """
    if not (math.isfinite(scale) and scale > 0):
        raise DesignError.of("scale", scale, "must be positive and finite")
    return stats.dlaplace(1 / scale)


def opendp_sample(law: Any, size: int) -> np.ndarray:
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
        Another law, or OpenDP is not installed.
    """
    try:
        import opendp.prelude as dp
    except ImportError:
        raise DesignError("exact discrete samplers need OpenDP: pip install 'mechdesign[opendp]'") from None
    name = law.dist.name
    shapes = law.dist._parse_args(*law.args, **law.kwds)[0]
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    dp.enable_features("contrib")
    if name == "dlaplace":
        measurement = dp.m.make_laplace(*space, scale=1 / float(shapes[0]))
    elif name == "discrete_gaussian":
        space = space[0], dp.l2_distance(T="f64")
        measurement = dp.m.make_gaussian(*space, scale=float(shapes[0]))
    else:
        raise DesignError.of("law", name, "must be a discrete Laplace or discrete Gaussian law")
    return np.asarray(measurement([0] * int(size)), dtype=np.int64)
