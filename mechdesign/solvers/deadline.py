"""Resources of a step: a time limit that is passed from step to step, one thread for linear algebra, interrupts; and progress bars."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import lru_cache
from multiprocessing import current_process
from typing import Any, TypeVar

from mechdesign.checks import instance, no_numbers
from mechdesign.errors import DesignError, MechdesignError, SolverError

T = TypeVar("T")
_LOOK = 0.1
"""Seconds between looks for an interrupt."""
_PATIENCE = 2.0
"""Seconds before a bar appears."""
_EVERY = 30.0
"""Seconds between progress lines if there is no terminal for a bar."""
_BAR: ContextVar[Any] = ContextVar("_BAR", default=None)
"""The bar on the terminal; False if none shall appear."""
_HELD: ContextVar[Deadline | None] = ContextVar("_HELD", default=None)
"""The deadline of the proof in progress."""


class Deadline:
    """The moment by which an answer is wanted; steps read from it how much time is left.

    Parameters
    ----------
    seconds : float, optional
        Seconds from now; None never passes.
    name : str
        Name of the argument in errors.

    Examples
    --------
    >>> Deadline(None).left
    inf
    """

    def __init__(self, seconds: float | None = None, name: str = "time_limit") -> None:
        try:
            self.seconds = math.inf if seconds is None else float(seconds)
        except Exception:  # whatever an object raises when it is read
            self.seconds = math.nan
        if (seconds is not None and no_numbers(seconds)) or not self.seconds > 0:
            raise DesignError.of(name, seconds, "must be a positive number of seconds")
        self._started = time.monotonic()
        self.failures: list[str] = []

    @classmethod
    def of(cls, given: Deadline | None, seconds: float | None = None) -> Deadline:
        """Return the given deadline, or a new one after `seconds` if there is none."""
        return cls(seconds) if given is None else instance("deadline", given, Deadline)

    @property
    def elapsed(self) -> float:
        """Seconds since it was set."""
        return time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.seconds - self.elapsed)

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left <= 0.0

    @property
    def late(self) -> Deadline:
        """Return the deadline for making a found answer exact and proved: a second after this one, or 5% of it."""
        if not self.finite:
            return self
        found = Deadline(self.seconds + max(1.0, 0.05 * self.seconds))
        found._started = self._started
        return found

    def limit(self, *, most: float = math.inf, least: float = 1e-3) -> float | None:
        """Return the seconds left as ``time_limit`` of a step, between ``least`` and ``most``; None if there is no limit.

        It is never 0, which some solvers read as no limit: a step that starts late stops after `least`.
        """
        seconds = max(min(most, self.left), least)
        return seconds if math.isfinite(seconds) else None

    def part(self, share: float) -> Deadline:
        """Return a share of the time left, as a deadline of its own."""
        if not self.finite:
            return self
        found = Deadline(max(share * self.left, 1e-3))
        found.failures = self.failures
        return found

    def failed(self, error: MechdesignError, instead: str) -> None:
        """Note a solver's failure and its replacement for the result's notes; a time limit is no failure."""
        if getattr(error, "status", "") != "limit":
            solver = getattr(error, "solver", "a program")
            note = f"{solver} failed ({' '.join(str(error).split())}): {instead}"
            self.failures += [note] * (note not in self.failures)

    def hold(self, what: str) -> None:
        """Raise the error of a search without an answer, `what`, if no time is left."""
        if self.passed:
            raise too_late(what)

    @property
    def finite(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self.seconds)


def too_late(what: str) -> SolverError:
    """Return the error of a search that found nothing feasible by its deadline."""
    return SolverError("nothing feasible was found within the time limit", solver=what, status="limit")


@contextmanager
def limited(deadline: Deadline) -> Iterator[None]:
    """Limit the proofs made inside by a deadline: for proofs that may be given up, as there are others or none is needed."""
    before = _HELD.set(deadline)
    try:
        yield
    finally:
        _HELD.reset(before)


def pause(what: str) -> None:
    """Raise the error of a time limit if the proof in progress is `limited` and late; loops in proofs call this at every step."""
    if (deadline := _HELD.get()) is not None:
        deadline.hold(what)


def heard(work: Callable[[], T], stop: Callable[[], None] | None = None) -> T:
    """Run a library call in a thread of its own and return its result: Python sees interrupts only between its own steps.

    On an interrupt `stop` is called and the call awaited; without `stop` it runs on, and Python waits for it at exit.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    answer, done = Future[T](), threading.Event()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)
        finally:
            done.set()

    thread = threading.Thread(target=copy_context().run, args=(run,))
    try:
        thread.start()
        while not done.wait(_LOOK):  # not thread.join: after an interrupt it takes the thread for ended
            pass
    except KeyboardInterrupt:
        if stop is not None:
            stop()
            if thread.ident is not None:  # it began
                done.wait()
        raise
    return answer.result()


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread.

    OpenBLAS spreads even 100 × 100 products over all cores and waits for its threads by spinning: if the cores have other
    work, that makes an iteration thirty times slower, and if not, it gains little at these sizes.
    """
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


@contextmanager
def progress_bar(label: str, total: int | None, *, shown: bool = True) -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal after two seconds; yield a function that advances it by one and may set its text.

    Without a terminal it prints a line on standard error at most every 30 seconds, when a step is done.

    A bar inside another one becomes a further line of it; inside one that is not `shown`, and in other threads and processes, there is none.
    """
    outer: Any = _BAR.get()
    alone = threading.current_thread() is threading.main_thread() and current_process().name == "MainProcess"
    if outer is None and shown and alone and sys.stderr is not None:
        with (
            _bar() if sys.stderr.isatty() else nullcontext(_Lines()) as bar,
            _line(bar, label, total) as step,
        ):
            yield step
    else:
        with _line(outer if shown else False, label, total) as step:
            yield step


def has_outer_bar() -> bool:
    """Whether an outer search has a bar, shown or not: that search then handles interrupts."""
    return _BAR.get() is not None


@contextmanager
def _line(bar: Any, label: str, total: int | None) -> Iterator[Callable[..., None]]:
    before = _BAR.get()
    _BAR.set(bar or False)
    task = bar.add_task(label, total=total) if bar else 0
    try:
        yield lambda news="": bar.update(task, advance=1, description=label + news) if bar else None
    finally:
        _BAR.set(before)
        if bar:
            bar.remove_task(task)


class _Lines:
    """Progress lines instead of a bar if there is no terminal."""

    def __init__(self) -> None:
        self._tasks: list[tuple[str, int, int | None]] = []
        self._began = self._said = time.monotonic()

    def add_task(self, label: str, *, total: int | None) -> int:
        self._tasks.append((label, 0, total))
        return len(self._tasks) - 1

    def update(self, task: int, *, advance: int, description: str) -> None:
        _, done, total = self._tasks[task]
        self._tasks[task] = (description, done + advance, total)
        if (now := time.monotonic()) - self._said >= _EVERY:
            self._said = now
            parts = (f"{said}: {k}{f' of {n}' if n else ''} steps" for said, k, n in self._tasks)
            print(f"{'; '.join(parts)} after {now - self._began:.0f} s", file=sys.stderr, flush=True)

    def remove_task(self, task: int) -> None:
        del self._tasks[task:]


@contextmanager
def _bar() -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    late = threading.Timer(_PATIENCE, bar.start)
    late.daemon = True
    if bar.console.is_terminal:
        late.start()
    try:
        yield bar
    finally:
        late.cancel()
        if late.ident is not None:
            late.join()  # it may just have begun
        if bar.live.is_started:
            bar.stop()
