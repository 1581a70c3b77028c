"""Models of one shape, solved in turn: each from the last one's basis where the backend keeps one."""

from __future__ import annotations

from typing import Any

from mechdesign.solvers.base import Model, Solution, Status
from mechdesign.solvers.compiled import CompiledLP
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.highs import HighsSolver
from mechdesign.solvers.registry import get, solve

__all__ = ["SolveSequence"]

_LOOSE = {"primal_feasibility_tolerance": 1e-8, "dual_feasibility_tolerance": 1e-8}


class SolveSequence:
    """Solve models that differ in their numbers only, as successive linearisation makes them.

    A model given again, its parameters changed, is not compiled again.

    Parameters
    ----------
    solver : str, optional
        Any registered backend; HiGHS's simplex (default) is warm-started.
    deadline : Deadline, optional
        Kept by every solve.
    **options
        The backend's own options.

    Attributes
    ----------
    count, iterations : int
        Models solved so far, and the backend's iterations in all of them.
    seconds, build_seconds : float
        Time in the solver and time to compile, in all.
    last : Solution or None
    """

    def __init__(
        self, solver: str | None = None, *, deadline: Deadline | None = None, **options: Any
    ) -> None:
        self.name = "highs" if solver is None else solver
        self.deadline = Deadline.of(deadline)
        self.options = options
        self.count = 0
        self.last: Solution | None = None
        self.seconds = self.build_seconds = 0.0
        self.iterations = 0
        self._shape: tuple[int, int] | None = None
        self._basis: Any = None
        self._compiled_of: Model | None = None
        self._compiled: CompiledLP | None = None

    def solve(self, model: Model) -> Solution:
        """Return the answer to the next model; errors as `mechdesign.solvers.solve`."""
        self.count += 1
        self.last = answer = self._answer(model)
        self.seconds += answer.seconds
        self.build_seconds += answer.build_seconds
        self.iterations += answer.iterations or 0
        return answer

    def _answer(self, model: Model) -> Solution:
        backend = get(self.name)
        if isinstance(backend, HighsSolver) and backend.capabilities.warm_start:
            limit = {"simplex_iteration_limit": 20 * sum(model.size) + 1000}
            basis = self._basis if model.size == self._shape else None
            self._shape = model.size
            # Badly scaled programs can keep the simplex method turning at the tightest tolerance.
            if model is not self._compiled_of:
                self._compiled_of, self._compiled = model, CompiledLP(model)
            for loose in ({}, _LOOSE):
                if self.deadline.passed:
                    break
                answer, self._basis = backend.solve_from(
                    model,
                    basis,
                    time_limit=self.deadline.limit(),
                    compiled=self._compiled,
                    **{**limit, **loose, **self.options},
                )
                if answer.status is Status.OPTIMAL:
                    return answer.tagged(requested=self.name)
                basis = self._basis if answer.status is Status.LIMIT else None
            self._basis = None
        return solve(model, self.name, deadline=self.deadline, **self.options)

    def total(self, solution: Solution) -> Solution:
        """Return `solution` with the effort of the whole sequence."""
        return solution.tagged(
            seconds=self.seconds, build_seconds=self.build_seconds, iterations=self.iterations
        )
