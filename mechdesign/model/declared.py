r"""A declared problem in numbers: the finite linear program that is solved, repaired, proved and saved.

Columns are the cells :math:`P[x, y]`, row by row, and the further variables of piecewise linear atoms (CVXPY's epigraphs). Rows are the user's own
families, and those of privacy, which are numbered but never listed:

- for a pair (x, x') under pure privacy a row for each output y, :math:`P[x, y] \le e^\varepsilon P[x', y]`;
- under (ε, δ) with slacks :math:`S_y \ge 0` a row for each y, :math:`P[x, y] - e^\varepsilon P[x', y] \le S_y`, and one for
  :math:`\sum_y S_y \le \delta`;
- if one ratio holds for all pairs, also those of floors :math:`a_y`: :math:`P[x, y] \le e^\varepsilon a_y` and :math:`a_y \le P[x, y]`.

Every double is taken as an exact rational; e^ε is enclosed, and each claim uses the unfavourable end: `Part.low` for a law, `Part.high` for
a lower bound.

**The bound.** For any multipliers λ ≥ 0 of these rows (those of slacks at most that of their sum, those of floors :math:`\sum_x \mu_x \ge e^\varepsilon \sum_x
\lambda_x`) and ν of the own rows (≥ 0 for inequalities, such that every further variable has reduced cost 0), with `reduced` the reduced cost
of a cell, every feasible table costs at least

.. math:: c_0 + \sum \nu k - \sum \kappa \delta + \sum_x \min_y \mathrm{reduced}[x, y],

as rows of P are averages; the minimum omits cells that the constraints force to zero (`Declared.forced`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from flint import fmpq
from scipy import sparse

from mechdesign.checks import refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import LARGEST, exp_lower, exp_upper, rational
from mechdesign.evidence.vipr import LinearBound
from mechdesign.model.expressions import ZERO, Linear, Row
from mechdesign.model.table import Labels, Private, named_losses, shown_label
from mechdesign.solvers.deadline import pause
from mechdesign.typing import Array, Indices

FAR = 25.0
"""Largest ε times distance in doubles: a solver's errors, times e^25, stay below 1."""
STEEP = 50.0
"""The same if rows are balanced by the square root, which halves the exponents."""
_HOMOGENEOUS = 1e-13  # height of a tangent through 0, relative to its slope: rounding
BLOCK = 400_000
"""Rows scanned at a time."""
Entry = tuple[Any, Any, Any]
"""A column, f and r: the coefficient f - r e^ε."""
Block = tuple[Any, Any, Any, Any]
"""Rows, columns, numbers and losses of coefficients; a coefficient without a loss has nan."""
_HIGH = 144  # fractional bits of e^ε from above
_TYPICAL = 4  # ratio of a row's largest loss to a typical one


