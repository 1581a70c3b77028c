"""Report pages: one self-contained HTML file for each result, to read, print and hand over.

A wing gives a sequence of `Section`; `page` renders them. Nothing is fetched from anywhere: figures are images
in the page, the style sheet and the one script, which makes tables sortable, are in the page, and its own security policy forbids
all else. Every text is escaped, wherever it came from. The page computes nothing: all was computed when it was made.
`Exportable` is the base class of all values with a table, a picture and such a page.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import hashlib
import io
import os
import platform
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import metadata, resources
from numbers import Real
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote

import numpy as np
import pandas as pd

from mechdesign.checks import Checked, field, instance, refusing
from mechdesign.errors import DesignError, MissingExtra
from mechdesign.evidence.digits import as_latex, folded, shown, width
from mechdesign.evidence.files import check_writable, write_whole
from mechdesign.evidence.serialize import dumps
from mechdesign.plotting import STYLE

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.figure import Figure


Fact = tuple[str, str, str]
"""A key number of the headline strip: label, value, remark ("" for none)."""

PICTURES = 300_000  # characters that all drawings of a page may take as drawings
LARGEST_FILE = 20_000_000  # bytes, compressed; browsers take 32 MB as a link's data, in base64
_MARKED = {"proved", "recomputed", "claimed"}


@dataclass(frozen=True, eq=False)
class Section(Checked):
    """A part of a page, under a heading of its own; its contents appear in the order of the parameters.

    Parameters
    ----------
    title : str
        Empty for a part that stands under the heading before it.
    text : str
        Plain text: paragraphs apart by an empty line; a paragraph whose lines begin with "- " is a list.
    table : DataFrame, optional
        Its first column names the rows.
    figure : callable, optional
        Returns the matplotlib Figure; called when the page is made.
    caption : str
        Caption of the table, or of the figure if there is no table.
    alt : str
        Description of the figure for those who do not see it; the caption or the title by default.
    file : (str, str), optional
        Name and text of a result file that the page carries, compressed, for the reader to save; if it is too large, the page
        carries its fingerprint alone, and says so.
    code : str
        Commands or code to copy.
    rows, digits : int
        The most rows of the table that are shown, and the significant digits of its numbers.
    markdown : bool
        Whether `text` is Markdown (HTML in it stays text, pictures are left out).

    Examples
    --------
    >>> Section("Error", "It is small.", pd.DataFrame({"law": ["laplace"], "error": [2.0]})).title
    'Error'
    """

    title: str = field(str)
    text: str = field(str, default="")
    table: pd.DataFrame | None = field(pd.DataFrame, default=None)
    figure: Callable[[], Figure] | None = field(Callable, default=None)  # type: ignore[arg-type]
    caption: str = field(str, default="")
    alt: str = field(str, default="")
    file: tuple[str, str] | None = field(tuple, default=None)
    code: str = field(str, default="")
    rows: int = 200
    digits: int = 6
    markdown: bool = False

    def _post_check(self) -> None:
        if self.file is not None and [type(part) for part in self.file] != [str, str]:
            raise DesignError.of("file", self.file, "must be a pair: the file's name and its text")


class Page(TypedDict):
    """The arguments of `page`."""

    title: str
    subtitle: str
    kind: str
    facts: Sequence[Fact]
    sections: Sequence[Section]


def page(
    title: str, sections: Sequence[Section], *, subtitle: str = "", kind: str = "", facts: Sequence[Fact] = ()
) -> str:
    """Return the HTML of a page.

    Parameters
    ----------
    title : str
    sections : sequence of Section
    subtitle : str
        A sentence below the title.
    kind : str
        A word or two above it: what sort of page this is.
    facts : sequence of (label, value, remark)
        The key numbers.

    Examples
    --------
    >>> "<h2 id=\\"part-1\\">Error</h2>" in page("Noise", [Section("Error", "It is small.")])
    True
    """
    for name, text in (("title", title), ("subtitle", subtitle), ("kind", kind)):
        instance(name, text, str)
    parts = [instance("sections", section, Section) for section in sections]
    longest = min(150_000, PICTURES // max(1, sum(part.figure is not None for part in parts)))
    style, script = _asset("page.css"), _asset("page.js")
    return _template().render(
        title=_together(title),
        subtitle=subtitle,
        kind=kind,
        facts=[(str(label), _together(str(value)), str(remark)) for label, value, remark in facts],
        sections=[_rendered(part, k, longest) for k, part in enumerate(parts)],
        style=_safe(style),
        script=_safe(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=metadata.version("mechdesign"),
        footer=f"Made by mechdesign {metadata.version('mechdesign')}. This page fetches nothing and sends nothing.",
    )


def as_given(said: Mapping[str, str | None], date: str | datetime.date | None) -> tuple[Section, ...]:
    """Return the part of a page that repeats the author's statements, with a date; none without statements."""
    lines = []
    for name, text in said.items():
        if text is not None and not (isinstance(text, str) and text.strip()):
            raise DesignError.of(name.replace(" ", ""), text, "must be a text that is not empty")
        if text is not None:
            lines.append(f"- {name}: {' '.join(text.split())}")
    if not lines and date is None:
        return ()
    with refusing("date", date, 'must be a date, "2026-11-23" for example'):
        day = datetime.date.today() if date is None else datetime.date.fromisoformat(str(date))
    words = "Said by whoever made this page. No file holds it, and nothing below proves it."
    return (Section("What it is for", "\n".join([*lines, f"- date: {day.isoformat()}"]) + f"\n\n{words}"),)


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["whole"] = _whole
    return environment.from_string(_asset("page.html"))


