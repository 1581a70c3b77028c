r"""The saddle points of least Gaussian noise, each solved on its own: dense, along a chain, by symmetry.

When one count changes, weights :math:`w_1 \otimes w_2` on the changes of a Kronecker product give it the singular values, the shares and both
bounds of its factors multiplied: the optimum of a product is the product of the optima, for the total and for the largest error.

**Symmetry.** No permutation changes the set :math:`\{a 1_S : |S| \le c\}`, so neither does the best covariance of n counts:
:math:`\Sigma = x(I - J/n) + z J/n`. With :math:`|S| = k` a change consumes :math:`a^2 (A_k/x + B_k/z)`, :math:`A_k = k - k^2/n`,
:math:`B_k = k^2/n`, and

.. math:: \min_{x, z} (n-1) x + z \quad\text{s.t.}\quad a^2 (A_k/x + B_k/z) \le \mu^2, \; k = 1..c,

two variables, convex in 1/x and 1/z. Weights :math:`y_k \ge 0` prove that no covariance of any shape costs less than
:math:`a^2 (\sqrt{(n-1)\sum y_k A_k} + \sqrt{\sum y_k B_k})^2 / (\mu^2 \sum y_k)`. With changes of either sign the set has the symmetry of a
cube too, and no Gaussian covariance does better than independent noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import linalg, optimize

from mechdesign.errors import DesignError, SolverError
from mechdesign.noise.correlated.changes import Changes
from mechdesign.noise.correlated.fixed_point import Balance, balance, iterate, weights_of
from mechdesign.problem.workload import Workload
from mechdesign.solvers import Deadline
from mechdesign.typing import Array

Multipliers = tuple[tuple[Array, Array | None], ...]
"""Weights on the changes, and loads on the answers, of each program."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A strategy up to its scale, the weights that prove a bound, that bound at μ = 1, and the steps."""

    strategy: Array
    multipliers: Multipliers
    lower_bound: float
    steps: int = 0


class Program(Protocol):
    """A saddle point of changes and answers."""

    @property
    def counts(self) -> tuple[int, int]:
        """How many weights of changes it has, and loads of answers: none for the total error."""

    def solved(self, gap: float, deadline: Deadline) -> Solved:
        """The strategy, and what proves it, to a relative gap or as far as the time goes."""

    def bound(self, weights: Array, loads: Array | None) -> float:
        """What weights and loads, as many as there are, prove at μ = 1: no covariance costs less."""


