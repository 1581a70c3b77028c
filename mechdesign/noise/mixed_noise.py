"""Independent noise of a type of its own on each coordinate: Laplace here, Gaussian there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from mechdesign.accounting.losses import NoiseTerm
from mechdesign.errors import DesignError
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.vector_noise import IndependentNoise, absolute_moment, accuracy_of, shape_of
from mechdesign.problem.checks import answers, array, generator, positive, settle
from mechdesign.typing import Array

__all__ = ["MixedNoise"]

_COLUMN = 1024
_SMALL = 2.0**-16
"""Laplace ratios below this share of the largest are accounted for together."""


@serializable("mixed-noise")
@dataclass(frozen=True, eq=False)
class MixedNoise:
    """Independent zero-mean noise, Laplace on some coordinates and Gaussian on the others.

    Parameters
    ----------
    scales : array_like, shape (K,)
        β_i where the noise is Laplace, σ_i where it is Gaussian; 0 adds nothing to that coordinate.
    laplace : array_like of bool, shape (K,)
    sensitivities : array_like, shape (K,)
        The profile λ that the scales were made for.

    Examples
    --------
    >>> law = MixedNoise([1.0, 2.0, 0.0], [True, False, False], [1.0, 1.0, 0.0])
    >>> law.kinds, law.variance()
    (('laplace', 'gaussian', 'none'), array([2., 4., 0.]))
    """

    scales: Array
    laplace: Any
    sensitivities: Array

    def __post_init__(self) -> None:
        scales, lam = array("scales", self.scales), array("sensitivities", self.sensitivities)
        kinds = np.asarray(self.laplace)
        if scales.min() < 0 or lam.shape != scales.shape or lam.min() < 0:
            raise DesignError.of("scales", self.scales, "must be non-negative, one a sensitivity")
        if kinds.dtype != bool or kinds.shape != scales.shape:
            raise DesignError.of("laplace", self.laplace, "must be True or False for each coordinate")
        if ((scales == 0) & (lam > 0)).any():
            raise DesignError.of("scales", self.scales, "must be positive where the query changes")
        settle(self, scales=scales, laplace=kinds, sensitivities=lam)

    @property
    def noise(self) -> str:
        """The name of the family."""
        return "mixed"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The type of each coordinate: laplace, gaussian or none."""
        return tuple(
            "none" if s == 0 else "laplace" if k else "gaussian" for s, k in zip(self.scales, self.laplace)
        )

    def terms(self) -> tuple[NoiseTerm, ...]:
        r"""What is composed: normal coordinates as one of :math:`\mu = \sqrt{\sum \lambda_i^2/\sigma_i^2}`, rounded up, and
        Laplace coordinates by their ratio λ/β, rounded up; not those of `small`.
        """
        ratio = self._ratio
        normal = (ratio > 0) & ~self.laplace
        found = []
        if normal.any():
            mu = math.sqrt(_sum_up(ratio[normal] ** 2)) * (1 + 1e-15)
            found.append(NoiseTerm(stats.norm(), mu, 1))
        sizes, counts = np.unique(ratio[self._alone], return_counts=True)
        found += [NoiseTerm(stats.laplace(), float(v), int(c)) for v, c in zip(sizes, counts)]
        return tuple(found)

    @property
    def small(self) -> float:
        """Σ λ/β of the Laplace coordinates whose ratio is far below the largest, rounded up: they are this private, purely."""
        return _sum_up(self._ratio[self._together]) * (1 + 1e-15)

    @cached_property
    def _ratio(self) -> Array:
        """λ/s, rounded up."""
        ratio = np.divide(
            self.sensitivities, self.scales, out=np.zeros(len(self.scales)), where=self.scales > 0
        )
        return np.asarray(np.where(ratio > 0, np.nextafter(ratio, np.inf), ratio))

    @cached_property
    def _alone(self) -> Any:
        ratio = np.where(self.laplace, self._ratio, 0.0)
        return (ratio > 0) & (ratio >= _SMALL * ratio.max())

    @property
    def _together(self) -> Any:
        return self.laplace & (self._ratio > 0) & ~self._alone

    @cached_property
    def _parts(self) -> tuple[tuple[Any, IndependentNoise], ...]:
        """Normal coordinates, the small Laplace ones, and the others by their ratio.

        Widening for the lattice keeps the sum that a part spends: all that counts of the first two, and of coordinates of
        one ratio that each of them is no less private than before.
        """
        found = [(np.flatnonzero(~self.laplace | (self._ratio == 0)), "gaussian")]
        found.append((np.flatnonzero(self._together), "laplace"))
        found += [
            (np.flatnonzero(self._alone & (self._ratio == r)), "laplace")
            for r in np.unique(self._ratio[self._alone])
        ]
        return tuple(
            (at, IndependentNoise(kind, self.scales[at], self.sensitivities[at]))
            for at, kind in found
            if at.size
        )

    @property
    def lattice_cost(self) -> float:
        """Relative increase of the root mean squared error in a release."""
        wider = np.ones(len(self.scales))
        for at, law in self._parts:
            wider[at] += law.lattice_cost
        return float(np.linalg.norm(wider * np.sqrt(self.variance())) / math.sqrt(self.mse())) - 1.0

    def release(self, x: Any) -> Array:
        """Return answers with noise, each coordinate on a lattice of 2⁻³⁰ of its scale: for deployment.

        Drawn exactly, from the operating system's randomness, as `IndependentNoise.release` does.

        Parameters
        ----------
        x : array, shape (..., K)
        """
        held = answers("x", x)
        if held.shape[-1:] != self.scales.shape:
            raise DesignError.of("x", x, f"must have {len(self.scales)} coordinates")
        out = np.array(held)
        for at, law in self._parts:
            out[..., at] = law.release(held[..., at])
        return out

    def variance(self) -> Array:
        """Variance per coordinate."""
        return np.asarray(self.scales**2 * np.where(self.laplace, 2.0, 1.0))

    def mse(self) -> float:
        """E‖T‖₂²."""
        return float(self.variance().sum())

    def errors(self) -> Accuracy:
        """How far off an answer is, on average over the coordinates."""
        return accuracy_of(self.scales, laplace=self.laplace)

    def absolute_moment(self, order: float) -> Array:
        r"""Return :math:`E|T_i|^p` per coordinate."""
        order = positive("order", order)
        unit = np.where(self.laplace, absolute_moment("laplace", order), absolute_moment("gaussian", order))
        return np.asarray(unit * self.scales**order)

    def rvs(self, size: Any = None, random_state: Any = None) -> Array:
        """Draw noise vectors for simulation, shape ``size + (K,)``."""
        rng, shape = generator(random_state), (*shape_of(size), len(self.scales))
        return np.asarray(
            np.where(self.laplace, rng.laplace(size=shape), rng.standard_normal(shape)) * self.scales
        )


def _sum_up(values: Array) -> float:
    """The sum of numbers of at least 0, from above; exactly rounded for few, by columns of 1,024 for many.

    A column's sum is off by 1,023 roundings at most.
    """
    if len(values) <= 4 * _COLUMN:
        return math.fsum(values.tolist())
    held = np.zeros((_COLUMN, -(-len(values) // _COLUMN)))
    held.ravel()[: len(values)] = values
    return math.fsum(held.sum(axis=0).tolist()) * (1 + _COLUMN * 2.0**-52)
