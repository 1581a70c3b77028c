r"""The privacy loss of a cell law above those of all its shifts, and δ(ε) of K coordinates.

With :math:`D_k(\alpha) = \sum_j [p_j - \alpha p_{j+k}]_+` of a shift by k cells, a shift by :math:`(k + \theta)\beta` has
:math:`(1-\theta) D_k + \theta D_{k+1}`: the pair of laws is that of k or of k + 1 cells, by a coin that may be seen. K
shifted coordinates are therefore a mixture of products over whole cells, and whatever dominates every :math:`D_k`,
k ≤ n, dominates in each factor.

Where the law is log-concave (decided in integers) shift n is worst: best events are half lines, and
:math:`D_k(\alpha) = \max_t P(J \ge t) - \alpha P(J \ge t + k)` grows with k. Otherwise :math:`h = \max_k D_k` is used,
a convex function of α and so itself the curve of a pair of laws: the chords of its values on a grid, computed with their
rounding errors added, lie above it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from mechdesign.accounting.composition import composed_delta, discretise_atoms
from mechdesign.accounting.interval import DeltaInterval
from mechdesign.accounting.losses import AtomicLoss
from mechdesign.evidence.certificate import PROVED
from mechdesign.evidence.rounding import round_down, round_up
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.many.pieces import Pieces, pieces
from mechdesign.typing import Array

__all__ = ["composed_upper", "dominating_loss", "many_interval"]

_POINTS = 4096
_PAIRS = 3 * 10**8  # pieces times shifts: beyond, the plain composition of exact sums must do
_MOST = 2**20  # grid points of one coordinate


def log_concave(law: CellNoise) -> bool:
    """Whether the weights are log-concave with no gap: in integers, without rounding."""
    w = law.weights
    used = [i for i, x in enumerate(w) if x]
    solid = bool(used) and len(used) == used[-1] - used[0] + 1
    return (
        solid and not law.decay and not law.spike and all(b * b >= a * c for a, b, c in zip(w, w[1:], w[2:]))
    )


@lru_cache(maxsize=32)
def dominating_loss(law: CellNoise) -> AtomicLoss:
    """Return a privacy loss that dominates that of every shift of one coordinate up to n cells.

    Masses are rounded upwards: they may sum to a hair more than one.
    """
    held = pieces(law)
    rounding = 1e-15 * len(held.heights)  # relative, of the sums
    if not law.spans and log_concave(law):
        a, b, lost = held.moved(law.cells_per_shift)
        return AtomicLoss(np.log(a) - np.log(b) + 1e-15, a * (1 + 1e-14), lost * (1 + rounding))
    if len(held.shifts) * len(held.heights) > _PAIRS:
        return AtomicLoss(np.zeros(1), np.zeros(1), 1.0)
    return _envelope(held, float(law.spike / law.total))


def _curve(held: Pieces, k: int, levels: Array) -> tuple[Array, float]:
    """D_k at e^levels, rounded up, and its limit: the mass whose partner has none."""
    a, b, infinite = held.moved(k)
    ratio = np.log(a) - np.log(b)
    order = np.argsort(ratio)
    above, below = (np.append(np.cumsum(x[order][::-1])[::-1], 0.0) for x in (a, b))
    i = np.searchsorted(ratio[order], levels, side="right")
    # cells within rounding of the level are on either side of it: they add next to nothing, which the slack covers
    slack = (2e-16 * len(a) + 1e-15) * (above[i] + np.exp(levels) * below[i])
    value = np.maximum(above[i] - np.exp(levels) * below[i], 0.0) + slack + infinite
    return value * (1 + 1e-15), infinite


def _envelope(held: Pieces, spike: float) -> AtomicLoss:
    """Connect the dots of max_k D_k."""

    def ratios_of(k: int) -> Array:
        a, b, _ = held.moved(k)
        return np.log(a) - np.log(b)

    ratios = ratios_of(held.shifts[-1])
    ratios = ratios if ratios.size else np.zeros(1)
    largest = [np.abs(ratios_of(k)).max(initial=0.0) for k in held.shifts]
    top = max(*largest, 1e-3) * (1 + 1e-12) + 1e-12
    levels = np.union1d(np.linspace(-top, top, _POINTS), ratios)
    # points closer than rounding allows slopes to be told apart are one, the upper
    keep = np.append(np.diff(levels) > 1e-7 * top, True)
    levels = levels[keep]
    height = np.zeros(levels.size)
    infinite = 0.0
    for k in held.shifts:
        value, lost = _curve(held, k, levels)
        height, infinite = np.maximum(height, value), max(infinite, lost)
    height[-1] = infinite = max(infinite, height[-1])
    hull = _lower_hull(np.exp(levels), height)
    levels, kept = levels[hull], height[hull]
    alpha = np.exp(levels)
    slope = -np.diff(kept) / np.diff(alpha)
    slope = np.concatenate([[(1 - kept[0]) / alpha[0]], slope, [0.0]])
    mass = alpha * np.maximum(slope[:-1] - slope[1:], 0.0)
    # What these atoms amount to must be no less than the curve: inflate by what rounding took away.
    tail_p = np.append(np.cumsum(mass[::-1])[::-1], 0.0)[1:]
    tail_q = np.append(np.cumsum((mass / alpha)[::-1])[::-1], 0.0)[1:]
    reached = infinite + np.maximum(tail_p - alpha * tail_q, 0.0) * (1 - 1e-15 * len(alpha))
    factor = max(1.0, float(np.max(kept / np.maximum(reached, 1e-300)))) * (1 + 1e-14)
    return AtomicLoss(levels, mass * factor, min(infinite * factor + spike, 1.0))


def _lower_hull(x: Array, y: Array) -> Array:
    """Indices of the lower convex hull of points with increasing x."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[b]) <= (y[i] - y[b]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.array(hull)


