r"""Laplace noise for deployment: numbers on a lattice, drawn from integers.

Laplace noise in doubles betrays what it is added to (Mironov 2012): the possible sums depend on it. Here an exact
rational vector z, in steps of the lattice, is rounded at random to a neighbouring whole vector with mean z, and
independent discrete Laplace noise, :math:`P(j) \propto q^{|j|}`, is added.

**Privacy.** Between two whole numbers, at :math:`z = i + u`, the coordinate's law is :math:`P_u(y) \propto (1 - u)
q^{|y - i|} + u\, q^{|y - i - 1|}`; it is linear in u, and :math:`|\mathrm d \log P_u(y) / \mathrm du| \le (1 - q)/q`.
It is continuous from one interval to the next, so for all z and z' the loss of a coordinate is at most
:math:`|z - z'| (1 - q)/q`, and in steps of h with :math:`q = R/(R + 1)` that of a vector is at most
:math:`\lVert v - v' \rVert_1 / (hR)`: exactly that of Laplace noise of scale hR, for any two vectors, however near. The
rounding costs nothing more. Its variance, at most h²/4, and the whole R cost less than 0.1% of the error.

**Drawing.** A discrete Laplace number is a geometric one, :math:`P(G = g) = (1 - q) q^g`, with a fair sign, drawn again
where that is minus zero. The digits of G to a base b are independent: the i-th has the law :math:`q^{b^i g}` on 0, …, b − 1, and what is left beyond the
second is geometric again. All are rational, so integers draw them exactly (`mechdesign.evidence.sampling`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError
from mechdesign.evidence.sampling import IntegerWeights, bernoulli, random_words
from mechdesign.problem.checks import positive
from mechdesign.typing import Array, Indices

__all__ = ["LatticeLaplace"]

_BASE = 64
_FINE = 12  # bits of the scale that the lattice resolves


@dataclass(frozen=True)
class LatticeLaplace:
    """Discrete Laplace noise after random rounding.

    Attributes
    ----------
    step : float
        h, a power of two.
    ratio : int
        R: a coordinate's loss is |z − z'|/R for z and z' in steps.

    Examples
    --------
    >>> noise = LatticeLaplace.of(0.3)
    >>> noise.step, 0.3 <= noise.scale < 0.3001
    (6.103515625e-05, True)
    >>> noise.release(np.array([2.5]), np.zeros(1), lambda i: Fraction(5, 2)).shape
    (1,)
    """

    step: float
    ratio: int

    @classmethod
    def of(cls, scale: float) -> LatticeLaplace:
        """The noise that is as private as Laplace noise of this scale."""
        step = math.ldexp(1.0, math.frexp(positive("scale", scale))[1] - 1 - _FINE)
        if step == 0:
            raise DesignError.of(
                "scale", scale, "is too small for a lattice in doubles; choose a smaller unit"
            )
        return cls(step, math.ceil(Fraction(scale) / Fraction(step)))

    @property
    def scale(self) -> float:
        """Scale hR of the Laplace noise that is as private; exact."""
        return self.step * self.ratio

    def release(self, near: Array, error: Array, exact: Callable[[int], Fraction]) -> Array:
        """Add noise to numbers, exactly: multiples of `step`.

        Parameters
        ----------
        near : array, shape (N,)
            The numbers in steps, as doubles.
        error : array, shape (N,)
            How far each may be from the exact one.
        exact : callable
            Index to the exact number in steps; asked only where the doubles do not decide.
        """
        if not (np.abs(near) < 2.0**62).all():
            raise DesignError("values: too large for the lattice; take a number near their middle off first")
        rounded = stochastic_round(near, error, exact)
        noisy: Array = (rounded + discrete_laplace(self.ratio, near.size)).astype(float)
        return noisy * self.step


def stochastic_round(near: Array, error: Array, exact: Callable[[int], Fraction]) -> Indices:
    """Round numbers to whole ones at random, with exactly their mean; arguments as of `LatticeLaplace.release`."""
    whole = np.rint(near)
    for i in np.flatnonzero(error > 0.25):  # doubles do not say which whole number is next
        whole[i] = round(exact(int(i)))
    away = near - whole
    moved = bernoulli(
        np.minimum(np.abs(away), 1.0),
        np.where(error > 0.25, 1.0, error),
        lambda i: abs(exact(i) - int(whole[i])),
    )
    side = np.sign(away)
    for i in np.flatnonzero(moved & (np.abs(away) <= error)):
        side[i] = 1 if exact(int(i)) > int(whole[i]) else -1
    return whole.astype(np.int64) + np.where(moved, side, 0).astype(np.int64)


@lru_cache(maxsize=64)
def _digits(ratio: int) -> tuple[IntegerWeights, IntegerWeights, Fraction]:
    """Laws of the two lowest digits of a geometric number with q = R/(R + 1), and the odds of more than they hold."""
    laws = []
    high, low = ratio, ratio + 1
    for _ in range(2):
        laws.append(IntegerWeights([high**g * low ** (_BASE - 1 - g) for g in range(_BASE)]))
        high, low = high**_BASE, low**_BASE
    return laws[0], laws[1], Fraction(high, low)


def discrete_laplace(ratio: int, size: int) -> Indices:
    r"""Draw from :math:`P(j) \propto q^{|j|}` with q = R/(R + 1)."""
    out, minus = _geometric(ratio, size), _bits(size)
    while (again := np.flatnonzero(minus & (out == 0))).size:  # zero must not count twice
        out[again], minus[again] = _geometric(ratio, again.size), _bits(again.size)
    return np.where(minus, -out, out)


def _bits(size: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(random_words(size // 64 + 1).view(np.uint8))[:size].astype(bool)


def _geometric(ratio: int, size: int) -> Indices:
    """Draw geometric numbers, :math:`P(g) = q^g (1 - q)` with q = R/(R + 1)."""
    first, second, more = _digits(ratio)
    out = first.draw(size) + _BASE * second.draw(size)
    still, odds = np.arange(size), float(more)
    while still.size:
        lucky = bernoulli(np.full(still.size, odds), np.full(still.size, 2.0**-50), lambda _: more)
        still = still[lucky]
        out[still] += _BASE**2
    return out
