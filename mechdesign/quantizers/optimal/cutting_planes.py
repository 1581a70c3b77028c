r"""Cutting planes over the floors: every convex design, with a proved gap.

F(a) is a sum over groups g of inputs, :math:`F = \sum_g F_g`, and the fill's duals at any floors give a plane
below each :math:`F_g`,

.. math:: F_g(a) \ge \int_g (\lambda + \mu x - b|\mu|)\,dF + \sum_k a_k \int_g h(c_k)\,dF,

so the linear program "minimise Σθ_g over the planes found so far and a ∈ A" is a lower bound that rises, and
every a it visits gives a mechanism (Benders 1962; Kelley 1960, one epigraph variable per group). New planes are
taken at the middle between the program's solution and the best floors, which is steadier than at the solution
itself, and at the solution when that stops helping. HiGHS keeps its basis between rounds.

Slower than `floor_newton`, but asks for nothing: it takes bias budgets, floors on the boundary of A, and whatever
the Newton iteration could not finish.
"""

from __future__ import annotations

import math

import highspy
import numpy as np

from mechdesign.errors import SolverError
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.floors import interior_floors
from mechdesign.quantizers.optimal.newton import FloorSolution, Folding, lower_bound
from mechdesign.quantizers.optimal.pieces import Pieces, pieces
from mechdesign.typing import Array

__all__ = ["cutting_planes", "planes"]


def planes(problem: FloorProblem, table: Pieces, edges: Array) -> tuple[Array, Array]:
    """Constants (G,) and gradients (G, m) of the planes of the groups between `edges`.

    Point masses belong to the group they lie in.
    """
    bins, m, bias = problem.bins, len(problem.bins), problem.bias
    groups = len(edges) - 1
    constants, gradients = np.zeros(groups), np.zeros((groups, m))
    inside = bins[(bins > problem.lower) & (bins < problem.upper)]
    cells = np.unique(np.concatenate([table.edges, edges, inside]))
    middle = (cells[:-1] + cells[1:]) / 2
    at = table.at(middle)
    group = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, groups - 1)
    if problem.has_density:
        i, j = table.left[at], table.right[at]
        if problem.loss.polynomial:
            passed = np.searchsorted(bins, middle, side="right")
            moments = problem.moments(cells)
            constant, lam, mu = problem.pair_integrals(i, j, passed, moments)
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
                piece = table.at(x)
                lam, mu = problem.slopes(x, table.left[piece], table.right[piece])
                head = lam + mu * x - bias * np.abs(mu)
                return np.concatenate([head[:, None], problem.reduced(x, lam, mu)], axis=1)

            both = problem.prior.continuous_integrals(duals, cells)
            constant, h = both[:, 0], both[:, 1:]
        np.add.at(constants, group, constant)
        np.add.at(gradients, group, h)
    points, weights = problem.atoms
    if points.size:
        chunk = max(1, 1_000_000 // m)
        for first in range(0, len(points), chunk):
            x, w = points[first : first + chunk], weights[first : first + chunk]
            piece = table.at(x)
            lam, mu = problem.slopes(x, table.left[piece], table.right[piece])
            group = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, groups - 1)
            np.add.at(constants, group, w * (lam + mu * x - bias * np.abs(mu)))
            reduced = w[:, None] * problem.reduced(x, lam, mu)
            # Points are sorted, so groups are runs.
            runs = np.flatnonzero(np.diff(group, prepend=-1))
            gradients[group[runs]] += np.add.reduceat(reduced, runs, axis=0)
    return constants, gradients


