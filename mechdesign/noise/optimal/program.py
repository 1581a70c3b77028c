r"""The linear program of the optimal noise on a line of cells, declared, and solved with generated cuts.

Unknown masses p on cells i = 0..L-1, free masses in the two infinite tails, and a spike of mass a at the centre.
For every signed shift s of at most n cells

.. math:: a + \sum_i [p_i - e^{\varepsilon} p_{i+s}]_+ + \Big[\sum_{i:\, i+s \text{ in the tail}} p_i
          - e^{\varepsilon} p_\text{tail}\Big]_+ \le \delta .

`lattice_model` declares it for any list of shifts, the positive parts as variables. `LatticeProgram` starts from the
model of the largest shift alone; the sums of the others are maxima over sets of cells and join as the sets that the
current solution violates. Each such relaxation gives valid multipliers; how they are turned into a proof is in
`mechdesign.noise.optimal.lattice_dual`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import sparse

from mechdesign.noise.optimal.lattice_dual import Multiplier
from mechdesign.solvers import GrowingProgram, Model
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices, Status

__all__ = ["LatticeProgram", "Line", "lattice_model"]

_LARGEST_EPSILON = 21.0


@dataclass(frozen=True, eq=False)
class Line:
    """The cells of a lattice program and the variables they share.

    Parameters
    ----------
    owner : ndarray of int, shape (L,)
        Variable of each cell: mirrored cells share one when the loss is even.
    factor : ndarray, shape (L,)
        Mass of the cell in units of its variable: 1, and the decay of repeated periods in geometric tails.
    mass : ndarray, shape (V,)
        Mass of all cells that a variable stands for, the unlisted ones of geometric tails included.
    shift : int
        n: cells per sensitivity.
    mirrored : bool
        Whether the line is its own mirror image, so that positive shifts suffice.
    tailed : bool
        Whether mass may lie in the tails beyond the line.
    """

    owner: Indices
    factor: Array
    mass: Array
    shift: int
    mirrored: bool
    tailed: bool = False

    @cached_property
    def masses(self) -> Array:
        """Mass per unit of every unknown: the variables of cells, of the tails, and the spike."""
        tails = ([2.0] if self.mirrored else [1.0, 1.0]) if self.tailed else []
        return np.concatenate([self.mass, tails, [1.0]])

    def signed(self, shifts: Sequence[int]) -> list[int]:
        """The shifts that need a sum of their own."""
        return list(shifts) if self.mirrored else [s for k in shifts for s in (k, -k)]

    def lost(self, s: int) -> slice:
        """Cells whose partner at shift `s` lies in a tail."""
        return slice(len(self.owner) - s, None) if s > 0 else slice(0, -s)

    def _tail(self, s: int) -> int:
        return len(self.mass) if s > 0 or self.mirrored else len(self.mass) + 1

    def _pairs(self, s: int) -> tuple[slice, slice]:
        """Cells whose partner at shift `s` is a cell, and the partners."""
        length = len(self.owner)
        return slice(max(0, -s), length - max(0, s)), slice(max(0, s), length - max(0, -s))

    def terms(self, s: int, x: Array, growth: float) -> Array:
        """What [·]₊ is taken of at one shift: a value per cell (0 where its partner is a tail), the tail's last."""
        p = x[self.owner] * self.factor
        here, there = self._pairs(s)
        out = np.zeros(len(p) + 1)
        out[:-1][here] = p[here] - growth * p[there]
        out[-1] = p[self.lost(s)].sum() - (growth * x[self._tail(s)] if self.tailed else 0.0)
        return out

    def row(self, s: int, weights: Array, growth: float) -> Array:
        """The weighted sum of the terms of one shift, as coefficients of the unknowns."""
        here, there = self._pairs(s)
        cells = np.zeros(len(self.owner))
        cells[here] = weights[:-1][here]
        cells[self.lost(s)] += weights[-1]
        cells[there] -= growth * weights[:-1][here]
        out: Array = np.bincount(self.owner, cells * self.factor, len(self.masses)).astype(float)
        if self.tailed:
            out[self._tail(s)] -= growth * weights[-1]
        return out

    def rows(self, s: int, growth: float) -> sparse.csr_array:
        """All terms of one shift, a row each; those that are never positive are left empty."""
        length, every = len(self.owner), np.arange(len(self.owner))
        here, there = (every[k] for k in self._pairs(s))
        apart = self.owner[here] != self.owner[there]
        here, there, lost = here[apart], there[apart], every[self.lost(s)]
        row = [here, here, np.full(len(lost), length)]
        column = [self.owner[here], self.owner[there], self.owner[lost]]
        value = [self.factor[here], -growth * self.factor[there], self.factor[lost]]
        if self.tailed:
            row.append(np.array([length]))
            column.append(np.array([self._tail(s)]))
            value.append(np.array([-growth]))
        entries = (np.concatenate(value), (np.concatenate(row), np.concatenate(column)))
        return sparse.csr_array(entries, shape=(length + 1, len(self.masses)))


