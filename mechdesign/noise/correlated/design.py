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
import time
from dataclasses import dataclass, replace
from functools import cached_property
from types import NoneType
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.budget import gaussian_budget
from mechdesign.noise.correlated.certificate import CorrelatedGaussianCertificate, loss_root, trace_loss
from mechdesign.noise.correlated.corners import corners
from mechdesign.noise.correlated.fixed_point import Balance, balance, fixed_point
from mechdesign.noise.correlated.noise import CorrelatedGaussianNoise, inverse_rows
from mechdesign.noise.correlated.result import CorrelatedGaussianResult
from mechdesign.noise.correlated.span import Span, span_of
from mechdesign.noise.correlated.whitened import largest_spent
from mechdesign.problem.checks import array, instance, one_of, settle
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.privacy import ApproximateDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers import Deadline, Model
from mechdesign.typing import Array, Status

__all__ = ["CorrelatedGaussian"]


@serializable("correlated-gaussian")
@dataclass(frozen=True, eq=False)
class CorrelatedGaussian(OldDesign):
    r"""The best Gaussian covariance for a finite set of sensitivity vectors.

    Parameters
    ----------
    vectors : array_like, shape (m, K), or Sensitivity
        The set, one vector per row, up to sign; vertices are enough for a polytope. A Sensitivity with ``each``: its corners
        (`of_sensitivity` takes the number of coordinates where nothing else says it).
    privacy : ApproximateDP or ZeroConcentratedDP
    weights : array_like, shape (K,) or (K, K), optional
        W of the loss tr(WΣ): a positive diagonal or a positive definite matrix; the identity by default.
    span : bool
        Whether vectors that span a subspace only are all that a person can change: there is no noise outside it then.

    Raises
    ------
    DesignError
        Vectors empty, not finite or all zero, or in a subspace where `span` does not say that this is meant; weights not positive definite; δ = 0.

    Notes
    -----
    The matrix-fractional model is [new] beside Muthukrishnan and Kalyani's diagonal P3; cf. the matrix
    mechanism of Li et al. (2010).

    Examples
    --------
    >>> result = CorrelatedGaussian(vectors=np.eye(3), privacy=ApproximateDP(1.0, 1e-6)).solve()
    >>> round(result.value * result.design.budget, 4)   # a box with these sides needs 9
    3.0
    """

    vectors: Any
    privacy: ApproximateDP | ZeroConcentratedDP
    weights: Any = None
    span: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.vectors, Sensitivity):
            settle(self, vectors=corners(self.vectors, len(self.vectors.each or ())), span=True)
        vectors = array("vectors", self.vectors, ndim=2)
        if not vectors.any():
            raise DesignError.of(
                "vectors", self.vectors, "are all zero: the query needs no noise at all, release it as it is"
            )
        if not 1e-153 <= np.abs(vectors).max() <= 1e150:
            raise DesignError.of(
                "vectors",
                float(np.abs(vectors).max()),
                "must have its largest entry between 1e-153 and 1e150: doubles square it",
            )
        settle(self, vectors=vectors)
        if self.weights is not None:
            settle(self, weights=self._matrix(array("weights", self.weights, ndim=None)))
        _ = self.budget
        one_of("span", self.span, (True, False))
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
        cls, sensitivity: Sensitivity, dimension: int, privacy: Any, weights: Any = None
    ) -> CorrelatedGaussian:
        """The design for changes within bounds of single coordinates, of which at most some change; the corners are listed.

        Examples
        --------
        >>> few = Sensitivity(each=[1, 2, 3], changed=1)
        >>> CorrelatedGaussian.of_sensitivity(few, 3, ApproximateDP(1.0, 1e-6)).vectors
        array([[1., 0., 0.],
               [0., 2., 0.],
               [0., 0., 3.]])
        """
        # a bound of 0 says that nobody changes this coordinate
        return cls(corners(sensitivity, dimension), privacy, weights, span=True)

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
    def budget(self) -> float:
        r""":math:`\mu_0^2`, rounded down."""
        return gaussian_budget(self.privacy)

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

    def model(self, **options: Any) -> Model:
        """Return the SDP in coordinates where the loss is a weighted trace and the best covariance is near I.

        Constraints: "privacy", a matrix-fractional one per vector.
        """
        refuse_unknown(options, "the model has none")
        x, stretch, _ = self._stretched
        s = cp.Variable((len(stretch), len(stretch)), PSD=True, name="covariance")
        privacy = [cp.matrix_frac(row, s) <= 1 for row in x if row.any()]
        loss = cp.sum(cp.multiply(stretch**2, cp.diag(s)))
        return Model(cp.Problem(cp.Minimize(loss), privacy), {"covariance": s}, {"privacy": privacy})

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> CorrelatedGaussianResult:
        """Return the covariance, made to meet the budget for sure, and a lower bound by weak duality; gap 1e-9 by default.

        Parameters
        ----------
        solver : {None, "fixed-point", "clarabel", "scs"}
            The fixed point of `fixed_point` when not named; the others solve `model`, whose multipliers are taken.

        Raises
        ------
        SolverError
        """
        one_of("certify", certify, (True, False))
        wanted, deadline = wanted_gap(gap, 1e-9), Deadline(time_limit)
        fixed = instance("solver", solver, str, NoneType) in (None, "fixed-point")
        by = self._by_fixed_point if fixed else self._by_model
        balanced, rows, report = by(solver, wanted, deadline, options)
        noise = self._noise(rows)
        value = trace_loss(noise, self._plain[1]) * (1 + 1e-14)
        lower_bound = min(balanced.lower_bound * self._plain[2] ** 2 / self.budget * (1 - 1e-12), value)
        evidence = CorrelatedGaussianCertificate(
            self.vectors, self.privacy, self.weights, self.budget, noise, value, lower_bound, balanced.weights
        )
        status = (
            Status.LIMIT
            if deadline.passed
            else Status.OPTIMAL
            if value - lower_bound <= 10 * wanted * value
            else Status.LIMIT
            if report.status is Status.LIMIT
            else Status.GAP
        )
        return CorrelatedGaussianResult(
            design=self,
            mechanism=noise,
            value=value,
            lower_bound=lower_bound,
            solver_report=replace(report, status=status if certify else Status.UNCERTIFIED),
            notes=self._notes(),
            certificate=evidence if certify else None,
            duals=_multipliers(balanced.weights * value / self.budget),
        )

    def _by_fixed_point(
        self, solver: str | None, gap: float, deadline: Deadline, options: dict[str, Any]
    ) -> tuple[Balance, Array, SolveReport]:
        """Weights on the vectors, and a whitening of M^{1/2}."""
        refuse_unknown(options, "the fixed point has none")
        started, x = time.perf_counter(), self._plain[0]
        found = fixed_point(x, gap, deadline)
        report = SolveReport(
            "fixed-point",
            Status.LIMIT if found.late else Status.OPTIMAL,
            seconds=time.perf_counter() - started,
            variables=x.shape[1] * (x.shape[1] + 1) // 2,
            constraints=len(x),
            iterations=found.steps,
            requested=solver,
        )
        return found.best, found.best.whitening, report

    def _by_model(
        self, solver: str | None, gap: float, deadline: Deadline, options: dict[str, Any]
    ) -> tuple[Balance, Array, SolveReport]:
        """The model's multipliers, and a whitening of its covariance."""
        if solver == "clarabel":
            # Closer than this it stalls; the bounds tell how much is left.
            options = {**dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9), **options}
        solution = solvers.solve(self.model(), solver, time_limit=deadline.limit(), **options)
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
        whitening, margin = rows @ root / size, 1e-15
        reduced = self.vectors[:, span.coordinates]
        while (spent := largest_spent(whitening, reduced)[0]) > self.budget or margin == 1e-15:
            whitening = whitening * (math.sqrt(self.budget / spent) * (1 - margin))
            margin *= 2
        factor = span.matrix @ inverse_rows(whitening)
        return CorrelatedGaussianNoise(factor @ factor.T, whitening, span.coordinates, span.lift, self.budget)

    def _notes(self) -> tuple[str, ...]:
        size, rank = self.vectors.shape[1], self.subspace.rank
        if rank == size:
            return ()
        return (f"the vectors span {rank} of {size} dimensions; the noise stays in that subspace",)


def _multipliers(weights: Array) -> pd.DataFrame:
    return pd.DataFrame({"family": "privacy", "index": np.arange(len(weights)), "dual": weights})
