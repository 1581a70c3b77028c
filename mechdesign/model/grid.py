"""A grid of points, and the linear programs of all its points in numbers, solved by changing one program inside HiGHS."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.results import audit_rows
from mechdesign.evidence.serialize import serializable
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Array, Indices, Numbers, Status, no_numbers

_USUAL = 10
"""Powers of 2 from 1 within which the costs of a program are left in their unit."""


@serializable("grid")
class Grid:
    """The Cartesian product of named axes, in the order given, the last axis fastest.

    Parameters
    ----------
    **axes : sequence of numbers
        The values of each axis.

    Examples
    --------
    >>> grid = Grid(delta=[1.0, 2.0], inner=[0.1, 0.2, 0.3])
    >>> len(grid)
    6
    >>> next(iter(grid))
    {'delta': 1.0, 'inner': 0.1}
    """

    def __init__(self, **axes: Numbers) -> None:
        if not axes:
            raise DesignError("a Grid needs at least one axis")
        self.axes: dict[str, tuple[float, ...]] = {}
        for name, values in axes.items():
            allowed = "an axis is a non-empty sequence of finite numbers"
            if no_numbers(values):
                raise DesignError.of(name, values, allowed)
            try:
                array = np.atleast_1d(np.asarray(values, dtype=float))
            except (TypeError, ValueError, OverflowError):
                raise DesignError.of(name, values, allowed) from None
            if array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
                raise DesignError.of(name, values, allowed)
            self.axes[name] = tuple(float(v) for v in array)

    def __len__(self) -> int:
        return math.prod(len(v) for v in self.axes.values())

    def __iter__(self) -> Iterator[dict[str, float]]:
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and self.axes == other.axes

    def __hash__(self) -> int:
        return hash(tuple(self.axes.items()))

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}: {len(v)} from {v[0]:g} to {v[-1]:g}" for k, v in self.axes.items())
        return f"Grid({len(self)} points; {inner})"

    def columns(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the coordinates of all points, an array for each axis, in the order of iteration."""
        mesh = np.meshgrid(*self.axes.values(), indexing="ij")
        return {name: values.ravel() for name, values in zip(self.axes, mesh)}

    def frame(self) -> pd.DataFrame:
        """Return all points as a table."""
        return pd.DataFrame(self.columns())

    def to_fields(self) -> dict[str, object]:
        return {"axes": {k: list(v) for k, v in self.axes.items()}}

    @classmethod
    def from_fields(cls, fields: object) -> Grid:
        axes = fields.get("axes") if isinstance(fields, dict) else None
        if not isinstance(axes, dict) or not all(isinstance(name, str) for name in axes):
            raise DesignError.of("fields", fields, 'must be a dict with the dict "axes"')
        return cls(**axes)


class Block(NamedTuple):
    """A family of rows ``sum(a x) <= right`` (or equal), for many points if arrays have a first axis for them.

    Parameters
    ----------
    name : str
    rows, columns : int arrays, shape (t,)
        Places of the coefficients.
    values : array, shape (t,) or (points, t)
    right : array, shape (count,) or (points, count)
    equal : bool, or an array with one for each row
    """

    name: str
    rows: Indices
    columns: Indices
    values: Array
    right: Array
    equal: Any = False

    @classmethod
    def of(cls, name: str, matrix: Any, right: Any, *, equal: bool = False) -> Block:
        """Return a family with the same coefficients at all points."""
        entries = sparse.coo_array(matrix)
        rows, columns = (place.astype(np.int64) for place in entries.coords)
        shape = (*np.shape(right)[:-1], entries.shape[0])
        return cls(name, rows, columns, entries.data, np.broadcast_to(np.asarray(right, float), shape), equal)

    @classmethod
    def below(cls, name: str, parts: list[Any]) -> Block:
        """Return rows ``sum(a x) <= 0`` of stacked matrices, with a first axis for points where they vary."""
        if sparse.issparse(parts[0]):
            return cls.of(name, sparse.vstack(parts), 0.0)
        points = max((len(part) for part in parts if part.ndim > 2), default=0)
        if points:
            parts = [np.broadcast_to(part, (points, *part.shape[-2:])) for part in parts]
        matrix = np.concatenate(parts, axis=-2)
        rows, columns = np.nonzero(matrix.any(axis=0) if points else matrix)
        return cls(name, rows, columns, matrix[..., rows, columns], np.zeros(matrix.shape[-2]))


