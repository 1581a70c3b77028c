r"""Search over nonconvex parameters: a grid of points, each a problem, solved from the last one's basis; the best is certified.

**Sweeps**: the least possible loss as a function of ε, of the number of bits, or of any number of a problem. Each point is a result of its own, with its
lower bound and its certificate, so the curve lies between the value of a deployable mechanism and the lower bound of every mechanism of
the problem's class.
"""

from __future__ import annotations

import inspect
import itertools
import math
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.checks import Checked, array, field, instance, one_of, refuse, refusing
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, ResultFormatError, SolverError
from mechdesign.evidence import proofs
from mechdesign.evidence.digits import folded, gap_words, width
from mechdesign.evidence.page import Exportable, Page, Section
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import encode, serializable
from mechdesign.model.grid import Grid, swept
from mechdesign.model.problem import Problem
from mechdesign.problem.spine import Design
from mechdesign.solvers.deadline import Deadline, progress_bar
from mechdesign.solvers.linear_program import Programs, Sweep
from mechdesign.typing import Array, Figure

Row = list[float | None]
"""Values that compare the points of a sweep; None if infeasible."""


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
        Maps a point of the grid, by keywords, to its problem, or to None. Axes that it does not take are names of the problem's
        CVXPY parameters, each a number: for a selection the problems at all their values share one compiled program.
    grid : Grid
    solver, **options
        Passed to the last solve, at the best point.
    store : path, optional
        File of finished points of the axes that `build` takes; a killed search continues from it. It is bound to the name of `build`, the grid, and
        the numbers of the first problem; the best point is solved again, and a file that holds another value of it is refused.
    jobs, backend
        joblib's worker count and backend ("loky", "threading", "dask", "ray").
    bar : bool
        Whether to show a progress bar on a terminal.
    time_limit : float, optional
        Seconds, after which the best point so far is solved.

    Raises
    ------
    InfeasibleError
        No point has a solution, and the first is proved infeasible.

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
    allowed = "must be a Problem, or a function from a point of the grid to one"
    refuse(not callable(build) and not isinstance(build, Problem), "build", build, allowed)
    made: Callable[..., Any] = (lambda: build) if isinstance(build, Problem) else build
    clock = Deadline(time_limit)
    with refusing("build", build, "must be a function whose parameters are known", ValueError):
        taken = inspect.signature(made).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    own = [name for name in grid.axes if free or name in taken]
    rest = [name for name in grid.axes if name not in own]
    points = [dict(zip(own, v)) for v in itertools.product(*(grid.axes[name] for name in own))]
    allowed = "shares parameters among points; let build take all axes, or use loky"
    refuse(rest and backend == "threading", "backend", backend, allowed)
    first = made(**points[0])
    task = Sweeping(lambda point: made(**point), {name: grid.axes[name] for name in rest})
    definition: dict[str, Any] = {"build": getattr(made, "__qualname__", ""), "axes": grid.axes}
    if store is not None and first is not None:
        with at_values(first, {name: grid.axes[name][0] for name in rest}):
            definition["first"] = [str(first), encode(first)]
    rows = swept(
        task, points, what="points", definition=definition, store=store, jobs=jobs, backend=backend, bar=bar,
        deadline=clock, together=hasattr(first, "points"),
    )  # fmt: skip
    if store is not None:
        _check_store(store, task, points, rows)
    places = list(itertools.product(*(grid.axes[name] for name in rest)))
    if not rest:  # the best over each problem's own search
        rows = [[min((value for value in row if value is not None), default=None)] for row in rows]
    tried = [(*p.values(), *at, value) for p, row in zip(points, rows) for at, value in zip(places, row)]
    table = pd.DataFrame(tried, columns=[*own, *rest, "value"]).astype({"value": float})
    if table["value"].isna().all():
        clock.hold("search")
        refuse(first is None, "build", made, "gives no problem at any point of the grid: widen it")
    best = table.loc[table["value"].fillna(math.inf).idxmin()]
    problem = made(**{name: float(best[name]) for name in own})
    with at_values(problem, {name: float(best[name]) for name in rest}):
        found: Result = problem.solve(solver, **options)
    return replace(found, table=table.sort_values("value", kind="stable", ignore_index=True))