@cache
def _asset(name: str) -> str:
    return (resources.files("mechdesign.evidence") / "templates" / name).read_text(encoding="utf-8")


def _safe(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)


def _rendered(section: Section, number: int, longest: int) -> dict[str, object]:
    alt = section.alt or section.caption or section.title
    return {
        "title": section.title,
        "number": number + 1,
        "caption": section.caption,
        "markdown": _markdown(section.text) if section.markdown else None,
        "blocks": [] if section.markdown else _blocks(section.text),
        "picture": None if section.figure is None else _image(section.figure(), alt, longest),
        "table": None if section.table is None else _table(section),
        "code": section.code,
        "file": None if section.file is None else _file(*section.file),
    }


def _together(text: str) -> str:
    """Return the text with its equations kept from breaking at the end of a line."""
    return text.replace(" = ", "\u00a0=\u00a0")


def _whole(text: str) -> Markup:
    """Return the text with its numbers kept from breaking at the sign of an exponent."""
    from markupsafe import escape

    return _safe(re.sub(r"\d[\d.]*e-\d+", r'<span class="whole">\g<0></span>', str(escape(text))))


def _blocks(text: str) -> list[str | list[str]]:
    """Return paragraphs as strings, lists as lists."""
    found: list[str | list[str]] = []
    for block in text.strip().split("\n\n"):
        lines = [line.strip() for line in block.strip().splitlines()]
        if lines and all(line.startswith("- ") for line in lines):
            found.append([line[2:] for line in lines])
        elif lines:
            found.append(" ".join(lines))
    return found


def _markdown(text: str) -> Markup:
    from markdown_it import MarkdownIt

    return _safe(
        MarkdownIt("commonmark", {"html": False}).disable(["image", "heading", "lheading"]).render(text)
    )


def _table(section: Section) -> dict[str, object]:
    frame = section.table
    assert frame is not None
    kept = frame.head(section.rows)
    kinds = [_kind(kept[name]) if kept.columns.is_unique else "" for name in kept.columns]
    return {
        "caption": section.caption or section.title,
        "heads": [
            {"text": str(name).replace("_", " "), "kind": kind} for name, kind in zip(kept.columns, kinds)
        ],
        "rows": [
            [_cell(v, kind, section.digits) for v, kind in zip(row, kinds)]
            for row in kept.itertuples(index=False)
        ],
        "left_out": len(frame) - len(kept),
    }


def _kind(column: pd.Series) -> str:
    """Return the style of a column: numbers to the right, long texts with room."""
    if column.dtype.kind in "iuf" or column.map(lambda v: isinstance(v, float)).any():
        return "number"
    return "words" if column.map(lambda v: isinstance(v, str) and len(v) > 30).any() else ""


def _cell(value: object, kind: str, digits: int) -> dict[str, object]:
    text = shown(value, digits)
    if text in _MARKED or (text in ("yes", "no") and not isinstance(value, str)):
        kind = text
    number = kind == "number" and text != "–" and isinstance(value, Real)
    return {"text": text, "kind": kind, "value": repr(float(str(value))) if number else None}


def _file(name: str, text: str) -> dict[str, object]:
    data = text.encode()
    packed = gzip.compress(data, 6, mtime=0)
    carried = len(packed) <= LARGEST_FILE
    return {
        "name": name,
        "data": base64.b64encode(packed).decode() if carried else None,
        "size": f"{max(1, round(len(packed) / 1000))} kB; unpacked {max(1, round(len(data) / 1000))} kB",
        "digest": hashlib.sha256(data).hexdigest(),
    }


