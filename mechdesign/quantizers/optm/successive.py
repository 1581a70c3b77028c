r"""Successive linearisation: OPTM for more than four bins, where a grid over bounds is exponential.

Loss and probabilities are bilinear (`SelectionBlocks`). Linearise both at the current point, solve the linear program
for a step within a trust region, and take it if the exact penalty :math:`E\ell + \text{price} \cdot \text{excess}` falls:
sequential linear programming (Fletcher and Sainz de la Maza 1989), which ends at a local optimum of the exact
problem. Products need no bounds, so nothing is given away to a relaxation, and points outside the budget are allowed on
the way, so that the search can begin at the optimum over *all* unbiased mechanisms: its law at the middle of every
interval is that of a selection mechanism. At the end the point is moved inside the budget, and its exact loss decides.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.deferred import Later
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.dual_pieces import DualPieces
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import Selection, spread
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.quantizers.optimal.floors import smallest_epsilon
from mechdesign.quantizers.optimal.known import LARGEST_EPSILON
from mechdesign.quantizers.optimal.result import OptimalQuantizerResult
from mechdesign.quantizers.optm.blocks import SelectionBlocks
from mechdesign.quantizers.optm.model import OPTMProgram
from mechdesign.solvers import Model, Solution, SolveSequence
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Status

__all__ = ["LinearisedPoint", "Successive"]

_PROGRAMS = 80  # linear programs a start
_ACTIVE = 1e-9
_LEAST_UNIT = 1e-6
_FEW = 150  # unknowns up to which a descent is followed to the smaller tolerance
_TINY = (
    20  # unknowns up to which the optimum over all mechanisms is a dear start, and no better than a plain one
)
_ROUGH = 5e-5
_HAIR = 1e-7  # relative loss that is given away to come inside the budget
_FAR = 14.0  # ε from which floors are lost in a linear program's tolerance
_LARGEST = 20.0  # ε at which programs are solved for larger ones: what is private there is private here
_SHARES = 330  # of what is mixed in, each nine tenths of the one before
_TOLERANCE = 1e-5  # stop when a step promises less, relative to the loss; ten times that in large problems
# Relative steps and by how much the budget is made smaller, until the point is inside the real one.
_APPROACH = [(1e-2, 0.0), (1e-3, 0.0), (1e-4, 0.0)] + [
    (1e-5, 10.0**-k) for k in (11, 10, 10, 9, 9, 8, 8, 7, 6)
]
# An output less likely than that is not used; the larger where the smaller is in the way.
_NOISE = (1e-9, 1e-6, 1e-4)


@dataclass(frozen=True)
class LinearisedPoint:
    """A selection mechanism within the budget, and the program it was last a solution of."""

    blocks: SelectionBlocks
    q: Array
    solution: Solution
    mechanism: Quantizer

    @property
    def value(self) -> float:
        """The exact loss: this program has no other objective."""
        return self.blocks.loss(self.q)

    def selection(self) -> Selection:
        """The mechanism's selection probabilities."""
        assert self.mechanism.selection is not None
        return self.mechanism.selection

    def audit(self, selection: Selection, epsilon: float) -> pd.DataFrame:
        """Floors and ceilings of every limit at the final mechanism, with the multipliers of the last program."""
        blocks = self.blocks
        q = blocks.unknowns(selection)
        p, low = blocks.limits(q), blocks.extremes(q)[0][blocks.output]
        unit = blocks.units(q, _LEAST_UNIT)[blocks.output]  # that the last program's rows are in
        parts = []
        for family, rows in (("floor", ~blocks.largest), ("ceiling", blocks.largest)):
            lhs, rhs = (low, p) if family == "floor" else (p, math.exp(min(epsilon, 700.0)) * low)
            frame = pd.DataFrame({"family": f"model: {family}", "index": np.array(blocks.labels)[rows]})
            frame["lhs"], frame["rhs"] = lhs[rows], rhs[rows]
            frame["slack"] = frame["rhs"] - frame["lhs"]
            frame["dual"] = self.solution.dual.get(family, np.nan) / unit[rows]
            frame["active"] = frame["slack"] <= _ACTIVE
            parts.append(frame[AUDIT_COLUMNS])
        return pd.concat(parts, ignore_index=True)


