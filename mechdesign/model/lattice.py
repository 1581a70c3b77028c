r"""The unknown masses of additive noise on a lattice, and their problem in numbers.

A `LatticeNoise` *is* a CVXPY variable: entry j is the probability of noise :math:`(j - R)\beta`, with the step β and R steps within the
reach. Privacy at a shift by s steps, of either sign and up to the sensitivity, bounds the sum over all points,

.. math:: \sum_j [p_j - e^\varepsilon p_{j+s}]_+ \le \delta .

**Beyond the reach** there is no mass, unless `tails` are asked for: then the points of the outermost sensitivity repeat
forever, each time multiplied by :math:`r \ge e^{-\varepsilon}`, as pure privacy needs. The outermost entries then are the masses of a point *and of all its
repetitions*, so that entries sum to 1: the point itself has :math:`(1 - r)q` of an entry :math:`q`. Excesses of the first repetition, divided by 1 − r, are those of all.

So the noise is a table of one row, and only its privacy rows, which `ShiftPart` numbers, are special: program, repair, bound and
proofs are those of tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from flint import fmpq
from scipy import sparse

from mechdesign.checks import one_of, positive, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import rational
from mechdesign.evidence.serialize import serializable
from mechdesign.model.declared import Block, Declared, Entry, Part
from mechdesign.model.problem import Requirement, Unknown
from mechdesign.problem import losses
from mechdesign.problem.privacy import ApproximateDP, MembershipAdvantage, PureDP, guarantee, pairs_of
from mechdesign.problem.sensitivity import NEIGHBOURS
from mechdesign.typing import Array, Indices

MOST_POINTS = 40_000
_BLOCK = 1 << 20  # numbers of a scan that are held at once
INNER, EDGE, NEXT, FIRST, SECOND = range(5)
"""Mass of a point by its entry: within the reach; of the outermost sensitivity; of its first repetition; and of the first and second over 1 − r."""


@serializable("shift-privacy", eq=False)
class ShiftPrivacy(Requirement):
    """A requirement at all shifts of the noise up to the sensitivity: `LatticeNoise.private` makes it."""

    distances = None

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """All required (ε, δ)."""
        return pairs_of(self.privacy)

    def check(self, count: int) -> None:
        """Accept any noise: shifts need no inputs."""

    def pairs(self, count: int) -> Indices:
        """Refuse: only tables have pairs of inputs."""
        raise DesignError.of("symmetry", "find", "is for tables: noise has no pairs of inputs")

    def scaled(self, factor: float) -> ShiftPrivacy:
        """Return this requirement with ε multiplied by a factor."""
        held = tuple((epsilon * factor, delta) for epsilon, delta in self.points)
        return replace(self, privacy=TradeOff(held))

    def __str__(self) -> str:
        return f"{guarantee(self.privacy)}, shifts up to the sensitivity"


class LatticeNoise(Unknown):
    r"""Probability masses of additive noise on a lattice: the unknown of a problem, and a CVXPY variable.

    Parameters
    ----------
    step : float
        β > 0. A mass is spread evenly over the cell of this width around its point, so that the noise is for real answers and private at
        every real shift; on the whole numbers it stays on its point. Under δ > 0 it divides the sensitivity.
    reach : float
        Largest distance of points from 0.
    sensitivity : float
        Largest change of the answer between neighbouring data sets.
    integer : bool
        Noise on the whole numbers, for whole answers: the step is 1.
    tails : float, optional
        ε: beyond the reach the masses of the outermost sensitivity repeat, times :math:`e^{-\varepsilon}` each time, and the outermost entries of
        the variable are masses with all their repetitions. By default there is no mass beyond the reach.
    neighbours : {"add-remove", "replace"}
        Neighbours for which the sensitivity holds.

    Examples
    --------
    >>> import mechdesign as md
    >>> p = md.LatticeNoise(1, 20, integer=True)
    >>> problem = md.Problem(md.Minimize(p.expected("squared")), [p.private(md.ApproximateDP(1.0, 1e-6))])
    >>> result = problem.solve()
    >>> round(result.value, 10), result.certificate.verify(), type(result.mechanism).__name__
    (1.8410998539, True, 'IntegerNoise')
    >>> capped = problem.subject_to(md.named("rarely right", p[20] <= 0.4))
    >>> round(capped.solve().value, 6)
    2.053746
    """

    problem_class = "mechdesign.noise.lattice:LatticeProblem"

    def __init__(
        self,
        step: float,
        reach: float,
        *,
        sensitivity: float = 1.0,
        integer: bool = False,
        tails: float | None = None,
        neighbours: str = "add-remove",
    ) -> None:
        self.sensitivity = positive("sensitivity", sensitivity)
        self.integer = one_of("integer", integer, (True, False))
        self.neighbours = one_of("neighbours", neighbours, NEIGHBOURS)
        step, reach = positive("step", step), positive("reach", reach)
        allowed = "must be 1 for whole numbers, and their sensitivity 1 at least"
        refuse(integer and (step != 1 or sensitivity < 1), "step", step, allowed)
        self.change, self.step, self.even = math.floor(self.sensitivity), 1.0, True
        if not integer:
            size, near = Fraction(self.sensitivity), Fraction(1, 10**9)
            self.change = math.ceil(size / Fraction(step) * (1 - near))
            self.even = self.change * Fraction(step) <= size * (
                1 + near
            )  # a whole number of steps is the sensitivity
            self.step = losses.round_width(size / self.change if self.even else Fraction(step))
        self.side = math.floor(min(reach / step, MOST_POINTS) * (1 + 1e-9))
        self.decay = Fraction(0) if tails is None else losses.outward_decay(positive("tails", tails))
        self.tails = tails
        least = self.change if self.decay else 1
        remedy = f"must be {'a sensitivity' if self.decay else 'a step'} to {MOST_POINTS // 2} steps"
        refuse(not least <= self.side <= MOST_POINTS // 2, "reach", reach, remedy)
        super().__init__((2 * self.side + 1,), nonneg=True, name="p")

    @property
    def points(self) -> Array:
        """Points of the masses."""
        return np.asarray(self.step * np.arange(-self.side, self.side + 1), dtype=float)

    def private(self, privacy: Any) -> ShiftPrivacy:
        """Require privacy at every shift of the noise up to the sensitivity, to both sides.

        Parameters
        ----------
        privacy : PureDP, ApproximateDP, MembershipAdvantage or TradeOff

        Raises
        ------
        DesignError
            Another requirement; a pure one for noise without tails, or with tails that decrease faster; δ > 0 where the step does not
            divide the sensitivity.
        """
        if not isinstance(privacy, (PureDP, ApproximateDP, MembershipAdvantage, TradeOff)):
            kinds = "must be PureDP, ApproximateDP, MembershipAdvantage or TradeOff([(epsilon, delta), ...])"
            raise DesignError.of("privacy", privacy, kinds)
        for epsilon, delta in pairs_of(privacy):
            if delta and not self.even:
                steps = " or ".join(
                    f"{self.sensitivity / n:.6g}" for n in range(self.change, max(0, self.change - 2), -1)
                )
                remedy = f"must divide the sensitivity where delta > 0, as shifts by part of a step cost less than by a whole one: {steps}"
                raise DesignError.of("step", float(f"{self.step:.6g}"), remedy)
            remedy = f"needs mass at every distance: LatticeNoise(..., tails={epsilon!r})"
            refuse(not delta and (self.tails is None or self.tails > epsilon), "privacy", privacy, remedy)
        return ShiftPrivacy("private", privacy, unknown=self)

    def expected(self, loss: object = "absolute") -> cp.Expression:
        """Return the expected loss of the error, tails included.

        Parameters
        ----------
        loss : {"absolute", "squared"}, dict, or convex callable
            A callable is vectorised over arrays, and its values are taken as exact.
        """
        held = losses.Loss.of(loss)
        if held.function is not None:
            losses.check_loss(
                held, self.step * np.arange(-self.side - self.change - 1, self.side + self.change + 2)
            )
        costs = lattice_costs(held, self.step, self.side, self.change, self.decay, integer=self.integer)
        found: cp.Expression = cp.sum(cp.multiply(costs.floats(), self))
        found.set_label(f"expected {held.words}")
        return found

    def stated(self) -> dict[str, Any]:
        """Return the fields of a problem in numbers that describe it."""
        held = "neighbours", "sensitivity", "step", "change", "decay", "tails", "integer"
        table = {"inputs": ("noise",), "outputs": tuple(self.points.tolist()), "of": "data"}
        return table | {name: getattr(self, name) for name in held}


_NAMED = {f"expected {loss} error": loss for loss in ("absolute", "squared")}


def lattice_costs(
    loss: losses.Loss, step: float, side: int, change: int, decay: Fraction, *, integer: bool
) -> losses.ExactCosts:
    """Return the cost of a unit of each entry: the loss at a point, or its average over a cell, including the entry's repetitions."""
    middles, unit, half = 2 * np.arange(-side, side + 1), Fraction(step) / 2, 0 if integer else 1
    costs = losses.average_costs(loss, middles, unit, half=half)
    if not decay:
        return costs
    held = [Fraction(n, costs.denominator) for n in costs.numerators]
    left, right = losses.tail_costs(loss, middles, unit, change, decay, half=half)
    for place, tail in ((0, left), (len(held) - change, right)):
        for k, n in enumerate(tail.numerators):
            held[place + k] = (1 - decay) * (held[place + k] + Fraction(n, tail.denominator))
    return losses.ExactCosts.of(held)


