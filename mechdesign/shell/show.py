"""Tables on a terminal: as wide as it is, long texts folded, numbers to the digits that mean something."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mechdesign.evidence.digits import shown

__all__ = ["console", "show", "tabulated"]

WIDTH = 80  # where there is no terminal to ask


def console() -> Console:
    """Standard output."""
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH, soft_wrap=False)


def tabulated(
    columns: Iterable[Any], rows: Iterable[Iterable[Any]], title: str | None = None, *, digits: int = 4
) -> Table:
    """A table in which texts are folded and numbers never cut; texts are shown as they are, whatever markup a stranger's file writes into them."""
    cells = [[shown(value, digits) for value in row] for row in rows]
    table = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=True,
    )
    for k, name in enumerate(columns):
        numeric = all(_number(row[k]) for row in cells)
        whole = numeric or (k == 0 and all(len(row[0]) <= 20 for row in cells))
        side = "right" if numeric and cells else "left"
        head = "\n".join(str(name).split()) if numeric else str(name)
        table.add_column(head, justify=side, no_wrap=whole, overflow="fold")  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def show(
    columns: Iterable[Any], rows: Iterable[Iterable[Any]], title: str | None = None, *, digits: int = 4
) -> None:
    """Print a table."""
    console().print(tabulated(columns, rows, title, digits=digits))


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "–"
    return True
