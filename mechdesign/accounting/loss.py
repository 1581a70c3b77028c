r"""The centred privacy loss of a symmetric log-concave law.

For noise with density g and two queries Δ apart, look at the output from their midpoint: the loss

.. math:: \tilde\zeta(t) = \log g(t - \Delta/2) - \log g(t + \Delta/2)

is odd and, when g is symmetric and log-concave, non-decreasing. Everything exact in this package about a
single coordinate comes from that function and its inverse
:math:`\tilde\zeta^{-1}(\nu) = \sup\{t : \tilde\zeta(t) \le \nu\}`.

A law of this package brings its own closed forms (methods ``_unit_loss``, ``_unit_inverse``, ``_unit_atoms``
of its generator); for SciPy's normal, Laplace and logistic laws they are here; any other frozen symmetric
log-concave law, such as ``scipy.stats.gennorm``, is inverted numerically.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import elementwise

from mechdesign.errors import DesignError

__all__ = ["CentredLoss", "centred_loss"]


@dataclass(frozen=True)
class CentredLoss:
    r"""The loss of `law` at distance `sensitivity`, with what discretising it needs.

    Attributes
    ----------
    law : frozen scipy.stats distribution
    sensitivity : float
        Δ > 0.
    loss, inverse : callable
        :math:`\tilde\zeta` and its generalised inverse, vectorised.
    sf : callable
        Survival function of the noise, relatively accurate in its upper tail.
    isf : callable
        Its inverse.
    atoms : tuple of float
        Positive loss values that carry positive probability (with their negatives).
    edge : float
        The loss is +∞ beyond this t (bounded noise), else ``inf``.
    kinks : tuple of float
        Where the loss or the density at t ∓ Δ/2 is not smooth, t > 0 (quadrature breaks there).
    """

    law: Any
    sensitivity: float
    loss: Callable[[Any], Any]
    inverse: Callable[[Any], Any]
    sf: Callable[[Any], Any]
    isf: Callable[[Any], Any]
    atoms: tuple[float, ...] = ()
    edge: float = math.inf
    kinks: tuple[float, ...] = ()

    def masses(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Mass of each cell (x_i, x_{i+1}] under both queries, with bounds on their rounding errors.

        Returns
        -------
        p, q, p_error, q_error : ndarray, shape (len(x) - 1,)
            `p` under g(t − Δ/2), the query whose loss is looked at, `q` under g(t + Δ/2).
        """
        half = self.sensitivity / 2
        p, p_error = _cell_masses(self.sf, x - half)
        q, q_error = _cell_masses(self.sf, x + half)
        return p, q, p_error, q_error


_ULPS = 4e-15
"""Relative error allowed to a survival function, per unit of 1 − log of its value (≈ 20 ulps, and an
exponential of a rounded argument beyond)."""


