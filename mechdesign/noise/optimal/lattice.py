r"""The linear program of the optimal noise on a lattice: solved with generated cuts, from both sides, ever finer.

Unknown masses p on cells i = 0..L-1, free masses in the two infinite tails, and a spike of mass a at the centre.
For every signed shift s of at most n cells

.. math:: a + \sum_i [p_i - e^{\varepsilon} p_{i+s}]_+ + \Big[\sum_{i:\, i+s \text{ in the tail}} p_i
          - e^{\varepsilon} p_\text{tail}\Big]_+ \le \delta .

Where several points (ε, δ) are asked, each has a block of these rows.

How it is declared and grown by cuts is in `mechdesign.noise.optimal.lattice_program`, how the multipliers of any relaxation are
turned into a proof in `mechdesign.noise.optimal.lattice_dual`.

The lower program (lattice costs, free tails) comes first; then the same cells are priced from above, and that answer is
repaired into a private law: rounded to integers, its hockey-stick sums evaluated exactly, and what is missing bought from a
law with privacy to spare (δ > 0) or by raising the masses that are too small (δ = 0). Switched off where δ is large, the value
rises by up to 28% (ε = 2, δ = .1) and the gap 74 times in the median; without finer lattices the value by up to 14%.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy import ndimage

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.results import SolveReport
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise
from mechdesign.noise.optimal.cell_product import CellLawProof, law_notes
from mechdesign.noise.optimal.lattice_dual import (
    LatticeDual,
    SampledLatticeDual,
    inward,
    law_cost,
)
from mechdesign.noise.optimal.lattice_program import LatticeProgram, Line, cell_line
from mechdesign.noise.optimal.question import NoiseQuestion
from mechdesign.problem.lattice_costs import (
    ExactCosts,
    average_costs,
    check_loss,
    lower_costs,
    outward_decay,
    round_width,
    tail_costs,
)
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.typing import Array, Indices

SMALLEST_DELTA = 1e-7
"""Below, the linear programs run with δ = 0: HiGHS meets constraints to 1e-9 only."""
MOST_CELLS = 50_000
_SCALED = 1e-2
"""What δ is at least in the programs for whole numbers, where that takes no mass above 10⁷: by it alone gaps at δ ≤ 1e-8 fall from 14% to 1e-5."""
_SHRUNK = 0.0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-7
"""Shares of all multipliers that are given up, so that as much of the costs pays for the rounding of the others."""
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
    edge : bool
        Whether an edge lies at 0, and there is no spike; else the cells of the law are centred on multiples of the width.
    clock : Clock
    """

    question: NoiseQuestion
    cells: int
    side: int
    edge: bool
    clock: Clock

    @cached_property
    def points(self) -> tuple[tuple[float, float], ...]:
        """(ε, δ) of the programs: δ = 0 where it is too small for them."""
        return tuple((e, d if d >= _smallest(self.question) else 0.0) for e, d in self.question.points)

    @property
    def delta(self) -> float:
        """The least δ of the programs that is not 0, if any."""
        return min((d for _, d in self.points if d), default=0.0)

    @property
    def pure(self) -> float | None:
        """The least ε with δ = 0, if any: the law then has tails without end."""
        return min((e for e, d in self.points if not d), default=None)

    @property
    def stepped(self) -> bool:
        """Whether masses fall in steps of e^{-ε} at most: of whole numbers under one point, at any ε up to 200."""
        return self.question.integer and self.question.alone

    @property
    def mass(self) -> float:
        """Mass of all cells in the programs for whole numbers, or several points, whose masses are large where δ is small: the solver's tolerances are absolute."""
        scaled = self.delta and (self.question.integer or len(self.points) > 1)
        return min(max(1.0, _SCALED / self.delta), 1e7) if scaled else 1.0

    @property
    def width(self) -> float:
        """Width of a cell of the law."""
        return round_width(self.question.unit(self.cells))

    def _averages(self, middles: Indices) -> ExactCosts:
        """What cells cost, by their middles in half cells; of whole numbers the middles themselves."""
        unit, half = Fraction(self.width) / 2, 0 if self.question.integer else 1
        return average_costs(self.question.given_loss, middles, unit, half=half)

    def _tails(self, middles: Indices, decay: Fraction) -> tuple[ExactCosts, ExactCosts]:
        unit, half = Fraction(self.width) / 2, 0 if self.question.integer else 1
        return tail_costs(self.question.given_loss, middles, unit, self.cells, decay, half=half)

    def _priced(
        self, line: Line, costs: ExactCosts, *, tail: float = 0.0, spike: float | None = None
    ) -> tuple[Array, float]:
        """Costs of the program's unknowns, scaled to order one, and the scale."""
        values, units = costs.floats(), self._units(line)
        if self.stepped:
            weights = units[line.owner]
            scale = max(float(np.abs(values) @ weights / weights.sum()), 1e-300)
        else:
            scale = max(float(np.median(np.abs(values))), 1e-300)
        cells = np.bincount(line.owner, weights=values)
        tails = line.masses[len(line.mass) : -1] * tail
        highest = values.max() if spike is None else spike
        return np.concatenate([cells, tails, [highest]]) / scale, scale

    def _program(self, line: Line, cost: Array) -> LatticeProgram:
        # of pure noise on the whole numbers gaps are up to 7e-3 with larger masses, and 3e-5 at 1e-9
        tolerance = 1e-10 if self.question.integer and not self.delta else 1e-9
        return LatticeProgram(
            line,
            cost,
            points=self.points,
            mass=self.mass,
            units=self._units(line),
            tolerance=tolerance,
            deadline=self.clock,
        )

    def _units(self, line: Line) -> Array:
        """What the masses of a program are multiples of: those of the steepest staircase where `stepped`, so that a large ε is no large number."""
        found, q = np.ones(len(line.masses)), self.question
        if not self.stepped:
            return found
        away = np.arange(len(line.mass)) - (0 if line.mirrored else len(line.mass) // 2)
        steps = np.ceil(np.abs(away) / self.cells)
        found[:-1] = math.exp(-q.epsilon * steps.max())
        found[: len(line.mass)] = np.exp(-q.epsilon * steps)
        return np.maximum(found, self.delta * math.exp(-q.epsilon))

    def _tolerance(self, share: float) -> float:
        """How much the privacy sums may miss δ by: this share of it, where the solver can."""
        return max(share * self.delta, 2e-9 / self.mass, 1e-15)  # the last is what sums of doubles miss

    @property
    def spike_width(self) -> float:
        """Width of a spike: a density, at nearly the cost of an atom."""
        return self.width / 64

    def check_loss(self) -> None:
        """Raise DesignError for a callable that is not convex here, or that no tails of pure noise can carry."""
        q, n, side = self.question, self.cells, self.side
        if q.given_loss.function is None:
            return
        width = q.unit(n)
        check_loss(q.given_loss, float(width) * np.arange(-side - n - 1, side + n + 2))
        if self.pure is not None:
            self._tails(2 * np.arange(-n, n) + 1, outward_decay(self.pure))

    def lower(self) -> tuple[LatticeProgram, LatticeDual]:
        """Solve the lower program; what its multipliers say is a proof for every δ."""
        q, n, side = self.question, self.cells, self.side
        lower = lower_costs(q.given_loss, -side - n - 1, side + n + 1, q.unit(n), whole=q.integer)
        inner = lower[n + 1 : -n - 1]
        mirrored = inner.numerators == inner.numerators[::-1]
        line = cell_line(2 * side + 1, n, mirrored, tailed=True)
        cost, scale = self._priced(line, inner, tail=float(min(lower.floats()[[n, -n - 1]])))
        program = self._program(line, cost)
        program.solve(self._tolerance(1e-8 if q.integer else 2e-4))
        kind = LatticeDual if q.given_loss.polynomial else SampledLatticeDual
        shifts, psi, totals = program.multipliers()
        psi, totals = psi * scale, totals * scale
        if not self.stepped:
            return program, kind(n, shifts, psi, totals, mirrored)
        psi = inward(shifts, psi, lower.floats()[1:-1], program.level * scale, q.epsilon, mirrored=mirrored)
        proofs = [kind(n, shifts, psi * (1 - x), totals * (1 - x), mirrored) for x in _SHRUNK]
        return program, max(proofs, key=lambda proof: proof.proved(q))

    def law(self, lower: LatticeProgram) -> Law:
        """Price the cells from above, solve, and repair the answer into a private law."""
        program, masses = self._upper(lower) if self.pure is None else self._pure_upper(lower, self.pure)
        if self.stepped and self.pure is None and masses.any() and (over := self._over(masses)) > 0:
            # a basis with numbers near 1 and near δ misses δ: asking for that much less costs less than a mixture
            masses = program.tightened(2 * over, self._tolerance(1e-8))[program.line.owner]
        law, q = self._private(program, masses), self.question
        rows, columns = max(lower.program.shape, program.program.shape)
        iterations = lower.program.iterations + (0 if program is lower else program.program.iterations)
        report = SolveReport("highs", variables=columns, constraints=rows, iterations=iterations)
        return Law(law, round_up(law_cost(law, q.given_loss)), (CellLawProof(),), report, law_notes(q, law))

    def _upper(self, program: LatticeProgram) -> tuple[LatticeProgram, Array]:
        """The program and the masses of all cells; zeros before any solution."""
        q, n, half, side = self.question, self.cells, self.edge, self.side
        count = 2 * side if half else 2 * side + 1
        middles = 2 * np.arange(count) + 1 - count
        # On the edge grid, and on whole numbers, there is no spike; at the price of the cell that costs most it never pays.
        spike = None
        if not half and not q.integer:
            spike = average_costs(q.given_loss, middles[:1] * 0, Fraction(self.spike_width) / 2).floats()[0]
        line = cell_line(count, n, program.line.mirrored, half=half) if half else program.line
        cost, _ = self._priced(line, self._averages(middles), spike=spike)
        if half:
            program = self._program(line, cost)
        else:
            program.reprice(cost)
        program.solve(self._tolerance(1e-8 if q.integer else 1e-6))
        return program, np.zeros(count) if program.x is None else program.x[line.owner]

    def _pure_upper(self, lower: LatticeProgram, epsilon: float) -> tuple[LatticeProgram, Array]:
        """The same for δ = 0, where tails are geometric; before any solution, masses that fall by e^{-ε}."""
        n, half = self.cells, self.edge
        decay, side = outward_decay(epsilon), self.side if self.delta else min(self.side, 3 * n + 1)
        count = 2 * side if half else 2 * side + 1
        middles = 2 * np.arange(count) + 1 - count
        plain = cell_line(count, n, lower.line.mirrored, half=half)
        ends, r = (plain.owner[:n], plain.owner[-n:]), float(decay)
        # One repeated period on each side is on the line, and where excesses are summed the next for its shifts; masses and costs
        # include the infinite tails, and the excesses of the first those of all.
        mass = plain.mass.copy()
        cost, scale = self._priced(plain, self._averages(middles))
        for owners, costs in zip(ends, self._tails(middles, decay)):
            np.add.at(mass, owners, r / (1 - r))
            np.add.at(cost, owners, costs.floats() / scale)
        outside = 2 if self.delta else 1
        owner = np.concatenate([*[ends[0]] * outside, plain.owner, *[ends[1]] * outside])
        period = np.repeat(
            [*range(outside, 0, -1), 0, *range(1, outside + 1)], [n] * outside + [count] + [n] * outside
        )
        sums = np.array([1.0, 1 / (1 - r), 0.0])[period] if self.delta else None
        line = replace(plain, owner=owner, factor=r**period, mass=mass, sums=sums)
        program = self._program(line, cost)
        program.solve(self._tolerance(1e-6) if self.delta else 2e-9)
        falling = np.exp(-epsilon * np.abs(np.arange(count) - (count - 1) / 2) / n)
        return program, falling if program.x is None else program.x[plain.owner]

    def _rounded(
        self, masses: Array, bits: int, *, spike: int = 0, decay: Fraction = Fraction(0)
    ) -> CellNoise | IntegerNoise:
        """The law on cells of these masses, rounded to multiples of 2^-bits, without as many empty cells at either end."""
        weights = [int(Fraction(m) * 2**bits) for m in masses.tolist()]
        used = [i for i, w in enumerate(weights) if w]
        trim = min(used[0], len(weights) - 1 - used[-1]) if used else 0
        weights = weights[trim : len(weights) - trim]
        if self.question.integer:
            return IntegerNoise(tuple(weights), -(len(weights) // 2), self.cells, decay)
        start = -len(weights) * self.width / 2
        narrow = self.spike_width if spike else 0.0
        return CellNoise(tuple(weights), self.width, start, self.cells, spike, narrow, decay)

    def _over(self, masses: Array) -> float:
        """By how much masses exceed δ."""
        law = self._rounded(np.maximum(masses, 0.0), 60)
        return float(law.exact_delta(self.question.epsilon) - Fraction(self.delta))

    def _private(self, program: LatticeProgram, masses: Array) -> CellNoise | IntegerNoise:
        """A law close to the masses found that keeps every point exactly: raised where δ = 0, mixed with a geometric one as far as needed where not."""
        spike = 0.0 if program.x is None or self.pure is not None else max(0.0, float(program.x[-1]))
        reserve, share, masses = np.zeros(len(masses)), 0.0, np.maximum(masses, 0.0)
        if self.delta:
            reserve = self._reserve(len(masses))
            masses = np.pad(masses, (len(reserve) - len(masses)) // 2)
            share = 0.0 if masses.any() or spike else 1.0
        decay, bits = Fraction(0), 60
        if self.pure is not None:  # windows of several points are wide, and most masses small
            decay, bits = (
                outward_decay(self.pure),
                self._floor(self.pure) + (40 if self.question.alone else 60),
            )
        while True:
            held = (1 - share) * masses + share * reserve
            if self.pure is not None:
                held = self._raised(held, self.pure)
            narrow = int((1 - share) * spike * 2**60)
            law = self._rounded(held, bits, spike=narrow, decay=decay)
            excess = [(float(law.exact_delta(e) - Fraction(d)), d) for e, d in self.points]
            excess = [(over, delta) for over, delta in excess if over > 0]
            if not excess:
                return law
            if share == 1 or not self.delta:
                raise SolverError(
                    "no law could be repaired to be private", solver="highs", status="inaccurate"
                )
            # The reserve's own sums are at most 0.9 δ, and the sums are convex in the law.
            needed = max(1.001 * over / (over + 0.1 * delta) for over, delta in excess)
            share = min(1.0, max(2 * share, needed + 1e-13))

    def _reserve(self, cells: int) -> Array:
        """Truncated geometric masses that keep every point with room, on at least so many cells.

        Decay e^{-ε} per sensitivity makes every pair of cells harmless, and at ε = 0 a decay of 0.45 δ all of them together cost no more than
        that; else the n outermost cells count, whose partners have no mass. The support grows until those weigh at most what is left of 0.9 δ.
        """
        n, rate = self.cells, min(e or 0.45 * d for e, d in self.points)
        room = min(0.9 * d if e else 0.45 * d for e, d in self.points if d)
        reach = math.ceil(n * math.log1p(math.expm1(rate) / (2 * room)) / rate)
        while True:
            count = 2 * reach + (not self.edge)
            masses = np.exp(-rate * np.abs(np.arange(count) - (count - 1) / 2) / n)
            masses /= masses.sum()
            if masses[-n:].sum() <= room:
                return np.pad(masses, max(0, (cells - count) // 2))
            reach += max(1, reach // 16)

    def _floor(self, epsilon: float) -> int:
        """Masses of pure noise are at least the largest times 2 to the minus this."""
        return 60 + (math.ceil(4.5 * epsilon) if self.question.integer else 0)

    def _raised(self, masses: Array, epsilon: float) -> Array:
        """Masses that are ε-DP with geometric tails, made by raising those that are too small."""
        n, decay = self.cells, outward_decay(epsilon)
        factor, p = math.exp(-epsilon) * (1 + 1e-12), np.zeros_like(masses)  # above all roundings
        raised = np.maximum(masses, masses.max() * 2.0 ** -self._floor(epsilon))
        while np.any(raised > p):
            p = raised
            # A repeated cell is private towards its own period only if the period falls outwards.
            p[:n] = np.maximum.accumulate(p[:n])
            p[-n:] = np.maximum.accumulate(p[-n:][::-1])[::-1]
            # Tails follow from the outermost periods, so they join in with their decay.
            wide = np.concatenate([p[:n] * float(decay), p, p[-n:] * float(decay)])
            raised = np.maximum(p, factor * ndimage.maximum_filter1d(wide, 2 * n + 1)[n:-n])
        return np.asarray(p / p.sum())


def refined(
    question: NoiseQuestion,
    clock: Clock,
    *,
    cells: int | None,
    edge: bool,
    max_cells: int,
    known: bool = False,
) -> Iterator[Law | Bound]:
    """Yield bound and law of lattices that become finer by a factor of two, and wider where mass hides in the tails.

    Parameters
    ----------
    question : NoiseQuestion
        For one number.
    clock : Clock
    cells : int, optional
        Stay with so many per sensitivity; the window alone grows then.
    edge : bool
        As in `Lattice`.
    max_cells : int
    known : bool
        Whether a law is known already: a lattice that is too large is then no error.
    """
    n, window = cells or 1, _window(question)
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
        lattice = Lattice(question, n, side, edge, clock)
        lattice.check_loss()
        tries, hidden = [lattice], 0.0
        if lattice.stepped and question.delta:
            # pure noise and its multipliers may be nearer to the optimum: gaps of up to 3e-3 at δ ≤ 1e-8 fall to 1e-6
            pure = replace(question, privacy=PureDP(question.epsilon))
            narrow = min(side, max(math.ceil(_window(pure) * n), n + 1))
            tries.append(replace(lattice, question=pure, side=narrow))
        failed: SolverError | None = None
        for one in tries:
            try:
                program, proof = one.lower()
                hidden = max(hidden, program.tail)  # before the program is priced anew
                yield Bound(round_down(proof.proved(question)), proof)
                yield one.law(program)
            except (
                InfeasibleError
            ) as error:  # one point asks for slow decay, another for little mass at the end
                hidden = 1.0
                if len(question.points) == 1:
                    clock.failed(error, f"nothing is taken from {n} cells per sensitivity")
            except SolverError as error:  # what was found before is private, and its bound proved
                failed = error
            else:
                known = True
        if failed:
            clock.failed(failed, f"the best law and bound without {n} cells per sensitivity are used")
        if failed and (attempt or len(tries) == 1 or not known):
            if known:
                return
            raise failed
        wider = hidden > 1e-7  # mass in the tails, which are free in the lower program
        if wider:
            window *= 1.4
        if cells is not None and not wider:
            return
        if cells is None and hidden <= 1e-3:
            if n >= max_cells:
                return
            n = min(2 * n, max_cells)


def _smallest(q: NoiseQuestion) -> float:
    """The least δ that programs are solved with."""
    return 1e-12 if q.integer or len(q.points) > 1 else SMALLEST_DELTA


def _window(q: NoiseQuestion) -> float:
    """Sensitivities on each side: past the support of truncated Laplace noise, at ε = 0 uniform; of whole numbers, which are few, further."""

    def reach(epsilon: float, delta: float) -> float:
        if delta < _smallest(q):
            return 2.0 + (28.0 if q.integer else 9.0) / epsilon
        if epsilon == 0:
            return 1.0 + 0.8 / delta
        support = math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon
        return 1.0 + max(support, 1.6 * support if q.integer else min(1.6 * support, 2.0 + 12.0 / epsilon))

    return max(reach(e, d) for e, d in q.points)
