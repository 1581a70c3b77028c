"""The least point at which a budget is kept: of a scale, a common factor or an ε, by evaluations of what is consumed."""

from __future__ import annotations

import math
from collections.abc import Callable

from mechdesign.errors import SolverError
from mechdesign.evidence.exact import safe_root
from mechdesign.solvers.deadline import Deadline, too_late


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
        Past it, the least point seen to keep the budget is returned as soon as there is one.

    Examples
    --------
    >>> from mechdesign.evidence.exact import excess
    >>> round(least_kept(lambda x: excess(1 / x, 0.1), 1.0), 9), least_kept(lambda x: 1 - x, 0.0, most=0.5)
    (10.0, inf)
    """
    seen: dict[float, float] = {}
    clock = Deadline.of(deadline)

    def left(x: float) -> float:
        if x not in seen:
            if clock.passed and min(seen.values(), default=1.0) <= 0:
                raise too_late("root")
            seen[x] = over(x)
        return seen[x]

    def ends() -> tuple[float, float]:
        """The largest point that is over the budget, and the least that keeps it."""
        beyond = max((x for x, far in seen.items() if far > 0), default=-math.inf)
        return beyond, min((x for x, far in seen.items() if far <= 0), default=math.inf)

    try:
        at, sign = start, 1 if left(start) > 0 else -1
        while math.inf in map(abs, ends()):
            if at == (most if sign > 0 else least):
                return math.inf if sign > 0 else least
            at, step = min(max(at + sign * step, least), most), step * growth
            left(at)
        return safe_root(left, *ends(), xtol=xtol, rtol=rtol)
    except SolverError:
        if not clock.passed or ends()[1] == math.inf:
            raise
        return ends()[1]
