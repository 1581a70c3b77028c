r"""Lower bound over all continuum quantizers of metric privacy :math:`d = |x - x'|`.

Cut the input range into cells. For any mechanism let :math:`q_{ki} = \int_{\text{cell } k} p_i\,dF` and
:math:`m_{ki} = \int_{\text{cell } k} x\,p_i\,dF`. These 2Km numbers satisfy linear constraints, whatever the mechanism:

- :math:`\sum_i q_{ki} = F_k`, :math:`\sum_i m_{ki} = \sum_i B_i q_{ki} = \int x\,dF`, :math:`\sum_i B_i m_{ki} = \int x^2 dF`;
- :math:`q_{k+1,i}/F_{k+1} \le e^{\varepsilon w_k} q_{ki}/F_k` and back, :math:`w_k` the ∞-Wasserstein distance of
  the two cells' conditional laws (couple their quantiles: paired inputs are at most w apart);
- :math:`|m_{ki} - \bar x_k q_{ki}| \le \tau_k h_k q_{ki}`, :math:`\tau = (\sqrt r - 1)/(\sqrt r + 1)`,
  :math:`r = e^{\varepsilon h}`: inside a cell p varies by a factor r at most;
- the loss is at least :math:`|B_i q_{ki} - m_{ki}|` (Jensen), with equality where B is outside the cell, and the
  squared loss is exactly :math:`\sum B_i^2 q_{ki} - \int x^2 dF`.

The least value of that linear program is a bound, and is itself taken from the program's duals with outward
rounding (Neumaier and Shcherbina 2004), never from the solver's objective.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from mechdesign.errors import SolverError
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import LawPrior, Prior

__all__ = ["continuum_bound", "grid_bound", "safe_linear_bound"]

Array = npt.NDArray[Any]
Matrix = Any  # scipy.sparse, whose stubs reject its own arithmetic
_QUANTILES = 512


def safe_linear_bound(
    cost: Array,
    equal: Matrix,
    equal_to: Array,
    less: Matrix,
    less_than: Array,
    upper: Array,
) -> float:
    """Proved lower bound of min c·v, E v = e, L v ≤ l, 0 ≤ v ≤ upper (finite).

    For any multipliers y and z ≤ 0, min ≥ e·y + l·z + Σ_j min(0, r_j) upper_j with r = c − Eᵀy − Lᵀz; the margin
    covers the rounding of these sums.
    """
    solve: Any = optimize.linprog
    answer = solve(
        cost,
        A_ub=less,
        b_ub=less_than,
        A_eq=equal,
        b_eq=equal_to,
        bounds=np.stack([np.zeros(len(cost)), upper], axis=1),
        method="highs",
    )
    if answer.status != 0:
        raise SolverError(
            f"the bounding program ended: {answer.message}", solver="highs", status=str(answer.status)
        )
    y, z = np.asarray(answer.eqlin.marginals), np.minimum(np.asarray(answer.ineqlin.marginals), 0.0)
    reduced = cost - equal.T @ y - less.T @ z
    bound = float(equal_to @ y + less_than @ z + np.minimum(reduced, 0.0) @ upper)
    size = np.abs(equal_to) @ np.abs(y) + np.abs(less_than) @ np.abs(z)
    size += (np.abs(cost) + abs(equal).T @ np.abs(y) + abs(less).T @ np.abs(z)) @ upper
    return float(bound - 16 * np.finfo(float).eps * float(size))


def _cells(prior: Prior, lower: float, upper: float, count: int) -> list[tuple[float, float, Array]]:
    """Cells (start, stop, moments): atoms alone where there are few, the density between cut points."""
    points, weights = prior.atoms
    edges = np.linspace(lower, upper, count + 1)
    out: list[tuple[float, float, Array]] = []
    if len(points) <= 4 * count:
        edges = np.unique(np.concatenate([edges, points]))
        moments = prior.continuous_moments(edges)
        for k, (a, b) in enumerate(zip(edges[:-1], edges[1:])):
            out.append((float(a), float(b), moments[k]))
        out += [(float(x), float(x), w * np.array([1.0, x, x * x])) for x, w in zip(points, weights)]
    else:
        moments = prior.moments(edges)
        out = [(float(a), float(b), row) for a, b, row in zip(edges[:-1], edges[1:], moments)]
    # Half-open cells: an atom at a cell's start comes before the cell.
    return sorted((c for c in out if c[2][0] > 1e-12), key=lambda c: (c[0] + c[1], c[1]))


def _quantile_grid(prior: Prior, start: float, stop: float) -> tuple[Array, Array]:
    """Points and conditional distribution function of the density on a cell."""
    x = np.linspace(start, stop, _QUANTILES + 1)
    mass = np.concatenate([[0.0], np.cumsum(prior.continuous_moments(x)[:, 0])])
    return x, mass / mass[-1]


def _distance(prior: Prior, first: tuple[float, float, Array], second: tuple[float, float, Array]) -> float:
    """Upper bound of the ∞-Wasserstein distance of two neighbouring cells' conditional laws."""
    hull = second[1] - first[0]
    if isinstance(prior, LawPrior) and prior.law.dist.name == "uniform":
        start, stop = prior.support
        if first[0] >= start and second[1] <= stop and first[0] < first[1] and second[0] < second[1]:
            # Both conditional laws are uniform: quantiles differ most at an end.
            return max(second[0] - first[0], second[1] - first[1]) * (1 + 1e-14)
    (x, u), (y, v) = (
        (np.array([c[0], c[1]]), np.array([0.0, 1.0])) if c[0] == c[1] else _quantile_grid(prior, c[0], c[1])
        for c in (first, second)
    )
    if not (np.all(np.isfinite(u)) and np.all(np.isfinite(v))):
        return hull
    levels = np.unique(np.concatenate([u, v]))
    # On [l, l'] the first law's quantile is at least its value at l, the second's at most its value at l'.
    low = x[np.clip(np.searchsorted(u, levels[:-1] + 1e-12, side="right") - 1, 0, len(x) - 1)]
    high = y[np.clip(np.searchsorted(v, levels[1:] - 1e-12, side="left"), 0, len(y) - 1)]
    return float(min(hull, (high - low).max() + 1e-12))


