"""The user's own rows in numbers, and CVXPY's expressions read as such.

Affine expressions are read by their gradients, which are exact there; convex piecewise linear ones are first reduced by CVXPY to affine rows of
further variables (its epigraphs). Any other convex function is replaced by its tangents, which lie below it, and by the affine
rows outside which it has no value. Everything else is refused
by an error that names the family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.cvxcore.python.canonInterface import get_problem_matrix
from cvxpy.lin_ops.lin_op import CONSTANT_ID
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from cvxpy.reductions.eval_params import replace_params_with_consts
from cvxpy.settings import CPP_CANON_BACKEND, SCIPY_CANON_BACKEND
from flint import fmpq
from scipy import sparse

from mechdesign.checks import instance, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import rational
from mechdesign.evidence.proofs import CLAIMED, PROVED, Claim, agreement
from mechdesign.model.problem import Further, Requirement, Unknown, labelled, valued
from mechdesign.typing import Array, Indices

ZERO = fmpq(0)
_SEPARATE = 100  # most terms of a sum that have tangents of their own
_TERMS = 4  # printed terms of a sample row
_EQUAL, _BELOW, _ABOVE = ("Equality", "Zero"), ("Inequality", "NonPos"), ("NonNeg",)


@dataclass(frozen=True, eq=False)
class Row:
    """One of the user's own rows, ``sum(a v) + offset`` at most or equal to 0."""

    label: str
    equal: bool
    terms: tuple[tuple[int, fmpq], ...]
    offset: fmpq

    def at(self, v: list[fmpq]) -> fmpq:
        """Return the left side less the right one."""
        return sum((a * v[j] for j, a in self.terms), self.offset)

    def size(self, of: list[fmpq] | None = None) -> fmpq:
        """Return the size that residuals are relative to, for columns of these sizes, or of 1."""
        return sum((abs(a) if of is None else abs(a) * of[j] for j, a in self.terms), abs(self.offset))


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnRows:
    """The user's own rows in numbers, as every declared problem holds them: ``sum(a v) + offset`` at most or equal to 0.

    Parameters
    ----------
    labels : tuple of str
        Names of the families of own rows.
    family, equal, offsets : arrays, one entry a row
        Family of the row, whether it is an equality, and its constant.
    places, coefficients : arrays, shapes (t, 2) and (t,)
        (row, column) of each coefficient, in the order of rows.
    privacy : tuple of Requirement
    curved : tuple of str
        Labels of families whose rows are the tangents of convex functions, which lie below them.
    """

    labels: tuple[str, ...]
    family: Indices
    equal: Indices
    offsets: Array
    places: Indices
    coefficients: Array
    privacy: tuple[Any, ...]
    curved: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Number of columns."""
        raise NotImplementedError

    def column(self, j: int) -> str:
        """Return the name of a column."""
        raise NotImplementedError

    def meaning(self, asked: Any) -> str:
        """Return a requirement as an inequality, with its number of rows."""
        raise NotImplementedError

    @property
    def fits(self) -> bool:
        """Whether the objective is what its words say, if it has words of its own."""
        return True

    def families(self) -> list[str]:
        """Return the labels of all families."""
        return [*dict.fromkeys([asked.label for asked in self.privacy]), *self.labels]

    def check_rows(self, *others: Array) -> None:
        """Raise DesignError unless families, rows and coefficients fit together and these and other numbers are finite."""
        rows, entries = len(self.family), len(self.coefficients)
        shaped = self.equal.shape == self.offsets.shape == (rows,) and self.places.shape == (entries, 2)
        if not self.privacy or len(set(self.families())) < len(self.labels) + len(self.privacy):
            raise DesignError("labels: must all differ, and some be of privacy")
        if not all(isinstance(label, str) for label in self.labels) or not set(self.curved) <= set(
            self.labels
        ):
            raise DesignError("curved: must be labels of families, which are texts")
        inside = shaped and (self.places >= 0).all() and (self.places < [max(rows, 1), self.width]).all()
        inside = inside and np.isin(self.equal, (0, 1)).all()
        inside = inside and ((self.family >= 0) & (self.family < len(self.labels))).all()
        if not inside or (np.diff(self.places @ [self.width, 1]) <= 0).any():
            raise DesignError("rows: do not fit the unknown")
        if not all(np.isfinite(part).all() for part in (self.offsets, self.coefficients, *others)):
            raise DesignError("rows: must hold finite numbers")

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """Coefficients of the own rows, a sparse matrix."""
        shape = (len(self.family), self.width)
        return sparse.csr_array((self.coefficients, tuple(self.places.T)), shape=shape)

    @cached_property
    def rows(self) -> list[Row]:
        """The own rows in rationals."""
        starts = np.searchsorted(self.places[:, 0], np.arange(len(self.family) + 1)).tolist()
        columns, values = self.places[:, 1].tolist(), [rational(a) for a in self.coefficients.tolist()]
        return [
            Row(self.labels[f], bool(equal), tuple(zip(columns[i:j], values[i:j])), rational(k))
            for f, equal, k, i, j in zip(
                self.family.tolist(), self.equal.tolist(), self.offsets.tolist(), starts, starts[1:]
            )
        ]

    def constraints(self, columns: Any) -> list[Any]:
        """Return the own rows as CVXPY's constraints on these columns, with their names."""
        found = []
        for number, label in enumerate(self.labels):
            for equality in (1, 0):
                rows = np.flatnonzero((self.family == number) & (self.equal == equality))
                if len(rows):
                    sides = self.matrix[rows] @ columns + self.offsets[rows]
                    found.append(sides == 0 if equality else sides <= 0)
                    found[-1].set_label(label)
        return found

    @property
    def cells(self) -> int:
        """Number of columns of the unknown, the first ones; further variables stand after them."""
        return self.width

    def sample(self, number: int) -> str:
        """Describe a family's rows: their number, the first as an inequality, cut after four terms, and the first that bounds its further variable, if any.

        A convex atom becomes a further variable t, which the rows "... - t <= 0" bound from below; the limit that
        the user wrote is in the rows that subtract no further variable.
        """
        members = np.flatnonzero(self.family == number).tolist()
        defining = [k for k in members if any(a < 0 and j >= self.cells for j, a in self.rows[k].terms)]
        limits = [k for k in members if k not in set(defining)]
        parts = (limits, defining) if limits else (defining,)
        return ", where ".join(self._sampled(part) for part in parts if part) or "no rows"

    def _sampled(self, members: list[int]) -> str:
        row, several = self.rows[members[0]], len(members) > 1
        parts = [
            f"{'-' if a < 0 else '+'} {'' if abs(a) == 1 else f'{abs(float(a)):.4g} '}{self.column(j)}"
            for j, a in row.terms[:_TERMS]
        ]
        text = " ".join(parts).removeprefix("+ ") or "0"
        text = f"-{text[2:]}" if text.startswith("- ") else text
        dots = " + ..." if len(row.terms) > _TERMS else ""
        count = f"({len(members)} rows, the first)" if several else "(1 row)"
        return f"{text}{dots} {'=' if row.equal else '<='} {-float(row.offset) + 0.0:.6g} {count}"

    def printed(self, number: int) -> str:
        """Return the line of a family."""
        if self.labels[number] in self.curved:
            count = int((self.family == number).sum())
            return f"{self.labels[number]}: convex, by its tangents ({count} row{'' if count == 1 else 's'})"
        return f"{self.labels[number]}: {self.sample(number)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(OwnRows):
    """A linear objective and own rows, on the unknown, row by row, and on further variables, which follow it.

    Parameters
    ----------
    objective : str
        Name of the objective in words.
    cost : array
        Costs of all columns; `constant` is added.
    """

    objective: str
    cost: Array
    constant: float

    def check_rows(self, *others: Array) -> None:
        instance("objective", self.objective, str)
        super().check_rows(*others)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.cost)

    def named(self) -> Any:
        """Return the linear functions of the unknown whose largest the words of the objective name, a row each; None for words of its author."""
        raise NotImplementedError

    @property
    def fits(self) -> bool:
        """Whether the objective is what its words name, if they are words of this package, to the rounding of products."""
        if (named := self.named()) is None:
            return True
        rows, t = sparse.csr_array(named), self.cells
        own = self.family == (self.labels.index("objective") if "objective" in self.labels else -1)
        held = sparse.csr_array(self.cost[None])
        if own.any() and not self.cost[:t].any() and self.cost[t:].any():  # t is at least each of them
            count, alone = own.sum(), self.cost[t] == 1 and not self.cost[t + 1 :].any()
            if not alone or self.matrix[~own][:, [t]].nnz or self.offsets[own].any() or self.equal[own].any():
                return False
            ones = np.ones(count), (np.arange(count), np.full(count, t))
            held = self.matrix[own] + sparse.csr_array(ones, shape=(count, self.width))
        rows.resize(rows.shape[0], self.width)
        alike = self.constant == 0 and held.shape == rows.shape
        return alike and bool((abs(held - rows) - 1e-12 * abs(rows)).max() <= 0)

    def objective_claim(self) -> Claim:
        """Claim that the coefficients are what the words of the objective name; words of its author are not checked."""
        if self.named() is None:
            return agreement(f"the objective is {self.objective!r}, as its author named it", CLAIMED, True)
        return agreement(f"the objective's coefficients are those of {self.objective!r}", PROVED, self.fits)


