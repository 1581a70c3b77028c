r"""A whole vector in b bits: the vertices of a randomly rotated simplex, k of which are called near.

Both ends derive a rotation from a shared seed. Of the :math:`M = 2^b` vertices of a simplex in that rotation exactly k, those of largest inner product
with the input, are *near*, whatever the ties; one of them is sent with probability E / (kE + M − k) each, another with 1 / (kE + M − k).
E ≤ e^ε is rational, hence every probability; which vertices are called near may be settled in floating-point numbers, as the
guarantee holds for any k of them. With :math:`T_k` the mean sum of the k largest of M normals,

.. math:: c_k = \sqrt{\tfrac{M}{M-1}}\, \frac{T_k}{E\|G_D\|}, \qquad r = \frac{kE + M - k}{(E - 1)\, c_k},

:math:`r v_J` has the mean x over the rotation, and the error :math:`r^2 - 1` on the sphere; k is the best.
(Isik, Chen, Özgür, Weissman, No 2023: the best for this codebook.)

Expected sums of the largest of M independent normals, and of their squares: what the k closest vertices are worth.

With S the survival function of the normal law and φ its density, the sum of the k largest has the mean
:math:`\int x \varphi M\, P[\mathrm{Bin}(M-1, S(x)) < k]\,dx`; by parts, with V beta-distributed with parameters (M − k, k) and
:math:`Z = \Phi^{-1}(V)`,

.. math:: T_k = M\, E\,\varphi(Z), \qquad Q_k = E \sum_{i \le k} g_{(i)}^2 = k + M\, E\, Z \varphi(Z) .

The integrands are smooth and decay on both sides, so that the trapezoidal rule converges faster than any power of its step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import special

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import generator, one_of, whole
from mechdesign.problem.fields import field
from mechdesign.problem.privacy import PureDP
from mechdesign.typing import Array, Indices
from mechdesign.vectors.ball import VectorMechanism, checked_dimension, checked_radius
from mechdesign.vectors.coded import SubsetSelection
from mechdesign.vectors.randomness import checked_key, fresh_seed
from mechdesign.vectors.rotation import Rotation, rotation_of, vertex_products, vertices, weighted_sum

__all__ = ["LARGEST_BITS", "SphereQuantizer"]

LARGEST_BITS = 16
_PART = 1 << 22  # numbers held at a time


@serializable("sphere-quantizer")
@dataclass(frozen=True)
class SphereQuantizer(VectorMechanism, SubsetSelection):
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

    dimension: int = field(check=checked_dimension)
    bits: int = field(check=whole, least=1, most=LARGEST_BITS)
    privacy: PureDP = field(PureDP)
    inputs: str = field(check=one_of, allowed=("ball", "sphere"), default="ball")
    radius: float = field(check=checked_radius, default=1.0)
    rotation: str = field(check=one_of, allowed=("exact", "fast"), default="exact")

    def __post_init__(self) -> None:
        super().__post_init__()
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
            order = np.argsort(-products, axis=1, kind="stable")  # on every processor alike
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


# -- order statistics of normals ----------------------------------------------------------------------------------

_NODES = np.linspace(-12.0, 12.0, 2401)
_STEP = float(_NODES[1] - _NODES[0])
_LOG_DENSITY = -0.5 * _NODES**2 - 0.5 * math.log(2 * math.pi)
_LOG_BELOW, _LOG_ABOVE = special.log_ndtr(_NODES), special.log_ndtr(-_NODES)


def _weighted(m: int, k: int) -> Array:
    """φ(x) times the density of Z at the nodes, times the step."""
    beta = special.betaln(m - k, k)
    logs = 2 * _LOG_DENSITY + (m - k - 1) * _LOG_BELOW + (k - 1) * _LOG_ABOVE - beta
    return np.asarray(np.exp(logs) * _STEP)


def top_sum(m: int, k: int) -> float:
    """Return the mean of the sum of the `k` largest of `m` independent standard normals, 1 ≤ k < m.

    Examples
    --------
    >>> round(top_sum(2, 1), 12) == round(math.pi**-0.5, 12)
    True
    """
    return float(m * _weighted(m, k).sum())


def top_squares(m: int, k: int) -> float:
    """Return the mean of the sum of the squares of the `k` largest of `m` independent standard normals.

    Examples
    --------
    >>> round(top_squares(2, 1), 12)
    1.0
    """
    return float(k + m * (_weighted(m, k) * _NODES).sum())


def chi_mean(d: int) -> float:
    r"""Return the mean length of a standard normal vector, :math:`\sqrt2\,\Gamma((d+1)/2)/\Gamma(d/2)`.

    Examples
    --------
    >>> round(chi_mean(1) ** 2 * math.pi, 12)
    2.0
    """
    if d < 300:
        return math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
    # The difference of the logarithms would lose digits; the asymptotic series has them all here.
    x = 1 / d
    return math.sqrt(d) * (1 - x / 4 + x**2 / 32 + 5 * x**3 / 128 - 21 * x**4 / 2048)
