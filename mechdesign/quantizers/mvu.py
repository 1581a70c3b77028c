r"""MVU: the minimum-variance unbiased mechanism (Chaudhuri, Guo, Rabbat 2022).

Inputs are dithered to a grid :math:`x_1 < \dots < x_n` (2^b points); a transition matrix P and an output
alphabet a are optimised together:

.. math::

    \min_{P, a}\; \tfrac1n \sum_{k,i} P_{ki} (a_i - x_k)^2 \quad \text{s.t.}\quad
    \sum_i P_{ki} = 1,\; \sum_i a_i P_{ki} = x_k,\; P_{ki} \le e^{\varepsilon} P_{k'i}.

For a fixed alphabet this is a linear program; its value is minimised over (symmetric) alphabets by a simplex search
from several starts, every evaluation a warm re-solve; by `BinSearch` and over evenly spread ones beyond 4 outputs. Dithering makes the mechanism piecewise affine
between the grid points, so its privacy and its error on the continuum are exact like any other's.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import optimize

from mechdesign import solvers
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import positive, whole
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.rational_rows import certified_table
from mechdesign.quantizers.common.result import QuantizerResult
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import check_bins
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.quantizers.optimal.outputs import BinSearch
from mechdesign.solvers import CompiledLP, HighsSession, Status
from mechdesign.typing import Array

__all__ = ["MVU"]


@serializable("mvu")
@dataclass(frozen=True)
class MVU:
    """The minimum-variance unbiased mechanism.

    Parameters
    ----------
    m : int
        Number of outputs.
    privacy : PureDP
    input_range : (float, float)
    input_bits : int
        The input grid has 2**input_bits points.
    prior, loss : optional
        What the reported value is (the mechanism itself always minimises the variance on its grid); uniform
        and absolute by default.
    bins : array_like, optional
        A fixed alphabet; searched when None.
    max_abs : float, optional
        Largest distance of a searched output from the centre of the range; free when None.

    Examples
    --------
    >>> result = MVU(m=4, privacy=PureDP(1.0), input_range=(-1, 1)).solve(starts=1)
    >>> [round(b, 2) for b in result.mechanism.bins.tolist()]
    [-2.42, -1.69, 1.69, 2.42]
    """

    m: int
    privacy: PureDP
    input_range: Any
    input_bits: int = 2
    prior: Any = None
    loss: Any = "absolute"
    bins: Any = None
    max_abs: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", whole("m", self.m, 2))
        object.__setattr__(self, "input_bits", whole("input_bits", self.input_bits, 1, 10))
        if not isinstance(self.privacy, PureDP):
            raise DesignError.of("privacy", self.privacy, "use md.PureDP(epsilon)")
        lower, upper = (float(v) for v in self.input_range)
        if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
            raise DesignError.of("input_range", self.input_range, "needs finite lower < upper")
        object.__setattr__(self, "input_range", (lower, upper))
        if self.prior is None:
            from scipy import stats

            object.__setattr__(self, "prior", Prior.of(stats.uniform(lower, upper - lower)))
        object.__setattr__(self, "prior", Prior.of(self.prior, self.input_range))
        object.__setattr__(self, "loss", Loss.of(self.loss))
        if self.bins is not None:
            bins = check_bins(self.bins)
            if len(bins) != self.m:
                raise DesignError.of("bins", self.bins, f"needs m = {self.m} values")
            object.__setattr__(self, "bins", tuple(bins.tolist()))
        if self.max_abs is not None:
            reach, least = (
                positive("max_abs", self.max_abs),
                self._half[1] / math.tanh(self.privacy.epsilon / 2),
            )
            if reach < least * (1 - 1e-12):
                raise DesignError.of(
                    "max_abs",
                    self.max_abs,
                    f"must be at least {least:.9g}, or no alphabet is unbiased at this epsilon",
                )
            object.__setattr__(self, "max_abs", reach)

    @property
    def inputs(self) -> Array:
        """The input grid."""
        lower, upper = self.input_range
        return np.linspace(lower, upper, 2**self.input_bits)

    def model(self, bins: Any = None, *, epsilon: float | None = None) -> solvers.Model:
        """Return the linear program for a fixed alphabet, which is a CVXPY parameter."""
        x = self.inputs
        n, m = len(x), self.m
        alphabet = np.linspace(-2, 2, m) if bins is None else np.asarray(bins, dtype=float)
        value = cp.Parameter(m, name="alphabet", value=alphabet)
        cost = cp.Parameter((n, m), name="cost", nonneg=True, value=self._cost(alphabet))
        p = cp.Variable((n, m), name="P", nonneg=True)
        floor = cp.Variable(m, name="floor", nonneg=True)
        ones = np.ones((n, 1))
        families = {
            "normalisation": cp.sum(p, axis=1) == 1,
            "unbiased": p @ value == x,
            "floors": p >= ones @ floor[None, :],
            "privacy": p
            <= math.exp(self.privacy.epsilon if epsilon is None else epsilon) * (ones @ floor[None, :]),
        }
        problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, p))), list(families.values()))
        return solvers.Model(problem, {"P": p, "floor": floor}, families, {"alphabet": value, "cost": cost})

    def _cost(self, alphabet: Array) -> Array:
        return (alphabet[None, :] - self.inputs[:, None]) ** 2 / len(self.inputs)

    def solve(self, solver: str | None = None, *, starts: int = 12, certify: bool = True) -> QuantizerResult:
        """Search the alphabet (unless fixed), solve for P, repair and certify.

        Up to 4 outputs are searched by the simplex method, up to 32 by `BinSearch`; more are spread evenly and their
        range is searched, for with many outputs little else matters. Large programs (over 4,000 entries of P) are solved
        as `OptimalQuantizer` with the input grid as its prior, which is the same problem; HiGHS takes minutes there.

        Parameters
        ----------
        solver : str, optional
            A backend for the linear program, whatever its size.
        starts : int
            Local searches over the alphabet. With 4 outputs the first starts around the two-point optimum of Duchi
            et al. and finds the published local optimum; further ones often find a better one.
        certify : bool
            Repair P into an exact rational law (default; seconds from 128 x 128), or keep floats.

        Raises
        ------
        InfeasibleError
            A fixed alphabet that cannot be unbiased within the budget.
        """
        started = time.perf_counter()
        if self.bins is not None:
            alphabet, count = np.array(self.bins), 1
        elif self.m <= 4:
            alphabet, count = self._search(starts)
            alphabet = self._inside(alphabet, solver)
        else:
            alphabet, count = self._placed(starts) if self.m <= 32 else self._spread()
        certificate = None
        # In floats a hair less, so that the loss rounded up is still within the budget.
        budget = self.privacy.epsilon if certify else self.privacy.epsilon * (1 - 1e-12)
        rows, variance, report = self._table(alphabet, budget, solver)
        if certify:

            def table(epsilon: float) -> Array:
                return rows if epsilon == budget else self._table(alphabet, epsilon, solver)[0]

            certificate = certified_table(alphabet, self.inputs, table, budget)
            mechanism = Quantizer.of_law(certificate.law)
        else:
            mechanism = Quantizer.interpolated(alphabet, self.inputs, rows)
        value = mechanism.expected_loss(self.prior, self.loss)
        seconds = time.perf_counter() - started
        notes = (
            f"variance on the input grid (MVU's own objective): {variance:.9g}",
            f"{count} programs over alphabets, {seconds:.3g} s in all; a local search of a non-convex problem",
        )
        return QuantizerResult(self, mechanism, value, None, report, notes, certificate)

    def _table(self, alphabet: Array, epsilon: float, solver: str | None) -> tuple[Array, float, SolveReport]:
        """The best P (inputs, outputs) for an alphabet, its variance on the input grid, and how it was found."""
        if solver is None and self.m * len(self.inputs) > 4000:
            found = self._as_optimum(alphabet).at(privacy=PureDP(epsilon)).solve(gap=1e-7)
            return found.mechanism.probabilities(self.inputs), found.value, found.solver_report
        solution = solvers.solve(self.model(alphabet, epsilon=epsilon), solver or "highs")
        return solution.primal["P"], solution.value, SolveReport.of(solution)

    def _as_optimum(self, alphabet: Array) -> OptimalQuantizer:
        """The same program: the least squared error over the input grid among unbiased mechanisms."""
        return OptimalQuantizer(alphabet, self.privacy, self.inputs, "squared", input_range=self.input_range)

    @property
    def _half(self) -> tuple[float, float]:
        """Centre and half width of the input range: alphabets mirror about the centre."""
        lower, upper = self.input_range
        return (lower + upper) / 2, (upper - lower) / 2

    @property
    def _reach(self) -> float:
        """Largest distance of an output from the centre; free means half as far again as many outputs ever want."""
        free = 1.5 * self._half[1] / math.tanh(self.privacy.epsilon / 4)
        return free if self.max_abs is None else min(free, self.max_abs)

    def _placed(self, starts: int) -> tuple[Array, int]:
        """Every output searched, with the derivatives of `OptimalQuantizer`; and the number of programs solved."""
        centre, half = self._half
        search = BinSearch(self.m, self._reach, symmetric=True, exhaustive=False, starts=min(starts, 4))
        design = OptimalQuantizer(
            search, self.privacy, self.inputs - centre, "squared", input_range=(-half, half)
        )
        found = design.solve(gap=1e-6)
        return centre + found.bins, int(found.solver_report.iterations or 1)

    def _spread(self) -> tuple[Array, int]:
        """Evenly spread outputs on the best range, found at 64 outputs; and the number of programs solved."""
        centre, half = self._half
        few = replace(self, m=min(self.m, 64), input_bits=min(self.input_bits, 6))

        def value(reach: float) -> float:
            return few._as_optimum(centre + reach * np.linspace(-1, 1, few.m)).solve(gap=1e-5).value

        least = half / math.tanh(self.privacy.epsilon / 2)  # no fewer can be unbiased at the ends
        found = optimize.minimize_scalar(
            value, bounds=(least * (1 + 1e-9), self._reach), method="bounded", options={"xatol": 1e-3 * half}
        )
        return centre + float(found.x) * np.linspace(-1, 1, self.m), int(found.nfev)

    def _inside(self, alphabet: Array, solver: str | None) -> Array:
        """Widen a searched alphabet by the hair that its search left it outside the feasible ones, and a hair more."""
        centre = sum(self.input_range) / 2
        for widening in (0.0, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7):
            wider = centre + (alphabet - centre) * (1 + widening)
            try:
                solvers.solve(
                    self.model(wider, epsilon=self.privacy.epsilon * (1 - 1e-13)), solver or "highs"
                )
            except InfeasibleError:
                continue
            return wider
        return alphabet

    def _search(self, starts: int) -> tuple[Array, int]:
        """Minimise the program's value over alphabets that mirror about the centre of the range."""
        centre, half = self._half
        compiled = CompiledLP(self.model())
        session = HighsSession(compiled, compiled.point())
        count = 0

        def alphabet(logs: Array) -> Array:
            right = np.cumsum(np.exp(logs))
            middle = [] if self.m % 2 == 0 else [0.0]
            return centre + half * np.concatenate([-right[::-1], middle, right])

        def value(logs: Array) -> float:
            nonlocal count
            count += 1
            a = alphabet(logs)
            if np.any(np.abs(logs) > 12) or (self.max_abs is not None and a[-1] - centre > self.max_abs):
                return 1e12
            matrix, rhs, cost = compiled.coefficients(compiled.point({"alphabet": a, "cost": self._cost(a)}))
            session.move(matrix[compiled.varying], rhs, cost)
            # An infeasible alphabet is answered by how short it reaches, to lead the search back.
            return (
                session.value() if session.run() is Status.OPTIMAL else 1e6 * (1 + float(np.exp(-logs).sum()))
            )

        best: Any = None
        for steps in self._starts(starts):
            first = np.log(steps)
            # A small first simplex: the first search stays in the basin of the published optimum.
            simplex = np.vstack([first, first + 0.1 * np.eye(len(first))])
            found = optimize.minimize(
                value, first, method="Nelder-Mead",
                options={"xatol": 1e-7, "fatol": 1e-10, "maxfev": 400 * len(steps), "initial_simplex": simplex},
            )  # fmt: skip
            if best is None or found.fun < best.fun:
                best = found
        if best is None or best.fun >= 1e6:
            raise InfeasibleError("no alphabet was found on which an unbiased mechanism meets the budget")
        return alphabet(best.x), count

    def _starts(self, count: int) -> list[Array]:
        """Gaps between the outputs right of the centre: around the two-point optimum first, then wider and narrower."""
        reach = 1 / math.tanh(self.privacy.epsilon / 2)
        pairs = self.m // 2
        spans = [
            (0.9, 1.1),
            (0.1, 1.2),
            (0.3, 1.2),
            (0.6, 1.2),
            (0.05, 1.6),
            (0.3, 1.7),
            (0.9, 1.4),
            (1.0, 2.0),
        ]
        spans += [(0.05, 2.5), (0.5, 2.5), (0.02, 1.0), (0.8, 3.0)]
        right = [np.linspace(a, b, pairs) if pairs > 1 else np.array([b]) for a, b in spans[: max(1, count)]]
        return [np.diff(np.concatenate([[0.0], reach * r])) for r in right]
