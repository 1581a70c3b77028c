r"""A linear program compiled once: all parameter points mapped to coefficients by one sparse product.

CVXPY's own compiled form of a parametrised LP is affine in the parameters θ:

.. math:: \operatorname{vec}[A(θ)\; b(θ)] = E\,(θ, 1), \qquad (c(θ), d(θ)) = q\,(θ, 1),

with rows of equalities first, then of inequalities :math:`b - Ax \ge 0`. This module reads E and q off that
form, so there is no second, hand-written copy of any model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.reductions.solution import Solution as CvxpySolution
from cvxpy.reductions.solvers import utilities
from scipy import sparse

from mechdesign.errors import DesignError
from mechdesign.solvers.base import Model
from mechdesign.typing import Array, Indices

__all__ = ["CompiledLP"]


class CompiledLP:
    """The compiled form of a parametrised LP.

    Parameters
    ----------
    model : Model
        Its problem must be linear for every parameter value, and follow CVXPY's DPP rules.

    Attributes
    ----------
    rows, columns : int arrays, shape (nnz,)
        Positions of the structural coefficients of A.
    equalities : int
        The first rows are equalities, the others read ``A x <= b``.
    """

    def __init__(self, model: Model) -> None:
        problem = DesignError.unless("model", model, Model).problem
        if problem.parameters() and not problem.is_dpp():
            raise DesignError(
                "the model's parameters break CVXPY's DPP rules: products of parameters are not allowed"
            )
        unset = [p for p in problem.parameters() if p.value is None]
        for parameter in unset:  # CVXPY compiles values in passing; any admissible value serves.
            parameter.value = np.ones(parameter.shape) if parameter.is_nonneg() else np.zeros(parameter.shape)
        data, self._chain, self._inverse = problem.get_problem_data(cp.HIGHS)
        for parameter in unset:
            parameter.value = None
        program = data["param_prob"]
        self.model = model
        self._program = program
        self.width = int(program.x.size)
        # Only entries that can be non-zero have a row here: the whole tensor has height × (width + 1) of them.
        coo = sparse.coo_array(program.A)
        filled, inverse = np.unique(coo.row, return_inverse=True)
        tensor = sparse.csr_array((coo.data, (inverse, coo.col)), shape=(len(filled), coo.shape[1]))
        height = coo.shape[0] // (self.width + 1)
        self.height = height
        self.equalities = int(data["dims"].zero)
        row, column = filled % height, filled // height
        is_matrix = column < self.width
        self.rows, self.columns = row[is_matrix], column[is_matrix]
        # CVXPY states rows as A x + b in a cone; the sign turns them into (-A) x <= b.
        self._matrix_map = -tensor[np.flatnonzero(is_matrix)]
        rhs = np.flatnonzero(~is_matrix)
        select = sparse.csr_array(
            (np.ones(len(rhs)), (row[rhs], np.arange(len(rhs)))), shape=(height, len(rhs))
        )
        self._rhs_map = select @ tensor[rhs] if len(rhs) else sparse.csr_array((height, tensor.shape[1]))
        self._cost_map = sparse.csr_array(program.q)
        self.lower = _bound(data.get("lower_bounds"), self.width, -np.inf)
        self.upper = _bound(data.get("upper_bounds"), self.width, np.inf)
        constant = tensor.shape[1] - 1
        self.varying = np.flatnonzero(
            np.asarray((abs(self._matrix_map[:, :constant])).sum(axis=1)).ravel()
            if constant
            else np.zeros(len(self.rows))
        )

    def point(self, values: Mapping[str, Any] | None = None) -> Array:
        """Stack parameter values (by name; the model's current ones where not given) into (θ, 1)."""
        vector = np.zeros(self._program.total_param_size + 1)
        vector[-1] = 1.0
        named = {id(p): name for name, p in self.model.parameters.items()}
        for parameter in self._program.parameters:
            name = named.get(id(parameter))
            value = (
                values[name]
                if values is not None and name is not None and name in values
                else parameter.value
            )
            if value is None:
                raise DesignError(f"the parameter {name or parameter.name()!r} has no value")
            start = self._program.param_id_to_col[parameter.id]
            vector[start : start + parameter.size] = np.ravel(np.asarray(value, dtype=float), order="F")
        return vector

    def slots(self, name: str) -> slice:
        """Where the parameter `name` stands in θ (column-major)."""
        parameter = self.model.parameters[name]
        start = self._program.param_id_to_col[parameter.id]
        return slice(start, start + parameter.size)

    def columns_of(self, name: str) -> Indices:
        """Where the entries of a variable stand in x, in the variable's shape."""
        variable = self.model.variables[name]
        start = self._program.var_id_to_col[variable.id]
        return np.arange(start, start + variable.size).reshape(variable.shape, order="F")

    def row_duals(self) -> Array | None:
        """The duals that CVXPY holds, one a row (HiGHS's sign); None where a row has no named constraint or no dual."""
        origin = {c.id: c for c in self.model.problem.constraints}
        for reduction in self._inverse[:-1]:
            ids = getattr(reduction, "cons_id_map", None) or (
                reduction[-1] if isinstance(reduction, tuple) and isinstance(reduction[-1], dict) else None
            )
            if ids is not None:
                origin = {new: origin[old] for old, new in ids.items() if old in origin}
        parts = []
        for constraint in self._inner_constraints():
            source = origin.get(constraint.id)
            if source is None or source.dual_value is None:
                return None
            parts.append(-np.ravel(np.asarray(source.dual_value, dtype=float), order="F"))
        return np.concatenate(parts) if parts else np.zeros(0)

    def _inner_constraints(self) -> list[Any]:
        inner, solver = self._inner, self._chain.reductions[-1]
        return [*inner[solver.EQ_CONSTR], *inner[solver.NEQ_CONSTR]]

    @property
    def _inner(self) -> Any:
        inner = self._inverse[-1]
        packed = isinstance(inner, dict) and "eq_constr" not in inner
        return inner.get("inverse_data", inner) if packed else inner

    def coefficients(self, points: Array) -> tuple[Array, Array, Array]:
        """Map points (P+1,) or (P+1, N) to matrix values, right-hand sides and (cost, offset) rows."""
        return self._matrix_map @ points, self._rhs_map @ points, self._cost_map @ points

    def unpack(self, x: Array, row_dual: Array, value: float) -> None:
        """Store a solution of the compiled form in the problem's own variables and constraints."""
        duals = utilities.get_dual_values(-row_dual, utilities.extract_dual_value, self._inner_constraints())
        name = self._inner[self._chain.reductions[-1].VAR_ID]
        solution = CvxpySolution("optimal", value, {name: x}, duals, {})
        for reduction, inverse in zip(reversed(self._chain.reductions[:-1]), reversed(self._inverse[:-1])):
            solution = reduction.invert(solution, inverse)
        self.model.problem.unpack(solution)


def _bound(given: Any, width: int, default: float) -> Array:
    return np.full(width, default) if given is None else np.asarray(given, dtype=float)
