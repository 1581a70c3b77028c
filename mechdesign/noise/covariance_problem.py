r"""Problems on one covariance of Gaussian noise with the user's own rows: solved, delivered exactly, proved, audited and printed.

The semidefinite program is solved in coordinates where the best covariance without own rows is near the identity, with
budget and rows a little stricter than stated, so that the law keeps them in exact arithmetic. Its multipliers prove
nearly as much as the program attains: the fixed point at V' improves the weights of the changes, and where V' is
singular a little of the loss's own weights is mixed in.

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
from fractions import Fraction
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.accounting.gaussian import budget_worth
from mechdesign.checks import instance
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.exact import fraction, rational, round_down, round_up
from mechdesign.evidence.proofs import PROVED, Certificate, Claim, LawProof, family
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.model.exactly import RESIDUAL, project
from mechdesign.model.expressions import rows_of
from mechdesign.model.problem import Problem, contradicted, named, own_audit
from mechdesign.model.scales import Covariance
from mechdesign.model.tangents import between, conic, inside
from mechdesign.noise.correlated_noise import CorrelatedGaussianNoise, most_consumed
from mechdesign.noise.covariance_bound import (
    CovarianceBound,
    DeclaredCovariance,
    budget_claims,
    cost_between,
    covariance_audit,
    factor_below,
    polar,
)
from mechdesign.noise.fixed_point import Dense
from mechdesign.problem.privacy import Description
from mechdesign.problem.sensitivity import Protection
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.solvers import Deadline
from mechdesign.typing import Array

MARGINS = (2e-9, 2e-8, 2e-7, 2e-6)
"""How much stricter budget and rows are in the program, relatively; the first margin whose law keeps them is used."""
_MIXED = (1e-12, 1e-11, 1e-10, 1e-9, 1e-8)
"""Shares of multipliers with V' well inside mixed in where V' is singular; the first that makes it positive definite is used."""
_DEFINITE = 0.01
"""What is taken from the loss's weights, relatively, for multipliers with V' well inside: V' is at least this."""
_ROOM = 1e-6
"""Own rows that are all broken by more than this, relatively, contradict each other."""
_DIGITS = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
"""Tolerances of Clarabel: it stalls at closer ones, and the bounds show how much is left."""


