r"""Noise laws on the real numbers as frozen `scipy.stats` distributions: truncated Laplace, offset symmetric Gaussian tails, flipped Huber, staircases.

**Staircase noise** costs least of all ε-DP additive noise for one number; `mechdesign.noise.radial` has it for several.

The density is constant on shells and falls by :math:`e^{-\varepsilon}` from one to the next:

.. math:: f(t) \propto e^{-k\varepsilon} \text{ for } |t|/\Delta \in [k, k+\gamma), \qquad
          e^{-(k+1)\varepsilon} \text{ for } |t|/\Delta \in [k+\gamma, k+1).

Source: Geng and Viswanath, *The optimal noise-adding mechanism in differential privacy* (2016).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
from flint import arb
from scipy import special, stats

from mechdesign.accounting.losses import AtomicLoss, PreciseLoss, TailForm, UnitLoss, laplace_loss
from mechdesign.checks import DOWN, UP, non_negative, one_of, positive, refuse
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.serialize import register_law
from mechdesign.plotting import figure, plot_curves, sized
from mechdesign.problem.law_moments import law_variance
from mechdesign.typing import Array, Figure, FrozenLaw, Values


class SymmetricLaw(stats.rv_continuous):  # type: ignore[misc]
    """Generator of a law symmetric about zero.

    A law defines its log density, its upper tail and the inverse of that tail (for t ≥ 0), and its absolute moments; the
    rest of SciPy's methods follows. Tails are never computed as 1 − cdf, so that they stay accurate.
    """

    @abstractmethod
    def _upper(self, u: Values, *shapes: Values) -> Values:
        """Return P(T > u) for u ≥ 0."""

    @abstractmethod
    def _reach(self, s: Values, *shapes: Values) -> Values:
        """Return the u ≥ 0 beyond which the mass is s ≤ 1/2."""

    @abstractmethod
    def _absolute_moment(self, p: float, *shapes: Values) -> Values:
        """Return E|T|^p."""

    def _argcheck(self, *shapes: Values) -> Values:
        return (shapes[0] >= 0) & np.isfinite(shapes[0])

    def _shape_info(self) -> list[object]:
        return []

    def _construct_doc(self, *args: object) -> None:
        """Keep the class's docstring: SciPy writes a new one for each frozen law, which takes most of the time of freezing."""

    def _pdf(self, t: Values, *shapes: Values) -> Values:
        return np.exp(self._logpdf(t, *shapes))

    def _sf(self, t: Values, *shapes: Values) -> Values:
        upper = self._upper(np.abs(t), *shapes)
        return np.where(t >= 0, upper, 1 - upper)

    def _cdf(self, t: Values, *shapes: Values) -> Values:
        return self._sf(-t, *shapes)

    def _isf(self, s: Values, *shapes: Values) -> Values:
        s = np.asarray(s, dtype=float)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            u = self._reach(np.minimum(s, 1 - s), *shapes)
        return np.where(s <= 0.5, u, -u)

    def _ppf(self, q: Values, *shapes: Values) -> Values:
        return -self._isf(q, *shapes)

    def _rvs(
        self, *shapes: Values, size: tuple[int, ...] | None = None, random_state: Values = None
    ) -> Values:
        # Inversion of the folded law, with a fair sign: a uniform near 0 reaches far into the tail.
        half = 0.5 * (1 - random_state.random(size))
        sign = np.where(random_state.random(size) < 0.5, -1.0, 1.0)
        return sign * self._isf(half, *shapes)

    def _munp(self, n: int, *shapes: Values) -> Values:
        return 0.0 if n % 2 else self._absolute_moment(n, *shapes)

    def _stats(self, *shapes: Values) -> Values:
        return 0.0, self._absolute_moment(2, *shapes), 0.0, None

    def mean_absolute(self, *shapes: Values) -> float:
        """Return E|T| at scale 1."""
        return float(self._absolute_moment(1, *shapes))


