"""What is asked of an optimal noise, in numbers, and where the search for it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from mechdesign.problem.losses import Loss

__all__ = ["Question"]

_LADDERED = (3.5, 5.5, 27.0)
"""ε from which ladders see more than a lattice (asked for more than a rough answer; otherwise), and from which their
narrowest cells are too narrow."""
_SPIKE = 64
_SMALLEST_DELTA = 1e-7
"""Below, the linear programs run with δ = 0: HiGHS meets constraints to 1e-9 only."""


@dataclass(frozen=True)
class Question:
    """The problem in numbers: what is asked of the noise, and on which kind of lattice.

    Parameters
    ----------
    loss : Loss
    sensitivity, epsilon, delta : float
    gap : float
        Relative distance of law and bound to stop at.
    cells : int or None
        Cells per sensitivity to stay with, whatever the gap; the window alone grows then.
    grid : {"centred", "edge"}
    """

    loss: Loss
    sensitivity: float
    epsilon: float
    delta: float
    gap: float
    cells: int | None
    grid: str

    @cached_property
    def programmed(self) -> float:
        """The δ of the linear programs: 0 where δ is below the solver's reach, or cannot pay.

        Truncated Laplace noise saves the share log(1+r)/r of the Laplace cost. Where that is a small part of the
        gap asked for, pure noise is as good; its law and its multipliers are judged at the true δ anyway.
        """
        if self.delta < _SMALLEST_DELTA:
            return 0.0
        r = self.ratio
        return self.delta if math.log1p(r) / r > self.gap / 20 else 0.0

    @property
    def ratio(self) -> float:
        """r = (e^ε - 1)/2δ, δ > 0: what kind of noise is best; truncated Laplace noise reaches to log(1 + r)/ε."""
        return math.expm1(self.epsilon) / (2 * self.delta)

    @property
    def support(self) -> float:
        """Sensitivities on each side that truncated Laplace noise reaches."""
        return math.log1p(self.ratio) / self.epsilon if self.delta > 0 else math.inf

    @property
    def spike_share(self) -> int:
        """How many times narrower than a cell a spike is: a density, at nearly the cost of an atom."""
        if self.delta <= 7 / 8:
            return _SPIKE
        return _SPIKE << min(60, math.ceil(-math.log2(1 - self.delta)) + 6)

    @property
    def held(self) -> bool:
        """Whether the kind of cells is left to the search, and the loss even."""
        return self.loss.function is None and self.cells is None and self.grid == "centred"

    @property
    def laddered(self) -> bool:
        """Whether to begin with narrow and wide cells."""
        least = _LADDERED[0 if self.loss.squared or self.gap < 0.005 else 1]
        return self.held and least <= self.epsilon <= _LADDERED[2]

    def first_window(self) -> float:
        """Sensitivities on each side: past the support of truncated Laplace noise."""
        if self.programmed == 0:
            return 2.0 + 9.0 / self.epsilon
        return 1.0 + max(self.support, min(1.6 * self.support, 2.0 + 12.0 / self.epsilon))

    def first_cells(self) -> int:
        """A guess from staircase-like noise: density at 0 over cost, both O(1) factors off."""
        e = self.epsilon
        absolute = math.exp(e / 2) / math.expm1(e) if e < 100 else math.exp(-e / 2)
        if self.delta:
            absolute = min(absolute, 1 / (4 * self.delta))
        return max(1, min(24, math.ceil(0.3 / (absolute * math.sqrt(self.gap / 0.01)))))
