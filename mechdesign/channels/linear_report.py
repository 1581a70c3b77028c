r"""Local reports for linear questions, tables of integer weights or sets of categories, and estimates from counts of reports.

A person of category x sends y with probability Q(y|x). With weights π of the categories and :math:`q_y = Q(y|\cdot)`, the decoder

.. math:: v_y = W M^{-1} \frac{q_y}{\pi \cdot q_y}, \qquad M = \sum_y \frac{q_y q_y^\top}{\pi \cdot q_y},

has :math:`\sum_y Q(y|x) v_y = W e_x` for every x, and the least variance averaged over π of all such decoders. Since
:math:`M \pi = 1`, adding c to every entry of a row of W adds c to every :math:`v_y`: no variance changes.

**Sets of categories** are drawn without a table: subset selection, k-ary response and unary encodings. A size s is drawn, and then a set S of s of the k categories with
weight A if it holds the person's own category and B otherwise, :math:`A \le e^\varepsilon B`. The size is independent of the person's category. With :math:`D = sA + (k - s)B`,
:math:`t_s = k(A - B)/D` and the ray :math:`u = 1 + t_s (1_S - s/k)`

.. math:: M = a I + \frac{k - a}{k} 1 1^\top, \quad a = \frac{1}{k (k - 1)} \sum_s w_s t_s^2 s (k - s), \quad
    M^{-1} u = \frac{t_s}{a} (1_S - s/k) + \frac 1k ,

for every workload. Unary encodings are such reports: a word of bits is e^ε times as likely for a category whose bit is set, and its size is independent of the category.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import arb, arb_mat, ctx

from mechdesign.channels.channel import Channel, common_integers
from mechdesign.channels.responses import TOP, level
from mechdesign.checks import (
    Checked,
    array,
    field,
    finite,
    indices,
    inside,
    instance,
    integer,
    integer_weights,
    one_of,
    positive,
    probability,
    refuse,
)
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import log_upper
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.mechanism import Deployment, Drawn, Rows, Simulation
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.workload import Queries, Workload
from mechdesign.typing import Array, Indices, Numbers, Weights

PRECISION = 256
"""Bits of the intervals in which the moments of a table are inverted."""
FULL = 4096
"""Most answers whose covariance is formed."""


@dataclass(frozen=True, eq=False)
class LinearEstimate:
    """Answers estimated from local reports.

    Attributes
    ----------
    answers : array, shape (m,)
        Unbiased estimates of the workload applied to the counts of the people who reported; consistent, as they are W times `counts`.
    counts : array, shape (k,)
        Unbiased estimates of these counts; entries may be negative.
    report : LinearReport or SubsetReport
    tally : array
        Number of times each output was reported.
    unbiased : LinearEstimate, optional
        Unbiased estimate from which this one was post-processed (`nonnegative`); standard errors and intervals are its.
    """

    answers: Array
    counts: Array
    report: LinearDecoder
    tally: Array
    unbiased: LinearEstimate | None = None

    @cached_property
    def covariance(self) -> Array:
        """An unbiased estimate of the covariance of the unbiased answers, given who reported, shape (m, m)."""
        remedy = f"has more than {FULL} answers: their covariance is not formed; see standard_errors"
        refuse(len(self.answers) > FULL, "workload", len(self.answers), remedy)
        return np.asarray(self.report.workload.apply(self._half.T))

    @property
    def _half(self) -> Array:
        """W times the covariance of the counts."""
        own = self.unbiased or self
        return np.asarray(own.report.workload.apply(own.report._spread(own.counts, own.tally)))

    @cached_property
    def standard_errors(self) -> Array:
        """Standard errors of the unbiased answers, estimated from the reports."""
        if len(self.answers) > FULL:
            squares = (self._half * self.report.workload.dense()).sum(axis=1)
        else:
            squares = np.diag(self.covariance)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    def intervals(self, level: float = 0.95) -> Array:
        """Return normal confidence intervals around the unbiased answers, each at about this level, shape (m, 2)."""
        share = probability("level", level, below_one=True)
        reach = NormalDist().inv_cdf((1 + share) / 2) * self.standard_errors
        middle = (self.unbiased or self).answers
        return np.column_stack([middle - reach, middle + reach])

    def nonnegative(self, *, whole: bool = False) -> LinearEstimate:
        """Return the nearest non-negative counts with the same sum, and their answers: biased, and as private as the reports (post-processing).

        Parameters
        ----------
        whole : bool
            Whether counts are rounded to whole numbers, the largest remainders up, so that the sum is preserved.
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
    """Base of reports for linear questions: errors and decoding."""

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
        """The guarantee for every person."""
        return PureDP(self.epsilon)

    @property
    def variance(self) -> float:
        """Variance of one report summed over the answers, averaged over the categories or the prior."""
        return float(np.average(self.variances, weights=self.prior))

    def errors(self, people: int = 1, *, worst: bool = False) -> Accuracy:
        """Return the errors of one answer from `people` reports, its square averaged over the answers; nearly normal."""
        integer("people", people, least=1)
        variance = float(self.variances.max()) if one_of("worst", worst, (True, False)) else self.variance
        deviation = math.sqrt(max(people * variance, 0.0) / self.workload.count)
        normal = NormalDist(0, 1)
        return Accuracy(deviation, deviation * math.sqrt(2 / math.pi), deviation * normal.inv_cdf(0.975))

    def tally(self, reports: Numbers) -> Array:
        """Count the reports of each output."""
        raise NotImplementedError

    def _spread(self, counts: Array, tally: Array) -> Array:
        """Return an unbiased estimate of the covariance of the estimated counts, shape (k, k)."""
        raise NotImplementedError

    def _counted(self, tally: Numbers) -> tuple[Array, Array]:
        """Return the estimated counts, and the checked tally."""
        raise NotImplementedError

    def decode(self, reports: Numbers) -> LinearEstimate:
        """Estimate the answers from reports, as `release` returns them."""
        return self.decode_counts(self.tally(reports))

    def decode_counts(self, tally: Numbers) -> LinearEstimate:
        """Estimate the answers from the counts of reports that `tally` returns."""
        counts, held = self._counted(tally)
        return LinearEstimate(self.workload.apply(counts), counts, self, held)


