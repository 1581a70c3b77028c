r"""What a calibrated law consumes and costs, evaluated apart from the search, and what every law costs at least.

*Consumption* is enclosed by closed forms, or on grids that no search uses.

*All symmetric laws.* A change v of the answer moves the statistic :math:`\sum_i v_i T_i/\lVert v\rVert_2` by
:math:`\lVert v\rVert_2`; its variance is that of one coordinate, it is symmetric, and (ε, δ)-private as the answer is.
In units of that move, its survival function S has S(0) = ½ and :math:`S(t + 1) \ge e^{-\varepsilon}(S(t) - \delta)`; if
the law is log-concave, so is S, and between 0 and 1 it lies above the logarithmic chord. Var = ∫ 4tS(t) dt and E|T| = ∫ 2S(t) dt
over t > 0 are then bounded from below by a sum. Rounds are more coordinates. A round that is sampled at rate q is
(log(1 + (e^ε − 1)/q), δ/q)-private without sampling. Under zCDP the variance is at least
:math:`\lVert v\rVert^2/(e^{\xi + 2\rho} - 1)` by the Hammersley–Chapman–Robbins inequality; under μ-GDP the exponent is μ².

*All scales of one law.* Less noise of a continuous law is less private: where a scale consumes more than the budget, seen
from below, every smaller one does.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from mechdesign.accounting.interval import DeltaInterval, lower_delta, upper_delta, verified_delta
from mechdesign.accounting.losses import AtomicLoss, in_sigmas, is_gaussian, loss_of
from mechdesign.accounting.profile import integrated_profile
from mechdesign.accounting.sampling import loss_before
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.proofs import ABOUT_FILE, PROVED, RECOMPUTED, Claim
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.worst_case import amplified, worst_rho
from mechdesign.problem.law_moments import frozen_parts, law_variance
from mechdesign.problem.privacy import (
    ApproximateDP,
    CentralPrivacy,
    GaussianDP,
    MembershipAdvantage,
    ZeroConcentratedDP,
    parts_of,
)
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import FrozenLaw

_BLOCK = 4096
"""Steps of a staircase that are summed one by one."""
_STRIDE = 1e-4
"""The integers that are looked at where a law is wide, as a share of its standard deviation."""
OFF = 1e-9
"""Relative error allowed to sums in doubles."""
_SHARES = (1 - 3e-9, 1 - 6e-7, 0.999, 0.99, 0.97, 0.94, 0.9, 0.8, 0.65, 0.5)
"""Of the scale found, at which the budget is looked for to be exceeded: where accounting is exact one of the first is."""


def budget_of(privacy: CentralPrivacy) -> float:
    """What may be consumed: ρ, μ, δ at the ε asked for, or the largest privacy loss; of several points 1, the largest share of any."""
    if isinstance(privacy, ZeroConcentratedDP):
        return privacy.rho
    if isinstance(privacy, GaussianDP):
        return privacy.mu
    if isinstance(privacy, TradeOff):
        return 1.0
    return float(getattr(privacy, "delta", 0.0) or privacy.epsilon)


def cost_of(noise: AdditiveNoise, loss: str) -> float:
    """Variance, or E|T|, of one coordinate."""
    return noise.variance if loss == "squared" else noise.absolute_error


@np.errstate(under="ignore")
def consumed(noise: AdditiveNoise, privacy: CentralPrivacy) -> DeltaInterval:
    """Enclose what all rounds consume: δ at ε; the largest privacy loss under pure privacy; ρ under zCDP; μ; of several points the largest share."""
    if isinstance(privacy, TradeOff):
        each = [(consumed(noise, part), budget_of(part)) for part in parts_of(privacy)]
        how = PROVED if all(spent.how == PROVED for spent, _ in each) else RECOMPUTED
        lower = max(round_down(Fraction(spent.lower) / Fraction(budget)) for spent, budget in each)
        upper = max(
            math.inf if spent.upper == math.inf else round_up(Fraction(spent.upper) / Fraction(budget))
            for spent, budget in each
        )
        return DeltaInterval(lower, upper, how)
    cases = noise.worst_cases
    if isinstance(privacy, GaussianDP):
        terms = map(in_sigmas, cases.alternatives[0])
        square = noise.rounds * sum(n * h * (Fraction(v) / Fraction(s)) ** 2 for n, v, s, h in terms)
        mu = math.sqrt(round_up(square))
        return DeltaInterval(mu * (1 - 1e-15), math.nextafter(mu, math.inf), PROVED)
    if isinstance(privacy, ZeroConcentratedDP):
        rho = noise.rounds * worst_rho(
            noise.law, noise.sensitivity, noise.dimension, privacy.xi / noise.rounds
        )
        return DeltaInterval(rho * (1 - 3e-9), rho)
    if not (delta := getattr(privacy, "delta", 0.0)):
        loss = amplified(cases.largest_loss(), **noise.in_rounds)
        closed = noise.sampling_rate == 1 and cases.loss_is_closed
        return DeltaInterval(loss * (1 - 1e-14), loss, PROVED if closed else RECOMPUTED)
    lone = cases.single is not None and noise.rounds == 1
    if lone or (is_gaussian(noise.law) and (noise.sampling_rate == 1 or noise.rounds == 1)):
        return noise.delta_interval(privacy.epsilon)
    return _composed(noise, privacy.epsilon, delta)


def _composed(noise: AdditiveNoise, epsilon: float, delta: float) -> DeltaInterval:
    """Enclose δ of several coordinates or rounds, on finer grids while it seems to be over the budget."""
    sampled = noise.sampling_rate < 1 and noise.rounds > 1  # one round is as without sampling
    coarse, searched = (1.7e-2, 5e-3) if sampled else (7.3e-3, 1e-3)
    found = noise.delta_interval(epsilon, width=coarse, closed_form=False, points=2**20 if sampled else 2**16)
    if found.upper > delta:
        cases = noise.worst_cases.alternatives
        uppers = [upper_delta(terms, epsilon, width=searched, **noise.in_rounds) for terms in cases]
        uppers += [verified_delta(terms, epsilon, **noise.in_rounds) for terms in cases]
        upper = min(found.upper, *uppers)
        found = replace(found, lower=min(found.lower, upper), upper=upper)
    if found.upper > delta:
        finer = noise.delta_interval(
            epsilon, width=1.3e-3 if sampled else 3e-3, points=2**20 if sampled else 2**17
        )
        found = DeltaInterval(max(found.lower, finer.lower), min(found.upper, finer.upper), finer.how)
    return found


@np.errstate(under="ignore")
def evaluated(
    noise: AdditiveNoise,
    privacy: CentralPrivacy,
    loss: str,
    value: float,
    *,
    stated: DeltaInterval,
    fresh: DeltaInterval,
) -> list[Claim]:
    """Claims of a law: its privacy, the enclosure stated, a second opinion where there is one, and its cost."""
    margin = budget_of(privacy) - fresh.upper
    agrees = stated.vouched(fresh, budget_of(privacy))
    claims = [
        Claim(f"{privacy} is kept", fresh.how, margin, margin >= 0),
        Claim(
            "the enclosure stored is that of the law",
            RECOMPUTED,
            stated.upper - fresh.upper,
            agrees,
            ABOUT_FILE,
        ),
    ]
    shift = noise.worst_cases.single if noise.once else None
    normal = noise.dimension > 1 and is_gaussian(noise.law)
    if (
        isinstance(privacy, ApproximateDP | MembershipAdvantage)
        and privacy.delta
        and shift is not None
        and not normal
    ):
        second = integrated_profile(noise.law, shift, privacy.epsilon)
        # near an atom's loss δ is only defined to the rounding of ε, and of log densities far out to that of theirs
        room = 1e-5 * fresh.upper + 3e-13 - abs(second - fresh.upper)
        claims.append(Claim("quadrature of the density agrees", RECOMPUTED, room, room >= 0))
    error = abs(integrated_cost(noise.law, loss) / value - 1)
    # the formula, and the integral of the law
    holds = error <= 1e-6 and value >= cost_of(noise, loss) * (1 - 1e-12)
    return [*claims, Claim(f"the {loss} loss is {value:.9g}", RECOMPUTED, 1e-6 - error, holds)]


def integrated_cost(law: FrozenLaw, loss: str) -> float:
    """Var T = ∫ 4t P(T > t) dt or E|T| = ∫ 2 P(T > t) dt over t > 0, or sums over the integers."""
    power = 2 if loss == "squared" else 1
    deviation = math.sqrt(law_variance(law))
    if not hasattr(law.dist, "_logpdf"):
        # Where the law is wide every h-th integer says the same, up to (h/std)²/12 from its corner at 0.
        h = max(int(deviation * _STRIDE), 1) if law.dist.name in ("dlaplace", "discrete_gaussian") else 1
        k = h * np.arange(1.0, math.ceil(60 * deviation / h) + 3)
        return 2 * h * float(np.sum(k**power * law.pmf(k)))
    top, starts = min(float(law.support()[1]), 80 * deviation), np.zeros(1)
    edges, order = np.append(np.arange(0, top, deviation / 4), top), 16
    if law.dist.name == "staircase":
        (_, gamma), _, step = law.dist._parse_args(*law.args, **law.kwds)
        # Where ε is large the law is narrower than its first step, and costs beyond it; where ε is tiny it has a great many
        # steps, and is without memory from one block of them to the next.
        shells = 3 + math.ceil(top / step)
        block = min(shells, _BLOCK)
        starts = step * block * np.arange(math.ceil(shells / block))
        edges = np.add.outer(step * np.arange(block + 1), [0.0, gamma * step]).ravel()[:-1]
        order = 2  # exact: between the edges P(T > t) is a line
    edges = np.unique(edges)
    nodes, weights = np.polynomial.legendre.leggauss(order)
    width = np.diff(edges)[:, None]
    t = edges[:-1, None] + width * (1 + nodes) / 2
    mass = law.sf(t) * weights * width / 2
    reached = law.sf(starts) / law.sf(0.0)  # each block's share of the first one's masses
    within = [float(np.sum(t**j * mass)) for j in range(power)]
    whole = within[0] if power == 1 else starts * within[0] + within[1]
    return 2 * power * float(np.sum(reached * whole))


@np.errstate(under="ignore")
def least_cost(noise: AdditiveNoise, privacy: CentralPrivacy, loss: str) -> float:
    """What any symmetric law costs at least that is as private; log-concave, where `noise` is. 0 for discrete laws.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.problem.privacy import PureDP
    >>> three = AdditiveNoise(stats.laplace(scale=3.0), 1.0, 3)
    >>> round(least_cost(three, PureDP(1.0), "squared"), 2), three.variance   # three coordinates: 3 · 2/ε²
    (6.0, 18.0)
    """
    if not noise.continuous:
        return 0.0
    if isinstance(privacy, TradeOff):
        return max(least_cost(noise, part, loss) for part in parts_of(privacy))
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
    """The largest change of one coordinate, and the largest ‖v‖₂² of changes that are allowed."""
    s, k = noise.sensitivity, noise.dimension
    if isinstance(s, Sensitivity) and noise.sampling_rate < 1 and s.own is not None:
        move = min(s.own, s.largest_l2(k))  # in the place of another record is one that contributes nothing
        return move, move * move
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
    epsilon = max(epsilon, 1e-9)  # what is private at ε is so above it
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


def too_small(noise: AdditiveNoise, privacy: CentralPrivacy) -> float:
    """A share of the scale at which the law is not private, as near 1 as a few looks show; 0 where none does."""
    return next((share for share in _SHARES if exceeds(noise, privacy, share)), 0.0)


def exceeds(noise: AdditiveNoise, privacy: CentralPrivacy, share: float) -> bool:
    """Whether a continuous law at this share of its scale is over the budget, from below."""
    dist, shapes, _, scale = frozen_parts(noise.law)
    return over_budget(replace(noise, law=dist(*shapes, scale=scale * share)), privacy)


@np.errstate(under="ignore")
def over_budget(noise: AdditiveNoise, privacy: CentralPrivacy) -> bool:
    """Whether a law consumes more than the budget, from below."""
    if isinstance(privacy, TradeOff):
        return any(over_budget(noise, part) for part in parts_of(privacy))
    cases = noise.worst_cases
    if isinstance(privacy, GaussianDP):
        return consumed(noise, privacy).lower > privacy.mu and cases.exact
    if isinstance(privacy, ZeroConcentratedDP):
        if isinstance(noise.sensitivity, Sensitivity):
            return False  # ρ is known from above alone
        return consumed(noise, privacy).upper * (1 - 1e-8) > privacy.rho
    if not (delta := getattr(privacy, "delta", 0.0)):
        return consumed(noise, privacy).upper * (1 - 1e-9) > privacy.epsilon
    changes = cases.attained or (cases.alternatives[:1] if cases.exact else ())
    return any(lower_delta(terms, privacy.epsilon, **noise.in_rounds) > delta for terms in changes)
