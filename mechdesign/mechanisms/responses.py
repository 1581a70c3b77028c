r"""Structured channels with fast transforms: metric, k-ary and Hadamard response.

Their matrices are never built unless asked for: a report is drawn in O(1), and the channel and its inverse
are applied in O(|X|) (O(K log K) for Hadamard), which is what frequency estimation needs.

Each is defined by a few positive integers, its *levels*: a report's probability is a level divided by the
row's total, exactly. Levels are rounded so that the privacy asked for holds exactly: with top level
:math:`A` the level at distance d is at least :math:`A e^{-αd}`.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechdesign.errors import DesignError
from mechdesign.exact import exp_lower, log_upper
from mechdesign.mechanisms.channel import Ints, Response, check_alpha
from mechdesign.metric import MetricSpace
from mechdesign.serialize import serializable

__all__ = ["ClusteredResponse", "HadamardResponse", "KaryResponse", "walsh_hadamard"]

Array = NDArray[np.float64]

_TOP = 1 << 100  # fine enough for levels e^{-αd} down to 10⁻³⁰ before rounding up costs anything


def _level(loss: Fraction) -> int:
    """The least integer proved to be at least ``_TOP · exp(-loss)``."""
    return min(_TOP, math.ceil(_TOP / exp_lower(loss)))


def _log_ratio(high: int, low: int) -> float:
    """Upper bound of ``log(high / low)``, proved."""
    return log_upper(Fraction(high, low))


@serializable("clustered-response")
@dataclass(frozen=True, eq=False)
class ClusteredResponse(Response):
    r"""Metric randomised response on a clustered space: :math:`P[y \mid x] ∝ e^{-α d(x, y)}`.

    With g clusters of b points, :math:`u = e^{-α d_1}` inside a cluster and :math:`w = e^{-α d_2}` across,

    .. math:: P = \tfrac1Z\,[(1-u) I + (u-w) W + w J], \qquad Z = 1 + (b-1) u + (n-b) w,

    W within-cluster ones and J all ones. Every row has the same normaliser Z, so
    :math:`P[y|x]/P[y|x'] = e^{α(d(x',y) - d(x,y))} \le e^{α d(x,x')}`: it is α-d-private without the factor 2
    that the exponential mechanism pays for its normalisers.

    **Eigenvalues.** 1 on constants, :math:`λ_2 = (1 - u + b(u-w))/Z` on contrasts between clusters,
    :math:`λ_3 = (1-u)/Z` on contrasts within one. Hence :math:`P` and :math:`P^{-1}` are applied by splitting
    a vector into its mean, its cluster means and the rest: O(n).

    Parameters
    ----------
    space : MetricSpace
        A clustered space (`MetricSpace.clustered`).
    alpha : float
        Privacy α > 0 per unit of the space's distance.

    Source: metric randomised response of the user-level metric-privacy paper, Theorem 6.6.

    Examples
    --------
    >>> import numpy as np
    >>> space = MetricSpace.clustered(3, 2, within=0.1)
    >>> channel = ClusteredResponse(space, alpha=5.0)
    >>> histogram = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    >>> np.allclose(channel.unbias(channel.apply(histogram)), histogram)
    True
    >>> channel.metric_loss <= 5.0
    True
    """

    space: MetricSpace
    alpha: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        if not isinstance(self.space, MetricSpace) or self.space.kind != "clustered":
            raise DesignError.of(
                "space", self.space, "must be a MetricSpace.clustered(...); use Channel.exponential elsewhere"
            )
        if self.levels[0] == self.levels[1] and self.space.shape[1] > 1:
            raise DesignError.of(
                "alpha", self.alpha, "is so small that the channel is singular in doubles; raise alpha"
            )

    @property
    def size(self) -> int:
        return self.space.size

    @property
    def outputs(self) -> int:
        return self.space.size

    @cached_property
    def levels(self) -> tuple[int, int, int]:
        """Integer weights of the item itself, of another of its cluster, and of another cluster's."""
        return (
            _TOP,
            _level(Fraction(self.alpha) * Fraction(self.space.within)),
            _level(Fraction(self.alpha) * Fraction(self.space.across)),
        )

    @cached_property
    def _total(self) -> int:
        clusters, size = self.space.shape
        own, near, far = self.levels
        return own + (size - 1) * near + (clusters - 1) * size * far

    @cached_property
    def probabilities(self) -> tuple[float, float, float]:
        """Probability of the item itself, of each other in its cluster, and of each in other clusters."""
        own, near, far = self.levels
        return own / self._total, near / self._total, far / self._total

    @cached_property
    def eigenvalues(self) -> tuple[float, float]:
        """(λ₂, λ₃): on contrasts between clusters and within one."""
        own, near, far = self.levels
        size = self.space.shape[1]
        return (own - near + size * (near - far)) / self._total, (own - near) / self._total

    @property
    def metric_loss(self) -> float:
        """Exact metric loss of the levels, rounded up; at most `alpha`."""
        own, near, far = self.levels
        clusters, size = self.space.shape
        losses = [0.0]
        if size > 1:
            losses.append(_log_ratio(own, near) / self.space.within)
        if clusters > 1:
            losses.append(_log_ratio(own, far) / self.space.across)
        # The levels are rounded up, so α itself is proved; the quotients above may exceed it by an ulp.
        return min(self.alpha, math.nextafter(max(losses), math.inf))

    @property
    def epsilon(self) -> float:
        """Pure local-DP loss over any two items, rounded up."""
        own, near, far = self.levels
        return _log_ratio(own, far if self.space.shape[0] > 1 else near)

    @property
    def dense(self) -> Array:
        own, near, far = self.probabilities
        return self._spread(own, near, far)

    @property
    def inverse(self) -> Array:
        return self._spread(*self.inverse_levels)

    def _spread(self, own: float, near: float, far: float) -> Array:
        labels = np.repeat(np.arange(self.space.shape[0]), self.space.shape[1])
        matrix = np.where(labels[:, None] == labels[None, :], near, far)
        np.fill_diagonal(matrix, own)
        return matrix

    @cached_property
    def inverse_levels(self) -> tuple[float, float, float]:
        """The three entries of P⁻¹: own, within the cluster, across."""
        clusters, size = self.space.shape
        n = self.size
        between, inside = self.eigenvalues
        # Projections: J/n on constants, W/b - J/n on cluster contrasts, I - W/b on the rest.
        far = (1.0 - 1.0 / between) / n if clusters > 1 else 1.0 / n
        near = far + (1.0 / between - (1.0 / inside if size > 1 else 0.0)) / size
        own = near + 1.0 / inside if size > 1 else far + 1.0 / between
        if clusters == 1:
            near = 1.0 / n - (1.0 / inside if size > 1 else 0.0) / size
            own = near + (1.0 / inside if size > 1 else 0.0)
        return own, near, far

    def _combine(self, vector: ArrayLike, own: float, near: float, far: float) -> Array:
        """Apply the matrix with these three entries to vectors over the last axis, in O(n)."""
        array = np.asarray(vector, dtype=float)
        groups = array.reshape(*array.shape[:-1], *self.space.shape)
        within = groups.sum(axis=-1, keepdims=True)
        total = within.sum(axis=-2, keepdims=True)
        return ((own - near) * groups + (near - far) * within + far * total).reshape(array.shape)

    def apply(self, histogram: ArrayLike) -> Array:
        return self._combine(histogram, *self.probabilities)

    def unbias(self, reports: ArrayLike) -> Array:
        return self._combine(reports, *self.inverse_levels)

    def unbias_squares(self, reports: ArrayLike) -> Array:
        """q ↦ q·(Q∘Q), the second moments of the estimates, in O(n)."""
        own, near, far = self.inverse_levels
        return self._combine(reports, own * own, near * near, far * far)

    def second_moments(self) -> tuple[float, float]:
        r"""Largest :math:`\sum_y P[x,y] \|Q_y\|^2` over points, and the same for cluster sums of Q.

        All rows of Q have one norm: :math:`\operatorname{tr} Q^2/n = (1 + (g-1)/λ_2^2 + (n-g)/λ_3^2)/n`, and
        :math:`Q W Q` has the diagonal :math:`(1 + (g-1)/λ_2^2)/g`.
        """
        clusters, n = self.space.shape[0], self.size
        between, inside = self.eigenvalues
        groups = 1.0 + (clusters - 1) / between**2
        rest = (n - clusters) / inside**2 if n > clusters else 0.0
        return (groups + rest) / n, groups / clusters

    def sample(self, items: ArrayLike, rng: Any = None) -> Ints:
        array = self.check_items(items)
        generator = np.random.default_rng(rng)
        clusters, size = self.space.shape
        own, near, _ = self.probabilities
        cluster, point = np.divmod(array, size)
        uniform = generator.random(array.shape)
        # Another point of the same cluster: skip over the item itself; another cluster: skip over its own.
        inside = generator.integers(0, max(size - 1, 1), size=array.shape)
        inside += inside >= point
        other = generator.integers(0, max(clusters - 1, 1), size=array.shape)
        other += other >= cluster
        anywhere = generator.integers(0, size, size=array.shape)
        stay = uniform < own
        near_by = ~stay & (uniform < own + (size - 1) * near)
        if clusters == 1:
            near_by = ~stay
        moved = np.where(near_by, cluster * size + inside, other * size + anywhere)
        return np.asarray(np.where(stay, array, moved), dtype=np.int64)

    def _draw(self, item: int) -> int:
        own, near, far = self.levels
        _, size = self.space.shape
        cluster, point = divmod(item, size)
        ticket = secrets.randbelow(self._total)
        if ticket < own:
            return item
        ticket -= own
        if ticket < (size - 1) * near:
            shift = ticket // near
            return cluster * size + shift + (shift >= point)
        index = (ticket - (size - 1) * near) // far
        other = index // size
        return int((other + (other >= cluster)) * size + index % size)


