r"""Items too near to tell apart: one row for all of them.

Rows C[x, ·] and C[x', ·] at :math:`αd(x, x') \le 10^{-9}` may differ by a factor :math:`1 + 10^{-9}` only, which is no
more than a solver in doubles leaves open; repairing its answer would cost :math:`1/αd` times what it left. So such items
(and chains of them) share their row, at the smallest of their distances to the others: a private channel of the merged
items is one of all items. The optimum hardly rises, and the lower bound is proved for the items themselves: the
multipliers of the merged program serve the nearest pairs, and reduced costs are levelled within each group, at a loss of
:math:`e^{αd} - 1` of what is moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csgraph

from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices

__all__ = ["Merged"]

_NEAR = 1e-9  # αd of items that share their row


@dataclass(frozen=True, eq=False)
class Merged:
    """Groups of near items.

    Attributes
    ----------
    space : MetricSpace
        The groups, at their smallest distances (along shortest paths).
    cost : array, shape (groups, k)
        Prior times loss, summed over each group.
    labels : array of int, shape (n,)
        Group of every item.
    """

    space: MetricSpace
    cost: Array
    labels: Indices

    @classmethod
    def of(cls, space: MetricSpace, alpha: float, cost: Array) -> Merged:
        """Merge the items that `alpha` cannot tell apart; nothing changes where there are none."""
        distances = space.distances
        count, labels = csgraph.connected_components(alpha * distances <= _NEAR, directed=False)
        if count == space.size:
            return cls(space, cost, np.arange(count))
        first = np.full((count, space.size), np.inf)
        np.minimum.at(first, labels, distances)
        least = np.full((count, count), np.inf)
        np.minimum.at(least, labels, first.T)
        np.fill_diagonal(least, 0.0)
        paths = np.minimum(least, least.T)
        for middle in range(count):
            paths = np.minimum(paths, paths[:, middle, None] + paths[middle])
        merged = np.zeros((count, cost.shape[1]))
        np.add.at(merged, labels, cost)
        return cls(MetricSpace(kind="matrix", matrix=paths, shape=(count,)), merged, labels)

    @classmethod
    def none(cls, space: MetricSpace, cost: Array) -> Merged:
        """Keep every item apart."""
        return cls(space, cost, np.arange(space.size))

    @property
    def first(self) -> Indices:
        """The first item of every group."""
        return np.unique(self.labels, return_index=True)[1]

    def rows(self, weights: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        """Every item's row from its group's."""
        return tuple(weights[label] for label in self.labels)

    def multipliers(
        self, space: MetricSpace, alpha: float, cost: Array, triples: Indices, values: Array
    ) -> tuple[Indices, Array]:
        """Multipliers of the items' privacy constraints from those of the groups'."""
        if len(self.labels) == self.space.size:
            return triples, values
        distances = space.distances
        members = [np.flatnonzero(self.labels == group) for group in range(self.space.size)]
        nearest = {}
        for a, b in set(map(tuple, triples[:, :2].tolist())):
            part = distances[np.ix_(members[a], members[b])]
            i, j = np.unravel_index(int(part.argmin()), part.shape)
            nearest[a, b] = int(members[a][i]), int(members[b][j])
        found = np.array([(*nearest[a, b], y) for a, b, y in triples.tolist()], dtype=np.int64).reshape(-1, 3)
        x, other, y = found.T
        reduced = cost.copy()
        np.add.at(reduced, (x, y), values)
        np.subtract.at(reduced, (other, y), values * np.exp(alpha * distances[x, other]))
        parts, amounts = [found], [values]
        for group in members:
            leader = group[0]
            for item in group[1:]:
                above = reduced[item] - reduced[group].mean(axis=0)
                growth = np.exp(alpha * distances[item, leader])
                for pair, amount in (((leader, item), above / growth), ((item, leader), -above)):
                    reports = np.flatnonzero(amount > 0)
                    parts.append(np.column_stack([np.tile(pair, (reports.size, 1)), reports]))
                    amounts.append(amount[reports])
        return np.concatenate(parts), np.concatenate(amounts)
