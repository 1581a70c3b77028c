r"""A private quantile of numbers, chosen among public candidates.

Of n numbers let b(c) count those below a candidate c, and a(c) those at or below it. Its score is

.. math:: -\max(0,\ b(c) - q n,\ q n - a(c)),

how many numbers it is from the q-quantile. Between neighbours two scores move against each other by at most 2 max(q, 1 − q) where a number is added or
removed, by 2 where one is replaced, and by 1 where q is 0 or 1. The candidate is chosen by `mechdesign.choice.rule`; candidates between two
numbers have one score and are one draw, so that a grid of 10⁹ takes no longer than a short one.

The share is taken as the nearest fraction P/Q with Q at most a million: times Q, scores are integers, and no rounding widens the spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.choice.rule import Asked, Choosing, Scored, chances
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.digits import shown
from mechdesign.evidence.results import Result
from mechdesign.evidence.sampling import uniform_integers
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import Checked, answers, array, field, generator, number, positive, probability
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import neighbours_field
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.problem.words import Description
from mechdesign.typing import Array, Indices, Randomness

_MOST = 10**12
"""Of a grid's candidates; of candidates that are listed 10,000,000."""


@serializable("candidate-grid")
@dataclass(frozen=True)
class CandidateGrid(Checked):
    """Candidates low, low + step, … up to high.

    Parameters
    ----------
    low, high, step : float
    """

    low: float = field(check=number)
    high: float = field(check=number)
    step: float = field(check=positive)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.low <= self.high and (self.high - self.low) / self.step < _MOST):
            remedy = f"must be (low, high, step) with low ≤ high and at most {_MOST:g} steps; a list holds candidates themselves"
            raise DesignError.of("candidates", (self.low, self.high, self.step), remedy)


def _candidates(name: str, value: Any) -> CandidateGrid | Array:
    """A grid, or the different ones of a list in rising order."""
    if isinstance(value, CandidateGrid):
        return value
    if isinstance(value, tuple) and len(value) == 3:
        return CandidateGrid(*value)
    found = np.unique(array(name, value))
    if len(found) > 10**7:
        raise DesignError.of(name, len(found), "are too many: give a grid (low, high, step)")
    return found


