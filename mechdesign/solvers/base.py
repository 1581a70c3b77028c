"""What a model is, what a solver promises, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality

from mechdesign.errors import DesignError, instance
from mechdesign.typing import Array
from mechdesign.typing import Status as Status


@dataclass(frozen=True)
class Model:
    """An optimization model with names.

    Parameters
    ----------
    problem : cvxpy.Problem
    variables : mapping of name to cvxpy.Variable
    constraints : mapping of family name to a cvxpy constraint or a sequence of them
        ``"privacy"``, ``"unbiased"``, ``"normalisation"``, ``"bounds"``, …
    parameters : mapping of name to cvxpy.Parameter
        What a search varies.
    closed_form : callable, optional
        Returns the optimal value of every variable, by name, where a formula exists.
    """

    problem: cp.Problem
    variables: Mapping[str, cp.Variable] = field(default_factory=dict)
    constraints: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, cp.Parameter] = field(default_factory=dict)
    closed_form: Callable[[], Mapping[str, Array]] | None = None

    def __post_init__(self) -> None:
        instance("problem", self.problem, cp.Problem)

    @property
    def kind(self) -> str:
        """The smallest class that holds it: "LP", "QP", "SOCP", "SDP" or "EXP"."""
        if not self.problem.is_dcp():
            raise DesignError("the model breaks CVXPY's rules for convex problems (DCP)")
        if self.problem.is_lp():
            return "LP"
        if self.problem.is_qp():
            return "QP"
        dims = self.problem.get_problem_data(cp.SCS)[0]["dims"]
        if dims.psd:
            return "SDP"
        return "EXP" if dims.exp or dims.p3d else "SOCP"

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of scalar variables and of scalar constraints."""
        rows = sum(int(np.prod(c.shape)) for c in self.problem.constraints)
        return sum(v.size for v in self.problem.variables()), rows

    def duals(self) -> dict[str, Array]:
        """The dual values CVXPY holds, by family."""
        found: dict[str, Array] = {}
        for name, family in self.constraints.items():
            members = family if isinstance(family, Sequence) else [family]
            parts = [
                np.ravel(np.asarray(c.dual_value, dtype=float)) for c in members if c.dual_value is not None
            ]
            if isinstance(family, Sequence):
                found[name] = np.concatenate(parts) if parts else np.zeros(0)
            elif parts:
                found[name] = np.asarray(family.dual_value, dtype=float)
        return found

    def row_duals(self) -> Array | None:
        """The dual values CVXPY holds, a row of its standard form each: equalities first; None where one is missing or a cone's.

        Each is the change of the optimal value per unit of its right-hand side.
        """
        rows = sorted(self.problem.constraints, key=lambda c: not isinstance(c, Equality))
        if any(c.dual_value is None or not isinstance(c, Equality | Inequality) for c in rows):
            return None
        parts = [-np.ravel(np.asarray(c.dual_value, dtype=float), order="F") for c in rows]
        return np.concatenate([np.zeros(0), *parts])

    @property
    def constant(self) -> float:
        """The objective where all variables are 0: what CVXPY's standard form of an affine one leaves out."""
        variables = self.problem.variables()
        held = [v.value for v in variables]
        for v in variables:
            v.save_value(np.zeros(v.shape))
        found = float(self.problem.objective.expr.value)
        for v, value in zip(variables, held):
            v.save_value(value)
        return found


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do.

    Parameters
    ----------
    kinds : frozenset of str
        Model classes it takes: "LP", "QP", "SOCP", "SDP", "EXP", "closed-form".
    duals, time_limit : bool
        Whether it gives duals, and whether it takes a time limit.
    accuracy : float
        Feasibility tolerance it is run with.
    """

    kinds: frozenset[str]
    duals: bool = True
    accuracy: float = 1e-9
    time_limit: bool = True


@dataclass(frozen=True)
class Solution:
    """A solver's answer in this package's words.

    Attributes
    ----------
    status : Status
    value : float
        Objective value, NaN when there is none.
    primal, dual : dict of name to array
        Variable values by name; dual values by constraint family (sign as in CVXPY: the change of the
        optimal value per unit of relaxation is minus the dual of an inequality).
    seconds, build_seconds : float
        Time in the solver; time to compile the model.
    fallbacks : tuple of str
        Solvers that were tried before and failed, with their status.
    row_dual : array, optional
        Duals of the rows of CVXPY's standard form (`Model.row_duals`).
    """

    status: Status
    value: float
    primal: Mapping[str, Array]
    dual: Mapping[str, Array]
    solver: str
    seconds: float
    build_seconds: float = 0.0
    iterations: int | None = None
    variables: int | None = None
    constraints: int | None = None
    native_status: str = ""
    requested: str | None = None
    fallbacks: tuple[str, ...] = ()
    row_dual: Array | None = None


class Solver(ABC):
    """A backend. Subclass it, give it a name and capabilities, and `register` an instance."""

    name: str
    capabilities: Capabilities

    @abstractmethod
    def available(self) -> bool:
        """Whether its library is installed."""

    @abstractmethod
    def solve(self, model: Model, *, time_limit: float | None = None, **options: Any) -> Solution:
        """Solve `model` in at most `time_limit` seconds; the status says if it is infeasible, unbounded, not done.

        Raises
        ------
        DesignError
            An option it does not know.
        """

    def accepts(self, kind: str) -> bool:
        """Whether models of this class can be given to it."""
        return kind in self.capabilities.kinds
