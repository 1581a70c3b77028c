"""Search over what is not convex: a grid of points, each a problem, solved from the last one's basis; and the best, certified."""

from __future__ import annotations

import inspect
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from mechdesign.errors import DesignError, InfeasibleError, SolverError, instance
from mechdesign.evidence.results import Result
from mechdesign.model.problem import Problem
from mechdesign.problem.checks import one_of
from mechdesign.runs.grid import Grid
from mechdesign.runs.parallel import Store, run_chunks
from mechdesign.solvers.deadline import Deadline, progress_bar, too_late
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
        lp, highs = self.lp, self.lp.highs
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
            self.lp.highs.changeCoeff(row, column, value)


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


Row = list[float | None]
"""What the points of a sweep are compared by; None where infeasible."""
_BATCH = 22  # problems that are stated together: in turn with HiGHS, each finds the processor's caches emptied, and takes 1.5 times as long


def swept(
    task: Sweeping,
    points: Sequence[Any],
    *,
    what: str,
    definition: Mapping[str, Any],
    store: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    backend: str = "loky",
    bar: bool = True,
    deadline: Deadline | None = None,
    together: bool = True,
) -> list[Row]:
    """Apply `task` to all points, in parallel and into a store that survives a kill; rows of those reached by the deadline.

    Parameters
    ----------
    task : Sweeping
    points : sequence
    what : str
        Of the progress bar.
    definition : mapping
        What the store is bound to.
    together : bool
        Whether many points are one step: of linear programs, each a fraction of a millisecond.
    """
    size = _BATCH if together else 1
    batches = [points[k : k + size] for k in range(0, len(points), size)]
    kept = None if store is None else Store(store, definition)
    steps = progress_bar(what, len(batches), shown=one_of("bar", bar, (True, False)))
    with nullcontext() if kept is None else closing(kept), steps as step:
        found = run_chunks(
            task, batches, store=kept, jobs=jobs, backend=backend, step=step, deadline=deadline
        )
        return list(itertools.chain(*found))


def search(
    build: Callable[..., Any] | Problem,
    grid: Grid,
    *,
    solver: str | None = None,
    store: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    backend: str = "loky",
    bar: bool = True,
    time_limit: float | None = None,
    **options: Any,
) -> Result:
    """Solve a problem at every point of a grid, and return the result of the best, certified, with a table of all.

    Parameters
    ----------
    build : function or Problem
        From a point of the grid to its problem, by keywords; None where the point has none. Axes that it does not take are names of the problem's
        CVXPY parameters, each a number: of a selection the problems of all their values are changes of one compiled program.
    grid : Grid
    solver, **options
        Of the last solve, at the best point.
    store : path, optional
        Finished points of what `build` takes are kept there; a killed search continues. It is bound to the name of `build`, the grid, and
        what the first problem prints.
    jobs, backend
        joblib's worker count and backend ("loky", "threading", "dask", "ray").
    bar : bool
        Whether a progress bar is shown, where there is a terminal.
    time_limit : float, optional
        Seconds, after which the best point so far is solved.

    Raises
    ------
    InfeasibleError
        No point has an answer, and the first is proved to have none.

    Examples
    --------
    >>> import cvxpy as cp, mechdesign as md
    >>> P = md.Table([-1, 0, 1], [-2, 0, 2])
    >>> cap = cp.Parameter(name="cap")
    >>> problem = md.Problem(md.Minimize(P.expected()), [P.private(md.PureDP(1.0)), P[:, 1] <= cap])
    >>> md.search(problem, md.Grid(cap=[0.2, 0.4])).table[["cap", "value"]].round(6)
       cap     value
    0  0.4  1.281820
    1  0.2  1.486871
    """
    instance("grid", grid, Grid)
    if not callable(build) and not isinstance(build, Problem):
        raise DesignError.of(
            "build", build, "must be a Problem, or a function from a point of the grid to one"
        )
    made: Callable[..., Any] = (lambda: build) if isinstance(build, Problem) else build
    clock = Deadline(time_limit)
    taken = inspect.signature(made).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    own = [name for name in grid.axes if free or name in taken]
    rest = [name for name in grid.axes if name not in own]
    points = [dict(zip(own, v)) for v in itertools.product(*(grid.axes[name] for name in own))]
    if rest and backend == "threading":
        raise DesignError.of(
            "backend", backend, "shares parameters among points; let build take all axes, or use loky"
        )
    first = made(**points[0])
    task = Sweeping(lambda point: made(**point), {name: grid.axes[name] for name in rest})
    definition: dict[str, Any] = {"build": getattr(made, "__qualname__", ""), "axes": grid.axes}
    if store is not None and first is not None:
        set_parameters(first, {name: grid.axes[name][0] for name in rest})
        definition["first"] = str(first)
    rows = swept(
        task, points, what="points", definition=definition, store=store, jobs=jobs, backend=backend, bar=bar,
        deadline=clock, together=hasattr(first, "points"),
    )  # fmt: skip
    places = list(itertools.product(*(grid.axes[name] for name in rest)))
    if not rest:  # the best of what a problem searches itself
        rows = [[min((value for value in row if value is not None), default=None)] for row in rows]
    tried = [(*p.values(), *at, value) for p, row in zip(points, rows) for at, value in zip(places, row)]
    table = pd.DataFrame(tried, columns=[*own, *rest, "value"]).astype({"value": float})
    if table["value"].isna().all():
        if clock.passed:
            raise too_late("search")
        if first is None:
            raise DesignError.of("build", made, "finds no problem at the points of the grid: widen it")
    best = table.loc[table["value"].fillna(math.inf).idxmin()]
    problem = made(**{name: float(best[name]) for name in own})
    set_parameters(problem, {name: float(best[name]) for name in rest})
    found: Result = problem.solve(solver, **options)
    return replace(found, table=table.sort_values("value", kind="stable", ignore_index=True))


