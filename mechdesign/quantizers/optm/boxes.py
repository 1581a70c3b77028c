"""OPTM over boxes of bounds: the linear program compiled once, solved for every box from the last one's basis.

The boxes are Algorithm 2 of the paper: one pair (o, u) of a grid at a time, keep the best. Theorem 6 has three bounds
whatever m is, searched on a grid of their own that is refined twice around the best.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import Selection
from mechdesign.quantizers.optm.program import OPTMProgram
from mechdesign.runs.grid import Grid
from mechdesign.solvers import Deadline, LinearProgram, Solution
from mechdesign.typing import Array, Status

__all__ = ["BoxPoint", "BoxSearch", "Boxes", "Sweep", "authors_levels", "grid_boxes"]

_ACTIVE = 1e-9

Boxes = tuple[Array, Array]
"""Lower and upper bounds of all unknowns, a row each box."""


@dataclass(frozen=True)
class BoxPoint:
    """The best point of a search: its solution vector, bounds and solver's answer."""

    program: OPTMProgram
    q: Array
    low: Array
    high: Array
    solution: Solution

    @cached_property
    def mechanism(self) -> Quantizer:
        """What is deployed, in floats."""
        selection = Selection(self.program.bins, *self.program.unpack(self.q))
        return Quantizer.of_selection(selection, self.program.input_range)

    def audit(self, epsilon: float) -> pd.DataFrame:
        """The linear program's constraints evaluated at the mechanism, with the solver's duals."""
        program, low, high, selection = self.program, self.low, self.high, self.mechanism.selection
        assert selection is not None
        q = program.flatten(selection.left, selection.right)
        upper, lower = program.rows.sides(q, low, high)
        bigger, smaller = program.dominance()
        at = program.bounded
        names = [f"q[{k}]" for k in at]
        parts = []
        for family, labels, lhs, rhs in (
            ("privacy", program.rows.labels, upper, math.exp(min(epsilon, 700.0)) * lower),
            ("dominance", [f"q[{b}] >= q[{s}]" for b, s in zip(bigger, smaller)], q[smaller], q[bigger]),
            ("lower bounds", names, low[at], q[at]),
            ("upper bounds", names, q[at], high[at]),
        ):
            frame = pd.DataFrame({"family": f"model: {family}", "index": labels, "lhs": lhs, "rhs": rhs})
            frame["slack"] = frame["rhs"] - frame["lhs"]
            frame["dual"] = np.ravel(self.solution.dual.get(family, np.full(len(frame), np.nan)))
            frame["active"] = frame["slack"] <= _ACTIVE
            parts.append(frame[AUDIT_COLUMNS])
        return pd.concat(parts, ignore_index=True)


def authors_levels() -> Grid:
    """The published grid of bounds at m = 4: o = 0.01, …, 0.99 and u = o + 0.01."""
    return Grid(level=np.arange(1, 100) / 100, width=[0.01])


def check_levels(name: str, grid: Any) -> None:
    """Refuse what is no grid over bounds: an axis of another name would be tried, and change nothing."""
    if not isinstance(grid, Grid) or not {"level"} <= set(grid.axes) <= {"level", "level_right", "width"}:
        raise DesignError.of(
            name, grid, "must be a Grid with the axis level, and level_right and width where wanted"
        )


def grid_boxes(program: OPTMProgram, grid: Grid | None) -> Boxes:
    """Boxes (N, width) of a grid over the one or two rows that have products.

    A row q_n of two unknowns has one degree of freedom: q_n(1) in [o, u], q_n(2) in [1 − u, 1 − o].

    Raises
    ------
    DesignError
        There are more rows, longer ones, or the grid has other axes.
    """
    rows = [family.row(n) for family in dict.fromkeys(program.families) for n in range(1, program.m)]
    bounded = [row for row in rows if np.isin(program.bounded, np.arange(row.start, row.stop)).any()]
    if grid is None:
        steps = np.arange(1, 20) / 20
        grid = authors_levels() if len(bounded) < 2 else Grid(level=steps, level_right=steps, width=[0.01])
    check_levels("bounds", grid)
    if len(bounded) > 2 or any(row.stop - row.start != 2 for row in bounded):
        raise DesignError.of("bounds", grid, "a grid needs at most two free bounds")
    points = grid.columns()
    width = points.get("width", np.full(len(grid), 0.01))
    levels = [points["level"], points.get("level_right", points["level"])]
    low, high = np.zeros((len(grid), program.width)), np.ones((len(grid), program.width))
    for row, level in zip(bounded, levels):
        low[:, row] = np.stack([level, np.maximum(1.0 - level - width, 0.0)], axis=1)
        high[:, row] = np.stack([np.minimum(level + width, 1.0), 1.0 - level], axis=1)
    return low, high


