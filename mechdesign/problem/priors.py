r"""What is known of the inputs: laws on a bounded interval, through their partial moments.

Every exact expectation in this package is a sum over intervals of partial moments

.. math:: \mu_k(a, b) = \int_{[a, b)} x^k \, dF(x), \qquad k = 0, 1, 2,

so a prior is whatever can give those: a frozen `scipy.stats` law of bounded support, the same law *clipped*
to a range (point masses at its ends), *truncated* to it (renormalised), or an array of samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.law_moments import law_integrals, law_moments
from mechdesign.typing import Array

__all__ = ["ClippedPrior", "EmpiricalPrior", "LawPrior", "Prior", "TruncatedPrior", "clipped", "truncated"]


class Prior(ABC):
    """A law of the input on [lower, upper]: a density part plus finitely many point masses."""

    @property
    @abstractmethod
    def support(self) -> tuple[float, float]:
        """The smallest interval known to hold all the mass."""

    @property
    @abstractmethod
    def atoms(self) -> tuple[Array, Array]:
        """Point masses: sorted positions and their weights."""

    @abstractmethod
    def continuous_moments(self, edges: Array) -> Array:
        """Partial moments of the density part: shape (len(edges) − 1, 3)."""

    @abstractmethod
    def pdf(self, x: Any) -> Array:
        """Density of the continuous part."""

    @abstractmethod
    def continuous_integrals(self, function: Callable[[Array], Array], edges: Array) -> Array:
        """Integrals of a vector-valued `function` against the density part, one row per interval."""

    @abstractmethod
    def sample(self, size: Any, rng: np.random.Generator | int | None = None) -> Array:
        """Draw inputs."""

    @staticmethod
    def of(spec: Any, input_range: tuple[float, float] | None = None) -> Prior:
        """Return the prior that `spec` names, checked against the input range.

        Parameters
        ----------
        spec : Prior, frozen scipy.stats law, or array_like of samples
        input_range : (float, float), optional
            Where inputs can be; defaults to the support.

        Raises
        ------
        DesignError
            Not a law, unbounded support, NaN samples, or mass outside the range.
        """
        prior = _parse(spec)
        lower, upper = prior.support
        if not (math.isfinite(lower) and math.isfinite(upper)):
            raise DesignError(
                f"prior = {spec!r} has the unbounded support ({lower}, {upper}): "
                "cut it with md.clipped(law, lower, upper) or md.truncated(law, lower, upper)"
            )
        # A law's own support is rounded (loc + scale): a few units in the last place are no mass outside.
        slack = 1e-14 * max(abs(lower), abs(upper))
        if input_range is not None and (lower < input_range[0] - slack or upper > input_range[1] + slack):
            raise DesignError(
                f"prior has mass outside the input range [{input_range[0]:g}, {input_range[1]:g}] "
                f"(its support is [{lower:g}, {upper:g}]): widen the range or use md.clipped or md.truncated"
            )
        return prior

    def moments(self, edges: Any) -> Array:
        """Partial moments of order 0, 1, 2 on [e_k, e_{k+1}), the last interval closed; shape (K, 3).

        Examples
        --------
        >>> from scipy import stats
        >>> Prior.of(stats.uniform(-1, 2)).moments([-1, 0, 1])
        array([[ 0.5       , -0.25      ,  0.16666667],
               [ 0.5       ,  0.25      ,  0.16666667]])
        """
        edges = np.asarray(edges, dtype=float)
        table = self.continuous_moments(edges)
        points, weights = self.atoms
        if points.size:
            cell, inside = locate(points, edges)
            for order in range(3):
                np.add.at(table[:, order], cell[inside], (weights * points**order)[inside])
        return table

    def integrals(self, function: Callable[[Array], Array], edges: Any) -> Array:
        """Integrals of `function` (points (n,) → values (n, d)) over the cells of `moments`; shape (K, d)."""
        edges = np.asarray(edges, dtype=float)
        table = self.continuous_integrals(function, edges)
        points, weights = self.atoms
        if points.size:
            cell, inside = locate(points, edges)
            values = np.asarray(function(points[inside]), dtype=float)
            np.add.at(table, cell[inside], weights[inside, None] * values)
        return table

    @property
    def mean(self) -> float:
        """Expected input."""
        lower, upper = self.support
        return float(self.moments(np.array([lower, upper]))[0, 1])

    def symmetric(self, *, tolerance: float = 1e-12) -> bool:
        """Whether the law equals its mirror image about zero, judged on 64 cells."""
        lower, upper = self.support
        if abs(lower + upper) > tolerance * max(1.0, upper):
            return False
        points, weights = self.atoms
        if points.size and not (
            np.allclose(points, -points[::-1], atol=tolerance)
            and np.allclose(weights, weights[::-1], atol=tolerance)
        ):
            return False
        # An irregular mesh, so that no periodic density passes by accident.
        half = upper * np.sqrt(np.linspace(0.0, 1.0, 33))
        edges = np.concatenate([-half[:0:-1], half])
        masses = self.continuous_moments(edges)[:, 0]
        return bool(np.allclose(masses, masses[::-1], atol=tolerance))


def locate(points: Array, edges: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Cell of each point in the half-open cells of `edges` (last one closed), and which are inside."""
    cell = np.searchsorted(edges, points, side="right") - 1
    inside = (points >= edges[0]) & (points <= edges[-1])
    return np.clip(cell, 0, len(edges) - 2), inside


