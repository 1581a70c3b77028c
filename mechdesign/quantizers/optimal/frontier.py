r"""Frontiers: how the least possible loss moves with ε, with the number of bits, or with any number of a design.

Each point is a result of its own, with its lower bound and its certificate, so the curve drawn is squeezed between what
a deployable mechanism achieves and the lower bound of every mechanism of the design's class. A design is solved with one of its numbers, or its privacy's,
varied; optimal quantizers also with their number of bits, and their tables have more columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, SolverError
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.handed import Handed
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
from mechdesign.problem.checks import array, instance, one_of
from mechdesign.problem.spine import Design
from mechdesign.problem.words import loss_words, prior_words
from mechdesign.quantizers.optimal.bin_search import Alphabet, BinSearch
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.solvers.deadline import Deadline, progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ["value", "lower_bound", "gap", "absolute", "squared", "epsilon_upper", "seconds"]
COLUMNS += ["outputs", "certified", "note"]
_COMMON, _OWN = ["value", "lower_bound", "gap", "seconds", "certified", "note"], ("seconds", "note")
# Outputs up to which a point's certificate is checked.
_CHECKED = 64
_LATE = "no answer within its share of the time limit"
AXES = {"epsilon": "privacy budget ε", "bits": "number of bits", "max_mse": "expected squared error"}


@serializable("frontier")
@dataclass(frozen=True, eq=False)
class Frontier(Handed):
    """A certified curve.

    Parameters
    ----------
    design : Design
        What is common to all points.
    over : str
        What varies.
    table : DataFrame
        A row per point: the axis, value, lower_bound, gap, certified, seconds; of optimal quantizers absolute and squared
        error, number of outputs and exact ε (rounded up) too. Points that are infeasible have NaN values and say why in
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
        columns = [self.over, *(COLUMNS if self._quantizers else _COMMON)]
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
                    fits = same(_varied(self.design, self.over, float(row[self.over])), result.design)
                    fresh = self._fresh(result)
            except MechdesignError:
                fits, fresh = False, {}
            rows.append(agreement(f"{name}: the result is of the design at this point", PROVED, fits))
            shown = [k for k in fresh if k not in _OWN and (k, bool(row[k])) != ("certified", False)]
            claim = f"{name}: the table shows its "
            rows += [agreement(claim + k, RECOMPUTED, close(row[k], fresh[k])) for k in shown]
        blank = self.table[self.table["value"].isna()][
            [c for c in list(self.table)[1:] if whole and c not in _OWN]
        ]
        whole = whole and bool((blank.isna() | (blank == 0)).all(axis=None))
        rows.append(agreement("every point that the table shows solved has a result", PROVED, whole))
        return [*rows, agreement(OWN_WORDS, CLAIMED, True)]

    def _fresh(self, result: Result) -> dict[str, Any]:
        """A row computed from its result; one that is stated not to be certified may be."""
        return _row(result, _verified(result, True))

    def _solved(self) -> pd.DataFrame:
        return self.table[self.table["value"].notna()]

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()

    def plot(self, **options: float) -> Figure:
        """Draw value and lower bound against the axis (absolute against squared error for "max_mse")."""
        from mechdesign.plotting import COLOURS, figure, plain, sized

        fig, axis = figure(**sized(options, 5.2, 3.6))
        table = self._solved()
        x = "squared" if self.over == "max_mse" else self.over
        axis.plot(table[x], table["value"], "o-", color=COLOURS[0], label="certified mechanisms")
        if table["lower_bound"].notna().any():
            axis.plot(table[x], table["lower_bound"], "--", color=COLOURS[1], label="proved bound")
        axis.set(xlabel=plain(self._axis), ylabel=plain(self._measure))
        if self.over == "bits":
            axis.set_xticks(table["bits"].tolist())
        axis.legend(frameon=False)
        return fig

    @property
    def _quantizers(self) -> bool:
        return isinstance(self.design, OptimalQuantizer)

    @property
    def _axis(self) -> str:
        return AXES.get(self.over, self.over)

    @property
    def _among(self) -> str:
        """Of which mechanisms the lower bounds speak; where points differ, of all of these classes."""
        found = dict.fromkeys(str(one.among) for one in self.members.values() if one.among is not None)
        return "; ".join(found) or str(self.design.among)

    @property
    def _headings(self) -> dict[str, str]:
        return {"lower_bound": f"lower bound of {self._among}"}

    @property
    def _measure(self) -> str:
        if not self._quantizers:
            return f"value of {type(self.design).__name__}"
        kind = "largest" if self.design.objective == "worst" else "expected"
        return f"{kind} {loss_words(self.design.loss)}"

    def _page(self) -> Page:
        solved = self._solved()
        question = (
            f"How the {self._measure} moves with the {self._axis}. Every point is a result of its own: the curve runs between "
            f"what a mechanism that can be deployed reaches and, where it is proved, the lower bound of {self._among}."
        )
        if self._quantizers:
            question += (
                f"\n\nInputs follow {prior_words(self.design.prior)}. The unit of privacy is one report of one person, "
                "randomized before it leaves the device."
            )
        certified = int(solved["certified"].astype(bool).sum())
        facts = [
            ("Points", str(len(self.table)), f"{len(solved)} feasible"),
            ("Certified", f"{certified} of {len(solved)}", "law checked in exact arithmetic"),
            (
                "Largest gap",
                at_most(float(solved["gap"].max()), 2) if solved["gap"].notna().any() else "–",
                "relative, proved",
            ),
        ]
        columns = [c for c in self.table.columns if c != "seconds"]
        return {
            "title": f"{self._measure[0].upper()}{self._measure[1:]} against the {self._axis}",
            "subtitle": f"A certified frontier of {type(self.design).__name__}.",
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

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False, float_format=lambda v: f"{v:.6g}"))


