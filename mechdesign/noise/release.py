r"""Deployment: noise of any symmetric law of this package, rounded to a lattice and drawn exactly from the operating system's randomness.

A query is rounded to multiples of a step h, a power of two, so that answers Δ apart are at most
:math:`m = \lceil \Delta/h \rceil` steps apart. Noise Z of the law, widened by mh/Δ, is rounded to the lattice too. As
the rounded query x is a multiple of h, :math:`x + [Z] = [x + Z]`: what leaves the machine is a function of the
continuous mechanism's answer to a query of sensitivity mh, and every guarantee of that mechanism (δ at every ε, zCDP,
composition) carries over. Where each coordinate has its own scale and step, `noisy` rounds and
`mechdesign.noise.vector_noise.IndependentNoise.exact` accounts for it.

[Z] is drawn by rejection below a hat, a staircase of integer heights: first a piece by its weight, then half a step of
the piece uniformly, then a sign; a coin of the ratio of the density in that half step to the hat decides whether it is
kept. Doubles decide the coin unless they leave doubt; then it is settled with 60 digits and more
(`mechdesign.evidence.sampling.bernoulli`), by the law's tail in ball arithmetic.

**Several dimensions.** The sum is rounded, not the answer.

Rounding two answers that are arbitrarily near could move them a whole step apart. Instead v + Z, with Z of the
continuous law, is rounded to multiples of h: a function of the continuous mechanism's output, whose guarantee therefore
carries over for any two answers. K-norm noise is :math:`\Gamma(k, s)` long in its own norm:

- ℓ_∞: :math:`R\,(2U_1 - 1, \dots, 2U_k - 1)` with R of the law :math:`\Gamma(k + 1, s)`;
- ℓ₂: :math:`R\,N/\lVert N \rVert_2` with normal N and R of the law :math:`\Gamma(k, s)`;

and Gaussian noise is sN. All come from uniform numbers, :math:`R = -s \sum \log U` and pairs of normal numbers,
:math:`\sqrt{-2 \log U}\,(\cos 2 \pi U', \sin 2 \pi U')`.

**Drawing.** 32 bits of each uniform number are drawn from the operating system, and doubles enclose v + Z. Where the
enclosure does not decide the rounded sum, further bits are drawn and the sum is enclosed in balls of as many digits,
until it is decided. What leaves the machine has exactly the law of the rounded sum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt
from flint import arb, ctx
from scipy import stats

from mechdesign.accounting.losses import TailForm
from mechdesign.accounting.profile import ball_form
from mechdesign.checks import answers, frozen_parts, generator, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import rational, round_up
from mechdesign.evidence.page import Saved
from mechdesign.evidence.sampling import IntegerWeights, accepted, bernoulli, random_words, streaks
from mechdesign.noise.families import DiscreteGaussian
from mechdesign.noise.laws import AnsweringStaircase, Staircase, staircase
from mechdesign.problem.law_moments import of_scipy
from mechdesign.typing import Array, FrozenLaw, Indices, Numbers, Randomness

_BLOCK = 1 << 15
"""Number of proposals, or of uniform numbers, at a time: they stay in the cache."""
_UNIT = 1 << 512
"""Integer height that stands for the density at 0."""
_SLACK = 1e-9
"""Bound on the relative error of a density in doubles: the margin of the hat, and of a coin in doubt."""


@dataclass(frozen=True)
class Lattice:
    """Parameters of a law's release.

    Attributes
    ----------
    step : float
        h.
    shift : int
        m: the largest distance of rounded answers of neighbours, in steps.
    law : frozen scipy.stats distribution
        The widened law, whose rounding is added.
    cost : float
        Relative increase of the scale.
    exact : ExactNoise
        The widened law's sampler.
    """

    step: float
    shift: int
    law: FrozenLaw
    cost: float
    exact: ExactNoise


def lattice_of(law: FrozenLaw, sensitivity: float, *, several: bool = False) -> Lattice:
    """Return the lattice on which `law` is released for a query of this sensitivity.

    Where `several` bounds state the changes, `sensitivity` is the smallest length among them (`Sensitivity.finest`). Rounding
    adds up to a step to each coordinate that changes, so that the law is widened by a step in that length.

    Examples
    --------
    >>> lattice = lattice_of(stats.laplace(scale=2.0), 1.0)
    >>> lattice.step, lattice.cost < 1e-9
    (1.8189894035458565e-12, True)
    """
    noise = ExactNoise(law)
    if noise.discrete:
        return Lattice(1.0, math.ceil(sensitivity), law, 0.0, noise)
    step = min(2 * noise.half_step, math.ldexp(1.0, math.frexp(sensitivity)[1] - 20))
    refuse(step == 0, "sensitivity", sensitivity, "is so small that doubles hold no lattice finer than it")
    shift = math.ceil(Fraction(sensitivity) / Fraction(step)) + several
    dist, shapes, _, scale = frozen_parts(law)
    wider = round_up(Fraction(scale) * shift * Fraction(step) / Fraction(sensitivity))
    found = dist(*shapes, scale=wider)
    return Lattice(step, shift, found, wider / scale - 1, ExactNoise(found, step))


def noisy(x: Array, step: float | Array, draws: int | Indices, parts: int = 1) -> Array:
    r"""Return `x` rounded to steps plus `draws` steps, for any finite doubles and at the same work for all of them.

    With U a power of two of about 2⁴⁸ steps and M the whole number next to U/h, :math:`x = aU + b` exactly, |b| ≤ U/2, and
    x becomes :math:`q(x) = aM + \lfloor b/h + 1/2 \rfloor` steps. Where h is a power of two, q is
    :math:`\lfloor x/h + 1/2 \rfloor`; elsewhere :math:`|q(x) - q(y)| \le (1 + 2^{-48})|x - y|/h + 2`; for these two numbers `IndependentNoise.exact`,
    `CoordinateNoise.lattice` and `radial_lattice` widen their noise. What is returned is a function of
    q(x) + Z alone: its quotient and remainder by M, exact before they are made one double. Beyond 2¹⁰²² (or as
    many U) answers count as this far out, which brings none further apart.

    Parameters
    ----------
    x : ndarray
    step : float or ndarray
        h > 0.
    draws : ndarray of int
        Z, below 2⁶² in size.
    parts : int
        A power of two: draws are in units of the step divided by it.
    """
    far, near = noisy_parts(x, step)
    unit, ratio = _units(step)
    near, ratio = near * parts + draws, ratio * parts
    carry = (near + ratio // 2) // ratio
    with np.errstate(over="ignore"):
        total: Array = (far + carry) * unit + (near - carry * ratio) * (step / parts)
    return total


def noisy_parts(x: Array, step: float | Array) -> tuple[Array, Indices]:
    """Return a and ⌊b/h + ½⌋ of `noisy`."""
    unit, _ = _units(step)
    limit = 2.0**1022 * np.minimum(unit, 1.0)
    # numbers far below half a step are rounded to 0 anyway, and subnormal doubles take longer
    with np.errstate(under="ignore"):
        held = np.where(np.abs(x) < step * 2.0**-60, 0.0, np.clip(x, -limit, limit))
        far = np.rint(held / unit)
        scaled = (held - far * unit) / step
    whole = np.floor(scaled)
    return far, (whole + (scaled - whole >= 0.5)).astype(np.int64)


def _units(step: float | Array) -> tuple[Array, Indices]:
    """Return U and M."""
    unit = np.ldexp(1.0, np.frexp(step)[1] + 48)
    return unit, np.rint(unit / step).astype(np.int64)


class ExactNoise:
    """Draws a symmetric law rounded to a lattice, exactly.

    Parameters
    ----------
    law : frozen scipy.stats distribution
    step : float, optional
        Lattice step, a power of two; a fine one when not given. Discrete laws live on the integers.

    Raises
    ------
    DesignError
        The law has no form in ball arithmetic (`mechdesign.accounting.profile.ball_form`), or reaches too many steps to count.
    """

    def __init__(self, law: FrozenLaw, step: float | None = None) -> None:
        self.law = law
        self.dist, self.shapes, loc, self.scale = frozen_parts(law)
        remedy = "has no exact release; gennorm, logistic, laplace and gaussian have (calibrate one of these)"
        refuse(ball_form(self.dist, self.shapes) is None or loc != 0, "law", self.dist.name, remedy)
        if of_scipy(self.dist) == "gennorm" and self.shapes[0] < 1:  # its tail is above every geometric hat
            raise DesignError.of("law", f"gennorm({self.shapes[0]:g})", "must be log-concave: beta >= 1")
        self.discrete = isinstance(self.dist, stats.rv_discrete)
        self._wanted = step
        self._answered, self._means = Fraction(0), dict[int, Fraction]()
        if isinstance(self.dist, AnsweringStaircase):
            *shapes, answered = self.shapes
            self._answered, self.law = Fraction(answered), staircase(*shapes, scale=self.scale)
            self.dist, self.shapes = self.law.dist, tuple(shapes)
        if self._bits > 46:  # a word must have bits left that decide most coins
            raise DesignError.of(
                "law",
                self.dist.name,
                f"reaches {self._reach:.3g}, too many steps of {2 * self.half_step:.3g} to count: noise so far above the "
                "sensitivity has no exact release; raise epsilon",
            )

    @cached_property
    def _reach(self) -> float:
        """About where cells end and the tail begins; the end of a bounded support."""
        top = float(self.law.support()[1])
        if isinstance(self.dist, Staircase):  # steep steps have hardly any mass beyond the first
            return max(float(self.law.isf(1e-7)), 3 * self.scale)
        return top if math.isfinite(top) else float(self.law.isf(1e-7))

    @cached_property
    def half_step(self) -> float:
        """Half the lattice step; 1 for discrete laws."""
        if self.discrete:
            return 1.0
        if self._wanted is not None:
            return self._wanted / 2
        return math.ldexp(1.0, math.frexp(self._reach)[1] - 45)

    @cached_property
    def _bits(self) -> int:
        """b, such that a cell holds 2^b half steps."""
        cells = math.ldexp(1.0, math.frexp(self._reach)[1] - 11)
        return max(0, math.frexp(cells / self.half_step)[1] - 1)

    def _log_ratio(self, t: Numbers, side: int = 0) -> Array:
        """Return log f(t)/f(0), with t moved surely to the left (−1) or right (1) if asked: doubles may put t on the wrong side of a step."""
        unit = np.asarray(t) / self.scale * (1 if self.discrete else 1 + side * 2.0**-50)
        log = self.dist._logpmf if self.discrete else self.dist._logpdf
        found = np.asarray(log(unit, *self.shapes) - log(np.zeros(1), *self.shapes), dtype=float)
        return np.where(unit * self.scale <= float(self.law.support()[1]), found, -np.inf)

    @cached_property
    def _sizes(self) -> Indices:
        """Half steps of each piece of the hat, as powers of two; the last is the first cell of the tail.

        Pieces are cells, but the first cell is split into its first half step, the next, the next two, four, …, so that the hat
        follows a density that falls steeply from 0.
        """
        count = math.ceil(self._reach / (self.half_step * (1 << self._bits))) + 1
        return np.array([0, *range(self._bits), *[self._bits] * count])

    @cached_property
    def _left(self) -> Indices:
        """Left end of each piece, in half steps."""
        return np.append(0, np.cumsum(1 << self._sizes[:-1]))

    @cached_property
    def _hat(self) -> tuple[list[int], Fraction, Array]:
        """Heights of the pieces and of the first cell of the tail, the tail's ratio from cell to cell, and log heights.

        The first half step may hold a staircase's whole first level: its height is the mean.
        """
        width = self.half_step * (1 << self._bits)
        left = self.half_step * self._left
        heights = [int(_UNIT * math.exp(v) * (1 + _SLACK)) + 1 for v in self._log_ratio(left, -1).tolist()]
        heights[0] = math.ceil(_UNIT * self._mean(0))
        if math.isfinite(float(self.law.support()[1])):
            heights[-1] = 0
            return heights, Fraction(0), np.log(np.maximum(np.array(heights, float), 1) / float(_UNIT))
        # In the tail a log-concave density falls from cell to cell by at least as much as over its first cell. A staircase does
        # so only over a whole step: its hat must be higher by the fall of one step.
        steps = isinstance(self.dist, Staircase)
        distance = self.scale if steps else width
        fall = float(np.diff(self._log_ratio(np.array([left[-1], left[-1] + distance])))[0])
        ratio = Fraction(
            int(2**60 * min(math.exp(fall * width / distance) * (1 + _SLACK), 1 - 1e-9)) + 1, 2**60
        )
        if steps:
            heights[-1] = int(heights[-1] * math.exp(-fall) * (1 + _SLACK)) + 1
        return heights, ratio, np.log(np.array(heights, dtype=float) / float(_UNIT))

    @cached_property
    def _cells(self) -> IntegerWeights:
        heights, ratio, _ = self._hat
        whole, rest = (1 - ratio).denominator, (1 - ratio).numerator
        sums = [h << size for h, size in zip(heights, self._sizes.tolist())]
        return IntegerWeights([*(h * rest for h in sums[:-1]), sums[-1] * whole])

    @cached_property
    def _sure(self) -> Array:
        """Integers out of 2^spare below which a coin of each piece surely falls; 0 in the tail."""
        right = self.half_step * self._left[1:]
        if self.discrete:
            right -= 1.0
        ratio = np.exp(self._log_ratio(right, 1) - self._hat[2][: len(right)]) * (1 - _SLACK)
        ratio[0] = 1 - _SLACK
        return np.append(np.floor(ratio * 2.0**self._spare), 0.0).astype(np.uint64)

    @property
    def _spare(self) -> int:
        """Random bits of a word beyond those for place and sign."""
        return 63 - self._bits

    def draw(self, size: int) -> Indices:
        """Draw `size` integers: noise in steps, rounded."""
        found = accepted(size, lambda missing: self._proposals(min(_BLOCK, int(missing * 1.02) + 8)))
        if share := self._answered:
            found *= IntegerWeights([share.numerator, share.denominator - share.numerator]).draw(size)
        return found

    def _proposals(self, size: int) -> Indices:
        last, words = len(self._hat[0]) - 1, random_words(size)
        cell = self._cells.draw(size)
        # one word a proposal: a coin that surely falls or not, a place in the cell, a sign
        sure = (words >> np.uint64(64 - self._spare)) < self._sure[cell]
        place = words.astype(np.int64) & ((1 << self._sizes) - 1)[cell]
        negative = ((words >> np.uint64(self._bits)) & np.uint64(1)).astype(bool)
        doubtful = np.flatnonzero(~sure)
        k = self._left[cell] + place
        if (tail := np.flatnonzero(cell == last)).size:
            further = streaks(self._hat[1], tail.size)
            cell[tail] += further
            k[tail] += further << self._bits
        keep = sure
        keep[doubtful] = self._fallen(k[doubtful], cell[doubtful])
        if self.discrete:
            keep &= ~(negative & (k == 0))  # one zero, not two
            return np.where(negative, -k, k)[keep]
        steps = (k + 1) >> 1
        return np.where(negative, -steps, steps)[keep]

    def _fallen(self, k: Indices, cell: Indices) -> npt.NDArray[np.bool_]:
        """Toss the coins that did not surely fall, with the probability (p − q)/(1 − q) that is left."""
        heights, ratio, log_heights = self._hat
        last = len(heights) - 1
        log_hat = log_heights[np.minimum(cell, len(log_heights) - 1)]
        beyond = np.maximum(cell - last, 0)
        if beyond.any():
            log_hat = log_hat + beyond * math.log(ratio)
        high = np.exp(self._log_ratio(k * self.half_step, -1) - log_hat)
        low = high if self.discrete else np.exp(self._log_ratio((k + 1) * self.half_step, 1) - log_hat)
        sure = self._sure[np.minimum(cell, last)] / 2.0**self._spare

        def exact(i: int) -> Fraction:
            q = Fraction(int(self._sure[min(int(cell[i]), last)]), 1 << self._spare)
            return (self._exact(int(k[i]), int(cell[i])) - q) / (1 - q)

        near = ((high + low) / 2 - sure) / (1 - sure)
        return bernoulli(near, ((high - low) / 2 + _SLACK) / (1 - sure), exact)

    def _exact(self, k: int, cell: int) -> Fraction:
        """Return the mean density over half step k, over its hat, to 60 digits and more."""
        heights, ratio, _ = self._hat
        beyond = max(0, cell - (len(heights) - 1))
        return self._mean(k) / (Fraction(heights[min(cell, len(heights) - 1)], _UNIT) * ratio**beyond)

    def _mean(self, k: int) -> Fraction:
        if k not in self._means:  # many draws may lie in the half step where a staircase falls
            self._means[k] = self._mean_of(k)
        return self._means[k]

    def _mean_of(self, k: int) -> Fraction:
        """Return the mean density over half step k, over the density at 0 as a double."""
        with ctx.workprec(700):
            shapes = [arb(shape) for shape in self.shapes]
            if isinstance(self.dist, DiscreteGaussian):
                mean = (-(arb(k) ** 2) / (2 * shapes[0] ** 2)).exp()
            elif self.discrete:
                mean = (-shapes[0] * k).exp()
            else:
                a, b = (n * Fraction(self.half_step) / Fraction(self.scale) for n in (k, k + 1))
                peak = float(np.exp(self.dist._logpdf(np.zeros(1), *self.shapes))[0])
                mean = (self._upper(a) - self._upper(b)) / arb(rational((b - a) * Fraction(peak)))
            mantissa, exponent = mean.mid().man_exp()
        return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)

    def _upper(self, t: Fraction) -> arb:
        """Return P(T > t) at unit scale, t ≥ 0."""
        form = ball_form(self.dist, self.shapes)
        if isinstance(form, TailForm):
            return form.upper(arb(rational(t)) if form.end is None else arb(rational(t)).min(form.end))
        epsilon, gamma = map(arb, self.shapes)
        fall, rest = (-epsilon).exp(), arb(rational(t % 1))
        step = gamma + fall * (1 - gamma)
        here = (gamma - rest).nonnegative_part() + fall * (1 - rest).min(1 - gamma)
        return fall ** (t // 1) * (here * (1 - fall) / step + fall) / 2


_ROUND = 2.0**-48
"""Bound on the relative rounding error of a few operations on doubles."""


@dataclass(frozen=True)
class RoundedSum:
    """K-norm or Gaussian noise whose sum with an answer is rounded.

    Attributes
    ----------
    dimension : int
        k.
    scale : float
        s of the continuous law, for which the guarantee holds.
    norm : float
        2 or inf.
    gaussian : bool
        Whether the noise is Gaussian of standard deviation s.
    grain : float, optional
        The `step`, a power of two; about 2⁻¹¹ of s when not given.
    ball : bool
        With norm 2: whether the noise is uniform on balls, whose radii, in scales, are arguments of `release`, :math:`r U^{1/k} N/\\lVert N\\rVert_2`.

    Examples
    --------
    >>> noise = RoundedSum(2, 0.3, math.inf)
    >>> noise.step
    0.000244140625
    >>> noise.release(np.zeros(2), np.zeros(2), lambda i: Fraction(0)).shape
    (2,)
    """

    dimension: int
    scale: float
    norm: float = 2.0
    gaussian: bool = False
    grain: float | None = None
    ball: bool = False

    @property
    def step(self) -> float:
        """h, a power of two: rounding adds h²/12 to a variance of at least s², less than 10⁻⁷ of it."""
        return self.grain or math.ldexp(1.0, math.frexp(self.scale)[1] - 11)

    @property
    def _radii(self) -> int:
        """Number of uniform numbers from which the length is made."""
        return 0 if self.gaussian else 1 if self.ball else self.dimension + (self.norm == math.inf)

    @property
    def _pairs(self) -> int:
        """Number of pairs of normal numbers from which the direction is made."""
        return 0 if self.norm == math.inf and not self.gaussian else (self.dimension + 1) // 2

    @property
    def _uniforms(self) -> int:
        return self._radii + (2 * self._pairs or self.dimension)

    def release(
        self, near: Array, error: Array, exact: Callable[[int], Fraction], lengths: Array | None = None
    ) -> Array:
        """Return vectors, one after the other, with noise, exactly: multiples of `step`.

        Parameters
        ----------
        near : array, shape (N · k,)
            The numbers in steps, as doubles.
        error : array, shape (N · k,)
            Bound on the error of each.
        exact : callable
            Maps an index to the exact number in steps; called only where the doubles do not decide.
        lengths : array, shape (N,), optional
            Radii of balls, exact.
        """
        DesignError.when(not np.isfinite(near).all(), "values: must be finite numbers of steps")
        k, rows = self.dimension, max(1, _BLOCK // self._uniforms)
        centre, room = near.reshape(-1, k), error.reshape(-1, k)
        steps, far = np.empty_like(centre), np.ones(len(centre)) if lengths is None else lengths
        for first in range(0, len(centre), rows):
            block = slice(first, first + rows)
            steps[block] = self._steps(centre[block], room[block], far[block], exact, first * k)
        return np.asarray(steps.ravel() * self.step)

    def _steps(
        self, centre: Array, room: Array, far: Array, exact: Callable[[int], Fraction], first: int
    ) -> Array:
        """Return the rounded sums of some vectors, in steps; `first` is the index of their first number."""
        count, k = len(centre) * self._uniforms, self.dimension
        words = random_words(count // 2 + 1).view(np.uint32)[:count].reshape(len(centre), -1)
        with np.errstate(all="ignore"):
            noise, wrong = self._doubles(words, far)
            unit = self.scale / self.step
            total = centre + noise * unit + 0.5
            room = room + wrong * unit + _ROUND * (np.abs(centre) + np.abs(noise) * unit + 1)
            steps = np.floor(total)
            decided = np.abs(total - np.rint(total)) > room  # false where either is not a number
        for row in np.flatnonzero(~decided.all(axis=1)):
            at = first + int(row) * k
            steps[row] = self._settled(
                words[row].tolist(), [exact(at + j) for j in range(k)], float(far[row])
            )
        return steps

    def _doubles(self, words: npt.NDArray[np.uint32], far: Array | float = 1.0) -> tuple[Array, Array]:
        """Return the noise at unit scale in doubles, and error bounds."""
        u = (words + 0.5) * 2.0**-32
        cut, end = self._radii, self._radii + self._pairs
        logs = np.abs(np.log(u[:, :end]))
        # u next to 1 is off by its rounding; a word of 0 gives no bound
        off = np.where(words[:, :end] > 0, _ROUND + 2.0**-32 / u[:, :end], np.inf)
        radius, blur = logs[:, :cut].sum(axis=1)[:, None], off[:, :cut].sum(axis=1)[:, None]
        if self.ball:
            radius = np.reshape(far, (-1, 1)) * np.exp(-radius / self.dimension)
            blur = radius * 2 * blur / self.dimension  # each off is at most 2⁻³², or unbounded
        blur = blur + _ROUND * radius
        if not self._pairs:
            return radius * (2 * u[:, cut:] - 1), blur + 2.0**-32 * radius
        size, turn = np.sqrt(2 * logs[:, cut:]), 2 * math.pi * u[:, end:]
        normal = np.hstack([size * np.cos(turn), size * np.sin(turn)])[:, : self.dimension]
        blurred = np.tile(2 * off[:, cut:] / size + 8 * 2.0**-32 * (1 + size), 2)[:, : self.dimension]
        if self.gaussian:
            return normal, blurred
        length = np.linalg.norm(normal, axis=1)[:, None]
        away = 2 * blurred.sum(axis=1)[:, None] / length + _ROUND
        return radius * normal / length, blur + radius * np.where(away < 0.1, 2 * away, np.inf)

    def _settled(self, words: list[int], centre: list[Fraction], far: float = 1.0) -> list[float]:
        """Return the rounded sum, with further bits of the same uniform numbers until it is decided."""
        bits = 32
        while True:
            further = random_words(3 * len(words)).reshape(len(words), 3)
            words = [
                (word << 192) | int.from_bytes(row.tobytes(), "little") for word, row in zip(words, further)
            ]
            bits += 192
            with ctx.workprec(2 * bits):
                noise = self._balls([(word + arb(0).union(1)) / arb(2) ** bits for word in words], far)
                unit = arb(self.scale) / arb(self.step)
                floors = [
                    (arb(rational(c + Fraction(1, 2))) + unit * z).floor() for c, z in zip(centre, noise)
                ]
                steps = [floor.unique_fmpz() for floor in floors]
            decided = [float(int(step)) for step in steps if step is not None]
            if len(decided) == len(steps):
                return decided

    def _balls(self, u: list[arb], far: float = 1.0) -> list[arb]:
        """Return what `_doubles` returns, in balls."""
        cut, end = self._radii, self._radii + self._pairs
        radius = -sum((v.log() for v in u[:cut]), arb(0))
        if self.ball:
            radius = far * (-radius / self.dimension).exp()
        if not self._pairs:
            return [radius * (2 * v - 1) for v in u[cut:]]
        sizes, turns = [(-2 * v.log()).sqrt() for v in u[cut:end]], [2 * arb.pi() * v for v in u[end:]]
        cosines = [size * turn.cos() for size, turn in zip(sizes, turns)]
        normal = [*cosines, *(size * turn.sin() for size, turn in zip(sizes, turns))][: self.dimension]
        if self.gaussian:
            return normal
        length = sum((v**2 for v in normal), arb(0)).sqrt()
        return [radius * v / length for v in normal]


class AddedNoise(Saved, ABC):
    """A mechanism that adds noise to answers."""

    dimension: int
    """K: how many numbers are answered together."""

    @abstractmethod
    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draw noise in doubles for answers of this shape."""

    def _answers(self, x: Numbers) -> Array:
        return answers("x", x, self.dimension)

    def sample(self, x: Numbers, *, rng: Randomness = None) -> Array:
        """Return answers with noise added in floating point: for simulation; `release` is for deployment.

        Parameters
        ----------
        x : array, shape (..., K)
        rng : int or numpy Generator, optional
        """
        held = self._answers(x)
        return np.asarray(held + self._noise(held.shape, generator(rng)))[()]
