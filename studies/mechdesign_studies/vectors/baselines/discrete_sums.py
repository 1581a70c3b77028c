r"""Integer noise under a secure aggregation: rotate, scale, round, add a share of the noise, send modulo 2^b.

Vectors of length R are scaled by s and rotated (signs and Hadamard transforms shared by all clients); their coordinates are rounded at random, again until
the rounded length is at most :math:`\Delta^2 = \min\{(sR)^2 + d/4 + \sqrt{2 \log(1/\beta)}\,(sR + \sqrt d/2),\ (sR + \sqrt d)^2\}`, β = e^(−1/2). Two inputs of a client are 2Δ apart. The modulus holds
four standard deviations of the sum's coordinates either way; s is the largest that it allows, and what wraps around is not in the
error (probability below 7·10⁻⁵ a coordinate). (Kairouz, Liu, Steinke 2021; Agarwal, Kairouz, Liu 2021.)
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign.checks import generator, integer
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.typing import Array, Indices
from mechdesign.vectors.coded import ModularSum, checked_seed
from mechdesign.vectors.sphere import FastRotation

from .common import Baseline, calibrated

__all__ = ["DiscreteSum"]

_SIGMAS = 4.0


class DiscreteSum(Baseline):
    """Integer noise added by the clients, its sum revealed modulo 2^bits.

    Attributes
    ----------
    bits : int
        Of a coordinate, 4 to 32.
    """

    bits: int

    def __post_init__(self) -> None:
        self._settle(ApproximateDP)
        integer("bits", self.bits, 4, 32)
        _ = self._settings

    @abstractmethod
    def _divergences(self, variance: float, squared: float) -> Array:
        """Rényi divergences at `ORDERS` for noise of this variance in the sum, and a squared distance of inputs."""

    @abstractmethod
    def _noise(self, variance: float, size: tuple[int, ...], rng: np.random.Generator) -> Indices:
        """Each client's share of noise of this variance."""

    def _length(self, scale: float) -> float:
        """Δ² for R = 1."""
        root = math.sqrt(self.dimension)
        inflated = scale**2 + self.dimension / 4 + (scale + root / 2)  # sqrt(2 log(1/beta)) = 1
        return min(inflated, (scale + root) ** 2)

    def _variance(self, scale: float) -> float:
        squared = 4 * self._length(scale)
        return calibrated(
            lambda v: self._divergences(v, squared), self.privacy, 1e-3 * squared, 1e12 * squared
        )

    def _width(self, scale: float) -> float:
        """Standard deviations of a coordinate of the sum, times 2 · 4."""
        n = self.clients
        spread = (n * scale) ** 2 / self.dimension + n / 4 + self._variance(scale)
        return 2 * _SIGMAS * math.sqrt(spread)

    @cached_property
    def _settings(self) -> tuple[float, float]:
        """s and the variance of the sum's noise."""
        low, high = 1e-3, 2.0**self.bits
        if self._width(low) > 2**self.bits:
            raise InfeasibleError(
                f"{self.bits} bits a coordinate do not hold the noise of the rounding alone: more bits"
            )
        for _ in range(50):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._width(middle) <= 2**self.bits else (low, middle)
        return low, self._variance(low)

    @property
    def scale(self) -> float:
        """s, for R = 1."""
        return self._settings[0]

    @property
    def variance(self) -> float:
        """Of a coordinate of the sum's noise, in the integers' units."""
        return self._settings[1]

    @property
    def error(self) -> float:
        n, (s, variance) = self.clients, self._settings
        # A rounding adds at most 1/4, and no more than the coordinate's part beyond an integer.
        return self.radius**2 * self.dimension * (variance + n / 4) / (s * n) ** 2

    @property
    def message_bits(self) -> int:
        return self.dimension * self.bits

    def contributions(self, x: Any, *, seed: int, rng: Any = None) -> Indices:
        """Draw each client's integers, shape (n, d), for `ModularSum`, for simulation; the seed is that of the shared rotation."""
        return self._integers(self._unit(x), checked_seed(seed), generator(rng))

    def estimate(self, total: Any, *, seed: int) -> Array:
        """Return the estimated mean, shape (d,), from the sum modulo 2^bits."""
        sums, rotation = ModularSum(self.dimension, self.bits), FastRotation(self.dimension, self.dimension)
        centred = sums.centred(total).astype(float)
        if centred.shape != (self.dimension,):
            raise DesignError.of("total", total, f"must be {self.dimension} residues")
        back = rotation.turned_back(centred[None, :], [(checked_seed(seed), 0)])
        return np.asarray(back[0] * (self.radius / (self.scale * self.clients)))

    def _integers(self, x: Array, seed: int, rng: np.random.Generator) -> Indices:
        rotation = FastRotation(self.dimension, self.dimension)
        z = self.scale * rotation.turned(x, [(seed, 0)] * len(x))
        limit, out = self._length(self.scale), np.empty(z.shape, dtype=np.int64)
        todo = np.arange(len(z))
        for _ in range(200):
            out[todo] = np.floor(z[todo] + rng.random((len(todo), self.dimension))).astype(np.int64)
            todo = todo[(out[todo].astype(float) ** 2).sum(axis=1) > limit]
            if not len(todo):
                break
        out[todo] = 0  # never seen: each round is kept with probability at least 1 − β
        return out + self._noise(self.variance, out.shape, rng)

    def _mean(self, x: Array, rng: np.random.Generator) -> Array:
        seed, sums = int(rng.integers(0, 1 << 62)), ModularSum(self.dimension, self.bits)
        total = np.mod(self._integers(x, seed, rng).sum(axis=0), sums.modulus)
        return self.estimate(total, seed=seed) / self.radius
