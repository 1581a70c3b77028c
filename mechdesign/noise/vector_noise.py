r"""Independent noise for vector queries: Laplace or Gaussian with a scale for each coordinate, a mix of both, or one cell law on all.

The exact composition of all coordinates' losses bounds δ. Noise of P3 and P4 (`mechdesign.noise.allocation`) is
`IndependentNoise`, released by `PerCoordinate.release` on a lattice; what that costs is proved at
`IndependentNoise.exact`.

**One cell law on every coordinate**: with :math:`D_k(\alpha) = \sum_j [p_j - \alpha p_{j+k}]_+` of a shift by k cells,
a shift by :math:`(k + \theta)\beta` has :math:`(1-\theta) D_k + \theta D_{k+1}`: the pair of laws is that of k or of
k + 1 cells, by a coin that may be seen. K shifted coordinates are therefore a mixture of products over whole cells, and
whatever dominates every :math:`D_k`, k ≤ n, dominates in each factor. :math:`D_n` does, by itself for all laws that the
search of `OptimalNoise` finds, else with the largest :math:`D_k - D_n` as a further infinite loss; both are piecewise
linear, so that the points where they bend decide.

Tails are followed until their masses underflow; the mass beyond counts as infinite loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy import stats

from mechdesign import checks
from mechdesign.accounting.composition import composed_delta
from mechdesign.accounting.grids import discretise_atoms
from mechdesign.accounting.interval import DeltaInterval, delta_interval, upper_delta
from mechdesign.accounting.losses import AtomicLoss, NoiseTerm
from mechdesign.checks import doubles, field, inside, integer, one_of, settle
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import folded
from mechdesign.evidence.exact import least_kept, round_down, round_up
from mechdesign.evidence.proofs import PROVED
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise
from mechdesign.noise.laws import draw_laws
from mechdesign.noise.release import AddedNoise, ExactNoise, noisy
from mechdesign.problem.law_moments import absolute_moment, is_gaussian
from mechdesign.problem.privacy import Consumption, Pointwise, pairs_of
from mechdesign.problem.sensitivity import Sensitivity, exponent_of
from mechdesign.typing import Array, Figure, Flags, Indices, Numbers, Values

_STEP = 2.0**-30
"""Lattice step of a release, divided by the scale."""


def profile_vector(name: str, value: Numbers, size: int | None = None) -> Array:
    """Check a vector of one number a coordinate; it is not copied, as it may be long."""
    allowed = "must be a vector of non-negative finite numbers" + (", one per scale" if size else "")
    found = doubles(name, value, allowed)
    fits = found.ndim == 1 and found.size and size in (None, found.size)
    checks.refuse(not fits or not found.min() >= 0 or not found.max() < math.inf, name, value, allowed)
    return found


class PerCoordinate(AddedNoise):
    """Noise given by a scale for each coordinate: Laplace on some coordinates, Gaussian on the others."""

    scales: Array
    sensitivities: Array | None
    laplace: bool | npt.NDArray[np.bool_]
    """Coordinates with Laplace noise."""
    lattice: Sequence[tuple[Indices | slice | Flags, Array, ExactNoise]]
    """Groups of coordinates whose noise is widened together for the lattice: their lattice steps, and the sampler of each."""

    @property
    def dimension(self) -> int:  # type: ignore[override]
        return len(self.scales)

    @property
    def parameters(self) -> dict[str, Array]:
        """The columns of an allocation's frame, one value a coordinate."""
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
        """Return the errors of an answer, on average over the coordinates."""
        return accuracy_of(self.scales, laplace=self.laplace)

    def absolute_moment(self, order: float) -> Array:
        r"""Return :math:`E|T_i|^p` per coordinate."""
        order = inside("order", order, 0, 101)
        laplace, gaussian = (absolute_moment(noise, order) for noise in ("laplace", "gaussian"))
        return np.asarray(np.where(self.laplace, laplace, gaussian) * self.scales**order)

    def release(self, x: Numbers) -> Array:
        """Return answers with noise, each coordinate on a lattice of its own, of 2⁻³⁰ of a Laplace or Gaussian scale: for deployment.

        Answers are rounded to the lattice first. Adding rounded noise then equals rounding the sum with continuous noise, whose guarantee
        carries over (`IndependentNoise.exact` accounts for the rounding, so do the samplers of `CoordinateNoise`). The noise is drawn exactly, from the operating system's randomness
        (`mechdesign.noise.release`); a coordinate without noise is the same for all neighbours and is returned as it is.

        Parameters
        ----------
        x : array, shape (..., K)

        Raises
        ------
        DataError
            A number is not finite or, beyond 2⁵³, held by no double. The guarantee does not cover that refusal.
        """
        held = np.array(self._answers(x))
        for at, step, exact in self.lattice:
            part = held[..., at]
            draws = exact.draw(part.size).reshape(part.shape)
            held[..., at] = np.where(step > 0, noisy(part, np.where(step > 0, step, 1.0), draws), part)
        return held

    def consumption(self) -> Consumption:
        """Return what a release consumes where every coordinate changes by its sensitivity.

        A release widens the noise, so that on its lattice the Gaussian coordinates together consume no more than stated, and the Laplace ones
        together no more. The ratio λ/β of a single Laplace coordinate may still rise by two steps of 2⁻³⁰.
        """
        lam = np.asarray(self.sensitivities)
        moved = lam > 0
        ratio = lam[moved] / self.scales[moved]
        laplace = np.broadcast_to(self.laplace, moved.shape)[moved]
        wider = ratio[laplace] + 4 * _STEP
        epsilon, rho = (math.fsum(v) * (1 + 1e-14) for v in (ratio[laplace], wider * np.tanh(wider / 2)))
        normal = Consumption.gaussian(math.fsum(ratio[~laplace] ** 2) * (1 + 1e-14))
        return normal + Consumption(epsilon, rho, math.inf if epsilon else 0.0)

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        laplace = self.laplace
        peaked = rng.laplace(size=shape) if np.any(laplace) else 0.0
        normal = 0.0 if np.all(laplace) else rng.standard_normal(shape)
        return np.asarray(np.where(laplace, peaked, normal) * self.scales)


