r"""The exact privacy profile of one coordinate.

For every symmetric log-concave density, with Ḡ its survival function and
:math:`x = \tilde\zeta^{-1}(\varepsilon)` the point at which the centred loss passes ε,

.. math:: \delta(\varepsilon) = \bar G(x - \Delta/2) - e^{\varepsilon}\,\bar G(x + \Delta/2)

is necessary and sufficient (Muthukrishnan and Kalyani, Theorem 6 and Lemma 8; Vinterbo 2022). Where the two
terms nearly cancel, the same δ is integrated as
:math:`\int_x^\infty g(t-\Delta/2)\,(1 - e^{\varepsilon - \tilde\zeta(t)})\,dt`, a positive integrand.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import optimize

from mechdesign.accounting.enclosure import enclosed_delta, largest_loss
from mechdesign.accounting.gaussian import gaussian_profile
from mechdesign.accounting.log_concave import panel_integrals
from mechdesign.accounting.losses import AtomicLoss, CentredLoss, Loss, loss_of
from mechdesign.evidence.rounding import excess, safe_root
from mechdesign.problem.checks import levels, probability
from mechdesign.typing import Array

__all__ = ["fast_profile", "integrated_profile", "privacy_profile", "profile_epsilon", "profile_interval"]

_RELATIVE = 1e-9
"""Relative error allowed to survival functions and quadratures: they reach 1e-12."""
_UNIT = 2.0**-53
_FAR = 1e6
"""Losses that are as good as infinite."""


def _integrated(loss: CentredLoss, x: float, epsilon: float) -> float:
    """The positive form, on panels that halve the survival probability first and then reach as far as it takes."""
    half = loss.sensitivity / 2
    top = float(loss.sf(x - half))

    def gain(t: Array) -> Array:
        with np.errstate(all="ignore"):
            return loss.law.pdf(t - half) * -np.expm1(np.minimum(epsilon - loss.loss(t), 0.0))

    value, start, levels = 0.0, x, np.concatenate([[0.7, 0.4, 0.2], 10.0 ** -np.arange(1.0, 19.0)])
    while True:
        reached = np.asarray(loss.isf(np.maximum(top * levels, 1e-305)), dtype=float) + half
        edges = np.clip(np.concatenate([[start], reached]), start, max(loss.edge, start))
        kinks = [k for k in loss.kinks if start < k < edges.max()]
        value += float(np.sum(panel_integrals(gain, np.concatenate([edges, kinks]))[1]))
        start, left = float(edges.max()), top * levels[-1]
        if left <= 1e-17 * value or left <= 1e-305 or start >= loss.edge:
            break
        levels = levels[-1] * 10.0 ** -np.arange(1.0, 19.0)
    return value + (float(loss.sf(loss.edge - half)) if math.isfinite(loss.edge) else 0.0)


def profile_interval(law: Any, sensitivity: float, epsilon: float) -> tuple[float, float]:
    """Enclose δ(ε) of one coordinate.

    The loss is a double, off by a few units in the last place of what it is the difference of; a true loss within η of
    it puts δ(ε) between the computed δ(ε + η) and δ(ε − η). The rest is relative.

    Examples
    --------
    >>> from scipy import stats
    >>> lower, upper = profile_interval(stats.laplace(scale=1.0), 1.0, 0.5)
    >>> lower < 1 - math.exp(-0.25) < upper < lower * (1 + 1e-8)
    True
    """
    loss = loss_of(law, sensitivity)
    off = 6 * _UNIT * epsilon
    if isinstance(loss, CentredLoss) and not any(abs(a - epsilon) <= 0.05 * epsilon for a in loss.atoms):
        # Away from atoms, which are products, the loss is a difference of logarithms as large as the tail is deep.
        half = loss.sensitivity / 2
        x = float(np.clip(loss.inverse(np.array(epsilon)), 0.0, max(loss.edge, 0.0)))
        x = min(x, float(loss.isf(1e-300)))
        with np.errstate(all="ignore"):
            depth = law.logpdf(np.array([x - half, x + half])) - law.logpdf(0.0)
        off += 8 * _UNIT * (1 + float(np.sum(np.abs(depth[np.isfinite(depth)]))))
    around = np.array([epsilon + off, max(epsilon - off, 0.0)])
    if isinstance(loss, AtomicLoss):
        lower, upper = float(loss.delta(around[0])), float(loss.delta(around[1]))
    else:
        lower, upper = _log_concave(loss, around, cancelled=1e-3).tolist()
    error = _RELATIVE + (loss.end_error if isinstance(loss, CentredLoss) else 0.0)
    return max(lower * (1 - error) - 1e-290, 0.0), min(upper * (1 + error) + 1e-290, 1.0)


def privacy_profile(law: Any, sensitivity: float, epsilon: Any) -> Any:
    r"""Return δ(ε) of one coordinate, rounded up.

    Parameters
    ----------
    law : frozen scipy.stats distribution
        Symmetric and log-concave, or one with finitely many loss values (staircase, discrete).
    sensitivity : float
        Δ > 0.
    epsilon : float or ndarray
        ε ≥ 0.

    Returns
    -------
    float or ndarray
        δ in [0, 1], from above: off by units in the last place where the law has closed forms in high precision, by the
        relative 1e-9 of `profile_interval` elsewhere.

    Raises
    ------
    DesignError
        Bad sensitivity or ε, or a law the formula does not hold for.

    Examples
    --------
    >>> from scipy import stats
    >>> round(privacy_profile(stats.laplace(scale=1.0), 1.0, 0.5), 6)   # 1 - exp((0.5 - 1)/2)
    0.221199
    """
    e = levels("epsilon", epsilon)
    loss = loss_of(law, sensitivity)
    out = np.array([_upper(law, sensitivity, float(each), loss) for each in e.ravel()]).reshape(e.shape)
    return float(out) if out.ndim == 0 else out


def _upper(law: Any, sensitivity: float, epsilon: float, loss: Loss) -> float:
    if math.isinf(epsilon) and isinstance(loss, CentredLoss) and math.isinf(loss.edge):
        return 0.0
    found = enclosed_delta(law, sensitivity, min(epsilon, _FAR), loss)
    return (profile_interval(law, sensitivity, min(epsilon, _FAR)) if found is None else found)[1]


def fast_profile(law: Any, sensitivity: float, epsilon: Any) -> Any:
    """Return δ(ε) of one coordinate in doubles, to search with: off by rounding in either direction.

    Parameters
    ----------
    law, sensitivity, epsilon
        As in `privacy_profile`.

    Examples
    --------
    >>> from scipy import stats
    >>> round(fast_profile(stats.laplace(scale=1.0), 1.0, 0.5), 6)
    0.221199
    """
    e = levels("epsilon", epsilon)
    loss = loss_of(law, sensitivity)
    if law.dist.name == "norm":
        return gaussian_profile(epsilon, float(sensitivity) / law.std())
    if isinstance(loss, AtomicLoss):
        out = np.asarray(loss.delta(e))
    else:
        out = _log_concave(loss, e.ravel()).reshape(e.shape)
    out = np.clip(out, 0.0, 1.0)
    return float(out) if out.ndim == 0 else out


def _log_concave(loss: CentredLoss, e: Array, *, cancelled: float = 1e-7) -> Array:
    """δ by the formula, integrated where less than the share `cancelled` of its first term is left."""
    half = loss.sensitivity / 2
    if loss.edge <= 0:  # the two laws share no point
        return np.ones_like(e)
    x = np.minimum(np.asarray(loss.inverse(e), dtype=float), loss.edge)
    x = np.maximum(x, -loss.edge)
    never = np.isposinf(x)
    x0 = np.where(never, 0.0, x)
    upper = loss.sf(x0 - half)
    with np.errstate(over="ignore", invalid="ignore"):
        lower = np.exp(e) * loss.sf(x0 + half)
    out = upper - np.where(np.isfinite(lower), lower, 0.0)
    cancels = ~never & ((out < cancelled * upper) | ~np.isfinite(lower)) & (upper > 0)
    for i in np.flatnonzero(cancels):
        out[i] = _integrated(loss, float(x0[i]), float(e[i]))
    return np.where(never, 0.0, out)


def integrated_profile(law: Any, sensitivity: float, epsilon: float) -> float:
    r"""Return δ(ε) of one coordinate by quadrature of :math:`[g(t - \Delta/2) - e^\varepsilon g(t + \Delta/2)]_+`.

    A second opinion: the crossing is found by bisection on the law's own ``logpdf`` and nothing is taken from the
    survival function, so an error in a closed form shows.

    Examples
    --------
    >>> from scipy import stats
    >>> round(integrated_profile(stats.laplace(scale=1.0), 1.0, 0.5), 6)
    0.221199
    """
    loss = loss_of(law, sensitivity)
    if isinstance(loss, AtomicLoss):
        return float(loss.delta(np.asarray(epsilon)))
    half = loss.sensitivity / 2
    far = min(float(loss.isf(1e-300)) + half, loss.edge)

    def above(t: float) -> float:
        with np.errstate(invalid="ignore"):
            value = float(law.logpdf(t - half) - law.logpdf(t + half))
        return (value if math.isfinite(value) else math.copysign(1e300, t)) - epsilon

    low = max(-far, -loss.edge)
    if far <= low:
        return 1.0
    if above(far) <= 0:
        return float(loss.sf(loss.edge - half)) if math.isfinite(loss.edge) else 0.0
    x = low if above(low) > 0 else float(optimize.bisect(above, low, far, xtol=1e-300, maxiter=400))
    return _integrated(loss, x, epsilon)


def profile_epsilon(law: Any, sensitivity: float, delta: float) -> float:
    r"""Return the least ε ≥ 0 with δ(ε) ≤ `delta` for one coordinate, rounded up.

    Parameters
    ----------
    law, sensitivity
        As in `profile`.
    delta : float
        δ in [0, 1).

    Returns
    -------
    float
        ``inf`` when no finite ε will do.

    Raises
    ------
    DesignError
        δ outside [0, 1).

    Examples
    --------
    >>> from scipy import stats
    >>> round(profile_epsilon(stats.laplace(scale=2.0), 1.0, 0.0), 9)
    0.5
    """
    delta = probability("delta", delta, below_one=True)
    if privacy_profile(law, sensitivity, 0.0) <= delta:
        return 0.0
    if delta == 0:
        return _largest_loss(law, sensitivity)
    low, high = 0.0, 1.0

    def over(epsilon: float) -> float:
        return excess(fast_profile(law, sensitivity, epsilon), delta)

    while over(high) > 0:
        low, high = high, 2 * high
        if high > _FAR:
            return math.inf
    if over(0.0) > 0:
        found = safe_root(over, low, high, xtol=1e-14, rtol=1e-14)
    else:
        found = 0.0
    # The doubles may be wrong beside the end of a bounded loss, where δ is a difference of nearly equal numbers.
    step = max(found * 2 * _UNIT, 1e-16)
    while privacy_profile(law, sensitivity, found) > delta:
        found, step = found + step, 4 * step
        if found > _FAR:
            return math.inf
    return found


def _largest_loss(law: Any, sensitivity: float) -> float:
    """The supremum of the privacy loss (δ = 0), infinite for Gaussian-like or bounded noise."""
    loss = loss_of(law, sensitivity)
    if (known := largest_loss(law, sensitivity)) is not None:
        return known
    if isinstance(loss, AtomicLoss):
        return math.inf if loss.infinity > 0 else float(loss.values.max())
    if math.isfinite(loss.edge):
        return math.inf
    far, further = float(loss.loss(loss.reach / 10)), float(loss.loss(loss.reach))
    # Far out a bounded loss has settled; what it may still gain is less than it gained last.
    grown = further - far
    return math.inf if grown > 1e-9 * further else (further + grown) * (1 + 1e-15)
