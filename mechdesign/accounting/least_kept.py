"""The least point at which a budget is kept: of a scale, a common factor or an ε, by evaluations of what is consumed."""

from __future__ import annotations

import math
from collections.abc import Callable

from mechdesign.errors import SolverError
from mechdesign.evidence.exact import safe_root
from mechdesign.solvers.deadline import Deadline, too_late


class Kept:
    """A falling function, evaluated once a point, and what is known of the least point at which it is at most 0.

    Parameters
    ----------
    over : callable
        How far a point is over the budget.
    deadline : Deadline
        Past it, where a point keeps the budget, no further one is evaluated; a second later none at all.
    """

    def __init__(self, over: Callable[[float], float], deadline: Deadline) -> None:
        self._over, self._clock, self._seen = over, deadline, dict[float, float]()

    def __call__(self, x: float) -> float:
        if x not in self._seen:
            if self._clock.passed and (
                self.ends[1] < math.inf or self._clock.elapsed > self._clock.seconds + 1
            ):
                raise too_late("root")
            self._seen[x] = self._over(x)
        return self._seen[x]

    @property
    def ends(self) -> tuple[float, float]:
        """The largest point that is over the budget, and the least that keeps it."""
        over = max((x for x, far in self._seen.items() if far > 0), default=-math.inf)
        return over, min((x for x, far in self._seen.items() if far <= 0), default=math.inf)

    def least(self, search: Callable[[], float]) -> float:
        """The point that a search finds; past the deadline the least seen to keep the budget."""
        try:
            return search()
        except SolverError:
            if not self._clock.passed or self.ends[1] == math.inf:
                raise
            return self.ends[1]


def least_kept(
    over: Callable[[float], float],
    start: float,
    *,
    step: float = 1.0,
    growth: float = 2.0,
    least: float = -math.inf,
    most: float = math.inf,
    xtol: float = 1e-13,
    rtol: float = 1e-15,
    deadline: Deadline | None = None,
) -> float:
    """Return the least point found at which a falling `over` was seen to be at most 0: a scale, its logarithm, or an ε that keeps a budget.

    Steps grow from `start` until two points are on either side of the budget; between them a root is found.

    Parameters
    ----------
    over : callable
        How far a point is over the budget; called once a point.
    start, step, growth : float
        The first point, the first step, and the factor of each step to the next.
    least, most : float
        No points outside are tried. `least` is returned where it keeps the budget, ``inf`` where `most` does not.
    xtol, rtol : float
        Of the root.
    deadline : Deadline, optional
        Past it, the least point seen to keep the budget is returned as soon as there is one; SolverError where there is none a second later.

    Examples
    --------
    >>> from mechdesign.evidence.exact import excess
    >>> round(least_kept(lambda x: excess(1 / x, 0.1), 1.0), 9), least_kept(lambda x: 1 - x, 0.0, most=0.5)
    (10.0, inf)
    """
    kept = Kept(over, Deadline.of(deadline))

    def search() -> float:
        at, width, sign = start, step, 1 if kept(start) > 0 else -1
        while math.inf in map(abs, kept.ends):
            if at == (most if sign > 0 else least):
                return math.inf if sign > 0 else least
            at, width = min(max(at + sign * width, least), most), width * growth
            kept(at)
        return safe_root(kept, *kept.ends, xtol=xtol, rtol=rtol)

    return kept.least(search)
