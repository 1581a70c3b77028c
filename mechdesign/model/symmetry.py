"""Symmetries of a declared problem: permutations of inputs and of outputs that leave it invariant.

They are automorphisms of a table of integers: a search finds generators of their group, and its orbits. If (σ, τ) maps costs, rows and privacy onto themselves, P[σx, τy] is feasible whenever P is, and costs the same; the constraints are convex, so the
average over the group is feasible too, and some optimum is constant on orbits of cells: one variable for each is enough. Rows that are equal
in these variables become one row, whose multiplier is shared out equally: reduced costs are then constant on orbits too, and the bound is the same.
An equality may be mapped onto −1 times another, as zero bias is by a mirror: it is the same row. One mapped onto −1 times itself is 0 = 0 in these variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from mechdesign.errors import DesignError
from mechdesign.model.declared import Declared
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices

_LEAVES = 50  # candidate permutations tried for one image of a base point


def labels(values: Array) -> Indices:
    """Number the values: two have the same number if they agree up to 10⁻¹² of the largest one."""
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    gaps = np.diff(flat[order]) > 1e-12 * max(float(np.abs(flat).max()), 1e-300)
    found = np.empty(flat.size, dtype=np.int64)
    found[order] = np.concatenate([[0], np.cumsum(gaps)])
    return found.reshape(values.shape)


def _classes(rows: Indices) -> Indices:
    """Number the rows: two have the same number if they are equal."""
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def _base(table: Indices, colours: Indices) -> list[int]:
    """Return points whose rows and columns, with colours, identify every point: of those just identified the last, where it tells others apart, else one not identified."""
    base, known = list[int](), np.zeros(len(table), dtype=bool)
    while colours.max() + 1 < len(table):
        alone = np.bincount(colours)[colours] == 1
        new, known = np.flatnonzero(alone & ~known), alone
        point = int(new[-1] if len(new) else np.flatnonzero(~alone)[0])
        mark = np.arange(len(table)) == point
        marked = _classes(np.column_stack([colours, table[:, point], table[point], mark]))
        if marked.max() > colours.max():
            base.append(point)
        colours = marked
    return base


def _candidates(table: Indices, colours: Indices, base: list[int], images: list[int]) -> list[int]:
    """Return the possible images of the next base point, given the images of those before it."""
    point, done = base[len(images)], base[: len(images)]
    fits = colours == colours[point]
    fits &= (table[:, images] == table[point, done]).all(axis=1)
    fits &= (table[images] == table[done, point][:, None]).all(axis=0)
    fits[images] = False
    return list(np.flatnonzero(fits).tolist())


def _leaves(table: Indices, colours: Indices, base: list[int], images: list[int]) -> Iterator[list[int]]:
    """Yield images of the whole base that extend `images` consistently, depth first."""
    if len(images) == len(base):
        yield images
        return
    for candidate in _candidates(table, colours, base, images):
        yield from _leaves(table, colours, base, [*images, candidate])


def _complete(table: Indices, colours: Indices, base: list[int], images: list[int]) -> Indices | None:
    """Return the permutation that extends base ↦ images, or None if it is no automorphism."""
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
    """Return generators of (a subgroup of) the permutations σ with ``table[σx, σy] == table[x, y]``.

    Base and strong generators as in Schreier and Sims: the last base points are moved first, and a
    point already in the orbit of known generators needs no search. Finding only a subgroup is safe.

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
                (deadline or Deadline()).hold("search for symmetries")
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
    """Return the number of the orbit of each of ``0, …, size - 1`` under these maps; all different without maps."""
    if not maps:
        return np.arange(size, dtype=np.int64)
    places = np.tile(np.arange(size), len(maps)), np.concatenate(maps)
    graph = sparse.coo_array((np.ones(len(places[0]), dtype=np.int8), places), shape=(size, size))
    return np.asarray(csgraph.connected_components(graph, directed=False)[1], dtype=np.int64)


Map = tuple[Indices, Indices]
"""Images of inputs and of outputs."""


@dataclass(frozen=True, eq=False)
class Symmetry:
    """Orbits under a group of symmetries, as numbers.

    Attributes
    ----------
    cells, pairs, outputs : arrays of int
        Orbit of each cell, of each ordered pair of inputs, shape (inputs, inputs), and of each output.
    rows : array of int, shape (2, own rows)
        Orbit of each own row, and of −1 times it.
    dropped : int
        Number of given permutations that are no symmetries.
    """

    cells: Indices
    pairs: Indices
    outputs: Indices
    rows: Indices
    dropped: int = 0

    @classmethod
    def of(cls, declared: Declared, asked: Any = None, deadline: Deadline | None = None) -> Symmetry:
        """Return the orbits of the symmetries asked for.

        Parameters
        ----------
        declared : Declared
        asked : "find", list of (permutation of inputs, permutation of outputs), or None
            Permutations that change costs, privacy or a row are dropped; None means no symmetry.
        deadline : Deadline, optional
            Past it raises SolverError, or ends the search for symmetries.
        """
        n, m = declared.n, declared.m
        if asked is None:
            singles = np.arange(n * m), np.arange(n * n).reshape(n, n), np.arange(m)
            return cls(*singles, np.arange(2 * len(declared.family)).reshape(2, len(declared.family)))
        codes = _codes(declared, deadline := deadline or Deadline())
        if isinstance(asked, str) and asked == "find":
            found = automorphisms(_joint(codes), deadline=deadline)
            given: list[Map] = [(g[:n], g[n:] - n) for g in found]
        else:
            given = list(_read(asked, n, m))
        kept = [(one, images) for one in given if (images := _images(declared, codes, *one)) is not None]
        maps = [one for one, _ in kept]
        pairs = orbits(n * n, [(g[:, None] * n + g).ravel() for g, _ in maps])
        return cls(
            orbits(n * m, [(g[:, None] * m + h).ravel() for g, h in maps]),
            pairs.reshape(n, n),
            orbits(m, [h for _, h in maps]),
            orbits(2 * len(declared.family), [images for _, images in kept]).reshape(2, len(declared.family)),
            len(given) - len(kept),
        )

    @property
    def trivial(self) -> bool:
        """Whether every orbit of cells is a single one."""
        return int(self.cells.max()) + 1 == self.cells.size