def _check_store(
    store: str | os.PathLike[str], task: Sweeping, points: Sequence[Any], rows: Sequence[Row]
) -> None:
    """Raise ResultFormatError if the store's best point has another value now: `build` has changed after its first point."""
    least = [min((value for value in row if value is not None), default=math.inf) for row in rows]
    at = least.index(min(least))
    fresh = min((value for value in task([points[at]])[0] if value is not None), default=math.inf)
    if not math.isclose(fresh, least[at], rel_tol=1e-6):
        raise ResultFormatError(
            f"{store}: holds another search, whose best point has the value {least[at]:.9g}, now {fresh:.9g}; "
            "use another file or delete it"
        )


class Sweeping:
    """Solve the programs of some points, all stated before any is solved; holds one program inside HiGHS for each structure.

    Parameters
    ----------
    build : callable
        Maps a point to its problem, or None.
    axes : mapping of str to numbers
        Values of the problems' parameters; a row holds a value for each of their combinations.
    judge : bool
        Whether the problem evaluates a program's solution; if not, the program's own objective does.
    """

    def __init__(
        self, build: Callable[[Any], Any], axes: Mapping[str, Sequence[float]], *, judge: bool = True
    ) -> None:
        self._build, self._axes, self._judge, self._sweep = build, axes, judge, Sweep()
        self._places = np.array(list(itertools.product(*axes.values())), dtype=float)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sweep": Sweep()}  # workers make their own

    def __call__(self, points: Sequence[Any]) -> list[Row]:
        problems: list[Any] = [instance("build", self._build(point), Problem, NoneType) for point in points]
        values = dict(zip(self._axes, self._places.T))
        stated = [one.points(values) if hasattr(one, "points") else None for one in problems]
        return [self._row(problem, held) for problem, held in zip(problems, stated)]

    def _row(self, problem: Any, stated: tuple[Programs, Callable[..., Array]] | None) -> Row:
        if problem is None or stated is None:
            return [problem and self._solved(problem, place) for place in self._places.tolist()]
        programs, scores = stated
        values, found = self._sweep(programs)
        compared = scores(values, found) if self._judge else values
        return [None if np.isnan(value) else value for value in compared.tolist()]

    def _solved(self, problem: Any, place: list[float]) -> float | None:
        """Return the value at one point of the parameters, solved by itself; None if infeasible."""
        with at_values(problem, dict(zip(self._axes, place))), suppress(InfeasibleError):
            value: float = problem.solve(certify=False, progress=False).value
            return value
        return None


