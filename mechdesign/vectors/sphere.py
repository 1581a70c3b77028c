r"""A whole vector in b bits: the vertices of a randomly rotated simplex, or random directions, k of which are called near.

Of :math:`M = 2^b` unit vectors from a shared seed exactly k, those of largest inner product with the input, are *near*, with ties broken in
any way. Each near one is sent with probability E / (kE + M − k), each other one with 1 / (kE + M − k). E ≤ e^ε is rational, hence every
probability; doubles may decide which are near, as the guarantee holds for any k of them. With :math:`c_k` the mean sum of the k largest
inner products,

.. math:: r = \frac{kE + M - k}{(E - 1)\, c_k},

:math:`r v_J` has the mean x, and the error :math:`r^2 - 1` on the sphere; k is optimal.

**A rotated simplex** (`SphereQuantizer`; Isik, Chen, Özgür, Weissman, No 2023: the best for this codebook). Its vertices in n dimensions,
never formed as a matrix, are

.. math:: v_i = \sqrt{1 + \tfrac1n}\, e_i - \frac{\sqrt{n+1} - 1}{n\sqrt n}\, \mathbf 1 \quad (i < n), \qquad v_n = -\tfrac1{\sqrt n} \mathbf 1 .

With :math:`T_k` the mean sum of the k largest of M normals, :math:`c_k = \sqrt{M/(M-1)}\, T_k / E\|G_D\|`. By parts, with V
beta-distributed with parameters (M − k, k) and :math:`Z = \Phi^{-1}(V)`,

.. math:: T_k = M\, E\,\varphi(Z), \qquad Q_k = E \sum_{i \le k} g_{(i)}^2 = k + M\, E\, Z \varphi(Z) .

*Rotations.* `ExactRotation` has the uniform law: Q of the QR decomposition, with a positive diagonal of R, of a D × n Gaussian frame A (raw
``qr`` is biased), as :math:`Q^\top x = R^{-\top} A^\top x`. `FastRotation` is a product of sign flips and Walsh–Hadamard transforms on two
overlapping blocks with a fixed shuffle between rounds: orthogonal, in O(D log D), and of nearly the uniform law only. Privacy holds under any
rotation, exact unbiasedness under the uniform law. Under any rotation :math:`E\|r v_J - x\|^2 \le r^2 + 1`, as the near vertices' inner
products with the input have a non-negative sum.

**Random directions** (`RandomDirections`), for any b. Of j messages each has a budget of ε/j and directions of its own, and their mean is the
answer. With f the density of one inner product U, S(t) = P[U ≥ t], A(t) = E[U; U ≥ t], and P beta-distributed with parameters (k, M − k),

.. math:: c_k = M\, E\,A(S^{-1}(P)), \quad k - c_k = M\, E\,(S - A)(S^{-1}(P)), \quad
   E \sum_{i \le k} (1 - U_{(i)}^2) = \frac{D - 1}{D}\, M\, E\,(S - t A)(S^{-1}(P)) .

In D = 2 the directions are the corners of a regular polygon in a random rotation: :math:`c_k = (M/\pi) \sin(\pi k/M)`.

The integrals are taken by the trapezoidal rule; docs/theory (*Vectors*) proves its error below 10⁻¹⁷. docs/wire.md defines the directions of a
seed, which have the same bits in every language: integers, and doubles with + − × ÷ √, each rounded to nearest, in a stated order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy import linalg, special

from mechdesign.checks import field, generator, integer, magnitude, one_of, refuse
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.privacy import PureDP
from mechdesign.solvers.deadline import one_thread
from mechdesign.typing import Array, Indices, Numbers, Randomness
from mechdesign.vectors.ball import VectorMechanism, checked_dimension, halved_sum, power_of_e
from mechdesign.vectors.coded import (
    Source,
    SubsetSelection,
    best_near,
    checked_key,
    shared_normals,
    shared_words,
)
from mechdesign.vectors.sampled import coordinate_epsilon

LARGEST_BITS = 16
LARGEST_FRAME = 1 << 27  # most numbers of an exact rotation: a gigabyte
_PART = 1 << 16  # numbers rotated at a time: they fit a processor's cache


@serializable("sphere-quantizer")
class SphereQuantizer(VectorMechanism, SubsetSelection):
    """A vector of any length in b bits under one budget.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    bits : int
        b from 1 to 16, with 2^b at most one more than the working dimension.
    privacy : PureDP
    inputs : {"ball", "sphere"}
        Lengths at most `radius`, or exactly `radius`.
    radius : float
    rotation : {"exact", "fast"}
        The uniform law, unbiased; or Walsh–Hadamard transforms, fast for many bits, with a bias that `rotation_bias` measures.

    Examples
    --------
    >>> mechanism = SphereQuantizer(500, 8, PureDP(4.0), inputs="sphere")
    >>> round(mechanism.error, 2), mechanism.near      # 1% above the best that any number of bits can do
    (218.79, 17)
    >>> x = np.eye(500)[:2]
    >>> mechanism.release(x).shape
    (2, 500)
    """

    dimension: int = field(check=checked_dimension)
    bits: int = field(check=integer, least=1, most=LARGEST_BITS)
    privacy: PureDP = field(PureDP)
    inputs: str = field(check=one_of, allowed=("ball", "sphere"), default="ball")
    radius: float = field(check=magnitude, default=1.0)
    rotation: str = field(check=one_of, allowed=("exact", "fast"), default="exact")

    def _post_check(self) -> None:
        super()._post_check()
        most = (self.working + 1).bit_length() - 1
        refuse(self.bits > most, "bits", self.bits, f"must be at most {most} in {self.dimension} dimensions")
        _ = self._turn

    # -- the law --------------------------------------------------------------------------------------

    @cached_property
    def near(self) -> int:
        """k, the best number of near vertices: c_k over kE + M − k rises to one peak."""
        return best_near(self.outputs, self.power, lambda k: top_sum(self.outputs, k))

    @cached_property
    def closeness(self) -> float:
        """c_k, the mean sum of the inner products of a unit input with its near vertices."""
        m = self.outputs
        return math.sqrt(m / (m - 1)) * top_sum(m, self.near) / chi_mean(self.working)

    @cached_property
    def factor(self) -> float:
        ratio = (self.near * self.power + self.outputs - self.near) / (self.power - 1)
        return float(ratio) / self.closeness

    @cached_property
    def spread(self) -> float:
        m, k, (more, less) = self.outputs, self.near, map(float, self.probabilities)
        near = m / (m - 1) * (top_squares(m, k) - k / m) / self.working
        return 1 - (less * m / self.working + (more - less) * near)

    @property
    def shared_error(self) -> float:
        """Squared error that averaging does not remove if all vectors share one rotation, for inputs of length R."""
        m, k = self.outputs, self.near
        return self.radius**2 * max(k * (m - k) / ((m - 1) * self.closeness**2) - 1, 0.0)

    @property
    def proved_error(self) -> float:
        """Upper bound on the expected squared error of every input, bias included: for the fast rotation R²(r² + 1)."""
        return self.error if self.rotation == "exact" else self.radius**2 * (self.factor**2 + 1)

    @cached_property
    def _turn(self) -> Rotation:
        kind = ExactRotation if self.rotation == "exact" else FastRotation
        return kind(self.working, self.outputs - 1)

    # -- codes ----------------------------------------------------------------------------------------

    def decoded(self, codes: Numbers, seed: int, *, first: int = 0) -> Array:
        """Return the unbiased estimates, shape (n, d), of vectors whose codes these are."""
        index, (seed, first) = self._checked(codes)[:, 0], checked_key(seed, first)
        out = np.empty((index.size, self.dimension))
        for part, keys in self._parts(index.size, seed, first):
            chosen = weighted_sums(np.equal.outer(index[part], np.arange(self.outputs)).astype(float))
            out[part] = self._answered(self._turn.turned_back(chosen, keys), (len(keys), self.dimension))
        return out

    def _total(self, codes: Indices, seed: int, number: int) -> Array:
        """Sum the estimates from counts of the vertices, rotated back once."""
        counts = np.bincount(codes.ravel(), minlength=self.outputs).astype(float)
        units = self._turn.turned_back(weighted_sums(counts[None, :]), [(seed, number)])
        return self._answered(units, (self.dimension,))

    def _parts(self, count: int, seed: int, first: int = 0) -> Iterator[tuple[slice, Keys]]:
        """Yield slices of the vectors that fit the cache, with their keys."""
        step = max(1, _PART // self.working)
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            yield part, [(seed, first + i) for i in range(part.start, part.stop)]

    def _drawn(self, x: Numbers, seed: int, first: int, clip: bool, rng: Source) -> Indices:
        """Draw the vertex at a random place in the order of falling inner products."""
        y = self.lifted(x, clip=clip)
        ranks = self._ranks(len(y), rng)[:, None]
        out = np.empty_like(ranks)
        for part, keys in self._parts(len(y), seed, first):
            products = vertex_products(self._turn.turned(y[part], keys))
            order = np.argsort(-products, axis=1, kind="stable")  # the same on every processor
            out[part] = np.take_along_axis(order, ranks[part], axis=1)
        return out

    def rotation_bias(self, x: Numbers, *, rng: Randomness = None, draws: int = 1000) -> tuple[float, float]:
        r"""Measure the relative bias :math:`\langle E\,M(x) - x, x\rangle / \|x\|^2` of the rotation at one vector, and its standard error.

        For the exact rotation it is zero. The mean over the answer's law is exact, that over rotations is estimated from draws.
        """
        y = self.lifted(x)
        DataError.when(len(y) != 1, "x: must be one vector")
        seed, count = int(generator(rng).integers(0, 1 << 62)), integer("draws", draws, 2)
        found = np.empty(count)
        for part, keys in self._parts(count, seed):
            products = vertex_products(self._turn.turned(np.repeat(y, len(keys), axis=0), keys))
            largest = -np.partition(-products, self.near - 1, axis=1)[:, : self.near]
            found[part] = largest.sum(axis=1) / self.closeness - 1
        return float(found.mean()), float(found.std(ddof=1) / math.sqrt(count))


# -- order statistics of normals ----------------------------------------------------------------------------------

_NODES = np.linspace(-12.0, 12.0, 9601)  # their step is half of the integrand's least width, at 2¹⁶ normals
_STEP = float(_NODES[1] - _NODES[0])
_LOG_DENSITY = -0.5 * _NODES**2 - 0.5 * math.log(2 * math.pi)
_LOG_BELOW, _LOG_ABOVE = special.log_ndtr(_NODES), special.log_ndtr(-_NODES)


def _weighted(m: int, k: int) -> Array:
    """Return φ(x) times the density of Z at the nodes, times the step."""
    beta = special.betaln(m - k, k)
    logs = 2 * _LOG_DENSITY + (m - k - 1) * _LOG_BELOW + (k - 1) * _LOG_ABOVE - beta
    return np.asarray(np.exp(logs) * _STEP)


def top_sum(m: int, k: int) -> float:
    """Return the mean of the sum of the `k` largest of `m` independent standard normals, 1 ≤ k < m.

    Examples
    --------
    >>> round(top_sum(2, 1), 12) == round(math.pi**-0.5, 12)
    True
    """
    return float(m * _weighted(m, k).sum())


def top_squares(m: int, k: int) -> float:
    """Return the mean of the sum of the squares of the `k` largest of `m` independent standard normals.

    Examples
    --------
    >>> round(top_squares(2, 1), 12)
    1.0
    """
    return float(k + m * (_weighted(m, k) * _NODES).sum())


def chi_mean(d: int) -> float:
    r"""Return the mean length of a standard normal vector, :math:`\sqrt2\,\Gamma((d+1)/2)/\Gamma(d/2)`.

    Examples
    --------
    >>> round(chi_mean(1) ** 2 * math.pi, 12)
    2.0
    """
    if d < 300:
        return math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
    # The difference of the logarithms would lose digits; the asymptotic series is accurate here.
    x = 1 / d
    return math.sqrt(d) * (1 - x / 4 + x**2 / 32 + 5 * x**3 / 128 - 21 * x**4 / 2048)


_ROUNDS = 4
Keys = Sequence[tuple[int, int]]
"""A seed and a number for every vector."""


@dataclass(frozen=True)
class Rotation(ABC):
    """The first `kept` coordinates of rotated vectors of a dimension.

    Parameters
    ----------
    dimension, kept : int
    """

    dimension: int
    kept: int

    @abstractmethod
    def turned(self, x: Array, keys: Keys) -> Array:
        """Rotate vectors (n, D), each under its key; return their first coordinates (n, kept)."""

    @abstractmethod
    def turned_back(self, z: Array, keys: Keys) -> Array:
        """Rotate vectors (n, kept) back; return (n, D)."""


@dataclass(frozen=True)
class ExactRotation(Rotation):
    """A rotation of uniform law."""

    def __post_init__(self) -> None:
        if self.dimension * self.kept > LARGEST_FRAME:
            raise DesignError(
                f"an exact rotation of {self.dimension} dimensions to {self.kept} needs {self.dimension * self.kept:.3g} "
                "normal numbers a vector: fewer bits, or rotation='fast'"
            )

    def frame(self, key: tuple[int, int]) -> Array:
        """Return the Gaussian frame A, shape (D, n)."""
        return shared_normals(*key, self.dimension * self.kept).reshape(self.dimension, self.kept)

    def _decomposed(self, keys: Keys) -> Iterator[tuple[Array, Array]]:
        """Yield A and R, with positive diagonal, for each key."""
        with one_thread():
            for key in keys:
                frame = self.frame(key)
                r = np.linalg.qr(frame, mode="r")
                yield frame, r * np.sign(np.diag(r))[:, None]

    def turned(self, x: Array, keys: Keys) -> Array:
        parts = zip(x, self._decomposed(keys))
        return np.array([linalg.solve_triangular(r, y @ frame, trans=1) for y, (frame, r) in parts])

    def turned_back(self, z: Array, keys: Keys) -> Array:
        parts = zip(z, self._decomposed(keys))
        return np.array([frame @ linalg.solve_triangular(r, y) for y, (frame, r) in parts])


class FastRotation(Rotation):
    """Sign flips and Walsh–Hadamard transforms, four rounds."""

    def _signs(self, keys: Keys) -> Array:
        """Return signs ±1, shape (rounds, n, D)."""
        words = -(-_ROUNDS * self.dimension // 64)
        bits = np.stack([shared_words(*key, words) for key in keys])
        flat = np.unpackbits(bits.astype("<u8").view(np.uint8), axis=1, bitorder="little")
        flat = flat[:, : _ROUNDS * self.dimension].reshape(len(keys), _ROUNDS, self.dimension)
        return np.where(flat, -1.0, 1.0).transpose(1, 0, 2)

    def _mixed(self, x: Array, *, back: bool = False) -> Array:
        """Transform the first coordinates, then the last ones, in place; in reverse order with `back`."""
        size = 1 << (self.dimension.bit_length() - 1)
        blocks = [slice(start, start + size) for start in {0, self.dimension - size}]
        for block in sorted(blocks, key=lambda each: each.start, reverse=back):
            y = x[:, block]
            for _ in range(
                size.bit_length() - 1
            ):  # in the order that docs/wire.md states, not that of a matrix product
                y = np.hstack([y[:, ::2] + y[:, 1::2], y[:, ::2] - y[:, 1::2]])
            x[:, block] = y / math.sqrt(size)
        return x

    def turned(self, x: Array, keys: Keys) -> Array:
        half = (self.dimension + 1) // 2
        with one_thread():
            for flips in self._signs(keys):
                mixed = self._mixed(x * flips)
                # Interleave the two halves.
                x = np.empty_like(mixed)
                x[:, ::2], x[:, 1::2] = mixed[:, :half], mixed[:, half:]
        return x[:, : self.kept]

    def turned_back(self, z: Array, keys: Keys) -> Array:
        x = np.zeros((len(keys), self.dimension))
        x[:, : self.kept] = z
        with one_thread():
            for flips in self._signs(keys)[::-1]:
                x = self._mixed(np.hstack([x[:, ::2], x[:, 1::2]]), back=True) * flips
        return x


# -- the simplex that is rotated ----------------------------------------------------------------------------------


def _constants(n: int) -> tuple[float, float]:
    return math.sqrt(1 + 1 / n), (math.sqrt(n + 1) - 1) / (n * math.sqrt(n))


def vertex_products(z: Array) -> Array:
    """Return the inner products of vectors (count, n) with all vertices; shape (count, n + 1).

    Examples
    --------
    >>> vertex_products(weighted_sums(np.eye(3))).round(12).tolist()
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    n = z.shape[1]
    along, back = _constants(n)
    total = halved_sum(z)
    return np.hstack([along * z - back * total, -total / math.sqrt(n)])


