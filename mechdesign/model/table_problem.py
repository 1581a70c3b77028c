"""A problem on one table of probabilities: solved, repaired and proved as a finite linear program."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd
from flint import fmpq
from scipy import sparse
from scipy.optimize import minimize_scalar

from mechdesign.checks import instance, refuse
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence import proofs
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import fraction, rational, round_down, round_up
from mechdesign.evidence.files import check_writable
from mechdesign.evidence.results import Accuracy, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import LinearBound
from mechdesign.model.declared import Declared
from mechdesign.model.exactly import (
    MARGIN,
    Exact,
    Face,
    admissible,
    audit_table,
    closed,
    contradiction,
    least_epsilon,
    mixed,
    near,
    repaired,
    row_claims,
    steep,
    unbound,
    weights_of,
)
from mechdesign.model.expressions import ZERO, rows_of
from mechdesign.model.problem import Problem, Unknown, labelled, named, unmet
from mechdesign.model.program import Pivots, Program, multipliers, small
from mechdesign.model.symmetry import Symmetry
from mechdesign.model.table import Private, Table, TableMechanism, shown_label
from mechdesign.plotting import NAMED, draw_map, draw_matrix
from mechdesign.problem.privacy import (
    FARTHEST,
    SHOWN,
    Consumption,
    Description,
    MetricDP,
    never_sent,
    privacy_words,
)
from mechdesign.problem.spine import Bound, Clock, Incumbent, Law, ModelledDesign
from mechdesign.solvers.deadline import limited
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.solvers.registry import Solution, solve
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices, Weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVED = 1e-8
"""Largest violation of a convex, not piecewise linear function at the law, in doubles, relative to the size of its tangents."""
_TANGENTS = 100  # most rounds of tangents
_PASSES = 3  # most programs with units of cells, each from the last one's cells
_STALLED = 20  # rounds that must close a hundredth of the gap
_POSITIVE = 1e-12  # least probability of a cell at which tangents are taken
MOST_ROWS = 400_000
"""Most privacy rows that `TableProblem.write` lists."""
_ASYMMETRIC = 1_000  # cells from which a program without symmetry takes longer than the search for one
_SIMPLEX = 4_000  # variables of a table on a metric that the simplex method solves within half a minute
_NONE: Any = np.zeros(0, dtype=np.int64)
_LARGE = 20_000  # from this many variables a second solve takes too long: a mixture then repairs the law


def bound_of(declared: Declared, rows: Indices, multipliers: Iterable[Any]) -> Iterator[Bound]:
    """Yield the bound that these multipliers prove, unless a reduced cost is negative."""
    proof = proofs.RowsBound(rows, tuple(multipliers))
    if (bound := declared.linear_bound(rows, proof.multipliers)).admissible:
        yield Bound(round_down(fraction(bound.bound)), proof)


def proved_bounds(declared: Declared, rows: Indices = _NONE, multipliers: Array = _NONE) -> Iterator[Bound]:
    """Yield the bound that a solver's multipliers of these rows prove, if any, or that of none if higher: the least loss of each input."""
    tried = (admissible(declared, rows[:count], multipliers[:count]) for count in {len(rows), 0})
    found = (bound for held in tried for bound in bound_of(declared, *held))
    yield from sorted(found, key=lambda one: one.value)[-1:]


def _steep(declared: Declared) -> bool:
    """Return whether privacy is pure and metric: then few of many rows bind."""
    return all(not part.delta and len(part.distances) > 1 for part in declared.parts)


def _starts(program: Program) -> Iterator[Array]:
    """Yield columns of the last solve, those raised to pure privacy, and refined ones."""
    yield program.columns()
    if program.declared.n > 1:
        yield closed(program.declared, program.columns())
    if (refined := program.refined()) is not None:
        yield refined


