"""A grid of points, the linear programs of all its points in numbers, and its chunks run in parallel into a store.

Programs of one structure are solved by changing one program inside HiGHS. joblib's own backends reach beyond one machine. Dask: start a
``distributed.Client`` and pass ``backend="dask"``. Ray: connect with ``ray.init(...)`` and pass ``backend="ray"``.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import parallel
from scipy import sparse

from mechdesign.checks import no_numbers, one_of
from mechdesign.errors import DesignError, MissingExtra, ResultFormatError, SolverError
from mechdesign.evidence.files import file_path, lock
from mechdesign.evidence.results import audit_rows
from mechdesign.evidence.serialize import serializable
from mechdesign.solvers.deadline import Deadline, progress_bar
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Array, Indices, Numbers, Status

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


# -- in parallel ----------------------------------------------------------------------------------------------------

C = TypeVar("C")
R = TypeVar("R")
_MOST = 1 << 15  # workers
_BATCH = 22  # problems stated together: alternating with HiGHS empties the processor's caches, and takes 1.5 times as long


def swept(
    task: Callable[[Sequence[C]], list[R]],
    points: Sequence[C],
    *,
    what: str,
    definition: Mapping[str, Any],
    store: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    backend: str = "loky",
    bar: bool = True,
    deadline: Deadline | None = None,
    together: bool = True,
) -> list[R]:
    """Apply `task` to all points, in parallel and into a store that survives a kill; return rows of points reached by the deadline.

    Parameters
    ----------
    task : callable
        Must depend on its points only, so that a resumed run gives the results of an uninterrupted one.
    points : sequence
    what : str
        Title of the progress bar.
    definition : mapping
        Definition that the store is bound to.
    store : path, optional
        Its points are not computed again; new ones are appended as they finish.
    jobs : int
        Worker processes; −1 for one a core.
    backend : str
        joblib's: "loky", "threading", "dask", "ray", …
    deadline : Deadline, optional
        Points that are not finished by then are omitted.
    together : bool
        Whether many points form one step, as linear programs of a fraction of a millisecond do.

    Raises
    ------
    DesignError, MissingExtra
        As of `applied`.
    KeyboardInterrupt
        Finished points are in the store; running again continues.
    """
    size = _BATCH if together else 1
    chunks = [points[k : k + size] for k in range(0, len(points), size)]
    kept = nullcontext() if store is None else closing(Store(store, definition))
    steps = progress_bar(what, len(chunks), shown=one_of("bar", bar, (True, False)))
    with kept as held, steps as step:
        done: list[Any] = [] if held is None else list(held.chunks)
        if len(done) > len(chunks):
            raise DesignError(f"the store holds {len(done)} chunks, the search has {len(chunks)}")
        for _ in done:
            step()
        for rows in applied(task, chunks[len(done) :], jobs=jobs, backend=backend):
            if held is not None:
                held.append(rows)
            done.append(rows)
            step()
            if deadline is not None and deadline.passed:
                break
        return list(itertools.chain(*done))


def _available(backend: str) -> None:
    """Register a backend of another library with joblib, or raise the error that names its missing extra or client."""
    try:
        if backend == "dask":
            import distributed

            distributed.get_client()
        elif backend == "ray" and backend not in parallel.BACKENDS:
            from ray.util.joblib import register_ray

            register_ray()
    except ImportError:
        raise MissingExtra.of(backend, f"backend={backend!r}") from None
    except ValueError:  # Dask has no client
        remedy = "needs a client: from distributed import Client, and with Client(...): around the search"
        raise DesignError.of("backend", backend, remedy) from None


def applied(
    task: Callable[[C], R], chunks: Sequence[C], *, jobs: int = 1, backend: str = "loky"
) -> Iterator[R]:
    """Yield the task's result of every chunk, in order.

    Raises
    ------
    DesignError
        Not a number of workers, or a backend that joblib does not know.
    MissingExtra
        Dask or Ray is asked for and not installed.
    """
    if not isinstance(jobs, Integral) or isinstance(jobs, bool) or not 1 <= abs(jobs) <= _MOST:
        raise DesignError.of("jobs", jobs, "must be a number of workers, or -1 for one a core")
    known = {*parallel.BACKENDS, *parallel.EXTERNAL_BACKENDS, *parallel.MAYBE_AVAILABLE_BACKENDS, "ray"}
    if not isinstance(backend, str) or backend not in known:
        raise DesignError.of("backend", backend, f"must be one of joblib's, {', '.join(sorted(known))}")
    _available(backend)
    if jobs == 1 and backend == "loky":
        yield from map(task, chunks)
        return
    # A generator hands results on as they come, in order; backends that cannot (Dask, Ray) work in batches.
    if backend in ("loky", "threading"):
        yield from joblib.Parallel(n_jobs=jobs, backend=backend, return_as="generator")(
            joblib.delayed(copy.copy(task))(c)
            for c in chunks  # threads must not share a task's state
        )
        return
    with joblib.parallel_config(backend=backend):
        workers = joblib.Parallel(n_jobs=jobs)
        size = max(1, 8 * joblib.effective_n_jobs(jobs))
        for start in range(0, len(chunks), size):
            yield from workers(joblib.delayed(task)(c) for c in chunks[start : start + size])


class Store:
    """Finished chunks of one search, in a JSON-lines file: a killed run continues where it was.

    One line a chunk, in order, flushed to the disk before the next begins. A line cut off by a kill is dropped at the next
    start, so the file always holds a prefix of an uninterrupted run's file, up to the last digits of doubles. A store is
    locked by its run, and a file that is no store is not changed.

    Parameters
    ----------
    path : path
        Created if missing.
    definition : JSON-able
        Definition of the search; a file written for another definition is refused.

    Attributes
    ----------
    chunks : list
        Results of the finished chunks 0, 1, ….
    """

    def __init__(self, path: str | os.PathLike[str], definition: object) -> None:
        self.path = file_path(path)
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
        self._header = (
            json.dumps({"store": 2, "definition": hashlib.sha256(text.encode()).hexdigest()}) + "\n"
        )
        self.chunks: list[object] = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        except OSError as error:
            remedy = f"cannot be written ({error.strerror}): give the path of a file, such as search.jsonl"
            raise DesignError.of("store", str(self.path), remedy) from None
        try:
            lock(self._file, wait=False)
        except OSError:
            self._file.close()
            raise DesignError(
                f"{self.path}: another run is writing this store; wait for it or use another file"
            ) from None
        try:
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def _recover(self) -> None:
        self._file.seek(0)
        data, header = self._file.read(), self._header.encode()
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if not lines and header.startswith(data):  # new, or killed in its first line
            self._file.truncate(0)
            self._write(header)
            return
        if not lines or lines[0] + b"\n" != header:
            raise ResultFormatError(
                f"{self.path}: holds another search (or is not a store); use another file or delete it"
            )
        for number, line in enumerate(lines[1:]):
            try:
                record = json.loads(line)
                if record["chunk"] != number:
                    raise ValueError(f"chunk {record['chunk']} where {number} should be")
            except (ValueError, KeyError, TypeError) as error:
                raise ResultFormatError(f"{self.path}: line {number + 2} is damaged ({error})") from None
            self.chunks.append(record["rows"])
        if len(whole) < len(data):
            self._file.truncate(len(whole))

    def append(self, rows: object) -> None:
        """Add the next chunk, and make sure that it is on the disk."""
        line = json.dumps({"chunk": len(self.chunks), "rows": rows}, separators=(",", ":")) + "\n"
        self._write(line.encode())
        self.chunks.append(rows)

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Release the file for other runs."""
        self._file.close()
