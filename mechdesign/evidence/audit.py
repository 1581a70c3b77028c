"""Claim by claim: what the proofs of a result say of it, and what no proof covers."""

from __future__ import annotations

import math
from numbers import Rational
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import MechdesignError, MissingExtra, ResultFormatError
from mechdesign.evidence.certificate import (
    ABOUT_FILE,
    ABOUT_MECHANISM,
    CLAIMED,
    PROVED,
    RECOMPUTED,
    fitting,
)
from mechdesign.evidence.proofs import CLAIM_COLUMNS, Certificate, unfit
from mechdesign.evidence.serialize import dumps
from mechdesign.typing import Status

__all__ = ["audited", "claims", "counted", "tightest"]


def claims(result: Any) -> pd.DataFrame:
    """Every claim of a result: claim, how it was checked, margin, whether it holds, and what it is about.

    About the mechanism: privacy, bias, value, lower bound. About the file: that its parts agree with each other.
    """
    try:
        with fitting():
            return _claims(result)
    except MissingExtra:
        raise
    except MechdesignError as error:
        return pd.DataFrame([unfit(error)], columns=CLAIM_COLUMNS)


def _claims(result: Any) -> pd.DataFrame:
    """The claims of a result's proofs, and that its status is one that its numbers allow."""
    found = Certificate(result.design, result.mechanism, result.value, result.lower_bound, result.proofs)
    table, bound = found.checks(), result.lower_bound
    if result.status is Status.OPTIMAL:
        finite = bound is not None and math.isfinite(bound) and math.isfinite(result.value)
        finite = finite and result.design.proves_optimality
        claim = "optimal: with a finite value and lower bound"
        table.loc[len(table)] = [claim, found.bound_how, math.nan, finite, ABOUT_FILE]
    return table


def counted(table: pd.DataFrame) -> str:
    """How many claims about the mechanism hold, by how they were checked, and how many checks of the file.

    Where the file does not agree with itself none is counted: they may be the claims of another mechanism.

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


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal: numbers and arrays of numbers by value, all others by the text of their file."""
    if a is b:  # also what no file can hold: a prior of a law that files cannot name
        return True
    if isinstance(a, (Rational, float, np.number)) and isinstance(b, (Rational, float, np.number)):
        return bool(a == b)
    if isinstance(a, (tuple, list, np.ndarray)) and isinstance(b, (tuple, list, np.ndarray)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return dumps(a) == dumps(b)


def tightest(table: pd.DataFrame, rows: int) -> pd.DataFrame:
    """The rows of least slack: the tightest of each family first, then the second of each, …"""
    ordered = table.sort_values("slack", kind="stable")
    rank = ordered.groupby("family", sort=False).cumcount()
    return ordered.iloc[np.argsort(rank, kind="stable")].head(max(rows, int((rank == 0).sum())))


def audited(result: Any, source: str) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Return the claims, the audit table and the summary of a result that may be a stranger's.

    Raises
    ------
    ResultFormatError
        Its parts do not fit together.
    """
    try:
        with fitting():  # parts of the right kind, and of sizes or values that never stand together
            return claims(result), result.audit(), str(result)
    except MissingExtra:
        raise
    except MechdesignError as error:
        reason = f"{source}: its parts do not fit together ({error!s:.200})"
    raise ResultFormatError(" ".join(reason.split()))
