"""The linear program on a lattice of cells: declared whole, and grown by cuts from its largest shift.

Unknowns are the masses of cells, two free tails and a spike (`Line` says which cells share one); each shift s and each point
(ε, δ) bounds a sum of positive parts by δ. `lattice_model` declares these with a variable for each part. `LatticeProgram` starts
from the model of the largest shift alone: the sums of the others are maxima over sets of cells, and join as the sets that
the current solution violates (all by sets alone took 90 times as long).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import cvxpy as cp
import numpy as np
import numpy.typing as npt
from scipy import sparse

from mechdesign.solvers import LinearProgram, Model
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices, Status

Points: TypeAlias = Sequence[tuple[float, float]]
_Place: TypeAlias = tuple[int, int]
"""A signed shift, and the number of the point."""
_Terms = npt.NDArray[np.bool_] | int
"""Of one shift: which terms are summed, or the one that is constrained."""


def cell_line(count: int, n: int, mirrored: bool, *, half: bool = False, tailed: bool = False) -> Line:
    owner = np.arange(count)
    if mirrored:
        position = owner - count // 2
        owner = np.where(position >= 0, position, -1 - position) if half else np.abs(position)
    return Line(owner, np.ones(count), np.bincount(owner).astype(float), n, mirrored, tailed)


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
    sums : ndarray, optional
        How often the excess of a cell counts, where tails are geometric: that of a period for all its repetitions.
    """

    owner: Indices
    factor: Array
    mass: Array
    shift: int
    mirrored: bool
    tailed: bool = False
    sums: Array | None = None

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

    def rows(self, s: int, growth: float, *, ends: bool, summed: bool = False) -> sparse.csr_array:
        """What [·]₊ is taken of at one shift: a row per cell, empty where it is never positive, and one for the tail.

        The last is empty unless the line `ends`: geometric tails are on the line itself, times `sums` where rows are `summed`.
        """
        length, every = len(self.owner), np.arange(len(self.owner))
        here = every[max(0, -s) : length - max(0, s)]
        there = here + s
        apart = self.owner[here] != self.owner[there]
        here, there, lost = here[apart], there[apart], every[self.lost(s)] if ends else every[:0]
        row = [here, here, np.full(len(lost), length)]
        column = [self.owner[here], self.owner[there], self.owner[lost]]
        value = [self.factor[here], -growth * self.factor[there], self.factor[lost]]
        if self.tailed:
            row.append(np.array([length]))
            column.append(np.array([self._tail(s)]))
            value.append(np.array([-growth]))
        entries = (np.concatenate(value), (np.concatenate(row), np.concatenate(column)))
        found = sparse.csr_array(entries, shape=(length + 1, len(self.masses)))
        return (
            found
            if self.sums is None or not summed
            else sparse.csr_array(sparse.diags_array(np.append(self.sums, 1.0)) @ found)
        )


