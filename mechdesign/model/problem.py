r"""A problem: an objective and constraints on one unknown, a CVXPY variable, declared in CVXPY and delivered with its evidence.

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

import functools
import math
import operator
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import cvxpy as cp
import numpy as np
import pandas as pd
from cvxpy import Minimize as Minimize
from flint import fmpq

from mechdesign.checks import instance, refuse
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.digits import folded
from mechdesign.evidence.proofs import CLAIMED, PROVED, RECOMPUTED, Claim
from mechdesign.evidence.results import ACTIVE, AUDIT_COLUMNS, Result, audit_rows
from mechdesign.problem.privacy import Description
from mechdesign.problem.spine import Clock, Incumbent, ModelledDesign
from mechdesign.typing import Array

C = TypeVar("C")
S = TypeVar("S")
POSITIVE = 1e-12
"""Least probability at which tangents are taken: roots and entropies have no slope at 0."""
_SETTLED = 1e-7
"""Largest gap of a design that limits of functions are tightened to: OPTM's, to which its bound does not come, moved the optimum by 5e-5."""
_ROUNDS = 60
"""Largest number of rounds of tangents."""


class Unknown(cp.Variable):
    """A CVXPY variable that problems of this package are declared on."""

    problem_class: ClassVar[str]
    """The class of its problems, as ``"module:class"``: it solves, repairs and proves."""

    def stated(self) -> dict[str, Any]:
        """Return the fields of a problem in numbers that describe it."""
        raise NotImplementedError


@contextmanager
def valued(unknown: Unknown, value: Array | None) -> Iterator[None]:
    """Give the unknown a value (or None) within the context, and its former one afterwards."""
    before = unknown.value
    unknown.save_value(value)
    try:
        yield
    finally:
        unknown.save_value(before)


class Further(cp.Variable):
    """Further variables of a problem that was read from a file: those of its piecewise linear atoms."""


def in_columns(unknown: Unknown, width: int) -> cp.Expression:
    """Return the unknown, row by row, followed by further variables up to this width."""
    columns = [cp.vec(unknown, order="C")]
    if width > unknown.size:
        columns.append(Further(width - unknown.size, name="further"))
    return cp.hstack(columns)


@dataclass(frozen=True, eq=False)
class Requirement:
    """Privacy required of an unknown, made by its method ``private``.

    Parameters
    ----------
    label : str
        The name of the family of rows.
    privacy : Privacy
    unknown : Unknown
        The unknown; None if the requirement was read from a file, which does not hold it.
    """

    label: str
    privacy: Any
    unknown: Any = field(default=None, kw_only=True)

    def to_fields(self) -> dict[str, object]:
        """Return the fields that files hold: all but the unknown."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "unknown"}

    @classmethod
    def from_fields(cls, held: dict[str, Any]) -> Self:
        """Return the requirement of a file, without its unknown."""
        return cls(**held)

    def parameters(self) -> list[cp.Parameter]:
        """Return CVXPY's parameters in it."""
        return []


def named(label: str, constraint: C) -> C:
    """Give a constraint the name that prints, audits and errors use.

    Examples
    --------
    >>> import mechdesign as md
    >>> P = md.Table([0, 1], [0, 1])
    >>> named("cap", P[:, 1] <= 0.2).label
    'cap'
    """
    if not instance("label", label, str).isprintable() or not label.strip():
        raise DesignError.of("label", label, "must be a name of printable characters, on one line")
    if isinstance(constraint, Requirement):
        return replace(constraint, label=label)
    if not isinstance(constraint, cp.constraints.constraint.Constraint):
        raise DesignError.of("constraint", constraint, "must be a constraint, such as P[:, 1] <= 0.2")
    constraint.set_label(label)
    return constraint


