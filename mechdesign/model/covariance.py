r"""The unknown covariance of correlated Gaussian noise, and the privacy that is asked of it.

A `Covariance` *is* a symmetric positive semidefinite CVXPY variable S: :math:`S_{ij}` is the covariance of the noise on the numbers i and j. Neighbouring
data sets differ by a vector v of a finite list, up to sign, or by a point of its convex hull; the noise is private iff
:math:`v^\top S^{-1} v \le \mu^2` for each of them.

>>> import mechdesign as md
>>> S = md.Covariance([[1.0, 0.0], [1.0, 1.0]])
>>> problem = md.Problem(md.Minimize(S.total()), [S.private(md.ZeroConcentratedDP(0.5))])
>>> round(problem.solve().value, 6), round(problem.subject_to(md.named("first", S[0, 0] <= 1.4)).solve().value, 6)
(2.618034, 2.625)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from mechdesign.accounting.gaussian import gaussian_budget
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.model.problem import Requirement, Unknown
from mechdesign.problem.checks import array, one_of
from mechdesign.problem.sensitivity import NEIGHBOURS
from mechdesign.problem.words import guarantee
from mechdesign.problem.workload import Workload, span_of
from mechdesign.typing import Array, Numbers

LARGEST = 1e100
"""Of a change: doubles square it."""


@serializable("covariance-privacy")
@dataclass(frozen=True, eq=False)
class CovariancePrivacy(Requirement):
    r"""A requirement on a covariance: :math:`v^\top S^{-1} v \le \mu^2` for each change v. `Covariance.private` makes it."""

    @property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down."""
        return gaussian_budget(self.privacy)

    def __str__(self) -> str:
        return guarantee(self.privacy)


class Covariance(Unknown):
    """The covariance of Gaussian noise on a vector of numbers: the unknown of a problem, and a CVXPY variable.

    Parameters
    ----------
    changes : array_like, shape (k, K)
        What one person changes, one vector a row, up to sign; vertices are enough for a polytope. They span all K dimensions.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold.

    Raises
    ------
    DesignError
        Changes empty, not finite, or in a subspace.

    Examples
    --------
    >>> S = Covariance(np.eye(3))
    >>> S.shape, (S[0, 0] <= 2 * S[1, 1]).is_dcp(), S.largest().is_convex()
    ((3, 3), True, True)
    """

    problem_class = "mechdesign.noise.covariance_problem:CovarianceProblem"

    def __init__(self, changes: Numbers, *, neighbours: str = NEIGHBOURS[0]) -> None:
        self.changes = array("changes", changes, ndim=2)
        if not 1 / LARGEST <= np.abs(self.changes).max() <= LARGEST:
            allowed = "must have its largest entry between 1e-100 and 1e100: doubles square it"
            raise DesignError.of("changes", float(np.abs(self.changes).max()), allowed)
        self.neighbours = one_of("neighbours", neighbours, NEIGHBOURS)
        size, rank = self.changes.shape[1], span_of(self.changes).rank
        if rank < size:
            remedy = f"span {rank} of {size} dimensions: add the changes that are missing, or leave coordinates out that nobody changes"
            raise DesignError.of("changes", self.changes.shape, remedy)
        super().__init__((size, size), PSD=True, name="S")

    def private(self, privacy: Any) -> CovariancePrivacy:
        """Require privacy for these changes.

        Parameters
        ----------
        privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
        """
        found = CovariancePrivacy("private", privacy, unknown=self)
        _ = found.budget
        return found

    def variances(self, workload: Workload | Numbers | None = None) -> cp.Expression:
        """Return the variances of the numbers, or of the answers A x of a workload."""
        if workload is None:
            return cp.diag(self)
        rows = self._rows(workload)
        found: cp.Expression = cp.sum(cp.multiply(rows @ self, rows), axis=1)
        return found

    def total(self, workload: Workload | Numbers | None = None) -> cp.Expression:
        r"""Return the sum of the variances of the numbers, tr S, or of the answers of a workload, :math:`\operatorname{tr}(A S A^\top)`."""
        if workload is None:
            found = cp.trace(self)
        else:
            rows = self._rows(workload)
            found = cp.sum(cp.multiply(rows.T @ rows, self))
        return _labelled(found, "sum of the variances", workload)

    def largest(self, workload: Workload | Numbers | None = None) -> cp.Expression:
        """Return the largest variance of the numbers, or of the answers of a workload."""
        return _labelled(cp.max(self.variances(workload)), "largest variance", workload)

    def _rows(self, workload: Workload | Numbers) -> Array:
        rows = workload.dense() if isinstance(workload, Workload) else array("workload", workload, ndim=2)
        if rows.shape[1] != self.shape[0]:
            raise DesignError.of("workload", rows.shape, f"must have {self.shape[0]} columns")
        return rows


def _labelled(expression: cp.Expression, words: str, workload: object) -> cp.Expression:
    expression.set_label(words if workload is None else f"{words} of a workload's answers")
    return expression