class TableDesign(ModelledDesign):
    """A design whose model is one table: its declared problem is solved, repaired, proved and audited."""

    declared: Declared

    def deployed(self, weights: Weights) -> Any:
        """Return the mechanism of these integer weights, a row for each input."""
        return TableMechanism(self.declared.inputs, self.declared.outputs, weights)

    def exact(self, law: Any, witness: Iterable[Fraction] = ()) -> Exact:
        """Return the cells of a law and further columns, in rationals."""
        labels = (self.declared.inputs, self.declared.outputs)
        if isinstance(law, TableMechanism) and (law.inputs, law.outputs) != labels:
            raise DesignError("law: is not a table of the problem's inputs and outputs")
        return [fmpq(w, total) for row, total in zip(law.weights, map(sum, law.weights)) for w in row] + [
            rational(x) for x in witness
        ]

    def proof(self, witness: tuple[Fraction, ...]) -> TableProof:
        """Return the proof of a law, with values of the further columns."""
        return TableProof(witness)

    def law(self, weights: Weights, report: SolveReport, notes: tuple[str, ...] = ()) -> Law:
        """Return the law of these integer weights with its exact value and its proof."""
        none = (Fraction(0),) * (self.declared.width - self.declared.cells)
        columns = Face(self.declared, frozenset()).lowered(self.exact(self.deployed(weights), none))
        return self._law_at(columns, report, notes, weights=weights)

    def _law_at(
        self,
        columns: Exact,
        report: SolveReport,
        notes: tuple[str, ...] = (),
        *,
        missed: Mapping[str, fmpq] | None = None,
        weights: Weights | None = None,
    ) -> Law:
        """Return the law of exact columns, with notes on the equalities that it misses."""
        declared = self.declared
        notes += tuple(
            f"{label!r} depends on equalities stated before it, and holds to {float(off):.1e}"
            for label, off in (missed or {}).items()
        )
        value, witness = declared.value(columns), tuple(map(fraction, columns[declared.cells :]))
        law = self.deployed(weights_of(declared, columns) if weights is None else weights)
        return Law(law, round_up(fraction(value)), (self.proof(witness),), report, notes)

    def exactly(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield the vertex of least cost and its bound, by pivots in rationals from that basis, for a small table."""
        declared, found = self.declared, list[Law | Bound]()
        if declared.curved or not small(declared):
            return
        with suppress(SolverError), limited(clock):
            low, high = Pivots(declared, above=False), Pivots(declared, above=True)
            if low.solve() is None:
                found.append(self._law_at(low.columns, SolveReport("pivots in rationals")))
                high.enter(low.lines)
                high.solve()
                found += bound_of(declared, *multipliers(high.cost))
        yield from found

    def linear_bound(self, rows: Indices, multipliers: Iterable[Any], given: Any = None) -> LinearBound:
        """Return the rows of the declared program with their multipliers, for `RowsBound`."""
        return self.declared.linear_bound(rows, multipliers)

    def audit(self, result: Result) -> pd.DataFrame:
        """Tabulate every row of every family: privacy by pair and output, the user's own rows, and the sums."""
        multipliers = next(
            (
                dict(zip(p.rows.tolist(), p.multipliers))
                for p in result.proofs
                if isinstance(p, proofs.RowsBound)
            ),
            {},
        )
        witness = next((p.witness for p in result.proofs if isinstance(p, TableProof)), ())
        cells = self.exact(result.mechanism, witness)
        return audit_table(self.declared, cells, multipliers)


class FiniteProblem(TableDesign, Problem):
    """A problem whose numbers are those of a table: its linear program, repair and proofs."""

    numbers: ClassVar[type[Declared]] = Declared

    def deployed(self, weights: Weights) -> Any:
        """Return the mechanism of these integer weights, that of the design if this is its model."""
        return super().deployed(weights) if self.design is None else self.design.deployed(weights)

    def proof(self, witness: tuple[Fraction, ...]) -> TableProof:
        """Return the proof of a law, that of the design if this is its model."""
        found: TableProof = super().proof(witness) if self.design is None else self.design.proof(witness)
        return found

    def compiled(
        self, at: Mapping[str, Iterable[Array]] | None = None, stricter: Mapping[str, float] | None = None
    ) -> Declared:
        """Return the problem in numbers, with tangents of convex functions at these tables, by default at equal probabilities.

        Cells are raised above 0, at which roots and entropies have no slope.
        """
        given = at or {"": [np.full(self.unknown.shape, 1 / self.unknown.shape[-1])]}
        points = {
            label: [np.maximum(table, _POSITIVE) for table in tables] for label, tables in given.items()
        }
        rows = rows_of(self.unknown, self.objective, self.constraints, points, stricter=stricter)
        return self.numbers(**self.unknown.stated(), **vars(rows))

    # -- files and copies -------------------------------------------------------------------------------------

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the linear program, every row listed, for other programs: ``.mps`` or ``.lp``."""
        declared = self.declared
        size = sum(len(part.numbers) for part in declared.parts)
        refuse(size > MOST_ROWS, "rows", size, f"are too many to be listed: at most {MOST_ROWS}")
        Program(declared, Clock(None), listed=True).lp.write(str(check_writable(path)))

    # -- solving ----------------------------------------------------------------------------------------------

    def _result(self, incumbent: Incumbent, clock: Clock) -> Result:
        found = Problem._result(self, incumbent, clock)
        if found.certificate is not None and not found.certificate.verify():
            remedy = "no table was found that passes its own checks: rows may contradict each other by less than doubles tell, or ε is too large"
            raise SolverError(remedy, solver=found.solver_report.solver, status="check")
        return found

    def improve(
        self, clock: Clock, solver: str | None = None, *, symmetry: Any = None, **options: Any
    ) -> Iterator[Law | Bound]:
        """Solve at ε less 1e-12 of it for the law, and as stated for the multipliers; repair and prove both exactly.

        Parameters
        ----------
        clock : Clock
        solver : str, optional
        symmetry : "find", or list of (permutation of inputs, permutation of outputs), optional
            Symmetries of the problem: one variable for each orbit of cells. Permutations that change the problem are dropped, with a note.
            Found by default for tables of more than a thousand cells whose pairs of inputs are all private, or far apart.
        **options
            Options of the solver.
        """
        if self.declared.curved:
            yield from self._by_tangents(clock, solver, **options)
            return
        declared = self.declared
        dense = any(isinstance(one, Private) and str(one.between) == "all" for one in declared.privacy)
        if symmetry is None and declared.cells > _ASYMMETRIC and (dense or _steep(declared)):
            symmetry = "find"  # along a chain a program of half the size wins less than the search takes
        orbits = Symmetry.of(declared, symmetry, clock)
        dropped = f"symmetry: {orbits.dropped} of the permutations do not keep every row"
        notes = (dropped,) if orbits.dropped else ()
        variables = int(orbits.cells.max()) + 1
        if solver is None and variables > _SIMPLEX and not options and _steep(declared):
            yield from self._by_rounds(clock, orbits, notes)
            return
        with suppress(InfeasibleError, SolverError):  # solvers omit the smallest coefficients
            columns = unbound(declared, orbits, clock) if solver is None else None
            for _ in range(_PASSES):
                if columns is None or (own := steep(declared, columns, orbits)) is None:
                    break
                columns = yield from self._solved(own, clock, orbits, notes)
        yield from self._solved(declared, clock, orbits, notes, solver, **options)
        yield from proved_bounds(declared)

    def _solved(
        self,
        declared: Declared,
        clock: Clock,
        orbits: Symmetry,
        notes: tuple[str, ...],
        solver: str | None = None,
        **options: Any,
    ) -> Generator[Law | Bound, None, Array]:
        """Yield a law near the solution, at slightly less than ε, and the bound from the solution as stated; return its columns."""
        for margin in (MARGIN, 0.0) if int(orbits.cells.max()) < _LARGE else (0.0,):
            program = Program(declared, clock, solver, margin=margin, symmetry=orbits, **options)
            try:
                program.solve()
                break
            except InfeasibleError as error:
                if not margin:
                    raise self._explained(error, clock) from None
        points = near(declared, _starts(program), clock, clock.gap / 4)
        report, solved = SolveReport.of(program.solution), program.columns()
        multipliers = program.multipliers()
        if program.margin:
            try:
                program.state(0.0)
                program.solve()
                multipliers = program.multipliers()
            except (InfeasibleError, SolverError):  # the stricter program's prove nearly as much
                if clock.passed:
                    raise
        columns, missed = repaired(declared, points, clock, solver, spared=clock.gap / 4)
        law, bounds = self._law_at(columns, report, notes, missed=missed), list[Bound]()
        with suppress(SolverError), limited(clock.late):  # there may be no time
            bounds += proved_bounds(declared, *multipliers)
        yield from bounds
        yield law
        return solved

    def _by_rounds(self, clock: Clock, orbits: Symmetry, notes: tuple[str, ...]) -> Iterator[Law | Bound]:
        """Solve by an interior-point method with more and more rows: yield a bound from every round, and a law near the last table."""
        declared, columns = self.declared, np.zeros(0)
        program = Program(declared, clock, symmetry=orbits, interior=True)
        yield from proved_bounds(declared)
        try:
            for _ in program.rounds():
                columns = program.columns()
                if not clock.passed:
                    yield from proved_bounds(declared, *program.multipliers())
        except InfeasibleError as error:
            raise self._explained(error, clock) from None
        except SolverError as error:
            if error.status != "limit" or not len(columns):
                raise
        points = near(declared, [closed(declared, columns), columns], clock)
        exact, missed = repaired(declared, points, clock, spared=math.inf)
        yield self._law_at(exact, SolveReport.of(program.solution), notes, missed=missed)

    # -- convex functions that are not piecewise linear ------------------------------------------------------------

    def worth(self, law: Any) -> dict[str, float]:
        """Return the largest value of each convex function at a law, in doubles."""
        return self.worth_at(self._table(law))

    def audit(self, result: Result) -> pd.DataFrame:
        return self.with_functions(super().audit(result), self._table(result.mechanism))

    def _table(self, law: Any) -> Array:
        return self._doubles(self.exact(law))

    def _doubles(self, columns: Exact) -> Array:
        return np.reshape([float(x) for x in columns[: self.unknown.size]], self.unknown.shape)

    def room(self, label: str, law: Any) -> float:
        """Return the tolerance of a convex function at a law."""
        return CURVED * self._size(label, self._table(law))

    def missed_by(self, law: Any, worth: Mapping[str, float]) -> list[str]:
        """Return the labels of convex functions, except the objective, that exceed their tolerance or are NaN."""
        limits = ((label, value) for label, value in worth.items() if label != "objective")
        return sorted(label for label, value in limits if not value <= self.room(label, law))

    def _by_tangents(self, clock: Clock, solver: str | None, **options: Any) -> Iterator[Law | Bound]:
        """Solve as a conic program for a law, then linear programs with more and more tangents for the bound.

        The law moves to the last table inside the functions on the way from one well inside to the tangents' optimum; the next
        tangents are taken there (Veinott 1967).
        """
        report, declared, columns, missed = self._inside(clock, solver, options)
        inner, kept, apart = columns, self._kept(self._doubles(columns)), list[float]()
        if not kept and (found := self._well_inside(clock)) is not None:
            inner, columns, kept = found, self._last_inside(found, columns), True
        while True:
            program = Program(declared, clock)
            program.solve()
            bounds = [*proved_bounds(declared, *program.multipliers())]
            tables = [_stochastic(program.columns()[: declared.cells].reshape(self.unknown.shape))]
            if kept:
                with suppress(SolverError):  # of the repair, or out of time
                    points = near(declared, [program.columns()], clock)
                    outer, off = repaired(declared, points, clock, spared=clock.gap / 4)
                    found, missed = self._last_inside(inner, outer), {**missed, **off}
                    tables.append(self._doubles(found))
                    columns = min(columns, self._cheapest(columns, found), key=self._cost)
            columns = Face(declared, declared.zeros).lowered(columns)
            value = self._cost(columns)
            apart.append(value - max(bound.value for bound in bounds))
            stalled = len(apart) > _STALLED and apart[-1] > 0.99 * apart[-1 - _STALLED]
            over = stalled or clock.passed or len(apart) == _TANGENTS or not kept
            if over or apart[-1] <= clock.gap * abs(value):
                break
            if len(apart) == 1:
                inner = self._well_inside(clock) or inner
            tables[0] = (tables[0] + self._doubles(columns)) / 2  # where slopes are finite
            declared = declared.with_tangents(self.compiled({"": tables}))
        self.__dict__["_declared"] = declared
        yield from bounds
        yield replace(self._law_at(columns, report, missed=missed), value=value)

    def _cost(self, columns: Exact) -> float:
        """Return the cost of columns, rounded up; that of a convex objective in doubles."""
        worth = self.worth_at(self._doubles(columns))
        return max(round_up(fraction(self.declared.value(columns))), worth.get("objective", -math.inf))

    def _kept(self, table: Array) -> bool:
        """Return whether a table is inside the convex functions."""
        return all(worth <= 0 for label, worth in self.worth_at(table).items() if label != "objective")

    def _last_inside(self, inner: Exact, outer: Exact) -> Exact:
        """Return the last point inside the convex functions on the way from one inside to another."""
        start, end = self._doubles(inner), self._doubles(outer)
        least, most, share = 0.0, 1.0, 1.0
        while most - least > 1e-12:
            kept = self._kept(start + share * (end - start))
            least, most = (share, most) if kept else (least, share)
            share = (least + most) / 2
        return mixed(outer, inner, rational(least))

    def _cheapest(self, start: Exact, end: Exact) -> Exact:
        """Return the cheapest point between two if the objective is convex, else the second."""
        if "objective" not in self.declared.curved:
            return end
        one, other = self._doubles(start), self._doubles(end)

        def cost(share: float) -> float:
            return self.worth_at(one + share * (other - one))["objective"]

        share = minimize_scalar(cost, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12}).x
        return mixed(end, start, rational(share))

    def _inside(
        self, clock: Clock, solver: str | None, options: dict[str, Any]
    ) -> tuple[SolveReport, Declared, Exact, dict[str, fmpq]]:
        """Return a table inside the convex functions: a cone solver's optimum, repaired, as far as it is inside."""
        program, report = self.to_cvxpy(), SolveReport("tangents")
        equal, outer = np.full(self.unknown.shape, 1 / self.declared.m), list[Exact]()
        parts = {label: f / self._size(label, equal) for label, f in self.functions().items()}
        curved = parts.pop("objective", None) is not None
        goal = program.objective.expr / (self._spread() if curved else self.declared.units[0])
        scaled = {id(one) for label, one in labelled(self.constraints) if label in parts}
        rest = [one for one in program.constraints if id(one) not in scaled]
        for stricter in (CURVED, 0.0):  # there may be no room
            rows = [*rest, *(part <= -stricter for part in parts.values())]
            try:
                found = _conic(cp.Problem(cp.Minimize(goal), rows), solver, clock, options)
            except (InfeasibleError, SolverError) as error:
                if getattr(error, "status", "") == "limit":
                    raise
                continue
            table = _stochastic(found.primal[self.unknown.name()])
            declared, report = self.compiled({"": [table]}), SolveReport.of(found)
            start = _settled(declared, [rational(x) for x in table.ravel().tolist()])
            above = np.nextafter([float(x) for x in start], np.inf)
            points = near(declared, [np.append(table, above[declared.cells :])], clock)
            columns, missed = repaired(declared, points, clock)
            law = self.deployed(weights_of(declared, columns))
            if not self.missed_by(law, self.worth(law)):
                return report, declared, columns, missed
            outer.append(columns)
        if (inner := self._well_inside(clock)) is None:
            raise self._explained(InfeasibleError("no table is inside the convex functions"), clock)
        columns = self._last_inside(inner, outer[0]) if outer else inner
        declared = self.compiled({"": [self._doubles(columns)]})
        return report, declared, Face(declared, declared.zeros).lowered(columns), {}

    def _spread(self) -> float:
        """Return the range of the objective over some tables, which scales it to about 1 for a solver's tolerances."""
        n, m = self.declared.n, self.declared.m
        corners = (np.eye(m)[(np.arange(n) + x) % m] for x in range(min(m, 8)))
        tables = [np.full((n, m), 1 / m), *((corner + 1 / m) / 2 for corner in corners)]
        worth = [self.worth_at(table.reshape(self.unknown.shape))["objective"] for table in tables]
        return float(np.ptp([one for one in worth if math.isfinite(one)] or [0.0])) or 1.0

    def _well_inside(self, clock: Clock) -> Exact | None:
        """Return a table inside the convex functions: the farthest inside tangents, of which more are taken there until it is; None if they leave none."""
        declared = self.declared
        with suppress(InfeasibleError):
            for _ in range(_TANGENTS):
                program = Program(declared, clock, room=True)
                program.solve()
                if not program.solution.primal["room"][0] > 0:
                    break
                table = _stochastic(program.columns()[: declared.cells].reshape(self.unknown.shape))
                if self._kept(table):
                    inner, _ = repaired(declared, near(declared, [program.columns()], clock), clock)
                    if self._kept(self._doubles(inner)):
                        return inner
                self.__dict__["_declared"] = declared = declared.with_tangents(self.compiled({"": [table]}))
        return None

    def _explained(self, error: InfeasibleError, clock: Clock) -> InfeasibleError | SolverError:
        """Return the error that names families that contradict each other, and the least ε at which they do not."""
        declared = self.declared
        families = contradiction(declared, clock)
        if not families and declared.curved:
            return unmet(declared.curved)
        if not families:
            message = f"no {declared.noun} was found, nor is it proved that there is none: {error}"
            return SolverError(message, solver="highs", status="check")
        private = [asked.label for asked in declared.privacy if asked.label in families]
        least = least_epsilon(declared, private, clock) if private else None
        how = "recomputed by tangents" if {*families} & {*declared.curved} else "proved in rationals"
        named, both = " and ".join(map(repr, families)), " together" if len(families) > 1 else ""
        reason = f"no {declared.noun} meets {named}{both} ({how})"
        if least is not None:
            least = math.ceil(least * 1e6) / 1e6
            reason += f"; some {declared.noun} does from epsilon = {least:.6f} on"
        return InfeasibleError(reason, smallest_epsilon=least)

    def granted(self, value: float) -> Any:
        """Return the requirements in words."""
        return "; ".join(str(asked) for asked in self.declared.privacy)


@serializable("table-problem")
@dataclass(frozen=True, eq=False)
class TableProblem(FiniteProblem):
    """A problem on one table of probabilities, with a row for each input."""

    @classmethod
    def unknown_of(cls, numbers: Any) -> Unknown:
        """Return the unknown of a problem in numbers."""
        return Table(numbers.inputs, numbers.outputs, of=numbers.of, neighbours=numbers.neighbours)

    @property
    def among(self) -> proofs.MechanismClass:
        return proofs.every("table within these constraints")

    def to_cvxpy(self) -> cp.Problem:
        """Return the problem in CVXPY alone, every privacy row listed, each constraint with its name."""
        P, rows = self.unknown, list[Any]()
        for part in self.declared.parts:
            a, b = (P[side.tolist()] for side in part.pairs.T)
            over = a - cp.multiply(part.factors[:, None], b)
            row = cp.sum(cp.pos(over / part.delta), axis=1) <= 1 if part.delta else over <= 0
            rows.append(named(part.label, row))
        return cp.Problem(self.objective, [*rows, named("sums", cp.sum(P, axis=1) == 1), *self.own])

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the cheapest law that is feasible and always sends the same output."""
        declared, laws = self.declared, list[tuple[fmpq, Exact]]()
        n, m = declared.n, declared.m
        for y in range(m):
            alone = [fmpq(other == y) for other in range(m)]
            start = alone * n + [ZERO] * (declared.width - declared.cells)
            columns = Face(declared, frozenset()).lowered(start)
            sides = ((row, row.at(columns)) for row in declared.rows)
            if all(side <= 0 and not (row.equal and side) for row, side in sides):
                laws.append((declared.value(columns), columns))
        for _, columns in sorted(laws):
            law = self._law_at(columns, SolveReport("closed form"))
            worth = self.worth(law.mechanism)  # tangents lie below convex functions
            if not self.missed_by(law.mechanism, worth):
                yield replace(law, value=max(law.value, worth.get("objective", -math.inf)))
                return

    # -- what a result says -----------------------------------------------------------------------------------

    @property
    def central(self) -> bool:  # type: ignore[override]
        """Whether inputs are statistics of a data set, whose releases a ledger counts."""
        return self.declared.of == "data"

    @property
    def answer_size(self) -> int:
        """Number of coordinates of an input."""
        first = self.declared.inputs[0]
        return len(first) if isinstance(first, tuple) else 1

    @property
    def neighbours(self) -> str:
        """The relation of data sets that the protected pairs of inputs come from."""
        return self.declared.neighbours

    def consumption(self, result: Result) -> Consumption:
        """Return the budget of a release: each requirement's; of requirements on different pairs, the larger."""
        super().consumption(result)  # refuses tables of persons
        linked = np.concatenate([asked.pairs(self.declared.n) for asked in self.declared.privacy])
        graph = sparse.coo_array((np.ones(len(linked)), linked.T), shape=(self.declared.n, self.declared.n))
        if sparse.csgraph.connected_components(graph, directed=False, return_labels=False) > 1:
            remedy = "protects listed pairs of inputs only, which do not join all of them: a ledger counts what protects every data set"
            raise DesignError.of("result", "Problem", remedy)
        spent: dict[str, list[Consumption]] = {}
        for pairs, points in self._spent():
            for loss, delta in points:
                own = Consumption() if delta else Consumption.pure((loss, 1))
                spent.setdefault(str(pairs.tolist()), []).append(replace(own, statement=(loss, delta)))
        each = [functools.reduce(operator.and_, members) for members in spent.values()]
        return Consumption.largest(each, self.neighbours)

    def _spent(self) -> Iterator[tuple[Indices, list[tuple[float, float]]]]:
        """Yield the pairs of each requirement, and its points (ε, δ) for the farthest of them."""
        for asked in self.declared.privacy:
            pairs = asked.pairs(self.declared.n)
            far = 1.0 if asked.distances is None else float(asked.distances[tuple(pairs.T)].max())
            yield pairs, [(round_up(Fraction(e) * Fraction(far)), d) for e, d in asked.points]

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Return the trade-off between any two protected inputs: the points of requirements that cover all pairs."""
        spent = [*self._spent()]
        widest = max(len(pairs) for pairs, _ in spent)
        return TradeOff(tuple(p for pairs, points in spent if len(pairs) == widest for p in points))

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Return the errors of outputs over a uniform prior of inputs."""
        found: Accuracy = result.mechanism.errors(self.space)
        return found

    @property
    def space(self) -> MetricSpace | None:
        """The metric space of the inputs, if a requirement has one."""
        return next((asked.space for asked in self.declared.privacy if asked.space is not None), None)

    @property
    def _mapped(self) -> MetricSpace | None:
        """Return the space if its places have two coordinates and outputs are places, else None."""
        space, square = self.space, self.declared.inputs == self.declared.outputs
        return space if square and space is not None and space.mapped else None

    def frame(self, result: Result) -> pd.DataFrame:
        """Return the table of probabilities: a row for each input, a column for each output."""
        declared = self.declared
        columns = [f"P[{shown_label(y)}]" for y in declared.outputs]
        frame = pd.DataFrame(result.mechanism.probabilities, columns=columns)
        names = [x if isinstance(x, (int, float)) else shown_label(x) for x in declared.inputs]
        frame.insert(0, "input", names)
        return frame

    def remarks(self, result: Result) -> list[str]:
        names = [shown_label(y) for y in self.declared.outputs]
        return never_sent(names, result.mechanism.probabilities.max(axis=0), "outputs")

    def describe(self, result: Result) -> Description:
        declared, who = self.declared, "Each person holds one of the inputs and sends one of the outputs"
        if declared.of != "person":
            who = "The input is a statistic of a data set, and one of the outputs is released in its place"
        pairs = {"all": "any two inputs", "adjacent": "any two adjacent inputs"}
        listed = "two inputs of a listed pair"
        kept = [privacy_words(one.privacy, pairs.get(str(one.between), listed)) for one in declared.privacy]
        first, small = declared.privacy[0], max(declared.n, declared.m) <= SHOWN
        alone = len(declared.privacy) == 1 and str(first.between) == "all"
        picture = "The probability of every output (across) at every input (down)."
        if self._mapped:
            picture = "A map: places as dots, outputs as rings by how often they are sent, and lines from the first place to its outputs."
        return self._described(
            f"A table of {declared.n} inputs and {declared.m} outputs",
            "\n\n".join([f"{who}: at input x the output y with probability P[x, y].", *kept]),
            f"The table, P[x, y]. The picture: {picture[0].lower()}{picture[1:]}" if small else picture,
            table=self.frame(result) if small else None,
            attacked=FARTHEST if alone and isinstance(first.privacy, MetricDP) else "",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw a map of places and outputs, or the table as shades if there is no map."""
        if (space := self._mapped) is not None:
            named, weights = range(min(NAMED, len(space.names))), np.full(space.size, 1 / space.size)
            return draw_map(space, weights, result.mechanism.probabilities, named, **options)
        declared = self.declared
        columns, rows = ([*map(shown_label, names)] for names in (declared.outputs, declared.inputs))
        return draw_matrix(result.mechanism.probabilities, "output", "input", columns, rows, **options)


def _conic(asked: cp.Problem, solver: str | None, clock: Clock, options: dict[str, Any]) -> Solution:
    """Solve as a cone program by Clarabel, whose nearly accurate answers are closer than a coarser solver's accurate ones, or by another."""
    for variable in asked.variables():
        variable.save_value(None)  # CVXPY fails to reduce sum_largest of a table with values
    with suppress(InfeasibleError, SolverError):
        return solve(asked, solver or "clarabel", deadline=clock, fallback=False, **options)
    return solve(asked, solver, deadline=clock, **options)


def _stochastic(table: Array) -> Array:
    """Return probabilities next to a solver's."""
    held = np.maximum(table, 0.0)
    found: Array = held / held.sum(axis=-1, keepdims=True)
    return found


def _settled(declared: Declared, cells: Exact) -> Exact:
    """Return columns with these cells and the least further ones that their rows allow."""
    further, above = declared.matrix[:, declared.cells :], np.zeros(len(declared.cost) - declared.cells)
    if (np.diff((further < 0).tocsr().indptr) > 1).any():  # one is the lower, the higher another
        given = -declared.offsets - declared.matrix[:, : declared.cells] @ [float(x) for x in cells]
        least = LinearProgram("further columns")
        least.add_columns("x", declared.cost[declared.cells :], lower=-np.inf, upper=np.inf)
        least.add_rows("rows", {"x": further}, lower=np.where(declared.equal, given, -np.inf), upper=given)
        with suppress(InfeasibleError, SolverError):
            least.solve()
            above = least.primal("x")
    return Face(declared, declared.zeros).lowered([*cells, *map(rational, above.tolist())])


@serializable("table-proof")
@dataclass(frozen=True, eq=False)
class TableProof(proofs.Proof):
    r"""A table of integer weights meets each row of its problem, with :math:`e^\varepsilon` from below, and costs at most the value.

    Parameters
    ----------
    witness : tuple of Fraction
        Values of the further variables of piecewise linear atoms: any that satisfy their rows bound the atoms from above.
    distances : array, shape (n, n), optional
        The distances of a design on a space, to their last digit: a verifier computes them from coordinates up to rounding only.
    """

    witness: tuple[Fraction, ...]
    distances: Array | None = None

    speaks_of = ("privacy", "bias", "value")

    def check(self, stated: proofs.Certificate) -> Iterator[proofs.Claim]:
        design, law = instance("question", stated.question, TableDesign), stated.law
        declared = design.declared
        if self.distances is not None and not proofs.same(self.distances, declared.privacy[0].distances):
            raise DesignError("distances: are not those of the design's space")
        v = design.exact(law, self.witness)
        allowed = "law: is not of the problem's inputs and outputs, or further columns are missing"
        DesignError.when(len(v) != len(declared.cost), allowed)
        broken = Face(declared, frozenset()).broken(v)
        families = [(declared.family_of(number), slack) for number, slack in broken.items() if number >= 0]
        for asked in declared.privacy:
            over = [slack for family, slack in families if family == asked.label]
            yield proofs.Claim(
                f"{asked.label}: {asked}", proofs.PROVED, float(min(over, default=0)), not over
            )
            if asked.distances is not None and isinstance(design, TableProblem):
                known, space = not callable(asked.privacy.metric), asked.space
                fits = space is None or space.ordered(declared.inputs) is space
                if known:
                    own = design.unknown.distances(asked.privacy)
                    fits &= np.allclose(own, asked.distances, rtol=1e-12, atol=0)
                claim = f"{asked.label}: distances are those of the metric"
                yield proofs.agreement(claim, proofs.PROVED if known else proofs.CLAIMED, fits)
        yield from row_claims(declared, v)
        room = fraction(rational(stated.value) - declared.value(v))
        rooms = dict[str, float]()
        if isinstance(design, FiniteProblem):
            for label, worth in design.worth(law).items():
                rooms[label] = (stated.value if label == "objective" else design.room(label, law)) - worth
        for label in declared.curved:
            margin, claim = rooms.get(label, 0.0), f"the convex function {label!r} is at most 0"
            if label == "objective":
                # tangents lie below it: of a file, which holds no functions, the value is at least theirs
                margin, claim = (
                    min(margin, round_down(room)),
                    f"the convex objective is at most {stated.value!r}",
                )
            yield proofs.Claim.of(claim, proofs.RECOMPUTED if label in rooms else proofs.CLAIMED, margin)
        if "objective" not in declared.curved:
            claim = f"the objective, called {declared.objective!r}, is at most {stated.value!r}"
            yield proofs.Claim.of(claim, proofs.PROVED, room)
        if isinstance(design, FiniteProblem):
            yield declared.objective_claim()
        yield proofs.agreement("weights are a table of the problem's inputs and outputs", proofs.PROVED, True)
