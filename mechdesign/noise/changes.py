r"""Changes by one person: the corners of a sensitivity, and the steps of a stream in which one person takes part several times.

What a strategy R consumes, :math:`\lVert R d \rVert^2`, is convex in the change d, so that vertices are enough.

**Participation.** A *pattern* is a set of steps in which one person may take part. Two statements bound it: the same
place of every epoch, as in training in a fixed order (steps o, o + b, o + 2b, …), or any steps at least b apart
(Choquette-Choo et al. 2023, *Multi-epoch matrix factorization mechanisms for private machine learning*; *(Amplified)
banded matrix factorization*). In each step of the pattern the count moves by at most a, up or down (signed), or all up
or all down. The vertices are :math:`d = \pm a` on a pattern.

Of a lower triangular Toeplitz R whose coefficients do not rise and are at least 0, the products of the columns i < j do
not rise in j, nor in j − i, and are at least 0. Hence no pattern consumes more than 0, b, 2b, … (Kalinin and Lampert
2024, *Banded square root matrix factorization for differentially private model training*), and none needs to be listed.

Of a lower triangular R of b bands columns at least b apart have no row in common: a pattern consumes the sum of their
squared lengths, whatever its signs, and the largest such sum is found by dynamic programming.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise, product

import numpy as np
from scipy import linalg

from mechdesign.checks import UP, Checked, field, instance, integer, magnitude, one_of, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated_noise import EXACT, FULL, alike, column_bound, integers, most_consumed
from mechdesign.problem.sensitivity import Sensitivity, count_of, signed_supports
from mechdesign.typing import Array

LISTED = 10_000_000
"""Largest number of entries in a list of changes."""


def corners(sensitivity: Sensitivity, dimension: int) -> Array:
    """Return the corners, up to sign, of the changes within bounds on single coordinates and on how many change.

    An ℓ₁ bound alone has one corner a coordinate. Other sets are refused, and so are sets with too many corners.

    Examples
    --------
    >>> corners(Sensitivity(l1=2.0), 2)
    array([[2., 0.],
           [0., 2.]])
    """
    s, allowed = instance("sensitivity", sensitivity, Sensitivity), ""
    remedy = "do not say how many coordinates there are: use CorrelatedGaussian.of_sensitivity, or each="
    refuse(s.each is None and not dimension, "vectors", str(s), remedy)
    integer("dimension", dimension, 1)
    if not s.boxed(dimension):
        allowed = "has no list of corners: bounds of single coordinates, l0=, or l1= alone have one"
    elif s.corner_count(dimension) * dimension > LISTED:
        allowed = "has too many corners to list; of coordinates that are alike, CountsGaussian needs no list"
    refuse(allowed, "sensitivity", str(s), allowed)
    return s.corners(dimension)


class ChangeSet(ABC):
    """Changes by one person: the corners of a set of vectors, up to sign."""

    size: int
    most: float = 1.0
    listed: bool = True
    """Whether `vectors` are all corners. Some of them prove a lower bound, but not that a strategy keeps the budget."""
    alone: bool = False
    """Whether one coordinate changes at a time, each by at most `most`."""

    @property
    def count(self) -> int:
        """Number of corners, up to sign."""
        return len(self.vectors())

    @abstractmethod
    def vectors(self) -> Array:
        """Return the corners, up to sign, shape (k, n)."""

    def consumed(self, strategy: Array) -> tuple[float, bool]:
        """Return an upper bound on the budget that a change consumes under a strategy, and whether it is a rational number rounded up."""
        return most_consumed(strategy, self.vectors())


@dataclass(frozen=True, eq=False)
class Listed(ChangeSet):
    """A list of vectors."""

    rows: Array

    @property
    def size(self) -> int:  # type: ignore[override]
        return int(self.rows.shape[1])

    def vectors(self) -> Array:
        return self.rows


@serializable("count-changes")
class Changes(Checked, ChangeSet):
    """At most `l0` of `size` counts change, each by at most `most`.

    Parameters
    ----------
    size : int
        n.
    l0 : int
        c ≤ n.
    most : float
        a.
    signed : bool
        Whether some counts may rise while others fall.

    Examples
    --------
    >>> Changes(20, 3, signed=False).count, Changes(20, 3).count
    (1350, 4560)
    """

    size: int = field(check=integer, least=1, most=FULL)
    l0: int = field(check=integer, least=1, most=lambda self: self.size, default=1)
    most: float = field(check=magnitude, side=UP, default=1.0)
    signed: bool = field(check=one_of, allowed=(True, False), default=True)

    @property
    def count(self) -> int:
        return count_of(self.size, self.l0, signed=self.signed)

    @property
    def alone(self) -> bool:  # type: ignore[override]
        return self.l0 == 1

    def check(self) -> None:
        """Raise DesignError if the list is too long."""
        if not self.alone and self.count * self.size > LISTED:
            remedy = "ask for fewer counts, or, of all counts, CountsGaussian, which needs no list"
            said = f"of {self.size} counts makes {self.count} different changes, too many to list; {remedy}"
            raise DesignError.of("l0", self.l0, said)

    def vectors(self) -> Array:
        return self.most * signed_supports(self.size, self.l0, signed=self.signed)

    def consumed(self, strategy: Array) -> tuple[float, bool]:
        if (two := alike(strategy)) is not None and strategy.shape == (self.size, self.size):
            return round_up(self._of_sizes(*two)), True
        if self.alone and self.size > EXACT:
            return column_bound(strategy, self.most), False
        return super().consumed(strategy)

    def _of_sizes(self, p: Fraction, q: Fraction) -> Fraction:
        """Return the largest p² Σ v² + (2pq + n q²)(Σ v)² over the changes v; with free signs, Σ v of k counts lies between 0 and k a."""
        cross, square = 2 * p * q + self.size * q * q, Fraction(self.most) ** 2
        if self.signed:
            cross = max(cross, Fraction(0))
        return max((p * p * k + cross * k * k) * square for k in range(1, self.l0 + 1))

    def words(self) -> str:
        """Return the statement for a page."""
        how = "some up and others down" if self.signed else "all up or all down"
        return f"at most {self.l0} of the {self.size} counts change by at most {shown(self.most)} each, {how}"


@serializable("participation")
class Participation(Checked):
    """Limits on one person's participation in a stream: how often, and how far apart.

    Parameters
    ----------
    times : int
        k: one person takes part in at most this many steps.
    apart : int, optional
        b: any two of these steps are at least this far apart.
    every : int, optional
        b: these steps are in the same place of every epoch of b steps, o, o + b, o + 2b, … for some o. Give either `apart` or `every`.
    fewer : bool
        Whether a person may take part fewer than k times. False: everybody takes part exactly k times, as in training on
        whole epochs. That costs less where all counts move the same way, but does not protect whoever takes part less often.

    Raises
    ------
    DesignError
        Neither or both of `apart` and `every` are given.

    Notes
    -----
    Nobody can take part k times where (k − 1) b ≥ n. Every pattern of ``every=b`` is one of ``apart=b``, which therefore costs more and has many more
    patterns: where they are too many to list, up to √(10⁷/2k) steps are accepted (1,118 for four times, 559 for sixteen).

    Examples
    --------
    >>> Participation(2, every=3).patterns(6)
    [(0, 3), (1, 4), (2, 5)]
    >>> Participation(2, apart=3).patterns(6)
    [(0, 3), (0, 4), (0, 5), (1, 4), (1, 5), (2, 5)]
    """

    times: int = field(check=integer, least=1, most=10**6)
    apart: int | None = field(check=integer, least=1, most=10**6, default=None)
    every: int | None = field(check=integer, least=1, most=10**6, default=None)
    fewer: bool = field(check=one_of, allowed=(True, False), default=True)

    def _post_check(self) -> None:
        if (self.apart is None) == (self.every is None):
            meant = "at least so many steps apart, or in the same place of every epoch of so many"
            raise DesignError.of("apart", self.apart, f"or every must be given, not both: {meant}")

    @property
    def step(self) -> int:
        """b."""
        return self.apart or self.every or 1

    def check(self, size: int) -> None:
        """Raise DesignError if nobody can take part that often in `size` steps."""
        most = -(-size // self.step)
        if self.times > most:
            name = "apart" if self.apart is not None else "every"
            said = f"cannot happen in {size} steps: {self.step} apart one takes part at most {most} times"
            raise DesignError.of("participation", f"times={self.times}, {name}={self.step}", said)

    def patterns(self, size: int) -> list[tuple[int, ...]]:
        """List the maximal patterns in `size` steps, or with ``fewer=False`` those of exactly k steps."""
        self.check(size)
        k, b = self.times, self.step
        if self.every is not None:
            epochs = (range(start, size, b) for start in range(min(b, size)))
            found = [part for places in epochs for part in combinations(places, min(k, len(places)))]
        else:  # no further step fits
            found = [
                chosen
                for chosen in self._spread((), size)
                if len(chosen) == k or all(y - x < 2 * b for x, y in pairwise((-b, *chosen, size - 1 + b)))
            ]
        return found if self.fewer else [pattern for pattern in found if len(pattern) == k]

    def _spread(self, chosen: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
        """Yield all sets of steps that are far enough apart and begin with those chosen."""
        if chosen:
            yield chosen
        if len(chosen) < self.times:
            for j in range(chosen[-1] + self.step if chosen else 0, size):
                yield from self._spread((*chosen, j), size)

    def count(self, size: int, *, signed: bool) -> int:
        """Return an upper bound on the number of vertices, up to sign, without listing them."""
        b, k = self.step, self.times
        signs = 2 ** (k - 1) if signed else 1
        if self.every is not None:
            epochs = [len(range(start, size, b)) for start in range(min(b, size))]
            if signed or not self.fewer:
                return signs * sum(math.comb(count, min(k, count)) for count in epochs)
            return sum(math.comb(count, t) for count in epochs for t in range(1, k + 1))
        return signs * sum(math.comb(max(size - (t - 1) * (b - 1), 0), t) for t in range(1, k + 1))

    def vectors(self, size: int, *, signed: bool = True) -> Array:
        """Return the vertices divided by a, up to sign, shape (m, size); `CorrelatedGaussian` accepts them multiplied by a workload.

        Examples
        --------
        >>> Participation(2, every=2).vectors(4, signed=False).astype(int).tolist()
        [[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0], [1, 0, 1, 0]]
        """
        patterns = self.patterns(size)
        if not signed and self.fewer:
            patterns = sorted(
                {part for full in patterns for k in range(1, len(full) + 1) for part in combinations(full, k)}
            )
        rows = []
        for pattern in patterns:
            for signs in product((1.0, -1.0), repeat=len(pattern) - 1 if signed else 0):
                row = np.zeros(size)
                row[list(pattern)] = (1.0, *signs) if signed else 1.0
                rows.append(row)
        return np.unique(np.array(rows), axis=0) if not signed else np.array(rows)

    def words(self) -> str:
        """Describe the limits for a report page; the number of steps is left open."""
        often = f"at most {self.times}" if self.fewer else f"exactly {self.times}"
        where = f"at least {self.apart} apart"
        if self.apart is None:
            where = f"in the same place of every epoch of {self.every} steps"
        return f"one person takes part in {often} of the {{size}} steps, {where}"


@serializable("pattern-changes")
class Patterns(Checked, ChangeSet):
    """Changes of a stream's counts by one person who takes part several times.

    Parameters
    ----------
    size : int
        n.
    participation : Participation
    most : float
        a: the most that one count changes.
    signed : bool
        Whether some counts may rise while others fall.
    """

    size: int = field(check=integer, least=1, most=FULL)
    participation: Participation = field(Participation)
    most: float = field(check=magnitude, side=UP, default=1.0)
    signed: bool = field(check=one_of, allowed=(True, False), default=True)

    @property
    def alone(self) -> bool:  # type: ignore[override]
        return self.participation.times == 1

    @cached_property
    def listed(self) -> bool:  # type: ignore[override]
        return self.participation.count(self.size, signed=self.signed) * self.size <= LISTED

    @cached_property
    def _vectors(self) -> Array:
        return self.participation.vectors(self.size, signed=self.signed) if self.listed else self._steady

    @property
    def _steady(self) -> Array:
        """Vertices on o, o + b, o + 2b, …: signed, with all signs up to five steps and those of a Hadamard matrix beyond; else also with fewer steps."""
        n, k, b = self.size, self.participation.times, self.participation.step
        if not self.signed:
            return np.concatenate(
                [np.tri(k)[:, : len(range(o, n, b))] @ np.eye(n)[o::b][:k] for o in range(n)]
            )
        found = []
        for o in range(max(min(b, n), n - (k - 1) * b)):
            steps = range(o, n, b)[:k]
            signs = linalg.hadamard(1 << (k - 1).bit_length())[:, : len(steps)]
            if k <= 5:
                signs = np.array([(1, *rest) for rest in product((1, -1), repeat=len(steps) - 1)])
            found.append(signs @ np.eye(n)[list(steps)])
        return np.concatenate(found)

    def words(self) -> str:
        """Return the statement for a page."""
        how = "rise or fall" if self.signed else "change, all up or all down,"
        return f"{self.participation.words().format(size=self.size)}; the counts of these {how} by at most {shown(self.most)}"

    @property
    def first(self) -> Array:
        """The pattern 0, b, 2b, …, shape (1, n)."""
        row, (k, b) = np.zeros((1, self.size)), (self.participation.times, self.participation.step)
        row[0, : k * b : b] = 1.0
        return row

    def check(self) -> None:
        """Raise DesignError where nobody can take part so often, the list is too long, or the changes leave directions unprotected."""
        asked = self.participation
        asked.check(self.size)
        served = asked.fewer and 2 * asked.times * self.size**2 <= LISTED
        if not self.listed and not served:
            said = (
                f"at least {asked.step} apart in {self.size} steps makes too many patterns to list; the same place of every "
                f"epoch (every={asked.step}), fewer times, or fewer steps make fewer, and at most "
                f"{math.isqrt(LISTED // (2 * asked.times))} steps with fewer=True need no list; nor do prefix sums with buffers="
            )
            raise DesignError.of("participation", f"times={asked.times}", said)
        if not asked.fewer:
            # vectors of all signs span the steps of their patterns
            rank = int(
                self._vectors.any(axis=0).sum() if self.signed else np.linalg.matrix_rank(self._vectors)
            )
            other = "" if self.signed else "signed=True or "
            said = (
                f"with signed={self.signed} has changes that span {rank} of {self.size} dimensions, and who takes part less often "
                f"is not protected: say {other}fewer=True, or, if nothing else can change, CorrelatedGaussian("
                f"participation.vectors(size, signed={self.signed}) @ A.T, privacy, span=True)"
            )
            refuse(rank < self.size, "participation", "fewer=False", said)

    def vectors(self) -> Array:
        return self.most * self._vectors

    def consumed(self, strategy: Array) -> tuple[float, bool]:
        """Return the bound of `ChangeSet.consumed`; infinite where patterns are too many to list and the strategy's worst one is not known."""
        if self.listed:
            return super().consumed(strategy)
        k, b = self.participation.times, self.participation.step
        if np.array_equal(strategy, np.tril(strategy) - np.tril(strategy, -b)):
            return round_up(Fraction(self.most) ** 2 * _most_apart(strategy, k, b)), True
        column = strategy[:, 0]
        steady = np.array_equal(strategy, np.tril(linalg.toeplitz(column)))
        if not steady or column[-1] < 0 or (np.diff(column) > 0).any():
            return math.inf, True
        return most_consumed(strategy, self.most * self.first)


def _most_apart(strategy: Array, times: int, apart: int) -> Fraction:
    """Return the largest sum of squared lengths of so many columns at least so far apart, by dynamic programming over their first column."""
    held, unit = integers(strategy)
    squares, size = (held * held).sum(axis=0), len(strategy)
    best = [0] * (size + apart)
    for _ in range(times):
        rest, best = best, [0] * (size + apart)
        for j in reversed(range(size)):
            best[j] = max(best[j + 1], squares[j] + rest[j + apart])
    return best[0] * unit**2
