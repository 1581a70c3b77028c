"""Errors in units that people read, and the least privacy budget for an error asked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mechdesign.choose.answers import check_answer, check_same_privacy
from mechdesign.choose.candidates import checked_question, solved
from mechdesign.choose.questions import LocalReport, MetricReport, NumericQuery, Question
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.accuracy import Accuracy
from mechdesign.evidence.results import Result
from mechdesign.evidence.rounding import safe_root
from mechdesign.noise.allocation.mixed import MixedAllocationResult
from mechdesign.noise.allocation.result import AllocationResult
from mechdesign.noise.pictures import half_width
from mechdesign.problem.checks import one_of, positive, probability
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP
from mechdesign.typing import Array

__all__ = ["MEASURES", "Accuracy", "accuracy", "accuracy_of", "error_of", "least_epsilon"]

MEASURES = ("standard_deviation", "absolute_error", "half_width")
_NORMAL = 1.959963984540054  # P[|Z| > this] = 5%


def accuracy(mechanism: Any, question: Question | None = None, privacy: Any = None) -> Accuracy:
    """Return how accurate a mechanism is.

    Parameters
    ----------
    mechanism : Result, or the name of one of `compare`'s mechanisms
        A name needs question and privacy: ``md.accuracy("gaussian", query, md.ApproximateDP(1, 1e-6))``.
    question : NumericQuery, LocalReport or MetricReport, optional
        Of a result for reports, the prior that errors are averaged over; its own by default. A result must answer it.
    privacy : optional
        Of a result, what it must have been made for.

    Raises
    ------
    DesignError
        A mechanism that does not answer the question (the message lists those that do), or one whose errors are not known.
    """
    if isinstance(mechanism, Result):
        if question is not None:
            check_answer("mechanism", mechanism, checked_question(question))
        if privacy is not None:
            check_same_privacy("mechanism", mechanism, privacy)
        return accuracy_of(mechanism, question)
    if not isinstance(mechanism, str):
        raise DesignError.of(
            "mechanism", mechanism, "must be a result, or the name of one of compare's mechanisms"
        )
    if question is None or privacy is None:
        raise DesignError.of("mechanism", mechanism, "is a name: give the question and the privacy too")
    return accuracy_of(solved(mechanism, question, privacy), question)


def least_epsilon(
    mechanism: str,
    question: Question,
    *,
    error: float,
    measure: str = "standard_deviation",
    delta: float = 0.0,
) -> float:
    """Return the least ε (α for a metric space) at which a mechanism's error is at most what is asked.

    Parameters
    ----------
    mechanism : str
        One of `compare`'s, by name.
    question : NumericQuery, LocalReport or MetricReport
    error : float
        In the question's own units.
    measure : {"standard_deviation", "absolute_error", "half_width"}
    delta : float
        δ of the requirement (numeric queries).

    Returns
    -------
    float
        To a relative 1e-4, on the side where the error was seen to be small enough; nothing below 1e-14 is tried.

    Raises
    ------
    InfeasibleError
        No ε up to 1000 brings the error down that far.

    Examples
    --------
    >>> import mechdesign as md
    >>> round(md.least_epsilon("laplace", md.NumericQuery(), error=2.0, measure="absolute_error"), 3)
    0.5
    """
    error, delta = positive("error", error), probability("delta", delta, below_one=True)
    one_of("measure", measure, MEASURES)
    seen: dict[float, float] = {}

    def excess(log_epsilon: float) -> float:
        if log_epsilon not in seen:
            found = accuracy_of(
                solved(mechanism, question, _privacy(question, math.exp(log_epsilon), delta)), question
            )
            seen[log_epsilon] = math.log(max(getattr(found, measure), 1e-300) / error)
        return seen[log_epsilon]

    low = high = 0.0
    step = 1.0
    while excess(high) > 0:
        low, high, step = high, min(high + step, math.log(1000.0)), 2 * step
        if low == high:
            raise InfeasibleError(
                f"{mechanism}: no epsilon up to 1000 brings the {measure} down to {error:g}"
            )
    step = 1.0
    while low == high or excess(low) <= 0:
        high, low, step = low, low - step, 2 * step
        if low < math.log(1e-14):
            return math.exp(high)
    return math.exp(safe_root(excess, low, high, xtol=5e-5, rtol=1e-6))


def _privacy(question: Question, epsilon: float, delta: float) -> Any:
    if isinstance(question, MetricReport):
        return MetricDP(epsilon)
    return ApproximateDP(epsilon, delta) if delta else PureDP(epsilon)


@np.errstate(under="ignore")
def accuracy_of(result: Result, question: Question | None = None) -> Accuracy:
    """Return how accurate a result's mechanism is."""
    if hasattr(result, "proofs"):
        return result.errors(question)
    if isinstance(result, AllocationResult):
        if result.mechanism.noise == "gaussian":
            return _of_normal(result.scales)
        scale = result.scales
        return Accuracy(
            math.sqrt(2 * float((scale**2).mean())), float(scale.mean()), float(scale.mean()) * math.log(20)
        )
    if isinstance(result, MixedAllocationResult):
        return _of_mix(result)
    asked = question if isinstance(question, LocalReport) else result.design
    if hasattr(result.mechanism, "probabilities") and (prior := getattr(asked, "prior", None)) is not None:
        return result.mechanism.errors(prior)
    law = getattr(result, "law", None)
    if law is None or not hasattr(law, "sf"):
        raise DesignError.of("mechanism", type(result).__name__, "has no errors in the units of an answer")
    absolute = law.expected_loss("absolute") if hasattr(law, "expected_loss") else result.absolute_error  # type: ignore[attr-defined]
    return Accuracy(float(law.std()), float(absolute), half_width(law))


def error_of(result: Result, question: Question) -> float:
    """The question's loss: of one coordinate, on average, or of a report."""
    if isinstance(question, LocalReport):
        return float(result.mechanism.expected_loss(question.prior, question.loss))
    summed = getattr(result.design, "sums_coordinates", False) or isinstance(
        result, AllocationResult | MixedAllocationResult
    )
    if summed and isinstance(question, NumericQuery):
        return result.value / question.dimension
    return result.value


def _of_normal(deviations: Array) -> Accuracy:
    mean = float(deviations.mean())
    return Accuracy(math.sqrt(float((deviations**2).mean())), mean * math.sqrt(2 / math.pi), mean * _NORMAL)


def _of_mix(result: MixedAllocationResult) -> Accuracy:
    law = result.mechanism
    widths = np.where(law.laplace, math.log(20) * law.scales, _NORMAL * law.scales)
    return Accuracy(
        math.sqrt(float(law.variance().mean())), float(law.absolute_moment(1).mean()), float(widths.mean())
    )
