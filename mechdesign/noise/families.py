r"""Noise laws on whole numbers, the families that `calibrate` searches by shape and scale, and Theorems 8 and 9 of flipped Huber noise.

The laws are `scipy.stats` distributions on the integers: ``dlaplace(a)``, scale 1/a (SciPy's own), and
``discrete_gaussian(sigma)`` with :math:`P(k) \propto e^{-k^2/2\sigma^2}`. Floating-point samplers leak; releases should
use `opendp_measurement`, which draws with OpenDP's exact arithmetic.

Source: Canonne, Kamath and Steinke, *The discrete Gaussian for differential privacy*, 2020.

**Closed-form guarantees of flipped Huber noise for K numbers** audit published calibrations: sufficient, not necessary.
With :math:`R(\alpha) = \alpha^2 - ([\alpha - \Delta]_+)^2` the loss in K dimensions is below an affine function of the
noise, whose upper tail is below the normal law's of scale γ: the noise is more peaked, which sums keep (sub-Gaussian
moments alone would not do). That gives a sufficient condition for (ε, δ)-DP (Theorem 8) and zero-concentrated DP
(Theorem 9) of Muthukrishnan and Kalyani, *Grafting Laplace and Gaussian distributions*, from the sensitivities Δ, Δ₁
and Δ₂ in ℓ∞, ℓ₁ and ℓ₂. A coordinate that does not change adds nothing, so K stands for how many change.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import acb, arb, ctx
from scipy import special, stats

from mechdesign.accounting.gaussian import normal_tail
from mechdesign.accounting.losses import AtomicLoss, PreciseLoss, UnitLoss, smeared_loss
from mechdesign.checks import frozen_parts, integer, non_negative, positive, refuse
from mechdesign.doubles import DOWN
from mechdesign.errors import DesignError, MissingExtra
from mechdesign.evidence.serialize import register_law
from mechdesign.noise.laws import flipped_huber, osgt, staircase, staircase_law, truncated_laplace
from mechdesign.problem.law_moments import FINITE, law_variance
from mechdesign.problem.privacy import ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array, FrozenLaw, Indices, Values

_LARGE = 100
"""Largest σ whose profile is summed in high precision: about 15 σ terms."""


LISTED = 5e4
"""Largest σ whose probabilities are listed, 77 σ of them; beyond, they are functions."""
_MIDPOINT = [-1 / 24, 7 / 5760, -31 / 967680, 127 / 154828800, -73 / 3503554560]
"""B₂(½)/2!, B₄(½)/4!, …"""


@functools.lru_cache(maxsize=8)
def _table(sigma: float) -> tuple[Indices, Array, Array]:
    """Return the integers whose probability a double holds, these probabilities, and P(K ≥ k), which has one entry more."""
    reach = int(math.ceil(38.5 * sigma)) + 2
    k = np.arange(-reach, reach + 1, dtype=np.int64)
    weights = np.exp(-((k / sigma) ** 2) / 2)
    mass = weights / weights.sum()
    return k, mass, np.append(np.cumsum(mass[::-1])[::-1], 0.0)


def _per_sigma(function: Callable[[float, Array], Array | float], sigma: Values, values: Values) -> Array:
    """Apply ``function(sigma, values)`` where each σ applies."""
    values, sigma = np.broadcast_arrays(np.asarray(values, dtype=float), np.asarray(sigma, dtype=float))
    out = np.empty(values.shape)
    for s in np.unique(sigma):
        here = sigma == s
        out[here] = function(float(s), values[here])
    return out


def _upper(sigma: float, k: Array) -> Array:
    if sigma > LISTED:
        x = np.clip((np.floor(k) + 0.5) / sigma, -40, 40)
        return np.asarray(
            special.ndtr(-x) - x * np.exp(-x * x / 2) / (24 * math.sqrt(2 * math.pi) * sigma**2)
        )
    support, _, tail = _table(sigma)
    return np.asarray(tail[np.clip(np.floor(k) + 1 - support[0], 0, support.size).astype(np.int64)])


def _quantile(sigma: float, s: Array) -> Array:
    """Return the least k with P(K > k) ≤ s."""
    if sigma > LISTED:
        near = np.ceil(-special.ndtri(s) * sigma - 0.5)
        return np.asarray(near + (_upper(sigma, near) > s) - (_upper(sigma, near - 1) <= s))
    support, _, tail = _table(sigma)
    return np.asarray(support[0] - 1 + np.searchsorted(-tail, -s), dtype=float)


class DiscreteGaussian(stats.rv_discrete):  # type: ignore[misc]
    """Generator of the discrete Gaussian law (see `discrete_gaussian`)."""

    def _argcheck(self, sigma: Values) -> Values:
        return (sigma > 0) & np.isfinite(sigma)

    def _shape_info(self) -> list[object]:
        return []

    def _logpmf(self, k: Values, sigma: Values) -> Values:
        def log_mass(s: float, k: Array) -> Array:
            peak = 1 / (s * math.sqrt(2 * math.pi)) if s > LISTED else _table(s)[1].max()
            return math.log(peak) - (k / s) ** 2 / 2

        return _per_sigma(log_mass, sigma, k)

    def _pmf(self, k: Values, sigma: Values) -> Values:
        return np.exp(self._logpmf(k, sigma))

    def _sf(self, k: Values, sigma: Values) -> Values:
        return _per_sigma(_upper, sigma, k)

    def _cdf(self, k: Values, sigma: Values) -> Values:
        return self._sf(-np.floor(k) - 1, sigma)

    def _isf(self, s: Values, sigma: Values) -> Values:
        return _per_sigma(_quantile, sigma, s)

    def _ppf(self, q: Values, sigma: Values) -> Values:
        return -self._isf(q, sigma)

    def _stats(self, sigma: Values) -> Values:
        def variance(s: float, _: Array) -> float:
            if s > _LARGE:  # by Poisson summation off the normal law's by less than σ⁴ e^(-2π²σ²) of it
                return s * s
            k, mass, _ = _table(s)
            return float(k.astype(float) ** 2 @ mass)

        return 0.0, _per_sigma(variance, sigma, sigma), 0.0, None

    def _rvs(self, sigma: Values, size: tuple[int, ...] | None = None, random_state: Values = None) -> Values:
        return self._isf(random_state.random(size), sigma).astype(np.int64)

    def mean_absolute(self, sigma: float) -> float:
        """Return E|K|."""
        if sigma > LISTED:
            return math.sqrt(2 / math.pi) * (sigma - 1 / (12 * sigma))
        k, mass, _ = _table(float(sigma))
        return float(np.abs(k) @ mass)

    def precise(self, sigma: arb) -> PreciseLoss:
        def delta(ratio: arb, epsilon: arb) -> arb | None:
            if sigma > LISTED:
                first = (epsilon * sigma * sigma / ratio - ratio / 2).ceil()
                tails = [_enclosed_upper(k, sigma) for k in (first, first + ratio)]
                return tails[0] - epsilon.exp() * tails[1]
            if sigma > _LARGE:
                return None
            shift, unit = int(float(ratio)), 1 / (2 * sigma * sigma)
            # the loss exceeds ε only after this k
            k = math.floor(float(((epsilon / unit / shift - shift) / 2).lower())) - 1
            total, centre = arb(0), max(k, 0)
            # weights fall by ratios that fall themselves, and e^{ε - loss} by a constant one: no function in the loop
            weight, fall = (-k * k * unit).exp(), (-(2 * k + 1) * unit).exp()
            short, slower = (epsilon - shift * (shift + 2 * k) * unit).exp(), (-2 * unit).exp()
            sooner, tiny = (-2 * shift * unit).exp(), arb(2) ** -ctx.prec
            if k > 0 and (rest := weight / (1 - fall)) < arb("1e-400"):
                return arb(0).union(rest)
            while True:
                total += weight * (1 - short).nonnegative_part()
                k, weight, fall, short = k + 1, weight * fall, fall * slower, short * sooner
                if k > centre and (rest := weight / (1 - fall)) < total * tiny:
                    break
            theta = acb.modular_theta(acb(0), acb(0, unit / arb.pi()))[2].real
            return (total + arb(0).union(rest)) / theta

        return PreciseLoss(delta)

    def privacy_loss(self, ratio: float, sigma: float) -> UnitLoss | AtomicLoss:
        shift = _whole(ratio)
        if sigma > LISTED:
            return smeared_loss(ratio, lambda k: k * (ratio / sigma**2), lambda v: v * (sigma**2 / ratio))
        k, mass, _ = _table(sigma)
        return AtomicLoss((shift * (shift + 2 * k)) / (2 * sigma**2), mass)

    def smeared(self, sigma: float) -> FrozenLaw:
        """Return the privacy loss of the law with a uniform number in (−½, ½] added."""
        return _smeared(sigma)


class _SmearedGaussian(stats.rv_continuous):  # type: ignore[misc]
    """A wide discrete Gaussian law plus a uniform number, which rounding removes."""

    def _pdf(self, t: Any, sigma: Any) -> Any:
        return np.exp(-((np.rint(t) / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))

    def _sf(self, t: Any, sigma: Any) -> Any:
        far = np.abs(np.asarray(t, dtype=float))
        k = np.rint(far)
        upper = _per_sigma(_upper, sigma, k) + self._pdf(k, sigma) * (k + 0.5 - far)
        return np.where(np.asarray(t) < 0, 1 - upper, upper)

    def _isf(self, s: Any, sigma: Any) -> Any:
        return -special.ndtri(s) * sigma  # by less than 1/σ², which no search sees

    def _stats(self, sigma: Any) -> Any:
        return 0.0, np.asarray(sigma) ** 2 + 1 / 12, 0.0, None


_smeared = _SmearedGaussian(name="smeared_gaussian", shapes="sigma")


def _enclosed_upper(k: arb, sigma: arb) -> arb:
    """Enclose P(K ≥ k) of a wide law, by the formula of Euler and Maclaurin at midpoints.

    With x = (k − ½)/σ it is Q(x) + Σ_m B₂ₘ(½)/(2m)! He₂ₘ₋₁(x) φ(x)/σ²ᵐ. After five terms the rest is at most 2ζ(10)/(2πσ)¹⁰ ∫ |He₁₀| φ over t > x, where
    |He₁₀(t)| ≤ 1.09 √10! e^(t²/4) (Cramér). All weights are σ √(2π) but for e^(−2π²σ²) of it.
    """
    x = (k - arb(1) / 2) / sigma
    density, total = (-x * x / 2).exp() / (2 * arb.pi()).sqrt(), (x / arb(2).sqrt()).erfc() / 2
    one, odd = arb(1), x  # He₂ₘ₋₂, He₂ₘ₋₁
    for m, share in enumerate(_MIDPOINT, 1):
        total += arb(share) * odd * density / sigma ** (2 * m)
        one = x * odd - (2 * m - 1) * one
        odd = x * one - 2 * m * odd
    rest = 3000 * (x / 2).erfc() / (2 * arb.pi() * sigma) ** 10
    return total + arb(0).union(rest).union(-rest)


discrete_gaussian = DiscreteGaussian(name="discrete_gaussian", a=-np.inf, shapes="sigma")
r"""The discrete Gaussian as a `scipy.stats` distribution: ``discrete_gaussian(sigma)``.

