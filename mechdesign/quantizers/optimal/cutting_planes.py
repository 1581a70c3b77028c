r"""Cutting planes over the floors: every convex design, expected or worst-case, with a proved gap.

The loss of the best mechanism with floors a is a sum of convex functions, :math:`F = \sum_g F_g`, and the fill's
duals at any floors give planes below each of them,

.. math:: F_g(a) \ge \int_g (\lambda + \mu x - b|\mu|)\,dF + \sum_k a_k \int_g h(c_k)\,dF,

so the linear program

.. math:: \min \sum_g \theta_g \quad\text{subject to}\quad
          \theta_g \ge \text{constant} + \text{gradient} \cdot a \;\text{(planes found so far)}, \quad a \in A

is a lower bound that rises, and every a it visits gives a mechanism (Benders 1962; Kelley 1960, one epigraph variable
per group of inputs). The worst case is one group, with a plane for each of the worst inputs (`worst_case`). New planes
are taken at the middle between the program's solution and the best floors, which is steadier than at the solution
itself, and at the solution when that stops helping. HiGHS keeps its basis between rounds.

Slower than `newton`, but asks for nothing: it takes bias budgets, floors on the boundary of A, many point masses, and
whatever the Newton iteration could not finish.

Least worst-case loss: cuts at the worst inputs, with a least favourable prior as the proof.

.. math:: \min_{a \in A} \max_{x \in [lo, hi]} V(x; a)

V(·; a) of the block fill is a quadratic on each piece (polynomial losses), so all its local maxima are found exactly.
Each one gives a plane below the maximum, :math:`z \ge \lambda + \mu x - b|\mu| + \sum_k a_k h(c_k)`, for a linear program
over (a, z) that HiGHS keeps warm: an exchange of worst inputs as in Remez's algorithm, with the floors as the only
variables (`cutting_planes.minimise`). The multipliers ω ≥ 0, Σω = 1 of the planes are a prior on finitely many inputs, and the planes averaged
with them bound the *expected* loss of every mechanism under that prior from below, hence the worst case too: the same
bound as in `expected_loss`, exact for the continuum. A handful of rounds suffices, whatever the number of outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mechdesign.quantizers.mechanism.table import loss_peaks
from mechdesign.quantizers.optimal.floors import FloorProblem, Pieces, pieces
from mechdesign.quantizers.optimal.lower_bound import (
    Chords,
    FloorSolution,
    Lines,
    Proof,
    lower_bound,
    patience,
)
from mechdesign.solvers import LinearProgram
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices, Status

__all__ = ["Bundle", "Planes", "cutting_planes", "expected_planes", "worst_case", "worst_planes"]


@dataclass(frozen=True, eq=False)
class Planes:
    """Planes below the groups' losses, found at some floors.

    Attributes
    ----------
    value : float
        The loss of the best mechanism with these floors.
    group : ndarray (N,)
    constants, gradients : ndarray (N,) and (N, m)
    slopes, point_group : ndarray, optional
        μ at the prior's point masses, and the group that each is in.
    table, inputs : Pieces and ndarray
        The fill, and the ends of the groups; of the worst case, the input of each plane.
    """

    value: float
    group: Indices
    constants: Array
    gradients: Array
    slopes: Array | None = None
    point_group: Indices | None = None
    table: Pieces | None = None
    inputs: Array | None = None


def expected_planes(problem: FloorProblem, table: Pieces, edges: Array) -> Planes:
    """Return the planes of the groups between `edges`; point masses belong to the group they lie in."""
    bins, m, bias = problem.bins, len(problem.bins), problem.bias
    groups = len(edges) - 1
    constants, gradients = np.zeros(groups), np.zeros((groups, m))

    def owner(x: Array) -> Indices:
        return np.clip(np.searchsorted(edges, x, side="right") - 1, 0, groups - 1)

    if problem.has_density:
        cells, at = table.cells(edges)
        middle = (cells[:-1] + cells[1:]) / 2
        if problem.loss.polynomial:
            passed = np.searchsorted(bins, middle, side="right")
            moments = problem.prior.continuous_moments(cells)
            constant, lam, mu = problem.pair_integrals(table.left[at], table.right[at], passed, moments)
            sign = np.where(np.arange(m) < passed[:, None], -1.0, 1.0)
            m0, m1, m2 = moments[:, :1], moments[:, 1:2], moments[:, 2:]
            cost = problem.loss.absolute * sign * (bins * m0 - m1)
            cost = cost + problem.loss.squared * (bins * bins * m0 - 2 * bins * m1 + m2)
            c = cost - lam[:, None] - mu[:, None] * bins
            # The sign of c_k is fixed on a cell, so h may be taken of the integral.
            h = np.minimum(c, problem.rho * c)
            constant = constant - bias * np.abs(mu)
        else:

            def duals(x: Array) -> Array:
                head, reduced, _ = table.duals(problem, x, table.at(x))
                return np.concatenate([head[:, None], reduced], axis=1)

            both = problem.prior.continuous_integrals(duals, cells)
            constant, h = both[:, 0], both[:, 1:]
        np.add.at(constants, owner(middle), constant)
        np.add.at(gradients, owner(middle), h)
    points, weights = problem.atoms
    slopes = np.zeros(len(points))
    chunk = max(1, 1_000_000 // m)
    for first in range(0, len(points), chunk):
        part = slice(first, first + chunk)
        x, w = points[part], weights[part]
        head, reduced, slopes[part] = table.duals(problem, x, table.at(x))
        np.add.at(constants, owner(x), w * head)
        # Points are sorted, so groups are runs.
        runs = np.flatnonzero(np.diff(owner(x), prepend=-1))
        gradients[owner(x)[runs]] += np.add.reduceat(w[:, None] * reduced, runs, axis=0)
    # The planes touch the loss at their own floors.
    value = float(constants.sum() + (gradients @ table.fill.floors).sum())
    return Planes(value, np.arange(groups), constants, gradients, slopes, owner(points), table, edges)


class Bundle:
    """The planes found so far, the linear program over them, and the best floors.

    Parameters
    ----------
    problem : FloorProblem
    groups : int
        Epigraph variables θ.
    unit : float
        Loss that counts as 1 in the program.
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
        self.constants, self.gradients = np.zeros(0), np.zeros((0, len(problem.bins)))
        self.source: Indices = np.zeros(0, dtype=int)
        self.place: Indices = np.zeros(0, dtype=int)
        self.found: list[Planes] = []
        self.best, self.value, self.lower_bound, self.margin = np.zeros(n), math.inf, -math.inf, 0.0
        self.multipliers = np.zeros(len(self.reach))
        self.slopes = np.zeros(len(problem.atoms[0]))
        self.weights = np.zeros(0)

    def add(self, floors: Array, found: Planes, theta: Array | None = None) -> None:
        """Take in the planes found at `floors`; of those, where θ is given, the ones that exceed it."""
        if found.value < self.value:
            self.best, self.value = floors, found.value
        new = np.arange(len(found.group))
        if theta is not None:
            height = found.constants + found.gradients @ floors
            new = np.flatnonzero(height > theta[found.group] + 1e-13 * self.problem.scale)
        group = found.group[new]
        above = np.zeros((len(new), len(self.heights)))
        above[np.arange(len(new)), group] = 1.0
        blocks = {"floors": -found.gradients[new] / self.unit, "heights": above}
        self.program.add_rows("planes", blocks, lower=found.constants[new] / self.unit)
        self.group = np.append(self.group, group)
        self.constants = np.append(self.constants, found.constants[new])
        self.gradients = np.concatenate([self.gradients, found.gradients[new]])
        self.source = np.append(self.source, np.full(len(new), len(self.found)))
        self.place = np.append(self.place, new)
        self.found.append(found)

    def _slopes(self, weights: Array) -> Array:
        """μ at the point masses, averaged over the planes as the bound is."""
        share = np.zeros((len(self.found), len(self.heights)))
        np.add.at(share, (self.source, self.group), weights)
        parts = [s[f.point_group] * f.slopes for s, f in zip(share, self.found) if f.slopes is not None]
        return np.sum(parts, axis=0) if parts else self.slopes

    @property
    def proof(self) -> Proof:
        """The planes that the bound averages: chords on their groups' inputs, lines at point masses or worst inputs."""
        problem, chords, lines = self.problem, [], []
        for source in np.unique(self.source[: len(self.weights)][self.weights > 0]).tolist():
            planes, used = self.found[source], np.flatnonzero(self.source[: len(self.weights)] == source)
            table, inputs = planes.table, planes.inputs
            if table is None or inputs is None:
                continue
            share = np.zeros(len(planes.group))
            share[self.place[used]] = self.weights[used]
            x, shares = inputs, share
            if planes.point_group is not None:
                chords += [
                    Chords(table, inputs[g], inputs[g + 1], share[g]) for g in np.flatnonzero(share > 0)
                ]
                x = problem.atoms[0]
                shares = share[planes.point_group]
            at = table.at(x)
            lines.append(Lines(x, shares, *problem.slopes(x, table.left[at], table.right[at])))
        return Proof(tuple(chords), tuple(lines), self.multipliers)

    def solve(self) -> tuple[Array, Array] | None:
        """Return the program's floors and θ, and raise the lower bound; None where the deadline came first."""
        if self.program.solve() is not Status.OPTIMAL:
            return None
        fixed = self.program.row_dual[: len(self.reach)] * self.unit
        weights = np.maximum(self.program.row_dual[len(self.reach) :], 0.0)
        sums = np.bincount(self.group, weights, len(self.heights))
        if self.bounded or np.all(sums > 0):
            weights = weights / np.where(sums > 0, sums, 1.0)[self.group]
            nu = np.maximum(fixed, 0.0)
            constant = float(weights @ self.constants)
            gradient = weights @ self.gradients
            bound, margin = lower_bound(self.problem, constant, gradient, nu, self.problem.scale)
            # Weights are rounded down to add up to no more than one.
            hair = 2e-13 * self.problem.scale
            if bound - hair > self.lower_bound:
                self.lower_bound, self.margin = bound - hair, margin + hair
                self.multipliers, self.slopes, self.weights = nu, self._slopes(weights), weights
        x = self.program.x
        floors = self.problem.inside(np.maximum(x[self.floors], 0.0))
        return floors, x[self.heights] * self.unit