def rows_of(
    unknown: Unknown,
    objective: cp.Minimize,
    constraints: Iterable[Any],
    at: Mapping[str, Iterable[Array]],
    *,
    stricter: Mapping[str, float] | None = None,
    further: bool = True,
    apart: bool = False,
) -> Linear:
    """Return a problem in numbers at the parameters' present values.

    Parameters
    ----------
    unknown, objective, constraints
        As in `Problem`.
    at : mapping
        Values at which convex functions have their tangents, by family; "" for families that are not named.
    stricter : mapping, optional
        Amount by which a family's limit is lowered.
    further : bool
        Whether piecewise linear functions become exact rows of further variables; else they have tangents, too.
    apart : bool
        Whether each of a few terms of a convex sum has tangents of its own.

    Raises
    ------
    DesignError
        A part is not convex or not finite; the error names the family and the part.
    """
    pairs = list(labelled(constraints))
    own = [(label, one) for label, one in pairs if not isinstance(one, Requirement)]
    names, goal, pieces = [label for label, _ in own], objective.expr, list[tuple[int, Any]]()
    curved = list[str]()
    remedy = "is the name of the objective's own rows; name the constraint otherwise"
    refuse("objective" in names and not goal.is_affine(), "constraint", "objective", remedy)
    _check_numbers("objective", goal)
    for family, (label, one) in enumerate(own):
        _check_numbers(repr(label), one)
        parts = [one]
        if type(one).__name__ in _BELOW and one.is_dcp():
            exact = one.expr.is_affine() or (further and one.expr.is_pwl())
            if not exact:
                curved.append(label)
                room, points = (stricter or {}).get(label, 0.0), at.get(label, at[""])
                tangents, parts = _below(repr(label), one.expr, unknown, points, apart)
                parts += [row + room <= 0 for row in tangents]
                parts += _domain(one.expr, unknown)
        pieces += [(family, row) for part in parts for row in _rows(repr(label), part)]
    if goal.is_convex() and not goal.is_pwl():
        least, names, curved = Further(1, name="objective"), [*names, "objective"], [*curved, "objective"]
        tangents, parts = _below("objective", goal, unknown, at.get("objective", at[""]), apart)
        parts += [*(tangent - least <= 0 for tangent in tangents), *_domain(goal, unknown)]
        pieces += [(len(names) - 1, part) for part in parts]
        goal = least[0]
    elif not goal.is_affine():
        _check("objective", goal)
        reduced = _reduced(cp.Problem(cp.Minimize(goal)))
        goal, names = reduced.objective.expr, [*names, "objective"]
        pieces += [(len(names) - 1, part) for part in reduced.constraints]
    held = {v.id: v for e in (goal, *(part.expr for _, part in pieces)) for v in e.variables()}
    variables = [unknown, *(v for v in held.values() if v is not unknown)]
    words = ["objective", *(repr(names[family]) for family, _ in pieces)]
    matrix, constants = _affine(words, [goal, *(part.expr for _, part in pieces)], variables)
    sizes = [part.expr.size for _, part in pieces]
    signs = np.repeat([-1.0 if type(part).__name__ in _ABOVE else 1.0 for _, part in pieces], sizes)
    whole = sparse.csr_array(sparse.diags_array(signs) @ matrix[1:])
    whole.sum_duplicates()
    whole.eliminate_zeros()
    entries = whole.tocoo()
    return Linear(
        objective=objective.expr.label or " ".join(str(objective.expr).split()),
        cost=matrix[[0]].toarray().ravel(),
        constant=float(constants[0]),
        labels=tuple(names),
        family=np.repeat(np.array([family for family, _ in pieces], dtype=np.int64), sizes),
        equal=np.repeat(
            np.array([type(part).__name__ in _EQUAL for _, part in pieces], dtype=np.int64), sizes
        ),
        offsets=signs * constants[1:],
        places=np.column_stack(entries.coords).astype(np.int64).reshape(-1, 2),
        coefficients=np.asarray(entries.data, dtype=float),
        privacy=tuple(one for _, one in pairs if isinstance(one, Requirement)),
        curved=tuple(curved),
    )