def _parse(spec: Any) -> Prior:
    if isinstance(spec, Prior):
        return spec
    if hasattr(spec, "dist") and hasattr(spec, "support"):
        if not hasattr(spec, "pdf"):
            raise DesignError.of(
                "prior", spec, "must be a continuous law; pass its samples for a discrete one"
            )
        return LawPrior(spec)
    if isinstance(spec, (list, tuple, np.ndarray)) or hasattr(spec, "__array__"):
        return EmpiricalPrior(spec)
    raise DesignError.of(
        "prior", spec, "must be a frozen scipy.stats law, md.clipped, md.truncated or samples"
    )


_NONE = (np.zeros(0), np.zeros(0))


@serializable("prior-law")
@dataclass(frozen=True)
class LawPrior(Prior):
    """A frozen continuous `scipy.stats` law."""

    law: Any

    @property
    def support(self) -> tuple[float, float]:
        lower, upper = self.law.support()
        return float(lower), float(upper)

    @property
    def atoms(self) -> tuple[Array, Array]:
        return _NONE

    def continuous_moments(self, edges: Array) -> Array:
        return law_moments(self.law, edges)

    def pdf(self, x: Any) -> Array:
        return np.asarray(self.law.pdf(x))

    def continuous_integrals(self, function: Callable[[Array], Array], edges: Array) -> Array:
        return law_integrals(self.law.pdf, function, np.clip(edges, *self.support))

    def sample(self, size: Any, rng: np.random.Generator | int | None = None) -> Array:
        return np.asarray(self.law.rvs(size=size, random_state=np.random.default_rng(rng)))


@dataclass(frozen=True)
class _CutPrior(Prior):
    law: Any
    lower: float
    upper: float

    def __post_init__(self) -> None:
        lower, upper = float(self.lower), float(self.upper)
        if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
            raise DesignError(f"lower = {self.lower!r}, upper = {self.upper!r}: need finite lower < upper")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def support(self) -> tuple[float, float]:
        return self.lower, self.upper

    def _share(self) -> float:
        return 1.0

    def continuous_moments(self, edges: Array) -> Array:
        return law_moments(self.law, np.clip(edges, self.lower, self.upper)) / self._share()

    def pdf(self, x: Any) -> Array:
        x = np.asarray(x, dtype=float)
        inside = (x >= self.lower) & (x <= self.upper)
        return np.where(inside, self.law.pdf(x), 0.0) / self._share()

    def continuous_integrals(self, function: Callable[[Array], Array], edges: Array) -> Array:
        edges = np.clip(edges, self.lower, self.upper)
        return law_integrals(self.law.pdf, function, edges) / self._share()


