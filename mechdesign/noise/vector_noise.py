"""Noise for vector queries, independent with a scale per coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import generator, one_of, positive, settle, whole
from mechdesign.typing import Array

__all__ = ["IndependentNoise", "absolute_moment", "shape_of"]


@serializable("independent-noise")
@dataclass(frozen=True, eq=False)
class IndependentNoise:
    """Independent zero-mean noise, not identically distributed.

    Parameters
    ----------
    noise : {"gaussian", "laplace"}
    scales : ndarray, shape (K,)
        Standard deviations σ_i or Laplace scales β_i; 0 adds nothing to that coordinate.

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

    def __post_init__(self) -> None:
        one_of("noise", self.noise, ("gaussian", "laplace"))
        try:
            scales = np.asarray(self.scales, dtype=float)  # not copied: it may be long
        except (TypeError, ValueError, OverflowError):
            scales = np.empty(0)
        if scales.ndim != 1 or not scales.size or not scales.min() >= 0 or not scales.max() < math.inf:
            raise DesignError.of("scales", self.scales, "must be a vector of non-negative finite numbers")
        settle(self, scales=scales)

    def variance(self) -> Array:
        """Variance per coordinate."""
        return self.scales * self.scales * (1.0 if self.noise == "gaussian" else 2.0)

    def mse(self) -> float:
        """E‖T‖₂²."""
        return float(self.variance().sum())

    def absolute_moment(self, order: float) -> Array:
        r"""Return :math:`E|T_i|^p` per coordinate."""
        return absolute_moment(self.noise, positive("order", order)) * self.scales**order

    def rvs(self, size: Any = None, random_state: Any = None) -> Array:
        """Draw noise vectors, shape ``size + (K,)``."""
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
