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

from mechdesign.errors import DesignError
from mechdesign.evidence.rounding import round_up
from mechdesign.noise.release import ExactNoise
from mechdesign.typing import Array

__all__ = ["column_spent", "integers", "largest_spent", "lattice", "released", "steps_of"]

EXACT = 64
"""Dimensions up to which what is spent is a rational number; beyond, it is rounded up."""


def lattice(budget: float, rank: int) -> tuple[float, ExactNoise]:
    """Lattice step h, and the sampler of one whitened coordinate, widened for it."""
    root = math.sqrt(budget)
    step = math.ldexp(1.0, min(-32, math.frexp(root)[1] - 32))
    wider = 1 + step * math.sqrt(rank) / root * (1 + 1e-9)
    return step, ExactNoise(stats.norm(scale=math.nextafter(wider, 2.0)), step)


def released(whitening: Array, held: Array, step: float, noise: ExactNoise) -> Array:
    """Return R f with noise for each row f of `held`, on the lattice.

    Parameters
    ----------
    whitening : ndarray, shape (r, k)
    held : ndarray, shape (n, k)
    """
    with np.errstate(all="ignore"):
        near = held @ whitening.T / step + 0.5
    draws = noise.draw(near.size).reshape(near.shape)
    with np.errstate(all="ignore"):
        steps = np.floor(near)
        # Doubles decide, unless the next whole number is within their error.
        error = np.abs(held) @ np.abs(whitening).T / step * (held.shape[1] + 8) * 2.0**-52
        sure = (np.abs(near - np.rint(near)) > error) & (np.abs(near) < 2.0**51)
    noisy = np.where(sure, steps + draws, 0.0)
    open_ = np.flatnonzero(~sure.all(axis=1))
    if open_.size:
        try:
            noisy[open_] = (steps_of(whitening, held[open_], step) + draws[open_]).astype(float)
        except OverflowError:
            raise DesignError.of("x", held, f"must be a finite number of steps of {step:g}") from None
    return np.asarray(noisy * step)


def steps_of(whitening: Array, held: Array, step: float) -> Any:
    """⌊Rf/h + ½⌋ in integers."""
    r, r_unit = integers(whitening)
    v, v_unit = integers(held)
    image, unit = v @ r.T, r_unit * v_unit / Fraction(step)
    half, whole = unit.denominator, unit.numerator
    return (2 * image * whole + half) // (2 * half)


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