@dataclass(frozen=True, eq=False)
class Dense:
    """Changes and answers in full.

    Parameters
    ----------
    root : ndarray, shape (r, n)
        L: a change v costs as L v where the total loss is the plain trace.
    vectors : ndarray, shape (k, n), optional
        Changes; one coordinate at a time when not given.
    answers : ndarray, shape (m, n), optional
        A, where the largest error counts.
    """

    root: Array
    vectors: Array | None = None
    answers: Array | None = None

    @cached_property
    def plain(self) -> tuple[Array, Array | None, float]:
        """Changes and answers in coordinates L x, changes of length at most about 1; the unit of these."""
        changed = self.root.T if self.vectors is None else self.vectors @ self.root.T
        vectors, answers = np.ascontiguousarray(changed), None
        if self.answers is not None:
            q, t = np.linalg.qr(self.root.T)
            answers = np.linalg.solve(t, (self.answers @ q).T).T
        size = 2.0 ** math.ceil(math.log2(float(np.abs(vectors).max())))
        return vectors / size, answers, size

    @property
    def counts(self) -> tuple[int, int]:
        vectors, answers, _ = self.plain
        return len(vectors), 0 if answers is None else len(answers)

    @property
    def equal(self) -> Array:
        vectors, answers, _ = self.plain
        parts = [vectors] if answers is None else [vectors, answers]
        return np.concatenate([np.where(rows.any(axis=1), 0.0, -np.inf) for rows in parts])

    @property
    def sure(self) -> float:
        return 1.0 if self.answers is None else 0.5

    def at(self, logs: Array) -> Balance | None:
        vectors, answers, _ = self.plain
        loads = None if answers is None else weights_of(logs[len(vectors) :])
        return balance(vectors, weights_of(logs[: len(vectors)]), answers, loads)

    def solved(self, gap: float, deadline: Deadline) -> Solved:
        found, size = iterate(self, gap, deadline), self.plain[2]
        best = found.best
        bound = best.lower_bound * size**2 * (1 - 1e-12)
        return Solved(best.whitening @ self.root, ((best.weights, best.loads),), bound, found.steps)

    def bound(self, weights: Array, loads: Array | None) -> float:
        vectors, answers, size = self.plain
        found = balance(vectors, weights, answers, loads)
        return 0.0 if found is None else found.lower_bound * size**2


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
    def counts(self) -> tuple[int, int]:
        return self.size, self.size * self.largest

    @property
    def equal(self) -> Array:
        return np.zeros(sum(self.counts))

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

    def solved(self, gap: float, deadline: Deadline) -> Solved:
        found = iterate(self, gap, deadline)
        best = found.best
        return Solved(
            best.whitening, ((best.weights, best.loads),), self.bound(best.weights, best.loads), found.steps
        )

    def bound(self, weights: Array, loads: Array | None) -> float:
        """(tr S)² from below.

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


@dataclass(frozen=True, eq=False)
class Symmetric:
    """Counts of which a few change, all alike: a strategy p I + q J, weights on the numbers of counts that change.

    Parameters
    ----------
    changes : Changes
    largest : bool
        Whether the largest variance counts: all are equal.
    """

    changes: Changes
    largest: bool = False

    @property
    def counts(self) -> tuple[int, int]:
        return self.changes.l0, 0

    @property
    def _parts(self) -> tuple[Array, Array]:
        """A_k and B_k."""
        k = np.arange(1.0, self.changes.l0 + 1)
        return k - k * k / self.changes.size, k * k / self.changes.size

    def solved(self, gap: float = 0.0, deadline: Deadline | None = None) -> Solved:
        n, c = self.changes.size, self.changes.l0
        x, z = (float(c),) * 2 if self.changes.signed else self._balanced()
        p = 1 / math.sqrt(x)
        weights = self._weights(x, z)
        strategy = p * np.eye(n) + (1 / math.sqrt(z) - p) / n
        return Solved(strategy, ((weights, None),), self.bound(weights, None) * (1 - 1e-13))

    def _balanced(self) -> tuple[float, float]:
        """(x, z) of least cost at a = μ = 1: over u = 1/x, with 1/z the most that all sizes allow."""
        n, (across, along) = self.changes.size, self._parts
        if n == 1:
            return 1.0, 1.0

        def room(u: float) -> float:
            return float(((1 - across * u) / along).min())

        def cost(u: float) -> float:
            return (n - 1) / u + 1 / room(u) if room(u) > 0 else math.inf

        top = 1 / float(across.max())
        found = optimize.minimize_scalar(
            cost, bounds=(1e-9 * top, top * (1 - 1e-12)), method="bounded", options={"xatol": 1e-14 * top}
        )
        best = float(found.x)
        # where one size alone binds, its optimum is a formula, better than any search
        for a, b in zip(across, along):
            u = math.sqrt(n - 1) / (math.sqrt(a) * (math.sqrt((n - 1) * a) + math.sqrt(b))) if a > 0 else best
            if u < top and cost(u) < cost(best):
                best = u
        return 1 / best, 1 / room(best)

    def _weights(self, x: float, z: float) -> Array:
        """Weights on the sizes that make (x, z) stationary, as nearly as weights of at least 0 can."""
        n, c = self.changes.size, self.changes.l0
        if self.changes.signed or n == 1:
            return np.append(np.zeros(c - 1), 1.0)
        across, along = self._parts
        tight = across / x + along / z > 1 - 1e-6
        # (n−1) x² = Σ y A,  z² = Σ y B, scaled to one
        rows = np.stack([across / ((n - 1) * x * x), along / (z * z)]) * tight
        found = optimize.nnls(rows, np.ones(2))[0]
        return np.asarray(found / found.sum())

    def bound(self, weights: Array, loads: Array | None) -> float:
        n, k = self.changes.size, np.arange(1.0, self.changes.l0 + 1)
        y = weights / weights.max()  # of numbers next to the least double products have no digits
        found = n * float(y @ k) / float(y.sum())
        if not self.changes.signed:
            across, along = self._parts
            found = (math.sqrt((n - 1) * float(y @ across)) + math.sqrt(float(y @ along))) ** 2 / float(
                y.sum()
            )
        return found / n if self.largest else found


def multiplied(programs: tuple[Program, ...], gap: float, deadline: Deadline) -> Solved:
    """Solve each program and multiply; time is kept for what is done with the strategy afterwards."""
    found = [program.solved(gap / len(programs), deadline) for program in programs]
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


def _length(strategy: Array) -> float:
    return math.sqrt(float((strategy**2).sum(axis=0).max()))


def proved_bound(programs: tuple[Program, ...], multipliers: Multipliers) -> float:
    r"""The bound that the multipliers prove, at a = μ = 1: no covariance costs less."""
    if len(programs) != len(multipliers):
        return 0.0
    bound = 1.0
    for program, (weights, loads) in zip(programs, multipliers):
        found = len(weights), 0 if loads is None else len(loads)
        if found != program.counts or not (_sound(weights) and (loads is None or _sound(loads))):
            return 0.0
        bound *= program.bound(weights, loads)
    return bound


def _sound(weights: Array) -> bool:
    return weights.ndim == 1 and bool(np.isfinite(weights).all() and weights.min() >= 0 and weights.max() > 0)


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
