r"""The distributed discrete Gaussian mechanism (Kairouz, Liu, Steinke 2021): the sum of n discrete Gaussians is nearly one.

With σ² the variance of each client's noise and :math:`\tau = 10 \sum_{k=1}^{n-1} e^{-2\pi^2 \sigma^2 k/(k+1)}`, the sum is ½ε²-concentrated private for
:math:`\varepsilon = \min\{\sqrt{\Delta_2^2/(n\sigma^2) + \tau d/2},\ \Delta_2/(\sqrt n \sigma) + \tau\sqrt d\}` (their Theorem 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechdesign.problem.privacy import ApproximateDP
from mechdesign.typing import Array, Indices

from .common import ORDERS
from .discrete_sums import DiscreteSum

__all__ = ["DistributedDiscreteGaussian"]


@dataclass(frozen=True)
class DistributedDiscreteGaussian(DiscreteSum):
    """Discrete Gaussian noise under a secure aggregation.

    Parameters
    ----------
    dimension : int
    privacy : ApproximateDP
    bits : int
        Of a coordinate.
    clients : int
    radius : float

    Examples
    --------
    >>> baseline = DistributedDiscreteGaussian(128, ApproximateDP(4.0, 1e-6), bits=16, clients=100)
    >>> round(baseline.error * 100**2)
    824
    """

    dimension: int
    privacy: ApproximateDP
    bits: int = 16
    clients: int = 1
    radius: float = 1.0

    def _divergences(self, variance: float, squared: float) -> Array:
        n, each = self.clients, variance / self.clients
        # Terms fall from k = 1 on to e^(−2π²σ²): n − 1 times the first is above their sum.
        k = np.arange(1, min(n, 4096))
        tail = max(n - 4096, 0) * math.exp(-2 * math.pi**2 * each * 4096 / 4097)
        tau = 10 * (float(np.exp(-2 * math.pi**2 * each * k / (k + 1)).sum()) + tail)
        plain = math.sqrt(squared / variance)
        epsilon = min(
            math.sqrt(squared / variance + tau * self.dimension / 2), plain + tau * math.sqrt(self.dimension)
        )
        return np.asarray(0.5 * epsilon**2 * ORDERS)

    def _noise(self, variance: float, size: tuple[int, ...], rng: np.random.Generator) -> Indices:
        sigma2 = variance / self.clients
        far = math.ceil(12 * math.sqrt(sigma2)) + 2
        if far > 1 << 20:  # the lattice is too fine to see
            return np.rint(rng.normal(0, math.sqrt(sigma2), size)).astype(np.int64)
        support = np.arange(-far, far + 1)
        weights = np.exp(-(support**2) / (2 * sigma2))
        return np.asarray(rng.choice(support, size, p=weights / weights.sum()), dtype=np.int64)
