"""What every law symmetric about zero has in common: one side of it says everything."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from scipy import stats

from mechdesign.typing import Array

__all__ = ["SymmetricLaw"]


class SymmetricLaw(stats.rv_continuous):
    """Generator of a law symmetric about zero.

    A law says its log density, its upper tail and the inverse of that tail (for t ≥ 0), and its absolute moments; the
    rest of SciPy's methods follows. Tails are never taken from 1 − cdf, so they stay accurate as far as they go.
    """

    @abstractmethod
    def _upper(self, u: Any, *shapes: Any) -> Any:
        """P(T > u) for u ≥ 0."""

    @abstractmethod
    def _reach(self, s: Any, *shapes: Any) -> Any:
        """The u ≥ 0 beyond which the mass s ≤ 1/2 lies."""

    @abstractmethod
    def _absolute_moment(self, p: float, *shapes: Any) -> Any:
        """E|T|^p."""

    def _shape_info(self) -> list[Any]:
        return []

    def _pdf(self, t: Any, *shapes: Any) -> Any:
        return np.exp(self._logpdf(t, *shapes))

    def _sf(self, t: Any, *shapes: Any) -> Any:
        upper = self._upper(np.abs(t), *shapes)
        return np.where(t >= 0, upper, 1 - upper)

    def _cdf(self, t: Any, *shapes: Any) -> Any:
        return self._sf(-t, *shapes)

    def _logcdf(self, t: Any, *shapes: Any) -> Any:
        return self._logsf(-t, *shapes)

    def _isf(self, s: Any, *shapes: Any) -> Any:
        s = np.asarray(s, dtype=float)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            u = self._reach(np.minimum(s, 1 - s), *shapes)
        return np.where(s <= 0.5, u, -u)

    def _ppf(self, q: Any, *shapes: Any) -> Any:
        return -self._isf(q, *shapes)

    def _rvs(self, *shapes: Any, size: Any = None, random_state: Any = None) -> Any:
        # Inversion of the folded law, with a fair sign: a uniform near 0 reaches far into the tail.
        half = 0.5 * (1 - random_state.random(size))
        sign = np.where(random_state.random(size) < 0.5, -1.0, 1.0)
        return sign * self._isf(half, *shapes)

    def _munp(self, n: int, *shapes: Any) -> Any:
        return 0.0 if n % 2 else self._absolute_moment(n, *shapes)

    def _stats(self, *shapes: Any) -> Any:
        variance: Array = self._absolute_moment(2, *shapes)
        with np.errstate(over="ignore", invalid="ignore"):  # a variance that overflows has no kurtosis
            return 0.0, variance, 0.0, self._absolute_moment(4, *shapes) / variance**2 - 3

    def mean_absolute(self, *shapes: Any) -> float:
        """E|T| at scale 1."""
        return float(self._absolute_moment(1, *shapes))
