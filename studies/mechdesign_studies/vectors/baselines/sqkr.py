r"""Subsampled and quantized Kashin's response (Chen, Kairouz, Özgür 2020).

Kashin's representation writes x as N = 2d numbers a_j, none above :math:`K/\sqrt N`, in a tight frame shared by seed: the inner products with the frame are cut
off at :math:`\eta (\delta N)^{-1/2}`, what is left over goes round again with a level η times lower, log N times, and
:math:`K = 1/((1 - \eta) \sqrt\delta)`; with the authors' η = 0.4 and δ = 0.8 that is K² = 3.47, and a bias of some hundredths. Each number is rounded at random to
:math:`\pm K/\sqrt N`; k of them, chosen by shared randomness, make a text of k bits that randomized response over 2^k texts protects with ε. With
:math:`s = (e^\varepsilon + 2^k - 1)/(e^\varepsilon - 1)` the error is :math:`d K^2 s^2/k` and a number below s; k is the best up to the bits.

In the place of Kashin's representation a random rotation does better: signs of the rotated coordinates, unbiased over the rotation, have :math:`\pi/2` in the place of K².
(Coordinates cut off where one vector in a hundred is, as deployments do, have about :math:`2 \log(100 d)`.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mechdesign.checks import integer, one_of
from mechdesign.problem.privacy import PureDP
from mechdesign.typing import Array
from mechdesign.vectors.ball import power_of_e
from mechdesign.vectors.sphere import FastRotation, Keys, chi_mean

from .common import Baseline

__all__ = ["SQKR"]

_ETA, _DELTA = 0.4, 0.8
_LEVEL = 1 / ((1 - _ETA) * math.sqrt(_DELTA))  # K


@dataclass(frozen=True)
class SQKR(Baseline):
    """SQKR, locally private, with Kashin's representation or with signs after a random rotation.

    Parameters
    ----------
    dimension : int
    privacy : PureDP
    bits : int
        At most so many for a vector, 1 to 16.
    clients : int
    radius : float
    representation : {"kashin", "rotation"}

    Examples
    --------
    >>> round(SQKR(500, PureDP(4.0), bits=8).error)
    731
    >>> round(SQKR(500, PureDP(4.0), bits=8, representation="rotation").error)
    330
    """

    dimension: int
    privacy: PureDP
    bits: int = 8
    clients: int = 1
    radius: float = 1.0
    representation: str = "kashin"

    def __post_init__(self) -> None:
        self._settle(PureDP)
        integer("bits", self.bits, 1, 16)
        one_of("representation", self.representation, ("kashin", "rotation"))
        power_of_e(self.privacy.epsilon)

    def _slack(self, k: int) -> float:
        """s² over k."""
        return (1 + 2**k / math.expm1(self.privacy.epsilon)) ** 2 / k

    @cached_property
    def count(self) -> int:
        """k."""
        return min(range(1, min(self.bits, self.dimension) + 1), key=self._slack)

    @property
    def numbers(self) -> int:
        """N, of the representation."""
        return 2 * self.dimension if self.representation == "kashin" else self.dimension

    @cached_property
    def constant(self) -> float:
        """K², or what it is for signs: 1/(d (E|z|)²) for a coordinate z of a uniform point."""
        if self.representation == "kashin":
            return _LEVEL**2
        return math.pi / 2 * chi_mean(self.dimension) ** 2 / self.dimension

    @cached_property
    def error(self) -> float:
        """For Kashin's representation of a vector of length R, that of an unbiased one: the bias is left out."""
        d, n, k = self.dimension, self.numbers, self.count
        slack = self._slack(k)
        # Two chosen numbers agree more often than independent ones do; a rotation hides it, a frame of 2d vectors does not.
        both = math.sqrt(slack * k) * (k - 1) / k * n / (n - 1) * (1 - d / n)
        return self.radius**2 * (d * self.constant * slack + both - 1) / self.clients

    @property
    def message_bits(self) -> int:
        return self.count

    def _represented(self, x: Array, keys: Keys) -> Array:
        """Kashin's representation of rows of length at most 1, shape (n, N)."""
        frame, (n, d) = FastRotation(self.numbers, self.numbers), x.shape
        a, rest, level = np.zeros((n, self.numbers)), np.zeros((n, self.numbers)), _ETA
        rest[:, :d] = x
        for _ in range(int(math.log(self.numbers))):
            limit = level / math.sqrt(_DELTA * self.numbers)
            part = np.clip(frame.turned(rest, keys), -limit, limit)
            a += part
            rest[:, :d] -= frame.turned_back(part, keys)[:, :d]
            level *= _ETA
        return a + frame.turned(rest, keys)

    def _mean(self, x: Array, rng: np.random.Generator) -> Array:
        n, d = x.shape
        keys = [(int(rng.integers(0, 1 << 62)), i) for i in range(n)]
        frame, chance = FastRotation(self.numbers, self.numbers), rng.random((n, self.count))
        chosen = np.argsort(rng.random((n, self.numbers)), axis=1)[:, : self.count]
        if self.representation == "kashin":
            parts = self._represented(x, keys) * math.sqrt(self.numbers) / _LEVEL
        else:
            parts = np.sign(frame.turned(x, keys)) * np.sqrt((x**2).sum(axis=1, keepdims=True))
        up = chance < 0.5 + np.take_along_axis(parts, chosen, axis=1) / 2
        # The text is kept with probability (e^ε − 1)/(e^ε + 2^k − 1), and otherwise uniform on all.
        s = math.sqrt(self._slack(self.count) * self.count)
        other = rng.integers(0, 2, up.shape).astype(bool)
        up = np.where(rng.random((n, 1)) < 1 / s, up, other)
        out = np.zeros((n, self.numbers))
        np.put_along_axis(out, chosen, np.where(up, 1.0, -1.0), axis=1)
        scale = math.sqrt(self.constant * self.numbers) * s / self.count
        return np.asarray(frame.turned_back(scale * out, keys)[:, :d].mean(axis=0))
