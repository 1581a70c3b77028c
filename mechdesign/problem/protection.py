"""What additive noise protects: how many numbers, which changes of them, how often; and whether that is what is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array

__all__ = ["Protection"]


@dataclass(frozen=True, eq=False)
class Protection:
    """What a design of noise protects.

    Parameters
    ----------
    dimension : int
        How many numbers are answered.
    changes : Sensitivity or array, shape (n, dimension)
        What one person changes: bounds, or a list of vectors (each with its negative).
    rounds : int
        How often the numbers are answered under one budget.
    sampling_rate : float
        At most this share of the people is sampled in each round.
    whole : bool
        Whether the noise is for whole numbers only.
    signed : bool
        Whether some numbers may rise while others fall; noise that is not independent may make use of it.
    """

    dimension: int
    changes: Sensitivity | Array
    rounds: int = 1
    sampling_rate: float = 1.0
    whole: bool = False
    signed: bool = True

    def check(self, name: str, asked: Any) -> None:
        """Raise DesignError unless all that a `NumericQuery` says may change is protected, as often as it is answered.

        More rounds, more people sampled and larger changes than asked for may be protected; never fewer.
        """
        if self.dimension != asked.dimension:
            raise DesignError.of(
                f"{name}: dimension", self.dimension, f"must be the question's {asked.dimension}"
            )
        if self.rounds < asked.rounds:
            raise DesignError.of(
                f"{name}: rounds", self.rounds, f"must be at least the question's {asked.rounds}"
            )
        rate = self.sampling_rate
        if rate < asked.sampling_rate or (rate < 1 and asked.bounds.neighbours != "add-remove"):
            allowed = (
                f"must be at least the question's {asked.sampling_rate}, and 1 where a person is replaced"
            )
            raise DesignError.of(f"{name}: sampling_rate", rate, allowed)
        if self.whole and not asked.whole:
            raise DesignError.of(
                f"{name}: noise", "discrete", "is for whole numbers: NumericQuery(whole=True)"
            )
        if not self.covers(asked.bounds):
            words = str(self.changes) if isinstance(self.changes, Sensitivity) else "a list of changes"
            raise DesignError.of(
                f"{name}: sensitivity", words, f"does not cover the question's: {asked.bounds}"
            )

    def covers(self, asked: Sensitivity) -> bool:
        """Whether every change that `asked` allows is protected."""
        if not self.signed and asked.signed and asked.count(self.dimension) > 1:
            return False
        if isinstance(self.changes, Sensitivity):
            return _bounded(self.changes, asked, self.dimension)
        return _listed(self.changes, asked)


def _bounded(held: Sensitivity, asked: Sensitivity, size: int) -> bool:
    """Whether each bound of one set holds on all of the other."""
    pairs = (
        (held.linf, asked.largest_linf),
        (held.l1, asked.largest_l1),
        (held.l2, asked.largest_l2),
        (held.changed, asked.count),
    )
    if any(bound is not None and most(size) > bound for bound, most in pairs):
        return False
    return held.each is None or bool((_each(asked, size) <= np.array(held.each)).all())


def _each(asked: Sensitivity, size: int) -> Array:
    """The most that each coordinate changes."""
    most = min((b for b in (asked.linf, asked.l1, asked.l2) if b is not None), default=math.inf)
    return np.full(size, most) if asked.each is None else np.minimum(asked.each, most)


def _listed(vectors: Array, asked: Sensitivity) -> bool:
    """Whether the corners of a box, of which so many coordinates change, are all among the vectors, up to sign."""
    each = _each(asked, vectors.shape[1])
    moved = np.flatnonzero(each)
    count = min(asked.changed or len(moved), len(moved))
    if asked.l1 is not None and bool((each[moved] == asked.l1).all()):
        count = 1  # the corners of the ℓ₁ ball
    if math.comb(len(moved), count) * 2 ** (count - 1) > len(vectors):
        return False
    known = {tuple(row) for v in vectors.tolist() for row in (v, [-x for x in v])}
    for places in combinations(moved.tolist(), count):
        for signs in product((1.0, -1.0), repeat=count):
            corner = np.zeros(len(each))
            corner[list(places)] = each[list(places)] * signs
            if tuple(corner.tolist()) not in known:
                return False
    return True
