"""`compare` tries, certifies and ranks every mechanism that answers a question, and returns a `Comparison`: a table, a figure and a page."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pandas as pd
from joblib import effective_n_jobs

from mechdesign.checks import DOWN, instance, listed, one_of, positive, refuse
from mechdesign.choose import questions
from mechdesign.choose.candidates import candidates, fewest, solved
from mechdesign.choose.questions import LocalReport, Question, Requirement, check_same_privacy
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, SolverError
from mechdesign.evidence import proofs
from mechdesign.evidence.digits import folded, gap_words, shown, width
from mechdesign.evidence.page import Exportable, Page
from mechdesign.evidence.results import Accuracy, Result
from mechdesign.evidence.serialize import serializable
from mechdesign.model.grid import applied
from mechdesign.plotting import COLOURS, draw_bars, plain
from mechdesign.problem.privacy import MetricDP, Privacy, PureDP, guarantee
from mechdesign.quantizers.bins import Alphabet
from mechdesign.quantizers.optimal import OptimalQuantizer
from mechdesign.solvers.deadline import Deadline, progress_bar
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Figure, Status

_NUMBERS = ["error", "ratio", "standard deviation", "mean absolute error", "95% half-width"]


@serializable("comparison", eq=False)
class Comparison(Exportable):
    """Mechanisms for one question at one privacy, best first.

    Parameters
    ----------
    question : NumericQuery, LocalReport, MetricReport, CategoryReport, HistogramOfUsers or ChoiceQuestion
    privacy : PureDP, ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage, TradeOff, MetricDP or EMDPrivacy
    table : DataFrame
        A row per mechanism, best first; if numbers are whole, noise on the integers comes before
        continuous noise, unless that has 5% less error when its answers are rounded; `assumes` marks the latter. Columns: error (the question's loss, per coordinate), ratio (to the proved
        least error, or else to the first row), standard deviation, mean absolute error and 95% half-width in the answer's own
        units, how the certificate checked its privacy, bits of a report, assumptions (and whether it was made for another question,
        whose bounds do not hold here), seconds; mechanisms that do not apply stand below, with the reason in `note`.
    results : dict of str to Result
    least : float, optional
        Proved lower bound on the error of every mechanism in the class that `least_name` names.
    least_name : str
        Class of mechanisms, all of which answer the question.
    """

    question: Question
    privacy: Requirement
    table: pd.DataFrame
    results: dict[str, Result]
    least: float | None = None
    least_name: str = ""

    def __post_init__(self) -> None:
        for name, result in instance("results", self.results, dict).items():
            instance(f"results[{name!r}]", result, Result)

    def __getitem__(self, name: str) -> Result:
        if name not in self.results:
            refused = dict(zip(self.table["mechanism"], self.table["note"])).get(name)
            reason = (
                f"must be one of {', '.join(self.names)}" if refused is None else f"does not apply: {refused}"
            )
            raise DesignError.of("mechanism", name, reason)
        return self.results[name]

    @property
    def names(self) -> list[str]:
        """Mechanisms that apply, best first; if numbers are whole, continuous noise comes last unless it has 5% less error when rounded."""
        return [name for name in self.table["mechanism"] if name in self.results]

    @property
    def continuous(self) -> list[str]:
        """Mechanisms that answer a question about whole numbers with continuous noise."""
        return [name for name in self.names if self.question.continuous(self.results[name])]

    @property
    def others(self) -> list[str]:
        """Mechanisms made for a larger question, or for another loss: their bounds are not used."""
        return [name for name in self.names if not self.question.own(self.results[name])]

    @property
    def members(self) -> dict[str, Result]:
        """The results by name."""
        return self.results

    def agreements(self) -> list[proofs.Claim]:
        """Check that each result answers the question at its privacy, and that the table agrees with the results.

        Every cell is recomputed except seconds and notes, which are not verified.
        """
        rows: list[proofs.Claim] = []
        made = []
        for name, result in self.results.items():
            reason = ""
            try:
                with proofs.fitting():
                    self.question.check(name, result)
                    check_same_privacy(name, result, self.privacy)
                    made.append(measured(name, self.question, self.privacy, result))
            except MechdesignError as error:
                reason = f" ({error})"
            claim = f"{name}: answers the question at its privacy{reason}"
            rows.append(proofs.agreement(claim, proofs.PROVED, not reason))
        rows.append(self._least_agrees())
        ranks = self.table["mechanism"].isin(list(self.results))
        kept = self.table[ranks]
        whole = list(self.table) == COLUMNS and len(made) == len(kept) == len(self.results)
        whole = whole and {*kept["mechanism"]} == {*self.results}
        if whole := whole and ranks.equals(self.table["error"].notna()):
            stated = kept.set_index("mechanism")
            fresh = ranked(made, self.least, self.continuous).set_index("mechanism")
            for name, column in product(self.results, fresh.columns.difference(["seconds", "note"])):
                near = proofs.close(stated.loc[name, column], fresh.loc[name, column])
                claim = f"{name}: the table shows its {column}"
                rows.append(proofs.agreement(claim, proofs.RECOMPUTED, near))
            again = ranked(self.table.to_dict("records"), self.least, self.continuous)
            whole = again["mechanism"].equals(self.table["mechanism"])
        claim = "every mechanism that the table ranks has a result"
        rows.append(proofs.agreement(claim, proofs.PROVED, whole))
        rows.append(proofs.agreement(proofs.OWN_WORDS, proofs.CLAIMED, True))
        return rows

    def _least_agrees(self) -> proofs.Claim:
        """Check that the stated least error is that of a result's bound, or for reports at most one that is recomputed, more precisely if need be."""
        claim = "the least error is proved" if self.least is not None else "no least error is stated"
        try:
            with proofs.fitting():
                found, name = least_error(self.question, self.privacy, self.results)
                holds = (self.least, self.least_name) == (found, name)
                if not holds and isinstance(self.question, LocalReport) and self.least_name == name:
                    found, _ = least_error(self.question, self.privacy, self.results, gap=1e-8)
                    holds = 0 < (self.least or 0.0) <= (found or 0.0)
        except MechdesignError:
            holds = False
        return proofs.agreement(claim, proofs.RECOMPUTED, bool(holds))

    @property
    def best(self) -> Result:
        """The result of least error that can be deployed; mechanisms for simulation only are skipped.

        A question about whole numbers gets noise on the integers, unless that has over 5% more error than rounded answers with
        continuous noise: round these, which preserves their privacy.
        """
        return self.results[self._best_name]

    @property
    def _best_name(self) -> str:
        ready = (name for name in self.names if getattr(self.results[name].mechanism, "deployable", True))
        return next(ready, self.names[0])

    @property
    def accuracy(self) -> dict[str, Accuracy]:
        """Return the errors of each mechanism in the answer's units, best first."""
        return {name: self.results[name].errors(self.question) for name in self.names}

    @property
    def refused(self) -> dict[str, str]:
        """Mechanisms that do not apply, with the reasons."""
        rows = self.table[~self.table["mechanism"].isin(list(self.results))]
        return dict(zip(rows["mechanism"], rows["note"]))

    @property
    def reference(self) -> str:
        """Description of the error to which ratios refer."""
        if self.least is not None:
            return f"the proved least, {self.least:.6g}: {self.least_name}"
        whole = self._mixed and self.names[0] not in self.continuous
        found = "best whole-number noise found" if whole else "best found"
        return f"the {found}, {self.names[0]} (no lower bound for all of these is proved)"

    @property
    def _mixed(self) -> bool:
        """Whether some mechanisms answer in whole numbers, as asked, and some do not."""
        return 0 < len(self.continuous) < len(self.results)

    @property
    def _order(self) -> str:
        if not self._mixed:
            return "Best first."
        last = list(self.table["mechanism"][_late(self.table, self.continuous)])
        late = f"Best first: whole-number noise, then continuous noise ({', '.join(n for n in last if n in self.results)})."
        first = [name for name in self.continuous if name not in last]
        if not first:
            return late
        return f"{late} Whole-number noise has over 5% more error than rounded answers of {', '.join(first)}, which are as private."

    @property
    def together(self) -> str:
        """Return the gain of dependent noise over independent noise in words, if it is the best; otherwise ""."""
        known = candidates(self.question)
        alone = [name for name in self.names if name in known and not known[name].together]
        best = self._best_name
        if not alone or best not in known or not known[best].together:
            return ""
        least = min(alone, key=lambda name: self.question.error(self.results[name]))
        ratio = self.question.error(self.results[least]) / self.question.error(self.results[best])
        if ratio < 1 + 1e-9:
            return ""
        return f"The best independent noise, {plain(least)}, has {shown(ratio, 4)} times the error of {plain(best)}."

    @property
    def bounds(self) -> dict[str, float]:
        """Return the highest proved lower bounds of independent noise, from results for the question itself."""
        found: dict[str, float] = {}
        changes = getattr(self.question, "changes", None)  # bounds that hold for a list allow more than it
        for name in self.names if changes is None and not getattr(self.question, "integer", False) else ():
            result, of = self.results[name], self.results[name].mechanism_class
            if name in self.others or of is None or result.bound_how == proofs.CLAIMED:
                continue
            if of.scope in (proofs.Scope.INDEPENDENT, proofs.Scope.LOG_CONCAVE) and result.lower_bound:
                found[str(of)] = max(found.get(str(of), 0.0), result.lower_bound)
        return found

    @property
    def _headings(self) -> dict[str, str]:
        least = "best found" if self.least is None else f"proved least ({self.least_name})"
        return {"ratio": f"ratio to the {least}"}

    def to_frame(self) -> pd.DataFrame:
        """Return the table of mechanisms that apply, best first."""
        table = self.table[self.table["mechanism"].isin(list(self.results))].reset_index(drop=True)
        empty = [
            name
            for name in ("bits", "assumes", "note")
            if not (table[name].notna() & (table[name] != "")).any()
        ]
        return table.drop(columns=empty)

    @property
    def of_mean(self) -> str:
        """Describe range, error, bias and bits of the best mechanism for a mean of clients; "" for other questions."""
        if not isinstance(self.question, LocalReport) or self.question.clients is None:
            return ""
        bits = [
            note for result in self.results.values() for note in result.notes if note.startswith("by bits")
        ]
        return _sentence("; ".join([self.question.mean.words(self.best.mechanism), *bits])) + "."

    def plot(self, **options: float) -> Figure:
        """Draw the error of each mechanism relative to the reference; for a mean of clients, the best mechanism's error over the clipping range."""
        if self.of_mean:
            assert isinstance(self.question, LocalReport)
            return self.question.mean.plot(self.best.mechanism, **options)
        frame = self.to_frame()
        ratios = frame["ratio"].to_numpy(dtype=float)
        label = f"error over the {'best found' if self.least is None else 'proved least'}"
        scale = "log" if np.nanmax(ratios) > 30 else "linear"
        fig = draw_bars(frame["mechanism"], ratios, options, xlabel=label, xscale=scale)
        (axis,) = fig.axes
        for k, (name, ratio, error) in enumerate(zip(frame["mechanism"], ratios, frame["error"])):
            axis.annotate(f" {error:.4g}", (ratio, k), va="center", fontsize=8)
            axis.patches[k].set_facecolor(COLOURS[2] if name == self._best_name else COLOURS[0])
        axis.axvline(1.0, color=COLOURS[6], linewidth=0.8)
        axis.margins(x=0.15)
        return fig

    def _page(self) -> Page:
        name, whole = self._best_name, self._mixed and self._best_name not in self.continuous
        count = len(self.results) - len(self.continuous) * whole
        title = f"{_sentence(name)} is best of {count}{' on whole numbers' if whole else ''}"
        title += "" if name == self.names[0] else " that can be deployed"
        caption = "Error of each mechanism over the reference; the error is written next to the bar."
        if self.of_mean:
            caption = (
                f"The outputs of {plain(name)}, moved along with the range, and what the error is made of."
            )
        best = [replace(one, title=one.title and f"{name}: {one.title}") for one in self.best.sections()]
        return self._paged(title, self._lines(), caption, (), best)

    def _lines(self) -> list[str]:
        return [
            f"{self.question}; {self.privacy}",
            f"ratio: to {self.reference}",
            *filter(None, (self._order if self._mixed else "", self.together, self.of_mean)),
            *(f"{name}: {OTHER}" for name in self.others),
            *(f"lower bound of {of}: {shown(bound, 5)}" for of, bound in self.bounds.items()),
            *(f"not {name}: {reason}" for name, reason in self.refused.items()),
        ]

    def __str__(self) -> str:
        frame, (head, *lines) = (
            self.to_frame()[["mechanism", *_NUMBERS, "privacy"]],
            map(folded, self._lines()),
        )
        for name in _NUMBERS:
            frame[name] = [shown(v, 5) for v in frame[name]]
        return "\n".join([head, frame.to_string(index=False, line_width=width()), *lines])


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