@serializable("linear-report", eq=False)
class LinearReport(Checked, LinearDecoder):
    """A local report with its decoder for linear queries on the counts of categories.

    Parameters
    ----------
    workload : Workload
        W, on k counts.
    weights : sequence of sequences of int, shape (k, outputs)
        A row for each category, with equal sums.
    prior : array, shape (k,), optional
        Weights proportional to π > 0, over which the decoder has the least mean variance. Uniform by default.

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

    def _post_check(self) -> None:
        if len(self.weights) != self.workload.size or not all(any(column) for column in zip(*self.weights)):
            allowed = f"must have a row for each of {self.workload.size} categories, and no column of zeros"
            raise DesignError.of("weights", (len(self.weights), len(self.weights[0])), allowed)
        if len({*map(sum, self.weights)}) > 1:
            raise DesignError("weights: must be rows of one sum; multiply each row by the sum of another")
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
        """M⁻¹ u for every report, shape (k, outputs), which a report adds to the estimated counts; rounded once."""
        return np.array(
            [[float(entry) for entry in row] for row in decoded(self.weights, self.prior).tolist()]
        )

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
        """Count the reports of each output, shape (outputs,), in reports of any shape."""
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
    """Return the prior as integers, and their sum; uniform if none is given."""
    counts = np.ones(size, dtype=object) if given is None else common_integers(np.asarray(given))[0]
    return counts, int(counts.sum())


def decoded(weights: Weights, given: Array | None) -> arb_mat:
    """Return M⁻¹ u for every report, shape (k, outputs), enclosed; raise DesignError if M is not proved to have an inverse."""
    prior, people = prior_of(given, len(weights))
    sums = prior @ np.array(weights, dtype=object)
    with ctx.workprec(PRECISION):
        columns = arb_mat([[arb(w * people) / s for w, s in zip(row, sums)] for row in weights])
        moments = arb_mat([[arb(w) / sum(row) for w in row] for row in weights]) * columns.transpose()
        with DesignError.where("weights: different counts give the same reports", ZeroDivisionError):
            return moments.solve(columns)


Sets = npt.NDArray[np.int8]
_DRAWN = 1 << 22  # entries drawn at a time
_UNIT = 1 << 256  # unit of the fixed point to which sums over sizes are rounded, outwards
_SHARES = 1 << 40  # approximate sum of the weights of sizes


def _levels(epsilon: float) -> tuple[int, int]:
    """Return the weights of a report for the categories in it and for others."""
    low = level(Fraction(positive("epsilon", epsilon)))
    allowed = "is too small for any report to tell categories apart: at least 1e-30"
    refuse(low == TOP, "epsilon", epsilon, allowed)
    return TOP, low


@serializable("subset-report", eq=False)
class SubsetReport(Checked, LinearDecoder):
    """A local report that is a set of categories, with its decoder for linear queries on their counts.

    Parameters
    ----------
    workload : Workload
        W, on k counts.
    sizes : sequence of int
        Possible numbers of categories in a set.
    shares : sequence of int
        Weights of the sizes.
    levels : (int, int)
        A and B: weights of a set with the person's own category, and of one without.

    Examples
    --------
    >>> law = SubsetReport.selection(Workload.identity(100), 2.0)
    >>> law.sizes, law.epsilon <= 2.0
    ((12,), True)
    >>> reports = law.release([0, 3, 99])
    >>> reports.shape, reports.sum(axis=1).tolist(), law.decode(reports).answers.shape
    ((3, 100), [12, 12, 12], (100,))
    """

    workload: Workload = field(Workload)
    sizes: tuple[int, ...] = field(check=integer, least=1, most=lambda self: self.size, many=True)
    shares: tuple[int, ...] = field(check=integer, least=1, many=True)
    levels: tuple[int, int] = field(check=integer, least=1, many=True)

    prior = None

    def _post_check(self) -> None:
        rising = sorted({*self.sizes}) == [*self.sizes] and min(self.sizes, default=self.size) < self.size
        refuse(not rising, "sizes", self.sizes, f"must increase, from below {self.size}")
        if len(self.shares) != len(self.sizes):
            raise DesignError.of("shares", len(self.shares), f"must be {len(self.sizes)}, one for each size")
        if len(self.levels) != 2 or self.levels[0] <= self.levels[1]:
            raise DesignError.of("levels", self.levels, "must be two, the first larger")

    @classmethod
    def selection(cls, workload: Workload, epsilon: float, size: int | None = None) -> SubsetReport:
        """Return subset selection (Wang et al. 2016, Ye and Barg 2018) at the best size, or at a given one; size 1 is k-ary response."""
        k = instance("workload", workload, Workload).size
        high, low = _levels(epsilon)
        if size is not None:
            integer("size", size, least=1, most=k - 1)
        else:
            # s(k − s)/D² has one peak, near k/(ρ + 1)
            near = k * low // (high + low)
            size = max(range(max(near - 1, 1), min(near + 3, k)), key=lambda s: contrast(k, s, high, low))
        return cls(workload, (size,), (1,), (high, low))

    @classmethod
    def unary(cls, workload: Workload, epsilon: float, kept: float, turned: float) -> SubsetReport:
        """Return a unary encoding: the own bit is set with probability `kept`, others with `turned`; words with no or all bits set carry no information."""
        k = instance("workload", workload, Workload).size
        for name, chance in (("kept", kept), ("turned", turned)):
            inside(name, chance, 1e-12, 1 - 1e-12)
        levels = _levels(epsilon)
        s = np.arange(k)
        logs = [math.lgamma(k) - math.lgamma(i + 1) - math.lgamma(k - i) for i in s]
        others = np.exp(logs + s * math.log(turned) + (k - 1 - s) * math.log1p(-turned))
        chances = np.append((1 - kept) * others, 0.0) + np.append(0.0, kept * others)
        chances[-1] += chances[0]
        weights = {i: round(float(chances[i]) * _SHARES) for i in range(1, k + 1)}
        some = {i: w for i, w in weights.items() if w}
        return cls(workload, tuple(some), tuple(some.values()), levels)

    @property
    def size(self) -> int:
        """k, the number of categories."""
        return self.workload.size

    @cached_property
    def outputs(self) -> int:
        """Number of different reports."""
        first, held, total = min(self.sizes), set(self.sizes), 0
        subsets = math.comb(self.size, first)
        for s in range(first, max(held) + 1):
            total += subsets * (s in held)
            subsets = subsets * (self.size - s) // (s + 1)
        return total

    @property
    def columns(self) -> Iterator[Sequence[int]]:
        """Weights of one report for the categories in it and for others."""
        yield self.levels

    @cached_property
    def epsilon(self) -> float:
        """The least ε, rounded up."""
        return log_upper(Fraction(*self.levels))

    @property
    def chances(self) -> Array:
        """Probability that the set of a person in category x holds y, shape (k, k)."""
        pairs = [_chances(self.size, s, *self.levels)[:2] for s in self.sizes]
        own, other = np.average(np.array(pairs, dtype=float), axis=0, weights=self.shares)
        return np.asarray(other + (own - other) * np.eye(self.size))

    # -- exact ------------------------------------------------------------------------------------------------

    @cached_property
    def _terms(self) -> list[tuple[Fraction, Fraction, Fraction, Fraction]]:
        """For every size: its part of a, its weight times t², and the coefficients of the centred Gram matrix's diagonal entry and trace in a squared answer."""
        k, (high, low), people, found = self.size, self.levels, sum(self.shares), []
        for s, share in zip(self.sizes, self.shares):
            square = Fraction(share, people) * self._gain(s) ** 2
            held, other, pair, apart = _chances(k, s, high, low)
            part = square * s * (k - s) / (k * (k - 1))
            found.append((part, square, held - other - 2 * pair + 2 * apart, other - apart))
        return found

    def _gain(self, s: int) -> Fraction:
        """Return t."""
        high, low = self.levels
        return Fraction(self.size * (high - low), s * high + (self.size - s) * low)

    @cached_property
    def _scale(self) -> Fraction:
        """a, rounded down."""
        return Fraction(sum(math.floor(part * _UNIT) for part, *_ in self._terms), _UNIT)

    def cost(self, *, worst: bool) -> Fraction:
        """Return an upper bound of the worst variance, or of the mean variance plus ‖W‖²/k."""
        instance("worst", worst, bool)
        diagonal, sums, common = margins(self.workload)
        entries, trace = centred_diagonal(diagonal, sums, common)
        if not worst:
            return trace / self._scale + Fraction(int(diagonal.sum()), common * self.size) - trace / self.size
        found = []
        for g in (min(entries), max(entries)):  # the cost is linear between them
            terms = (square * (own * g + every * trace) for _, square, own, every in self._terms)
            found.append(Fraction(sum(math.ceil(term * _UNIT) for term in terms), _UNIT) / self._scale**2 - g)
        return max(found)

    @cached_property
    def variances(self) -> Array:
        """Variance of one report of each category, summed over the answers, shape (k,)."""
        entries, trace = centred_diagonal(*margins(self.workload))
        _, squares, own, every = np.array(self._terms, dtype=float).T
        unit, diagonal = float(self._scale) ** 2, np.array(entries, dtype=float)
        return np.asarray((squares @ own * diagonal + squares @ every * float(trace)) / unit - diagonal)

    # -- drawing ----------------------------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> _Sizes:
        high, low = self.levels
        inside = [(s * high, (self.size - s) * low) for s in self.sizes]
        return _Sizes([self.shares, *inside])

    def drawn(self, x: Numbers, source: Simulation | Deployment) -> Sets:
        """Draw a set for every category of `x` with the randomness of `source`, in a further axis of k entries: 1 in the set and 0 elsewhere."""
        held = indices("x", x, self.size)
        flat, step = held.ravel(), max(_DRAWN // self.size, 1)
        parts = [self._sets(flat[a : a + step], source) for a in range(0, flat.size, step)]
        return np.concatenate(parts).reshape(*held.shape, self.size)

    def _sets(self, x: Indices, source: Simulation | Deployment) -> Sets:
        which = source.choose(self._rows, np.zeros(x.size, dtype=np.int64))
        own = 1 - source.choose(self._rows, which + 1)
        others = source.order(x.size, self.size - 1) < (np.array(self.sizes)[which] - own)[:, None]
        # the person's own category swaps places with the last one
        found, at = np.append(others, np.zeros((x.size, 1)), axis=1).astype(np.int8), np.arange(x.size)
        found[at, -1] = found[at, x]
        found[at, x] = own
        return found

    # -- decoding ---------------------------------------------------------------------------------------------

    def tally(self, reports: Numbers) -> Array:
        """Count how often sets of each size hold each category, shape (sizes, k), in reports of shape (..., k); the counts suffice for `decode_counts`."""
        held = indices("reports", reports, 2)
        if held.ndim < 1 or held.shape[-1] != self.size:
            raise DataError(f"reports: must have {self.size} entries in its last axis")
        held = held.reshape(-1, self.size)
        lengths = held.sum(axis=1)
        if not np.isin(lengths, self.sizes).all():
            raise DataError(f"reports: must be sets of these sizes: {self.sizes}")
        return np.array([held[lengths == s].sum(axis=0) for s in self.sizes], dtype=float)

    def _counted(self, tally: Numbers) -> tuple[Array, Array]:
        held = np.atleast_2d(finite("tally", tally))
        allowed = f"tally: must be how often sets of {len(self.sizes)} sizes hold {self.size} categories"
        DataError.when(held.shape != (len(self.sizes), self.size) or (held < 0).any(), allowed)
        k, s = self.size, np.array(self.sizes)
        people = held.sum(axis=1) / s
        gains = [float(self._gain(n) / self._scale) for n in self.sizes]
        return gains @ (held - (people * s / k)[:, None]) + people.sum() / k, held

    def _spread(self, counts: Array, tally: Array) -> Array:
        """Return an unbiased estimate of the covariance of the counts, shape (k, k), which is linear in the counts."""
        k, people = self.size, float(counts.sum())
        found = np.zeros((k, k))
        for s, (_, weight, *_) in zip(self.sizes, self._terms):
            square = float(weight / self._scale**2)
            held, other, pair, apart = map(float, _chances(k, s, *self.levels))
            part = (pair - apart) * np.add.outer(counts, counts) + apart * people
            part[range(k), range(k)] = held * counts + other * (people - counts)
            # centred by the mean of a set, s/k, on both sides: rows and columns sum to 0
            means = part.mean(axis=0)
            found += square * (part - means[:, None] - means + means.mean())
        shift = (counts - people / k) / k
        found += np.add.outer(shift, shift) + people / k**2
        found[range(k), range(k)] -= counts
        return found


class _Sizes(Rows):
    """Laws in integer weights, indexed by number."""

    def __init__(self, rows: list[Sequence[int]]) -> None:
        self.rows = rows

    @property
    def laws(self) -> int:
        return len(self.rows)

    def integers(self, row: int) -> Sequence[int]:
        return self.rows[row]


def contrast(k: int, s: int, high: int, low: int) -> Fraction:
    """Return t² s(k − s)/k²."""
    return Fraction((high - low) ** 2 * s * (k - s), (s * high + (k - s) * low) ** 2)


def _chances(k: int, s: int, high: int, low: int) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Return the probabilities that a set holds the own category, another one, the own and another one, two other ones."""
    held = Fraction(s * high, s * high + (k - s) * low)
    apart = (s - 1) * (s - 2 * held) / ((k - 1) * (k - 2)) if k > 2 else Fraction(0)
    return held, (s - held) / (k - 1), held * (s - 1) / (k - 1), apart


def _sums(part: Queries) -> tuple[Any, Any, int]:
    """Return diagonal and row sums of the Gram matrix of queries, as integers over a common denominator."""
    n = part.size
    i = np.arange(1, n + 1).astype(object)
    if part.matrix is not None:
        rows, unit = common_integers(part.matrix)
        return (rows * rows).sum(axis=0), rows.T @ rows.sum(axis=1), unit * unit
    if part.kind == "ranges":
        return i * (n + 1 - i), i * (n + 1 - i) * (n + 1) // 2, 1
    if part.kind == "prefix":
        return n + 1 - i, (n - i + 1) * (n + i) // 2, 1
    return 0 * i + 1, 0 * i + (1 if part.kind == "identity" else n), 1


def margins(workload: Workload) -> tuple[Any, Any, int]:
    """Return diagonal and row sums of WᵀW, as integers over a common denominator, without forming the matrix."""
    found = []
    for block in workload.blocks:
        parts = [_sums(part) for part in block]
        diagonal, sums = (reduce(np.kron, each) for each in list(zip(*parts))[:2])
        found.append((diagonal, sums, math.prod(unit for *_, unit in parts)))
    common = math.lcm(*(unit for *_, unit in found))
    diagonal, sums = (sum(each[i] * (common // each[2]) for each in found) for i in (0, 1))
    return diagonal, sums, common


def centred_diagonal(diagonal: Any, sums: Any, common: int) -> tuple[list[Fraction], Fraction]:
    """Return diagonal and trace of the Gram matrix of W(I − 11ᵀ/k)."""
    k = len(diagonal)
    numbers = diagonal * k**2 - 2 * k * sums + sums.sum()
    return [Fraction(int(g), common * k**2) for g in numbers], Fraction(int(numbers.sum()), common * k**2)


def histogram(workload: Workload) -> bool:
    """Whether the workload treats all categories alike: it asks for every count, perhaps with the total, by these kinds of queries."""
    blocks = [{part.kind for part in block if part.size > 1} for block in workload.blocks]
    return {"identity"} in blocks and all(block in ({"identity"}, {"total"}) for block in blocks)
