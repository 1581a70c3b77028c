"""Strategies for linear queries on counts: published ones, to compare with, and Toeplitz and banded ones for streams whose patterns are too many to list."""

from __future__ import annotations

import math

import numpy as np
from scipy import linalg, optimize, signal

from mechdesign.noise.changes import ChangeSet, Patterns
from mechdesign.noise.correlated_noise import FULL
from mechdesign.problem.checks import integer
from mechdesign.problem.workload import Workload
from mechdesign.solvers import Deadline
from mechdesign.typing import Array


def square_root(size: int) -> Array:
    r"""Return the square root of the matrix of prefix sums: Toeplitz, :math:`c_k = \binom{2k}{k} 4^{-k}`.

    Both factors of Fichtenberger, Henzinger and Upadhyay (2023), *Constant matters: fine-grained error bound on differentially
    private continual observation*.

    Examples
    --------
    >>> bool(np.allclose(square_root(5) @ square_root(5), np.tri(5)))
    True
    """
    k = np.arange(1, integer("size", size, 1, 10**5))
    column = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    return np.asarray(np.tril(linalg.toeplitz(column)))


def binary_tree(size: int) -> Array:
    """Return the sums over the intervals of a binary tree over the counts, one a row (Dwork et al. 2010, Chan, Shi and Song 2011)."""
    size, rows, width = integer("size", size, 1, 10**5), [], 1
    while True:
        starts = range(0, size, width)
        for start in starts:
            row = np.zeros(size)
            row[start : start + width] = 1.0
            rows.append(row)
        if width >= size:
            return np.unique(np.array(rows), axis=0)
        width *= 2


def _tree_answers(size: int, tree: Array) -> Array:
    """Return each prefix as a sum of the fewest intervals of the tree."""
    known = {tuple(np.flatnonzero(row)[[0, -1]].tolist()): k for k, row in enumerate(tree)}
    found = np.zeros((size, len(tree)))
    for t in range(size):
        start = 0
        while start <= t:
            width = 1
            while start % (2 * width) == 0 and start + 2 * width - 1 <= t:
                width *= 2
            found[t, known[(start, start + width - 1)]] = 1.0
            start += width
    return found


def strategy_error(
    workload: Workload, changes: ChangeSet, strategy: Array, *, largest: bool, answers: Array | None = None
) -> float:
    """Return the error of the workload from a strategy at μ = 1, by least squares or by the matrix `answers`."""
    spent = changes.spent(strategy)[0]
    if answers is None:
        spread = np.linalg.inv(np.linalg.qr(strategy, mode="r"))
        if not largest:
            return spent * float(((workload.root @ spread) ** 2).sum())
        answers = workload.apply(spread)
    variances = (answers**2).sum(axis=1)
    return spent * float(variances.max() if largest else variances.sum())


def svd_bound(workload: Workload, changes: ChangeSet) -> float:
    r"""Return the lower bound :math:`a^2 (\sum_i \sigma_i(A))^2/n` on the total error of every strategy at μ = 1 (Li and Miklau 2013)."""
    singular = np.linalg.svd(workload.root, compute_uv=False)
    return changes.most**2 * float(singular.sum()) ** 2 / workload.size


def published(workload: Workload, changes: ChangeSet, *, largest: bool) -> dict[str, float]:
    """Return the errors at μ = 1 of published strategies for such a workload, by name."""
    n = workload.size
    found = {"noise on the counts": strategy_error(workload, changes, np.eye(n), largest=largest)}
    if workload.count <= FULL:
        matrix = workload.dense()
        own = np.eye(len(matrix))
        found["noise on the answers"] = strategy_error(
            workload, changes, matrix, largest=largest, answers=own
        )
        if workload.count > n and len(workload.root) == n:
            found["noise on the answers, least squares"] = strategy_error(
                workload, changes, matrix, largest=largest
            )
    if workload.kinds in (("prefix",), ("ranges",)):
        tree = binary_tree(n)
        if workload.kinds == ("prefix",):
            root = square_root(n)
            found["square root factorization"] = strategy_error(workload, changes, root, largest=largest)
            found["binary tree"] = strategy_error(
                workload, changes, tree, largest=largest, answers=_tree_answers(n, tree)
            )
        found["binary tree, least squares"] = strategy_error(workload, changes, tree, largest=largest)
    return {name: error for name, error in found.items() if error < math.inf}


