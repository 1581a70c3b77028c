"""How finely privacy losses are put on a grid: steps, tails and tilts, from a first coarse pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import expit, logit

from mechdesign.accounting.composition import Part, cumulants, find_tilt
from mechdesign.accounting.enclosure import Coordinates
from mechdesign.accounting.grid import discretise
from mechdesign.accounting.law import AtomicLoss, NoiseLaw
from mechdesign.accounting.loss import CentredLoss, Loss, frozen_parts, loss_of, of_scipy
from mechdesign.accounting.sampling import compose_grid, sampled_parts
from mechdesign.accounting.terms import NoiseTerm
from mechdesign.errors import DesignError
from mechdesign.evidence.rounding import round_down, round_up

__all__ = ["FLOOR", "GridPlan", "apart", "in_sigmas", "is_gaussian", "plan_grid", "sampled_plan"]

FLOOR = 1e-300
"""The smallest tail that is cut off: doubles hold hardly less."""
_EXTREME = 1e100
_NORMAL = {"norm": (), "gennorm": (2.0,)}


@dataclass(frozen=True)
class GridPlan:
    """Tails, step and tilt that a first coarse pass suggests, and that pass itself: from above, for want of better."""

    losses: tuple[tuple[Loss, int], ...]
    step: float
    theta: float
    upper_tail: float
    lower_tail: float
    coarse: tuple[Part, ...] = ()
    lowered: tuple[tuple[Loss, int], ...] = ()
    """The losses from below, where those above are only rounded up."""
    finer: float = 1.0
    """What the step is multiplied by from below."""

    def parts(self, step: float, *, pessimistic: bool, exact: bool = False) -> list[Part]:
        losses = self.losses if pessimistic or not self.lowered else self.lowered
        step = step if pessimistic else self.align(step * self.finer)
        return [
            (
                discretise(
                    loss,
                    step,
                    pessimistic=pessimistic,
                    upper_tail=self.upper_tail,
                    lower_tail=self.lower_tail,
                    theta=self.theta,
                    exact=exact,
                ),
                count,
            )
            for loss, count in losses
        ]

    def align(self, step: float) -> float:
        """Shrink the step so that the atoms of the first loss that has any are on the grid; not below such an atom."""
        for loss, _ in self.losses:
            if loss.atoms and loss.atoms[0] >= step:
                return loss.atoms[0] / math.ceil(loss.atoms[0] / step - 1e-9)
        return step


def _spread(loss: Loss) -> tuple[float, float]:
    """A typical size of the loss, and its largest finite value down to tails of 1e-290."""
    if isinstance(loss, AtomicLoss):
        return float(np.abs(loss.values).max()), float(loss.values.max())
    if loss.edge <= 0:  # the two laws share no point: all of it is infinite, on any grid
        return 1.0, 1.0
    half = loss.sensitivity / 2
    typical = float(loss.loss(min(float(loss.isf(0.15)) + half, loss.edge)))
    largest = float(loss.loss(min(float(loss.isf(1e-290)) + half, loss.edge)))
    return max(typical, largest * 1e-6), largest


def apart(terms: tuple[NoiseTerm, ...]) -> bool:
    """Whether a coordinate changes by more than its noise reaches, so that neighbours share no answer."""
    losses = (loss_of(t.law, t.sensitivity) for t in terms)
    return any(isinstance(loss, CentredLoss) and loss.edge <= 0 for loss in losses)


def plan_grid(terms: tuple[NoiseTerm, ...], epsilon: float, width: float) -> GridPlan:
    losses = tuple((loss_of(t.law, t.sensitivity), t.count) for t in terms)
    count = sum(c for _, c in losses)
    sizes = [_spread(loss) for loss, _ in losses]
    step = max(min(s for s, _ in sizes) / 6, max(m for _, m in sizes) / 50_000)
    if not step > 1e-150:
        least = min(t.sensitivity / float(t.law.std()) for t in terms)
        raise DesignError.of(
            "sensitivity", least, "is so small beside the noise that doubles see no privacy loss"
        )
    plan = GridPlan(losses, step, 0.0, 1e-290, 1e-12 * width / count)
    step = plan.align(step)
    coarse = plan.parts(step, pessimistic=True)
    tilt = find_tilt(coarse, epsilon)
    log_delta = min(tilt.log_chernoff(epsilon), 0.0) if tilt.log_mgf > -math.inf else -650.0
    upper_tail = max(math.exp(max(log_delta, -690.0)) * 1e-10 * width / count, FLOOR)
    # Second-order effects of the step on log δ: θ(θ+1)·count·step²/8 in all.
    theta = tilt.theta
    wanted = math.sqrt(4 * width / (max(theta * (theta + 1), 1e-12) * count))
    fine = min(wanted, step * 1.5, math.sqrt(max(tilt.variance, 1e-300)) / 8)
    # Close to the largest possible loss θ diverges; there the atoms decide, and they are on the grid.
    fine = max(fine, step / 200, max(m for _, m in sizes) * 2e-6)
    if epsilon >= sum(loss_top * c for (_, c), (_, loss_top) in zip(losses, sizes)):
        fine = step
    return GridPlan(losses, plan.align(fine), theta, upper_tail, plan.lower_tail, tuple(coarse))


def sampled_plan(
    terms: tuple[NoiseTerm, ...], epsilon: float, width: float, rounds: int, sampling_rate: float
) -> GridPlan:
    """The grid of one round, before it is sampled."""
    terms, lowered = _rotated(terms)
    # What matters in a round lies below the loss that one sampled record needs to reach ε on its own.
    reachable = 0.5 * sum(_spread(loss_of(t.law, t.sensitivity))[1] * t.count for t in terms)
    plan = plan_grid(terms, min(math.log1p(math.expm1(epsilon) / sampling_rate) / 2, reachable), width)
    # A million points of the composed round, 37 standard deviations either way, are as many as tell.
    count = sum(n for _, n in plan.losses)
    spread = math.sqrt(max(cumulants(plan.coarse, 0.0).variance, 0.0))
    least = 74 * spread / 2**21 if count > 1 else 0.0
    plan = replace(plan, step=plan.align(max(plan.step, least)))
    base = compose_grid(plan.parts(plan.step, pessimistic=True))
    sampled = sampled_parts(base, sampling_rate, rounds, epsilon, width=width)
    # Sampling shrinks distances between losses, to q of them where losses are small: the grid before it may be so much wider,
    # but from below, where the step counts once and not twice.
    after = sampled[0][0][0].step
    shrunk = float(expit(float(base.points[-1]) + logit(sampling_rate)))
    step = min(plan.step, max(after / shrunk, plan.step / 200, least))
    finer = min(plan.step, max(after, plan.step / (200 if count == 1 else 10), least)) / step
    tail = plan.upper_tail * 1e-3
    return replace(plan, step=plan.align(step), upper_tail=tail, lowered=lowered, finer=finer)


def _rotated(terms: tuple[NoiseTerm, ...]) -> tuple[tuple[NoiseTerm, ...], tuple[tuple[Loss, int], ...]]:
    """One coordinate for all normal ones, of μ² = ΣΔ²/σ² rounded up, and its loss with μ rounded down."""
    if sum(t.count for t in terms) == 1 or not all(is_gaussian(t.law) for t in terms):
        return terms, ()
    square = sum(n * Fraction(d) ** 2 * h / Fraction(s) ** 2 for n, d, s, h in map(in_sigmas, terms))
    if not _EXTREME**-2 < square < _EXTREME**2:
        return terms, ()
    unit = stats.norm()
    above = math.nextafter(math.sqrt(round_up(square)), math.inf)
    below = math.nextafter(math.sqrt(round_down(square)), 0.0)
    return (NoiseTerm(unit, above),), ((loss_of(unit, below), 1),)


def is_gaussian(law: Any) -> bool:
    """Normal, or that member of a family that contains it (b = 0, β = 2)."""
    dist, shapes, loc, _ = frozen_parts(law)
    ours = isinstance(dist, NoiseLaw) and getattr(dist, "name", "") in ("flipped_huber", "osgt")
    return loc == 0 and shapes == ((0.0,) if ours else _NORMAL.get(of_scipy(dist)))


def in_sigmas(term: NoiseTerm) -> Coordinates:
    """(n, Δ, s, h) of n coordinates with normal noise of variance s²/h."""
    dist, _, _, scale = frozen_parts(term.law)
    # gennorm(2) is exp(-t²), of variance 1/2
    return term.count, float(term.sensitivity), scale, 2 if dist.name == "gennorm" else 1
