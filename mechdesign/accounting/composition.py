r"""Privacy losses on a grid, from above and from below, and their composition with relative accuracy at any δ.

A pair (P, Q) of output laws is cut into cells of the privacy loss. With p and q the masses of one cell:

*from above* (connect the dots, Doroshenko et al. 2022): the cell is replaced by two points, its ends on the
    grid, with the same p and the same q. A hockey-stick divergence is a convex function of dQ/dP, so the
    replacement dominates (P, Q).
*from below*: the cell is replaced by one point, of loss log(p/q). That is post-processing, so (P, Q)
    dominates the replacement. The cells are centred so that log(p/q) falls on the grid up to a residual
    of higher order, and the largest residual is carried along as `slop`.

Both are of second order in the step. Working with masses instead of second differences of δ(ε) keeps the
relative accuracy in the tails, which is where small δ live.

**Composition.** The loss of K independent coordinates is the sum of their losses, so its distribution is a convolution and

.. math:: \delta(\varepsilon) = P[\infty] + E\left[(1 - e^{\varepsilon - L})_+\right].

An FFT convolution of the masses has *absolute* errors near 1e-16, which hide δ = 1e-14 and make 1e-10
uncertain. Tilting removes the floor: with :math:`M(\theta) = E e^{\theta L}` and :math:`\tilde P \propto e^{\theta L}P`,

.. math:: \delta = e^{\log M(\theta) - \theta\varepsilon}\;
          \tilde E\left[e^{-\theta(L-\varepsilon)}(1 - e^{\varepsilon - L})_+\right] + P[\infty],

where θ puts the tilted mean at ε: the expectation is of order one over the spread of L whatever δ is, and the FFT
error, bounded below from norms, is relative to it. The window of the circular convolution is chosen by
Chernoff bounds under the tilted law; what falls outside is added (or taken away).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import fft

from mechdesign.accounting.losses import AtomicLoss, Loss
from mechdesign.errors import DesignError

_MOST = 20_000_000
"""Points of a grid."""


@dataclass(frozen=True)
class GridLoss:
    """Mass of the privacy loss on the points ``step * (start + k)``.

    Attributes
    ----------
    step : float
    start : int
    mass : ndarray
        Probability under P of each point (sums to 1 − infinity − what was dropped).
    infinity : float
        Probability of an infinite loss.
    slop : float
        True losses are within this of the grid, in the direction that matters for `pessimistic`.
    pessimistic : bool
        Whether δ computed from the grid is an upper bound (else a lower one).
    """

    step: float
    start: int
    mass: np.ndarray
    infinity: float
    slop: float
    pessimistic: bool

    @cached_property
    def points(self) -> np.ndarray:
        """The loss values."""
        return self.step * (self.start + np.arange(self.mass.size))

    @cached_property
    def log_mass(self) -> np.ndarray:
        """Logarithms of the mass, which every tilt starts from."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.mass))


