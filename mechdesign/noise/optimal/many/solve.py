"""The noise of K coordinates from question to result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from mechdesign.errors import MechdesignError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.rounding import round_down, round_up
from mechdesign.noise.optimal.many.certificate import (
    ManyNoiseCertificate,
    calibrated,
    checked,
    delta_spent,
    enclosed_spent,
)
from mechdesign.noise.optimal.many.lower import Bound, lower_bound
from mechdesign.noise.optimal.many.mechanism import CellProduct
from mechdesign.noise.optimal.many.question import ManyQuestion
from mechdesign.noise.optimal.many.result import ManyNoiseResult
from mechdesign.noise.optimal.many.search import Candidate, as_table, candidates, started
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status

__all__ = ["finished", "never_dearer", "solve_many"]

One = Callable[..., Any]
"""(privacy, loss, gap, time_limit) → the result of the one-dimensional design."""

_SHARE_SECONDS = 8.0


def solve_many(
    design: Any,
    one: One,
    *,
    gap: float | None,
    certify: bool,
    cells: int | None,
    deadline: Deadline,
    starts: Mapping[str, Any] | None,
) -> ManyNoiseResult:
    """Search, certify the cheapest candidate that can be certified, and bound from below."""
    question = _question(design, cells)
    if isinstance(design.privacy, PureDP) or design.privacy.delta == 0 or design.moved == 1:
        return _shared(design, question, one, gap, certify, deadline, starts or {})
    loss = question.loss

    def narrow(epsilon: Fraction, delta: float, left: Deadline) -> Any:
        privacy = ApproximateDP(round_down(epsilon), delta)
        return one(privacy, loss, 1e-3, left.limit(most=_SHARE_SECONDS))

    found, cut = candidates(question, narrow, deadline, starts)
    bound = lower_bound(design, one, deadline) if certify else None
    return finished(design, found, bound, certify=certify, gap=gap, deadline=deadline, cut=cut)


def _question(design: Any, cells: int | None = None) -> ManyQuestion:
    numbers = None if design.changed is None else design.dimension
    return ManyQuestion(
        Loss.of(design.loss), design.sensitivity, design.privacy, design.moved, cells, numbers
    )


def never_dearer(
    design: Any,
    found: Any,
    starts: Mapping[str, Any],
    *,
    gap: float | None,
    certify: bool,
    deadline: Deadline,
) -> Any:
    """The optimum of one coordinate as it was found; or a named law, with the bound proved, where one is cheaper."""
    named = started(_question(design), starts, deadline)
    if min((c.value for c in named), default=math.inf) >= found.value or not found.law.symmetric:
        return found
    tried = sorted(
        [*named, Candidate("lattice", CellProduct(found.law, 1), found.value)], key=lambda c: c.value
    )
    bound = found.certificate and (found.certificate, None)
    return finished(
        design, tried, bound, certify=certify, gap=0.01 if gap is None else gap, deadline=deadline
    )


def finished(
    design: Any,
    found: list[Candidate],
    bound: Bound | None,
    *,
    certify: bool,
    gap: float | None,
    deadline: Deadline,
    cut: bool = False,
    otherwise: Status = Status.FEASIBLE,
) -> ManyNoiseResult:
    """Certify the cheapest candidate that can be certified."""
    if not certify:
        return _result(design, found, None, Status.UNCERTIFIED, deadline)
    for i, candidate in enumerate(found):
        try:
            certificate = _certificate(design, candidate, bound, deadline)
        except MechdesignError:
            continue  # kept by the search's accounting, not by the certificate's
        close = certificate.value - certificate.lower_bound <= (gap or 0.0) * certificate.value
        late = cut or deadline.passed
        status = Status.OPTIMAL if close else Status.LIMIT if late else otherwise
        return _result(design, found[i:], certificate, status, deadline)
    raise SolverError("no law found passed its certificate", solver="newton", status="check")


def _certificate(
    design: Any, candidate: Candidate, bound: Bound | None, deadline: Deadline
) -> ManyNoiseCertificate:
    noise = candidate.noise
    found: Any
    if isinstance(noise, CellProduct):
        found = spent = enclosed_spent(noise, design.privacy)
    else:
        found = calibrated(noise, design.privacy, deadline)
        spent = delta_spent(found, design.privacy)
    held, mean = bound or (None, None)
    lower = 0.0 if held is None else max(round_down(held.lower_bound), 0.0)
    certificate = ManyNoiseCertificate(
        design.privacy,
        design.sensitivity,
        design.dimension,
        design.loss,
        noise,
        candidate.value,
        min(lower, candidate.value),
        spent,
        held if lower > 0 else None,
        design.changed,
        mean if lower > 0 else None,
    )
    return checked(certificate, found)


def _result(
    design: Any,
    found: list[Candidate],
    certificate: ManyNoiseCertificate | None,
    status: Status,
    deadline: Deadline,
) -> ManyNoiseResult:
    best = found[0]
    notes = ["the time limit came before the search ended"] if status is Status.LIMIT else []
    if Loss.of(design.loss).function is not None:
        notes.append(
            "the loss is a callable: its floating-point values are taken as exact, its convexity sampled"
        )
    return ManyNoiseResult(
        design=design,
        mechanism=best.noise,
        value=best.value,
        lower_bound=None if certificate is None or certificate.bound is None else certificate.lower_bound,
        solver_report=SolveReport("newton", status, seconds=deadline.elapsed),
        notes=tuple(notes),
        certificate=certificate,
        table=as_table(found) if len(found) > 1 or best.name != "pure" else None,
    )


def _shared(
    design: Any,
    question: ManyQuestion,
    one: One,
    gap: float | None,
    certify: bool,
    deadline: Deadline,
    starts: Mapping[str, Any],
) -> ManyNoiseResult:
    """One coordinate moves; or c under pure privacy, which are ε-DP together if and only if each is ε/c-DP."""
    down, up = design.privacy, design.privacy
    if design.moved > 1:
        share = Fraction(design.privacy.epsilon) / design.moved
        down, up = PureDP(round_down(share)), PureDP(round_up(share))
    best = one(down, design.loss, gap, deadline.limit())
    found = started(question, starts, deadline)
    if best.law.symmetric:
        found.append(Candidate("pure", question.product(best.law), best.value))
    found.sort(key=lambda c: c.value)
    if not certify or up == down:
        proof = best
    else:
        proof = one(up, design.loss, gap, deadline.limit(least=0.1))
    return finished(
        design,
        found,
        proof.certificate and (proof.certificate, None),
        certify=certify,
        gap=0.01 if gap is None else gap,
        deadline=deadline,
        otherwise=Status.GAP,
    )
