r"""The lower bound of P3 and P4, by the Lagrangian of a problem on scales, which is here in numbers with the user's own rows.

Rows that say :math:`s_i = s_j` join scales into *groups*, each of which is one number. Rows of one group are its
*limits*. All other rows are *coupled*; they are either ratios :math:`a s_g \le b s_h`, sums with coefficients of at
least 0, or mixed. Without mixed ones the problem is convex in the logarithms of the scales for every order p of the
loss, with them in the scales themselves and for p ≥ 1 alone.

**The lower bound.** The Lagrangian separates, and one convex function of one number is left for each group. For
multipliers y ≥ 0 of the budgets and :math:`\nu` of the coupled rows, the loss is at least

.. math:: \sum_g \min_s \varphi_g(s) - \sum_r y_r B_r + \sum \nu k, \qquad
          \varphi(s) = W s^p + A s^{-m} + d s + c \log s ,

with k the constants of the rows, A the sum of :math:`y_r \lambda^m` over budgets and members, d that of :math:`\nu a`
over sums and mixed rows, c that of :math:`\pm\nu` over ratios, in the form :math:`\log s_g - \log s_h + \log(a/b)`.
:math:`\varphi` is convex in log s if d ≥ 0, and in s if p ≥ 1 and c = 0. With
:math:`\sigma(s) = p W s^p - m A s^{-m} + d s + c`, its slope in log s, and a ≤ b such that
:math:`\sigma(a) \le 0 \le \sigma(b)`, or a and b are the ends of the limits,

.. math:: \min \varphi \ge \varphi(b) - \sigma(b) (b/a - 1),

as the tangent at b, in either variable, loses no more on the way to a. With a and b 10⁻¹⁰ around the minimum hardly
anything is lost. Everything is computed in balls. The bound holds for any multipliers. P3 and P4 alone have no rows,
d = c = 0, and the bound is their least loss at y = p/(mB) times that loss. At W = 0 a positive bound proves that no
scales meet the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from flint import arb, ctx, fmpq
from scipy import sparse

from mechdesign.errors import DesignError, InfeasibleError, ResultFormatError
from mechdesign.evidence.exact import fraction, rational, round_down, round_up
from mechdesign.model.expressions import OwnRows, Row
from mechdesign.model.problem import contradicted
from mechdesign.model.scales import ScalesPrivacy
from mechdesign.noise.separable import changes_within
from mechdesign.typing import Array, Flags, Indices

ZERO = fmpq(0)
_DIGITS = 192
"""Bits of ball arithmetic."""


class Coupled(NamedTuple):
    """An own row over several groups: its number, and coefficients by group."""

    number: int
    row: Row
    terms: dict[int, fmpq]

    @property
    def ratio(self) -> bool:
        """Whether the row compares two groups."""
        signs = sorted(a > 0 for a in self.terms.values())
        return signs == [False, True] and self.row.offset == 0

    @property
    def logarithmic(self) -> bool:
        """Whether the row is convex in the logarithms of the scales: a ratio, or a sum bounded from above."""
        return self.ratio or (not self.row.equal and all(a > 0 for a in self.terms.values()))


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
    """

    noise: str
    neighbours: str
    order: float
    weights: Array

    def __post_init__(self) -> None:
        self.check_rows(self.weights)
        if not ((self.weights > 0).all() and 0 < self.order <= 100):
            raise DesignError("weights: must be positive, of a loss of order p above 0 and at most 100")
        for asked in self.privacy:
            if asked.noise != self.noise or asked.sensitivities.shape != self.weights.shape:
                raise DesignError("privacy: must be of the noise and the numbers that the scales are of")
        if self.order < 1 and not self.logarithmic:
            label = next(one.row.label for one in self.coupled if not one.logarithmic)
            remedy = "mixes signs or is a sum from below, which a loss of order p below 1 does not allow: state ratios, equal scales, limits, or sums from above"
            raise DesignError(f"{label!r}: {remedy}")

    @property
    def exponent(self) -> int:
        """m of the budgets: 2 for Gaussian noise, 1 for Laplace noise."""
        return int(self.privacy[0].exponent)

    @property
    def count(self) -> int:
        """Number of groups."""
        return int(self.member.max()) + 1

    @property
    def width(self) -> int:
        """Number of scales."""
        return len(self.weights)

    def column(self, j: int) -> str:
        """Return the name of a scale."""
        return f"{'sigma' if self.noise == 'gaussian' else 'beta'}[{j}]"

    def meaning(self, asked: Any) -> str:
        square, scale = "^2" if self.exponent == 2 else "", self.column(0)[:-3]
        most, who = ("|v_i|", f" where {asked.bounds}") if asked.bounds else ("λ_i", ", λ the sensitivities")
        return f"Σ_i ({most}/{scale}[i]){square} <= {asked.budget:.6g}{who}"

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
    def reduced(self) -> tuple[list[fmpq], list[fmpq | None], list[Coupled]]:
        """Lower and upper limits of each group's scale, None without a limit, and the coupled rows."""
        low, high = [ZERO] * self.count, list[fmpq | None]([None] * self.count)
        coupled, member = list[Coupled](), self.member.tolist()

        def refuted(rows: Iterable[Row]) -> InfeasibleError:
            return contradicted("scales meet", dict.fromkeys(row.label for row in rows), self.curved)

        for number, row in enumerate(self.rows):
            terms: dict[int, fmpq] = {}
            for j, a in row.terms:
                terms[member[j]] = terms.get(member[j], ZERO) + a
            terms = {g: a for g, a in terms.items() if a}
            if len(terms) > 1:
                coupled.append(Coupled(number, row, terms))
            elif not terms and (row.offset > 0 or (row.equal and row.offset)):
                raise refuted([row])
            for g, a in terms.items() if len(terms) == 1 else ():
                limit = -row.offset / a
                if a < 0 or row.equal:
                    low[g] = max(low[g], limit)
                if a > 0 or row.equal:
                    before = high[g]
                    high[g] = limit if before is None else min(before, limit)
        for g, (least, most) in enumerate(zip(low, high)):
            if most is not None and least > most:
                raise refuted(row for row in self.rows if any(member[j] == g for j, _ in row.terms))
        return low, high, coupled

    def limited(self, groups: Array) -> list[int]:
        """Return the own rows that limit one group and are active at these scales, in doubles."""
        scales = groups[self.member]
        sides, size = self.matrix @ scales + self.offsets, abs(self.matrix) @ scales + abs(self.offsets)
        several = {one.number for one in self.coupled}
        return [n for n in np.flatnonzero(np.abs(sides) <= 1e-6 * size).tolist() if n not in several]

    @property
    def coupled(self) -> list[Coupled]:
        """Rows over several groups."""
        return self.reduced[2]

    @cached_property
    def coupling(self) -> tuple[Array, Array, Flags, Flags]:
        """Coupled rows in doubles: coefficients of the groups, constants, which rows are equalities, and which are in logarithms."""
        matrix, rows = np.zeros((len(self.coupled), self.count)), self.coupled
        for k, one in enumerate(rows):
            matrix[k, [*one.terms]] = [*map(float, one.terms.values())]
        offsets = np.array([float(one.row.offset) for one in rows])
        equal = np.array([one.row.equal for one in rows], dtype=bool)
        return matrix, offsets, equal, np.array([self.logarithmic and one.ratio for one in rows], dtype=bool)

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """The limits in doubles, rounded inward."""
        low = [round_up(fraction(v)) for v in self.reduced[0]]
        high = [np.inf if v is None else round_down(fraction(v)) for v in self.reduced[1]]
        return np.array(low), np.maximum(np.array(high), np.where(np.isfinite(high), low, 0.0))

    @cached_property
    def logarithmic(self) -> bool:
        """Whether the problem is convex in the logarithms of the scales."""
        return all(one.logarithmic for one in self.coupled)

    def grouped(self, values: Array) -> Array:
        """Return sums over the members of each group."""
        return np.bincount(self.member, weights=values, minlength=self.count).astype(float)