def _cell_masses(sf: Callable[[Any], Any], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # By symmetry P(a < T <= b) = P(-b <= T < -a): use the side on which the tails are small.
    upper = sf(np.abs(x))
    a, b = x[:-1], x[1:]
    sa, sb = upper[:-1], upper[1:]
    right, left = a >= 0, b <= 0
    p = np.where(right, sa - sb, np.where(left, sb - sa, 1 - sa - sb))
    largest = np.where(right, sa, np.where(left, sb, 1.0))
    error = _ULPS * largest * (1 - 0.1 * np.log(np.maximum(largest, 1e-308)))
    # The points themselves are rounded: the density times an ulp of x is below sf'(x)·x·u, of the same order
    # as p·(x/width)·u; sf carries it as a relative error of its own argument.
    width = np.where(np.isfinite(b - a), b - a, 1.0)
    reach = np.where(np.isfinite(x), np.abs(x), 0.0)
    error = error + 4e-16 * p * np.maximum(reach[:-1], reach[1:]) / np.maximum(width, 1e-300)
    return np.maximum(p, 0), error


def _normal(r: float) -> tuple[Any, Any, tuple[float, ...]]:
    return (lambda t: r * t), (lambda v: v / r), ()


def _laplace(r: float) -> tuple[Any, Any, tuple[float, ...]]:
    def inverse(v: Any) -> Any:
        v = np.asarray(v, dtype=float)
        return np.where(v >= r, np.inf, np.where(v < -r, -np.inf, v / 2))

    return (lambda t: np.clip(2 * np.asarray(t, dtype=float), -r, r)), inverse, (r,)


def _logistic(r: float) -> tuple[Any, Any, tuple[float, ...]]:
    # log density -2 log 2cosh(t/2): loss 2 log cosh(t/2 + r/4)/cosh(t/2 - r/4), bounded by r
    # log 2cosh(x) = |x| + log(1 + e^{-2|x|}); the difference of the |x| is t, cut off at ±r/2
    def loss(t: Any) -> Any:
        t = np.asarray(t, dtype=float)
        plus, minus = np.log1p(np.exp(-np.abs(t + r / 2))), np.log1p(np.exp(-np.abs(t - r / 2)))
        return 2 * (np.clip(t, -r / 2, r / 2) + (plus - minus))

    def inverse(v: Any) -> Any:
        # tanh(t/2)·tanh(r/4) = tanh(v/4), written with expm1 as tanh saturates:
        # t = log[(e^{v/2} - e^{-r/2}) / (1 - e^{(v-r)/2})] - r/2 + ... (symmetrised below for v >= 0)
        v = np.asarray(v, dtype=float)
        w = np.minimum(np.abs(v), r)
        with np.errstate(divide="ignore"):
            t = np.log(-np.expm1(-(w + r) / 2)) - np.log(-np.expm1((w - r) / 2)) + w / 2
        t = np.where(np.abs(v) >= r, np.inf, t)
        return np.where(v >= 0, t, -t)

    return loss, inverse, ()


_CLOSED = {"norm": _normal, "laplace": _laplace, "logistic": _logistic}


def _inverse_of(loss: Callable[[Any], Any], scale: float) -> Callable[[Any], Any]:
    """Generalised inverse of an odd, non-decreasing loss, by bracketed root finding."""

    def inverse(v: Any) -> Any:
        v = np.asarray(v, dtype=float)
        w = np.abs(v).ravel()
        high = np.full_like(w, scale)
        for _ in range(600):
            short = (loss(high) <= w) & (high < 1e300)
            if not short.any():
                break
            high = np.where(short, 2 * high, high)
        never = loss(high) <= w
        root = elementwise.find_root(
            lambda t, level: loss(t) - level, (np.zeros_like(high), high), args=(np.where(never, 0.0, w),)
        ).x
        out = np.where(never, np.inf, root).reshape(v.shape)
        return np.where(v >= 0, out, -out)

    return inverse


def _gennorm(law: Any, sensitivity: float) -> tuple[Any, Any]:
    """Subbotin noise, |t|^β: the loss without SciPy's overhead; its inverse has no closed form."""
    shapes, _, scale = law.dist._parse_args(*law.args, **law.kwds)
    beta, half = float(shapes[0]), sensitivity / 2
    if beta < 1:
        raise DesignError.of("law", f"gennorm({beta:g})", "must be log-concave: beta >= 1")

    def loss(t: Any) -> Any:
        t = np.asarray(t, dtype=float)
        return np.abs((t + half) / scale) ** beta - np.abs((t - half) / scale) ** beta

    return loss, _inverse_of(loss, float(scale))


def _numeric(law: Any, sensitivity: float) -> tuple[Any, Any]:
    """Loss from ``logpdf``."""
    half = sensitivity / 2

    def loss(t: Any) -> Any:
        t = np.asarray(t, dtype=float)
        with np.errstate(invalid="ignore"):
            out = law.logpdf(t - half) - law.logpdf(t + half)
        return np.where(np.isnan(out), np.copysign(np.inf, t), out)

    return loss, _inverse_of(loss, float(law.std()))


def _check_log_concave(law: Any) -> None:
    """Refuse a law whose log density is visibly not symmetric and concave."""
    t = np.concatenate([law.isf(np.geomspace(0.49, 1e-12, 60)), [law.isf(1e-14)]])
    with np.errstate(divide="ignore"):
        f, g = law.logpdf(t), law.logpdf(-t)
    if not np.allclose(f, g, rtol=1e-9, atol=1e-9):
        raise DesignError.of("law", law.dist.name, "must be symmetric about zero")
    slope = np.diff(f) / np.diff(t)
    if np.any(np.diff(slope) > 1e-7 * np.abs(slope[1:])) or np.any(slope > 1e-9):
        raise DesignError.of(
            "law",
            law.dist.name,
            "must have a log-concave density; only then is the loss monotone and d = Δ the worst case",
        )


def centred_loss(law: Any, sensitivity: float) -> CentredLoss:
    """Return the centred privacy loss of a frozen, symmetric, log-concave law.

    Parameters
    ----------
    law : frozen scipy.stats distribution
        Continuous, symmetric about zero, log-concave.
    sensitivity : float
        Δ > 0, the largest change of the query on this coordinate.

    Returns
    -------
    CentredLoss

    Raises
    ------
    DesignError
        Sensitivity not positive and finite; the law is not symmetric, not centred or not log-concave.

    Examples
    --------
    >>> from scipy import stats
    >>> loss = centred_loss(stats.laplace(scale=2.0), 1.0)
    >>> float(loss.loss(10.0)), loss.atoms
    (0.5, (0.5,))
    """
    try:
        sensitivity = float(sensitivity)
    except (TypeError, ValueError):
        raise DesignError.of("sensitivity", sensitivity, "must be a positive, finite number") from None
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise DesignError.of("sensitivity", sensitivity, "must be a positive, finite number")
    if not hasattr(law, "dist") or not hasattr(law.dist, "_logpdf"):
        raise DesignError.of("law", law, "must be a frozen continuous scipy.stats distribution")
    shapes, loc, scale = law.dist._parse_args(*law.args, **law.kwds)
    if loc != 0:
        raise DesignError.of("law", law.dist.name, "must be centred: loc = 0")
    scale = float(scale)
    ratio = sensitivity / scale
    dist = law.dist
    edge = math.inf
    if hasattr(dist, "_unit_loss"):
        loss, inverse = _rescaled(dist, ratio, scale, shapes)
        atoms = dist._unit_atoms(ratio, *shapes)
        if hasattr(dist, "_unit_edge"):
            edge = dist._unit_edge(ratio, *shapes) * scale
    elif dist.name in _CLOSED:
        unit_loss, unit_inverse, atoms = _CLOSED[dist.name](ratio)

        def loss(t: Any) -> Any:
            return unit_loss(np.asarray(t) / scale)

        def inverse(v: Any) -> Any:
            return unit_inverse(np.asarray(v)) * scale
    elif dist.name == "gennorm":
        loss, inverse = _gennorm(law, sensitivity)
        atoms = ()
    else:
        _check_log_concave(law)
        loss, inverse = _numeric(law, sensitivity)
        atoms = ()
        top = law.support()[1]
        edge = top - sensitivity / 2 if math.isfinite(top) else math.inf
    top = float(law.support()[1])

    def sf(t: Any) -> Any:
        # The generator's own formula, without SciPy's argument checks (they dominate the time otherwise).
        t = np.asarray(t, dtype=float)
        return np.where(t >= top, 0.0, dist._sf(np.minimum(t, top) / scale, *shapes))

    kinks = [sensitivity / 2]
    if hasattr(dist, "_unit_kinks"):
        kinks = [k * scale for k in dist._unit_kinks(ratio, *(float(s) for s in shapes))]
    return CentredLoss(law, sensitivity, loss, inverse, sf, law.isf, tuple(atoms), edge, tuple(kinks))


def _rescaled(dist: Any, ratio: float, scale: float, shapes: tuple[Any, ...]) -> tuple[Any, Any]:
    shapes = tuple(float(s) for s in shapes)

    def loss(t: Any) -> Any:
        return dist._unit_loss(np.asarray(t, dtype=float) / scale, ratio, *shapes)

    def inverse(v: Any) -> Any:
        return dist._unit_inverse(np.asarray(v, dtype=float), ratio, *shapes) * scale

    return loss, inverse
