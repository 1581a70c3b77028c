r"""Releasing whitened answers exactly: :math:`\lfloor Rf/h + 1/2 \rfloor` in exact arithmetic, plus discrete Gaussians.

Rounded images of neighbours are at most :math:`\lVert Rv \rVert + h\sqrt r \le \mu + h\sqrt r` apart, so that noise of
deviation :math:`1 + h\sqrt r/\mu` spends no more than the budget.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from mechdesign.evidence.rounding import round_up
from mechdesign.noise.correlated.span import Lift
from mechdesign.noise.release import ExactNoise
from mechdesign.typing import Array

__all__ = ["column_spent", "integers", "largest_spent", "lattice", "outside", "released"]

EXACT = 64
"""Dimensions up to which what is spent is a rational number; beyond, it is rounded up."""
_FINEST = 1126
"""Doubles, with mantissas of 53 bits, are whole multiples of 2^-1126."""


def lattice(budget: float, rank: int) -> tuple[float, ExactNoise]:
    """Lattice step h, and the sampler of one whitened coordinate, widened for it."""
    root = math.sqrt(budget)
    step = math.ldexp(1.0, min(-32, math.frexp(root)[1] - 32))
    wider = 1 + step * math.sqrt(rank) / root * (1 + 1e-9)
    return step, ExactNoise(stats.norm(scale=math.nextafter(wider, 2.0)), step)


def released(whitening: Array, held: Array, step: float, noise: ExactNoise) -> Array:
    r"""Return R f with noise for each row f of `held`, on the lattice.

    One path for every finite double: each f is a whole number of 2⁻¹¹²⁶, less than 2²¹⁵¹ of them. A public multiple of
    the lattice, larger than any, is added, which makes all these numbers equally long, and subtracted when the noise
    is in: integers of one length are multiplied and shifted whatever f is, and no other numbers depend on f before the noise.

    Parameters
    ----------
    whitening : ndarray, shape (r, k)
    held : ndarray, shape (n, k)
    step : float
        h, a power of two.
    """
    r, r_unit = integers(whitening)
    unit = r_unit * Fraction(1, 2**_FINEST) / Fraction(step)
    bits = max(1, unit.denominator.bit_length() - unit.numerator.bit_length())  # of a step, in units of R f
    r = r * int(unit * 2**bits)
    far = 3 << max(bits, _FINEST + 1025)
    image = (_whole(held) + far) @ r.T + (1 << (bits - 1))
    draws = noise.draw(image.size).reshape(image.shape).astype(object)
    steps = (image >> bits) + draws - (far >> bits) * r.sum(axis=1)
    return _quotients(steps, round(1 / Fraction(step)))


def outside(lift: Lift, held: Array, rows: Array) -> Array:
    """f − E f_P of each row f, which is the same for all neighbours, on one path for all of them as well."""
    common = math.lcm(*(x.denominator for row in lift for x in row))
    scaled = np.array([[int(x * common) for x in row] for row in lift], dtype=object)
    return _quotients(common * _whole(rows) - _whole(held) @ scaled.T, common << _FINEST)


def _whole(held: Array) -> Any:
    """Doubles as integers, in units of 2⁻¹¹²⁶."""
    mantissa, exponent = np.frexp(held)
    return (mantissa * 2.0**53).astype(np.int64).astype(object) << (exponent + (_FINEST - 53)).astype(object)


def _quotients(numbers: Any, divisor: int) -> Array:
    """Integers over one, as the nearest doubles; beyond them, the outermost."""
    top = int(np.finfo(float).max) * divisor
    return np.asarray(np.clip(numbers, -top, top) / divisor, dtype=float)


def largest_spent(whitening: Array, vectors: Array) -> tuple[float, bool]:
    r"""Return the largest :math:`\lVert R v \rVert^2` over the rows v, rounded up, and whether it is exact before that.

    Doubles, with a bound on their error, tell which vectors can be the worst; up to 64 dimensions what these spend is a
    rational number.
    """
    columns = vectors.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        image, size = vectors @ whitening.T, np.abs(vectors) @ np.abs(whitening).T
        error = (columns + 4) * 2.0**-53
        above = ((np.abs(image) + error * size) ** 2).sum(axis=1) * (1 + 4 * error)
        below = (np.maximum(np.abs(image) - error * size, 0.0) ** 2).sum(axis=1) * (1 - 4 * error)
    if columns > EXACT:
        most = float(above.max())
        # what underflows in a product is less than this
        return (most + columns * len(whitening) * 1e-290 if most < math.inf else math.inf), False
    # one whose doubles overflow or underflow is not judged by them
    sure = np.isfinite(above) & (below > 1e-200)
    worst = vectors[~sure | (above >= below[sure].max(initial=0.0))]
    r, r_unit = integers(whitening)
    v, v_unit = integers(worst)
    image = v @ r.T
    return round_up(Fraction(int((image * image).sum(axis=1).max())) * (r_unit * v_unit) ** 2), True


def column_spent(strategy: Array, most: float) -> float:
    r"""The largest :math:`\lVert R a e_j \rVert^2` over the columns j of R, rounded up: one entry changes, by a.

    A sum of r squares is off by r + 2 roundings at most, in whatever order it is made; what underflows is less than 1e-290 each.

    Examples
    --------
    >>> 25.0 <= column_spent(np.array([[3.0, 1.0], [4.0, 1.0]]), 1.0) <= 25.0 + 1e-12
    True
    """
    with np.errstate(over="ignore"):
        longest = float((strategy**2).sum(axis=0).max()) + len(strategy) * 1e-290
        return longest * most * most * (1 + (len(strategy) + 8) * 2.0**-52) + 1e-290


def integers(matrix: Array) -> tuple[Any, Fraction]:
    """The matrix as integers times a power of two, exactly."""
    ratios = [[x.as_integer_ratio() for x in row] for row in matrix.tolist()]
    unit = max(d for row in ratios for _, d in row)
    return np.array([[n * (unit // d) for n, d in row] for row in ratios], dtype=object), Fraction(1, unit)
