r"""Independent Laplace noise under exact composition: the best ratios λ/β, and a lower bound by convexity.

**Convexity [new].** Let f be the density of noise of unit scales, log-concave, and r the vector of ratios. At any ε

.. math:: 1 - \delta(r) = \int \min\bigl(f(x), e^\varepsilon f(x - r)\bigr)\,dx ,

and the integrand is log-concave in (x, r) together, as the smaller of two functions that are. By Prékopa's theorem
:math:`G(r) = -\log(1 - \delta(r))` is convex. G is even in each coordinate, hence increasing in each ratio: noise is least private
when all coordinates change by all they may. So the ratios that keep (ε, δ) are a convex set, and the least loss
:math:`\sum_i c_i r_i^{-p}` over it is a convex program, :math:`c_i = w_i \Gamma(p+1) \lambda_i^p`.

**Lower bound [new].** For noise of one type the set is also symmetric, and what keeps (ε, δ) does so without some of the coordinates.
Hence the mean of any m ratios, taken over all orders of them, is at most the ratio :math:`z_m` at which m equal coordinates keep
(ε, δ): :math:`\sum_{i \in S} r_i \le |S|\,z_{|S|}` for every S. Least loss under these rows for the coordinates that cost most is
solved by any multipliers from below. It is exact where all costs are equal.

**Ratios.** Where they are best, :math:`p\,c_i r_i^{-p-1}` is proportional to :math:`\partial\delta/\partial r_i`. The tilt θ at which
the composed loss has mean ε weighs outcomes about as δ does, and under it that derivative is proportional to that of one
coordinate's :math:`\kappa_\theta(r) = \log E\,e^{\theta L(r)}`. For θ → ∞ this is P4, where the sum of the ratios counts, for θ → 0
it is P3, where the sum of their squares does. The common factor follows from δ of the exact composition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np
from scipy import optimize, special, stats

from mechdesign.accounting.interval import delta_interval, lower_delta, upper_delta
from mechdesign.accounting.losses import NoiseTerm, is_gaussian
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import safe_root
from mechdesign.evidence.proofs import PROVED
from mechdesign.noise.vector_noise import MixedNoise
from mechdesign.problem.privacy import Pointwise, pairs_of
from mechdesign.solvers import Deadline
from mechdesign.typing import Array, Indices

LEVELS = 32
"""Different Laplace ratios, at most: each is composed on its own."""
FLOOR = 1e-12
"""Least Laplace ratio over the largest: less saves nothing, and a lattice could not keep it."""
_BITS = 46
"""Of a ratio: fewer than `MixedNoise` rounds to, so that coordinates of one level have one ratio."""
_ROUNDS = 2
"""Ratios tried: those of P4, and those of the tilt there. A third round would gain at most 5e-4 of the loss."""
_VERIFIED = 1.5e-7
"""Relative decrease of ratios that are composed on a grid: that of the stand-alone verifier is coarser, and shall prove the same δ."""
_ROWS = 16
"""Numbers of coordinates that the lower bound has a row for, about."""


def composed(law: MixedNoise, privacy: Pointwise) -> tuple[float, bool]:
    """δ of the exact composition at ε, from above, and whether a closed form or basic composition proves it; of a TradeOff the largest share of a δ.

    What is τ-private purely leaves ε − τ to the others.
    """
    return composition(law.terms(), law.small, privacy)


def composition(terms: tuple[NoiseTerm, ...], small: float, privacy: Pointwise) -> tuple[float, bool]:
    """The same of terms, beside what is `small`-private purely; where a point has δ = 0, the share is that of the largest loss in ε."""
    if not isinstance(privacy, TradeOff):
        return delta_at(terms, small, *pairs_of(privacy)[0])
    largest, proved = 0.0, True
    for epsilon, delta in pairs_of(privacy):
        if delta:
            found, basic = delta_at(terms, small, epsilon, delta)
            share, proved = found / delta, proved and basic
        else:
            endless = any(is_gaussian(t.law) for t in terms)
            total = math.inf if endless else small + math.fsum(t.sensitivity * t.count for t in terms)
            share = total * (1 + 1e-15) / epsilon
        largest = max(largest, share)
    return largest, proved


def delta_at(
    terms: tuple[NoiseTerm, ...], small: float, epsilon: float, delta: float = 0.0
) -> tuple[float, bool]:
    """δ at ε ≥ 0, by basic composition alone where that shows no more than `delta`.

    As noise is symmetric δ(−τ) = 1 − e^(−τ) (1 − δ(τ)), where what is τ-private purely leaves less than 0.
    """
    left = math.nextafter(epsilon - small, -math.inf) if epsilon else -small
    if left < 0:
        at_zero, proved = delta_at(terms, 0.0, 0.0, delta)
        return min((at_zero - math.expm1(left) * (1 - at_zero)) * (1 + 1e-15), 1.0), proved
    if len(terms) == 1 and terms[0].count == 1:
        found = delta_interval(terms, left)  # in closed form
        return found.upper, found.how == PROVED
    if not any(is_gaussian(t.law) for t in terms):
        total = (small + math.fsum(t.sensitivity * t.count for t in terms)) * (1 + 1e-15)
        basic = -math.expm1(epsilon - total) * (1 + 1e-14) if total > epsilon else 0.0
        if basic <= delta or len(terms) > LEVELS:
            return basic, True
        if 0 < total - epsilon <= 2 * min(t.sensitivity for t in terms):
            return barely_above(total - epsilon, sum(t.count for t in terms)), False
    return upper_delta(terms, left, width=3e-3), False


def _cumulant(ratio: Array, theta: float) -> Array:
    """log E exp(θL) of the loss of Laplace noise."""
    rest = theta * np.exp(-(2 * theta + 1) * ratio)
    return np.asarray(theta * ratio + np.log((theta + 1 + rest) / (2 * theta + 1)))


def _slope(ratio: Array, theta: float) -> Array:
    """Its derivative by the ratio, over θ(θ + 1)."""
    fall = (2 * theta + 1) * ratio
    return np.asarray(-np.expm1(-fall) / (theta + 1 + theta * np.exp(-fall)))


def barely_above(excess: float, count: int) -> float:
    r"""δ of Laplace noise whose ratios sum to `excess` more than ε, each at least half of that; rounded up.

    The loss is :math:`\sum r_i - 2\sum \min(x_i^+, r_i)`, above ε only where no minimum is :math:`r_i`; :math:`x_i^+` is 0 or
    exponential with probability ½ each, so that n of them that are not 0 sum to a gamma variable X of shape n:
    :math:`\delta = \sum_n 2^{-K}\binom Kn E(1 - e^{2X - \text{excess}})^+`. A grid would need a step far below the excess.

    Examples
    --------
    >>> round(barely_above(0.3, 1) / -math.expm1(-0.15), 9)  # one coordinate: 1 − exp((ε − Δ/β)/2)
    1.0
    """
    n, half = np.arange(1, min(count, 200) + 1), excess / 2
    part = special.gammainc(n, half)
    part -= (
        math.exp(-excess)
        * np.exp(n * math.log(half) - special.gammaln(n + 1))
        * special.hyp1f1(n, n + 1, half)
    )
    chances = stats.binom.pmf(np.arange(len(n) + 1), count, 0.5)
    left = float(special.gammainc(n[-1] + 1, half)) if count > len(n) else 0.0
    return float(chances[0] * -math.expm1(-excess) + chances[1:] @ np.maximum(part, 0.0) + left) * (1 + 1e-11)


def levels_of(wanted: Array) -> Indices:
    """Label numbers so that those of one label are close: the set that varies most is cut at its mean, `LEVELS` sets at most."""
    values, back = np.unique(wanted, return_inverse=True)
    label = np.zeros(len(values), dtype=np.int64)
    if len(values) <= LEVELS:
        return np.arange(len(values))[back]
    count = np.bincount(back).astype(float)
    for new in range(1, LEVELS):
        total = np.bincount(label, count)
        mean = np.bincount(label, count * values) / total
        spread = np.bincount(label, count * (values - mean[label]) ** 2)
        worst = int(np.argmax(spread))
        label[(label == worst) & (values > mean[worst])] = new
    return np.unique(label, return_inverse=True)[1][back]


def _rounded(ratio: Array) -> Array:
    """Ratios of `_BITS` bits, rounded down."""
    mantissa, exponent = np.frexp(ratio)
    return np.asarray(np.ldexp(np.floor(np.ldexp(mantissa, _BITS)), exponent - _BITS))


@dataclass(frozen=True, eq=False)
class LaplaceProblem:
    r"""Laplace noise of least :math:`\sum_j c_j r_j^{-p}`, on units that have one ratio each: coordinates, or groups of one scale.

    Parameters
    ----------
    costs : ndarray, shape (J,)
        c_j, positive.
    counts : ndarray of int, shape (J,)
        Coordinates of a unit that change.
    order : float
        p.
    privacy : ApproximateDP, MembershipAdvantage or TradeOff
        With a δ > 0.
    """

    costs: Array
    counts: Indices
    order: float
    privacy: Pointwise

    @cached_property
    def _each(self) -> Array:
        """The cost of a coordinate."""
        return self.costs / self.counts

    def ratios(self, deadline: Deadline) -> Array:
        """The best ratios found, of `LEVELS` sizes at most; after the deadline those that were safe by then."""
        level = levels_of((self._each / self._each.max()) ** (1 / (self.order + 2)))
        costs, counts = np.bincount(level, self.costs), np.bincount(level, self.counts).astype(np.int64)
        unit, least = costs / counts, math.inf
        wanted = best = np.maximum((unit / unit.max()) ** (1 / (self.order + 1)), FLOOR)
        for _ in range(_ROUNDS if len(unit) > 1 else 0):
            shape = np.maximum(wanted / wanted.max(), FLOOR)
            found, epsilon = within_delta(shape, counts, self.privacy, deadline, 1e-2)
            loss = float((costs * shape**-self.order).sum()) * found.max() ** -self.order
            if loss < least:
                best, least = shape, loss
            # exact in one step where the slope is proportional to the ratio, as of Gaussian noise
            slope = _slope(found, _tilt(found, counts, epsilon))
            wanted = shape * (unit / unit.max() / slope / shape ** (self.order + 1)) ** (1 / (self.order + 2))
        best, _ = within_delta(best, counts, self.privacy, deadline)
        return best[level]

    def lower_bound(self) -> float:
        """What no ratios that keep (ε, δ) cost less than, by weak duality; in doubles, rounded down."""
        p = self.order
        order = np.argsort(-self._each, kind="stable")
        counts, sizes = self.counts[order], np.cumsum(self.counts[order])
        each = self._each[order] / self._each[order[0]]
        ends = np.unique(np.searchsorted(sizes, np.geomspace(1, sizes[-1], _ROWS).round()))
        rows = np.array([sizes[at] * largest_equal(int(sizes[at]), self.privacy) for at in ends])
        share = np.cumsum(counts * each ** (1 / (p + 1)))[ends]
        # Prices of a ratio by parts between rows: of parts that would share a row unevenly, the row between them is filled.
        price, parts = np.zeros(len(ends)), [(-1, len(ends) - 1)]
        while parts:
            first, last = parts.pop()
            before = (share[first], rows[first]) if first >= 0 else (0.0, 0.0)
            rate = (rows[last] - before[1]) / (share[last] - before[0])
            over = before[1] + rate * (share[first + 1 : last] - before[0]) - rows[first + 1 : last]
            if len(over) and over.max() > 0:
                worst = first + 1 + int(np.argmax(over))
                parts += [(first, worst), (worst, last)]
            else:
                price[first + 1 : last + 1] = p * max(rate, 1e-300) ** -(p + 1)
        price = np.maximum.accumulate(price[::-1])[::-1]
        own = price[np.searchsorted(ends, np.arange(len(each)))]
        dual = float((counts * (1 + p) * each * (p * each / own) ** (-p / (p + 1))).sum())
        paid = float((np.append(price[:-1] - price[1:], price[-1]) * rows).sum())
        return float(self._each[order[0]] * (dual - paid - 1e-12 * (dual + paid)))


@lru_cache(maxsize=256)
def largest_equal(count: int, privacy: Pointwise) -> float:
    """A ratio at which so many equal coordinates do not keep the requirement, or just do: next above the largest that do."""
    return min(_largest_equal(count, epsilon, delta) for epsilon, delta in pairs_of(privacy))


def _largest_equal(count: int, epsilon: float, delta: float) -> float:
    extra = -math.log1p(-delta)
    if count == 1 or not delta:
        return (epsilon + 2 * extra) / count * (1 + 1e-14)

    def missing(log_more: float) -> float:
        term = NoiseTerm(stats.laplace(), (epsilon + math.exp(log_more)) / count, count)
        return math.log(delta / max(lower_delta(term, epsilon, width=1e-5), 1e-300))

    low, high = math.log(extra), math.log(max(count * (epsilon + 2 * extra) - epsilon, 0.0))
    return (epsilon + math.exp(safe_root(missing, low, high + 1e-3, xtol=1e-8))) / count * (1 + 1e-14)


def _tilt(ratios: Array, counts: Indices, epsilon: float) -> float:
    """θ of the Chernoff bound of δ: the tilt at which the composed loss has mean ε."""

    def exponent(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return float(counts @ _cumulant(ratios, theta)) - theta * epsilon

    found = optimize.minimize_scalar(
        exponent, bounds=(-12.0, 25.0), method="bounded", options={"xatol": 1e-3}
    )
    return math.exp(float(found.x))


def within_delta(
    shape: Array, counts: Indices, privacy: Pointwise, deadline: Deadline, fine: float = 1e-7
) -> tuple[Array, float]:
    """The largest multiple of these ratios at which the composition is proved to keep the requirement, and the ε that binds."""
    parts = [(_within(shape, counts, e, d, deadline, fine), e) for e, d in pairs_of(privacy)]
    return min(parts, key=lambda part: float(part[0].max()))


def _within(
    shape: Array, counts: Indices, epsilon: float, delta: float, deadline: Deadline, fine: float
) -> Array:
    """The same of one point (ε, δ).

    Their sum is searched for between what basic composition allows and where one coordinate alone takes all of δ, in the
    logarithm of what it has more than ε: at small δ that is all that can be gained.
    """
    total = float(counts @ shape)
    if not delta:
        return _rounded(shape * (epsilon * (1 - 2e-14) / total))
    extra = -math.log1p(-delta)
    kept = _rounded(shape * ((epsilon + extra) * (1 - 2e-14) / total))

    @cache
    def excess(log_more: float) -> float:
        nonlocal kept
        if deadline.passed:
            raise _LateError
        found = _rounded(shape * ((epsilon + math.exp(log_more)) / total))
        terms = tuple(NoiseTerm(stats.laplace(), float(r), int(n)) for r, n in zip(found, counts))
        over = math.log(max(delta_at(terms, 0.0, epsilon, delta)[0], 1e-300) / delta)
        if over <= 0 and found[0] > kept[0]:
            kept = found
        return over

    low = math.log(extra) + 1e-9
    high = math.log(max((epsilon + 2 * extra) * total / float(shape.max()) - epsilon, 2 * extra))
    try:
        if excess(low) <= 0:
            safe_root(excess, low, high, xtol=fine, rtol=1e-12)
    except _LateError:
        pass
    closed = counts @ kept - epsilon <= 2 * kept.min()
    return kept if closed else _rounded(kept * (1 - _VERIFIED))


class _LateError(Exception):
    """Ends a search; never leaves this module."""
