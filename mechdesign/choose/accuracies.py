"""Errors in units that people read, and the least privacy budget for an error asked."""

from __future__ import annotations

import math
from typing import Any

from mechdesign.choose.candidates import solved
from mechdesign.choose.questions import MetricReport, Question, check_same_privacy, checked_question
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.accuracy import Accuracy
from mechdesign.evidence.results import Result
from mechdesign.evidence.rounding import safe_root
from mechdesign.problem.checks import one_of, positive, probability
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP

__all__ = ["MEASURES", "Accuracy", "accuracy", "least_epsilon"]

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
            checked_question(question).check("mechanism", mechanism)
        if privacy is not None:
            check_same_privacy("mechanism", mechanism, privacy)
        return mechanism.errors(question)
    if not isinstance(mechanism, str):
        raise DesignError.of(
            "mechanism", mechanism, "must be a result, or the name of one of compare's mechanisms"
        )
    if question is None or privacy is None:
        raise DesignError.of("mechanism", mechanism, "is a name: give the question and the privacy too")
    return solved(mechanism, question, privacy).errors(question)


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
            privacy = _privacy(question, math.exp(log_epsilon), delta)
            found = solved(mechanism, question, privacy).errors(question)
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
