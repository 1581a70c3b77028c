r"""Lower bound on the cost of all plans under (ε, δ) with noise of the menu, by branch and bound on the scales.

No plan costs less than T if for every choice of items the scales are covered by boxes [l, u], in each of which the costs at l sum to at least T, or δ
exceeds the budget throughout. For Laplace, staircase and normal noise δ is least at the box's noisiest corner, where each scale is capped by the cost that T leaves if all others are at l:

- more Laplace noise, whole or not, and more normal noise equal the same noise with independent noise added;
- staircases moved by their own step are randomised response at r that answers with probability :math:`p(1 + b)`,
  :math:`b = e^{-r}, p = 1 - \tfrac12 (2b^2/(1 + b))^{1/3}`, at the best γ: p − bp grows with r, so of two the less noisy one has the worse trade-off;
- **discrete normal noise** of a larger scale is no post-processing, and its δ is not monotone. With normal noise of variance :math:`S^2 - \sigma^2`
  added, its density is that of variance S² times a factor between 1 − 2η and 1 + η, :math:`\eta = 2.001 e^{-2\pi^2 s^2}, s^2 = \sigma^2 (1 - \sigma^2/S^2)` (Poisson's
  summation formula). So for all σ of a box the loss is at least that of normal noise of one S, minus log((1 + η)/(1 − 2η)) and a share 2η. For small scales each outcome has the least
  mass and the least loss in the box.

Losses are rounded down to a grid and composed by Fourier transform, tilted so that the transforms' error is relative to δ; wrapped mass is bounded by Chernoff's inequality and
subtracted. If little noise makes that tilt too steep, δ is far above the budget, and a slight tilt shows it, or the steep one of a part of the numbers and rounds alone. Parts over the same people with equal losses at equal error, up to
its unit, have equal noise.
"""

from __future__ import annotations

import functools
import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from mechdesign.accounting.gaussian import gaussian_square
from mechdesign.plan.search import Item, Search
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

_POINTS = 2**12
_STEPS = 200
"""Scales per e-fold."""
_LATTICE = 1e-4
"""Share of ε that discrete normal noise may differ from normal noise."""
_ROUNDED = 1e-13
"""Relative error of a tail, in doubles."""
_TOGETHER = 8
"""Kinds whose losses are composed in about the time of one evaluation."""
_APART = 0.05
"""Width of a box in log scale, summed over coordinates, at which outcomes keep nearly all of their mass."""
_UNSEEN = 5
"""Logarithm of δ over the mass outside a grid."""
_HELD = 256
"""Boxes of a kind whose losses are cached: 10 MB."""
_EFOLDS = 40
"""E-folds of scales that are listed."""

Tail = Callable[[Array], Array]
"""P(L ≥ l)."""


class Composed(NamedTuple):
    """Losses of some coordinates: the transform of their tilted masses, which sum to 1; logarithms of E e^{θL} at two tilts; their number."""

    transform: Any
    tilted: float
    further: float
    numbers: int


