"""`compare` tries, certifies and ranks every mechanism that answers a question; `accuracy` and `least_epsilon` treat one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from joblib import effective_n_jobs

from mechdesign.choose import questions
from mechdesign.choose.candidates import candidates, solved
from mechdesign.choose.comparison import Comparison, least_error, measured, ranked
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, SolverError
from mechdesign.evidence.digits import gap_words
from mechdesign.evidence.exact import least_kept
from mechdesign.evidence.results import Accuracy, Result
from mechdesign.model.grid import applied
from mechdesign.problem.checks import DOWN, instance, listed, one_of, positive, probability
from mechdesign.problem.privacy import ApproximateDP, MetricDP, Privacy, PureDP
from mechdesign.solvers.deadline import Deadline, progress_bar
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Status
from mechdesign.user_level.linear_release import EMDPrivacy

Tried = tuple[dict[str, object], Result | None]
"""A row of the table, and the result if there is one."""


def compare(
    question: questions.Question | MetricSpace,
    privacy: Privacy | None = None,
    *,
    alpha: float | None = None,
    mechanisms: Sequence[str] | None = None,
    also: Mapping[str, Result] | None = None,
    jobs: int = 1,
    progress: bool = True,
    time_limit: float | None = None,
    total_time_limit: float | None = 600.0,
) -> Comparison:
    """Try every mechanism that answers a question, published and optimal, and rank them by their error.

    Parameters
    ----------
    question : NumericQuery, LocalReport, CategoryReport, MetricReport, HistogramOfUsers, ChoiceQuestion or MetricSpace
    privacy : PureDP, ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage, TradeOff or EMDPrivacy
        All but the first for a `NumericQuery` only, the first three for a `ChoiceQuestion` too; the last for a `HistogramOfUsers`.
    alpha : float, optional
        Privacy per unit of distance, for a metric space and users who hold points of one.
    mechanisms : sequence of str, optional
        Names, to try these alone; all by default.
    also : mapping of str to Result, optional
        Mechanisms of your own, or results solved with more effort, made for the same privacy, and for all the changes, rounds and
        inputs that the question allows. A result made for more, or for another loss or prior, is marked, and its bounds are not used.
    jobs : int
        Mechanisms tried at a time; −1 for one per core.
    progress : bool
        Show a bar, on a terminal.
    time_limit : float, optional
        Seconds for the search of each mechanism; certification comes on top. After them the best mechanism so far is ranked, with the
        proved gap in `note`; or `note` says that there is none.
    total_time_limit : float, optional
        Seconds for all of them. The rest is shared evenly among mechanisms still to be tried, so that slow ones get
        the time that quick ones leave; mechanisms whose turn comes too late are not tried, and `note` says so. Nearly all questions take seconds;
        None sets no limit.

    Returns
    -------
    Comparison
        ``print`` it; ``["gaussian"]`` and ``.best`` are results, ``.report("page.html")`` writes a page.

    Raises
    ------
    DesignError
        A question or a requirement of another kind; an unknown mechanism; a result that answers another question.
    InfeasibleError
        Nothing answers the question; each reason is given.

    Examples
    --------
    >>> from mechdesign.choose.questions import NumericQuery
    >>> from mechdesign.problem.privacy import PureDP
    >>> found = compare(NumericQuery(), PureDP(1.0), mechanisms=["laplace", "staircase", "gaussian"])
    >>> found.table[["mechanism", "ratio"]].round(3).values.tolist()
    [['staircase', 1.0], ['laplace', 1.043], ['gaussian', nan]]
    >>> found.table["note"].iloc[-1][:40]
    'delta = 0.0: gaussian noise needs delta '
    """
    question, privacy = _parsed(question, privacy, alpha)
    known = candidates(question)
    allowed = f"must be a list of names out of {', '.join(known)}"
    asked = known if mechanisms is None else listed("mechanisms", mechanisms, allowed)
    if not (names := [*dict.fromkeys(one_of("mechanisms", name, tuple(known)) for name in asked)]):
        raise DesignError.of("mechanisms", mechanisms, allowed)
    own = _own(also, question, privacy, names)
    one_of("progress", progress, (True, False))
    Deadline(time_limit)  # checked before the work
    clock = Deadline(total_time_limit, "total_time_limit")
    with progress_bar("comparing", len(names), shown=progress) as step:
        attempt = _Try(question, privacy, time_limit, clock=clock)
        tried = _tried(attempt, names, jobs, step)
    results = {name: found for name, (_, found) in tried.items() if found is not None} | own
    rows = [row for row, _ in tried.values()]
    rows += [
        measured(name, question, privacy, found, found.solver_report.seconds) for name, found in own.items()
    ]
    if not results:
        reasons = "; ".join(f"{row['mechanism']}: {row['note']}" for row in rows)
        raise InfeasibleError(f"no mechanism answers this question: {reasons}")
    left = clock.limit(most=math.inf if time_limit is None else time_limit)
    least, least_name = least_error(question, privacy, results, left)
    continuous = [name for name, result in results.items() if question.continuous(result)]
    return Comparison(question, privacy, ranked(rows, least, continuous), results, least, least_name)


def _tried(attempt: _Try, names: list[str], jobs: int, step: Callable[[], None]) -> dict[str, Tried]:
    """Return a row for each mechanism and its result, in the order of the candidates; those that start from others' results are tried last."""
    known = candidates(attempt.question)
    ordered = sorted(names, key=lambda name: known[name].last)
    workers = effective_n_jobs(jobs) if jobs else 1  # `applied` refuses 0
    # one more share for the bound of all, at the end
    waiting = {name: math.ceil((len(names) - k + 1) / workers) for k, name in enumerate(ordered)}
    tried: dict[str, Tried] = {}
    for last in (False, True):
        now = [name for name in ordered if known[name].last is last]
        others = {name: result for name, (_, result) in tried.items() if result is not None}
        task = replace(attempt, waiting=waiting, others=others)
        for name, row in zip(now, applied(task, now, jobs=jobs)):
            tried[name] = row
            step()
    return {name: tried[name] for name in known if name in tried}  # this order breaks ties of the ranking


