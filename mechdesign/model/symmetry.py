"""Symmetries of a declared problem: classes of cells that are alike, and have one variable each.

Colours of cells, pairs of inputs, outputs and own rows begin with their costs, distances and constants, and are refined until no more can be told
apart by the colours that they meet, each as often as it meets them: an *equitable partition* of the linear program. The mean over classes
of a feasible table then is feasible, and costs the same; so some optimum is constant on classes, and one variable for each is enough
(Grohe, Kersting, Mladenov and Selman 2014). Classes never are finer than the orbits of the permutations that change nothing. Rows that are equal
in these variables become one row, whose multiplier is shared out equally: reduced costs are then constant on classes too, and the bound is the same.
An equality may be as −1 times another, as zero bias is by a mirror: it is the same row. One that is as −1 times itself is 0 = 0 in these variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.model.declared import Declared
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices


def labels(values: Array) -> Indices:
    """Number the values: two have the same number if they agree up to 10⁻¹² of themselves, or rounding of the largest one."""
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    steps = np.diff(flat[order], prepend=flat[order[:1]])
    size, found = np.abs(flat[order]), np.empty(flat.size, dtype=np.int64)
    found[order] = np.cumsum(steps > np.maximum(1e-12 * size, 1e-15 * size.max(initial=1e-288)))
    return found.reshape(values.shape)


def _split(colours: Indices, by: Array | Indices) -> Indices:
    """Number the pairs of a colour and a number that occur."""
    numbers = np.unique(by, return_inverse=True)[1].reshape(colours.shape)
    whole = colours * (numbers.max(initial=0) + 1) + numbers
    return np.unique(whole, return_inverse=True)[1].reshape(colours.shape).astype(np.int64)


def _in_order(colours: Indices) -> Indices:
    """Number the colours as they first occur: a solver meets its variables in the order of the table."""
    first, numbers = np.unique(colours, return_index=True, return_inverse=True)[1:]
    return np.argsort(np.argsort(first))[numbers].reshape(colours.shape)


@dataclass(frozen=True, eq=False)
class Symmetry:
    """Classes of what is alike in a problem, as numbers.

    Attributes
    ----------
    cells, pairs, outputs : arrays of int
        Class of each cell, of each ordered pair of inputs, shape (inputs, inputs), and of each output.
    rows : array of int, shape (2, own rows)
        Class of each own row, and of −1 times it.
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
        """Return the classes, each part a class of its own unless symmetries are asked for.

        Parameters
        ----------
        declared : Declared
        asked : "find", list of (permutation of inputs, permutation of outputs), or None
            Permutations under which the classes differ are dropped; None, an empty list, and none that is left, mean no symmetry.
        deadline : Deadline, optional
            Past it raises SolverError.
        """
        n, m, own = declared.n, declared.m, len(declared.family)
        singles = cls(
            np.arange(n * m), np.arange(n * n).reshape(n, n), np.arange(m), np.arange(2 * own).reshape(2, own)
        )
        find = isinstance(asked, str) and asked == "find"
        given = [] if find or asked is None else list(_read(asked, n, m))
        if not (find or given):
            return singles
        found = _equitable(declared, deadline or Deadline())
        cells = found.cells.reshape(n, m)
        kept = [np.array_equal(cells[np.ix_(g, h)], cells) for g, h in given]
        return replace(found if find or any(kept) else singles, dropped=kept.count(False))

    @property
    def trivial(self) -> bool:
        """Whether every cell is a class of its own."""
        return int(self.cells.max()) + 1 == self.cells.size


def _equitable(declared: Declared, deadline: Deadline) -> Symmetry:
    """Return the classes of a problem: colours that are refined until they are equitable.

    What a part meets is hashed: a sum of products of random whole numbers, one for each colour, exact in doubles. Parts that differ have
    the same sum by chance only, and new numbers tell them apart in the next round.
    """
    n, m, (row, column) = declared.n, declared.m, declared.places.T
    cells, outputs = labels(declared.cost[: n * m]).reshape(n, m), np.zeros(m, dtype=np.int64)
    pairs, further = np.eye(n, dtype=np.int64), np.arange(declared.width - n * m)  # none is like another
    for asked in declared.privacy:
        distances, held = np.full((n, n), -1.0), tuple(asked.pairs(n).T)
        distances[held] = 1.0 if asked.distances is None else asked.distances[held]
        pairs = _split(pairs, labels(distances))
    terms = labels(np.array([declared.coefficients, -declared.coefficients]))
    rows = labels(np.array([declared.offsets, -declared.offsets]))
    rows = _split(rows, np.where(declared.equal > 0, 0, [[1], [2]]))
    largest = 2.0 ** ((52 - max(n, m, 2 * len(row)).bit_length()) // 2)
    source, before, count = np.random.default_rng(0), -2, -1

    def drawn(colours: Indices) -> Array:
        numbers = np.floor(source.uniform(1.0, largest, int(colours.max(initial=-1)) + 1))
        return np.asarray(numbers[colours])

    while before < count:
        deadline.hold("search for symmetries")
        pairs = _split(pairs, drawn(cells) @ drawn(cells).T)
        outputs = _split(outputs, drawn(cells).sum(axis=0))
        factors, numbers = drawn(terms), np.append(drawn(cells), drawn(further))
        rows = _split(rows, np.array([np.bincount(row, f * numbers[column], rows.shape[1]) for f in factors]))
        either = zip(factors, drawn(rows))  # rows and −1 times rows
        met = np.sum([np.bincount(column, f * own[row], declared.width) for f, own in either], axis=0)
        cells = _split(cells, met[: n * m].reshape(n, m))
        cells = _split(cells, drawn(pairs) @ drawn(cells) + drawn(outputs))
        before, count = count, sum(int(part.max(initial=0)) for part in (cells, pairs, outputs, rows))
    return Symmetry(_in_order(cells.ravel()), _in_order(pairs), _in_order(outputs), _in_order(rows))


def _read(asked: Any, n: int, m: int) -> Iterator[tuple[Indices, Indices]]:
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
