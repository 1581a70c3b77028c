"""The tables of a campaign: counts by class and end, with commit, seed and versions, as CSV."""

import platform
import subprocess
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


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """Write class, outcome, status, count and seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    groups = latest(rows).groupby(["class", "outcome", "status"])["seconds"]
    summary = groups.agg(designs="size", median_seconds="median", largest_seconds="max").round(3)
    summary.to_csv(path, lineterminator="\n")
