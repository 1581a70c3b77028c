r"""The allocation under several bounds as a convex program, and the search for prices at given scales.

In :math:`u_i = \log(s_i/s_i^*)`, with :math:`s^*` the best scales if the bounds of single coordinates were all there is and
:math:`r_i` the shares of the budget they take,

.. math:: \min \sum_i r_i e^{p u_i} \quad\text{s.t.}\quad r_i e^{-m u_i} \le z_i + \sum_k \theta_k R_{ik}/r_k,
          \quad \sum_i z_i + \sum_k \theta_k \le 1.

For Laplace noise under L₂ a change of share x takes x² of that row and, however small, one of those that change: the right side
is :math:`t_i + y_i + \theta_1 R_{i1}/r_1` with :math:`y_i + r_2 t_i^2/(4 \theta_2 R_{i2}) \le z_i + \theta_c/c`, a cone. The
multipliers of the first rows over that of the last are the worst mix; those of the rows of y the shares of those that change.

On the deployed grid (results/ablations) 4 of 15 designs cost up to 65% more by the best single row than by the program.
"""

from __future__ import annotations

import math
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from mechdesign import solvers
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.noise.allocation.question import AllocationQuestion
from mechdesign.noise.allocation.several import Changes, Prices
from mechdesign.solvers import Deadline, Model
from mechdesign.typing import Array, Status

__all__ = ["SeveralAllocated", "allocate_several", "largest_spent", "several_model"]


_ENTRIES = 200_000
"""Entries of the changes that are drawn: files hold them."""
_LISTED = 300
"""Coordinates up to which the oracle adds to them."""
_JOIN = 20
"""Changes that join the list in a round."""
_ROUNDS, _PATIENCE = 25, 4
_CLOSE, _GAINED = 5e-3, 1e-3
"""Gap at which no further change is looked for, and what `_PATIENCE` rounds must gain."""
_NEGLIGIBLE = 1e-9
_LOST = 1e-290  # entries of a mix below it have no digits, or hardly any
_APART = "lie too far apart for doubles: scale them, or leave out the coordinates that hardly change"


