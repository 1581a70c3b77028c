r"""The linear program of a declaration in doubles: one variable for each orbit of cells, and privacy rows that are generated as they are broken.

Under a metric the rows along a thin spanner come first (losses add up along a path, so that few other rows can be broken); if one ε holds for all
pairs, floors replace the rows, or inputs next to each other come first; listed pairs come all at once. Rows of pure privacy are balanced by :math:`e^{-\varepsilon d/2}` for the solver.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from mechdesign.checks import refuse
from mechdesign.model.declared import Block, Declared, Part
from mechdesign.model.symmetry import Symmetry
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.spaces.space import greedy_spanner
from mechdesign.typing import Array, Indices

BROKEN = 1e-10
"""Violation in doubles above which a row is generated."""
MOST_CELLS = 300_000
"""Largest number of cells; 40,000 take HiGHS minutes."""
SEED = 1.2
"""Stretch of the spanner whose rows come first."""
_LISTED = 20_000  # most rows of listed pairs that come all at once
_SMALL = 0.1  # an optimum below this is computed again in units of its own


class Program:
    """The linear program of a declaration in doubles, with privacy rows generated.

    Parameters
    ----------
    declared : Declared
    clock : Deadline
    solver : str, optional
        A registered backend.
    margin : float
        Relative tightening of privacy.
    room : bool
        Whether to seek the table of largest common slack, in place of the cheapest.
    costs : bool
        If false, any feasible table is optimal.
    zeros, tight : sets of int
        Cells that are 0, and own rows that are equalities.
    without : set of str
        Families to omit; cells that they may force to zero are free then.
    listed : bool
        Whether all privacy rows are there from the first.
    symmetry : Symmetry, optional
        One variable for each of its orbits.
    edges : array of int, shape (k, 2), optional
        Pairs of inputs that come first, in both directions, under every requirement.
    grow : bool
        Whether rows that are broken are added.
    interior : bool
        Whether HiGHS solves by its interior-point method, without a basis.
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
        symmetry: Symmetry | None = None,
        edges: Indices | None = None,
        grow: bool = True,
        interior: bool = False,
        **options: Any,
    ) -> None:
        self.declared, self.margin, self.room, self.tight, self.grow = declared, margin, room, tight, grow
        self.zeros = frozenset(zeros) | (frozenset() if without else declared.zeros)
        self.parts = [part for part in declared.parts if part.label not in without]
        self.symmetry = Symmetry.of(declared) if symmetry is None else symmetry
        self.lp = LinearProgram(
            "program of the table", solver=solver, deadline=clock, interior=interior, **options
        )
        n, m, width, orbits = declared.n, declared.m, len(declared.cost), self.symmetry.cells
        count = int(orbits.max()) + 1
        allowed = f"are too many to be solved: at most {MOST_CELLS}, cells that symmetries map onto each other once; merge labels"
        refuse(count > MOST_CELLS, "cells", count, allowed)
        self._gathered = sparse.csr_array((np.ones(n * m), (np.arange(n * m), orbits)), shape=(n * m, count))
        self._unit, self._units = declared.units
        self._costs = costs and not room
        upper = np.ones(count)
        upper[orbits[list(self.zeros)]] = 0.0
        self.lp.add_columns("P", np.zeros(count), upper=upper)
        if width > declared.cells:
            self.lp.add_columns("e", np.zeros(width - declared.cells), lower=-np.inf)
        if self._costs:
            self._state_costs()
        if room:
            self.lp.add_columns("room", [-1.0], lower=-np.inf, upper=1.0)
        self._add_sums()
        self._numbers: dict[str, Indices] = {}  # of the rows, by family
        own = np.array([label not in without for label in declared.labels], dtype=bool)[declared.family]
        rows, opposite = self.symmetry.rows
        leads = np.unique(np.minimum(rows, opposite), return_index=True)[1]
        own[np.setdiff1d(np.arange(len(own)), leads[rows[leads] != opposite[leads]])] = False
        strict = (declared.equal > 0) | np.isin(np.arange(len(declared.family)), list(tight))
        self._own("equal", np.flatnonzero(own & strict))
        self._own("below", np.flatnonzero(own & ~strict))
        if room:
            self.open = np.setdiff1d(np.arange(declared.cells), list(self.zeros))
            cells = sparse.eye_array(declared.cells, format="csr")[self.open] @ self._gathered
            most = self._largest().ravel()[self.open, None]
            self.lp.add_rows("cells", {"P": -cells, "room": most}, upper=0.0)
        # privacy rows: each coefficient times its row's scale; losses, nan for a coefficient without one; scales and right sides
        self._losses, self._stated = np.zeros(0), np.zeros(0)
        self._scales, self._sides = np.zeros(0), np.zeros(0)
        for part in self.parts:
            if part.floors and edges is None:
                self._add_floors(part)
                continue
            pairs = part.leaders(self.symmetry.pairs)
            if not listed:
                near = self._first(part) if edges is None else _both(part, edges)
                pairs = np.intersect1d(pairs, near)
            if part.delta:
                self._add_excess(part, pairs)
            else:
                self._add_ratios(part, self._distinct(part, part.rows_of(pairs, self.symmetry.cells)))

    def _largest(self) -> Array:
        """Return upper bounds of the cells: one whose column holds a zero is at most δ, which would leave rows of δ a slack of δ² in its unit."""
        before: Array = np.zeros(0)
        found: Array = np.ones((self.declared.n, self.declared.m))
        found.ravel()[list(self.zeros)] = 0.0
        while self.zeros and not np.array_equal(before, found):
            before = found.copy()
            for part in self.parts:
                a, b = part.pairs.T
                np.minimum.at(found, a, part.factors[:, None] * before[b] + part.delta)
        return found

    # -- rows ------------------------------------------------------------------------------------------------

    def _add_sums(self) -> None:
        """Add the sums of inputs, one for each orbit."""
        first = np.unique(np.diag(self.symmetry.pairs), return_index=True)[1]
        sums = sparse.kron(
            sparse.eye_array(self.declared.n, format="csr")[first],
            np.ones((1, self.declared.m)),
            format="csr",
        )
        self.lp.add_rows("sums", {"P": sums @ self._gathered}, lower=1.0, upper=1.0)

    def _own(self, name: str, rows: Indices) -> None:
        """Add own rows; room is left in inequalities."""
        if not len(rows):
            return
        d = self.declared
        matrix, right = d.in_units(rows)
        blocks: dict[str, Any] = {"P": matrix[:, : d.cells] @ self._gathered}
        if matrix.shape[1] > d.cells:
            blocks["e"] = matrix[:, d.cells :]
        if self.room and name == "below":
            blocks["room"] = np.ones((len(rows), 1))
        self.lp.add_rows(name, blocks, lower=right if name == "equal" else -np.inf, upper=right)
        self._numbers[name] = rows

    def _distinct(self, part: Part, places: Indices) -> Indices:
        """Return the rows (pair, output) that differ in the variables: of two that differ in their losses only, the stricter one."""
        if self.symmetry.trivial:
            return places
        places = places[np.argsort(part.losses[places // part.m], kind="stable")]
        high, low = part.ends(places, self.symmetry.cells)
        kept = np.unique(high * len(self.symmetry.cells) + low, return_index=True)[1]
        return np.sort(places[kept[high[kept] != low[kept]]])

    def _rates(self) -> Array:
        """Return the coefficients of the privacy rows."""
        rates = -np.exp(self._losses * (1 - self.margin))
        return self._stated * np.where(np.isnan(self._losses), 1.0, rates)

    def _add(
        self,
        numbers: Indices,
        blocks: dict[str, Block],
        scale: Array | float,
        side: float,
        room: Any,
    ) -> None:
        """Add privacy rows with these scales and this right side; some are made stricter."""
        rows = len(numbers)
        scales = np.broadcast_to(scale, rows)
        leaves = np.broadcast_to(room, rows)
        if self.room and leaves.any():
            i = np.flatnonzero(leaves)
            blocks["room"] = (
                i,
                np.zeros(len(i), dtype=int),
                np.asarray(leaves[i], dtype=float),
                np.full(len(i), np.nan),
            )
        held = {}
        for name, (i, columns, stated, losses) in blocks.items():
            self._losses, self._stated = (
                np.append(self._losses, losses),
                np.append(self._stated, stated * scales[i]),
            )
            shape = (rows, self.lp.columns[name].size)
            held[name] = sparse.coo_array(
                (self._rates()[len(self._rates()) - len(i) :], (i, columns)), shape=shape
            )
        self.lp.add_rows("private", held, upper=side * scales * (1 - self.margin))
        known = self._numbers.get("private", np.zeros(0, dtype=np.int64))
        self._numbers["private"] = np.append(known, numbers)
        self._scales, self._sides = (
            np.append(self._scales, scales),
            np.append(self._sides, side * scales),
        )

    def _seen(self, part: Part, places: Indices) -> Any:
        """Return whether rows hold a cell that is not forced to zero."""
        zero = np.append(np.zeros(self.declared.cells, dtype=bool), True)
        zero[list(self.zeros)] = True
        high, low = part.ends(places, np.arange(self.declared.cells))
        return ~(zero[high] & zero[low])

    def _scale(self, part: Part, places: Indices) -> Array:
        """Return the factors that balance rows (pair, output)."""
        return np.asarray(np.exp(-np.minimum(part.losses[places // part.m], part.most) / 2))

    def _add_ratios(self, part: Part, places: Indices) -> None:
        """Add rows (pair, output) of pure privacy."""
        if not len(places):
            return
        self._add(
            part.first + places,
            {"P": part.entries(places, self.symmetry.cells)},
            self._scale(part, places),
            0.0,
            self._seen(part, places),
        )

    def _add_excess(self, part: Part, pairs: Indices) -> None:
        """Add all rows of pairs under (ε, δ), and their slacks."""
        if not len(pairs):
            return
        places = part.rows_of(pairs, self.symmetry.cells)
        k = np.searchsorted(pairs, places // part.m)
        i, size, nan = np.arange(len(places)), len(places), np.full(len(places), np.nan)
        name, ones = f"{part.first}.{len(self.lp.columns)}", np.ones(size)
        self.lp.add_columns(name, np.zeros(size))
        blocks = {"P": part.entries(places, self.symmetry.cells), name: (i, i, -ones, nan)}
        self._add(part.first + places, blocks, 1.0, 0.0, 0.0)
        self._add(part.sums + pairs, {name: (k, i, ones, nan)}, 1.0, part.delta, part.delta)

    def _add_floors(self, part: Part) -> None:
        """Add the floors, and their rows, one for each orbit of cells."""
        outputs, name = self.symmetry.outputs, f"{part.first}.floors"
        self.lp.add_columns(name, np.zeros(int(outputs.max()) + 1))
        j = np.unique(self.symmetry.cells, return_index=True)[1]
        i, nan = np.arange(len(j)), np.full(len(j), np.nan)
        cells, floors = self.symmetry.cells[j], outputs[j % part.m]
        seen = ~np.isin(j, list(self.zeros))
        ones, loss = np.ones(len(j)), np.full(len(j), min(part.losses[0], part.most))
        self._add(part.upper + j, {"P": (i, cells, ones, nan), name: (i, floors, ones, loss)}, 1.0, 0.0, seen)
        self._add(part.lower + j, {"P": (i, cells, -ones, nan), name: (i, floors, ones, nan)}, 1.0, 0.0, 0.0)

    def _first(self, part: Part) -> Indices:
        """Return the pairs to begin with: listed ones, inputs next to each other if all have the same ε; under a metric, those of a spanner."""
        if (own := part.longest()) is not None:
            return own
        a, b = part.pairs.T
        if len(part.distances) == 1:
            some = len(a) == part.n * (part.n - 1) or len(a) * part.m > _LISTED
            near = np.flatnonzero(np.abs(a - b) == 1) if some else np.arange(len(a))
            return near if len(near) else np.arange(len(a))
        far = np.full((part.n, part.n), np.inf)
        far[a, b] = part.losses
        edges = greedy_spanner(far, SEED, self.symmetry.pairs, deadline=self.lp.deadline)
        return _both(part, edges)

    def state(self, margin: float) -> None:
        """Change the tightening of privacy; the basis stays."""
        self.margin = margin
        self.lp.change_rows("private", self._rates(), upper=self._sides * (1 - margin))

    # -- solving ---------------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Solve, and again while privacy rows are broken.

        Raises
        ------
        InfeasibleError, SolverError
        """
        for _ in self.rounds():
            pass

    def rounds(self) -> Iterator[None]:
        """Solve, and again while privacy rows are broken; yield after every solve."""
        self.solution = self.lp.answer()
        yield
        while self.grown() or self._focused():
            self.solution = self.lp.answer()
            yield

    def _focused(self) -> bool:
        """Change costs to units of the optimum, once, if it is small, as a solver's tolerances are absolute; return whether they changed."""
        size = abs(float(self.solution.value)) if self._costs else 0.0
        if not (size < _SMALL and size * self._unit > 1e-300):
            return False
        self._unit *= math.ldexp(1.0, math.frexp(size)[1])
        self._state_costs()
        return True

    def _state_costs(self) -> None:
        cells = self.declared.cells
        with np.errstate(over="ignore"):
            held = self.declared.cost * self._units / self._unit
        self.lp.change_costs("P", self._gathered.T @ held[:cells])
        if "e" in self.lp.columns:
            self.lp.change_costs("e", held[cells:])

    def grown(self) -> int:
        """Add the privacy rows that the last answer breaks most; return how many."""
        return sum([self._generate(part) for part in self.parts if self.grow and not part.floors])

    def _generate(self, part: Part) -> int:
        """Add the most broken rows of a part; return how many."""
        n, m, found = self.declared.n, self.declared.m, []
        table = np.maximum(self.columns()[: n * m].reshape(n, m), 0.0)
        room = float(self.solution.primal["room"][0]) if self.room else 0.0
        only = None if self.symmetry.trivial else part.leaders(self.symmetry.pairs)
        for numbers, over, _ in part.scan(table, self.margin, only=only):
            if not part.delta:
                over = over * self._scale(part, numbers - part.first)
            some = over + max(room, 0.0) > BROKEN
            found.append(np.column_stack([numbers[some], over[some]]))
        broken = np.concatenate(found)
        broken = broken[~np.isin(broken[:, 0], self._numbers.get("private", ()))]
        most = max(200, 4 * n) if part.delta else max(2000, 4 * n * m)
        rows = broken[np.argsort(-broken[:, 1], kind="stable")[:most], 0].astype(np.int64)
        if part.delta:
            self._add_excess(part, np.sort(rows - part.sums))
        else:
            rows = self._distinct(part, rows - part.first)
            self._add_ratios(part, rows)
        return len(rows)

    def columns(self) -> Array:
        """Return cells and further columns at the last solve."""
        primal = self.solution.primal
        return self._whole({name: np.ravel(primal[name]) for name in ("P", "e") if name in primal})

    def refined(self) -> Array | None:
        """Return the columns after a step of iterative refinement; None if the backend has no basis or the step fails."""
        if self.lp.solver != "highs" or not self.lp.refine():
            return None
        return self._whole(
            {name: np.ravel(self.lp.primal(name)) for name in ("P", "e") if name in self.lp.columns}
        )

    def _whole(self, found: dict[str, Array]) -> Array:
        whole = [found["P"][self.symmetry.cells], *([found["e"]] if "e" in found else [])]
        return np.concatenate(whole) * self._units

    # -- multipliers -----------------------------------------------------------------------------------------

    def multipliers(self, ray: Array | None = None) -> tuple[Indices, Array]:
        """Return numbers of rows and their multipliers, from the last solve, or from a ray that proves infeasibility or duals anew."""
        found = {
            name: np.ravel(self.solution.dual.get(name, ())) if ray is None else -ray[self.lp.rows[name]]
            for name in self._numbers
        }  # a backend may leave duals out: they count as 0
        if "private" in found:
            known = len(found["private"])  # rows that came after the last solve have none
            found["private"] = found["private"] * self._scales[:known]
        held = [numbers[: len(found[name])] for name, numbers in self._numbers.items()]
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *held])  # no report but one: no rows
        values = np.concatenate([np.zeros(0), *found.values()])
        values[np.abs(values) <= 1e-16 * np.abs(values).max(initial=0.0)] = 0.0
        own = rows < len(self.declared.family)
        with np.errstate(over="ignore"):
            values[own] /= self.declared.row_units[rows[own]]
            values *= self._unit
        if not self.symmetry.trivial:
            rows, values = self._shared(rows, values)
        order = np.argsort(rows, kind="stable")
        return rows[order], values[order]

    def _shared(self, rows: Indices, values: Array) -> tuple[Indices, Array]:
        """Share multipliers out among the rows that are equal in the variables."""
        mine = rows < len(self.declared.family)
        signed, value = self.symmetry.rows.ravel(), values[mine]
        held = self.symmetry.rows[:, rows[mine]].ravel()
        number, value = _among(signed, held, np.append(value, -value))
        found = [(number[: len(number) // 2], value[: len(number) // 2])]
        for part in self.parts:
            here = (rows >= part.first) & (rows < part.end) & (values > 0)
            number, value = rows[here], values[here]
            listed = number < part.first + len(part.pairs) * part.m
            found.append(self._shared_pairs(part, number[listed] - part.first, value[listed]))
            if part.delta:
                own = self.symmetry.pairs[tuple(part.pairs.T)]
                found.append(_among(own, own[number[~listed] - part.sums], value[~listed], part.sums))
            elif part.floors:
                for first in (part.upper, part.lower):
                    side = ~listed & (number >= first) & (number < first + self.declared.cells)
                    cells = self.symmetry.cells
                    found.append(_among(cells, cells[number[side] - first], value[side], first))
        return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])

    def _shared_pairs(self, part: Part, places: Indices, values: Array) -> tuple[Indices, Array]:
        """Share multipliers out among rows (pair, output) of one orbit of pairs between the same variables."""
        numbers, shares = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        cells, m, count = self.symmetry.cells.reshape(part.n, part.m), part.m, len(self.symmetry.cells)
        orbit = self.symmetry.pairs[tuple(part.pairs.T)]
        label, (high, low) = orbit[places // m], part.ends(places, self.symmetry.cells)
        for one in np.unique(label):
            here = label == one
            key, at = np.unique(high[here] * count + low[here], return_inverse=True)
            total, pairs = np.bincount(at, values[here]), np.flatnonzero(orbit == one)
            a, b = part.pairs[pairs].T
            read = cells[a] * count + cells[b]
            place = np.minimum(np.searchsorted(key, read), len(key) - 1)
            k, y = np.nonzero(key[place] == read)
            place = place[k, y]
            numbers.append(part.first + pairs[k] * m + y)
            shares.append((total / np.maximum(np.bincount(place, minlength=len(key)), 1))[place])
        return np.concatenate(numbers), np.concatenate(shares)


def _both(part: Part, edges: Indices) -> Indices:
    """Places of pairs of inputs, in both directions."""
    found: Indices = part.places[tuple(np.vstack([edges, edges[:, ::-1]]).T)]
    return found


def _among(labels: Indices, of: Indices, values: Array, first: int = 0) -> tuple[Indices, Array]:
    """Share the values of labels out among all members with these labels; members' numbers begin at `first`."""
    size = int(labels.max(initial=-1)) + 1
    share = np.bincount(of, values, size) / np.maximum(np.bincount(labels, minlength=size), 1)
    members = np.flatnonzero(share[labels]) if size else np.zeros(0, dtype=np.int64)
    return first + members, share[labels[members]]
