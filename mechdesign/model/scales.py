r"""The unknown scales of independent noise and the unknown covariance of correlated Gaussian noise, and their privacy requirements.

A `Scales` *is* a CVXPY variable with an entry for each number of the answer, in the answer's unit: the standard deviation :math:`\sigma_i` of Gaussian
noise, :math:`\beta_i` of Laplace noise. Rows on it are written by hand, whatever variables a solver uses.

>>> import mechdesign as md
>>> s = md.Scales([1.0, 8.0], noise="laplace")
>>> problem = md.Problem(md.Minimize(s.expected(2)), [s.private(md.PureDP(1.0))])
>>> round(problem.solve().value, 6), round(problem.subject_to(md.named("same", s[0] == s[1])).solve().value, 6)
(250.0, 324.0)

A `Covariance` *is* a symmetric positive semidefinite CVXPY variable S: :math:`S_{ij}` is the covariance of the noise on the numbers i and j. Neighbouring
data sets differ by a vector v of a finite list, up to sign, or by a point of its convex hull; the noise is private iff
:math:`v^\top S^{-1} v \le \mu^2` for each of them.

>>> S = md.Covariance([[1.0, 0.0], [1.0, 1.0]])
>>> problem = md.Problem(md.Minimize(S.total()), [S.private(md.ZeroConcentratedDP(0.5))])
>>> round(problem.solve().value, 6), round(problem.subject_to(md.named("first", S[0, 0] <= 1.4)).solve().value, 6)
(2.618034, 2.625)
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, get_args

import cvxpy as cp
import numpy as np

from mechdesign.accounting.gaussian import GaussianPrivacy, gaussian_budget, gaussian_profile
from mechdesign.accounting.profile import gaussian_most
from mechdesign.checks import array, instance, number, one_of, refuse, rounded_up
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import log_upper, safe_root
from mechdesign.evidence.serialize import serializable
from mechdesign.model.problem import Requirement, Unknown
from mechdesign.problem.law_moments import absolute_moment
from mechdesign.problem.privacy import (
    GAUSSIAN_ALONE,
    ApproximateDP,
    GaussianDP,
    Pointwise,
    PureDP,
    ZeroConcentratedDP,
    guarantee,
    pairs_of,
)
from mechdesign.problem.sensitivity import NEIGHBOURS, Sensitivity, exponent_of, neighbours_of
from mechdesign.problem.workload import Workload, span_of
from mechdesign.typing import Array, Numbers

SUM_ERROR = 1e-14
"""Bound of the relative error of a pairwise NumPy sum of up to 2⁴⁰ non-negative terms, including the terms' (≤ 64 ulps)."""


_gaussian_budget, _gaussian_most = lru_cache(64)(gaussian_budget), lru_cache(64)(gaussian_most)


