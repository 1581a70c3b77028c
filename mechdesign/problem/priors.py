r"""Priors of the inputs: laws on a bounded interval, used through their partial moments.

Every exact expectation in this package is a sum over intervals of partial moments

.. math:: \mu_k(a, b) = \int_{[a, b)} x^k \, dF(x), \qquad k = 0, 1, 2,

so a prior is any law that provides them: a frozen `scipy.stats` law of bounded support, the same law *clipped*
to a range (point masses at its ends), *truncated* to it (renormalised), or an array of samples. `density` makes a law
from a function. Uniform, normal, truncated normal and beta laws have moments in closed form; they are recognised by class, never by
name. Every other law is integrated (`law_moments`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy import special, stats

from mechdesign.checks import (
    Checked,
    array,
    cached_parts,
    field,
    frozen_parts,
    interval,
    number,
    refuse,
    support_of,
)
from mechdesign.errors import DesignError
from mechdesign.evidence.digits import fields_shown, law_shown, shown
from mechdesign.evidence.serialize import register_law, serializable
from mechdesign.problem.law_moments import law_integrals, mirrored_density
from mechdesign.typing import Array, FrozenLaw, Numbers, Randomness

# -- partial moments in closed form --------------------------------------------------------------------------------


def powers(x: Array) -> Array:
    """Return x⁰, x¹ and x², shape (n, 3)."""
    return np.stack([np.ones_like(x), x, x * x], axis=1)


def _uniform(edges: Array, loc: float, scale: float) -> Array:
    a, b = edges[:-1], edges[1:]
    width = (b - a) / scale
    return np.stack([width, width * (a + b) / 2, width * (a * a + a * b + b * b) / 3], axis=1)


def _moved(n0: Array, n1: Array, n2: Array, loc: float, scale: float) -> Array:
    """Return the moments of loc + scale·X from those of X."""
    second = loc**2 * n0 + 2 * loc * scale * n1 + scale**2 * n2
    return np.stack([n0, loc * n0 + scale * n1, second], axis=1)


def _normal(edges: Array, loc: float, scale: float, nearest: float = 0.0) -> Array:
    """Return the moments times exp(nearest²/2), so that far tails do not underflow; `nearest` is the least |z| of interest."""
    z = (edges - loc) / scale
    with np.errstate(invalid="ignore", over="ignore"):
        density = np.exp((nearest - np.abs(z)) * (nearest + np.abs(z)) / 2) / np.sqrt(2 * np.pi)
        tail = special.erfcx(np.abs(z) / np.sqrt(2)) * np.sqrt(np.pi / 2) * density
        weighted = np.where(np.isfinite(z), z, 0.0) * density
    # Differences of the smaller tail keep their relative accuracy.
    below, above, middle = np.diff(tail), -np.diff(tail), np.diff(special.ndtr(z))
    mass = np.where(z[:-1] > 0, above, np.where(z[1:] < 0, below, middle))
    return _moved(mass, -np.diff(density), mass - np.diff(weighted), loc, scale)


def _truncated_normal(edges: Array, loc: float, scale: float, a: float, b: float) -> Array:
    nearest = max(a, -b, 0.0)
    ends = loc + scale * np.array([a, b])
    return _normal(edges, loc, scale, nearest) / float(_normal(ends, loc, scale, nearest)[0, 0])


def _beta(edges: Array, loc: float, scale: float, a: float, b: float) -> Array:
    y, rest = np.clip((edges - loc) / scale, 0.0, 1.0), np.clip((loc + scale - edges) / scale, 0.0, 1.0)

    def cells(a: float) -> Array:
        # Right of the middle use the other tail: near a pole at y = 1, 1 − y has digits that y has lost.
        below, above = special.betainc(a, b, y), special.betainc(b, a, rest)
        right = y > 0.5
        left = np.where(right, 1.0 - above, below)[1:] - below[:-1]
        return np.asarray(np.where(right[:-1], above[:-1] - above[1:], left))

    n0, n1, n2 = cells(a), cells(a + 1) * a / (a + b), cells(a + 2) * a * (a + 1) / ((a + b) * (a + b + 1))
    return _moved(n0, n1, n2, loc, scale)


_CLOSED: dict[type, Callable[..., Array]] = {
    type(stats.uniform): _uniform,
    type(stats.norm): _normal,
    type(stats.truncnorm): _truncated_normal,
    type(stats.beta): _beta,
}


def law_moments(law: FrozenLaw, edges: Array, within: tuple[float, float] | None = None) -> Array:
    """Return ∫ x^k dF, k = 0, 1, 2, over the cells between `edges`; shape (len(edges) − 1, 3).

    Parameters
    ----------
    law : frozen scipy.stats law
    edges : ndarray (K + 1,)
    within : (float, float), optional
        Interval outside which mass is ignored, for the mesh; by default from the first edge to the last.
    """
    dist, shapes, loc, scale = cached_parts(law)
    if type(dist) not in _CLOSED:
        return law_integrals(law, powers, edges, within, smooth=True)
    edges = np.clip(np.asarray(edges, dtype=float), *support_of(law))
    if within is not None:
        edges = np.clip(edges, *within)
    return _CLOSED[type(dist)](edges, loc, scale, *shapes)


def _mirrored(law: FrozenLaw, reach: float) -> bool:
    """Whether the law is symmetric about zero on [−reach, reach], by its parameters or by its density at the mesh's nodes."""
    dist, shapes, loc, _ = cached_parts(law)
    if type(dist) is type(stats.norm):
        return loc == 0.0
    if type(dist) is type(stats.truncnorm):
        return loc == 0.0 and shapes[0] == -shapes[1]
    if type(dist) in _CLOSED:
        start, stop = support_of(law)
        return start == -stop and shapes[:1] == shapes[1:]
    return mirrored_density(law, reach)


