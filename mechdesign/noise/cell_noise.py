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

import bisect
import math
import secrets
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.losses import Loss
from mechdesign.typing import Array

__all__ = ["CellNoise"]


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
        Weights not integer, negative or all zero; widths not positive; tails with too few cells.

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
        if any(int(w) != w or w < 0 for w in self.weights) or sum(self.weights) + self.spike <= 0:
            raise DesignError.of("weights", self.weights, "must be non-negative integers, not all zero")
        object.__setattr__(self, "weights", tuple(int(w) for w in self.weights))
        if not (math.isfinite(self.width) and self.width > 0 and math.isfinite(self.start)):
            raise DesignError.of("width", self.width, "must be positive and finite, with a finite start")
        if self.cells_per_shift < 1:
            raise DesignError.of("cells_per_shift", self.cells_per_shift, "must be at least 1")
        if self.spike < 0 or (self.spike > 0 and not self.spike_width > 0):
            raise DesignError.of("spike", self.spike, "must be a non-negative integer with a positive width")
        if not 0 <= self.decay < 1:
            raise DesignError.of("decay", self.decay, "must be in [0, 1)")
        if self.decay and len(self.weights) < 2 * self.cells_per_shift:
            raise DesignError.of("weights", self.weights, "tails need at least two shifts' worth of cells")

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

    def hockey_stick(self, epsilon: Fraction | float, *, shifts: Any = None) -> dict[int, Fraction]:
        r"""Return upper bounds of :math:`D_k`, exact but for a relative 2⁻²⁴⁰ in :math:`e^\varepsilon`.

        Parameters
        ----------
        epsilon : float or Fraction
            ε ≥ 0.
        shifts : iterable of int, optional
            Shifts k in cells; all of ±1, …, ±n by default (the positive ones when the law is symmetric).

        Returns
        -------
        dict of int to Fraction
            The largest value bounds δ(ε) for **every** real shift up to n cells.
        """
        n = self.cells_per_shift
        if shifts is None:
            shifts = [k for k in range(-n, n + 1) if k > 0 or (k < 0 and not self.symmetric)]
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
        return np.interp(np.asarray(t, dtype=float), edges, table)

    def pdf(self, t: Any) -> Any:
        """Density at `t`."""
        t = np.asarray(t, dtype=float)
        masses, start = self._extended
        cell = np.floor((t - start) / self.width)
        inside = (cell >= 0) & (cell < len(masses))
        value = np.where(inside, masses[np.clip(cell, 0, len(masses) - 1).astype(int)], 0.0) / self.width
        if self.spike:
            value = value + np.where(np.abs(t) < self.spike_width / 2, self._spike_mass / self.spike_width, 0)
        return value[()]

    def logpdf(self, t: Any) -> Any:
        """Logarithm of the density."""
        with np.errstate(divide="ignore"):
            return np.log(self.pdf(t))

    def cdf(self, t: Any) -> Any:
        """P[T ≤ t]."""
        t = np.asarray(t, dtype=float)
        return (self._interpolate(t, self._below) + self._spike_mass * self._spike_part(t))[()]

    def sf(self, t: Any) -> Any:
        """P[T > t], accurate in the right tail."""
        t = np.asarray(t, dtype=float)
        return (self._interpolate(t, self._above) + self._spike_mass * (1 - self._spike_part(t)))[()]

    def ppf(self, q: Any) -> Any:
        """Quantile function."""
        q = np.asarray(q, dtype=float)
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

    def expected_loss(self, loss: Any = "absolute", *, nodes: int = 32) -> float:
        """Return E ℓ(T), exact to rounding for the absolute and squared losses, Gauss–Legendre otherwise."""
        loss = Loss.of(loss)
        masses, start = self._extended
        x, w = np.polynomial.legendre.leggauss(nodes)
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
        r"""Return δ(ε): the largest hockey-stick sum over all shifts up to the sensitivity, in doubles.

        `exact_delta` is the proved one.

        Parameters
        ----------
        epsilon : float or ndarray
            ε ≥ 0.
        """
        epsilon = np.asarray(epsilon, dtype=float)
        if not np.all(epsilon >= 0):
            raise DesignError.of("epsilon", epsilon, "must be non-negative")
        p = self._extended[0]
        n = self.cells_per_shift
        padded = np.concatenate([np.zeros(n), p, np.zeros(n)])
        flat = np.zeros(epsilon.size)
        shifts = [k for k in range(-n, n + 1) if k > 0 or (k < 0 and not self.symmetric)]
        for i, e in enumerate(np.ravel(epsilon)):
            with np.errstate(over="ignore", invalid="ignore"):
                growth = np.exp(e)
                sums = [
                    np.maximum(p - np.nan_to_num(growth * padded[n + k : n + k + len(p)]), 0).sum()
                    for k in shifts
                ]
            flat[i] = max(sums) + self._spike_mass
        return flat.reshape(epsilon.shape)[()]

    # Sampling --------------------------------------------------------------------------------------------

    def rvs(self, size: Any = None, random_state: Any = None) -> Any:
        """Draw fast floating-point samples (for simulation; `sample_exact` is for deployment)."""
        rng = np.random.default_rng(random_state)
        shape = () if size is None else size
        n = self.cells_per_shift
        mass = self._masses.copy()
        if self.decay:
            mass[:n] /= 1 - float(self.decay)
            mass[-n:] /= 1 - float(self.decay)
        table = np.concatenate([mass, [self._spike_mass]])
        cell = rng.choice(len(table), size=shape, p=table / table.sum())
        u = rng.random(shape)
        value = self.start + self.width * (cell + u)
        if self.decay:
            jumps = rng.geometric(1 - float(self.decay), size=shape) - 1
            last = (cell >= len(mass) - n) & (cell < len(mass))
            side = np.where(cell < n, -1, 0) + np.where(last, 1, 0)
            value = value + side * jumps * n * self.width
        if self.spike:
            value = np.where(cell == len(mass), self.spike_width * (u - 0.5), value)
        return value[()]

    @cached_property
    def _ticket_table(self) -> list[int]:
        table, total = [], 0
        n, count, r = self.cells_per_shift, len(self.weights), self.decay
        scale = (1 - r).numerator if r else 1
        ends = (1 - r).denominator if r else 1
        # With tails, the first and last n cells stand for themselves and all their repetitions.
        for i, w in enumerate(self.weights):
            total += w * (ends if r and (i < n or i >= count - n) else scale)
            table.append(total)
        table.append(total + self.spike * scale)
        return table

    def sample_cell(self) -> int | None:
        """Draw the index of a cell from the operating system's randomness, exactly; None is the spike.

        Indices below 0 and from ``len(weights)`` on are cells of the infinite tails.
        """
        table = self._ticket_table
        index = bisect.bisect_right(table, secrets.randbelow(table[-1]))
        if index == len(self.weights):
            return None
        n = self.cells_per_shift
        if self.decay and (index < n or index >= len(self.weights) - n):
            step = -n if index < n else n
            while secrets.randbelow(self.decay.denominator) < self.decay.numerator:
                index += step
        return index

    def sample_exact(self, *, bits: int = 32) -> Fraction:
        r"""Draw one value, exactly, on the grid of :math:`2^{-b}` cells.

        The law is that of the density rounded to the middle of its sub-cell. When the query is first rounded
        to multiples of ``width / 2**bits`` (of ``spike_width / 2**bits`` too, if there is a spike), the sums
        D_k bound the loss of what is released exactly: no floating-point number takes part.

        Parameters
        ----------
        bits : int
            b ≥ 0: sub-cells per cell are 2^b.
        """
        cell = self.sample_cell()
        within = Fraction(2 * secrets.randbits(bits) + 1, 2 << bits) if bits else Fraction(1, 2)
        if cell is None:
            return Fraction(self.spike_width) * (within - Fraction(1, 2))
        return Fraction(self.start) + Fraction(self.width) * (cell + within)
