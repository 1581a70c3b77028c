r"""What a calibrated law costs at least: of all symmetric laws in closed form, and of all scales of one law.

*All symmetric laws.* A change v of the answer moves the statistic :math:`\sum_i v_i T_i/\lVert v\rVert_2` by
:math:`\lVert v\rVert_2`; its variance is that of one coordinate, it is symmetric, and (ε, δ)-private as the answer is.
In units of that move, its survival function S has S(0) = ½ and :math:`S(t + 1) \ge e^{-\varepsilon}(S(t) - \delta)`; if
the law is log-concave, so is S, and between 0 and 1 it lies above the logarithmic chord. Var = ∫ 4tS(t) dt and E|T| = ∫ 2S(t) dt
over t > 0 are then bounded from below by a sum. Rounds are more coordinates. A round that is sampled at rate q is
(log(1 + (e^ε − 1)/q), δ/q)-private without sampling. Under zCDP the variance is at least
:math:`\lVert v\rVert^2/(e^{\xi + 2\rho} - 1)` by the Hammersley–Chapman–Robbins inequality.

*All scales of one law.* Less noise of a continuous law is less private: where a scale spends more than the budget, seen
from below, every smaller one does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mechdesign.accounting.interval import lower_delta
from mechdesign.accounting.losses import AtomicLoss, frozen_parts, loss_of
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration.renyi import worst_rho
from mechdesign.noise.worst_case import amplified
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers.deadline import Deadline

__all__ = ["least_cost", "spends_more", "too_small", "unit_cost"]

Privacy = PureDP | ApproximateDP | ZeroConcentratedDP

_POINTS = 20_001
_OFF = 1e-9
"""Relative error allowed to sums in doubles."""
_NEAR = (1 - 3e-9, 1 - 1e-3, 1 - 1e-2)
"""Shares of the scale found at which the budget is looked for to be exceeded: where accounting is exact one of them is."""
_HALVINGS = 4


def least_cost(
    noise: AdditiveNoise, privacy: Privacy, loss: str, *, rounds: int = 1, sampling_rate: float = 1.0
) -> float:
    """What any symmetric law costs at least that is as private; log-concave, where `noise` is. 0 for discrete laws.

    Examples
    --------
    >>> from scipy import stats
    >>> three = AdditiveNoise(stats.laplace(scale=3.0), 1.0, 3)
    >>> round(least_cost(three, PureDP(1.0), "squared"), 2), three.variance   # three coordinates: 3 · 2/ε²
    (6.0, 18.0)
    """
    if not noise.continuous:
        return 0.0
    top, square = _moves(noise)
    if isinstance(privacy, ZeroConcentratedDP):
        exponent = privacy.xi + 2 * privacy.rho
        known = loss == "squared" and exponent < 700
        return rounds * square / math.expm1(exponent) * (1 - _OFF) if known else 0.0
    epsilon, delta = privacy.epsilon, getattr(privacy, "delta", 0.0)
    if sampling_rate < 1:
        epsilon = (
            epsilon - math.log(sampling_rate)
            if epsilon > 700
            else math.log1p(math.expm1(epsilon) / sampling_rate)
        )
        delta, rounds = delta / sampling_rate, 1
    steps = isinstance(loss_of(noise.law, top), AtomicLoss)
    least = unit_cost(epsilon * (1 + 1e-12), delta * (1 + 1e-12), loss, log_concave=not steps)
    return least * (rounds * square if loss == "squared" else top) * (1 - _OFF)


def _moves(noise: AdditiveNoise) -> tuple[float, float]:
    """The largest change of one coordinate, and the largest ‖v‖₂² of changes that are allowed."""
    s, k = noise.sensitivity, noise.dimension
    if not isinstance(s, Sensitivity):
        return s, k * s * s
    changes = s.attained(k)
    return max(v[0][0] for v in changes), max(sum(count * size * size for size, count in v) for v in changes)


def unit_cost(epsilon: float, delta: float, loss: str, *, log_concave: bool = True) -> float:
    """Variance or E|T| of every symmetric law that is (ε, δ)-private for a move by 1, from below.

    Examples
    --------
    >>> round(unit_cost(0.1, 0.0, "squared"), 1)   # Laplace noise: 200
    199.9
    """
    after = math.exp(-epsilon) * (0.5 - delta)  # S(1)
    if after <= 0:
        return 0.0
    reach = 60 / epsilon
    if delta > 0:
        reach = min(
            reach, (math.log(-math.expm1(-epsilon) / (2 * delta) + math.exp(-epsilon)) + epsilon) / epsilon
        )
    t = (reach + 1) * np.linspace(0.0, 1.0, _POINTS) ** 2
    whole = np.floor(t)
    part = t - whole
    first = 0.5 * (2 * after) ** part if log_concave else np.where(part > 0, after, 0.5)
    fallen = np.exp(-epsilon * whole)
    spent = delta * math.exp(-epsilon) * np.expm1(-epsilon * whole) / math.expm1(-epsilon)
    kept = first * fallen
    survival = np.maximum(kept - spent - 1e-14 * (kept + spent) * (1 + whole * epsilon), 0.0)
    moment = 2 * t**2 if loss == "squared" else 2 * t
    return float(np.sum(survival[1:] * np.diff(moment))) * (1 - _OFF)


def too_small(
    noise: AdditiveNoise,
    privacy: Privacy,
    *,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    deadline: Deadline | None = None,
) -> float:
    """A share of the scale at which the law is not private, as near 1 as a few looks show; 0 where none does."""
    deadline = Deadline.of(deadline)

    def over(share: float) -> bool:
        return spends_more(noise, privacy, share, rounds=rounds, sampling_rate=sampling_rate)

    for share in _NEAR:
        if not deadline.passed and over(share):
            return share
    # late, or accounted for from above alone: the scale is not the least
    low, high = 0.5, _NEAR[-1]
    if not over(low):
        return 0.0
    for _ in range(_HALVINGS):
        if deadline.passed:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) else (low, middle)
    return low


def spends_more(
    noise: AdditiveNoise, privacy: Privacy, share: float, *, rounds: int = 1, sampling_rate: float = 1.0
) -> bool:
    """Whether a continuous law at this share of its scale is over the budget, from below."""
    if not noise.continuous:
        return False
    dist, shapes, _, scale = frozen_parts(noise.law)
    cases = AdditiveNoise(dist(*shapes, scale=scale * share), noise.sensitivity, noise.dimension).worst_cases
    if isinstance(privacy, ZeroConcentratedDP):
        if isinstance(noise.sensitivity, Sensitivity):
            return False  # ρ is known from above alone
        rho = rounds * worst_rho(cases.law, noise.sensitivity, noise.dimension, privacy.xi / rounds)
        return rho * (1 - 1e-8) > privacy.rho
    if not (delta := getattr(privacy, "delta", 0.0)):
        loss = amplified(cases.largest_loss(), rounds=rounds, sampling_rate=sampling_rate)
        return loss * (1 - 1e-9) > privacy.epsilon
    changes: Any = cases.attained or (cases.alternatives[:1] if cases.exact else ())
    options: dict[str, Any] = {"rounds": rounds, "sampling_rate": sampling_rate}
    return any(lower_delta(terms, privacy.epsilon, **options) > delta for terms in changes)
