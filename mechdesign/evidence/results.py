"""Results: mechanism, value, lower bound and evidence, with tables, prints and a report page."""

from __future__ import annotations

import enum
import html
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.checks import Checked, field, non_negative, refuse, refusing
from mechdesign.errors import DesignError, MechdesignError, ResultFormatError
from mechdesign.evidence import proofs
from mechdesign.evidence.attack import Attack, TradeOff, share
from mechdesign.evidence.digits import at_least, at_most, folded, gap_words, meaningful, width, within
from mechdesign.evidence.page import Exportable, Fact, Page, Section, versions
from mechdesign.evidence.proofs import Certificate, Claim, MechanismClass, Proof, Scope, fitting
from mechdesign.evidence.serialize import dumps, serializable
from mechdesign.typing import Array, Figure, Status

AUDIT_COLUMNS = ["family", "index", "lhs", "rhs", "slack", "dual", "active"]
ACTIVE = 1e-8
"""Largest slack of an active row of an audit."""


def audit_rows(
    family: str | list[str],
    index: Any,
    lhs: Any,
    rhs: Any,
    slack: Array,
    *,
    dual: Any = math.nan,
    active: Any = None,
) -> pd.DataFrame:
    """Return the rows of a family as audits list them."""
    held = slack <= ACTIVE if active is None else active
    return pd.DataFrame(dict(zip(AUDIT_COLUMNS, (family, index, lhs, rhs, slack, dual, held))))


def audit_row(index: object, used: float, most: float, family: str = "privacy") -> pd.DataFrame:
    """Return the row of an amount and its limit; it is active if at most a hundredth is left."""
    slack = np.array([most - used])
    active = (slack <= 1e-2 * most) & (most < math.inf)
    return audit_rows(family, [index], used, most, slack, active=active)


def audited(families: Iterable[tuple[str, Any, Array, Array, Any]]) -> pd.DataFrame:
    """Return rows of a program in the form of an audit, from each family's name, labels, both sides, and multipliers.

    Both sides are sums of doubles: differences within their rounding count as 0.
    """
    parts = []
    for name, labels, lhs, rhs, dual in families:
        slack = rhs - lhs
        slack = np.where(np.abs(slack) <= 8 * np.finfo(float).eps * (np.abs(lhs) + np.abs(rhs)), 0.0, slack)
        parts.append(audit_rows(name, labels, lhs, rhs, slack, dual=dual))
    return pd.concat(parts, ignore_index=True)


@serializable("accuracy")
class Accuracy:
    """Errors of an answer, in its own units; of several coordinates, the average over them.

    Attributes
    ----------
    standard_deviation : float
        Root of the mean squared error.
    absolute_error : float
        Mean absolute error (mean distance, in a metric space).
    half_width : float
        Bound on the error of 19 answers in 20.

    Examples
    --------
    >>> import mechdesign as md
    >>> print(md.accuracy("laplace", md.NumericQuery(), md.PureDP(1.0)))
    standard deviation 1.41421, mean absolute error 1, 95% within ±2.99574
    """

    standard_deviation: float
    absolute_error: float
    half_width: float

    def __str__(self) -> str:
        return (
            f"standard deviation {self.standard_deviation:.6g}, mean absolute error {self.absolute_error:.6g}, "
            f"95% within ±{self.half_width:.6g}"
        )


def accuracy_of(errors: Array, weights: Array) -> Accuracy:
    """Return the accuracy of a discrete law of errors with these probabilities."""
    unit = float(errors.max()) or 1.0  # squares of tiny and huge errors are not doubles
    deviation = unit * math.sqrt(float((weights * (errors / unit) ** 2).sum()))
    return Accuracy(deviation, float((weights * errors).sum()), quantile(errors, weights))


def quantile(errors: Array, weights: Array) -> float:
    """Return the least of `errors` that 95% of the weight does not exceed."""
    order = np.argsort(errors, axis=None)
    below = np.cumsum(weights.ravel()[order])
    return float(errors.ravel()[order][min(int(np.searchsorted(below, 0.95 * below[-1])), errors.size - 1)])


def _word(name: str, value: object, words: type[enum.StrEnum]) -> enum.StrEnum:
    """Return the member of `words` with this value, or raise DesignError."""
    with refusing(name, value, f"must be one of {[word.value for word in words]}"):
        return words(str(value))


