"""Write whatever has a table, a picture and a page: files, tables, reports."""

from __future__ import annotations

import datetime
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from mechdesign.errors import DesignError, MissingExtra, instance
from mechdesign.evidence.digits import as_latex
from mechdesign.evidence.page import Page, Section, as_given, page
from mechdesign.evidence.serialize import dumps
from mechdesign.evidence.whole_files import check_writable, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Saved:
    """Base class of what is saved to a file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as versioned JSON; `mechdesign.load` reads it back."""
        write_whole(path, dumps(self))


class Exportable(Saved, ABC):
    """Base class of results, frontiers and comparisons: they have a table, a picture and a page.

    A class says what its table is (`to_frame`), draws itself (`plot`) and tells its page (`_page`: the arguments of
    `mechdesign.evidence.page.page`); the rest follows.
    """

    @property
    def _headings(self) -> dict[str, str]:
        """Longer names of columns for exported tables."""
        return {}

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the main table, tidy."""

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
    def _page(self) -> Page:
        """Return title, sections, subtitle, kind and facts of the page."""

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False, float_format=lambda v: f"{v:.6g}"))

    def sections(self) -> tuple[Section, ...]:
        """Return the sections of the page that `report` writes."""
        return tuple(self._page()["sections"])

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        dataset: str | None = None,
        author: str | None = None,
        purpose: str | None = None,
        date: str | datetime.date | None = None,
    ) -> None:
        """Write one self-contained HTML page, to read, print and hand over.

        Parameters
        ----------
        path : path
            Ends in ``.html``, by custom.
        dataset, author, purpose : str, optional
            What the mechanism is for, as you say it. The page shows it as given: no file holds it, and no check speaks of it.
        date : str or datetime.date, optional
            ``"2026-11-23"``; today, where one of the others is given.

        Examples
        --------
        >>> import mechdesign as md, tempfile, pathlib
        >>> result = md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.report(pathlib.Path(folder) / "report.html", dataset="visits 2026", author="A. Turing")
        """
        given = as_given({"data set": dataset, "author": author, "purpose": purpose}, date)
        target, parts = check_writable(path), self._page()
        parts["sections"] = (*given, *parts["sections"])
        write_whole(target, page(**parts))

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
            kept = list(instance("columns", columns, list, tuple))
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
