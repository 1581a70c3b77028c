"""One lattice of the optimal-noise problem, and the search over lattices.

An attempt solves the lower program (lattice costs, free tails), proves a bound from its multipliers, prices the same
cells from above and repairs that answer into a private law. The search makes lattices finer and wider until law and
bound are as close as asked.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from mechdesign.errors import SolverError
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.attempt import Attempt, Proof
from mechdesign.noise.optimal.climb import best_climb
from mechdesign.noise.optimal.costs import (
    ExactCosts,
    average_costs,
    check_loss,
    law_cost,
    lower_costs,
    tail_costs,
)
from mechdesign.noise.optimal.grouped import group_size, grouped
from mechdesign.noise.optimal.ladders import best_spread, falling_law, first_step, pure_staircase
from mechdesign.noise.optimal.lower_bound import weak_duality
from mechdesign.noise.optimal.named import named_laws
from mechdesign.noise.optimal.program import LatticeProgram, Line
from mechdesign.noise.optimal.question import Question
from mechdesign.noise.optimal.repair import (
    mixed_into_privacy,
    outward_decay,
    raised_into_privacy,
    round_width,
)
from mechdesign.noise.optimal.spline import plain_spread, spread_bound
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["refine"]

_MOST_CELLS = 200_000
_CELLS_PER_SECOND = 180_000  # of truncated Laplace noise, on each side
_ATTEMPTS = 14
_FINENESS = (4, 6, 8, 12)
_MOST_ALIGNED = 140
_LONGEST, _LONGEST_EVER = 400.0, 4000.0
"""Sensitivities on each side from which bounds come from groups alone, with a time limit and without."""
_GROUPED = (0.03, 64.0)
"""For a gap of 1%: largest ε of a group, and least number of groups on each side."""
_WIDEST = 3.0  # in first windows
_GRACE = 0.5  # seconds
_CLIMBED = (0.02, 0.004)
"""The same ε for a closed form, and where it need not be smaller."""
_LATTICE_ERROR = 0.027  # relative, of a lattice with one cell per step; it falls with their square
_QUICK = 2
"""Of these ladders so many are tried without a time limit: seconds; each further one takes a minute and more."""


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
    start = _known(question, deadline) if question.held else None
    if start is not None and (start.gap <= question.gap or (deadline.passed and question.delta == 0)):
        return start
    if start is not None and question.delta > 0:
        start = _in_groups(question, start, deadline)
        longest = _LONGEST if deadline.finite else _LONGEST_EVER
        if start.gap <= question.gap or deadline.passed or question.support > longest:
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


def _known(q: Question, deadline: Deadline) -> Attempt:
    """The best law that needs no program, beside the staircase's bound."""
    best = _staircase(q, deadline)
    if best.bound == 0:
        spread = plain_spread(q.loss, q.sensitivity, q.epsilon)
        bound = spread_bound(spread, q.loss, sensitivity=q.sensitivity, epsilon=q.epsilon, delta=q.delta)
        best = best.with_proof(Proof(bound, 1, spread=spread))
    if q.delta > 0 and best.gap > min(q.gap, 1e-3):
        most = round(min(4 * _MOST_CELLS, _CELLS_PER_SECOND * deadline.left))
        for value, law in named_laws(q, most):
            best = best.with_law(value, law)
    return best


