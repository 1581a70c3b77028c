r"""OPTM: the randomized quantization mechanism that linear programs find in the selection family.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*, Theorems 3–6 and Algorithm 2. Up to four bins the
paper's linear program (`program`) is solved for a grid of boxes of bounds that linearise it: one pair (o, u) of a grid at a
time, the best is held, and each box is solved from the last one's basis. Theorem 6 has three bounds whatever m is, searched on a
grid of their own that is refined twice around the best. Beyond four bins the bilinear problem is followed down (`descent`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import integer, one_of, settle
from mechdesign.problem.fields import field
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.quantizers.common.design import QuantizerDesign
from mechdesign.quantizers.common.proofs import outermost, proved_law
from mechdesign.quantizers.mechanism.exact_law import SelectionLaw, excess_loss, tightened
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import (
    Selection,
    check_bins,
    check_range,
    mirrored_bins,
    spread,
    symmetric_bins,
)
from mechdesign.quantizers.optimal.any_outputs import least_loss
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.quantizers.optimal.floors import smallest_epsilon, solved_epsilon
from mechdesign.quantizers.optm.descent import Descent, LinearisedPoint, SelectionBlocks
from mechdesign.quantizers.optm.program import RESOLVED, OPTMProgram, audited
from mechdesign.runs.grid import Grid
from mechdesign.solvers import Deadline, LinearProgram, Solution
from mechdesign.solvers.deadline import too_late
from mechdesign.typing import Array, Status

CONSTRAINTS = ("theorem5", "theorem6", "across-outputs")
_BOUNDS = 'must be a md.Grid, "successive", or a pair of arrays (lower, upper)'


@serializable("optm")
@dataclass(frozen=True)
class OPTM(QuantizerDesign, ModelledDesign):
    r"""The best selection mechanism that the OPTM linear programs find for fixed bins.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values, covering the input range.
    privacy : PureDP
        The local-DP budget.
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
        Law of the input.
    loss : "absolute", "squared", dict of weights, or convex callable
        With bounds, the program minimises Lemma 1's linear upper bound of it (of the absolute loss for callables);
        "successive" minimises the exact loss. The value reported is always the exact loss.
    input_range : (float, float), optional
        The support of a law by default; with samples as prior it must be stated.
    constraints : {"theorem5", "theorem6", "across-outputs"}
        Theorem 5 (per output, all pairs), the compact Theorem 6, or what the paper's authors solve for
        asymmetric bins (Table 2): every maximum against every minimum of any output, which is stricter.
    families : {"auto", "symmetric", "separate"}
        One mirrored family (symmetric bins) or two (Theorem 4). "auto" follows the bins.
    bounds : Grid or (lower, upper) or "successive" or None
        How products are linearised: a `Grid` with the axis ``level`` (and ``width``, one value; for separate
        families also ``level_right``), a pair of triangular arrays, or "successive": no bounds, but loss and
        privacy linearised again and again at the current mechanism, down to a local optimum of the exact problem. None
        takes the paper's grid up to four bins and "successive" beyond.

    Raises
    ------
    DesignError
        Bad bins, prior, loss or constraint set, each named.

    Examples
    --------
    >>> from scipy import stats
    >>> design = OPTM(bins=[-3, -0.5, 0.5, 3], privacy=PureDP(1.0), prior=stats.uniform(-1, 2))
    >>> result = design.solve()
    >>> round(result.value, 4), result.mechanism.privacy_loss() <= 1.0
    (1.8785, True)
    """

    bins: Any
    privacy: PureDP = field(PureDP)
    prior: Any = field()
    loss: Any = "absolute"
    input_range: Any = None
    constraints: str = field(check=one_of, allowed=CONSTRAINTS, default="theorem5")
    families: str = field(check=one_of, allowed=("auto", "symmetric", "separate"), default="auto")
    bounds: Any = None

    default_gap = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        bins = mirrored_bins(check_bins(self.bins))
        prior, given = Prior.ranged(self.prior, self.input_range)
        low, high = check_range(given, bins)
        settle(self, bins=tuple(bins.tolist()), prior=prior, input_range=(low, high), loss=Loss.of(self.loss))
        self.loss.check_convex(bins, low, high)
        symmetric = symmetric_bins(bins) and low == -high
        compact = self.constraints == "theorem6"
        if not symmetric and (self.families == "symmetric" or compact):
            which = "Theorem 6" if compact else 'families="symmetric"'
            allowed = (
                f'{which} needs bins and range that mirror about 0; use families="separate" with theorem5'
            )
            raise DesignError.of("bins", self.bins, allowed)
        if compact and not ((bins >= low) & (bins <= high)).any():
            raise DesignError.of("bins", self.bins, "Theorem 6 needs a bin inside the input range")
        if self.families == "auto":
            settle(self, families="symmetric" if symmetric else "separate")
        if self.bounds is not None and not isinstance(self.bounds, (Grid, str)):
            settle(self, bounds=_checked_pair(self.bounds, len(bins)))
        elif isinstance(self.bounds, str) and self.bounds != "successive":
            raise DesignError.of("bounds", self.bounds, _BOUNDS)

    # -- model ----------------------------------------------------------------------------------------

    @cached_property
    def program(self) -> OPTMProgram:
        """The linear program's numbers and structure."""
        return OPTMProgram(
            np.array(self.bins),
            self.input_range,
            self.prior,
            self.loss,
            constraints=self.constraints,
            separate=self.families == "separate",
        )

    def model(self, *, low: object = None, high: object = None) -> solvers.Model:
        """Return the CVXPY model for bounds given as triangular arrays (default: 0 and 1)."""
        m = len(self.bins)
        default = (np.zeros((m - 1, m - 1)), np.tril(np.ones((m - 1, m - 1))))
        pair = _checked_pair([d if b is None else b for b, d in zip((low, high), default)], m)
        return self.program.model(self.privacy.epsilon, *(self.program.flatten(b, b) for b in pair))

    # -- solve ----------------------------------------------------------------------------------------

    def closed_forms(self) -> Iterator[Law]:
        """Yield the member that selects the two outermost bins, where it is within the budget."""
        yield from outermost(self, self.bins)

    def improve(
        self,
        clock: Clock,
        solver: str | None = None,
        start: Quantizer | None = None,
        outputs: int = 64,
        **options: Any,
    ) -> Iterator[Law | Bound]:
        """Search the bounds, or descend from the optimum over all mechanisms, which is also the lower bound.

        Neither search proves that no member of the family is better. The bound is that of every unbiased mechanism with these
        bins, of the family or not.

        Parameters
        ----------
        clock : Clock
        solver : str, optional
            "highs" (default), or any registered backend; of boxes, HiGHS sweeps all and the backend solves the best again.
        start : Quantizer, optional
            A selection mechanism with these bins within the budget: "successive" ends no higher.
        outputs : int
            "successive" draws from at most that many of the bins, chosen evenly; the others only divide the
            inputs. Costs little accuracy, and keeps programs with hundreds of bins small.
        **options
            The backend's own.

        Raises
        ------
        InfeasibleError
            No bounds tried admit a mechanism; says why, with the smallest feasible ε.
        """
        usable = spread(len(self.bins), integer("outputs", outputs, 4))
        given = None if start is None else self._checked_start(start)
        if solver is not None:
            solvers.get(solver)
        yield from least_loss(self, self.bins, clock)
        if self._on_boxes:
            yield self.on_boxes(clock, solver, options)
            return
        if given is not None:  # what it draws, too
            drawn = np.append(given.left.sum(axis=0), 0.0) + np.append(0.0, given.right.sum(axis=0)[::-1])
            usable = np.union1d(usable, np.flatnonzero(drawn))
        program = self.program
        blocks = SelectionBlocks(
            program.bins, self.input_range, self.prior, self.loss, mirrored=not program.separate,
            shared_floor=self.constraints == "across-outputs", usable=usable,
        )  # fmt: skip
        descent = Descent(blocks, self.privacy.epsilon, solver, clock, options)
        half = clock.part(0.5)  # the rest is for getting inside the budget
        any_mechanism = OptimalQuantizer(
            program.bins[usable],
            PureDP(self._solved_epsilon),
            self.prior,
            self.loss,
            input_range=self.input_range,
        ).solve(gap=clock.gap, certify=False, time_limit=half.limit())
        starts = [blocks.imitate(any_mechanism.mechanism.probabilities)]
        if given is not None:
            starts.append(blocks.unknowns(given))
            own = descent.point(starts[-1])
            yield self._law(own, partial(descent.inside, own.q), [], clock)
        points = [point for q in starts if (point := descent.best(q, half)) is not None]
        if not points and given is None:
            if clock.passed:
                raise too_late("OPTM")
            if not any(self.closed_forms()):
                raise InfeasibleError(
                    f"no mechanism with these {program.m} bins is within epsilon = {self.privacy.epsilon:g}: raise it a little"
                )
            yield from self.closed_forms()
        for point in points:
            notes = [f"a local optimum, after {descent.program.count} linearised programs"]
            yield self._law(point, partial(descent.inside, point.q), notes, clock)

    def on_boxes(self, clock: Clock, solver: str | None, options: dict[str, object]) -> Law:
        """Return the best of the boxes."""
        boxes = BoxSearch(self.program, self.bounds, solver, clock, options)
        found = boxes.best(self._solved_epsilon)
        if found is None:
            raise too_late("OPTM") if clock.passed else boxes.infeasible(self.privacy.epsilon)
        return self._law(found, partial(boxes.at, found.low, found.high), boxes.notes(found), clock)

    @property
    def _solved_epsilon(self) -> float:
        """The budget, or a smaller one where its floors would be lost in a linear program's tolerance."""
        least = smallest_epsilon(np.array(self.bins), *self.input_range)
        return solved_epsilon(self.privacy.epsilon, least, RESOLVED)

    @property
    def _on_boxes(self) -> bool:
        """Whether bounds linearise the program, as in the paper; products of more bins are followed down."""
        if self.constraints == "theorem6" or isinstance(self.bounds, (tuple, Grid)):
            return True
        return self.bounds is None and len(self.bins) <= 4

    def _law(
        self, point: Point, again: Callable[[float], Point | None], notes: list[str], clock: Clock
    ) -> Law:
        """The point's mechanism; in exact arithmetic, solved `again` for a smaller budget where the floats are outside."""
        budget, law = self.privacy.epsilon, None

        def solved(epsilon: float) -> tuple[Point, SelectionLaw] | None:
            found = point if epsilon == budget else again(min(epsilon, self._solved_epsilon))
            return None if found is None else (found, found.mechanism.selection.exact(self.input_range))  # type: ignore[union-attr]

        if clock.certify:
            point, law = tightened(solved, lambda pair: excess_loss(pair[1], budget), budget)
        value = point.mechanism.expected_loss(self.prior, self.loss)
        report, duals = SolveReport.of(point.solution), point.audit(budget)
        floats = Law(point.mechanism, value, report=report, notes=tuple(notes), duals=duals)
        return (
            floats
            if law is None
            else proved_law(self, floats, Quantizer.of_law(law, point.mechanism.selection))
        )

    def _checked_start(self, start: object) -> Selection:
        """Return the selection probabilities of a mechanism to start from, or raise DesignError."""
        epsilon = self.privacy.epsilon
        if not isinstance(start, Quantizer) or start.selection is None or not self.takes(start.bins):
            raise DesignError.of(
                "start", start, "must be a selection mechanism (RQM, ERM, OPTM) with the design's bins"
            )
        if (loss := start.privacy_loss()) > epsilon:
            raise DesignError.of("start", start, f"its loss {loss:.6g} exceeds the budget {epsilon:g}")
        return Selection(self.bins, start.selection.left, start.selection.right)

    def audit(self, result: Result) -> pd.DataFrame:
        """Constraints of the definition, and those of the program with its multipliers."""
        return pd.concat([super().audit(result), result.duals], ignore_index=True)


