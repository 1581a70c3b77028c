"""Any solver that CVXPY can drive, by its CVXPY name."""

from __future__ import annotations

import time
import warnings
from typing import Any

import cvxpy as cp
import numpy as np

from mechdesign.solvers.base import Capabilities, Model, Solution, Solver, Status

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
        self.capabilities = Capabilities(kinds, warm_start=False, accuracy=accuracy)

    def available(self) -> bool:
        return self._cvxpy_name in cp.installed_solvers()

    def solve(self, model: Model, **options: Any) -> Solution:
        problem = model.problem
        started = time.perf_counter()
        native, status = "", Status.FAILED
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # CVXPY's accuracy warning; the status says the same.
                problem.solve(solver=self._cvxpy_name, **{**self._options, **options})
            native = str(problem.status)
            status = _STATUS.get(native, Status.FAILED)
        except cp.error.SolverError as error:
            native = str(error)
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
