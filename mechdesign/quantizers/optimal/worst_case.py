r"""Least worst-case loss: cuts at the worst inputs, with a least favourable prior as the proof.

.. math:: \min_{a \in A} \max_{x \in [lo, hi]} V(x; a)

V(·; a) of the block fill is a quadratic on each piece (polynomial losses), so all its local maxima are found exactly.
Each one gives a plane below the maximum, :math:`z \ge \lambda + \mu x - b|\mu| + \sum_k a_k h(c_k)`, for a linear program
over (a, z) that HiGHS keeps warm: an exchange of worst inputs as in Remez's algorithm, with the floors as the only
variables. The multipliers ω ≥ 0, Σω = 1 of the planes are a prior on finitely many inputs, and the planes averaged
with them bound the *expected* loss of every mechanism under that prior from below, hence the worst case too: the same
bound as in `floor_value`, exact for the continuum. A handful of rounds suffices, whatever the number of outputs.
"""

from __future__ import annotations

import math

import highspy
import numpy as np

from mechdesign.errors import SolverError
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.floors import interior_floors
from mechdesign.quantizers.optimal.newton import FloorSolution, Folding, lower_bound
from mechdesign.quantizers.optimal.pieces import pieces
from mechdesign.typing import Array

__all__ = ["local_maxima", "worst_case"]


def local_maxima(problem: FloorProblem, floors: Array) -> tuple[Array, Array]:
    """Inputs and values of the local maxima of the fill's expected loss (largest value on each piece)."""
    table = pieces(problem, floors)
    bins = problem.bins
    inside = bins[(bins > problem.lower) & (bins < problem.upper)]
    cells = np.unique(np.concatenate([table.edges, inside]))
    start, end = table.rows()
    at = table.at((cells[:-1] + cells[1:]) / 2)
    low, width = table.edges[at], np.diff(table.edges)[at]

    def loss(share: float) -> tuple[Array, Array]:
        x = cells[:-1] + share * np.diff(cells)
        t = ((x - low) / width)[:, None]
        rows = (1 - t) * start[at] + t * end[at]
        return x, np.einsum("nk,nk->n", rows, problem.loss(bins - x[:, None]))

    if problem.loss.polynomial:
        (x0, v0), (_, v1), (x2, v2) = loss(0.0), loss(0.5), loss(1.0)
        # v0 + b t + c t²
        c = 2 * (v0 + v2 - 2 * v1)
        b = v2 - v0 - c
        t = np.clip(np.divide(-b, 2 * c, out=np.zeros_like(b), where=c < 0), 0.0, 1.0)
        peak = v0 + b * t + c * t * t
        t = np.where(v2 >= peak, 1.0, t)
        t = np.where(v0 >= np.maximum(peak, v2), 0.0, t)
        return x0 + t * (x2 - x0), np.maximum(np.maximum(v0, v2), peak)
    samples = [loss(s) for s in (1 - np.cos(np.linspace(0, np.pi, 33))) / 2]
    xs, vs = np.stack([x for x, _ in samples]), np.stack([v for _, v in samples])
    best = np.argmax(vs, axis=0)
    column = np.arange(vs.shape[1])
    return xs[best, column], vs[best, column]