def _parsed(
    question: questions.Question | MetricSpace, privacy: Privacy | None, alpha: float | None
) -> tuple[questions.Question, Privacy]:
    if isinstance(question, MetricSpace):
        question = questions.MetricReport(question)
    questions.checked_question(question)
    if isinstance(question, questions.MetricReport | questions.HistogramOfUsers):
        if (alpha is None) == (privacy is None):
            raise DesignError.of(
                "alpha", alpha, "a metric space needs alpha, its privacy per unit of distance"
            )
        privacy = MetricDP(positive("alpha", alpha, side=DOWN)) if alpha is not None else privacy
    elif alpha is not None:
        raise DesignError.of(
            "alpha", alpha, "is for metric spaces; give privacy, md.PureDP(epsilon) for example"
        )
    return question, question.check_privacy(privacy)


def _own(also: object, question: questions.Question, privacy: Privacy, names: list[str]) -> dict[str, Result]:
    found = dict(instance("also", also, Mapping)) if also is not None else {}
    for name, result in found.items():
        if not isinstance(name, str) or name in names:
            raise DesignError.of("also", name, "must be a name of its own")
        title = f"also[{name!r}]"
        question.check(title, instance(title, result, Result))
        questions.check_same_privacy(title, result, privacy)
    return found


@dataclass(frozen=True)
class _Try:
    """Solve one mechanism by name, and turn refusals into notes."""

    question: questions.Question
    privacy: Privacy
    time_limit: float | None = None
    others: Mapping[str, Result] = field(default_factory=dict)
    clock: Deadline = field(default_factory=Deadline)
    waiting: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, name: str) -> Tried:
        started = time.perf_counter()
        if self.clock.passed:
            note = f"not tried: the limit of {self.clock.seconds:g} s for all was over"
            return {"mechanism": name, "seconds": 0.0, "note": note}, None
        share = self.clock.part(1 / self.waiting.get(name, 1)).limit()
        limits = [seconds for seconds in (self.time_limit, share) if seconds is not None]
        deadline = Deadline(min(limits, default=None))
        try:
            result = solved(name, self.question, self.privacy, deadline, self.others)
        except MechdesignError as error:
            late = isinstance(error, SolverError) and deadline.passed
            note = f"no answer in {deadline.seconds:.3g} s" if late else " ".join(str(error).split())
            return {"mechanism": name, "seconds": time.perf_counter() - started, "note": note}, None
        row = measured(name, self.question, self.privacy, result, fresh=True)
        row["seconds"] = time.perf_counter() - started
        if deadline.finite and result.status is Status.LIMIT:
            proved = (
                "no bound is proved"
                if result.gap is None
                else f"the lower bound of {result.among} leaves a gap of {gap_words(result.gap)}"
            )
            row["note"] = "; ".join([f"stopped by its time limit: {proved}", *result.notes])
        return row, result