@dataclass(frozen=True, eq=False)
class LatticeDeclared(Declared):
    """A problem on the masses of lattice noise in numbers: a table of one input.

    Parameters
    ----------
    sensitivity, step : float
    change : int
        n: the largest shift in steps.
    decay : Fraction
        r of the tails; 0 without mass beyond the reach.
    tails : float, optional
        ε of the tails.
    integer : bool
    mirrored : bool
        Whether an entry is the mass of a point and of its mirror image together, at :math:`0, \\beta, 2\\beta, \\dots`; shifts to one side suffice then.
    free : bool
        Whether mass may lie anywhere beyond the reach: the last entry is all of it, and pairs with a point there have no rows. The other rows
        hold for *every* noise on the lattice.
    spiked : bool
        Whether the last entry is mass on 0 alone, not spread over a cell: it has no partner at any shift, and counts in full towards δ > 0.
    """

    sensitivity: float
    step: float
    change: int
    decay: Fraction
    tails: float | None
    integer: bool
    mirrored: bool = False
    free: bool = False
    spiked: bool = False

    lemma = (
        "Masses p_j of noise at the points of a lattice, those of the outermost points with their repetitions where tails are asked for, are a point of "
        "this program: at every shift by s steps up to the sensitivity the sum of all positive parts S_j of p_j - e^epsilon p_(j+s) is at most delta; e^epsilon is rounded up."
    )
    noun: ClassVar[str] = "noise on this lattice"

    def named(self) -> Any:
        if self.free or self.mirrored or self.objective not in _NAMED:
            return None
        loss = losses.Loss.of(_NAMED[self.objective])
        costs = lattice_costs(loss, self.step, self.side, self.change, self.decay, integer=self.integer)
        return costs.floats()[None]

    @property
    def side(self) -> int:
        """R: points to either side of 0."""
        count = len(self.outputs) - self.free - self.spiked
        return count - 1 if self.mirrored else count // 2

    def _part(self, asked: Any, point: tuple[float, float], first: int) -> Part:
        return ShiftPart(self, asked, point, first)

    @property
    def over(self) -> str:
        beyond = "nothing beyond"
        if self.decay:
            beyond = f"the outermost {self.change} repeated beyond times e^-{self.tails:g}, entries with all repetitions"
        spread = "" if self.integer else ", spread over cells"
        return (
            f"p[j] = Pr[noise = {self.step:.6g} j] >= 0, |j| <= {self.side}, {beyond}{spread}, Σ_j p[j] = 1"
        )

    def cell(self, j: int) -> str:
        return f"p[{j - self.side}]"

    def inequality(self, asked: Any) -> str:
        pure = all(delta == 0 for _, delta in asked.points)
        said = "p[j] <= e^ε p[j + s]" if pure else "Σ_j max(p[j] - e^ε p[j + s], 0) <= δ"
        return f"{said}, 0 < |s| <= {self.change}"

    @cached_property
    def masses(self) -> list[fmpq]:
        """Mass of a point per unit of its entry: for `INNER` to `SECOND`, then the same for halves of mirrored entries."""
        r = rational(self.decay)
        held = [fmpq(1), 1 - r, (1 - r) * r, r, r * r]
        return [*held, *(mass / 2 for mass in held)]

    def located(self, at: Indices, repeated: Any = False) -> tuple[Indices, Indices]:
        """Return entries and kinds of masses of points, counted in steps; -1 for points without mass. With `repeated` masses are over 1 − r."""
        far = np.abs(at)
        out = np.maximum(0, -((self.side - far) // self.change))  # which repetition, 0 within the reach
        inside = np.sign(at) * (far - out * self.change)
        found = np.abs(inside) if self.mirrored else inside + self.side
        kinds = np.zeros_like(at)
        if self.decay:
            kinds = np.where(out, NEXT, np.where(far > self.side - self.change, EDGE, INNER))
            kinds = np.where(repeated, np.choose(out, [INNER, FIRST, SECOND], mode="clip"), kinds)
        else:
            found = np.where(out, -1, found)
        return found, kinds + (len(self.masses) // 2 if self.mirrored else 0) * (inside != 0)

    def point_masses(self, cells: list[Any]) -> list[Any]:
        """Return the masses of the points within the reach, from entries."""
        owners, kinds = self.located(np.arange(-self.side, self.side + 1))
        return [cells[c] * self.masses[k] for c, k in zip(owners.tolist(), kinds.tolist())]


class ShiftPart(Part):
    """Privacy at one (ε, δ) for all shifts of the noise up to the sensitivity.

    A row compares a point with its partner, a shift away. Points are those within the reach, and under δ > 0 those of the tails' first repetition.
    """

    def __init__(self, declared: LatticeDeclared, asked: Any, point: tuple[float, float], first: int) -> None:
        n, side = declared.change, declared.side
        self.label, self.delta, self.first, self.n = asked.label, point[1], first, 1
        self.cells = declared.m
        shifts = np.arange(1, n + 1) if declared.mirrored else np.r_[-n:0, 1 : n + 1]
        self.pairs = np.column_stack([0 * shifts, shifts])
        self.distances, self.of = np.ones(1), np.zeros(len(shifts), dtype=int)
        self.losses = np.full(len(shifts), point[0])
        self._epsilon, self._known, self.floors = Fraction(point[0]), {}, False
        reach = side + n if declared.decay and self.delta else side
        at = np.arange(-reach, reach + 1)
        outside = np.abs(at) > side
        self.m = len(at) + declared.spiked
        self.sums = self.upper = self.lower = first + len(shifts) * self.m
        self.end = self.sums + (len(shifts) if self.delta else 0)
        self._left = declared.located(at, outside)
        self._right = declared.located(at + shifts[:, None], outside)
        if declared.spiked:  # without a partner at any shift
            self._left = np.append(self._left[0], self.cells - 1), np.append(self._left[1], INNER)
            none = ((0, 0), (0, 1))
            self._right = np.pad(self._right[0], none, constant_values=-1), np.pad(self._right[1], none)
        self._masses, self._numbers = declared.masses, np.array([float(mass) for mass in declared.masses])
        # a point and its own image break no row, unless tails decrease faster than this ε; beyond a free reach there are no rows
        gone = self._right[0] < 0
        alike = (self._left[0] == self._right[0]) & ~gone
        kept = [[self.low(0) * b >= a for b in self._masses] for a in self._masses]
        harmless = np.array(kept)[self._left[1], self._right[1]]
        self.rows = ~(alike & harmless) & ~(gone if declared.free else np.zeros_like(gone))

    def row(self, number: int) -> tuple[list[Entry], int]:
        if number >= self.sums:
            k = number - self.sums
            return [(("S", k, y), 1, 0) for y in np.flatnonzero(self.rows[k]).tolist()], k
        k, y = divmod(number - self.first, self.m)
        entries: list[Entry] = [(("S", k, y), -1, 0)] if self.delta else []
        if not self.rows[k, y]:
            return entries, k
        (cells, kinds), (others, theirs) = self._left, self._right
        mine, its = int(cells[y]), int(others[k, y])
        a, b = self._masses[kinds[y]], self._masses[theirs[k, y]]
        if mine == its:
            return [(mine, a, b), *entries], k
        return [(mine, a, 0), *([(its, 0, b)] if its >= 0 else []), *entries], k

    def over(self, table: Any) -> Iterator[Any]:
        """Yield the left less the right sides of every shift's rows."""
        (cells, kinds), (others, theirs), growth = self._left, self._right, math.exp(self.losses[0])
        for k in range(len(self.pairs)):
            y = np.flatnonzero(self.rows[k])
            there = y[others[k, y] >= 0]
            data = np.append(self._numbers[kinds[y]], -growth * self._numbers[theirs[k, there]])
            places = np.r_[y, there], np.r_[cells[y], others[k, there]]
            yield sparse.csr_array((data, places), shape=(self.m, self.cells)) @ table

    def leaders(self, orbits: Indices) -> Indices:
        return np.arange(len(self.pairs))

    def longest(self) -> Indices:
        far = np.abs(self.pairs[:, 1])
        return np.flatnonzero(far == far.max())

    def ends(self, places: Indices, cells: Indices) -> tuple[Indices, Indices]:
        k, y = np.divmod(places, self.m)
        return self._left[0][y], self._right[0][k, y]

    def rows_of(self, pairs: Indices, cells: Indices) -> Indices:
        k, y = np.nonzero(self.rows[pairs])
        return np.asarray(pairs[k] * self.m + y)

    def entries(self, places: Indices, cells: Indices) -> Block:
        k, y = np.divmod(places, self.m)
        (high, mine), (low, its) = (self._left[0][y], self._left[1][y]), (part[k, y] for part in self._right)
        given, rates = self._numbers[mine], self._numbers[its]
        alike = np.flatnonzero(high == low)  # one coefficient, whatever the margin
        given[alike] -= rates[alike] * math.exp(min(self.losses[0], self.most))
        some = np.flatnonzero((low >= 0) & (high != low))
        losses = np.append(np.full(len(places), np.nan), np.full(len(some), min(self.losses[0], self.most)))
        columns, numbers = np.append(high, low[some]), np.append(given, rates[some])
        return np.append(np.arange(len(places)), some), columns, numbers, losses

    def sides(
        self, declared: Any, table: Array, rows: Indices | None = None
    ) -> tuple[list[str], Array, Array]:
        """Return names and sides of the rows; under pure privacy those of all points of each shift."""
        over = [*self.over(table[0])]
        who = [f"shift {s:+d}" for s in self.pairs[:, 1].tolist()]
        if self.delta:
            return who, np.array([np.maximum(v, 0).sum() for v in over]), np.full(len(who), self.delta)
        places = np.arange(len(who) * self.m) if rows is None else rows - self.first
        index = [f"{who[k]}: {y}" for k, y in zip(*(part.tolist() for part in np.divmod(places, self.m)))]
        return index, np.concatenate(over)[places], np.zeros(len(index))

    def emptied(self, zero: set[int]) -> set[int]:
        if self.delta or not zero:
            return set()
        none = np.isin(self._right[0], list(zero)) & self.rows
        return set(np.broadcast_to(self._left[0], none.shape)[none].tolist())

    def scan(
        self, table: Array, margin: float = 0.0, *, listed: bool = True, only: Indices | None = None
    ) -> Iterator[tuple[Indices, Array, Array]]:
        growth, entries = math.exp(min(self.losses[0] * (1 - margin), self.most)), np.append(table[0], 0.0)
        (cells, kinds), (others, theirs) = self._left, self._right
        left = entries[cells] * self._numbers[kinds]
        block = max(1, _BLOCK // self.m)
        for k in range(0, len(self.pairs), block):
            some = slice(k, k + block)
            rows = self.rows[some]
            right = growth * entries[others[some]] * self._numbers[theirs[some]]
            here = np.broadcast_to(left, right.shape)
            if self.delta:
                over = np.where(rows, np.maximum(here - right, 0), 0).sum(axis=1) - self.delta * (1 - margin)
                size = np.where(rows, np.minimum(here + right, 3 * here), 0).sum(axis=1) + self.delta
                yield self.sums + k + np.arange(len(rows)), over, size
            else:
                numbers = self.first + k * self.m + np.flatnonzero(rows)
                yield numbers, (here - right)[rows], (here + right)[rows]
