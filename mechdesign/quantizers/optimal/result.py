"""The result of an optimal quantizer: value and bound, the exact law, and how it was found."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.common.result import QuantizerResult
from mechdesign.quantizers.common.slack import quantizer_slack
from mechdesign.quantizers.mechanism.exact_law import ExactLaw
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.optimal.bin_search import Searched
from mechdesign.quantizers.optimal.exact import exact_law
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.lower_bound import FloorSolution
from mechdesign.quantizers.optimal.outputs import Alphabet
from mechdesign.quantizers.optimal.pieces import pieces
from mechdesign.quantizers.optimal.proof import dual_pieces
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Status

__all__ = ["OptimalQuantizerResult", "deploy", "float_mechanism"]


@serializable("optimal-quantizer-result")
@dataclass(frozen=True, eq=False)
class OptimalQuantizerResult(QuantizerResult):
    """Result of `OptimalQuantizer`.

    Parameters
    ----------
    floors : ndarray (m,)
        Least probability of each output over all inputs: the mechanism is their block fill.
    cuts : int
        Planes in the last linear program; 0 for Newton.
    search : DataFrame, optional
        Bins that a search tried, with their values.
    any_outputs_bound : float, optional
        Lower bound over mechanisms with any outputs within the alphabet's range, any number of them.
    """

    floors: Any = None
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
        if self.certificate is None:
            raise InfeasibleError(
                "no exactly unbiased rational mechanism exists at this epsilon with these outputs: epsilon is the "
                "smallest feasible one to within rounding; widen the outermost bins by a part in 1e12"
            )
        return self.certificate

    _among = "all mechanisms there are with these outputs, continuous inputs included"

    def alternatives(self) -> pd.DataFrame:
        table = super().alternatives()
        if self.any_outputs_bound is None:
            return table
        least = self.any_outputs_bound
        row = ["claimed least with any outputs in the range", least, least / self.value]
        return pd.concat([table, pd.DataFrame([row], columns=table.columns)], ignore_index=True)

    def tried(self) -> pd.DataFrame:
        return pd.DataFrame() if self.search is None else self.search

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
                f"any number of outputs in the same range: at least {self.any_outputs_bound:.9g} (claimed), "
                f"{100 * (self.alphabet_gap or 0):.3g}% lower"
            )
        return lines + super()._evidence()


def searched_result(
    result: OptimalQuantizerResult,
    design: Any,
    searched: Searched,
    any_outputs: float | None,
    notes: tuple[str, ...],
) -> OptimalQuantizerResult:
    """Return the result as that of a design which may have had outputs to find; a search's is never called optimal."""
    notes, report = (*result.notes, *searched.notes, *notes), result.solver_report
    if isinstance(design.bins, Alphabet):
        return replace(
            result, design=design, notes=notes, any_outputs_bound=_below(any_outputs, result.value)
        )
    if not searched.rows:
        return replace(result, notes=notes) if notes else result
    if report.status in (Status.OPTIMAL, Status.GAP):
        report = replace(report, status=searched.status)
    return replace(
        result,
        design=design,
        solver_report=report,
        notes=notes,
        search=pd.DataFrame(searched.rows).sort_values("value", kind="stable", ignore_index=True),
        any_outputs_bound=_below(searched.any_outputs_bound, result.value),
    )


def _below(bound: float | None, value: float) -> float | None:
    """A bound that floats may have put an ulp above what is known to be feasible."""
    return None if bound is None else min(bound, value)


