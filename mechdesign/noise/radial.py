r"""Radial noise: the exponential and the staircase profile on a ball (`mechdesign.noise.balls`), and how both are released.

**Profiles.** Noise whose density falls with the norm, :math:`\propto e^{-\lVert z\rVert/s}` (K-norm noise, Hardt and
Talwar 2010) or :math:`\propto E^j` on the shells :math:`\gamma + j - 1 < \lVert z\rVert/\Delta \le \gamma + j`,
:math:`E = e^{-\varepsilon}`, is ε-private for changes of norm at most Δ = sε: the norm changes by Δ at most, the level
by 1. The best additive noise for any cost that grows with the norm is such a *staircase* (Melbourne, Diaz and Asoodeh,
arXiv 2601.14597). Both are mixtures of uniform laws on balls, :math:`z = R u`: R is :math:`\mathrm{Gamma}(d + 1, s)`,
or (γ + j)Δ with weights :math:`E^j (\gamma + j)^d`. So :math:`E|z_i|^p = E|u_i|^p\, E R^p`, and

.. math:: E R^p = \Delta^p \frac{S_{d+p}(\gamma)}{S_d(\gamma)}, \quad S_n(\gamma) = \sum_{j \ge 0} E^j (j + \gamma)^n
          = e^{\varepsilon\gamma} \frac{n!}{\varepsilon^{n+1}} \Bigl(1 + 2 \sum_{m \ge 1} \mathrm{Re}\,
            e^{2\pi i m\gamma} (1 + 2\pi i m/\varepsilon)^{-n-1}\Bigr)

(Poisson's formula). So in many dimensions, at a small ε, all staircases cost what the exponential does, but for a
*ripple* of :math:`2 \sum (1 + (2\pi m/\varepsilon)^2)^{-(n+1)/2}`.

**δ of ℓ₂** [formula ours]. In units of s a change of norm t has the loss ηt, with η on [−1, 1] of density
:math:`\propto e^{z\eta} (1 - \eta^2)^{(d-3)/2} (1 - \eta^2/\rho)`, z = t/2,
:math:`\rho = 1 + \frac{d-1}{z} K_{d/2}(z)/K_{d/2-1}(z)`: the distances to the two centres add to tξ and differ by tη,
where volume is :math:`\propto ((\xi^2 - 1)(1 - \eta^2))^{(d-3)/2} (\xi^2 - \eta^2)\,d\xi\,d\eta` and the density
:math:`e^{-z(\xi - \eta)}`; ρ is the mean of ξ². Moments of η beyond ε/t follow from two of them, integrating by parts.
δ(ε) grows with t: it is :math:`1 - \int \min(p(y), e^\varepsilon p(y - v))\,dy`, an integral of volumes in which balls
about 0 and v overlap.

**Release.** On the lattice, exactly. A ball in steps is the whole vectors of norm at most R; noise that is uniform on
one, its R of weights :math:`q^R` times their number, is :math:`\propto q^{\lceil\lVert z\rVert\rceil}` and as private
as its continuous relative for changes of m whole steps. Balls of ℓ_∞, ℓ₁ and of the differences are counted exactly;
hulls are drawn by rejection from a ball around them; noise of ℓ₂ is continuous, and its sum with an answer on the
lattice is rounded. R is drawn by rejection from the sum of d + 1 geometric numbers (:math:`\binom{R + d}{d} q^R`; kept
with the rational probability :math:`\prod_j (R + \tfrac12)/(R + j)` for the cube), the levels of a staircase from a
table of integers, E rounded up to a rational.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from flint import arb, ctx, fmpq
from scipy import optimize, special

from mechdesign.doubles import SMALLEST
from mechdesign.errors import DesignError
from mechdesign.evidence import sampling
from mechdesign.evidence.exact import exp_upper
from mechdesign.evidence.sampling import IntegerWeights
from mechdesign.noise.balls import Ball, Kept
from mechdesign.noise.release import RoundedSum
from mechdesign.typing import Array, Indices

LEAST_GAMMA = 2.0**-24
"""Least γ of a staircase: a lattice of 64 bits does not resolve a narrower first level."""
MOST_LEVELS = 2e4
"""Largest number of levels of a staircase: at an ε so small that more count, the exponential costs at most 5e-6 more."""
_FLAT = 4e-10
"""Where staircases cost less than the exponential by at most this share, the exponential is used; a result may have a gap of 1e-9."""
LEAST_KEPT = 1e-4
"""Least share of draws that a rejection keeps: a release takes milliseconds."""
_MOST_STEPS = 1 << 48
"""Largest rate in steps: its coins fit 63 bits. In ℓ_∞ rate times dimension may be 2⁶ times as large: numbers 256 times that fit 62 bits."""
_DOUBT = 1e-9
"""Bound on the error of a probability computed in doubles."""


def whole_bits(gamma: float) -> float:
    """Round γ to 20 bits, so that a file that changes γ by 1e-9 is seen to state another law."""
    mantissa, exponent = math.frexp(gamma)
    return math.ldexp(round(mantissa * 2**20), exponent - 20)


# Profiles ------------------------------------------------------------------------------------------------------


class Shells:
    """Moments of R at Δ = 1, for a staircase of any γ and for the exponential.

    Parameters
    ----------
    dimension : int
    epsilon : float
        ε of one change of norm Δ.
    power : int
        p, 1 or 2.

    Examples
    --------
    >>> shells = Shells(2, 5.0, 2)
    >>> round(shells.gamma, 5), round(shells.moment(shells.gamma) / 2, 8), shells.exponential / 2
    (0.30677, 0.14088265, 0.24)
    """

    def __init__(self, dimension: int, epsilon: float, power: int) -> None:
        self.dimension, self.epsilon, self.power = dimension, epsilon, power
        self.exponential = math.prod((dimension + i) / epsilon for i in range(1, power + 1))
        less, more = min(self._ripple(dimension + power), 1.0), self._ripple(dimension)
        self.floor = self.exponential * (1 - less) / (1 + more)

    def _ripple(self, n: int) -> float:
        """Return a bound above 2 Σ |1 + 2πim/ε|^(−n−1); terms from 65 on are bounded by an integral."""
        turns = 2 * math.pi / self.epsilon * np.arange(1, 65)
        beyond = -n * math.log(turns[-1]) - math.log(turns[0] * n)
        return float(2 * np.exp(-(n + 1) / 2 * np.log1p(turns**2)).sum() + 2 * math.exp(min(beyond, 700.0)))

    @property
    def levels(self) -> float:
        """About how many terms j count in the sums."""
        return 2 * (12 * math.sqrt(self.dimension + 2) + 60) / self.epsilon + 8

    @cached_property
    def _places(self) -> Array:
        """The terms j that are summed over."""
        centre, spread = self.dimension / self.epsilon, self.levels / 2
        return np.arange(max(0, math.floor(centre - spread)), math.ceil(centre + spread) + 1, dtype=float)

    @cached_property
    def _top(self) -> float:
        return float((self.dimension * np.log(self._places + 1) - self.epsilon * self._places).max())

    def sums(self, gamma: float, *orders: int) -> list[float]:
        """Return S_n(γ) for these orders n ≥ 0, divided by one number that does not depend on γ."""
        logs = np.log(np.maximum(self._places + gamma, 1e-300))
        return [float(np.exp(n * logs - self.epsilon * self._places - self._top).sum()) for n in orders]

    def log_sum(self, gamma: float) -> float:
        """Return log S_d(γ)."""
        return self._top + math.log(self.sums(gamma, self.dimension)[0])

    def masses(self, gamma: float) -> tuple[Array, Array]:
        """Return the radii R of a staircase, and their probabilities."""
        ends = self._places + gamma
        mass = np.exp(self.dimension * np.log(ends) - self.epsilon * self._places - self._top)
        return ends, mass / mass.sum()

    def moment(self, gamma: float | None) -> float:
        """Return E R^p of a staircase, or of the exponential."""
        if gamma is None:
            return self.exponential
        above, below = self.sums(gamma, self.dimension + self.power, self.dimension)
        return above / below if below > SMALLEST else math.inf

    @cached_property
    def gamma(self) -> float | None:
        """The best first level; None if the exponential does as well."""
        if self.floor >= self.exponential * (1 - _FLAT) or self.levels > MOST_LEVELS:
            return None
        candidates = np.append(special.expit(np.linspace(math.log(LEAST_GAMMA), 4, 65)), 1.0)
        # twice the least, as γ is rounded afterwards
        candidates = candidates[[self.sums(g, self.dimension)[0] > 2 * SMALLEST for g in candidates]]
        k = int(np.argmin([self.moment(g) for g in candidates]))
        around = candidates[max(k - 1, 0)], candidates[min(k + 1, len(candidates) - 1)]
        found = optimize.minimize_scalar(self.moment, bounds=around, options={"xatol": 1e-12})
        return whole_bits(float(found.x))

    @property
    def bound(self) -> float:
        """A lower bound on E R^p of every staircase and of the exponential, proved by `none_below`."""
        found = self.moment(self.gamma) * (1 - _FLAT)
        return found if self.none_below(found) else self.floor

    def none_below(self, bound: float) -> bool:
        """Return whether no γ in (0, 1] has a moment below `bound`, by S_{d+p} ≥ bound·S_d on ever smaller cells.

        Each cell uses a second-order expansion, with the derivatives n S_{n−1}.
        """
        if bound <= self.floor or bound > self.exponential or self.levels > MOST_LEVELS:
            return bound <= self.floor
        d, n = self.dimension, self.dimension + self.power
        cells, seen = [(0.0, 1.0)], 0
        while cells:
            low, high = cells.pop()
            middle, half, seen = (low + high) / 2, (high - low) / 2, seen + 1
            here, slope, below, fall = self.sums(middle, n, n - 1, d, d - 1)
            value, slope = here - bound * below, n * slope - bound * d * fall
            bend = n * (n - 1) * self.sums(low, n - 2)[0]
            if d > 1:
                bend -= bound * d * (d - 1) * self.sums(high, d - 2)[0]
            turn = min(max(-slope / bend, -half), half) if bend > 0 else math.copysign(half, -slope)
            least = value + slope * turn + bend * turn**2 / 2
            if below <= SMALLEST or not least >= 1e-12 * bound * below:
                if seen > 4000 or half < 1e-9:
                    return False
                cells += [(low, middle), (middle, high)]
        return True


def round_delta(dimension: int, change: Fraction, epsilon: float) -> arb:
    r"""Enclose δ at ε of noise :math:`\propto e^{-\lVert z\rVert_2}`, d ≥ 2, for changes of ℓ₂ norm at most `change`.

    Examples
    --------
    >>> round_delta(50, Fraction(1.8), 1.0).str(8, radius=False)
    '7.7478026e-7'
    """
    d = dimension
    if change > 10**4:  # only a file states this, no design
        return arb(0.5, 0.5)
    with ctx.workprec(256 + 4 * math.ceil(change)):
        t, e = arb(fmpq(*change.as_integer_ratio())), arb(epsilon)
        z, edge = t / 2, e / t
        if edge >= 1:
            return arb(0)
        half, left = arb(d - 1) / 2, 1 - edge**2
        thin = 1 / (1 + (d - 1) / z * z.bessel_k(half + 0.5) / z.bessel_k(half - 0.5))
        rim = left**half * (half + 0.5).gamma() / half.gamma() / arb.pi().sqrt()
        beyond = [left.beta_lower(half, arb(0.5), regularized=1) / 2, rim / (d - 1)]
        every, most = [arb(1), arb(0)], e.exp()
        term, above, whole, last = arb(1), arb(0), arb(0), 128 + 4 * math.ceil(change)
        for j in range(last):
            rim *= edge
            beyond.append((rim + (j + 1) * beyond[j]) / (j + d))
            every.append((j + 1) * every[j] / (j + d))
            above += term * (1 - (-1) ** j * most) * (beyond[j] - beyond[j + 2] * thin)
            whole += term * (every[j] - every[j + 2] * thin)
            term *= z / (j + 1)
        rest = term * (1 + most) * beyond[0] * 2  # the terms at least halve
        return (above + rest.union(-rest)) / whole


# Release -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RadialLattice:
    """Lattice of a release.

    Attributes
    ----------
    ball : Ball
    step : float
        h, a power of two.
    shift : int
        m: the largest distance, in the norm and in steps, between rounded answers of neighbours.
    rate : int
        n: a change of m steps has loss m/n; the exponential is :math:`\\propto e^{-\\lVert z\\rVert/n}` in steps.
    inner : int, optional
        The first level of a staircase, in steps; further levels are m wide.
    cost : float
        Relative increase of the scale.
    """

    ball: Ball
    step: float
    shift: int
    rate: int
    inner: int | None
    cost: float

    def draw(self, rows: int) -> Indices:
        """Draw noise for `rows` vectors, in steps, shape (rows, d)."""
        most, share = max(1, 2**20 // (self.ball.dimension + 1)), self.ball.around[1]

        def proposed(missing: int) -> Indices:
            z, kept = self._proposed(min(math.ceil(missing / share) + 1, most))
            return z[kept]

        return sampling.accepted(rows, proposed)

    def _proposed(self, rows: int) -> tuple[Indices, Kept]:
        """Propose vectors, and return which of them are accepted."""
        base, (over, under) = self.ball.around[0], self.ball.ratio
        if self.ball.norm == 2:
            return self._rounded(rows)
        if self.inner is None and base.norm == 1:
            size = rows * base.dimension
            fine = self.rate * over  # ‖z‖₁/c is at most the hull's norm: a coin decides by the difference
            z = (sampling.geometric(fine, size) // under - sampling.geometric(fine, size) // under).reshape(
                rows, -1
            )
            if self.ball.norm == 1:
                return z, np.ones(rows, dtype=bool)
            whole, rest = np.divmod(np.abs(z).sum(axis=1), over)
            excess = (self.ball.radius(z) - whole * under) * over - rest * under
            return z, sampling.geometric(fine, rows) >= excess
        if self.inner is None:
            sides = 2 if base.signed else 1
            radius, kept = radii(base.dimension, self.rate, rows, sides), np.ones(rows, dtype=bool)
            reach = radius
        else:
            radius, reach, kept = self._levels(rows)
        z, fits = _uniform(base, reach)
        return z, kept & fits & self.ball.within(z, radius)

    def _rounded(self, rows: int) -> tuple[Indices, Kept]:
        """Propose continuous ℓ₂ noise, rounded."""
        d, kept, lengths = self.ball.dimension, np.ones(rows, dtype=bool), None
        law = RoundedSum(d, self.rate, grain=1.0)
        if self.inner is not None:
            radius, _, kept = self._levels(rows)
            law, lengths = RoundedSum(d, 1.0, grain=1.0, ball=True), radius.astype(float)
        zero = np.zeros(rows * d)
        noise = law.release(zero, zero, lambda i: Fraction(0), lengths)
        return noise.astype(np.int64).reshape(rows, d), kept

    @cached_property
    def _table(self) -> tuple[IntegerWeights, int, Fraction, int, int]:
        """Levels by weight, the last for all beyond it; the ratio of the hat beyond; and n_0, n_1, where a level's ball has side n_0 + j n_1.

        The proposal ball of level j holds at most n_j^d points, so that the weights are E^j n_j^d, whose ratio falls.
        """
        assert self.inner is not None
        base, (over, under) = self.ball.around[0], self.ball.ratio
        d, m = base.dimension, self.shift
        if base.norm == 2:
            first, each = self.inner, m
        elif base.norm == 1:
            first, each = self.inner * over // under + d, m * over // under
        else:
            first, each = (2 * self.inner + 1, 2 * m) if base.signed else (self.inner + 1, m)
        fall = Fraction(m, self.rate)
        bits = 64 + math.ceil(1.5 * fall)
        ratio = math.ceil(exp_upper(-fall) * 2**bits)
        last = 1
        while d * math.log1p(each / (first + last * each)) > float(fall) / 2:
            last += 1
        weights = [ratio**j << bits * (last - j) for j in range(last + 1)]
        weights = [w * (first + j * each) ** d for j, w in enumerate(weights)]
        hat = Fraction(ratio, 1 << bits) * Fraction(first + (last + 1) * each, first + last * each) ** d
        rest = 1 - hat
        cells = [*(w * rest.numerator for w in weights[:-1]), weights[-1] * rest.denominator]
        return IntegerWeights(cells), last, hat, first, each

    def _levels(self, rows: int) -> tuple[Indices, Indices, Kept]:
        """Return the radii of the balls and of the proposal balls for drawn levels, in steps, and which levels beyond the table are kept."""
        assert self.inner is not None
        cells, last, hat, first, each = self._table
        base, d = self.ball.around[0], self.ball.dimension
        level, kept = cells.draw(rows), np.ones(rows, dtype=bool)
        beyond = np.flatnonzero(level == last)
        level[beyond] += sampling.streaks(hat, beyond.size)

        def exact(i: int) -> Fraction:
            steps = int(level[beyond[i]]) - last
            side, end = first + last * each, first + (last + steps) * each
            return (Fraction(end, side) / Fraction(side + each, side) ** steps) ** d

        steps, start = level[beyond] - last, first / each + last
        near = np.exp(d * (np.log1p(steps / start) - steps * math.log1p(1 / start)))
        kept[beyond] = sampling.bernoulli(near, np.full(near.shape, _DOUBT), exact)
        reach = first + level * each
        reach = reach - d if base.norm == 1 else reach // 2 if base.signed else reach - 1
        return self.inner + level * self.shift, reach, kept


def radial_lattice(
    ball: Ball, scale: float, largest: float, gamma: float | None, *, even: bool = True
) -> RadialLattice:
    """Return the lattice on which noise of this scale is released for changes of norm at most `largest`.

    Answers that differ by v are rounded to answers that differ by less than |v_i|/h + 1 steps in each coordinate, by ⌈Δ/h⌉ in ℓ_∞; where
    the coordinates' steps are no powers of two (not `even`), by at most |v_i|/h (1 + 2⁻⁴⁸) + 2. The rate is the least at which the loss stays at
    most Δ over the scale.

    Examples
    --------
    >>> lattice = radial_lattice(Ball(3, math.inf), 2.0, 1.0, None)
    >>> lattice.rate * lattice.step, lattice.cost < 1e-5
    (2.0, True)
    """
    d, (_, under), wide = ball.dimension, ball.ratio, ball.wide
    unit = min(scale, largest / wide, largest if gamma is None else largest * gamma)
    bits = 16 if ball.norm == 2 else 21
    step = math.ldexp(1.0, math.frexp(unit)[1] - bits)
    apart = Fraction(largest) / Fraction(step)
    if not even:
        apart = apart * (1 + Fraction(wide) / 2**48) + math.ceil((2 if ball.signed else 4) * wide)
    elif wide > 1:
        apart += math.ceil(wide)
    shift = math.ceil(apart)
    if gamma is not None and under > 1 and ball.around[0].norm == 1:
        step, shift = step / under, math.ceil(apart) * under
    rate = math.ceil(shift * Fraction(scale) / Fraction(largest))
    most = max(rate, shift) * ball.ratio[0]
    if most > _MOST_STEPS or (ball.norm != 1 and most * (d + 1) > _MOST_STEPS << 6):
        allowed = f"is too many steps of {step:.3g} to count them in 64 bits: raise epsilon"
        raise DesignError.of("scale", scale, allowed)
    inner = None if gamma is None else round(gamma * shift)
    return RadialLattice(ball, step, shift, rate, inner, float(rate * Fraction(step) / Fraction(scale)) - 1.0)


def _uniform(ball: Ball, radius: Indices) -> tuple[Indices, Kept]:
    """Draw whole vectors, uniform on balls of these radii where they are kept: cubes, cross-polytopes, or differences."""
    rows, d = len(radius), ball.dimension
    if ball.norm == 1:
        # d different numbers below R + d, sorted, are the running sums of d numbers whose sum is at most R
        places = np.sort(sampling.uniform_below(np.broadcast_to((radius + d)[:, None], (rows, d))), axis=1)
        sizes = np.diff(places, axis=1, prepend=-1) - 1
        negative = sampling.uniform_integers(2, rows * d).reshape(rows, d) == 1
        kept = (sizes >= 0).all(axis=1) & ~(negative & (sizes == 0)).any(axis=1)  # one zero, not two
        return np.where(negative, -sizes, sizes), kept
    if ball.signed:
        sides = np.broadcast_to((2 * radius + 1)[:, None], (rows, d))
        return sampling.uniform_below(sides) - radius[:, None], np.ones(rows, dtype=bool)
    numbers = sampling.uniform_below(np.broadcast_to((radius + 1)[:, None], (rows, d + 1)))
    numbers[np.arange(rows), sampling.uniform_integers(d + 1, rows)] = 0
    # a vector arises once for each of its zeros: each may be the one that was set
    kept = sampling.uniform_below((numbers == 0).sum(axis=1)) == 0
    return numbers[:, 1:] - numbers[:, :1], kept


def radii(dimension: int, rate: int, rows: int, sides: int = 2) -> Indices:
    """Draw R with probabilities exactly proportional to (R + 1/sides)^d exp(−R/rate)."""
    out, open_, j = np.empty(rows, dtype=np.int64), np.arange(rows), np.arange(1, dimension + 1)
    while open_.size:
        radius = sampling.geometric(rate, open_.size * (dimension + 1)).reshape(open_.size, -1).sum(axis=1)
        near = np.exp(np.log1p((1 / sides - j) / (radius[:, None] + j)).sum(axis=1))

        def exact(i: int, radius: Indices = radius) -> Fraction:
            r = sides * int(radius[i])
            return Fraction((r + 1) ** dimension, math.prod(r + sides * j for j in range(1, dimension + 1)))

        kept = sampling.bernoulli(near, np.full(near.shape, _DOUBT), exact)
        out[open_[kept]] = radius[kept]
        open_ = open_[~kept]
    return out
