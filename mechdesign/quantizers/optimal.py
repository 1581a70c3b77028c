r"""The quantizer of least loss among all ε-LDP mechanisms, with given or with any outputs.

.. math::
   \min_p \int \sum_i p(x, i)\, \ell(B_i - x)\, dF(x) \quad\text{s.t.}\quad
   p(x, i) \le e^\varepsilon p(x', i), \qquad \sum_i p(x, i) = 1, \qquad \sum_i B_i p(x, i) = x
   \qquad \forall x, x' \in [lo, hi], \forall i.

The program has infinitely many variables, yet is solved on the continuum: for given floors :math:`a_i = \min_x p(x, i)` the rest is
a closed form (`floors`), an interior-point or a cutting-plane method finds the floors (`newton`),
and every solution comes with a lower bound over all mechanisms and an exact rational law.
The reference is the same program on a grid of knots, declared as a table
(`OptimalQuantizer.problem`): the best mechanism that interpolates rows there.

**Any outputs.** The lower bound of a search is for mechanisms of any family with outputs anywhere in its range.

`OptimalQuantizer` on a grid of the range gives multipliers of a bound for the grid's outputs, and `DualPieces` derives the bound
for outputs in between: somewhat lower, as reduced costs dip there. A level :math:`\kappa \ge 0` by which every line is lowered makes up
for most of that, so that the bound is

.. math:: -\kappa + \text{constant} + \min_k \Bigl( \int h(c_k(x) + \kappa)\, dF - (C^\top \nu)_k \Bigr) \{1/\rho \text{ or } 1\},

concave in κ. The grid is chosen by the expected error: the dip is about (h/error)² of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.checks import array, field, integer, non_negative, one_of, positive, refuse, settle
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.proofs import MechanismClass, every, menu
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.model.problem import named
from mechdesign.model.program import Program
from mechdesign.model.table import Table
from mechdesign.model.table_problem import TableProblem
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.quantizers.bins import (
    Alphabet,
    BinSearch,
    Searched,
    any_outputs_bound,
    search_bins,
)
from mechdesign.quantizers.exact_law import exact_law, widened
from mechdesign.quantizers.floors import (
    FloorProblem,
    FloorSolution,
)
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.quantizers.moments import interpolated_costs
from mechdesign.quantizers.newton import best_floors, check_feasible
from mechdesign.quantizers.proofs import EXACT, QuantizerDesign, private_claims, proved_bound, proved_law
from mechdesign.quantizers.table import (
    check_bins,
    check_outputs,
    check_range,
    smallest_epsilon,
    solved_epsilon,
    units_of,
)
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Numbers

_ANY_OUTPUTS = "any outputs (lower bound)"


@serializable("optimal-quantizer")
class OptimalQuantizer(QuantizerDesign, ModelledDesign):
    r"""The best of every ε-LDP unbiased quantizer with given outputs, with a proof.

    If a `BinSearch` finds the outputs, the lower bound is for mechanisms with these outputs; other outputs may do better.

    Parameters
    ----------
    bins : array_like of shape (m,), BinSearch or Alphabet
        Output values covering the input range, at most 1,025; or a way to find them.
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
        The support of a law by default; with samples as prior it must be stated.

    Raises
    ------
    DesignError
        Bad bins, prior, loss (not convex), objective or budget, each named.

    Examples
    --------
    >>> from scipy import stats
    >>> design = OptimalQuantizer(bins=[-3.0, -0.5, 0.5, 3.0], privacy=PureDP(1.0), prior=stats.uniform(-1, 2))
    >>> result = design.solve(gap=1e-6)
    >>> round(result.value, 5), result.gap <= 1e-6, result.certificate.verify()
    (1.70054, True, True)
    """

    bins: Any
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    objective: str = field(check=one_of, allowed=("mean", "worst"), default="mean")
    max_mse: float | None = field(check=positive, default=None)
    max_bias: float = field(check=non_negative, default=0.0)
    input_range: Any = None

    default_gap = 1e-6
    algorithms: ClassVar[tuple[str, ...]] = ("newton", "cutting-planes", "exchange")

    def _post_check(self) -> None:
        allowed = "must be md.PureDP(epsilon); md.MetricQuantizer takes metric and approximate privacy"
        refuse(not isinstance(self.privacy, PureDP), "privacy", self.privacy, allowed)
        settle(self, loss=Loss.of(self.loss))
        if self.max_mse is not None and self.objective == "worst":
            raise DesignError.of("max_mse", self.max_mse, 'needs objective="mean"')
        prior, given = Prior.ranged(self.prior, self.input_range)
        if not isinstance(self.bins, (BinSearch, Alphabet)):
            settle(self, bins=tuple(check_outputs(self.bins).tolist()))
        ends = self._outputs[[0, -1]]
        check_bins("bins", ends)
        lower, upper = check_range(given, ends)
        settle(self, prior=prior, input_range=(lower, upper))
        self.loss.check_convex(ends, lower, upper)

    @cached_property
    def _outputs(self) -> Array:
        """The outputs; for a search, evenly spaced ones."""
        return np.array(self.bins) if isinstance(self.bins, tuple) else self.bins.values

    @property
    def searches_outputs(self) -> bool:
        return isinstance(self.bins, BinSearch)

    @property
    def mechanism_class(self) -> MechanismClass:
        """Every mechanism with the given outputs, or with those that a search finds."""
        if self.searches_outputs:
            return menu(self.with_outputs("the outputs found"))
        return every(self.with_outputs("these outputs"))

    def allows(self, outputs: object) -> bool:
        if isinstance(self.bins, tuple):
            return super().allows(outputs)
        return bool(self.bins.allows(np.asarray(outputs, dtype=float)))

    @cached_property
    def units(self) -> tuple[float, float]:
        """Centre and unit, a power of two, in which the methods measure inputs and outputs."""
        return units_of(self.input_range, isinstance(self.bins, tuple))

    @cached_property
    def solved_epsilon(self) -> float:
        """The ε at which the design is solved: the budget, or the largest that doubles resolve."""
        lower, upper = self.input_range
        reach = lower + self.max_bias, upper - self.max_bias
        return solved_epsilon(self.privacy.epsilon, smallest_epsilon(self._outputs, *reach))

    @cached_property
    def floor_problem(self) -> FloorProblem:
        """The design in terms of floors, centred and scaled, for the methods."""
        return FloorProblem.of(
            self._outputs,
            self.solved_epsilon,
            self.prior,
            self.loss,
            self.input_range,
            self.units,
            self.max_bias,
            self.objective,
            self.max_mse,
        )

    def problem(self, knots: Numbers = 33) -> TableProblem:
        """Declare the rows at knots, and the loss of the mechanism that interpolates them; for a search, with evenly spaced outputs.

        It is a restriction: a mechanism that interpolates between knots is valid on all inputs, but the best need not be of this kind.

        Parameters
        ----------
        knots : int or array_like
            Number of equally spaced knots (outputs inside the range are added), or the knots.
        """
        (lower, upper), bins = self.input_range, self._outputs
        if array("knots", knots, ndim=None).ndim:
            points = check_bins("knots", knots)
        else:
            inside = bins[(bins > lower) & (bins < upper)]
            points = np.union1d(np.linspace(lower, upper, integer("knots", knots, 2, 10**6)), inside)
        P = Table(points, bins)
        rows: list[Any] = [P.private(self.privacy)]
        off = P.bias()
        if self.max_bias:
            rows.append(named("bias", cp.abs(off) <= self.max_bias))
        else:
            rows.append(P.unbiased())
        if self.max_mse is not None:
            squares, extra = interpolated_costs(bins, points, Loss(squared=1.0), self.prior)
            rows.append(named("mse", cp.sum(cp.multiply(squares, P)) + extra <= self.max_mse))
        if self.objective == "worst":
            target = P.worst(self.loss(bins - points[:, None]))
        else:
            costs, constant = interpolated_costs(bins, points, self.loss, self.prior)
            target = cp.sum(cp.multiply(costs, P)) + constant
        target.set_label(
            f"{'largest' if self.objective == 'worst' else 'expected'} {self.loss.words} of interpolated rows"
        )
        return TableProblem(cp.Minimize(target), tuple(rows), design=self)

    def accelerated(self, clock: Clock, algorithm: str | None = None) -> Iterator[Law | Bound]:
        """Find the outputs if they are searched, then the floors of least loss with a lower bound for all mechanisms.

        Parameters
        ----------
        clock : Clock
        algorithm : str, optional
            ``"newton"``, ``"cutting-planes"`` (both for the expected loss), or ``"exchange"`` (for the worst case). None chooses.

        Raises
        ------
        InfeasibleError
            The outputs cannot be unbiased at this ε (the error states the smallest feasible one), or `max_mse` is below the
            least possible.
        """
        yield from self._by_floors(clock, algorithm, None)

    def modelled(
        self, clock: Clock, solver: str | None = None, knots: Numbers = 33, **options: Any
    ) -> Iterator[Law | Bound]:
        """Solve `problem`, a restriction to interpolation between knots, and start cutting planes from its floors, so that law and bound are for all inputs.

        Parameters
        ----------
        clock : Clock
        solver : str, optional
        knots : int or array_like
            Knots of `problem`.
        **options
            Options of the backend.
        """
        yield from self._by_floors(clock, None, {"solver": solver, "knots": knots, **options})

    def _by_floors(
        self, clock: Clock, method: str | None, backend: dict[str, Any] | None
    ) -> Iterator[Law | Bound]:
        design, notes = self._widened()
        check_feasible(design.floor_problem, self.privacy.epsilon, self.units)
        searched = design._searched(clock.gap, clock)
        fixed = design if isinstance(self.bins, tuple) else replace(self, bins=searched.bins)
        start, backends = (None, ()) if backend is None else fixed._start(clock, **backend)
        found = searched.solution
        if found is not None and fixed.units != design.units:  # its multipliers are about another centre
            found = replace(found, lower_bound=-math.inf)
        solution = best_floors(fixed.floor_problem, 0.5 * clock.gap, method, start, clock).merged(found)
        if self.privacy.epsilon > fixed.solved_epsilon:
            # a bound at a smaller ε is none at this one
            solution = replace(solution, lower_bound=-math.inf, proof=None)
        if not math.isfinite(solution.value):
            raise SolverError("no mechanism was found", solver=solution.methods[-1], status="limit")
        yield from fixed._bound(solution, clock)
        report = SolveReport(
            solver=" + ".join(dict.fromkeys((*backends[:1], *solution.methods))),
            iterations=solution.iterations,
            variables=len(fixed.floor_problem.bins),
            constraints=len(fixed.floor_problem.constraints[1]),
            requested=method if backend is None else backend["solver"],
            fallbacks=backends[1:],
        )
        mechanism = fixed._mechanism(solution.floors)
        law = Law(
            replace(mechanism, law=None),
            fixed.loss_of(mechanism),
            report=report,
            notes=(*searched.notes, *notes, *self._notes),
            duals=_multipliers(solution),
            table=searched.table(_ANY_OUTPUTS) if searched.rows else None,
        )
        yield proved_law(self, law, mechanism) if clock.certify else law

    def _mechanism(self, floors: Array) -> Quantizer:
        """Return the quantizer of the exact law of some floors.

        Raises
        ------
        InfeasibleError
            ε is within rounding of the smallest at which these outputs can be unbiased.
        """
        own = exact_law(
            self.floor_problem,
            floors,
            np.array(self.bins),
            self.input_range,
            self.units,
            self.solved_epsilon,
            self.max_bias,
        )
        exact = Quantizer.of_law(own)
        small = exact.starts.size <= EXACT  # larger block fills are exact by construction
        if small and not all(claim.holds for claim in private_claims(self, own)):
            raise InfeasibleError("the exact law next to the floors is outside the budget")
        return exact

    def _bound(self, solution: FloorSolution, clock: Clock) -> Iterator[Bound]:
        """Yield the lower bound: proved for polynomial losses, for others claimed if it is below a feasible mechanism's loss."""
        found, value = solution.lower_bound, solution.value
        if clock.certify and solution.proof is not None and self.loss.polynomial:
            duals = solution.proof.in_units(*self.units)
            yield proved_bound(self, duals, self.bins, found)
        elif math.isfinite(found) and found <= value + 1e-9 * abs(value):
            yield Bound(found)

    @property
    def _notes(self) -> Iterator[str]:
        if not self.prior.closed_form:
            yield "the prior has no closed-form moments: its integrals are quadratures to 1e-12"
        if not self.loss.polynomial:
            yield "the loss is a callable: its integrals are adaptive quadratures to 1e-12, not closed forms"
            if self.objective == "worst":
                yield "the worst case is enclosed to 1e-9, not computed in closed form"

    # -- what a result says -----------------------------------------------------------------------------

    def any_outputs_bound(self, result: Result) -> float | None:
        """Return a lower bound over mechanisms with any number of outputs anywhere in the range searched, computed in floats only.

        None if the outputs are given, or no bound is known.
        """
        if isinstance(self.bins, Alphabet) and result.lower_bound is not None:
            least = any_outputs_bound(self.floor_problem, result.lower_bound)
            return None if least is None else min(least, result.value)
        if not isinstance(self.bins, BinSearch) or result.table is None:
            return None
        found = result.table.loc[result.table["kind"] == _ANY_OUTPUTS, "value"]
        return min(float(found.iloc[0]), result.value) if len(found) else None

    def lines(self, result: Result) -> list[str]:
        m = result.mechanism
        lines = [f"outputs: {len(m.bins)}, segments: {len(m.knots) - 1}"]
        if (least := self.any_outputs_bound(result)) is not None:
            lower = 100 * (result.value - least) / abs(result.value)
            lines.append(
                f"any number of outputs in the same range: at least {least:.9g} (claimed), {lower:.3g}% lower"
            )
        return lines + super().lines(result)

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        yield from super().rivals(result)
        if (least := self.any_outputs_bound(result)) is not None:
            yield "claimed least with any outputs in the range", least

    # -- steps --------------------------------------------------------------------------------------------

    def _widened(self) -> tuple[OptimalQuantizer, tuple[str, ...]]:
        """Return the design with outputs made feasible in exact arithmetic, if only rounding made them infeasible."""
        if not isinstance(self.bins, tuple):
            return self, ()
        bins, units = widened(np.array(self.bins), self.input_range, self.solved_epsilon, self.max_bias)
        if not units:
            return self, ()
        words = f"the outermost outputs were moved out by {units} unit(s) in the last place: as doubles they need more"
        return replace(self, bins=bins), (f"{words} than epsilon = {self.solved_epsilon!r}",)

    def _searched(self, gap: float, deadline: Deadline) -> Searched:
        """Return the outputs: the given ones, the alphabet's, or the best that a search finds."""
        if not isinstance(self.bins, BinSearch):
            return Searched(self._outputs)
        return search_bins(self.floor_problem, self.bins, gap, deadline).in_units(self.units[1])

    def _start(
        self, clock: Clock, *, solver: str, knots: Numbers, **options: Any
    ) -> tuple[Array, tuple[str, ...]]:
        """Return the floors that a backend finds at knots, and notes on backends that failed."""
        declared = self.problem(knots).declared
        program = Program(declared, clock, solver, **options)
        program.solve()
        table = program.columns()[: declared.cells].reshape(declared.n, declared.m)
        answer = program.solution
        return table.min(axis=0), (f"{answer.solver} on {len(table)} knots", *answer.fallbacks)


def _multipliers(solution: FloorSolution) -> pd.DataFrame:
    """Tabulate the multipliers of the constraints on the floors: 1/ρ ≤ Σa ≤ 1, then the range's upper and lower end."""
    m = len(solution.floors)
    families = ["total"] * 2 + ["upper end"] * m + ["lower end"] * m
    index = [1, 2, *range(1, m + 1), *range(1, m + 1)]
    return pd.DataFrame({"family": families, "index": index, "dual": solution.multipliers})
