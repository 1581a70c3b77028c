r"""Proofs about a covariance of Gaussian noise, and declared problems on one: solved with the user's own rows, delivered exactly, proved.

The semidefinite program is solved in coordinates where the best covariance without own rows is near the identity, with budget and rows a little stricter than
stated, so that the law keeps them in exact arithmetic. Its multipliers prove nearly as much as the program attains: the fixed point at V' improves the weights of the
changes, and where V' is singular a little of the loss's own weights is mixed in.

>>> import mechdesign as md
>>> S = md.Covariance([[1.0, 0.0], [1.0, 1.0]])
>>> problem = md.Problem(
...     md.Minimize(S.total()), [S.private(md.ApproximateDP(1.0, 1e-6)), md.named("first", S[0, 0] <= 25)]
... )
>>> result = problem.solve()
>>> round(result.value, 6), result.gap < 1e-7, result.certificate.verify()
(46.846766, True, True)

**Proofs** show that no change consumes more than the budget, what a covariance costs, and a lower bound for every covariance.
For a design they are exact sums and saddle points; for a declared problem (`DeclaredCovariance`) everything is rounded outward.

**Cost.** Let :math:`R B = I + D`. Then :math:`(R^\top R)^{-1} = B K B^\top` with :math:`\lVert K - I \rVert \le (1 - \lVert D \rVert)^{-2} - 1`, and
:math:`\operatorname{tr}(G (R^\top R)^{-1})` is :math:`\operatorname{tr} H`, :math:`H = B^\top G B`, but for :math:`\sqrt r \lVert H \rVert` times that.

**Bound.** Let S keep the budget, :math:`v^\top S^{-1} v \le \mu^2` for each change v, and let N have the rows :math:`r_k v_k`. For every X and every Q of norm
at most 1

.. math:: \operatorname{tr}(X S X^\top) \, \mu^2 \sum r_k^2 \ge \lVert S^{1/2} X^\top \rVert^2 \, \lVert S^{-1/2} N^\top \rVert^2 \ge (\operatorname{tr}(X N^\top Q))^2

(Cauchy and Schwarz). Own rows :math:`\operatorname{tr}(G_i S) + k_i \le 0` with multipliers :math:`\nu \ge 0` shift the weights of the loss alone: with
:math:`V' = V + \sum \nu_i G_i \succeq X^\top X` every such S costs at least :math:`(\operatorname{tr} X N^\top Q)^2/(\lVert Q \rVert^2 \mu^2 \sum r^2) + \sum \nu_i k_i`. With
:math:`Q` the polar factor of :math:`N X^\top` this is :math:`(\operatorname{tr} \sqrt{V'^{1/2} M V'^{1/2}})^2/(\mu^2 \sum y)`, M = Σ y v vᵀ, y = r².

Products in doubles of n terms are off by at most n + 2 roundings of the product of the sizes; sums are exact (`math.fsum`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy import sparse

from mechdesign import solvers
from mechdesign.accounting.gaussian import budget_worth
from mechdesign.accounting.profile import gaussian_most
from mechdesign.doubles import TINY, UNIT
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.exact import fraction, rational, round_down, round_up
from mechdesign.evidence.proofs import (
    PROVED,
    RECOMPUTED,
    Certificate,
    Claim,
    LawProof,
    MechanismClass,
    Proof,
    family,
)
from mechdesign.evidence.results import Result, SolveReport, audit_rows
from mechdesign.evidence.serialize import serializable
from mechdesign.model.declared import Linear, rows_of
from mechdesign.model.exactly import RESIDUAL, project
from mechdesign.model.problem import Problem, named
from mechdesign.model.scales import Covariance
from mechdesign.noise.correlated_noise import (
    CorrelatedGaussianNoise,
    inverse_rows,
    largest_spent,
)
from mechdesign.noise.fixed_point import Dense
from mechdesign.problem.checks import array
from mechdesign.problem.sensitivity import Protection
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.problem.words import SHOWN, Description
from mechdesign.problem.workload import Span
from mechdesign.solvers import Deadline
from mechdesign.typing import Array, instance


def product(one: Array, other: Array) -> tuple[Array, Array]:
    """Return a product in doubles, and bounds on the errors of its entries."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = (one.shape[-1] + 2) * 2 * UNIT * (np.abs(one) @ np.abs(other)) + TINY
        return one @ other, error


