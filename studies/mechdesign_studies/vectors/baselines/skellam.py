r"""The Skellam mechanism (Agarwal, Kairouz, Liu 2021): differences of Poisson variables, which add up to one of their kind.

With the variance μ of the sum's noise, :math:`D_\alpha \le \frac{\alpha \Delta_2^2}{2\mu} + \min\big\{\frac{(2\alpha - 1)\Delta_2^2 + 6\Delta_1}{4\mu^2}, \frac{3\Delta_1}{2\mu}\big\}` (their Theorem 3.5), and
:math:`\Delta_1 \le \min(\sqrt d\,\Delta_2, \Delta_2^2)` between integer vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechdesign.problem.privacy import ApproximateDP
from mechdesign.typing import Array, Indices

from .common import ORDERS
from .discrete_sums import DiscreteSum

__all__ = ["Skellam"]


@dataclass(frozen=True)
class Skellam(DiscreteSum):
    """Skellam noise under a secure aggregation.

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
    >>> baseline = Skellam(128, ApproximateDP(4.0, 1e-6), bits=16, clients=100)
    >>> round(baseline.error * 100**2)
    824
    """

    dimension: int
    privacy: ApproximateDP
    bits: int = 16
    clients: int = 1
    radius: float = 1.0

    def _divergences(self, variance: float, squared: float) -> Array:
        first = min(math.sqrt(self.dimension * squared), squared)
        small = ((2 * ORDERS - 1) * squared + 6 * first) / (4 * variance**2)
        return np.asarray(ORDERS * squared / (2 * variance) + np.minimum(small, 1.5 * first / variance))

    def _noise(self, variance: float, size: tuple[int, ...], rng: np.random.Generator) -> Indices:
        mean = variance / (2 * self.clients)
        return np.asarray(rng.poisson(mean, size) - rng.poisson(mean, size), dtype=np.int64)
