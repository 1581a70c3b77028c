r"""The best strategy for a workload: the fixed point, factor by factor where the workload is a Kronecker product.

When one count changes, weights :math:`w_1 \otimes w_2` on the changes of a product give it the singular values, the shares and both
bounds of its factors multiplied: the optimum of a product is the product of the optima, for the total and for the largest error.

To compare with: the strategies of the literature (tree, square root, the workload itself, the counts).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, optimize, signal

from mechdesign.errors import DesignError, SolverError
from mechdesign.noise.correlated.changes import Changes, Patterns
from mechdesign.noise.correlated.fixed_point import (
    Balance,
    balance,
    fixed_point,
    iterate,
    weights_of,
)
from mechdesign.noise.matrix.strategy import FULL
from mechdesign.problem.checks import integer
from mechdesign.problem.workload import Workload
from mechdesign.solvers import Deadline
from mechdesign.typing import Array

Multipliers = tuple[tuple[Array, Array | None], ...]
"""Weights on the changes, and loads on the answers, of each factor."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A strategy up to its scale, the weights that prove a bound, that bound at a = μ = 1, and the steps."""

    strategy: Array
    multipliers: Multipliers
    lower_bound: float
    steps: int


@dataclass(frozen=True, eq=False)
class Chain:
    r"""Prefix sums and ranges: the inverse of their Gram matrix is tridiagonal, and a balance takes n² steps, not n³.

    With :math:`(A^\top A)^{-1} = U^\top U`, U upper bidiagonal, the product :math:`C = \sqrt w\,A^\top\sqrt q` of the fixed point
    has an inverse as narrow, :math:`B = q^{-1/2} U w^{-1/2}` (q = 1 for the total error). The eigenvectors of :math:`B^\top B` are
    the left singular vectors of C, :math:`W S W^\top` the best second moments, and :math:`\sqrt S\,W^\top w^{-1/2}` a strategy.
    On the deployed grid (results/ablations) it is a median 2.2, at most 3.2, times as fast.

    Parameters
    ----------
    workload : Workload
    largest : bool
        Whether the largest error counts: prefix sums alone.
    """

    workload: Workload
    largest: bool

    @property
    def size(self) -> int:
        """n."""
        return self.workload.size

    @property
    def equal(self) -> Array:
        return np.zeros(self.size * (2 if self.largest else 1))

    @property
    def sure(self) -> float:
        return 0.5 if self.largest else 1.0

    @cached_property
    def bands(self) -> tuple[Array, Array]:
        """Diagonal and superdiagonal of U.

        For prefix sums U is the transpose of the differences. All ranges have the Gram matrix
        (min + 1)(n − max), of inverse tridiag(−1, 2, −1)/(n + 1), whose Cholesky pivots are (i + 1)/i.
        """
        n = self.size
        if self.workload.kinds == ("prefix",):
            return np.ones(n), -np.ones(n - 1)
        i = np.arange(1.0, n + 1)
        diagonal = np.sqrt((i + 1) / i)
        return diagonal / np.sqrt(n + 1), -1 / (diagonal[:-1] * np.sqrt(n + 1))

    def split(self, logs: Array) -> tuple[Array, Array | None]:
        """Weights and loads of sum 1."""
        weights = weights_of(logs[: self.size])
        loads = weights_of(logs[self.size :]) if self.largest else None
        return weights / weights.sum(), None if loads is None else loads / loads.sum()

    def _inverse(self, weights: Array, loads: Array | None) -> tuple[Array, Array]:
        """Diagonal and superdiagonal of B."""
        diagonal, above = self.bands
        across, along = 1 / np.sqrt(weights), np.ones(self.size) if loads is None else 1 / np.sqrt(loads)
        return along * diagonal * across, along[:-1] * above * across[1:]

    def at(self, logs: Array) -> Balance | None:
        """The balance, its whitening the strategy itself; None where doubles do not hold it."""
        weights, loads = self.split(logs)
        with np.errstate(all="ignore"):
            diagonal, above = self._inverse(weights, loads)
            square, off_diagonal = diagonal**2, diagonal[:-1] * above
            square[1:] += above**2
            if not (np.isfinite(square).all() and np.isfinite(off_diagonal).all()):
                return None
            try:
                values, vectors = linalg.eigh_tridiagonal(square, off_diagonal)
            except np.linalg.LinAlgError:
                return None
            if not values[0] > 0:
                return None
            singular, burden = 1 / np.sqrt(values), None
            total = singular.sum()
            whitening = (vectors * np.sqrt(singular)).T / np.sqrt(weights)
            share = (vectors**2 @ singular) / (weights * total)
            if loads is not None:
                outer = diagonal[:, None] * vectors
                outer[:-1] += above[:, None] * vectors[1:]
                burden = (outer**2 @ singular**3) / (loads * total)
        if not (np.isfinite(share).all() and (burden is None or np.isfinite(burden).all())):
            return None
        return Balance(weights, loads, singular, whitening, share, burden)

    def lower_bound(self, weights: Array, loads: Array | None) -> float:
        """(tr S)² from below: no covariance costs less, at μ = 1.

        The values of B are eigenvalues of a tridiagonal matrix of zero diagonal, each off by no more than 4n roundings of its
        norm.
        """
        weights = weights / weights.sum()
        loads = None if loads is None else loads / loads.sum()
        with np.errstate(all="ignore"):
            diagonal, above = self._inverse(weights, loads)
            off_diagonal = np.empty(2 * self.size - 1)
            off_diagonal[::2], off_diagonal[1::2] = diagonal, above
            if not np.isfinite(off_diagonal).all():
                return 0.0
            values = linalg.eigvalsh_tridiagonal(np.zeros(2 * self.size), off_diagonal, lapack_driver="sterf")
            room = 4 * self.size * 2.0**-52 * (np.abs(diagonal).max() + np.abs(above).max(initial=0.0))
            return float((1 / (np.abs(values[self.size :]) + room)).sum()) ** 2 * (1 - 1e-12)


