"""Linear programs in numbers, held inside HiGHS: one that changes, and a sweep of many alike.

A `LinearProgram` has columns and rows in families with names. It grows, its numbers change, and each solve starts from the
last basis: cutting planes, column generation and successive linearisation are such programs. A `Sweep` solves the `Programs` of a
grid of boxes, which have one structure, by changing the numbers of one such program.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import cvxpy as cp
import highspy
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import splu

from mechdesign.checks import instance, refuse
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.solvers.deadline import Deadline, heard
from mechdesign.solvers.registry import HIGHS_TOLERANCES, Solution, get, solve
from mechdesign.typing import Array, Indices, Numbers, Status

_STATUS = {
    highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: Status.UNBOUNDED,
    highspy.HighsModelStatus.kUnboundedOrInfeasible: Status.UNBOUNDED,
    highspy.HighsModelStatus.kTimeLimit: Status.LIMIT,
    highspy.HighsModelStatus.kIterationLimit: Status.LIMIT,
}
_LONG = 500
"""Rows plus columns from which a solve runs in a thread of its own."""
_USUAL = 10
"""Powers of 2 from 1 within which the costs of a program are left in their unit."""
_BLOWN_UP = 2.0**24
"""Factor by which a refinement step scales the correction."""

_Places = npt.NDArray[np.int32]  # HiGHS's index type


class LinearProgram:
    """Columns and rows in named families, whose numbers may change between solves.

    Parameters
    ----------
    what : str
        Name in error messages.
    solver : str, optional
        A registered backend for `answer`; HiGHS's simplex method by default.
    deadline : Deadline, optional
        A solve that reaches it returns the status "limit".
    interior : bool
        Whether HiGHS solves by its interior-point method, without a basis.
    **options
        Options of the backend.

    Attributes
    ----------
    columns, rows : dict of int arrays
        Indices of each family's members; columns in the shape of their costs.
    constant : float
        Constant of the objective.
    value, x : float and array
        Optimum and columns of the last solve.
    count, iterations, seconds : int, int, float
        Effort of all runs; `iterations` counts those of `solve` only.

    Examples
    --------
    >>> program = LinearProgram()
    >>> x = program.add_columns("x", [1.0, 1.0])
    >>> rows = program.add_rows("first", {"x": [[1.0, 0.0]]}, lower=1.0)
    >>> program.solve(), program.primal("x").tolist()
    (<Status.OPTIMAL: 'optimal'>, [1.0, 0.0])
    >>> rows = program.add_rows("cut", {"x": [[1.0, 2.0]]}, lower=4.0)
    >>> program.solve(), program.primal("x").tolist()
    (<Status.OPTIMAL: 'optimal'>, [1.0, 1.5])
    """

    def __init__(
        self,
        what: str = "program",
        *,
        solver: str | None = None,
        deadline: Deadline | None = None,
        interior: bool = False,
        **options: Any,
    ) -> None:
        self.what, self.deadline = what, Deadline.of(deadline)
        refuse(not (solver is None or isinstance(solver, str)), "solver", solver, "must be a backend's name")
        self.solver = solver or "highs"
        if self.solver != "highs":
            get(self.solver)
        self.columns: dict[str, _Places] = {}
        self.rows: dict[str, _Places] = {}
        self.constant, self.value = 0.0, math.nan
        self.x, self._found = np.zeros(0), highspy.HighsSolution()
        self.count, self.iterations, self.seconds = 0, 0, 0.0
        self._options = options
        self._entries: dict[str, list[tuple[_Places, _Places, Array]]] = {}  # rows, columns, values
        self.highs: Any = highspy.Highs()  # its type stubs lack several methods
        own = options if self.solver == "highs" else {}
        self._interior = instance("interior", interior, bool)
        method = {"solver": "ipm", "run_crossover": "off"} if interior else {"solver": "simplex"}
        settings = {"output_flag": False, "threads": 1, **method, **HIGHS_TOLERANCES, **own}
        for name, value in settings.items():
            try:
                taken = self.highs.setOptionValue(name, value) == highspy.HighsStatus.kOk
            except TypeError:
                taken = False
            refuse(not taken, "options", {name: value}, "HiGHS refuses it")

    @property
    def shape(self) -> tuple[int, int]:
        """Present numbers of rows and columns."""
        return self.highs.getNumRow(), self.highs.getNumCol()

    # -- its numbers ----------------------------------------------------------------------------------

    def clear(self) -> Any:
        """Remove all columns and rows; return the last basis, from which a program of the same shape may start."""
        basis = self.highs.getBasis()
        self.highs.clearModel()
        for held in (self.columns, self.rows, self._entries):
            held.clear()
        return basis

    def add_columns(
        self, name: str, cost: Numbers, *, lower: Numbers = 0.0, upper: Numbers = np.inf
    ) -> _Places:
        """Add a family of variables without rows; return their column indices, in the shape of their costs."""
        costs = np.atleast_1d(np.asarray(cost, dtype=float))
        count, none = costs.size, np.zeros(0, dtype=np.int32)
        bounds = [np.broadcast_to(np.asarray(b, dtype=float), costs.shape).ravel() for b in (lower, upper)]
        self.columns[name] = self.shape[1] + np.arange(count, dtype=np.int32).reshape(costs.shape)
        starts = np.zeros(count, dtype=np.int32)
        self.highs.addCols(count, costs.ravel(), *bounds, 0, starts, none, np.zeros(0))
        return self.columns[name]

    def add_rows(
        self, name: str, blocks: Mapping[str, Any], *, lower: Numbers = -np.inf, upper: Numbers = np.inf
    ) -> _Places:
        """Add rows ``lower <= A x <= upper`` to a family, all equalities or bounded on one side; return their indices.

        Parameters
        ----------
        name : str
        blocks : mapping of column family to array or scipy.sparse matrix, shape (rows, members)
            Blocks of A, one for each family with coefficients.
        """
        parts = [(np.ravel(self.columns[k]), sparse.coo_array(block)) for k, block in blocks.items()]
        count, first = parts[0][1].shape[0], self.shape[0]
        row = np.concatenate([part.coords[0] for _, part in parts])
        column = np.concatenate([at[part.coords[1]] for at, part in parts])
        data = np.concatenate([part.data for _, part in parts]).astype(float)
        bounds = [np.broadcast_to(np.asarray(b, dtype=float), count).copy() for b in (lower, upper)]
        order = np.argsort(row, kind="stable")
        starts = np.searchsorted(row[order], np.arange(count)).astype(np.int32)
        status = self.highs.addRows(count, *bounds, len(data), starts, column[order], data[order])
        if self.shape[0] != first + count:
            said = f"HiGHS refused rows of the {self.what}: coefficients beyond its range"
            raise SolverError(said, solver="highs", status=str(status))
        added = np.arange(first, first + count, dtype=np.int32)
        self._entries.setdefault(name, []).append((added[row], column, data))
        self.rows[name] = np.append(self.rows.get(name, added[:0]), added)
        return added

    def change_costs(self, name: str, cost: Numbers) -> None:
        """Change the costs of a family of columns."""
        at = np.ravel(self.columns[name])
        self.highs.changeColsCost(len(at), at, np.ravel(np.asarray(cost, dtype=float)))

    def change_rows(
        self, name: str, values: Array | None = None, *, upper: Array | float | None = None
    ) -> None:
        """Change a family's coefficients, given in the order in which they were added, and its rows' upper bounds."""
        if values is not None:
            row, column, held = self._coefficients(name)
            moved = np.flatnonzero(values != held)
            for place in zip(row[moved].tolist(), column[moved].tolist(), values[moved].tolist()):
                self.highs.changeCoeff(*place)
            self._entries[name] = [(row, column, values)]
        if upper is not None:
            rows = self.rows[name]
            low, high = np.full((2, len(rows)), -np.inf)
            high[:] = upper
            self.highs.changeRowsBounds(len(rows), rows, low, high)

    def _coefficients(self, name: str) -> tuple[_Places, _Places, Array]:
        parts = self._entries[name]
        if len(parts) > 1:
            row, column, values = map(np.concatenate, zip(*parts))
            self._entries[name] = parts = [(row, column, values)]
        return parts[0]

    # -- solving --------------------------------------------------------------------------------------

    def forget_basis(self) -> None:
        """Start the next run from scratch."""
        self.highs.clearSolver()

    def run(self) -> Status:
        """Run HiGHS from the last basis."""
        highs, started = self.highs, time.perf_counter()
        if self.deadline.finite:  # HiGHS counts the time of all runs of one instance
            if self.deadline.passed:
                return Status.LIMIT
            highs.setOptionValue("time_limit", highs.getRunTime() + self.deadline.left)
        self._run()
        status = _STATUS.get(highs.getModelStatus(), Status.FAILED)
        if status is Status.UNBOUNDED:  # or infeasible, which presolve leaves open
            highs.setOptionValue("presolve", "off")
            self._run()
            highs.setOptionValue("presolve", "choose")
            status = _STATUS.get(highs.getModelStatus(), Status.FAILED)
        self.count += 1
        self.seconds += time.perf_counter() - started
        if status is Status.OPTIMAL:
            self._found = highs.getSolution()
            self.value = float(highs.getObjectiveValue()) + self.constant
            self.x = np.array(self._found.col_value)
        return status

    def _run(self) -> None:
        """Run HiGHS, for large programs in a thread of its own: Python sees interrupts only between its own steps."""
        if sum(self.shape) < _LONG or threading.current_thread() is not threading.main_thread():
            self.highs.run()
            return
        asked = (self.highs.cbSimplexInterrupt, self.highs.cbIpmInterrupt)
        stop = threading.Event()

        def look(event: Any) -> None:
            event.interrupt(stop.is_set())

        for each in asked:
            each.subscribe(look)
        try:
            heard(self.highs.run, stop.set)
        finally:
            for each in asked:
                each.unsubscribe(look)

    @property
    def row_dual(self) -> Array:
        """Change of the last solve's optimum per unit of each row's active side; computed when read, as sweeps need none."""
        return np.array(self._found.row_dual)

    def solve(self) -> Status:
        """Solve from the last basis; if that fails, from scratch, then with 100 times the tolerances; after an interior-point method by simplex.

        Returns
        -------
        Status
            OPTIMAL, or LIMIT if the deadline came first.

        Raises
        ------
        InfeasibleError
            HiGHS finds no feasible point.
        SolverError
            HiGHS ends with any other status.
        """
        status, free = Status.LIMIT, "simplex_iteration_limit" not in self._options
        fresh = not self.highs.getBasis().valid
        if self._interior:
            self.highs.setOptionValue("solver", "ipm")
        for attempt in (0, 1) if self._interior else (0, 2) if fresh else range(3):
            if attempt:
                self.forget_basis()
                self.highs.setOptionValue("solver", "simplex")
            if free:
                most = 20 * sum(self.shape) + 1000 if attempt < 2 else highspy.kHighsIInf
                self.highs.setOptionValue("simplex_iteration_limit", most)
            if attempt == 2:  # badly scaled programs can cycle at the tightest tolerances
                for name in HIGHS_TOLERANCES:
                    self.highs.setOptionValue(name, 100 * self.highs.getOptionValue(name)[1])
            status = self.run()
            self.iterations += max(0, int(self.highs.getInfo().simplex_iteration_count))
            if status is Status.OPTIMAL or self.deadline.passed:
                return Status.OPTIMAL if status is Status.OPTIMAL else Status.LIMIT
        word = self.word
        InfeasibleError.when(status is Status.INFEASIBLE, f"no feasible point (highs: {word})")
        raise SolverError(f"the {self.what} ended with {word!r}", solver="highs", status=word)

    def refine(self) -> bool:
        """Take one step of iterative refinement from the last basis: solve for the correction of `x`, scaled by 2²⁴.

        Residuals are computed in long doubles, so that rows hold to the solver's tolerance over 2²⁴ (Gleixner, Steffy and Wolter 2016).

        Returns
        -------
        bool
            Whether `x` was replaced; the program stays as it was.
        """
        highs, lp = self.highs, self.highs.getLp()
        rows, width = self.shape
        matrix = self.matrix()
        x, activity = self.x.astype(np.longdouble), np.zeros(rows, dtype=np.longdouble)
        np.add.at(activity, matrix.coords[0], matrix.data.astype(np.longdouble) * x[matrix.coords[1]])
        limits = [np.array(v) for v in (lp.row_lower_, lp.row_upper_, lp.col_lower_, lp.col_upper_)]
        at, places = [activity, activity, x, x], [np.arange(n, dtype=np.int32) for n in (rows, width)]
        basis, value, solved = highs.getBasis(), self.value, self._found

        def bound(values: list[Array]) -> None:
            highs.changeRowsBounds(rows, places[0], *values[:2])
            highs.changeColsBounds(width, places[1], *values[2:])

        bound([np.where(np.isinf(b), b, _BLOWN_UP * (b - v)).astype(float) for b, v in zip(limits, at)])
        highs.setOptionValue("presolve", "off")
        highs.setBasis(basis)
        done = self.run() is Status.OPTIMAL
        self.x = (x + self.x / np.longdouble(_BLOWN_UP)).astype(float) if done else x.astype(float)
        self.value, self._found = value, solved
        highs.setOptionValue("presolve", "choose")
        bound(limits)
        highs.setBasis(basis)
        return done

    def basic_duals(self) -> Array:
        """Return `row_dual` by the last basis, zeros if there is none: HiGHS drops what is below 1e-14, which a chain of e^ε makes 1e-5 of a reduced cost."""
        basis, basic = self.highs.getBasis(), highspy.HighsBasisStatus.kBasic
        columns, rows = (np.array([one == basic for one in s]) for s in (basis.col_status, basis.row_status))
        found = np.zeros(self.shape[0])
        with suppress(RuntimeError):  # singular to doubles
            if basis.valid and not rows.all():
                square = self.matrix().tocsr()[~rows][:, columns]
                costs = np.array(self.highs.getLp().col_cost_)[columns]
                found[~rows] = splu(square.T.tocsc()).solve(costs)
        return found

    def ray(self) -> Array | None:
        """Return multipliers of the rows that prove the program infeasible, up to their common sign; None if HiGHS finds none."""
        self.highs.setOptionValue("presolve", "off")
        self.forget_basis()
        self.run()
        _, found, values = self.highs.getDualRay()
        self.highs.setOptionValue("presolve", "choose")
        return np.array(values) if found else None

    def matrix(self) -> sparse.coo_array:
        """Return the coefficients inside HiGHS."""
        held = self.highs.getLp().a_matrix_
        kind = sparse.csc_array if held.format_ == highspy.MatrixFormat.kColwise else sparse.csr_array
        entries = (np.array(held.value_), np.array(held.index_), np.array(held.start_))
        return sparse.coo_array(kind(entries, shape=self.shape))

    def write(self, path: str) -> None:
        """Write the program in HiGHS's format for the ending of the name: ``.mps`` or ``.lp``."""
        for name, rows in self.rows.items():
            for k, row in enumerate(rows.tolist()):
                self.highs.passRowName(row, f"{name}_{k}")
        for name, columns in self.columns.items():
            for k, column in enumerate(np.ravel(columns).tolist()):
                self.highs.passColName(column, f"{name}_{k}")
        if self.highs.writeModel(path) == highspy.HighsStatus.kError:
            raise DesignError.of("path", path, "cannot be written; its name must end in .mps or .lp")

    def answer(self) -> Solution:
        """Solve by the chosen backend, and return variables and duals by family.

        Raises
        ------
        InfeasibleError, SolverError
            As in `solve`, and if the deadline comes first.
        """
        if self.solver != "highs":
            started = time.perf_counter()
            found = solve(self.to_cvxpy(), self.solver, deadline=self.deadline, **self._options)
            self.count += 1
            self.seconds += time.perf_counter() - started
            return replace(found, value=found.value + self.constant)
        if self.solve() is not Status.OPTIMAL:
            raise SolverError(f"the {self.what} has no answer in time", solver="highs", status="limit")
        return Solution(
            status=Status.OPTIMAL,
            value=self.value,
            primal={name: self.primal(name) for name in self.columns},
            dual={name: -self.row_dual[rows] for name, rows in self.rows.items()},
            solver="highs",
            seconds=self.seconds,
            iterations=self.iterations,
            variables=self.shape[1],
            constraints=self.shape[0],
            native_status=self.word,
            requested=self.solver,
        )

    def to_cvxpy(self) -> cp.Problem:
        """Declare the same numbers in CVXPY, without the constant."""
        lp, width = self.highs.getLp(), self.shape[1]
        bounds = np.array([lp.col_lower_, lp.col_upper_])
        x = {k: cp.Variable(at.shape, bounds=list(bounds[:, at]), name=k) for k, at in self.columns.items()}
        whole = cp.hstack([cp.vec(v, order="C") for v in x.values()])
        low, high = np.array(lp.row_lower_), np.array(lp.row_upper_)
        families = []
        for name, rows in self.rows.items():
            row, column, data = self._coefficients(name)
            place = np.searchsorted(rows, row)
            sides = sparse.csr_array((data, (place, column)), shape=(len(rows), width)) @ whole
            below = np.isinf(low[rows]).all()
            equal = (low[rows] == high[rows]).all()
            families.append(
                sides == high[rows] if equal else sides <= high[rows] if below else sides >= low[rows]
            )
            families[-1].set_label(name)
        return cp.Problem(cp.Minimize(np.array(lp.col_cost_) @ whole), families)

    def primal(self, name: str) -> Array:
        """Return a family of columns in its shape, at the last solve."""
        return self.x[self.columns[name]]

    @property
    def word(self) -> str:
        """HiGHS's status of the last run."""
        return str(self.highs.modelStatusToString(self.highs.getModelStatus()))


