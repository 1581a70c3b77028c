r"""What the worst change spends at most where one norm is not priced but filled: a knapsack, rounded to the safe side.

Of v the norm that is held takes :math:`\sum n(v_i) \le N`, n(v) = v or v²; the other rows stay priced, and what is left to be
maximised, :math:`\sum_i \varphi_i(v_i)`, is convex in :math:`n(v_i)` where v_i is not 0. So some worst change is whole
(0 or :math:`a_i`) in all coordinates but one, j. For each j the whole ones are a knapsack: N is cut into cells, each
coordinate takes :math:`n(a_i)` rounded *down* to cells, and coordinate j what is left, so the maximum found is never too small.
Under a bound on how many coordinates change, unless that is priced, the table has a row for each number of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mechdesign.noise.allocation.several import Changes, Prices
from mechdesign.typing import Array

__all__ = ["MOST_FILLED", "most_filled"]

MOST_FILLED = 400
"""Coordinates up to which it is quick."""
_CELLS = (100, 4000)
_WORK = 2e7
"""Entries of tables that are filled, at most."""
_UP = 4e-15
"""Above the relative rounding of a few products."""
_CELL = 1e-12
"""Relative room of a cell's ends, so that sizes that are whole numbers of cells are taken as such."""


def most_filled(asked: Changes, scales: Array, prices: Prices, held: str) -> tuple[float, list[int]]:
    """An upper bound of what any change spends, infinite where there is none, and coordinates that change where it is reached.

    Examples
    --------
    >>> asked = Changes(np.ones(6), 2, l1=2.5)
    >>> round(asked.spent(np.ones(6), (0.0, 1.0, 0.0)), 9), round(most_filled(asked, np.ones(6), (0, 0, 0), "l1")[0], 9)
    (Fraction(5, 2), 2.25)
    """
    table = _Table.of(asked, scales, prices, held)
    if table is None or not np.isfinite(table.full).all():
        return math.inf, []
    best, at = 0.0, (-1, 0)
    for j, filled in table.without_one():
        total = filled + table.partly(j)
        k = int(np.argmax(total))
        if total.flat[k] > best:
            best, at = float(total.flat[k]), (j, k)
    one, two, three = prices
    paid = one * (asked.changed or 0) + two * (asked.l1 or 0.0) + three * (asked.l2 or 0.0) ** 2
    return (best * (1 + len(table.sizes) * 3e-16) + paid) * (1 + _UP), table.chosen(*at)


class _Table:
    """The knapsack: sizes in units of the largest, what a whole coordinate gains and how many cells it takes."""

    def __init__(
        self, asked: Changes, scales: Array, prices: Prices, held: str, count: int | None, cells: int
    ) -> None:
        self.moved = np.flatnonzero(asked.sizes)
        self.top, self.count, self.cells = float(asked.sizes.max()), count, cells
        self.sizes = asked.sizes[self.moved] / self.top
        self.spend, self.root = asked.spend, held == "l2"
        with np.errstate(over="ignore"):
            self.full = (asked.sizes[self.moved] / scales[self.moved]) ** self.spend * (1 + _UP)
        self.prices = prices[0], prices[1] * self.top, prices[2] * self.top * self.top
        bound = asked.l2 if self.root else asked.l1
        assert bound is not None
        power = 2 if self.root else 1
        self.most = (bound / self.top) ** power
        # whole numbers of cells stay within `cells` all the same, and `left` is larger by more than this
        taken = np.floor(self.sizes**power / self.most * cells * (1 + _CELL / 2))
        self.taken = np.minimum(taken, cells + 1).astype(int)
        self.gains = self.worth(slice(None), np.ones(len(self.sizes)))
        self.left = (1 - np.arange(cells + 1) / cells + _CELL) * self.most

    @classmethod
    def of(cls, asked: Changes, scales: Array, prices: Prices, held: str) -> _Table | None:
        """None where the argument does not hold, there is no such bound, or it would take long."""
        moved = int(np.count_nonzero(asked.sizes))
        bound = {"l1": asked.l1, "l2": asked.l2}.get(held)
        if bound is None or moved > MOST_FILLED or (asked.spend == 1 and (held == "l2" or prices[2] > 0)):
            return None
        count = None if asked.changed is None or prices[0] > 0 else min(asked.changed, moved)
        work = moved * math.log2(moved + 1) * (1 if count is None else count + 1)
        low, high = _CELLS
        return cls(asked, scales, prices, held, count, int(min(max(_WORK / work, low), high)))

    def worth(self, at: slice | int, part: Array) -> Array:
        """What a change of that part of a coordinate spends beyond what it pays, rounded up, at least 0."""
        one, two, three = self.prices
        v = part * self.sizes[at]
        with np.errstate(over="ignore", invalid="ignore"):
            gain = self.full[at] * part**self.spend * (1 + _UP) - (one + two * v + three * v * v) * (1 - _UP)
        # where prices overflow and v underflows, nothing is taken as paid
        found: Array = np.maximum(np.where(np.isnan(gain), self.full[at], gain), 0.0) * (1 + _UP)
        return found

    def partly(self, j: int) -> Array:
        """What coordinate j gains of what is left."""
        left = np.sqrt(self.left) if self.root else self.left
        return self.worth(j, np.minimum(left / self.sizes[j] * (1 + _UP), 1.0))

    def empty(self) -> Array:
        """The most gained by no coordinate, for each number of them (one more is left for j) and of cells."""
        if self.count is None:
            return np.zeros(self.cells + 1)
        table = np.full((self.count, self.cells + 1), -math.inf)
        table[0] = 0.0
        return table

    def add(self, table: Array, i: int) -> None:
        """Let coordinate i change, or not."""
        w, gain = int(self.taken[i]), self.gains[i]
        if w > self.cells or gain <= 0:
            return
        before, after = (table, table) if self.count is None else (table[:-1], table[1:])
        after = after[..., w:]
        np.maximum(after, before[..., : self.cells + 1 - w] + gain, out=after)

    def without_one(self) -> Iterator[tuple[int, Array]]:
        """For one j of each kind of coordinates the table of all others: each half is added once to the other's."""
        kinds: dict[tuple[float, float], list[int]] = {}
        for i, kind in enumerate(zip(self.sizes.tolist(), self.full.tolist())):
            kinds.setdefault(kind, []).append(i)

        def split(table: Array, groups: list[list[int]]) -> Iterator[tuple[int, Array]]:
            if len(groups) == 1:
                for i in groups[0][1:]:
                    self.add(table, i)
                yield groups[0][0], table
                return
            half = len(groups) // 2
            for kept, others in ((groups[:half], groups[half:]), (groups[half:], groups[:half])):
                larger = table.copy()
                for group in others:
                    for i in group:
                        self.add(larger, i)
                yield from split(larger, kept)

        yield from split(self.empty(), list(kinds.values()))

    def chosen(self, j: int, at: int) -> list[int]:
        """The whole coordinates behind an entry of the table without j, then j."""
        if j < 0:
            return []
        tables, others = [self.empty()], [i for i in range(len(self.sizes)) if i != j]
        for i in others:
            table = tables[-1].copy()
            self.add(table, i)
            tables.append(table)
        found, cell = [], at % (self.cells + 1)
        row = at // (self.cells + 1)
        for i, before, after in zip(others[::-1], tables[-2::-1], tables[:0:-1], strict=True):
            spot = cell if self.count is None else (row, cell)
            if after[spot] > before[spot]:
                found.append(i)
                cell, row = cell - int(self.taken[i]), row - 1
        return self.moved[[*found, j]].tolist()