@serializable("solve-report")
class SolveReport(Checked):
    """How a result was computed.

    Parameters
    ----------
    solver : str
        The backend that answered.
    status : Status
        How the solve ended, in this package's words.
    seconds, build_seconds : float
        Time in the solver, time to build and compile the model.
    variables, constraints, iterations : int, optional
    requested : str, optional
        The backend that was asked for.
    fallbacks : tuple of str
        Backends that failed before, with their own status.
    """

    solver: str
    status: Status = field(check=_word, words=Status, default=Status.OPTIMAL)
    seconds: float = 0.0
    build_seconds: float = 0.0
    variables: int | None = None
    constraints: int | None = None
    iterations: int | None = None
    requested: str | None = None
    fallbacks: tuple[str, ...] = ()

    @classmethod
    def of(cls, solution: object) -> SolveReport:
        """Take the fields over from a `mechdesign.solvers.Solution`."""
        refuse(not hasattr(solution, "native_status"), "solution", solution, "must be a Solution")
        return cls(**{f.name: getattr(solution, f.name) for f in fields(cls)})

    def lines(self) -> list[str]:
        """Return size of the model, fallbacks, solver and time, for prints."""
        out = []
        if self.variables is not None:
            out.append(f"model as solved: {self.variables} variables, {self.constraints} constraints")
        if self.fallbacks:
            out.append(f"fallback: after {'; '.join(self.fallbacks)}")
        effort = "" if self.iterations is None else f", {self.iterations} iterations"
        return [*out, f"solver: {self.solver}{effort}, {self.seconds:.3g} s"]


