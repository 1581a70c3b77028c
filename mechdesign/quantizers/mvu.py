r"""MVU: the minimum-variance unbiased mechanism (Chaudhuri, Guo, Rabbat 2022).

Inputs are dithered to a grid :math:`x_1 < \dots < x_n` (2^b points); a transition matrix P and an output
alphabet a are optimised together:

.. math::

    \min_{P, a}\; \tfrac1n \sum_{k,i} P_{ki} (a_i - x_k)^2 \quad \text{s.t.}\quad
    \sum_i P_{ki} = 1,\; \sum_i a_i P_{ki} = x_k,\; P_{ki} \le e^{\varepsilon} P_{k'i}.

For a fixed alphabet this is a linear program; its value is minimised over (symmetric) alphabets by the Nelder–Mead method
from several starts, with warm re-solves; beyond 8 outputs by `BinSearch`, and for many over evenly spaced alphabets.
Dithering makes the mechanism piecewise affine between the grid points, so its privacy and its error on the continuum
are exact like any other's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import optimize, sparse, stats

from mechdesign.checks import array, field, instance, integer, positive, refuse, settle
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import serializable
from mechdesign.model.table import Table
from mechdesign.model.table_problem import TableDesign, TableProblem
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.quantizers.bins import BinSearch
from mechdesign.quantizers.dual_pieces import OutputSpace
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.quantizers.newton import loss_bounds
from mechdesign.quantizers.optimal import OptimalQuantizer
from mechdesign.quantizers.proofs import QuantizerDesign, proved_law
from mechdesign.quantizers.table import MOST_OUTPUTS, RESOLVED, RationalTable, check_bins, check_range
from mechdesign.solvers import Deadline, LinearProgram
from mechdesign.typing import Array, Numbers, Status, Weights

FEW = 8
"""Most outputs for the Nelder–Mead method: `BinSearch` takes 3 to 15 times as long for 4 (``results/ablations``), and stops on
kinks 1 to 22% above the Nelder–Mead method's value for 5 to 8 in half of its time (7 designs)."""

# First and last output right of the centre, in units of Duchi et al.'s, from which searches start.
_SPANS = [(0.9, 1.1), (0.1, 1.2), (0.3, 1.2), (0.6, 1.2), (0.05, 1.6), (0.3, 1.7), (0.9, 1.4), (1.0, 2.0)]
_SPANS += [(0.05, 2.5), (0.5, 2.5), (0.02, 1.0), (0.8, 3.0)]


