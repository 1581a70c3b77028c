r"""The linear program of the optimal noise on a line of cells, with generated cuts.

Unknown masses p on cells i = 0..L-1, free masses in the two infinite tails, and a spike of mass a at the centre.
For every signed shift s of at most n cells

.. math:: a + \sum_i [p_i - e^{\varepsilon} p_{i+s}]_+ + \Big[\sum_{i:\, i+s \text{ in the tail}} p_i
          - e^{\varepsilon} p_\text{tail}\Big]_+ \le \delta .

The largest shift gets its positive parts as variables; the others are maxima over sets of cells and enter as the
sets that the current solution violates. Each such relaxation gives valid multipliers; how they are turned into a
proof is in `lattice_bound`. The solver is HiGHS, warm-started: rows only ever join.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt

from mechdesign.errors import SolverError
from mechdesign.typing import Array

__all__ = ["LatticeProgram", "Line", "Multiplier"]

Cells = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Line:
    """The cells of a lattice program and the variables they share.

    Parameters
    ----------
    owner : ndarray of int, shape (L,)
        Variable of each cell: mirrored cells share one when the loss is even.
    factor : ndarray, shape (L,)
        Mass of the cell in units of its variable: 1, and the decay of repeated periods in geometric tails.
    mass, cost : ndarray, shape (V,)
        Mass and cost of all cells that a variable stands for, the unlisted ones of geometric tails included.
    shift : int
        n: cells per sensitivity.
    mirrored : bool
        Whether the line is its own mirror image, so that positive shifts suffice.
    """

    owner: Cells
    factor: Array
    mass: Array
    cost: Array
    shift: int
    mirrored: bool


@dataclass(frozen=True, eq=False)
class Multiplier:
    """Dual weights of one signed shift: ``psi[i]`` for each cell (0 ≤ psi ≤ total), and their cap `total`."""

    shift: int
    psi: Array
    total: float


class LatticeProgram:
    """One linear program, grown by cuts and re-solved from its last basis.

    Parameters
    ----------
    line : Line
    epsilon, delta : float
    tail_cost : float
        Cost per unit of mass in a tail, a bound from below; `math.inf` closes the tails.
    spike_cost : float
        Cost per unit of mass of the spike; `math.inf` forbids it.
    """

    def __init__(
        self,
        line: Line,
        *,
        epsilon: float,
        delta: float,
        tail_cost: float = math.inf,
        spike_cost: float = math.inf,
    ) -> None:
        self.line, self.delta, self.growth = line, delta, math.exp(epsilon)
        self.tailed, self.spiked = math.isfinite(tail_cost), math.isfinite(spike_cost) and delta > 0
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self._highs.setOptionValue(name, 1e-9)
        count = len(line.mass)
        tails = (1 if line.mirrored else 2) if self.tailed else 0
        self._right, self._left, self._spike = count, count + tails - 1, count + tails
        self._columns = count + tails + 1
        inf = highspy.kHighsInf
        tail_mass = 2.0 if line.mirrored else 1.0
        costs = np.concatenate(
            [line.cost, np.full(tails, tail_mass * (tail_cost if self.tailed else 0.0)), [0]]
        )
        upper = np.full(self._columns, inf)
        costs[-1], upper[-1] = (spike_cost, inf) if self.spiked else (0.0, 0.0)
        self._add_columns(costs, upper)
        masses = np.concatenate([line.mass, np.full(tails, tail_mass), [1.0]])
        self._add_row(1.0, 1.0, np.arange(self._columns), masses)
        self._cuts: list[
            tuple[int, int, Cells, bool]
        ] = []  # row, shift, cells in the set, whether the tail is
        self._blocks: list[tuple[int, int, Cells, int]] = []  # first row, shift, cells of its rows, sum row
        self._pairs: set[tuple[int, int]] = set()
        self.iterations = 0
        self.rounds = 0
        for s in self._signed([line.shift]):
            self._add_block(s)

    # Geometry --------------------------------------------------------------------------------------------

    def _signed(self, shifts: list[int]) -> list[int]:
        return shifts if self.line.mirrored else [*shifts, *(-s for s in shifts)]

    def _ends(self, s: int) -> tuple[slice, slice, slice, int]:
        """Slices (cells with a partner, their partners, cells whose partner is in the tail), tail column."""
        length = len(self.line.owner)
        if s > 0:
            return slice(0, length - s), slice(s, length), slice(length - s, length), self._right
        return slice(-s, length), slice(0, length + s), slice(0, -s), self._left

    # Rows ------------------------------------------------------------------------------------------------

    def _add_columns(self, costs: Array, upper: Array) -> None:
        k = len(costs)
        empty = np.zeros(k, dtype=np.int32)
        self._highs.addCols(k, costs, np.zeros(k), upper, 0, empty, np.zeros(0, np.int32), np.zeros(0))

    def _add_row(self, low: float, high: float, columns: Cells, values: Array) -> int:
        dense = np.bincount(columns, weights=values).astype(float)
        used = np.flatnonzero(dense)
        self._highs.addRow(low, high, len(used), used.astype(np.int32), dense[used])
        return int(self._highs.getNumRow()) - 1

    def _pair(self, a: int, b: int) -> tuple[Cells, Array]:
        """Columns and values of p_a - e^ε p_b."""
        line = self.line
        columns = np.array([line.owner[a], line.owner[b]])
        return columns, np.array([line.factor[a], -self.growth * line.factor[b]])

    def _group(self, s: int) -> tuple[Cells, Array]:
        """Columns and values of the mass that a shift sends into the tail, less e^ε times the tail's."""
        _, _, lost, tail = self._ends(s)
        columns, values = self.line.owner[lost], self.line.factor[lost]
        if self.tailed:
            columns, values = np.append(columns, tail), np.append(values, -self.growth)
        return columns, values

    def _add_block(self, s: int) -> None:
        inf = highspy.kHighsInf
        first, second, _, _ = self._ends(s)
        here = np.arange(len(self.line.owner))[first]
        there = np.arange(len(self.line.owner))[second]
        keep = self.line.owner[here] != self.line.owner[there]
        here, there = here[keep], there[keep]
        slack = self.delta > 0
        base = int(self._highs.getNumCol())
        if slack:
            self._add_columns(np.zeros(len(here) + 1), np.full(len(here) + 1, inf))
        start = int(self._highs.getNumRow())
        for k, (a, b) in enumerate(zip(here, there)):
            columns, values = self._pair(a, b)
            if slack:
                columns, values = np.append(columns, base + k), np.append(values, -1.0)
            self._add_row(-inf, 0.0, columns, values)
        columns, values = self._group(s)
        total = -1
        if slack:
            self._add_row(-inf, 0.0, np.append(columns, base + len(here)), np.append(values, -1.0))
            parts = np.append(np.arange(base, base + len(here) + 1), self._spike)
            total = self._add_row(-inf, self.delta, parts, np.ones(len(parts)))
        elif self.tailed:
            self._add_row(-inf, 0.0, columns, values)
        self._blocks.append((start, s, here, total))

    def _add_cut(self, s: int, chosen: npt.NDArray[np.bool_], group: bool) -> None:
        first, second, _, _ = self._ends(s)
        line = self.line
        a, b = np.arange(len(line.owner))[first][chosen], np.arange(len(line.owner))[second][chosen]
        columns = [line.owner[a], line.owner[b], np.array([self._spike])]
        values = [line.factor[a], -self.growth * line.factor[b], np.ones(1)]
        if group:
            more, amounts = self._group(s)
            columns.append(more)
            values.append(amounts)
        row = self._add_row(-highspy.kHighsInf, self.delta, np.concatenate(columns), np.concatenate(values))
        self._cuts.append((row, s, a, group))

    # Solving ---------------------------------------------------------------------------------------------

    def _run(self) -> Array:
        self._highs.run()
        status = self._highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            word = self._highs.modelStatusToString(status)
            raise SolverError(f"the lattice program ended with {word!r}", solver="highs", status=word)
        self.iterations += int(self._highs.getInfo().simplex_iteration_count)
        return np.array(self._highs.getSolution().col_value[: self._columns])

    def _violations(self, x: Array) -> list[tuple[float, int, npt.NDArray[np.bool_], bool]]:
        p = x[self.line.owner] * self.line.factor
        found = []
        for s in self._signed(list(range(1, self.line.shift + 1))):
            first, second, lost, tail = self._ends(s)
            parts = p[first] - self.growth * p[second]
            group = p[lost].sum() - (self.growth * x[tail] if self.tailed else 0.0)
            inside = parts > 0
            total = parts[inside].sum() + x[self._spike]
            counts = self.tailed or self.delta > 0  # geometric tails are on the line itself
            total += max(group, 0.0) if counts else 0.0
            found.append((total - self.delta, s, inside, bool(group > 0 and counts)))
        return found

    def solve(self, tolerance: float, *, rounds: int = 500) -> tuple[Array, float, float]:
        """Add cuts until no shift is violated by more than `tolerance`.

        Returns
        -------
        x : ndarray
            Masses of the variables.
        spike, tail : float
            Mass of the spike and of the tails together.
        """
        for _ in range(rounds):
            self.rounds += 1
            x = self._run()
            violated = [v for v in self._violations(x) if v[0] > tolerance]
            if not violated:
                break
            violated.sort(key=lambda v: -v[0])
            before = int(self._highs.getNumRow())
            for _, s, inside, group in violated[: max(10, self.line.shift // 3)]:
                if self.delta > 0:
                    self._add_cut(s, inside, group)
                else:
                    self._add_pairs(s, inside, group)
            if int(self._highs.getNumRow()) == before:
                break
        tails = x[len(self.line.mass) : self._spike]
        tail = float(tails.sum() * (2.0 if self.line.mirrored else 1.0))
        return x[: len(self.line.mass)], float(x[self._spike]), tail

    def _add_pairs(self, s: int, inside: npt.NDArray[np.bool_], group: bool) -> None:
        """With δ = 0 every pair is a constraint of its own."""
        first, second, _, _ = self._ends(s)
        length = np.arange(len(self.line.owner))
        for a, b in zip(length[first][inside], length[second][inside]):
            if (s, int(a)) not in self._pairs:
                self._pairs.add((s, int(a)))
                row = self._add_row(-highspy.kHighsInf, 0.0, *self._pair(a, b))
                self._cuts.append((row, s, np.array([a]), False))
        if group and self.tailed and (s, -1) not in self._pairs:
            self._pairs.add((s, -1))
            row = self._add_row(-highspy.kHighsInf, 0.0, *self._group(s))
            self._cuts.append((row, s, np.zeros(0, dtype=np.int64), True))

    @property
    def cuts(self) -> list[tuple[int, Cells, bool]]:
        """Shift, cells and tail flag of every cut so far."""
        return [(s, cells, group) for _, s, cells, group in self._cuts]

    def adopt(self, cuts: list[tuple[int, Cells, bool]]) -> None:
        """Start with the cuts of another program on the same cells: they hold here too, and save rounds."""
        for s, cells, group in cuts:
            first = self._ends(s)[0]
            chosen = np.zeros(len(self.line.owner), dtype=bool)
            chosen[cells] = True
            self._add_cut(s, chosen[first], group)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return int(self._highs.getNumCol()), int(self._highs.getNumRow())

    def multipliers(self) -> list[Multiplier]:
        """The dual weights of the last solve, a `Multiplier` per shift that carries any."""
        dual = np.maximum(-np.array(self._highs.getSolution().row_dual), 0.0)
        length = len(self.line.owner)
        psi: dict[int, Array] = {}
        total: dict[int, float] = {}

        def add(s: int, cells: Cells, weight: Array | float, group: float) -> None:
            current = psi.setdefault(s, np.zeros(length))
            current[cells] += weight
            current[self._ends(s)[2]] += group

        for row, s, cells, grouped in self._cuts:
            if dual[row] > 0:
                add(s, cells, float(dual[row]), float(dual[row]) if grouped else 0.0)
                total[s] = total.get(s, 0.0) + float(dual[row])
        for start, s, cells, sum_row in self._blocks:
            grouped = sum_row >= 0 or self.tailed
            group_dual = float(dual[start + len(cells)]) if grouped else 0.0
            add(s, cells, dual[start : start + len(cells)], group_dual)
            total[s] = total.get(s, 0.0) + (float(dual[sum_row]) if sum_row >= 0 else 0.0)
        return [Multiplier(s, v, total.get(s, 0.0)) for s, v in sorted(psi.items()) if v.any()]