def cost_between(rows: Array, weights: Array) -> tuple[float, float]:
    """Return lower and upper bounds on tr(G (RᵀR)⁻¹); infinite where R is too ill-conditioned for doubles."""
    back = inverse_rows(rows)
    near, error = product(rows, back)
    off = float(np.linalg.norm(np.abs(near - np.eye(len(rows))) + error)) * (1 + 1e-9)
    if not off < 1e-3:
        return -math.inf, math.inf
    half, first = product(weights, back)
    found, second = product(back.T, half)
    off_found = second + np.abs(back.T) @ first * (1 + 1e-9)
    trace = math.fsum(np.diag(found).tolist())
    size = float(np.linalg.norm(np.abs(found) + off_found)) * math.sqrt(len(rows))
    room = (
        size * ((1 - off) ** -2 - 1) * (1 + 1e-9)
        + float(np.trace(off_found)) * (1 + 1e-9)
        + abs(trace) * 2 * UNIT
    )
    return trace - room, trace + room


def polar(rows: Array, factor: Array) -> Array:
    """Return the polar factor Q of N Xᵀ."""
    outer, _, inner = np.linalg.svd(rows @ factor.T, full_matrices=False)
    return np.asarray(outer @ inner)


def dual_below(changes: Array, roots: Array, factor: Array, contraction: Array, most: Fraction) -> Fraction:
    """Return (tr X Nᵀ Q)²/(‖Q‖² μ² Σ r²), rounded down; 0 where nothing is proved."""
    held = roots[:, None] * changes
    core, error = product(held, factor.T)
    error = error + 2 * UNIT * (np.abs(held) @ np.abs(factor.T))  # of the rows of N
    with np.errstate(over="ignore", invalid="ignore"):
        trace = math.fsum((core * contraction).ravel().tolist())
        lost = math.fsum(
            (error * np.abs(contraction) + 2 * UNIT * np.abs(core * contraction)).ravel().tolist()
        )
    least = trace - lost * (1 + 1e-9)
    if not (least > 0 and math.isfinite(trace)):
        return Fraction(0)
    gram, off = product(contraction.T, contraction)
    norm = Fraction(float((np.abs(gram) + off).sum(axis=1).max() * (1 + 1e-12)))
    spent = sum((Fraction(r) ** 2 for r in roots.tolist()), Fraction(0))
    return Fraction(least) ** 2 / (norm * most * spent)


def factor_below(weights: Array) -> Array | None:
    """Return X with XᵀX below a positive definite matrix, by Cholesky after its diagonal is lowered a little; None if it is not positive definite.

    Coordinates without weight are left out: X has a row less for each.
    """
    kept = np.flatnonzero(np.diag(weights) != 0)
    inner = weights[np.ix_(kept, kept)]
    if not len(kept) or not (np.diag(inner) > 0).all():
        return None
    scale = np.sqrt(np.diag(inner))
    unit = inner / np.outer(scale, scale)
    try:
        found = np.linalg.cholesky(unit - 1e-13 * len(kept) * np.eye(len(kept)))
    except np.linalg.LinAlgError:
        return None
    factor = np.zeros((len(kept), len(weights)))
    factor[:, kept] = found.T * scale
    return factor


