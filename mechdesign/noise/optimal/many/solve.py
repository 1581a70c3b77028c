"""The noise of K coordinates from question to result."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mechdesign.accounting.interval import DeltaInterval
from mechdesign.errors import MechdesignError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.rounding import round_down, round_up
from mechdesign.noise.optimal.many.certificate import (
    ManyNoiseCertificate,
    averaged,
    checked,
    enclosed_spent,
)
from mechdesign.noise.optimal.many.mechanism import CellProduct
from mechdesign.noise.optimal.many.question import ManyQuestion
from mechdesign.noise.optimal.many.result import ManyNoiseResult
from mechdesign.noise.optimal.many.search import Candidate, as_table, candidates
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status

__all__ = ["finished", "solve_many"]

One = Callable[..., Any]
"""(privacy, loss, gap, time_limit) → the result of the one-dimensional design."""

_BOUND_SECONDS = 2.0
_SHARE_SECONDS = 8.0


def solve_many(
    design: Any, one: One, *, gap: float | None, certify: bool, cells: int | None, deadline: Deadline
) -> ManyNoiseResult:
    """Search, certify the cheapest candidate that can be certified, and bound from below."""
    if isinstance(design.privacy, PureDP) or design.privacy.delta == 0:
        return _pure(design, one, gap=gap, certify=certify, deadline=deadline)
    loss = Loss.of(design.loss)
    question = ManyQuestion(loss, design.sensitivity, design.privacy, design.dimension, cells)

    def narrow(epsilon: Fraction, delta: float, left: Deadline) -> Any:
        privacy = ApproximateDP(round_down(epsilon), delta)
        return one(privacy, loss, 1e-3, min(_SHARE_SECONDS, left.left))

    found = candidates(question, narrow, deadline)
    bound = _averaged_bound(design, one, deadline) if certify else None
    return finished(design, found, bound, certify=certify, gap=gap, deadline=deadline)


def finished(
    design: Any, found: list[Candidate], bound: Any, *, certify: bool, gap: float | None, deadline: Deadline
) -> ManyNoiseResult:
    """Certify the cheapest candidate that can be certified."""
    if not certify:
        return _result(design, found, None, Status.UNCERTIFIED, deadline)
    for i, candidate in enumerate(found):
        try:
            certificate = _certificate(design, candidate, bound)
        except MechdesignError:
            continue  # kept by the search's accounting, not by the certificate's
        close = certificate.value - certificate.lower_bound <= (gap or 0.0) * certificate.value
        status = Status.OPTIMAL if close else Status.LIMIT if deadline.passed else Status.FEASIBLE
        return _result(design, found[i:], certificate, status, deadline)
    raise SolverError("no law found passed its certificate", solver="newton", status="check")


def _averaged_bound(design: Any, one: One, deadline: Deadline) -> Any:
    """The proved optimum of one coordinate under the averaged loss, coarse; None where there is no time for it."""
    if deadline.passed:
        return None
    try:
        seconds = min(_BOUND_SECONDS, deadline.left)
        return one(design.privacy, averaged(design.loss, design.dimension), 0.1, seconds).certificate
    except MechdesignError:
        return None


def _certificate(design: Any, candidate: Candidate, bound: Any) -> ManyNoiseCertificate:
    noise = candidate.noise
    if isinstance(noise, CellProduct):
        spent = enclosed_spent(noise, design.privacy)
    else:
        spent = noise.delta_interval(design.privacy.epsilon)
        delta = getattr(design.privacy, "delta", 0.0)
        spent = DeltaInterval(min(spent.lower, delta), min(spent.upper, delta), spent.how)
    lower = 0.0 if bound is None else max(round_down(bound.lower_bound), 0.0)
    certificate = ManyNoiseCertificate(
        design.privacy,
        design.sensitivity,
        design.dimension,
        design.loss,
        noise,
        candidate.value,
        min(lower, candidate.value),
        spent,
        bound if lower > 0 else None,
    )
    return checked(certificate)


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


def _pure(design: Any, one: One, *, gap: float | None, certify: bool, deadline: Deadline) -> ManyNoiseResult:
    """Under pure privacy K independent coordinates are ε-DP if and only if each is ε/K-DP."""
    share = Fraction(design.privacy.epsilon) / design.dimension
    down, up = PureDP(round_down(share)), PureDP(round_up(share))
    best = one(down, design.loss, gap, None if not deadline.finite else deadline.left)
    noise = CellProduct(best.law, design.dimension)
    if not certify:
        return _result(design, [Candidate("pure", noise, best.value)], None, Status.UNCERTIFIED, deadline)
    proof = (
        best
        if up == down
        else one(up, design.loss, gap, None if not deadline.finite else max(deadline.left, 0.1))
    )
    certificate = _certificate(design, Candidate("pure", noise, best.value), proof.certificate)
    wanted = 0.01 if gap is None else gap
    close = certificate.value - certificate.lower_bound <= wanted * certificate.value
    status = Status.OPTIMAL if close else Status.LIMIT if deadline.passed else Status.GAP
    return _result(design, [Candidate("pure", noise, best.value)], certificate, status, deadline)