def continuum_bound(
    bins: Array, epsilon: float, prior: Prior, loss: Loss, lower: float, upper: float, cells: int
) -> float:
    """Lower bound of the expected loss of every unbiased mechanism with metric privacy ε|x − x'|."""
    table = _cells(prior, lower, upper, cells)
    K, m = len(table), len(bins)
    mass = np.array([c[2] for c in table])
    width = np.array([c[1] - c[0] for c in table])
    centre = mass[:, 1] / mass[:, 0]
    # Variables: q (mass-normalised, in [0, 1]), s = m − x̄ q shifted to be non-negative, t the absolute loss.
    root = np.exp(epsilon * width / 2)
    tau = (root - 1) / (root + 1) * width
    point = np.arange(K * m)
    k = np.repeat(np.arange(K), m)
    i = np.tile(np.arange(m), K)
    N = K * m
    # q' = q / F, s' = (m − x̄ q)/F + τ q' ≥ 0, s' ≤ 2 τ q'; t' = absolute loss / F.
    reach = float(np.abs(bins).max() + max(abs(lower), abs(upper)))
    top = np.concatenate([np.ones(N), np.maximum(2 * tau[k], 1e-300), np.full(N, 2 * reach)])

    def rows(index: Array, *parts: tuple[Array, Array]) -> Matrix:
        data = np.concatenate([v for _, v in parts])
        columns = np.concatenate([c for c, _ in parts])
        return sparse.csr_matrix(
            (data, (np.tile(index, len(parts)), columns)), shape=(int(index.max()) + 1, 3 * N)
        )

    one = np.ones(N)
    B = bins[i]
    equal = sparse.vstack(
        [
            rows(k, (point, one)),
            rows(k, (point, B)),
            rows(k, (point + N, one), (point, -tau[k])),
            rows(k, (point, B * (centre[k] - tau[k])), (point + N, B)),
        ]
    ).tocsr()
    second = mass[:, 2] / mass[:, 0]
    equal_to = np.concatenate([np.ones(K), centre, np.zeros(K), second])
    less = [
        rows(point, (point + N, one), (point, -2 * tau[k])),
        # t ≥ ±(B q − m), m = (x̄ − τ) q + s
        rows(point, (point, B - centre[k] + tau[k]), (point + N, -one), (point + 2 * N, -one)),
        rows(point, (point, -(B - centre[k] + tau[k])), (point + N, one), (point + 2 * N, -one)),
    ]
    if K > 1:
        ratio = np.array([math.exp(epsilon * _distance(prior, a, b)) for a, b in zip(table, table[1:])])
        ratio = ratio * (1 + 1e-14)
        pair = np.arange((K - 1) * m)
        r = np.repeat(ratio, m)
        less += [
            rows(pair, (pair + m, np.ones(len(pair))), (pair, -r)),
            rows(pair, (pair, np.ones(len(pair))), (pair + m, -r)),
        ]
    stacked = sparse.vstack(less).tocsr()
    cost = np.zeros(3 * N)
    cost[:N] = loss.squared * mass[k, 0] * B * B
    cost[2 * N :] = loss.absolute * mass[k, 0]
    bound = safe_linear_bound(cost, equal, equal_to, stacked, np.zeros(stacked.shape[0]), top)
    return float(bound - loss.squared * float(mass[:, 2].sum()))


