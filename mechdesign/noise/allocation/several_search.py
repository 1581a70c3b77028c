r"""The allocation under several bounds by constraint generation: changes listed, the best noise against them, a worse change.

Noise that keeps the budget on listed changes alone costs no more than the best noise: a lower bound, and the mix of them that
proves it maximises the concave :math:`\sum_i W_i^{1-q} (\sum_k w_k |v_{ki}|^m)^q`. Scaled until it keeps the budget on *every*
change, by the prices or by filling one norm, it is an answer; the changes on which it spends most join the list.
"""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np

from mechdesign import solvers
from mechdesign.errors import SolverError
from mechdesign.noise.allocation.filling import MOST_FILLED, most_filled
from mechdesign.noise.allocation.mixes import Among, mixed
from mechdesign.noise.allocation.several import Changes, Prices
from mechdesign.solvers import Deadline, Model
from mechdesign.typing import Array, Indices

__all__ = ["Listing", "whole_changes"]

_JOIN = 20
"""Changes that join the list in a round."""
_NOISE = 0.1
"""Spread of the logarithms by which orders of filling are shuffled."""
_AGE = 5
"""Rounds without weight after which a change leaves the list."""
_SHAPES = ((1.0, 1.0), (1.0, 0.5), (1.0, 2.0), (0.5, 1.0), (0.0, 1.0))
"""Multiples of the prices of L₁ and L₂² at which Laplace noise finds the sizes of its changes."""
_NEGLIGIBLE = 1e-9


def whole_changes(asked: Changes, orders: Indices, sizes: Array | None = None) -> Array:
    """Changes that are whole in one coordinate after another, as far as the bounds go: orders and changes of shape (N, K).

    With `sizes` the first c of each order change in proportion to these, as much as the bounds allow.
    """
    rows, (n, count) = np.arange(len(orders)), orders.shape
    top, a = float(asked.sizes.max()), asked.sizes / asked.sizes.max()
    most = asked.changed or count, (asked.l1 or math.inf) / top, (asked.l2 or math.inf) / top
    found = np.zeros((n, count))
    if sizes is not None:
        np.put_along_axis(found, orders[:, : most[0]], (sizes / top)[orders[:, : most[0]]], axis=1)
        found /= np.maximum(found.max(axis=1, keepdims=True), 1e-300)
        low, high = np.zeros((n, 1)), np.full((n, 1), 2.0**40)
        for _ in range(60):
            middle = np.where(low > 0, np.sqrt(low * high), 2.0**-40)
            v = np.minimum(a * (found > 0), middle * found)
            fits = (v.sum(axis=1) <= most[1]) & (np.sqrt((v * v).sum(axis=1)) <= most[2])
            low, high = np.where(fits[:, None], middle, low), np.where(fits[:, None], high, middle)
        return np.minimum(a * (found > 0), low * found) * (1 - 1e-15) * top
    number, one, two = np.zeros(n), np.zeros(n), np.zeros(n)
    for at in orders.T:
        room = np.minimum(
            most[1] - one, np.sqrt(np.maximum(most[2] ** 2 - two, 0.0)) if asked.l2 else math.inf
        )
        v = np.minimum(a[at], np.maximum(room, 0.0))
        v[(number >= most[0]) | (v < _NEGLIGIBLE * a[at])] = 0.0
        found[rows, at] = v
        number, one, two = number + (v > 0), one + v, two + v * v
    return found * top


