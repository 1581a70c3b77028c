"""Gaussian noise with any covariance, held so that what it spends of a privacy budget is exact."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.span import Lift, Span
from mechdesign.noise.correlated.whitened import lattice, outside, released
from mechdesign.noise.release import ExactNoise
from mechdesign.noise.vector_noise import shape_of
from mechdesign.problem.checks import answers, array, generator, instance, positive, settle, whole
from mechdesign.solvers.one_thread import one_thread
from mechdesign.typing import Array

__all__ = ["CorrelatedGaussianNoise", "inverse_rows"]


@serializable("correlated-gaussian-noise")
@dataclass(frozen=True, eq=False)
class CorrelatedGaussianNoise:
    r"""Gaussian noise N(0, Σ).

    Parameters
    ----------
    covariance : ndarray, shape (K, K)
        Σ, symmetric positive semidefinite; directions it does not reach get no noise.
    whitening : ndarray, shape (r, r), optional
        R, which then is the law: the coordinates P of the noise are :math:`R^{-1} z`, z standard normal, so that a
        change v spends :math:`\lVert R v_P \rVert^2`, and `covariance` is its rounding.
    coordinates : tuple of int, optional
        P, ascending; all when not given. Fewer than all need a lift.
    lift : tuple of tuple of Fraction, shape (K, r), optional
        E: the noise is :math:`E R^{-1} z`.
    budget : float, optional
        μ²: no change spends more; `release` needs it.

    Examples
    --------
    >>> CorrelatedGaussianNoise(covariance=np.eye(2)).mse()
    2.0
    """

    covariance: Array
    whitening: Array | None = None
    coordinates: tuple[int, ...] | None = None
    lift: Lift | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        matrix = array("covariance", self.covariance, ndim=2)
        if matrix.shape[0] != matrix.shape[1]:
            raise DesignError.of("covariance", self.covariance, "must be a square matrix of finite numbers")
        if not np.allclose(matrix, matrix.T, rtol=1e-10, atol=1e-12 * np.abs(matrix).max()):
            raise DesignError.of("covariance", self.covariance, "must be symmetric")
        settle(self, covariance=(matrix + matrix.T) / 2)
        # on one thread: where the cores are busy, others wait for it spinning, for seconds
        with one_thread():
            self._settled()

    def _settled(self) -> None:
        matrix = self.covariance
        if not self._semidefinite:
            raise DesignError.of("covariance", self.covariance, "must be positive semidefinite")
        self._placed(len(matrix))
        if self.budget is not None:
            settle(self, budget=positive("budget", self.budget))
        if self.whitening is not None:
            settle(self, whitening=array("whitening", self.whitening, ndim=2))
            if self.whitening.shape != (self.span.rank,) * 2 or np.linalg.matrix_rank(
                _scaled(self.whitening)[0]
            ) < len(self.whitening):
                raise DesignError.of(
                    "whitening", self.whitening, "must be an invertible matrix, a row per coordinate"
                )

    def _placed(self, size: int) -> None:
        """Refuse coordinates, and a lift, that are not those of a subspace: what is released would be another query."""
        allowed = "must be ascending, and all of them where there is no lift"
        if self.coordinates is not None:
            instance("coordinates", self.coordinates, tuple, list)
            settle(self, coordinates=tuple(whole("coordinates", k, 0, size - 1) for k in self.coordinates))
        held = self.span.coordinates
        if any(a >= b for a, b in pairwise(held)) or not held or (self.lift is None and len(held) < size):
            raise DesignError.of("coordinates", self.coordinates, allowed)
        if self.lift is not None:
            fits = isinstance(self.lift, tuple) and all(isinstance(row, tuple) for row in self.lift)
            exact = fits and all(isinstance(x, (int, Fraction)) for row in self.lift for x in row)
            if not exact or [len(row) for row in self.lift] != [len(held)] * size:
                raise DesignError.of(
                    "lift", type(self.lift).__name__, f"must be {size} rows of {len(held)} fractions each"
                )

    @cached_property
    def span(self) -> Span:
        """Where the noise lives."""
        size = len(self.covariance)
        return Span(size, tuple(range(size)) if self.coordinates is None else self.coordinates, self.lift)

    @property
    def _semidefinite(self) -> bool:
        """Whether no eigenvalue is below -1e-9 of the largest; a Cholesky factor shows it at a tenth of the price."""
        shift = 1e-9 * float(np.diag(self.covariance).max(initial=0.0))
        if shift > 0 and len(self.covariance) > 20:
            try:
                np.linalg.cholesky(self.covariance + shift * np.eye(len(self.covariance)))
            except np.linalg.LinAlgError:
                pass
            else:
                return True
        values = self._spectrum[0]
        return bool(values.min() >= -1e-9 * max(values.max(), 1e-300))

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(self.covariance)
        return values, vectors

    @cached_property
    def _factor(self) -> Array:
        """F with Σ = F Fᵀ."""
        if self.whitening is not None:
            return self.span.matrix @ inverse_rows(self.whitening)
        values, basis = self._spectrum
        return basis * np.sqrt(np.maximum(values, 0.0))

    def mse(self) -> float:
        """E‖T‖₂² = tr Σ."""
        return float(np.trace(self.covariance))

    def mahalanobis(self, vectors: Any) -> Array:
        """Return μ(d) = √(dᵀΣ⁺d) for each row d; infinite where d leaves the range of Σ."""
        d = np.atleast_2d(array("vectors", vectors, ndim=None))
        if d.ndim != 2 or d.shape[1] != len(self.covariance):
            raise DesignError.of("vectors", vectors, f"must have {len(self.covariance)} coordinates each")
        if self.whitening is not None:
            mu = np.linalg.norm(d[:, self.span.coordinates] @ self.whitening.T, axis=1)
            return np.where([self.span.inside(row) for row in d], mu, np.inf)
        values, basis = self._spectrum
        keep = values > 1e-12 * values.max()
        inside = d @ basis[:, keep]
        outside = np.linalg.norm(d @ basis[:, ~keep], axis=1)
        mu = np.sqrt((inside**2 / values[keep]).sum(axis=1))
        return np.where(outside > 1e-9 * np.maximum(np.linalg.norm(d, axis=1), 1e-300), np.inf, mu)

    @cached_property
    def _exact(self) -> tuple[float, ExactNoise]:
        """Lattice step h, and the sampler of one whitened coordinate."""
        if self.whitening is None or self.budget is None:
            raise DesignError.of(
                "budget", self.budget, "must be known for a release; a CorrelatedGaussian's result knows it"
            )
        return lattice(self.budget, self.span.rank)

    @property
    def step(self) -> float:
        """Lattice step of a release, of each whitened coordinate."""
        return self._exact[0]

    @property
    def lattice_cost(self) -> float:
        """Relative increase of the standard deviations in a release."""
        return self._exact[1].scale - 1.0

    def release(self, x: Any) -> Array:
        """Return an answer with noise: for deployment.

        What neighbours may differ in, R f_P, is rounded to a lattice in exact arithmetic and gets normal noise that is
        drawn exactly, from the operating system's randomness (`mechdesign.noise.release`); R⁻¹ and the lift are applied
        to what has been released. What of f lies outside the span is the same for all neighbours, and is kept.

        Parameters
        ----------
        x : array, shape (K,) or (n, K)
        """
        rows = np.atleast_2d(answers("x", x))
        if rows.ndim != 2 or rows.shape[1] != len(self.covariance):
            raise DesignError.of("x", x, f"must have {len(self.covariance)} coordinates")
        step, noise = self._exact
        held = rows[:, self.span.coordinates]
        with np.errstate(over="ignore", invalid="ignore"):
            out = released(np.asarray(self.whitening), held, step, noise) @ self._factor.T
            if self.lift is not None:
                out += outside(self.lift, held, rows)
        return out[0] if np.ndim(x) == 1 else out

    def rvs(self, size: Any = None, random_state: Any = None) -> Array:
        """Draw noise vectors for simulation, shape ``size + (K,)``."""
        shape = (*shape_of(size), self._factor.shape[1])
        return generator(random_state).standard_normal(shape) @ self._factor.T


def _scaled(rows: Array) -> tuple[Array, Array]:
    """Rows over their length (a power of two), and these lengths."""
    length = np.exp2(np.round(np.log2(np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300))))
    return rows / length, length


def inverse_rows(rows: Array) -> Array:
    """Return the inverse, accurate however the rows are scaled."""
    unit, length = _scaled(rows)
    return np.linalg.inv(unit) / length.T
