"""Studies: one published table or figure each, regenerated from one command and checked against the files.

A study is a function that is handed a `Report` and gives it texts, tables and figures; the report writes
``results/<study>/`` and remembers, for every table, the tolerances within which a later run must agree.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from mechdesign.errors import DesignError
from mechdesign.plotting import write_figure
from mechdesign.runs.progress import progress_bar

__all__ = ["Report", "Study", "all_studies", "check_study", "get_study", "run_study", "study"]

_PACKAGE = "mechdesign_studies"
_LIBRARIES = (
    "mechdesign",
    "numpy",
    "scipy",
    "pandas",
    "cvxpy",
    "highspy",
    "clarabel",
    "dp-accounting",
    "POT",
)


@dataclass(frozen=True)
class Study:
    """A named study: what it regenerates, from which paper, and the function that does it."""

    name: str
    title: str
    paper: str
    run: Callable[[Report], None]


def study(name: str, *, title: str, paper: str = "") -> Callable[[Callable[[Report], None]], Study]:
    """Turn a function of a `Report` into a `Study`."""

    def decorate(function: Callable[[Report], None]) -> Study:
        return Study(name, title, paper, function)

    return decorate


def all_studies() -> dict[str, Study]:
    """Every study shipped with the package, by name."""
    package = import_module(_PACKAGE)
    found: dict[str, Study] = {}
    for module in walk_packages(package.__path__, f"{_PACKAGE}."):
        if module.ispkg:
            continue
        for value in vars(import_module(module.name)).values():
            if isinstance(value, Study):
                found[value.name] = value
    return dict(sorted(found.items()))


def get_study(name: str) -> Study:
    """Return one study by name."""
    found = all_studies()
    if name not in found:
        raise DesignError.of("study", name, f"must be one of {list(found)}")
    return found[name]


class Report:
    """Collects what a study finds and writes it to a folder.

    Parameters
    ----------
    name, title, paper : str
    folder : Path
        Emptied first.
    data_dir : Path, optional
        Where real data sets are.
    console : rich Console, optional
        Shows texts and tables as they come; silent when None.
    jobs : int
        Processes a study may use.
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
    ) -> None:
        self.name, self.folder, self.data_dir, self.jobs = name, folder, data_dir, jobs
        self._console = console
        self._title = title
        self._lines = [f"# {title}", ""] + ([f"*{paper}*", ""] if paper else [])
        self._tables: dict[str, dict[str, Any]] = {}
        self._figures: list[str] = []
        self._records: dict[str, Any] = {}
        self._started = time.perf_counter()
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        if console is not None:
            console.rule(title)

    def rng(self, stream: str) -> np.random.Generator:
        """Return a generator seeded by the study's and the stream's name: the same in every run."""
        seed = int.from_bytes(hashlib.sha256(f"{self.name}/{stream}".encode()).digest()[:8], "big")
        self._records.setdefault("seeds", {})[stream] = seed
        return np.random.default_rng(seed)

    def record(self, **facts: Any) -> None:
        """Put facts into the manifest."""
        self._records.update(facts)

    def text(self, markdown: str) -> None:
        """Add a paragraph."""
        self._lines += [markdown.strip(), ""]
        if self._console is not None:
            self._console.print(Markdown(markdown.strip()))

    def table(
        self,
        name: str,
        frame: pd.DataFrame,
        *,
        caption: str = "",
        volatile: Sequence[str] = (),
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
            Columns a later run need not reproduce (times).
        rtol, atol : float
            How closely a later run must reproduce the numbers.
        digits : int
            Significant digits in Markdown, LaTeX and on the terminal; CSV has them all.
        show, inline : int
            Rows shown on the terminal, and put into the README of the results.
        """
        frame = frame.reset_index(drop=True)
        frame.to_csv(self.folder / f"{name}.csv", index=False)
        pattern = f".{digits}g"
        (self.folder / f"{name}.md").write_text(frame.to_markdown(index=False, floatfmt=pattern) + "\n")
        latex = frame.to_latex(index=False, escape=True, float_format=f"%{pattern}", caption=caption or None)
        (self.folder / f"{name}.tex").write_text(latex)
        self._tables[name] = {"rows": len(frame), "rtol": rtol, "atol": atol, "volatile": list(volatile)}
        self._lines += [f"## {caption or name}", ""]
        if len(frame) <= inline:
            self._lines += [frame.to_markdown(index=False, floatfmt=pattern), ""]
        self._lines += [
            f"Files: [{name}.csv]({name}.csv), [{name}.md]({name}.md), [{name}.tex]({name}.tex)",
            "",
        ]
        if self._console is not None:
            self._console.print(_rich_table(frame.head(show), caption or name, digits))
            if show is not None and len(frame) > show:
                self._console.print(f"… {len(frame) - show} more rows in {self.folder / (name + '.csv')}")

    def figure(self, name: str, fig: Figure, *, caption: str = "") -> None:
        """Write a figure as PNG and SVG."""
        self._figures += write_figure(fig, self.folder / name)
        self._lines += [f"![{caption or name}]({name}.png)", "", caption, ""]
        if self._console is not None:
            self._console.print(
                f"figure: {self.folder / (name + '.png')}" + (f"  {caption}" if caption else "")
            )

    @contextmanager
    def progress(self, label: str, total: int | None) -> Iterator[Callable[[], None]]:
        """Progress bar on a terminal, nothing elsewhere."""
        if self._console is None:
            yield lambda: None
            return
        with progress_bar(label, total) as step:
            yield step

    def close(self) -> None:
        """Write README.md and the manifest."""
        (self.folder / "README.md").write_text("\n".join(self._lines).rstrip() + "\n")
        manifest = {
            "study": self.name,
            "title": self._title,
            "seconds": round(time.perf_counter() - self._started, 3),
            "versions": {"python": platform.python_version(), **{n: _version(n) for n in _LIBRARIES}},
            "tables": self._tables,
            "figures": sorted(self._figures),
            **self._records,
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest, indent=1, default=_plain) + "\n")
        if self._console is not None:
            self._console.print(f"{self.name}: {manifest['seconds']} s, written to {self.folder}")


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else f"{value:.{digits}g}"
    return "" if value is None else str(value)


def _rich_table(frame: pd.DataFrame, title: str, digits: int) -> Table:
    table = Table(title=title, title_justify="left")
    for column in frame.columns:
        numeric = pd.api.types.is_numeric_dtype(frame[column]) and not pd.api.types.is_bool_dtype(
            frame[column]
        )
        table.add_column(str(column), justify="right" if numeric else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*(_cell(v, digits) for v in row))
    return table


def run_study(
    chosen: Study,
    out: Path,
    *,
    data_dir: Path | None = None,
    console: Console | None = None,
    jobs: int = 1,
) -> Path:
    """Run one study into ``out/<name>`` and return that folder."""
    folder = out / chosen.name
    report = Report(
        chosen.name, chosen.title, chosen.paper, folder, data_dir=data_dir, console=console, jobs=jobs
    )
    chosen.run(report)
    report.close()
    return folder


def check_study(fresh: Path, kept: Path) -> list[str]:
    """Compare a regenerated folder with a kept one; return the differences, one line each.

    Tables must have the same columns and rows, text cells equal, numbers within the tolerances that the
    *kept* manifest states; figures must exist.
    """
    if not (kept / "manifest.json").exists():
        return [f"{kept}: no manifest; run the study and commit its results"]
    stated = json.loads((kept / "manifest.json").read_text())
    made = json.loads((fresh / "manifest.json").read_text())
    problems = []
    if set(stated["tables"]) != set(made["tables"]):
        problems.append(
            f"{stated['study']}: tables {sorted(made['tables'])}, kept {sorted(stated['tables'])}"
        )
    for name, rules in stated["tables"].items():
        if name in made["tables"]:
            problems += [f"{stated['study']}/{name}: {p}" for p in _compare(fresh, kept, name, rules)]
    missing = [f for f in stated["figures"] if not (fresh / f).exists() or not (kept / f).exists()]
    problems += [f"{stated['study']}: figure {f} is missing" for f in missing]
    return problems


def _compare(fresh: Path, kept: Path, name: str, rules: dict[str, Any]) -> list[str]:
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
            bad = (x.astype(str) != y.astype(str)).to_numpy()
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            problems.append(
                f"column {column!r}, row {k}: {x.iloc[k]}, kept {y.iloc[k]} ({int(bad.sum())} rows differ)"
            )
    return problems
