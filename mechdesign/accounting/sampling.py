r"""Poisson subsampling of a gridded privacy loss.

A record takes part in a round with probability s. If (P, Q) dominates the round without sampling, then

- removing a record: (sP + (1 − s)Q, Q) dominates, of loss log(1 − s + s e^l);
- adding a record: (Q, sP + (1 − s)Q) dominates, of loss −log(1 − s + s e^l)

(Zhu, Dong and Wang, *Optimal accounting of differential privacy via characteristic function*, 2022). The K
coordinates of a round share the sample, so they are convolved first and sampled together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mechdesign.accounting.composition import Part, Tilt, convolve, find_tilt
from mechdesign.accounting.grid import GridLoss, discretise_atoms
from mechdesign.accounting.law import AtomicLoss
from mechdesign.typing import Array

__all__ = ["compose_grid", "subsampled_parts"]

_WINDOW = 20
"""Standard deviations of a composed loss that its window takes, about."""
_TRIED = 2**14
"""Steps that are tried for two atoms: where losses differ in their tenth digit alone, there are billions."""
_FEW, _MANY = 2**19, 2**21
"""Points of that window, unless accuracy asks for more: from above, where the step counts twice, and from below."""


def compose_grid(parts: Sequence[Part]) -> GridLoss:
    """Convolve parts into one gridded loss; FFT and window errors become its `error`."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    step = parts[0][0].step
    total = variance = log_total = 0.0
    for grid, count in parts:
        mass = grid.mass / grid.mass.sum()
        mean = mass @ grid.points
        total += count * mean
        variance += count * float(mass @ (grid.points - mean) ** 2)
        log_total += count * math.log(grid.mass.sum())
    start, mass, l2_error, outside = convolve(parts, Tilt(0.0, 0.0, float(total), variance))
    scale = math.exp(log_total)
    error = (l2_error * math.sqrt(mass.size) + 2 * outside) * scale
    infinite = -math.expm1(sum(c * math.log1p(-min(g.infinity, 1 - 1e-16)) for g, c in parts))
    slop = sum(c * g.slop for g, c in parts)
    extra = sum(c * g.error for g, c in parts)
    return GridLoss(
        step, start, np.maximum(mass, 0) * scale, infinite, slop, parts[0][0].pessimistic, error + extra
    )


def _sampled(loss: Array, rate: float) -> Array:
    """log(1 − q + q e^x), by e^−x where e^x is past the doubles."""
    with np.errstate(under="ignore"):
        small, large = np.minimum(loss, 1.0), np.maximum(loss, 1.0)
        above = large + np.log(rate + (1 - rate) * np.exp(-large))
    return np.where(loss <= 1.0, np.log1p(rate * np.expm1(small)), above)


def subsampled_parts(
    parts: Sequence[Part], sampling: float, rounds: int, epsilon: float, *, width: float
) -> tuple[list[Part], list[Part]]:
    """Return the composition of `rounds` sampled rounds, for removing and for adding a record.

    `width` is the relative accuracy wanted of δ(ε): it sets the step after sampling.
    """
    base = compose_grid(parts)
    if (
        not base.pessimistic and not base.mass.any()
    ):  # all losses are far beyond ε: from below nothing is known
        return [(base, rounds)], [(base, rounds)]
    points = base.points + (base.slop if base.pessimistic else -base.slop)
    mass = base.mass
    with np.errstate(under="ignore"):
        other = mass * np.exp(-points)
    # From above, losses were raised, and Q has the mass that is missing where P has none: loss −∞ before sampling. From below
    # they were lowered, as if Q had more mass than it has: (sP + (1 − s)Q', Q') is then a mixture of the true pair with one that
    # tells nothing of a removed record, once both are divided by the mass of Q'.
    missing = max(1.0 - float(other.sum()), 0.0)
    law = 1.0 if base.pessimistic else 1.0 / max(float(other.sum()), 1.0)
    least = math.log1p(-sampling) if sampling < 1 else -math.inf
    remove = AtomicLoss(
        np.append(_sampled(points, sampling), least),
        np.append((sampling * mass + (1 - sampling) * other) * law, (1 - sampling) * missing),
        sampling * base.infinity,
    )
    # Laws are symmetric: (Q, sP + (1 − s)Q) has the losses of (P, sQ + (1 − s)P), which rise with those of (P, Q).
    add = AtomicLoss(np.append(-_sampled(-points, sampling), -least), np.append(mass, base.infinity))
    out = []
    for loss in (remove, add):
        alive = loss.mass > 0
        order = np.argsort(loss.values[alive], kind="stable")
        loss = AtomicLoss(loss.values[alive][order], loss.mass[alive][order], loss.infinity)
        span = float(np.ptp(loss.values)) or max(abs(float(loss.values[0])), 1e-12)  # of one value: any
        coarse = discretise_atoms(loss, span / 4000, pessimistic=True)
        tilt = find_tilt([(coarse, rounds)], epsilon)
        wanted = math.sqrt(2 * width / (max(tilt.theta * (tilt.theta + 1), 1e-9) * rounds))
        if loss.infinity == 0 and rounds * (float(loss.values[-1]) + span / 2000) < epsilon:
            wanted = span  # ε is out of reach: any step sees that
        # from above 300 points of the round's loss already give half a percent
        cells = 300 if base.pessimistic and width >= 0.02 else 2000
        # and no more points of the composition than tell, however many rounds there are
        coarsest = max(
            span / cells, _WINDOW * math.sqrt(tilt.variance) / (_FEW if base.pessimistic else _MANY)
        )
        step = max(min(wanted, coarsest), span / 2**21)
        if not base.pessimistic:
            step = _on_atoms(loss, step, tilt.theta)
        grid = discretise_atoms(loss, step, pessimistic=base.pessimistic, theta=tilt.theta, smear=True)
        grid = GridLoss(step, grid.start, grid.mass, grid.infinity, grid.slop, grid.pessimistic, base.error)
        out.append([(grid, rounds)])
    return out[0], out[1]


def _on_atoms(loss: AtomicLoss, step: float, theta: float) -> float:
    """Shrink the step, by a fifth at most, so that the two values that weigh most are nearly on the grid.

    From below an atom of many rounds costs its distance to the grid, times their number: nothing else is of first order.
    """
    with np.errstate(divide="ignore", under="ignore"):
        weights = np.log(loss.mass) + theta * loss.values
    first, second = (float(loss.values[i]) for i in np.argsort(weights)[-2:])
    if abs(first) < step:  # a finer grid would have as many points more
        return step
    count = math.ceil(abs(first) / step)
    steps = abs(first) / np.arange(count, min(max(count * 5 // 4, count + 1), count + _TRIED))
    away = np.abs(second / steps - np.round(second / steps))
    return float(steps[np.argmin(away)])
