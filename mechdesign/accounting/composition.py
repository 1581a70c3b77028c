r"""Privacy losses on a grid, from above (chords) and from below (tangents), and their composition with relative accuracy at any δ.

**Grid.** With :math:`x = dP/dQ`, the curve :math:`h(x) = \int (dP - x\,dQ)_+` of a pair (P, Q) is convex, and a pair whose curve is nowhere
lower may replace it in any composition. The curve of masses on points :math:`x_k` is linear between them.

*From above* (connect the dots, Doroshenko et al. 2022): the curve is exact at the points, hence the linear interpolation consists of
    its chords. A cell is replaced by its two ends, with the same P and the same Q.
*From below*: let :math:`t_k` lie within each cell. A function that is at each :math:`x_k` at most the tangents at :math:`t_{k-1}` and
    :math:`t_k`, and linear between, is at most a tangent on every cell. So :math:`h(x_k)` is lowered by the larger of two differences of the
    curve to its tangents: from the outcomes before it, beginning at :math:`t_{k-1}`, and from those after it, up to :math:`t_k`.

Both are of second order in the step, and both are computed from masses of cells, which are relatively accurate in the tails, where
small δ arise, instead of second differences of δ(ε).

**Composition.** The loss of K independent coordinates is the sum of their losses, so its distribution is a convolution and

.. math:: \delta(\varepsilon) = P[\infty] + E\left[(1 - e^{\varepsilon - L})_+\right].

An FFT convolution of the masses has *absolute* errors near 1e-16, which hide δ = 1e-14 and make 1e-10
uncertain. Tilting removes the floor: with :math:`M(\theta) = E e^{\theta L}` and :math:`\tilde P \propto e^{\theta L}P`,

.. math:: \delta = e^{\log M(\theta) - \theta\varepsilon}\;
          \tilde E\left[e^{-\theta(L-\varepsilon)}(1 - e^{\varepsilon - L})_+\right] + P[\infty],

where θ puts the tilted mean at ε: the expectation is of order one over the spread of L whatever δ is, and the FFT
error, bounded below from norms, is relative to it. The window of the circular convolution is chosen by
Chernoff bounds under the tilted law; the mass outside is added (or subtracted).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import fft

from mechdesign.accounting.losses import AtomicLoss, CentredLoss, Loss
from mechdesign.doubles import LARGEST_POWER, ROUNDED, UNIT
from mechdesign.errors import DesignError
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

MOST = 20_000_000
"""Points of a grid."""
_A_SECOND, _AT_ONCE = 2**19, 2**17
"""Points of a grid for each second left, and if almost none is left."""
_LONGER = 8
"""Time of a transform of long doubles, relative to doubles."""
_LEAST = 1e-305
"""Absolute error of a mass among subnormal doubles."""


@dataclass(frozen=True)
class GridLoss:
    """Mass of the privacy loss on the points ``offset + step * (start + k)``.

    Attributes
    ----------
    step : float
    start : int
    mass : ndarray
        Probability under P of each point (sums to 1 − infinity − what was dropped).
    infinity : float
        Probability of an infinite loss.
    offset : float
        Shift of all points: the possible rounding of losses, in the safe direction for `pessimistic`.
    pessimistic : bool
        Whether δ computed from the grid is an upper bound (else a lower one).
    """

    step: float
    start: int
    mass: Array
    infinity: float
    offset: float
    pessimistic: bool

    @cached_property
    def points(self) -> Array:
        """The loss values, without their offset."""
        return self.step * (self.start + np.arange(self.mass.size, dtype=float))

    @cached_property
    def log_mass(self) -> Array:
        """Logarithms of the mass, which every tilt starts from."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.mass), dtype=float)


