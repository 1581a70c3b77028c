r"""A lower bound on every noise from multipliers spread over errors and shifts, in exact arithmetic.

For functions ψ_k ≥ 0, piecewise linear between `knots`, and densities κ_k of a shift in [0, Δ], every (ε, δ)-DP noise T obeys
:math:`|\kappa_k|\,E\psi_k(T) \le e^\varepsilon E(\psi_k * \kappa_k)(T) + \delta\,|\kappa_k| \sup\psi_k`, and the mirror image.
With an even loss, summed,

.. math:: E\,\ell(T) \ge \min_{t \ge 0} \big(\ell(t) + F(t) + F(-t)\big) - 2\delta\sum_k |\kappa_k| \sup \psi_k , \qquad
          F = \sum_k |\kappa_k|\,\psi_k - e^{\varepsilon}\, \psi_k * \kappa_k .

A κ_k is one shift or a triangle, so that F is a cubic spline whose breakpoints are sums of knots; between two of them a
polynomial is at least its least Bernstein coefficient. Cells may be of any width: near 0 as narrow as the first step of
a staircase, far out wide. All gaps are powers of two cells and all numbers dyadic, so that the sums are of integers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_upper
from mechdesign.problem.losses import Loss
from mechdesign.typing import Array, Indices

__all__ = ["Spread", "plain_spread", "spread_bound", "spread_pieces"]

_BITS = 120  # of the multipliers behind the point
_HALVINGS = 6
_FARTHEST = 2**40  # cells
_MOST = 10**6  # multipliers


def _doubling(gaps: Indices) -> bool:
    return bool(np.all(gaps > 0) and np.all(gaps & (gaps - 1) == 0))


@dataclass(frozen=True, eq=False)
class Spread:
    """Multipliers: functions of the error, piecewise linear, each for a density of shifts.

    Parameters
    ----------
    cells : int
        Cells per sensitivity, a power of two: the unit of knots and kernels.
    knots : ndarray of int, shape (T + 2,)
        Each a power of two further on; ψ is 0 at the first and the last.
    kernels : ndarray of int, shape (K, 3)
        Where the triangle of each density starts, peaks (with height 1) and stops, within [0, cells]; all three equal for
        one shift alone, of mass 1.
    psi : ndarray, shape (K, T)
        Values at the inner knots.

    Raises
    ------
    DesignError
        Sizes that do not fit, gaps that are not powers of two, shifts beyond the sensitivity.
    """

    cells: int
    knots: Indices
    kernels: Indices
    psi: Array

    def __post_init__(self) -> None:
        knots, kernels = self.knots, self.kernels
        if knots.ndim != 1 or knots.size < 3 or not -_FARTHEST <= knots[0] < knots[-1] <= _FARTHEST:
            raise DesignError.of("knots", knots, f"must be three or more within {_FARTHEST}")
        if not _doubling(np.diff(knots)) or not _doubling(np.array([self.cells])):
            raise DesignError.of("knots", knots, "must lie apart by powers of two, which cells must be too")
        if kernels.ndim != 2 or kernels.shape[1] != 3 or self.psi.shape != (len(kernels), knots.size - 2):
            raise DesignError.of(
                "psi", self.psi.shape, "must have a row per kernel and a column per inner knot"
            )
        if self.psi.size > _MOST or kernels.min(initial=0) < 0 or kernels.max(initial=0) > self.cells:
            raise DesignError.of("kernels", kernels, f"must be few, and lie from 0 to {self.cells}")
        wide = kernels[np.ptp(kernels, axis=1) > 0]
        if not _doubling(np.diff(wide, axis=1)):
            raise DesignError.of("kernels", kernels, "must be single shifts, or apart by powers of two")

    @property
    def doubled_masses(self) -> list[int]:
        """Twice the mass of each density."""
        return [max(int(stop - start), 0) or 2 for start, _, stop in self.kernels.tolist()]


def _bends(at: list[int], unit: int) -> list[tuple[int, int]]:
    """Where the slope of a hat over three knots changes, and by how much, in 1/unit."""
    up, down = unit // (at[1] - at[0]), unit // (at[2] - at[1])
    return [(at[0], up), (at[1], -up - down), (at[2], down)]


def _changes(spread: Spread, growth: int, one: int, unit: int) -> tuple[dict[int, int], dict[int, int]]:
    """Changes of the slope and of the third derivative of F(t) + F(-t), in 1/(4 · 2^_BITS · unit² · one).

    `growth`/`one` is at least e^ε.
    """
    knots = spread.knots.tolist()
    linear: dict[int, int] = defaultdict(int)
    cubic: dict[int, int] = defaultdict(int)
    for kernel, mass, row in zip(spread.kernels.tolist(), spread.doubled_masses, spread.psi):
        # beyond 2⁵³ doubles are whole, and times 2^_BITS they may be none
        values = [
            int(math.ldexp(max(v, 0.0), _BITS)) if v < 2.0**53 else int(v) << _BITS for v in row.tolist()
        ]
        slope: dict[int, int] = defaultdict(int)
        for i, v in enumerate(values):
            for place, change in _bends(knots[i : i + 3], unit) if v else ():
                slope[place] += v * change
        for place, change in slope.items():
            linear[place] += 2 * change * mass * unit * one
            if kernel[0] == kernel[2]:
                linear[place + kernel[0]] -= 4 * change * unit * growth
            else:
                for shift, bend in _bends(kernel, unit):
                    cubic[place + shift] -= 4 * change * bend * growth
    for changes in (linear, cubic):
        for place, change in list(changes.items()):
            changes[-place] += change
    return linear, cubic


def spread_pieces(
    spread: Spread, loss: Loss, sensitivity: float, epsilon: float
) -> Iterator[tuple[int, int, list[int], list[int], int]]:
    """Yield, between breakpoints from 0 on: where, how far, Bernstein coefficients of loss and of F(t) + F(-t), their unit."""
    growth = exp_upper(epsilon)
    gaps = [np.diff(spread.knots).max(), np.diff(spread.kernels, axis=1).max(initial=1)]
    unit = 1 << (int(max(gaps)) - 1).bit_length()
    linear, cubic = _changes(spread, growth.numerator, growth.denominator, unit)
    scale = (unit * unit * growth.denominator) << (_BITS + 2)
    width = Fraction(sensitivity) / spread.cells
    first = math.floor(Fraction(loss.absolute) * width * scale)
    second = math.floor(Fraction(loss.squared) * width**2 * scale)
    places = sorted({0, *linear, *cubic})
    value = slope = bend = jerk = 0  # six times F, and its derivatives
    for x, end in pairwise(places):
        slope += linear.get(x, 0)
        jerk += cubic.get(x, 0)
        h = end - x
        if x >= 0:
            inner = [value, value + 2 * slope * h, value + 4 * slope * h + bend * h * h]
            stop = value + 6 * slope * h + 3 * bend * h * h + jerk * h**3
            at, rise = 6 * (first + second * x) * x, (first + 2 * second * x) * h
            costs = [at, at + 2 * rise, at + 4 * rise + 2 * second * h * h, 6 * (first + second * end) * end]
            yield x, h, costs, [*inner, stop], 6 * scale
        value += 6 * slope * h + 3 * bend * h * h + jerk * h**3
        slope += bend * h + jerk * h * h // 2  # all are even
        bend += jerk * h


def _least(b: list[int], known: int, depth: int) -> int:
    """A lower bound of a cubic with these Bernstein coefficients, finer where it lies below what is known to be reached."""
    if min(b) >= known or depth == 0 or min(b) == min(b[0], b[3]):
        return min(b)
    ab, bc, cd = ((p + q) // 2 for p, q in pairwise(b))
    abc, bcd = (ab + bc) // 2, (bc + cd) // 2
    middle = (abc + bcd) // 2
    halves = ([b[0], ab, abc, middle], [middle, bcd, cd, b[3]])
    return min(_least(half, known, depth - 1) for half in halves)


def spread_bound(spread: Spread, loss: Loss, *, sensitivity: float, epsilon: float, delta: float) -> Fraction:
    """Return the lower bound that the multipliers prove for an even loss, at least 0.

    Examples
    --------
    >>> spread = Spread(1, np.array([-1, 0, 1]), np.array([[1, 1, 1]]), np.array([[0.0]]))
    >>> spread_bound(spread, Loss.of("absolute"), sensitivity=1.0, epsilon=1.0, delta=0.0)
    Fraction(0, 1)
    """
    if not loss.polynomial:
        raise DesignError.of("loss", loss.name, "must be absolute, squared or a mix of both: it must be even")
    pieces = [
        ([c + f for c, f in zip(costs, rest)], unit)
        for _, _, costs, rest, unit in spread_pieces(spread, loss, sensitivity, epsilon)
    ]
    if not pieces:
        return Fraction(0)
    unit = pieces[0][1]
    reached = min(min(b[0], b[3]) for b, _ in pieces)
    level = min(_least(b, reached, _HALVINGS) for b, _ in pieces)
    charged = _charge(spread)
    return max(Fraction(level, unit) - Fraction(delta) * charged, Fraction(0))


def plain_spread(loss: Loss, sensitivity: float, epsilon: float) -> Spread:
    r"""One shift, by Δ, of one function around 0, a height h up to Δ/4 and 0 from Δ/2 on: :math:`(2 + e^\varepsilon) h = \ell(Δ/2)`.

    It proves 2h(1 - δ), which is small, and more than 0 whatever δ < 1.
    """
    height = float(loss(np.array([sensitivity / 2]))[0]) / (2 + math.exp(epsilon)) * (1 - 1e-12)
    shift = np.array([[4, 4, 4]], dtype=np.int64)
    return Spread(4, np.array([-2, -1, 1, 2], dtype=np.int64), shift, np.full((1, 2), height))


def _charge(spread: Spread) -> Fraction:
    tops = spread.psi.max(axis=1, initial=0.0).tolist()
    return sum((mass * Fraction(top) for mass, top in zip(spread.doubled_masses, tops)), Fraction(0))
