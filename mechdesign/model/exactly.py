r"""Exact repair, for all tables: turn a solver's doubles into a law that meets the requirement, and into multipliers that prove a bound.

1. **Two solves.** One at ε(1 − 10⁻¹²), δ(1 − 10⁻¹²) for the law, with a step of iterative refinement if rows are broken, and from its basis the program as stated for the multipliers. Privacy rows
   are generated as they are broken; if one ratio holds for all pairs, floors take their place.
2. **Projection** onto the equalities, exactly; each cell moves in proportion to its size. A row that depends on earlier ones to 10⁻⁹ is
   omitted, and holds to a residual that the audit states.
3. **Mixture.** If a row is still broken, mix with an interior point, the table of largest common slack, by the least share that repairs all
   rows. If there is no interior point, rows with a multiplier are tight in every feasible table: make them equalities and repeat (facial reduction).
4. **Integers**: the weights of each input over one denominator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from mechdesign.doubles import LARGEST_POWER, TINY
from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.exact import LARGEST, fraction, least_kept, rational, round_down
from mechdesign.evidence.proofs import PROVED, Claim, RowsBound
from mechdesign.model.declared import Declared, Part
from mechdesign.model.expressions import ZERO, OwnRows, Row
from mechdesign.model.program import Program
from mechdesign.problem.spine import Bound
from mechdesign.solvers.deadline import Deadline, limited, pause
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Array, Indices, Weights

MARGIN = 1e-12
"""Relative tightening of privacy in the program of the law."""
_DEPENDENT = 1e-9  # largest remainder of a dependent row, relative to its norm
STRICTER = 1e-3
"""Relative tightening of privacy for an optimum that is inside by more than a solver's error."""
RESIDUAL = 1e-12
"""Largest residual of a dependent equality, relative to the row's size."""
_IMPLIED = 1e-7  # least multiplier, of all that sum to 1, of a row that is tight everywhere
_NONE: Any = np.zeros(0, dtype=np.int64)
_BITS = 109  # fractional bits kept of doubles
_LEAST = 1e-11  # least common slack
SURE = 1e-13
"""A slack in doubles above this, relative to its terms, is positive in exact arithmetic."""
_ROOM = 1e-10  # share of ε and δ, of ε 1e-12 at most, left to rounding if columns are raised
_EMPTY, _FLOOR = (
    1e-28,
    2.0**-68,
)  # largest column that is a solver's zero, and least cell of others, whose digits are kept
_ROUNDED = 0.1  # of what is left to rounding: the most of sums
Exact = list[fmpq]


# -- multipliers --------------------------------------------------------------------------------------------------


def admissible(
    declared: Declared, rows: Indices, values: Array, *, costs: bool = True
) -> tuple[Indices, tuple[Fraction, ...]]:
    """Return multipliers near these that satisfy the theorem of `Declared`."""
    held = dict(zip(rows.tolist(), values.tolist()))
    own = len(declared.family)
    kept = {
        number: rational(value)
        for number, value in held.items()
        if math.isfinite(value) and (value > 0 or (number < own and declared.equal[number] and value < 0))
    }
    for part in declared.parts:
        most_loss = min(part.most, LARGEST)
        if (part.losses > most_loss).any():  # times e^ε, a solver's errors in these cost more than they gain
            for number in [n for n in kept if part.first <= n < part.end]:
                if part.losses[part.row(number)[1]] > most_loss:
                    del kept[number]
        if part.delta:
            for k in range(len(part.pairs)):
                each = range(part.first + k * part.m, part.first + (k + 1) * part.m)
                if listed := [kept[number] for number in (part.sums + k, *each) if number in kept]:
                    kept[part.sums + k] = max(listed)  # at the cost of δ; lower rows would cost e^ε
        elif part.floors:
            inputs = range(part.n)
            for y in range(part.m):
                above = [number for x in inputs if (number := part.upper + x * part.m + y) in kept]
                below = [number for x in inputs if (number := part.lower + x * part.m + y) in kept]
                if not above:
                    continue
                paid = sum((kept[number] for number in below), ZERO)
                asked = part.high(0) * sum((kept[number] for number in above), ZERO)
                if asked > paid:
                    share = _short(paid / asked, down=True)
                    kept.update({number: kept[number] * share for number in above})
    _paid(declared, kept, costs)
    order = sorted(number for number, value in kept.items() if value)
    return np.array(order, dtype=np.int64), tuple(fraction(kept[number]) for number in order)


