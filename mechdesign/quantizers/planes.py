r"""Cutting planes for the floors of the optimal quantizer, for every convex loss, expected or worst.

The loss of the best mechanism with floors a is a sum of convex functions, :math:`F = \sum_g F_g`, and the fill's
duals at any floors give planes below each of them,

.. math:: F_g(a) \ge \int_g (\lambda + \mu x - b|\mu|)\,dF + \sum_k a_k \int_g h(c_k)\,dF,

so the linear program

.. math:: \min \sum_g \theta_g \quad\text{subject to}\quad
          \theta_g \ge \text{constant} + \text{gradient} \cdot a \;\text{(planes found so far)}, \quad a \in A

is a lower bound that rises, and every a it visits gives a mechanism (Benders 1962; Kelley 1960, one epigraph variable
per group of inputs). New planes are taken at the program's solution. They serve samples as prior, for which the loss is piecewise linear
(Newton's method took up to 73 times as long: results/ablations), bias budgets, the worst case, and problems on which Newton's method stalls.

In the worst case, :math:`\min_{a \in A} \max_{x \in [lo, hi]} V(x; a)`, V(·; a) of the block fill is a quadratic on each piece (polynomial losses), so all its local maxima
are found exactly. Each one gives a plane :math:`z \ge \lambda + \mu x - b|\mu| + \sum_k a_k h(c_k)` below the maximum: an exchange of worst inputs as in Remez's algorithm, with
the floors as the only variables. The multipliers ω ≥ 0, Σω = 1 of the planes are a prior on finitely many inputs, and the planes averaged
with them bound the *expected* loss of every mechanism under that prior from below, hence the worst case too: the same
bound as in `floors`, exact for the continuum. A handful of rounds suffices, whatever the number of outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mechdesign.quantizers.dual_pieces import DualPieces
from mechdesign.quantizers.floors import (
    FloorProblem,
    FloorSolution,
    Pieces,
    chords,
    lines,
    lower_bound,
    multipliers_of,
    patience,
    pieces,
)
from mechdesign.quantizers.table import loss_peaks
from mechdesign.solvers import LinearProgram
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices, Status


@dataclass(frozen=True, eq=False)
class Planes:
    """Planes below the groups' losses, found at some floors.

    Attributes
    ----------
    value : float
        The loss of the best mechanism with these floors.
    group : ndarray (N,)
    constants, gradients : ndarray (N,) and (N, m)
    table : Pieces
        The fill.
    inputs : ndarray
        The ends of the groups; for the worst case, the input of each plane.
    owner : ndarray, optional
        The group of each of the prior's point masses; None for the worst case.
    """

    value: float
    group: Indices
    constants: Array
    gradients: Array
    table: Pieces
    inputs: Array
    owner: Indices | None = None


def expected_planes(problem: FloorProblem, table: Pieces, edges: Array) -> Planes:
    """Return the planes of the groups between `edges`; point masses belong to the group they lie in."""
    groups, m = len(edges) - 1, len(problem.bins)
    constants, gradients = np.zeros(groups), np.zeros((groups, m))
    if problem.has_density:
        constants, gradients = table.planes(problem, edges)
    points, weights = problem.atoms
    owner = np.clip(np.searchsorted(edges, points, side="right") - 1, 0, groups - 1)
    chunk = max(1, 1_000_000 // m)
    for first in range(0, len(points), chunk):
        part = slice(first, first + chunk)
        x, w, at = points[part], weights[part], owner[part]
        head, reduced = table.duals(problem, x, table.at(x))
        np.add.at(constants, at, w * head)
        # Points are sorted, so groups are runs.
        runs = np.flatnonzero(np.diff(at, prepend=-1))
        gradients[at[runs]] += np.add.reduceat(w[:, None] * reduced, runs, axis=0)
    # The planes touch the loss at their own floors.
    value = float(constants.sum() + (gradients @ table.fill.floors).sum())
    return Planes(value, np.arange(groups), constants, gradients, table, edges, owner)


class Bundle:
    """The planes found so far, the linear program over them, and the best floors.

    Parameters
    ----------
    problem : FloorProblem
    groups : int
        Number of epigraph variables θ.
    unit : float
        Unit of the loss in the program.
    deadline : Deadline
    """

    def __init__(self, problem: FloorProblem, groups: int, unit: float, deadline: Deadline) -> None:
        self.problem, self.unit = problem, unit
        (C, self.reach), n = problem.constraints, len(problem.bins)
        self.program = LinearProgram("cutting-plane program", deadline=deadline)
        self.floors = self.program.add_columns("floors", np.zeros(n), upper=1.0)
        # Only a callable loss can be negative.
        self.bounded = problem.loss.polynomial
        self.heights = self.program.add_columns(
            "heights", np.ones(groups), lower=0.0 if self.bounded else -1e6
        )
        self.program.add_rows("reach", {"floors": C}, lower=self.reach)
        self.group = np.zeros(0, dtype=int)
        self.constants, self.gradients = np.zeros(0), np.zeros((0, n))
        self.found: list[Planes] = []
        self.best, self.value, self.lower_bound, self.margin = np.zeros(n), math.inf, -math.inf, 0.0
        self.multipliers, self.weights = np.zeros(len(self.reach)), np.zeros(0)

    def add(self, floors: Array, found: Planes) -> None:
        """Add the planes found at `floors`."""
        if found.value < self.value:
            self.best, self.value = floors, found.value
        above = np.zeros((len(found.group), len(self.heights)))
        above[np.arange(len(found.group)), found.group] = 1.0
        blocks = {"floors": -found.gradients / self.unit, "heights": above}
        self.program.add_rows("planes", blocks, lower=found.constants / self.unit)
        self.group = np.append(self.group, found.group)
        self.constants = np.append(self.constants, found.constants)
        self.gradients = np.concatenate([self.gradients, found.gradients])
        self.found.append(found)

    @property
    def proof(self) -> DualPieces | None:
        """Return the planes that the bound averages: chords on their groups' inputs, lines at point masses or worst inputs."""
        return multipliers_of(self.problem, self._averaged(), self.multipliers)

    def _averaged(self) -> Iterator[Array]:
        ends = np.cumsum([len(planes.group) for planes in self.found])
        for planes, share in zip(self.found, np.split(self.weights, ends)):
            if not share.any():
                continue
            table, x = planes.table, planes.inputs
            if planes.owner is not None:
                yield chords(self.problem, table, x, share)
                x, share = self.problem.atoms[0], share[planes.owner]
            yield lines(self.problem, x, share, *self.problem.slopes(x, *table.outputs(x)))

    def solve(self) -> Array | None:
        """Solve the program, raise the lower bound, and return the floors; None if the deadline came first."""
        if self.program.solve() is not Status.OPTIMAL:
            return None
        fixed = self.program.row_dual[: len(self.reach)] * self.unit
        weights = np.maximum(self.program.row_dual[len(self.reach) :], 0.0)
        sums = np.bincount(self.group, weights, len(self.heights))
        if self.bounded or np.all(sums > 0):
            weights = weights / np.where(sums > 0, sums, 1.0)[self.group]
            nu = np.maximum(fixed, 0.0)
            constant, gradient = float(weights @ self.constants), weights @ self.gradients
            bound, margin = lower_bound(self.problem, constant, gradient, nu)
            # Weights are rounded down, so that they sum to at most one.
            lost = 2e-13 * self.problem.scale
            if bound - lost > self.lower_bound:
                self.lower_bound, self.margin = bound - lost, margin + lost
                self.multipliers, self.weights = nu, weights
        return self.problem.inside(np.maximum(self.program.x[self.floors], 0.0))


