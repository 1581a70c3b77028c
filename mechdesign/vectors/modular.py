"""Sums modulo m: what a secure aggregation computes, and what the discrete mechanisms need of it.

Every client sends an integer vector modulo m under masks that cancel in the sum; the server learns the sum modulo m and nothing else. As long
as the true sum lies in [−m/2, m/2) it is recovered exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.sampling import uniform_integers
from mechdesign.problem.checks import indices, settle, whole
from mechdesign.typing import Indices
from mechdesign.vectors.coded import listed_messages, packed, unpacked

__all__ = ["ModularSum"]


@dataclass(frozen=True)
class ModularSum:
    """Integer vectors modulo a power of two.

    Parameters
    ----------
    dimension : int
    bits : int
        Of the modulus 2^bits, 1 to 32.

    Examples
    --------
    >>> sums = ModularSum(dimension=3, bits=8)
    >>> masks = sums.masks(2)
    >>> one, two = sums.masked([100, -7, 0], masks[0]), sums.masked([20, 9, -3], masks[1])
    >>> sums.centred(sums.total([one, two])).tolist()
    [120, 2, -3]
    """

    dimension: int
    bits: int

    def __post_init__(self) -> None:
        settle(
            self,
            dimension=whole("dimension", self.dimension, 1, 1 << 24),
            bits=whole("bits", self.bits, 1, 32),
        )

    @property
    def modulus(self) -> int:
        """2^bits."""
        return 1 << self.bits

    def _residues(self, name: str, x: Any) -> Indices:
        try:
            found = np.asarray(x)
        except (TypeError, ValueError, OverflowError):
            found = np.asarray(None)
        if found.dtype.kind not in "iu" or found.shape != (self.dimension,):
            raise DesignError.of(name, x, f"must be {self.dimension} integers")
        return np.mod(found, self.modulus).astype(np.int64)

    def masks(self, clients: int) -> Indices:
        """Draw masks, shape (n, d), each uniform, that sum to 0: what pairwise agreed seeds give a real protocol."""
        count = whole("clients", clients, 1, 1 << 24)
        made = uniform_integers(self.modulus, count * self.dimension).reshape(count, self.dimension)
        made[-1] = np.mod(-made[:-1].sum(axis=0), self.modulus)
        return made

    def masked(self, x: Any, mask: Any) -> bytes:
        """Return an integer vector under a mask as bytes, `bits` a number."""
        total = self._residues("x", x) + self._residues("mask", mask)
        return packed(np.mod(total, self.modulus), self.bits)

    def total(self, messages: Iterable[bytes]) -> Indices:
        """Return the sum of all messages modulo m.

        Raises
        ------
        DesignError
            A message of another length.
        """
        size, out = -(-self.dimension * self.bits // 8), np.zeros(self.dimension, dtype=np.int64)
        for message in listed_messages(messages):
            if not isinstance(message, bytes) or len(message) != size:
                raise DesignError.of("messages", message, f"must be {size} bytes each")
            out = np.mod(out + unpacked(message, self.dimension, self.bits), self.modulus)
        return out

    def centred(self, total: Any) -> Indices:
        """Return residues as the integers of [−m/2, m/2) that they stand for."""
        found = indices("total", total, self.modulus)
        return np.where(found >= self.modulus // 2, found - self.modulus, found)
