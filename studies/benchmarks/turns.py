"""Times that can be set against one another: the calls take turns, so that what else the machine does slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Ratio", "medians"]


@dataclass(frozen=True)
class Ratio:
    """What a benchmark's `main` returns for each of its bars: a measured ratio, and how large it may or must be."""

    name: str
    value: float
    bar: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the bar is met."""
        return self.value >= self.bar if self.at_least else self.value <= self.bar


def medians(
    *calls: Callable[[], object], rounds: int, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Median seconds of each call, of processor time where no other clock is given."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, spent in zip(calls, times):
            started = clock()
            call()
            spent.append(clock() - started)
    return [statistics.median(spent) for spent in times]
