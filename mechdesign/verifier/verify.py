"""Check a result file of mechdesign with Python's standard library alone.

    python -m mechdesign.verifier result.json

Every claim is printed as *proved* (exact or outward-rounded arithmetic), *recomputed* (doubles) or *claimed* (not checked
here). Exit code 0: all that is checked holds; 1: something does not, or the file is damaged; 2: not covered, too large to check, or
nothing to check. Covered are results, mechanisms that are saved alone (what they lose is printed), comparisons and frontiers (each result
within, its claims under its name) and certificates. Not covered, by name: biased selections, what shuffling hides, histograms of
users, comparisons of those, of local reports of categories and of means of clients, functions and laws of the user's own. A file that
states no mechanism (a budget, a space, a proof) claims nothing. No code is shared with the package: it is a second opinion. Fields of
files: docs/format.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from mechdesign.verifier.allocation import allocation
from mechdesign.verifier.buffers import stream
from mechdesign.verifier.calibration import calibration, joint
from mechdesign.verifier.choice import choice, rule
from mechdesign.verifier.gaussian import correlated, covariance_problem
from mechdesign.verifier.knorm import knorm
from mechdesign.verifier.local_report import local_report
from mechdesign.verifier.mechanisms import MECHANISMS
from mechdesign.verifier.noise import lattice_noise, lattice_problem
from mechdesign.verifier.opening import LARGEST, file_of
from mechdesign.verifier.plan import allocated, plan
from mechdesign.verifier.quantizer import quantizer, selection_problem
from mechdesign.verifier.reading import (
    MEMBERS,
    Account,
    Json,
    NotCovered,
    NothingToCheck,
    Refused,
    read,
    standing,
)
from mechdesign.verifier.several import comparison, frontier
from mechdesign.verifier.table import bounded, channel, table
from mechdesign.verifier.vectors import vectors

CHECKS: dict[str, Callable[[Json, Account], None]] = {
    "metric-quantizer": quantizer,
    "optimal-quantizer": quantizer,
}
CHECKS |= dict.fromkeys(("optm", "optm-search", "rqm", "erm", "mvu"), quantizer)
CHECKS |= {
    "selection-problem": selection_problem,
    "metric-channel": channel,
    "bounded-count": bounded,
    "private-choice": choice,
    "private-quantile": rule,
    "table-problem": table,
    "lattice-problem": lattice_problem,
    "local-workload": local_report,
    "optimal-noise": lattice_noise,
    "noise-allocation": lambda held, account: (
        allocated if held["mechanism"][""] == "coordinate-noise" else allocation
    )(held, account),
    "scales-problem": allocation,
    "calibration": calibration,
    "joint-calibration": joint,
    "correlated-gaussian": correlated,
    "covariance-problem": covariance_problem,
    "buffered-toeplitz": stream,
    "knorm": knorm,
    "plan": plan,
    "vector-design": vectors,
}
UNCOVERED = {
    **dict.fromkeys(("biased-selection", "biased-quantizer"), "biased selections"),
    **dict.fromkeys(("user-histogram", "tree-histogram", "laplace-histogram"), "histograms of users"),
}
"""Kinds of designs and mechanisms without a check, and what they are of."""


def verify(text: str, seconds: float = 5.0) -> Account:
    """The account of a file; raises NotCovered, or Refused for what cannot be a result or takes about so many seconds more than one a megabyte."""
    account = Account(len(text), seconds)
    held: Json = None
    try:
        held = read(text)
        if not isinstance(held, dict) or held[""] not in (*MEMBERS, "law"):
            raise NothingToCheck("a file that states no mechanism")
        if held[""] in SEVERAL:
            SEVERAL[held[""]](held, account, result)
        elif held[""] in ALONE:
            ALONE[held[""]](held, account)
        elif held[""] in MECHANISMS:
            MECHANISMS[held[""]](held, account)
            neighbours(held, account)
        elif held[""] in UNCOVERED:
            raise NotCovered(UNCOVERED[held[""]])
        elif held[""] in CHECKS:
            raise Refused(f"a design ({held['']}) without a result: nothing is claimed that could be checked")
        else:
            raise NothingToCheck(f"kind {held['']} claims nothing")
    except NotCovered:
        raise
    except RecursionError:
        raise Refused("too many levels") from None
    except Exception as error:
        (place,) = getattr(held, "last", ("",))
        if isinstance(error, Refused):
            raise error.at(place, "near") from None
        said = f"malformed near {place}: no sense is made of it, or of what it is compared with"
        raise Refused(said, placed=True) from None
    return account


def result(held: Json, account: Account) -> None:
    """Check one result."""
    evidence(held, account)
    standing(held, account)


def evidence(held: Json, account: Account) -> None:
    """Check what the proofs speak of."""
    kind = held["design"][""]
    if kind not in CHECKS:
        raise NotCovered(UNCOVERED.get(kind, f"results of kind {kind}"))
    if not isinstance(held["proofs"], list):
        raise Refused("proofs that are no list")
    account.agrees("a proof is there", bool(held["proofs"]))
    if held["proofs"]:
        CHECKS[kind](held, account)
    neighbours(held["design"], account)
    shown = {name: values for name, _, values in held.get("duals") or ()}
    if any(str(family).startswith("model:") for family in shown.get("family", ())):
        account.given('rows "model: …" of the audit are stated by the search, and not checked')


def neighbours(said: Json, account: Account) -> None:
    """What one record does to the answer is the question's: nothing in the file says whether it is so."""
    parts = (said.get("bounds"), said.get("sensitivity"), said)
    if (
        stated := next((part for part in parts if isinstance(part, dict) and "neighbours" in part), None)
    ) is not None:
        account.given(f"the change is what one record does ({stated['neighbours']}), as stated")


def certificate(held: Json, account: Account) -> None:
    """The proofs of a result without its report: class and status are not stated."""
    evidence({**held, "design": held["question"], "mechanism": held["law"]}, account)


ALONE = {"result": result, "certificate": certificate}
SEVERAL = {"comparison": comparison, "frontier": frontier}


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m mechdesign.verifier",
        description="Check what a file claims. Exit status: 0 where all holds, 1 where a claim does not or nothing can be read, 2 where it is not covered.",
    )
    parser.add_argument(
        "file",
        help="a saved result, certificate, comparison, frontier or mechanism, also as .json.gz, or a report page",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="work allowed, beside a second a megabyte")
    parser.add_argument("--json", action="store_true", help="print the claims as JSON")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    try:
        asked = arguments(words)
    except SystemExit as end:
        return 1 if end.code else 0
    try:
        with open(asked.file, "rb") as file:
            text, page = file_of(asked.file, file.read(LARGEST + 1))
        account = verify(text, asked.seconds)
    except NotCovered as error:
        print(error.said)
        return 2
    except (OSError, Refused) as error:
        said = error if isinstance(error, Refused) else f"{asked.file!r} is no file that can be read"
        print(f"error: {said}", file=sys.stderr)
        return 1
    if asked.json:
        rows = [
            {"claim": claim, "how": how, "holds": holds, "margin": account.margins.get(claim)}
            for claim, how, holds in account.rows
        ]
        print(json.dumps(rows, indent=1))
        return 0 if all(holds for *_, holds in account.rows) else 1
    for claim, how, holds in account.rows:
        print(f"{'ok ' if holds else 'NO '} {how:10} {account.margin(claim, how):>11}  {claim}")
    if page is not None:
        print("of the file that the page carries: what the page shows is not compared with it")
    print(account.summary())
    return 0 if all(holds for *_, holds in account.rows) else 1
