r"""The allocation under several bounds as a convex program, and the search for prices at given scales.

In :math:`u_i = \log(s_i/s_i^*)`, with :math:`s^*` the best scales if the bounds of single coordinates were all there is and
:math:`r_i` the shares of the budget they take,

.. math:: \min \sum_i r_i e^{p u_i} \quad\text{s.t.}\quad r_i e^{-m u_i} \le z_i + \sum_k \theta_k R_{ik}/r_k,
          \quad \sum_i z_i + \sum_k \theta_k \le 1.

For Laplace noise under L₂ a change of share x takes x² of that row and, however small, one of those that change: the right side
is :math:`t_i + y_i + \theta_1 R_{i1}/r_1` with :math:`y_i + r_2 t_i^2/(4 \theta_2 R_{i2}) \le z_i + \theta_c/c`, a cone. The
multipliers of the first rows over that of the last are the worst mix; those of the rows of y the shares of those that change.

**Changes listed.** Noise that keeps the budget on listed changes alone costs no more than the best noise: a lower bound, and the mix of
them that proves it maximises the concave :math:`\sum_i W_i^{1-q} (\sum_k w_k |v_{ki}|^m)^q`. Scaled until it keeps the budget on
*every* change, by the prices or by filling one norm, it is an answer; the changes on which it spends most join the list.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from mechdesign import solvers
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.noise.allocation.mixes import Among, best_drawn, mixed
from mechdesign.noise.allocation.question import AllocationQuestion
from mechdesign.noise.allocation.several import MOST_FILLED, Changes, Prices, most_filled, most_spent
from mechdesign.problem.checks import refuse_unknown
from mechdesign.solvers import Deadline, Model
from mechdesign.typing import Array, Flags, Indices

__all__ = [
    "Listing",
    "SeveralAllocated",
    "allocate_several",
    "largest_spent",
    "several_model",
    "whole_changes",
]

_LISTED = 300
"""Coordinates up to which changes are listed."""
_ROUNDS, _PATIENCE = 25, 4
_CLOSE, _NEAR, _MANY = 2e-3, 0.02, 60
"""Gaps at which no further change is looked for, the second for more than so many coordinates; half of the first must be gained
in `_PATIENCE` rounds."""
_FEW = 3
"""Changed coordinates beyond which their price may be nearly as good as their number."""
_LOST = 1e-290  # entries of a mix below it have no digits, or hardly any


class SeveralAllocated:
    """Scales within the budget and what proves it; the mix, its changes and the multiplier that prove the lower bound."""

    def __init__(self, question: AllocationQuestion) -> None:
        self.question, self.changes = question, question.joint
        self.value, self.lower_bound = math.inf, -math.inf
        self.scales, self.mix = np.zeros(0), np.zeros(0)
        self.prices: Prices = (0.0, 0.0, 0.0)
        self.held: str | None = None
        self.among: Among | None = None
        self.multiplier = 0.0

    def offer(self, scales: Array, prices: Prices, held: str | None = None) -> None:
        """Scales, times the least factor at which the proof says that the budget is kept."""
        safe, proof = _within(self.question, scales, prices, held)
        with np.errstate(over="ignore"):
            value = self.question.cost_of(safe)
        if value < self.value:
            self.value, self.scales, self.prices, self.held = value, safe, proof, held

    def prove(self, mix: Array, among: Among | None = None) -> None:
        """A mix of changes: no noise costs less than the best against it."""
        found = self.question._against(mix).optimum()
        bound = self.question._loss_of_groups(found.lower_bound)
        if bound > self.lower_bound:
            self.lower_bound, self.mix, self.among, self.multiplier = bound, mix, among, found.multiplier

    @property
    def gap(self) -> float:
        return 1 - self.lower_bound / self.value

    @property
    def close(self) -> bool:
        """Whether no further change is worth looking for."""
        return self.gap <= (_CLOSE if np.count_nonzero(self.changes.sizes) <= _MANY else _NEAR)


def several_model(question: AllocationQuestion) -> Model:
    """Declare the program: variables "log_scales", "free" and "prices" (and more), constraints "worst", "shares" and "budget"."""
    changes, keep, _, shares = _parts(question)
    rows, p, m = changes.rows(), float(question.loss), question.spend
    n = len(shares)
    u = cp.Variable(n, name="log_scales")
    z, theta = cp.Variable(n, nonneg=True, name="free"), cp.Variable(len(rows), nonneg=True, name="prices")
    free, paid, curved = z, 0.0, rows[-1].exponent == 2
    curves = []
    for k, row in enumerate(rows):
        entries = row.entries[keep] / row.most
        if row.exponent == 2:
            slope, area = (cp.Variable(n, nonneg=True, name=name) for name in ("slope", "area"))
            sides = cp.vstack([slope / np.sqrt(entries), theta[k] - area])
            curves = [cp.SOC(theta[k] + area, sides)]
            free, paid = free - area, paid + slope
        elif row.name == "l0" and curved:
            free = free + theta[k] * entries
        else:
            paid = paid + theta[k] * entries
    level = cp.Variable(n, nonneg=True, name="level")
    cheap = level <= free
    worst = cp.multiply(shares, cp.exp(-m * u)) <= paid + level
    budget = cp.sum(z) + cp.sum(theta) <= 1
    program = cp.Problem(cp.Minimize(shares @ cp.exp(p * u)), [worst, cheap, budget, *curves])
    named = {"shares": cheap, "worst": worst, "budget": budget}
    return Model(program, {v.name(): v for v in program.variables()}, named)


def allocate_several(
    question: AllocationQuestion, solver: str | None, deadline: Deadline, options: dict[str, object]
) -> tuple[SeveralAllocated, SolveReport]:
    """Least scales under several bounds: by the level of the one row, or by the program."""
    changes, order, weight = question.joint, float(question.loss), question.weights
    found, guides = SeveralAllocated(question), list[Among]()
    if len(changes.rows()) == 1 and solver in (None, "closed-form"):
        refuse_unknown(options, "a formula has none")
        (mix,) = changes.fills(order, weight)
        scales = _scales(question, mix)
        found.offer(scales, changes.prices(scales))
        report = SolveReport("water-filling", variables=len(scales), constraints=1, requested=solver)
    elif solver == "closed-form":
        raise DesignError.of("solver", solver, 'several bounds together have no closed form; use "clarabel"')
    else:
        mix, guide, tried, report = _by_model(question, solver, deadline, options)
        guides = [guide]
        for scales, prices in tried:
            found.offer(scales, prices)
    if not math.isfinite(found.value):
        raise _too_far_apart(changes)
    if changes.reached(mix):
        found.prove(mix)
    if not changes.exact or not np.isfinite(found.lower_bound):
        found.prove(*best_drawn(changes, order, weight, guides))
        if solver is None and np.count_nonzero(changes.sizes) <= _LISTED and not found.close:
            rounds = _listed(found, guides, deadline)
            name = f"{report.solver} and constraint generation"
            report = replace(report, solver=name, iterations=rounds)
    return found, report


def _too_far_apart(changes: Changes) -> DesignError:
    ends = float(changes.sizes.min()), float(changes.sizes.max())
    allowed = "lie too far apart for doubles: scale them, or leave out the coordinates that hardly change"
    return DesignError.of("sensitivities", ends, allowed)


def _listed(found: SeveralAllocated, guides: list[Among], deadline: Deadline) -> int:
    """Constraint generation until nothing much is gained; how many rounds."""
    question, changes = found.question, found.changes
    among = guides[0] if guides else found.among
    shares = changes.sizes if among is None else among.weights
    listing = Listing(changes, float(question.loss), question.weights, shares)
    rounds, before = 0, [math.inf] * _PATIENCE
    while rounds < _ROUNDS and not (deadline.passed or found.close):
        rounds += 1
        try:
            mix, among = listing.best(found.scales, deadline)
        except SolverError:
            break
        found.prove(mix, among)
        scales = _scales(question, mix)
        prices = largest_spent(changes, scales, deadline)[1]
        found.offer(scales, prices)
        filled = _best_held(found, scales, prices)
        before.append(found.gap)
        if before[-1 - _PATIENCE] - before[-1] < _CLOSE / 2 or not listing.join(scales, prices, filled):
            break
    return rounds


def _best_held(found: SeveralAllocated, scales: Array, prices: Prices) -> tuple[str, Prices] | None:
    """Offer the scales under proofs that fill one norm; the norm and the prices that prove most."""
    changes, (one, two, three) = found.changes, prices
    proofs = [(name, (0.0, two * (name != "l1"), three * (name != "l2"))) for name in ("l1", "l2")]
    proofs = [(name, p) for name, p in proofs if getattr(changes, name) is not None]
    if changes.l0 is not None and changes.l0 > _FEW:
        proofs += [(name, (one, *p[1:])) for name, p in proofs]
    spent = [most_spent(changes, scales, p, name) for name, p in proofs]
    for (name, p), most in zip(proofs, spent, strict=True):
        if most < math.inf:
            found.offer(scales, p, name)
    best = min(range(len(proofs)), key=lambda k: spent[k], default=None)
    return None if best is None or spent[best] == math.inf else proofs[best]


def _by_model(
    question: AllocationQuestion, solver: str | None, deadline: Deadline, options: dict[str, Any]
) -> tuple[Array, Among, list[tuple[Array, Prices]], SolveReport]:
    changes, keep, reference, _ = _parts(question)
    if solver in (None, "clarabel"):
        options = {**dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9), **options}
        solver = "clarabel"
    if deadline.finite:
        options = {**options, "time_limit": deadline.limit()}
    # an answer that is nearly right is made safe below; a first-order solver would take minutes for no more
    solution = solvers.solve(several_model(question), solver, fallback=False, **options)
    scales = np.zeros(len(changes.sizes))
    scales[keep] = reference * np.exp(np.ravel(solution.primal["log_scales"]))
    x = np.ravel(solution.dual["worst"]) / float(np.ravel(solution.dual["budget"])[0])
    x = np.maximum(x, 1e-14)
    z = x
    if changes.rows()[-1].exponent == 2:  # a change of share x may be rarer, and larger
        z = np.ravel(solution.dual["shares"]) / float(np.ravel(solution.dual["budget"])[0])
        z = np.minimum(np.maximum(z, x), 1.0)
    over = [1.0, x.max()]
    over += [
        (float((row.entries[keep] * x**row.exponent).sum()) / row.most) ** (1 / row.exponent)
        for row in changes.rows()
    ]
    mix, sizes, shares = np.zeros((3, len(scales)))
    sizes[keep], shares[keep] = (
        changes.sizes[keep] * np.minimum(x / z, 1.0) ** (1 / changes.spend),
        np.minimum(z, 1.0),
    )
    mix[keep] = changes.sizes[keep] * (x / max(over)) ** (1 / changes.spend)
    polished = _scales(question, mix)
    theta = np.ravel(solution.primal["prices"]).tolist()
    rows, top = changes.rows(), float(changes.sizes.max())
    paid = {row.name: max(t, 0.0) * question.budget / row.most for t, row in zip(theta, rows, strict=True)}
    prices = changes.in_units(paid, top)
    tried = [(scales, prices), (polished, prices), (polished, largest_spent(changes, polished, deadline)[1])]
    return mix, Among(sizes, shares), tried, SolveReport.of(solution)


def largest_spent(changes: Changes, scales: Array, deadline: Deadline | None = None) -> tuple[float, Prices]:
    """The most that a change spends at these scales, or an upper bound of it, and the prices that prove it.

    Past the deadline the bound of one row alone.
    """
    rows, keep = changes.rows(), changes.sizes > 0
    prices = changes.prices(scales)
    if len(rows) > 1:
        gain = (changes.sizes[keep] / scales[keep]) ** changes.spend
        size, n = float(gain.max()), int(keep.sum())
        x, z, area = (cp.Variable(n, nonneg=True, name=name) for name in ("mix", "shares", "squares"))
        limits, bent = {}, []
        for row in rows:
            entries = row.entries[keep] / row.most
            if row.exponent == 2:
                bent = [cp.SOC(z + area, cp.vstack([2 * x, z - area]))]  # x² ≤ z area
            of = area if row.exponent == 2 else z if row.name == "l0" else x
            limits[row.name] = entries @ of <= 1
        program = cp.Problem(cp.Maximize((gain / size) @ x), [x <= z, z <= 1, *limits.values(), *bent])
        model = Model(program, {v.name(): v for v in program.variables()}, limits)
        try:
            dual = solvers.solve(model, "clarabel" if bent else None, fallback=False, deadline=deadline).dual
            found = {row.name: max(float(np.ravel(dual[row.name])[0]), 0.0) * size / row.most for row in rows}
            tried = [changes.in_units(found, float(changes.sizes.max()))]
        except SolverError:
            tried = [changes.alone(row.name).prices(scales) for row in rows]
        prices = min(tried, key=lambda held: changes.spent(scales, held))
    return float(changes.spent(scales, prices)), prices


def _parts(question: AllocationQuestion) -> tuple[Changes, Flags, Array, Array]:
    """The changes, which coordinates need noise, their reference scales and shares."""
    changes = question.joint
    keep = changes.sizes > 0
    reference = question.problem.unlimited()[0]
    shares = (changes.sizes[keep] / reference) ** question.spend
    return changes, keep, reference, shares / shares.sum()


def _scales(question: AllocationQuestion, mix: Array) -> Array:
    """The best scales against one mix."""
    changes = question.joint
    scales = np.zeros(len(mix))
    scales[mix > 0] = question._against(mix).unlimited()[0]
    # Where the mix underflows, so does the loss: enough noise that the change of that coordinate costs next to nothing.
    lost = (changes.sizes > 0) & (mix < _LOST)
    return np.where(lost, changes.sizes * (1e12 / question.budget ** (1 / question.spend)), scales)


def _within(
    question: AllocationQuestion, scales: Array, prices: Prices, held: str | None
) -> tuple[Array, Prices]:
    """The scales times the least factor at which the proof says that the budget is kept."""
    changes, m = question.joint, question.spend
    margin, spent = 4e-16, most_spent(changes, scales, prices, held)
    while spent > question.budget or (held is not None and margin == 4e-16):
        factor = (float(spent) / question.budget) ** (1 / m) * (1 + margin)
        if not 0 < factor < math.inf:
            raise _too_far_apart(changes)
        scales, margin = scales * factor, 2 * margin
        prices = prices[0] / factor**m, prices[1] / factor**m, prices[2] / factor**m
        spent = most_spent(changes, scales, prices, held)
    return scales, prices


_JOIN = 20
"""Changes that join the list in a round."""
_NOISE = 0.1
"""Spread of the logarithms by which orders of filling are shuffled."""
_AGE = 5
"""Rounds without weight after which a change leaves the list."""
_SHAPES = ((1.0, 1.0), (1.0, 0.5), (1.0, 2.0), (0.5, 1.0), (0.0, 1.0))
"""Multiples of the prices of L₁ and L₂² at which Laplace noise finds the sizes of its changes."""
_NEGLIGIBLE = 1e-9


def whole_changes(asked: Changes, orders: Indices, sizes: Array | None = None) -> Array:
    """Changes that are whole in one coordinate after another, as far as the bounds go: orders and changes of shape (N, K).

    With `sizes` the first c of each order change in proportion to these, as much as the bounds allow.
    """
    rows, (n, count) = np.arange(len(orders)), orders.shape
    top, a = float(asked.sizes.max()), asked.sizes / asked.sizes.max()
    most = asked.l0 or count, (asked.l1 or math.inf) / top, (asked.l2 or math.inf) / top
    found = np.zeros((n, count))
    if sizes is not None:
        np.put_along_axis(found, orders[:, : most[0]], (sizes / top)[orders[:, : most[0]]], axis=1)
        found /= np.maximum(found.max(axis=1, keepdims=True), 1e-300)
        low, high = np.zeros((n, 1)), np.full((n, 1), 2.0**40)
        for _ in range(60):
            middle = np.where(low > 0, np.sqrt(low * high), 2.0**-40)
            v = np.minimum(a * (found > 0), middle * found)
            fits = (v.sum(axis=1) <= most[1]) & (np.sqrt((v * v).sum(axis=1)) <= most[2])
            low, high = np.where(fits[:, None], middle, low), np.where(fits[:, None], high, middle)
        return np.asarray(np.minimum(a * (found > 0), low * found) * (1 - 1e-15) * top)
    number, one, two = np.zeros(n), np.zeros(n), np.zeros(n)
    for at in orders.T:
        room = np.minimum(
            most[1] - one, np.sqrt(np.maximum(most[2] ** 2 - two, 0.0)) if asked.l2 else math.inf
        )
        v = np.minimum(a[at], np.maximum(room, 0.0))
        v[(number >= most[0]) | (v < _NEGLIGIBLE * a[at])] = 0.0
        found[rows, at] = v
        number, one, two = number + (v > 0), one + v, two + v * v
    return found * top


class Listing:
    """The list, what noise against it costs at least, and the next changes.

    Parameters
    ----------
    asked : Changes
    order : float
        p of the loss.
    weight : ndarray or None
        Of the loss.
    shares : ndarray, shape (K,)
        How often each coordinate should change, more or less.
    """

    def __init__(
        self,
        asked: Changes,
        order: float,
        weight: Array | None,
        shares: Array,
    ) -> None:
        self.asked = asked
        self.at = np.flatnonzero(asked.sizes)
        self.rng = np.random.default_rng(0)
        self.order = order
        self.weight = np.ones(len(self.at)) if weight is None else weight[self.at] / weight.max()
        self.inner = Changes(asked.sizes[self.at], asked.spend, asked.l0, asked.l1, asked.l2)
        count = len(self.at)
        each: Indices = np.argsort(-np.eye(count), axis=1, kind="stable")
        by_size: Indices = np.argsort(-self.inner.sizes, kind="stable")
        orders = [each, self._drawn(shares[self.at], by_size)]
        orders += [
            self._drawn(shares[self.at], self.rng.permutation(count)) for _ in range(max(1, 240 // count))
        ]
        self.found = self._changes(np.concatenate(orders), [np.ones(count)])
        self.age = np.zeros(len(self.found), dtype=int)

    def _drawn(self, shares: Array, order: Indices) -> Indices:
        """Orders that begin with the coordinates of each change drawn from the shares, as they lie."""
        ends = np.append(0.0, np.cumsum(shares[order]))
        points = np.unique(np.append(ends[:-1] % 1, [0.0, 1.0]))
        u = (points[1:] + points[:-1])[:, None] / 2
        hit = np.floor(ends[None, 1:] - u) > np.floor(ends[None, :-1] - u)
        keys = hit + self.rng.random(hit.shape)
        return np.asarray(order[np.argsort(-keys, axis=1)])

    def _changes(self, orders: Indices, sizes: list[Array]) -> Array:
        """Changes of the coordinates that need noise; of the given sizes too where L₂ makes these the worst for Laplace noise."""
        curved = self.inner.spend == 1 and self.inner.l2 is not None
        found = [whole_changes(self.inner, orders, b) for b in (None, *(sizes if curved else []))]
        return np.unique(np.concatenate(found), axis=0)

    def best(self, scales: Array, deadline: Deadline) -> tuple[Array, Among]:
        """The worst mix of the list, with its changes and weights, by the program in logarithms of the scales over those given."""
        s, m = scales[self.at], self.asked.spend
        shares = self.weight * (s / s.max()) ** self.order
        spent = (self.found / s) ** m
        u = cp.Variable(len(s), name="log_scales")
        kept = spent / spent.sum(axis=1).max() @ cp.exp(-m * u) <= 1
        program = cp.Problem(cp.Minimize(shares / shares.sum() @ cp.exp(self.order * u)), [kept])
        model = Model(program, {"log_scales": u}, {"changes": kept})
        dual = solvers.solve(model, "clarabel", fallback=False, time_limit=deadline.limit()).dual
        weights = np.maximum(np.ravel(dual["changes"]), 0.0)
        used = weights > _NEGLIGIBLE * weights.max()
        self.age = np.where(used, 0, self.age + 1)
        changes = np.zeros((int(used.sum()), len(self.asked.sizes)))
        changes[:, self.at] = self.found[used]
        among = Among(changes, weights[used] / weights[used].sum())
        mix = mixed(self.asked, among)
        if mix is None:
            raise SolverError("no weights of the changes were found", solver="clarabel", status="none")
        return mix, among

    def join(self, scales: Array, prices: Prices, filled: tuple[str, Prices] | None) -> bool:
        """Add the worst changes found at these scales, by filling in orders of worth; whether there was a new one."""
        a, s, m = self.inner.sizes, scales[self.at], self.inner.spend
        one, two, three = prices
        gain = (a / s) ** m
        sizes, shapes = a, []
        if m == 1:
            steep = three or float((1 / s).max()) / (2 * float(a.max()))
            shapes = [
                np.minimum(np.maximum(1 / s - x * two, 1e-3 / s) / (2 * y * steep), a) for x, y in _SHAPES
            ]
            sizes = shapes[0] if three > 0 else a
            gain = sizes / s
        paid = one + two * sizes + three * sizes * sizes
        worth = np.log(gain) - np.log(np.maximum(paid, 1e-300 + 1e-9 * paid.max()))
        keys = worth + _NOISE * self.rng.gumbel(size=(5 * _JOIN, len(a))) * self.rng.choice(
            [0.1, 1.0], size=(5 * _JOIN, 1)
        )
        orders = [np.argsort(-keys, axis=1), np.argsort(-worth)[None, :]]
        if filled is not None and len(a) <= MOST_FILLED:
            first = most_filled(self.inner, s, filled[1], filled[0])[1]
            rest = np.argsort(-worth)
            orders.append(np.append(first, rest[~np.isin(rest, first)]).astype(int)[None, :])
        new = self._changes(np.concatenate(orders), shapes)
        spent = ((new / s) ** m).sum(axis=1)
        new = new[np.argsort(-spent)[:_JOIN]]
        young = self.age < _AGE
        kept, known = self.found[young], {row.tobytes() for row in self.found[young]}
        added = np.array([row.tobytes() not in known for row in new])
        self.found = np.concatenate([kept, new[added]])
        self.age = np.append(self.age[young], np.zeros(int(added.sum()), dtype=int))
        return bool(added.any())
