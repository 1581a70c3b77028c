r"""The allocation under several bounds as a convex program, and the search for prices at given scales.

In :math:`u_i = \log(s_i/s_i^*)`, with :math:`s^*` the best scales if the bounds of single coordinates were all there is and
:math:`r_i` the shares of the budget they take,

.. math:: \min \sum_i r_i e^{p u_i} \quad\text{s.t.}\quad r_i e^{-m u_i} \le z_i + \sum_k \theta_k R_{ik}/r_k + a_i t_i/L_2,
          \quad \sum_i z_i + \sum_k \theta_k + \lVert t\rVert_2 \le 1,

the last term for Laplace noise under L₂ alone. The multipliers of the first rows over that of the last are the worst mix.
"""

from __future__ import annotations

import math
import time
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


_LOST = 1e-290  # entries of a mix below it have no digits, or hardly any
_APART = "lie too far apart for doubles: scale them, or leave out the coordinates that hardly change"


class SeveralAllocated:
    """Scales within the budget, the prices that prove it, and the mix and multiplier that prove the lower bound."""

    def __init__(
        self, question: AllocationQuestion, mixes: list[Array], tried: list[tuple[Array, Prices]]
    ) -> None:
        changes = question.changes
        assert changes is not None
        safe = [_within(question, scales, prices) for scales, prices in tried]
        self.scales, self.prices = min(safe, key=lambda pair: question.cost_of(pair[0]))
        proofs = []
        for mix in mixes:
            against = question.against(mix)
            found = against.problem.optimum()
            proofs.append((against.loss_of_groups(found.lower_bound), mix, found.multiplier))
        self.lower_bound, self.mix, self.multiplier = max(proofs, key=lambda proof: proof[0])


def several_model(question: AllocationQuestion) -> Model:
    """Declare the program: variables "log_scales", "free" and "prices", constraints "worst" and "budget"."""
    changes, keep, _, shares = _parts(question)
    rows, p, m = changes.rows(), float(question.loss), question.spend
    u = cp.Variable(len(shares), name="log_scales")
    z, theta = (
        cp.Variable(n, nonneg=True, name=name) for n, name in ((len(shares), "free"), (len(rows), "prices"))
    )
    paid, total = z, cp.sum(z)
    for k, row in enumerate(rows):
        entries = row.entries[keep] / row.most
        if row.exponent == 2:
            t = cp.Variable(len(shares), nonneg=True, name="norm_prices")
            paid, total = paid + cp.multiply(np.sqrt(entries), t), total + cp.norm(t)
        else:
            paid, total = paid + theta[k] * entries, total + theta[k]
    worst, budget = cp.multiply(shares, cp.exp(-m * u)) <= paid, total <= 1
    constraints: dict[str, list[cp.Constraint] | cp.Constraint] = {"worst": worst, "budget": budget}
    program = cp.Problem(cp.Minimize(shares @ cp.exp(p * u)), [worst, budget])
    return Model(program, {v.name(): v for v in program.variables()}, constraints)


def allocate_several(
    question: AllocationQuestion, solver: str | None, deadline: Deadline, options: dict[str, Any]
) -> tuple[SeveralAllocated, SolveReport]:
    """Least scales under several bounds: by the level of the one row, or by the program."""
    changes = question.changes
    assert changes is not None
    started, order, weight = time.perf_counter(), float(question.loss), question.weights
    if len(changes.rows()) == 1 and solver in (None, "closed-form"):
        if options:
            raise DesignError.of("options", sorted(options), "are none: a formula has none")
        mix = changes.mix(order, weight)
        scales = _scales(question, mix)
        tried = [(scales, changes.prices(scales))]
        seconds = time.perf_counter() - started
        report = SolveReport(
            "water-filling", seconds=seconds, variables=len(scales), constraints=1, requested=solver
        )
    elif solver == "closed-form":
        raise DesignError.of("solver", solver, 'several bounds together have no closed form; use "clarabel"')
    else:
        mix, tried, report = _by_model(question, solver, deadline, options)
    mixes = [mix] if changes.reached(mix) else []
    if not mixes or not changes.exact:
        mixes += [changes.alike(order, weight), *changes.rounded(order, weight, mix)]
    return SeveralAllocated(question, mixes, tried), report


