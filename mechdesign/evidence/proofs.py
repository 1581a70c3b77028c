"""Evidence: a certificate is a question, a law, two numbers, and the proofs that cover them.

There is one `Certificate`. Mechanisms differ in their mathematics, and a piece of mathematics is a `Proof`:
one theorem, the numbers it needs besides question and law (multipliers, enclosures), and a check that recomputes its
claims from all of these in exact or outward-rounded arithmetic, with nothing from a solver.

Question, law, value and lower bound are held once. A result shows them, its file stores them, and every proof reads
them there: there is no second copy that a file could change on its own. `Result.checks` lists every claim of the proofs of a
result, and the claims that no proof covers.

A result is "optimal" if value and lower bound meet and the bound covers every mechanism that answers the question. The best independent noise of one
law, of one family or of one menu is the best of its class only (`MechanismClass`), and other mechanisms may do better. The class follows from the
design and its proof; a file that states another one is refused.
"""

from __future__ import annotations

import enum
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import InitVar, dataclass, field
from fractions import Fraction
from numbers import Rational
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from mechdesign.checks import instance, refuse
from mechdesign.errors import DesignError, MechdesignError, MissingExtra, ResultFormatError, SolverError
from mechdesign.evidence.files import check_writable, write_whole
from mechdesign.evidence.page import Saved
from mechdesign.evidence.serialize import encode, serializable
from mechdesign.evidence.vipr import FUNCTION, LinearBound, NoProgramError
from mechdesign.solvers.deadline import Deadline, limited, pause
from mechdesign.typing import Indices


class Scope(enum.StrEnum):
    """Width of a class; the values are the words of files."""

    EVERY = "every mechanism"
    INDEPENDENT = "independent noise of one law"
    LOG_CONCAVE = "symmetric log-concave noise"
    FAMILY = "this family"
    MENU = "this menu"


@dataclass(frozen=True)
class MechanismClass:
    """A class of mechanisms, by name.

    Parameters
    ----------
    scope : Scope
        ``EVERY``: all mechanisms that answer the question as the design states it. ``FAMILY``: those of one published or
        parametrised family. ``MENU``: those that a design tries, or that have the outputs which a search found.
    noun : str
        Name of one member, to follow "every", "any" and "no": "additive noise for a real-valued query".

    Examples
    --------
    >>> print(MechanismClass(Scope.EVERY, "channel"), "·", MechanismClass(Scope.FAMILY, "Gaussian noise"))
    every channel · this family (any Gaussian noise)
    >>> print(INDEPENDENT_NOISE)
    independent noise of one law
    """

    scope: Scope
    noun: str

    @property
    def every(self) -> bool:
        """Whether the class holds all mechanisms that answer the question, so that its best is optimal."""
        return self.scope is Scope.EVERY

    def __str__(self) -> str:
        if self.scope in (Scope.FAMILY, Scope.MENU):
            return f"{self.scope} (any {self.noun})"
        return f"every {self.noun}" if self.every else self.noun


def every(noun: str) -> MechanismClass:
    """Return the class of all mechanisms that answer the question."""
    return MechanismClass(Scope.EVERY, noun)


def family(noun: str) -> MechanismClass:
    """Return the class of one family."""
    return MechanismClass(Scope.FAMILY, noun)


def menu(noun: str) -> MechanismClass:
    """Return the class of one menu."""
    return MechanismClass(Scope.MENU, noun)


INDEPENDENT_NOISE = MechanismClass(Scope.INDEPENDENT, Scope.INDEPENDENT.value)
LOG_CONCAVE_NOISE = MechanismClass(Scope.LOG_CONCAVE, Scope.LOG_CONCAVE.value)

REAL_NOISE = "additive noise for a real-valued query"
"""Integer-valued queries change by integers only, so that other noise may cost less for them."""


