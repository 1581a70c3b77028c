r"""K-norm noise (Hardt and Talwar 2010): one draw for all numbers that one person moves together, of the best norm.

The norm whose noise costs least is chosen among those whose balls hold all changes: ℓ₁, ℓ₂, ℓ_∞, the hull of "at most c numbers
change, each by at most b_i" and that of "all rise or all fall". ℓ₁ noise is Laplace noise; in many dimensions ℓ_∞ noise has a sixth of its
variance. The exact δ of exponential ℓ₂ noise is known
(`mechdesign.noise.radial.round_delta`; the ℓ₂ mechanism, arXiv 2502.15929): where δ is small it costs less than Gaussian noise.

**The mechanism** is radial in a norm (`mechdesign.noise.radial`), of density :math:`\propto e^{-\lVert z\rVert/s}` on :math:`\mathbb R^k` or a staircase of the norm. Adding it
to a vector whose norm-sensitivity is Δ is Δ/s-differentially private by the triangle inequality, hence (ε, δ)-DP and zCDP
at somewhat larger budgets (`mechdesign.problem.privacy.implied_by_pure`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from flint import arb
from numpy.typing import ArrayLike
from scipy import special, stats

from mechdesign.doubles import SMALLEST
from mechdesign.errors import DesignError
from mechdesign.evidence.digits import folded
from mechdesign.evidence.exact import excess, least_kept, round_down, round_up
from mechdesign.evidence.proofs import (
    CLAIMED,
    PROVED,
    REAL_NOISE,
    RECOMPUTED,
    Certificate,
    Claim,
    ClosedBound,
    LawProof,
    MechanismClass,
    every,
    menu,
)
from mechdesign.evidence.results import AUDIT_COLUMNS, Accuracy, Result
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.balls import (
    GRAIN,
    Ball,
    Hull,
    Planes,
    Rows,
    Vectors,
    hull_cached,
    hull_of,
    planes_around,
    planes_cached,
    short,
)
from mechdesign.noise.laws import draw_vectors, half_width
from mechdesign.noise.radial import (
    LEAST_GAMMA,
    LEAST_KEPT,
    MOST_LEVELS,
    RadialLattice,
    Shells,
    radial_lattice,
    round_delta,
    whole_bits,
)
from mechdesign.noise.release import noisy
from mechdesign.problem.checks import (
    UP,
    Checked,
    array,
    field,
    inside,
    instance,
    integer,
    non_negative,
    one_of,
    positive,
    settle,
)
from mechdesign.problem.mechanism import AddedNoise
from mechdesign.problem.privacy import (
    ApproximateDP,
    Consumption,
    PureDP,
    ZeroConcentratedDP,
    implied_by_pure,
    pure_epsilon,
)
from mechdesign.problem.sensitivity import (
    Protection,
    Sensitivity,
    neighbours_field,
    neighbours_of,
    sensitivity,
)
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.problem.words import Description
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices, Numbers, Values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CAPPED = 400
"""Largest dimension of a hull with a cap: beyond, its volume needs sums of too many digits, and most draws are rejected."""
_MOST_LISTED = 32
"""Largest number of coordinates that listed changes move."""
_LEAST_LISTED = 1e-6
"""Least share of the box around listed changes that their hull fills: a release takes seconds."""
_MOST_ROUND = 2000
"""Largest dimension in which the δ of ℓ₂ noise is computed: beyond, it costs at most .4% less than Gaussian noise (ε = 1)."""
_MOST_COUNTED = 64.0, 0.5
"""Largest ε and δ at which the δ of ℓ₂ noise is computed: sums for larger ones need thousands of digits."""
_MOST_TERMS = 5_000_000
"""Largest size of a list of changes with its faces' determinants: the stand-alone verifier takes 5 s for it."""


_NORMS = (1.0, 2.0, math.inf)


