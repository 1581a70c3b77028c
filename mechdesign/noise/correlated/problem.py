r"""A problem on one covariance of Gaussian noise: solved with a person's own rows, delivered exactly, proved.

>>> import mechdesign as md
>>> S = md.Covariance([[1.0, 0.0], [1.0, 1.0]])
>>> problem = md.Problem(
...     md.Minimize(S.total()), [S.private(md.ApproximateDP(1.0, 1e-6)), md.named("first", S[0, 0] <= 25)]
... )
>>> result = problem.solve()
>>> round(result.value, 6), result.gap < 1e-7, result.certificate.verify()
(46.846766, True, True)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import budget_worth
from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.classes import MechanismClass, family
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.proofs import PROVED, Certificate, Claim
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.model.covariance import Covariance
from mechdesign.model.expressions import rows_of
from mechdesign.model.problem import Problem
from mechdesign.model.unknown import named
from mechdesign.noise.correlated.bound import CovarianceBound
from mechdesign.noise.correlated.declared import DeclaredCovariance
from mechdesign.noise.correlated.noise import CorrelatedGaussianNoise, covariance_of, largest_spent
from mechdesign.noise.correlated.proof import CovarianceProof
from mechdesign.noise.correlated.rigorous import cost_between
from mechdesign.noise.correlated.semidefinite import MARGINS, Semidefinite, explained
from mechdesign.problem.privacy import Consumption
from mechdesign.problem.sensitivity import Protection
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.problem.words import Description
from mechdesign.problem.workload import Span
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESIDUAL = 1e-12
"""Of a row's size: what an equality may be missed by, as no whitening in doubles meets it exactly."""


