r"""Solve a problem on scales with a registered solver: the program, its multipliers, and scales inside every row exactly.

The variables are :math:`u_g = \log(s_g/s_g^*)`, or :math:`s_g/s_g^*` where rows mix signs, with :math:`s^*` the best
scales under the budgets alone: both are of order one in every unit. Several bounds add prices :math:`\theta` of their
rows, and the rest :math:`z_i` of each number's share:

.. math:: (a_i/s_i)^m \le z_i + \sum_k \theta_k R_{ik}, \quad \sum_i z_i + \sum_k \theta_k r_k \le B .

Rows and budgets are a little stricter in the program than stated, so that the solver's scales meet every one exactly. Its multipliers prove a lower bound within about 1e-7 of the loss.

**Several bounds.** The worst mix of changes is found by prices of the bounds. Least loss is a saddle point, and the
worst mix maximises the concave :math:`\sum_i W_i^{1-q} (a_i^m x_i)^q`, q = p/(p + m), over the rows of the bounds. At
prices :math:`\lambda` of the rows every share has its own maximum, so that only the prices, at most three, are
searched: the dual is convex and smooth in them. For Laplace noise under L₂ a change of share x takes :math:`x^2/z` of
that row and z of those that change, :math:`x \le z \le 1`: it may be rarer, and larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from scipy import optimize

from mechdesign import solvers
from mechdesign.checks import refuse
from mechdesign.doubles import TINY
from mechdesign.errors import DesignError, InfeasibleError, ResultFormatError, SolverError
from mechdesign.evidence.exact import rational
from mechdesign.evidence.results import SolveReport
from mechdesign.model.exactly import row_claims
from mechdesign.model.problem import contradicted, named
from mechdesign.model.tangents import conic, inside
from mechdesign.noise.lagrangian import DeclaredScales, Multipliers, lower_bound
from mechdesign.noise.separable import (
    LESS,
    AllChanges,
    Allocated,
    Prices,
    Row,
    Separable,
    against,
    changes_within,
    slack,
)
from mechdesign.problem.law_moments import absolute_moment
from mechdesign.solvers import Deadline, Solution
from mechdesign.typing import Array

_ROOMS = (3e-10, 2e-9, 2e-8, 2e-7, 2e-6)
"""Slack of rows and budgets, relative to their sizes, in the program; the first at which the scales keep all of them exactly is used."""
_THIN = "no scales were found that pass their own checks: rows may contradict each other, by less than the solver tells"
_ACTIVE = 1e-8
"""Share below which what a row's multiplier pays does not name it as a reason for infeasibility."""


