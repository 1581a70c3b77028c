r"""A problem: an objective and constraints on one unknown table, declared in CVXPY and delivered with its evidence.

>>> import mechdesign as md
>>> P = md.Table(inputs=[-1, -.5, 0, .5, 1], outputs=[-3, -.5, .5, 3])
>>> problem = md.Problem(
...     md.Minimize(P.expected("absolute")),
...     [P.private(md.PureDP(1.0)), P.unbiased(), md.named("cap", P[:, 1] <= 0.2)],
... )
>>> result = problem.solve()
>>> round(result.value, 8), result.certificate.verify(), result.status
(1.76877902, True, <Status.OPTIMAL: 'optimal'>)
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import pandas as pd
from cvxpy import Minimize as Minimize
from flint import fmpq
from scipy import sparse

from mechdesign.errors import DesignError, InfeasibleError, SolverError, instance
from mechdesign.evidence.accuracy import Accuracy
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.classes import MechanismClass, every
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.page import Account
from mechdesign.evidence.proofs import CLAIMED, PROVED, Certificate, Claim, Proof, agreement
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.rows import RowsBound
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import LinearBound, rational
from mechdesign.evidence.whole_files import check_writable
from mechdesign.model import printing
from mechdesign.model.declared import Declared
from mechdesign.model.exactly import (
    MARGIN,
    RESIDUAL,
    Exact,
    Face,
    Program,
    admissible,
    contradiction,
    feasible,
    fraction,
    least_epsilon,
    repaired,
    weights_of,
)
from mechdesign.model.expressions import Further, compiled
from mechdesign.model.table import Private, Table, TableMechanism, shown_label
from mechdesign.problem.privacy import Consumption
from mechdesign.problem.spine import Bound, Clock, Incumbent, Law, ModelledDesign
from mechdesign.problem.words import never_sent
from mechdesign.solvers.registry import Model
from mechdesign.typing import Indices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 400_000
"""Privacy rows that `Problem.write` lists."""


@serializable("table-problem")
@dataclass(frozen=True, eq=False)
class Problem(ModelledDesign):
    """Find the table of least cost that meets the constraints.

    Parameters
    ----------
    objective : cvxpy.Minimize
        Of a convex, piecewise linear expression of the table.
    constraints : sequence
        What `Table.private` and `Table.unbiased` return, and any affine or convex piecewise linear constraint of CVXPY. `named` gives
        them names.

    Raises
    ------
    DesignError
        No privacy, no or several tables, variables of one's own, what is not convex, `Maximize`, a parameter without a value.
    """

    objective: Any
    constraints: tuple[Any, ...]

    def __post_init__(self) -> None:
        if isinstance(self.objective, cp.Maximize):
            raise DesignError("objective: is Maximize; state the least of its negative, Minimize(-...)")
        instance("objective", self.objective, cp.Minimize)
        given = self.constraints if isinstance(self.constraints, (list, tuple)) else [self.constraints]
        for one in given:
            instance("constraints", one, Private, cp.constraints.constraint.Constraint)
        object.__setattr__(self, "constraints", tuple(given))
        self._check_variables()
        if not any(isinstance(one, Private) for one in given):
            raise DesignError("constraints: hold no privacy; add unknown.private(PureDP(1.0)), say")
        if all(parameter.value is not None for parameter in self.parameters):
            _ = self.declared

    def _check_variables(self) -> None:
        held = [v for part in self._cvxpy for v in part.variables()]
        tables = {v.id: v for v in (*held, *(c.table for c in self.constraints if isinstance(c, Private)))}
        own = [v for v in tables.values() if not isinstance(v, (Table, Further))]
        if own:
            remedy = "is a variable of your own: write what it stands for as an atom, cp.max(...) or cp.abs(...) of the table"
            whole = any(v.attributes["boolean"] or v.attributes["integer"] for v in own)
            raise DesignError.of(
                "variable", own[0].name(), "is boolean or integer: a table is continuous" if whole else remedy
            )
        found = [v for v in tables.values() if isinstance(v, Table)]
        if len(found) != 1:
            remedy = (
                "tables are in the problem: state each in a problem of its own, and no constraint on a copy"
            )
            raise DesignError.of("unknowns", len(found), remedy)

    @property
    def _cvxpy(self) -> list[Any]:
        return [self.objective, *(one for one in self.constraints if not isinstance(one, Private))]

    @property
    def unknown(self) -> Table:
        """The table."""
        found: Table = next(one.table for one in self.constraints if isinstance(one, Private))
        return found

    @property
    def privacy(self) -> Any:
        """The requirement; where there are several, all of them."""
        asked = tuple(one.privacy for one in self.constraints if isinstance(one, Private))
        return asked[0] if len(asked) == 1 else asked

    @property
    def parameters(self) -> list[cp.Parameter]:
        """CVXPY's parameters, whose values may be changed between solves."""
        return list({p.id: p for part in self._cvxpy for p in part.parameters()}.values())

    def subject_to(self, *constraints: Any) -> Problem:
        """Return the problem with further constraints.

        Examples
        --------
        >>> import mechdesign as md
        >>> P = md.Table([0, 1], [0, 1])
        >>> problem = md.Problem(md.Minimize(P.expected("error")), [P.private(md.PureDP(1.0))])
        >>> round(problem.subject_to(md.named("rare", P[0, 1] <= 0.1)).solve().value, 6)
        0.414086
        """
        return Problem(self.objective, (*self.constraints, *constraints))

    @property
    def declared(self) -> Declared:
        """The problem in numbers, at the parameters' values."""
        held: Declared | None = self.__dict__.get("_declared")
        if held is not None:
            return held
        for parameter in self.parameters:
            if parameter.value is None:
                raise DesignError.of("parameter", parameter.name(), "has no value")
        found = compiled(self.unknown, self.objective, self.constraints)
        if not self.parameters:
            self.__dict__["_declared"] = found
        return found

    # -- files and copies -------------------------------------------------------------------------------------

    def to_fields(self) -> dict[str, object]:
        """What files hold: the problem in numbers."""
        return {f.name: getattr(self.declared, f.name) for f in fields(Declared)}

    @classmethod
    def from_fields(cls, held: dict[str, Any]) -> Problem:
        """Declare what a file holds, in CVXPY."""
        numbers = Declared(**held)
        table = Table(numbers.inputs, numbers.outputs, of=numbers.of, neighbours=numbers.neighbours)
        width = len(numbers.cost)
        columns = [cp.vec(table, order="C")]
        if width > numbers.cells:
            columns.append(Further(width - numbers.cells, name="further"))
        whole = cp.hstack(columns)
        constraints: list[Any] = [replace(asked, table=table) for asked in numbers.privacy]
        for family, label in enumerate(numbers.labels):
            for equality in (1, 0):
                rows = np.flatnonzero((numbers.family == family) & (numbers.equal == equality))
                if len(rows):
                    sides = numbers.matrix[rows] @ whole + numbers.offsets[rows]
                    constraint = sides == 0 if equality else sides <= 0
                    constraint.set_label(label)
                    constraints.append(constraint)
        objective = numbers.cost @ whole + numbers.constant
        objective.set_label(numbers.objective)
        made = cls(cp.Minimize(objective), tuple(constraints))
        made.__dict__["_declared"] = numbers
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        held = None if self.parameters and "_declared" not in self.__dict__ else self.to_fields()
        return _again, (self.objective, self.constraints, held)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the linear program, every row listed, for other programs: ``.mps`` or ``.lp``."""
        declared = self.declared
        size = sum(
            part.n * part.m * 2 if part.floors else len(part.pairs) * part.m for part in declared.parts
        )
        if size > MOST_ROWS:
            raise DesignError.of("rows", size, f"are too many to be listed: at most {MOST_ROWS}")
        Program(declared, Clock(None), listed=True).lp.write(str(check_writable(path)))

    # -- solving ----------------------------------------------------------------------------------------------

    @property
    def among(self) -> MechanismClass:
        return every("table within these constraints")

    def model(self) -> Model:
        """The problem in CVXPY with every privacy row listed, for whatever takes one."""
        P, families = self.unknown, dict[str, list[Any]]()
        for part in self.declared.parts:
            a, b = (P[side.tolist()] for side in part.pairs.T)
            over = a - cp.multiply(np.exp(part.losses)[:, None], b)
            row = cp.sum(cp.pos(over), axis=1) <= part.delta if part.delta else over <= 0
            families.setdefault(part.label, []).append(row)
        own = [one for one in self.constraints if not isinstance(one, Private)]
        families |= {
            "sums": [cp.sum(P, axis=1) == 1],
            **dict(zip(self.declared.labels, ([one] for one in own))),
        }
        rows = [row for family in families.values() for row in family]
        numbers = {p.name(): p for p in self.parameters}
        return Model(cp.Problem(self.objective, rows), {"P": P}, families, numbers)

    def _result(self, incumbent: Incumbent, clock: Clock) -> Result:
        stated = Problem(self.objective, self.constraints) if self.parameters else self
        stated.__dict__["_declared"] = self.declared
        found = ModelledDesign._result(stated, incumbent, clock)  # of the parameters' present values
        if found.certificate is not None and not found.certificate.verify():
            remedy = "no table was found that passes its own checks: rows may contradict each other by less than doubles tell, or ε is too large"
            raise SolverError(remedy, solver=found.solver_report.solver, status="check")
        return found

    def improve(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Solve at ε less 1e-12 of it for the law, and as stated for the multipliers; repair and prove both exactly."""
        declared = self.declared
        program = Program(declared, clock, solver, margin=MARGIN, **options)
        try:
            program.solve()
        except InfeasibleError:
            program = Program(declared, clock, solver, **options)
            try:
                program.solve()
            except InfeasibleError as error:
                raise self._explained(error, clock) from None
        starts, report = [program.columns()], SolveReport.of(program.solution)
        if (refined := program.refined()) is not None:
            starts.insert(0, refined)
        multipliers = program.multipliers()
        if program.margin:
            try:
                program.state(0.0)
                program.solve()
                multipliers = program.multipliers()
            except (InfeasibleError, SolverError):  # those of the stricter program prove nearly as much
                if clock.passed:
                    raise
        proof = RowsBound(*admissible(declared, *multipliers))
        bound = declared.linear_bound(proof.rows, proof.multipliers)
        if bound.admissible:
            yield Bound(round_down(fraction(bound.bound)), proof)
        columns, missed = repaired(declared, starts, clock, solver)
        law = TableMechanism(declared.inputs, declared.outputs, weights_of(declared, columns))
        witness = tuple(fraction(x) for x in columns[declared.cells :])
        notes = tuple(
            f"{label!r} depends on equalities stated before it, and holds to {float(off):.1e}"
            for label, off in missed.items()
        )
        value = round_up(fraction(declared.value(columns)))
        yield Law(law, value, (TableProof(witness),), report, notes)

    def _explained(self, error: InfeasibleError, clock: Clock) -> InfeasibleError | SolverError:
        """Families that contradict each other, and the least ε at which they do not."""
        declared = self.declared
        families, proved = contradiction(declared, clock)
        private = [asked.label for asked in declared.privacy if asked.label in families]
        if not families or (not proved and feasible(declared, clock)):
            return SolverError(
                f"solvers disagree whether a table exists: {error}", solver="highs", status="check"
            )
        least = least_epsilon(declared, private, clock) if private else None
        words = " and ".join(map(repr, families))
        reason = f"no table meets {words}" + (" together" if len(families) > 1 else "")
        reason += " (proved in rationals)" if proved else " (by the solver; not proved)"
        if least is not None:
            least = math.ceil(least * 1e6) / 1e6
            reason += f"; some table does from epsilon = {least:.6f} on"
        return InfeasibleError(reason, smallest_epsilon=least)

    def linear_bound(self, rows: Indices, multipliers: Iterable[Any]) -> LinearBound:
        """Return the rows of the declared program with their multipliers, as `RowsBound` proves from them."""
        return self.declared.linear_bound(rows, multipliers)

    def exact(self, law: TableMechanism, witness: Iterable[Fraction] = ()) -> Exact:
        """Cells of a law and further columns, in rationals."""
        cells = [fmpq(w, total) for row, total in zip(law.weights, map(sum, law.weights)) for w in row]
        found = [*cells, *(rational(x) for x in witness)]
        if len(found) != len(self.declared.cost) or (law.inputs, law.outputs) != (
            self.declared.inputs,
            self.declared.outputs,
        ):
            raise DesignError("law: is not a table of the problem's inputs and outputs")
        return found

    # -- what a result says -----------------------------------------------------------------------------------

    @property
    def central(self) -> bool:  # type: ignore[override]
        """Whether inputs are statistics of a data set, whose releases a ledger counts."""
        return self.unknown.of == "data"

    @property
    def answer_size(self) -> int:
        """How many numbers one input has."""
        first = self.unknown.inputs[0]
        return len(first) if isinstance(first, tuple) else 1

    @property
    def neighbours(self) -> str:
        """Which data sets the protected pairs of inputs come from."""
        return self.unknown.neighbours

    def consumption(self, result: Result) -> Consumption:
        """What a release consumes: that of each requirement; of requirements on different pairs, the larger."""
        super().consumption(result)  # refuses tables of persons
        linked = np.concatenate([asked.pairs(self.declared.n) for asked in self.declared.privacy])
        graph = sparse.coo_array((np.ones(len(linked)), linked.T), shape=(self.declared.n, self.declared.n))
        if sparse.csgraph.connected_components(graph, directed=False, return_labels=False) > 1:
            remedy = "protects listed pairs of inputs only, which do not join all of them: a ledger counts what protects every data set"
            raise DesignError.of("result", "Problem", remedy)
        spent: dict[str, list[Consumption]] = {}
        for asked in self.declared.privacy:
            pairs = asked.pairs(self.declared.n)
            for epsilon, delta in asked.points:
                largest = 1.0 if asked.distances is None else float(asked.distances[tuple(pairs.T)].max())
                loss = round_up(Fraction(epsilon) * Fraction(largest))
                own = Consumption() if delta else Consumption.pure((loss, 1))
                spent.setdefault(str(pairs.tolist()), []).append(replace(own, statement=(loss, delta)))
        each = []
        for members in spent.values():
            joint = members[0]
            for member in members[1:]:
                joint &= member
            each.append(joint)
        statements = [one.statement or (math.inf, 1.0) for one in each]
        return Consumption(
            max(one.epsilon for one in each),
            max(one.rho for one in each),
            max(one.mu for one in each),
            (max(e for e, _ in statements), max(d for _, d in statements)),
            self.neighbours,
        )

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Between any two inputs that are protected: the points of requirements that cover all of them."""
        declared = self.declared
        widest = max(len(asked.pairs(declared.n)) for asked in declared.privacy)
        points = []
        for asked in declared.privacy:
            pairs = asked.pairs(declared.n)
            if len(pairs) == widest:
                far = 1.0 if asked.distances is None else float(asked.distances[tuple(pairs.T)].max())
                points += [(round_up(Fraction(e) * Fraction(far)), d) for e, d in asked.points]
        return TradeOff(tuple(points))

    def granted(self, value: float) -> Any:
        """The requirements in words."""
        return "; ".join(str(asked) for asked in self.declared.privacy)

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """How far outputs are from inputs, over a uniform prior."""
        found: Accuracy = result.mechanism.errors()
        return found

    def frame(self, result: Result) -> pd.DataFrame:
        """The table of probabilities: a row an input, a column an output."""
        declared = self.declared
        columns = [f"P[{shown_label(y)}]" for y in declared.outputs]
        frame = pd.DataFrame(result.mechanism.probabilities, columns=columns)
        frame.insert(0, "input", [x if isinstance(x, float) else shown_label(x) for x in declared.inputs])
        return frame

    def audit(self, result: Result) -> pd.DataFrame:
        """Every row of every family: of privacy by pair and output, the person's own, and the sums."""
        multipliers = next(
            (dict(zip(p.rows.tolist(), p.multipliers)) for p in result.proofs if isinstance(p, RowsBound)), {}
        )
        witness = next((p.witness for p in result.proofs if isinstance(p, TableProof)), ())
        return printing.audit_table(
            self.declared, self.exact(result.mechanism, witness), multipliers, AUDIT_COLUMNS
        )

    def remarks(self, result: Result) -> list[str]:
        names = [shown_label(y) for y in self.declared.outputs]
        return never_sent(names, result.mechanism.probabilities.max(axis=0), "outputs")

    def account(self, result: Result) -> Account:
        declared = self.declared
        who = (
            "one person's value, who sends the output"
            if declared.of == "person"
            else (
                f"a statistic of a data set, released about all of its people ({declared.neighbours} neighbours)"
            )
        )
        return Account(
            f"A table of {declared.n} inputs and {declared.m} outputs",
            f"Least {declared.objective}.",
            f"An input is {who}. Wanted is the table of probabilities P(x, y) of output y at input x that solves\n\n"
            + "\n\n".join(printing.lines(declared)),
            declared.objective,
            ("; ".join(str(asked) for asked in declared.privacy), ""),
            "The probability of every output (across) at every input (down).",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the table as shades."""
        return printing.draw(self.declared, result.mechanism.probabilities, **options)

    def __str__(self) -> str:
        return "\n".join(printing.lines(self.declared))

    def _repr_latex_(self) -> str:
        return printing.latex(self.declared)


def _again(objective: Any, constraints: tuple[Any, ...], held: dict[str, Any] | None) -> Problem:
    made = Problem(objective, constraints)
    if held is not None:
        made.__dict__["_declared"] = Declared(**held)
    return made


@serializable("table-proof")
@dataclass(frozen=True, eq=False)
class TableProof(Proof):
    r"""A table of integer weights meets each row of its problem, with :math:`e^\varepsilon` from below, and costs at most the value.

    Parameters
    ----------
    witness : tuple of Fraction
        What the further variables of piecewise linear atoms may be: any that meet their rows bound the atoms from above.
    """

    witness: tuple[Fraction, ...]

    speaks_of = ("privacy", "bias", "value")

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, law = (
            instance("question", stated.question, Problem),
            instance("law", stated.law, TableMechanism),
        )
        v, declared = design.exact(law, self.witness), design.declared
        face = Face(declared, frozenset())
        broken = face.broken(v)
        for asked in declared.privacy:
            over = [
                s for number, s in broken.items() if number >= 0 and declared.family_of(number) == asked.label
            ]
            yield Claim(f"{asked.label}: {asked}", PROVED, float(min(over, default=0)), not over)
            if asked.distances is not None:
                known, claim = (
                    not callable(asked.privacy.metric),
                    f"{asked.label}: distances are those of the metric",
                )
                same = not known or np.allclose(
                    design.unknown.distances(asked.privacy), asked.distances, rtol=1e-12, atol=0
                )
                yield agreement(claim, PROVED if known else CLAIMED, same)
        for family, label in enumerate(declared.labels):
            rows = [row for row, f in zip(declared.rows, declared.family.tolist()) if f == family]
            off = max((abs(row.at(v)) / row.size for row in rows if row.equal and row.size), default=fmpq(0))
            over = [
                s for n, s in broken.items() if 0 <= n < len(declared.family) and declared.family[n] == family
            ]
            exact = "" if not off else f", its equalities to {RESIDUAL:g} of their size"
            holds = not over and off <= rational(RESIDUAL)
            yield Claim(f"rows called {label!r} hold{exact}", PROVED, float(min(over, default=0)), holds)
        room = fraction(rational(stated.value) - declared.value(v))
        yield Claim(
            f"the objective, called {declared.objective!r}, is at most {stated.value!r}",
            PROVED,
            float(room),
            room >= 0,
        )
        yield agreement("weights are a table of the problem's inputs and outputs", PROVED, True)
