"""Spanners: thin graphs whose paths are hardly longer than distances (Althöfer et al. 1993)."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices


def graph_stretch(distances: Array, edges: Indices) -> float:
    """Largest ratio of path length along `edges`, shape (m, 2), to distance.

    Examples
    --------
    >>> square = np.array([[0, 1, 2**0.5, 1], [1, 0, 1, 2**0.5], [2**0.5, 1, 0, 1], [1, 2**0.5, 1, 0]])
    >>> round(graph_stretch(square, np.array([[0, 1], [1, 2], [2, 3], [3, 0]])), 9)
    1.414213562
    """
    n = len(distances)
    if n == 1:
        return 1.0
    graph = sparse.csr_matrix((distances[edges[:, 0], edges[:, 1]], (edges[:, 0], edges[:, 1])), shape=(n, n))
    paths = csgraph.shortest_path(graph, directed=False)
    off = ~np.eye(n, dtype=bool)
    return max(1.0, float((paths[off] / distances[off]).max()))


def greedy_spanner(
    distances: Array, stretch: float, classes: Indices | None = None, *, deadline: Deadline | None = None
) -> Indices:
    """Edges of the greedy `stretch`-spanner, shape (m, 2) with x < y.

    Pairs are taken by increasing distance; one is added when the graph so far joins it by no path shorter than
    `stretch` times its distance (Althöfer et al. 1993). With `classes` (orbit number of every pair) a pair brings its whole
    orbit with it, so that the spanner keeps the symmetry. Infinite distances are no pairs.

    Examples
    --------
    >>> line = np.arange(5.0)
    >>> greedy_spanner(np.abs(np.subtract.outer(line, line)), 1.5).tolist()
    [[0, 1], [1, 2], [2, 3], [3, 4]]
    """
    n = len(distances)
    first, second = np.triu_indices(n, 1)
    order = np.argsort(distances[first, second], kind="stable")
    paths = np.full((n, n), np.inf)
    np.fill_diagonal(paths, 0.0)
    taken = np.zeros((n, n), dtype=bool)
    for x, y in zip(first[order].tolist(), second[order].tolist()):
        if paths[x, y] <= stretch * distances[x, y]:
            continue
        same = [[x, y]]
        if classes is not None:
            members = classes == classes[x, y]
            same = np.argwhere(np.triu(members | members.T, 1)).tolist()
        for a, b in same:
            if not taken[a, b]:
                Deadline.of(deadline).hold("search for a spanner")
                taken[a, b] = True
                through = paths[:, a, None] + distances[a, b] + paths[None, b, :]
                np.minimum(paths, through, out=paths)
                np.minimum(paths, through.T, out=paths)
    return np.argwhere(taken)
