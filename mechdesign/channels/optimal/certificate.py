r"""An exact certificate that a channel is α-d-private, and how far from optimal it can be.

Everything is integers and fractions; no solver's word and no floating point enters. The doubles of the
design (α, distances, prior, losses) are taken as the rationals they are, and :math:`e^{αd}` is replaced by a
proved rational bound on the side that makes the claim harder.

**Privacy.** For all pairs x ≠ x' and reports y, :math:`w[x][y] \le ρ(x,x')\, w[x'][y]` with a rational
:math:`ρ \le e^{αd(x,x')}`; all rows have the same integer total.

**Optimality.** For multipliers :math:`λ \ge 0` of the privacy constraints, any private channel C has

.. math:: \sum_{x,y} π_x ℓ(x,y) C[x,y] \ge \sum_x \min_y \Big( π_x ℓ(x,y)
   + \sum_{x'} λ_{x,x',y} - \sum_{x'} e^{αd(x,x')} λ_{x',x,y} \Big),

because the terms added to the left are not positive and rows of C are averages. Any :math:`λ \ge 0` gives a
valid bound; the solver's duals give a good one. Equalities :math:`\sum_y C[x,y] h_j(y) = g_j(x)` add terms
with multipliers of either sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mechdesign.channels.optimal.repair import Growth
from mechdesign.evidence.serialize import serializable
from mechdesign.typing import Array

__all__ = ["ChannelCertificate"]


_FIXED = 256  # bits of the fixed point in which the dual bound is accumulated


def _scaled(values: Iterable[float]) -> tuple[list[int], int]:
    """Doubles as integers over one common power of two."""
    pairs = [float(v).as_integer_ratio() for v in values]
    common = max(d for _, d in pairs)
    return [n * (common // d) for n, d in pairs], common


@serializable("channel-certificate")
@dataclass(frozen=True, eq=False)
class ChannelCertificate:
    """Exact evidence for one channel.

    Parameters
    ----------
    weights : tuple of tuples of int
        Row x, report y: the probability is ``weights[x][y] / total``.
    distances : array, shape (n, n)
    alpha : float
        Privacy per unit of distance that is claimed.
    prior : array, shape (n,)
        Taken relative to its exact sum.
    loss : array, shape (n, k)
    triples : array of int, shape (t, 3)
        (x, x', y) of the privacy constraints with a multiplier.
    multipliers : array, shape (t,)
        λ ≥ 0.
    inputs, reports, free : arrays, optional
        The equalities' g (n, j), h (k, j) and their multipliers (n, j).

    Examples
    --------
    >>> import numpy as np
    >>> third = ChannelCertificate(((2, 1), (1, 2)), np.array([[0.0, 1.0], [1.0, 0.0]]), 0.7, np.ones(2) / 2,
    ...                            np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros((0, 3), int), np.zeros(0))
    >>> third.verify(), third.value
    (True, Fraction(1, 3))
    >>> third.worst_ratio
    Fraction(2, 1)
    """

    weights: tuple[tuple[int, ...], ...]
    distances: Array
    alpha: float
    prior: Array
    loss: Array
    triples: NDArray[np.int64]
    multipliers: Array
    inputs: Array | None = None
    reports: Array | None = None
    free: Array | None = None

    @cached_property
    def _rates(self) -> Growth:
        return Growth(self.alpha, self.distances)

    @cached_property
    def total(self) -> int:
        """Common total of the rows."""
        return sum(self.weights[0])

    def first_violation(self) -> str | None:
        """The first broken requirement in words, None where all hold; exact."""
        n, k = len(self.weights), len(self.weights[0])
        if self.distances.shape != (n, n) or self.loss.shape != (n, k) or self.prior.shape != (n,):
            return "shapes do not agree"
        if not all(np.isfinite(a).all() for a in (self.distances, self.loss, self.prior, self.multipliers)):
            return "an entry is not finite"
        if (self.prior < 0).any() or (self.multipliers < 0).any() or not self.alpha > 0:
            return "the prior, the multipliers and alpha must not be negative"
        for x, row in enumerate(self.weights):
            if len(row) != k or min(row) < 0 or sum(row) != self.total or self.total <= 0:
                return f"row {x} is not a distribution over {self.total}"
        shift, lower, distances = self._rates.shift, self._rates.lower, self.distances.tolist()
        shifted = [[w << shift for w in row] for row in self.weights]
        for x in range(n):
            left = shifted[x]
            for other in range(n):
                if other == x:
                    continue
                rate = lower[distances[x][other]]
                for y, (a, b) in enumerate(zip(left, self.weights[other])):
                    if a > rate * b:
                        return f"privacy is broken for items {x}, {other} at report {y}"
        return None

    def verify(self) -> bool:
        """Whether every requirement holds in exact arithmetic, for all ordered pairs and reports."""
        return self.first_violation() is None

    @cached_property
    def worst_ratio(self) -> Fraction:
        """The largest quotient of two probabilities of one report, exactly: the pure local-DP e^ε."""
        worst = Fraction(1)
        for column in zip(*self.weights):
            high, low = max(column), min(column)
            if high and not low:
                raise ZeroDivisionError("a report is possible for some items only")
            if high:
                worst = max(worst, Fraction(high, low))
        return worst

    @cached_property
    def _prior(self) -> tuple[list[int], int]:
        counts, _ = _scaled(self.prior.tolist())
        return counts, sum(counts)

    @cached_property
    def value(self) -> Fraction:
        """Expected loss of the channel, exactly."""
        counts, mass = self._prior
        losses, scale = _scaled(self.loss.ravel().tolist())
        k = self.loss.shape[1]
        acc = sum(
            count * sum(w * loss for w, loss in zip(row, losses[x * k : (x + 1) * k]))
            for x, (count, row) in enumerate(zip(counts, self.weights))
        )
        return Fraction(acc, mass * scale * self.total)

    @cached_property
    def lower_bound(self) -> Fraction:
        """Proved: no channel that meets the constraints has a smaller expected loss."""
        counts, mass = self._prior
        n, k = self.loss.shape
        losses, scale = _scaled(self.loss.ravel().tolist())
        unit = 1 << _FIXED
        reduced = [
            [(counts[x] * losses[x * k + y] * unit) // (mass * scale) for y in range(k)] for x in range(n)
        ]
        upper, shift = self._rates.upper, self._rates.shift
        for (x, other, y), multiplier in zip(self.triples.tolist(), self.multipliers.tolist()):
            numerator, denominator = multiplier.as_integer_ratio()
            held = (numerator * unit) // denominator  # the multiplier that is used; any will do
            reduced[x][y] += held
            rate = upper[float(self.distances[x, other])]
            reduced[other][y] -= -((-rate * held) >> shift)
        offset = 0
        if self.free is not None and self.inputs is not None and self.reports is not None:
            offset = self._add_equalities(reduced, unit)
        return Fraction(offset + sum(min(row) for row in reduced), unit)

    def _add_equalities(self, reduced: list[list[int]], unit: int) -> int:
        assert self.free is not None and self.inputs is not None and self.reports is not None
        n, width = self.free.shape
        offset = 0
        free, fs = _scaled(self.free.ravel().tolist())
        given, gs = _scaled(self.inputs.ravel().tolist())
        wanted, ws = _scaled(self.reports.ravel().tolist())
        for x in range(n):
            for j in range(width):
                nu = free[x * width + j]
                if nu == 0:
                    continue
                offset += (nu * given[x * width + j] * unit) // (fs * gs)
                for y in range(len(reduced[x])):
                    reduced[x][y] += (-nu * wanted[y * width + j] * unit) // (fs * ws)
        return offset

    @cached_property
    def bias(self) -> Fraction:
        """Largest violation of the equalities, exactly; 0 where there are none."""
        if self.inputs is None or self.reports is None:
            return Fraction(0)
        worst = Fraction(0)
        given = [[Fraction(v) for v in row] for row in self.inputs.tolist()]
        wanted = [[Fraction(v) for v in column] for column in self.reports.T.tolist()]
        for row, target in zip(self.weights, given):
            for column, goal in zip(wanted, target):
                mean = sum((w * h for w, h in zip(row, column)), Fraction(0)) / self.total
                worst = max(worst, abs(mean - goal))
        return worst

    @property
    def gap(self) -> float:
        """Relative distance between value and lower bound, rounded up."""
        gap = (self.value - self.lower_bound) / self.value if self.value else self.value - self.lower_bound
        return math.nextafter(float(gap), math.inf)
