r"""Gaussian noise with the covariance that a finite sensitivity set deserves.

When neighbouring databases change the query by one of finitely many vectors :math:`d_k` (up to sign; or by a point of
their convex hull), the mechanism :math:`f(D) + \mathcal N(0, \Sigma)` is (ε, δ)-DP iff
:math:`\max_k d_k^\top \Sigma^{-1} d_k \le \mu_0^2`. Its best covariance solves the matrix-fractional program

.. math:: \min_\Sigma \operatorname{tr}(W\Sigma) \quad\text{s.t.}\quad d_k^\top \Sigma^{-1} d_k \le \mu_0^2 .

For a box, whose vertices are :math:`(\pm\lambda_i)`, the answer is the diagonal of P3; a one-hot query needs K times
less. Any weights :math:`y_k \ge 0` prove a lower bound, :math:`(\operatorname{tr}\sqrt{W^{1/2} M W^{1/2}})^2 /
(\mu_0^2 \sum y_k)` with :math:`M = \sum_k y_k d_k d_k^\top`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.accounting.gaussian import GaussianPrivacy, budget_worth, gaussian_budget
from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.classes import MechanismClass, family
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.page import Account
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.changes import corners
from mechdesign.noise.correlated.fixed_point import Balance, balance, fixed_point
from mechdesign.noise.correlated.noise import (
    CorrelatedGaussianNoise,
    inverse_rows,
    largest_spent,
    within_budget,
)
from mechdesign.problem.checks import array, instance, one_of, refuse_unknown, settle
from mechdesign.problem.fields import field
from mechdesign.problem.sensitivity import Protection, Sensitivity, neighbours_field, neighbours_of
from mechdesign.problem.span import Span, span_of
from mechdesign.problem.spine import Bound, Clock, Design, Law, ModelledDesign, relative_table
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words
from mechdesign.solvers import Model
from mechdesign.typing import Array

_ROUNDING = 1e-11
"""Relative tolerance for the roundings of a cost and of a dual bound."""


class CovarianceDesign(Design):
    """A question for a covariance: what its results print and draw.

    Attributes
    ----------
    vectors : ndarray, shape (m, K)
        Changes, the worst among them.
    """

    asks: ClassVar[str] = "numbers"

    vectors: Array
    privacy: GaussianPrivacy
    weights: Array | None = None

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down."""
        return gaussian_budget(self.privacy)

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """That of all Gaussian noise within the budget."""
        return gaussian_tradeoff(self.budget, at)

    @property
    def among(self) -> MechanismClass:
        """Gaussian noise of every covariance: other noise may cost less."""
        return family("Gaussian noise of any covariance")

    def protection(self) -> Protection:
        return Protection(self.vectors.shape[1], self.vectors)

    @abstractmethod
    def words(self) -> tuple[str, str]:
        """What changes between neighbours, and the name of the loss."""

    def spent(self, law: CorrelatedGaussianNoise) -> Array:
        r"""Share of the budget each vector takes, :math:`d_k^\top\Sigma^{-1}d_k/\mu_0^2`; at most 1."""
        return np.asarray(law.mahalanobis(self.vectors) ** 2 / self.budget)

    def audit(self, result: Result) -> pd.DataFrame:
        budget, used = self.budget, self.spent(result.mechanism) * self.budget
        dual = np.full(len(used), np.nan) if result.duals is None else result.duals["dual"].to_numpy()
        rows = [
            ("privacy", k, float(v), budget, float(budget - v), float(y), bool(budget - v <= 1e-7 * budget))
            for k, (v, y) in enumerate(zip(used, dual))
        ]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def frame(self, result: Result) -> pd.DataFrame:
        """A row per vector of the sensitivity set."""
        return pd.DataFrame({"vector": np.arange(len(self.vectors)), "spent": self.spent(result.mechanism)})

    def lines(self, result: Result) -> list[str]:
        used, law = self.spent(result.mechanism), result.mechanism
        return [
            f"{len(used)} sensitivity vectors in {self.vectors.shape[1]} dimensions, "
            f"{int((used > 1 - 1e-6).sum())} active, largest share of the budget {used.max():.15g}",
            f"released on multiples of {law.step:.6g} after whitening, wider by {law.lattice_cost:.2g}",
        ]

    def account(self, result: Result) -> Account:
        what, value = self.words()
        question = [
            what,
            privacy_words(self.privacy, NEIGHBOURS),
            unit_words("listed the vectors", "The guarantee is for the whole vector, released once."),
            f"Wanted is the covariance of least {value}; the lower bound is of {self.among}.",
        ]
        used = at_most(float(self.spent(result.mechanism).max()))
        return Account(
            f"Correlated Gaussian noise at {guarantee(self.privacy)}",
            f"For {self.vectors.shape[1]} numbers that change together: least {value}.",
            "\n\n".join(question),
            value,
            (guarantee(self.privacy), f"at most {used} of the budget consumed"),
            "The correlations of the noise: 1 on the diagonal, 0 where two numbers get independent noise.",
            "Independent noise of one scale, for the longest of the vectors, at the same privacy.",
        )

    def alternatives(self, result: Result) -> pd.DataFrame:
        """What independent Gaussian noise of one scale costs."""
        longest = float((self.vectors**2).sum(axis=1).max()) / self.budget
        trace = self.vectors.shape[1] if self.weights is None else float(np.trace(self.weights))
        rows = [("this covariance", result.value), ("one scale for all", longest * trace)]
        if result.lower_bound is not None:
            rows.append((f"lower bound of {result.among}", result.lower_bound))
        return relative_table(rows)


