r"""Quantizers under metric and approximate local privacy.

**On the continuum**, :math:`d = |x - x'|`: :math:`p(x, i) \le e^{\varepsilon |x - x'|} p(x', i)` for all inputs.
For rows interpolated linearly between knots this is *equivalent* to

.. math:: |P_{k+1,i} - P_{k,i}| \le \varepsilon (x_{k+1} - x_k) \min(P_{k,i}, P_{k+1,i}),

as an affine function is steepest, relative to itself, where it is smallest. The linear program over the rows gives
a mechanism that is private everywhere; `program` gives a bound for all mechanisms.

**On a fixed input grid**, any metric, for all pairs of grid points; and (ε, δ)-privacy, with slacks
:math:`S_{kl,i} \ge P_{k,i} - e^\varepsilon P_{l,i}`, :math:`\sum_i S_{kl,i} \le \delta`. Inputs off the grid are first
rounded to a neighbouring grid point at random, keeping their mean; the objective is the exact loss of that. On a
continuum :math:`|x - x'|^2` would force a constant mechanism (n steps of h/n cost :math:`n (h/n)^2 \to 0`), so it needs
a grid. Applied to each coordinate of a vector, it gives :math:`\varepsilon \|x - x'\|_2^2` (Chaudhuri et al. 2022,
Lemma 6): see `MetricQuantizerResult.vector_epsilon`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import increasing, interval, one_of, settle, whole
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import check_bins, check_range, mirrored_bins
from mechdesign.quantizers.metric.certificate import MetricCertificate
from mechdesign.quantizers.metric.known import Found, outermost_private
from mechdesign.quantizers.metric.notion import PairwisePrivacy
from mechdesign.quantizers.metric.program import row_model
from mechdesign.quantizers.metric.result import MetricQuantizerResult
from mechdesign.quantizers.metric.stages import Stages
from mechdesign.solvers import Model
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["MetricQuantizer"]


@serializable("metric-quantizer")
@dataclass(frozen=True)
class MetricQuantizer(OldDesign):
    r"""The best unbiased quantizer under metric, or approximate, local privacy.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values covering the input range.
    privacy : MetricDP, ApproximateDP or PureDP
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
    loss : "absolute", "squared", dict of the two, or convex callable
    objective : {"mean", "worst"}
        The worst case is over all inputs: of a grid's program over the knots, and over what inputs between them turn out to lose
        more, rounded to the grid at random.
    inputs : array_like, shape (K + 1,), optional
        A fixed input grid: required except for ``MetricDP(ε, "absolute")``, which is solved on the continuum without.
    input_range : (float, float), optional
        Defaults to the grid's, else to the prior's support.

    Examples
    --------
    >>> from scipy import stats
    >>> design = MetricQuantizer(bins=[-3, -0.5, 0.5, 3], privacy=MetricDP(2.0), prior=stats.uniform(-1, 2))
    >>> result = design.solve(gap=0.02)
    >>> result.epsilon <= 2.0, result.gap < 0.02
    (True, True)
    """

    bins: Any
    privacy: MetricDP | ApproximateDP | PureDP
    prior: Any
    loss: Any = "absolute"
    objective: str = "mean"
    inputs: Any = None
    input_range: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, (MetricDP, ApproximateDP, PureDP)):
            allowed = "must be md.MetricDP, md.ApproximateDP or md.PureDP"
            raise DesignError.of("privacy", self.privacy, allowed)
        one_of("objective", self.objective, ("mean", "worst"))
        bins = mirrored_bins(check_bins(self.bins))
        prior = Prior.of(self.prior)
        given = None if self.input_range is None else interval("input_range", self.input_range)
        if self.inputs is not None:
            grid = increasing("inputs", self.inputs)
            ends = float(grid[0]), float(grid[-1])
            if given not in (None, ends):
                raise DesignError.of(
                    "input_range", given, f"must equal the grid's ends {ends} or be left out"
                )
            given = ends
            settle(self, inputs=tuple(grid.tolist()))
        elif not (isinstance(self.privacy, MetricDP) and self.privacy.metric == "absolute"):
            metric = isinstance(self.privacy, MetricDP)
            why = "this notion is solved on a fixed input grid"
            if metric:
                why = "on a continuum the squared metric forces a constant mechanism"
            raise DesignError.of("inputs", None, f"must be a grid of inputs: {why}")
        reach = check_range(given or prior.support, bins)
        settle(self, bins=tuple(bins.tolist()), input_range=reach, prior=Prior.of(prior, reach))
        settle(self, loss=Loss.of(self.loss))
        self.loss.check_convex(bins, *reach)

    @property
    def continuum(self) -> bool:
        """Whether privacy is asked for between all inputs of the range, not only those of a grid."""
        return self.inputs is None

    @property
    def notion(self) -> PairwisePrivacy:
        """Which rows are compared, and by how much they may differ."""
        return PairwisePrivacy(self.privacy, self.continuum)

    def knots(self, count: int = 129) -> Array:
        """The grid, or `count` equally spaced knots."""
        if self.inputs is not None:
            return np.array(self.inputs)
        lower, upper = self.input_range
        return np.linspace(lower, upper, whole("knots", count, 2))

    # -- model ----------------------------------------------------------------------------------------

    def model(self, *, knots: int = 129, **options: Any) -> Model:
        """Declare the linear program over the rows in CVXPY.

        Families "privacy", "normalisation", "unbiased", "slack" (approximate privacy), "worst case"; the parameters
        "ratio" and "delta" are the budget.
        """
        refuse_unknown(options, "model() takes knots")
        return row_model(*self._question(self.knots(knots)))

    def _question(self, knots: Array) -> tuple[Array, Array, PairwisePrivacy, Prior, Loss, str]:
        return np.array(self.bins), knots, self.notion, self.prior, self.loss, self.objective

    # -- solve ----------------------------------------------------------------------------------------

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        knots: int | None = None,
        **options: Any,
    ) -> MetricQuantizerResult:
        """Solve, repair to exact privacy, and bound.

        Parameters
        ----------
        solver : str, optional
            A backend of `mechdesign.solvers`.
        gap : float, optional
            On the continuum: knots are doubled, from 65 up to 1,025, until the relative gap is at most this (1e-2). On a
            grid with a time limit: a coarser program that proves this gap will do.
        certify : bool
            Return a rational mechanism proved private and unbiased (default), or the repaired floats.
        time_limit : float, optional
            Seconds; the best by then, with the bound that is proved: of coarser programs, which come first (`stages`), or
            else of the two outermost outputs alone.
        knots : int, optional
            A fixed number of knots instead.
        **options
            The backend's own.

        Raises
        ------
        InfeasibleError
            No unbiased mechanism with these outputs is that private.
        """
        one_of("certify", certify, (True, False))
        wanted, deadline = wanted_gap(gap, 1e-2), Deadline(time_limit)
        given = None if knots is None else whole("knots", knots, 2)
        if not outermost_private(self.notion, self.bins, self.knots(2)):
            raise self._infeasible()
        stages = Stages(self, solver, deadline, options)
        best, complete = stages.best(given, wanted, stop=gap is not None)
        return self._result(best, certify).ended(
            wanted, limited=deadline.finite and not complete, seconds=deadline.elapsed
        )

    def _result(self, found: Found, certify: bool) -> MetricQuantizerResult:
        mechanism = Quantizer.of_law(found.law)
        bound = None if found.bound is None else min(found.bound, found.value)
        stated: Any = MetricCertificate.of(self, found.law, found.value, bound)
        if bound is not None and bound >= 0 and self.loss.polynomial:  # nor is what is stated below 0
            stated = replace(stated, lower_bound=max(stated.lower_bound, 0.0))
        note = "privacy holds between grid inputs; inputs off the grid are rounded to it at random first"
        return MetricQuantizerResult(
            design=self,
            mechanism=mechanism if certify else replace(mechanism, law=None),
            value=found.value,
            lower_bound=bound,
            solver_report=SolveReport.of(found.answer),
            notes=found.notes + (() if self.continuum else (note,)),
            certificate=replace(
                stated, notion=self.notion, multipliers=found.multipliers, places=found.places
            )
            if certify
            else None,
        )

    def _infeasible(self) -> InfeasibleError:
        smallest = self.notion.smallest_epsilon(self.knots(), self.bins[0], self.bins[-1])
        known = f" (the smallest feasible epsilon is {smallest:.9g})" if math.isfinite(smallest) else ""
        remedy = "widen the outputs or raise epsilon"
        (low, high), bins = self.input_range, self.bins
        if not known and (low <= bins[0] or high >= bins[-1]):  # an output that comes for sure at one input
            remedy = "no epsilon suffices where inputs reach the outermost outputs: widen the outputs"
        return InfeasibleError(
            f"no unbiased mechanism with outputs in [{self.bins[0]:g}, {self.bins[-1]:g}] has "
            f"{type(self.privacy).__name__} at epsilon = {self.privacy.epsilon:g}{known}; {remedy}",
            smallest_epsilon=smallest,
        )