# -- priors ---------------------------------------------------------------------------------------------------------


class Prior(ABC):
    """A law of the input on [lower, upper]: a density part plus finitely many point masses."""

    @property
    @abstractmethod
    def support(self) -> tuple[float, float]:
        """The smallest interval known to hold all the mass."""

    @property
    def atoms(self) -> tuple[Array, Array]:
        """Point masses: sorted positions and their weights."""
        return np.zeros(0), np.zeros(0)

    def continuous_moments(self, edges: Array) -> Array:
        """Partial moments of the density part: shape (len(edges) − 1, 3)."""
        return self.continuous_integrals(powers, edges)

    @property
    def closed_form(self) -> bool:
        """Whether the partial moments need no quadrature."""
        return True

    def pdf(self, x: Numbers) -> Array:
        """Density of the continuous part."""
        return np.zeros(np.shape(x))

    def continuous_integrals(self, function: Callable[[Array], Array], edges: Array) -> Array:
        """Integrals of a vector-valued `function` against the density part, one row per interval."""
        width = np.asarray(function(np.asarray(edges[:1], dtype=float))).shape[-1]
        return np.zeros((len(edges) - 1, width))

    @abstractmethod
    def sample(self, size: int | tuple[int, ...], rng: Randomness = None) -> Array:
        """Draw inputs."""

    @staticmethod
    def of(spec: object, input_range: tuple[float, float] | None = None, *, unbounded: bool = False) -> Prior:
        """Return the prior that `spec` names, checked against the input range.

        Parameters
        ----------
        spec : Prior, frozen scipy.stats law, or array_like of samples
        input_range : (float, float), optional
            Range of the inputs; defaults to the support.
        unbounded : bool
            Whether the support may be unbounded.

        Raises
        ------
        DesignError
            Not a law, unbounded support, NaN samples, or mass outside the range.
        """
        prior = _parse(spec)
        lower, upper = prior.support
        if not (unbounded or (math.isfinite(lower) and math.isfinite(upper))):
            remedy = "cut it with md.clipped(law, lower, upper) or md.truncated(law, lower, upper)"
            raise DesignError.of("prior", spec, f"has the unbounded support ({lower}, {upper}); {remedy}")
        input_range = None if input_range is None else interval("input_range", input_range)
        # A law's own support is rounded (loc + scale): a few units in the last place are no mass outside.
        slack = 1e-14 * max(abs(lower), abs(upper))
        if input_range is not None and (lower < input_range[0] - slack or upper > input_range[1] + slack):
            remedy = "use md.clipped or md.truncated"
            support = f" (its support is [{lower:g}, {upper:g}])"
            if isinstance(prior, EmpiricalPrior):
                support, remedy = "", "clip the samples"
            raise DesignError(
                f"prior has mass outside the input range [{input_range[0]:g}, {input_range[1]:g}]{support}: widen the range or {remedy}"
            )
        return prior

    @staticmethod
    def ranged(spec: object, input_range: object = None) -> tuple[Prior, tuple[float, float]]:
        """Return the prior that `spec` names, and the range of the inputs: as stated, or the support of a law.

        Raises
        ------
        DesignError
            As in `of` and `stated_range`.

        Examples
        --------
        >>> from scipy import special, stats
        >>> Prior.ranged(stats.uniform(-1, 2))[1], Prior.ranged([0.2, 0.6], (-1, 1))[1]
        ((-1.0, 1.0), (-1.0, 1.0))
        """
        parsed = _parse(spec)
        stated = stated_range(parsed, input_range)
        prior = Prior.of(parsed, stated)
        return prior, stated or prior.support

    def moments(self, edges: Numbers) -> Array:
        """Partial moments of order 0, 1, 2 on [e_k, e_{k+1}), the last interval closed; shape (K, 3).

        Examples
        --------
        >>> from scipy import special, stats
        >>> Prior.of(stats.uniform(-1, 2)).moments([-1, 0, 1])
        array([[ 0.5       , -0.25      ,  0.16666667],
               [ 0.5       ,  0.25      ,  0.16666667]])
        """
        edges = np.asarray(edges, dtype=float)
        return self._with_atoms(self.continuous_moments(edges), powers, edges)

    def integrals(self, function: Callable[[Array], Array], edges: Numbers) -> Array:
        """Integrals of `function` (points (n,) → values (n, d)) over the cells of `moments`; shape (K, d)."""
        edges = np.asarray(edges, dtype=float)
        return self._with_atoms(self.continuous_integrals(function, edges), function, edges)

    def _with_atoms(self, table: Array, function: Callable[[Array], Array], edges: Array) -> Array:
        points, weights = self.atoms
        if points.size:
            inside = (points >= edges[0]) & (points <= edges[-1])
            cell = np.searchsorted(edges, points[inside], side="right") - 1
            values = weights[inside, None] * np.asarray(function(points[inside]), dtype=float)
            np.add.at(table, np.minimum(cell, len(edges) - 2), values)
        return table

    @property
    def mean(self) -> float:
        """Expected input."""
        lower, upper = self.support
        return float(self.moments(np.array([lower, upper]))[0, 1])

    @abstractmethod
    def symmetric(self) -> bool:
        """Whether the law equals its mirror image about zero."""

    @abstractmethod
    def standardised(self, centre: float, unit: float) -> Prior:
        """Return the law of (X − centre)/unit."""

    def clip(self, lower: float, upper: float) -> Prior:
        """Return the law of X clipped to [lower, upper].

        Raises
        ------
        DesignError
            The prior is a truncated law other than a normal one: no class of priors represents its clipped law.
        """
        allowed = "cannot be clipped: give input_range, or its samples"
        raise DesignError.of("prior", type(self).__name__, allowed)


