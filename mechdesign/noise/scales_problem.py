"""A problem on the scales of independent noise, declared in CVXPY: solved, made exact, audited, printed and saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.classes import MechanismClass
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.proofs import PROVED, Claim
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import serializable
from mechdesign.model.declared import OwnRows
from mechdesign.model.exactly import RESIDUAL
from mechdesign.model.expressions import rows_of
from mechdesign.model.problem import Problem
from mechdesign.model.scales import Scales, ScalesPrivacy
from mechdesign.model.unknown import named
from mechdesign.noise.allocation_proofs import (
    AllocationProof,
    ScalesDesign,
    changes_within,
    deployed,
    scales_class,
)
from mechdesign.noise.lagrangian import DeclaredScales, cost_above
from mechdesign.noise.scales_solving import ScalesProgram, solve_scales
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.problem.words import Description
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@serializable("scales-problem")
@dataclass(frozen=True, eq=False)
class ScalesProblem(ScalesDesign, Problem):
    """A problem on one vector of scales."""

    asks: ClassVar[str] = "numbers"
    default_gap: ClassVar[float] = 1e-9

    numbers: ClassVar[Any] = DeclaredScales
    declared: ClassVar[DeclaredScales] = Problem.declared  # type: ignore[assignment]

    def problem(self) -> ScalesProblem:
        """Return the problem itself."""
        return self

    def compiled(self) -> DeclaredScales:
        """Return the problem in numbers, at the parameters' values."""
        loss = getattr(self.objective.expr, "loss", None)
        if loss is None:
            raise DesignError("objective: must be the loss of the scales, Minimize(s.expected(2, weights))")
        scales, (order, weights) = self.unknown, loss
        rows, curved = rows_of(scales, cp.Minimize(cp.Constant(0.0)), self.constraints, [])
        if curved or len(rows.cost) > scales.size:
            label = (
                curved[0]
                if curved
                else rows.labels[int(rows.family[int(rows.places[rows.places[:, 1].argmax(), 0])])]
            )
            raise DesignError(f"{label!r}: is not affine; state it by equalities and inequalities of sums")
        own = {f.name: getattr(rows, f.name) for f in fields(OwnRows)}
        return DeclaredScales(scales.noise, scales.neighbours, order, weights, **own)

    # -- files and copies -------------------------------------------------------------------------------------

    @classmethod
    def unknown_of(cls, numbers: DeclaredScales) -> Scales:
        first = numbers.privacy[0]
        changes = first.sensitivities if first.bounds is None else first.bounds
        return Scales(changes, numbers.noise, neighbours=numbers.neighbours)

    @classmethod
    def objective_of(cls, numbers: DeclaredScales, columns: Any) -> cp.Expression:
        unknown: Scales = columns.variables()[0]
        return unknown.expected(numbers.order, numbers.weights)

    # -- solving ----------------------------------------------------------------------------------------------

    @property
    def among(self) -> MechanismClass:
        """Independent noise of the type, whose scales keep the rows."""
        return scales_class(self.declared.noise, self.asked, " within these rows" if self.own else "")

    @property
    def asked(self) -> tuple[ScalesPrivacy, ...]:
        """The requirements."""
        return self.declared.privacy

    @property
    def loss(self) -> float:
        """The order p of the loss."""
        return self.declared.order

    @property
    def weights(self) -> Array:
        """The weight of each number."""
        return self.declared.weights

    def to_cvxpy(self) -> cp.Problem:
        """Return the problem in CVXPY alone, in the scales themselves; changes within several bounds by the prices of their rows."""
        declared, program = self.declared, None
        rows = []
        for asked in declared.privacy:
            if changes_within(asked) is not None:
                program = ScalesProgram(declared, logarithmic=declared.logarithmic)
                return cp.Problem(cp.Minimize(program.loss), program.rows())
            moved = np.flatnonzero(asked.sensitivities)
            powers = cp.power(self.unknown[moved], -asked.spend)
            rows.append(
                named(asked.label, asked.sensitivities[moved] ** asked.spend @ powers <= asked.budget)
            )
        return cp.Problem(self.objective, [*rows, *self.own])

    def improve(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Solve, refine the multipliers, and make the scales exact."""
        declared, design = self.declared, self.design or self
        found = solve_scales(declared, solver, clock, options)
        several = found.shares is not None
        prices = np.array([price or (0.0, 0.0, 0.0) for price in found.prices]) if several else None
        multipliers = found.multipliers
        mixes = multipliers.profiles if several else None
        rows = multipliers.rows if len(multipliers.rows) else None
        proof = AllocationProof(multipliers.budgets, rows, prices, mixes, found.shares)
        value = round_up(cost_above(declared.noise, declared.order, declared.weights, found.scales))
        duals = pd.DataFrame(
            {"family": "privacy", "index": range(len(self.asked)), "dual": multipliers.budgets}
        )
        yield Bound(proof.stated_bound(self, value))
        yield Law(
            deployed(self.asked, found.scales), value, (proof,), found.report, design.said(value), duals
        )

    def kept(self, scales: Array) -> Iterator[Claim]:
        declared = self.declared
        missed, size = declared.missed(scales), abs(declared.matrix) @ scales + abs(declared.offsets)
        for number, label in enumerate(declared.labels):
            over = {n: side for n, side in missed.items() if declared.family[n] == number}
            off = max(
                (float(abs(s)) / float(size[n]) for n, s in over.items() if declared.equal[n]), default=0.0
            )
            broken = [-float(side) for n, side in over.items() if not declared.equal[n]]
            exact = "" if not off else f", its equalities to {RESIDUAL:g} of their size"
            yield Claim(
                f"rows called {label!r} hold{exact}",
                PROVED,
                min(broken, default=0.0),
                not broken and off <= RESIDUAL,
            )

    # -- what a result says -----------------------------------------------------------------------------------

    @property
    def neighbours(self) -> str:
        """For which neighbours the changes hold."""
        return self.declared.neighbours

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Of the largest Gaussian budget; of Laplace noise what is asked."""
        if self.declared.noise == "gaussian":
            return gaussian_tradeoff(max(one.budget for one in self.asked), at)
        return super().tradeoff(result, at)

    def frame(self, result: Result) -> pd.DataFrame:
        """A row per number."""
        law = result.mechanism
        table = {"number": np.arange(len(law.scales)), "scale": law.scales, "variance": law.variance}
        return pd.DataFrame(table)

    def describe(self, result: Result) -> Description:
        noise, several = self.declared.noise.capitalize(), len(self.asked) > 1
        what = f"{self.protection()} {noise} noise of its own scale is added to each number, independently."
        if several:
            what += " Every requirement below holds for the changes that it names."
        title = f"{noise} noise for {len(self.declared.weights)} numbers"
        return self._described(title, what, "The scale of the noise on each number.")

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the scales."""
        fig, axis = figure(**sized(options, 5.0, 3.0))
        axis.bar(np.arange(len(result.mechanism.scales)), result.mechanism.scales, color=COLOURS[0])
        axis.set(xlabel="number", ylabel="scale", ylim=(0, None))
        return fig

    @property
    def minimised(self) -> str:
        return str(self.objective.expr.label)

    @property
    def over(self) -> str:
        noise, count = self.declared.noise.capitalize(), len(self.declared.weights)
        return f"{self.unknown.name()}[i] > 0, the scales of {noise} noise on {count} numbers"

    def families(self) -> list[str]:
        declared, power = self.declared, "^2" if self.declared.spend == 2 else ""
        said = [
            f"{one.label}: {one}: Σ_i (|v_i|/{self.unknown.name()}[i]){power} <= {one.budget:.6g} for "
            f"{one.bounds or 'all |v_i| <= the sensitivities'}"
            for one in self.asked
        ]
        return [*said, *map(declared.printed, range(len(declared.labels)))]
