r"""The worst change of an answer for a given law, when its sensitivity is stated by several bounds.

`Sensitivity` knows the geometry; which vector a law loses most at depends on the law:

- Gaussian noise: any vector of the largest ℓ₂ norm, on one coordinate. Exact.
- A symmetric log-concave law: the envelope of the set, or shifts packed on fewer coordinates; each is an upper bound, so
  the best of them is one. Exact where that vector is in the set, and under pure privacy always (the largest loss is
  linear in a shift, so that all of ℓ₁ may stand on one coordinate).
- Integer noise on whole answers: the same, shifts rounded down to whole ones.
- A staircase loses at any shift at most what it does at its own step: the largest change on every coordinate that changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mechdesign.accounting.enclosure import largest_loss
from mechdesign.accounting.interval import DeltaInterval, delta_interval
from mechdesign.accounting.losses import AtomicLoss, loss_of
from mechdesign.accounting.profile import profile_epsilon
from mechdesign.accounting.terms import NoiseTerm, is_gaussian
from mechdesign.errors import DesignError
from mechdesign.evidence.rounding import round_up
from mechdesign.problem.sensitivity import Sensitivity, Shifts

__all__ = ["Terms", "WorstCases", "amplified", "worst_cases"]

Terms = tuple[NoiseTerm, ...]


@dataclass(frozen=True)
class WorstCases:
    """What a law must be private for.

    Attributes
    ----------
    law : frozen scipy.stats distribution
    alternatives : tuple of tuple of NoiseTerm
        Each loses at least as much as every change that the sensitivity allows; the first is the tightest known.
    exact : bool
        Whether the first is itself such a change.
    attained : tuple of tuple of NoiseTerm
        Changes the sensitivity allows: δ is at least theirs.
    """

    law: Any
    alternatives: tuple[Terms, ...]
    exact: bool
    attained: tuple[Terms, ...] = ()

    @property
    def single(self) -> float | None:
        """The shift, where one coordinate is all there is."""
        first = self.alternatives[0]
        lone = len(self.alternatives) == 1 and len(first) == 1 and first[0].count == 1
        return first[0].sensitivity if lone else None

    def delta_interval(self, epsilon: float, **options: Any) -> DeltaInterval:
        """Enclose the worst δ(ε)."""
        found = [delta_interval(terms, epsilon, **options) for terms in self.alternatives]
        upper = min(found, key=lambda interval: interval.upper)
        if self.exact and len(found) == 1:
            return upper
        below = [delta_interval(terms, epsilon, **options).lower for terms in self.attained]
        return DeltaInterval(min(max([*below, 0.0]), upper.upper), upper.upper, upper.how)

    @property
    def loss_is_closed(self) -> bool:
        """Whether a closed form says the largest loss."""
        return all(largest_loss(self.law, t.sensitivity) is not None for t in self.alternatives[0])

    def largest_loss(self) -> float:
        """The largest privacy loss, rounded up; inf where there is none."""
        return min(_summed(self.law, terms) for terms in self.alternatives)


def _summed(law: Any, terms: Terms) -> float:
    losses = [(t.count, profile_epsilon(law, t.sensitivity, 0.0)) for t in terms]
    if any(math.isinf(loss) for _, loss in losses):
        return math.inf
    return round_up(sum(count * Fraction(loss) for count, loss in losses))


def worst_cases(law: Any, sensitivity: float | Sensitivity, dimension: int) -> WorstCases:
    """Return what `law`, independent on every coordinate, must be private for.

    Raises
    ------
    DesignError
        Bounds for another number of coordinates; integer noise for changes that are no whole numbers.

    Examples
    --------
    >>> from scipy import stats
    >>> cases = worst_cases(stats.norm(), Sensitivity(linf=1, changed=4), 20)
    >>> round(cases.single, 12), cases.exact
    (2.0, True)
    """
    if not isinstance(sensitivity, Sensitivity):
        return WorstCases(law, ((NoiseTerm(law, sensitivity, dimension),),), exact=True)
    s, discrete = sensitivity, not hasattr(law.dist, "_logpdf")

    def terms(vector: Shifts) -> Terms:
        least = 1e-100 * max(size for size, _ in vector)  # half a subnormal shift is none: rounded up
        return tuple(NoiseTerm(law, max(size, least), count) for size, count in vector)

    seen = 1e-9 * s.largest_linf(dimension)  # changes smaller than that say nothing of the worst
    attained = () if discrete else tuple(terms(v) for v in s.attained(dimension) if v[0][0] > seen)
    if is_gaussian(law):
        return WorstCases(law, (terms(((s.largest_l2(dimension), 1),)),), True, attained)
    if discrete:
        return _whole(law, s, dimension)
    top, count = s.largest_linf(dimension), s.count(dimension)
    if isinstance(loss_of(law, top), AtomicLoss):
        box = ((top, count),)
        return WorstCases(law, (terms(box),), s.bounds(dimension) == box == s.envelope(dimension)[0], ())
    found = [s.envelope(dimension), *s.packed(dimension)]
    if len(found) == 3 and s.l2 is None and s.each is None and not found[0][1]:
        found = found[1:]  # packed, the same vector is shorter
    best = next((vector for vector, exact in found if exact), None)
    if best is not None:
        return WorstCases(law, (terms(best),), True, attained)
    return WorstCases(law, tuple(terms(vector) for vector, _ in found), False, attained)


def _whole(law: Any, s: Sensitivity, dimension: int) -> WorstCases:
    """Integer noise: the answers are whole, and so are their changes."""
    for name, bounds in (("linf", (s.linf,)), ("each", s.each or ())):
        for bound in bounds:
            if bound is not None and bound != int(bound):
                raise DesignError.of(
                    f"sensitivity.{name}", bound, "must be a whole number for discrete noise"
                )
    found: list[Terms] = []
    for vector, _ in (s.envelope(dimension), *s.packed(dimension)):
        terms = tuple(NoiseTerm(law, math.floor(v), c) for v, c in vector if math.floor(v) >= 1)
        if terms and terms not in found:
            found.append(terms)
    if not found:
        raise DesignError.of(
            "sensitivity", str(s), "allows no change of a whole number: nothing needs discrete noise"
        )
    exact = s.allows(tuple((t.sensitivity, t.count) for t in found[0]))
    return WorstCases(law, (found[0],) if exact else tuple(found), exact, (found[0],) if exact else ())


def amplified(loss: float, *, rounds: int = 1, sampling_rate: float = 1.0, **options: Any) -> float:
    r"""The largest privacy loss of sampled rounds: :math:`r\log(1 + q(e^{\varepsilon} - 1))`, rounded up.

    Examples
    --------
    >>> amplified(1.0, rounds=3), round(amplified(1.0, sampling_rate=0.01), 6)
    (3.0, 0.017037)
    """
    if math.isinf(loss):
        return loss
    if sampling_rate == 1.0 or loss > 700:
        return round_up(rounds * Fraction(loss))
    return rounds * math.log1p(sampling_rate * math.expm1(loss)) * (1 + 1e-15)