# -- many programs of one structure --------------------------------------------------------------------------------


class Block(NamedTuple):
    """A family of rows ``sum(a x) <= right`` (or equal), for many points if arrays have a first axis for them.

    Parameters
    ----------
    name : str
    rows, columns : int arrays, shape (t,)
        Places of the coefficients.
    values : array, shape (t,) or (points, t)
    right : array, shape (count,) or (points, count)
    equal : bool, or an array with one for each row
    """

    name: str
    rows: Indices
    columns: Indices
    values: Array
    right: Array
    equal: Any = False

    @classmethod
    def of(cls, name: str, matrix: Any, right: Any, *, equal: bool = False) -> Block:
        """Return a family with the same coefficients at all points."""
        entries = sparse.coo_array(matrix)
        rows, columns = (place.astype(np.int64) for place in entries.coords)
        shape = (*np.shape(right)[:-1], entries.shape[0])
        return cls(name, rows, columns, entries.data, np.broadcast_to(np.asarray(right, float), shape), equal)

    @classmethod
    def below(cls, name: str, parts: list[Any]) -> Block:
        """Return rows ``sum(a x) <= 0`` of stacked matrices, with a first axis for points where they vary."""
        if sparse.issparse(parts[0]):
            return cls.of(name, sparse.vstack(parts), 0.0)
        points = max((len(part) for part in parts if part.ndim > 2), default=0)
        if points:
            parts = [np.broadcast_to(part, (points, *part.shape[-2:])) for part in parts]
        matrix = np.concatenate(parts, axis=-2)
        rows, columns = np.nonzero(matrix.any(axis=0) if points else matrix)
        return cls(name, rows, columns, matrix[..., rows, columns], np.zeros(matrix.shape[-2]))


