r"""Least worst-case loss: exchange of inputs, with a least favourable prior as the proof.

.. math:: \min_{a} \max_{x \in [lo, hi]} V(x; a)

For finitely many inputs x_r this is a small linear program over a, the rows p_r and the epigraph value z. Its
multipliers ω_r ≥ 0, Σω_r = 1 of "z ≥ loss at x_r" are a prior on those inputs, and together with the rows'
duals they bound the *expected* loss of every mechanism under that prior from below, hence the worst case too:
the same bound as in `floor_value`, exact for the continuum. In the other direction, V(·; a) of the block fill is
a quadratic on each piece (polynomial losses), so its maximum over all inputs is found exactly, and the local
maxima join the inputs of the next round (Remez). Few rounds suffice.
"""

from __future__ import annotations

import math

import highspy
import numpy as np
import numpy.typing as npt
from scipy import sparse

from mechdesign.designs.floor_newton import FloorSolution, Folding, lower_bound
from mechdesign.designs.floor_pieces import pieces
from mechdesign.designs.floor_value import FloorProblem
from mechdesign.errors import SolverError

__all__ = ["local_maxima", "worst_case"]

Array = npt.NDArray[np.float64]


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


def _program(problem: FloorProblem, folding: Folding, x: Array, costs: Array) -> highspy.HighsLp:
    m, n, R = folding.m, folding.n, len(x)
    rho, bins, bias = problem.rho, problem.bins, problem.bias
    width = n + 1 + R * m
    p = n + 1 + np.arange(R * m)
    a = np.tile(folding.index, R)
    row = np.arange(R * m)
    one = np.ones(R * m)
    point = np.repeat(np.arange(R), m)
    entries = [
        (row, p, one),
        (row, a, -one),
        (R * m + row, a, rho * one),
        (R * m + row, p, -one),
        (2 * R * m + point, p, one),
        (2 * R * m + R + point, p, np.tile(bins, R)),
        (2 * R * m + 2 * R + point, p, -costs.ravel()),
        (2 * R * m + 2 * R + np.arange(R), np.full(R, n), np.ones(R)),
    ]
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries))
    height = 2 * R * m + 3 * R
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=(height, width))
    inf = highspy.kHighsInf
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = width, height
    cost = np.zeros(width)
    cost[n] = 1.0
    lp.col_cost_ = cost
    lower = np.zeros(width)
    lower[n] = -inf
    lp.col_lower_, lp.col_upper_ = lower, np.full(width, inf)
    lp.row_lower_ = np.concatenate([np.zeros(2 * R * m), np.ones(R), x - bias, np.zeros(R)])
    lp.row_upper_ = np.concatenate([np.full(2 * R * m, inf), np.ones(R), x + bias, np.full(R, inf)])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    lp.a_matrix_.index_ = matrix.indices.astype(np.int32)
    lp.a_matrix_.value_ = matrix.data
    return lp


def worst_case(problem: FloorProblem, *, gap: float = 1e-6, rounds: int = 60) -> FloorSolution:
    """Minimise the worst-case loss over all inputs.

    Parameters
    ----------
    problem : FloorProblem
        Its prior plays no part.
    gap : float
        Relative gap to stop at.
    rounds : int
        Most exchanges.

    Returns
    -------
    FloorSolution
        ``iterations`` counts exchanges, ``cuts`` inputs of the last program.

    Examples
    --------
    Two outputs leave no choice; the worst input of Duchi et al.'s mechanism is the centre:

    >>> from scipy import stats
    >>> from mechdesign.losses import Loss
    >>> from mechdesign.priors import Prior
    >>> A = (np.e + 1) / (np.e - 1)
    >>> problem = FloorProblem(np.array([-A, A]), np.e * (1 + 1e-12), -1.0, 1.0,
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"), symmetric=True)
    >>> round(worst_case(problem).value - A, 9)
    0.0
    """
    from mechdesign.solvers.highs import engine

    folding = Folding(problem)
    bins, m = problem.bins, folding.m
    span = float(bins[-1] - bins[0])
    scale = float(np.max(problem.loss(np.array([span, -span]))))
    inside = bins[(bins > problem.lower) & (bins < problem.upper)]
    count = int(np.clip(2 * m + 1, 17, 65))
    x = np.concatenate([np.linspace(problem.lower, problem.upper, count), inside])
    half = max(0.0, problem.lower) if problem.symmetric else problem.lower
    x = np.unique(x[x >= half])
    value, bound = math.inf, -math.inf
    best = np.zeros(m)
    done = 0
    for done in range(1, rounds + 1):  # noqa: B007
        costs = problem.loss(bins - x[:, None])
        highs = engine()
        highs.passModel(_program(problem, folding, x, costs))
        highs.run()
        status = highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            word = highs.modelStatusToString(status)
            raise SolverError(f"the exchange program ended {word}", solver="highs", status=word)
        solution = highs.getSolution()
        R = len(x)
        dual = np.array(solution.row_dual)[2 * R * m :]
        lam, mu, omega = dual[:R], dual[R : 2 * R], np.maximum(dual[2 * R :], 0.0)
        total = omega.sum()
        lam, mu, omega = lam / total, mu / total, omega / total
        c = omega[:, None] * costs - lam[:, None] - mu[:, None] * bins
        gradient = np.minimum(c, problem.rho * c).sum(axis=0)
        constant = float(lam.sum() + mu @ x - problem.bias * np.abs(mu).sum())
        C, _ = problem.constraints
        bound = max(bound, lower_bound(problem, constant, gradient, np.zeros(len(C)), scale))
        a = np.maximum(np.array(solution.col_value)[: folding.n], 0.0)[folding.index]
        a = problem.inside(a)
        where, height = local_maxima(problem, a)
        peak = float(height.max())
        if peak < value:
            value, best = peak, a
        if value - bound <= gap * abs(value):
            break
        # All pieces' maxima that stick out above the program's value.
        new = where[height > bound + 0.1 * (peak - bound)]
        new = np.unique(new[new >= half])
        distance = np.abs(new[:, None] - x[None, :]).min(axis=1) if new.size else new
        new = new[distance > 1e-12 * (problem.upper - problem.lower)]
        if new.size == 0:
            break
        x = np.union1d(x, new)
    return FloorSolution(best, value, bound, done, np.zeros(folding.total), np.zeros(0), len(x))