def factors_of(workload: Workload, changes: Changes) -> tuple[Workload, ...]:
    """The factors that can be solved on their own."""
    return workload.factors() if changes.l0 == 1 else (workload,)


def _data(workload: Workload, changes: Changes, *, largest: bool) -> tuple[Array, Array, Array | None]:
    """Root, vectors in its coordinates, answers in these."""
    root = workload.root
    vectors = root.T if changes.l0 == 1 else changes.vectors() @ root.T
    answers = None
    if largest:
        q, t = np.linalg.qr(root.T)
        answers = np.linalg.solve(t, (workload.dense() @ q).T).T
    return root, np.ascontiguousarray(vectors), answers


def solve_strategy(
    workload: Workload, changes: Changes, *, largest: bool, gap: float, deadline: Deadline
) -> Solved:
    """Solve each factor and multiply; time is kept for what is done with the strategy afterwards."""
    parts = factors_of(workload, changes)
    found = [_solved(part, changes, largest, gap / len(parts), deadline) for part in parts]
    strategy = found[0].strategy
    for other in found[1:]:
        strategy = np.asarray(
            np.kron(strategy / _length(strategy), other.strategy / _length(other.strategy)), dtype=float
        )
    return Solved(
        strategy,
        tuple(part.multipliers[0] for part in found),
        math.prod(part.lower_bound for part in found),
        sum(part.steps for part in found),
    )


def _solved(part: Workload, changes: Changes, largest: bool, gap: float, deadline: Deadline) -> Solved:
    """One factor, by its chain where it has one."""
    if (chain := _chain(part, changes, largest=largest)) is not None:
        found = iterate(chain, gap, deadline)
        best = found.best
        bound = chain.lower_bound(best.weights, best.loads)
        return Solved(best.whitening, ((best.weights, best.loads),), bound, found.steps)
    root, vectors, answers = _data(part, changes, largest=largest)
    size = 2.0 ** math.ceil(math.log2(float(np.abs(vectors).max())))
    unlisted = changes if isinstance(changes, Patterns) and not changes.listed else None
    # the bound of a few patterns lies some hundredths below any strategy found: one more or less is nothing
    found = fixed_point(vectors / size, max(gap, 0.01) if unlisted else gap, deadline, answers=answers)
    best = found.best
    bound = best.lower_bound * size**2 * (1 - 1e-12)
    strategy = best.whitening @ root
    if unlisted:
        tried = [banded(part, unlisted, largest=largest, deadline=deadline)]
        tried += [toeplitz(unlisted, largest=largest)] if unlisted.sums else []
        strategy = min(tried, key=lambda found: strategy_error(part, unlisted, found, largest=largest))
    return Solved(strategy, ((best.weights, best.loads),), bound, found.steps)