COLUMNS = ["mechanism", "error", "ratio", "standard deviation", "mean absolute error", "95% half-width"]
COLUMNS += ["privacy", "bits", "assumes", "seconds", "note"]
OTHER = "made for another question"
"""Entry of `assumes` for a result that answers a larger question, or is optimal for another loss or prior."""
_STEPS = 200
"""Outputs per side of the grid that bounds the loss of any report: 300 take three times as long and gain .02%, at ε = 4 1.5%."""


def measured(
    name: str,
    question: Question,
    privacy: Requirement,
    result: Result,
    seconds: float = math.nan,
    *,
    fresh: bool = False,
) -> dict[str, object]:
    """Return a row of the table without the ratio; a result that was just certified (`fresh`) is not checked again."""
    found = result.errors(question)
    known, continuous = candidates(question).get(name), question.continuous(result)
    assumes = (
        "" if question.own(result) else OTHER,
        known.assumes if known else "",
        "answers need not be whole" if continuous else "",
    )
    return {
        "mechanism": name,
        "error": question.error(result),
        "standard deviation": found.standard_deviation,
        "mean absolute error": found.absolute_error,
        "95% half-width": found.half_width,
        "privacy": _privacy_claim(result, privacy, fresh),
        "bits": float(fewest(result)),
        "assumes": "; ".join(filter(None, assumes)),
        "seconds": seconds,
        "note": "; ".join((*result.notes, *result.remarks())),
    }


