r"""The linear program of the optimal channel: its privacy rows, its declaration and its solution.

.. math::

    \min_C \; \sum_{x,y} π_x\, ℓ(x, y)\, C[x, y] \quad\text{s.t.}\quad
    C[x, y] \le e^{α d(x, x')}\, C[x', y], \quad \sum_y C[x, y] = 1, \quad C \ge 0 ,

with one variable per orbit of (x, y). A permutation σ of the points that preserves distances and costs, :math:`d(σx, σx') = d(x, x')` and
:math:`c(σx, σy) = c(x, y)` with :math:`c(x, y) = π_x ℓ(x, y)`, maps private channels to private channels of the same expected loss.
Their average over the group is private too (the constraints are convex), so some optimal channel is constant on orbits of pairs. An n × n
grid with the uniform prior has 8 symmetries, a clustered space :math:`(b!)^g g!`. Finding the group is a search, but finding too little
of it is safe: orbits of a subgroup only save less.

The constraint for (x, x') follows from those along a path from x to x' whose length
is d(x, x'), because losses add up. So only pairs that no third point lies between are needed (*essential pairs*), or, at a
price, only the edges of a *spanner*: a graph whose path lengths exceed d by a factor κ at most, with budget α/κ
(Bordenabe, Chatzikokolakis and Palamidessi 2014). Rounding makes "exactly between" a matter of 10⁻¹²; the solution is
therefore repaired and verified on *all* pairs in exact arithmetic (`mechdesign.channels.exact`).

HiGHS's simplex method solves the program. Of very many rows it is given those along a thin spanner first, then all that its
answer breaks, until none is broken: 2.6 × of time (median; at most 7.8 ×; results/ablations, metric-channel). There essential pairs bring
no time, as rows are generated; they keep the whole program of `model` and of other backends small. Another backend that is asked for gets the whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.solvers import Deadline, LinearProgram, Status
from mechdesign.solvers.deadline import too_late
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices

STEEP = 50.0  # αd above which e^{αd} is lowered to e^50 in the model: it binds probabilities of 10⁻²² only
SEED = 1.2  # stretch of the spanner whose rows come first where there are very many
_MANY = 10_000  # rows above which only those that bind are generated, measured on grids
_TOLERANCE = 1e-8  # what counts as broken then
MOST_ROWS = 5_000_000  # collecting them takes 1.3 s; a 20 × 20 grid with its symmetries has 4.7 million, a 15 × 15 grid without any 7


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


def greedy_spanner(
    space: MetricSpace, stretch: float, classes: Indices | None = None, *, deadline: Deadline | None = None
) -> Indices:
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
    for x, y in zip(first[order].tolist(), second[order].tolist()):
        if paths[x, y] <= stretch * distances[x, y]:
            continue
        same = [[x, y]]
        if classes is not None:
            members = classes == classes[x, y]
            same = np.argwhere(np.triu(members | members.T, 1)).tolist()
        for a, b in same:
            if not taken[a, b]:
                Deadline.of(deadline).hold("metric channel")
                taken[a, b] = True
                through = paths[:, a, None] + distances[a, b] + paths[None, b, :]
                np.minimum(paths, through, out=paths)
                np.minimum(paths, through.T, out=paths)
    return np.argwhere(taken)


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
        return np.exp(np.minimum(alpha * self.distance, STEEP) / 2)

    def lowered(self, alpha: float) -> NDArray[np.bool_]:
        """Where that was done."""
        return alpha * self.distance > STEEP

    def matrix(self, alpha: float) -> sparse.csr_matrix:
        """The rows' coefficients, balanced by e^{-αd/2} on both sides for the solver's sake."""
        each, half = np.arange(len(self.high)), self.half(alpha)
        entries = np.concatenate([1 / half, -half])
        places = np.concatenate([each, each]), np.concatenate([self.high, self.low])
        return sparse.csr_matrix((entries, places), shape=(len(each), self.variables))

    def broken(self, values: Array, alpha: float) -> Indices:
        """Rows, scaled to ``exp(-α·distance)·v[high] <= v[low]``, that the variables break."""
        return np.flatnonzero(values[self.high] / self.half(alpha) ** 2 - values[self.low] > _TOLERANCE)

    def thin(self, deadline: Deadline) -> Indices:
        """The rows along a spanner of small stretch, in either direction."""
        edges = greedy_spanner(self.space, SEED, self.pair_orbits, deadline=deadline)
        labels = self.pair_orbits[edges, edges[:, ::-1]]
        return np.flatnonzero(np.isin(self.pair, labels))


def privacy_rows(
    space: MetricSpace,
    orbits: Indices,
    pairs: Indices,
    spanner: float | None = None,
    *,
    deadline: Deadline | None = None,
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
    deadline : Deadline, optional

    Raises
    ------
    DesignError
        More than five million rows.
    SolverError
        They are not collected by the deadline.
    """
    distances = space.distances
    if spanner is None:
        edges, stretch = space.pairs_without_between(Deadline.of(deadline)), 1.0
    else:
        edges = greedy_spanner(space, spanner, pairs, deadline=deadline)
        stretch = graph_stretch(distances, edges)
    both = np.concatenate([edges, edges[:, ::-1]])
    labels, first = np.unique(pairs[both[:, 0], both[:, 1]], return_index=True)
    asked = len(labels) * orbits.shape[1]
    if asked > MOST_ROWS:
        remedy = f"must be at most {MOST_ROWS}; merge points, or give a spanner= of a larger stretch"
        raise DesignError.of("space", f"{space.size} items, {asked} rows of privacy", remedy)
    Deadline.of(deadline).hold("metric channel")
    chosen = both[first]
    reach = distances[chosen[:, 0], chosen[:, 1]]
    order = np.argsort(reach, kind="stable")
    chosen, labels, reach = chosen[order], labels[order], reach[order]
    count = int(orbits.max()) + 1
    high, low = orbits[chosen[:, 0]].ravel(), orbits[chosen[:, 1]].ravel()
    # Where two orbits meet at several distances, the shortest one, which comes first, says it all.
    keep = np.unique(high * count + low, return_index=True)[1]
    keep = keep[high[keep] != low[keep]]
    reach, pair = (np.repeat(each, orbits.shape[1]) for each in (reach, labels))
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


