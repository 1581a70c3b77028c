"""The formula, where there is one: the fastest solver of all."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.solvers.base import Capabilities, Model, Solution, Solver, Status

__all__ = ["ClosedFormSolver"]


class ClosedFormSolver(Solver):
    """Evaluates ``model.closed_form`` and assigns the variables; refuses models without one."""

    name = "closed-form"
    capabilities = Capabilities(frozenset({"closed-form"}), duals=False, accuracy=1e-15)

    def available(self) -> bool:
        return True

    def solve(self, model: Model, *, time_limit: float | None = None, **options: Any) -> Solution:
        if options:
            raise DesignError.of("options", sorted(options), "a closed form takes none")
        if model.closed_form is None:
            raise DesignError.of(
                "solver", self.name, 'this model has no closed form; use "clarabel", "scs" or "highs"'
            )
        started = time.perf_counter()
        primal = {name: np.asarray(v, dtype=float) for name, v in model.closed_form().items()}
        for name, value in primal.items():
            model.variables[name].value = value
        variables, constraints = model.size
        return Solution(
            status=Status.OPTIMAL,
            value=float(model.problem.objective.value),
            primal=primal,
            dual={},
            solver=self.name,
            seconds=time.perf_counter() - started,
            variables=variables,
            constraints=constraints,
            native_status="closed form",
        )
