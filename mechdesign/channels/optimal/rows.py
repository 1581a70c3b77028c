r"""Which privacy constraints a metric channel needs.

The constraint for (x, x') follows from those along a path from x to x' whose length is d(x, x'), because
losses add up. So only pairs that no third point lies between are needed (*essential pairs*), or, at a price,
only the edges of a *spanner*: a graph whose path lengths exceed d by a factor κ at most, with budget α/κ
(Bordenabe, Chatzikokolakis and Palamidessi 2014).

Rounding makes "exactly between" a matter of 10⁻¹², so what these rows imply for the other pairs is not taken
on trust: the solution is repaired and verified on *all* pairs in exact arithmetic
(`mechdesign.channels.optimal.certificate`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from mechdesign.errors import DesignError
from mechdesign.problem.checks import number
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices

__all__ = ["PrivacyRows", "graph_stretch", "greedy_spanner", "privacy_rows", "spread_multipliers"]

_STEEP = 50.0  # αd above which e^{αd} is lowered to e^50 in the model: it binds probabilities of 10⁻²² only
_SEED = 1.2  # stretch of the spanner whose rows come first where there are very many


def graph_stretch(distances: Array, edges: Indices) -> float:
    """Largest ratio of path length along `edges`, shape (m, 2), to distance.

    Examples
    --------
    >>> square = MetricSpace.grid(2, 2)
    >>> round(graph_stretch(square.distances, np.array([[0, 1], [1, 3], [3, 2], [2, 0]])), 9)
    1.414213562
    """
    n = len(distances)
    if n == 1:
        return 1.0
    graph = sparse.csr_matrix((distances[edges[:, 0], edges[:, 1]], (edges[:, 0], edges[:, 1])), shape=(n, n))
    paths = csgraph.shortest_path(graph, directed=False)
    off = ~np.eye(n, dtype=bool)
    return max(1.0, float((paths[off] / distances[off]).max()))


def greedy_spanner(space: MetricSpace, stretch: float, classes: Indices | None = None) -> Indices:
    """Edges of the greedy `stretch`-spanner, shape (m, 2) with x < y.

    Pairs are taken by increasing distance; one is added when the graph so far joins it by no path shorter than
    `stretch` times its distance (Althöfer et al. 1993). With `classes` (orbit number of every pair) a pair brings its whole
    orbit with it, so that the spanner keeps the space's symmetry.

    Examples
    --------
    >>> len(greedy_spanner(MetricSpace.grid(3, 3), 1.5))
    12
    """
    distances = space.distances
    n = len(distances)
    first, second = np.triu_indices(n, 1)
    order = np.argsort(distances[first, second], kind="stable")
    paths = np.full((n, n), np.inf)
    np.fill_diagonal(paths, 0.0)
    taken = np.zeros((n, n), dtype=bool)
    members: dict[int, list[tuple[int, int]]] = {}
    if classes is not None:
        for x, y in zip(first.tolist(), second.tolist()):
            for label in {int(classes[x, y]), int(classes[y, x])}:
                members.setdefault(label, []).append((x, y))
    for k in order.tolist():
        x, y = int(first[k]), int(second[k])
        if paths[x, y] <= stretch * distances[x, y]:
            continue
        for a, b in [(x, y)] if classes is None else members[int(classes[x, y])]:
            if not taken[a, b]:
                taken[a, b] = True
                through = paths[:, a, None] + distances[a, b] + paths[None, b, :]
                np.minimum(paths, through, out=paths)
                np.minimum(paths, through.T, out=paths)
    return np.argwhere(taken)


def check_spanner(spanner: float | None) -> float | None:
    """Return the stretch as a float above 1, None for no spanner, or raise a `DesignError`."""
    if spanner is None:
        return None
    if (value := number("spanner", spanner)) < 1:
        raise DesignError.of("spanner", spanner, "must be a stretch >= 1 (1.1, say), or None for the optimum")
    return value


@dataclass(frozen=True, eq=False)
class PrivacyRows:
    """Rows ``v[high] - exp(α·distance)·v[low] <= 0`` over variables v, one per orbit of (item, report).

    Attributes
    ----------
    space : MetricSpace
    orbits : array of int, shape (n, k)
        Variable of every matrix entry.
    high, low : arrays of int, shape (m,)
    distance : array, shape (m,)
    pair : array of int, shape (m,)
        Orbit number of the pair of items the row comes from.
    pair_orbits : array of int, shape (n, n)
    stretch : float
        What the other pairs' distances are overestimated by; 1 without a spanner.
    edges : int
        Number of unordered pairs of items that are constrained directly.
    """

    space: MetricSpace
    orbits: Indices
    high: Indices
    low: Indices
    distance: Array
    pair: Indices
    pair_orbits: Indices
    stretch: float
    edges: int

    @property
    def variables(self) -> int:
        """Number of variables."""
        return int(self.orbits.max()) + 1

    def only(self, kept: Indices) -> PrivacyRows:
        """The same with some rows only."""
        taken = {name: getattr(self, name)[kept] for name in ("high", "low", "distance", "pair")}
        return replace(self, **taken)

    def half(self, alpha: float) -> Array:
        """e^{αd/2} of every row; rates that no solver in doubles tells from infinity are lowered: more is asked."""
        return np.exp(np.minimum(alpha * self.distance, _STEEP) / 2)

    def lowered(self, alpha: float) -> NDArray[np.bool_]:
        """Where that was done."""
        return alpha * self.distance > _STEEP

    def matrix(self, alpha: float) -> sparse.csr_matrix:
        """The rows' coefficients, balanced by e^{-αd/2} on both sides for the solver's sake."""
        each, half = np.arange(len(self.high)), self.half(alpha)
        return sparse.csr_matrix(
            (
                np.concatenate([1 / half, -half]),
                (np.concatenate([each, each]), np.concatenate([self.high, self.low])),
            ),
            shape=(len(each), self.variables),
        )

    def broken(self, values: Array, alpha: float, tolerance: float) -> Indices:
        """Rows, scaled to ``exp(-α·distance)·v[high] <= v[low]``, that the variables break by more."""
        return np.flatnonzero(values[self.high] / self.half(alpha) ** 2 - values[self.low] > tolerance)

    def thin(self) -> Indices:
        """The rows along a spanner of small stretch, in either direction."""
        edges = greedy_spanner(self.space, _SEED, self.pair_orbits)
        labels = self.pair_orbits[edges, edges[:, ::-1]]
        return np.flatnonzero(np.isin(self.pair, labels))


def privacy_rows(
    space: MetricSpace, orbits: Indices, pairs: Indices, spanner: float | None = None
) -> PrivacyRows:
    """Collect the rows for essential pairs or spanner edges, one per orbit of (x, x', y).

    Parameters
    ----------
    space : MetricSpace
    orbits : array of int, shape (n, k)
        Variable of every (item, report).
    pairs : array of int, shape (n, n)
        Orbit number of every pair of items, of the same group.
    spanner : float, optional
    """
    distances = space.distances
    if spanner is None:
        edges, stretch = np.asarray(space.essential_pairs), 1.0
    else:
        edges = greedy_spanner(space, spanner, pairs)
        stretch = graph_stretch(distances, edges)
    both = np.concatenate([edges, edges[:, ::-1]])
    labels, first = np.unique(pairs[both[:, 0], both[:, 1]], return_index=True)
    chosen = both[first]
    count = int(orbits.max()) + 1
    high, low = orbits[chosen[:, 0]].ravel(), orbits[chosen[:, 1]].ravel()
    reach = np.repeat(distances[chosen[:, 0], chosen[:, 1]], orbits.shape[1])
    pair = np.repeat(labels, orbits.shape[1])
    # Where two orbits meet at several distances, the shortest one says it all.
    key = high * count + low
    order = np.lexsort((reach, key))
    keep = order[np.concatenate([[True], np.diff(key[order]) > 0])] if len(order) else order
    keep = keep[high[keep] != low[keep]]
    return PrivacyRows(
        space, orbits, high[keep], low[keep], reach[keep], pair[keep], pairs, stretch, len(edges)
    )


def spread_multipliers(rows: PrivacyRows, multipliers: Array) -> tuple[Indices, Array]:
    """Multipliers of all (x, x', y) from those of the rows, shared equally within an orbit.

    Returns
    -------
    triples : array of int, shape (t, 3)
    values : array, shape (t,)
    """
    used = np.flatnonzero(multipliers > 0)
    count = rows.variables
    triples: list[Indices] = []
    values: list[Array] = []
    for label in np.unique(rows.pair[used]):
        mine = used[rows.pair[used] == label]
        key = rows.high[mine] * count + rows.low[mine]
        order = np.argsort(key)
        key, amount = key[order], multipliers[mine][order]
        x, other = np.nonzero(rows.pair_orbits == label)
        here = rows.orbits[x] * count + rows.orbits[other]
        place = np.minimum(np.searchsorted(key, here), len(key) - 1)
        hit = key[place] == here
        shares = np.bincount(place[hit], minlength=len(key))
        i, y = np.nonzero(hit)
        triples.append(np.column_stack([x[i], other[i], y]))
        values.append((amount / np.maximum(shares, 1))[place[hit]])
    if not triples:
        return np.zeros((0, 3), dtype=np.int64), np.zeros(0)
    return np.concatenate(triples), np.concatenate(values)
