r"""Linear queries: averages of a vector-valued function over a user's items.

.. math:: F(D) = \sum_x f_D[x]\, f(x) = E_{x \sim D} f(x), \qquad f : X \to \mathbb R^k .

**Sensitivity.** Let L be the largest :math:`\lVert f(x) - f(y)\rVert/d(x, y)`. For any two histograms and their
optimal plan π, :math:`\lVert F(p) - F(q)\rVert = \lVert\sum \pi(x, y)(f(x) - f(y))\rVert \le L \sum \pi(x, y) d(x, y)
= L \cdot \mathrm{EMD}(p, q)`, and two point masses attain it: L is exactly the sensitivity (Theorem 4.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.knorm import norm_order
from mechdesign.problem.checks import array, instance, positive, settle
from mechdesign.spaces.geometry import check_size
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array

__all__ = ["LinearQuery"]


@serializable("linear-query")
@dataclass(frozen=True, eq=False)
class LinearQuery:
    """The average of `values` over a dataset.

    Parameters
    ----------
    space : MetricSpace
        n points.
    values : array, shape (n, k) or (n,)
        f(x), one row per point.
    name : str
        For tables.

    Examples
    --------
    >>> space = MetricSpace.euclidean([[0, 0], [3, 4], [6, 0]])
    >>> query = LinearQuery.average(space)
    >>> query([0.5, 0, 0.5])
    array([3., 0.])
    >>> round(query.lipschitz(norm=2), 12), round(query.lipschitz(norm=1), 12)
    (1.0, 1.4)
    """

    space: MetricSpace
    values: Array
    name: str = "linear"

    def __post_init__(self) -> None:
        instance("space", self.space, MetricSpace)
        values = array("values", self.values, ndim=None)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != self.space.size:
            raise DesignError.of("values", values.shape, f"must have one row per point ({self.space.size})")
        values.setflags(write=False)
        settle(self, values=values)

    # ------------------------------------------------------------------ ready-made queries

    @classmethod
    def average(cls, space: MetricSpace) -> LinearQuery:
        """The average of the items' coordinates: f(x) = x."""
        instance("space", space, MetricSpace)
        if space.points is None:
            raise DesignError.of("space", space.kind, "has no coordinates to average; give values yourself")
        return cls(space, space.points, "average")

    @classmethod
    def distance_to(cls, space: MetricSpace, point: int) -> LinearQuery:
        """The average distance to one point of the space; 1-Lipschitz."""
        at = int(instance("space", space, MetricSpace).indices(point, name="point").flat[0])
        return cls(space, space.distances_from(at), "distance")

    @classmethod
    def region(cls, space: MetricSpace, members: ArrayLike, *, bandwidth: float) -> LinearQuery:
        """The share of items in a region, smoothed: f(x) = max(0, 1 − d(x, region)/bandwidth)."""
        width = positive("bandwidth", bandwidth)  # a sharp region is not Lipschitz
        inside = np.unique(instance("space", space, MetricSpace).indices(members, name="members"))
        nearest = np.min([space.distances_from(x) for x in inside], axis=0)
        return cls(space, np.maximum(0.0, 1 - nearest / width), "region")

    @classmethod
    def embedding(
        cls, space: MetricSpace, matrix: ArrayLike, *, features: ArrayLike | None = None
    ) -> LinearQuery:
        """V·E φ(x) for a matrix V, shape (k, dim), and features φ, shape (n, dim): the coordinates by default."""
        if features is None and instance("space", space, MetricSpace).points is None:
            raise DesignError.of(
                "features", None, "the space has no coordinates; give features of every point"
            )
        phi = array("features", space.points if features is None else features, ndim=None)
        v = np.atleast_2d(array("matrix", matrix, ndim=None))
        if phi.ndim != 2 or v.ndim != 2 or v.shape[1] != phi.shape[1]:
            raise DesignError.of("matrix", v.shape, f"must have one column per feature, {phi.shape}[1]")
        return cls(space, phi @ v.T, "embedding")

    @classmethod
    def similarity(
        cls, space: MetricSpace, vectors: ArrayLike, *, features: ArrayLike | None = None
    ) -> LinearQuery:
        """Average inner product with unit query vectors, shape (k, dim): an embedding with normalised rows."""
        v = np.atleast_2d(array("vectors", vectors, ndim=None))
        lengths = np.linalg.norm(v, axis=-1, keepdims=True)
        if (lengths == 0).any():
            raise DesignError("vectors: a query vector is zero; it has no direction")
        query = cls.embedding(space, v / lengths, features=features)
        return cls(space, query.values, "similarity")

    @classmethod
    def histogram(cls, space: MetricSpace) -> LinearQuery:
        """The histogram itself: f(x) is the x-th unit vector."""
        check_size(instance("space", space, MetricSpace).size)
        return cls(space, np.eye(space.size), "histogram")

    # ------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """k, the length of the answer."""
        return int(self.values.shape[1])

    def __call__(self, histogram: ArrayLike) -> Any:
        """F of histograms, shape (..., n) → (..., k)."""
        return self.space.distribution(histogram) @ self.values

    def lipschitz(self, norm: Any = 2) -> float:
        """Exact Lipschitz constant L from the space's metric to the ℓ₁, ℓ₂ or ℓ_∞ norm, rounded up.

        The maximum over all pairs of points (on a line over neighbours: others are chains of them); it is the
        sensitivity of F under the earth mover's distance.
        """
        if self.space.kind == "line" and self.space.points is not None:
            order = np.argsort(self.space.points[:, 0])
            steps = np.diff(self.space.points[order, 0])
            return self._largest(norm, [(np.diff(self.values[order], axis=0), steps)])
        changes = (
            (self._changes(x), self.space.distances_from(x)[x + 1 :]) for x in range(self.space.size - 1)
        )
        return self._largest(norm, changes)

    def spread(self, norm: Any = 2) -> float:
        """Largest ‖f(x) − f(y)‖ over all pairs, rounded up: the sensitivity without a metric (user-level DP)."""
        return self._largest(norm, ((self._changes(x), 1.0) for x in range(self.space.size - 1)))

    def _changes(self, x: int) -> Array:
        return self.values[x + 1 :] - self.values[x]

    def _largest(self, norm: Any, changes: Iterable[tuple[Array, Any]]) -> float:
        """Largest ratio of the norm of a change to its distance, rounded up."""
        order = norm_order("norm", norm)
        ratios = ((np.linalg.norm(change, ord=order, axis=1) / d).max(initial=0.0) for change, d in changes)
        return float(max(ratios, default=0.0)) * (1 + (self.dimension + 8) * 2.0**-52)
