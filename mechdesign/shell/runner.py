"""Finding studies, running them into folders, and comparing a folder with the one that was kept."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechdesign.errors import DesignError
from mechdesign.shell.studykit import Report, Study

if TYPE_CHECKING:
    from rich.console import Console

GROUP = "mechdesign.studies"
OWN = {"README.md", "contents.json", "manifest.json", "report.html"}  # what every study writes


def all_studies() -> dict[str, Study]:
    """Every study that an installed distribution declares, by name; none is imported."""
    from importlib import metadata

    found = [study for entry in metadata.entry_points(group=GROUP) for study in entry.load()]
    return {study.name: study for study in sorted(found, key=lambda s: s.name)}


def get_study(name: str) -> Study:
    """Return one study by name."""
    found = all_studies()
    if name not in found:
        raise DesignError.of("study", name, f"must be one of {list(found)}")
    return found[name]


def run_study(
    chosen: Study,
    out: Path,
    *,
    data_dir: Path | None = None,
    console: Console | None = None,
    jobs: int = 1,
    bars: bool = False,
    quick: bool = False,
) -> Path:
    """Run one study into ``out/<name>``, its quick variant into ``out/<name>/quick``, and return that folder.

    The study writes into a new folder, which takes the old one's place when it is complete, and files there that no
    study wrote stay.

    Raises
    ------
    DesignError
        A file that no study wrote has the name of one that this study writes; the study has no quick variant.
    """
    if quick and not chosen.quick:
        raise DesignError.of("quick", quick, f"{chosen.name} has no quick variant: run it without")
    try:
        folder, before = _recovered(out, chosen.name)
        if quick:
            folder, before = _recovered(folder, "quick")
        tempfile.TemporaryFile(dir=folder.parent).close()
    except OSError as error:
        raise DesignError.of(
            "out", str(out), f"cannot be written ({error.strerror}): choose another folder"
        ) from None
    out, name = folder.parent, folder.name
    _refuse(folder, _foreign(folder) & OWN)
    fresh = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=out))
    try:
        fresh.chmod(0o755)
        report = Report(
            chosen.name,
            chosen.title,
            chosen.paper,
            fresh,
            data_dir=data_dir,
            console=console,
            jobs=jobs,
            bars=bars,
            quick=quick,
        )
        import scipy.linalg  # noqa: F401  BLAS is limited where it is loaded

        from mechdesign.solvers.deadline import one_thread

        with one_thread():  # studies' matrices are small, and other studies may be on the other cores
            chosen.run(report)
        report.close()
        if folder.exists():
            kept = _foreign(folder)
            _refuse(folder, {name for name in kept if (fresh / name).exists()})
            for name in kept:
                copy = shutil.copytree if (folder / name).is_dir() else shutil.copy2
                copy(folder / name, fresh / name)
            shutil.rmtree(before, ignore_errors=True)
            folder.rename(before)
        fresh.rename(folder)
        shutil.rmtree(before, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    if console is not None:
        console.print(f"{chosen.name}: written to {folder}")
    return folder


def _recovered(out: Path, name: str) -> tuple[Path, Path]:
    """The folder of a study in an existing one, and where it is put aside; a run killed between its renames is mended."""
    folder, before = out / name, out / f".{name}.before"
    out.mkdir(parents=True, exist_ok=True)
    if before.exists() and not folder.exists():
        before.rename(folder)
    return folder, before


def _foreign(folder: Path) -> set[str]:
    """What is in a study's folder and was not written by a study: its contents list the rest."""
    present = {path.name for path in folder.iterdir()} if folder.exists() else set()
    try:
        contents = json.loads((folder / "contents.json").read_text())
        tables = {f"{name}.{end}" for name in contents["tables"] for end in ("csv", "md", "tex")}
        return present - tables - set(contents["figures"]) - OWN
    except (OSError, ValueError, KeyError, TypeError):
        return present


def _refuse(folder: Path, names: set[str]) -> None:
    if names:
        raise DesignError(
            f"{folder} holds {', '.join(sorted(names))}, which no study wrote: move it, or choose another --out"
        )


def check_study(fresh: Path, kept: Path) -> list[str]:
    """Compare a regenerated folder with a kept one; return the differences, one line each.

    Tables must have the same columns and rows, text cells equal, numbers within the tolerances that the
    *kept* contents state; figures must exist. What the regenerated study left out for want of data is not compared.
    """
    if not (kept / "contents.json").exists():
        return [f"{kept}: no contents.json; run the study and commit its results"]
    stated = json.loads((kept / "contents.json").read_text())
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
