"""The command line: studies, designs from TOML files, audits of result files, solvers.

A command imports what it needs when it runs, so that help and lists appear at once.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from mechdesign.errors import MechdesignError
from mechdesign.shell.commands import Delta, Epsilon, Page, Rho, app, examples, privacy_of
from mechdesign.shell.studykit import Study, all_studies, check_study, contents_of, get_study, run_study


def _version(asked: bool) -> None:
    if asked:
        import mechdesign

        typer.echo(f"mechdesign {mechdesign.__version__}")
        raise typer.Exit


study_app = typer.Typer(no_args_is_help=True, help="Regenerate published tables and figures.")
app.add_typer(study_app, name="study", epilog=examples("study list", "study run optimal-noise -q"))


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Design differential-privacy mechanisms, and prove what they deliver."""


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar="MECHDESIGN_DATA", help="Folder with real data sets (documentation, page Data)."
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder that gets <study>/.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Worker processes a study may use.", min=1)]


def _chosen(names: list[str]) -> list[Study]:
    return list(all_studies().values()) if names == ["all"] else [get_study(n) for n in names]


@study_app.command("list", epilog=examples("study list"))
def study_list() -> None:
    """List the studies."""
    from mechdesign.evidence.digits import show

    show(("study", "title", "regenerates"), ((s.name, s.title, s.paper) for s in all_studies().values()))


@study_app.command("run", epilog=examples("study run location", "study run all -q --out results"))
def study_run(
    names: Annotated[list[str], typer.Argument(help="Studies to run, or 'all'.")],
    out: Out = Path("results"),
    data_dir: DataDir = None,
    jobs: Jobs = 1,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show bars instead of tables.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The quick variant, into <study>/quick/.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write each table as Markdown too.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Write each table as LaTeX too.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Write each figure as PNG too.")] = False,
) -> None:
    """Run studies and write their tables (CSV) and figures (SVG)."""
    from mechdesign.evidence.digits import console

    further = [name for name, asked in (("markdown", markdown), ("latex", latex), ("png", png)) if asked]
    options: dict[str, Any] = {
        "data_dir": data_dir,
        "jobs": jobs,
        "quick": quick,
        "further": further,
        "bars": True,
    }
    for study in _chosen(names):
        if study.quick or not quick or names != ["all"]:
            shown = None if quiet else console(120)  # a study's tables are wide
            run_study(study, out, console=shown, **options)


@study_app.command(
    "check", epilog=examples("study check location", "study check all --kept results --jobs 2")
)
def study_check(
    names: Annotated[list[str], typer.Argument(help="Studies to check, or 'all'.")],
    kept: Annotated[Path, typer.Option(help="Folder with the committed results.")] = Path("results"),
    data_dir: DataDir = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Studies regenerated at a time.", min=1)] = 1,
    full: Annotated[
        bool, typer.Option("--full", help="The whole of studies that have a quick variant too.")
    ] = False,
) -> None:
    """Regenerate studies elsewhere and compare with committed results, within each table's stated tolerances.

    A study with a quick variant is checked by that variant; tables whose data set is missing are "not checked".
    """
    import joblib

    problems: list[str] = []
    for study in _chosen(names):  # refuse missing results before any study runs
        contents_of(kept / study.name / ("quick" if study.quick and not full else ""))
    with tempfile.TemporaryDirectory() as fresh:
        # Studies are independent: one per process.
        work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(
            joblib.delayed(run_study)(study, Path(fresh), data_dir=data_dir, quick=study.quick and not full)
            for study in _chosen(names)
        )
        for folder in work:
            name = folder.relative_to(fresh)
            found = check_study(folder, kept / name)
            problems += found
            made = json.loads((folder / "manifest.json").read_text())
            typer.echo(f"{name}: {'differs' if found else 'as committed'} ({made['seconds']:.1f} s)")
            if made["absent"]:
                typer.echo(f"{name}: not checked: what needs {', '.join(made['absent'])} (--data-dir)")
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)


@app.command(
    epilog=examples(
        "ledger ledger.jsonl --epsilon 1 --delta 1e-6", "ledger ledger.jsonl --report ledger.html"
    )
)
def ledger(
    file: Annotated[Path, typer.Argument(help="A ledger; with a budget, a new one.")],
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    report: Page = None,
) -> None:
    """Show the releases about a data set, and the rest of its budget; open a ledger with --epsilon or --rho."""
    from mechdesign.evidence.digits import show
    from mechdesign.plan.ledger import Ledger

    asked = epsilon is not None or rho is not None or delta
    held = Ledger(file, privacy_of(epsilon, delta, rho) if asked else None)
    typer.echo(str(held))
    show(frame := held.to_frame().iloc[:, :8], frame.itertuples(index=False))
    if report is not None:
        held.report(report)


@app.command("solvers", epilog=examples("solvers"))
def list_solvers() -> None:
    """Show the solver backends and what each can do."""
    from mechdesign.evidence.digits import show
    from mechdesign.solvers.registry import available

    frame = available()
    show(frame.columns, frame.itertuples(index=False))


def main() -> None:
    """Run the command line; errors that a user can mend print one line and exit with code 1, without a traceback."""
    if sys.stdout is None:
        sys.exit("error: standard output is closed")
    try:
        app(standalone_mode=True)
    except (MechdesignError, OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):  # discard further output, which has no reader
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        line = " ".join(str(error).split()) or type(error).__name__
        typer.echo(f"error: {line}", err=True)
        sys.exit(1)
    except Exception as error:  # a defect of the package: one line, too
        if os.environ.get("MECHDESIGN_DEBUG"):
            raise
        where = "MECHDESIGN_DEBUG=1 shows what and where, and may show data"
        typer.echo(f"internal error: {type(error).__name__} ({where})", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("interrupted; a search with a store continues where it was", err=True)
        sys.exit(130)