@dataclass(frozen=True, eq=False)
class _Codes:
    """A problem as integers, equal for interchangeable parts: of cells, of pairs of inputs, and own rows in terms of these, with −1 times each equality (its number plus their count)."""

    cells: Indices
    pairs: Indices
    rows: dict[int, tuple[int, int, tuple[tuple[int, int], ...]]]


def _codes(declared: Declared, deadline: Deadline) -> _Codes:
    """Return the codes of a problem; numbers that agree to 1e-12 of the largest count as equal."""
    n, cells, count = declared.n, declared.cells, len(declared.family)
    numbers, equal = np.concatenate([declared.offsets, declared.coefficients, [0.0]]), declared.equal.tolist()
    rows: dict[int, tuple[int, int, tuple[tuple[int, int], ...]]] = {}
    for negated, signed in enumerate(labels(np.array([numbers, -numbers])).tolist()):
        terms: list[list[tuple[int, int]]] = [[] for _ in equal]
        for (row, column), value in zip(declared.places.tolist(), signed[count:]):
            terms[row].append((column, value))
        for k, own in enumerate(terms):
            if equal[k] or not negated:
                rows[k + negated * count] = equal[k], signed[k], tuple(own)
    # the code of a cell: its cost, and its coefficient in each row, with the row's contents
    seen: list[tuple[Any, ...]] = [(code,) for code in labels(declared.cost[:cells]).tolist()]
    for kind, offset, held in rows.values():
        whole = kind, offset, tuple(sorted((value, max(j, cells - 1)) for j, value in held))
        for j, value in held:
            if j < cells:
                seen[j] = (*seen[j], (value, whole))
    known: dict[tuple[Any, ...], int] = {}
    read = [known.setdefault((one[0], tuple(sorted(one[1:]))), len(known)) for one in seen]
    asked = []
    for one in declared.privacy:
        far = np.zeros((n, n)) if one.distances is None else one.distances
        code, pairs = np.full((n, n), -1), tuple(one.pairs(n).T)
        code[pairs] = labels(far)[pairs]
        asked.append(code.ravel())
        if len(pairs[0]) < n * (n - 1):  # path lengths between inputs distinguish them faster
            steps = csgraph.shortest_path(sparse.csr_array(code >= 0), unweighted=True)
            asked.append(np.minimum(steps, n).astype(np.int64).ravel())
    pairs_read = np.zeros(n * n, dtype=np.int64)
    for codes in asked:
        deadline.hold("symmetry")
        pairs_read = np.unique(pairs_read * (codes.max() + 2) + codes + 1, return_inverse=True)[1]
    return _Codes(np.array(read).reshape(n, -1), pairs_read.reshape(n, n), rows)


def _joint(codes: _Codes) -> Indices:
    """Return one table of inputs and outputs, whose automorphisms are pairs of permutations."""
    (n, m), most = codes.cells.shape, int(codes.pairs.max()) + 1
    table = np.full((n + m, n + m), -1, dtype=np.int64)
    table[:n, :n] = codes.pairs
    table[:n, n:] = most + codes.cells
    table[n:, :n] = most + codes.cells.T
    np.fill_diagonal(table, np.repeat([-2, -3], [n, m]))
    return table


def _images(declared: Declared, codes: _Codes, g: Indices, h: Indices) -> Indices | None:
    """Return the image of every own row under permutations of inputs and outputs; None if these change the problem."""
    if not (
        np.array_equal(codes.cells[g][:, h], codes.cells)
        and np.array_equal(codes.pairs[g][:, g], codes.pairs)
    ):
        return None
    columns = [*(g[:, None] * declared.m + h).ravel().tolist(), *range(declared.cells, len(declared.cost))]
    known, count = {row: k for k, row in codes.rows.items()}, len(declared.family)
    rows = itertools.islice(codes.rows.values(), count)
    try:
        found = np.array(
            [known[e, k, tuple(sorted((columns[j], value) for j, value in held))] for e, k, held in rows],
            dtype=np.int64,
        )
    except KeyError:
        return None
    return np.append(found, (found + count) % max(2 * count, 1))


def _read(asked: Any, n: int, m: int) -> Iterator[Map]:
    for one in asked if isinstance(asked, (list, tuple)) else [asked]:
        try:
            sides = [np.asarray(side) for side in one]
        except (TypeError, ValueError):
            sides = []
        shaped = [side.shape for side in sides] == [(n,), (m,)]
        if not shaped or any(s.dtype.kind not in "iu" or {*s.tolist()} != {*range(s.size)} for s in sides):
            allowed = (
                f'must be "find", or a list of permutations (of {n} inputs, of {m} outputs), counted from 0'
            )
            raise DesignError.of("symmetry", one, allowed)
        yield sides[0], sides[1]
