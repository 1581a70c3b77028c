"""What a design returns: value, lower bound, evidence, errors, and the ways out (files, tables, pages, notebooks)."""

from __future__ import annotations

import html
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import TYPE_CHECKING, Any

import pandas as pd

from mechdesign.errors import DesignError, MissingExtra
from mechdesign.evidence.accuracy import Accuracy
from mechdesign.evidence.digits import as_latex, at_least, at_most, meaningful
from mechdesign.evidence.page import Account, Section, headline, page, result_sections
from mechdesign.evidence.proofs import Certificate, Proof, claims, fitting
from mechdesign.evidence.serialize import dumps, serializable
from mechdesign.evidence.whole_files import check_writable, write_whole
from mechdesign.typing import Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AUDIT_COLUMNS", "Handed", "Result", "SolveReport"]

AUDIT_COLUMNS = ["family", "index", "lhs", "rhs", "slack", "dual", "active"]


@serializable("solve-report")
@dataclass(frozen=True)
class SolveReport:
    """How a result was computed.

    Parameters
    ----------
    solver : str
        The backend that answered.
    status : Status
        How it ended, in this package's words.
    seconds, build_seconds : float
        Time in the solver, time to build and compile the model.
    variables, constraints, iterations : int, optional
    requested : str, optional
        The backend that was asked for.
    fallbacks : tuple of str
        Backends that failed before, with their own status.
    """

    solver: str
    status: Status = Status.OPTIMAL
    seconds: float = 0.0
    build_seconds: float = 0.0
    variables: int | None = None
    constraints: int | None = None
    iterations: int | None = None
    requested: str | None = None
    fallbacks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = [status.value for status in Status]
        if not isinstance(self.status, str) or self.status not in known:
            raise DesignError.of("status", self.status, f"must be one of {known}")
        object.__setattr__(self, "status", Status(self.status))

    @classmethod
    def of(cls, solution: Any) -> SolveReport:
        """Take the fields over from a `mechdesign.solvers.Solution`."""
        if not hasattr(solution, "native_status"):
            raise DesignError.of("solution", solution, "must be a mechdesign.solvers.Solution")
        return cls(**{f.name: getattr(solution, f.name) for f in fields(cls)})

    def lines(self) -> list[str]:
        """The model's size and how the solve went, for summaries."""
        out = []
        if self.variables is not None:
            out.append(f"model: {self.variables} variables, {self.constraints} constraints")
        effort = "" if self.iterations is None else f", {self.iterations} iterations"
        out.append(f"solver: {self.solver}, {self.status}{effort}, {self.seconds:.3g} s")
        if self.fallbacks:
            out.append(f"fallback: after {'; '.join(self.fallbacks)}")
        return out


