r"""K-norm noise: density proportional to :math:`e^{-\lVert z\rVert/s}` on :math:`\mathbb R^k`.

Adding it to a vector whose norm-sensitivity is Δ is Δ/s-differentially private: the triangle inequality bounds
the log-density ratio, :math:`(\lVert z - v\rVert - \lVert z\rVert)/s \le \lVert v\rVert/s` (Hardt and Talwar 2010).

In polar form, :math:`z = r u` with u uniform in the unit ball and :math:`r \sim \mathrm{Gamma}(k + 1, s)`: given r
the density at z is :math:`1\{\lVert z\rVert \le r\}/(r^k \mathrm{vol})`, and
:math:`\int_{\lVert z\rVert}^\infty r^{-k} \cdot r^k e^{-r/s}\,dr \propto e^{-\lVert z\rVert/s}`. The norm itself
is Gamma(k, s), so :math:`E\lVert z\rVert = ks`.

**Release.** K-norm noise for deployment: whole numbers of lattice steps, drawn exactly from the operating system's randomness.

On the lattice :math:`\mathbb Z^k` the law :math:`P[z] \propto q^{\lVert z\rVert}`, :math:`q = e^{-1/d}`, is as private as its
continuous relative: a shift v loses at most :math:`\lVert v\rVert/d`, by the triangle inequality. For ℓ₁ it is a product, each
coordinate the difference of two geometric numbers. For ℓ_∞ let R have :math:`P[R] \propto (2R + 1)^k q^R` and z be uniform on
the cube :math:`\{-R, \dots, R\}^k`; then

.. math:: P[z] \propto \sum_{R \ge \lVert z\rVert_\infty} (2R + 1)^{-k} (2R + 1)^k q^R = \frac{q^{\lVert z\rVert_\infty}}{1 - q} .

R is drawn by rejection from the sum of k + 1 geometric numbers, whose weights are :math:`\binom{R + k}{k} q^R`: it is kept with the
rational probability :math:`\prod_{j=1}^k (R + \tfrac12)/(R + j)`, nearly 1 where the step is small.

**Design.** K-norm noise for a vector under pure privacy: the ball, of three, that suits the changes best.

With density :math:`\propto e^{-\lVert z\rVert/s}` a change v loses :math:`\lVert v\rVert/s` at most, so that s is the largest norm
of a change over ε. Which norm is best depends on the changes: the cube for boxes (a sixth of the variance of Laplace noise
in many dimensions), the cross-polytope, which is Laplace noise, for few changed coordinates (Hardt and Talwar 2010).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import integrate, special, stats

from mechdesign.errors import DesignError
from mechdesign.evidence.accuracy import Accuracy
from mechdesign.evidence.classes import MechanismClass, menu
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.evidence.sampling import bernoulli, geometric, uniform_below
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.pictures import half_width
from mechdesign.noise.release import noisy
from mechdesign.problem.checks import (
    UP,
    answers,
    array,
    generator,
    instance,
    integer,
    non_negative,
    one_of,
    positive,
    settle,
)
from mechdesign.problem.fields import field
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.sensitivity import Protection, Sensitivity, sensitivity
from mechdesign.problem.spine import Bound, Clock, Design, Law, relative_table
from mechdesign.typing import Array, FrozenLaw, Indices, Numbers, Randomness, Values


def norm_order(name: str, value: float | str) -> float:
    """1.0, 2.0 or inf, from a number or ``"inf"``."""
    try:
        order = math.nan if isinstance(value, (bool, np.bool_, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        order = math.nan
    if order not in (1.0, 2.0, math.inf):
        raise DesignError.of(name, value, "must be 1, 2 or inf")
    return order


def ball(dimension: int, norm: float, size: int, rng: Randomness = None) -> Array:
    """Uniform points of the unit ball of an ℓ₁, ℓ₂ or ℓ_∞ norm, shape (size, dimension); exact, no rejection.

    ℓ_∞ is a cube; ℓ₂ a Gaussian direction with radius U^{1/k}; ℓ₁ the first k of k + 1 uniform spacings
    (a uniform point of the simplex Σ ≤ 1) with random signs.

    Examples
    --------
    >>> points = ball(3, 1, 1000, rng=0)
    >>> bool((np.abs(points).sum(axis=1) <= 1).all())
    True
    """
    draws = generator(rng)
    order = norm_order("norm", norm)
    size, dimension = integer("size", size, 0, 2**40), integer("dimension", dimension, 1)
    shape = (size, dimension)
    if order == math.inf:
        return draws.uniform(-1.0, 1.0, shape)
    if order == 2:
        direction = draws.standard_normal(shape)
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return direction * draws.random((size, 1)) ** (1 / dimension)
    spacings = draws.standard_exponential((size, dimension + 1))
    points = spacings[:, :-1] / spacings.sum(axis=1, keepdims=True)
    return np.asarray(points * draws.choice([-1.0, 1.0], shape))


@serializable("knorm-noise")
@dataclass(frozen=True)
class KNormNoise:
    r"""Noise with density :math:`e^{-\lVert z\rVert/s}/(k!\,\mathrm{vol}(B)\,s^k)`.

    Parameters
    ----------
    dimension : int
        k.
    scale : float
        s, in the unit of the released vector.
    norm : {1, 2, inf}
        ℓ₁ is the product of Laplace laws.
    largest : float, optional
        The largest norm of a change, in the noise's own norm; `release` needs it.

    Examples
    --------
    >>> noise = KNormNoise(3, 0.5, norm=2)
    >>> noise.mean_norm(), noise.variance()
    (1.5, 1.0)
    >>> noise.sample(rng=0).shape, noise.sample(7, rng=0).shape
    ((3,), (7, 3))
    >>> round(noise.loss(0.25), 12)
    0.5
    """

    dimension: int
    scale: float
    norm: float = 1.0

    largest: float | None = None

    def __post_init__(self) -> None:
        dimension, scale = integer("dimension", self.dimension, 1, 10**9), positive("scale", self.scale)
        if not dimension * scale <= 1e150:  # its square is a double
            raise DesignError.of(
                "scale", scale, "must be at most 1e150 over the dimension: choose another unit"
            )
        settle(self, dimension=dimension, scale=scale, norm=norm_order("norm", self.norm))
        if self.largest is not None:
            settle(self, largest=positive("largest", self.largest, side=UP))

    @property
    def deployable(self) -> bool:
        """Whether there is an exact `release`: for norms 1 and inf, where the largest change is known."""
        return self.norm != 2 and self.largest is not None

    @cached_property
    def lattice(self) -> KNormLattice:
        """How it is released: step, shift, rate and relative increase of the scale."""
        if not self.deployable:
            raise DesignError.of(
                "release",
                type(self).__name__,
                "must know the largest change: the result of a KNorm design does"
                if self.norm != 2
                else "has no exact sampler for norm 2, sample() is for simulation: deploy KNorm(..., norm=inf) or norm=1, or "
                "the best of md.compare(...), which has release()",
            )
        assert self.largest is not None
        return knorm_lattice(self.dimension, self.scale, self.norm, self.largest)

    def sample(self, size: int | None = None, rng: Randomness = None) -> Array:
        """One vector, shape (k,), or `size` of them, (size, k)."""
        draws = generator(rng)
        rows = 1 if size is None else integer("size", size, 0, 2**40)
        radius = draws.gamma(self.dimension + 1, self.scale, (rows, 1))
        noise = radius * ball(self.dimension, self.norm, rows, draws)
        return noise[0] if size is None else noise

    def log_density(self, z: Numbers) -> Values:
        """Logarithm of the density at z, shape (..., k)."""
        k, log2 = self.dimension, math.log(2)
        volume = {
            1.0: k * log2 - special.gammaln(k + 1),
            2.0: k / 2 * math.log(math.pi) - special.gammaln(k / 2 + 1),
            math.inf: k * log2,
        }[self.norm]
        length = np.linalg.norm(np.atleast_1d(array("z", z, ndim=None)), ord=self.norm, axis=-1)
        return -length / self.scale - volume - special.gammaln(k + 1) - k * math.log(self.scale)

    @property
    def norm_law(self) -> FrozenLaw:
        """Law of ‖z‖, a frozen `scipy.stats.gamma`."""
        return stats.gamma(self.dimension, scale=self.scale)

    def mean_norm(self) -> float:
        """E‖z‖ = ks, in the noise's own norm."""
        return self.dimension * self.scale

    def variance(self) -> float:
        """Variance of each coordinate: s² times 2 (ℓ₁), k + 1 (ℓ₂), (k + 1)(k + 2)/3 (ℓ_∞)."""
        k = self.dimension
        factor = {1.0: 2.0, 2.0: k + 1.0, math.inf: (k + 1) * (k + 2) / 3}[self.norm]
        return factor * self.scale**2

    def absolute_error(self) -> float:
        """E|z_i|: s times 1 (ℓ₁), kΓ(k/2)/(√π Γ((k + 1)/2)) (ℓ₂), (k + 1)/2 (ℓ_∞)."""
        k = self.dimension
        if self.norm == 2:
            return float(k * self.scale / special.poch(k / 2, 0.5) / math.sqrt(math.pi))
        return self.scale if self.norm == 1 else (k + 1) * self.scale / 2

    def errors(self) -> Accuracy:
        """How far off one coordinate is."""
        return Accuracy(math.sqrt(self.variance()), self.absolute_error(), half_width(self.law))

    @cached_property
    def law(self) -> _Marginal:
        """The law of one coordinate: its `std` and its tail `sf`."""
        return _Marginal(self)

    def release(self, x: ArrayLike) -> Array:
        """Return vectors with noise, on a lattice some 2⁻²⁰ of the scale fine: for deployment.

        The noise is drawn exactly, from the operating system's randomness (`knorm_lattice`), and wider by
        `lattice.cost`, which pays for the rounding. Norms 1 and inf have it.

        Parameters
        ----------
        x : array, shape (..., k)

        Raises
        ------
        DataError
            A number that is not finite, or beyond 2⁵³ one that no double holds. The guarantee does not cover that refusal.
        """
        return self.lattice.release(x)

    def loss(self, shift: float) -> float:
        """Exact privacy loss when the centre moves by `shift` in the noise's norm: shift/s."""
        shift = non_negative("shift", shift)
        return math.nextafter(shift / self.scale, math.inf) if shift else 0.0