def stated_range(prior: Prior, input_range: object) -> tuple[float, float] | None:
    """Return the stated range of the inputs, or None if the support of the law gives it.

    Raises
    ------
    DesignError
        No range for samples: inputs beyond them would not be protected, and outputs would reveal the least and the largest.
    """
    if input_range is not None:
        return interval("input_range", input_range)
    remedy = "must be (lower, upper) with samples as prior, which do not say where other inputs lie"
    refuse(isinstance(prior, EmpiricalPrior), "input_range", None, remedy)
    return None


def _parse(spec: object) -> Prior:
    if isinstance(spec, Prior):
        return spec
    if hasattr(spec, "dist") or type(spec) is stats.rv_histogram:
        return LawPrior(spec)
    if isinstance(spec, (list, tuple)) or (hasattr(spec, "__array__") and not isinstance(spec, type)):
        return EmpiricalPrior(spec)  # type: ignore[arg-type]
    allowed = "must be a frozen scipy.stats law, md.clipped, md.truncated or samples"
    raise DesignError.of("prior", spec, allowed)


def _law(name: str, law: FrozenLaw) -> FrozenLaw:
    """Return a frozen continuous law with scalar parameters, or raise DesignError."""
    if type(law) is stats.rv_histogram:  # a generator without shapes: freeze it
        law = law()
    remedy = "must be a frozen scipy.stats law; cut samples with numpy.clip or by selecting them"
    refuse(not hasattr(law, "dist") or not callable(getattr(law, "support", None)), name, law, remedy)
    refuse(not hasattr(law, "pdf"), "prior", law, "must be a continuous law; of a discrete one pass samples")
    try:
        good = not any(math.isnan(float(v)) for v in (*law.support(), law.cdf(0.0)))
    except (TypeError, ValueError):
        good = False
    remedy = "has parameters outside its law's domain, or more than one value each"
    refuse(not good, "prior", law, remedy)
    return law


