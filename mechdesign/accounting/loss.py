r"""The centred privacy loss of a symmetric log-concave law.

For noise with density g and two queries Δ apart, look at the output from their midpoint: the loss

.. math:: \tilde\zeta(t) = \log g(t - \Delta/2) - \log g(t + \Delta/2)

is odd and, when g is symmetric and log-concave, non-decreasing. Everything exact in this package about a
single coordinate comes from that function and its inverse
:math:`\tilde\zeta^{-1}(\nu) = \sup\{t : \tilde\zeta(t) \le \nu\}`.

A law of this package brings its own closed form (it is a `mechdesign.accounting.law.NoiseLaw`); for SciPy's normal,
Laplace, logistic and generalised normal laws they are here; any other frozen symmetric log-concave law is
differenced and inverted numerically.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import elementwise

from mechdesign.accounting.law import AtomicLoss, NoiseLaw, UnitLoss
from mechdesign.accounting.tail import Tail
from mechdesign.errors import DesignError
from mechdesign.problem.checks import UP, positive

__all__ = [
    "CentredLoss",
    "Loss",
    "cell_masses",
    "centred_loss",
    "frozen_parts",
    "laplace_loss",
    "loss_of",
    "of_scipy",
]


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
    reach : float
        How far out the loss can be evaluated.
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
    reach: float = 1e7

    @property
    def end_error(self) -> float:
        """Relative error of the mass beyond the edge, a piece as long as Δ of a support known to an ulp of its end."""
        if math.isinf(self.edge) or self.edge <= 0:
            return 0.0
        return 1e-15 * (self.edge + self.sensitivity / 2) / self.sensitivity

    def masses(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Mass of each cell (x_i, x_{i+1}] under both queries, with bounds on their rounding errors.

        Returns
        -------
        p, q, p_error, q_error : ndarray, shape (len(x) - 1,)
            `p` under g(t − Δ/2), the query whose loss is looked at, `q` under g(t + Δ/2).
        """
        half = self.sensitivity / 2
        p, p_error = cell_masses(self.sf, x - half)
        q, q_error = cell_masses(self.sf, x + half)
        return p, q, p_error, q_error


_ULPS = 4e-15
"""Relative error allowed to a survival function, per unit of 1 − log of its value (≈ 20 ulps, and an
exponential of a rounded argument beyond)."""