def discretise(
    loss: Loss,
    step: float,
    *,
    pessimistic: bool,
    upper_tail: float,
    lower_tail: float,
    theta: float = 0.0,
    exact: bool = False,
) -> GridLoss:
    """Discretise the privacy loss of one coordinate.

    Parameters
    ----------
    loss : CentredLoss or AtomicLoss
    step : float
        Distance of grid points; pick a divisor of the atoms, if any.
    pessimistic : bool
    upper_tail, lower_tail : float
        Probabilities beyond which large and small losses are merged: upwards into infinity and the lowest
        point when pessimistic, else dropped.
    theta : float
        Tilt at which the grid will be used: decides which cells of a lower bound deserve accuracy.
    exact : bool
        Keep the slop of a lower bound at rounding level, whatever it costs elsewhere: right when δ hangs on
        atoms that barely pass ε.

    Returns
    -------
    GridLoss
    """
    if isinstance(loss, AtomicLoss):
        return discretise_atoms(loss, step, pessimistic=pessimistic, theta=theta)
    half = loss.sensitivity / 2
    x_high = min(float(loss.isf(upper_tail)) + half, loss.edge)
    x_low = max(-float(loss.isf(lower_tail)) + half, -loss.edge)
    if not x_low < x_high:
        return GridLoss(step, 0, np.zeros(1), 1.0, 0.0, pessimistic)
    largest, smallest = float(loss.loss(x_high)), float(loss.loss(x_low))
    first, last = math.floor(smallest / step - 1e-9), math.ceil(largest / step - 1e-9)
    last = max(last, first + 1)
    if last - first > _MOST:
        raise DesignError.of(
            "step", step, f"needs {last - first} grid points for this law; use a larger step"
        )
    evaluation = 1e-15 * max(1.0, -math.log(max(upper_tail, 1e-308)))

    def crossings(levels: np.ndarray) -> np.ndarray:
        """Where the loss passes them, from one end to the other."""
        x = np.clip(loss.inverse(levels), x_low, x_high)
        x[0], x[-1] = x_low, x_high
        return x

    # P(loss infinite) and P(beyond x_high), both under the query whose loss is looked at
    beyond = float(loss.sf(x_high - half))
    centres = step * np.arange(first, last + 1)
    if pessimistic:
        x = crossings(centres)
        inside = (x > x_low) & (x < x_high)
        slop = float(np.max(np.abs(loss.loss(x[inside]) - centres[inside]), initial=0.0)) + evaluation
        mass = spread(*loss.masses(x), centres)
        mass[0] += float(loss.sf(-(x_low - half))) * (1 + 1e-12)
        return GridLoss(step, first, mass, beyond * (1 + 1e-12 + loss.end_error), slop, True)
    bounds = step * (np.arange(first, last + 2) - 0.5)
    p, q, _, _ = loss.masses(crossings(bounds))
    # Shift the bounds by the mean residual of their two cells: what is left is of fourth order.
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = np.nan_to_num(np.log(p / q) - centres, nan=0.0, posinf=0.0, neginf=0.0)
    residual[np.abs(residual) > step / 8] = 0.0
    shift = np.zeros_like(bounds)
    shift[1:-1] = -(residual[:-1] + residual[1:]) / 2
    x = crossings(bounds + shift)
    # An atom is a cell of its own: merged with its neighbours it would leave the grid.
    for atom in (*loss.atoms, *(-a for a in loss.atoms)):
        left, right = np.clip([-float(loss.inverse(-atom)), float(loss.inverse(atom))], x_low, x_high)
        if left < right:
            i, j = np.searchsorted(x, [left, right])
            x = np.concatenate([x[:i], [left, right], x[j:]])
    p, q, p_error, q_error = loss.masses(x)
    infinite = beyond if x_high == loss.edge else 0.0
    inner = (first - 1, last + 1)
    grid_loss = contract(
        np.maximum(p - p_error, 0), q + q_error, step, theta=theta, exact=exact, window=inner
    )
    return GridLoss(
        step,
        grid_loss.start,
        grid_loss.mass,
        infinite * max(1 - 1e-12 - loss.end_error, 0.0),
        grid_loss.slop + evaluation,
        False,
    )


