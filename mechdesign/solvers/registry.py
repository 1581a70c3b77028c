"""The registry of solvers: named backends for CVXPY problems, their capabilities and solutions, and the class, rows and duals of a problem.

Third parties add backends with `register`, or declare an entry point in the group ``mechdesign.solvers``
that names a `Solver` instance, class or factory.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.checks import instance, refuse
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, SolverError
from mechdesign.solvers.deadline import Deadline, heard
from mechdesign.typing import Array
from mechdesign.typing import Status as Status


def kind_of(problem: cp.Problem) -> str:
    """Return the smallest class that contains the problem: "LP", "QP", "SOCP", "SDP" or "EXP"."""
    DesignError.when(not problem.is_dcp(), "the problem breaks CVXPY's rules for convex problems (DCP)")
    if problem.is_lp():
        return "LP"
    if problem.is_qp():
        return "QP"
    # Clarabel takes all cones and usually solves them, and CVXPY caches the problem compiled for it
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
    """Return CVXPY's dual values of named rows: in the shape of a single constraint; those of several, or a cone's parts, concatenated."""
    found: dict[str, Array] = {}
    for label, members in rows(problem).items():
        parts = [
            p for c in members for p in (c.dual_value if isinstance(c.dual_value, list) else [c.dual_value])
        ]
        if not any(part is None for part in parts):
            held = [np.asarray(part, dtype=float) for part in parts]
            found[label] = held[0] if len(held) == 1 else np.concatenate([np.ravel(part) for part in held])
    return found


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do.

    Parameters
    ----------
    kinds : frozenset of str
        Classes of problems it takes: "LP", "QP", "SOCP", "SDP", "EXP".
    duals, time_limit : bool
        Whether it returns duals, and whether it takes a time limit.
    accuracy : float
        Feasibility tolerance at which it runs.
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
        Values by the names of variables; dual values by the labels of constraints (sign as in CVXPY: the change of the
        optimal value per unit of relaxation is minus the dual of an inequality).
    seconds, build_seconds : float
        Time in the solver; time to compile the problem.
    fallbacks : tuple of str
        Solvers that failed before this one, with their status.
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


class Solver(ABC):
    """A backend. Subclass it, give it a name and capabilities, and `register` an instance."""

    name: str
    capabilities: Capabilities

    @abstractmethod
    def available(self) -> bool:
        """Whether its library is installed."""

    @abstractmethod
    def solve(self, problem: cp.Problem, *, time_limit: float | None = None, **options: Any) -> Solution:
        """Solve in at most `time_limit` seconds; the status says whether it is solved, infeasible, unbounded or unfinished.

        Rows are named by the labels of the constraints (`mechdesign.solvers.rows`).

        Raises
        ------
        DesignError
            An option it does not know.
        """

    def accepts(self, kind: str) -> bool:
        """Whether it takes problems of this class."""
        return kind in self.capabilities.kinds


GROUP = "mechdesign.solvers"
_CONIC = frozenset({"LP", "QP", "SOCP", "SDP", "EXP"})
_REGISTRY: dict[str, Solver] = {}


HIGHS_TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""The tightest tolerances of HiGHS's simplex method: privacy is at stake, and these models are small."""

_STATUS = {
    "optimal": Status.OPTIMAL,
    "optimal_inaccurate": Status.INACCURATE,
    "infeasible": Status.INFEASIBLE,
    "unbounded": Status.UNBOUNDED,
    "user_limit": Status.LIMIT,
}

_LIMITS = {
    "CLARABEL": "time_limit",
    "COPT": "TimeLimit",
    "CPLEX": "cplex_params timelimit",
    "GUROBI": "TimeLimit",
    "HIGHS": "time_limit",
    "MOSEK": "mosek_params MSK_DPAR_OPTIMIZER_MAX_TIME",
    "OSQP": "time_limit",
    "SCIPY": "scipy_options time_limit",
    "SCS": "time_limit_secs",
    "XPRESS": "maxtime",
}
"""Each library's option for a time limit in seconds, after the dictionary that holds it, if any."""
_OPTION = re.compile("nrecogni[sz]ed|incompatible function arguments|invalid keyword|unknown option", re.I)


