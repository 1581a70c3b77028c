"""δ of independent Laplace and Gaussian noise: the exact composition of all coordinates' losses, from above."""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from mechdesign.accounting.interval import delta_interval, upper_delta
from mechdesign.accounting.losses import NoiseTerm, is_gaussian
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.proofs import PROVED
from mechdesign.noise.vector_noise import MixedNoise
from mechdesign.problem.privacy import Pointwise, pairs_of

LEVELS = 32
"""Different Laplace ratios, at most: each is composed on its own."""


def composed(law: MixedNoise, privacy: Pointwise) -> tuple[float, bool]:
    """δ of the exact composition at ε, from above, and whether a closed form or basic composition proves it; of a TradeOff the largest share of a δ.

    What is τ-private purely leaves ε − τ to the others.
    """
    terms, points = law.terms(), pairs_of(privacy)
    found = [delta_at(terms, law.small, epsilon, delta) for epsilon, delta in points]
    units = [delta if isinstance(privacy, TradeOff) else 1.0 for _, delta in points]
    return max(used / unit for (used, _), unit in zip(found, units)), all(proved for _, proved in found)


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
