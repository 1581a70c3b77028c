"""Noise for vector queries, independent with a scale per coordinate: of one type, or Laplace here and Gaussian there. The exact composition of all
coordinates' losses bounds δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import NoneType

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from mechdesign.accounting.interval import delta_interval, upper_delta
from mechdesign.accounting.losses import NoiseTerm, is_gaussian
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.proofs import PROVED
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.release import ExactNoise, noisy
from mechdesign.problem.checks import doubles, inside, instance, integer, one_of, settle
from mechdesign.problem.law_moments import absolute_moment
from mechdesign.problem.mechanism import AddedNoise
from mechdesign.problem.privacy import Consumption, Pointwise, pairs_of
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array, Indices, Numbers

_STEP = 2.0**-30
"""Lattice step of a release over the scale."""


class PerCoordinate(AddedNoise):
    """What follows from the scales and from which coordinates have Laplace noise, the others having Gaussian noise."""

    scales: Array
    sensitivities: Array | None
    laplace: bool | npt.NDArray[np.bool_]
    """Where the noise is Laplace."""
    _parts: Sequence[tuple[Indices | slice, IndependentNoise]]
    """Coordinates whose noise is widened together for the lattice, and their law."""

    @property
    def dimension(self) -> int:  # type: ignore[override]
        return len(self.scales)

    @property
    def parameters(self) -> dict[str, Array]:
        """What the frame of an allocation states of each coordinate."""
        return {"scale": self.scales}

    @property
    def variance(self) -> Array:
        """Variance per coordinate."""
        return np.asarray(self.scales**2 * np.where(self.laplace, 2.0, 1.0))

    @property
    def mse(self) -> float:
        """E‖T‖₂²."""
        return float(self.variance.sum())

    def errors(self) -> Accuracy:
        """How far off an answer is, on average over the coordinates."""
        return accuracy_of(self.scales, laplace=self.laplace)

    def absolute_moment(self, order: float) -> Array:
        r"""Return :math:`E|T_i|^p` per coordinate."""
        order = inside("order", order, 0, 101)
        laplace, gaussian = (absolute_moment(noise, order) for noise in ("laplace", "gaussian"))
        return np.asarray(np.where(self.laplace, laplace, gaussian) * self.scales**order)

    def release(self, x: Numbers) -> Array:
        """Return answers with noise, each coordinate on a lattice of 2⁻³⁰ of its scale: for deployment.

        The noise is drawn exactly, from the operating system's randomness (`mechdesign.noise.release`); a coordinate without
        noise is the same for all neighbours and is returned as it is.

        Parameters
        ----------
        x : array, shape (..., K)

        Raises
        ------
        DataError
            A number that is not finite, or beyond 2⁵³ one that no double holds. The guarantee does not cover that refusal.
        """
        held = np.array(self._answers(x))
        for at, law in self._parts:
            part, step = held[..., at], law.scales * _STEP
            draws = law.exact.draw(part.size).reshape(part.shape)
            held[..., at] = np.where(step > 0, noisy(part, np.where(step > 0, step, 1.0), draws), part)
        return held

    def consumption(self) -> Consumption:
        """What a release consumes of a ledger where all coordinates change by all they may.

        For its lattice the noise is widened so that normal coordinates together consume what they did, and so do Laplace ones; of one
        of these the ratio λ/β may rise by two steps of 2⁻³⁰.
        """
        lam = np.asarray(self.sensitivities)
        moved = lam > 0
        ratio = lam[moved] / self.scales[moved]
        laplace = np.broadcast_to(self.laplace, moved.shape)[moved]
        wider = ratio[laplace] + 2**-28
        epsilon, rho = (math.fsum(v) * (1 + 1e-14) for v in (ratio[laplace], wider * np.tanh(wider / 2)))
        normal = Consumption.gaussian(math.fsum(ratio[~laplace] ** 2) * (1 + 1e-14))
        return normal + Consumption(epsilon, rho, math.inf if epsilon else 0.0)

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        laplace = self.laplace
        peaked = rng.laplace(size=shape) if np.any(laplace) else 0.0
        normal = 0.0 if np.all(laplace) else rng.standard_normal(shape)
        return np.asarray(np.where(laplace, peaked, normal) * self.scales)


@serializable("independent-noise")
@dataclass(frozen=True, eq=False)
class IndependentNoise(PerCoordinate):
    """Independent zero-mean noise, not identically distributed.

    Parameters
    ----------
    noise : {"gaussian", "laplace"}
    scales : ndarray, shape (K,)
        Standard deviations σ_i or Laplace scales β_i; 0 adds nothing to that coordinate.
    sensitivities : ndarray, shape (K,), optional
        The profile λ that the scales were made for; `release` needs it.
    bounds : Sensitivity, optional
        All bounds that changes keep, where there are others than the profile.

    Examples
    --------
    >>> law = IndependentNoise(noise="laplace", scales=np.array([1.0, 0.0]))
    >>> law.variance
    array([2., 0.])
    >>> law.sample(np.zeros((3, 2)), rng=0).shape
    (3, 2)
    """

    noise: str
    scales: Array
    sensitivities: Array | None = None
    bounds: Sensitivity | None = None

    def __post_init__(self) -> None:
        one_of("noise", self.noise, ("gaussian", "laplace"))
        settle(self, scales=profile_vector("scales", self.scales))
        if self.sensitivities is not None:
            settle(self, sensitivities=profile_vector("sensitivities", self.sensitivities, self.scales.size))
        instance("bounds", self.bounds, Sensitivity, NoneType)

    @property
    def laplace(self) -> bool:  # type: ignore[override]
        """Whether the noise is Laplace."""
        return self.noise == "laplace"

    @property
    def _parts(self) -> tuple[tuple[slice, IndependentNoise]]:  # type: ignore[override]
        return ((slice(None), self),)

    @cached_property
    def exact(self) -> ExactNoise:
        """The sampler of one coordinate in units of its scale, widened for the lattice.

        Each coordinate has the step h = 2⁻³⁰ of its scale. Rounding (`mechdesign.noise.release.noisy`) moves answers
        λ apart to at most (1 + 2⁻⁴⁸)λ/h + 2 steps apart, so that the sum of ((λ + 2h)/s)^m is what is consumed. Under further
        bounds n coordinates change, and by Minkowski's inequality the m-th root of what a change consumes rises by 2h n^(1/m)/s at
        most; the largest consumes at least what one coordinate alone does.
        """
        lam, m = self.sensitivities, 2 if self.noise == "gaussian" else 1
        if lam is None or np.any((self.scales == 0) & (lam > 0)):
            raise DesignError.of(
                "sensitivities", lam, "must be known for a release; a NoiseAllocation's result knows them"
            )
        ratio = np.divide(lam, self.scales, out=np.zeros(len(lam)), where=lam > 0)
        if float(lam.max()) > 0 and float(ratio.max()) < 1e-100:
            raise DesignError.of("scales", self.scales, "are too far above the sensitivities: raise epsilon")
        spent = float((ratio**m).sum())
        wanted = float(((ratio[lam > 0] + 2 * _STEP) ** m).sum())
        wider = (wanted / spent) ** (1 / m) * (1 + 1e-12) if spent else 1.0
        if self.bounds is not None:
            count = self.bounds.count(len(lam))
            wider = (1 + 2 * _STEP * count ** (1 / m) / float(ratio.max())) * (1 + 1e-12)
        law = stats.norm(scale=wider) if self.noise == "gaussian" else stats.laplace(scale=wider)
        return ExactNoise(law, _STEP)

    @property
    def lattice_cost(self) -> float:
        """Relative increase of the scales in a release."""
        return self.exact.scale - 1.0


def profile_vector(name: str, value: Numbers, size: int | None = None) -> Array:
    """Check a vector of one number a coordinate; it is not copied, as it may be long."""
    allowed = "must be a vector of non-negative finite numbers" + (", one a scale" if size else "")
    found = doubles(name, value, allowed)
    fits = found.ndim == 1 and found.size and size in (None, found.size)
    if not fits or not found.min() >= 0 or not found.max() < math.inf:
        raise DesignError.of(name, value, allowed)
    return found


def shape_of(size: object) -> tuple[int, ...]:
    """Return a size as SciPy takes it, None, a whole number or a sequence of them, as a shape.

    Examples
    --------
    >>> shape_of(None), shape_of(3), shape_of((2, 3))
    ((), (3,), (2, 3))
    """
    if size is None or isinstance(size, (tuple, list)):
        return tuple(integer("size", n, 0, 2**40) for n in size or ())
    return (integer("size", size, 0, 2**40),)


def accuracy_of(scales: Array, *, laplace: bool | Sequence[bool] | npt.NDArray[np.bool_] = False) -> Accuracy:
    """How far off an answer is, on average over coordinates with Laplace noise where `laplace`, else Gaussian, of these scales.

    Examples
    --------
    >>> print(accuracy_of(np.ones(2), laplace=[True, False]))
    standard deviation 1.22474, mean absolute error 0.898942, 95% within ±2.47785
    """
    variance, absolute, width = (
        np.where(laplace, a, b)
        for a, b in ((2.0, 1.0), (1.0, math.sqrt(2 / math.pi)), (math.log(20), 1.959963984540054))
    )
    return Accuracy(
        math.sqrt(float((variance * scales**2).mean())),
        float((absolute * scales).mean()),
        float((width * scales).mean()),
    )


@serializable("mixed-noise")
@dataclass(frozen=True, eq=False)
class MixedNoise(PerCoordinate):
    """Independent zero-mean noise, Laplace on some coordinates and Gaussian on the others, or Laplace on all: private by composition.

    Parameters
    ----------
    scales : array_like, shape (K,)
        β_i where the noise is Laplace, σ_i where it is Gaussian; 0 adds nothing to that coordinate.
    laplace : array_like of bool, shape (K,)
    sensitivities : array_like, shape (K,)
        The profile λ that the scales were made for.

    Examples
    --------
    >>> law = MixedNoise([1.0, 2.0, 0.0], [True, False, False], [1.0, 1.0, 0.0])
    >>> law.kinds, law.variance
    (('laplace', 'gaussian', 'none'), array([2., 4., 0.]))
    """

    scales: Array
    laplace: npt.NDArray[np.bool_]
    sensitivities: Array

    def __post_init__(self) -> None:
        scales, kinds = profile_vector("scales", self.scales), np.asarray(self.laplace)
        lam = profile_vector("sensitivities", self.sensitivities, scales.size)
        if kinds.dtype != bool or kinds.shape != scales.shape:
            raise DesignError.of("laplace", self.laplace, "must be True or False for each coordinate")
        if ((scales == 0) & (lam > 0)).any():
            raise DesignError.of("scales", self.scales, "must be positive where the query changes")
        settle(self, scales=scales, laplace=kinds, sensitivities=lam)

    @property
    def noise(self) -> str:
        """The name of the family."""
        return "laplace" if self.laplace[self.scales > 0].all() else "mixed"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The type of each coordinate: laplace, gaussian or none."""
        return tuple(
            "none" if s == 0 else "laplace" if k else "gaussian" for s, k in zip(self.scales, self.laplace)
        )

    def terms(self) -> tuple[NoiseTerm, ...]:
        r"""What is composed: normal coordinates as one of :math:`\mu = \sqrt{\sum \lambda_i^2/\sigma_i^2}`, rounded up, and
        Laplace coordinates by their ratio λ/β, rounded up; not those of `small`.
        """
        ratio = self._ratio
        normal = (ratio > 0) & ~self.laplace
        found = []
        if normal.any():
            mu = math.sqrt(math.fsum(ratio[normal] ** 2)) * (1 + 1e-15)
            found.append(NoiseTerm(stats.norm(), mu, 1))
        sizes, counts = np.unique(ratio[self._alone], return_counts=True)
        unit = stats.laplace()  # SciPy takes a millisecond for each that it freezes
        found += [NoiseTerm(unit, float(v), int(c)) for v, c in zip(sizes, counts)]
        return tuple(found)

    @property
    def small(self) -> float:
        """Σ λ/β of the Laplace coordinates whose ratio is far below the largest, rounded up: they are this private, purely."""
        return math.fsum(self._ratio[self.laplace & ~self._alone]) * (1 + 1e-15)

    @cached_property
    def _ratio(self) -> Array:
        """λ/s, rounded up, to 48 bits: ratios that are the same but for the rounding of their scales are composed as one."""
        ratio = np.divide(
            self.sensitivities, self.scales, out=np.zeros(len(self.scales)), where=self.scales > 0
        )
        mantissa, exponent = np.frexp(np.where(ratio > 0, np.nextafter(ratio, np.inf), ratio))
        return np.asarray(np.ldexp(np.ceil(np.ldexp(mantissa, 48)), exponent - 48))

    @cached_property
    def _alone(self) -> npt.NDArray[np.bool_]:
        ratio = np.where(self.laplace, self._ratio, 0.0)
        return np.asarray((ratio > 0) & (ratio >= 2.0**-16 * ratio.max()))

    @cached_property
    def _parts(self) -> tuple[tuple[Indices, IndependentNoise], ...]:  # type: ignore[override]
        """Normal coordinates, the small Laplace ones, and the others by their ratio.

        Widening for the lattice keeps the sum that a part consumes: all that counts of the first two, and of coordinates of
        one ratio that each of them is no less private than before.
        """
        found = [(np.flatnonzero(~self.laplace), "gaussian")]
        found.append((np.flatnonzero(self.laplace & ~self._alone), "laplace"))
        found += [
            (np.flatnonzero(self._alone & (self._ratio == r)), "laplace")
            for r in np.unique(self._ratio[self._alone])
        ]
        return tuple(
            (at, IndependentNoise(kind, self.scales[at], self.sensitivities[at]))
            for at, kind in found
            if at.size
        )

    @property
    def lattice_cost(self) -> float:
        """Relative increase of the root mean squared error in a release."""
        wider = np.ones(len(self.scales))
        for at, law in self._parts:
            wider[at] += law.lattice_cost
        return float(np.linalg.norm(wider * np.sqrt(self.variance)) / math.sqrt(self.mse)) - 1.0

    def composed(self, privacy: Pointwise) -> tuple[float, bool]:
        """δ of the exact composition at ε, from above, and whether a closed form or basic composition proves it; of a TradeOff the largest share of a δ.

        What is τ-private purely leaves ε − τ to the others.
        """
        terms, points = self.terms(), pairs_of(privacy)
        found = [delta_at(terms, self.small, epsilon, delta) for epsilon, delta in points]
        units = [delta if isinstance(privacy, TradeOff) else 1.0 for _, delta in points]
        return max(used / unit for (used, _), unit in zip(found, units)), all(proved for _, proved in found)