@cache
def _installed() -> frozenset[str]:
    """Return CVXPY's solvers, cached: CVXPY imports every one of them at each call, some 9 ms."""
    return frozenset(cp.installed_solvers())


class CvxpySolver(Solver):
    """A backend reached through ``problem.solve(solver=NAME)``.

    Parameters
    ----------
    name : str
        Name in this registry.
    cvxpy_name : str
        Name in CVXPY.
    kinds : frozenset of str
        Classes of problems it takes.
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
        options: dict[str, object] | None = None,
    ) -> None:
        self.name = name
        self._cvxpy_name = cvxpy_name
        self._options = dict(options or {})
        self.capabilities = Capabilities(kinds, accuracy=accuracy, time_limit=cvxpy_name in _LIMITS)

    def available(self) -> bool:
        return self._cvxpy_name in _installed()

    def solve(self, problem: cp.Problem, *, time_limit: float | None = None, **options: Any) -> Solution:
        started, deadline = time.perf_counter(), Deadline(time_limit)
        native, status = "", Status.FAILED
        settings = {**self._options, **options}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # CVXPY's accuracy warning; the status says the same.
                if deadline.finite:
                    problem.get_problem_data(self._cvxpy_name)  # compile outside the limit; CVXPY caches it
                    outer, *inner = _LIMITS[self._cvxpy_name].split()
                    seconds = max(deadline.left, 1e-9)
                    settings[outer] = {inner[0]: seconds} if inner else seconds
                if not deadline.passed:  # some check their clock between blocks of iterations only
                    self._run(problem, settings)
                    if problem.status == "infeasible_or_unbounded":  # a verdict of HiGHS's presolve
                        self._run(problem, {**settings, "presolve": "off"})
                    native = str(problem.status)
            status = _STATUS.get(native, Status.FAILED)
        except (cp.error.SolverError, TypeError, ValueError, AttributeError, KeyError) as error:
            native = " ".join(str(error).split())
            # CVXPY cannot unpack a solution whose status it does not know.
            failed = isinstance(error, cp.error.SolverError) or "invalid solution" in native
            if options and (not failed or _OPTION.search(native)):
                raise DesignError.of("options", options, f"{self.name} refuses them: {native}") from None
            if not failed:
                raise
        if status in (Status.FAILED, Status.INACCURATE) and deadline.passed:
            status = Status.LIMIT
        elapsed = time.perf_counter() - started
        stats = problem.solver_stats
        seconds = float(stats.solve_time) if stats is not None and stats.solve_time is not None else elapsed
        solved = status in (Status.OPTIMAL, Status.INACCURATE)
        variables, constraints = size(problem)
        return Solution(
            status=status,
            value=float(problem.value) if solved else float("nan"),
            primal={v.name(): np.asarray(v.value, dtype=float) for v in problem.variables()}
            if solved
            else {},
            dual=duals(problem) if solved else {},
            solver=self.name,
            seconds=seconds,
            build_seconds=max(0.0, elapsed - seconds),
            iterations=int(stats.num_iters) if stats is not None and stats.num_iters is not None else None,
            variables=variables,
            constraints=constraints,
            native_status=native,
        )

    def _run(self, problem: cp.Problem, settings: dict[str, Any]) -> None:
        """Solve like `cp.Problem.solve`, but respond to interrupts: a solution found after one is not written into the problem."""
        verbose, warm = (
            settings.pop(name, usual) for name, usual in (("verbose", False), ("warm_start", True))
        )
        data, chain, inverse = problem.get_problem_data(
            self._cvxpy_name, verbose=verbose, solver_opts=settings
        )
        clarabel, stop = self._cvxpy_name == "CLARABEL", threading.Event()
        # only the main thread receives interrupts: other threads leave the library unchanged
        stopped = clarabel and threading.current_thread() is threading.main_thread()
        with _stopping(stop) if stopped else nullcontext():
            found = heard(
                lambda: chain.solve_via_data(problem, data, warm and not clarabel, verbose, settings),
                stop.set if stopped else None,
            )
        problem.unpack_results(found, chain, inverse)


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Make Clarabel check at every step whether to stop, which CVXPY does not set up."""
    import clarabel

    made = clarabel.DefaultSolver

    def looking(*given: Any) -> Any:
        solver = made(*given)
        solver.set_termination_callback(lambda _: stop.is_set())
        return solver

    clarabel.DefaultSolver = looking
    try:
        yield
    finally:
        clarabel.DefaultSolver = made


