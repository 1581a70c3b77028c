r"""A problem on scales in numbers: what files hold of it, its rows in rationals, and what is left of them once equal scales are one.

Rows that say :math:`s_i = s_j` join scales into *groups*, each of which is one number. Rows of one group are its *limits*. All other rows are *coupled*;
they are either ratios :math:`a s_g \le b s_h`, sums with coefficients of at least 0, or mixed. Without mixed ones the problem is convex in the
logarithms of the scales for every order p of the loss, with them in the scales themselves and for p ≥ 1 alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from flint import fmpq
from scipy import sparse

from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.vipr import rational
from mechdesign.model.declared import OwnRows
from mechdesign.model.exactly import RESIDUAL, fraction
from mechdesign.model.scales import ScalesPrivacy
from mechdesign.typing import Array, Indices

ZERO = fmpq(0)
_NEAR = 1e-12
"""Of a row's size: rows that double precision finds farther than this from equality are where it says."""


class Coupled(NamedTuple):
    """A row over several groups, ``sum(a s) + offset`` at most or equal to 0."""

    number: int
    equal: bool
    terms: dict[int, fmpq]
    offset: fmpq

    @property
    def ratio(self) -> bool:
        """Whether it compares two groups."""
        signs = sorted(a > 0 for a in self.terms.values())
        return signs == [False, True] and self.offset == 0

    @property
    def positive(self) -> bool:
        """Whether it is a sum that is bounded from above."""
        return not self.equal and all(a > 0 for a in self.terms.values())


