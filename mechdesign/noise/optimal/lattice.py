"""One lattice of the optimal-noise problem, and the search over lattices.

An attempt solves the lower program (lattice costs, free tails), proves a bound from its multipliers, prices the same
cells from above and repairs that answer into a private law. The search makes lattices finer and wider until law and
bound are as close as asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pandas as pd

from mechdesign.errors import SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.climb import best_climb
from mechdesign.noise.optimal.costs import (
    ExactCosts,
    average_costs,
    check_loss,
    law_cost,
    lower_costs,
    tail_costs,
)
from mechdesign.noise.optimal.ladders import best_spread, falling_law, first_step, pure_staircase
from mechdesign.noise.optimal.lower_bound import Multiplier, weak_duality
from mechdesign.noise.optimal.program import LatticeProgram, Line
from mechdesign.noise.optimal.question import Question
from mechdesign.noise.optimal.repair import (
    mixed_into_privacy,
    outward_decay,
    raised_into_privacy,
    round_width,
)
from mechdesign.noise.optimal.spline import Spread, spread_bound
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Status

__all__ = ["Attempt", "refine"]

_SPIKE = 64
"""The spike is this many times narrower than a cell: a density, at nearly the cost of an atom."""
_MOST_CELLS = 200_000
_ATTEMPTS = 14
_FINENESS = (4, 6, 8, 12)
_MOST_ALIGNED = 140
_LATTICE_ERROR = 0.027  # relative, of a lattice with one cell per step; it falls with their square
_QUICK = 2
"""Of these ladders so many are tried without a time limit: seconds; each further one takes a minute and more."""


@dataclass(frozen=True)
class Attempt:
    """What one lattice gave: a private law with its exact cost, and multipliers with the bound they prove."""

    law: CellNoise
    value: Fraction
    bound: Fraction
    multipliers: tuple[Multiplier, ...]
    cells: int
    mirrored: bool
    tail: float
    size: tuple[int, int]
    iterations: int
    spread: Spread | None = None
    climb: tuple[int, Fraction] | None = None

    @property
    def gap(self) -> float:
        """Relative distance of law and bound."""
        return float(1 - self.bound / self.value)

    def report(self, status: Status, deadline: Deadline) -> SolveReport:
        """The solver's account."""
        return SolveReport(
            solver="highs" if self.multipliers or self.spread is not None else "closed form",
            status=status,
            seconds=deadline.elapsed,
            variables=self.size[0],
            constraints=self.size[1],
            iterations=self.iterations,
        )

    def duals(self) -> pd.DataFrame:
        """Multipliers of the shifts' sums."""
        rows = [("privacy", m.shift, m.total) for m in self.multipliers]
        return pd.DataFrame(rows, columns=["family", "index", "dual"])

    def better(self, other: Attempt) -> Attempt:
        """The better law with the better bound: both are valid, whatever lattice they came from."""
        law = self if self.value <= other.value else other
        proof = self if self.bound >= other.bound else other
        return replace(
            law,
            bound=proof.bound,
            multipliers=proof.multipliers,
            cells=proof.cells,
            mirrored=proof.mirrored,
            spread=proof.spread,
            climb=proof.climb,
        )


def refine(question: Question, *, max_cells: int, deadline: Deadline) -> Attempt:
    """Make lattices finer and wider until law and bound are as close as asked; return the best of both.

    Parameters
    ----------
    question : Question
    max_cells : int
    deadline : Deadline
        The search stops there with the best so far.
    """
    window, cells = question.first_window(), question.cells
    start = _staircase(question, deadline) if question.held else None
    if start is not None and (start.gap <= question.gap or deadline.passed):
        return start
    if start is not None and question.laddered:
        start = _on_ladders(question, start, deadline)
        if start.gap <= question.gap or deadline.passed:
            return start
    best = start
    aligned = _aligned(question, 0, 1.0 if start is None else start.gap)
    n = cells or min(aligned or question.first_cells(), max_cells)
    for count in range(1, _ATTEMPTS + 1):
        if best is not None and 2 * window * n > _MOST_CELLS:  # more cells than a program can have
            break
        try:
            found = _attempt(question, n, window, deadline, best)
        except SolverError:  # a program without an answer: what is held is private, and its bound proved
            if best is None:
                raise
            break
        best = found if best is None else best.better(found)
        if best.gap <= question.gap or deadline.passed:
            break
        # Mass that the relaxation hides in the tails asks for a wider window, the rest for finer cells.
        wider = found.tail > 1e-7 and (cells is not None or count < 12) and window < 1e4
        window *= 1.4 if wider else 1.0
        if cells is None and n < max_cells:
            if found.tail <= 1e-3:
                finer = min(3.0, math.sqrt(best.gap / (0.85 * question.gap)))
                n = min(max_cells, _aligned(question, n, best.gap) or max(n + 1, math.ceil(n * finer)))
        elif cells is None or not wider:
            break
    assert best is not None
    return best


