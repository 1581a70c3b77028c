"""Laws and bounds on ladders of cells: for large ε, where a lattice of equal cells cannot see the first step of a staircase."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from mechdesign.errors import SolverError
from mechdesign.noise.cell_noise import MOST_CELLS, MOST_SPANS, CellNoise
from mechdesign.noise.laws.staircase import staircase_gamma
from mechdesign.noise.optimal.question import Question
from mechdesign.noise.optimal.repair import outward_decay, round_width
from mechdesign.noise.optimal.spline import Spread
from mechdesign.noise.optimal.spread import SpreadProgram
from mechdesign.noise.optimal.steps import Ladder
from mechdesign.noise.optimal.unimodal import cell_costs, falling_masses
from mechdesign.problem.losses import Loss
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices

__all__ = ["best_spread", "falling_law", "first_step", "pure_staircase"]

_BITS = 100  # of the masses behind the point
_TRIES = 6
_STEPS = 2**14  # cells of a staircase up to its step: its cost is off by their square


def first_step(epsilon: float, loss: Loss) -> float:
    """Where the best staircase falls first, in sensitivities."""
    return staircase_gamma(epsilon, "squared" if loss.squared else "absolute")


def _binary(length: int) -> list[int]:
    """Powers of two that sum to a length, the largest first."""
    return [1 << k for k in range(length.bit_length() - 1, -1, -1) if length >> k & 1]


def symmetric_law(weights: list[int], spans: list[int], width: float, cells: int, **shape: Any) -> CellNoise:
    """The even law whose right half this is."""
    both = [*spans[::-1], *spans]
    return CellNoise(
        weights=(*weights[::-1], *weights),
        width=width,
        start=-sum(spans) * width,
        cells_per_shift=cells,
        spans=tuple(both),
        **shape,
    )


def _levels(heights: Array, spans: Indices) -> tuple[list[float], list[list[int]]]:
    """Falling heights, those that rounding alone tells apart made one, and the spans of each."""
    found: list[float] = []
    parts: list[list[int]] = []
    for height, span in zip(np.minimum.accumulate(heights).tolist(), spans.tolist()):
        if found and height >= found[-1] * (1 - 1e-11):
            parts[-1].append(span)
        else:
            found.append(height)
            parts.append([span])
    return found, [min(part, _binary(sum(part)), key=len) for part in parts]


def pure_staircase(epsilon: float, sensitivity: float, step: float) -> CellNoise:
    """Return the staircase with its step on a lattice, as fine as a law may be where the step is short; private exactly."""
    n = min(1 << max(0, math.ceil(math.log2(_STEPS / step))), MOST_CELLS // 4)
    g = max(1, round(step * n))
    decay = outward_decay(epsilon)
    spans: list[int] = []
    weights: list[int] = []
    for k in range(2):  # the second period repeats
        for length, power in ((g, k), (n - g, k + 1)):
            height = decay.numerator**power * decay.denominator ** (2 - power)
            parts = _binary(length)
            spans += parts
            weights += [height * v for v in parts]
    width = round_width(Fraction(sensitivity) / n)
    return symmetric_law(weights, spans, width, n, decay=decay)


def falling_law(
    question: Question, fineness: int, deadline: Deadline, *, spike: float = 1.0
) -> CellNoise | None:
    """Return the best law that falls on both sides of 0, private exactly; None where none was found in time.

    Its spike is priced at so many cells.
    """
    q = question
    ladder = Ladder(first_step(q.epsilon, q.loss), fineness)
    support = math.log1p(math.expm1(q.epsilon) / (2 * q.delta)) / q.epsilon
    periods = math.ceil(support) + 1
    edges = ladder.edges(periods)
    n, spans = ladder.cells, np.diff(edges)
    if 2 * edges[-1] > MOST_CELLS:
        return None
    width, asked = round_width(Fraction(q.sensitivity) / n), q.delta
    for _ in range(_TRIES):
        try:
            found = falling_masses(
                ladder,
                periods,
                q.loss.in_units(q.sensitivity),
                epsilon=q.epsilon,
                delta=asked,
                spike=spike / n,
                deadline=deadline,
            )
        except SolverError:
            return None
        if found is None:
            return None
        heights, parts = _levels(found[0] / (2 * spans), spans)
        if 2 * sum(map(len, parts)) > MOST_SPANS:
            return None
        law = symmetric_law(
            [int(Fraction(h) * 2**_BITS) * v for h, part in zip(heights, parts) for v in part],
            [v for part in parts for v in part],
            width,
            n,
            spike=int(Fraction(found[1]) * 2**_BITS),
            spike_width=width,
        )
        excess = law.exact_delta(q.epsilon) - Fraction(q.delta)
        if excess <= 0:
            return law
        asked -= 1.1 * float(excess) + 1e-12 * q.delta
        if asked <= 0:
            return None
    return None


def best_spread(
    question: Question, fineness: int, enough: float, deadline: Deadline, *, spiked: bool = False
) -> Spread | None:
    """Return multipliers that prove `enough`, or what they can on a ladder; those of periods beyond the first step go with more shifts where ε is small."""
    q = question
    loss = q.loss.in_units(q.sensitivity)
    alone = Loss(absolute=1.0) if spiked and loss.absolute else loss  # where noise is next to 0, |t| decides
    ladder = Ladder(first_step(q.epsilon, alone), fineness)
    support = math.inf if not q.delta else math.log1p(math.expm1(q.epsilon) / (2 * q.delta)) / q.epsilon
    periods = math.ceil(min(support, 2 + math.ceil(7 / q.epsilon)))
    if spiked:  # the noise reaches no further than a sensitivity, what compares it does
        periods = max(periods, 2)
    program = SpreadProgram(
        ladder,
        periods,
        loss,
        epsilon=q.epsilon,
        delta=q.delta,
        wide=q.epsilon < 7.5,
        scale=2 * float(cell_costs(np.array([0.0, ladder.step]), loss)[0]),
        deadline=deadline,
        held=spiked,
    )
    return program.solve(enough)
