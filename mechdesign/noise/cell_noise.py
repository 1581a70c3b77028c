r"""Additive noise whose density is constant on cells of a lattice: sampled exactly, its privacy exact.

With cells of width :math:`\beta`, masses :math:`p_j` and a shift :math:`d = (k + \theta)\beta`, every cell of the
shifted density covers two cells of the unshifted one in the ratio :math:`(1-\theta) : \theta`, so that

.. math:: D(d) = \int [f(t) - e^{\varepsilon} f(t + d)]_+\,dt = (1-\theta) D_k + \theta D_{k+1},
          \qquad D_k = \sum_j [p_j - e^{\varepsilon} p_{j+k}]_+ .

Finitely many sums therefore decide (ε, δ)-DP for every real shift up to the sensitivity. The masses are integers
over their total, so these sums are rational once :math:`e^\varepsilon` is bounded by a rational, and the cell is
drawn with no rounding at all. Noise on the whole numbers is the middle of such a cell of width 1, and is protected at whole shifts.

**Tails** whose outermost cells repeat for ever are summed in closed form. Let a period of length L hold cells of mass M in all, and its k-th repetition, k ≥ 1, the same cells shifted by kL,
times :math:`r^k`. For t in the period with :math:`G(t)` of its mass beyond t, and any order of the sum,

.. math:: P[T > t + kL] = r^k \Big(G(t) + \frac{Mr}{1 - r}\Big), \qquad
          \sum_{k \ge 1} r^k (t + kL)^2 = \frac{r}{1-r} t^2 + \frac{2Lr}{(1-r)^2} t + \frac{L^2 r(1+r)}{(1-r)^3} .

However small the budget, and so however slow the fall, nothing is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign import checks
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.exact import EXP_BITS, exp_lower, round_up
from mechdesign.evidence.page import Saved
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.sampling import IntegerWeights, streaks, uniform_integers
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.laws import draw_laws, half_width
from mechdesign.noise.release import noisy
from mechdesign.problem.losses import Loss, average_costs, tail_side
from mechdesign.typing import Array, Figure, Indices, Numbers, Randomness, Values

MOST_CELLS = 2**29  # of 2²¹ steps: released numbers are exact doubles
MOST_SUMS = 5_000_000
"""Largest number of pairs of cells that the check of a law compares, in numbers of 1,000 bits: a few seconds."""


# -- the noise ----------------------------------------------------------------------------------------------------


class _OnCells(Saved):
    """Common base of noise on cells and on the whole numbers at their middles: privacy at shifts by cells, and errors."""

    cells: CellNoise
    """The law on cells."""
    ppf: Callable[[Numbers], Array]

    _spread: int
    """1 where masses are spread over their cells, 0 where they stay at the middles."""

    def cost(self, loss: object = "absolute") -> Fraction:
        """Return E ℓ(T): exact for the absolute and squared parts of the loss, an upper bound for a convex callable."""
        law, held = self.cells, Loss.of(loss)
        n, unit = law.cells_per_shift, Fraction(law.width) / 2
        inner = n - Fraction(1 - self._spread, 2)
        if law.decay and not inner <= -Fraction(law.start) / unit / 2 <= law.count - inner:
            raise DesignError("start: must let the cells hold 0, as the tails are infinite")
        half = (Fraction(law.start) / unit).denominator
        unit /= half
        ends = np.arange(1, law.count + 1, dtype=object if half > 1 else np.int64)
        middles = int(Fraction(law.start) / unit) + half * (2 * ends - 1)
        total = average_costs(held, middles, unit, half=half * self._spread).weighted(law.weights)
        for part, sign in ((slice(n), -1), (slice(-n, None), 1)) if law.decay else ():
            tail = tail_side(held, middles[part], unit, half * self._spread, sign * 2 * n * half, law.decay)
            total += tail.weighted(law.weights[part])
        if law.spike:
            spike = average_costs(held, np.zeros(1, dtype=np.int64), Fraction(law.spike_width) / 2)
            total += spike.weighted([law.spike])
        return total / self.total

    def expected_loss(self, loss: object = "absolute") -> float:
        """Return E ℓ(T): to rounding for the absolute and squared losses, from above for a convex callable."""
        return float(self.cost(loss))

    @cached_property
    def total(self) -> Fraction:
        """Sum of all weights, the infinite tails included."""
        law = self.cells
        finite = Fraction(sum(law.weights) + law.spike)
        if not law.decay:
            return finite
        n = law.cells_per_shift
        repeated = sum(law.weights[:n]) + sum(law.weights[-n:])
        return finite + repeated * law.decay / (1 - law.decay)

    @property
    def symmetric(self) -> bool:
        """Whether the law is even."""
        law = self.cells
        centre = Fraction(law.start) + Fraction(law.width) * law.count / 2
        return centre == 0 and law.weights == law.weights[::-1]

    def hockey_stick(self, epsilon: Fraction | float) -> dict[int, Fraction]:
        r"""Return upper bounds of :math:`D_k`, exact but for a relative 2⁻²⁴⁰ in :math:`e^\varepsilon`.

        Returns
        -------
        dict of int to Fraction
            By shift k in cells, ±1, …, ±n; the positive ones when the law is symmetric. The largest value bounds δ(ε) for **every** real shift up to n cells,
            under noise on the whole numbers for every whole one.
        """
        if not isinstance(epsilon, Fraction) or epsilon < 0:
            epsilon = checks.non_negative("epsilon", epsilon)
        return lattice_sums(self.cells, exp_lower(epsilon))

    def exact_delta(self, epsilon: Fraction | float) -> Fraction:
        """Return a proved upper bound of δ(ε) over every shift up to the sensitivity."""
        return max(self.hockey_stick(epsilon).values())

    def privacy_profile(self, epsilon: Numbers) -> Values:
        """Return δ(ε) over every shift up to the sensitivity, proved and rounded up; `epsilon` may be an array."""
        return checks.each("epsilon", epsilon, lambda e: round_up(self.exact_delta(e)))

    def mean(self) -> float:
        """E[T]."""
        if self.symmetric:
            return 0.0
        law, (masses, _) = self.cells, self.cells.extended
        repeats = (len(masses) - law.count) // 2
        return float(masses @ (law.start + law.width * (np.arange(len(masses)) - repeats + 0.5)))

    def var(self) -> float:
        """Variance."""
        return self.expected_loss("squared") - self.mean() ** 2

    def std(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.var())

    def errors(self) -> Accuracy:
        """Return the errors of an answer."""
        side = half_width(self) if self.symmetric else float(max(-self.ppf(0.025), self.ppf(0.975)))
        return Accuracy(math.sqrt(self.expected_loss("squared")), self.expected_loss("absolute"), side)

    def rvs(self, size: object = None, random_state: Randomness = None) -> npt.NDArray[Any]:
        """Draw floating-point samples for simulation; `release` is for deployment."""
        return self.ppf(checks.generator(random_state).random(shape_of(size)))

    def plot(self, **options: float) -> Figure:
        """Draw the law and the tail."""
        return draw_laws({"this noise": self}, **options)


@serializable("cell-noise")
class CellNoise(checks.Checked, _OnCells):
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
        Weight of a narrow extra cell around 0, on top of the others. The privacy sums charge it in full; a law with tails has none.
    spike_width : float
        Width of that cell.
    decay : Fraction
        When positive, both tails go on for ever: the outermost n cells repeat with their weights times `decay`.

    Raises
    ------
    DesignError
        Weights are not integer, negative or all zero; widths are not positive; there are too few cells for the tails or the shift.

    Notes
    -----
    Geng and Viswanath (2016) for a staircase, which may be of this form; the lattice of shifts is [new] here.

    Examples
    --------
    >>> law = CellNoise(weights=(1, 3, 3, 1), width=0.5, start=-1.0, cells_per_shift=2)
    >>> round(law.var(), 6), round(float(law.cdf(0.25)), 6)
    (0.208333, 0.6875)
    >>> float(law.privacy_profile(0.0)), law.exact_delta(0)
    (0.75, Fraction(3, 4))
    """

    _spread = 1

    weights: tuple[int, ...] = checks.field(check=checks.integer, least=0, many=True)
    width: float = checks.field(check=checks.positive)
    start: float = checks.field(check=checks.number)
    # every shift costs time, and beyond the last cell all are equal
    cells_per_shift: int = checks.field(
        check=checks.integer, least=1, most=lambda self: len(self.weights) + 100
    )
    spike: int = checks.field(check=checks.integer, least=0, default=0)
    spike_width: float = checks.field(check=checks.non_negative, default=0.0)
    decay: Fraction = checks.field(Fraction, int, default=Fraction(0))

    def _post_check(self) -> None:
        weights, n = self.weights, self.cells_per_shift
        empty = not weights or sum(weights) + self.spike == 0
        checks.refuse(empty, "weights", weights, "must not all be zero")
        checks.refuse(self.spike and not self.spike_width, "spike_width", 0.0, "must be positive")
        checks.refuse(not 0 <= self.decay < 1, "decay", self.decay, "must be a Fraction in [0, 1)")
        few = self.decay and len(weights) < 2 * n
        checks.refuse(few, "weights", weights, "tails need at least two shifts' worth of cells")
        checks.refuse(self.decay and self.spike, "spike", self.spike, "must be 0, as the tails are infinite")
        # of the integers in the sums: e^ε has EXP_BITS bits behind the point and some 64 before it
        bits = EXP_BITS + 64 + max(weights).bit_length() + 2 * Fraction(self.decay).denominator.bit_length()
        allowed = f"takes more than {MOST_SUMS} sums at so many weights: too large to check"
        sums = n * (len(weights) + 4 * n) * (1 + bits / 1000)
        checks.refuse(sums > MOST_SUMS, "cells_per_shift", n, allowed)
        checks.settle(self, decay=Fraction(self.decay))

    @property
    def cells(self) -> CellNoise:  # type: ignore[override]
        return self

    # Exact quantities ------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.weights)

    # Distribution ----------------------------------------------------------------------------------------

    @cached_property
    def extended(self) -> tuple[Array, float]:
        """Masses of the cells and their repetitions, until these underflow, and the mass beyond them."""
        n, masses = self.cells_per_shift, self._masses
        if not self.decay:
            return masses, 0.0
        periods = max(1, min(math.ceil(100 / self._rate), 4_000_000 // (2 * n)))
        powers = np.exp(-self._rate * np.arange(1, periods + 1))
        left, right = np.outer(powers[::-1], masses[:n]), np.outer(powers, masses[-n:])
        ends = float(masses[:n].sum() + masses[-n:].sum())
        beyond = ends * math.exp(-self._rate * (periods + 1)) / float(1 - self.decay) * (1 + 1e-9)
        return np.concatenate([left.ravel(), masses, right.ravel()]), beyond

    @cached_property
    def _masses(self) -> Array:
        return np.array([float(w / self.total) for w in self.weights])

    def _pieces(self, masses: Array, cells: Indices) -> tuple[Array, Array]:
        """Return the masses of pieces of constant density, and their edges in units of the query; the spike is one piece."""
        edges = np.asarray(self.start + self.width * cells, dtype=float)
        if not self.spike:
            return masses, edges
        cuts = np.union1d(edges, [-self.spike_width / 2, self.spike_width / 2])
        middles, heights = (cuts[1:] + cuts[:-1]) / 2, np.pad(masses / np.diff(edges), 1)
        spike = float(self.spike / self.total) / self.spike_width * (np.abs(middles) < self.spike_width / 2)
        return (heights[np.searchsorted(edges, middles)] + spike) * np.diff(cuts), cuts

    @cached_property
    def _sides(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Edges of the pieces and the mass beyond each, repetitions included: to the left, mirrored, and to the right."""
        body, ends = self._pieces(self._masses, np.arange(self.count + 1))
        n, repeated = self.cells_per_shift, float(self.decay / (1 - self.decay))

        def side(body: Array, ends: Array) -> tuple[Array, Array]:
            rest = repeated * body[-n:].sum()
            return ends, np.append(np.cumsum(body[::-1])[::-1], 0.0) + rest

        return side(body[::-1], -ends[::-1]), side(body, ends)

    @property
    def _period(self) -> float:
        return self.cells_per_shift * self.width

    def _turns(self, beyond: Array) -> Array:
        """Return how many periods bring points so far beyond the last edge back into the body."""
        return np.where(beyond < 0, 0.0, np.floor(beyond / self._period) + 1) if self.decay else beyond * 0.0

    def _beyond(self, t: Array, right: bool) -> Array:
        """Return P[T > t], or P[T < -t], where t is not below the first edge."""
        ends, above = self._sides[right]
        turns = self._turns(t - ends[-1])
        return np.asarray(np.interp(t - turns * self._period, ends, above) * np.exp(-self._rate * turns))

    def _reached(self, p: Array, right: bool) -> Array:
        """Return the t beyond which the mass is p."""
        ends, above = self._sides[right]
        turns = np.zeros(p.shape)
        if self.decay:
            turns = np.ceil(np.maximum(np.log(above[-1] / np.maximum(p, 1e-323)), 0.0) / self._rate)
        found = np.interp(p * np.exp(self._rate * turns), above[::-1], ends[::-1]) + turns * self._period
        return np.where(p > 0, found, math.inf if self.decay else ends[-1])

    @cached_property
    def _rate(self) -> float:
        """−log of the decay, accurate for one near 0 and near 1; 0 without tails."""
        if not self.decay:
            return 0.0
        return -math.log(self.decay) if 2 * self.decay < 1 else -math.log1p(-float(1 - self.decay))

    def support(self) -> tuple[float, float]:
        """Return the end points of the support."""
        if self.decay:
            return -math.inf, math.inf
        return self.start, self.start + self.count * self.width

    def pdf(self, t: Numbers) -> Array:
        """Density at `t`."""
        held, (left, _), (right, _) = checks.doubles("t", t), *self._sides
        body, _ = self._pieces(self._masses, np.arange(self.count + 1))
        heights = np.pad(body / np.diff(right), 1)
        after, before = self._turns(held - right[-1]), self._turns(-held - left[-1])
        cell = np.searchsorted(right, held + (before - after) * self._period, side="right")
        return np.asarray(heights[cell] * np.exp(-self._rate * (before + after)))[()]

    def logpdf(self, t: Numbers) -> Array:
        """Logarithm of the density."""
        with np.errstate(divide="ignore"):
            return np.log(self.pdf(t))

    def cdf(self, t: Numbers) -> Array:
        """P[T ≤ t]."""
        held, (right, _) = checks.doubles("t", t), self._sides[True]
        return np.where(held < right[-1], self._beyond(-held, False), 1 - self._beyond(held, True))[()]

    def sf(self, t: Numbers) -> Array:
        """P[T > t], accurate in the right tail."""
        held, (right, _) = checks.doubles("t", t), self._sides[True]
        return np.where(held < right[0], 1 - self._beyond(-held, False), self._beyond(held, True))[()]

    def ppf(self, q: Numbers) -> Array:
        """Quantile function."""
        q = checks.doubles("q", q)
        value = np.where(q > 0.5, self._reached(1 - q, True), -self._reached(q, False))
        return np.where((q < 0) | (q > 1), np.nan, value)[()]

    # Sampling --------------------------------------------------------------------------------------------

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
        n, count, r = self.cells_per_shift, self.count, self.decay
        inner, outer = (1 - r).numerator, (1 - r).denominator
        tickets = [w * (outer if i < n or i >= count - n else inner) for i, w in enumerate(self.weights)]
        return IntegerWeights([*(tickets if r else self.weights), self.spike])

    def counted(self, steps: int) -> int:
        """Return the steps that the cells are counted in; raise DesignError where the tails reach beyond what 64 bits count."""
        far = (self.cells_per_shift + self.count) * steps > (1 - self.decay) * 2**55
        allowed = "is noise so far above the sensitivity that it has no exact release: raise epsilon"
        checks.refuse(far, "decay", float(self.decay), allowed)
        return steps

    @property
    def lattice(self) -> int:
        """Half steps of a cell in a release."""
        return self.counted(2 * self._steps_per_cell)

    def draw_cells(self, size: int, steps: int = 1) -> tuple[Indices, npt.NDArray[np.bool_]]:
        """Draw cells, counted from `start`, exactly, from the operating system's randomness; say which draws are the spike instead.

        In the tails a repetition follows, by exact coin flips. A cell is counted in so many steps.
        """
        n, count = self.cells_per_shift, self.count
        size = checks.integer("size", size, 0, 2**40)
        self.counted(checks.integer("steps", steps, 1))
        cell = self._cells.draw(size)
        spike = cell == count
        if self.decay:
            going = np.flatnonzero((cell < n) | (cell >= count - n))
            cell[going] += np.where(cell[going] < n, -n, n) * streaks(self.decay, going.size)
        return cell, spike

    def _draw_steps(self, size: int) -> Indices:
        """Draw noise exactly, in halves of the lattice step: a cell, then one of its s steps uniformly.

        Halves are needed because an even number of cells is symmetric about a point between two steps.
        """
        s = self._steps_per_cell
        cell, spike = self.draw_cells(size, 2 * s)
        out = 2 * (cell * s + uniform_integers(s, size)) + 1 - self.count * s
        if spike.any():
            narrow = max(1, int(Fraction(self.spike_width) / Fraction(self.step))) | 1
            out[spike] = 2 * uniform_integers(narrow, int(spike.sum())) + 1 - narrow
        return out

    def release(self, x: Numbers) -> Array:
        r"""Return the answers `x` with noise added, as multiples of half a lattice step: for deployment.

        Answers are rounded to multiples of the step h, a power of two, which is exact in doubles. The noise is the
        law's own on that lattice: every cell has s ≥ β/h steps of equal probability. For answers that differ by at
        most nβ the rounded ones differ by at most :math:`\lceil n\beta/h \rceil \le ns` steps, and the sum for
        a shift of ks + r steps is :math:`(1 - r/s) D_k + (r/s) D_{k+1}`, so that `exact_delta` holds for what is
        released. Rounding and wider cells cost at most 2⁻²⁰ of a cell's width.

        Parameters
        ----------
        x : float or array
            Answers of the query, of any size that doubles hold.

        Raises
        ------
        DesignError
            The density is not centred at 0.
        DataError
            A number is not finite or, beyond 2⁵³, held by no double. The guarantee does not cover that refusal.
        """
        held = checks.answers("x", x)
        if 2 * Fraction(self.start) != -self.count * Fraction(self.width):
            raise DesignError.of("start", self.start, "must be centred at 0 for an exact release")
        halves = self._draw_steps(held.size).reshape(held.shape)
        return noisy(held, self.step, halves, 2)[()]


@serializable("integer-noise")
class IntegerNoise(checks.Checked, _OnCells):
    r"""Noise on the whole numbers, with the interface of a frozen discrete `scipy.stats` law.

    The noise is the middle of the cell drawn from a `CellNoise` of width 1, and as private at whole shifts.

    Parameters
    ----------
    weights : tuple of int
        Non-negative weights of `first`, first + 1, …
    first : int
    change : int
        n: the largest change of an answer that the noise was made for; every whole one up to it is protected, up and down.
    decay : Fraction
        When positive, both tails go on for ever: the outermost n weights repeat, times `decay`.

    Raises
    ------
    DesignError
        Weights are not integer, negative or all zero; a tail begins beyond 0.

    Examples
    --------
    >>> law = IntegerNoise(weights=(1, 2, 1), first=-1, change=1)
    >>> law.var(), law.exact_delta(0), law.pmf([0, 1, 2]).tolist()
    (0.5, Fraction(1, 2), [0.5, 0.25, 0.0])
    >>> law.release(10**30) - 10**30 in (-1, 0, 1)
    True
    """

    _spread = 0

    weights: tuple[int, ...]
    first: int = checks.field(check=checks.integer, least=-MOST_CELLS, most=MOST_CELLS)
    change: int = checks.field()
    decay: Fraction = Fraction(0)

    def _post_check(self) -> None:
        held, n = self.cells, self.cells.cells_per_shift
        if held.decay and not self.first + n - 1 <= 0 <= self.first + held.count - n:
            raise DesignError.of("first", self.first, "tails must begin on both sides of 0")
        checks.settle(self, weights=held.weights, change=n, decay=held.decay)

    @cached_property
    def cells(self) -> CellNoise:  # type: ignore[override]
        """The law on cells whose middles are the whole numbers of this law."""
        return CellNoise(self.weights, 1.0, self.first - 0.5, self.change, decay=self.decay)

    # Distribution ----------------------------------------------------------------------------------------

    def support(self) -> tuple[float, float]:
        """Smallest and largest value."""
        low, high = self.cells.support()
        return low + 0.5, high - 0.5

    def pmf(self, k: Numbers) -> Array:
        """P[T = k]."""
        held = checks.doubles("k", k)
        return np.where(np.floor(held) == held, self.cells.pdf(held), 0.0)[()]

    def cdf(self, t: Numbers) -> Array:
        """P[T ≤ t]."""
        return self.cells.cdf(np.floor(checks.doubles("t", t)) + 0.5)

    def sf(self, t: Numbers) -> Array:
        """P[T > t], accurate in the right tail."""
        return self.cells.sf(np.floor(checks.doubles("t", t)) + 0.5)

    def ppf(self, q: Numbers) -> Array:
        """Quantile function."""
        return np.ceil(self.cells.ppf(q) - 0.5)

    # Sampling --------------------------------------------------------------------------------------------

    def rvs(self, size: object = None, random_state: Randomness = None) -> Indices:
        return np.asarray(super().rvs(size, random_state)).astype(np.int64)[()]

    @property
    def lattice(self) -> int:
        """Steps of a cell in a release."""
        return self.cells.counted(1)

    def release(self, x: Any) -> Any:
        """Return whole answers `x` with noise added, drawn exactly from the operating system's randomness: for deployment.

        Parameters
        ----------
        x : int, or array of int
            Python's integers of any size. In arrays of 64-bit integers numbers beyond 2⁶² are clipped to it, which moves no
            two further apart. Whole doubles are answered by doubles.

        Raises
        ------
        DataError
            An answer is not whole, or not finite.
        """
        if isinstance(x, int) and not isinstance(x, bool):
            return x + self.first + int(self.cells.draw_cells(1)[0][0])
        given = checks.read("x", x)
        exact = given.dtype == object and all(type(v) is int for v in given.ravel())
        held = given
        if not exact and given.dtype.kind not in "iu":
            held = checks.answers("x", given)
            DataError.when(np.any(np.floor(held) != held), "x: must be whole numbers for discrete noise")
        noise = (self.first + self.cells.draw_cells(held.size)[0]).reshape(held.shape)
        if held.dtype.kind == "f":
            return noisy(held, 1.0, noise)[()]
        if not exact:
            held = np.minimum(held, 2**62) if held.dtype.itemsize == 8 else held
            held = np.clip(held.astype(np.int64), -(2**62), None)
        found = np.asarray(held + noise)
        if exact and not hasattr(x, "dtype") and all(abs(v) < 2**63 for v in found.ravel()):
            return found.astype(
                np.int64
            )  # by the size of the noisy answers, which reveals no more than they do
        return found[()]


def lattice_sums(law: CellNoise, growth: Fraction) -> dict[int, Fraction]:
    """Return the hockey-stick sum of every shift by whole cells, with e^ε bounded from below by `growth`.

    One period and n further cells are added beyond each end: pairs further out repeat these, scaled by powers of the decay.
    """
    n, up, down = law.cells_per_shift, growth.numerator, growth.denominator
    fall, rest, padding = law.decay.numerator, law.decay.denominator, [0] * n
    left, right = [*padding, *law.weights[:n]][-n:], [*law.weights[-n:], *padding][:n]
    powers = (
        (left, fall**2),
        (left, fall * rest),
        (law.weights, rest**2),
        (right, fall * rest),
        (right, fall**2),
    )
    cells = [w * power for part, power in powers for w in part]
    here, out = cells[n:-n], {}
    for k in range(-n, n + 1):
        if k == 0 or (k < 0 and law.symmetric):
            continue
        excess = [max(a * down - b * up, 0) for a, b in zip(here, cells[n + k :])]
        repeated = (sum(excess[:n]) + sum(excess[-n:])) * law.decay / (1 - law.decay)
        out[k] = ((sum(excess) + repeated) / down / rest**2 + law.spike) / law.total
    return out


def shape_of(size: object) -> tuple[int, ...]:
    """Return a size in SciPy's convention (None, a whole number or a sequence of them) as a shape.

    Examples
    --------
    >>> shape_of(None), shape_of(3), shape_of((2, 3))
    ((), (3,), (2, 3))
    """
    if size is None or isinstance(size, (tuple, list)):
        return tuple(checks.integer("size", n, 0, 2**40) for n in size or ())
    return (checks.integer("size", size, 0, 2**40),)
