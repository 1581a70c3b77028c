"""A law from a density that is given as a function: for priors that no library has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import register_law
from mechdesign.problem.checks import interval
from mechdesign.typing import Array

__all__ = ["density"]

_PANELS = 512
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_AGREE = 1e-11


class _Density(stats.rv_continuous):
    """The law on [a, b] with density proportional to a function, integrated panel by panel."""

    def __init__(self, function: Callable[[Any], Any], a: float, b: float, name: str, **options: Any) -> None:
        super().__init__(a=a, b=b, name=name, **options)
        self._function = function
        self._edges = np.linspace(a, b, _PANELS + 1)
        parts = self._panels(self._edges[:-1], self._edges[1:])
        self._below: Array = np.append(0.0, np.cumsum(parts))
        self._total = float(self._below[-1])

    def _panels(self, left: Array, right: Array) -> Array:
        width = (right - left)[:, None]
        values = np.asarray(self._function((left[:, None] + width * (1 + _NODES) / 2).ravel()), dtype=float)
        found: Array = (values.reshape(len(left), -1) * _WEIGHTS).sum(axis=1) * width[:, 0] / 2
        return found

    def _pdf(self, x: Any) -> Any:
        return np.asarray(self._function(np.asarray(x, dtype=float)), dtype=float) / self._total

    def _cdf(self, x: Any) -> Any:
        x = np.asarray(x, dtype=float)
        flat = np.clip(x.ravel(), self.a, self.b)
        k = np.clip(np.searchsorted(self._edges, flat, side="right") - 1, 0, _PANELS - 1)
        inside = self._panels(self._edges[k], flat)
        return np.clip((self._below[k] + inside) / self._total, 0.0, 1.0).reshape(x.shape)

    def _updated_ctor_param(self) -> dict[str, Any]:
        held = super()._updated_ctor_param()
        return {**held, "function": self._function}


def density(function: Callable[[Any], Any], lower: float, upper: float, *, name: str) -> Any:
    """Return the law on [lower, upper] whose density is proportional to `function`: a prior, for any design.

    Results with such a prior can be saved; a program that loads them makes the same density under the same name first.

    Parameters
    ----------
    function : callable
        Non-negative and smooth on the range, vectorised; it need not integrate to 1.
    lower, upper : float
    name : str
        Under which files know it.

    Returns
    -------
    frozen scipy.stats distribution

    Raises
    ------
    DesignError
        Not a function of arrays; negative, infinite or zero values; not smooth enough to be integrated to 1e-11 (cut the
        range where it has a kink or jump, or give samples).

    Examples
    --------
    >>> law = density(lambda x: 1 + x**2, -1, 1, name="bowl")
    >>> round(float(law.cdf(0.5)), 6), round(float(law.pdf(0.0)), 6)
    (0.703125, 0.375)
    """
    low, high = interval("(lower, upper)", (lower, upper))
    if not callable(function):
        raise DesignError.of("function", function, "must be a function of an array of numbers")
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(function(np.linspace(low, high, 4097)), dtype=float)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise DesignError.of("function", name, f"fails on an array of numbers: {error}") from None
    if values.shape != (4097,) or not np.isfinite(values).all() or values.min() < 0 or not values.any():
        raise DesignError.of(
            "function", name, "must give one finite, non-negative number for each number, not all zero"
        )
    made = _Density(function, low, high, name)
    halves = np.linspace(low, high, 2 * _PANELS + 1)
    finer = float(made._panels(halves[:-1], halves[1:]).sum())
    if not abs(finer - made._total) <= _AGREE * finer:
        raise DesignError.of(
            "function", name, "is not smooth enough to be integrated: cut the range at kinks and jumps"
        )
    register_law(name, made)
    return made()