def lattice_model(line: Line, cost: Array, *, epsilon: float, delta: float, shifts: Sequence[int]) -> Model:
    """Declare the program with the privacy rows of the given shifts.

    Parameters
    ----------
    line : Line
    cost : ndarray
        Cost per unit of every unknown: cells, tails, spike.
    epsilon, delta : float
    shifts : sequence of int
        Positive shifts in cells; all of 1..n make it the whole program.
    """
    x = cp.Variable(len(cost), nonneg=True, name="masses")
    normalisation = line.masses @ x == 1
    parts, sums = [], []
    for s in line.signed(shifts):
        terms = line.rows(s, math.exp(epsilon))
        if delta > 0:
            excess = cp.Variable(terms.shape[0], nonneg=True)
            parts.append(terms @ x <= excess)
            sums.append(cp.sum(excess) + x[-1] <= delta)
        else:
            parts.append((terms if line.tailed else terms[:-1]) @ x <= 0)
    if delta == 0:
        sums.append(x[-1] <= 0)
    problem = cp.Problem(cp.Minimize(cost @ x), [normalisation, *parts, *sums])
    return Model(
        problem, {"masses": x}, {"normalisation": normalisation, "privacy": parts, "privacy sums": sums}
    )


class LatticeProgram:
    """One lattice program, grown by cuts and solved again from its last basis.

    Parameters
    ----------
    line : Line
    cost : ndarray
        As in `lattice_model`.
    epsilon, delta : float
    deadline : Deadline
    """

    def __init__(self, line: Line, cost: Array, *, epsilon: float, delta: float, deadline: Deadline) -> None:
        # A solver's numbers end before e^ε does; a smaller factor is only more private, and any multipliers are valid.
        epsilon = min(epsilon, _LARGEST_EPSILON)
        self.line, self.delta, self.growth = line, delta, math.exp(epsilon)
        self._model = lattice_model(line, cost, epsilon=epsilon, delta=delta, shifts=[line.shift])
        tight = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
        self.program = GrowingProgram(self._model, what="lattice program", deadline=deadline, **tight)
        self._columns = self.program.columns("masses")
        self._shifts = line.signed(range(1, line.shift + 1))
        self._cuts: list[tuple[int, int, Array]] = []  # row, shift, terms of its set
        self._listed: dict[int, Any] = {}  # with δ = 0: the terms that have a row
        self.x: Array | None = None

    def reprice(self, cost: Array) -> None:
        """Continue with other costs and closed tails: rows that held hold."""
        self.program.set_cost(self._columns, cost)
        tails = self._columns[len(self.line.mass) : -1]
        self.program.add_rows(np.ones((1, len(tails))), tails, upper=0.0)

    def solve(self, tolerance: float) -> Status:
        """Add cuts until no shift is violated by more than `tolerance`; `x` is the last solution, if any."""
        while True:
            status = self.program.solve()
            if status is not Status.OPTIMAL:
                return status
            self.x = self.program.primal("masses")
            violated = []
            for s in self._shifts:
                value = self.line.terms(s, self.x, self.growth)
                if not (self.line.tailed or self.delta > 0):
                    value[-1] = 0.0  # geometric tails are on the line itself
                inside = value > 0
                excess = float(value[inside].sum() + self.x[-1]) - self.delta
                if excess > tolerance:
                    violated.append((excess, s, inside))
            violated.sort(key=lambda v: -v[0])
            if not violated or not self._add([v[1:] for v in violated[: max(10, self.line.shift // 3)]]):
                return status

    def _add(self, violated: list[tuple[int, Any]]) -> int:
        """Add a row per set; with δ = 0, where every term is a constraint of its own, a row per new term."""
        if self.delta > 0:
            sets: list[tuple[int, Any]] = violated
            rows = np.array([self.line.row(s, inside.astype(float), self.growth) for s, inside in sets])
            rows[:, -1] += 1
            added = self.program.add_rows(rows, self._columns, upper=self.delta)
        else:
            sets, blocks = [], []
            for s, inside in violated:
                listed = self._listed.setdefault(s, np.zeros_like(inside))
                new = np.flatnonzero(inside & ~listed)
                listed[new] = True
                sets += [(s, k) for k in new]
                blocks.append(self.line.rows(s, self.growth)[new])
            if not sets:
                return 0
            terms = sparse.vstack(blocks, format="csr")
            where = (terms.data, self._columns[terms.indices], terms.indptr)
            added = self.program.add_rows(
                sparse.csr_array(where, shape=(len(sets), self.program.shape[1])), upper=0.0
            )
        self._cuts += [(int(row), s, cells) for row, (s, cells) in zip(added, sets)]
        return len(sets)

    @property
    def tail(self) -> float:
        """Mass that the last solution hides in the tails."""
        ends = slice(len(self.line.mass), -1)
        return 0.0 if self.x is None else float(self.line.masses[ends] @ self.x[ends])

    def multipliers(self) -> list[Multiplier]:
        """The dual weights of the last solve, a `Multiplier` per shift that carries any."""
        if self.x is None:
            return []
        length = len(self.line.owner)
        psi = {s: np.zeros(length + 1) for s in self._shifts}
        total = dict.fromkeys(self._shifts, 0.0)
        duals = np.maximum(-self.program.row_dual, 0.0)
        for row, s, cells in self._cuts:
            if row < duals.size and duals[row] > 0:  # the last rows may not have been solved with
                psi[s][cells] += duals[row]
                total[s] += float(duals[row])
        start = 1
        height = length + 1 if self.delta > 0 or self.line.tailed else length
        blocks = self.line.signed([self.line.shift])
        for k, s in enumerate(blocks):
            psi[s][:height] += duals[start : start + height]
            start += height
            if self.delta > 0:
                total[s] += float(duals[1 + len(blocks) * height + k])
        for s, weights in psi.items():  # the tail's term stands for every cell that is sent there
            weights[:length][self.line.lost(s)] += weights[-1]
        return [Multiplier(s, v[:-1], total[s]) for s, v in sorted(psi.items()) if v.any()]