def _in_groups(q: Question, start: Attempt, deadline: Deadline) -> Attempt:
    """Bounds from lattices with one point per group of sensitivities, in ever smaller groups; `start` where there are none."""
    best, wide = start, 1.0
    size = group_size(q.epsilon, _GROUPED[0], q.support, _GROUPED[1])
    # The first takes a tenth of a second; laws may have taken all there was.
    time = Deadline(max(deadline.left, min(_GRACE, deadline.seconds))) if deadline.finite else deadline
    while size > 1 or best is not start:
        g = grouped(q, size)
        if g.programmed == 0 or g.support > _LONGEST:
            break
        program, proof = _lower(g, 1, max(math.ceil(wide * g.first_window()), 2), time)
        best = best.with_proof(replace(proof, grouped=size))
        if best.gap <= q.gap or time.passed or size == 1:
            break
        # Mass that is hidden in the tails asks for a wider window, the rest for smaller groups.
        wider = program.tail > 1e-7 and wide < _WIDEST
        wide, size = (1.5 * wide, size) if wider else (wide, size // 2)
    return best


def _staircase(q: Question, deadline: Deadline) -> Attempt:
    """The staircase, and the bound that makes it the best of all pure noise, less what δ takes."""
    size, rough = 1, math.sqrt(q.gap / 0.01)
    if q.delta > 0:
        size = group_size(q.epsilon, max(_CLIMBED[0] * rough, _CLIMBED[1]))
    g = grouped(q, size)
    periods, level, bound, step = best_climb(
        q.loss, g.sensitivity, epsilon=g.epsilon, delta=g.delta, gap=q.gap, deadline=deadline
    )
    step = step if size == 1 else math.nan  # a group's
    law = pure_staircase(q.epsilon, q.sensitivity, step if step > 0 else first_step(q.epsilon, q.loss))
    if 20 * q.delta > q.gap:  # every now and then the exact answer, almost
        spike = math.floor(law.total * Fraction(q.delta) / (1 - Fraction(q.delta)))
        law = replace(law, spike=spike, spike_width=law.width)
    proof = Proof(bound, law.cells_per_shift if level else 1, climb=(periods, level), grouped=size)
    return Attempt(law, law_cost(law, q.loss), proof)


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
        if q.delta > 0 and (law := falling_law(q, 4 * fineness, deadline)) is not None:
            best = best.with_law(law_cost(law, q.loss), law)
        spread = best_spread(q, fineness, float(best.value) * (1 - 0.95 * q.gap), deadline)
        if spread is not None:
            bound = spread_bound(spread, q.loss, sensitivity=q.sensitivity, epsilon=q.epsilon, delta=q.delta)
            best = best.with_proof(Proof(bound, best.law.cells_per_shift, spread=spread))
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
    program, proof = _lower(q, n, side, deadline)
    if best is not None and (deadline.passed or proof.bound >= best.value * Fraction(1 - q.gap)):
        # no better law is asked for, or there is no time for one
        return replace(best.with_proof(proof), tail=program.tail, size=program.program.shape[::-1])
    tail = program.tail
    upper, masses = (_upper if q.programmed > 0 else _pure_upper)(q, n, side, program, deadline)
    if deadline.passed and best is not None:
        return best.with_proof(proof)
    law = _repaired(q, n, upper, masses)
    size = max(program.program.shape, upper.program.shape)[::-1]
    iterations = program.program.iterations + (0 if upper is program else upper.program.iterations)
    return Attempt(law, law_cost(law, q.loss), proof, tail, size, iterations)


def _lower(q: Question, n: int, side: int, deadline: Deadline) -> tuple[LatticeProgram, Proof]:
    """Solve the lower program on `side` cells on each side of 0, and prove what its multipliers say."""
    lower = lower_costs(q.loss, -side - n - 1, side + n + 1, Fraction(q.sensitivity) / n)
    inner = lower[n + 1 : -n - 1]
    mirrored = inner.numerators == inner.numerators[::-1]
    line = _line(2 * side + 1, n, mirrored, tailed=True)
    cost, scale = _priced(line, inner, tail=float(min(lower.floats()[[n, -n - 1]])))
    program = LatticeProgram(line, cost, epsilon=q.epsilon, delta=q.programmed, deadline=deadline)
    program.solve(max(2e-4 * q.programmed, 2e-9))
    multipliers = tuple(replace(m, psi=m.psi * scale, total=m.total * scale) for m in program.multipliers())
    bound = weak_duality(lower, multipliers, shift=n, epsilon=q.epsilon, delta=q.delta, mirrored=mirrored)
    if q.loss.function is None:  # lattice costs of t² may be negative, the loss is not
        bound = max(bound, Fraction(0))
    return program, Proof(bound, n, multipliers, mirrored)


def _upper(
    q: Question, n: int, side: int, program: LatticeProgram, deadline: Deadline
) -> tuple[LatticeProgram, Array]:
    """Price the cells from above and solve; return the program and the masses of all cells, if there are any yet."""
    half = q.grid == "edge"
    count = 2 * side if half else 2 * side + 1
    unit, middles = Fraction(_width(q, n)) / 2, 2 * np.arange(count) + 1 - count
    # On the edge grid there is no spike; at the price of the dearest cell it never pays.
    spike = None if half else average_costs(q.loss, middles[:1] * 0, unit / q.spike_share).floats()[0]
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
        spike_width=width / q.spike_share,
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
