"""What a search for the optimal noise has in hand: a private law with its cost, and a bound with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import pandas as pd

from mechdesign.evidence.results import SolveReport
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.lower_bound import Multiplier
from mechdesign.noise.optimal.spline import Spread
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status

__all__ = ["Attempt", "Proof"]


@dataclass(frozen=True)
class Proof:
    """A bound of every noise, and what it follows from: multipliers on a lattice, a `Spread`, or periods and a level.

    `grouped` sensitivities at once are one of the lattice's, or of the level's.
    """

    bound: Fraction
    cells: int
    multipliers: tuple[Multiplier, ...] = ()
    mirrored: bool = True
    spread: Spread | None = None
    climb: tuple[int, Fraction] | None = None
    grouped: int = 1


@dataclass(frozen=True)
class Attempt:
    """A private law with its exact cost, a proof, and what the program was that gave them."""

    law: CellNoise
    value: Fraction
    proof: Proof
    tail: float = 0.0
    size: tuple[int, int] = (0, 0)
    iterations: int = 0

    @property
    def bound(self) -> Fraction:
        """The lower bound that is proved."""
        return self.proof.bound

    @property
    def gap(self) -> float:
        """Relative distance of law and bound."""
        return float(1 - self.bound / self.value)

    def report(self, status: Status, deadline: Deadline) -> SolveReport:
        """The solver's account."""
        return SolveReport(
            solver="highs" if self.proof.multipliers or self.proof.spread is not None else "closed form",
            status=status,
            seconds=deadline.elapsed,
            variables=self.size[0],
            constraints=self.size[1],
            iterations=self.iterations,
        )

    def duals(self) -> pd.DataFrame:
        """Multipliers of the shifts' sums."""
        rows = [("privacy", m.shift, m.total) for m in self.proof.multipliers]
        return pd.DataFrame(rows, columns=["family", "index", "dual"])

    def with_law(self, value: Fraction, law: CellNoise) -> Attempt:
        """This, with another law where it is cheaper."""
        return replace(self, law=law, value=value) if value < self.value else self

    def with_proof(self, proof: Proof) -> Attempt:
        """This, with another proof where it proves more."""
        return replace(self, proof=proof) if proof.bound > self.bound else self

    def better(self, other: Attempt) -> Attempt:
        """The better law with the better bound: both are valid, whatever lattice they came from."""
        law = self if self.value <= other.value else other
        return replace(law, proof=self.proof if self.bound >= other.bound else other.proof)