PROVED = "proved"
RECOMPUTED = "recomputed"
CLAIMED = "claimed"
ABOUT_MECHANISM, ABOUT_FILE = "mechanism", "file"
FIT = "its parts fit together"
OWN_WORDS = "seconds and notes, and that what has no result has none, are the file's own words"
"""Contents of a comparison or a frontier that nothing verifies."""


@contextmanager
def fitting() -> Iterator[None]:
    """Raise ResultFormatError ("parts do not fit together") if computing with them fails: a file was changed."""
    try:
        with np.errstate(all="ignore"):  # of absurd numbers nothing follows that a check would let pass
            yield
    except MechdesignError as error:
        if isinstance(error, DesignError):  # an argument that no design would have been made with
            raise ResultFormatError(f"the result's parts do not fit together: {error!s:.200}") from error
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise ResultFormatError("the result's parts do not fit together") from error


def close(stated: Any, fresh: Any) -> bool:
    """Return whether a cell of a table equals the recomputed one: the same word, the same number to 1e-9, or NaN twice.

    Examples
    --------
    >>> close(1.0, 1.0 + 1e-12), close(math.nan, None), close("proved", "recomputed")
    (True, True, False)
    """
    stated, fresh = (v.item() if isinstance(v, np.generic) else v for v in (stated, fresh))
    if isinstance(fresh, (str, bool)):
        return bool(stated == fresh)
    if isinstance(stated, (str, bool)):
        return False
    stated, fresh = (math.nan if v is None else float(v) for v in (stated, fresh))
    if math.isnan(stated) or math.isnan(fresh):
        return math.isnan(stated) and math.isnan(fresh)
    return bool(abs(stated - fresh) <= 1e-9 * abs(fresh))


_ROUNDING = 1e-12  # of a closed form in doubles


class Claim(NamedTuple):
    """One claim and its check.

    Attributes
    ----------
    claim : str
        In words, with its numbers.
    how : str
        `PROVED`, `RECOMPUTED` or `CLAIMED`.
    margin : float
        Slack before the claim fails, 0 if it holds up to rounding; NaN if nothing is measured. Infinity proves nothing: it comes from
        numbers that overflow.
    holds : bool
    about : str
        ``"mechanism"``, or ``"file"`` for claims that the law is a law and that the parts fit together.
    """

    claim: str
    how: str
    margin: float
    holds: bool
    about: str = ABOUT_MECHANISM

    @classmethod
    def of(cls, claim: str, how: str, margin: float | Fraction) -> Claim:
        """Return the claim that holds where its margin is not negative, by the sign of a rational one."""
        return cls(claim, how, float(margin), margin >= 0)


CLAIM_COLUMNS = list(Claim._fields)


def agreement(claim: str, how: str, holds: bool) -> Claim:
    """Return the claim that parts of a file agree with each other, with no margin."""
    return Claim(claim, how, math.nan, holds, ABOUT_FILE)


def unfit(error: MechdesignError) -> Claim:
    """Return the single claim, which fails, for parts that cannot be computed with."""
    reason = " ".join(str(error).split())[:200]
    return Claim(f"{FIT} ({reason})", PROVED, math.nan, False, ABOUT_FILE)


