"""Evidence: a certificate is a question, a law, two numbers, and the proofs that speak of them.

There is one `Certificate`. What differs between mechanisms is the mathematics, and a piece of mathematics is a `Proof`:
one theorem, the numbers it needs besides question and law (multipliers, enclosures), and a check that recomputes its
claims from all of these in exact or outward-rounded arithmetic, with nothing from a solver.

Question, law, value and lower bound are held once. A result shows them, its file stores them, and every proof reads
them there: there is no second copy that a file could change on its own.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pandas as pd

from mechdesign.errors import DesignError, MechdesignError, MissingExtra
from mechdesign.evidence.certificate import (
    ABOUT_FILE,
    ABOUT_MECHANISM,
    CLAIMED,
    FIT,
    PROVED,
    fitting,
)
from mechdesign.evidence.serialize import serializable

__all__ = ["CLAIM_COLUMNS", "SUBJECTS", "Certificate", "Claim", "Proof", "unfit"]

SUBJECTS = ("privacy", "bias", "value", "lower bound")
"""What a proof can speak of."""


class Claim(NamedTuple):
    """One claim and its check.

    Attributes
    ----------
    claim : str
        In words, with its numbers.
    how : str
        `PROVED`, `RECOMPUTED` or `CLAIMED`.
    margin : float
        What is left before the claim fails; NaN where nothing is measured. Infinity proves nothing: it comes from
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


CLAIM_COLUMNS = list(Claim._fields)


def unfit(error: MechdesignError) -> Claim:
    """The one claim of parts that cannot be computed with, which fails."""
    reason = " ".join(str(error).split())[:200]
    return Claim(f"{FIT} ({reason})", PROVED, math.nan, False, ABOUT_FILE)


@dataclass(frozen=True, eq=False)
class Proof(ABC):
    """One theorem, applied to one certificate.

    A subclass is a frozen dataclass registered with `serializable`. Its docstring states the theorem with its source,
    `speaks_of` lists its subjects, its fields are what the theorem needs besides question and law. `check` begins by
    refusing (`instance`) a question or a law of another class than the theorem is about: whoever edits a file can put any
    proof beside any question.
    """

    finite: ClassVar[bool] = True
    """Files may not give its numbers as infinite or NaN."""
    speaks_of: ClassVar[tuple[str, ...]]
    bound_how: ClassVar[str] = PROVED
    """How `check` checks the lower bound, where the proof speaks of one."""

    @property
    def privacy_how(self) -> str:
        """How `check` checks privacy, where the proof speaks of it."""
        return PROVED

    def way(self, stated: Certificate) -> str:
        """How `check` checks the lower bound of this certificate, where that depends on its question."""
        return self.bound_how

    @abstractmethod
    def check(self, stated: Certificate) -> Iterator[Claim]:
        """Recompute every claim of the theorem about `stated`."""


@serializable("certificate")
@dataclass(frozen=True, eq=False)
class Certificate:
    """Evidence that anyone can check.

    Parameters
    ----------
    question : Design
        What was asked.
    law : object
        The mechanism, exactly as it is deployed.
    value : float
        An upper bound of the law's cost.
    lower_bound : float, optional
        A lower bound of the cost of every mechanism in the bound's class.
    proofs : tuple of Proof
    """

    question: Any
    law: Any
    value: float
    lower_bound: float | None = None
    proofs: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not dataclasses.is_dataclass(self.question):
            raise DesignError.of("question", self.question, "must be a design")
        for proof in DesignError.unless("proofs", self.proofs, tuple):
            DesignError.unless("proofs", proof, Proof)

    @property
    def statement(self) -> dict[str, Any]:
        """What is claimed: the fields of the question, the value and the lower bound."""
        asked = {f.name: getattr(self.question, f.name) for f in dataclasses.fields(self.question) if f.init}
        return {**asked, "value": self.value, "lower_bound": self.lower_bound}

    @property
    def subjects(self) -> set[str]:
        """What some proof speaks of."""
        return {subject for proof in self.proofs for subject in proof.speaks_of}

    @property
    def bound_how(self) -> str:
        """How the lower bound is checked."""
        ways = [proof.way(self) for proof in self.proofs if "lower bound" in proof.speaks_of]
        return ways[0] if ways else CLAIMED

    def claims(self) -> Iterator[Claim]:
        """Every claim, recomputed one proof after the other.

        Raises
        ------
        ResultFormatError
            The parts do not fit together, as they do not in a file that was changed.
        """
        with fitting():
            for proof in self.proofs:
                for claim in proof.check(self):
                    yield claim._replace(
                        margin=float(claim.margin), holds=bool(claim.holds) and claim.margin != math.inf
                    )
        known = self.subjects
        if "privacy" not in known:
            yield Claim("privacy", CLAIMED, math.nan, False)
        if "value" not in known:
            yield Claim(f"the value is {self.value:.9g}", CLAIMED, math.nan, math.isfinite(self.value))
        if self.lower_bound is not None and "lower bound" not in known:
            below = self.lower_bound <= self.value
            yield Claim(f"nothing costs less than {self.lower_bound:.9g}", CLAIMED, math.nan, below)

    def privacy_claim(self) -> Claim:
        """The claim of privacy, recomputed without the other proofs; the one that fails where one of its proof does."""
        with fitting():
            made = [c for proof in self.proofs if "privacy" in proof.speaks_of for c in proof.check(self)]
        failed = [claim for claim in made if not claim.holds]
        of_privacy = [claim for claim in made if "priva" in claim.claim]
        return [*failed, *of_privacy, *made, Claim("privacy", CLAIMED, math.nan, False)][0]

    def checks(self) -> pd.DataFrame:
        """One row a claim: claim, how, margin, holds, about. Parts that do not fit together are one check that fails."""
        found: list[Claim] = []
        try:
            for claim in self.claims():
                found.append(claim)
        except MissingExtra:
            raise
        except MechdesignError as error:
            found.append(unfit(error))
        return pd.DataFrame(found, columns=CLAIM_COLUMNS)

    def verify(self) -> bool:
        """Whether every claim holds; ends at the first that does not."""
        try:
            return all(claim.holds for claim in self.claims())
        except MissingExtra:
            raise
        except MechdesignError:
            return False