@dataclass(frozen=True, eq=False)
class Answer:
    """A solution of the program: nearly private, with nearly optimal multipliers.

    Attributes
    ----------
    matrix : array, shape (n, k)
    multipliers : array, shape (rows,)
        λ ≥ 0 of each privacy row, for ``v[high] - exp(α·distance)·v[low] <= 0``.
    free : array, shape (n, j), or None
        Multipliers of the equalities.
    report : SolveReport
    """

    matrix: Array
    multipliers: Array
    free: Array | None
    report: SolveReport


@dataclass(frozen=True, eq=False)
class ChannelProgram:
    r"""The program.

    Parameters
    ----------
    cost : array, shape (n, k)
        Prior times loss.
    equalities : pair of arrays, shapes (n, j) and (k, j), or None
        g and h of :math:`\sum_y C[x, y] h(y) = g(x)`.
    rows : PrivacyRows
    alpha : float
        The budget of its rows.
    """

    cost: Array
    equalities: tuple[Array, Array] | None
    rows: PrivacyRows
    alpha: float

    @cached_property
    def unit(self) -> float:
        """1, or a power of two near the loss of a constant report where that is far from 1: tolerances are absolute."""
        scale = float(np.abs(self.cost).sum(axis=0).min()) or float(np.abs(self.cost).max()) or 1.0
        power = math.frexp(scale)[1]
        return 1.0 if abs(power) <= 12 else math.ldexp(1.0, power)

    def declared(
        self, kept: Indices | None = None, *, solver: str | None = None, deadline: Deadline | None = None
    ) -> LinearProgram:
        """The linear program with all privacy rows, or with those that are kept, and costs in units of `unit`."""
        (n, k), rows = self.cost.shape, self.rows
        program = LinearProgram("metric channel", solver=solver, deadline=deadline)
        cost = np.bincount(rows.orbits.ravel(), self.cost.ravel(), rows.variables) / self.unit
        program.add_columns("channel", cost)
        # Rows of items in one orbit read the same: one of each is kept.
        row_sums = sparse.csr_matrix(
            (np.ones(n * k), (np.repeat(np.arange(n), k), rows.orbits.ravel())), shape=(n, rows.variables)
        )
        leaders = np.unique(np.diag(rows.pair_orbits), return_index=True)[1]
        program.add_rows("normalisation", {"channel": row_sums[leaders]}, lower=1.0, upper=1.0)
        if self.equalities is not None:
            query, values = self.equalities
            moments = sparse.kron(sparse.eye(n), sparse.csr_matrix(values.T), format="csr")
            program.add_rows("unbiased", {"channel": moments}, lower=query.ravel(), upper=query.ravel())
        if len(rows.high):
            chosen = rows if kept is None else rows.only(kept)
            program.add_rows("privacy", {"channel": chosen.matrix(self.alpha)}, upper=0.0)
        return program

    def solve(self, solver: str | None, deadline: Deadline) -> Answer:
        """Solve by HiGHS with the rows that bind, by another backend with all.

        Raises
        ------
        InfeasibleError
            The equalities cannot be met at this α.
        SolverError
            No backend answered, or none by the deadline.
        """
        try:
            return self._whole(solver, deadline) if solver not in (None, "highs") else self._grown(deadline)
        except InfeasibleError as error:
            if self.equalities is None:  # a constant channel is feasible
                raise SolverError(
                    f"{solver or 'highs'} calls a feasible program infeasible ({error.reason})",
                    solver=solver or "highs",
                    status="defect",
                ) from None
            remedy = "raise alpha, or let the reports' values reach further beyond the query's range"
            reason = f"no {self.alpha}-private channel meets the equalities ({error.reason}); {remedy}"
            raise InfeasibleError(reason) from None

    def _grown(self, deadline: Deadline) -> Answer:
        started, count = time.perf_counter(), len(self.rows.high)
        kept = np.arange(count) if count <= _MANY else self.rows.thin(deadline)
        program = self.declared(kept, deadline=deadline)
        equal = program.shape[0] - len(kept)
        while (status := program.solve()) is Status.OPTIMAL:
            broken = np.setdiff1d(self.rows.broken(program.x, self.alpha), kept)
            if not broken.size:
                break
            program.add_rows("privacy", {"channel": self.rows.only(broken).matrix(self.alpha)}, upper=0.0)
            kept = np.concatenate([kept, broken])
        if not program.x.size:
            raise too_late("metric channel")
        dual = program.row_dual
        duals = np.zeros(count)
        duals[kept[: len(dual) - equal]] = -dual[equal:]  # rows that came after the last solve have none
        constraints, variables = program.shape
        seconds, steps = time.perf_counter() - started, program.iterations
        report = SolveReport("highs", status, seconds, 0.0, variables, constraints, steps)
        return self._answer(program.x, duals, dual[:equal], report)

    def _whole(self, solver: str, deadline: Deadline) -> Answer:
        answer = self.declared(solver=solver, deadline=deadline).answer()
        duals, free = (answer.dual.get(name, np.zeros(0)) for name in ("privacy", "unbiased"))
        return self._answer(answer.primal["channel"], duals, -free, SolveReport.of(answer))

    def _answer(self, values: Array, duals: Array, equal: Array, report: SolveReport) -> Answer:
        """From the program's variables and the duals of its rows, those of the query last among the equalities'."""
        matrix = np.maximum(values, 0.0)[self.rows.orbits]
        multipliers = np.maximum(duals, 0.0) / self.rows.half(self.alpha) * self.unit
        # Any multiplier may be dropped: where rates were lowered it is no more than rounding's share.
        multipliers[self.rows.lowered(self.alpha)] = 0.0
        multipliers[multipliers < 1e-16 * max(float(multipliers.max(initial=0.0)), 1e-300)] = 0.0
        free = None
        if self.equalities is not None:
            query = self.equalities[0]
            free = equal[len(equal) - query.size :].reshape(query.shape) * self.unit
        return Answer(matrix / matrix.sum(axis=1, keepdims=True), multipliers, free, report)


