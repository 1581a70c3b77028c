r"""Additive noise whose density is constant on cells of equal width: sampled exactly, its privacy exact.

With cells of width :math:`\beta`, masses :math:`p_j` and a shift :math:`d = (k + \theta)\beta`, every cell of the
shifted density covers two cells of the unshifted one in the ratio :math:`(1-\theta) : \theta`, so that

.. math:: D(d) = \int [f(t) - e^{\varepsilon} f(t + d)]_+\,dt = (1-\theta) D_k + \theta D_{k+1},
          \qquad D_k = \sum_j [p_j - e^{\varepsilon} p_{j+k}]_+ .

Finitely many sums therefore decide (ε, δ)-DP for every real shift up to the sensitivity. The masses are integers
over their total, so these sums are rational once :math:`e^\varepsilon` is bounded by a rational, and the cell is
drawn with no rounding at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.rounding import round_up
from mechdesign.evidence.sampling import IntegerWeights, uniform_integers
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import answers, array, generator, non_negative, number, positive, settle, whole
from mechdesign.problem.losses import Loss
from mechdesign.typing import Array, Indices

__all__ = ["CellNoise"]

_MOST = 10**8  # samples at a time


def _points(name: str, value: Any) -> Array:
    """Return `value` as an array of doubles, infinities and NaN included, or raise DesignError."""
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise DesignError.of(name, value, "must be numbers") from None


@serializable("cell-noise")
@dataclass(frozen=True)
class CellNoise:
    r"""Noise with a density that is constant on cells, with the interface of a frozen `scipy.stats` law.

    Parameters
    ----------
    weights : tuple of int
        Non-negative weights of the cells, from left to right.
    width : float
        Width β of a cell, in units of the query.
    start : float
        Left edge of the first cell.
    cells_per_shift : int
        n: the largest shift the noise was made for (the sensitivity) is n cells.
    spike : int
        Weight of a narrow extra cell around 0, on top of the others. The privacy sums charge it in full.
    spike_width : float
        Width of that cell.
    decay : Fraction
        When positive, both tails go on for ever: the outermost n cells repeat with their weights times `decay`.

    Raises
    ------
    DesignError
        Weights not integer, negative or all zero; widths not positive; too few cells for the tails or the shift.

    Notes
    -----
    Geng and Viswanath (2016) for the staircase, which is of this form; the lattice of shifts is [new] here.

    Examples
    --------
    >>> law = CellNoise(weights=(1, 3, 3, 1), width=0.5, start=-1.0, cells_per_shift=2)
    >>> law.var(), float(law.cdf(0.25))
    (0.20833333333333334, 0.6875)
    >>> float(law.privacy_profile(0.0)), law.exact_delta(0)
    (0.75, Fraction(3, 4))
    """

    weights: tuple[int, ...]
    width: float
    start: float
    cells_per_shift: int
    spike: int = 0
    spike_width: float = 0.0
    decay: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if not isinstance(self.weights, (tuple, list)) or not self.weights:
            raise DesignError.of("weights", self.weights, "must be a tuple of non-negative integers")
        weights = tuple(whole("weights", w, 0) for w in self.weights)
        most = len(weights) + 100  # every shift costs time, and beyond the last cell all are alike
        n, spike = whole("cells_per_shift", self.cells_per_shift, 1, most), whole("spike", self.spike, 0)
        if sum(weights) + spike == 0:
            raise DesignError.of("weights", self.weights, "must not all be zero")
        width, start = positive("width", self.width), number("start", self.start)
        narrow = (positive if spike else number)("spike_width", self.spike_width)
        if not isinstance(self.decay, (Fraction, int)) or not 0 <= self.decay < 1:
            raise DesignError.of("decay", self.decay, "must be a Fraction in [0, 1)")
        if self.decay and len(weights) < 2 * n:
            raise DesignError.of("weights", self.weights, "tails need at least two shifts' worth of cells")
        settle(self, weights=weights, width=width, start=start, cells_per_shift=n)
        settle(self, spike=spike, spike_width=narrow, decay=Fraction(self.decay))

    # Exact quantities ------------------------------------------------------------------------------------

    @cached_property
    def total(self) -> Fraction:
        """Sum of all weights, the infinite tails included."""
        n = self.cells_per_shift
        finite = Fraction(sum(self.weights) + self.spike)
        if not self.decay:
            return finite
        ends = sum(self.weights[:n]) + sum(self.weights[-n:])
        return finite + ends * self.decay / (1 - self.decay)

    @property
    def symmetric(self) -> bool:
        """Whether the density is even."""
        centre = Fraction(self.start) + Fraction(self.width) * len(self.weights) / 2
        return centre == 0 and self.weights == self.weights[::-1]

    def hockey_stick(self, epsilon: Fraction | float) -> dict[int, Fraction]:
        r"""Return upper bounds of :math:`D_k`, exact but for a relative 2⁻²⁴⁰ in :math:`e^\varepsilon`.

        Parameters
        ----------
        epsilon : float or Fraction
            ε ≥ 0.

        Returns
        -------
        dict of int to Fraction
            By shift k in cells, ±1, …, ±n; the positive ones when the law is symmetric. The largest value bounds δ(ε) for **every** real shift up to n cells.
        """
        n = self.cells_per_shift
        shifts = [k for k in range(-n, n + 1) if k > 0 or (k < 0 and not self.symmetric)]
        if not isinstance(epsilon, Fraction) or epsilon < 0:
            epsilon = non_negative("epsilon", epsilon)
        growth = exp_lower(epsilon)
        up, down = growth.numerator, growth.denominator
        cells: list[Fraction | int] = list(self.weights)
        if self.decay:
            # One period beyond each end: pairs further out are these, scaled by powers of the decay.
            left = [self.decay**2 * w for w in cells[:n]] + [self.decay * w for w in cells[:n]]
            right = [self.decay * w for w in cells[-n:]] + [self.decay**2 * w for w in cells[-n:]]
            scale = self.decay.denominator**2
            cells = [int(w * scale) for w in [*left, *cells, *right]]
        else:
            scale = 1
        whole = self.total * scale
        spike = Fraction(self.spike * scale)
        pad = [0] * n
        out: dict[int, Fraction] = {}
        for k in shifts:
            shifted = [*pad[: max(0, -k)], *cells, *pad[: max(0, k)]]
            moved = shifted[k:] if k > 0 else shifted[: len(cells)]
            here = cells
            if self.decay:  # the outermost period has no partner in the list
                here, moved = here[n:-n], moved[n:-n]
            excess = [a * down - b * up if a * down > b * up else 0 for a, b in zip(here, moved)]
            sum_here = Fraction(sum(excess))
            if self.decay:  # further out, terms repeat with the decay
                sum_here += (sum(excess[:n]) + sum(excess[-n:])) * self.decay / (1 - self.decay)
            out[k] = (sum_here / down + spike) / whole
        return out

    def exact_delta(self, epsilon: Fraction | float) -> Fraction:
        """Return a proved upper bound of δ(ε) over every real shift up to the sensitivity."""
        return max(self.hockey_stick(epsilon).values())

    # Distribution ----------------------------------------------------------------------------------------

    @cached_property
    def _masses(self) -> Array:
        total = self.total
        return np.array([float(w / total) for w in self.weights])

    @cached_property
    def _spike_mass(self) -> float:
        return float(self.spike / self.total)

    @cached_property
    def _extended(self) -> tuple[Array, float]:
        """Masses of cells out to where doubles end, and the left edge of the first of them."""
        if not self.decay:
            return self._masses, self.start
        n, r = self.cells_per_shift, float(self.decay)
        periods = min(math.ceil(-760 / math.log(r)), 4_000_000 // n)
        powers = r ** np.arange(1, periods + 1)
        left = np.outer(powers[::-1], self._masses[:n]).ravel()
        right = np.outer(powers, self._masses[-n:]).ravel()
        return np.concatenate([left, self._masses, right]), self.start - periods * n * self.width

    @cached_property
    def _below(self) -> Array:
        return np.concatenate([[0.0], np.cumsum(self._extended[0])])

    @cached_property
    def _above(self) -> Array:
        return np.concatenate([np.cumsum(self._extended[0][::-1])[::-1], [0.0]])

    def support(self) -> tuple[float, float]:
        """End points of the support."""
        if self.decay:
            return -math.inf, math.inf
        return self.start, self.start + len(self.weights) * self.width

    def _spike_part(self, t: Array) -> Array:
        if not self.spike:
            return np.zeros_like(t)
        return np.clip(t / self.spike_width + 0.5, 0.0, 1.0)

    def _interpolate(self, t: Any, table: Array) -> Array:
        masses, start = self._extended
        edges = start + self.width * np.arange(len(masses) + 1)
        return np.interp(t, edges, table)

    def pdf(self, t: Any) -> Any:
        """Density at `t`."""
        t = _points("t", t)
        masses, start = self._extended
        cell = np.floor((t - start) / self.width)
        inside = (cell >= 0) & (cell < len(masses))
        value = np.where(inside, masses[np.where(inside, cell, 0).astype(int)], 0.0) / self.width
        if self.spike:
            value = value + np.where(np.abs(t) < self.spike_width / 2, self._spike_mass / self.spike_width, 0)
        return value[()]

    def logpdf(self, t: Any) -> Any:
        """Logarithm of the density."""
        with np.errstate(divide="ignore"):
            return np.log(self.pdf(t))

    def cdf(self, t: Any) -> Any:
        """P[T ≤ t]."""
        t = _points("t", t)
        return (self._interpolate(t, self._below) + self._spike_mass * self._spike_part(t))[()]

    def sf(self, t: Any) -> Any:
        """P[T > t], accurate in the right tail."""
        t = _points("t", t)
        return (self._interpolate(t, self._above) + self._spike_mass * (1 - self._spike_part(t)))[()]

    def ppf(self, q: Any) -> Any:
        """Quantile function."""
        q = _points("q", q)
        masses, start = self._extended
        edges = start + self.width * np.arange(len(masses) + 1)
        if self.spike:
            extra = np.array([-self.spike_width / 2, self.spike_width / 2])
            edges = np.union1d(edges, extra)
        levels = self.cdf(edges)
        keep = np.concatenate([[True], np.diff(levels) > 0])
        value = np.interp(q, levels[keep], edges[keep])
        return np.where((q < 0) | (q > 1), np.nan, value)[()]

    def _moment(self, order: int) -> float:
        masses, start = self._extended
        a = start + self.width * np.arange(len(masses))
        b = a + self.width
        value = masses @ (b ** (order + 1) - a ** (order + 1)) / (self.width * (order + 1))
        if order == 2:
            value += self._spike_mass * self.spike_width**2 / 12
        return float(value)

    def mean(self) -> float:
        """E[T]."""
        return 0.0 if self.symmetric else self._moment(1)

    def var(self) -> float:
        """Variance."""
        return self._moment(2) - self.mean() ** 2

    def std(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.var())

    def expected_loss(self, loss: Any = "absolute") -> float:
        """Return E ℓ(T), exact to rounding for the absolute and squared losses, Gauss–Legendre otherwise."""
        loss = Loss.of(loss)
        masses, start = self._extended
        x, w = np.polynomial.legendre.leggauss(32)
        edges = start + self.width * np.arange(len(masses) + 1)
        # A cell across 0 is split there: every loss of interest has its kink at 0.
        pieces = np.union1d(edges, [0.0]) if edges[0] < 0 < edges[-1] else edges
        middle, half = (pieces[1:] + pieces[:-1]) / 2, np.diff(pieces) / 2
        owner = np.clip(np.searchsorted(edges, middle) - 1, 0, len(masses) - 1)
        density = masses[owner] / self.width
        value = float(density * half @ (loss(middle[:, None] + half[:, None] * x) @ w))
        if self.spike:
            h = self.spike_width / 4
            inner = np.concatenate([h * (1 + x), -h * (1 + x)])
            value += self._spike_mass * float(loss(inner) @ np.concatenate([w, w])) / 4
        return value

    def privacy_profile(self, epsilon: Any) -> Any:
        """δ(ε) over every real shift up to the sensitivity, proved and rounded up.

        Parameters
        ----------
        epsilon : float or ndarray
            ε ≥ 0.
        """
        flat = array("epsilon", epsilon, ndim=None)
        out = np.array([round_up(self.exact_delta(e)) for e in flat.ravel().tolist()])
        return out.reshape(flat.shape)[()]

    # Sampling --------------------------------------------------------------------------------------------

    def rvs(self, size: Any = None, random_state: Any = None) -> Any:
        """Draw floating-point samples for simulation; `release` is for deployment."""
        counts = size if isinstance(size, tuple) else () if size is None else (size,)
        shape = tuple(whole("size", count, 0, _MOST) for count in counts)
        if math.prod(shape) > _MOST:
            raise DesignError.of("size", size, f"must be at most {_MOST} values")
        return self.ppf(generator(random_state).random(shape))

    @cached_property
    def _steps_per_cell(self) -> int:
        """s, odd: n cells of s steps reach at least as far as n cells of the law."""
        return math.ceil(Fraction(self.width) / Fraction(self.step)) | 1

    @property
    def step(self) -> float:
        """Lattice step h of `release`, a power of two between 2⁻²⁰ and 2⁻²¹ cells."""
        return math.ldexp(1.0, math.frexp(self.width)[1] - 21)

    @cached_property
    def _cells(self) -> IntegerWeights:
        # With tails, the first and last n cells stand for themselves and all their repetitions.
        n, count, r = self.cells_per_shift, len(self.weights), self.decay
        inner, outer = (1 - r).numerator, (1 - r).denominator
        tickets = [w * (outer if i < n or i >= count - n else inner) for i, w in enumerate(self.weights)]
        return IntegerWeights([*(tickets if r else self.weights), self.spike * (inner if r else 1)])

    def _draw_steps(self, size: int) -> Indices:
        """Draw noise from the operating system's randomness, exactly, in halves of the lattice step.

        A cell by its integer weight, a repetition of it in the tails by exact coin flips, and one of the cell's
        s steps uniformly. Halves, because an even number of cells is symmetric about a point between two steps.
        """
        n, count, s = self.cells_per_shift, len(self.weights), self._steps_per_cell
        cell = self._cells.draw(size)
        spike = cell == count
        if self.decay:
            coin = IntegerWeights([self.decay.denominator - self.decay.numerator, self.decay.numerator])
            going = np.flatnonzero(~spike & ((cell < n) | (cell >= count - n)))
            outward = np.where(cell < n, -n, n)
            while going.size:
                going = going[coin.draw(going.size) == 1]
                cell[going] += outward[going]
        out = 2 * (cell * s + uniform_integers(s, size)) + 1 - count * s
        if spike.any():
            narrow = max(1, int(Fraction(self.spike_width) / Fraction(self.step))) | 1
            out[spike] = 2 * uniform_integers(narrow, int(spike.sum())) + 1 - narrow
        return out

    def release(self, x: Any) -> Any:
        r"""Return the answers `x` with noise added, as multiples of half a lattice step: for deployment.

        Answers are rounded to multiples of the step h, a power of two, which is exact in doubles. The noise is the
        law's own on that lattice: every cell has s ≥ β/h steps of equal probability. For answers that differ by at
        most nβ the rounded ones differ by at most :math:`\lceil n\beta/h \rceil \le ns` steps, and the sum for
        a shift of ks + r steps is :math:`(1 - r/s) D_k + (r/s) D_{k+1}`, so that `exact_delta` holds for what is
        released. Rounding and wider cells cost at most 2⁻²⁰ of a cell's width.

        Parameters
        ----------
        x : float or array
            Answers of the query, at most 2⁵¹ steps from 0.

        Raises
        ------
        DesignError
            An answer that is not finite or too far out; a density that is not centred at 0.
        """
        held = answers("x", x)
        scaled = held / self.step
        if np.any(np.abs(scaled) > 2.0**51):
            raise DesignError.of("x", x, f"must be within 2^51 steps of {self.step:g} around 0")
        if 2 * Fraction(self.start) != -len(self.weights) * Fraction(self.width):
            raise DesignError.of("start", self.start, "must be centred at 0 for an exact release")
        whole = np.floor(scaled)
        whole += scaled - whole >= 0.5
        steps = 2 * whole.astype(np.int64) + self._draw_steps(held.size).reshape(held.shape)
        return (steps * (self.step / 2))[()]