Examples
--------
>>> round(discrete_gaussian(3.0).var(), 6)
9.0
"""
register_law("discrete_gaussian", discrete_gaussian)


def _whole(sensitivity: float) -> int:
    if not (sensitivity >= 1 and sensitivity == int(sensitivity)):
        raise DesignError.of("sensitivity", sensitivity, "must be a positive integer for discrete noise")
    return int(sensitivity)


def discrete_laplace_law(scale: float) -> FrozenLaw:
    r"""Return SciPy's discrete Laplace law with :math:`P(k) \propto e^{-|k|/\text{scale}}`.

    Examples
    --------
    >>> law = discrete_laplace_law(2.0)
    >>> float(round(law.pmf(1) / law.pmf(0), 6))   # e^{-1/2}
    0.606531
    """
    return stats.dlaplace(1 / positive("scale", scale))


def opendp_measurement(law: FrozenLaw) -> Any:
    """Return the ``opendp.mod.Measurement`` that adds noise of this law to a vector (extra ``[opendp]``); a discrete law needs whole numbers.

    Its privacy map turns the ℓ₁ norm of a change into ε for Laplace noise, and the ℓ₂ norm into ρ for Gaussian noise.

    Raises
    ------
    DesignError
        OpenDP has no noise of this law.
    MissingExtra
        OpenDP is not installed.
    """
    with MissingExtra.needed("opendp", "OpenDP's noise"):
        import opendp.prelude as dp
    kind, shapes, _, scale = frozen_parts(law)
    name = kind.name
    if name not in ("dlaplace", "discrete_gaussian", "laplace", "norm"):
        raise DesignError.of("law", name, "is not in OpenDP, which has Laplace and Gaussian noise")
    dp.enable_features("contrib")
    atoms = dp.atom_domain(T="i64") if shapes else dp.atom_domain(T="f64", nan=False)
    if name in ("dlaplace", "laplace"):
        make, metric, scale = dp.m.make_laplace, dp.l1_distance, 1 / float(shapes[0]) if shapes else scale
    else:
        make, metric, scale = dp.m.make_gaussian, dp.l2_distance, float(shapes[0]) if shapes else scale
    return make(dp.vector_domain(atoms), metric(T="i64" if name == "dlaplace" else "f64"), scale=scale)


@dataclass(frozen=True)
class Family:
    """One family of laws, by shape and scale.

    Attributes
    ----------
    name : str
    make : callable
        ``make(shape, scale, sensitivity)`` → frozen law; privacy improves as the scale grows.
    starts : callable or None
        ``starts(epsilon, delta, dimension)`` → shapes: the ends of the family and the closed-form choices in between,
        from which the shape is searched, in this order. None if the family has no shape.
    pure : bool
        Whether δ = 0 is possible.
    closed_form : callable or None
        ``closed_form(epsilon, sensitivity, loss)`` → the best law with δ = 0 in one dimension, if there is a formula.
    discrete : bool
        Whether the noise is on the integers, for whole sensitivities.
    normal : (float, float) or None
        Shape at which the family is Gaussian, and its scale at σ = 1.
    """

    name: str
    make: Callable[[float, float, float], FrozenLaw]
    starts: Callable[[float, float, int], tuple[float, ...]] | None = None
    pure: bool = False
    closed_form: Callable[[float, float, str], FrozenLaw] | None = None
    discrete: bool = False
    normal: tuple[float, float] | None = None

    @property
    def scale_only(self) -> bool:
        """Whether the family consists of all scales of one continuous law."""
        return self.starts is None and not self.discrete

    @property
    def member(self) -> FrozenLaw:
        """One law of the family."""
        shape = 0.0 if self.starts is None else self.starts(1.0, 1e-6, 1)[0]
        return self.make(shape, 1.0, 1.0)


def _huber_starts(epsilon: float, delta: float, dimension: int) -> tuple[float, ...]:
    # from the Gaussian (0) to where Gaussian tails hold less than δ and begin beyond the sensitivity (α = b² Δ/ε): more cannot help
    laplace = math.sqrt(2 * max(-math.log(max(delta, 1e-300)), 1.0))
    return (0.0, 0.3, 1.2, 0.45 * laplace, 0.75 * laplace, max(1.5 * laplace, 1.7 * math.sqrt(epsilon)))


def _truncated_starts(epsilon: float, delta: float, dimension: int) -> tuple[float, ...]:
    if not epsilon:  # uniform noise is best at this point alone, Laplace noise where others are stricter
        return (1e-6, 700.0, 200.0, 60.0, 20.0, 6.0, 2.0, 0.5, 0.05)
    geng = math.log1p(math.expm1(min(epsilon, 500.0)) / (2 * delta)) + math.log(dimension)
    # nearly Laplace laws first: shorter ones may need noise larger by orders of magnitude
    return (1.2 * geng, 2 * geng, geng, 0.9 * geng, 0.7 * geng, 0.3 * geng)


LEAST_LAPLACE, LEAST_GAUSSIAN = 1 / 115, 1 / 20
"""Least scales of discrete laws: their variance is below 1e-49 but still a double, as SciPy computes it; more noise is safe."""


def _pure(name: str, make: Callable[[float, float, float], FrozenLaw], *, discrete: bool = False) -> Family:
    """Return a family with a scale alone, which is ε-DP at scale d/ε."""
    return Family(name, make, None, True, lambda e, d, loss: make(0.0, d / (e * DOWN), d), discrete=discrete)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("gaussian", lambda shape, scale, d: stats.norm(scale=scale), normal=(0.0, 1.0)),
        _pure("laplace", lambda shape, scale, d: stats.laplace(scale=scale)),
        _pure("logistic", lambda shape, scale, d: stats.logistic(scale=scale)),
        Family(
            "flipped_huber",
            lambda b, scale, d: flipped_huber(b, scale=scale),
            _huber_starts,
            normal=(0.0, 1.0),
        ),
        Family(
            "osgt",
            lambda b, scale, d: osgt(b, scale=scale),
            lambda e, d, k: (0.0, 0.3, 1.0, 3.0, 8.0, 30.0, 300.0, 3000.0),
            normal=(0.0, 1.0),
        ),
        Family(
            "gennorm",
            lambda p, scale, d: stats.gennorm(p, scale=scale),
            lambda e, d, k: (1.0, 1.2, 1.5, 2.0, 3.0),
            normal=(2.0, math.sqrt(2)),
        ),
        Family("truncated_laplace", lambda c, scale, d: truncated_laplace(c, scale=scale), _truncated_starts),
        Family(
            "staircase",
            # the ε of the steps falls as the scale grows: small steps in log density, much noise
            lambda gamma, scale, d: staircase(d / scale, gamma, scale=d),
            lambda e, d, k: (1e-3, 0.1, 0.3, 0.5, 0.7),
            pure=True,
            closed_form=lambda e, d, loss: staircase_law(e * DOWN, d, loss=loss),
        ),
        _pure(
            "discrete_laplace",
            lambda shape, scale, d: discrete_laplace_law(max(scale, LEAST_LAPLACE)),
            discrete=True,
        ),
        Family(
            "discrete_gaussian",
            lambda shape, scale, d: discrete_gaussian(max(scale, LEAST_GAUSSIAN)),
            discrete=True,
        ),
    )
}


def family_of(noise: FrozenLaw) -> Family:
    """Return a family by name, or for a frozen symmetric law the family of all its scales.

    Raises
    ------
    DesignError
        The name is unknown; the law is not continuous, not centred or has no finite variance.
    """
    if isinstance(noise, str) and noise in FAMILIES:
        return FAMILIES[noise]
    allowed = f"must be one of {sorted(FAMILIES)} or a frozen scipy.stats law with a density"
    refuse(not hasattr(getattr(noise, "dist", None), "_logpdf"), "noise", noise, allowed)
    dist, shapes, loc, _ = frozen_parts(noise)
    variance = law_variance(noise)
    refuse(not (math.isfinite(variance) and variance > 0), "noise", dist.name, FINITE)
    refuse(loc != 0, "noise", dist.name, "must be centred: loc = 0")
    return Family(dist.name, lambda shape, scale, d: dist(*shapes, scale=scale), pure=True)


# -- guarantees of flipped Huber noise --------------------------------------------------------------------------------


class _Moved:
    r"""In balls: :math:`b = \alpha/\gamma`, :math:`K R(\alpha)/\gamma^2`, :math:`\Delta_1/\gamma` and :math:`\Delta_2/\gamma`."""

    def __init__(self, law: FrozenLaw, sensitivity: float | Sensitivity, dimension: int) -> None:
        dist, shapes, location, gamma = frozen_parts(law)
        if dist.name != "flipped_huber" or location:
            raise DesignError.of("law", dist.name, "must be flipped_huber(alpha=..., gamma=...), centred")
        known, k = Sensitivity.of(sensitivity), integer("dimension", dimension, 1)
        known.check(k)
        self.b = arb(shapes[0])
        most, self.d1, self.d2 = (
            arb(largest(k)) / arb(gamma)
            for largest in (known.largest_linf, known.largest_l1, known.largest_l2)
        )
        inside = most.min(self.b)
        self.reach = known.count(k) * inside * (2 * self.b - inside)


def _up(value: arb) -> float:
    near = float(value.upper())
    return near if value <= near else math.nextafter(near, math.inf)


def _shift(b: arb) -> arb:
    r"""Return slightly more than θ/γ, where :math:`Q(\theta/\gamma) = \sqrt{\pi/2}/\omega`: a larger value is safe."""
    if b == 0:
        return arb(0)
    root = (arb.pi() / 2).sqrt()
    share = root / (4 * root * normal_tail(b) + 4 / b * (b * b / 2).sinh())  # √(π/2)/ω
    shift, step = max(-float(special.ndtri_exp(float(share.log()))), 0.0), 1e-12
    while not normal_tail(arb(shift)) <= share:
        shift, step = shift + step, 2 * step
    return arb(shift)


def flipped_huber_sufficient(
    law: FrozenLaw, epsilon: float, sensitivity: float | Sensitivity = 1.0, dimension: int = 1
) -> float:
    r"""Return an upper bound on δ(ε) in K dimensions by Theorem 8: the audit of a published calibration.

    .. math:: Q\!\left(\tfrac{\gamma\varepsilon}{\Delta_2} - \tfrac{\Delta_2}{2\gamma} - \tfrac{KR}{2\gamma\Delta_2}\right)
        - e^\varepsilon Q\!\left(\tfrac{\gamma\varepsilon}{\Delta_2} + \tfrac{\Delta_2}{2\gamma} + \tfrac{KR}{2\gamma\Delta_2}
        + \tfrac{\theta\Delta_1}{\gamma\Delta_2}\right),\qquad \theta = \gamma Q^{-1}(\sqrt{\pi/2}/\omega).

    The exact δ of a law is `AdditiveNoise.privacy_profile`; `calibrate` seeks the law of least variance by it.

    Parameters
    ----------
    law : frozen flipped_huber
    epsilon : float
        ε ≥ 0.
    sensitivity : float or Sensitivity
        Δ of every coordinate (then Δ₂ = √K Δ, Δ₁ = K Δ); or several bounds, whose largest norms are Δ, Δ₁ and Δ₂.
    dimension : int
        K.

    Returns
    -------
    float
        δ, rounded up; 1 where the theorem does not apply (R(α) > (2γ²ε − Δ₂²)/K).

    Raises
    ------
    DesignError
        The law is not flipped Huber, or not centred.

    Examples
    --------
    Table II prints a variance of 359.57 at K = 20, ε = 1 and δ = 1e-8. Gaussian noise of that variance is α = 0:

    >>> from mechdesign.noise import flipped_huber
    >>> f"{flipped_huber_sufficient(flipped_huber(alpha=0, gamma=359.57**0.5), 1.0, dimension=20):.2g}"
    '9.3e-07'
    """
    with ctx.workprec(256):  # two numbers that nearly cancel
        moved, e = _Moved(law, sensitivity, dimension), arb(non_negative("epsilon", epsilon))
        if moved.d2 == 0:
            return 0.0
        if not moved.reach <= 2 * e - moved.d2**2:
            return 1.0
        centre, offset = e / moved.d2, (moved.d2 + moved.reach / moved.d2) / 2
        beyond = centre + offset + _shift(moved.b) * moved.d1 / moved.d2
        found = normal_tail(centre - offset) - e.exp() * normal_tail(beyond)
        return min(max(_up(found), 0.0), 1.0)


def flipped_huber_zcdp(
    law: FrozenLaw, sensitivity: float | Sensitivity = 1.0, dimension: int = 1
) -> ZeroConcentratedDP:
    r"""Return the zCDP guarantee ξ = K R(α)/2γ², ρ = Δ₂²/2γ² of flipped Huber noise (Theorem 9), rounded up.

    Parameters
    ----------
    law, sensitivity, dimension
        As of `flipped_huber_sufficient`.

    Examples
    --------
    >>> from mechdesign.noise import flipped_huber
    >>> flipped_huber_zcdp(flipped_huber(alpha=1, gamma=4), 1.0, 4).xi
    0.125
    """
    with ctx.workprec(256):
        moved = _Moved(law, sensitivity, dimension)
        return ZeroConcentratedDP(_up(moved.d2**2 / 2), _up(moved.reach / 2))
