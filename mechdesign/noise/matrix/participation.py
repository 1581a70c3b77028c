r"""Streams in which one person takes part several times: which steps one person moves, and what that consumes.

A *pattern* is a set of steps in which one person may take part. Two statements bound it: the same place of every epoch, as in
training in a fixed order (steps o, o + b, o + 2b, …), or any steps at least b apart (Choquette-Choo et al. 2023, *Multi-epoch matrix
factorization mechanisms for private machine learning*; *(Amplified) banded matrix factorization*). In each step of the pattern the count moves by
at most a, up or down (signed), or all up or all down. What a strategy consumes, :math:`\lVert R d\rVert^2`, is convex in d, so that it
is largest at a vertex: :math:`d = \pm a` on a pattern.

Of a lower triangular Toeplitz R whose coefficients do not rise and are at least 0, the products of the columns i < j do not rise in j, nor in
j − i, and are at least 0. Hence no pattern consumes more than 0, b, 2b, … (Kalinin and Lampert 2024, *Banded square root
matrix factorization for differentially private model training*), and none needs to be listed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, product

import numpy as np
from scipy import linalg

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.corners import LISTED, Changes
from mechdesign.noise.correlated.noise import largest_spent
from mechdesign.problem.checks import integer, one_of, settle
from mechdesign.problem.fields import Checked, field
from mechdesign.typing import Array


@serializable("participation")
@dataclass(frozen=True)
class Participation(Checked):
    """How often, and how far apart, one person takes part in a stream.

    Parameters
    ----------
    times : int
        k: in so many steps, at most.
    apart : int, optional
        b: two of them are at least so many steps apart.
    every : int, optional
        b: they are in the same place of every epoch of so many steps, o + b, o + 2b, … for some o. Either `apart` or `every`.
    fewer : bool
        Whether a person may take part fewer than k times. False: everybody takes part exactly k times, as in training on
        whole epochs. That costs less where all move the same way, and protects nobody who takes part less often.

    Raises
    ------
    DesignError
        Neither or both of `apart` and `every`.

    Notes
    -----
    Every pattern of ``every=b`` is one of ``apart=b``, which costs more.

    Examples
    --------
    >>> Participation(2, every=3).patterns(6)
    [(0, 3), (1, 4), (2, 5)]
    >>> Participation(2, apart=3).patterns(6)
    [(0, 3), (0, 4), (0, 5), (1, 4), (1, 5), (2, 5)]
    """

    times: int = field(check=integer, least=1, most=10**6)
    apart: int | None = None
    every: int | None = None
    fewer: bool = field(check=one_of, allowed=(True, False), default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("apart", "every"):
            if (value := getattr(self, name)) is not None:
                settle(self, **{name: integer(name, value, 1, 10**6)})
        if (self.apart is None) == (self.every is None):
            raise DesignError.of(
                "apart",
                self.apart,
                "or every must be given, not both: at least so many steps apart, or in the same place of every epoch of so many",
            )

    @property
    def step(self) -> int:
        """b."""
        return self.apart or self.every or 1

    def check(self, size: int) -> None:
        """Raise DesignError where nobody can take part so often in `size` steps."""
        most = -(-size // self.step)
        if self.times > most:
            name = "apart" if self.apart is not None else "every"
            raise DesignError.of(
                "participation",
                f"times={self.times}, {name}={self.step}",
                f"cannot happen in {size} steps: {self.step} apart a person takes part at most {most} times",
            )

    def patterns(self, size: int) -> list[tuple[int, ...]]:
        """The largest patterns in `size` steps: none is part of another; with ``fewer=False`` those of exactly k steps."""
        self.check(size)
        b = self.step
        if self.every is not None:
            epochs = (range(start, size, b) for start in range(min(b, size)))
            found = [part for places in epochs for part in combinations(places, min(self.times, len(places)))]
        else:
            found = [chosen for chosen in self._spread((), size) if self._full(chosen, size)]
        return found if self.fewer else [pattern for pattern in found if len(pattern) == self.times]

    def _spread(self, chosen: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
        """All sets of steps that are far enough apart and begin with those chosen."""
        if chosen:
            yield chosen
        if len(chosen) < self.times:
            for j in range(chosen[-1] + self.step if chosen else 0, size):
                yield from self._spread((*chosen, j), size)

    def _full(self, chosen: tuple[int, ...], size: int) -> bool:
        """Whether nothing can be added."""
        b = self.step
        ends = (-b, *chosen, size - 1 + b)
        return len(chosen) == self.times or all(y - x < 2 * b for x, y in pairwise(ends))

    def count(self, size: int, *, signed: bool) -> int:
        """How many vertices there are, up to sign, at most: before they are listed."""
        b, k = self.step, self.times
        signs = 2 ** (k - 1) if signed else 1
        if self.every is not None:
            epochs = [len(range(start, size, b)) for start in range(min(b, size))]
            if signed or not self.fewer:
                return signs * sum(math.comb(count, min(k, count)) for count in epochs)
            return sum(math.comb(count, t) for count in epochs for t in range(1, k + 1))
        return signs * sum(math.comb(max(size - (t - 1) * (b - 1), 0), t) for t in range(1, k + 1))

    def vectors(self, size: int, *, signed: bool = True) -> Array:
        """The vertices over a, up to sign, shape (m, size): what `CorrelatedGaussian` takes, times the workload.

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
        """The statement, for a page, with the number of steps left open."""
        often = f"at most {self.times}" if self.fewer else f"exactly {self.times}"
        where = (
            f"at least {self.apart} apart"
            if self.apart is not None
            else f"in the same place of every epoch of {self.every} steps"
        )
        return f"one person takes part in {often} of the {{size}} steps, {where}"