def frontier(
    design: Design,
    over: str = "epsilon",
    values: Sequence[float] | None = None,
    *,
    gap: float | None = None,
    verify: bool = True,
    time_limit: float | None = None,
) -> Frontier:
    """Solve a design along an axis.

    Parameters
    ----------
    design : Design
        Any. Of an `OptimalQuantizer`, for "bits", its bins are a `BinSearch` or `Alphabet` (whose range is kept) or outputs
        (whose largest absolute value is); b bits mean 2^b outputs: searched for a `BinSearch`, spread evenly otherwise.
    over : str
        "epsilon" or another number of the design or of its privacy ("max_mse", "alpha", "delta", "dimension", …); of an
        optimal quantizer also "bits".
    values : sequence of float, optional
        Needed, but for an optimal quantizer's "epsilon" (0.5 … 5), "bits" (1 … 6) and "max_mse" (nine caps from the least
        possible MSE to the one that no longer binds).
    gap : float, optional
        Relative gap of every point; each design's own by default.
    verify : bool
        Check every certificate in exact arithmetic (for up to 64 outputs).
    time_limit : float, optional
        Seconds for the whole curve, of which every point may take an equal share of what is left. A point holds what it
        reached, with its proved gap; one that reached nothing, or was not verified in time, says so in `note`.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.problem.privacy import PureDP
    >>> design = OptimalQuantizer(bins=[-3, -0.5, 0.5, 3], privacy=PureDP(1.0), prior=stats.uniform(-1, 2))
    >>> frontier(design, "epsilon", [1.0, 1.5]).table["value"].round(4).tolist()
    [1.7005, 1.0329]
    """
    instance("design", design, Design)
    one_of("verify", verify, (True, False))
    deadline, quantizer = Deadline(time_limit), isinstance(design, OptimalQuantizer)
    numbers = dict.fromkeys(
        (*(("bits",) if quantizer else ()), *_numbers(design), *_numbers(getattr(design, "privacy", None)))
    )
    name = one_of("over", over, tuple(numbers))
    if values is None and not (quantizer and name in AXES):
        raise DesignError.of("values", values, f"must be the values of {name} to solve at")
    points = (
        _default(instance("design", design, OptimalQuantizer), name, gap, deadline)
        if values is None
        else array("values", values).tolist()
    )
    if quantizer and min(points) <= 0:
        raise DesignError.of("values", values, "must be positive numbers")
    rows, results = [], []
    with progress_bar(f"frontier over {name}", len(points)) as step:
        for i, value in enumerate(points):
            share = deadline.part(1 / (len(points) - i))
            row, result = _point(_varied(design, name, value), gap, verify, share)
            rows.append({name: value, **row})
            results.append(result)
            step()
    return Frontier(design, name, pd.DataFrame(rows), tuple(results))