@dataclass(frozen=True)
class Cells:
    """Outcomes between neighbouring points of a grid, as the integrals that chords and tangents need.

    Attributes
    ----------
    mass : ndarray
        P of each cell.
    lift : ndarray
        P − x Q, x at its lower end; not finite if the ratio overflows.
    below : ndarray
        The same for the outcomes up to the tangent point.
    above : ndarray
        x Q − P, x at the upper end, for the outcomes after it.
    mass_error, error : ndarray
        Error bounds of the masses, and of each of the other three.
    """

    mass: Array
    lift: Array
    below: Array
    above: Array
    mass_error: Array
    error: Array

    def on_grid(self, step: float, first: float, *, pessimistic: bool, also: Array | float = 0.0) -> Array:
        """Return the masses on the ends of the cells, the first at the loss `first` steps, with the masses `also` added."""
        near = np.isfinite(self.lift) & np.isfinite(self.error) & np.isfinite(self.above)
        sign = 1 if pessimistic else -1
        mass = np.maximum(self.mass + sign * self.mass_error, 0.0)
        lift = np.full(mass.size, math.inf if pessimistic else 0.0)
        lift[near] = self.lift[near] + sign * self.error[near]
        high = np.clip(lift / -math.expm1(-step), 0.0, mass)
        if pessimistic:
            return np.asarray(np.append(mass - high, 0.0) + np.append(0.0, high) + also)
        coarse, at = 0, first + np.arange(mass.size, dtype=float)
        while True:
            # the first cells, if tangents leave the curve no mass, keep their outcomes at their lower ends
            near[:coarse] = False
            whole = np.append(np.where(near, 0.0, mass), 0.0)
            low, high = (np.where(near, ends, 0.0) for ends in (mass - high, high))
            found = self._lowered(low, high, step, at, also)
            coarse = 4 * coarse + 4
            if found.any() or coarse > mass.size:
                return whole + found

    def _lowered(self, low: Array, high: Array, step: float, at: Array, also: Array | float) -> Array:
        """Lower the chords' masses, of the lower and upper ends of cells, to the tangents; `at`: the cell's lower end, in steps."""
        out = np.append(low, 0.0) + also
        if step > LARGEST_POWER:
            return np.zeros(out.size) + also
        up, down = math.expm1(step), -math.expm1(-step)
        out[1:] += high
        below, above = (
            np.where(low + high > 0, np.maximum(v, 0.0) + self.error, 0.0) for v in (self.below, self.above)
        )
        # A tangent lies neither below 0 nor below 1 − x: if the one at a cell's middle would, the one at its end is used.
        behind = down * np.append(np.cumsum(out[:1:-1])[::-1], 0.0)
        before = up * np.append(0.0, np.cumsum(out)[:-2])
        last, first = above > behind, below > before
        last[-1], first[0] = True, True
        last, first = last & (at > -1e-9), first & (at < 1e-9 - 1)
        below = np.where(last, down * high, np.where(first, 0.0, below))
        above = np.where(last, 0.0, np.where(first, up * low, above))
        drop = np.zeros(out.size)
        drop[1:-1] = np.maximum(above[:-1], below[1:])
        drop[0] = below[0]  # Q may be more than 1
        if above[-1] > 0:  # the last cell spans 0: the grid is too coarse
            return np.zeros(out.size) + also
        slope = np.diff(drop)
        out[0] += drop[0]
        out[:-1] -= slope / up
        out[1:] += slope / down
        return _convex(out, step)


def _convex(found: Array, step: float) -> Array:
    """Lower a piecewise linear curve until no mass is negative; return no mass if a hull would end below the largest loss."""
    where = [int(k) for k in np.flatnonzero(found < 0)]
    if not where:
        return found
    mass, size = found.tolist(), found.size  # lists: a million single numbers are read and written
    before, behind = list(range(-1, size - 1)), list(range(1, size + 1))
    while where:
        k = where.pop()
        lack = mass[k]
        if lack >= 0:
            continue
        a, b = before[k], behind[k]
        if b == size:
            return np.zeros(size)
        # below the least loss, a lack of mass weighs more at the next one
        share = math.expm1((a - k) * step) / math.expm1((a - b) * step) if a >= 0 else 1.0
        mass[k], mass[b], before[b] = 0.0, mass[b] + share * lack, a
        if a >= 0:
            mass[a], behind[a] = mass[a] + (1 - share) * lack, b
        where += [j for j in (a, b) if mass[j] < 0]
    return np.array(mass)