@serializable("result", eq=False)
class Result(Checked, Exportable):
    """Mechanism with its evidence, as every design returns it.

    Design and mechanism supply what only they know (the question in words, the table of constraints, the picture);
    no wing has a subclass of it.

    Parameters
    ----------
    design : Design
        The question.
    mechanism : object
        The mechanism to deploy.
    value : float
        An upper bound of the mechanism's cost, computed from the mechanism.
    lower_bound : float, optional
        No mechanism of the class `mechanism_class` costs less.
    solver_report : SolveReport
        How the result was computed.
    notes : tuple of str
        Warnings to read before trusting the result.
    proofs : tuple of Proof
        The evidence; empty if none was asked for or found.
    duals : DataFrame, optional
        Multipliers of the model's constraints: family, index, dual.
    table : DataFrame, optional
        Candidates that a search tried, best first.
    asked_gap : float, optional
        The relative gap that was asked for, which decides the status.
    bound_class : Scope, optional
        Width of the class that the lower bound covers, as files state it; `mechanism_class` follows from design and proofs, and
        a result is refused if the two differ.
    """

    design: Any
    mechanism: Any
    value: float
    lower_bound: float | None = None
    solver_report: SolveReport = field(SolveReport, default=SolveReport("none"))
    notes: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()
    duals: pd.DataFrame | None = field(pd.DataFrame, default=None)
    table: pd.DataFrame | None = field(pd.DataFrame, default=None)
    asked_gap: float | None = field(check=non_negative, default=None)
    bound_class: Scope | None = field(check=_word, words=Scope, default=None)

    def _post_check(self) -> None:
        refuse(not hasattr(self.design, "solve"), "design", self.design, "must be a design")
        proofs.check_proofs(self.proofs)

    @classmethod
    def from_fields(cls, held: dict[str, Any]) -> Result:
        """Return the result of a file, which may omit its proofs only if its status says so."""
        found = cls(**held)
        if not found.proofs and found.status is not Status.UNCERTIFIED:
            raise ResultFormatError(f"no proofs, and the status {found.status.value!r}, which needs them")
        return found

    @property
    def certificate(self) -> Certificate | None:
        """Question, law, value, lower bound, proofs and status, which can be checked alone; None without proofs."""
        return self._stated if self.proofs else None

    def to_vipr(self, path: str | os.PathLike[str]) -> None:
        """Write the lower bound in VIPR format for independent checkers, if it is of a finite linear program (`Certificate.to_vipr`)."""
        self._stated.to_vipr(path)

    @property
    def _stated(self) -> Certificate:
        said = (self.design, self.mechanism, self.value, self.lower_bound, self.proofs)
        return Certificate(*said, agreements=self._agreements)

    @property
    def _headings(self) -> dict[str, str]:
        return {"lower_bound": f"lower bound of {self.mechanism_class}"} if self.mechanism_class else {}

    @property
    def gap(self) -> float | None:
        """(v − b)/v of value v and lower bound b, a fraction that prints show in per cent; None without a lower bound."""
        if self.lower_bound is None:
            return None
        return max(0.0, self.value - self.lower_bound) / max(abs(self.value), 1e-300)

    @property
    def bound_how(self) -> str:
        """How the lower bound is checked: "proved", "recomputed", or "claimed" if no proof covers it."""
        return self._stated.bound_how

    @property
    def mechanism_class(self) -> MechanismClass | None:
        """Class of mechanisms that the lower bound covers, by design and proofs; None without a lower bound."""
        return self._stated.mechanism_class

    @property
    def status(self) -> Status:
        """How the solve ended."""
        return self.solver_report.status

    @property
    def closed(self) -> Status | None:
        """Status that a gap as small as asked allows: `OPTIMAL` if the design optimizes over
        every mechanism, `BEST` if it does over a smaller class; None if the gap is larger.
        """
        gap, asked = self.gap, self.asked_gap
        if gap is None or asked is None or not gap <= asked <= 1:
            return None
        return Status.OPTIMAL if self.design.mechanism_class.every else Status.BEST

    @property
    def status_words(self) -> str:
        """How the solve ended, with class and gap if the result is best of a class."""
        asked = "" if self.asked_gap is None else f"to a gap of {100 * self.asked_gap:.3g}%"
        if self.status is Status.OPTIMAL:
            return f"optimal: no {self.design.mechanism_class.noun} does better, {asked}"
        if self.status is Status.BEST:
            return f"best of {self.design.mechanism_class}, {asked}"
        return str(self.status.value)

    def problem(self) -> Any:
        """Return the optimization model that was solved, to print, extend and solve again: `Problem`.

        Its parameters are the ones of the design: after their values are changed it is the model at the new values.

        Raises
        ------
        DesignError
            The design states no program.
        """
        if not hasattr(self.design, "problem_of"):
            raise DesignError.of("design", type(self.design).__name__, "states no program")
        return self.design.problem_of(self)

    @property
    def box(self) -> Any:
        """Return the bounds o and u of the best box of a design that searches boxes (`OPTM`).

        Raises
        ------
        DesignError
            The design searches none.
        """
        if not hasattr(self.design, "box_of"):
            raise DesignError.of("design", type(self.design).__name__, "searches no boxes of bounds")
        return self.design.box_of(self)

    def release(self, x: Any, *, ledger: Any = None, disjoint: bool = False, **options: Any) -> Any:
        """Return the answer with noise, as the mechanism's own `release` does: for deployment.

        Parameters
        ----------
        x : object
            The true answer; without a ledger several too, each of which consumes all of the budget unless nobody is in two.
        ledger : Ledger, optional
            The budget consumed is entered there before any noise is drawn; the answer then is a `mechdesign.plan.Released`. An entry is one
            answer of the design's dimension.
        disjoint : bool
            With a ledger: states that nobody is in two of the answers, which then are one entry.
        **options
            Passed to the mechanism's `release`.

        Raises
        ------
        DesignError
            The ledger has too little left, or there are several answers. Nothing is drawn then.
        DataError
            The mechanism does not answer `x`.
        """
        if ledger is None:
            refuse(disjoint is not False, "disjoint", disjoint, "is said to a ledger: give one")
            return self.mechanism.release(x, **options)
        refuse(not hasattr(ledger, "charge"), "ledger", ledger, "must be a Ledger: md.Ledger(path, budget)")
        return ledger.release(self, x, disjoint=disjoint, **options)

    # -- what the design and the mechanism say ---------------------------------------------------------

    def audit(self) -> pd.DataFrame:
        """Recompute every constraint of the definition from the mechanism alone.

        Returns
        -------
        DataFrame
            Columns family, index, lhs, rhs, slack (≥ 0 when satisfied), dual, active. Families that begin with "model: " are rows of the
            program that was solved, the others of the definition.

        Raises
        ------
        ResultFormatError
            The parts do not fit together, as they do not in a file that was changed.
        """
        with fitting():
            return Audit(self.design.audit(self))

    def checks(self) -> pd.DataFrame:
        """Check every claim, and tabulate how it was checked, its margin, whether it holds, and what it is about.

        About the mechanism: privacy, bias, value, lower bound. About the file: that its parts agree with each other, and that
        the status is one that its numbers allow.
        """
        return self._stated.checks()

    def _agreements(self) -> Iterator[Claim]:
        """Yield claims that class and status are those that design, proofs and numbers allow."""
        found = None if self.mechanism_class is None else self.mechanism_class.scope
        if found is not None or self.bound_class is not None:
            claim = f"the lower bound is of {self.bound_class or 'no class that is stated'}"
            yield proofs.agreement(claim, proofs.PROVED, self.bound_class == found)
        if self.duals is not None and any(
            str(name).startswith("model:") for name in self.duals.get("family", ())
        ):
            yield proofs.agreement(OF_SEARCH, proofs.CLAIMED, True)
        if self.status in (Status.OPTIMAL, Status.BEST):
            claim = f"status {self.status.value!r}: value and lower bound are as close as was asked"
            left = math.nan if self.gap is None or self.asked_gap is None else self.asked_gap - self.gap
            closed = self.closed is self.status and bool(self.proofs)
            yield Claim(claim, self.bound_how, left, closed, proofs.ABOUT_FILE)

    def to_frame(self) -> pd.DataFrame:
        """Return the main table, tidy."""
        with fitting():
            return self.design.frame(self)

    def question(self) -> str:
        """Return the question in words: what is asked, the guarantee, the unit of privacy, what is minimised."""
        return str(self.design.question(self))

    def alternatives(self) -> pd.DataFrame:
        """Tabulate what other mechanisms cost at the same privacy: mechanism, error, relative."""
        with fitting():
            return self.design.alternatives(self)

    def remarks(self) -> list[str]:
        """Return warnings about the mechanism that its numbers do not show: outputs of probability 0, for example."""
        said: list[str] = self.design.remarks(self)
        return said

    def plot(self, **options: float) -> Figure:
        """Draw the mechanism."""
        drawn: Figure = self.design.plot(self, **options)
        return drawn

    def trials(self) -> pd.DataFrame:
        """Tabulate what a search tried, best first; empty if nothing was searched."""
        with fitting():
            return self.design.trials(self)

    def errors(self, question: object = None) -> Accuracy:
        """Return the errors of an answer: standard deviation, mean absolute error, 95% half-width.

        Parameters
        ----------
        question : optional
            Question whose prior averages errors that depend on the input; the design's own by default.
        """
        if question is not None and not hasattr(question, "asks"):
            raise DesignError.of("question", question, "must be one of the questions of compare")
        found: Accuracy = self.design.errors(self, question)
        return found

    def tradeoff(self, *at: float) -> TradeOff:
        """Bound an attacker's gain by a trade-off curve: the mechanism's exact one, or the requirement's if no profile is known.

        Parameters
        ----------
        *at : float
            Shares of the innocent at which the curve is as low as it can be.

        Examples
        --------
        >>> import mechdesign as md
        >>> result = md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0)
        >>> round(result.tradeoff().advantage, 5), round(result.attack(0.01).found, 5)
        (0.39347, 0.02718)
        """
        allowed = "leaves open what the mechanism keeps: solve with certify=True"
        refuse(not self.proofs and not hasattr(self.mechanism, "privacy_profile"), "certify", False, allowed)
        found: TradeOff = self.design.tradeoff(self, at)
        return found

    def attack(self, alpha: float, *, prior: float | None = None) -> Attack:
        """Bound the share of the guilty found by accusing a share `alpha` of the innocent; with a `prior`, also how often accusations are right."""
        return self.tradeoff(share("alpha", alpha)).attack(alpha, prior=prior)

    # -- prints and pages --------------------------------------------------------------------------------

    def __str__(self) -> str:
        with fitting():
            # a bound for a larger class than the design's does not tell the digits of the value
            digits = meaningful(self.gap if self.mechanism_class == self.design.mechanism_class else None)
            lines = [f"value: {at_most(self.value, digits)}"]
            if self.lower_bound is not None:
                bound = at_least(self.lower_bound, digits)
                away = "; ".join(filter(None, (f"gap {gap_words(self.gap or 0.0)}", within(self.gap or 0.0))))
                lines.append(f"lower bound: {bound} ({self.bound_how}) of {self.mechanism_class}, {away}")
            lines += [f"status: {self.status_words}", *self.design.lines(self)]
            lines += [f"note: {note}" for note in (*self.notes, *self.remarks())]
            head = f"{type(self.design).__name__}: {self.design.stated(self)}"
            return folded("\n  ".join([head, *lines, *self.solver_report.lines()]))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>{super()._repr_html_()}"

    def _page(self) -> Page:
        with fitting():
            said, asked = self.design.describe(self), self.design.required(self)
            table = self.checks()
            return {
                "title": f"{said.title} at {asked}" if asked else said.title,
                "subtitle": f"{type(self.design).__name__} minimises the {said.loss}.",
                "kind": "mechdesign report",
                "facts": _headline(self, ("Privacy", asked, ""), said.loss, table),
                "sections": tuple(_result_sections(self, said, table)),
            }