class SeveralAllocated:
    """Scales within the budget and what proves it; the mix, its changes and the multiplier that prove the lower bound."""

    def __init__(self, question: AllocationQuestion) -> None:
        assert question.changes is not None
        self.question, self.changes = question, question.changes
        self.value, self.lower_bound = math.inf, -math.inf
        self.scales, self.mix = np.zeros(0), np.zeros(0)
        self.prices: Prices = (0.0, 0.0, 0.0)
        self.among: tuple[Array, Array] | None = None
        self.multiplier = 0.0

    def offer(self, scales: Array, prices: Prices) -> None:
        """Scales, times the least factor at which the proof says that the budget is kept."""
        safe, proof = _within(self.question, scales, prices)
        with np.errstate(over="ignore"):
            value = self.question.cost_of(safe)
        if value < self.value:
            self.value, self.scales, self.prices = value, safe, proof

    def prove(self, mix: Array, among: tuple[Array, Array] | None = None) -> None:
        """A mix of changes: no noise costs less than the best against it."""
        against = self.question.against(mix)
        found = against.problem.optimum()
        bound = against.loss_of_groups(found.lower_bound)
        if bound > self.lower_bound:
            self.lower_bound, self.mix, self.among, self.multiplier = bound, mix, among, found.multiplier

    @property
    def gap(self) -> float:
        return 1 - self.lower_bound / self.value


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
        elif row.name == "changed" and curved:
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
    question: AllocationQuestion, solver: str | None, deadline: Deadline, gap: float, options: dict[str, Any]
) -> tuple[SeveralAllocated, SolveReport]:
    """Least scales under several bounds: by the level of the one row, or by the program."""
    changes = question.changes
    assert changes is not None
    started, order, weight = time.perf_counter(), float(question.loss), question.weights
    found, guide = SeveralAllocated(question), None
    if len(changes.rows()) == 1 and solver in (None, "closed-form"):
        if options:
            raise DesignError.of("options", sorted(options), "are none: a formula has none")
        mix = changes.mix(order, weight)
        scales = _scales(question, mix)
        found.offer(scales, changes.prices(scales))
        share = np.divide(mix, changes.sizes, out=np.zeros(len(mix)), where=changes.sizes > 0)
        guide = (changes.sizes, np.minimum(share, 1.0) ** changes.spend)
        seconds = time.perf_counter() - started
        report = SolveReport(
            "water-filling", seconds=seconds, variables=len(scales), constraints=1, requested=solver
        )
    elif solver == "closed-form":
        raise DesignError.of("solver", solver, 'several bounds together have no closed form; use "clarabel"')
    else:
        mix, guide, tried, report = _by_model(question, solver, deadline, options)
        for scales, prices in tried:
            found.offer(scales, prices)
    if not math.isfinite(found.value):
        raise DesignError.of(
            "sensitivities", (float(changes.sizes.min()), float(changes.sizes.max())), _APART
        )
    if changes.reached(mix):
        found.prove(mix)
    if not np.isfinite(found.lower_bound) or not changes.exact:
        sizes, shares = guide or (changes.sizes, np.ones(len(changes.sizes)))
        drawn = changes.drawn(
            sizes, shares, np.argsort(-sizes, kind="stable"), max(1, _ENTRIES // len(sizes))
        )
        drawn = drawn[drawn.any(axis=1)]
        made = changes.profile(drawn, np.ones(len(drawn)))
        if made is not None:
            found.prove(made, (drawn, np.ones(len(drawn))))
        if solver is None and found.gap > max(gap, _CLOSE) and np.count_nonzero(changes.sizes) <= _LISTED:
            seconds = time.perf_counter() - started
            rounds = _listed(found, drawn, deadline, gap)
            report = replace(
                report, solver=f"{report.solver} and constraint generation", iterations=rounds,
                seconds=report.seconds + time.perf_counter() - started - seconds,
            )  # fmt: skip
    return found, report


class Listing:
    r"""Changes listed, the worst mix of them, and the oracle that adds the worst change of all.

    Noise that keeps the budget on listed changes alone costs no more than the best noise: a lower bound, and the mix of them
    that proves it maximises the concave :math:`\sum_i W_i^{1-q} (\sum_k w_k |v_{ki}|^m)^q`.

    Parameters
    ----------
    question : NoiseAllocation
    drawn : ndarray, shape (N, K)
        Changes that begin it: those of the program's mix.
    """

    def __init__(self, question: AllocationQuestion, drawn: Array) -> None:
        assert question.changes is not None
        self.question, self.asked = question, question.changes
        self.at = np.flatnonzero(self.asked.sizes)
        keys = np.concatenate([drawn[:, self.at], np.eye(len(self.at))])
        keys = keys + 1e-6 * np.random.default_rng(0).random(keys.shape) * keys.max()
        orders = self.at[np.argsort(-keys, axis=1)]
        self.found = np.unique(np.concatenate([drawn, self.asked.filled(orders, self.asked.sizes)]), axis=0)

    def best(self, scales: Array, deadline: Deadline) -> tuple[Array, Array, Array]:
        """The profile of the worst mix of the list, its changes and their weights, by the program over the scales given."""
        q = self.question
        keep, p, m = self.asked.sizes > 0, float(q.loss), q.spend
        s = scales[keep]
        cost = (s / s.max()) ** p * (1.0 if q.weights is None else q.weights[keep] / q.weights.max())
        spent = (self.found[:, keep] / s) ** m
        u = cp.Variable(len(s), name="log_scales")
        kept = spent / spent.sum(axis=1).max() @ cp.exp(-m * u) <= 1
        program = cp.Problem(cp.Minimize(cost / cost.sum() @ cp.exp(p * u)), [kept])
        model = Model(program, {"log_scales": u}, {"changes": kept})
        dual = solvers.solve(model, "clarabel", fallback=False, time_limit=deadline.limit()).dual
        weights = np.maximum(np.ravel(dual["changes"]), 0.0)
        used = weights > _NEGLIGIBLE * weights.max()
        changes, weights = self.found[used], weights[used] / weights[used].sum()
        mix = self.asked.profile(changes, weights)
        if mix is None:
            raise SolverError("no weights of the changes were found", solver="clarabel", status="none")
        return mix, changes, weights

    def join(self, scales: Array, prices: Prices) -> bool:
        """Add the worst change at these scales that the oracle finds, and those next to it; whether one is new.

        The oracle is a knapsack of whole coordinates, filled up with what is left of the bounds. Laplace noise under L₂ makes a
        coordinate whole at the size where what it spends beyond the prices is largest. It proposes and proves nothing.
        """
        asked, at, m = self.asked, self.at, self.asked.spend
        a, s, (_, two, three) = asked.sizes[at], scales[at], prices
        b = a if m == 2 or not three else np.clip((1 / s - two) / (2 * three), 1e-6 * a, a)
        gain = (b / s) ** m
        limits = ((1.0, asked.changed), (b, asked.l1), (b * b, asked.l2 and asked.l2**2))
        rows = np.array([row / most * np.ones(len(at)) for row, most in limits if most is not None])
        chosen = cp.Variable(len(at), boolean=True, name="chosen")
        kept = rows @ chosen <= 1
        program = cp.Problem(cp.Maximize((gain / gain.max()) @ chosen), [kept])
        # SciPy's milp writes lines of its own to standard output
        with warnings.catch_warnings(), suppress(cp.error.SolverError):
            warnings.simplefilter("ignore")  # at the limit of nodes the best so far will do
            program.solve(solver=cp.HIGHS, mip_rel_gap=1e-6, mip_max_nodes=1000)
        whole = np.zeros(len(at)) if chosen.value is None else np.rint(chosen.value)
        keys = gain / gain.max() / (1 + b / a.max()) + 10 * whole
        orders = at[np.argsort(-(keys + 100 * np.eye(len(at), len(at) + 1).T), axis=1)]
        sizes = asked.sizes.copy()
        sizes[at] = b
        new = asked.filled(orders, sizes)
        spent = ((new[:, at] / s) ** m).sum(axis=1)
        new = new[np.argsort(-spent)[:_JOIN]]
        before = len(self.found)
        self.found = np.unique(np.concatenate([self.found, new]), axis=0)
        return len(self.found) > before


def _listed(found: SeveralAllocated, drawn: Array, deadline: Deadline, gap: float) -> int:
    """Constraint generation: noise against the list, proved for all changes, and the worst change; how many rounds."""
    question, changes = found.question, found.changes
    listing = Listing(question, drawn)
    rounds, before = 0, [math.inf] * _PATIENCE
    while rounds < _ROUNDS and not deadline.passed and found.gap > max(gap, _CLOSE):
        rounds += 1
        try:
            mix, *among = listing.best(found.scales, deadline)
        except SolverError:
            break
        found.prove(mix, (among[0], among[1]))
        scales = _scales(question, mix)
        prices = largest_spent(changes, scales, deadline)[1]
        found.offer(scales, prices)
        before.append(found.gap)
        if before[-1 - _PATIENCE] - before[-1] < _GAINED or not listing.join(scales, prices):
            break
    return rounds


def _by_model(
    question: AllocationQuestion, solver: str | None, deadline: Deadline, options: dict[str, Any]
) -> tuple[Array, tuple[Array, Array] | None, list[tuple[Array, Prices]], SolveReport]:
    changes, keep, reference, _ = _parts(question)
    named = solver
    if solver in (None, "clarabel"):
        options = {**dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9), **options}
        solver = "clarabel"
    if deadline.finite:
        options = {**options, "time_limit": deadline.limit()}
    try:
        # an answer that is nearly right is made safe below; a first-order solver would take minutes for no more
        solution = solvers.solve(several_model(question), solver, fallback=False, **options)
    except SolverError:
        if named and not deadline.passed:
            raise
        return _by_one_row(question, named, deadline)
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
    return mix, (sizes, shares), tried, SolveReport.of(solution)


