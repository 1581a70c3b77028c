r"""δ(ε) of one coordinate, enclosed by closed forms in high precision.

For a symmetric log-concave law with survival function Ḡ, half distance h = Δ/2 and centred loss :math:`\tilde\zeta`,

.. math:: F(x) = \bar G(x - h) - e^{\varepsilon}\,\bar G(x + h) \le \delta(\varepsilon)
          \le F(x) + [\bar G(a - h) - \bar G(b - h)]\,
          \max(1 - e^{\varepsilon - \tilde\zeta(b)},\; e^{\varepsilon - \tilde\zeta(a)} - 1)

for every x in [a, b] if :math:`\tilde\zeta(a) \le \varepsilon \le \tilde\zeta(b)`: the event {t > x} bounds δ from below,
and what it misses lies between x and the crossing. So a crossing that is known to 1e-13 gives δ to about 1e-26 with no
error estimate. The parameters are doubles, taken as exact; the digits are doubled until cancellation leaves twenty of
them, and the ends are rounded outwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from mpmath import MPContext

from mechdesign.accounting.losses import (
    CentredLoss,
    Loss,
    NoiseLaw,
    PreciseLoss,
    TailForm,
    frozen_parts,
    of_scipy,
)
from mechdesign.accounting.terms import Coordinates
from mechdesign.evidence.rounding import round_up

__all__ = ["enclosed_delta", "enclosed_gaussian", "largest_loss"]

_GUARD = 15  # digits that mpmath's functions and our sums may lose
_KEPT = 20  # digits of δ that must be left
_SHIFTS = 10_000  # values of a discrete loss that are summed


@lru_cache(maxsize=8)
def _digits(digits: int) -> Any:
    """A context of its own: mpmath's global one is not ours to change."""
    context = MPContext()
    context.dps = digits
    return context


def _half_erfc(c: Any, x: Any) -> Any:
    return c.erfc(x / c.sqrt(2)) / 2


def _gennorm(c: Any, p: Any) -> TailForm:
    if p == 1:
        return TailForm(lambda u: -u, lambda u: c.exp(-u) / 2, slope=1)
    return TailForm(lambda u: -(u**p), lambda u: c.gammainc(1 / p, u**p, c.inf, regularized=True) / 2)


def _truncnorm(c: Any, low: Any, high: Any) -> TailForm | None:
    if low != -high:
        return None
    beyond = _half_erfc(c, high)
    return TailForm(lambda u: -u * u / 2, lambda u: (_half_erfc(c, u) - beyond) / (1 - 2 * beyond), end=high)


def _discrete_laplace(c: Any, rate: Any) -> PreciseLoss:
    """Loss rate·(Δ + 2k) where −Δ < k < 0, and rate·Δ from k = 0 on."""

    def delta(ratio: Any, epsilon: Any) -> Any:
        shift = int(ratio)
        if shift > _SHIFTS:
            return None
        total = max(0, 1 - c.exp(epsilon - rate * shift)) / (1 + c.exp(-rate))
        for k in range(1, shift):
            value = rate * (shift - 2 * k)
            if value <= epsilon:
                break
            total += c.tanh(rate / 2) * c.exp(-rate * k) * (1 - c.exp(epsilon - value))
        return total

    return PreciseLoss(delta, lambda ratio: Fraction(float(rate)) * ratio)


Form = TailForm | PreciseLoss | None
_SCIPY: dict[str, Callable[..., Form]] = {
    "norm": lambda c: TailForm(lambda u: -u * u / 2, lambda u: _half_erfc(c, u)),
    "laplace": lambda c: _gennorm(c, 1),
    "logistic": lambda c: TailForm(
        lambda u: -u - 2 * c.log1p(c.exp(-u)), lambda u: 1 / (1 + c.exp(u)), slope=1
    ),
    "hypsecant": lambda c: TailForm(
        lambda u: -u - c.log1p(c.exp(-2 * u)), lambda u: 2 / c.pi * c.atan(c.exp(-u)), slope=1
    ),
    "gennorm": _gennorm,
    "truncnorm": _truncnorm,
    "dlaplace": _discrete_laplace,
}


def _form_of(dist: Any, shapes: tuple[float, ...]) -> Callable[[Any], Form]:
    """The form of a law in a given precision."""
    make: Callable[..., Form] = (
        dist.precise if isinstance(dist, NoiseLaw) else _SCIPY.get(of_scipy(dist), lambda c, *_: None)
    )
    return lambda c: make(c, *map(c.mpf, shapes))


def enclosed_gaussian(epsilon: float, coordinates: list[Coordinates]) -> tuple[float, float]:
    """Enclose δ(ε) of Gaussian noise.

    Examples
    --------
    >>> lower, upper = enclosed_gaussian(1.0, [(1, 1.0, 1.0, 1)])
    >>> round(lower, 6), (upper - lower) / upper < 1e-15
    (0.126937, True)
    """

    def terms(c: Any) -> tuple[Any, Any, Any]:
        mu = c.sqrt(c.fsum(n * h * (c.mpf(d) / c.mpf(s)) ** 2 for n, d, s, h in coordinates))
        e = c.mpf(epsilon)
        a, b = e / mu - mu / 2, e / mu + mu / 2
        if abs(a) > 1e6:  # either term is within 10^-1000 of its limit, and mpmath's erfc may overflow
            tiny, none = c.mpf("1e-1000"), c.mpf(0)
            return (tiny, none, none) if a > 0 else (c.mpf(1), tiny, tiny)
        return _half_erfc(c, a), c.exp(e) * _half_erfc(c, b), c.mpf(0)

    return _enclosed(terms)


