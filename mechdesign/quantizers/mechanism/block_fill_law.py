r"""The exact law of a block fill: given floors, the whole optimal mechanism in rationals.

Floors a, a ratio ρ and the outputs determine the mechanism (`mechdesign.quantizers.optimal.floors` explains it): the weights
:math:`(\rho - 1) a_i` lie side by side on a line, and the row at x adds to the floors what a block of length
:math:`1 - \sum a` covers, the block's place being fixed by :math:`\sum_i B_i p(x, i) = x`. Everything is
piecewise affine with rational breakpoints, so with rational a and ρ the constraints

.. math:: a_i \le p(x, i) \le \rho a_i, \qquad \sum_i p(x, i) = 1, \qquad \sum_i B_i p(x, i) = x

hold exactly, for every x. A row differs from floors and caps in two entries only, so the law is stored by its
floors and rows are made when asked for. Knots closer than 2⁻⁴⁰ of the range are merged (interpolating between
rows that satisfy the constraints keeps them satisfied), so that knots stay distinct as doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.mechanism.exact_law import ExactLaw

__all__ = ["BlockFillLaw"]


@serializable("block-fill-law")
@dataclass(frozen=True)
class BlockFillLaw(ExactLaw):
    r"""Exact block fill of rational floors.

    Parameters
    ----------
    bins : tuple of Fraction, length m
        Doubles are rationals: ``Fraction(b)``.
    floors : tuple of Fraction, length m
        a ≥ 0.
    rho : Fraction
        A proved rational lower bound of :math:`e^\varepsilon`.
    lower, upper : Fraction
        The input range.

    Raises
    ------
    InfeasibleError
        The floors do not reach every mean of the range exactly.

    Examples
    --------
    >>> F = Fraction
    >>> law = BlockFillLaw((F(-2), F(0), F(2)), (F(1, 5),) * 3, F(3), F(-1, 2), F(1, 2))
    >>> [str(p) for p in law.row(0, 0)]
    ['9/20', '7/20', '1/5']
    >>> law.ratio() <= 3
    True
    """

    bins: tuple[Fraction, ...]
    floors: tuple[Fraction, ...]
    rho: Fraction
    lower: Fraction
    upper: Fraction

    def __post_init__(self) -> None:
        m, a, B = len(self.bins), self.floors, self.bins
        w = [(self.rho - 1) * v for v in a]
        W = 1 - sum(a, Fraction(0))
        S, phi = [Fraction(0)], [Fraction(0)]
        for weight, b in zip(w, B):
            S.append(S[-1] + weight)
            phi.append(phi[-1] + weight * b)
        if W < 0 or S[m] < W or min(a) < 0:
            raise InfeasibleError(
                "the floors cannot be completed to probabilities: need a >= 0 and 1/rho <= sum(a) <= 1"
            )
        base = sum((v * b for v, b in zip(a, B)), Fraction(0))
        last = S[m] - W
        events = sorted([(S[k] - W, 0) for k in range(1, m)] + [(S[k], 1) for k in range(1, m)])
        i = j = 0
        start = Fraction(0)
        places: list[tuple[int, int, Fraction]] = []
        knots: list[Fraction] = []
        nearest = (self.upper - self.lower) / (1 << 40)

        def mean(s: Fraction, i: int, j: int) -> Fraction:
            return base + phi[j] + (s + W - S[j]) * B[j] - phi[i] - (s - S[i]) * B[i]

        reach: list[Fraction] = []
        for position, kind in [*events, (last, 2)]:
            stop = min(position, last)
            if stop > start:
                x_start, x_stop = mean(start, i, j), mean(stop, i, j)
                reach += [x_start, x_stop]
                if x_stop > self.lower and x_start < self.upper and x_stop > x_start:
                    slope = (stop - start) / (x_stop - x_start)
                    for x in (max(x_start, self.lower), min(x_stop, self.upper)):
                        if x == self.upper and knots and x - knots[-1] < nearest and len(knots) > 1:
                            knots.pop()
                            places.pop()
                        if not knots or x - knots[-1] >= nearest:
                            knots.append(x)
                            places.append((i, j, start + (x - x_start) * slope))
                start = stop
            if position >= last:
                break
            i, j = (i, j + 1) if kind == 0 else (i + 1, j)
        if len(knots) < 2 or knots[0] != self.lower or knots[-1] != self.upper:
            span = f"[{float(min(reach)):.17g}, {float(max(reach)):.17g}]" if reach else "nothing"
            raise InfeasibleError(
                f"the floors reach the means {span}, not all of "
                f"[{float(self.lower):.17g}, {float(self.upper):.17g}]"
            )
        object.__setattr__(self, "knots", tuple(knots))
        object.__setattr__(self, "_places", tuple(places))
        object.__setattr__(self, "_sums", tuple(S))
        object.__setattr__(self, "_block", W)
        object.__setattr__(self, "_caps", tuple(v + weight for v, weight in zip(a, w)))

    def _fractional(self, knot: int) -> tuple[int, int, Fraction, Fraction]:
        """The two outputs at the block's ends at a knot, with their probabilities."""
        i, j, s = getattr(self, "_places")[knot]  # noqa: B009
        S: tuple[Fraction, ...] = getattr(self, "_sums")  # noqa: B009
        W: Fraction = getattr(self, "_block")  # noqa: B009
        return i, j, self.floors[i] + S[i + 1] - s, self.floors[j] + s + W - S[j]

    def row(self, segment: int, end: int) -> list[Fraction]:
        i, j, low, high = self._fractional(segment + end)
        a, caps = self.floors, getattr(self, "_caps")  # noqa: B009
        return [*a[:i], low, *caps[i + 1 : j], high, *a[j + 1 :]]

    def extremes(self) -> tuple[list[Fraction], list[Fraction]]:
        m, a = len(self.bins), self.floors
        caps: tuple[Fraction, ...] = getattr(self, "_caps")  # noqa: B009
        low: list[Fraction | None] = [None] * m
        high: list[Fraction | None] = [None] * m
        # An output is at its floor or at its cap on whole runs; the runs' ends move one way along the segments.
        at_floor, at_cap = [False] * m, [False] * m
        spans = set()
        for k in range(len(self.knots)):
            i, j, p, q = self._fractional(k)
            spans.add((i, j))
            for index, value in ((i, p), (j, q)):
                known = low[index]
                low[index] = value if known is None else min(known, value)
                known = high[index]
                high[index] = value if known is None else max(known, value)
        left, right = min(j for _, j in spans), max(i for i, _ in spans)
        for k in range(m):
            at_floor[k] = k > left or k < right
        for i, j in spans:
            at_cap[i + 1 : j] = [True] * max(j - i - 1, 0)
        lows, highs = [], []
        for k in range(m):
            values = [v for v in (low[k], high[k]) if v is not None]
            values += [a[k]] if at_floor[k] else []
            values += [caps[k]] if at_cap[k] else []
            lows.append(min(values))
            highs.append(max(values))
        return lows, highs

    def tables(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        a = np.array([float(v) for v in self.floors])
        caps = np.array([float(v) for v in getattr(self, "_caps")])  # noqa: B009
        table = np.tile(a, (len(self.knots), 1))
        for k, row in enumerate(table):
            i, j, low, high = self._fractional(k)
            row[i + 1 : j] = caps[i + 1 : j]
            row[i], row[j] = float(low), float(high)
        return table[:-1], table[1:]