class _Master:
    """The linear program over (a, θ), kept inside HiGHS."""

    def __init__(self, folding: Folding, groups: int, floor: float) -> None:
        from mechdesign.solvers.highs import engine

        self.highs = engine()
        self.n, self.groups = folding.n, groups
        inf = highspy.kHighsInf
        for _ in range(folding.n):
            self.highs.addVar(0.0, 1.0)
        for _ in range(groups):
            self.highs.addVar(floor, inf)
        self.highs.changeColsCost(groups, np.arange(self.n, self.n + groups, dtype=np.int32), np.ones(groups))
        index = np.arange(self.n, dtype=np.int32)
        for row, rhs in zip(folding.C, folding.b):
            self.highs.addRow(float(rhs), inf, self.n, index, row)
        self.fixed = len(folding.b)
        self.index = index
        self.group: list[int] = []

    def add(self, group: int, constant: float, gradient: Array) -> None:
        """Add θ_g − G·a ≥ constant."""
        index = np.append(self.index, self.n + group).astype(np.int32)
        self.highs.addRow(float(constant), highspy.kHighsInf, self.n + 1, index, np.append(-gradient, 1.0))
        self.group.append(group)

    def solve(self) -> tuple[Array, Array, Array, Array]:
        """Return a, θ, and the multipliers of the fixed rows and of the cuts."""
        self.highs.run()
        status = self.highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            self.highs.clearSolver()
            self.highs.run()
            status = self.highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            word = self.highs.modelStatusToString(status)
            raise SolverError(f"the cutting-plane master ended {word}", solver="highs", status=word)
        solution = self.highs.getSolution()
        x, dual = np.array(solution.col_value), np.array(solution.row_dual)
        return x[: self.n], x[self.n :], dual[: self.fixed], dual[self.fixed :]


def cutting_planes(
    problem: FloorProblem,
    *,
    gap: float = 1e-6,
    rounds: int = 400,
    start: Array | None = None,
    groups: int | None = None,
) -> FloorSolution:
    """Minimise F over the floors by cutting planes.

    Parameters
    ----------
    problem : FloorProblem
    gap : float
        Relative gap to stop at.
    rounds : int
        Most master problems.
    start : ndarray (m,), optional
        Floors to cut at first, a good guess.
    groups : int, optional
        Number of groups of inputs.

    Returns
    -------
    FloorSolution
        The best found; the caller judges its `gap`.
    """
    folding = Folding(problem)
    bins = problem.bins
    span = float(bins[-1] - bins[0])
    scale = float(np.max(problem.loss(np.array([span, -span]))))
    groups = groups or int(np.clip(4 * len(bins), 16, 64))
    edges = np.linspace(problem.lower, problem.upper, groups + 1)
    non_negative = problem.loss.polynomial
    master = _Master(folding, groups, 0.0 if non_negative else -1e6 * scale)
    constants: list[float] = []
    gradients: list[Array] = []
    state = {"value": math.inf, "bound": -math.inf}
    if start is None:
        start = interior_floors(bins, problem.rho, *problem.reach)
    best = start
    nu = np.zeros(folding.total)

    def cut(floors: Array, theta: Array | None) -> float:
        """Add the planes at `floors` that exceed θ; return F there."""
        nonlocal best
        table = pieces(problem, floors)
        constant, gradient = planes(problem, table, edges)
        heights = constant + gradient @ floors
        total = table.expected_loss(problem)
        if total < state["value"]:
            state["value"], best = total, floors
        folded = folding.fold(gradient)
        for g in range(groups):
            if theta is None or heights[g] > theta[g] + 1e-13 * scale or rounds_done < 3:
                master.add(g, constant[g], folded[g])
                constants.append(float(constant[g]))
                gradients.append(gradient[g])
        return total

    rounds_done = stalled = 0
    narrowest = math.inf
    cut(start, None)
    middle = True
    for rounds_done in range(1, rounds + 1):  # noqa: B007
        alpha, _, fixed, dual = master.solve()
        weights = np.maximum(dual, 0.0)
        sums = np.bincount(master.group, weights, groups)
        weights = weights / np.where(sums > 0, sums, 1.0)[master.group]
        if not non_negative and np.any(sums <= 0):
            bound = -math.inf
        else:
            constant = float(weights @ np.array(constants))
            bound = lower_bound(
                problem, constant, weights @ np.array(gradients), folding.unfold(fixed), scale
            )
        if bound > state["bound"]:
            state["bound"], nu = bound, folding.unfold(np.maximum(fixed, 0.0))
        distance = state["value"] - state["bound"]
        stalled = 0 if distance < 0.9 * narrowest else stalled + 1
        narrowest = min(narrowest, distance)
        # HiGHS solves to 1e-10: below that, cuts pile up without any progress.
        if distance <= gap * abs(state["value"]) or stalled > 25:
            break
        a = problem.inside(np.maximum(alpha, 0.0)[folding.index])
        before = state["value"]
        if middle:
            cut((a + best) / 2, None)
        total = cut(a, None)
        middle = total > before or state["value"] < before
    return FloorSolution(
        best,
        state["value"],
        state["bound"],
        rounds_done,
        nu,
        np.zeros(len(problem.atoms[0])),
        len(constants),
    )