def cells_of(
    loss: CentredLoss, x: Array, ratios: Array, off: Array | float = 0.0, *, without: Iterable[float] = ()
) -> tuple[Cells, Array, Array, Array]:
    """Return the cells between every other of the points x, with tangents at the points between; `ratios` at their ends have relative errors `off`.

    Parameters
    ----------
    without : iterable of float
        Atoms of the loss that are left out of the cells.

    Returns
    -------
    cells : Cells
    fall, q, q_error : ndarray
        x Q − P of each cell, x at its upper end; Q, and the error of Q.
    """
    ends = np.array([np.clip(outcomes(loss, atom), x[0], x[-1]) for atom in without]).reshape(-1, 2)
    cuts = np.sort(np.concatenate([x, ends.ravel()]))
    kept = np.ones(cuts.size - 1)
    for left, right in ends:
        kept[np.searchsorted(cuts, left) : np.searchsorted(cuts, right)] = 0.0
    half = np.minimum(np.searchsorted(x, cuts[:-1], side="right"), x.size - 1) - 1
    p, q, p_error, q_error = (
        np.asarray(np.bincount(half, kept * v, x.size - 1), dtype=float).reshape(-1, 2)
        for v in loss.masses(cuts)
    )
    low, high = ratios[:-1], ratios[1:]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        rises, falls = p - low[:, None] * q, high[:, None] * q - p
        error = (p_error + high[:, None] * (q_error + _LEAST + off * q)).sum(axis=1)
        cells = Cells(p.sum(axis=1), rises.sum(axis=1), rises[:, 0], falls[:, 1], p_error.sum(axis=1), error)
        return cells, falls.sum(axis=1), q.sum(axis=1), q_error.sum(axis=1)


def far_end(loss: CentredLoss, tail: float, most: float = math.inf) -> tuple[float, float]:
    """Return the point beyond which losses exceed `most` or have probability `tail` under P, and its loss; infinity if the loss ends in an atom."""
    if loss.atoms and loss.edge == math.inf == float(loss.inverse(loss.atoms[0])) and loss.atoms[0] <= most:
        return math.inf, loss.atoms[0]
    x = min(float(loss.isf(tail)) + loss.sensitivity / 2, loss.edge)
    if float(loss.loss(x)) > most:
        x = float(loss.inverse(most))
    return x, float(loss.loss(x))


def outcomes(loss: CentredLoss, atom: float) -> tuple[float, float]:
    """Return the ends of the interval of outcomes that have this loss."""
    return -float(loss.inverse(-atom)), float(loss.inverse(atom))


def on_points(losses: Array, step: float) -> Array:
    """Return which losses are points of a grid, up to rounding."""
    return np.asarray(np.abs(losses / step - np.round(losses / step)) < 1e-9)


def discretise(
    loss: Loss,
    step: float,
    *,
    pessimistic: bool,
    upper_tail: float,
    lower_tail: float,
    most: float = math.inf,
    least: float = -math.inf,
) -> GridLoss:
    """Discretise the privacy loss of one coordinate.

    Parameters
    ----------
    loss : CentredLoss or AtomicLoss
    step : float
        Distance of grid points; choose a divisor of the atoms, if any.
    pessimistic : bool
    upper_tail, lower_tail : float
        Probabilities beyond which large and small losses are merged: upwards into infinity and the lowest
        point when pessimistic, else downwards, or dropped.
    most : float
        Losses above it, or below its negative, are merged likewise. The others sum to less than ``ε - most`` with probability e^(ε − most) at most.
    least : float
        Outcomes with losses up to this add nothing to δ, whatever the others are, and may be left out.

    Returns
    -------
    GridLoss
    """
    if isinstance(loss, AtomicLoss):
        near = loss.values > least
        loss = loss if near.all() else AtomicLoss(loss.values[near], loss.mass[near], loss.infinity)
        return discretise_atoms(loss, step, pessimistic=pessimistic, most=most)
    if loss.edge <= 0:
        return GridLoss(step, 0, np.zeros(1), 1.0, 0.0, pessimistic)
    half = loss.sensitivity / 2
    x_high, largest = far_end(loss, upper_tail, most)
    x_low, smallest = -x_high, -largest
    if math.isfinite(x_high):
        x_low = max(-float(loss.isf(lower_tail)) + half, -loss.edge)
        if float(loss.loss(x_low)) < -most or x_low >= x_high:
            x_low = -x_high
        smallest = float(loss.loss(x_low))
    raised = step * math.floor(min(least, largest) / step - 1) if least > smallest else -math.inf
    if left_out := raised > smallest:
        smallest = raised
        x_low = float(loss.inverse(smallest))
    first, last = math.floor(smallest / step - 1e-9), math.ceil(largest / step - 1e-9)
    last = max(last, first + 1)
    if last - first > MOST:
        raise DesignError.of(
            "step", step, f"needs {last - first} grid points for this law; use a larger step"
        )
    levels = step / 2 * np.arange(2 * first, 2 * last + 1)
    x = np.clip(loss.inverse(levels), x_low, x_high)
    x[0], x[-1] = x_low, x_high
    inside = (x > x_low) & (x < x_high)
    slop = float(np.max(np.abs(loss.loss(x[inside]) - levels[inside]), initial=0.0))
    slop += 1e-15 * max(1.0, -math.log(max(upper_tail, 1e-308)))
    atoms = np.array([*loss.atoms, *(-atom for atom in loss.atoms)])
    atoms = atoms[on_points(atoms, step)]
    with np.errstate(over="ignore"):
        cells, *_ = cells_of(loss, x, np.exp(levels[::2]), without=atoms)
    also = np.zeros(last - first + 1)
    for atom in atoms[(atoms >= smallest) & (atoms <= largest)]:
        k = round(atom / step)
        p, _, error, _ = loss.masses(np.clip(outcomes(loss, atom), x_low, x_high))
        also[k - first] += max(float(p[0] + error[0] if pessimistic else p[0] - error[0]), 0.0)
        slop = max(slop, abs(atom - k * step) + 1e-15 * abs(atom))
    below, beyond = loss.outside(x_low, x_high)
    if pessimistic:
        also[0] += 0.0 if left_out else below * (1 + 1e-12)
        infinite = beyond * (1 + 1e-12 + loss.end_error)
    else:
        infinite = beyond * max(1 - 1e-12 - loss.end_error, 0.0)
        if x_high < loss.edge:  # their losses are at least the last point but one
            also[-2], infinite = also[-2] + infinite, 0.0
    mass = cells.on_grid(step, first, pessimistic=pessimistic, also=also)
    grid = GridLoss(step, first, mass, infinite, slop if pessimistic else -slop, pessimistic)
    return grid if pessimistic or left_out else known(grid, also)


