"""What a step may take: a time limit that is handed from step to step, and one thread for its linear algebra."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from mechdesign.errors import DesignError, SolverError, instance
from mechdesign.typing import no_numbers


class Deadline:
    """The moment by which an answer is wanted; every step asks it how much time is left.

    Parameters
    ----------
    seconds : float, optional
        From now; None never passes.
    name : str
        What the argument is called.

    Examples
    --------
    >>> Deadline(None).left
    inf
    """

    def __init__(self, seconds: float | None = None, name: str = "time_limit") -> None:
        try:
            self.seconds = math.inf if seconds is None else float(seconds)
        except (TypeError, ValueError, OverflowError):
            self.seconds = math.nan
        if no_numbers(seconds) or not self.seconds > 0:
            raise DesignError.of(name, seconds, "must be a positive number of seconds")
        self._started = time.monotonic()

    @classmethod
    def of(cls, given: Deadline | None, seconds: float | None = None) -> Deadline:
        """Return the deadline that is given, and one of so many seconds where none is."""
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
        """Whether it is over."""
        return self.left <= 0.0

    def limit(self, *, most: float = math.inf, least: float = 1e-3) -> float | None:
        """Seconds left as the ``time_limit`` of a step, within ``least`` and ``most``; None where nothing limits it.

        Never 0, which is no limit: a step that starts late finds out by its own clock.
        """
        seconds = max(min(most, self.left), least)
        return seconds if math.isfinite(seconds) else None

    def part(self, share: float) -> Deadline:
        """A share of what is left, as a deadline of its own."""
        return Deadline(max(share * self.left, 1e-3)) if self.finite else self

    def hold(self, what: str) -> None:
        """Raise the error of what found nothing in time, once it is over."""
        if self.passed:
            raise too_late(what)

    @property
    def finite(self) -> bool:
        """Whether there is a limit at all."""
        return math.isfinite(self.seconds)


def too_late(what: str) -> SolverError:
    """Return the error of a search that met nothing feasible by its deadline."""
    return SolverError("nothing feasible was found within the time limit", solver=what, status="limit")


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread.

    OpenBLAS spreads even 100 × 100 products over all cores and waits for its threads by spinning: when the cores have other
    work that makes an iteration thirty times slower, and when they do not it gains little at these sizes.
    """
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited
