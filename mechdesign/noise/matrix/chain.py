r"""Prefix sums and ranges: the inverse of their Gram matrix is tridiagonal, and a balance takes n² steps, not n³.

With :math:`(A^\top A)^{-1} = U^\top U`, U upper bidiagonal, the product :math:`C = \sqrt w\,A^\top\sqrt q` of the fixed point has
an inverse as narrow, :math:`B = q^{-1/2} U w^{-1/2}` (q = 1 for the total error). The eigenvectors of :math:`B^\top B` are the left
singular vectors of C, :math:`W S W^\top` the best second moments, and :math:`\sqrt S\,W^\top w^{-1/2}` a strategy.

The weights change smoothly from count to count: those of a quarter of the counts, interpolated, are within a few percent of the
best. A strategy that is not quite balanced is made so: with every column divided by its length each count spends the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from mechdesign.noise.correlated.fixed_point import Balance, iterate, logs_of, weights_of
from mechdesign.noise.matrix.workload import Workload
from mechdesign.solvers import Deadline
from mechdesign.typing import Array

__all__ = ["Chain", "chain_of", "interpolated"]

_COARSE = 32
"""Counts from which on the weights of fewer are asked first."""
_NEAR = 1e-4
"""Gap to which fewer counts are solved: beyond it they say no more about many."""


@dataclass(frozen=True, eq=False)
class Chain:
    """A workload whose Gram matrix has a tridiagonal inverse, on its own counts.

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
            square, beside = diagonal**2, diagonal[:-1] * above
            square[1:] += above**2
            if not (np.isfinite(square).all() and np.isfinite(beside).all()):
                return None
            try:
                values, vectors = linalg.eigh_tridiagonal(square, beside)
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
                burden = ((outer * singular) ** 2 @ singular) / (loads * total)
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
            beside = np.empty(2 * self.size - 1)
            beside[::2], beside[1::2] = diagonal, above
            if not np.isfinite(beside).all():
                return 0.0
            values = linalg.eigvalsh_tridiagonal(np.zeros(2 * self.size), beside, lapack_driver="sterf")
            room = 4 * self.size * 2.0**-52 * (np.abs(diagonal).max() + np.abs(above).max(initial=0.0))
            return float((1 / (np.abs(values[self.size :]) + room)).sum()) ** 2 * (1 - 1e-12)

    def evened(self, found: Balance) -> tuple[Array, float]:
        """A strategy under which every count spends the same, and its error over the lower bound."""
        even = np.sqrt(found.share)
        # R⁻¹ = √w W S^{-1/2}, and √S Wᵀ w^{-1/2} is the whitening
        inverse = found.weights[:, None] * found.whitening.T / found.singular * even[:, None]
        if found.loads is not None:
            worst = float((np.cumsum(inverse, axis=0) ** 2).sum(axis=1).max())
        else:
            diagonal, above = self.bands
            band = np.zeros((2, self.size))
            band[1] = diagonal**2
            band[1, 1:] += above**2
            band[0, 1:] = diagonal[:-1] * above
            worst = float((inverse * linalg.solveh_banded(band, inverse)).sum())
        return found.whitening / even, worst / float(found.singular.sum())

    def start(self, deadline: Deadline) -> tuple[Array, float]:
        """Logarithms of weights to start from, and seconds that a balance will take."""
        few = self.size // 4
        if few < _COARSE:
            return self.equal, 0.0
        coarse = Chain(_fewer(self.workload, few), self.largest)
        soon = deadline.part(0.3)
        start, seconds = coarse.start(soon)
        if seconds <= soon.left:
            found = iterate(coarse, _NEAR, soon, start=start)
            start, seconds = logs_of(found.best), found.slowest
        parts = [part for part in coarse.split(start) if part is not None]
        # between n² and n³
        seconds *= (self.size / few) ** 2.7
        return np.log(np.concatenate([interpolated(part, self.size) for part in parts])), seconds


def chain_of(workload: Workload, *, largest: bool) -> Chain | None:
    """The chain of a workload, where it has one."""
    has = workload.kinds == ("prefix",) or (workload.kinds == ("ranges",) and not largest)
    return Chain(workload, largest) if has else None


def _fewer(workload: Workload, size: int) -> Workload:
    return (Workload.prefix_sums if workload.kinds == ("prefix",) else Workload.ranges)(size)


def interpolated(weights: Array, size: int) -> Array:
    """Weights of `size` counts from those of fewer: alike at the same odds of the place, which keeps both ends apart.

    Examples
    --------
    >>> interpolated(np.array([1.0, 1.0]), 3)
    array([1., 1., 1.])
    """

    def odds(count: int) -> Array:
        place = np.arange(count) + 0.5
        return np.asarray(np.log(place / (count - place)))

    return np.asarray(np.exp(np.interp(odds(size), odds(len(weights)), np.log(weights))))
