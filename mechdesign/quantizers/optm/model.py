r"""OPTM as a linear program, declared once for every variant.

Unknowns :math:`q_n(i)`, 1 ≤ i ≤ n ≤ m − 1 (two families when the bins are not symmetric):

.. math::

    \min\; & \sum_j w_j \tfrac12 (\zeta^{L}_j + \zeta^{R}_{m-j} + B_{j+1} - B_j)  && \text{(Lemma 1, Theorems 3, 4)} \\
    \text{normalisation:}\; & \sum_i q_n(i) = 1 \\
    \text{dominance:}\; & q_i(i) \ge q_j(i), \quad j \ge i                        && \text{(Lemma 2)} \\
    \text{bounds:}\; & o_j(i) \le q_j(i) \le u_j(i) \\
    \text{privacy:}\; & z \le e^{\varepsilon} w                                   && \text{(Theorem 5 or 6)}

with :math:`w_j = \Pr[B_j \le X < B_{j+1}]` and :math:`\zeta_n = \sum_i q_n(i)(B_n - B_i)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import sparse

from mechdesign import solvers
from mechdesign.errors import InfeasibleError
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.optm.blocks import pair_costs
from mechdesign.quantizers.optm.products import Family, PrivacyRows, View, theorem5_pairs
from mechdesign.quantizers.optm.theorem6 import theorem6_pairs, theorem6_rows
from mechdesign.solvers import Model
from mechdesign.typing import Array, Indices, Status

__all__ = ["OPTMProgram"]


class OPTMProgram:
    """The linear program of OPTM for given bins; bounds and ε vary.

    Parameters
    ----------
    bins : array, shape (m,)
    input_range : (float, float)
    prior : Prior
    loss : Loss
    constraints : {"theorem5", "theorem6", "across-outputs"}
    separate : bool
        Two families (asymmetric bins) instead of one mirrored family.

    Attributes
    ----------
    width : int
        Number of unknowns.
    """

    def __init__(
        self,
        bins: Array,
        input_range: tuple[float, float],
        prior: Prior,
        loss: Loss,
        *,
        constraints: str,
        separate: bool,
    ) -> None:
        self.bins, self.input_range, self.prior, self.loss = bins, input_range, prior, loss
        self.constraints, self.separate, self.m = constraints, separate, len(bins)
        left = Family(self.m)
        self.families = (left, Family(self.m, left.size) if separate else left)
        self.width = left.size * (2 if separate else 1)
        self.view = View(bins, *input_range, *self.families)

    @cached_property
    def rows(self) -> PrivacyRows:
        """The privacy constraints."""
        if self.constraints == "theorem6":
            return PrivacyRows(theorem6_pairs(self.view))
        views = [self.view, self.view.mirrored()] if self.separate else [self.view]
        across = self.constraints == "across-outputs"
        return PrivacyRows(theorem5_pairs(views, across_outputs=across))

    @cached_property
    def bounded(self) -> Indices:
        """The unknowns that carry a bound, in increasing order."""
        return np.unique(self.rows.bound[self.rows.bound >= 0])

    def signature(self) -> bytes:
        """Equal for programs that share one compiled form."""
        parts = (self.rows.row, self.rows.unknown, self.bounded, np.array([self.m, self.width]))
        return b"|".join(np.asarray(p, dtype=np.int64).tobytes() for p in parts)

    # -- the objective --------------------------------------------------------------------------------

    def _intervals(self) -> Iterator[tuple[int, Array]]:
        """Every interval [B_j, B_{j+1}) that meets the range: j, and the prior's moments there."""
        # Intervals are half-open, but the range is closed: its last piece keeps the mass at the upper end.
        edges = np.clip(self.bins, *self.input_range)
        kept = np.unique(edges)
        yield from zip(np.searchsorted(edges, kept[1:]).tolist(), self.prior.moments(kept))

    @cached_property
    def objective(self) -> tuple[Array, float]:
        """Coefficients and constant of the upper bound of the expected loss (Lemma 1)."""
        bins, m = self.bins, self.m
        left, right = self.families
        cost, constant = np.zeros(self.width), 0.0
        absolute = self.loss.absolute if self.loss.function is None else 1.0
        squared = self.loss.squared
        for j, (mass, first, second) in self._intervals():
            a, b = bins[j - 1], bins[j]
            spread, reach = a - bins[:j], bins[j:][::-1] - b
            cost[left.row(j)] += absolute * mass * spread / 2
            cost[right.row(m - j)] += absolute * mass * reach / 2
            constant += absolute * mass * (b - a) / 2
            # Var = (x−a)(b−x) + (x−a) E e + (b−x) E d + E d E e, the last product relaxed by E d ≤ b − B_1 …
            up, down = first - a * mass, b * mass - first
            cost[left.row(j)] += squared * (down + mass * reach[0] / 2) * spread
            cost[right.row(m - j)] += squared * (up + mass * spread[0] / 2) * reach
            constant += squared * (-second + (a + b) * first - a * b * mass)
        return cost, constant

    @cached_property
    def _bilinear(self) -> list[tuple[slice, slice, Array]]:
        """For each interval meeting the range: rows of the two families and E ℓ of every pair of bins on it."""
        (left, right), bins = self.families, self.bins
        return [
            (left.row(j), right.row(self.m - j), pair_costs(self.loss, moments, bins[:j], bins[j:][::-1]))
            for j, moments in self._intervals()
        ]

    def exact_loss(self, q: Array) -> Array:
        """Exact expected loss of solutions (N, width) for polynomial losses: bilinear in the two families."""
        total = np.zeros(len(q))
        for left, right, kernel in self._bilinear:
            total += np.sum((q[:, left] @ kernel) * q[:, right], axis=1)
        return total

    def judged(self, objective: Array, q: Array) -> Array:
        """What points of a search are compared by: their exact loss, or the objective for callable losses."""
        return self.exact_loss(q) if self.loss.polynomial else objective

    # -- the model ------------------------------------------------------------------------------------

    def _rows_of_unknowns(self) -> tuple[Indices, Indices]:
        """n − 1 and i − 1 of every unknown q_n(i)."""
        n, i = np.tril_indices(self.m - 1)
        return np.resize(n, self.width), np.resize(i, self.width)

    def normalisation(self) -> sparse.csr_array:
        """Rows that sum each q_n."""
        at = np.arange(self.width)
        rows = self._rows_of_unknowns()[0] + (self.m - 1) * (at // self.families[0].size)
        return sparse.csr_array((np.ones(self.width), (rows, at)))

    def dominance(self) -> tuple[Indices, Indices]:
        """Positions (of q_i(i), of q_j(i)), j > i ≥ 1; row n = 1 is the constant 1 and needs none."""
        n, i = self._rows_of_unknowns()
        smaller = np.flatnonzero((n > i) & (i > 0))
        return smaller - (n * (n + 1) - i * (i + 1))[smaller] // 2, smaller

    def parameters(self, epsilon: float, low: Array, high: Array) -> dict[str, Array]:
        """Values of the model's parameters for bounds (…, width)."""
        cost, constant = self.objective
        values = {"low": low[..., self.bounded], "high": high[..., self.bounded]}
        values["privacy"] = self.rows.coefficients(epsilon, low, high)
        return values | {"cost": cost, "constant": np.asarray(constant)}

    def model(self, epsilon: float, low: Array, high: Array, *, parametrised: bool = False) -> Model:
        """Declare the linear program for bounds `low`, `high` of shape (width,).

        Parametrised, ε, bounds and costs are CVXPY parameters; constants compile faster.
        """
        given: dict[str, Any] = self.parameters(epsilon, low, high)
        if parametrised:
            given = {k: cp.Parameter(v.shape, name=k, value=v) for k, v in given.items() if v.size}
        q = cp.Variable(self.width, name="q", nonneg=True)
        families: dict[str, cp.Constraint] = {"normalisation": self.normalisation() @ q == 1}
        bigger, smaller = self.dominance()
        if len(bigger):
            families["dominance"] = q[bigger] >= q[smaller]
        if len(self.bounded):
            families["lower bounds"] = q[self.bounded] >= given["low"]
            families["upper bounds"] = q[self.bounded] <= given["high"]
        if self.rows.labels:
            row, terms = self.rows.row, np.arange(len(self.rows.row))
            gather = sparse.csr_array((np.ones(len(row)), (row, terms)))
            families["privacy"] = gather @ cp.multiply(given["privacy"], q[self.rows.unknown]) <= 0
        if self.constraints == "theorem6":
            families["order"] = theorem6_rows(self.view) @ q >= 0
        problem = cp.Problem(cp.Minimize(given["cost"] @ q + given["constant"]), list(families.values()))
        return Model(problem, {"q": q}, families, given if parametrised else {})

    def orderable(self) -> bool:
        """Whether some q meets Theorem 6's order, which no ε is part of."""
        q = cp.Variable(self.width, name="q", nonneg=True)
        families = {
            "normalisation": self.normalisation() @ q == 1,
            "order": theorem6_rows(self.view) @ q >= 0,
        }
        model = Model(cp.Problem(cp.Minimize(0), list(families.values())), {"q": q}, families)
        try:
            return solvers.solve(model, "highs").status is Status.OPTIMAL
        except InfeasibleError:
            return False

    # -- there and back -------------------------------------------------------------------------------

    def unpack(self, q: Array) -> tuple[Array, Array]:
        """Left and right families as triangular (m − 1, m − 1) arrays, cleaned of solver noise."""

        tables = np.zeros((2, self.m - 1, self.m - 1))
        n, i = np.tril_indices(self.m - 1)
        tables[:, n, i] = np.maximum(q, 0.0).reshape(-1, len(n))
        left, right = tables / tables.sum(axis=2, keepdims=True)
        return left, right

    def flatten(self, left: Array, right: Array) -> Array:
        """Inverse of `unpack`."""
        return np.concatenate([table[np.tril_indices(self.m - 1)] for table in (left, right)])[: self.width]
