"""Solve a design: search, stop at the gap or the time limit, certify, report. All designs share this loop.

A design states its paper's algorithm in `Design.improve`: a generator of laws and lower bounds, the better ones
later. Everything else is here: options, the clock, the gap, the best law and bound so far,
certification, the status, interruption.

>>> import mechdesign as md
>>> result = md.noise.KNorm(3, md.PureDP(1.0)).solve()
>>> result.status, round(result.value, 2)
(<Status.BEST: 'best of its class'>, 6.66)
"""

from __future__ import annotations

import inspect
import math
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from types import NoneType
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.checks import Checked, inside, one_of
from mechdesign.errors import DesignError, MechdesignError, SolverError, unlike
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import gap_words
from mechdesign.evidence.proofs import PROVED, Certificate, Claim, MechanismClass, Proof, family
from mechdesign.evidence.results import AUDIT_COLUMNS, Accuracy, Result, SolveReport
from mechdesign.plotting import draw_bars
from mechdesign.problem.privacy import Consumption, Description, PureDP, guarantee, points_of, stated
from mechdesign.problem.sensitivity import NEIGHBOURS, Protection, Sensitivity
from mechdesign.solvers.deadline import Deadline, has_outer_bar, progress_bar, too_late
from mechdesign.typing import Figure, Status


@dataclass(frozen=True, eq=False)
class Law:
    """A private mechanism and an upper bound of its cost.

    Parameters
    ----------
    mechanism : object
    value : float
        Its cost, rounded up.
    proofs : tuple of Proof
        Proofs of privacy, bias and value; empty if `Design.certified` adds them, to the best law only.
    report : SolveReport
        How the law was found; the spine sets seconds and status.
    notes : tuple of str
    duals, table : optional
        As in `Result`.
    """

    mechanism: Any
    value: float
    proofs: tuple[Proof, ...] = ()
    report: SolveReport = field(default_factory=lambda: SolveReport("closed form"))
    notes: tuple[str, ...] = ()
    duals: object = None
    table: pd.DataFrame | None = None


@dataclass(frozen=True, eq=False)
class Bound:
    """Lower bound on the cost of every mechanism of a class: `Proof.mechanism_class`, or `Design.mechanism_class` without a proof.

    Parameters
    ----------
    value : float
        Rounded down.
    proof : Proof, optional
        None if the bound is only claimed, or if a proof of the law includes it.
    """

    value: float
    proof: Proof | None = None


class Clock(Deadline):
    """Time limit and target gap of a solve.

    Parameters
    ----------
    seconds : float, optional
    gap : float
    certify : bool
        Whether the result is to be certified.
    """

    def __init__(self, seconds: float | None = None, *, gap: float = 0.0, certify: bool = True) -> None:
        super().__init__(seconds)
        self.gap, self.certify = gap, certify
        self.unmade: Iterator[Law | Bound] | None = None
        """Closed forms of which the limit left some to be made."""
        self.interrupted = False
        """Whether Ctrl-C ended the search."""


class Incumbent:
    """Best laws and lower bound found so far."""

    def __init__(self) -> None:
        self.laws: list[Law] = []
        self.bound: Bound | None = None

    def take(self, found: Law | Bound) -> None:
        """Insert a law, sorted by value, or replace the bound by a higher one."""
        if isinstance(found, Law):
            self.laws = sorted([*self.laws, found], key=lambda law: law.value)
        elif self.bound is None or found.value > self.bound.value:
            self.bound = found

    @property
    def gap(self) -> float:
        """(v − b)/v of the least value and the highest lower bound; infinite while one is missing."""
        if not self.laws or self.bound is None:
            return math.inf
        value = self.laws[0].value
        return max(0.0, value - self.bound.value) / max(abs(value), 1e-300)