def _by_model(
    question: AllocationQuestion, solver: str | None, deadline: Deadline, options: dict[str, Any]
) -> tuple[Array, list[tuple[Array, Prices]], SolveReport]:
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
    over = [1.0, x.max()]
    over += [
        (float((row.entries[keep] * x**row.exponent).sum()) / row.most) ** (1 / row.exponent)
        for row in changes.rows()
    ]
    mix = np.zeros(len(scales))
    mix[keep] = changes.sizes[keep] * (x / max(over)) ** (1 / changes.spend)
    polished = _scales(question, mix)
    prices = [largest_spent(changes, s, deadline)[1] for s in (scales, polished)]
    return mix, list(zip((scales, polished), prices, strict=True)), SolveReport.of(solution)


def _by_one_row(
    question: AllocationQuestion, solver: str | None, deadline: Deadline
) -> tuple[Array, list[tuple[Array, Prices]], SolveReport]:
    """Where no solver answers: what keeps the budget under the best one of the bounds keeps it under all of them."""
    changes = question.changes
    assert changes is not None
    tried = []
    for row in changes.rows():
        alone = changes.alone(row.name)
        mix = alone.mix(float(question.loss), question.weights)
        scales = _scales(question, mix)
        tried.append((scales, alone.prices(scales)))
    status = Status.LIMIT if deadline.passed else Status.OPTIMAL
    return np.zeros(len(changes.sizes)), tried, SolveReport("water-filling", status, requested=solver)


def largest_spent(changes: Changes, scales: Array, deadline: Deadline | None = None) -> tuple[float, Prices]:
    """The most that a change spends at these scales, or an upper bound of it, and the prices that prove it.

    Past the deadline the bound of one row alone.
    """
    rows, keep = changes.rows(), changes.sizes > 0
    prices = changes.prices(scales)
    if len(rows) > 1:
        gain = (changes.sizes[keep] / scales[keep]) ** changes.spend
        size, x = float(gain.max()), cp.Variable(int(keep.sum()), nonneg=True, name="mix")
        limits = [
            cp.sum_squares(cp.multiply(np.sqrt(row.entries[keep] / row.most), x)) <= 1
            if row.exponent == 2
            else (row.entries[keep] / row.most) @ x <= 1
            for row in rows
        ]
        program = cp.Problem(cp.Maximize((gain / size) @ x), [x <= 1, *limits])
        model = Model(program, {"mix": x}, {row.name: limit for row, limit in zip(rows, limits, strict=True)})
        try:
            dual = solvers.solve(model, deadline=deadline).dual
            found = {row.name: max(float(np.ravel(dual[row.name])[0]), 0.0) * size / row.most for row in rows}
            tried = [changes.in_units(found, float(changes.sizes.max()))]
        except SolverError:
            tried = [changes.alone(row.name).prices(scales) for row in rows]
        prices = min(tried, key=lambda held: changes.spent(scales, held))
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
    """The scales times the least factor at which the prices prove that the budget is kept."""
    changes, m = question.changes, question.spend
    assert changes is not None
    margin: float = 4e-16
    while (spent := changes.spent(scales, prices)) > question.budget:
        factor = (float(spent) / question.budget) ** (1 / m) * (1 + margin)
        if not 0 < factor < math.inf:
            raise DesignError.of(
                "sensitivities", (float(changes.sizes.min()), float(changes.sizes.max())), _APART
            )
        scales, margin = scales * factor, 2 * margin
        prices = tuple(price / factor**m for price in prices)  # type: ignore[assignment]
    return scales, prices
