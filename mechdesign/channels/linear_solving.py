r"""Solving for the best local report: weights of rays by Newton's method, rays by their prices, and the relaxation without rays.

Over weights d ≥ 0 of rays u, scaled to mean 1, with :math:`\sum_y d_y u_y = 1` the mean variance is :math:`f(d) = \operatorname{tr}(G M^{-1})`,
:math:`M = \sum_y d_y u_y u_y^\top`: an A-optimal design of experiments. In the worst case M has the weights :math:`d_y / \pi \cdot u_y`, and
:math:`f - \sum_x \pi_x G_{xx}` is maximised over priors π, in which it is concave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import cvxpy as cp
import numpy as np
from scipy import linalg

from mechdesign.channels.linear_proofs import inequality
from mechdesign.model.unknown import named
from mechdesign.typing import Array


class Point(NamedTuple):
    """Weights of rays, and prices that prove how good they are.

    Attributes
    ----------
    weights : array, shape (n,)
        d.
    prices : array, shape (k,)
        ν, the multipliers of Σ d u = 1.
    prior : array, shape (k,)
        π; uniform where it is not sought.
    inverse : array, shape (k, k)
        M⁻¹.
    cost : float
        f(d), less the mean of G_xx over π where it is sought.
    residual : float
        How far Σ d u is from 1.
    last : tuple of (prices, prior, inverse)
        Of the last iterates: the bound of the last is not the best where M is nearly singular.
    """

    weights: Array
    prices: Array
    prior: Array
    inverse: Array
    cost: float
    residual: float
    last: tuple[tuple[Array, Array, Array], ...] = ()


def best_weights(gram: Array, rays: Array, start: Array, prior: Array, *, worst: bool) -> Point:
    """Minimise over the weights, and in the worst case maximise over the prior, by a primal-dual interior-point method.

    Parameters
    ----------
    gram : array, shape (k, k)
        G.
    rays : array, shape (n, k)
    start : array, shape (n,)
        Positive.
    prior : array, shape (k,)
        Positive; π to start from in the worst case.
    worst : bool
    """
    n, k = rays.shape
    scale, floor = 1.0, 1e-14 * np.eye(k)  # what no ray needs stays out of the inverse

    def moments(d: Array, pi: Array) -> tuple[Array, Array, Array, Array]:
        at = rays @ pi
        inverse = np.linalg.inv((rays.T * (d / at)) @ rays + floor)
        half = rays @ (inverse @ gram @ inverse)
        return at, np.asarray(inverse), half, np.asarray((half * rays).sum(axis=1))

    def residuals(z: list[Array], found: tuple[Array, ...], barrier: float) -> list[Array]:
        d, nu, left, pi, level, spare = z
        at, _, _, size = found
        parts = [rays @ nu - size / at - left, (rays.T @ d - 1) * scale, left * d - barrier]
        if worst:
            slope = rays.T @ (size * d / at**2) - np.diag(gram)
            parts += [level - slope - spare, (np.atleast_1d(pi.sum()) - 1) * scale, spare * pi - barrier]
        return parts

    found = moments(start, prior)
    scale = float((gram * found[1]).sum())
    steep = float((found[3] / found[0]).max())
    z = [start, np.full(k, steep), np.full(n, 0.01 * steep), prior, np.zeros(1), np.full(k, scale / k)]
    last: list[tuple[Array, Array, Array]] = []
    for _ in range(100):
        d, _, left, pi, _, spare = z
        at, inverse, half, size = found
        cost = float((gram * inverse).sum() - (pi @ np.diag(gram) if worst else 0.0))
        gap = d @ left + (spare @ pi if worst else 0.0)
        barrier = 0.1 * gap / (n + k * worst)
        parts = residuals(z, found, barrier)
        off = float(np.abs(parts[1]).max()) / scale
        last = [*last[-7:], (z[1], pi, inverse)]
        if gap < 1e-11 * scale and np.abs(parts[0]).max() < 1e-10 * steep and off < 1e-13:
            break
        curve = 2 * (rays @ inverse @ rays.T) * (half @ rays.T)
        total = n + k + (k + 1) * worst
        matrix, right = np.zeros((total, total)), np.zeros(total)
        matrix[:n, :n] = curve / np.outer(at, at)
        matrix[range(n), range(n)] += left / d
        matrix[:n, n : n + k], matrix[n : n + k, :n] = rays, rays.T
        right[:n], right[n : n + k] = -parts[0] - parts[2] / d, -parts[1] / scale
        if worst:
            p = slice(n + k, n + 2 * k)
            turn = -(d / at**2)[:, None] * rays
            cross = (curve @ turn) / at[:, None] + (size / at**2)[:, None] * rays
            matrix[:n, p], matrix[p, :n] = cross, -cross.T
            matrix[p, p] = (
                (rays.T * (2 * size * d / at**3)) @ rays - turn.T @ curve @ turn + np.diag(spare / pi)
            )
            matrix[p, -1] = matrix[-1, p] = 1.0
            right[p], right[-1:] = -parts[3] - parts[5] / pi, -parts[4] / scale
        try:
            step = np.linalg.solve(matrix, right)
        except np.linalg.LinAlgError:
            break
        moves = [step[:n], step[n : n + k], -(parts[2] + left * step[:n]) / d, 0 * pi, np.zeros(1), 0 * spare]
        if worst:
            moves[3:] = [
                step[n + k : n + 2 * k],
                step[-1:],
                -(parts[5] + spare * step[n + k : n + 2 * k]) / pi,
            ]
        signed = [(v, m) for i, (v, m) in enumerate(zip(z, moves)) if i in (0, 2, 3, 5)]
        length = min(1.0, *(0.99 * float(np.min(-v[m < 0] / m[m < 0], initial=np.inf)) for v, m in signed))
        before = sum(float(part @ part) for part in parts)
        for _ in range(25):
            tried = [v + length * m for v, m in zip(z, moves)]
            seen = moments(tried[0], tried[3])
            after = sum(float(part @ part) for part in residuals(tried, seen, barrier))
            if after <= (1 - 0.01 * length) * before:
                break
            length /= 2
        else:
            break
        z, found = tried, seen
    return Point(z[0], *last[-1], cost, off, tuple(last))


def climbed(matrix: Array, growth: float, starts: Array) -> Array:
    """Sets whose rays have a large uᵀ(matrix)u: from each start, the category that gains most changes sides until none gains.

    Parameters
    ----------
    matrix : array, shape (k, k)
    growth : float
        ρ: a ray is ρ on its set and 1 elsewhere.
    starts : array of 0 and 1, shape (n, k)
    """
    held, diagonal = starts.copy(), np.diag(matrix)
    for _ in range(4 * len(matrix)):
        points = 1 + (growth - 1) * held
        turn = (growth - 1) * (1 - 2 * held)
        gains = turn * (2 * points @ matrix + turn * diagonal)
        best = gains.argmax(axis=1)
        rows = np.flatnonzero(gains[np.arange(len(held)), best] > 1e-12 * np.abs(matrix).max())
        if not rows.size:
            break
        held[rows, best[rows]] = 1 - held[rows, best[rows]]
    sizes = held.sum(axis=1)
    return np.unique(held[(sizes > 0) & (sizes < len(matrix))], axis=0)


class Relaxed(NamedTuple):
    """Multipliers of the relaxation: what `LinearBound` is made of."""

    inverse: Array
    prices: Array
    squares: Array
    products: Array
    slack: float


def relaxation(gram: Array, growth: float) -> tuple[cp.Problem, float]:
    r"""The moments of rays without the rays, and the factor that its objective is scaled by.

    Let :math:`u = 1 + b w` with :math:`b = \min(1, \rho - 1)`, so that w is 0 or :math:`t = \max(1, \rho - 1)`, and let P, p and c be the sums of
    :math:`c_u w w^\top`, :math:`c_u w` and :math:`c_u` over weights c of rays. Then :math:`P_{ii} = t p_i`; products of :math:`w_i` and :math:`t - w_i` are not
    negative; :math:`\sum_u c_u u u^\top 1 = k 1`. The least :math:`\operatorname{tr}(G M^{-1})` of such moments is a lower bound.
    """
    k, basis = len(gram), contrasts(len(gram))
    unit, top = min(1.0, growth - 1), max(1.0, growth - 1)
    root, scale = scaled_root(gram)
    pairs, count = cp.Variable((k, k), symmetric=True, name="pairs"), cp.Variable((1, 1), name="count")
    spread = cp.Variable((len(root), len(root)), symmetric=True, name="spread")
    single = cp.reshape(cp.diag(pairs) / top, (k, 1), order="C")
    rows, upper, every = single @ np.ones((1, k)), np.triu_indices(k, 1), count[0, 0]
    sums = every + unit * (single[:, 0] + cp.sum(single) / k) + unit**2 * cp.sum(pairs, axis=1) / k
    constraints = [
        named("sums", sums == 1),
        named("moments", cp.bmat([[count, single.T], [single, pairs]]) >> 0),
        named("spread", cp.bmat([[spread, root], [root.T, basis.T @ pairs @ basis]]) >> 0),
        named("both", pairs[upper] >= 0),
        named("neither", (top**2 * every - top * (rows + rows.T) + pairs)[upper] >= 0),
        named("one", (top * rows - pairs)[upper] >= 0),
        named("other", (top * rows.T - pairs)[upper] >= 0),
    ]
    return cp.Problem(cp.Minimize(cp.trace(spread)), constraints), scale * unit**2


def scaled_root(gram: Array) -> tuple[Array, float]:
    """T, of independent rows, with TᵀT = G in the coordinates of `contrasts` times a factor that makes values about k; and that factor."""
    basis = contrasts(len(gram))
    values, vectors = np.linalg.eigh(basis.T @ gram @ basis)
    kept = values > 1e-12 * values[-1]
    scale = float((len(gram) / np.sqrt(values[kept]).sum()) ** 2)
    return np.asarray((vectors[:, kept] * np.sqrt(values[kept] * scale)).T), scale


def contrasts(size: int) -> Array:
    """An orthonormal basis of the vectors that sum to 0, in columns."""
    return np.asarray(linalg.helmert(size).T)


def multipliers(solved: Mapping[str, Array], scale: float, gram: Array, growth: float) -> Relaxed:
    """Multipliers from the duals of the solved relaxation, by name, and the slack that makes them valid."""
    k, basis, unit, top = len(gram), contrasts(len(gram)), min(1.0, growth - 1), max(1.0, growth - 1)
    upper = np.triu_indices(len(gram), 1)
    # of the cone of `spread` the multipliers are (I, -T S⁻¹; ·, ·) for its blocks T and S; S itself may be nearly singular
    root = scaled_root(gram)[0]
    inner = -np.linalg.pinv(root) @ solved["spread"][: len(root), len(root) :]
    inverse = basis @ inner @ basis.T / unit**2
    prices = solved["sums"] * np.sign(solved["sums"].sum()) / scale
    products = np.zeros((3, k, k))
    for at, name in enumerate(("both", "neither")):
        products[at][upper] = np.maximum(solved[name], 0.0) / 2 / scale
        products[at] += products[at].T
    products[2][upper] = np.maximum(solved["one"], 0.0) / scale
    products[2].T[upper] = np.maximum(solved["other"], 0.0) / scale
    quadratic, none = inverse.T @ gram @ inverse, np.zeros(k)
    linear = inequality(prices, none, products, quadratic, unit, top)[0, 1:]
    squares = 2 / top * (linear - solved["moments"][0, 1:] / scale)
    left = inequality(prices, squares, products, quadratic, unit, top)
    least = float(np.linalg.eigvalsh(left)[0])
    return Relaxed(inverse, prices, squares, products, max(0.0, -least) + 1e-9 * float(np.abs(left).max()))