@dataclass(frozen=True, eq=False)
class Proof(ABC):
    """One theorem, applied to one certificate.

    A subclass is a frozen dataclass registered with `serializable`. Its docstring states the theorem with its source,
    `speaks_of` lists its subjects, its fields hold the theorem's input besides question and law. `check` first
    refuses (`instance`) a question or a law of another class than the theorem's: an edited file can combine any
    proof with any question.
    """

    finite: ClassVar[bool] = True
    """Whether its numbers in files must be finite."""
    speaks_of: ClassVar[tuple[str, ...]]
    bound_how: ClassVar[str] = PROVED
    """How `check` checks the lower bound, if the proof covers one."""
    not_linear: ClassVar[str] = "a closed form, a convex program or the scales of a family"
    """Source of the lower bound if that is no finite linear program."""

    def privacy_checked(self, stated: Certificate) -> str:
        """Return how `check` checks privacy, if the proof covers it."""
        return PROVED

    def bound_checked(self, stated: Certificate) -> str:
        """Return how `check` checks the lower bound of this certificate: the question's `rows_how` if its rows are not exact."""
        how: str = getattr(stated.question, "rows_how", PROVED)
        return self.bound_how if how == PROVED else how

    def mechanism_class(self, stated: Certificate) -> MechanismClass:
        """Return the class that the lower bound covers: the design's own, unless the theorem covers more."""
        found: MechanismClass = stated.question.mechanism_class
        return found

    @abstractmethod
    def check(self, stated: Certificate) -> Iterator[Claim]:
        """Recompute every claim of the theorem about `stated`."""

    def least(self, stated: Certificate, proved: Fraction | float, unit: str = "") -> Claim:
        """Claim that no mechanism of the class costs less than the stated lower bound, which must be at most `proved`; DesignError if none is stated."""
        if (bound := stated.lower_bound) is None:
            raise DesignError.of("lower_bound", None, "must be a number where a proof speaks of it")
        room = proved - (Fraction(bound) if isinstance(proved, Fraction) else bound)
        claim = f"no {self.mechanism_class(stated).noun} costs less than {bound!r}{unit}"
        return Claim.of(claim, self.bound_checked(stated), room)

    def linear_bound(self, stated: Certificate) -> LinearBound:
        """Return the finite linear program that implies the lower bound; NoProgramError if there is none."""
        raise NoProgramError(
            f"the lower bound comes from {self.not_linear}, not from a finite linear program: there is no certificate in VIPR of it"
        )


@serializable("law-proof", eq=False)
class LawProof(Proof):
    """Prove that the law is private and costs at most the value, by the theorem of the question (`law_claims`).

    Parameters
    ----------
    given : DeltaInterval or tuple of Fraction, optional
        Input of the theorem besides question and law (`law_takes`): an enclosure of the budget consumed, or further variables of a problem.
    """

    given: Any = None

    speaks_of = ("privacy", "bias", "value")

    def privacy_checked(self, stated: Certificate) -> str:
        how: str = stated.question.privacy_checked(stated.law, self._given(stated))
        return how

    def check(self, stated: Certificate) -> Iterator[Claim]:
        yield from stated.question.law_claims(stated, self._given(stated))

    def _given(self, stated: Certificate) -> Any:
        return instance("given", self.given, stated.question.law_takes)


@serializable("closed-bound", eq=False)
class ClosedBound(Proof):
    """Prove the lower bound by the theorem of the question (`least_cost`): a closed form, apart from the numbers `given`.

    Parameters
    ----------
    given : tuple or float, optional
        Input of the theorem besides question and law (`bound_takes`): multipliers, or a share of a scale.
    """

    given: Any = None

    speaks_of = ("lower bound",)

    def bound_checked(self, stated: Certificate) -> str:
        how: str = stated.question.bound_how
        return how

    def mechanism_class(self, stated: Certificate) -> MechanismClass:
        found: MechanismClass = stated.question.bounded_class(stated, self.given)
        return found

    def check(self, stated: Certificate) -> Iterator[Claim]:
        question = stated.question
        least = question.least_cost(stated, instance("given", self.given, question.bound_takes))
        yield self.least(stated, least if self.bound_checked(stated) == PROVED else least * (1 + _ROUNDING))