def toeplitz(changes: Patterns, *, largest: bool) -> Array:
    r"""A strategy for prefix sums: lower triangular, Toeplitz, of coefficients :math:`c_0 \ge c_1 \ge \dots \ge 0`, found by descent.

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
        """Logarithm of the error, by the falls c_k − c_{k+1}, those over k + 1."""
        c = np.cumsum((falls / place)[::-1])[::-1]
        moved, s = signal.lfilter(pattern, [1.0], c), divided(c, np.ones(size))
        spent, left = float(moved @ moved), float(weights @ s**2)
        slope = 2 * back(pattern, moved) / spent - 2 * back(divided(c, s), weights * s) / left
        return math.log(spent * left), np.cumsum(slope) / place

    start = -np.diff(square_root(size)[:, 0], append=0.0) * place
    found = optimize.minimize(error, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * size)
    return np.asarray(np.tril(linalg.toeplitz(np.cumsum((found.x / place)[::-1])[::-1])))


def banded(workload: Workload, changes: Patterns, *, largest: bool, deadline: Deadline) -> Array:
    r"""A strategy R of b bands, lower triangular, found by descent: columns b steps apart are orthogonal.

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
        """Logarithm of the error, by the directions of the columns, u and t."""
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
    """The norm of values of at least 0, and its gradient."""
    top = values.max()
    share = values / top
    total = float((share**order).sum())
    return float(top) * total ** (1 / order), share ** (order - 1) * total ** (1 / order - 1)


def _chain(part: Workload, changes: Changes, *, largest: bool) -> Chain | None:
    """The chain of a workload, where it has one."""
    has = part.kinds == ("prefix",) or (part.kinds == ("ranges",) and not largest)
    return Chain(part, largest) if has and changes.l0 == 1 else None


def _length(strategy: Array) -> float:
    return math.sqrt(float((strategy**2).sum(axis=0).max()))


def proved_bound(workload: Workload, changes: Changes, multipliers: Multipliers, *, largest: bool) -> float:
    r"""The bound that the multipliers prove, at a = μ = 1: no covariance costs less."""
    parts = factors_of(workload, changes)
    if len(parts) != len(multipliers):
        return 0.0
    bound = 1.0
    for part, (weights, loads) in zip(parts, multipliers):
        count = part.size if changes.l0 == 1 else changes.count
        if weights.shape != (count,) or largest != (loads is not None):
            return 0.0
        if not _sound(weights) or (loads is not None and (loads.shape != (part.count,) or not _sound(loads))):
            return 0.0
        bound *= _bound_of(part, changes, weights, loads)
    return bound


def _bound_of(part: Workload, changes: Changes, weights: Array, loads: Array | None) -> float:
    largest = loads is not None
    if (chain := _chain(part, changes, largest=largest)) is not None:
        return chain.lower_bound(weights, loads)
    _, vectors, answers = _data(part, changes, largest=largest)
    found = balance(vectors, weights, answers, loads)
    return 0.0 if found is None else found.lower_bound


def _sound(weights: Array) -> bool:
    return bool(np.isfinite(weights).all() and weights.min() >= 0 and weights.max() > 0)


def triangular(strategy: Array) -> Array:
    """A lower triangular matrix with the same second moments, for a square strategy: R = Q L."""
    if strategy.shape[0] != strategy.shape[1]:
        return strategy
    lower = strategy
    if np.triu(strategy, 1).any():
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


def square_root(size: int) -> Array:
    r"""The square root of the matrix of prefix sums: Toeplitz, :math:`c_k = \binom{2k}{k} 4^{-k}`.

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
    """Sums of the intervals of a binary tree over the counts (Dwork et al. 2010, Chan, Shi and Song 2011), one a row."""
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
    """Each prefix as the fewest intervals of the tree, with no use of the others."""
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
    workload: Workload, changes: Changes, strategy: Array, *, largest: bool, answers: Array | None = None
) -> float:
    """The error of the workload from a strategy at μ = 1, by least squares, or by the matrix `answers`."""
    spent = changes.spent(strategy)[0]
    if answers is None:
        spread = np.linalg.inv(np.linalg.qr(strategy, mode="r"))
        if not largest:
            return spent * float(((workload.root @ spread) ** 2).sum())
        answers = workload.apply(spread)
    variances = (answers**2).sum(axis=1)
    return spent * float(variances.max() if largest else variances.sum())


def svd_bound(workload: Workload, changes: Changes) -> float:
    r"""Least total error of any strategy at μ = 1, :math:`a^2 (\sum_i \sigma_i(A))^2/n` (Li and Miklau 2013)."""
    singular = np.linalg.svd(workload.root, compute_uv=False)
    return changes.most**2 * float(singular.sum()) ** 2 / workload.size


def published(workload: Workload, changes: Changes, *, largest: bool) -> dict[str, float]:
    """Error at μ = 1 of what is published for such a workload, by name."""
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
