r"""Optimal noise for one number on lattices, and the question that it answers: lower bounds with exact costs, problems on the masses, and ever finer lattices.

**The lower bound** holds for every additive noise T for one number. Round T at random, without bias, to a neighbouring point of the
lattice of n points a sensitivity. Rounding is post-processing: the masses stay private at shifts by up to n points. With the
costs of `lower_costs` they cost no more than T. All mass beyond the reach is one further mass, without a privacy constraint, at
the cost of the nearest point beyond. So every noise is a feasible point of the program `free_lattice`, and multipliers of that
program (`mechdesign.evidence.proofs`) prove a bound for every noise.

**Whole numbers.** The lattice is ℤ itself, its costs are the loss, and n is the largest change. The bound then holds more widely:

- for mechanisms with whole-number answers whose noise K(x + t | x) depends on the true value x. Average K over x = -N, …, N: a shift
  by s exchanges at most 2s of these terms, so that the average is additive noise which keeps (ε, δ + s/N) and costs no more
  than the worst x; let N grow;
- for real-valued noise where the loss is linear between neighbouring whole numbers, as \|t\| is: such noise may be rounded at
  random without bias. For t² it does not hold: at ε = 1 and δ = ½ the noise ±½ costs .25, and no whole-number noise less than .2689.

**Ever finer lattices** enclose the optimum, with errors of order β² for cells of width β. *Below*, the multipliers of `free_lattice`
bound every noise. *Above*, a density that is constant on cells is a problem of `LatticeNoise`; the table's repair makes its solution
private in exact arithmetic. Under δ > 0 the mass of a narrow spike at 0 is one more variable, and every shift charges it in full.
Without the spike (2, .5) takes 60 times as long, and (5, .75) under squared loss costs .8% more.

With lattices switched off where δ is large, the value rises by up to 28% (ε = 2, δ = .1), and the median gap is 74 times as wide;
without finer lattices the value rises by up to 14%.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, get_args

import numpy as np
import pandas as pd
from flint import fmpq

from mechdesign.checks import UP, field, instance, integer, one_of, positive, refuse, settle
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence import proofs
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import rational, round_down, round_up
from mechdesign.evidence.proofs import RowsBound, every
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.model.exactly import MARGIN, Exact, admissible, near, repaired, weights_of
from mechdesign.model.expressions import ZERO
from mechdesign.model.lattice import LatticeDeclared, LatticeNoise, ShiftPrivacy, lattice_costs
from mechdesign.model.program import Program
from mechdesign.model.table_problem import FiniteProblem, starts
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise
from mechdesign.noise.vector_noise import CellProduct, on_cells
from mechdesign.problem.losses import Loss, average_costs, check_loss, lower_costs, outward_decay, round_width
from mechdesign.problem.privacy import GAUSSIAN_ALONE, Description, GaussianDP, Pointwise, pairs_of
from mechdesign.problem.sensitivity import Protection, Sensitivity, neighbours_field, neighbours_of
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.typing import Array

LARGEST_CHANGE = 500
"""Largest change of whole numbers: its linear program takes minutes."""


@dataclass(frozen=True)
class NoiseQuestion(Design):
    """The question of `mechdesign.OptimalNoise`, against which every proof of its results is checked."""

    asks: ClassVar[str] = "numbers"

    privacy: Pointwise = field(*get_args(Pointwise))
    sensitivity: Any = 1.0
    loss: object = "absolute"
    dimension: int = field(check=integer, least=1, most=10**6, default=1)
    l0: int | None = field(check=integer, least=1, most=lambda self: self.dimension, default=None)
    integer: bool = field(check=one_of, allowed=(True, False), default=False)
    neighbours: str = neighbours_field()

    def __post_init__(self) -> None:
        settle(self, neighbours=neighbours_of(self.sensitivity, self.neighbours))
        refuse(isinstance(self.privacy, GaussianDP), "privacy", self.privacy, GAUSSIAN_ALONE)
        super().__post_init__()
        if isinstance(self.sensitivity, Sensitivity):
            refuse(self.l0 is not None, "l0", self.l0, "must be left out: the Sensitivity says it")
            size, count = alike(self.sensitivity, self.dimension)
            settle(self, sensitivity=size, l0=count)
        settle(self, sensitivity=positive("sensitivity", self.sensitivity, side=UP))
        settle(self, l0=None if self.l0 == self.dimension else self.l0)
        for epsilon, delta in self.points:
            if not (1e-18 <= epsilon <= 200 or (epsilon == 0 and delta >= 1e-18)):
                what = "where e^-ε is a mass, and not 1 to all digits kept; or 0, with delta"
                raise DesignError.of("epsilon", epsilon, f"must be between 1e-18 and 200, {what}")
        if self.integer and not 1 <= self.sensitivity <= LARGEST_CHANGE:
            allowed = f"must be 1 to {LARGEST_CHANGE}, where whole numbers change; of larger changes leave integer=True out"
            raise DesignError.of("sensitivity", self.sensitivity, allowed)
        self._check_unit()

    def _check_unit(self) -> None:
        """Refuse a sensitivity so small or large that doubles do not hold its loss."""
        loss, size = self.given_loss, Fraction(self.sensitivity)
        at_size = Fraction(loss.absolute) * size + Fraction(loss.squared) * size**2
        if loss.function is not None:  # taken to grow no faster than the square
            at_size = size**2
        if not (1e-200 <= at_size <= 1e200 and 1e-100 <= size <= 1e100):
            allowed = "must be between 1e-100 and 1e100, where the loss is between 1e-200 and 1e200: choose another unit"
            raise DesignError.of("sensitivity", self.sensitivity, allowed)

    def protection(self) -> Protection:
        changes = Sensitivity(linf=self.sensitivity, l0=self.l0, neighbours=self.neighbours)
        return Protection(self.dimension, changes, integer=self.integer)

    @property
    def mechanism_class(self) -> proofs.MechanismClass:
        """Every additive noise for one number, whole-number noise for whole numbers; independent noise of one law for several numbers."""
        if self.dimension > 1:
            return proofs.INDEPENDENT_NOISE
        return proofs.every("additive whole-number noise" if self.integer else proofs.REAL_NOISE)

    def asked_by(self, question: object) -> bool:
        asked = [getattr(question, name, None) for name in ("scalar", "loss", "integer")]
        # whole numbers may also be answered by noise that is not whole; the bound for whole noise covers it only where the loss is
        # linear between whole numbers (`mechdesign.noise.lattice`)
        if self.integer and self.loss != "absolute":
            return False
        return self.dimension == 1 and asked == [self.sensitivity, self.loss, self.integer]

    @cached_property
    def given_loss(self) -> Loss:
        """The loss of one coordinate."""
        return Loss.of(self.loss)

    @cached_property
    def points(self) -> tuple[tuple[float, float], ...]:
        """All required pairs (ε, δ); δ = 0 under pure privacy."""
        return pairs_of(self.privacy)

    @property
    def alone(self) -> bool:
        """Whether there is one pair and its ε is positive, as closed forms need."""
        return len(self.points) == 1 and self.points[0][0] > 0

    @property
    def epsilon(self) -> float:
        """ε of the requirement, if it is one pair."""
        [(epsilon, _)] = self.points
        return epsilon

    @property
    def delta(self) -> float:
        """δ of the requirement, if it is one pair."""
        [(_, delta)] = self.points
        return delta

    @property
    def change(self) -> int:
        """The largest change of whole numbers."""
        return int(math.floor(self.sensitivity))

    def unit(self, cells: int) -> Fraction:
        """Return the width of a cell at so many cells a sensitivity; 1 for whole numbers."""
        return Fraction(1) if self.integer else Fraction(self.sensitivity) / integer("cells", cells, 1)

    @cached_property
    def resolved(self) -> NoiseQuestion:
        """The question whose law a program in doubles finds: of several pairs a δ below 5e-9, which their margins hide, counts as 0."""
        seen = {(e, d if not e or d >= 5e-9 else 0.0) for e, d in self.points}
        kept = [p for p in seen if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in seen)]
        return self if len(self.points) == 1 else replace(self, privacy=TradeOff(tuple(kept)))

    @property
    def moved(self) -> int:
        """Largest number of coordinates that change at once."""
        return self.l0 or self.dimension

    rows_take = tuple

    @property
    def rows_how(self) -> str:
        """RECOMPUTED for a convex callable, whose doubles are taken as exact and whose convexity is sampled; else PROVED."""
        return proofs.PROVED if self.given_loss.polynomial else proofs.RECOMPUTED

    @property
    def cost_floor(self) -> int | None:
        """0, as errors are not negative, though costs of t² on a lattice may be; None for a callable."""
        return 0 if self.given_loss.polynomial else None

    def check_scalar(self) -> None:
        """Refuse several numbers."""
        refuse(self.dimension != 1, "dimension", self.dimension, "must be 1")


def alike(sensitivity: Sensitivity, dimension: int) -> tuple[float, int]:
    """Return (a, c) if the changes are all those of at most c coordinates by at most a each; refuse other sets.

    Independent noise of one law is as private on that set as on c coordinates that all move by up to a. Which coordinates
    move does not matter, nor whether all rise or fall together, since the law is symmetric.

    Examples
    --------
    >>> alike(Sensitivity(linf=1, l0=3), 20), alike(Sensitivity(each=[2, 2, 0]), 3)
    ((1.0, 3), (2.0, 2))
    """
    bounds = sensitivity.bounds(dimension)
    allowed = (
        "the best noise is known where at most c coordinates change by at most a each: "
        "Sensitivity(linf=a, l0=c), a and c so large that they cover these changes"
    )
    refuse(len(bounds) > 1 or not sensitivity.allows(bounds), "sensitivity", str(sensitivity), allowed)
    return bounds[0]


def cell_claims(question: NoiseQuestion, stated: proofs.Certificate) -> Iterator[proofs.Claim]:
    r"""Claim that a cell law keeps (ε, δ), by its finitely many hockey-stick sums (`mechdesign.noise.cell_noise`), and what it costs.

    If each of c coordinates that change at once keeps (ε/c, δ/c), all of them keep (ε, δ): basic composition
    (Dwork and Roth 2014, theorem 3.16). The sums and the cost are rational; the cost of a callable loss is computed in doubles
    and rounded up.
    """
    law, size, moved = stated.law, 1, 1
    if isinstance(stated.law, CellProduct):
        law, size, moved = stated.law.law, stated.law.dimension, stated.law.moved
    instance("law", law, IntegerNoise if question.integer else CellNoise)
    remedy = "must be the question's: numbers, and how many change"
    refuse((size, moved) != (question.dimension, question.moved), "dimension", (size, moved), remedy)
    for epsilon, delta in question.points:
        spare = Fraction(delta) - moved * law.exact_delta(Fraction(epsilon) / moved)
        claim = f"delta at epsilon = {epsilon:g} is at most {delta:g}"
        yield proofs.Claim.of(claim, proofs.PROVED, spare)
    cells = on_cells(law)
    asked = question.change if question.integer else Fraction(question.sensitivity)
    reach = Fraction(cells.width) * cells.cells_per_shift - asked
    yield proofs.Claim.of("it holds for every change up to the sensitivity", proofs.PROVED, reach)
    room = Fraction(stated.value) - law.cost(question.given_loss)
    how = proofs.PROVED if question.given_loss.polynomial else proofs.RECOMPUTED
    yield proofs.Claim.of(f"the expected loss is at most {stated.value:.9g}", how, room)


def cell_law(question: NoiseQuestion, noise: CellNoise | IntegerNoise, report: SolveReport) -> Law:
    """Return noise on cells or whole numbers as a candidate of the search, with its cost and proof."""
    cost = round_up(noise.cost(question.given_loss))
    return Law(noise, cost, (proofs.LawProof(),), report, law_notes(question, noise))


def law_notes(question: NoiseQuestion, noise: CellNoise | IntegerNoise) -> tuple[str, ...]:
    """Return notes about the noise."""
    notes = []
    if not question.given_loss.polynomial:
        notes.append(
            "the loss is a callable: its floating-point values are taken as exact, its convexity sampled"
        )
    if isinstance(noise, CellNoise) and noise.spike:
        notes.append(
            f"a spike of mass {float(noise.spike / noise.total):.3g} and width {noise.spike_width:.3g} sits at 0: "
            "δ is large enough that almost exact answers pay"
        )
    return tuple(notes)


# -- lattices ---------------------------------------------------------------------------------------------------------


_LEMMA = (
    "Let T be additive noise, rounded at random, and without bias, to one of its two neighbours among the multiples of h (the sensitivity "
    "divided by a whole number n); noise on the whole numbers is left as it is, with h = 1. That is post-processing, so the result keeps (epsilon, delta)-privacy at shifts by up to n steps: "
    "for every such s the sum of all positive parts S of p_j - e^epsilon p_(j+s) is at most delta; a rational number above e^epsilon stands for it. The expected absolute value is not smaller than "
    "that of T, and the expected square not more than h^2/4 larger: so the cost of p_j is a|j|h + b(j^2 h^2 - h^2/4), for the loss a|t| + bt^2 (of whole numbers the loss itself). The last p is all mass "
    "further out, which costs no less. Of even losses p_j is the mass of j and -j together. So every additive noise that is private gives a point of this program which costs no more than its own expected loss."
)


class FreeLattice(LatticeDeclared):
    """The masses of every additive noise on a lattice."""

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
    """Return the question on a lattice in numbers; `costs` are those of its entries, for one side if `mirrored`."""
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
    """Return the program over every noise, with `cells` cells a sensitivity and `side` points on each side; even losses have mirrored entries."""
    q = question
    integer("side", side, integer("cells", cells, 1, 10**5), 10**5)
    refuse(q.integer and cells != q.change, "cells", cells, f"must be {q.change}, as whole numbers change")
    held = lower_costs(q.given_loss, -side - 1, side + 1, q.unit(cells), whole=q.integer)
    costs = [round_down(Fraction(n, held.denominator)) for n in held.numerators]
    beyond = min(costs[0], costs[-1])
    lower = np.minimum(costs, costs[::-1]).tolist()
    even = bool(np.allclose(lower, costs, rtol=1e-9, atol=0.0))  # a callable may differ by rounding
    costs = lower if even else costs
    inside = costs[side + 1 : -1] if even else costs[1:-1]
    entries, step = np.array([*inside, beyond]), float(q.unit(cells))
    return lattice_declared(q, FreeLattice, cells, step, entries, Fraction(0), even)


SPIKE = 1 / 64
"""Width of the spike at 0, in cells."""


def noise_of(declared: LatticeDeclared, weights: Iterable[int]) -> CellNoise | IntegerNoise:
    """Return the law of these integer weights of the entries, without empty points at both ends."""
    *entries, last = [fmpq(w) for w in weights]
    masses = declared.point_masses([*entries, last])
    masses.append(last if declared.spiked else ZERO)
    common = math.lcm(*(int(mass.q) for mass in masses))
    *held, spike = [int(mass * common) for mass in masses]
    used = [j for j, w in enumerate(held) if w]
    trim = 0 if declared.decay else min(used[0], len(held) - 1 - used[-1])
    held = held[trim : len(held) - trim]
    shared = math.gcd(*held, spike)
    found = tuple(w // shared for w in held)
    if declared.integer:
        return IntegerNoise(found, -(len(found) // 2), declared.change, declared.decay)
    start = -len(found) * declared.step / 2
    spike, width = spike // shared, SPIKE * declared.step
    return CellNoise(
        found, declared.step, start, declared.change, spike, width if spike else 0.0, declared.decay
    )


def entries_of(declared: LatticeDeclared, law: Any) -> Exact:
    """Return the entries of a law, in rationals."""
    law = instance("law", law, IntegerNoise if declared.integer else CellNoise)
    change = law.change if isinstance(law, IntegerNoise) else law.cells_per_shift
    pad, odd = divmod(2 * declared.side + 1 - len(law.weights), 2)
    same = not odd and pad >= 0 and law.decay == declared.decay and change == declared.change
    if isinstance(law, IntegerNoise):
        same &= law.first == -(len(law.weights) // 2)
    else:
        centred = 2 * Fraction(law.start) == -len(law.weights) * Fraction(law.width)
        same &= law.width == declared.step and centred and not law.spike
    DesignError.when(not same or (declared.decay and pad), "law: is not noise on the problem's lattice")
    total = rational(law.total)
    weights = [0] * pad + list(law.weights) + [0] * pad
    per_entry = declared.point_masses([fmpq(1)] * len(weights))
    return [w / (total * mass) for w, mass in zip(weights, per_entry)]


@serializable("lattice-problem", eq=False)
class LatticeProblem(FiniteProblem):
    """A problem on the masses of additive noise, whose unknown is a `LatticeNoise`."""

    numbers: ClassVar[Any] = LatticeDeclared
    declared: ClassVar[LatticeDeclared]  # type: ignore[misc]
    asks: ClassVar[str] = "numbers"
    mechanism_class = every("noise on this lattice within these constraints")

    def deployed(self, weights: tuple[tuple[int, ...], ...]) -> CellNoise | IntegerNoise:
        return noise_of(self.declared, weights[0])

    def exact(self, law: Any, witness: Iterable[Fraction] = ()) -> Exact:
        return [*entries_of(self.declared, law), *(rational(x) for x in witness)]

    def to_fields(self) -> dict[str, object]:
        """Return the fields that files hold: the problem in numbers."""
        return {
            name: v for name, v in super().to_fields().items() if name not in ("mirrored", "free", "spiked")
        }

    @classmethod
    def unknown_of(cls, numbers: Any) -> LatticeNoise:
        refuse(numbers.of != "data", "of", numbers.of, "must be 'data': noise is added to one answer of all")
        unknown = LatticeNoise(
            numbers.step,
            numbers.side * numbers.step,
            sensitivity=numbers.sensitivity,
            integer=numbers.integer,
            tails=numbers.tails,
            neighbours=numbers.neighbours,
        )
        for name, value in unknown.stated().items():
            allowed = "must be that of noise of this step, reach, sensitivity and tails"
            refuse(getattr(numbers, name) != value, name, getattr(numbers, name), allowed)
        for asked in numbers.privacy:
            unknown.private(asked.privacy)
        return unknown

    # -- what a result says -----------------------------------------------------------------------------------

    def protection(self) -> Protection:
        declared = self.declared
        changes = Sensitivity(linf=declared.sensitivity, neighbours=declared.neighbours)
        return Protection(1, changes, integer=declared.integer)

    def frame(self, result: Result) -> pd.DataFrame:
        """Return the mass of each point, without the repetitions of tails."""
        masses = self.declared.point_masses(self.exact(result.mechanism))
        points = self.declared.step * np.arange(-self.declared.side, self.declared.side + 1)
        return pd.DataFrame({"noise": points, "probability": [float(mass) for mass in masses]})

    def remarks(self, result: Result) -> list[str]:
        declared = self.declared
        if declared.decay:
            return []
        return [
            f"there is no noise beyond {declared.step * declared.side:g}, and the lower bound is of noise within that reach"
        ]

    def describe(self, result: Result) -> Description:
        return self._described(
            f"Additive noise on {len(self.declared.outputs)} points",
            f"{self.protection()} Noise of masses p is added.",
            "Above: the density of the noise. Below: how often it is larger than t.",
        )


MOST_CELLS = 50_000


@dataclass(frozen=True)
class SearchLattice:
    """One lattice of the search: its two programs.

    Parameters
    ----------
    question : NoiseQuestion
    cells : int
        n, cells a sensitivity.
    side : int
        Cells on each side of 0.
    clock : Clock
    solver : str, optional
        A registered backend.
    """

    question: NoiseQuestion
    cells: int
    side: int
    clock: Clock
    solver: str | None = None

    def check_loss(self) -> None:
        """Raise DesignError for a callable that is not convex here."""
        q, n, side = self.question, self.cells, self.side
        if q.given_loss.function is not None:
            check_loss(q.given_loss, float(q.unit(n)) * np.arange(-side - n - 1, side + n + 2))

    @cached_property
    def _every(self) -> LatticeDeclared:
        """The program over every noise, in numbers."""
        return free_lattice(self.question, self.cells, self.side)

    @cached_property
    def _free(self) -> Program:
        """That program, solved."""
        program = Program(self._every, self.clock, self.solver)
        program.solve()
        return program

    @cached_property
    def hidden(self) -> float:
        """Mass beyond the reach in an optimum over every noise; under δ > 0 also that of the outermost n points, which may move outwards without breaking a row."""
        *masses, beyond = self._free.columns().tolist()
        if not all(delta for _, delta in self.question.points):
            return float(beyond)
        left = 0.0 if self._every.mirrored else sum(masses[: self.cells])
        return float(beyond + left + sum(masses[-self.cells :]))

    @property
    def farthest(self) -> float:
        """Cost of mass beyond the reach."""
        return float(self._every.cost[-1])

    def bound(self) -> Bound:
        """Return the lower bound for every noise."""
        held = admissible(self._every, *self._free.multipliers())
        proof = RowsBound(*held, (self.cells, self.side))
        return Bound(round_down(proof.proved(self.question)), proof)

    def priced(self) -> LatticeDeclared:
        """Return the problem of the law: densities on these cells, with geometric tails if some δ is 0."""
        q, n = self.question.resolved, self.cells
        pure = min((e for e, d in q.points if not d), default=None)
        decay = Fraction(0) if pure is None else outward_decay(pure)
        width = round_width(q.unit(n))
        costs = lattice_costs(q.given_loss, width, self.side, n, decay, integer=q.integer).floats()
        even = self._every.mirrored
        held = np.maximum(costs, costs[::-1])[self.side :] if even else costs
        spiked = not q.integer and pure is None
        if spiked:
            held = np.append(
                held,
                average_costs(q.given_loss, np.zeros(1, dtype=int), Fraction(SPIKE * width / 2)).floats(),
            )
        return lattice_declared(q, LatticeDeclared, n, width, held, decay, even, spiked)

    def law(self) -> Law:
        """Return the cheapest law on these cells, repaired into an exactly private one."""
        declared = self.priced()
        program = Program(declared, self.clock, self.solver, margin=MARGIN)
        program.solve()
        report = SolveReport.of(program.solution)
        points = near(declared, starts(program), self.clock, self.clock.gap / 4)
        columns, _ = repaired(declared, points, self.clock, self.solver)
        return cell_law(self.question, noise_of(declared, weights_of(declared, columns)[0]), report)


def too_large(question: NoiseQuestion, side: int) -> SolverError:
    """Return the error about a lattice of too many cells."""
    kind = "Gaussian" if question.points[0][0] == 0 else "Laplace"
    words = f"{question.privacy} needs a lattice of {2 * side} cells, more than {MOST_CELLS}; calibrate {'discrete ' * question.integer}{kind} noise instead"
    return SolverError(words, solver="highs", status="too large")


def refined(
    question: NoiseQuestion,
    clock: Clock,
    solver: str | None = None,
    *,
    cells: int | None = None,
    max_cells: int = 64,
    known: bool = False,
) -> Iterator[Law | Bound]:
    """Yield bound and law on lattices that become twice as fine, and wider where mass lies beyond their reach.

    Parameters
    ----------
    question : NoiseQuestion
        For one number.
    clock : Clock
    solver : str, optional
        A registered backend.
    cells : int, optional
        Keep this many cells a sensitivity and let only the window grow.
    max_cells : int
    known : bool
        Whether a law is known: then a lattice that is too large ends the search without an error.
    """
    n, window = cells or 1, reach(question.resolved)
    for attempt in range(14):
        side = max(math.ceil(window * n), n + 1)
        if 2 * side > MOST_CELLS:
            if known or attempt:
                return
            raise too_large(question, side)
        lattice = SearchLattice(question, n, side, clock, solver)
        lattice.check_loss()
        hidden, wider = 1.0, True
        try:
            hidden = lattice.hidden
            yield (bound := lattice.bound())
            wider = hidden * lattice.farthest > max(clock.gap / 10, 1e-9) * bound.value
            yield lattice.law()
            known = True
        except InfeasibleError as error:  # one pair may need slow decay, another little mass far out
            if len(question.points) == 1:
                clock.failed(error, f"nothing is taken from {n} cells per sensitivity")
        except SolverError as error:  # earlier laws and bounds stay valid
            if not known:
                raise
            clock.failed(error, f"the best law and bound without {n} cells per sensitivity are used")
            return
        if wider:
            window *= 1.4
        if cells is not None and not wider:
            return
        if cells is None and hidden <= 1e-3:
            if n >= max_cells:
                return
            n = min(2 * n, max_cells)


def reach(q: NoiseQuestion) -> float:
    """Return how many sensitivities a first lattice reaches to either side of 0: past the support of truncated Laplace noise, or of uniform noise at ε = 0; further for whole numbers."""

    def of(epsilon: float, delta: float) -> float:
        if not delta:
            return 2.0 + (28.0 if q.integer else 12.0) / epsilon
        if epsilon == 0:
            return 1.0 + 0.8 / delta
        support = math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon
        return 1.0 + max(support, 1.6 * support if q.integer else min(1.6 * support, 2.0 + 12.0 / epsilon))

    pure, other = ([of(e, d) for e, d in q.points if bool(d) == wanted] for wanted in (False, True))
    return max(pure, default=0.0) + max(other, default=0.0)  # tails begin where the other pairs' window ends