def _by_one_row(
    question: AllocationQuestion, solver: str | None, deadline: Deadline
) -> tuple[Array, tuple[Array, Array] | None, list[tuple[Array, Prices]], SolveReport]:
    """Where no solver answers: what keeps the budget under the best one of the bounds keeps it under all of them."""
    changes = question.changes
    assert changes is not None
    tried, best, order, weight = [], (-1.0, np.zeros(0)), float(question.loss), question.weights
    keep, m = changes.sizes > 0, changes.spend
    for row in changes.rows():
        alone = changes.alone(row.name)
        mix = alone.mix(order, weight)
        scales = _scales(question, mix)
        tried.append((scales, alone.prices(scales)))
        x = (mix[keep] / changes.sizes[keep]) ** m
        over = [
            (float((r.entries[keep] * x**r.exponent).sum()) / r.most) ** (1 / r.exponent)
            for r in changes.rows()
        ]
        mix = mix / max(1.0, *over) ** (1 / m)
        against = question.against(mix)
        best = max(
            best,
            (against.loss_of_groups(against.problem.optimum().lower_bound), mix),
            key=lambda held: held[0],
        )
    shares = np.zeros(len(best[1]))
    shares[keep] = (best[1][keep] / changes.sizes[keep]) ** m
    status = Status.LIMIT if deadline.passed else Status.OPTIMAL
    return best[1], (changes.sizes, shares), tried, SolveReport("water-filling", status, requested=solver)


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
            of = area if row.exponent == 2 else z if row.name == "changed" else x
            limits[row.name] = entries @ of <= 1
        program = cp.Problem(cp.Maximize((gain / size) @ x), [x <= z, z <= 1, *limits.values(), *bent])
        model = Model(program, {v.name(): v for v in program.variables()}, limits)
        try:
            dual = solvers.solve(model, "clarabel" if bent else None, fallback=False, deadline=deadline).dual
            found = {row.name: max(float(np.ravel(dual[row.name])[0]), 0.0) * size / row.most for row in rows}
            tried = [changes.in_units(found, float(changes.sizes.max()))]
        except SolverError:
            tried = [changes.alone(row.name).prices(scales) for row in rows]
        prices = min(tried, key=lambda proof: changes.spent(scales, proof))
    return float(changes.spent(scales, prices)), prices