@serializable("covariance-problem", eq=False)
class CovarianceProblem(Problem):
    """A problem on one covariance: its semidefinite program, law and proofs."""

    asks: ClassVar[str] = "numbers"
    default_gap: ClassVar[float] = 1e-7

    numbers: ClassVar[Any] = DeclaredCovariance
    mechanism_class = family("Gaussian noise of any covariance within these constraints")

    def _read(
        self, points: Mapping[str, Iterable[Array]], stricter: Mapping[str, float] | None
    ) -> DeclaredCovariance:
        rows = rows_of(self.unknown, self.objective, self.constraints, points, stricter=stricter)
        return DeclaredCovariance(**self.unknown.stated(), **vars(rows))

    @property
    def start(self) -> Array:
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

    def to_cvxpy(self) -> cp.Problem:
        r"""Return the problem in CVXPY alone: :math:`v^\top S^{-1} v \le \mu^2` for each change, and the user's own constraints."""
        S, rows = self.unknown, list[Any]()
        for asked in self.declared.privacy:
            rows += [named(asked.label, cp.matrix_frac(v, S) <= asked.budget) for v in S.changes if v.any()]
        return cp.Problem(self.objective, [*rows, *self.own])

    def improve(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Solve a little stricter than stated; prove the bound from the multipliers, and the law in exact arithmetic.

        Convex functions that are not piecewise linear are in the program of the law, and their tangents in that of the bound.
        """

        def solved(asked: DeclaredCovariance) -> tuple[list[Law | Bound], Array]:
            found = [*self._solved(Semidefinite(asked, solver, clock, **options), clock)]
            laws = [one.mechanism.covariance for one in found if isinstance(one, Law)]
            return found, laws[-1] if self.declared.curved else self.start

        if self.functions():
            self.__dict__["_declared"] = self.compiled()  # parameters may have changed
        first, covariance = solved(self.declared)
        if self.keeps(covariance):
            yield from first
            return
        program = Semidefinite(self.declared, solver, clock, self, **options)
        try:
            *_, found = self._solved(program, clock)
        except (InfeasibleError, SolverError):  # as in units in which solvers lose digits
            yield from self.by_tangents(solved, clock)
            return
        law = instance("law", found, Law)

        def bounded(tangents: DeclaredCovariance) -> tuple[float, list[Bound], Array]:
            program = Semidefinite(tangents, solver, clock, **options)
            z, further, multipliers = program.solve(MARGINS[0])
            proof = program.proof(multipliers)
            bounds = [] if proof is None else [Bound(round_down(proof.bound(tangents)), proof)]
            value = bounds[0].value if bounds else -math.inf
            return value, bounds, np.append(program.frame @ z @ program.frame.T, further)

        def delivered(columns: Array) -> tuple[float, Law]:
            covariance = columns[: self.unknown.size].reshape(self.unknown.shape)
            z = np.linalg.solve(program.frame, np.linalg.solve(program.frame, covariance).T)
            found = self._law(program.whitening(z), columns[self.unknown.size :], law.report)
            if found is None or not self.keeps(found.mechanism.covariance):
                return math.inf, law
            return found.value, found

        further = [float(t) for t in instance("proof", law.proofs[0], LawProof).given]
        start = law.value, law, np.append(law.mechanism.covariance, further)
        best, bounds = between(self, bounded, delivered, start, clock)
        yield from bounds
        yield best

    def _solved(self, program: Semidefinite, clock: Clock) -> Iterator[Law | Bound]:
        for margin in (MARGINS[0], *MARGINS):  # the first in the frame of the loss, then in that of V'
            try:
                z, further, multipliers = program.solve(margin)
                rows = program.whitening(z)
            except (InfeasibleError, SolverError) as error:
                if clock.passed:
                    raise
                raise explained(program, error) from None
            report = SolveReport.of(program.report)
            found = program.proof(multipliers)
            if self.design is not None:
                yield from self.design.of_program(rows, found, report)
                return
            if found is not None:
                program.use_frame(found.factor)
                yield Bound(round_down(found.bound(self.declared)), found)
            law = self._law(rows, further, report)
            if law is not None and (program.problem is None or self.keeps(law.mechanism.covariance)):
                yield law
                return
        raise explained(program, None)

    def _law(self, rows: Array, further: Array, report: SolveReport) -> Law | None:
        """Return the law of whitening rows and further variables, or None if it does not pass its own checks."""
        law, witness = CorrelatedGaussianNoise(rows, self.budget), tuple(map(Fraction, further.tolist()))
        value = self._cost_of(law, witness)
        claims = self.own_claims(Certificate(self, law, value), witness)
        if not all(claim.holds for claim in claims):
            return None
        return Law(law, value, (LawProof(witness),), report, self._missed())

    def _missed(self) -> tuple[str, ...]:
        """Return notes on equalities, which no whitening in doubles meets exactly."""
        return tuple(
            f"{self.declared.labels[k]!r} is an equality, and holds to {RESIDUAL:.0e} of its size"
            for k in sorted(set(self.declared.family[self.declared.equal != 0].tolist()))
        )

    # -- what proofs ask ----------------------------------------------------------------------------------------

    @property
    def worth(self) -> float:
        """The slack of the requirements beyond the budget."""
        return min(budget_worth(asked.privacy, self.budget) for asked in self.declared.privacy)

    def consumes(self, rows: Array) -> tuple[float, bool]:
        """Return an upper bound on the budget that a change consumes under R, and whether it is a rational number rounded up."""
        return most_consumed(rows, self.declared.changes)

    def _cost_of(self, law: CorrelatedGaussianNoise, witness: tuple[Fraction, ...]) -> float:
        """Return an upper bound on the objective."""
        declared = self.declared
        ends = cost_between(law, declared.cost[: declared.cells].reshape(declared.n, -1))
        costs = (Fraction(c) * t for c, t in zip(declared.cost[declared.cells :].tolist(), witness))
        return math.inf if ends is None else round_up(sum(costs, Fraction(declared.constant)) + ends[1])

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
            raise DesignError("law: must be of the question and budget")
        yield from budget_claims(self.consumes(law.rows), self.budget, self.worth)
        DesignError.when(len(given) != declared.further, "given: must hold the problem's further variables")
        yield Claim.of(f"the objective is at most {value:.9g}", PROVED, value - self._cost_of(law, given))
        for k, label in enumerate(declared.labels):
            slacks = (self._slack(i, law, given) for i in np.flatnonzero(declared.family == k).tolist())
            yield Claim.of(f"{label!r} holds", PROVED, min(slacks, default=0.0))

    def _slack(self, i: int, law: CorrelatedGaussianNoise, witness: tuple[Fraction, ...]) -> float:
        """Return a lower bound on the slack of an own row; for an equality, on the slack of its tolerance."""
        declared = self.declared
        row, weights = declared.rows[i], declared.matrix[[i], : declared.cells].toarray()
        if (ends := cost_between(law, weights.reshape(declared.n, -1))) is None:
            return -math.inf
        own = ((j - declared.cells, fraction(a)) for j, a in row.terms if j >= declared.cells)
        parts = [*(a * witness[j] for j, a in own), fraction(row.offset)]
        if not row.equal:
            return float(-ends[1] - sum(parts))
        deviations = np.sqrt(np.diag(law.covariance))
        size = float(np.abs(weights[0]) @ np.outer(deviations, deviations).ravel())
        size += sum(abs(float(part)) for part in parts)
        return RESIDUAL * size - max(abs(float(end + sum(parts))) for end in ends)

    # -- what a result says -------------------------------------------------------------------------------------

    @property
    def answer_size(self) -> int:
        """Number of coordinates of an answer."""
        return int(self.declared.n)

    def protection(self) -> Protection:
        """Return the changes that the noise protects."""
        return Protection(self.declared.n, self.declared.changes)

    def audit(self, result: Result) -> pd.DataFrame:
        """Return every row of every family: privacy for each change, then the user's own rows."""
        declared, law = self.declared, result.mechanism
        bound = next((p for p in result.proofs if isinstance(p, CovarianceBound)), None)
        witness = next((p.given for p in result.proofs if isinstance(p, LawProof)), ())
        used = np.minimum(((declared.changes @ law.rows.T) ** 2).sum(axis=1), self.consumes(law.rows)[0])
        dual = math.nan if bound is None else bound.prices(declared)
        kept = covariance_audit(declared.privacy[0].label, used, self.budget, dual)
        cells = np.concatenate([law.covariance.ravel(), [float(t) for t in witness]])
        off = declared.offsets + declared.matrix @ cells
        slack = [
            x if equal else self._slack(i, law, witness)
            for i, (x, equal) in enumerate(zip(off, declared.equal))
        ]
        dual = math.nan if bound is None else np.array([float(nu) for nu in bound.multipliers])
        own = own_audit(declared, cells, np.array(slack), dual)
        audit = pd.concat([kept, own][: 1 + bool(len(own))], ignore_index=True)
        return self.with_functions(audit, law.covariance)

    def frame(self, result: Result) -> pd.DataFrame:
        """Return the covariance, a row and a column for each number."""
        names = [f"S[{j}]" for j in range(self.declared.n)]
        found = pd.DataFrame(result.mechanism.covariance, columns=names)
        found.insert(0, "number", np.arange(self.declared.n))
        return found

    def describe(self, result: Result) -> Description:
        return self._described(
            f"Correlated Gaussian noise for {self.declared.n} numbers",
            f"{self.protection()} Gaussian noise is added, its coordinates correlated.",
            "The correlations of the noise: 1 on the diagonal, 0 where two numbers get independent noise.",
        )

    @property
    def over(self) -> str:
        n = self.declared.n
        return f"S, the covariance of the noise on {n} numbers, {n} x {n}, positive semidefinite"


class Semidefinite:
    """The semidefinite program of a declared covariance S = F Z Fᵀ, in a frame F where Z is near the identity.

    Parameters
    ----------
    declared : DeclaredCovariance
    solver : str, optional
    deadline : Deadline
    problem : CovarianceProblem, optional
        The problem whose convex functions are in the program themselves, not by their tangents.
    options
        Options of the solver.
    """

    def __init__(
        self,
        declared: DeclaredCovariance,
        solver: str | None,
        deadline: Deadline,
        problem: Any = None,
        **options: Any,
    ) -> None:
        self.declared, self.solver, self.deadline, self.problem = declared, solver, deadline, problem
        self.options = {**_DIGITS, **options} if solver in (None, "clarabel") else options
        self.use_frame(factor_below(declared.plain_weights))

    def use_frame(self, factor: Array | None) -> None:
        """Use the frame in which the best covariance for weights XᵀX is near the identity: where rows move the optimum by orders of magnitude, solvers lose digits in that of the objective.

        Coefficients of vec Z and of further variables, and constants, are divided by their rows' sizes.
        A further variable is scaled by the entries its rows compare it with: in another unit it could vanish in a solver's absolute tolerance.
        """
        declared, n = self.declared, self.declared.n
        root = np.eye(n) if factor is None or len(factor) < n else factor
        x = declared.changes @ root.T
        _, singular, directions = np.linalg.svd(x, full_matrices=False)
        stretch = np.sqrt(np.maximum(singular / singular[0], 1e-12))
        size = float(np.abs(x @ directions.T / stretch).max()) / math.sqrt(declared.budget)
        self.frame = frame = np.linalg.solve(root, directions.T * stretch) * size
        weights = np.einsum("ia,rij,jb->rab", frame, declared.weights, frame).reshape(-1, n**2)
        further = declared.matrix[:, n**2 :].toarray()
        against = np.linalg.norm(weights, axis=1)
        held = against[:, None] / np.where(further, np.abs(further), np.inf)
        units = held.max(axis=0, initial=0.0)
        self.units = np.where(units > 0, units, 1.0)
        prices = declared.cost[n**2 :] * self.units
        self.unit = (
            float(np.linalg.norm(frame.T @ declared.cost_weights @ frame) + np.abs(prices).sum()) or 1.0
        )
        sizes = against + np.abs(further) @ self.units
        self.sizes = np.where(sizes > 0, sizes, 1.0)
        sides = weights, further * self.units, declared.offsets[:, None]
        self.sides = [side / self.sizes[:, None] for side in sides]

    def solve(
        self, margin: float, families: list[int] | None = None, definite: float = 0.0
    ) -> tuple[Array, Array, Array]:
        """Return Z, further variables and multipliers of own rows from the program that is stricter by a margin.

        With `families` the program has no cost, and minimises the largest relative violation of these families' rows, which then is the last of the further variables.
        V', the loss's weights at the multipliers, is at least `definite`, relatively.

        One matrix inequality, [[Z, I], [I, W]] ⪰ 0, makes W at least the inverse of Z; a change x then consumes at most xᵀ W x, a linear row. With one matrix
        inequality for each change, 20 changes of 20 numbers take Clarabel twelve times as long.
        """
        declared, frame, size = self.declared, self.frame, self.declared.n
        whole = cp.Variable((2 * size, 2 * size), PSD=True, name="covariance and precision")
        z, precision = whole[:size, :size], whole[size:, size:]
        t, worst = cp.Variable(max(declared.further, 1), name="further"), cp.Variable(name="worst")
        x = np.linalg.solve(frame, declared.changes.T).T / math.sqrt(declared.budget)
        squares = np.einsum("ki,kj->kij", x, x).reshape(len(x), -1)
        rows = [
            named("inverse", whole[:size, size:] == np.eye(size)),
            named("privacy", squares @ cp.vec(precision, order="C") <= 1 - margin),
        ]
        weights, further, constants = self.sides
        parts: list[tuple[str, Any, float, Any]]
        kept, equal = np.isin(declared.family, families or range(len(declared.labels))), declared.equal != 0
        if families is None:
            weights_of_z = frame.T @ declared.cost_weights @ frame / self.unit - definite * np.eye(size)
            loss = cp.sum(cp.multiply(weights_of_z, z))
            if declared.further:
                loss = loss + (declared.cost[size**2 :] * self.units / self.unit) @ t
            parts = [("own", kept & ~equal, 1.0, -margin), ("equal", kept & equal, 1.0, 0.0)]
        else:
            loss, rows = worst, [*rows, worst >= -1]
            parts = [("own", kept, 1.0, worst), ("equal", kept & equal, -1.0, worst)]
        parts = [part for part in parts if part[1].any()]
        for name, chosen, sign, most in parts:
            side = weights[chosen] @ cp.vec(z, order="C") + constants[chosen, 0]
            side = side + further[chosen] @ t if declared.further else side
            exact = families is None and name == "equal"
            rows.append(named(name, side == 0 if exact else sign * side <= most))
        answer = solvers.solve if self.problem is None else conic
        if self.problem is not None:
            rows += inside(self.problem, margin, frame @ frame.T, frame @ z @ frame.T)
        found = answer(
            cp.Problem(cp.Minimize(loss), rows), self.solver, deadline=self.deadline, **self.options
        )
        self.report = found
        multipliers = np.zeros(len(declared.family))
        for name, chosen, sign, _ in parts:
            multipliers[chosen] += sign * np.ravel(found.dual[name])
        values = found.primal[t.name()] * self.units if declared.further else np.zeros(0)
        if families is not None:
            values = np.append(values, found.primal[worst.name()])
        return found.primal[whole.name()][:size, :size], values, multipliers * self.unit / self.sizes

    def whitening(self, z: Array) -> Array:
        """Return R with (RᵀR)⁻¹ = F Z Fᵀ, moved onto the equalities."""
        weights, further, constants = self.sides
        chosen = (self.declared.equal != 0) & ~further.any(axis=1)
        rows = weights[chosen]
        for _ in range(3 if chosen.any() else 0):
            directions = (z @ rows.reshape(-1, *z.shape) @ z).reshape(len(rows), -1)
            off = rows @ z.ravel() + constants[chosen, 0]
            z = z - (np.linalg.lstsq(rows @ directions.T, off, rcond=1e-9)[0] @ directions).reshape(z.shape)
        values, basis = np.linalg.eigh((z + z.T) / 2)
        if not values[0] > 0:
            message = "the program's answer leaves a direction out"
            raise SolverError(message, solver=self.solver or "clarabel", status="check")
        return np.asarray(np.linalg.solve(self.frame.T, basis / np.sqrt(values)).T)

    def proof(self, multipliers: Array, families: list[int] | None = None) -> CovarianceBound | None:
        """Return the proof of a bound from multipliers near these; None if V' is not positive definite.

        With `families` it is the bound of a problem without cost, from these families' rows alone.
        """
        for mixed in self._near(multipliers, families):
            shifted, charges, _ = self.declared.shifted(mixed, costs=families is None)
            if any(charges) or not self.declared.admissible(mixed):
                return None
            factor = factor_below(np.array([[float(x) for x in row] for row in shifted]))
            if factor is not None:
                break
        else:
            return None
        ((weights, _),) = Dense(factor, self.declared.changes).solved(1e-11, self.deadline).multipliers
        roots = np.sqrt(np.where(weights > 1e-15 * weights.max(), weights, 0.0))
        return CovarianceBound(mixed, roots, factor, polar(roots[:, None] * self.declared.changes, factor))

    def _near(self, multipliers: Array, families: list[int] | None) -> Iterator[tuple[Fraction, ...]]:
        """Yield multipliers with their signs and without charges, then mixed with some whose V' is well inside."""
        costs, declared = families is None, self.declared

        def kept(given: Array) -> tuple[Fraction, ...]:
            signed = np.where(declared.equal == 0, np.maximum(given, 0.0), given)
            return self._free_of_charges(signed, costs=costs)

        yield (exact := kept(multipliers))
        if families is None:
            try:
                other = kept(self.solve(MARGINS[0], definite=_DEFINITE)[2])
            except (InfeasibleError, SolverError):
                return
        else:
            other = kept(np.where(np.isin(declared.family, families), 1 / self.sizes, 0.0))
        for share in map(Fraction, _MIXED):
            yield tuple((1 - share) * nu + share * more for nu, more in zip(exact, other))

    def _free_of_charges(self, multipliers: Array, *, costs: bool) -> tuple[Fraction, ...]:
        """Move multipliers so that each further variable has reduced cost 0 exactly."""
        declared = self.declared
        found = [rational(nu) for nu in multipliers.tolist()]
        equations = []
        for j in range(declared.cells, declared.width):
            column = declared.matrix[:, [j]].tocoo()
            terms = {int(i): rational(a) for i, a in zip(column.coords[0], column.data)}
            if any(found[i] for i in terms):
                equations.append((terms, rational(declared.cost[j] if costs else 0)))
        return tuple(map(fraction, project(equations, found) if equations else found))

    def excess(self, families: list[int]) -> tuple[float, bool]:
        """Return the least relative violation of some row of these families, and whether a bound proves that one is violated."""
        _, further, multipliers = self.solve(0.0, families)
        found = self.proof(multipliers, families)
        return float(further[-1]), found is not None and found.bound(self.declared, costs=False) > 0


def explained(
    program: Semidefinite, error: InfeasibleError | SolverError | None
) -> InfeasibleError | SolverError:
    """Return the error that names own families that contradict each other and the requirement, or says that the rows leave no room."""
    declared = program.declared
    own = [k for k, label in enumerate(declared.labels) if label != "objective"]
    if not own:
        return error or SolverError("no covariance passes its own checks", solver="clarabel", status="check")
    excess, proved = program.excess(own)
    if excess <= _ROOM and not proved:
        words = " and ".join(repr(declared.labels[k]) for k in own)
        reason = f"{words}: leave no covariance inside: a cap is at its floor, or no covariance is the best; allow a millionth more"
        return SolverError(reason, solver=program.solver or "clarabel", status="check")
    for k in list(own):
        rest = [other for other in own if other != k]
        found, also = program.excess(rest) if rest else (0.0, False)
        if found > _ROOM or also:
            own, proved = rest, also
    families = [declared.privacy[0].label, *(declared.labels[k] for k in own)]
    return contradicted("covariance meets", families, declared.curved, proved=proved)