def discretise_atoms(
    loss: AtomicLoss, step: float, *, pessimistic: bool, theta: float = 0.0, smear: bool = False
) -> GridLoss:
    """Put atoms on a grid, from above (two neighbours each) or from below.

    With `smear`, sorted atoms that are dense on the grid are shared out between cells as if each filled the
    gap to its neighbours (randomised post-processing, so still from below): without it the number of atoms
    per cell would jump, and the error be of first order.
    """
    where = loss.values / step
    nearest = np.round(where)
    if pessimistic:
        on_grid = np.abs(where - nearest) < 1e-9
        low = np.where(on_grid, nearest, np.floor(where))
        share = np.clip(np.expm1(np.minimum(low * step - loss.values, 0)) / math.expm1(-step), 0, 1)
        share = np.where(on_grid, 0.0, share)
        start = int(low.min())
        index = (low - start).astype(np.int64)
        mass = np.bincount(index, weights=loss.mass * (1 - share), minlength=index.max() + 2)
        mass += np.bincount(index + 1, weights=loss.mass * share, minlength=index.max() + 2)
        # how far above its point an atom on the grid is: hardly more than rounding, where the grid was aligned with it
        above = (loss.values - step * nearest)[on_grid] + 1e-15 * np.abs(loss.values[on_grid])
        slop = float(np.max(above, initial=0.0))
        return GridLoss(step, start, mass * (1 + 1e-14), loss.infinity, slop, True)
    share = np.ones_like(where)
    if smear and where.size > 2:
        middle = (where[1:] + where[:-1]) / 2
        low = np.concatenate([[where[0]], middle])
        high = np.concatenate([middle, [where[-1]]])
        cell = np.floor(low + 0.5)
        split = np.floor(high + 0.5) == cell + 1
        share = np.where(split, (cell + 0.5 - low) / np.where(split, high - low, 1.0), 1.0)
        nearest = np.where(split, cell, nearest)
    start = int(nearest.min())
    index = (nearest - start).astype(np.int64)
    q_mass = loss.mass * np.exp(-loss.values)
    size = index.max() + 2
    p, q = (
        np.bincount(index, weights=m * share, minlength=size)
        + np.bincount(index + 1, weights=m * (1 - share), minlength=size)
        for m in (loss.mass, q_mass)
    )
    out = contract(p * (1 - 1e-14), q, step, theta=theta)
    return GridLoss(step, out.start, out.mass, loss.infinity * (1 - 1e-14), out.slop, False)


def spread(
    p: np.ndarray, q: np.ndarray, p_error: np.ndarray, q_error: np.ndarray, grid: np.ndarray
) -> np.ndarray:
    """Connect the dots: split the masses of the cells (grid[i], grid[i+1]] between their two ends.

    Rounding goes upwards: the mass p, and within it the share of the upper end.
    """
    step = grid[1] - grid[0]
    # w_hi + w_lo = p,  w_hi e^{-hi} + w_lo e^{-lo} = q
    p = p + p_error
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp(np.minimum(grid[:-1], 700.0))
        high = (p - ratio * np.maximum(q - q_error, 0)) / -math.expm1(-step)
        high = high + 4e-16 * p / step
    high = np.clip(np.nan_to_num(high, nan=0.0), 0, p)
    mass = np.zeros(grid.size)
    mass[1:] += high
    mass[:-1] += p - high
    return mass


def contract(
    p: np.ndarray,
    q: np.ndarray,
    step: float,
    *,
    theta: float = 0.0,
    exact: bool = False,
    window: tuple[int, int] | None = None,
) -> GridLoss:
    """Merge each cell into one point of the grid, or the point below where that costs less.

    Cell i has masses p[i], q[i] and therefore loss log(p/q), nearest to some point of the grid. A residual −e
    below that point is paid either by moving the cell one point down, or by all coordinates as slop; the
    cheaper mix is taken (the cost of the moves, weighted by the masses tilted by e^{θL}, against e).

    What rounding puts outside the `window` of points, where a cell holds no more mass than its error, is moved down to its
    upper end, or dropped below its lower one: both are from below.
    """
    alive = (p > 0) & (q > 0)
    p, q = p[alive], q[alive]
    if p.size == 0:
        return GridLoss(step, 0, np.zeros(1), 0.0, 0.0, False)
    value = np.log(p) - np.log(q)
    k = np.round(value / step)
    if window is not None:
        known = k >= window[0]
        p, q, value, k = p[known], q[known], value[known], np.minimum(k[known], window[1])
        if p.size == 0:
            return GridLoss(step, 0, np.zeros(1), 0.0, 0.0, False)
    residual = np.minimum(value - step * k, 0.0)
    # Moving every cell whose residual is below -slop costs about step * (their mass).
    order = np.argsort(residual)
    with np.errstate(under="ignore"):
        exponent = np.log(p) + theta * step * k
        weights = np.exp(exponent - exponent.max())
    moved = np.concatenate([[0.0], np.cumsum(weights[order])])[:-1] / weights.sum()
    best = int(np.argmin(step * moved - residual[order]))
    slop = float(-residual[order][best])
    if exact:
        small = -residual[-residual < 1e-12]
        slop = float(small.max()) if small.size else 0.0
    down = np.ceil(np.maximum(-residual - slop, 0) / step - 1e-9)
    down = np.where(-residual > slop, np.maximum(down, 1), 0)
    target = (k - down).astype(np.int64)
    start = int(target.min())
    mass = np.bincount(target - start, weights=p)
    return GridLoss(step, start, mass, 0.0, slop, False)


