r"""The best strategy for a workload: the fixed point, factor by factor where the workload is a Kronecker product.

When one count changes, weights :math:`w_1 \otimes w_2` on the changes of a product give it the singular values, the shares and both
bounds of its factors multiplied: the optimum of a product is the product of the optima, for the total and for the largest error.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cache

import numpy as np

from mechdesign.errors import DesignError, SolverError
from mechdesign.noise.correlated.fixed_point import Found, balance, fixed_point, iterate, logs_of
from mechdesign.noise.matrix.chain import Chain, chain_of
from mechdesign.noise.matrix.changes import Changes
from mechdesign.noise.matrix.published import square_root
from mechdesign.noise.matrix.workload import Workload
from mechdesign.solvers import Deadline
from mechdesign.typing import Array

__all__ = ["Multipliers", "Solved", "checked_largest", "proved_bound", "solve_strategy", "triangular"]

Multipliers = tuple[tuple[Array, Array | None], ...]
"""Weights on the changes, and loads on the answers, of each factor."""
_LISTED = 64
"""Counts up to which a chain is not worth its name."""
_FINISHING = 0.4
"""What is done with a strategy after it is found, in decompositions of its size."""
_WORKING = 0.4
"""Share of the time that is spent on the strategy, whatever is needed afterwards."""
_SAMPLE = 160
_GROWTH = 2.7
"""Power of the size in the time of a decomposition, measured from 160 to 2,000: larger blocks are faster."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A strategy up to its scale, the weights that prove a bound, that bound at a = μ = 1, the steps, and whether time was short."""

    strategy: Array
    multipliers: Multipliers
    lower_bound: float
    steps: int
    late: bool


@cache
def _one_decomposition() -> float:
    """Seconds of the singular values of a matrix of `_SAMPLE` columns, on this machine."""
    matrix, taken = np.random.default_rng(0).normal(size=(_SAMPLE, _SAMPLE)), math.inf
    for _ in range(2):
        started = time.monotonic()
        np.linalg.svd(matrix)
        taken = min(taken, time.monotonic() - started)
    return taken


def seconds_for(size: int) -> float:
    """Seconds that the singular values of so many columns will take, with their vectors."""
    return 0.0 if size <= _SAMPLE else _one_decomposition() * (size / _SAMPLE) ** _GROWTH


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
    """Solve each factor and multiply; time is kept for what is done with the strategy afterwards."""
    parts = factors_of(workload, changes)
    if deadline.finite:
        left = deadline.left
        deadline = Deadline(max(left - _FINISHING * seconds_for(workload.size), _WORKING * left, 1e-9))
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
        any(part.late for part in found),
    )


def _solved(part: Workload, changes: Changes, largest: bool, gap: float, deadline: Deadline) -> Solved:
    """One factor: by its chain, by the fixed point, or by what needs neither where there is no time for them."""
    start = None
    chain = chain_of(part, largest=largest) if changes.changed == 1 and part.size > _LISTED else None
    if chain is not None:
        start, seconds = chain.start(deadline)
        if seconds > deadline.left:
            return _at_once(part, changes, largest, chain, start)
        found = iterate(chain, gap, deadline, start=start)
        answer = _of_chain(chain, found, gap)
        proved = found.best.lower_bound * (1 + found.best.excess) <= answer.lower_bound * (1 + gap)
        if found.late or proved:
            return answer
        start = logs_of(found.best)
    count = changes.count if changes.changed > 1 else part.size
    if deadline.finite and seconds_for(part.size) * (1 + count / part.size / 10) > deadline.left:
        return _at_once(part, changes, largest)
    root, vectors, answers = _data(part, changes, largest=largest)
    size = 2.0 ** math.ceil(math.log2(float(np.abs(vectors).max())))
    found = fixed_point(vectors / size, gap, deadline, answers=answers, start=start)
    best = found.best
    bound = best.lower_bound * size**2 * (1 - 1e-12)
    return Solved(best.whitening @ root, ((best.weights, best.loads),), bound, found.steps, found.late)


def _of_chain(chain: Chain, found: Found, gap: float) -> Solved:
    best, strategy = found.best, found.best.whitening
    if best.excess > gap:
        even, worth = chain.evened(best)
        strategy = even if worth < 1 + best.excess else strategy
    bound = chain.lower_bound(best.weights, best.loads)
    return Solved(strategy, ((best.weights, best.loads),), bound, found.steps, found.late)


def _at_once(
    part: Workload, changes: Changes, largest: bool, chain: Chain | None = None, start: Array | None = None
) -> Solved:
    r"""A strategy that needs no iteration, and the bound of equal weights, for a chain that of those it would start from.

    For prefix sums that of the square root, every count made to spend the same. For others the counts themselves, or the queries.
    With equal weights the squares of the singular values sum to t and their fourth powers to f, so that they sum to
    :math:`t^{3/2} f^{-1/2}` at least (Hölder).
    """
    n, rows = part.size, part.count if largest else 0
    weights = np.ones(n if changes.changed == 1 else changes.count)
    loads = np.ones(rows) if largest else None
    if chain is not None and start is not None:
        weights, loads = chain.split(start)
        bound = chain.lower_bound(weights, loads)
    else:
        # the changes' second moments are α I + β J
        gram, (alpha, beta) = part.gram(), changes.moments
        sums = gram.sum(axis=1)
        first = alpha * float(np.trace(gram)) + beta * float(sums.sum())
        second = alpha**2 * float((gram**2).sum()) + 2 * alpha * beta * float((sums**2).sum())
        second += beta**2 * float(sums.sum()) ** 2
        bound = first**3 / second / (rows if largest else 1) * (1 - 1e-9)
    strategy = np.eye(n)
    if part.kinds == ("prefix",):
        strategy = square_root(n)
        strategy = strategy / np.sqrt((strategy**2).sum(axis=0))
    return Solved(strategy, ((weights, loads),), bound, 0, True)


def _length(strategy: Array) -> float:
    return math.sqrt(float((strategy**2).sum(axis=0).max()))


def proved_bound(
    workload: Workload, changes: Changes, multipliers: Multipliers, *, largest: bool, wanted: float
) -> float:
    r"""The bound that the multipliers prove, at a = μ = 1: no covariance costs less.

    A chain's is made as a full matrix's where it stays below what is `wanted`.
    """
    parts = factors_of(workload, changes)
    if len(parts) != len(multipliers):
        return 0.0
    bound = 1.0
    for part, (weights, loads) in zip(parts, multipliers):
        count = part.size if changes.changed == 1 else changes.count
        if weights.shape != (count,) or largest != (loads is not None):
            return 0.0
        if not _sound(weights) or (loads is not None and (loads.shape != (part.count,) or not _sound(loads))):
            return 0.0
        bound *= _bound_of(part, changes, weights, loads, wanted if len(parts) == 1 else math.inf)
    return bound


def _bound_of(part: Workload, changes: Changes, weights: Array, loads: Array | None, wanted: float) -> float:
    """Of the two ways to one bound the better: the chain's gives a little away for its speed."""
    largest = loads is not None
    chain = chain_of(part, largest=largest) if changes.changed == 1 and part.size > _LISTED else None
    if chain is not None and weights.min() > 0 and (loads is None or loads.min() > 0):
        quick = chain.lower_bound(weights, loads)
        if quick >= wanted * (1 - 1e-12):
            return quick
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
