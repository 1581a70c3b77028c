r"""What is accounted for: laws with their sensitivities and how many coordinates use them.

The worst case of a K-dimensional additive mechanism with |d_i| ≤ Δ_i is d = (Δ_1, …, Δ_K): in one dimension
(T, T + Δ) dominates every (T, T + d), |d| ≤ Δ, and dominance survives products. A `NoiseTerm` is one factor,
repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mechdesign.errors import DesignError
from mechdesign.problem.checks import UP, positive, settle, whole

__all__ = ["NoiseTerm", "as_terms"]


@dataclass(frozen=True)
class NoiseTerm:
    """Independent noise from one law on `count` coordinates.

    Parameters
    ----------
    law : frozen scipy.stats distribution
    sensitivity : float
        Δ > 0 of each of these coordinates.
    count : int
        How many coordinates (or rounds) use it.

    Examples
    --------
    >>> from scipy import stats
    >>> NoiseTerm(stats.laplace(scale=2.0), 1.0, 20).count
    20
    """

    law: Any
    sensitivity: float
    count: int = 1

    def __post_init__(self) -> None:
        settle(
            self,
            sensitivity=positive("sensitivity", self.sensitivity, side=UP),
            count=whole("count", self.count, 1),
        )


def as_terms(terms: Any) -> tuple[NoiseTerm, ...]:
    """Accept one term, something with ``noise_terms()``, or an iterable of either."""
    if isinstance(terms, NoiseTerm):
        return (terms,)
    if hasattr(terms, "noise_terms"):
        return tuple(terms.noise_terms())
    if isinstance(terms, Iterable) and not isinstance(terms, (str, bytes)):
        out = tuple(term for item in terms for term in as_terms(item))
        if out:
            return out
    raise DesignError.of("terms", terms, "must be NoiseTerm values or additive mechanisms, at least one")
