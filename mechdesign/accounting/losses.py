r"""The privacy loss of a noise law: in closed form, by its values, or from its log density.

For noise with density g and two queries Δ apart, look at the output from their midpoint: the loss

.. math:: \tilde\zeta(t) = \log g(t - \Delta/2) - \log g(t + \Delta/2)

is odd and, when g is symmetric and log-concave, non-decreasing. Everything exact in this package about a
single coordinate comes from that function and its inverse
:math:`\tilde\zeta^{-1}(\nu) = \sup\{t : \tilde\zeta(t) \le \nu\}`.

Scale and sensitivity enter only through their ratio :math:`r = \Delta/\text{scale}`, so closed forms are for unit scale and
distance r. The generator of a law of this package is a `NoiseLaw` with its own closed form; those of SciPy's normal, Laplace,
logistic, hyperbolic secant, generalised and truncated normal and discrete Laplace laws are here; any other frozen symmetric
log-concave law is differenced and inverted numerically.

The worst case of a K-dimensional additive mechanism with |d_i| ≤ Δ_i is d = (Δ_1, …, Δ_K): in one dimension
(T, T + Δ) dominates every (T, T + d), |d| ≤ Δ, and dominance survives products. A `NoiseTerm` is one factor,
repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from flint import arb
from scipy import stats

from mechdesign.checks import UP, Checked, field, frozen_parts, integer, listed, positive, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_up
from mechdesign.problem.law_moments import Generator, Tail, inverse_of, is_gaussian, of_scipy
from mechdesign.typing import Array, FrozenLaw, Numbers

Function: TypeAlias = Callable[[Array], Array]
"""A function of each entry of an array."""


@dataclass(frozen=True)
class UnitLoss:
    r"""The centred privacy loss of a symmetric law of unit scale at distance r: odd and non-decreasing.

    Attributes
    ----------
    loss, inverse : callable
        :math:`\tilde\zeta(t) = \log g(t - r/2) - \log g(t + r/2)` and
        :math:`\tilde\zeta^{-1}(\nu) = \sup\{t : \tilde\zeta(t) \le \nu\}`, vectorised.
    atoms : tuple of float
        Positive loss values that carry positive probability (with their negatives).
    edge : float
        The loss is +∞ beyond this t (bounded noise).
    kinks : tuple of float, optional
        t > 0 where the loss or the density at t ∓ r/2 is not smooth; r/2 by default.
    reach : float
        Largest t at which the loss can be evaluated; ``inf`` if the noise is bounded.
    """

    loss: Function
    inverse: Function
    atoms: tuple[float, ...] = ()
    edge: float = math.inf
    kinks: tuple[float, ...] | None = None
    reach: float = 1e7


@dataclass(frozen=True)
class AtomicLoss:
    """A privacy loss with finitely many values (staircase and discrete laws).

    Attributes
    ----------
    values, mass : ndarray
        Loss values and their probabilities.
    infinity : float
        Probability of an infinite loss.
    """

    values: Array
    mass: Array
    infinity: float = 0.0

    @property
    def points(self) -> Array:
        """The loss values, as in `GridLoss`."""
        return self.values

    @cached_property
    def log_mass(self) -> Array:
        """Logarithms of the mass."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.mass))

    def up_to(self, most: float, *, pessimistic: bool) -> AtomicLoss:
        """Return the loss with values above `most` raised to infinity, or lowered to `most` if not `pessimistic`."""
        if not pessimistic:
            return AtomicLoss(np.minimum(self.values, most), self.mass, self.infinity)
        near = self.values <= most
        beyond = float(self.mass[~near].sum()) * (1 + 1e-12)
        return AtomicLoss(self.values[near], self.mass[near], min(self.infinity + beyond, 1.0))

    @cached_property
    def atoms(self) -> tuple[float, ...]:
        """The smallest positive value if all are multiples of it; grids are aligned with it."""
        positive = self.values[self.values > 0]
        if not positive.size:
            return ()
        multiples = self.values / positive.min()
        whole = np.abs(multiples - np.rint(multiples)).max() < 1e-9
        return (float(positive.min()),) if whole else ()

    def delta(self, epsilon: Numbers) -> Array:
        """Return δ(ε) by summation."""
        gap = np.maximum(self.values - np.asarray(epsilon, dtype=float)[..., None], 0.0)
        return np.asarray(self.infinity + -np.expm1(-gap) @ self.mass)