@lru_cache(maxsize=256)
def _rescaled(law: FrozenLaw, centre: float, unit: float) -> FrozenLaw:
    if (centre, unit) == (0.0, 1.0):
        return law
    _, shapes, loc, scale = frozen_parts(law)
    return law.dist(*shapes, loc=(loc - centre) / unit, scale=scale / unit)


@dataclass(frozen=True, repr=False)
class _Continuous(Checked, Prior):
    """Base of laws with a density: integrals against `_source` over [lower, upper], times `_factor`."""

    law: FrozenLaw = field(check=_law)

    def __repr__(self) -> str:
        return fields_shown(self)

    @property
    def _source(self) -> FrozenLaw:
        """The frozen law to integrate against."""
        return self.law

    @property
    def _factor(self) -> float:
        return 1.0

    def continuous_moments(self, edges: Array) -> Array:
        return self._factor * law_moments(self._source, edges, self.support)

    def pdf(self, x: Numbers) -> Array:
        x = np.asarray(x, dtype=float)
        lower, upper = self.support
        density = np.asarray(self._source.pdf(x), dtype=float)
        # 0 at a pole: a node rounds onto a pole only in a cell that is an ulp or two wide
        return self._factor * np.where((x >= lower) & (x <= upper) & np.isfinite(density), density, 0.0)

    def continuous_integrals(self, function: Callable[[Array], Array], edges: Array) -> Array:
        return self._factor * law_integrals(self._source, function, edges, self.support)

    @property
    def closed_form(self) -> bool:
        return type(self._source.dist) in _CLOSED

    def symmetric(self) -> bool:
        lower, upper = self.support
        return lower == -upper and _mirrored(self._source, upper)


@serializable("prior-law", repr=False)
class LawPrior(_Continuous):
    """A frozen continuous `scipy.stats` law."""

    @cached_property
    def support(self) -> tuple[float, float]:
        lower, upper = self.law.support()
        return float(lower), float(upper)

    def standardised(self, centre: float, unit: float) -> LawPrior:
        return LawPrior(_rescaled(self.law, centre, unit))

    def clip(self, lower: float, upper: float) -> ClippedPrior:
        return ClippedPrior(self.law, lower, upper)

    def sample(self, size: int | tuple[int, ...], rng: Randomness = None) -> Array:
        return np.asarray(self.law.rvs(size=size, random_state=np.random.default_rng(rng)))