def bound_of(declared: Declared, rows: Indices, multipliers: Iterable[Any]) -> Iterator[Bound]:
    """Yield the bound that these multipliers prove, unless a reduced cost is negative."""
    proof = RowsBound(rows, tuple(multipliers))
    if (bound := declared.linear_bound(rows, proof.multipliers)).admissible:
        yield Bound(round_down(fraction(bound.bound)), proof)


def proved_bounds(declared: Declared, rows: Indices = _NONE, multipliers: Array = _NONE) -> Iterator[Bound]:
    """Yield the higher of two bounds: that of a solver's multipliers of these rows, if any, and that of none, the least loss of each input."""
    tried = (admissible(declared, rows[:count], multipliers[:count]) for count in {len(rows), 0})
    found = (bound for held in tried for bound in bound_of(declared, *held))
    yield from sorted(found, key=lambda one: one.value)[-1:]


def _paid(declared: Declared, kept: dict[int, fmpq], costs: bool) -> None:
    """Move multipliers of own rows so that each further column has reduced cost 0 exactly."""
    columns = range(declared.cells, len(declared.cost))
    if not columns:
        return
    charges, units = list[tuple[dict[int, fmpq], fmpq]](), [rational(u) for u in declared.row_units.tolist()]
    for j in columns:
        entries = {
            i: a / units[i]
            for i, row in enumerate(declared.rows)
            for c, a in row.terms
            if c == j and i in kept
        }
        charges.append((entries, declared.costs[j] if costs else ZERO))
    charges = [charge for charge in charges if charge[0]]
    start = [kept.get(i, ZERO) * unit for i, unit in enumerate(units)]
    for i, value in enumerate(project(_independent(charges)[0], start)):
        if i in kept:
            kept[i] = value / units[i] if declared.equal[i] or value > 0 else ZERO
    # rounding may have left multipliers on a column without a cost that no other row can balance
    unpaid = True
    while unpaid:
        unpaid = False
        for entries, cost in charges:
            if not cost and sum((a * units[i] * kept[i] for i, a in entries.items()), ZERO):
                kept.update(dict.fromkeys(entries, ZERO))
                unpaid = True


