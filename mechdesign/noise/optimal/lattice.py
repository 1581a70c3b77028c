"""One lattice of the optimal-noise problem, and the search over lattices.

An attempt solves the lower program (lattice costs, free tails), proves a bound from its multipliers, prices the same
cells from above and repairs that answer into a private law. The search makes lattices finer and wider until law and
bound are as close as asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import pandas as pd

from mechdesign.errors import SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.costs import (
    ExactCosts,
    average_costs,
    check_loss,
    law_cost,
    lower_costs,
    tail_costs,
)
from mechdesign.noise.optimal.lower_bound import Multiplier, weak_duality
from mechdesign.noise.optimal.program import LatticeProgram, Line
from mechdesign.noise.optimal.repair import (
    mixed_into_privacy,
    outward_decay,
    raised_into_privacy,
    round_width,
)
from mechdesign.problem.losses import Loss
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Status

__all__ = ["Attempt", "Question", "refine"]

_SPIKE = 64
"""The spike is this many times narrower than a cell: a density, at nearly the cost of an atom."""
_SMALLEST_DELTA = 1e-7
"""Below, the linear programs run with δ = 0: HiGHS meets constraints to 1e-9 only."""
_MOST_CELLS = 200_000
_ATTEMPTS = 14


@dataclass(frozen=True)
class Question:
    """The problem in numbers: what is asked of the noise, and on which kind of lattice.

    Parameters
    ----------
    loss : Loss
    sensitivity, epsilon, delta : float
    gap : float
        Relative distance of law and bound to stop at.
    cells : int or None
        Cells per sensitivity to stay with, whatever the gap; the window alone grows then.
    grid : {"centred", "edge"}
    """

    loss: Loss
    sensitivity: float
    epsilon: float
    delta: float
    gap: float
    cells: int | None
    grid: str

    @cached_property
    def programmed(self) -> float:
        """The δ of the linear programs: 0 where δ is below the solver's reach, or cannot pay.

        Truncated Laplace noise saves the share log(1+r)/r of the Laplace cost. Where that is a small part of the
        gap asked for, pure noise is as good; its law and its multipliers are judged at the true δ anyway.
        """
        if self.delta < _SMALLEST_DELTA:
            return 0.0
        r = math.expm1(self.epsilon) / (2 * self.delta)
        return self.delta if math.log1p(r) / r > self.gap / 20 else 0.0

    def first_window(self) -> float:
        """Sensitivities on each side: past the support of truncated Laplace noise."""
        if self.programmed == 0:
            return 2.0 + 9.0 / self.epsilon
        support = math.log1p(math.expm1(self.epsilon) / (2 * self.programmed)) / self.epsilon
        return 1.0 + max(support, min(1.6 * support, 2.0 + 12.0 / self.epsilon))

    def first_cells(self) -> int:
        """A guess from staircase-like noise: density at 0 over cost, both O(1) factors off."""
        e = self.epsilon
        absolute = math.exp(e / 2) / math.expm1(e) if e < 100 else math.exp(-e / 2)
        if self.delta:
            absolute = min(absolute, 1 / (4 * self.delta))
        return max(1, min(24, math.ceil(0.3 / (absolute * math.sqrt(self.gap / 0.01)))))


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

    @property
    def gap(self) -> float:
        """Relative distance of law and bound."""
        return float(1 - self.bound / self.value)

    def report(self, status: Status, deadline: Deadline) -> SolveReport:
        """The solver's account."""
        return SolveReport(
            solver="highs",
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
            law, bound=proof.bound, multipliers=proof.multipliers, cells=proof.cells, mirrored=proof.mirrored
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
    n = cells or min(question.first_cells(), max_cells)
    best: Attempt | None = None
    for count in range(1, _ATTEMPTS + 1):
        found = _attempt(question, n, window, deadline, best)
        best = found if best is None else best.better(found)
        if best.gap <= question.gap or deadline.passed:
            break
        # Mass that the relaxation hides in the tails asks for a wider window, the rest for finer cells.
        wider = found.tail > 1e-7 and (cells is not None or count < 12) and window < 1e4
        window *= 1.4 if wider else 1.0
        if cells is None and n < max_cells:
            if found.tail <= 1e-3:
                finer = min(3.0, math.sqrt(best.gap / (0.85 * question.gap)))
                n = min(max_cells, max(n + 1, math.ceil(n * finer)))
        elif cells is None or not wider:
            break
    assert best is not None
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
