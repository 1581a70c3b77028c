"""A grid of points, and its chunks run in parallel into a store.

joblib's own backends reach beyond one machine. Dask: start a
``distributed.Client`` and pass ``backend="dask"``. Ray: connect with ``ray.init(...)`` and pass ``backend="ray"``.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from numbers import Integral
from typing import Any, TypeVar

import joblib
import numpy as np
import pandas as pd
from joblib import parallel

from mechdesign.checks import doubles, one_of, refuse
from mechdesign.errors import DesignError, MissingExtra, ResultFormatError
from mechdesign.evidence.files import lasting, lock
from mechdesign.evidence.serialize import register_kind
from mechdesign.solvers.deadline import Deadline, progress_bar
from mechdesign.typing import Numbers


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
        DesignError.when(not axes, "a Grid needs at least one axis")
        self.axes: dict[str, tuple[float, ...]] = {}
        for name, values in axes.items():
            allowed = "an axis is a non-empty sequence of finite numbers"
            found = np.atleast_1d(doubles(name, values, allowed))
            refuse(found.ndim != 1 or not found.size or not np.isfinite(found).all(), name, values, allowed)
            self.axes[name] = tuple(found.tolist())

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

    def frame(self) -> pd.DataFrame:
        """Return all points as a table."""
        return pd.DataFrame(list(self))

    def to_fields(self) -> dict[str, object]:
        return {"axes": {k: list(v) for k, v in self.axes.items()}}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Grid:
        return cls(**fields["axes"])


register_kind("grid", Grid)


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
        Worker processes; −1 for one per core.
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
        raise DesignError.of("jobs", jobs, "must be a number of workers, or -1 for one per core")
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
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
        self._header = (
            json.dumps({"store": 2, "definition": hashlib.sha256(text.encode()).hexdigest()}) + "\n"
        )
        self.chunks: list[object] = []
        try:
            self.path = lasting(path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        except OSError as error:
            remedy = f"cannot be written ({error.strerror}): give the path of a file, such as search.jsonl"
            raise DesignError.of("store", str(path), remedy) from None
        try:
            lock(self._file, wait=False)
        except OSError:
            self._file.close()
            said = f"{self.path}: another run is writing this store; wait for it or use another file"
            raise DesignError(said) from None
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
        allowed = f"{self.path}: holds another search (or is not a store); use another file or delete it"
        ResultFormatError.when(not lines or lines[0] + b"\n" != header, allowed)
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
