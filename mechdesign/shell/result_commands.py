"""Commands on result files: audit, verify, report."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mechdesign.errors import DesignError

__all__ = ["audit", "report", "verify"]

File = Annotated[Path, typer.Argument(help="Result file.")]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="A module of yours to import first: one that registers the laws and losses the file names.",
    ),
]


def _import(modules: list[str]) -> None:
    """Import what the user names, from the folder the command runs in too; never what a file names."""
    for name in modules:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
            raise DesignError.of("import", name, "must be the name of a module, as after Python's import")
        if (here := os.getcwd()) not in sys.path:
            sys.path.insert(0, here)
        try:
            importlib.import_module(name)
        except Exception as error:
            raise DesignError.of(
                "import", name, f"could not be imported ({type(error).__name__}: {error})"
            ) from None


def _result(path: Path, modules: list[str] | None) -> Any:
    from mechdesign.evidence.results import Result
    from mechdesign.files import load

    _import(modules or [])
    loaded = load(path)
    if not isinstance(loaded, Result):
        raise DesignError(f"{path}: holds a {type(loaded).__name__}, not a result")
    return loaded


def audit(
    result: File,
    rows: Annotated[int, typer.Option(help="Rows of least slack to show.", min=0)] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write the whole audit table as CSV.")] = None,
    modules: Modules = None,
) -> None:
    """Check a stored result claim by claim, and its constraints from its mechanism; exit 1 if anything is amiss."""
    from mechdesign.evidence.audit import audited, counted, tightest
    from mechdesign.shell.show import show

    if csv is not None:
        _beside(csv, result, "csv")
    loaded = _result(result, modules)
    claims, table, summary = audited(loaded, str(result))
    typer.echo(summary)
    if csv is not None:
        table.to_csv(csv, index=False)
    least = tightest(table, rows).itertuples(index=False)
    show(table.columns, least, f"least slack of {len(table)} constraints, the tightest of each family first")
    show(claims.columns, claims.itertuples(index=False), "claim by claim")
    amiss = [f"does not hold: {claim}" for claim in claims["claim"][~claims["holds"]]]
    # Rows of the solver's model are evidence, not the definition: they carry its tolerance.
    definition = table[~table["family"].astype(str).str.startswith("model:")]
    over = definition[~(definition["slack"] >= -1e-9)]
    amiss += [
        f"violated: {r.family} {r.index}, slack {r.slack:.3g}" for r in over.head(1).itertuples(index=False)
    ]
    if amiss:
        raise DesignError(f"{result}: {'; '.join(amiss)}")
    typer.echo(f"every constraint of the definition holds; {counted(claims)}")


def _beside(target: Path, result: Path, name: str) -> None:
    """Refuse a file that cannot be written, and the result itself."""
    from mechdesign.evidence.whole_files import check_writable

    if check_writable(target, name).exists() and result.exists() and target.samefile(result):
        raise DesignError.of(name, str(target), "is the result file itself: give another path")


def verify(result: File, modules: Modules = None) -> None:
    """Check a result file twice: by the stand-alone verifier, and by the package; exit 1 if a claim does not hold.

    The two were written apart from each other and share no code. The stand-alone one is a single file that needs
    Python's standard library only (mechdesign/evidence/verify.py); a kind of result that it does not cover is
    checked by the package alone, and the answer says so.
    """
    from mechdesign.evidence import verify as alone
    from mechdesign.evidence.audit import audited, counted
    from mechdesign.shell.show import show

    loaded = _result(result, modules)
    claims, _, _ = audited(loaded, str(result))
    try:
        account = alone.verify(result.read_text(encoding="utf-8"))
    except alone.NotCovered as error:
        rows, said = [], f"not covered ({error})"
    except alone.Refused as error:
        rows, said = [("the file can be read", "proved", False)], f"refused ({error})"
    else:
        rows, said = account.rows, account.summary()
    if rows:
        show(("claim", "how", "holds"), rows, "by the stand-alone verifier")
    show(
        ("claim", "how", "holds"), claims[["claim", "how", "holds"]].itertuples(index=False), "by the package"
    )
    failed = [f"does not hold: {claim}" for claim, _, holds in rows if not holds]
    failed += [f"does not hold: {claim}" for claim in claims["claim"][~claims["holds"]]]
    if failed:
        raise DesignError(f"{result}: {'; '.join(dict.fromkeys(failed))}")
    typer.echo(f"stand-alone verifier: {said}")
    typer.echo(f"package: {counted(claims)}")
    typer.echo(f"verified by {'two programs' if rows else 'the package alone'}: {result}")


def report(
    result: File,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Page to write; beside the file if not given.")
    ] = None,
    modules: Modules = None,
) -> None:
    """Write a result as one self-contained HTML page, to read, print and hand over; exit 1 if a claim does not hold."""
    from mechdesign.evidence.audit import audited

    target = result.with_suffix(".html") if out is None and result.name else out or result
    _beside(target, result, "out")
    loaded = _result(result, modules)
    claims, _, _ = audited(loaded, str(result))  # refuses a file whose parts do not fit together
    loaded.report(target)
    typer.echo(f"written to {target}")
    if failed := [f"does not hold: {claim}" for claim in claims["claim"][~claims["holds"]]]:
        raise DesignError(f"{result}: {'; '.join(failed)}")
