"""Sylvester's Hadamard matrix, applied without being formed."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import linalg

from mechdesign.typing import Array, Numbers

_BLOCK = 64  # products with a matrix of this size are faster than with two smaller ones


def walsh_hadamard(vectors: Numbers) -> Array:
    """Multiply by Sylvester's Hadamard matrix along the last axis, whose length is a power of two.

    The matrix is a Kronecker product of smaller ones: products with these pass over the memory fewer times than halving does.

    Examples
    --------
    >>> walsh_hadamard([1.0, 0.0, 0.0, 0.0])
    array([1., 1., 1., 1.])
    """
    held = np.asarray(vectors, dtype=float)
    size = held.shape[-1]
    if size <= _BLOCK:
        return np.asarray(held @ _sylvester(size))
    left = min(_BLOCK, 1 << (size.bit_length() - 1) // 2)
    parts = walsh_hadamard(held.reshape(*held.shape[:-1], left, size // left))
    return np.asarray(_sylvester(left) @ parts).reshape(held.shape)


@lru_cache(maxsize=16)
def _sylvester(size: int) -> Array:
    matrix = linalg.hadamard(size, dtype=float)
    matrix.setflags(write=False)
    return np.asarray(matrix)