class _Listed(ABCMeta):
    """Metaclass of designs: `dir` and `help` list what a user calls, without Python's own attributes."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("__")]


class Design(Checked, metaclass=_Listed):
    """Base class of designs: frozen dataclasses that check their fields and are solved by `solve`."""

    default_gap: ClassVar[float] = 1e-9
    """Target gap of `solve` if none is given."""
    asks: ClassVar[str] = ""
    """Kind of question that its mechanisms answer in a comparison: "numbers", "report" or "places"; "" for none."""
    central: ClassVar[bool] = False
    """Whether its mechanisms answer about a whole data set, so that a ledger counts them; those with "numbers" always do."""

    @property
    def mechanism_class(self) -> MechanismClass:
        """Class of mechanisms that the design optimizes over, and that its lower bounds cover unless their proofs cover more.

        A design that seeks the best of all mechanisms for its question states that here: only its results can be
        "optimal". All others find the best of their class.
        """
        return family(f"{type(self).__name__} mechanism")

    @abstractmethod
    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield laws and lower bounds until nothing improves; the spine stops at the gap or at the clock.

        Pass ``clock.limit()`` to solvers called inside. Options of `solve` are this generator's keyword arguments.
        """

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield laws and bounds that need no search; `solve` falls back on them when the clock stops `improve`."""
        yield from ()

    def certified(self, law: Law, clock: Clock) -> Law:
        """Return the law with proofs and exact numbers.

        Raises
        ------
        MechdesignError
            The law cannot be certified; the spine tries the next one.
        """
        return law

    # -- theorems ----------------------------------------------------------------------------------------

    law_takes: ClassVar[type] = NoneType
    """Class of `LawProof.given`: the data that `law_claims` needs besides question and law."""
    bound_takes: ClassVar[type] = NoneType
    """Class of `ClosedBound.given`: the data that `least_cost` needs besides question and law."""
    rows_take: ClassVar[type] = NoneType
    """Class of `RowsBound.given`: which of several linear programs the rows are of."""
    bound_how: ClassVar[str] = PROVED
    """How `least_cost` is computed: `PROVED`, or `RECOMPUTED` in doubles."""

    def bounded_class(self, stated: Certificate, given: Any) -> MechanismClass:
        """Return the class of mechanisms whose cost `least_cost` bounds."""
        return self.mechanism_class

    def law_claims(self, stated: Certificate, given: Any) -> Iterator[Claim]:
        """Recompute the claims of a `LawProof`: the law is private, has this bias, and costs at most the value."""
        allowed = f"must not be there: {type(self).__name__} has another proof of its law"
        raise DesignError.of("proofs", "law-proof", allowed)

    def privacy_checked(self, law: Any, given: Any) -> str:
        """Return how `law_claims` checks privacy: as `given.how` states, else `PROVED`."""
        return getattr(given, "how", PROVED)

    def least_cost(self, stated: Certificate, given: Any) -> Fraction | float:
        """Return a lower bound of the cost of every mechanism of `bounded_class`, as a `ClosedBound` claims it."""
        allowed = f"must not be there: {type(self).__name__} has another bound"
        raise DesignError.of("proofs", "closed-bound", allowed)

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        progress: Callable[[Incumbent], None] | bool | None = None,
        **options: Any,
    ) -> Result:
        """Search, certify, and return the mechanism with its evidence.

        Parameters
        ----------
        solver : str, optional
            Of a design stated as a model: a registered backend (`mechdesign.solvers.available`), or one of the design's own `algorithms`; by
            default one that fits. No solver is trusted: its solution is repaired and proved in exact arithmetic.
        gap : float, optional
            Gap (v − b)/v between value v and lower bound b at which to stop, a fraction; `default_gap` if not given.
        certify : bool
            Whether to make the mechanism exact and prove that it meets the requirement.
        time_limit : float, optional
            Seconds after which the best law and bound so far are returned; certification may take a second more, or 5%.
        progress : callable or False, optional
            Called with the `Incumbent` at every improvement. False hides the line that a terminal shows after two seconds.
        **options
            Options of the solver, or of this design's `improve`.

        Raises
        ------
        DesignError
            An option that the design does not know, or a value it does not take.
        InfeasibleError
            No mechanism meets the requirement.
        SolverError
            Nothing feasible was found, or not within the time limit; a mechanism found before a solver fails is returned, and its notes say so.
        KeyboardInterrupt
            Ctrl-C before a mechanism was found, or with ``certify=False``; after that, the best so far is returned and its notes say so.

        Examples
        --------
        >>> import mechdesign as md
        >>> result = md.PrivateChoice(3, md.PureDP(1.0)).solve(time_limit=60)
        >>> round(result.value, 4), result.certificate.verify()
        (0.3257, True)
        """
        clock = Clock(time_limit, gap=self._wanted(gap), certify=one_of("certify", certify, (True, False)))
        if options := {**options, **({} if solver is None else {"solver": solver})}:
            self._check_options(options)
        if not (progress is None or progress is False or callable(progress)):
            raise DesignError.of("progress", progress, "must be a function of an Incumbent, or False")
        incumbent, part_of_another = Incumbent(), has_outer_bar()
        noise = getattr(self, "noise", None)
        label = f"{type(self).__name__} of {noise}" if isinstance(noise, str) else type(self).__name__
        with progress_bar(label, None, shown=progress is not False) as step:
            try:
                for found in self.improve(clock, **options):
                    incumbent.take(found)
                    step(f", gap {incumbent.gap:.2%}" if math.isfinite(incumbent.gap) else "")
                    if progress:
                        self._show(progress, incumbent)
                    if incumbent.gap <= clock.gap or (clock.passed and incumbent.laws):
                        break
            except KeyboardInterrupt:
                # a step of another solve, or a value alone, has no notes that a user reads
                if part_of_another or not incumbent.laws or not clock.certify:
                    raise
                clock.interrupted = True
            except SolverError as error:
                if error.status != "limit" and not incumbent.laws:
                    raise
                clock.failed(error, "the best mechanism found before it")
            except (ArithmeticError, np.linalg.LinAlgError) as error:
                asked = "asks for numbers that doubles do not hold: choose other units or another budget"
                raise DesignError(f"{type(self).__name__}: {asked}") from error
            if not incumbent.laws or (clock.passed and incumbent.gap > clock.gap):
                unmade = self.closed_forms() if clock.unmade is None else clock.unmade
                while not incumbent.laws or clock.elapsed < clock.late.seconds:
                    if (known := next(unmade, None)) is None:
                        break
                    incumbent.take(known)
            if not incumbent.laws:
                raise too_late(type(self).__name__)
            return self._result(incumbent, clock)

    @staticmethod
    def _show(progress: Callable[[Incumbent], None], incumbent: Incumbent) -> None:
        try:
            progress(incumbent)
        except Exception as error:
            raise DesignError.of("progress", progress, f"fails on an Incumbent ({error})") from error

    def _wanted(self, gap: float | None) -> float:
        return inside("gap", self.default_gap if gap is None else gap, 0, 1, ": a relative distance")

    def _check_options(self, options: Mapping[str, Any]) -> None:
        parameters = inspect.signature(self.improve).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return  # options of a named solver: `improve` passes them on
        self._known(options, [*parameters][1:])

    def _known(self, options: Iterable[str], known: list[str]) -> None:
        if unknown := sorted(set(options) - set(known)):
            own = ["gap", "certify", "time_limit", "progress"]
            listed = ", ".join(known) or f"none besides {', '.join(own[:-1])} and {own[-1]}"
            said = f"{unlike(unknown, [*known, *own], needed=False)}: {type(self).__name__} has {listed}"
            raise DesignError.of("options", unknown, said)

    def _result(self, incumbent: Incumbent, clock: Clock) -> Result:
        law, bound = incumbent.laws[0], incumbent.bound
        if clock.certify:
            law = self._first_certified(incumbent.laws, clock)
        lower = None if bound is None else self._below(bound.value, law.value)
        proof = () if bound is None or bound.proof is None else (bound.proof,)
        # a proof that covers law and bound stands once
        proofs = (*{type(one): one for one in (*law.proofs, *proof)}.values(),) if clock.certify else ()
        found = Result(
            design=self,
            mechanism=law.mechanism,
            value=law.value,
            lower_bound=lower,
            notes=tuple(dict.fromkeys((*law.notes, *clock.failures, *_not_released(law.mechanism)))),
            proofs=proofs,
            duals=law.duals,
            table=law.table,
            asked_gap=clock.gap,
        )
        found = replace(found, bound_class=found.mechanism_class.scope if found.mechanism_class else None)
        if clock.interrupted:
            missing = "no lower bound was" if found.gap is None else f"a gap of {gap_words(found.gap)} is"
            said = (
                f"interrupted after {clock.elapsed:.3g} s: the best mechanism found by then; {missing} proved"
            )
            found = replace(found, notes=(*found.notes, said))
        status = self._status(found, clock)
        return replace(found, solver_report=replace(law.report, status=status, seconds=clock.elapsed))

    def _below(self, bound: float, value: float) -> float:
        """Return the bound, capped at the value; raise SolverError if it exceeds the value by more than rounding."""
        if bound > value + 1e-6 * abs(value):
            message = f"the lower bound {bound!r} is above the value {value!r}: one of the two is wrong"
            raise SolverError(message, solver=type(self).__name__, status="check")
        return min(bound, value)

    def _first_certified(self, laws: list[Law], clock: Clock) -> Law:
        """Certify laws in the order of value, until the others cannot cost less by more than the gap; return the best, or raise the first failure if none passes."""
        reason, best = None, None
        for law in laws:
            if best is not None and best.value - law.value <= clock.gap * abs(best.value):
                break
            try:
                made = self.certified(law, clock)
                best = made if best is None or made.value < best.value else best
            except MechdesignError as error:
                reason = reason or error
        if best is None:
            assert reason is not None
            raise reason
        return best

    def _status(self, found: Result, clock: Clock) -> Status:
        if not found.proofs:
            return Status.UNCERTIFIED
        if found.closed is not None:
            return found.closed
        if clock.passed or clock.interrupted:
            return Status.LIMIT
        return Status.GAP if found.mechanism_class == self.mechanism_class else Status.FEASIBLE

    def protection(self) -> Protection:
        """Return the changes that the noise protects; designs that answer "numbers" define it."""
        raise DesignError.of("mechanism", type(self).__name__, "must be noise, for numbers")

    @property
    def neighbours(self) -> str:
        """Neighbouring relation, "add-remove" or "replace". Designs whose changes do not state it have it as a field."""
        changes = self.protection().changes if self.asks == "numbers" else None
        if not isinstance(changes, Sensitivity):
            allowed = f"must be one of {NEIGHBOURS} in a design that a ledger counts"
            raise DesignError.of("neighbours", None, allowed)
        return changes.neighbours

    @property
    def answer_size(self) -> int | None:
        """Number of entries of one answer given to `release`; None if `release` takes a single answer of any size."""
        return self.protection().dimension if self.asks == "numbers" else 1

    def asked_by(self, question: object) -> bool:
        """Return whether a comparison's question is the design's own, so that its lower bound holds for the question."""
        return False

    def consumption(self, result: Result) -> Consumption:
        """Return the budget that a release consumes, all rounds together: the requirement, or the mechanism's `consumption` if less."""
        if not (self.asks == "numbers" or self.central):
            remedy = (
                "makes reports of one person each, who is protected by each report alone: a ledger counts what is released "
                "about a whole data set, by designs of noise and by BoundedCount"
            )
            raise DesignError.of("design", type(self).__name__, remedy)
        stated = Consumption.of(getattr(self, "privacy", None))
        if hasattr(result.mechanism, "consumption"):
            stated &= result.mechanism.consumption()
        return replace(stated, neighbours=self.neighbours)

    # -- what a result asks of its design: prints, pages, tables -----------------------------------------

    def audit(self, result: Result) -> pd.DataFrame:
        """Evaluate every constraint of the definition at the mechanism: family, index, lhs, rhs, slack, dual, active.

        The table is for reading. `Proof.check` yields the claims, and `mechdesign.verifier` checks them again, independently.
        """
        return pd.DataFrame(columns=AUDIT_COLUMNS)

    def frame(self, result: Result) -> pd.DataFrame:
        """Return the main table of a result."""
        row = {"value": [result.value], "lower_bound": [result.lower_bound], "status": [result.status]}
        return pd.DataFrame(row)

    def describe(self, result: Result) -> Description:
        """Describe the question, the mechanism, the value and the picture in words."""
        return Description(
            title=type(self).__name__,
            what=" ".join(str(self).split())[:2000],
            loss="design's own loss",
            picture="The least slack of each family of constraints."
            if type(self).plot is Design.plot
            else "",
        )

    def required(self, result: Result) -> str:
        """Return the privacy requirement in symbols."""
        return guarantee(self.granted(result.value))

    def question(self, result: Result) -> str:
        """Return the question in sentences."""
        privacy = self.granted(result.value)
        return self.describe(result).question(privacy, self._counted_neighbours, self.mechanism_class)

    @property
    def _counted_neighbours(self) -> str | None:
        """Neighbouring relation of a release about a whole data set; None for reports of one person each."""
        return self.neighbours if self.asks == "numbers" or self.central else None

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield names and costs of other mechanisms that answer the question at the same privacy."""
        return ()

    def alternatives(self, result: Result) -> pd.DataFrame:
        """Tabulate the cost of `rivals` at the same privacy: mechanism, error, relative. The table is empty without rivals."""
        rows = [("this mechanism", result.value), *self.rivals(result)]
        if len(rows) > 1 and result.lower_bound is not None:
            rows.append((f"{result.bound_how} lower bound of {result.mechanism_class}", result.lower_bound))
        table = pd.DataFrame(rows if len(rows) > 1 else [], columns=["mechanism", "error"])
        return table.assign(relative=table["error"] / (result.value or math.nan))

    def trials(self, result: Result) -> pd.DataFrame:
        """Tabulate the candidates of a search, best first; empty if nothing was searched."""
        return pd.DataFrame() if result.table is None else result.table

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Return the errors of an answer, averaged over the prior of `question` if they depend on the input."""
        return result.mechanism.errors()  # type: ignore[no-any-return]

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Bound an attacker's trade-off by the mechanism's own `tradeoff`, its privacy profile, or else the requirement."""
        if hasattr(result.mechanism, "tradeoff"):
            known: TradeOff = result.mechanism.tradeoff(at)
            return known
        if hasattr(result.mechanism, "privacy_profile"):
            return TradeOff.of_profile(result.mechanism.privacy_profile, at)
        return points_of(getattr(self, "privacy", None), at)

    def granted(self, value: float) -> Any:
        """Return the requirement that a mechanism of this value meets."""
        return getattr(self, "privacy", None)

    def stated(self, result: Result) -> str:
        """Return the first line of a print: requirement, rounds, unit of privacy, standard deviation of an answer."""
        neighbours, error = self._counted_neighbours, None
        asked = self.required(result) + (", δ = 0" if isinstance(self.granted(result.value), PureDP) else "")
        unit = "one report of one person" if neighbours is None else f"{neighbours} neighbours"
        with suppress(MechdesignError):
            error = result.errors().standard_deviation
        return stated(asked, unit, error, getattr(self, "rounds", 1), getattr(self, "sampling_rate", 1.0))

    def lines(self, result: Result) -> list[str]:
        """Return the mechanism in words, for prints and pages: what it is, what it consumes, how it is released."""
        return []

    def remarks(self, result: Result) -> list[str]:
        """Return warnings about the mechanism that its numbers do not show."""
        return []

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the mechanism, or the least slack of each family of constraints if it has no plot of its own."""
        if hasattr(result.mechanism, "plot"):
            drawn: Figure = result.mechanism.plot(**options)
            return drawn
        table = self.audit(result).groupby("family", sort=False)["slack"].min()
        return draw_bars(table.index, table.to_numpy(dtype=float), options, xlabel="least slack")


