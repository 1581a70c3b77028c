r"""K-norm noise (Hardt and Talwar 2010), the mechanism: its law in any of the norms, what it costs and how it is released.

**The mechanism** is radial in a norm (`mechdesign.noise.radial`), of density :math:`\propto e^{-\lVert z\rVert/s}` on
:math:`\mathbb R^k` or a staircase of the norm. Adding it to a vector whose norm-sensitivity is Δ is Δ/s-differentially
private by the triangle inequality, hence (ε, δ)-DP and zCDP at somewhat larger budgets
(`mechdesign.problem.privacy.implied_by_pure`). `mechdesign.noise.knorm` chooses the norm.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from mechdesign import checks
from mechdesign.checks import Checked, field
from mechdesign.doubles import SMALLEST
from mechdesign.errors import DesignError
from mechdesign.evidence.digits import folded
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise import balls, radial
from mechdesign.noise.balls import Ball, Hull, Polytope, Rows, Vectors
from mechdesign.noise.laws import half_width
from mechdesign.noise.radial import RadialLattice, Shells
from mechdesign.noise.release import AddedNoise, noisy
from mechdesign.typing import Array, Indices, Numbers, Values

MOST_CAPPED = 400
"""Largest dimension of a hull with a cap: beyond, its volume needs sums of too many digits, and most draws are rejected."""
_MOST_LISTED = 32
"""Largest number of coordinates that listed changes move."""
LEAST_LISTED = 1e-6
"""Least share of the box around listed changes that their hull fills: a release takes seconds."""


NORMS = (1.0, 2.0, math.inf)
"""The plain norms."""


def norm_order(name: str, value: float | str) -> float:
    """Return 1.0, 2.0 or inf from a number or ``"inf"``."""
    try:
        order = math.nan if isinstance(value, (bool, np.bool_, bytes)) else float(value)
    except Exception:  # whatever an object raises when it is read
        order = math.nan
    checks.refuse(order not in NORMS, name, value, "must be 1, 2 or inf")
    return order


def spanning(name: str, value: ArrayLike | None) -> Array:
    """Read a list of vectors that span the coordinates in which they are not zero."""
    found = checks.array(name, value, ndim=2)
    moved = found[:, found.any(axis=0)]
    size, most = moved.shape[1], np.abs(moved).max(axis=0, initial=0)
    allowed = f"may be a list where 2 to {_MOST_LISTED} numbers change: give bounds (a number for one), or under δ > 0 CorrelatedGaussian the list"
    checks.refuse(not 1 < size <= _MOST_LISTED, name, found.shape, allowed)
    if not 1e-100 <= most.min() <= most.max() <= 1e100:
        raise DesignError.of(name, value, "must have its largest changes between 1e-100 and 1e100")
    rank = int(np.linalg.matrix_rank(moved / most))
    allowed = f"spans {rank} of the {size} dimensions in which it changes: add small changes across it (a hundredth of the others costs little), or under δ > 0 CorrelatedGaussian(..., span=True)"
    checks.refuse(rank < size, name, found.shape, allowed)
    return found


def _whole(name: str, value: Rows, most: float) -> Indices:
    """Read rows of whole numbers."""
    found = np.clip(checks.array(name, value, ndim=2), -most, most).astype(int)
    if not all(isinstance(i, (int, np.integer)) for row in value for i in row):
        raise DesignError.of(name, found.shape, "must be whole numbers")
    return found


@serializable("knorm-noise")
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

    dimension: int = field(check=checks.integer, least=1, most=10**9)
    scale: float = field(check=checks.positive)
    norm: float = field(check=norm_order, default=1.0)
    largest: float | None = field(check=checks.positive, side=checks.UP, default=None)
    gamma: float | None = field(check=checks.inside, low=radial.LEAST_GAMMA / 2, high=1, default=None)
    cap: float | None = None
    signed: bool = field(check=checks.one_of, allowed=(True, False), default=True)
    widths: tuple[float, ...] | None = None
    vertices: Vectors | None = None
    simplices: Rows | None = None
    planes: Rows | None = None

    def _post_check(self) -> None:
        dimension, scale = self.dimension, self.scale
        if not dimension * scale <= 1e150:  # its square is a double
            allowed = "must be at most 1e150 over the dimension: choose another unit"
            raise DesignError.of("scale", scale, allowed)
        if self.widths is not None:
            found = checks.array("widths", self.widths)
            most = 1e150 / dimension / scale
            if found.shape != (dimension,) or found.min() < 0 or not 0 < found.max() <= most:
                allowed = "must be numbers of at least 0, one per coordinate, not all 0"
                raise DesignError.of("widths", self.widths, allowed)
            checks.settle(self, widths=None if (found == 1).all() else tuple(found.tolist()))
        self._check_body()
        if self.gamma is None:
            return
        allowed = ""
        if radial.whole_bits(self.gamma) != self.gamma:
            allowed = f"must have 20 bits: {radial.whole_bits(self.gamma)!r}"
        elif self.largest is None or self.shells(1).levels > radial.MOST_LEVELS:
            allowed = "needs the largest change, of which the scale is no large multiple: leave it out"
        elif self.shells(1).sums(self.gamma, self.size)[0] <= SMALLEST:
            allowed = "is so small at this scale that no double resolves its shells: choose a larger one"
        checks.refuse(allowed, "gamma", self.gamma, allowed)

    def _check_body(self) -> None:
        """Check what cuts the ball from the cube, at most one of cap, signed=False, vertices and planes; faces must be those of the vertices' hull."""
        size, given = self.size, {"cap": self.cap, "vertices": self.vertices, "planes": self.planes}
        named = [name for name, value in given.items() if value is not None] + ["signed"] * (not self.signed)
        if len(named) > 1 or (named and self.norm != math.inf):
            allowed = "needs norm inf, and none of cap, signed=False, vertices and planes beside it"
            shown = {"cap": self.cap, "signed": False}.get(named[-1], "given")
            raise DesignError.of(named[-1], shown, allowed)
        if self.cap is not None:
            checks.settle(self, cap=checks.inside("cap", self.cap, 1, min(size, MOST_CAPPED)))
            if balls.short(Fraction(self.cap)) != self.cap or size > MOST_CAPPED:
                allowed = f"must be of at most {MOST_CAPPED} numbers, and a double of 12 bits"
                raise DesignError.of("cap", self.cap, allowed)
        if self.planes is not None:
            found = _whole("planes", self.planes, 2.0**53)
            if found.shape[1] != size or (found[:size] != balls.GRAIN * np.eye(size)).any():
                allowed = "must have as many numbers as get noise, and those of the cube first"
                raise DesignError.of("planes", found.shape, allowed)
            checks.settle(self, planes=tuple(map(tuple, found.tolist())))
        if self.vertices is not None:
            vertices = spanning("vertices", self.vertices)
            if vertices.shape[1] != size or np.abs(vertices).max() > 1:
                allowed = "must have as many numbers as get noise, none above 1 in size: use widths"
                raise DesignError.of("vertices", vertices.shape, allowed)
            if self.simplices is None:
                hull = balls.hull_of(vertices)
                checks.settle(self, vertices=hull.vertices, simplices=hull.simplices)
            else:
                faces = _whole("simplices", self.simplices, 1e9).tolist()
                checks.settle(
                    self, vertices=tuple(map(tuple, vertices.tolist())), simplices=balls.faces_named(faces)
                )
                known = set(range(1, len(vertices) + 1))
                good = all(len({abs(i) for i in face} & known) == len(face) == size for face in faces)
                good = good and {abs(i) for face in faces for i in face} == known
                if not good or not isinstance(self.body, Hull) or not self.body.sound:
                    allowed = "must be all faces of the hull, one of each and its negative: leave them out"
                    raise DesignError.of("simplices", len(faces), allowed)
        elif self.simplices is not None:
            raise DesignError.of("simplices", self.simplices, "are faces of a hull: give vertices")

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
        cube = self.size, math.inf, True
        if self.planes is not None:
            return balls.shared(balls.Planes, *cube, self.planes)
        if self.vertices and self.simplices:
            return balls.shared(Hull, *cube, self.vertices, self.simplices)
        if self.cap is not None:
            return balls.shared(balls.CappedCube, *cube, self.cap)
        return Ball(self.size, self.norm, self.signed)

    def most(self, vectors: Array) -> Fraction:
        """Return the largest norm of vectors that change coordinates with noise alone, exactly; for a hull or planes."""
        widths = [Fraction(w) for w in self._widths.tolist()]
        found = checks.array("vectors", vectors, ndim=2)
        checks.refuse(
            found.shape[1] != self.dimension, "vectors", found.shape, "must have the noise's numbers"
        )
        moved: list[list[float]] = found[:, self.moving].tolist()
        return checks.instance("body", self.body, Polytope).most(
            [[Fraction(x) / w for x, w in zip(v, widths)] for v in moved]
        )

    def shells(self, power: int) -> Shells:
        """Return the moments of the staircases for changes of size `largest` at this scale."""
        power = checks.integer("power", power, 1, 2)
        return Shells(self.size, self._unit / self.scale, power)

    @property
    def _unit(self) -> float:
        """The width of a level, Δ; of the exponential any length will do."""
        return self.largest or self.scale

    @property
    def deployable(self) -> bool:
        """Whether there is an exact `release`: the largest change must be known, and rejection must keep enough draws."""
        least = radial.LEAST_KEPT if self.planes is None else LEAST_LISTED
        return self.largest is not None and self.body.around[1] >= least

    @cached_property
    def lattice(self) -> RadialLattice:
        """The lattice of a release: step, shift, rate and relative increase of the scale; steps are in units of the widths."""
        if not self.deployable:
            known = "must know the largest change: the result of a KNorm design does"
            none = "has no exact sampler, sample() is for simulation: deploy KNorm(..., norm=inf) or norm=1"
            raise DesignError.of("release", type(self).__name__, known if self.largest is None else none)
        assert self.largest is not None
        found = radial.radial_lattice(
            self.body, self.scale, self.largest, self.gamma, even=self.widths is None
        )
        allowed = "are so small that doubles hold no lattice finer than them"
        checks.refuse(found.step * float(self._widths.min()) < 1e-290, "widths", self.widths, allowed)
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
        ends, mass = self.shells(1).masses(self.gamma)
        return ends * self._unit, mass

    def norm_of(self, z: Numbers) -> Array:
        """Return the noise's own norm of vectors, shape (..., k)."""
        held = np.atleast_1d(checks.array("z", z, ndim=None))
        DesignError.when(held.shape[-1] != self.dimension, f"z: the last axis must be {self.dimension}")
        return self.body.gauge(held[..., self.moving] / self._widths)

    def log_density(self, z: Numbers) -> Values:
        """Return the logarithm of the density at z, shape (..., k), over the coordinates that get noise."""
        d, length = self.size, self.norm_of(z)
        volume = self.body.log_volume + float(np.log(self._widths).sum())
        if self.gamma is None:
            return -length / self.scale - volume - special.gammaln(d + 1) - d * math.log(self.scale)
        fall = self._unit / self.scale
        level = np.maximum(np.ceil(length / self._unit - self.gamma), 0)
        mass = math.log(-math.expm1(-fall)) + self.shells(1).log_sum(self.gamma)
        return -fall * level - volume - d * math.log(self._unit) - mass

    def _radial_moment(self, power: int) -> float:
        """Return E R^p: z is R times a uniform point of the unit ball."""
        return self.shells(power).moment(self.gamma) * self._unit**power

    @property
    def mean_norm(self) -> float:
        """E‖z‖, in the noise's own norm: ks where it is exponential."""
        return self._radial_moment(1) * self.size / (self.size + 1)

    def factor(self, power: int) -> float:
        """Return E|z_i|^p over E R^p, on average over the coordinates."""
        power = checks.integer("power", power, 1, 2)
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
        x = checks.array("t", t, ndim=None)
        if isinstance(self.body, Polytope):
            tails = (self._tail(x / w, i) for i, w in enumerate(self._widths))
            return sum(tails) / self.dimension
        if len(found) > 64:
            found = np.repeat(found[len(found) // 128 :: len(found) // 64], len(found) // 64)
        widths, times = np.unique(found, return_counts=True)
        share = self.size / self.dimension / len(found)
        return sum(count * share * self._tail(x / w) for w, count in zip(widths, times))

    def _tail(self, t: Array, i: int = 0) -> Values:
        d = self.size
        plain = self.cap is None and not isinstance(self.body, Polytope) and self.signed
        if self.gamma is None and plain and self.norm != 2:
            x = t / self.scale
            if self.norm == 1 or d == 1:
                return np.exp(-x) / 2
            return (stats.gamma.sf(x, d + 1) - x / d * stats.gamma.sf(x, d)) / 2
        length, mass = self._radii
        return np.vectorize(lambda v: float(mass @ self.body.tail(v / np.maximum(length, 1e-300), i)))(t)

    def release(self, x: Numbers) -> Array:
        """Return vectors with noise, on a lattice with a step of about 2⁻²⁰ of the scale: for deployment.

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
        shift = checks.non_negative("shift", shift)
        if self.gamma is not None:
            shift = math.ceil(shift / self._unit) * self._unit
        return round_up(Fraction(shift) / Fraction(self.scale))

    def __str__(self) -> str:
        return folded(self.summary())

    def summary(self) -> str:
        """Name the norm."""
        parts = [f"norm {self.norm:g}"]
        if self.cap is not None:
            parts = [f"larger of norm {self.norm:g} and norm 1 over {self.cap:g}"]
        if not self.signed:
            parts.append("of what rises plus that of what falls")
        if self.vertices is not None:
            parts = [f"norm of the hull of {len(self.vertices)} changes"]
        if self.planes is not None:
            parts = [f"norm of {len(self.planes)} planes around the hull of the changes"]
        if self.widths is not None:
            parts.append("over the bounds of the coordinates")
        return " ".join(parts) + ("" if self.gamma is None else f", a staircase (gamma = {self.gamma:.6g})")