_UNIT = 2.0**-53
_OUTSIDE = 1e-16
"""Tilted probability allowed outside the convolution window, each side."""
_VANISHED = -100.0
"""log of a product of transforms that counts as none."""
_COARSE = 1e-7
"""Error of a power from which its transform is worth summing term by term,"""
_SUMMED = 2**22
"""by this many terms at most."""

Part = tuple[GridLoss, int]


@dataclass(frozen=True)
class Tilt:
    """The exponential tilt at which the composed loss has mean ε.

    Attributes
    ----------
    theta : float
        θ ≥ 0.
    log_mgf, mean, variance : float
        Of the composed finite loss at θ.
    """

    theta: float
    log_mgf: float
    mean: float
    variance: float

    def log_chernoff(self, epsilon: float) -> float:
        """log of the bound P[L ≥ ε] ≤ M(θ) e^{−θε}."""
        return self.log_mgf - self.theta * epsilon


def _norm(x: np.ndarray) -> float:
    """Euclidean norm by pairwise summation; BLAS would start threads for what takes microseconds."""
    return math.sqrt(float(np.sum(x * x)))


@np.errstate(over="ignore", invalid="ignore")  # huge losses; what is infinite then proves nothing
def cumulants(parts: Sequence[Part], theta: float) -> Tilt:
    """Mean, variance and log M of the composed loss under the tilt θ."""
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


def find_tilt(parts: Sequence[Part], epsilon: float, *, guess: float = 0.0) -> Tilt:
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


def _window(parts: Sequence[Part], tilt: Tilt) -> tuple[float, float, float]:
    """Losses between which the tilted composed law has all but `outside` of its mass (Chernoff)."""
    reach = math.sqrt(2 * math.log(1 / _OUTSIDE) / max(tilt.variance, 1e-300))
    log_tail = -math.log(_OUTSIDE)
    high, low = math.inf, -math.inf
    width = math.sqrt(max(tilt.variance, 1e-300))
    for factor in (0.9, 0.5, 0.25, 0.12, 0.06, 0.03, 0.015):
        # the best order is near `reach` for a nearly normal sum, smaller when single losses are large
        if factor < 0.5 and high - low < 30 * width:
            break
        s = factor * reach
        up = cumulants(parts, tilt.theta + s).log_mgf - tilt.log_mgf
        high = min(high, (up + log_tail) / s)
        down = cumulants(parts, tilt.theta - s).log_mgf - tilt.log_mgf
        low = max(low, -(down + log_tail) / s)
    return low, high, 2 * _OUTSIDE


