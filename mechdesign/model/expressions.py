"""Read CVXPY's expressions as rows of numbers.

Affine expressions are read by their gradients, which are exact there; convex piecewise linear ones are first reduced by CVXPY to affine rows of
further variables (its epigraphs). Any other convex function is replaced by its tangents, which lie below it, and by the affine
rows outside which it has no value. Everything else is refused
by an error that names the family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.cvxcore.python.canonInterface import get_problem_matrix
from cvxpy.lin_ops.lin_op import CONSTANT_ID
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from cvxpy.reductions.eval_params import replace_params_with_consts
from cvxpy.settings import CPP_CANON_BACKEND, SCIPY_CANON_BACKEND
from scipy import sparse

from mechdesign.errors import DesignError
from mechdesign.model.declared import Linear
from mechdesign.model.problem import Further, Requirement, Unknown, labelled, valued
from mechdesign.typing import Array

_EQUAL, _BELOW, _ABOVE = ("Equality", "Zero"), ("Inequality", "NonPos"), ("NonNeg",)


def rows_of(
    unknown: Unknown,
    objective: cp.Minimize,
    constraints: Iterable[Any],
    at: Mapping[str, Iterable[Array]],
    *,
    stricter: Mapping[str, float] | None = None,
    further: bool = True,
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

    Raises
    ------
    DesignError
        A part is not convex or not finite; the error names the family and the part.
    """
    pairs = list(labelled(constraints))
    own = [(label, one) for label, one in pairs if not isinstance(one, Requirement)]
    names, goal, pieces = [label for label, _ in own], objective.expr, list[tuple[int, Any]]()
    curved = list[str]()
    if "objective" in names and not goal.is_affine():
        raise DesignError(
            "'objective': is the name of the objective's own rows; name the constraint otherwise"
        )
    _check_numbers("objective", goal)
    for family, (label, one) in enumerate(own):
        _check_numbers(repr(label), one)
        parts = [one]
        if type(one).__name__ in _BELOW and one.is_dcp():
            exact = one.expr.is_affine() or (further and one.expr.is_pwl())
            if not exact:
                curved.append(label)
                room, points = (stricter or {}).get(label, 0.0), at.get(label, at[""])
                parts = [row + room <= 0 for row in _tangents(repr(label), one.expr, unknown, points)]
                parts += _domain(one.expr, unknown)
        pieces += [(family, row) for part in parts for row in _rows(repr(label), part)]
    if goal.is_convex() and not goal.is_pwl():
        least, names, curved = Further(1, name="objective"), [*names, "objective"], [*curved, "objective"]
        tangents = _tangents("objective", goal, unknown, at.get("objective", at[""]))
        parts = [*(tangent - least <= 0 for tangent in tangents), *_domain(goal, unknown)]
        pieces += [(len(names) - 1, part) for part in parts]
        goal = least[0]
    elif not goal.is_affine():
        _check("objective", goal)
        reduced = Dcp2Cone().apply(cp.Problem(cp.Minimize(goal)))[0]
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
    if part.is_complex():
        raise DesignError(f"{what}: is complex; state its real part, cp.real(...)")
    leaves = (*part.constants(), *part.parameters())
    if not all(np.isfinite(np.max(abs(leaf.value))) for leaf in leaves if leaf.size):
        raise DesignError(f"{what}: must hold finite numbers")


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
        slope, flat = sparse.csr_array(slope).reshape(unknown.size, -1).T, at.ravel(order="F")
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
    return list(Dcp2Cone().apply(cp.Problem(cp.Minimize(0), [one]))[0].constraints)


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
        raise DesignError(
            f"{what}: holds an atom of which CVXPY gives no slope: leave it out, or state it by others"
        )
    if not any(np.any(slope if np.isscalar(slope) else slope.data) for slope in slopes.values()):
        raise DesignError(f"{what}: is 0 times a function, which CVXPY takes for affine: leave it out")
    for variable, slope in slopes.items():
        matrix = sparse.csr_array(slope).reshape(variable.size, -1).T
        found = found + cp.reshape(matrix @ cp.vec(variable, order="F"), expression.shape, order="F")
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
