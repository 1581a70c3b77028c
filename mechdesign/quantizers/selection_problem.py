"""A problem on selection probabilities: OPTM's model with further constraints, searched over boxes, repaired and proved.

Solve: `BoxSearch.best` solves the program in every box and keeps the least exact loss, as Algorithm 2 of the paper does; `SelectionProblem.law` makes its
point exact, and solves again for a smaller budget until that is private. The program is in `selection_program`, what is proved of the law in `proofs`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import cvxpy as cp
import numpy as np
import pandas as pd
from flint import fmpq

from mechdesign.checks import instance, integer, refuse
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, SolverError
from mechdesign.evidence.exact import fraction, rational
from mechdesign.evidence.files import check_writable
from mechdesign.evidence.proofs import Claim, family
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport, audited
from mechdesign.evidence.serialize import serializable
from mechdesign.model.exactly import Exact, near, refuted, repaired, row_claims, weights_of
from mechdesign.model.expressions import rows_of
from mechdesign.model.problem import POSITIVE, Problem, contradicted, in_columns, own_audit
from mechdesign.model.search import parameters_of
from mechdesign.model.table_problem import missed_words
from mechdesign.problem.privacy import Description
from mechdesign.problem.spine import Bound, Clock, Incumbent, Law, ModelledDesign
from mechdesign.quantizers.mechanism import Quantizer, SelectionFamilies
from mechdesign.quantizers.newton import loss_bounds
from mechdesign.quantizers.proofs import QuantizerDesign, QuantizerProof, proved_law
from mechdesign.quantizers.selection_program import (
    MEANING,
    Boxes,
    Selection,
    SelectionPrivacy,
    SelectionRows,
    check_boxes,
    grid_boxes,
    theorem6_boxes,
    unit_vectors,
)
from mechdesign.quantizers.table import (
    RESOLVED,
    ExactLaw,
    SelectionLaw,
    excess_loss,
    smallest_epsilon,
    solved_epsilon,
    tightened,
)
from mechdesign.solvers import Solution
from mechdesign.solvers.deadline import Deadline, too_late
from mechdesign.solvers.linear_program import Block, Programs, Sweep
from mechdesign.typing import Array, Indices

_ROWS = ("labels", "family", "equal", "offsets", "places", "coefficients", "curved")
_RARE = 1e-9  # probability below which an output is dropped


@serializable("selection-problem", eq=False)
class SelectionProblem(Problem, QuantizerDesign):
    """A problem on selection probabilities, declared by `Selection`.

    The objective is `Selection.lemma1`; the value of a result is the exact expected loss. The lower bound is for all unbiased mechanisms with
    these bins, of the family or not: further rows only raise the optimum, so that it holds with them too.
    """

    default_gap = 1e-4
    numbers: ClassVar[Any] = SelectionRows
    mechanism_class = family("OPTM mechanism within these constraints")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.objective, self.constraints)

    def check(self) -> None:
        """Raise DesignError unless the problem is OPTM's model with affine or piecewise linear rows."""
        if len(self.requirements) != 1:
            raise DesignError.of("private", len(self.requirements), "must be one requirement of a selection")
        if getattr(self.objective.expr, "question", None) is None:
            raise DesignError("objective: must be Minimize(Q.lemma1(prior, loss)) of the selection Q")
        o, u = self.box
        refuse(not ((o >= 0) & (o <= u)).all(), "box", (o, u), "need 0 <= o <= u")
        self.loss.check_convex(self.unknown.bins, *self.input_range)
        if self.own:
            _ = self.declared

    # -- the question -------------------------------------------------------------------------------------------

    @property
    def asked(self) -> SelectionPrivacy:
        """The one requirement, a `SelectionPrivacy`."""
        found: SelectionPrivacy = self.requirements[0]
        return found

    @property
    def privacy(self) -> Any:
        """The requirement of privacy."""
        return self.asked.privacy

    @property
    def bins(self) -> tuple[float, ...]:
        """The outputs."""
        return tuple(self.unknown.bins.tolist())

    @property
    def input_range(self) -> Any:
        """The inputs."""
        return self.unknown.input_range

    @property
    def prior(self) -> Any:  # type: ignore[override]
        """Law of the input."""
        return self.objective.expr.question.prior

    @property
    def loss(self) -> Any:  # type: ignore[override]
        """The loss that Lemma 1 bounds and results report exactly."""
        return self.objective.expr.question.loss

    @property
    def box(self) -> tuple[Array, Array]:
        """The box that the parameters hold, o and u."""
        o, u = (np.asarray(side.value, dtype=float) for side in (self.asked.o, self.asked.u))
        return o, u

    @property
    def unchanged(self) -> bool:
        """Whether the parameters have their initial values."""
        initial_box = self.asked.initial_box
        return initial_box is not None and all(map(np.array_equal, initial_box, self.box))

    @property
    def searched(self) -> bool:
        """Whether boxes are searched: until the parameters are changed."""
        return self.asked.boxes is not None and self.unchanged

    # -- numbers ------------------------------------------------------------------------------------------------

    least = POSITIVE

    def _read(
        self, points: Mapping[str, Iterable[Array]], stricter: Mapping[str, float] | None
    ) -> SelectionRows:
        rows = rows_of(self.unknown, self.objective, self.constraints, points, stricter=stricter)
        return SelectionRows(**self.unknown.stated(), **vars(rows))

    @property
    def start(self) -> Array:
        """The selection of equal probabilities."""
        open_ = self.unknown.open
        return np.asarray(open_ / open_.sum(axis=1, keepdims=True))

    # -- solving ------------------------------------------------------------------------------------------------

    @property
    def solved_epsilon(self) -> float:
        """The budget, or a smaller one if its floors would be below a linear program's tolerance."""
        least = smallest_epsilon(self.unknown.bins, *self.input_range)
        return solved_epsilon(self.privacy.epsilon, least, RESOLVED)

    def improve(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Search the boxes, solve the best, and move its selection inside privacy and the user's rows exactly.

        The search does not prove that no other box is better. HiGHS sweeps the boxes; a named solver solves the best again.
        """
        yield from loss_bounds(self, self.bins, clock)

        def solved(own: SelectionRows | None) -> tuple[Law, Array]:
            search = BoxSearch(self, clock, solver, options, own)
            found = search.best(self.solved_epsilon)
            if found is None:
                raise too_late("OPTM") if clock.passed else search.infeasible()
            law = self.law(found, search, clock)
            return law, self._value(law.mechanism)

        yield self.by_tangents(solved, clock) if self.own else solved(None)[0]

    def _result(self, incumbent: Incumbent, clock: Clock) -> Result:
        stated = self.with_initial_box(self.box) if self.searched else self.at_box(self.box)
        stated.__dict__["_declared"] = self.declared
        return ModelledDesign._result(stated, incumbent, clock)  # at the parameters' present values

    def law(self, found: Found, search: BoxSearch, clock: Clock) -> Law:
        """Return the mechanism of a point in exact arithmetic, solved again for a smaller budget if rounding exceeds the budget."""
        budget, exact, notes = self.privacy.epsilon, None, search.notes(found)

        def solved(epsilon: float) -> tuple[Found, Deployed] | None:
            again = found if epsilon == budget else search.at(found.box, min(epsilon, self.solved_epsilon))
            return None if again is None else (again, self.deployed(again, clock))

        if clock.certify:
            found, exact = tightened(solved, lambda pair: excess_loss(pair[1].law, budget), budget)
        families = self._families(found.columns) if exact is None else exact.families
        mechanism = Quantizer.of_selection(families, self.input_range)
        value, report = mechanism.expected_loss(self.prior, self.loss), SolveReport.of(found.solution)
        rows = search.audit(found, families)
        law = Law(mechanism, value, report=report, notes=tuple(notes), duals=rows)
        if exact is None:
            return law
        law = proved_law(self, law, Quantizer.of_law(exact.law, families))
        proof = replace(instance("proof", law.proofs[0], QuantizerProof), witness=exact.witness)
        return replace(law, proofs=(proof,), notes=(*notes, *missed_words(exact.missed)))

    def _families(self, columns: Array) -> SelectionFamilies:
        """Return the selection probabilities in a solver's columns; outputs whose probability is negligible at all inputs are dropped as its noise."""
        m, table = len(self.unknown.bins), np.maximum(columns[: self.unknown.size], 0.0)
        table = table.reshape(self.unknown.shape)
        left, right = table[: m - 1].copy(), table[-(m - 1) :].copy()
        j = np.array(self.unknown.met)  # intervals with inputs, which use rows j and m - j
        each = (np.append(part.max(axis=0), 0.0) for part in (left[j - 1], right[m - j - 1]))
        drawn = np.maximum(next(each), next(each)[::-1])
        left[:, drawn[:-1] < _RARE], right[:, drawn[:0:-1] < _RARE] = 0.0, 0.0
        for side in (left, right):
            side[side.sum(axis=1) == 0, 0] = 1.0
            side /= side.sum(axis=1, keepdims=True)
        return SelectionFamilies(self.unknown.bins, left, right)

    def deployed(self, found: Found, clock: Clock) -> Deployed:
        """Return integer weights near a solver's columns: rounded, or moved exactly inside the user's rows if there are any."""
        families = self._families(found.columns)
        if not self.own:
            return Deployed(families.exact(self.input_range), families, (), {})
        own, m = self.declared, len(self.unknown.bins)
        table = np.concatenate([families.left, families.right])[: len(self.unknown.open)]
        start = np.append(table, found.columns[table.size :])
        # mixing outputs in that a row leaves out costs an infinite loss
        used = replace(own, dropped=frozenset(np.flatnonzero(table.ravel() == 0).tolist()))
        try:
            columns, missed = repaired(used, near(used, [start], clock), clock)
        except SolverError:
            columns, missed = repaired(own, near(own, [found.columns], clock), clock)
        rows = [row[: 1 + k % (m - 1)] for k, row in enumerate(weights_of(own, columns))]
        ends = map(Fraction, self.input_range)
        law = SelectionLaw(tuple(map(Fraction, self.bins)), tuple(rows[: m - 1]), tuple(rows[1 - m :]), *ends)
        witness = tuple(fraction(x) for x in columns[own.cells :])
        return Deployed(law, SelectionFamilies.of_law(law), witness, missed)

    def exact_columns(self, law: SelectionLaw, witness: tuple[Fraction, ...]) -> Exact:
        """Return the unknown at a law, and further columns, in rationals."""
        m, symmetric = len(self.unknown.bins), self.unknown.symmetric
        weights = (*law.left, *(() if symmetric else law.right))
        shaped = [len(row) for row in weights] == [*range(1, m)] * (len(weights) // (m - 1))
        mirrored = all(
            [a * sum(other) for a in row] == [b * sum(row) for b in other]
            for row, other in zip(law.left, law.right, strict=True)
        )
        found = [fmpq(w, sum(row)) for row in weights for w in (*row, *[0] * (m - 1 - len(row)))]
        found += [rational(x) for x in witness]
        if not shaped or (symmetric and not mirrored) or len(found) != len(self.declared.cost):
            raise DesignError("law: is no selection of the problem's bins")
        return found

    def own_claims(self, law: ExactLaw, witness: tuple[Fraction, ...]) -> Iterator[Claim]:
        """Claim in rationals that the user's own rows hold at the integer weights of the unknown, with these values of further columns."""
        columns = self.exact_columns(instance("law", law, SelectionLaw), witness)
        yield from row_claims(self.declared, columns)
        yield from self.function_claims(self.value_of(columns))

    def points(self, values: Mapping[str, Array]) -> tuple[Programs, Callable[..., Array]] | None:
        """Return the programs for all parameter values of the box, or for the boxes searched, and the function that scores their solutions.

        The box is affine in the parameters, so that its values at 0 and at each unit vector determine it. None with convex functions, whose
        tangents are programs of their own.
        """
        if self.own and self.declared.curved:
            return None
        search, held = BoxSearch(self), parameters_of(self, values)
        before = {name: p.value for name, p in held.items()}

        def box(one: str = "") -> Array:
            for name, parameter in held.items():
                parameter.save_value(float(name == one))  # even where its attributes forbid that
            return np.stack(self.box)[..., None]

        if held:
            origin = box()
            o, u = sum(((box(name) - origin) * values[name] for name in held), origin)
        else:
            o, u = search.boxes()
        for name, parameter in held.items():
            parameter.save_value(before[name])
        return search.programs((o, u), self.solved_epsilon), search.scores

    # -- what a result says ---------------------------------------------------------------------------------------

    def problem_of(self, result: Result) -> SelectionProblem:
        """Return the problem at the best box."""
        return self.at_box(result.box)

    def at_box(self, box: tuple[Array, Array]) -> SelectionProblem:
        """Return the problem in one box, with parameters of its own."""
        o, u = self.unknown.box(*box)
        asked = replace(self.asked, o=o, u=u, boxes=None)
        return SelectionProblem(self.objective, (asked, *self.own))

    def with_initial_box(self, box: tuple[Array, Array]) -> SelectionProblem:
        """Return the problem with its parameters at a box known to be feasible."""
        o, u = self.unknown.box(*box)
        asked = replace(self.asked, o=o, u=u, initial_box=box)
        return SelectionProblem(self.objective, (asked, *self.own), design=self.design)

    def box_of(self, result: Result) -> tuple[Array, Array]:
        """Return bounds o and u of the best box, in the shape of the unknown; 0 and 1 for unbounded entries."""
        o, u = (np.array(side.value) for side in self.unknown.box())
        rows: Any = result.duals if result.duals is not None else pd.DataFrame(columns=AUDIT_COLUMNS)
        for name, side, column in (("lower", o, "lhs"), ("upper", u, "rhs")):
            mine = rows[rows["family"] == f"model: {name} bounds"]
            for index, value in zip(mine["index"], mine[column]):
                n, i = (int(part) for part in index[2:-1].split(", "))
                side[n - 1, i - 1] = value
        return o, u

    def describe(self, result: Result) -> Description:
        said = super().describe(result)
        own = tuple(f"q_n(i), the selection, also meets {line}." for line in self._said)
        return replace(said, more=said.more + own)

    def audit(self, result: Result) -> pd.DataFrame:
        """Tabulate the constraints of the definition, those of the program with its multipliers, and the user's own."""
        rows = pd.concat([super().audit(result), result.duals], ignore_index=True)
        return self.with_functions(rows, self._value(result.mechanism))

    def _value(self, mechanism: Quantizer) -> Array:
        """Return the unknown at a mechanism, in doubles."""
        chosen: Any = mechanism.selection
        return np.asarray(np.concatenate([chosen.left, chosen.right])[: len(self.unknown.open)])

    # -- files and prints -----------------------------------------------------------------------------------------

    def to_cvxpy(self) -> cp.Problem:
        """Return the problem in CVXPY alone, each constraint with its name."""
        return cp.Problem(self.objective, [*self.asked.constraints(), *self.own])

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the linear program at the parameters' box, for other programs: ``.mps`` or ``.lp``."""
        o, u = self.box
        program = BoxSearch(self).programs((o[..., None], u[..., None])).program()
        program.write(str(check_writable(path)))

    def to_fields(self) -> dict[str, object]:
        """Return the fields of a file: the question, the box, and the user's rows in numbers."""
        own, (o, u) = self.declared, self.box
        families = "symmetric" if self.unknown.symmetric else "separate"
        asked = {"bins": self.bins, "privacy": self.privacy, "prior": self.prior, "loss": self.loss}
        asked |= {"input_range": self.input_range, "constraints": self.asked.theorem, "families": families}
        rows = {name: getattr(own, name) for name in _ROWS}
        boxes = self.asked.boxes if self.searched else None
        return asked | {"o": o, "u": u, "boxes": boxes, "columns": own.width - own.cells} | rows

    @classmethod
    def from_fields(cls, held: dict[str, Any]) -> SelectionProblem:
        """Declare the problem of a file, in CVXPY."""
        unknown = Selection(held["bins"], held["input_range"], families=held["families"])
        box = unknown.box(held["o"], held["u"])
        asked = unknown.private(held["privacy"], theorem=held["constraints"], box=box)
        if (boxes := held["boxes"]) not in (None, "paper"):
            check_boxes("boxes", boxes)
        asked = replace(asked, boxes=boxes)
        objective: Any = unknown.lemma1(held["prior"], held["loss"])
        numbers: dict[str, Any] = {name: held[name] for name in _ROWS}
        numbers |= unknown.stated()
        numbers |= {"objective": objective.label, "constant": objective.question.constant}
        columns = integer("columns", held["columns"], 0, len(held["places"]))  # each is in a row
        cost = np.append(objective.question.cost, np.zeros(columns))
        own = SelectionRows(cost=cost, privacy=(asked,), **numbers)
        made = cls(cp.Minimize(objective), (asked, *own.constraints(in_columns(unknown, own.width))))
        made.__dict__["_declared"] = own
        return made

    @property
    def minimised(self) -> str:
        return str(self.objective.expr.label)

    @property
    def over(self) -> str:
        ends = "one family for both ends" if self.unknown.symmetric else "a family for each end"
        return f"q_n(i) >= 0, 1 <= i <= n <= {len(self.bins) - 1}, {ends}"

    def families(self) -> list[str]:
        said = [
            f"{one.label}: {MEANING[one.label]} ({one.size} {'row' if one.size == 1 else 'rows'})"
            for one in self.asked.constraints()
        ]
        return [*said, *self._said, f"{self.asked}{', boxes searched' if self.searched else ''}"]

    @property
    def _said(self) -> list[str]:
        """Return the user's own rows, a line per family."""
        return [self.declared.printed(k) for k in range(len(self.declared.labels))] if self.own else []


class Deployed(NamedTuple):
    """A selection in integers: its law, the same in doubles, values of further columns, errors of dependent equalities."""

    law: SelectionLaw
    families: SelectionFamilies
    witness: tuple[Fraction, ...]
    missed: dict[str, fmpq]


class BoxSearch:
    """Search for the best box of a problem.

    All boxes are changes of one program, 27 times as fast as a CVXPY model each (``results/ablations``). The grid is the
    paper's algorithm, needed for its published numbers; `descent` is 0.3% better where both apply.

    Parameters
    ----------
    problem : SelectionProblem
    clock : Deadline, optional
    solver : str, optional
        Backend for the best box; HiGHS sweeps them all.
    options : dict
        Options of the backend.
    own : SelectionRows, optional
        The user's own rows; those of the problem by default.

    Attributes
    ----------
    count : int
        Boxes solved so far.
    """

    def __init__(
        self,
        problem: SelectionProblem,
        clock: Deadline | None = None,
        solver: str | None = None,
        options: dict[str, Any] | None = None,
        own: SelectionRows | None = None,
    ) -> None:
        clock = Deadline.of(clock)
        self.problem, self.clock, self.solver, self.options = problem, clock, solver, options or {}
        self.sweep, self.count, self.question = Sweep(clock), 0, problem.objective.expr.question
        self.own = (own or problem.declared) if problem.own else None  # at the parameters' present values
        self._theorem6 = problem.asked.theorem == "theorem6"

    def boxes(self, around: tuple[Array, Array] | None = None) -> Boxes:
        """Return the first boxes of the search, or under Theorem 6 finer ones around a box."""
        problem, open_ = self.problem, self.problem.unknown.open
        if not problem.searched:
            o, u = problem.box
            return o[..., None], u[..., None]
        used = problem.asked.bounded
        if self._theorem6:
            return theorem6_boxes(open_, (used & 1) > 0, (used & 2) > 0, around)
        given = problem.asked.boxes
        return grid_boxes(open_, used > 0, None if given == "paper" else given)

    def best(self, epsilon: float) -> Found | None:
        """Return the point of least exact loss (Theorem 6: least objective) within ε; None if all boxes are infeasible."""
        point = self._best_of(epsilon, self.boxes())
        for _ in range(2 if self._theorem6 and self.problem.searched else 0):
            if point is not None:
                point = self._best_of(epsilon, self.boxes(point.box)) or point
        return point

    def _best_of(self, epsilon: float, boxes: Boxes) -> Found | None:
        count = boxes[0].shape[-1]
        self.count += count
        best = 0
        if count > 1:
            values, found = self.sweep(self.programs(boxes, epsilon))
            if np.isnan(values).all():
                return None
            best = int(np.nanargmin(self.scores(values, found)))
        return self.at((boxes[0][..., best], boxes[1][..., best]), epsilon)

    def at(self, box: tuple[Array, Array], epsilon: float) -> Found | None:
        """Return the point of one box, with its multipliers; None if infeasible."""
        unit, programs = self.programs((box[0][..., None], box[1][..., None]), epsilon).in_unit()
        clock = self.clock if self.problem.own else None
        program = programs.program(solver=self.solver, deadline=clock, **self.options)
        try:
            solution = program.answer()
        except InfeasibleError:
            return None
        dual = {name: unit * v for name, v in solution.dual.items()}
        solution = replace(solution, value=unit * solution.value, dual=dual)
        return Found(box, solution, self.whole(np.ravel(solution.primal["x"])))

    def programs(self, boxes: Boxes, epsilon: float | None = None) -> Programs:
        """Return the programs of boxes in numbers; ε is by default the requirement's."""
        unknown: Any = self.problem.unknown
        at = np.flatnonzero(unknown.open)
        families, used = self.problem.asked.families(unit_vectors(unknown.open), *boxes, epsilon)
        bounded = np.flatnonzero(used[unknown.open])
        o, u = (side[unknown.open][bounded].T for side in boxes)
        each, ones = np.arange(len(bounded)), np.ones(len(bounded))
        rows, all_ = at // unknown.shape[1], np.arange(len(at))
        blocks = [
            Block("normalisation", rows, all_, np.ones(len(at)), np.ones(len(used)), True),
            Block("lower bounds", each, bounded, -ones, -o),
            Block("upper bounds", each, bounded, ones, u),
        ]
        for name in dict.fromkeys(f.name for f in families):
            blocks.append(Block.below(name, [f.left - f.right for f in families if f.name == name]))
        own, further = ([], 0) if self.own is None else _own_blocks(self.own, at)
        lower = np.append(np.zeros(len(at)), np.full(further, -np.inf))
        cost = np.append(self.question.cost[unknown.open], np.zeros(further))
        return Programs(cost, self.question.constant, lower, np.full(len(cost), np.inf), [*blocks, *own])

    def whole(self, x: Array) -> Array:
        """Return the program's columns as the unknown, row by row, followed by further columns, along the last axis."""
        open_ = self.problem.unknown.open.ravel()
        n = int(open_.sum())
        found = np.zeros((*x.shape[:-1], open_.size + x.shape[-1] - n))
        found[..., np.flatnonzero(open_)] = x[..., :n]
        if self.own is not None:
            found[..., open_.size :] = x[..., n:] * self.own.units[1][open_.size :]
        return found

    def scores(self, values: Array, x: Array) -> Array:
        """Return the scores by which points are compared: the exact loss, or the objective for callable losses and under Theorem 6."""
        unknown = self.problem.unknown
        if self.problem.asked.theorem == "theorem6" or not self.question.loss.polynomial:
            return values
        found, good = np.full(len(values), np.nan), ~np.isnan(values)
        q = self.whole(x[good])[:, : unknown.size].reshape(-1, *unknown.shape)
        found[good] = unknown.expected(q, self.question)
        return found

    def audit(self, found: Found, selection: SelectionFamilies) -> pd.DataFrame:
        """Tabulate the rows at a mechanism, both sides as stated, with the solver's multipliers."""
        unknown, (o, u) = self.problem.unknown, found.box
        q = np.concatenate([selection.left, selection.right])[: len(unknown.open)]
        families, used = self.problem.asked.families(unit_vectors(unknown.open), o[..., None], u[..., None])
        values, at = q[unknown.open], tuple(np.nonzero(used))
        cells = [f"q[{n + 1}, {i + 1}]" for n, i in zip(*at)]
        rows: list[tuple[str, list[str], Array, Array]] = [
            ("model: lower bounds", cells, o[at], q[at]),
            ("model: upper bounds", cells, q[at], u[at]),
            *(
                (f"model: {f.name}", f.labels, np.ravel(f.left @ values), np.ravel(f.right @ values))
                for f in families
            ),
        ]
        duals = {f"model: {name}": list(dual) for name, dual in found.solution.dual.items()}
        model = audited(
            (
                name,
                labels or [str(k) for k in range(len(left))],
                left,
                right,
                [duals[name].pop(0) for _ in range(len(left))] if name in duals else math.nan,
            )
            for name, labels, left, right in rows
        )
        if (own := self.own) is None or not own.labels:
            return model
        order, dual = np.lexsort((-own.equal, own.family)), np.zeros(len(own.family))
        dual[order] = np.concatenate([found.solution.dual[f"own: {label}"] for label in own.labels])
        columns = np.append(np.ravel(q), found.columns[unknown.size :])
        slack = -own.matrix @ columns - own.offsets
        return pd.concat([model, own_audit(own, columns, slack, dual / own.row_units)], ignore_index=True)

    def notes(self, point: Found) -> list[str]:
        """Return notes for a reader of the result."""
        what = "the value"
        if self.problem.loss.function is not None:
            what = "the absolute loss, while the value is the exact mean of the loss given"
        found = [f"the linear program minimised Lemma 1's bound of {what}: {point.solution.value:.9g}"]
        if self.count > 1:
            found.append(f"best of {self.count} linear programs")
        if self.sweep.failed:
            found.append(f"HiGHS failed in {len(self.sweep.failed)} of them, which were passed over")
        return found

    def infeasible(self) -> MechdesignError:
        """Return the error with its reason, once multipliers prove every box infeasible, and the smallest feasible ε to a thousandth by bisection."""
        problem, m = self.problem, len(self.problem.bins)
        kind, epsilon = problem.asked.theorem, problem.privacy.epsilon
        programs = self.programs(self.boxes(), epsilon)
        kept = {block.name for block in programs.blocks}
        own = [f"own: {label}" for label in problem.declared.labels] if problem.own else []
        if not self._refuted(programs, kept):
            words = "nothing feasible was found, nor is it proved that there is nothing"
            return SolverError(words, solver="highs", status="check")
        if private := not self._refuted(programs, alone := {"normalisation", *own}):
            alone = kept
        for name in own:
            alone = alone - {name} if self._refuted(programs, alone - {name}) else alone
        labels = [name.removeprefix("own: ") for name in own if name in alone]
        tangents = () if self.own is None else self.own.curved
        if not private:
            return contradicted("selection meets", labels, tangents)
        if self._theorem6 and self._disordered():
            return InfeasibleError(
                f"Theorem 6 is infeasible at every epsilon for these bins (m = {m}): its order of the q contradicts itself where "
                "the outermost bins are far from the next; use theorem5, or bins nearer to each other"
            )
        least, high = epsilon, 2 * epsilon
        # Theorem 5 per output is feasible at ε only if some selection mechanism is; doubling finds an upper end.
        while not (found := self.best(high) is not None) and high < 64 and not self.clock.passed:
            least, high = high, 2 * high
        while found and high - least > 1e-3 * high and not self.clock.passed:
            middle = (least + high) / 2
            least, high = (least, middle) if self.best(middle) is not None else (middle, high)
        name = {"theorem5": "Theorem 5", "theorem6": "Theorem 6"}.get(kind, "the across-outputs program")
        together = f" with {' and '.join(map(repr, labels))}" if labels else ""
        where = "" if problem.searched else " in this box"
        reason = f"{name}{together} is infeasible at epsilon = {epsilon:g} for these bins (m = {m}){where}"
        if self._theorem6 and m == 4:
            reason += "; Theorem 6 needs epsilon > log 3 at m = 4, whatever the bins"
        if found:
            how = " by tangents" if {*labels} & {*tangents} else ""
            reason += f"; the smallest feasible epsilon found{how} is {high:.6g}"
        return InfeasibleError(reason, smallest_epsilon=high if found else None)

    def _refuted(self, programs: Programs, names: set[str]) -> bool:
        """Whether multipliers prove that the families of these names contradict each other in every box."""
        held = replace(programs, blocks=[block for block in programs.blocks if block.name in names])
        for k in range(held.count):
            self.clock.hold("OPTM")
            if not refuted(held.program(k)):
                return False
        return True

    def _disordered(self) -> bool:
        """Return whether it is proved that no q meets Theorem 6's order, which does not depend on ε."""
        boxes = (self.problem.unknown.open[..., None] * 0.0, self.problem.unknown.open[..., None] * 1.0)
        return self._refuted(self.programs(boxes), {"normalisation", "order"})


class Found(NamedTuple):
    """The best point of a search: its box, the solver's solution, and the values of the unknown followed by further columns."""

    box: tuple[Array, Array]
    solution: Solution
    columns: Array


def _own_blocks(own: SelectionRows, at: Indices) -> tuple[list[Block], int]:
    """Return the user's rows over the unknowns at these places, and the number of further columns after them."""
    blocks, columns = [], np.append(at, np.arange(own.cells, own.width))
    for k, label in enumerate(own.labels):
        for equal in (True, False):
            rows = np.flatnonzero((own.family == k) & (own.equal == equal))
            if len(rows):
                matrix, right = own.in_units(rows)
                blocks.append(Block.of(f"own: {label}", matrix[:, columns], right, equal=equal))
    return blocks, own.width - own.cells