OF_SEARCH = 'rows "model: …" of the audit are stated by the search, and not checked'


class Audit(pd.DataFrame):  # type: ignore[misc]  # pandas has no types
    """Constraints, a row each; printed with all columns, as wide as the terminal, and up to 80 rows whole."""

    @property
    def _constructor(self) -> type[Audit]:
        return Audit

    def __repr__(self) -> str:
        rows = len(self) if len(self) <= _ROWS else 20
        for most in (None, *range(width() // 2, 0, -1)):  # cuts the names of rows until all fit
            said: str = self.to_string(max_rows=rows, max_colwidth=most, float_format="{:.4g}".format)
            if max(map(len, said.splitlines())) <= width():
                break
        every = f"{len(self)} rows; all of them: print(audit.to_string()), or audit.to_csv(path)"
        return said if rows == len(self) else folded(f"{said}\n{every}")


_SHOWN = 12
"""Rows and columns of the mechanism's table on a page."""
_ROWS = 80
"""Rows of an audit that are printed whole."""
_ONE_IN = 0.01
"""Share of the innocent accused by the attackers that a page bounds."""
_HOW = {
    proofs.PROVED: "recomputed from the statement, the law and the multipliers in exact or outward-rounded arithmetic",
    proofs.RECOMPUTED: "computed anew in floating-point numbers, with an estimate of the error",
    proofs.CLAIMED: "stated by the solver or the design, and not checked here",
}


def _headline(result: Result, privacy: Fact, loss: str, table: pd.DataFrame) -> list[Fact]:
    """Return the key numbers: privacy, value, lower bound, gap, status, and how many claims hold."""
    bound, digits = result.lower_bound, meaningful(result.gap, 7)
    # The value to the digits of its gap is an upper bound, and not what a print to the nearest digit gives.
    value = at_most(result.value, digits)
    facts = [privacy, ("Error", value, loss + " (rounded up)" * (float(value) != result.value))]
    if bound is not None and result.mechanism_class is not None and math.isfinite(bound):
        others = "" if result.mechanism_class.every else "; others may"
        down = " (rounded down)" * (float(at_least(bound, digits)) != bound)
        least = f"{result.bound_how}: no {result.mechanism_class.noun} costs less{others}{down}"
        if far := within(result.gap or 0.0):  # a distant bound is no headline
            facts.append(("Lower bound", "not near", f"{at_least(bound, digits)}, {least}; {far}"))
        else:
            facts.append(("Lower bound", at_least(bound, digits), least))
            facts.append(("Gap", gap_words(result.gap or 0.0), "(error − lower bound)/error"))
    else:
        facts.append(("Lower bound", "none", "it is not known how much better others are"))
    closed = result.status in (Status.OPTIMAL, Status.BEST)
    asked = f"to a gap of {100 * result.asked_gap:.3g}%" if closed and result.asked_gap is not None else ""
    facts.append(("Status", result.status.value, asked))
    held, _, words = proofs.counted(table).partition(" claims hold ")
    words += f"; as computed by mechdesign {metadata.version('mechdesign')} when the page was made"
    facts.append(("Claims that hold", held, words))
    failed = int((~table["holds"]).sum())
    warning = (
        "Warning",
        "do not deploy",
        f"{failed} of the claims below {'does' if failed == 1 else 'do'} not hold",
    )
    return [warning, *facts] if failed else facts


def _result_sections(result: Result, said: Any, table: pd.DataFrame) -> Iterator[Section]:
    """Yield the sections of the page of a result."""
    yield Section("What was asked", result.question())
    lines = [f"- {line}" for line in result.design.lines(result)]
    with suppress(MechdesignError):
        lines.append(f"- an answer: {result.errors()}")
    numbers = result.to_frame()
    narrow = None if len(numbers.columns) > _SHOWN else numbers
    yield Section("The mechanism", "\n".join(lines), narrow, caption="The mechanism in numbers", rows=_SHOWN)
    yield Section("", figure=result.plot, caption=said.picture)
    with suppress(DesignError):  # a distance has no end, or nothing is promised at any epsilon
        DesignError.when(not table["holds"].all(), "of a law that breaks its claims nothing is said")
        curve = result.tradeoff(_ONE_IN)
        yield Section(
            "What an attacker gains",
            f"{str(curve.attack(_ONE_IN)).capitalize()}, whatever else is known of everybody. {said.attacked}".strip(),
            figure=curve.plot,
            caption="What is found at most, by what share of the innocent is accused.",
        )
    others = result.alternatives()
    if len(others):
        yield Section("Against the alternatives", said.rivals, others, caption="Error at the same privacy")
    trials = result.trials()
    if len(trials):
        yield Section(
            "What the search tried",
            "Computed for this page." if result.table is None else "Stated by the search, not checked.",
            trials,
            rows=12,
            caption=f"The best of {len(trials)} that were tried",
        )
    how = "\n".join(f"- {how}: {words}" for how, words in _HOW.items() if (table["how"] == how).any())
    own = (
        "Claims about the file are that the law is one, and that the result does not contradict itself: without these, the "
        "claims above might be those of another mechanism."
    )
    yield Section(
        "What is proved, and how",
        f"{how}\n\n{own}",
        table.sort_values("about", ascending=False, kind="stable").assign(
            margin=[*map(margin_of, table.itertuples())]
        ),
        caption="Every claim. The margin is what is left before it would fail.",
        digits=3,
    )
    constraints = result.audit()
    if len(constraints):
        least = proofs.tightest(constraints, 12)[["family", "index", "lhs", "rhs", "slack"]]
        yield Section(
            "Tightest constraints",
            "Recomputed from the mechanism alone. A slack of 0 means that the requirement is used up, not that it is broken.",
            least.astype({"index": str}),
            caption=f"The least slack of {len(constraints)} constraints, each family's tightest first",
        )
    yield _to_check(result)
    yield from _notes(result)


def margin_of(claim: Any) -> float | str:
    """Return the slack of a claim, or why nothing is measured."""
    unmeasured = "not checked" if claim.how == proofs.CLAIMED else "yes or no"
    return unmeasured if math.isnan(claim.margin) else float(claim.margin)


def _notes(result: Result) -> Iterator[Section]:
    """Yield remarks computed for this page, then notes of the file, which nothing checks."""
    remarks = "".join(f"- {' '.join(note.split())}\n" for note in result.remarks())
    said = (*result.notes, *result.solver_report.lines())
    quoted = "\n".join(f"- \u201c{' '.join(note.split())}\u201d" for note in said)
    own = "Stated by the file, not checked, in the design's own words:"
    yield Section(
        "Notes and versions", f"{remarks}\n{own}\n\n{quoted}", versions(), caption="What made this page"
    )


_CHECKED = (
    "Numbers and claims are as computed when this page was made; opening it checks nothing. The result file holds the question, the law and "
    "the multipliers, from which all claims can be computed anew: drop this page on the page 'Check a file' of the documentation (checker.html), "
    "from a copy that does not come from whoever sent this one.\n\nThe first command unpacks the file. verify.pyz is a second program, which needs "
    "Python's standard library and nothing else: make it from a copy of mechdesign that you trust (python -m mechdesign.verifier.archive "
    "verify.pyz), not from whoever sent this page. It prints every claim that it checked, and exits with 0 when all hold, 1 when one does not, and "
    "2 where it does not cover this kind of result. The last command makes the checks of both programs. The documentation says more: Deploy and "
    "hand over (docs/guides/deploy.rst)."
)
_COMMANDS = "python -m gzip -d result.json.gz\npython verify.pyz result.json\nmechdesign verify result.json"


def _to_check(result: Result) -> Section:
    try:
        return Section("Check it yourself", _CHECKED, code=_COMMANDS, file=("result.json", dumps(result)))
    except MechdesignError as error:
        words = f"This {type(result).__name__} cannot be written to a file, and both verifiers read files: {' '.join(str(error).split())}"
        return Section("Check it yourself", words)
