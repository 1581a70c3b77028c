"""What is published for linear queries on counts, to compare with: the tree, the square root, the workload itself, the counts."""

from __future__ import annotations

import math

import numpy as np
from scipy import linalg

from mechdesign.noise.correlated.changes import ChangeSet
from mechdesign.noise.correlated.strategy import FULL
from mechdesign.problem.checks import integer
from mechdesign.problem.workload import Workload
from mechdesign.typing import Array


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
    workload: Workload, changes: ChangeSet, strategy: Array, *, largest: bool, answers: Array | None = None
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


def svd_bound(workload: Workload, changes: ChangeSet) -> float:
    r"""Least total error of any strategy at μ = 1, :math:`a^2 (\sum_i \sigma_i(A))^2/n` (Li and Miklau 2013)."""
    singular = np.linalg.svd(workload.root, compute_uv=False)
    return changes.most**2 * float(singular.sum()) ** 2 / workload.size


def published(workload: Workload, changes: ChangeSet, *, largest: bool) -> dict[str, float]:
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
