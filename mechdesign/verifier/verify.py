"""Check a result file of mechdesign with Python's standard library alone.

    python -m mechdesign.verifier result.json

Every claim is printed as *proved* (exact or outward-rounded arithmetic), *recomputed* (doubles) or *claimed* (not checked
here). Exit code 0: all that is checked holds; 1: something does not, or the file is damaged; 2: not covered, too large to check, or
nothing to check. Covered is every kind of result and every mechanism that is saved alone (what it loses is printed), comparisons and
frontiers (each result within, its claims under its name) and certificates. Not covered are functions and laws of users, by name; a
file that states no mechanism (a budget, a space, a proof) claims nothing. Nothing is shared with the package: it is a second opinion.
Fields of files: docs/format.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from mechdesign.verifier.allocation import allocation
from mechdesign.verifier.biased_selection import biased_selection
from mechdesign.verifier.bound_class import EVERY, standing
from mechdesign.verifier.bounded import bounded
from mechdesign.verifier.calibration import calibration
from mechdesign.verifier.channel import channel
from mechdesign.verifier.covariance import correlated, counts
from mechdesign.verifier.knorm import knorm
from mechdesign.verifier.lattice_noise import lattice_noise
from mechdesign.verifier.mechanisms import MECHANISMS
from mechdesign.verifier.members import MEMBERS
from mechdesign.verifier.quantizer import quantizer
from mechdesign.verifier.reading import Account, Json, NotCovered, NothingToCheck, Refused, TooLarge, read
from mechdesign.verifier.strategy import strategy
from mechdesign.verifier.vectors import vectors

CHECKS: dict[str, Callable[[Json, Account], None]] = {
    "metric-quantizer": quantizer,
    "optimal-quantizer": quantizer,
}
CHECKS |= dict.fromkeys(("optm", "optm-search", "rqm", "erm", "mvu"), quantizer)
CHECKS |= {
    "metric-channel": channel,
    "bounded-count": bounded,
    "optimal-noise": lattice_noise,
    "noise-allocation": allocation,
    "calibration": calibration,
    "correlated-gaussian": correlated,
    "counts-gaussian": counts,
    "matrix-mechanism": strategy,
    "knorm": knorm,
    "vector-design": vectors,
    "biased-selection": biased_selection,
}


LEAST = {
    "numeric-query": (
        "no additive noise for a real-valued query does better",
        "no additive whole-number noise does better",
    ),
    "metric-report": (
        "no channel between the points does better",
        "no unbiased channel between the points does better",
    ),
    "local-report": (),
}
"""What a comparison may call its least error."""


def verify(text: str) -> Account:
    """The account of a file; raises NotCovered, or Refused for what cannot be a result."""
    try:
        held, account = read(text), Account(len(text))
        if not isinstance(held, dict) or held[""] not in (*MEMBERS, "law"):
            raise NothingToCheck("a file that states no mechanism")
        if held[""] in SEVERAL:
            SEVERAL[held[""]](held, account)
        elif held[""] in MECHANISMS:
            MECHANISMS[held[""]](held, account)
        elif held[""] == "result":
            result(held, account)
        elif held[""] in CHECKS:
            raise Refused(f"a design ({held['']}) without a result: nothing is claimed that could be checked")
        else:
            raise NothingToCheck(f"kind {held['']} claims nothing")
    except (NotCovered, Refused):
        raise
    except RecursionError:
        raise Refused("too many levels") from None
    except Exception as error:
        raise Refused(f"malformed: {type(error).__name__}: {error}"[:300]) from None
    return account


def result(held: Json, account: Account) -> None:
    """Check one result."""
    kind = held["design"][""]
    if kind not in CHECKS:
        raise NotCovered(f"results of kind {kind}")
    if not isinstance(held["proofs"], list):
        raise Refused("proofs that are no list")
    account.agrees("a proof is there", bool(held["proofs"]))
    if held["proofs"]:
        CHECKS[kind](held, account)
    neighbours(held["design"], account)
    standing(held, account)


def neighbours(design: Json, account: Account) -> None:
    """What one record does to the answer is the question's: nothing in the file says whether it is so."""
    for bounds in (design.get("sensitivity"), design.get("bounds")):
        if isinstance(bounds, dict):
            account.claimed(f"the change is what one record does ({bounds['neighbours']}), as stated")


def each(results: Iterable[tuple[str, Json]], account: Account) -> None:
    """Check every result, and name it in each claim."""
    for name, one in results:
        own = account.part()
        if one[""] != "result":
            raise Refused(f"{name}: no result")
        try:
            result(one, own)
        except NotCovered as error:
            if isinstance(error, TooLarge):
                raise
            own.claimed(f"not covered: {error}")
        account.join(name, own)


