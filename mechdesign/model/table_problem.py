"""A problem on one table of probabilities: solved, repaired and proved as a finite linear program."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd
from flint import fmpq
from scipy import sparse

from mechdesign.checks import instance, refuse
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence import proofs
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import fraction, nearest, rational, round_down, round_up
from mechdesign.evidence.files import check_writable
from mechdesign.evidence.results import Accuracy, Result, SolveReport, audit_rows
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import LinearBound
from mechdesign.model import tangents
from mechdesign.model.declared import Declared, Part
from mechdesign.model.exactly import (
    MARGIN,
    Exact,
    Face,
    closed,
    contradiction,
    least_epsilon,
    lowered,
    near,
    proved_bounds,
    repaired,
    row_claims,
    weights_of,
)
from mechdesign.model.expressions import ZERO, rows_of
from mechdesign.model.problem import POSITIVE, Problem, Unknown, contradicted, named, own_audit, unmet
from mechdesign.model.program import Program
from mechdesign.model.symmetry import Symmetry
from mechdesign.model.table import Table, TableMechanism, shown_label
from mechdesign.plotting import NAMED, draw_map, draw_matrix
from mechdesign.problem.privacy import (
    FARTHEST,
    Consumption,
    Description,
    MetricDP,
    never_sent,
    privacy_words,
)
from mechdesign.problem.spine import Bound, Clock, Incumbent, Law, ModelledDesign
from mechdesign.solvers.deadline import limited
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Figure, Indices, Weights

MOST_ROWS = 400_000
"""Most privacy rows that `TableProblem.write` lists."""
_ASYMMETRIC = 1_000  # cells up to which a program without symmetry takes no longer
_SIMPLEX = 4_000  # variables of a table on a metric that the simplex method solves within half a minute
_LARGE = 20_000  # from this many variables a second solve takes too long: a mixture then repairs the law


def _steep(declared: Declared) -> bool:
    """Return whether privacy is pure and metric: then few of many rows bind."""
    return all(not part.delta and len(part.distances) > 1 for part in declared.parts)


def starts(program: Program) -> Iterator[Array]:
    """Yield columns of the last solve, those raised to pure privacy, and refined ones."""
    yield program.columns()
    if program.declared.n > 1:
        yield closed(program.declared, program.columns())
    if (refined := program.refined()) is not None:
        yield refined


def missed_words(missed: Mapping[str, fmpq]) -> tuple[str, ...]:
    """Return notes on equalities that a law misses."""
    words = "depends on equalities stated before it, and holds to"
    return tuple(f"{label!r} {words} {float(off):.1e}" for label, off in missed.items())


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
        return self.law_at(columns, report, notes, weights=weights)

    def law_at(
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
        notes += missed_words(missed or {})
        value, witness = declared.value(columns), tuple(map(fraction, columns[declared.cells :]))
        law = self.deployed(weights_of(declared, columns) if weights is None else weights)
        return Law(law, round_up(fraction(value)), (self.proof(witness),), report, notes)

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
        return audit_of_rows(self.declared, cells, multipliers)


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

    least, curved_room = POSITIVE, tangents.CURVED

    @property
    def start(self) -> Array:
        """Equal probabilities."""
        return np.full(self.unknown.shape, 1 / self.unknown.shape[-1])

    def _read(self, points: Mapping[str, Iterable[Array]], stricter: Mapping[str, float] | None) -> Declared:
        rows = rows_of(self.unknown, self.objective, self.constraints, points, stricter=stricter, apart=True)
        return self.numbers(**self.unknown.stated(), **vars(rows))

    def to_cvxpy(self) -> cp.Problem:
        """Return the problem in CVXPY alone, every privacy row listed, each constraint with its name."""
        P, rows = self.unknown, list[Any]()
        for part in self.declared.parts:
            for over in part.over(P):
                spent = cp.sum(cp.pos(over / (part.delta or 1)), axis=over.ndim - 1)
                rows.append(named(part.label, spent <= 1 if part.delta else over <= 0))
        sums = named("sums", cp.sum(P, axis=P.ndim - 1) == 1)
        return cp.Problem(self.objective, [*rows, sums, *self.own])

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
            Symmetries of the problem: one variable for each class of cells that are alike. Permutations that change the problem are dropped, with a note; one
            that is left asks for all symmetries.
            An empty list asks for none. Found by default for tables of more than a thousand cells.
        **options
            Options of the solver.
        """
        if not self.declared.curved:
            yield from self._linear(clock, solver, symmetry, options)
            return
        if "objective" not in self.declared.curved:  # functions with room left change nothing
            with suppress(SolverError):
                found = [*self._linear(clock, solver, symmetry, options if solver else {})]
                inside = [
                    one
                    for one in found
                    if not isinstance(one, Law) or all(x <= 0 for x in self.worth(one.mechanism).values())
                ]
                if any(isinstance(one, Law) for one in inside):
                    yield from inside
                    return
        yield from tangents.solved(self, clock, solver, options)

    def _linear(
        self, clock: Clock, solver: str | None, symmetry: Any, options: dict[str, Any]
    ) -> Iterator[Law | Bound]:
        """Solve the linear program."""
        declared = self.declared
        if symmetry is None and declared.n > 1 and declared.cells > _ASYMMETRIC:
            symmetry = "find"
        orbits = Symmetry.of(declared, symmetry, clock)
        dropped = f"symmetry: {orbits.dropped} of the permutations do not keep every row"
        notes = (dropped,) if orbits.dropped else ()
        variables = int(orbits.cells.max()) + 1
        if solver is None and variables > _SIMPLEX and not options and _steep(declared):
            yield from self._by_rounds(clock, orbits, notes)
            return
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
            except (InfeasibleError, SolverError) as error:
                if getattr(error, "status", "") == "limit":
                    raise
                if not margin:
                    raise self.explained(error, clock) from None
        points = near(declared, starts(program), clock, clock.gap / 4)
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
        law, bounds = self.law_at(columns, report, notes, missed=missed), list[Bound]()
        with suppress(SolverError), limited(clock.late):  # there may be no time
            bounds += proved_bounds(declared, *multipliers)
            gap = law.value - max((bound.value for bound in bounds), default=-math.inf)
            if gap > clock.gap * abs(law.value):
                bounds += proved_bounds(declared, *program.multipliers(program.lp.basic_duals()))
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
            raise self.explained(error, clock) from None
        except SolverError as error:
            if error.status != "limit" or not len(columns):
                raise
        points = near(declared, [closed(declared, columns), columns], clock)
        exact, missed = repaired(declared, points, clock, spared=math.inf)
        yield self.law_at(exact, SolveReport.of(program.solution), notes, missed=missed)

    # -- convex functions that are not piecewise linear ------------------------------------------------------------

    def worth(self, law: Any) -> dict[str, float]:
        """Return the largest value of each convex function at a law, in doubles."""
        return self.worth_at(self._table(law))

    def audit(self, result: Result) -> pd.DataFrame:
        return self.with_functions(super().audit(result), self._table(result.mechanism))

    def _table(self, law: Any) -> Array:
        return self.value_of(self.exact(law))

    def missed_by(self, law: Any, worth: Mapping[str, float]) -> list[str]:
        """Return the labels of convex functions, except the objective, that exceed their tolerance or are NaN."""
        limits = ((label, value) for label, value in worth.items() if label != "objective")
        return sorted(label for label, value in limits if not value <= self._room(label, self._table(law)))

    def explained(self, error: InfeasibleError | SolverError, clock: Clock) -> InfeasibleError | SolverError:
        """Return the error that names families that contradict each other, and the least ε at which they do not."""
        declared = self.declared
        families = contradiction(declared, clock)
        if not families and declared.curved:
            return unmet(declared.curved)
        if not families:
            message = f"no {declared.noun} was found, nor is it proved that there is none: {error}"
            return SolverError(message, solver="highs", status="check")
        private = [asked.label for asked in declared.privacy if asked.label in families]
        least = None
        with suppress(SolverError):  # out of time: the proof stands without it
            least = least_epsilon(declared, private, clock) if private else None
        who = f"{declared.noun} meets"
        return contradicted(who, families, declared.curved, smallest_epsilon=least)

    def granted(self, value: float) -> Any:
        """Return the requirements in words."""
        return "; ".join(str(asked) for asked in self.declared.privacy)