class _Marginal:
    """Tails of one coordinate: z = r u with u uniform in the ball, r Gamma(k + 1)."""

    def __init__(self, noise: KNormNoise) -> None:
        self._noise = noise

    def std(self) -> float:
        return math.sqrt(self._noise.variance())

    def sf(self, t: Numbers) -> Values:
        """P[z_i > t] for t ≥ 0."""
        k, x = self._noise.dimension, np.asarray(t, dtype=float) / self._noise.scale
        if self._noise.norm == 1 or k == 1:
            return np.exp(-x) / 2
        if self._noise.norm == math.inf:
            return (stats.gamma.sf(x, k + 1) - x / k * stats.gamma.sf(x, k)) / 2
        return np.vectorize(lambda v: self._tail(float(v)))(x)

    def _tail(self, x: float) -> float:
        k = self._noise.dimension
        law, around = stats.gamma(k), [max(x, k - 12 * math.sqrt(k)), x + k + 12 * math.sqrt(k) + 60]

        def at(r: float) -> float:
            return float(law.pdf(r) * special.betainc((k - 1) / 2, 0.5, max(1 - (x / r) ** 2, 0.0)))

        return float(integrate.quad(at, *around, limit=200)[0]) / 2


_MOST_STEPS = 1 << 48
"""Of rates: coins of them fit 63 bits; times the dimension in ℓ_∞ 2⁶ as many, numbers 256 times as large fit 62 bits."""


