r"""The law of a local report for linear questions: a table of integer weights, and what is made of counts of reports.

A person of category x sends y with probability Q(y|x). With weights π of the categories and :math:`q_y = Q(y|\cdot)`, the decoder

.. math:: v_y = W M^{-1} \frac{q_y}{\pi \cdot q_y}, \qquad M = \sum_y \frac{q_y q_y^\top}{\pi \cdot q_y},

has :math:`\sum_y Q(y|x) v_y = W e_x` for every x, and of all such decoders the least variance averaged over π. Since
:math:`M \pi = 1`, adding c to every entry of a row of W adds c to every :math:`v_y`: no variance changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from mechdesign.channels.channel import Channel
from mechdesign.channels.exact import common_integers
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import log_upper
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import Checked, array, field, finite, indices, integer, one_of, probability
from mechdesign.problem.mechanism import Deployment, Drawn, Simulation, integer_weights
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.workload import Workload
from mechdesign.typing import Array, Indices, Numbers, Weights

BITS = 128
"""Of the fixed point in which the moments of a table are inverted."""
FULL = 4096
"""Answers whose covariance is formed, at most."""


@dataclass(frozen=True, eq=False)
class LinearEstimate:
    """Answers made of local reports.

    Attributes
    ----------
    answers : array, shape (m,)
        Unbiased for the workload applied to the counts of the people who reported; consistent, as they are W times `counts`.
    counts : array, shape (k,)
        Unbiased for these counts; entries may be negative.
    report : LinearReport or SubsetReport
    tally : array
        How often each output was reported.
    unbiased : LinearEstimate, optional
        Of a post-processed estimate (`nonnegative`), which is biased, what it was made of; standard errors and intervals are that one's.
    """

    answers: Array
    counts: Array
    report: LinearDecoder
    tally: Array
    unbiased: LinearEstimate | None = None

    @cached_property
    def covariance(self) -> Array:
        """An unbiased estimate of the covariance of the unbiased answers, given who reported, shape (m, m)."""
        if len(self.answers) > FULL:
            remedy = f"has more than {FULL} answers: their covariance is not formed; see standard_errors"
            raise DesignError.of("workload", len(self.answers), remedy)
        return np.asarray(self.report.workload.apply(self._half.T))

    @property
    def _half(self) -> Array:
        """W times the covariance of the counts."""
        own = self.unbiased or self
        return np.asarray(own.report.workload.apply(own.report._spread(own.counts, own.tally)))

    @cached_property
    def standard_errors(self) -> Array:
        """Of every unbiased answer, estimated from the reports."""
        if len(self.answers) > FULL:
            squares = (self._half * self.report.workload.dense()).sum(axis=1)
        else:
            squares = np.diag(self.covariance)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    def intervals(self, level: float = 0.95) -> Array:
        """Normal intervals that hold each answer with about this probability, around the unbiased answers, shape (m, 2)."""
        share = probability("level", level, below_one=True)
        reach = NormalDist().inv_cdf((1 + share) / 2) * self.standard_errors
        middle = (self.unbiased or self).answers
        return np.column_stack([middle - reach, middle + reach])

    def nonnegative(self, *, whole: bool = False) -> LinearEstimate:
        """The nearest counts that are at least 0 and of the same sum, and their answers: post-processing, as private as the reports; biased.

        Parameters
        ----------
        whole : bool
            Whether counts are rounded to whole numbers, the largest remainders up, so that they keep their sum.
        """
        counts = (self.unbiased or self).counts
        total = max(counts.sum(), 0.0)
        ordered = -np.sort(-counts)
        levels = (np.cumsum(ordered) - total) / np.arange(1, len(counts) + 1)
        found = np.maximum(counts - levels[max(int((ordered > levels).sum()) - 1, 0)], 0.0)
        if one_of("whole", whole, (True, False)):
            low = np.floor(found)
            up = np.argsort(low - found, kind="stable")[: round(total) - int(low.sum())]
            low[up] += 1
            found = low
        answers = self.report.workload.apply(found)
        return replace(self, answers=answers, counts=found, unbiased=self.unbiased or self)

    def __str__(self) -> str:
        how = "unbiased" if self.unbiased is None else "post-processed (non-negative counts), biased"
        reach = float(np.sqrt(np.mean(self.standard_errors**2)))
        return f"{len(self.answers)} answers, {how}; standard error of an unbiased answer {shown(reach)}"


class LinearDecoder(Drawn):
    """What reports for linear questions share: their errors, and decoding."""

    workload: Workload
    prior: Array | None

    @property
    def epsilon(self) -> float:
        """The least ε, rounded up."""
        raise NotImplementedError

    @property
    def variances(self) -> Array:
        """Variance of one report of each category, summed over the answers, shape (k,)."""
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        """Number of different reports."""
        raise NotImplementedError

    @property
    def privacy(self) -> PureDP:
        """The guarantee of every person."""
        return PureDP(self.epsilon)

    @property
    def variance(self) -> float:
        """Variance of one report summed over the answers: the mean over the categories, or with a prior over it."""
        return float(np.average(self.variances, weights=self.prior))

    def errors(self, people: int = 1, *, worst: bool = False) -> Accuracy:
        """Of one answer, its square averaged over the answers, from so many reports; nearly normal."""
        integer("people", people, least=1)
        variance = float(self.variances.max()) if one_of("worst", worst, (True, False)) else self.variance
        deviation = math.sqrt(max(people * variance, 0.0) / self.workload.count)
        normal = NormalDist(0, 1)
        return Accuracy(deviation, deviation * math.sqrt(2 / math.pi), deviation * normal.inv_cdf(0.975))

    def tally(self, reports: Numbers) -> Array:
        """How often each output was reported."""
        raise NotImplementedError

    def _spread(self, counts: Array, tally: Array) -> Array:
        """An unbiased estimate of the covariance of the estimated counts, shape (k, k)."""
        raise NotImplementedError

    def _counted(self, tally: Numbers) -> tuple[Array, Array]:
        """The estimated counts, and the checked tally."""
        raise NotImplementedError

    def decode(self, reports: Numbers) -> LinearEstimate:
        """Estimate the answers from reports, as `release` returns them."""
        return self.decode_counts(self.tally(reports))

    def decode_counts(self, tally: Numbers) -> LinearEstimate:
        """Estimate the answers from how often each output was reported, as `tally` returns it."""
        counts, held = self._counted(tally)
        return LinearEstimate(self.workload.apply(counts), counts, self, held)


@serializable("linear-report")
@dataclass(frozen=True, eq=False)
class LinearReport(Checked, LinearDecoder):
    """A local report with its decoder for linear queries on the counts of categories.

    Parameters
    ----------
    workload : Workload
        W, on k counts.
    weights : sequence of sequences of int, shape (k, outputs)
        A row for each category, all of one total.
    prior : array, shape (k,), optional
        π > 0, in proportion: over which data the decoder's variance is least. Uniform by default.

    Examples
    --------
    >>> law = LinearReport(Workload.prefix_sums(2), ((3, 1), (1, 3)))
    >>> law.epsilon <= math.log(3) + 1e-15, law.decoder.round(6).tolist()
    (True, [[1.5, -0.5], [1.0, 1.0]])
    >>> estimate = law.decode_counts([300, 100])
    >>> estimate.answers.round(6).tolist(), estimate.standard_errors.round(3).tolist()
    ([400.0, 400.0], [17.321, 0.0])
    """

    workload: Workload = field(Workload)
    weights: Weights = field(check=integer_weights)
    prior: Array | None = field(check=array, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.weights) != self.workload.size or not all(any(column) for column in zip(*self.weights)):
            allowed = f"must have a row for each of {self.workload.size} categories, and no column of zeros"
            raise DesignError.of("weights", (len(self.weights), len(self.weights[0])), allowed)
        if self.prior is not None and (self.prior.shape != (self.size,) or not (self.prior > 0).all()):
            raise DesignError.of("prior", self.prior, f"must be {self.size} positive numbers")

    @cached_property
    def channel(self) -> Channel:
        """The table as a channel."""
        return Channel.from_weights(self.weights)

    @property
    def size(self) -> int:
        """k, the number of categories."""
        return len(self.weights)

    @property
    def outputs(self) -> int:
        """Number of different reports."""
        return len(self.weights[0])

    @property
    def columns(self) -> Iterator[Sequence[int]]:
        """Weights of one report for all categories."""
        return zip(*self.weights)

    @cached_property
    def epsilon(self) -> float:
        """The least ε, rounded up: the largest quotient of two entries of a column."""
        columns = [(max(c), min(c)) for c in self.columns]
        if any(low == 0 for _, low in columns):
            return math.inf
        return log_upper(max(Fraction(high, low) for high, low in columns))

    @cached_property
    def _counting(self) -> Array:
        """M⁻¹ u for every report, shape (k, outputs): what a report adds to the estimated counts; rounded once from fixed point."""
        columns, moments = fixed_moments(self.weights, self.prior)
        return np.asarray((fixed_inverse(moments) @ columns / (1 << 2 * BITS)).astype(float))

    @cached_property
    def decoder(self) -> Array:
        """V, shape (m, outputs): a report y adds column y to the answers."""
        return self.workload.apply(self._counting)

    @cached_property
    def variances(self) -> Array:
        """Variance of one report of each category, summed over the answers, shape (k,)."""
        squares = (self.decoder**2).sum(axis=0)
        return np.asarray(self.channel.matrix @ squares - np.diag(self.workload.gram()))

    def drawn(self, x: Numbers, source: Simulation | Deployment) -> Indices:
        """Draw a report for every category of `x` with the randomness of `source`."""
        return self.channel.drawn(x, source)

    def tally(self, reports: Numbers) -> Array:
        """How often each output was reported, shape (outputs,), by reports of any shape."""
        held = indices("reports", reports, self.outputs)
        return np.bincount(held.ravel(), minlength=self.outputs).astype(float)

    def _counted(self, tally: Numbers) -> tuple[Array, Array]:
        held = finite("tally", tally)
        if held.shape != (self.outputs,) or (held < 0).any():
            raise DataError(f"tally: must be {self.outputs} counts of reports")
        return self._counting @ held, held

    def _spread(self, counts: Array, tally: Array) -> Array:
        return np.asarray((self._counting * tally) @ self._counting.T - np.diag(counts))


def prior_of(given: Array | None, size: int) -> tuple[Any, int]:
    """The prior as integers and their sum; uniform where none is given."""
    counts = np.ones(size, dtype=object) if given is None else common_integers(np.asarray(given))[0]
    return counts, int(counts.sum())


def fixed_moments(weights: Weights, given: Array | None) -> tuple[Any, Any]:
    """The columns u and M in fixed point: entries of u are low by less than one unit, of M by less than two, as rows of Q sum to 1."""
    table = np.array(weights, dtype=object)
    prior, people = prior_of(given, len(table))
    columns = (table * people << BITS) // (prior @ table)
    return columns, table @ columns.T // int(table[0].sum())


def fixed_inverse(moments: Any) -> Any:
    """An inverse in fixed point, from doubles by Newton's steps; DesignError where doubles find none."""
    unit = 1 << BITS
    try:
        start = np.linalg.inv((moments / unit).astype(float))
    except np.linalg.LinAlgError:
        start = np.full(moments.shape, np.nan)
    if not np.isfinite(start).all():
        raise DesignError("weights: different counts give the same reports")
    numbers, below = common_integers(start)
    held, twice = numbers * unit // below, np.eye(len(moments), dtype=int).astype(object) * (2 * unit)
    for _ in range(3):
        held = held @ (twice - moments @ held // unit) // unit
    return held