@dataclass(frozen=True, repr=False)
class _CutPrior(_Continuous):
    lower: float = field(check=number)
    upper: float = field(check=number)

    def _post_check(self) -> None:
        interval("(lower, upper)", (self.lower, self.upper))

    @property
    def support(self) -> tuple[float, float]:
        return self.lower, self.upper

    def standardised(self, centre: float, unit: float) -> _CutPrior:
        ends = (self.lower - centre) / unit, (self.upper - centre) / unit
        return type(self)(_rescaled(self.law, centre, unit), *ends)

    def sample(self, size: int | tuple[int, ...], rng: Randomness = None) -> Array:
        return np.asarray(np.clip(self._drawn(size, np.random.default_rng(rng)), self.lower, self.upper))

    def _drawn(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(self._source.rvs(size=size, random_state=rng))


@serializable("prior-clipped", repr=False)
class ClippedPrior(_CutPrior):
    """The law of ``clip(X, lower, upper)``: mass outside the range becomes point masses at its ends."""

    @property
    def atoms(self) -> tuple[Array, Array]:
        weights = np.array([float(self.law.cdf(self.lower)), float(self.law.sf(self.upper))])
        keep = weights > 0
        return np.array([self.lower, self.upper])[keep], weights[keep]

    def clip(self, lower: float, upper: float) -> ClippedPrior:
        return ClippedPrior(self.law, max(lower, self.lower), min(upper, self.upper))


@serializable("prior-truncated", repr=False)
class TruncatedPrior(_CutPrior):
    """The law of X given that it lies in [lower, upper]."""

    def _post_check(self) -> None:
        super()._post_check()
        ends = f"[{self.lower:g}, {self.upper:g}]"
        DesignError.when(not self._mass > 0, f"the law has no mass in {ends}: nothing is left to truncate to")

    @cached_property
    def _source(self) -> FrozenLaw:
        """The law, or for a normal law SciPy's truncated one, which is accurate however far out the range is."""
        if type(self.law.dist) is not type(stats.norm):
            return self.law
        _, _, loc, scale = frozen_parts(self.law)
        ends = (self.lower - loc) / scale, (self.upper - loc) / scale
        return stats.truncnorm(*ends, loc=loc, scale=scale)

    @cached_property
    def _mass(self) -> float:
        return float(law_moments(self._source, np.array([self.lower, self.upper]), self.support)[0, 0])

    @cached_property
    def _factor(self) -> float:
        return 1.0 / self._mass

    def clip(self, lower: float, upper: float) -> Prior:
        return (
            super().clip(lower, upper)
            if self._source is self.law
            else ClippedPrior(self._source, lower, upper)
        )

    def _drawn(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        if self._source is not self.law:
            return super()._drawn(size, rng)
        low, high = self.law.cdf([self.lower, self.upper])
        if low < 0.5:
            return np.asarray(self.law.ppf(rng.uniform(low, high, size)))
        low, high = self.law.sf([self.upper, self.lower])
        return np.asarray(self.law.isf(rng.uniform(low, high, size)))


def _sorted(name: str, value: Numbers) -> Array:
    found = np.sort(array(name, value, ndim=None).ravel())
    found.setflags(write=False)
    return found


@serializable("prior-samples", eq=False)
class EmpiricalPrior(Checked, Prior):
    """Every sample with the same weight."""

    samples: Array = field(check=_sorted)

    def __repr__(self) -> str:
        return f"EmpiricalPrior({self.samples.size} samples)"

    @property
    def support(self) -> tuple[float, float]:
        return float(self.samples[0]), float(self.samples[-1])

    @property
    def atoms(self) -> tuple[Array, Array]:
        points, counts = np.unique(self.samples, return_counts=True)
        return points, counts / self.samples.size

    def symmetric(self) -> bool:
        return bool(np.array_equal(self.samples, -self.samples[::-1]))

    def standardised(self, centre: float, unit: float) -> EmpiricalPrior:
        return EmpiricalPrior((self.samples - centre) / unit)

    def clip(self, lower: float, upper: float) -> EmpiricalPrior:
        return EmpiricalPrior(np.clip(self.samples, lower, upper))

    def sample(self, size: int | tuple[int, ...], rng: Randomness = None) -> Array:
        return np.asarray(np.random.default_rng(rng).choice(self.samples, size=size))


def clipped(law: FrozenLaw, lower: float, upper: float) -> ClippedPrior:
    """Return the law clipped to [lower, upper], with point masses at the ends.

    Examples
    --------
    >>> from scipy import special, stats
    >>> clipped(stats.norm(0.5, 0.3), -1, 1).atoms[1].round(4)
    array([0.    , 0.0478])
    """
    return ClippedPrior(law, lower, upper)


def truncated(law: FrozenLaw, lower: float, upper: float) -> TruncatedPrior:
    """Return the law conditioned on [lower, upper].

    Examples
    --------
    >>> from scipy import special, stats
    >>> round(truncated(stats.norm(0, 1), -1, 1).pdf(0.0).item(), 4)
    0.5844
    """
    return TruncatedPrior(law, lower, upper)


def prior_words(spec: object) -> str:
    """Return the prior as a phrase.

    Examples
    --------
    >>> from scipy import special, stats
    >>> prior_words(stats.uniform(-1, 2))
    'the law uniform(-1, 2) on [-1, 1]'
    """
    prior = Prior.of(spec)
    if isinstance(prior, EmpiricalPrior):
        return f"{len(prior.samples)} samples"
    low, high = (shown(v) for v in prior.support)
    if not isinstance(prior, LawPrior | ClippedPrior | TruncatedPrior):
        return f"a law on [{low}, {high}]"
    law = prior.law
    cuts: dict[type, str] = {ClippedPrior: ", clipped to", TruncatedPrior: ", truncated to"}
    return f"the law {law_shown(law)}{cuts.get(type(prior), ' on')} [{low}, {high}]"


_PANELS = 512
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_AGREE = 1e-11


class _Density(stats.rv_continuous):  # type: ignore[misc]
    """The law on [a, b] with density proportional to a function, integrated panel by panel."""

    def __init__(
        self, function: Callable[[Array], Numbers], a: float, b: float, name: str, **options: Any
    ) -> None:
        super().__init__(a=a, b=b, name=name, **options)
        self._function = function
        self._edges = np.linspace(a, b, _PANELS + 1)
        parts = self._panels(self._edges[:-1], self._edges[1:])
        self._below: Array = np.append(0.0, np.cumsum(parts))
        self._total = float(self._below[-1])

    def _panels(self, left: Array, right: Array) -> Array:
        width = (right - left)[:, None]
        values = np.asarray(self._function((left[:, None] + width * (1 + _NODES) / 2).ravel()), dtype=float)
        found: Array = (values.reshape(len(left), -1) * _WEIGHTS).sum(axis=1) * width[:, 0] / 2
        return found

    def _pdf(self, x: Numbers) -> Array:
        return np.asarray(self._function(np.asarray(x, dtype=float)), dtype=float) / self._total

    def _cdf(self, x: Numbers) -> Array:
        x = np.asarray(x, dtype=float)
        flat = np.clip(x.ravel(), self.a, self.b)
        k = np.clip(np.searchsorted(self._edges, flat, side="right") - 1, 0, _PANELS - 1)
        inside = self._panels(self._edges[k], flat)
        return np.asarray(np.clip((self._below[k] + inside) / self._total, 0.0, 1.0)).reshape(x.shape)

    def _updated_ctor_param(self) -> dict[str, Any]:
        held = super()._updated_ctor_param()
        return {**held, "function": self._function}


def density(function: Callable[[Array], Numbers], lower: float, upper: float, *, name: str) -> FrozenLaw:
    """Return the law on [lower, upper] with density proportional to `function`, a prior for any design.

    Results with such a prior can be saved; a program that loads them must first make the same density under the same name.

    Parameters
    ----------
    function : callable
        Non-negative and smooth on the range, vectorised; it need not integrate to 1.
    lower, upper : float
    name : str
        Name of the density in files.

    Returns
    -------
    frozen scipy.stats distribution

    Raises
    ------
    DesignError
        Not a function of arrays; negative, infinite or zero values; not smooth enough to be integrated to 1e-11 (cut the
        range where it has a kink or jump, or give samples).

    Examples
    --------
    >>> law = density(lambda x: 1 + x**2, -1, 1, name="bowl")
    >>> round(float(law.cdf(0.5)), 6), round(float(law.pdf(0.0)), 6)
    (0.703125, 0.375)
    """
    low, high = interval("(lower, upper)", (lower, upper))
    refuse(not callable(function), "function", function, "must be a function of an array of numbers")
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(function(np.linspace(low, high, 4097)), dtype=float)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise DesignError.of("function", name, f"fails on an array of numbers: {error}") from None
    if values.shape != (4097,) or not np.isfinite(values).all() or values.min() < 0 or not values.any():
        wanted = "must give one finite, non-negative number for each number, not all zero"
        raise DesignError.of("function", name, wanted)
    made = _Density(function, low, high, name)
    halves = np.linspace(low, high, 2 * _PANELS + 1)
    finer = float(made._panels(halves[:-1], halves[1:]).sum())
    remedy = "is not smooth enough to be integrated: cut the range at kinks and jumps"
    refuse(not abs(finer - made._total) <= _AGREE * finer, "function", name, remedy)
    register_law(name, made)
    return made()
