r"""The optimal noise on a lattice of cells: its linear program from both sides, ever finer.

*Below*, `free_lattice` and its multipliers bound every noise. *Above*, a density that is constant on cells is a problem of `LatticeNoise`; the table's repair
makes it private in exact arithmetic. Both errors are of order β². Under δ > 0 mass on 0 alone, which every shift charges in full, is one more variable: a
narrow spike. Without it (2, .5) takes 60 times as long, and (5, .75) under squared loss costs .8% more.

Switched off where δ is large, the value rises by up to 28% (ε = 2, δ = .1) and the gap 74 times in the median; without finer lattices the value by up to 14%.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.results import SolveReport
from mechdesign.model.exactly import MARGIN, admissible, near, repaired, weights_of
from mechdesign.model.lattice import LatticeDeclared, lattice_costs
from mechdesign.model.program import Program
from mechdesign.noise.optimal.cell_product import CellLawProof, law_cost, law_notes
from mechdesign.noise.optimal.lattice_bound import (
    LatticeBound,
    SampledLatticeBound,
    free_lattice,
    lattice_declared,
)
from mechdesign.noise.optimal.lattice_problem import SPIKE, noise_of
from mechdesign.noise.optimal.question import NoiseQuestion
from mechdesign.problem.lattice_costs import average_costs, check_loss, outward_decay, round_width
from mechdesign.problem.spine import Bound, Clock, Law

MOST_CELLS = 50_000
SMALLEST_DELTA = 1e-7
"""Of one number that is not whole: below, no lattice is as good as the staircase."""
SMALLEST_WHOLE = 1e-8
"""Of whole numbers: at 1e-9 the staircase is within 3.4e-6 of the optimum for ε of .1 to 8, at 1e-6 within 1.4e-3."""
_ATTEMPTS = 14  # lattices


@dataclass(frozen=True)
class Lattice:
    """The cells of one attempt.

    Parameters
    ----------
    question : NoiseQuestion
    cells : int
        n per sensitivity.
    side : int
        On each side of 0.
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
        """The problem of every noise."""
        return free_lattice(self.question, self.cells, self.side)

    @cached_property
    def _free(self) -> Program:
        """Its program, solved once with privacy a little stricter where its optimum is the law's too."""
        margin = MARGIN if self._alike else 0.0
        program = Program(self._every, self.clock, self.solver, margin=margin)
        program.solve()
        return program

    @property
    def _alike(self) -> bool:
        """Whether both sides are one program: of whole numbers, but for mass beyond the reach."""
        return self.question.integer and all(delta for _, delta in self.question.points)

    @cached_property
    def hidden(self) -> float:
        """The mass that an optimum over every noise puts beyond the reach, and under δ > 0 where no row asks for it when it is moved outwards."""
        *masses, beyond = self._free.columns().tolist()
        if not all(delta for _, delta in self.question.points):
            return float(beyond)
        left = 0.0 if self._every.mirrored else sum(masses[: self.cells])
        return float(beyond + left + sum(masses[-self.cells :]))

    @property
    def farthest(self) -> float:
        """What mass beyond the reach costs."""
        return float(self._every.cost[-1])

    def bound(self) -> Bound:
        """The lower bound of every noise."""
        program, q = self._free, self.question
        if program.margin:
            program.state(0.0)
            program.solve()
        kind = LatticeBound if q.given_loss.polynomial else SampledLatticeBound
        proof = kind(self.cells, self.side, *admissible(self._every, *program.multipliers()))
        return Bound(round_down(proof.proved(q)), proof)

    def priced(self) -> LatticeDeclared:
        """The problem of the law: densities on these cells, with geometric tails where pure privacy is asked for too."""
        q, n = self.question, self.cells
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
        """The cheapest law on these cells, repaired."""
        declared, q = self.priced(), self.question
        program = self._free
        if not (self._alike and self.hidden < 1e-15):
            program = Program(declared, self.clock, self.solver, margin=MARGIN)
            program.solve()
        starts, report = [program.columns()], SolveReport.of(program.solution)
        if (refined := program.refined()) is not None:
            starts.insert(0, refined)
        starts = [start[: declared.cells] for start in starts]
        columns, _ = repaired(declared, near(declared, starts), self.clock, self.solver)
        law = noise_of(declared, weights_of(declared, columns)[0])
        return Law(law, round_up(law_cost(law, q.given_loss)), (CellLawProof(),), report, law_notes(q, law))


def refined(
    question: NoiseQuestion,
    clock: Clock,
    solver: str | None = None,
    *,
    cells: int | None = None,
    max_cells: int = 64,
    known: bool = False,
) -> Iterator[Law | Bound]:
    """Yield bound and law of lattices that become finer by a factor of two, and wider where mass hides beyond.

    Parameters
    ----------
    question : NoiseQuestion
        For one number.
    clock : Clock
    solver : str, optional
        A registered backend.
    cells : int, optional
        Stay with so many per sensitivity; the window alone grows then.
    max_cells : int
    known : bool
        Whether a law is known already: a lattice that is too large is then no error.
    """
    n, window = cells or 1, reach(question)
    for attempt in range(_ATTEMPTS):
        side = max(math.ceil(window * n), n + 1)
        if 2 * side > MOST_CELLS:
            if known or attempt:
                return
            raise SolverError(
                f"{question.privacy} needs a lattice of {2 * side} cells, more than {MOST_CELLS}; "
                f"calibrate {'discrete ' if question.integer else ''}Laplace noise instead",
                solver="highs",
                status="too large",
            )
        lattice = Lattice(question, n, side, clock, solver)
        lattice.check_loss()
        hidden, wider = 1.0, True
        try:
            hidden, law = lattice.hidden, lattice.law() if question.integer else None
            yield (bound := lattice.bound())
            wider = hidden * lattice.farthest > max(clock.gap / 10, 1e-9) * bound.value
            yield law or lattice.law()
            known = True
        except InfeasibleError as error:  # one point asks for slow decay, another for little mass at the end
            if len(question.points) == 1:
                clock.failed(error, f"nothing is taken from {n} cells per sensitivity")
        except SolverError as error:  # what was found before is private, and its bound proved
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
    """Sensitivities on each side: past the support of truncated Laplace noise, at ε = 0 uniform; of whole numbers, which are few, further."""

    def of(epsilon: float, delta: float) -> float:
        if not delta:
            return 2.0 + (28.0 if q.integer else 12.0) / epsilon
        if epsilon == 0:
            return 1.0 + 0.8 / delta
        support = math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon
        return 1.0 + max(support, 1.6 * support if q.integer else min(1.6 * support, 2.0 + 12.0 / epsilon))

    pure, other = ([of(e, d) for e, d in q.points if bool(d) == wanted] for wanted in (False, True))
    return max(pure, default=0.0) + max(other, default=0.0)  # tails begin where the other points end