@dataclass(frozen=True)
class Patterns(Changes):
    """What one person who takes part several times does to the counts of a stream.

    Parameters
    ----------
    participation : Participation
    sums : bool
        Whether prefix sums are asked: where the patterns are too many to list, a Toeplitz strategy answers them.
    """

    participation: Participation = Participation(1, every=1)
    sums: bool = False

    @cached_property
    def listed(self) -> bool:  # type: ignore[override]
        return self.participation.count(self.size, signed=self.signed) * self.size <= LISTED

    @cached_property
    def _vectors(self) -> Array:
        return self.participation.vectors(self.size, signed=self.signed) if self.listed else self._steady

    @property
    def _steady(self) -> Array:
        """The vertices of o, o + b, o + 2b, …: with signs of orthogonal columns, or with fewer steps."""
        k, b = self.participation.times, self.participation.step
        signs = linalg.hadamard(1 << (k - 1).bit_length())[:, :k] if self.signed else np.tri(k)
        rows = np.zeros((self.size, len(signs), self.size))
        for start in range(self.size):
            steps = range(start, self.size, b)[:k]
            rows[start][:, steps] = signs[:, : len(steps)]
        return rows.reshape(-1, self.size)

    @property
    def count(self) -> int:
        """How many vertices are listed, up to sign."""
        return len(self._vectors)

    @cached_property
    def first(self) -> Array:
        """The pattern 0, b, 2b, …, shape (1, n)."""
        row = np.zeros((1, self.size))
        row[0, : self.participation.times * self.participation.step : self.participation.step] = 1.0
        return row

    def check(self) -> None:
        """Raise DesignError where nobody can take part so often, the list is too long, or a step is protected in no vertex's span."""
        asked = self.participation
        asked.check(self.size)
        served = self.sums and asked.fewer and 2 * asked.times * self.size**2 <= LISTED
        if not self.listed and not served:
            raise DesignError.of(
                "participation",
                f"times={asked.times}",
                f"at least {asked.step} apart in {self.size} steps makes too many patterns to list; the same place of every "
                f"epoch (every={asked.step}), fewer times, or fewer steps make fewer, and prefix sums of at most "
                f"{math.isqrt(LISTED // (2 * asked.times))} steps with fewer=True need no list",
            )
        if not self.signed and not asked.fewer:
            rank = int(np.linalg.matrix_rank(self._vectors))
            if rank < self.size:
                raise DesignError.of(
                    "participation",
                    "fewer=False",
                    f"with signed=False has changes that span {rank} of {self.size} dimensions, and who takes part less often is not "
                    "protected: say signed=True or fewer=True, or, if nothing else can change, CorrelatedGaussian("
                    "participation.vectors(size, signed=False) @ A.T, privacy, span=True)",
                )

    def vectors(self) -> Array:
        """The vertices over a, up to sign, shape (k, n)."""
        return self._vectors

    def spent(self, strategy: Array) -> tuple[float, bool]:
        """Upper bound on the budget that a pattern consumes, and whether it is rational; infinite where it would need a list."""
        if self.listed:
            return super().spent(strategy)
        column = strategy[:, 0]
        steady = np.array_equal(strategy, np.tril(linalg.toeplitz(column)))
        if not steady or column[-1] < 0 or (np.diff(column) > 0).any():
            return math.inf, True
        return largest_spent(strategy, self.most * self.first)
