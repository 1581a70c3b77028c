r"""A linear program that grows: it starts from a declared model, and rows and columns are added between solves.

Cutting planes, column generation and row generation all keep one program inside HiGHS and continue from its last
basis. What the program starts from is declared in CVXPY, so that the reader sees it once; what is added are numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from mechdesign.errors import DesignError, SolverError
from mechdesign.solvers.base import Model
from mechdesign.solvers.compiled import CompiledLP
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.highs import HighsSession, engine, run
from mechdesign.typing import Array, Indices, Status

__all__ = ["GrowingProgram"]


class GrowingProgram:
    """One linear program kept inside HiGHS.

    Parameters
    ----------
    model : Model or None
        Linear; its rows come first. None starts empty, for small programs that are solved often: compiling a
        declared model takes a few milliseconds.
    what : str
        Its name in error messages.
    deadline : Deadline, optional
        A solve that reaches it returns the status "limit".
    **options
        HiGHS's own.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x = cp.Variable(2, nonneg=True, name="x")
    >>> program = GrowingProgram(Model(cp.Problem(cp.Minimize(cp.sum(x)), [x[0] >= 1]), {"x": x}))
    >>> program.solve(), program.primal("x").tolist()
    (<Status.OPTIMAL: 'optimal'>, [1.0, 0.0])
    >>> rows = program.add_rows([[1.0, 2.0]], program.columns("x"), lower=[4.0])
    >>> program.solve(), program.primal("x").tolist()
    (<Status.OPTIMAL: 'optimal'>, [1.0, 1.5])
    """

    def __init__(
        self, model: Model | None, *, what: str = "program", deadline: Deadline | None = None, **options: Any
    ) -> None:
        self.what = what
        self.deadline = Deadline.of(deadline)
        self.iterations = 0
        self.compiled = None if model is None else CompiledLP(model)
        if self.compiled is None:
            self._highs: Any = engine(**options)
        else:
            self._highs = HighsSession(self.compiled, self.compiled.point(), **options).highs
        self._x = self._y = np.zeros(0)
        self.value = np.nan

    def columns(self, name: str) -> Indices:
        """Where the entries of a declared variable stand, in its shape."""
        if self.compiled is None:
            raise DesignError.of("name", name, "no variables were declared")
        return self.compiled.columns_of(name)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns by now."""
        return int(self._highs.getNumRow()), int(self._highs.getNumCol())

    def add_columns(self, cost: Any, *, lower: Any = 0.0, upper: Any = np.inf) -> Indices:
        """Add variables that stand in no row yet; return their columns."""
        cost = np.atleast_1d(np.asarray(cost, dtype=float))
        count, first = len(cost), self.shape[1]
        bounds = [np.broadcast_to(np.asarray(b, dtype=float), count).copy() for b in (lower, upper)]
        none = np.zeros(0, dtype=np.int32)
        self._highs.addCols(count, cost, *bounds, 0, np.zeros(count, dtype=np.int32), none, np.zeros(0))
        return np.arange(first, first + count)

    def add_rows(
        self, values: Any, columns: npt.ArrayLike | None = None, *, lower: Any = -np.inf, upper: Any = np.inf
    ) -> Indices:
        """Add ``lower <= A x <= upper``; return the rows' numbers.

        Parameters
        ----------
        values : array (rows, k) or scipy.sparse matrix (rows, all columns)
            A: dense over `columns`, or sparse over all of them.
        columns : array of int, shape (k,), optional
            With a dense A.
        """
        if columns is None:
            matrix = sparse.csr_array(values)
            start, index, data = matrix.indptr[:-1], matrix.indices, matrix.data
            count = matrix.shape[0]
        else:
            table = np.atleast_2d(np.asarray(values, dtype=float))
            count, width = table.shape
            keep = table != 0
            start = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])[:-1]
            index = np.broadcast_to(np.ravel(np.asarray(columns)), (count, width))[keep]
            data = table[keep]
        first = self.shape[0]
        bounds = [np.broadcast_to(np.asarray(b, dtype=float), count).copy() for b in (lower, upper)]
        status = self._highs.addRows(
            count,
            *bounds,
            len(data),
            start.astype(np.int32),
            index.astype(np.int32),
            np.asarray(data, dtype=float),
        )
        if self.shape[0] != first + count:
            raise SolverError(
                f"HiGHS refused rows of the {self.what}: coefficients beyond its range",
                solver="highs",
                status=str(status),
            )
        return np.arange(first, first + count)

    def set_cost(self, columns: npt.ArrayLike, cost: npt.ArrayLike) -> None:
        """Change the costs of some variables; the next solve starts from the last basis all the same."""
        at = np.ravel(np.asarray(columns)).astype(np.int32)
        self._highs.changeColsCost(len(at), at, np.ravel(np.asarray(cost, dtype=float)))

    def solve(self) -> Status:
        """Solve from the last basis; from scratch once more where that fails.

        Returns
        -------
        Status
            OPTIMAL, or LIMIT where the deadline came first.

        Raises
        ------
        SolverError
            Neither.
        """
        status = Status.LIMIT
        for fresh in (False, True):
            if self.deadline.passed:
                return Status.LIMIT
            if fresh:
                self._highs.clearSolver()
            if self.deadline.finite:
                # HiGHS counts the time of all runs of one instance.
                self._highs.setOptionValue("time_limit", self._highs.getRunTime() + self.deadline.left)
            status = run(self._highs)
            if status is Status.OPTIMAL:
                break
            if self.deadline.passed:
                return Status.LIMIT
        if status is not Status.OPTIMAL:
            word = self._highs.modelStatusToString(self._highs.getModelStatus())
            raise SolverError(f"the {self.what} ended with {word!r}", solver="highs", status=word)
        info, answer = self._highs.getInfo(), self._highs.getSolution()
        self.iterations += max(0, int(info.simplex_iteration_count))
        self.value = float(info.objective_function_value)
        self._x, self._y = np.array(answer.col_value), np.array(answer.row_dual)
        return Status.OPTIMAL

    @property
    def x(self) -> Array:
        """All variables of the last solve."""
        return self._x

    @property
    def row_dual(self) -> Array:
        """Duals of all rows of the last solve: the change of the optimum per unit of the active side."""
        return self._y

    def primal(self, name: str) -> Array:
        """A declared variable in its shape, at the last solve."""
        return self._x[self.columns(name)]