def _check_numbers(what: str, part: Any) -> None:
    DesignError.when(part.is_complex(), f"{what}: is complex; state its real part, cp.real(...)")
    leaves = (*part.constants(), *part.parameters())
    if not all(np.isfinite(np.max(abs(leaf.value))) for leaf in leaves if leaf.size):
        raise DesignError(f"{what}: must hold finite numbers")


def _below(
    what: str, expression: Any, unknown: Unknown, points: Iterable[Array], apart: bool
) -> tuple[list[Any], list[Any]]:
    """Return affine expressions below a convex one, and rows of further variables in them: one for each of a few terms of a sum.

    Terms each have tangents of their own, whose largest are far closer to their sum than tangents of the sum.
    """
    terms = list[tuple[Any, Any]]()

    def by_terms(one: Any) -> Any:
        if one.is_affine():
            return one
        if isinstance(one, AffAtom):
            return one.copy([by_terms(part) for part in one.args])
        sign, least = 1 if one.is_convex() else -1, Further(one.shape)
        terms.append((sign * one, least))
        return sign * least

    whole, tables = by_terms(expression), [*points]
    if not apart or not expression.size < sum(least.size for _, least in terms) <= _SEPARATE:
        return [*_tangents(what, expression, unknown, tables)], []
    rows = (
        tangent - cp.vec(least, order="F") <= 0
        for term, least in terms
        for tangent in _tangents(what, term, unknown, tables)
    )
    return [whole], [*rows]


