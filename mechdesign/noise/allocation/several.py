r"""Changes that keep several bounds at once, as independent noise spends on them, and the mix of them that is worst.

A change v has :math:`|v_i| \le a_i`, at most c coordinates that are not 0, :math:`\lVert v\rVert_1 \le L_1`,
:math:`\lVert v\rVert_2 \le L_2`. With :math:`u_i = s_i^{-m}` it spends :math:`\sum_i |v_i|^m u_i`, m = 2 for Gaussian and 1 for
Laplace noise. For :math:`x_i = (|v_i|/a_i)^m` always :math:`x_i \le |v_i|/a_i \le 1\{v_i \ne 0\}`, hence

.. math:: \sum x_i \le c, \quad \sum a_i x_i \le L_1, \quad \sum a_i^2 x_i^{2/m} \le L_2^2,

and any prices :math:`\theta \ge 0` of these three rows prove an upper bound of what any change spends (`Changes.spent`). It is
exact where x ranges over the hull of the true changes: one row alone (but L₁ for Gaussian noise), or L₁ and L₂ for Laplace
noise. Else it is safe. Least loss under it is a saddle point: the worst mix of changes, x, maximises the concave
:math:`\sum_i W_i^{1-q} (a_i^m x_i)^q`, q = p/(p + m), and the best scales are those of the profile :math:`a_i x_i^{1/m}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array

__all__ = ["Changes", "Prices", "changes_of"]

_EXACT = 2000
"""Coordinates up to which sums are rational; beyond, they are rounded up."""
_ROOM = 1e-13
"""Above the relative rounding of a bound in doubles, whose parts are at most a few times what is spent."""
_MEMBER = 1e-12
"""Relative room of a mix's rounding."""
_TINY = 1e-300
"""For squares that underflow."""
_SHARES = 48
"""Numbers of coordinates tried for a mix of alike changes, at most."""

