r"""How the optimal value moves with the outputs: the envelope theorem.

At the optimum, with rows p, duals μ(x) and multipliers ν of the constraints on the range of means,

.. math:: \frac{dF^*}{dB_i} = \int p_i(x)\bigl(\ell'(B_i - x) - \mu(x)\bigr)\,dF(x)
          - \sum_j \nu_j \frac{\partial}{\partial B_i}\bigl(C_j a - b_j\bigr).

Both p and μ are affine on cells (polynomial losses), so partial moments of order 2 are enough.
"""

from __future__ import annotations

import numpy as np

from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.lower_bound import FloorSolution
from mechdesign.quantizers.optimal.pieces import pieces
from mechdesign.typing import Array

__all__ = ["bin_slopes"]


def bin_slopes(problem: FloorProblem, solution: FloorSolution) -> Array:
    """Return dF*/dB, shape (m,); at kinks of F* a subgradient-like choice."""
    bins, m = problem.bins, len(problem.bins)
    w1, w2 = problem.loss.absolute, problem.loss.squared
    table = pieces(problem, solution.floors)
    slope = np.zeros(m)
    if problem.has_density:
        cells, at = table.cells()
        middle, quarter = (cells[:-1] + cells[1:]) / 2, np.diff(cells) / 4
        p0, p1 = table.rows_at(middle - quarter, at), table.rows_at(middle + quarter, at)
        i, j = table.left[at], table.right[at]
        _, mu0 = problem.slopes(middle - quarter, i, j)
        _, mu1 = problem.slopes(middle + quarter, i, j)
        # On each cell p = α + β x and μ = γ + δ x.
        beta, delta = (p1 - p0) / (2 * quarter)[:, None], (mu1 - mu0) / (2 * quarter)
        alpha, gamma = p0 - beta * (middle - quarter)[:, None], mu0 - delta * (middle - quarter)
        sign = np.where(bins >= middle[:, None], 1.0, -1.0)
        e = w1 * sign + 2 * w2 * bins - gamma[:, None]
        f = -2 * w2 - delta[:, None]
        m0, m1, m2 = (column[:, None] for column in problem.prior.continuous_moments(cells).T)
        slope += (alpha * e * m0 + (alpha * f + beta * e) * m1 + beta * f * m2).sum(axis=0)
    points, weights = problem.atoms
    if points.size:
        mu = solution.atom_slopes
        error = bins - points[:, None]
        derivative = w1 * np.sign(error) + 2 * w2 * error
        slope += weights @ (table.rows_at(points, table.at(points)) * (derivative - mu[:, None]))
    return slope - _range_part(problem, solution)


def _range_part(problem: FloorProblem, solution: FloorSolution) -> Array:
    """Σ_j ν_j ∂(C_j a − b_j)/∂B."""
    m, a, rho = len(problem.bins), solution.floors, problem.rho
    upper, lower = solution.multipliers[2 : 2 + m], solution.multipliers[2 + m : 2 + 2 * m]
    k = np.arange(m)
    right, left = k[None, :] > k[:, None], k[None, :] < k[:, None]
    high = rho * right + left  # ∂ of row j for `upper` in B_k, per a_k
    low = rho * left + right
    part = a * (upper @ high) + upper * (1.0 - high @ a)
    return part - a * (lower @ low) - lower * (1.0 - low @ a)