def is_below(factor: Array, exact: list[list[Fraction]]) -> bool:
    """Return whether XᵀX is below a matrix of fractions: whether their difference, scaled, is diagonally dominant."""
    columns = [[Fraction(x) for x in column] for column in factor.T.tolist()]
    size = len(exact)
    scale = [Fraction(2) ** (-(math.frexp(float(exact[i][i]) or 1.0)[1] // 2)) for i in range(size)]
    left = [
        [
            (exact[i][j] - sum(x * y for x, y in zip(columns[i], columns[j]) if x and y))
            * scale[i]
            * scale[j]
            for j in range(i + 1)
        ]
        for i in range(size)
    ]
    for i in range(size):
        others = sum(abs(left[max(i, j)][min(i, j)]) for j in range(size) if j != i)
        if left[i][i] < others:
            return False
    return True


MOST_NUMBERS, MOST_ENTRIES = 64, 4_000_000
"""Largest number of coordinates, and of entries of changes and own rows: larger semidefinite programs take minutes."""


@dataclass(frozen=True, eq=False)
class DeclaredCovariance(Linear):
    """A problem on one covariance in numbers; its columns are the entries of S, row by row, then further variables.

    Parameters
    ----------
    changes, neighbours
        As in `Covariance`.
    """

    changes: Array
    neighbours: str

    def __post_init__(self) -> None:
        self.check_rows(self.cost, self.changes, np.array(self.constant))
        size = max(self.changes.size, len(self.family) * self.n**2)
        if self.n > MOST_NUMBERS or size > MOST_ENTRIES:
            allowed = f"numbers, and {size} entries of changes and rows, are too many: at most {MOST_NUMBERS} and {MOST_ENTRIES}"
            raise DesignError.of("covariance", self.n, allowed)
        if self.further < 0:
            raise DesignError("rows: do not fit the unknown")

    def column(self, j: int) -> str:
        """Return the name of an entry or of a further variable."""
        i, k = divmod(j, self.n)
        return f"S[{i}, {k}]" if i < self.n else f"t{j - self.cells + 1}"

    def meaning(self, asked: Any) -> str:
        return f"v' S^-1 v <= {asked.budget:.6g} for each change v ({len(self.changes)} rows)"

    @property
    def n(self) -> int:
        """Number of coordinates that get noise."""
        return int(self.changes.shape[1])

    @property
    def cells(self) -> int:
        """Number of entries of S."""
        return self.n**2

    @property
    def further(self) -> int:
        """Number of further variables, those of piecewise linear atoms."""
        return len(self.cost) - self.cells

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down; the least of several requirements."""
        return float(min(asked.budget for asked in self.privacy))

    @cached_property
    def most(self) -> Fraction:
        """μ², rounded up: no covariance that consumes more keeps the requirement."""
        return min(gaussian_most(asked.privacy) for asked in self.privacy)

    @cached_property
    def weights(self) -> Array:
        """G of each own row, symmetric, shape (rows, n, n)."""
        found = self.matrix[:, : self.n**2].toarray().reshape(-1, self.n, self.n)
        return np.asarray((found + found.swapaxes(1, 2)) / 2)

    @cached_property
    def cost_weights(self) -> Array:
        """V of the objective, symmetric."""
        found = self.cost[: self.n**2].reshape(self.n, self.n)
        return np.asarray((found + found.T) / 2)

    @property
    def start(self) -> Array:
        """Multipliers that leave own rows out: equal ones on the objective's rows."""
        own = np.array([label == "objective" for label in self.labels], dtype=bool)[self.family]
        return np.where(own & (self.equal == 0), 1 / max(int(own.sum()), 1), 0.0)

    @property
    def plain_weights(self) -> Array:
        """V of the objective without own rows."""
        return np.asarray(self.cost_weights + np.tensordot(self.start, self.weights, axes=1))

    def shifted(
        self, multipliers: tuple[Fraction, ...]
    ) -> tuple[list[list[Fraction]], list[Fraction], Fraction]:
        """Return V', the charge of each further variable, and the constant, exactly."""
        total = [Fraction(x) for x in self.cost.tolist()]
        for (row, column), value in zip(self.places.tolist(), self.coefficients.tolist()):
            if multipliers[row]:
                total[column] += multipliers[row] * Fraction(value)
        constant = sum(
            (nu * Fraction(k) for nu, k in zip(multipliers, self.offsets.tolist())),
            Fraction(self.constant),
        )
        n = self.n
        shifted = [[(total[i * n + j] + total[j * n + i]) / 2 for j in range(n)] for i in range(n)]
        return shifted, total[n * n :], constant

    def admissible(self, multipliers: tuple[Fraction, ...]) -> bool:
        """Return whether multipliers have the signs that their rows require."""
        return len(multipliers) == len(self.family) and all(
            nu >= 0 or equal for nu, equal in zip(multipliers, self.equal.tolist())
        )

    def row(self, i: int) -> tuple[Array, dict[int, float], float]:
        """Return G as stated, the coefficients of further variables, and the constant of an own row."""
        start, end = self.matrix.indptr[i : i + 2]
        columns, values = self.matrix.indices[start:end], self.matrix.data[start:end]
        found, inside = np.zeros(self.n**2), columns < self.n**2
        found[columns[inside]] = values[inside]
        own = zip((columns[~inside] - self.n**2).tolist(), values[~inside].tolist())
        return found.reshape(self.n, self.n), dict(own), float(self.offsets[i])


@serializable("covariance-bound")
@dataclass(frozen=True, eq=False)
class CovarianceBound(Proof):
    r"""No covariance within the rows costs less than :math:`(\operatorname{tr} X N^\top Q)^2/(\lVert Q \rVert^2 \mu^2 \sum r^2) + \sum \nu k` (`rigorous`).

    Multipliers :math:`\nu` of own rows :math:`\operatorname{tr}(G S) + k \le 0` shift the weights of the loss, V' = V + Σ ν G, and X has
    :math:`X^\top X \preceq V'`. Everything is rounded outward.

    Parameters
    ----------
    multipliers : tuple of Fraction, one an own row
        ν: at least 0 for an inequality, of either sign for an equality.
    roots : ndarray, shape (k,)
        r, the square roots of the weights of the changes.
    factor : ndarray, shape (m, n)
        X.
    contraction : ndarray, shape (k, m)
        Q.
    """

    multipliers: tuple[Fraction, ...]
    roots: Array
    factor: Array
    contraction: Array

    speaks_of = ("lower bound",)

    def __post_init__(self) -> None:
        for name, ndim in (("roots", 1), ("factor", 2), ("contraction", 2)):
            array(name, getattr(self, name), ndim=ndim, empty=True)
        if self.contraction.shape != (len(self.roots), len(self.factor)):
            raise DesignError(
                "factor: must be a matrix, with a column of the contraction for each of its rows"
            )

    def bound(self, declared: DeclaredCovariance) -> Fraction | float:
        """Return the bound; minus infinity if the data are no multipliers of the problem."""
        fits = (len(self.roots), self.factor.shape[1]) == declared.changes.shape
        if not fits or not declared.admissible(self.multipliers):
            return -math.inf
        shifted, charges, constant = declared.shifted(self.multipliers)
        if any(charges) or not is_below(self.factor, shifted):
            return -math.inf
        return constant + dual_below(
            declared.changes, self.roots, self.factor, self.contraction, declared.most
        )

    def prices(self, declared: DeclaredCovariance) -> Array:
        """Return the decrease of the bound a unit of budget, shared out among the changes."""
        least = float(dual_below(declared.changes, self.roots, self.factor, self.contraction, declared.most))
        shares = self.roots**2 / (self.roots**2).sum()
        return np.asarray(shares * least / declared.budget)

    def check(self, stated: Certificate) -> Iterator[Claim]:
        declared = instance("question", getattr(stated.question, "declared", None), DeclaredCovariance)
        yield self.least(stated, self.bound(declared))


ROUNDING = 9e-12
"""Relative tolerance for the roundings of a cost and of a dual bound."""


def loss_root(span: Span, weights: Array | None) -> Array:
    """Return L with LᵀL = EᵀWE: in coordinates L x the loss is the trace."""
    if span.lift is None and weights is None:
        return np.eye(span.rank)
    lifted = span.matrix
    gram = lifted.T @ (lifted if weights is None else weights @ lifted)
    scale = np.sqrt(np.diag(gram))
    root: Array = np.linalg.cholesky(gram / np.outer(scale, scale)).T * scale
    return root


def trace_loss(whitening: Array, root: Array | None) -> float:
    """Return tr(WΣ) = ‖L R⁻¹‖²_F, or tr Σ without L."""
    held = whitening if root is None else np.asarray(np.linalg.solve(root.T, whitening.T).T, dtype=float)
    return float((inverse_rows(held) ** 2).sum())


def budget_claims(spent: tuple[float, bool], budget: float, worth: float) -> Iterator[Claim]:
    """Claim that no change consumes more than the budget, rational or not, and that the budget meets the requirement."""
    most, exact = spent
    claim = f"the budget covers every change ({'rational' if exact else 'rounded up'})"
    yield Claim(claim, PROVED, budget - most, most <= budget)
    yield Claim("the budget is worth the requirement", RECOMPUTED, worth, worth >= 0)


# -- the problem --------------------------------------------------------------------------------------------------


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
        """The changes that the noise protects."""
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


MARGINS = (2e-9, 2e-8, 2e-7, 2e-6)
"""How much stricter budget and rows are in the program, relatively; the first margin whose law keeps them is used."""
_MIXED = (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8)
"""Shares of the objective's own weights mixed into V'; the first that makes it positive definite is used."""
_ROOM = 1e-6
"""Own rows that are all broken by more than this, relatively, contradict each other."""
_DIGITS = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
"""Tolerances of Clarabel: it stalls at closer ones, and the bounds show how much is left."""


class Semidefinite:
    """The semidefinite program of a declared covariance.

    Parameters
    ----------
    declared : DeclaredCovariance
    solver : str, optional
    deadline : Deadline
    options
        Options of the solver.
    """

    def __init__(
        self, declared: DeclaredCovariance, solver: str | None, deadline: Deadline, **options: Any
    ) -> None:
        self.declared, self.solver, self.deadline = declared, solver, deadline
        self.options = {**_DIGITS, **options} if solver in (None, "clarabel") else options

    @cached_property
    def frame(self) -> tuple[Array, float]:
        """P and the unit u, such that the covariance is u P Z Pᵀ with Z near the identity."""
        return self._frame(factor_below(self.declared.plain_weights))

    def _frame(self, factor: Array | None) -> tuple[Array, float]:
        """Return the frame in which the best covariance for weights XᵀX is near the identity."""
        declared = self.declared
        root = np.eye(declared.n) if factor is None or len(factor) < declared.n else factor
        x = declared.changes @ root.T
        _, singular, directions = np.linalg.svd(x, full_matrices=False)
        stretch = np.sqrt(np.maximum(singular / singular[0], 1e-12))
        size = float(np.abs(x @ directions.T / stretch).max())
        return np.linalg.solve(root, directions.T * stretch), size**2 / declared.budget

    def use_frame_of(self, found: CovarianceBound) -> None:
        """Use the frame of V' from now on: where rows move the optimum by orders of magnitude, solvers lose digits in the frame of the objective."""
        self.__dict__["frame"] = self._frame(found.factor)
        self.__dict__.pop("scaled", None)

    @cached_property
    def scaled(self) -> tuple[Array, Array, Array, Array, float, Array]:
        """Coefficients of vec Z and of further variables, constants and sizes of own rows; units of the cost and of further variables.

        A further variable is scaled by the cost it is part of, else by the entries its rows compare it with: in another unit it could vanish in a solver's absolute tolerance.
        """
        declared, (frame, unit) = self.declared, self.frame
        weights = unit * np.einsum("ia,rij,jb->rab", frame, declared.weights, frame).reshape(
            -1, declared.n**2
        )
        further = declared.matrix[:, declared.n**2 :].toarray()
        loss = unit * frame.T @ declared.plain_weights @ frame
        tall = float(np.linalg.norm(loss)) or 1.0
        against = np.linalg.norm(weights, axis=1)
        held = against[:, None] / np.where(further, np.abs(further), np.inf)
        paid, units = np.abs(declared.cost[declared.n**2 :]), held.max(axis=0, initial=0.0)
        units = np.where(paid > 0, tall / np.where(paid > 0, paid, 1.0), np.where(units > 0, units, tall))
        sizes = against + np.abs(further) @ units
        sizes = np.where(sizes > 0, sizes, 1.0)
        return (
            weights / sizes[:, None],
            further * units / sizes[:, None],
            declared.offsets / sizes,
            sizes,
            tall,
            units,
        )

    def solve(self, margin: float) -> tuple[Array, Array, Array]:
        """Return Z, further variables and multipliers of own rows from the program that is stricter by a margin.

        One matrix inequality, [[Z, I], [I, W]] ⪰ 0, makes W at least the inverse of Z; a change x then consumes at most xᵀ W x, a linear row. With one matrix
        inequality for each change, 20 changes of 20 numbers take Clarabel twelve times as long.
        """
        declared, (frame, unit) = self.declared, self.frame
        weights, further, constants, sizes, tall, units = self.scaled
        size = declared.n
        whole = cp.Variable((2 * size, 2 * size), PSD=True, name="covariance and precision")
        z, precision = whole[:size, :size], whole[size:, size:]
        t = cp.Variable(max(declared.further, 1), name="further")
        x = np.linalg.solve(frame, declared.changes.T).T / math.sqrt(unit * declared.budget)
        squares = np.einsum("ki,kj->kij", x, x).reshape(len(x), -1)
        rows = [
            named("inverse", whole[:size, size:] == np.eye(size)),
            named("privacy", squares @ cp.vec(precision, order="C") <= 1 - margin),
        ]
        below, equal = declared.equal == 0, declared.equal != 0
        for name, chosen in (("own", below), ("equal", equal)):
            if chosen.any():
                sides = weights[chosen] @ cp.vec(z, order="C") + constants[chosen]
                if declared.further:
                    sides = sides + further[chosen] @ t
                rows.append(named(name, sides <= -margin if name == "own" else sides == 0))
        loss = cp.sum(cp.multiply(unit * frame.T @ declared.cost_weights @ frame / tall, z))
        if declared.further:
            loss = loss + (declared.cost[declared.n**2 :] * units / tall) @ t
        program = cp.Problem(cp.Minimize(loss), rows)
        found = solvers.solve(program, self.solver, deadline=self.deadline, **self.options)
        self.report = found
        multipliers = np.zeros(len(declared.family))
        for name, chosen in (("own", below), ("equal", equal)):
            if chosen.any():
                multipliers[chosen] = np.ravel(found.dual[name])
        values = found.primal[t.name()] * units if declared.further else np.zeros(0)
        return found.primal[whole.name()][:size, :size], values, multipliers * tall / sizes

    def whitening(self, z: Array) -> Array:
        """Return R with (RᵀR)⁻¹ = u P Z Pᵀ, moved onto the equalities."""
        frame, unit = self.frame
        if (self.declared.equal != 0).any():
            weights, further, constants, *_ = self.scaled
            chosen = (self.declared.equal != 0) & ~further.any(axis=1)
            rows = weights[chosen]
            for _ in range(3):
                sides = rows.reshape(-1, *z.shape)
                directions = (z @ sides @ z).reshape(len(rows), -1)
                off = rows @ z.ravel() + constants[chosen]
                z = z - (np.linalg.lstsq(rows @ directions.T, off, rcond=1e-9)[0] @ directions).reshape(
                    z.shape
                )
        values, basis = np.linalg.eigh((z + z.T) / 2)
        if not values[0] > 0:
            raise SolverError(
                "the program's answer leaves a direction out",
                solver=self.solver or "clarabel",
                status="check",
            )
        return np.asarray(np.linalg.solve(frame.T, basis / np.sqrt(values)).T / math.sqrt(unit))

    def proof(self, multipliers: Array) -> CovarianceBound | None:
        """Return the proof of a bound from multipliers near these; None if V' is not positive definite."""
        declared = self.declared
        exact = self._free_of_charges(
            np.where(declared.equal != 0, multipliers, np.maximum(multipliers, 0.0))
        )
        start = self._free_of_charges(declared.start)
        for share in map(Fraction, _MIXED):
            mixed = tuple((1 - share) * nu + share * other for nu, other in zip(exact, start))
            if not declared.admissible(mixed):
                return None
            shifted, charges, _ = declared.shifted(mixed)
            if any(charges):
                return None
            factor = factor_below(np.array([[float(x) for x in row] for row in shifted]))
            if factor is not None:
                break
        else:
            return None
        ((weights, _),) = Dense(factor, declared.changes).solved(1e-11, self.deadline).multipliers
        roots = np.sqrt(np.where(weights > 1e-15 * weights.max(), weights, 0.0))
        return CovarianceBound(mixed, roots, factor, polar(roots[:, None] * declared.changes, factor))

    def _free_of_charges(self, multipliers: Array) -> tuple[Fraction, ...]:
        """Move multipliers so that each further variable has reduced cost 0 exactly."""
        declared = self.declared
        found = [rational(nu) for nu in multipliers.tolist()]
        equations = []
        for j in range(declared.further):
            column = declared.matrix[:, [declared.n**2 + j]].tocoo()
            terms = {int(i): rational(a) for i, a in zip(column.coords[0], column.data)}
            if any(found[i] for i in terms):
                equations.append((terms, rational(declared.cost[declared.n**2 + j])))
        return tuple(map(fraction, project(equations, found) if equations else found))


def explained(
    program: Semidefinite, error: InfeasibleError | SolverError | None
) -> InfeasibleError | SolverError:
    """Return the error that names own families that contradict each other and the requirement, or says that the rows leave no room."""
    declared = program.declared
    own = [k for k, label in enumerate(declared.labels) if label != "objective"]
    if not own:
        return error or SolverError("no covariance passes its own checks", solver="clarabel", status="check")
    excess, proved = _excess(program, own)
    if excess <= _ROOM and not proved:
        words = " and ".join(repr(declared.labels[k]) for k in own)
        reason = f"{words}: leave no covariance inside: a cap is at its floor, or no covariance is the best; allow a millionth more"
        return SolverError(reason, solver=program.solver or "clarabel", status="check")
    for k in list(own):
        rest = [other for other in own if other != k]
        found, also = _excess(program, rest) if rest else (0.0, False)
        if found > _ROOM or also:
            own, proved = rest, also
    words = " and ".join(
        repr(name) for name in (declared.privacy[0].label, *(declared.labels[k] for k in own))
    )
    proof = "recomputed by tangents" if declared.curved else "proved in rationals"
    how = proof if proved else "by the solver; not proved"
    return InfeasibleError(f"no covariance meets {words} together ({how})")


def _excess(program: Semidefinite, families: list[int]) -> tuple[float, bool]:
    """Return the least relative violation of some row of these families, and whether a bound proves that one is violated."""
    declared, sizes = program.declared, program.scaled[3]
    width = len(declared.cost)
    rows = np.flatnonzero(np.isin(declared.family, families))
    both = rows[declared.equal[rows] != 0]
    chosen, signs = np.concatenate([rows, both]), np.concatenate([np.ones(len(rows)), -np.ones(len(both))])
    matrix = sparse.coo_array(sparse.diags_array(signs) @ declared.matrix[chosen])
    count = len(chosen)
    places = np.vstack(
        [
            np.column_stack(matrix.coords),
            np.column_stack([np.arange(count + 1), np.full(count + 1, width)]),
        ]
    )
    order = np.lexsort((places[:, 1], places[:, 0]))
    values = np.concatenate([matrix.data, -sizes[chosen], [-1.0]])
    cost = np.zeros(width + 1)
    cost[width] = 1.0
    relaxed = replace(
        declared,
        cost=cost,
        constant=0.0,
        labels=("objective",),
        curved=(),
        family=np.zeros(count + 1, dtype=np.int64),
        equal=np.zeros(count + 1, dtype=np.int64),
        offsets=np.concatenate([signs * declared.offsets[chosen], [-1.0]]),
        places=places[order].astype(np.int64),
        coefficients=values[order],
    )
    again = Semidefinite(relaxed, program.solver, program.deadline)
    again.__dict__["frame"] = program.frame
    _, further, multipliers = again.solve(0.0)
    found = again.proof(multipliers)
    return float(further[-1]), found is not None and found.bound(relaxed) > 0
