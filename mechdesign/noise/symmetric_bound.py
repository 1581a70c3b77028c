r"""A lower bound on the cost of every symmetric noise that is as private, in closed form.

A change v of the answer moves the statistic :math:`\sum_i v_i T_i/\lVert v\rVert_2` by
:math:`\lVert v\rVert_2`; its variance is that of one coordinate, it is symmetric, and (ε, δ)-private as the answer is.
In units of that move, its survival function S has S(0) = ½ and :math:`S(t + 1) \ge e^{-\varepsilon}(S(t) - \delta)`; if
the law is log-concave, so is S, and between 0 and 1 it lies above the logarithmic chord. Var = ∫ 4tS(t) dt and E|T| = ∫ 2S(t) dt
over t > 0 are then bounded from below by a sum. Rounds are more coordinates. A round that is sampled at rate q is
(log(1 + (e^ε − 1)/q), δ/q)-private without sampling. Under zCDP the variance is at least
:math:`\lVert v\rVert^2/(e^{\xi + 2\rho} - 1)` by the Hammersley–Chapman–Robbins inequality; under μ-GDP the exponent is μ².
"""

from __future__ import annotations

import math

import numpy as np

from mechdesign.accounting.losses import AtomicLoss, loss_of
from mechdesign.accounting.sampling import loss_before
from mechdesign.evidence.attack import TradeOff
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration_search import OFF
from mechdesign.problem.privacy import CentralPrivacy, GaussianDP, ZeroConcentratedDP, parts_of
from mechdesign.problem.sensitivity import Sensitivity


def least_symmetric(noise: AdditiveNoise, privacy: CentralPrivacy, loss: str) -> float:
    """Return a lower bound on the cost of every symmetric law that is as private, log-concave unless `noise` is a staircase; 0 for discrete laws.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.problem.privacy import PureDP
    >>> three = AdditiveNoise(stats.laplace(scale=3.0), 1.0, 3)
    >>> round(least_symmetric(three, PureDP(1.0), "squared"), 2), three.variance   # three coordinates: 3 · 2/ε²
    (6.0, 18.0)
    """
    if not noise.continuous:
        return 0.0
    if isinstance(privacy, TradeOff):
        return max(least_symmetric(noise, part, loss) for part in parts_of(privacy))
    top, square = _moves(noise)
    rounds, rate = noise.rounds, noise.sampling_rate
    if isinstance(privacy, ZeroConcentratedDP | GaussianDP):
        exponent = privacy.mu**2 if isinstance(privacy, GaussianDP) else privacy.xi + 2 * privacy.rho
        known = loss == "squared" and exponent < 700
        return rounds * square / math.expm1(exponent) * (1 - OFF) if known else 0.0
    epsilon, delta = privacy.epsilon, getattr(privacy, "delta", 0.0)
    if rate < 1:
        epsilon, delta, rounds = loss_before(epsilon, rate), delta / rate, 1
    steps = isinstance(loss_of(noise.law, top), AtomicLoss)
    least = unit_cost(epsilon * (1 + 1e-12), delta * (1 + 1e-12), loss, log_concave=not steps)
    return least * (rounds * square if loss == "squared" else top) * (1 - OFF)


def _moves(noise: AdditiveNoise) -> tuple[float, float]:
    """Return the largest change of one coordinate, and the largest ‖v‖₂² of an allowed change."""
    s, k = noise.sensitivity, noise.dimension
    if isinstance(s, Sensitivity) and noise.sampling_rate < 1 and s.own is not None:
        move = min(s.own, s.largest_l2(k))  # the other record may contribute nothing
        return move, move * move
    if not isinstance(s, Sensitivity):
        return s, k * s * s
    changes = s.attained(k)
    return max(v[0][0] for v in changes), max(sum(count * size * size for size, count in v) for v in changes)


def unit_cost(epsilon: float, delta: float, loss: str, *, log_concave: bool = True) -> float:
    """Return a lower bound on the variance or E|T| of every symmetric law that is (ε, δ)-private for a shift of 1.

    Examples
    --------
    >>> round(unit_cost(0.1, 0.0, "squared"), 1)   # Laplace noise: 200
    199.9
    """
    epsilon = max(epsilon, 1e-9)  # privacy at ε implies it above
    after = math.exp(-epsilon) * (0.5 - delta)  # S(1)
    if after <= 0:
        return 0.0
    reach = 60 / epsilon
    if delta > 0:
        reach = min(
            reach, (math.log(-math.expm1(-epsilon) / (2 * delta) + math.exp(-epsilon)) + epsilon) / epsilon
        )
    t = (reach + 1) * np.linspace(0.0, 1.0, 20_001) ** 2
    whole = np.floor(t)
    part = t - whole
    first = 0.5 * (2 * after) ** part if log_concave else np.where(part > 0, after, 0.5)
    fallen = np.exp(-epsilon * whole)
    spent = delta * math.exp(-epsilon) * np.expm1(-epsilon * whole) / math.expm1(-epsilon)
    kept = first * fallen
    survival = np.maximum(kept - spent - 1e-14 * (kept + spent) * (1 + whole * epsilon), 0.0)
    moment = 2 * t**2 if loss == "squared" else 2 * t
    return float(np.sum(survival[1:] * np.diff(moment))) * (1 - OFF)
