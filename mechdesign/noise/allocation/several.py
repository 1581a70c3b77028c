r"""Changes that keep several bounds at once, as independent noise spends on them, and the mix of them that is worst.

A change v has :math:`|v_i| \le a_i`, at most c coordinates that are not 0, :math:`\lVert v\rVert_1 \le L_1`,
:math:`\lVert v\rVert_2 \le L_2`. With :math:`u_i = s_i^{-m}` it spends :math:`\sum_i |v_i|^m u_i`, m = 2 for Gaussian and 1 for
Laplace noise. For :math:`x_i = (|v_i|/a_i)^m` always :math:`x_i \le |v_i|/a_i \le 1\{v_i \ne 0\}`, hence

.. math:: \sum x_i \le c, \quad \sum a_i x_i \le L_1, \quad \sum a_i^2 x_i^{2/m} \le L_2^2,

and any prices :math:`\theta \ge 0` of these three rows prove an upper bound of what any change spends (`Changes.spent`; the
first row is priced as :math:`1\{v_i \ne 0\}`, however small the change). It is exact where x ranges over the hull of the true changes: one row alone (but L₁ for Gaussian noise), or L₁ and L₂ for Laplace
noise. Else it is safe. Least loss under it is a saddle point: the worst mix of changes, x, maximises the concave
:math:`\sum_i W_i^{1-q} (a_i^m x_i)^q`, q = p/(p + m), and the best scales are those of the profile :math:`a_i x_i^{1/m}`.

**One norm filled.** What the worst change spends at most where one norm is not priced but filled: a knapsack, rounded to the safe side.

Of v the norm that is held takes :math:`\sum n(v_i) \le N`, n(v) = v or v²; the other rows stay priced, and what is left to be
maximised, :math:`\sum_i \varphi_i(v_i)`, is convex in :math:`n(v_i)` where v_i is not 0. So some worst change is whole
(0 or :math:`a_i`) in all coordinates but one, j. For each j the whole ones are a knapsack: N is cut into cells, each
coordinate takes :math:`n(a_i)` rounded *down* to cells, and coordinate j what is left, so the maximum found is never too small.
Under a bound on how many coordinates change, unless that is priced, the table has a row for each number of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array

__all__ = ["EXACT", "MEMBER", "MOST_FILLED", "Changes", "Prices", "changes_of", "most_filled", "most_spent"]

EXACT = 2000
"""Coordinates up to which sums are rational; beyond, they are rounded up."""
MOST_FILLED = 400
"""Coordinates up to which it is quick."""
_CELLS = (100, 4000)
_WORK = 2e7
"""Entries of tables that are filled, at most."""
_CELL = 1e-12
"""Relative room of a cell's ends, so that sizes that are whole numbers of cells are taken as such."""
_UP = 4e-15
"""Above the relative rounding of the few products that a term is."""
MEMBER = 1e-12
"""Relative room of a mix's rounding."""
_TINY = 1e-300
"""For squares that underflow."""
Prices = tuple[float, float, float]
"""Of a changed coordinate, of L₁ and of L₂²."""


class Row(NamedTuple):
    """Σ R x^e ≤ r."""

    name: str
    entries: Array
    most: float
    exponent: int