@serializable("correlated-gaussian")
@dataclass(frozen=True, eq=False)
class CorrelatedGaussian(CovarianceDesign, ModelledDesign):
    r"""The best Gaussian covariance for a finite set of sensitivity vectors.

    Parameters
    ----------
    vectors : array_like, shape (m, K), or Sensitivity
        The set, one vector per row, up to sign; vertices are enough for a polytope. A Sensitivity with ``each``: its corners
        (`of_sensitivity` takes the number of coordinates where nothing else says it).
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    weights : array_like, shape (K,) or (K, K), optional
        W of the loss tr(WΣ): a positive diagonal or a positive definite matrix; the identity by default.
    span : bool
        Whether vectors that span a subspace only are all that a person can change: there is no noise outside it then.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold; a `Sensitivity` states it itself.

    Raises
    ------
    DesignError
        Vectors empty, not finite or all zero, or in a subspace where `span` does not say that this is meant; weights not
        positive definite; δ = 0.

    Notes
    -----
    The lower bound is of Gaussian noise of every covariance; other noise may cost less. The matrix-fractional model is [new]; Muthukrishnan and Kalyani's P3 is its diagonal case. Compare the matrix
    mechanism of Li et al. (2010).

    Examples
    --------
    >>> import mechdesign as md
    >>> result = CorrelatedGaussian(vectors=np.eye(3), privacy=md.ApproximateDP(1.0, 1e-6)).solve()
    >>> round(result.value * result.design.budget, 4)   # a box with these sides needs 9
    3.0
    """

    vectors: Array
    privacy: GaussianPrivacy
    weights: Array | None = None
    span: bool = field(check=one_of, allowed=(True, False), default=False)
    neighbours: str = neighbours_field()

    def __post_init__(self) -> None:
        settle(self, neighbours=neighbours_of(self.vectors, self.neighbours))
        if isinstance(self.vectors, Sensitivity):
            settle(self, vectors=corners(self.vectors, len(self.vectors.each or ())), span=True)
        super().__post_init__()
        vectors = array("vectors", self.vectors, ndim=2)
        if not vectors.any():
            raise DesignError.of(
                "vectors", self.vectors, "are all zero: the query needs no noise at all, release it as it is"
            )
        if not 1e-100 <= np.abs(vectors).max() <= 1e100:
            raise DesignError.of(
                "vectors",
                float(np.abs(vectors).max()),
                "must have its largest entry between 1e-100 and 1e100: doubles square it",
            )
        settle(self, vectors=vectors)
        if self.weights is not None:
            settle(self, weights=self._matrix(array("weights", self.weights, ndim=None)))
        _ = self.budget
        rank, size = self.subspace.rank, vectors.shape[1]
        if rank < size and not self.span:
            raise DesignError.of(
                "vectors",
                vectors.shape,
                f"span {rank} of {size} dimensions, and who changes the answer in another one is not protected: add the "
                "changes that are missing, leave coordinates out that nobody changes, or say span=True if nothing else can change",
            )

    @classmethod
    def of_sensitivity(
        cls,
        sensitivity: Sensitivity,
        dimension: int,
        privacy: GaussianPrivacy,
        weights: Array | None = None,
    ) -> CorrelatedGaussian:
        """Return the design for changes within bounds of single coordinates, of which at most some change; the corners are listed.

        Examples
        --------
        >>> import mechdesign as md
        >>> few = Sensitivity(each=[1, 2, 3], l0=1)
        >>> CorrelatedGaussian.of_sensitivity(few, 3, md.ApproximateDP(1.0, 1e-6)).vectors
        array([[1., 0., 0.],
               [0., 2., 0.],
               [0., 0., 3.]])
        """
        # a bound of 0 says that nobody changes this coordinate
        return cls(corners(sensitivity, dimension), privacy, weights, True, sensitivity.neighbours)

    def _matrix(self, w: Array) -> Array:
        size = self.vectors.shape[1]
        if w.shape == (size,):
            w = np.diag(w)
        if w.shape != (size, size):
            raise DesignError.of("weights", self.weights, f"must have shape ({size},) or ({size}, {size})")
        if not np.allclose(w, w.T):
            raise DesignError.of("weights", self.weights, "must be symmetric")
        if np.linalg.eigvalsh(w).min() <= 0:
            raise DesignError.of("weights", self.weights, "must be positive definite")
        return (w + w.T) / 2

    @cached_property
    def subspace(self) -> Span:
        """The subspace of the vectors."""
        return span_of(self.vectors)

    @cached_property
    def _plain(self) -> tuple[Array, Array, float]:
        """Vectors in coordinates where the loss is the plain trace, of length at most about 1; these coordinates L; the size."""
        root = loss_root(self.subspace, self.weights)
        vectors = self.vectors[:, self.subspace.coordinates] @ root.T
        size = 2.0 ** math.ceil(math.log2(float(np.abs(vectors).max())))
        return vectors / size, root, size

    @cached_property
    def _stretched(self) -> tuple[Array, Array, Array]:
        """Vectors rotated and divided by stretches, these, and the rotation: there the optimum is near I."""
        x = self._plain[0]
        _, singular, directions = np.linalg.svd(x, full_matrices=False)
        stretch = np.sqrt(np.maximum(singular / singular[0], 1e-12))
        return x @ directions.T / stretch, stretch, directions

    def model(self) -> Model:
        """Return the SDP in coordinates where the loss is a weighted trace and the best covariance is near I.

        Constraints: "privacy", a matrix-fractional one per vector.
        """
        x, stretch, _ = self._stretched
        s = cp.Variable((len(stretch), len(stretch)), PSD=True, name="covariance")
        privacy = [cp.matrix_frac(row, s) <= 1 for row in x if row.any()]
        loss = cp.sum(cp.multiply(stretch**2, cp.diag(s)))
        return Model(cp.Problem(cp.Minimize(loss), privacy), {"covariance": s}, {"privacy": privacy})

    def improve(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Find weights on the vectors: they give a covariance, made to keep the budget in exact numbers, and a lower bound.

        Parameters
        ----------
        solver : {None, "fixed-point", "clarabel", "scs"}
            `fixed_point` when not named; the others solve `model`, whose multipliers are taken.
        """
        if instance("solver", solver, str, NoneType) in (None, "fixed-point"):
            refuse_unknown(options, "the fixed point has none")
            x = self._plain[0]
            found = fixed_point(x, clock.gap / 2, clock)
            best, rows, size = found.best, found.best.whitening, x.shape[1] * (x.shape[1] + 1) // 2
            report = SolveReport(
                "fixed-point", variables=size, constraints=len(x), iterations=found.steps, requested=solver
            )
        else:
            best, rows, report = self._by_model(solver, clock, options)
        _, root, unit = self._plain
        noise = self._noise(rows)
        value = trace_loss(noise, root) * (1 + 1e-14)
        duals = pd.DataFrame(
            {
                "family": "privacy",
                "index": np.arange(len(best.weights)),
                "dual": best.weights * value / self.budget,
            }
        )
        proof = CorrelatedGaussianProof(best.weights)
        yield Bound(best.lower_bound * unit**2 / self.budget * (1 - 1e-12))
        yield Law(noise, value, (proof,), report, self._notes(), duals)

    def _by_model(
        self, solver: str | None, clock: Clock, options: dict[str, Any]
    ) -> tuple[Balance, Array, SolveReport]:
        """The model's multipliers, and a whitening of its covariance."""
        if solver == "clarabel":
            # With closer tolerances Clarabel stalls; the bounds show how much is left.
            options = {**dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9), **options}
        solution = solvers.solve(self.model(), solver, time_limit=clock.limit(), **options)
        x, stretch, directions = self._stretched
        values, basis = np.linalg.eigh(solution.primal["covariance"])
        weights = np.zeros(len(x))
        weights[x.any(axis=1)] = np.maximum(np.ravel(solution.dual["privacy"]), 0.0)
        found = balance(self._plain[0], weights) if weights.any() else None
        if found is None or values[0] <= 0:
            raise SolverError(
                "the program's answer leaves a direction out", solver=solution.solver, status=solution.status
            )
        return found, (basis / np.sqrt(values)).T / stretch @ directions, SolveReport.of(solution)

    def _noise(self, rows: Array) -> CorrelatedGaussianNoise:
        """The law whitened by `rows` where the loss is plain, scaled until the budget is kept in exact numbers."""
        span, (_, root, size) = self.subspace, self._plain
        reduced = self.vectors[:, span.coordinates]
        whitening = within_budget(rows @ root / size, self.budget, lambda r: largest_spent(r, reduced)[0])
        factor = span.matrix @ inverse_rows(whitening)
        return CorrelatedGaussianNoise(factor @ factor.T, whitening, span.coordinates, span.lift, self.budget)

    def _notes(self) -> tuple[str, ...]:
        size, rank = self.vectors.shape[1], self.subspace.rank
        if rank == size:
            return ()
        return (f"the vectors span {rank} of {size} dimensions; the noise stays in that subspace",)

    def words(self) -> tuple[str, str]:
        count, size = self.vectors.shape
        return (
            f"A query returns {size} numbers about a data set. Between neighbouring data sets it changes by one of {count} "
            "known vectors, or by a point of their convex hull. Gaussian noise is added, its coordinates correlated.",
            "sum of the variances" if self.weights is None else "weighted sum of the covariance, tr(WΣ)",
        )


