r"""A private channel and a lower bound without a program: what there is where time is too short for one.

**Channel.** :math:`C[x, y] ∝ e^{-α ℓ'(x, y)/2}` is private if :math:`|ℓ'(x, y) - ℓ'(x', y)| \le d(x, x')`: the distance for as
many reports as items (at the largest rate that is private), else the loss divided by its Lipschitz constant. Each report is then replaced by the one that costs
least given it. A constant report is private too.

**Bound.** For two items at distance d, :math:`ρ = e^{αd}`, with costs a(y), b(y), rows p and q with
:math:`p \le ρ q`, :math:`q \le ρ p` are mixtures of (ρ, 1) and (1, ρ) at single reports, so

.. math:: \sum_y a p + b q \ge \frac{\min_y (ρ a + b) + \min_y (a + ρ b)}{1 + ρ} ,

and the multipliers that prove it are given in closed form. Every item's cost is halved, and the items are paired
twice by a permutation of the largest sum.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize

from mechdesign.channels.channel import exponential_rate
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices

__all__ = ["closed_channel", "pair_multipliers"]

_FAR = 600.0  # αd beyond which e^{-αd} is not followed
_APART = 30.0  # αd beyond which two items are as good as told apart


def closed_channel(space: MetricSpace, alpha: float, cost: Array, losses: Array) -> Array:
    """Return the table of the better of two private channels, shape (n, k), to be made exact.

    Examples
    --------
    >>> space = MetricSpace.line([0.0, 1.0])
    >>> closed_channel(space, 2.0, space.distances / 2, space.distances).round(3)
    array([[0.881, 0.119],
           [0.119, 0.881]])
    """
    near, rate, (n, k) = space.distances, alpha / 2, cost.shape
    if n == k:
        rate = exponential_rate(near, alpha)
    else:
        near = losses / max(_steepest(space, losses), 1e-300)
    kernel = np.exp(-np.minimum(rate * (1 - 1e-9) * (near - near.min(axis=1, keepdims=True)), _FAR))
    table = kernel / kernel.sum(axis=1, keepdims=True)
    best = (table.T @ cost).argmin(axis=1)
    channel, constant = np.zeros((n, k)), np.zeros((n, k))
    np.add.at(channel.T, best, table.T)
    constant[:, cost.sum(axis=0).argmin()] = 1.0
    return min((channel, constant), key=lambda table: float((table * cost).sum()))


def _steepest(space: MetricSpace, losses: Array) -> float:
    """How much a loss changes at most per unit of distance."""
    changes = np.array([np.abs(losses - row).max(axis=1) for row in losses])
    apart = space.distances > 0
    return float((changes[apart] / space.distances[apart]).max(initial=0.0))


def pair_multipliers(space: MetricSpace, alpha: float, cost: Array) -> tuple[Indices, Array]:
    """Return triples (x, x', y), shape (t, 3), and multipliers of their privacy constraints that prove the bound.

    Examples
    --------
    >>> space = MetricSpace.line([0.0, 1.0])
    >>> triples, multipliers = pair_multipliers(space, 2.0, space.distances / 2)
    >>> triples.tolist(), multipliers.round(3).tolist()
    ([[0, 1, 0], [1, 0, 1], [1, 0, 1], [0, 1, 0]], [0.03, 0.03, 0.03, 0.03])
    """
    far = alpha * space.distances
    ratio = np.exp(np.minimum(far, _APART))
    gains = np.array([np.add(*_ends(ratio[x], row, cost)) for x, row in enumerate(cost)])
    gains -= np.add.outer(cost.min(axis=1), cost.min(axis=1))
    gains[(far >= _APART) | (far == 0)] = 0.0
    parts, amounts = [np.zeros((0, 3), dtype=np.int64)], [np.zeros(0)]
    for x, other in zip(*optimize.linear_sum_assignment(-gains)):
        if gains[x, other] <= 0:
            continue
        u, v = (float(part[0]) for part in _ends(ratio[x, [other]], cost[x], cost[[other]]))
        for pair, least, row in (((x, other), u, cost[x]), ((other, x), v, cost[other])):
            short = (least - row) / 2
            at = np.flatnonzero(short > 0)
            parts.append(np.column_stack([np.tile(pair, (at.size, 1)), at]))
            amounts.append(short[at])
    return np.concatenate(parts), np.concatenate(amounts)


def _ends(ratio: Array, row: Array, rows: Array) -> tuple[Array, Array]:
    """u and v of largest sum with ρu + v ≤ ρa + b and u + ρv ≤ a + ρb for all reports: a `row` against each of `rows`."""
    first = (ratio[:, None] * row + rows).min(axis=1)
    second = (row + ratio[:, None] * rows).min(axis=1)
    scale = np.where(ratio > 1, ratio**2 - 1, 1.0)
    return (ratio * first - second) / scale, (ratio * second - first) / scale
