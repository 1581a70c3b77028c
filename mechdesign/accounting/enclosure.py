r"""δ(ε) of one coordinate, enclosed by closed forms in high precision.

For a symmetric log-concave law with survival function Ḡ, half distance h = Δ/2 and centred loss :math:`\tilde\zeta`,

.. math:: F(x) = \bar G(x - h) - e^{\varepsilon}\,\bar G(x + h) \le \delta(\varepsilon)
          \le F(x) + [\bar G(a - h) - \bar G(b - h)]\,
          \max(1 - e^{\varepsilon - \tilde\zeta(b)},\; e^{\varepsilon - \tilde\zeta(a)} - 1)

for every x in [a, b] if :math:`\tilde\zeta(a) \le \varepsilon \le \tilde\zeta(b)`: the event {t > x} bounds δ from below,
and what it misses lies between x and the crossing. So a crossing that is known to 1e-13 gives δ to about 1e-26 with no
error estimate. The parameters are doubles, taken as exact; everything is computed in balls (Johansson 2017, *Arb*), which
hold the true number whatever is rounded, with digits that are doubled until cancellation leaves twenty of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from flint import arb, ctx

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

_KEPT = 20  # digits of δ that must be left
_MOST = 1500  # digits that are tried
_SHIFTS = 10_000  # values of a discrete loss that are summed


def _half_erfc(x: arb) -> arb:
    return (x / arb(2).sqrt()).erfc() / 2


def _power(u: arb, p: arb) -> arb:
    return arb(0) if u == 0 else u**p


def _gennorm(p: arb) -> TailForm:
    if p == 1:
        return TailForm(lambda u: -u, lambda u: (-u).exp() / 2, slope=1)
    return TailForm(lambda u: -_power(u, p), lambda u: _power(u, p).gamma_upper(1 / p, regularized=1) / 2)


def _truncnorm(low: arb, high: arb) -> TailForm | None:
    if low != -high:
        return None
    beyond = _half_erfc(high)
    return TailForm(lambda u: -u * u / 2, lambda u: (_half_erfc(u) - beyond) / (1 - 2 * beyond), end=high)


def _discrete_laplace(rate: arb) -> PreciseLoss:
    """Loss rate·(Δ + 2k) where −Δ < k < 0, and rate·Δ from k = 0 on."""

    def delta(ratio: arb, epsilon: arb) -> arb | None:
        shift = int(float(ratio))
        if shift > _SHIFTS:
            return None
        total = (1 - (epsilon - rate * shift).exp()).nonnegative_part() / (1 + (-rate).exp())
        for k in range(1, shift):
            value = rate * (shift - 2 * k)
            if value <= epsilon:
                break
            gain = (1 - (epsilon - value).exp()).nonnegative_part()
            total += (rate / 2).tanh() * (-rate * k).exp() * gain
        return total

    return PreciseLoss(delta, lambda ratio: Fraction(float(rate)) * ratio)


Form = TailForm | PreciseLoss | None
_SCIPY: dict[str, Callable[..., Form]] = {
    "norm": lambda: TailForm(lambda u: -u * u / 2, _half_erfc),
    "laplace": lambda: _gennorm(arb(1)),
    "logistic": lambda: TailForm(lambda u: -u - 2 * (-u).exp().log1p(), lambda u: 1 / (1 + u.exp()), slope=1),
    "hypsecant": lambda: TailForm(
        lambda u: -u - (-2 * u).exp().log1p(), lambda u: 2 / arb.pi() * (-u).exp().atan(), slope=1
    ),
    "gennorm": _gennorm,
    "truncnorm": _truncnorm,
    "dlaplace": _discrete_laplace,
}


def _form_of(dist: Any, shapes: tuple[float, ...]) -> Form:
    """The form of a law, in balls of the current precision."""
    make: Callable[..., Form] = (
        dist.precise if isinstance(dist, NoiseLaw) else _SCIPY.get(of_scipy(dist), lambda *_: None)
    )
    return make(*map(arb, shapes))


def enclosed_gaussian(epsilon: float, coordinates: list[Coordinates]) -> tuple[float, float]:
    """Enclose δ(ε) of Gaussian noise.

    Examples
    --------
    >>> lower, upper = enclosed_gaussian(1.0, [(1, 1.0, 1.0, 1)])
    >>> round(lower, 6), (upper - lower) / upper < 1e-15
    (0.126937, True)
    """

    def terms() -> tuple[arb, arb, arb]:
        square = sum((n * h * (arb(d) / arb(s)) ** 2 for n, d, s, h in coordinates), arb(0))
        mu, e = square.sqrt(), arb(epsilon)
        a, b = e / mu - mu / 2, e / mu + mu / 2
        return _half_erfc(a), e.exp() * _half_erfc(b), arb(0)

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

    def terms() -> tuple[arb, arb, arb]:
        form, ratio = _form_of(dist, shapes), arb(float(sensitivity)) / arb(scale)
        if isinstance(form, TailForm):
            return _tail_terms(form, ratio, arb(epsilon), start)
        assert form is not None
        return form.delta(ratio, arb(epsilon)), arb(0), arb(0)

    with ctx.workdps(30):
        known = _form_of(dist, shapes)
        ratio = arb(float(sensitivity)) / arb(scale)
        if known is None or (isinstance(known, PreciseLoss) and known.delta(ratio, arb(epsilon)) is None):
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
    form = _form_of(dist, shapes)
    if isinstance(form, TailForm):
        largest: Any = math.inf if form.slope is None else form.slope * distance
    else:
        largest = None if form is None else form.largest(distance)
    return largest if largest in (None, math.inf) else round_up(count * largest)


def _tail_terms(form: TailForm, ratio: arb, epsilon: arb, start: float) -> tuple[arb, arb, arb]:
    """The two terms of F at a point next to the crossing, and what F may miss."""
    half, none = ratio / 2, arb(0)

    def loss(t: arb) -> arb:
        if form.end is not None and t + half > form.end:
            return arb.pos_inf()
        return form.log_density(abs(t - half)) - form.log_density(t + half)

    def survival(t: arb) -> arb:
        if not t.is_exact():  # it falls
            return survival(t.lower()).union(survival(t.upper()))
        if form.end is not None and abs(t) >= form.end:
            return none if t > 0 else none + 1
        return form.upper(t) if t >= 0 else 1 - form.upper(-t)

    if form.slope is not None and epsilon >= form.slope * ratio:
        return none, none, none
    if form.end is not None and (form.end <= half or loss(form.end - half) <= epsilon):
        return survival(form.end - ratio), none, none
    a, b = _crossing(loss, half, epsilon, start, form)
    if not loss(b) >= epsilon:
        return none, none, survival(b - half)
    x = ((a + b) / 2).mid()
    missed = (1 - (epsilon - loss(b)).exp()).max((epsilon - loss(a)).exp() - 1)
    room = (survival(a - half) - survival(b - half)) * missed
    return survival(x - half), epsilon.exp() * survival(x + half), room


def _crossing(
    loss: Callable[[arb], arb], half: arb, epsilon: arb, start: float, form: TailForm
) -> tuple[arb, arb]:
    """Points around the one at which the loss passes ε: next to `start`, else by bisection; or so far that no double sees.

    The loss is surely at most ε at the first; where it is not surely at least ε at the second, that one is far out.
    """
    if math.isfinite(start):
        x = arb(max(start, 0.0))
        near = ((x + half) * arb("1e-13")).mid()
        a, b = (x - near).max(arb(0)).mid(), (x + near).mid()
        if loss(a) <= epsilon <= loss(b):
            return a, b
    a, b = arb(0), (half + 1).mid()
    while not loss(b) >= epsilon:
        if form.upper(b - half) < arb("1e-330"):
            return a, b
        a, b = (b if loss(b) <= epsilon else a), 2 * b
    while b - a > (b + half) * arb("1e-14"):
        middle = ((a + b) / 2).mid()
        if (found := loss(middle)) <= epsilon:
            a = middle
        elif found >= epsilon:
            b = middle
        else:
            break
    return a, b


def _enclosed(terms: Callable[[], tuple[arb, arb, arb]]) -> tuple[float, float]:
    """Round first − second ± errors outwards, with as many digits as cancellation takes."""
    digits = 50
    while True:
        with ctx.workdps(digits):
            first, second, room = terms()
            found = first - second
            sure = found.rad() <= abs(found.mid()) * arb(10) ** -_KEPT or first.abs_upper() < arb("1e-310")
            lower, upper = found.lower(), (found + room).upper()
            if sure or digits > _MOST:
                break
        digits *= 2
    if not (lower.is_finite() and upper.is_finite()):
        return 0.0, 1.0
    low, high = float(lower), float(upper)
    low = math.nextafter(low, 0.0) if low > 0 else 0.0
    nothing = first == 0 and second == 0 and room == 0
    return low, 0.0 if nothing else min(math.nextafter(max(high, 0.0), 1.0), 1.0)
