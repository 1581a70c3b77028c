"""The least ε at which independent noise is certified, for a δ that is given."""

from __future__ import annotations

import math
from typing import Any

from mechdesign.accounting.arguments import excess, inside
from mechdesign.accounting.interval import SMALLEST_DELTA, delta_interval
from mechdesign.accounting.terms import as_terms
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.rounding import safe_root
from mechdesign.solvers.deadline import Deadline, too_late

__all__ = ["epsilon_bound"]


def epsilon_bound(
    terms: Any,
    delta: float,
    *,
    width: float = 0.01,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    time_limit: float | None = None,
) -> float:
    r"""Return an ε, rounded up, at which the composition is certified (ε, δ)-DP.

    Parameters
    ----------
    terms, width, rounds, sampling_rate
        As in `delta_interval`.
    delta : float
        δ in (0, 1).
    time_limit : float, optional
        Seconds after which the least ε seen to do is returned.

    Returns
    -------
    float
        The least ε whose upper bound on δ is at most `delta`, to a relative 1e-9; ``inf`` when δ(ε) never
        falls that far.

    Raises
    ------
    DesignError
        δ outside (0, 1), or below what double precision can certify.
    SolverError
        No ε was seen to do within the time limit.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.accounting.terms import NoiseTerm
    >>> round(epsilon_bound(NoiseTerm(stats.norm(scale=168.802**0.5), 1.0), 1e-6), 4)
    0.3
    """
    delta = inside("delta", delta, 0, 1)
    if delta < SMALLEST_DELTA:
        raise DesignError.of("delta", delta, f"double precision certifies no delta below {SMALLEST_DELTA}")
    terms, deadline = as_terms(terms), Deadline(time_limit)
    least = math.inf

    def over(epsilon: float) -> float:
        nonlocal least
        if deadline.passed:
            raise too_late("accounting")
        options: dict[str, Any] = {"width": width, "rounds": rounds, "sampling_rate": sampling_rate}
        found = excess(delta_interval(terms, epsilon, deadline=deadline, **options).upper, delta)
        least = min(least, epsilon) if found <= 0 else least
        return found

    low, high = 0.0, 1.0
    try:
        if over(0.0) <= 0:
            return 0.0
        while over(high) > 0:
            low, high = high, 2 * high
            if high > 1e6:
                return math.inf
        return safe_root(over, low, high, xtol=1e-12, rtol=1e-11)
    except SolverError:
        if not deadline.passed or math.isinf(least):
            raise
        return least