def _short(value: fmpq, *, down: bool = False) -> fmpq:
    """Return a number of few bits next to one in [0, 1], above it unless `down`."""
    if value <= 0:
        return ZERO
    bits = 40 + max(0, int(value.q).bit_length() - int(value.p).bit_length())
    scaled = value * (1 << bits)
    p, q = int(scaled.p), int(scaled.q)
    return fmpq(p // q if down else -(-p // q), 1 << bits)


def refuted(program: LinearProgram) -> bool:
    """Return whether multipliers prove in rationals that a program is infeasible; columns without bounds are balanced exactly."""
    ray, lp, matrix = program.ray(), program.highs.getLp(), program.matrix()
    low, high, least, most = map(_finite, (lp.row_lower_, lp.row_upper_, lp.col_lower_, lp.col_upper_))
    rows, columns = ([dict[int, fmpq]() for _ in side] for side in (low, least))
    for i, j, a in zip(*(part.tolist() for part in (*matrix.coords, matrix.data))):
        rows[i][j] = columns[j][i] = rational(a)
    for i, row in enumerate(rows):  # a row of non-negative terms bounds its columns
        if high[i] is not None and all(a > 0 and least[j] == 0 for j, a in row.items()):
            for j, a in row.items():
                most[j] = min(high[i] / a, high[i] / a if most[j] is None else most[j])
    for y in () if ray is None else (ray.tolist(), (-ray).tolist()):
        kept = {i: rational(v) for i, v in enumerate(y) if v and (low if v > 0 else high)[i] is not None}
        free = [columns[j] for j in range(len(columns)) if least[j] is None and most[j] is None]
        charges = [({i: a for i, a in column.items() if i in kept}, ZERO) for column in free]
        moved = [kept.get(i, ZERO) for i in range(len(rows))]
        if charges := [charge for charge in charges if charge[0]]:
            moved = project(_independent(charges)[0], moved)
        charged = [sum((a * moved[i] for i, a in column.items()), ZERO) for column in columns]
        given = [(v, (low if v > 0 else high)[i]) for i, v in enumerate(moved) if v]
        taken = [(v, (most if v > 0 else least)[j]) for j, v in enumerate(charged) if v]
        if any(side is None for _, side in (*given, *taken)):
            continue
        if sum((v * side for v, side in given), ZERO) > sum((v * side for v, side in taken), ZERO):
            return True
    return False


def _finite(sides: Iterable[float]) -> list[Any]:
    """Return bounds in rationals; None for infinite ones."""
    return [rational(side) if math.isfinite(side) else None for side in sides]


# -- exact points ---------------------------------------------------------------------------------------------------

Equation = tuple[dict[int, fmpq], fmpq]
"""Coefficients by column, and a constant: ``sum(a v) + k == 0``."""


def _independent(equations: list[Equation]) -> tuple[list[Equation], list[int]]:
    """Return the equations that do not depend on earlier ones to 1e-9 in doubles, and the places of the others."""
    kept, left = [], []
    for members in _blocks(equations):
        columns = sorted({j for i in members for j in equations[i][0]})
        place = {j: k for k, j in enumerate(columns)}
        basis = np.zeros((0, len(columns)))
        for i in members:
            v = np.zeros(len(columns))
            for j, a in equations[i][0].items():
                v[place[j]] = float(a)
            v = v / (np.abs(v).max(initial=0.0) or 1.0)  # squares may overflow
            v = v / (np.linalg.norm(v) or 1.0)
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
    """Return the places of equations that share columns, directly or through others."""
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
    """Project `start` onto independent equations, exactly; each number moves in proportion to its size.

    Zeros stay if the other numbers suffice: a solver's vertex keeps its empty cells.
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
    """Return moves that solve the equations, in proportion to the numbers' sizes plus `least`; None if there are none, or with least = 0 if one is large."""
    residual = [k + sum((a * found[j] for j, a in terms.items()), ZERO) for terms, k in block]
    if not any(residual):
        return {}
    sizes = {j: abs(float(found[j])) + least for terms, _ in block for j in terms}
    weight = {j: fmpq(2) ** math.frexp(size)[1] for j, size in sizes.items() if size}
    terms = [{j: a for j, a in held.items() if j in weight} for held, _ in block]
    matrix = fmpq_mat(len(block), len(block))
    for i, held in enumerate(terms):
        pause("exact table")
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


def lowered(v: Exact, cells: int, rows: Sequence[Row], costs: Sequence[fmpq]) -> Exact:
    """Return the point with the columns after its cells as low as the rows allow."""
    found = list(v)
    for _ in range(min(2, len(found) - cells)):  # they may bound each other
        for j in range(cells, len(found)):
            above = [(row, a) for row in rows for c, a in row.terms if c == j]
            if costs[j] >= 0 and not any(row.equal for row, _ in above):
                least = (found[j] + row.at(found) / -a for row, a in above if a < 0)
                found[j] = max(least, default=found[j])
    return found


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
        """Return the exact point on all equalities next to a solver's."""
        d = self.declared
        near = [rational(_kept(max(0.0, x))) for x in columns[: d.cells].tolist()]
        near += [rational(x) for x in columns[d.cells :].tolist()]
        for j in self.zeros:
            near[j] = ZERO
        return self.lowered(project(self._split[0], near))

    # -- slacks, by number: own rows and privacy by theirs, cells by -1 - cell --------------------------------

    def slack(self, number: int, v: Exact) -> fmpq:
        """Return the slack of an inequality, with e^ε from below."""
        d = self.declared
        if number < 0:
            return v[-1 - number]
        if number < len(d.family):
            return -d.rows[number].at(v)
        return next(part for part in d.parts if number < part.end).slack(number, v)

    def close(self, v: Exact, *, listed: bool = False) -> list[int]:
        """Return the numbers of inequalities that doubles do not prove; those of floors by output and input, unless pairs are to be listed."""
        d = self.declared
        x, zero = np.array([float(value) for value in v]), np.array([not value for value in v])
        forced = np.isin(np.arange(d.cells), list(self.zeros))
        found = [-1 - j for j in np.flatnonzero((x[: d.cells] <= 0) & ~forced).tolist()]
        size = abs(d.matrix) @ np.abs(x) + np.abs(d.offsets)
        open_ = (d.matrix @ x + d.offsets > -SURE * size) & (d.equal == 0)
        found += [i for i in np.flatnonzero(open_).tolist() if i not in self.tight]
        for part in d.parts:
            for numbers, over, size in part.scan(x[: d.cells].reshape(d.n, d.m), listed=listed):
                open_ = ~(over < -SURE * size) | (size < TINY)
                if not part.delta:
                    open_ &= ~zero[part.larger(numbers)]  # rows of 0 hold
                found += numbers[open_].tolist()
        return found

    def broken(self, v: Exact) -> dict[int, fmpq]:
        """Return the inequalities that do not hold, with their slack, exactly."""
        slacks = dict[int, fmpq]()
        for number in self.close(v):
            pause("exact table")
            if (slack := self.slack(number, v)) < 0:
                slacks[number] = slack
        return slacks

    def lowered(self, v: Exact) -> Exact:
        """Return the point with further columns as low as their rows allow."""
        d = self.declared
        return lowered(v, d.cells, d.rows, d.costs)

    def missed(self, v: Exact) -> dict[str, fmpq]:
        """Return the residuals of dependent equalities.

        Raises
        ------
        SolverError
            A residual exceeds rounding.
        """
        missed = dict[str, fmpq]()
        for row in self._split[1]:
            if (off := abs(row.at(v))) > rational(RESIDUAL) * row.size():
                message = f"{row.label!r} nearly depends on equalities stated before it, and is missed by {float(off):.1e}"
                raise SolverError(message, solver="highs", status="repair")
            if off:
                missed[row.label] = max(off, missed.get(row.label, ZERO))
        return missed


def row_claims(declared: OwnRows, v: Exact, sizes: Exact | None = None) -> Iterator[Claim]:
    """Yield a claim for each family that its own rows hold at exact columns, of sizes 1 unless given."""
    for family, label in enumerate(declared.labels):
        rows = [row for row, f in zip(declared.rows, declared.family.tolist()) if f == family]
        off = [abs(row.at(v)) / size for row in rows if row.equal and (size := row.size(sizes))]
        least = min((-row.at(v) for row in rows if not row.equal), default=ZERO)
        exact = f", its equalities to {RESIDUAL:g} of their size" if any(off) else ""
        holds = least >= 0 and max(off, default=ZERO) <= rational(RESIDUAL)
        who = (
            f"tangents of {label!r}" if label in getattr(declared, "curved", ()) else f"rows called {label!r}"
        )
        yield Claim(f"{who} hold{exact}", PROVED, min(float(least), 0.0), holds)


def _kept(x: float) -> float:
    """Round a double to `_BITS` fractional bits: more digits would make denominators long."""
    return math.ldexp(round(math.ldexp(x, _BITS)), -_BITS) if abs(x) < math.ldexp(1.0, 53 - _BITS) else x


def interior(declared: Declared, clock: Deadline, solver: str | None) -> tuple[Face, Exact]:
    """Return the smallest face that contains all feasible tables, and its point of largest common slack (facial reduction)."""
    face = Face(declared, declared.zeros)
    while True:
        program = Program(declared, clock, solver, room=True, zeros=face.zeros, tight=face.tight)
        try:
            program.solve()
        except InfeasibleError:
            raise _unrepaired(solver) from None
        forced, tight = set[int](), frozenset[int]()
        if not float(program.solution.primal["room"][0]) > _LEAST:
            forced = set(program.open[np.ravel(program.solution.dual["cells"]) > _IMPLIED].tolist())
            rows, values = program.multipliers()
            known = face.tight | set(np.flatnonzero(declared.equal).tolist())
            large = (rows < len(declared.family)) & (np.abs(values) > _IMPLIED)
            tight = frozenset(rows[large].tolist()) - known
        if not forced and not tight:
            for found in (program.columns, program.refined):  # a small room is less than a solver's error
                if (columns := found()) is not None and not face.broken(point := face.point(columns)):
                    return face, point
            raise _unrepaired(solver)
        face = Face(declared, declared.forced(face.zeros | forced), face.tight | tight)


def _unrepaired(solver: str | None) -> SolverError:
    message = "no exact table was found next to the solver's: its rows leave less room than doubles tell, so allow 1e-6 more in epsilon or in a cap, and in place of a delta below 1e-9 ask for 0"
    return SolverError(message, solver=solver or "highs", status="repair")


Near = tuple[Array, Exact, dict[int, fmpq]]
"""A solver's doubles, the exact point next to them, and the inequalities that it breaks, with their slack."""


def near(
    declared: Declared, starts: Iterable[Array], clock: Deadline, spared: float = math.inf
) -> list[Near]:
    """Return exact points next to nearly feasible doubles; stop at the first feasible one that costs at most a share `spared` more than another."""
    face, found, least = Face(declared, declared.zeros), list[Near](), list[fmpq]()
    for start in starts:
        with limited(clock.late):
            point = face.point(start)
            found.append((start, point, face.broken(point)))
        least.append(declared.value(point))
        room = abs(least[-1]) * rational(min(spared, 1e300))
        if not found[-1][2] and least[-1] - min(least) <= room:
            break
    return found


def _decays(part: Part) -> Array:
    """Return e^(-ε) of each pair, slightly less steep."""
    losses = np.minimum(part.losses, LARGEST_POWER)
    return np.asarray(np.exp(np.minimum(_ROOM * losses, MARGIN) - losses))


def _raised(declared: Declared, table: Array) -> Array:
    """Return the least table above this one that is private, with this one's excess: cells are raised to e^(-ε) times others."""
    held = list[tuple[Any, ...]]()
    for part in declared.parts:
        (a, b), rates = part.pairs.T, _decays(part)[:, None]
        spent = np.maximum(table[a] - table[b] / rates, 0.0) if part.delta else np.zeros((1, 1))
        most = part.delta * (1 - _ROOM) / np.maximum(spent.sum(axis=1, keepdims=True), TINY)
        held.append((a, b, rates, spent * np.minimum(1.0, most)))
    before = np.zeros(0)
    while not np.array_equal(before, table):
        before = table.copy()
        for a, b, rates, spent in held:
            np.maximum.at(table, b, rates * (table[a] - spent))
    return table


def closed(declared: Declared, columns: Array) -> Array:
    """Return the least private columns above these, with the remainder of the sums added at the likeliest output.

    The remainder is private once enough is added to all inputs.
    """
    table = np.maximum(columns[: declared.cells].reshape(declared.n, declared.m), 0.0)
    table = np.where(table.max(axis=0) > _EMPTY, np.maximum(table, _FLOOR), 0.0)
    table, decay = _raised(declared, table), np.zeros((declared.n, declared.n))
    for part in declared.parts:
        a, b = part.pairs.T
        decay[b, a] = np.maximum(decay[b, a], _decays(part))
    lacks = table.sum(axis=1).max() - table.sum(axis=1)
    b, a = np.nonzero((decay > 0) & (decay < 1))
    rate = decay[b, a]
    lacks += max(0.0, ((rate * lacks[a] - lacks[b]) / (1 - rate)).max(initial=0.0))
    if lacks.max() > _ROUNDED * min(MARGIN, _ROOM * -math.log(rate.max(initial=0.5))):
        table[:, table.sum(axis=0).argmax()] += lacks
    return np.append(table / table.sum(axis=1, keepdims=True), columns[declared.cells :])


def repaired(
    declared: Declared,
    points: list[Near],
    clock: Deadline,
    solver: str | None = None,
    *,
    spared: float = 0.0,
) -> tuple[Exact, dict[str, fmpq]]:
    """Return the cheapest feasible exact point near a solver's doubles, and the residuals of dependent equalities.

    Parameters
    ----------
    declared : Declared
    points
        Points `near` a solver's; the cheapest feasible one is returned as it is.
    clock : Deadline
    solver : str, optional
    spared : float
        Share of the cost that a mixture with equal probabilities may add before the table of largest common slack is sought.
    """
    with limited(clock.late):
        face = Face(declared, declared.zeros)
        if whole := [point for _, point, broken in points if not broken]:
            cheapest = min(whole, key=declared.value)
            return cheapest, face.missed(cheapest)
        least = min(declared.value(point) for _, point, _ in points)
        best = _mixture(face, points, [face.point(_plain(declared))])
        if best is not None and best[0] - least <= abs(best[0]) * rational(min(spared, 1e300)):
            return best[1], face.missed(best[1])
        smaller, middle = interior(declared, clock, solver)
        ends = [middle]
        stricter = Program(declared, clock, solver, margin=STRICTER, zeros=smaller.zeros, tight=smaller.tight)
        try:  # an optimum of stricter privacy has proportional slack, even if the common slack is small
            stricter.solve()
            other = smaller.point(stricter.columns())
            ends += [mixed(ends[0], other, fmpq(1, share)) for share in (2, 100, 10_000)]
        except (InfeasibleError, SolverError):
            pass
        if smaller.zeros != face.zeros or smaller.tight:
            moved = ((start, smaller.point(start)) for start, _, _ in points)
            points = [(start, point, smaller.broken(point)) for start, point in moved]
        best = _mixture(smaller, points, ends)
        if best is None:
            raise _unrepaired(solver)
        return best[1], smaller.missed(best[1])


def _mixture(face: Face, points: list[Near], ends: list[Exact]) -> tuple[fmpq, Exact] | None:
    """Return the cheapest mixture of a point and an end that satisfies all rows that the point breaks, with its cost; None if there is none."""
    best: tuple[fmpq, Exact] | None = None
    for _, point, broken in points:
        for end in ends:
            if face.broken(end):
                continue
            slacks = {number: face.slack(number, end) for number in broken}
            if any(slack <= 0 for slack in slacks.values()):
                continue
            shares = (broken[number] / (broken[number] - slack) for number, slack in slacks.items())
            found = face.lowered(mixed(end, point, _short(max(shares, default=ZERO))))
            cost = face.declared.value(found)
            if best is None or cost < best[0]:
                best = cost, found
    return None if best is None or face.broken(best[1]) else best


def _plain(declared: Declared) -> Array:
    """Return equal probabilities of the cells that are not forced to zero: often an interior point."""
    open_ = np.ones((declared.n, declared.m))
    open_.ravel()[list(declared.zeros)] = 0.0
    table = open_ / np.maximum(open_.sum(axis=1, keepdims=True), 1.0)
    return np.append(table.ravel(), np.zeros(len(declared.cost) - declared.cells))


def mixed(end: Exact, start: Exact, share: fmpq) -> Exact:
    """Return a share of one point and the rest of another."""
    rest = 1 - share
    return [share * a + rest * b for a, b in zip(end, start)]


def weights_of(declared: Declared, columns: Exact) -> Weights:
    """Return integer weights in proportion to the cells of each input."""
    rows = []
    for x in range(declared.n):
        cells = columns[x * declared.m : (x + 1) * declared.m]
        common = math.lcm(*(int(c.q) for c in cells))
        rows.append(tuple(int(c.p) * (common // int(c.q)) for c in cells))
    return tuple(rows)


# -- infeasibility ----------------------------------------------------------------------------------------------


def feasible(declared: Declared, clock: Deadline) -> bool:
    """Return whether a solver finds a feasible table."""
    try:
        Program(declared, clock, costs=False).solve()
    except InfeasibleError:
        return False
    except SolverError:  # how much room there is can be asked where there is none, too
        program = Program(declared, clock, room=True)
        program.solve()
        return float(program.solution.primal["room"][0]) > SURE
    return True


def contradiction(declared: Declared, clock: Deadline) -> list[str]:
    """Return a minimal list of families that contradict each other, proved by multipliers in rationals; empty without a proof."""
    every = frozenset(declared.families())
    held = _refuted(declared, clock)
    for label in declared.families():
        if label in held:
            held = _refuted(declared, clock, every - held | {label}) or held
    return [label for label in declared.families() if label in held]


def _refuted(declared: Declared, clock: Deadline, without: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the families in a solver's ray that proves infeasibility in rationals; empty if it proves nothing."""
    every = frozenset(declared.families()) - without
    program = Program(declared, clock, costs=False, without=without)
    if any(program.zeros.issuperset(range(j, j + declared.m)) for j in range(0, declared.cells, declared.m)):
        return every
    try:
        program.solve()
    except (InfeasibleError, SolverError):  # a ray counts whatever the solver says, if it proves
        clock.hold("a contradiction")
        ray = program.lp.ray()
        for side in () if ray is None else (ray, -ray):
            rows, values = program.multipliers(side / np.abs(side).max())
            held = admissible(declared, rows, values, costs=False)
            bound = declared.linear_bound(*held, costs=False, zeros=program.zeros)
            if bound.admissible and bound.bound > 0:
                return every if program.zeros else frozenset(map(declared.family_of, held[0].tolist()))
    return frozenset()


def least_epsilon(
    declared: Declared, labels: Iterable[str], clock: Deadline, most: float = 64.0
) -> float | None:
    """Return the least ε of these families at which a solver finds a table: its factor is doubled until feasible, then bisected.

    The search takes as long as all before it, or ten seconds, and then returns the least so far. None if these families have several ε,
    or none below `most` suffices, or none was found in time.
    """
    chosen, found = set(labels), [math.inf]
    held = [asked for asked in declared.privacy if asked.label in chosen]
    points = {point[0] for asked in held for point in asked.points}
    if len(points) != 1 or 0 in points:
        return None
    (epsilon,) = points
    spare = Deadline(
        clock.limit(most=max(10.0, clock.elapsed))
    )  # a solver may step in place near the least ε

    def over(doublings: float) -> float:
        factor = 2.0**doublings
        asked = tuple(a.scaled(factor) if a.label in chosen else a for a in declared.privacy)
        kept = feasible(replace(declared, privacy=asked), spare)
        found.extend([doublings] * kept)
        return -1.0 if kept else 1.0

    top = math.floor(math.log2(most / epsilon))
    with suppress(SolverError):
        least_kept(over, 0.0, growth=1.0, least=0.0, most=max(top, 1.0), xtol=1e-10)
    return None if len(found) == 1 else float(2.0 ** min(found) * epsilon)
