r"""Successive bounds: OPTM for more than four bins, where a grid over bounds is exponential.

Start from any mechanism within the budget, put bounds :math:`o = (1-\eta) q, u = (1+\eta) q` around it, solve the
linear program, move there, repeat; shrink η when nothing improves. Its objective is the exact (bilinear) loss
linearised at the current point. Every iterate is private, and the exact loss falls monotonically to a local
optimum of the bilinear problem. Theorem 6 has a grid of its own: its three
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
from mechdesign.solvers import Solution, Status

__all__ = ["improve"]

Array = npt.NDArray[np.float64]


def improve(
    program: OPTMProgram, epsilon: float, start: Quantizer | None, solver: str | None, options: Any
) -> tuple[BoundPoint | None, int]:
    """Return the best point found and the number of linear programs solved."""
    if program.constraints == "theorem6":
        return _theorem6(program, epsilon, solver, options)
    best, count = None, 0
    for first in _starts(program, epsilon, start):
        q = program.flatten(first.left, first.right)
        point, solved = _descend(program, epsilon, q, solver, options)
        count += solved
        if point is None and program.loss.polynomial:  # nothing around it: it stands for itself
            value = float(program.exact_loss(q[None])[0])
            kept = Solution(
                Status.OPTIMAL, value, {"q": q}, {}, "start", 0.0, native_status="the start itself"
            )
            point = BoundPoint(q, value, q, q, kept)
        if point is not None and (best is None or _judged(program, point) < _judged(program, best)):
            best = point
    return best, count


def _judged(program: OPTMProgram, point: BoundPoint) -> float:
    return float(program.judged(np.array([point.objective]), point.q[None])[0])


def _descend(
    program: OPTMProgram, epsilon: float, q: Array, solver: str | None, options: Any
) -> tuple[BoundPoint | None, int]:
    """Solve with bounds around the current point until nothing improves; the point and the programs solved."""
    exact = program.loss.polynomial
    best: BoundPoint | None = None
    value = float(program.exact_loss(q[None])[0]) if exact else np.inf
    eta, count = 0.5, 0
    while eta > 1e-4 and count < 80:
        low, high = (1 - eta) * q, np.minimum((1 + eta) * q, 1.0)
        objective = None
        if exact:  # the exact loss, linearised where we are: within the bounds it is nearly linear
            slope = program.gradient(q)
            objective = slope, value - float(slope @ q)
        point = solve_bounds(program, epsilon, low[None], high[None], solver, options, objective=objective)
        count += 1
        judged = np.inf if point is None else _judged(program, point)
        if point is not None and judged < value - 1e-7 * abs(judged):
            value, best, q = judged, point, np.maximum(point.q, 0.0)
        else:
            eta *= 0.4
    return best, count


def _starts(program: OPTMProgram, epsilon: float, start: Quantizer | None) -> list[Selection]:
    """Selections within the budget: the caller's, and the most accurate RQM and ERM members at several losses.

    One that spends the whole budget may leave no room for bounds around it, so some spend less.
    """
    bins = program.bins
    found: list[Selection] = []
    if start is not None:
        if (
            start.selection is None
            or len(start.bins) != len(bins)
            or not np.allclose(start.bins, bins, rtol=1e-12, atol=0)
        ):
            raise DesignError.of(
                "start", start, "must be a selection mechanism (RQM, ERM, OPTM) with the design's bins"
            )
        if start.privacy_loss() > epsilon:
            raise DesignError.of(
                "start", start, f"its loss {start.privacy_loss():.6g} exceeds the budget {epsilon:g}"
            )
        found.append(Selection(bins, start.selection.left, start.selection.right))
    m = len(bins)
    families = [(rqm_family(m, q), rqm_family(m, q)) for q in np.linspace(0.02, 0.9, 45)]
    families += [(erm_family(bins, g), erm_family(-bins[::-1], g)) for g in np.geomspace(1e-3, 60, 40)]
    members = []
    for left, right in families:
        family = Selection(bins, left, right)
        mechanism = Quantizer.of_selection(family, program.input_range)
        members.append(
            (mechanism.privacy_loss(), mechanism.expected_loss(program.prior, program.loss), family)
        )
    for share in (0.95, 0.8, 0.6):
        inside = [(value, k) for k, (loss, value, _) in enumerate(members) if loss <= share * epsilon]
        if inside and all(members[min(inside)[1]][2] is not f for f in found):
            found.append(members[min(inside)[1]][2])
    if not found:
        inside = [(loss, k) for k, (loss, _, _) in enumerate(members) if loss <= epsilon]
        found = [members[min(inside)[1]][2]] if inside else []
    return found


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