def _point(
    design: Design, gap: float | None, verify: bool, share: Deadline
) -> tuple[dict[str, Any], Result | None]:
    try:
        result = design.solve(gap=gap, time_limit=share.part(0.8).limit())
    except MechdesignError as error:
        columns = COLUMNS if isinstance(design, OptimalQuantizer) else _COMMON
        own = {"outputs": 0, "certified": False, "note": _unsolved(error, share)}
        return {name: own.get(name, np.nan) for name in columns}, None
    late = verify and result.certificate is not None and share.passed
    notes = (*result.notes, *(("not verified in time",) if late else ()))
    return _row(result, not late and _verified(result, verify), notes), result


def _unsolved(error: MechdesignError, share: Deadline) -> str:
    """Why a point has no answer; any other error than these is one of the whole curve."""
    if isinstance(error, InfeasibleError):
        return error.reason
    if isinstance(error, SolverError) and share.passed:
        return _LATE
    raise error


def _verified(result: Result, verify: bool) -> bool:
    """Whether a point is certified; certificates of many outputs are not checked, as that takes longer than the curve."""
    many = len(getattr(result.mechanism, "bins", ())) > _CHECKED
    return result.certificate is not None and (many or not verify or result.certificate.verify())


def _row(result: Result, certified: bool, notes: Sequence[str] = ()) -> dict[str, Any]:
    design, mechanism = result.design, result.mechanism
    row = {
        "value": result.value,
        "lower_bound": np.nan if result.lower_bound is None else result.lower_bound,
        "gap": np.nan if result.gap is None else result.gap,
        "seconds": result.solver_report.seconds,
        "certified": certified,
        "note": "; ".join(notes),
    }
    if not isinstance(design, OptimalQuantizer):
        return row
    row |= {
        "absolute": mechanism.expected_loss(design.prior, "absolute"),
        "squared": mechanism.expected_loss(design.prior, "squared"),
        "epsilon_upper": mechanism.privacy_loss(),
        "outputs": len(mechanism.bins),
    }
    return {name: row[name] for name in COLUMNS}


def _varied(design: Any, over: str, value: float) -> Any:
    """The design with one number of its own, or of its privacy, at this value; or with that many bits."""
    if over == "bits" and isinstance(design, OptimalQuantizer):
        return _with_bits(design, value)
    own = _numbers(design)
    number = int(value) if value == int(value) and own.get(over) is int else value
    if over in own:
        return replace(design, **{over: number})
    return replace(design, privacy=replace(design.privacy, **{over: number}))


def _with_bits(design: OptimalQuantizer, value: float) -> OptimalQuantizer:
    if value != int(value) or not 1 <= value <= 10:
        raise DesignError.of("values", value, "bits must be integers from 1 to 10")
    m = 2 ** int(value)
    if isinstance(design.bins, BinSearch) and m <= 64:
        return design.at(bins=replace(design.bins, m=m))
    spread = isinstance(design.bins, (BinSearch, Alphabet))
    R = design.bins.max_abs if spread else float(np.abs(design.bins).max())
    return design.at(bins=tuple(np.linspace(-R, R, m).tolist()))


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


def _default(design: OptimalQuantizer, over: str, gap: float | None, deadline: Deadline) -> list[float]:
    if over == "epsilon":
        return [0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0]
    if over == "bits":
        return [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    free = design.at(max_mse=None).solve(gap=gap, time_limit=deadline.part(0.1).limit())
    least = design.at(max_mse=None, loss="squared").solve(gap=gap, time_limit=deadline.part(0.1).limit())
    top = free.mechanism.expected_loss(design.prior, "squared")
    return list(map(float, np.linspace(least.value * (1 + 1e-6), top, 9)))