def minimise(
    problem: FloorProblem,
    oracle: Callable[[Array], Planes],
    groups: int,
    name: str,
    gap: float,
    start: Array | None,
    deadline: Deadline | None,
) -> FloorSolution:
    """Minimise the loss that `oracle` gives planes of, for expected and worst-case losses alike."""
    best = problem.centre if start is None else problem.inside(start)
    found = oracle(best)
    bundle = Bundle(problem, groups, max(abs(found.value), 1e-300), deadline or Deadline(None))
    bundle.add(best, found)
    narrowest, stalled, count, middle = math.inf, 0, 0, True
    for count in range(1, 401):
        answer = bundle.solve()
        distance = bundle.value - bundle.lower_bound
        stalled = 0 if distance < 0.9 * narrowest else stalled + 1
        narrowest = min(narrowest, distance)
        # HiGHS solves to 1e-10: below that, cuts pile up without any progress.
        enough = stalled > patience(bundle.value, bundle.lower_bound, bundle.margin)
        if answer is None or distance <= gap * abs(bundle.value) or enough:
            break
        floors, theta = answer
        before = bundle.value
        if middle:
            between = (floors + bundle.best) / 2
            bundle.add(between, oracle(between))
        found = oracle(floors)
        bundle.add(floors, found, theta if count >= 3 else None)
        middle = found.value > before or bundle.value < before
    return FloorSolution(
        bundle.best,
        bundle.value,
        bundle.lower_bound,
        count,
        bundle.multipliers,
        bundle.slopes,
        (name,),
        bundle.proof,
        bundle.margin,
    )