MEASURES = ("standard_deviation", "absolute_error", "half_width")


def accuracy(
    mechanism: Result | str, question: questions.Question | None = None, privacy: Privacy | None = None
) -> Accuracy:
    """Return how accurate a mechanism is.

    Parameters
    ----------
    mechanism : Result, or the name of one of `compare`'s mechanisms
        A name needs question and privacy: ``md.accuracy("gaussian", query, md.ApproximateDP(1, 1e-6))``.
    question : NumericQuery, LocalReport, CategoryReport, MetricReport or ChoiceQuestion, optional
        Question that the result must answer; its prior averages the errors of reports. By default the result's own.
    privacy : optional
        Privacy for which the result must have been made.

    Raises
    ------
    DesignError
        A mechanism that does not answer the question (the message lists those that do), or one whose errors are not known.
    """
    if isinstance(mechanism, Result):
        if question is not None:
            questions.checked_question(question).check("mechanism", mechanism)
        if privacy is not None:
            questions.check_same_privacy("mechanism", mechanism, privacy)
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
    question: questions.Question,
    *,
    error: float,
    measure: str = "standard_deviation",
    delta: float = 0.0,
) -> float:
    """Return the least ε (α for a metric space) at which a mechanism's error is at most `error`.

    Parameters
    ----------
    mechanism : str
        Name of one of `compare`'s mechanisms.
    question : NumericQuery, LocalReport, CategoryReport, MetricReport or ChoiceQuestion
    error : float
        Largest error allowed, in the question's own units.
    measure : {"standard_deviation", "absolute_error", "half_width"}
    delta : float
        δ of the requirement (numeric queries).

    Returns
    -------
    float
        Accurate to a relative 1e-4, rounded to the side where the error is small enough; at least 1e-14 (.001 for a `CategoryReport`).

    Raises
    ------
    InfeasibleError
        No ε up to 1000 (20 for a `CategoryReport`) makes the error that small.

    Examples
    --------
    >>> import mechdesign as md
    >>> round(md.least_epsilon("laplace", md.NumericQuery(), error=2.0, measure="absolute_error"), 3)
    0.5
    """
    error, delta = positive("error", error), probability("delta", delta, below_one=True)
    one_of("measure", measure, MEASURES)

    def over(log_epsilon: float) -> float:
        privacy = _privacy(question, math.exp(log_epsilon), delta)
        found = solved(mechanism, question, privacy).errors(question)
        return math.log(max(getattr(found, measure), 1e-300) / error)

    fewest, most = questions.checked_question(question).epsilons
    least = least_kept(over, 0.0, least=math.log(fewest), most=math.log(most), xtol=5e-5, rtol=1e-6)
    if math.isinf(least):
        raise InfeasibleError(
            f"{mechanism}: no epsilon up to {most:g} brings the {measure} down to {error:g}"
        )
    return math.exp(least)


def _privacy(question: questions.Question, epsilon: float, delta: float) -> Privacy:
    if isinstance(question, questions.HistogramOfUsers):
        return question.check_privacy(EMDPrivacy(epsilon, delta))  # type: ignore[no-any-return]
    if isinstance(question, questions.MetricReport):
        return MetricDP(epsilon)
    return ApproximateDP(epsilon, delta) if delta else PureDP(epsilon)
