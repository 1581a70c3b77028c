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
from dataclasses import dataclass, replace

import numpy as np

from mechdesign.accounting.composition import (
    GridLoss,
    Part,
    Tilt,
    convolve,
    cumulants,
    discretise_atoms,
    find_tilt,
)
from mechdesign.accounting.losses import AtomicLoss
from mechdesign.typing import Array

_WINDOW = 20
"""Standard deviations of a composed loss that its window takes, about."""
_STRETCHES = 16
"""Convolutions of a round, at most."""
_ROUND = 2**16
"""Points of a round before it is sampled, about: a thousandth of what it is certain to."""
_PAST = 700.0
_ROUNDED = 1e-15
"""What roundings do to a loss that is a multiple of a step, relative."""
_NEGLIGIBLE = 1e-290
"""Mass that may as well have an infinite loss."""
_TRIED = 2**14
"""Steps that are tried for two atoms: where losses differ in their tenth digit alone, there are billions."""
_FEW, _MANY = 2**19, 2**21
"""Points of that window, unless accuracy asks for more: from above, where the step counts twice, and from below."""


def compose_grid(parts: Sequence[Part]) -> GridLoss:
    """Convolve the parts into one gridded loss whose masses are bounds of the true ones, point by point.

    δ of any rounds to come rises with every mass, so that nothing is left over to be added to it, as many times as there are
    rounds. A convolution is certain to about 1e-13 of its *tilted* peak: one is made for the bulk of P, one for that of Q
    (whose law is P tilted by θ = −1), and one for each stretch of the upper tail, and each point has the best of its bounds.
    """
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    step, pessimistic = parts[0][0].step, parts[0][0].pessimistic
    infinite = -math.expm1(sum(c * math.log1p(-min(g.infinity, 1 - 1e-16)) for g, c in parts))
    negligible = max(0.01 * infinite, _NEGLIGIBLE)
    stretches = _stretches(parts, negligible)
    if not stretches:
        return GridLoss(step, 0, np.zeros(1), infinite, sum(c * g.slop for g, c in parts), pessimistic)
    start = min(s.first for s in stretches)
    size = max(s.first + s.mass.size for s in stretches) - start
    losses: Array = step * np.arange(start, start + size, dtype=float)
    mass = np.full(size, math.inf if pessimistic else 0.0)
    for stretch in stretches:
        inner = slice(stretch.first - start, stretch.first - start + stretch.mass.size)
        if pessimistic:
            tilted = np.full(size, stretch.outside)
            tilted[inner] = np.maximum(stretch.mass, 0) + stretch.error
            mass = np.minimum(mass, stretch.untilted(tilted, losses, up=True))
        else:
            tilted = np.maximum(stretch.mass - stretch.error - stretch.outside, 0)
            untilted = stretch.untilted(tilted, losses[inner], up=False)
            mass[inner] = np.maximum(mass[inner], untilted)
    if pessimistic:
        low, high = stretches[0], stretches[-1]
        if start > sum(c * g.start for g, c in parts):
            mass[0] += low.beyond(step * start)
        if start + size <= sum(c * (g.start + g.mass.size - 1) for g, c in parts):
            infinite += max(high.beyond(step * (start + size - 1)), _NEGLIGIBLE)
    # points that hold next to nothing would only widen the grid
    tail = np.cumsum(mass[::-1])
    spare = min(int(np.searchsorted(tail, negligible, side="right")), size - 1) if infinite > 0 else 0
    if spare:
        infinite += float(tail[spare - 1]) * (1 + 1e-12) if pessimistic else 0.0
        mass = mass[:-spare]
    slop = sum(c * g.slop for g, c in parts)
    return GridLoss(step, start, mass, min(infinite, 1.0), slop, pessimistic)


@dataclass(frozen=True)
class _Stretch:
    """The composed law, tilted so that it is precise on one stretch of losses: mass on the grid from `first` on."""

    tilt: Tilt
    first: int
    mass: Array
    error: float
    """Of each of the masses."""
    outside: float
    """Bounds the tilted mass on either side of them."""

    def untilted(self, tilted: Array, losses: Array, *, up: bool) -> Array:
        """The masses of P, rounded up or down."""
        exponent = self.tilt.log_mgf - self.tilt.theta * losses
        slack = 1e-14 * (10 + np.abs(self.tilt.log_mgf) + np.abs(self.tilt.theta * losses))
        with np.errstate(under="ignore", over="ignore"):
            return np.asarray(tilted * np.exp(exponent + (slack if up else -slack)))

    def beyond(self, loss: float) -> float:
        """Bound P's mass on the far side of a loss at the end of the stretch: below it if θ ≤ 0, above it if θ ≥ 0."""
        return float(self.untilted(np.array([self.outside]), np.array([loss]), up=True)[0])


def _stretches(parts: Sequence[Part], negligible: float) -> list[_Stretch]:
    """Stretches from the bulk of Q up to where P has no more than `negligible` beyond."""
    out: list[_Stretch] = []
    step = parts[0][0].step
    ceiling = sum(count * (grid.start + grid.mass.size - 1) for grid, count in parts)
    for theta in (-1.0, 0.0):
        out += _stretch(parts, cumulants(parts, theta))
    while out and len(out) < _STRETCHES:
        tilt, last = out[-1].tilt, out[-1].first + out[-1].mass.size - 1
        level, spread = step * last, math.sqrt(max(tilt.variance, 0.0))
        if last >= ceiling:  # the end is in sight, but may be so improbable there that rounding hides it
            if level - tilt.mean <= 4 * spread:
                break
            level -= (level - tilt.mean) / 4
        elif out[-1].beyond(level) <= negligible:
            break
        further = find_tilt(parts, level, guess=tilt.theta)
        if not further.theta > tilt.theta:
            break
        out += _stretch(parts, further)
    return out


