r"""A lower bound of every additive noise for one number, by rows of a lattice and multipliers.

Round any noise T at random, and without bias, to a neighbour on the lattice of n points a sensitivity. That is post-processing: the masses are private at the
shifts by up to n points, and cost no more than T costs where each point costs what `lower_costs` says. What lies beyond the reach is one mass more, of
which nothing is asked, at the cost of the nearest points out there. So every noise gives a point of the program `free_lattice`, and whatever multipliers
prove of that (`mechdesign.evidence.rows`) holds of every noise.

For noise on the whole numbers the lattice is ℤ itself, its costs are the loss, and n is the largest change. The bound then is of more. Let every mechanism
with whole-number answers whose noise may depend on the true value x, K(x + t | x), be averaged over x = -N, …, N: a shift by s
exchanges 2s of these at most, so that the average is additive noise which keeps (ε, δ + s/N), and costs no more than the worst x; N grows. And where the loss
is linear between neighbouring whole numbers, as \|t\| is, real-valued noise may be rounded at random without bias, and is bounded too. For t² it is not: at
ε = 1 and δ = ½ the noise ±½ costs .25, and no whole-number noise less than .2689.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_down
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import FUNCTION, LinearBound, NoProgramError
from mechdesign.model.lattice import LatticeDeclared, ShiftPrivacy
from mechdesign.noise.optimal.question import NoiseQuestion
from mechdesign.problem.checks import instance, integer
from mechdesign.problem.lattice_costs import lower_costs
from mechdesign.typing import Array, Indices

_LEMMA = (
    "Let T be additive noise, rounded at random, and without bias, to one of its two neighbours among the multiples of h (the sensitivity "
    "divided by a whole number n); noise on the whole numbers is left as it is, with h = 1. That is post-processing, so the result keeps (epsilon, delta)-privacy at shifts by up to n steps: "
    "for every such s the sum of all positive parts S of p_j - e^epsilon p_(j+s) is at most delta; a rational number above e^epsilon stands for it. The expected absolute value is not smaller than "
    "that of T, and the expected square not more than h^2/4 larger: so the cost of p_j is a|j|h + b(j^2 h^2 - h^2/4), for the loss a|t| + bt^2 (of whole numbers the loss itself). The last p is all mass "
    "further out, which costs no less. Of even losses p_j is the mass of j and -j together. So every additive noise that is private gives a point of this program which costs no more than its own expected loss."
)


class FreeLattice(LatticeDeclared):
    """The masses of every noise on a lattice."""

    lemma = _LEMMA


def lattice_declared(
    question: NoiseQuestion,
    kind: type[LatticeDeclared],
    cells: int,
    step: float,
    costs: Array,
    decay: Fraction,
    mirrored: bool,
    spiked: bool = False,
) -> LatticeDeclared:
    """A question on a lattice in numbers, with these costs of its entries; mirrored where they are given for one side."""
    q, free, none = question, kind is FreeLattice, np.zeros(0, dtype=np.int64)
    return kind(
        inputs=("noise",),
        outputs=tuple(range(len(costs))),
        of="data",
        neighbours=q.neighbours,
        objective=f"expected {q.given_loss.name} error",
        cost=costs,
        constant=0.0,
        labels=(),
        family=none,
        equal=none,
        offsets=np.zeros(0),
        places=none.reshape(0, 2),
        coefficients=np.zeros(0),
        privacy=(ShiftPrivacy("private", q.privacy),),
        curved=(),
        sensitivity=q.sensitivity,
        step=step,
        change=cells,
        decay=decay,
        tails=None,
        integer=q.integer,
        mirrored=mirrored,
        free=free,
        spiked=spiked,
    )


def free_lattice(question: NoiseQuestion, cells: int, side: int) -> LatticeDeclared:
    """The program of every noise: of so many cells a sensitivity, and points to either side; even losses have mirrored entries."""
    q = question
    if q.integer and cells != q.change:
        raise DesignError.of("cells", cells, f"must be {q.change}, the change of whole numbers")
    held = lower_costs(q.given_loss, -side - 1, side + 1, q.unit(cells), whole=q.integer)
    costs = [round_down(Fraction(n, held.denominator)) for n in held.numerators]
    beyond = min(costs[0], costs[-1])
    lower = np.minimum(costs, costs[::-1]).tolist()
    even = bool(np.allclose(lower, costs, rtol=1e-9, atol=0.0))  # but for rounding, of a callable
    costs = lower if even else costs
    inside = costs[side + 1 : -1] if even else costs[1:-1]
    entries, step = np.array([*inside, beyond]), float(q.unit(cells))
    return lattice_declared(q, FreeLattice, cells, step, entries, Fraction(0), even)


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


@serializable("lattice-bound")
@dataclass(frozen=True, eq=False)
class LatticeBound(OneNumberDual):
    r"""Rows of `free_lattice` with multipliers, for losses a\|t\| + bt².

    Parameters
    ----------
    cells : int
        n, lattice cells per sensitivity.
    side : int
        Points to either side of 0.
    rows : array of int, shape (t,)
        Numbers of the rows, increasing.
    multipliers : tuple of Fraction, length t
        Not negative.
    """

    cells: int
    side: int
    rows: Indices
    multipliers: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        integer("cells", self.cells, 1, 10**5)
        integer("side", self.side, self.cells, 10**5)
        if len(self.rows) != len(self.multipliers) or (self.rows[1:] <= self.rows[:-1]).any():
            raise DesignError("rows: must be increasing numbers, each with its multiplier")

    def program(self, question: NoiseQuestion) -> LinearBound:
        """The rows with their multipliers."""
        declared = free_lattice(question, self.cells, self.side)
        return declared.linear_bound(self.rows, self.multipliers)

    def prices(self, question: NoiseQuestion) -> dict[tuple[int, int], float]:
        """Multiplier of each point's δ, by the number of the point and the shift."""
        held = dict(zip(self.rows.tolist(), map(float, self.multipliers)))
        return {
            (at, s): held[part.sums + k]
            for at, part in enumerate(free_lattice(question, self.cells, self.side).parts)
            for k, s in enumerate(part.pairs[:, 1].tolist())
            if part.delta and part.sums + k in held
        }

    def proved(self, question: NoiseQuestion) -> Fraction:
        if question.given_loss.polynomial != (self.bound_how == PROVED):
            raise DesignError.of("loss", question.given_loss.name, "is of another kind than this proof's")
        found = self.program(question)
        if not found.admissible:
            return Fraction(0)
        bound = Fraction(int(found.bound.p), int(found.bound.q))
        # lattice costs of t² may be negative, the loss is not
        return max(bound, Fraction(0)) if question.given_loss.polynomial else bound

    def linear_bound(self, stated: Certificate) -> LinearBound:
        question = instance("question", stated.question, NoiseQuestion)
        if not question.given_loss.polynomial:
            raise NoProgramError(FUNCTION)
        return self.program(question)


@serializable("sampled-lattice-bound")
@dataclass(frozen=True, eq=False)
class SampledLatticeBound(LatticeBound):
    """The same for a convex callable, whose values in floating point are taken as exact and its convexity as given."""

    bound_how = RECOMPUTED
