r"""The law of a matrix mechanism: :math:`z = R x + \mathcal N(0, I)` is released, and the answers are made from it.

A change d of the counts consumes :math:`\lVert R d \rVert^2` of the budget, whatever is made of z. With the rows of A in those of
R the answers :math:`A R^+ z` are unbiased, their covariance :math:`A (R^\top R)^+ A^\top`. A triangular R answers counts
as they come: z_t and answer t depend on the first t counts alone, and privacy holds for counts chosen in view of earlier answers
(Denisov, McMahan, Rush, Smith and Thakurta 2022).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.noise import LinearNoise, released
from mechdesign.noise.release import ExactNoise
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.checks import answers, array, instance, positive, settle
from mechdesign.problem.workload import Workload
from mechdesign.typing import Array, Numbers, Randomness

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FULL = 4096
"""Queries whose matrix is formed, at most."""


@serializable("strategy-noise")
@dataclass(frozen=True, eq=False)
class StrategyNoise(LinearNoise):
    """Noise on the answers to linear queries, made from one release of a strategy.

    Parameters
    ----------
    workload : Workload
        A.
    strategy : array_like, shape (r, n)
        R, of r independent rows in which those of A lie.
    budget : float
        μ²: no change of the counts consumes more.

    Examples
    --------
    >>> law = StrategyNoise(Workload.prefix_sums(3), np.eye(3), 1.0)
    >>> law.variances, law.mse, law.streams
    (array([1., 2., 3.]), 6.0, True)
    """

    workload: Workload
    strategy: Array
    budget: float

    def __post_init__(self) -> None:
        instance("workload", self.workload, Workload)
        strategy = array("strategy", self.strategy, ndim=2)
        settle(self, strategy=strategy, budget=positive("budget", self.budget))
        if strategy.shape[1] != self.workload.size or len(strategy) > self.workload.size:
            raise DesignError.of(
                "strategy", strategy.shape, f"must have {self.workload.size} columns, and no more rows"
            )
        with np.errstate(all="ignore"):
            off = np.abs(strategy @ self.inverse - np.eye(len(strategy))).max()
        if not off <= 1e-6:
            raise DesignError.of("strategy", strategy.shape, "must have independent rows")

    @property
    def triangular(self) -> bool:
        """Whether row t of the strategy looks at the first t counts alone."""
        square = self.strategy.shape[0] == self.strategy.shape[1]
        return square and not np.triu(self.strategy, 1).any()

    @property
    def streams(self) -> bool:
        """Whether counts can be answered one by one as they come."""
        return self.triangular and self.workload.causal

    @cached_property
    def inverse(self) -> Array:
        """R⁺, shape (n, r)."""
        r = self.strategy
        try:
            with np.errstate(all="ignore"):
                if self.triangular:
                    return np.asarray(linalg.solve_triangular(r, np.eye(len(r)), lower=True))
                q, t = np.linalg.qr(r.T)
                return np.asarray(linalg.solve_triangular(t, q.T).T)
        except (np.linalg.LinAlgError, linalg.LinAlgError):
            return np.full(r.T.shape, np.nan)

    @property
    def factor(self) -> Array:
        """B = A R⁺, shape (m, r): the noise on the answers is B times independent normals."""
        if self.workload.count > FULL:
            raise DesignError.of(
                "workload",
                self.workload.count,
                f"has more than {FULL} queries: their covariance is not formed; see variances",
            )
        return self.workload.apply(self.inverse)

    @property
    def covariance(self) -> Array:
        """Covariance of the answers, shape (m, m)."""
        factor = self.factor
        return np.asarray(factor @ factor.T)

    @property
    def variances(self) -> Array:
        """Variance of each answer, shape (m,)."""
        found, block = np.zeros(self.workload.count), max(1, 2_000_000 // self.workload.count)
        for k in range(0, len(self.strategy), block):
            found += (self.workload.apply(self.inverse[:, k : k + block]) ** 2).sum(axis=1)
        return found

    @property
    def mse(self) -> float:
        """Sum of the variances of the answers, tr(AΣAᵀ)."""
        return float(((self.workload.root @ self.inverse) ** 2).sum())

    @property
    def rows(self) -> Array:
        return self.strategy

    @property
    def granted(self) -> float:
        return self.budget

    def release(self, x: Numbers) -> Array:
        """Return the answers to the workload with noise: for deployment.

        The strategy's answers are rounded to a lattice in exact arithmetic and get normal noise that is drawn exactly, from the
        operating system's randomness; the answers are made of what has been released.

        Parameters
        ----------
        x : array, shape (n,)
            The counts, not the answers.

        Raises
        ------
        DataError
            A number that is not finite, or beyond 2⁵³ one that no double holds. The guarantee does not cover that refusal.
        """
        held = answers("x", x)
        if held.shape != (self.workload.size,):
            raise DataError(f"x: must be the {self.workload.size} counts")
        noisy = released(self.strategy, held[None, :], *self._exact)[0]
        with np.errstate(over="ignore", invalid="ignore"):  # where doubles end
            return self.workload.apply(np.nan_to_num(self.inverse @ noisy))

    def stream(self, counts: Iterable[Numbers]) -> Iterator[float]:
        """Release answer after answer as the counts come: for deployment.

        Each count is used once it is there, in exact arithmetic as in `release`; earlier answers may decide what comes next.

        Parameters
        ----------
        counts : iterable of float
            At most n.

        Raises
        ------
        DataError
            A number that is not finite, or beyond 2⁵³ one that no double holds; earlier answers are out by then. The
            guarantee does not cover that refusal.
        """
        if not self.streams:
            raise DesignError.of("workload", str(self.workload), "is not answered step by step: use release")
        step, noise = self._exact
        try:
            given = iter(counts)
        except TypeError:
            raise DataError("counts: must be an iterable, of one number after the other") from None
        return self._streamed(given, step, noise)

    def _streamed(self, counts: Iterable[Numbers], step: float, noise: ExactNoise) -> Iterator[float]:
        size, lower = self.workload.size, self.strategy
        seen, estimate = np.zeros(size), np.zeros(size)
        part, total = self.workload.blocks[0][0], 0.0
        for t, count in enumerate(counts):
            if t == size:
                raise DataError(f"counts: are more than the {size} that the noise was made for")
            held = answers("counts", count)
            if held.ndim:
                raise DataError("counts: must be one number at a time")
            seen[t] = held
            noisy = float(released(lower[t : t + 1, : t + 1], seen[None, : t + 1], step, noise)[0, 0])
            with np.errstate(over="ignore", invalid="ignore"):  # where doubles end
                estimate[t] = (noisy - lower[t, :t] @ estimate[:t]) / lower[t, t]
                if part.kind == "prefix":
                    total += estimate[t]
                else:
                    total = estimate[t] if part.kind == "identity" else part.matrix[t] @ estimate
            yield float(total)

    def plot(self, **options: float) -> Figure:
        """Draw the standard deviation of each answer."""
        fig, axis = figure(**sized(options, 5.0, 3.2))
        axis.plot(np.sqrt(self.variances), color=COLOURS[0])
        axis.set(xlabel="query", ylabel="standard deviation", ylim=(0, None))
        return fig

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """n, the number of counts."""
        return self.workload.size

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draw the noise of estimates of the counts."""
        return rng.standard_normal((*shape[:-1], len(self.strategy))) @ self.inverse.T

    def sample(self, x: Numbers, *, rng: Randomness = None) -> Array:
        """Return the answers to the workload with noise in floating point, of counts of shape (..., n): for simulation."""
        estimates = super().sample(x, rng=rng)
        answered = self.workload.apply(estimates.reshape(-1, self.dimension).T).T
        return answered.reshape(*estimates.shape[:-1], self.workload.count)
