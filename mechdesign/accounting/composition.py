r"""The composition of privacy losses on a grid, with relative accuracy at any δ.

The loss of K independent coordinates is the sum of their losses, so its distribution is a convolution and

.. math:: \delta(\varepsilon) = P[\infty] + E\left[(1 - e^{\varepsilon - L})_+\right].

An FFT convolution of the masses has *absolute* errors near 1e-16, which hide δ = 1e-14 and make 1e-10
uncertain. Tilting removes the floor: with :math:`M(\theta) = E e^{\theta L}` and :math:`\tilde P \propto e^{\theta L}P`,

.. math:: \delta = e^{\log M(\theta) - \theta\varepsilon}\;
          \tilde E\left[e^{-\theta(L-\varepsilon)}(1 - e^{\varepsilon - L})_+\right] + P[\infty],

where θ puts the tilted mean at ε: the expectation is of order one over the spread of L whatever δ is, and the FFT
error, bounded in `convolve`, is relative to it. The window of the circular convolution is chosen by
Chernoff bounds under the tilted law; the mass outside is added (or subtracted). Step, tails and tilt of a grid come from a first
coarse pass (`plan_grid`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft

from mechdesign.accounting.grids import MOST, GridLoss, discretise
from mechdesign.accounting.losses import AtomicLoss, CentredLoss, Loss, NoiseTerm, loss_of
from mechdesign.checks import refuse
from mechdesign.doubles import LARGEST_POWER, ROUNDED, TINY, UNIT
from mechdesign.errors import DesignError
from mechdesign.problem.law_moments import law_variance
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

_A_SECOND, _AT_ONCE = 2**19, 2**17
"""Points of a grid for each second left, and if almost none is left."""
_OUTSIDE = 1e-16
"""Tilted probability allowed outside the convolution window, each side."""
STRETCHES = 16
"""Largest number of convolutions of a round."""
_VANISHED = -100.0
"""log of a product of transforms that counts as 0."""
_FAR, _RARE, _MOST_LARGE, _LEFT = 8.0, 0.1, 12, 1e-6
"""Standard deviations from ε to the mean of a tilt that is no guide; mean number of large losses that is rare; most of them; share of δ left open."""
_WORSE = 7.0
"""whose Chernoff bound may be larger by this much in its logarithm: an FFT has that many digits to spare."""

FLOOR = 1e-300
"""Smallest tail that is cut off, near the least double."""

Part = tuple[GridLoss, int]


@dataclass(frozen=True)
class Tilt:
    """The exponential tilt at which the composed loss has mean ε.

    Attributes
    ----------
    theta : float
        θ ≥ 0.
    log_mgf, mean, variance : float
        Moments of the composed finite loss at θ.
    """

    theta: float
    log_mgf: float
    mean: float
    variance: float

    @property
    def window(self) -> float:
        """Approximate width of a window of the composed loss."""
        return 20 * math.sqrt(max(self.variance, 0.0))

    def log_chernoff(self, epsilon: float) -> float:
        """log of the bound P[L ≥ ε] ≤ M(θ) e^{−θε}."""
        return self.log_mgf - self.theta * epsilon


@np.errstate(over="ignore", invalid="ignore")  # huge losses; infinite moments prove nothing
def cumulants(parts: Sequence[Part | tuple[AtomicLoss, int]], theta: float) -> Tilt:
    """Return mean, variance and log M of the composed loss under the tilt θ."""
    log_mgf = mean = variance = 0.0
    for grid, count in parts:
        points = grid.points
        exponent = grid.log_mass + theta * points
        top = exponent.max()
        if top == -np.inf:
            return Tilt(theta, -np.inf, -np.inf, 0.0)
        weights = np.exp(exponent - top)
        total = float(weights.sum())
        centre = float(np.sum(points * weights)) / total
        log_mgf += count * (top + math.log(total))
        mean += count * centre
        variance += count * float(np.sum((points - centre) ** 2 * weights)) / total
    return Tilt(theta, log_mgf, float(mean), variance)


@np.errstate(over="ignore")  # a step that overflows is cut
def find_tilt(parts: Sequence[Part | tuple[AtomicLoss, int]], epsilon: float, *, guess: float = 0.0) -> Tilt:
    """Solve mean(θ) = ε for θ ≥ 0 by safeguarded Newton steps (any θ is valid, this one is accurate).

    Parameters
    ----------
    parts : sequence of (GridLoss, count)
    epsilon : float
    guess : float
        Where to start.

    Returns
    -------
    Tilt
    """
    tilt = cumulants(parts, max(guess, 0.0))
    if tilt.log_mgf == -math.inf:  # all losses are infinite
        return tilt
    low, high = 0.0, math.inf
    for _ in range(60):
        if tilt.mean >= epsilon:
            high = tilt.theta
            if tilt.theta == 0:
                return tilt
        else:
            low = tilt.theta
        spread = math.sqrt(max(tilt.variance, 1e-300))
        below = tilt.theta == low
        if abs(tilt.mean - epsilon) < 0.05 * spread or (below and low * spread > 60):
            return tilt
        if below and high - low < 1e-9 * high:  # the mean jumps over ε
            return tilt
        step = (epsilon - tilt.mean) / max(tilt.variance, 1e-300)
        new = tilt.theta + step
        if not low < new < high:
            new = (low + high) / 2 if math.isfinite(high) else 2 * low + 1
        elif new > 4 * tilt.theta + 4 / spread:
            new = 4 * tilt.theta + 4 / spread
        tilt = cumulants(parts, new)
    return tilt


def calmer(parts: Sequence[Part | tuple[AtomicLoss, int]], tilt: Tilt, epsilon: float) -> Tilt:
    """Return a smaller tilt that needs a much narrower window, if one has nearly the same Chernoff bound.

    If single rounds can have large losses, the law tilted to mean ε consists of a few such rounds.
    """
    whole = sum(count * float(np.ptp(grid.points)) for grid, count in parts)
    low, found = 0.0, tilt
    for _ in range(6 if tilt.theta > 0 else 0):  # halvings, at most, in search of a calmer tilt
        middle = cumulants(parts, (low + found.theta) / 2)
        if middle.log_chernoff(epsilon) <= tilt.log_chernoff(epsilon) + _WORSE:
            found = middle
        else:
            low = middle.theta
    return found if 4 * found.window < min(tilt.window, whole) else tilt


def _window(parts: Sequence[Part], tilt: Tilt) -> tuple[float, float, float]:
    """Return two losses and a Chernoff bound `outside` of the tilted composed law's mass beyond them."""
    reach = math.sqrt(2 * math.log(1 / _OUTSIDE) / max(tilt.variance, 1e-300))
    log_tail = -math.log(_OUTSIDE)
    high, low = math.inf, -math.inf
    width = math.sqrt(max(tilt.variance, 1e-300))
    s = 0.9 * reach
    while high - low >= 30 * width:
        # the best order is near `reach` for a nearly normal sum, smaller the larger single losses are
        up = cumulants(parts, tilt.theta + s).log_mgf - tilt.log_mgf
        down = cumulants(parts, tilt.theta - s).log_mgf - tilt.log_mgf
        best = max(low, -(down + log_tail) / s), min(high, (up + log_tail) / s)
        if best == (low, high) and s < 0.01 * reach:
            break
        (low, high), s = best, s / 2
    return low, high, 2 * _OUTSIDE