_MANY = 20_000
"""Different sizes from which on fewer cuts are tried."""

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
    changed: int | None = None
    l1: float | None = None
    l2: float | None = None

    @property
    def exact(self) -> bool:
        """Whether what is spent on the worst change is computed exactly, not bounded."""
        alone = sum(bound is not None for bound in (self.changed, self.l1, self.l2)) == 1
        return (alone or self.changed is None) and (self.spend == 1 or self.l1 is None)

    def rows(self) -> list[Row]:
        """The bounds as rows over x, sizes in units of the largest."""
        top = float(self.sizes.max())
        a, m = self.sizes / top, self.spend
        stated = (
            ("changed", np.ones(len(a)), self.changed, 1.0, 1),
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

    def mix(self, order: float, weight: Array | None) -> Array:
        """The profile a x^(1/m) of the worst mix under one row: x fills up to a common level."""
        (row,) = self.rows()
        return self._filled(self.sizes, row, order, weight)

    def _filled(self, sizes: Array, row: Row, order: float, weight: Array | None) -> Array:
        out, keep, m = np.zeros(len(sizes)), sizes > 0, self.spend
        q, e = order / (order + m), row.exponent
        with np.errstate(under="ignore"):
            log = (1 - q) * (0.0 if weight is None else np.log(weight[keep])) + q * m * np.log(sizes[keep])
            log = (log - np.log(np.maximum(row.entries[keep], _TINY))) / (e - q)
            height = np.maximum(np.exp(log - log.max()), 1e-290)
        x = np.minimum(1.0, _level(height, row.entries[keep], row.most, e) * height)
        out[keep] = sizes[keep] * x ** (1 / m)
        return out

    def alike(self, order: float, weight: Array | None) -> Array:
        """The worst found among mixes of changes of k coordinates, cut so that any k keep both norms: true changes all."""
        tried = []
        for k in self._numbers():
            row = Row("changed", np.ones(len(self.sizes)), float(k), 1)
            tried.append(self._filled(self._capped(k), row, order, weight))
        q = order / (order + self.spend)
        w = 1.0 if weight is None else weight ** (1 - q)
        return max(tried, key=lambda mix: float((w * (mix / self.sizes.max()) ** (self.spend * q)).sum()))

    def rounded(self, order: float, weight: Array | None, guide: Array) -> list[Array]:
        r"""The worst mix found of changes that are whole, 0 or a cut size :math:`b_i`, in every coordinate; none if there is none.

        Shares x in [0, 1] that keep d rows :math:`R_k x \le r_k` are means of vertices with at most d broken coordinates. Rounded up,
        these exceed a row by less than d of its largest entries, and a number of coordinates by d - 1. So what keeps rows smaller
        by this is a mean of true changes, or below one. Tried are the best shares under each row, and those of `guide`.
        """
        best, found = 0.0, []
        q = order / (order + self.spend)
        w = 1.0 if weight is None else weight ** (1 - q)
        for cut in self._cuts():
            sizes = np.minimum(self.sizes, cut)
            rows, keep = self._inner(sizes), sizes > 0
            if min(row.most for row in rows) <= 0:
                continue
            for profile in (guide, *(self._filled(sizes, row, order, weight) for row in rows)):
                share = np.zeros(len(sizes))
                share[keep] = np.minimum(profile[keep] / sizes[keep], 1.0) ** self.spend
                over = max(float(row.entries @ share) / row.most for row in rows)
                mix = sizes * (share / max(over, 1.0)) ** (1 / self.spend)
                worth = float((w * (mix / self.sizes.max()) ** (self.spend * q)).sum())
                if worth > best:
                    best, found = worth, [mix]
        return found

    def _cuts(self) -> list[float]:
        """Levels at which sizes are cut, at most `_SHARES` of them; fewer for many, where the largest size matters less."""
        levels = np.unique(self.sizes[self.sizes > 0])
        most = min(len(levels), _SHARES if len(levels) <= _MANY else 6)
        at = np.unique(np.round(np.linspace(len(levels) - 1, 0, most)).astype(int))
        return [float(v) for v in levels[at]]

    def _inner(self, sizes: Array) -> list[Row]:
        """Rows over the shares of whole changes of these sizes, so much smaller that broken coordinates can be rounded up."""
        top = float(sizes.max())
        a, given = sizes / top, []
        follows = self.changed and self.l2 and self.l1 and self.l1 >= math.sqrt(self.changed) * self.l2
        for name, entries, bound in (
            ("changed", (sizes > 0).astype(float), self.changed),
            ("l1", a, None if self.l1 is None or follows else self.l1 / top),
            ("l2", a * a, None if self.l2 is None else (self.l2 / top) ** 2),
        ):
            if bound is not None:
                given.append((name, entries, float(bound)))
        d, room = len(given), 1 - 4 * _MEMBER
        return [
            Row(name, entries, (bound - (d - 1 if name == "changed" else d)) * room, 1)
            for name, entries, bound in given
        ]

    def _numbers(self) -> list[int]:
        """How many coordinates may change, the most first."""
        count = int(np.count_nonzero(self.sizes))
        most = min(count, self.changed or count)
        tried = np.round(np.geomspace(1, most, min(most, _SHARES))).astype(int)
        return sorted(set(tried.tolist()), reverse=True)

    def _capped(self, k: int) -> Array:
        """Sizes cut at the level where any k of them keep both norms."""
        top = np.sort(self.sizes)[::-1][:k]
        caps = [
            _level(1 / top, top**e, bound**e, e)
            for e, bound in ((1, self.l1), (2, self.l2))
            if bound is not None and float((top**e).sum()) > bound**e
        ]
        return np.minimum(self.sizes, min(caps, default=math.inf))

    def reached(self, mix: Array) -> bool:
        """Whether a profile is a change of the set, or the m-th powers of a mix of changes of k coordinates."""
        if mix.shape != self.sizes.shape or not (np.isfinite(mix).all() and mix.min() >= 0 and mix.any()):
            return False
        room, top = 1 + _MEMBER, float(self.sizes.max())
        if np.any(mix > self.sizes * room):
            return False
        norms = float(mix.sum()), top * math.sqrt(float(((mix / top) ** 2).sum()))
        limits = self.l1 or math.inf, self.l2 or math.inf
        numbers = self._numbers()
        if np.count_nonzero(mix) <= numbers[0] and all(n <= limit * room for n, limit in zip(norms, limits)):
            return True
        if any(self._shared(mix, k) for k in numbers):
            return True
        for cut in self._cuts():
            sizes = np.minimum(self.sizes, cut)
            share = np.divide(mix, sizes, out=np.zeros(len(mix)), where=sizes > 0) ** self.spend
            rows = self._inner(sizes)
            if share.max() <= 1 + 4 * _MEMBER and all(
                r.entries @ share <= r.most * (1 + _MEMBER) for r in rows
            ):
                return True
        return False

    def _shared(self, mix: Array, k: int) -> bool:
        caps = self._capped(k)
        share = np.divide(mix, caps, out=np.zeros(len(mix)), where=caps > 0) ** self.spend
        return bool(np.all(share <= 1 + 4 * _MEMBER) and share.sum() <= k * (1 + _MEMBER))

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
            prices.get("changed", 0.0),
            prices.get("l1", 0.0) / top,
            prices.get("l2", 0.0) / top / top,
        )

    def spent(self, scales: Array, prices: Prices) -> Fraction | float:
        """An upper bound of what any change spends, by weak duality: rational while that is quick, then rounded up."""
        keep = self.sizes > 0
        if not all(0 <= price < math.inf for price in prices) or np.any(scales[keep] <= 0):
            return math.inf
        bounds = self.changed, self.l1, self.l2
        if any(price > 0 and bound is None for price, bound in zip(prices, bounds, strict=True)):
            return math.inf  # what has no bound has no end that a price could be paid for
        if keep.sum() <= _EXACT:
            a, s = ([Fraction(v) for v in values[keep].tolist()] for values in (self.sizes, scales))
            one, two, three = map(Fraction, prices)
            terms = sum((self._term(x, y, one, two, three) for x, y in zip(a, s, strict=True)), Fraction(0))
            return (
                terms
                + one * Fraction(self.changed or 0)
                + two * Fraction(self.l1 or 0)
                + three * Fraction(self.l2 or 0) ** 2
            )
        return self._spent(self.sizes[keep], scales[keep], *prices)

    def _term(self, a: Fraction, s: Fraction, one: Fraction, two: Fraction, three: Fraction) -> Fraction:
        """The most that a change of one coordinate spends beyond what it pays, at least 0."""
        if self.spend == 2:
            return max((a / s) ** 2 - one - two * a - three * a * a, Fraction(0))
        rate = 1 / s - one / a - two
        if rate <= 0:
            return Fraction(0)
        v = a if not three else min(a, rate / (2 * three))
        return v * rate - three * v * v

    def _spent(self, a: Array, s: Array, one: float, two: float, three: float) -> float:
        if self.spend == 2:
            terms = np.maximum((a / s) ** 2 - one - two * a - three * a * a, 0.0)
        else:
            rate = np.maximum(1 / s - one / a - two, 0.0)
            v = np.minimum(a, rate / (2 * three)) if three else a
            terms = v * (rate - three * v)
        paid = one * (self.changed or 0), two * (self.l1 or 0.0), three * (self.l2 or 0.0) ** 2
        return (math.fsum(terms.tolist()) + math.fsum(paid)) * (1 + _ROOM)


