"""Run studies: `Report` collects the output of one, `Study` describes one.

A study regenerates one published table or figure. It is a function that takes a `Report` and adds texts,
tables and figures to it; the report writes ``results/<study>/`` and records, for every table, the tolerances within which
a later run must agree. A distribution declares its studies by an entry point in the group ``mechdesign.studies`` that
names a sequence of `Study`; the modules with the functions are imported when a study runs.

Further functions find studies, run them into folders, and compare a folder with the committed one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechdesign.errors import DesignError, refuse
from mechdesign.evidence.digits import as_latex, tabulated

if TYPE_CHECKING:
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
        Whether there is a quick variant: with `Report.quick` the function computes a smaller part.
        Its results lie in ``<study>/quick/``, and a check regenerates these.
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


@dataclass
class Report:
    """Collect a study's output and write it to a folder.

    Parameters
    ----------
    study : Study
    folder : Path
        An existing folder.
    data_dir : Path, optional
        Folder of real data sets.
    console : rich Console, optional
        Shows texts and tables as they come; silent when None.
    jobs : int
        Processes a study may use.
    bars : bool
        Show bars of progress where there is a terminal.
    quick : bool
        Whether to run the study's quick variant.
    further : collection of str
        Formats to write besides CSV and SVG: "markdown" and "latex" for tables, "png" for figures.
    """

    study: Study
    folder: Path
    data_dir: Path | None = None
    console: Console | None = None
    jobs: int = 1
    bars: bool = False
    quick: bool = False
    further: Collection[str] = ()

    def __post_init__(self) -> None:
        title, paper = self.study.title, self.study.paper
        self._lines = [f"# {title}", ""] + ([f"*{paper}*", ""] if paper else [])
        self._tables: dict[str, dict[str, object]] = {}
        self._sections: list[Section] = []
        self._figures, self._absent = list[str](), list[str]()
        self._records: dict[str, Any] = {}
        self._started = time.perf_counter()
        if self.console is not None:
            self.console.rule(title)

    def rng(self, stream: str) -> np.random.Generator:
        """Return a generator seeded by the study's and the stream's name: the same in every run."""
        import numpy as np

        seed = int.from_bytes(hashlib.sha256(f"{self.study.name}/{stream}".encode()).digest()[:8], "big")
        self._records.setdefault("seeds", {})[stream] = seed
        return np.random.default_rng(seed)

    def data(self, file: str) -> Path | None:
        """Return the path of a data file, or None if it is absent: the study then leaves out its tables, and a check lists them as not checked."""
        found = None if self.data_dir is None else self.data_dir / file
        if found is not None and found.exists():
            return found
        self._leave_out(file, f"`{file}`, which is not in the folder given as `--data-dir`.")
        return None

    def library(self, name: str, extra: str) -> bool:
        """Whether an optional library is installed; if not, the study leaves out its tables, as without a data file."""
        from importlib.util import find_spec

        found = find_spec(name) is not None
        if not found:
            self._leave_out(name, f"{name}: `pip install 'mechdesign[{extra}]'`.")
        return found

    def _leave_out(self, name: str, needed: str) -> None:
        if name not in self._absent:
            self._absent.append(name)
            self.text(f"Not computed: what needs {needed}")

    def record(self, **facts: object) -> None:
        """Put facts about this run into the manifest."""
        self._records.update(facts)

    def text(self, markdown: str, *, of: Collection[str] = ()) -> None:
        """Add a paragraph.

        Parameters
        ----------
        markdown : str
        of : collection of str
            Tables on which the text rests: if one of them was not computed, the text is left out.

        Raises
        ------
        DesignError
            A table that the whole study, with all its data, does not write.
        """
        missing = sorted(set(of) - set(self._tables))
        if missing and not (self._absent or self.quick):
            raise DesignError.of("of", missing, f"must be tables written before, of {list(self._tables)}")
        if missing:
            return
        self._lines += [markdown.strip(), ""]
        self._section("", markdown.strip())
        if self.console is not None:
            from rich.markdown import Markdown

            self.console.print(Markdown(markdown.strip()))

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
        """Write a table as CSV, and show it.

        Parameters
        ----------
        name : str
            File stem.
        volatile : sequence of str
            Columns that a later run need not reproduce (such as which of several optima was found).
        timings : sequence of str
            Columns that differ in every run: they go to the manifest, and the table is written without them.
        rtol, atol : float
            Tolerances within which a later run must reproduce the numbers.
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
        if "markdown" in self.further:
            (self.folder / f"{name}.md").write_text(frame.to_markdown(index=False, floatfmt=pattern) + "\n")
        if "latex" in self.further:
            latex = as_latex(frame, float_format=f"%{pattern}", caption=caption or None)
            (self.folder / f"{name}.tex").write_text(latex)
        self._tables[name] = {"rows": len(frame), "rtol": rtol, "atol": atol, "volatile": list(volatile)}
        self._lines += [f"## {caption or name}", ""]
        self._section(caption or name, table=frame, rows=inline, digits=digits, caption=f"{name}.csv")
        if len(frame) <= inline:
            self._lines += [frame.to_markdown(index=False, floatfmt=pattern), ""]
        self._lines += [f"File: [{name}.csv]({name}.csv)", ""]
        if self.console is not None:
            rows = frame.head(show).itertuples(index=False)
            self.console.print(tabulated(frame.columns, rows, caption or name, digits=min(digits, 5)))
            if show is not None and len(frame) > show:
                self.console.print(f"… {len(frame) - show} more rows in {name}.csv")

    def figure(self, name: str, fig: Figure, *, caption: str = "") -> None:
        """Write a figure as SVG."""
        from mechdesign.plotting import write_figure

        write_figure(fig, self.folder / name, png="png" in self.further)
        self._figures.append(f"{name}.svg")
        self._section(caption or name, figure=lambda: fig, alt=caption or name)
        self._lines += [f"![{caption or name}]({name}.svg)", "", caption, ""]
        if self.console is not None:
            self.console.print(f"figure: {name}.svg" + (f"  {caption}" if caption else ""))

    def _section(self, title: str, text: str = "", **parts: Any) -> None:
        from mechdesign.evidence.page import Section

        self._sections.append(Section(title, text, markdown=True, **parts))

    @contextmanager
    def progress(self, label: str, total: int | None) -> Iterator[Callable[[], None]]:
        """Show a progress bar if the report has bars."""
        if not self.bars:
            yield lambda: None
            return
        from mechdesign.solvers.deadline import progress_bar

        with progress_bar(label, total) as step:
            yield step

    def close(self) -> None:
        """Write README.md, the study's contents, the manifest of this run, and everything as one page.

        ``contents.json`` lists tables with their tolerances, and figures; it is committed, and equal from run to run.
        ``manifest.json`` lists what differs between runs: times, versions, absent data; it is not committed.
        """
        from mechdesign.evidence.page import page, versions

        html = page(self.study.title, self._sections, subtitle=self.study.paper, kind="mechdesign study")
        (self.folder / "report.html").write_text(html, encoding="utf-8")
        (self.folder / "README.md").write_text("\n".join(self._lines).rstrip() + "\n")
        contents = {
            "study": self.study.name,
            "title": self.study.title,
            "tables": self._tables,
            "figures": sorted(self._figures),
        }
        (self.folder / "contents.json").write_text(json.dumps(contents, indent=1) + "\n")
        manifest = {
            "study": self.study.name,
            "seconds": round(time.perf_counter() - self._started, 3),
            "versions": dict(versions("pandas", "dp-accounting", "POT").itertuples(index=False)),
            "absent": self._absent,
            **self._records,
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest, indent=1, default=_plain) + "\n")