class ScalesProgram:
    """The program in CVXPY.

    Parameters
    ----------
    asked : DeclaredScales
    problem : ScalesProblem, optional
        The problem whose convex functions are in the program themselves, not by their tangents.
    """

    def __init__(self, asked: DeclaredScales, problem: Any = None) -> None:
        self.asked, self.logarithmic, self.problem = asked, asked.logarithmic, problem
        p, m = asked.order, asked.exponent
        budgets = [asked.grouped(one.sensitivities**m / one.budget) for one in asked.privacy]
        joint = np.sum(budgets, axis=0)
        weight = asked.grouped(asked.weights)
        self.moved = np.flatnonzero(joint > 0)
        found = Separable(joint[self.moved] ** (1 / m), weight[self.moved], p, m, 1.0).unlimited()[0]
        low, high = asked.limits
        self.reference = np.where(joint > 0, 1.0, low)
        self.reference[self.moved] = np.clip(found, np.maximum(low[self.moved], 1e-300), high[self.moved])
        self._position = np.full(asked.count, -1)
        self._position[self.moved] = np.arange(len(self.moved))
        for one in asked.coupled:
            remedy = "is about a number that no change moves, whose scale is its lower limit: leave it out"
            DesignError.when(any(self._position[g] < 0 for g in one.terms), f"{one.row.label!r}: {remedy}")
        self.variable = cp.Variable(len(self.moved), name="log_scales" if self.logarithmic else "scales")
        losses = weight[self.moved] * self.reference[self.moved] ** p
        self.total = float(losses.sum())
        self.loss = losses / self.total @ self.power(p)

    @property
    def sizes(self) -> Array:
        """Sizes of the sides of coupled rows."""
        matrix, offsets, _, ratio = self.asked.coupling
        return np.where(ratio, 1.0, np.abs(matrix) @ self.reference + np.abs(offsets))

    def power(self, exponent: float) -> cp.Expression:
        """Return powers of the scales over the reference."""
        return cp.exp(exponent * self.variable) if self.logarithmic else cp.power(self.variable, exponent)

    def scales(self) -> Array:
        """Return the scales of all groups at the variable's value."""
        found = self.reference.copy()
        value = np.ravel(np.asarray(self.variable.value, dtype=float))
        with np.errstate(over="ignore"):
            found[self.moved] *= np.exp(value) if self.logarithmic else np.maximum(value, 0.0)
        return found

    def constraints(self, room: Any = 0.0, most: Any = 1.0) -> list[cp.Constraint]:
        """Return limits, and coupled rows and budgets with slack of `room` relative to their sizes; budgets are multiplied by `most`."""
        found = [*self._limits()]
        matrix, offsets, equal, ratio = self.asked.coupling
        scaled = matrix[:, self.moved] * self.reference[self.moved]
        for k, (size, offset) in enumerate(zip(self.sizes.tolist(), offsets.tolist())):
            at = np.flatnonzero(scaled[k])
            values, variable = scaled[k, at], self.variable[at]
            if ratio[k]:
                side = np.sign(values) @ variable + float(np.sign(values) @ np.log(np.abs(values)))
            else:
                side = (values / size) @ (cp.exp(variable) if self.logarithmic else variable) + offset / size
            found.append(named(f"row {k}", side == 0 if equal[k] else side + room <= 0))
        for r in range(len(self.asked.privacy)):
            found += self._budget(r, room, most)
        return found if self.problem is None else [*found, *self._functions(room)]

    def _functions(self, room: float) -> Iterator[cp.Constraint]:
        """Yield the convex functions of the scales: in logarithms of what is at least these, as functions there rise."""
        scales = np.zeros((self.asked.count, len(self.moved)))
        scales[self.moved, np.arange(len(self.moved))] = 1.0
        link = scales @ self.power(1) + np.where(self._position < 0, 1.0, 0.0)
        relative, unit = cp.Variable(self.asked.count, pos=True), self.reference
        yield from inside(
            self.problem, room, unit[self.asked.member], cp.multiply(unit, relative)[self.asked.member]
        )
        yield link <= relative if self.logarithmic else link == relative

    def _limits(self) -> list[cp.Constraint]:
        found = []
        for limit, sign in zip(self.asked.limits, (1, -1)):
            over = limit[self.moved] / self.reference[self.moved]
            near = np.flatnonzero((over > 0) & np.isfinite(over))
            if near.size:
                level = np.log(over[near]) if self.logarithmic else over[near]
                found.append(sign * (self.variable[near] - level) >= 0)
        return found

    def _budget(self, r: int, room: Any, most: Any) -> list[cp.Constraint]:
        asked, m = self.asked.privacy[r], self.asked.exponent
        moved = asked.sensitivities > 0
        places = self._position[self.asked.member[moved]]
        shares = (asked.sensitivities[moved] / self.reference[self.asked.member[moved]]) ** m / asked.budget
        changes, power = changes_within(asked), self.power(-m)
        if changes is None:
            joint = np.bincount(places, shares, len(self.moved)) @ power
            return [named(f"budget {r}", joint + room <= most)]
        kept, total, (level, *curves) = priced(changes, f"{r}")
        worst = named(f"worst {r}", cp.multiply(shares, power[places]) <= kept)
        return [named(f"level {r}", level), *curves, worst, named(f"budget {r}", total + room <= most)]

    def prices(self, solution: Solution) -> Array | None:
        """Return the prices of each requirement's bounds, in the answers' unit: 0 if only single numbers are bounded, None if that holds for all requirements."""
        found, several = np.zeros((len(self.asked.privacy), 3)), False
        for r, one in enumerate(self.asked.privacy):
            if (changes := changes_within(one)) is not None:
                several = True
                found[r] = _in_units(changes, solution.primal[f"prices {r}"] * one.budget)
        return found if several else None


def _in_units(changes: AllChanges, prices: Array) -> Prices:
    """Return prices of the rows as prices of the bounds themselves."""
    held = zip(np.maximum(np.ravel(prices), 0.0).tolist(), changes.bound_rows())
    return changes.in_units({row.name: price / row.most for price, row in held})