@dataclass(frozen=True, eq=False)
class Programs:
    """The programs of all points: their common data, and the rows, some of which vary.

    Parameters
    ----------
    cost : array, shape (columns,)
    constant : float
    lower, upper : arrays
        Bounds of the columns.
    blocks : sequence of Block
    """

    cost: Array
    constant: float
    lower: Array
    upper: Array
    blocks: Sequence[Block]

    @property
    def count(self) -> int:
        """Number of points."""
        moving = [len(v) for b in self.blocks for v, still in ((b.values, 1), (b.right, 1)) if v.ndim > still]
        return max(moving, default=1)

    def structure(self) -> bytes:
        """Return a key that is equal for programs that differ in numbers only."""
        names = ",".join(f"{b.name}{b.right.shape[-1]}{b.equal}" for b in self.blocks).encode()
        places = [part.tobytes() for b in self.blocks for part in (b.rows, b.columns)]
        return b"|".join([names, *places, self.lower.tobytes(), self.upper.tobytes()])

    def in_unit(self) -> tuple[float, Programs]:
        """Return a unit of costs, a power of 2, and the programs in it: the tolerances of HiGHS are absolute, and costs of another size are brought to about 1."""
        size = float(np.abs(self.cost).max(initial=0.0))
        if not size or abs(math.log2(size)) < _USUAL:
            return 1.0, self
        unit = 2.0 ** (math.frexp(size)[1] - 1)
        return unit, replace(self, cost=self.cost / unit, constant=self.constant / unit)

    def stacked(self) -> Block:
        """Return all rows as one family, whose numbers have a first axis for points."""
        blocks, count = self.blocks, self.count
        sizes = [b.right.shape[-1] for b in blocks]
        rows = np.concatenate([first + b.rows for first, b in zip(np.cumsum([0, *sizes]), blocks)])
        values, right = (
            np.hstack([np.broadcast_to(v, (count, v.shape[-1])) for v in side])
            for side in zip(*((b.values, b.right) for b in blocks))
        )
        equal = np.repeat([b.equal for b in blocks], sizes)
        return Block("rows", rows, np.concatenate([b.columns for b in blocks]), values, right, equal)

    def contradicted(self, rows: Block) -> npt.NDArray[np.bool_]:
        """Return at which points one of the stacked rows cannot hold, by more than a solver's tolerance, within the limits that rows of one column set."""
        alone = (np.bincount(rows.rows)[rows.rows] == 1) & (rows.values != 0).all(axis=0)
        at, values = rows.columns[alone], rows.values[:, alone].T
        limits = rows.right[:, rows.rows[alone]].T / values
        low, high = (np.repeat(side[:, None], values.shape[1], axis=1) for side in (self.lower, self.upper))
        np.maximum.at(low, at, np.where(values < 0, limits, -np.inf))
        np.minimum.at(high, at, np.where(values > 0, limits, np.inf))
        ends = np.where(rows.values > 0, low[rows.columns].T, high[rows.columns].T)
        least = np.multiply(ends, rows.values, out=np.zeros_like(ends), where=rows.values != 0)
        sums = np.zeros_like(rows.right)
        with np.errstate(invalid="ignore"):  # infinite terms of both signs tell nothing
            np.add.at(sums.T, rows.rows, least.T)
            return np.asarray((sums > rows.right + 1e-6 * (1 + np.abs(rows.right))).any(axis=1))

    def program(self, point: int = 0, **options: Any) -> LinearProgram:
        """Return the program of one point."""
        found = LinearProgram("program of the sweep", **options)
        found.constant = self.constant
        found.add_columns("x", self.cost, lower=self.lower, upper=self.upper)
        for b in self.blocks:
            values, right = (v[point] if v.ndim > 1 else v for v in (b.values, b.right))
            matrix = sparse.coo_array((values, (b.rows, b.columns)), shape=(len(right), len(self.cost)))
            found.add_rows(b.name, {"x": matrix}, lower=np.where(b.equal, right, -np.inf), upper=right)
        return found


