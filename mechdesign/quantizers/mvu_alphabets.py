"""The search for MVU's alphabet: outputs that mirror about the centre of the input range.

A local search of a non-convex problem: by the simplex method for a few outputs, by the derivatives of
`OptimalQuantizer` for some dozens, over the range of evenly spread ones for more. All are over when their deadline is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.optimal.bin_search import BinSearch
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.solvers.base import Model
from mechdesign.solvers.compiled import CompiledLP
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.highs import HighsSession
from mechdesign.typing import Array, Status

__all__ = ["FEW", "AlphabetSearch"]

FEW = 4
"""Outputs up to which they are searched by the simplex method."""
_FARTHER = 3.0  # than outputs ever want: all starts are within

# How closely, in the logarithm of a gap between outputs, a start is followed at first.
_ROUGH = 1e-2
_FOLLOWED = 3

# First and last output right of the centre, in units of Duchi et al.'s, from which searches start.
_SPANS = [(0.9, 1.1), (0.1, 1.2), (0.3, 1.2), (0.6, 1.2), (0.05, 1.6), (0.3, 1.7), (0.9, 1.4), (1.0, 2.0)]
_SPANS += [(0.05, 2.5), (0.5, 2.5), (0.02, 1.0), (0.8, 3.0)]


@dataclass(frozen=True)
class AlphabetSearch:
    """Where m outputs are looked for; each search returns them with the number of programs it solved.

    Parameters
    ----------
    m : int
    epsilon : float
    input_range : (float, float)
    input_bits : int
    max_abs : float, optional
        Largest distance of an output from the centre.
    """

    m: int
    epsilon: float
    input_range: tuple[float, float]
    input_bits: int
    max_abs: float | None

    @property
    def inputs(self) -> Array:
        """The input grid."""
        return np.linspace(*self.input_range, 2**self.input_bits, dtype=float)

    @property
    def centre(self) -> float:
        """Of the input range."""
        return self.input_range[0] / 2 + self.input_range[1] / 2

    @property
    def half(self) -> float:
        """Half the width of the input range."""
        return self.input_range[1] / 2 - self.input_range[0] / 2

    @property
    def least(self) -> float:
        """No outputs within a smaller distance of the centre can be unbiased at the ends."""
        return self.half / math.tanh(self.epsilon / 2)

    @property
    def reach(self) -> float:
        """Largest distance of an output from the centre; free means half as far again as many outputs ever want."""
        free = 1.5 * self.half / math.tanh(self.epsilon / 4)
        return free if self.max_abs is None else min(free, self.max_abs)

    @property
    def farthest(self) -> float:
        """Largest distance of an output from the centre that a search may come to."""
        if self.max_abs is not None:
            return self.max_abs
        return self.reach if self.m > FEW else _FARTHER * self.reach

    def spread(self, reach: float) -> Array:
        """Evenly spread outputs."""
        return self.centre + reach * np.linspace(-1.0, 1.0, self.m, dtype=float)

    def as_optimum(self, bins: Any, epsilon: float) -> OptimalQuantizer:
        """MVU's program as another design: the least squared error over the input grid among unbiased mechanisms."""
        return OptimalQuantizer(bins, PureDP(epsilon), self.inputs, "squared", input_range=self.input_range)

    def placed(self, starts: int, deadline: Deadline) -> tuple[Array, int]:
        """Every output searched, with the derivatives of `OptimalQuantizer`."""
        about_zero = replace(self, input_range=(-self.half, self.half))
        search = BinSearch(self.m, self.reach, symmetric=True, exhaustive=False, starts=min(starts, 4))
        design = about_zero.as_optimum(search, self.epsilon)
        found = design.solve(gap=1e-6, time_limit=deadline.limit())
        return self.centre + found.mechanism.bins, max(1, found.solver_report.iterations or 1)

    def best_spread(self, deadline: Deadline) -> tuple[Array, int]:
        """Evenly spread outputs on the best range, found at 64 outputs."""
        few = replace(self, m=min(self.m, 64), input_bits=min(self.input_bits, 6))
        found = [(math.inf, self.reach)]

        def value(reach: float) -> float:
            if deadline.passed:
                return math.inf
            design = few.as_optimum(few.spread(reach), self.epsilon)
            found.append((design.solve(gap=1e-5, time_limit=deadline.limit()).value, reach))
            return found[-1][0]

        bounds, options = (self.least * (1 + 1e-9), self.reach), {"xatol": 1e-3 * self.half}
        optimize.minimize_scalar(value, bounds=bounds, method="bounded", options=options)
        return self.spread(min(found)[1]), len(found) - 1

    def simplex(self, model: Model, starts: int, deadline: Deadline) -> tuple[Array, int]:
        """Minimise the value of a program with the parameters "alphabet" and "cost".

        Raises
        ------
        InfeasibleError
            No alphabet was found on which the program is feasible.
        SolverError
            None was found in time.
        """
        compiled, inputs = CompiledLP(model), self.inputs
        session = HighsSession(compiled, compiled.point())
        count = 0

        def alphabet(logs: Array) -> Array:
            right = np.cumsum(np.exp(logs))
            middle = [] if self.m % 2 == 0 else [0.0]
            return self.centre + self.half * np.concatenate([-right[::-1], middle, right])

        def value(logs: Array) -> float:
            nonlocal count
            count += 1
            a = alphabet(np.minimum(logs, 12.0))
            if np.any(np.abs(logs) > 12) or a[-1] - self.centre > self.farthest:
                return 1e12
            # The solver's tolerance would let in alphabets that are short of the least by less than that.
            if a[-1] - self.centre >= self.least * (1 + 1e-11):
                given = {"alphabet": a, "cost": (a - inputs[:, None]) ** 2 / len(inputs)}
                matrix, rhs, cost = compiled.coefficients(compiled.point(given))
                session.move(matrix[compiled.varying], rhs, cost)
                if session.run() is Status.OPTIMAL:
                    return session.value() / self.half**2
            # An infeasible alphabet is answered by how short it reaches, to lead the search back.
            return 1e6 * (1 + float(np.exp(-logs).sum()))

        def on_time(_: Array) -> None:
            if deadline.passed:
                raise StopIteration

        def descend(first: Array, width: float, **stop: float) -> Any:
            corners = np.vstack([first, first + width * np.eye(len(first))])
            options: Any = {"maxfev": 400 * len(first), "initial_simplex": corners, **stop}
            return optimize.minimize(value, first, method="Nelder-Mead", callback=on_time, options=options)

        rough: list[Any] = []
        for steps in self._starts(starts):
            # A small first simplex: the first search stays in the basin of the published optimum.
            rough.append(descend(np.log(steps), 0.1, xatol=_ROUGH, fatol=math.inf))
            if deadline.passed:
                break
        # Most starts end at the same few alphabets: the best of them are followed to their ends, each once.
        best, seen = min(rough, key=lambda found: float(found.fun)), list[Array]()
        for near in sorted(rough, key=lambda found: float(found.fun)):
            if deadline.passed or len(seen) == _FOLLOWED or near.fun > (1 + 10 * _ROUGH) * best.fun:
                break
            if any(np.abs(near.x - other).max() <= 10 * _ROUGH for other in seen):
                continue
            seen.append(near.x)
            found = descend(near.x, 10 * _ROUGH, xatol=1e-7, fatol=1e-10)
            best = found if found.fun < best.fun else best
        if best.fun < 1e6:
            return alphabet(best.x), count
        if deadline.passed:
            raise SolverError("no alphabet was found in time", solver="Nelder-Mead", status="limit")
        raise InfeasibleError("no alphabet was found on which an unbiased mechanism meets the budget")

    def _starts(self, count: int) -> list[Array]:
        """Gaps between the outputs right of the centre: around the two-point optimum first, then wider and narrower."""
        reach = 1 / math.tanh(self.epsilon / 2)
        pairs = self.m // 2
        right = [np.linspace(a, b, pairs) if pairs > 1 else np.array([b]) for a, b in _SPANS[:count]]
        return [np.diff(np.concatenate([[0.0], reach * r])) for r in right]