class Handed(ABC):
    """What has a table, a picture and a page: results, frontiers, comparisons.

    A class says what its table is (`to_frame`), draws itself (`plot`) and tells its page (`_page`: the arguments of
    `mechdesign.evidence.page.page`); the rest follows.
    """

    @property
    def _headings(self) -> dict[str, str]:
        """Columns that a table to hand over names at greater length."""
        return {}

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """The main table, tidy."""

    @abstractmethod
    def plot(self, **options: float) -> Figure:
        """Draw it.

        Parameters
        ----------
        **options
            Of `mechdesign.plotting.figure`: width and height in inches, …

        Returns
        -------
        matplotlib.figure.Figure
        """

    @abstractmethod
    def _page(self) -> dict[str, Any]:
        """Title, sections, subtitle, kind and facts of the page."""

    def sections(self) -> tuple[Section, ...]:
        """The parts of the page that `report` writes."""
        return tuple(self._page()["sections"])

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained HTML page, to read, print and hand over.

        Parameters
        ----------
        path : path
            Ends in ``.html``, by custom.

        Examples
        --------
        >>> import mechdesign as md, tempfile, pathlib
        >>> result = md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.report(pathlib.Path(folder) / "report.html")
        """
        write_whole(check_writable(path), page(**self._page()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as versioned JSON; `mechdesign.load` reads it back."""
        write_whole(path, dumps(self))

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `to_frame` as CSV, floats in full."""
        self.to_frame().to_csv(check_writable(path), index=False)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write `to_frame` as Parquet; `MissingExtra` without the extra ``parquet``."""
        file, frame = check_writable(path), self.to_frame()
        try:
            frame.to_parquet(file, index=False)
        except ImportError:
            raise MissingExtra.of("parquet", "Parquet", "pyarrow") from None

    def to_latex(
        self, path: str | os.PathLike[str] | None = None, *, columns: Sequence[str] | None = None
    ) -> str:
        """Return `to_frame` as a LaTeX table, and write it to `path` if given.

        Parameters
        ----------
        path : path, optional
        columns : sequence of str, optional
            Of `to_frame`; all but the seconds and the notes in sentences by default.
        """
        frame = self.to_frame()
        known = [str(name) for name in frame.columns]
        if columns is None:
            kept = [name for name in known if name not in ("seconds", "note")]
        else:
            kept = list(DesignError.unless("columns", columns, (list, tuple)))
            if not kept or not set(kept) <= set(known):
                raise DesignError.of("columns", columns, f"must be some of {known}")
        frame = frame.set_axis(known, axis=1)[kept].rename(columns=self._headings)
        return _written(as_latex(frame, float_format="%.6g"), path)

    def to_markdown(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return `to_frame` as a Markdown table, and write it to `path` if given."""
        frame = self.to_frame().rename(columns=self._headings)
        return _written(frame.to_markdown(index=False, floatfmt=".6g"), path)


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        write_whole(path, text + ("" if text.endswith("\n") else "\n"))
    return text


@serializable("result")
@dataclass(frozen=True, eq=False)
class Result(Handed):
    """A mechanism with its evidence: what every design returns.

    What only a design or a mechanism knows (the question in words, the table of constraints, the picture) the result
    asks of these two; it has no subclass for a wing.

    Parameters
    ----------
    design : Design
        What was asked.
    mechanism : object
        What is deployed.
    value : float
        An upper bound of the mechanism's cost, computed from the mechanism.
    lower_bound : float, optional
        Proved: no mechanism of the bound's class costs less.
    solver_report : SolveReport
        How the result was computed.
    notes : tuple of str
        What a reader should know before trusting the result.
    proofs : tuple of Proof
        The evidence; empty where none was asked for or found.
    duals : DataFrame, optional
        Multipliers of the model's constraints: family, index, dual.
    table : DataFrame, optional
        What a search tried, best first.
    """

    design: Any
    mechanism: Any
    value: float
    lower_bound: float | None = None
    solver_report: SolveReport = field(default_factory=lambda: SolveReport("none"))
    notes: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()
    duals: pd.DataFrame | None = None
    table: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        DesignError.unless("solver_report", self.solver_report, SolveReport)
        for name in ("duals", "table"):
            DesignError.unless(name, getattr(self, name), (pd.DataFrame, NoneType))
        for proof in DesignError.unless("proofs", self.proofs, tuple):
            DesignError.unless("proofs", proof, Proof)
        if not hasattr(self.design, "solve"):
            raise DesignError.of("design", self.design, "must be a design")

    @property
    def certificate(self) -> Certificate | None:
        """The evidence, to be checked alone: question, law, value, lower bound and proofs; None without proofs."""
        if not self.proofs:
            return None
        return Certificate(self.design, self.mechanism, self.value, self.lower_bound, self.proofs)

    @property
    def gap(self) -> float | None:
        """Relative distance between value and lower bound; None where no bound is known."""
        if self.lower_bound is None:
            return None
        return max(0.0, self.value - self.lower_bound) / max(abs(self.value), 1e-300)

    @property
    def bound_how(self) -> str:
        """How the lower bound is checked: proved, recomputed, or claimed where no proof speaks of it."""
        return Certificate(self.design, self.mechanism, self.value, None, self.proofs).bound_how

    @property
    def status(self) -> Status:
        """How the solve ended."""
        return self.solver_report.status

    # -- what the design and the mechanism say ---------------------------------------------------------

    def audit(self) -> pd.DataFrame:
        """Every constraint of the definition, recomputed from the mechanism alone.

        Returns
        -------
        DataFrame
            Columns family, index, lhs, rhs, slack (≥ 0 when satisfied), dual, active.

        Raises
        ------
        ResultFormatError
            The parts do not fit together, as they do not in a file that was changed.
        """
        with fitting():
            return self.design.audit(self)

    def checks(self) -> pd.DataFrame:
        """Claim by claim: what was checked, how, with which margin, and whether it holds."""
        return claims(self)

    def to_frame(self) -> pd.DataFrame:
        """The main table, tidy."""
        return self.design.frame(self)

    def account(self) -> Account:
        """The question in words, what the value is and what the picture shows."""
        said: Account = self.design.account(self)
        return said

    def alternatives(self) -> pd.DataFrame:
        """What other mechanisms cost at the same privacy, where that is known and cheap."""
        return self.design.alternatives(self)

    def remarks(self) -> list[str]:
        """What a reader should know of the mechanism that its numbers do not say, outputs that never come for example."""
        said: list[str] = self.design.remarks(self)
        return said

    def plot(self, **options: float) -> Figure:
        """Draw the mechanism."""
        drawn: Figure = self.design.plot(self, **options)
        return drawn

    def tried(self) -> pd.DataFrame:
        """What a search tried, best first; no rows where nothing was searched."""
        return self.design.tried(self)

    @property
    def tried_words(self) -> str:
        """What a page says of `tried`."""
        return "Computed for this page." if self.table is None else "Stated by the search, not checked."

    def errors(self, question: object = None) -> Accuracy:
        """How far off an answer is: standard deviation, mean absolute error, 95% half-width.

        Parameters
        ----------
        question : optional
            Whose prior errors are averaged over, where they depend on the input; the design's own when not given.
        """
        if question is not None and not hasattr(question, "asks"):
            raise DesignError.of(
                "question", question, "must be a NumericQuery, a LocalReport or a MetricReport"
            )
        found: Accuracy = self.design.errors(self, question)
        return found

    # -- prints and pages --------------------------------------------------------------------------------

    def summary(self) -> str:
        """A short, proof-like account."""
        with fitting():
            # a search's bound is of a larger class: it says nothing of the digits of the value
            digits = meaningful(self.gap if getattr(self.design, "proves_optimality", True) else None)
            lines = [f"value: {at_most(self.value, digits)}"]
            if self.lower_bound is not None:
                bound = at_least(self.lower_bound, digits)
                lines.append(f"lower bound: {bound} ({self.bound_how}), gap {at_most(self.gap or 0.0, 2)}")
            lines += self.design.lines(self)
            lines += [f"note: {note}" for note in (*self.notes, *self.remarks())]
            lines = [*self.solver_report.lines(), *lines]
            return "\n".join([type(self.design).__name__, *("  " + line for line in lines)])

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        head = html.escape(self.summary())
        return f"<pre>{head}</pre>{self.to_frame().to_html(index=False, float_format=lambda v: f'{v:.6g}')}"

    def _page(self) -> dict[str, Any]:
        with fitting():
            account, table = self.account(), self.checks()
            return {
                "title": account.title,
                "subtitle": account.subtitle,
                "kind": "mechdesign report",
                "facts": headline(self, account, table),
                "sections": tuple(result_sections(self, account, table)),
            }
