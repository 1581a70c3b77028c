r"""δ near 1: exact answers most of the time, and one problem that is the same for all such δ.

Beside an atom at 0, which every change exposes, noise of density q is (ε, δ)-DP if and only if

.. math:: \int \min\big(q(t),\; e^\varepsilon q(t + d)\big)\,dt \ge 1 - \delta \qquad \text{for } |d| \le \Delta :

nothing but the size of q depends on δ. So the least cost is (1 - δ) c from some δ on, with one c for each ε and loss.
*Above*: a law at a smaller δ, diluted with exact answers, is private at this one. *Below*: a bound λ - δC of multipliers with
charge C holds its relative distance up to δ = 1 where λ = C, and not else: whatever is sent from 0 is sent at its cap, and
nothing is received there. At squared loss the same has to hold of a neighbourhood of 0. Multipliers of a linear program are
brought to that form, with a margin elsewhere for what this changes; the proof is that of `mechdesign.noise.optimal.spline`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from mechdesign.errors import SolverError
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.attempt import Attempt, Proof
from mechdesign.noise.optimal.costs import law_cost
from mechdesign.noise.optimal.ladders import best_spread, falling_law
from mechdesign.noise.optimal.lattice import lattice_line, repaired, upper_program
from mechdesign.noise.optimal.program import LatticeProgram
from mechdesign.noise.optimal.question import Question
from mechdesign.noise.optimal.repair import round_width
from mechdesign.noise.optimal.spline import Spread, spread_bound
from mechdesign.solvers.deadline import Deadline

__all__ = ["LADDERED", "LARGE", "diluted", "spiked"]

LARGE = 0.9
"""δ at which the programs are solved, well past where atoms begin to pay."""
_CELLS = (8, 16, 32, 64, 128, 256)  # per sensitivity
_WINDOW = 2  # sensitivities on each side: there is no mass beyond
_MARGIN = 1e-6  # of the median cost
LADDERED = 7.0  # ε from which ladders take the place of lattices
_FINENESS = (2, 4, 6, 8)


def diluted(law: CellNoise, question: Question) -> CellNoise:
    """Mix a law with exact answers until all of δ is spent; the atom is as narrow as costs next to nothing.

    Examples
    --------
    >>> from mechdesign.problem.losses import Loss
    >>> q = Question(Loss.of("absolute"), 1.0, 1.0, 0.99, gap=0.01, cells=None, grid="centred")
    >>> law = diluted(CellNoise(weights=(1, 3, 3, 1), width=0.5, start=-1.0, cells_per_shift=2), q)
    >>> 0.98 < law.exact_delta(1.0) <= 0.99
    True
    """
    q = question
    total = math.floor(
        law.total * (1 - law.exact_delta(q.epsilon)) / (1 - Fraction(q.delta))
    )  # an integer law
    spike = law.spike + max(0, total - math.ceil(law.total))
    narrow = round_width(Fraction(q.sensitivity) / (64 * q.spike_share))
    return replace(law, spike=spike, spike_width=narrow) if spike else law


def _held(q: Question, n: int, deadline: Deadline) -> tuple[LatticeProgram, Spread | None]:
    """Solve the lower program on a lattice whose costs are 0 next to 0; bring its multipliers into the form λ = C."""
    loss, side = q.loss.in_units(q.sensitivity), _WINDOW * n
    x = np.arange(side + 2) / n
    cost = loss.absolute * x + loss.squared * (x**2 - 0.25 / n**2)
    cost[:2] = loss.absolute * x[:2]  # with a quarter beyond, the chords stay below the loss
    scale = float(np.median(cost))
    near = 1 if loss.absolute == 0 else 0
    cost[near + 1 :] -= _MARGIN * scale
    line = lattice_line(2 * side + 1, n, True, tailed=True)
    cells = np.append(cost[:1], 2 * cost[1:-1])
    prices = np.concatenate([cells, [2 * cost[-1], cost.max()]]) / scale
    program = LatticeProgram(line, prices, epsilon=q.epsilon, delta=q.delta, deadline=deadline)
    program.solve(1e-7)
    found = [m for m in program.multipliers() if m.shift > 2 * near]
    if not found:
        return program, None
    psi = np.array([m.psi for m in found]) * scale / 2
    for m, row in zip(found, psi):
        here = slice(side - near, side + near + 1)
        row[here] = row.max()
        row[here.start - m.shift : here.stop - m.shift] = 0.0
    kernels = np.array([[m.shift] * 3 for m in found], dtype=np.int64)
    return program, Spread(n, np.arange(-side - 1, side + 2), kernels, psi)


def spiked(question: Question, start: Attempt, deadline: Deadline, *, max_cells: int) -> Attempt:
    """Improve a law and a bound where δ is at least `LARGE`, an even polynomial loss: on lattices, at large ε on ladders."""
    q, best = question, start
    inner = replace(q, delta=LARGE)
    sizes = [n for n in _CELLS if n <= max(max_cells, _CELLS[0])]
    laddered = q.epsilon >= LADDERED
    if laddered and not q.laddered:  # narrower cells than a ladder has
        return start
    for size in _FINENESS if laddered else sizes:
        if best.gap <= q.gap or deadline.passed:
            break
        best = (_on_ladder if laddered else _on_lattice)(q, inner, size, best, deadline)
    return best


def _with_law(q: Question, best: Attempt, law: CellNoise) -> Attempt:
    law = diluted(law, q)
    return best.with_law(law_cost(law, q.loss), law)


def _with_spread(q: Question, best: Attempt, spread: Spread | None) -> Attempt:
    if spread is None:
        return best
    bound = spread_bound(spread, q.loss, sensitivity=q.sensitivity, epsilon=q.epsilon, delta=q.delta)
    return best.with_proof(Proof(bound, 1, spread=spread))


def _on_lattice(q: Question, inner: Question, n: int, best: Attempt, deadline: Deadline) -> Attempt:
    try:
        program, spread = _held(inner, n, deadline)
        best = _with_spread(q, best, spread)
        if deadline.passed:
            return best
        upper, masses = upper_program(inner, n, _WINDOW * n, program, deadline)
        return best if deadline.passed else _with_law(q, best, repaired(inner, n, upper, masses))
    except SolverError:  # what is held is private, and its bound proved
        return best


def _on_ladder(q: Question, inner: Question, fineness: int, best: Attempt, deadline: Deadline) -> Attempt:
    if (law := falling_law(inner, 8 * fineness, deadline, spike=1 / q.spike_share)) is not None:
        best = _with_law(q, best, law)
    return _with_spread(q, best, best_spread(inner, fineness, math.inf, deadline, spiked=True))
