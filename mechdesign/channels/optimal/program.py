r"""The linear program of the optimal channel, declared once, and its solution.

.. math::

    \min_C \; \sum_{x,y} π_x\, ℓ(x, y)\, C[x, y] \quad\text{s.t.}\quad
    C[x, y] \le e^{α d(x, x')}\, C[x', y], \quad \sum_y C[x, y] = 1, \quad C \ge 0 ,

with one variable per orbit of (x, y) and the privacy rows of `PrivacyRows`. HiGHS solves it; of very many rows it is
given those along a thin spanner, then all that its answer breaks, until none is broken: on grids most rows never
enter. Another backend that is asked for gets the whole.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import sparse

from mechdesign import solvers
from mechdesign.channels.optimal.rows import PrivacyRows
from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.solvers import Deadline, GrowingProgram, Status
from mechdesign.typing import Array, Indices

__all__ = ["Answer", "ChannelProgram"]

_LARGE = 4_000  # rows above which interior point beats simplex, measured on grids
_HUGE = 75_000  # rows above which crossover costs more than the digits it adds
_MANY = 10_000  # rows above which only those that bind are generated, measured on grids
_TOLERANCE = 1e-8  # what counts as broken then
_METHODS = {"highs": "simplex", "highs-ipm": "ipm"}


@dataclass(frozen=True, eq=False)
class Answer:
    """A solution of the program: nearly private, with nearly optimal multipliers.

    Attributes
    ----------
    matrix : array, shape (n, k)
    multipliers : array, shape (rows,)
        λ ≥ 0 of each privacy row, for ``v[high] - exp(α·distance)·v[low] <= 0``.
    free : array, shape (n, j), or None
        Multipliers of the equalities.
    report : SolveReport
    """

    matrix: Array
    multipliers: Array
    free: Array | None
    report: SolveReport


@dataclass(frozen=True, eq=False)
class ChannelProgram:
    r"""The program.

    Parameters
    ----------
    cost : array, shape (n, k)
        Prior times loss.
    equalities : pair of arrays, shapes (n, j) and (k, j), or None
        g and h of :math:`\sum_y C[x, y] h(y) = g(x)`.
    rows : PrivacyRows
    alpha : float
        The budget of its rows.
    """

    cost: Array
    equalities: tuple[Array, Array] | None
    rows: PrivacyRows
    alpha: float

    @cached_property
    def unit(self) -> float:
        """A power of two: 1, or near the loss of a simple private channel where that is far from 1.

        A solver's tolerances are absolute; in this unit they are small next to the value.
        """
        n, k = self.cost.shape
        value = float(self.cost.sum(axis=0).min())
        if n == k:
            kernel = np.exp(-self.alpha / 2 * self.rows.space.distances)
            value = min(value, float((kernel / kernel.sum(axis=1, keepdims=True) * self.cost).sum()))
        power = math.frexp(value if value > 0 else 1.0)[1]
        return 1.0 if abs(power) <= 12 else math.ldexp(1.0, power)

    def model(self, kept: Indices | None = None) -> solvers.Model:
        """The linear program, with all privacy rows or some, and its objective in units of `unit`."""
        (n, k), rows = self.cost.shape, self.rows if kept is None else self.rows.only(kept)
        channel = cp.Variable(rows.variables, nonneg=True, name="channel")
        cost = np.bincount(rows.orbits.ravel(), self.cost.ravel(), rows.variables)

        # Rows of items in one orbit read the same: one of each is kept.
        row_sums = sparse.csr_matrix(
            (np.ones(n * k), (np.repeat(np.arange(n), k), rows.orbits.ravel())), shape=(n, rows.variables)
        )
        leaders = np.unique(np.diag(rows.pair_orbits), return_index=True)[1]
        constraints: dict[str, Any] = {"normalisation": row_sums[leaders] @ channel == 1}
        if self.equalities is not None:
            query, values = self.equalities
            moments = sparse.kron(sparse.eye(n), sparse.csr_matrix(values.T), format="csr")
            constraints["unbiased"] = moments @ channel == query.ravel()
        if len(rows.high):
            constraints["privacy"] = rows.matrix(self.alpha) @ channel <= 0
        problem = cp.Problem(cp.Minimize(cost / self.unit @ channel), list(constraints.values()))
        return solvers.Model(problem, {"channel": channel}, constraints)

    def solve(self, solver: str | None, deadline: Deadline, options: dict[str, Any]) -> Answer:
        """Solve by HiGHS with the rows that bind, by another backend with all.

        Raises
        ------
        InfeasibleError
            The equalities cannot be met at this α.
        SolverError
            No backend answered, or none by the deadline.
        """
        try:
            if solver is not None and solver not in _METHODS:
                return self._whole(solver, deadline, options)
            try:
                return self._grown(solver, deadline, options)
            except SolverError as error:
                if error.status == "Infeasible":
                    raise InfeasibleError("highs: Infeasible") from None
                if deadline.passed:
                    raise
                return self._whole("clarabel", deadline, {})
        except InfeasibleError as error:
            raise InfeasibleError(
                f"no {self.alpha}-private channel meets the equalities ({error.reason}); raise alpha, or let the "
                "reports' values reach further beyond the query's range"
            ) from None

    def again(self, solver: str, deadline: Deadline) -> list[Answer]:
        """What HiGHS's other method says, after `solver` left a gap: an answer, or none."""
        try:
            return [self.solve("highs" if solver == "highs-ipm" else "highs-ipm", deadline, {})]
        except SolverError:
            return []

    def _grown(self, solver: str | None, deadline: Deadline, options: dict[str, Any]) -> Answer:
        started, count = time.perf_counter(), len(self.rows.high)
        kept = np.arange(count) if count <= _MANY else self.rows.thin()
        name = solver or ("highs" if count < _LARGE else "highs-ipm")
        if solver is None and count > _HUGE:
            options = {"run_crossover": "off", **options}
        program = GrowingProgram(
            self.model(kept), what="metric channel", deadline=deadline, solver=_METHODS[name], **options
        )
        while (status := program.solve()) is Status.OPTIMAL:
            broken = np.setdiff1d(self.rows.broken(program.x, self.alpha, _TOLERANCE), kept)
            if not broken.size:
                break
            program.add_rows(self.rows.only(broken).matrix(self.alpha), upper=0.0)
            kept = np.concatenate([kept, broken])
        if not program.x.size:
            raise SolverError("nothing was found within the time limit", solver=name, status="limit")
        assert program.compiled is not None
        equal, dual = program.compiled.equalities, program.row_dual
        duals = np.zeros(count)
        duals[kept[: len(dual) - equal]] = -dual[equal:]  # rows that came after the last solve have none
        constraints, variables = program.shape
        seconds, steps = time.perf_counter() - started, program.iterations
        report = SolveReport(name, status, seconds, 0.0, variables, constraints, steps, solver)
        return self._answer(program.x, duals, dual[:equal], report)

    def _whole(self, solver: str, deadline: Deadline, options: dict[str, Any]) -> Answer:
        answer = solvers.solve(self.model(), solver, deadline=deadline, **options)
        duals, free = answer.dual.get("privacy", np.zeros(0)), answer.dual.get("unbiased", np.zeros(0))
        return self._answer(answer.primal["channel"], duals, -free.ravel(), SolveReport.of(answer))

    def _answer(self, values: Array, duals: Array, equal: Array, report: SolveReport) -> Answer:
        """From the program's variables and the duals of its rows, those of the query last among the equalities'."""
        matrix = np.maximum(values, 0.0)[self.rows.orbits]
        multipliers = np.maximum(duals, 0.0) / self.rows.half(self.alpha) * self.unit
        # Any multiplier may be dropped: where rates were lowered it is no more than rounding's share.
        multipliers[self.rows.lowered(self.alpha)] = 0.0
        multipliers[multipliers < 1e-16 * max(float(multipliers.max(initial=0.0)), 1e-300)] = 0.0
        free = None
        if self.equalities is not None:
            query = self.equalities[0]
            free = equal[len(equal) - query.size :].reshape(query.shape) * self.unit
        return Answer(matrix / matrix.sum(axis=1, keepdims=True), multipliers, free, report)