@serializable("rows-bound", eq=False)
class RowsBound(Proof):
    r"""Rows of the question's linear program with multipliers: every point that satisfies the rows costs at least :math:`\sum_i y_i b_i`.

    For :math:`\min c x` subject to rows :math:`A x \lessgtr b`, multipliers y of the sign that the senses allow, with reduced costs
    :math:`c - y A \ge 0` (0 for a variable of either sign), prove :math:`c x \ge y b`. The multipliers need not be optimal or come from a solver:
    others only prove less. At cost 0 a positive bound proves that the rows have no solution (Farkas).

    Parameters
    ----------
    rows : array of int, shape (t,)
        Numbers of the rows, increasing.
    multipliers : tuple of Fraction, length t
        Not negative for an inequality, as the question states it; of either sign for an equality.
    given : optional
        Which of the question's programs, where it has several (`rows_take`): the lattice of noise, or the inputs of a metric quantizer.
    """

    rows: Indices
    multipliers: tuple[Fraction, ...]
    given: Any = None

    speaks_of = ("lower bound",)

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.multipliers) or (self.rows[1:] <= self.rows[:-1]).any():
            raise DesignError("rows: must be increasing numbers, each with its multiplier")

    def program(self, question: Any) -> LinearBound:
        """Return the linear program of the rows with their multipliers, and no other row, as the question numbers and states them (`linear_bound`)."""
        given = instance("given", self.given, question.rows_take)
        found: LinearBound = question.linear_bound(self.rows, self.multipliers, given)
        return found

    def proved(self, question: object) -> Fraction:
        """Return the lower bound for this question: the program's, or `cost_floor` if the program's costs may be lower than any mechanism's."""
        program, floor = self.program(question), getattr(question, "cost_floor", None)
        ResultFormatError.when(not program.admissible, "multipliers leave a negative reduced cost")
        bound = Fraction(int(program.bound.p), int(program.bound.q))
        return bound if floor is None else max(bound, floor)

    def linear_bound(self, stated: Certificate) -> LinearBound:
        asked = stated.question
        loss = getattr(asked, "given_loss", getattr(asked, "loss", None))
        if getattr(loss, "function", None) is not None:
            raise NoProgramError(FUNCTION)
        return self.program(asked)

    def check(self, stated: Certificate) -> Iterator[Claim]:
        if self.bound_checked(stated) != CLAIMED:
            yield self.least(stated, self.proved(stated.question))
            return
        claim = f"no {self.mechanism_class(stated).noun} costs less than {stated.lower_bound!r}"
        below = stated.lower_bound is not None and stated.lower_bound <= stated.value
        yield Claim(claim, CLAIMED, math.nan, below)


def check_proofs(proofs: object) -> None:
    """Raise DesignError unless these are proofs, no two of one kind."""
    kinds = [type(instance("proofs", proof, Proof)) for proof in instance("proofs", proofs, tuple)]
    refuse(len({*kinds}) < len(kinds), "proofs", len(kinds), "must be one of each kind: leave out the others")


