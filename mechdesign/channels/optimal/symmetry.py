r"""Symmetry of a metric channel's linear program.

A permutation σ of the points that preserves distances and costs, :math:`d(σx, σx') = d(x, x')` and
:math:`c(σx, σy) = c(x, y)` with :math:`c(x, y) = π_x ℓ(x, y)`, maps private channels to private channels of
the same expected loss. Their average over the group is private too (the constraints are convex), so some
optimal channel is constant on orbits of pairs: one variable per orbit is enough. An n × n grid with the
uniform prior has 8 symmetries, a clustered space :math:`(b!)^g g!`.

Finding the group is a search, but finding too little of it is safe: orbits of a subgroup only save less.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from mechdesign.typing import Array, Indices

__all__ = ["automorphisms", "pair_orbits"]

_LEAVES = 50  # candidate permutations tried for one image of one base point before giving it up


def _labels(values: Array) -> Indices:
    """Integers that are equal where values agree up to 10⁻¹² of the largest one."""
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    gaps = np.diff(flat[order]) > 1e-12 * max(float(np.abs(flat).max()), 1e-300)
    labels = np.empty(flat.size, dtype=np.int64)
    labels[order] = np.concatenate([[0], np.cumsum(gaps)])
    return labels.reshape(values.shape)


def _classes(rows: Indices) -> Indices:
    """Integers that are equal where rows are equal."""
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def _base(table: Indices, colours: Indices) -> list[int]:
    """Points whose distances and costs to a point identify it (together with its colour)."""
    base: list[int] = []
    while colours.max() + 1 < len(table):
        sizes = np.bincount(colours)
        point = int(np.flatnonzero(colours == sizes.argmax())[0])
        base.append(point)
        mark = np.zeros(len(table), dtype=np.int64)
        mark[point] = 1
        colours = _classes(np.column_stack([colours, table[:, point], table[point], mark]))
    return base


def _leaves(table: Indices, colours: Indices, base: list[int], images: list[int]) -> Iterator[list[int]]:
    """Images of the whole base that extend `images` consistently, depth first."""
    if len(images) == len(base):
        yield images
        return
    point, done = base[len(images)], base[: len(images)]
    fits = colours == colours[point]
    fits &= (table[:, images] == table[point, done]).all(axis=1)
    fits &= (table[images] == table[done, point][:, None]).all(axis=0)
    fits[images] = False
    for candidate in np.flatnonzero(fits).tolist():
        yield from _leaves(table, colours, base, [*images, candidate])


def _complete(table: Indices, colours: Indices, base: list[int], images: list[int]) -> Indices | None:
    """The permutation that extends base ↦ images, if it is an automorphism."""
    before = np.column_stack([colours, table[:, base], table[base].T])
    after = np.column_stack([colours, table[:, images], table[images].T])
    first, second = np.lexsort(before.T), np.lexsort(after.T)
    permutation = np.empty(len(table), dtype=np.int64)
    permutation[first] = second
    permutation[base] = images
    if np.unique(permutation).size < len(table):
        return None
    if not np.array_equal(table[np.ix_(permutation, permutation)], table):
        return None
    return permutation if np.array_equal(colours[permutation], colours) else None


def automorphisms(distances: Array, cost: Array) -> list[Indices]:
    """Generators of (a subgroup of) the permutations that preserve distances and costs.

    Base and strong generators in the manner of Schreier and Sims: the last base points are moved first, and a
    point already in the orbit of what is found needs no search.

    Parameters
    ----------
    distances, cost : arrays, shape (n, n)

    Examples
    --------
    >>> import numpy as np
    >>> line = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    >>> automorphisms(line, line)
    [array([2, 1, 0])]
    """
    n = len(distances)
    table = _labels(distances) * (n * n) + _labels(cost)
    colours = _classes(np.column_stack([np.diag(table), np.sort(table, axis=1), np.sort(table.T, axis=1)]))
    base = _base(table, colours)
    found: list[Indices] = []
    for level in range(len(base) - 1, -1, -1):
        fixed, point = base[:level], base[level]
        orbit = _orbit(point, found)
        hopeless: set[int] = set()
        for image in range(n):
            if image in orbit or image in hopeless or image in fixed or colours[image] != colours[point]:
                continue
            if not np.array_equal(table[image, fixed], table[point, fixed]):
                continue
            if not np.array_equal(table[fixed, image], table[fixed, point]):
                continue
            for tried, images in enumerate(_leaves(table, colours, base, [*fixed, image])):
                permutation = _complete(table, colours, base, images)
                if permutation is not None:
                    found.append(permutation)
                    orbit = _orbit(point, found)
                    break
                if tried >= _LEAVES:
                    break
            else:
                hopeless |= _orbit(image, found)
    return found


def _orbit(point: int, generators: list[Indices]) -> set[int]:
    seen, todo = {point}, [point]
    for here in todo:
        found = {int(generator[here]) for generator in generators} - seen
        seen |= found
        todo.extend(found)
    return seen


def pair_orbits(size: int, outputs: int, generators: list[Indices]) -> Indices:
    """Orbit number of every (x, y), shape (size, outputs); all different without generators."""
    if not generators:
        return np.arange(size * outputs, dtype=np.int64).reshape(size, outputs)
    nodes = np.arange(size * size)
    targets = [(g[:, None] * size + g[None, :]).ravel() for g in generators]
    graph = sparse.coo_matrix(
        (
            np.ones(size * size * len(targets), dtype=np.int8),
            (np.tile(nodes, len(targets)), np.concatenate(targets)),
        ),
        shape=(size * size, size * size),
    )
    labels = csgraph.connected_components(graph, directed=False)[1]
    return np.asarray(labels, dtype=np.int64).reshape(size, size)
