r"""A private quantile of numbers, chosen among public candidates.

Of n numbers let b(c) count those below a candidate c, and a(c) those at or below it. Its score is

.. math:: -\max(0,\ b(c) - q n,\ q n - a(c)),

minus the number of ranks between it and the q-quantile. Between neighbours the difference of two scores changes by at most 2 max(q, 1 − q) if a number is added or
removed, by 2 if one is replaced, and by 1 if q is 0 or 1. `mechdesign.choice.rule` chooses the candidate; candidates between two
numbers share a score and are drawn together, so that a grid of 10⁹ takes no longer than a short one.

q is rounded to the nearest fraction P/Q with Q at most a million: scores times Q are then integers, and no rounding widens the spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mechdesign import checks
from mechdesign.checks import Checked, field, refuse
from mechdesign.choice.rule import Asked, Choosing, Scored
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.digits import shown
from mechdesign.evidence.results import Accuracy, Result, accuracy_of
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.mechanism import Deployment, Simulation
from mechdesign.problem.privacy import ApproximateDP, Description, PureDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import neighbours_field
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.typing import Array, Indices

_MOST_STEPS = 10**12
"""Most steps of a grid; a list may hold 10,000,000 candidates."""


@serializable("candidate-grid")
class CandidateGrid(Checked):
    """Candidates low, low + step, … up to high.

    Parameters
    ----------
    low, high, step : float
    """

    low: float = field(check=checks.number)
    high: float = field(check=checks.number)
    step: float = field(check=checks.positive)

    def _post_check(self) -> None:
        if not (self.low <= self.high and (self.high - self.low) / self.step < _MOST_STEPS):
            remedy = f"must be (low, high, step) with low ≤ high and at most {_MOST_STEPS:g} steps; a list holds candidates themselves"
            raise DesignError.of("candidates", (self.low, self.high, self.step), remedy)


def _candidates(name: str, value: Any) -> CandidateGrid | Array:
    """Return a grid, or the distinct candidates of a list in increasing order."""
    if isinstance(value, CandidateGrid):
        return value
    if isinstance(value, tuple) and len(value) == 3:
        return CandidateGrid(*value)
    found = np.unique(checks.array(name, value))
    refuse(len(found) > 10**7, name, len(found), "are too many: give a grid (low, high, step)")
    return found


def _share(name: str, value: object) -> Fraction:
    if isinstance(value, Fraction) and 0 <= value <= 1 and value.denominator <= 10**6:
        return value
    raise DesignError.of(name, value, "must be a fraction of [0, 1] with a denominator of at most 10^6")


@serializable("quantile-rule", eq=False)
class QuantileRule(Scored):
    """A quantile drawn among candidates.

    Parameters
    ----------
    rule : {"permute-and-flip", "exponential mechanism"}
    rate : float
        c, per unit of Q times the score.
    share : Fraction
        q = P/Q.
    candidates : CandidateGrid, (float, float, float) or array
        A grid (low, high, step), or candidates.

    Examples
    --------
    >>> rule = QuantileRule("permute-and-flip", 0.5, Fraction(1, 2), (0.0, 100.0, 1.0))
    >>> 45 <= rule.release(range(101)) <= 55
    True
    """

    share: Fraction = field(check=_share)
    candidates: CandidateGrid | Array = field(check=_candidates)

    @cached_property
    def size(self) -> int:
        """Number of candidates."""
        if isinstance(self.candidates, CandidateGrid):
            grid = self.candidates
            return math.floor((grid.high - grid.low) / grid.step * (1 + 2.0**-52)) + 1
        return len(self.candidates)

    def _candidate(self, k: Indices) -> Array:
        """Return the candidates with these indices, in increasing order."""
        if isinstance(self.candidates, CandidateGrid):
            grid = self.candidates
            return np.asarray(np.minimum(grid.low + grid.step * k, grid.high))
        return np.asarray(self.candidates[k])

    def _first(self, x: Array, *, above: bool) -> Indices:
        """Return the index of the first candidate at or above each number, or strictly above it."""
        if not isinstance(self.candidates, CandidateGrid):
            return np.asarray(np.searchsorted(self.candidates, x, "right" if above else "left"))
        grid = self.candidates
        with np.errstate(over="ignore"):  # numbers beyond all candidates
            found = np.clip(np.ceil((x - grid.low) / grid.step), 0, self.size).astype(np.int64)
        for _ in range(2):  # division and product round
            below = self._candidate(np.maximum(found - 1, 0))
            found -= (found > 0) & ((below > x) if above else (below >= x))
            at = self._candidate(np.minimum(found, self.size - 1))
            found += (found < self.size) & ((at <= x) if above else (at < x))
        return found

    def scores(self, values: Any) -> tuple[Indices, Indices, Indices]:
        """Return for each group of equal scores the index of its first candidate, its size, and Q times its score."""
        x = checks.answers("values", values)
        DataError.when(x.ndim != 1, "values: must be a list of numbers, one per person")
        x = np.sort(x)
        at, above = (self._first(x, above=side) for side in (False, True))
        # merges runs, where np.unique hashes
        starts = np.sort(np.concatenate([[0], at, above]), kind="stable")
        starts = starts[(starts < self.size) & (np.diff(starts, prepend=-1) > 0)]
        p, q, n = self.share.numerator, self.share.denominator, len(x)
        DataError.when(n > 2**62 // q, "values: are too many")
        under, over = np.searchsorted(above, starts, "right"), np.searchsorted(at, starts, "right")
        score = -np.maximum(0, np.maximum(q * under - p * n, p * n - q * over))
        return starts, np.diff(np.append(starts, self.size)), score

    def drawn(self, x: Any, source: Simulation | Deployment) -> float:
        """Draw a candidate by numbers; without any, each is as likely."""
        starts, counts, score = self.scores(x)
        k = self._drawn(score, counts, source)
        return float(self._candidate(starts[k] + source.below(int(counts[k]), 1)[0]))

    def probabilities(self, values: Any) -> pd.DataFrame:
        """Tabulate groups of candidates with equal scores: first, last, size, and the probability of the group."""
        starts, counts, score = self.scores(values)
        ends = {"first": self._candidate(starts), "last": self._candidate(starts + counts - 1)}
        return pd.DataFrame(
            {**ends, "candidates": counts, "probability": counts * self._chances(score, counts)}
        )

    def errors(self, values: Any) -> Accuracy:
        """Return the errors in ranks, the regrets, at these numbers; they reveal the numbers."""
        _, counts, score = self.scores(values)
        each = self._chances(score, counts)
        return accuracy_of((score.max() - score) / self.share.denominator, counts * each)


@serializable("private-quantile", eq=False)
class PrivateQuantile(Choosing):
    """A quantile of one number a person, among public candidates: by permute-and-flip or the exponential mechanism.

    Parameters
    ----------
    q : float
        Share of the numbers below the quantile, 0 to 1: ½ is the median.
    candidates : (float, float, float) or array_like
        A grid (low, high, step), or candidates, in any order; equal ones count once.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    neighbours : {"add-remove", "replace"}
        Whether a person's number is added or removed, or replaced.

    Notes
    -----
    The score of a candidate is minus the number of data between it and the quantile. The value bounds the expected regret over all data, in ranks: how many
    more data lie between answer and quantile than for the best candidate, which is itself far from the quantile where candidates are sparse. Without data all candidates are
    equally likely. Smith, *Privacy-preserving statistical estimation with optimal convergence rates*, STOC 2011, for the exponential mechanism.

    Examples
    --------
    >>> median = PrivateQuantile(0.5, (0, 100, 0.1), PureDP(1.0)).solve()
    >>> median.mechanism.rule, round(median.value, 4), median.certificate.verify()
    ('permute-and-flip', 4.2662, True)
    >>> 40 < median.release(np.linspace(0, 100, 1001)) < 60
    True
    """

    q: float = field(check=checks.probability)
    candidates: CandidateGrid | Array = field(check=_candidates)
    privacy: Asked = field(PureDP, ApproximateDP, ZeroConcentratedDP)
    neighbours: str = neighbours_field()

    @property
    def share(self) -> Fraction:
        """q as a fraction."""
        return Fraction(self.q).limit_denominator(10**6)

    @property
    def scale(self) -> float:
        return 1 / self.share.denominator

    @property
    def size(self) -> int:
        return QuantileRule("permute-and-flip", 1.0, self.share, self.candidates).size

    @property
    def moved(self) -> float:
        p, q = self.share.numerator, self.share.denominator
        if p in (0, q):
            return float(q)
        return float(2 * max(p, q - p) if self.neighbours == "add-remove" else 2 * q)

    def rule(self, name: str, rate: float) -> QuantileRule:
        return QuantileRule(name, rate, self.share, self.candidates)

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield the better rule."""
        yield from self.closed_forms()

    def describe(self, result: Result) -> Description:
        law = result.mechanism
        return Description(
            title=f"The {shown(self.q)}-quantile",
            what=f"The {shown(self.q)}-quantile of one number a person is chosen among {law.size} candidates by {law.rule} at the rate "
            f"{shown(law.rate / self.scale)} a rank.",
            loss="largest expected regret in ranks of any data (how many more data lie between answer and quantile than for the best candidate)",
            picture="The probability of choosing the best candidate, by how many ranks all others are behind it.",
        )