class TruncatedLaplace(SymmetricLaw):
    r"""Generator of the truncated Laplace law: density :math:`\propto e^{-|t|/\beta}` on :math:`[-A, A]`.

    Standardised: shape :math:`c = A/\beta`, scale β. For one query of sensitivity Δ the choice β = Δ/ε,
    :math:`A = (\Delta/\varepsilon)\log(1 + (e^\varepsilon - 1)/2\delta)` is (ε, δ)-DP; in the high-privacy limit no additive noise costs less.

    Source: Geng, Ding, Guo and Kumar, *Tight analysis of privacy and utility tradeoff in approximate differential
    privacy*, AISTATS 2020, Theorem 1.
    """

    def _argcheck(self, c: Values) -> Values:
        return (c > 0) & np.isfinite(c)

    def _get_support(self, c: Values) -> Values:
        return -c, c

    def _logpdf(self, t: Values, c: Values) -> Values:
        return np.where(np.abs(t) <= c, -np.abs(t) - np.log(-2 * np.expm1(-c)), -np.inf)

    def _upper(self, u: Values, c: Values) -> Values:
        u = np.minimum(u, c)
        return np.exp(-u) * np.expm1(u - c) / np.expm1(-c) / 2

    def _reach(self, s: Values, c: Values) -> Values:
        # e^{-u} = e^{-c} + 2s(1 - e^{-c})
        shallow = -np.log1p((1 - 2 * np.maximum(s, 0.25)) * np.expm1(-c))
        deep = -np.log(np.exp(-c) - 2 * s * np.expm1(-c))
        return np.minimum(np.where(s > 0.25, shallow, deep), c)

    def _absolute_moment(self, p: float, c: Values) -> Values:
        return special.gamma(p + 1) * special.gammainc(p + 1, c) / -np.expm1(-c)

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


def _mills(x: Values) -> Values:
    return math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2))


class OffsetSymmetricGaussian(SymmetricLaw):
    r"""Generator of offset symmetric Gaussian tails (OSGT): two Gaussian tails glued at zero.

    .. math:: g(t) = \frac{\phi(|t|;\,-\vartheta, \varrho^2)}{2Q(\vartheta/\varrho)}

    Standardised: shape :math:`b = \vartheta/\varrho \ge 0`, scale :math:`\varrho`. Everything is written with the Mills ratio
    M = Q/φ, so that large offsets, where Q(b) underflows, keep full accuracy.

    Source: Sadeghi and Korki, *Offset-symmetric Gaussians for differential privacy*, IEEE TIFS 2022.
    """

    def _logpdf(self, t: Values, b: Values) -> Values:
        # φ(|t| + b)/2Q(b) = exp(-t²/2 - b|t|)/2M(b)
        t = np.abs(t)
        return -t * (t / 2 + b) - np.log(2 * _mills(b))

    def _upper(self, u: Values, b: Values) -> Values:
        return 0.5 * np.exp(-u * (u / 2 + b)) * _mills(u + b) / _mills(b)

    def _logsf(self, t: Values, b: Values) -> Values:
        u = np.abs(t)
        upper = -u * (u / 2 + b) + np.log(_mills(u + b) / _mills(b)) - math.log(2)
        return np.where(t >= 0, upper, np.log1p(-np.exp(upper)))

    def _reach(self, s: Values, b: Values) -> Values:
        # Q(u + b) = 2 s Q(b), in logs
        u = -special.ndtri_exp(np.log(2 * s) + special.log_ndtr(-b)) - b
        u = np.where(b < 10, np.maximum(u, 0), -np.log(2 * s) / np.maximum(b, 10))
        for _ in range(4):  # Newton on the concave log sf; the closed form cancels for large b
            u = np.maximum(u + (self._logsf(u, b) - np.log(s)) * _mills(u + b), 0)
        return np.where(s > 0, u, np.inf)

    def _absolute_moment(self, p: float, b: Values) -> Values:
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
        def beyond(u: Values) -> Values:
            return ((u + b) / arb(2).sqrt()).erfc()

        return TailForm(lambda u: -u * (u / 2 + b), lambda u: beyond(u) / (2 * beyond(arb(0))))

    def privacy_loss(self, ratio: float, b: float) -> UnitLoss:
        r, bend = ratio, (ratio + 2 * b) * ratio / 2

        def loss(t: Values) -> Values:
            return np.where(np.abs(t) <= r / 2, t * (r + 2 * b), r * (t + np.copysign(b, t)))

        def inverse(v: Values) -> Values:
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


