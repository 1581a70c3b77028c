r"""Bounds for small ε from changes of several sensitivities at once.

Noise that is (ε, δ)-DP at Δ is, along m changes one after the other,

.. math:: \big(m\varepsilon,\; \delta\,(1 + e^{\varepsilon} + \dots + e^{(m-1)\varepsilon})\big)\text{-DP at } m\Delta ,

so that whatever bounds all such noise bounds it too. Where the noise is spread over very many sensitivities, little is lost:
truncated Laplace noise is the same law for all m. A lattice or a closed form that would need a step per sensitivity
needs one per m.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from mechdesign.evidence.exact import exp_lower, exp_upper
from mechdesign.evidence.rounding import round_up

if TYPE_CHECKING:
    from mechdesign.noise.optimal.question import Question

__all__ = ["MOST_GROUPED", "group_size", "grouped", "grouped_delta"]

MOST_GROUPED = 2**40


def grouped_delta(epsilon: float, delta: float, size: int) -> float:
    r"""Return δ for `size` changes, rounded up: :math:`\delta (e^{m\varepsilon} - 1)/(e^\varepsilon - 1)`.

    Examples
    --------
    >>> grouped_delta(0.5, 0.25, 1), round(grouped_delta(0.5, 0.25, 2), 12) == round(0.25 * (1 + math.exp(0.5)), 12)
    (0.25, True)
    """
    if size == 1 or delta == 0:
        return float(delta)
    e = Fraction(epsilon)
    return round_up(Fraction(delta) * (exp_upper(e * size) - 1) / (exp_lower(e) - 1))


def grouped(question: Question, size: int) -> Question:
    """The question that is asked of noise at `size` sensitivities; a power of two, which keeps ε a double."""
    q = question
    return replace(
        q,
        sensitivity=q.sensitivity * size,
        epsilon=q.epsilon * size,
        delta=grouped_delta(q.epsilon, q.delta, size),
    )


def group_size(epsilon: float, most: float, support: float = math.inf, least: float = 1.0) -> int:
    """The largest power of two m with m ε at most `most` and at least `least` groups in `support` sensitivities."""
    size = min(most / epsilon, support / least, MOST_GROUPED)
    return 1 << max(0, math.floor(math.log2(size))) if size >= 1 else 1
