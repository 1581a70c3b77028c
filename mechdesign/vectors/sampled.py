r"""Sampled coordinates: k of d, chosen by shared randomness, each through a private quantizer of one number.

Every chosen coordinate consumes ε/k; the estimate :math:`\tfrac dk \sum_{j \in S} M(x_j)\, e_j` is unbiased, with the error

.. math:: \sum_j \Big(\tfrac dk\, E\,M(x_j)^2 - x_j^2\Big).

Of all unbiased private answers to a number in [−1, 1] two outputs ±(E + 1)/(E − 1) have the least second moment at the ends of the range
(:math:`2 = \int m (p_1 - p_{-1}) \le \sqrt{2 S \cdot 2 \tanh^2(\varepsilon/2)}` for the mean S of the two second moments), so that one bit
suffices while k < d. (If every coordinate is sent, more outputs have a smaller worst variance; then `SampledSigns` and `SphereQuantizer` have a
smaller error still: results/ablations, vectors.)

**Signs of sampled coordinates**, sent together: ℓ∞-bounded vectors in a few bits under one budget.

b of d coordinates, chosen by shared randomness, are each rounded at random to −1 or 1. Among the 2^b words of b signs those that differ from the rounded one in at most
j places are near; each of the k near ones is sent with probability E / (kE + 2^b − k), each other one with 1 / (kE + 2^b − k), E ≤ e^ε rational. With the
mean agreement a of a sign with its answer, and the answer y for the chosen coordinates,

.. math:: a = \frac{(E - 1) \sum_{i \le j} \binom bi (b - 2i)/b}{kE + 2^b - k}, \qquad
   \text{estimate } \frac{d}{b\,a}\, y, \qquad \text{error } \frac{d^2}{b\,a^2} - \|x\|^2,

exactly, for any input; j is optimal. For j = 0 it is randomized response over the words (Chen, Kairouz, Özgür 2020, without their representation).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from scipy import optimize

from mechdesign import checks
from mechdesign.checks import Checked, field, integer, magnitude, one_of, settle
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.exact import exp_lower, round_down, round_up
from mechdesign.evidence.sampling import IntegerRows
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.quantizers.sampling import ExactSampler, is_tensor
from mechdesign.quantizers.table import RationalTable
from mechdesign.typing import Array, Indices, Numbers, Randomness
from mechdesign.vectors.ball import (
    PureMechanism,
    checked_dimension,
    power_of_e,
    scaled_vectors,
)
from mechdesign.vectors.coded import (
    CodedMechanism,
    Source,
    SubsetSelection,
    checked_key,
    rounded_signs,
    shared_subsets,
)


def coordinate_epsilon(epsilon: float, count: int) -> float:
    """Return ε/k, rounded down so that k times it is at most ε."""
    return round_down(Fraction(epsilon) / count)


def two_outputs(epsilon: float) -> Quantizer:
    """Return the exact unbiased quantizer of [−1, 1] with two outputs (Duchi, Jordan, Wainwright 2018).

    Examples
    --------
    >>> two_outputs(1.0).privacy_loss() <= 1.0
    True
    """
    e = power_of_e(epsilon)
    far, more, less = (e + 1) / (e - 1), e / (e + 1), 1 / (e + 1)
    one = Fraction(1)
    return Quantizer.of_law(RationalTable.continuous((-far, far), (-one, one), ((more, less), (less, more))))


def _limit(name: str, value: object) -> int | None:
    return None if value is None else integer(name, value, 1, 1 << 24)


class SampledSubset(CodedMechanism):
    """Base of mechanisms that send a few coordinates of every vector, chosen by shared randomness."""

    inputs: str = "box"
    """Coordinates in [−R, R]."""
    radius: float

    @property
    @abstractmethod
    def sent(self) -> int:
        """Number of coordinates sent."""

    def _scaled(self, x: Numbers, clip: bool) -> Array:
        """Return vectors over R, shape (n, d)."""
        return scaled_vectors(x, self.dimension, self.radius, self.inputs, clip=clip)

    def _chosen(self, x: Numbers, seed: int, first: int, clip: bool) -> Array:
        """Return the sent coordinates over R, shape (n, sent)."""
        y = self._scaled(x, clip)
        return np.take_along_axis(y, shared_subsets(seed, first, len(y), self.dimension, self.sent), axis=1)

    @abstractmethod
    def _estimates(self, codes: Indices) -> Array:
        """Return the estimates of the sent coordinates, shape (n, sent), from codes (n, slots)."""

    def decoded(self, codes: Numbers, seed: int, *, first: int = 0) -> Array:
        """Return the unbiased estimates, shape (n, d), of vectors whose codes these are."""
        held, (seed, first) = self._checked(codes), checked_key(seed, first)
        out = np.zeros((len(held), self.dimension))
        chosen = shared_subsets(seed, first, len(held), self.dimension, self.sent)
        np.put_along_axis(out, chosen, self._estimates(held), axis=1)
        return out

    def _total(self, codes: Indices, seed: int, number: int) -> Array:
        total = np.zeros(self.dimension)
        chosen = shared_subsets(seed, number, 1, self.dimension, self.sent)[0]
        total[chosen] = self._estimates(codes).sum(axis=0)
        return total


@serializable("sampled-coordinates", eq=False)
class SampledCoordinates(Checked, SampledSubset):
    """A few coordinates of a vector, each in one bit, or through a quantizer of the user's.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    bits : int, optional
        Most bits for a vector; by default no limit.
    privacy : PureDP
        Requirement for the whole vector.
    inputs : {"box", "ball"}
        Coordinates in [−R, R], or ‖x‖₂ ≤ R.
    radius : float
        R.
    count : int, optional
        k, the number of coordinates sent; by default the best.
    coordinate : Quantizer, optional
        A certified quantizer of [−1, 1] for each coordinate; by default the best with two outputs.

    Examples
    --------
    >>> mechanism = SampledCoordinates(1000, 1, PureDP(4.0))
    >>> mechanism.count, round(mechanism.error)
    (1, 1076022)
    >>> mechanism.release(np.zeros((3, 1000))).shape
    (3, 1000)
    """

    dimension: int = field(check=checked_dimension)
    bits: int | None = field(check=_limit)
    privacy: PureDP = field(PureDP)
    inputs: str = field(check=one_of, allowed=("box", "ball"), default="box")
    radius: float = field(check=magnitude, default=1.0)
    count: int | None = field(check=integer, least=1, most=lambda self: self.dimension, default=None)
    coordinate: Quantizer | None = field(Quantizer, default=None)

    def _post_check(self) -> None:
        power_of_e(self.privacy.epsilon)
        if self.coordinate is not None:
            self._check(self.coordinate)
        if self.count is None:
            settle(self, count=self._best_count())
        if self.coordinate is None:
            settle(self, coordinate=two_outputs(coordinate_epsilon(self.privacy.epsilon, self.slots)))
        if self.bits is not None and (need := self.vector_bits) > self.bits:
            allowed = f"must be at least {need} for {self.slots} coordinates of {self.code_bits}"
            raise DesignError.of("bits", self.bits, allowed)

    def _check(self, coordinate: Quantizer) -> None:
        if coordinate.input_range != (-1.0, 1.0) or coordinate.law is None:
            allowed = "must be a certified quantizer of inputs in [-1, 1]"
            raise DesignError.of("coordinate", coordinate, allowed)
        if self.count is None:
            raise DesignError.of("count", None, "must be given with a coordinate's quantizer")
        if self.coordinate_margin() < 0:
            loss, most = coordinate.privacy_loss(), self.privacy.epsilon / self.count
            raise DesignError.of("coordinate", f"privacy loss {loss:.17g}", f"must lose at most {most:.17g}")

    def _best_count(self) -> int:
        """Return the k that minimises d²/k coth²(ε/2k), which falls while ε/k is large, and rises afterwards."""
        most = self.dimension if self.bits is None else min(self.dimension, self.bits)
        counts = np.arange(1, most + 1)
        with np.errstate(over="ignore"):
            logs = -2 * np.log(np.tanh(self.privacy.epsilon / (2 * counts))) - np.log(counts)
        return int(counts[np.argmin(logs)])

    def coordinate_margin(self) -> float:
        """Relative slack of the exact ratio of a coordinate's probabilities below e^(ε/k); negative if it exceeds the budget.

        As e^(ε/k) is bounded from below and ε/k rounded down, k coordinates meet ε exactly.
        """
        ratio = None if self.one.law is None else self.one.law.ratio()
        bound = exp_lower(coordinate_epsilon(self.privacy.epsilon, self.slots))
        return -math.inf if ratio is None else float(1 - ratio / bound)

    # -- error ----------------------------------------------------------------------------------------

    def _unit_worst(self, count: int, coordinate: Quantizer) -> float:
        """Return the worst error for R = 1: (d/k) E M² is piecewise affine, so that h = (d/k) E M² − t² is concave on each piece."""
        scale, knots = self.dimension / count, coordinate.knots
        low = coordinate.starts @ coordinate.bins**2 * scale
        slope = (coordinate.ends @ coordinate.bins**2 * scale - low) / np.diff(knots)

        def largest(price: float) -> float:
            """Return max h(t) − price t²."""
            best = np.clip(slope / (2 * (1 + price)), knots[:-1], knots[1:])
            return float((low + slope * (best - knots[:-1]) - (1 + price) * best**2).max())

        if self.inputs == "box":
            return self.dimension * largest(0.0)
        # Any price on ‖x‖² ≤ 1 gives an upper bound; take the best price.
        found = optimize.minimize_scalar(
            lambda p: p + self.dimension * largest(p),
            bounds=(0.0, 4.0 * scale * float((coordinate.bins**2).max())),
        )
        return float(min(found.fun, self.dimension * largest(0.0)))

    @cached_property
    def error(self) -> float:
        """Expected squared error of the worst input (for a ball an upper bound, exact for two outputs)."""
        return self.radius**2 * self._unit_worst(self.slots, self.one)

    def squared_error(self, x: Numbers) -> Array:
        """Expected squared error E‖M(x) − x‖² at vectors x, shape (..., d)."""
        y = self._scaled(x, clip=False)
        moments = self.one.probabilities(y) @ self.one.bins**2
        total = (self.dimension / self.slots * moments - y**2).sum(axis=-1)
        return np.asarray(self.radius**2 * total).reshape(np.shape(x)[:-1])

    def privacy_loss(self) -> float:
        """Return ε between any two vectors: k times the coordinate's exact loss, rounded up, at most the requirement."""
        return min(round_up(self.slots * Fraction(self.one.privacy_loss())), self.privacy.epsilon)

    # -- codes ----------------------------------------------------------------------------------------

    @property
    def one(self) -> Quantizer:
        """Quantizer of a coordinate."""
        assert self.coordinate is not None
        return self.coordinate

    @property
    def levels(self) -> int:
        return len(self.one.bins)

    @property
    def slots(self) -> int:
        return int(self.count or 0)

    sent = slots

    @property
    def one_segment(self) -> bool:
        """Whether probabilities are affine on [−1, 1], so that an input is first rounded to one of the ends."""
        return len(self.one.knots) == 2

    @cached_property
    def _ends(self) -> IntegerRows:
        """Exact laws of the codes at −1 and at 1."""
        law = self.one.law
        assert law is not None
        return ExactSampler(law).rows

    def _drawn(self, x: Numbers, seed: int, first: int, clip: bool, rng: Source) -> Indices:
        """Draw the indices of outputs for the chosen coordinates."""
        part = self._chosen(x, seed, first, clip)
        if rng is None and self.one_segment:
            return self._ends.draw(rounded_signs(part).astype(np.int64).ravel()).reshape(part.shape)
        values = self.one.release(part) if rng is None else self.one.sample(part, rng=rng)
        return np.asarray(np.searchsorted(self.one.bins, values), dtype=np.int64)

    def _estimates(self, codes: Indices) -> Array:
        return self.radius * self.dimension / self.slots * self.one.bins[codes]