_TINY = 1e-17
"""Stands for b = 0 in (1 - e^{-b²})/b, whose limit is 0: less than a rounding of the normaliser."""


def _tail(b: Values) -> Values:
    """Return half the unnormalised mass beyond b, √(2π) Q(b) e^{-b²/2}."""
    return np.exp(-b * b) * _mills(b)


def _kappa(b: Values) -> Values:
    """Return the normaliser of the unit-scale density."""
    safe = np.maximum(b, _TINY)
    return 2 * (_tail(b) - np.expm1(-safe * safe) / safe)


def _rho(t: Values, b: Values) -> Values:
    """Return ρ at unit scale."""
    x = np.abs(t)
    return np.where(x <= b, b * x, (x * x + b * b) / 2)


class FlippedHuber(SymmetricLaw):
    r"""Generator of the flipped Huber law: Laplace in the centre, Gaussian in the tails.

    With :math:`\rho_\alpha(t) = \alpha|t|` for :math:`|t| \le \alpha` and :math:`(t^2+\alpha^2)/2` beyond, the density is
    :math:`e^{-\rho_\alpha(t)/\gamma^2}/\kappa`. Here the law is standardised: the shape is :math:`b = \alpha/\gamma`, the
    scale is γ, and

    .. math:: \kappa/\gamma = 2\left[\sqrt{2\pi}\,Q(b)\,e^{-b^2/2} + \frac{1 - e^{-b^2}}{b}\right].

    b = 0 is the Gaussian of variance γ²; b → ∞ is the Laplace law of scale γ/b. No hyperbolic function appears:
    every expression is a sum of positive, moderate terms, so it holds for any b and in the far tails.

    Source: Muthukrishnan and Kalyani, *Grafting Laplace and Gaussian distributions: a new noise mechanism for
    differential privacy*, Definition 7 and Section III.
    """

    def __call__(
        self, *args: Values, alpha: float | None = None, gamma: float | None = None, **kwds: Values
    ) -> FrozenLaw:
        """Return the frozen law of shape b = α/γ and scale γ; α and γ may be given in their place."""
        if alpha is gamma is None:
            return super().__call__(*args, **kwds)
        alpha, gamma = non_negative("alpha", alpha), positive("gamma", gamma)
        return super().__call__(alpha / gamma, *args, scale=gamma, **kwds)

    def _logpdf(self, t: Values, b: Values) -> Values:
        return -_rho(t, b) - np.log(_kappa(b))

    def _upper(self, u: Values, b: Values) -> Values:
        inner = np.minimum(u, b)
        safe = np.maximum(b, _TINY)
        centre = np.exp(-b * inner) * -np.expm1(-b * (b - inner)) / safe + _tail(b)
        outer = np.maximum(u, b)
        beyond = np.exp(-(outer * outer + b * b) / 2) * _mills(outer)
        return np.where(u <= b, centre, beyond) / _kappa(b)

    def _reach(self, s: Values, b: Values) -> Values:
        kappa = _kappa(b)
        safe = np.maximum(b, _TINY)
        # In the centre sf(t) = 1/2 - (1 - e^{-bt})/(bκ); the second form does not cancel as t grows.
        shallow = -np.log1p(-np.minimum(safe * kappa * (0.5 - s), 1)) / safe
        deep = -np.log(np.maximum(safe * (kappa * s - _tail(b)) + np.exp(-b * b), 0)) / safe
        centre = np.where(s > 0.25, shallow, deep)
        # Beyond b: log Q(t) = log(κ s) + b²/2 - log √(2π)
        level = np.minimum(np.log(kappa * s) + b * b / 2 - math.log(2 * math.pi) / 2, math.log(0.5))
        tail = -special.ndtri_exp(level)
        return np.where(kappa * s >= _tail(b), np.clip(centre, 0, b), np.maximum(tail, b))

    def _absolute_moment(self, p: float, b: Values) -> Values:
        # by incomplete gamma functions: no cancellation at small b
        safe = np.maximum(b, _TINY)
        centre = special.gamma(p + 1) * special.gammainc(p + 1, safe * safe) / safe ** (p + 1)
        half = (p + 1) / 2
        tails = 2 ** (half - 1) * special.gamma(half) * special.gammaincc(half, b * b / 2)
        tails = tails * np.exp(-b * b / 2)
        return 2 * (centre + tails) / _kappa(b)

    def precise(self, b: arb) -> TailForm:
        """Return the law's form in balls; the pieces meet at b, so that a ball is evaluated at its two ends, between which both functions fall."""

        def log_density(u: arb) -> arb:
            if not u.is_exact():
                return log_density(u.lower()).union(log_density(u.upper()))
            return -b * u if u <= b else -(u * u + b * b) / 2

        def beyond(u: arb) -> arb:
            """Return the unnormalised mass beyond u."""
            if not u.is_exact():
                return beyond(u.lower()).union(beyond(u.upper()))
            tail = (arb.pi() / 2).sqrt() * (-b * b / 2).exp() * (u.max(b) / arb(2).sqrt()).erfc()
            return tail if u >= b else tail + ((-b * u).exp() - (-b * b).exp()) / b

        whole = 2 * beyond(arb(0))
        return TailForm(log_density, lambda u: beyond(u) / whole)

    def privacy_loss(self, ratio: float, b: float) -> UnitLoss:
        r = ratio

        def loss(t: Values) -> Values:
            both = (np.abs(t) - r / 2) > b  # both points in the same tail: r·t without cancellation
            out = np.where(both, r * t, _rho(t + r / 2, b) - _rho(t - r / 2, b))
            centre = np.abs(t) + r / 2 <= b  # both in the centre: 2bt, then the atom, exactly
            return np.where(centre, b * np.clip(2 * np.asarray(t), -r, r), out)

        return UnitLoss(
            loss,
            lambda v: _inverse_loss(v, r, b),
            atoms=(b * r,) if b > r else (),
            kinks=(r / 2, abs(b - r / 2), b + r / 2),
        )