def worst_planes(problem: FloorProblem, table: Pieces) -> Planes:
    """Return a plane for each local maximum."""
    where, height = loss_peaks(table.table, problem.loss)
    x = np.unique(where)
    constants, gradients = table.duals(problem, x, table.at(x))
    return Planes(float(height.max()), np.zeros(len(x), dtype=int), constants, gradients, table, x)


def cutting_planes(
    problem: FloorProblem,
    *,
    gap: float = 1e-6,
    start: Array | None = None,
    deadline: Deadline | None = None,
    steps: int = 400,
) -> FloorSolution:
    """Minimise the expected or the worst-case loss over the floors by cutting planes, the first of them at `start`.

    Parameters
    ----------
    problem : FloorProblem
        For the worst case its prior is not used.
    gap : float
        Relative gap at which to stop.
    start : ndarray (m,), optional
    deadline : Deadline, optional
    steps : int
        Most programs.

    Examples
    --------
    Two outputs leave no choice; the worst input of Duchi et al.'s mechanism is the centre:

    >>> from scipy import stats
    >>> from mechdesign.problem.losses import Loss
    >>> from mechdesign.problem.priors import Prior
    >>> A = (np.e + 1) / (np.e - 1)
    >>> problem = FloorProblem(np.array([-A, A]), np.e * (1 + 1e-12), -1.0, 1.0,
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"), objective="worst")
    >>> round(cutting_planes(problem).value - A, 9)
    0.0
    """
    worst, parts = problem.objective == "worst", int(np.clip(4 * len(problem.bins), 16, 64))
    edges = np.linspace(problem.lower, problem.upper, parts + 1)

    def oracle(floors: Array) -> Planes:
        table = pieces(problem, floors)
        return worst_planes(problem, table) if worst else expected_planes(problem, table, edges)

    floors = problem.centre if start is None else problem.inside(start)
    found = oracle(floors)
    # In units of a tiny loss, costs times ρ would exceed HiGHS's limit of 1e15.
    unit = max(abs(found.value), 1e-5 * problem.scale)
    bundle = Bundle(problem, 1 if worst else parts, unit, deadline or Deadline(None))
    narrowest, stalled = math.inf, 0
    for _ in range(steps):
        bundle.add(floors, found)
        answer = bundle.solve()
        distance = bundle.value - bundle.lower_bound
        stalled = 0 if distance < 0.9 * narrowest else stalled + 1
        narrowest = min(narrowest, distance)
        # HiGHS solves to 1e-10: below that, cuts accumulate without progress.
        enough = stalled > patience(bundle.value, bundle.lower_bound, bundle.margin)
        if answer is None or distance <= gap * abs(bundle.value) or enough:
            break
        floors, found = answer, oracle(answer)
    return FloorSolution(
        bundle.best,
        bundle.value,
        bundle.lower_bound,
        len(bundle.found),
        bundle.multipliers,
        ("exchange" if worst else "cutting-planes",),
        bundle.proof,
        bundle.margin,
    )
