r"""Sweeps: how the least possible loss moves with ε, with the number of bits, or with any number of a problem.

Each point is a result of its own, with its lower bound and its certificate, so the curve drawn is squeezed between what
a deployable mechanism achieves and the lower bound of every mechanism of the problem's class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, SolverError
from mechdesign.evidence.digits import gap_words
from mechdesign.evidence.exportable import Exportable
from mechdesign.evidence.page import Page, Section, versions
from mechdesign.evidence.proofs import (
    CLAIMED,
    OWN_WORDS,
    PROVED,
    RECOMPUTED,
    Claim,
    agreement,
    close,
    fitting,
    same,
)
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import serializable
from mechdesign.model.problem import Problem
from mechdesign.model.search import set_parameters
from mechdesign.problem.checks import array, instance, one_of
from mechdesign.problem.spine import Design
from mechdesign.solvers.deadline import Deadline, progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ["value", "lower_bound", "gap", "seconds", "certified", "note"]
_OWN = ("seconds", "note")
_AXES = {"epsilon": "privacy budget ε", "max_mse": "expected squared error"}
# Outputs up to which a point's certificate is checked.
_CHECKED = 64
_LATE = "no answer within its share of the time limit"


@serializable("frontier")
@dataclass(frozen=True, eq=False)
class Frontier(Exportable):
    """A certified curve: what `sweep` returns.

    Parameters
    ----------
    design : Design or None
        What is common to all points; None where a function or CVXPY's parameters say it.
    over : str
        What varies.
    table : DataFrame
        A row per point: the axis, value, lower_bound, gap, seconds, certified. Points that are infeasible have NaN values and say why in
        `note`.
    results : tuple of Result or None
        What was solved, point by point; None where a point is infeasible.
    """

    design: Any
    over: str
    table: pd.DataFrame
    results: tuple[Result | None, ...] = ()

    def __post_init__(self) -> None:
        for result in instance("results", self.results, tuple):
            instance("results", result, Result, NoneType)
        columns = [self.over, *COLUMNS]
        if list(instance("table", self.table, pd.DataFrame)) != columns:
            raise DesignError.of("table", list(self.table), f"must have the columns {columns}")
        if self.results and len(self.results) != len(self.table):
            raise DesignError.of("results", len(self.results), f"must be one a point: {len(self.table)}")

    @property
    def members(self) -> dict[str, Result]:
        """The results by the name of their point."""
        names = (f"{self.over} = {x:.12g}" for x in self.table[self.over])
        return {name: result for name, result in zip(names, self.results) if result is not None}

    def agreements(self) -> list[Claim]:
        """Whether each point's result is of the design at that point, and the table shows what follows from the result."""
        rows: list[Claim] = []
        whole = [r is not None for r in self.results] == [*self.table["value"].notna()]
        for (name, result), (_, row) in zip(self.members.items(), self._solved().iterrows() if whole else ()):
            try:
                with fitting():
                    fits = self.design is None or same(
                        _varied(self.design, self.over, float(row[self.over])), result.design
                    )
                    fresh = _row(result, _verified(result, True))
            except MechdesignError:
                fits, fresh = False, {}
            how = CLAIMED if self.design is None else PROVED
            rows.append(agreement(f"{name}: the result is of the design at this point", how, fits))
            # one that is stated not to be certified may be
            shown = [k for k in fresh if k not in _OWN and (k, bool(row[k])) != ("certified", False)]
            claim = f"{name}: the table shows its "
            rows += [agreement(claim + k, RECOMPUTED, close(row[k], fresh[k])) for k in shown]
        blank = self.table[self.table["value"].isna()][
            [c for c in list(self.table)[1:] if whole and c not in _OWN]
        ]
        whole = whole and bool((blank.isna() | (blank == 0)).all(axis=None))
        rows.append(agreement("every point that the table shows solved has a result", PROVED, whole))
        return [*rows, agreement(OWN_WORDS, CLAIMED, True)]

    def _solved(self) -> pd.DataFrame:
        return self.table[self.table["value"].notna()]

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()

    def plot(self, **options: float) -> Figure:
        """Draw value and lower bound against the axis."""
        from mechdesign.plotting import COLOURS, figure, plain, sized

        fig, axis = figure(**sized(options, 5.2, 3.6))
        table = self._solved()
        axis.plot(table[self.over], table["value"], "o-", color=COLOURS[0], label="certified mechanisms")
        if table["lower_bound"].notna().any():
            axis.plot(table[self.over], table["lower_bound"], "--", color=COLOURS[1], label="proved bound")
        axis.set(xlabel=plain(self._axis), ylabel=plain(self._measure))
        axis.legend(frameon=False)
        return fig

    @property
    def _axis(self) -> str:
        return _AXES.get(self.over, self.over)

    @property
    def _among(self) -> str:
        """Of which mechanisms the lower bounds speak; where points differ, of all of these classes."""
        found = dict.fromkeys(str(one.among) for one in self.members.values() if one.among is not None)
        return "; ".join(found) or "every mechanism of the design's class"

    @property
    def _headings(self) -> dict[str, str]:
        return {"lower_bound": f"lower bound of {self._among}"}

    @property
    def _measure(self) -> str:
        return next((str(one.design.describe(one).loss) for one in self.members.values()), "value")

    def _page(self) -> Page:
        solved = self._solved()
        question = (
            f"How the {self._measure} moves with the {self._axis}. Every point is a result of its own: the curve runs between "
            f"what a mechanism that can be deployed reaches and, where it is proved, the lower bound of {self._among}."
        )
        for first in [*self.members.values()][:1]:
            question += f"\n\nThe first point: {first.question()}"
        certified = int(solved["certified"].astype(bool).sum())
        facts = [
            ("Points", str(len(self.table)), f"{len(solved)} feasible"),
            ("Certified", f"{certified} of {len(solved)}", "law checked in exact arithmetic"),
            (
                "Largest gap",
                gap_words(float(solved["gap"].max())) if solved["gap"].notna().any() else "–",
                "(value − lower bound)/value, proved",
            ),
        ]
        columns = [c for c in self.table.columns if c != "seconds"]
        return {
            "title": f"{self._measure[:1].upper()}{self._measure[1:]} against the {self._axis}",
            "subtitle": "A certified frontier.",
            "kind": "mechdesign frontier",
            "facts": facts,
            "sections": (
                Section("What was asked", question),
                Section(
                    "The frontier",
                    figure=self.plot,
                    caption=f"Certified mechanisms, and the lower bound of {self._among}.",
                ),
                Section("Point by point", table=self.table[columns], caption="Every point of the curve"),
                Section("Versions", table=versions(), caption="What computed this"),
            ),
        }

    def __str__(self) -> str:
        return f"frontier over {self.over}; lower bounds are of {self._among}\n{self.table.to_string(index=False)}"


