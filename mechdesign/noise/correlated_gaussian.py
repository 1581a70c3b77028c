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
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.errors import DesignError
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.vector_noise import CorrelatedGaussianNoise
from mechdesign.problem.privacy import ApproximateDP, ZeroConcentratedDP
from mechdesign.solvers import Model
from mechdesign.typing import Array

__all__ = ["CorrelatedGaussian", "CorrelatedGaussianResult"]


_SAFETY = 1e-11
"""Relative step of the covariance to the safe side; above the rounding of the quadratic forms."""


@serializable("correlated-gaussian-result")
@dataclass(frozen=True, eq=False)
class CorrelatedGaussianResult(Result):
    """A covariance with its cost and a proved lower bound."""

    @property
    def covariance(self) -> Array:
        """Σ, shape (K, K)."""
        return self.mechanism.covariance

    @property
    def spent(self) -> Array:
        r"""Share of the budget each vector takes, :math:`d_k^\top\Sigma^{-1}d_k/\mu_0^2`; at most 1."""
        return self.mechanism.mahalanobis(self.design.vectors) ** 2 / self.design.budget

    def to_frame(self) -> pd.DataFrame:
        """A row per vector of the sensitivity set."""
        return pd.DataFrame({"vector": np.arange(len(self.design.vectors)), "spent": self.spent})

    def _audit(self) -> pd.DataFrame:
        used = self.mechanism.mahalanobis(self.design.vectors) ** 2
        budget = self.design.budget
        dual = np.asarray(self.certificate) if self.certificate is not None else np.full(len(used), np.nan)
        rows = [
            ("privacy", k, float(v), budget, float(budget - v), float(y), bool(budget - v <= 1e-7 * budget))
            for k, (v, y) in enumerate(zip(used, dual))
        ]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        used = self.spent
        return [
            f"{len(used)} sensitivity vectors in {self.design.vectors.shape[1]} dimensions, "
            f"{int((used > 1 - 1e-6).sum())} active, largest share of the budget {used.max():.15g}",
        ]