_LEAVES = 50  # candidate permutations tried for one image of one base point before giving it up


def _labels(values: Array) -> Indices:
    """Integers that are equal where values agree up to 10⁻¹² of the largest one."""
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    gaps = np.diff(flat[order]) > 1e-12 * max(float(np.abs(flat).max()), 1e-300)
    labels = np.empty(flat.size, dtype=np.int64)
    labels[order] = np.concatenate([[0], np.cumsum(gaps)])
    return labels.reshape(values.shape)


def _classes(rows: Indices) -> Indices:
    """Integers that are equal where rows are equal."""
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def _base(table: Indices, colours: Indices) -> list[int]:
    """Points whose distances and costs to a point identify it (together with its colour)."""
    base: list[int] = []
    while colours.max() + 1 < len(table):
        sizes = np.bincount(colours)
        point = int(np.flatnonzero(colours == sizes.argmax())[0])
        base.append(point)
        mark = np.zeros(len(table), dtype=np.int64)
        mark[point] = 1
        colours = _classes(np.column_stack([colours, table[:, point], table[point], mark]))
    return base


def _candidates(table: Indices, colours: Indices, base: list[int], images: list[int]) -> list[int]:
    """Points that the next point of the base may be mapped to, given the images of those before it."""
    point, done = base[len(images)], base[: len(images)]
    fits = colours == colours[point]
    fits &= (table[:, images] == table[point, done]).all(axis=1)
    fits &= (table[images] == table[done, point][:, None]).all(axis=0)
    fits[images] = False
    return list(np.flatnonzero(fits).tolist())


