"""The command line: studies, designs from TOML files, audits of result files, solvers."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import joblib
import typer
from rich.console import Console
from rich.table import Table

from mechdesign import solvers
from mechdesign.errors import MechdesignError
from mechdesign.evidence.results import Result
from mechdesign.files import load
from mechdesign.quantizers.common.slack import is_exact
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.shell.report import all_studies, check_study, get_study, run_study
from mechdesign.shell.spec_file import design_from_toml

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


@study_app.command("list")
def study_list() -> None:
    """List the studies."""
    table = Table("study", "title", "regenerates")
    for study in all_studies().values():
        table.add_row(study.name, study.title, study.paper)
    _console().print(table)


@study_app.command("run")
def study_run(
    names: Annotated[list[str], typer.Argument(help="Studies to run, or 'all'.")],
    out: Out = Path("results"),
    data_dir: DataDir = None,
    jobs: Jobs = 1,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show tables.")] = False,
) -> None:
    """Run studies and write their tables and figures."""
    chosen = all_studies().values() if names == ["all"] else [get_study(n) for n in names]
    console = None if quiet else _console()
    for study in chosen:
        run_study(study, out, data_dir=data_dir, console=console, jobs=jobs)


@study_app.command("check")
def study_check(
    names: Annotated[list[str], typer.Argument(help="Studies to check, or 'all'.")],
    kept: Annotated[Path, typer.Option(help="Folder with the committed results.")] = Path("results"),
    data_dir: DataDir = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Studies regenerated at a time.")] = 1,
) -> None:
    """Regenerate studies elsewhere and compare with committed results, within each table's stated tolerances."""
    chosen = list(all_studies()) if names == ["all"] else [get_study(n).name for n in names]
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as fresh:
        # Studies are independent: one a process, the longest of them decides.
        work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(
            joblib.delayed(_regenerate)(name, Path(fresh), data_dir) for name in chosen
        )
        for name, folder in work:
            found = check_study(folder, kept / name)
            problems += found
            seconds = json.loads((folder / "manifest.json").read_text())["seconds"]
            typer.echo(f"{name}: {'differs' if found else 'as committed'} ({seconds:.1f} s)")
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)


def _regenerate(name: str, out: Path, data_dir: Path | None) -> tuple[str, Path]:
    return name, run_study(get_study(name), out, data_dir=data_dir)


@app.command()
def solve(
    spec: Annotated[Path, typer.Argument(help="TOML file that describes a design.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Result file to write (JSON).")] = None,
) -> None:
    """Solve the design described in a TOML file."""
    design, options = design_from_toml(spec)
    result = design.solve(**options)
    typer.echo(str(result))
    if out is not None:
        result.save(out)
        typer.echo(f"written to {out}")


@app.command()
def audit(
    result: Annotated[Path, typer.Argument(help="Result file.")],
    rows: Annotated[int, typer.Option(help="Rows of least slack to show.")] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write the whole audit table as CSV.")] = None,
) -> None:
    """Recompute every constraint of a stored result from its mechanism alone; exit 1 if one is violated."""
    loaded = load(result)
    if not isinstance(loaded, Result):
        raise MechdesignError(f"{result}: holds a {type(loaded).__name__}, not a result")
    table = loaded.audit()
    typer.echo(str(loaded))
    if csv is not None:
        table.to_csv(csv, index=False)
    shown = Table(*table.columns, title=f"least slack of {len(table)} constraints", title_justify="left")
    for values in table.sort_values("slack").head(rows).itertuples(index=False):
        shown.add_row(*(f"{v:.9g}" if isinstance(v, float) else str(v) for v in values))
    _console().print(shown)
    # Rows of the solver's model are evidence, not the definition: they are floats and carry its tolerance.
    definition = table[~table["family"].astype(str).str.startswith("model:")]
    certified = loaded.certificate
    if certified is not None and hasattr(certified, "verify") and not certified.verify():
        raise MechdesignError(f"{result}: the certificate does not verify")
    # Tables of small exact quantizers are computed in fractions; all others in floats, to rounding.
    mechanism = loaded.mechanism
    tolerance = 0.0 if isinstance(mechanism, Quantizer) and is_exact(mechanism) else 1e-9
    if (definition["slack"] < -tolerance).any():
        worst = definition.loc[definition["slack"].idxmin()]
        raise MechdesignError(
            f"{result}: violated: {worst['family']} {worst['index']}, slack {worst['slack']:.3g}"
        )
    typer.echo("every constraint of the definition holds")


@app.command("solvers")
def list_solvers() -> None:
    """Show the solver backends and what each can do."""
    frame = solvers.available()
    table = Table(*frame.columns)
    for values in frame.itertuples(index=False):
        table.add_row(
            *(
                ("yes" if v else "no")
                if isinstance(v, bool)
                else f"{v:g}"
                if isinstance(v, float)
                else str(v)
                for v in values
            )
        )
    _console().print(table)


def main() -> None:
    """Run the command line; errors a user can mend are one line and exit code 1, no traceback."""
    try:
        app(standalone_mode=True)
    except MechdesignError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("interrupted; a search with a store continues where it was", err=True)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