@dataclass(frozen=True, eq=False)
class Programs:
    """The programs of all points: their common data, and the rows, some of which vary.

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
        """Return a key that is equal for programs that differ in numbers only."""
        names = ",".join(f"{b.name}{b.right.shape[-1]}{b.equal}" for b in self.blocks).encode()
        places = [part.tobytes() for b in self.blocks for part in (b.rows, b.columns)]
        return b"|".join([names, *places, self.lower.tobytes(), self.upper.tobytes()])

    def in_unit(self) -> tuple[float, Programs]:
        """Return a unit of costs, a power of 2, and the programs in it: the tolerances of HiGHS are absolute, and costs of another size are brought to about 1."""
        size = float(np.abs(self.cost).max(initial=0.0))
        if not size or abs(math.log2(size)) < _USUAL:
            return 1.0, self
        unit = 2.0 ** (math.frexp(size)[1] - 1)
        return unit, replace(self, cost=self.cost / unit, constant=self.constant / unit)

    def stacked(self) -> Block:
        """Return all rows as one family, whose numbers have a first axis for points."""
        blocks, count = self.blocks, self.count
        sizes = [b.right.shape[-1] for b in blocks]
        rows = np.concatenate([first + b.rows for first, b in zip(np.cumsum([0, *sizes]), blocks)])
        values, right = (
            np.hstack([np.broadcast_to(v, (count, v.shape[-1])) for v in side])
            for side in zip(*((b.values, b.right) for b in blocks))
        )
        equal = np.repeat([b.equal for b in blocks], sizes)
        return Block("rows", rows, np.concatenate([b.columns for b in blocks]), values, right, equal)

    def program(self, point: int = 0, **options: Any) -> LinearProgram:
        """Return the program of one point."""
        found = LinearProgram("program of the sweep", **options)
        found.constant = self.constant
        found.add_columns("x", self.cost, lower=self.lower, upper=self.upper)
        for b in self.blocks:
            values, right = (v[point] if v.ndim > 1 else v for v in (b.values, b.right))
            matrix = sparse.coo_array((values, (b.rows, b.columns)), shape=(len(right), len(self.cost)))
            found.add_rows(b.name, {"x": matrix}, lower=np.where(b.equal, right, -np.inf), upper=right)
        return found


class Sweep:
    """Solves the points of `Programs`; those of one structure are solved by changing one program inside HiGHS.

    Parameters
    ----------
    deadline : Deadline, optional
        Points after it have no answer.

    Attributes
    ----------
    failed : list of str
        HiGHS's status of points that it could not solve.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline
        self._held: dict[bytes, tuple[LinearProgram, Array]] = {}  # and its coefficients
        self.failed: list[str] = []

    def __call__(self, programs: Programs) -> tuple[Array, Array]:
        """Return objective values (points,) and solutions (points, columns), from a cold start; NaN if infeasible, or too late.

        Raises
        ------
        SolverError
            HiGHS failed, and no point has an answer.
        """
        key, count = programs.structure(), programs.count
        unit, scaled = programs.in_unit()
        rows = scaled.stacked()
        if key not in self._held:
            lp = replace(scaled, blocks=[rows]).program(deadline=self._deadline)
            self._held[key] = lp, rows.values[0]
        lp, now = self._held[key]
        lp.constant = scaled.constant
        lp.change_costs("x", scaled.cost)
        lp.forget_basis()
        values, found = np.full(count, np.nan), np.full((count, len(programs.cost)), np.nan)
        lower = np.where(rows.equal, rows.right, -np.inf)
        sides = np.arange(len(rows.equal), dtype=np.int32)
        for k, coefficients in enumerate(rows.values):
            for i in np.flatnonzero(coefficients != now).tolist():
                lp.highs.changeCoeff(rows.rows[i], rows.columns[i], coefficients[i])
            lp.highs.changeRowsBounds(len(sides), sides, lower[k], rows.right[k])
            now = coefficients
            status = lp.run()
            if status is Status.OPTIMAL:
                values[k], found[k] = unit * lp.value, lp.x
            elif status not in (Status.INFEASIBLE, Status.LIMIT):
                self.failed.append(lp.word)
        self._held[key] = lp, now
        if self.failed and np.isnan(values).all():
            said = f"HiGHS failed in {len(self.failed)} of {count} programs ({self.failed[-1]})"
            raise SolverError(said, solver="highs", status=self.failed[-1])
        return values, found


def audited(families: Iterable[tuple[str, Any, Array, Array, Any]]) -> pd.DataFrame:
    """Return rows of a program in the form of an audit, from each family's name, labels, both sides, and multipliers.

    Both sides are sums of doubles: differences within their rounding count as 0.
    """
    parts = []
    for name, labels, lhs, rhs, dual in families:
        slack = rhs - lhs
        slack = np.where(np.abs(slack) <= 8 * np.finfo(float).eps * (np.abs(lhs) + np.abs(rhs)), 0.0, slack)
        parts.append(audit_rows(name, labels, lhs, rhs, slack, dual=dual))
    return pd.concat(parts, ignore_index=True)