class Losses:
    """Lower bounds of composed losses.

    Parameters
    ----------
    privacy : ApproximateDP
        δ < 1/2.
    steep : bool
        Whether losses are tilted to the point at which normal noise of this δ has mean ε, or only by their standard deviation.
    """

    def __init__(self, privacy: ApproximateDP, *, steep: bool = True) -> None:
        epsilon, sigma = privacy.epsilon, math.sqrt(gaussian_square(privacy.epsilon, privacy.delta))
        self.steep, self.delta, self.lost = steep, privacy.delta, _LATTICE * min(epsilon, sigma)
        self.epsilon = epsilon + self.lost
        self.step = (2 * epsilon + 24 * sigma) / _POINTS
        self.last = int((epsilon + 16 * sigma) / self.step)
        self.tilt = (epsilon / sigma**2 if steep else 0.0) + 1 / sigma
        self.further = self.tilt + (5 if steep else 1) / sigma
        places = np.arange(_POINTS)
        at = np.where(places <= self.last, places, places - _POINTS) * self.step
        above = np.maximum(at - self.epsilon, 0.0)
        gain = -np.expm1(-above) * np.exp(-self.tilt * above)
        weights = np.fft.rfft(gain).conj() / _POINTS
        weights[1:-1] *= 2
        self._weights, self._size = weights, float(np.linalg.norm(gain))

    def of_tail(self, tail: Tail, reach: float, count: int) -> Composed:
        """Compose `count` independent losses within ±reach, given P(L ≥ l)."""
        around, last = math.ceil(min(reach / self.step, _POINTS)) + 1, self.last
        if not self.steep:
            last //= count  # larger losses are lowered to this, so that the sum stays on the grid
        edges = np.arange(max(-around, self.last - _POINTS + 1), min(around, last) + 1)
        above = tail((edges * self.step).astype(float))
        masses = above * (1 - _ROUNDED)
        masses[:-1] -= above[1:] * (1 + _ROUNDED)
        kept = masses > 0
        edges, masses = edges[kept], masses[kept]
        if not edges.size:
            return Composed(np.zeros(_POINTS // 2 + 1, dtype=complex), -math.inf, -math.inf, count)
        logs = np.log(masses)
        sums = [special.logsumexp(logs + t * self.step * edges) for t in (self.tilt, self.further)]
        tilted, further = map(float, sums)
        on_grid = np.zeros(_POINTS)
        on_grid[edges % _POINTS] = np.exp(logs + self.tilt * self.step * edges - tilted)
        return Composed(np.fft.rfft(on_grid) ** count, count * tilted, count * further, count)

    def least_delta(self, parts: Sequence[Composed]) -> float:
        """Return a lower bound of δ at ε for all parts together; −∞ if the grid holds too little of their mass."""
        tilted, further = (math.fsum(p[k] for p in parts) for k in (1, 2))
        if not parts or tilted == -math.inf:
            return 0.0
        around = self.step * _POINTS
        wrapped = max(
            further - self.further * self.epsilon - (self.further - self.tilt) * around, -self.tilt * around
        )
        error = self._size * (1e-11 + 1e-13 * sum(part.numbers for part in parts))
        unseen = max(wrapped, tilted - self.tilt * self.epsilon + math.log(error))
        if unseen > -_UNSEEN:
            return -math.inf
        composed = functools.reduce(operator.mul, (part.transform for part in parts))
        seen = math.exp(tilted - self.tilt * self.epsilon) * (float((self._weights @ composed).real) - error)
        found = (seen - 4 * math.exp(wrapped)) * (1 - self.lost) * (1 - 1e-9)
        return found if found > self.delta or unseen <= math.log(self.delta) - _UNSEEN else -math.inf


class Kind:
    """Equal slots over the same people, with one of their items.

    Parameters
    ----------
    item : Item
        Item of the first slot.
    slots : int
        Number of slots.
    losses : Losses
        The steep losses.
    most : float
        Largest cost of a listed scale.
    spread : float
        s² of discrete normal noise.
    """

    def __init__(self, item: Item, slots: int, losses: Losses, most: float, spread: float) -> None:
        self.item, self.losses, self.spread = item, losses, spread
        self.shifts = [(v, n * slots * item.rounds) for v, n in item.attained]
        self._held: dict[tuple[int, int, bool, int], list[Composed]] = {}
        self.scales: list[float] = []
        self.costs = [slots * item.weight * item.part.bias]
        self.alone = 0
        if self.shifts:
            self._list(slots, most)

    def _list(self, slots: int, most: float) -> None:
        """List scales, from one below which half of the outcomes have too large a loss."""
        largest = self.losses.epsilon - math.log1p(-2 * self.losses.delta)
        top = max(v for v, _ in self.shifts)
        first = top / (math.sqrt(2 * largest) if self.item.normal else largest)
        scales = max(first * (1 - 1e-9), self.item.least) * np.exp(np.arange(_EFOLDS * _STEPS) / _STEPS)
        for scale in scales.tolist():
            self.scales.append(scale)
            self.costs.append(slots * self.item.cost(scale) * (1 - 1e-11))
            if self.costs[-1] > most:
                self.costs = self.costs[1:]
                return
        self.costs, self.shifts = self.costs[1:2], []  # too many scales: no bound

    def fewer(self, part: int) -> list[tuple[float, int]]:
        """Return the shifts, each one `part`-th as often, rounded up."""
        return [(v, -(-n // part)) for v, n in self.shifts]

    def normal(self, low: int, high: int, part: int = 1) -> float:
        """Return μ² of normal noise whose loss is at most that of every scale between; 0 if there is none."""
        if not (self.item.normal and self.shifts):
            return 0.0
        variances = [self.scales[k] ** 2 for k in (low, high)]
        if self.item.part.whole:
            if self.is_small(low, high, part):
                return 0.0
            variances = [v * v / (v - self.spread) for v in variances]
        return sum(v * v * n for v, n in self.fewer(part)) / max(variances)

    def is_small(self, low: int, high: int, part: int) -> bool:
        """Whether scales of discrete normal noise are so small, or so close, that outcomes are treated one by one."""
        if not (self.item.normal and self.item.part.whole and self.shifts):
            return False
        apart = (high - low) * sum(n for _, n in self.fewer(part)) / _STEPS
        return self.scales[low] ** 2 < self.spread * (20 if apart < _APART else 2)

    def parts(self, low: int, high: int, losses: Losses, part: int = 1) -> list[Composed]:
        """Return losses at most those of every scale between, except the part of `normal`."""
        small = self.is_small(low, high, part)
        if not self.shifts or (self.item.normal and not small):
            return []
        at = low if small else high, high, losses.steep, part
        if at not in self._held:
            if len(self._held) >= _HELD:
                self._held.clear()
            found = self._small(low, high) if small else self._losing(self.scales[high])
            counts = [n for _, n in self.fewer(part)]
            self._held[at] = [losses.of_tail(*tail, count) for tail, count in zip(found, counts)]
        return self._held[at]

    def _losing(self, scale: float) -> Iterator[tuple[Tail, float]]:
        """Yield P(L ≥ l) for each shift, at one scale of noise that is not normal, and the largest loss."""
        for v, _ in self.shifts:
            r = v / scale
            if self.item.family == "staircase":
                b = math.exp(-r)
                p = 1 - (2 * b * b / (1 + b)) ** (1 / 3) / 2
                yield atoms(np.array([-r, 0.0, r]), np.array([b * p, 1 - p - b * p, p])), r
            else:
                yield laplace_tail(v, scale, whole=self.item.part.whole), r

    def _small(self, low: int, high: int) -> Iterator[tuple[Tail, float]]:
        """Yield, for discrete normal noise, the least mass and loss of each outcome at scales between."""
        least, most = (1 / (2 * self.scales[k] ** 2) for k in (high, low))
        last = math.ceil(12 / math.sqrt(least)) + 1.0
        for v, _ in self.shifts if last < _POINTS else []:  # in wider boxes each outcome has too little mass
            x = np.arange(last, -last - 1, -1)
            loss = v * (v - 2 * x)
            masses = np.exp(-most * x * x) / np.exp(-least * x * x).sum() * (1 - 1e-12)
            yield atoms(np.where(loss > 0, least, most) * loss, masses), math.inf


def atoms(losses: Array, masses: Array) -> Tail:
    """Return P(L ≥ l) of finitely many losses, given in increasing order."""
    above = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    return lambda at: above[np.searchsorted(losses, at + 1e-12 * np.abs(at))]


def laplace_tail(v: float, scale: float, *, whole: bool) -> Tail:
    """Return P(L ≥ l) of Laplace noise X moved by v: its loss is (v − 2X)/s for X between 0 and v."""

    def tail(at: Array) -> Array:
        x = (v - at * scale) / 2 * (1 - 1e-15)
        if whole:
            x = np.floor(x - 1e-9 * v)
        left = np.maximum(x, 0.0) + whole
        rest = np.exp(-left / scale) / (1 + math.exp(-1 / scale) if whole else 2)
        return np.where(x < 0, 0.0, np.where(x >= v, 1.0, 1 - rest))

    return tail


def normal_tail(square: float) -> Tail:
    """Return P(L ≥ l) of normal noise."""
    return lambda at: special.ndtr((square / 2 - at) / math.sqrt(square))


class Cover:
    """Proof that no plan costs less than a number, by boxes of scales for every choice of items.

    Parameters
    ----------
    search : Search
        Search of a plan under (ε, δ), δ < 1/2.
    most : float
        Largest number that will be tested.
    evaluations : int
        Most evaluations of δ in all.
    deadline : Deadline, optional
    """

    def __init__(
        self, search: Search, most: float, evaluations: int, deadline: Deadline | None = None
    ) -> None:
        assert search.privacy is not None
        self.losses, self._clock, self._left = Losses(search.privacy), Deadline.of(deadline), evaluations
        self._slight = Losses(search.privacy, steep=False)
        alike: dict[tuple[int, ...], list[int]] = {}
        for k, first in enumerate(search.alike):
            groups = (g for g, chain in enumerate(search.chains) if k in chain)
            alike.setdefault((first, *groups), []).append(k)
        self._within = [[j for j, key in enumerate(alike) if g in key[1:]] for g in range(len(search.chains))]
        slots = [(search.slots[members[0]], len(members)) for members in alike.values()]
        numbers = sum(n * i.rounds * i.part.dimension for items, n in slots for i in items)
        spread = math.log(2.001 * 4 * numbers / self.losses.lost) / (2 * math.pi**2)
        self.kinds = [[Kind(item, n, self.losses, most, spread) for item in items] for items, n in slots]
        self._normal: dict[tuple[bool, int], Composed] = {}
        for kinds in self.kinds:
            for kind in kinds:
                self._settle_alone(kind)

    @property
    def exhausted(self) -> bool:
        return self._left <= 0 or self._clock.passed

    @property
    def alone(self) -> float:
        """Lower bound of the cost with each slot alone at the whole budget."""
        return math.fsum(min(kind.costs[kind.alone] for kind in kinds) for kinds in self.kinds) * (1 - 1e-9)

    def _settle_alone(self, kind: Kind) -> None:
        """Find the largest scale up to which a kind violates (ε, δ) even alone."""
        step = len(kind.costs)
        while step and not self.exhausted:
            step = min(step, len(kind.costs) - 1 - kind.alone)
            if step and self._tells([kind], [kind.alone], [kind.alone + step]):
                kind.alone += step
            else:
                step //= 2

    def _tells(self, kinds: Sequence[Kind], low: Sequence[int], high: Sequence[int]) -> bool:
        """Whether δ exceeds the budget in all of a box, for people in all of these kinds, or even in part of the rounds, where all lose too much for a grid."""
        boxed, part = [*zip(kinds, low, high)], 1
        most = max((n for kind in kinds for _, n in kind.shifts), default=1)
        while True:
            steep = self._least_delta(self.losses, boxed, part)
            found = self._least_delta(self._slight, boxed, part) if steep == -math.inf else steep
            if found > self.losses.delta:
                return True
            small = any(kind.is_small(k, m, part) for kind, k, m in boxed)
            if part >= most or (steep > -math.inf and not small):
                return False
            part *= 8

    def _least_delta(self, losses: Losses, boxed: Sequence[tuple[Kind, int, int]], part: int) -> float:
        """Return a lower bound of δ in one `part`-th of the numbers and rounds."""
        square = math.fsum(kind.normal(k, m, part) for kind, k, m in boxed)
        self._left -= 1 + len(boxed) // _TOGETHER
        parts = [found for kind, k, m in boxed for found in kind.parts(k, m, losses, part)]
        if square:
            key = math.floor(2 * _STEPS * math.log(square))
            if (losses.steep, key) not in self._normal:
                tail = normal_tail(math.exp(key / (2 * _STEPS)))
                self._normal[losses.steep, key] = losses.of_tail(tail, math.inf, 1)
            parts.append(self._normal[losses.steep, key])
        return losses.least_delta(parts)

    def proves(self, least: float) -> bool:
        """Whether the boxes prove that no plan costs less."""
        cheapest = [min(kind.costs[kind.alone] for kind in kinds) for kinds in self.kinds]
        begun: list[tuple[Kind, ...]] = [()]
        while begun:
            chosen = begun.pop()
            costs = [kind.costs[kind.alone] for kind in chosen] + cheapest[len(chosen) :]
            if math.fsum(costs) * (1 - 1e-12) >= least:
                continue
            if len(chosen) < len(self.kinds):
                begun += [(*chosen, kind) for kind in self.kinds[len(chosen)]]
            elif not self._covers(chosen, least):
                return False
        return True

    def _covers(self, kinds: Sequence[Kind], least: float) -> bool:
        boxes = [([kind.alone for kind in kinds], [len(kind.costs) - 1 for kind in kinds])]
        while boxes:
            low, high = boxes.pop()
            costs = [kind.costs[k] for kind, k in zip(kinds, low)]
            room = least - math.fsum(costs) * (1 - 1e-12)
            if room <= 0:
                continue
            if self.exhausted:
                return False
            high = [min(h, bisect_left(kind.costs, room + cost)) for kind, h, cost in zip(kinds, high, costs)]
            high = [min(h, len(kind.costs) - 1) for kind, h in zip(kinds, high)]
            boxed = [*zip(kinds, low, high)]
            if any(self._tells(*zip(*[boxed[j] for j in group])) for group in self._within):
                continue
            wide = [j for j in range(len(kinds)) if high[j] - low[j] > 1]
            if not wide:
                return False
            widest = max(wide, key=lambda j: kinds[j].costs[high[j]] - costs[j])
            middle = (low[widest] + high[widest]) // 2
            boxes.append((low, [middle if j == widest else h for j, h in enumerate(high)]))
            boxes.append(([middle if j == widest else l for j, l in enumerate(low)], high))
        return True
