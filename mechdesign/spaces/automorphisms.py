"""Permutations that keep a table of integers: a search for generators of its automorphism group, and the orbits they make."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices

_LEAVES = 50  # candidate permutations tried for one image of one base point before giving it up


def labels(values: Array) -> Indices:
    """Integers that are equal where values agree up to 10⁻¹² of the largest one."""
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    gaps = np.diff(flat[order]) > 1e-12 * max(float(np.abs(flat).max()), 1e-300)
    found = np.empty(flat.size, dtype=np.int64)
    found[order] = np.concatenate([[0], np.cumsum(gaps)])
    return found.reshape(values.shape)


def _classes(rows: Indices) -> Indices:
    """Integers that are equal where rows are equal."""
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def _base(table: Indices, colours: Indices) -> list[int]:
    """Points, the first ones that do, whose rows and columns identify every point together with its colour."""
    base: list[int] = []
    while colours.max() + 1 < len(table):
        point = int(np.flatnonzero(np.bincount(colours)[colours] > 1)[0])
        base.append(point)
        mark = np.zeros(len(table), dtype=np.int64)
        mark[point] = 1
        colours = _classes(np.column_stack([colours, table[:, point], table[point], mark]))
    return base


def _candidates(table: Indices, colours: Indices, base: list[int], images: list[int]) -> list[int]:
    """Points that the next point of the base may be mapped to, given the images of those before it."""
    point, done = base[len(images)], base[: len(images)]
    fits = colours == colours[point]
    fits &= (table[:, images] == table[point, done]).all(axis=1)
    fits &= (table[images] == table[done, point][:, None]).all(axis=0)
    fits[images] = False
    return list(np.flatnonzero(fits).tolist())


def _leaves(table: Indices, colours: Indices, base: list[int], images: list[int]) -> Iterator[list[int]]:
    """Images of the whole base that extend `images` consistently, depth first."""
    if len(images) == len(base):
        yield images
        return
    for candidate in _candidates(table, colours, base, images):
        yield from _leaves(table, colours, base, [*images, candidate])


def _complete(table: Indices, colours: Indices, base: list[int], images: list[int]) -> Indices | None:
    """The permutation that extends base ↦ images, if it is an automorphism."""
    before = np.column_stack([colours, table[:, base], table[base].T])
    after = np.column_stack([colours, table[:, images], table[images].T])
    first, second = np.lexsort(before.T), np.lexsort(after.T)
    permutation = np.empty(len(table), dtype=np.int64)
    permutation[first] = second
    permutation[base] = images
    one_to_one = np.unique(permutation).size == len(table) and np.array_equal(colours[permutation], colours)
    same = one_to_one and np.array_equal(table[np.ix_(permutation, permutation)], table)
    return permutation if same else None


def automorphisms(table: Indices, *, deadline: Deadline | None = None) -> list[Indices]:
    """Generators of (a subgroup of) the permutations σ with ``table[σx, σy] == table[x, y]``.

    Base and strong generators in the manner of Schreier and Sims: the last base points are moved first, and a
    point already in the orbit of what is found needs no search. To find too little of the group is safe.

    Parameters
    ----------
    table : array of int, shape (n, n)
    deadline : Deadline, optional

    Raises
    ------
    SolverError
        The search is not over by the deadline.

    Examples
    --------
    >>> import numpy as np
    >>> automorphisms(np.abs(np.subtract.outer(np.arange(3), np.arange(3))))
    [array([2, 1, 0])]
    """
    colours = _classes(np.column_stack([np.diag(table), np.sort(table, axis=1), np.sort(table.T, axis=1)]))
    base = _base(table, colours)
    found: list[Indices] = []
    for level in range(len(base) - 1, -1, -1):
        fixed, point = base[:level], base[level]
        orbit = _orbit(point, found)
        hopeless: set[int] = set()
        for image in _candidates(table, colours, base, fixed):
            if image in orbit or image in hopeless:
                continue
            for tried, images in enumerate(_leaves(table, colours, base, [*fixed, image])):
                Deadline.of(deadline).hold("search for symmetries")
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


def orbits(size: int, maps: list[Indices]) -> Indices:
    """Number of the orbit of each of ``0, …, size - 1`` under maps of these; all different without maps."""
    if not maps:
        return np.arange(size, dtype=np.int64)
    places = np.tile(np.arange(size), len(maps)), np.concatenate(maps)
    graph = sparse.coo_array((np.ones(len(places[0]), dtype=np.int8), places), shape=(size, size))
    return np.asarray(csgraph.connected_components(graph, directed=False)[1], dtype=np.int64)