def _parts(question: AllocationQuestion) -> tuple[Changes, Any, Array, Array]:
    """The changes, which coordinates need noise, their reference scales and shares."""
    changes = question.changes
    assert changes is not None
    keep = changes.sizes > 0
    reference = question.problem.unlimited()[0]
    shares = (changes.sizes[keep] / reference) ** question.spend
    return changes, keep, reference, shares / shares.sum()


def _scales(question: AllocationQuestion, mix: Array) -> Array:
    """The best scales against one mix."""
    against, changes = question.against(mix), question.changes
    assert changes is not None
    scales = against.spread(against.problem.unlimited()[0])
    # Where the mix underflows, so does the loss: enough noise that the change of that coordinate costs next to nothing.
    lost = (changes.sizes > 0) & (mix < _LOST)
    return np.where(lost, changes.sizes * (1e12 / question.budget ** (1 / question.spend)), scales)


def _within(question: AllocationQuestion, scales: Array, prices: Prices) -> tuple[Array, Prices]:
    """The scales times the least factor at which the proof says that the budget is kept."""
    changes, m = question.changes, question.spend
    assert changes is not None
    margin, spent = 4e-16, changes.spent(scales, prices)
    while spent > question.budget:
        factor = (float(spent) / question.budget) ** (1 / m) * (1 + margin)
        if not 0 < factor < math.inf:
            raise DesignError.of(
                "sensitivities", (float(changes.sizes.min()), float(changes.sizes.max())), _APART
            )
        scales, margin = scales * factor, 2 * margin
        prices = tuple(price / factor**m for price in prices)  # type: ignore[assignment]
        spent = changes.spent(scales, prices)
    return scales, prices
