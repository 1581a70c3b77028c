r"""A whole vector in b bits, for any b: M = 2^b random directions from a shared seed, k of which are called near.

The k directions of largest inner product with the input are *near*, with ties broken in any way; each near one is sent with probability
E / (kE + M − k), each other one with 1 / (kE + M − k), E ≤ e^ε rational. Over the directions :math:`r v_J` has the mean x, and the error
:math:`r^2 - 1` on the sphere, with :math:`r = (kE + M - k)/((E - 1)\, c_k)` and :math:`c_k` the mean sum of the k largest inner products. For j
messages each has a budget of ε/j and directions of its own, and their mean is the answer: the error is that of one over j.

**The k largest of M inner products.** Let U be the inner product of a uniform direction with the input, f its density, S(t) = P[U ≥ t],
A(t) = E[U; U ≥ t]. By parts, with P beta-distributed with parameters (k, M − k),

.. math:: c_k = M\, E\,A(S^{-1}(P)), \quad k - c_k = M\, E\,(S - A)(S^{-1}(P)), \quad
   E \sum_{i \le k} (1 - U_{(i)}^2) = \frac{D - 1}{D}\, M\, E\,(S - t A)(S^{-1}(P)) .

With t = tanh x the density of :math:`x = \operatorname{artanh} S^{-1}(P)` is :math:`g \propto \mathrm{sech}^{D-1}(x)\, S^{k-1} (1 - S)^{M-k-1}`, and :math:`A \propto \mathrm{sech}^{D-1}(x)`.
The trapezoidal rule of step h gives their integrals over the line with a relative error of at most
:math:`2 e^{-2\pi a/h} (\cos a)^{-(D-1) M} / (1 - e^{-2\pi a/h})` for every a < π/2: by Poisson's formula the error is at most that with
:math:`\int |g(x + ia)|\,dx` in the place of the power; and as :math:`|\cosh(x + ia)| \ge \cosh x \cos a`, each of the D − 1 times M factors grows by 1/cos a at most, in S
and in 1 − S = S(−x) under the integral. The step below makes it less than 10⁻¹⁷.

**Polygons.** In D = 2 the directions are the corners of a regular polygon in a random rotation. Its k nearest corners are at offsets that
together are uniform on an arc: :math:`c_k = (M/\pi) \sin(\pi k/M)`.

**Directions from a seed** have the same bits in every language: they use integers, and doubles with + − × ÷ √ in a stated order.

**The definition.** Direction c = 0, 1, … of vector i under a seed, in D ≥ 2 dimensions. Let P = ⌈D/2⌉, K = ⌊3P/2⌋ + 64, B = ⌈(P − 1 + K)/4⌉.
Its words of 64 bits W₀, W₁, … are the output of Philox4x64-10 with the key (seed mod 2⁶⁴, ⌊seed/2⁶⁴⌋) for the counters (cB + 1, 0, i, 0),
(cB + 2, 0, i, 0), …, (cB + B, 0, i, 0): the least significant word of a counter first, four words of output each, in their order.

1. *Shares.* The integers ⌊Wⱼ/2¹¹⌋, j < P − 1, sorted, with 0 before and 2⁵³ after them: their P differences w₀, …, w_{P−1}.
2. *Points of a disc.* Of each of the next K words the leading 26 bits a and the following 26 bits b give the odd integers
   u = 2a + 1 − 2²⁶, v = 2b + 1 − 2²⁶ and t = u² + v², all exact in doubles. Words with t > 2⁵² are passed over as long as no more
   than K − P of them were (more come with a probability below 2⁻⁷⁷); the first P others are taken, in their order.
3. *Length.* n = 2⁵³ for even D. For odd D the last of the 2P coordinates is dropped: n = (2⁵³ − w) + w × ((u × u) ÷ t) with the last w, u, t.
4. *Coordinates.* Pair j is (u × q, v × q), q = √((wⱼ ÷ t) ÷ n).

Each of + − × ÷ √ is one operation of IEEE doubles, rounded to nearest; in C without contraction (``-ffp-contract=off``).

**Its law** is uniform on the sphere, up to the grids of the integers: the squared lengths of the pairs of coordinates of a uniform direction are
the spacings of P − 1 uniform numbers (Dirichlet with all parameters 1), and every pair has the direction of a uniform point of a disc.
Without its last coordinate, and stretched to length 1, it is uniform in one dimension less.

**Polygons**, at D = 2. The corners of the square are (1, 0), (0, 1), (−1, 0), (0, −1). Of a polygon of twice as many corners those at even places
are the ones before, and between the neighbours (a, b) and (c, d) lies (e ÷ l, f ÷ l), e = a + c, f = b + d, l = √(e × e + f × f); two corners are (1, 0), (−1, 0).
Turned by direction 0, (x, y), a corner (c, s) is (c × x − s × y, c × y + s × x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import field, integer, magnitude, one_of
from mechdesign.problem.privacy import PureDP
from mechdesign.typing import Array, Indices, Numbers
from mechdesign.vectors.ball import VectorMechanism, checked_dimension, halved_sum, power_of_e
from mechdesign.vectors.coded import SubsetSelection, best_near, checked_key, shared_words
from mechdesign.vectors.sampled import coordinate_epsilon
from mechdesign.vectors.sphere import LARGEST_BITS, LARGEST_FRAME, chi_mean

_PART = 1 << 16  # numbers of directions computed at a time: they fit a processor's cache
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
@dataclass(frozen=True)
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.messages * self.outputs * self.working > LARGEST_FRAME:
            most = (LARGEST_FRAME // (self.messages * self.working)).bit_length() - 1
            allowed = f"must be at most {most} in {self.dimension} dimensions, where an encoder draws all directions"
            raise DesignError.of("bits", self.bits, allowed)

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

    def _drawn(
        self, x: Numbers, seed: int, first: int, clip: bool, rng: np.random.Generator | None
    ) -> Indices:
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
