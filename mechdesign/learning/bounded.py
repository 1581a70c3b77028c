r"""What private models of bounded records share: columns in units of their bounds, noisy counts, and the records' usual length.

A column with bounds [a, b] becomes :math:`z = (x - (a + b)/2) / ((b - a)/2)`, clipped to [−1, 1], in `fit` and `predict`
alike. Noise for the box [−1, 1]^d would be noise for its corners, √d long, where hardly any record is: the length that a
given share of the records keeps is found by halving, with a noisy count each time, and longer records are shrunk
to it. Those counts consume 5% of the budget, which is 2.5% more noise on everything else.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.results import Result
from mechdesign.learning.plan import (
    ROOT,
    NoisySums,
    PrivateEstimator,
    calibrated,
    check_is_fitted,
    records,
)
from mechdesign.problem.checks import array
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array, Flags, Numbers

COUNTS = 7
"""Noisy counts of a fit: one of the records beyond the bounds, six for the length."""
_ROWS = 1 << 14
_HALVINGS = COUNTS - 1
_DOWN = 1 - Fraction(1, 10**12)
_WIDEST = 1e100

Interval = tuple[Numbers, Numbers]


def box(name: str, value: Interval | None, size: int) -> tuple[Array, Array]:
    """Middles and half widths of `size` intervals."""
    if value is None:
        remedy = (
            "must be stated: the least and the largest value that a column can take, as a questionnaire, a sensor or a law limits it, never "
            "as these data do, and rather too wide than too narrow; where nothing limits it, pay: count the column's values between public "
            "thresholds with noise (md.calibrate), and add that budget to this one"
        )
        raise DesignError.of(name, None, remedy)
    try:
        low, high = value
    except (TypeError, ValueError):
        raise DesignError.of(name, value, "must be a pair (low, high) of numbers or arrays") from None
    ends = [array(name, end, ndim=None) for end in (low, high)]
    if any(end.shape not in ((), (size,)) for end in ends):
        raise DesignError.of(name, value, f"must be a pair (low, high) of numbers, or of {size} numbers each")
    least, most = (np.broadcast_to(end, (size,)).astype(float) for end in ends)
    if not (least < most).all() or max(np.abs(least).max(), np.abs(most).max()) > _WIDEST:
        raise DesignError.of(name, value, f"must have low < high, each within {_WIDEST:g}")
    middle, half = least / 2 + most / 2, most / 2 - least / 2
    if (half < 1e-12 * np.abs(middle)).any() or half.min() < 1 / _WIDEST:
        raise DesignError.of(
            name, value, "are too narrow for doubles: subtract a public number from the column"
        )
    # never 0: what is far below a bound is absorbed, and takes no longer than other numbers
    return np.where(np.abs(middle) < half * 2.0**-60, half * 2.0**-60, middle), half


@dataclass(eq=False, repr=False)
class BoundedEstimator(PrivateEstimator):
    """A linear model of records with declared bounds."""

    _: KW_ONLY
    bounds: Interval | None = None

    def _check(self, size: int) -> None:
        """Check what all such models have."""
        self._begin()
        self._middle, self._half = box("bounds", self.bounds, size)
        self._pure = isinstance(self.privacy, PureDP) or getattr(self.privacy, "delta", 1.0) == 0

    def _noise(self, most: int) -> Result:
        """Noise for the counts and at most that many further sums."""
        changes = Sensitivity(
            l1=1.0 if self._pure else None, l2=None if self._pure else 1.0, neighbours="replace"
        )
        law = "laplace" if self._pure else "gaussian"
        return calibrated(law, self.privacy, changes, COUNTS + most)

    def _sums(self, noise: Result) -> NoisySums:
        return NoisySums(noise, self._drawing(noise))

    def _weight(self, share: float, change: Fraction | float) -> Fraction:
        """What sums that change by `change` are multiplied by, in ℓ₂ (ℓ₁ under pure privacy), to consume a share of the budget."""
        return Fraction(share if self._pure else math.sqrt(share)) / Fraction(change) * _DOWN

    def _moments_weight(self, share: float, size: int, unit: int) -> tuple[Fraction, Fraction]:
        """Weight and stretch of second moments: zzᵀ − z′z′ᵀ has Frobenius norm at most √2, its triangle ℓ₁ norm at most M + 1."""
        if self._pure:
            return self._weight(share, (size + 1) * unit), Fraction(1)
        return self._weight(share, 2 / ROOT * unit), ROOT

    def _centred(self, x: Array) -> Array:
        """Columns clipped to their bounds, less the middle of those."""
        z = np.clip(x, self._middle - self._half, self._middle + self._half)
        z -= self._middle
        return np.asarray(z)

    def _count(self, x: Array, beyond: Flags, sums: NoisySums, *, share: float, kept: float) -> float:
        """The squared length that a share of the records keeps, and a warning if most records are beyond the bounds."""
        squares, beyond = np.empty(len(x)), beyond.copy()
        for start in range(0, len(x), _ROWS):
            part = slice(start, start + _ROWS)
            with np.errstate(over="ignore"):
                z = np.abs(x[part] - self._middle) / self._half
            beyond[part] = beyond[part] | (z.max(axis=1) > 1 + 1e-12)
            np.minimum(z, 1.0, out=z)
            squares[part] = np.einsum("ni,ni->n", z, z)
        weight = self._weight(share / COUNTS, 1)
        self.clipped_ = float(sums.answer([int(beyond.sum())], weight)[0])
        low, high = 0, (1 << _HALVINGS) - 1
        for _ in range(_HALVINGS):
            middle = (low + high + 1) // 2
            shorter = int((squares <= self._length(middle)).sum())
            if sums.answer([shorter], weight)[0] >= kept * len(x):
                low = middle
            else:
                high = middle - 1
        doubt = 4 * sums.noise.standard_deviation / float(weight)
        if self.clipped_ > len(x) / 2 + doubt:
            warnings.warn(
                f"{min(self.clipped_ / len(x), 1):.0%} of the records lie beyond the bounds and were clipped to them: declare wider ones",
                UserWarning,
                stacklevel=3,
            )
        self.radius_ = math.sqrt(self._length(low))
        return self._length(low)

    def _length(self, level: int) -> float:
        """A squared length, from that of the whole box in steps of √2."""
        return float(len(self._half) * 2 ** (-level / 2))

    def _settle(self, theta: Array) -> Array:
        """Take the coefficients of (1, z) to the columns' own units; returns the map, shape (1 + d, 1 + d)."""
        scale = np.diag(np.append(1.0, 1 / self._half))
        scale[0, 1:] = -self._middle / self._half
        found = scale @ theta
        self.intercept_, self.coef_ = float(found[0]), found[1:]
        return scale

    def _score(self, X: Numbers) -> Array:
        check_is_fitted(self, "coef_")
        x = records(self, X)
        inside = np.clip(x, self._middle - self._half, self._middle + self._half)
        return np.asarray(inside @ self.coef_ + self.intercept_)
