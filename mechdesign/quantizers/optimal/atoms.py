r"""The point masses' share of the interior-point equations, eliminated in closed form.

At a point mass x_n of weight ω_n the row p_n is a variable with :math:`a \le p_n \le \rho a`,
:math:`\sum p_n = 1`, :math:`B \cdot p_n = x_n`. With :math:`d = u/(p - a)`, :math:`e = v/(\rho a - p)`,
:math:`D = d + e` and :math:`q = (d + \rho e)/D`, Newton's equations for the row are

.. math::
   \Delta p = q\,\Delta a + (\Delta\lambda + B\,\Delta\mu + g)/D,

and what remains for a is the diagonal :math:`(\rho - 1)^2 d e / D` and a matrix of rank two per atom.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.floors import BlockFill
from mechdesign.typing import Array

__all__ = ["AtomBlock", "AtomStep"]

Fold = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class AtomStep:
    """A Newton step of the rows: p, p − a, ρa − p, their multipliers u, v, and λ, μ."""

    rows: Array
    low: Array
    high: Array
    u: Array
    v: Array
    lam: Array
    mu: Array


class AtomBlock:
    """Rows at the point masses, their slacks and multipliers.

    Parameters
    ----------
    problem : FloorProblem
    floors : ndarray (m,)
        Strictly feasible floors to start from.
    t : float
        Complementary products to start from.
    """

    def __init__(self, problem: FloorProblem, floors: Array, t: float) -> None:
        self.bins, self.rho = problem.bins, problem.rho
        self.points, self.weights = problem.atoms
        self.problem = problem
        self.costs = self.weights[:, None] * problem.loss(self.bins - self.points[:, None])
        # Start on the line from a to ρa where the row sums to one; means come with the first steps.
        share = (1.0 - floors.sum()) / ((self.rho - 1.0) * floors.sum())
        share = min(max(share, 1e-3), 1 - 1e-3)
        self.rows = np.tile(floors * (1 + share * (self.rho - 1.0)), (len(self.points), 1))
        self.low, self.high = self.rows - floors, self.rho * floors - self.rows
        self.u, self.v = t / self.low, t / self.high
        self.lam, self.mu = np.zeros(len(self.points)), np.zeros(len(self.points))

    @property
    def count(self) -> int:
        """Number of complementary pairs."""
        return 2 * self.rows.size

    def value(self, fill: BlockFill) -> float:
        """The point masses' expected loss under a fill."""
        return float(self.weights @ self.problem.loss_at(fill, self.points))

    def slopes(self) -> Array:
        """μ at the atoms, per unit of weight."""
        return self.mu / self.weights

    def bound_terms(self) -> tuple[float, Array]:
        """Σω(λ + μx) and Σω h(c): what the duals contribute to the bound."""
        reduced = self.problem.reduced(self.points, self.lam / self.weights, self.mu / self.weights)
        return float(self.lam.sum() + self.mu @ self.points), self.weights @ reduced

    def residual(self) -> Array:
        """Σ_n (u_n − ρ v_n), the rows' part of the equation for a."""
        return (self.u - self.rho * self.v).sum(axis=0)

    def products(self, step: AtomStep | None = None, reach: float = 0.0) -> float:
        """Sum of the complementary products, after a step if one is given."""
        if step is None:
            return float((self.u * self.low).sum() + (self.v * self.high).sum())
        u, v = self.u + reach * step.u, self.v + reach * step.v
        return float((u * (self.low + reach * step.low)).sum() + (v * (self.high + reach * step.high)).sum())

    def pairs(self, step: AtomStep) -> list[tuple[Array, Array]]:
        """Positive quantities with their steps."""
        return [(self.low, step.low), (self.high, step.high), (self.u, step.u), (self.v, step.v)]

    def balanced(self) -> bool:
        """Whether the rows sum to one and have the right means already."""
        return float(np.abs(self._mass).max() + np.abs(self._mean).max()) < 1e-9

    def eliminate(self, fold: Fold) -> Array:
        """Form the pivots for this point and return the rows' contribution to the matrix for a."""
        self._d, self._e = self.u / self.low, self.v / self.high
        self._inverse = inverse = 1.0 / (self._d + self._e)
        self._q = q = (self._d + self.rho * self._e) * inverse
        self._total = total = inverse.sum(axis=1)
        # Offsets from the freest entry: the weighted variance keeps its accuracy when one entry dominates.
        anchor = self.bins[np.argmax(inverse, axis=1)]
        offset = self.bins - anchor[:, None]
        shift = (inverse * offset).sum(axis=1) / total
        self._centre = anchor + shift
        self._away = away = offset - shift[:, None]
        self._spread = spread = (inverse * away**2).sum(axis=1)
        self._dual = self.costs - self.lam[:, None] - self.mu[:, None] * self.bins - self.u + self.v
        self._mass = self.rows.sum(axis=1) - 1.0
        self._mean = self.rows @ self.bins - self.points
        self._m0, self._m2 = fold(q), fold(q * away)
        matrix = (self._m0.T / total) @ self._m0 + (self._m2.T / spread) @ self._m2
        diagonal = fold((self._d * self._e * inverse).sum(axis=0)) * (self.rho - 1.0) ** 2
        matrix.flat[:: len(diagonal) + 1] += diagonal
        return matrix

    def right_side(self, goal: float, first: AtomStep | None) -> Array:
        """The rows' part of the right-hand side for a (before folding), for products = goal."""
        e_u, e_v = goal - self.u * self.low, goal - self.v * self.high
        if first is not None:
            e_u, e_v = e_u - first.u * first.low, e_v - first.v * first.high
        self._x1, self._x2 = e_u / self.low, e_v / self.high
        g = self._x1 - self._x2 - self._dual
        self._g = g * self._inverse
        self._r1 = self._mass + self._g.sum(axis=1)
        self._r2 = self._mean - self._centre * self._mass + (self._g * self._away).sum(axis=1)
        return (self._q * g - self._x1 + self.rho * self._x2).sum(axis=0)

    def folded_side(self) -> Array:
        """The rest of it, which is folded already; after `right_side`."""
        return -(self._m0.T @ (self._r1 / self._total) + self._m2.T @ (self._r2 / self._spread))

    def back_substitute(self, d: Array, wide: Array) -> AtomStep:
        """Steps of the rows that belong to the step d of the independent floors (`wide`: of all floors)."""
        k1 = -(self._r1 + self._m0 @ d) / self._total
        k2 = -(self._r2 + self._m2 @ d) / self._spread
        rows = self._q * wide + (k1[:, None] + self._away * k2[:, None]) * self._inverse + self._g
        low, high = rows - wide, self.rho * wide - rows
        return AtomStep(
            rows,
            low,
            high,
            self._x1 - self._d * low,
            self._x2 - self._e * high,
            k1 - self._centre * k2,
            k2,
        )

    def advance(self, step: AtomStep, reach: float, floors: Array) -> None:
        """Take the step; slacks are recomputed from rows and floors so that errors do not add up."""
        self.rows = self.rows + reach * step.rows
        low, high = self.low + reach * step.low, self.high + reach * step.high
        self.low = np.maximum(self.rows - floors, 1e-3 * low)
        self.high = np.maximum(self.rho * floors - self.rows, 1e-3 * high)
        self.u, self.v = self.u + reach * step.u, self.v + reach * step.v
        self.lam, self.mu = self.lam + reach * step.lam, self.mu + reach * step.mu
