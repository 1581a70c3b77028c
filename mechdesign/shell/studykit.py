"""What a study imports: `Report`, which it fills, and `Study`, the line it has in the table of studies.

A study regenerates one published table or figure. It is a function that is handed a `Report` and gives it texts,
tables and figures; the report writes ``results/<study>/`` and remembers, for every table, the tolerances within which
a later run must agree. A distribution declares its studies by an entry point in the group ``mechdesign.studies`` that
names a sequence of `Study`; the modules with the functions are imported when a study runs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechdesign.evidence.digits import as_latex

if TYPE_CHECKING:  # a table of studies is listed without them
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import Console

    from mechdesign.evidence.page import Section

KEPT = 10  # significant digits in CSV


@dataclass(frozen=True)
class Study:
    """A named study: what it regenerates, from which paper, and the function that does it.

    Parameters
    ----------
    name, title, paper : str
    function : str or callable
        Takes a `Report`; "package.module:function" is imported when the study runs.
    quick : bool
        There is a quick variant: with `Report.quick` the function computes the same on a smaller part.
        Its results lie in ``<study>/quick/`` and are what a check regenerates.
    """

    name: str
    title: str
    paper: str
    function: str | Callable[[Report], None]
    quick: bool = False

    def run(self, report: Report) -> None:
        """Fill the report."""
        function = self.function
        if isinstance(function, str):
            module, _, name = function.partition(":")
            function = getattr(import_module(module), name)
        function(report)


class Report:
    """Collects what a study finds and writes it to a folder.

    Parameters
    ----------
    name, title, paper : str
    folder : Path
        Exists.
    data_dir : Path, optional
        Where real data sets are.
    console : rich Console, optional
        Shows texts and tables as they come; silent when None.
    jobs : int
        Processes a study may use.
    bars : bool
        Show bars of progress where there is a terminal.
    quick : bool
        The study's quick variant is wanted.
    """

    def __init__(
        self,
        name: str,
        title: str,
        paper: str,
        folder: Path,
        *,
        data_dir: Path | None = None,
        console: Console | None = None,
        jobs: int = 1,
        bars: bool = False,
        quick: bool = False,
    ) -> None:
        self.name, self.folder, self.data_dir, self.jobs = name, folder, data_dir, jobs
        self.quick = quick
        self._absent: list[str] = []
        self._console, self._bars = console, bars
        self._title = title
        self._lines = [f"# {title}", ""] + ([f"*{paper}*", ""] if paper else [])
        self._tables: dict[str, dict[str, object]] = {}
        self._figures: list[str] = []
        self._records: dict[str, Any] = {}
        self._paper = paper
        self._sections: list[Section] = []
        self._started = time.perf_counter()
        if console is not None:
            console.rule(title)

    def rng(self, stream: str) -> np.random.Generator:
        """Return a generator seeded by the study's and the stream's name: the same in every run."""
        import numpy as np

        seed = int.from_bytes(hashlib.sha256(f"{self.name}/{stream}".encode()).digest()[:8], "big")
        self._records.setdefault("seeds", {})[stream] = seed
        return np.random.default_rng(seed)

    def data(self, file: str) -> Path | None:
        """Where a data file is, or None: what needs it is then left out, and a check says that it was not checked."""
        found = None if self.data_dir is None else self.data_dir / file
        if found is not None and found.exists():
            return found
        if file not in self._absent:
            self._absent.append(file)
            self.text(f"Not computed: what needs `{file}`, which is not in the folder given as `--data-dir`.")
        return None

    def library(self, name: str, extra: str) -> bool:
        """Whether an optional library is installed: what needs it is otherwise left out, as without a data file."""
        from importlib.util import find_spec

        if find_spec(name) is not None:
            return True
        if name not in self._absent:
            self._absent.append(name)
            self.text(f"Not computed: what needs {name}: `pip install 'mechdesign[{extra}]'`.")
        return False

    def record(self, **facts: object) -> None:
        """Put facts about this run into the manifest."""
        self._records.update(facts)

    def text(self, markdown: str) -> None:
        """Add a paragraph."""
        self._lines += [markdown.strip(), ""]
        self._section("", markdown.strip())
        if self._console is not None:
            from rich.markdown import Markdown

            self._console.print(Markdown(markdown.strip()))

    def table(
        self,
        name: str,
        frame: pd.DataFrame,
        *,
        caption: str = "",
        volatile: Sequence[str] = (),
        timings: Sequence[str] = (),
        rtol: float = 1e-6,
        atol: float = 1e-9,
        digits: int = 6,
        show: int | None = 60,
        inline: int = 60,
    ) -> None:
        """Write a table as CSV, Markdown and LaTeX, and show it.

        Parameters
        ----------
        name : str
            File stem.
        volatile : sequence of str
            Columns a later run need not reproduce (which of several optima was found).
        timings : sequence of str
            Columns that no two runs share: they go to the manifest, and the table is written without them.
        rtol, atol : float
            How closely a later run must reproduce the numbers.
        digits : int
            Significant digits in Markdown, LaTeX and on the terminal, at least ten in CSV: the last
            ones of a float differ between processors.
        show, inline : int
            Rows shown on the terminal, and put into the README of the results.
        """
        frame = frame.reset_index(drop=True)
        for column in timings:
            self._records.setdefault("timings", {})[f"{name}/{column}"] = frame[column].tolist()
        frame = frame.drop(columns=list(timings))
        frame.to_csv(self.folder / f"{name}.csv", index=False, float_format=f"%.{max(digits, KEPT)}g")
        pattern = f".{digits}g"
        (self.folder / f"{name}.md").write_text(frame.to_markdown(index=False, floatfmt=pattern) + "\n")
        latex = as_latex(frame, float_format=f"%{pattern}", caption=caption or None)
        (self.folder / f"{name}.tex").write_text(latex)
        self._tables[name] = {"rows": len(frame), "rtol": rtol, "atol": atol, "volatile": list(volatile)}
        self._lines += [f"## {caption or name}", ""]
        self._section(caption or name, table=frame, rows=inline, digits=digits, caption=f"{name}.csv")
        if len(frame) <= inline:
            self._lines += [frame.to_markdown(index=False, floatfmt=pattern), ""]
        self._lines += [
            f"Files: [{name}.csv]({name}.csv), [{name}.md]({name}.md), [{name}.tex]({name}.tex)",
            "",
        ]
        if self._console is not None:
            from mechdesign.shell.show import tabulated  # brings rich's tables

            rows = frame.head(show).itertuples(index=False)
            width = self._console.width
            self._console.print(
                tabulated(frame.columns, rows, caption or name, digits=min(digits, 5), width=width)
            )
            if show is not None and len(frame) > show:
                self._console.print(f"… {len(frame) - show} more rows in {name}.csv")

    def figure(self, name: str, fig: Figure, *, caption: str = "") -> None:
        """Write a figure as PNG and SVG."""
        from mechdesign.plotting import write_figure

        self._figures += write_figure(fig, self.folder / name)
        self._section(caption or name, figure=lambda: fig, alt=caption or name)
        self._lines += [f"![{caption or name}]({name}.png)", "", caption, ""]
        if self._console is not None:
            self._console.print(f"figure: {name}.png" + (f"  {caption}" if caption else ""))

    def _section(self, title: str, text: str = "", **parts: Any) -> None:
        from mechdesign.evidence.page import Section

        self._sections.append(Section(title, text, markdown=True, **parts))

    @contextmanager
    def progress(self, label: str, total: int | None) -> Iterator[Callable[[], None]]:
        """Progress bar on a terminal, nothing elsewhere."""
        if not self._bars:
            yield lambda: None
            return
        from mechdesign.runs.parallel import progress_bar  # brings joblib

        with progress_bar(label, total) as step:
            yield step

    def close(self) -> None:
        """Write README.md, what the study consists of, the manifest of this run, and all of it as one page.

        ``contents.json`` lists tables with their tolerances, and figures; it is committed, and equal from run to run.
        ``manifest.json`` has what differs: times, versions, what was absent; it is not committed.
        """
        from mechdesign.evidence.page import page, versions

        html = page(self._title, self._sections, subtitle=self._paper, kind="mechdesign study")
        (self.folder / "report.html").write_text(html, encoding="utf-8")
        (self.folder / "README.md").write_text("\n".join(self._lines).rstrip() + "\n")
        contents = {
            "study": self.name,
            "title": self._title,
            "tables": self._tables,
            "figures": sorted(self._figures),
        }
        (self.folder / "contents.json").write_text(json.dumps(contents, indent=1) + "\n")
        manifest = {
            "study": self.name,
            "seconds": round(time.perf_counter() - self._started, 3),
            "versions": dict(versions("pandas", "dp-accounting", "POT").itertuples(index=False)),
            "absent": self._absent,
            **self._records,
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest, indent=1, default=_plain) + "\n")


def _plain(value: object) -> object:
    return value.item() if hasattr(value, "item") else str(value)