def convolve(parts: Sequence[Part], tilt: Tilt) -> tuple[int, np.ndarray, float, float, float]:
    r"""Convolve the tilted parts.

    Returns
    -------
    start : int
        Grid index of the first entry.
    mass : ndarray
        The tilted law of the sum, on its window.
    norm, each : float
        Proved bounds on the rounding errors of `mass`: on their Euclidean norm, and on each.
    outside : float
        Bound on the tilted mass outside the window (and folded back into it by the circular convolution).

    Notes
    -----
    Norm-wise error of one FFT of length n: at most ``c · u · log2(n)`` with c below 10 for any mixed radix
    (Higham 2002, Theorem 24.2, has 7 for radix 2); c = 16 here. It is carried through the product of powers
    entry by entry.
    """
    step = parts[0][0].step
    low, high, outside = _window(parts, tilt)
    floor = sum(count * grid.start for grid, count in parts)
    ceiling = sum(count * (grid.start + grid.mass.size - 1) for grid, count in parts)
    first = max(floor, math.floor(low / step))
    last = min(ceiling, math.ceil(high / step))
    if first > last:
        first, last = floor, ceiling
    if last - first > _MOST:
        count = sum(count for _, count in parts)
        needed = f"need {last - first} grid points together, more than {_MOST:,}: ask for fewer rounds or coordinates"
        raise DesignError.of("terms", f"{count} privacy losses", needed)
    n = int(fft.next_fast_len(max(last - first + 1, 2), real=True))
    eta = 16 * _UNIT * math.log2(max(n, 2))
    log_abs_up = np.zeros(n // 2 + 1)
    transforms = []
    for grid, count in parts:
        with np.errstate(divide="ignore"):
            weights = np.log(grid.mass) + tilt.theta * grid.points
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
        if grid.mass.size > n:  # fold: the transform is periodic anyway
            weights = np.bincount(np.arange(grid.mass.size) % n, weights=weights, minlength=n)
        x = fft.rfft(weights, n)
        each = eta * math.sqrt(n) * _norm(weights)
        with np.errstate(divide="ignore"):
            log_abs_up += count * np.log(np.abs(x) + each)
        transforms.append((weights, x, each, count))
    # where the product vanishes, as of many coordinates it nearly everywhere does, 0 stands for it, with an error of all of it
    kept = np.flatnonzero(log_abs_up > _VANISHED)
    log_abs, log_abs_kept = np.zeros(kept.size), np.zeros(kept.size)
    power = np.ones(kept.size, dtype=complex)
    power_error = np.full(power.size, 8.0)
    for weights, x, each, count in transforms:
        part = x[kept]
        if count * each > _COARSE and kept.size * weights.size <= _SUMMED:
            part, each = _frequencies(weights, kept, n)
        size = np.abs(part)
        with np.errstate(divide="ignore"):
            log_abs += count * np.log(size)
            log_abs_kept += count * np.log(size + each)
        power *= part if count == 1 else part**count
        if count > 1:
            power_error += count * (np.abs(np.log(np.maximum(size, 1e-300))) + np.abs(np.angle(part)))
    log_abs_up[kept] = log_abs_kept
    product = np.zeros(n // 2 + 1, dtype=complex)
    product[kept] = power
    # Entry-wise: |X + e|^c - |X|^c at most (|X| + e)^c - |X|^c, plus the rounding of the power itself.
    up = np.exp(log_abs_up)
    product_error = up.copy()
    product_error[kept] += _UNIT * power_error * up[kept] - np.exp(log_abs)
    mass = fft.irfft(product, n)
    inverse = eta * math.sqrt(2 / n) * _norm(up)
    norm = math.sqrt(2 / n) * _norm(product_error)
    each = min(2 / n * float(product_error.sum()), norm)
    # entry j of the circular result is the mass at index floor + j (mod n)
    mass = np.roll(mass, -((first - floor) % n))[: last - first + 1]
    return first, mass, norm + inverse, each + inverse, outside


def _frequencies(weights: np.ndarray, which: np.ndarray, n: int) -> tuple[np.ndarray, float]:
    """Some entries of the transform of length n, summed one by one, and a bound on the error of each.

    The phases jk/n are reduced as integers; pairwise sums of a thousand terms are off by some 20 roundings of Σ weights = 1.
    """
    phases = (which[:, None] * np.arange(weights.size)) % n * (2 * math.pi / n)
    return np.sum(weights * np.exp(-1j * phases), axis=1), 64 * _UNIT


def _certain(parts: Sequence[Part], tilt: Tilt, level: float) -> bool:
    """Whether all of the loss but what no double sees lies far above the level: then there is nothing to convolve.

    It would be an array as long as the loss is large, of gigabytes where noise is far too small for its rounds.
    """
    room = tilt.mean - level + math.log(_OUTSIDE)
    if tilt.theta > 0 or not room > 0:
        return False
    order = room / max(tilt.variance, 1e-300)
    below = cumulants(parts, -order).log_mgf - tilt.log_mgf + order * (tilt.mean - room)
    return below <= math.log(_OUTSIDE)


def _expected(parts: Sequence[Part], tilt: Tilt, level: float, sign: float) -> float:
    """The tilted expectation of (1 − e^{level − L})₊ e^{−θ(L − level)}, from above or from below."""
    start, mass, norm, _, outside = convolve(parts, tilt)
    gap = parts[0][0].step * (start + np.arange(mass.size)) - level
    positive = gap > 0
    gap = gap[positive]
    weights = np.exp(-tilt.theta * gap) * -np.expm1(-gap)
    value = float(np.sum(weights * mass[positive]))
    rounding = norm * _norm(weights) + 4 * _UNIT * mass.size * abs(value)
    peak = math.log1p(1 / tilt.theta) if tilt.theta > 0 else math.inf
    largest = math.exp(-tilt.theta * peak) / (1 + tilt.theta) if tilt.theta > 0 else 1.0
    return value + sign * (rounding + 2 * outside * largest)


def composed_delta(
    parts: Sequence[Part], epsilon: float, *, guess: float = 0.0, enough: float = 0.0
) -> tuple[float, Tilt]:
    """δ at `epsilon` of the composition: an upper bound when the parts are pessimistic, else a lower one.

    Parameters
    ----------
    parts : sequence of (GridLoss, count)
        One step and one direction for all.
    epsilon : float
        ε ≥ 0.
    guess : float
        A first θ.
    enough : float
        Where Chernoff's bound of the finite losses is at most this, this stands for their part, and nothing is convolved.

    Returns
    -------
    delta : float
    tilt : Tilt
        The tilt used, a good guess for a neighbouring problem.
    """
    pessimistic = parts[0][0].pessimistic
    sign = 1.0 if pessimistic else -1.0
    step = parts[0][0].step
    slop = sum(count * grid.slop for grid, count in parts)
    infinite = -math.expm1(sum(count * math.log1p(-min(g.infinity, 1 - 1e-16)) for g, count in parts))
    if any(g.infinity >= 1 for g, _ in parts):
        infinite = 1.0
    level = epsilon - sign * slop
    top = step * sum(count * (grid.start + grid.mass.size - 1) for grid, count in parts)
    tilt = Tilt(0.0, 0.0, 0.0, 0.0)
    finite = 0.0
    if level < top and infinite < 1:
        tilt = find_tilt(parts, level, guess=guess)
        if tilt.log_mgf > -np.inf:
            # the logarithms carry relative errors of a few ulps of themselves
            slack = 1 + sign * 1e-14 * (10 + abs(tilt.log_mgf) + abs(tilt.theta * level))
            log_chernoff = min(tilt.log_chernoff(level), 700.0)
            if pessimistic and enough > 0 and log_chernoff < math.log(enough / slack):
                return float(min(infinite + enough, 1.0)), tilt
            if log_chernoff < (max(math.log(infinite) - 45, -700.0) if infinite > 0 else -700.0):
                value = 1.0 if pessimistic else 0.0  # next to an infinite loss no double sees it
            elif _certain(parts, tilt, level):
                value = 1 + sign * 4 * _OUTSIDE
            else:
                value = _expected(parts, tilt, level, sign)
            finite = max(value, 0.0) * math.exp(log_chernoff) * slack
            if pessimistic and finite == 0:  # below the least double, but not nothing
                finite = math.ulp(0.0)
    delta = infinite + finite
    return float(min(max(delta, 0.0), 1.0)), tilt
