"""The grid on which losses are composed: its step, tails and tilt, from a first coarse pass."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechdesign.accounting.composition import Part, composed_delta, find_tilt
from mechdesign.accounting.grids import MOST, discretise
from mechdesign.accounting.losses import AtomicLoss, CentredLoss, Loss, NoiseTerm, loss_of
from mechdesign.doubles import ROUNDED, TINY
from mechdesign.errors import DesignError
from mechdesign.problem.law_moments import law_variance

FLOOR = 1e-300
"""Smallest tail that is cut off, near the least double."""


@dataclass(frozen=True)
class GridPlan:
    """Tails, step and tilt from a first coarse pass, and that pass itself, an upper bound if time is short."""

    losses: tuple[tuple[Loss, int], ...]
    step: float
    theta: float
    upper_tail: float
    lower_tail: float
    coarse: tuple[Part, ...] = ()
    epsilon: float = math.inf

    @property
    def most(self) -> float:
        """Loss beyond which losses are taken as infinite: ε less the tail's logarithm, which no other losses offset."""
        return self.epsilon - math.log(self.upper_tail)

    @property
    def count(self) -> int:
        """Number of losses that are composed."""
        return sum(count for _, count in self.losses)

    def finest(self, points: int) -> float:
        """Return the least step with at most `points` points for one loss."""
        return 2 * min(max(largest(loss, self.upper_tail) for loss, _ in self.losses), self.most) / points

    def delta(
        self, epsilon: float, step: float, *, pessimistic: bool, enough: float = 0.0, most: int = MOST
    ) -> float:
        """Bound δ(ε) on the grid of this step, from above or from below; only roughly if it is below `enough`."""
        parts = self.parts(step, pessimistic=pessimistic, epsilon=epsilon)
        return composed_delta(parts, epsilon, guess=self.theta, enough=enough, most=most)[0]

    def parts(self, step: float, *, pessimistic: bool, epsilon: float = -math.inf) -> list[Part]:
        """Discretise the losses; what sums to at most `epsilon` whatever the others are is left out, but for first cells, whose tangents are poor."""
        tops = [min(largest(loss, self.upper_tail), self.most) for loss, _ in self.losses]
        spare = sum(top * count for top, (_, count) in zip(tops, self.losses)) * (1 + ROUNDED) - epsilon
        return [
            (
                discretise(
                    loss,
                    step,
                    pessimistic=pessimistic,
                    upper_tail=self.upper_tail,
                    lower_tail=self.lower_tail,
                    most=self.most,
                    least=top - spare - 4096 * step,
                ),
                count,
            )
            for top, (loss, count) in zip(tops, self.losses)
        ]

    def align(self, step: float) -> float:
        """Shrink the step so that the atoms of the first loss with an atom of at least a step are on the grid."""
        for loss, _ in self.losses:
            if loss.atoms and loss.atoms[0] >= step:
                return loss.atoms[0] / math.ceil(loss.atoms[0] / step - 1e-9)
        return step

    def near_atoms(self, epsilon: float) -> bool:
        """Return whether all atoms sum to nearly ε, so that δ may depend on that sum alone."""
        if not all(isinstance(loss, CentredLoss) and loss.atoms for loss, _ in self.losses):
            return False
        return (
            abs(sum(loss.atoms[0] * count for loss, count in self.losses) / max(epsilon, 1e-300) - 1) < 0.05
        )


def largest(loss: Loss, tail: float) -> float:
    """Return the largest finite loss outside a tail of this probability; 1 if the two laws share no point."""
    if isinstance(loss, AtomicLoss):
        return float(np.abs(loss.values).max())
    if loss.edge <= 0:
        return 1.0
    return float(loss.loss(min(float(loss.isf(tail)) + loss.sensitivity / 2, loss.edge)))


def apart(terms: tuple[NoiseTerm, ...]) -> bool:
    """Return whether a coordinate changes by at least the width of its noise, so that neighbours share no answer."""
    losses = (loss_of(t.law, t.sensitivity) for t in terms)
    return any(isinstance(loss, CentredLoss) and loss.edge <= 0 for loss in losses)


def typical(terms: tuple[NoiseTerm, ...]) -> float:
    """Return the largest of the terms' losses that half of the noise exceeds."""
    with np.errstate(over="ignore"):
        return max(largest(loss_of(t.law, t.sensitivity), 0.5) for t in terms)


def plan_grid(terms: tuple[NoiseTerm, ...], epsilon: float, width: float) -> GridPlan:
    losses = tuple((loss_of(t.law, t.sensitivity), t.count) for t in terms)
    count = sum(c for _, c in losses)
    tops = [min(largest(loss, TINY), epsilon - math.log(TINY)) for loss, _ in losses]
    usual = [max(largest(loss, 0.15), top * 1e-6) for (loss, _), top in zip(losses, tops)]
    step = max(min(usual) / 6, max(tops) / 50_000)
    if not step > 1e-150:
        least = min(t.sensitivity / math.sqrt(law_variance(t.law)) for t in terms)
        raise DesignError.of(
            "sensitivity", least, "is so small, compared with the noise, that doubles see no privacy loss"
        )
    plan = GridPlan(losses, step, 0.0, TINY, 1e-12 * width / count, epsilon=epsilon)
    step = plan.align(step)
    coarse = plan.parts(step, pessimistic=True)
    tilt = find_tilt(coarse, epsilon)
    log_delta = min(tilt.log_chernoff(epsilon), 0.0) if tilt.log_mgf > -math.inf else 0.0
    upper_tail = max(math.exp(max(log_delta, -690.0)) * 1e-10 * width / count, FLOOR)
    # Second-order effects of the step on log δ: θ(θ+1)·count·step²/8 in all.
    theta = tilt.theta
    wanted = math.sqrt(4 * width / (max(theta * (theta + 1), 1e-12) * count))
    fine = min(wanted, step * 1.5, math.sqrt(max(tilt.variance, 1e-300)) / 8)
    # Close to the largest possible loss θ diverges; there the atoms decide, and they are on the grid.
    fine = max(fine, step / 200, max(tops) * 2e-6)
    if epsilon >= sum(top * c for (_, c), top in zip(losses, tops)):
        fine = step
    return GridPlan(losses, plan.align(fine), theta, upper_tail, plan.lower_tail, tuple(coarse), epsilon)