def deploy(
    design: Any,
    solution: FloorSolution,
    wanted: float,
    certify: bool,
    deadline: Deadline,
    requested: str | None,
    backends: tuple[str, ...],
) -> OptimalQuantizerResult:
    """Make the mechanism of the floors, exact where it can be, value it, and say what was proved.

    Raises
    ------
    SolverError
        The time limit came before any mechanism was found.
    """
    problem, law, notes = design.problem, None, []
    if not math.isfinite(solution.value):
        raise SolverError("no mechanism was found", solver=solution.methods[-1], status="limit")
    if certify:
        try:
            law = _checked_law(design, solution.floors)
        except InfeasibleError as error:
            notes.append(f"not certified: {error.reason}")
    mechanism = float_mechanism(design, solution.floors) if law is None else Quantizer.of_law(law)
    if design.objective == "worst":
        value = mechanism.worst_case_loss(design.loss)[0]
    else:
        value = mechanism.expected_loss(design.prior, design.loss)
    if not design.prior.closed_form:
        notes.append("the prior has no closed-form moments: its integrals are quadratures to 1e-12")
    if not design.loss.polynomial:
        notes.append(
            "the loss is a callable: its integrals are adaptive quadratures to 1e-12, not closed forms"
        )
        if design.objective == "worst":
            notes.append("the worst case is enclosed to 1e-9, not computed in closed form")
    # No answer rather than a wrong one: a bound above the loss of a feasible mechanism proves nothing.
    sound = math.isfinite(solution.lower_bound) and solution.lower_bound <= value + 1e-9 * abs(value)
    bound = float(min(solution.lower_bound, value)) if sound else None
    certificate = None
    if law is not None:
        proof = solution.proof if design.loss.polynomial else None
        duals = None if proof is None else dual_pieces(problem, proof, design.frame)
        certificate = QuantizerCertificate.of(design, law, float(value), bound, duals)
        certificate, value, bound = _restated(design, certificate, float(value), bound)
        value = certificate.shown(value)
    if certificate is not None and certificate.lower_bound is not None:
        bound = min(value, certificate.lower_bound)
    gap = math.inf if bound is None else (value - bound) / max(abs(value), 1e-300)
    if bound is None:
        notes.append("no lower bound was proved")
    elif gap > wanted:
        notes.append(f"gap {wanted:g} was asked for; {gap:.2g} is what was proved")
    if law is None:
        status = Status.UNCERTIFIED
    elif gap > wanted:
        status = Status.LIMIT if deadline.passed else Status.GAP
    else:
        status = Status.OPTIMAL
    report = SolveReport(
        solver=" + ".join(dict.fromkeys((*backends[:1], *solution.methods))),
        status=status,
        seconds=deadline.elapsed,
        iterations=solution.iterations,
        variables=len(problem.bins),
        constraints=len(problem.constraints[1]),
        requested=requested,
        fallbacks=backends[1:],
    )
    return OptimalQuantizerResult(
        design=design,
        mechanism=mechanism,
        value=float(value),
        lower_bound=bound,
        solver_report=report,
        notes=tuple(notes),
        certificate=certificate,
        duals=_multipliers(problem, solution),
        floors=solution.floors,
        cuts=solution.cuts,
        rise=value / solution.value - 1 if solution.value else 0.0,
    )


def _restated(
    design: Any, certificate: QuantizerCertificate, value: float, bound: float | None
) -> tuple[QuantizerCertificate, float, float | None]:
    """Take value and bound back to what the certificate finds, where floats may have been too sure of them.

    That is where e^ε multiplies their rounding, where the prior's moments are not rational, and on slivers of inputs; not where
    verification would take longer than the design (many rows; beta laws, whose digits are dear).
    """
    duals = certificate.duals
    parts = np.zeros((0, 7)) if duals is None else duals.pieces
    size = (parts.size + 2 * len(certificate.law.knots)) * len(design.bins)
    dear = size > 20_000 or type(getattr(getattr(design.prior, "law", None), "dist", None)) is type(
        stats.beta
    )
    if not design.loss.polynomial or dear:
        return certificate, value, bound
    widths = np.diff(parts[:, :2], axis=1)
    sliver = bool(((widths > 0) & (widths < 1e-7 * widths.max(initial=0.0))).any())
    if design.privacy.epsilon < 7 and certificate.moments is None and not sliver:
        return certificate, value, bound
    for _ in range(2):
        failed = [(claim, margin) for claim, _, margin, holds in certificate.cost_checks() if not holds]
        if not failed:
            return certificate, value, bound
        for claim, margin in failed:
            if claim.startswith("every mechanism") and bound is not None:
                bound += 1.001 * margin
            elif "loss at most" in claim:
                value -= 1.001 * margin
        certificate = QuantizerCertificate.of(design, certificate.law, value, bound, duals)
    return QuantizerCertificate.of(design, certificate.law, value), value, None


def _checked_law(design: Any, floors: Array) -> ExactLaw:
    """The exact law of some floors, verified; block fills of many outputs are right by construction.

    Raises
    ------
    InfeasibleError
        There is none within the budget.
    """
    epsilon, bins = design.privacy.epsilon, np.array(design.bins)
    law = exact_law(
        design.problem,
        floors,
        bins,
        design.input_range,
        design.frame,
        design.solved_epsilon,
        design.max_bias,
    )
    small = len(law.knots) * len(bins) <= 4096
    if small and not QuantizerCertificate(law, epsilon, design.max_bias).verify():
        raise InfeasibleError("the exact law next to the floors is outside the budget")
    return law


def _multipliers(problem: FloorProblem, solution: FloorSolution) -> pd.DataFrame:
    """Multipliers of the constraints on the floors: 1/ρ ≤ Σa ≤ 1, then the range's upper and lower end."""
    m = len(problem.bins)
    families = ["total"] * 2 + ["upper end"] * m + ["lower end"] * m
    index = [1, 2, *range(1, m + 1), *range(1, m + 1)]
    return pd.DataFrame({"family": families, "index": index, "dual": solution.multipliers})


def float_mechanism(design: Any, floors: Array) -> Quantizer:
    """The block fill in floats, unproved."""
    centre, unit = design.frame
    table = pieces(design.problem, floors)
    knots = centre + unit * table.edges
    knots[[0, -1]] = design.input_range
    kept = np.flatnonzero(np.diff(knots) > 0)
    knots = np.array([design.input_range[0], *knots[kept[1:]], design.input_range[1]])
    starts, ends = table.rows
    return Quantizer(design.bins, knots, starts[kept], ends[kept])