def _staircase(q: Question, deadline: Deadline) -> Attempt:
    """The staircase, and the bound that makes it the best of all pure noise, less what δ takes."""
    periods, level, bound, step = best_climb(
        q.loss, q.sensitivity, epsilon=q.epsilon, delta=q.delta, gap=q.gap, deadline=deadline
    )
    law = pure_staircase(q.epsilon, q.sensitivity, step if step > 0 else first_step(q.epsilon, q.loss))
    if 20 * q.delta > q.gap:  # every now and then the exact answer, almost
        spike = math.floor(law.total * Fraction(q.delta) / (1 - Fraction(q.delta)))
        law = replace(law, spike=spike, spike_width=law.width)
    return Attempt(
        law,
        law_cost(law, q.loss),
        bound,
        (),
        law.cells_per_shift,
        True,
        0.0,
        (0, 0),
        0,
        climb=(periods, level),
    )


def _aligned(q: Question, n: int, gap: float) -> int:
    """The next lattice after n that has a point where a staircase falls: it proves far more than its neighbours.

    As long as it is small, and ladders have been tried; else 0.
    """
    if not (q.laddered and q.delta > 0 and gap > q.gap):
        return 0
    step = first_step(q.epsilon, q.loss)
    least = math.ceil(math.sqrt(_LATTICE_ERROR / q.gap))
    found = round(max(round(n * step) + 1, least) / step)
    return found if found <= _MOST_ALIGNED else 0


def _on_ladders(question: Question, best: Attempt, deadline: Deadline) -> Attempt:
    """Improve law and bound on ladders of narrow and wide cells in turn, until both are close."""
    q = question
    more = _FINENESS if deadline.finite else _FINENESS[:_QUICK]
    for fineness in more[:1] if _aligned(q, 0, 1.0) else more:
        value, law = best.value, best.law
        if q.delta > 0 and (other := falling_law(q, 4 * fineness, deadline)) is not None:
            value, law = min((value, law), (law_cost(other, q.loss), other), key=lambda found: found[0])
        spread = best_spread(q, fineness, float(value) * (1 - 0.95 * q.gap), deadline)
        bound = Fraction(0)
        if spread is not None:
            bound = spread_bound(spread, q.loss, sensitivity=q.sensitivity, epsilon=q.epsilon, delta=q.delta)
        found = Attempt(law, value, bound, (), law.cells_per_shift, True, 0.0, (0, 0), 0, spread)
        best = best.better(found)
        if best.gap <= q.gap or deadline.passed:
            break
    return best


def _attempt(question: Question, n: int, window: float, deadline: Deadline, best: Attempt | None) -> Attempt:
    """Solve the lower and the upper program on one lattice; return `best`, if any, where time is up on the way."""
    q = question
    side = max(math.ceil(window * n), n + 1)
    if 2 * side > _MOST_CELLS:
        raise SolverError(
            f"epsilon = {q.epsilon:g} needs a lattice of {2 * side} cells, more than {_MOST_CELLS}; "
            "Laplace noise is all but optimal there",
            solver="highs",
            status="too large",
        )
    width = Fraction(q.sensitivity) / n
    if q.loss.function is not None:
        check_loss(q.loss, float(width) * np.arange(-side - n - 1, side + n + 2))
        if q.programmed == 0:  # say so at once if no tails of pure noise can carry this loss
            tail_costs(q.loss, 2 * np.arange(-n, n) + 1, width / 2, n, outward_decay(q.epsilon))
    lower = lower_costs(q.loss, -side - n - 1, side + n + 1, width)
    inner = lower[n + 1 : -n - 1]
    mirrored = inner.numerators == inner.numerators[::-1]
    line = _line(2 * side + 1, n, mirrored, tailed=True)
    cost, scale = _priced(line, inner, tail=float(min(lower.floats()[[n, -n - 1]])))
    program = LatticeProgram(line, cost, epsilon=q.epsilon, delta=q.programmed, deadline=deadline)
    program.solve(max(2e-4 * q.programmed, 2e-9))
    if deadline.passed and best is not None:
        return best
    tail = program.tail
    multipliers = tuple(replace(m, psi=m.psi * scale, total=m.total * scale) for m in program.multipliers())
    bound = weak_duality(lower, multipliers, shift=n, epsilon=q.epsilon, delta=q.delta, mirrored=mirrored)
    if q.loss.function is None:  # lattice costs of t² may be negative, the loss is not
        bound = max(bound, Fraction(0))
    if best is not None and bound >= best.value * Fraction(1 - q.gap):  # no better law is asked for
        proof = replace(best, bound=bound, multipliers=multipliers, cells=n, mirrored=mirrored, spread=None)
        return replace(proof, climb=None, tail=tail, size=program.program.shape[::-1])
    upper, masses = (_upper if q.programmed > 0 else _pure_upper)(q, n, side, program, deadline)
    if deadline.passed and best is not None:
        return best
    law = _repaired(q, n, upper, masses)
    size = max(program.program.shape, upper.program.shape)[::-1]
    iterations = program.program.iterations + (0 if upper is program else upper.program.iterations)
    return Attempt(law, law_cost(law, q.loss), bound, multipliers, n, mirrored, tail, size, iterations)


