r"""Offset symmetric Gaussian tails (OSGT): two Gaussian tails glued at zero.

.. math:: g(t) = \frac{\phi(|t|;\,-\vartheta, \varrho^2)}{2Q(\vartheta/\varrho)}

Standardised: shape :math:`b = \vartheta/\varrho \ge 0`, scale :math:`\varrho`. Everything is written with the Mills ratio
M = Q/φ, so that large offsets, where Q(b) underflows, keep full accuracy.

Source: Sadeghi and Korki, *Offset-symmetric Gaussians for differential privacy*, IEEE TIFS 2022.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import arb
from scipy import special

from mechdesign.accounting.losses import TailForm, UnitLoss
from mechdesign.evidence.serialize import register_law
from mechdesign.noise.laws.symmetric import SymmetricLaw

__all__ = ["OffsetSymmetricGaussian", "osgt"]


def _mills(x: Any) -> Any:
    return math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2))


class OffsetSymmetricGaussian(SymmetricLaw):
    """Generator of the OSGT law (see `osgt`)."""

    def _argcheck(self, b: Any) -> Any:
        return (b >= 0) & np.isfinite(b)

    def _logpdf(self, t: Any, b: Any) -> Any:
        # φ(|t| + b)/2Q(b) = exp(-t²/2 - b|t|)/2M(b)
        t = np.abs(t)
        return -t * (t / 2 + b) - np.log(2 * _mills(b))

    def _upper(self, u: Any, b: Any) -> Any:
        return 0.5 * np.exp(-u * (u / 2 + b)) * _mills(u + b) / _mills(b)

    def _logsf(self, t: Any, b: Any) -> Any:
        u = np.abs(t)
        upper = -u * (u / 2 + b) + np.log(_mills(u + b) / _mills(b)) - math.log(2)
        return np.where(t >= 0, upper, np.log1p(-np.exp(upper)))

    def _reach(self, s: Any, b: Any) -> Any:
        # Q(u + b) = 2 s Q(b), in logs
        u = -special.ndtri_exp(np.log(2 * s) + special.log_ndtr(-b)) - b
        u = np.where(b < 10, np.maximum(u, 0), -np.log(2 * s) / np.maximum(b, 10))
        for _ in range(4):  # Newton on the concave log sf; the closed form cancels for large b
            u = np.maximum(u + (self._logsf(u, b) - np.log(s)) * _mills(u + b), 0)
        return np.where(s > 0, u, np.inf)

    def _absolute_moment(self, p: float, b: Any) -> Any:
        r"""∫_0^∞ u^p e^{-u²/2-bu} du / M(b): parabolic-cylinder functions, free of cancellation.

        ∫ u^p e^{-u²/2 - bu} du = Γ(p+1) e^{b²/4} D_{-p-1}(b); scipy's ``pbdv`` has no scaled form, so beyond b = 6
        (where e^{b²/4} would soon overflow) Gauss-Laguerre quadrature of e^{-u²/2b²} takes over.
        """
        b = np.asarray(b, dtype=float)
        near = np.minimum(b, 6.0)
        exact = special.gamma(p + 1) * np.exp(near * near / 4) * special.pbdv(-p - 1, near)[0]
        nodes, weights = special.roots_genlaguerre(120, p)
        far = np.maximum(b, 6.0)[..., None]
        quadrature = (np.exp(-((nodes / far) ** 2) / 2) @ weights) / far[..., 0] ** (p + 1)
        return np.where(b < 6, exact, quadrature) / _mills(b)

    def precise(self, b: arb) -> TailForm:
        def beyond(u: Any) -> Any:
            return ((u + b) / arb(2).sqrt()).erfc()

        return TailForm(lambda u: -u * (u / 2 + b), lambda u: beyond(u) / (2 * beyond(arb(0))))

    def privacy_loss(self, ratio: float, b: float) -> UnitLoss:
        r, bend = ratio, (ratio + 2 * b) * ratio / 2

        def loss(t: Any) -> Any:
            return np.where(np.abs(t) <= r / 2, t * (r + 2 * b), r * (t + np.copysign(b, t)))

        def inverse(v: Any) -> Any:
            return np.where(np.abs(v) <= bend, v / (r + 2 * b), v / r - np.copysign(b, v))

        # Not an atom, but where the loss turns nearly flat for a large offset: worth a point of the grid.
        return UnitLoss(loss, inverse, atoms=(bend,) if b > 2 else ())


osgt = OffsetSymmetricGaussian(name="osgt", shapes="b")
r"""The OSGT law as a `scipy.stats` distribution: ``osgt(b, scale=rho)``, b = ϑ/ϱ ≥ 0; b = 0 is the Gaussian.

Examples
--------
>>> round(osgt(0.0, scale=2.0).var(), 10)
4.0
"""
register_law("osgt", osgt)