def known(grid: GridLoss, also: Array | float = 0.0) -> GridLoss:
    """Return a grid from below; if it holds less than half of the mass, its cells are too coarse, and all outcomes but `also` are merged into one."""
    if float(grid.mass.sum()) + grid.infinity >= 0.5:
        return grid
    told = min(float(np.sum(also)) + grid.infinity, 1 - 1e-15)
    low = math.floor((math.log1p(-told) - grid.offset) / grid.step - 1e-9) - grid.start
    if abs(low) > MOST:
        return grid
    mass = np.zeros(max(grid.mass.size, low + 1) - min(low, 0))
    mass[-min(low, 0) :][: grid.mass.size] += also
    mass[max(low, 0)] += (1 - told) * (1 - ROUNDED)
    return replace(grid, start=grid.start + min(low, 0), mass=mass)


def discretise_atoms(loss: AtomicLoss, step: float, *, pessimistic: bool, most: float = math.inf) -> GridLoss:
    """Put atoms on a grid, from above (two neighbours each) or from below; losses beyond `most` as `discretise` does."""
    if (loss.values > most).any():
        loss = loss.up_to(most, pessimistic=pessimistic)
    if not loss.values.size:
        return GridLoss(step, 0, np.zeros(1), loss.infinity, 0.0, pessimistic)
    where = loss.values / step
    nearest = np.round(where)
    on_grid = on_points(loss.values, step)
    low = np.where(on_grid, nearest, np.floor(where))
    start, points = low.min(), float(np.ptp(low))
    if points > MOST:
        raise DesignError.of(
            "step", step, f"needs {points:.3g} grid points for these losses; use a larger step"
        )
    start, index = int(start), (low - start).astype(np.int64)
    # distance of an atom on the grid from its point: about rounding, if the grid was aligned with it
    off = (loss.values - step * nearest)[on_grid] * (1 if pessimistic else -1)
    slop = float(np.max(off + 1e-15 * np.abs(loss.values[on_grid]), initial=0.0))
    far = np.where(on_grid, 0.0, np.clip(loss.values - low * step, 0.0, step))
    lift, lower = loss.mass * -np.expm1(-far), far < step / 2
    with np.errstate(over="ignore"):
        fall = loss.mass * np.expm1(np.where(lower | (loss.mass == 0), 0.0, step - far))  # 0 · ∞ is NaN
    sums = (loss.mass, lift, lift * lower, fall)
    mass, lift, below, above = (np.asarray(np.bincount(index, v, index.max() + 1), dtype=float) for v in sums)
    cells = Cells(mass, lift, below, above, ROUNDED * mass, ROUNDED * (lift + above))
    infinite = loss.infinity if pessimistic else loss.infinity * (1 - ROUNDED)
    mass = cells.on_grid(step, start, pessimistic=pessimistic)
    grid = GridLoss(step, start, mass, infinite, slop if pessimistic else -slop, pessimistic)
    return grid if pessimistic else known(grid)