class Listing:
    """The list, what noise against it costs at least, and the next changes.

    Parameters
    ----------
    asked : Changes
    order : float
        p of the loss.
    weight : ndarray or None
        Of the loss.
    shares : ndarray, shape (K,)
        How often each coordinate should change, more or less.
    """

    def __init__(
        self,
        asked: Changes,
        order: float,
        weight: Array | None,
        shares: Array,
    ) -> None:
        self.asked = asked
        self.at = np.flatnonzero(asked.sizes)
        self.rng = np.random.default_rng(0)
        self.order = order
        self.weight = np.ones(len(self.at)) if weight is None else weight[self.at] / weight.max()
        self.inner = Changes(asked.sizes[self.at], asked.spend, asked.changed, asked.l1, asked.l2)
        count = len(self.at)
        each: Indices = np.argsort(-np.eye(count), axis=1, kind="stable")
        by_size: Indices = np.argsort(-self.inner.sizes, kind="stable")
        orders = [each, self._drawn(shares[self.at], by_size)]
        orders += [
            self._drawn(shares[self.at], self.rng.permutation(count)) for _ in range(max(1, 240 // count))
        ]
        self.found = self._changes(np.concatenate(orders), [np.ones(count)])
        self.age = np.zeros(len(self.found), dtype=int)

    def _drawn(self, shares: Array, order: Indices) -> Indices:
        """Orders that begin with the coordinates of each change drawn from the shares, as they lie."""
        ends = np.append(0.0, np.cumsum(shares[order]))
        points = np.unique(np.append(ends[:-1] % 1, [0.0, 1.0]))
        u = (points[1:] + points[:-1])[:, None] / 2
        hit = np.floor(ends[None, 1:] - u) > np.floor(ends[None, :-1] - u)
        keys = hit + self.rng.random(hit.shape)
        return np.asarray(order[np.argsort(-keys, axis=1)])

    def _changes(self, orders: Indices, sizes: list[Array]) -> Array:
        """Changes of the coordinates that need noise; of the given sizes too where L₂ makes these the worst for Laplace noise."""
        curved = self.inner.spend == 1 and self.inner.l2 is not None
        found = [whole_changes(self.inner, orders, b) for b in (None, *(sizes if curved else []))]
        return np.unique(np.concatenate(found), axis=0)

    def best(self, scales: Array, deadline: Deadline) -> tuple[Array, Among]:
        """The worst mix of the list, with its changes and weights, by the program in logarithms of the scales over those given."""
        s, m = scales[self.at], self.asked.spend
        shares = self.weight * (s / s.max()) ** self.order
        spent = (self.found / s) ** m
        u = cp.Variable(len(s), name="log_scales")
        kept = spent / spent.sum(axis=1).max() @ cp.exp(-m * u) <= 1
        program = cp.Problem(cp.Minimize(shares / shares.sum() @ cp.exp(self.order * u)), [kept])
        model = Model(program, {"log_scales": u}, {"changes": kept})
        dual = solvers.solve(model, "clarabel", fallback=False, time_limit=deadline.limit()).dual
        weights = np.maximum(np.ravel(dual["changes"]), 0.0)
        used = weights > _NEGLIGIBLE * weights.max()
        self.age = np.where(used, 0, self.age + 1)
        changes = np.zeros((int(used.sum()), len(self.asked.sizes)))
        changes[:, self.at] = self.found[used]
        among = Among(changes, weights[used] / weights[used].sum())
        mix = mixed(self.asked, among)
        if mix is None:
            raise SolverError("no weights of the changes were found", solver="clarabel", status="none")
        return mix, among

    def join(self, scales: Array, prices: Prices, filled: tuple[str, Prices] | None) -> bool:
        """Add the worst changes found at these scales, by filling in orders of worth; whether there was a new one."""
        a, s, m = self.inner.sizes, scales[self.at], self.inner.spend
        one, two, three = prices
        gain = (a / s) ** m
        sizes, shapes = a, []
        if m == 1:
            steep = three or float((1 / s).max()) / (2 * float(a.max()))
            shapes = [
                np.minimum(np.maximum(1 / s - x * two, 1e-3 / s) / (2 * y * steep), a) for x, y in _SHAPES
            ]
            sizes = shapes[0] if three > 0 else a
            gain = sizes / s
        paid = one + two * sizes + three * sizes * sizes
        worth = np.log(gain) - np.log(np.maximum(paid, 1e-300 + 1e-9 * paid.max()))
        keys = worth + _NOISE * self.rng.gumbel(size=(5 * _JOIN, len(a))) * self.rng.choice(
            [0.1, 1.0], size=(5 * _JOIN, 1)
        )
        orders = [np.argsort(-keys, axis=1), np.argsort(-worth)[None, :]]
        if filled is not None and len(a) <= MOST_FILLED:
            first = most_filled(self.inner, s, filled[1], filled[0])[1]
            rest = np.argsort(-worth)
            orders.append(np.append(first, rest[~np.isin(rest, first)]).astype(int)[None, :])
        new = self._changes(np.concatenate(orders), shapes)
        spent = ((new / s) ** m).sum(axis=1)
        new = new[np.argsort(-spent)[:_JOIN]]
        young = self.age < _AGE
        kept, known = self.found[young], {row.tobytes() for row in self.found[young]}
        added = np.array([row.tobytes() not in known for row in new])
        self.found = np.concatenate([kept, new[added]])
        self.age = np.append(self.age[young], np.zeros(int(added.sum()), dtype=int))
        return bool(added.any())