@serializable("covariance-problem")
@dataclass(frozen=True, eq=False)
class CovarianceProblem(Problem):
    """A problem on one covariance: its semidefinite program, law and proofs."""

    asks: ClassVar[str] = "numbers"
    default_gap: ClassVar[float] = 1e-7

    numbers: ClassVar[Any] = DeclaredCovariance
    declared: ClassVar[DeclaredCovariance] = Problem.declared  # type: ignore[assignment]

    def compiled(self) -> DeclaredCovariance:
        """Return the problem in numbers, at the parameters' values."""
        S = self.unknown
        rows, asked, curved = rows_of(S, self.objective, self.constraints, [np.eye(S.shape[0])])
        if curved:
            remedy = "is no linear row of the covariance, and neither piecewise linear; state it by abs, max, norm1, sum_largest or affine rows"
            raise DesignError(f"{curved[0]!r}: {remedy}")
        return DeclaredCovariance(S.changes, S.neighbours, *rows, tuple(asked))

    @classmethod
    def unknown_of(cls, numbers: DeclaredCovariance) -> Covariance:
        return Covariance(numbers.changes, neighbours=numbers.neighbours)

    # -- solving ----------------------------------------------------------------------------------------------

    @property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down."""
        return self.declared.budget

    @property
    def among(self) -> MechanismClass:
        return family("Gaussian noise of any covariance within these constraints")

    def to_cvxpy(self) -> cp.Problem:
        r"""Return the problem in CVXPY alone: :math:`v^\top S^{-1} v \le \mu^2` of each change, and the person's own constraints."""
        S, rows = self.unknown, list[Any]()
        for asked in self.declared.privacy:
            rows += [named(asked.label, cp.matrix_frac(v, S) <= asked.budget) for v in S.changes if v.any()]
        return cp.Problem(self.objective, [*rows, *self.own])

    def improve(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Solve a little stricter than stated; prove the bound from its multipliers, and the law in exact numbers."""
        program = Semidefinite(self.declared, solver, clock, **options)
        for margin in (MARGINS[0], *MARGINS):  # the first in the frame of the loss, then in that of V'
            try:
                z, further, multipliers = program.solve(margin)
                rows = program.whitening(z)
            except (InfeasibleError, SolverError) as error:
                if clock.passed:
                    raise
                raise explained(program, error) from None
            found = program.proof(multipliers)
            report = SolveReport.of(program.report)
            if self.design is not None:
                yield from self.design.of_program(rows, found, report)
                return
            if found is not None:
                program.turned(found)
                yield Bound(round_down(found.bound(self.declared)), found)
            law, witness = self.law_of(rows), tuple(map(Fraction, further.tolist()))
            value = self.value_of(law, witness)[1]
            if all(claim.holds for claim in CovarianceProof(witness).check(Certificate(self, law, value))):
                yield Law(law, value, (CovarianceProof(witness),), report, self._missed(law, witness))
                return
        raise explained(program, None)

    def _missed(self, law: CorrelatedGaussianNoise, witness: tuple[Fraction, ...]) -> tuple[str, ...]:
        """Notes on equalities, which no whitening in doubles meets exactly."""
        return tuple(
            f"{self.declared.labels[k]!r} is an equality, and holds to {RESIDUAL:.0e} of its size"
            for k in sorted(set(self.declared.family[self.declared.equal != 0].tolist()))
        )

    def law_of(self, rows: Array) -> CorrelatedGaussianNoise:
        """The law of a whitening."""
        span = Span(self.declared.n, tuple(range(self.declared.n)))
        return CorrelatedGaussianNoise(covariance_of(rows, span), rows, span.coordinates, None, self.budget)

    # -- what proofs ask ----------------------------------------------------------------------------------------

    @property
    def worth(self) -> float:
        """What the requirements leave beyond the budget."""
        return min(budget_worth(asked.privacy, self.budget) for asked in self.declared.privacy)

    def holds(self, law: object) -> bool:
        """Whether a law is of these numbers, from a budget that is this question's."""
        if not isinstance(law, CorrelatedGaussianNoise) or law.whitening is None or law.lift is not None:
            return False
        return law.budget == self.budget and law.span.coordinates == tuple(range(self.declared.n))

    def reached(self, law: object) -> bool:
        """Whether noise reaches every direction of the changes: all directions."""
        return True

    def spent_by(self, rows: Array, coordinates: tuple[int, ...] | None = None) -> tuple[float, bool]:
        """What a change consumes under a matrix R at most, and whether that is a rational number rounded up."""
        return largest_spent(rows, self.declared.changes)

    def value_of(self, law: CorrelatedGaussianNoise, witness: tuple[Fraction, ...]) -> tuple[float, float]:
        """Ends of the objective."""
        declared = self.declared
        low, high = cost_between(law.rows, declared.cost[: declared.n**2].reshape(declared.n, -1))
        costs = (Fraction(c) * t for c, t in zip(declared.cost[declared.n**2 :].tolist(), witness))
        rest = sum(costs, Fraction(declared.constant))
        return (
            (-math.inf, math.inf)
            if high == math.inf
            else (round_down(Fraction(low) + rest), round_up(Fraction(high) + rest))
        )

    def loss_claims(
        self, law: CorrelatedGaussianNoise, value: float, witness: tuple[Fraction, ...]
    ) -> Iterator[Claim]:
        """That the objective is at most a value, and that own rows hold: a claim a family."""
        declared = self.declared
        if len(witness) != declared.further:
            raise DesignError("witness: must hold the further variables of the problem")
        room = value - self.value_of(law, witness)[1]
        yield Claim(f"the objective is at most {value:.9g}", PROVED, room, room >= 0)
        for k, label in enumerate(declared.labels):
            slacks = [self._slack(i, law, witness) for i in np.flatnonzero(declared.family == k).tolist()]
            least = min(slacks, default=0.0)
            yield Claim(f"{label!r} holds", PROVED, least, least >= 0)

    def _slack(self, i: int, law: CorrelatedGaussianNoise, witness: tuple[Fraction, ...]) -> float:
        """What is left of an own row at least; of an equality, of what it may be missed by."""
        weights, own, constant = self.declared.row(i)
        low, high = cost_between(law.rows, weights)
        if high == math.inf:
            return -math.inf
        parts = [*(Fraction(a) * witness[j] for j, a in own.items()), Fraction(constant)]
        if not self.declared.equal[i]:
            return float(-Fraction(high) - sum(parts))
        deviations = np.sqrt(np.diag(law.covariance))
        size = float(deviations @ np.abs(weights) @ deviations) + sum(abs(float(part)) for part in parts)
        return RESIDUAL * size - max(abs(float(Fraction(end) + sum(parts))) for end in (low, high))

    # -- what a result says -------------------------------------------------------------------------------------

    @property
    def answer_size(self) -> int:
        """How many numbers an answer has."""
        return self.declared.n

    @property
    def neighbours(self) -> str:
        """For which neighbours the changes hold."""
        return self.declared.neighbours

    def protection(self) -> Protection:
        """What the noise protects."""
        return Protection(self.declared.n, self.declared.changes)

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """That of all Gaussian noise within the budget."""
        return gaussian_tradeoff(self.budget, at)

    def consumption(self, result: Result) -> Consumption:
        """What a release consumes of a ledger."""
        spent: Consumption = result.mechanism.consumption()
        for asked in self.declared.privacy:
            spent &= Consumption.of(asked.privacy)
        return replace(spent, neighbours=self.neighbours)

    def audit(self, result: Result) -> pd.DataFrame:
        """Every row of every family: privacy by change, and the person's own."""
        declared, law = self.declared, result.mechanism
        bound = next((p for p in result.proofs if isinstance(p, CovarianceBound)), None)
        witness = next((p.witness for p in result.proofs if isinstance(p, CovarianceProof)), ())
        used = np.minimum(((declared.changes @ law.rows.T) ** 2).sum(axis=1), self.spent_by(law.rows)[0])
        dual = np.full(len(used), np.nan) if bound is None else bound.prices(declared)
        label, rows = declared.privacy[0].label, list[tuple[Any, ...]]()
        for k, (v, y) in enumerate(zip(used.tolist(), dual.tolist())):
            rows.append((label, k, v, self.budget, self.budget - v, y, self.budget - v <= 1e-7 * self.budget))
        values = declared.matrix @ np.concatenate([law.covariance.ravel(), [float(t) for t in witness]])
        for i, lhs in enumerate(values.tolist()):
            rhs, equal = -float(declared.offsets[i]) + 0.0, declared.equal[i]
            slack = -abs(rhs - lhs) if equal else self._slack(i, law, witness)
            nu = math.nan if bound is None else float(bound.multipliers[i])
            size = abs(rhs) + float(np.abs(declared.row(i)[0] * law.covariance).sum())
            name = declared.labels[declared.family[i]]
            rows.append((name, i, lhs, rhs, slack, nu, bool(abs(slack) <= 1e-7 * size)))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def frame(self, result: Result) -> pd.DataFrame:
        """The covariance: a row and a column a number."""
        names = [f"S[{j}]" for j in range(self.declared.n)]
        found = pd.DataFrame(result.mechanism.covariance, columns=names)
        found.insert(0, "number", np.arange(self.declared.n))
        return found

    def describe(self, result: Result) -> Description:
        used = at_most(self.spent_by(result.mechanism.rows)[0] / self.budget)
        return self._described(
            f"Correlated Gaussian noise for {self.declared.n} numbers",
            f"{self.protection()} Gaussian noise is added, its coordinates correlated.",
            "The correlations of the noise: 1 on the diagonal, 0 where two numbers get independent noise.",
            f"at most {used} of the budget consumed",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the correlations of the noise."""
        found: Figure = result.mechanism.plot(**options)
        return found

    @property
    def over(self) -> str:
        n = self.declared.n
        return f"S, the covariance of the noise on {n} numbers, {n} x {n}, positive semidefinite"

    def families(self) -> list[str]:
        declared = self.declared
        said = [
            f"{asked.label}: {asked}: v' S^-1 v <= {asked.budget:.6g} for each change v ({len(declared.changes)} rows)"
            for asked in declared.privacy
        ]
        return [*said, *map(declared.printed, range(len(declared.labels)))]