LEVELS = 32
"""Different Laplace ratios, at most: each is composed on its own."""


def delta_at(
    terms: tuple[NoiseTerm, ...], small: float, epsilon: float, delta: float = 0.0
) -> tuple[float, bool]:
    """δ at ε ≥ 0, by basic composition alone where that shows no more than `delta`.

    As noise is symmetric δ(−τ) = 1 − e^(−τ) (1 − δ(τ)), where what is τ-private purely leaves less than 0.
    """
    left = math.nextafter(epsilon - small, -math.inf) if epsilon else -small
    if left < 0:
        at_zero, proved = delta_at(terms, 0.0, 0.0, delta)
        return min((at_zero - math.expm1(left) * (1 - at_zero)) * (1 + 1e-15), 1.0), proved
    if len(terms) == 1 and terms[0].count == 1:
        found = delta_interval(terms, left)  # in closed form
        return found.upper, found.how == PROVED
    if not any(is_gaussian(t.law) for t in terms):
        total = (small + math.fsum(t.sensitivity * t.count for t in terms)) * (1 + 1e-15)
        basic = -math.expm1(epsilon - total) * (1 + 1e-14) if total > epsilon else 0.0
        if basic <= delta or len(terms) > LEVELS:
            return basic, True
        if 0 < total - epsilon <= 2 * min(t.sensitivity for t in terms):
            return barely_above(total - epsilon, sum(t.count for t in terms)), False
    return upper_delta(terms, left, width=3e-3), False