def _checked_pair(given: Any, m: int) -> tuple[Array, Array]:
    try:
        low, high = (np.array(b, dtype=float) for b in given)
    except (TypeError, ValueError, OverflowError):
        raise DesignError.of("bounds", given, _BOUNDS) from None
    if low.shape != (m - 1, m - 1) or high.shape != (m - 1, m - 1):
        text = f"bounds have shapes {low.shape}, {high.shape}: both must be ({m - 1}, {m - 1}), triangular"
        raise DesignError(text)
    for n, i in np.argwhere(np.tril(~((low >= 0) & (low <= high)))):
        what = f"o_{n + 1}({i + 1}) = {low[n, i]:g}, u_{n + 1}({i + 1}) = {high[n, i]:g}"
        raise DesignError(f"bounds: {what}; need 0 <= o <= u")
    return low, high


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
        families = (
            ("privacy", program.rows.labels, upper, math.exp(min(epsilon, 700.0)) * lower),
            ("dominance", [f"q[{b}] >= q[{s}]" for b, s in zip(bigger, smaller)], q[smaller], q[bigger]),
            ("lower bounds", names, low[at], q[at]),
            ("upper bounds", names, q[at], high[at]),
        )
        dual = self.solution.dual
        return audited((*family, dual.get(family[0], math.nan)) for family in families)


