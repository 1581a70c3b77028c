r"""From a solver's doubles to a law inside the requirement, and to multipliers that prove a bound: once, for all tables.

1. **Two solves.** At ε(1 − 10⁻¹²), δ(1 − 10⁻¹²) for the law, with a step of iterative refinement, and from its basis the program as stated for the multipliers. Of many privacy rows
   those that are broken are generated; where one ratio holds for all pairs, floors take their place.
2. **Projection** onto the equalities, exactly, each cell moved in proportion to its size. A row that depends on earlier ones to 10⁻⁹ is left
   out, and holds to a residual that the audit states.
3. **Mixture.** If a row is broken still, mix with an interior point, the table of largest common slack, by the least share that mends all
   rows. Where there is none, rows with a multiplier are tight in every feasible table: they become equalities, and again (facial reduction).
4. **Integers**: the weights of each input over one denominator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.vipr import rational
from mechdesign.model.declared import FAR, ZERO, Declared, Part, Row
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Array, Indices

MARGIN = 1e-12
"""How much stricter, relative, privacy is in the program of the law."""
_BROKEN = 1e-10  # by which a row is broken in doubles before it is generated
_DEPENDENT = 1e-9  # of a row's norm: what is left of one that depends on others
RESIDUAL = 1e-12
"""Of a row's size: what a dependent equality may be missed by."""
_IMPLIED = 1e-7  # of a multiplier, of all that sum to 1, that says a row is tight everywhere
_BITS = 110  # of the doubles that are kept, below 1
_LEAST = 1e-11  # of a common slack
SURE = 1e-13
"""Of the sizes it comes from: a slack in doubles above it is one in exact arithmetic."""
_TINY = 1e-290  # below it doubles lose digits
Exact = list[fmpq]


