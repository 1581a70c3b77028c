r"""The exact privacy profile of one coordinate, in doubles and enclosed in ball arithmetic.

For every symmetric log-concave density, with Ḡ its survival function and
:math:`x = \tilde\zeta^{-1}(\varepsilon)` the point at which the centred loss passes ε,

.. math:: \delta(\varepsilon) = \bar G(x - \Delta/2) - e^{\varepsilon}\,\bar G(x + \Delta/2)

is necessary and sufficient (Vinterbo 2022; re-derived by Muthukrishnan and Kalyani, *Grafting Laplace and Gaussian
distributions*, Lemma 11, whose Theorem 3 is this for flipped Huber noise). Where the two terms nearly cancel, the same δ is integrated as
:math:`\int_x^\infty g(t-\Delta/2)\,(1 - e^{\varepsilon - \tilde\zeta(t)})\,dt`, a positive integrand.

**Enclosures.** With h = Δ/2 and :math:`F(x) = \bar G(x - h) - e^{\varepsilon}\,\bar G(x + h)`,

.. math:: F(x) \le \delta(\varepsilon) \le F(x) + [\bar G(a - h) - \bar G(b - h)]\,
          \max(1 - e^{\varepsilon - \tilde\zeta(b)},\; e^{\varepsilon - \tilde\zeta(a)} - 1)

for every x in [a, b] if :math:`\tilde\zeta(a) \le \varepsilon \le \tilde\zeta(b)`: the event {t > x} bounds δ from below,
and the mass that it misses lies between x and the crossing. So a crossing known to 1e-13 gives δ to about 1e-26 with no
error estimate. The parameters are doubles, taken as exact; everything is computed in balls (Johansson 2017, *Arb*), which
enclose the true number, with digits that are doubled until cancellation leaves twenty of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
from flint import arb
from scipy import optimize, stats

from mechdesign.accounting.gaussian import (
    GaussianPrivacy,
    enclosed,
    enclosed_gaussian,
    gaussian_budget,
    gaussian_profile,
    gaussian_room,
    normal_tail,
)
from mechdesign.accounting.losses import (
    AtomicLoss,
    CentredLoss,
    Loss,
    NoiseLaw,
    PreciseLoss,
    TailForm,
    loss_of,
)
from mechdesign.checks import frozen_parts, instance, levels, probability
from mechdesign.doubles import UNIT
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import excess, least_kept, round_up
from mechdesign.problem.law_moments import Generator, of_scipy, panel_integrals
from mechdesign.problem.privacy import GaussianDP, ZeroConcentratedDP, points_of
from mechdesign.typing import Array, FrozenLaw, Numbers, Values

_RELATIVE = 1e-9
"""Relative error allowed to survival functions and quadratures: they reach 1e-12."""
_FAR = 1e6
"""Losses that are treated as infinite."""


def _integrated(loss: CentredLoss, x: float, epsilon: float) -> float:
    """Integrate the positive form on panels that first halve the survival probability and then extend as far as needed."""
    half = loss.sensitivity / 2
    top = float(loss.sf(x - half))

    def gain(t: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(loss.law.pdf(t - half) * -np.expm1(np.minimum(epsilon - loss.loss(t), 0.0)))

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


def profile_interval(law: FrozenLaw, sensitivity: float, epsilon: float) -> tuple[float, float]:
    """Enclose δ(ε) of one coordinate.

    The loss is a difference of doubles, each with errors of a few units in the last place; if the true loss is within η of
    it, δ(ε) lies between the computed δ(ε + η) and δ(ε − η). All other errors are relative.

    Examples
    --------
    >>> from scipy import stats
    >>> lower, upper = profile_interval(stats.laplace(scale=1.0), 1.0, 0.5)
    >>> lower < 1 - math.exp(-0.25) < upper < lower * (1 + 1e-8)
    True
    """
    loss = loss_of(law, sensitivity)
    if isinstance(loss, CentredLoss) and isinstance(law.dist, stats.rv_discrete):  # steps: no quadrature
        return instance("law", enclosed_delta(law, sensitivity, epsilon, loss), tuple)
    off = 6 * UNIT * epsilon
    if isinstance(loss, CentredLoss) and not any(abs(a - epsilon) <= 0.05 * epsilon for a in loss.atoms):
        # Away from atoms, which are products, the loss is a difference of logarithms as large as the tail is deep.
        half = loss.sensitivity / 2
        x = float(np.clip(loss.inverse(np.array(epsilon)), 0.0, max(loss.edge, 0.0)))
        x = min(x, float(loss.isf(1e-300)))
        with np.errstate(all="ignore"):
            depth = law.logpdf(np.array([x - half, x + half])) - law.logpdf(0.0)
        off += 8 * UNIT * (1 + float(np.sum(np.abs(depth[np.isfinite(depth)]))))
    around = np.array([epsilon + off, max(epsilon - off, 0.0)])
    if isinstance(loss, AtomicLoss):
        lower, upper = float(loss.delta(around[0])), float(loss.delta(around[1]))
    else:
        lower, upper = _log_concave(loss, around, cancelled=1e-3).tolist()
    error = _RELATIVE + (loss.end_error if isinstance(loss, CentredLoss) else 0.0)
    return max(lower * (1 - error) - 1e-290, 0.0), min(upper * (1 + error) + 1e-290, 1.0)


def privacy_profile(law: FrozenLaw, sensitivity: float, epsilon: Numbers) -> Values:
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
        δ in [0, 1], from above: to units in the last place if the law has closed forms in high precision, else to the
        relative 1e-9 of `profile_interval`.

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


def _upper(law: FrozenLaw, sensitivity: float, epsilon: float, loss: Loss) -> float:
    if math.isinf(epsilon) and isinstance(loss, CentredLoss) and math.isinf(loss.edge):
        return 0.0
    found = enclosed_delta(law, sensitivity, min(epsilon, _FAR), loss)
    return (profile_interval(law, sensitivity, min(epsilon, _FAR)) if found is None else found)[1]


def fast_profile(law: FrozenLaw, sensitivity: float, epsilon: float) -> float:
    """Return δ(ε) of one coordinate in doubles, for searches: with rounding errors of either sign.

    Examples
    --------
    >>> from scipy import stats
    >>> round(fast_profile(stats.laplace(scale=1.0), 1.0, 0.5), 6)
    0.221199
    """
    if law.dist.name == "norm":
        return float(gaussian_profile(epsilon, float(sensitivity) / law.std()))
    loss, e = loss_of(law, sensitivity), np.array([float(epsilon)])
    found = loss.delta(e) if isinstance(loss, AtomicLoss) else _log_concave(loss, e)
    return float(np.clip(found[0], 0.0, 1.0))


def _log_concave(loss: CentredLoss, e: Array, *, cancelled: float = 1e-7) -> Array:
    """Return δ by the formula, or by the integral if less than the share `cancelled` of its first term is left."""
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


def integrated_profile(law: FrozenLaw, sensitivity: float, epsilon: float) -> float:
    r"""Return δ(ε) of one coordinate by quadrature of :math:`[g(t - \Delta/2) - e^\varepsilon g(t + \Delta/2)]_+`.

    An independent check: the crossing is found by bisection on the law's own ``logpdf``, without the survival
    function, so that it reveals errors of a closed form.

    Examples
    --------
    >>> from scipy import stats
    >>> round(integrated_profile(stats.laplace(scale=1.0), 1.0, 0.5), 6)
    0.221199
    """
    loss = loss_of(law, sensitivity)
    if isinstance(loss, AtomicLoss):
        return float(loss.delta(np.asarray(epsilon)))
    if isinstance(law.dist, stats.rv_discrete):
        return float(_log_concave(loss, np.array([float(epsilon)]), cancelled=0.0)[0])
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
    x = low if above(low) > 0 else float(optimize.bisect(above, low, far, xtol=1e-16 * far))
    return _integrated(loss, x, epsilon)


def profile_epsilon(law: FrozenLaw, sensitivity: float, delta: float) -> float:
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
        ``inf`` if no finite ε suffices.

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

    def over(epsilon: float) -> float:
        return excess(fast_profile(law, sensitivity, epsilon), delta)

    found = least_kept(over, 1.0, least=0.0, most=_FAR, xtol=1e-14, rtol=1e-14)
    if math.isinf(found):
        return math.inf
    # Doubles may be wrong near the end of a bounded loss, where δ is a difference of nearly equal numbers.
    step = max(found * 2 * UNIT, 1e-16)
    while privacy_profile(law, sensitivity, found) > delta:
        found, step = found + step, 4 * step
        if found > _FAR:
            return math.inf
    return found


def _largest_loss(law: FrozenLaw, sensitivity: float) -> float:
    """Return the supremum of the privacy loss (δ = 0), infinite for Gaussian-like or bounded noise."""
    loss = loss_of(law, sensitivity)
    if (known := largest_loss(law, sensitivity)) is not None:
        return math.inf if known == math.inf else round_up(Fraction(known))
    if isinstance(loss, AtomicLoss):
        return math.inf if loss.infinity > 0 else float(loss.values.max())
    if math.isfinite(loss.edge):
        return math.inf
    far, further = float(loss.loss(loss.reach / 10)), float(loss.loss(loss.reach))
    # Far out a bounded loss has converged; its further growth is less than its last.
    grown = further - far
    return math.inf if grown > 1e-9 * further else (further + grown) * (1 + 1e-15)


def _power(u: arb, p: arb) -> arb:
    return arb(0) if u == 0 else u**p


def _gennorm(p: arb) -> TailForm:
    if p == 1:
        return TailForm(lambda u: -u, lambda u: (-u).exp() / 2, slope=1)
    return TailForm(lambda u: -_power(u, p), lambda u: _power(u, p).gamma_upper(1 / p, regularized=1) / 2)


def _truncnorm(low: arb, high: arb) -> TailForm | None:
    if low != -high:
        return None
    beyond = normal_tail(high)
    return TailForm(lambda u: -u * u / 2, lambda u: (normal_tail(u) - beyond) / (1 - 2 * beyond), end=high)


def _discrete_laplace(rate: arb) -> PreciseLoss:
    """Return the loss rate·(Δ + 2k) for −Δ < k < 0, and rate·Δ for k ≥ 0."""

    def delta(ratio: arb, epsilon: arb) -> arb | None:
        shift = int(float(ratio))
        short = (epsilon - rate * shift).exp()
        # losses pass ε up to this k, and perhaps at the next one
        whole = ((shift - epsilon / rate) / 2).lower().floor().unique_fmpz()
        assert whole is not None
        last = min(max(int(whole), 0), shift - 1)
        inner = (-rate).exp() * (1 - (-rate * last).exp()) / (1 - (-rate).exp())
        inner -= short * rate.exp() * ((rate * last).exp() - 1) / (rate.exp() - 1)
        if last + 1 < shift:
            inner += (-rate * (last + 1)).exp() * (
                1 - short * (2 * rate * (last + 1)).exp()
            ).nonnegative_part()
        return (1 - short).nonnegative_part() / (1 + (-rate).exp()) + (rate / 2).tanh() * inner

    return PreciseLoss(delta, lambda ratio: Fraction(float(rate)) * ratio)


Form = TailForm | PreciseLoss | None
_SCIPY: dict[str, Callable[..., Form]] = {
    "norm": lambda: TailForm(lambda u: -u * u / 2, normal_tail),
    "laplace": lambda: _gennorm(arb(1)),
    "logistic": lambda: TailForm(lambda u: -u - 2 * (-u).exp().log1p(), lambda u: 1 / (1 + u.exp()), slope=1),
    "hypsecant": lambda: TailForm(
        lambda u: -u - (-2 * u).exp().log1p(), lambda u: 2 / arb.pi() * (-u).exp().atan(), slope=1
    ),
    "gennorm": _gennorm,
    "truncnorm": _truncnorm,
    "dlaplace": _discrete_laplace,
}


def ball_form(dist: Generator, shapes: tuple[float, ...]) -> Form:
    """Return the form of a law, in balls of the current precision."""
    make: Callable[..., Form] = (
        dist.precise if isinstance(dist, NoiseLaw) else _SCIPY.get(of_scipy(dist), lambda *_: None)
    )
    return make(*map(arb, shapes))


def gaussian_most(privacy: GaussianPrivacy) -> Fraction:
    r"""Return an upper bound of the :math:`\mu^2` that `privacy` allows: Gaussian noise that consumes more violates it.

    Examples
    --------
    >>> from mechdesign.problem.privacy import ApproximateDP
    >>> asked = ApproximateDP(1.0, 1e-6)
    >>> 0 < gaussian_most(asked) / Fraction(gaussian_budget(asked)) - 1 < 1e-12
    True
    """
    if isinstance(privacy, ZeroConcentratedDP):
        return 2 * Fraction(privacy.rho)
    if isinstance(privacy, GaussianDP):
        return Fraction(privacy.mu) ** 2
    below, step, points = gaussian_budget(privacy), 2e-13, points_of(privacy).points
    while math.sqrt(below * (1 + step)) < math.inf:
        mu = math.sqrt(below * (1 + step))
        if any(gaussian_room(e, d, mu) < 0 for e, d in points):
            return Fraction(mu) ** 2
        step *= 4
    raise DesignError.of("privacy", str(privacy), "allows more than doubles hold: ask for a smaller epsilon")


def gaussian_tradeoff(square: float, at: Iterable[float] = ()) -> TradeOff:
    """Return the trade-off curve of Gaussian noise of this μ², tight at the false-positive rates `at`.

    Examples
    --------
    >>> curve = gaussian_tradeoff(1.0, [0.01])
    >>> round(curve.attack(0.01).found, 5), round(curve.advantage, 5)
    (0.09236, 0.38292)
    """
    mu = math.nextafter(math.sqrt(square), math.inf)
    return TradeOff.of_profile(lambda e: enclosed_gaussian(e, [(1, mu, 1.0, 1)])[1], at)


def enclosed_delta(
    law: FrozenLaw, sensitivity: float, epsilon: float, loss: Loss
) -> tuple[float, float] | None:
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
    start = float(loss.inverse(epsilon)) / scale if isinstance(loss, CentredLoss) else math.nan

    def terms() -> tuple[arb, arb, arb] | None:
        form, ratio = ball_form(dist, shapes), arb(float(sensitivity)) / arb(scale)
        if isinstance(form, TailForm):
            return _tail_terms(form, ratio, arb(epsilon), start)
        delta = None if form is None else form.delta(ratio, arb(epsilon))
        return None if delta is None else (delta, arb(0), arb(0))

    return enclosed(terms)


def largest_loss(law: FrozenLaw, sensitivity: float) -> Fraction | float | None:
    """Return the supremum of the privacy loss, a fraction or ``inf``; None without a closed form.

    Examples
    --------
    >>> from scipy import stats
    >>> largest_loss(stats.laplace(scale=3.0), 1.0)
    Fraction(1, 3)
    """
    dist, shapes, _, scale = frozen_parts(law)
    distance = Fraction(float(sensitivity)) / Fraction(scale)
    form = ball_form(dist, shapes)
    if isinstance(form, TailForm):
        return math.inf if form.slope is None else form.slope * distance
    return None if form is None else form.largest(distance)


def _tail_terms(form: TailForm, ratio: arb, epsilon: arb, start: float) -> tuple[arb, arb, arb]:
    """Return the two terms of F at a point next to the crossing, and a bound of δ − F."""
    half, none = ratio / 2, arb(0)

    def loss(t: arb) -> arb:
        if form.end is not None and t + half > form.end:
            return arb.pos_inf()
        return form.log_density(abs(t - half)) - form.log_density(t + half)

    def survival(t: arb) -> arb:
        if not t.is_exact():  # it decreases
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
    """Return points around the crossing of ε: next to `start`, or by bisection, or beyond the range of doubles.

    The loss is provably at most ε at the first; if it is not provably at least ε at the second, that point is far out.
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
