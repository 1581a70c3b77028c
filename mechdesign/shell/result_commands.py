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


def _held(path: Path, modules: list[str] | None) -> tuple[Any, dict[str, Any]]:
    """What a file holds, and the results in it by name: one, "" , or those of a comparison or of a frontier."""
    from mechdesign.evidence.results import Result
    from mechdesign.files import load

    _import(modules or [])
    loaded = load(path)
    if isinstance(loaded, Result):
        return loaded, {"": loaded}
    kind = type(loaded).__name__
    if not hasattr(loaded, "agreements"):
        raise DesignError(f"{path}: holds a {kind}, not a result")
    if not loaded.members:
        raise DesignError(
            f"{path}: holds a {kind} without its results, as older versions wrote it: make it again and save it"
        )
    return loaded, loaded.members


def _of_table(loaded: Any) -> tuple[list[str], list[str]]:
    """What a comparison or a frontier says of its results that does not hold, and what nothing in it shows."""
    rows = loaded.agreements() if hasattr(loaded, "agreements") else []
    amiss = [f"does not hold: {claim}" for claim, _, _, holds in rows if not holds]
    return amiss, [f"claimed: {claim}" for claim, how, _, holds in rows if holds and how == "claimed"]


def _named(name: str) -> str:
    return f"{name}: " if name else ""


def audit(
    result: File,
    rows: Annotated[int, typer.Option(help="Rows of least slack to show.", min=0)] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write the whole audit table as CSV.")] = None,
    modules: Modules = None,
) -> None:
    """Check a stored result claim by claim, and its constraints from its mechanism; exit 1 if anything is amiss.

    Of a comparison or a frontier, every result in it.
    """
    import pandas as pd

    from mechdesign.evidence.audit import audited, counted, tightest
    from mechdesign.shell.show import show

    if csv is not None:
        _beside(csv, result, "csv")
    loaded, members = _held(result, modules)
    (amiss, claimed), tables, counts = _of_table(loaded), [], []
    for name, member in members.items():
        claims, table, summary = audited(member, str(result))
        typer.echo(f"{_named(name)}{summary}")
        tables.append(table if member is loaded else table.assign(result=name))
        least = tightest(table, rows).itertuples(index=False)
        show(
            table.columns,
            least,
            f"{_named(name)}least slack of {len(table)} constraints, the tightest of each family first",
        )
        show(claims.columns, claims.itertuples(index=False), f"{_named(name)}claim by claim")
        amiss += [f"does not hold: {_named(name)}{claim}" for claim in claims["claim"][~claims["holds"]]]
        # Rows of the solver's model are evidence, not the definition: they carry its tolerance.
        definition = table[~table["family"].astype(str).str.startswith("model:")]
        over = definition[~(definition["slack"] >= -1e-9)]
        amiss += [
            f"violated: {_named(name)}{r.family} {r.index}, slack {r.slack:.3g}"
            for r in over.head(1).itertuples(index=False)
        ]
        counts.append(f"{_named(name)}every constraint of the definition holds; {counted(claims)}")
    if csv is not None:
        pd.concat(tables).to_csv(csv, index=False)
    if amiss:
        raise DesignError(f"{result}: {'; '.join(amiss)}")
    for line in [*claimed, *counts]:
        typer.echo(line)


def _beside(target: Path, result: Path, name: str) -> None:
    """Refuse a file that cannot be written, and the result itself."""
    from mechdesign.evidence.whole_files import check_writable

    if check_writable(target, name).exists() and result.exists() and target.samefile(result):
        raise DesignError.of(name, str(target), "is the result file itself: give another path")


def verify(result: File, modules: Modules = None) -> None:
    """Check a result file twice: by the stand-alone verifier, and by the package; exit 1 if a claim does not hold.

    The two were written apart from each other and share no code. The stand-alone one needs Python's
    standard library only (mechdesign/verifier); a kind of result that it does not cover is
    checked by the package alone, and the answer says so. Of a comparison or a frontier every result is checked, and that
    its table shows them.
    """
    from mechdesign.evidence.audit import audited, counted
    from mechdesign.evidence.serialize import dumps
    from mechdesign.shell.show import show

    loaded, members = _held(result, modules)
    (failed, claimed), counts, by = _of_table(loaded), [], []
    for name, member in members.items():
        claims, _, _ = audited(member, str(result))
        text = result.read_text(encoding="utf-8") if member is loaded else dumps(member)
        rows, said = _alone(text)
        if member is loaded:
            if rows:
                show(("claim", "how", "holds"), rows, "by the stand-alone verifier")
            shown = claims[["claim", "how", "holds"]].itertuples(index=False)
            show(("claim", "how", "holds"), shown, "by the package")
        failed += [f"does not hold: {_named(name)}{claim}" for claim, _, holds in rows if not holds]
        failed += [f"does not hold: {_named(name)}{claim}" for claim in claims["claim"][~claims["holds"]]]
        counts += [
            f"{_named(name)}stand-alone verifier: {said}",
            f"{_named(name)}package: {counted(claims)}",
        ]
        by.append("two programs" if rows else "the package alone")
    if failed:
        raise DesignError(f"{result}: {'; '.join(dict.fromkeys(failed))}")
    for line in [*claimed, *counts]:
        typer.echo(line)
    if len(by) == 1:
        typer.echo(f"verified by {by[0]}: {result}")
        return
    both = by.count("two programs")
    typer.echo(
        f"verified, and as its table shows them: {len(by)} results of {result}, "
        f"{both} by two programs, {len(by) - both} by the package alone"
    )


def _alone(text: str) -> tuple[list[tuple[str, str, bool]], str]:
    """The claims that the stand-alone verifier checked, and its summary."""
    from mechdesign.verifier import verify as alone

    try:
        account = alone.verify(text)
    except alone.NotCovered as error:
        return [], f"not covered ({error})"
    except alone.Refused as error:
        return [("the file can be read", "proved", False)], f"refused ({error})"
    return account.rows, account.summary()


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
    loaded, members = _held(result, modules)
    failed, _ = _of_table(loaded)
    for name, member in members.items():
        claims, _, _ = audited(member, str(result))  # refuses a file whose parts do not fit together
        failed += [f"does not hold: {_named(name)}{claim}" for claim in claims["claim"][~claims["holds"]]]
    loaded.report(target)
    typer.echo(f"written to {target}")
    if failed:
        raise DesignError(f"{result}: {'; '.join(failed)}")
