"""The certificate protocol: what is claimed, and how each claim was checked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, MechdesignError, MissingExtra, ResultFormatError

__all__ = [
    "ABOUT_FILE",
    "ABOUT_MECHANISM",
    "CHECK_COLUMNS",
    "CLAIMED",
    "FORM",
    "OWN_WORDS",
    "PROVED",
    "RECOMPUTED",
    "Check",
    "OldCertificate",
    "check_table",
    "checked_anyhow",
    "close",
    "fitting",
    "unfit",
]

PROVED = "proved"
RECOMPUTED = "recomputed"
CLAIMED = "claimed"
CHECK_COLUMNS = ["claim", "how", "margin", "holds"]
ABOUT_MECHANISM, ABOUT_FILE = "mechanism", "file"
FIT = "its parts fit together"
FORM = frozenset(
    {
        FIT,
        "knots and outputs increase",
        "rows sum to 1",
        "no probability is negative",
        "the probabilities of the vertices sum to 1",
        "the noise has K coordinates",
        "the enclosure stored is that of the law",
        "the covariance shown is the law's",
        "every input that is stated is one of the mechanism's",
    }
)
"""Checks of certificates that say nothing of privacy, error or optimality: that a law is one, and is the one shown."""

OWN_WORDS = "seconds and notes, and that what has no result has none, are the file's own words"
"""What nothing in a comparison or a frontier shows."""

Check = tuple[str, str, float, bool]
"""A claim in words, how it was checked (`PROVED`, `RECOMPUTED` or `CLAIMED`), the margin left, whether it holds."""


def check_table(checks: Sequence[Check]) -> pd.DataFrame:
    """Return checks as the table that `OldCertificate.checks` promises.

    An infinite margin is one of absurd numbers that overflow: it proves nothing, and its claim does not hold.
    """
    held = [(claim, how, margin, holds and margin != math.inf) for claim, how, margin, holds in checks]
    return pd.DataFrame(held, columns=CHECK_COLUMNS)


@contextmanager
def fitting() -> Iterator[None]:
    """Say that parts do not fit together where computing with them fails: a file was changed."""
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


def checked_anyhow(checks: Callable[[Any], pd.DataFrame]) -> Callable[[Any], pd.DataFrame]:
    """Make a failed check of what cannot be checked, so that a table is returned whatever a file says."""

    @wraps(checks)
    def checked(self: Any) -> pd.DataFrame:
        try:
            with fitting():
                return checks(self)
        except MissingExtra:
            raise
        except MechdesignError as error:
            return unfit(error)

    return checked


def unfit(error: MechdesignError) -> pd.DataFrame:
    """The one check of parts that cannot be computed with."""
    reason = " ".join(str(error).split())[:200]
    return check_table([(f"{FIT} ({reason})", PROVED, math.nan, False)])


def close(stated: Any, fresh: Any) -> bool:
    """Whether a cell of a table is the one computed anew: the same word, or the same number to 1e-9 (or none, twice).

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


class OldCertificate(ABC):
    """Evidence that anyone can check: a statement in exact numbers, a law, and multipliers.

    Verification recomputes every claim from these three, in exact or outward-rounded arithmetic, and takes nothing
    from a solver.
    """

    finite: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "checks" in vars(cls):
            cls.checks = checked_anyhow(cls.checks)  # type: ignore[assignment, method-assign]

    @property
    @abstractmethod
    def statement(self) -> Mapping[str, Any]:
        """The problem in exact numbers: requirement, inputs, cost, and the value and lower bound that are claimed."""

    @abstractmethod
    def checks(self) -> pd.DataFrame:
        """One row a claim: claim, how it was checked (proved, recomputed, claimed), margin, whether it holds."""

    @property
    def bound_how(self) -> str:
        """How `checks` checks the lower bound: `PROVED`, `RECOMPUTED` or `CLAIMED`; said without checking it."""
        return PROVED

    def verify(self) -> bool:
        """Whether every claim holds."""
        return bool(self.checks()["holds"].all())

    def privacy_claim(self) -> Any:
        """The claim of privacy, which comes first."""
        return next(self.checks().itertuples(index=False))