@dataclass(frozen=True, eq=False)
class Changes:
    """The set, for noise that spends :math:`(|v_i|/s_i)^m`; bounds that follow from the others are None.

    Parameters
    ----------
    sizes : ndarray, shape (K,)
        a_i, 0 where nothing changes.
    spend : int
        m.
    """

    sizes: Array
    spend: int
    l0: int | None = None
    l1: float | None = None
    l2: float | None = None

    @property
    def exact(self) -> bool:
        """Whether what is spent on the worst change is computed exactly, not bounded."""
        alone = sum(bound is not None for bound in (self.l0, self.l1, self.l2)) == 1
        return (alone or self.l0 is None) and (self.spend == 1 or self.l1 is None)

    def rows(self) -> list[Row]:
        """The bounds as rows over x, sizes in units of the largest."""
        top = float(self.sizes.max())
        a, m = self.sizes / top, self.spend
        stated = (
            ("l0", np.ones(len(a)), self.l0, 1.0, 1),
            ("l1", a, self.l1, top, 1),
            ("l2", a * a, None if self.l2 is None else self.l2 / top, 1.0, 3 - m),
        )
        return [
            Row(name, entries, (bound / unit) ** (2 if name == "l2" else 1), exponent)
            for name, entries, bound, unit, exponent in stated
            if bound is not None
        ]

    def alone(self, name: str) -> Changes:
        """The changes under one of the bounds."""
        return Changes(self.sizes, self.spend, **{name: getattr(self, name)})

    # The worst mix ------------------------------------------------------------------------------------------

    def _filled(self, row: Row, order: float, weight: Array | None) -> Array:
        """The profile a x^(1/m) of the worst mix under one row: x fills up to a common level."""
        sizes = self.sizes
        out, keep, m = np.zeros(len(sizes)), sizes > 0, self.spend
        q, e = order / (order + m), row.exponent
        with np.errstate(under="ignore"):
            log = (1 - q) * (0.0 if weight is None else np.log(weight[keep])) + q * m * np.log(sizes[keep])
            log = (log - np.log(np.maximum(row.entries[keep], _TINY))) / (e - q)
            height = np.maximum(np.exp(log - log.max()), 1e-290)
        x = np.minimum(1.0, _level(height, row.entries[keep], row.most, e) * height)
        out[keep] = sizes[keep] * x ** (1 / m)
        return out

    def fills(self, order: float, weight: Array | None, number: float | None = None) -> list[Array]:
        """For each row the profile of the shares that fill up under it to a common level; or under a number alone."""
        ones = np.ones(len(self.sizes))
        rows = self.rows() if number is None else [Row("l0", ones, number, 1)]
        return [self._filled(row, order, weight) for row in rows]

    def numbers(self, most: int) -> list[int]:
        """How many coordinates may change, the most first; at most so many of these numbers."""
        count = int(np.count_nonzero(self.sizes))
        last = min(count, self.l0 or count)
        tried = np.round(np.geomspace(1, last, min(last, most))).astype(int)
        return sorted(set(tried.tolist()), reverse=True)

    def capped(self, k: int) -> Array:
        """Sizes cut at the level where any k of them keep both norms."""
        top = np.sort(self.sizes)[::-1][:k]
        caps = [
            _level(1 / top, top**e, bound**e, e)
            for e, bound in ((1, self.l1), (2, self.l2))
            if bound is not None and float((top**e).sum()) > bound**e
        ]
        return np.minimum(self.sizes, min(caps, default=math.inf))

    def allow(self, found: Array) -> Array:
        """Whether vectors, shape (N, K) and not negative, are changes of the set, to rounding."""
        room, top = 1 + MEMBER, float(self.sizes.max())
        fine = (found <= self.sizes * room).all(axis=1)
        fine &= np.count_nonzero(found, axis=1) <= (self.l0 or found.shape[1])
        fine &= found.sum(axis=1) <= (self.l1 or math.inf) * room
        norms = top * np.sqrt(((found / top) ** 2).sum(axis=1))
        return np.asarray(fine & (norms <= (self.l2 or math.inf) * room))

    def reached(self, mix: Array) -> bool:
        """Whether a profile is a change of the set, or its shares keep bounds under which they are those of a mix."""
        if mix.shape != self.sizes.shape or not (np.isfinite(mix).all() and mix.min() >= 0 and mix.any()):
            return False
        if self.allow(mix[None, :])[0]:
            return True
        room = 1 + MEMBER
        if not self.exact or np.any(mix > self.sizes * room):
            return False
        keep = self.sizes > 0
        share = (mix[keep] / self.sizes[keep]) ** self.spend
        return all(
            float((row.entries[keep] * share**row.exponent).sum()) <= row.most * room * room
            for row in self.rows()
        )

    # What is spent --------------------------------------------------------------------------------------------

    def prices(self, scales: Array) -> Prices:
        """Prices that prove what is spent at these scales: the best ones under one row, nothing paid under several."""
        rows = self.rows()
        if len(rows) != 1:
            return (0.0, 0.0, 0.0)
        row, keep, top = rows[0], self.sizes > 0, float(self.sizes.max())
        gain, r = (self.sizes[keep] / scales[keep]) ** self.spend, row.entries[keep]
        rate = gain / np.maximum(r, _TINY)
        if row.exponent == 1:
            order = np.argsort(-rate)
            at = int(np.searchsorted(np.cumsum(r[order]), row.most * (1 - 1e-15)))
            price = float(rate[order[at]]) if at < len(order) else 0.0
        else:
            price = 0.5 / _level(rate, r, row.most, 2)
        return self.in_units({row.name: price}, top)

    def in_units(self, prices: dict[str, float], top: float) -> Prices:
        """Prices of `rows` as those of the bounds themselves."""
        return (
            prices.get("l0", 0.0),
            prices.get("l1", 0.0) / top,
            prices.get("l2", 0.0) / top / top,
        )

    def priced(self, scales: Array, prices: Prices) -> bool:
        """Whether scales and prices can prove anything: what has no bound has no end that a price could be paid for."""
        keep, bounds = self.sizes > 0, (self.l0, self.l1, self.l2)
        if not all(0 <= price < math.inf for price in prices) or not np.all(scales[keep] > 0):
            return False
        return not any(price > 0 and bound is None for price, bound in zip(prices, bounds, strict=True))

    def spent(self, scales: Array, prices: Prices) -> Fraction | float:
        """An upper bound of what any change spends, by weak duality: rational while that is quick, then rounded up."""
        if not self.priced(scales, prices):
            return math.inf
        keep = self.sizes > 0
        if keep.sum() <= EXACT:
            a, s = ([Fraction(v) for v in values[keep].tolist()] for values in (self.sizes, scales))
            one, two, three = map(Fraction, prices)
            terms = sum((self._term(x, y, one, two, three) for x, y in zip(a, s, strict=True)), Fraction(0))
            return (
                terms
                + one * Fraction(self.l0 or 0)
                + two * Fraction(self.l1 or 0)
                + three * Fraction(self.l2 or 0) ** 2
            )
        return self._spent(self.sizes[keep], scales[keep], *prices)

    def _term(self, a: Fraction, s: Fraction, one: Fraction, two: Fraction, three: Fraction) -> Fraction:
        """The most that a change of one coordinate spends beyond what it pays, at least 0."""
        if self.spend == 2:
            return max((a / s) ** 2 - one - two * a - three * a * a, Fraction(0))
        rate = 1 / s - two
        if rate <= 0:
            return Fraction(0)
        v = a if not three else min(a, rate / (2 * three))
        return max(v * rate - three * v * v - one, Fraction(0))

    def _spent(self, a: Array, s: Array, one: float, two: float, three: float) -> float:
        up, down = (
            1 + _UP,
            1 - _UP,
        )  # what is gained is rounded up and what is paid down: they may nearly cancel
        if self.spend == 2:
            terms = np.maximum((a / s) ** 2 * up - (one + two * a + three * a * a) * down, 0.0)
        else:
            rate = np.maximum(up / s - two * down, 0.0)
            inner = rate < 2 * three * a
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                best = np.where(inner, rate * rate / (4 * three), a * rate * up - three * a * a * down)
            terms = np.maximum(best * up - one * down, 0.0)
        paid = one * (self.l0 or 0), two * (self.l1 or 0.0), three * (self.l2 or 0.0) ** 2
        return (math.fsum(terms.tolist()) + math.fsum(paid)) * up


