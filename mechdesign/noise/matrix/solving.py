r"""The best strategy for a workload: the fixed point, factor by factor where the workload is a Kronecker product.

When one count changes, weights :math:`w_1 \otimes w_2` on the changes of a product give it the singular values, the shares and both
bounds of its factors multiplied: the optimum of a product is the product of the optima, for the total and for the largest error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechdesign.errors import DesignError, SolverError
from mechdesign.noise.correlated.fixed_point import Balance, balance, fixed_point
from mechdesign.noise.matrix.changes import Changes
from mechdesign.noise.matrix.workload import Workload
from mechdesign.solvers import Deadline
from mechdesign.typing import Array

__all__ = ["Multipliers", "Solved", "checked_largest", "proved_bound", "solve_strategy", "triangular"]

Multipliers = tuple[tuple[Array, Array | None], ...]
"""Weights on the changes, and loads on the answers, of each factor."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A strategy up to its scale, the weights that prove a bound, and the steps it took."""

    strategy: Array
    multipliers: Multipliers
    steps: int


def factors_of(workload: Workload, changes: Changes) -> tuple[Workload, ...]:
    """The factors that can be solved on their own."""
    return workload.factors() if changes.changed == 1 else (workload,)


def _data(workload: Workload, changes: Changes, *, largest: bool) -> tuple[Array, Array, Array | None]:
    """Root, vectors in its coordinates, answers in these."""
    root = workload.root
    vectors = root.T if changes.changed == 1 else changes.vectors() @ root.T
    answers = None
    if largest:
        q, t = np.linalg.qr(root.T)
        answers = np.linalg.solve(t, (workload.dense() @ q).T).T
    return root, np.ascontiguousarray(vectors), answers


def solve_strategy(
    workload: Workload, changes: Changes, *, largest: bool, gap: float, deadline: Deadline
) -> Solved:
    """Solve each factor and multiply."""
    parts = factors_of(workload, changes)
    found = []
    for part in parts:
        root, vectors, answers = _data(part, changes, largest=largest)
        size = 2.0 ** math.ceil(math.log2(float(np.abs(vectors).max())))
        best, steps = fixed_point(vectors / size, gap / len(parts), deadline, answers=answers)
        found.append((best.whitening @ root, best, steps))
    strategy: Array = found[0][0] / _length(found[0][0])
    for other, _, _ in found[1:]:
        strategy = np.asarray(np.kron(strategy, other / _length(other)), dtype=float)
    return Solved(
        strategy,
        tuple((best.weights, best.loads) for _, best, _ in found),
        sum(steps for _, _, steps in found),
    )


def _length(strategy: Array) -> float:
    return math.sqrt(float((strategy**2).sum(axis=0).max()))


def proved_bound(workload: Workload, changes: Changes, multipliers: Multipliers, *, largest: bool) -> float:
    r"""The bound that the multipliers prove, at a = μ = 1: no covariance costs less."""
    parts = factors_of(workload, changes)
    if len(parts) != len(multipliers):
        return 0.0
    bound = 1.0
    for part, (weights, loads) in zip(parts, multipliers):
        _, vectors, answers = _data(part, changes, largest=largest)
        rows = 0 if answers is None else len(answers)
        if weights.shape != (len(vectors),) or (answers is not None) != (loads is not None):
            return 0.0
        if not _sound(weights) or (loads is not None and (loads.shape != (rows,) or not _sound(loads))):
            return 0.0
        found: Balance | None = balance(vectors, weights, answers, loads)
        if found is None:
            return 0.0
        bound *= found.lower_bound
    return bound


def _sound(weights: Array) -> bool:
    return bool(np.isfinite(weights).all() and weights.min() >= 0 and weights.max() > 0)


def triangular(strategy: Array) -> Array:
    """A lower triangular matrix with the same second moments, for a square strategy: R = Q L."""
    if strategy.shape[0] != strategy.shape[1]:
        return strategy
    lower = np.asarray(np.linalg.qr(strategy[:, ::-1], mode="r"))[::-1, ::-1]
    found: Array = np.tril(lower) * np.where(np.diag(lower) < 0, -1.0, 1.0)[:, None]
    if not (np.diag(found) > 0).all():
        raise SolverError("the strategy leaves a count out", solver="fixed-point", status="range")
    return found


def checked_largest(workload: Workload) -> None:
    """Raise DesignError where the largest error needs a matrix that is too large."""
    try:
        for part in workload.factors():
            part.dense()
    except DesignError:
        raise DesignError.of(
            "loss", "largest", "needs every query of the workload, and these are too many"
        ) from None
