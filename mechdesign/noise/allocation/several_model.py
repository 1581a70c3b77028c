r"""The allocation under several bounds: the worst mix of changes by the prices of the bounds, and changes listed one after another.

**Water-filling.** Least loss is a saddle point, and the worst mix maximises the concave :math:`\sum_i W_i^{1-q} (a_i^m x_i)^q` over
the rows of the bounds. At prices :math:`\lambda` of the rows every share has its own maximum, so that prices, at most three of them, are
all that is searched for: the dual is convex and smooth in them. For Laplace noise under L₂ a change of share x takes
:math:`x^2/z` of that row and z of those that change, :math:`x \le z \le 1`: it may be rarer, and larger.

**The program** for named solvers is the other side of the saddle. In :math:`u_i = \log(s_i/s_i^*)`, with :math:`s^*` the best scales
if the bounds of single coordinates were all there is and :math:`r_i` the shares of the budget they take,

.. math:: \min \sum_i r_i e^{p u_i} \quad\text{s.t.}\quad r_i e^{-m u_i} \le z_i + \sum_k \theta_k R_{ik}/r_k,
          \quad \sum_i z_i + \sum_k \theta_k \le 1,

and for Laplace noise under L₂ the right side is :math:`t_i + y_i + \theta_1 R_{i1}/r_1` with
:math:`y_i + r_2 t_i^2/(4 \theta_2 R_{i2}) \le z_i + \theta_c/c`, a cone.

**Changes listed.** Noise that keeps the budget on listed changes alone costs no more than the best noise: a lower bound, and the mix of
them that proves it maximises the concave :math:`\sum_i W_i^{1-q} (\sum_k w_k |v_{ki}|^m)^q`. Scaled until it keeps the budget on
*every* change, by the prices or by filling one norm, it is an answer; changes that consume more than the budget at it join the list.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import cvxpy as cp
import numpy as np
from scipy import optimize

from mechdesign import solvers
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.noise.allocation.question import AllocationQuestion
from mechdesign.noise.allocation.separable import answered
from mechdesign.noise.allocation.several import (
    TINY,
    Among,
    Changes,
    Prices,
    Row,
    drawn_from,
    mixed,
    most_spent,
)
from mechdesign.problem.checks import refuse_unknown
from mechdesign.solvers import Deadline, Model
from mechdesign.typing import Array, Indices

_LISTED = 60
"""Coordinates up to which changes are listed."""
_PATIENCE = 4
_CLOSE = 2e-3
"""Gap at which no further change is looked for; half of it must be gained in `_PATIENCE` rounds."""
_JOIN = 20
"""Changes that join in a round."""


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
    def close(self) -> bool:
        """Whether no further change is worth looking for."""
        return 1 - self.lower_bound / self.value <= _CLOSE


class Worst(NamedTuple):
    """The worst mix under the rows: its profile, sizes and shares of its changes, and prices at a budget of 1."""

    mix: Array
    among: Among
    prices: Prices


def worst_mix(changes: Changes, order: float, weight: Array | None) -> Worst:
    """Fill the shares up to the level that the prices of the rows set; the prices by the dual, in their logarithms.

    Where Clarabel solves the program instead, 3 of 40 designs of the deployed grid have no answer, and 11 take at least 3 times as
    long (results/ablations).

    Examples
    --------
    >>> found = worst_mix(Changes(np.array([2.0, 1.0, 1.0]), 1, l1=2.0), 2.0, None)
    >>> found.mix.round(6)
    array([0.666667, 0.666667, 0.666667])
    """
    keep, rows, m = changes.sizes > 0, changes.rows(), changes.spend
    q, top = order / (order + m), float(changes.sizes.max())
    worth = (changes.sizes[keep] / top) ** (m * q)
    worth *= 1.0 if weight is None else (weight[keep] / weight.max()) ** (1 - q)
    entries = np.array([row.entries[keep] / row.most for row in rows])

    def used(x: Array, z: Array) -> Array:
        taken = {"l0": z, "l1": x, "l2": x if rows[-1].exponent == 1 else x * x / np.maximum(z, TINY)}
        return np.array([e @ taken[row.name] for row, e in zip(rows, entries)])

    def dual(logs: Array) -> tuple[float, Array]:
        prices = np.exp(logs)
        x, z = _shares(q * worth, prices, entries, rows, q)
        left = 1 - used(x, z)
        total = float(worth @ x**q + prices @ left)
        return math.log(total), prices * left / total

    with np.errstate(all="ignore"):
        start = np.full(len(rows), math.log(float(worth.sum()) / len(rows)))
        logs = optimize.minimize(dual, start, jac=True, method="BFGS", options={"gtol": 1e-11}).x
        prices = np.exp(logs)
        x, z = _shares(q * worth, prices, entries, rows, q)
        over = max(1.0, *(float(u) ** (1 / row.exponent) for u, row in zip(used(x, z), rows)))
        part = np.where(z > 0, x / np.maximum(z, TINY), 1.0)
    mix, sizes, shares = np.zeros((3, len(keep)))
    mix[keep] = changes.sizes[keep] * (x / over) ** (1 / m)
    sizes[keep], shares[keep] = changes.sizes[keep] * np.minimum(part, 1.0) ** (1 / m), z
    paid = prices / (q * float(worth @ x**q))
    named = {row.name: float(price) / row.most for price, row in zip(paid, rows)}
    return Worst(mix, Among(sizes, shares), changes.in_units(named))


def _shares(worth: Array, prices: Array, entries: Array, rows: list[Row], q: float) -> tuple[Array, Array]:
    """The x in [0, 1] that maximise worth x^q / q less what x and the share z of its changes pay; z."""
    if rows[-1].exponent == 1:
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


def several_model(question: AllocationQuestion) -> Model:
    """Declare the program: variables "log_scales", "free" and "prices" (and more), constraints "worst", "shares" and "budget"."""
    changes, p, m = question.joint, float(question.loss), question.spend
    shares = (changes.sizes[changes.sizes > 0] / question.separable.unlimited()[0]) ** m
    shares = shares / shares.sum()
    u = cp.Variable(len(shares), name="log_scales")
    kept, total, (cheap, *curves) = _priced(changes)
    worst, budget = cp.multiply(shares, cp.exp(-m * u)) <= kept, total <= 1
    program = cp.Problem(cp.Minimize(shares @ cp.exp(p * u)), [worst, cheap, budget, *curves])
    named: dict[str, cp.Constraint | list[cp.Constraint]] = {
        "shares": cheap,
        "worst": worst,
        "budget": budget,
    }
    return Model(program, {v.name(): v for v in program.variables()}, named)


def _priced(changes: Changes) -> tuple[cp.Expression, cp.Expression, list[cp.Constraint]]:
    """What each coordinate may consume by prices of the rows, what all then consume at most, and the constraints between."""
    keep, rows = changes.sizes > 0, changes.rows()
    n, curved = int(keep.sum()), rows[-1].exponent == 2
    free, theta = cp.Variable(n, nonneg=True, name="free"), cp.Variable(len(rows), nonneg=True, name="prices")
    level = cp.Variable(n, nonneg=True, name="level")
    paid, most, curves = 0.0, free, []
    for k, row in enumerate(rows):
        entries = row.entries[keep] / row.most
        if row.exponent == 2:
            slope, area = (cp.Variable(n, nonneg=True, name=name) for name in ("slope", "area"))
            curves.append(cp.SOC(theta[k] + area, cp.vstack([slope / np.sqrt(entries), theta[k] - area])))
            most, paid = most - area, paid + slope
        elif row.name == "l0" and curved:
            most = most + theta[k] * entries
        else:
            paid = paid + theta[k] * entries
    return paid + level, cp.sum(free) + cp.sum(theta), [level <= most, *curves]


def largest_spent(changes: Changes, scales: Array, deadline: Deadline | None = None) -> tuple[float, Prices]:
    """An upper bound of what a change consumes at these scales, exact under one row, and the prices that prove it."""
    prices = changes.prices(scales)
    if prices is None:
        gain = (changes.sizes[changes.sizes > 0] / scales[changes.sizes > 0]) ** changes.spend
        size, rows = float(gain.max()), changes.rows()
        kept, total, limits = _priced(changes)
        program = cp.Problem(cp.Minimize(total), [gain / size <= kept, *limits])
        model = Model(program, {v.name(): v for v in program.variables()}, {})
        solver = "clarabel" if rows[-1].exponent == 2 else None
        found = np.ravel(answered(model, solver, Deadline.of(deadline), {}).primal["prices"])
        named = {row.name: max(float(t), 0.0) * size / row.most for t, row in zip(found, rows)}
        prices = changes.in_units(named)
    return float(changes.spent(scales, prices)), prices


def allocate_several(
    question: AllocationQuestion, solver: str | None, deadline: Deadline, options: dict[str, float]
) -> tuple[SeveralAllocated, SolveReport]:
    """Least scales under several bounds: by water-filling, then changes listed; or by the program."""
    changes, order, weight = question.joint, float(question.loss), question.weights
    found, worst = SeveralAllocated(question), worst_mix(changes, order, weight)
    if solver is None or (solver == "closed-form" and len(changes.rows()) == 1):
        refuse_unknown(options, "water-filling has none")
        scales = _scales(question, worst.mix)
        one, two, three = worst.prices
        b = question.budget
        found.offer(scales, changes.prices(scales) or (one * b, two * b, three * b))
        report = SolveReport(
            "water-filling", variables=len(scales), constraints=len(changes.rows()), requested=solver
        )
    elif solver == "closed-form":
        raise DesignError.of("solver", solver, 'several bounds together have no closed form; use "clarabel"')
    else:
        solution = answered(several_model(question), solver, deadline, options)
        scales = np.zeros(len(changes.sizes))
        scales[changes.sizes > 0] = question.separable.unlimited()[0] * np.exp(
            np.ravel(solution.primal["log_scales"])
        )
        found.offer(scales, largest_spent(changes, scales, deadline)[1])
        report = SolveReport.of(solution)
    if not math.isfinite(found.value):
        raise _too_far_apart(changes)
    if changes.reached(worst.mix):
        found.prove(worst.mix)
    if not changes.exact or not np.isfinite(found.lower_bound):
        found.prove(*drawn_from(changes, worst.among))
        if solver is None and np.count_nonzero(changes.sizes) <= _LISTED and not found.close:
            rounds = _listed(found, worst.among.weights, deadline)
            name = f"{report.solver} and constraint generation"
            report = replace(report, solver=name, iterations=rounds)
    return found, report


def _too_far_apart(changes: Changes) -> DesignError:
    ends = float(changes.sizes.min()), float(changes.sizes.max())
    allowed = "lie too far apart for doubles: scale them, or leave out the coordinates that hardly change"
    return DesignError.of("sensitivities", ends, allowed)


def _listed(found: SeveralAllocated, shares: Array, deadline: Deadline) -> int:
    """Constraint generation until nothing much is gained; how many rounds.

    Without it 5 of 13 designs cost up to 12% more, and all 13 have at least ten times the gap (results/ablations).
    """
    question, changes, sizes = found.question, found.changes, found.changes.sizes
    rng = np.random.default_rng(0)
    orders = [_by_worth(sizes), *(_drawn(shares, rng) for _ in range(_JOIN))]
    listed = np.unique(whole_changes(changes, np.concatenate(orders)), axis=0)
    rounds, before = 0, [-math.inf] * _PATIENCE
    while not (deadline.passed or found.close):
        rounds += 1
        try:
            among = _worst_listed(question, listed, found.scales, deadline)
            mix = mixed(changes, among)
            if mix is None:
                break
            found.prove(mix, among)
            scales = _scales(question, mix)
            prices = largest_spent(changes, scales, deadline)[1]
        except SolverError as error:
            deadline.failed(error, "no further changes were listed")
            break
        found.offer(scales, prices)
        _offer_held(found, scales, prices)
        before.append(found.lower_bound / found.value)
        one, two, three = prices
        paid = one + two * sizes + three * sizes**2
        with np.errstate(divide="ignore", invalid="ignore"):
            spent = np.where(sizes > 0, 1 / scales, 0.0)
        worth = (sizes * spent) ** changes.spend / (paid + 1e-9 * paid.max())
        new = whole_changes(changes, _by_worth(worth))
        worst = np.argsort(-((new * spent) ** changes.spend).sum(axis=1))[:_JOIN]
        longer = np.unique(np.concatenate([listed, new[worst]]), axis=0)
        if before[-1] - before[-1 - _PATIENCE] < _CLOSE / 2 or len(longer) == len(listed):
            break
        listed = longer
    return rounds


def _offer_held(found: SeveralAllocated, scales: Array, prices: Prices) -> None:
    """Offer the scales under proofs that fill one norm: without them 5 of 13 designs cost up to 12% more (results/ablations)."""
    _, two, three = prices
    for name in ("l1", "l2"):
        held = (0.0, two * (name != "l1"), three * (name != "l2"))
        if most_spent(found.changes, scales, held, name) < math.inf:
            found.offer(scales, held, name)


def _worst_listed(question: AllocationQuestion, listed: Array, scales: Array, deadline: Deadline) -> Among:
    """The worst mix of the list, by the program in logarithms of the scales over those given."""
    keep, m, p = scales > 0, question.spend, float(question.loss)
    s, weight = scales[keep], 1.0 if question.weights is None else question.weights[keep]
    shares = weight * (s / s.max()) ** p
    spent = (listed[:, keep] / s) ** m
    u = cp.Variable(len(s), name="log_scales")
    kept = spent / spent.sum(axis=1).max() @ cp.exp(-m * u) <= 1
    program = cp.Problem(cp.Minimize(shares / shares.sum() @ cp.exp(p * u)), [kept])
    model = Model(program, {"log_scales": u}, {"changes": kept})
    dual = solvers.solve(model, "clarabel", fallback=False, time_limit=deadline.limit()).dual
    weights = np.maximum(np.ravel(dual["changes"]), 0.0)
    used = weights > 1e-9 * weights.max()
    return Among(listed[used], weights[used] / weights[used].sum())


def _by_worth(worth: Array) -> Indices:
    """Orders of the coordinates by worth, in each another one before all others."""
    keys = np.where(np.eye(len(worth), dtype=bool), math.inf, worth)
    return np.asarray(np.argsort(-keys, axis=1, kind="stable"))


def _drawn(shares: Array, rng: np.random.Generator) -> Indices:
    """Orders that begin with the coordinates of each change drawn from the shares, laid end to end in some order.

    With the largest shares first instead, 5 of 13 designs take at least 3 times as long, one has 34 times the gap (results/ablations).
    """
    order = rng.permutation(len(shares))
    ends = np.append(0.0, np.cumsum(shares[order]))
    points = np.unique(np.append(ends % 1, [0.0, 1.0]))
    u = (points[1:] + points[:-1])[:, None] / 2
    hit = np.floor(ends[None, 1:] - u) > np.floor(ends[None, :-1] - u)
    return np.asarray(order[np.argsort(-(hit + rng.random(hit.shape)), axis=1)])


def whole_changes(asked: Changes, orders: Indices) -> Array:
    """Changes that fill the bounds, whole in one coordinate after another: orders and changes of shape (N, K)."""
    top, count = float(asked.sizes.max()), len(orders)
    a = asked.sizes / top
    most = asked.l0 or len(a), (asked.l1 or math.inf) / top, (asked.l2 or math.inf) / top
    rows, found = np.arange(count), np.zeros((count, len(a)))
    number, one, two = np.zeros((3, count))
    for i in orders.T:
        left = np.sqrt(np.maximum(most[2] ** 2 - two, 0.0)) if asked.l2 else math.inf
        v = np.minimum(a[i], np.maximum(np.minimum(most[1] - one, left), 0.0))
        v[(number >= most[0]) | (v < 1e-9 * a[i])] = 0.0
        found[rows, i] = v
        number, one, two = number + (v > 0), one + v, two + v * v
    return found * top


def _scales(question: AllocationQuestion, mix: Array) -> Array:
    """The best scales against one mix."""
    changes = question.joint
    scales = np.zeros(len(mix))
    scales[mix > 0] = question._against(mix).unlimited()[0]
    # Where the mix underflows, so does the loss: enough noise that the change of that coordinate costs next to nothing.
    lost = (changes.sizes > 0) & (mix < TINY)
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
