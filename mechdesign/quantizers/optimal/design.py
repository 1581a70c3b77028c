r"""The provably optimal quantizer: least loss of all ε-LDP unbiased mechanisms with given outputs.

.. math::
   \min_p \int \sum_i p(x, i)\, \ell(B_i - x)\, dF(x) \quad\text{s.t.}\quad
   p(x, i) \le e^\varepsilon p(x', i), \qquad \sum_i p(x, i) = 1, \qquad \sum_i B_i p(x, i) = x
   \qquad \forall x, x' \in [lo, hi], \forall i.

Infinitely many variables, yet solved on the continuum: for given floors :math:`a_i = \min_x p(x, i)` the rest is
a closed form (`floors`), the floors are found by an interior-point or a cutting-plane method (`newton`,
`cutting_planes`), and every answer comes with a lower bound over all mechanisms and an exact rational law.
`model` declares the same program on a grid of knots; the methods solve it for all inputs at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import non_negative, one_of, positive, settle, whole
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import check_bins, check_range, mirrored_bins
from mechdesign.quantizers.optimal.bin_search import Searched, any_outputs_bound, search_bins
from mechdesign.quantizers.optimal.exact import widened
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.floors import smallest_epsilon, solved_epsilon
from mechdesign.quantizers.optimal.lower_bound import without_privacy
from mechdesign.quantizers.optimal.methods import METHODS, check_feasible
from mechdesign.quantizers.optimal.mse_cap import best_floors
from mechdesign.quantizers.optimal.outputs import Alphabet, BinSearch
from mechdesign.quantizers.optimal.result import (
    OptimalQuantizerResult,
    deploy,
    float_mechanism,
    searched_result,
)
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

if TYPE_CHECKING:
    from mechdesign.solvers.base import Model

__all__ = ["OptimalQuantizer"]


@serializable("optimal-quantizer")
@dataclass(frozen=True)
class OptimalQuantizer(OldDesign):
    r"""The best ε-LDP unbiased quantizer there is, with a proof.

    Parameters
    ----------
    bins : array_like of shape (m,), BinSearch or Alphabet
        Output values covering the input range; or how to find them.
    privacy : PureDP
        The local-DP budget. (Metric and approximate privacy: `MetricQuantizer`.)
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
        Law of the input.
    loss : "absolute", "squared", dict of the two, or convex callable
        Cost of the error :math:`B_i - x`.
    objective : {"mean", "worst"}
        Expected loss under the prior, or the largest over all inputs.
    max_mse : float, optional
        Cap on the expected squared error under the prior (mean objective).
    max_bias : float
        Allowed :math:`|E M(x) - x|`, the same for every x; 0 is unbiased.
    input_range : (float, float), optional
        Defaults to the prior's support.

    Raises
    ------
    DesignError
        Bad bins, prior, loss (not convex), objective or budget, each named.

    Examples
    --------
    >>> from scipy import stats
    >>> design = OptimalQuantizer(bins=[-3.0, -0.5, 0.5, 3.0], privacy=PureDP(1.0), prior=stats.uniform(-1, 2))
    >>> result = design.solve(gap=1e-6)
    >>> round(result.value, 5), result.gap <= 1e-6, result.certify().verify()
    (1.70054, True, True)
    """

    bins: Any
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    objective: str = "mean"
    max_mse: float | None = None
    max_bias: float = 0.0
    input_range: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, PureDP):
            raise DesignError.of(
                "privacy",
                self.privacy,
                "must be md.PureDP(epsilon); md.MetricQuantizer takes metric and approximate privacy",
            )
        one_of("objective", self.objective, ("mean", "worst"))
        settle(self, max_bias=non_negative("max_bias", self.max_bias), loss=Loss.of(self.loss))
        if self.max_mse is not None:
            settle(self, max_mse=positive("max_mse", self.max_mse))
            if self.objective == "worst":
                raise DesignError.of("max_mse", self.max_mse, 'goes with objective="mean" only')
        prior = Prior.of(self.prior)
        given = prior.support if self.input_range is None else self.input_range
        if not isinstance(self.bins, (BinSearch, Alphabet)):
            settle(self, bins=tuple(mirrored_bins(check_bins(self.bins)).tolist()))
        ends = self._outputs[[0, -1]]
        check_bins(ends)
        lower, upper = check_range(given, ends)
        settle(self, prior=Prior.of(prior, (lower, upper)), input_range=(lower, upper))
        self.loss.check_convex(ends, lower, upper)

    @cached_property
    def _outputs(self) -> Array:
        """The outputs; of a search, evenly spread ones."""
        if isinstance(self.bins, Alphabet):
            return self.bins.values
        if isinstance(self.bins, BinSearch):
            return np.linspace(-self.bins.max_abs, self.bins.max_abs, self.bins.m)
        return np.array(self.bins)

    @cached_property
    def frame(self) -> tuple[float, float]:
        """Centre and unit, a power of two, in which the methods measure inputs and outputs."""
        lower, upper = self.input_range
        centre = 0.0 if isinstance(self.bins, (BinSearch, Alphabet)) else lower / 2 + upper / 2
        return centre, 2.0 ** math.floor(math.log2(upper / 2 - lower / 2))

    @cached_property
    def solved_epsilon(self) -> float:
        """The ε at which the design is solved: the budget's, or the largest that doubles resolve."""
        lower, upper = self.input_range
        reach = lower + self.max_bias, upper - self.max_bias
        return solved_epsilon(self.privacy.epsilon, smallest_epsilon(self._outputs, *reach))

    @cached_property
    def problem(self) -> FloorProblem:
        """The design in terms of floors, centred and scaled: what the methods work on."""
        centre, unit = self.frame
        lower, upper = ((v - centre) / unit for v in self.input_range)
        prior, loss = self.prior.standardised(centre, unit), self.loss.in_units(unit)
        return FloorProblem(
            mirrored_bins((self._outputs - centre) / unit),
            math.exp(self.solved_epsilon),
            lower,
            upper,
            prior,
            loss,
            self.max_bias / unit,
            self.objective,
            None if self.max_mse is None else self.max_mse / unit**2,
        )

    def model(self, knots: Any = 33, **options: Any) -> Model:
        """Declare the linear program on a grid of knots in CVXPY; of a search, for evenly spread outputs.

        Parameters
        ----------
        knots : int or array_like
            Number of equally spaced knots (bins inside the range are added), or the knots.
        """
        from mechdesign.quantizers.optimal.model import knot_model

        refuse_unknown(options, "model() takes knots")
        lower, upper = self.input_range
        bins = self._outputs
        if np.ndim(knots) == 0:
            inside = bins[(bins > lower) & (bins < upper)]
            count = whole("knots", knots, 2)
            points = np.unique(np.concatenate([np.linspace(lower, upper, count), inside]))
        else:
            points = check_bins(knots)
        return knot_model(
            bins,
            self.privacy.epsilon,
            self.prior,
            self.loss,
            points,
            objective=self.objective,
            max_mse=self.max_mse,
            max_bias=self.max_bias,
        )

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        knots: Any = 33,
        **options: Any,
    ) -> OptimalQuantizerResult:
        """Find the optimum to a proved relative gap.

        Parameters
        ----------
        solver : str, optional
            ``"newton"``, ``"cutting-planes"`` (both bound the continuum), ``"exchange"`` (worst case), or a backend of
            `mechdesign.solvers`, which solves `model` on a grid of knots and hands its floors to the cutting planes. None chooses.
        gap : float, optional
            Relative gap between value and lower bound to stop at, 1e-6 by default. What cannot be reached in double
            precision is answered with what was proved.
        certify : bool
            Make the law exact.
        time_limit : float, optional
            Seconds. What was found by then is returned with its proved gap.
        knots : int or array_like
            For a backend: the knots of `model`.
        **options
            The backend's own options.

        Raises
        ------
        InfeasibleError
            The outputs cannot be unbiased at this ε (with the smallest feasible one), or `max_mse` is below the
            least possible.
        """
        one_of("certify", certify, (True, False))
        wanted, deadline = wanted_gap(gap, 1e-6), Deadline(time_limit)
        design, moved = self._widened()
        check_feasible(design.problem, self.privacy.epsilon, self.frame)
        searched = design._searched(wanted, deadline)
        fixed = design if isinstance(self.bins, tuple) else self.at(bins=searched.bins)
        method, start, fallbacks = fixed._start(solver, knots, deadline, options)
        solution = best_floors(fixed.problem, 0.5 * wanted, method, start, deadline).merged(searched.solution)
        if self.privacy.epsilon > fixed.solved_epsilon:
            solution = without_privacy(fixed.problem, solution, self.privacy.epsilon)
        result = deploy(fixed, solution, wanted, certify, deadline, solver, fallbacks)
        everywhere = any_outputs_bound(fixed.problem, solution.lower_bound)
        return searched_result(result, self, searched, everywhere, moved)

    def roughly(self, gap: float | None = None) -> Quantizer:
        """Return floats near the optimum, unproved, for a search to start from.

        Raises
        ------
        InfeasibleError
            The outputs cannot be unbiased at this ε.
        """
        check_feasible(self.problem, self.privacy.epsilon, self.frame)
        return float_mechanism(self, best_floors(self.problem, wanted_gap(gap, 1e-3)).floors)

    def _widened(self) -> tuple[OptimalQuantizer, tuple[str, ...]]:
        """The design with outputs that are feasible in exact arithmetic where rounding alone put them outside."""
        if not isinstance(self.bins, tuple):
            return self, ()
        bins, units = widened(np.array(self.bins), self.input_range, self.solved_epsilon, self.max_bias)
        if not units:
            return self, ()
        words = f"the outermost outputs were moved out by {units} unit(s) in the last place: as doubles they need more"
        return self.at(bins=bins), (f"{words} than epsilon = {self.solved_epsilon!r}",)

    def _searched(self, gap: float, deadline: Deadline) -> Searched:
        """The outputs: those given, the alphabet's, or the best that a search finds."""
        if not isinstance(self.bins, BinSearch):
            return Searched(self._outputs)
        return search_bins(self.problem, self.bins, gap, deadline).in_units(self.frame[1])

    def _start(
        self, solver: str | None, knots: Any, deadline: Deadline, options: dict[str, Any]
    ) -> tuple[str | None, Array | None, tuple[str, ...]]:
        """The method to use, the floors that a backend found on a grid of knots, and which backends failed."""
        if solver is None or (isinstance(solver, str) and solver in METHODS):
            refuse_unknown(options, f"the methods {METHODS} take no options")
            return solver, None, ()
        from mechdesign import solvers

        answer = solvers.solve(self.model(knots), solver, deadline=deadline, **options)
        return (
            None,
            np.asarray(answer.primal["a"]),
            (f"{answer.solver} on {len(answer.primal['P'])} knots", *answer.fallbacks),
        )

    def at(self, **changes: Any) -> OptimalQuantizer:
        """Return the design with some fields changed."""
        return replace(self, **changes)
