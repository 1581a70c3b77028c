"""The certificate protocol: what is claimed, and how each claim was checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

__all__ = [
    "ABOUT_FILE",
    "ABOUT_MECHANISM",
    "CHECK_COLUMNS",
    "CLAIMED",
    "FORM",
    "PROVED",
    "RECOMPUTED",
    "Certificate",
    "Check",
    "check_table",
]

PROVED = "proved"
RECOMPUTED = "recomputed"
CLAIMED = "claimed"
CHECK_COLUMNS = ["claim", "how", "margin", "holds"]
ABOUT_MECHANISM, ABOUT_FILE = "mechanism", "file"
FORM = frozenset(
    {
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

Check = tuple[str, str, float, bool]
"""A claim in words, how it was checked (`PROVED`, `RECOMPUTED` or `CLAIMED`), the margin left, whether it holds."""


def check_table(checks: Sequence[Check]) -> pd.DataFrame:
    """Return checks as the table that `Certificate.checks` promises."""
    return pd.DataFrame(checks, columns=CHECK_COLUMNS)


class Certificate(ABC):
    """Evidence that anyone can check: a statement in exact numbers, a law, and multipliers.

    Verification recomputes every claim from these three, in exact or outward-rounded arithmetic, and takes nothing
    from a solver.
    """

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
