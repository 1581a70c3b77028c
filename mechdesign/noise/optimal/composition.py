r"""The privacy loss of a cell law above those of all its shifts, and δ(ε) of K coordinates.

With :math:`D_k(\alpha) = \sum_j [p_j - \alpha p_{j+k}]_+` of a shift by k cells, a shift by :math:`(k + \theta)\beta` has
:math:`(1-\theta) D_k + \theta D_{k+1}`: the pair of laws is that of k or of k + 1 cells, by a coin that may be seen. K
shifted coordinates are therefore a mixture of products over whole cells, and whatever dominates every :math:`D_k`,
k ≤ n, dominates in each factor. :math:`h = \max_k D_k` does: a convex function of α and so itself the curve of a pair of laws;
the chords of its values on a grid, computed with their rounding errors added, lie above it.

Tails are followed until they weigh nothing; what lies beyond counts as lost, that is as of infinite loss. Where one weight
stands for a span of cells, the pairs are the overlaps of spans, whose lengths are linear in the shift between the
differences of the spans' ends: shifts by these differences decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import groupby

import numpy as np

from mechdesign.accounting.composition import composed_delta, discretise_atoms
from mechdesign.accounting.interval import DeltaInterval
from mechdesign.accounting.losses import AtomicLoss
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.proofs import PROVED
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.typing import Array, Indices

__all__ = ["Pieces", "composed_upper", "dominating_loss", "many_interval", "pieces"]

_TAIL = 1e-40
"""Mass of geometric tails beyond which all loss counts as infinite."""
_CELLS = 1_000_000
_POINTS = 4096
_PAIRS = 3 * 10**8  # pieces times shifts: beyond, the plain composition of exact sums must do
_MOST = 2**20  # grid points of one coordinate


@dataclass(frozen=True)
class Pieces:
    """Mass per cell between edges (in cells), and the mass of the tails beyond them.

    Parameters
    ----------
    heights : ndarray, shape (m,)
    edges : ndarray of int, shape (m + 1,)
    beyond : float
        Rounded up.
    shifts : ndarray of int
        The whole shifts among which, for every level, the worst of all real ones up to n cells is.
    """

    heights: Array
    edges: Indices
    beyond: float
    shifts: Indices

    @property
    def even(self) -> bool:
        """Whether every piece is one cell."""
        return bool(len(self.heights) == self.edges[-1] - self.edges[0])

    def moved(self, k: int) -> tuple[Array, Array, float]:
        """Masses p and q of the pieces where both laws have some when the second is k cells to the left; the mass without partner."""
        if self.even:
            a, b, out = self.heights[:-k], self.heights[k:], float(self.heights[-k:].sum())
        else:
            cuts = np.union1d(self.edges, self.edges - k)
            length = np.diff(cuts)
            a, b = (self._at(places) * length for places in (cuts[:-1], cuts[:-1] + k))
            out = 0.0
        seen = (a > 0) & (b > 0)
        lost = out + float(a[(a > 0) & (b == 0)].sum()) + self.beyond
        return a[seen], b[seen], lost

    def _at(self, places: Indices) -> Array:
        i = np.searchsorted(self.edges, places, side="right") - 1
        inside = (i >= 0) & (i < len(self.heights))
        return np.where(inside, self.heights[np.where(inside, i, 0)], 0.0)


@lru_cache(maxsize=32)
def pieces(law: CellNoise) -> Pieces:
    """The pieces of a law, its spike left out."""
    n, total = law.cells_per_shift, law.total
    spans = law.spans or (1,) * len(law.weights)
    heights = [float(Fraction(w, v) / total) for w, v in zip(law.weights, spans)]
    starts = [0, *law.ends[:-1]]
    beyond = 0.0
    if law.decay:
        r, (first, last) = float(law.decay), law.period
        most = max(_CELLS // (first + last), 2)
        periods = min(math.ceil(math.log(_TAIL) / math.log(r)) + 1, most)
        powers, out = r ** np.arange(1, periods + 1), n * np.arange(1, periods + 1)
        ends = sum(law.weights[:first]) + sum(law.weights[-last:])
        beyond = float(ends / total) * r ** (periods + 1) / float(1 - law.decay) * (1 + 1e-9)
        left = np.outer(powers[::-1], heights[:first]).ravel()
        right = np.outer(powers, heights[-last:]).ravel()
        far = np.add.outer(-out[::-1], starts[:first]).ravel(), np.add.outer(out, starts[-last:]).ravel()
        edges = np.concatenate([far[0], starts, far[1], [law.count + n * periods]]).astype(np.int64)
        held = np.concatenate([left, heights, right])
    else:
        edges, held = np.append(starts, law.count).astype(np.int64), np.array(heights)
    if not law.spans:
        return Pieces(held, edges, beyond, np.arange(1, n + 1))
    # Equal neighbours of a law with spans are one piece, so that few differences are left.
    runs = [len(list(run)) for _, run in groupby(held.tolist())]
    at = np.cumsum([0, *runs])
    held, edges = held[at[:-1]], edges[at]
    near = edges[(edges >= -n) & (edges <= law.count + n)]
    gaps = np.unique(np.subtract.outer(near, near))
    return Pieces(held, edges, beyond, np.unique(np.append(gaps[(gaps > 0) & (gaps < n)], n)))


@lru_cache(maxsize=32)
def dominating_loss(law: CellNoise) -> AtomicLoss:
    """Return a privacy loss that dominates that of every shift of one coordinate up to n cells.

    Masses are rounded upwards: they may sum to slightly more than one.
    """
    held = pieces(law)
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
