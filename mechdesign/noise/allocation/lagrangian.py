r"""The lower bound of a problem on scales: its Lagrangian separates, and one convex function of one number is left for each group.

For multipliers y ≥ 0 of the budgets and :math:`\nu` of the coupled rows, the loss is at least

.. math:: \sum_g \min_s \varphi_g(s) - \sum_r y_r B_r + \sum \nu k, \qquad
          \varphi(s) = W s^p + K s^{-m} + d s + c \log s ,

with K the sum of :math:`y_r \lambda^m` over budgets and members, d that of :math:`\nu a` over sums and mixed rows, c that of :math:`\pm\nu` over ratios, which are
taken as :math:`\log s_g - \log s_h + \log(a/b)`. :math:`\varphi` is convex in log s if d ≥ 0, and in s if p ≥ 1 and c = 0. With
:math:`\sigma(s) = p W s^p - m K s^{-m} + d s + c`, its slope in log s, and a ≤ b such that :math:`\sigma(a) \le 0 \le \sigma(b)`, or a and b are the ends of the limits,

.. math:: \min \varphi \ge \varphi(b) - \sigma(b) (b/a - 1),

as the tangent at b, in either variable, loses no more on the way to a. a and b are put 10⁻¹⁰ around the minimum, so that hardly anything is lost, and everything
is computed in balls. No multiplier needs to be good. At W = 0 a positive bound proves that no scales meet the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from flint import arb, ctx, fmpq

from mechdesign.errors import ResultFormatError
from mechdesign.evidence.vipr import rational
from mechdesign.model.exactly import fraction
from mechdesign.model.scales import absolute_moment
from mechdesign.noise.allocation.declared import ZERO, DeclaredScales
from mechdesign.typing import Array

_BITS = 192
_APART = (1e-10, 1e-7, 1e-4)
"""How far around a minimum in doubles its ends are looked for."""


@dataclass(frozen=True, eq=False)
class Multipliers:
    """What a lower bound follows from.

    Parameters
    ----------
    budgets : array, one entry a requirement
        y ≥ 0.
    rows : array, one entry a coupled row
        ν, of an inequality ≥ 0.
    profiles : array, shape (requirements, K)
        λ: the sensitivities, or a mix of the changes within several bounds.
    """

    budgets: Array
    rows: Array
    profiles: Array


@dataclass(frozen=True, eq=False)
class Lagrangian:
    """The functions φ of all groups in doubles, W and K by their logarithms."""

    order: float
    spend: int
    weight: Array
    spent: Array
    slope: Array
    log: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, asked: DeclaredScales, found: Multipliers) -> Lagrangian:
        """The Lagrangian at these multipliers."""
        slope, log = np.zeros((2, asked.count))
        for row, multiplier in zip(asked.coupled, found.rows.tolist()):
            for g, a in row.terms.items():
                if asked.logarithmic and row.ratio:
                    log[g] += multiplier if a > 0 else -multiplier
                else:
                    slope[g] += multiplier * float(a)
        spent = np.full(asked.count, -np.inf)
        with np.errstate(divide="ignore"):
            parts = np.log(found.budgets)[:, None] + asked.spend * np.log(found.profiles)
            np.logaddexp.at(spent, asked.member, np.logaddexp.reduce(parts, axis=0))
        weight = np.log(absolute_moment(asked.noise, asked.order) * asked.grouped(asked.weights))
        return cls(asked.order, asked.spend, weight, spent, slope, log, *asked.limits)

    def terms(self, logs: Array) -> tuple[Array, ...]:
        """W s^p, K/s^m, d s and c at these logarithms of scales."""
        with np.errstate(over="ignore", invalid="ignore"):
            rise = np.exp(self.weight + self.order * logs)
            fall = np.where(self.spent > -np.inf, np.exp(self.spent - self.spend * logs), 0.0)
            return rise, fall, np.where(self.slope != 0, self.slope * np.exp(logs), 0.0), self.log

    def slopes(self, scales: Array) -> Array:
        """The derivatives of φ at these scales, where they are positive."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rise, fall, linear, log = self.terms(np.log(scales))
            return np.where(scales > 0, (self.order * rise - self.spend * fall + linear + log) / scales, 0.0)

    def minimisers(self) -> Array:
        """Where the minima are, within the limits."""
        p, m = self.order, self.spend
        with np.errstate(invalid="ignore"):
            logs = (math.log(m / p) + self.spent - self.weight) / (p + m)
        if self.slope.any() or self.log.any():
            low, high = np.full((2, len(logs)), [[-700.0], [700.0]])
            for _ in range(64):
                middle = (low + high) / 2
                rise, fall, linear, log = self.terms(middle)
                falls = p * rise + linear + log < m * fall
                low, high = np.where(falls, middle, low), np.where(falls, high, middle)
            logs = (low + high) / 2
        return np.minimum(np.maximum(np.exp(logs), self.low), self.high)


