"""Run the chunks of a search: in parallel by joblib, in order, resumable, with progress.

joblib's own backends are the way past one machine. Dask: start a ``distributed.Client`` and pass
``backend="dask"``. Ray: connect with ``ray.init(...)`` and pass ``backend="ray"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any

import joblib
from joblib import parallel

from mechdesign.errors import DesignError, MissingExtra
from mechdesign.runs.store import Store
from mechdesign.solvers.deadline import Deadline

__all__ = ["run_chunks"]

_MOST = 1 << 15  # workers


def run_chunks(
    task: Callable[[Any], Any],
    chunks: Sequence[Any],
    *,
    store: Store | None = None,
    jobs: int = 1,
    backend: str = "loky",
    step: Callable[[], None] = lambda: None,
    deadline: Deadline | None = None,
) -> list[Any]:
    """Apply `task` to every chunk and return the results in order.

    Parameters
    ----------
    task : callable
        Must depend on its chunk only, so that a resumed run gives what an uninterrupted one gives.
    store : Store, optional
        Chunks it holds are not computed again; new ones are appended as they finish.
    jobs : int
        Worker processes; −1 for one a core.
    backend : str
        joblib's: "loky", "threading", "dask", "ray", …
    step : callable
        Called once a finished chunk (a progress bar).
    deadline : Deadline, optional
        Chunks that are not finished by then are left out.

    Raises
    ------
    DesignError
        Not a number of workers, or a backend that joblib does not know.
    MissingExtra
        Dask or Ray is asked for and not installed.
    KeyboardInterrupt
        Finished chunks are in the store; running again continues.
    """
    if not isinstance(jobs, Integral) or isinstance(jobs, bool) or not 1 <= abs(jobs) <= _MOST:
        raise DesignError.of("jobs", jobs, "must be a number of workers, or -1 for one a core")
    known = {*parallel.BACKENDS, *parallel.EXTERNAL_BACKENDS, *parallel.MAYBE_AVAILABLE_BACKENDS, "ray"}
    if not isinstance(backend, str) or backend not in known:
        raise DesignError.of("backend", backend, f"must be one of joblib's, {', '.join(sorted(known))}")
    _available(backend)
    done = list(store.chunks) if store is not None else []
    if len(done) > len(chunks):
        raise DesignError(f"the store holds {len(done)} chunks, the search has {len(chunks)}")
    for _ in done:
        step()
    for rows in _results(task, chunks[len(done) :], jobs, backend):
        if store is not None:
            store.append(rows)
        done.append(rows)
        step()
        if deadline is not None and deadline.passed:
            break
    return done


def _available(backend: str) -> None:
    """Register a backend of another library with joblib, or name the extra that brings that library."""
    try:
        if backend == "dask":
            import distributed  # noqa: F401
        elif backend == "ray" and backend not in parallel.BACKENDS:
            from ray.util.joblib import register_ray

            register_ray()
    except ImportError:
        raise MissingExtra.of(backend, f"backend={backend!r}") from None


def _results(task: Callable[[Any], Any], chunks: Sequence[Any], jobs: int, backend: str) -> Iterator[Any]:
    if jobs == 1 and backend == "loky":
        yield from map(task, chunks)
        return
    # A generator hands results on as they come, in order; backends that cannot (Dask, Ray) work in batches.
    if backend in ("loky", "threading"):
        yield from joblib.Parallel(n_jobs=jobs, backend=backend, return_as="generator")(
            joblib.delayed(task)(c) for c in chunks
        )
        return
    with joblib.parallel_config(backend=backend):
        workers = joblib.Parallel(n_jobs=jobs)
        size = max(1, 8 * joblib.effective_n_jobs(jobs))
        for start in range(0, len(chunks), size):
            yield from workers(joblib.delayed(task)(c) for c in chunks[start : start + size])
