"""A time limit that is handed from step to step."""

from __future__ import annotations

import math
import time

from mechdesign.errors import DesignError, SolverError

__all__ = ["Deadline", "too_late"]


class Deadline:
    """The moment by which an answer is wanted; every step asks it how much time is left.

    Parameters
    ----------
    seconds : float, optional
        From now; None never passes.

    Examples
    --------
    >>> Deadline(None).left
    inf
    """

    def __init__(self, seconds: float | None = None) -> None:
        try:
            self.seconds = math.inf if seconds is None else float(seconds)
        except (TypeError, ValueError, OverflowError):
            self.seconds = math.nan
        if isinstance(seconds, (bool, str)) or not self.seconds > 0:
            raise DesignError.of("time_limit", seconds, "must be a positive number of seconds")
        self._started = time.monotonic()

    @classmethod
    def of(cls, given: Deadline | None, seconds: float | None = None) -> Deadline:
        """Return the deadline that is given, and one of so many seconds where none is."""
        return cls(seconds) if given is None else DesignError.unless("deadline", given, Deadline)

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

    @property
    def finite(self) -> bool:
        """Whether there is a limit at all."""
        return math.isfinite(self.seconds)


def too_late(what: str) -> SolverError:
    """Return the error of a search that met nothing feasible by its deadline."""
    return SolverError("nothing feasible was found within the time limit", solver=what, status="limit")
