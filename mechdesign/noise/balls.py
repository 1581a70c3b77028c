r"""Unit balls of norms, over which radial noise is spread (`mechdesign.noise.radial`): volumes, moments, points, norms of whole vectors.

Those of ℓ₁, ℓ₂, ℓ_∞; the hull of "at most c numbers change, each by at most 1",
:math:`\{\lVert v\rVert_\infty \le 1, \lVert v\rVert_1 \le c\}`, whose volume and moments are sums of
:math:`(-1)^i \binom ni (c - i)^n` (Joseph and Yu, arXiv 2309.15790); and the hull of "all rise or all fall, by at most
1", :math:`\{\max v^+ + \max v^- \le 1\}`: the differences of d numbers to one more, all within an interval of length 1
[new here]; and the hull of a list of vectors, of few faces. It is the union of simplices from 0 over them, of volume
:math:`|\det|/d!`; of a linear h that is :math:`h_i` at the vertices of one
:math:`E h^2 = ((\sum h_i)^2 + \sum h_i^2)/((d + 1)(d + 2))`, and E max(h, 0) is a divided difference. Faces are solved
for in rational numbers.

A hull of too many faces lies within some of them, each found by the linear program of its norm, :math:`\max n \cdot z`
over :math:`|n \cdot v| \le 1`, in a random direction z. They bound a ball of their own. With :math:`\theta` uniform on
an ellipsoid and :math:`r = 1/\lVert\theta\rVert` its moments are
:math:`E|u_i|^p = \frac d{d + p} E r^{d + p} |\theta_i|^p / E r^d`: simulated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from operator import mul
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from flint import fmpq, fmpz_mat
from scipy import linalg, optimize, spatial, special

from mechdesign.checks import refuse
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.sampling import accepted
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Array, Indices, Status, Values

Kept = npt.NDArray[np.bool_]
Rows = tuple[tuple[int, ...], ...]
Vectors = tuple[tuple[float, ...], ...]
_MOST_FACES = 10_000
"""Largest number of pairs of opposite faces of a hull: more take longer than seconds."""
_MOST_NUMBERS = 12
"""Largest dimension in which all faces of a hull are found: in 13 dimensions a hull has at least 8,192 faces."""
PLANES = 1024
"""Number of faces that replace a hull of too many. For 1,770 changes of ten numbers twice as many cost 4% less variance and take twice as long."""
GRAIN = 2**24
"""Coefficients of a plane are whole multiples of 1/GRAIN."""
_DIRECTIONS = 1 << 17
"""Number of directions that simulate a moment, to .5%."""


def short(cap: Fraction) -> float:
    """Round the cap of a hull up to 12 bits: the release multiplies integers by it."""
    unit = Fraction(2) ** (math.frexp(float(cap))[1] - 12)
    return float(math.ceil(cap / unit) * unit)


@dataclass(frozen=True)
class Ball:
    r"""The unit ball of a norm on :math:`\mathbb R^d`.

    Parameters
    ----------
    dimension : int
        d.
    norm : {1, 2, inf}
    signed : bool
        False: the hull of the vectors of ℓ_∞ norm at most 1 whose entries all rise or all fall.

    Examples
    --------
    >>> [round(21 * 22 * ball.moment(2), 2) for ball in (Ball(20), CappedCube(20, cap=5.0), Ball(20, signed=False))]
    [154.0, 46.12, 84.33]
    """

    dimension: int
    norm: float = math.inf
    signed: bool = True

    ratio: ClassVar[tuple[int, int]] = 1, 1
    """The cap as a fraction, where there is one."""
    slack: ClassVar[float] = 1.0
    """Factor by which a moment may be too large: vertices of a hull need not lie exactly on its faces."""

    def gauge(self, z: Array) -> Array:
        """Return the norms of vectors along the last axis."""
        if not self.signed:
            return np.asarray(np.maximum(z.max(axis=-1), 0) - np.minimum(z.min(axis=-1), 0))
        return np.asarray(np.linalg.norm(z, ord=self.norm, axis=-1))

    def radius(self, z: Indices) -> Indices:
        """Return ‖z‖ rounded up to a whole number, for whole z; not defined for ℓ₂."""
        if not self.signed:
            return np.asarray(np.maximum(z.max(axis=1), 0) - np.minimum(z.min(axis=1), 0))
        return np.asarray(np.abs(z).sum(axis=1) if self.norm == 1 else np.abs(z).max(axis=1))

    def within(self, z: Indices, radius: Indices) -> Kept:
        """Return whether whole vectors, shape (n, d), have norm at most the radius; for a hull they must lie in the cube around it."""
        return np.asarray(self.radius(z) <= radius)

    @property
    def wide(self) -> float:
        """Largest norm of a vector of entries ±1; 1 where all entries must have one sign."""
        return {1.0: float(self.dimension), 2.0: math.sqrt(self.dimension), math.inf: 1.0}[self.norm]

    def moment(self, power: int) -> float | Array:
        """Return E|u_i|^p of a uniform point u, p = 1 or 2; for a hull, of each coordinate."""
        d = self.dimension
        if not self.signed:
            return (d + 2) / (3 * (d + 1)) if power == 1 else (d + 3) / (6 * (d + 1))
        if self.norm == 1:
            return power / math.prod(d + i for i in range(1, power + 1))
        if self.norm == 2:
            return 1 / (d + 2) if power == 2 else 1 / float(special.poch(d / 2 + 1, 0.5)) / math.sqrt(math.pi)
        return 1 / (power + 1)

    def tail(self, x: Values, i: int = 0) -> Values:
        """Return P[u_i > x] for x ≥ 0; simulated for a hull, to .002."""
        d, at = self.dimension, np.minimum(x, 1.0)
        if not self.signed:
            return ((1 - at) + (d - 1) * (1 - at) ** 2 / 2) / (d + 1)
        if self.norm == 2:
            return special.betainc((d + 1) / 2, 0.5, 1 - at**2) / 2
        return (1 - at) ** (d if self.norm == 1 else 1) / 2

    @property
    def log_volume(self) -> float:
        """Logarithm of the ball's volume."""
        d = self.dimension
        if not self.signed:
            return math.log(d + 1)
        if self.norm == 2:
            return d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1)
        return d * math.log(2) - (math.lgamma(d + 1) if self.norm == 1 else 0.0)

    def points(self, size: int, draws: np.random.Generator) -> Array:
        """Draw uniform points, shape (size, d), for simulation.

        ℓ₂: a Gaussian direction with radius U^{1/d}; ℓ₁: the first d of d + 1 uniform spacings with random signs.
        """
        shape = (size, self.dimension)
        if not self.signed:
            numbers = draws.random((size, self.dimension + 1))
            np.put_along_axis(numbers, draws.integers(self.dimension + 1, size=(size, 1)), 0.0, axis=1)
            return numbers[:, 1:] - numbers[:, :1]
        if self.norm == math.inf:
            return draws.uniform(-1.0, 1.0, shape)
        if self.norm == 2:
            direction = draws.standard_normal(shape)
            direction /= np.linalg.norm(direction, axis=1, keepdims=True)
            return direction * draws.random((size, 1)) ** (1 / self.dimension)
        spacings = draws.standard_exponential((size, self.dimension + 1))
        points = spacings[:, :-1] / spacings.sum(axis=1, keepdims=True)
        return np.asarray(points * draws.choice([-1.0, 1.0], shape))

    @cached_property
    def around(self) -> tuple[Ball, float]:
        """The proposal ball for rejection sampling on the lattice, and its acceptance rate."""
        return self, 1.0