def KaryResponse(items: int, epsilon: float) -> ClusteredResponse:
    """k-ary randomised response: the item with probability ∝ e^ε, every other with probability ∝ 1.

    It is metric randomised response on `size` points at distance 1 from each other, and is returned as such.

    Parameters
    ----------
    items : int
        Number of items, at least 2.
    epsilon : float
        Pure local-DP budget ε > 0.

    Examples
    --------
    >>> channel = KaryResponse(3, 1.0)
    >>> own, other, _ = channel.probabilities
    >>> round(own / other, 9) == round(math.e, 9), channel.epsilon <= 1 + 1e-14
    (True, True)
    """
    return ClusteredResponse(MetricSpace.clustered(1, _at_least_two(items), within=1.0), _budget(epsilon))


def _at_least_two(items: Any) -> int:
    if isinstance(items, bool) or int(items) != items or items < 2:
        raise DesignError.of("items", items, "must be a whole number of items, at least 2")
    return int(items)


def _budget(epsilon: Any) -> float:
    try:
        return check_alpha(epsilon)
    except DesignError:
        raise DesignError.of("epsilon", epsilon, "must be a positive, finite budget") from None


def walsh_hadamard(vector: ArrayLike) -> Array:
    """Multiply by Sylvester's Hadamard matrix along the last axis, in O(K log K).

    Examples
    --------
    >>> walsh_hadamard([1.0, 0.0, 0.0, 0.0])
    array([1., 1., 1., 1.])
    """
    array = np.array(vector, dtype=float)
    length, half = array.shape[-1], 1
    while half < length:
        pairs = array.reshape(*array.shape[:-1], length // (2 * half), 2, half)
        array = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], axis=-2)
        array = array.reshape(*array.shape[:-3], length)
        half *= 2
    return array


