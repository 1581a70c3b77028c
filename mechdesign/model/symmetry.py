r"""Symmetries of a declared problem: permutations of inputs and of outputs under which it stays what it is.

Where (σ, τ) maps costs, rows and privacy onto themselves, P[σx, τy] is feasible where P is, and costs the same; the constraints are convex, so the
average over the group is feasible too, and some optimum is constant on orbits of cells: one variable for each is enough. Rows that read the same
in these variables are one row, whose multiplier is shared out equally: costs and charges are then constant on orbits too, and the bound is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from mechdesign.errors import DesignError
from mechdesign.model.declared import Declared
from mechdesign.solvers.deadline import Deadline
from mechdesign.spaces.automorphisms import automorphisms, labels, orbits
from mechdesign.typing import Indices

Map = tuple[Indices, Indices]
"""Images of inputs and of outputs."""


@dataclass(frozen=True, eq=False)
class Symmetry:
    """Orbits under a group of symmetries, as numbers.

    Attributes
    ----------
    cells, pairs, outputs, rows : arrays of int
        Orbit of each cell, of each ordered pair of inputs, shape (inputs, inputs), of each output and of each own row.
    dropped : int
        How many of the permutations that were given are no symmetries.
    """

    cells: Indices
    pairs: Indices
    outputs: Indices
    rows: Indices
    dropped: int = 0

    @classmethod
    def of(cls, declared: Declared, asked: Any = None, deadline: Deadline | None = None) -> Symmetry:
        """Return the symmetries that are asked for.

        Parameters
        ----------
        declared : Declared
        asked : "find", list of (permutation of inputs, permutation of outputs), or None
            Those that do not keep costs, privacy and every row are dropped; None is no symmetry.
        deadline : Deadline, optional
            Of the search.
        """
        n, m = declared.n, declared.m
        if asked is None:
            singles = np.arange(n * m), np.arange(n * n).reshape(n, n), np.arange(m)
            return cls(*singles, np.arange(len(declared.family)))
        codes = _codes(declared)
        if isinstance(asked, str):
            if asked != "find":
                raise DesignError.of(
                    "symmetry", asked, 'must be "find", or permutations of (inputs, outputs)'
                )
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
            orbits(len(declared.family), [images for _, images in kept]),
            len(given) - len(kept),
        )

    @property
    def trivial(self) -> bool:
        """Whether every orbit of cells is a single one."""
        return int(self.cells.max()) + 1 == self.cells.size


@dataclass(frozen=True, eq=False)
class _Codes:
    """A problem as integers, equal where it reads the same: of cells, of pairs of inputs; and each own row with such integers."""

    cells: Indices
    pairs: Indices
    rows: list[tuple[int, int, tuple[tuple[int, int], ...]]]


def _codes(declared: Declared) -> _Codes:
    """Numbers that agree to 1e-12 of the largest count as equal."""
    n, cells, width = declared.n, declared.cells, len(declared.coefficients)
    numbers = labels(np.concatenate([declared.coefficients, declared.offsets, [0.0]])).tolist()
    terms: list[list[tuple[int, int]]] = [[] for _ in declared.family]
    for (row, column), value in zip(declared.places.tolist(), numbers):
        terms[row].append((column, value))
    rows = [(e, k, tuple(held)) for e, k, held in zip(declared.equal.tolist(), numbers[width:], terms)]
    # a cell reads as its cost, and as its coefficient in each row, with all that the row holds
    seen: list[tuple[Any, ...]] = [(code,) for code in labels(declared.cost[:cells]).tolist()]
    for equal, offset, held in rows:
        whole = equal, offset, tuple(sorted((value, max(j, cells - 1)) for j, value in held))
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
        if len(pairs[0]) < n * (n - 1):  # how many pairs lie between two inputs tells them apart faster
            steps = csgraph.shortest_path(sparse.csr_array(code >= 0), unweighted=True)
            asked.append(np.minimum(steps, n).astype(np.int64).ravel())
    pairs_read = np.unique(np.array(asked), axis=1, return_inverse=True)[1]
    return _Codes(np.array(read).reshape(n, -1), pairs_read.reshape(n, n), rows)


def _joint(codes: _Codes) -> Indices:
    """One table of inputs and outputs, whose automorphisms are pairs of permutations."""
    (n, m), most = codes.cells.shape, int(codes.pairs.max()) + 1
    table = np.full((n + m, n + m), -1, dtype=np.int64)
    table[:n, :n] = codes.pairs
    table[:n, n:] = most + codes.cells
    table[n:, :n] = most + codes.cells.T
    np.fill_diagonal(table, np.repeat([-2, -3], [n, m]))
    return table


def _images(declared: Declared, codes: _Codes, g: Indices, h: Indices) -> Indices | None:
    """Image of every own row under permutations of inputs and outputs; None where these keep the problem not."""
    if not (
        np.array_equal(codes.cells[g][:, h], codes.cells)
        and np.array_equal(codes.pairs[g][:, g], codes.pairs)
    ):
        return None
    columns = [*(g[:, None] * declared.m + h).ravel().tolist(), *range(declared.cells, len(declared.cost))]
    known = {row: k for k, row in enumerate(codes.rows)}
    try:
        found = [
            known[e, k, tuple(sorted((columns[j], value) for j, value in held))] for e, k, held in codes.rows
        ]
    except KeyError:
        return None
    return np.array(found, dtype=np.int64)


def _read(asked: Iterable[Any], n: int, m: int) -> Iterable[Map]:
    for one in asked:
        g, h = (np.asarray(side) for side in one)
        if sorted(g.tolist()) != list(range(n)) or sorted(h.tolist()) != list(range(m)):
            raise DesignError.of(
                "symmetry", one, f"must be permutations of {n} inputs and of {m} outputs, from 0"
            )
        yield g, h
