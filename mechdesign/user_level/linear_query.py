r"""Linear queries: averages of a vector-valued function over a user's items.

.. math:: F(D) = \sum_x f_D[x]\, f(x) = E_{x \sim D} f(x), \qquad f : X \to \mathbb R^k .

**Sensitivity.** Let L be the largest :math:`\lVert f(x) - f(y)\rVert/d(x, y)`. For any two histograms and their
optimal plan π, :math:`\lVert F(p) - F(q)\rVert = \lVert\sum \pi(x, y)(f(x) - f(y))\rVert \le L \sum \pi(x, y) d(x, y)
= L \cdot \mathrm{EMD}(p, q)`, and two point masses attain it: L is exactly the sensitivity (Theorem 4.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.knorm import norm_order
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
        try:
            values = np.array(self.values, dtype=float)
        except (TypeError, ValueError):
            raise DesignError.of("values", self.values, "must be an array with one row per point") from None
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != self.space.size or values.shape[1] == 0:
            raise DesignError.of("values", values.shape, f"must have one row per point ({self.space.size})")
        if not np.isfinite(values).all():
            raise DesignError("values: every entry must be finite")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    # ------------------------------------------------------------------ ready-made queries

    @classmethod
    def average(cls, space: MetricSpace) -> LinearQuery:
        """The average of the items' coordinates: f(x) = x."""
        if space.points is None:
            raise DesignError.of("space", space.kind, "has no coordinates to average; give values yourself")
        return cls(space, space.points, "average")

    @classmethod
    def distance_to(cls, space: MetricSpace, point: int) -> LinearQuery:
        """The average distance to one point of the space; 1-Lipschitz."""
        index = int(space.indices(point, name="point"))
        return cls(space, space.distances[:, index], "distance")

    @classmethod
    def region(cls, space: MetricSpace, members: ArrayLike, *, bandwidth: float) -> LinearQuery:
        """The share of items in a region, smoothed: f(x) = max(0, 1 − d(x, region)/bandwidth)."""
        inside = space.indices(members, name="members").ravel()
        width = float(bandwidth)
        if not (math.isfinite(width) and width > 0):
            raise DesignError.of("bandwidth", bandwidth, "must be positive; a sharp region is not Lipschitz")
        return cls(space, np.maximum(0.0, 1 - space.distances[:, inside].min(axis=1) / width), "region")

    @classmethod
    def embedding(
        cls, space: MetricSpace, matrix: ArrayLike, *, features: ArrayLike | None = None
    ) -> LinearQuery:
        """V·E φ(x) for a matrix V, shape (k, dim), and features φ, shape (n, dim): the coordinates by default."""
        phi = space.points if features is None else np.asarray(features, dtype=float)
        if phi is None:
            raise DesignError.of(
                "features", None, "this space has no coordinates; give one row of features per point"
            )
        v = np.atleast_2d(np.asarray(matrix, dtype=float))
        if phi.ndim != 2 or v.shape[1] != phi.shape[1]:
            raise DesignError.of("matrix", v.shape, f"must have one column per feature ({phi.shape[-1]})")
        return cls(space, phi @ v.T, "embedding")

    @classmethod
    def similarity(
        cls, space: MetricSpace, vectors: ArrayLike, *, features: ArrayLike | None = None
    ) -> LinearQuery:
        """Average inner product with unit query vectors, shape (k, dim): an embedding with normalised rows."""
        v = np.atleast_2d(np.asarray(vectors, dtype=float))
        lengths = np.linalg.norm(v, axis=1, keepdims=True)
        if (lengths == 0).any():
            raise DesignError("vectors: a query vector is zero; it has no direction")
        query = cls.embedding(space, v / lengths, features=features)
        return cls(space, query.values, "similarity")

    @classmethod
    def histogram(cls, space: MetricSpace) -> LinearQuery:
        """The histogram itself: f(x) is the x-th unit vector."""
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

        The maximum over all pairs of points; it is the sensitivity of F under the earth mover's distance.
        """
        order = norm_order(norm)
        largest = 0.0
        for x in range(self.space.size - 1):
            change = np.linalg.norm(self.values[x + 1 :] - self.values[x], ord=order, axis=1)
            largest = max(largest, float((change / self.space.distances[x, x + 1 :]).max()))
        return largest * (1 + (self.dimension + 8) * 2.0**-52)

    def spread(self, norm: Any = 2) -> float:
        """Largest ‖f(x) − f(y)‖ over all pairs, rounded up: the sensitivity without a metric (user-level DP)."""
        order = norm_order(norm)
        largest = 0.0
        for x in range(self.space.size - 1):
            change = np.linalg.norm(self.values[x + 1 :] - self.values[x], ord=order, axis=1)
            largest = max(largest, float(change.max()))
        return largest * (1 + (self.dimension + 8) * 2.0**-52)