@serializable("quantile-rule")
@dataclass(frozen=True, eq=False)
class QuantileRule(Scored):
    """A quantile drawn among candidates.

    Parameters
    ----------
    rule : {"permute-and-flip", "exponential mechanism"}
    rate : float
        c, by unit of Q times the score.
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

    share: Fraction
    candidates: CandidateGrid | Array

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "candidates", _candidates("candidates", self.candidates))
        if not (
            isinstance(self.share, Fraction) and 0 <= self.share <= 1 and self.share.denominator <= 10**6
        ):
            raise DesignError.of(
                "share", self.share, "must be a fraction of [0, 1] with a denominator of at most 10^6"
            )

    @cached_property
    def size(self) -> int:
        """How many candidates there are."""
        if isinstance(self.candidates, CandidateGrid):
            grid = self.candidates
            return math.floor((grid.high - grid.low) / grid.step * (1 + 2.0**-52)) + 1
        return len(self.candidates)

    def _candidate(self, k: Indices) -> Array:
        """Return candidates by number, in rising order."""
        if isinstance(self.candidates, CandidateGrid):
            grid = self.candidates
            return np.asarray(np.minimum(grid.low + grid.step * k, grid.high))
        return np.asarray(self.candidates[k])

    def _first(self, x: Array, *, above: bool) -> Indices:
        """Number of the first candidate at or above each number, or strictly above it."""
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
        """Numbers of the first candidates of each group, how many it has, and Q times its score."""
        x = answers("values", values)
        if x.ndim != 1:
            raise DataError("values: must be a list of numbers, one a person")
        x = np.sort(x)
        at, above = (self._first(x, above=side) for side in (False, True))
        starts = np.unique(np.concatenate([[0], at, above]))
        starts = starts[starts < self.size]
        p, q, n = self.share.numerator, self.share.denominator, len(x)
        if n > 2**62 // q:
            raise DataError("values: are too many")
        under, over = np.searchsorted(above, starts, "right"), np.searchsorted(at, starts, "right")
        score = -np.maximum(0, np.maximum(q * under - p * n, p * n - q * over))
        return starts, np.diff(np.append(starts, self.size)), score

    def sample(self, values: Any, *, rng: Randomness = None) -> float:
        """Draw a quantile in doubles with a seeded generator: for simulation; `release` deploys.

        Parameters
        ----------
        values : array_like
            One number a person.
        rng : int or numpy Generator, optional
        """
        source = generator(rng)
        starts, counts, score = self.scores(values)
        k = self._drawn(score.max() - score, counts, source)
        return float(self._candidate(starts[k] + source.integers(counts[k])))

    def release(self, values: Any) -> float:
        """Draw a quantile with exactly the analysed probabilities, from the operating system's randomness; of no data any candidate.

        Parameters
        ----------
        values : array_like
            One number a person.

        Raises
        ------
        DataError
            A number that is not finite. The guarantee does not cover that refusal.
        """
        starts, counts, score = self.scores(values)
        k = self._released((score.max() - score).astype(float), counts, score)
        return float(self._candidate(starts[k] + uniform_integers(int(counts[k]), 1)[0]))

    def probabilities(self, values: Any) -> pd.DataFrame:
        """Tabulate groups of candidates of one score: first, last, how many, and the probability of them all together."""
        starts, counts, score = self.scores(values)
        each = chances(self.rule, (score.max() - score).astype(float), counts.astype(float), self.rate)
        ends = {"first": self._candidate(starts), "last": self._candidate(starts + counts - 1)}
        return pd.DataFrame({**ends, "candidates": counts, "probability": counts * each})

    def regret(self, values: Any) -> float:
        """Return how many ranks the answer's score is below the best one, on average."""
        _, counts, score = self.scores(values)
        off = (score.max() - score).astype(float)
        each = chances(self.rule, off, counts.astype(float), self.rate)
        return float((counts * each) @ off) / self.share.denominator


@serializable("private-quantile")
@dataclass(frozen=True, eq=False)
class PrivateQuantile(Choosing):
    """A quantile of one number a person, among public candidates: by permute-and-flip or the exponential mechanism.

    Parameters
    ----------
    q : float
        Share of the numbers that are to be below, 0 to 1: ½ is the median.
    candidates : (float, float, float) or array_like
        A grid (low, high, step), or candidates, in any order; equal ones count once.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    neighbours : {"add-remove", "replace"}
        Whether a person's number is added or removed, or replaced.

    Notes
    -----
    The value is the largest expected error in ranks (how many numbers the answer is from the quantile) of any data. Of no data at all each candidate is as
    likely. Smith, *Privacy-preserving statistical estimation with optimal convergence rates*, STOC 2011, for the exponential mechanism.

    Examples
    --------
    >>> median = PrivateQuantile(0.5, (0, 100, 0.1), PureDP(1.0)).solve()
    >>> median.mechanism.rule, round(median.value, 4), median.certificate.verify()
    ('permute-and-flip', 4.2662, True)
    >>> 40 < median.release(np.linspace(0, 100, 1001)) < 60
    True
    """

    q: float = field(check=probability)
    candidates: CandidateGrid | Array = field(check=_candidates)
    privacy: Asked = field(PureDP, ApproximateDP, ZeroConcentratedDP)
    neighbours: str = neighbours_field()

    @property
    def share(self) -> Fraction:
        """The fraction that q is taken as."""
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
            loss="largest expected error in ranks of any data",
            picture="The probability of choosing the best candidate, by how many ranks all others are behind it.",
            rivals="Permute-and-flip and the exponential mechanism at the same privacy.",
        )
