"""Small selection problems to the last digits: sequential quadratic programming on the exact problem."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import optimize

from mechdesign.quantizers.optm.blocks import SelectionBlocks
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["polished"]

_SHY = 1e-9  # share of the budget that a second-order solver leaves: about what it errs by


def polished(
    blocks: SelectionBlocks, q: Array, epsilon: float, deadline: Deadline
) -> tuple[Array, dict[str, Array]]:
    """Finish by SLSQP on the exact problem over (q, a): linear programs converge slowly where no vertex is optimal.

    It aims a hair inside the budget. With the multipliers of the limits, where this release of SciPy tells them.
    """
    n, rho, rows = blocks.size, np.exp(epsilon - _SHY * max(1.0, epsilon)), blocks.rows.toarray()
    low, high = np.flatnonzero(~blocks.largest), np.flatnonzero(blocks.largest)
    floor_of, inner = np.eye(blocks.floors)[blocks.output], blocks.inner.toarray()
    outer = np.eye(n)[blocks.outer]
    sums = np.hstack([rows, np.zeros((len(rows), blocks.floors))])

    def inside(z: Array) -> Array:
        p, floor = z[blocks.outer] * (inner @ z[:n]), z[n:][blocks.output]
        return np.concatenate([(p - floor)[low], (rho * floor - p)[high]])

    def inside_slopes(z: Array) -> Array:
        jacobian = (inner @ z[:n])[:, None] * outer + z[blocks.outer][:, None] * inner
        upper = np.hstack([jacobian[low], -floor_of[low]])
        return np.vstack([upper, np.hstack([-jacobian[high], rho * floor_of[high]])])

    def loss(z: Array) -> float:
        if deadline.passed:
            raise TimeoutError
        return blocks.loss(z[:n])

    solve = partial(
        optimize.minimize,
        loss,
        np.concatenate([q, blocks.extremes(q)[0]]),
        jac=lambda z: np.concatenate([blocks.gradient(z[:n]), np.zeros(blocks.floors)]),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * (n + blocks.floors),
        constraints=[
            {"type": "eq", "fun": lambda z: sums @ z - 1.0, "jac": lambda z: sums},
            {"type": "ineq", "fun": inside, "jac": inside_slopes},
        ],
        options={"maxiter": 200, "ftol": 1e-10},
    )
    try:
        found = solve()
    except TimeoutError:
        return q, {}
    end = np.maximum(found.x[:n], 0.0)
    if not np.isfinite(end).all():
        return q, {}
    costs = getattr(found, "multipliers", None) if found.success else None
    if costs is None:
        return end, {}
    limits = costs[len(rows) :]
    return end, {"floor": limits[: len(low)], "ceiling": limits[len(low) :]}