def _leaves(table: Indices, colours: Indices, base: list[int], images: list[int]) -> Iterator[list[int]]:
    """Images of the whole base that extend `images` consistently, depth first."""
    if len(images) == len(base):
        yield images
        return
    for candidate in _candidates(table, colours, base, images):
        yield from _leaves(table, colours, base, [*images, candidate])


def _complete(table: Indices, colours: Indices, base: list[int], images: list[int]) -> Indices | None:
    """The permutation that extends base ↦ images, if it is an automorphism."""
    before = np.column_stack([colours, table[:, base], table[base].T])
    after = np.column_stack([colours, table[:, images], table[images].T])
    first, second = np.lexsort(before.T), np.lexsort(after.T)
    permutation = np.empty(len(table), dtype=np.int64)
    permutation[first] = second
    permutation[base] = images
    one_to_one = np.unique(permutation).size == len(table) and np.array_equal(colours[permutation], colours)
    same = one_to_one and np.array_equal(table[np.ix_(permutation, permutation)], table)
    return permutation if same else None


def automorphisms(distances: Array, cost: Array, *, deadline: Deadline | None = None) -> list[Indices]:
    """Generators of (a subgroup of) the permutations that preserve distances and costs.

    Base and strong generators in the manner of Schreier and Sims: the last base points are moved first, and a
    point already in the orbit of what is found needs no search.

    Parameters
    ----------
    distances, cost : arrays, shape (n, n)
    deadline : Deadline, optional

    Raises
    ------
    SolverError
        The search is not over by the deadline.

    Examples
    --------
    >>> import numpy as np
    >>> line = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    >>> automorphisms(line, line)
    [array([2, 1, 0])]
    """
    n = len(distances)
    table = _labels(distances) * (n * n) + _labels(cost)
    colours = _classes(np.column_stack([np.diag(table), np.sort(table, axis=1), np.sort(table.T, axis=1)]))
    base = _base(table, colours)
    found: list[Indices] = []
    for level in range(len(base) - 1, -1, -1):
        fixed, point = base[:level], base[level]
        orbit = _orbit(point, found)
        hopeless: set[int] = set()
        for image in _candidates(table, colours, base, fixed):
            if image in orbit or image in hopeless:
                continue
            for tried, images in enumerate(_leaves(table, colours, base, [*fixed, image])):
                Deadline.of(deadline).hold("metric channel")
                permutation = _complete(table, colours, base, images)
                if permutation is not None:
                    found.append(permutation)
                    orbit = _orbit(point, found)
                    break
                if tried >= _LEAVES:
                    break
            else:
                hopeless |= _orbit(image, found)
    return found


def _orbit(point: int, generators: list[Indices]) -> set[int]:
    seen, todo = {point}, [point]
    for here in todo:
        found = {int(generator[here]) for generator in generators} - seen
        seen |= found
        todo.extend(found)
    return seen


def pair_orbits(size: int, outputs: int, generators: list[Indices]) -> Indices:
    """Orbit number of every (x, y), shape (size, outputs); all different without generators."""
    if not generators:
        return np.arange(size * outputs, dtype=np.int64).reshape(size, outputs)
    nodes = np.arange(size * size)
    targets = [(g[:, None] * size + g[None, :]).ravel() for g in generators]
    places = np.tile(nodes, len(targets)), np.concatenate(targets)
    graph = sparse.coo_matrix(
        (np.ones(len(places[0]), dtype=np.int8), places), shape=(size * size, size * size)
    )
    labels = csgraph.connected_components(graph, directed=False)[1]
    return np.asarray(labels, dtype=np.int64).reshape(size, size)