def _upper(
    q: Question, n: int, side: int, program: LatticeProgram, deadline: Deadline
) -> tuple[LatticeProgram, Array]:
    """Price the cells from above and solve; return the program and the masses of all cells, if there are any yet."""
    half = q.grid == "edge"
    count = 2 * side if half else 2 * side + 1
    unit, middles = Fraction(_width(q, n)) / 2, 2 * np.arange(count) + 1 - count
    # On the edge grid there is no spike; at the price of the dearest cell it never pays.
    spike = None if half else average_costs(q.loss, middles[:1] * 0, unit / _SPIKE).floats()[0]
    line = _line(count, n, program.line.mirrored, half=half) if half else program.line
    cost, _ = _priced(line, average_costs(q.loss, middles, unit), spike=spike)
    if half:
        program = LatticeProgram(line, cost, epsilon=q.epsilon, delta=q.programmed, deadline=deadline)
    else:
        program.reprice(cost)
    program.solve(max(1e-6 * q.programmed, 2e-9))
    return program, np.zeros(count) if program.x is None else program.x[line.owner]


def _pure_upper(
    q: Question, n: int, side: int, program: LatticeProgram, deadline: Deadline
) -> tuple[LatticeProgram, Array]:
    """The same for δ = 0, where tails are geometric; before any solution, masses that fall by e^{-ε}."""
    half = q.grid == "edge"
    decay, side = outward_decay(q.epsilon), min(side, 3 * n + 1)
    count = 2 * side if half else 2 * side + 1
    unit, middles = Fraction(_width(q, n)) / 2, 2 * np.arange(count) + 1 - count
    plain = _line(count, n, program.line.mirrored, half=half)
    ends, r = (plain.owner[:n], plain.owner[-n:]), float(decay)
    # One repeated period on each side is on the line; masses and costs include the infinite tails.
    mass = plain.mass.copy()
    cost, scale = _priced(plain, average_costs(q.loss, middles, unit))
    for owners, costs in zip(ends, tail_costs(q.loss, middles, unit, n, decay)):
        np.add.at(mass, owners, r / (1 - r))
        np.add.at(cost, owners, costs.floats() / scale)
    factor = np.concatenate([np.full(n, r), np.ones(count), np.full(n, r)])
    line = replace(plain, owner=np.concatenate([ends[0], plain.owner, ends[1]]), factor=factor, mass=mass)
    program = LatticeProgram(line, cost, epsilon=q.epsilon, delta=0.0, deadline=deadline)
    program.solve(2e-9)
    falling = np.exp(-q.epsilon * np.abs(np.arange(count) - (count - 1) / 2) / n)
    return program, falling if program.x is None else program.x[plain.owner]


def _repaired(q: Question, n: int, program: LatticeProgram, masses: Array) -> CellNoise:
    """Make a law that is private exactly of the masses a program found."""
    width = _width(q, n)
    if q.programmed == 0:
        return raised_into_privacy(masses, epsilon=q.epsilon, width=width, cells_per_shift=n)
    return mixed_into_privacy(
        masses,
        0.0 if program.x is None else float(program.x[-1]),
        epsilon=q.epsilon,
        delta=q.programmed,
        half=q.grid == "edge",
        width=width,
        cells_per_shift=n,
        spike_width=width / _SPIKE,
    )


def _width(q: Question, n: int) -> float:
    return round_width(Fraction(q.sensitivity) / n)


def _line(count: int, n: int, mirrored: bool, *, half: bool = False, tailed: bool = False) -> Line:
    owner = np.arange(count)
    if mirrored:
        position = owner - count // 2
        owner = np.where(position >= 0, position, -1 - position) if half else np.abs(position)
    return Line(owner, np.ones(count), np.bincount(owner).astype(float), n, mirrored, tailed)


def _priced(
    line: Line, costs: ExactCosts, *, tail: float = 0.0, spike: float | None = None
) -> tuple[Array, float]:
    """Costs of the program's unknowns, scaled to order one, and the scale."""
    values = costs.floats()
    scale = max(float(np.median(np.abs(values))), 1e-300)
    cells = np.bincount(line.owner, weights=values)
    tails = line.masses[len(line.mass) : -1] * tail
    dear = values.max() if spike is None else spike
    return np.concatenate([cells, tails, [dear]]) / scale, scale
