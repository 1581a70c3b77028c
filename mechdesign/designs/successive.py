r"""Successive bounds: OPTM for more than four bins, where a grid over bounds is exponential.

Start from any mechanism within the budget, put bounds :math:`o = (1-\eta) q, u = (1+\eta) q` around it, solve the
linear program, move there, repeat; shrink η when nothing improves. Every iterate is private, and the value
falls monotonically to a local optimum of the exact (bilinear) problem. Theorem 6 has a grid of its own: its three
bounds are searched directly.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign import solvers
from mechdesign.designs.bound_search import BoundPoint, solve_bounds
from mechdesign.designs.optm_model import OPTMProgram
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.mechanisms.quantizer import Quantizer
from mechdesign.mechanisms.selection import Selection, erm_family, rqm_family

__all__ = ["improve"]

Array = npt.NDArray[np.float64]


def improve(
    program: OPTMProgram, epsilon: float, start: Quantizer | None, solver: str | None, options: Any
) -> tuple[BoundPoint | None, int]:
    """Return the best point found and the number of linear programs solved."""
    if program.constraints == "theorem6":
        return _theorem6(program, epsilon, solver, options)
    first = _start(program, epsilon, start)
    if first is None:
        return None, 0
    q = program.flatten(first.left, first.right)
    best: BoundPoint | None = None
    value, eta, count = np.inf, 0.5, 0
    while eta > 1e-4 and count < 60:
        low, high = (1 - eta) * q, np.minimum((1 + eta) * q, 1.0)
        point = solve_bounds(program, epsilon, low[None], high[None], solver, options)
        count += 1
        if point is not None and point.objective < value - 1e-7 * abs(point.objective):
            value, best, q = point.objective, point, np.maximum(point.q, 0.0)
        else:
            eta *= 0.4
    return best, count


def _loss(program: OPTMProgram, family: Selection) -> float:
    return Quantizer.of_selection(family, program.input_range).privacy_loss()


def _start(program: OPTMProgram, epsilon: float, start: Quantizer | None) -> Selection | None:
    """A selection within the budget: the caller's, or the most accurate of a few RQM and ERM members."""
    bins = program.bins
    if start is not None:
        if start.selection is None or not np.array_equal(start.bins, bins):
            raise DesignError.of(
                "start", start, "must be a selection mechanism (RQM, ERM, OPTM) with the design's bins"
            )
        if start.privacy_loss() > epsilon:
            raise DesignError.of(
                "start", start, f"its loss {start.privacy_loss():.6g} exceeds the budget {epsilon:g}"
            )
        return start.selection
    m = len(bins)
    candidates = [(rqm_family(m, q), rqm_family(m, q)) for q in np.linspace(0.02, 0.9, 45)]
    candidates += [(erm_family(bins, g), erm_family(-bins[::-1], g)) for g in np.geomspace(1e-3, 60, 40)]
    best, least = None, np.inf
    for left, right in candidates:
        family = Selection(bins, left, right)
        mechanism = Quantizer.of_selection(family, program.input_range)
        if mechanism.privacy_loss() <= epsilon:
            loss = mechanism.expected_loss(program.prior, program.loss)
            if loss < least:
                best, least = family, loss
    return best


def _theorem6(
    program: OPTMProgram, epsilon: float, solver: str | None, options: Any
) -> tuple[BoundPoint | None, int]:
    """Grid over the three bounds, refined twice around the best; o must make e^ε w large, u must keep z small."""
    bounded = program.bounded
    uppers = {
        f.bound
        for k, f in enumerate(program.structure.pairs.forms)
        if k in program.structure.pairs.upper and f.bound >= 0
    }
    axes = [
        np.array([0.05, 0.1, 0.2, 0.4, 0.7, 1.0]) if k in uppers else np.geomspace(1e-3, 0.3, 7)
        for k in bounded
    ]
    best, count = None, 0
    for _ in range(3):
        for values in itertools.product(*axes):
            low, high = np.zeros(program.width), np.ones(program.width)
            for k, v in zip(bounded, values):
                (high if k in uppers else low)[k] = v
            count += 1
            point = _try(program, epsilon, low, high, solver, options)
            if point is not None and (best is None or point.objective < best.objective):
                best, chosen = point, values
        if best is None:
            break
        axes = [np.clip(v * np.array([0.7, 0.85, 1.0, 1.2, 1.45]), 0, 1) for v in chosen]
    return best, count


def _try(
    program: OPTMProgram, epsilon: float, low: Array, high: Array, solver: str | None, options: Any
) -> BoundPoint | None:
    try:
        solution = solvers.solve(program.model(epsilon, low, high), solver or "highs", **options)
    except InfeasibleError:
        return None
    return BoundPoint(solution.primal["q"], solution.value, low, high, solution)
