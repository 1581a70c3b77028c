r"""A guide table: one uniform number to one output, by a single look-up nearly always.

The output at x is the number of curves :math:`C_i(x) = \sum_{j \le i} p(x, j)` at or below a uniform u. The strip of
inputs and uniforms is cut into a grid; where no curve passes through a rectangle, its output is known beforehand
(Chen and Asau 1974, for a law that moves with x). Elsewhere the curves are climbed from the lowest one that could be next.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mechdesign.quantizers.mechanism.table import PiecewiseTable
from mechdesign.typing import Array

__all__ = ["GuideTable", "segment_finder"]

_ROOM = 1e-12  # by which a curve may be misplaced
_LARGEST = 1 << 14  # rectangles for each output: with 16 outputs the table fits a core's cache
_CELLS = 1 << 14
_PIECE = 1 << 16


class GuideTable:
    """The outputs of a table of probabilities as a function of the input and a uniform number.

    Parameters
    ----------
    table : PiecewiseTable
    draws : int
        How many are wanted: a larger grid pays for itself later.
    """

    def __init__(self, table: PiecewiseTable, draws: int) -> None:
        m, knots = len(table.bins), table.knots
        self.bins, self.knots = table.bins, knots
        size = min(max(draws // 4, 1 << 8), _LARGEST * m)
        self.rows = 1 << (size.bit_length() // 2)  # a power of two: u times it is exact
        self.columns = size // self.rows
        self.scale = self.columns / (knots[-1] - knots[0])
        curves = np.cumsum(np.stack([table.starts, table.ends]), axis=-1)[:, :, : m - 1]
        self._starts, self._rises = curves[0].ravel(), (curves[1] - curves[0]).ravel()
        self._width, self.segment = np.diff(knots), segment_finder(knots)
        least, most = self._columns_extremes(curves)
        sure, most_above = (self._counted(part) for part in (most + _ROOM, least - _ROOM))
        # In rectangle (c, r) at least sure[c, r] curves are below u, and at most those that begin below its top.
        self.first = sure[:, :-1].ravel()
        self.output = np.where(self.first == most_above[:, 1:].ravel(), table.bins[self.first], np.nan)

    def _columns_extremes(self, curves: Array) -> tuple[Array, Array]:
        """The least and the largest value of every curve in every column, each (columns + 1, m − 1)."""
        # Rounding keeps the order of inputs, so that these are limits of the columns that inputs of a segment fall into.
        y = (self.knots - self.knots[0]) * self.scale
        begin, end = np.floor(y[:-1]).astype(np.intp), np.floor(y[1:]).astype(np.intp)
        count = end - begin + 1
        k = np.repeat(np.arange(len(count)), count)
        column = np.arange(len(k)) - np.repeat(np.cumsum(count) - count - begin, count)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = 8 * np.finfo(float).eps * self.columns
            low, high = (column - y[k] - room) / np.diff(y)[k], (column + 1 - y[k] + room) / np.diff(y)[k]
        least = np.ones((self.columns + 1, curves.shape[-1]))
        most = np.zeros_like(least)
        for t in (np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=1.0)):
            share = np.clip(t, 0.0, 1.0)[:, None]
            value = curves[0][k] + share * (curves[1] - curves[0])[k]
            np.minimum.at(least, column, value)
            np.maximum.at(most, column, value)
        return least, most

    def _counted(self, curves: Array) -> npt.NDArray[np.int16]:
        """How many curves of each column are at or below r / rows, for r = 0, …, rows."""
        rows = np.clip(np.ceil(curves * self.rows), 0, self.rows + 1).astype(np.intp)
        place = rows + (self.rows + 2) * np.arange(len(curves))[:, None]
        counts = np.bincount(place.ravel(), minlength=len(curves) * (self.rows + 2))
        below = np.cumsum(counts.reshape(len(curves), -1), axis=1)[:, :-1]
        return below.astype(np.int16 if curves.shape[1] < 1 << 15 else np.int32)

    def fill(self, x: Array, rng: np.random.Generator, out: Array) -> None:
        """Draw one output for each input into `out`, in pieces that stay in a core's cache."""
        piece = max(1, min(_PIECE, x.size))
        numbers, integers = np.empty((2, piece)), np.empty((2, piece), dtype=np.int32)
        near = []  # where a curve is in the rectangle, the uniform numbers there, and how many curves are surely below
        for start in range(0, x.size, piece):
            part, into = x[start : start + piece], out[start : start + piece]
            (u, y), (place, row) = numbers[:, : part.size], integers[:, : part.size]
            rng.random(out=u)
            np.subtract(part, self.knots[0], out=y)
            y *= self.scale
            np.copyto(place, y, casting="unsafe")
            place *= self.rows
            np.multiply(u, self.rows, out=row, casting="unsafe")
            place += row
            self.output.take(place, out=into, mode="clip")
            open_ = np.flatnonzero(np.isnan(into))
            near.append((open_ + start, u.take(open_), self.first.take(place.take(open_))))
        if near:
            where, above, least = (np.concatenate(parts) for parts in zip(*near))
            out[where] = self._climbed(x.take(where), above, least.astype(np.intp))

    def _climbed(self, x: Array, u: Array, found: npt.NDArray[np.intp]) -> Array:
        """Outputs where a curve is near, from the number of curves that are below for certain."""
        k, last = self.segment(x), len(self.bins) - 1
        t = (x - self.knots.take(k)) / self._width.take(k)
        k *= last
        climbing = np.flatnonzero(found < last)
        while climbing.size:
            curve = k[climbing] + found[climbing]
            height = self._starts.take(curve) + self._rises.take(curve) * t[climbing]
            climbing = climbing[u[climbing] >= height]
            found[climbing] += 1
            climbing = climbing[found[climbing] < last]
        return self.bins.take(found)


def segment_finder(knots: Array) -> Callable[[Array], npt.NDArray[np.intp]]:
    """Return what finds the segments of inputs by a uniform grid: at once where no knot is near the grid cell."""
    cells = min(256 * len(knots), _CELLS)
    scale = cells / (knots[-1] - knots[0])
    edges = np.linspace(knots[0], knots[-1], cells + 1)
    first = np.clip(np.searchsorted(knots, edges, side="right") - 1, 0, len(knots) - 2)
    # A cell before and after covers the rounding of the index computation.
    before, after = (first[np.clip(np.arange(cells + 1) + d, 0, cells)] for d in (-1, 2))
    known = np.where(before == after, before, -1)

    def segment(x: Array) -> npt.NDArray[np.intp]:
        k = known.take(((x - knots[0]) * scale).astype(np.intp))
        near = np.flatnonzero(k < 0)
        k[near] = np.searchsorted(knots[1:-1], x[near], side="right")
        return k

    return segment