def _privacy_claim(result: Result, privacy: Requirement, fresh: bool) -> str:
    """Return the guarantee, and how the certificate's claim of privacy was checked."""
    if result.certificate is None:
        return "not certified"
    if fresh:
        return f"{guarantee(privacy)}: {result.certificate.privacy_how}"
    claim = result.certificate.privacy_claim()
    return f"{guarantee(privacy)}: {claim.how if claim.holds else 'REFUTED'}"


def _late(table: pd.DataFrame, continuous: Collection[str]) -> pd.Series[bool]:
    """Return which rows rank after noise on the integers: continuous noise, unless it has 5% less error even when rounded.

    Counts should have whole answers. Rounding adds at most ½ to an error. For one number and for five at ε from .1 to 8 and δ up to
    1e-5 named continuous families have at most .8% less error; dependent noise has up to seven times less.
    """
    apart = table["mechanism"].isin(list(continuous))
    whole = table.loc[~apart, "error"].min()
    rounded = table["error"] * (1 + 0.5 / table["standard deviation"]) ** 2
    return apart & ~(rounded * 1.05 < whole)


def ranked(
    rows: list[dict[str, object]], least: float | None, continuous: Collection[str] = ()
) -> pd.DataFrame:
    """Return the table of these rows, best first, with ratios to the proved least error, or to the best found.

    If numbers are whole, `continuous` noise comes after noise on the integers, except as `_late` says.
    """
    table = pd.DataFrame(rows).reindex(columns=COLUMNS).sort_values("error", kind="stable")
    late = _late(table, continuous) + 2 * table["error"].isna()
    table = table.loc[late.sort_values(kind="stable").index].reset_index(drop=True)
    floor = table["error"].head(1).min() if least is None else least
    table["ratio"] = table["error"] / floor if floor > 0 else np.nan
    for name in ("privacy", "assumes", "note"):
        table[name] = table[name].fillna("").astype(object)
    return table


