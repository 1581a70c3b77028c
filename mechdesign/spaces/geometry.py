"""Geometry behind `MetricSpace`: checks of a distance matrix, great circles, paths in trees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mechdesign.errors import DesignError
from mechdesign.typing import Array, Indices

__all__ = [
    "EARTH_RADIUS_KM",
    "TOLERANCE",
    "check_distances",
    "check_distinct",
    "check_size",
    "haversine",
    "topological_order",
    "tree_distances",
]

EARTH_RADIUS_KM = 6371.0088  # mean radius of the WGS 84 ellipsoid (IUGG)
LARGEST = 20_000  # points whose matrix of distances is still built: 3 GiB
TOLERANCE = 1e-9  # relative to the diameter: what rounding may break in a distance matrix


def check_distances(matrix: Array, tolerance: float = TOLERANCE) -> None:
    """Raise a `DesignError` unless `matrix` is a distance matrix; name the first offending triple."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) == 0:
        raise DesignError.of("distances", matrix.shape, "must be a square matrix of at least one point")
    slack = tolerance * float(np.abs(matrix).max())

    def first(bad: NDArray[np.bool_]) -> tuple[int, int]:
        i, j = np.unravel_index(int(np.flatnonzero(bad)[0]), bad.shape)
        return int(i), int(j)

    if (matrix < 0).any():
        i, j = first(matrix < 0)
        raise DesignError(f"distances: d({i}, {j}) = {matrix[i, j]} is negative; distances must be >= 0")
    if (np.diag(matrix) > slack).any():
        i = int(np.flatnonzero(np.diag(matrix) > slack)[0])
        raise DesignError(f"distances: d({i}, {i}) = {matrix[i, i]}; the diagonal must be zero")
    skew = np.abs(matrix - matrix.T) > slack
    if skew.any():
        i, j = first(skew)
        raise DesignError(
            f"distances: d({i}, {j}) = {matrix[i, j]} but d({j}, {i}) = {matrix[j, i]}; must be symmetric, "
            "average the two or take the larger"
        )
    check_distinct(matrix)
    for z in range(len(matrix)):
        bad = matrix > matrix[:, z, None] + matrix[z, None, :] + slack
        if bad.any():
            x, y = first(bad)
            raise DesignError(
                f"distances: triangle inequality broken at ({x}, {z}, {y}): {matrix[x, y]} > {matrix[x, z]} + "
                f"{matrix[z, y]}; d(x, y) must not exceed d(x, z) + d(z, y), take shortest paths first"
            )


def check_distinct(matrix: Array) -> None:
    """Raise a `DesignError` if two points are at distance zero."""
    zero = matrix <= 0
    np.fill_diagonal(zero, False)
    if zero.any():
        i, j = (int(v) for v in np.argwhere(zero)[0])
        raise DesignError(
            f"distances: points {i} and {j} are at distance 0; points must be distinct, merge them"
        )


def haversine(degrees: Array, others: Array | None = None) -> Array:
    """Great-circle distances in kilometres between rows of (latitude, longitude) in degrees."""
    a = np.radians(degrees)
    b = a if others is None else np.radians(others)
    rise = np.sin((a[:, None, 0] - b[None, :, 0]) / 2) ** 2
    turn = np.sin((a[:, None, 1] - b[None, :, 1]) / 2) ** 2
    chord = rise + np.cos(a[:, None, 0]) * np.cos(b[None, :, 0]) * turn
    return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(chord, 0.0, 1.0))))


def topological_order(parents: Indices) -> list[int]:
    """Nodes, every parent before its children; refuses a cycle."""
    children: list[list[int]] = [[] for _ in range(parents.size)]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    order = [int(np.flatnonzero(parents == -1)[0])]
    for node in order:
        order.extend(children[node])
    if len(order) < parents.size:
        lost = min(set(range(parents.size)) - set(order))
        raise DesignError(f"parents: node {lost} is not connected to the root (a cycle)")
    return order


def tree_distances(parents: Indices, lengths: Array, nodes: Indices) -> Array:
    """Path lengths between `nodes` of a rooted tree."""
    order = topological_order(parents)
    matrix = np.zeros((len(order), len(order)))
    for done, node in enumerate(order[1:], start=1):
        seen = order[:done]
        # A node's path to any earlier node (never one of its descendants) leaves through its parent.
        row = matrix[parents[node], seen] + lengths[node]
        matrix[node, seen] = row
        matrix[seen, node] = row
    return matrix[np.ix_(nodes, nodes)]


def check_size(rows: int, columns: int | None = None, *, what: str = "space") -> None:
    """Raise a `DesignError` where a matrix of points by points, or by reports, would not fit into memory."""
    entries = rows * (rows if columns is None else columns)
    if entries > LARGEST**2:
        size = entries * 8 / 2**30
        raise DesignError.of(
            what,
            f"{rows} points",
            f"needs a dense matrix of {size:.1f} GiB; merge points that lie near each other, or take a channel of few "
            "levels (KaryResponse, ClusteredResponse, HadamardResponse) and what does without its matrix",
        )