@dataclass(frozen=True)
class TailForm:
    """A symmetric law of unit scale in ball arithmetic, on u ≥ 0.

    Attributes
    ----------
    log_density : callable
        Log density up to a constant.
    upper : callable
        P(T > u).
    end : number, optional
        End of the support, if it is bounded.
    slope : number, optional
        Limit of the log density's slope, if finite: no loss exceeds it times the distance.
    """

    log_density: Callable[[arb], arb]
    upper: Callable[[arb], arb]
    end: arb | None = None
    slope: int | None = None


@dataclass(frozen=True)
class PreciseLoss:
    """A privacy loss with countably many values, in ball arithmetic.

    Attributes
    ----------
    delta : callable
        (ratio, ε) → δ(ε), or None if it is not known or would take too long.
    largest : callable
        Fraction ratio → the largest loss, a Fraction or ``inf``; None if `delta` is not known.
    """

    delta: Callable[[arb, arb], arb | None]
    largest: Callable[[Fraction], Fraction | float | None] = lambda ratio: math.inf


@runtime_checkable
class NoiseLaw(Protocol):
    """The generator of a law (a `scipy.stats` distribution, symmetric about zero) that knows its privacy loss."""

    def privacy_loss(self, ratio: float, *shapes: float) -> UnitLoss | AtomicLoss:
        """The loss at unit scale between two queries `ratio` apart.

        Raises
        ------
        DesignError
            The law has no finite answer at this distance (a staircase beyond its step).
        """

    def precise(self, *shapes: arb) -> TailForm | PreciseLoss:
        """Return the law in ball arithmetic, for shapes of type `flint.arb`."""

    def mean_absolute(self, *shapes: float) -> float:
        """Return E|T| at unit scale."""


def _normal(r: float) -> UnitLoss:
    return UnitLoss(lambda t: r * t, lambda v: v / r)


def laplace_loss(r: float) -> UnitLoss:
    """Return the loss of Laplace noise, 2t cut off at ±r: all outcomes beyond r/2 form one atom."""

    def inverse(v: Array) -> Array:
        return np.where(v >= r, np.inf, np.where(v < -r, -np.inf, v / 2))

    return UnitLoss(lambda t: np.clip(2 * t, -r, r), inverse, (r,))


def _logistic(r: float) -> UnitLoss:
    # log density -2 log 2cosh(t/2): loss 2 log cosh(t/2 + r/4)/cosh(t/2 - r/4), bounded by r
    # log 2cosh(x) = |x| + log(1 + e^{-2|x|}); the difference of the |x| is t, cut off at ±r/2
    def loss(t: Array) -> Array:
        plus, minus = np.log1p(np.exp(-np.abs(t + r / 2))), np.log1p(np.exp(-np.abs(t - r / 2)))
        return np.asarray(2 * (np.clip(t, -r / 2, r / 2) + (plus - minus)))

    def inverse(v: Array) -> Array:
        # tanh(t/2)·tanh(r/4) = tanh(v/4), written with expm1 as tanh saturates:
        # t = log[(e^{v/2} - e^{-r/2}) / (1 - e^{(v-r)/2})] - r/2 + ... (symmetrised below for v >= 0)
        w = np.minimum(np.abs(v), r)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.log(-np.expm1(-(w + r) / 2)) - np.log(-np.expm1((w - r) / 2)) + w / 2
        t = np.where(np.abs(v) >= r, np.inf, t)
        return np.where(v >= 0, t, -t)

    return UnitLoss(loss, inverse)