def least_error(
    question: Question,
    privacy: Requirement,
    results: dict[str, Result],
    time_limit: float | None = None,
    *,
    gap: float = 1e-5,
) -> tuple[float | None, str]:
    """Return the proved least error, or None, and the class for which it holds; `gap` is the target gap of the bound for reports."""
    if isinstance(question, LocalReport):
        return _least_report(question, privacy, results, time_limit, gap)
    proved = [
        (question.least(result), f"no {covered.noun} does better")
        for result in results.values()
        if result.lower_bound is not None
        and result.bound_how != proofs.CLAIMED
        and (covered := result.mechanism_class) is not None
        and covered.every
        and result.design.asked_by(question)
        and question.own(result)
        and getattr(question, "changes", None) is None
    ]
    return max(proved, default=(None, ""))


def _least_report(
    q: LocalReport, privacy: Requirement, results: dict[str, Result], time_limit: float | None, gap: float
) -> tuple[float | None, str]:
    """Return a bound for all unbiased reports with any number of outputs within the reach of those compared, from outputs on a fine grid."""
    if q.loss.function is not None or q.clients is not None:
        return None, ""
    reach = max(float(np.abs(result.mechanism.bins).max()) for result in results.values()) * (1 + 1e-12)
    design = OptimalQuantizer(
        Alphabet(reach, reach / _STEPS),
        instance("privacy", privacy, PureDP),
        q.prior,
        q.loss,
        input_range=q.input_range,
    )
    try:
        with progress_bar("lower bound", None):  # raises interrupts
            bound = design.any_outputs_bound(design.solve(gap=gap, time_limit=time_limit))
    except MechdesignError:
        return None, ""
    if bound is None or bound <= 0:
        return None, ""
    return (
        bound,
        f"no unbiased report with outputs up to ±{reach:.4g} does better, however many outputs it has",
    )