# -- signs together ------------------------------------------------------------------------------------------------


LARGEST_BITS = 16


@serializable("sampled-signs")
class SampledSigns(PureMechanism, SampledSubset, SubsetSelection):
    """The signs of a few coordinates, together under one budget.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    bits : int
        b, the number of coordinates sent, 1 to 16 and at most d.
    privacy : PureDP
        Requirement for the whole vector.
    radius : float
        R: coordinates are in [−R, R].

    Examples
    --------
    >>> mechanism = SampledSigns(1000, 4, PureDP(4.0))
    >>> round(mechanism.error)
    421537
    >>> mechanism.decode(mechanism.encode(np.zeros((3, 1000)))).shape
    (3, 1000)
    """

    dimension: int = field(check=checked_dimension)
    bits: int = field(check=integer, least=1, most=lambda self: min(LARGEST_BITS, self.dimension))
    privacy: PureDP = field(PureDP)
    radius: float = field(check=magnitude, default=1.0)

    # -- the law --------------------------------------------------------------------------------------

    def _agreement(self, flips: int) -> Fraction:
        b, rows = self.bits, range(flips + 1)
        near = sum(math.comb(b, i) for i in rows)
        total = near * self.power + self.outputs - near
        return (self.power - 1) * sum(math.comb(b, i) * (b - 2 * i) for i in rows) / (b * total)

    @cached_property
    def flips(self) -> int:
        """j, the most places in which a near word differs."""
        return max(range((self.bits + 1) // 2), key=self._agreement)

    @property
    def near(self) -> int:
        """k, the number of near words."""
        return sum(math.comb(self.bits, i) for i in range(self.flips + 1))

    @cached_property
    def agreement(self) -> Fraction:
        """a, the mean product of a chosen sign and its answer."""
        return self._agreement(self.flips)

    @property
    def stretch(self) -> float:
        """Estimate per sign, R d/(b a)."""
        return self.radius * float(self.dimension / (self.bits * self.agreement))

    def squared_error(self, x: Numbers) -> Array:
        """Expected squared error E‖M(x) − x‖² at vectors x, shape (..., d)."""
        y = self._scaled(x, clip=False)
        found = self.bits * self.stretch**2 - self.radius**2 * (y**2).sum(axis=-1)
        return np.asarray(found).reshape(np.shape(x)[:-1])

    @property
    def error(self) -> float:
        """Expected squared error of the worst input, 0."""
        return self.bits * self.stretch**2

    # -- codes ----------------------------------------------------------------------------------------

    @property
    def sent(self) -> int:
        return self.bits

    @cached_property
    def _order(self) -> Indices:
        """Sets of signs to change, the smallest first."""
        count = np.array([v.bit_count() for v in range(self.outputs)])
        return np.argsort(count, kind="stable")

    def _drawn(self, x: Numbers, seed: int, first: int, clip: bool, rng: Source) -> Indices:
        """Draw a word of signs for every vector: its rounded signs, lowest bit first, some of them changed."""
        part = self._chosen(x, seed, first, clip)
        up = rounded_signs(part) if rng is None else rng.random(part.shape) < (1 + part) / 2
        texts = up @ (1 << np.arange(self.bits))
        return (texts ^ self._order[self._ranks(len(texts), rng)])[:, None]

    def _estimates(self, codes: Indices) -> Array:
        return np.where((codes >> np.arange(self.bits)) & 1, self.stretch, -self.stretch)


@serializable("vector-quantizer", eq=False)
class CoordinateQuantizer(Checked):
    """One quantizer applied to every coordinate of d-dimensional vectors.

    Parameters
    ----------
    coordinate : Quantizer
    dimension : int
    scale : float
        Factor by which inputs are divided and outputs multiplied: a gradient clipped at C takes scale = C.

    Examples
    --------
    >>> import numpy as np
    >>> mechanism = CoordinateQuantizer(Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)), dimension=10)
    >>> round(mechanism.privacy_loss(), 3)
    9.988
    >>> mechanism.sample(np.zeros((5, 10)), rng=0).shape
    (5, 10)
    """

    coordinate: Quantizer = field(Quantizer)
    dimension: int = field(check=integer, least=1)
    scale: float = field(check=checks.positive, default=1.0)

    def privacy_loss(self) -> float:
        """Return the loss between any two vectors, d times the coordinate's, rounded up."""
        return math.nextafter(self.dimension * self.coordinate.privacy_loss(), math.inf)

    def _scaled(self, x: Any) -> Any:
        found = x if is_tensor(x) else checks.answers("x", x)
        DataError.when(found.shape[-1:] != (self.dimension,), f"x: the last axis must be {self.dimension}")
        with np.errstate(over="ignore"):  # infinity is outside the range
            return found / self.scale

    def sample(self, x: object, *, rng: Randomness = None, clip: bool = False) -> Any:
        """Draw for vectors of shape (..., d), arrays or tensors, for simulation; see `Quantizer.sample`."""
        return self.coordinate.sample(self._scaled(x), rng=rng, clip=clip) * self.scale

    def release(self, x: Numbers, *, clip: bool = False) -> Array:
        """Draw from the exact law of every coordinate; see `Quantizer.release`, also for its `DataError`."""
        given = checks.answers("x", x)
        # Subnormal numbers would take longer, which would reveal them.
        held = np.where(np.abs(given) < checks.NARROWEST * self.scale, 0.0, given)
        return self.coordinate.release(self._scaled(held), clip=clip) * self.scale

    def expected_squared_error(self, prior: object) -> float:
        """Return E‖M(X) − X‖₂² for i.i.d. coordinates with the given prior (on the scaled coordinates)."""
        return self.dimension * self.scale**2 * self.coordinate.expected_loss(prior, "squared")