def _stretch(parts: Sequence[Part], tilt: Tilt) -> list[_Stretch]:
    if not math.isfinite(tilt.log_mgf):
        return []
    first, mass, _, each, outside = convolve(parts, tilt)
    return [_Stretch(tilt, first, mass, each, outside)]


def loss_before(epsilon: float, rate: float) -> float:
    """log(1 + (e^ε − 1)/q), the loss that a sample at rate q turns into ε, to a few roundings of itself.

    Of one round H(sP + (1 − s)Q | Q) at e^ε is s H(P | Q) at that loss; for symmetric pairs an added record tells no more.
    """
    if epsilon > _PAST:
        return epsilon - math.log(rate)
    return math.log1p(math.expm1(epsilon) / rate)


def _sampled(loss: Array, rate: float) -> Array:
    """log(1 − q + q e^x) to a few roundings of itself, by e^−x where e^x is past the doubles."""
    with np.errstate(under="ignore"):
        small, large = np.minimum(loss, _PAST), np.maximum(loss, _PAST)
        above = large + np.log(rate + (1 - rate) * np.exp(-large))
    return np.where(loss <= _PAST, np.log1p(rate * np.expm1(small)), above)


def sampled_parts(
    base: GridLoss, sampling_rate: float, rounds: int, epsilon: float, *, width: float
) -> tuple[list[Part], list[Part]]:
    """Return the composition of `rounds` sampled rounds, each on the grid `base`, for removing and for adding a record.

    `width` is the relative accuracy wanted of δ(ε): it sets the step after sampling.
    """
    if (
        not base.pessimistic and not base.mass.any()
    ):  # all losses are far beyond ε: from below nothing is known
        return [(base, rounds)], [(base, rounds)]
    base = _thinned(base)
    points = base.points + (base.slop if base.pessimistic else -base.slop)
    mass = base.mass
    with np.errstate(divide="ignore", under="ignore"):
        other = np.exp(np.log(mass) - points)
    # From above, losses were raised, and Q has the mass that is missing where P has none: loss −∞ before sampling. From below
    # they were lowered, as if Q had more mass than it has: (sP + (1 − s)Q', Q') is then a mixture of the true pair with one that
    # tells nothing of a removed record, once both are divided by the mass of Q'.
    # What is too little to matter would only widen the grid: from above it has the least finite loss, from below none.
    missing = max(1.0 - float(other.sum()), 0.0)
    law = 1.0 if base.pessimistic else 1.0 / max(float(other.sum()), 1.0)
    sampled, never = _sampled(points, sampling_rate), math.log1p(-sampling_rate)
    least = never
    if rounds * missing <= 0.01 * width:
        least, missing = (float(sampled[0]), missing) if base.pessimistic else (never, 0.0)
    remove = AtomicLoss(
        np.append(sampled, least),
        np.append((sampling_rate * mass + (1 - sampling_rate) * other) * law, (1 - sampling_rate) * missing),
        sampling_rate * base.infinity,
    )
    # Laws are symmetric: (Q, sP + (1 − s)Q) has the losses of (P, sQ + (1 − s)P), which rise with those of (P, Q).
    infinite = base.infinity if base.pessimistic and base.infinity <= 3 * _NEGLIGIBLE else 0.0
    add = AtomicLoss(
        np.append(-_sampled(-points, sampling_rate), -never),
        np.append(mass, base.infinity - infinite),
        infinite,
    )
    out = []
    for loss in (remove, add):
        alive = loss.mass > 0
        order = np.argsort(loss.values[alive], kind="stable")
        values = loss.values[alive][order]
        values = values + np.abs(values) * (_ROUNDED if base.pessimistic else -_ROUNDED)
        loss = AtomicLoss(values, loss.mass[alive][order], loss.infinity)
        span = max(float(np.ptp(values)), 1e-9 * float(np.abs(values).max()), 1e-150)
        coarse = discretise_atoms(loss, span / 4000, pessimistic=True)
        tilt = find_tilt([(coarse, rounds)], epsilon)
        wanted = math.sqrt(2 * width / (max(tilt.theta * (tilt.theta + 1), 1e-9) * rounds))
        if rounds * (float(loss.values[-1]) + span / 2000) < epsilon:
            wanted = span  # ε is out of reach: any step sees that
        # from above 300 points of the round's loss already give half a percent
        cells = 300 if base.pessimistic and width >= 0.02 else 2000
        # and no more points of the composition than tell, however many rounds there are
        coarsest = max(
            span / cells, _WINDOW * math.sqrt(tilt.variance) / (_FEW if base.pessimistic else _MANY)
        )
        step = max(min(wanted, coarsest), span / 2**21)
        if not base.pessimistic and loss.values.size > 1:
            step = _on_atoms(loss, step, tilt.theta)
        grid = discretise_atoms(loss, step, pessimistic=base.pessimistic, theta=tilt.theta, smear=True)
        out.append([(grid, rounds)])
    return out[0], out[1]


def _thinned(base: GridLoss) -> GridLoss:
    """A round from above on fewer points: many coordinates need millions before they are convolved, and none of them after."""
    by = base.mass.size // _ROUND
    if by < 2 or not base.pessimistic:
        return base
    alive = base.mass > 0
    loss = AtomicLoss(base.points[alive], base.mass[alive], base.infinity)
    thin = discretise_atoms(loss, by * base.step, pessimistic=True)
    return replace(thin, slop=thin.slop + base.slop)


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
