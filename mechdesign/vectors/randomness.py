"""Shared randomness: both ends derive the same words from a seed and the number of a vector.

Words come from the counter-based generator Philox, whose raw output NumPy fixes for good: the seed is its key, the number
of the vector the upper half of its counter. Seeds are drawn by the operating system, independently of all inputs, so that what an
encoder's guarantee says of every rotation it says of the message with its seed.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from mechdesign.problem.checks import whole
from mechdesign.typing import Array, Indices

__all__ = [
    "SEED_BITS",
    "checked_key",
    "checked_seed",
    "fresh_seed",
    "shared_normals",
    "shared_subsets",
    "shared_words",
]

SEED_BITS = 128


def fresh_seed() -> int:
    """Return a seed of the operating system's randomness."""
    return int.from_bytes(os.urandom(SEED_BITS // 8), "little")


def checked_seed(seed: Any) -> int:
    """Return an agreed seed as an integer of 0 to 2^128 − 1, a fresh one for None, or raise DesignError."""
    return fresh_seed() if seed is None else whole("seed", seed, 0, (1 << SEED_BITS) - 1)


def checked_key(seed: Any, number: Any) -> tuple[int, int]:
    """Return a seed that is given and the number of a vector, or raise DesignError."""
    return whole("seed", seed, 0, (1 << SEED_BITS) - 1), whole("first", number, 0, (1 << 63) - 1)


def shared_words(seed: int, number: int, count: int) -> npt.NDArray[np.uint64]:
    """Return `count` 64-bit words, the same wherever they are asked for.

    Examples
    --------
    >>> int(shared_words(1, 2, 1)[0]) == int(shared_words(1, 2, 5)[0])
    True
    """
    bits = np.random.Philox(key=seed, counter=number << 128)
    return np.asarray(bits.random_raw(count), dtype=np.uint64)


def shared_subsets(seed: int, first: int, count: int, size: int, few: int) -> Indices:
    """Return the coordinates that vectors first, first + 1, … send, in order, shape (count, few).

    Examples
    --------
    >>> shared_subsets(1, 0, 2, 3, 3).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    if few == size:
        return np.tile(np.arange(size), (count, 1))
    out = np.empty((count, few), dtype=np.int64)
    for i in range(count):
        words = shared_words(seed, first + i, size)
        out[i] = np.sort(np.argsort(words, kind="stable")[:few])
    return out


def shared_normals(seed: int, number: int, count: int) -> Array:
    """Return `count` standard normals, by the inverse of the normal law at the middles of 2⁵² cells."""
    words = shared_words(seed, number, count)
    return np.asarray(special.ndtri(((words >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52))