@serializable("independent-noise", eq=False)
class IndependentNoise(checks.Checked, PerCoordinate):
    """Independent zero-mean noise, not identically distributed.

    Parameters
    ----------
    noise : {"gaussian", "laplace"}
    scales : ndarray, shape (K,)
        Standard deviations σ_i or Laplace scales β_i; 0 adds nothing to that coordinate.
    sensitivities : ndarray, shape (K,), optional
        The profile λ that the scales were made for; `release` needs it.
    bounds : Sensitivity, optional
        All bounds that changes keep, if there are others than the profile.

    Examples
    --------
    >>> law = IndependentNoise(noise="laplace", scales=np.array([1.0, 0.0]))
    >>> law.variance
    array([2., 0.])
    >>> law.sample(np.zeros((3, 2)), rng=0).shape
    (3, 2)
    """

    noise: str = field(check=one_of, allowed=("gaussian", "laplace"))
    scales: Array = field(check=profile_vector)
    sensitivities: Array | None = field(
        check=profile_vector, size=lambda self: self.scales.size, default=None
    )
    bounds: Sensitivity | None = field(Sensitivity, default=None)

    @property
    def laplace(self) -> bool:  # type: ignore[override]
        """Whether the noise is Laplace."""
        return self.noise == "laplace"

    @property
    def lattice(self) -> tuple[tuple[slice, Array, ExactNoise]]:  # type: ignore[override]
        """All coordinates, their lattice steps and their sampler."""
        return ((slice(None), self.scales * _STEP, self.exact),)

    @cached_property
    def exact(self) -> ExactNoise:
        """The sampler of one coordinate in units of its scale, widened for the lattice.

        Each coordinate has the step h = 2⁻³⁰ of its scale. Rounding (`mechdesign.noise.release.noisy`) turns a difference of
        λ into at most (1 + 2⁻⁴⁸)λ/h + 2 steps, so that the sum of ((λ + 2h)/s)^m is consumed. Under further
        bounds n coordinates change, and by Minkowski's inequality the m-th root of what a change consumes rises by at most
        2h n^(1/m)/s; the worst change consumes at least as much as one coordinate alone.
        """
        lam, m = self.sensitivities, exponent_of(self.noise)
        if lam is None or np.any((self.scales == 0) & (lam > 0)):
            allowed = "must be known for a release; a NoiseAllocation's result knows them"
            raise DesignError.of("sensitivities", lam, allowed)
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


def accuracy_of(scales: Array, *, laplace: bool | Sequence[bool] | npt.NDArray[np.bool_] = False) -> Accuracy:
    """Return the average errors over coordinates of these scales, with Laplace noise where `laplace`, else Gaussian.

    Examples
    --------
    >>> print(accuracy_of(np.ones(2), laplace=[True, False]))
    standard deviation 1.22474, mean absolute error 0.898942, 95% within ±2.47785
    """
    units = (2.0, 1.0), (1.0, math.sqrt(2 / math.pi)), (math.log(20), 1.959963984540054)
    variance, absolute, width = (np.where(laplace, a, b) for a, b in units)
    means = (float((unit * scales).mean()) for unit in (absolute, width))
    return Accuracy(math.sqrt(float((variance * scales**2).mean())), *means)


