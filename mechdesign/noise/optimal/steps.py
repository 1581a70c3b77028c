"""Cells whose widths are powers of two: narrow where a staircase steps, wide between, alike in every period."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechdesign.typing import Indices

__all__ = ["Ladder"]


@dataclass(frozen=True)
class Ladder:
    """One sensitivity in `cells` of a fine lattice, with edges close to 0 and to the step of a staircase.

    Parameters
    ----------
    step : float
        Where the density is expected to fall first, in sensitivities.
    fineness : int
        Cells up to the step, about.
    """

    step: float
    fineness: int

    @property
    def cells(self) -> int:
        """Lattice cells per sensitivity, a power of two."""
        return int(1 << max(0, math.ceil(math.log2(8 * self.fineness / self.step))))

    @property
    def finest(self) -> int:
        """Least width of a cell of the ladder, in lattice cells."""
        return int(1 << max(0, round(math.log2(self.step * self.cells / self.fineness))))

    def period(self, anchors: tuple[float, ...], *, mirrored: bool = False) -> Indices:
        """Edges from 0 to `cells`: widths grow with the distance from the anchors, given in sensitivities."""
        n, least = self.cells, self.finest
        most = max(least, n >> max(0, round(math.log2(self.fineness)) - 1))
        held = [a * n for a in anchors]
        edges: list[int] = []

        def split(start: int, size: int) -> None:
            away = min(max(a - start - size, start - a, 0.0) for a in held)
            if size > least and (
                size > most or size * self.fineness > 1.5 * max(least * self.fineness / 1.5, away)
            ):
                split(start, size // 2)
                split(start + size // 2, size // 2)
            else:
                edges.append(start)

        split(0, n)
        return np.array([*edges, n], dtype=np.int64)

    def edges(self, periods: int) -> Indices:
        """Edges from 0 over so many sensitivities, every one divided alike."""
        one = self.period((0.0, self.step, 1.0))[:-1]
        ends = [one + k * self.cells for k in range(periods)]
        return np.append(np.concatenate(ends), periods * self.cells)
