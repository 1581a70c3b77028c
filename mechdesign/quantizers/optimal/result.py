"""The result of an optimal quantizer: value and bound, the exact law, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pandas as pd

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.losses import Loss
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.common.result import QuantizerResult
from mechdesign.quantizers.common.slack import quantizer_slack
from mechdesign.quantizers.mechanism.exact_law import RationalTable
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.optimal.floors import exact_block_fill
from mechdesign.quantizers.optimal.newton import FloorSolution
from mechdesign.quantizers.optimal.pieces import Pieces, pieces
from mechdesign.typing import Array

__all__ = ["OptimalQuantizerResult", "deploy"]


@serializable("optimal-quantizer-result")
@dataclass(frozen=True, eq=False)
class OptimalQuantizerResult(QuantizerResult):
    """Result of `OptimalQuantizer`.

    Parameters
    ----------
    floors : ndarray (m,)
        Least probability of each output over all inputs: the mechanism is their block fill.
    multipliers : ndarray
        Of the constraints on the floors (1/ρ ≤ Σa ≤ 1, then the range's upper and lower end).
    cuts : int
        Planes in the last linear program; 0 for Newton.
    search : DataFrame, optional
        Bins that a search tried, with their values.
    any_outputs_bound : float, optional
        Lower bound over mechanisms with any outputs within the alphabet's range, any number of them.
    """

    floors: Any = None
    multipliers: Any = None
    cuts: int = 0
    search: pd.DataFrame | None = None
    any_outputs_bound: float | None = None

    @property
    def bins(self) -> Array:
        """Output values of the mechanism."""
        return self.mechanism.bins

    @property
    def knots(self) -> int:
        """Number of segments on which the mechanism is affine."""
        return len(self.mechanism.knots) - 1

    @property
    def iterations(self) -> int:
        """Newton steps, or rounds of cuts."""
        return int(self.solver_report.iterations or 0)

    @property
    def seconds(self) -> float:
        """Time to the proved gap, building included."""
        return self.solver_report.seconds

    @property
    def alphabet_gap(self) -> float | None:
        """How much better any outputs within the same range could be, relative to the value."""
        if self.any_outputs_bound is None:
            return None
        return (self.value - self.any_outputs_bound) / abs(self.value)

    def certify(self) -> QuantizerCertificate:
        """Return the exact rational certificate; its ``verify()`` uses fractions only.

        Raises
        ------
        InfeasibleError
            ε is, to within rounding, the smallest at which these outputs can be unbiased.
        """
        law = self.mechanism.law
        if law is None:
            raise InfeasibleError(
                "no exactly unbiased rational mechanism exists at this epsilon with these outputs: epsilon is the "
                "smallest feasible one to within rounding; widen the outermost bins by a part in 1e12"
            )
        return QuantizerCertificate(law, self.design.privacy.epsilon, self.design.max_bias)

    def _audit(self) -> pd.DataFrame:
        design = self.design
        return quantizer_slack(self.mechanism, design.privacy.epsilon, max_bias=design.max_bias)

    def _evidence(self) -> list[str]:
        lines = [
            f"outputs: {len(self.bins)}, segments: {self.knots}"
            + (f", cuts: {self.cuts}" if self.cuts else "")
        ]
        if self.any_outputs_bound is not None:
            lines.append(
                f"any number of outputs in the same range: at least {self.any_outputs_bound:.9g} (proved), "
                f"{100 * (self.alphabet_gap or 0):.3g}% lower"
            )
        return lines + super()._evidence()


def deploy(
    design: Any, solution: FloorSolution, wanted: float, report: SolveReport
) -> OptimalQuantizerResult:
    """Make the mechanism of the floors in exact arithmetic, value it, and say what was proved."""
    notes: list[str] = []
    problem = design.problem()
    epsilon, bias = design.privacy.epsilon, design.max_bias
    lower, upper = design.input_range
    try:
        if bias == 0:
            mechanism = Quantizer.of_law(
                exact_block_fill(problem.bins, solution.floors, epsilon, lower, upper)
            )
        else:
            mechanism = Quantizer.of_law(_biased_law(design, solution.floors))
    except InfeasibleError as error:
        notes.append(f"not certified: {error.reason}")
        table = pieces(problem, solution.floors)
        start, end = table.rows()
        mechanism = Quantizer(problem.bins, table.edges, start, end)
    if design.objective == "worst":
        value = mechanism.worst_case_loss(design.loss)[0]
    else:
        # As a callable the loss is integrated by vectorised quadrature: for laws without closed-form moments.
        loss = Loss(function=design.loss) if problem.smooth and design.loss.polynomial else design.loss
        value = mechanism.expected_loss(design.prior, loss)
    if problem.smooth:
        notes.append("the prior has no closed-form moments: its integrals are adaptive quadratures to 1e-12")
    if not design.loss.polynomial:
        notes.append(
            "the loss is a callable: its integrals are adaptive quadratures to 1e-12, not closed forms"
        )
        if design.objective == "worst":
            notes.append("the worst input was searched on 33 points a piece and refined")
    # Summaries verify what they hold; for large tables that takes seconds, so there `certify` is asked for.
    small = mechanism.law is not None and mechanism.starts.size <= 4096
    result = OptimalQuantizerResult(
        design=design,
        mechanism=mechanism,
        value=float(value),
        lower_bound=float(min(solution.lower_bound, value)),
        solver_report=report,
        certificate=QuantizerCertificate(mechanism.law, epsilon, bias)
        if small and mechanism.law is not None
        else None,
        floors=solution.floors,
        multipliers=solution.multipliers,
        cuts=solution.cuts,
        rise=value / solution.value - 1 if solution.value else 0.0,
    )
    gap = result.gap or 0.0
    if gap > wanted:
        notes.append(f"gap {wanted:g} was asked for; {gap:.2g} is what was proved")
        report = replace(report, status="inaccurate")
    return replace(result, notes=tuple(notes), solver_report=report)


def _biased_law(design: Any, floors: Array) -> RationalTable:
    """Exact law with a bias budget: at both ends of every piece an exact row whose mean is within the budget."""
    problem = design.problem()
    table: Pieces = pieces(problem, floors)
    low, high = _covered(table, design)
    if high - low < 1e-9 * (problem.bins[-1] - problem.bins[0]):
        # The budget allows a mechanism that hardly depends on its input: take one that does not.
        row = [Fraction(max(float(a), 0.0)) for a in floors]
        constant = tuple(a / sum(row, Fraction(0)) for a in row)
        ends = tuple(Fraction(v) for v in design.input_range)
        bins = tuple(Fraction(float(b)) for b in problem.bins)
        return RationalTable(bins, ends, (constant,), (constant,))
    base = exact_block_fill(problem.bins, floors, design.privacy.epsilon, low, high)
    budget = Fraction(design.max_bias)
    first, last = base.knots[0], base.knots[-1]
    rows: list[list[tuple[Fraction, ...]]] = [[], []]
    for end in (0, 1):
        for k in range(len(table.left)):
            x = Fraction(float(table.edges[k + end]))
            if table.position[k] >= 0:
                mean = Fraction(float(table.fill.means[table.position[k]]))
            else:
                mean = x + (budget if table.shift[k] > 0 else -budget)
            mean = min(max(mean, x - budget, first), x + budget, last)
            rows[end].append(tuple(_row_at(base, mean)))
    knots = tuple(Fraction(float(x)) for x in table.edges)
    return RationalTable(base.bins, knots, tuple(rows[0]), tuple(rows[1]))


def _covered(table: Pieces, design: Any) -> tuple[Fraction, Fraction]:
    """Means that the pieces use: a little inside what the floors reach, and all that the budget requires."""
    means = table.fill.means
    inset = 1e-12 * (means[-1] - means[0])
    budget = Fraction(design.max_bias)
    low, high = (Fraction(v) for v in design.input_range)
    needed = (low + budget, high - budget) if low + budget <= high - budget else ((low + high) / 2,) * 2
    return min(Fraction(float(means[0] + inset)), needed[0]), max(
        Fraction(float(means[-1] - inset)), needed[1]
    )


def _row_at(law: Any, mean: Fraction) -> list[Fraction]:
    """Row of a continuous exact law at any point of its range."""
    from bisect import bisect_right

    k = min(max(bisect_right(law.knots, mean) - 1, 0), len(law.knots) - 2)
    t = (mean - law.knots[k]) / (law.knots[k + 1] - law.knots[k])
    return [(1 - t) * p + t * q for p, q in zip(law.row(k, 0), law.row(k, 1))]