class Sweeping:
    """Solve the programs of some points, all stated before any is solved; holds one program inside HiGHS for each structure.

    Parameters
    ----------
    build : callable
        From a point to its problem, or None.
    axes : mapping of str to numbers
        Values of the problems' parameters; a row holds what all of their combinations are compared by.
    judge : bool
        Whether what a program finds is judged by the problem; by the program's own objective if not.
    """

    def __init__(
        self, build: Callable[[Any], Any], axes: Mapping[str, Sequence[float]], *, judge: bool = True
    ) -> None:
        self._build, self._axes, self._judge, self._sweep = build, axes, judge, Sweep()
        self._places = np.array(list(itertools.product(*axes.values())), dtype=float)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sweep": Sweep()}  # workers make their own

    def __call__(self, points: Sequence[Any]) -> list[Row]:
        problems: list[Any] = [instance("build", self._build(point), Problem, NoneType) for point in points]
        values = dict(zip(self._axes, self._places.T))
        stated = [one.points(values) if hasattr(one, "points") else None for one in problems]
        return [self._row(problem, held) for problem, held in zip(problems, stated)]

    def _row(self, problem: Any, stated: tuple[Programs, Callable[..., Array]] | None) -> Row:
        if problem is None or stated is None:
            return [problem and self._solved(problem, place) for place in self._places.tolist()]
        programs, judged = stated
        values, found = self._sweep(programs)
        compared = judged(values, found) if self._judge else values
        return [None if np.isnan(value) else value for value in compared.tolist()]

    def _solved(self, problem: Any, place: list[float]) -> float | None:
        """The value at one point of the parameters, solved by itself; None where infeasible."""
        set_parameters(problem, dict(zip(self._axes, place)))
        try:
            value: float = problem.solve(certify=False, progress=False).value
        except InfeasibleError:
            return None
        return value


def parameters_of(problem: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The problem's CVXPY parameters of these names."""
    held = {p.name(): p for p in getattr(problem, "parameters", ())}
    for name in names:
        if name not in held or held[name].size != 1:
            allowed = f"must be an argument of build, or a number among the problem's parameters ({', '.join(held) or 'none'})"
            raise DesignError.of("axis", name, allowed)
    return {name: held[name] for name in names}


def set_parameters(problem: Any, values: Mapping[str, float]) -> None:
    """Give the problem's parameters of these names their values."""
    for name, parameter in parameters_of(problem, values).items():
        parameter.value = values[name]