class Program:
    """The linear program of a declaration in doubles, with privacy rows generated.

    Parameters
    ----------
    declared : Declared
    clock : Deadline
    solver : str, optional
        A registered backend.
    margin : float
        How much stricter privacy is, relative.
    room : bool
        Whether to seek the table of largest common slack, in place of the cheapest.
    costs : bool
        Without them any table is as good.
    zeros, tight : sets of int
        Cells that are 0, and own rows that are equalities.
    without : set of str
        Families that are left out; cells that they may force to zero are free then.
    listed : bool
        Whether all privacy rows are there from the first.
    """

    def __init__(
        self,
        declared: Declared,
        clock: Deadline,
        solver: str | None = None,
        *,
        margin: float = 0.0,
        room: bool = False,
        costs: bool = True,
        zeros: Iterable[int] = (),
        tight: frozenset[int] = frozenset(),
        without: frozenset[str] = frozenset(),
        listed: bool = False,
        **options: Any,
    ) -> None:
        self.declared, self.margin, self.room, self.tight = declared, margin, room, tight
        self.zeros = frozenset(zeros) | (frozenset() if without else declared.zeros)
        self.parts = [part for part in declared.parts if part.label not in without]
        self.lp = LinearProgram("program of the table", solver=solver, deadline=clock, **options)
        n, m, width = declared.n, declared.m, len(declared.cost)
        self._unit, self._units = declared.units
        cost = declared.cost * self._units / self._unit if costs and not room else np.zeros(width)
        upper = np.ones(declared.cells)
        upper[list(self.zeros)] = 0.0
        self.lp.add_columns("P", cost[: declared.cells], upper=upper)
        if width > declared.cells:
            self.lp.add_columns("e", cost[declared.cells :], lower=-np.inf)
        if room:
            self.lp.add_columns("room", [-1.0], lower=-np.inf, upper=1.0)
        sums = sparse.kron(sparse.eye_array(n), np.ones((1, m)))
        self.lp.add_rows("sums", {"P": sums}, lower=1.0, upper=1.0)
        self._numbers: dict[str, Indices] = {}  # of the rows, by family
        own = np.array([label not in without for label in declared.labels], dtype=bool)[declared.family]
        strict = (declared.equal > 0) | np.isin(np.arange(len(declared.family)), list(tight))
        self._own("equal", np.flatnonzero(own & strict))
        self._own("below", np.flatnonzero(own & ~strict))
        if room:
            self.open = np.setdiff1d(np.arange(declared.cells), list(self.zeros))
            cells = sparse.eye_array(declared.cells, format="csr")[self.open]
            self.lp.add_rows("cells", {"P": -cells, "room": np.ones((len(self.open), 1))}, upper=0.0)
        # of privacy rows: losses of their coefficients, nan where these are stated, and right sides
        self._losses, self._stated, self._sides = np.zeros(0), np.zeros(0), np.zeros(0)
        for part in self.parts:
            if part.floors:
                self._add(part, range(part.upper, part.end))
            else:
                near = np.arange(len(part.pairs)) if listed else np.flatnonzero(self._first(part))
                self._add(part, self._whole(part, near))

    # -- rows ------------------------------------------------------------------------------------------------

    def _own(self, name: str, rows: Indices) -> None:
        """Add own rows; room is left in inequalities."""
        if not len(rows):
            return
        d = self.declared
        scale = d.row_units[rows]
        matrix = sparse.csr_array(
            sparse.diags_array(1 / scale) @ d.matrix[rows] @ sparse.diags_array(self._units)
        )
        right = -d.offsets[rows] / scale
        blocks: dict[str, Any] = {"P": matrix[:, : d.cells]}
        if matrix.shape[1] > d.cells:
            blocks["e"] = matrix[:, d.cells :]
        if self.room and name == "below":
            blocks["room"] = np.ones((len(rows), 1))
        self.lp.add_rows(name, blocks, lower=right if name == "equal" else -np.inf, upper=right)
        self._numbers[name] = rows

    def _rates(self) -> Array:
        """Coefficients of the privacy rows."""
        rates = -np.exp(np.minimum(self._losses * (1 - self.margin), FAR))
        return np.where(np.isnan(self._losses), self._stated, rates)

    @staticmethod
    def _whole(part: Part, k: Indices) -> list[int]:
        """Numbers of all rows of these pairs."""
        listed = (part.first + k[:, None] * part.m + np.arange(part.m)).ravel().tolist()
        return listed + ((part.sums + k).tolist() if part.delta else [])

    def _add(self, part: Part, numbers: Iterable[int]) -> None:
        """Add privacy rows, and the slacks and floors that stand in them first here."""
        numbers, new = list(numbers), dict[Any, int]()
        entries: dict[str, list[tuple[int, int, float, float]]] = {"P": [], "new": [], "room": []}
        for i, number in enumerate(numbers):
            terms, pair = part.row(number)
            for key, sign in terms:
                cell = isinstance(key, int)
                column = key if cell else new.setdefault(key, len(new))
                loss = math.nan if sign else part.losses[pair]
                entries["P" if cell else "new"].append((i, column, float(sign), loss))
            cells = [key for key, _ in terms if isinstance(key, int)]
            excess, below = part.delta and number < part.sums, part.floors and number >= part.lower
            if self.room and not (excess or below or (cells and self.zeros.issuperset(cells))):
                entries["room"].append((i, 0, 1.0, math.nan))
        known = self._numbers.get("private", np.zeros(0, dtype=np.int64))
        families = {"P": "P", "room": "room", "new": f"{part.first}.{len(known)}"}
        if new:
            self.lp.add_columns(families["new"], np.zeros(len(new)))
        blocks = dict[str, Any]()
        for name, held in entries.items():
            if held:
                rows, columns, stated, losses = (np.array(side) for side in zip(*held))
                self._losses = np.append(self._losses, losses)
                self._stated = np.append(self._stated, stated)
                shape, data = (
                    (len(numbers), self.lp.columns[families[name]].size),
                    self._rates()[-len(held) :],
                )
                blocks[families[name]] = sparse.coo_array((data, (rows, columns)), shape=shape)
        sides = np.where(np.array(numbers) >= part.sums, part.delta, 0.0)
        self.lp.add_rows("private", blocks, upper=sides * (1 - self.margin))
        self._numbers["private"] = np.append(known, np.array(numbers, dtype=np.int64))
        self._sides = np.append(self._sides, sides)

    def _first(self, part: Part) -> Any:
        """Pairs to begin with: where ε is the same of all, inputs next to each other; of a metric, those that no third input lies between."""
        a, b = part.pairs.T
        if len(part.distances) == 1:
            near = np.abs(a - b) == 1
            return near if near.any() else np.ones(len(a), dtype=bool)
        far = np.full((part.n, part.n), np.inf)
        far[a, b] = part.losses
        near = np.zeros(len(a), dtype=bool)
        for k in range(0, len(a), 1024):
            some = slice(k, k + 1024)
            by_way = far[a[some]] + far[:, b[some]].T
            near[some] = by_way.min(axis=1) > part.losses[some] * (1 + 1e-9)
        return near

    def state(self, margin: float) -> None:
        """Change how much stricter privacy is; the basis stays."""
        self.margin = margin
        self.lp.change_rows("private", self._rates(), upper=self._sides * (1 - margin))

    # -- solving ---------------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Solve, and again while privacy rows are broken.

        Raises
        ------
        InfeasibleError, SolverError
        """
        while True:
            self.solution = self.lp.answer()
            if not sum([self._generate(part) for part in self.parts if not part.floors]):
                return

    def _generate(self, part: Part) -> int:
        """Add the most broken rows of a part; return how many."""
        n, m, found = part.n, part.m, []
        table = np.maximum(self.columns()[: n * m].reshape(n, m), 0.0)
        room = float(self.solution.primal["room"][0]) if self.room else 0.0
        for numbers, over, _ in part.scan(table, self.margin):
            some = over + max(room, 0.0) > _BROKEN
            found.append(np.column_stack([numbers[some], over[some]]))
        broken = np.concatenate(found)
        broken = broken[~np.isin(broken[:, 0], self._numbers["private"])]
        most = max(200, 4 * n) if part.delta else max(2000, 4 * n * m)
        rows = broken[np.argsort(-broken[:, 1], kind="stable")[:most], 0].astype(np.int64)
        if len(rows):
            self._add(part, self._whole(part, rows - part.sums) if part.delta else rows.tolist())
        return len(rows)

    def columns(self) -> Array:
        """Cells and further columns at the last solve."""
        primal = self.solution.primal
        return np.concatenate([np.ravel(primal[name]) for name in ("P", "e") if name in primal]) * self._units

    def refined(self) -> Array | None:
        """The same after a step of iterative refinement, where the backend has a basis and it succeeds."""
        if self.lp.solver != "highs" or not self.lp.refine():
            return None
        found = (np.ravel(self.lp.primal(name)) for name in ("P", "e") if name in self.lp.columns)
        return np.concatenate([*found]) * self._units

    def multipliers(self, ray: Array | None = None) -> tuple[Indices, Array]:
        """Numbers of rows and their multipliers, of the last solve or of a ray that proves it infeasible."""

        found = {
            name: np.ravel(self.solution.dual[name]) if ray is None else -ray[self.lp.rows[name]]
            for name in self._numbers
        }
        rows, values = (np.concatenate([*held.values()]) for held in (self._numbers, found))
        values[np.abs(values) <= 1e-16 * np.abs(values).max(initial=0.0)] = 0.0
        own = rows < len(self.declared.family)
        with np.errstate(over="ignore"):
            values[own] /= self.declared.row_units[rows[own]]
            values *= self._unit
        order = np.argsort(rows, kind="stable")
        return rows[order], values[order]


# -- multipliers --------------------------------------------------------------------------------------------------


def admissible(
    declared: Declared, rows: Indices, values: Array, *, costs: bool = True
) -> tuple[Indices, tuple[Fraction, ...]]:
    """Return multipliers next to these that the theorem of `Declared` allows."""
    held = dict(zip(rows.tolist(), values.tolist()))
    own, m = len(declared.family), declared.m
    kept = {
        number: rational(value)
        for number, value in held.items()
        if math.isfinite(value) and (value > 0 or (number < own and declared.equal[number] and value < 0))
    }
    for part in declared.parts:
        if (part.losses > FAR).any():  # times e^ε, what a solver leaves of these takes more than they give
            for number in [n for n in kept if part.first <= n < part.end]:
                if part.losses[part.row(number)[1]] > FAR:
                    del kept[number]
        if part.delta:
            for k in range(len(part.pairs)):
                most = kept.get(part.sums + k, ZERO)
                for number in range(part.first + k * m, part.first + (k + 1) * m):
                    if number in kept and not (most and kept[number] <= most):
                        kept[number] = most
        elif part.floors:
            inputs = range(part.n)
            for y in range(m):
                above = [number for x in inputs if (number := part.upper + x * m + y) in kept]
                below = [number for x in inputs if (number := part.lower + x * m + y) in kept]
                paid = sum((kept[number] for number in below), ZERO)
                asked = part.high(0) * sum((kept[number] for number in above), ZERO)
                if asked > paid:
                    share = _short(paid / asked, down=True)
                    kept.update({number: kept[number] * share for number in above})
    _paid(declared, kept, costs)
    order = sorted(number for number, value in kept.items() if value)
    return np.array(order, dtype=np.int64), tuple(fraction(kept[number]) for number in order)


def _paid(declared: Declared, kept: dict[int, fmpq], costs: bool) -> None:
    """Move multipliers of own rows so that they pay for each further column exactly."""
    columns = range(declared.cells, len(declared.cost))
    if not columns:
        return
    charges: list[tuple[dict[int, fmpq], fmpq]] = []
    for j in columns:
        entries = {i: a for i, row in enumerate(declared.rows) for c, a in row.terms if c == j and i in kept}
        charges.append((entries, declared.costs[j] if costs else ZERO))
    charges = [charge for charge in charges if charge[0]]
    start = [kept.get(i, ZERO) for i in range(len(declared.family))]
    for i, value in enumerate(project(_independent(charges)[0], start)):
        if i in kept:
            kept[i] = value if declared.equal[i] or value > 0 else ZERO


def fraction(value: fmpq) -> Fraction:
    """The same number as Python has it."""
    return Fraction(int(value.p), int(value.q))


def _short(value: fmpq, *, down: bool = False) -> fmpq:
    """A number of few bits next to one in [0, 1], above it unless `down`."""
    if value <= 0:
        return ZERO
    bits = 40 + max(0, int(value.q).bit_length() - int(value.p).bit_length())
    scaled = value * (1 << bits)
    p, q = int(scaled.p), int(scaled.q)
    return fmpq(p // q if down else -(-p // q), 1 << bits)


# -- exact points ---------------------------------------------------------------------------------------------------

Equation = tuple[dict[int, fmpq], fmpq]
"""Coefficients by column, and a constant: ``sum(a v) + k == 0``."""


def _independent(equations: list[Equation]) -> tuple[list[Equation], list[int]]:
    """The equations that do not depend on earlier ones to 1e-9 in doubles, and the places of the others."""
    kept, left = [], []
    for members in _blocks(equations):
        columns = sorted({j for i in members for j in equations[i][0]})
        place = {j: k for k, j in enumerate(columns)}
        basis = np.zeros((0, len(columns)))
        for i in members:
            v = np.zeros(len(columns))
            for j, a in equations[i][0].items():
                v[place[j]] = float(a)
            size = np.linalg.norm(v)
            v = v / size if size else v
            for _ in range(2):
                v = v - basis.T @ (basis @ v)
            rest = np.linalg.norm(v)
            if rest > _DEPENDENT:
                basis = np.vstack([basis, v / rest])
                kept.append(i)
            else:
                left.append(i)
    return [equations[i] for i in sorted(kept)], sorted(left)


def _blocks(equations: list[Equation]) -> list[list[int]]:
    """Places of equations that share columns, directly or by others."""
    entries = [(i, j) for i, (terms, _) in enumerate(equations) for j in terms]
    width = 1 + max((j for _, j in entries), default=0)
    size = len(equations) + width
    i, j = (np.array(side, dtype=int) for side in (zip(*entries) if entries else ((), ())))
    graph = sparse.csr_array((np.ones(len(i)), (i, j + len(equations))), shape=(size, size))
    labels = connected_components(graph, directed=False)[1][: len(equations)].tolist()
    found: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        found.setdefault(label, []).append(place)
    return list(found.values())


def project(equations: list[Equation], start: Exact) -> Exact:
    """Return the point next to `start` on independent equations, exactly; each number moves in proportion to its size.

    Zeros stay where the others suffice: a solver's vertex keeps its empty cells.
    """
    found = list(start)
    for members in _blocks(equations):
        block = [equations[i] for i in members]
        for moved in (_moved(block, found, 0.0), _moved(block, found, 2.0**-40)):
            if moved is not None:
                break
        assert moved is not None  # independent equations
        for j, move in moved.items():
            found[j] += move
    return found


def _moved(block: list[Equation], found: Exact, least: float) -> dict[int, fmpq] | None:
    """How far each number moves; None where those of a size cannot, or would move far."""
    residual = [k + sum((a * found[j] for j, a in terms.items()), ZERO) for terms, k in block]
    if not any(residual):
        return {}
    sizes = {j: abs(float(found[j])) + least for terms, _ in block for j in terms}
    weight = {j: fmpq(2) ** math.frexp(size)[1] for j, size in sizes.items() if size}
    terms = [{j: a for j, a in held.items() if j in weight} for held, _ in block]
    matrix = fmpq_mat(len(block), len(block))
    for i, held in enumerate(terms):
        for k, others in enumerate(terms[: i + 1]):
            small, large = sorted((held, others), key=len)
            entry = sum((a * large[j] * weight[j] for j, a in small.items() if j in large), ZERO)
            matrix[i, k] = matrix[k, i] = entry
    try:
        moves = matrix.solve(fmpq_mat(len(block), 1, [-r for r in residual]))
    except ZeroDivisionError:
        return None
    total: dict[int, fmpq] = {}
    for i, held in enumerate(terms):
        for j, a in held.items():
            total[j] = total.get(j, ZERO) + a * moves[i, 0] * weight[j]
    far = not least and any(abs(float(move)) > 1e-3 * sizes[j] + 1e-9 for j, move in total.items())
    return None if far else total


@dataclass(frozen=True, eq=False)
class Face:
    """The smallest known face of the feasible tables: cells that are zero, own rows that are equalities."""

    declared: Declared
    zeros: frozenset[int]
    tight: frozenset[int] = frozenset()

    @cached_property
    def _split(self) -> tuple[list[Equation], list[Row]]:
        d = self.declared
        rows = [
            Row("sum", True, tuple((x * d.m + y, fmpq(1)) for y in range(d.m)), fmpq(-1)) for x in range(d.n)
        ]
        rows += [row for i, row in enumerate(d.rows) if row.equal or i in self.tight]
        equations = [({j: a for j, a in row.terms if j not in self.zeros}, row.offset) for row in rows]
        kept, left = _independent(equations)
        return kept, [rows[i] for i in left]

    def point(self, columns: Array) -> Exact:
        """The exact point on all equalities next to a solver's."""
        d = self.declared
        near = [rational(_kept(max(0.0, x))) for x in columns[: d.cells].tolist()]
        near += [rational(x) for x in columns[d.cells :].tolist()]
        for j in self.zeros:
            near[j] = ZERO
        return self._lowered(project(self._split[0], near))

    # -- slacks, by number: own rows and privacy by theirs, cells by -1 - cell --------------------------------

    def slack(self, number: int, v: Exact) -> fmpq:
        """How much an inequality is kept by; e^ε is taken from below."""
        d = self.declared
        if number < 0:
            return v[-1 - number]
        if number < len(d.family):
            return -d.rows[number].at(v)
        part = next(part for part in d.parts if number < part.end)
        if part.floors and number >= part.upper:
            j = (number - part.upper) % (part.n * part.m)
            least: fmpq = min(v[j % part.m : part.n * part.m : part.m])
            return part.low(0) * least - v[j]
        k, y = divmod(number - part.first, part.m) if number < part.sums else (number - part.sums, 0)
        (a, b), low = part.pairs[k].tolist(), part.low(k)
        if number < part.sums:
            kept: fmpq = low * v[b * part.m + y] - v[a * part.m + y]
            return kept
        excess = (v[a * part.m + y] - low * v[b * part.m + y] for y in range(part.m))
        spent: fmpq = sum((one for one in excess if one > 0), ZERO)
        return rational(part.delta) - spent

    def close(self, v: Exact, *, listed: bool = False) -> list[int]:
        """Numbers of the inequalities that doubles do not show to hold; of floors by output and input, unless pairs are to be listed."""
        d = self.declared
        x = np.array([float(value) for value in v])
        zero = np.zeros(len(x), dtype=bool)
        zero[list(self.zeros)] = True
        found = [-1 - j for j in np.flatnonzero((x[: d.cells] <= 0) & ~zero[: d.cells]).tolist()]
        size = abs(d.matrix) @ np.abs(x) + np.abs(d.offsets)
        open_ = (d.matrix @ x + d.offsets > -SURE * size) & (d.equal == 0)
        found += [i for i in np.flatnonzero(open_).tolist() if i not in self.tight]
        table, none = x[: d.cells].reshape(d.n, d.m), zero[: d.cells]
        for part in d.parts:
            for numbers, over, size in part.scan(table, listed=listed):
                rows = numbers[~(over < -SURE * size) | (size < _TINY)].tolist()
                if not part.delta and none.any():  # of cells that are zero there is nothing to see
                    rows = [
                        r for r in rows if not all(none[j] for j, _ in part.row(r)[0] if isinstance(j, int))
                    ]
                found += rows
        return found

    def broken(self, v: Exact) -> dict[int, fmpq]:
        """Inequalities that do not hold, with their slack, exactly."""
        slacks = ((number, self.slack(number, v)) for number in self.close(v))
        return {number: slack for number, slack in slacks if slack < 0}

    def settled(self, v: Exact) -> tuple[Exact, dict[str, fmpq]]:
        """Return the point with further columns lowered as far as their rows allow, and what dependent equalities are missed by.

        Raises
        ------
        InfeasibleError
            One is missed by more than rounding.
        """
        missed = dict[str, fmpq]()
        for row in self._split[1]:
            if (off := abs(row.at(v))) > rational(RESIDUAL) * row.size:
                raise InfeasibleError(
                    f"{row.label!r} contradicts equalities stated before it, by {float(off):.1e}"
                )
            if off:
                missed[row.label] = max(off, missed.get(row.label, ZERO))
        return self._lowered(v), missed

    def _lowered(self, v: Exact) -> Exact:
        """The point with further columns as low as their rows allow, so that none of these is broken."""
        d, found = self.declared, list(v)
        for _ in range(2):
            for j in range(d.cells, len(found)):
                above = [(row, a) for row in d.rows for c, a in row.terms if c == j]
                if d.costs[j] >= 0 and not any(row.equal for row, _ in above):
                    least = (found[j] + row.at(found) / -a for row, a in above if a < 0)
                    found[j] = max(least, default=found[j])
        return found


