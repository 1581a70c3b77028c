r"""MVU: the minimum-variance unbiased mechanism (Chaudhuri, Guo, Rabbat 2022).

Inputs are dithered to a grid :math:`x_1 < \dots < x_n` (2^b points); a transition matrix P and an output
alphabet a are optimised together:

.. math::

    \min_{P, a}\; \tfrac1n \sum_{k,i} P_{ki} (a_i - x_k)^2 \quad \text{s.t.}\quad
    \sum_i P_{ki} = 1,\; \sum_i a_i P_{ki} = x_k,\; P_{ki} \le e^{\varepsilon} P_{k'i}.

For a fixed alphabet this is a linear program; its value is minimised over (symmetric) alphabets by a simplex search
from several starts, every evaluation a warm re-solve; by `BinSearch` and over evenly spread ones beyond 4 outputs.
Dithering makes the mechanism piecewise affine between the grid points, so its privacy and its error on the continuum
are exact like any other's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy import stats

from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import array, non_negative, positive, settle, whole
from mechdesign.problem.fields import field
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.quantizers.common.design import QuantizerDesign
from mechdesign.quantizers.common.dual_pieces import OutputSpace
from mechdesign.quantizers.common.proofs import proved_law
from mechdesign.quantizers.mechanism.exact_law import certified_law
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import check_bins, check_range
from mechdesign.quantizers.mvu_alphabets import FEW, AlphabetSearch
from mechdesign.quantizers.optimal.any_outputs import least_loss
from mechdesign.quantizers.optimal.floors import LARGEST_EPSILON
from mechdesign.quantizers.parameter_search import searched_among
from mechdesign.solvers.base import Model
from mechdesign.solvers.deadline import Deadline
from mechdesign.solvers.registry import get, solve
from mechdesign.typing import Array

__all__ = ["MVU"]

_TOLD_APART = 16.0
"""Budgets up to which a linear program's tolerance is far below e^-epsilon."""


@dataclass(frozen=True, eq=False)
class _Table:
    """P (inputs, outputs), its variance on the input grid, and how it was found."""

    rows: Array
    variance: float
    report: SolveReport
    duals: pd.DataFrame | None