def _hypsecant(r: float) -> UnitLoss:
    """Return the loss of the hyperbolic secant law: its log density −log cosh t is half of the logistic law's at 2t."""
    twice = _logistic(2 * r)
    return UnitLoss(lambda t: twice.loss(2 * t) / 2, lambda v: twice.inverse(2 * v) / 2)


def _gennorm(r: float, beta: float) -> UnitLoss:
    """Return the loss of Subbotin noise, |t|^β, without SciPy's overhead; its inverse has no closed form."""
    refuse(beta < 1, "law", f"gennorm({beta:g})", "must be log-concave: beta >= 1")
    if beta == 1:
        return laplace_loss(r)

    @np.errstate(over="ignore", invalid="ignore")
    def loss(t: Array) -> Array:
        return np.asarray(np.abs(t + r / 2) ** beta - np.abs(t - r / 2) ** beta)

    return UnitLoss(loss, inverse_of(loss, 1.0))


def truncnorm_loss(r: float, end: float) -> UnitLoss:
    """Return the normal loss r·t where both densities are positive, infinite beyond.

    Examples
    --------
    >>> loss = truncnorm_loss(0.5, 3.0)
    >>> loss.edge, loss.loss(np.array([1.0, 2.8])).tolist(), loss.inverse(np.array([0.5, 9.0])).tolist()
    (2.75, [0.5, inf], [1.0, 2.75])
    """
    edge = end - r / 2

    def loss(t: Array) -> Array:
        # points that rounding put just beyond the edge belong to it
        return np.where(np.abs(t) <= edge * (1 + 1e-15), r * t, np.copysign(np.inf, t))

    return UnitLoss(loss, lambda v: np.clip(v / r, -edge, edge), edge=edge, reach=math.inf)


def truncnorm_density(end: float) -> Function:
    """Return the log density of normal noise on [−end, end]; SciPy's takes twenty times as long."""
    peak = -math.log(math.sqrt(2 * math.pi) * math.erf(end / math.sqrt(2)))
    return lambda t: np.where(np.abs(t) <= end, peak - t * t / 2, -np.inf)


_LISTED = 10**5
"""Largest number of values of a discrete loss that are listed."""


class _SmearedLaplace(stats.rv_continuous):  # type: ignore[misc]
    """Discrete Laplace noise plus a uniform number in (-1/2, 1/2], which rounding removes: the same losses, as a function."""

    def _pdf(self, t: Any, rate: Any) -> Any:
        return np.tanh(rate / 2) * np.exp(-rate * np.abs(np.rint(t)))

    def _sf(self, t: Any, rate: Any) -> Any:
        far = np.minimum(np.abs(np.asarray(t, dtype=float)), 1e300)
        k = np.rint(far)
        upper = np.exp(-rate * k) * (1 / (1 + np.exp(rate)) + np.tanh(rate / 2) * (k + 0.5 - far))
        return np.where(np.asarray(t) < 0, 1 - upper, upper)

    def _isf(self, s: Any, rate: Any) -> Any:
        less = np.minimum(s, 1 - np.asarray(s, dtype=float))
        k = np.maximum(np.ceil(-(np.log(less) + np.log1p(np.exp(-rate))) / rate), 0.0)  # P(K > k - 1/2)
        at = np.maximum(k - 1, 0.0)
        within = (less * np.exp(rate * at) - 1 / (1 + np.exp(rate))) / np.tanh(rate / 2)
        return np.copysign(at + 0.5 - within, 0.5 - np.asarray(s))

    def _stats(self, rate: Any) -> Any:
        return 0.0, 0.5 / np.sinh(np.asarray(rate) / 2) ** 2 + 1 / 12, 0.0, None


_smeared = _SmearedLaplace(name="smeared_laplace", shapes="rate")


def smeared_loss(r: float, loss: Function, inverse: Function, largest: float = math.inf) -> UnitLoss:
    """Return the loss of integer noise k plus a uniform number in (−½, ½] at distance r: an increasing function `loss` of k − r/2."""

    def smeared(t: Array) -> Array:
        return np.clip(loss(np.floor(t + (r + 1) / 2) - r / 2), -largest, largest)

    def last(v: Array) -> Array:
        v = np.asarray(v, dtype=float)
        ends = np.floor(inverse(v) + r / 2) + (1 - r) / 2
        return np.where(v >= largest, np.inf, np.where(v < -largest, -np.inf, ends))

    return UnitLoss(smeared, last, (largest,) if math.isfinite(largest) else (), reach=math.inf)