class Sweep:
    """Solves the points of `Programs`; those of one structure are solved by changing one program inside HiGHS.

    Parameters
    ----------
    deadline : Deadline, optional
        Points after it have no answer.

    Attributes
    ----------
    failed : list of str
        HiGHS's status of points that it could not solve.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline
        self._held: dict[bytes, tuple[LinearProgram, Array]] = {}  # and its coefficients
        self.failed: list[str] = []

    def __call__(self, programs: Programs) -> tuple[Array, Array]:
        """Return objective values (points,) and solutions (points, columns), from a cold start; NaN if infeasible, or too late.

        Raises
        ------
        SolverError
            HiGHS failed, and no point has an answer.
        """
        key, count = programs.structure(), programs.count
        unit, scaled = programs.in_unit()
        values, found = np.full(count, np.nan), np.full((count, len(programs.cost)), np.nan)
        rows = scaled.stacked()
        # 6,478 of the 10,890 programs of OPTM's search need no solver, and it takes .53 s in place of .63
        points = np.flatnonzero(~programs.contradicted(rows))
        if not points.size:
            return values, found
        rows = rows._replace(values=rows.values[points], right=rows.right[points])
        if key not in self._held:
            lp = replace(scaled, blocks=[rows]).program(deadline=self._deadline)
            self._held[key] = lp, rows.values[0]
        lp, now = self._held[key]
        lp.constant = scaled.constant
        lp.change_costs("x", scaled.cost)
        lp.forget_basis()
        lower = np.where(rows.equal, rows.right, -np.inf)
        sides = np.arange(len(rows.equal), dtype=np.int32)
        lp.highs.changeRowsBounds(len(sides), sides, lower[0], rows.right[0])
        sides = np.flatnonzero((rows.right != rows.right[0]).any(axis=0)).astype(np.int32)  # those that move
        lower, right = lower[:, sides], rows.right[:, sides]
        point, at = np.nonzero(rows.values != np.vstack([now, rows.values[:-1]]))  # what moves, of all points
        moves = list(zip(*(v.tolist() for v in (rows.rows[at], rows.columns[at], rows.values[point, at]))))
        ends = itertools.pairwise(np.searchsorted(point, np.arange(len(points) + 1)))
        for k, (place, (start, end)) in enumerate(zip(points.tolist(), ends)):
            for move in moves[start:end]:
                lp.highs.changeCoeff(*move)
            lp.highs.changeRowsBounds(len(sides), sides, lower[k], right[k])
            status = lp.run()
            if status is Status.OPTIMAL:
                values[place], found[place] = unit * lp.value, lp.x
            elif status not in (Status.INFEASIBLE, Status.LIMIT):
                self.failed.append(lp.word)
        self._held[key] = lp, rows.values[-1]
        if self.failed and np.isnan(values).all():
            said = f"HiGHS failed in {len(self.failed)} of {count} programs ({self.failed[-1]})"
            raise SolverError(said, solver="highs", status=self.failed[-1])
        return values, found