@serializable("mixed-noise", eq=False)
class MixedNoise(checks.Checked, PerCoordinate):
    """Independent zero-mean noise, Laplace on some or all coordinates and Gaussian on the others, private by composition.

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

    scales: Array = field(check=profile_vector)
    laplace: npt.NDArray[np.bool_] = field(bool, np.bool_, many=True)
    sensitivities: Array = field(check=profile_vector, size=lambda self: self.scales.size)

    def _post_check(self) -> None:
        scales, each = self.scales, "must be True or False for each coordinate"
        checks.refuse(len(self.laplace) != scales.size, "laplace", self.laplace, each)
        still = ((scales == 0) & (self.sensitivities > 0)).any()
        checks.refuse(still, "scales", scales, "must be positive where the query changes")
        settle(self, laplace=np.array(self.laplace))

    @property
    def noise(self) -> str:
        """The name of the family."""
        return "laplace" if self.laplace[self.scales > 0].all() else "mixed"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The type of each coordinate: laplace, gaussian or none."""
        return tuple(
            np.where(self.scales == 0, "none", np.where(self.laplace, "laplace", "gaussian")).tolist()
        )

    def terms(self) -> tuple[NoiseTerm, ...]:
        r"""Return the terms to compose, rounded up: all Gaussian coordinates as one of :math:`\mu = \sqrt{\sum \lambda_i^2/\sigma_i^2}`, and
        Laplace coordinates by their ratio λ/β.
        """
        ratio = self._ratio
        normal = (ratio > 0) & ~self.laplace
        found = []
        if normal.any():
            mu = math.sqrt(math.fsum(ratio[normal] ** 2)) * (1 + 1e-15)
            found.append(NoiseTerm(stats.norm(), mu, 1))
        sizes, counts = np.unique(ratio[(ratio > 0) & self.laplace], return_counts=True)
        unit = stats.laplace()  # SciPy takes a millisecond to freeze a law
        found += [NoiseTerm(unit, float(v), int(c)) for v, c in zip(sizes, counts)]
        return tuple(found)

    @cached_property
    def _ratio(self) -> Array:
        """λ/s, rounded up to 48 bits: ratios that differ by the rounding of their scales only are composed as one."""
        ratio = np.divide(
            self.sensitivities, self.scales, out=np.zeros(len(self.scales)), where=self.scales > 0
        )
        mantissa, exponent = np.frexp(np.where(ratio > 0, np.nextafter(ratio, np.inf), ratio))
        return np.asarray(np.ldexp(np.ceil(np.ldexp(mantissa, 48)), exponent - 48))

    @cached_property
    def lattice(self) -> tuple[tuple[Indices, Array, ExactNoise], ...]:  # type: ignore[override]
        """The Gaussian coordinates, and the Laplace ones by their ratio.

        Widening for the lattice keeps the sum that a part consumes. Only that sum counts for the Gaussian ones; coordinates of
        one ratio are each as private as before.
        """
        ratio = self._ratio
        groups = [~self.laplace, *(self.laplace & (ratio == r) for r in np.unique(ratio[self.laplace]))]
        kinds = ["gaussian"] + ["laplace"] * (len(groups) - 1)
        found = []
        for at, kind in ((np.flatnonzero(group), kind) for group, kind in zip(groups, kinds) if group.any()):
            law = IndependentNoise(kind, self.scales[at], self.sensitivities[at])
            found.append((at, law.scales * _STEP, law.exact))
        return tuple(found)

    @property
    def lattice_cost(self) -> float:
        """Relative increase of the root mean squared error in a release."""
        wider = np.ones(len(self.scales))
        for at, _, exact in self.lattice:
            wider[at] += exact.scale - 1.0
        return float(np.linalg.norm(wider * np.sqrt(self.variance)) / math.sqrt(self.mse)) - 1.0

    def composed(self, privacy: Pointwise) -> tuple[float, bool]:
        """Return δ of the exact composition at ε, from above, and whether a closed form or basic composition proves it.

        For a TradeOff it is the largest share of a δ.
        """
        terms, points = self.terms(), pairs_of(privacy)
        found = [delta_at(terms, epsilon, delta) for epsilon, delta in points]
        units = [delta if isinstance(privacy, TradeOff) else 1.0 for _, delta in points]
        return max(used / unit for (used, _), unit in zip(found, units)), all(proved for _, proved in found)


