"""The search for the optimal noise: closed forms first, then groups, ladders and lattices until law and bound are as close as asked."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from mechdesign.errors import SolverError
from mechdesign.noise.optimal.attempt import Attempt, Proof
from mechdesign.noise.optimal.climb import best_climb
from mechdesign.noise.optimal.costs import law_cost
from mechdesign.noise.optimal.grouped import group_size, grouped
from mechdesign.noise.optimal.ladders import best_spread, falling_law, first_step, pure_staircase
from mechdesign.noise.optimal.lattice import MOST_CELLS, attempt, lower_program
from mechdesign.noise.optimal.named import named_laws
from mechdesign.noise.optimal.question import Question
from mechdesign.noise.optimal.spiked import LADDERED, LARGE, spiked
from mechdesign.noise.optimal.spline import plain_spread, spread_bound
from mechdesign.solvers.deadline import Deadline

__all__ = ["refine"]

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
    if start is not None and question.delta >= LARGE:
        start = spiked(question, start, deadline, max_cells=max_cells)
        if start.gap <= question.gap or deadline.passed or question.epsilon < LADDERED:
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
        if best is not None and 2 * window * n > MOST_CELLS:  # more cells than a program can have
            break
        try:
            found = attempt(question, n, window, deadline, best)
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
        most = round(min(4 * MOST_CELLS, _CELLS_PER_SECOND * deadline.left))
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
        program, proof = lower_program(g, 1, max(math.ceil(wide * g.first_window()), 2), time)
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
    found = _climbed(q, size, deadline)
    # The larger the groups the looser the bound, by their square; where that may be all, they are made smaller.
    while size > 1 and q.gap < found.gap <= (q.epsilon * size) ** 2 and not deadline.passed:
        size = max(1, size // 4)
        finer = _climbed(q, size, deadline)
        if finer.bound <= found.bound:  # more periods than there may be
            break
        found = found.better(finer)
    return found


def _climbed(q: Question, size: int, deadline: Deadline) -> Attempt:
    """The same, for groups of so many sensitivities."""
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