def _inverse_loss(v: Values, r: float, b: float) -> Values:
    """Return sup{t : loss(t) <= v}, odd in v: the four pieces of the paper's equation (15), with r = Δ/γ, b = α/γ and v = ν."""
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
r"""The flipped Huber law as a `scipy.stats` distribution: ``flipped_huber(b, scale=gamma)``, b = α/γ ≥ 0, or ``flipped_huber(alpha=..., gamma=...)``.

In the paper's parameters: α ≥ 0 is where Laplace turns into Gaussian, and the tails are Gaussian of variance γ².

Examples
--------
>>> law = flipped_huber(1.0, scale=2.0)
>>> round(law.cdf(2.0) + law.sf(2.0), 12)
1.0
>>> float(round(flipped_huber(alpha=0.0, gamma=3.0).var(), 12))
9.0
"""
register_law("flipped_huber", flipped_huber)


def staircase_gamma(epsilon: float, loss: str = "absolute") -> float:
    r"""Return the step fraction γ that minimises the ℓ₁ or the squared error at ε.

    ``"absolute"``: :math:`1/(1 + e^{\varepsilon/2})`, with error :math:`\Delta e^{\varepsilon/2}/(e^\varepsilon - 1)`.
    ``"squared"``: where :math:`\gamma(1 - b) + b = (b(1 + b)/2)^{1/3}`, :math:`b = e^{-\varepsilon}` (Geng and Viswanath, Theorem 8).

    Examples
    --------
    >>> round(staircase_gamma(1.0), 4), round(staircase_gamma(1.0, "squared"), 4)
    (0.3775, 0.4167)
    """
    epsilon = positive("epsilon", epsilon, side=DOWN)
    if one_of("loss", loss, ("absolute", "squared")) == "absolute":
        return float(special.expit(-epsilon / 2))
    b = math.exp(-epsilon)
    return float(min(max(((b * (1 + b) / 2) ** (1 / 3) - b) / -math.expm1(-epsilon), 0.0), 0.5))