def _image(figure: Figure, description: str, longest: int) -> Markup:
    """Return an image of a figure: a drawing, or pixels where a drawing takes more characters than `longest`."""
    from markupsafe import Markup
    from matplotlib import rc_context
    from PIL import Image  # matplotlib brings it

    drawn, pixels, small = io.StringIO(), io.BytesIO(), io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(drawn, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    source = "svg+xml," + quote(" ".join(drawn.getvalue().split()), safe=" /:;=,.()-+")
    if len(source) > longest:
        figure.savefig(pixels, format="png", dpi=130, metadata={"Software": None})
        Image.open(pixels).convert("RGB").quantize(96).save(small, "png", optimize=True)
        source = "png;base64," + base64.b64encode(small.getvalue()).decode()
    return Markup('<img alt="{}" src="data:image/{}">').format(description, source)


_LIBRARIES = ("mechdesign", "numpy", "scipy", "cvxpy", "clarabel", "highspy", "python-flint")


def versions(*more: str) -> pd.DataFrame:
    """Tabulate versions of Python, of the numerical libraries, and of further ones."""
    rows = [("python", platform.python_version())]
    for name in (*_LIBRARIES, *more):
        with suppress(metadata.PackageNotFoundError):
            rows.append((name, metadata.version(name)))
    return pd.DataFrame(rows, columns=["library", "version"])


class Saved:
    """Base class of values that are saved to files; prints a line a field."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as versioned JSON; `mechdesign.load` reads it back."""
        write_whole(path, dumps(self))

    def __str__(self) -> str:
        """Return the fields, a line each: large arrays are shortened, and texts cut after three lines."""
        if not is_dataclass(self):
            return repr(self)
        lines, most = [type(self).__name__], 3 * width() - 20
        with np.printoptions(threshold=40, edgeitems=2, precision=6):
            for f in fields(self):
                if f.repr and (held := getattr(self, f.name)) is not None:
                    text = " ".join(shown(held).split())
                    lines.append(f"  {f.name}: {text if len(text) <= most else text[:most] + ' …'}")
        return folded("\n".join(lines))


class Exportable(Saved, ABC):
    """Base class of results, frontiers and comparisons: they have a table, a picture and a page.

    A class defines its table (`to_frame`), its picture (`plot`) and its page (`_page`: the arguments of
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
            Passed to `mechdesign.plotting.figure`: width and height in inches, …

        Returns
        -------
        matplotlib.figure.Figure
        """

    @abstractmethod
    def _page(self) -> Page:
        """Return title, sections, subtitle, kind and facts of the page."""

    def _paged(
        self, title: str, lines: Sequence[str], caption: str, facts: Sequence[Fact], more: Sequence[Section]
    ) -> Page:
        """Return the page of several results: the lines of their print, the first on top, with table and picture, then more."""
        said = "\n".join(f"- {line}" for line in lines[1:])
        sections = [
            Section("What was found", said, self.to_frame(), caption="All numbers"),
            Section("", figure=self.plot, caption=caption),
            *more,
            Section("Versions", table=versions(), caption="What made this page"),
        ]
        kind = f"mechdesign {type(self).__name__.lower()}"
        return {"title": title, "subtitle": lines[0], "kind": kind, "facts": facts, "sections": sections}

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
            Your statement of what the mechanism is for. The page shows it as given: no file stores it, and no check covers it.
        date : str or datetime.date, optional
            ``"2026-11-23"``; today by default, if one of the others is given.

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
        with MissingExtra.needed("parquet", "Parquet", "pyarrow"):
            frame.to_parquet(file, index=False)

    def to_latex(
        self, path: str | os.PathLike[str] | None = None, *, columns: Sequence[str] | None = None
    ) -> str:
        """Return `to_frame` as a LaTeX table, and write it to `path` if given.

        Parameters
        ----------
        path : path, optional
        columns : sequence of str, optional
            Columns of `to_frame`; by default all but the seconds and the notes in sentences.
        """
        frame = self.to_frame()
        known = [str(name) for name in frame.columns]
        if columns is None:
            kept = [name for name in known if name not in ("seconds", "note")]
        else:
            kept = list(instance("columns", columns, list, tuple))
            if not kept or not all(isinstance(name, str) and name in known for name in kept):
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
