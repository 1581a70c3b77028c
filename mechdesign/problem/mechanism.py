"""Bases of mechanisms on finite tables in integers: `sample` simulates answers, `release` draws them exactly. No solver is imported."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from mechdesign.checks import generator
from mechdesign.evidence.page import Saved
from mechdesign.evidence.sampling import IntegerRows, random_words, uniform_integers
from mechdesign.typing import Array, Indices, Numbers, Randomness


class Rows(ABC):
    """Laws on the same outputs in integer weights, one per row."""

    @property
    @abstractmethod
    def laws(self) -> int:
        """Number of laws."""

    @abstractmethod
    def integers(self, row: int) -> Sequence[int]:
        """Return the probabilities of a law as exact integer weights, by which `release` draws."""

    def cumulative(self, row: int) -> Array:
        """Return the running sums of a law's probabilities as doubles, without the last; `sample` inverts them."""
        sums = list(accumulate(self.integers(row)))
        return np.array([s / sums[-1] for s in sums[:-1]])

    @cached_property
    def exact_rows(self) -> IntegerRows:
        """All laws, prepared for exact draws."""
        return IntegerRows(self.integers, self.laws)


class Simulation:
    """Draw in doubles with a seeded generator: fast and reproducible, but accurate to rounding only.

    Parameters
    ----------
    rng : int or numpy Generator, optional
    """

    def __init__(self, rng: Randomness = None) -> None:
        self.rng = generator(rng)

    def below(self, bound: int, size: int) -> Indices:
        """Uniform integers below `bound`."""
        return self.rng.integers(0, bound, size=size)

    def choose(self, rows: Rows, which: Indices) -> Indices:
        """Draw an index from the law of row `which[i]`, for every i."""
        uniform = self.rng.random(which.size)
        return _by_row(which, lambda row, at: np.searchsorted(rows.cumulative(row), uniform[at], "right"))

    def order(self, rows: int, size: int) -> Indices:
        """Permutations of 0, …, size − 1, shape (rows, size)."""
        return self.rng.permuted(np.tile(np.arange(size), (rows, 1)), axis=1)


class Deployment:
    """Draw exactly from the analysed law, with integers and the operating system's randomness."""

    def below(self, bound: int, size: int) -> Indices:
        """Uniform integers below `bound`."""
        return uniform_integers(bound, size)

    def choose(self, rows: Rows, which: Indices) -> Indices:
        """Draw an index from the law of row `which[i]`, for every i."""
        return rows.exact_rows.draw(which)

    def order(self, rows: int, size: int) -> Indices:
        """Permutations of 0, …, size − 1, each exactly uniform, shape (rows, size).

        Sorting independent random words gives a uniform permutation if no two agree; otherwise all are drawn again.
        """
        while True:
            words = random_words(rows * size).reshape(rows, size)
            found = np.argsort(words, axis=1)
            sorted_words = np.take_along_axis(words, found, axis=1)
            if (sorted_words[:, 1:] != sorted_words[:, :-1]).all():
                return found


def _by_row(which: Indices, draw: Callable[[int, Indices], Numbers]) -> Indices:
    out = np.empty(which.size, dtype=np.int64)
    order = np.argsort(which, kind="stable")
    used, starts = np.unique(which[order], return_index=True)
    for row, at in zip(used.tolist(), np.split(order, starts[1:])):
        out[at] = draw(row, at)
    return out


class Drawn(Saved, ABC):
    """A mechanism that draws outputs by the same steps in simulation and deployment, from different sources of randomness."""

    @abstractmethod
    def drawn(self, x: Any, source: Simulation | Deployment) -> Any:
        """Draw outputs for `x` with the randomness of `source`."""

    def sample(self, x: Any, *, rng: Randomness = None) -> Any:
        """Draw outputs for `x` in doubles with a seeded generator: for simulation; `release` deploys.

        Parameters
        ----------
        x : array_like
            As `release` takes it.
        rng : int or numpy Generator, optional
        """
        return self.drawn(x, Simulation(rng))

    def release(self, x: Any) -> Any:
        """Draw outputs for `x` with exactly the analysed probabilities, from the operating system's randomness.

        Draws use integer weights and random words, no floating-point numbers.

        Raises
        ------
        DataError
            The mechanism does not accept this input. The guarantee does not cover the refusal.
        """
        return self.drawn(x, Deployment())