def sweep(
    build: Callable[..., Design] | Design,
    *,
    gap: float | None = None,
    verify: bool = True,
    time_limit: float | None = None,
    **axis: Sequence[float],
) -> Frontier:
    """Solve at every value of a number, and return table and plot: value, bound, gap.

    Parameters
    ----------
    build : function, Problem, or Design
        From a value, by keyword, to a problem or design; a problem with a CVXPY parameter of that name; or a design with a number of that
        name, its own or its privacy's ("epsilon", "max_mse", "alpha", "delta", "dimension", …).
    gap : float, optional
        Relative gap of every point; each design's own by default.
    verify : bool
        Check every certificate in exact arithmetic (for up to 64 outputs).
    time_limit : float, optional
        Seconds for the whole curve, of which every point may take an equal share of what is left. A point holds what it
        reached, with its proved gap; one that reached nothing, or was not verified in time, says so in `note`.
    **axis : sequence of numbers
        The values, by the name of what varies.

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
    one_of("verify", verify, (True, False))
    if not callable(build) and not isinstance(build, Design):
        raise DesignError.of(
            "build", build, "must be a design, a Problem, or a function from a number to one"
        )
    if len(axis) != 1:
        raise DesignError.of(
            "axis", sorted(axis), "must be one: its name and values, such as epsilon=[0.5, 1]"
        )
    ((name, values),) = axis.items()
    points, deadline = array(name, values).tolist(), Deadline(time_limit)
    rows, results = [], []
    with progress_bar(f"sweep over {name}", len(points)) as step:
        for i, design in enumerate(_designs(build, name, list(values))):
            row, result = _point(design, gap, verify, deadline.part(1 / (len(points) - i)))
            rows.append({name: points[i], **row})
            results.append(result)
            step()
    common = build if isinstance(build, Design) and not isinstance(build, Problem) else None
    return Frontier(common, name, pd.DataFrame(rows), tuple(results))


def _designs(build: Any, name: str, values: Sequence[float]) -> Iterator[Design]:
    """What is solved at each value."""
    if isinstance(build, Design) and not isinstance(build, Problem):
        one_of("axis", name, tuple(_numbers(build) | _numbers(getattr(build, "privacy", None))))
    for value in values:
        if isinstance(build, Problem):
            set_parameters(build, {name: float(value)})
            yield build
        elif isinstance(build, Design):
            yield _varied(build, name, float(value))
        else:
            yield instance("build", build(**{name: value}), Design)


def _point(
    design: Design, gap: float | None, verify: bool, share: Deadline
) -> tuple[dict[str, Any], Result | None]:
    try:
        result = design.solve(gap=gap, time_limit=share.part(0.8).limit())
    except MechdesignError as error:
        own = {"certified": False, "note": _unsolved(error, share)}
        return {name: own.get(name, np.nan) for name in COLUMNS}, None
    late = verify and result.certificate is not None and share.passed
    notes = (*result.notes, *(("not verified in time",) if late else ()))
    return _row(result, not late and _verified(result, verify), notes), result


def _unsolved(error: MechdesignError, share: Deadline) -> str:
    """Why a point has no answer; any other error than these is one of the whole curve."""
    if isinstance(error, InfeasibleError):
        return error.reason
    if isinstance(error, SolverError) and share.passed:
        return _LATE
    if getattr(error, "status", "") in ("check", "repair"):  # of this point, not of the solver
        return str(error)
    raise error


def _verified(result: Result, verify: bool) -> bool:
    """Whether a point is certified; certificates of many outputs are not checked, as that takes longer than the curve."""
    many = len(getattr(result.mechanism, "bins", ())) > _CHECKED
    return result.certificate is not None and (many or not verify or result.certificate.verify())


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
    """The design with one number of its own, or of its privacy, at this value."""
    own = _numbers(design)
    number = int(value) if value == int(value) and own.get(over) is int else value
    if over in own:
        return replace(design, **{over: number})
    return replace(design, privacy=replace(design.privacy, **{over: number}))


def _numbers(value: object) -> dict[str, type]:
    """Fields that hold a number, or would where they are left open, with its type."""
    left_open = {"int | None": int, "float | None": float}
    found: dict[str, type] = {}
    for f in fields(value) if is_dataclass(value) else ():
        held = getattr(value, f.name)
        if held is None and f.type in left_open:
            found[f.name] = left_open[str(f.type)]
        elif isinstance(held, (int, float)) and not isinstance(held, bool):
            found[f.name] = int if isinstance(held, int) else float
    return found
