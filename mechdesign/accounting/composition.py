r"""The composition of privacy losses on a grid, with relative accuracy at any δ.

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

import numpy as np
from scipy import fft

from mechdesign.accounting.grid import MOST, GridLoss
from mechdesign.accounting.losses import AtomicLoss
from mechdesign.errors import DesignError

_UNIT = 2.0**-53
_OUTSIDE = 1e-16
"""Tilted probability allowed outside the convolution window, each side."""
_VANISHED = -100.0
"""log of a product of transforms that counts as none."""
_COARSE = 1e-4
"""Share of a δ from which its rounding errors are too large: it is convolved in more digits, where the machine has them."""
_HALVINGS = 6
"""Of a tilt, for a calmer one"""
_WORSE = 7.0
"""whose Chernoff bound has at most this larger a logarithm: an FFT has so many digits to spare."""

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

    @property
    def window(self) -> float:
        """What a window takes of the composed loss, about."""
        return 20 * math.sqrt(max(self.variance, 0.0))

    def log_chernoff(self, epsilon: float) -> float:
        """log of the bound P[L ≥ ε] ≤ M(θ) e^{−θε}."""
        return self.log_mgf - self.theta * epsilon


def _norm(x: np.ndarray) -> float:
    """Euclidean norm by pairwise summation; BLAS would start threads for what takes microseconds."""
    return math.sqrt(float(np.sum(x * x)))


@np.errstate(over="ignore", invalid="ignore")  # huge losses; what is infinite then proves nothing
def cumulants(parts: Sequence[Part | tuple[AtomicLoss, int]], theta: float) -> Tilt:
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
    """A smaller tilt that needs a much narrower window, where one is nearly as good.

    Where a few rounds may lose much, the tilt at which the mean is ε consists of such rounds.
    """
    whole = sum(count * float(np.ptp(grid.points)) for grid, count in parts)
    low, found = 0.0, tilt
    for _ in range(_HALVINGS if tilt.theta > 0 else 0):
        middle = cumulants(parts, (low + found.theta) / 2)
        if middle.log_chernoff(epsilon) <= tilt.log_chernoff(epsilon) + _WORSE:
            found = middle
        else:
            low = middle.theta
    return found if 4 * found.window < min(tilt.window, whole) else tilt


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


def convolve(
    parts: Sequence[Part], tilt: Tilt, kind: type[np.floating] = np.float64
) -> tuple[int, np.ndarray, float, float, float]:
    r"""Convolve the tilted parts, in numbers of this kind.

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
    if last - first > MOST:
        count = sum(count for _, count in parts)
        needed = f"need {last - first} grid points together, more than {MOST:,}: ask for fewer rounds or coordinates"
        raise DesignError.of("terms", f"{count} privacy losses", needed)
    n = int(fft.next_fast_len(max(last - first + 1, 2), real=True))
    unit = float(np.finfo(kind).eps) / 2
    eta = 16 * unit * math.log2(max(n, 2))
    log_abs_up = np.zeros(n // 2 + 1, dtype=kind)
    transforms = []
    for grid, count in parts:
        with np.errstate(divide="ignore"):
            weights = np.log(grid.mass) + tilt.theta * grid.points
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
        if grid.mass.size > n:  # fold: the transform is periodic anyway
            weights = np.asarray(np.bincount(np.arange(grid.mass.size) % n, weights, n), dtype=float)
        x, each = fft.rfft(weights.astype(kind), n), eta * math.sqrt(n) * _norm(weights)
        with np.errstate(divide="ignore"):
            log_abs_up += count * np.log(np.abs(x) + each)
        transforms.append((x, count))
    # where the product vanishes, as of many coordinates it nearly everywhere does, 0 stands for it, with an error of all of it
    kept = np.flatnonzero(log_abs_up > _VANISHED)
    log_abs = np.zeros(kept.size, dtype=kind)
    power = np.ones(kept.size, dtype=x.dtype)
    power_error = np.full(power.size, 8.0)
    for x, count in transforms:
        part = x[kept]
        size = np.abs(part)
        with np.errstate(divide="ignore"):
            log_abs += count * np.log(size)
        power *= part if count == 1 else part**count
        if count > 1:
            turns = np.abs(np.log(np.maximum(size, 1e-300))) + np.abs(np.angle(part))
            power_error += (count * turns).astype(float)
    product = np.zeros(n // 2 + 1, dtype=x.dtype)
    product[kept] = power
    # Entry-wise: |X + e|^c - |X|^c at most (|X| + e)^c - |X|^c, plus the rounding of the power itself.
    up = np.exp(log_abs_up)
    product_error = up.copy()
    product_error[kept] += unit * power_error * up[kept] - np.exp(log_abs)
    mass = fft.irfft(product, n)
    inverse = eta * math.sqrt(2 / n) * _norm(up)
    norm = math.sqrt(2 / n) * _norm(product_error)
    each = min(2 / n * float(product_error.sum()), norm)
    # entry j of the circular result is the mass at index floor + j (mod n)
    mass = np.roll(mass, -((first - floor) % n))[: last - first + 1].astype(float)
    return first, mass, norm + inverse, each + inverse, outside


def _certain(parts: Sequence[Part], tilt: Tilt, level: float) -> bool:
    """Whether all of the loss but what no double sees lies far above the level: then there is nothing to convolve.

    It would be an array as long as the loss is large, of gigabytes where noise is far too small for its rounds.
    """
    room = tilt.mean - level + math.log(_OUTSIDE)
    if tilt.theta > 0 or not room > 0:
        return False
    order = float(room) / max(float(tilt.variance), 1e-300)
    below = cumulants(parts, -order).log_mgf - tilt.log_mgf + order * (tilt.mean - room)
    return below <= math.log(_OUTSIDE)


def _expected(parts: Sequence[Part], tilt: Tilt, level: float, sign: float) -> float:
    """The tilted expectation of (1 − e^{level − L})₊ e^{−θ(L − level)}, from above or from below."""
    for kind in (np.float64, np.longdouble):
        start, mass, norm, _, outside = convolve(parts, tilt, kind)
        gap = parts[0][0].step * (start + np.arange(mass.size)) - level
        positive = gap > 0
        gap = gap[positive]
        weights = np.exp(-tilt.theta * gap) * -np.expm1(-gap)
        value = float(np.sum(weights * mass[positive]))
        rounding = norm * _norm(weights)
        if rounding < _COARSE * value:
            break
    rounding += 4 * _UNIT * mass.size * abs(value)
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
    offset = sum(count * grid.offset for grid, count in parts)
    infinite = -math.expm1(sum(count * math.log1p(-min(g.infinity, 1 - 1e-16)) for g, count in parts))
    if any(g.infinity >= 1 for g, _ in parts):
        infinite = 1.0
    level, count = epsilon - offset - sign * 4e-16 * abs(offset), sum(count for _, count in parts)
    top = step * sum(count * (grid.start + grid.mass.size - 1) for grid, count in parts)
    tilt = Tilt(0.0, 0.0, 0.0, 0.0)
    finite = 0.0
    if level < top and infinite < 1:
        tilt = calmer(parts, find_tilt(parts, level, guess=guess), level)
        if tilt.log_mgf > -np.inf:
            # the logarithms carry relative errors of a few ulps of themselves
            slack = 1 + sign * 1e-14 * (10 + abs(tilt.log_mgf) + abs(tilt.theta * level) + 0.1 * count)
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