def _mass(epsilon: Values, gamma: Values) -> Values:
    """Return half the mass when the first level is 1."""
    b = np.exp(-epsilon)
    return (gamma + b * (1 - gamma)) / -np.expm1(-epsilon)


def _moment(p: int, epsilon: Values, gamma: Values) -> Values:
    r"""Return ∫_0^∞ t^p (levels 1, b, b², …) dt, b = e^{-ε}, by p!/ε^{p+1} times a sum of order one.

    Shell k has level b^k on [k, k + γ) and b^{k+1} on [k + γ, k + 1); expanding (k + γ)^{p+1} leaves sums Σ k^j b^k,
    here times ε^{j+1}/j!, which obey the Eulerian recursion Σ k^j b^k = b/(1-b) Σ_{i<j} C(j, i) Σ k^i b^k.
    """
    b, unit = np.exp(-epsilon), epsilon / -np.expm1(-epsilon)
    # ε^n/(n+1)! for n = 0, 1, …
    powers = [epsilon * 0 + 1.0]
    for n in range(1, p + 1):
        powers.append(powers[-1] * epsilon / (n + 1))
    sums = [unit]
    for j in range(1, p + 1):
        sums.append(b * unit * sum(sums[i] * powers[j - i - 1] for i in range(j)))
    lows = [gamma ** (p + 1 - j) for j in range(p + 1)]
    total = sum(sums[j] * powers[p - j] * (low + b * (1 - low)) for j, low in enumerate(lows))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # infinite where a tiny ε makes it so
        return math.factorial(p) * total / epsilon ** (p + 1)


class Staircase(SymmetricLaw):
    """Generator of one-dimensional staircase noise (see `staircase`)."""

    def _argcheck(self, epsilon: Values, gamma: Values) -> Values:
        return (epsilon > 0) & np.isfinite(epsilon) & (gamma >= 0) & (gamma <= 1)

    def _logpdf(self, t: Values, epsilon: Values, gamma: Values) -> Values:
        u = np.abs(t)
        k = np.floor(u)
        return -epsilon * (k + (u - k >= gamma)) - np.log(2 * _mass(epsilon, gamma))

    def _upper(self, u: Values, epsilon: Values, gamma: Values) -> Values:
        b = np.exp(-epsilon)
        k = np.floor(u)
        rest = u - k
        inside = np.where(rest < gamma, gamma - rest + b * (1 - gamma), b * (1 - rest))
        return np.exp(-epsilon * k) * (inside / (2 * _mass(epsilon, gamma)) + b / 2)

    def _reach(self, s: Values, epsilon: Values, gamma: Values) -> Values:
        b = np.exp(-epsilon)
        # sf at the integers is b^k/2
        k = np.maximum(np.floor(-np.log(2 * s) / epsilon + 1e-14), 0)
        left = (b / 2 - s * np.exp(epsilon * k)) * 2 * _mass(epsilon, gamma) + gamma + b * (1 - gamma)
        rest = np.where(left <= gamma, left, gamma + (left - gamma) / b)
        return np.where(s > 0, k + np.clip(rest, 0, 1), np.inf)

    def _absolute_moment(self, p: float, epsilon: Values, gamma: Values) -> Values:
        with np.errstate(invalid="ignore"):
            return _moment(int(p), epsilon, gamma) / _mass(epsilon, gamma)

    def _entropy(self, epsilon: Values, gamma: Values) -> Values:
        # log of the first level's inverse, and ε for every step down: their mean is Σ k b^k over the mass
        steps = np.exp(-epsilon) / np.expm1(-epsilon) ** 2 / _mass(epsilon, gamma)
        return np.log(2 * _mass(epsilon, gamma)) + epsilon * steps

    def precise(self, epsilon0: arb, gamma: arb) -> PreciseLoss:
        def delta(r: Values, epsilon: Values) -> Values:
            if r > 1:  # above 1 by rounding: `privacy_loss` allows 1e-12
                return None
            b = (-epsilon0).exp()
            level = (1 - b) / (2 * (gamma + b * (1 - gamma)))
            high = level * (gamma.min(r) + r * b / (1 - b) + gamma.min(r - gamma).nonnegative_part())
            return high * (1 - (epsilon - epsilon0).exp()).nonnegative_part()

        return PreciseLoss(delta, lambda r: Fraction(float(epsilon0)) if r <= 1 else None)

    def privacy_loss(self, ratio: float, epsilon: float, gamma: float) -> AtomicLoss:
        """Return the losses −ε, 0, ε at a shift of at most one step, which dominates all smaller shifts."""
        r = ratio
        refuse(r > 1 + 1e-12, "sensitivity", r, "must be at most the staircase's step (its scale, here 1)")
        b = math.exp(-epsilon)
        level = 1 / (2 * _mass(epsilon, gamma))
        # right of zero the loss is ε when an edge k + γ lies in (t, t + r]; left of it when one lies between
        right = min(gamma, r) + r * b / -math.expm1(-epsilon)
        left = max(0.0, min(gamma, r - gamma))
        high = level * (right + left)
        low = high * b
        mass = np.array([low, max(1 - high - low, 0.0), high])
        return AtomicLoss(np.array([-epsilon, 0.0, epsilon]), mass)