@serializable("correlated-gaussian")
@dataclass(frozen=True, eq=False)
class CorrelatedGaussian:
    r"""The best Gaussian covariance for a finite set of sensitivity vectors.

    Parameters
    ----------
    vectors : array_like, shape (m, K)
        The set, one vector per row, up to sign; vertices are enough for a polytope.
    privacy : ApproximateDP or ZeroConcentratedDP
    weights : array_like, shape (K,) or (K, K), optional
        W of the loss tr(WΣ): a positive diagonal or a positive definite matrix; the identity by default.

    Raises
    ------
    DesignError
        Vectors empty, not finite or all zero; weights not positive definite; δ = 0.

    Notes
    -----
    The matrix-fractional model is [new] beside Muthukrishnan and Kalyani's diagonal P3; cf. the matrix
    mechanism of Li et al. (2010). Where the vectors span a subspace only, noise stays in it.

    Examples
    --------
    >>> result = CorrelatedGaussian(vectors=np.eye(3), privacy=ApproximateDP(1.0, 1e-6)).solve()
    >>> round(result.value * result.design.budget, 4)   # a box with these sides needs 9
    3.0
    """

    vectors: Any
    privacy: ApproximateDP | ZeroConcentratedDP
    weights: Any = None

    def __post_init__(self) -> None:
        try:
            d = np.asarray(self.vectors, dtype=float)
        except (TypeError, ValueError):
            raise DesignError.of("vectors", self.vectors, "must be a matrix of numbers") from None
        if d.ndim != 2 or d.size == 0 or not np.all(np.isfinite(d)):
            raise DesignError.of("vectors", self.vectors, "must be a finite matrix with a vector per row")
        if not np.any(d):
            raise DesignError.of(
                "vectors", self.vectors, "are all zero: the query needs no noise at all, release it as it is"
            )
        object.__setattr__(self, "vectors", d)
        if self.weights is not None:
            w = np.asarray(self.weights, dtype=float)
            size = d.shape[1]
            if w.shape == (size,):
                w = np.diag(w)
            if w.shape != (size, size) or not np.all(np.isfinite(w)) or not np.allclose(w, w.T):
                raise DesignError.of(
                    "weights", self.weights, f"must have shape ({size},) or ({size}, {size})"
                )
            if np.linalg.eigvalsh(w).min() <= 0:
                raise DesignError.of("weights", self.weights, "must be positive definite")
            object.__setattr__(self, "weights", (w + w.T) / 2)
        _ = self.budget

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu_0^2`, rounded down."""
        if isinstance(self.privacy, ZeroConcentratedDP):
            return 2 * self.privacy.rho
        if not isinstance(self.privacy, ApproximateDP) or self.privacy.delta == 0:
            raise DesignError.of(
                "privacy",
                self.privacy,
                "Gaussian noise needs delta > 0; for delta = 0 use NoiseAllocation(noise='laplace')",
            )
        return gaussian_mu(self.privacy.epsilon, self.privacy.delta) ** 2 * (1 - 1e-15)

    @cached_property
    def _coordinates(self) -> tuple[Array, Array, Array, float]:
        """Basis B (K, r) in which W is the identity, the vectors in it over their size, stretches, the size.

        Substituting d = W^{-1/2} x turns tr(WΣ) into a plain trace; the singular basis of the x drops the
        directions no vector has. The roots of the singular values are the stretches that make the optimal
        covariance, which is close to the root of the second moment of the x, close to a multiple of I.
        """
        d = self.vectors
        root = np.eye(d.shape[1])
        back = root
        if self.weights is not None:
            values, basis = np.linalg.eigh(self.weights)
            root = basis * np.sqrt(values) @ basis.T
            back = basis / np.sqrt(values) @ basis.T
        x = d @ root
        size = np.linalg.norm(x, axis=1).max()
        _, singular, right = np.linalg.svd(x / size, full_matrices=False)
        keep = singular > 1e-10 * singular.max()
        basis = right[keep].T
        return back @ basis, x @ basis / size, np.sqrt(singular[keep] / singular.max()), float(size)

    def model(self) -> Model:
        """Return the SDP in normalised variables: Σ = (size²/μ₀²) B A S A Bᵀ, A the stretches.

        Constraints: "privacy", a matrix-fractional one per vector.
        """
        _, x, stretch, _ = self._coordinates
        rank = x.shape[1]
        s = cp.Variable((rank, rank), PSD=True, name="covariance")
        privacy = [cp.matrix_frac(row / stretch, s) <= 1 for row in x if np.any(row)]
        loss = cp.sum(cp.multiply(stretch**2, cp.diag(s)))
        return Model(cp.Problem(cp.Minimize(loss), privacy), {"covariance": s}, {"privacy": privacy})

    def solve(self, solver: str | None = None, **options: Any) -> CorrelatedGaussianResult:
        """Return the covariance, made to meet the budget for sure, and a lower bound by weak duality.

        Parameters
        ----------
        solver : str, optional
            "clarabel" (default) or "scs".

        Raises
        ------
        SolverError
        """
        basis, x, stretch, size = self._coordinates
        model = self.model()
        if solver in (None, "clarabel"):
            # Closer than this it stalls; what is left is bought back below, and the bound tells how much.
            options = {**dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9), **options}
        solution = solvers.solve(model, solver or "clarabel", **options)
        s = np.asarray(solution.primal["covariance"], dtype=float)
        s = (s + s.T) / 2 * np.outer(stretch, stretch)
        active = np.any(x != 0, axis=1)
        quadratic = np.einsum("ki,ik->k", x[active], _solve(s, x[active], stretch))
        s = s * (float(quadratic.max()) * (1 + _SAFETY))
        factor = size**2 / self.budget
        covariance = factor * (basis @ s @ basis.T)
        y = np.zeros(len(x))
        y[active] = np.maximum(np.ravel(solution.dual["privacy"]), 0.0)
        bound = _dual_bound(x, y) * factor
        weight = self.weights if self.weights is not None else np.eye(len(covariance))
        value = float(np.sum(weight * covariance))
        return CorrelatedGaussianResult(
            design=self,
            mechanism=CorrelatedGaussianNoise(covariance=(covariance + covariance.T) / 2),
            value=value,
            lower_bound=min(bound, value),
            solver_report=SolveReport.of(solution),
            notes=self._notes(x.shape[1]),
            certificate=y / max(float(y.sum()), 1e-300) * value / self.budget,
        )

    def _notes(self, rank: int) -> tuple[str, ...]:
        size = self.vectors.shape[1]
        if rank == size:
            return ()
        return (f"the vectors span {rank} of {size} dimensions; the noise stays in that subspace",)


def _solve(s: Array, x: Array, stretch: Array) -> Array:
    """S⁻¹xᵀ, through the stretched matrix, which is well conditioned."""
    core = s / np.outer(stretch, stretch)
    return np.linalg.solve(core, (x / stretch).T) / stretch[:, None]


def _dual_bound(x: Array, y: Array) -> float:
    r"""Return :math:`(\operatorname{tr} M^{1/2})^2 / \sum y`, M = Σ y x xᵀ, rounded down.

    The trace of the root is the sum of the singular values of :math:`\operatorname{diag}(\sqrt y)\,x`.
    """
    total = float(y.sum())
    if total <= 0:
        return 0.0
    singular = np.linalg.svd(np.sqrt(y)[:, None] * x, compute_uv=False)
    return math.fsum(singular) ** 2 / total * (1 - 1e-12)