_APART = (1e-10, 1e-7, 1e-4)
"""Relative distances from a minimum in doubles at which ends a and b are tried, in this order."""


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Multipliers that prove a lower bound.

    Parameters
    ----------
    multipliers : ndarray, one entry a requirement
        y ≥ 0, the multipliers of the budgets.
    rows : ndarray, optional
        ν, the multipliers of rows over several scales.
    prices : ndarray, shape (requirements, 3), optional
        Under several bounds: the prices of a changed number, of L₁ and of L₂², which bound the budget of the worst change.
    mixes, shares : ndarray, shape (requirements, K), optional
        Under several bounds: profiles of mixes of changes, and how often each number changes in them.
    """

    multipliers: Array
    rows: Array | None = None
    prices: Array | None = None
    mixes: Array | None = None
    shares: Array | None = None

    def on_rows(self, asked: DeclaredScales) -> Array:
        """Return the multipliers of the coupled rows; at least 0 for an inequality."""
        return np.zeros(len(asked.coupled)) if self.rows is None else self.rows

    def profiles(self, asked: Sequence[ScalesPrivacy]) -> list[Array]:
        """Return the profile of each requirement: the sensitivities, or under several bounds a mix."""
        return [
            one.sensitivities if self.mixes is None or changes_within(one) is None else self.mixes[k]
            for k, one in enumerate(asked)
        ]


def moment(noise: str, order: float) -> arb:
    """Return E|T|^p at scale 1, in a ball."""
    p = arb(order)
    if noise == "laplace":
        return (p + 1).gamma()
    return arb(2) ** (p / 2) * ((p + 1) / 2).gamma() / arb.pi().sqrt()


def ball_power(s: fmpq, exponent: float) -> arb:
    """Return s^p in a ball, s ≥ 0."""
    if exponent == int(exponent):
        return arb(s) ** int(exponent)
    return arb(s) ** arb(exponent) if s else arb(0)


def cost_above(noise: str, order: float, weights: Array | None, scales: Array) -> Fraction:
    r"""Return :math:`\sum_i w_i E|T_i|^p`, rounded up."""
    held = [1.0] * len(scales) if weights is None else weights.tolist()
    with ctx.workprec(_DIGITS):
        terms = zip(map(rational, held), map(rational, scales.tolist()))
        total = moment(noise, order) * sum((w * ball_power(s, order) for w, s in terms), arb(0))
        return fraction(total.upper().fmpq())


class Lagrangian:
    """The functions φ of all groups at these multipliers, exactly; without costs W is 0.

    Raises
    ------
    ResultFormatError
        The multipliers prove nothing.
    """

    def __init__(self, asked: DeclaredScales, found: Multipliers, *, costs: bool = True) -> None:
        rows, profiles = found.on_rows(asked), found.profiles(asked.privacy)
        fits = found.multipliers.shape == (len(asked.privacy),) and rows.shape == (len(asked.coupled),)
        if not fits or any(profile.shape != asked.weights.shape for profile in profiles):
            raise ResultFormatError("multipliers do not fit the rows")
        if (found.multipliers < 0).any() or (rows[~asked.coupling[2]] < 0).any():
            raise ResultFormatError("a multiplier of an inequality is negative")
        self.asked, members, self.constant = asked, asked.member.tolist(), arb(0)
        self.weight, self.decay, self.slope, self.log = ([ZERO] * asked.count for _ in range(4))
        self.unit = moment(asked.noise, asked.order) if costs else arb(0)
        for g, w in zip(members, asked.weights.tolist()):
            self.weight[g] += rational(w)
        for asks, y, profile in zip(asked.privacy, map(rational, found.multipliers.tolist()), profiles):
            self.constant -= arb(y * rational(asks.most))
            for g, v in zip(members, profile.tolist()):
                if v and y:
                    self.decay[g] += y * rational(v) ** asked.exponent
        for one, nu in zip(asked.coupled, map(rational, rows.tolist())):
            if asked.logarithmic and one.ratio:
                (g, a), (h, b) = sorted(one.terms.items(), key=lambda term: term[1] < 0)
                self.log[g], self.log[h] = self.log[g] + nu, self.log[h] - nu
                self.constant += arb(nu) * (arb(a) / arb(-b)).log()
                continue
            self.constant += arb(nu * one.row.offset)
            for g, a in one.terms.items():
                self.slope[g] += nu * a
        if asked.logarithmic and min(self.slope) < 0:
            raise ResultFormatError("multipliers leave a function that is not convex")

    @cached_property
    def _doubles(self) -> tuple[Array, ...]:
        """Logarithms of W and of A, and d and c, in doubles."""
        weight, decay = (
            np.array([float(arb(v).log()) if v > 0 else -np.inf for v in values])
            for values in ([self.unit * w for w in self.weight], self.decay)
        )
        return weight, decay, *(np.array(list(map(float, values))) for values in (self.slope, self.log))

    def terms(self, logs: Array) -> tuple[Array, ...]:
        """Return W s^p, A/s^m, d s and c at these logarithms of scales, in doubles."""
        weight, decay, slope, log = self._doubles
        with np.errstate(over="ignore", invalid="ignore"):
            rise = np.exp(weight + self.asked.order * logs)
            fall = np.where(decay > -np.inf, np.exp(decay - self.asked.exponent * logs), 0.0)
            return rise, fall, np.where(slope != 0, slope * np.exp(logs), 0.0), log

    def slopes(self, scales: Array) -> Array:
        """Return the derivatives of φ at these scales, in doubles; 0 where a scale is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rise, fall, linear, log = self.terms(np.log(scales))
            slopes = (self.asked.order * rise - self.asked.exponent * fall + linear + log) / scales
            return np.where(scales > 0, slopes, 0.0)

    def minimisers(self) -> Array:
        """Return where the functions are least within the limits, in doubles."""
        p, m, (weight, decay, slope, log) = self.asked.order, self.asked.exponent, self._doubles
        with np.errstate(invalid="ignore"):
            logs = (math.log(m / p) + decay - weight) / (p + m)
        if slope.any() or log.any():
            low, high = np.full((2, len(logs)), [[-700.0], [700.0]])
            for _ in range(64):
                middle = (low + high) / 2
                rise, fall, linear, log = self.terms(middle)
                falls = p * rise + linear + log < m * fall
                low, high = np.where(falls, middle, low), np.where(falls, high, middle)
            logs = (low + high) / 2
        return np.clip(np.exp(logs), *self.asked.limits)

    def least(self, most: float) -> arb:
        """Return a ball whose lower end is below the least cost of scales that cost at most `most`; not finite where nothing is proved."""
        asked, total, (low, high, _) = self.asked, self.constant, self.asked.reduced
        for g, s in enumerate(self.minimisers().tolist()):
            terms, end = (self.unit * arb(self.weight[g]), self.decay[g], self.slope[g], self.log[g]), high[g]
            if (
                self.slope[g] < 0 and self.unit > 0 and most < math.inf
            ):  # no single scale costs more than `most`
                ceiling = max(((arb(most) / terms[0]) ** (1 / arb(asked.order))).upper().fmpq(), low[g])
                end = ceiling if end is None else min(end, ceiling)
            total += _least(asked.order, asked.exponent, terms, low[g], end, s)
        return total


