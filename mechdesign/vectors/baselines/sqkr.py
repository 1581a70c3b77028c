r"""Subsampled and quantized Kashin's response (Chen, Kairouz, Özgür 2020), a random rotation in the place of Kashin's representation.

The rotated vector's coordinates z are clipped at c, each rounded at random to ±c; k of d, chosen by shared randomness, make a text of k bits that
randomized response over 2^k texts protects with ε. With :math:`s = (e^\varepsilon + 2^k - 1)/(e^\varepsilon - 1)` and :math:`\kappa = d\,E[\mathrm{clip}(z)\, z]` for a uniform
point of the sphere, the answer over κ is unbiased over the rotation, with the error :math:`(d^2/k)\, c^2 s^2/\kappa^2 - 1`. c is where a coordinate of a
vector is clipped once in a hundred vectors, as deployments clip; k is the best up to the bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from mechdesign.problem.checks import whole
from mechdesign.problem.privacy import PureDP
from mechdesign.typing import Array
from mechdesign.vectors.ball import power_of_e
from mechdesign.vectors.baselines.common import Baseline
from mechdesign.vectors.rotation import FastRotation

__all__ = ["SQKR"]

_CLIPPED = 0.01


@dataclass(frozen=True)
class SQKR(Baseline):
    """SQKR with a random rotation, locally private.

    Parameters
    ----------
    dimension : int
    privacy : PureDP
    bits : int
        At most so many for a vector, 1 to 16.
    clients : int
    radius : float

    Examples
    --------
    >>> round(SQKR(500, PureDP(4.0), bits=8).error)
    3775
    """

    dimension: int
    privacy: PureDP
    bits: int = 8
    clients: int = 1
    radius: float = 1.0

    def __post_init__(self) -> None:
        self._settle(PureDP)
        whole("bits", self.bits, 1, 16)
        power_of_e(self.privacy.epsilon)

    def _slack(self, k: int) -> float:
        """s² over k."""
        return (1 + 2**k / math.expm1(self.privacy.epsilon)) ** 2 / k

    @cached_property
    def count(self) -> int:
        """k."""
        return min(range(1, min(self.bits, self.dimension) + 1), key=self._slack)

    @cached_property
    def clip(self) -> float:
        """c for R = 1."""
        return math.sqrt(1 - special.betaincinv((self.dimension - 1) / 2, 0.5, _CLIPPED / self.dimension))

    @cached_property
    def kept(self) -> float:
        """κ = 1 − d E[(|z| − c)⁺ |z|]: what clipping leaves of a vector."""
        d, c = self.dimension, self.clip
        # E[z²; |z| > c] and E[|z|; |z| > c] for a coordinate of a uniform point.
        square = float(special.betainc((d - 1) / 2, 1.5, 1 - c * c)) / d
        first = 2 * (1 - c * c) ** ((d - 1) / 2) / ((d - 1) * special.beta((d - 1) / 2, 0.5))
        return float(1 - d * (square - c * first))

    @cached_property
    def error(self) -> float:
        unit = self.dimension**2 * self._slack(self.count) * (self.clip / self.kept) ** 2 - 1
        return self.radius**2 * unit / self.clients

    @property
    def message_bits(self) -> int:
        return self.count

    def _mean(self, x: Array, rng: np.random.Generator) -> Array:
        n, d = x.shape
        keys = [(int(rng.integers(0, 1 << 62)), i) for i in range(n)]
        rotation = FastRotation(d, d)
        z = np.clip(rotation.turned(x, keys), -self.clip, self.clip)
        chosen = np.argsort(rng.random((n, d)), axis=1)[:, : self.count]
        up = rng.random((n, self.count)) < 0.5 + np.take_along_axis(z, chosen, axis=1) / (2 * self.clip)
        # The text is kept with probability (e^ε − 1)/(e^ε + 2^k − 1), and otherwise uniform on all.
        s = math.sqrt(self._slack(self.count) * self.count)
        other = rng.integers(0, 2, up.shape).astype(bool)
        up = np.where(rng.random((n, 1)) < 1 / s, up, other)
        out = np.zeros((n, d))
        np.put_along_axis(out, chosen, np.where(up, 1.0, -1.0), axis=1)
        scale = d / self.count * self.clip * s / self.kept
        return np.asarray(rotation.turned_back(scale * out, keys).mean(axis=0))