def _discrete_laplace(r: float, rate: float) -> UnitLoss | AtomicLoss:
    """Return the loss rate·(|k + Δ| − |k|): −rΔ, then steps of 2r, up to rΔ."""
    refuse(not (r >= 1 and r == int(r)), "sensitivity", r, "must be a positive integer for discrete noise")
    if r > _LISTED:
        return smeared_loss(r, lambda k: 2 * rate * k, lambda v: v / rate / 2, rate * r)
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
"""Losses by the generator's name. Truncated normal noise is not among them: it needs a summed tail, and only some shapes are symmetric."""


@dataclass(frozen=True)
class CentredLoss:
    r"""The loss of `law` at distance `sensitivity`, with the functions that discretising it needs.

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
        t > 0 where the loss or the density at t ∓ Δ/2 is not smooth (quadrature is split there).
    reach : float
        Largest t at which the loss can be evaluated.
    """

    law: FrozenLaw
    sensitivity: float
    loss: Callable[[Numbers], Array]
    inverse: Callable[[Numbers], Array]
    sf: Callable[[Numbers], Array]
    isf: Callable[[Numbers], Array]
    atoms: tuple[float, ...] = ()
    edge: float = math.inf
    kinks: tuple[float, ...] = ()
    reach: float = 1e7

    @property
    def end_error(self) -> float:
        """Relative error of the mass beyond the edge: a piece of length Δ, with an end known to an ulp."""
        if math.isinf(self.edge) or self.edge <= 0:
            return 0.0
        return 1e-15 * (self.edge + self.sensitivity / 2) / self.sensitivity

    def masses(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Return the mass of each cell (x_i, x_{i+1}] under both queries, with bounds on their rounding errors.

        Returns
        -------
        p, q, p_error, q_error : ndarray, shape (len(x) - 1,)
            `p` under g(t − Δ/2), the query of the loss, `q` under g(t + Δ/2).
        """
        half = self.sensitivity / 2
        p, p_error = cell_masses(self.sf, x - half)
        q, q_error = cell_masses(self.sf, x + half)
        return p, q, p_error, q_error

    def outside(self, low: float, high: float) -> tuple[float, float]:
        """Return the probabilities below one point and above another, under the query of the loss."""
        half = self.sensitivity / 2
        return float(self.sf(half - low)), float(self.sf(high - half))


_ULPS = 4e-15
"""Relative error allowed to a survival function, per unit of 1 − log of its value (≈ 20 ulps, and an
exponential of a rounded argument beyond)."""


def cell_masses(sf: Function, x: Array) -> tuple[Array, Array]:
    """Return P(x_i < T ≤ x_{i+1}) of a symmetric law, and bounds on the rounding errors."""
    # By symmetry P(a < T <= b) = P(-b <= T < -a): use the side on which the tails are small.
    upper = sf(np.abs(x))
    a, b = x[:-1], x[1:]
    sa, sb = upper[:-1], upper[1:]
    right, left = a >= 0, b <= 0
    p = np.where(right, sa - sb, np.where(left, sb - sa, 1 - sa - sb))
    largest = np.where(right, sa, np.where(left, sb, 1.0))
    error = _ULPS * largest * (1 - 0.1 * np.log(np.maximum(largest, 1e-308)))
    # The points themselves are rounded: the density times an ulp of x is below sf'(x)·x·u, of the same order
    # as p·(x/width)·u; sf carries it as a relative error of its own argument, which suffices for a cell without an end.
    reach = np.where(np.isfinite(x), np.abs(x), 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        width = np.where(np.isfinite(b - a), b - a, np.inf)
        # Doubles that differ are more than a quarter of that apart: between equal ones lies nothing but the rounding of sf.
        apart = np.minimum(4e-16 * np.maximum(reach[:-1], reach[1:]) / np.maximum(width, 1e-300), 4.0)
    error = error + np.abs(p) * apart
    return np.maximum(p, 0), error


@lru_cache(maxsize=64)
def _unit_law(dist: Generator, shapes: tuple[float, ...]) -> tuple[FrozenLaw, Tail, float, float]:
    """Return the law of scale one, its tail, the end of its support as far as doubles resolve it, and its standard deviation."""
    law: FrozenLaw = dist(*shapes)
    top = float(law.support()[1])
    log_density = truncnorm_density(top) if _truncated_normal(dist, shapes) else law.logpdf
    return law, Tail(log_density, top, dist.name), _seen(law, top), float(law.std())


def _truncated_normal(dist: Generator, shapes: tuple[float, ...]) -> bool:
    return of_scipy(dist) == "truncnorm" and shapes[0] == -shapes[1]


def _seen(law: FrozenLaw, top: float) -> float:
    """Return the point where the density ends or its logarithm is no finite double."""
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


def _numeric(dist: Generator, r: float, shapes: tuple[float, ...]) -> tuple[UnitLoss, Tail]:
    """Return loss and tail from ``logpdf`` alone."""
    # Every frozen law has a generator of its own; SciPy's are equal, so that all share one tail.
    law, tail, seen, deviation = _unit_law(getattr(stats, of_scipy(dist) or "", dist), shapes)
    top = float(law.support()[1])
    if _truncated_normal(dist, shapes):
        return truncnorm_loss(r, top), tail

    def log_density(t: Array) -> Array:
        # points that rounding put just beyond the end of the support belong to it
        return np.asarray(law.logpdf(np.where(np.abs(t) <= top * (1 + 1e-15), np.clip(t, -top, top), t)))

    def loss(t: Array) -> Array:
        with np.errstate(all="ignore"):
            out = log_density(t - r / 2) - log_density(t + r / 2)
        return np.where(np.isnan(out), np.copysign(np.inf, t), out)

    reach = tail.reach if math.isinf(top) else math.inf
    return UnitLoss(loss, inverse_of(loss, deviation, seen - r / 2), edge=top - r / 2, reach=reach), tail


Loss = CentredLoss | AtomicLoss


def loss_of(law: FrozenLaw, sensitivity: float) -> Loss:
    """Return the privacy loss of a frozen law at `sensitivity`: with finitely many values, or as a function."""
    delta = positive("sensitivity", sensitivity, side=UP)
    dist, shapes, loc, scale = frozen_parts(law)
    refuse(loc != 0, "law", dist.name, "must be centred: loc = 0")
    ratio = delta / scale
    top = float(law.support()[1])
    if isinstance(dist, NoiseLaw):
        unit = dist.privacy_loss(ratio, *shapes)
    elif of_scipy(dist) in CLOSED:
        unit = CLOSED[dist.name](ratio, *shapes)
    elif isinstance(dist, stats.rv_continuous):
        unit, tail = _numeric(dist, ratio, shapes)
        return _centred(
            law, delta, unit, scale, lambda t: tail.sf(np.asarray(t) / scale), lambda s: tail.isf(s) * scale
        )
    else:
        raise DesignError.of("law", dist.name, "must be continuous, or a discrete law this package knows")
    if isinstance(unit, AtomicLoss):
        return unit
    if isinstance(dist, stats.rv_discrete):
        own: Any = getattr(dist, "smeared", None)
        law = _smeared(*shapes) if own is None else own(*shapes)
        dist = law.dist

    @np.errstate(over="ignore")
    def sf(t: Numbers) -> Array:
        # The generator's own formula, without SciPy's argument checks (they dominate the time otherwise).
        t = np.asarray(t, dtype=float)
        return np.where(t >= top, 0.0, dist._sf(np.minimum(t, top) / scale, *shapes))

    return _centred(law, delta, unit, scale, sf, law.isf)


def _centred(
    law: FrozenLaw,
    sensitivity: float,
    unit: UnitLoss,
    scale: float,
    sf: Callable[[Numbers], Array],
    isf: Callable[[Numbers], Array],
) -> CentredLoss:
    """Rescale a loss of unit scale to the law's own."""

    @np.errstate(over="ignore")
    def inverse(v: Numbers) -> Array:
        return unit.inverse(np.asarray(v, dtype=float)) * scale

    return CentredLoss(
        law,
        sensitivity,
        lambda t: unit.loss(np.asarray(t, dtype=float) / scale),
        inverse,
        sf,
        isf,
        unit.atoms,
        unit.edge * scale,
        tuple(k * scale for k in (unit.kinks or (sensitivity / scale / 2,))),
        unit.reach * scale,
    )


def centred_loss(law: FrozenLaw, sensitivity: float) -> CentredLoss:
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


@dataclass(frozen=True)
class NoiseTerm(Checked):
    """Independent noise from one law on `count` coordinates.

    Parameters
    ----------
    law : frozen scipy.stats distribution
    sensitivity : float
        Δ > 0 of each of these coordinates.
    count : int
        Number of coordinates (or rounds).
    own : float, optional
        Largest change of each of these coordinates by adding or removing a record, if records are sampled and one is replaced; by
        default half of the sensitivity.

    Examples
    --------
    >>> from scipy import stats
    >>> NoiseTerm(stats.laplace(scale=2.0), 1.0, 20).count
    20
    """

    law: FrozenLaw
    sensitivity: float = field(check=positive, side=UP)
    count: int = field(check=integer, least=1, default=1)
    own: float | None = field(check=positive, side=UP, default=None)

    @property
    def alone(self) -> float:
        """Largest change of each coordinate by adding or removing a record, if one is replaced."""
        return self.sensitivity / 2 if self.own is None else self.own


class Additive(Protocol):
    """A mechanism that adds independent noise."""

    def noise_terms(self) -> Iterable[NoiseTerm]:
        """Return the laws on its coordinates."""


Terms: TypeAlias = NoiseTerm | Additive | Iterable["NoiseTerm | Additive"]


def as_terms(terms: Terms) -> tuple[NoiseTerm, ...]:
    """Return the terms of one term, of an object with ``noise_terms()``, or of an iterable of either."""
    if isinstance(terms, NoiseTerm):
        return (terms,)
    if hasattr(terms, "noise_terms"):
        return tuple(terms.noise_terms())
    allowed = "must be NoiseTerm values or additive mechanisms, at least one"
    held = listed("terms", terms, allowed)
    alone = not all(isinstance(item, NoiseTerm) or hasattr(item, "noise_terms") for item in held)
    refuse(not held or alone, "terms", terms, allowed)
    return tuple(term for item in held for term in as_terms(item))


def merged(terms: tuple[NoiseTerm, ...]) -> tuple[NoiseTerm, ...]:
    """Return the terms with all normal coordinates alike, their loss rounded up, if there are others too and doubles hold it.

    They stay as many: one of all their loss takes a grid of many more cells.
    """
    normal = [in_sigmas(t) for t in terms if is_gaussian(t.law)]
    square = sum((n * h * (Fraction(v) / Fraction(s)) ** 2 for n, v, s, h in normal), Fraction(0))
    count = sum(n for n, *_ in normal)
    if len(normal) == len(terms) or not 1e-300 < square < 1e300:
        return terms
    alike = NoiseTerm(stats.norm(), math.sqrt(round_up(square / count)) * (1 + 4e-16), count)
    return (*(t for t in terms if not is_gaussian(t.law)), alike)


def in_sigmas(term: NoiseTerm) -> tuple[int, float, float, int]:
    """Return (n, Δ, s, h) for n coordinates with normal noise of variance s²/h."""
    dist, _, _, scale = frozen_parts(term.law)
    # gennorm(2) is exp(-t²), of variance 1/2
    return term.count, float(term.sensitivity), scale, 2 if dist.name == "gennorm" else 1
