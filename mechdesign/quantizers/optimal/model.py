r"""The exact optimum as one linear program on a grid of knots, declared in CVXPY: the reference.

With floors a, rows :math:`P_k` at knots :math:`x_0 < \dots < x_K` and :math:`\rho = e^\varepsilon`:

.. math::
   \min \sum_{k,i} c_{ki} P_{ki} \quad\text{s.t.}\quad a_i \le P_{ki} \le \rho a_i, \quad \sum_i P_{ki} = 1, \quad
   \bigl|\sum_i B_i P_{ki} - x_k\bigr| \le b,

c being the exact expected loss of the mechanism that interpolates the rows: on each cell between knots and outputs
the hat functions times the loss are polynomials, integrated by partial moments (other convex losses: by quadrature).
For the worst case, an epigraph variable over the knots.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.optimal.floors import LARGEST_EPSILON
from mechdesign.solvers.base import Model
from mechdesign.typing import Array


def hat_costs(bins: Array, knots: Array, prior: Prior, loss: Loss) -> tuple[Array, float]:
    """Return (c, c0): the expected loss of interpolated rows P is Σ c·P + c0; c has shape (K + 1, m)."""
    m = len(bins)
    costs = np.zeros((len(knots), m))
    inside = bins[(bins > knots[0]) & (bins < knots[-1])]
    cells = np.unique(np.concatenate([knots, inside]))
    middle = (cells[:-1] + cells[1:]) / 2
    at = np.clip(np.searchsorted(knots, middle, side="right") - 1, 0, len(knots) - 2)
    x0, x1 = knots[at][:, None], knots[at + 1][:, None]
    h = x1 - x0
    if loss.function is not None:

        def integrand(x: Array) -> Array:
            k = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
            value = loss(bins - x[:, None])
            t = ((x - knots[k]) / (knots[k + 1] - knots[k]))[:, None]
            return np.concatenate([(1 - t) * value, t * value], axis=1)

        both = prior.integrals(integrand, cells)
        np.add.at(costs, at, both[:, :m])
        np.add.at(costs, at + 1, both[:, m:])
        return costs, 0.0
    moments = prior.moments(cells)
    m0, m1, m2 = moments[:, :1], moments[:, 1:2], moments[:, 2:]
    sign = np.where(bins >= middle[:, None], 1.0, -1.0)
    # |B − x| (x1 − x)/h and |B − x| (x − x0)/h
    left = sign * (bins * x1 * m0 - (bins + x1) * m1 + m2) / h
    right = sign * (-bins * x0 * m0 + (bins + x0) * m1 - m2) / h
    np.add.at(costs, at, loss.absolute * left)
    np.add.at(costs, at + 1, loss.absolute * right)
    # Σ_i p_i (B_i − x)² = Σ_i p_i (B_i² − 2 B_i x) + x²: order 2 is enough, as rows sum to one.
    left = (bins * bins * (x1 * m0 - m1) - 2 * bins * (x1 * m1 - m2)) / h
    right = (bins * bins * (m1 - x0 * m0) - 2 * bins * (m2 - x0 * m1)) / h
    np.add.at(costs, at, loss.squared * left)
    np.add.at(costs, at + 1, loss.squared * right)
    return costs, loss.squared * float(m2.sum())


def knot_model(
    bins: Array,
    epsilon: float,
    prior: Prior,
    loss: Loss,
    knots: Array,
    *,
    objective: str = "mean",
    max_mse: float | None = None,
    max_bias: float = 0.0,
) -> Model:
    """Declare the program; constraint families "privacy", "normalisation", "unbiased" and "mse"."""
    import cvxpy as cp

    m, K = len(bins), len(knots)
    rho = math.exp(min(epsilon, LARGEST_EPSILON))
    P = cp.Variable((K, m), nonneg=True, name="P")
    a = cp.Variable(m, nonneg=True, name="a")
    floors = cp.reshape(a, (1, m), order="C")
    ones = np.ones((K, 1))
    mean = P @ bins - knots
    families: dict[str, Any] = {
        "privacy": [ones @ floors <= P, rho * (ones @ floors) >= P],
        "normalisation": cp.sum(P, axis=1) == 1,
        "unbiased": mean == 0 if max_bias == 0 else [mean <= max_bias, mean >= -max_bias],
    }
    variables = {"P": P, "a": a}
    costs, constant = hat_costs(bins, knots, prior, loss)
    target = cp.sum(cp.multiply(costs, P)) + constant
    if objective == "worst":
        worst = cp.Variable(name="worst")
        variables["worst"] = worst
        at_knots = loss(bins - knots[:, None])
        families["worst case"] = worst >= cp.sum(cp.multiply(at_knots, P), axis=1)
        target = worst
    if max_mse is not None:
        squares, extra = hat_costs(bins, knots, prior, Loss(squared=1.0))
        families["mse"] = cp.sum(cp.multiply(squares, P)) + extra <= max_mse
    constraints: list[cp.Constraint] = []
    for family in families.values():
        constraints += family if isinstance(family, list) else [family]
    return Model(cp.Problem(cp.Minimize(target), constraints), variables, families)
