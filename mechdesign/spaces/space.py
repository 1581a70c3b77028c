r"""Finite metric spaces: the domain of items, in the user's own unit.

A `MetricSpace` is :math:`n` points with distances :math:`d(x, y)`. Nothing is normalised: distances keep the
unit they came in (kilometres, say) and a privacy parameter α is per that unit. What needs :math:`d \le 1`
rescales inside, by `MetricSpace.scaled`.

Spaces with structure (lines, trees, clusters) keep it, because the earth mover's distance on them has a
closed form (`mechdesign.spaces.earth_mover`) and the matrix of a large one is never built unless asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import positive, whole
from mechdesign.spaces.geometry import (
    EARTH_RADIUS_KM,
    check_distances,
    check_distinct,
    haversine,
    topological_order,
    tree_distances,
)
from mechdesign.typing import Array

__all__ = ["EARTH_RADIUS_KM", "MetricSpace"]

Ints = NDArray[np.int64]


def _frozen(values: ArrayLike | None, dtype: Any = float) -> Any:
    if values is None:
        return None
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


def _matrix_of(name: str, values: ArrayLike) -> Array:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise DesignError.of(name, values, "must be an array of numbers") from None
    if not np.isfinite(array).all():
        raise DesignError(f"{name}: every entry must be finite")
    return array


@serializable("metric-space")
@dataclass(frozen=True, eq=False)
class MetricSpace:
    r"""A finite metric space :math:`(\{0, \dots, n-1\}, d)`.

    Built by `from_matrix`, `euclidean`, `line`, `grid`, `geodesic`, `clustered` or `tree`, not by the bare
    constructor. Points are known by their index; `points` holds coordinates where there are any.

    Attributes
    ----------
    kind : {"matrix", "euclidean", "line", "grid", "geodesic", "clustered", "tree"}
    points : ndarray, shape (n, k), or None
        Coordinates; (latitude, longitude) in degrees for ``"geodesic"``.
    unit : str
        Name of the unit of distance, for messages and plots only.
    shape : tuple of int
        (rows, columns) of a grid, (clusters, points per cluster) of a clustered space, else (n,).
    within, across : float
        The two distances of a clustered space.
    parents, lengths, leaves : ndarray
        The tree: parent of each node (−1 at the root), length of the edge to it, node of each point.

    Raises
    ------
    DesignError
        Negative or asymmetric distances, a non-zero diagonal, two points at distance zero, a broken triangle
        inequality (the first offending triple is named), fewer than one point.

    Examples
    --------
    >>> space = MetricSpace.euclidean([[0, 0], [3, 4], [6, 8]])
    >>> space.size, space.diameter
    (3, 10.0)
    >>> space.distances[0, 1]
    np.float64(5.0)
    >>> MetricSpace.from_matrix([[0, 1, 5], [1, 0, 1], [5, 1, 0]])
    Traceback (most recent call last):
        ...
    mechdesign.errors.DesignError: distances: triangle inequality broken at (0, 1, 2): 5.0 > 1.0 + 1.0; ...
    """

    kind: str
    matrix: Array | None = None
    points: Array | None = None
    unit: str = ""
    shape: tuple[int, ...] = ()
    within: float = math.nan
    across: float = math.nan
    parents: Ints | None = None
    lengths: Array | None = None
    leaves: Ints | None = None

    def __post_init__(self) -> None:
        for name, dtype in (
            ("matrix", float),
            ("points", float),
            ("parents", int),
            ("lengths", float),
            ("leaves", int),
        ):
            object.__setattr__(self, name, _frozen(getattr(self, name), dtype))

    # ------------------------------------------------------------------ constructors

    @classmethod
    def from_matrix(
        cls, distances: ArrayLike, *, points: ArrayLike | None = None, unit: str = ""
    ) -> MetricSpace:
        """The space of a distance matrix, shape (n, n); checked in O(n³) vectorised steps.

        Rounding errors up to 10⁻⁹ of the diameter are accepted (and asymmetry that small averaged away).
        """
        matrix = _matrix_of("distances", distances)
        check_distances(matrix)
        coordinates = None if points is None else np.asarray(points, dtype=float)
        if coordinates is not None and len(coordinates) != len(matrix):
            raise DesignError.of("points", len(coordinates), f"must have one row per point ({len(matrix)})")
        return cls(
            kind="matrix", matrix=(matrix + matrix.T) / 2, points=coordinates, unit=unit, shape=(len(matrix),)
        )

    @classmethod
    def euclidean(cls, points: ArrayLike, *, unit: str = "") -> MetricSpace:
        """Points of Euclidean space, shape (n, k), or (n,) for points on a line."""
        coordinates = _matrix_of("points", points)
        if coordinates.ndim == 1 or (coordinates.ndim == 2 and coordinates.shape[1] == 1):
            return cls.line(coordinates.ravel(), unit=unit)
        if coordinates.ndim != 2 or len(coordinates) == 0:
            raise DesignError.of("points", coordinates.shape, "must have shape (n, k) with n >= 1")
        space = cls(kind="euclidean", points=coordinates, unit=unit, shape=(len(coordinates),))
        check_distinct(space.distances)
        return space

    @classmethod
    def line(cls, positions: ArrayLike, *, unit: str = "") -> MetricSpace:
        """Points on a line, in any order, shape (n,); d(x, y) = |x − y|."""
        values = _matrix_of("positions", positions)
        if values.ndim != 1 or values.size == 0:
            raise DesignError.of("positions", values.shape, "must have shape (n,) with n >= 1")
        order = np.sort(values)
        if (np.diff(order) <= 0).any():
            twin = order[:-1][np.diff(order) <= 0][0]
            raise DesignError(f"positions: {twin!r} occurs twice; points must be distinct, merge them")
        return cls(kind="line", points=values[:, None], unit=unit, shape=(values.size,))

    @classmethod
    def grid(
        cls, rows: int, columns: int, *, spacing: float = 1.0, metric: str = "euclidean", unit: str = ""
    ) -> MetricSpace:
        """A rows × columns grid with the given spacing; point (i, j) has index i·columns + j.

        `metric` is ``"euclidean"`` or ``"manhattan"``.
        """
        rows, columns = whole("rows", rows, 1), whole("columns", columns, 1)
        spacing = positive("spacing", spacing)
        if metric not in ("euclidean", "manhattan"):
            raise DesignError.of("metric", metric, 'must be "euclidean" or "manhattan"')
        i, j = np.divmod(np.arange(rows * columns), columns)
        points = spacing * np.column_stack([i, j]).astype(float)
        matrix = cdist(points, points, "cityblock") if metric == "manhattan" else None
        return cls(kind="grid", matrix=matrix, points=points, unit=unit, shape=(rows, columns))

    @classmethod
    def geodesic(cls, latitude: ArrayLike, longitude: ArrayLike, *, unit: str = "km") -> MetricSpace:
        """Great-circle distances in kilometres (haversine, mean Earth radius) between points in degrees."""
        lat, lon = _matrix_of("latitude", latitude).ravel(), _matrix_of("longitude", longitude).ravel()
        if lat.size != lon.size or lat.size == 0:
            raise DesignError.of("longitude", lon.size, f"must have as many entries as latitude ({lat.size})")
        if (np.abs(lat) > 90).any():
            raise DesignError.of("latitude", float(lat[np.abs(lat) > 90][0]), "must lie in [-90, 90] degrees")
        space = cls(kind="geodesic", points=np.column_stack([lat, lon]), unit=unit, shape=(lat.size,))
        check_distinct(space.distances)
        return space

    @classmethod
    def clustered(
        cls, clusters: int, size: int, *, within: float, across: float = 1.0, unit: str = ""
    ) -> MetricSpace:
        """`clusters` groups of `size` points: distance `within` inside a group, `across` between groups.

        Point b of cluster a has index a·size + b. The matrix is built only when `distances` is asked for.
        """
        clusters, size = whole("clusters", clusters, 1), whole("size", size, 1)
        across, within = positive("across", across), positive("within", within)
        if within > across:
            raise DesignError.of("within", within, f"must not exceed across = {across}")
        return cls(kind="clustered", unit=unit, shape=(clusters, size), within=within, across=across)

    @classmethod
    def tree(
        cls, parents: ArrayLike, lengths: ArrayLike, *, points: ArrayLike | None = None, unit: str = ""
    ) -> MetricSpace:
        """Path lengths in a rooted tree.

        Parameters
        ----------
        parents : array of int, shape (nodes,)
            Parent of each node, −1 at the one root, in any order.
        lengths : array, shape (nodes,)
            Length > 0 of the edge to the parent (the root's entry is ignored).
        points : array of int, optional
            The nodes that are points of the space (all of them by default).
        """
        up = np.asarray(parents, dtype=int)
        length = _matrix_of("lengths", lengths).copy()
        if up.ndim != 1 or length.shape != up.shape or up.size == 0:
            raise DesignError.of(
                "lengths", length.shape, f"must have the shape of parents, {up.shape}, and not be empty"
            )
        if (up == -1).sum() != 1 or (up < -1).any() or (up >= up.size).any():
            raise DesignError.of("parents", up, "must hold node indices and exactly one -1, the root")
        length[up == -1] = 0.0
        if (length[up != -1] <= 0).any():
            raise DesignError.of(
                "lengths", float(length[up != -1].min()), "every edge length must be positive"
            )
        nodes = np.arange(up.size) if points is None else np.asarray(points, dtype=int)
        if (
            nodes.size == 0
            or (nodes < 0).any()
            or (nodes >= up.size).any()
            or np.unique(nodes).size != nodes.size
        ):
            raise DesignError.of("points", nodes, f"must be distinct nodes in 0..{up.size - 1}")
        topological_order(up)  # refuses cycles
        return cls(kind="tree", unit=unit, shape=(nodes.size,), parents=up, lengths=length, leaves=nodes)

    # ------------------------------------------------------------------ distances

    @property
    def size(self) -> int:
        """Number of points n."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.size

    @cached_property
    def distances(self) -> Array:
        """The matrix of distances, shape (n, n), read-only."""
        matrix = self._build() if self.matrix is None else self.matrix
        matrix.setflags(write=False)
        return matrix

    def _build(self) -> Array:
        if self.kind == "clustered":
            clusters, size = self.shape
            matrix = np.full((self.size, self.size), self.across)
            label = np.repeat(np.arange(clusters), size)
            matrix[label[:, None] == label[None, :]] = self.within
            np.fill_diagonal(matrix, 0.0)
            return matrix
        if self.kind == "tree":
            assert self.parents is not None and self.lengths is not None and self.leaves is not None
            return tree_distances(self.parents, self.lengths, self.leaves)
        assert self.points is not None
        if self.kind == "geodesic":
            return haversine(self.points)
        return cdist(self.points, self.points)

    @cached_property
    def diameter(self) -> float:
        """The largest distance; 0 for a single point."""
        if self.kind == "clustered":
            return self.across if self.shape[0] > 1 else (self.within if self.shape[1] > 1 else 0.0)
        if self.kind == "line" and self.points is not None:
            return float(np.ptp(self.points))
        return float(self.distances.max())

    @property
    def clusters(self) -> Ints | None:
        """Cluster label of each point of a clustered space, else None."""
        if self.kind != "clustered":
            return None
        return np.repeat(np.arange(self.shape[0]), self.shape[1])

    def scaled(self, factor: float, *, unit: str | None = None) -> MetricSpace:
        """The same points with every distance multiplied by `factor`.

        α per old unit is α/factor per new unit: α·d is what stays.
        """
        factor = positive("factor", factor)
        unit = self.unit if unit is None else unit
        if self.kind == "clustered":
            return replace(self, within=self.within * factor, across=self.across * factor, unit=unit)
        if self.kind == "tree" and self.lengths is not None:
            return replace(self, lengths=self.lengths * factor, unit=unit)
        if self.kind == "geodesic":
            return replace(self, kind="matrix", matrix=self.distances * factor, unit=unit)
        points = None if self.points is None else self.points * factor
        return replace(
            self, matrix=None if self.matrix is None else self.matrix * factor, points=points, unit=unit
        )

    @cached_property
    def essential_pairs(self) -> Ints:
        """Pairs x < y that no third point lies exactly between, shape (pairs, 2).

        Every other pair is a chain of these with the same total length, so a bound that is linear in the
        distance needs checking on these only. "Between" is up to 10⁻¹² of the distance, rounding's share.
        """
        d = self.distances
        need = np.triu(np.ones_like(d, dtype=bool), 1)
        for z in range(self.size):
            through = d[:, z, None] + d[z, None, :] <= d * (1 + 1e-12)
            through[z, :] = through[:, z] = False
            need &= ~through
        return np.argwhere(need)

    # ------------------------------------------------------------------ items and histograms

    def indices(self, items: ArrayLike, *, name: str = "items") -> Ints:
        """Check that `items` are indices of points and return them as an integer array of the same shape.

        Raises
        ------
        DesignError
            An empty collection, or an item that is not a point of the space (the first one is named).
        """
        try:
            array = np.asarray(items)
        except ValueError:
            raise DesignError.of(name, items, "must be a rectangular array of point indices") from None
        if array.size == 0:
            raise DesignError.of(name, items, "is empty; a dataset needs at least one item")
        if array.dtype.kind not in "iub":
            numbers = _matrix_of(name, array)
            if (numbers != np.floor(numbers)).any():
                bad = numbers[numbers != np.floor(numbers)].ravel()[0]
                raise DesignError.of(
                    name, float(bad), "is not a point index; `nearest` turns coordinates into indices"
                )
            array = numbers
        array = array.astype(np.int64)
        outside = (array < 0) | (array >= self.size)
        if outside.any():
            raise DesignError.of(
                name, int(array[outside][0]), f"is not a point of the space (indices 0..{self.size - 1})"
            )
        return array

    def nearest(self, coordinates: ArrayLike) -> Ints:
        """Index of the point nearest to each row of `coordinates`, shape (m, k); snapping, not a check."""
        if self.points is None:
            raise DesignError("coordinates: this space has no coordinates; pass point indices")
        rows = np.atleast_2d(_matrix_of("coordinates", coordinates))
        if rows.shape[1] != self.points.shape[1]:
            raise DesignError.of("coordinates", rows.shape, f"must have {self.points.shape[1]} columns")
        chunk = max(1, 10_000_000 // self.size)
        gaps = haversine if self.kind == "geodesic" else cdist
        parts = [gaps(rows[i : i + chunk], self.points).argmin(axis=1) for i in range(0, len(rows), chunk)]
        return np.concatenate(parts)

    def histogram(self, items: ArrayLike) -> Array:
        """Normalised histogram of a multiset of point indices, shape (n,); row by row for a 2-D array.

        Examples
        --------
        >>> MetricSpace.line([0, 1, 2]).histogram([0, 0, 2, 2])
        array([0.5, 0. , 0.5])
        """
        array = self.indices(items)
        rows = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array.reshape(1, -1)
        offset = np.arange(len(rows))[:, None] * self.size
        counts = np.bincount((rows + offset).ravel(), minlength=len(rows) * self.size)
        result = counts.reshape(len(rows), self.size) / rows.shape[1]
        return result.reshape(*array.shape[:-1], self.size)

    def distribution(self, weights: ArrayLike, *, name: str = "histogram") -> Array:
        """Check histograms, shape (..., n): non-negative, sum 1 within 10⁻⁹; returned exactly normalised."""
        array = _matrix_of(name, weights)
        if array.ndim == 0 or array.shape[-1] != self.size:
            raise DesignError.of(
                name, array.shape, f"must have one entry per point of the space ({self.size})"
            )
        if (array < 0).any():
            raise DesignError.of(name, float(array.min()), "must be non-negative")
        total = array.sum(axis=-1, keepdims=True)
        if (np.abs(total - 1) > 1e-9).any():
            worst = float(total.ravel()[np.abs(total - 1).argmax()])
            raise DesignError.of(name, worst, "must sum to 1; divide counts by their total first")
        return array / total
