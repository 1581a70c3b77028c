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
from flint import arb
from scipy import special

from mechdesign.accounting.losses import TailForm, UnitLoss, laplace_loss
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import register_law
from mechdesign.noise.laws.symmetric import SymmetricLaw
from mechdesign.problem.checks import positive, probability

__all__ = ["TruncatedLaplace", "truncated_laplace", "truncated_laplace_law"]


class TruncatedLaplace(SymmetricLaw):
    """Generator of the truncated Laplace law (see `truncated_laplace`)."""

    def _argcheck(self, c: Any) -> Any:
        return (c > 0) & np.isfinite(c)

    def _get_support(self, c: Any) -> Any:
        return -c, c

    def _logpdf(self, t: Any, c: Any) -> Any:
        return np.where(np.abs(t) <= c, -np.abs(t) - np.log(-2 * np.expm1(-c)), -np.inf)

    def _upper(self, u: Any, c: Any) -> Any:
        u = np.minimum(u, c)
        return np.exp(-u) * np.expm1(u - c) / np.expm1(-c) / 2

    def _reach(self, s: Any, c: Any) -> Any:
        # e^{-u} = e^{-c} + 2s(1 - e^{-c})
        shallow = -np.log1p((1 - 2 * np.maximum(s, 0.25)) * np.expm1(-c))
        deep = -np.log(np.exp(-c) - 2 * s * np.expm1(-c))
        return np.minimum(np.where(s > 0.25, shallow, deep), c)

    def _absolute_moment(self, p: float, c: Any) -> Any:
        return special.gamma(p + 1) * special.gammainc(p + 1, c) / -np.expm1(-c)

    def _entropy(self, c: Any) -> Any:
        return np.log(-2 * np.expm1(-c)) + special.gammainc(2, c) / -np.expm1(-c)

    def precise(self, c: arb) -> TailForm:
        end = (-c).exp()
        return TailForm(lambda u: -u, lambda u: ((-u).exp() - end) / (1 - end) / 2, end=c)

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
    epsilon, sensitivity = positive("epsilon", epsilon), positive("sensitivity", sensitivity)
    if not 0 < probability("delta", delta) < 0.5:
        raise DesignError.of(
            "delta", delta, "must be in (0, 1/2); at delta = 0 use Laplace or staircase noise"
        )
    odds = epsilon - math.log(2 * delta) + math.log(-math.expm1(-epsilon))  # log (e^ε − 1)/2δ
    return truncated_laplace(float(np.logaddexp(0.0, odds)), scale=sensitivity / epsilon)