staircase = Staircase(name="staircase", shapes="epsilon, gamma")
r"""Staircase noise as a `scipy.stats` distribution: ``staircase(epsilon, gamma, scale=sensitivity)``.

Examples
--------
>>> law = staircase(1.0, 0.4, scale=2.0)
>>> round(law.sf(2.0) * 2, 12) == round(float(np.exp(-1.0)), 12)
True
"""
register_law("staircase", staircase)


class AnsweringStaircase(SymmetricLaw):
    """Generator of the staircase with a point mass at 0 (see `answering_staircase`); the density is that of the other errors."""

    def _argcheck(self, epsilon: Values, gamma: Values, answered: Values) -> Values:
        return staircase._argcheck(epsilon, gamma) & (answered > 0) & (answered < 1)

    def _logpdf(self, t: Values, epsilon: Values, gamma: Values, answered: Values) -> Values:
        return staircase._logpdf(t, epsilon, gamma) + np.log1p(-answered)

    def _upper(self, u: Values, epsilon: Values, gamma: Values, answered: Values) -> Values:
        return (1 - answered) * staircase._upper(u, epsilon, gamma)

    def _cdf(self, t: Values, *shapes: Values) -> Values:
        return np.where(t == 0, 1 - self._sf(t, *shapes), self._sf(-t, *shapes))

    def _reach(self, s: Values, epsilon: Values, gamma: Values, answered: Values) -> Values:
        whole = s / (1 - answered)
        return np.where(whole < 0.5, staircase._reach(np.minimum(whole, 0.5), epsilon, gamma), 0.0)

    def _absolute_moment(self, p: float, epsilon: Values, gamma: Values, answered: Values) -> Values:
        return (1 - answered) * staircase._absolute_moment(p, epsilon, gamma)

    def _entropy(self, *shapes: Values) -> Values:
        return np.full_like(shapes[2], -np.inf)  # of the point mass

    def precise(self, epsilon0: arb, gamma: arb, answered: arb) -> PreciseLoss:
        steps = staircase.precise(epsilon0, gamma)

        def delta(r: Values, epsilon: Values) -> Values:
            found = steps.delta(r, epsilon)
            return None if found is None else answered + (1 - answered) * found

        return PreciseLoss(delta)

    def privacy_loss(self, ratio: float, epsilon: float, gamma: float, answered: float) -> AtomicLoss:
        """Return the losses of the staircase, and an infinite one: no shift moves the point mass onto itself."""
        steps = staircase.privacy_loss(ratio, epsilon, gamma)
        return AtomicLoss(steps.values, (1 - answered) * steps.mass, answered)