LEVELS = 32
"""Largest number of different Laplace ratios: each is composed by itself."""


def delta_at(terms: tuple[NoiseTerm, ...], epsilon: float, delta: float = 0.0) -> tuple[float, bool]:
    """Return δ at ε ≥ 0 and whether it is proved; basic composition is used alone if it gives at most `delta`."""
    if len(terms) == 1 and terms[0].count == 1:
        found = delta_interval(terms, epsilon)  # in closed form
        return found.upper, found.how == PROVED
    basic = 1.0
    if not any(is_gaussian(t.law) for t in terms):
        total = math.fsum(t.sensitivity * t.count for t in terms) * (1 + 1e-15)
        basic = -math.expm1(epsilon - total) * (1 + 1e-14) if total > epsilon else 0.0
        if basic <= delta or len(terms) > LEVELS:
            return basic, True
    return min(basic, upper_delta(terms, epsilon, width=3e-3)), False


# -- one cell law on every coordinate -----------------------------------------------------------------------------


@serializable("cell-product")
class CellProduct(checks.Checked, AddedNoise):
    r"""Independent noise of one cell law on every coordinate of a query.

    Each coordinate may move by up to n cells of the law (``law.cells_per_shift``), all K at once or c of them.

    Parameters
    ----------
    law : CellNoise or IntegerNoise
        Symmetric about 0.
    dimension : int
        K ≥ 1.
    l0 : int, optional
        c ≤ K: the most coordinates that may move at once; all when not given.

    Raises
    ------
    DesignError
        The law is not symmetric, or the dimension is no whole number.

    Examples
    --------
    >>> noise = CellProduct(CellNoise((1, 2, 4, 8, 4, 2, 1), 1.0, -3.5, cells_per_shift=1), 3)
    >>> round(noise.variance, 4), round(noise.delta_interval(1.0).upper, 3)
    (1.9924, 0.3)
    """

    law: CellNoise | IntegerNoise = field(CellNoise, IntegerNoise)
    dimension: int = field(check=integer, least=1, most=10**9)
    l0: int | None = field(check=integer, least=1, most=lambda self: self.dimension, default=None)

    def _post_check(self) -> None:
        checks.refuse(not self.law.symmetric, "law", "its start or weights", "must be symmetric about 0")

    @property
    def moved(self) -> int:
        """Largest number of coordinates that move at once."""
        return self.l0 or self.dimension

    @property
    def variance(self) -> float:
        """Variance of one coordinate."""
        return self.law.var()

    @property
    def absolute_error(self) -> float:
        """E|T| of one coordinate."""
        return self.law.expected_loss("absolute")

    def errors(self) -> Accuracy:
        """Return the errors of the answer to one coordinate."""
        return self.law.errors()

    def plot(self, **options: float) -> Figure:
        """Draw the law of one coordinate and its tail."""
        return draw_laws({"this noise": self.law}, **options)

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(self.law.rvs(shape, rng))

    @property
    def lattice(self) -> int:
        """The lattice of each coordinate's law."""
        return self.law.lattice

    def release(self, x: Numbers) -> Array:
        """Return answers with noise, drawn exactly from the operating system's randomness: for deployment.

        The composition for real shifts holds for the released lattice too, coordinate by coordinate (`CellNoise.release`).

        Parameters
        ----------
        x : array, shape (..., K)

        Raises
        ------
        DataError
            A number is not finite or, beyond 2⁵³, held by no double. The guarantee does not cover that refusal.
        """
        given = checks.read("x", x)
        held = checks.answers("x", given, self.dimension)
        return self.law.release(given if isinstance(self.law, IntegerNoise) else held)

    def delta_interval(self, epsilon: float) -> DeltaInterval:
        """Enclose δ(ε) over every change of the query by at most n cells in each coordinate that may move."""
        epsilon = min(checks.non_negative("epsilon", epsilon), 1e6)
        return many_interval(on_cells(self.law), self.moved, epsilon)

    def privacy_profile(self, epsilon: Numbers) -> Values:
        """Return δ(ε), from above.

        Parameters
        ----------
        epsilon : float or ndarray
            ε ≥ 0.
        """
        return checks.each("epsilon", epsilon, lambda e: self.delta_interval(e).upper)

    def epsilon(self, delta: float) -> float:
        """Return the least ε certified at `delta`, rounded up; ``inf`` if there is none."""
        delta = checks.probability("delta", delta)

        def over(epsilon: float) -> float:
            upper = self.delta_interval(epsilon).upper
            return math.log(upper / delta) if upper > delta > 0 else upper - delta

        return least_kept(over, 1.0, least=0.0, most=1e6, xtol=1e-9, rtol=1e-9)

    def summary(self) -> str:
        """Describe the law and its cost."""
        law = on_cells(self.law)
        kind, reach = "cell" if law is self.law else "whole-number", law.cells_per_shift * law.width
        some = "" if self.moved == self.dimension else f"of at most {self.l0} at once "
        changes = f"for changes {some}up to {reach:.6g} each"
        return f"{kind} noise on {self.dimension} coordinates, {changes}, variance {self.variance:.6g} per coordinate"

    def __str__(self) -> str:
        return folded(self.summary())