def loss_root(span: Span, weights: Array | None) -> Array:
    """Return L with LᵀL = EᵀWE: in coordinates L x the loss is the plain trace."""
    if span.lift is None and weights is None:
        return np.eye(span.rank)
    lifted = span.matrix
    gram = lifted.T @ (lifted if weights is None else weights @ lifted)
    scale = np.sqrt(np.diag(gram))
    root: Array = np.linalg.cholesky(gram / np.outer(scale, scale)).T * scale
    return root


def trace_loss(noise: CorrelatedGaussianNoise, root: Array) -> float:
    """Return tr(WΣ) = ‖L R⁻¹‖²_F."""
    whitening = np.eye(noise.span.rank) if noise.whitening is None else noise.whitening
    return float((inverse_rows(np.asarray(np.linalg.solve(root.T, whitening.T).T, dtype=float)) ** 2).sum())


@serializable("correlated-gaussian-proof")
@dataclass(frozen=True, eq=False)
class CorrelatedGaussianProof(Proof):
    r"""Weights y on the vectors prove a covariance: :math:`(\operatorname{tr}\sqrt{W^{1/2} M W^{1/2}})^2/(\mu^2 \sum y)` is a lower bound.

    With :math:`M = \sum_k y_k d_k d_k^\top`, by weak duality of the matrix-fractional program (docs/theory; Li et al. 2010 for
    one changed count). That the law's budget covers every vector is checked in rational numbers up to 64 dimensions and rounded
    up beyond; cost and lower bound are sums in floats.

    Parameters
    ----------
    multipliers : ndarray, shape (m,)
        y.
    """

    multipliers: Array

    speaks_of = ("privacy", "value", "lower bound")
    bound_how = RECOMPUTED

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design = instance("question", stated.question, CorrelatedGaussian)
        law = instance("law", stated.law, CorrelatedGaussianNoise)
        span, whitening, budget = law.span, law.whitening, law.budget
        # `release` takes from the law's own budget how much wider it must be for its lattice
        if whitening is None or span.size != design.vectors.shape[1] or budget != design.budget:
            yield Claim("the law is held exactly", PROVED, -math.inf, False)
            return
        inside = all(span.inside(row) for row in design.vectors)
        yield Claim("noise reaches every direction of the set", PROVED, 0.0 if inside else -math.inf, inside)
        reduced = design.vectors[:, span.coordinates]
        spent, exact = largest_spent(whitening, reduced)
        yield Claim(
            f"the budget covers every vector ({'rational' if exact else 'rounded up'})",
            PROVED,
            budget - spent,
            spent <= budget,
        )
        yield shown_covariance(law)
        root = loss_root(span, design.weights)

        def proved() -> float:
            weights = np.maximum(self.multipliers, 0.0)  # whatever they are, the bound is one of weights
            found = balance(reduced @ root.T, weights) if weights.any() else None
            return 0.0 if found is None else found.lower_bound / budget

        yield from cost_claims(stated, trace_loss(law, root), proved)


