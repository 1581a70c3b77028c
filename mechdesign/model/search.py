"""Search over what is not convex: a grid of points, each a problem; and the best, certified."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from types import NoneType
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, InfeasibleError, instance
from mechdesign.evidence.results import Result
from mechdesign.model.problem import Problem
from mechdesign.model.sweeping import Sweep
from mechdesign.problem.checks import one_of
from mechdesign.runs.grid import Grid
from mechdesign.runs.parallel import Store, run_chunks
from mechdesign.solvers.deadline import Deadline, progress_bar, too_late

R = TypeVar("R")


def searched(
    task: Callable[[Any], R],
    chunks: Sequence[Any],
    *,
    what: str,
    definition: Mapping[str, Any],
    store: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    backend: str = "loky",
    bar: bool = True,
    deadline: Deadline | None = None,
) -> list[R]:
    """Apply `task` to every chunk, in parallel and into a store that survives a kill; of those reached by the deadline.

    Parameters
    ----------
    task : callable
        Depends on its chunk only.
    chunks : sequence
    what : str
        Of the progress bar.
    definition : mapping
        What the store is bound to.
    """
    kept = None if store is None else Store(store, definition)
    steps = progress_bar(what, len(chunks), shown=one_of("bar", bar, (True, False)))
    with nullcontext() if kept is None else closing(kept), steps as step:
        return run_chunks(task, chunks, store=kept, jobs=jobs, backend=backend, step=step, deadline=deadline)


def search(
    build: Callable[..., Any] | Problem,
    grid: Grid,
    *,
    solver: str | None = None,
    store: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    backend: str = "loky",
    bar: bool = True,
    time_limit: float | None = None,
    **options: Any,
) -> Result:
    """Solve a problem at every point of a grid, and return the result of the best, certified, with a table of all.

    Parameters
    ----------
    build : function or Problem
        From a point of the grid to its problem, by keywords; None where the point has none. Axes that it does not take are names of the problem's
        CVXPY parameters, each a number: of a selection the problems of all their values are changes of one compiled program.
    grid : Grid
    solver, **options
        Of the last solve, at the best point.
    store : path, optional
        Finished points of what `build` takes are kept there; a killed search continues. It is bound to the name of `build`, the grid, and
        what the first problem prints.
    jobs, backend
        joblib's worker count and backend ("loky", "threading", "dask", "ray").
    bar : bool
        Whether a progress bar is shown, where there is a terminal.
    time_limit : float, optional
        Seconds, after which the best point so far is solved.

    Raises
    ------
    InfeasibleError
        No point is feasible.

    Examples
    --------
    >>> import cvxpy as cp, mechdesign as md
    >>> P = md.Table([-1, 0, 1], [-2, 0, 2])
    >>> cap = cp.Parameter(name="cap")
    >>> problem = md.Problem(md.Minimize(P.expected()), [P.private(md.PureDP(1.0)), P[:, 1] <= cap])
    >>> md.search(problem, md.Grid(cap=[0.2, 0.4])).table[["cap", "value"]].round(6)
       cap     value
    0  0.4  1.281820
    1  0.2  1.486871
    """
    instance("grid", grid, Grid)
    if not callable(build) and not isinstance(build, Problem):
        raise DesignError.of(
            "build", build, "must be a Problem, or a function from a point of the grid to one"
        )
    made: Callable[..., Any] = (lambda: build) if isinstance(build, Problem) else build
    clock = Deadline(time_limit)
    taken = inspect.signature(made).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    own = [name for name in grid.axes if free or name in taken]
    rest = [name for name in grid.axes if name not in own]
    points = [dict(zip(own, v)) for v in itertools.product(*(grid.axes[name] for name in own))]
    if rest and backend == "threading":
        raise DesignError.of(
            "backend", backend, "shares parameters among points; let build take all axes, or use loky"
        )
    task = _Task(made, {name: grid.axes[name] for name in rest})
    definition: dict[str, Any] = {"build": getattr(made, "__qualname__", ""), "axes": grid.axes}
    if store is not None and (first := made(**points[0])) is not None:
        set_parameters(first, {name: grid.axes[name][0] for name in rest})
        definition["first"] = str(first)
    rows = searched(
        task, points, what="points", definition=definition, store=store, jobs=jobs, backend=backend, bar=bar,
        deadline=clock,
    )  # fmt: skip
    places = list(itertools.product(*(grid.axes[name] for name in rest)))
    tried = [(*p.values(), *at, value) for p, row in zip(points, rows) for at, value in zip(places, row)]
    table = pd.DataFrame(tried, columns=[*own, *rest, "value"]).astype({"value": float})
    if table["value"].isna().all():
        if clock.passed:
            raise too_late("search")
        raise InfeasibleError(f"none of the {len(table)} points of the grid is feasible")
    best = table.loc[table["value"].idxmin()]
    problem = made(**{name: float(best[name]) for name in own})
    set_parameters(problem, {name: float(best[name]) for name in rest})
    found: Result = problem.solve(solver, **options)
    return replace(found, table=table.sort_values("value", kind="stable", ignore_index=True))


class _Task:
    """Solve the programs of one point of what `build` takes; holds the programs inside HiGHS, one a structure."""

    def __init__(self, build: Callable[..., Any], axes: Mapping[str, Sequence[float]]) -> None:
        self._build, self._axes, self._sweep = build, axes, Sweep()
        self._places = np.array(list(itertools.product(*axes.values())), dtype=float)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sweep": Sweep()}  # workers make their own

    def __call__(self, point: Mapping[str, float]) -> list[float | None]:
        problem = instance("build", self._build(**point), Problem, NoneType)
        if problem is None:
            return [None] * len(self._places)
        if hasattr(problem, "swept"):
            found = problem.swept(dict(zip(self._axes, self._places.T)), self._sweep).tolist()
        else:
            found = list(self._solved(problem))
        return [None if np.isnan(value) else value for value in found]

    def _solved(self, problem: Any) -> Iterator[float]:
        """The values of the problem's points, each solved by itself."""
        for place in self._places:
            set_parameters(problem, dict(zip(self._axes, place.tolist())))
            try:
                yield problem.solve(certify=False, progress=False).value
            except InfeasibleError:
                yield np.nan


def parameters_of(problem: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The problem's CVXPY parameters of these names."""
    held = {p.name(): p for p in getattr(problem, "parameters", ())}
    for name in names:
        if name not in held or held[name].size != 1:
            allowed = f"must be an argument of build, or a number among the problem's parameters ({', '.join(held) or 'none'})"
            raise DesignError.of("axis", name, allowed)
    return {name: held[name] for name in names}


def set_parameters(problem: Any, values: Mapping[str, float]) -> None:
    """Give the problem's parameters of these names their values."""
    for name, parameter in parameters_of(problem, values).items():
        parameter.value = values[name]
