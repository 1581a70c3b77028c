"""What a CVXPY problem says of itself: its class and size, its rows by name, their duals."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality

from mechdesign.errors import DesignError, instance
from mechdesign.typing import Array


def kind_of(problem: cp.Problem) -> str:
    """Return the smallest class that holds it: "LP", "QP", "SOCP", "SDP" or "EXP"."""
    if not problem.is_dcp():
        raise DesignError("the problem breaks CVXPY's rules for convex problems (DCP)")
    if problem.is_lp():
        return "LP"
    if problem.is_qp():
        return "QP"
    # Clarabel takes all cones, and is what mostly solves them: CVXPY keeps what it compiles for it
    dims = problem.get_problem_data(cp.CLARABEL)[0]["dims"]
    if dims.psd:
        return "SDP"
    return "EXP" if dims.exp or dims.p3d else "SOCP"


def size(problem: cp.Problem) -> tuple[int, int]:
    """Return the numbers of scalar variables and of scalar constraints."""
    count = sum(int(np.prod(c.shape)) for c in problem.constraints)
    return sum(v.size for v in problem.variables()), count


def rows(problem: cp.Problem) -> dict[str, list[Any]]:
    """Return the constraints by the labels that `mechdesign.named` gives them.

    Examples
    --------
    >>> import mechdesign as md
    >>> x = cp.Variable(name="x")
    >>> list(rows(cp.Problem(cp.Minimize(x), [md.named("floor", x >= 1)])))
    ['floor']
    """
    found: dict[str, list[Any]] = {}
    for constraint in instance("problem", problem, cp.Problem).constraints:
        if constraint.label:
            found.setdefault(constraint.label, []).append(constraint)
    return found


def duals(problem: cp.Problem) -> dict[str, Array]:
    """Return the dual values that CVXPY holds of named rows: in the shape of one constraint, of several, or a cone's parts, one after the other."""
    found: dict[str, Array] = {}
    for label, members in rows(problem).items():
        parts = [
            p for c in members for p in (c.dual_value if isinstance(c.dual_value, list) else [c.dual_value])
        ]
        if not any(part is None for part in parts):
            held = [np.asarray(part, dtype=float) for part in parts]
            found[label] = held[0] if len(held) == 1 else np.concatenate([np.ravel(part) for part in held])
    return found


def row_duals(problem: cp.Problem) -> Array | None:
    """Return the dual values that CVXPY holds, a row of its standard form each: equalities first; None where one is missing or a cone's.

    Each is the change of the optimal value per unit of its right-hand side.
    """
    ordered = sorted(problem.constraints, key=lambda c: not isinstance(c, Equality))
    if any(c.dual_value is None or not isinstance(c, Equality | Inequality) for c in ordered):
        return None
    parts = [-np.ravel(np.asarray(c.dual_value, dtype=float), order="F") for c in ordered]
    return np.concatenate([np.zeros(0), *parts])


def constant(problem: cp.Problem) -> float:
    """Return the objective where all variables are 0: what CVXPY's standard form of an affine one leaves out."""
    variables = problem.variables()
    held = [v.value for v in variables]
    for v in variables:
        v.save_value(np.zeros(v.shape))
    found = float(problem.objective.expr.value)
    for v, value in zip(variables, held):
        v.save_value(value)
    return found
