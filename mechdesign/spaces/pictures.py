"""A map of places and the reports of a channel."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SEEN = 1e-3  # probability of a report from which a map shows it


def draw_map(
    space: MetricSpace, weights: Array, matrix: Array, named: Iterable[int], **options: float
) -> Figure:
    """Draw places and reports by how likely they are, and what is sent for the likeliest place."""
    earth, points = space.kind == "geodesic", np.asarray(space.points)
    across, up = points.T[::-1] if earth else points.T
    fig, axis = figure(**sized(options, 5.0, 4.6))
    home, sent = int(weights.argmax()), weights @ matrix
    for y in np.flatnonzero(matrix[home] > _SEEN).tolist():
        ends = [home, y]
        axis.plot(across[ends], up[ends], color=COLOURS[1], alpha=0.7, linewidth=4 * matrix[home, y] ** 0.5)
    axis.scatter(
        across,
        up,
        150 * weights / weights.max(),
        color=COLOURS[0],
        linewidths=0,
        label="places",
    )
    axis.scatter(
        across, up, 300 * sent / sent.max(), facecolors="none", edgecolors=COLOURS[1], label="reports"
    )
    unit = f" ({space.unit})" if space.unit else ""
    axis.set(xlabel="longitude" if earth else f"x{unit}", ylabel="latitude" if earth else f"y{unit}")
    for x in named:
        spot, style = (
            (across[x], up[x]),
            {"textcoords": "offset points", "fontsize": 7, "parse_math": False},
        )
        axis.annotate(space.names[x], spot, (4, 4), **style)
    axis.set_aspect(1 / max(0.02, math.cos(math.radians(float(up.mean())))) if earth else 1.0)
    axis.legend(fontsize=7, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))  # off the places
    return fig