@serializable("scales-privacy", eq=False)
class ScalesPrivacy(Requirement):
    r"""A requirement on scales for changes of the answer: `Scales.private` makes it.

    Independent noise of scales s meets it if no change v of the answer consumes more than the `budget`,
    :math:`\sum_i (|v_i|/s_i)^m \le B`: m = 2 and :math:`B = \mu_0^2` for Gaussian noise, m = 1 and B the total ε for Laplace noise, to which δ adds
    (Muthukrishnan and Kalyani, Theorems 4 and 5, Corollary 6).

    Parameters
    ----------
    noise : {"gaussian", "laplace"}
    sensitivities : ndarray, shape (K,)
        Largest change of each number.
    bounds : Sensitivity, optional
        All bounds of the changes, if there are others.
    """

    noise: str
    sensitivities: Array
    bounds: Sensitivity | None = None

    @property
    def exponent(self) -> int:
        """m: a change v of one number consumes (v/s)^m."""
        return exponent_of(self.noise)

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """All required (ε, δ); none under zero-concentrated and Gaussian privacy."""
        return pairs_of(self.privacy) if isinstance(self.privacy, Pointwise) else ()

    @property
    def failing(self) -> bool:
        """Whether some δ is above 0."""
        return any(delta for _, delta in self.points)

    @cached_property
    def one_dimensional(self) -> bool:
        """Whether one number alone changes."""
        few = self.bounds is not None and self.bounds.l0 == 1
        return few or int(np.count_nonzero(self.sensitivities)) == 1

    @property
    def sufficient(self) -> bool:
        """Whether the budget is sufficient but not necessary, as that of Laplace noise on several numbers with δ > 0 (Corollary 6)."""
        return self.noise == "laplace" and self.failing and not self.one_dimensional

    def worth(self, delta: float) -> float:
        """Return the amount that δ adds to the total ε of Laplace noise."""
        return -(2 if self.one_dimensional else 1) * math.log1p(-delta)

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu_0^2` (Gaussian) or the total ε (Laplace), rounded down."""
        privacy = instance("privacy", self.privacy, PureDP, *get_args(GaussianPrivacy))
        if self.noise == "gaussian":
            exact = isinstance(privacy, ZeroConcentratedDP | GaussianDP)
            return _gaussian_budget(privacy) * (1 - SUM_ERROR if exact else 1)
        refuse(isinstance(privacy, GaussianDP), "privacy", privacy, GAUSSIAN_ALONE)
        allowed = "Laplace noise takes epsilon and delta: PureDP, ApproximateDP or TradeOff"
        refuse(not self.points, "privacy", privacy, allowed)
        return min((e + self.worth(d)) * (1 - SUM_ERROR) if d else e for e, d in self.points)

    @cached_property
    def most(self) -> Fraction:
        """The budget rounded up: noise that consumes more violates the requirement, or Corollary 6."""
        if self.noise == "gaussian":
            return _gaussian_most(self.privacy)
        times = 2 if self.one_dimensional else 1
        logs = [(e, Fraction(log_upper(1 / (1 - Fraction(d)))) if d else 0) for e, d in self.points if d < 1]
        return min(Fraction(e) + times * log for e, log in logs)

    @property
    def apart(self) -> float:
        """Bound of the relative difference of `most` and `budget`."""
        return float(self.most / Fraction(self.budget) - 1) * (1 + 1e-6)

    def smallest_epsilon(self, budget: float) -> float | None:
        """Return the least ε that allows this budget; None if no single ε determines it."""
        privacy = self.privacy
        if self.noise == "laplace" and len(self.points) == 1:
            return max(budget - self.worth(self.points[0][1]), 0.0)
        if not isinstance(privacy, ApproximateDP):
            return None
        high, mu = 2 * privacy.epsilon + budget, math.sqrt(budget * (1 + 1e-14))
        while gaussian_profile(high, mu) > privacy.delta:
            high *= 2
        return safe_root(lambda e: gaussian_profile(e, mu) - privacy.delta, privacy.epsilon, high)

    def __str__(self) -> str:
        return guarantee(self.privacy)


class Scales(Unknown):
    """Scales of independent noise for a vector of numbers: the unknown of a problem, and a CVXPY variable.

    Parameters
    ----------
    sensitivity : array_like, shape (K,), or Sensitivity
        Largest change of each number between neighbours; a `Sensitivity` with ``each`` may also bound how many change, and norms.
    noise : {"gaussian", "laplace"}
    neighbours : {"add-remove", "replace"}
        Neighbours for which the changes hold; a `Sensitivity` states its own.

    Examples
    --------
    >>> s = Scales([1.0, 2.0, 0.5])
    >>> s.shape, (s[0] == s[1]).is_dcp()
    ((3,), True)
    """

    problem_class = "mechdesign.noise.scales_problem:ScalesProblem"

    def __init__(
        self, sensitivity: Numbers | Sensitivity, noise: str = "gaussian", *, neighbours: str = "add-remove"
    ) -> None:
        self.noise = one_of("noise", noise, ("gaussian", "laplace"))
        self.neighbours = neighbours_of(sensitivity, neighbours)
        self.sensitivity = sensitivity
        sizes = _sizes(sensitivity)
        super().__init__((len(sizes),), pos=True, name="sigma" if noise == "gaussian" else "beta")

    def private(self, privacy: Any, sensitivity: Numbers | Sensitivity | None = None) -> ScalesPrivacy:
        """Require privacy for these changes, those of the scales unless given.

        Parameters
        ----------
        privacy : PureDP, ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
            ZeroConcentratedDP and GaussianDP for Gaussian noise only, PureDP for Laplace noise only. A problem may have several requirements, and several
            sets of changes.
        sensitivity : array_like, shape (K,), or Sensitivity, optional
        """
        given = self.sensitivity if sensitivity is None else sensitivity
        sizes = _sizes(given)
        remedy = f"must be of {self.size} numbers, one per scale"
        refuse(sizes.shape != self.shape, "sensitivity", sizes.shape, remedy)
        bounds = given if isinstance(given, Sensitivity) else None
        if bounds is not None and (bounds.l0, bounds.l1, bounds.l2) == (None, None, None):
            bounds = None
        found = ScalesPrivacy("private", privacy, self.noise, sizes, bounds, unknown=self)
        _ = found.budget
        return found

    def expected(self, loss: float | str = 2, weights: Numbers | None = None) -> cp.Expression:
        r"""Return :math:`\sum_i w_i E|T_i|^p`, T the noise and p the `loss` (see `order_of`); its weights w are ones unless given."""
        order = order_of(loss)
        held = np.ones(self.size) if weights is None else array("weights", weights)
        if held.shape != self.shape or not (held > 0).all():
            raise DesignError.of("weights", held, f"must be {self.size} positive numbers, one per scale")
        found: cp.Expression = absolute_moment(self.noise, order) * (held @ cp.power(self, order))
        found.set_label(
            f"sum of E|noise|^{order:.6g} over the numbers{'' if weights is None else ', weighted'}"
        )
        found.loss = order, held  # type: ignore[attr-defined]
        return found


def order_of(loss: float | str) -> float:
    """Return the order p of a loss E‖T‖_p^p: ``"absolute"`` is 1, ``"squared"`` 2.

    Examples
    --------
    >>> order_of("squared"), order_of(0.5)
    (2, 0.5)
    """
    allowed = 'must be "absolute", "squared" or the order p of E‖T‖_p^p, above 0 and at most 100'
    if isinstance(loss, str) and loss in ("absolute", "squared"):
        return 1 if loss == "absolute" else 2
    refuse(not 0 < (order := number("loss", loss, allowed)) <= 100, "loss", loss, allowed)
    return (
        loss if isinstance(loss, int) else order
    )  # fractions and decimals are numbers too, but none of NumPy's


def _sizes(sensitivity: Any) -> Array:
    """Return the largest change of each number."""
    if isinstance(sensitivity, Sensitivity):
        if sensitivity.each is None:
            raise DesignError.of("sensitivity", str(sensitivity), "must bound every number: each=[...]")
        most = [b for b in (sensitivity.linf, sensitivity.l1, sensitivity.l2) if b is not None]
        return np.asarray(np.minimum(np.array(sensitivity.each), min(most, default=math.inf)))
    found: Array = rounded_up(array("sensitivity", sensitivity), sensitivity)
    if not ((found >= 0).all() and found.any()):
        raise DesignError.of("sensitivity", found, "must be numbers of at least 0, one per scale, not all 0")
    return found


_LARGEST = 1e100


def change_rows(value: Any) -> Array:
    """Return changes, a vector a row, or raise DesignError."""
    found = array("changes", value, ndim=2)
    allowed = "are all zero: the query needs no noise at all, release it as it is"
    refuse(not found.any(), "changes", value, allowed)
    if not 1 / _LARGEST <= (largest := float(np.abs(found).max())) <= _LARGEST:
        allowed = "must have its largest entry between 1e-100 and 1e100: doubles square it"
        raise DesignError.of("changes", largest, allowed)
    return found


@serializable("covariance-privacy", eq=False)
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
        Changes by one person, a vector a row, up to sign; vertices are enough for a polytope. They span all K dimensions.
    neighbours : {"add-remove", "replace"}
        Neighbours for which the changes hold.

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
        self.changes = change_rows(changes)
        self.neighbours = one_of("neighbours", neighbours, NEIGHBOURS)
        size, rank = self.changes.shape[1], span_of(self.changes).rank
        allowed = f"span {rank} of {size} dimensions: add the changes that are missing, or leave coordinates out that nobody changes"
        refuse(rank < size, "changes", self.changes.shape, allowed)
        super().__init__((size, size), PSD=True, name="S")

    def stated(self) -> dict[str, Any]:
        return {"changes": self.changes, "neighbours": self.neighbours}

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
        return _labelled(found, TOTAL, workload)

    def largest(self, workload: Workload | Numbers | None = None) -> cp.Expression:
        """Return the largest variance of the numbers, or of the answers of a workload."""
        return _labelled(cp.max(self.variances(workload)), LARGEST_VARIANCE, workload)

    def _rows(self, workload: Workload | Numbers) -> Array:
        rows = workload.dense() if isinstance(workload, Workload) else array("workload", workload, ndim=2)
        refuse(rows.shape[1] != self.shape[0], "workload", rows.shape, f"must have {self.shape[0]} columns")
        return rows


TOTAL, LARGEST_VARIANCE = "sum of the variances", "largest variance"


def _labelled(expression: cp.Expression, words: str, workload: object) -> cp.Expression:
    expression.set_label(words if workload is None else f"{words} of a workload's answers")
    return expression
