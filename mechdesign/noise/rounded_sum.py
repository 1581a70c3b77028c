r"""Deployment of noise in several dimensions: the sum is rounded, not the answer.

Where two answers can be as near as one likes, rounding them first would tear them a whole step apart. Instead v + Z, with Z of
the continuous law, is rounded to multiples of h: a function of the continuous mechanism's output, so that its guarantee
carries over for any two answers. K-norm noise is :math:`\Gamma(k, s)` long in its own norm:

- ℓ_∞: :math:`R\,(2U_1 - 1, \dots, 2U_k - 1)` with R of the law :math:`\Gamma(k + 1, s)`;
- ℓ₂: :math:`R\,N/\lVert N \rVert_2` with normal N and R of the law :math:`\Gamma(k, s)`;

and Gaussian noise is sN. All come from uniform numbers, :math:`R = -s \sum \log U` and pairs of normal numbers,
:math:`\sqrt{-2 \log U}\,(\cos 2 \pi U', \sin 2 \pi U')`.

**Drawing.** 32 bits of each uniform number are drawn from the operating system, and doubles say between which ends v + Z then
lies. Where they do not decide the rounded sum, further bits are drawn and the sum is computed with as many digits, until it is
decided. What leaves the machine has exactly the law of the rounded sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath as mp
import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.sampling import random_words
from mechdesign.typing import Array

__all__ = ["RoundedSum"]

_FINE = 11  # bits of the scale that the lattice resolves
_FIRST = 32  # bits drawn for each uniform number
_MORE = 192  # and where they do not decide
_BLOCK = 1 << 16  # uniform numbers at a time: they stay in the cache
_ROUND = 2.0**-48  # above the rounding errors of a few operations on doubles


@dataclass(frozen=True)
class RoundedSum:
    """K-norm or Gaussian noise whose sum with an answer is rounded.

    Attributes
    ----------
    dimension : int
        k.
    scale : float
        s: of the continuous law, which is what the guarantee is of.
    norm : float
        2 or inf.
    gaussian : bool
        Gaussian noise of deviation s instead.

    Examples
    --------
    >>> noise = RoundedSum(2, 0.3, math.inf)
    >>> noise.step
    0.000244140625
    >>> noise.release(np.zeros(2), np.zeros(2), lambda i: Fraction(0)).shape
    (2,)
    """

    dimension: int
    scale: float
    norm: float = 2.0
    gaussian: bool = False

    @property
    def step(self) -> float:
        """h, a power of two: rounding adds h²/12 to a variance of s² at least, less than 10⁻⁷ of it."""
        return math.ldexp(1.0, math.frexp(self.scale)[1] - _FINE)

    @property
    def _radii(self) -> int:
        """How many of the uniform numbers make the length."""
        return 0 if self.gaussian else self.dimension + (self.norm == math.inf)

    @property
    def _pairs(self) -> int:
        """How many pairs of normal numbers make the direction."""
        return 0 if self.norm == math.inf and not self.gaussian else (self.dimension + 1) // 2

    @property
    def _uniforms(self) -> int:
        return self._radii + (2 * self._pairs or self.dimension)

    def release(self, near: Array, error: Array, exact: Callable[[int], Fraction]) -> Array:
        """Add noise to vectors one after the other, exactly: multiples of `step`.

        Parameters
        ----------
        near : array, shape (N · k,)
            The numbers in steps, as doubles.
        error : array, shape (N · k,)
            How far each may be from the exact one.
        exact : callable
            Index to the exact number in steps; asked only where the doubles do not decide.
        """
        if not np.isfinite(near).all():
            raise DesignError("values: must be finite numbers of steps")
        k, rows = self.dimension, max(1, _BLOCK // self._uniforms)
        centre, room = near.reshape(-1, k), error.reshape(-1, k)
        blocks = [slice(a, a + rows) for a in range(0, len(centre), rows)]
        steps = [self._steps(centre[b], room[b], partial(_from, exact, b.start * k)) for b in blocks]
        released: Array = np.concatenate([np.zeros((0, k)), *steps]).ravel() * self.step
        return released

    def _steps(self, centre: Array, room: Array, exact: Callable[[int], Fraction]) -> Array:
        """The rounded sums of some vectors, in steps."""
        count, k = len(centre) * self._uniforms, self.dimension
        words = random_words(count // 2 + 1).view(np.uint32)[:count].reshape(len(centre), -1)
        with np.errstate(all="ignore"):
            noise, wrong = self._doubles(words)
            unit = self.scale / self.step
            total = centre + noise * unit + 0.5
            room = room + wrong * unit + _ROUND * (np.abs(centre) + np.abs(noise) * unit + 1)
            steps = np.floor(total)
            decided = np.abs(total - np.rint(total)) > room  # also where either is not a number: it is not
        for row in np.flatnonzero(~decided.all(axis=1)):
            steps[row] = self._settled(words[row].tolist(), [exact(int(row) * k + j) for j in range(k)])
        return steps

    def _doubles(self, words: Any) -> tuple[Array, Array]:
        """The noise at unit scale in doubles, and how far it may be off."""
        u = (words + 0.5) * 2.0**-_FIRST
        cut, end = self._radii, self._radii + self._pairs
        logs = np.abs(np.log(u[:, :end]))
        # A double next to 1 is off by its rounding; a cell that begins at 0 has no bound.
        off = np.where(words[:, :end] > 0, _ROUND + 2.0**-_FIRST / u[:, :end], np.inf)
        radius, blur = logs[:, :cut].sum(axis=1)[:, None], off[:, :cut].sum(axis=1)[:, None]
        blur = blur + _ROUND * radius
        if not self._pairs:
            return radius * (2 * u[:, cut:] - 1), blur + 2.0**-_FIRST * radius
        size, turn = np.sqrt(2 * logs[:, cut:]), 2 * math.pi * u[:, end:]
        normal = np.hstack([size * np.cos(turn), size * np.sin(turn)])[:, : self.dimension]
        blurred = np.tile(2 * off[:, cut:] / size + 8 * 2.0**-_FIRST * (1 + size), 2)[:, : self.dimension]
        if self.gaussian:
            return normal, blurred
        length = np.linalg.norm(normal, axis=1)[:, None]
        away = 2 * blurred.sum(axis=1)[:, None] / length + _ROUND
        return radius * normal / length, blur + radius * np.where(away < 0.1, 2 * away, np.inf)

    def _settled(self, words: list[int], centre: list[Fraction]) -> list[float]:
        """The rounded sum, with further bits of the same uniform numbers."""
        bits = _FIRST
        while True:
            further = random_words(len(words) * _MORE // 64).reshape(len(words), -1)
            words = [
                (word << _MORE) | int.from_bytes(row.tobytes(), "little") for word, row in zip(words, further)
            ]
            bits += _MORE
            with mp.workprec(2 * bits):
                u = [(mp.mpf(word) + 0.5) / mp.mpf(2) ** bits for word in words]
                (noise, thin), scale = self._digits(u), mp.mpf(self.scale) / mp.mpf(self.step)
                total = [mp.mpf(c.numerator) / c.denominator + scale * z + 0.5 for c, z in zip(centre, noise)]
                # An end of u's cell is 2^-bits away; roots and quotients leave a third of these digits and more.
                nearest = min(min(v, 1 - v) for v in u)
                room = (
                    (mp.mpf(2) ** -bits / nearest) ** (mp.mpf(1) / 3)
                    * (1 + max(map(abs, noise)))
                    * scale
                    / thin
                )
                if all(abs(t - mp.nint(t)) > room for t in total):
                    return [float(int(mp.floor(t))) for t in total]

    def _digits(self, u: list[Any]) -> tuple[list[Any], Any]:
        """As `_doubles`, in mpmath, and the smallest number that was divided by, at most 1."""
        cut, k = self._radii, self.dimension
        radius = -mp.fsum(mp.log(v) for v in u[:cut])
        if not self._pairs:
            return [radius * (2 * v - 1) for v in u[cut:]], 1
        pairs = list(zip(u[cut : cut + self._pairs], u[cut + self._pairs :]))
        normal = [
            mp.sqrt(-2 * mp.log(a)) * turn(2 * mp.pi * b) for turn in (mp.cos, mp.sin) for a, b in pairs
        ][:k]
        if self.gaussian:
            return normal, 1
        length = mp.sqrt(mp.fsum(v * v for v in normal))
        return [radius * v / length for v in normal], min(length, 1)


def _from(exact: Callable[[int], Fraction], first: int, i: int) -> Fraction:
    return exact(first + i)
