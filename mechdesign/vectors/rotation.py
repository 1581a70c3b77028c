r"""Rotations of the sphere that both ends of a message derive from a seed.

`ExactRotation` has the uniform law: Q of the QR decomposition, with a positive diagonal of R, of a D × n Gaussian frame A (raw ``qr`` is
biased). As :math:`A^\top A = R^\top R` it needs one Cholesky decomposition, :math:`Q^\top x = R^{-\top} A^\top x`, and n < D rows of the rotation.
`FastRotation` is a product of sign flips and Walsh–Hadamard transforms on two overlapping blocks with a fixed shuffle between rounds: orthogonal, in
O(D log D), and of nearly the uniform law only. Privacy holds under any rotation; an answer is exactly unbiased under the uniform law.

What is rotated are the vertices of a regular simplex of unit vectors in n dimensions, never written as a matrix:

.. math:: v_i = \sqrt{1 + \tfrac1n}\, e_i - \frac{\sqrt{n+1} - 1}{n\sqrt n}\, \mathbf 1 \quad (i < n), \qquad v_n = -\tfrac1{\sqrt n} \mathbf 1 .
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import linalg

from mechdesign.errors import DesignError
from mechdesign.solvers.one_thread import one_thread
from mechdesign.typing import Array, Indices
from mechdesign.vectors.randomness import shared_normals, shared_words

__all__ = [
    "ExactRotation",
    "FastRotation",
    "Rotation",
    "rotation_of",
    "vertex_products",
    "vertices",
    "weighted_sum",
]

_ROUNDS = 4
_CHUNK = 32
_LARGEST_FRAME = 1 << 27  # numbers: a gigabyte
_SQUARE = 0.8  # frames nearer to square are worse conditioned: Householder's QR
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

    def __post_init__(self) -> None:
        if not 1 <= self.kept <= self.dimension:
            raise DesignError.of("kept", self.kept, f"must be from 1 to {self.dimension}")

    @abstractmethod
    def turned(self, x: Array, keys: Keys) -> Array:
        """Rotate vectors (n, D), each under its key; return their first coordinates (n, kept)."""

    @abstractmethod
    def turned_back(self, z: Array, keys: Keys) -> Array:
        """Rotate vectors (n, kept) back; return (n, D)."""


class ExactRotation(Rotation):
    """A rotation of uniform law."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension * self.kept > _LARGEST_FRAME:
            raise DesignError(
                f"an exact rotation of {self.dimension} dimensions to {self.kept} needs {self.dimension * self.kept:.3g} "
                "normal numbers a vector: fewer bits, or rotation='fast'"
            )

    def frame(self, key: tuple[int, int]) -> Array:
        """The Gaussian frame A, shape (D, n)."""
        return shared_normals(*key, self.dimension * self.kept).reshape(self.dimension, self.kept)

    def _orthonormal(self, frame: Array) -> Array:
        q, r = np.linalg.qr(frame)
        return np.asarray(q * np.sign(np.diag(r)))

    def turned(self, x: Array, keys: Keys) -> Array:
        out = np.empty((len(keys), self.kept))
        with one_thread():
            self._turn(x, keys, out)
        return out

    def _turn(self, x: Array, keys: Keys, out: Array) -> None:
        for i, key in enumerate(keys):
            frame = self.frame(key)
            if self.kept > _SQUARE * self.dimension:
                out[i] = x[i] @ self._orthonormal(frame)
            else:
                lower = linalg.cholesky(frame.T @ frame, lower=True, check_finite=False)
                out[i] = linalg.solve_triangular(lower, x[i] @ frame, lower=True, check_finite=False)

    def turned_back(self, z: Array, keys: Keys) -> Array:
        out = np.empty((len(keys), self.dimension))
        with one_thread():
            self._turn_back(z, keys, out)
        return out

    def _turn_back(self, z: Array, keys: Keys, out: Array) -> None:
        for i, key in enumerate(keys):
            frame = self.frame(key)
            if self.kept > _SQUARE * self.dimension:
                out[i] = self._orthonormal(frame) @ z[i]
            else:
                lower = linalg.cholesky(frame.T @ frame, lower=True, check_finite=False)
                out[i] = frame @ linalg.solve_triangular(lower, z[i], lower=True, trans=1, check_finite=False)


