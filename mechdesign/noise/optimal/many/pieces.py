r"""A cell law and its shift as pairs of masses: what every privacy loss between them is made of.

Tails are followed until they weigh nothing; what lies beyond counts as lost, that is as of infinite loss. Where one weight
stands for a span of cells, the pairs are the overlaps of spans, whose lengths are linear in the shift between the
differences of the spans' ends: shifts by these differences decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import groupby

import numpy as np

from mechdesign.noise.cell_noise import CellNoise
from mechdesign.typing import Array, Indices

__all__ = ["Pieces", "pieces"]

_TAIL = 1e-40
"""Mass of geometric tails beyond which all loss counts as infinite."""
_CELLS = 1_000_000


@dataclass(frozen=True)
class Pieces:
    """Mass per cell between edges (in cells), and the mass of the tails beyond them.

    Parameters
    ----------
    heights : ndarray, shape (m,)
    edges : ndarray of int, shape (m + 1,)
    beyond : float
        Rounded up.
    shifts : ndarray of int
        The whole shifts among which, for every level, the worst of all real ones up to n cells is.
    """

    heights: Array
    edges: Indices
    beyond: float
    shifts: Indices

    @property
    def even(self) -> bool:
        """Whether every piece is one cell."""
        return len(self.heights) == self.edges[-1] - self.edges[0]

    def moved(self, k: int) -> tuple[Array, Array, float]:
        """Masses p and q of the pieces where both laws have some when the second is k cells to the left; the mass without partner."""
        if self.even:
            a, b, out = self.heights[:-k], self.heights[k:], float(self.heights[-k:].sum())
        else:
            cuts = np.union1d(self.edges, self.edges - k)
            length = np.diff(cuts)
            a, b = (self._at(places) * length for places in (cuts[:-1], cuts[:-1] + k))
            out = 0.0
        seen = (a > 0) & (b > 0)
        lost = out + float(a[(a > 0) & (b == 0)].sum()) + self.beyond
        return a[seen], b[seen], lost

    def _at(self, places: Indices) -> Array:
        i = np.searchsorted(self.edges, places, side="right") - 1
        inside = (i >= 0) & (i < len(self.heights))
        return np.where(inside, self.heights[np.where(inside, i, 0)], 0.0)


@lru_cache(maxsize=32)
def pieces(law: CellNoise) -> Pieces:
    """The pieces of a law, its spike left out."""
    n, total = law.cells_per_shift, law.total
    spans = law.spans or (1,) * len(law.weights)
    heights = [float(Fraction(w, v) / total) for w, v in zip(law.weights, spans)]
    starts = [0, *law.ends[:-1]]
    beyond = 0.0
    if law.decay:
        r, (first, last) = float(law.decay), law.period
        most = max(_CELLS // (first + last), 2)
        periods = min(math.ceil(math.log(_TAIL) / math.log(r)) + 1, most)
        powers, out = r ** np.arange(1, periods + 1), n * np.arange(1, periods + 1)
        ends = sum(law.weights[:first]) + sum(law.weights[-last:])
        beyond = float(ends / total) * r ** (periods + 1) / float(1 - law.decay) * (1 + 1e-9)
        left = np.outer(powers[::-1], heights[:first]).ravel()
        right = np.outer(powers, heights[-last:]).ravel()
        far = np.add.outer(-out[::-1], starts[:first]).ravel(), np.add.outer(out, starts[-last:]).ravel()
        edges = np.concatenate([far[0], starts, far[1], [law.count + n * periods]]).astype(np.int64)
        held = np.concatenate([left, heights, right])
    else:
        edges, held = np.append(starts, law.count).astype(np.int64), np.array(heights)
    if not law.spans:
        return Pieces(held, edges, beyond, np.arange(1, n + 1))
    # Equal neighbours of a law with spans are one piece, so that few differences are left.
    runs = [len(list(run)) for _, run in groupby(held.tolist())]
    at = np.cumsum([0, *runs])
    held, edges = held[at[:-1]], edges[at]
    near = edges[(edges >= -n) & (edges <= law.count + n)]
    gaps = np.unique(np.subtract.outer(near, near))
    return Pieces(held, edges, beyond, np.unique(np.append(gaps[(gaps > 0) & (gaps < n)], n)))
