r"""Problems on one covariance of Gaussian noise with the user's own rows: solved, delivered exactly, proved, audited and printed.

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import budget_worth
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.proofs import PROVED, Certificate, Claim, LawProof, MechanismClass, family
from mechdesign.evidence.results import Result, SolveReport, audit_rows
from mechdesign.evidence.serialize import serializable
from mechdesign.model.exactly import RESIDUAL
from mechdesign.model.expressions import rows_of
from mechdesign.model.problem import Problem, named
from mechdesign.model.scales import Covariance
from mechdesign.noise.correlated_noise import CorrelatedGaussianNoise, largest_spent
from mechdesign.noise.covariance_bound import CovarianceBound, DeclaredCovariance, budget_claims, cost_between
from mechdesign.noise.covariance_solving import Semidefinite, explained
from mechdesign.problem.sensitivity import Protection
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.problem.words import SHOWN, Description
from mechdesign.typing import Array, instance

MARGINS = (2e-9, 2e-8, 2e-7, 2e-6)
"""How much stricter budget and rows are in the program, relatively; the first margin whose law keeps them is used."""


@serializable("covariance-problem")
@dataclass(frozen=True, eq=False)
class CovarianceProblem(Problem):
    """A problem on one covariance: its semidefinite program, law and proofs."""

    asks: ClassVar[str] = "numbers"
    default_gap: ClassVar[float] = 1e-7

    numbers: ClassVar[Any] = DeclaredCovariance

    def compiled(
        self, at: Mapping[str, Iterable[Array]] | None = None, stricter: Mapping[str, float] | None = None
    ) -> DeclaredCovariance:
        """Return the problem in numbers, at the parameters' values, with tangents of convex functions at these covariances."""
        S, points = self.unknown, {"": [self._spherical], **(at or {})}
        rows = rows_of(S, self.objective, self.constraints, points, stricter=stricter)
        if "objective" in rows.curved:
            remedy = "is neither linear in the covariance nor piecewise linear; state it by abs, max, norm1, sum_largest or affine rows"
            raise DesignError(f"objective: {remedy}")
        return DeclaredCovariance(S.changes, S.neighbours, **vars(rows))

    @property
    def _spherical(self) -> Array:
        """The covariance of one scale that consumes the first requirement's budget."""
        most = float((self.unknown.changes**2).sum(axis=1).max())
        return np.asarray(np.eye(self.unknown.shape[0]) * (most / self.requirements[0].budget))

    @classmethod
    def unknown_of(cls, numbers: DeclaredCovariance) -> Covariance:
        return Covariance(numbers.changes, neighbours=numbers.neighbours)

    # -- solving ----------------------------------------------------------------------------------------------

    @property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down."""
        return float(self.declared.budget)

    @property
    def among(self) -> MechanismClass:
        return family("Gaussian noise of any covariance within these constraints")

    def to_cvxpy(self) -> cp.Problem:
        r"""Return the problem in CVXPY alone: :math:`v^\top S^{-1} v \le \mu^2` for each change, and the user's own constraints."""
        S, rows = self.unknown, list[Any]()
        for asked in self.declared.privacy:
            rows += [named(asked.label, cp.matrix_frac(v, S) <= asked.budget) for v in S.changes if v.any()]
        return cp.Problem(self.objective, [*rows, *self.own])

    def improve(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Solve a little stricter than stated; prove the bound from the multipliers, and the law in exact arithmetic.

        Convex functions that are not piecewise linear are approximated by tangents.
        """

        def solved(asked: DeclaredCovariance) -> tuple[list[Law | Bound], Array]:
            found = [*self._solved(Semidefinite(asked, solver, clock, **options), clock)]
            laws = [one.mechanism.covariance for one in found if isinstance(one, Law)]
            return found, laws[-1] if self.declared.curved else self._spherical

        yield from self.by_tangents(solved, self._spherical, clock)

    def _solved(self, program: Semidefinite, clock: Clock) -> Iterator[Law | Bound]:
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
                program.use_frame_of(found)
                yield Bound(round_down(found.bound(self.declared)), found)
            law, witness = self.law_of(rows), tuple(map(Fraction, further.tolist()))
            value = self.value_of(law, witness)[1]
            if all(claim.holds for claim in self.own_claims(Certificate(self, law, value), witness)):
                yield Law(law, value, (LawProof(witness),), report, self._missed(law, witness))
                return
        raise explained(program, None)

    def _missed(self, law: CorrelatedGaussianNoise, witness: tuple[Fraction, ...]) -> tuple[str, ...]:
        """Return notes on equalities, which no whitening in doubles meets exactly."""
        return tuple(
            f"{self.declared.labels[k]!r} is an equality, and holds to {RESIDUAL:.0e} of its size"
            for k in sorted(set(self.declared.family[self.declared.equal != 0].tolist()))
        )

    def law_of(self, rows: Array) -> CorrelatedGaussianNoise:
        """Return the law of a whitening."""
        return CorrelatedGaussianNoise(rows, self.budget)

    # -- what proofs ask ----------------------------------------------------------------------------------------

    @property
    def worth(self) -> float:
        """The slack of the requirements beyond the budget."""
        return min(budget_worth(asked.privacy, self.budget) for asked in self.declared.privacy)

    def spent_by(self, rows: Array) -> tuple[float, bool]:
        """Return an upper bound on the budget that a change consumes under R, and whether it is a rational number rounded up."""
        return largest_spent(rows, self.declared.changes)

    def value_of(self, law: CorrelatedGaussianNoise, witness: tuple[Fraction, ...]) -> tuple[float, float]:
        """Return lower and upper bounds on the objective."""
        declared = self.declared
        low, high = cost_between(law.rows, declared.cost[: declared.n**2].reshape(declared.n, -1))
        costs = (Fraction(c) * t for c, t in zip(declared.cost[declared.n**2 :].tolist(), witness))
        rest = sum(costs, Fraction(declared.constant))
        return (
            (-math.inf, math.inf)
            if high == math.inf
            else (round_down(Fraction(low) + rest), round_up(Fraction(high) + rest))
        )

    law_takes = tuple

    def law_claims(self, stated: Certificate, given: tuple[Fraction, ...]) -> Iterator[Claim]:
        yield from self.own_claims(stated, given)
        yield self.declared.objective_claim()
        yield from self.function_claims(instance("law", stated.law, CorrelatedGaussianNoise).covariance)

    def own_claims(self, stated: Certificate, given: tuple[Fraction, ...]) -> Iterator[Claim]:
        r"""Claim that no change consumes more than the budget, :math:`\lVert R v \rVert^2 \le \mu^2`, and that objective and own rows hold, rounded outward.

        The budget consumed is rational up to 64 dimensions and rounded up beyond. `given` holds the further variables.
        """
        declared, value = self.declared, stated.value
        law = instance("law", stated.law, CorrelatedGaussianNoise)
        if law.lift is not None or law.budget != self.budget or law.dimension != declared.n:
            raise DesignError("law: must be of this question, from its budget")
        yield from budget_claims(self.spent_by(law.rows), self.budget, self.worth)
        if len(given) != declared.further:
            raise DesignError("given: must hold the further variables of the problem")
        room = value - self.value_of(law, given)[1]
        yield Claim(f"the objective is at most {value:.9g}", PROVED, room, room >= 0)
        for k, label in enumerate(declared.labels):
            slacks = [self._slack(i, law, given) for i in np.flatnonzero(declared.family == k).tolist()]
            least = min(slacks, default=0.0)
            yield Claim(f"{label!r} holds", PROVED, least, least >= 0)

    def _slack(self, i: int, law: CorrelatedGaussianNoise, witness: tuple[Fraction, ...]) -> float:
        """Return a lower bound on the slack of an own row; for an equality, on the slack of its tolerance."""
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
        """Number of coordinates of an answer."""
        return int(self.declared.n)

    @property
    def neighbours(self) -> str:
        """Neighbours for which the changes hold."""
        return str(self.declared.neighbours)

    def protection(self) -> Protection:
        """Return the changes that the noise protects."""
        return Protection(self.declared.n, self.declared.changes)

    def audit(self, result: Result) -> pd.DataFrame:
        """Return every row of every family: privacy for each change, then the user's own rows."""
        declared, law = self.declared, result.mechanism
        bound = next((p for p in result.proofs if isinstance(p, CovarianceBound)), None)
        witness = next((p.given for p in result.proofs if isinstance(p, LawProof)), ())
        used = np.minimum(((declared.changes @ law.rows.T) ** 2).sum(axis=1), self.spent_by(law.rows)[0])
        left, dual = self.budget - used, math.nan if bound is None else bound.prices(declared)
        sides = range(len(used)), used, self.budget, left
        kept = audit_rows(declared.privacy[0].label, *sides, dual=dual, active=left <= 1e-7 * self.budget)
        cells = np.concatenate([law.covariance.ravel(), [float(t) for t in witness]])
        lhs, rhs, count = declared.matrix @ cells, 0.0 - declared.offsets, len(declared.family)
        slacks = [self._slack(i, law, witness) for i in range(count)]
        slack = np.where(declared.equal != 0, -np.abs(rhs - lhs), slacks)
        dual = math.nan if bound is None else np.array([float(nu) for nu in bound.multipliers])
        names = [declared.labels[k] for k in declared.family.tolist()]
        active = np.abs(slack) <= 1e-7 * (np.abs(rhs) + abs(declared.matrix) @ np.abs(cells))
        own = audit_rows(names, range(count), lhs, rhs, slack, dual=dual, active=active)
        audit = pd.concat([kept, own][: 1 + bool(count)], ignore_index=True)
        return self.with_functions(audit, law.covariance)

    def frame(self, result: Result) -> pd.DataFrame:
        """Return the covariance, a row and a column for each number."""
        names = [f"S[{j}]" for j in range(self.declared.n)]
        found = pd.DataFrame(result.mechanism.covariance, columns=names)
        found.insert(0, "number", np.arange(self.declared.n))
        return found

    def describe(self, result: Result) -> Description:
        used, small = at_most(self.spent_by(result.mechanism.rows)[0] / self.budget), self.declared.n <= SHOWN
        return self._described(
            f"Correlated Gaussian noise for {self.declared.n} numbers",
            f"{self.protection()} Gaussian noise is added, its coordinates correlated.",
            "The table: the covariance S. The picture: the correlations of the noise, 1 on the diagonal, 0 where two numbers get independent noise."
            if small
            else "The correlations of the noise: 1 on the diagonal, 0 where two numbers get independent noise.",
            consumed=f"at most {used} of the budget consumed",
            table=self.frame(result) if small else None,
        )

    @property
    def over(self) -> str:
        n = self.declared.n
        return f"S, the covariance of the noise on {n} numbers, {n} x {n}, positive semidefinite"
