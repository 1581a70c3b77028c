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

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
from scipy import sparse

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.optm.blocks import pair_costs
from mechdesign.quantizers.optm.products import EXACT, Family, Pairs, coefficient_rows, theorem5_pairs
from mechdesign.quantizers.optm.theorem6 import theorem6_pairs, theorem6_rows
from mechdesign.solvers import Model
from mechdesign.typing import Array

__all__ = ["OPTMProgram"]


@dataclass(frozen=True)
class Structure:
    """What does not change with the bounds: the constraint pairs and where coefficients can be non-zero."""

    pairs: Pairs
    rows: npt.NDArray[np.intp]
    columns: npt.NDArray[np.intp]


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
    """

    def __init__(
        self,
        bins: Array,
        input_range: tuple[float, float],
        prior: Prior,
        loss: Loss,
        constraints: str,
        separate: bool,
    ) -> None:
        self.bins, self.input_range, self.prior, self.loss = bins, input_range, prior, loss
        self.constraints, self.separate = constraints, separate
        self.m = len(bins)
        left = Family(self.m)
        self.families = (left, Family(self.m, left.size)) if separate else (left, left)
        self.width = left.size * (2 if separate else 1)
        self.structure = self._structure()
        bounds = {f.bound for f in self.structure.pairs.forms} - {EXACT}
        # Unknowns that carry a bound, in increasing order.
        self.bounded = np.array(sorted(bounds), dtype=int)

    def _structure(self) -> Structure:
        lower, upper = self.input_range
        left, right = self.families
        if self.constraints == "theorem6":
            pairs = theorem6_pairs(self.bins, lower, upper, left, self.width)
        else:
            across = self.constraints == "across-outputs"
            pairs = theorem5_pairs(self.bins, lower, upper, left, right, self.width, across_outputs=across)
            if self.separate:
                mirrored = -self.bins[::-1]
                pairs = theorem5_pairs(
                    mirrored,
                    -upper,
                    -lower,
                    right,
                    left,
                    self.width,
                    mirrored=True,
                    pairs=pairs,
                    across_outputs=across,
                )
        generic = np.full(self.width, 0.5)
        present = coefficient_rows(pairs, 1.0, generic, 2 * generic) != 0
        rows, columns = np.nonzero(present)
        return Structure(pairs, rows, columns)

    def signature(self) -> bytes:
        """Equal for programs that share one compiled form."""
        s = self.structure
        parts = (s.rows, s.columns, self.bounded, np.array([self.m, self.separate, len(s.pairs.upper)]))
        return b"|".join(np.asarray(p, dtype=np.int64).tobytes() for p in parts)

    # -- numbers --------------------------------------------------------------------------------------

    def privacy_coefficients(self, epsilon: float, low: Array, high: Array) -> Array:
        """Coefficients of the privacy rows at the structural positions; bounds (…, width) → (…, nnz)."""
        rows = coefficient_rows(self.structure.pairs, epsilon, low, high)
        return rows[..., self.structure.rows, self.structure.columns]

    def _moments(self, j: int) -> Array:
        """Partial moments of the prior on [B_j, B_{j+1}) within the input range."""
        return self._interval_moments[j - 1]

    @cached_property
    def _interval_moments(self) -> Array:
        # Intervals are half-open, but the range is closed: its last piece keeps the mass at the upper end.
        edges = np.clip(self.bins, *self.input_range)
        kept = np.unique(edges)
        table = np.zeros((self.m - 1, 3))
        table[np.searchsorted(edges, kept[1:], side="left") - 1] = self.prior.moments(kept)
        return table

    def objective(self) -> tuple[Array, float]:
        """Coefficients and constant of the upper bound of the expected loss (Lemma 1)."""
        bins, m = self.bins, self.m
        lower, upper = self.input_range
        left, right = self.families
        cost, constant = np.zeros(self.width), 0.0
        edges = np.clip(bins, lower, upper)
        for j in range(1, m):
            if edges[j] <= edges[j - 1]:
                continue
            a, b = bins[j - 1], bins[j]
            mass, first, second = self._moments(j)
            spread = bins[j - 1] - bins[:j]
            reach = bins[j:][::-1] - b
            if self.loss.absolute or self.loss.function is not None:
                weight = self.loss.absolute if self.loss.function is None else 1.0
                cost[left.row(j)] += weight * mass * spread / 2
                cost[right.row(m - j)] += weight * mass * reach / 2
                constant += weight * mass * (b - a) / 2
            if self.loss.squared:
                # Var = (x−a)(b−x) + (x−a) E e + (b−x) E d + E d E e, the last product relaxed by E d ≤ b − B_1 …
                weight = self.loss.squared
                up, down = first - a * mass, b * mass - first
                ceiling_d, ceiling_e = spread[0], reach[0]
                cost[left.row(j)] += weight * (down + mass * ceiling_e / 2) * spread
                cost[right.row(m - j)] += weight * (up + mass * ceiling_d / 2) * reach
                constant += weight * (-second + (a + b) * first - a * b * mass)
        return cost, constant

    @cached_property
    def _bilinear(self) -> list[tuple[slice, slice, Array]]:
        """For each interval meeting the range: rows of the two families and E ℓ of every pair of bins on it."""
        bins, m = self.bins, self.m
        lower, upper = self.input_range
        left, right = self.families
        edges = np.clip(bins, lower, upper)
        out = []
        for j in range(1, m):
            if edges[j] <= edges[j - 1]:
                continue
            costs = pair_costs(self.loss, self._moments(j), bins[:j], bins[j:][::-1])
            out.append((left.row(j), right.row(m - j), costs))
        return out

    def exact_loss(self, q: Array) -> Array:
        """Exact expected loss of solutions (N, width) for polynomial losses: bilinear in the two families."""
        total = np.zeros(len(q))
        for left, right, kernel in self._bilinear:
            total += np.sum((q[:, left] @ kernel) * q[:, right], axis=1)
        return total

    def judged(self, objective: Array, q: Array) -> Array:
        """What points of a search are compared by: their exact loss, or the objective for callable losses."""
        return self.exact_loss(q) if self.loss.polynomial else objective

    def normalisation(self) -> sparse.csr_array:
        """Rows that sum each q_n."""
        entries = [family.row(n) for family in dict.fromkeys(self.families) for n in range(1, self.m)]
        matrix = sparse.lil_array((len(entries), self.width))
        for k, columns in enumerate(entries):
            matrix[k, columns] = 1.0
        return matrix.tocsr()

    def dominance(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Positions (of q_i(i), of q_j(i)), j > i ≥ 1; row n = 1 is the constant 1 and needs none."""
        pairs = [
            (family.index(i, i), family.index(j, i))
            for family in dict.fromkeys(self.families)
            for i in range(2, self.m)
            for j in range(i + 1, self.m)
        ]
        table = np.array(pairs, dtype=np.intp).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    # -- the model ------------------------------------------------------------------------------------

    def model(
        self,
        epsilon: float,
        low: Array,
        high: Array,
        *,
        parametrised: bool = False,
    ) -> Model:
        """Declare the linear program for bounds `low`, `high` of shape (width,).

        Parametrised, the privacy coefficients and the bounds are CVXPY parameters; otherwise constants, which
        compile faster.
        """
        parameters: dict[str, cp.Parameter] = {}

        def leaf(name: str, value: Array, **attributes: Any) -> Any:
            if not parametrised:
                return value
            parameters[name] = cp.Parameter(value.shape, name=name, value=value, **attributes)
            return parameters[name]

        structure, bounded = self.structure, self.bounded
        q = cp.Variable(self.width, name="q", nonneg=True)
        cost, constant = self.objective()
        coefficients = self.privacy_coefficients(epsilon, low, high)
        count = len(structure.pairs.upper)
        families: dict[str, cp.Constraint] = {"normalisation": self.normalisation() @ q == 1}
        bigger, smaller = self.dominance()
        if len(bigger):
            families["dominance"] = q[bigger] >= q[smaller]
        if len(bounded):
            families["lower bounds"] = q[bounded] >= leaf("low", low[bounded], nonneg=True)
            families["upper bounds"] = q[bounded] <= leaf("high", high[bounded], nonneg=True)
        if count and parametrised:
            # One parameter per structural coefficient; a constant matrix sums the terms of each row.
            entries = (np.ones(len(coefficients)), (structure.rows, np.arange(len(coefficients))))
            gather = sparse.csr_array(entries, shape=(count, len(coefficients)))
            terms = cp.multiply(leaf("privacy", coefficients), q[structure.columns])
            families["privacy"] = gather @ terms <= 0
        elif count:
            table = sparse.csr_array(
                (coefficients, (structure.rows, structure.columns)), shape=(count, self.width)
            )
            families["privacy"] = table @ q <= 0
        if self.constraints == "theorem6":
            families["order"] = (
                theorem6_rows(self.bins, *self.input_range, self.families[0], self.width) @ q >= 0
            )
        total = leaf("cost", cost) @ q + leaf("constant", np.asarray(constant))
        problem = cp.Problem(cp.Minimize(total), list(families.values()))
        return Model(problem, {"q": q}, families, parameters)

    def unpack(self, q: Array) -> tuple[Array, Array]:
        """Left and right families as triangular (m − 1, m − 1) arrays, cleaned of solver noise."""

        def table(family: Family) -> Array:
            out = np.zeros((self.m - 1, self.m - 1))
            for n in range(1, self.m):
                row = np.maximum(q[family.row(n)], 0.0)
                out[n - 1, :n] = row / row.sum()
            return out

        left, right = self.families
        return table(left), table(right)

    def flatten(self, left: Array, right: Array) -> Array:
        """Inverse of `unpack`."""
        q = np.zeros(self.width)
        for family, table in zip(self.families[::-1], (right, left)):
            for n in range(1, self.m):
                q[family.row(n)] = table[n - 1, :n]
        return q
