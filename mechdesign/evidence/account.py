"""A result told from the question to the proof: the sections of its page, in the same order for every wing.

A wing says what only it knows in an `Account` (the question in words, what the value is, what the picture shows); the
claims, the constraints, the way to check them and the versions come from what every result has.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pandas as pd

from mechdesign.errors import MechdesignError
from mechdesign.evidence.audit import tightest
from mechdesign.evidence.certificate import ABOUT_FILE, CLAIMED, PROVED, RECOMPUTED
from mechdesign.evidence.digits import at_least, at_most, meaningful
from mechdesign.evidence.page import Fact, Section
from mechdesign.evidence.serialize import dumps

__all__ = ["Account", "headline", "result_sections", "versions"]

LARGEST_FILE = 200_000  # characters that a page carries; a longer file is named only
_LIBRARIES = ("mechdesign", "numpy", "scipy", "cvxpy", "clarabel", "highspy", "mpmath")
_HOW = {
    PROVED: "recomputed from the statement, the law and the multipliers in exact or outward-rounded arithmetic",
    RECOMPUTED: "computed anew in floating-point numbers, with an estimate of the error",
    CLAIMED: "stated by the solver or the design, and not checked here",
}


@dataclass(frozen=True)
class Account:
    """What a wing says of one of its results.

    Parameters
    ----------
    title, subtitle : str
        What was made, in a few words and in a sentence.
    question : str
        What was asked, the privacy unit and the assumptions, in plain words; paragraphs apart by an empty line.
    value : str
        What the value measures.
    privacy : (str, str)
        The guarantee for the headline, and what it spends or whom it protects.
    picture : str
        What the picture shows.
    alternatives : str
        What the others are that the result is compared with.
    """

    title: str
    subtitle: str
    question: str
    value: str
    privacy: tuple[str, str]
    picture: str
    alternatives: str = "The same question answered by mechanisms that are known."


def headline(result: Any, account: Account, claims: pd.DataFrame) -> list[Fact]:
    """The key numbers: value, proved lower bound, gap, privacy, and whether all claims hold."""
    gap, bound, digits = result.gap, result.lower_bound, meaningful(result.gap, 7)
    facts = [("Error", at_most(result.value, digits), account.value)]
    if bound is not None and math.isfinite(bound):
        facts.append(("Lower bound", at_least(bound, digits), f"{result.bound_how}: nothing does better"))
        facts.append(("Gap", "0" if not gap else at_most(gap, 2), "at most this far from optimal, relative"))
    else:
        facts.append(("Lower bound", "none", "it is not known how much better others are"))
    facts.append(("Privacy", *account.privacy))
    file = claims["about"] == ABOUT_FILE
    made, agrees = claims[~file], bool(claims[file]["holds"].all())
    # A certificate that is not of this mechanism proves nothing of it.
    held = int(made["holds"].sum()) if agrees else 0
    counts = made["how"].value_counts()
    words = ", ".join(f"{counts[how]} {how}" for how in _HOW if how in counts)
    words += "; the file agrees with itself" if agrees else "; the file does not agree with itself"
    facts.append(("Claims that hold", f"{held} of {len(made)}", words))
    failed = int((~claims["holds"]).sum())
    warning = (
        "Warning",
        "do not deploy",
        f"{failed} of the claims below {'does' if failed == 1 else 'do'} not hold",
    )
    return [warning, *facts] if failed else facts


def result_sections(result: Any, account: Account, claims: pd.DataFrame) -> Iterator[Section]:
    """The page of a result, section by section."""
    yield Section("What was asked", account.question)
    yield Section("The mechanism", "", figure=result.plot, caption=account.picture)
    others = result.alternatives()
    if len(others):
        yield Section(
            "Against the alternatives", account.alternatives, others, caption="Error at the same privacy"
        )
    tried = result.tried()
    if len(tried):
        yield Section(
            "What the search tried",
            result.tried_words,
            tried,
            rows=12,
            caption=f"The best of {len(tried)} that were tried",
        )
    file = claims["about"] == ABOUT_FILE
    kinds = [how for how in _HOW if (claims[~file]["how"] == how).any()]
    yield Section(
        "What is proved, and how",
        "\n".join(f"- {how}: {_HOW[how]}" for how in kinds),
        claims[~file][["claim", "how", "holds", "margin"]],
        caption="Every claim about the mechanism. The margin is what is left before it would fail.",
        digits=3,
    )
    yield Section(
        "",
        "That the law is one, and that the result does not contradict itself: without these, the claims above might be those "
        "of another mechanism.",
        claims[file][["claim", "holds"]],
        caption="Whether the file agrees with itself",
    )
    table = result.audit()
    if len(table):
        least = tightest(table, 12)[["family", "index", "lhs", "rhs", "slack"]]
        yield Section(
            "Tightest constraints",
            "Recomputed from the mechanism alone. A slack of 0 means that the requirement is used up, not that it is broken.",
            least.astype({"index": str}),
            caption=f"The least slack of {len(table)} constraints, each family's tightest first",
        )
    yield _to_check(result)
    yield from _notes(result)


def _notes(result: Any) -> Iterator[Section]:
    """What was computed for this page, and the design's own words, which a file can change at will."""
    remarks = [" ".join(note.split()) for note in result.remarks()]
    said = [
        f"\u201c{' '.join(note.split())}\u201d" for note in (*result.notes, *result.solver_report.lines())
    ]
    yield Section(
        "Notes and versions",
        "\n".join(f"- {note}" for note in remarks),
        versions(),
        caption="What made this page",
    )
    yield Section(
        "",
        "Stated by the file, not checked, in the design's own words:\n\n"
        + "\n".join(f"- {note}" for note in said),
    )


