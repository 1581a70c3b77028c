"""The output distribution of a quantizer, as text and as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.checks import array
from mechdesign.quantizers.mechanism.table import PiecewiseTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bars", "panels"]


def bars(table: PiecewiseTable, x: Any, *, width: int) -> str:
    """Text bars of the output probabilities, a block an input; the longest bar has `width` characters."""
    lines = []
    for value in array("x", x, ndim=None).ravel():
        row = table.probabilities(value)
        lines.append(f"x = {value:g}")
        scale = width / max(row.max(), 0.3)
        lines += [f"{b:>8.4g}  {p:.4f} {'#' * round(scale * p)}".rstrip() for b, p in zip(table.bins, row)]
    return "\n".join(lines)


def panels(table: PiecewiseTable, x: Any, **options: Any) -> Figure:
    """Bar charts of the output probabilities, a panel an input."""
    values = array("x", x, ndim=None).ravel()
    fig, axes = figure(
        1, len(values), squeeze=False, sharey=True, **sized(options, min(3.2 * len(values), 100.0), 2.6)
    )
    span = float(np.diff(table.bins).min())
    for axis, value in zip(axes[0], values):
        axis.bar(table.bins, table.probabilities(value), width=0.6 * span, color=COLOURS[0])
        axis.axvline(value, color=COLOURS[1], linestyle="--", linewidth=1)
        axis.set(title=f"x = {value:g}", xlabel="output", xticks=table.bins)
    axes[0][0].set_ylabel("probability")
    return fig
