r"""The flipped Huber law: Laplace in the centre, Gaussian in the tails.

With :math:`\rho_\alpha(t) = \alpha|t|` for :math:`|t| \le \alpha` and :math:`(t^2+\alpha^2)/2` beyond, the density is
:math:`e^{-\rho_\alpha(t)/\gamma^2}/\kappa`. Here the law is standardised: the shape is :math:`b = \alpha/\gamma`, the
scale is γ, and

.. math:: \kappa/\gamma = 2\left[\sqrt{2\pi}\,Q(b)\,e^{-b^2/2} + \frac{1 - e^{-b^2}}{b}\right].

b = 0 is the Gaussian of variance γ²; b → ∞ is the Laplace law of scale γ/b. No hyperbolic function appears:
every expression is a sum of positive, moderate terms, so it holds for any b and in the far tails.

Source: Muthukrishnan and Kalyani, *Grafting Laplace and Gaussian distributions: a new noise mechanism for
differential privacy*, Definition 7 and Section III.
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
from mechdesign.problem.checks import non_negative, positive

__all__ = ["FlippedHuber", "flipped_huber", "flipped_huber_law"]

_ROOT = math.sqrt(2 * math.pi)
_TINY = 1e-150
"""Stands for b = 0 in (1 - e^{-b²})/b, whose limit is 0."""
_EMPTY = 1e-12
"""Below this b the Laplace centre adds nothing to a moment."""


def _tail(b: Any) -> Any:
    """Half the unnormalised mass beyond b: √(2π) Q(b) e^{-b²/2}."""
    return _ROOT * np.exp(-b * b) * special.erfcx(b / math.sqrt(2)) / 2


def _kappa(b: Any) -> Any:
    """Normaliser of the unit-scale density."""
    safe = np.maximum(b, _TINY)
    return 2 * (_tail(b) - np.expm1(-safe * safe) / safe)


class FlippedHuber(SymmetricLaw):
    """Generator of the flipped Huber law (see `flipped_huber`)."""

    def _argcheck(self, b: Any) -> Any:
        return (b >= 0) & np.isfinite(b)

    def _logpdf(self, t: Any, b: Any) -> Any:
        t = np.abs(t)
        return -np.where(t <= b, b * t, (t * t + b * b) / 2) - np.log(_kappa(b))

    def _upper(self, u: Any, b: Any) -> Any:
        inner = np.minimum(u, b)
        safe = np.maximum(b, _TINY)
        centre = np.exp(-b * inner) * -np.expm1(-b * (b - inner)) / safe + _tail(b)
        outer = np.maximum(u, b)
        beyond = _ROOT * np.exp(-(outer * outer + b * b) / 2) * special.erfcx(outer / math.sqrt(2)) / 2
        return np.where(u <= b, centre, beyond) / _kappa(b)

    def _logsf(self, t: Any, b: Any) -> Any:
        far = -(b * b) / 2 + math.log(_ROOT) + special.log_ndtr(-np.maximum(t, b)) - np.log(_kappa(b))
        with np.errstate(divide="ignore"):
            near = np.log(self._sf(np.minimum(t, b), b))
        return np.where(t > b, far, near)

    def _reach(self, s: Any, b: Any) -> Any:
        kappa = _kappa(b)
        safe = np.maximum(b, _TINY)
        # In the centre sf(t) = 1/2 - (1 - e^{-bt})/(bκ); the second form does not cancel as t grows.
        shallow = -np.log1p(-np.minimum(safe * kappa * (0.5 - s), 1)) / safe
        deep = -np.log(np.maximum(safe * (kappa * s - _tail(b)) + np.exp(-b * b), 0)) / safe
        centre = np.where(s > 0.25, shallow, deep)
        # Beyond b: log Q(t) = log(κ s) + b²/2 - log √(2π)
        level = np.minimum(np.log(kappa * s) + b * b / 2 - math.log(_ROOT), math.log(0.5))
        tail = -special.ndtri_exp(level)
        return np.where(kappa * s >= _tail(b), np.clip(centre, 0, b), np.maximum(tail, b))

    def _absolute_moment(self, p: float, b: Any) -> Any:
        # by incomplete gamma functions: no cancellation at small b
        safe = np.maximum(b, _EMPTY)
        centre = special.gamma(p + 1) * special.gammainc(p + 1, safe * safe) / safe ** (p + 1)
        half = (p + 1) / 2
        tails = 2 ** (half - 1) * special.gamma(half) * special.gammaincc(half, b * b / 2)
        tails = tails * np.exp(-b * b / 2)
        return 2 * (np.where(b > _EMPTY, centre, 0.0) + tails) / _kappa(b)

    def _entropy(self, b: Any) -> Any:
        # log κ + E ρ; E ρ over the centre is b E|T|1{|T| ≤ b}, over the tails (T² + b²)/2.
        safe = np.maximum(b, _EMPTY)
        centre = np.where(b > _EMPTY, special.gammainc(2, safe * safe) / safe, 0.0)
        tails = (b * np.exp(-b * b) + _tail(b)) / 2 + b * b / 2 * _tail(b)
        return np.log(_kappa(b)) + 2 * (centre + tails) / _kappa(b)

    # What the paper states beyond scipy's methods, for a unit-scale law.

    def fisher_information(self, b: float, scale: float = 1.0) -> float:
        r"""Fisher information about the location, between 1/γ² and 2/variance (Proposition 2).

        Parameters
        ----------
        b, scale : float
            α/γ and γ.

        Examples
        --------
        >>> flipped_huber.fisher_information(0.0, scale=2.0)
        0.25
        """
        tails = b * math.exp(-b * b) + float(_tail(b))  # ∫_b^∞ t² e^{-(t²+b²)/2} dt
        return 2 * (-b * math.expm1(-b * b) + tails) / float(_kappa(b)) / scale**2

    def log_mgf(self, s: Any, b: float, scale: float = 1.0) -> Any:
        r"""Logarithm of the moment generating function :math:`E e^{sT}`, finite for every s.

        Examples
        --------
        >>> round(float(flipped_huber.log_mgf(1.5, 0.0)), 12)   # Gaussian: s²/2
        1.125
        """
        s = np.asarray(s, dtype=float) * scale
        a = np.abs(s)
        # centre: ∫_0^b e^{(±a-b)t} dt = b·exprel((±a-b)b), kept in logs as a may be large
        rise = (a - b) * b
        log_rise = np.where(rise > 30, rise - np.log(np.maximum(rise, 1)), 0.0)
        with np.errstate(divide="ignore", over="ignore"):
            log_rise = np.where(rise > 30, log_rise, np.log(special.exprel(np.minimum(rise, 30))))
            log_b = math.log(b) if b > 0 else -np.inf
            fall = np.log(special.exprel(-(a + b) * b))
        tails = -(b * b) / 2 + a * a / 2 + math.log(_ROOT)
        tails = tails + np.logaddexp(special.log_ndtr(a - b), special.log_ndtr(-a - b))
        return np.logaddexp(tails, log_b + np.logaddexp(log_rise, fall)) - np.log(_kappa(b))

    def precise(self, b: arb) -> TailForm:
        """Pieces meet at b: of a ball, its two ends are evaluated, between which both functions fall."""

        def log_density(u: arb) -> arb:
            if not u.is_exact():
                return log_density(u.lower()).union(log_density(u.upper()))
            return -b * u if u <= b else -(u * u + b * b) / 2

        def beyond(u: arb) -> arb:
            """The unnormalised mass beyond u."""
            if not u.is_exact():
                return beyond(u.lower()).union(beyond(u.upper()))
            tail = (arb.pi() / 2).sqrt() * (-b * b / 2).exp() * (u.max(b) / arb(2).sqrt()).erfc()
            return tail if u >= b else tail + ((-b * u).exp() - (-b * b).exp()) / b

        whole = 2 * beyond(arb(0))
        return TailForm(log_density, lambda u: beyond(u) / whole)

    def privacy_loss(self, ratio: float, b: float) -> UnitLoss:
        r = ratio

        def rho(x: Any) -> Any:
            x = np.abs(x)
            return np.where(x <= b, b * x, (x * x + b * b) / 2)

        def loss(t: Any) -> Any:
            both = (np.abs(t) - r / 2) > b  # both points in the same tail: r·t without cancellation
            out = np.where(both, r * t, rho(t + r / 2) - rho(t - r / 2))
            centre = np.abs(t) + r / 2 <= b  # both in the centre: 2bt, then the atom, exactly
            return np.where(centre, b * np.clip(2 * np.asarray(t), -r, r), out)

        return UnitLoss(
            loss,
            lambda v: _inverse_loss(v, r, b),
            atoms=(b * r,) if b > r else (),
            kinks=(r / 2, abs(b - r / 2), b + r / 2),
        )


def _inverse_loss(v: Any, r: float, b: float) -> Any:
    """sup{t : loss(t) <= v}: the four pieces of the paper's Appendix C, odd in v."""
    w = np.abs(v)
    first = max(r - b, 0.0)
    v1 = (first * first + 2 * b * r) / 2
    v2 = (r + 2 * b) * r / 2
    out = np.where(w < v1, np.sqrt(2 * (w + b * r)) - r / 2 - b, w / r)
    out = np.where((w >= v1) & (w <= v2), np.sqrt(2 * np.maximum(w - b * r, 0)) - r / 2 + b, out)
    if b > r / 2:
        out = np.where(w < min(2 * b - r, r) * b, w / (2 * b), out)
    if b < r / 2:
        out = np.where(w < (r - 2 * b) * r / 2, w / r, out)
    # For v < 0 the supremum of {loss <= v} is minus the infimum of {loss >= |v|}: they differ at atoms.
    at_atom = (v < 0) & (w == b * r) & (b > r)
    return np.where(v >= 0, out, np.where(at_atom, -r / 2, -out))


flipped_huber = FlippedHuber(name="flipped_huber", shapes="b")
r"""The flipped Huber law as a `scipy.stats` distribution: ``flipped_huber(b, scale=gamma)``, b = α/γ ≥ 0.

Examples
--------
>>> law = flipped_huber(1.0, scale=2.0)
>>> round(law.cdf(2.0) + law.sf(2.0), 12)
1.0
"""
register_law("flipped_huber", flipped_huber)


def flipped_huber_law(alpha: float, gamma: float) -> Any:
    r"""Return the frozen law with the paper's parameters (α, γ).

    Parameters
    ----------
    alpha : float
        Where Laplace turns into Gaussian, α ≥ 0.
    gamma : float
        γ > 0; the tails are Gaussian of variance γ².

    Returns
    -------
    frozen scipy.stats distribution

    Raises
    ------
    DesignError
        α negative, γ not positive, or either not finite.

    Examples
    --------
    >>> law = flipped_huber_law(0.0, 3.0)
    >>> float(round(law.var(), 12))
    9.0
    """
    alpha, gamma = non_negative("alpha", alpha), positive("gamma", gamma)
    return flipped_huber(alpha / gamma, scale=gamma)