class _Planes:
    """The linear program over (a, z) and the planes in it."""

    def __init__(self, problem: FloorProblem) -> None:
        from mechdesign.solvers.highs import engine

        self.problem, self.folding = problem, Folding(problem)
        span = float(problem.bins[-1] - problem.bins[0])
        self.scale = float(np.max(problem.loss(np.array([span, -span]))))
        self.highs = engine()
        n, inf = self.folding.n, highspy.kHighsInf
        for _ in range(n):
            self.highs.addVar(0.0, 1.0)
        self.highs.addVar(-1e6 * self.scale, inf)
        self.highs.changeColCost(n, 1.0)
        self.index = np.arange(n + 1, dtype=np.int32)
        for row, rhs in zip(self.folding.C, self.folding.b):
            self.highs.addRow(float(rhs), inf, n, self.index[:n], row)
        self.constants: list[float] = []
        self.gradients: list[Array] = []

    def add(self, floors: Array, above: float) -> float:
        """Add the planes at the local maxima above a level; return the largest value."""
        problem = self.problem
        where, height = local_maxima(problem, floors)
        keep = height > above
        if problem.symmetric:
            keep &= where >= -1e-12 * problem.upper
        x = np.unique(where[keep])
        if x.size:
            table = pieces(problem, floors)
            at = table.at(x)
            lam, mu = problem.slopes(x, table.left[at], table.right[at])
            constants = lam + mu * x - problem.bias * np.abs(mu)
            gradients = problem.reduced(x, lam, mu)
            for constant, gradient, folded in zip(constants, gradients, self.folding.fold(gradients)):
                row = np.append(-folded, 1.0)
                self.highs.addRow(float(constant), highspy.kHighsInf, len(row), self.index, row)
                self.constants.append(float(constant))
                self.gradients.append(gradient)
        return float(height.max())

    def solve(self) -> tuple[Array, float, float]:
        """Return the program's floors, its z, and the proved bound."""
        self.highs.run()
        status = self.highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            self.highs.clearSolver()
            self.highs.run()
            status = self.highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            word = self.highs.modelStatusToString(status)
            raise SolverError(f"the worst-case program ended {word}", solver="highs", status=word)
        solution = self.highs.getSolution()
        x, dual = np.array(solution.col_value), np.array(solution.row_dual)
        fixed = len(self.folding.b)
        omega = np.maximum(dual[fixed:], 0.0)
        total = float(omega.sum())
        bound = -math.inf
        if total > 0:
            omega = omega / total
            constant, gradient = float(omega @ self.constants), omega @ np.array(self.gradients)
            multipliers = self.folding.unfold(dual[:fixed])
            bound = lower_bound(self.problem, constant, gradient, multipliers, self.scale)
        floors = self.problem.inside(np.maximum(x[:-1], 0.0)[self.folding.index])
        return floors, float(x[-1]), bound


def worst_case(problem: FloorProblem, *, gap: float = 1e-6, rounds: int = 300) -> FloorSolution:
    """Minimise the worst-case loss over all inputs.

    Parameters
    ----------
    problem : FloorProblem
        Its prior plays no part.
    gap : float
        Relative gap to stop at.
    rounds : int
        Most programs.

    Returns
    -------
    FloorSolution
        ``iterations`` counts programs, ``cuts`` the planes of the last one.

    Examples
    --------
    Two outputs leave no choice; the worst input of Duchi et al.'s mechanism is the centre:

    >>> from scipy import stats
    >>> from mechdesign.problem.losses import Loss
    >>> from mechdesign.problem.priors import Prior
    >>> A = (np.e + 1) / (np.e - 1)
    >>> problem = FloorProblem(np.array([-A, A]), np.e * (1 + 1e-12), -1.0, 1.0,
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"), symmetric=True)
    >>> round(worst_case(problem).value - A, 9)
    0.0
    """
    planes = _Planes(problem)
    best = interior_floors(problem.bins, problem.rho, *problem.reach)
    value, bound, narrowest = planes.add(best, -math.inf), -math.inf, math.inf
    count = stalled = 0
    for count in range(1, rounds + 1):  # noqa: B007
        floors, z, proved = planes.solve()
        bound = max(bound, proved)
        distance = value - bound
        stalled = 0 if distance < 0.9 * narrowest else stalled + 1
        narrowest = min(narrowest, distance)
        if distance <= gap * abs(value) or stalled > 25:
            break
        # Between the best floors and the program's: steadier than the program's alone.
        for point in ((floors + best) / 2, floors):
            peak = planes.add(point, z)
            if peak < value:
                value, best = peak, point
    nu = np.zeros(planes.folding.total)
    return FloorSolution(best, value, bound, count, nu, np.zeros(0), len(planes.constants))