_ALONE = (
    "It answers with every claim that it checked, and exits with 0 when all hold, 1 when one does not. The second command "
    "makes the checks of both programs, the third shows the constraints."
)
_PACKAGE = (
    'This kind of result it does not cover: it answers "not covered" and exits with 2. Run these two commands instead: '
    "they are the package's own check, which computes privacy and error anew from the law by its accountant."
)


def _to_check(result: Any) -> Section:
    kind, code = type(result).__name__, "mechdesign verify result.json\nmechdesign audit result.json"
    try:
        text = dumps(result)
    except MechdesignError as error:
        reason = " ".join(str(error).split())
        return Section(
            "Check it yourself",
            f"This {kind} cannot be written to a file, and both verifiers read files: {reason}",
        )
    covered = _covered(text)
    words = (
        "The result file holds the statement, the law and the multipliers. verify.pyz is one file that needs Python's "
        "standard library and nothing else; make it from a copy of mechdesign that you trust (mechdesign.verifier.archive), "
        f"not from whoever sent this page. {_ALONE if covered else _PACKAGE}"
    )
    code = f"python verify.pyz result.json\n{code}" if covered else code
    if len(text) > LARGEST_FILE:
        words += f"\n\nThe file of this result is too large for this page ({len(text) / 1e6:.1f} MB): ask for it, or write it with result.save."
        return Section("Check it yourself", words, code=code)
    return Section("Check it yourself", words, code=code, file=("result.json", text))


def _covered(text: str) -> bool:
    """Whether the stand-alone verifier has a check for this file; it decides by kind, privacy and loss."""
    from mechdesign.verifier import verify as alone

    try:
        alone.verify(text)
    except alone.NotCovered:
        return False
    except (alone.Refused, RecursionError):
        return True
    return True


def versions() -> pd.DataFrame:
    """What is installed: Python and the libraries that compute."""
    rows = [("python", platform.python_version())]
    for name in _LIBRARIES:
        try:
            rows.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return pd.DataFrame(rows, columns=["library", "version"])
