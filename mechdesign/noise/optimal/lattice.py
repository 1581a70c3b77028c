"""One lattice of the optimal-noise problem.

The lower program (lattice costs, free tails) is solved and a bound proved from its multipliers; then the
same cells are priced from above, and that answer is repaired into a private law.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from mechdesign.errors import SolverError
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.attempt import Attempt, Proof
from mechdesign.noise.optimal.costs import (
    ExactCosts,
    average_costs,
    check_loss,
    law_cost,
    lower_costs,
    tail_costs,
)
from mechdesign.noise.optimal.lower_bound import weak_duality
from mechdesign.noise.optimal.program import LatticeProgram, Line
from mechdesign.noise.optimal.question import Question
from mechdesign.noise.optimal.repair import (
    mixed_into_privacy,
    outward_decay,
    raised_into_privacy,
    round_width,
)
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["MOST_CELLS", "attempt", "lattice_line", "lower_program", "priced", "repaired", "upper_program"]

MOST_CELLS = 200_000


def attempt(question: Question, n: int, window: float, deadline: Deadline, best: Attempt | None) -> Attempt:
    """Solve the lower and the upper program on one lattice; return `best`, if any, where time is up on the way."""
    q = question
    side = max(math.ceil(window * n), n + 1)
    if 2 * side > MOST_CELLS:
        raise SolverError(
            f"epsilon = {q.epsilon:g} needs a lattice of {2 * side} cells, more than {MOST_CELLS}; "
            "Laplace noise is all but optimal there",
            solver="highs",
            status="too large",
        )
    width = Fraction(q.sensitivity) / n
    if q.loss.function is not None:
        check_loss(q.loss, float(width) * np.arange(-side - n - 1, side + n + 2))
        if q.programmed == 0:  # say so at once if no tails of pure noise can carry this loss
            tail_costs(q.loss, 2 * np.arange(-n, n) + 1, width / 2, n, outward_decay(q.epsilon))
    program, proof = lower_program(q, n, side, deadline)
    if best is not None and (deadline.passed or proof.bound >= best.value * Fraction(1 - q.gap)):
        # no better law is asked for, or there is no time for one
        return replace(best.with_proof(proof), tail=program.tail, size=program.program.shape[::-1])
    tail = program.tail
    upper, masses = (upper_program if q.programmed > 0 else _pure_upper)(q, n, side, program, deadline)
    if deadline.passed and best is not None:
        return best.with_proof(proof)
    law = repaired(q, n, upper, masses)
    size = max(program.program.shape, upper.program.shape)[::-1]
    iterations = program.program.iterations + (0 if upper is program else upper.program.iterations)
    return Attempt(law, law_cost(law, q.loss), proof, tail, size, iterations)


def lower_program(q: Question, n: int, side: int, deadline: Deadline) -> tuple[LatticeProgram, Proof]:
    """Solve the lower program on `side` cells on each side of 0, and prove what its multipliers say."""
    lower = lower_costs(q.loss, -side - n - 1, side + n + 1, Fraction(q.sensitivity) / n)
    inner = lower[n + 1 : -n - 1]
    mirrored = inner.numerators == inner.numerators[::-1]
    line = lattice_line(2 * side + 1, n, mirrored, tailed=True)
    cost, scale = priced(line, inner, tail=float(min(lower.floats()[[n, -n - 1]])))
    program = LatticeProgram(line, cost, epsilon=q.epsilon, delta=q.programmed, deadline=deadline)
    program.solve(max(2e-4 * q.programmed, 2e-9))
    multipliers = tuple(replace(m, psi=m.psi * scale, total=m.total * scale) for m in program.multipliers())
    bound = weak_duality(lower, multipliers, shift=n, epsilon=q.epsilon, delta=q.delta, mirrored=mirrored)
    if q.loss.function is None:  # lattice costs of t² may be negative, the loss is not
        bound = max(bound, Fraction(0))
    return program, Proof(bound, n, multipliers, mirrored)


def upper_program(
    q: Question, n: int, side: int, program: LatticeProgram, deadline: Deadline
) -> tuple[LatticeProgram, Array]:
    """Price the cells from above and solve; return the program and the masses of all cells, if there are any yet."""
    half = q.grid == "edge"
    count = 2 * side if half else 2 * side + 1
    unit, middles = Fraction(_width(q, n)) / 2, 2 * np.arange(count) + 1 - count
    # On the edge grid there is no spike; at the price of the dearest cell it never pays.
    spike = None if half else average_costs(q.loss, middles[:1] * 0, unit / q.spike_share).floats()[0]
    line = lattice_line(count, n, program.line.mirrored, half=half) if half else program.line
    cost, _ = priced(line, average_costs(q.loss, middles, unit), spike=spike)
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
    plain = lattice_line(count, n, program.line.mirrored, half=half)
    ends, r = (plain.owner[:n], plain.owner[-n:]), float(decay)
    # One repeated period on each side is on the line; masses and costs include the infinite tails.
    mass = plain.mass.copy()
    cost, scale = priced(plain, average_costs(q.loss, middles, unit))
    for owners, costs in zip(ends, tail_costs(q.loss, middles, unit, n, decay)):
        np.add.at(mass, owners, r / (1 - r))
        np.add.at(cost, owners, costs.floats() / scale)
    factor = np.concatenate([np.full(n, r), np.ones(count), np.full(n, r)])
    line = replace(plain, owner=np.concatenate([ends[0], plain.owner, ends[1]]), factor=factor, mass=mass)
    program = LatticeProgram(line, cost, epsilon=q.epsilon, delta=0.0, deadline=deadline)
    program.solve(2e-9)
    falling = np.exp(-q.epsilon * np.abs(np.arange(count) - (count - 1) / 2) / n)
    return program, falling if program.x is None else program.x[plain.owner]


def repaired(q: Question, n: int, program: LatticeProgram, masses: Array) -> CellNoise:
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
        spike_width=width / q.spike_share,
    )


def _width(q: Question, n: int) -> float:
    return round_width(Fraction(q.sensitivity) / n)


def lattice_line(count: int, n: int, mirrored: bool, *, half: bool = False, tailed: bool = False) -> Line:
    owner = np.arange(count)
    if mirrored:
        position = owner - count // 2
        owner = np.where(position >= 0, position, -1 - position) if half else np.abs(position)
    return Line(owner, np.ones(count), np.bincount(owner).astype(float), n, mirrored, tailed)


def priced(
    line: Line, costs: ExactCosts, *, tail: float = 0.0, spike: float | None = None
) -> tuple[Array, float]:
    """Costs of the program's unknowns, scaled to order one, and the scale."""
    values = costs.floats()
    scale = max(float(np.median(np.abs(values))), 1e-300)
    cells = np.bincount(line.owner, weights=values)
    tails = line.masses[len(line.mass) : -1] * tail
    dear = values.max() if spike is None else spike
    return np.concatenate([cells, tails, [dear]]) / scale, scale
