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
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.channels.optimal.repair import Growth
from mechdesign.channels.weights import integer_weights
from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import PROVED, OldCertificate, check_table
from mechdesign.evidence.rounding import round_down, round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import array, indices, non_negative, positive, settle
from mechdesign.typing import Array, Indices

__all__ = ["ChannelCertificate"]


_FIXED = 256  # bits of the fixed point in which the dual bound is accumulated, below 1 or the largest loss


def _scaled(values: Iterable[float]) -> tuple[list[int], int]:
    """Doubles as integers over one common power of two."""
    pairs = [float(v).as_integer_ratio() for v in values]
    common = max((d for _, d in pairs), default=1)
    return [n * (common // d) for n, d in pairs], common


@serializable("channel-certificate")
@dataclass(frozen=True, eq=False)
class ChannelCertificate(OldCertificate):
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
    value : float
        Claimed: the expected loss of the channel is at most this.
    lower_bound : float
        Claimed: no channel that meets the constraints has a smaller expected loss.
    bias : float
        Claimed: no equality is violated by more.

    Examples
    --------
    >>> import numpy as np
    >>> third = ChannelCertificate(((2, 1), (1, 2)), np.array([[0.0, 1.0], [1.0, 0.0]]), 0.7, np.ones(2) / 2,
    ...                            np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros((0, 3), int), np.zeros(0),
    ...                            value=0.34, lower_bound=0.0)
    >>> third.verify(), third.exact_value
    (True, Fraction(1, 3))
    >>> third.worst_ratio
    Fraction(2, 1)
    """

    weights: tuple[tuple[int, ...], ...]
    distances: Array
    alpha: float
    prior: Array
    loss: Array
    triples: Indices
    multipliers: Array
    inputs: Array | None = None
    reports: Array | None = None
    free: Array | None = None
    value: float = math.inf
    lower_bound: float = -math.inf
    bias: float = 0.0

    def __post_init__(self) -> None:
        weights = integer_weights(self.weights)
        n, k, t = len(weights), len(weights[0]), len(np.atleast_1d(self.multipliers))
        shapes = {"distances": (n, n), "prior": (n,), "loss": (n, k), "multipliers": (t,), "triples": (t, 3)}
        equalities: list[Any] = [self.inputs, self.reports, self.free]
        if any(part is not None for part in equalities):
            if any(np.ndim(part) != 2 for part in equalities):
                raise DesignError("inputs, reports, free: must be given together, as matrices")
            j = np.shape(equalities[2])[1]
            shapes |= {"inputs": (n, j), "reports": (k, j), "free": (n, j)}
        for name, shape in shapes.items():
            held = array(name, getattr(self, name), ndim=len(shape), empty=True)
            if held.shape != shape:
                raise DesignError.of(name, held.shape, f"must have shape {shape}")
            held.setflags(write=False)
            settle(self, **{name: held})
        if not (self.prior >= 0).all() or not self.prior.any():
            raise DesignError.of("prior", self.prior, "must be non-negative, and not all zero")
        triples = indices("triples", self.triples, max(n, k)) if t else np.zeros((0, 3), dtype=np.int64)
        indices("triples", np.append(triples[:, :2], 0), n)
        indices("triples", np.append(triples[:, 2], 0), k)
        settle(self, weights=weights, triples=triples, alpha=positive("alpha", self.alpha))
        settle(self, bias=non_negative("bias", self.bias))
        if self.inputs is None and self.bias:
            raise DesignError.of("bias", self.bias, "must be 0 where no reports are to be unbiased")

    @property
    def statement(self) -> Mapping[str, Any]:
        names = ("alpha", "distances", "prior", "loss", "inputs", "reports", "value", "lower_bound", "bias")
        return {name: getattr(self, name) for name in names}

    def claiming(self) -> ChannelCertificate:
        """The same with the tightest value, lower bound and bias that hold."""
        value, bias = round_up(self.exact_value), round_up(self.exact_bias)
        bound = round_down(self.exact_bound)
        claimed = copy(self)  # with the exact numbers, which do not depend on what is claimed
        settle(claimed, value=value, bias=bias, lower_bound=bound)
        return claimed

    @cached_property
    def _rates(self) -> Growth:
        return Growth(self.alpha)

    @cached_property
    def total(self) -> int:
        """Common total of the rows."""
        return sum(self.weights[0])

    def checks(self) -> pd.DataFrame:
        """Privacy for all ordered pairs and reports, equalities, value and lower bound, in exact arithmetic."""
        broken = self.broken()
        named = "" if broken is None else "; broken for items {}, {} at report {}".format(*broken)
        bound, slack = self.exact_bound, self._slack()
        slack = slack if broken else max(slack, 0.0)  # doubles err where a constraint is tight
        rows = [
            (f"α-d-privacy of all pairs at α = {self.alpha!r}{named}", slack, broken is None),
            (f"expected loss at most {self.value!r}", *_margin(self.exact_value, self.value)),
            (f"no private channel below {self.lower_bound!r}", *_margin(self.lower_bound, bound)),
        ]
        if self.inputs is not None:
            margin, held = _margin(self.exact_bias, self.bias)
            rows.append((f"equalities within {self.bias!r}", margin, held and self.bias <= self._rounding))
        return check_table([(claim, PROVED, margin, holds) for claim, margin, holds in rows])

    def broken(self) -> tuple[int, int, int] | None:
        """(x, x', y) of the first privacy constraint that does not hold, None where all do; exact.

        Constraints that doubles show to hold, by a margin far above what they round, need no integers.
        """
        shift, lower = self._rates.shift, self._rates.lower
        growth = (1 + self._rates.near(self.distances)) * (1 - 1e-12)
        try:
            floats = np.array([[w / self.total for w in row] for row in self.weights])
        except (OverflowError, ZeroDivisionError):
            floats = np.full(self.loss.shape, np.nan)
        for x, row in enumerate(self.weights):
            with np.errstate(invalid="ignore"):
                most = growth[x][:, None] * floats
                close = ~((floats[x] < most) & (most > 1e-290))
            close[x] = False
            close[:, [y for y, w in enumerate(row) if w == 0]] = False  # weights are not negative
            for other, y in np.argwhere(close).tolist():
                if row[y] << shift > lower(float(self.distances[x, other])) * self.weights[other][y]:
                    return x, other, y
        return None

    def _slack(self) -> float:
        """Least of αd minus the log-ratio over pairs and reports, in doubles: for the reader's eye."""
        total = self.total
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.array([[w / total for w in row] for row in self.weights]))
            gaps = [np.nanmax(row - logs, axis=1, initial=0.0) for row in logs]
        slack = self.alpha * self.distances - np.array(gaps)
        return float(slack[~np.eye(len(slack), dtype=bool)].min()) if len(slack) > 1 else 0.0

    @cached_property
    def worst_ratio(self) -> Fraction:
        """The largest quotient of two probabilities of one report, exactly: the pure local-DP e^ε.

        Raises
        ------
        DesignError
            Some report is possible for some items only: it is infinite.
        """
        used = [(max(column), min(column)) for column in zip(*self.weights) if max(column)]
        if not all(low for _, low in used):
            raise DesignError("weights: a report is possible for some items only; the ratio is infinite")
        return max(Fraction(high, low) for high, low in used)

    @cached_property
    def _prior(self) -> tuple[list[int], int]:
        counts, _ = _scaled(self.prior.tolist())
        return counts, sum(counts)

    @cached_property
    def exact_value(self) -> Fraction:
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
    def exact_bound(self) -> Fraction | float:
        """The lower bound that the multipliers prove; -inf where they are not all admissible."""
        if (self.multipliers < 0).any():
            return -math.inf
        counts, mass = self._prior
        n, k = self.loss.shape
        losses, scale = _scaled(self.loss.ravel().tolist())
        unit = 1 << (_FIXED + max(0, -math.frexp(float(np.abs(self.loss).max()))[1]))
        reduced = [
            [(counts[x] * losses[x * k + y] * unit) // (mass * scale) for y in range(k)] for x in range(n)
        ]
        upper, shift, distances = self._rates.upper, self._rates.shift, self.distances.tolist()
        for (x, other, y), multiplier in zip(self.triples.tolist(), self.multipliers.tolist()):
            numerator, denominator = multiplier.as_integer_ratio()
            held = (numerator * unit) // denominator  # the multiplier that is used; any will do
            reduced[x][y] += held
            reduced[other][y] -= -((-upper(distances[x][other]) * held) >> shift)
        return Fraction(self._offset(reduced, unit) + sum(min(row) for row in reduced), unit)

    def _offset(self, reduced: list[list[int]], unit: int) -> int:
        """Add the equalities' terms to the reduced costs; return their constant."""
        if self.free is None or self.inputs is None or self.reports is None:
            return 0
        width, offset = self.free.shape[1], 0
        free, fs = _scaled(self.free.ravel().tolist())
        given, gs = _scaled(self.inputs.ravel().tolist())
        wanted, ws = _scaled(self.reports.ravel().tolist())
        for at, nu in enumerate(free):
            if nu:
                row, j = reduced[at // width], at % width
                offset += (nu * given[at] * unit) // (fs * gs)
                for y in range(len(row)):
                    row[y] += (-nu * wanted[y * width + j] * unit) // (fs * ws)
        return offset

    @property
    def _rounding(self) -> float:
        """As much as a bias may be for what rounding leaves of equalities."""
        return 1e-6 * float(np.abs(self.reports).max(initial=0.0)) if self.reports is not None else 0.0

    @cached_property
    def exact_bias(self) -> Fraction:
        """Largest violation of the equalities, exactly; 0 where there are none."""
        worst = Fraction(0)
        if self.inputs is not None and self.reports is not None:
            wanted = [[Fraction(v) for v in column] for column in self.reports.T.tolist()]
            for row, target in zip(self.weights, self.inputs.tolist()):
                for column, goal in zip(wanted, target):
                    mean = sum((w * h for w, h in zip(row, column)), Fraction(0)) / self.total
                    worst = max(worst, abs(mean - Fraction(goal)))
        return worst


def _margin(low: Fraction | float, high: Fraction | float) -> tuple[float, bool]:
    """How far `low` is below `high`, and whether it is."""
    if math.isinf(low) or math.isinf(high):
        return math.inf if low < high else -math.inf, low <= high
    return float(Fraction(high) - Fraction(low)), low <= high
