r"""K-norm noise: density proportional to :math:`e^{-\lVert z\rVert/s}` on :math:`\mathbb R^k`.

Adding it to a vector whose norm-sensitivity is Δ is Δ/s-differentially private: the triangle inequality bounds
the log-density ratio, :math:`(\lVert z - v\rVert - \lVert z\rVert)/s \le \lVert v\rVert/s` (Hardt and Talwar 2010).

In polar form, :math:`z = r u` with u uniform in the unit ball and :math:`r \sim \mathrm{Gamma}(k + 1, s)`: given r
the density at z is :math:`1\{\lVert z\rVert \le r\}/(r^k \mathrm{vol})`, and
:math:`\int_{\lVert z\rVert}^\infty r^{-k} \cdot r^k e^{-r/s}\,dr \propto e^{-\lVert z\rVert/s}`. The norm itself
is Gamma(k, s), so :math:`E\lVert z\rVert = ks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import integrate, special, stats

from mechdesign.errors import DesignError
from mechdesign.evidence.accuracy import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.knorm_release import KNormLattice, knorm_lattice
from mechdesign.noise.pictures import half_width
from mechdesign.problem.checks import UP, array, generator, non_negative, positive, settle, whole
from mechdesign.typing import Array

__all__ = ["KNormNoise", "ball", "norm_order"]

_LARGEST = 1e150
"""Noise whose square is a double."""


def norm_order(name: str, value: Any) -> float:
    """1.0, 2.0 or inf, from a number or ``"inf"``."""
    try:
        order = math.nan if isinstance(value, (bool, np.bool_, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        order = math.nan
    if order not in (1.0, 2.0, math.inf):
        raise DesignError.of(name, value, "must be 1, 2 or inf")
    return order


def ball(dimension: int, norm: float, size: int, rng: Any = None) -> Array:
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
    size, dimension = whole("size", size, 0, 2**40), whole("dimension", dimension, 1)
    shape = (size, dimension)
    if order == math.inf:
        return draws.uniform(-1.0, 1.0, shape)
    if order == 2:
        direction = draws.standard_normal(shape)
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return direction * draws.random((size, 1)) ** (1 / dimension)
    spacings = draws.standard_exponential((size, dimension + 1))
    points = spacings[:, :-1] / spacings.sum(axis=1, keepdims=True)
    return points * draws.choice([-1.0, 1.0], shape)


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
        dimension, scale = whole("dimension", self.dimension, 1, 10**9), positive("scale", self.scale)
        if not dimension * scale <= _LARGEST:
            raise DesignError.of(
                "scale", scale, f"must be at most {_LARGEST:g} over the dimension: choose another unit"
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

    def sample(self, size: int | None = None, rng: Any = None) -> Array:
        """One vector, shape (k,), or `size` of them, (size, k)."""
        draws = generator(rng)
        rows = 1 if size is None else whole("size", size, 0, 2**40)
        radius = draws.gamma(self.dimension + 1, self.scale, (rows, 1))
        noise = radius * ball(self.dimension, self.norm, rows, draws)
        return noise[0] if size is None else noise

    def log_density(self, z: ArrayLike) -> Any:
        """Logarithm of the density at z, shape (..., k)."""
        k, log2 = self.dimension, math.log(2)
        if self.norm == 1:
            volume = float(k * log2 - special.gammaln(k + 1))
        elif self.norm == 2:
            volume = float(k / 2 * math.log(math.pi) - special.gammaln(k / 2 + 1))
        else:
            volume = float(k * log2)
        length = np.linalg.norm(np.atleast_1d(array("z", z, ndim=None)), ord=self.norm, axis=-1)
        return -length / self.scale - volume - special.gammaln(k + 1) - k * math.log(self.scale)

    @property
    def norm_law(self) -> Any:
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
            # Γ(k/2)/Γ((k + 1)/2): the logarithms' difference loses digits where k is large, their series does not
            x = 1 / k
            series = 1 + x / 4 + x**2 / 32 - 5 * x**3 / 128 - 21 * x**4 / 2048 + 399 * x**5 / 8192
            logs = special.gammaln(k / 2) - special.gammaln((k + 1) / 2)
            ratio = math.exp(logs) if k < 300 else series * math.sqrt(2 / k)
            return float(k * self.scale * ratio / math.sqrt(math.pi))
        return self.scale if self.norm == 1 else (k + 1) * self.scale / 2

    def errors(self) -> Accuracy:
        """How far off one coordinate is."""
        return Accuracy(math.sqrt(self.variance()), self.absolute_error(), half_width(self.law))

    @cached_property
    def law(self) -> Any:
        """The law of one coordinate: its `std` and its tail `sf`."""
        return _Marginal(self)

    def release(self, x: ArrayLike) -> Array:
        """Return vectors with noise, on a lattice some 2⁻²⁰ of the scale fine: for deployment.

        The noise is drawn exactly, from the operating system's randomness (`mechdesign.noise.knorm_release`), and wider by
        `lattice.cost`, which pays for the rounding. Norms 1 and inf have it.

        Parameters
        ----------
        x : array, shape (..., k)
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

    def sf(self, t: Any) -> Any:
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

        return integrate.quad(at, *around, limit=200)[0] / 2