def _kept(x: float) -> float:
    """A double without the digits below 2⁻¹¹⁰, which would make denominators long."""
    return math.ldexp(round(math.ldexp(x, _BITS)), -_BITS) if abs(x) < 2.0 ** (53 - _BITS) else x


def interior(declared: Declared, clock: Deadline, solver: str | None) -> tuple[Face, Array]:
    """Return the smallest face that all feasible tables lie in, and its point of largest common slack (facial reduction)."""
    face = Face(declared, declared.zeros)
    while True:
        program = Program(declared, clock, solver, room=True, zeros=face.zeros, tight=face.tight)
        try:
            program.solve()
        except InfeasibleError:
            raise _unrepaired(solver) from None
        if float(program.solution.primal["room"][0]) > _LEAST:
            return face, program.columns()
        cells = program.open[np.ravel(program.solution.dual["cells"]) > _IMPLIED]
        rows, values = program.multipliers()
        known = face.tight | set(np.flatnonzero(declared.equal).tolist())
        implied = (
            frozenset(rows[(rows < len(declared.family)) & (np.abs(values) > _IMPLIED)].tolist()) - known
        )
        if not len(cells) and not implied:
            names = " and ".join(repr(asked.label) for asked in declared.privacy)
            raise InfeasibleError(
                f"{names} can be met at exactly this epsilon only, where no law is private in exact arithmetic: ask for 1e-9 more"
            )
        face = Face(declared, declared.forced(face.zeros | set(cells.tolist())), face.tight | implied)