@serializable("table-problem", eq=False)
class TableProblem(FiniteProblem):
    """A problem on one table of probabilities, with a row for each input."""

    mechanism_class = proofs.every("table within these constraints")

    @classmethod
    def unknown_of(cls, numbers: Any) -> Unknown:
        """Return the unknown of a problem in numbers."""
        return Table(numbers.inputs, numbers.outputs, of=numbers.of, neighbours=numbers.neighbours)

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the cheapest law that is feasible and always sends the same output."""
        declared, laws = self.declared, list[tuple[fmpq, int, Exact]]()
        n, m, cells = declared.n, declared.m, declared.cells
        held, further = list[tuple[Any, dict[int, fmpq], Any]](), declared.costs[cells:]
        for row in declared.rows:
            sums = dict[int, fmpq]()  # of an output's coefficients over all inputs
            for j, a in row.terms:
                if j < cells:
                    sums[j % m] = sums.get(j % m, ZERO) + a
            held.append((row, sums, tuple((j - cells + 1, a) for j, a in row.terms if j >= cells)))
        for y in reversed(range(m)):
            rows = [replace(row, terms=((0, sums.get(y, ZERO)), *rest)) for row, sums, rest in held]
            costs = [sum(declared.costs[y:cells:m], ZERO), *further]
            point = lowered([fmpq(1), *[ZERO] * len(further)], 1, rows, costs)
            sides = ((row, row.at(point)) for row in rows)
            if all(side <= 0 and not (row.equal and side) for row, side in sides):
                laws.append((sum((c * x for c, x in zip(costs, point)), ZERO), y, point[1:]))
        for _, y, point in sorted(laws, key=lambda law: law[0]):
            columns = [fmpq(other == y) for other in range(m)] * n + point
            law = self.law_at(columns, SolveReport("closed form"))
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
        first = declared.privacy[0]
        alone = len(declared.privacy) == 1 and str(first.between) == "all"
        picture = "The probability of every output (across) at every input (down)."
        if self._mapped:
            picture = "A map: places as dots, outputs as rings by how often they are sent, and lines from the first place to its outputs."
        return self._described(
            f"A table of {declared.n} inputs and {declared.m} outputs",
            "\n\n".join([f"{who}: at input x the output y with probability P[x, y].", *kept]),
            picture,
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


@serializable("table-proof", eq=False)
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
        if isinstance(design, FiniteProblem):
            yield from design.function_claims(design.value_of(v))
            yield declared.objective_claim()
        if "objective" in declared.curved:
            # tangents lie below it: of a file, which holds no functions, the value is at least theirs
            worth = design.worth(law).get("objective") if isinstance(design, FiniteProblem) else None
            margin = min(0.0 if worth is None else stated.value - worth, round_down(room))
            how = proofs.CLAIMED if worth is None else proofs.RECOMPUTED
            yield proofs.Claim.of(f"the convex objective is at most {stated.value!r}", how, margin)
        else:
            claim = f"the objective, called {declared.objective!r}, is at most {stated.value!r}"
            yield proofs.Claim.of(claim, proofs.PROVED, room)
        yield proofs.agreement("weights are a table of the problem's inputs and outputs", proofs.PROVED, True)


# -- audits --------------------------------------------------------------------------------------------------------

MOST_LISTED = 1_000_000
"""Most rows of a requirement that an audit lists in full; of more, it lists the row of least slack of each pair."""


def audit_of_rows(declared: Declared, v: list[Any], multipliers: dict[int, Fraction]) -> pd.DataFrame:
    """Tabulate every row of every family: family, index, lhs, rhs, slack, dual, active. Slacks near 0 are exact differences, rounded once."""
    x, face, frames = np.array([float(value) for value in v]), Face(declared, frozenset()), list[Any]()
    table = x[: declared.cells].reshape(declared.n, declared.m)
    many = [not part.delta and len(part.pairs) * part.m > MOST_LISTED for part in declared.parts]
    close = () if any(many) else face.close(v, listed=True)
    near = {number: nearest(face.slack(number, v)) for number in close if number >= 0}
    for part, long in zip(declared.parts, many):
        rows = _tightest(part, table) if long else None
        index, lhs, rhs = part.sides(declared, table, rows)
        slack, first = rhs - lhs, part.sums if part.delta else part.first
        for number, left in near.items():
            if first <= number < first + len(slack):
                slack[number - first] = left
        if rows is not None:
            slack = np.array([nearest(face.slack(number, v)) for number in rows.tolist()])
        dual = _duals(part, multipliers, first, len(lhs), part.m if long else 1)
        frames.append(audit_rows(part.label, index, lhs, rhs, slack, dual=dual))
    dual = np.array([nearest(multipliers.get(i, 0)) for i in range(len(declared.family))])
    frames.append(own_audit(declared, x, np.array([-nearest(row.at(v)) for row in declared.rows]), dual))
    sums = np.ones(declared.n)
    frames.append(audit_rows("sums", list(map(shown_label, declared.inputs)), sums, sums, 0 * sums))
    return pd.concat(frames, ignore_index=True)


def _tightest(part: Part, table: Array) -> Indices:
    """Return for every pair the row of least slack."""
    found = []
    for numbers, over, _ in part.scan(table):
        pairs = (numbers - part.first) // part.m
        order = np.lexsort((-over, pairs))
        found.append(numbers[order[np.unique(pairs[order], return_index=True)[1]]])
    return np.concatenate(found)


def _duals(part: Part, multipliers: dict[int, Fraction], first: int, count: int, each: int) -> Array:
    """Return the multipliers of listed rows, or their sums over `each` of them; those of floors are shared out among the pairs they replace."""
    dual = np.zeros(count)
    for number, value in multipliers.items():
        if first <= number < first + count * each:
            dual[(number - first) // each] += nearest(value)
    if part.floors and each == 1:
        n, m = part.n, part.m
        above, below = (
            np.array([nearest(multipliers.get(start + j, 0)) for j in range(n * m)]).reshape(n, m)
            for start in (part.upper, part.lower)
        )
        a, b = part.pairs.T
        total = below.sum(axis=0)
        dual += (above[a] * below[b] / np.where(total > 0, total, 1.0)).ravel()
    return dual