def _tangents(what: str, expression: Any, unknown: Unknown, points: Iterable[Array]) -> Iterator[Any]:
    """Yield the affine expressions that touch a convex one at these points, up to rounding, and lie below it; none at points without a slope."""
    for at in points:
        try:
            with valued(unknown, at), np.errstate(invalid="ignore", divide="ignore"):
                slope, value = expression.grad[unknown], expression.value
        except (NotImplementedError, ValueError):  # CVXPY does not know the slopes of some atoms
            remedy = "state it by other atoms, as cp.max(cp.abs(x)) for cp.norm_inf(x)"
            raise DesignError(f"{what}: holds an atom of which CVXPY gives no slope; {remedy}") from None
        if slope is None or value is None or not np.isfinite(value).all():
            continue
        slope, flat = _by_entry(slope, unknown), at.ravel(order="F")
        height = np.ravel(value, order="F") - slope @ flat
        rounding = _ROUNDING * (np.abs(np.ravel(value, order="F")) + abs(slope) @ np.abs(flat))
        yield height - rounding + slope @ cp.vec(unknown, order="F")


def _domain(expression: Any, unknown: Unknown) -> list[Any]:
    """Return the affine rows outside which a function has no value, such as x >= 0.1 for a root of x - 0.1, but none of the unknown's own bounds."""
    own = {str(row) for row in unknown.domain}
    found = (row for row in expression.domain if type(row).__name__ in _BELOW and str(row) not in own)
    return [row for row in found if row.expr.is_affine() and not row.expr.is_nonpos()]


_ROUNDING = 1e-15
"""Rounding error of a tangent's height, relative to its size."""


def _rows(what: str, one: Any) -> list[Any]:
    """Return the affine constraints equivalent to a constraint, with CVXPY's further variables."""
    if type(one).__name__ not in _EQUAL + _BELOW + _ABOVE:
        raise DesignError(f"{what}: is a cone; state it as an inequality, such as cp.norm(...) <= 1")
    if one.expr.is_affine():
        return [one]
    _check(what, -one.expr if type(one).__name__ in _ABOVE else one.expr, one.is_dcp())
    return list(_reduced(cp.Problem(cp.Minimize(0), [one])).constraints)