def grid_bound(
    bins: Array,
    knots: Array,
    costs: Array,
    pairs: tuple[Array, Array, Array],
    *,
    worst: bool = False,
    delta: float = 0.0,
    epsilon: float | None = None,
) -> float:
    r"""Lower bound of Σ c·P (or of max_k c_k·P_k) over rows at `knots` with the given privacy.

    Parameters
    ----------
    costs : ndarray (K, m)
    pairs : (k, l, ratio)
        :math:`P_k \le \text{ratio} \cdot P_l`, up to slacks summing to `delta`.
    epsilon : float, optional
        Pure privacy instead of pairs: :math:`a \le P \le e^\varepsilon a`.
    """
    K, m = costs.shape
    N = K * m
    k, i = np.repeat(np.arange(K), m), np.tile(np.arange(m), K)
    point = np.arange(N)
    first, second, ratio = pairs
    blocks: list[list[tuple[Array, Array, Array]]] = []
    heights: list[Array] = []
    extra = 0
    if epsilon is not None:
        # Rounded up, so that the bounding program allows at least what the requirement does.
        rho = math.exp(epsilon) * (1 + 1e-14)
        blocks.append([(point, N + i, np.ones(N)), (point, point, -np.ones(N))])
        blocks.append([(point, point, np.ones(N)), (point, N + i, np.full(N, -rho))])
        heights += [np.zeros(N), np.zeros(N)]
        extra = m
    else:
        M = len(first) * m
        row = np.arange(M)
        high = np.repeat(first, m) * m + np.tile(np.arange(m), len(first))
        low = np.repeat(second, m) * m + np.tile(np.arange(m), len(first))
        block = [(row, high, np.ones(M)), (row, low, -np.repeat(ratio, m) * (1 + 1e-14))]
        if delta > 0:
            block.append((row, N + row, -np.ones(M)))
            pair = np.repeat(np.arange(len(first)), m)
            blocks.append([(pair, N + row, np.ones(M))])
            heights.append(np.full(len(first), delta * (1 + 1e-14)))
            extra = M
        blocks.append(block)
        heights.append(np.zeros(M))
    width = N + extra + (1 if worst else 0)
    cost, top = np.zeros(width), np.ones(width)
    if worst:
        blocks.append([(k, point, costs.ravel()), (np.arange(K), np.full(K, width - 1), -np.ones(K))])
        heights.append(np.zeros(K))
        cost[-1], top[-1] = 1.0, max(float(costs.max()), 0.0)
    else:
        cost[:N] = costs.ravel()

    def matrix(block: list[tuple[Array, Array, Array]], height: int) -> Matrix:
        r, c, v = (np.concatenate(part) for part in zip(*block))
        return sparse.csr_matrix((v, (r, c)), shape=(height, width))

    less = sparse.vstack([matrix(b, len(h)) for b, h in zip(blocks, heights)]).tocsr()
    equal = matrix([(k, point, np.ones(N)), (K + k, point, bins[i])], 2 * K)
    return safe_linear_bound(
        cost, equal, np.concatenate([np.ones(K), knots]), less, np.concatenate(heights), top
    )