def priced(changes: AllChanges, name: str = "") -> tuple[cp.Expression, cp.Expression, list[cp.Constraint]]:
    """Return, in prices of the rows, what each coordinate may consume, an upper bound on what all consume together, and the constraints between them."""
    keep, rows = changes.sizes > 0, changes.bound_rows()
    n, curved = int(keep.sum()), rows[-1].degree == 2
    free, theta, level = (
        cp.Variable(size, nonneg=True, name=f"{what} {name}")
        for what, size in (("free", n), ("prices", len(rows)), ("level", n))
    )
    paid, most, curves = 0.0, free, []
    for k, row in enumerate(rows):
        entries = row.entries[keep] / row.most
        if row.degree == 2:
            slope, area = (cp.Variable(n, nonneg=True, name=f"{what} {name}") for what in ("slope", "area"))
            curves.append(cp.SOC(theta[k] + area, cp.vstack([slope / np.sqrt(entries), theta[k] - area])))
            most, paid = most - area, paid + slope
        elif row.name == "l0" and curved:
            most = most + theta[k] * entries
        else:
            paid = paid + theta[k] * entries
    return paid + level, cp.sum(free) + cp.sum(theta), [level <= most, *curves]


def solve_scales(
    asked: DeclaredScales,
    solver: str | None,
    deadline: Deadline,
    options: dict[str, Any],
    problem: Any = None,
) -> tuple[Array, Multipliers, SolveReport]:
    """Solve the program and repair its scales; return them, the multipliers and prices that prove them, and the report.

    With a `problem` the scales are inside its convex functions, to which no multipliers belong.
    """
    program, answer = ScalesProgram(asked, problem), solvers.solve if problem is None else conic
    if solver in (None, "clarabel"):  # at closer tolerances it sometimes stalls
        options = {**dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9), **options}
    for room in _ROOMS:
        model = cp.Problem(cp.Minimize(program.loss), program.constraints(room))
        try:
            solution = answer(model, solver, deadline=deadline, **options)
        except InfeasibleError:
            raise explained(asked, deadline) from None
        groups, prices = levelled(asked, program.scales()), program.prices(solution)
        kept = problem is None or problem.keeps(groups[asked.member])
        if kept and within(asked, groups[asked.member], prices):
            found = replace(_multipliers(program, solution), prices=prices)
            return groups[asked.member], found, SolveReport.of(solution)
    raise SolverError(_THIN, solver=solution.solver, status="check")


def _multipliers(program: ScalesProgram, solution: Solution, unit: float | None = None) -> Multipliers:
    """Return multipliers of the problem from those of the program; under several bounds also its mixes of changes."""
    asked, dual = program.asked, solution.dual
    unit = program.total * absolute_moment(asked.noise, asked.order) if unit is None else unit
    budgets, profiles, shares = [], [], list[Array]()
    for r, one in enumerate(asked.privacy):
        if (y := dual.get(f"budget {r}")) is None:
            raise SolverError("the answer has no multiplier", solver=solution.solver, status="no duals")
        y_r = max(float(y), 0.0)
        budgets.append(y_r * unit / one.budget)
        changes, profile, share = changes_within(one), one.sensitivities, np.ones(len(asked.weights))
        if changes is not None:
            x, z = (
                np.maximum(np.ravel(dual[f"{name} {r}"]), 0.0) / (y_r or 1.0) for name in ("worst", "level")
            )
            profile, share = mix_of(changes, x, z)
        profiles.append(profile)
        shares.append(share)
    nu = np.array([float(dual[f"row {k}"]) for k in range(len(asked.coupled))])
    rows = np.where(asked.coupling[2], nu, np.maximum(nu, 0.0)) * unit / program.sizes
    if all(changes_within(one) is None for one in asked.privacy):
        return Multipliers(np.array(budgets), rows if len(rows) else None)
    mixes = np.array(profiles)
    return Multipliers(np.array(budgets), rows if len(rows) else None, None, mixes, np.array(shares))


def mix_of(changes: AllChanges, x: Array, z: Array) -> tuple[Array, Array]:
    """Return the profile of a mix with shares x of changes that occur z of the time, and z, both reduced until they keep the rows exactly."""
    keep, rows = changes.sizes > 0, changes.bound_rows()
    x = np.minimum(x, 1.0)
    z = z if changes.rarer else x if changes.l0 else np.ones(len(x))
    z = np.clip(
        z / max(1.0, float(z.sum()) / (changes.l0 or len(z))), x, 1.0
    )  # rarer costs less than smaller
    used = _used(rows, [row.entries[keep] / row.most for row in rows], x, z)
    powers = [1 if changes.rarer else row.degree for row in rows]
    part = max(1.0, *(float(u) ** (1 / power) for u, power in zip(used, powers)))
    mix, shares = np.zeros((2, len(keep)))
    mix[keep] = changes.sizes[keep] * (x / part) ** (1 / changes.exponent) * (1 - LESS)
    shares[keep] = np.minimum(z / part if changes.rarer else z, 1.0) * (1 - LESS / 4)
    return mix, shares