def _parity(values: Ints) -> Ints:
    """Parity of the number of ones in binary."""
    out = values.copy()
    for shift in (32, 16, 8, 4, 2, 1):
        out ^= out >> shift
    return out & 1


@serializable("hadamard-response")
@dataclass(frozen=True, eq=False)
class HadamardResponse(Response):
    r"""Hadamard response: item x reports a y with :math:`H[x+1, y] = +1` preferred by the factor e^ε.

    H is Sylvester's matrix of order K, the least power of two above |X| (row 0, constant, carries no
    information). Each other row has K/2 entries of either sign, so

    .. math:: P = \tfrac1K (1 + c^{-1} H), \qquad c = \frac{e^ε + 1}{e^ε - 1}, \qquad
        Q = c\,H^\top (I - J/n) + J/n .

    :math:`P Q = I` because rows of H are orthogonal; the part with J (any right inverse may be shifted so)
    makes the estimate's total exactly 1, which the earth mover's distance needs.

    Parameters
    ----------
    items : int
        Number of items |X|.
    epsilon : float
        Pure local-DP budget ε > 0.

    Source: Acharya, Sun, Zhang 2018.

    Examples
    --------
    >>> channel = HadamardResponse(5, 1.0)
    >>> channel.outputs
    8
    >>> import numpy as np
    >>> np.allclose(channel.unbias(channel.apply(np.eye(5))), np.eye(5))
    True
    """

    items: int
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", _at_least_two(self.items))
        object.__setattr__(self, "epsilon", _budget(self.epsilon))

    @property
    def size(self) -> int:
        return self.items

    @property
    def space(self) -> None:  # type: ignore[override]
        """It protects every pair alike and knows no metric."""
        return None

    @property
    def outputs(self) -> int:
        return 1 << self.size.bit_length()

    @cached_property
    def levels(self) -> tuple[int, int]:
        """Integer weights of the preferred reports and of the others."""
        return _TOP, _level(Fraction(self.epsilon))

    @cached_property
    def contrast(self) -> float:
        """1/c = (e^ε − 1)/(e^ε + 1), of the levels."""
        high, low = self.levels
        return (high - low) / (high + low)

    @property
    def dense(self) -> Array:
        return (1.0 + self.contrast * self._signs()) / self.outputs

    def _signs(self) -> Array:
        rows = np.arange(1, self.size + 1)[:, None]
        return 1.0 - 2.0 * _parity(rows & np.arange(self.outputs)[None, :])

    @property
    def inverse(self) -> Array:
        signs = self._signs().T
        return (signs - signs.mean(axis=1, keepdims=True)) / self.contrast + 1.0 / self.size

    def apply(self, histogram: ArrayLike) -> Array:
        array = np.asarray(histogram, dtype=float)
        padded = np.zeros((*array.shape[:-1], self.outputs))
        padded[..., 1 : self.size + 1] = array
        mass = array.sum(axis=-1, keepdims=True)
        return (mass + self.contrast * walsh_hadamard(padded)) / self.outputs

    def unbias(self, reports: ArrayLike) -> Array:
        array = np.asarray(reports, dtype=float)
        raw = walsh_hadamard(array)[..., 1 : self.size + 1] / self.contrast
        mass = array.sum(axis=-1, keepdims=True)
        return raw + (mass - raw.sum(axis=-1, keepdims=True)) / self.size

    def sample(self, items: ArrayLike, rng: Any = None) -> Ints:
        array = self.check_items(items)
        generator = np.random.default_rng(rng)
        high, low = self.levels
        wanted = (generator.random(array.shape) >= high / (high + low)).astype(np.int64)
        return self._place(array, generator.integers(0, self.outputs // 2, size=array.shape), wanted)

    def _place(self, items: Ints, index: Ints, wanted: Ints) -> Ints:
        """The report number `index` among those of parity `wanted` with the item's row."""
        row = items + 1
        lowest = row & -row  # flipping this bit of a report flips its parity with the row
        below = index & (lowest - 1)
        report = ((index ^ below) << 1) | below
        return report | np.where(_parity(row & report) == wanted, 0, lowest)

    def _draw(self, item: int) -> int:
        high, low = self.levels
        wanted = int(secrets.randbelow(high + low) >= high)
        index = secrets.randbelow(self.outputs // 2)
        place = self._place(np.array([item]), np.array([index]), np.array([wanted]))
        return int(place[0])
