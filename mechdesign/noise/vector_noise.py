"""Noise for vector queries, independent with a scale per coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Any

import numpy as np
from scipy import special, stats

from mechdesign.errors import DesignError
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.release import ExactNoise, noisy
from mechdesign.problem.checks import answers, doubles, generator, instance, one_of, positive, settle, whole
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array

__all__ = ["IndependentNoise", "absolute_moment", "accuracy_of", "shape_of"]


_STEP = 2.0**-30
"""Lattice step of a release over the scale."""


@serializable("independent-noise")
@dataclass(frozen=True, eq=False)
class IndependentNoise:
    """Independent zero-mean noise, not identically distributed.

    Parameters
    ----------
    noise : {"gaussian", "laplace"}
    scales : ndarray, shape (K,)
        Standard deviations σ_i or Laplace scales β_i; 0 adds nothing to that coordinate.
    sensitivities : ndarray, shape (K,), optional
        The profile λ that the scales were made for; `release` needs it.
    bounds : Sensitivity, optional
        All bounds that changes keep, where there are others than the profile.

    Examples
    --------
    >>> law = IndependentNoise(noise="laplace", scales=np.array([1.0, 0.0]))
    >>> law.variance()
    array([2., 0.])
    >>> law.rvs(3, random_state=0).shape
    (3, 2)
    """

    noise: str
    scales: Array
    sensitivities: Array | None = None
    bounds: Sensitivity | None = None

    def __post_init__(self) -> None:
        one_of("noise", self.noise, ("gaussian", "laplace"))
        allowed = "must be a vector of non-negative finite numbers"
        scales = doubles("scales", self.scales, allowed)  # not copied: it may be long
        if scales.ndim != 1 or not scales.size or not scales.min() >= 0 or not scales.max() < math.inf:
            raise DesignError.of("scales", self.scales, allowed)
        settle(self, scales=scales)
        if self.sensitivities is not None:
            allowed = "must be non-negative and finite, one a scale"
            lam = doubles("sensitivities", self.sensitivities, allowed)
            if lam.shape != scales.shape or not lam.min() >= 0 or not lam.max() < math.inf:
                raise DesignError.of("sensitivities", self.sensitivities, allowed)
            settle(self, sensitivities=lam)
        instance("bounds", self.bounds, Sensitivity, NoneType)

    @cached_property
    def _exact(self) -> ExactNoise:
        """The sampler of one coordinate in units of its scale, widened for the lattice.

        Each coordinate has the step h = 2⁻³⁰ of its scale. Rounding (`mechdesign.noise.release.noisy`) moves answers
        λ apart to at most (1 + 2⁻⁴⁸)λ/h + 2 steps apart, so that the sum of ((λ + 2h)/s)^m is what is spent. Under further
        bounds n coordinates change, and by Minkowski's inequality the m-th root of what a change spends rises by 2h n^(1/m)/s at
        most; the largest spends at least what one coordinate alone does.
        """
        lam, m = self.sensitivities, 2 if self.noise == "gaussian" else 1
        if lam is None or np.any((self.scales == 0) & (lam > 0)):
            raise DesignError.of(
                "sensitivities", lam, "must be known for a release; a NoiseAllocation's result knows them"
            )
        ratio = np.divide(lam, self.scales, out=np.zeros(len(lam)), where=lam > 0)
        spent = float((ratio**m).sum())
        wanted = float(((ratio[lam > 0] + 2 * _STEP) ** m).sum())
        wider = (wanted / spent) ** (1 / m) * (1 + 1e-12) if spent else 1.0
        if self.bounds is not None:
            count = self.bounds.count(len(lam))
            wider = (1 + 2 * _STEP * count ** (1 / m) / float(ratio.max())) * (1 + 1e-12)
        law = stats.norm(scale=wider) if self.noise == "gaussian" else stats.laplace(scale=wider)
        return ExactNoise(law, _STEP)

    @property
    def lattice_cost(self) -> float:
        """Relative increase of the scales in a release."""
        return self._exact.scale - 1.0

    def release(self, x: Any) -> Array:
        """Return answers with noise, each coordinate on a lattice of 2⁻³⁰ of its scale: for deployment.

        The noise is drawn exactly, from the operating system's randomness (`mechdesign.noise.release`); a coordinate without
        noise is the same for all neighbours and is returned as it is.

        Parameters
        ----------
        x : array, shape (..., K)
        """
        held = answers("x", x)
        if held.shape[-1:] != self.scales.shape:
            raise DesignError.of("x", x, f"must have {len(self.scales)} coordinates")
        step = self.scales * _STEP
        draws = self._exact.draw(held.size).reshape(held.shape)
        return np.where(step > 0, noisy(held, np.where(step > 0, step, 1.0), draws), held)

    def variance(self) -> Array:
        """Variance per coordinate."""
        return self.scales * self.scales * (1.0 if self.noise == "gaussian" else 2.0)

    def mse(self) -> float:
        """E‖T‖₂²."""
        return float(self.variance().sum())

    def errors(self) -> Accuracy:
        """How far off an answer is, on average over the coordinates."""
        return accuracy_of(self.scales, laplace=self.noise == "laplace")

    def absolute_moment(self, order: float) -> Array:
        r"""Return :math:`E|T_i|^p` per coordinate."""
        return absolute_moment(self.noise, positive("order", order)) * self.scales**order

    def rvs(self, size: Any = None, random_state: Any = None) -> Array:
        """Draw noise vectors for simulation, shape ``size + (K,)``."""
        rng, shape = generator(random_state), (*shape_of(size), len(self.scales))
        unit = rng.standard_normal(shape) if self.noise == "gaussian" else rng.laplace(size=shape)
        return unit * self.scales


def shape_of(size: Any) -> tuple[int, ...]:
    """Return a size as SciPy takes it, None, a whole number or a sequence of them, as a shape.

    Examples
    --------
    >>> shape_of(None), shape_of(3), shape_of((2, 3))
    ((), (3,), (2, 3))
    """
    if size is None or isinstance(size, (tuple, list)):
        return tuple(whole("size", n, 0, 2**40) for n in size or ())
    return (whole("size", size, 0, 2**40),)


def absolute_moment(noise: str, order: float) -> float:
    r"""Return :math:`E|T|^p` at scale 1: :math:`2^{p/2}\Gamma((p+1)/2)/\sqrt\pi` or :math:`\Gamma(p+1)`.

    Examples
    --------
    >>> absolute_moment("gaussian", 2), absolute_moment("laplace", 2)
    (1.0, 2.0)
    """
    if noise == "laplace":
        return float(special.gamma(order + 1))
    if order == 2:
        return 1.0
    return float(2 ** (order / 2) * special.gamma((order + 1) / 2) / math.sqrt(math.pi))


def accuracy_of(scales: Array, *, laplace: Any = False) -> Accuracy:
    """How far off an answer is, on average over coordinates with Laplace noise where `laplace`, else Gaussian, of these scales.

    Examples
    --------
    >>> print(accuracy_of(np.ones(2), laplace=[True, False]))
    standard deviation 1.22474, mean absolute error 0.898942, 95% within ±2.47785
    """
    variance, absolute, width = (
        np.where(laplace, a, b)
        for a, b in ((2.0, 1.0), (1.0, math.sqrt(2 / math.pi)), (math.log(20), 1.959963984540054))
    )
    return Accuracy(
        math.sqrt(float((variance * scales**2).mean())),
        float((absolute * scales).mean()),
        float((width * scales).mean()),
    )
