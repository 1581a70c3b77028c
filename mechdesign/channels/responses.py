"""Published channels: metric, k-ary and Hadamard response with fast transforms, planar Laplace noise snapped to places.

Their matrices are built only when read: a report is drawn in O(1), and frequency estimation applies the channel
and its inverse in O(|X|).

Each is defined by a few positive integers, its *levels*: a report's probability is exactly a level divided by the
row's total. Levels are rounded so that the required privacy holds exactly: with top level
:math:`A` the level at distance d is at least :math:`A e^{-αd}`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from scipy import linalg
from scipy.spatial import ConvexHull, Delaunay, QhullError

from mechdesign.channels.channel import Channel, Response, private_weights
from mechdesign.checks import DOWN, Checked, field, integer, positive
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower, log_upper
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.mechanism import Deployment, Simulation
from mechdesign.spaces.space import EARTH_RADIUS_KM, MetricSpace, check_size, cluster_matrix
from mechdesign.typing import Array, Indices, Numbers

_BLOCK = 64  # one product with a matrix of this size is faster than two with smaller ones


def walsh_hadamard(vectors: Numbers) -> Array:
    """Multiply by Sylvester's Hadamard matrix along the last axis, whose length is a power of two.

    The matrix is a Kronecker product of smaller ones: products with these pass over the memory fewer times than butterflies.

    Examples
    --------
    >>> walsh_hadamard([1.0, 0.0, 0.0, 0.0])
    array([1., 1., 1., 1.])
    """
    held = np.asarray(vectors, dtype=float)
    size = held.shape[-1]
    if size <= _BLOCK:
        return np.asarray(held @ _sylvester(size))
    left = min(_BLOCK, 1 << (size.bit_length() - 1) // 2)
    parts = walsh_hadamard(held.reshape(*held.shape[:-1], left, size // left))
    return np.asarray(_sylvester(left) @ parts).reshape(held.shape)


@lru_cache(maxsize=16)
def _sylvester(size: int) -> Array:
    matrix = linalg.hadamard(size, dtype=float)
    matrix.setflags(write=False)
    return np.asarray(matrix)


TOP = 1 << 100  # fine enough for levels e^{-αd} down to 10⁻³⁰ before rounding up costs anything


def level(loss: Fraction) -> int:
    """Return an integer provably at least ``TOP · exp(-loss)``, the least that the bound of the exponential allows."""
    return 1 if loss >= 100 else min(TOP, math.ceil(TOP / exp_lower(loss)))  # e^{-70} of TOP is below 1


def _clustered(name: str, value: object) -> MetricSpace:
    if isinstance(value, MetricSpace) and value.kind == "clustered" and value.size >= 2:
        return value
    allowed = "must be a MetricSpace.clustered of 2 points or more; use Channel.exponential elsewhere"
    raise DesignError.of(name, value, allowed)


def shortest(space: MetricSpace, labels: Indices | None = None) -> tuple[float, float]:
    """Return the smallest distance of two points with equal labels, and of two with different labels; without labels, of any two.

    Examples
    --------
    >>> shortest(MetricSpace.line([0.0, 1.0, 5.0]), np.array([0, 1, 0]))
    (5.0, 1.0)
    >>> shortest(MetricSpace.line(np.arange(50_000.0)))
    (1.0, 1.0)
    """
    if labels is not None:
        distances, apart = space.distances, np.not_equal.outer(labels, labels)
        across = float(distances[apart].min(initial=math.inf))
        np.fill_diagonal(apart, True)
        return float(distances[~apart].min(initial=math.inf)), across
    if space.kind == "line" and space.points is not None:
        least = float(np.diff(np.sort(space.points[:, 0])).min(initial=math.inf))
    elif space.kind == "clustered":
        least = space.within if space.shape[1] > 1 else space.across
    else:
        least = float(space.distances[~np.eye(space.size, dtype=bool)].min(initial=math.inf))
    return least, least


@serializable("clustered-response", eq=False)
class ClusteredResponse(Checked, Response):
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

    space: MetricSpace = field(check=_clustered)
    alpha: float = field(check=positive, side=DOWN)
    laws = 1

    def _post_check(self) -> None:
        own, near, far = self.levels
        if own == (near if self.space.shape[1] > 1 else far):
            raise DesignError.of("alpha", self.alpha, "is so small that the channel is singular in doubles")

    @property
    def size(self) -> int:
        return self.space.size

    @cached_property
    def levels(self) -> tuple[int, int, int]:
        """Integer weights of the item itself, of another of its cluster, and of another cluster's."""
        near, far = (
            level(Fraction(self.alpha) * Fraction(d)) for d in (self.space.within, self.space.across)
        )
        return TOP, near, far

    @cached_property
    def _total(self) -> int:
        clusters, size = self.space.shape
        own, near, far = self.levels
        return own + (size - 1) * near + (clusters - 1) * size * far

    @cached_property
    def probabilities(self) -> tuple[float, float, float]:
        """Probability of the item itself, of each other item in its cluster, and of each item in other clusters."""
        own, near, far = self.levels
        return own / self._total, near / self._total, far / self._total

    @cached_property
    def eigenvalues(self) -> tuple[float, float]:
        """(λ₂, λ₃) on contrasts between clusters and within one; equal if there is only one kind of contrast."""
        (own, near, far), (clusters, size) = self.levels, self.space.shape
        inside = (own - near) / self._total
        between = (own - near + size * (near - far)) / self._total if clusters > 1 else inside
        return between, inside if size > 1 else between

    def metric_loss(self, space: MetricSpace | None = None) -> float:
        space = self.measured(space)
        own, near, far = self.levels
        clusters, size = self.space.shape
        if space.kind == "clustered" and space.shape == self.space.shape:
            inside, across = space.within, space.across
        else:
            inside, across = shortest(space, self.space.clusters if min(clusters, size) > 1 else None)
        # Two items of one cluster have the largest quotient own/near, two of different clusters own/far.
        within = log_upper(Fraction(own, near)) / inside if size > 1 else 0.0
        loss = max(within, log_upper(Fraction(own, far)) / across if clusters > 1 else 0.0)
        loss = math.nextafter(loss, math.inf)
        # The levels are rounded up, so α itself is proved; the quotients above may exceed it by an ulp.
        proved = (size == 1 or inside >= self.space.within) and (clusters == 1 or across >= self.space.across)
        return min(self.alpha, loss) if proved else loss

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        own, near, far = self.levels
        return log_upper(Fraction(own, far if self.space.shape[0] > 1 else near))

    @property
    def dense(self) -> Array:
        return self._spread(*self.probabilities)

    @property
    def inverse(self) -> Array:
        return self._spread(*self.inverse_levels)

    def _spread(self, own: float, near: float, far: float) -> Array:
        check_size(self.size, what="channel")
        return cluster_matrix(self.space, own, near, far)

    @cached_property
    def inverse_levels(self) -> tuple[float, float, float]:
        """The three entries of P⁻¹: own, within the cluster, across."""
        between, inside = self.eigenvalues
        # Projections: J/n on constants, W/b - J/n on cluster contrasts, I - W/b on the rest.
        far = (1.0 - 1.0 / between) / self.size
        near = far + (1.0 / between - 1.0 / inside) / self.space.shape[1]
        return near + 1.0 / inside, near, far

    def _combine(self, name: str, vector: Numbers, own: float, near: float, far: float) -> Array:
        """Apply the matrix with these three entries to vectors over the last axis, in O(n)."""
        held = self._vectors(name, vector, self.size)
        groups = held.reshape(*held.shape[:-1], *self.space.shape)
        within = groups.sum(axis=-1, keepdims=True)
        total = within.sum(axis=-2, keepdims=True)
        return np.asarray(((own - near) * groups + (near - far) * within + far * total).reshape(held.shape))

    def apply(self, histogram: Numbers) -> Array:
        return self._combine("histogram", histogram, *self.probabilities)

    def unbias(self, reports: Numbers) -> Array:
        return self._combine("reports", reports, *self.inverse_levels)

    def unbias_squares(self, reports: Numbers) -> Array:
        own, near, far = self.inverse_levels
        return self._combine("reports", reports, own * own, near * near, far * far)

    def second_moments(self, space: MetricSpace) -> tuple[float, float]:
        r"""Return the largest :math:`\sum_y P[x,y] \|Q_y\|^2` over points, and the same for the clusters' sums of Q.

        All rows of Q have one norm: :math:`\operatorname{tr} Q^2/n = (1 + (g-1)/λ_2^2 + (n-g)/λ_3^2)/n`, and
        :math:`Q W Q` has the diagonal :math:`(1 + (g-1)/λ_2^2)/g`. In one cluster all points are alike, and any
        grouping of them has the same closed form.
        """
        space, n = self.measured(space), self.size
        clustered = space.kind == "clustered"
        if self.space.shape[0] > 1 and not (clustered and space.shape == self.space.shape):
            return super().second_moments(space)
        clusters = space.shape[0] if clustered else 1
        between, inside = self.eigenvalues
        groups = 1.0 + (clusters - 1) / between**2
        return (groups + (n - clusters) / inside**2) / n, groups / clusters

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
    """Return k-ary randomised response: the item with probability ∝ e^ε, every other with probability ∝ 1.

    It is metric randomised response on `items` points at distance 1 from each other, and is returned as such.

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
        MetricSpace.clustered(1, integer("items", items, 2), within=1.0),
        positive("epsilon", epsilon, side=DOWN),
    )


def _parity(values: Indices) -> Indices:
    """Return the parity of the number of ones in binary."""
    out = values.copy()
    for shift in (32, 16, 8, 4, 2, 1):
        out ^= out >> shift
    return out & 1


@serializable("hadamard-response", eq=False)
class HadamardResponse(Checked, Response):
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

    items: int = field(check=integer, least=2, most=1 << 40)
    epsilon: float = field(check=positive, side=DOWN)
    space = None  # every pair is protected equally, without a metric
    laws = 1

    @property
    def size(self) -> int:
        return self.items

    @property
    def outputs(self) -> int:
        return 1 << self.size.bit_length()

    @cached_property
    def levels(self) -> tuple[int, int]:
        """Integer weights of the preferred reports and of the others."""
        return TOP, level(Fraction(self.epsilon))

    @cached_property
    def contrast(self) -> float:
        """1/c = (e^ε − 1)/(e^ε + 1), of the levels."""
        high, low = self.levels
        return (high - low) / (high + low)

    def metric_loss(self, space: MetricSpace | None = None) -> float:
        # Any two items prefer different reports, so that every pair has the same largest quotient.
        return math.nextafter(self.epsilon / shortest(self.measured(space))[0], math.inf)

    @property
    def dense(self) -> Array:
        return (1.0 + self.contrast * self._signs()) / self.outputs

    def _signs(self) -> Array:
        check_size(self.size, self.outputs, what="channel")
        rows = np.arange(1, self.size + 1)[:, None]
        return np.asarray(1.0 - 2.0 * _parity(rows & np.arange(self.outputs)[None, :]), dtype=float)

    @property
    def inverse(self) -> Array:
        signs = self._signs().T
        return np.asarray((signs - signs.mean(axis=1, keepdims=True)) / self.contrast + 1.0 / self.size)

    def apply(self, histogram: Numbers) -> Array:
        held = self._vectors("histogram", histogram, self.size)
        padded = np.zeros((*held.shape[:-1], self.outputs))
        padded[..., 1 : self.size + 1] = held
        mass = held.sum(axis=-1, keepdims=True)
        return np.asarray((mass + self.contrast * walsh_hadamard(padded)) / self.outputs)

    def unbias(self, reports: Numbers) -> Array:
        held = self._vectors("reports", reports, self.outputs)
        raw = walsh_hadamard(held)[..., 1 : self.size + 1] / self.contrast
        mass = held.sum(axis=-1, keepdims=True)
        return np.asarray(raw + (mass - raw.sum(axis=-1, keepdims=True)) / self.size)

    def _row_means(self) -> Array:
        """Mean of every column of H over the items' rows, shape (outputs,)."""
        marks = np.zeros(self.outputs)
        marks[1 : self.size + 1] = 1.0 / self.size
        return walsh_hadamard(marks)

    def unbias_squares(self, reports: Numbers) -> Array:
        held = self._vectors("reports", reports, self.outputs)
        means, c, n = self._row_means(), 1 / self.contrast, self.size
        # (c(h - m) + 1/n)² with h² = 1, sorted by powers of h.
        constant = (c * c * (1 + means**2) - 2 * c * means / n + 1 / n**2) * held
        linear = (2 * c / n - 2 * c * c * means) * held
        return np.asarray(constant.sum(axis=-1, keepdims=True) + walsh_hadamard(linear)[..., 1 : n + 1])

    def second_moments(self, space: MetricSpace) -> tuple[float, float]:
        space = self.measured(space)
        groups = space.shape[0] if space.kind == "clustered" else 1
        means, c, n = self._row_means(), 1 / self.contrast, self.size
        points = c * c * n * (1 - means**2) + 1 / n
        sums = np.zeros(self.outputs)
        for start in range(0, n, n // groups):
            marks = np.zeros(self.outputs)
            marks[start + 1 : start + 1 + n // groups] = 1.0
            sums += (c * (walsh_hadamard(marks) - means * (n // groups)) + 1 / groups) ** 2
        return self._largest_mean(points), self._largest_mean(sums)

    def _largest_mean(self, values: Array) -> float:
        """Return the largest mean of a function of the report, over items."""
        means = (values.sum() + self.contrast * walsh_hadamard(values)[1 : self.size + 1]) / self.outputs
        return float(means.max())

    def integers(self, row: int) -> Sequence[int]:
        """Weights of a preferred report and of another, the same for all rows."""
        return self.levels

    def _report(self, items: Indices, source: Simulation | Deployment) -> Indices:
        wanted = source.choose(self, np.zeros_like(items))
        return self._place(items, source.below(self.outputs // 2, items.size), wanted)

    def _place(self, items: Indices, index: Indices, wanted: Indices) -> Indices:
        """Return the report with this index among those whose parity with the item's row is `wanted`."""
        row = items + 1
        lowest = row & -row  # flipping this bit of a report flips its parity with the row
        below = index & (lowest - 1)
        report = ((index ^ below) << 1) | below
        return report | np.where(_parity(row & report) == wanted, 0, lowest)


_REACH = 40.0  # mass further than 40/α beyond the border is negligible in doubles: e^{-40}
_NODES = 24


def _cells(alpha: float, count: int) -> Array:
    """Return the probability of the cell at offset (i, j) in grid steps, i and j below `count`; `alpha` is per step."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes, weights = nodes / 2, weights / 2
    out = np.empty((count, count))
    for i in range(count):
        across = (i + nodes)[:, None, None]
        along = (np.arange(count)[:, None] + nodes)[None]
        density = np.exp(-alpha * np.hypot(across, along))
        out[i] = np.einsum("a,ajb,b->j", weights, density, weights) * alpha**2 / (2 * math.pi)
    # The density has a cusp at the origin; in polar coordinates the integral over the central cell is smooth.
    angle = math.pi / 8 * (1 + 2 * nodes)
    reach = alpha / (2 * np.cos(angle))
    out[0, 0] = float((weights * (-np.expm1(-reach) - reach * np.exp(-reach))).sum())
    return out


def _snapped(count: int, reach: int) -> Array:
    """Count, in row i·count + a and for every |offset| below `reach`, how often i + offset snaps to a."""
    out = np.zeros((count, count, reach))
    offsets = np.arange(1 - reach, reach)
    for i in range(count):
        np.add.at(out[i], (np.clip(i + offsets, 0, count - 1), np.abs(offsets)), 1.0)
    return out.reshape(count * count, reach)


_RAYS = 720  # rays around every place; errors fall with their square, and the table is repaired
_ALL = 12  # places up to which all are treated as neighbours


def _neighbours(directions: Array, plane: bool) -> Indices:
    """Return the places whose cells touch, by the Delaunay triangulation, a row for each place, padded with the place itself."""
    n = len(directions)
    around = [{*range(n)} for _ in range(n)]
    if n > _ALL:
        try:
            simplices = Delaunay(directions).simplices if plane else ConvexHull(directions).simplices
        except QhullError:  # on one line
            simplices = np.zeros((0, 3), dtype=np.int64)
        found = [{x} for x in range(n)]
        for simplex in simplices.tolist():
            for x in simplex:
                found[x].update(simplex)
        around = around if min(map(len, found)) == 1 else found
    most = max(map(len, around))
    return np.array([sorted(each) + [x] * (most - len(each)) for x, each in enumerate(around)])


def _around_places(space: MetricSpace, alpha: float) -> Array:
    """Return the probability of every cell under noise of density e^{-αd} around every place: exact along rays at the midpoints of equal angles."""
    assert space.points is not None
    plane, places = space.kind != "geodesic", space.points
    if not plane:
        alpha, (up, turn) = alpha * EARTH_RADIUS_KM, np.radians(places.T)
        places = np.column_stack([np.cos(up) * np.cos(turn), np.cos(up) * np.sin(turn), np.sin(up)])
    touching, angles = _neighbours(places, plane), (np.arange(_RAYS) + 0.5) * (2 * math.pi / _RAYS)
    whole = 1.0 if plane else 1 + math.exp(-alpha * math.pi)
    table = np.zeros((len(places), len(places)))
    for x, place in enumerate(places):
        if plane:
            east, north = np.array([1.0, 0.0]), np.array([0.0, 1.0])
        else:
            east = np.array([-math.sin(turn[x]), math.cos(turn[x]), 0.0])
            north = np.cross(place, east)
        near = -((places - place) ** 2).sum(axis=1) / 2  # on the sphere its cosine, less 1
        along = np.stack([(places - place) @ east, (places - place) @ north], axis=1)
        ray = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        cell, reached, mass = np.full(_RAYS, x), np.zeros(_RAYS), np.zeros(_RAYS)
        while len(ray):
            next_to = touching[cell]
            nearer = near[cell][:, None] - near[next_to]
            ahead = ((along[next_to] - along[cell][:, None]) * ray[:, None]).sum(axis=2)
            with np.errstate(divide="ignore", invalid="ignore"):
                if plane:
                    met = np.where(ahead > 0, nearer / ahead, math.inf)
                else:
                    met = np.arctan2(nearer, ahead)
                    met[(met <= reached[:, None] - 1e-12) | (next_to == cell[:, None])] = math.inf
            first, rows = met.argmin(axis=1), np.arange(len(ray))
            reached = np.maximum(met[rows, first], reached)
            far = np.minimum(alpha * reached, _REACH)
            wave = (1 + far) if plane else alpha * np.sin(far / alpha) + np.cos(far / alpha)
            within = np.where(np.isinf(reached), 1.0, (1 - wave * np.exp(-far)) / whole)
            np.add.at(table[x], cell, within - mass)
            going = within < 1 - 1e-15
            cell, ray, reached, mass = next_to[rows, first][going], ray[going], reached[going], within[going]
    return np.asarray(np.maximum(table, 0.0) / table.sum(axis=1, keepdims=True))


def planar_laplace(space: MetricSpace, alpha: float) -> Channel:
    r"""Return planar Laplace noise snapped to the nearest place, as a channel: in the plane, or on the sphere.

    Noise of density proportional to :math:`e^{-α d}` is private, as its normaliser is the same around every place, and snapping is post-processing. For
    places off a grid the cells' probabilities are integrated along 720 rays and the table made exactly private, which costs little.

    Parameters
    ----------
    space : MetricSpace
        Places in the plane or on the sphere: `MetricSpace.grid`, `euclidean`, `geodesic`.
    alpha : float
        α > 0 per unit of the space's distance.

    Returns
    -------
    Channel
        Use `Channel.remapped` to replace each report by the best guess under a prior.

    Raises
    ------
    DesignError
        A space without places in the plane or on the sphere.

    Source: Andrés, Bordenabe, Chatzikokolakis, Palamidessi 2013.

    Examples
    --------
    >>> channel = planar_laplace(MetricSpace.grid(3, 3), 0.7)
    >>> channel.alpha <= 0.7, bool(abs(channel.matrix.sum(axis=1) - 1).max() < 1e-12)
    (True, True)
    """
    alpha = positive("alpha", alpha, side=DOWN)
    mapped = (
        isinstance(space, MetricSpace)
        and space.kind in ("grid", "euclidean", "geodesic")
        and space.matrix is None
    )
    if not mapped or space.points is None or space.points.shape[1] != 2:
        allowed = "must have places in the plane or on the sphere: MetricSpace.grid(rows, columns), euclidean or geodesic"
        raise DesignError.of("space", space, allowed)
    if space.kind != "grid":
        table, distances = _around_places(space, alpha), space.distances
        return Channel.from_weights(private_weights(table, distances, alpha, distances / len(table)), space)
    rows, columns = space.shape
    step = float(space.points[1, 1] - space.points[0, 1]) if columns > 1 else 1.0
    if rows > 1:
        step = float(space.points[columns, 0] - space.points[0, 0])
    rate = alpha * step
    beyond = min(max(2, math.ceil(_REACH / rate)), 2_000)
    table = _cells(rate, max(rows, columns) + beyond)
    # Offsets beyond the border snap to it, so mass on the unbounded grid moves to the clipped offset.
    spread = _snapped(rows, len(table)) @ table @ _snapped(columns, len(table)).T
    flat = spread.reshape(rows, rows, columns, columns).swapaxes(1, 2).reshape(rows * columns, -1)
    return Channel(flat / flat.sum(axis=1, keepdims=True), space)
