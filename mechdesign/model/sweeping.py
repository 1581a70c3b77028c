"""Linear programs of one structure, solved one after the other by HiGHS, each from the last one's basis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from mechdesign.errors import SolverError
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Array, Indices, Status


class Block(NamedTuple):
    """A family of rows ``sum(a x) <= right`` (or equal), of many points where arrays have a first axis for them.

    Parameters
    ----------
    name : str
    rows, columns : int arrays, shape (t,)
        Places of the coefficients.
    values : array, shape (t,) or (points, t)
    right : array, shape (count,) or (points, count)
    equal : bool
    """

    name: str
    rows: Indices
    columns: Indices
    values: Array
    right: Array
    equal: bool = False

    @classmethod
    def of(cls, name: str, matrix: Any, right: Any, *, equal: bool = False) -> Block:
        """A family with the same coefficients at all points."""
        entries = sparse.coo_array(matrix)
        rows, columns = (place.astype(np.int64) for place in entries.coords)
        shape = (*np.shape(right)[:-1], entries.shape[0])
        return cls(name, rows, columns, entries.data, np.broadcast_to(np.asarray(right, float), shape), equal)


@dataclass(frozen=True, eq=False)
class Programs:
    """The programs of all points: what is the same of all, and the rows, of which some move.

    Parameters
    ----------
    cost : array, shape (columns,)
    constant : float
    lower, upper : arrays
        Bounds of the columns.
    blocks : sequence of Block
    """

    cost: Array
    constant: float
    lower: Array
    upper: Array
    blocks: Sequence[Block]

    @property
    def count(self) -> int:
        """Number of points."""
        moving = [len(v) for b in self.blocks for v, still in ((b.values, 1), (b.right, 1)) if v.ndim > still]
        return max(moving, default=1)

    def structure(self) -> bytes:
        """Equal for programs that are changes of one another."""
        names = ",".join(f"{b.name}{b.right.shape[-1]}{b.equal}" for b in self.blocks).encode()
        places = [part.tobytes() for b in self.blocks for part in (b.rows, b.columns)]
        return b"|".join([names, *places, self.lower.tobytes(), self.upper.tobytes()])

    def program(self, point: int = 0, **options: Any) -> LinearProgram:
        """Return the program of one point."""
        found = LinearProgram("program of the sweep", **options)
        found.constant = self.constant
        found.add_columns("x", self.cost, lower=self.lower, upper=self.upper)
        for b in self.blocks:
            values, right = (v[point] if v.ndim > 1 else v for v in (b.values, b.right))
            matrix = sparse.coo_array((values, (b.rows, b.columns)), shape=(len(right), len(self.cost)))
            found.add_rows(b.name, {"x": matrix}, lower=right if b.equal else -np.inf, upper=right)
        return found


class Sweep:
    """Solves the points of `Programs`; those of one structure are changes of one program inside HiGHS.

    Parameters
    ----------
    deadline : Deadline, optional
        Points after it have no answer.

    Attributes
    ----------
    failed : list of str
        What HiGHS said of points that it could not answer.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline
        self._held: dict[bytes, _Warm] = {}
        self.failed: list[str] = []

    def __call__(self, programs: Programs) -> tuple[Array, Array]:
        """Objective values (points,) and solutions (points, columns), from a cold start; NaN where infeasible, or too late.

        Raises
        ------
        SolverError
            HiGHS failed, and no point has an answer.
        """
        key, count = programs.structure(), programs.count
        if key not in self._held:
            self._held[key] = _Warm(programs, self._deadline)
        warm = self._held[key]
        values, found = np.full(count, np.nan), np.full((count, len(programs.cost)), np.nan)
        for k, status in enumerate(warm.solve(programs)):
            if status is Status.OPTIMAL:
                values[k], found[k] = warm.lp.value, warm.lp.x
            elif status not in (Status.INFEASIBLE, Status.LIMIT):
                self.failed.append(warm.lp.word)
        if self.failed and np.isnan(values).all():
            said = f"HiGHS failed in {len(self.failed)} of {count} programs ({self.failed[-1]})"
            raise SolverError(said, solver="highs", status=self.failed[-1])
        return values, found


class _Warm:
    """One program inside HiGHS, and the coefficients that it holds."""

    def __init__(self, programs: Programs, deadline: Deadline | None) -> None:
        self.lp = programs.program(deadline=deadline)
        blocks = programs.blocks
        sizes = [b.right.shape[-1] for b in blocks]
        first = np.cumsum([0, *sizes])
        self._rows = np.concatenate([start + b.rows for start, b in zip(first, blocks)]).astype(np.int32)
        self._columns = np.concatenate([b.columns for b in blocks]).astype(np.int32)
        self._all = np.arange(first[-1], dtype=np.int32)
        self._equal = np.repeat([b.equal for b in blocks], sizes)
        self._now = _first(b.values for b in blocks)

    def solve(self, programs: Programs) -> Iterator[Status]:
        """Solve all points, the first from scratch."""
        lp, highs = self.lp, self.lp._highs
        blocks = programs.blocks
        lp.constant = programs.constant
        lp.change_costs("x", programs.cost)
        lp.forget_basis()
        values, right = _first(b.values for b in blocks), _first(b.right for b in blocks)
        self._change(np.flatnonzero(values != self._now), values)
        highs.changeRowsBounds(len(right), self._all, np.where(self._equal, right, -np.inf), right)
        places, moving = _moving(b.values for b in blocks)
        rows, moved = _moving(b.right for b in blocks)
        below, numbers = np.full(len(rows), -np.inf), self._all[rows]
        at = list(zip(self._rows[places].tolist(), self._columns[places].tolist()))
        for k in range(programs.count):
            if k:
                for (row, column), value in zip(at, moving[k].tolist()):
                    highs.changeCoeff(row, column, value)
                highs.changeRowsBounds(len(rows), numbers, below, moved[k])
            yield lp.run()
        values[places] = moving[-1]
        self._now = values

    def _change(self, places: Indices, values: Array) -> None:
        rows, columns = self._rows[places].tolist(), self._columns[places].tolist()
        for row, column, value in zip(rows, columns, values[places].tolist()):
            self.lp._highs.changeCoeff(row, column, value)


def _first(parts: Iterable[Array]) -> Array:
    """The numbers of the first point."""
    return np.concatenate([part[0] if part.ndim > 1 else part for part in parts])


def _moving(parts: Iterable[Array]) -> tuple[Indices, Array]:
    """Places of the numbers that differ between points, and these, shape (points, places)."""
    held, start, places, values = list(parts), 0, [np.zeros(0, dtype=np.int64)], []
    for part in held:
        if part.ndim > 1:
            own = np.flatnonzero((part != part[0]).any(axis=0))
            places.append(start + own)
            values.append(part[:, own])
        start += part.shape[-1]
    count = max((len(v) for v in values), default=1)
    return np.concatenate(places), np.hstack([np.zeros((count, 0)), *values])