def _unrepaired(solver: str | None) -> SolverError:
    message = "no exact table was found next to the solver's"
    return SolverError(message, solver=solver or "highs", status="repair")


def repaired(
    declared: Declared, columns: Iterable[Array], clock: Deadline, solver: str | None = None
) -> tuple[Exact, dict[str, fmpq]]:
    """Return the cheapest exact point inside all constraints that a solver's doubles lead to, and what dependent equalities are missed by.

    Parameters
    ----------
    declared : Declared
    columns : arrays
        Nearly feasible points; the first that needs no mixture is taken.
    """
    face, points = Face(declared, declared.zeros), []
    for start in columns:
        point = face.point(start)
        if not (broken := face.broken(point)):
            return face.settled(point)
        points.append((start, point, broken))
    smaller, middle = interior(declared, clock, solver)
    ends = [smaller.point(middle)]
    if any(slack < 0 for slack in smaller.broken(ends[0]).values()):
        raise _unrepaired(solver)
    strict = Program(declared, clock, solver, margin=1e-3, zeros=smaller.zeros, tight=smaller.tight)
    try:  # an optimum of stricter privacy has slack in proportion, where the common slack is small
        strict.solve()
        other = smaller.point(strict.columns())
        ends += [_mixed(ends[0], other, fmpq(1, share)) for share in (2, 100, 10_000)]
    except (InfeasibleError, SolverError):
        pass
    best: tuple[fmpq, Exact] | None = None
    for start, point, _ in points:
        if smaller.zeros != face.zeros or smaller.tight:
            point = smaller.point(start)
        broken = smaller.broken(point)
        for end in ends:
            if end is not ends[0] and smaller.broken(end):
                continue
            slacks = {number: smaller.slack(number, end) for number in broken}
            if any(slack <= 0 for slack in slacks.values()):
                continue
            shares = (broken[number] / (broken[number] - slack) for number, slack in slacks.items())
            found = _mixed(end, point, _short(max(shares, default=ZERO)))
            cost = declared.value(found)
            if best is None or cost < best[0]:
                best = cost, found
    if best is None or smaller.broken(best[1]):
        raise _unrepaired(solver)
    return smaller.settled(best[1])