def moment(noise: str, order: float) -> arb:
    """Return E|T|^p at scale 1, in a ball."""
    p = arb(order)
    if noise == "laplace":
        return (p + 1).gamma()
    return arb(2) ** (p / 2) * ((p + 1) / 2).gamma() / arb.pi().sqrt()


def power(s: fmpq, exponent: float) -> arb:
    """Return s^p in a ball, s ≥ 0."""
    if exponent == int(exponent):
        return arb(s) ** int(exponent)
    return arb(s) ** arb(exponent) if s else arb(0)


@contextmanager
def _precise() -> Iterator[None]:
    before, ctx.prec = ctx.prec, _BITS
    try:
        yield
    finally:
        ctx.prec = before


def cost_above(noise: str, order: float, weights: Array | None, scales: Array) -> Fraction:
    r"""Return :math:`\sum_i w_i E|T_i|^p` of noise, from above."""
    held = [1.0] * len(scales) if weights is None else weights.tolist()
    with _precise():
        terms = zip(map(rational, held), map(rational, scales.tolist()))
        total = moment(noise, order) * sum((w * power(s, order) for w, s in terms), arb(0))
        return fraction(total.upper().fmpq())


def lower_bound(
    asked: DeclaredScales, found: Multipliers, *, costs: bool = True, most: float = math.inf
) -> fmpq:
    """Return what the multipliers prove, in rationals; of scales that cost at most `most` if that is less.

    Raises
    ------
    ResultFormatError
        They prove nothing.
    """
    fits = found.budgets.shape == (len(asked.privacy),) and found.rows.shape == (len(asked.coupled),)
    if not fits or found.profiles.shape != (len(asked.privacy), len(asked.weights)):
        raise ResultFormatError("multipliers do not fit the rows")
    free = np.array([row.equal for row in asked.coupled], dtype=bool)
    if (found.budgets < 0).any() or (found.rows[~free] < 0).any():
        raise ResultFormatError("a multiplier of an inequality is negative")
    with _precise():
        total = _total(asked, found, costs, most)
        if not total.is_finite():
            raise ResultFormatError("multipliers prove nothing")
        return total.lower().fmpq()


def _total(asked: DeclaredScales, found: Multipliers, costs: bool, most: float) -> arb:
    start = Lagrangian.of(asked, found)
    high = list(asked.high)
    if not costs:
        start = replace(start, weight=np.full(asked.count, -np.inf))
    weights, spent, slope, log = ([ZERO] * asked.count for _ in range(4))
    members = asked.member.tolist()
    for g, w in zip(members, asked.weights.tolist()):
        weights[g] += rational(w)
    total = arb(0)
    for asks, y, profile in zip(asked.privacy, found.budgets.tolist(), found.profiles.tolist()):
        multiplier = rational(y)
        total -= arb(multiplier * rational(asks.most))
        for g, v in zip(members, profile):
            if v and y:
                spent[g] += multiplier * rational(v) ** asks.spend
    for row, nu in zip(asked.coupled, map(rational, found.rows.tolist())):
        if asked.logarithmic and row.ratio:
            (g, a), (h, b) = sorted(row.terms.items(), key=lambda term: term[1] < 0)
            log[g], log[h] = log[g] + nu, log[h] - nu
            total += arb(nu) * (arb(a) / arb(-b)).log()
            continue
        total += arb(nu * row.offset)
        for g, a in row.terms.items():
            slope[g] += nu * a
    if asked.logarithmic and min(slope) < 0:
        raise ResultFormatError("multipliers leave a function that is not convex")
    unit = moment(asked.noise, asked.order) if costs else arb(0)
    for g, s in enumerate(start.minimisers().tolist()):
        terms = unit * arb(weights[g]), spent[g], slope[g], log[g]
        if slope[g] < 0 and costs and most < math.inf:  # no scale alone costs more than all
            ceiling = max(((arb(most) / terms[0]) ** (1 / arb(asked.order))).upper().fmpq(), asked.low[g])
            before = high[g]
            high[g] = ceiling if before is None else min(before, ceiling)
        total += _least(asked.order, asked.spend, terms, asked.low[g], high[g], s)
    return total


def _least(
    p: float, m: int, terms: tuple[arb, fmpq, fmpq, fmpq], low: fmpq, high: fmpq | None, near: float
) -> arb:
    """A ball whose lower end is below the least of φ within the limits; not finite where none is proved."""
    (weight, spent, slope, log), order = terms, arb(p)

    def parts(s: fmpq) -> tuple[arb, arb]:
        """φ and σ."""
        rise, fall = weight * power(s, p), arb(spent / s**m) if spent else arb(0)
        linear = slope * s
        value = rise + fall + arb(linear) + (arb(log) * arb(s).log() if log else 0)
        return value, order * rise - m * fall + arb(linear + log)

    if not (spent or log) and slope >= 0:
        return parts(low)[0]
    if not near < math.inf:  # nothing is charged for a large scale
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
