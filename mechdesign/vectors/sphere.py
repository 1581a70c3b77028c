r"""A whole vector in b bits: the vertices of a randomly rotated simplex, k of which are called near.

Both ends derive a rotation from a shared seed. Of the :math:`M = 2^b` vertices of a simplex in that rotation exactly k, those of largest inner product
with the input, are *near*, with ties broken in any way; each near one is sent with probability E / (kE + M − k), each other one with 1 / (kE + M − k).
E ≤ e^ε is rational, hence every probability; floating-point numbers may decide which vertices are near, as the
guarantee holds for any k of them. With :math:`T_k` the mean sum of the k largest of M normals,

.. math:: c_k = \sqrt{\tfrac{M}{M-1}}\, \frac{T_k}{E\|G_D\|}, \qquad r = \frac{kE + M - k}{(E - 1)\, c_k},

:math:`r v_J` has the mean x over the rotation, and the error :math:`r^2 - 1` on the sphere; k is optimal.
(Isik, Chen, Özgür, Weissman, No 2023: the best for this codebook.)

**Expected sums** of the k largest of M independent normals, and of their squares, give the inner products of the near vertices.

With S the survival function of the normal law and φ its density, the sum of the k largest has the mean
:math:`\int x \varphi M\, P[\mathrm{Bin}(M-1, S(x)) < k]\,dx`; by parts, with V beta-distributed with parameters (M − k, k) and
:math:`Z = \Phi^{-1}(V)`,

.. math:: T_k = M\, E\,\varphi(Z), \qquad Q_k = E \sum_{i \le k} g_{(i)}^2 = k + M\, E\, Z \varphi(Z) .

The integrands are smooth and decay on both sides, so that the trapezoidal rule converges faster than any power of its step.

**Rotations.** `ExactRotation` has the uniform law: Q of the QR decomposition, with a positive diagonal of R, of a D × n Gaussian frame A (raw
``qr`` is biased), as :math:`Q^\top x = R^{-\top} A^\top x`. `FastRotation` is a product of sign flips and Walsh–Hadamard transforms on two overlapping blocks with a fixed shuffle between
rounds: orthogonal, in O(D log D), and of nearly the uniform law only. Privacy holds under any rotation; an answer is exactly unbiased under
the uniform law. Under any rotation the inner products of the near vertices with the input have a non-negative sum, as all together sum to 0: hence
:math:`E\|r v_J - x\|^2 \le r^2 + 1`. The vertices are those of a regular simplex of unit vectors in n dimensions, never formed as a matrix:

.. math:: v_i = \sqrt{1 + \tfrac1n}\, e_i - \frac{\sqrt{n+1} - 1}{n\sqrt n}\, \mathbf 1 \quad (i < n), \qquad v_n = -\tfrac1{\sqrt n} \mathbf 1 .
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, special

from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import field, generator, integer, magnitude, one_of
from mechdesign.problem.privacy import PureDP
from mechdesign.solvers.deadline import one_thread
from mechdesign.typing import Array, Indices, Numbers, Randomness
from mechdesign.vectors.ball import VectorMechanism, checked_dimension, halved_sum
from mechdesign.vectors.coded import SubsetSelection, best_near, checked_key, shared_normals, shared_words

LARGEST_BITS = 16
LARGEST_FRAME = 1 << 27  # most numbers of an exact rotation: a gigabyte
_PART = 1 << 16  # numbers rotated at a time: they fit a processor's cache


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
    bits: int = field(check=integer, least=1, most=LARGEST_BITS)
    privacy: PureDP = field(PureDP)
    inputs: str = field(check=one_of, allowed=("ball", "sphere"), default="ball")
    radius: float = field(check=magnitude, default=1.0)
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
        return best_near(self.outputs, self.power, lambda k: top_sum(self.outputs, k))

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
    def spread(self) -> float:
        m, k, (more, less) = self.outputs, self.near, map(float, self.probabilities)
        near = m / (m - 1) * (top_squares(m, k) - k / m) / self.working
        return 1 - (less * m / self.working + (more - less) * near)

    @property
    def shared_error(self) -> float:
        """Squared error that averaging does not remove if all vectors share one rotation, for inputs of length R."""
        m, k = self.outputs, self.near
        return self.radius**2 * max(k * (m - k) / ((m - 1) * self.closeness**2) - 1, 0.0)

    @property
    def proved_error(self) -> float:
        """Upper bound on the expected squared error of every input, bias included: for the fast rotation R²(r² + 1)."""
        return self.error if self.rotation == "exact" else self.radius**2 * (self.factor**2 + 1)

    @cached_property
    def _turn(self) -> Rotation:
        kind = ExactRotation if self.rotation == "exact" else FastRotation
        return kind(self.working, self.outputs - 1)

    # -- codes ----------------------------------------------------------------------------------------

    def decoded(self, codes: Numbers, seed: int, *, first: int = 0) -> Array:
        """Return the unbiased estimates, shape (n, d), of vectors whose codes these are."""
        index, (seed, first) = self._checked(codes)[:, 0], checked_key(seed, first)
        out = np.empty((index.size, self.dimension))
        for part, keys in self._parts(index.size, seed, first):
            chosen = weighted_sums(np.equal.outer(index[part], np.arange(self.outputs)).astype(float))
            out[part] = self._answered(self._turn.turned_back(chosen, keys), (len(keys), self.dimension))
        return out

    def _total(self, codes: Indices, seed: int, number: int) -> Array:
        """Sum the estimates from counts of the vertices, rotated back once."""
        counts = np.bincount(codes.ravel(), minlength=self.outputs).astype(float)
        units = self._turn.turned_back(weighted_sums(counts[None, :]), [(seed, number)])
        return self._answered(units, (self.dimension,))

    def _parts(self, count: int, seed: int, first: int = 0) -> Iterator[tuple[slice, Keys]]:
        """Yield slices of the vectors that fit the cache, with their keys."""
        step = max(1, _PART // self.working)
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            yield part, [(seed, first + i) for i in range(part.start, part.stop)]

    def _drawn(
        self, x: Numbers, seed: int, first: int, clip: bool, rng: np.random.Generator | None
    ) -> Indices:
        """Draw the vertex at a random place in the order of falling inner products."""
        y = self.lifted(x, clip=clip)
        ranks = self._ranks(len(y), rng)[:, None]
        out = np.empty_like(ranks)
        for part, keys in self._parts(len(y), seed, first):
            products = vertex_products(self._turn.turned(y[part], keys))
            order = np.argsort(-products, axis=1, kind="stable")  # the same on every processor
            out[part] = np.take_along_axis(order, ranks[part], axis=1)
        return out

    def rotation_bias(self, x: Numbers, *, rng: Randomness = None, draws: int = 1000) -> tuple[float, float]:
        r"""Measure the relative bias :math:`\langle E\,M(x) - x, x\rangle / \|x\|^2` of the rotation at one vector, and its standard error.

        For the exact rotation it is zero. The mean over the answer's law is exact, that over rotations is estimated from draws.
        """
        y = self.lifted(x)
        if len(y) != 1:
            raise DataError("x: must be one vector")
        seed, count = int(generator(rng).integers(0, 1 << 62)), integer("draws", draws, 2)
        found = np.empty(count)
        for part, keys in self._parts(count, seed):
            products = vertex_products(self._turn.turned(np.repeat(y, len(keys), axis=0), keys))
            largest = -np.partition(-products, self.near - 1, axis=1)[:, : self.near]
            found[part] = largest.sum(axis=1) / self.closeness - 1
        return float(found.mean()), float(found.std(ddof=1) / math.sqrt(count))


# -- order statistics of normals ----------------------------------------------------------------------------------

_NODES = np.linspace(-12.0, 12.0, 9601)  # their step is half of the integrand's least width, at 2¹⁶ normals
_STEP = float(_NODES[1] - _NODES[0])
_LOG_DENSITY = -0.5 * _NODES**2 - 0.5 * math.log(2 * math.pi)
_LOG_BELOW, _LOG_ABOVE = special.log_ndtr(_NODES), special.log_ndtr(-_NODES)


def _weighted(m: int, k: int) -> Array:
    """Return φ(x) times the density of Z at the nodes, times the step."""
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
    # The difference of the logarithms would lose digits; the asymptotic series is accurate here.
    x = 1 / d
    return math.sqrt(d) * (1 - x / 4 + x**2 / 32 + 5 * x**3 / 128 - 21 * x**4 / 2048)


_ROUNDS = 4
Keys = Sequence[tuple[int, int]]
"""A seed and a number for every vector."""


@dataclass(frozen=True)
class Rotation(ABC):
    """The first `kept` coordinates of rotated vectors of a dimension.

    Parameters
    ----------
    dimension, kept : int
    """

    dimension: int
    kept: int

    @abstractmethod
    def turned(self, x: Array, keys: Keys) -> Array:
        """Rotate vectors (n, D), each under its key; return their first coordinates (n, kept)."""

    @abstractmethod
    def turned_back(self, z: Array, keys: Keys) -> Array:
        """Rotate vectors (n, kept) back; return (n, D)."""


@dataclass(frozen=True)
class ExactRotation(Rotation):
    """A rotation of uniform law."""

    def __post_init__(self) -> None:
        if self.dimension * self.kept > LARGEST_FRAME:
            raise DesignError(
                f"an exact rotation of {self.dimension} dimensions to {self.kept} needs {self.dimension * self.kept:.3g} "
                "normal numbers a vector: fewer bits, or rotation='fast'"
            )

    def frame(self, key: tuple[int, int]) -> Array:
        """Return the Gaussian frame A, shape (D, n)."""
        return shared_normals(*key, self.dimension * self.kept).reshape(self.dimension, self.kept)

    def _decomposed(self, keys: Keys) -> Iterator[tuple[Array, Array]]:
        """Yield A and R, with positive diagonal, for each key."""
        with one_thread():
            for key in keys:
                frame = self.frame(key)
                r = np.linalg.qr(frame, mode="r")
                yield frame, r * np.sign(np.diag(r))[:, None]

    def turned(self, x: Array, keys: Keys) -> Array:
        parts = zip(x, self._decomposed(keys))
        return np.array([linalg.solve_triangular(r, y @ frame, trans=1) for y, (frame, r) in parts])

    def turned_back(self, z: Array, keys: Keys) -> Array:
        parts = zip(z, self._decomposed(keys))
        return np.array([frame @ linalg.solve_triangular(r, y) for y, (frame, r) in parts])


class FastRotation(Rotation):
    """Sign flips and Walsh–Hadamard transforms, four rounds."""

    def _signs(self, keys: Keys) -> Array:
        """Return signs ±1, shape (rounds, n, D)."""
        words = -(-_ROUNDS * self.dimension // 64)
        bits = np.stack([shared_words(*key, words) for key in keys])
        flat = np.unpackbits(bits.astype("<u8").view(np.uint8), axis=1, bitorder="little")
        flat = flat[:, : _ROUNDS * self.dimension].reshape(len(keys), _ROUNDS, self.dimension)
        return np.where(flat, -1.0, 1.0).transpose(1, 0, 2)

    def _mixed(self, x: Array, *, back: bool = False) -> Array:
        """Transform the first coordinates, then the last ones, in place; in reverse order with `back`."""
        size = 1 << (self.dimension.bit_length() - 1)
        blocks = [slice(start, start + size) for start in {0, self.dimension - size}]
        for block in sorted(blocks, key=lambda each: each.start, reverse=back):
            y = x[:, block]
            for _ in range(
                size.bit_length() - 1
            ):  # in the order that docs/wire.md states, not that of a matrix product
                y = np.hstack([y[:, ::2] + y[:, 1::2], y[:, ::2] - y[:, 1::2]])
            x[:, block] = y / math.sqrt(size)
        return x

    def turned(self, x: Array, keys: Keys) -> Array:
        half = (self.dimension + 1) // 2
        with one_thread():
            for flips in self._signs(keys):
                mixed = self._mixed(x * flips)
                # Interleave the two halves.
                x = np.empty_like(mixed)
                x[:, ::2], x[:, 1::2] = mixed[:, :half], mixed[:, half:]
        return x[:, : self.kept]

    def turned_back(self, z: Array, keys: Keys) -> Array:
        x = np.zeros((len(keys), self.dimension))
        x[:, : self.kept] = z
        with one_thread():
            for flips in self._signs(keys)[::-1]:
                x = self._mixed(np.hstack([x[:, ::2], x[:, 1::2]]), back=True) * flips
        return x


# -- the simplex that is rotated ----------------------------------------------------------------------------------


def _constants(n: int) -> tuple[float, float]:
    return math.sqrt(1 + 1 / n), (math.sqrt(n + 1) - 1) / (n * math.sqrt(n))


def vertex_products(z: Array) -> Array:
    """Return the inner products of vectors (count, n) with all vertices; shape (count, n + 1).

    Examples
    --------
    >>> vertex_products(weighted_sums(np.eye(3))).round(12).tolist()
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    n = z.shape[1]
    along, back = _constants(n)
    total = halved_sum(z)
    return np.hstack([along * z - back * total, -total / math.sqrt(n)])


def weighted_sums(counts: Array) -> Array:
    """Return sums of the vertices weighted by counts over the last axis; shape (n,) for n + 1 counts.

    Examples
    --------
    >>> bool(np.allclose(weighted_sums(np.array([1.0, 0.0, 2.0])), weighted_sums(np.eye(3))[[0, 2, 2]].sum(axis=0)))
    True
    """
    n = counts.shape[-1] - 1
    along, back = _constants(n)
    first, last = counts[..., :n], counts[..., n:]
    return np.asarray(along * first - back * first.sum(axis=-1, keepdims=True) - last / math.sqrt(n))