def lattice_model(line: Line, cost: Array, *, points: Points, shifts: Sequence[int]) -> Model:
    """Declare the program with the privacy rows of the given shifts, a block for each point.

    Parameters
    ----------
    line : Line
    cost : ndarray
        Cost per unit of every unknown: cells, tails, spike.
    points : sequence of (ε, δ)
    shifts : sequence of int
        Positive shifts in cells; all of 1..n make it the whole program.
    """
    x = cp.Variable(len(cost), nonneg=True, name="masses")
    normalisation = line.masses @ x == 1
    parts, sums, bounded = [], [], all(delta > 0 for _, delta in points)
    for (epsilon, delta), s in itertools.product(points, line.signed(shifts)):
        terms = line.rows(s, math.exp(epsilon), ends=line.tailed or bounded)
        excess = cp.Variable(terms.shape[0], nonneg=True)
        parts.append(terms @ x <= excess)
        sums.append(cp.sum(excess) + x[-1] <= delta)
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
    points : sequence of (ε, δ)
    deadline : Deadline
    units : ndarray, optional
        What the unknown masses are multiples of; 1 when not given.
    mass : float
        Of all cells, in the solver's numbers.
    tolerance : float
        Of the solver.
    """

    def __init__(
        self,
        line: Line,
        cost: Array,
        *,
        points: Points,
        deadline: Deadline,
        units: Array | None = None,
        mass: float = 1.0,
        tolerance: float = 1e-9,
    ) -> None:
        units = np.ones(len(cost)) if units is None else units
        self.mass, self.units = mass, units
        self.line, self.deltas = line, [delta for _, delta in points]
        # of a row: what is summed is in units of δ, what is a constraint of its own in those of its first mass
        first = units[line.owner]
        self._own = [
            np.ones(len(first) + 1) if delta else np.append(first, units[-2] * math.exp(epsilon))
            for epsilon, delta in points
        ]
        # in units of a staircase neighbours are near e^{-ε} to e^ε of each other, and at e¹⁷ programs fail
        self._most = math.exp(21.0 if (units == 1).all() else 13.0)
        self.program = LinearProgram(
            "lattice program",
            deadline=deadline,
            primal_feasibility_tolerance=tolerance,
            dual_feasibility_tolerance=tolerance,
        )
        ends = line.tailed or min(self.deltas) > 0
        self._rows: dict[_Place, sparse.csr_array] = {
            (s, at): self._scaled(line.rows(s, math.exp(epsilon), ends=ends, summed=delta > 0), at)
            for at, (epsilon, delta) in enumerate(points)
            for s in line.signed(range(1, line.shift + 1))
        }
        self._cuts: list[tuple[int, _Place, _Terms]] = []  # row, place, terms of its set
        self._known: set[tuple[_Place, bytes]] = set()  # with δ > 0: the sets that have a row
        self._listed: dict[_Place, npt.NDArray[np.bool_]] = {}  # with δ = 0: the terms that have a row
        self.x: Array | None = None
        self._first(cost)

    def _scaled(self, rows: sparse.csr_array, at: int) -> sparse.csr_array:
        """Rows in these units. A solver's numbers end before e^ε does: a smaller factor is only more private, and any multipliers are valid."""
        found = rows.tocoo()
        data = found.data * self.units[found.coords[1]] / self._own[at][found.coords[0]]
        return sparse.csr_array((np.maximum(data, -self._most), found.coords), shape=rows.shape)

    def _first(self, cost: Array) -> None:
        """The rows of `lattice_model` for the longest shift, in numbers."""
        line, program, spike = self.line, self.program, np.zeros((1, len(cost)))
        spike[0, -1] = 1.0
        program.add_columns("masses", cost * self.units)
        blocks = {"masses": (line.masses * self.units)[None]}
        program.add_rows("normalisation", blocks, lower=self.mass, upper=self.mass)
        for s in self._longest():
            rows = self._rows[s]
            program.add_columns(f"excess {s}", np.zeros(rows.shape[0]))
            blocks = {"masses": rows, f"excess {s}": -sparse.eye_array(rows.shape[0])}
            program.add_rows(f"terms {s}", blocks, upper=0.0)
            blocks = {"masses": spike, f"excess {s}": np.ones((1, rows.shape[0]))}
            program.add_rows(f"sum {s}", blocks, upper=self.deltas[s[1]] * self.mass)

    def _longest(self) -> list[_Place]:
        return [(s, at) for at in range(len(self.deltas)) for s in self.line.signed([self.line.shift])]

    def reprice(self, cost: Array) -> None:
        """Continue with other costs and closed tails: rows that held hold."""
        self.program.change_costs("masses", cost * self.units)
        tails = np.zeros((1, len(cost)))
        tails[0, len(self.line.mass) : -1] = 1.0
        self.program.add_rows("closed tails", {"masses": tails}, upper=0.0)

    def solve(self, tolerance: float) -> Status:
        """Add cuts until no shift is violated by more than `tolerance`; `x` is the last solution, if any."""
        while True:
            status = self.program.solve()
            if status is not Status.OPTIMAL:
                return status
            found = self.program.primal("masses") / self.mass
            self.x, violated = found * self.units, []
            for s, rows in self._rows.items():
                value = rows @ found
                inside = value > 0
                excess = float(value[inside].sum() + self.x[-1]) - self.deltas[s[1]]
                if excess > tolerance:
                    violated.append((excess, s, inside))
            violated.sort(key=lambda v: -v[0])
            if not violated or not self._add([v[1:] for v in violated[: max(10, self.line.shift // 3)]]):
                return status

    def tightened(self, by: float, tolerance: float) -> Array:
        """Solve for less δ of one point; the masses, or those of before where there is no answer."""
        before, [delta] = self.x, self.deltas
        if by < delta:
            self.deltas = [delta - by]
            for name in self.program.rows:
                if name.startswith(("sum ", "cuts")):
                    self.program.change_rows(name, upper=self.deltas[0] * self.mass)
            self.solve(tolerance)
        assert before is not None and self.x is not None
        return self.x

    def _add(self, violated: list[tuple[_Place, npt.NDArray[np.bool_]]]) -> int:
        """Add a row per set; with δ = 0, where every term is a constraint of its own, a row per new term."""
        # a set that is a row already is met as well as the solver's numbers allow
        sets: list[tuple[_Place, _Terms]] = [
            (s, inside)
            for s, inside in violated
            if self.deltas[s[1]] > 0 and (s, inside.tobytes()) not in self._known
        ]
        self._known |= {(s, inside.tobytes()) for s, inside in violated}
        if sets:
            rows = np.array([self._rows[s].T @ inside for s, inside in sets])
            rows[:, -1] += 1
            upper = np.array([self.deltas[s[1]] for s, _ in sets]) * self.mass
            self._cut(self.program.add_rows("cuts", {"masses": rows}, upper=upper), sets)
        alone: list[tuple[_Place, _Terms]] = []
        blocks = []
        for s, inside in violated:
            if self.deltas[s[1]] > 0:
                continue
            listed = self._listed.setdefault(s, np.zeros_like(inside))
            new = np.flatnonzero(inside & ~listed)
            listed[new] = True
            alone += [(s, k) for k in new.tolist()]
            blocks.append(self._rows[s][new])
        if alone:
            terms = sparse.vstack(blocks, format="csr")
            self._cut(self.program.add_rows("cuts", {"masses": terms}, upper=0.0), alone)
        return len(sets) + len(alone)

    def _cut(self, added: npt.NDArray[np.integer], sets: list[tuple[_Place, _Terms]]) -> None:
        self._cuts += [(int(row), s, cells) for row, (s, cells) in zip(added, sets)]

    @property
    def tail(self) -> float:
        """Mass that the last solution hides in the tails."""
        ends = slice(len(self.line.mass), -1)
        return 0.0 if self.x is None else float(self.line.masses[ends] @ self.x[ends])

    @property
    def level(self) -> float:
        """What the masses' costs are at least, less what is charged for them."""
        at, found = self.program.rows["normalisation"][0], self.program.row_dual
        return float(found[at]) if at < found.size else 0.0  # where the time was over before a solve

    def multipliers(self) -> tuple[Indices, Array, Array]:
        """The dual weights of the last solve: shifts that carry any, of several points with the point's number; a row of weights for each, and their caps."""
        length = len(self.line.owner)
        psi = {s: np.zeros(length + 1) for s in self._rows}
        total = dict.fromkeys(self._rows, 0.0)
        duals, found = np.zeros(self.program.shape[0]), self.program.row_dual
        duals[: found.size] = np.maximum(-found, 0.0)  # the last rows may not have been solved with
        for row, s, cells in self._cuts:
            psi[s][cells] += duals[row]
            total[s] += float(duals[row])
        for s in self._longest():
            at = self.program.rows[f"terms {s}"]
            psi[s] += duals[at]
            total[s] += float(duals[self.program.rows[f"sum {s}"][0]])
        for s, weights in psi.items():  # the tail's term stands for every cell that is sent there
            weights /= self._own[s[1]]
            weights[:length][self.line.lost(s[0])] += weights[-1]
        used = [s for s in sorted(psi) if psi[s].any()]
        rows = np.array([psi[s][:-1] for s in used]).reshape(-1, length)
        totals = np.array([total[s] if self.deltas[s[1]] else rows[k].max() for k, s in enumerate(used)])
        shifts = np.array(used, dtype=np.int64).reshape(-1, 2)
        return shifts if len(self.deltas) > 1 else shifts[:, 0], rows, totals