def labelled(constraints: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield constraints with distinct names: those given, else CVXPY's own text."""
    taken = set[str]()
    for one in constraints:
        words = one.label or " ".join(str(one).split())
        label, k = words if len(words) <= 60 else f"{words[:57]}...", 1
        while label in taken:
            k += 1
            label = f"{words[:50]} ({k})"
        taken.add(label)
        yield label, replace(one, label=label) if isinstance(one, Requirement) else one


_MATHEMATICS = re.compile(r"\b(?!Pr\b)[A-Za-z]+\[[^\]]*\]|e\^\(α d\(x, x'\)\)|e\^ε|Σ(?:_\w)?|<=|>=|ε|α|δ")
_COMMANDS = {
    "Σ": r"\sum",
    "ε": r"\varepsilon ",
    "α": r"\alpha ",
    "δ": r"\delta",
    "<=": r"\le",
    ">=": r"\ge",
    "[": "_{",
    "]": "}",
}


@dataclass(frozen=True, eq=False)
class Problem(ModelledDesign):
    """Find the unknown of least cost that meets the constraints.

    Parameters
    ----------
    objective : cvxpy.Minimize
        A convex expression of a table or of lattice noise, the loss of scales, or a linear or piecewise linear expression of a covariance.
    constraints : sequence
        Requirements from the unknown's ``private`` and ``unbiased``, and any convex constraint of CVXPY.
        `named` gives them names.
    design : ModelledDesign, optional
        The design whose model it is: without additions, the design's own algorithm solves the problem.

    Raises
    ------
    DesignError
        No privacy, no unknown or several (see `separate`), other variables, a part that is not convex, `Maximize`, a parameter without a value.

    Examples
    --------
    >>> import mechdesign as md
    >>> P = md.Table([0, 1], [0, 1])
    >>> asked = Problem(Minimize(P.expected("absolute")), [P.private(md.PureDP(1.0)), md.named("cap", P[0, 1] <= 0.3)])
    >>> round(asked.solve().value, 6)                                # 1/(1 + e), the cap besides
    0.268941
    """

    objective: Any
    constraints: tuple[Any, ...]
    design: Any = field(default=None, kw_only=True, repr=False)

    def __new__(cls, objective: Any = None, constraints: Any = (), **_: Any) -> Problem:
        """Make a problem of the class that its unknown names."""
        if cls is Problem:
            cls = pkgutil.resolve_name(_unknown_of(objective, constraints).problem_class)
        made: Problem = object.__new__(cls)
        return made

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraints", tuple(map(_inequality, _sequence(self.constraints))))
        _unknown_of(self.objective, self.constraints)
        if all(parameter.value is not None for parameter in self.parameters):
            self.check()

    @staticmethod
    def separate(objective: Any, constraints: Any) -> tuple[Problem, ...]:
        """Return a problem for each unknown, if every term of the objective, a sum, and every constraint holds one unknown only.

        Parameters
        ----------
        objective : cvxpy.Minimize
        constraints : sequence

        Returns
        -------
        tuple of Problem
            In the order in which the unknowns occur; the sum of their optima is the least of the objective. A constant belongs to the first.

        Raises
        ------
        DesignError
            A term or a constraint holds several unknowns, or as of `Problem`.

        Examples
        --------
        >>> import mechdesign as md
        >>> P, Q = md.Table([0, 1], [0, 1]), md.Table([0, 1], [0, 1])
        >>> both = md.Minimize((P.expected("error") + 3 * Q.expected("error")) / 4)
        >>> parts = md.Problem.separate(both, [P.private(md.PureDP(1.0)), Q.private(md.PureDP(2.0)), Q[0, 1] <= 0.1])
        >>> [round(part.solve().value, 6) for part in parts]
        [0.067235, 0.13541]
        """
        unknowns = _unknowns_of(objective, constraints)
        terms: list[list[Any]] = [[] for _ in unknowns]
        rows: list[list[Any]] = [[] for _ in unknowns]
        parts = [("term", term, terms) for term in _terms(objective.expr)]
        parts += [("constraint", one, rows) for one in _sequence(constraints)]
        for kind, part, into in parts:
            held = [part.unknown] if isinstance(part, Requirement) else part.variables()
            places = [k for k, unknown in enumerate(unknowns) if any(v is unknown for v in held)]
            allowed = "must hold one unknown: several problems cannot share it"
            refuse(len(places) > 1, kind, part.label or str(part), allowed)
            into[places[0] if places else 0].append(part)
        goals = (functools.reduce(operator.add, own) if own else cp.Constant(0) for own in terms)
        return tuple(Problem(Minimize(goal), tuple(own)) for goal, own in zip(goals, rows))

    numbers: ClassVar[Any] = None
    """The class of the problem in numbers, which files hold."""

    def check(self) -> None:
        """Raise DesignError if the problem cannot be solved at its parameters' present values."""
        if self.numbers is not None:
            _ = self.declared

    least: ClassVar[float] = -math.inf
    """Entries of the unknown at which tangents are taken are at least this."""

    @property
    def start(self) -> Array:
        """Value of the unknown at which the first tangents are taken."""
        raise NotImplementedError

    def _read(self, points: Mapping[str, Iterable[Array]], stricter: Mapping[str, float] | None) -> Any:
        """Return the problem in numbers, as `compiled`; `points` has "" for the families that it does not name."""
        raise NotImplementedError

    def compiled(
        self, at: Mapping[str, Iterable[Array]] | None = None, stricter: Mapping[str, float] | None = None
    ) -> Any:
        """Return the problem in numbers, at the parameters' values, with tangents of convex functions `at` values of the unknown.

        `stricter` lowers the limits of functions by these amounts.
        """
        given = {"": [self.start], **(at or {})}
        points = {label: [np.maximum(x, self.least) for x in values] for label, values in given.items()}
        return self._read(points, stricter)

    @property
    def declared(self) -> Any:
        """Problem in numbers, at the parameters' values."""
        held = self.__dict__.get("_declared")
        if held is not None:
            return held
        for parameter in self.parameters:
            refuse(parameter.value is None, "parameter", parameter.name(), "has no value")
        found = self.compiled()
        if not any(one.parameters() for one in (self.objective, *self.own)):  # others are not in the numbers
            self.__dict__["_declared"] = found
        return found

    def to_cvxpy(self) -> cp.Problem:
        """Return the problem in CVXPY alone, each constraint with its name."""
        raise NotImplementedError

    # -- convex functions, of which the numbers hold tangents --------------------------------------------------

    def functions(self) -> dict[str, Any]:
        """Return the convex functions whose tangents the numbers hold, by family; none for a problem read from a file."""
        stated = [
            (label, one.expr) for label, one in labelled(self.constraints) if not isinstance(one, Requirement)
        ]
        stated.append(("objective", self.objective.expr))
        return {label: f for label, f in stated if label in self.declared.curved and not f.is_affine()}

    def worth_at(self, value: Array) -> dict[str, float]:
        """Return the largest value of each of these functions at a value of the unknown, in doubles."""
        with valued(self.unknown, value), np.errstate(divide="ignore", invalid="ignore"):
            return {label: float(np.max(f.value)) for label, f in self.functions().items()}

    def keeps(self, value: Array, room: Mapping[str, float] | None = None) -> bool:
        """Return whether a value of the unknown is inside these functions except the objective, in doubles, with this room."""
        limits = ((label, x) for label, x in self.worth_at(value).items() if label != "objective")
        return all(x + (room or {}).get(label, 0.0) <= 0 for label, x in limits)

    @property
    def rows_how(self) -> str:
        """How rows in numbers are checked: tangents of convex functions are computed in doubles, and a file holds no functions."""
        if self.numbers is None or not self.declared.curved:
            return PROVED
        return CLAIMED if set(self.declared.curved) - set(self.functions()) else RECOMPUTED

    curved_room: ClassVar[float] = 0.0
    """How far a convex function may exceed 0, relative to the size of its tangents."""

    def _room(self, label: str, value: Array) -> float:
        return self.curved_room and self.curved_room * self.tangent_size(label, value)

    def value_of(self, columns: list[fmpq]) -> Array:
        """Return the value of the unknown in exact columns, in doubles."""
        return np.reshape([float(x) for x in columns[: self.unknown.size]], self.unknown.shape)

    def function_claims(self, value: Array) -> Iterator[Claim]:
        """Claim that each convex function except the objective is at most 0 at a value of the unknown."""
        worth = self.worth_at(value)
        for label in (one for one in self.declared.curved if one != "objective"):
            known = label in worth
            room = self._room(label, value) - worth[label] if known else 0.0
            how, claim = RECOMPUTED if known else CLAIMED, f"the convex function {label!r} is at most 0"
            yield Claim.of(claim, how, room)

    def with_functions(self, audit: pd.DataFrame, value: Array) -> pd.DataFrame:
        """Add to an audit a row for each convex function at a value of the unknown, beside those of its tangents."""
        if not self.declared.curved:
            return audit
        known, rows = self.functions(), list[tuple[Any, ...]]()
        with valued(self.unknown, value):
            for label, one in labelled(self.constraints):
                if label in known:
                    left, right = np.broadcast_arrays(*(np.ravel(side.value, order="F") for side in one.args))
                    at = int((left - right).argmax())
                    slack, dual = float(right[at] - left[at]), audit["dual"][audit["family"] == label].sum()
                    active = slack <= ACTIVE * self.tangent_size(label, value)
                    rows.append((label, at, float(left[at]), float(right[at]), slack, dual, active))
        audit["family"] = [f"tangents of {f}" if f in self.declared.curved else f for f in audit["family"]]
        functions = pd.DataFrame(rows, columns=AUDIT_COLUMNS)
        return pd.concat([audit, functions][: 1 + bool(rows)], ignore_index=True)

    def by_tangents(self, solve: Callable[[Any], tuple[S, Array]], clock: Clock) -> S:
        """Solve by tangents of the convex functions until a solution satisfies the functions themselves: outside, more are taken.

        Once the violation is a tenth of the gap, 1e-7 at most, relative to the size of the tangents, the functions' limits are tightened a little.

        Parameters
        ----------
        solve : callable
            The problem in numbers → (solution, the unknown at it).
        clock : Clock

        Raises
        ------
        SolverError
            No solution was found that satisfies the functions.
        """
        points, stricter = {label: [self.start] for label in self.functions()}, dict[str, float]()
        for _ in range(_ROUNDS):
            if points:
                self.__dict__["_declared"] = self.compiled(points)
            try:
                found, value = solve(self.compiled(points, stricter) if stricter else self.declared)
            except InfeasibleError:
                if not stricter:
                    raise
                stricter.clear()  # there is less room: more tangents first
            else:
                over = {label: v for label, v in self.worth_at(value).items() if not v <= 0}
                if not over:
                    return found
                worst = max(v / self.tangent_size(label, value) for label, v in over.items())
                if worst <= 0.1 * min(clock.gap, _SETTLED):
                    stricter |= {label: stricter.get(label, 0.0) + 2 * v for label, v in over.items()}
                    continue
            for label in over:
                points[label] = [*points[label], value]
        raise unmet(over)

    def tangent_size(self, label: str, value: Array) -> float:
        """Return the size of the tangents of a function at a value of the unknown; 1 if they are 0."""
        declared = self.declared
        mine = np.flatnonzero(declared.family == declared.labels.index(label))
        slopes = abs(declared.matrix[mine][:, : value.size])
        return (
            float((slopes @ np.abs(value).ravel() + np.abs(declared.offsets[mine])).max(initial=0.0)) or 1.0
        )

    def to_fields(self) -> dict[str, object]:
        """Return the fields that files hold: the problem in numbers."""
        return {f.name: getattr(self.declared, f.name) for f in fields(self.numbers)}

    @classmethod
    def from_fields(cls, held: dict[str, Any]) -> Self:
        """Declare the problem of a file in CVXPY."""
        numbers = cls.numbers(**held)
        unknown = cls.unknown_of(numbers)
        columns = in_columns(unknown, numbers.width)
        constraints = [replace(asked, unknown=unknown) for asked in numbers.privacy]
        made = cls(
            Minimize(cls.objective_of(numbers, columns)), (*constraints, *numbers.constraints(columns))
        )
        made.__dict__["_declared"] = numbers
        return made

    @classmethod
    def unknown_of(cls, numbers: Any) -> Any:
        """Return the unknown of a problem in numbers."""
        raise NotImplementedError

    @classmethod
    def objective_of(cls, numbers: Any, columns: Any) -> cp.Expression:
        """Return the objective of a problem in numbers, on `columns`, the unknown first."""
        found: cp.Expression = numbers.cost @ columns + numbers.constant
        found.set_label(numbers.objective)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        held = None if self.parameters and "_declared" not in self.__dict__ else self.to_fields()
        return _again, (type(self), self.objective, self.constraints, held)

    def __deepcopy__(self, memo: dict[int, Any]) -> Problem:
        return self  # nothing of it changes, and CVXPY's expressions do not survive a deep copy

    def _result(self, incumbent: Incumbent, clock: Clock) -> Result:
        """Return the result at the parameters' present values."""
        stated = self
        if self.numbers is not None:
            stated = type(self)(self.objective, self.constraints) if self.parameters else self
            stated.__dict__["_declared"] = self.declared
        return ModelledDesign._result(stated, incumbent, clock)

    @property
    def neighbours(self) -> str:
        """Neighbours for which the noise protects, or that the protected pairs of inputs come from."""
        return str(self.declared.neighbours)

    @property
    def minimised(self) -> str:
        """The objective in words."""
        return str(self.declared.objective)

    @property
    def over(self) -> str:
        """The unknown in words."""
        return str(self.declared.over)

    def families(self) -> list[str]:
        """Return a line for each family of constraints: meaning, number of rows, first row."""
        declared = self.declared
        said = [f"{one.label}: {one}: {declared.meaning(one)}" for one in declared.privacy]
        return [*said, *map(declared.printed, range(len(declared.labels)))]

    def printed(self) -> list[str]:
        """Return the problem as lines, one per family of constraints."""
        said = [f"{'' if k else 'subject to':12}{text}" for k, text in enumerate(self.families())]
        return [f"minimise    {self.minimised}", f"over        {self.over}", *said]

    def granted(self, value: float) -> Any:
        """Return the requirement, or several ones in words."""
        asked = self.requirements
        return asked[0].privacy if len(asked) == 1 else "; ".join(map(str, asked))

    def _described(self, title: str, what: str, picture: str, **said: Any) -> Description:
        """Describe a result, and print the problem."""
        more = ("The problem as declared:", *self.printed())
        return Description(title=title, what=what, loss=self.minimised, more=more, picture=picture, **said)

    def __str__(self) -> str:
        return folded("\n".join(self.printed()), 14)

    def _repr_latex_(self) -> str:
        lines = (rf"\text{{{typeset(line)}}}" for line in self.printed())
        return r"$$\begin{array}{l}" + r" \\ ".join(lines) + r"\end{array}$$"

    @property
    def own(self) -> list[Any]:
        """CVXPY's constraints: all but the requirements of privacy."""
        return [one for one in self.constraints if not isinstance(one, Requirement)]

    @property
    def requirements(self) -> list[Any]:
        """The requirements of privacy."""
        return [one for one in self.constraints if isinstance(one, Requirement)]

    @property
    def unknown(self) -> Any:
        """The unknown: a CVXPY variable with methods of its own."""
        return self.requirements[0].unknown

    @property
    def privacy(self) -> Any:
        """The requirement, or a tuple of several."""
        asked = tuple(one.privacy for one in self.requirements)
        return asked[0] if len(asked) == 1 else asked

    @property
    def parameters(self) -> list[cp.Parameter]:
        """CVXPY's parameters, whose values may be changed between solves."""
        parts = (self.objective, *self.own, *self.requirements)
        return list({p.id: p for part in parts for p in part.parameters()}.values())

    @property
    def unchanged(self) -> bool:
        """Whether the problem still is its design's model: always, as it has no parameters."""
        return not self.parameters

    def problem(self) -> Problem:
        """Return the problem itself."""
        return self

    def subject_to(self, *constraints: Any) -> Problem:
        """Return the problem with further constraints; DesignError if a file holds only tangents of its convex functions.

        Examples
        --------
        >>> import mechdesign as md
        >>> P = md.Table([0, 1], [0, 1])
        >>> problem = md.Problem(md.Minimize(P.expected("error")), [P.private(md.PureDP(1.0))])
        >>> round(problem.subject_to(md.named("rare", P[0, 1] <= 0.1)).solve().value, 6)
        0.414086
        """
        if self.rows_how == CLAIMED:
            lost = sorted(set(self.declared.curved) - set(self.functions()))
            allowed = "are convex functions that the file does not hold: declare them again"
            raise DesignError.of("constraints", lost, allowed)
        return Problem(self.objective, (*self.constraints, *constraints))

    def solve(self, solver: str | None = None, **options: Any) -> Result:
        """Solve with a registered backend, by default a suitable one; a design's model by the design's own algorithm.

        Parameters
        ----------
        solver : str, optional
        **options
            As in `ModelledDesign.solve`: gap, certify, time_limit, progress, and those of the solver.

        Examples
        --------
        >>> import mechdesign as md
        >>> P = md.Table([0, 1], [0, 1])
        >>> result = Problem(Minimize(P.expected("absolute")), [P.private(md.PureDP(1.0))]).solve("highs", time_limit=60)
        >>> round(result.value, 6), result.certificate.verify()
        (0.268941, True)
        """
        if self.design is not None and self.unchanged:
            found: Result = self.design.solve(solver, **options)
            return found
        remedy = "names another objective: give it words of your own, by set_label"
        refuse(self.numbers is not None and not self.declared.fits, "objective", self.minimised, remedy)
        return super().solve(solver, **options)


def contradicted(
    who: str, families: Iterable[str], curved: Iterable[str], *, proved: bool = True, **least: Any
) -> InfeasibleError:
    """Return the error that nothing meets these families: `who` is "table meets", say, `least` what the error holds."""
    families = [*families]
    how = "recomputed by tangents" if {*families} & {*curved} else "proved in rationals"
    both, how = " together" * (len(families) > 1), how if proved else "by the solver; not proved"
    reason = f"no {who} {' and '.join(map(repr, families))}{both} ({how})"
    if (epsilon := least.get("smallest_epsilon")) is not None:
        least["smallest_epsilon"] = epsilon = math.ceil(epsilon * 1e6) / 1e6
        noun, _, verb = who.rpartition(" ")
        reason += f"; some {noun} {'does' if verb == 'meets' else 'do'} from epsilon = {epsilon:.6f} on"
    return InfeasibleError(reason, **least)


def own_audit(declared: Any, columns: Array, slack: Array, dual: Any, index: Any = None) -> pd.DataFrame:
    """Tabulate own rows at these columns, from a slack of each row; by default they are counted within their family."""
    order = np.argsort(declared.family, kind="stable")
    family, equal = declared.family[order], declared.equal[order]
    lhs, rhs = (declared.matrix @ columns)[order], 0.0 - declared.offsets[order]
    size = np.abs(rhs) + (abs(declared.matrix) @ np.abs(columns))[order]
    left = np.where(equal != 0, -np.abs(slack[order]), slack[order]) + 0.0
    counted = np.arange(len(order)) - np.searchsorted(family, family) if index is None else index[order]
    names, active = [declared.labels[k] for k in family.tolist()], np.abs(left) <= 10 * ACTIVE * size
    dual = dual if np.isscalar(dual) else dual[order]
    return audit_rows(names, counted, lhs, rhs, left, dual=dual, active=active)


def unmet(labels: Iterable[str]) -> SolverError:
    """Return the error that nothing found satisfies the convex functions of these families."""
    remedy = "are met by nothing found: allow a millionth more, or state them by abs, max and sums"
    return SolverError(f"rows called {sorted(labels)} {remedy}", solver="tangents", status="repair")


def typeset(line: str) -> str:
    """Return a printed line in LaTeX: its unknowns, sums and inequalities as mathematics, the rest as words."""

    def mathematics(found: re.Match[str]) -> str:
        power = re.sub(r"\^\((.*)\)$", r"^{\1}", found[0])
        return "$" + re.sub("|".join(map(re.escape, _COMMANDS)), lambda m: _COMMANDS[m[0]], power) + "$"

    words = re.split(f"({_MATHEMATICS.pattern})", re.sub(r"[\\{}$&#%]", " ", line))
    plain = (word.replace("^", r"\^{}").replace("_", r"\_") for word in words[::2])
    held = [mathematics(found) for found in _MATHEMATICS.finditer("".join(words))]
    return "".join(part for pair in zip(plain, [*held, ""]) for part in pair)


def _again(kind: Any, objective: Any, constraints: tuple[Any, ...], held: dict[str, Any] | None) -> Problem:
    made: Problem = kind(objective, constraints)
    if held is not None:
        made.__dict__["_declared"] = kind.numbers(**held)
    return made


def _inequality(one: Any) -> Any:
    """Return the constraint; a cone of CVXPY as the inequality of a convex function, which has tangents."""
    if isinstance(one, cp.SOC):
        least, x = one.args
        found = (cp.norm(x, 2) if x.ndim < 2 else cp.norm(x, 2, axis=one.axis)) <= least
    elif isinstance(one, cp.PSD):
        found = cp.lambda_max(-(one.args[0] + one.args[0].T) / 2) <= 0
    elif isinstance(one, cp.ExpCone):
        found = one.args[0] + cp.rel_entr(*one.args[1:]) <= 0
    else:
        return one
    return found.set_label(one.label)


def _sequence(constraints: Any) -> tuple[Any, ...]:
    return tuple(constraints) if isinstance(constraints, (list, tuple)) else (constraints,)


def _terms(expression: Any) -> list[Any]:
    """Return the terms of a sum, or of a multiple of one."""
    kind, args = type(expression).__name__, expression.args
    if kind == "AddExpression":
        return [term for part in args for term in _terms(part)]
    if kind in ("NegExpression", "MulExpression", "multiply", "DivExpression"):
        place = next((k for k, part in enumerate(args) if part.variables()), 0)
        if len(terms := _terms(args[place])) > 1:
            return [expression.copy([*args[:place], term, *args[place + 1 :]]) for term in terms]
    return [expression]


def _unknown_of(objective: Any, constraints: Any) -> Unknown:
    """Return the single unknown, or raise DesignError."""
    found = _unknowns_of(objective, constraints)
    allowed = "are in the problem, which has one mechanism: Problem.separate(objective, constraints) makes a problem of each; a copy is another unknown"
    refuse(len(found) > 1, "unknowns", len(found), allowed)
    if not any(isinstance(one, Requirement) for one in _sequence(constraints)):
        raise DesignError("constraints: require no privacy; add one, such as unknown.private(PureDP(1.0))")
    return found[0]


def _unknowns_of(objective: Any, constraints: Any) -> list[Unknown]:
    """Return the unknowns, or raise DesignError if there is none, or another variable."""
    if isinstance(objective, cp.Maximize):
        raise DesignError("objective: is Maximize; minimise the negative, Minimize(-...)")
    given = _sequence(constraints)
    for one in given:
        instance("constraints", one, Requirement, cp.constraints.constraint.Constraint)
    asked = [one for one in given if isinstance(one, Requirement)]
    parts = [
        instance("objective", objective, cp.Minimize),
        *(one for one in given if not isinstance(one, Requirement)),
    ]
    variables = [v for part in parts for v in part.variables()]
    held = {id(v): v for v in (*variables, *(one.unknown for one in asked if one.unknown is not None))}
    own = [v for v in held.values() if not isinstance(v, (Unknown, Further))]
    if own:
        remedy = "is a variable of your own: write what it stands for as an atom, cp.max(...) or cp.abs(...) of the unknown"
        whole = any(v.attributes["boolean"] or v.attributes["integer"] for v in own)
        whole_remedy = "is boolean or integer: an unknown is continuous"
        raise DesignError.of("variable", own[0].name(), whole_remedy if whole else remedy)
    found = [v for v in held.values() if isinstance(v, Unknown)]
    refuse(not found, "objective and rows", given, "hold no unknown, such as md.Table(inputs, outputs)")
    return found