class Successive:
    """The descent from the optimum over all mechanisms, and from a given mechanism.

    That optimum stays as start by ``results/ablations``: without it, 1 of 18 designs takes 4.1 times as long. Sequential
    quadratic programming (SLSQP) beside it, for few unknowns, went: linear programs alone end within 2e-4 of its loss in 13 of
    15 designs of that table, .5% below it in one, and at less than half of it in another.

    Parameters
    ----------
    program : OPTMProgram
    start : Selection, optional
        Within the budget; the search ends no higher.
    outputs : int
        At most that many bins may be drawn, beside those of `start`.
    gap : float
        How closely the lower bound is proved.
    solver, options
        A registered backend and its options.
    deadline : Deadline
    certify : bool
        Whether the lower bound's multipliers are wanted, beside its value.

    Attributes
    ----------
    lower_bound : float, Later or None
        Of every unbiased mechanism with the bins, of this family or not; to be computed later where it is only told.
    bound_duals : DualPieces or None
        Multipliers that prove it.
    """

    def __init__(
        self, program: OPTMProgram, start: Selection | None, outputs: int, gap: float,
        solver: str | None, deadline: Deadline, options: dict[str, Any], certify: bool = True,
    ) -> None:  # fmt: skip
        usable = spread(program.m, outputs)
        if start is not None:
            left, right = start.left.sum(axis=0), start.right.sum(axis=0)[::-1]
            usable = np.union1d(usable, np.flatnonzero(np.append(left, 0.0) + np.append(0.0, right)))
        self.blocks = SelectionBlocks(
            program.bins, program.input_range, program.prior, program.loss,
            mirrored=not program.separate, shared_floor=program.constraints == "across-outputs", usable=usable,
        )  # fmt: skip
        self.program, self.gap, self.deadline, self.certify = program, gap, deadline, certify
        self.start = None if start is None else self.blocks.unknowns(start)
        self.sequence = SolveSequence(solver, deadline=deadline, **options)
        self.lower_bound: float | Later | None = None
        self.bound_duals: DualPieces | None = None

    def best(self, epsilon: float) -> LinearisedPoint | None:
        """The best point found within the budget.

        Raises
        ------
        InfeasibleError
            No unbiased mechanism with these bins is within the budget; states the smallest feasible ε.
        """
        # Half of the time for descending, what is left for getting inside.
        half, within = self.deadline.part(0.5), min(epsilon, _LARGEST)
        tried = [self._descend(q, within, half) for q in self._starts(epsilon, half)]
        if not any(tried):
            tried.append(self._descend(self._outermost(), within, self.deadline))
        if epsilon > _FAR:  # hardly anything binds: nearly the best mechanism without privacy
            tried.append(self._mixed(self._always(-1, 0), epsilon, felt=math.inf))
        found = [p for p in tried if p is not None]
        # A start may be better than what is a hair inside the budget; the outermost bins are better than nothing.
        spare = self._outermost() if self.start is None and not found else self.start
        if spare is not None and (mechanism := self._mechanism(spare)).privacy_loss() <= epsilon:
            itself = Solution(Status.FEASIBLE, np.nan, {}, {}, self.sequence.name, 0.0)
            found.append(LinearisedPoint(self.blocks, spare, itself, mechanism))
        if not found:
            return None
        point = min(found, key=lambda p: p.value)
        return replace(point, solution=self.sequence.total(point.solution))

    def tighter(self, point: LinearisedPoint, epsilon: float) -> LinearisedPoint | None:
        """The same mechanism moved inside a smaller budget."""
        return self._inside(point.q, epsilon)

    def notes(self, point: LinearisedPoint) -> list[str]:
        """What a reader of the result should know."""
        return [
            f"a local optimum, after {self.sequence.count} linearised programs",
            "the lower bound is that of all unbiased mechanisms with these outputs",
        ]

    def infeasible(self, epsilon: float) -> InfeasibleError:
        """The refusal where the descent ends outside the budget."""
        return InfeasibleError(
            f"no selection mechanism with these {len(self.blocks.bins)} bins was found within epsilon = {epsilon:g}: "
            "raise it a little"
        )

    # -- starts ---------------------------------------------------------------------------------------

    def _starts(self, epsilon: float, deadline: Deadline) -> Iterator[Array]:
        """The optimum over all mechanisms, whose bound is kept on the way, and the given mechanism."""
        blocks = self.blocks
        wanted = OptimalQuantizer(
            blocks.bins[blocks.usable],
            PureDP(epsilon),
            self.program.prior,
            self.program.loss,
            input_range=blocks.input_range,
        )

        def solve(design: OptimalQuantizer) -> OptimalQuantizerResult:
            return design.solve(
                gap=self.gap,
                certify=self.certify,
                time_limit=deadline.limit(),
            )

        if self._unhurried(epsilon):
            self.lower_bound = Later(lambda: _bound(solve(wanted)))
            room = smallest_epsilon(blocks.bins, *blocks.input_range) < (1 - _ROUGH) * epsilon
            if blocks.size <= _TINY and room:
                yield self._halfway()
            else:
                yield blocks.imitate(wanted.roughly(_ROUGH).probabilities)
        else:
            optimum = solve(wanted)
            everywhere = (
                optimum if len(blocks.usable) == len(blocks.bins) else solve(wanted.at(bins=blocks.bins))
            )
            self.lower_bound = _bound(everywhere)
            self.bound_duals = None if everywhere.certificate is None else everywhere.certificate.duals
            yield blocks.imitate(optimum.mechanism.probabilities)
        if self.start is not None:
            yield self.start

    def _unhurried(self, epsilon: float) -> bool:
        """Whether the lower bound can wait until it is asked for: nothing is proved, and the optimum is not needed."""
        whole = len(self.blocks.usable) == len(self.blocks.bins)
        small = self.blocks.size <= _FEW and epsilon <= LARGEST_EPSILON
        return small and whole and not self.certify and not self.deadline.finite

    def _outermost(self) -> Array:
        """Always the outermost bins: the mechanism of least privacy loss."""
        return self._always(0, -1)

    def _always(self, left: int, right: int) -> Array:
        """Always the same of the bins on either side of the input, counted from the left."""
        q = np.zeros(self.blocks.size)
        for b in self.blocks.blocks:
            q[b.u[left]] = q[b.v[right]] = 1.0
        return q

    def _halfway(self) -> Array:
        """Halfway from drawing evenly to the outermost bins: searches from there end no worse than from the optimum."""
        return (self.blocks.normalised(np.ones(self.blocks.size)) + self._outermost()) / 2

    def _mechanism(self, q: Array) -> Quantizer:
        """What the unknowns deploy, in floats; its privacy loss is rounded up."""
        return Quantizer.of_selection(self.blocks.selection(q), self.blocks.input_range)

    # -- the descent ----------------------------------------------------------------------------------

    def _descend(self, q: Array, epsilon: float, deadline: Deadline) -> LinearisedPoint | None:
        """Follow linearised programs down from q, then move inside the budget; None where that fails."""
        blocks = self.blocks
        value = blocks.loss(q)
        price, radius = 50.0 * value, 0.1

        def merit_of(point: Array) -> float:
            return blocks.loss(point) + price * blocks.excess(point, epsilon)

        merit = merit_of(q)
        tolerance = _TOLERANCE if blocks.size <= _FEW else 10 * _TOLERANCE
        for _ in range(_PROGRAMS):
            if deadline.passed:
                break
            lower, upper = -np.minimum(q, radius), np.minimum(1.0 - q, radius)
            solution = self._solved(blocks.model(q, epsilon, lower, upper, price))
            if solution is None:
                break
            over = float(solution.primal["over"].sum())
            if over < 1e-12:
                # The penalty is exact just above the multipliers; a higher price slows every step along the budget's curved edge.
                worth = np.bincount(blocks.output[blocks.largest], np.abs(solution.dual["ceiling"]))
                price = max(1.2 * float(worth.max()), 1e-3 * value)
                merit = merit_of(q)
            elif over > 0.5 * blocks.excess(q, epsilon) and price < 1e8 * value:
                price *= 4.0  # at this price excess is cheaper than what it saves
                merit = merit_of(q)
                continue
            promised = merit - value - solution.value
            if promised <= tolerance * value or radius < 1e-7:
                if price * blocks.excess(q, epsilon) <= tolerance * value or price > 1e8 * value:
                    break
                price *= 10.0  # the penalty was not exact: a unit of excess must cost more than it saves
                radius = max(radius, 1e-3)
                merit = merit_of(q)
                continue
            step = solution.primal["step"]
            trial = np.where(q + step > 1e-14, q + step, 0.0)
            reached = merit_of(trial)
            if merit - reached > 0.1 * promised:
                radius = min(1.0, radius * (2.0 if merit - reached > 0.7 * promised else 1.0))
                q, merit = trial, reached
            else:
                radius = 0.35 * min(radius, float(np.abs(step).max()))
            value = blocks.loss(q)
        return self._inside(q, epsilon)

    def _solved(self, model: Model) -> Solution | None:
        """The next linear program's answer; None where the deadline came first."""
        try:
            return None if self.deadline.passed else self.sequence.solve(model)
        except InfeasibleError:  # of a program that no step at all solves: the solver's rounding
            return None
        except SolverError:
            if self.deadline.passed:
                return None
            raise

    def _mixed(self, q: Array, epsilon: float, felt: float = 10 * _HAIR) -> LinearisedPoint | None:
        """Mix in as little of a mechanism that draws widely as brings a point inside; None where that is `felt`.

        At a large ε the floors that are missing are far below a linear program's tolerance.
        """
        blocks, widely = self.blocks, self._halfway()

        def mixed(k: int) -> Array:
            return blocks.normalised(q + 0.9**k * (widely - q))

        within = bisect(
            range(_SHARES), False, key=lambda k: self._mechanism(mixed(k)).privacy_loss() > epsilon
        )
        moved = mixed(within - 1)
        if not within or blocks.loss(moved) > (1 + felt) * blocks.loss(q):
            return None
        itself = Solution(Status.FEASIBLE, np.nan, {}, {}, self.sequence.name, 0.0)
        return LinearisedPoint(blocks, moved, itself, self._mechanism(moved))

    def _inside(self, q: Array, epsilon: float) -> LinearisedPoint | None:
        """Move a point that is over budget by a hair inside it, towards a budget smaller by a hair.

        A step that changes every unknown by a share r leaves a relative error of about r²: the steps shrink faster than
        the budget does. Outputs that are not used are dropped, so that no input alone can reach one.
        """
        blocks = self.blocks
        if epsilon > _FAR and (point := self._mixed(q, epsilon)) is not None:
            return point
        price = 1e3 * blocks.loss(q)
        for noise in _NOISE:
            moved = _without_noise(blocks, q, noise)
            for radius, margin in _APPROACH:
                lower, upper = -radius * moved, np.minimum(1.0 - moved, radius * moved)
                tight = min(epsilon, _LARGEST) - margin * max(1.0, epsilon)
                model = blocks.model(moved, tight, lower, upper, price, least_unit=_LEAST_UNIT)
                solution = self._solved(model)
                if solution is None:
                    return None
                moved = _without_noise(blocks, np.maximum(moved + solution.primal["step"], 0.0), noise)
                mechanism = self._mechanism(moved)
                if mechanism.privacy_loss() <= epsilon:
                    return LinearisedPoint(blocks, moved, solution, mechanism)
        return None


def _bound(optimum: OptimalQuantizerResult) -> float | None:
    found = optimum.lower_bound
    return found if found is not None and np.isfinite(found) else None


def _without_noise(blocks: SelectionBlocks, q: Array, noise: float) -> Array:
    """Drop what is positive by rounding only, and outputs that are hardly ever drawn."""
    q = np.where(q > 1e-13, q, 0.0)
    if blocks.floors > 1 or len(blocks.usable) == 1:
        unused = blocks.extremes(q)[1] < noise
        q[blocks.outer[unused[blocks.output]]] = 0.0
    return blocks.normalised(q)
