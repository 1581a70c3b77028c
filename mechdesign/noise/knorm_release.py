r"""K-norm noise for deployment: whole numbers of lattice steps, drawn exactly from the operating system's randomness.

On the lattice :math:`\mathbb Z^k` the law :math:`P[z] \propto q^{\lVert z\rVert}`, :math:`q = e^{-1/d}`, is as private as its
continuous relative: a shift v loses at most :math:`\lVert v\rVert/d`, by the triangle inequality. For ℓ₁ it is a product, each
coordinate the difference of two geometric numbers. For ℓ_∞ let R have :math:`P[R] \propto (2R + 1)^k q^R` and z be uniform on
the cube :math:`\{-R, \dots, R\}^k`; then

.. math:: P[z] \propto \sum_{R \ge \lVert z\rVert_\infty} (2R + 1)^{-k} (2R + 1)^k q^R = \frac{q^{\lVert z\rVert_\infty}}{1 - q} .

R is drawn by rejection from the sum of k + 1 geometric numbers, whose weights are :math:`\binom{R + k}{k} q^R`: it is kept with the
rational probability :math:`\prod_{j=1}^k (R + \tfrac12)/(R + j)`, nearly 1 where the step is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.sampling import bernoulli, geometric, uniform_below
from mechdesign.noise.release import noisy
from mechdesign.problem.checks import answers
from mechdesign.typing import Array, Indices

__all__ = ["KNormLattice", "cross_steps", "cube_steps", "knorm_lattice"]

_BITS = 20
"""The step is this many bits below the shift and the scale."""
_LARGEST = 1 << 48
"""Of rates: what coins of them are drawn from fits 63 bits."""
_FURTHEST = 1 << 54
"""Of the mean norm in ℓ_∞: numbers 256 times as large fit 62 bits."""
_DOUBT = 1e-9
"""Above the error of a probability computed in doubles."""
_ENTRIES = 1 << 20


@dataclass(frozen=True)
class KNormLattice:
    """The lattice of a release.

    Attributes
    ----------
    dimension : int
    norm : {1, inf}
    step : float
        h, a power of two.
    shift : int
        m: how far apart, in the norm and in steps, rounded answers of neighbours may be.
    rate : int
        d: the noise is :math:`\\propto e^{-\\lVert z\\rVert/d}` in steps.
    cost : float
        Relative increase of the scale.
    """

    dimension: int
    norm: float
    step: float
    shift: int
    rate: int
    cost: float

    def draw(self, rows: int) -> Indices:
        """Draw the noise of that many vectors, in steps, shape (rows, k)."""
        steps = cross_steps if self.norm == 1 else cube_steps
        return steps(self.dimension, self.rate, rows)

    def release(self, x: Any) -> Array:
        """Answers of shape (..., k), rounded to the lattice, with noise."""
        held = answers("x", x)
        if held.shape[-1:] != (self.dimension,):
            raise DesignError.of("x", x, f"must have {self.dimension} coordinates")
        return noisy(held, self.step, self.draw(held.size // self.dimension).reshape(held.shape))


def knorm_lattice(dimension: int, scale: float, norm: float, largest: float) -> KNormLattice:
    """Return the lattice on which noise of this scale is released for changes of at most `largest` in its norm.

    Rounding moves answers v apart to at most ⌈|v_i|/h⌉ steps apart in each coordinate: ⌈Δ/h⌉ in ℓ_∞, Δ/h + k in ℓ₁. The rate is the
    least at which they lose no more than before, Δ over the scale.

    Examples
    --------
    >>> lattice = knorm_lattice(3, 2.0, math.inf, 1.0)
    >>> lattice.rate * lattice.step, lattice.cost < 1e-5
    (2.0, True)
    """
    if norm not in (1, math.inf):
        raise DesignError.of("norm", norm, "has no lattice of its own: 1 and inf have")
    unit = min(scale, largest / dimension if norm == 1 else largest)
    step = math.ldexp(1.0, math.frexp(unit)[1] - 1 - _BITS)
    apart = Fraction(largest) / Fraction(step)
    shift = math.floor(apart) + dimension if norm == 1 else math.ceil(apart)
    rate = math.ceil(shift * Fraction(scale) / Fraction(largest))
    if rate > _LARGEST or (norm != 1 and rate * (dimension + 1) > _FURTHEST):
        raise DesignError.of(
            "scale", scale, f"is too many steps of {step:.3g} to count them in 64 bits: raise epsilon"
        )
    return KNormLattice(
        dimension, norm, step, shift, rate, float(rate * Fraction(step) / Fraction(scale)) - 1.0
    )


def cross_steps(dimension: int, rate: int, rows: int) -> Indices:
    """Draw rows of whole numbers with probabilities exactly proportional to exp(−‖z‖₁/rate).

    Examples
    --------
    >>> cross_steps(3, 10, 2).shape
    (2, 3)
    """
    size = dimension * rows
    return (geometric(rate, size) - geometric(rate, size)).reshape(rows, dimension)


def cube_steps(dimension: int, rate: int, rows: int) -> Indices:
    """Draw rows of whole numbers with probabilities exactly proportional to exp(−‖z‖_∞/rate).

    Examples
    --------
    >>> cube_steps(3, 10, 2).shape
    (2, 3)
    """
    out = np.empty((rows, dimension), dtype=np.int64)
    block = max(1, _ENTRIES // (dimension + 1))
    for first in range(0, rows, block):
        radius = _radii(dimension, rate, min(block, rows - first))
        sides = np.broadcast_to((2 * radius + 1)[:, None], (len(radius), dimension))
        out[first : first + len(radius)] = uniform_below(sides) - radius[:, None]
    return out


def _radii(dimension: int, rate: int, rows: int) -> Indices:
    """R with probabilities exactly proportional to (2R + 1)^k exp(−R/rate)."""
    out, open_, j = np.empty(rows, dtype=np.int64), np.arange(rows), np.arange(1, dimension + 1)
    while open_.size:
        radius = geometric(rate, open_.size * (dimension + 1)).reshape(open_.size, -1).sum(axis=1)
        near = np.exp(np.log1p((0.5 - j) / (radius[:, None] + j)).sum(axis=1))

        def exact(i: int, radius: Indices = radius) -> Fraction:
            r = int(radius[i])
            return Fraction((2 * r + 1) ** dimension, math.prod(range(2 * r + 2, 2 * (r + dimension) + 1, 2)))

        kept = bernoulli(near, np.full(near.shape, _DOUBT), exact)
        out[open_[kept]] = radius[kept]
        open_ = open_[~kept]
    return out