def comparison(held: Json, account: Account) -> None:
    """Results for one question at one privacy; that each answers it, and all other cells of the table, are the file's own words."""
    results = dict(held["results"])
    each(results.items(), account)
    same = all(
        one["design"].get("privacy") == held["privacy"]
        for one in results.values()
        if "privacy" in one["design"]
    )
    account.agrees("every result is at the privacy stated", same)
    table = {name: values for name, _, values in held["table"]}
    kept = [
        name
        for name, error in zip(table["mechanism"], table["error"])
        if isinstance(error, float) and error == error
    ]
    account.agrees("every mechanism that the table ranks has a result", sorted(kept) == sorted(results))
    if held["question"][""] == "numeric-query":
        answers = all(covers(one["design"], held["question"]) for one in results.values())
        account.agrees("every result is for as many numbers, rounds and changes as the question", answers)
    account.claimed("every result answers the question, and the table shows what follows from it")
    bounds = [one["lower_bound"] for one in results.values() if one["bound_class"] == EVERY]
    nouns = LEAST[held["question"][""]] if held["least"] is not None else ("",)
    of_any = held["least_name"] in nouns or (
        held["question"][""] == "local-report" and held["least_name"].startswith("no unbiased report ")
    )
    account.agrees("the least error is said to be of mechanisms that it can be of", of_any)
    if held["least"] is not None and held["question"][""] != "local-report":
        account.agrees("the least error is the lower bound of a result", held["least"] in bounds)
    elif held["least"] is not None:
        account.claimed(f"the least error is {held['least']!r}")


def covers(design: Json, question: Json) -> bool:
    """Whether a design is for no less than a question of numbers, as far as both say so in numbers."""
    changes = design.get("sensitivity"), question["sensitivity"]
    larger = any(isinstance(change, dict | list) or change is None for change in changes)
    return bool(
        (larger or changes[0] >= changes[1])
        and design.get("dimension", question["dimension"]) == question["dimension"]
        and design.get("rounds", 1) >= question["rounds"]
        and design.get("sampling_rate", 1) >= question["sampling_rate"]
    )


def frontier(held: Json, account: Account) -> None:
    """Results of one design of which one number varies."""
    table = {name: values for name, _, values in held["table"]}
    points = list(
        zip(table[held["over"]], table["value"], table["lower_bound"], held["results"], strict=True)
    )
    each(((f"{held['over']} = {x:.12g}", one) for x, *_, one in points if one is not None), account)
    shown = all(
        one is None or (value, bound) == (one["value"], one["lower_bound"]) for _, value, bound, one in points
    )
    account.agrees("the table shows the value and the lower bound of every result", shown)
    designs = [one["design"] for *_, one in points if one is not None]
    alike = all(fixed(one, held["over"]) == fixed(held["design"], held["over"]) for one in designs)
    account.agrees("results are of the design, but for what varies", alike)
    at = [
        varying(one, held["over"], x) == x
        for x, *_, one in points
        if one is not None
        for one in [one["design"]]
    ]
    account.agrees("every result is of its point", all(at))
    account.claimed("the other columns of the table follow from the results")


def fixed(design: Json, over: str) -> str:
    """What of a design does not vary."""
    privacy = {k: v for k, v in (design.get("privacy") or {}).items() if k != over}
    left = {
        k: v for k, v in design.items() if k not in (over, "privacy", *(["bins"] if over == "bits" else []))
    }
    return repr((left, privacy))


def varying(design: Json, over: str, otherwise: Json) -> Json:
    if over in design:
        return design[over]
    return (design.get("privacy") or {}).get(over, otherwise)


def certificate(held: Json, account: Account) -> None:
    """The proofs of a result without its report: class and status are not stated."""
    kind = held["question"][""]
    if kind not in CHECKS:
        raise NotCovered(f"results of kind {kind}")
    if not isinstance(held["proofs"], list):
        raise Refused("proofs that are no list")
    account.agrees("a proof is there", bool(held["proofs"]))
    if held["proofs"]:
        CHECKS[kind]({**held, "design": held["question"], "mechanism": held["law"]}, account)


SEVERAL = {"comparison": comparison, "frontier": frontier, "certificate": certificate}


def main(words: list[str]) -> int:
    if len(words) != 1:
        print("usage: python -m mechdesign.verifier result.json", file=sys.stderr)
        return 1
    try:
        with open(words[0], encoding="utf-8") as file:
            account = verify(file.read(2**26 + 1))
    except NotCovered as error:
        print(error.said)
        return 2
    except (OSError, UnicodeDecodeError, Refused) as error:
        said = error if isinstance(error, Refused) else f"{words[0]!r} is no text that can be read"
        print(f"error: {said}", file=sys.stderr)
        return 1
    for claim, how, holds in account.rows:
        print(f"{'ok ' if holds else 'NO '} {how:10} {claim}")
    print(account.summary())
    return 0 if all(holds for *_, holds in account.rows) else 1
