r"""A whole vector in b bits: the vertices of a randomly rotated simplex, k of which are called near.

Both ends derive a rotation from a shared seed. Of the :math:`M = 2^b` vertices of a simplex in that rotation exactly k, those of largest inner product
with the input, are *near*, whatever the ties; one of them is sent with probability E / (kE + M − k) each, another with 1 / (kE + M − k).
E ≤ e^ε is rational, hence every probability; which vertices are called near may be settled in floating-point numbers, as the
guarantee holds for any k of them. With :math:`T_k` the mean sum of the k largest of M normals,

.. math:: c_k = \sqrt{\tfrac{M}{M-1}}\, \frac{T_k}{E\|G_D\|}, \qquad r = \frac{kE + M - k}{(E - 1)\, c_k},

:math:`r v_J` has the mean x over the rotation, and the error :math:`r^2 - 1` on the sphere; k is the best.
(Isik, Chen, Özgür, Weissman, No 2023: the best for this codebook.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import generator, one_of, settle, whole
from mechdesign.problem.privacy import PureDP
from mechdesign.typing import Array, Indices
from mechdesign.vectors.ball import VectorMechanism
from mechdesign.vectors.near import NearResponse
from mechdesign.vectors.normal_tops import chi_mean, top_squares, top_sum
from mechdesign.vectors.randomness import checked_key, fresh_seed
from mechdesign.vectors.rotation import Rotation, rotation_of
from mechdesign.vectors.simplex import vertex_products, vertices, weighted_sum

__all__ = ["LARGEST_BITS", "SphereQuantizer"]

LARGEST_BITS = 16
_PART = 1 << 22  # numbers held at a time


@serializable("sphere-quantizer")
@dataclass(frozen=True)
class SphereQuantizer(VectorMechanism, NearResponse):
    """A vector of any length in b bits under one budget.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    bits : int
        b from 1 to 16, with 2^b at most one more than the working dimension.
    privacy : PureDP
    inputs : {"ball", "sphere"}
        Lengths at most `radius`, or exactly `radius`.
    radius : float
    rotation : {"exact", "fast"}
        The uniform law, unbiased; or Walsh–Hadamard transforms, fast for many bits, with a bias that `rotation_bias` measures.

    Examples
    --------
    >>> mechanism = SphereQuantizer(500, 8, PureDP(4.0), inputs="sphere")
    >>> round(mechanism.error, 2), mechanism.near      # 1% above the best that any number of bits can do
    (218.79, 17)
    >>> x = np.eye(500)[:2]
    >>> mechanism.release(x).shape
    (2, 500)
    """

    dimension: int
    bits: int
    privacy: PureDP
    inputs: str = "ball"
    radius: float = 1.0
    rotation: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, bits=whole("bits", self.bits, 1, LARGEST_BITS))
        one_of("rotation", self.rotation, ("exact", "fast"))
        if self.outputs > self.working + 1:
            most = (self.working + 1).bit_length() - 1
            raise DesignError.of("bits", self.bits, f"must be at most {most} in {self.dimension} dimensions")
        _ = self._turn

    # -- the law --------------------------------------------------------------------------------------

    @cached_property
    def near(self) -> int:
        """k, the best number of near vertices: c_k over kE + M − k rises to one peak."""
        m, gain = self.outputs, min(float(self.power) - 1, 1e200) if self.power > 2 else float(self.power - 1)

        def worth(k: int) -> float:
            return top_sum(m, k) / (k * gain + m)

        low, high = 1, m - 1
        while low < high:
            middle = (low + high) // 2
            if worth(middle) < worth(middle + 1):
                low = middle + 1
            else:
                high = middle
        return low

    @cached_property
    def closeness(self) -> float:
        """c_k, the mean sum of the inner products of a unit input with its near vertices."""
        m = self.outputs
        return math.sqrt(m / (m - 1)) * top_sum(m, self.near) / chi_mean(self.working)

    @cached_property
    def factor(self) -> float:
        ratio = (self.near * self.power + self.outputs - self.near) / (self.power - 1)
        return float(ratio) / self.closeness

    @cached_property
    def second_moment(self) -> float:
        m, k, (more, less) = self.outputs, self.near, map(float, self.probabilities)
        near = m / (m - 1) * (top_squares(m, k) - k / m) / self.working
        return less * m / self.working + (more - less) * near

    @property
    def shared_error(self) -> float:
        """The squared error that averaging does not remove where all vectors share one rotation, for inputs of length R."""
        m, k = self.outputs, self.near
        return self.radius**2 * max(k * (m - k) / ((m - 1) * self.closeness**2) - 1, 0.0)

    @cached_property
    def _turn(self) -> Rotation:
        return rotation_of(self.rotation, self.working, self.outputs - 1)

    # -- codes ----------------------------------------------------------------------------------------

    def codes(self, x: Any, seed: int, *, first: int = 0, clip: bool = False) -> Indices:
        """Draw the number of a vertex for every vector, in exact integers with the operating system's randomness.

        Parameters
        ----------
        x : array_like, shape (..., d)
        seed : int
            Of the rotations; vector i is rotated by the seed and the number first + i.
        first : int
        clip : bool

        Returns
        -------
        ndarray of int, shape (n, 1)
        """
        y, (seed, first) = self.lifted(x, clip=clip), checked_key(seed, first)
        return self._drawn(y, seed, first, self._exact_ranks)[:, None]

    def decoded(self, codes: Any, seed: int, *, first: int = 0) -> Array:
        """Return the unbiased estimates, shape (n, d), of vectors whose codes these are."""
        index, (seed, first) = self._checked(codes)[:, 0], checked_key(seed, first)
        out = np.empty((index.size, self.dimension))
        for part in self._parts(index.size):
            keys = [(seed, first + i) for i in range(part.start, part.stop)]
            units = self._turn.turned_back(vertices(index[part], self.outputs - 1), keys)
            out[part] = self._answered(units, (len(keys), self.dimension))
        return out

    def _total(self, codes: Indices, seed: int, number: int) -> Array:
        """Counts of the vertices, turned back once."""
        counts = np.bincount(codes.ravel(), minlength=self.outputs).astype(float)
        total = weighted_sum(counts, self.outputs - 1)
        units = self._turn.turned_back(total[None, :], [(seed, number)])
        return self._answered(units, (self.dimension,))

    def _parts(self, count: int) -> list[slice]:
        step = max(1, _PART // max(self.working, self.outputs))
        return [slice(a, min(a + step, count)) for a in range(0, count, step)]

    def _drawn(self, y: Array, seed: int, first: int, ranks: Callable[[int], Indices]) -> Indices:
        """The vertex at a random place in an order that puts the near ones first."""
        out = np.empty(len(y), dtype=np.int64)
        for part in self._parts(len(y)):
            keys = [(seed, first + i) for i in range(part.start, part.stop)]
            products = vertex_products(self._turn.turned(y[part], keys))
            order = np.argpartition(-products, self.near - 1, axis=1)
            out[part] = np.take_along_axis(order, ranks(len(keys))[:, None], axis=1)[:, 0]
        return out

    # -- answers --------------------------------------------------------------------------------------

    def sample(self, x: Any, *, rng: Any = None, clip: bool = False) -> Array:
        """Draw an unbiased estimate of every vector, each under its own rotation, for simulation; deploy `release`.

        Parameters
        ----------
        x : array_like, shape (..., d)
        rng : seed or numpy Generator
        clip : bool
            Shorten vectors that are longer than `radius`.

        Returns
        -------
        ndarray of the shape of `x`
        """
        source, y = generator(rng), self.lifted(x, clip=clip)
        seed = int(source.integers(0, 1 << 62))
        return self.decoded(self._drawn(y, seed, 0, partial(self._simulated_ranks, source)), seed).reshape(
            np.shape(x)
        )

    def release(self, x: Any, *, clip: bool = False) -> Array:
        """Draw from the exact law, with the operating system's randomness, a fresh rotation for every vector."""
        y, seed = self.lifted(x, clip=clip), fresh_seed()
        return self.decoded(self._drawn(y, seed, 0, self._exact_ranks), seed).reshape(np.shape(x))

    def rotation_bias(self, x: Any, *, rng: Any = None, draws: int = 1000) -> tuple[float, float]:
        r"""Measure the relative bias :math:`\langle E\,M(x) - x, x\rangle / \|x\|^2` of the rotation at one vector, and its standard error.

        For the exact rotation it is zero. The mean over the answer's law is taken exactly, the one over rotations from draws.
        """
        y = self.lifted(np.reshape(x, (1, -1)))
        seed, count = int(generator(rng).integers(0, 1 << 62)), whole("draws", draws, 2)
        found = np.empty(count)
        for part in self._parts(count):
            keys = [(seed, i) for i in range(part.start, part.stop)]
            products = vertex_products(self._turn.turned(np.repeat(y, len(keys), axis=0), keys))
            largest = -np.partition(-products, self.near - 1, axis=1)[:, : self.near]
            found[part] = largest.sum(axis=1) / self.closeness - 1
        return float(found.mean()), float(found.std(ddof=1) / math.sqrt(count))