def cost_claims(stated: Certificate, cost: float, proved: Callable[[], float]) -> Iterator[Claim]:
    """That the budget is worth the requirement, that `cost` is stated, and that no covariance costs less than the stated bound."""
    worth = budget_worth(stated.question.privacy, stated.question.budget)
    yield Claim("the budget is worth the requirement", RECOMPUTED, worth, worth >= 0)
    room = stated.value * (1 + _ROUNDING) - cost
    yield Claim(f"the loss is at most {stated.value:.9g}", RECOMPUTED, room, room >= 0)
    if (bound := stated.lower_bound) is not None:
        least = proved()
        holds = least * (1 + _ROUNDING) >= bound
        claim = f"no {stated.question.among.noun} costs less than {bound:.9g}"
        yield Claim(claim, RECOMPUTED, least - bound, holds)


def shown_covariance(law: CorrelatedGaussianNoise) -> Claim:
    """That the covariance shown is that of the whitening."""
    assert law.whitening is not None
    factor = law.span.matrix @ inverse_rows(law.whitening)
    true = factor @ factor.T
    deviations, off = np.sqrt(np.diag(true)), np.abs(law.covariance - true)
    near = bool((off <= 1e-9 * np.outer(deviations, deviations)).all())
    return Claim("the covariance shown is the law's", RECOMPUTED, -float(off.max()), near)