def theorem6_boxes(program: OPTMProgram, around: BoxPoint | None = None) -> Boxes:
    """A grid over Theorem 6's bounds, or a finer one around a point; o must make e^ε w large, u must keep z small."""
    rows, bounded = program.rows, program.bounded
    uppers = set(rows.bound[~rows.smallest].tolist())
    if around is None:
        axes = [
            [0.05, 0.1, 0.2, 0.4, 0.7, 1.0] if k in uppers else np.geomspace(1e-3, 0.3, 7) for k in bounded
        ]
    else:
        chosen = [around.high[k] if k in uppers else around.low[k] for k in bounded]
        axes = [np.clip(v * np.array([0.7, 0.85, 1.0, 1.2, 1.45]), 0, 1) for v in chosen]
    values = np.array(list(itertools.product(*axes)))
    low, high = np.zeros((len(values), program.width)), np.ones((len(values), program.width))
    for k, column in zip(bounded.tolist(), values.T):
        (high if k in uppers else low)[:, k] = column
    return low, high


class Sweep:
    """One program whose numbers change: every ε, box, and choice of bins of the same structure is a point of it.

    Parameters
    ----------
    deadline : Deadline, optional
        Points after it have no answer.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline
        self._held: LinearProgram | None = None

    def __call__(self, program: OPTMProgram, epsilon: float, boxes: Boxes) -> tuple[Array, Array]:
        """Objective values (N,) and solutions (N, width) for all boxes, from a cold start; NaN where infeasible."""
        low, high = boxes
        values, found = np.full(len(low), np.nan), np.full(low.shape, np.nan)
        if self._held is None:
            self._held = program.in_numbers(epsilon, low[0], high[0], deadline=self._deadline)
        held = self._held
        cost, held.constant = program.objective
        held.change_costs("q", cost)
        held.forget_basis()
        privacy = program.rows.coefficients(epsilon, low, high) @ program.privacy_entries[1].T
        for k in range(len(low)):
            held.change_rows("privacy", privacy[k])
            held.change_rows("lower bounds", upper=-low[k, program.bounded])
            held.change_rows("upper bounds", upper=high[k, program.bounded])
            if held.run() is Status.OPTIMAL:
                values[k], found[k] = held.value, held.x
        return values, found


class BoxSearch:
    """The best box for one choice of bins.

    All boxes are swept in one compiled program: 27 times as fast as a program each (``results/ablations``). The grid itself is the
    paper's algorithm, which its published numbers need; `descent` is 0.3% better where both apply.

    Parameters
    ----------
    program : OPTMProgram
    bounds : Grid, pair of triangular arrays, or None
        None takes the paper's grid.
    solver : str, optional
        HiGHS (default) sweeps the boxes; others solve them one by one.
    deadline : Deadline
    options : dict
        The backend's own.

    Attributes
    ----------
    count : int
        Boxes solved so far.
    """

    def __init__(
        self,
        program: OPTMProgram,
        bounds: Any,
        solver: str | None,
        deadline: Deadline,
        options: dict[str, Any],
    ) -> None:
        self.program, self.bounds, self.deadline, self.options = program, bounds, deadline, options
        self.solver, self.sweep = solver, Sweep(deadline)
        self.count = 0

    def first_boxes(self) -> Boxes:
        """What the search begins with."""
        if self.program.constraints == "theorem6":
            return theorem6_boxes(self.program)
        if isinstance(self.bounds, tuple):
            low, high = (self.program.flatten(b, b)[None] for b in self.bounds)
            return low, high
        if len(self.program.bounded) == 0:
            return np.zeros((1, self.program.width)), np.ones((1, self.program.width))
        return grid_boxes(self.program, self.bounds)

    def best(self, epsilon: float) -> BoxPoint | None:
        """The point of least exact loss (Theorem 6: least objective) within ε; None if all boxes are infeasible."""
        point = self._best_of(epsilon, self.first_boxes())
        for _ in range(2):
            if point is not None and self.program.constraints == "theorem6":
                point = self._best_of(epsilon, theorem6_boxes(self.program, point)) or point
        return point

    def tighter(self, point: BoxPoint, epsilon: float) -> BoxPoint | None:
        """Solve again in the same box with another budget."""
        return self._at(epsilon, (point.low[None], point.high[None]), 0)

    def _best_of(self, epsilon: float, boxes: Boxes) -> BoxPoint | None:
        self.count += len(boxes[0])
        if len(boxes[0]) > 1:
            values, found = self._values(epsilon, boxes)
            if np.isnan(values).all():
                return None
            compact = self.program.constraints == "theorem6"
            best = int(np.nanargmin(values if compact else self.program.judged(values, found)))
            boxes = boxes[0][[best]], boxes[1][[best]]
        return self._at(epsilon, boxes, 0)

    def _values(self, epsilon: float, boxes: Boxes) -> tuple[Array, Array]:
        """Objective values and solutions for all boxes, NaN where infeasible or too late."""
        if self.solver in (None, "highs"):
            return self.sweep(self.program, epsilon, boxes)
        values, found = np.full(len(boxes[0]), np.nan), np.full(boxes[0].shape, np.nan)
        for k in range(len(values)):
            point = None if self.deadline.passed else self._at(epsilon, boxes, k)
            if point is not None:
                values[k], found[k] = point.solution.value, point.q
        return values, found

    def _at(self, epsilon: float, boxes: Boxes, k: int) -> BoxPoint | None:
        """The point of box k, with its duals; None where infeasible."""
        low, high = boxes[0][k], boxes[1][k]
        try:
            solution = self.program.in_numbers(
                epsilon, low, high, solver=self.solver, **self.options
            ).answer()
        except InfeasibleError:
            return None
        return BoxPoint(self.program, solution.primal["q"], low, high, solution)

    def notes(self, point: BoxPoint) -> list[str]:
        """What a reader of the result should know."""
        found = [f"the linear program's own objective: {point.solution.value:.9g}"]
        if self.count > 1:
            found.append(f"best of {self.count} linear programs")
        if self.program.loss.function is not None:
            found.append(
                "the program minimised the absolute loss's bound; the value is the callable's exact mean"
            )
        return found

    def infeasible(self, epsilon: float) -> InfeasibleError:
        """Say why, and find the smallest feasible ε to a thousandth by bisection."""
        kind, m = self.program.constraints, self.program.m
        if kind == "theorem6" and not self.program.orderable():
            return InfeasibleError(
                f"Theorem 6 is infeasible at every epsilon for these bins (m = {m}): its order of the q contradicts itself where "
                "the outermost bins are far from the next; use theorem5, or bins nearer to each other"
            )
        least, high = epsilon, 2 * epsilon
        # Theorem 5 per output is feasible at ε only if some selection mechanism is; doubling finds an upper end.
        while not (found := self.best(high) is not None) and high < 64 and not self.deadline.passed:
            least, high = high, 2 * high
        while found and high - least > 1e-3 * high and not self.deadline.passed:
            middle = (least + high) / 2
            least, high = (least, middle) if self.best(middle) is not None else (middle, high)
        names = {"theorem5": "Theorem 5", "theorem6": "Theorem 6"}
        name = names.get(kind, "the across-outputs program")
        reason = f"{name} is infeasible at epsilon = {epsilon:g} for these bins (m = {m})"
        if kind == "theorem6" and m == 4:
            reason += "; Theorem 6 needs epsilon > log 3 at m = 4, whatever the bins"
        if found:
            reason += f"; the smallest feasible epsilon found is {high:.6g}"
        return InfeasibleError(reason, smallest_epsilon=high if found else None)