def parameters_of(problem: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the problem's CVXPY parameters of these names."""
    parameters = getattr(problem, "parameters", ())
    held = {p.name(): p for p in parameters}
    for name in names:
        allowed = f"must be an argument of build, or a number among the problem's parameters ({', '.join(held) or 'none'})"
        refuse(name not in held or held[name].size != 1, "axis", name, allowed)
        if sum(p.name() == name for p in parameters) > 1:
            raise DesignError.of("axis", name, "is the name of several parameters: give each its own")
    return {name: held[name] for name in names}


@contextmanager
def at_values(problem: Any, values: Mapping[str, float]) -> Iterator[None]:
    """Give the problem's parameters of these names these values within the context, and their former ones afterwards."""
    held = parameters_of(problem, values)
    before = [(parameter, parameter.value) for parameter in held.values()]
    try:
        for name, parameter in held.items():
            try:
                parameter.value = values[name]
            except ValueError:
                raise DesignError.of(
                    name,
                    values[name],
                    "is outside what the parameter's attributes, such as nonneg=True, allow: leave it out",
                ) from None
        yield
    finally:
        for parameter, value in before:
            parameter.save_value(value)


# -- sweeps ----------------------------------------------------------------------------------------------------

COLUMNS = ["value", "lower_bound", "gap", "seconds", "certified", "note"]
_OWN = ("seconds", "note")
_AXES = {"epsilon": "privacy budget ε", "max_mse": "expected squared error"}
# Largest number of outputs for which a point's certificate is checked.
_CHECKED = 64
_LATE = "no answer within its share of the time limit"


@serializable("frontier", eq=False)
class Frontier(Checked, Exportable):
    """A certified curve: what `sweep` returns.

    Parameters
    ----------
    design : Design or None
        Design common to all points; None if a function or CVXPY's parameters define them.
    over : str
        Name of the axis.
    table : DataFrame
        A row per point: the axis, value, lower_bound, gap, seconds, certified. Infeasible points have NaN values and the reason in
        `note`.
    results : tuple of Result or None
        Results, point by point; None if a point is infeasible.
    """

    design: Any
    over: str = field(str)
    table: pd.DataFrame = field(pd.DataFrame)
    results: tuple[Result | None, ...] = field(Result, NoneType, many=True, default=())

    def _post_check(self) -> None:
        columns, count, points = [self.over, *COLUMNS], len(self.results), len(self.table)
        refuse(list(self.table) != columns, "table", list(self.table), f"must have the columns {columns}")
        refuse(count not in (0, points), "results", count, f"must be one per point: {points}")

    @property
    def members(self) -> dict[str, Result]:
        """Return the results by the names of their points."""
        names = (f"{self.over} = {x:.12g}" for x in self.table[self.over])
        return {name: result for name, result in zip(names, self.results) if result is not None}

    def agreements(self) -> list[proofs.Claim]:
        """Return claims that each point's result is of the design at that point, and that the table agrees with the result."""
        rows: list[proofs.Claim] = []
        whole = [r is not None for r in self.results] == [*self.table["value"].notna()]
        for (name, result), (_, row) in zip(self.members.items(), self._solved().iterrows() if whole else ()):
            try:
                with proofs.fitting():
                    fits = self.design is None or proofs.same(
                        _varied(self.design, self.over, float(row[self.over])), result.design
                    )
                    fresh = _row(result, _verified(result))
            except MechdesignError:
                fits, fresh = False, {}
            how = proofs.CLAIMED if self.design is None else proofs.PROVED
            rows.append(proofs.agreement(f"{name}: the result is of the design at this point", how, fits))
            # a point stated as not certified may be certified
            shown = [k for k in fresh if k not in _OWN and (k, bool(row[k])) != ("certified", False)]
            claim = f"{name}: the table shows its "
            rows += [
                proofs.agreement(claim + k, proofs.RECOMPUTED, proofs.close(row[k], fresh[k])) for k in shown
            ]
        blank = self.table[self.table["value"].isna()][
            [c for c in list(self.table)[1:] if whole and c not in _OWN]
        ]
        whole = whole and bool((blank.isna() | (blank == 0)).all(axis=None))
        rows.append(
            proofs.agreement("every point that the table shows solved has a result", proofs.PROVED, whole)
        )
        return [*rows, proofs.agreement(proofs.OWN_WORDS, proofs.CLAIMED, True)]

    def _solved(self) -> pd.DataFrame:
        return self.table[self.table["value"].notna()]

    def to_frame(self) -> pd.DataFrame:
        """Return the table."""
        return self.table.copy()

    def plot(self, **options: float) -> Figure:
        """Draw value and lower bound against the axis."""
        from mechdesign.plotting import draw_curves, plain

        table = self._solved()
        curves = {"certified mechanisms": (table[self.over], table["value"])}
        if table["lower_bound"].notna().any():
            curves["proved bound"] = table[self.over], table["lower_bound"]
        return draw_curves(curves, options, "-", xlabel=plain(self._axis), ylabel=plain(self._measure))

    @property
    def _axis(self) -> str:
        return _AXES.get(self.over, self.over)

    @property
    def _covered(self) -> str:
        """Return the class of mechanisms that the lower bounds cover, or all classes if points differ."""
        found = dict.fromkeys(str(r.mechanism_class) for r in self.members.values() if r.mechanism_class)
        return "; ".join(found) or "every mechanism of the design's class"

    @property
    def _headings(self) -> dict[str, str]:
        return {"lower_bound": f"lower bound of {self._covered}"}

    @property
    def _measure(self) -> str:
        return next((str(one.design.describe(one).loss) for one in self.members.values()), "value")

    def _page(self) -> Page:
        solved, first = self._solved(), [*self.members.values()][:1]
        certified = int(solved["certified"].astype(bool).sum())
        gap = gap_words(float(solved["gap"].max())) if solved["gap"].notna().any() else "–"
        facts = [
            ("Points", str(len(self.table)), f"{len(solved)} feasible"),
            ("Certified", f"{certified} of {len(solved)}", "law checked in exact arithmetic"),
            ("Largest gap", gap, "(value − lower bound)/value, proved"),
        ]
        title = f"{self._measure[:1].upper()}{self._measure[1:]} against the {self._axis}"
        caption = f"Certified mechanisms, and the lower bound of {self._covered}."
        more = [Section("What was asked at the first point", one.question()) for one in first]
        return self._paged(title, self._lines(), caption, facts, more)

    def _lines(self) -> list[str]:
        noted = self.table[self.table["note"].astype(bool)]
        notes = (f"{self.over} = {x:.6g}: {note}" for x, note in zip(noted[self.over], noted["note"]))
        return [f"frontier over {self.over}; lower bounds are of {self._covered}", *notes]

    def __str__(self) -> str:
        table, (head, *notes) = self.table.drop(columns="note"), map(folded, self._lines())
        return "\n".join([head, table.to_string(index=False, line_width=width()), *notes])


def sweep(
    build: Callable[..., Design] | Design,
    *,
    gap: float | None = None,
    time_limit: float | None = None,
    **axis: Sequence[float],
) -> Frontier:
    """Solve at every value of a number, and return table and plot: value, bound, gap.

    Parameters
    ----------
    build : function, Problem, or Design
        A function that maps a value, by keyword, to a problem or design; a problem with a CVXPY parameter of that name; or a design with a number of that
        name, its own or its privacy's ("epsilon", "max_mse", "alpha", "delta", "dimension", …).
    gap : float, optional
        Relative gap of every point; each design's own by default.
    time_limit : float, optional
        Seconds for the whole curve; every point may take an equal share of the remaining time. A point holds its best
        result by then, with its proved gap; `note` marks points without a result, or not verified in time.
    **axis : sequence of numbers
        The values, by the name of the axis.

    Examples
    --------
    >>> import mechdesign as md
    >>> from scipy import stats
    >>> design = md.OptimalQuantizer([-3, -0.5, 0.5, 3], md.PureDP(1.0), stats.uniform(-1, 2))
    >>> sweep(design, epsilon=[1.0, 1.5]).table["value"].round(4).tolist()
    [1.7005, 1.0329]

    A function says what each number means; an infeasible point is a row with its reason.

    >>> def build(cap):
    ...     P = md.Table([-1, 1], [-2, 0, 2])
    ...     return md.Problem(md.Minimize(P.expected()), [P.private(md.PureDP(1.5)), P.unbiased(), P[:, 1] <= cap])
    >>> sweep(build, cap=[-0.1, 0.0, 0.3]).table[["cap", "value", "gap"]].round(4)
       cap   value  gap
    0 -0.1     NaN  NaN
    1  0.0  1.5000  0.0
    2  0.3  1.2872  0.0
    """
    allowed = "must be a design, a Problem, or a function from a number to one"
    refuse(not callable(build) and not isinstance(build, Design), "build", build, allowed)
    refuse(len(axis) != 1, "axis", sorted(axis), "must be one: its name and values, such as epsilon=[0.5, 1]")
    ((name, values),) = axis.items()
    if hasattr(build, "to_fields") and not isinstance(build, Problem):
        given: Any = build  # as its file has it: a plan's weights, at every point
        build = replace(given, **given.to_fields())
    points, deadline = array(name, values).tolist(), Deadline(time_limit)
    rows, results = [], []
    with (
        closing(_designs(build, name, list(values))) as designs,
        progress_bar(f"sweep over {name}", len(points)) as step,
    ):
        for i, design in enumerate(designs):
            row, result = _point(design, gap, deadline.part(1 / (len(points) - i)))
            rows.append({name: points[i], **row})
            results.append(result)
            step()
    common = build if isinstance(build, Design) and not isinstance(build, Problem) else None
    return Frontier(common, name, pd.DataFrame(rows), tuple(results))


def _designs(build: Any, name: str, values: Sequence[float]) -> Generator[Design]:
    """Yield the design of each value."""
    if isinstance(build, Design) and not isinstance(build, Problem):
        one_of("axis", name, tuple(_numbers(build) | _numbers(getattr(build, "privacy", None))))
    for value in values:
        if isinstance(build, Problem):
            with at_values(build, {name: float(value)}):
                yield build
        elif isinstance(build, Design):
            yield _varied(build, name, float(value))
        else:
            yield instance("build", build(**{name: value}), Design)


def _point(design: Design, gap: float | None, share: Deadline) -> tuple[dict[str, Any], Result | None]:
    try:
        result = design.solve(gap=gap, time_limit=share.part(0.8).limit())
    except MechdesignError as error:
        own = {"certified": False, "note": _unsolved(error, share)}
        return {name: own.get(name, np.nan) for name in COLUMNS}, None
    late = result.certificate is not None and share.passed
    notes = (*result.notes, *(("not verified in time",) if late else ()))
    return _row(result, not late and _verified(result), notes), result


def _unsolved(error: MechdesignError, share: Deadline) -> str:
    """Return why a point has no result; raise any other error, which concerns the whole curve."""
    if isinstance(error, InfeasibleError):
        return error.reason
    if isinstance(error, SolverError) and share.passed:
        return _LATE
    if getattr(error, "status", "") in ("check", "repair"):  # of this point, not of the solver
        return str(error)
    raise error


def _verified(result: Result) -> bool:
    """Return whether a point is certified; certificates of many outputs are not checked, as that takes longer than the curve."""
    many = len(getattr(result.mechanism, "bins", ())) > _CHECKED
    return result.certificate is not None and (many or result.certificate.verify())


def _row(result: Result, certified: bool, notes: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "value": result.value,
        "lower_bound": np.nan if result.lower_bound is None else result.lower_bound,
        "gap": np.nan if result.gap is None else result.gap,
        "seconds": result.solver_report.seconds,
        "certified": certified,
        "note": "; ".join(notes),
    }


def _varied(design: Any, over: str, value: float) -> Any:
    """Return the design with one number of its own, or of its privacy, set to this value."""
    own = _numbers(design)
    number = int(value) if value == int(value) and own.get(over) is int else value
    if over in own:
        return replace(design, **{over: number})
    return replace(design, privacy=replace(design.privacy, **{over: number}))


def _numbers(value: object) -> dict[str, type]:
    """Return the fields that hold a number, or may hold one, with its type."""
    left_open = {"int | None": int, "float | None": float}
    found: dict[str, type] = {}
    for f in fields(value) if is_dataclass(value) else ():
        held = getattr(value, f.name)
        if held is None and f.type in left_open:
            found[f.name] = left_open[str(f.type)]
        elif isinstance(held, (int, float)) and not isinstance(held, bool):
            found[f.name] = int if isinstance(held, int) else float
    return found
