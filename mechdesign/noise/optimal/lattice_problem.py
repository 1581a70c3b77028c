"""A problem on the masses of additive noise: the linear program, repair and proofs of a table, delivered as noise on cells or on the whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd
from flint import fmpq

from mechdesign.errors import DesignError, instance
from mechdesign.evidence.classes import MechanismClass, every
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import rational
from mechdesign.model.declared import ZERO
from mechdesign.model.exactly import Exact
from mechdesign.model.lattice import LatticeDeclared, LatticeNoise, ShiftPart
from mechdesign.model.table_problem import TableProblem
from mechdesign.model.unknown import named
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise
from mechdesign.problem.privacy import Consumption
from mechdesign.problem.sensitivity import Protection, Sensitivity
from mechdesign.problem.spine import Design, Law
from mechdesign.problem.words import Description

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPIKE = 1 / 64
"""Of a cell: the width of mass on 0 alone."""


def noise_of(declared: LatticeDeclared, weights: Iterable[int]) -> CellNoise | IntegerNoise:
    """The law of these integer weights of the entries, without empty points at both ends."""
    *entries, last = [fmpq(w) for w in weights]
    masses = declared.point_masses([*entries, last])
    masses.append(last if declared.spiked else ZERO)
    common = math.lcm(*(int(mass.q) for mass in masses))
    *held, spike = [int(mass * common) for mass in masses]
    used = [j for j, w in enumerate(held) if w]
    trim = 0 if declared.decay else min(used[0], len(held) - 1 - used[-1])
    held = held[trim : len(held) - trim]
    shared = math.gcd(*held, spike)
    found = tuple(w // shared for w in held)
    if declared.integer:
        return IntegerNoise(found, -(len(found) // 2), declared.change, declared.decay)
    start = -len(found) * declared.step / 2
    spike, width = spike // shared, SPIKE * declared.step
    return CellNoise(
        found, declared.step, start, declared.change, spike, width if spike else 0.0, declared.decay
    )


def entries_of(declared: LatticeDeclared, law: Any) -> Exact:
    """Entries of the noise that a law is, in rationals."""
    law = instance("law", law, IntegerNoise if declared.integer else CellNoise)
    change = law.change if isinstance(law, IntegerNoise) else law.cells_per_shift
    pad, odd = divmod(2 * declared.side + 1 - len(law.weights), 2)
    same = not odd and pad >= 0 and law.decay == declared.decay and change == declared.change
    if isinstance(law, IntegerNoise):
        same &= law.first == -(len(law.weights) // 2)
    else:
        centred = 2 * Fraction(law.start) == -len(law.weights) * Fraction(law.width)
        same &= law.width == declared.step and centred and not law.spike and not law.spans
    if not same or (declared.decay and pad):
        raise DesignError("law: is not noise on the problem's lattice")
    total = rational(law.total)
    weights = [0] * pad + list(law.weights) + [0] * pad
    per_entry = declared.point_masses([fmpq(1)] * len(weights))
    return [w / (total * mass) for w, mass in zip(weights, per_entry)]


@serializable("lattice-problem")
@dataclass(frozen=True, eq=False)
class LatticeProblem(TableProblem):
    """A problem on the masses of additive noise, of which `LatticeNoise` is the unknown."""

    numbers: ClassVar[Any] = LatticeDeclared
    declared: ClassVar[LatticeDeclared] = TableProblem.declared  # type: ignore[assignment]
    asks: ClassVar[str] = "numbers"

    def deployed(self, weights: tuple[tuple[int, ...], ...]) -> CellNoise | IntegerNoise:
        return noise_of(self.declared, weights[0])

    def exact(self, law: Any, witness: Iterable[Fraction] = ()) -> Exact:
        return [*entries_of(self.declared, law), *(rational(x) for x in witness)]

    def to_fields(self) -> dict[str, object]:
        """What files hold: the problem in numbers."""
        return {
            name: v for name, v in super().to_fields().items() if name not in ("mirrored", "free", "spiked")
        }

    @classmethod
    def unknown_of(cls, numbers: Any) -> LatticeNoise:
        if numbers.of != "data":
            raise DesignError.of("of", numbers.of, "must be 'data': noise is added to one answer about all")
        return LatticeNoise(
            numbers.step,
            numbers.side * numbers.step,
            sensitivity=numbers.sensitivity,
            integer=numbers.integer,
            tails=numbers.tails,
            neighbours=numbers.neighbours,
        )

    @property
    def among(self) -> MechanismClass:
        """Noise on this lattice, within the reach or with these tails."""
        return every("noise on this lattice within these constraints")

    def to_cvxpy(self) -> cp.Problem:
        """Return the problem in CVXPY alone, every privacy row listed, each constraint with its name."""
        p, rows = self.unknown, list[Any]()
        for part in self.declared.parts:
            assert isinstance(part, ShiftPart)
            growth = math.exp(part.losses[0])
            for k in range(len(part.pairs)):
                over = part.matrix(k, growth) @ p
                row = cp.sum(cp.pos(over)) <= part.delta if part.delta else over <= 0
                rows.append(named(part.label, row))
        return cp.Problem(self.objective, [*rows, named("sums", cp.sum(p) == 1), *self.own])

    # -- what a result says -----------------------------------------------------------------------------------

    @property
    def central(self) -> bool:  # type: ignore[override]
        """Whether a ledger counts its releases: it does."""
        return True

    @property
    def answer_size(self) -> int:
        """One number."""
        return 1

    def closed_forms(self) -> Iterator[Law]:
        """Yield nothing: of noise no law is private without being told so."""
        yield from ()

    def protection(self) -> Protection:
        declared = self.declared
        changes = Sensitivity(linf=declared.sensitivity, neighbours=declared.neighbours)
        return Protection(1, changes, integer=declared.integer)

    def consumption(self, result: Result) -> Consumption:
        """What a release consumes: all requirements hold at once."""
        joint = Consumption()
        for asked in self.declared.privacy:
            joint &= Consumption.of(asked.privacy)
        return Design.consumption(self, result) & joint

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> Any:
        return Design.tradeoff(self, result, at)

    def errors(self, result: Result, question: object = None) -> Any:
        return result.mechanism.errors()

    def frame(self, result: Result) -> pd.DataFrame:
        """The masses by point, without those of repetitions."""
        masses = self.declared.point_masses(self.exact(result.mechanism))
        points = self.declared.step * np.arange(-self.declared.side, self.declared.side + 1)
        return pd.DataFrame({"noise": points, "probability": [float(mass) for mass in masses]})

    def remarks(self, result: Result) -> list[str]:
        declared = self.declared
        if declared.decay:
            return []
        return [
            f"there is no noise beyond {declared.step * declared.side:g}, and the lower bound is of noise within that reach"
        ]

    def describe(self, result: Result) -> Description:
        return self._described(
            f"Additive noise on {len(self.declared.outputs)} points",
            f"{self.protection()} Noise of masses p is added.",
            "Above: the density of the noise. Below: how often it is larger than t.",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the law and its tail."""
        found: Figure = result.mechanism.plot(**options)
        return found
