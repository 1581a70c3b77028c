"""The tables of a campaign: counts by class and end, with commit, seed and versions, as CSV and Markdown."""

import platform
import subprocess
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

PACKAGES = ("mechdesign", "numpy", "scipy", "cvxpy", "highspy", "mpmath")


def commit() -> str:
    """The commit that is examined, marked where files differ from it."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    run = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True)
    return run.stdout.strip() or "unknown"


def versions() -> str:
    found = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    return ", ".join([f"Python {platform.python_version()}", *found])


def latest(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The last examination of each design, by number."""
    table = pd.DataFrame({row["number"]: row for row in rows}.values())
    table["outcome"] = table["ended"].str.partition(":")[0]
    return table.sort_values("number")


def counts(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Designs by class and outcome."""
    return latest(rows).groupby(["class", "outcome"]).size().unstack(fill_value=0)


def markdown(table: pd.DataFrame) -> str:
    head = [table.index.name or "", *map(str, table.columns)]
    body = [[str(index), *map(str, row)] for index, *row in table.itertuples()]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def write(rows: list[dict[str, Any]], seed: int, folder: Path, *, later: bool = False) -> None:
    """Write designs.csv (class, outcome, status, count, seconds), of the later classes later-designs.csv; print what it says."""
    file, option = ("later-designs", "--later ") if later else ("designs", "")
    table, first = latest(rows), {}
    for row in rows:
        first.setdefault(row["number"], row)
    folder.mkdir(parents=True, exist_ok=True)
    groups = table.groupby(["class", "outcome", "status"])["seconds"]
    summary = groups.agg(designs="size", median_seconds="median", largest_seconds="max").round(3)
    summary.to_csv(folder / f"{file}.csv", lineterminator="\n")
    by_class = counts(rows)
    by_class.loc["all"] = by_class.sum()
    commits = Counter(row["commit"] for row in {row["number"]: row for row in rows}.values())
    mended = [
        f"- design {n} ({row['class']}), at {row['commit']}: {row['ended']}; now: {table.set_index('number')['ended'][n]}\n"
        for n, row in sorted(first.items())
        if row["ended"].partition(":")[0] not in ("fine", "infeasible", "refused", "no answer")
    ]
    text = f"""# Design campaign{": the classes that came later" if later else ""}

{len(table)} random designs, seed {seed}: `python -m tests.campaign {option}--designs {len(table)} --seed {seed} --store FILE`.
{versions()}.
Commits examined: {", ".join(f"{name} ({count} designs)" for name, count in commits.items())}.
Processor seconds a design: median {table["seconds"].median():.2f}, largest {table["seconds"].max():.1f}, all {table["seconds"].sum() / 3600:.1f} h.

Outcomes: *fine*, every claim held under both verifiers and the independent computation; *infeasible*, *refused*, *no answer*, the
package said so by its own errors. False claims, foreign exceptions, hangs over a minute and time limits not kept have a column of
their own when there is one.

{markdown(by_class)}"""
    if mended:
        text += "\nAt fault when first examined, and again after the fix:\n\n" + "".join(mended)
    print(text)
