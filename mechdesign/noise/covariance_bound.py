r"""What a covariance of Gaussian noise costs, and what every covariance costs at least: proofs, and a declared problem in numbers.

**Proofs** show that no change consumes more than the budget, what a covariance costs, and a lower bound for every
covariance. For a design they are exact sums and saddle points; for a declared problem (`DeclaredCovariance`) everything
is rounded outward.

**Cost.** :math:`(R^\top R)^{-1}` is enclosed in balls, and with it :math:`\operatorname{tr}(G (R^\top R)^{-1})`.

**Bound.** Let S keep the budget, :math:`v^\top S^{-1} v \le \mu^2` for each change v, and let N have the rows
:math:`r_k v_k`. For every X and every Q of norm at most 1

.. math:: \operatorname{tr}(X S X^\top) \, \mu^2 \sum r_k^2 \ge \lVert S^{1/2} X^\top \rVert^2 \, \lVert S^{-1/2} N^\top \rVert^2 \ge (\operatorname{tr}(X N^\top Q))^2

(Cauchy and Schwarz). Own rows :math:`\operatorname{tr}(G_i S) + k_i \le 0` with multipliers :math:`\nu \ge 0` shift the
weights of the loss alone: with :math:`V' = V + \sum \nu_i G_i \succeq X^\top X` every such S costs at least
:math:`(\operatorname{tr} X N^\top Q)^2/(\lVert Q \rVert^2 \mu^2 \sum r^2) + \sum \nu_i k_i`. With :math:`Q` the polar
factor of :math:`N X^\top` this is :math:`(\operatorname{tr} \sqrt{V'^{1/2} M V'^{1/2}})^2/(\mu^2 \sum y)`, M = Σ y v
vᵀ, y = r².
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
from flint import arb, arb_mat, ctx, fmpq_mat
from scipy import sparse

from mechdesign.accounting.profile import gaussian_most
from mechdesign.checks import Checked, array, field, instance, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import fraction, rational
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.results import audit_rows
from mechdesign.evidence.serialize import serializable
from mechdesign.model.expressions import Linear
from mechdesign.model.scales import LARGEST_VARIANCE, TOTAL
from mechdesign.noise.correlated_noise import CorrelatedGaussianNoise, inverse_rows
from mechdesign.problem.workload import Span
from mechdesign.typing import Array

_DIGITS = 256
"""Bits of ball arithmetic: most of them are lost to an inverse of badly scaled rows."""


@lru_cache(maxsize=8)
def enclosed(law: CorrelatedGaussianNoise) -> arb_mat | None:
    """Return the covariance (RᵀR)⁻¹ in balls; None where these digits do not tell R from a singular matrix."""
    with ctx.workprec(_DIGITS), suppress(ZeroDivisionError):
        back = arb_mat(law.rows.tolist()).inv()
        return back * back.transpose()
    return None


def cost_between(law: CorrelatedGaussianNoise, weights: Array) -> tuple[Fraction, Fraction] | None:
    """Return lower and upper bounds on tr(G (RᵀR)⁻¹); None where there are none."""
    if (covariance := enclosed(law)) is None:
        return None
    with ctx.workprec(_DIGITS):
        at = zip(*(k.tolist() for k in np.nonzero(weights)))
        total = sum((arb(weights[i, j]) * covariance[i, j] for i, j in at), arb(0))
        return fraction(total.lower().fmpq()), fraction(total.upper().fmpq())


def polar(rows: Array, factor: Array) -> Array:
    """Return the polar factor Q of N Xᵀ."""
    outer, _, inner = np.linalg.svd(rows @ factor.T, full_matrices=False)
    return np.asarray(outer @ inner)


def dual_below(changes: Array, roots: Array, factor: Array, contraction: Array, most: Fraction) -> Fraction:
    """Return (tr X Nᵀ Q)²/(‖Q‖² μ² Σ r²), rounded down; 0 where nothing is proved."""
    with ctx.workprec(_DIGITS):
        v, x, q = (arb_mat(matrix.tolist()) for matrix in (changes, factor, contraction))
        held = [[arb(r) * c for c in row] for r, row in zip(roots.tolist(), v.tolist())]
        found = (x * arb_mat(held).transpose() * q).trace()
        sums = [sum(map(abs, row), arb(0)).upper() for row in (q.transpose() * q).tolist()]
        norm, least = fraction(max(sums).fmpq()), fraction(found.lower().fmpq())
    spent = sum((Fraction(r) ** 2 for r in roots.tolist()), Fraction(0))
    return least**2 / (norm * most * spent) if least > 0 else Fraction(0)


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
    size = len(exact)
    columns = fmpq_mat(size, len(factor), list(map(rational, factor.T.ravel().tolist())))
    left = fmpq_mat([list(map(rational, row)) for row in exact]) - columns * columns.transpose()
    scale = [Fraction(2) ** (-(math.frexp(float(exact[i][i]) or 1.0)[1] // 2)) for i in range(size)]
    unit = list(map(rational, scale))
    sums = (sum((abs(left[i, j]) * unit[j] for j in range(size) if j != i), rational(0)) for i in range(size))
    return all(left[i, i] * unit[i] >= others for i, others in enumerate(sums))


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
        allowed = f"numbers, and {size} entries of changes and rows, are too many: at most {MOST_NUMBERS} and {MOST_ENTRIES}"
        refuse(self.n > MOST_NUMBERS or size > MOST_ENTRIES, "covariance", self.n, allowed)
        DesignError.when(self.further < 0, "rows: do not fit the unknown")
        remedy = "is neither linear in the covariance nor piecewise linear; state it by abs, max, norm1, sum_largest or affine rows"
        DesignError.when("objective" in self.curved, f"objective: {remedy}")

    def named(self) -> Any:
        k = np.arange(self.n)
        variances = sparse.csr_array((np.ones(self.n), (k, k * (self.n + 1))), shape=(self.n, self.cells))
        return {TOTAL: variances.sum(axis=0)[None], LARGEST_VARIANCE: variances}.get(self.objective)

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
        self, multipliers: tuple[Fraction, ...], *, costs: bool = True
    ) -> tuple[list[list[Fraction]], list[Fraction], Fraction]:
        """Return V', the charge of each further variable, and the constant, exactly; `costs` are the objective's own."""
        total = [Fraction(x) * costs for x in self.cost.tolist()]
        for (row, column), value in zip(self.places.tolist(), self.coefficients.tolist()):
            if multipliers[row]:
                total[column] += multipliers[row] * Fraction(value)
        constant = sum(
            (nu * Fraction(k) for nu, k in zip(multipliers, self.offsets.tolist())),
            Fraction(self.constant) * costs,
        )
        n = self.n
        shifted = [[(total[i * n + j] + total[j * n + i]) / 2 for j in range(n)] for i in range(n)]
        return shifted, total[n * n :], constant

    def admissible(self, multipliers: tuple[Fraction, ...]) -> bool:
        """Return whether multipliers have the signs that their rows require."""
        return len(multipliers) == len(self.family) and all(
            nu >= 0 or equal for nu, equal in zip(multipliers, self.equal.tolist())
        )


@serializable("covariance-bound", eq=False)
class CovarianceBound(Checked, Proof):
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
    roots: Array = field(check=array, empty=True)
    factor: Array = field(check=array, ndim=2, empty=True)
    contraction: Array = field(check=array, ndim=2, empty=True)

    speaks_of = ("lower bound",)

    def _post_check(self) -> None:
        allowed = "factor: must be a matrix, with a column of the contraction for each of its rows"
        DesignError.when(self.contraction.shape != (len(self.roots), len(self.factor)), allowed)

    def bound(self, declared: DeclaredCovariance, *, costs: bool = True) -> Fraction | float:
        """Return the bound; minus infinity if the data are no multipliers of the problem. Without costs a positive one proves infeasibility."""
        fits = (len(self.roots), self.factor.shape[1]) == declared.changes.shape
        if not fits or not declared.admissible(self.multipliers):
            return -math.inf
        shifted, charges, constant = declared.shifted(self.multipliers, costs=costs)
        if any(charges) or not is_below(self.factor, shifted):
            return -math.inf
        return constant + self._dual(declared)

    def _dual(self, declared: DeclaredCovariance) -> Fraction:
        return dual_below(declared.changes, self.roots, self.factor, self.contraction, declared.most)

    def prices(self, declared: DeclaredCovariance) -> Array:
        """Return the decrease of the bound per unit of budget, split among the changes."""
        shares = self.roots**2 / (self.roots**2).sum()
        return np.asarray(shares * float(self._dual(declared)) / declared.budget)

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


def covariance_audit(family: str, used: Array, budget: float, dual: Array | float) -> pd.DataFrame:
    """Return a row for each change and the budget that it consumes."""
    left = budget - used
    return audit_rows(family, range(len(used)), used, budget, left, dual=dual, active=left <= 1e-7 * budget)


def budget_claims(spent: tuple[float, bool], budget: float, worth: float) -> Iterator[Claim]:
    """Claim that no change consumes more than the budget, rational or not, and that the budget meets the requirement."""
    most, exact = spent
    claim = f"the budget covers every change ({'rational' if exact else 'rounded up'})"
    yield Claim(claim, PROVED, budget - most, most <= budget)
    yield Claim.of("the budget is worth the requirement", RECOMPUTED, worth)
