r"""I-MVU (Guo, Chaudhuri, Stock, Rabbat 2023): every coordinate in a few bits, log-probabilities linear in the input.

Between the laws :math:`p_0, p_1` of an MVU mechanism at the ends of [−R, R] the output j has, at :math:`t = (x + R)/2R`, the probability :math:`\propto p_0(j)^{1-t} p_1(j)^t`: an
exponential family with natural parameter t, whose Rényi divergences are differences of its log-partition function A. A″ is the variance of :math:`\log p_1/p_0`, at most a
quarter of its squared range ω²: :math:`D_\alpha \le \tfrac{\alpha}{8}\, \omega^2 \|t - t'\|_2^2`, for all coordinates together, and two vectors of length R are 1 apart in t. One bit: ±a with
:math:`a = R/\tanh(\omega/4)`, which has no bias at −R, 0 and R, and little between.

This is the authors' program (facebookresearch/dp_compression: ``b_in = 1``, two rows that are each other's mirror image, interpolated log-probabilities,
:math:`D_\alpha \le \tfrac\alpha2 I \|t - t'\|^2` with the largest Fisher information I, ω²/4 for one bit) at one output bit, without the ℓ∞ clip below R that it tunes on data:
with clip βR, β → 0, the error falls to that of Gaussian noise (by a tenth at d = 500, ε = 4), and vectors with a large coordinate are biased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mechdesign.problem.privacy import ApproximateDP
from mechdesign.typing import Array

from .common import ORDERS, Baseline, calibrated

__all__ = ["InterpolatedMVU"]


@dataclass(frozen=True)
class InterpolatedMVU(Baseline):
    """I-MVU with one bit a coordinate, locally private; the bits of the paper's own comparison with signs.

    Parameters
    ----------
    dimension : int
    privacy : ApproximateDP
    clients : int
        Each is protected on its own.
    radius : float

    Examples
    --------
    >>> baseline = InterpolatedMVU(128, ApproximateDP(4.0, 1e-6))
    >>> round(baseline.error)
    910
    """

    dimension: int
    privacy: ApproximateDP
    clients: int = 1
    radius: float = 1.0

    def __post_init__(self) -> None:
        self._settle(ApproximateDP)
        _ = self.omega

    @cached_property
    def omega(self) -> float:
        """ω, the range of the log-ratio of the laws at the ends."""
        return 1 / calibrated(lambda noise: ORDERS / (8 * noise**2), self.privacy, 1e-3, 1e12)

    @property
    def output(self) -> float:
        """a for R = 1."""
        return 1 / math.tanh(self.omega / 4)

    def _average(self, x: Array) -> Array:
        """E M(x) for R = 1: a tanh(ω x/4)."""
        return np.asarray(self.output * np.tanh(self.omega * x / 4))

    @cached_property
    def error(self) -> float:
        """Of vectors with few, some or all coordinates alike: the largest."""
        found, n, d = [], self.clients, self.dimension
        for few in sorted({0, 1, 2, max(d // 4, 1), d}):
            x = np.zeros(d)
            x[:few] = 1 / math.sqrt(max(few, 1))
            mean = self._average(x)
            found.append(float((self.output**2 - mean**2).sum() / n + ((mean - x) ** 2).sum()))
        return self.radius**2 * max(found)

    @property
    def message_bits(self) -> int:
        return self.dimension

    def _mean(self, x: Array, rng: np.random.Generator) -> Array:
        up = rng.random(x.shape) < 0.5 + 0.5 * np.tanh(self.omega * x / 4)
        return np.asarray(np.where(up, self.output, -self.output).mean(axis=0))