@dataclass(frozen=True)
class CappedCube(Ball):
    """The hull {ℓ_∞ norm ≤ 1, ℓ₁ norm ≤ c}, c between 1 and d; its volume, moments and tail by exact sums.

    T_m(t) is the m-fold integral of the density of the sum of d − 1 uniform numbers.
    """

    cap: float = 1.0

    @property
    def ratio(self) -> tuple[int, int]:  # type: ignore[override]
        return self.cap.as_integer_ratio()

    def gauge(self, z: Array) -> Array:
        return np.asarray(np.maximum(super().gauge(z), np.abs(z).sum(axis=-1) / self.cap))

    def radius(self, z: Indices) -> Indices:
        over, under = self.ratio
        whole, rest = np.divmod(np.abs(z).sum(axis=1), over)
        return np.asarray(np.maximum(super().radius(z), whole * under - -rest * under // over))

    @property
    def wide(self) -> float:
        return max(1.0, self.dimension / self.cap)

    def _fold(self, times: int, less: Fraction | int = 0) -> Fraction:
        """Return T_m(c − less)."""
        n, power = self.dimension - 1, self.dimension - 1 + times
        over, under = (Fraction(self.cap) - less).as_integer_ratio()
        if over <= 0:
            return Fraction(0)
        terms = (
            (-1) ** i * math.comb(n, i) * (over - i * under) ** power
            for i in range(min(n, over // under) + 1)
        )
        return Fraction(sum(terms), under**power * math.factorial(power))

    @cached_property
    def _sums(self) -> tuple[Fraction, float, float]:
        """The share of the cube that the ball fills, and its moments."""
        near, far = ([self._fold(m, less) for m in (1, 2, 3)] for less in (0, 1))
        share = near[0] - far[0]
        first = -far[0] + near[1] - far[1]
        second = -far[0] + 2 * (near[2] - far[2] - far[1])
        return share, float(first / share), float(second / share)

    def moment(self, power: int) -> float:
        return float(self._sums[power])

    @cached_property
    def _tails(self) -> Array:
        far, share = self._fold(1, 1), self._sums[0]
        return np.array([float((self._fold(1, Fraction(i, 64)) - far) / share / 2) for i in range(65)])

    def tail(self, x: Values, i: int = 0) -> Values:
        """Interpolate the tail, which is convex, between 65 points: from above."""
        return np.asarray(np.interp(np.minimum(x, 1.0), np.linspace(0, 1, 65), self._tails))

    @property
    def log_volume(self) -> float:
        share = self._sums[0]  # which doubles may not hold
        return self.dimension * math.log(2) + math.log(share.numerator) - math.log(share.denominator)

    def points(self, size: int, draws: np.random.Generator) -> Array:
        """Draw numbers of density e^(−t|x|), kept with probability e^(t(Σ|x| − c)), t such that Σ|x| is about c."""
        shape, cap, tilt = (size, self.dimension), self.cap, 0.0
        mean = cap / self.dimension
        if mean < 0.499:
            tilt = optimize.brentq(lambda t: 1 / t - 1 / math.expm1(t) - mean, 1e-3, 1 / mean)

        def proposed(missing: int) -> Array:
            u = draws.random((2 * missing + 16, shape[1]))
            sizes = -np.log1p(u * math.expm1(-tilt)) / tilt if tilt else u
            over = sizes.sum(axis=1) - cap
            return np.asarray(
                sizes[(over <= 0) & (draws.random(len(over)) < np.exp(np.minimum(tilt * over, 0)))]
            )

        return np.asarray(accepted(size, proposed) * draws.choice([-1.0, 1.0], shape))

    @cached_property
    def around(self) -> tuple[Ball, float]:
        d, tried = self.dimension, [Ball(self.dimension), Ball(self.dimension, 1.0)]
        larger = [ball.log_volume + d * math.log(self.cap) * (ball.norm == 1) for ball in tried]
        k = int(np.argmin(larger))
        return tried[k], math.exp(self.log_volume - larger[k])


class Polytope(Ball):
    """A symmetric part of the cube whose norm is the largest :math:`|n \\cdot z|` over planes :math:`n \\cdot v = 1`."""

    rows: Rows
    volume: float
    _moment: Callable[[int], Array]

    @cached_property
    def _first(self) -> Array:
        return self._moment(1)

    @cached_property
    def _second(self) -> Array:
        return self._moment(2)

    def moment(self, power: int) -> Array:
        """Return E|u_j|^p of a uniform point, from above."""
        return self._first if power == 1 else self._second

    @property
    def log_volume(self) -> float:
        return math.log(self.volume)

    @cached_property
    def around(self) -> tuple[Ball, float]:
        return Ball(self.dimension), math.exp(self.log_volume) / 2**self.dimension

    @cached_property
    def _simulated(self) -> Array:
        """Absolute values of the coordinates of uniform points, each coordinate sorted."""
        return np.sort(np.abs(self.points(1 << 16, np.random.default_rng(0))), axis=0)

    def tail(self, x: Values, i: int = 0) -> Values:
        found = np.searchsorted(self._simulated[:, i], np.minimum(x, 1.0), "right")
        return (1 - found / len(self._simulated)) / 2

    @cached_property
    def normals(self) -> Array:
        """Normals n of the planes, in doubles."""
        return np.array([[a / m for a in n] for *n, m in self.rows])

    def most(self, points: Sequence[Sequence[Fraction]]) -> Fraction:
        """Return the largest norm of points, exactly."""
        near = np.abs(np.array(points, dtype=float) @ self.normals.T)
        units = [math.lcm(*(x.denominator for x in point)) for point in points]
        scaled = [([int(x * unit) for x in point], unit) for point, unit in zip(points, units)]
        top = Fraction(0)
        for i, j in np.argwhere(near >= near.max() - 1e-9 - 1e-14 * self.wide):
            *n, m = self.rows[j]
            whole, over = scaled[i]
            top = max(top, Fraction(abs(sum(map(mul, n, whole))), m * over))
        return top

    def gauge(self, z: Array) -> Array:
        """Return the norms of vectors along the last axis."""
        flat, faces = z.reshape(-1, z.shape[-1]), len(self.rows)
        parts = np.array_split(flat, max(1, flat.size * faces // (1 << 22)))
        found = [np.abs(part @ self.normals.T).max(axis=1, initial=0.0) for part in parts]
        return np.concatenate(found).reshape(z.shape[:-1])

    def within(self, z: Indices, radius: Indices) -> Kept:
        """Return whether whole vectors have norm at most a whole number: decided in doubles, or exactly where these leave doubt."""
        doubt = 2.0**-46 * self.wide * (1 + np.abs(z).max(axis=1, initial=0))
        # most points of a box of ten numbers lie beyond one of the first 64 planes
        kept: Kept = np.abs(z @ self.normals[:64].T).max(axis=1, initial=0.0) <= radius + doubt
        inside = np.flatnonzero(kept)
        sizes = self.gauge(z[inside].astype(float))
        kept[inside] = sizes <= radius[inside]
        for i in inside[np.abs(sizes - radius[inside]) <= doubt[inside]]:
            row, most = z[i].tolist(), int(radius[i])
            kept[i] = all(abs(sum(map(mul, n, row))) <= m * most for *n, m in self.rows)
        return kept

    @cached_property
    def wide(self) -> float:
        """Largest norm of a vector of entries ±1, rounded up."""
        return round_up(max(Fraction(sum(map(abs, n)), m) for *n, m in self.rows))


@dataclass(frozen=True)
class Hull(Polytope):
    r"""The hull of vectors and of their negatives, whose norm is the largest :math:`|n \cdot z|` over its faces :math:`n \cdot v = 1`.

    Parameters
    ----------
    dimension : int
    vertices : tuple of tuple of float
    simplices : tuple of tuple of int
        Faces: d vertices each, counted from 1, negative for the negative of a vertex; one of each face and its negative.

    Examples
    --------
    >>> hull = hull_of(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> hull.simplices, hull.rows
    (((1, -2), (1, 3), (2, 3)), ((-1, 1, 1), (0, 1, 1), (1, 0, 1)))
    >>> round(hull.volume, 9), hull.moment(2)
    (3.0, array([0.27777778, 0.27777778]))
    """

    vertices: Vectors = ()
    simplices: Rows = ()

    @cached_property
    def _whole(self) -> tuple[list[list[int]], int]:
        """The vertices as integers, and their common denominator."""
        exact = [[Fraction(x) for x in v] for v in self.vertices]
        unit = max(x.denominator for v in exact for x in v)
        return [[int(x * unit) for x in v] for v in exact], unit

    @cached_property
    def _solved(self) -> tuple[list[int], Rows, list[list[list[int]]]]:
        """Determinant of each face, its n over the least common denominator, and its vertices."""
        whole, unit = self._whole
        sizes, rows, corners = [], [], []
        for face in self.simplices:
            corner = [whole[i - 1] if i > 0 else [-x for x in whole[-i - 1]] for i in face]
            matrix = fmpz_mat(corner)
            size = int(matrix.det())
            normal = matrix.solve(fmpz_mat([[unit]] * len(face))).entries() if size else [fmpq(0)] * len(face)
            over = math.lcm(*(int(x.q) for x in normal))
            rows.append((*(int(x.p) * (over // int(x.q)) for x in normal), over))
            sizes.append(size)
            corners.append(corner)
        return sizes, tuple(rows), corners

    @property
    def rows(self) -> Rows:  # type: ignore[override]
        r"""The integers :math:`n_1 m, \dots, n_d m` and m of each face."""
        return self._solved[1]

    @cached_property
    def sound(self) -> bool:
        """Whether the faces cover every direction equally often: every ridge (a face without one vertex) has equally many faces on both sides."""
        sizes, sides, d = self._solved[0], Counter[tuple[int, ...]](), self.dimension
        for face, size in zip(self.simplices, sizes):
            for p in range(d):
                rest, turn = face[:p] + face[p + 1 :], (-1) ** p * (1 if size > 0 else -1)
                sides[rest] += turn
                sides[tuple(-i for i in rest)] += turn * (-1) ** d
        return all(sizes) and not any(sides.values()) and len(set(self.simplices)) == len(self.simplices)

    @cached_property
    def over(self) -> float:
        """Largest relative distance of a vertex beyond a face, rounded up: on a face the norm exceeds the value of that face's n by at most this."""
        return round_up(max(self.most([[Fraction(x) for x in v] for v in self.vertices]) - 1, Fraction(0)))

    @property
    def slack(self) -> float:  # type: ignore[override]
        return (1 + self.over) ** (2 * self.dimension + 2)

    @cached_property
    def volume(self) -> float:  # type: ignore[override]
        d, unit = self.dimension, self._whole[1]
        return float(Fraction(2 * sum(map(abs, self._solved[0])), math.factorial(d) * unit**d))

    def _moment(self, power: int) -> Array:
        sizes, _, corners = self._solved
        d, unit = self.dimension, self._whole[1]
        total = [fmpq(0)] * d
        for size, corner in zip(map(abs, sizes), corners):
            for j, column in enumerate(zip(*corner)):
                if power == 2:
                    total[j] += size * (sum(column) ** 2 + sum(x * x for x in column))
                else:
                    total[j] += size * (2 * rising(column) - sum(column))
        scale = sum(map(abs, sizes)) * math.prod(unit * (d + p) for p in range(1, power + 1))
        means = [float(Fraction(int(x.p), int(x.q) * scale)) for x in total]
        return np.array(means) * (1 + self.over) ** d

    def points(self, size: int, draws: np.random.Generator) -> Array:
        """Draw uniform points."""
        share = np.array([abs(x) / sum(map(abs, self._solved[0])) for x in self._solved[0]])
        corners = np.array([[self.vertices[abs(i) - 1] for i in face] for face in self.simplices])
        corners *= np.sign(self.simplices)[:, :, None]
        chosen = draws.choice(len(share), size, p=share / share.sum())
        weights = draws.dirichlet(np.ones(corners.shape[1] + 1), size)[:, 1:]
        found = np.einsum("ni,nij->nj", weights, corners[chosen])
        return np.asarray(found * draws.choice([-1.0, 1.0], (size, 1)))


@dataclass(frozen=True)
class Planes(Polytope):
    """A symmetric body given by planes, too many for its vertices to be known.

    Parameters
    ----------
    dimension : int
    planes : tuple of tuple of int
        n times `GRAIN`, one of each pair ±n; the planes of the cube are among them.

    Examples
    --------
    >>> square = Planes(2, planes=((GRAIN, 0), (0, GRAIN)))
    >>> abs(square.volume - 4) < 0.02, bool(abs(square.moment(2) - 1 / 3).max() < 0.003)
    (True, True)
    """

    planes: Rows = ()

    @cached_property
    def rows(self) -> Rows:  # type: ignore[override]
        return tuple((*n, GRAIN) for n in self.planes)

    @cached_property
    def _rays(self) -> tuple[Array, Array, float]:
        """Points of the boundary, their weights over the largest, and the logarithm of the volume if all had the largest weight."""
        normals = self.normals
        d = normals.shape[1]
        round_ = np.linalg.inv(np.linalg.cholesky(normals.T @ normals)).T
        theta = np.random.default_rng(0).standard_normal((_DIRECTIONS, d))
        theta = theta / np.linalg.norm(theta, axis=1, keepdims=True) @ round_.T
        length = -d * np.log(self.gauge(theta))
        unit = float(length.max()) + math.log(abs(np.linalg.det(round_))) + Ball(d, 2.0).log_volume
        return theta * np.exp(length / d)[:, None], np.exp(length - length.max()), unit

    @property
    def volume(self) -> float:  # type: ignore[override]
        """Volume, simulated."""
        _, weights, unit = self._rays
        return math.exp(unit) * float(weights.mean())

    def _moment(self, power: int) -> Array:
        """Return the simulated moment plus three standard errors."""
        points, weights, _ = self._rays
        d, share = points.shape[1], weights / weights.sum()
        powers = np.abs(points) ** power
        mean = share @ powers
        return np.asarray(d / (d + power) * (mean + 3 * np.sqrt(share**2 @ (powers - mean) ** 2)))

    def points(self, size: int, draws: np.random.Generator) -> Array:
        """Draw points, uniform except that their directions are those of the simulation."""
        points, weights, _ = self._rays
        chosen = draws.choice(len(weights), size, p=weights / weights.sum())
        return np.asarray(points[chosen] * draws.random((size, 1)) ** (1 / points.shape[1]))


def planes_around(vectors: Array, deadline: Deadline) -> Rows:
    """Find some faces of the hull of ±`vectors`, which span the space and have entries of at most 1; the planes of the cube come first.

    Where time runs out fewer faces are returned; each of them is valid.
    """
    d = vectors.shape[1]
    program = LinearProgram("norm of the hull", deadline=deadline, presolve="off")
    program.add_columns("normal", np.zeros(d), lower=-np.inf)
    program.add_rows("changes", {"normal": vectors}, lower=-1.0, upper=1.0)
    spread = np.linalg.cholesky(vectors.T @ vectors / len(vectors))
    found = [*np.eye(d)]
    for direction in np.random.default_rng(0).standard_normal((PLANES, d)) @ spread.T:
        program.change_costs("normal", -direction)
        if program.run() is Status.OPTIMAL:
            found.append(program.x / np.abs(vectors @ program.x).max())
        elif deadline.passed:
            break
    whole = np.rint(np.array(found) * GRAIN)
    signs = np.sign(whole[np.arange(len(whole)), np.argmax(whole != 0, axis=1)])
    _, first = np.unique(whole * signs[:, None], axis=0, return_index=True)
    return tuple(tuple(map(int, whole[i])) for i in sorted(first))


def rising(column: Sequence[int]) -> fmpq:
    r"""Return (d + 1) E max(h, 0) of a linear function h on a simplex, whose values at the corners are 0 and these d numbers.

    This is the divided difference of :math:`x_+^{d+1}` (Hermite and Genocchi); where all numbers are positive it is a complete homogeneous
    symmetric polynomial.
    """
    up, down = [x for x in column if x > 0], [x for x in column if x < 0]
    powers = [[1] + [0] * (len(column) + 1)]  # complete homogeneous polynomials of up[i:], by degree
    for x in reversed(up):
        rest = list(powers[0])
        for k in range(1, len(rest)):
            rest[k] += x * rest[k - 1]
        powers.insert(0, rest)
    # divided differences over up[i:] and all zeros; then over more and more of down
    last = [fmpq(powers[i][1 + len(down) + i]) for i in range(len(up))] + [fmpq(0)]
    for y in down:
        for i in range(len(up) - 1, -1, -1):
            last[i] = (last[i] - last[i + 1]) / (up[i] - y)
    return last[0]


@lru_cache(32)
def shared(kind: Callable[..., Ball], *fields: Any) -> Ball:
    """Return a ball, cached: all laws of one norm share it."""
    return kind(*fields)


def hull_of(vectors: Array) -> Hull:
    """Find the faces of the hull of vectors that span the space.

    The vectors are first moved outwards by random factors of up to 1 + 1e-8: each face then has d linearly independent vertices, and the faces cover
    every direction once. Vectors are added a few at a time, so that a hull of too many faces is refused early.
    """
    signs = np.sign(vectors[np.arange(len(vectors)), np.argmax(vectors != 0, axis=1)])
    found = np.unique((vectors * signs[:, None])[signs != 0], axis=0)
    d = found.shape[1]
    allowed = f"have a hull of more than {_MOST_FACES} pairs of faces: list fewer, or bounds that hold them"
    refuse(d > _MOST_NUMBERS, "changes", vectors.shape, allowed)
    moved = found * (1 + 1e-8 * np.random.default_rng(0).random((len(found), 1)))
    order = linalg.qr(found.T, mode="r", pivoting=True)[1]  # d that span first
    found, moved = found[order], moved[order]
    taken, labels = d, [*range(1, d + 1), *range(-1, -d - 1, -1)]
    hull = spatial.ConvexHull(np.concatenate([moved[:d], -moved[:d]]), incremental=True)
    while taken < len(found) and len(hull.simplices) <= 2 * _MOST_FACES:
        more = np.arange(taken, min(len(found), taken + 1 + taken // 8))
        hull.add_points(np.concatenate([moved[more], -moved[more]]))
        labels += [*(more + 1).tolist(), *(-more - 1).tolist()]
        taken = more[-1] + 1
    refuse(len(hull.simplices) > 2 * _MOST_FACES, "changes", vectors.shape, allowed)
    faces = {tuple(labels[i] for i in face) for face in hull.simplices.tolist()}
    used = sorted({abs(i) for face in faces for i in face}, key=lambda i: tuple(found[i - 1]))
    place = {s * old: s * new for new, old in enumerate(used, 1) for s in (1, -1)}
    named = faces_named({faces_named([[place[i] for i in face]])[0] for face in faces})
    return Hull(d, vertices=tuple(tuple(found[i - 1].tolist()) for i in used), simplices=named)


def faces_named(faces: Iterable[Iterable[int]]) -> Rows:
    """Return the faces in one order, each with a positive first vertex (its negative is a face too), so that lists of the same faces are equal."""
    ordered = (tuple(sorted(face, key=abs)) for face in faces)
    return tuple(sorted(face if face[:1] > (0,) else tuple(-i for i in face) for face in ordered))