def barely_above(excess: float, count: int) -> float:
    r"""δ of Laplace noise whose ratios sum to `excess` more than ε, each at least half of that; rounded up.

    The loss is :math:`\sum r_i - 2\sum \min(x_i^+, r_i)`, above ε only where no minimum is :math:`r_i`; :math:`x_i^+` is 0 or
    exponential with probability ½ each, so that n of them that are not 0 sum to a gamma variable X of shape n:
    :math:`\delta = \sum_n 2^{-K}\binom Kn E(1 - e^{2X - \text{excess}})^+`. A grid would need a step far below the excess.

    Examples
    --------
    >>> round(barely_above(0.3, 1) / -math.expm1(-0.15), 9)  # one coordinate: 1 − exp((ε − Δ/β)/2)
    1.0
    """
    n, half = np.arange(1, min(count, 200) + 1), excess / 2
    part = special.gammainc(n, half)
    part -= (
        math.exp(-excess)
        * np.exp(n * math.log(half) - special.gammaln(n + 1))
        * special.hyp1f1(n, n + 1, half)
    )
    chances = stats.binom.pmf(np.arange(len(n) + 1), count, 0.5)
    left = float(special.gammainc(n[-1] + 1, half)) if count > len(n) else 0.0
    return float(chances[0] * -math.expm1(-excess) + chances[1:] @ np.maximum(part, 0.0) + left) * (1 + 1e-11)
