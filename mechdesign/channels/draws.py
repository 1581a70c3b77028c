"""Two sources of randomness for one algorithm: doubles and a seed to simulate, integers and the system's to deploy.

A channel says once how a report is drawn, in choices by weight and uniform integers; who asks hands in the source.
Rows of weights are given by ``cumulative(row)``, in doubles, and ``integers(row)``, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mechdesign.evidence.sampling import IntegerWeights, random_words, uniform_integers
from mechdesign.problem.checks import generator
from mechdesign.typing import Indices

__all__ = ["Deployment", "Simulation"]


class Simulation:
    """Doubles and a seeded generator: fast and reproducible, right to the last digits only.

    Parameters
    ----------
    rng : int or numpy Generator, optional
    """

    def __init__(self, rng: Any = None) -> None:
        self.rng = generator(rng)

    def below(self, bound: int, size: int) -> Indices:
        """Uniform integers below `bound`."""
        return self.rng.integers(0, bound, size=size)

    def choose(self, rows: Any, which: Indices) -> Indices:
        """An index by the law of row `which[i]`, for every i."""
        uniform = self.rng.random(which.size)
        return _by_row(
            which, lambda row, at: np.searchsorted(rows.cumulative(row), uniform[at], side="right")
        )


class Deployment:
    """Integers and the operating system's randomness: exactly the law that was analysed."""

    def below(self, bound: int, size: int) -> Indices:
        """Uniform integers below `bound`."""
        return uniform_integers(bound, size)

    def choose(self, rows: Any, which: Indices) -> Indices:
        """An index by the law of row `which[i]`, for every i."""
        return _by_row(which, lambda row, at: IntegerWeights(rows.integers(row)).draw(at.size))

    def order(self, rows: int, size: int) -> Indices:
        """Permutations of 0, …, size − 1, each exactly uniform, shape (rows, size).

        The order of independent random words is uniform given that they differ; where two agree, all are drawn again.
        """
        while True:
            words = random_words(rows * size).reshape(rows, size)
            found = np.argsort(words, axis=1)
            sorted_words = np.take_along_axis(words, found, axis=1)
            if (sorted_words[:, 1:] != sorted_words[:, :-1]).all():
                return found


def _by_row(which: Indices, draw: Callable[[int, Indices], Any]) -> Indices:
    out = np.empty(which.size, dtype=np.int64)
    order = np.argsort(which, kind="stable")
    used, starts = np.unique(which[order], return_index=True)
    for row, at in zip(used.tolist(), np.split(order, starts[1:])):
        out[at] = draw(row, at)
    return out