def register(solver: Solver, *, replace: bool = False) -> None:
    """Add a backend under its name.

    Raises
    ------
    DesignError
        Not a `Solver`, or the name is taken and `replace` is false.
    """
    instance("solver", solver, Solver)
    allowed = "is already registered; pass replace=True to take its place"
    refuse(solver.name in _REGISTRY and not replace, "solver", solver.name, allowed)
    _REGISTRY[solver.name] = solver


def unregister(name: str) -> None:
    """Remove a backend."""
    _REGISTRY.pop(instance("name", name, str), None)


@cache
def _load_entry_points() -> None:
    for entry in metadata.entry_points(group=GROUP):
        loaded = entry.load()
        solver = loaded if isinstance(loaded, Solver) else loaded()
        if solver.name not in _REGISTRY:
            register(solver)


def get(name: str) -> Solver:
    """Return the backend called `name`, which may also be CVXPY's name of any solver.

    Examples
    --------
    >>> get("highs").capabilities.time_limit
    True
    """
    _load_entry_points()
    if isinstance(name, str) and name in _REGISTRY:
        return _REGISTRY[name]
    if isinstance(name, str) and name.upper() in _installed():
        return CvxpySolver(name, name.upper(), _CONIC)
    known = sorted(_REGISTRY)
    allowed = f"must be one of {known} or a solver CVXPY knows, {sorted(_installed())}"
    raise DesignError.of("solver", name, allowed)


def available() -> pd.DataFrame:
    """Return the capability table, a row per registered backend.

    Examples
    --------
    >>> available().set_index("solver").loc["highs", "classes"]
    'LP'
    """
    _load_entry_points()
    table = [
        {
            "solver": name,
            "installed": solver.available(),
            "classes": ", ".join(k for k in ("LP", "QP", "SOCP", "EXP", "SDP") if solver.accepts(k)),
            "duals": solver.capabilities.duals,
            "time limit": solver.capabilities.time_limit,
            "tolerance": solver.capabilities.accuracy,
        }
        for name, solver in _REGISTRY.items()
    ]
    return pd.DataFrame(table)


def _candidates(problem: cp.Problem, solver: str | None, fallback: bool) -> list[Solver]:
    first = [] if solver is None else [get(solver)]
    kind = kind_of(problem)
    allowed = f"does not take problems of class {kind}; see mechdesign.solvers.available()"
    refuse(first and not first[0].accepts(kind), "solver", solver, allowed)
    refuse(first and not first[0].available(), "solver", solver, "is not installed")
    if first and not fallback:
        return first
    others = [s for s in _REGISTRY.values() if s.accepts(kind) and s.available() and s not in first]
    return first + others


def _answered(backend: Solver, problem: cp.Problem, given: dict[str, Any]) -> Solution:
    """Return a backend's solution, with status FAILED if it raises or its answer does not fit the problem."""
    try:
        answer = backend.solve(problem, **given)
        fault = _fault(answer, problem)
    except DesignError:
        raise
    except Exception as error:  # a third party's backend may raise anything
        fault = " ".join(f"{type(error).__name__}: {error}".split())
    if fault:
        return Solution(Status.FAILED, float("nan"), {}, {}, backend.name, 0.0, native_status=fault)
    return answer


def _fault(answer: Solution, problem: cp.Problem) -> str:
    """Return why the answer does not fit the problem, or "" if it does."""
    if not isinstance(answer, Solution):
        return f"an answer of type {type(answer).__name__}"
    if not isinstance(answer.status, Status):
        return f"unknown status {answer.status!r}"
    if answer.status not in (Status.OPTIMAL, Status.INACCURATE):
        return ""
    shapes = {v.name(): v.shape for v in problem.variables()}
    if not answer.primal.keys() >= shapes.keys():
        return "an answer without all variables"
    sizes = {label: sum(row.size for row in family) for label, family in rows(problem).items()}
    wrong = [name for name, shape in shapes.items() if np.shape(answer.primal[name]) != shape]
    wrong += [
        label for label, dual in answer.dual.items() if np.size(dual) != sizes.get(label, np.size(dual))
    ]
    if wrong:
        return f"an answer of another shape for {wrong[0]!r}"
    numbers = (answer.value, *answer.primal.values(), *answer.dual.values())
    if not all(np.isrealobj(number) and np.isfinite(number).all() for number in map(np.asarray, numbers)):
        return "numbers that are not real and finite"
    return ""


