r"""Bounds on how much one person changes an answer, several at once; and the changes that noise protects (`Protection`).

The change v of a K-dimensional answer between neighbours lies in the intersection

.. math:: S = \{v : |v_i| \le b_i,\ \lVert v\rVert_1 \le L_1,\ \lVert v\rVert_2 \le L_2,\ \lVert v\rVert_0 \le c\}.

Different laws need different quantities of S. Order the c largest bounds, :math:`b_1 \ge b_2 \ge \dots`.

- *Gaussian noise* needs :math:`\max_S \lVert v\rVert_2`. Without L₂ the vector that fills the largest bounds until they sum
  to L₁ weakly majorises every other of S (its partial sums :math:`\min(\sum_{k \le j} b_k, L_1)` are the largest
  possible), so it has the largest norm; S is star-shaped, so the answer is the smaller of that and L₂. Exact.
- *Pure privacy* of a log-concave law needs :math:`\max_S \lVert v\rVert_1`: the largest loss is linear in a shift. Exact,
  by the same argument; under L₂ by water filling: :math:`v_i = \min(b_i, t)`.
- *Any symmetric log-concave law* has at most the loss of a vector that is at least |v| coordinate by coordinate, sorted:
  :math:`u_k = \min(b_k, L_1/k, L_2/\sqrt k)`, the `envelope`. It is exact if u lies in S, as it does without L₁ and L₂.
- *The same laws* have a larger loss if two shifts are added on one coordinate: the trade-off functions of a translated log-concave
  law are a semigroup, :math:`T_{s+t} = T_t \circ (1 - T_s)`, and group privacy bounds :math:`T_s \otimes T_t` by that. So
  shifts may be `packed` until any two sum to more than the largest: fewer than 2L₁/b₁ are left. Safe, seldom exact.
  (The vector that fills the largest bounds would be tighter; we know no proof that it is the worst for every such law.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, groupby, product
from typing import Any

import numpy as np

from mechdesign import checks
from mechdesign.checks import Checked, field, refuse
from mechdesign.doubles import DOWN
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.typing import Array, Indices, Numbers

NEIGHBOURS = ("add-remove", "replace")
Shifts = tuple[tuple[float, int], ...]
"""A vector of changes, largest first: pairs (size, number of coordinates)."""

_GROUPS = 12
"""Most distinct shifts in an envelope; accounting handles each separately."""
_LARGEST = 1e150
_EXACT = 64
"""Most distinct bounds that are summed in rational arithmetic."""


def exponent_of(noise: str) -> int:
    """Return m, where noise of scale s consumes (v/s)^m of the budget on a change v: 2 for Gaussian noise, 1 for Laplace noise."""
    return 2 if noise == "gaussian" else 1


def _sized(name: str, bound: float) -> float:
    if not checks.NARROWEST <= bound <= _LARGEST:
        held = f"must be {checks.NARROWEST:g} to {_LARGEST:g}, so that doubles hold its square"
        raise DesignError.of(name, bound, f"{held}; use another unit")
    return bound


def _bound(name: str, value: object) -> float:
    return _sized(name, checks.positive(name, value, side=checks.UP))


def _bounds(name: str, value: Numbers) -> tuple[float, ...]:
    found = checks.array(name, checks.rounded_up(checks.array(name, value), value))
    if found.min() < 0 or not found.any():
        raise DesignError.of(name, value, "must be bounds of at least 0, one per coordinate, not all 0")
    _sized(name, float(found.max()))
    return tuple(found.tolist())


def neighbours_field() -> Any:
    """Declare the field of a design or of bounds that states the neighbouring relation of its changes."""
    return field(check=checks.one_of, allowed=NEIGHBOURS, default=NEIGHBOURS[0])


@serializable("sensitivity")
class Sensitivity(Checked):
    r"""Bounds on the difference between neighbouring answers; all that are given hold together.

    Parameters
    ----------
    linf : float, optional
        The most any coordinate changes.
    l1, l2 : float, optional
        The most the changes sum to: :math:`\sum|v_i|` and :math:`\sqrt{\sum v_i^2}`.
    l0 : int, optional
        Most coordinates that change.
    each : array_like, shape (K,), optional
        A bound for each coordinate; 0 for those that never change.
    neighbours : {"add-remove", "replace"}
        The neighbours for which the bounds hold: one person more or less ("add-remove", the default here and everywhere; a
        sensitivity that is a plain number says the same), or one person's data replaced. `of_contribution` derives the bounds for either.
    signed : bool
        Whether some coordinates may rise while others fall. False: all that change rise, or all fall, as counts do when one
        person is added or removed. Correlated noise exploits this, independent noise cannot.
    own : float, optional
        For replaced neighbours, the largest ℓ₂ norm by which adding or removing one person changes the answer: the norm to which
        records are clipped. Accounting for Poisson samples of replaced people uses it; `of_contribution` sets it.

    Raises
    ------
    DesignError
        No bound on how much changes; a bound that is not positive; an unknown relation.

    Examples
    --------
    Three of twenty counts change by one; the box alone would say :math:`\sqrt{20}`:

    >>> counts = Sensitivity(linf=1, l0=3)
    >>> round(counts.largest_l2(20), 6), counts.largest_l1(20)
    (1.732051, 3.0)
    >>> print(counts)
    at most 3 coordinates change, each by at most 1 (add-remove neighbours)
    """

    linf: float | None = field(check=_bound, default=None)
    l1: float | None = field(check=_bound, default=None)
    l2: float | None = field(check=_bound, default=None)
    l0: int | None = field(check=checks.integer, least=1, default=None)
    each: tuple[float, ...] | None = field(check=_bounds, default=None)
    neighbours: str = neighbours_field()
    signed: bool = field(check=checks.one_of, allowed=(True, False), default=True)
    own: float | None = field(check=_bound, default=None)

    def _post_check(self) -> None:
        allowed = 'must be left out but for neighbours="replace": the bounds say it'
        refuse(self.own is not None and self.neighbours != "replace", "own", self.own, allowed)
        if self.each is None and self.linf is None and self.l1 is None and self.l2 is None:
            remedy = "says how many coordinates change, not by how much: give linf, l1 or l2"
            raise DesignError.of("l0", self.l0, remedy)
        if self.each is not None:
            self._check_count(len(self.each))

    def _check_count(self, dimension: int) -> None:
        if self.l0 is not None and self.l0 > dimension:
            remedy = f"must be at most {dimension}, as many coordinates as there are"
            raise DesignError.of("l0", self.l0, f"{remedy} (of_contribution takes dimension=)")

    @classmethod
    def of_list(cls, vectors: Array) -> Sensitivity:
        """Return bounds that hold for all vectors of a list, shape (n, K)."""
        vectors = checks.array("vectors", vectors, ndim=2)
        sizes = [[Fraction(abs(x)) for x in v] for v in vectors.tolist()]
        l2 = math.nextafter(math.sqrt(round_up(max(sum(x * x for x in v) for v in sizes))), math.inf)
        l1 = round_up(max(sum(v) for v in sizes))
        count = int((vectors != 0).sum(axis=1).max())
        return cls(each=tuple(np.abs(vectors).max(axis=0).tolist()), l1=l1, l2=l2, l0=count)

    @classmethod
    def of(cls, value: object) -> Sensitivity:
        """Return a Sensitivity as it is; a number becomes the most that any coordinate changes."""
        return (
            value
            if isinstance(value, Sensitivity)
            else cls(linf=checks.positive("sensitivity", value, side=checks.UP))
        )

    @classmethod
    def of_contribution(
        cls,
        *,
        linf: float | None = None,
        l1: float | None = None,
        l2: float | None = None,
        l0: int | None = None,
        each: Numbers | None = None,
        signed: bool = False,
        neighbours: str = "add-remove",
        dimension: int | None = None,
    ) -> Sensitivity:
        r"""Return the sensitivity of a sum of contributions, one per person, that satisfy these bounds.

        One person more or less ("add-remove" neighbours, the default) changes the sum by one contribution x, within the
        bounds. A replaced person (``neighbours="replace"``) changes it by x − y: by
        2L₁ in ℓ₁, in 2c coordinates; by b_i in a coordinate and :math:`\sqrt2 L_2` in ℓ₂ if contributions are
        never negative, by twice the bounds if they may be (`signed`). No more than all coordinates change; `dimension` or
        the length of `each` says how many exist.

        Examples
        --------
        At most three counts, at most twice in each:

        >>> print(Sensitivity.of_contribution(linf=2, l0=3))
        at most 3 coordinates change, each by at most 2, all up or all down (add-remove neighbours)
        >>> print(Sensitivity.of_contribution(linf=2, l0=3, neighbours="replace"))
        at most 6 coordinates change, each by at most 2 (replace neighbours)
        """
        own = cls(linf, l1, l2, l0, each, neighbours, signed)  # type: ignore[arg-type]
        most = len(own.each) if own.each is not None else dimension
        if most is not None:
            own.check(checks.integer("dimension", most if dimension is None else dimension, 1))
        if neighbours == "add-remove":
            return own
        l1, l2, size = own.l1, own.l2, len(own.each) if own.each is not None else own.l0
        if signed and size is not None:
            l1, l2 = own.largest_l1(size), own.largest_l2(size)
        norm = own.l2 if size is None else own.largest_l2(size)
        norm = norm if norm is not None or own.l1 is None else own.l1
        times, root = (2, Fraction(2)) if signed else (1, Fraction(_ROOT_TWO))
        return cls(
            linf=None if own.linf is None else times * own.linf,
            l1=None if l1 is None else 2 * l1,
            l2=None if l2 is None else round_up(Fraction(l2) * root),
            l0=None if own.l0 is None else 2 * own.l0 if most is None else min(2 * own.l0, most),
            each=None if own.each is None else tuple(times * b for b in own.each),
            neighbours=neighbours,
            own=norm,
        )

    def __str__(self) -> str:
        parts = list[str]()
        if self.l0 is not None:
            parts.append(f"at most {self.l0} coordinate{' changes' if self.l0 == 1 else 's change'}")
        if self.linf is not None:
            parts.append(f"each by at most {self.linf:g}")
        if self.each is not None:
            parts.append(f"coordinate by coordinate by at most {_shown(self.each)}")
        for order, bound in (("₁", self.l1), ("₂", self.l2)):
            if bound is not None:
                parts.append(f"ℓ{order} norm of the change at most {bound:g}")
        if not self.signed:
            parts.append("all up or all down")
        return f"{', '.join(parts)} ({self.neighbours} neighbours)"

    def check(self, dimension: int) -> None:
        """Raise DesignError unless the bounds fit an answer of this many coordinates."""
        if self.each is not None and len(self.each) != dimension:
            allowed = f"must have one bound for each of {dimension} coordinates (dimension={len(self.each)} for these)"
            raise DesignError.of("each", _shown(self.each), allowed)
        self._check_count(dimension)

    def bounds(self, dimension: int) -> Shifts:
        """Return the c largest bounds of single coordinates, equal ones grouped."""
        self.check(checks.integer("dimension", dimension, 1))
        most = min((b for b in (self.linf, self.l1, self.l2) if b is not None), default=math.inf)
        count = min(dimension, self.l0 or dimension)
        if self.each is None:
            return ((most, count),)
        values = np.sort(np.minimum(np.array(self.each), most))[::-1][:count]
        sizes, counts = np.unique(values[values > 0], return_counts=True)
        return tuple(zip(sizes[::-1].tolist(), counts[::-1].tolist()))

    def count(self, dimension: int) -> int:
        """Return the most coordinates that change."""
        return sum(count for _, count in self.bounds(dimension))

    def largest_linf(self, dimension: int) -> float:
        """Return the most that a single coordinate changes."""
        return self.bounds(dimension)[0][0]

    def largest_l1(self, dimension: int) -> float:
        """Return the largest :math:`\\lVert v\\rVert_1`, rounded up: the sum of the bounds, L₁, or water filling within L₂."""
        bounds = self.bounds(dimension)
        total = _sum(bounds, 1) if self.l2 is None else min(_sum(bounds, 1), _water(bounds, self.l2))
        return total if self.l1 is None else min(total, self.l1)

    def largest_l2(self, dimension: int) -> float:
        """Return the largest :math:`\\lVert v\\rVert_2`, rounded up: the norm of the bounds filled up to L₁, or L₂."""
        found = _norm_up(_filled(self.bounds(dimension), self.l1))
        return found if self.l2 is None else min(found, self.l2)

    def whole(self, dimension: int) -> Sensitivity:
        """Return the bounds restricted to changes by whole numbers, whose sum may be smaller.

        Examples
        --------
        >>> Sensitivity(l2=3.0).whole(50).l1                    # nine by 1; else 3√50
        9.0
        """
        if self.l1 is None and self.l2 is None:
            return self
        most = math.inf if self.l1 is None else math.floor(self.l1)
        if self.l2 is not None:
            sizes = tuple((math.floor(v), c) for v, c in self.bounds(dimension))
            most = min(most, _most_whole(sizes, math.floor(Fraction(self.l2) ** 2)))
        return replace(self, l1=float(most)) if most else self

    def whole_changes(self, dimension: int) -> tuple[tuple[Shifts, ...], bool]:
        """Return vectors such that one dominates each change by whole numbers, and whether a single one does and is itself such a change.

        Raises
        ------
        DesignError
            A bound is no whole number, or the bounds allow no change by a whole number.
        """
        for name, bounds in (("linf", (self.linf,)), ("each", self.each or ())):
            for bound in bounds:
                allowed = "must be a whole number for discrete noise"
                refuse(bound is not None and bound != int(bound), f"sensitivity.{name}", bound, allowed)
        whole = self.whole(dimension)
        above = (whole.envelope(dimension), *whole.packed(dimension))
        floored = (tuple((math.floor(v), c) for v, c in vector if v >= 1) for vector, _ in above)
        found = tuple(dict.fromkeys(filter(None, floored)))
        allowed = "allows no change of a whole number: nothing needs discrete noise"
        checks.refuse(not found, "sensitivity", str(whole), allowed)
        exact = whole.allows(found[0])
        return found[:1] if exact else found, exact

    @property
    def reached_by_whole(self) -> bool:
        """Whether some change by whole numbers attains the largest sum and norm that these bounds allow."""
        sizes = (self.linf, self.l1, *(self.each or ()))
        return self.l2 is None and all(b is None or b == math.floor(b) for b in sizes)

    def widths(self, dimension: int) -> Array:
        """Return the most that each coordinate changes."""
        self.check(checks.integer("dimension", dimension, 1))
        most = min((b for b in (self.linf, self.l1, self.l2) if b is not None), default=math.inf)
        return np.full(dimension, most) if self.each is None else np.minimum(self.each, most)

    def _box(self, dimension: int) -> tuple[Indices, int]:
        """Return the coordinates that may change, and how many are nonzero at a corner of the box; 1 for the ℓ₁ ball."""
        moved = np.flatnonzero(widths := self.widths(dimension))
        ball = self.l1 is not None and bool((widths[moved] == self.l1).all())
        return moved, 1 if ball else min(self.l0 or len(moved), len(moved))

    def boxed(self, dimension: int) -> bool:
        """Whether the changes are a box, of which at most c coordinates change, or the ℓ₁ ball."""
        widths = self.widths(dimension)
        return self.l1 is self.l2 is None or bool((widths[widths > 0] == self.l1).all())

    def corner_count(self, dimension: int) -> int:
        """Return the number of `corners`."""
        moved, count = self._box(dimension)
        return count_of(len(moved), count, signed=self.signed)

    def corners(self, dimension: int) -> Array:
        """Return the corners of the box with at most c nonzero coordinates, up to sign, one per row."""
        moved, count = self._box(dimension)
        found = np.zeros((count_of(len(moved), count, signed=self.signed), dimension))
        found[:, moved] = (
            signed_supports(len(moved), count, signed=self.signed) * self.widths(dimension)[moved]
        )
        return found

    def largest_share(self, dimension: int) -> Fraction:
        """Return a lower bound of max Σ |v_i|/width_i over changes: c coordinates, the smallest filled up to L₁, or within L₂."""
        sizes = [Fraction(b) for b in sorted(self.widths(dimension).tolist()) if b]
        found, left = Fraction(min(self.l0 or len(sizes), len(sizes))), Fraction(self.l1 or 0)
        if self.l1 is not None:
            filled = Fraction(0)
            for size in sizes:
                filled += min(left / size, Fraction(1))
                left -= min(left, size)
                if not left:
                    break
            found = min(found, filled)
        if self.l2 is not None:
            squares = math.fsum(float(Fraction(self.l2) / size) ** 2 for size in sizes)
            found = min(found, Fraction(math.sqrt(squares) * (1 + 1e-14)))
        return max(found, Fraction(1))

    def envelope(self, dimension: int) -> tuple[Shifts, bool]:
        """Return a sorted vector that dominates every change of the set, and whether it is one of them."""
        bounds = self.bounds(dimension)
        if self.l1 is not None or self.l2 is not None:
            bounds = _capped(bounds, self.l1 or math.inf, self.l2 or math.inf)
        grouped = _grouped(bounds)
        return grouped, grouped == bounds and self.allows(grouped)

    def packed(self, dimension: int) -> tuple[tuple[Shifts, bool], ...]:
        """Return vectors that dominate every change after shifts are packed into fewer coordinates: log-concave laws only."""
        bounds, total = self.bounds(dimension), self.largest_l1(dimension)
        top, count = bounds[0][0], sum(c for _, c in bounds)
        found: list[Shifts] = [((total, 1),)]
        left = math.ceil(2 * Fraction(total) / Fraction(top)) - 1
        if 1 < left < count:
            found.append(_grouped(_capped(((top, left),), total, math.inf)))
        return tuple((vector, self.allows(vector) and total <= top) for vector in found)

    def attained(self, dimension: int) -> tuple[Shifts, ...]:
        """Return changes in the set, rounded down: the worst case is at least as bad as each."""
        bounds, count, flat = self._flat(dimension)
        filled = _filled(bounds, self.l1)
        if self.l2 is not None and (norm := _norm_up(filled)) > self.l2:
            filled = tuple((v * (self.l2 / norm) * DOWN, c) for v, c in filled)
        if self.l1 is not None:
            filled = tuple((v * DOWN, c) for v, c in filled)
        exact = flat == bounds[-1][0]
        return (_grouped(filled, up=False), ((flat if exact else flat * DOWN, count),))

    def finest(self, dimension: int) -> float:
        """Return the length that bounds a lattice step: it must be much finer, as rounding adds a step to each changed coordinate."""
        alone = math.inf if self.own is None else self.own / math.sqrt(dimension)
        return min(self._flat(dimension)[2], alone) * DOWN

    def _flat(self, dimension: int) -> tuple[Shifts, int, float]:
        """Return the bounds, the most coordinates that change, and the largest size by which all of them can change equally."""
        bounds, count = self.bounds(dimension), self.count(dimension)
        flat = min(bounds[-1][0], (self.l1 or math.inf) / count, (self.l2 or math.inf) / math.sqrt(count))
        return bounds, count, flat

    def allows(self, vector: Shifts) -> bool:
        """Whether a vector within the bounds of single coordinates satisfies L₁ and L₂, in rational arithmetic."""
        exact = [(Fraction(v), c) for v, c in vector]
        within_l1 = self.l1 is None or sum(v * c for v, c in exact) <= Fraction(self.l1)
        within_l2 = self.l2 is None or sum(v * v * c for v, c in exact) <= Fraction(self.l2) ** 2
        return within_l1 and within_l2


_ROOT_TWO = math.nextafter(math.sqrt(2.0), 2.0)


def _shown(bounds: tuple[float, ...]) -> str:
    head = ", ".join(f"{b:g}" for b in bounds[:6])
    return f"({head}{', …' if len(bounds) > 6 else ''})"


def _sum(groups: Shifts, power: int) -> float:
    """Return Σ count·size^power, rounded up."""
    if len(groups) <= _EXACT:
        return round_up(sum((Fraction(v) ** power * c for v, c in groups), Fraction(0)))
    return math.nextafter(math.fsum(v**power * c for v, c in groups) * (1 + 4e-16), math.inf)


def _norm_up(groups: Shifts) -> float:
    """Return the Euclidean norm, rounded up; a single coordinate gives its size exactly."""
    if len(groups) == 1 and groups[0][1] == 1:
        return groups[0][0]
    top = groups[0][0]
    unit = 2.0 ** math.frexp(top)[1]  # so that no square overflows or underflows
    return math.nextafter(math.sqrt(_sum(tuple((v / unit, c) for v, c in groups), 2)), math.inf) * unit


def _filled(bounds: Shifts, total: float | None) -> Shifts:
    """Take the largest bounds until they sum to `total`; the last one is the remainder."""
    if total is None:
        return bounds
    found, left = [], Fraction(total)
    for size, count in bounds:
        size_exact = Fraction(size)
        take = min(count, int(left / size_exact))
        if take:
            found.append((size, take))
            left -= size_exact * take
        if take < count:
            if left > 0:
                found.append((round_up(left), 1))
            break
    return tuple(found)


def _water(bounds: Shifts, norm: float) -> float:
    """Return an upper bound of Σ v over v ≤ b, ‖v‖₂ ≤ norm, by weak duality at the level t where ‖min(b, t)‖₂ = norm."""
    sizes, counts = np.array([v for v, _ in bounds]), np.array([c for _, c in bounds], dtype=float)
    if float((counts * sizes**2).sum()) <= norm * norm * (1 - 1e-12):
        return math.inf
    below = np.append(np.cumsum((counts * sizes**2)[::-1])[::-1][1:], 0.0)
    level = np.sqrt(np.maximum(norm * norm - below, 0.0) / np.cumsum(counts))
    j = int(np.argmax(level >= np.append(sizes[1:], 0.0)))
    t = max(float(level[j]), 1e-300)
    gains = np.where(sizes > t, t / 2, sizes - sizes**2 / (2 * t))
    return (math.fsum((counts * gains).tolist()) + norm * norm / (2 * t)) * (1 + 1e-13)


def _most_whole(bounds: tuple[tuple[int, int], ...], square: int) -> int:
    """Return the largest Σ v over whole v ≤ b, Σ v² ≤ square: a step from v adds 2v + 1 to Σ v², so the cheapest go first."""

    def taken(level: int) -> int:
        return sum(c * min(b, level) ** 2 for b, c in bounds)

    low, high = 0, bounds[0][0]
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if taken(middle) <= square else (low, middle - 1)
    more = min(sum(c for b, c in bounds if b > low), (square - taken(low)) // (2 * low + 1))
    return sum(c * min(b, low) for b, c in bounds) + more


def _capped(bounds: Shifts, l1: float, l2: float) -> Shifts:
    """Return min(b_k, L₁/k, L₂/√k), rounded up: for single k first, then for blocks that grow by a sixteenth."""
    found: list[tuple[float, int]] = []
    start = 1
    for size, count in bounds:
        end = start + count
        while start < end:
            caps, flat = [size], end - start
            if math.isfinite(l1):
                caps.append(round_up(Fraction(l1) / start))
            if math.isfinite(l2):
                caps.append(
                    math.nextafter(l2 / math.sqrt(start), math.inf) * (1 + 3e-16) if start > 1 else l2
                )
            cap = min(caps)
            # while the bound b_k itself is the smallest, the block continues
            if math.isfinite(l1):
                flat = min(flat, int(Fraction(l1) / Fraction(cap)) - start + 1)
            if math.isfinite(l2):
                flat = min(flat, int(Fraction(l2) ** 2 / Fraction(cap) ** 2) - start + 1)
            take = min(max(flat, 1, start // 16), end - start)
            found.append((cap, take))
            start += take
    return tuple((size, sum(c for _, c in alike)) for size, alike in groupby(found, lambda group: group[0]))


def _grouped(vector: Shifts, *, up: bool = True) -> Shifts:
    """Round to at most `_GROUPS` sizes, each the largest (or smallest) of its group; split greedily by the squares saved."""
    if len(vector) <= _GROUPS:
        return vector
    sizes, counts = np.array([v for v, _ in vector]), np.array([c for _, c in vector])
    sums: Array = np.append(0.0, np.cumsum(counts.astype(float)))
    cuts = [0, len(sizes)]
    while len(cuts) <= _GROUPS:
        best = max(_best_cut(sizes, sums, a, b, up) for a, b in zip(cuts[:-1], cuts[1:]))
        if best[0] <= 0:
            break
        cuts = sorted([*cuts, best[1]])
    return tuple(
        (float(sizes[a] if up else sizes[b - 1]), int(counts[a:b].sum())) for a, b in zip(cuts[:-1], cuts[1:])
    )


def _best_cut(sizes: Array, sums: Array, a: int, b: int, up: bool) -> tuple[float, int]:
    """Return the most that a cut of the group [a, b) saves in squares, and its place."""
    if b - a < 2:
        return 0.0, a
    inner = np.arange(a + 1, b)
    if up:
        saved = (sizes[a] ** 2 - sizes[inner] ** 2) * (sums[b] - sums[inner])
    else:
        saved = (sizes[inner - 1] ** 2 - sizes[b - 1] ** 2) * (sums[inner] - sums[a])
    k = int(np.argmax(saved))
    return float(saved[k]), int(inner[k])


def sensitivity(name: str, value: object) -> float | Sensitivity:
    """Return a `Sensitivity` as it is, or a number as a float rounded up: the most that any coordinate changes."""
    return value if isinstance(value, Sensitivity) else checks.positive(name, value, side=checks.UP)


def neighbours_of(changes: object, stated: str) -> str:
    """Return the neighbouring relation of changes: that of a `Sensitivity`, or `stated` for numbers and lists."""
    if not isinstance(changes, Sensitivity):
        return checks.one_of("neighbours", stated, NEIGHBOURS)
    if stated not in (NEIGHBOURS[0], changes.neighbours):
        raise DesignError.of("neighbours", stated, f"must be those of the bounds: {changes.neighbours!r}")
    return changes.neighbours


@dataclass(frozen=True, eq=False)
class Protection:
    """Changes and rounds that a design of noise protects.

    Parameters
    ----------
    dimension : int
        How many numbers an answer has.
    changes : Sensitivity or array, shape (n, dimension)
        Possible changes by one person: bounds, or a list of vectors (each with its negative).
    rounds : int
        How often the numbers are answered under one budget.
    sampling_rate : float
        Probability at which each person is sampled in a round, at most.
    integer : bool
        Whether the noise is for whole numbers only.
    signed : bool, optional
        Whether some numbers may rise while others fall; None for independent noise, for which this is irrelevant.
    """

    dimension: int
    changes: Sensitivity | Array
    rounds: int = 1
    sampling_rate: float = 1.0
    integer: bool = False
    signed: bool | None = None

    def __str__(self) -> str:
        whole, held = "whole " if self.integer else "", self.changes
        numbers = f"one {whole}number" if self.dimension == 1 else f"{self.dimension} {whole}numbers"
        if not isinstance(held, Sensitivity):
            moved = f"the change is one of {len(held)} known vectors, its negative, or a mean of these"
        elif self.dimension == 1:
            moved = f"it changes by at most {held.largest_linf(1):g}"
        else:
            bounds = str(replace(held, signed=True) if self.signed is None else held)
            moved = f"the numbers change within these bounds: {bounds.rpartition(' (')[0]}"
        said = f"A query returns {numbers} about a data set. Between neighbouring data sets {moved}."
        if self.rounds > 1:
            said += (
                f" The query is answered {self.rounds} times, and all answers together meet the requirement."
            )
        if self.sampling_rate < 1:
            said += f" Every answer is about a Poisson sample at rate {self.sampling_rate:g}."
        return said

    def check(self, name: str, asked: Any) -> None:
        """Raise DesignError unless all changes and rounds of a `NumericQuery` are protected.

        The protection may cover more rounds, a higher sampling rate and larger changes than asked for, never less.
        """

        def error(what: str, value: object, allowed: str) -> DesignError:
            return DesignError.of(f"{name}: {what}", value, allowed)

        if self.dimension != asked.dimension:
            raise error("dimension", self.dimension, f"must be the question's {asked.dimension}")
        if self.rounds < asked.rounds:
            raise error("rounds", self.rounds, f"must be at least the question's {asked.rounds}")
        rate, least = self.sampling_rate, asked.sampling_rate
        own = self.changes.own if isinstance(self.changes, Sensitivity) else None
        replaced = rate < 1 and asked.bounds.neighbours != "add-remove"
        if rate < least or (replaced and not (asked.bounds.own or math.inf) <= (own or 0)):
            allowed = f"must be at least the question's {least}, and own its where a person is replaced"
            raise error("sampling_rate", rate, allowed)
        if self.integer and not asked.integer:
            raise error("noise", "discrete", "is for whole numbers: NumericQuery(integer=True)")
        if not self.covers(asked.bounds, asked.changes):
            words = str(self.changes) if isinstance(self.changes, Sensitivity) else "a list of changes"
            raise error("sensitivity", words, f"does not cover the question's: {asked.bounds}")

    def is_of(self, asked: Any) -> bool:
        """Whether the protection covers no more than the changes of a `NumericQuery`; `check` ensures no less."""
        size, bounds, held = self.dimension, asked.bounds, self.changes
        if (self.rounds, self.sampling_rate) != (asked.rounds, asked.sampling_rate):
            return False
        if isinstance(held, Sensitivity):
            both_ways = self.signed and not bounds.signed and held.count(size) > 1
            return _bounded(bounds, held, size) and not both_ways
        vectors = _signed(held)
        if asked.changes is not None:
            return vectors == _signed(asked.changes)
        return bool(len(vectors) == 2 * bounds.corner_count(size))

    def covers(self, asked: Sensitivity, changes: Array | None = None) -> bool:
        """Whether every change that `asked` allows is protected; if `changes` are given, only these, which satisfy `asked`."""
        if self.signed is False and asked.signed and asked.count(self.dimension) > 1:
            return False
        if isinstance(self.changes, Sensitivity):
            return _bounded(self.changes, asked, self.dimension)
        if changes is not None:
            return _signed(changes) <= _signed(self.changes)
        return _listed(self.changes, asked)


def _bounded(held: Sensitivity, asked: Sensitivity, size: int) -> bool:
    """Whether each bound of `held` holds on all changes that `asked` allows."""
    pairs = (held.linf, asked.largest_linf), (held.l1, asked.largest_l1), (held.l0, asked.count)
    if any(bound is not None and most(size) > bound for bound, most in pairs):
        return False
    if held.l2 is not None and not (asked.l2 is not None and asked.l2 <= held.l2):
        longest = _filled(asked.bounds(size), asked.l1)
        if sum(Fraction(v) ** 2 * n for v, n in longest) > Fraction(held.l2) ** 2:
            return False
    return held.each is None or bool((asked.widths(size) <= np.array(held.each)).all())


def _signed(vectors: Array) -> set[tuple[float, ...]]:
    """Return the vectors and their negatives as a set of tuples."""
    return {tuple(row) for v in vectors.tolist() for row in (v, [-x for x in v])}


def _listed(vectors: Array, asked: Sensitivity) -> bool:
    """Whether all `corners` of `asked` are among the vectors, up to sign."""
    size = vectors.shape[1]
    if asked.corner_count(size) > len(vectors):
        return False
    return _signed(asked.corners(size)) <= _signed(vectors)


def count_of(size: int, l0: int, *, signed: bool) -> int:
    """Return the number of corners, up to sign.

    Examples
    --------
    >>> count_of(20, 3, signed=False), count_of(20, 3, signed=True)
    (1350, 4560)
    """
    if signed:
        return int(math.comb(size, l0) * 2 ** (l0 - 1))
    return sum(math.comb(size, k) for k in range(1, l0 + 1))


def signed_supports(size: int, l0: int, *, signed: bool) -> Array:
    """Return the corners of {|v_i| ≤ 1, at most c nonzero}, up to sign; if not `signed`, those of {0 ≤ v_i ≤ 1}.

    If `signed`, the corners with exactly c nonzero entries suffice: the others are their averages.

    Examples
    --------
    >>> signed_supports(3, 2, signed=False).astype(int).tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]]
    """
    rows, at = np.zeros((count_of(size, l0, signed=signed), size)), 0
    for k in (l0,) if signed else range(1, l0 + 1):
        signs = (
            np.array([(1.0, *p) for p in product((1.0, -1.0), repeat=k - 1)]) if signed else np.ones((1, k))
        )
        for places in combinations(range(size), k):
            rows[at : at + len(signs), places] = signs
            at += len(signs)
    return rows