def affordable(deadline: Deadline) -> int:
    """Return the number of grid points that the remaining time allows."""
    return min(MOST, max(_AT_ONCE, int(_A_SECOND * deadline.left))) if deadline.finite else MOST


@np.errstate(over="ignore")  # a bound of infinity proves nothing
def convolve(parts: Sequence[Part], tilt: Tilt, most: int = MOST) -> tuple[int, np.ndarray, float, float]:
    r"""Convolve the tilted parts on at most `most` points.

    Returns
    -------
    start : int
        Grid index of the first entry.
    mass : ndarray
        The tilted law of the sum, on its window.
    error : float
        Proved bound on the Euclidean norm of the rounding errors of `mass`, given the weights (callers count those of their logarithms).
    outside : float
        Bound on the tilted mass outside the window (and folded back into it by the circular convolution).

    Notes
    -----
    An entry of an FFT of length n is a sum whose terms each pass log2(n) levels of butterflies, so that its error is at most
    :math:`c u \log_2(n)` times the sum of the moduli that enter, with c below 10 for any mixed radix (as Higham 2002, Theorem 24.2, for the norm);
    c = 16 here. Weights sum to 1: entries X of their transform are known to η, their power k to :math:`k \eta (|X| + \eta)^{k-1}`, and
    products of powers to the sum of such terms. The norm of these errors and η times that of the products, for the inverse, are together at most
    √2 times the norm of their sums.
    """
    step = parts[0][0].step
    low, high, outside = _window(parts, tilt)
    floor = sum(count * grid.start for grid, count in parts)
    ceiling = sum(count * (grid.start + grid.mass.size - 1) for grid, count in parts)
    first = max(floor, math.floor(low / step))
    last = min(ceiling, math.ceil(high / step))
    if first > last:
        first, last = floor, ceiling
    if last - first > most:
        count = sum(count for _, count in parts)
        needed = f"need {last - first} grid points together, more than {most:,}: ask for fewer rounds or coordinates"
        raise DesignError.of("terms", f"{count} privacy losses", needed)
    n = int(fft.next_fast_len(max(last - first + 1, 2), real=True))
    eta = 16 * UNIT * math.log2(max(n, 2))
    log_up, moved, transforms = np.zeros(n // 2 + 1), np.full(n // 2 + 1, eta), []
    for grid, count in parts:
        with np.errstate(divide="ignore"):
            weights = np.log(grid.mass) + tilt.theta * grid.points
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
        if grid.mass.size > n:  # fold: the transform is periodic anyway
            weights = np.asarray(np.bincount(np.arange(grid.mass.size) % n, weights, n), dtype=float)
        x = fft.rfft(weights, n)
        at_most = np.abs(x) + eta
        log_up += count * np.log(at_most)
        moved += count * (eta + 16 * UNIT) / at_most  # a power's own rounding: k u (|log x| + π)
        transforms.append((x, count))
    # a vanishing product, as nearly all are for many coordinates, is replaced by 0, with an error of its own size
    kept, up = log_up > _VANISHED, np.exp(log_up)
    moved[~kept] = 1.0
    product = np.zeros(n // 2 + 1, dtype=complex)
    product[kept] = math.prod(x[kept] ** count for x, count in transforms)
    # entry j of the circular result is the mass at index floor + j (mod n)
    mass = np.roll(fft.irfft(product, n), -((first - floor) % n))[: last - first + 1]
    error = 2 / math.sqrt(n) * math.sqrt(float(np.sum((up * moved) ** 2)))
    return first, mass, error, outside


def _top(parts: Sequence[Part]) -> float:
    """Return the largest finite loss of the composition."""
    return parts[0][0].step * sum(count * (grid.start + grid.mass.size - 1) for grid, count in parts)


def _expected(parts: Sequence[Part], tilt: Tilt, level: float, sign: float, most: int) -> float:
    """Bound the tilted expectation of (1 − e^{level − L})₊ e^{−θ(L − level)} from above or from below."""
    start, mass, error, outside = convolve(parts, tilt, most)
    gap = parts[0][0].step * (start + np.arange(mass.size, dtype=float)) - level
    positive = gap > 0
    gap = gap[positive]
    weights = np.exp(-tilt.theta * gap) * -np.expm1(-gap)
    value, rounding = float(np.sum(weights * mass[positive])), error * math.sqrt(float(np.sum(weights**2)))
    rounding += 4 * UNIT * mass.size * abs(value)
    peak = math.log1p(1 / tilt.theta) if tilt.theta > 0 else math.inf
    largest = math.exp(-tilt.theta * peak) / (1 + tilt.theta) if tilt.theta > 0 else 1.0
    largest = min(largest, -math.expm1(level - _top(parts)))
    return float(value + sign * (rounding + 2 * outside * largest))


def _astray(tilt: Tilt, level: float) -> bool:
    """Return whether the tilted law is far below the level, as a law is whose single losses can be large (`calmer`)."""
    return level - tilt.mean > _FAR * math.sqrt(max(tilt.variance, 0.0)) < math.inf


def _few_large(part: Part, level: float, most: int) -> float | None:
    """Bound δ of one loss composed with itself by the number of large ones; None if no size of them is rare and leaves the others a tilt.

    If single losses can be large, the law tilted to mean ε consists of the largest ones, and its Chernoff bound is no guide to δ. The
    compositions of one large loss with the others, of two, …, have accurate tilts of their own.
    """
    grid, count = part
    for parted in range(1, _MOST_LARGE if level > 0 else 1):
        cut = int(np.searchsorted(grid.points, level * 0.5**parted, side="right"))
        rare = float(grid.mass[cut:].sum())
        if cut == 0 or count * rare > _RARE:
            return None
        small = [(replace(grid, mass=grid.mass[:cut], infinity=0.0, offset=0.0), count)]
        if not _astray(calmer(small, find_tilt(small, level), level), level):
            break
    else:
        return None
    large = replace(grid, start=grid.start + cut, mass=grid.mass[cut:], infinity=0.0, offset=0.0)
    found, ways, excess = 0.0, 1.0, max(float(grid.mass.sum()) - 1, 0.0)
    for k in range(min(count, _MOST_LARGE) + 1):
        kinds = [(some, n) for some, n in ((small[0][0], count - k), (large, k)) if n]
        found += ways * composed_delta(kinds, level, enough=_LEFT * found / ways, most=most)
        ways *= (count - k) / (k + 1)
        # probability of more large losses, at most
        more = ways * rare ** (k + 1) * math.exp(min(count * excess, LARGEST_POWER))
        if more <= _LEFT * found:
            break
    return (found + more) * (1 + ROUNDED) if grid.pessimistic else found * (1 - ROUNDED)


def composed_delta(
    parts: Sequence[Part], epsilon: float, *, guess: float = 0.0, enough: float = 0.0, most: int = MOST
) -> float:
    """Bound δ of the composition at `epsilon`: from above if the parts are pessimistic, else from below.

    Parameters
    ----------
    parts : sequence of (GridLoss, count)
        One step and one direction for all.
    epsilon : float
        ε ≥ 0.
    guess : float
        A first θ.
    enough : float
        If Chernoff's bound for the finite losses is at most this, it replaces their part of δ (0 from below), and nothing is convolved.
    most : int
        Largest number of points.
    """
    pessimistic = parts[0][0].pessimistic
    sign = 1.0 if pessimistic else -1.0
    offset = sum(count * grid.offset for grid, count in parts)
    infinite = -math.expm1(sum(count * math.log1p(-min(g.infinity, 1 - 1e-16)) for g, count in parts))
    if any(g.infinity >= 1 for g, _ in parts):
        infinite = 1.0
    level, count = epsilon - offset - sign * 4e-16 * abs(offset), sum(count for _, count in parts)
    top = _top(parts)
    finite = 0.0
    if level < top and infinite < 1:
        tilt = calmer(parts, find_tilt(parts, level, guess=guess), level)
        if tilt.log_mgf > -np.inf:
            # the logarithms carry relative errors of a few ulps of themselves
            off = float(1e-14 * (10 + abs(tilt.log_mgf) + abs(tilt.theta * level) + 0.1 * count))
            log_chernoff = min(tilt.log_chernoff(level), 700.0)
            if enough > 0 and log_chernoff + math.log1p(off) < math.log(enough):
                beyond = math.exp(log_chernoff) * (1 + off) if pessimistic else 0.0
                return float(min(infinite + beyond, 1.0))
            if len(parts) == 1 and _astray(tilt, level):
                few = _few_large(parts[0], level, most)
                if few is not None:
                    return min(infinite + few, 1.0)
            if log_chernoff < (max(math.log(infinite) - 45, -700.0) if infinite > 0 else -700.0):
                value = 1.0 if pessimistic else 0.0  # below the rounding of `infinite`
            else:
                value = _expected(parts, tilt, level, sign, most)
            finite = max(value, 0.0) * math.exp(log_chernoff) * max(1 + sign * off, 0.0)
            if pessimistic and finite == 0:  # below the least double, but positive
                finite = math.ulp(0.0)
    return float(min(max(infinite + finite, 0.0), 1.0))


def compose_grid(parts: Sequence[Part], most: int = MOST) -> GridLoss:
    """Convolve the parts into one gridded loss, of at most `most` points, whose masses bound the true ones point by point.

    δ of later rounds increases with every mass, so that no error has to be added to it once for each
    round. A convolution is accurate to about 1e-13 of its *tilted* peak: there is one for the bulk of P, one for the bulk of Q
    (whose law is P tilted by θ = −1), and one for each stretch of the upper tail; each point takes the best of its bounds.
    """
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    step, pessimistic = parts[0][0].step, parts[0][0].pessimistic
    infinite = -math.expm1(sum(c * math.log1p(-min(g.infinity, 1 - 1e-16)) for g, c in parts))
    negligible = max(0.01 * infinite, TINY)
    stretches = _stretches(parts, negligible, most)
    if not stretches:
        return GridLoss(step, 0, np.zeros(1), infinite, sum(c * g.offset for g, c in parts), pessimistic)
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
            infinite += max(high.beyond(step * (start + size - 1)), TINY)
    # points of negligible mass would only widen the grid
    tail = np.cumsum(mass[::-1])
    spare = min(int(np.searchsorted(tail, negligible, side="right")), size - 1) if infinite > 0 else 0
    if spare:
        infinite += float(tail[spare - 1]) * (1 + 1e-12) if pessimistic else 0.0
        mass = mass[:-spare]
    offset = sum(c * g.offset for g, c in parts)
    return GridLoss(step, start, mass, min(infinite, 1.0), offset, pessimistic)


@dataclass(frozen=True)
class _Stretch:
    """The composed law, tilted so that it is accurate on one stretch of losses: mass on the grid from `first` on."""

    tilt: Tilt
    first: int
    mass: Array
    error: float
    """Error bound of each mass."""
    outside: float
    """Bound of the tilted mass on either side of them."""

    def untilted(self, tilted: Array, losses: Array, *, up: bool) -> Array:
        """Return the masses of P, rounded up or down."""
        exponent = self.tilt.log_mgf - self.tilt.theta * losses
        slack = 1e-14 * (10 + np.abs(self.tilt.log_mgf) + np.abs(self.tilt.theta * losses))
        with np.errstate(under="ignore", over="ignore"):
            power = exponent + (slack if up else -slack)
        found = tilted * np.exp(np.minimum(power, LARGEST_POWER))
        return np.where((power > LARGEST_POWER) & (tilted > 0), math.inf, found) if up else np.asarray(found)

    def beyond(self, loss: float) -> float:
        """Bound P's mass on the far side of a loss at the end of the stretch: below it if θ ≤ 0, above it if θ ≥ 0."""
        return float(self.untilted(np.array([self.outside]), np.array([loss]), up=True)[0])


def _stretches(parts: Sequence[Part], negligible: float, most: int) -> list[_Stretch]:
    """Return stretches from the bulk of Q up to the point beyond which P has at most the mass `negligible`."""
    out: list[_Stretch] = []
    step = parts[0][0].step
    ceiling = sum(count * (grid.start + grid.mass.size - 1) for grid, count in parts)
    for theta in (-1.0, 0.0):
        out += _stretch(parts, cumulants(parts, theta), most)
    while out and len(out) < STRETCHES:
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
        out += _stretch(parts, further, most)
    return out


def _stretch(parts: Sequence[Part], tilt: Tilt, most: int) -> list[_Stretch]:
    if not math.isfinite(tilt.log_mgf):
        return []
    first, mass, each, outside = convolve(parts, tilt, most)
    return [_Stretch(tilt, first, mass, each, outside)]


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
        allowed = "need more grid points for a single loss than time allows"
        refuse(step < self.finest(most), "terms", self.count, allowed)
        parts = self.parts(step, pessimistic=pessimistic, epsilon=epsilon)
        return composed_delta(parts, epsilon, guess=self.theta, enough=enough, most=most)

    @property
    def lost(self) -> float:
        """Probability that is taken as infinite, at most."""
        return self.upper_tail * self.count

    def losing(self, lost: float) -> GridPlan:
        """Return the plan that takes losses of this probability as infinite."""
        return replace(self, upper_tail=max(lost / self.count, FLOOR))

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


def plan_grid(terms: tuple[NoiseTerm, ...], epsilon: float, width: float) -> GridPlan:
    losses = tuple((loss_of(t.law, t.sensitivity), t.count) for t in terms)
    count = sum(c for _, c in losses)
    tops = [min(largest(loss, TINY), epsilon - math.log(TINY)) for loss, _ in losses]
    usual = [max(largest(loss, 0.15), top * 1e-6) for (loss, _), top in zip(losses, tops)]
    step = max(min(usual) / 6, max(tops) / 50_000)
    if not step > 1e-150:
        least = min(t.sensitivity / math.sqrt(law_variance(t.law)) for t in terms)
        allowed = "is so small, compared with the noise, that doubles see no privacy loss"
        raise DesignError.of("sensitivity", least, allowed)
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
