r"""Quantizers under metric and approximate local privacy.

**On the continuum**, :math:`d = |x - x'|`: :math:`p(x, i) \le e^{\varepsilon |x - x'|} p(x', i)` for all inputs.
For rows interpolated linearly between knots this is *equivalent* to

.. math:: |P_{k+1,i} - P_{k,i}| \le \varepsilon (x_{k+1} - x_k) \min(P_{k,i}, P_{k+1,i}),

as an affine function is steepest, relative to itself, where it is smallest. The linear program over the rows gives
a mechanism that is private everywhere; `lower_bound` gives a bound for all mechanisms.

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

import cvxpy as cp
import numpy as np

from mechdesign import solvers
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import increasing, interval, one_of, settle, whole
from mechdesign.problem.design import Design, refuse_unknown, wanted_gap
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP
from mechdesign.quantizers.common.rational_rows import rational_table, tightened
from mechdesign.quantizers.mechanism.exact_law import RationalTable
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import check_bins, check_range, mirrored_bins
from mechdesign.quantizers.metric.lower_bound import continuum_bound
from mechdesign.quantizers.metric.notion import PairwisePrivacy
from mechdesign.quantizers.metric.result import MetricCertificate, MetricQuantizerResult
from mechdesign.quantizers.optimal.model import hat_costs
from mechdesign.solvers import Model, Solution, proved_bound
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["MetricQuantizer"]

_COUNTS = (65, 129, 257, 513, 1025)
_SHRINK = (
    1e-9  # how much smaller ε is in the program, for what the repair of its rows moves; neighbours need more
)
_OUTWARD = 1e-14  # covers the rounding of the program's ratios


@serializable("metric-quantizer")
@dataclass(frozen=True)
class MetricQuantizer(Design):
    r"""The best unbiased quantizer under metric, or approximate, local privacy.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values covering the input range.
    privacy : MetricDP, ApproximateDP or PureDP
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
    loss : "absolute", "squared", dict of the two, or convex callable
    objective : {"mean", "worst"}
        The worst case is over the knots in the program, and exact over all inputs in the result.
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
        bins, x = np.array(self.bins), self.knots(knots)
        K, m = len(x), len(bins)
        k, l, ratios = self.notion.ratios(x)
        P = cp.Variable((K, m), nonneg=True, name="P")
        variables = {"P": P}
        families: dict[str, Any] = {"normalisation": cp.sum(P, axis=1) == 1, "unbiased": P @ bins == x}
        if isinstance(self.privacy, PureDP):
            a = variables["a"] = cp.Variable((1, m), nonneg=True, name="a")
            ratio = cp.Parameter(name="ratio", value=ratios[0])
            families["privacy"] = [np.ones((K, 1)) @ a <= P, np.ones((K, 1)) @ (ratio * a) >= P]
        else:
            ratio = cp.Parameter((len(k), 1), name="ratio", value=ratios[:, None])
            excess = P[k] - cp.multiply(ratio @ np.ones((1, m)), P[l])
            families["privacy"] = excess <= 0
        parameters = {"ratio": ratio}
        if self.notion.delta:
            S = variables["S"] = cp.Variable((len(k), m), nonneg=True, name="S")
            delta = parameters["delta"] = cp.Parameter(name="delta", value=self.notion.delta)
            families |= {"privacy": excess <= S, "slack": cp.sum(S, axis=1) <= delta}
        if self.objective == "worst":
            z = variables["worst"] = cp.Variable(name="worst")
            families["worst case"] = z >= cp.sum(cp.multiply(self.loss(bins - x[:, None]), P), axis=1)
            target: Any = z
        else:
            costs, constant = hat_costs(bins, x, self.prior, self.loss)
            target = cp.sum(cp.multiply(costs, P)) + constant
        constraints = [c for f in families.values() for c in (f if isinstance(f, list) else [f])]
        return Model(cp.Problem(cp.Minimize(target), constraints), variables, families, parameters)

    def _set_budget(self, model: Model, knots: Array, epsilon: float, outward: float = 0.0) -> None:
        """Put a smaller ε into the model, or the design's own rounded outward."""
        shrink = 1 - epsilon / self.privacy.epsilon
        ratio, target = self.notion.ratios(knots, shrink)[2] * (1 + outward), model.parameters["ratio"]
        target.value = ratio[:, None] if target.ndim else ratio[0]
        if "delta" in model.parameters:
            model.parameters["delta"].value = self.notion.delta * (1 - shrink) * (1 + outward)

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
            On the continuum: knots are doubled, from 65 up to 1,025, until the relative gap is at most this (1e-2).
        certify : bool
            Return a rational mechanism proved private and unbiased (default), or the repaired floats.
        time_limit : float, optional
            Seconds; the result with the most knots by then.
        knots : int, optional
            A fixed number of knots instead.
        **options
            The backend's own.

        Raises
        ------
        InfeasibleError
            No unbiased mechanism with these outputs is that private.
        """
        wanted, deadline = wanted_gap(gap, 1e-2), Deadline(time_limit)
        counts = (
            [whole("knots", knots, 2)]
            if knots is not None
            else _COUNTS
            if self.continuum
            else [len(self.knots())]
        )
        best: MetricQuantizerResult | None = None
        for count in counts:
            try:
                best = self._at(count, solver, certify, deadline, options)
            except SolverError:
                if best is None or not deadline.passed:
                    raise
                break
            if best.gap is None or best.gap <= wanted or deadline.passed:
                break
        assert best is not None
        return best.ended(wanted, limited=deadline.passed, seconds=deadline.elapsed)

    def _at(
        self, count: int, solver: str | None, certify: bool, deadline: Deadline, options: dict[str, Any]
    ) -> MetricQuantizerResult:
        """The result with a given number of knots."""
        knots, model = self.knots(count), self.model(knots=count)
        answers: list[Solution] = []

        def solved(epsilon: float) -> RationalTable:
            self._set_budget(model, knots, epsilon)
            try:
                answers.append(solvers.solve(model, solver, deadline=deadline, **options))
            except InfeasibleError:
                raise self._infeasible() from None
            rows = np.maximum(np.asarray(answers[-1].primal["P"]), 0.0)
            if not self.notion.delta:
                rows = self.notion.raised(knots, rows, 0.01 * (1 - epsilon / self.privacy.epsilon))
            return rational_table(self.bins, knots, rows)

        def excess(law: RationalTable) -> float:
            return 0.0 if MetricCertificate(law, self.notion).verify() else math.inf

        shrink = 100 * _SHRINK if self.continuum else _SHRINK
        law = tightened(solved, excess, self.privacy.epsilon, shrink=shrink, attempts=6)
        mechanism = Quantizer.of_law(law)
        if self.objective == "mean":
            value = mechanism.expected_loss(self.prior, self.loss)
        else:
            value = mechanism.worst_case_loss(self.loss)[0]
        self._set_budget(model, knots, self.privacy.epsilon, _OUTWARD)
        bound = self._bound(model, answers[-1], count, deadline)
        note = "privacy holds between grid inputs; inputs off the grid are rounded to it at random first"
        return MetricQuantizerResult(
            design=self,
            mechanism=mechanism if certify else replace(mechanism, law=None),
            value=float(value),
            lower_bound=None if bound is None else float(min(bound, value)),
            solver_report=SolveReport.of(answers[-1]),
            notes=() if self.continuum else (note,),
            certificate=MetricCertificate(law, self.notion) if certify else None,
        )

    def _bound(self, model: Model, answer: Solution, count: int, deadline: Deadline) -> float | None:
        """A lower bound for every mechanism, interpolated or not; None where there is none, or none by then."""
        try:
            if not self.continuum:
                return proved_bound(model, answer, box=self._box(model))
            if self.objective == "worst":
                # Finitely many inputs of the range: a relaxation.
                grid = replace(self, inputs=self.knots(min(count, 257)))
                relaxed = grid.model()
                grid._set_budget(relaxed, grid.knots(), self.privacy.epsilon, _OUTWARD)
                return proved_bound(
                    relaxed, solvers.solve(relaxed, deadline=deadline), box=self._box(relaxed)
                )
            if not self.loss.polynomial:
                return None
            cells, epsilon, bins = min(count - 1, 256), self.privacy.epsilon, np.array(self.bins)
            return continuum_bound(bins, epsilon, self.prior, self.loss, self.input_range, cells, deadline)
        except SolverError:
            if deadline.passed:
                return None
            raise

    def _box(self, model: Model) -> dict[str, tuple[float, float]]:
        """What holds at an optimum: probabilities are in [0, 1], the worst case is between 0 and the worst of all."""
        lower, upper = self.input_range
        worst = max(float(self.loss(np.array(self.bins) - x).max()) for x in (lower, upper))
        return {name: (0.0, worst if name == "worst" else 1.0) for name in model.variables}

    def _infeasible(self) -> InfeasibleError:
        smallest = self.notion.smallest_epsilon(self.knots(), self.bins[0], self.bins[-1])
        known = "" if smallest is None else f" (the smallest feasible epsilon is {smallest:.9g})"
        return InfeasibleError(
            f"no unbiased mechanism with outputs in [{self.bins[0]:g}, {self.bins[-1]:g}] has "
            f"{type(self.privacy).__name__} at epsilon = {self.privacy.epsilon:g}{known}; widen the outputs or "
            "raise epsilon",
            smallest_epsilon=smallest,
        )
