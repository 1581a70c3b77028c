"""What `compare` returns: mechanisms ranked, each with its result, as a table, a figure and a page."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.choose.accuracies import Accuracy, accuracy_of, error_of
from mechdesign.choose.answers import check_answer, check_loss, check_same_privacy
from mechdesign.choose.questions import NumericQuery, Question
from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import PROVED, Check
from mechdesign.evidence.digits import shown
from mechdesign.evidence.handed import Handed
from mechdesign.evidence.page import Section, page
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import COLOURS, figure, plain, sized
from mechdesign.problem.checks import instance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLUMNS", "Comparison"]

COLUMNS = ["mechanism", "error", "ratio", "standard deviation", "mean absolute error", "95% half-width"]
COLUMNS += ["privacy", "bits", "assumes", "seconds", "note"]
_NUMBERS = ["error", "ratio", "standard deviation", "mean absolute error", "95% half-width"]


@serializable("comparison")
@dataclass(frozen=True, eq=False)
class Comparison(Handed):
    """Mechanisms for one question at one privacy, best first.

    Parameters
    ----------
    question : NumericQuery, LocalReport or MetricReport
    privacy : PureDP, ApproximateDP, ZeroConcentratedDP or MetricDP
    table : DataFrame
        A row per mechanism: error (the question's loss, of one coordinate), ratio (to the proved least, or to the best
        found where nothing is proved), standard deviation, mean absolute error and 95% half-width in the answer's own
        units, how the certificate checked its privacy, bits of a report, what it assumes, seconds; mechanisms that do not
        apply stand below, their reason in `note`.
    results : dict of str to Result
    least : float, optional
        No mechanism has a smaller error: proved.
    least_name : str
        Which mechanisms that speaks of.
    """

    question: Question
    privacy: Any
    table: pd.DataFrame
    results: dict[str, Result]
    least: float | None = None
    least_name: str = ""

    def __post_init__(self) -> None:
        for name, result in instance("results", self.results, dict).items():
            instance(f"results[{name!r}]", result, Result)

    def __getitem__(self, name: str) -> Result:
        if name not in self.results:
            refused = dict(zip(self.table["mechanism"], self.table["note"])).get(name)
            reason = (
                f"must be one of {', '.join(self.names)}" if refused is None else f"does not apply: {refused}"
            )
            raise DesignError.of("mechanism", name, reason)
        return self.results[name]

    @property
    def names(self) -> list[str]:
        """Mechanisms that apply, best first."""
        return [name for name in self.table["mechanism"] if name in self.results]

    @property
    def members(self) -> dict[str, Result]:
        """The results by name."""
        return self.results

    def agreements(self) -> list[Check]:
        """Whether each result answers the question at its privacy, and the table shows the result's own errors."""
        rows: list[Check] = []
        shown_errors = dict(zip(self.table["mechanism"], self.table["error"]))
        for name, result in self.results.items():
            try:
                check_same_privacy(name, result, self.privacy)
                check_answer(name, result, self.question)
                check_loss(name, result, self.question)
                reason = ""
            except DesignError as error:
                reason = f" ({error})"
            rows.append(
                (f"{name}: answers the question at its privacy{reason}", PROVED, math.nan, not reason)
            )
            least = error_of(result, self.question)
            near = abs(shown_errors.get(name, math.inf) - least) <= 1e-9 * least
            rows.append((f"{name}: the table shows its error", PROVED, math.nan, near))
        whole = set(self.table.loc[self.table["error"].notna(), "mechanism"]) == set(self.results)
        ordered = bool(self.table["error"].dropna().is_monotonic_increasing)
        rows.append(
            ("every mechanism that the table ranks has a result", PROVED, math.nan, whole and ordered)
        )
        return rows

    @property
    def best(self) -> Result:
        """The result of least error that can be deployed; what is for simulation only (ℓ₂ K-norm noise) is passed over."""
        return self.results[self._best_name]

    @property
    def _best_name(self) -> str:
        ready = (name for name in self.names if getattr(self.results[name].mechanism, "deployable", True))
        return next(ready, self.names[0])

    @property
    def accuracy(self) -> dict[str, Accuracy]:
        """Errors of each mechanism in the answer's units, best first."""
        return {name: accuracy_of(self.results[name], self.question) for name in self.names}

    @property
    def refused(self) -> dict[str, str]:
        """Mechanisms that do not apply, and why."""
        rows = self.table[~self.table["mechanism"].isin(list(self.results))]
        return dict(zip(rows["mechanism"], rows["note"]))

    @property
    def reference(self) -> str:
        """What the ratio is to."""
        if self.least is not None:
            return f"the proved least, {self.least:.6g}: {self.least_name}"
        return f"the best found, {self.names[0]} (no lower bound is known)"

    @property
    def _headings(self) -> dict[str, str]:
        return {"ratio": f"ratio to the {'proved least' if self.least is not None else 'best found'}"}

    def to_frame(self) -> pd.DataFrame:
        """The mechanisms that apply, best first."""
        table = self.table[self.table["mechanism"].isin(list(self.results))].reset_index(drop=True)
        empty = [
            name
            for name in ("bits", "assumes", "note")
            if not (table[name].notna() & (table[name] != "")).any()
        ]
        return table.drop(columns=empty)

    def plot(self, **options: Any) -> Figure:
        """Draw the error of each mechanism over the reference."""
        shown_rows = self.to_frame().iloc[::-1]
        fig, axis = figure(**sized(options, 6.0, 0.9 + 0.28 * len(shown_rows)))
        best = self._best_name
        colours = [COLOURS[2] if name == best else COLOURS[0] for name in shown_rows["mechanism"]]
        ratios = shown_rows["ratio"].to_numpy(dtype=float)
        axis.barh([plain(name) for name in shown_rows["mechanism"]], ratios, color=colours)
        for k, (ratio, error) in enumerate(zip(ratios, shown_rows["error"])):
            axis.annotate(f" {error:.4g}", (ratio, k), va="center", fontsize=8)
        axis.axvline(1.0, color=COLOURS[6], linewidth=0.8)
        if np.nanmax(ratios) > 30:
            axis.set_xscale("log")
        axis.margins(x=0.15)
        axis.set(xlabel=self._headings["ratio"].replace("ratio to", "error over"))
        axis.grid(axis="y", visible=False)
        return fig

    figure = plot

    def to_html(self) -> str:
        """Return the page that `report` writes."""
        return page(**self._page())

    def _page(self) -> dict[str, Any]:
        best, name = self.best, self._best_name
        frame = self.to_frame()
        first = frame[frame["mechanism"] == name].iloc[0]
        unit = "a coordinate's" if isinstance(self.question, NumericQuery) else "the"
        sections = [
            Section(
                "The question",
                f"{_sentence(str(self.question))}\n\nRequired: {self.privacy}.\n\nRanked by {unit} error; the ratio is to "
                f"{self.reference}. Standard deviation, mean absolute error and 95% half-width (19 answers in 20 are off "
                "by at most that) are in the units of the answer.",
            ),
            Section("Mechanisms compared", table=frame, caption="Best first."),
            Section(
                "Error",
                figure=self.plot,
                caption="Error of each mechanism over the reference; the error beside the bar.",
            ),
        ]
        if self.refused:
            reasons = pd.DataFrame(self.refused.items(), columns=["mechanism", "reason"])
            sections.append(Section("Mechanisms that do not apply", table=reasons))
        sections += [replace(part, title=f"{name}: {part.title}") for part in best.sections()]
        return {
            "title": f"{_sentence(name)} is best of {len(self.results)}"
            + ("" if name == self.names[0] else " that can be deployed"),
            "subtitle": f"{self.question}; {self.privacy}",
            "kind": "mechdesign comparison",
            "facts": [
                ("standard deviation", shown(first["standard deviation"]), ""),
                ("mean absolute error", shown(first["mean absolute error"]), ""),
                ("19 in 20 within", f"±{shown(first['95% half-width'])}", ""),
                (
                    "over the reference",
                    shown(first["ratio"], 4),
                    "proved least" if self.least is not None else "best found",
                ),
            ],
            "sections": sections,
        }

    def __str__(self) -> str:
        columns = ["mechanism", *_NUMBERS, "privacy"]
        frame = self.to_frame()[columns]
        for name in _NUMBERS:
            frame[name] = [shown(v, 5) for v in frame[name]]
        lines = [
            f"{self.question}; {self.privacy}",
            frame.to_string(index=False),
            f"ratio: to {self.reference}",
        ]
        lines += [f"not {name}: {reason}" for name, reason in self.refused.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(index=False, float_format=lambda v: f"{v:.6g}")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
