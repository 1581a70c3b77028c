r"""Signs of sampled coordinates, sent together: ℓ∞-bounded vectors in a few bits under one budget.

b of d coordinates, chosen by shared randomness, are each rounded at random to −1 or 1. Of the 2^b texts of b signs those that differ from the rounded one in at most
j places are near; one of the k near ones is sent with probability E / (kE + 2^b − k) each, another with 1 / (kE + 2^b − k), E ≤ e^ε rational. With the
mean agreement of a sign with its answer, and the answer y to the chosen coordinates,

.. math:: a = \frac{(E - 1) \sum_{i \le j} \binom bi (b - 2i)/b}{kE + 2^b - k}, \qquad
   \text{estimate } \frac{d}{b\,a}\, y, \qquad \text{error } \frac{d^2}{b\,a^2} - \|x\|^2,

exactly, whatever the input; j is the best. For j = 0 it is randomized response over the texts (Chen, Kairouz, Özgür 2020, without their representation).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.sampling import random_words
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import generator, settle, whole
from mechdesign.problem.privacy import PureDP
from mechdesign.typing import Array, Indices
from mechdesign.vectors.ball import checked_dimension, checked_radius, power_of_e, scaled_vectors
from mechdesign.vectors.near import NearResponse
from mechdesign.vectors.randomness import checked_key, fresh_seed, shared_subsets

__all__ = ["LARGEST_BITS", "SampledSigns"]

LARGEST_BITS = 16


@serializable("sampled-signs")
@dataclass(frozen=True)
class SampledSigns(NearResponse):
    """The signs of a few coordinates, together under one budget.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    bits : int
        b, how many coordinates are sent, 1 to 16 and at most d.
    privacy : PureDP
        Of the whole vector.
    radius : float
        R: coordinates are in [−R, R].

    Examples
    --------
    >>> mechanism = SampledSigns(1000, 4, PureDP(4.0))
    >>> round(mechanism.error)
    421537
    >>> mechanism.decode(mechanism.encode(np.zeros((3, 1000)))).shape
    (3, 1000)
    """

    dimension: int
    bits: int
    privacy: PureDP
    radius: float = 1.0

    def __post_init__(self) -> None:
        settle(
            self,
            dimension=checked_dimension(self.dimension),
            bits=whole("bits", self.bits, 1, LARGEST_BITS),
            privacy=DesignError.unless("privacy", self.privacy, PureDP),
            radius=checked_radius(self.radius),
        )
        if self.bits > self.dimension:
            raise DesignError.of("bits", self.bits, f"must be at most {self.dimension}, the coordinates")
        _ = self.power

    # -- the law --------------------------------------------------------------------------------------

    @property
    def inputs(self) -> str:
        """ "box": coordinates in [−R, R]."""
        return "box"

    @cached_property
    def power(self) -> Fraction:
        """E, the rational lower bound of e^ε that every probability is made of."""
        return power_of_e(self.privacy.epsilon)

    def _agreement(self, flips: int) -> Fraction:
        b, rows = self.bits, range(flips + 1)
        near = sum(math.comb(b, i) for i in rows)
        total = near * self.power + self.outputs - near
        return (self.power - 1) * sum(math.comb(b, i) * (b - 2 * i) for i in rows) / (b * total)

    @cached_property
    def flips(self) -> int:
        """j, in how many places a near text may differ."""
        return max(range((self.bits + 1) // 2), key=self._agreement)

    @property
    def near(self) -> int:
        """k, how many texts are near."""
        return sum(math.comb(self.bits, i) for i in range(self.flips + 1))

    @cached_property
    def agreement(self) -> Fraction:
        """a, the mean product of a chosen sign and its answer."""
        return self._agreement(self.flips)

    @property
    def stretch(self) -> float:
        """What a sign stands for: R d/(b a)."""
        return self.radius * float(self.dimension / (self.bits * self.agreement))

    def squared_error(self, x: Any) -> Array:
        """Expected squared error E‖M(x) − x‖² at vectors x, shape (..., d)."""
        y = scaled_vectors(x, self.dimension, self.radius, "box", clip=False)
        found = self.bits * self.stretch**2 - self.radius**2 * (y**2).sum(axis=-1)
        return np.asarray(found).reshape(np.shape(x)[:-1])

    @property
    def error(self) -> float:
        """Expected squared error of the worst input, 0."""
        return self.bits * self.stretch**2

    def privacy_loss(self) -> float:
        """ε between any two vectors: the probabilities differ by the factor E ≤ e^ε, exactly."""
        return self.privacy.epsilon

    # -- codes ----------------------------------------------------------------------------------------

    @cached_property
    def _order(self) -> Indices:
        """Which signs to change, the fewest first."""
        count = np.array([v.bit_count() for v in range(self.outputs)])
        return np.argsort(count, kind="stable")

    def _texts(self, x: Any, seed: int, first: int, clip: bool, chance: Any) -> Indices:
        """The rounded signs of the chosen coordinates as integers, lowest bit first; chance(shape) is uniform on [0, 1)."""
        y = scaled_vectors(x, self.dimension, self.radius, "box", clip=clip)
        part = np.take_along_axis(y, shared_subsets(seed, first, len(y), self.dimension, self.bits), axis=1)
        up = chance(part.shape) < (1 + part) / 2
        return np.asarray(up @ (1 << np.arange(self.bits)), dtype=np.int64)

    def codes(self, x: Any, seed: int, *, first: int = 0, clip: bool = False) -> Indices:
        """Draw a text of signs for every vector, in exact integers with the operating system's randomness; shape (n, 1)."""

        def chance(shape: tuple[int, ...]) -> Array:
            words = random_words(math.prod(shape)) >> np.uint64(11)
            return np.asarray(words.astype(float) * 2.0**-53).reshape(shape)

        texts = self._texts(x, *checked_key(seed, first), clip, chance)
        return (texts ^ self._order[self._exact_ranks(len(texts))])[:, None]

    def _signs(self, codes: Indices) -> Array:
        """±1, shape (n, b)."""
        return np.where((codes[:, None] >> np.arange(self.bits)) & 1, 1.0, -1.0)

    def decoded(self, codes: Any, seed: int, *, first: int = 0) -> Array:
        """Return the unbiased estimates, shape (n, d), of vectors whose codes these are."""
        index, (seed, first) = self._checked(codes)[:, 0], checked_key(seed, first)
        out = np.zeros((len(index), self.dimension))
        chosen = shared_subsets(seed, first, len(index), self.dimension, self.bits)
        np.put_along_axis(out, chosen, self.stretch * self._signs(index), axis=1)
        return out

    def _total(self, codes: Indices, seed: int, number: int) -> Array:
        total = np.zeros(self.dimension)
        chosen = shared_subsets(seed, number, 1, self.dimension, self.bits)[0]
        total[chosen] = self.stretch * self._signs(codes.ravel()).sum(axis=0)
        return total

    # -- answers --------------------------------------------------------------------------------------

    def sample(self, x: Any, *, rng: Any = None, clip: bool = False) -> Array:
        """Draw an unbiased estimate of every vector, for simulation; deploy `release`."""
        source = generator(rng)
        seed = int(source.integers(0, 1 << 62))
        texts = self._texts(x, seed, 0, clip, source.random)
        drawn = texts ^ self._order[self._simulated_ranks(source, len(texts))]
        return self.decoded(drawn[:, None], seed).reshape(np.shape(x))

    def release(self, x: Any, *, clip: bool = False) -> Array:
        """Draw from the exact law, with the operating system's randomness, fresh coordinates for every vector."""
        seed = fresh_seed()
        return self.decoded(self.codes(x, seed, clip=clip), seed).reshape(np.shape(x))