Point = BoxPoint | LinearisedPoint


def authors_levels() -> Grid:
    """The published grid of bounds at m = 4: o = 0.01, …, 0.99 and u = o + 0.01."""
    return Grid(level=np.arange(1, 100) / 100, width=[0.01])


def check_levels(name: str, grid: object) -> None:
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
        self.failed: list[str] = []

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
        for k, (row, least, most) in enumerate(
            zip(privacy, -low[:, program.bounded], high[:, program.bounded])
        ):
            held.change_rows("privacy", row)
            held.change_rows("lower bounds", upper=least)
            held.change_rows("upper bounds", upper=most)
            if (status := held.run()) is Status.OPTIMAL:
                values[k], found[k] = held.value, held.x
            elif status not in (Status.INFEASIBLE, Status.LIMIT):
                self.failed.append(held.word)
        if self.failed and np.isnan(values).all():
            said = f"HiGHS failed in {len(self.failed)} of {len(values)} programs ({self.failed[-1]})"
            raise SolverError(said, solver="highs", status=self.failed[-1])
        return values, found


class BoxSearch:
    """The best box for one choice of bins.

    All boxes are changes of one program: 27 times as fast as a CVXPY model each (``results/ablations``). The grid itself is the
    paper's algorithm, which its published numbers need; `descent` is 0.3% better where both apply.

    Parameters
    ----------
    program : OPTMProgram
    bounds : Grid, pair of triangular arrays, or None
        None takes the paper's grid.
    solver : str, optional
        Of the best box; HiGHS sweeps them all.
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
        bounds: Grid | None,
        solver: str | None,
        deadline: Deadline,
        options: dict[str, object],
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

    def _best_of(self, epsilon: float, boxes: Boxes) -> BoxPoint | None:
        self.count += len(boxes[0])
        if len(boxes[0]) > 1:
            values, found = self.sweep(self.program, epsilon, boxes)
            if np.isnan(values).all():
                return None
            compact = self.program.constraints == "theorem6"
            best = int(np.nanargmin(values if compact else self.program.judged(values, found)))
            boxes = boxes[0][[best]], boxes[1][[best]]
        return self.at(boxes[0][0], boxes[1][0], epsilon)

    def at(self, low: Array, high: Array, epsilon: float) -> BoxPoint | None:
        """The point of one box, with its duals; None where infeasible."""
        program = self.program.in_numbers(epsilon, low, high, solver=self.solver, **self.options)
        try:
            solution = program.answer()
        except InfeasibleError:
            return None
        return BoxPoint(self.program, solution.primal["q"], low, high, solution)

    def notes(self, point: BoxPoint) -> list[str]:
        """What a reader of the result should know."""
        found = [f"the linear program's own objective: {point.solution.value:.9g}"]
        if self.count > 1:
            found.append(f"best of {self.count} linear programs")
        if self.sweep.failed:
            found.append(f"HiGHS failed in {len(self.sweep.failed)} of them, which were passed over")
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
        name = {"theorem5": "Theorem 5", "theorem6": "Theorem 6"}.get(kind, "the across-outputs program")
        reason = f"{name} is infeasible at epsilon = {epsilon:g} for these bins (m = {m})"
        if kind == "theorem6" and m == 4:
            reason += "; Theorem 6 needs epsilon > log 3 at m = 4, whatever the bins"
        if found:
            reason += f"; the smallest feasible epsilon found is {high:.6g}"
        return InfeasibleError(reason, smallest_epsilon=high if found else None)