@lru_cache(maxsize=8)
def changes_of(bounds: Sensitivity, spend: int) -> Changes:
    """The changes within bounds of single coordinates and others; what follows from the former is left out.

    Examples
    --------
    >>> changes = changes_of(Sensitivity(each=[3, 2, 1], changed=2, l1=5), 1)
    >>> changes.changed, changes.l1, changes.exact
    (2, None, True)
    """
    most = min((b for b in (bounds.linf, bounds.l1, bounds.l2) if b is not None), default=math.inf)
    sizes = np.minimum(np.array(bounds.each, dtype=float), most)
    count = int(np.count_nonzero(sizes))
    changed = None if bounds.changed is None or bounds.changed >= count else bounds.changed
    top = [Fraction(v) for v in np.sort(sizes)[::-1][: changed or count].tolist()]
    l1 = None if bounds.l1 is None or sum(top) <= Fraction(bounds.l1) else bounds.l1
    l2 = None if bounds.l2 is None or sum(v * v for v in top) <= Fraction(bounds.l2) ** 2 else bounds.l2
    if spend == 1 and changed is not None and l2 is not None:
        # c coordinates of length L₂ sum to √c L₂ at most: the rows of c and L₂ alone do not say so
        implied = math.nextafter(math.sqrt(changed) * l2 * (1 + 4e-16), math.inf)
        if Fraction(implied) < sum(top):
            l1 = implied if l1 is None else min(l1, implied)
    return Changes(sizes, spend, changed, l1, l2)


def _level(height: Array, entries: Array, most: float, exponent: int) -> Any:
    """The t at which Σ R min(1, t h)^e is r: coordinates fill up in the order of h."""
    order = np.argsort(-height)
    h, r = height[order], entries[order]
    full = np.append(0.0, np.cumsum(r))[:-1]
    # Where the rest underflows it asks for nothing; where it overflows, the first are full.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rest = np.cumsum((r * h**exponent)[::-1])[::-1]
        t = (np.maximum(most - full, 0.0) / rest) ** (1 / exponent)
        within = (t * h <= 1) & (t > 0)
    return t[int(np.argmax(within))] if within.any() else 1 / h[-1]
