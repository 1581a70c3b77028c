"""The solver registry: named backends, their capabilities, and what happens when one fails.

Third parties add backends with `register`, or declare an entry point in the group ``mechdesign.solvers``
that names a `Solver` instance, class or factory.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Any

import cvxpy as cp
import pandas as pd

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.solvers.base import Model, Solution, Solver, Status
from mechdesign.solvers.closed_form import ClosedFormSolver
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.highs import HighsSolver
from mechdesign.solvers.through_cvxpy import CvxpySolver

__all__ = ["available", "get", "register", "solve", "unregister"]

GROUP = "mechdesign.solvers"
_CONIC = frozenset({"LP", "QP", "SOCP", "SDP", "EXP"})
_REGISTRY: dict[str, Solver] = {}


def register(solver: Solver, *, replace: bool = False) -> None:
    """Add a backend under its name.

    Raises
    ------
    DesignError
        Not a `Solver`, or the name is taken and `replace` is false.
    """
    DesignError.unless("solver", solver, Solver)
    if solver.name in _REGISTRY and not replace:
        raise DesignError.of(
            "solver", solver.name, "is already registered; pass replace=True to take its place"
        )
    _REGISTRY[solver.name] = solver


def unregister(name: str) -> None:
    """Remove a backend."""
    _REGISTRY.pop(DesignError.unless("name", name, str), None)


@cache
def _load_entry_points() -> None:
    for entry in metadata.entry_points(group=GROUP):
        loaded = entry.load()
        solver = loaded if isinstance(loaded, Solver) else loaded()
        if solver.name not in _REGISTRY:
            register(solver)


def get(name: str) -> Solver:
    """Return the backend called `name`; any CVXPY solver works by its CVXPY name too.

    Examples
    --------
    >>> get("highs").capabilities.warm_start
    True
    """
    _load_entry_points()
    if isinstance(name, str) and name in _REGISTRY:
        return _REGISTRY[name]
    if isinstance(name, str) and name.upper() in cp.installed_solvers():
        return CvxpySolver(name, name.upper(), _CONIC)
    known = sorted(_REGISTRY)
    raise DesignError.of(
        "solver", name, f"must be one of {known} or a solver CVXPY knows, {cp.installed_solvers()}"
    )


def available() -> pd.DataFrame:
    """Return the capability table, a row per registered backend.

    Examples
    --------
    >>> available().set_index("solver").loc["highs", "classes"]
    'LP'
    """
    _load_entry_points()
    rows = [
        {
            "solver": name,
            "installed": solver.available(),
            "classes": ", ".join(
                k for k in ("closed-form", "LP", "QP", "SOCP", "EXP", "SDP") if solver.accepts(k)
            ),
            "duals": solver.capabilities.duals,
            "warm start": solver.capabilities.warm_start,
            "time limit": solver.capabilities.time_limit,
            "tolerance": solver.capabilities.accuracy,
        }
        for name, solver in _REGISTRY.items()
    ]
    return pd.DataFrame(rows)


def _candidates(model: Model, solver: str | None, fallback: bool) -> list[Solver]:
    first = [] if solver is None else [get(solver)]
    if solver is None and model.closed_form is not None:
        first = [get("closed-form")]
    if first and first[0].accepts("closed-form"):
        return first
    kind = model.kind
    if first and not first[0].accepts(kind):
        raise DesignError.of(
            "solver", solver, f"does not take models of class {kind}; see mechdesign.solvers.available()"
        )
    if first and not first[0].available():
        raise DesignError.of("solver", solver, "is not installed")
    if first and not fallback:
        return first
    others = [s for s in _REGISTRY.values() if s.accepts(kind) and s.available() and s not in first]
    return first + others


def solve(
    model: Model,
    solver: str | None = None,
    *,
    time_limit: float | None = None,
    deadline: Deadline | None = None,
    fallback: bool = True,
    **options: Any,
) -> Solution:
    """Solve `model` with the named backend, or the first capable one.

    A backend that fails, or is the first to call the model unbounded, hands over to the next capable one; the solution lists
    those that failed.

    Parameters
    ----------
    model : Model
    solver : str, optional
        Registered name or CVXPY name; chosen from the model's class when not named.
    time_limit : float, optional
        Seconds for all of it, those that take over included.
    deadline : Deadline, optional
        The same, begun earlier.
    fallback : bool
        Whether another solver may take over.
    **options
        The backend's own options (given to the named backend only).

    Raises
    ------
    InfeasibleError
        The model has no feasible point.
    SolverError
        It is unbounded, no answer came in time (status "limit"), or every backend failed; carries the last
        backend's own status.
    """
    DesignError.unless("model", model, Model)
    deadline = Deadline.of(deadline, time_limit)
    failures: list[str] = []
    last: Solution | None = None
    unbounded: SolverError | None = None
    for index, backend in enumerate(_candidates(model, solver, fallback)):
        given = options if index == 0 else {}
        if deadline.finite:
            if not backend.capabilities.time_limit:
                failures.append(f"{backend.name}: keeps no time limit")
                continue
            if deadline.passed:
                break
            given = {**given, "time_limit": deadline.limit()}
        answer = backend.solve(model, **given)
        if answer.status is Status.OPTIMAL:
            return answer.tagged(requested=solver, fallbacks=tuple(failures))
        if answer.status is Status.INFEASIBLE:
            raise InfeasibleError(f"no feasible point ({backend.name}: {answer.native_status})")
        if answer.status is Status.UNBOUNDED:
            if unbounded is not None:  # simplex alone says so of bounded models with huge ratios
                raise unbounded
            unbounded = SolverError(
                f"the model is unbounded ({backend.name}: {answer.native_status})",
                solver=backend.name,
                status=answer.native_status,
            )
        failures.append(f"{backend.name}: {answer.native_status or answer.status.value}")
        if answer.status is Status.INACCURATE and last is None:
            last = answer
    if unbounded is not None:
        raise unbounded
    if last is not None:
        return last.tagged(requested=solver, fallbacks=tuple(failures))
    if deadline.passed:
        raise SolverError(
            f"no solution within the time limit of {deadline.seconds:g} s",
            solver=solver or "any",
            status="limit",
        )
    status = failures[-1] if failures else "no capable solver"
    raise SolverError(
        f"no solver answered: {'; '.join(failures) or status}", solver=solver or "any", status=status
    )


for _solver in (
    ClosedFormSolver(),
    HighsSolver("highs", "simplex", warm_start=True, accuracy=1e-10),
    HighsSolver("highs-ipm", "ipm", warm_start=False, accuracy=1e-10),
    CvxpySolver(
        "clarabel",
        "CLARABEL",
        _CONIC,
        accuracy=1e-10,
        options={"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    ),
    CvxpySolver(
        "scs", "SCS", _CONIC, accuracy=1e-7, options={"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 100_000}
    ),
    HighsSolver("highs-pdlp", "pdlp", warm_start=False, accuracy=1e-7),
):
    register(_solver)
