"""HiGHS, driven directly: simplex (warm-started), interior point, and PDLP.

The matrices come from CVXPY's compiled form (`CompiledLP`); a `HighsSession` keeps the model and the last
basis inside HiGHS and re-solves for new parameter values by changing only the coefficients that moved.
"""

from __future__ import annotations

import time
from typing import Any

import highspy
import numpy as np

from mechdesign.errors import DesignError
from mechdesign.solvers.base import Capabilities, Model, Solution, Solver, Status
from mechdesign.solvers.compiled import CompiledLP
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.farkas import FarkasRays
from mechdesign.typing import Array

__all__ = ["HighsSession", "HighsSolver"]


_STATUS = {
    highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: Status.UNBOUNDED,
    highspy.HighsModelStatus.kTimeLimit: Status.LIMIT,
    highspy.HighsModelStatus.kIterationLimit: Status.LIMIT,
    highspy.HighsModelStatus.kModelEmpty: Status.OPTIMAL,
}

# The tightest tolerances HiGHS accepts for its simplex: privacy is at stake, and these models are small.
TOLERANCE = 1e-10


def engine(**options: Any) -> highspy.Highs:
    """Return a silent HiGHS with this package's tolerances and the given options."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("primal_feasibility_tolerance", TOLERANCE)
    highs.setOptionValue("dual_feasibility_tolerance", TOLERANCE)
    for name, value in options.items():
        try:
            taken = highs.setOptionValue(name, value) == highspy.HighsStatus.kOk
        except TypeError:
            taken = False
        if not taken:
            raise DesignError.of("options", {name: value}, "HiGHS refuses it")
    return highs


def run(highs: Any) -> Status:
    """Solve from the last basis."""
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kUnboundedOrInfeasible:
        highs.setOptionValue("presolve", "off")
        highs.run()
        highs.setOptionValue("presolve", "choose")
        status = highs.getModelStatus()
    return _STATUS.get(status, Status.FAILED)


class HighsSession:
    """One LP kept inside HiGHS, re-solved for many parameter points from the last basis.

    Parameters
    ----------
    compiled : CompiledLP
    point : array, shape (P + 1,)
        First parameter point, from `CompiledLP.point`.
    """

    def __init__(self, compiled: CompiledLP, point: Array, **options: Any) -> None:
        self.compiled = DesignError.unless("compiled", compiled, CompiledLP)
        self.highs: Any = engine(**options)  # its type stubs lack several methods
        matrix, rhs, cost = compiled.coefficients(point)
        self._pass(matrix, rhs, cost)
        self._row = compiled.rows[compiled.varying].astype(np.int32)
        self._column = compiled.columns[compiled.varying].astype(np.int32)
        self._all_rows = np.arange(compiled.height, dtype=np.int32)
        self._all_columns = np.arange(compiled.width, dtype=np.int32)

    def _pass(self, matrix: Array, rhs: Array, cost: Array) -> None:
        compiled = self.compiled
        order = np.lexsort((compiled.rows, compiled.columns))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = compiled.width, compiled.height
        lp.col_cost_ = cost[:-1]
        lp.offset_ = float(cost[-1])
        lp.col_lower_, lp.col_upper_ = compiled.lower, compiled.upper
        lower = np.full(compiled.height, -highspy.kHighsInf)
        lower[: compiled.equalities] = rhs[: compiled.equalities]
        lp.row_lower_, lp.row_upper_ = lower, rhs
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.searchsorted(compiled.columns[order], np.arange(compiled.width + 1)).astype(
            np.int32
        )
        lp.a_matrix_.index_ = compiled.rows[order].astype(np.int32)
        lp.a_matrix_.value_ = matrix[order]
        self.highs.passModel(lp)
        self._matrix, self._rhs, self._cost = matrix[compiled.varying].copy(), rhs.copy(), cost.copy()
        self._lower = lower

    def move(self, matrix: Array, rhs: Array, cost: Array) -> None:
        """Change the coefficients that differ from the last point; `matrix` holds the varying ones."""
        highs = self.highs
        changed = np.flatnonzero(matrix != self._matrix)
        places = self._row[changed].tolist(), self._column[changed].tolist()
        for row, column, new in zip(*places, matrix[changed].tolist()):
            highs.changeCoeff(row, column, new)
        if (rhs != self._rhs).any():
            self._lower[: self.compiled.equalities] = rhs[: self.compiled.equalities]
            highs.changeRowsBounds(len(rhs), self._all_rows, self._lower, rhs)
        if (cost != self._cost).any():
            highs.changeColsCost(len(cost) - 1, self._all_columns, cost[:-1])
            highs.changeObjectiveOffset(float(cost[-1]))
        self._matrix, self._rhs, self._cost = matrix, rhs, cost

    def sweep(
        self, matrix: Array, rhs: Array, cost: Array, rays: FarkasRays | None = None
    ) -> tuple[Array, Array]:
        """Solve a row of points in turn, each from the basis of the last, but for those that `rays` prove infeasible.

        Parameters
        ----------
        matrix : array, shape (N, nnz)
        rhs : array, shape (N, height)
        cost : array, shape (N, width + 1)
        rays : FarkasRays, optional
            Of this program; they grow.

        Returns
        -------
        values (N,), solutions (N, width); NaN where not optimal.
        """
        values, solutions = np.full(len(matrix), np.nan), np.full((len(matrix), self.compiled.width), np.nan)
        varying = np.ascontiguousarray(matrix[:, self.compiled.varying])
        excluded = np.zeros(len(matrix), dtype=bool) if rays is None else rays.excluded(matrix, rhs)
        for k in range(len(matrix)):
            if excluded[k]:
                continue
            self.move(varying[k], rhs[k], cost[k])
            status = self.run()
            if status is Status.OPTIMAL:
                values[k], solutions[k] = self.value(), self.solution()
            elif rays is not None and status is Status.INFEASIBLE:
                _, known, ray = self.highs.getDualRay()
                if known:
                    excluded[k + 1 :] |= rays.learn(ray, matrix[k + 1 :], rhs[k + 1 :])
        return values, solutions

    def run(self) -> Status:
        """Solve from the last basis."""
        return run(self.highs)

    def value(self) -> float:
        """Objective value of the last run."""
        return float(self.highs.getObjectiveValue())

    def solution(self) -> Array:
        """Variables of the compiled form."""
        return np.array(self.highs.getSolution().col_value)

    def forget_basis(self) -> None:
        """Start the next run from scratch."""
        self.highs.clearSolver()


class HighsSolver(Solver):
    """HiGHS by simplex, interior point (with crossover) or PDLP."""

    def __init__(self, name: str, method: str, *, warm_start: bool, accuracy: float) -> None:
        self.name = name
        self._method = method
        self.capabilities = Capabilities(frozenset({"LP"}), warm_start=warm_start, accuracy=accuracy)

    def available(self) -> bool:
        return True

    def solve(self, model: Model, *, time_limit: float | None = None, **options: Any) -> Solution:
        return self.solve_from(model, None, time_limit=time_limit, **options)[0]

    def solve_from(
        self,
        model: Model,
        basis: Any,
        *,
        time_limit: float | None = None,
        compiled: CompiledLP | None = None,
        **options: Any,
    ) -> tuple[Solution, Any]:
        """Solve from the basis of a model of the same shape (None: from scratch); return the last basis too."""
        started, deadline = time.perf_counter(), Deadline(time_limit)
        settings: dict[str, Any] = {"solver": self._method}
        if self._method == "pdlp":
            settings["kkt_tolerance"] = self.capabilities.accuracy
        compiled = CompiledLP(model) if compiled is None else compiled
        session = HighsSession(compiled, compiled.point(), **{**settings, **options})
        if deadline.finite:
            session.highs.setOptionValue("time_limit", deadline.left)
        if basis is not None:
            session.highs.setBasis(basis)
        built = time.perf_counter()
        # With no time left there is no run: PDLP looks at its clock between blocks of iterations only.
        status = Status.LIMIT if deadline.passed else session.run()
        seconds = time.perf_counter() - built
        highs = session.highs
        native = highs.modelStatusToString(highs.getModelStatus())
        info = highs.getInfo()
        counts = (
            info.simplex_iteration_count,
            info.ipm_iteration_count,
            info.crossover_iteration_count,
            info.pdlp_iteration_count,
        )
        primal: dict[str, Array] = {}
        dual: dict[str, Array] = {}
        value = float("nan")
        if status is Status.OPTIMAL:
            answer = highs.getSolution()
            value = session.value()
            compiled.unpack(np.array(answer.col_value), np.array(answer.row_dual), value)
            value = float(model.problem.objective.value)
            primal = {name: np.asarray(v.value, dtype=float) for name, v in model.variables.items()}
            dual = model.duals()
        answered = Solution(
            status=status,
            value=value,
            primal=primal,
            dual=dual,
            solver=self.name,
            seconds=seconds,
            build_seconds=built - started,
            iterations=int(sum(max(0, c) for c in counts)),
            variables=compiled.width,
            constraints=compiled.height,
            native_status=native,
            row_dual=np.array(answer.row_dual) if status is Status.OPTIMAL else None,
        )
        return answered, highs.getBasis()