class Part:
    """Privacy at one (ε, δ) for some ordered pairs of inputs; ε may differ from pair to pair.

    Parameters
    ----------
    asked : Private
    point : (ε, δ)
    first : int
        Number of its first row.
    n, m : int
        Inputs and outputs.
    """

    most = FAR
    """Losses are cut here in doubles."""

    def __init__(self, asked: Private, point: tuple[float, float], first: int, n: int, m: int) -> None:
        self.label, self.delta, self.first, self.n, self.m = asked.label, point[1], first, n, m
        self.pairs = asked.pairs(n)
        far = np.ones(len(self.pairs)) if asked.distances is None else asked.distances[tuple(self.pairs.T)]
        self.distances, self.of = np.unique(far, return_inverse=True)
        self._epsilon = Fraction(point[0])
        self.losses = (point[0] * self.distances)[self.of]
        every = isinstance(asked.between, str) and asked.between == "all"
        self.floors = not self.delta and every and len(self.distances) == 1 and n > 2
        listed, floors = len(self.pairs) * m, 2 * n * m * self.floors
        self._known: dict[tuple[int, int], fmpq] = {}
        if not (self.delta or self.floors):
            self.most = STEEP
        self.upper, self.lower = first + listed, first + listed + n * m
        self.sums = first + listed
        self.end = first + listed + floors + (len(self.pairs) if self.delta else 0)

    @property
    def factors(self) -> Array:
        """e^ε of each pair, in finite doubles."""
        with np.errstate(over="ignore"):
            return np.nan_to_num(np.exp(self.losses))

    def low(self, pair: int) -> fmpq:
        """Return a rational at most e^ε."""
        return self._enclosed(0, pair)

    def high(self, pair: int) -> fmpq:
        """Return a rational at least e^ε."""
        return self._enclosed(1, pair)

    def _enclosed(self, end: int, pair: int) -> fmpq:
        key = end, self._listed[1][pair]
        if key not in self._known:
            loss = self._epsilon * Fraction(float(self.distances[key[1]]))
            if end:  # with few digits: thousands of its products are summed
                self._known[key] = fmpq(math.ceil(exp_upper(loss) * (1 << _HIGH)), 1 << _HIGH)
            else:
                self._known[key] = rational(exp_lower(min(loss, Fraction(LARGEST))))
        return self._known[key]

    @property
    def numbers(self) -> range:
        """Numbers of the rows that state this part; where floors take the place of pairs, theirs."""
        return range(self.upper if self.floors else self.first, self.end)

    @cached_property
    def _listed(self) -> tuple[list[list[int]], list[int]]:
        """Pairs, and the places of their distances, as Python lists."""
        return self.pairs.tolist(), self.of.tolist()

    @cached_property
    def places(self) -> Indices:
        """Place of every pair of inputs among the pairs, shape (inputs, inputs); -1 if it is not among them."""
        found = np.full((self.n, self.n), -1)
        found[tuple(self.pairs.T)] = np.arange(len(self.pairs))
        return found

    def row(self, number: int) -> tuple[list[Entry], int]:
        """Return the entries of a row by its number, and the pair whose ε they use.

        Columns are cells by number, slacks ("S", pair, y) and floors ("a", y).
        """
        m, place = self.m, number - self.first
        if number < self.sums:
            k, y = divmod(place, m)
            a, b = self._listed[0][k]
            return [(a * m + y, 1, 0), (b * m + y, 0, 1), *([(("S", k, y), -1, 0)] if self.delta else [])], k
        if self.delta:
            k = number - self.sums
            return [(("S", k, y), 1, 0) for y in range(m)], k
        j = (number - self.upper) % (self.n * m)
        if number < self.lower:
            return [(j, 1, 0), (("a", j % m), 0, 1)], 0
        return [(("a", j % m), 1, 0), (j, -1, 0)], 0

    # -- what a program adds ------------------------------------------------------------------------------------

    def leaders(self, orbits: Indices) -> Indices:
        """Return one pair of every orbit of pairs of inputs, by its place."""
        return np.unique(orbits[tuple(self.pairs.T)], return_index=True)[1]

    def longest(self) -> Indices | None:
        """Return the pairs whose rows the program starts with; None for the default."""
        return None

    def ends(self, places: Indices, cells: Indices) -> tuple[Indices, Indices]:
        """Return the variables, among these cells, of the larger and the smaller side of rows (pair, output)."""
        k, y = np.divmod(places, self.m)
        a, b = self.pairs[k].T
        return cells[a * self.m + y], cells[b * self.m + y]

    def rows_of(self, pairs: Indices, cells: Indices) -> Indices:
        """Return rows (pair, output) of pairs, without those that compare a variable with itself."""
        places = (pairs[:, None] * self.m + np.arange(self.m)).ravel()
        high, low = self.ends(places, cells)
        return np.asarray(places[high != low])

    def entries(self, places: Indices, cells: Indices) -> Block:
        """Return the block of P[x, y] - e^ε P[x', y]."""
        i, nan = np.arange(len(places)), np.full(len(places), np.nan)
        losses = np.append(nan, np.minimum(self.losses[places // self.m], self.most))
        return np.tile(i, 2), np.concatenate(self.ends(places, cells)), np.ones(2 * len(places)), losses

    # -- exact --------------------------------------------------------------------------------------------------

    def larger(self, numbers: Indices) -> Indices:
        """Return the cells that rows of pure privacy bound."""
        if self.floors and len(numbers) and numbers[0] >= self.upper:
            return numbers - self.upper
        return self.ends(numbers - self.first, np.arange(self.n * self.m))[0]

    def slack(self, number: int, v: list[fmpq]) -> fmpq:
        """Return the slack of a row, with e^ε from below; the floors are the table's own."""
        if self.floors and number >= self.upper:
            j = (number - self.upper) % (self.n * self.m)
            least: fmpq = min(v[j % self.m : self.n * self.m : self.m])
            return self.low(0) * least - v[j]
        if number < self.sums:
            return -self._over(number, v)
        first = self.first + (number - self.sums) * self.m
        excess = (self._over(one, v) for one in range(first, first + self.m))
        spent: fmpq = sum((one for one in excess if one > 0), ZERO)
        return rational(self.delta) - spent

    def over(self, table: Any) -> Iterator[Any]:
        """Yield the left less the right sides of rows (pair, output), for a table in doubles or CVXPY's."""
        a, b = (table[side.tolist()] for side in self.pairs.T)
        yield a - sparse.diags_array(self.factors) @ b

    def _over(self, number: int, v: list[fmpq]) -> fmpq:
        """Return the left side less the right side of a row, without its slack variable S."""
        entries, pair = self.row(number)
        low = self.low(pair)
        found: fmpq = sum((v[j] * (f - r * low) for j, f, r in entries if isinstance(j, int)), ZERO)
        return found

    def sides(
        self, declared: Declared, table: Array, rows: Indices | None = None
    ) -> tuple[list[str], Array, Array]:
        """Return the names of the rows that check a table, or of some under pure privacy, and their left and right sides in doubles."""
        inputs, outputs = (list(map(shown_label, labels)) for labels in (declared.inputs, declared.outputs))
        if self.delta:
            a, b = self.pairs.T
            over = np.maximum(table[a] - self.factors[:, None] * table[b], 0).sum(axis=1)
            who = [f"{inputs[i]}, {inputs[j]}" for i, j in self.pairs.tolist()]
            return who, over, np.full(len(a), self.delta)
        places = np.arange(len(self.pairs) * self.m) if rows is None else rows - self.first
        k, y = np.divmod(places, self.m)
        a, b = self.pairs[k].T
        named = zip(a.tolist(), b.tolist(), y.tolist())
        index = [f"{inputs[i]}, {inputs[j]}: {outputs[c]}" for i, j, c in named]
        return index, table[a, y], self.factors[k] * table[b, y]

    def emptied(self, zero: set[int]) -> set[int]:
        """Return the cells that are 0 under pure privacy if these are."""
        if self.delta or not zero:
            return set()
        m = self.m
        columns = {j % m for j in zero}
        return {a * m + y for a, b in self.pairs.tolist() for y in columns if b * m + y in zero}

    def scan(
        self, table: Array, margin: float = 0.0, *, listed: bool = True, only: Indices | None = None
    ) -> Iterator[tuple[Indices, Array, Array]]:
        """Yield numbers of rows, left less right sides in doubles, and their sizes, in blocks, so that memory never holds all rows.

        Under (ε, δ) these are the rows of the sums; with floors, unless pairs are to be `listed`, their upper rows. With `only`, the rows of these pairs.
        """
        m, most = self.m, np.exp(min(float(self.losses[0]) * (1 - margin), self.most))
        if self.floors and not listed:
            right = most * table.min(axis=0)
            yield self.upper + np.arange(self.n * m), (table - right).ravel(), (table + right).ravel()
            return
        every, size = np.arange(len(self.pairs)) if only is None else only, max(1, BLOCK // m)
        for start in range(0, len(every), size):
            block = every[start : start + size]
            a, b = self.pairs[block].T
            rates = np.exp(np.minimum(self.losses[block] * (1 - margin), self.most))
            left, right = table[a], rates[:, None] * table[b]
            if self.delta:
                over = np.maximum(left - right, 0).sum(axis=1) - self.delta * (1 - margin)
                yield self.sums + block, over, np.minimum(left + right, 3 * left).sum(axis=1) + self.delta
            else:
                numbers = self.first + block[:, None] * m + np.arange(m)
                yield numbers.ravel(), (left - right).ravel(), (left + right).ravel()


def _forced(rows: Iterable[Row], parts: list[Part], n: int, m: int, known: Iterable[int]) -> frozenset[int]:
    """Return the cells that are 0 in every feasible table, by least activities of single rows and by pure privacy."""
    zero, before = set(known), -1
    sides = [
        ({j: sign * a for j, a in row.terms if a}, sign * row.offset)
        for row in rows
        if all(j < n * m for j, _ in row.terms)
        for sign in ((1, -1) if row.equal else (1,))
    ]
    while before < len(zero):
        before = len(zero)
        for terms, offset in sides:
            least = {}
            for x in {j // m for j in terms}:
                open_ = [terms.get(x * m + y, ZERO) for y in range(m) if x * m + y not in zero]
                least[x] = min(open_, default=fmpq(1))
            if offset + sum(least.values(), ZERO) == 0:  # any other cell breaks the row
                cells = (x * m + y for x in least for y in range(m))
                zero |= {j for j in cells if terms.get(j, ZERO) > least[j // m]}
        for part in parts:
            zero |= part.emptied(zero)
    return frozenset(zero)


def power_of_two(sizes: Array) -> Array:
    """Return the least powers of two above these sizes, or the largest double of them; 1 for 0."""
    return np.ldexp(1.0, np.where(sizes > 0, np.minimum(np.frexp(sizes)[1], 1023), 0))


@dataclass(frozen=True, eq=False)
class Declared(Linear):
    """A problem on one table in numbers, as files hold it.

    Parameters
    ----------
    inputs, outputs : tuples of labels
    of, neighbours : str
        As in `Table`.
    """

    inputs: Labels
    outputs: Labels
    of: str
    neighbours: str

    lemma: ClassVar[str] = (
        "Cells P(x, y) of a table that meets the constraints are a point of this program: e^epsilon is rounded up, cells that the "
        "constraints force to zero are left out, excess S(y) = max(P(x, y) - e^epsilon P(x', y), 0), floor(y) = min_x P(x, y)."
    )
    """Why a bound of the program is a bound for the mechanisms."""
    noun: ClassVar[str] = "table"
    """Name of a feasible point."""

    def __post_init__(self) -> None:
        self.check_rows(self.cost, np.array(self.constant))
        refuse(self.width < self.cells, "rows", self.width, "do not fit the unknown")
        for asked in self.privacy:
            asked.check(self.n)

    def named(self) -> Any:
        return named_losses(self.objective, self.inputs, self.outputs, self.cost)

    @property
    def n(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    @property
    def m(self) -> int:
        """Number of outputs."""
        return len(self.outputs)

    @property
    def cells(self) -> int:
        """Number of cells, the first columns."""
        return self.n * self.m

    def column(self, j: int) -> str:
        """Return the name of a cell or of a further variable."""
        return self.cell(j) if j < self.cells else f"t{j - self.cells + 1}"

    @cached_property
    def _sizes(self) -> tuple[Array, Array]:
        """Sizes of rows and columns: a cell's is 1, a row's that of its largest term, a further column's that of its largest row divided by its coefficient there.

        Of tangents with a further column, whose slopes may be far larger than any value, it is that of their constants.
        """
        (i, j), a = self.places.T, np.abs(self.coefficients)
        rows: Array = np.zeros(len(self.family))
        columns: Array = np.repeat([1.0, 0.0], [self.cells, self.width - self.cells])
        held = (j >= self.cells) & np.isin(self.family, [self.labels.index(f) for f in self.curved])[i]
        heights, slopes = np.abs(self.offsets), rows.copy()
        np.maximum.at(slopes, i, a)
        heights[heights < _HOMOGENEOUS * slopes] = 0.0
        np.maximum.at(columns, j[held], heights[i[held]] / a[held])
        np.maximum.at(rows, i[held], a[held] * columns[j[held]] * 2.0**-20)
        rows = np.where(rows > 0, np.maximum(rows, heights), 0.0)
        before, known = -1, 0
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            while before < known:
                terms, ratios = np.zeros(len(rows)), np.zeros(len(columns))
                np.maximum.at(terms, i, a * columns[j])
                rows = np.where(rows > 0, rows, terms)
                np.maximum.at(ratios, j, rows[i] / a)
                columns = np.where(columns > 0, columns, ratios)
                before, known = known, int(np.count_nonzero(rows) + np.count_nonzero(columns))
        return rows, columns

    @cached_property
    def row_units(self) -> Array:
        """Powers of two that divide the own rows for a solver, whose tolerances are absolute."""
        return power_of_two(self._sizes[0])

    @cached_property
    def units(self) -> tuple[float, Array]:
        """Powers of two that scale a solver's costs and its columns: 1 for cells, for further columns by their rows.

        The cost of a further column is shared among its rows, as a prior's is: the optimum is then near 1, and the simplex method takes
        a quarter of the steps for a bounded count of 300.
        """
        columns = np.append(np.ones(self.cells), power_of_two(self._sizes[1][self.cells :]))
        sizes, where = np.abs(self.cost * columns), self.places[:, 1]
        rows_each = np.bincount(where, minlength=self.width)[self.cells :]
        sizes[self.cells :] /= _TYPICAL * np.maximum(rows_each, 1)
        return float(power_of_two(sizes.max(keepdims=True))[0]), columns

    def in_units(self, rows: Indices) -> tuple[sparse.csr_array, Array]:
        """Return coefficients and right sides of own rows for a solver, in the units of rows and columns."""
        scale = 1 / self.row_units[rows]
        matrix = sparse.diags_array(scale) @ self.matrix[rows] @ sparse.diags_array(self.units[1])
        return sparse.csr_array(matrix), -self.offsets[rows] * scale

    @cached_property
    def costs(self) -> list[fmpq]:
        """Costs in rationals."""
        return [rational(c) for c in self.cost.tolist()]

    @cached_property
    def parts(self) -> list[Part]:
        """Privacy, a part for each point (ε, δ)."""
        found, first = list[Part](), len(self.family)
        for asked in self.privacy:
            for point in asked.points:
                found.append(self._part(asked, point, first))
                first = found[-1].end
        return found

    def _part(self, asked: Any, point: tuple[float, float], first: int) -> Part:
        return Part(asked, point, first, self.n, self.m)

    @cached_property
    def zeros(self) -> frozenset[int]:
        """Cells that the constraints force to zero."""
        return self.forced()

    def forced(self, known: Iterable[int] = ()) -> frozenset[int]:
        """Return the cells that are 0 in every feasible table in which the `known` ones are, exactly."""
        return _forced(self.rows, self.parts, self.n, self.m, known)

    # -- words --------------------------------------------------------------------------------------------------

    @property
    def over(self) -> str:
        """The unknown in words."""
        return f"P[x, y] = Pr[output y | input x] >= 0, {self.n} inputs x {self.m} outputs, Σ_y P[x, y] = 1"

    def cell(self, j: int) -> str:
        """Return the name of a cell."""
        x, y = divmod(j, self.m)
        return f"P[{shown_label(self.inputs[x])}, {shown_label(self.outputs[y])}]"

    def meaning(self, asked: Any) -> str:
        parts = (part for part in self.parts if part.label == asked.label)
        rows = sum(len(part.pairs) * (1 if part.delta else part.m) for part in parts)
        return f"{self.inequality(asked)} ({rows} rows)"

    def inequality(self, asked: Any) -> str:
        """Return a requirement in symbols."""
        if any(delta for _, delta in asked.points):
            return "Σ_y max(P[x, y] - e^ε P[x', y], 0) <= δ"
        rate = "e^ε" if asked.distances is None else "e^(α d(x, x'))"
        return f"P[x, y] <= {rate} P[x', y]"

    def family_of(self, row: int) -> str:
        """Return the family of a row, by its number."""
        if row < len(self.family):
            return self.labels[int(self.family[row])]
        return next(part.label for part in self.parts if row < part.end)

    def value(self, v: list[fmpq]) -> fmpq:
        """Return the cost of exact columns."""
        return sum((c * x for c, x in zip(self.costs, v) if x and c), rational(self.constant))

    def linear_bound(
        self,
        rows: Indices,
        multipliers: Iterable[Any],
        *,
        costs: bool = True,
        zeros: frozenset[int] | None = None,
    ) -> LinearBound:
        """Return these rows with their multipliers, and the best ones of the sums; without costs a positive bound proves infeasibility.

        Omits the cells `zeros`, by default those that the constraints force to be zero.
        """
        n, m, zeros = self.n, self.m, self.zeros if zeros is None else zeros
        program = LinearBound(self.lemma, len(rows) + n + 1)
        column: dict[int, int] = {}
        for j in range(self.cells):
            if j not in zeros:
                column[j] = program.variable(f"P{j // m}.{j % m}", self.costs[j] if costs else 0)
        if costs and self.constant:
            program.row("constant", [(program.variable("one", self.constant), 1)], "E", 1, self.constant)
        further: dict[int, tuple[int, int]] = {}
        for j in range(self.cells, len(self.cost)):
            cost = self.costs[j] if costs else ZERO
            further[j] = program.variable(f"e{j}.up", cost), program.variable(f"e{j}.down", -cost)

        def split(terms: Iterable[tuple[int, fmpq]]) -> Iterator[tuple[int, fmpq]]:
            for j, a in terms:
                if j in column:
                    yield column[j], a
                elif j in further:
                    yield further[j][0], a
                    yield further[j][1], -a

        others: dict[Any, int] = {}
        edges = [len(self.family), *(part.end for part in self.parts)]
        if len(rows) and not 0 <= rows.min() <= rows.max() < edges[-1]:
            raise DesignError("rows: must be numbers of the problem's rows")
        parts = (np.searchsorted(edges, rows, "right") - 1).tolist()
        for number, held, p in zip(rows.tolist(), multipliers, parts):
            pause("lower bound")
            if p < 0:
                row, multiplier = self.rows[number], -rational(held)
                name = row.label.encode("ascii", "ignore").decode().replace(" ", "_")
                program.row(name, split(row.terms), "E" if row.equal else "L", -row.offset, multiplier)
                continue
            part, terms = self.parts[p], list[tuple[int, Any]]()
            entries, pair = part.row(number)
            for key, fixed, rate in entries:
                factor = fixed - rate * part.high(pair) if rate else fixed
                if isinstance(key, int):
                    if key in column:
                        terms.append((column[key], factor))
                    continue
                if (p, key) not in others:
                    others[p, key] = program.variable(".".join(map(str, (*key[:1], p, *key[1:]))))
                terms.append((others[p, key], factor))
            right = rational(part.delta) if part.delta and number >= part.sums else ZERO
            program.row("private", terms, "L", right, -rational(held))
        for x in range(n):
            group = [column[x * m + y] for y in range(m) if x * m + y in column]
            if group:
                program.sums_to(1, group)
        return program