def _not_released(mechanism: Any) -> Iterator[str]:
    """Yield why `release` refuses every answer; the lattice of a mechanism, or of each of its parts, refuses if release does."""
    if np.size(getattr(mechanism, "scales", ())) > 10_000:  # ten square roots of each: left to the release
        return
    try:
        for part in getattr(mechanism, "noises", (mechanism,)):
            getattr(part, "lattice", None)
    except DesignError as error:
        yield f"cannot be released: {error}"


class ModelledDesign(Design):
    """Base class of designs stated as an optimization model in the language of `mechdesign.model`.

    Any registered solver can solve the model. A design's own algorithm, if it has one, runs when no solver is named.
    """

    algorithms: ClassVar[tuple[str, ...]] = ()
    """Names of the design's own algorithms for `solve`, the default first."""

    @abstractmethod
    def problem(self) -> ModelledDesign:
        """Return the paper's model as a `Problem`, to print, to extend by `subject_to`, and to solve."""

    @cached_property
    def model(self) -> Any:
        """The problem, declared once."""
        return self.problem()

    @cached_property
    def declared(self) -> Any:
        """The problem's program in numbers."""
        return self.model.declared

    def problem_of(self, result: Result) -> ModelledDesign:
        """Return the problem that a result solves: `problem` at the parameters that the search found."""
        return self.problem()

    def accelerated(self, clock: Clock, algorithm: str | None = None) -> Iterator[Law | Bound]:
        """Yield laws and lower bounds by one of `algorithms`."""
        raise NotImplementedError

    def modelled(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Yield laws and lower bounds from `problem`, solved by the named backend or else by one that fits the model."""
        yield from self.problem().improve(clock, solver, **options)

    def improve(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Yield closed forms, then laws and bounds of `accelerated`, or of `modelled` if there are no algorithms or a backend is named."""
        clock.unmade = self.closed_forms()
        own_way = self._own_way(solver)
        # who gives options to a backend has it run, and refuse those it does not know, where a closed form is optimal too
        for known in clock.unmade if own_way or not options else ():  # noqa: UP028 - "yield from" would end it with this iterator
            yield known
        if own_way:
            yield from self.accelerated(clock, solver, **options)
        else:
            yield from self.modelled(clock, solver, **options)

    def _own_way(self, solver: str | None) -> bool:
        return bool(self.algorithms) if solver is None else solver in self.algorithms

    def _check_options(self, options: Mapping[str, Any]) -> None:
        solver = options.get("solver")
        if solver is not None and not (isinstance(solver, str) and solver in self.algorithms):
            solvers.get(solver)
        if type(self).improve is ModelledDesign.improve and self._own_way(solver):
            self._known(options, ["solver", *[*inspect.signature(self.accelerated).parameters][2:]])
        else:
            super()._check_options(options)
