r"""Changes that keep several bounds at once, the budget that independent noise consumes on them, and the worst mix of them.

A change v has :math:`|v_i| \le a_i`, at most c coordinates that are not 0, :math:`\lVert v\rVert_1 \le L_1`,
:math:`\lVert v\rVert_2 \le L_2`. With :math:`u_i = s_i^{-m}` it consumes :math:`\sum_i |v_i|^m u_i`, m = 2 for Gaussian and 1 for
Laplace noise. For :math:`x_i = (|v_i|/a_i)^m` always :math:`x_i \le |v_i|/a_i \le 1\{v_i \ne 0\}`, hence

.. math:: \sum x_i \le c, \quad \sum a_i x_i \le L_1, \quad \sum a_i^2 x_i^{2/m} \le L_2^2,

and any prices :math:`\theta \ge 0` of these three rows prove an upper bound of what any change consumes (`Changes.spent`; the
first row is priced as :math:`1\{v_i \ne 0\}`, however small the change). It is exact where x ranges over the hull of the true changes: one row alone (but L₁ for Gaussian noise), or L₁ and L₂ for Laplace
noise. Else it is safe. Least loss under it is a saddle point: the worst mix of changes, x, maximises the concave
:math:`\sum_i W_i^{1-q} (a_i^m x_i)^q`, q = p/(p + m), and the best scales are those of the profile :math:`a_i x_i^{1/m}`.

**One norm filled.** What the worst change consumes at most where one norm is not priced but filled: a knapsack, rounded to the safe side.

Of v the norm that is held takes :math:`\sum n(v_i) \le N`, n(v) = v or v²; the other rows stay priced, and what is left to be
maximised, :math:`\sum_i \varphi_i(v_i)`, is convex in :math:`n(v_i)` where v_i is not 0. So some worst change is whole
(0 or :math:`a_i`) in all coordinates but one, j. For each j the whole ones are a knapsack: N is cut into cells, each
coordinate takes :math:`n(a_i)` rounded *down* to cells, and coordinate j what is left, so the maximum found is never too small.
Under a bound on how many coordinates change, unless that is priced, the table has a row for each number of them.

**Mixes.** What noise consumes on a mix it consumes on one of its changes, so the best noise against a mix, by a formula, costs no more than
the best noise. A mix is proved to be one in three ways:

- it is a change itself, or a mix under bounds whose shares are those of changes (`Changes.exact`);
- its changes are listed with their weights: each is held to all the bounds;
- sizes :math:`b_i` and shares :math:`x_i`, sorted by size and laid end to end, are cut at u, u + 1, u + 2, …, u uniform on
  [0, 1] (systematic sampling): the coordinates hit change by :math:`b_i`, each with probability :math:`x_i`. Their number is
  :math:`\sum x` rounded up or down, and any two of these changes differ in either norm by hardly more than the largest size.
  One that exceeds a norm is scaled down. All of them together take one sort and a few sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mechdesign.noise.allocation.separable import EXACT, SUM_ERROR
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array

MOST_FILLED = 20
"""Coordinates up to which a norm is filled."""
_CELLS = 4000
ROUNDING = 1e-12
"""Relative tolerance for the roundings of a loss, of a dual bound, of a mix and of a cell's ends."""
TINY = 1e-290
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
    """The set, for noise that consumes :math:`(|v_i|/s_i)^m`; bounds that follow from the others are None.

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

    def allow(self, found: Array) -> Array:
        """Whether vectors, shape (N, K) and not negative, are changes of the set, to rounding."""
        room, top = 1 + ROUNDING, float(self.sizes.max())
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
        room = 1 + ROUNDING
        if not self.exact or np.any(mix > self.sizes * room):
            return False
        keep = self.sizes > 0
        share = (mix[keep] / self.sizes[keep]) ** self.spend
        return all(
            float((row.entries[keep] * share**row.exponent).sum()) <= row.most * room * room
            for row in self.rows()
        )

    # What is spent --------------------------------------------------------------------------------------------

    def prices(self, scales: Array) -> Prices | None:
        """The best prices at these scales under one row that is linear in the shares; None under others."""
        (row, *others), keep = self.rows(), self.sizes > 0
        if others or row.exponent == 2:
            return None
        rate = (self.sizes[keep] / scales[keep]) ** self.spend / np.maximum(row.entries[keep], TINY)
        order = np.argsort(-rate)
        at = int(np.searchsorted(np.cumsum(row.entries[keep][order]), row.most * (1 - 1e-15)))
        price = float(rate[order[at]]) if at < len(order) else 0.0
        return self.in_units({row.name: price})

    def in_units(self, prices: dict[str, float]) -> Prices:
        """Prices of `rows` as those of the bounds themselves."""
        top = float(self.sizes.max())
        return prices.get("l0", 0.0), prices.get("l1", 0.0) / top, prices.get("l2", 0.0) / top / top

    def priced(self, scales: Array, prices: Prices) -> bool:
        """Whether scales and prices can prove anything: what has no bound has no end that a price could be paid for."""
        keep, bounds = self.sizes > 0, (self.l0, self.l1, self.l2)
        if not all(0 <= price < math.inf for price in prices) or not np.all(scales[keep] > 0):
            return False
        return not any(price > 0 and bound is None for price, bound in zip(prices, bounds, strict=True))

    def spent(self, scales: Array, prices: Prices) -> Fraction | float:
        """An upper bound of what any change consumes, by weak duality: rational while that is quick, then rounded up."""
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
        """The most that a change of one coordinate consumes beyond its price, at least 0."""
        if self.spend == 2:
            return max((a / s) ** 2 - one - two * a - three * a * a, Fraction(0))
        rate = 1 / s - two
        if rate <= 0:
            return Fraction(0)
        v = a if not three else min(a, rate / (2 * three))
        return max(v * rate - three * v * v - one, Fraction(0))

    def _spent(self, a: Array, s: Array, one: float, two: float, three: float) -> float:
        # what is gained is rounded up and what is paid down: they may nearly cancel
        up, down = 1 + SUM_ERROR, 1 - SUM_ERROR
        if self.spend == 2:
            terms = np.maximum((a / s) ** 2 * up - (one + two * a + three * a * a) * down, 0.0)
        else:
            rate = np.maximum(up / s - two * down, 0.0)
            inner = rate < 2 * three * a
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                best = np.where(inner, rate * rate / (4 * three), a * rate * up - three * a * a * down)
            terms = np.maximum(best * up - one * down, 0.0)
        return (math.fsum(terms.tolist()) + self.paid((one, two, three))) * up

    def paid(self, prices: Prices) -> float:
        """What the bounds cost at these prices."""
        bounds = self.l0 or 0, self.l1 or 0.0, (self.l2 or 0.0) ** 2
        return math.fsum(price * bound for price, bound in zip(prices, bounds))


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


def most_spent(asked: Changes, scales: Array, prices: Prices, held: str | None = None) -> Fraction | float:
    """An upper bound of what any change consumes: by prices alone (`Changes.spent`), or with the norm "l1" or "l2" filled (`most_filled`).

    Examples
    --------
    >>> asked = Changes(np.ones(4), 2, l1=1.5)
    >>> prices = (0.0, 1.0, 0.0)
    >>> float(most_spent(asked, np.ones(4), prices)), round(most_spent(asked, np.ones(4), (0.0, 0.0, 0.0), "l1"), 6)
    (1.5, 1.25025)
    """
    if held is None or not asked.priced(scales, prices):
        return asked.spent(scales, prices)
    return most_filled(asked, scales, prices, held)


def most_filled(asked: Changes, scales: Array, prices: Prices, held: str) -> float:
    """An upper bound of what any change consumes by a knapsack; infinite where the argument does not hold, or it would take long.

    Examples
    --------
    >>> asked = Changes(np.ones(6), 2, l1=2.5)
    >>> round(asked.spent(np.ones(6), (0.0, 1.0, 0.0)), 9), round(most_filled(asked, np.ones(6), (0, 0, 0), "l1"), 9)
    (Fraction(5, 2), 2.25)
    """
    moved, top, m = np.flatnonzero(asked.sizes), float(asked.sizes.max()), asked.spend
    bound, power = {"l1": (asked.l1, 1), "l2": (asked.l2, 2)}.get(held, (None, 1))
    if bound is None or len(moved) > MOST_FILLED or (m == 1 and (power == 2 or prices[2] > 0)):
        return math.inf
    sizes, room = asked.sizes[moved] / top, (bound / top) ** power
    one, two, three = prices[0], prices[1] * top, prices[2] * top * top
    with np.errstate(over="ignore"):
        full = (asked.sizes[moved] / scales[moved]) ** m * (1 + SUM_ERROR)
    if not np.isfinite(full).all():
        return math.inf

    def worth(at: slice | int, part: Array) -> Array:
        """What a change of that part of a coordinate consumes beyond what it pays, rounded up, at least 0."""
        v = part * sizes[at]
        with np.errstate(over="ignore", invalid="ignore"):
            gain = full[at] * part**m * (1 + SUM_ERROR) - (one + two * v + three * v * v) * (1 - SUM_ERROR)
        # where prices overflow and v underflows, nothing is taken as paid
        return np.asarray(np.maximum(np.where(np.isnan(gain), full[at], gain), 0.0) * (1 + SUM_ERROR))

    # whole numbers of cells stay within them all the same, and what is left is larger by more than this
    taken = np.minimum(np.floor(sizes**power / room * _CELLS * (1 + ROUNDING / 2)), _CELLS + 1).astype(int)
    left = ((1 - np.arange(_CELLS + 1) / _CELLS + ROUNDING) * room) ** (1 / power)
    gains = worth(slice(None), np.ones(len(moved)))
    unnumbered = asked.l0 is None or one > 0
    count = 1 if unnumbered else min(asked.l0 or 1, len(moved))
    best = 0.0
    for j in range(len(moved)):
        # the most gained by whole coordinates but j, for each number of them (one more is left for j) and of cells
        table = np.full((count, _CELLS + 1), -math.inf)
        table[0] = 0.0
        for i in np.flatnonzero((taken <= _CELLS) & (gains > 0) & (np.arange(len(moved)) != j)):
            before, after = (table, table) if unnumbered else (table[:-1], table[1:])
            after = after[:, taken[i] :]
            np.maximum(after, before[:, : _CELLS + 1 - taken[i]] + gains[i], out=after)
        best = max(best, float((table + worth(j, np.minimum(left / sizes[j] * (1 + SUM_ERROR), 1.0))).max()))
    return (best * (1 + len(moved) * 3e-16) + asked.paid(prices)) * (1 + SUM_ERROR)


class Among(NamedTuple):
    """Changes, shape (N, K), and their weights (N,); or sizes (K,) and shares (K,), to be drawn."""

    changes: Array
    weights: Array


def mixed(asked: Changes, among: Among) -> Array | None:
    r"""The profile :math:`(\sum_k w_k |v_{ki}|^m)^{1/m}` of the mix; None if it is none.

    Examples
    --------
    >>> asked = Changes(np.array([2.0, 1.0, 1.0]), 1, l0=1)
    >>> mixed(asked, Among(np.eye(3), np.ones(3)))
    array([0.33333333, 0.33333333, 0.33333333])
    >>> mixed(asked, Among(np.ones((1, 3)), np.ones(1))) is None
    True
    >>> mixed(asked, Among(asked.sizes, np.array([0.5, 0.25, 0.25]))).round(9)
    array([1.  , 0.25, 0.25])
    """
    found, weights = among
    if not (np.isfinite(found).all() and np.isfinite(weights).all() and found.size and weights.size):
        return None
    if min(found.min(), weights.min()) < 0 or not weights.any():
        return None
    if found.ndim == 1:
        return _drawn(asked, found, weights)
    if found.ndim != 2 or found.shape[1:] != asked.sizes.shape or weights.shape != found.shape[:1]:
        return None
    if not asked.allow(found).all():
        return None
    top, m = float(asked.sizes.max()), asked.spend
    shares = weights / weights.max()
    profile: Array = top * ((shares / shares.sum()) @ (found / top) ** m) ** (1 / m)
    return profile


def _drawn(asked: Changes, sizes: Array, shares: Array) -> Array | None:
    if sizes.shape != asked.sizes.shape or shares.shape != sizes.shape or shares.max() > 1:
        return None
    count = asked.l0 or len(sizes)
    if np.any(sizes > asked.sizes) or shares.sum() > count * (1 + ROUNDING):
        return None
    top, m, out = float(asked.sizes.max()), asked.spend, np.zeros(len(sizes))
    order = np.argsort(-sizes, kind="stable")
    b = sizes[order] / top
    # a little less, so that no rounding lets a coordinate be hit twice, or one too many
    ends = np.append(0.0, np.cumsum(shares[order] * (1 - 4 * ROUNDING)))
    at = ends - np.floor(ends)
    points, where = np.unique(np.append(at, [0.0, 1.0]), return_inverse=True)
    first, last = where[: len(b)], where[1 : len(b) + 1]
    around = np.floor(ends[1:]) > np.floor(ends[:-1])

    def sums(entries: Array) -> Array:
        """Σ over the coordinates that are hit, for each stretch of u."""
        steps = np.zeros(len(points))
        np.add.at(steps, first, entries)
        np.subtract.at(steps, last, entries)
        steps[0] += entries[around].sum()
        return np.cumsum(steps)[:-1]

    if sums(np.ones(len(b))).max() > count:
        return None
    kept = np.ones(len(points) - 1)
    room = 1 - len(b) * 1e-15  # the sums' rounding, at most so much of the largest of them
    for bound, unit, e in ((asked.l1, top, 1), (asked.l2, top, 2)):
        if bound is not None:
            most, held = (bound / unit) ** e, sums(b**e)
            held = held + (1 - room) * held.max()
            kept = np.minimum(kept, (most / np.maximum(held, most)) ** (1 / e))
    until = np.append(0.0, np.cumsum(kept**m * np.diff(points)))
    mass = until[last] - until[first] + around * until[-1]
    out[order] = sizes[order] * np.maximum(mass, 0.0) ** (1 / m)
    return out


def drawn_from(asked: Changes, guide: Among) -> tuple[Array, Among]:
    """The mix that is drawn from these sizes and shares, the shares made smaller until they keep the bounds on average.

    With one change alone instead, 15 of 30 designs have at least ten times the gap (results/ablations).
    """
    sizes, shares = guide
    over = [1.0, float(shares.sum()) / (asked.l0 or math.inf)]
    over += [float((sizes / b) ** e @ shares) for b, e in ((asked.l1, 1), (asked.l2, 2)) if b is not None]
    among = Among(sizes, shares / max(over))
    mix = _drawn(asked, *among)
    assert mix is not None
    return mix, among