def toeplitz(changes: Patterns, *, largest: bool) -> Array:
    r"""Find a strategy for prefix sums by descent: lower triangular, Toeplitz, of coefficients :math:`c_0 \ge c_1 \ge \dots \ge 0`.

    The worst pattern is p = {0, b, 2b, …}, and :math:`A R^{-1}` has the coefficients s of :math:`1/((1 - z)\,c(z))`: the error is
    :math:`\lVert p * c \rVert^2 \sum_t s_t^2`, for the total with the weight n − t. At n = 32, four times and 8 apart, it lies 11% above the optimum.
    """
    size, pattern = changes.size, changes.first[0]
    place, weights = np.arange(1.0, size + 1), np.ones(size) if largest else np.arange(size, 0.0, -1)

    def divided(by: Array, what: Array) -> Array:
        return np.asarray(signal.lfilter([1.0], by, what))

    def back(filtering: Array, gradient: Array) -> Array:
        return np.asarray(signal.lfilter(filtering, [1.0], gradient[::-1]))[::-1]

    def error(falls: Array) -> tuple[float, Array]:
        """Return the logarithm of the error and its gradient in the falls (k + 1)(c_k − c_{k+1})."""
        c = np.cumsum((falls / place)[::-1])[::-1]
        moved, s = signal.lfilter(pattern, [1.0], c), divided(c, np.ones(size))
        spent, left = float(moved @ moved), float(weights @ s**2)
        slope = 2 * back(pattern, moved) / spent - 2 * back(divided(c, s), weights * s) / left
        return math.log(spent * left), np.cumsum(slope) / place

    start = -np.diff(square_root(size)[:, 0], append=0.0) * place
    found = optimize.minimize(error, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * size)
    return np.asarray(np.tril(linalg.toeplitz(np.cumsum((found.x / place)[::-1])[::-1])))


def banded(workload: Workload, changes: Patterns, *, largest: bool, deadline: Deadline) -> Array:
    r"""Find a strategy R of b bands by descent, lower triangular: its columns b steps apart are orthogonal.

    So a pattern P consumes :math:`\sum_{i \in P} x_i`, x the squared lengths of the columns. Sets of b steps in a row, and the set of all, are intervals:
    the largest such sum is the least :math:`k t + \sum_w u_w` with :math:`x_i \le t + \sum_{w \le i < w + b} u_w` and t, u ≥ 0. The descent
    is over the columns' directions, t and u; the largest error is the 1000-norm of the errors there. At (1, 1e-6) and k times of n steps (k, n, b) it costs 9% less than
    the best Toeplitz strategy at (4, 256, 64) and (5, 100, 20), 10% less at (20, 100, 5), and 6% more at (5, 200, 13), 37% more at (10, 100, 2).
    """
    size, k, b = changes.size, changes.participation.times, changes.participation.step
    asked = (workload.dense() if largest else workload.root).T
    rows, columns = np.nonzero(np.tri(size) - np.tri(size, k=-b))
    count, window = len(rows), np.ones(b)

    def strategy(free: Array) -> tuple[Array, Array, Array]:
        squares = free[-1] + signal.lfilter(window, [1.0], free[count:-1])
        scale = np.sqrt(squares / np.bincount(columns, free[:count] ** 2))
        found = np.zeros((size, size))
        found[rows, columns] = free[:count] * scale[columns]
        return found, squares, scale

    def error(free: Array) -> tuple[float, Array]:
        """Return the logarithm of the error and its gradient in the columns' directions, u and t."""
        found, squares, scale = strategy(free)
        factor = linalg.solve_triangular(found, asked, lower=True, trans=1)
        left, loads = _norm((factor**2).sum(axis=0), 1000 if largest else 1)
        slope = (
            -2 / left * linalg.solve_triangular(found, (factor * loads) @ factor.T, lower=True)[columns, rows]
        )
        along = np.bincount(columns, slope * found[rows, columns]) / squares
        across = slope * scale[columns] - free[:count] * (along * scale**2)[columns]
        spent = free[count:-1].sum() + k * free[-1]
        prices = signal.lfilter(window, [1.0], along[::-1])[::-1] / 2 + 1 / spent
        return math.log(left * spent), np.concatenate([across, prices, [along.sum() / 2 + k / spent]])

    def until(_: Array) -> None:
        if deadline.passed:
            raise StopIteration

    start = np.concatenate([square_root(size)[:, 0][rows - columns], np.full(size, 0.5 / b), [0.5]])
    least = np.concatenate([np.full(count, -np.inf), np.zeros(size), [1e-9]])
    found = optimize.minimize(
        error,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(least, np.full(len(start), np.inf)),
        callback=until,
        options={"ftol": 1e-6, "maxcor": 20, "maxiter": 1000},
    )
    return strategy(found.x)[0]


def _norm(values: Array, order: int) -> tuple[float, Array]:
    """Return the norm of values of at least 0, and its gradient."""
    top = values.max()
    share = values / top
    total = float((share**order).sum())
    return float(top) * total ** (1 / order), share ** (order - 1) * total ** (1 / order - 1)
