"""The command line: studies, designs from TOML files, audits of result files, solvers.

A command imports what it needs when it runs: help and lists come at once.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mechdesign.errors import DesignError, MechdesignError
from mechdesign.shell.runner import all_studies, check_study, get_study, run_study
from mechdesign.shell.studykit import Study

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Design differential-privacy mechanisms, and prove what they deliver.",
)
study_app = typer.Typer(no_args_is_help=True, help="Regenerate published tables and figures.")
app.add_typer(study_app, name="study")

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar="MECHDESIGN_DATA", help="Folder with real data sets (see the studies)."
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder that gets <study>/.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Worker processes a study may use.")]


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160, soft_wrap=False)


def _show(columns: Iterable[Any], rows: Iterable[Iterable[Any]], title: str | None = None) -> None:
    def cell(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return f"{value:.9g}" if isinstance(value, float) else str(value)

    table = Table(*map(str, columns), title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(cell, row))
    _console().print(table)


def _chosen(names: list[str]) -> list[Study]:
    return list(all_studies().values()) if names == ["all"] else [get_study(n) for n in names]


@study_app.command("list")
def study_list() -> None:
    """List the studies."""
    _show(("study", "title", "regenerates"), ((s.name, s.title, s.paper) for s in all_studies().values()))


@study_app.command("run")
def study_run(
    names: Annotated[list[str], typer.Argument(help="Studies to run, or 'all'.")],
    out: Out = Path("results"),
    data_dir: DataDir = None,
    jobs: Jobs = 1,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show tables.")] = False,
) -> None:
    """Run studies and write their tables and figures."""
    for study in _chosen(names):
        run_study(study, out, data_dir=data_dir, console=None if quiet else _console(), jobs=jobs)


@study_app.command("check")
def study_check(
    names: Annotated[list[str], typer.Argument(help="Studies to check, or 'all'.")],
    kept: Annotated[Path, typer.Option(help="Folder with the committed results.")] = Path("results"),
    data_dir: DataDir = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Studies regenerated at a time.")] = 1,
) -> None:
    """Regenerate studies elsewhere and compare with committed results, within each table's stated tolerances."""
    import joblib

    problems: list[str] = []
    with tempfile.TemporaryDirectory() as fresh:
        # Studies are independent: one a process, the longest of them decides.
        work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(
            joblib.delayed(run_study)(study, Path(fresh), data_dir=data_dir) for study in _chosen(names)
        )
        for folder in work:
            found = check_study(folder, kept / folder.name)
            problems += found
            seconds = json.loads((folder / "manifest.json").read_text())["seconds"]
            typer.echo(f"{folder.name}: {'differs' if found else 'as committed'} ({seconds:.1f} s)")
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)


@app.command()
def solve(
    spec: Annotated[Path, typer.Argument(help="TOML file that describes a design.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Result file to write (JSON).")] = None,
) -> None:
    """Solve the design described in a TOML file."""
    from mechdesign.shell.spec_file import design_from_toml

    design, options = design_from_toml(spec)
    result = design.solve(**options)
    typer.echo(str(result))
    if out is not None:
        result.save(out)
        typer.echo(f"written to {out}")


@app.command()
def audit(
    result: Annotated[Path, typer.Argument(help="Result file.")],
    rows: Annotated[int, typer.Option(help="Rows of least slack to show.", min=0)] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write the whole audit table as CSV.")] = None,
) -> None:
    """Check a stored result claim by claim, and its constraints from its mechanism; exit 1 if anything is amiss."""
    from mechdesign.evidence.audit import audited, tightest
    from mechdesign.evidence.results import Result
    from mechdesign.files import load

    loaded = load(result)
    if not isinstance(loaded, Result):
        raise DesignError(f"{result}: holds a {type(loaded).__name__}, not a result")
    claims, table, summary = audited(loaded, str(result))
    typer.echo(summary)
    if csv is not None:
        table.to_csv(csv, index=False)
    least = tightest(table, rows).itertuples(index=False)
    _show(table.columns, least, f"least slack of {len(table)} constraints, the tightest of each family first")
    _show(claims.columns, claims.itertuples(index=False), "claim by claim")
    amiss = [f"does not hold: {claim}" for claim in claims["claim"][~claims["holds"]]]
    # Rows of the solver's model are evidence, not the definition: they carry its tolerance.
    definition = table[~table["family"].astype(str).str.startswith("model:")]
    over = definition[~(definition["slack"] >= -1e-9)]
    amiss += [
        f"violated: {r.family} {r.index}, slack {r.slack:.3g}" for r in over.head(1).itertuples(index=False)
    ]
    if amiss:
        raise DesignError(f"{result}: {'; '.join(amiss)}")
    counts = claims["how"].value_counts()
    words = ", ".join(f"{counts.get(how, 0)} {how}" for how in ("proved", "recomputed", "claimed"))
    typer.echo(f"every constraint of the definition holds; claims: {words}")


@app.command("solvers")
def list_solvers() -> None:
    """Show the solver backends and what each can do."""
    from mechdesign.solvers.registry import available

    frame = available()
    _show(frame.columns, frame.itertuples(index=False))


def main() -> None:
    """Run the command line; errors a user can mend are one line and exit code 1, no traceback."""
    if sys.stdout is None:
        sys.exit("error: standard output is closed")
    try:
        app(standalone_mode=True)
    except (MechdesignError, OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):  # whatever is left to write has no reader
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        line = " ".join(str(error).split()) or type(error).__name__
        typer.echo(f"error: {line}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("interrupted; a search with a store continues where it was", err=True)
        sys.exit(130)
