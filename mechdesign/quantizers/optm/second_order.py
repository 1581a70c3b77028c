"""Small selection problems to the last digits: sequential quadratic programming on the exact problem."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import numpy as np
from scipy import optimize

from mechdesign.quantizers.optm.blocks import SelectionBlocks
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.one_thread import one_thread
from mechdesign.typing import Array

__all__ = ["polished"]

_ALONE = 20  # unknowns up to which no product is spread over threads anyway
_SHY = 1e-9  # share of the budget that a second-order solver leaves: about what it errs by


def polished(
    blocks: SelectionBlocks, q: Array, epsilon: float, deadline: Deadline
) -> tuple[Array, dict[str, Array]]:
    """Finish by SLSQP on the exact problem over (q, a): linear programs converge slowly where no vertex is optimal.

    It aims a hair inside the budget. With the multipliers of the limits, where this release of SciPy tells them.
    """
    n, rho, floors = blocks.size, np.exp(epsilon - _SHY * max(1.0, epsilon)), blocks.floors
    order = np.concatenate([np.flatnonzero(~blocks.largest), np.flatnonzero(blocks.largest)])
    every, outer, floor_of = np.arange(len(order)), blocks.outer[order], n + blocks.output[order]
    largest, split = blocks.largest[order], int((~blocks.largest).sum())
    # p − a ≥ 0 at the smallest limits, ρ a − p ≥ 0 at the largest.
    weight = np.where(largest, rho, -1.0)
    inner, sums = np.zeros((len(order), n + floors)), np.zeros((blocks.rows.shape[0], n + floors))
    inner[:, :n] = np.where(largest, -1.0, 1.0)[:, None] * blocks.inner.toarray()[order]
    sums[:, :n] = blocks.rows.toarray()
    kernel = np.zeros((n + floors, n + floors))
    kernel[:n, :n] = blocks.kernel
    both = kernel + kernel.T

    def inside(z: Array) -> Array:
        return z[outer] * (inner @ z) + weight * z[floor_of]

    def inside_slopes(z: Array) -> Array:
        jacobian = z[outer][:, None] * inner
        jacobian[every, outer] += inner @ z
        jacobian[every, floor_of] = weight
        return jacobian

    def loss(z: Array) -> float:
        if deadline.passed:
            raise TimeoutError
        return float(z @ kernel @ z)

    solve = partial(
        optimize.minimize,
        loss,
        np.concatenate([q, blocks.extremes(q)[0]]),
        jac=lambda z: both @ z,
        method="SLSQP",
        bounds=optimize.Bounds(np.zeros(n + floors), np.ones(n + floors)),
        constraints=[
            {"type": "eq", "fun": lambda z: sums @ z - 1.0, "jac": lambda z: sums},
            {"type": "ineq", "fun": inside, "jac": inside_slopes},
        ],
        options={"maxiter": 200, "ftol": 1e-10},
    )
    try:
        with nullcontext() if n <= _ALONE else one_thread():
            found = solve()
    except TimeoutError:
        return q, {}
    end = np.maximum(found.x[:n], 0.0)
    if not np.isfinite(end).all():
        return q, {}
    costs = getattr(found, "multipliers", None) if found.success else None
    if costs is None:
        return end, {}
    limits = costs[len(sums) :]
    return end, {"floor": limits[:split], "ceiling": limits[split:]}
