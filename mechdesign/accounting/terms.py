r"""What is accounted for: laws with their sensitivities and how many coordinates use them.

The worst case of a K-dimensional additive mechanism with |d_i| ≤ Δ_i is d = (Δ_1, …, Δ_K): in one dimension
(T, T + Δ) dominates every (T, T + d), |d| ≤ Δ, and dominance survives products. A `NoiseTerm` is one factor,
repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mechdesign.accounting.losses import NoiseLaw, frozen_parts, of_scipy
from mechdesign.errors import DesignError
from mechdesign.problem.checks import UP, positive, settle, whole

__all__ = ["Coordinates", "NoiseTerm", "as_terms", "in_sigmas", "is_gaussian"]

_NORMAL = {"norm": (), "gennorm": (2.0,)}
"""Shapes at which SciPy's families are normal."""

Coordinates = tuple[int, float, float, int]
"""(n, Δ, s, h): n coordinates that change by Δ, with normal noise of variance s²/h."""


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


def is_gaussian(law: Any) -> bool:
    """Normal, or that member of a family that contains it (b = 0, β = 2)."""
    dist, shapes, loc, _ = frozen_parts(law)
    ours = isinstance(dist, NoiseLaw) and getattr(dist, "name", "") in ("flipped_huber", "osgt")
    return loc == 0 and shapes == ((0.0,) if ours else _NORMAL.get(of_scipy(dist)))


def in_sigmas(term: NoiseTerm) -> Coordinates:
    """(n, Δ, s, h) of n coordinates with normal noise of variance s²/h."""
    dist, _, _, scale = frozen_parts(term.law)
    # gennorm(2) is exp(-t²), of variance 1/2
    return term.count, float(term.sensitivity), scale, 2 if dist.name == "gennorm" else 1