def composed_upper(loss: AtomicLoss, count: int, epsilon: float, *, fine: float = 1e-4) -> float:
    """Bound δ(ε) of `count` coordinates from above; the discretisation adds a share of about `fine`.

    Atoms at ε/K matter to staircases, others sit at the largest loss: one grid is aligned to each, and the better bound is
    taken.
    """
    if loss.infinity >= 1:
        return 1.0
    return min(_on_grid(loss, count, epsilon, unit, fine) for unit in _units(loss, count, epsilon))


def _units(loss: AtomicLoss, count: int, epsilon: float) -> list[float]:
    top = float(loss.values.max())
    return [u for u in {epsilon / count, top} if u > 0] or [1e-3]


def _on_grid(loss: AtomicLoss, count: int, epsilon: float, unit: float, fine: float) -> float:
    spread = float(np.ptp(loss.values)) or float(np.abs(loss.values).max()) or 1.0

    def step(wanted: float) -> float:
        return _aligned(unit, max(wanted, spread / _MOST))

    coarse = discretise_atoms(loss, step(spread / 2000), pessimistic=True)
    upper, tilt = composed_delta([(coarse, count)], epsilon)
    if epsilon >= count * float(loss.values.max()):
        return upper
    wanted = math.sqrt(8 * fine / (max(tilt.theta * (tilt.theta + 1), 1e-3) * count))
    if wanted >= coarse.step:
        return upper
    grid = discretise_atoms(loss, step(wanted), pessimistic=True)
    return min(upper, composed_delta([(grid, count)], epsilon, guess=tilt.theta)[0])


def _aligned(unit: float, wanted: float) -> float:
    """The longest step, at most `wanted`, of which `unit` is a multiple; `wanted` itself where the unit is shorter."""
    return unit / math.ceil(unit / wanted) if unit >= wanted else wanted


def many_interval(law: CellNoise, count: int, epsilon: float, *, fine: float = 1e-4) -> DeltaInterval:
    """Enclose δ(ε) of `count` coordinates with noise of this law, over all shifts up to n cells in each.

    The lower end is that of all coordinates shifted by n cells.
    """
    if count == 1:
        sums = law.hockey_stick(epsilon)
        return DeltaInterval(round_down(sums[law.cells_per_shift]), round_up(max(sums.values())), PROVED)
    # Tails of a pure law: each coordinate within its share of ε spends nothing.
    plain = min(round_up(count * law.exact_delta(Fraction(epsilon) / count)), 1.0) if law.decay else 1.0
    if plain == 0:
        return DeltaInterval(0.0, 0.0, PROVED)
    upper = min(composed_upper(dominating_loss(law), count, epsilon, fine=fine), plain)
    held = pieces(law)
    a, b, lost = held.moved(law.cells_per_shift)
    infinite = max(lost - held.beyond, 0.0) * (1 - 1e-12) if not law.decay else 0.0
    if not a.size:
        return DeltaInterval(min(-math.expm1(count * math.log1p(-min(infinite, 1 - 1e-16))), upper), upper)
    below = AtomicLoss(np.log(a) - np.log(b), a, infinite)
    spread = float(np.ptp(below.values)) or float(np.abs(below.values).max()) or 1.0
    step = _aligned(epsilon / count, spread / 20_000)
    grid = discretise_atoms(below, step, pessimistic=False, theta=1.0)
    lower = composed_delta([(grid, count)], epsilon)[0]
    return DeltaInterval(min(lower, upper), upper)
