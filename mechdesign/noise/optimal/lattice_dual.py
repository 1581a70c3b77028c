r"""Weak duality for additive noise, in exact arithmetic: no solver needs to be believed.

For lattice masses p with :math:`\sum_j [p_j - e^\varepsilon p_{j+s}]_+ \le \delta` at every shift s up to n, and any
numbers :math:`0 \le \psi_s(j) \le \mu_s`,

.. math:: \sum_j \hat c_j p_j \;\ge\; \min_j \Big(\hat c_j + \sum_s \psi_s(j) - e^\varepsilon \psi_s(j - s)\Big)
          - \delta \sum_s \mu_s .

Of several points (ε, δ) each has multipliers of its own, which are summed with its ε and charged its δ: a multiplier of any is one of all.

With the lattice costs of `lower_costs`, which grow beyond the line of the multipliers, the right side bounds the cost of **every** (ε, δ)-DP noise from below.

For noise on the whole numbers the lattice is ℤ itself, its costs are the loss, and n is the largest change: the right side bounds all of it. It bounds
more. Let every mechanism with whole-number answers whose noise may depend on the true value x, K(x + t | x), be averaged over x = -N, …, N: a shift by s
exchanges 2s of these at most, so that the average is additive noise which keeps (ε, δ + s/N), and costs no more than the worst x; N grows. And where the loss
is linear between neighbouring whole numbers, as \|t\| is, real-valued noise may be rounded at random without bias, and is bounded too. For t² it is not: at
ε = 1 and δ = ½ the noise ±½ costs .25, and no whole-number noise less than .2689.
The multipliers come from a solver and are rounded to multiples of a power of two; whatever they are, the bound is true.

**What a convex loss costs on a lattice.** From above, for mechanisms: a density that is constant on a cell pays the average of the loss over the cell.

From below, for bounds: round any noise T at random to one of its two neighbours on the lattice βℤ, with the probabilities that
keep the mean. Rounding commutes with shifts by lattice vectors, so it is post-processing, and the lattice noise
inherits (ε, δ)-DP for them. If the piecewise linear function through lattice costs :math:`\hat c_j` lies below the
loss, then :math:`E\,\hat c(R(T)) \le E\,\ell(T)`: the lattice problem bounds every noise. For \|t\| the lattice
through 0 gives :math:`\hat c_j = |x_j|` exactly, for t² it gives :math:`x_j^2 - \beta^2/4`; both are off by O(β²),
where the minimum of the loss over a cell is off by O(β).

**Tails.** Geometric tails repeat the outermost n cells for ever; they cost
:math:`\sum_{k \ge 1} r^k \ell(\text{cell} \pm k\,n\beta)` for each cell of the last period.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import fmpq

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_upper
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import FUNCTION, LinearBound, NoProgramError, rational
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise
from mechdesign.noise.optimal.question import NoiseQuestion
from mechdesign.problem.checks import array, instance, integer
from mechdesign.problem.lattice_costs import ExactCosts, average_costs, lower_costs, tail_costs, tail_side
from mechdesign.problem.losses import Loss
from mechdesign.typing import Array, Indices


def law_cost(law: CellNoise | IntegerNoise, loss: Loss) -> Fraction:
    """Return E ℓ(T): exact for the absolute and squared parts of the loss, an upper bound for a callable."""
    if isinstance(law, IntegerNoise):
        return _whole_cost(law, loss)
    n, unit = law.cells_per_shift, Fraction(law.width) / 2
    half = (Fraction(law.start) / unit).denominator
    unit /= half
    ends = np.array(law.ends, dtype=object if half > 1 or law.spans else np.int64)
    spans = np.array(law.spans or (1,) * len(ends), dtype=np.int64)
    weights = np.array(law.weights, dtype=object)
    first = int(Fraction(law.start) / unit)
    (left, right), place, total = law.period, np.arange(len(ends)), Fraction(0)
    for span in np.unique(spans).tolist():
        (at,) = np.nonzero(spans == span)
        middles = first + half * (2 * ends[at] - span)
        total += average_costs(loss, middles, unit, half=half * span).weighted(weights[at].tolist())
        sides = (place[at] < left, -1), (place[at] >= len(ends) - right, 1)
        for side, sign in sides if law.decay else ():
            tail = tail_side(loss, middles[side], unit, half * span, sign * 2 * n * half, law.decay)
            total += tail.weighted(weights[at][side].tolist())
    if law.spike:
        spike = average_costs(loss, np.zeros(1, dtype=np.int64), Fraction(law.spike_width) / 2)
        total += spike.weighted([law.spike])
    return total / law.total


def _whole_cost(law: IntegerNoise, loss: Loss) -> Fraction:
    """The same of noise on the whole numbers."""
    n, held, half = law.change, law.weights, Fraction(1, 2)
    middles = 2 * np.arange(law.first, law.first + len(held))
    total = average_costs(loss, middles, half, half=0).weighted(held)
    if law.decay:
        left, right = tail_costs(loss, middles, half, n, law.decay, half=0)
        total += left.weighted(held[:n]) + right.weighted(held[-n:])
    return total / law.total


@dataclass(frozen=True, eq=False)
class OneNumberDual(Proof):
    """A lower bound of the cost of every additive noise for one number, by weak duality."""

    speaks_of = ("lower bound",)

    def proved(self, question: NoiseQuestion) -> Fraction:
        """The lower bound that follows for this question, of which one coordinate counts."""
        raise NotImplementedError

    def check(self, stated: Certificate) -> Iterator[Claim]:
        question = instance("question", stated.question, NoiseQuestion)
        if question.dimension != 1 or stated.lower_bound is None:
            raise DesignError.of("dimension", question.dimension, "must be 1, with a lower bound")
        room = self.proved(question) - Fraction(stated.lower_bound)
        claim = f"no {question.among.noun} costs less than {stated.lower_bound:.9g}"
        yield Claim(claim, self.bound_how, float(room), room >= 0)


@serializable("lattice-dual")
@dataclass(frozen=True, eq=False)
class LatticeDual(OneNumberDual):
    r"""Weak duality of the lattice program, for losses a\|t\| + bt²: the theorem of this module, in exact arithmetic.

    Noise rounded at random to the lattice is post-processing, so that the bound holds for every noise whatsoever.

    Parameters
    ----------
    cells : int
        n, lattice cells per sensitivity.
    shifts : ndarray of int, shape (shifts,) or (shifts, 2)
        Signed shifts that carry multipliers; where several points (ε, δ) are asked with the number of the point, by increasing ε.
    psi : ndarray, shape (shifts, cells of the line)
        The multipliers.
    totals : ndarray
        Their caps μ.
    mirrored : bool
        Whether each stands for its mirror image too.
    """

    cells: int
    shifts: Indices
    psi: Array
    totals: Array
    mirrored: bool

    def __post_init__(self) -> None:
        integer("cells", self.cells, 1, 10**5)
        for name in ("psi", "totals"):  # sums of these must be doubles too
            if np.abs(array(name, getattr(self, name), ndim=None, empty=True)).max(initial=0.0) > 1e250:
                raise DesignError.of(name, getattr(self, name), "must be at most 1e250")
        if (self.totals < 0).any():
            raise DesignError.of("totals", self.totals, "must not be negative: they are caps")
        if self.shifts.ndim not in (1, 2) or self.shifts.shape[1:] not in ((), (2,)):
            raise DesignError.of("shifts", self.shifts.shape, "must be a vector, or have two columns")
        shifts = self.shifts[:, 0] if self.shifts.ndim == 2 else self.shifts
        if (np.abs(shifts) > self.cells).any():
            raise DesignError.of(
                "shifts", self.shifts, "must be within the sensitivity, at most so many cells"
            )

    def proved(self, question: NoiseQuestion) -> Fraction:
        loss, n = question.given_loss, self.cells
        if (loss.function is None) != (self.bound_how == PROVED):
            raise DesignError.of("loss", loss.name, "is of another kind than this proof's")
        pad, length = n + 1, self.psi.shape[1]
        reach = (length - 1) // 2 + pad
        costs = self._costs(question, reach)
        shares, scale = self._rounded(question)
        plus = np.zeros(len(costs.numerators), dtype=np.int64)
        minus = np.zeros((len(question.points), len(plus)), dtype=np.int64)
        spent = Fraction(0)
        for (s, at), psi, cap in shares:
            plus[pad : pad + length] += psi
            minus[at, pad + s : pad + s + length] += psi
            spent += cap * Fraction(question.points[at][1])
        if self.mirrored:  # the average of a dual point and its mirror image
            plus, minus, scale, spent = plus + plus[::-1], minus + minus[:, ::-1], 2 * scale, 2 * spent
        growth, unit = (
            ExactCosts.of(exp_upper(epsilon) for epsilon, _ in question.points),
            1 / Fraction(scale),
        )
        down = growth.denominator
        integer, part = unit.denominator * down, unit.numerator * costs.denominator
        received = np.array(growth.numerators, dtype=object) @ minus.astype(object)
        level = min(
            c * integer + (a * down - b) * part for c, a, b in zip(costs.numerators, plus.tolist(), received)
        )
        found = Fraction(level, integer * costs.denominator) - spent * unit
        # no multipliers at all prove the least cost; lattice costs of t² may be negative, the loss is not
        found = max(found, Fraction(min(costs.numerators), costs.denominator))
        return found if loss.function else max(found, Fraction(0))

    def _costs(self, question: NoiseQuestion, reach: int) -> ExactCosts:
        if question.integer and self.cells != question.change:
            raise DesignError.of(
                "cells", self.cells, f"must be {question.change}, the change of whole numbers"
            )
        unit = question.unit(self.cells)
        return lower_costs(question.given_loss, -reach, reach, unit, whole=question.integer)

    def _rounded(self, question: NoiseQuestion) -> tuple[list[tuple[tuple[int, int], Indices, int]], float]:
        """Each shift and its point, with its ψ and its cap, in units of 1/scale, a power of two; sums stay below 2⁶³, the unit is more than 1 where costs are huge."""
        several = len(question.points) > 1
        if (self.shifts.ndim == 2) != several or (
            several and not np.isin(self.shifts[:, 1], range(len(question.points))).all()
        ):
            raise DesignError.of("shifts", self.shifts.shape, "must have the points that are asked")
        owners = self.shifts.tolist() if several else [(s, 0) for s in self.shifts.tolist()]
        largest = max(np.maximum(self.psi, 0.0).sum(axis=1).max(initial=1e-250), self.totals.max(initial=0.0))
        scale = 2.0 ** (55 - math.ceil(math.log2(largest) + math.log2(max(1, len(self.shifts)))))
        rounded = []
        for (s, at), row, total in zip(owners, self.psi, self.totals.tolist()):
            psi = np.maximum(np.floor(row * scale), 0.0).astype(np.int64)
            rounded.append(((s, at), psi, max(math.ceil(total * scale), int(psi.max(initial=0)))))
        return rounded, scale

    def linear_bound(self, stated: Certificate) -> LinearBound:
        question = instance("question", stated.question, NoiseQuestion)
        loss, n, half = question.given_loss, self.cells, (self.psi.shape[1] - 1) // 2
        if not loss.polynomial:
            raise NoProgramError(FUNCTION)
        reach, sides = half + n + 1, (1, -1) if self.mirrored else (1,)
        costs = self._costs(question, reach)
        shares, scale = self._rounded(question)
        unit = 1 / (rational(scale) * len(sides))
        rows = len(sides) * sum(int((psi > 0).sum()) for _, psi, _ in shares)
        program = LinearBound(
            _WHOLE_LEMMA if question.integer else _LEMMA, 2 * rows + len(sides) * len(shares) + 2 * reach + 1
        )
        mass = [
            program.variable(f"p_{j}", fmpq(c, costs.denominator))
            for j, c in enumerate(costs.numerators, start=-reach)
        ]
        points = [(rational(exp_upper(e)), rational(d)) for e, d in question.points]
        for (s, at), psi, cap in shares:
            growth, delta = points[at]
            for side in sides:
                over: list[int] = []
                for i in np.flatnonzero(psi).tolist():
                    j, price = side * (i - half), int(psi[i]) * unit
                    terms = [(mass[reach + j], 1), (mass[reach + j + side * s], -growth)]
                    if delta:
                        over.append(program.variable(f"over_{side * s}_{j}_{at}_{len(over)}"))
                        terms.append((over[-1], -1))
                    program.row("private", terms, "L", 0, -price)
                if delta:
                    program.row("delta", [(t, 1) for t in over], "L", delta, -cap * unit)
        program.sums_to(1, mass)
        return program


_LEMMA = (
    "Let T be additive noise, rounded at random, and without bias, to one of its two neighbours among the multiples of h (the sensitivity "
    "divided by a whole number n). That is post-processing, so the result keeps (epsilon, delta)-privacy at shifts by up to n steps: for every such s "
    "the sum of all positive parts of p_j - e^epsilon p_(j+s) is at most delta, for each (epsilon, delta) that is asked, p_j being the mass at jh ('over' variables are not less than "
    "these parts, of some j; a rational number above e^epsilon stands for it). The expected absolute value is not smaller than that of T, and the "
    "expected square not more than h^2/4 larger: so the cost of p_j is a|j|h + b(j^2 h^2 - h^2/4), for the loss a|t| + bt^2, and the expected cost is at "
    "most the expected loss of T. The first and the last p_j stand for all mass from there outward, which costs no less. So every additive noise that is private gives a point of "
    "this program which costs no more than its own expected loss, and none has a smaller one than the bound derived below."
)


_WHOLE_LEMMA = (
    "Let T be noise on the whole numbers, private at every shift s by up to n: the sum of all positive parts of p_j - e^epsilon p_(j+s) is at "
    "most delta, for each (epsilon, delta) that is asked, p_j being the probability of j ('over' variables are not less than these parts, of some j; a rational number above e^epsilon stands "
    "for it). The cost of p_j is the loss a|j| + bj^2. The first and the last p_j stand for all mass from there outward, which costs no less. So every such "
    "noise gives a point of this program which costs no more than its own expected loss, and none has a smaller one than the bound derived below."
)


@serializable("sampled-lattice-dual")
@dataclass(frozen=True, eq=False)
class SampledLatticeDual(LatticeDual):
    """The same for a convex callable, whose values in floating point are taken as exact and its convexity as given."""

    bound_how = RECOMPUTED


def inward(
    shifts: Indices, psi: Array, costs: Array, level: float, epsilon: float, *, mirrored: bool
) -> Array:
    """Multipliers that leave no cell below the level: where one is, those from nearer 0 that charge it are lowered, from the outermost inwards.

    What a cell lacks takes e^{-ε} of that from cells nearer to 0: a solver's errors fall where those of their sums outwards grow.
    """
    psi, half, growth = psi.copy(), (psi.shape[1] - 1) // 2, math.exp(epsilon)
    reach, sent, share = (len(costs) - 1) // 2, psi.sum(axis=0), 0.5 if mirrored else 1.0
    at = np.arange(len(shifts))
    for place in range(reach, 0, -1):
        for side in (place,) if mirrored else (place, -place):
            from_ = side - shifts
            held = np.abs(from_) <= half
            rows, cells = at[held], from_[held] + half
            charged = psi[rows, cells].sum()
            found = sent[side + half] if place <= half else 0.0
            if mirrored:
                other = -side - shifts
                near = np.abs(other) <= half
                charged += psi[at[near], other[near] + half].sum()
                found += sent[half - side] if place <= half else 0.0
            missing = level - costs[reach + side] - share * (found - growth * charged)
            inner = np.abs(cells - half) < place
            rows, cells = rows[inner], cells[inner]
            lowered = psi[rows, cells]
            if missing > 0 and lowered.sum() > 0:
                lowered *= min(1.0, missing / (share * growth * lowered.sum()))
                psi[rows, cells] -= lowered
                sent[cells] -= lowered
    return psi