_OUTSIDE = 1e-16
"""Tilted probability allowed outside the convolution window, each side."""
_VANISHED = -100.0
"""log of a product of transforms that counts as 0."""
_COARSE = 1e-4
"""If rounding errors exceed this share of δ, it is convolved in long doubles, if the machine has them."""
_FAR, _RARE, _MOST_LARGE, _LEFT = 8.0, 0.1, 12, 1e-6
"""Standard deviations from ε to the mean of a tilt that is no guide; mean number of large losses that is rare; most of them; share of δ left open."""
_WORSE = 7.0
"""whose Chernoff bound may be larger by this much in its logarithm: an FFT has that many digits to spare."""

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


def _norm(x: np.ndarray) -> float:
    """Return the Euclidean norm by pairwise summation; BLAS would start threads for microseconds of work."""
    return math.sqrt(float(np.sum(x * x)))


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
def convolve(
    parts: Sequence[Part], tilt: Tilt, kind: type[np.floating] = np.float64, most: int = MOST
) -> tuple[int, np.ndarray, float, float]:
    r"""Convolve the tilted parts, in numbers of this kind, on at most `most` points.

    Returns
    -------
    start : int
        Grid index of the first entry.
    mass : ndarray
        The tilted law of the sum, on its window.
    norm : float
        Proved bound on the Euclidean norm of the rounding errors of `mass`.
    outside : float
        Bound on the tilted mass outside the window (and folded back into it by the circular convolution).

    Notes
    -----
    Norm-wise error of one FFT of length n: at most ``c · u · log2(n)`` with c below 10 for any mixed radix
    (Higham 2002, Theorem 24.2, has 7 for radix 2); c = 16 here. Entries X of a transform are at most the sum of the weights, 1 + r
    with r their rounding. Powers of X and X + e thus differ by at most :math:`k(1 + r + |e|)^{k-1}|e|`, and over all entries by at most
    :math:`k e^{k(r + E)} E` in norm, E that of all e; of several parts these terms add up.
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
    unit = float(np.finfo(kind).eps) / 2
    eta = 16 * unit * math.log2(max(n, 2))
    log_abs_up = np.zeros(n // 2 + 1, dtype=kind)
    transforms, moved, grown = [], 0.0, 0.0
    for grid, count in parts:
        with np.errstate(divide="ignore"):
            weights = np.log(grid.mass) + tilt.theta * grid.points
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
        if grid.mass.size > n:  # fold: the transform is periodic anyway
            weights = np.asarray(np.bincount(np.arange(grid.mass.size) % n, weights, n), dtype=float)
        x, error = fft.rfft(weights.astype(kind), n), eta * math.sqrt(n) * _norm(weights)
        log_abs_up += count * np.log(np.abs(x) + error)
        transforms.append((x, count))
        moved += count * error
        grown += count * (error + ROUNDED)
    # a vanishing product, as nearly all are for many coordinates, is replaced by 0, with an error of its own size
    kept = np.flatnonzero(log_abs_up > _VANISHED)
    power = np.ones(kept.size, dtype=x.dtype)
    rounded = np.full(kept.size, 8.0)
    for x, count in transforms:
        part = x[kept]
        power *= part if count == 1 else part**count
        if count > 1:
            turns = np.abs(np.log(np.maximum(np.abs(part), 1e-300))) + np.abs(np.angle(part))
            rounded += (count * turns).astype(float)
    product = np.zeros(n // 2 + 1, dtype=x.dtype)
    product[kept] = power
    up = np.exp(log_abs_up)
    inverse = eta * _norm(up)
    up[kept] *= unit * rounded
    mass = fft.irfft(product, n)
    # entry j of the circular result is the mass at index floor + j (mod n)
    mass = np.roll(mass, -((first - floor) % n))[: last - first + 1].astype(float)
    norm = moved * math.exp(min(grown, LARGEST_POWER)) + _norm(up) + inverse
    return first, mass, math.sqrt(2 / n) * norm, outside


def _top(parts: Sequence[Part]) -> float:
    """Return the largest finite loss of the composition."""
    return parts[0][0].step * sum(count * (grid.start + grid.mass.size - 1) for grid, count in parts)


def _expected(parts: Sequence[Part], tilt: Tilt, level: float, sign: float, most: int) -> float:
    """Bound the tilted expectation of (1 − e^{level − L})₊ e^{−θ(L − level)} from above or from below."""
    for kind in (np.float64, np.longdouble):
        start, mass, norm, outside = convolve(parts, tilt, kind, most)
        gap = parts[0][0].step * (start + np.arange(mass.size, dtype=float)) - level
        positive = gap > 0
        gap = gap[positive]
        weights = np.exp(-tilt.theta * gap) * -np.expm1(-gap)
        value = float(np.sum(weights * mass[positive]))
        rounding = norm * _norm(weights) if norm < math.inf else math.inf
        if rounding < _COARSE * value or _LONGER * mass.size > most < MOST:
            break
    rounding += 4 * UNIT * mass.size * abs(value)
    peak = math.log1p(1 / tilt.theta) if tilt.theta > 0 else math.inf
    largest = math.exp(-tilt.theta * peak) / (1 + tilt.theta) if tilt.theta > 0 else 1.0
    largest = min(largest, -math.expm1(level - _top(parts)))
    return value + sign * (rounding + 2 * outside * largest)


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
        found += ways * composed_delta(kinds, level, enough=_LEFT * found / ways, most=most)[0]
        ways *= (count - k) / (k + 1)
        # probability of more large losses, at most
        more = ways * rare ** (k + 1) * math.exp(min(count * excess, LARGEST_POWER))
        if more <= _LEFT * found:
            break
    return (found + more) * (1 + ROUNDED) if grid.pessimistic else found * (1 - ROUNDED)


def composed_delta(
    parts: Sequence[Part], epsilon: float, *, guess: float = 0.0, enough: float = 0.0, most: int = MOST
) -> tuple[float, Tilt]:
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
        If Chernoff's bound for the finite losses is at most this, this replaces their part of δ (0 from below), and nothing is convolved.
    most : int
        Largest number of points.

    Returns
    -------
    delta : float
    tilt : Tilt
        The tilt used, a good guess for a neighbouring problem.
    """
    pessimistic = parts[0][0].pessimistic
    sign = 1.0 if pessimistic else -1.0
    offset = sum(count * grid.offset for grid, count in parts)
    infinite = -math.expm1(sum(count * math.log1p(-min(g.infinity, 1 - 1e-16)) for g, count in parts))
    if any(g.infinity >= 1 for g, _ in parts):
        infinite = 1.0
    level, count = epsilon - offset - sign * 4e-16 * abs(offset), sum(count for _, count in parts)
    top = _top(parts)
    tilt = Tilt(0.0, 0.0, 0.0, 0.0)
    finite = 0.0
    if level < top and infinite < 1:
        tilt = calmer(parts, find_tilt(parts, level, guess=guess), level)
        if len(parts) == 1 and _astray(tilt, level):
            few = _few_large(parts[0], level, most)
            if few is not None:
                return min(infinite + few, 1.0), tilt
        if tilt.log_mgf > -np.inf:
            # the logarithms carry relative errors of a few ulps of themselves
            slack = 1 + sign * 1e-14 * (10 + abs(tilt.log_mgf) + abs(tilt.theta * level) + 0.1 * count)
            log_chernoff = min(tilt.log_chernoff(level), 700.0)
            if enough > 0 and log_chernoff < math.log(enough / slack):
                return float(min(infinite + (enough if pessimistic else 0.0), 1.0)), tilt
            if log_chernoff < (max(math.log(infinite) - 45, -700.0) if infinite > 0 else -700.0):
                value = 1.0 if pessimistic else 0.0  # below the rounding of `infinite`
            else:
                value = _expected(parts, tilt, level, sign, most)
            finite = max(value, 0.0) * math.exp(log_chernoff) * slack
            if pessimistic and finite == 0:  # below the least double, but positive
                finite = math.ulp(0.0)
    delta = infinite + finite
    return float(min(max(delta, 0.0), 1.0)), tilt