def _used(rows: list[Row], entries: Any, x: Array, z: Array) -> Array:
    """Return the share of each row's limit that a mix takes."""
    taken = {"l0": z, "l1": x, "l2": x if rows[-1].degree == 1 else x * x / np.maximum(z, TINY)}
    return np.array([e @ taken[row.name] for row, e in zip(rows, entries)])


def levelled(asked: DeclaredScales, groups: Array) -> Array:
    """Return scales within their limits, moved onto the equalities in proportion to their sizes."""
    low, high = asked.limits
    found = np.clip(groups, low, high)
    matrix, offsets, equal, _ = asked.coupling
    matrix, right = matrix[equal], -offsets[equal]
    for _ in range(3 if len(right) else 0):
        free = np.where((found > low) & (found < high), found, 0.0)
        scaled = matrix * free
        step = np.linalg.lstsq(scaled @ scaled.T, right - matrix @ found, rcond=1e-14)[0]
        found = np.clip(found + free * (step @ scaled), low, high)
    return found


def within(asked: DeclaredScales, scales: Array, given: Array | None) -> bool:
    """Return whether scales satisfy all budgets, at prices of the bounds of each requirement if some has several, and rows, exactly."""
    if not np.isfinite(scales).all():
        return False
    exact = list(map(rational, scales.tolist()))
    prices = [None] * len(asked.privacy) if given is None else given.tolist()
    kept = all(slack(one, scales, price) >= 0 for one, price in zip(asked.privacy, prices))
    return kept and all(claim.holds for claim in row_claims(asked, exact, exact))


def explained(asked: DeclaredScales, deadline: Deadline) -> InfeasibleError | SolverError:
    """Return the error that names families which no scales satisfy together: those active at the least factor of the budgets at which some scales exist."""
    program, factor = ScalesProgram(asked), cp.Variable(name="factor")
    try:
        solution = solvers.solve(
            cp.Problem(cp.Minimize(factor), program.constraints(most=factor)), deadline=deadline
        )
    except InfeasibleError:
        return contradicted("scales meet", asked.labels, (), proved=False)
    found = _multipliers(program, solution, unit=1.0)
    try:
        proved = lower_bound(asked, found, costs=False) > 0
    except ResultFormatError:
        proved = False
    if not proved and solution.primal["factor"] <= 1:
        return SolverError(_THIN, solver=solution.solver, status="check")
    bound = asked.limited(program.scales())
    paid = np.abs(found.on_rows(asked)) * program.sizes  # a multiplier is as small as its row is large
    numbers = [one.number for one, share in zip(asked.coupled, paid) if share > _ACTIVE]
    own = [asked.labels[f] for f in asked.family[[*bound, *numbers]].tolist()]
    private = [one.label for one, y in zip(asked.privacy, found.multipliers) if y * one.budget > _ACTIVE]
    held: dict[str, Any] = {}
    if not {*own} & {*asked.curved}:  # tangents would allow smaller budgets
        held["least"] = least = float(solution.primal["factor"]) * asked.privacy[0].budget
        if len(asked.privacy) == 1:
            held["smallest_epsilon"] = asked.privacy[0].smallest_epsilon(least)
    families = dict.fromkeys([*private, *own])
    return contradicted("scales meet", families, asked.curved, proved=proved, **held)


class Worst(NamedTuple):
    """The worst mix under the rows: its profile, how often each number changes in it, and prices at a budget of 1."""

    mix: Array
    shares: Array
    prices: Prices


def worst_mix(changes: AllChanges, order: float, weight: Array | None) -> Worst:
    """Find the worst mix: shares fill up to the level that prices of the rows set, and the dual, in the logarithms of the prices, finds these.

    Where Clarabel solves the program instead, 3 of 40 designs of the deployed grid have no answer, and 11 take at least 3 times as
    long (results/ablations).

    Examples
    --------
    >>> found = worst_mix(AllChanges(np.array([2.0, 1.0, 1.0]), 1, l1=2.0), 2.0, None)
    >>> found.mix.round(6)
    array([0.666667, 0.666667, 0.666667])
    """
    keep, rows, m = changes.sizes > 0, changes.bound_rows(), changes.exponent
    q, top = order / (order + m), float(changes.sizes.max())
    worth = (changes.sizes[keep] / top) ** (m * q)
    worth *= 1.0 if weight is None else (weight[keep] / weight.max()) ** (1 - q)
    entries = np.array([row.entries[keep] / row.most for row in rows])

    def dual(logs: Array) -> tuple[float, Array]:
        prices = np.exp(logs)
        x, z = _shares(q * worth, prices, entries, rows, q)
        left = 1 - _used(rows, entries, x, z)
        total = float(worth @ x**q + prices @ left)
        return math.log(total), prices * left / total

    with np.errstate(all="ignore"):
        start = np.full(len(rows), math.log(float(worth.sum()) / len(rows)))
        logs = optimize.minimize(dual, start, jac=True, method="BFGS", options={"gtol": 1e-11}).x
        prices = np.exp(logs)
        x, z = _shares(q * worth, prices, entries, rows, q)
        mix, shares = mix_of(changes, x, z)
    paid = prices / (q * float(worth @ x**q))
    return Worst(mix, shares, _in_units(changes, paid))