@serializable("mvu")
class MVU(QuantizerDesign, TableDesign):
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
        Prior and loss of the reported value (the mechanism itself always minimises the variance on its grid); uniform
        and absolute by default.
    bins : array_like, optional
        A fixed alphabet; searched when None.
    max_abs : float, optional
        Largest distance of a searched output from the centre of the range. None: `reach`, which exceeds what outputs use, or
        three times that for up to 8 outputs.

    Examples
    --------
    >>> result = MVU(m=4, privacy=PureDP(1.0), input_range=(-1, 1)).solve(starts=1)
    >>> [round(b, 2) for b in result.mechanism.bins.tolist()]
    [-2.42, -1.69, 1.69, 2.42]
    """

    m: int = field(check=integer, least=2, most=MOST_OUTPUTS)
    privacy: PureDP = field(PureDP)
    input_range: Any = field()
    input_bits: int = field(check=integer, least=1, most=10, default=2)
    prior: Any = None
    loss: Any = "absolute"
    bins: Any = None
    max_abs: float | None = field(check=positive, default=None)

    def _post_check(self) -> None:
        lower, upper = check_range(self.input_range)
        prior = stats.uniform(lower, upper - lower) if self.prior is None else self.prior
        settle(
            self, input_range=(lower, upper), prior=Prior.of(prior, (lower, upper)), loss=Loss.of(self.loss)
        )
        if self.bins is not None:
            bins = check_bins("bins", self.bins)
            refuse(len(bins) != self.m, "bins", self.bins, f"must be m = {self.m} values")
            check_range(self.input_range, bins)
            settle(self, bins=tuple(bins.tolist()))
        if self.max_abs is not None and self.max_abs < self._least * (1 - 1e-12):
            remedy = f"must be at least {self._least:.9g}, or no alphabet is unbiased at this epsilon"
            raise DesignError.of("max_abs", self.max_abs, remedy)
        self.loss.check_convex(self._given_or_even[[0, -1]], lower, upper)

    @cached_property
    def inputs(self) -> Array:
        """The input grid."""
        return self._grid(2**self.input_bits)

    def _grid(self, count: int) -> Array:
        lower, upper = self.input_range
        return np.linspace(lower, upper, count, dtype=float)

    @property
    def _centre(self) -> float:
        return float(self.input_range[0] / 2 + self.input_range[1] / 2)

    @property
    def _half(self) -> float:
        """Half the width of the input range."""
        return float(self.input_range[1] / 2 - self.input_range[0] / 2)

    @property
    def _least(self) -> float:
        """Least distance of the outermost outputs from the centre at which a mechanism can be unbiased at the ends."""
        return self._half / math.tanh(self.privacy.epsilon / 2)

    @property
    def _reach(self) -> float:
        """Largest distance of an output from the centre; without `max_abs`, 1.5 times what many outputs use."""
        free = 1.5 * self._half / math.tanh(self.privacy.epsilon / 4)
        return free if self.max_abs is None else min(free, self.max_abs)

    @property
    def _farthest(self) -> float:
        """Largest distance of an output from the centre that a search may reach: farther than outputs ever want, so that all starts are within."""
        if self.max_abs is not None:
            return self.max_abs
        return self._reach if self.m > FEW else 3 * self._reach

    @property
    def output_space(self) -> OutputSpace | None:
        """Space of the searched outputs; None for a given alphabet."""
        return (
            None
            if self.bins is not None
            else OutputSpace.around(self.input_range, self._farthest / self._half)
        )

    def _even(self, m: int, reach: float) -> Array:
        """Return evenly spaced outputs."""
        return self._centre + reach * np.linspace(-1.0, 1.0, m, dtype=float)

    @property
    def _given_or_even(self) -> Array:
        return self._even(self.m, self._reach) if self.bins is None else np.array(self.bins)

    def problem(self, bins: Numbers | None = None) -> TableProblem:
        """Declare the least variance on the input grid for a fixed alphabet: the given one, or an evenly spaced one."""
        alphabet = self._given_or_even if bins is None else array("bins", bins)
        refuse(len(alphabet) != self.m, "bins", bins, f"must be m = {self.m} values")
        P = Table(self.inputs, alphabet)
        variance = P.expected(self._squares(alphabet))
        variance.set_label("variance on the input grid")
        design = self if bins is None else replace(self, bins=tuple(alphabet.tolist()))
        return TableProblem(cp.Minimize(variance), (P.private(self.privacy), P.unbiased()), design=design)

    def problem_of(self, result: Result) -> TableProblem:
        """Return the problem at the alphabet found."""
        return self.problem(result.mechanism.bins)

    def deployed(self, weights: Weights) -> Quantizer:
        """Return the quantizer that dithers its input to the grid."""
        bins = self._given_or_even.tolist()
        return Quantizer.of_law(RationalTable.interpolated(bins, self.inputs.tolist(), weights))

    def allows(self, outputs: object) -> bool:
        if self.bins is not None:
            return super().allows(outputs)
        given = np.asarray(outputs, dtype=float)
        far = np.abs(given - self._centre).max(initial=0.0)
        within = self.max_abs is None or bool(far <= self.max_abs * (1 + 1e-12))
        return (
            within
            and len(given) == self.m
            and instance("bins", self.output_space, OutputSpace).reaches(given)
        )

    def modelled(
        self, clock: Clock, solver: str | None = None, starts: int = 12, **options: Any
    ) -> Iterator[Law | Bound]:
        """Search the alphabet (unless fixed), and solve for P.

        Up to 8 outputs are searched by the Nelder–Mead method, up to 32 by `BinSearch`; more are evenly spaced, and only their
        range is searched, as with many outputs little else matters. A named backend solves `problem`; otherwise it is solved as
        `OptimalQuantizer` with the input grid as its prior: a linear program is less than three times as fast, and takes minutes if large.

        The lower bound is for the value, not for the variance on the grid that the search minimises: for all ε-private
        unbiased mechanisms with any outputs in the range of the search (`output_space`), or with the given alphabet.
        Callable losses have no bound.

        Parameters
        ----------
        clock : Clock
            Time limit; the search ends after four fifths of it.
        solver : str, optional
            A backend for the linear program of the alphabet found.
        starts : int
            Number of local searches over the alphabet. With 4 outputs the first starts around the two-point optimum of Duchi
            et al. and finds the published local optimum; further ones often find a better one.
        **options
            The backend's own options.

        Raises
        ------
        InfeasibleError
            A fixed alphabet that cannot be unbiased within the budget.
        """
        refuse(solver is None and options, "options", sorted(options), "need a solver: name one, solver=...")
        alphabet, count = self._alphabet(integer("starts", starts, 1), clock.part(0.8))
        found = self._at(alphabet, solver, clock, options)
        # Outputs of negligible probability may have moved by rounding: bound for the outputs that are released.
        yield from loss_bounds(self, found.mechanism.bins, clock)
        notes = (
            f"variance on the input grid (MVU's own objective): {found.value:.9g}",
            f"{count} programs over alphabets; a local search of a non-convex problem",
        )
        value = found.mechanism.expected_loss(self.prior, self.loss)
        law = Law(found.mechanism, value, report=found.report, notes=notes, duals=found.duals)
        yield proved_law(self, law, found.mechanism) if clock.certify else law

    def _at(self, alphabet: Array, solver: str | None, clock: Clock, options: dict[str, Any]) -> Law:
        """Return the law of least variance for an alphabet: from `problem`, or from an `OptimalQuantizer` whose exact law is read at the grid's inputs."""
        if solver is not None:
            found = self.problem(alphabet).improve(clock, solver, **options)
            return next(one for one in found if isinstance(one, Law))
        optimum = self._as_optimum(alphabet, self.inputs).solve(gap=1e-7, time_limit=clock.limit())
        law = optimum.mechanism.law
        knots = [Fraction(x) for x in self.inputs.tolist()]
        mechanism = Quantizer.of_law(RationalTable.continuous(law.bins, knots, [law.at(x) for x in knots]))
        return Law(mechanism, optimum.value, report=optimum.solver_report, duals=optimum.duals)

    def _alphabet(self, starts: int, deadline: Deadline) -> tuple[Array, int]:
        """Return the given or found alphabet, and the number of programs solved for it."""
        if self.bins is not None:
            return np.array(self.bins), 1
        if self.m > FEW:
            return self._placed(starts, deadline) if self.m <= 32 else self._best_even(deadline)
        return self._simplex(starts, deadline)

    def _as_optimum(self, bins: object, inputs: Array) -> OptimalQuantizer:
        """Return MVU's program as another design: the least squared error over an input grid among unbiased mechanisms."""
        ends = float(inputs[0]), float(inputs[-1])
        return OptimalQuantizer(bins, self.privacy, inputs, "squared", input_range=ends)

    def _placed(self, starts: int, deadline: Deadline) -> tuple[Array, int]:
        """Search every output, with the derivatives of `OptimalQuantizer`."""
        search = BinSearch(self.m, self._reach, symmetric=True, exhaustive=False, starts=min(starts, 4))
        about_zero = np.linspace(-self._half, self._half, len(self.inputs))
        found = self._as_optimum(search, about_zero).solve(gap=1e-6, time_limit=deadline.limit())
        return self._centre + found.mechanism.bins, max(1, found.solver_report.iterations or 1)

    def _best_even(self, deadline: Deadline) -> tuple[Array, int]:
        """Return evenly spaced outputs on the best range, found for at most 64 outputs and inputs."""
        inputs, found = self._grid(min(len(self.inputs), 64)), [(math.inf, self._reach)]

        def value(reach: float) -> float:
            if deadline.passed:
                return math.inf
            design = self._as_optimum(self._even(min(self.m, 64), reach), inputs)
            found.append((design.solve(gap=1e-5, time_limit=deadline.limit()).value, reach))
            return found[-1][0]

        bounds, options = (self._least * (1 + 1e-9), self._reach), {"xatol": 1e-3 * self._half}
        optimize.minimize_scalar(value, bounds=bounds, method="bounded", options=options)
        return self._even(self.m, min(found)[1]), len(found) - 1

    def _squares(self, alphabet: Array) -> Array:
        """Return the squared errors, shape (inputs, outputs)."""
        return np.asarray((alphabet - self.inputs[:, None]) ** 2)

    def _in_numbers(self, epsilon: float) -> LinearProgram:
        """Return the program of `problem` stated with floors; alphabets change its costs and the rows "unbiased"."""
        alphabet = self._given_or_even
        n, m, program = len(self.inputs), self.m, LinearProgram("MVU program")
        program.add_columns("P", self._squares(alphabet) / n)
        program.add_columns("floor", np.zeros(m))
        places = np.repeat(np.arange(n), m), np.arange(n * m)
        for name, values, sums in (("normalisation", np.ones(m), 1.0), ("unbiased", alphabet, self.inputs)):
            rows = sparse.csr_array((np.tile(values, n), places))
            program.add_rows(name, {"P": rows}, lower=sums, upper=sums)
        each, own = sparse.eye_array(n * m), sparse.vstack([sparse.eye_array(m)] * n)
        program.add_rows("floors", {"P": -each, "floor": own}, upper=0.0)
        program.add_rows("privacy", {"P": each, "floor": -math.exp(epsilon) * own}, upper=0.0)
        return program

    def _simplex(self, starts: int, deadline: Deadline) -> tuple[Array, int]:
        """Minimise the value of the program over the gaps between outputs, by the Nelder–Mead method from several starts.

        Raises
        ------
        SolverError
            No alphabet was found on which the program is feasible, or not in time.
        """
        # Slightly inside the budget, so that the alphabet is feasible for it, not only near a feasible one.
        # At large budgets the solvers' tolerances do not separate outputs at the ends of the range from outputs beyond.
        program = self._in_numbers(min(self.privacy.epsilon, RESOLVED) * (1 - 1e-10))
        n, count = len(self.inputs), 0

        def alphabet(logs: Array) -> Array:
            right = np.cumsum(np.exp(logs))
            middle = [] if self.m % 2 == 0 else [0.0]
            return self._centre + self._half * np.concatenate([-right[::-1], middle, right])

        failed: list[str] = []

        def value(logs: Array) -> float:
            nonlocal count
            count += 1
            a = alphabet(np.minimum(logs, 12.0))
            if np.any(np.abs(logs) > 12) or a[-1] - self._centre > self._farthest:
                return 1e12
            # The solver's tolerance would accept alphabets that fall short of the least by less than that.
            if a[-1] - self._centre >= self._least * (1 + 1e-11):
                program.change_costs("P", self._squares(a) / n)
                program.change_rows("unbiased", np.tile(a, n))
                if (status := program.run()) is Status.OPTIMAL:
                    return program.value / self._half**2
                if status not in (Status.INFEASIBLE, Status.LIMIT):
                    failed.append(program.word)
            # An infeasible alphabet gets a penalty that grows as its reach falls, to lead the search back.
            return 1e6 * (1 + float(np.exp(-logs).sum()))

        def on_time(_: Array) -> None:
            if deadline.passed:
                raise StopIteration

        def descend(first: Array, width: float, **stop: float) -> optimize.OptimizeResult:
            corners = np.vstack([first, first + width * np.eye(len(first))])
            options: Any = {"maxfev": 400 * len(first), "initial_simplex": corners, **stop}
            return optimize.minimize(value, first, method="Nelder-Mead", callback=on_time, options=options)

        rough: list[optimize.OptimizeResult] = []
        for steps in self._starts(starts):
            # With a small first simplex the first search stays in the basin of the published optimum.
            rough.append(descend(np.log(steps), 0.1, xatol=1e-2, fatol=math.inf))
            if deadline.passed:
                break
        best = descend(min(rough, key=lambda found: float(found.fun)).x, 0.1, xatol=1e-7, fatol=1e-10)
        if best.fun < 1e6:
            return alphabet(best.x), count
        if deadline.passed:
            raise SolverError("no alphabet was found in time", solver="Nelder-Mead", status="limit")
        if failed:
            raise SolverError("no alphabet was found: programs failed", solver="highs", status=failed[-1])
        words = "no alphabet was found on which an unbiased mechanism meets the budget"
        raise SolverError(words, solver="Nelder-Mead", status="none")

    def _starts(self, count: int) -> list[Array]:
        """Return starting gaps between the outputs right of the centre: around the two-point optimum first, then wider and narrower."""
        reach = 1 / math.tanh(self.privacy.epsilon / 2)
        pairs = self.m // 2
        right = [np.linspace(a, b, pairs) if pairs > 1 else np.array([b]) for a, b in _SPANS[:count]]
        return [np.diff(np.concatenate([[0.0], reach * r])) for r in right]
