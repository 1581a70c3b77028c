"""Boxes of bounds o <= q <= u that linearise OPTM's program: the paper's grid of levels, and one around Theorem 6's bounds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError
from mechdesign.runs.grid import Grid
from mechdesign.typing import Array

Flags = npt.NDArray[np.bool_]
Boxes = tuple[Array, Array]
"""Lower and upper bounds of all unknowns, shape (*shape of the unknown, boxes)."""


def authors_levels() -> Grid:
    """The published grid of bounds at m = 4: o = 0.01, …, 0.99 and u = o + 0.01."""
    return Grid(level=np.arange(1, 100) / 100, width=[0.01])


def check_levels(name: str, grid: object) -> None:
    """Refuse what is no grid over bounds: an axis of another name would be tried, and change nothing."""
    if not isinstance(grid, Grid) or not {"level"} <= set(grid.axes) <= {"level", "level_right", "width"}:
        raise DesignError.of(
            name, grid, "must be a Grid with the axis level, and level_right and width where wanted"
        )


def checked_boxes(boxes: object) -> object:
    """Return "paper", or a grid over bounds; refuse what is neither."""
    if not isinstance(boxes, str) or boxes != "paper":
        check_levels("boxes", boxes)
    return boxes


def whole(open_: Flags) -> Boxes:
    """The one box [0, 1]."""
    return np.zeros((*open_.shape, 1)), open_[..., None].astype(float)


def level_boxes(open_: Flags, used: Flags, grid: Grid | None) -> Boxes:
    """Boxes of a grid over the one or two rows that have bounds.

    A row q_n of two unknowns has one degree of freedom: q_n(1) in [o, u], q_n(2) in [1 − u, 1 − o].

    Parameters
    ----------
    open_, used : bool arrays in the shape of the unknown
        Which entries are unknowns, and which of them have a bound in some row.
    grid : Grid, optional
        The paper's unless given.

    Raises
    ------
    DesignError
        There are more rows, longer ones, or the grid has other axes.
    """
    rows = np.flatnonzero(used.any(axis=1))
    if not len(rows):
        return whole(open_)
    if grid is None:
        steps = np.arange(1, 20) / 20
        grid = authors_levels() if len(rows) < 2 else Grid(level=steps, level_right=steps, width=[0.01])
    check_levels("bounds", grid)
    if len(rows) > 2 or (open_[rows].sum(axis=1) != 2).any():
        raise DesignError.of("bounds", grid, "a grid needs at most two free bounds")
    points = grid.columns()
    width = points.get("width", np.full(len(grid), 0.01))
    levels = [points["level"], points.get("level_right", points["level"])]
    low, high = (np.repeat(side, len(grid), axis=2) for side in whole(open_))
    for row, level in zip(rows, levels):
        low[row, :2] = level, np.maximum(1.0 - level - width, 0.0)
        high[row, :2] = np.minimum(level + width, 1.0), 1.0 - level
    return low, high


def theorem6_boxes(
    open_: Flags, lowers: Flags, uppers: Flags, around: tuple[Array, Array] | None = None
) -> Boxes:
    """A grid over Theorem 6's bounds, or a finer one around a box; o must make e^ε w large, u must keep z small.

    Parameters
    ----------
    open_, lowers, uppers : bool arrays in the shape of the unknown
        Which entries are unknowns, have a lower bound in some row, an upper one.
    around : (o, u), optional
    """
    sides = [(high, *at) for high, part in ((0, lowers & ~uppers), (1, uppers)) for at in np.argwhere(part)]
    sides.sort(key=lambda side: side[1:])
    axes: list[Any] = []
    for high, n, i in sides:
        if around is not None:
            axes.append(np.clip(around[high][n, i] * np.array([0.7, 0.85, 1.0, 1.2, 1.45]), 0, 1))
        else:
            axes.append([0.05, 0.1, 0.2, 0.4, 0.7, 1.0] if high else np.geomspace(1e-3, 0.3, 7))
    values = np.array(list(itertools.product(*axes)))
    boxes = tuple(np.repeat(side, len(values), axis=2) for side in whole(open_))
    for (high, n, i), column in zip(sides, values.T):
        boxes[high][n, i] = column
    return boxes[0], boxes[1]
