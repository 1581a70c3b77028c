r"""The centred privacy losses of SciPy's laws that have closed forms, at unit scale and distance r.

Normal, Laplace, logistic, hyperbolic secant, generalised normal and symmetrically truncated normal noise; discrete
Laplace noise by its values. Any other law of SciPy's is differenced (`mechdesign.accounting.loss`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mechdesign.accounting.inverse import inverse_of
from mechdesign.accounting.law import AtomicLoss, UnitLoss
from mechdesign.errors import DesignError

__all__ = ["CLOSED", "laplace_loss", "truncnorm_density", "truncnorm_loss"]


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
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.log(-np.expm1(-(w + r) / 2)) - np.log(-np.expm1((w - r) / 2)) + w / 2
        t = np.where(np.abs(v) >= r, np.inf, t)
        return np.where(v >= 0, t, -t)

    return UnitLoss(loss, inverse)


def _hypsecant(r: float) -> UnitLoss:
    """The log density is −log cosh t, half of what the logistic law's is at 2t."""
    twice = _logistic(2 * r)
    return UnitLoss(
        lambda t: twice.loss(2 * np.asarray(t, dtype=float)) / 2,
        lambda v: twice.inverse(2 * np.asarray(v, dtype=float)) / 2,
    )


def _gennorm(r: float, beta: float) -> UnitLoss:
    """Subbotin noise, |t|^β: the loss without SciPy's overhead; its inverse has no closed form."""
    if beta < 1:
        raise DesignError.of("law", f"gennorm({beta:g})", "must be log-concave: beta >= 1")
    if beta == 1:
        return laplace_loss(r)

    def loss(t: Any) -> Any:
        t = np.asarray(t, dtype=float)
        return np.abs(t + r / 2) ** beta - np.abs(t - r / 2) ** beta

    return UnitLoss(loss, inverse_of(loss, 1.0))


def truncnorm_loss(r: float, end: float) -> UnitLoss:
    """The normal loss r·t where both densities are positive, infinite beyond.

    Examples
    --------
    >>> loss = truncnorm_loss(0.5, 3.0)
    >>> loss.edge, loss.loss(np.array([1.0, 2.8])).tolist(), loss.inverse(np.array([0.5, 9.0])).tolist()
    (2.75, [0.5, inf], [1.0, 2.75])
    """
    edge = end - r / 2

    def loss(t: Any) -> Any:
        t = np.asarray(t, dtype=float)
        # what rounding has put a hair beyond the edge belongs to it
        return np.where(np.abs(t) <= edge * (1 + 1e-15), r * t, np.copysign(np.inf, t))

    return UnitLoss(
        loss, lambda v: np.clip(np.asarray(v, dtype=float) / r, -edge, edge), edge=edge, reach=math.inf
    )


def truncnorm_density(end: float) -> Callable[[Any], Any]:
    """The log density of normal noise on [−end, end], without SciPy's overhead, which is twenty times the work."""
    peak = -math.log(math.sqrt(2 * math.pi) * math.erf(end / math.sqrt(2)))
    return lambda t: np.where(np.abs(t) <= end, peak - t * t / 2, -np.inf)


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


CLOSED: dict[str, Callable[..., UnitLoss | AtomicLoss]] = {
    "norm": _normal,
    "laplace": laplace_loss,
    "logistic": _logistic,
    "hypsecant": _hypsecant,
    "gennorm": _gennorm,
    "dlaplace": _discrete_laplace,
}
"""By the generator's name. Truncated normal noise is not among them: its tail is summed, and tells whether it is symmetric."""