def norm_order(name: str, value: float | str) -> float:
    """Return 1.0, 2.0 or inf from a number or ``"inf"``."""
    try:
        order = math.nan if isinstance(value, (bool, np.bool_, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        order = math.nan
    if order not in (1.0, 2.0, math.inf):
        raise DesignError.of(name, value, "must be 1, 2 or inf")
    return order


def spanning(name: str, value: ArrayLike | None) -> Array:
    """Read a list of vectors that span the coordinates in which they are not zero."""
    found = array(name, value, ndim=2)
    moved = found[:, found.any(axis=0)]
    size, most = moved.shape[1], np.abs(moved).max(axis=0, initial=0)
    if not 1 < size <= _MOST_LISTED:
        allowed = f"may be a list where 2 to {_MOST_LISTED} numbers change: give bounds (a number for one), or under δ > 0 CorrelatedGaussian the list"
        raise DesignError.of(name, found.shape, allowed)
    if not 1e-100 <= most.min() <= most.max() <= 1e100:
        raise DesignError.of(name, value, "must have its largest changes between 1e-100 and 1e100")
    rank = int(np.linalg.matrix_rank(moved / most))
    if rank < size:
        allowed = f"spans {rank} of the {size} dimensions in which it changes: add small changes across it (a hundredth of the others costs little), or under δ > 0 CorrelatedGaussian(..., span=True)"
        raise DesignError.of(name, found.shape, allowed)
    return found


@serializable("knorm-noise")
@dataclass(frozen=True)
class KNormNoise(Checked, AddedNoise):
    r"""Noise with density :math:`e^{-\lVert z\rVert/s}/(k!\,\mathrm{vol}(B)\,s^k)`, or a staircase of the norm.

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
    gamma : float, optional
        γ of a staircase: the density is constant up to a norm of γ times `largest`, and falls by e^(−largest/s) there and whenever
        the norm has grown by `largest`.
    cap : float, optional
        c, with norm inf: the norm is :math:`\max(\lVert z\rVert_\infty, \lVert z\rVert_1/c)`, whose ball is the hull of the changes of at most c numbers by at most 1.
    signed : bool
        False, with norm inf: the norm is :math:`\max z^+ + \max z^-`, for changes whose entries all rise or all fall.
    widths : tuple of float, optional
        The norm is that of :math:`z_i/w_i`; numbers of width 0 get no noise.
    vertices : array_like, optional
        With norm inf: vectors over the coordinates that get noise, with entries of at most 1 in size; the ball is the hull of them and their negatives.
    simplices : tuple of tuple of int, optional
        The faces of that hull, by their vertices (`mechdesign.noise.balls.Hull`); computed when not given.
    planes : tuple of tuple of int, optional
        With norm inf: the ball is :math:`|n \cdot z| \le 2^{24}` for these n, which include those of the cube.

    Examples
    --------
    >>> noise = KNormNoise(3, 0.5, norm=2)
    >>> noise.mean_norm, noise.variance
    (1.5, 1.0)
    >>> noise.sample([1.0, 2.0, 3.0], rng=0).shape
    (3,)
    >>> round(noise.loss(0.25), 12)
    0.5
    """

    dimension: int = field(check=integer, least=1, most=10**9)
    scale: float = field(check=positive)
    norm: float = field(check=norm_order, default=1.0)
    largest: float | None = field(check=positive, side=UP, default=None)
    gamma: float | None = None
    cap: float | None = None
    signed: bool = field(check=one_of, allowed=(True, False), default=True)
    widths: tuple[float, ...] | None = None
    vertices: Vectors | None = None
    simplices: Rows | None = None
    planes: Rows | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        dimension, scale = self.dimension, self.scale
        if not dimension * scale <= 1e150:  # its square is a double
            raise DesignError.of(
                "scale", scale, "must be at most 1e150 over the dimension: choose another unit"
            )
        if self.widths is not None:
            found = array("widths", self.widths)
            if (
                found.shape != (dimension,)
                or found.min() < 0
                or not 0 < found.max() <= 1e150 / dimension / scale
            ):
                raise DesignError.of(
                    "widths", self.widths, "must be numbers of at least 0, one a coordinate, not all 0"
                )
            settle(self, widths=None if (found == 1).all() else tuple(found.tolist()))
        size = self.size
        if not self.signed and (self.norm, self.cap) != (math.inf, None):
            raise DesignError.of("signed", False, "is of norm inf without a cap")
        if self.cap is not None:
            cap = inside("cap", self.cap, 1, min(size, MOST_CAPPED))
            if self.norm != math.inf or short(Fraction(cap)) != cap or size > MOST_CAPPED:
                allowed = f"is of norm inf, of at most {MOST_CAPPED} numbers, and a double of 12 bits"
                raise DesignError.of("cap", cap, allowed)
            settle(self, cap=cap)
        if self.vertices is not None:
            self._check_hull(size)
        elif self.simplices is not None:
            raise DesignError.of("simplices", self.simplices, "are faces of a hull: give vertices")
        if self.planes is not None:
            found = np.clip(array("planes", self.planes, ndim=2), -(2.0**53), 2.0**53).astype(int)
            plain = (self.norm, self.cap, self.signed, self.vertices) == (math.inf, None, True, None)
            if not plain or found.shape[1] != size or (found[:size] != GRAIN * np.eye(size)).any():
                allowed = "are of norm inf, of as many numbers as get noise, those of the cube first"
                raise DesignError.of("planes", found.shape, allowed)
            settle(self, planes=tuple(map(tuple, found.tolist())))
        if self.gamma is not None:
            settle(self, gamma=inside("gamma", self.gamma, LEAST_GAMMA / 2, 1))
            if whole_bits(self.gamma) != self.gamma:
                raise DesignError.of("gamma", self.gamma, f"must have 20 bits: {whole_bits(self.gamma)!r}")
            if self.largest is None or self.shells(1).levels > MOST_LEVELS:
                allowed = "needs the largest change, of which the scale is no large multiple: leave it out"
                raise DesignError.of("gamma", self.gamma, allowed)
            if self.shells(1).sums(self.gamma, size)[0] <= SMALLEST:
                allowed = "is so small at this scale that no double resolves its shells: choose a larger one"
                raise DesignError.of("gamma", self.gamma, allowed)

    def _check_hull(self, size: int) -> None:
        """Read vertices and faces, and refuse faces that are not those of the vertices' hull."""
        vertices = spanning("vertices", self.vertices)
        if (
            vertices.shape[1] != size
            or np.abs(vertices).max() > 1
            or (self.norm, self.cap, self.signed) != (math.inf, None, True)
        ):
            allowed = "are of norm inf without a cap, of as many numbers as get noise, none above 1 in size: use widths"
            raise DesignError.of("vertices", vertices.shape, allowed)
        if self.simplices is None:
            hull = hull_of(vertices)
            settle(self, vertices=hull.vertices, simplices=hull.simplices)
            return
        faces = np.clip(array("simplices", self.simplices, ndim=2), -1e9, 1e9).astype(int).tolist()
        settle(self, vertices=tuple(map(tuple, vertices.tolist())), simplices=tuple(map(tuple, faces)))
        known = set(range(1, len(vertices) + 1))
        named = all(len({abs(i) for i in face} & known) == len(face) == size for face in faces)
        named = named and {abs(i) for face in faces for i in face} == known
        if not named or not isinstance(self.body.hull, Hull) or not self.body.hull.sound:
            allowed = "must be all faces of the hull, one of each and its negative: leave them out"
            raise DesignError.of("simplices", len(faces), allowed)

    @property
    def shape(self) -> tuple[object, ...]:
        """All fields but the scale and the profile."""
        hull = self.vertices, self.simplices, self.planes
        return self.dimension, self.norm, self.largest, self.cap, self.signed, *hull, self.widths

    @property
    def size(self) -> int:
        """Number of coordinates with noise."""
        return self.dimension if self.widths is None else int(np.count_nonzero(self.widths))

    @cached_property
    def moving(self) -> Indices:
        """The coordinates with noise."""
        return np.arange(self.dimension) if self.widths is None else np.flatnonzero(self.widths)

    @cached_property
    def body(self) -> Ball:
        """The unit ball, in units of the widths."""
        hull: Hull | Planes | None = None
        if self.planes is not None:
            hull = planes_cached(self.planes)
        elif self.vertices and self.simplices:
            hull = hull_cached(self.vertices, self.simplices)
        return Ball(self.size, self.norm, self.cap, self.signed, hull)

    def shells(self, power: int) -> Shells:
        """Return the moments of the staircases for changes of size `largest` at this scale."""
        power = integer("power", power, 1, 2)
        assert self.largest is not None
        return Shells(self.size, self.largest / self.scale, power)

    @property
    def deployable(self) -> bool:
        """Whether there is an exact `release`: the largest change must be known, and rejection must keep enough draws."""
        least = LEAST_KEPT if self.planes is None else _LEAST_LISTED
        return self.largest is not None and self.body.around[1] >= least

    @cached_property
    def lattice(self) -> RadialLattice:
        """The lattice of a release: step, shift, rate and relative increase of the scale; steps are in units of the widths."""
        if not self.deployable:
            known = "must know the largest change: the result of a KNorm design does"
            none = "has no exact sampler, sample() is for simulation: deploy KNorm(..., norm=inf) or norm=1"
            raise DesignError.of("release", type(self).__name__, known if self.largest is None else none)
        assert self.largest is not None
        found = radial_lattice(self.body, self.scale, self.largest, self.gamma, even=self.widths is None)
        if found.step * float(self._widths.min()) < 1e-290:
            raise DesignError.of(
                "widths", self.widths, "are so small that doubles hold no lattice finer than them"
            )
        return found

    @property
    def _widths(self) -> Array:
        return np.ones(self.dimension) if self.widths is None else np.array(self.widths)[self.moving]

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        rows = math.prod(shape[:-1])
        if self.gamma is None:
            radius = rng.gamma(self.size + 1, self.scale, rows)
        else:
            radius = rng.choice(self._radii[0], rows, p=self._radii[1])
        noise = np.zeros((rows, self.dimension))
        noise[:, self.moving] = radius[:, None] * self.body.points(rows, rng) * self._widths
        return noise.reshape(shape)

    @cached_property
    def _radii(self) -> tuple[Array, Array]:
        """Radii R of the balls and their masses; those of the exponential are on a grid."""
        d = self.size
        if self.gamma is None:
            spread = 12 * math.sqrt(d)
            length = np.linspace(max(0.0, d - spread), d + spread + 60, 2001)
            mass = np.exp(special.xlogy(d, length) - length - special.gammaln(d + 1))
            return length * self.scale, mass / mass.sum()
        assert self.largest is not None
        ends, mass = self.shells(1).masses(self.gamma)
        return ends * self.largest, mass

    def norm_of(self, z: Numbers) -> Array:
        """Return the noise's own norm of vectors, shape (..., k)."""
        held = np.atleast_1d(array("z", z, ndim=None))
        if held.shape[-1] != self.dimension:
            raise DesignError(f"z: must have {self.dimension} numbers in its last axis")
        return self.body.gauge(held[..., self.moving] / self._widths)

    def log_density(self, z: Numbers) -> Values:
        """Return the logarithm of the density at z, shape (..., k), over the coordinates that get noise."""
        d, length = self.size, self.norm_of(z)
        volume = self.body.log_volume + float(np.log(self._widths).sum())
        if self.gamma is None:
            return -length / self.scale - volume - special.gammaln(d + 1) - d * math.log(self.scale)
        assert self.largest is not None
        fall = self.largest / self.scale
        level = np.maximum(np.ceil(length / self.largest - self.gamma), 0)
        mass = math.log(-math.expm1(-fall)) + self.shells(1).log_sum(self.gamma)
        return -fall * level - volume - d * math.log(self.largest) - mass

    def _radial_moment(self, power: int) -> float:
        """Return E R^p: z is R times a uniform point of the unit ball."""
        d = self.size
        if self.gamma is None:
            return math.prod(d + i for i in range(1, power + 1)) * self.scale**power
        assert self.largest is not None
        return self.shells(power).moment(self.gamma) * self.largest**power

    @property
    def mean_norm(self) -> float:
        """E‖z‖, in the noise's own norm: ks where it is exponential."""
        d = self.size
        return d * self.scale if self.gamma is None else self._radial_moment(1) * d / (d + 1)

    def factor(self, power: int) -> float:
        """Return E|z_i|^p over E R^p, on average over the coordinates."""
        power = integer("power", power, 1, 2)
        moment, weights = self.body.moment(power), self._widths**power
        if isinstance(moment, np.ndarray):
            return float(weights @ moment) / self.dimension
        return moment * (float(weights.sum()) / self.dimension)

    @property
    def variance(self) -> float:
        """Variance of a coordinate, on average: for the exponential s² times 2 (ℓ₁), k + 1 (ℓ₂), (k + 1)(k + 2)/3 (ℓ_∞)."""
        return self.factor(2) * self._radial_moment(2)

    @property
    def absolute_error(self) -> float:
        """E|z_i|, on average: for the exponential s times 1 (ℓ₁), kΓ(k/2)/(√π Γ((k + 1)/2)) (ℓ₂), (k + 1)/2 (ℓ_∞)."""
        return self.factor(1) * self._radial_moment(1)

    def errors(self) -> Accuracy:
        """Return the errors of a coordinate; for listed changes the 95% half-width is simulated from 65,536 fixed points, to about .3%."""
        return Accuracy(math.sqrt(self.variance), self.absolute_error, half_width(self))

    def std(self) -> float:
        """Return the standard deviation of a coordinate, from the average variance."""
        return math.sqrt(self.variance)

    def sf(self, t: Numbers) -> Values:
        """Return P[z_i > t] for t ≥ 0, on average over the coordinates; more than 64 widths are replaced by 64 of them."""
        found = np.sort(self._widths)
        x = array("t", t, ndim=None)
        if self.body.hull is not None:
            tails = (self._tail(x / w, i) for i, w in enumerate(self._widths))
            return sum(tails) / self.dimension
        if len(found) > 64:
            found = np.repeat(found[len(found) // 128 :: len(found) // 64], len(found) // 64)
        widths, times = np.unique(found, return_counts=True)
        share = self.size / self.dimension / len(found)
        return sum(count * share * self._tail(x / w) for w, count in zip(widths, times))

    def _tail(self, t: Array, i: int = 0) -> Values:
        d = self.size
        plain = self.cap is None and self.body.hull is None and self.signed
        if self.gamma is None and plain and self.norm != 2:
            x = t / self.scale
            if self.norm == 1 or d == 1:
                return np.exp(-x) / 2
            return (stats.gamma.sf(x, d + 1) - x / d * stats.gamma.sf(x, d)) / 2
        length, mass = self._radii
        return np.vectorize(lambda v: float(mass @ self.body.tail(v / np.maximum(length, 1e-300), i)))(t)

    def release(self, x: Numbers) -> Array:
        """Return vectors with noise, on a lattice some 2⁻²⁰ of the scale fine: for deployment.

        The noise is drawn exactly, from the operating system's randomness (`mechdesign.noise.radial`), and wider by
        `lattice.cost`, which pays for the rounding. A coordinate without noise is the same for all neighbours and is returned as it is.

        Parameters
        ----------
        x : array, shape (..., k)

        Raises
        ------
        DataError
            A number is not finite or, beyond 2⁵³, held by no double. The guarantee does not cover that refusal.
        """
        held, lattice = self._answers(x).copy(), self.lattice
        step = lattice.step if self.widths is None else lattice.step * self._widths
        part = held[..., self.moving]
        held[..., self.moving] = noisy(
            part, step, lattice.draw(part.size // part.shape[-1]).reshape(part.shape)
        )
        return held

    def loss(self, shift: float) -> float:
        """Return the exact privacy loss when the centre moves by `shift` in the noise's norm: shift/s, for a staircase that of whole steps."""
        shift = non_negative("shift", shift)
        if self.gamma is not None and self.largest is not None:
            shift = math.ceil(shift / self.largest) * self.largest
        return round_up(Fraction(shift) / Fraction(self.scale))

    def __str__(self) -> str:
        return folded(self.summary())

    def summary(self) -> str:
        """Name the norm."""
        parts = [f"norm {self.norm:g}"]
        if self.cap is not None:
            parts.append(f"or of norm 1 over {self.cap:g}")
        if not self.signed:
            parts.append("of what rises plus that of what falls")
        if self.vertices is not None:
            parts = [f"norm of the hull of {len(self.vertices)} changes"]
        if self.planes is not None:
            parts = [f"norm of {len(self.planes)} planes around the hull of the changes"]
        if self.widths is not None:
            parts.append("over the bounds of the coordinates")
        return " ".join(parts) + ("" if self.gamma is None else f", a staircase (gamma = {self.gamma:.6g})")


# -- the design ---------------------------------------------------------------------------------------------------


def listed_or_bounds(name: str, value: object) -> float | Sensitivity | Vectors:
    """Read a list of changes, bounds, or one bound for every coordinate."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(map(tuple, spanning(name, value).tolist()))
    return sensitivity(name, value)


@serializable("knorm")
@dataclass(frozen=True)
class KNorm(Design):
    r"""The best radial noise for a vector, over norms whose balls hold its changes; the lower bound is for these norms only.

    Under approximate and concentrated privacy the noise is x-DP, with the largest x that implies them. With δ > 0 and at most 2,000 numbers it may also be
    exponential ℓ₂ noise at its own δ, for ε of at most 64 and δ of at most ½; each of r rounds then gets ε/r and δ/r, which compose to the requirement.

    Parameters
    ----------
    dimension : int
        k.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    sensitivity : float, Sensitivity or array_like of shape (m, k)
        A bound for every coordinate at once (add-remove neighbours), several bounds, or a list of changes, each with its negative. With a list the norm is
        that of the changes' hull; if the hull has too many faces, 1,024 planes around it are used and errors are simulated.
    norm : {None, 1, 2, inf}
        The norm of the noise. When not given, the best of these norms and of the hulls of the changes.
    loss : {"squared", "absolute"}
        Loss of one coordinate, on average.
    rounds : int
        How often the query is answered; `privacy` is for all answers together.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold; a `Sensitivity` states it itself.

    Notes
    -----
    Under pure privacy, for one round, no additive noise does better where the cost is a growing function of the norm that bounds the changes (squared
    loss and ℓ₂, absolute loss and ℓ₁, one number and any norm): Melbourne, Diaz and Asoodeh, arXiv 2601.14597.

    Examples
    --------
    >>> box = KNorm(20, PureDP(1.0)).solve()
    >>> box.mechanism.norm, round(box.value, 6)                       # Laplace noise: 2 · 20² = 800
    (inf, 154.0)
    >>> few = KNorm(20, PureDP(1.0), Sensitivity(linf=1, l0=8)).solve()
    >>> few.mechanism.cap, round(few.value, 2)                        # Laplace noise: 128
    (8.0, 97.6)
    >>> box.mechanism.release([0.0] * 20).shape, box.mechanism.lattice.cost < 1e-5
    ((20,), True)
    >>> listed = KNorm(2, PureDP(1.0), [[1, 1], [1, 0], [0, 1]]).solve()   # one sum, and the number of people in it
    >>> listed.mechanism.vertices, round(listed.value, 6)
    (((0.0, 1.0), (1.0, 0.0), (1.0, 1.0)), 3.309024)
    """

    asks: ClassVar[str] = "numbers"

    dimension: int = field(check=integer, least=1, most=10**6)
    privacy: PureDP | ApproximateDP | ZeroConcentratedDP = field(PureDP, ApproximateDP, ZeroConcentratedDP)
    sensitivity: float | Sensitivity | Vectors = field(check=listed_or_bounds, default=1.0)
    norm: float | None = field(check=norm_order, default=None)
    loss: str = field(check=one_of, allowed=("squared", "absolute"), default="squared")
    rounds: int = field(check=integer, least=1, most=10**9, default=1)
    neighbours: str = neighbours_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, neighbours=neighbours_of(self.sensitivity, self.neighbours))
        if isinstance(self.sensitivity, tuple) and self.norm is not None:
            raise DesignError.of(
                "norm",
                self.norm,
                "is that of the hull where changes are listed: leave it out, or give bounds",
            )
        self.bounds.check(self.dimension)

    @property
    def bounds(self) -> Sensitivity:
        """The sensitivity as bounds that hold for all changes."""
        if isinstance(self.sensitivity, tuple):
            return Sensitivity.of_list(np.array(self.sensitivity))
        return Sensitivity.of(self.sensitivity)

    @property
    def among(self) -> MechanismClass:
        """Every additive noise where the cost grows with the norm; else radial noise of the norms allowed."""
        if isinstance(self.sensitivity, tuple):
            return menu("radial noise of the hull of the changes")
        s, grows = self.bounds, 2.0 if self.loss == "squared" else 1.0
        alone = (s.linf, s.each, s.l0, s.l1 if grows == 2 else s.l2) == (None, None, None, None)
        alone = alone and (
            s.signed or grows == 1
        )  # rising or falling changes fill the l1 ball, but not the l2 ball
        grows_with_it = self.dimension == 1 or (alone and self.norm in (None, grows))
        if grows_with_it and isinstance(self.privacy, PureDP) and self.rounds == 1:
            return every(REAL_NOISE)
        hulls = " or of a hull of the changes" if self.norm is None else ""
        noun = f"radial noise of norm {' or '.join(f'{order:g}' for order in self.norms)}{hulls}"
        if not self.counts_delta:
            return menu(noun)
        epsilon, delta = self._profile
        by_delta = (epsilon, delta) != (self.privacy.epsilon, self.privacy.delta)  # type: ignore[union-attr]
        limits = (
            f" at epsilon = {epsilon:g} and delta = {delta:g}{' in each round' if self.rounds > 1 else ''}"
        )
        return menu(f"pure {noun}, or exponential noise of norm 2{limits if by_delta else ''}")

    @property
    def counts_delta(self) -> bool:
        """Whether ℓ₂ noise at its own δ is among the candidates."""
        few = 1 < self.dimension <= _MOST_ROUND and not isinstance(self.sensitivity, tuple)
        return self._profile[1] > 0 and 2.0 in self.norms and few

    @property
    def _profile(self) -> tuple[float, float]:
        """ε and δ of ℓ₂ noise in each round, which compose to at most the requirement; 0 and 0 under other privacy."""
        p = self.privacy
        if not isinstance(p, ApproximateDP):
            return 0.0, 0.0
        epsilon, delta = map(min, (p.epsilon, p.delta), _MOST_COUNTED)
        return round_down(Fraction(epsilon) / self.rounds), round_down(Fraction(delta) / self.rounds)

    def asked_by(self, question: object) -> bool:
        names = ("dimension", "loss", "rounds", "bounds", "integer", "sampling_rate")
        asked = [getattr(question, name, None) for name in names]
        own = [self.dimension, self.loss, self.rounds, self.bounds, False, 1]
        return not isinstance(self.sensitivity, tuple) and asked == own

    def protection(self) -> Protection:
        if isinstance(self.sensitivity, tuple):
            return Protection(self.dimension, np.array(self.sensitivity), self.rounds)
        return Protection(self.dimension, self.bounds, self.rounds, signed=self.bounds.signed)

    def consumption(self, result: Result) -> Consumption:
        law = result.mechanism
        once = Fraction(law.largest) / Fraction(law.scale)
        return super().consumption(result) & Consumption.pure((once, self.rounds))

    def largest(self, norm: float) -> float:
        """Return the largest norm of a change, rounded up."""
        s = self.bounds
        found = {1.0: s.largest_l1, 2.0: s.largest_l2, math.inf: s.largest_linf}
        return found[norm_order("norm", norm)](self.dimension)

    def noise(self, norm: float) -> KNormNoise:
        """Return the pure law of one norm at its least scale."""
        return self._law(norm_order("norm", norm), self.largest(norm))

    def _law(self, norm: float, largest: float, **shape: Any) -> KNormNoise:
        """Return the exponential or the staircase, whichever costs less and can be released, at its least scale."""
        exact = Fraction(largest) * self.rounds / Fraction(pure_epsilon(self.privacy))
        if not Fraction(1, 10**150) < exact < 10**150:
            raise DesignError.of(
                "sensitivity",
                self.sensitivity,
                "over epsilon must be between 1e-150 and 1e150: doubles square it",
            )
        law = KNormNoise(self.dimension, round_up(exact), norm, largest, **shape)
        stairs = replace(law, gamma=law.shells(self._power).gamma)
        with suppress(DesignError):  # its first level may be narrower than a lattice step
            return stairs if stairs.lattice else law
        return law

    def laws(self, deadline: Deadline | None = None) -> list[KNormNoise]:
        """Return the law of least cost for each norm allowed: the plain norms, and the hulls of the changes."""
        if isinstance(self.sensitivity, tuple):
            return [self._of_list(Deadline.of(deadline))]
        found = [self.noise(order) for order in self.norms]
        if self.counts_delta:
            found.append(self._round)
        if self.norm is not None or self.dimension == 1:
            return found
        s, top = self.bounds, self.largest(math.inf)
        widths = s.widths(self.dimension)
        shape, size = {}, self.dimension
        if s.each is not None and np.ptp(widths) > 0:
            shape, top, size = {"widths": tuple(widths.tolist())}, 1.0, int(np.count_nonzero(widths))
            found.append(self._law(math.inf, top, **shape))
        if not s.signed and size > 1:
            found.append(self._law(math.inf, top, signed=False, **shape))
        cap = short(s.largest_share(self.dimension)) if size <= MOST_CAPPED else math.inf
        if 1 < cap < size and Ball(size, math.inf, cap).around[1] >= LEAST_KEPT:
            found.append(self._law(math.inf, top, cap=cap, **shape))
        return found

    @cached_property
    def _listed(self) -> tuple[Array, Array]:
        """The listed changes of the coordinates that move, over the widths; and the widths, 0 where nothing moves."""
        widths = np.array(self.bounds.each)
        return np.array(self.sensitivity)[:, widths > 0] / widths[widths > 0], widths

    @cached_property
    def _hull(self) -> Hull | None:
        """The hull of a list, if its faces are few."""
        n, d = self._listed[0].shape
        with suppress(DesignError):
            hull = hull_of(self._listed[0])
            terms = len(hull.simplices) * d * (n + (d if self.loss == "squared" else 4 * d) * d)
            return hull if terms <= _MOST_TERMS else None
        return None

    def _of_list(self, deadline: Deadline) -> KNormNoise:
        """Return the law of the hull of a list, or of planes around it."""
        (units, widths), hull = self._listed, self._hull
        shape: dict[str, Any] = {"widths": tuple(widths.tolist())}
        body: Hull | Planes
        if hull is not None:
            body, least, shape["vertices"], shape["simplices"] = (
                hull,
                LEAST_KEPT,
                hull.vertices,
                hull.simplices,
            )
        else:
            shape["planes"], least = planes_around(units, deadline), _LEAST_LISTED
            body = planes_cached(shape["planes"])
        try:
            kept = Ball(units.shape[1], math.inf, hull=body).around[1]
        except np.linalg.LinAlgError:  # flat, in doubles
            kept = 0.0
        if kept < least:
            allowed = f"has a hull that fills {kept:.1g} of the box around it, too thin to draw from: add small changes across it (a hundredth of the others costs little), or give bounds"
            raise DesignError.of("sensitivity", units.shape, allowed)
        return self._law(math.inf, round_up(self._reach(body, widths)), **shape)

    def _reach(self, body: Hull | Planes, widths: Numbers) -> Fraction:
        """Return the largest norm of a listed change, exactly, and at least 1."""
        held = [(i, Fraction(w)) for i, w in enumerate(np.asarray(widths).tolist()) if w]
        units = [[Fraction(v[i]) / w for i, w in held] for v in self.sensitivity]  # type: ignore[union-attr]
        return max(body.most(units), Fraction(1))

    def delta(self, scale: float) -> arb:
        """Enclose the δ of exponential ℓ₂ noise."""
        change = Fraction(self.largest(2.0)) / Fraction(positive("scale", scale))
        return round_delta(self.dimension, change, self._profile[0])

    @cached_property
    def _round(self) -> KNormNoise:
        """Exponential ℓ₂ noise at the least scale that keeps δ."""
        (epsilon, delta), largest = self._profile, self.largest(2.0)

        def over(log: float) -> float:
            return excess(float(self.delta(math.exp(log))) * (1 + 1e-14), delta)

        pure = math.log(largest / epsilon) + 1e-12  # where no loss is above ε
        return KNormNoise(self.dimension, math.exp(least_kept(over, pure, growth=1.0)), 2.0, largest)

    def counted(self, law: KNormNoise) -> bool:
        """Return whether a law is private by its own δ, not by its largest loss."""
        loss = Fraction(law.largest or 0) * self.rounds / Fraction(law.scale)
        plain = (law.norm, law.gamma, law.widths) == (2.0, None, None)
        return self.counts_delta and plain and not implied_by_pure(self.privacy, loss)

    @property
    def _power(self) -> int:
        return 2 if self.loss == "squared" else 1

    def cost(self, noise: KNormNoise) -> float:
        """Return the loss of one coordinate."""
        instance("noise", noise, KNormNoise)
        return noise.variance if self.loss == "squared" else noise.absolute_error

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Compare the norms, each by closed forms and one search for its best staircase."""
        laws = self.laws(clock)
        noise = min(laws, key=self.cost)
        notes = [f"the noise falls with the {noise.summary()}"]
        if self._profile[1] > 0 and self.dimension > _MOST_ROUND:
            notes.append(f"no δ is counted beyond {_MOST_ROUND} numbers: Gaussian noise may cost less")
        yield Law(noise, self.cost(noise), (LawProof(),), notes=tuple(notes))
        if noise.planes is None:
            yield Bound(min(map(self.least, laws)), ClosedBound())

    bound_how = RECOMPUTED

    def law_claims(self, stated: Certificate, given: None) -> Iterator[Claim]:
        r"""Claim that radial noise of scale s is :math:`\lVert v\rVert / s`-private for a change v (Hardt and Talwar 2010, §4), a staircase for changes up to the largest norm.

        Privacy is checked in rational numbers, δ in ball arithmetic, the cost in doubles; the largest norms are the design's.
        """
        law = instance("law", stated.law, KNormNoise)
        fits = self._around(law) if law.planes else law.shape in [known.shape for known in self.laws()]
        loss = Fraction(law.largest or 0) * self.rounds / Fraction(law.scale)
        if fits and self.counted(law):
            (epsilon, most), delta = self._profile, self.delta(law.scale)
            each = f", in each of {self.rounds} rounds," if self.rounds > 1 else ""
            claim = f"delta of {float(delta):.9g} at epsilon = {epsilon:g}{each} is within {self.privacy}"
            yield Claim(claim, PROVED, float(most - delta), bool(delta <= most))
        else:
            left = Fraction(pure_epsilon(self.privacy)) - loss
            claim = f"losses of at most {float(loss):.9g} in all are within {self.privacy}"
            yield Claim(claim, PROVED, float(left), fits and implied_by_pure(self.privacy, loss))
        room = stated.value * (1 + 1e-12) - self.cost(law)
        claim = f"{self.loss} error at most {stated.value:.9g}"
        if law.planes:
            yield Claim(f"{claim}, simulated with three standard errors", CLAIMED, room, room >= 0)
        else:
            yield Claim(claim, RECOMPUTED, room, room >= 0)

    def _around(self, law: KNormNoise) -> bool:
        """Return whether the planes hold every listed change, at the law's largest norm."""
        if not isinstance(self.sensitivity, tuple) or law.dimension != self.dimension:
            return False
        widths = np.ones(law.dimension) if law.widths is None else np.array(law.widths)
        moved = (self._listed[1] > 0) <= (widths > 0)
        assert isinstance(law.body.hull, Planes) and law.largest is not None
        return bool(moved.all()) and self._reach(law.body.hull, widths) <= Fraction(law.largest)

    def least_cost(self, stated: Certificate, given: None) -> float:
        """Return a lower bound on the cost of all noise of the norms allowed.

        No staircase costs less, by second-order expansions over all γ, nor other noise whose density falls with the norm (Melbourne, Diaz and Asoodeh).
        """
        return min(map(self.least, self.laws()))

    def least(self, law: KNormNoise) -> float:
        """Return a lower bound on the cost of any staircase of the law's norm and scale; if its δ counts, of the exponential at any scale."""
        if self.counted(law):
            found = self.cost(law) * (1 - 1e-11)
            narrow = law.scale * (found / self.cost(law)) ** (1 / self._power)
            return found if self.delta(narrow) > self._profile[1] else 0.0
        return law.shells(self._power).bound * self.unit(law) / law.body.slack

    def unit(self, law: KNormNoise) -> float:
        """Return the cost at E R^p = 1 for changes of norm 1."""
        assert law.largest is not None
        return law.factor(self._power) * law.largest**self._power

    @property
    def norms(self) -> tuple[float, ...]:
        """The plain norms allowed."""
        return _NORMS if self.norm is None else (self.norm,)

    def describe(self, result: Result) -> Description:
        return Description(
            title=f"Noise drawn together for {self.dimension} numbers",
            what=f"{self.protection()} Noise on all numbers is drawn at once.",
            loss=f"{'variance' if self.loss == 'squared' else 'mean absolute error'} of one number, on average",
            more=(f"The noise falls with the {result.mechanism.summary()}.",),
            consumed="for all numbers together",
            picture="Left: the noise on two of the numbers, drawn a few thousand times. Right: how often a number is off by more than t.",
            rivals="The same question answered by noise that falls with other norms; ℓ1 noise is Laplace noise.",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the noise on two numbers, and its tail next to those of the plain norms."""
        law = result.mechanism
        tails = {"this noise": law} | {f"ℓ{order:g} noise": self.noise(order) for order in self.norms}
        points = law.sample(np.zeros((3000, law.dimension)), rng=0)[:, law.moving]
        return draw_vectors(points[:, [0, -1]], tails, **options)

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield noise of the plain norms."""
        for order in _NORMS:
            yield f"ℓ{order:g} noise", self.cost(self.noise(order))
        if self.counts_delta:
            yield "ℓ2 noise by its δ", self.cost(self._round)

    def audit(self, result: Result) -> pd.DataFrame:
        law, most = result.mechanism, pure_epsilon(self.privacy)
        spent, index = law.largest * self.rounds / law.scale, "ε"
        if self.counted(law):
            (epsilon, most), spent = self._profile, float(self.delta(law.scale))
            index = f"δ at ε = {epsilon:g}"
        row = ("privacy", index, spent, most, most - spent, math.nan, True)
        return pd.DataFrame([row], columns=AUDIT_COLUMNS)
