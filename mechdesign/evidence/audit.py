"""Claim by claim: what the certificate of a result proves, and that it speaks of this result and no other.

A certificate verifies its own statement about its own copy of the law. Whoever edits a file can leave it as it is and
change what stands beside it; therefore the mechanism, the design, the value and the lower bound that a result shows are
compared with those of its certificate. What no certificate covers is listed as claimed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from numbers import Rational
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import MechdesignError, MissingExtra, ResultFormatError
from mechdesign.evidence.certificate import (
    ABOUT_FILE,
    ABOUT_MECHANISM,
    CLAIMED,
    FORM,
    PROVED,
    RECOMPUTED,
    Check,
    check_table,
    fitting,
    unfit,
)
from mechdesign.evidence.proofs import Certificate
from mechdesign.evidence.serialize import dumps
from mechdesign.typing import Status

__all__ = ["audited", "claims", "counted", "tightest"]

_SHARED = ("noise", "space", "sensitivity", "sensitivities", "bounds", "dimension", "input_range")
_UNREAD = "the certificate's own claims are not looked into: it is not of this result"
_NEAR = 1e-12  # value and lower bound are shown as doubles, and certified as fractions


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
        return unfit(error).assign(about=ABOUT_FILE)


def _claims(result: Any) -> pd.DataFrame:
    if hasattr(result, "proofs"):
        return _proved(result)
    certificate = result.certificate
    statement = {} if certificate is None else certificate.statement
    agreed = [*_agreements(result, statement), *result.beside()]
    made: list[Check] = []
    if certificate is not None and all(holds for *_, holds in agreed):
        made = [*certificate.checks().itertuples(index=False, name=None)]
    elif certificate is not None:  # proofs may take long, and would be another mechanism's
        made = [(_UNREAD, CLAIMED, math.nan, False)]
    uncovered = [*_uncovered(result, statement)]
    table = check_table([*made, *agreed, *uncovered])
    about_file = (
        [claim.partition(" (")[0] in FORM for claim, *_ in made]
        + [True] * len(agreed)
        + [False] * len(uncovered)
    )
    return table.assign(about=[ABOUT_FILE if file else ABOUT_MECHANISM for file in about_file])


def _proved(result: Any) -> pd.DataFrame:
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


def _agreements(result: Any, statement: Mapping[str, Any]) -> Iterator[Check]:
    """That the certificate is of this mechanism, this design and these numbers, and the status one of such a result."""
    bound = result.lower_bound
    if result.certificate is None:
        yield "a certificate is there", CLAIMED, math.nan, False
    else:
        yield "the certificate is of this mechanism", PROVED, math.nan, _same_law(result)
    if (asked := getattr(result.certificate, "design", None)) is not None:
        yield "the certificate's design is the design", PROVED, math.nan, same(asked, result.design)
    held = result.restated()
    yield from (
        (f"the certificate's {key} is the design's", PROVED, math.nan, same(stated, held[key]))
        for key, stated in statement.items()
        if key in held
    )
    for key in ("value", "lower_bound"):
        if key in statement:
            shown, stated = getattr(result, key), statement[key]
            # what is shown must be finite: everything lies within any share of infinity
            near = shown is not None and math.isfinite(shown) and math.isfinite(result.value)
            near = near and abs(shown - float(stated)) <= _NEAR * max(abs(shown), abs(result.value))
            yield f"the {key.replace('_', ' ')} shown is the certificate's", PROVED, math.nan, near
    if result.status is Status.OPTIMAL:
        finite = bound is not None and math.isfinite(bound) and math.isfinite(result.value)
        searched = hasattr(getattr(result.design, "bins", None), "starts")  # a search is never called optimal
        yield (
            "optimal: with a finite value and lower bound",
            result.bound_how,
            math.nan,
            finite and not searched,
        )


def _uncovered(result: Any, statement: Mapping[str, Any]) -> Iterator[Check]:
    bound = result.lower_bound
    if "value" not in statement:
        yield f"the value is {result.value:.9g}", CLAIMED, math.nan, math.isfinite(result.value)
    if (
        "lower_bound" not in statement and bound is not None
    ):  # nor may it stand beside a certificate of no bound
        holds = result.certificate is None and bound <= result.value
        yield f"no mechanism does better than {bound:.9g}", CLAIMED, math.nan, holds


def _same_law(result: Any) -> bool:
    """Whether the parts of the certificate that are parts of the mechanism, or the mechanism itself, are the same.

    So must be what the mechanism and the design both say: the family of the noise, the space, the sensitivity, the input range.
    """
    mechanism, design, found = result.mechanism, result.design, []
    if not hasattr(mechanism, "release"):  # no part of a result but its mechanism has it
        return False
    for name in _SHARED:
        both = hasattr(mechanism, name) and hasattr(design, name)
        if both and not same(getattr(mechanism, name), getattr(design, name)):
            return False
    size = getattr(mechanism, "dimension", 1)  # a law of one number has none
    if getattr(design, "dimension", size) != size:
        return False
    if hasattr(mechanism, "bins") and not _outputs_as_asked(design, mechanism.bins):
        return False
    for field in dataclasses.fields(result.certificate):
        part = getattr(result.certificate, field.name)
        if type(part) is type(mechanism):
            found.append(same(part, mechanism))
        elif field.name in ("law", "weights", "scales", "covariance") and hasattr(mechanism, field.name):
            found.append(same(part, getattr(mechanism, field.name)))
    return bool(found) and all(found)


def _outputs_as_asked(design: Any, outputs: Any) -> bool:
    """Whether there are as many outputs as a design asks for, within the range that its search was given."""
    search = getattr(design, "bins", None)
    few = getattr(design, "m", len(outputs)) == len(outputs) <= getattr(search, "m", len(outputs))
    furthest = float(np.abs(outputs).max())
    return bool(few and furthest <= getattr(search, "max_abs", furthest) * (1 + _NEAR))


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
