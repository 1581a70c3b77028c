"""Any solver that CVXPY can drive, by its CVXPY name."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np

from mechdesign.errors import DesignError
from mechdesign.solvers.base import Capabilities, Model, Solution, Solver, Status
from mechdesign.solvers.deadline import Deadline

__all__ = ["CvxpySolver"]

_STATUS = {
    "optimal": Status.OPTIMAL,
    "optimal_inaccurate": Status.INACCURATE,
    "infeasible": Status.INFEASIBLE,
    "infeasible_inaccurate": Status.INFEASIBLE,
    "unbounded": Status.UNBOUNDED,
    "unbounded_inaccurate": Status.UNBOUNDED,
    "user_limit": Status.LIMIT,
}

# How each library is told to stop after so many seconds.
_LIMITS: dict[str, Callable[[float], dict[str, Any]]] = {
    "CLARABEL": lambda t: {"time_limit": t},
    "COPT": lambda t: {"TimeLimit": t},
    "CPLEX": lambda t: {"cplex_params": {"timelimit": t}},
    "GUROBI": lambda t: {"TimeLimit": t},
    "HIGHS": lambda t: {"time_limit": t},
    "MOSEK": lambda t: {"mosek_params": {"MSK_DPAR_OPTIMIZER_MAX_TIME": t}},
    "OSQP": lambda t: {"time_limit": t},
    "SCIPY": lambda t: {"scipy_options": {"time_limit": t}},
    "SCS": lambda t: {"time_limit_secs": t},
    "XPRESS": lambda t: {"maxtime": t},
}
_OPTION = re.compile("nrecogni[sz]ed|incompatible function arguments|invalid keyword|unknown option", re.I)


@cache
def _installed() -> frozenset[str]:
    """CVXPY's solvers; it imports every one of them again at each question, some 9 ms."""
    return frozenset(cp.installed_solvers())


class CvxpySolver(Solver):
    """A backend reached through ``problem.solve(solver=NAME)``.

    Parameters
    ----------
    name : str
        Name in this registry.
    cvxpy_name : str
        CVXPY's name of it.
    kinds : frozenset of str
        Model classes it takes.
    options : dict
        Passed to CVXPY at every solve, before the caller's own.
    """

    def __init__(
        self,
        name: str,
        cvxpy_name: str,
        kinds: frozenset[str],
        *,
        accuracy: float = 1e-8,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._cvxpy_name = cvxpy_name
        self._options = dict(options or {})
        self.capabilities = Capabilities(
            kinds, warm_start=False, accuracy=accuracy, time_limit=cvxpy_name in _LIMITS
        )

    def available(self) -> bool:
        return self._cvxpy_name in _installed()

    def solve(self, model: Model, *, time_limit: float | None = None, **options: Any) -> Solution:
        problem = model.problem
        started, deadline = time.perf_counter(), Deadline(time_limit)
        native, status = "", Status.FAILED
        settings = {**self._options, **options}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # CVXPY's accuracy warning; the status says the same.
                if deadline.finite:
                    problem.get_problem_data(self._cvxpy_name)  # compiled once, kept by CVXPY
                    settings |= _LIMITS[self._cvxpy_name](max(deadline.left, 1e-9))
                problem.solve(solver=self._cvxpy_name, **settings)
            native = str(problem.status)
            status = _STATUS.get(native, Status.FAILED)
        except (cp.error.SolverError, TypeError, ValueError, AttributeError, KeyError) as error:
            native = " ".join(str(error).split())
            if options and (not isinstance(error, cp.error.SolverError) or _OPTION.search(native)):
                raise DesignError.of("options", options, f"{self.name} refuses them: {native}") from None
            if not isinstance(error, cp.error.SolverError):
                raise
        if status in (Status.FAILED, Status.INACCURATE) and deadline.passed:
            status = Status.LIMIT
        elapsed = time.perf_counter() - started
        stats = problem.solver_stats
        seconds = float(stats.solve_time) if stats is not None and stats.solve_time is not None else elapsed
        solved = status in (Status.OPTIMAL, Status.INACCURATE)
        variables, constraints = model.size
        return Solution(
            status=status,
            value=float(problem.value) if solved else float("nan"),
            primal={n: np.asarray(v.value, dtype=float) for n, v in model.variables.items()}
            if solved
            else {},
            dual=model.duals() if solved else {},
            solver=self.name,
            seconds=seconds,
            build_seconds=max(0.0, elapsed - seconds),
            iterations=int(stats.num_iters) if stats is not None and stats.num_iters is not None else None,
            variables=variables,
            constraints=constraints,
            native_status=native,
        )