@serializable("prior-clipped")
@dataclass(frozen=True)
class ClippedPrior(_CutPrior):
    """The law of ``clip(X, lower, upper)``: what lies outside becomes point masses at the ends."""

    @property
    def atoms(self) -> tuple[Array, Array]:
        weights = np.array([float(self.law.cdf(self.lower)), float(self.law.sf(self.upper))])
        keep = weights > 0
        return np.array([self.lower, self.upper])[keep], weights[keep]

    def sample(self, size: Any, rng: np.random.Generator | int | None = None) -> Array:
        draws = self.law.rvs(size=size, random_state=np.random.default_rng(rng))
        return np.clip(draws, self.lower, self.upper)


@serializable("prior-truncated")
@dataclass(frozen=True)
class TruncatedPrior(_CutPrior):
    """The law of X given that it lies in [lower, upper]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._share() <= 0:
            raise DesignError(
                f"the law has no mass in [{self.lower:g}, {self.upper:g}]: nothing is left to truncate to"
            )

    def _share(self) -> float:
        return float(self.law.cdf(self.upper) - self.law.cdf(self.lower))

    @property
    def atoms(self) -> tuple[Array, Array]:
        return _NONE

    def sample(self, size: Any, rng: np.random.Generator | int | None = None) -> Array:
        low, high = self.law.cdf(self.lower), self.law.cdf(self.upper)
        u = np.random.default_rng(rng).uniform(low, high, size)
        return np.clip(self.law.ppf(u), self.lower, self.upper)


@serializable("prior-samples")
@dataclass(frozen=True, eq=False)
class EmpiricalPrior(Prior):
    """Every sample with the same weight."""

    samples: Array

    def __post_init__(self) -> None:
        samples = np.sort(np.asarray(self.samples, dtype=float).ravel())
        if samples.size == 0 or not np.all(np.isfinite(samples)):
            raise DesignError.of("prior", self.samples, "samples must be finite numbers, at least one")
        samples.setflags(write=False)
        object.__setattr__(self, "samples", samples)

    @property
    def support(self) -> tuple[float, float]:
        return float(self.samples[0]), float(self.samples[-1])

    @property
    def atoms(self) -> tuple[Array, Array]:
        points, counts = np.unique(self.samples, return_counts=True)
        return points, counts / self.samples.size

    def continuous_moments(self, edges: Array) -> Array:
        return np.zeros((len(edges) - 1, 3))

    def pdf(self, x: Any) -> Array:
        return np.zeros(np.shape(x))

    def continuous_integrals(self, function: Callable[[Array], Array], edges: Array) -> Array:
        width = np.asarray(function(np.asarray(edges[:1], dtype=float))).shape[-1]
        return np.zeros((len(edges) - 1, width))

    def sample(self, size: Any, rng: np.random.Generator | int | None = None) -> Array:
        return np.random.default_rng(rng).choice(self.samples, size=size)


def clipped(law: Any, lower: float, upper: float) -> ClippedPrior:
    """Return the law clipped to [lower, upper], with point masses at the ends.

    Examples
    --------
    >>> from scipy import stats
    >>> clipped(stats.norm(0.5, 0.3), -1, 1).atoms[1].round(4)
    array([0.    , 0.0478])
    """
    return ClippedPrior(law, lower, upper)


def truncated(law: Any, lower: float, upper: float) -> TruncatedPrior:
    """Return the law conditioned on [lower, upper].

    Examples
    --------
    >>> from scipy import stats
    >>> round(truncated(stats.norm(0, 1), -1, 1).pdf(0.0).item(), 4)
    0.5844
    """
    return TruncatedPrior(law, lower, upper)