@serializable("certificate", eq=False)
class Certificate(Saved):
    """Evidence that anyone can check.

    Parameters
    ----------
    question : Design
        The design.
    law : object
        The mechanism, exactly as it is deployed.
    value : float
        An upper bound of the law's cost.
    lower_bound : float, optional
        A lower bound of the cost of every mechanism of the class `mechanism_class`.
    proofs : tuple of Proof
    agreements : callable, optional
        Called without arguments by a result's checks: returns the claims that the result's status and the class of its bound are those that
        its numbers allow. A certificate's own file states neither.
    """

    question: Any
    law: Any
    value: float
    lower_bound: float | None = None
    proofs: tuple[Proof, ...] = ()
    agreements: InitVar[Callable[[], Iterable[Claim]] | None] = None
    _agreements: Callable[[], Iterable[Claim]] = field(init=False, repr=False)

    def __post_init__(self, agreements: Callable[[], Iterable[Claim]] | None) -> None:
        if agreements is not None and not callable(agreements):
            raise DesignError.of("agreements", agreements, "must be a function without arguments")
        object.__setattr__(self, "_agreements", agreements or tuple)
        refuse(not hasattr(self.question, "solve"), "question", self.question, "must be a design")
        check_proofs(self.proofs)

    def _covering(self, subject: str) -> list[Proof]:
        """Return the proofs that cover "privacy", "bias", "value" or "lower bound"."""
        return [proof for proof in self.proofs if subject in proof.speaks_of]

    @property
    def bound_how(self) -> str:
        """How the lower bound is checked."""
        return next((proof.bound_checked(self) for proof in self._covering("lower bound")), CLAIMED)

    @property
    def privacy_how(self) -> str:
        """How privacy is checked."""
        return next((proof.privacy_checked(self) for proof in self._covering("privacy")), CLAIMED)

    @property
    def mechanism_class(self) -> MechanismClass | None:
        """Class of mechanisms that the lower bound covers; None without a lower bound."""
        if self.lower_bound is None:
            return None
        found = next((proof.mechanism_class(self) for proof in self._covering("lower bound")), None)
        return found or self.question.mechanism_class

    def claims(self) -> Iterator[Claim]:
        """Yield every claim, recomputed one proof after the other.

        Raises
        ------
        ResultFormatError
            The parts do not fit together, as they do not in a file that was changed.
        """
        said = set()
        with fitting():
            for proof in self.proofs:
                for claim in proof.check(self):
                    pause("checks")
                    margin, holds = float(claim.margin), bool(claim.holds) and claim.margin != math.inf
                    margin = 0.0 if holds and margin < 0 else margin  # within what doubles lose
                    if (claim.claim, holds) not in said:  # two proofs may cover one subject
                        yield claim._replace(margin=margin, holds=holds)
                    said.add((claim.claim, holds))
        if not self._covering("privacy"):
            yield Claim("privacy", CLAIMED, math.nan, False)
        if not self._covering("value"):
            yield Claim(f"the value is {self.value:.9g}", CLAIMED, math.nan, math.isfinite(self.value))
        if self.lower_bound is not None and not self._covering("lower bound"):
            # of a loss that is a function, which files do not hold, a bound may be claimed; else a proof speaks of it
            function = getattr(getattr(self.question, "loss", None), "function", None)
            below = function is not None and self.lower_bound <= self.value
            words = f"no {self.question.mechanism_class.noun} costs less than {self.lower_bound:.9g}"
            yield Claim(words, CLAIMED, math.nan, below)
        if self.lower_bound is not None and not self.lower_bound <= self.value:
            yield Claim("the lower bound is at most the value", PROVED, self.value - self.lower_bound, False)
        with fitting():
            yield from self._agreements()

    def privacy_claim(self) -> Claim:
        """Return the claim of privacy, recomputed without the other proofs; the failed claim if one of its proof fails."""
        with fitting():
            made = [claim for proof in self._covering("privacy") for claim in proof.check(self)]
        failed = [claim for claim in made if not claim.holds]
        own = [claim for claim in made if claim.about != ABOUT_FILE]
        of_privacy = [claim for claim in own if "priva" in claim.claim] or own
        return next(iter([*failed, *of_privacy, *made]), Claim("privacy", CLAIMED, math.nan, False))

    def to_vipr(self, path: str | os.PathLike[str]) -> None:
        """Write the lower bound as a certificate in the format VIPR 1.0, for checkers such as viprchk and cake_vipr.

        Parameters
        ----------
        path : path

        Raises
        ------
        NoProgramError
            No lower bound is known, no finite linear program implies it, or the program is too large to be written.
        ResultFormatError
            The bound's proof does not hold.

        Examples
        --------
        >>> import mechdesign as md, tempfile, pathlib
        >>> cross = md.MetricChannel(md.MetricSpace.line([0.0, 1.0, 2.0]), alpha=1.0).solve()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder) / "bound.vipr"
        ...     cross.certificate.to_vipr(file)
        ...     "RTP range" in file.read_text()
        True
        """
        target, proofs = check_writable(path), self._covering("lower bound")
        if self.lower_bound is None or self.mechanism_class is None:
            said = "no lower bound is known of this result: there is no certificate in VIPR of it"
            raise NoProgramError(said)
        if not proofs:
            raise NoProgramError("the lower bound is only claimed: there is no certificate in VIPR of it")
        with fitting():
            program = proofs[0].linear_bound(self)
            failed = next((claim.claim for claim in proofs[0].check(self) if not claim.holds), None)
            ResultFormatError.when(failed is not None, f"does not hold: {failed}")
            asked = json.dumps(encode(self.question))
            subject = f"No {self.mechanism_class.noun} costs less than the bound. Question, as in result files: {asked}."
            text = program.text(self.lower_bound, subject)
        write_whole(target, text)

    def checks(self) -> pd.DataFrame:
        """Tabulate the claims: claim, how, margin, holds, about. If the parts do not fit together, one failed check says so."""
        found: list[Claim] = []
        try:
            for claim in self.claims():
                found.append(claim)
        except MissingExtra:
            raise
        except MechdesignError as error:
            found.append(unfit(error))
        return pd.DataFrame(found, columns=CLAIM_COLUMNS)

    def verify(self, *, time_limit: float | None = None) -> bool:
        """Return whether every claim holds; end at the first that does not.

        Parameters
        ----------
        time_limit : float, optional
            Seconds after which the checks end without an answer.

        Raises
        ------
        DesignError
            The limit is no positive number.
        SolverError
            The claims that were checked hold, and no time was left for the others.
        """
        limit = nullcontext() if time_limit is None else limited(Deadline(time_limit))
        try:
            with limit:
                return all(claim.holds for claim in self.claims())
        except MissingExtra:
            raise
        except MechdesignError as error:
            if getattr(error, "status", "") == "limit":
                unchecked = "not all claims were checked within the time limit: give more, or none"
                raise SolverError(unchecked, solver="checks", status="limit") from None
            return False


