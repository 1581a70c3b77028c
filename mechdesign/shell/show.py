"""Tables on a terminal: as wide as it is, long texts folded, numbers to the digits that mean something."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mechdesign.evidence.digits import shown

WIDTH = 80  # where there is no terminal to ask


def console(width: int = WIDTH) -> Console:
    """Standard output; `width` is for where there is no terminal to ask."""
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else width, soft_wrap=False)


def tabulated(
    columns: Iterable[object],
    rows: Iterable[Iterable[object]],
    title: str | None = None,
    *,
    digits: int = 4,
    width: int = WIDTH,
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
    names = [str(name) for name in columns]
    widest = [
        max(map(len, " ".join([name, *(row[k] for row in cells)]).split()), default=0)
        for k, name in enumerate(names)
    ]
    for least in (12, 8, 1):  # words are broken only where the page is too narrow for them
        least_widths = [min(width, least) for width in widest]
        if sum(least_widths) + 2 * (len(names) - 1) <= width:
            break
    for k, name in enumerate(names):
        numeric = all(_number(row[k]) for row in cells)
        whole = numeric or (k == 0 and all(len(row[0]) <= 20 for row in cells))
        side = "right" if numeric and cells else "left"
        head = "\n".join(name.split()) if numeric else name
        table.add_column(head, justify=side, no_wrap=whole, overflow="fold", min_width=least_widths[k])  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def show(
    columns: Iterable[object], rows: Iterable[Iterable[object]], title: str | None = None, *, digits: int = 4
) -> None:
    """Print a table."""
    page = console()
    page.print(tabulated(columns, rows, title, digits=digits, width=page.width))


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "–"
    return True