_DOUBT = 1e-9
"""Above the error of a probability computed in doubles."""


@dataclass(frozen=True)
class KNormLattice:
    """The lattice of a release.

    Attributes
    ----------
    dimension : int
    norm : {1, inf}
    step : float
        h, a power of two.
    shift : int
        m: how far apart, in the norm and in steps, rounded answers of neighbours may be.
    rate : int
        d: the noise is :math:`\\propto e^{-\\lVert z\\rVert/d}` in steps.
    cost : float
        Relative increase of the scale.
    """

    dimension: int
    norm: float
    step: float
    shift: int
    rate: int
    cost: float

    def draw(self, rows: int) -> Indices:
        """Draw the noise of that many vectors, in steps, shape (rows, k)."""
        steps = cross_steps if self.norm == 1 else cube_steps
        return steps(self.dimension, self.rate, rows)

    def release(self, x: Numbers) -> Array:
        """Answers of shape (..., k), rounded to the lattice, with noise."""
        held = answers("x", x, self.dimension)
        return noisy(held, self.step, self.draw(held.size // self.dimension).reshape(held.shape))


def knorm_lattice(dimension: int, scale: float, norm: float, largest: float) -> KNormLattice:
    """Return the lattice on which noise of this scale is released for changes of at most `largest` in its norm.

    Rounding moves answers v apart to at most ⌈|v_i|/h⌉ steps apart in each coordinate: ⌈Δ/h⌉ in ℓ_∞, Δ/h + k in ℓ₁. The rate is the
    least at which they lose no more than before, Δ over the scale.

    Examples
    --------
    >>> lattice = knorm_lattice(3, 2.0, math.inf, 1.0)
    >>> lattice.rate * lattice.step, lattice.cost < 1e-5
    (2.0, True)
    """
    if norm not in (1, math.inf):
        raise DesignError.of("norm", norm, "has no lattice of its own: 1 and inf have")
    unit = min(scale, largest / dimension if norm == 1 else largest)
    step = math.ldexp(1.0, math.frexp(unit)[1] - 21)
    apart = Fraction(largest) / Fraction(step)
    shift = math.floor(apart) + dimension if norm == 1 else math.ceil(apart)
    rate = math.ceil(shift * Fraction(scale) / Fraction(largest))
    if rate > _MOST_STEPS or (norm != 1 and rate * (dimension + 1) > _MOST_STEPS << 6):
        raise DesignError.of(
            "scale", scale, f"is too many steps of {step:.3g} to count them in 64 bits: raise epsilon"
        )
    return KNormLattice(
        dimension, norm, step, shift, rate, float(rate * Fraction(step) / Fraction(scale)) - 1.0
    )


def cross_steps(dimension: int, rate: int, rows: int) -> Indices:
    """Draw rows of whole numbers with probabilities exactly proportional to exp(−‖z‖₁/rate).

    Examples
    --------
    >>> cross_steps(3, 10, 2).shape
    (2, 3)
    """
    size = dimension * rows
    return (geometric(rate, size) - geometric(rate, size)).reshape(rows, dimension)


def cube_steps(dimension: int, rate: int, rows: int) -> Indices:
    """Draw rows of whole numbers with probabilities exactly proportional to exp(−‖z‖_∞/rate).

    Examples
    --------
    >>> cube_steps(3, 10, 2).shape
    (2, 3)
    """
    out = np.empty((rows, dimension), dtype=np.int64)
    block = max(1, 2**20 // (dimension + 1))
    for first in range(0, rows, block):
        radius = _radii(dimension, rate, min(block, rows - first))
        sides = np.broadcast_to((2 * radius + 1)[:, None], (len(radius), dimension))
        out[first : first + len(radius)] = uniform_below(sides) - radius[:, None]
    return out


def _radii(dimension: int, rate: int, rows: int) -> Indices:
    """R with probabilities exactly proportional to (2R + 1)^k exp(−R/rate)."""
    out, open_, j = np.empty(rows, dtype=np.int64), np.arange(rows), np.arange(1, dimension + 1)
    while open_.size:
        radius = geometric(rate, open_.size * (dimension + 1)).reshape(open_.size, -1).sum(axis=1)
        near = np.exp(np.log1p((0.5 - j) / (radius[:, None] + j)).sum(axis=1))

        def exact(i: int, radius: Indices = radius) -> Fraction:
            r = int(radius[i])
            return Fraction((2 * r + 1) ** dimension, math.prod(range(2 * r + 2, 2 * (r + dimension) + 1, 2)))

        kept = bernoulli(near, np.full(near.shape, _DOUBT), exact)
        out[open_[kept]] = radius[kept]
        open_ = open_[~kept]
    return out


_NORMS = (1.0, 2.0, math.inf)


@serializable("knorm")
@dataclass(frozen=True)
class KNorm(Design):
    r"""The best of three K-norm mechanisms for a vector under pure privacy: the lower bound is of these three alone.

    Parameters
    ----------
    dimension : int
        k.
    privacy : PureDP
    sensitivity : float or Sensitivity
        A number for every coordinate at once (for add-remove neighbours), or several bounds.
    norm : {None, 1, 2, inf}
        The norm of the noise; the one of least loss when not given.
    loss : {"squared", "absolute"}
        Of one coordinate.
    rounds : int
        How often it is answered, all under one ε.

    Examples
    --------
    >>> box = KNorm(20, PureDP(1.0)).solve()
    >>> box.mechanism.norm, round(box.value, 6)                       # Laplace noise: 2 · 20² = 800
    (inf, 154.0)
    >>> KNorm(20, PureDP(1.0), Sensitivity(linf=1, l0=3)).solve().mechanism.norm
    1.0
    >>> box.mechanism.release([0.0] * 20).shape, box.mechanism.lattice.cost < 1e-5
    ((20,), True)
    """

    asks: ClassVar[str] = "numbers"

    dimension: int = field(check=integer, least=1, most=10**6)
    privacy: PureDP = field(PureDP)
    sensitivity: float | Sensitivity = field(check=sensitivity, default=1.0)
    norm: float | None = field(check=norm_order, default=None)
    loss: str = field(check=one_of, allowed=("squared", "absolute"), default="squared")
    rounds: int = field(check=integer, least=1, most=10**9, default=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        Sensitivity.of(self.sensitivity).check(self.dimension)

    @property
    def among(self) -> MechanismClass:
        """K-norm noise of the norms allowed: other noise may cost less."""
        return menu(f"K-norm noise of norm {' or '.join(f'{order:g}' for order in self.norms)}")

    def protection(self) -> Protection:
        return Protection(self.dimension, Sensitivity.of(self.sensitivity), self.rounds)

    def largest(self, norm: float) -> float:
        """The largest norm of a change, rounded up."""
        s = Sensitivity.of(self.sensitivity)
        found = {1.0: s.largest_l1, 2.0: s.largest_l2, math.inf: s.largest_linf}
        return found[norm_order("norm", norm)](self.dimension)

    def noise(self, norm: float) -> KNormNoise:
        """The law of one norm at its least scale."""
        largest = self.largest(norm)
        exact = Fraction(largest) * self.rounds / Fraction(self.privacy.epsilon)
        if not Fraction(1, 10**150) < exact < 10**150:
            raise DesignError.of(
                "sensitivity",
                self.sensitivity,
                "over epsilon must be between 1e-150 and 1e150: doubles square it",
            )
        return KNormNoise(self.dimension, round_up(exact), norm, largest)

    def cost(self, noise: KNormNoise) -> float:
        """The loss of one coordinate."""
        instance("noise", noise, KNormNoise)
        return noise.variance() if self.loss == "squared" else noise.absolute_error()

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Compare the norms that are allowed: three closed forms, of which the least is also the bound."""
        noise = min(map(self.noise, self.norms), key=self.cost)
        value = self.cost(noise)
        notes = [f"norm of the noise: {noise.norm:g}"]
        if not noise.deployable:
            notes.insert(0, "for simulation: norm 2 has no exact release; norm=inf and norm=1 have")
        yield Law(noise, value, (KNormProof(),), notes=tuple(notes))
        yield Bound(value)

    @property
    def norms(self) -> tuple[float, ...]:
        """The norms that are allowed."""
        return _NORMS if self.norm is None else (self.norm,)

    def alternatives(self, result: Result) -> pd.DataFrame:
        rows = [("this noise", result.value)]
        rows += [(f"ℓ{order:g} noise", self.cost(self.noise(order))) for order in _NORMS]
        return relative_table(rows)

    def audit(self, result: Result) -> pd.DataFrame:
        epsilon = self.privacy.epsilon
        loss = self.largest(result.mechanism.norm) * self.rounds / result.mechanism.scale
        return pd.DataFrame(
            [("privacy", 0, loss, epsilon, epsilon - loss, math.nan, True)], columns=AUDIT_COLUMNS
        )


@serializable("knorm-proof")
@dataclass(frozen=True, eq=False)
class KNormProof(Proof):
    r"""K-norm noise of scale s is :math:`\lVert v\rVert / s`-private for a change v (Hardt and Talwar 2010, §4).

    Privacy is checked in rational numbers; the costs of the norms are closed forms in floats.
    """

    speaks_of = ("privacy", "value", "lower bound")
    bound_how = RECOMPUTED

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, law = instance("question", stated.question, KNorm), instance("law", stated.law, KNormNoise)
        loss = Fraction(design.largest(law.norm)) * design.rounds / Fraction(law.scale)
        left = Fraction(design.privacy.epsilon) - loss
        fits = law.dimension == design.dimension and law.norm in design.norms
        fits = fits and law.largest == design.largest(law.norm)
        yield Claim(
            f"privacy loss at most {design.privacy.epsilon:g}", PROVED, float(left), fits and left >= 0
        )
        room = stated.value * (1 + 1e-12) - design.cost(law)
        yield Claim(f"{design.loss} error at most {stated.value:.9g}", RECOMPUTED, room, room >= 0)
        if stated.lower_bound is None:
            return
        least = min(design.cost(design.noise(order)) for order in design.norms)
        claim = f"no {design.among.noun} costs less than {stated.lower_bound:.9g}"
        room = least * (1 + 1e-12) - stated.lower_bound
        yield Claim(claim, RECOMPUTED, room, room >= 0)