def weighted_sums(counts: Array) -> Array:
    """Return sums of the vertices weighted by counts over the last axis; shape (n,) for n + 1 counts.

    Examples
    --------
    >>> bool(np.allclose(weighted_sums(np.array([1.0, 0.0, 2.0])), weighted_sums(np.eye(3))[[0, 2, 2]].sum(axis=0)))
    True
    """
    n = counts.shape[-1] - 1
    along, back = _constants(n)
    first, last = counts[..., :n], counts[..., n:]
    return np.asarray(along * first - back * first.sum(axis=-1, keepdims=True) - last / math.sqrt(n))


# -- random directions -------------------------------------------------------------------------------------


_WHOLE = 1 << 53
_SIDE = 1 << 26


def _tries(pairs: int) -> int:
    return 3 * pairs // 2 + 64


def direction_words(dimension: int, seed: int, number: int, start: int, stop: int) -> npt.NDArray[np.uint64]:
    """Return the words of directions start, …, stop − 1 of a vector, shape (stop − start, 4 B)."""
    pairs = (dimension + 1) // 2
    blocks = -(-(pairs - 1 + _tries(pairs)) // 4)
    words = shared_words(seed, number, 4 * blocks * (stop - start), blocks * start)
    return words.reshape(stop - start, 4 * blocks)


def directions(dimension: int, words: npt.NDArray[np.uint64]) -> Array:
    """Return the directions of these words, shape (n, D), bit for bit as the module defines them.

    Examples
    --------
    >>> [x.hex() for x in directions(3, direction_words(3, seed=1, number=2, start=3, stop=4))[0].tolist()]
    ['0x1.c464227124d4cp-2', '0x1.a210e05112fafp-1', '-0x1.7c873e5fced10p-2']
    """
    pairs = (dimension + 1) // 2
    tries = _tries(pairs)
    marks = np.sort((words[:, : pairs - 1] >> np.uint64(11)).astype(float), axis=1)
    shares = np.diff(marks, axis=1, prepend=0.0, append=float(_WHOLE))
    words = words[:, pairs - 1 : pairs - 1 + tries]
    a, b = words >> np.uint64(38), words >> np.uint64(12) & np.uint64(_SIDE - 1)
    u, v = 2 * a.astype(float) + (1 - _SIDE), 2 * b.astype(float) + (1 - _SIDE)
    squares = u * u + v * v
    outside = squares > _SIDE * _SIDE
    taken = ~outside | (outside.cumsum(axis=1, dtype=np.int32) > tries - pairs)
    taken &= taken.cumsum(axis=1, dtype=np.int32) <= pairs
    u, v, squares = (found[taken].reshape(-1, pairs) for found in (u, v, squares))
    whole: Array | float = float(_WHOLE)
    if dimension % 2:
        w = shares[:, -1:]
        whole = (_WHOLE - w) + w * ((u * u)[:, -1:] / squares[:, -1:])
    q = np.sqrt((shares / squares) / whole)
    return np.stack([u * q, v * q], axis=-1).reshape(-1, 2 * pairs)[:, :dimension]


@lru_cache(maxsize=4)
def _corners(count: int) -> Array:
    """Return the corners of a regular polygon, the first at (1, 0); shape (2, count)."""
    c, s = np.array([1.0, 0.0, -1.0, 0.0]), np.array([0.0, 1.0, 0.0, -1.0])
    while len(c) < count:
        e, f = c + np.roll(c, -1), s + np.roll(s, -1)
        length = np.sqrt(e * e + f * f)
        c, s = np.stack([c, e / length], axis=1).ravel(), np.stack([s, f / length], axis=1).ravel()
    return np.stack([c, s])[:, :: len(c) // count]


def polygon(count: int, turn: Array, start: int = 0, stop: int | None = None) -> Array:
    """Return corners start, …, stop − 1 of a regular polygon of `count`, a power of two, on the unit circle, the first at `turn`; shape (n, 2)."""
    c, s = _corners(count)[:, start:stop]
    return np.stack([c * turn[0] - s * turn[1], c * turn[1] + s * turn[0]], axis=1)


# -- what the nearest of them are worth ----------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _nodes(d: int, m: int) -> tuple[Array, ...]:
    """Return values at the nodes: log sech^{D−1}, log S and log(1 − S), A, S − A, S − t A."""
    reach = math.acosh(math.exp(55 / (d - 1)))  # less than e^{-55} of the density of U is beyond
    count = math.ceil(reach / 0.7 * math.sqrt((d - 1) * m + 100))
    x = np.linspace(-reach, reach, 2 * count + 1)
    shape, w = (d - 1) / 2, special.expit(-2 * x)  # 1 − t = 2w
    density = -(d - 1) * np.log1p(2 * np.sinh(x / 2) ** 2)
    tail, short = special.betainc(shape, shape, w), special.betainc(shape + 1, shape, w)
    mean = chi_mean(d - 1) / (math.sqrt(2 * math.pi) * (d - 1)) * np.exp(density)
    return density, np.log(tail), np.log(tail[::-1]), mean, short, short + 2 * w * mean


def _off(x: float) -> float:
    """Return 1 − sin(x)/x on [0, 2π]."""
    return math.fsum((-1) ** (n + 1) * x ** (2 * n) / math.factorial(2 * n + 1) for n in range(1, 24))


def nearest(d: int, m: int, k: int) -> tuple[float, float, float]:
    """Return the means of Σ U, Σ (1 − U) and Σ (1 − U²) over the k largest of M inner products, 1 ≤ k < M; for a polygon at D = 2.

    Examples
    --------
    >>> [round(v, 12) for v in nearest(3, 2, 1)]          # the larger of two uniform numbers of [−1, 1]
    [0.333333333333, 0.666666666667, 0.666666666667]
    """
    if d == 2:
        angle = math.pi * k / m
        return k - k * _off(angle), k * _off(angle), k / 2 * _off(2 * angle)
    density, above, below, *values = _nodes(d, m)
    logs = density + (k - 1) * above + (m - k - 1) * below
    weights = np.exp(logs - logs.max())
    total, short, across = (m * float(weights @ value) / float(weights.sum()) for value in values)
    return total, short, (d - 1) / d * across


@serializable("random-directions")
class RandomDirections(VectorMechanism, SubsetSelection):
    """A vector of any length in any number of bits under one budget.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    bits : int
        b, the bits of a message, 1 to 16: it names one of 2^b directions.
    privacy : PureDP
        Requirement for all messages together.
    messages : int
        j, the number of messages, each with budget ε/j and directions of its own; their mean is the answer.
    inputs : {"ball", "sphere"}
        Lengths at most `radius`, or exactly `radius`.
    radius : float

    Examples
    --------
    >>> mechanism = RandomDirections(10, 8, PureDP(8.0), inputs="sphere")
    >>> round(mechanism.error, 4), mechanism.near
    (0.9595, 2)
    >>> x = np.eye(10)[:2]
    >>> mechanism.release(x).shape
    (2, 10)
    """

    dimension: int = field(check=checked_dimension)
    bits: int = field(check=integer, least=1, most=LARGEST_BITS)
    privacy: PureDP = field(PureDP)
    messages: int = field(check=integer, least=1, most=1 << 10, default=1)
    inputs: str = field(check=one_of, allowed=("ball", "sphere"), default="ball")
    radius: float = field(check=magnitude, default=1.0)

    def _post_check(self) -> None:
        super()._post_check()
        most = (LARGEST_FRAME // (self.messages * self.working)).bit_length() - 1
        allowed = f"must be at most {most} in {self.dimension} dimensions, where encoders draw all directions"
        refuse(self.bits > most, "bits", self.bits, allowed)

    @cached_property
    def power(self) -> Fraction:
        """E, the rational lower bound of e^{ε/j} from which every message's probabilities are made."""
        return power_of_e(coordinate_epsilon(self.privacy.epsilon, self.messages))

    @property
    def slots(self) -> int:
        return self.messages

    @cached_property
    def near(self) -> int:
        """k, the best number of near directions."""
        return best_near(self.outputs, self.power, lambda k: nearest(self.working, self.outputs, k)[0])

    @cached_property
    def _sums(self) -> tuple[float, float, float]:
        return nearest(self.working, self.outputs, self.near)

    @property
    def closeness(self) -> float:
        """c_k, the mean sum of the inner products of a unit input with its near directions."""
        return self._sums[0]

    @property
    def factor(self) -> float:
        return float((self.near * (self.power - 1) + self.outputs) / (self.power - 1)) / self.closeness

    @property
    def excess(self) -> float:
        gain, (total, short, _) = self.power - 1, self._sums
        over = short + float(
            self.outputs / gain
        )  # k − c_k and M/(E − 1), computed without c_k, as both may be tiny
        return over / total * (2 + over / total)

    @property
    def spread(self) -> float:
        more, less = map(float, self.probabilities)
        return (more - less) * self._sums[2] + less * self.outputs * (1 - 1 / self.working)

    def _unit_error(self, square: float) -> float:
        return super()._unit_error(square) / self.messages

    # -- codes ----------------------------------------------------------------------------------------

    def _directions(self, seed: int, number: int, message: int, start: int, stop: int) -> Array:
        """Return directions start, …, stop − 1 of a vector's message."""
        d, first = self.working, message * self.outputs
        if d > 2:
            return directions(d, direction_words(d, seed, number, first + start, first + stop))
        turn = directions(d, direction_words(d, seed, number, message, message + 1))[0]
        return polygon(self.outputs, turn, start, stop)

    def _order(self, y: Array, seed: int, number: int, message: int) -> Indices:
        """Return all directions in the order of falling inner products."""
        step = max(1, _PART // self.working)
        products = [
            halved_sum(self._directions(seed, number, message, start, min(start + step, self.outputs)) * y)
            for start in range(0, self.outputs, step)
        ]
        return np.argsort(-np.concatenate(products)[:, 0], kind="stable")

    def _drawn(self, x: Numbers, seed: int, first: int, clip: bool, rng: Source) -> Indices:
        y = self.lifted(x, clip=clip)
        out = self._ranks(len(y) * self.messages, rng).reshape(-1, self.messages)
        for (i, message), rank in np.ndenumerate(out):
            out[i, message] = self._order(y[i], seed, first + i, message)[rank]
        return out

    def _sent(self, codes: Indices, seed: int, number: int) -> Array:
        """Return the mean of the directions that a vector's messages name."""
        named = [self._directions(seed, number, j, c, c + 1)[0] for j, c in enumerate(codes.tolist())]
        return np.asarray(sum(named) / self.messages)

    def decoded(self, codes: Numbers, seed: int, *, first: int = 0) -> Array:
        """Return the unbiased estimates, shape (n, d), of vectors whose codes these are."""
        held, (seed, first) = self._checked(codes), checked_key(seed, first)
        units = [self._sent(row, seed, first + i) for i, row in enumerate(held)]
        return self._answered(np.reshape(units, (-1, self.working)), (len(held), self.dimension))

    def _total(self, codes: Indices, seed: int, number: int) -> Array:
        """Sum the named directions, each computed once and multiplied by its count."""
        rows, counts = np.unique(codes, axis=0, return_counts=True)
        units = sum(count * self._sent(row, seed, number) for row, count in zip(rows, counts))
        return self._answered(np.reshape(units, (1, -1)), (self.dimension,))