def _plain(value: object) -> object:
    return value.item() if hasattr(value, "item") else str(value)


GROUP = "mechdesign.studies"
OWN = {"README.md", "contents.json", "manifest.json", "report.html"}  # files that every study writes


def all_studies() -> dict[str, Study]:
    """Return every study that an installed distribution declares, by name, without importing its functions."""
    from importlib import metadata

    found = [study for entry in metadata.entry_points(group=GROUP) for study in entry.load()]
    return {study.name: study for study in sorted(found, key=lambda s: s.name)}


def get_study(name: str) -> Study:
    """Return one study by name."""
    found = all_studies()
    refuse(name not in found, "study", name, f"must be one of {list(found)}")
    return found[name]


def run_study(chosen: Study, out: Path, *, quick: bool = False, **options: Any) -> Path:
    """Run one study into ``out/<name>``, its quick variant into ``out/<name>/quick``, and return that folder.

    A study that fails changes nothing; files that no study wrote stay. Options are those of `Report`.

    Raises
    ------
    DesignError
        A file that no study wrote has a name that this study needs; the study has no quick variant.
    """
    refuse(quick and not chosen.quick, "quick", quick, f"{chosen.name} has no quick variant: run it without")
    folder = out / chosen.name / "quick" if quick else out / chosen.name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        allowed = f"cannot be written ({error.strerror}): choose another folder"
        raise DesignError.of("out", str(out), allowed) from None
    try:
        _refuse(folder, _foreign(folder) & OWN)
        report = Report(chosen, fresh, quick=quick, **options)
        import scipy.linalg  # noqa: F401  only a loaded BLAS can be limited

        from mechdesign.solvers.deadline import one_thread

        with one_thread():  # studies' matrices are small, and other studies may use the other cores
            chosen.run(report)
        report.close()
        written, kept = {path.name for path in fresh.iterdir()}, _foreign(folder)
        _refuse(folder, kept & written)
        folder.mkdir(exist_ok=True)
        for stale in {path.name for path in folder.iterdir()} - kept - written:
            (folder / stale).unlink()
        # contents first: by them a later run knows the other files as a study's
        for name in sorted(written, key=lambda name: name != "contents.json"):
            (fresh / name).replace(folder / name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    if report.console is not None:
        report.console.print(f"{chosen.name}: written to {folder}")
    return folder


def _foreign(folder: Path) -> set[str]:
    """Return the names in a study's folder that no study wrote: those that its contents do not list."""
    present = {path.name for path in folder.iterdir()} if folder.exists() else set()
    try:
        contents = json.loads((folder / "contents.json").read_text())
        tables = {f"{name}.{end}" for name in contents["tables"] for end in ("csv", "md", "tex")}
        pictures = {f.replace(".svg", end) for f in contents["figures"] for end in (".svg", ".png")}
        return present - tables - pictures - OWN
    except (OSError, ValueError, KeyError, TypeError):
        return present


def _refuse(folder: Path, names: set[str]) -> None:
    if names:
        raise DesignError(
            f"{folder} holds {', '.join(sorted(names))}, which no study wrote: move it, or choose another --out"
        )


def contents_of(kept: Path) -> dict[str, Any]:
    """Return the contents of a folder of results, with tolerances.

    Raises
    ------
    DesignError
        The folder holds no results.
    """
    allowed = "holds no results to compare with: give the folder of the committed ones as --kept, or write it first with `study run`"
    refuse(not (kept / "contents.json").exists(), "kept", str(kept), allowed)
    return json.loads((kept / "contents.json").read_text())  # type: ignore[no-any-return]


def check_study(fresh: Path, kept: Path) -> list[str]:
    """Compare a regenerated folder with a committed one; return the differences, one line each.

    Tables must have the same columns and rows, equal text cells, and numbers within the tolerances that the
    *committed* contents state; figures must exist. Tables left out for want of data are not compared.
    """
    stated = contents_of(kept)
    made = json.loads((fresh / "contents.json").read_text())
    problems = []
    absent = json.loads((fresh / "manifest.json").read_text())["absent"]
    unmade = set(stated["tables"]) - set(made["tables"]) if absent else set()
    if set(stated["tables"]) - unmade != set(made["tables"]):
        problems.append(
            f"{stated['study']}: tables {sorted(made['tables'])}, kept {sorted(stated['tables'])}"
        )
    for name, rules in stated["tables"].items():
        if name in made["tables"]:
            problems += [f"{stated['study']}/{name}: {p}" for p in _compare(fresh, kept, name, rules)]
    missing = [
        f for f in stated["figures"] if not ((fresh / f).exists() or absent) or not (kept / f).exists()
    ]
    problems += [f"{stated['study']}: figure {f} is missing" for f in missing]
    return problems


def _compare(fresh: Path, kept: Path, name: str, rules: dict[str, Any]) -> list[str]:
    import numpy as np
    import pandas as pd

    a = pd.read_csv(fresh / f"{name}.csv")
    b = pd.read_csv(kept / f"{name}.csv")
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        return [f"{a.shape} with columns {list(a.columns)}, kept {b.shape} with {list(b.columns)}"]
    problems = []
    for column in a.columns:
        if column in rules["volatile"]:
            continue
        x, y = a[column], b[column]
        if pd.api.types.is_numeric_dtype(x) and pd.api.types.is_numeric_dtype(y):
            u, v = x.to_numpy(dtype=float), y.to_numpy(dtype=float)
            bad = ~np.isclose(u, v, rtol=rules["rtol"], atol=rules["atol"], equal_nan=True)
        else:
            bad = ~((x == y) | (x.isna() & y.isna())).to_numpy(dtype=bool)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            problems.append(
                f"column {column!r}, row {k}: {x.iloc[k]}, kept {y.iloc[k]} ({int(bad.sum())} rows differ)"
            )
    return problems
