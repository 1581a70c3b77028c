r"""Reports that are a set of categories, drawn without a table: subset selection, k-ary response and unary encodings.

A size s is drawn, and then a set S of s of the k categories with weight A where it holds the person's own and B elsewhere, :math:`A \le e^\varepsilon B`. The size says
nothing of the person. With :math:`D = sA + (k - s)B`, :math:`t_s = k(A - B)/D` and the ray :math:`u = 1 + t_s (1_S - s/k)`

.. math:: M = a I + \frac{k - a}{k} 1 1^\top, \quad a = \frac{1}{k (k - 1)} \sum_s w_s t_s^2 s (k - s), \quad
    M^{-1} u = \frac{t_s}{a} (1_S - s/k) + \frac 1k ,

whatever is asked. Unary encodings are such reports: a word of bits is as much more likely for a category whose bit is set as e^ε says, and its size is independent of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign.channels.exact import common_integers
from mechdesign.channels.linear_report import LinearDecoder
from mechdesign.channels.responses import TOP, level
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.exact import log_upper
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import Checked, field, finite, indices, inside, instance, integer, positive
from mechdesign.problem.mechanism import Deployment, Rows, Simulation
from mechdesign.problem.workload import Queries, Workload
from mechdesign.typing import Array, Indices, Numbers

Sets = npt.NDArray[np.int8]
_DRAWN = 1 << 22  # entries drawn at a time
_UNIT = 1 << 256  # of the fixed point that sums over sizes are rounded to, outwards
_SHARES = 1 << 40  # that the weights of sizes sum to, nearly


def _positive(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or not value:
        raise DesignError.of(name, value, "must be a list of positive integers")
    return tuple(integer(name, w, 1) for w in value)


@serializable("subset-report")
@dataclass(frozen=True, eq=False)
class SubsetReport(Checked, LinearDecoder):
    """A local report that is a set of categories, with its decoder for linear queries on their counts.

    Parameters
    ----------
    workload : Workload
        W, on k counts.
    sizes : sequence of int
        How many categories a set has.
    shares : sequence of int
        How often, in proportion.
    levels : (int, int)
        A and B: weights of a set that holds the person's own category, and of another.

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
    sizes: tuple[int, ...] = field(check=_positive)
    shares: tuple[int, ...] = field(check=_positive)
    levels: tuple[int, int] = field(check=_positive)

    prior = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if sorted({*self.sizes}) != [*self.sizes] or self.sizes[0] >= self.size or self.sizes[-1] > self.size:
            raise DesignError.of(
                "sizes", self.sizes, f"must increase, from below {self.size} to at most {self.size}"
            )
        if len(self.shares) != len(self.sizes):
            raise DesignError.of("shares", len(self.shares), f"must be {len(self.sizes)}, one for each size")
        if len(self.levels) != 2 or self.levels[0] <= self.levels[1]:
            raise DesignError.of("levels", self.levels, "must be two, the first larger")

    @classmethod
    def selection(cls, workload: Workload, epsilon: float, size: int | None = None) -> SubsetReport:
        """Subset selection (Wang et al. 2016, Ye and Barg 2018) of the best size, or of this one; of size 1 it is k-ary response."""
        k = instance("workload", workload, Workload).size
        high, low = TOP, level(Fraction(positive("epsilon", epsilon)))
        if size is not None:
            integer("size", size, least=1, most=k - 1)
        else:
            # s(k − s)/D² has one peak, near k/(ρ + 1)
            near = k * low // (high + low)
            size = max(range(max(near - 1, 1), min(near + 3, k)), key=lambda s: contrast(k, s, high, low))
        return cls(workload, (size,), (1,), (high, low))

    @classmethod
    def unary(cls, workload: Workload, epsilon: float, kept: float, turned: float) -> SubsetReport:
        """A unary encoding: the own bit is set with probability `kept`, others with `turned`; no bits tell as little as all."""
        k = instance("workload", workload, Workload).size
        for name, chance in (("kept", kept), ("turned", turned)):
            inside(name, chance, 1e-12, 1 - 1e-12)
        positive("epsilon", epsilon)
        s = np.arange(k)
        logs = [math.lgamma(k) - math.lgamma(i + 1) - math.lgamma(k - i) for i in s]
        others = np.exp(logs + s * math.log(turned) + (k - 1 - s) * math.log1p(-turned))
        chances = np.append((1 - kept) * others, 0.0) + np.append(0.0, kept * others)
        chances[-1] += chances[0]
        weights = {i: round(float(chances[i]) * _SHARES) for i in range(1, k + 1)}
        some = {i: w for i, w in weights.items() if w}
        return cls(workload, tuple(some), tuple(some.values()), (TOP, level(Fraction(epsilon))))

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
        """Weights of one report for the categories it holds and for others."""
        yield self.levels

    @cached_property
    def epsilon(self) -> float:
        """The least ε, rounded up."""
        return log_upper(Fraction(*self.levels))

    @property
    def chances(self) -> Array:
        """That the set of a person of category x holds y, shape (k, k)."""
        pairs = [_chances(self.size, s, *self.levels)[:2] for s in self.sizes]
        own, other = np.average(np.array(pairs, dtype=float), axis=0, weights=self.shares)
        return np.asarray(other + (own - other) * np.eye(self.size))

    # -- exact ------------------------------------------------------------------------------------------------

    @cached_property
    def _terms(self) -> list[tuple[Fraction, Fraction, Fraction, Fraction]]:
        """Of every size: its part of a; its weight times t²; what an entry of the centred Gram matrix's diagonal, and its trace, add to a squared answer."""
        k, (high, low), people, found = self.size, self.levels, sum(self.shares), []
        for s, share in zip(self.sizes, self.shares):
            square = Fraction(share, people) * self._gain(s) ** 2
            held, other, pair, apart = _chances(k, s, high, low)
            part = square * s * (k - s) / (k * (k - 1))
            found.append((part, square, held - other - 2 * pair + 2 * apart, other - apart))
        return found

    def _gain(self, s: int) -> Fraction:
        """t."""
        high, low = self.levels
        return Fraction(self.size * (high - low), s * high + (self.size - s) * low)

    @cached_property
    def _scale(self) -> Fraction:
        """A number next below a."""
        return Fraction(sum(math.floor(part * _UNIT) for part, *_ in self._terms), _UNIT)

    def cost(self, *, worst: bool) -> Fraction:
        """An upper bound of the worst variance, or of the mean variance and ‖W‖²/k."""
        diagonal, sums, common = margins(self.workload)
        entries, trace = centred_diagonal(diagonal, sums, common)
        if not worst:
            return trace / self._scale + Fraction(int(diagonal.sum()), common * self.size) - trace / self.size
        found = []
        for g in (min(entries), max(entries)):  # between them it is linear
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
        """Draw a set for every category of `x` with the randomness of `source`: one more axis of k entries, 1 in the set and 0 elsewhere."""
        held = indices("x", x, self.size)
        flat, step = held.ravel(), max(_DRAWN // self.size, 1)
        parts = [self._sets(flat[a : a + step], source) for a in range(0, flat.size, step)]
        return np.concatenate(parts).reshape(*held.shape, self.size)

    def _sets(self, x: Indices, source: Simulation | Deployment) -> Sets:
        which = source.choose(self._rows, np.zeros(x.size, dtype=np.int64))
        own = 1 - source.choose(self._rows, which + 1)
        others = source.order(x.size, self.size - 1) < (np.array(self.sizes)[which] - own)[:, None]
        # the last category's place is filled by the one that the person's own displaces
        found, at = np.append(others, np.zeros((x.size, 1)), axis=1).astype(np.int8), np.arange(x.size)
        found[at, -1] = found[at, x]
        found[at, x] = own
        return found

    # -- decoding ---------------------------------------------------------------------------------------------

    def tally(self, reports: Numbers) -> Array:
        """How often sets of each size hold each category, shape (sizes, k): what may be sent on in place of the reports, shape (..., k)."""
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
        if held.shape != (len(self.sizes), self.size) or (held < 0).any():
            raise DataError(
                f"tally: must be how often sets of {len(self.sizes)} sizes hold {self.size} categories"
            )
        k, s = self.size, np.array(self.sizes)
        people = held.sum(axis=1) / s
        gains = [float(self._gain(n) / self._scale) for n in self.sizes]
        return gains @ (held - (people * s / k)[:, None]) + people.sum() / k, held

    def _spread(self, counts: Array, tally: Array) -> Array:
        """An unbiased estimate of the covariance of the counts, shape (k, k): it is linear in the counts."""
        k, people = self.size, float(counts.sum())
        found = np.zeros((k, k))
        for s, (_, weight, *_) in zip(self.sizes, self._terms):
            square = float(weight / self._scale**2)
            held, other, pair, apart = map(float, _chances(k, s, *self.levels))
            part = (pair - apart) * np.add.outer(counts, counts) + apart * people
            part[range(k), range(k)] = held * counts + other * (people - counts)
            # less the mean of a set, s/k, which is taken off on both sides: rows and columns sum to 0
            means = part.mean(axis=0)
            found += square * (part - means[:, None] - means + means.mean())
        shift = (counts - people / k) / k
        found += np.add.outer(shift, shift) + people / k**2
        found[range(k), range(k)] -= counts
        return found


class _Sizes(Rows):
    """Laws to choose from, by number."""

    def __init__(self, rows: list[Sequence[int]]) -> None:
        self.rows = rows

    @property
    def laws(self) -> int:
        return len(self.rows)

    def integers(self, row: int) -> Sequence[int]:
        return self.rows[row]


def contrast(k: int, s: int, high: int, low: int) -> Fraction:
    """t² s(k − s)/k²."""
    return Fraction((high - low) ** 2 * s * (k - s), (s * high + (k - s) * low) ** 2)


def _chances(k: int, s: int, high: int, low: int) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """That a set holds the own category, another, the own and another, two others."""
    held = Fraction(s * high, s * high + (k - s) * low)
    apart = (s - 1) * (s - 2 * held) / ((k - 1) * (k - 2)) if k > 2 else Fraction(0)
    return held, (s - held) / (k - 1), held * (s - 1) / (k - 1), apart


def _sums(part: Queries) -> tuple[Any, Any, int]:
    """Diagonal and row sums of the Gram matrix of queries, as integers over a common denominator."""
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
    """Diagonal and row sums of WᵀW, as integers over a common denominator; the matrix is not formed."""
    found = []
    for block in workload.blocks:
        parts = [_sums(part) for part in block]
        diagonal, sums = (reduce(np.kron, each) for each in list(zip(*parts))[:2])
        found.append((diagonal, sums, math.prod(unit for *_, unit in parts)))
    common = math.lcm(*(unit for *_, unit in found))
    diagonal, sums = (sum(each[i] * (common // each[2]) for each in found) for i in (0, 1))
    return diagonal, sums, common


def centred_diagonal(diagonal: Any, sums: Any, common: int) -> tuple[list[Fraction], Fraction]:
    """Diagonal and trace of the Gram matrix of W(I − 11ᵀ/k)."""
    k = len(diagonal)
    numbers = diagonal * k**2 - 2 * k * sums + sums.sum()
    return [Fraction(int(g), common * k**2) for g in numbers], Fraction(int(numbers.sum()), common * k**2)


def histogram(workload: Workload) -> bool:
    """Whether all categories are alike: every count is asked for, and perhaps the total, by these kinds of queries."""
    blocks = [{part.kind for part in block if part.size > 1} for block in workload.blocks]
    return {"identity"} in blocks and all(block in ({"identity"}, {"total"}) for block in blocks)