def counted(table: pd.DataFrame) -> str:
    """Count the claims about the mechanism that hold, by how they were checked, and the checks of the file.

    If the file contradicts itself, no claim is counted: they may be the claims of another mechanism.

    Examples
    --------
    >>> rows = [("privacy loss at most 1.0", "proved", 0.0, True, "mechanism"), ("rows sum to 1", "proved", 0.0, True, "file")]
    >>> counted(pd.DataFrame(rows, columns=["claim", "how", "margin", "holds", "about"]))
    '1 of 1 claims hold (1 proved, 0 recomputed, 0 claimed); 1 of 1 checks that the file agrees with itself'
    """
    file = table[table["about"] == ABOUT_FILE]
    made = table[table["about"] == ABOUT_MECHANISM]
    held = made[made["holds"] & bool(file["holds"].all())]
    how = ", ".join(f"{int((held['how'] == how).sum())} {how}" for how in (PROVED, RECOMPUTED, CLAIMED))
    return (
        f"{len(held)} of {len(made)} claims hold ({how}); {int(file['holds'].sum())} of {len(file)} checks that the "
        "file agrees with itself"
    )


def same(a: object, b: object) -> bool:
    """Return whether two values are equal: numbers and arrays of numbers by value, all others by their files."""
    if a is b:  # also what no file can hold: a prior of a law that files cannot name
        return True
    if isinstance(a, (Rational, float, np.number)) and isinstance(b, (Rational, float, np.number)):
        return bool(a == b)
    if isinstance(a, (tuple, list, np.ndarray)) and isinstance(b, (tuple, list, np.ndarray)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return bool(encode(a) == encode(b))


def tightest(table: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Return the rows of least slack: the tightest of each family first, then the second of each, …"""
    ordered = table.sort_values("slack", kind="stable")
    rank = ordered.groupby("family", sort=False).cumcount()
    return ordered.iloc[np.argsort(rank, kind="stable")].head(max(rows, int((rank == 0).sum())))
