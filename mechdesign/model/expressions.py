r"""From CVXPY's expressions to rows of numbers.

Affine expressions are read by their gradients, which are exact there; convex piecewise linear ones are first reduced by CVXPY to affine rows of
further variables (its epigraphs). Any other convex function is replaced by its tangent at a point, which lies below it. Everything else is refused,
in a sentence that names the family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
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
from mechdesign.model.declared import Declared, Linear
from mechdesign.model.problem import Further, Requirement, Unknown
from mechdesign.typing import Array

_EQUAL, _BELOW, _ABOVE = ("Equality", "Zero"), ("Inequality", "NonPos"), ("NonNeg",)


def compiled(
    unknown: Unknown,
    objective: cp.Minimize,
    constraints: Iterable[Any],
    at: Iterable[Array] = (),
    kind: type[Declared] = Declared,
) -> Declared:
    """Return a problem in numbers of this kind, tangents at equal probabilities unless `at` gives others; see `rows_of`."""
    at = [*at] or [np.full(unknown.shape, 1 / unknown.shape[-1])]
    rows, curved = rows_of(unknown, objective, constraints, at)
    return kind(**unknown.stated(), **vars(rows), curved=curved)


def rows_of(
    unknown: Unknown, objective: cp.Minimize, constraints: Iterable[Any], at: list[Array]
) -> tuple[Linear, tuple[str, ...]]:
    """Return a problem in numbers at the parameters' present values, and families of tangents.

    Parameters
    ----------
    unknown, objective, constraints
        As in `Problem`.
    at : list of arrays
        Values at which convex functions that are not piecewise linear have their tangents.

    Raises
    ------
    DesignError
        What is not convex or not finite; it names the family and the part.
    """
    pairs = list(labelled(constraints))
    own = [(label, one) for label, one in pairs if not isinstance(one, Requirement)]
    names, goal, pieces = [label for label, _ in own], objective.expr, list[tuple[int, Any]]()
    curved = list[str]()
    for family, (label, one) in enumerate(own):
        parts = [one]
        if type(one).__name__ in _BELOW and not one.expr.is_pwl() and one.is_dcp():
            curved.append(label)
            parts = [_tangent(repr(label), one.expr, unknown, point) <= 0 for point in at]
        pieces += [(family, row) for part in parts for row in _rows(repr(label), part)]
    if goal.is_convex() and not goal.is_pwl():
        least, names, curved = Further(1, name="objective"), [*names, "objective"], [*curved, "objective"]
        tangents = (_tangent("objective", goal, unknown, point) for point in at)
        pieces += [(len(names) - 1, tangent - least <= 0) for tangent in tangents]
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
    rows = Linear(
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
    )
    return rows, tuple(curved)


def _tangent(what: str, expression: Any, unknown: Unknown, at: Array) -> Any:
    """The affine expression that touches a convex one at a point, and is below it elsewhere."""
    held = unknown.value
    unknown.save_value(at)
    slope, value = expression.grad[unknown], expression.value
    unknown.save_value(held)
    if slope is None or value is None or not np.isfinite(value).all():
        raise DesignError(f"{what}: has no slope where its first tangent is taken")
    slope = sparse.csr_array(slope).reshape(unknown.size, -1).T
    return np.ravel(value, order="F") - slope @ at.ravel(order="F") + slope @ cp.vec(unknown, order="F")


def labelled(constraints: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield constraints with names that all differ: those given, else CVXPY's own text."""
    taken = set[str]()
    for one in constraints:
        words = one.label or " ".join(str(one).split())
        label, k = words if len(words) <= 60 else f"{words[:57]}...", 1
        while label in taken:
            k += 1
            label = f"{words[:50]} ({k})"
        taken.add(label)
        yield label, replace(one, label=label) if isinstance(one, Requirement) else one


def _rows(what: str, one: Any) -> list[Any]:
    """The affine constraints that a constraint is, with CVXPY's further variables."""
    if type(one).__name__ not in _EQUAL + _BELOW + _ABOVE:
        raise DesignError(f"{what}: is a cone; state it as an inequality, such as cp.norm(...) <= 1")
    if one.expr.is_affine():
        return [one]
    _check(what, -one.expr if type(one).__name__ in _ABOVE else one.expr, one.is_dcp())
    return list(Dcp2Cone().apply(cp.Problem(cp.Minimize(0), [one]))[0].constraints)


def _check(what: str, expression: Any, convex: bool | None = None) -> None:
    if not (expression.is_convex() if convex is None else convex):
        raise DesignError(f"{what}: is not convex by CVXPY's rules (DCP); see {_broken(expression)!s:.80}")
    if not expression.is_pwl():
        raise DesignError(f"{what}: is convex but no inequality of the form f(P) <= 0; state it so")


def _broken(expression: Any) -> Any:
    """The smallest part of an expression that breaks CVXPY's rules."""
    part = next((part for part in expression.args if not part.is_dcp()), None)
    return expression if part is None else _broken(part)


def _affine(words: list[str], expressions: list[Any], variables: list[Any]) -> tuple[sparse.csr_array, Array]:
    """Coefficients of affine expressions over these variables, tables row by row, and their constants, at the parameters' values."""
    given = replace_params_with_consts(expressions)
    starts, sizes = np.cumsum([0, *(v.size for v in variables)]).tolist(), [e.size for e in given]
    width, rows = starts[-1], sum(sizes)
    compact = all(e._all_support_cpp() and e._max_ndim() <= 2 for e in given)
    stacked = get_problem_matrix(
        [e.canonical_form[0] for e in given],
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
