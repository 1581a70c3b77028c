r"""Structured channels with fast transforms: metric and k-ary randomised response.

Their matrices are never built unless asked for: a report is drawn in O(1), and the channel and its inverse
are applied in O(|X|), which is what frequency estimation needs.

Each is defined by a few positive integers, its *levels*: a report's probability is a level divided by the
row's total, exactly. Levels are rounded so that the privacy asked for holds exactly: with top level
:math:`A` the level at distance d is at least :math:`A e^{-αd}`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from mechdesign.channels.channel import Response
from mechdesign.channels.channel_loss import shortest
from mechdesign.channels.draws import Deployment, Simulation
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower, log_upper
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import DOWN, positive, settle, whole
from mechdesign.spaces.geometry import check_size
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices

__all__ = ["ClusteredResponse", "KaryResponse"]


TOP = 1 << 100  # fine enough for levels e^{-αd} down to 10⁻³⁰ before rounding up costs anything


def level(loss: Fraction) -> int:
    """The least integer proved to be at least ``TOP · exp(-loss)``."""
    return 1 if loss >= 100 else min(TOP, math.ceil(TOP / exp_lower(loss)))  # e^{-70} of TOP is below 1


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
    >>> channel.metric_loss() <= 5.0
    True
    """

    space: MetricSpace
    alpha: float

    def __post_init__(self) -> None:
        settle(self, alpha=positive("alpha", self.alpha, side=DOWN))
        if not isinstance(self.space, MetricSpace) or self.space.kind != "clustered" or self.space.size < 2:
            allowed = "must be a MetricSpace.clustered of 2 points or more; use Channel.exponential elsewhere"
            raise DesignError.of("space", self.space, allowed)
        own, near, far = self.levels
        if own == (near if self.space.shape[1] > 1 else far):
            raise DesignError.of("alpha", self.alpha, "is so small that the channel is singular in doubles")

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
            TOP,
            level(Fraction(self.alpha) * Fraction(self.space.within)),
            level(Fraction(self.alpha) * Fraction(self.space.across)),
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

    def metric_loss(self, space: MetricSpace | None = None) -> float:
        space = self.measured(space)
        own, near, far = self.levels
        clusters, size = self.space.shape
        if space.kind == "clustered" and space.shape == self.space.shape:
            inside, across = space.within, space.across
        else:
            inside, across = shortest(space, self.space.clusters if min(clusters, size) > 1 else None)
        # Any two items of a cluster have the largest quotient own/near, any two of different ones own/far.
        losses = [0.0]
        if size > 1:
            losses.append(log_upper(Fraction(own, near)) / inside)
        if clusters > 1:
            losses.append(log_upper(Fraction(own, far)) / across)
        loss = math.nextafter(max(losses), math.inf)
        # The levels are rounded up, so α itself is proved; the quotients above may exceed it by an ulp.
        proved = (size == 1 or inside >= self.space.within) and (clusters == 1 or across >= self.space.across)
        return min(self.alpha, loss) if proved else loss

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        own, near, far = self.levels
        return log_upper(Fraction(own, far if self.space.shape[0] > 1 else near))

    @property
    def dense(self) -> Array:
        own, near, far = self.probabilities
        return self._spread(own, near, far)

    @property
    def inverse(self) -> Array:
        return self._spread(*self.inverse_levels)

    def _spread(self, own: float, near: float, far: float) -> Array:
        check_size(self.size, what="channel")
        labels = self.space.clusters
        matrix = np.where(np.equal.outer(labels, labels), near, far)
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

    def _combine(self, name: str, vector: ArrayLike, own: float, near: float, far: float) -> Array:
        """Apply the matrix with these three entries to vectors over the last axis, in O(n)."""
        held = self.vectors(name, vector, self.size)
        groups = held.reshape(*held.shape[:-1], *self.space.shape)
        within = groups.sum(axis=-1, keepdims=True)
        total = within.sum(axis=-2, keepdims=True)
        return ((own - near) * groups + (near - far) * within + far * total).reshape(held.shape)

    def apply(self, histogram: ArrayLike) -> Array:
        return self._combine("histogram", histogram, *self.probabilities)

    def unbias(self, reports: ArrayLike) -> Array:
        return self._combine("reports", reports, *self.inverse_levels)

    def unbias_squares(self, reports: ArrayLike) -> Array:
        own, near, far = self.inverse_levels
        return self._combine("reports", reports, own * own, near * near, far * far)

    def second_moments(self, space: MetricSpace) -> tuple[float, float]:
        r"""Largest :math:`\sum_y P[x,y] \|Q_y\|^2` over points, and the same for the clusters' sums of Q.

        All rows of Q have one norm: :math:`\operatorname{tr} Q^2/n = (1 + (g-1)/λ_2^2 + (n-g)/λ_3^2)/n`, and
        :math:`Q W Q` has the diagonal :math:`(1 + (g-1)/λ_2^2)/g`. In one cluster all points are alike, and any
        grouping of them has the same closed form.
        """
        space, n = self.measured(space), self.size
        clustered = space.kind == "clustered"
        between, inside = self.eigenvalues
        if self.space.shape[0] == 1:
            clusters, between = (space.shape[0] if clustered else 1), inside
        elif clustered and space.shape == self.space.shape:
            clusters = space.shape[0]
        else:
            return super().second_moments(space)
        groups = 1.0 + (clusters - 1) / between**2
        rest = (n - clusters) / inside**2 if n > clusters else 0.0
        return (groups + rest) / n, groups / clusters

    def integers(self, row: int) -> Sequence[int]:
        """Weights of staying, of the rest of the cluster and of the other clusters, the same for all rows."""
        (clusters, size), (own, near, far) = self.space.shape, self.levels
        return own, (size - 1) * near, (clusters - 1) * size * far

    def _report(self, items: Indices, source: Simulation | Deployment) -> Indices:
        clusters, size = self.space.shape
        cluster, point = np.divmod(items, size)
        outcome = source.choose(self, np.zeros_like(items))
        # Another point of the same cluster: skip over the item itself; another cluster: skip over its own.
        inside = source.below(max(size - 1, 1), items.size)
        inside += inside >= point
        other = source.below(max(clusters - 1, 1), items.size)
        other += other >= cluster
        anywhere = source.below(size, items.size)
        return np.choose(outcome, [items, cluster * size + inside, other * size + anywhere])


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
    return ClusteredResponse(
        MetricSpace.clustered(1, whole("items", items, 2), within=1.0),
        positive("epsilon", epsilon, side=DOWN),
    )