def lower_bound(
    asked: DeclaredScales, found: Multipliers, *, costs: bool = True, most: float = math.inf
) -> fmpq:
    """Return the lower bound that the multipliers prove, in rationals, for scales that cost at most `most`.

    Raises
    ------
    ResultFormatError
        They prove nothing.
    """
    with ctx.workprec(_DIGITS):
        total = Lagrangian(asked, found, costs=costs).least(most)
        ResultFormatError.when(not total.is_finite(), "multipliers prove nothing")
        return total.lower().fmpq()


def _least(
    p: float, m: int, terms: tuple[arb, fmpq, fmpq, fmpq], low: fmpq, high: fmpq | None, near: float
) -> arb:
    """Return a ball whose lower end is below the least of φ within the limits; not finite where nothing is proved."""
    (weight, decay, slope, log), order = terms, arb(p)

    def parts(s: fmpq) -> tuple[arb, arb]:
        """Return φ and σ."""
        rise, fall = weight * ball_power(s, p), arb(decay / s**m) if decay else arb(0)
        linear = slope * s
        value = rise + fall + arb(linear) + (arb(log) * arb(s).log() if log else 0)
        return value, order * rise - m * fall + arb(linear + log)

    if not (decay or log) and slope >= 0:
        return parts(low)[0]
    if not near < math.inf:  # a large scale costs nothing
        return arb(0) if slope >= 0 and not log else arb("nan")
    start = rational(near)
    for apart in map(rational, _APART):
        a, b = max(low, start * (1 - apart)), max(low, start * (1 + apart))
        b = b if high is None else min(b, high)
        a = min(a, b)
        if not a:
            break
        value, rise = parts(b)
        if (a == low or parts(a)[1] <= 0) and (b == high or rise >= 0):
            return value - rise.max(arb(0)) * arb(b / a - 1)
    return arb("nan")