answering_staircase = AnsweringStaircase(name="answering_staircase", shapes="epsilon, gamma, answered")
r"""The staircase mixed with a point mass at 0: ``answering_staircase(epsilon, gamma, answered, scale=sensitivity)``.

With probability p it adds nothing, so that :math:`\delta(\varepsilon) = p + (1 - p)\,\delta_{\text{staircase}}(\varepsilon)` at every shift but 0:
(ε, p)-DP, at 1 − p times the staircase's cost. **[new]**

Examples
--------
>>> law = answering_staircase(20.0, 1e-4, 0.25, scale=2.0)
>>> float(law.cdf(0.0)), float(round(law.var() / staircase(20.0, 1e-4, scale=2.0).var(), 12))
(0.625, 0.75)
"""
register_law("answering_staircase", answering_staircase)


def staircase_law(epsilon: float, sensitivity: float = 1.0, *, loss: str = "absolute") -> FrozenLaw:
    r"""Return the ε-DP staircase law of least loss; for one number no additive noise costs less.

    Raises
    ------
    DesignError
        ε or sensitivity not positive and finite; an unknown loss.

    Examples
    --------
    >>> float(round(staircase_law(1.0, loss="squared").var(), 3))
    1.918
    """
    epsilon, sensitivity = (
        positive("epsilon", epsilon, side=DOWN),
        positive("sensitivity", sensitivity, side=UP),
    )
    return staircase(epsilon, staircase_gamma(epsilon, loss), scale=sensitivity)


def upper_quantile(law: FrozenLaw, tail: float) -> float:
    """Return the t with P[T > t] = `tail`, by doubling and bisection: laws need no ``isf``."""
    low = 0.0
    high = (math.sqrt(law_variance(law)) if hasattr(law, "dist") else float(law.std())) or 1.0
    while float(law.sf(high)) > tail and high < 1e300:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if float(law.sf(middle)) > tail else (low, middle)
    return high


def half_width(law: FrozenLaw) -> float:
    """Return h with P[|T| > h] ≤ 5% for a symmetric law, rounded up to six digits; a whole number for a law on the integers."""
    found = upper_quantile(law, 0.025)
    on_integers = hasattr(getattr(law, "dist", law), "pmf")
    return float(np.floor(found)) if on_integers else float(at_most(found))


_RARE = 1e-6  # probability of errors beyond the picture


def draw_laws(laws: Mapping[str, FrozenLaw], **options: float) -> Figure:
    """Draw density (or probabilities) and the probability that the error exceeds t; the first law is the mechanism.

    Parameters
    ----------
    laws : dict of str to a law with ``pdf`` or ``pmf``, ``cdf``, ``sf`` and ``std``
    """
    fig, (above, below) = figure(2, 1, **sized(options, 5.0, 5.2))
    first = next(iter(laws.values()))
    discrete = not _continuous(first)
    far = max(upper_quantile(law, _RARE) for law in laws.values())
    near = max(upper_quantile(law, 2e-3) for law in laws.values())
    tails = {}
    for name, law in laws.items():
        t = np.linspace(0, far, 241)
        if not _continuous(law):
            t = np.unique(np.floor(t))
        tails[name] = t, np.asarray(law.sf(t), dtype=float) + np.asarray(law.cdf(-t), dtype=float)
    densities = {name: _density(law, near) for name, law in laws.items()}
    label = "probability" if discrete else "density"
    plot_curves(above, densities, "-" if discrete else None, xlabel="noise", ylabel=label, ylim=(0, None))
    plot_curves(below, tails, xlabel="t", ylabel="P[ |noise| > t ]", yscale="log", ylim=(_RARE, 1.3))
    return fig


def _continuous(law: FrozenLaw) -> bool:
    return hasattr(law, "pdf") and not hasattr(getattr(law, "dist", None), "pmf")


def _density(law: FrozenLaw, reach: float) -> tuple[Array, Array]:
    if not _continuous(law):
        last = np.ceil(reach)
        x = np.arange(-last, last + 1, max(1, (2 * last + 1) // 400))
        return x, law.pmf(x)
    x = np.linspace(-reach, reach, 481)
    return x, law.pdf(x)
