r"""P3 and P4 as one convex model, in variables that are all of order one.

Let :math:`s_g^*` be the scales that would be optimal without limits, and :math:`r_g` the shares of the budget they
take. In :math:`u_g = \log(s_g / s_g^*)` the problem is a geometric program,

.. math:: \min_u \sum_g r_g e^{p u_g} \quad\text{s.t.}\quad \sum_g r_g e^{-m u_g} \le 1,
          \quad \log(\underline s_g/s_g^*) \le u_g \le \log(\overline s_g/s_g^*),

whose value is the loss over that of the unlimited optimum. Sensitivities a million times apart leave it as well
conditioned as equal ones; the solver still has to find the optimum and its value on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from mechdesign import solvers
from mechdesign.errors import SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.noise.allocation.separable import Allocated, Separable, power
from mechdesign.solvers import Deadline, Model
from mechdesign.typing import Array, Status

__all__ = ["AllocationModel", "allocation_model", "solve_model"]


_FAR = 60.0
"""Limits a factor e^60 away from the unlimited optimum are left out: they cannot bind."""


@dataclass(frozen=True, eq=False)
class AllocationModel:
    """The CVXPY model, and the scales at u = 0."""

    model: Model
    reference: Array

    def scales(self, log_scales: Array) -> Array:
        """Scales for a value of the variable."""
        return self.reference * np.exp(log_scales)


def allocation_model(problem: Separable) -> AllocationModel:
    """Declare the model of `problem`."""
    p, m = problem.order, problem.spend
    reference, _ = problem.unlimited()
    shares = power(problem.sensitivity / reference, m)
    shares = shares / shares.sum()

    u = cp.Variable(len(shares), name="log_scales")
    loss = shares @ cp.exp(p * u)
    privacy = shares @ cp.exp(-m * u) <= 1
    constraints: dict[str, list[cp.Constraint] | cp.Constraint] = {"privacy": privacy}
    bounds: list[cp.Constraint] = []
    for limit, sign in ((problem.lower, 1), (problem.upper, -1)):
        if limit is not None:
            with np.errstate(divide="ignore"):
                level = np.log(limit / reference)
            near = np.flatnonzero(np.abs(level) < _FAR)
            if near.size:
                bounds.append(sign * u[near] >= sign * level[near])
    if bounds:
        constraints["bounds"] = bounds
    unlimited = problem.lower is None and problem.upper is None
    model = Model(
        cp.Problem(cp.Minimize(loss), [privacy, *bounds]),
        {"log_scales": u},
        constraints,
        closed_form=(lambda: {"log_scales": np.zeros(len(shares))}) if unlimited else None,
    )
    return AllocationModel(model, reference)


def solve_model(
    problem: Separable, solver: str | None, deadline: Deadline, options: dict[str, Any]
) -> tuple[Allocated, SolveReport]:
    """Solve the model with a backend, and prove a bound from its multiplier; past the deadline the formula answers."""
    built = allocation_model(problem)
    if solver == "clarabel":
        # Values then agree with the closed form to below 1e-9; asked for more, Clarabel stalls now and then.
        options = {**dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-8), **options}
    if deadline.finite:
        options = {**options, "time_limit": deadline.limit()}
    try:
        solution = solvers.solve(built.model, solver, fallback=False, **options)
    except SolverError:
        if not deadline.passed:
            raise
        return problem.optimum(), SolveReport("water-filling", Status.LIMIT, requested=solver)
    scales = built.scales(np.ravel(solution.primal["log_scales"]))
    # The solver meets the budget to its tolerance; give back what it left, then make it safe.
    spent = problem.spent(problem.clip(scales))
    scales = problem.made_safe(scales * (spent / problem.budget) ** (1 / problem.spend))
    multiplier = max(float(solution.dual["privacy"]), 0.0) * problem.loss(built.reference) / problem.budget
    return Allocated(scales, problem.lower_bound(multiplier), multiplier), SolveReport.of(solution)