@serializable("mvu")
@dataclass(frozen=True)
class MVU(QuantizerDesign, ModelledDesign):
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
        Largest distance of a searched output from the centre of the range. None: three times as far as they ever want
        (up to 4 outputs), or as far.

    Examples
    --------
    >>> result = MVU(m=4, privacy=PureDP(1.0), input_range=(-1, 1)).solve(starts=1)
    >>> [round(b, 2) for b in result.mechanism.bins.tolist()]
    [-2.42, -1.69, 1.69, 2.42]
    """

    m: int = field(check=whole, least=2, most=4097)
    privacy: PureDP = field(PureDP)
    input_range: Any = field()
    input_bits: int = field(check=whole, least=1, most=10, default=2)
    prior: Any = None
    loss: Any = "absolute"
    bins: Any = None
    max_abs: float | None = None

    proves_optimality = False

    def __post_init__(self) -> None:
        super().__post_init__()
        lower, upper = check_range(self.input_range)
        prior = stats.uniform(lower, upper - lower) if self.prior is None else self.prior
        settle(
            self, input_range=(lower, upper), prior=Prior.of(prior, (lower, upper)), loss=Loss.of(self.loss)
        )
        if self.bins is not None:
            bins = check_bins(self.bins)
            if len(bins) != self.m:
                raise DesignError.of("bins", self.bins, f"must be m = {self.m} values")
            check_range(self.input_range, bins)
            settle(self, bins=tuple(bins.tolist()))
        if self.max_abs is not None:
            reach, least = positive("max_abs", self.max_abs), self.search.least
            if reach < least * (1 - 1e-12):
                raise DesignError.of(
                    "max_abs",
                    self.max_abs,
                    f"must be at least {least:.9g}, or no alphabet is unbiased at this epsilon",
                )
            settle(self, max_abs=reach)
        self.loss.check_convex(np.array(self._spread)[[0, -1]], lower, upper)

    @property
    def inputs(self) -> Array:
        """The input grid."""
        return self.search.inputs

    @property
    def search(self) -> AlphabetSearch:
        """Where alphabets are looked for."""
        return AlphabetSearch(self.m, self.privacy.epsilon, self.input_range, self.input_bits, self.max_abs)

    @property
    def output_space(self) -> OutputSpace | None:
        """Where outputs are searched; None for those given."""
        if self.bins is not None:
            return None
        return OutputSpace.around(self.input_range, self.search.farthest / self.search.half)

    @property
    def _spread(self) -> Array:
        """The outputs that were given, or evenly spread ones."""
        return self.search.spread(self.search.reach) if self.bins is None else np.array(self.bins)

    def model(self, bins: Any = None, *, epsilon: float | None = None) -> Model:
        """Return the linear program for a fixed alphabet, which is a CVXPY parameter; by default an evenly spread one."""
        x, epsilon = self.inputs, self.privacy.epsilon if epsilon is None else epsilon
        rho = math.exp(min(non_negative("epsilon", epsilon), LARGEST_EPSILON))
        alphabet = self._spread if bins is None else array("bins", bins)
        if len(alphabet) != self.m:
            raise DesignError.of("bins", bins, f"must be m = {self.m} values")
        value = cp.Parameter(self.m, name="alphabet", value=alphabet)
        cost = cp.Parameter((len(x), self.m), name="cost", nonneg=True, value=self._cost(alphabet))
        P = cp.Variable((len(x), self.m), name="P", nonneg=True)
        floor = cp.Variable(self.m, name="floor", nonneg=True)
        floors = np.ones((len(x), 1)) @ floor[None, :]
        families = {
            "normalisation": cp.sum(P, axis=1) == 1,
            "unbiased": P @ value == x,
            "floors": floors <= P,
            "privacy": rho * floors >= P,
        }
        problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, P))), list(families.values()))
        return Model(problem, {"P": P, "floor": floor}, families, {"alphabet": value, "cost": cost})

    def _cost(self, alphabet: Array) -> Array:
        return (alphabet[None, :] - self.inputs[:, None]) ** 2 / len(self.inputs)

    def takes(self, outputs: Any) -> bool:
        return super().takes(outputs) if self.bins is not None else searched_among(self, outputs, None)

    def improve(
        self, clock: Clock, solver: str | None = None, starts: int = 12, **options: Any
    ) -> Iterator[Law | Bound]:
        """Search the alphabet (unless fixed), and solve for P.

        Up to 4 outputs are searched by the simplex method, up to 32 by `BinSearch`; more are spread evenly and their
        range is searched, for with many outputs little else matters. Large programs (over 4,000 entries of P) are solved
        as `OptimalQuantizer` with the input grid as its prior, which is the same problem; HiGHS takes minutes there.

        The lower bound is one of the value, not of the variance on the grid that the search minimises: of every ε-private
        unbiased mechanism with any outputs as far out as the search may go (`output_space`), or with the alphabet given.
        Losses that are functions have none.

        Parameters
        ----------
        clock : Clock
            The search ends after four fifths of its time.
        solver : str, optional
            A backend for the linear program, whatever its size.
        starts : int
            Local searches over the alphabet. With 4 outputs the first starts around the two-point optimum of Duchi
            et al. and finds the published local optimum; further ones often find a better one.
        **options
            The backend's own options.

        Raises
        ------
        InfeasibleError
            A fixed alphabet that cannot be unbiased within the budget.
        """
        if solver is not None:
            get(solver)
        elif options:
            raise DesignError.of("options", sorted(options), "are a named backend's")
        alphabet, count = self._alphabet(whole("starts", starts, 1), clock.part(0.8))
        # Floats are slightly inside, so that the loss rounded up is still within the budget.
        budget = self.privacy.epsilon * (1 if clock.certify else 1 - 1e-12)
        table = self._table(alphabet, budget, solver, clock, options)

        def rows(epsilon: float) -> Array:
            if epsilon == budget:
                return table.rows
            return self._table(alphabet, epsilon, solver, clock, options).rows

        yield from least_loss(self, alphabet, clock)
        mechanism = Quantizer.interpolated(alphabet, self.inputs, table.rows)
        if clock.certify:
            try:
                mechanism = Quantizer.of_law(certified_law(alphabet, self.inputs, rows, budget))
            except InfeasibleError:
                if solver is not None:
                    raise
                # On the edge of what is feasible the program's tolerance lets rows in that no smaller budget mends.
                table = self._as_optimum(alphabet, budget, clock)
                mechanism = Quantizer.of_law(certified_law(alphabet, self.inputs, rows, budget))
        notes = (
            f"variance on the input grid (MVU's own objective): {table.variance:.9g}",
            f"{count} programs over alphabets; a local search of a non-convex problem",
        )
        value = mechanism.expected_loss(self.prior, self.loss)
        law = Law(mechanism, value, report=table.report, notes=notes, duals=table.duals)
        yield proved_law(self, law, mechanism) if clock.certify else law

    def _alphabet(self, starts: int, deadline: Deadline) -> tuple[Array, int]:
        """The alphabet that was given or found, and the number of programs solved for it."""
        if self.bins is not None:
            return np.array(self.bins), 1
        if self.m > FEW:
            return self.search.placed(starts, deadline) if self.m <= 32 else self.search.best_spread(deadline)
        # A hair inside the budget, so that the alphabet is feasible for it and not only next to one that is.
        # At large budgets the solvers' tolerances do not tell outputs that reach the ends of the range from outputs beyond.
        model = self.model(epsilon=min(self.privacy.epsilon, _TOLD_APART) * (1 - 1e-10))
        return self.search.simplex(model, starts, deadline)

    def _table(
        self, alphabet: Array, epsilon: float, solver: str | None, deadline: Deadline, options: dict[str, Any]
    ) -> _Table:
        """The best P for an alphabet."""
        # A linear program with a ratio of 1e7 between its rows is beyond the solvers' tolerances.
        if solver is None and (self.m * len(self.inputs) > 4000 or epsilon > _TOLD_APART):
            return self._as_optimum(alphabet, epsilon, deadline)
        model = self.model(alphabet, epsilon=epsilon)
        solution = solve(model, solver or "highs", deadline=deadline, **options)
        return _Table(solution.primal["P"], solution.value, SolveReport.of(solution), None)

    def _as_optimum(self, alphabet: Array, epsilon: float, deadline: Deadline) -> _Table:
        """The same by floors, which exact arithmetic moves off the edge of what is feasible."""
        optimum = self.search.as_optimum(alphabet, epsilon).solve(gap=1e-7, time_limit=deadline.limit())
        rows = optimum.mechanism.probabilities(self.inputs)
        return _Table(rows, optimum.value, optimum.solver_report, optimum.duals)