def enclosed_delta(law: Any, sensitivity: float, epsilon: float, loss: Loss) -> tuple[float, float] | None:
    """Enclose δ(ε) of one coordinate; None for a law without a closed form in high precision.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.accounting.losses import loss_of
    >>> law = stats.laplace(scale=1.0)
    >>> lower, upper = enclosed_delta(law, 1.0, 0.5, loss_of(law, 1.0))
    >>> lower <= -math.expm1(-0.25) <= upper, (upper - lower) / upper < 1e-15
    (True, True)
    """
    dist, shapes, _, scale = frozen_parts(law)
    form_in, few = _form_of(dist, shapes), _digits(30)

    def ratio(c: Any) -> Any:
        return c.mpf(float(sensitivity)) / c.mpf(scale)

    def terms(c: Any) -> tuple[Any, Any, Any]:
        form = form_in(c)
        if isinstance(form, TailForm):
            return _tail_terms(c, form, ratio(c), c.mpf(epsilon), start)
        assert form is not None
        return form.delta(ratio(c), c.mpf(epsilon)), c.mpf(0), c.mpf(0)

    known = form_in(few)
    if known is None or (
        isinstance(known, PreciseLoss) and known.delta(ratio(few), few.mpf(epsilon)) is None
    ):
        return None
    start = float(loss.inverse(epsilon)) / scale if isinstance(loss, CentredLoss) else math.nan
    return _enclosed(terms)


def largest_loss(law: Any, sensitivity: float, count: int = 1) -> float | None:
    """The supremum of the privacy loss over `count` coordinates, rounded up; None where no closed form says it.

    Examples
    --------
    >>> from scipy import stats
    >>> largest_loss(stats.laplace(scale=3.0), 1.0) >= Fraction(1, 3)
    True
    """
    dist, shapes, _, scale = frozen_parts(law)
    distance = Fraction(float(sensitivity)) / Fraction(scale)
    form = _form_of(dist, shapes)(_digits(30))
    if isinstance(form, TailForm):
        largest: Any = math.inf if form.slope is None else form.slope * distance
    else:
        largest = None if form is None else form.largest(distance)
    return largest if largest in (None, math.inf) else round_up(count * largest)


def _tail_terms(c: Any, form: TailForm, ratio: Any, epsilon: Any, start: float) -> tuple[Any, Any, Any]:
    """The two terms of F at a point beside the crossing, and what F may miss."""
    half, none = ratio / 2, c.mpf(0)

    def loss(t: Any) -> Any:
        if form.end is not None and t + half > form.end:
            return c.inf
        return form.log_density(abs(t - half)) - form.log_density(t + half)

    def survival(t: Any) -> Any:
        if form.end is not None and abs(t) >= form.end:
            return none if t > 0 else none + 1
        return form.upper(t) if t >= 0 else 1 - form.upper(-t)

    if form.slope is not None and epsilon >= form.slope * ratio:
        return none, none, none
    if form.end is not None and (form.end <= half or loss(form.end - half) <= epsilon):
        return survival(form.end - ratio), none, none
    a, b = _crossing(c, loss, half, epsilon, start, form)
    if loss(b) < epsilon:
        return none, none, survival(b - half)
    x = (a + b) / 2
    missed = max(1 - c.exp(epsilon - loss(b)), c.exp(epsilon - loss(a)) - 1)
    room = (survival(a - half) - survival(b - half)) * missed
    return survival(x - half), c.exp(epsilon) * survival(x + half), room


def _crossing(
    c: Any, loss: Callable[[Any], Any], half: Any, epsilon: Any, start: float, form: TailForm
) -> tuple[Any, Any]:
    """Points around the one at which the loss passes ε: beside `start`, else by bisection; or so far that no double sees."""
    if math.isfinite(start):
        x = c.mpf(max(start, 0.0))
        near = (x + half) * c.mpf("1e-13")
        a, b = max(x - near, c.mpf(0)), x + near
        if loss(a) <= epsilon <= loss(b):
            return a, b
    a, b = c.mpf(0), half + 1
    while loss(b) < epsilon:
        if form.upper(b - half) < c.mpf("1e-330"):
            return a, b
        a, b = b, 2 * b
    while b - a > (b + half) * c.mpf("1e-14"):
        middle = (a + b) / 2
        a, b = (middle, b) if loss(middle) <= epsilon else (a, middle)
    return a, b


def _enclosed(terms: Callable[[Any], tuple[Any, Any, Any]]) -> tuple[float, float]:
    """Round first − second ± errors outwards, with as many digits as cancellation takes."""
    digits = 50
    while True:
        c = _digits(digits)
        first, second, room = terms(c)
        found = first - second
        error = (abs(first) + abs(second)) * c.mpf(10) ** (_GUARD - digits)
        if error <= abs(found) * c.mpf(10) ** -_KEPT or abs(first) < c.mpf("1e-310") or digits > 1500:
            break
        digits *= 2
    lower, upper = float(found - error), float(found + room + error)
    lower = math.nextafter(lower, 0.0) if lower > 0 else 0.0
    return lower, min(math.nextafter(upper, 1.0), 1.0) if upper > 0 or first or second or room else 0.0
