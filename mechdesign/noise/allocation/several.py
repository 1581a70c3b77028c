r"""Changes that keep several bounds at once, the budget that independent noise consumes on them, and mixes of them.

A change v has :math:`|v_i| \le a_i`, at most c coordinates that are not 0, :math:`\lVert v\rVert_1 \le L_1`,
:math:`\lVert v\rVert_2 \le L_2`. With :math:`u_i = s_i^{-m}` it consumes :math:`\sum_i |v_i|^m u_i`, m = 2 for Gaussian and 1 for
Laplace noise. For :math:`x_i = (|v_i|/a_i)^m` always :math:`x_i \le |v_i|/a_i \le 1\{v_i \ne 0\}`, hence

.. math:: \sum x_i \le c, \quad \sum a_i x_i \le L_1, \quad \sum a_i^2 x_i^{2/m} \le L_2^2,

and any prices :math:`\theta \ge 0` of these three rows prove an upper bound of what any change consumes (`Changes.spent`; the
first row is priced as :math:`1\{v_i \ne 0\}`, however small the change). It is exact where x ranges over the hull of the true changes: one row alone (but L₁ for Gaussian noise), or L₁ and L₂ for Laplace
noise. Else it is safe. Least loss under it is a saddle point: the worst mix of changes, x, maximises the concave
:math:`\sum_i W_i^{1-q} (a_i^m x_i)^q`, q = p/(p + m), and the best scales are those of the profile :math:`a_i x_i^{1/m}`.

**The lower bound.** Sizes and shares z of changes, :math:`x \le z \le 1`, that keep the rows, with :math:`\sum a_i^2 x_i^2/z_i \le L_2^2` for Laplace noise,
are a *mix*: what prices prove of every change they prove of :math:`\sum_i (a_i^m x_i)/s_i^m`, term by term. So no noise of which prices prove that it keeps the
budget costs less than the best against the mix, of profile :math:`a_i x_i^{1/m}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from flint import fmpq

from mechdesign.evidence.vipr import rational
from mechdesign.model.scales import SUM_ERROR
from mechdesign.noise.allocation.separable import EXACT
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array

ROUNDING = 1e-12
"""Relative tolerance for the roundings of a loss, of a dual bound and of a mix, where they are sums in doubles."""
LESS = 1e-12
"""By how much mixes are made smaller, so that they keep the rows exactly."""
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

    @property
    def rarer(self) -> bool:
        """Whether changes of a mix may be rarer than their shares, and larger: Laplace noise where few change under L₂."""
        return self.l0 is not None and self.l2 is not None and self.spend == 1

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

    def reached(self, mix: Array, shares: Array | None = None) -> bool:
        """Whether sizes within shares z, 1 or x unless given, keep the rows: exactly while that is quick, else to rounding."""
        if mix.shape != self.sizes.shape or not (np.isfinite(mix).all() and mix.min() >= 0 and mix.any()):
            return False
        keep = mix > 0
        if (keep & (self.sizes == 0)).any() or (shares is not None and shares.shape != mix.shape):
            return False
        exact, room = keep.sum() <= EXACT, fmpq(1)
        if not exact:
            room = rational(1 + ROUNDING)
        a, v = ([rational(x) for x in values[keep].tolist()] for values in (self.sizes, mix))
        x = [(d / c) ** self.spend for c, d in zip(a, v)]
        z = x if self.l0 is not None else [fmpq(1)] * len(x)
        if shares is not None and self.rarer:
            z = [rational(share) for share in shares[keep].tolist()]
        if not all(low <= share * room and share <= room for low, share in zip(x, z)):
            return False
        squares = [d * d / (share if self.spend == 1 else 1) for d, share in zip(v, z)]
        sums = (self.l0, z), (self.l1, [c * low for c, low in zip(a, x)]), (self.l2, squares)
        limits = [
            None if bound is None else rational(bound) ** (k // 2 + 1) for k, (bound, _) in enumerate(sums)
        ]
        return all(
            limit is None
            or (sum(terms, fmpq(0)) if exact else rational(math.fsum(map(float, terms)))) <= limit * room
            for limit, (_, terms) in zip(limits, sums)
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
        return self.rounded(scales, prices)

    def rounded(self, scales: Array, prices: Prices) -> float:
        """The same upper bound in doubles, rounded up."""
        if not self.priced(scales, prices):
            return math.inf
        keep = self.sizes > 0
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
