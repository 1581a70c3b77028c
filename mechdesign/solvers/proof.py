r"""A proved lower bound of a linear program from any duals, however inexact.

For :math:`\min c^\top x` subject to :math:`E x = e`, :math:`A x \le b`, :math:`l \le x \le u`, any y and any
:math:`z \le 0` give, with the reduced costs :math:`r = c - E^\top y - A^\top z`,

.. math:: c^\top x \ge e^\top y + b^\top z + \sum_j \min(r_j l_j, r_j u_j)

(Neumaier and Shcherbina 2004). Every sum is rounded outward; the solver's objective plays no part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from mechdesign.errors import DesignError, SolverError
from mechdesign.solvers.base import Model, Solution
from mechdesign.solvers.compiled import CompiledLP
from mechdesign.typing import Array

__all__ = ["proved_bound"]

_UNIT = 2.0**-53


def proved_bound(
    model: Model, solution: Solution, *, box: Mapping[str, tuple[Any, Any]] | None = None
) -> float:
    """Return a lower bound of the model's optimum that follows from the solution's duals.

    Parameters
    ----------
    model : Model
        A linear minimisation.
    solution : Solution
        Of any backend; only its duals are used.
    box : mapping of variable name to (lower, upper), optional
        Bounds that hold at some optimum although the model does not declare them; without a bound on a variable
        whose reduced cost has the wrong sign, the answer is -inf.

    Raises
    ------
    SolverError
        The solution carries no duals.

    Examples
    --------
    >>> import cvxpy as cp
    >>> from mechdesign.solvers.registry import solve
    >>> x = cp.Variable(2, bounds=[0, 10], name="x")
    >>> model = Model(cp.Problem(cp.Minimize(x[0] + 2 * x[1]), [cp.sum(x) == 3]), {"x": x})
    >>> 3 - 1e-12 < proved_bound(model, solve(model, "highs")) <= 3
    True
    """
    compiled, solution = CompiledLP(model), DesignError.unless("solution", solution, Solution)
    dual = solution.row_dual if solution.row_dual is not None else compiled.row_duals()
    if dual is None or len(dual) != compiled.height or not np.isfinite(dual).all():
        raise SolverError(
            "the answer carries no duals to prove a bound from", solver=solution.solver, status="no duals"
        )
    matrix_values, rhs, cost = compiled.coefficients(compiled.point())
    matrix = sparse.csc_array(
        (matrix_values, (compiled.rows, compiled.columns)), shape=(compiled.height, compiled.width)
    )
    lower, upper = compiled.lower.copy(), compiled.upper.copy()
    for name, (low, high) in DesignError.unless("box", {} if box is None else box, Mapping).items():
        at = compiled.columns_of(name)
        lower[at], upper[at] = np.maximum(lower[at], low), np.minimum(upper[at], high)
    return bound_from(cost[:-1], matrix, rhs, compiled.equalities, lower, upper, dual) + float(cost[-1])


def bound_from(
    cost: Array, matrix: Any, rhs: Array, equalities: int, lower: Array, upper: Array, dual: Array
) -> float:
    """The bound for one program in numbers: the first rows are equalities, the others read ``A x <= b``."""
    y = np.asarray(dual, dtype=float).copy()
    y[equalities:] = np.minimum(y[equalities:], 0.0)
    reduced = cost - matrix.T @ y
    # Each reduced cost is a sum of at most `terms` products.
    terms = np.diff(sparse.csc_array(matrix).indptr) + 2
    error = 1.01 * terms * _UNIT * (np.abs(cost) + abs(matrix).T @ np.abs(y))
    parts = []
    for r in (reduced - error, reduced + error):
        with np.errstate(invalid="ignore"):
            at = np.where(r > 0, lower, upper)
            parts.append(np.where(r == 0, 0.0, r * at))
    least = np.minimum(*parts)
    if np.isnan(least).any() or np.isneginf(least).any():
        return -math.inf
    products = rhs * y
    total = math.fsum(products.tolist()) + math.fsum(least.tolist())
    margin = 3 * _UNIT * (math.fsum(np.abs(products).tolist()) + math.fsum(np.abs(least).tolist())) + 5e-324
    return math.nextafter(total - 1.01 * margin, -math.inf)
