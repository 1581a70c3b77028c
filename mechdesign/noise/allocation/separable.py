r"""The separable problem behind P3 and P4, its closed form, its dual bound, and the safe side.

Both are, over scales :math:`s_g > 0` (one per group of coordinates that share a scale),

.. math:: \min \sum_g W_g s_g^p \quad\text{s.t.}\quad \sum_g (\Lambda_g / s_g)^m \le B,

with m = 2, :math:`\Lambda_g^2 = \sum \lambda_i^2`, :math:`B = \mu_0^2` for Gaussian noise (P3) and m = 1,
:math:`\Lambda_g = \sum \lambda_i`, B = ε for Laplace noise (P4); :math:`W_g` sums the weights of the loss. Stationarity
gives :math:`s_g^{p+m} \propto \Lambda_g^m / W_g`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import safe_root
from mechdesign.model.scales import SUM_ERROR
from mechdesign.typing import Array

EXACT = 2000
"""Coordinates up to which sums are rational; beyond, they are rounded up."""


def overflowing(order: float) -> DesignError:
    """The error of a loss that no double holds."""
    return DesignError.of(
        "loss", order, "makes the least loss overflow: lower it, or use a larger unit of measure"
    )


_STEPS: dict[float, tuple[np.ufunc, ...]] = {
    0.25: (np.sqrt, np.sqrt),
    1 / 3: (np.cbrt,),
    0.5: (np.sqrt,),
    2 / 3: (np.cbrt, np.square),
    1: (np.positive,),
    2: (np.square,),
    4: (np.square, np.square),
}
"""Powers by vector instructions, which a general power is not."""


def power(x: Array, exponent: float, out: Array | None = None) -> Array:
    """Return ``x ** exponent``, into `out` if given (which may be `x`).

    On a million coordinates a general power, and fresh memory, cost more than all other arithmetic.
    """
    out = np.empty_like(x) if out is None else out
    if exponent not in _STEPS:
        return np.asarray(np.power(x, exponent, out=out))
    for step in _STEPS[exponent]:
        x = step(x, out=out)
    return x


_BLOCK = 1 << 15
"""Coordinates per block: two blocks fit the second-level cache, and fresh pages cost more than arithmetic."""


def blocked_sum(size: int, terms: Callable[[slice, Array], Array]) -> float:
    """Return Σ terms over 0..size-1, block by block: ``terms(block, work)`` may overwrite and return `work`."""
    if size <= _BLOCK:
        return float(terms(slice(0, size), np.empty(size)).sum())
    work = np.empty(_BLOCK)
    starts = range(0, size, _BLOCK)
    return math.fsum(
        float(terms(slice(k, min(k + _BLOCK, size)), work[: min(_BLOCK, size - k)]).sum()) for k in starts
    )


def weighted_moment(scales: Array, order: float, weight: Array | None) -> float:
    """Return Σ w_i s_i^p."""

    def terms(k: slice, work: Array) -> Array:
        power(scales[k], order, out=work)
        return work if weight is None else np.multiply(work, weight[k], out=work)

    return blocked_sum(len(scales), terms)


@dataclass(frozen=True, eq=False)
class Allocated:
    """Scales of the groups that keep the budget, and the multiplier that proves a lower bound of Σ W s^p."""

    scales: Array
    lower_bound: float
    multiplier: float
    loss: float | None = None
    """Σ W s^p where it followed from the formula, to rounding; None where it is to be summed."""


@dataclass(frozen=True, eq=False)
class Separable:
    """One instance: everything positive, arrays of one shape (G,).

    Parameters
    ----------
    sensitivity : ndarray
        Λ_g.
    weight : ndarray or None
        W_g; None stands for ones.
    order : float
        p > 0.
    spend : int
        m, 2 (Gaussian) or 1 (Laplace).
    budget : float
        B.
    lower, upper : ndarray or None
        Limits on the scales.
    """

    sensitivity: Array
    weight: Array | None
    order: float
    spend: int
    budget: float
    lower: Array | None = None
    upper: Array | None = None

    def unlimited(self) -> tuple[Array, float]:
        r"""Return the optimal scales when no limit binds, and their loss, in a few passes over the groups.

        With :math:`s_g^0 = (\Lambda_g^m / W_g)^{1/(p+m)}` both sums, of the loss and of the budget, are the same
        number; the common factor then follows from the budget.
        """
        p, m = self.order, self.spend
        scales = power(self.sensitivity, m / (p + m))
        if self.weight is not None:
            scales /= power(self.weight, 1 / (p + m))
        if self.weight is None and p in _STEPS:
            total = blocked_sum(len(scales), lambda k, work: power(scales[k], p, out=work))
        else:
            total = self._spent(scales)
        # 2e-14: on the safe side of `spent` at once.
        scales *= (total / self.budget) ** (1 / m) * (1 + 2e-14)
        if not scales.max() < math.inf:
            raise DesignError.of(
                "sensitivities",
                (float(self.sensitivity.min()), float(self.sensitivity.max())),
                "lie too far apart for doubles",
            )
        return scales, self._least(total)

    def least_loss(self) -> float:
        """Return the loss of the optimal scales when no limit binds, to 12 digits, in one pass that makes no scales."""
        p, m = self.order, self.spend

        def terms(k: slice, work: Array) -> Array:
            np.log(self.sensitivity[k], out=work)
            work *= p
            if self.weight is not None:
                work += np.log(self.weight[k])
            work *= m / (p + m)
            return np.asarray(np.exp(work, out=work))

        return self._least(blocked_sum(len(self.sensitivity), terms))

    def _least(self, total: float) -> float:
        """The least loss, where both sums at :math:`s^0` are `total`."""
        p, m = self.order, self.spend
        with np.errstate(over="ignore"):
            loss = float(total * np.float64((total / self.budget) ** (1 / m)) ** p)
        if not math.isfinite(loss):
            raise overflowing(p)
        return loss

    def spent(self, scales: Array) -> float:
        """Return Σ (Λ_g / s_g)^m, rounded up."""
        return self._spent(scales) * (1 + SUM_ERROR)

    def _spent(self, scales: Array) -> float:
        def terms(k: slice, work: Array) -> Array:
            np.divide(self.sensitivity[k], scales[k], out=work)
            return power(work, self.spend, out=work) if self.spend != 1 else work

        return blocked_sum(len(scales), terms)

    def keeps(self, scales: Array) -> bool:
        """Whether the scales keep the budget: by the sum rounded up, by the rational one where that is too close to tell."""
        spent = self._spent(scales)
        if spent * (1 + SUM_ERROR) <= self.budget:
            return True
        if not spent * (1 - SUM_ERROR) <= self.budget or len(scales) > EXACT:
            return False
        pairs = zip(self.sensitivity.tolist(), scales.tolist(), strict=True)
        return sum((Fraction(v) / Fraction(s)) ** self.spend for v, s in pairs if s < math.inf) <= Fraction(
            self.budget
        )

    def clip(self, scales: Array) -> Array:
        """Scales within the limits."""
        if self.lower is not None:
            scales = np.maximum(scales, self.lower)
        if self.upper is not None:
            scales = np.minimum(scales, self.upper)
        return scales

    def made_safe(self, scales: Array) -> Array:
        """Return the scales times the least common factor (within the limits) that meets the budget for sure."""
        scales = self.clip(scales)
        if self.keeps(scales):
            return scales
        spent = self.spent(scales)
        if self.lower is not None or self.upper is not None:
            start = scales

            def excess(u: float) -> float:
                return self.spent(self.clip(start * math.exp(u))) - self.budget

            if excess(700.0) > 0 and self.keeps(widest := self.clip(start * math.exp(700.0))):
                return widest  # the limits take all of the budget
            return self.clip(start * math.exp(safe_root(excess, 0.0, 700.0, xtol=1e-16)))
        while spent > self.budget:
            # Two roundings up: the factor's own and that of the products.
            scales = scales * ((spent / self.budget) ** (1 / self.spend) * (1 + 4e-16))
            spent = self.spent(scales)
        return scales

    def loss(self, scales: Array) -> float:
        """Return Σ W_g s_g^p."""
        return weighted_moment(scales, self.order, self.weight)

    def optimum(self) -> Allocated:
        """Return the optimal scales: a formula without limits, one root with them."""
        if self.lower is None and self.upper is None:
            scales, total = self.unlimited()
            # The formula, rounded down; for large orders to what `lower_bound` finds of it.
            coarse = SUM_ERROR * (2 + self.order) * (1 + 2 * self.order / self.spend)
            bound = total * (1 - (8 * self.order + 64) * 2.0**-53 - max(0.0, coarse - 5e-13))
            safe = self.made_safe(scales)
            loss = None if safe is not scales else total * (1 + 2e-14) ** self.order
            return Allocated(safe, bound, self.order * total / (self.spend * self.budget), loss)
        y = self.multiplier()
        return Allocated(self.made_safe(self.minimisers(y)), self.lower_bound(y), y)

    # Duality: for every y ≥ 0 the value is at least Σ min_s (W s^p + y (Λ/s)^m) - yB, the minima within the limits.

    def minimisers(self, y: float) -> Array:
        """Where the minima at multiplier y lie, in closed form."""
        p, m = self.order, self.spend
        base = power(self.sensitivity, m / (p + m)) * (y * m / p) ** (1 / (p + m))
        return self.clip(base if self.weight is None else base / power(self.weight, 1 / (p + m)))

    def multiplier(self) -> float:
        """Return the y whose minimisers spend the budget, or hardly less; 0 where the lower limits alone do."""
        # without limits the loss times p is y times B times m, by stationarity
        free = self.order * self.unlimited()[1] / (self.spend * self.budget)

        def excess(log_y: float) -> float:
            return math.log(max(self._spent(self.minimisers(free * math.exp(log_y))), 1e-300) / self.budget)

        if excess(-300.0) <= 0:
            return 0.0
        return free * math.exp(safe_root(excess, -300.0, 300.0) if excess(300.0) < 0 else 300.0)

    def lower_bound(self, y: float) -> float:
        """Return what weak duality proves at multiplier y, rounded down: true whatever y is, tight at `multiplier`."""
        value, error = self.dual(y)
        return value - error

    def dual(self, y: float) -> tuple[float, float]:
        """Return Σ min_s (W s^p + y (Λ/s)^m) - yB in doubles, and a bound of their error."""
        best = self.minimisers(max(y, 1e-300))
        terms = self.loss(best) + y * self._spent(best)
        return terms - y * self.budget, SUM_ERROR * (2 + self.order) * (terms + y * self.budget)