@lru_cache(maxsize=8)
def changes_of(bounds: Sensitivity, spend: int) -> Changes:
    """The changes within bounds of single coordinates and others; what follows from the former is left out.

    Examples
    --------
    >>> changes = changes_of(Sensitivity(each=[3, 2, 1], l0=2, l1=5), 1)
    >>> changes.l0, changes.l1, changes.exact
    (2, None, True)
    """
    most = min((b for b in (bounds.linf, bounds.l1, bounds.l2) if b is not None), default=math.inf)
    sizes = np.minimum(np.array(bounds.each, dtype=float), most)
    count = int(np.count_nonzero(sizes))
    l0 = None if bounds.l0 is None or bounds.l0 >= count else bounds.l0
    top = [Fraction(v) for v in np.sort(sizes)[::-1][: l0 or count].tolist()]
    l1 = None if bounds.l1 is None or sum(top) <= Fraction(bounds.l1) else bounds.l1
    l2 = None if bounds.l2 is None or sum(v * v for v in top) <= Fraction(bounds.l2) ** 2 else bounds.l2
    return Changes(sizes, spend, l0, l1, l2)


def _level(height: Array, entries: Array, most: float, exponent: int) -> float:
    """The t at which Σ R min(1, t h)^e is r: coordinates fill up in the order of h."""
    order = np.argsort(-height)
    h, r = height[order], entries[order]
    full = np.append(0.0, np.cumsum(r))[:-1]
    # Where the rest underflows it asks for nothing; where it overflows, the first are full.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rest = np.cumsum((r * h**exponent)[::-1])[::-1]
        t = (np.maximum(most - full, 0.0) / rest) ** (1 / exponent)
        within = (t * h <= 1) & (t > 0)
    return float(t[int(np.argmax(within))] if within.any() else 1 / h[-1])


def most_spent(asked: Changes, scales: Array, prices: Prices, held: str | None = None) -> Fraction | float:
    """An upper bound of what any change spends: by prices alone (`Changes.spent`), or with the norm "l1" or "l2" filled (`most_filled`).

    Examples
    --------
    >>> asked = Changes(np.ones(4), 2, l1=1.5)
    >>> prices = (0.0, 1.0, 0.0)
    >>> float(most_spent(asked, np.ones(4), prices)), round(most_spent(asked, np.ones(4), (0.0, 0.0, 0.0), "l1"), 6)
    (1.5, 1.25025)
    """
    if held is None or not asked.priced(scales, prices):
        return asked.spent(scales, prices)
    return most_filled(asked, scales, prices, held)[0]


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
    paid = one * (asked.l0 or 0) + two * (asked.l1 or 0.0) + three * (asked.l2 or 0.0) ** 2
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
        count = None if asked.l0 is None or prices[0] > 0 else min(asked.l0, moved)
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
        return [int(i) for i in self.moved[[*found, j]]]
