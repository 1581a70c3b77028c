r"""A small table's program, solved in rationals: doubles do not see e^(-ε) at large ε, nor the little that tiny ε or δ leave open.

Each basic variable, and the cost, is an affine function of the others. The criss-cross method (Terlaky 1985) pivots at the first
variable, in a fixed order, that is infeasible or would lower the cost: from any basis, to an optimum or to a row that proves that there is no table.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from fractions import Fraction

import numpy as np
from flint import fmpq

from mechdesign.doubles import LARGEST_POWER
from mechdesign.errors import SolverError
from mechdesign.evidence.exact import fraction, rational
from mechdesign.model.declared import Declared
from mechdesign.model.expressions import ZERO
from mechdesign.solvers.deadline import pause
from mechdesign.typing import Indices

MOST = 16_000
"""Largest number of rows times columns, and four times that where each pair has a δ, whose slacks keep numbers short: a program of seconds."""
_ONE = "1"
Line = dict[Hashable, fmpq]
"""An affine function: coefficients by variable, and its constant."""


def small(declared: Declared) -> bool:
    """Return whether pivots take seconds at most."""
    rows = len(declared.rows) + declared.n
    columns = declared.width
    known = type(declared) is Declared and all(
        part.losses.max(initial=0.0) <= LARGEST_POWER for part in declared.parts
    )
    for part in declared.parts if known else ():
        rows += len(part.numbers)
        columns += part.m * (len(part.pairs) if part.delta else part.floors)
    return known and rows * columns <= MOST * (4 if all(part.delta for part in declared.parts) else 1)


class Pivots:
    """The program of a small table by its basis.

    Parameters
    ----------
    declared : Declared
    above : bool
        Whether e^ε is rounded up, for a bound, or down, for a law.
    costs : bool
        If false, any feasible table is optimal.
    without : set of str
        Families to omit.
    """

    def __init__(
        self, declared: Declared, *, above: bool, costs: bool = True, without: Iterable[str] = ()
    ) -> None:
        d, omitted = declared, frozenset(without)
        self.declared, zeros = d, frozenset[int]() if omitted else d.zeros
        self.free = frozenset(range(d.cells, d.width))
        lines, line = dict[Hashable, Line](), Line()
        for i, row in enumerate(d.rows):
            if row.label not in omitted:
                lines["row", i] = {j: -a for j, a in row.terms if j not in zeros} | {_ONE: -row.offset}
        for p, part in enumerate(d.parts):
            for number in () if part.label in omitted else part.numbers:
                entries, pair = part.row(number)
                line = {_ONE: rational(part.delta) if part.delta and number >= part.sums else ZERO}
                for key, fixed, rate in entries:
                    if key not in zeros:
                        place = key if isinstance(key, int) else (p, *key)
                        line[place] = (part.short(pair, above=above) if rate else ZERO) * rate - fixed
                lines["row", number] = line
        for x in range(d.n):
            cells = range(x * d.m, (x + 1) * d.m)
            lines["sum", x] = {j: fmpq(-1) for j in cells if j not in zeros} | {_ONE: fmpq(1)}
        equal = (("row", i) for i, row in enumerate(d.rows) if row.equal)
        self.fixed = {*equal, *(("sum", x) for x in range(d.n))}
        self.cost: Line = {j: c for j, c in enumerate(d.costs) if costs and c and j not in zeros}
        self.cost[_ONE] = ZERO
        self.lines = lines
        names = dict.fromkeys(key for line in (*lines.values(), self.cost) for key in line)
        self._order = {key: k for k, key in enumerate([*names, *lines])}

    def pivot(self, out: Hashable, into: Hashable) -> None:
        """Exchange a basic variable for another."""
        pause("exact table")
        line = self.lines.pop(out)
        a = line.pop(into)
        found = {key: -value / a for key, value in line.items()} | {out: 1 / a}
        for other in (*self.lines.values(), self.cost):
            if (c := other.pop(into, None)) is not None:
                for key, value in found.items():
                    other[key] = other.get(key, ZERO) + c * value
                    if not other[key] and key != _ONE:
                        del other[key]
        self.lines[into] = found

    def enter(self, basis: Iterable[Hashable]) -> None:
        """Make these variables basic, as far as others than these leave."""
        wanted = list(basis)
        for key in wanted:
            if key not in self.lines:
                some = [i for i, line in self.lines.items() if i not in wanted and key in line]
                if some:
                    self.pivot(min(some, key=lambda i: (i not in self.fixed, len(self.lines[i]))), key)

    def solve(self) -> Line | None:
        """Pivot to an optimum; return the function that is negative wherever the other rows hold if there is no table, else None."""
        first = self._order.__getitem__
        while wrong := [*(dear := [*self._cheaper()]), *self._infeasible()]:
            place, sign = min(wrong, key=lambda one: first(one[0]))
            if (line := self.lines.get(place)) is not None:
                others = [j for j, c in line.items() if self._enters(j) and (sign * c > 0 or j in self.free)]
                if not others:
                    return {key: -sign * c for key, c in line.items()} | {place: fmpq(sign)}
                steps = {j: ZERO if dear else abs(self.cost.get(j, ZERO) / line[j]) for j in others}
                self.pivot(place, min(others, key=lambda j: (steps[j], first(j))))
            else:
                leaving = [i for i, line in self.lines.items() if place in line and i not in self.free]
                others = [i for i in leaving if sign * self.lines[i][place] < 0 or i in self.fixed]
                if not others:
                    message = "the costs of the table have no least value"
                    raise SolverError(message, solver="pivots", status="defect")
                self.pivot(min(others, key=first), place)
        return None

    def _enters(self, key: Hashable) -> bool:
        return key != _ONE and key not in self.fixed

    def _infeasible(self) -> Iterator[tuple[Hashable, int]]:
        """Yield basic variables below 0, and those of equalities other than 0, with the sign of the change they need."""
        for key, line in self.lines.items():
            if key not in self.free and (line[_ONE] < 0 or (line[_ONE] and key in self.fixed)):
                yield key, 1 if line[_ONE] < 0 else -1

    def _cheaper(self) -> Iterator[tuple[Hashable, int]]:
        """Yield other variables whose change lowers the cost, with the sign of the change."""
        for key, cost in self.cost.items():
            if self._enters(key) and (cost < 0 or (cost and key in self.free)):
                yield key, 1 if cost < 0 else -1

    @property
    def columns(self) -> list[fmpq]:
        """The columns of the program at this basis."""
        return [self.lines[j][_ONE] if j in self.lines else ZERO for j in range(self.declared.width)]


def multipliers(line: Line) -> tuple[Indices, tuple[Fraction, ...]]:
    """Return the multipliers of rows in a cost, or in a function that is negative."""
    held = sorted((key[1], c) for key, c in line.items() if isinstance(key, tuple) and key[0] == "row" and c)
    return np.array([row for row, _ in held], dtype=np.int64), tuple(fraction(c) for _, c in held)