@dataclass(frozen=True, eq=False)
class DeclaredScales(OwnRows):
    """A problem on scales in numbers.

    Parameters
    ----------
    noise, neighbours : str
        As in `Scales`.
    order : float
        p of the loss.
    weights : array, shape (K,)
    privacy : tuple of ScalesPrivacy
    labels : tuple of str
        Of the families of own rows.
    family, equal, offsets : arrays, one entry a row
        Its family, whether it is an equality, and its constant.
    places, coefficients : arrays, shapes (t, 2) and (t,)
        (row, scale) of each coefficient, in the order of rows.
    """

    noise: str
    neighbours: str
    order: float
    weights: Array
    privacy: tuple[ScalesPrivacy, ...]
    labels: tuple[str, ...]
    family: Indices
    equal: Indices
    offsets: Array
    places: Indices
    coefficients: Array

    def __post_init__(self) -> None:
        self.check_rows(self.weights)
        if not ((self.weights > 0).all() and 0 < self.order <= 100):
            raise DesignError("weights: must be positive, of a loss of order p above 0 and at most 100")
        for asked in self.privacy:
            if asked.noise != self.noise or asked.sensitivities.shape != self.weights.shape:
                raise DesignError("privacy: must be of the noise and the numbers that the scales are of")
        if self.order < 1 and not self.logarithmic:
            label = self.labels[self.family[next(row.number for row in self.coupled if not _log(row))]]
            remedy = "mixes signs, which a loss of order p below 1 does not allow: state ratios, equal scales, limits, or sums from above"
            raise DesignError(f"{label!r}: {remedy}")

    @property
    def spend(self) -> int:
        """m of the budgets: 2 of Gaussian noise, 1 of Laplace noise."""
        return self.privacy[0].spend

    @property
    def count(self) -> int:
        """Number of groups."""
        return int(self.member.max()) + 1

    @property
    def width(self) -> int:
        """Number of scales."""
        return len(self.weights)

    def column(self, j: int) -> str:
        """The name of a scale."""
        return f"{'sigma' if self.noise == 'gaussian' else 'beta'}[{j}]"

    @cached_property
    def member(self) -> Indices:
        """The group of each scale."""
        first = np.searchsorted(self.places[:, 0], np.arange(len(self.family) + 1))
        pairs = np.flatnonzero((np.diff(first) == 2) & (self.equal == 1) & (self.offsets == 0))
        pairs = pairs[self.coefficients[first[pairs]] == -self.coefficients[first[pairs] + 1]]
        ends, size = (self.places[first[pairs] + k, 1] for k in (0, 1)), len(self.weights)
        graph = sparse.coo_array((np.ones(len(pairs)), tuple(ends)), shape=(size, size))
        found: Indices = sparse.csgraph.connected_components(graph, directed=False)[1]
        return found

    @cached_property
    def _reduced(self) -> tuple[list[fmpq], list[fmpq | None], list[Coupled]]:
        """Limits of each group from below and above, and the coupled rows."""
        low, high = [ZERO] * self.count, list[fmpq | None]([None] * self.count)
        coupled, member = list[Coupled](), self.member.tolist()
        first = np.searchsorted(self.places[:, 0], np.arange(len(self.family) + 1)).tolist()
        scales, values = self.places[:, 1].tolist(), self.coefficients.tolist()
        for number, (offset, equal) in enumerate(zip(self.offsets.tolist(), self.equal.tolist())):
            terms: dict[int, fmpq] = {}
            for j in range(first[number], first[number + 1]):
                g = member[scales[j]]
                terms[g] = terms.get(g, ZERO) + rational(values[j])
            terms, k = {g: a for g, a in terms.items() if a}, rational(offset)
            if len(terms) > 1:
                coupled.append(Coupled(number, bool(equal), terms, k))
            elif not terms and (k > 0 or (equal and k)):
                raise InfeasibleError(
                    f"no scales meet {self.labels[self.family[number]]!r} (proved in rationals)"
                )
            for g, a in terms.items() if len(terms) == 1 else ():
                limit = -k / a
                if a < 0 or equal:
                    low[g] = max(low[g], limit)
                if a > 0 or equal:
                    before = high[g]
                    high[g] = limit if before is None else min(before, limit)
        for g, (least, most) in enumerate(zip(low, high)):
            if most is not None and least > most:
                words = " and ".join(repr(label) for label in self._limiting(g))
                raise InfeasibleError(f"no scales meet {words} (proved in rationals)")
        return low, high, coupled

    def _limiting(self, group: int) -> list[str]:
        """Families that limit a group by itself."""
        inside = (self.matrix != 0) @ (self.member == group)
        return list(dict.fromkeys(self.labels[f] for f in self.family[inside > 0].tolist()))

    def limited(self, groups: Array) -> list[int]:
        """Own rows that limit one group each, at these scales, as far as doubles tell."""
        sides, size = (
            self.sides(groups[self.member]),
            abs(self.matrix) @ groups[self.member] + abs(self.offsets),
        )
        several = {row.number for row in self.coupled}
        return [n for n in np.flatnonzero(np.abs(sides) <= 1e-6 * size).tolist() if n not in several]

    @property
    def low(self) -> list[fmpq]:
        """The least that the scale of each group may be."""
        return self._reduced[0]

    @property
    def high(self) -> list[fmpq | None]:
        """The most that the scale of each group may be; None without limit."""
        return self._reduced[1]

    @property
    def coupled(self) -> list[Coupled]:
        """Rows over several groups."""
        return self._reduced[2]

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """The same limits in doubles, rounded inward."""
        low = [round_up(fraction(v)) for v in self.low]
        high = [np.inf if v is None else round_down(fraction(v)) for v in self.high]
        return np.array(low), np.maximum(np.array(high), np.where(np.isfinite(high), low, 0.0))

    @cached_property
    def logarithmic(self) -> bool:
        """Whether the problem is convex in the logarithms of the scales."""
        return all(map(_log, self.coupled))

    def grouped(self, values: Array) -> Array:
        """Sums over the members of each group."""
        return np.bincount(self.member, weights=values, minlength=self.count).astype(float)

    def sides(self, scales: Array) -> Array:
        """Left less right sides of the own rows in doubles."""
        return np.asarray(self.matrix @ scales + self.offsets)

    def exact_side(self, number: int, scales: Array) -> fmpq:
        """Left less right side of an own row, exactly."""
        span = slice(*np.searchsorted(self.places[:, 0], [number, number + 1]).tolist())
        pairs = zip(self.coefficients[span].tolist(), scales[self.places[span, 1]].tolist())
        return sum((rational(a) * rational(s) for a, s in pairs), rational(float(self.offsets[number])))

    def missed(self, scales: Array) -> dict[int, fmpq]:
        """Own rows that do not hold, each with what it is missed by; equalities that hold to `RESIDUAL` of their size only, too.

        Double precision tells which rows are far from equality; the others are computed exactly.
        """
        size, found = abs(self.matrix) @ scales + abs(self.offsets), dict[int, fmpq]()
        sides = self.sides(scales)
        close = (np.abs(sides) <= _NEAR * size) | (sides > 0) | (self.equal == 1)
        for number in np.flatnonzero(close).tolist():
            side = self.exact_side(number, scales)
            if side > 0 or (side and self.equal[number]):
                found[number] = side
        return found

    def broken(self, scales: Array) -> bool:
        """Whether an own row does not hold: an equality to `RESIDUAL` of its size."""
        size = abs(self.matrix) @ scales + abs(self.offsets)
        missed = self.missed(scales).items()
        return any(not self.equal[n] or abs(side) > rational(RESIDUAL * float(size[n])) for n, side in missed)


def _log(row: Coupled) -> bool:
    return row.ratio or row.positive