def cell_masses(sf: Callable[[Any], Any], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(x_i < T ≤ x_{i+1}) of a symmetric law, and bounds on the rounding errors."""
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


def _normal(r: float) -> UnitLoss:
    return UnitLoss(lambda t: r * t, lambda v: v / r)


def laplace_loss(r: float) -> UnitLoss:
    """The loss of Laplace noise, 2t cut off at ±r: all of it beyond r/2 is one atom."""

    def inverse(v: Any) -> Any:
        v = np.asarray(v, dtype=float)
        return np.where(v >= r, np.inf, np.where(v < -r, -np.inf, v / 2))

    return UnitLoss(lambda t: np.clip(2 * np.asarray(t, dtype=float), -r, r), inverse, (r,))


def _logistic(r: float) -> UnitLoss:
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

    return UnitLoss(loss, inverse)


def _gennorm(r: float, beta: float) -> UnitLoss:
    """Subbotin noise, |t|^β: the loss without SciPy's overhead; its inverse has no closed form."""
    if beta < 1:
        raise DesignError.of("law", f"gennorm({beta:g})", "must be log-concave: beta >= 1")
    if beta == 1:
        return laplace_loss(r)

    def loss(t: Any) -> Any:
        t = np.asarray(t, dtype=float)
        return np.abs(t + r / 2) ** beta - np.abs(t - r / 2) ** beta

    return UnitLoss(loss, _inverse_of(loss, 1.0))


def _discrete_laplace(r: float, rate: float) -> AtomicLoss:
    """Loss rate·(|k + Δ| − |k|): −rΔ, then steps of 2r, up to rΔ."""
    if not (r >= 1 and r == int(r)):
        raise DesignError.of("sensitivity", r, "must be a positive whole number for discrete noise")
    shift = int(r)
    k = np.arange(-shift + 1, 0)
    peak = math.tanh(rate / 2)
    tail = 1 / (1 + math.exp(-rate))  # P(K >= 0)
    inner = peak * np.exp(rate * k)
    values = np.concatenate([[-rate * shift], rate * (shift + 2 * k), [rate * shift]])
    return AtomicLoss(values, np.concatenate([[tail * math.exp(-rate * shift)], inner, [tail]]))


_CLOSED: dict[str, Callable[..., UnitLoss | AtomicLoss]] = {
    "norm": _normal,
    "laplace": laplace_loss,
    "logistic": _logistic,
    "gennorm": _gennorm,
    "dlaplace": _discrete_laplace,
}


_MESH = 256  # points of the mesh that brackets many roots
_OFF = 1e-14
"""How far a loss of a grid may be off, which the grid adds: below it the loss is rounding far out, and bisected in vain."""


def _inverse_of(loss: Callable[[Any], Any], scale: float, edge: float = math.inf) -> Callable[[Any], Any]:
    """Generalised inverse of an odd, non-decreasing loss, infinite beyond `edge`, by bracketed root finding."""
    last = edge * (1 - 8 * np.finfo(float).eps)
    jump = float(loss(last)) if 0 < edge < math.inf else math.inf

    def inverse(v: Any) -> Any:
        v = np.asarray(v, dtype=float)
        w = np.abs(v).ravel()
        beyond = w >= jump
        if beyond.all():
            return np.where(v >= 0, edge, -edge)
        most = last if jump < math.inf else math.inf
        high = np.full_like(w, min(scale, most))
        for _ in range(600):
            short = (loss(high) <= w) & (high < min(most, 1e300)) & ~beyond
            if not short.any():
                break
            high = np.where(short, np.minimum(2 * high, most), high)
        never = (loss(high) <= w) | beyond
        w, low = np.where(never, 0.0, w), np.zeros_like(high)
        if w.size > _MESH:  # many roots: a mesh that all share leaves little of each bracket
            end = float(high[~never].max(initial=scale))
            mesh = np.append(np.linspace(0.0, end, _MESH), np.geomspace(end * 1e-9, end, _MESH))
            mesh.sort()
            reached = np.maximum.accumulate(loss(mesh))
            cell = np.searchsorted(reached, w, side="right")
            low, high = mesh[cell - 1], mesh[np.minimum(cell, mesh.size - 1)]
        with np.errstate(invalid="ignore"):  # beyond a support's end the loss is infinite
            root = elementwise.find_root(
                lambda t, level: loss(t) - level,
                (low, high),
                args=(w,),
                tolerances={"fatol": _OFF} if w.size > 1 else None,
            ).x
        out = np.where(never, np.where(beyond, edge, np.inf), root).reshape(v.shape)
        return np.where(v >= 0, out, -out)

    return inverse


@lru_cache(maxsize=64)
def _unit_law(dist: Any, shapes: tuple[float, ...]) -> tuple[Any, Tail, float, float]:
    """The law of scale one, its tail, the end of its support or of what doubles see of it, and its standard deviation."""
    law = dist(*shapes)
    top = float(law.support()[1])
    return law, Tail(law.logpdf, top, dist.name), _seen(law, top), float(law.std())


def _seen(law: Any, top: float) -> float:
    """Where the density ends, or has no logarithm in doubles any more."""
    low, high = 0.0, min(1.0, top)
    with np.errstate(all="ignore"):
        while high < top and np.isfinite(law.logpdf(high)):
            if high > 1e300:
                return math.inf
            low, high = high, min(2 * high, top)
        if high == top:
            return top
        while low < (middle := low / 2 + high / 2) < high:
            low, high = (middle, high) if np.isfinite(law.logpdf(middle)) else (low, middle)
    return low


def _numeric(dist: Any, r: float, shapes: tuple[float, ...]) -> tuple[UnitLoss, Tail]:
    """Loss and tail from ``logpdf`` alone."""
    # Every frozen law has a generator of its own; SciPy's are alike, so that one tail does for all.
    law, tail, seen, deviation = _unit_law(getattr(stats, of_scipy(dist) or "", dist), shapes)
    top = float(law.support()[1])

    def log_density(t: Any) -> Any:
        # what rounding has put a hair beyond the end of the support belongs to it
        return law.logpdf(np.where(np.abs(t) <= top * (1 + 1e-15), np.clip(t, -top, top), t))

    def loss(t: Any) -> Any:
        t = np.asarray(t, dtype=float)
        with np.errstate(all="ignore"):
            out = log_density(t - r / 2) - log_density(t + r / 2)
        return np.where(np.isnan(out), np.copysign(np.inf, t), out)

    reach = tail.reach if math.isinf(top) else math.inf
    return UnitLoss(loss, _inverse_of(loss, deviation, seen - r / 2), edge=top - r / 2, reach=reach), tail


def frozen_parts(law: Any) -> tuple[Any, tuple[float, ...], float, float]:
    """Return generator, shapes, loc and scale of a frozen `scipy.stats` law.

    Raises
    ------
    DesignError
        Something else, or a law with arrays for parameters.
    """
    try:
        dist = law.dist
        shapes, loc, scale = dist._parse_args(*law.args, **law.kwds)
        return dist, tuple(float(s) for s in shapes), float(loc), float(scale)
    except (AttributeError, TypeError, ValueError):
        raise DesignError.of("law", law, "must be a frozen scipy.stats distribution") from None


def of_scipy(dist: Any) -> str:
    """The name of one of SciPy's own generators, else "": another law may have the same name."""
    own = getattr(stats, str(dist.name), None)
    return str(dist.name) if own is not None and type(dist) is type(own) else ""


Loss = CentredLoss | AtomicLoss


def loss_of(law: Any, sensitivity: float) -> Loss:
    """Return the privacy loss of a frozen law at `sensitivity`: with finitely many values, or as a function."""
    delta = positive("sensitivity", sensitivity, side=UP)
    dist, shapes, loc, scale = frozen_parts(law)
    if loc != 0:
        raise DesignError.of("law", dist.name, "must be centred: loc = 0")
    ratio = delta / scale
    top = float(law.support()[1])
    if isinstance(dist, NoiseLaw):
        unit = dist.privacy_loss(ratio, *shapes)
    elif of_scipy(dist) in _CLOSED:
        unit = _CLOSED[dist.name](ratio, *shapes)
    elif isinstance(dist, stats.rv_continuous):
        unit, tail = _numeric(dist, ratio, shapes)
        return _centred(law, delta, unit, scale, lambda t: tail.sf(t / scale), lambda s: tail.isf(s) * scale)
    else:
        raise DesignError.of("law", dist.name, "must be continuous, or a discrete law this package knows")
    if isinstance(unit, AtomicLoss):
        return unit

    def sf(t: Any) -> Any:
        # The generator's own formula, without SciPy's argument checks (they dominate the time otherwise).
        t = np.asarray(t, dtype=float)
        return np.where(t >= top, 0.0, dist._sf(np.minimum(t, top) / scale, *shapes))

    return _centred(law, delta, unit, scale, sf, law.isf)


def _centred(
    law: Any,
    sensitivity: float,
    unit: UnitLoss,
    scale: float,
    sf: Callable[[Any], Any],
    isf: Callable[[Any], Any],
) -> CentredLoss:
    """Bring a loss of unit scale to the law's own."""
    return CentredLoss(
        law,
        sensitivity,
        lambda t: unit.loss(np.asarray(t, dtype=float) / scale),
        lambda v: unit.inverse(np.asarray(v, dtype=float)) * scale,
        sf,
        isf,
        unit.atoms,
        unit.edge * scale,
        tuple(k * scale for k in (unit.kinks or (sensitivity / scale / 2,))),
        unit.reach * scale,
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
    loss = loss_of(law, sensitivity)
    if isinstance(loss, AtomicLoss):
        raise DesignError.of("law", law.dist.name, "must be continuous and log-concave")
    return loss