def _mixed(end: Exact, start: Exact, share: fmpq) -> Exact:
    rest = 1 - share
    return [share * a + rest * b for a, b in zip(end, start)]


def weights_of(declared: Declared, columns: Exact) -> tuple[tuple[int, ...], ...]:
    """Integer weights in proportion to the cells of each input."""
    rows = []
    for x in range(declared.n):
        cells = columns[x * declared.m : (x + 1) * declared.m]
        common = math.lcm(*(int(c.q) for c in cells))
        rows.append(tuple(int(c.p) * (common // int(c.q)) for c in cells))
    return tuple(rows)


# -- infeasibility ----------------------------------------------------------------------------------------------


def feasible(declared: Declared, clock: Deadline, without: frozenset[str] = frozenset()) -> bool:
    """Whether a solver finds a table."""
    try:
        Program(declared, clock, costs=False, without=without).solve()
    except InfeasibleError:
        return False
    return True


def contradiction(declared: Declared, clock: Deadline) -> tuple[list[str], bool]:
    """Families that contradict each other, none of which can be spared; and whether that is proved in rationals."""
    proved, support = False, set[str]()
    if any(all(x * declared.m + y in declared.zeros for y in range(declared.m)) for x in range(declared.n)):
        proved = True
    else:
        program = Program(declared, clock, costs=False)
        try:
            program.solve()
        except InfeasibleError:
            ray = program.lp.ray()
            for side in () if ray is None else (ray, -ray):
                rows, values = program.multipliers(side / np.abs(side).max())
                held = admissible(declared, rows, values, costs=False)
                bound = declared.linear_bound(*held, costs=False)
                if bound.admissible and bound.bound > 0:
                    proved, support = True, {declared.family_of(row) for row in held[0].tolist()}
                    break
    families = declared.families()
    spare = frozenset(families) - support if support else frozenset()
    if declared.zeros or feasible(declared, clock, spare):
        spare = frozenset()
    for label in families:
        if label not in spare and not feasible(declared, clock, spare | {label}):
            spare |= {label}
    return [label for label in families if label not in spare], proved


def least_epsilon(
    declared: Declared, labels: Iterable[str], clock: Deadline, most: float = 64.0
) -> float | None:
    """The least factor of ε in these families at which a solver finds a table, times ε: doubled until feasible, then halved.

    None where these families have several ε, or none below `most` suffices.
    """
    chosen = set(labels)
    held = [asked for asked in declared.privacy if asked.label in chosen]
    points = {point[0] for asked in held for point in asked.points}
    if len(points) != 1 or 0 in points:
        return None
    (epsilon,) = points

    def at(factor: float) -> bool:
        asked = tuple(a.scaled(factor) if a.label in chosen else a for a in declared.privacy)
        return feasible(replace(declared, privacy=asked), clock)

    low, high = 1.0, 2.0
    while not at(high):
        low, high = high, 2 * high
        if high * epsilon > most:
            return None
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle) else (middle, high)
    return high * epsilon