def _shares(worth: Array, prices: Array, entries: Array, rows: list[Row], q: float) -> tuple[Array, Array]:
    """Return the x in [0, 1] that maximise worth x^q / q less the price of x and of the share z of its changes, and z."""
    if rows[-1].degree == 1:
        x = np.minimum((worth / (prices @ entries)) ** (1 / (1 - q)), 1.0)
        return x, x
    cost = {"l0": np.zeros(len(worth)), "l1": np.zeros(len(worth))}
    cost |= {row.name: price * e for row, price, e in zip(rows, prices, entries)}
    each, slope, steep = cost["l0"], cost["l1"], np.maximum(cost["l2"], TINY)
    part = np.minimum(np.sqrt(each / steep), 1.0)  # of a change that is rare
    rare = (worth / (slope + np.where(part < 1, 2 * part * steep, each + steep))) ** (1 / (1 - q))
    # beyond, it always happens: Newton's method for worth x^(q-1) = slope + 2 steep x, from below
    x = np.minimum((worth / (2 * slope)) ** (1 / (1 - q)), (worth / (4 * steep)) ** (1 / (2 - q)))
    x = np.minimum(x, 1.0)
    for _ in range(8):
        gain = worth * x ** (q - 1)
        x = x + (gain - slope - 2 * steep * x) / ((1 - q) * gain / x + 2 * steep)
    x = np.where(rare <= part, rare, np.clip(x, part, 1.0))
    return x, np.where(part > 0, np.minimum(x / part, 1.0), 1.0)


def allocate_several(
    changes: AllChanges, order: float, weights: Array | None, budget: float
) -> tuple[Array, Allocated, Multipliers]:
    """Find the least scales under several bounds by water-filling, and scale them by the least factor at which prices prove the budget kept.

    Return them, the best scales against the worst mix, and prices and mix as a proof holds them.
    """
    worst, m = worst_mix(changes, order, weights), changes.exponent
    best, scales = against(worst.mix, weights, order, m, budget).optimum(), np.zeros(len(worst.mix))
    scales[worst.mix > 0] = best.scales / (1 - LESS)
    one, two, three = worst.prices
    prices = changes.prices(scales) or (one * budget, two * budget, three * budget)
    margin, consumed = 4e-16, changes.consumed(scales, prices)
    while consumed > budget:
        factor = (consumed / budget) ** (1 / m) * (1 + margin)
        allowed = "lie too far apart for doubles: scale them, or leave out the coordinates that hardly change"
        refuse(
            not 0 < factor < math.inf, "sensitivities", (changes.sizes.min(), changes.sizes.max()), allowed
        )
        scales, margin = scales * factor, 2 * margin
        prices = prices[0] / factor**m, prices[1] / factor**m, prices[2] / factor**m
        consumed = changes.consumed(scales, prices)
    multiplier, shares = np.array([best.multiplier]), worst.shares[None] if changes.rarer else None
    return scales, best, Multipliers(multiplier, None, np.array([prices]), worst.mix[None], shares)


def best_prices(changes: AllChanges, scales: Array) -> tuple[float, Prices]:
    """Return an upper bound on the budget that a change consumes at these scales, exact under one row, and the prices that prove it."""
    prices = changes.prices(scales)
    if prices is None:
        gain = (changes.sizes[changes.sizes > 0] / scales[changes.sizes > 0]) ** changes.exponent
        size, rows = float(gain.max()), changes.bound_rows()
        kept, total, limits = priced(changes)
        program = cp.Problem(cp.Minimize(total), [gain / size <= kept, *limits])
        solver = "clarabel" if rows[-1].degree == 2 else None
        prices = _in_units(changes, solvers.solve(program, solver).primal["prices "] * size)
    return changes.consumed(scales, prices), prices