def _reduced(problem: Any) -> Any:
    """Return the problem without atoms, reduced without values: with them CVXPY fails at `sum_largest` of a table."""
    with ExitStack() as held:
        for variable in problem.variables():
            held.enter_context(valued(variable, None))
        return Dcp2Cone().apply(problem)[0]


def _check(what: str, expression: Any, convex: bool | None = None) -> None:
    if not (expression.is_convex() if convex is None else convex):
        part = " ".join(str(_broken(expression)).split())
        raise DesignError(f"{what}: is not convex by CVXPY's rules (DCP); see {part:.80}")
    if not expression.is_pwl():
        raise DesignError(f"{what}: is convex but no inequality of the form f(P) <= 0; state it so")


def _broken(expression: Any) -> Any:
    """Return the smallest part of an expression that breaks CVXPY's rules."""
    part = next((part for part in expression.args if not part.is_dcp()), None)
    return expression if part is None else _broken(part)


def _by_entry(slope: Any, variable: Any) -> sparse.csr_array:
    """Return CVXPY's slopes, a number of a single entry, with a row for each entry of an expression."""
    return sparse.csr_array([[slope]] if np.isscalar(slope) else slope).reshape(variable.size, -1).T


def _by_slopes(what: str, expression: Any) -> Any:
    """Return an affine expression by its slopes, where CVXPY has no matrix of it, as of a cumulated sum."""
    with ExitStack() as held:
        for variable in expression.variables():
            held.enter_context(valued(variable, np.zeros(variable.shape)))
        try:
            with np.errstate(invalid="ignore", divide="ignore"):
                found, slopes = expression.value, expression.grad
        except (NotImplementedError, ValueError):
            found, slopes = None, {}
    if found is None or not np.isfinite(found).all() or any(slope is None for slope in slopes.values()):
        allowed = f"{what}: holds an atom of which CVXPY gives no slope: leave it out, or state it by others"
        raise DesignError(allowed)
    if not any(np.any(slope if np.isscalar(slope) else slope.data) for slope in slopes.values()):
        raise DesignError(f"{what}: is 0 times a function, which CVXPY takes for affine: leave it out")
    for variable, slope in slopes.items():
        found = found + cp.reshape(
            _by_entry(slope, variable) @ cp.vec(variable, order="F"), expression.shape, order="F"
        )
    return found


def _affine(words: list[str], expressions: list[Any], variables: list[Any]) -> tuple[sparse.csr_array, Array]:
    """Return coefficients of affine expressions in these variables, tables row by row, and their constants, at the parameters' values."""
    given = replace_params_with_consts(expressions)
    starts, sizes = np.cumsum([0, *(v.size for v in variables)]).tolist(), [e.size for e in given]
    width, rows = starts[-1], sum(sizes)
    compact = all(e._all_support_cpp() and e._max_ndim() <= 2 for e in given)
    forms = []
    for what, expression in zip(words, given):
        try:
            forms.append(expression.canonical_form[0])
        except NotImplementedError:
            forms.append(_by_slopes(what, expression).canonical_form[0])
    stacked = get_problem_matrix(
        forms,
        width,
        {v.id: start for v, start in zip(variables, starts)},
        {CONSTANT_ID: 1},
        {CONSTANT_ID: 0},
        rows,
        CPP_CANON_BACKEND if compact else SCIPY_CANON_BACKEND,
    )
    whole = stacked.reshape((rows, width + 1), order="F").tocsr()
    constants = whole[:, [width]].toarray().ravel()
    first = variables[0]
    by_rows = np.arange(first.size).reshape(first.shape[::-1]).T.ravel()
    matrix = sparse.csr_array(whole[:, np.append(by_rows, np.arange(first.size, width))])
    for what, start, end in zip(words, (ends := np.cumsum([0, *sizes]).tolist()), ends[1:]):
        entries = matrix.data[matrix.indptr[start] : matrix.indptr[end]]
        if not (np.isfinite(entries).all() and np.isfinite(constants[start:end]).all()):
            raise DesignError(f"{what}: must hold finite numbers")
    return matrix, constants