# -- trying them all ------------------------------------------------------------------------------------------------

Tried = tuple[dict[str, object], Result | None]
"""A row of the table, and the result if there is one."""


def compare(
    question: Question | MetricSpace,
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
    question: Question | MetricSpace, privacy: Privacy | None, alpha: float | None
) -> tuple[Question, Privacy]:
    if isinstance(question, MetricSpace):
        question = questions.MetricReport(question)
    questions.checked_question(question)
    if isinstance(question, questions.MetricReport | questions.HistogramOfUsers):
        allowed = "a metric space needs alpha, its privacy per unit of distance"
        refuse((alpha is None) == (privacy is None), "alpha", alpha, allowed)
        privacy = MetricDP(positive("alpha", alpha, side=DOWN)) if alpha is not None else privacy
    elif alpha is not None:
        remedy = "is for metric spaces; give privacy, md.PureDP(epsilon) for example"
        raise DesignError.of("alpha", alpha, remedy)
    return question, question.check_privacy(privacy)


def _own(also: object, question: Question, privacy: Privacy, names: list[str]) -> dict[str, Result]:
    found = dict(instance("also", also, Mapping)) if also is not None else {}
    for name, result in found.items():
        refuse(not isinstance(name, str) or name in names, "also", name, "must be a name of its own")
        title = f"also[{name!r}]"
        question.check(title, instance(title, result, Result))
        check_same_privacy(title, result, privacy)
    return found


@dataclass(frozen=True)
class _Try:
    """Solve one mechanism by name, and turn refusals into notes."""

    question: Question
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
                else f"the lower bound of {result.mechanism_class} leaves a gap of {gap_words(result.gap)}"
            )
            row["note"] = "; ".join([f"stopped by its time limit: {proved}", *result.notes])
        return row, result