def solve(
    problem: cp.Problem,
    solver: str | None = None,
    *,
    time_limit: float | None = None,
    deadline: Deadline | None = None,
    fallback: bool = True,
    **options: Any,
) -> Solution:
    """Solve a CVXPY problem with the named backend, or the first capable one.

    If a backend fails, answers with numbers that are not finite, or is the first to call the problem infeasible or unbounded,
    the next capable one is tried; the solution lists those that failed.

    Parameters
    ----------
    problem : cvxpy.Problem
        A convex problem; the solution names its variables and rows.
    solver : str, optional
        Registered name or CVXPY name; by default chosen from the problem's class.
    time_limit : float, optional
        Seconds for the whole call, fallbacks included.
    deadline : Deadline, optional
        A deadline set earlier, instead.
    fallback : bool
        Whether another solver may take over.
    **options
        The backend's own options (given to the named backend only).

    Raises
    ------
    InfeasibleError
        The problem has no feasible point: two backends say so, or the only one that may answer.
    SolverError
        The problem is unbounded, no answer came in time (status "limit"), or every backend failed; the error carries
        the last backend's own status.
    """
    names = sorted(v.name() for v in instance("problem", problem, cp.Problem).variables())
    if twice := [a for a, b in zip(names, names[1:]) if a == b]:
        raise DesignError.of("problem", twice[0], "is the name of two variables: give each its own")
    deadline = Deadline.of(deadline, time_limit)
    failures: list[str] = []
    last: Solution | None = None
    refused: dict[Status, MechdesignError] = {}
    for index, backend in enumerate(_candidates(problem, solver, fallback)):
        given = options if index == 0 else {}
        if deadline.finite:
            if not backend.capabilities.time_limit:
                failures.append(f"{backend.name}: keeps no time limit")
                continue
            if deadline.passed:
                break
            given = {**given, "time_limit": deadline.limit()}
        answer = _answered(backend, problem, given)
        if answer.status is Status.OPTIMAL:
            return replace(answer, requested=solver, fallbacks=tuple(failures))
        words = f"{backend.name}: {answer.native_status or answer.status.value}"
        failures.append(words)
        if answer.status in refused:  # simplex alone says so of feasible and bounded models with huge ratios
            break
        if answer.status is Status.INFEASIBLE:
            refused[answer.status] = InfeasibleError(f"no feasible point ({words})")
        elif answer.status is Status.UNBOUNDED:
            refused[answer.status] = SolverError(
                f"the problem is unbounded ({words})", solver=backend.name, status=answer.native_status
            )
        elif answer.status is Status.INACCURATE and last is None:
            last = answer
    if last is not None and Status.INFEASIBLE not in refused:
        return replace(last, requested=solver, fallbacks=tuple(failures))
    if len(refused) == 1:
        raise next(iter(refused.values()))
    if deadline.passed:
        said = f"no solution within the time limit of {deadline.seconds:g} s"
        raise SolverError(said, solver=solver or "any", status="limit")
    status = failures[-1] if failures else "no capable solver"
    said = f"no solver answered: {'; '.join(failures) or status}"
    raise SolverError(said, solver=solver or "any", status=status)


def _highs(name: str, method: str, *, accuracy: float = 1e-10, **options: float) -> CvxpySolver:
    settings = {"solver": method, "threads": 1, **HIGHS_TOLERANCES, **options}
    fresh = {"highs_options": settings, "warm_start": False}  # answers do not depend on the last one
    return CvxpySolver(name, "HIGHS", frozenset({"LP"}), accuracy=accuracy, options=fresh)


for _solver in (
    _highs("highs", "simplex"),
    _highs("highs-ipm", "ipm"),
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
    _highs(
        "highs-pdlp", "pdlp", accuracy=1e-7, kkt_tolerance=1e-7, output_flag=False
    ),  # cuPDLP-C asks no other one
):
    register(_solver)