class FastRotation(Rotation):
    """Sign flips and Walsh–Hadamard transforms, four rounds."""

    @property
    def _block(self) -> int:
        return 1 << (self.dimension.bit_length() - 1)

    def _signs(self, keys: Keys) -> Array:
        """Signs ±1, shape (rounds, n, D)."""
        words = -(-_ROUNDS * self.dimension // 64)
        bits = np.stack([shared_words(*key, words) for key in keys])
        flat = np.unpackbits(bits.astype("<u8").view(np.uint8), axis=1, bitorder="little")
        flat = flat[:, : _ROUNDS * self.dimension].reshape(len(keys), _ROUNDS, self.dimension)
        return np.where(flat, -1.0, 1.0).transpose(1, 0, 2)

    def _mixed(self, x: Array, starts: Sequence[int]) -> None:
        """Transform the blocks that start there, in place."""
        size = self._block
        for start in starts:
            x[:, start : start + size] = hadamard(x[:, start : start + size])

    @property
    def _starts(self) -> tuple[int, ...]:
        rest = self.dimension - self._block
        return (0, rest) if rest else (0,)

    def turned(self, x: Array, keys: Keys) -> Array:
        out = np.empty((len(keys), self.kept))
        with one_thread():
            for part in _chunks(len(keys)):
                out[part] = self._forward(x[part], self._signs(keys[part]))[:, : self.kept]
        return out

    def turned_back(self, z: Array, keys: Keys) -> Array:
        out = np.zeros((len(keys), self.dimension))
        out[:, : self.kept] = z
        with one_thread():
            for part in _chunks(len(keys)):
                out[part] = self._backward(out[part], self._signs(keys[part]))
        return out

    def _forward(self, x: Array, signs: Array) -> Array:
        half = (self.dimension + 1) // 2
        other = np.empty_like(x)
        for flips in signs:
            now = x * flips
            self._mixed(now, self._starts)
            # What lies half the dimension apart comes side by side.
            other[:, ::2], other[:, 1::2] = now[:, :half], now[:, half:]
            x = other
        return x

    def _backward(self, x: Array, signs: Array) -> Array:
        half = (self.dimension + 1) // 2
        now = np.empty_like(x)
        for flips in signs[::-1]:
            now[:, :half], now[:, half:] = x[:, ::2], x[:, 1::2]
            self._mixed(now, self._starts[::-1])
            x = now * flips
        return x


def _chunks(count: int) -> list[slice]:
    """Parts that fit a processor's cache."""
    return [slice(a, a + _CHUNK) for a in range(0, count, _CHUNK)]


def hadamard(x: Array) -> Array:
    """Return rows (n, K), K a power of two, times Sylvester's Hadamard matrix over √K.

    A Kronecker product of two smaller matrices: two products instead of log K passes over the memory.

    Examples
    --------
    >>> hadamard(np.eye(2)).round(3).tolist()
    [[0.707, 0.707], [0.707, -0.707]]
    """
    n, size = x.shape
    left = 1 << (size.bit_length() - 1) // 2
    if left > 64:
        inner = hadamard(np.ascontiguousarray(x).reshape(-1, 64)).reshape(n, -1, 64)
        outer = hadamard(inner.transpose(0, 2, 1).reshape(n * 64, -1))
        return outer.reshape(n, 64, -1).transpose(0, 2, 1).reshape(n, size)
    cube = np.ascontiguousarray(x).reshape(n, left, size // left)
    return np.asarray(sylvester(left) @ (cube @ sylvester(size // left))).reshape(n, size)


@lru_cache(maxsize=16)
def sylvester(size: int) -> Array:
    """Sylvester's Hadamard matrix over the square root of its size."""
    matrix = linalg.hadamard(size) / np.sqrt(size)
    matrix.setflags(write=False)
    return np.asarray(matrix)


def rotation_of(name: str, dimension: int, kept: int) -> Rotation:
    """Return the rotation of that name: "exact" or "fast"."""
    return {"exact": ExactRotation, "fast": FastRotation}[name](dimension, kept)


# -- the simplex that is rotated ----------------------------------------------------------------------------------


def _constants(n: int) -> tuple[float, float]:
    return math.sqrt(1 + 1 / n), (math.sqrt(n + 1) - 1) / (n * math.sqrt(n))


def vertex_products(z: Array) -> Array:
    """Inner products of vectors (count, n) with all vertices; shape (count, n + 1).

    Examples
    --------
    >>> vertex_products(vertices(np.arange(3), 2)).round(12).tolist()
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    n = z.shape[1]
    along, back = _constants(n)
    total = z.sum(axis=1, keepdims=True)
    return np.hstack([along * z - back * total, -total / math.sqrt(n)])


def vertices(index: Indices, n: int) -> Array:
    """The vertices of these numbers, shape (count, n)."""
    along, back = _constants(n)
    out = np.full((len(index), n), -back)
    last = index == n
    out[last] = -1 / math.sqrt(n)
    rows = np.flatnonzero(~last)
    out[rows, index[rows]] += along
    return out


def weighted_sum(counts: Array, n: int) -> Array:
    """The sum of the vertices, each that many times; shape (n,).

    Examples
    --------
    >>> bool(np.allclose(weighted_sum(np.array([1.0, 0.0, 2.0]), 2), vertices(np.array([0, 2, 2]), 2).sum(axis=0)))
    True
    """
    along, back = _constants(n)
    return np.asarray(along * counts[:n] - back * counts[:n].sum() - counts[n] / math.sqrt(n))