def on_cells(law: CellNoise | IntegerNoise) -> CellNoise:
    """Return the law on cells; for noise on the whole numbers the one whose middles it is."""
    return law.cells if isinstance(law, IntegerNoise) else law


def _moved(law: CellNoise, k: int) -> tuple[Array, Array, float]:
    """Return masses p and q of the cells where both laws have mass when the second is k cells to the left, without a spike; and the mass without partner."""
    p, beyond = law.extended
    q = np.append(p[k:], np.zeros(min(k, len(p))))
    seen = (p > 0) & (q > 0)
    return p[seen], q[seen], float(p[q == 0].sum()) + beyond


def _curve(a: Array, b: Array, odds: Array) -> Array:
    """Return the sum of [a − odds b]₊ at every odds."""
    order = np.argsort(a / b)
    above, below = (np.append(np.cumsum(x[order][::-1])[::-1], 0.0) for x in (a, b))
    i = np.searchsorted((a / b)[order], odds, side="right")
    return np.asarray(np.maximum(above[i] - odds * below[i], 0.0))


@lru_cache(maxsize=32)
def shifted_losses(law: CellNoise) -> tuple[AtomicLoss, AtomicLoss]:
    """Return the privacy loss of n cells from below, and one that dominates every shift up to n cells: what others lose more is an infinite loss.

    Curves are compared where one of them bends; rounding is added.
    """
    n = law.cells_per_shift
    a, b, lost = _moved(law, n)
    more, values = 0.0, np.log(a) - np.log(b)
    for k in range(1, n):
        mine, its, gone = _moved(law, k)
        odds = np.concatenate([[0.0], a / b, mine / its])
        more = max(more, float((_curve(mine, its, odds) + gone - _curve(a, b, odds) - lost).max()))
    infinite = lost + more + float(law.spike / law.total) + 4.5e-16 * len(a) + 1e-15
    sure = max(lost - law.extended[1], 0.0) * (1 - 1e-12) if not law.decay else 0.0
    return AtomicLoss(values, a, sure), AtomicLoss(values, a * (1 + 1e-14), min(infinite, 1.0))


def _composed(loss: AtomicLoss, count: int, epsilon: float, *, pessimistic: bool) -> float:
    """Return δ(ε) of `count` coordinates from above or below, on a grid of at least 20,000 steps that contains the largest loss."""
    if loss.infinity >= 1 or not loss.values.size:
        return 1.0 if pessimistic else loss.infinity
    spread, top = float(np.ptp(loss.values)), float(np.abs(loss.values).max())
    step = top / math.ceil(20_000 * top / (spread or top)) if top else 1.0
    grid = discretise_atoms(loss, step, pessimistic=pessimistic)
    return composed_delta([(grid, count)], epsilon)


def many_interval(law: CellNoise, count: int, epsilon: float) -> DeltaInterval:
    """Enclose δ(ε) of `count` coordinates with noise of this law, over all shifts up to n cells in each.

    The lower end is that of all coordinates shifted by n cells, the upper end at most that of basic composition.
    """
    if count == 1:
        sums = law.hockey_stick(epsilon)
        return DeltaInterval(round_down(sums[law.cells_per_shift]), round_up(max(sums.values())), PROVED)
    basic = min(round_up(count * law.exact_delta(min(Fraction(epsilon) / count, Fraction(1000)))), 1.0)
    if not basic:
        return DeltaInterval(0.0, 0.0, PROVED)
    below, above = shifted_losses(law)
    upper = min(basic, _composed(above, count, epsilon, pessimistic=True))
    return DeltaInterval(min(_composed(below, count, epsilon, pessimistic=False), upper), upper)
