r"""The truncated Laplace law: density :math:`\propto e^{-|t|/\beta}` on :math:`[-A, A]`.

Standardised: shape :math:`c = A/\beta`, scale β. For one query of sensitivity Δ the choice β = Δ/ε,
:math:`A = (\Delta/\varepsilon)\log(1 + (e^\varepsilon - 1)/2\delta)` is (ε, δ)-DP and optimal in the high-privacy regime.

Source: Geng, Ding, Guo and Kumar, *Tight analysis of privacy and utility tradeoff in approximate differential
privacy*, AISTATS 2020, Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special, stats

from mechdesign.accounting.law import UnitLoss
from mechdesign.accounting.loss import laplace_loss
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import register_law

__all__ = ["TruncatedLaplace", "truncated_laplace", "truncated_laplace_law"]


class TruncatedLaplace(stats.rv_continuous):
    """Generator of the truncated Laplace law (see `truncated_laplace`)."""

    def _argcheck(self, c: Any) -> Any:
        return (c > 0) & np.isfinite(c)

    def _shape_info(self) -> list[Any]:
        return []

    def _get_support(self, c: Any) -> Any:
        return -c, c

    def _logpdf(self, t: Any, c: Any) -> Any:
        return np.where(np.abs(t) <= c, -np.abs(t) - np.log(-2 * np.expm1(-c)), -np.inf)

    def _pdf(self, t: Any, c: Any) -> Any:
        return np.exp(self._logpdf(t, c))

    def _sf(self, t: Any, c: Any) -> Any:
        u = np.minimum(np.abs(t), c)
        upper = np.exp(-u) * np.expm1(u - c) / np.expm1(-c) / 2
        return np.where(t >= 0, upper, 1 - upper)

    def _cdf(self, t: Any, c: Any) -> Any:
        return self._sf(-t, c)

    def _isf(self, s: Any, c: Any) -> Any:
        s = np.asarray(s, dtype=float)
        small = np.minimum(s, 1 - s)
        # e^{-u} = e^{-c} + 2s(1 - e^{-c})
        with np.errstate(divide="ignore"):
            shallow = -np.log1p((1 - 2 * np.maximum(small, 0.25)) * np.expm1(-c))
            deep = -np.log(np.exp(-c) - 2 * small * np.expm1(-c))
        u = np.minimum(np.where(small > 0.25, shallow, deep), c)
        return np.where(s <= 0.5, u, -u)

    def _ppf(self, q: Any, c: Any) -> Any:
        return -self._isf(q, c)

    def _munp(self, n: int, c: Any) -> Any:
        if n % 2:
            return 0.0
        return special.gamma(n + 1) * special.gammainc(n + 1, c) / -np.expm1(-c)

    def mean_absolute(self, c: float) -> float:
        return float(special.gammainc(2, c) / -math.expm1(-c))

    def _stats(self, c: Any) -> Any:
        variance = self._munp(2, c)
        return 0.0, variance, 0.0, self._munp(4, c) / variance**2 - 3

    def _entropy(self, c: Any) -> Any:
        return np.log(-2 * np.expm1(-c)) + special.gammainc(2, c) / -np.expm1(-c)

    def privacy_loss(self, ratio: float, c: float) -> UnitLoss:
        atoms = (ratio,) if c > ratio else ()
        return replace(laplace_loss(ratio), atoms=atoms, edge=c - ratio / 2)


truncated_laplace = TruncatedLaplace(name="truncated_laplace", shapes="c")
r"""The truncated Laplace law as a `scipy.stats` distribution: ``truncated_laplace(c, scale=beta)``, support ±cβ.

Examples
--------
>>> truncated_laplace(2.0, scale=3.0).support()
(-6.0, 6.0)
"""
register_law("truncated_laplace", truncated_laplace)


def truncated_laplace_law(epsilon: float, delta: float, sensitivity: float = 1.0) -> Any:
    r"""Return the truncated Laplace law of Geng et al. for (ε, δ) and one query.

    Its ℓ₁ error is :math:`(\Delta/\varepsilon)(1 - \log(1+r)/r)`, :math:`r = (e^\varepsilon - 1)/2\delta`.

    Raises
    ------
    DesignError
        ε or the sensitivity not positive, δ not in (0, 1/2): with δ = 0 use Laplace or staircase noise.

    Examples
    --------
    >>> float(round(truncated_laplace_law(0.3, 1e-6).var(), 2))
    22.21
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise DesignError.of("epsilon", epsilon, "must be positive and finite")
    if not 0 < delta < 0.5:
        raise DesignError.of(
            "delta", delta, "must be in (0, 1/2); at delta = 0 use Laplace or staircase noise"
        )
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise DesignError.of("sensitivity", sensitivity, "must be positive and finite")
    return truncated_laplace(math.log1p(math.expm1(epsilon) / (2 * delta)), scale=sensitivity / epsilon)