def cutting_planes(
    problem: FloorProblem,
    *,
    gap: float = 1e-6,
    start: Array | None = None,
    deadline: Deadline | None = None,
) -> FloorSolution:
    """Minimise the expected loss over the floors by cutting planes.

    Arguments and answer as of `mechdesign.quantizers.optimal.methods.uncapped`; `start` is cut at first.
    """
    edges = np.linspace(problem.lower, problem.upper, int(np.clip(4 * len(problem.bins), 16, 64)) + 1)

    def oracle(floors: Array) -> Planes:
        return expected_planes(problem, pieces(problem, floors), edges)

    return minimise(problem, oracle, len(edges) - 1, "cutting-planes", gap, start, deadline)


def worst_planes(problem: FloorProblem, floors: Array) -> Planes:
    """Return a plane for each local maximum."""
    table = pieces(problem, floors)
    where, height = loss_peaks(table.table, problem.loss)
    x = np.unique(where)
    constants, gradients, _ = table.duals(problem, x, table.at(x))
    group = np.zeros(len(x), dtype=int)
    return Planes(float(height.max()), group, constants, gradients, table=table, inputs=x)


def worst_case(
    problem: FloorProblem, *, gap: float = 1e-6, start: Array | None = None, deadline: Deadline | None = None
) -> FloorSolution:
    """Minimise the worst-case loss over all inputs.

    Parameters
    ----------
    problem : FloorProblem
        Its prior plays no part.
    gap : float
        Relative gap to stop at.
    start : ndarray (m,), optional
        Floors to cut at first.
    deadline : Deadline, optional

    Returns
    -------
    FloorSolution
        ``iterations`` counts programs.

    Examples
    --------
    Two outputs leave no choice; the worst input of Duchi et al.'s mechanism is the centre:

    >>> from scipy import stats
    >>> from mechdesign.problem.losses import Loss
    >>> from mechdesign.problem.priors import Prior
    >>> A = (np.e + 1) / (np.e - 1)
    >>> problem = FloorProblem(np.array([-A, A]), np.e * (1 + 1e-12), -1.0, 1.0,
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"))
    >>> round(worst_case(problem).value - A, 9)
    0.0
    """
    return minimise(
        problem, lambda floors: worst_planes(problem, floors), 1, "exchange", gap, start, deadline
    )
