"""Check a result file of mechdesign with Python's standard library alone.

    python -m mechdesign.verifier result.json

Every claim is printed as *proved* (exact or outward-rounded arithmetic), *recomputed* (doubles) or *claimed* (not checked
here). Exit code 0: all that is checked holds; 1: something does not, or the file is damaged; 2: not covered, too large to check, or
nothing to check. Covered are results, comparisons and frontiers (each result within, its claims under its name) and certificates. Not
covered, by name: biased selections, histograms of users, comparisons of those, of local reports of categories and of means of clients,
zero-concentrated privacy of noise that is not Gaussian, samples of records of which one is replaced, functions and laws of the user's own. A file that states no result (a budget, a space, a mechanism that is saved alone) claims nothing. No code
is shared with the package: it is a second opinion. Fields of files: docs/format.md.

**Several results in one file**: comparisons, frontiers, and what a comparison's ranking and least error rest on.

*Noise for numbers* answers a question if it is for as many numbers, no fewer rounds, no smaller a sample of the people, and for every change
that the question allows: each bound that the noise relies on holds on all of them, or, where it is made for a list of changes, the corners of a box of
which so many coordinates move are in the list, up to sign. Noise on the whole numbers is for whole numbers only. *A report* of so many bits takes every
input of the question's range, and is unbiased; *a channel* is on its space, for its prior. The error shown is the result's value where its loss is the question's.

A result is *of the question itself* if it is for no more than that, and for its loss and prior: for these changes, rounds and this sample, in a list no
others than the corners. The table marks every other result, and no bound is taken from it.

What is said to be the least error is a lower bound of every mechanism that is proved of a result whose own question this is, by the name of these
mechanisms. Of reports it is found by a search of its own: it is claimed, and must not exceed what an unbiased one of the results costs.

Not covered: questions that list their changes, or of samples of records of which one is replaced, reports of categories, means of clients, histograms of users.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable
from decimal import localcontext
from fractions import Fraction
from typing import NamedTuple

from mechdesign.verifier import calibration, reading
from mechdesign.verifier.allocation import allocation
from mechdesign.verifier.composition import PLACES
from mechdesign.verifier.gaussian import correlated, covariance_problem, stream
from mechdesign.verifier.knorm import box, corners, knorm
from mechdesign.verifier.local_report import local_report
from mechdesign.verifier.noise import lattice_noise, lattice_problem
from mechdesign.verifier.plan import allocated, plan, rule
from mechdesign.verifier.quantizer import quantizer, selection_problem
from mechdesign.verifier.reading import Account, Json, NotCovered, NothingToCheck, Refused, TooLarge, refuse
from mechdesign.verifier.table import bounded, channel, choice, table
from mechdesign.verifier.vectors import vectors

Check = Callable[[Json, Account], None]
REAL = "no additive noise for a real-valued query does better"
WHOLE = "no additive whole-number noise does better"
QUANTIZERS = "metric-quantizer", "optimal-quantizer", "optm", "optm-search", "rqm", "erm", "mvu"
SIGNED: Json = {"signed": True}
BOUNDS = dict.fromkeys(("linf", "l1", "l2", "l0", "each")) | {"neighbours": "add-remove"} | SIGNED
CLOSE = 1e-5
OTHER = "made for another question"


class Protected(NamedTuple):
    """The changes that noise protects: how many numbers, bounds or listed vectors, how many rounds, and the share of people in each round."""

    dimension: int
    changes: Json
    rounds: int = 1
    rate: float = 1.0
    whole: bool = False


def bounds(sensitivity: Json) -> Json:
    """Return all bounds of a sensitivity, a single number bounding every coordinate; a list of changes as it is."""
    if isinstance(sensitivity, list):
        return sensitivity
    given = sensitivity if isinstance(sensitivity, dict) else {"linf": sensitivity}
    return {**BOUNDS, **{name: given[name] for name in BOUNDS if name in given}}


def protected(asked: Json) -> Protected:
    """Return the changes that a question about numbers allows, or that a design's noise protects; of no numbers elsewhere."""
    kind, changes, whole = asked[""], asked.get("sensitivity"), asked.get("integer", False)
    if kind == "noise-allocation":
        each = asked["sensitivities"]
        return Protected(len(each), bounds(asked["bounds"] or {"each": each}) | SIGNED)
    if kind == "correlated-gaussian":
        changes = asked["changes"]
        if isinstance(changes, list):
            return Protected(len(changes[0]), changes)
        if changes[""] == "count-changes":
            return Protected(changes["size"], bounds({**changes, "linf": changes["most"]}))
    if kind not in ("numeric-query", "calibration", "knorm", "optimal-noise"):
        return Protected(0, {})
    if kind == "calibration":
        noise, changes = asked["noise"], bounds(changes) | SIGNED
        whole = (noise["name"] if isinstance(noise, dict) else noise) in (*reading.DISCRETE, "dlaplace")
    if kind == "optimal-noise":
        changes = {"linf": changes, "l0": asked["l0"]}
    rounds, rate = asked.get("rounds", 1), asked.get("sampling_rate", 1.0)
    return Protected(asked["dimension"], bounds(changes), rounds, rate, whole)


def protects(design: Json, question: Json, account: Account) -> bool:
    """Whether noise protects every change that a question about numbers allows."""
    held, asked = protected(design), protected(question)
    if held.dimension != asked.dimension or held.rounds < asked.rounds:
        return False
    return held.rate >= asked.rate and held.whole <= asked.whole and within(asked, held, account)


def within(one: Protected, other: Protected, account: Account) -> bool:
    """Whether every change within the first bounds is within the second, or in their list."""
    sizes, l1, l2 = calibration.bounds_of(one.changes, one.dimension)
    count = sum(n for _, n in sizes)
    each, limits = calibration.widths(one.changes, one.dimension), other.changes
    if not isinstance(limits, dict):
        return listed(limits, each, one.changes, account)
    if not limits["signed"] and one.changes["signed"] and count > 1:
        return False
    account.charge(10 * len(each), 3000)
    kept = all(
        limits[name] is None or calibration.beyond_changes(norm, sizes, l1, l2, Fraction(limits[name])) >= 0
        for name, norm in (("linf", math.inf), ("l1", 1), ("l2", 2))
    )
    kept = kept and (limits["l0"] is None or count <= limits["l0"])
    return kept and all(a <= b for a, b in zip(each, calibration.widths(limits, one.dimension), strict=True))


def listed(vectors: Json, each: list[Fraction], asked: Json, account: Account) -> bool:
    """Whether a list holds all corners of a box, up to sign; in a corner, as many coordinates change as are asked."""
    number = box(each, asked)[-1]
    if number > len(vectors):
        return False
    account.charge(10 * len(vectors) * len(each))
    known = both_signs(vectors)
    return all(corner in known for corner in corners(each, asked))


def both_signs(vectors: Json) -> set[tuple[Json, ...]]:
    return {tuple(sign * x for x in v) for v in vectors for sign in (1, -1)}


def alike(design: Json, question: Json) -> bool:
    """Whether a design minimises the loss of a question: of a report the mean under its prior, of a choice by its counts or, of both, by scores of any size."""
    if question[""] == "choice-question":
        counts = design["largest"] is None or design["objective"] == question["objective"]
        return counts and bool(design["largest"] == question["largest"])
    if question[""] == "local-report":
        mean = design.get("objective", "mean") == "mean"
        return mean and bool((design["prior"], design["loss"]) == (question["prior"], question["loss"]))
    return bool(design.get("loss") == question["loss"])


def of_question(one: Json, question: Json, account: Account) -> bool:
    """Whether a result that answers a question protects nothing else, and has its loss and prior."""
    design = one["design"]
    if question[""] != "numeric-query":
        ranged = question[""] != "local-report" or design["input_range"] == question["input_range"]
        return question[""] == "choice-question" or (ranged and alike(design, question))
    held, asked = protected(design), protected(question)
    if (held.rounds, held.rate) != (asked.rounds, asked.rate):
        return False
    minimised = design[""] == "noise-allocation" or design.get("loss") in (None, question["loss"], "total")
    stated = design.get("neighbours") or bounds(design["sensitivity"])["neighbours"]
    if not minimised or stated != asked.changes["neighbours"]:
        return False
    if isinstance(held.changes, dict):
        return within(held, asked, account)
    each = calibration.widths(asked.changes, asked.dimension)
    return len(both_signs(held.changes)) == 2 * box(each, asked.changes)[2]


def reports(one: Json, question: Json) -> bool:
    """Whether a result is a quantizer of all inputs of a question, with no more outputs than its bits tell apart."""
    design, law, ends = one["design"], one["mechanism"], question["input_range"]
    if design[""] not in (*QUANTIZERS, "biased-selection") or ends is None or design.get("max_bias"):
        return False
    biased = law[""] == "biased-quantizer"
    bins = law["selection"]["bins"] if biased else law["bins"]
    start, *_, stop = law["input_range"] if biased else law["knots"]
    return bool(start <= ends[0] and ends[1] <= stop and len(bins) <= 2 ** question["bits"])


def shares(prior: Json, size: int) -> list[float]:
    weights = [1.0] * size if prior is None else prior
    return [w / math.fsum(weights) for w in weights]


def between_points(design: Json, question: Json) -> bool:
    """Whether a channel is on the space of a question, for its prior."""
    if design[""] != "metric-channel" or repr(design["space"]) != repr(question["space"]):
        return False
    size = math.prod(design["space"]["shape"])
    own, asked = (shares(given["prior"], size) for given in (design, question))
    return len(own) == len(asked) and all(abs(p - q) <= 1e-12 for p, q in zip(own, asked))


def chooses(design: Json, question: Json) -> bool:
    """Whether a design chooses among the candidates of a question, for its neighbours."""
    if design[""] != "private-choice" or not (design["largest"] is None or alike(design, question)):
        return False
    return all(design[key] == question[key] for key in ("candidates", "neighbours", "spread"))


def privacy_of(design: Json) -> Json:
    if "privacy" in design:
        return design["privacy"]
    return {"": "metric-dp", "epsilon": design.get("alpha"), "metric": "absolute"}


def same_question(design: Json, question: Json) -> str | None:
    """The mechanisms that a design's lower bound speaks of, where its question is the comparison's own; None elsewhere."""
    if not alike(design, question):
        return None
    if question[""] == "choice-question":
        top = question["largest"]
        return None if top is None else f"no choice by counts of 0 to {top} does better"
    if question[""] == "metric-report":
        return "no channel between the points does better"
    held, asked = protected(design), protected(question)
    if asked.rate != 1:
        return None
    if design[""] == "knorm":
        return REAL if not asked.whole and held == asked else None
    ((largest, _), *_), *_ = calibration.bounds_of(asked.changes, asked.dimension)
    once = (held.dimension, asked.dimension, asked.rounds) == (1, 1, 1) and held.whole == asked.whole
    if design[""] != "optimal-noise" or not once or Fraction(design["sensitivity"]) != largest:
        return None
    # noise that is not whole may answer whole numbers: the bound of whole noise is one of all where the loss is linear between them
    return (WHOLE if question["loss"] == "absolute" else None) if question["integer"] else REAL


def uncovered(question: Json) -> str:
    """What a comparison is of, where it is not covered; "" elsewhere."""
    if question[""] == "numeric-query":
        if isinstance(question["sensitivity"], list):
            return "for listed changes"
        replaced = question["sampling_rate"] < 1 and protected(question).changes["neighbours"] == "replace"
        return "of samples of records of which one is replaced" if replaced else ""
    if question[""] == "local-report":
        return "of means of clients" if question["clients"] else ""
    named = {"category-report": "of reports of categories", "histogram-of-users": "of histograms of users"}
    return named.get(question[""], "")


def comparison(held: Json, account: Account, check: Check) -> None:
    """Check results for one question at one privacy; the other cells of the table are claimed."""
    results, question = dict(held["results"]), held["question"]
    if of := uncovered(question):
        raise NotCovered(f"comparisons {of}")
    each(results.items(), account, check)
    designs = {name: one["design"] for name, one in results.items()}
    same = all(privacy_of(design) == held["privacy"] for design in designs.values())
    account.agrees("every result is at the privacy stated", same)
    table = {name: values for name, _, values in held["table"]}
    ranked = zip(table["mechanism"], table["error"])
    errors = {name: error for name, error in ranked if isinstance(error, float) and error == error}
    account.agrees("every mechanism that the table ranks has a result", sorted(errors) == sorted(results))
    answers = {
        "numeric-query": lambda one: protects(one["design"], question, account),
        "local-report": lambda one: reports(one, question),
        "metric-report": lambda one: between_points(one["design"], question),
        "choice-question": lambda one: chooses(one["design"], question),
    }[question[""]]
    account.agrees("every result answers the question", all(map(answers, results.values())))
    if not all(holds for *_, holds in account.rows):
        return
    # where whole numbers are asked for, whole answers come first
    whole = bool(question.get("integer"))
    order = [(whole > protected(designs[name]).whole, error) for name, error in errors.items()]
    account.agrees("the table begins with the least error", order == sorted(order))
    of_loss = all(shown(one, question, errors[name]) for name, one in results.items())
    account.agrees(
        "an error of the question's loss is the value of a result for this loss, and no other", of_loss
    )
    said = dict(zip(table["mechanism"], table["assumes"]))
    marked = ((OTHER in str(said[name])) != of_question(results[name], question, account) for name in results)
    account.agrees("results for another question are marked", all(marked))
    account.claimed("the other cells of the table follow from the results")
    least(held, results, account)


def shown(one: Json, question: Json, error: float) -> bool:
    """Whether the table shows the value of a result whose loss, of one number or report, is the question's, and else another error."""
    design, value = one["design"], one["value"]
    close: bool = abs(error - value) <= CLOSE * abs(value)
    if question[""] == "numeric-query" and design[""] not in ("calibration", "knorm", "optimal-noise"):
        return True
    if question[""] in ("choice-question", "local-report"):
        return close or not alike(design, question)
    return close == alike(design, question)


def least(held: Json, results: dict[str, Json], account: Account) -> None:
    """Check that the least error is a lower bound of the mechanisms named."""
    stated, name, question = held["least"], held["least_name"], held["question"]
    if stated is None:
        account.agrees("no least error is named", name == "")
    elif question[""] == "local-report":
        costs = [one["value"] for one in results.values() if of_question(one, question, account)]
        most = min(costs, default=math.inf) * (1 + CLOSE)
        account.claimed(f"{name}: the least error is {stated!r}", 0 < stated <= most, most - stated)
    else:
        bounds = [
            (one["lower_bound"], same_question(one["design"], question))
            for one in results.values()
            if one["bound_class"] == reading.EVERY and of_question(one, question, account)
        ]
        account.agrees(
            "the least error is the lower bound of a result for this very question, by the name of its class",
            (stated, name) in bounds,
        )


def each(results: Iterable[tuple[str, Json]], account: Account, check: Check) -> None:
    """Check every result, and name it in each claim."""
    for name, one in results:
        own = account.part()
        refuse(not isinstance(one, dict) or one[""] != "result", f"{name}: no result")
        try:
            check(one, own)
        except NotCovered as error:
            if isinstance(error, TooLarge):
                raise
            own.claimed(f"not covered: {error}")
        account.join(name, own)


def frontier(held: Json, account: Account, check: Check) -> None:
    """Check results of one design of which one number varies."""
    table, over = {name: values for name, _, values in held["table"]}, held["over"]
    rows = list(zip(table[over], table["value"], table["lower_bound"], held["results"], strict=True))
    points = [(x, one) for x, *_, one in rows if one is not None]
    each(((f"{over} = {x:.12g}", one) for x, one in points), account, check)
    shown = all(
        value != value
        if one is None
        else value == one["value"]
        and (bound != bound if one["lower_bound"] is None else bound == one["lower_bound"])
        for _, value, bound, one in rows
    )
    account.agrees("the table shows value and lower bound of every result, and no other value", shown)
    account.claimed("the other columns of the table follow from the results")
    if held["design"] is None:
        account.claimed("every result is of its point")
        return
    asked = split(held["design"], over)[0]
    parts = [(x, *split(one["design"], over)) for x, one in points]
    account.agrees(
        "results are of the design, but for what varies", all(rest == asked for _, rest, _ in parts)
    )
    account.agrees("every result is of its point", all({*at} <= {x} for x, _, at in parts))


def split(design: Json, over: str) -> tuple[str, list[Json]]:
    """A design without the number that varies, and that number, of it or of its privacy."""
    privacy = design.get("privacy") or {}
    rest = [{k: v for k, v in part.items() if k not in (over, "privacy")} for part in (design, privacy)]
    return repr(rest), [part[over] for part in (design, privacy) if over in part][:1]


CHECKS: dict[str, Callable[[Json, Account], None]] = {
    **dict.fromkeys(QUANTIZERS, quantizer),
    "selection-problem": selection_problem,
    "metric-channel": channel,
    "bounded-count": bounded,
    "private-choice": lambda held, account: (rule if held["design"]["largest"] is None else choice)(
        held, account
    ),
    "private-quantile": rule,
    "table-problem": table,
    "lattice-problem": lattice_problem,
    "local-workload": local_report,
    "optimal-noise": lattice_noise,
    "noise-allocation": lambda held, account: (
        allocated if held["mechanism"][""] == "coordinate-noise" else allocation
    )(held, account),
    "scales-problem": allocation,
    "calibration": calibration.calibration,
    "joint-calibration": calibration.joint,
    "correlated-gaussian": correlated,
    "covariance-problem": covariance_problem,
    "buffered-toeplitz": stream,
    "knorm": knorm,
    "plan": plan,
    "vector-design": vectors,
}
UNCOVERED = {"biased-selection": "biased selections", "user-histogram": "histograms of users"}
"""Kinds of designs without a check, and what they are of."""
TABLES = "channel", "table-mechanism", "choice-table"
PROOFS: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys((*QUANTIZERS, "selection-problem"), ("quantizer-proof", ("quantizer-dual-bound",))),
    "metric-quantizer": ("quantizer-proof", ("rows-bound", "closed-bound")),
    "lattice-problem": ("table-proof", ("rows-bound",)),
    "local-workload": ("law-proof", ("linear-bound", "closed-bound")),
    "optimal-noise": ("law-proof", ("rows-bound", "staircase-dual", "subset-bound")),
    "covariance-problem": ("law-proof", ("covariance-bound",)),
    **dict.fromkeys(("noise-allocation", "scales-problem"), ("allocation-proof", ())),
}
"""The proof of a design's law, and those that its lower bound may have; elsewhere one by the design's theorem."""
GIVEN = {
    **{(kind, "law-proof"): "delta-interval" for kind in ("calibration", "joint-calibration", "plan")},
    ("covariance-problem", "law-proof"): "list",
    ("correlated-gaussian", "closed-bound"): "list",
    ("calibration", "closed-bound"): "float",
    ("optimal-noise", "rows-bound"): "list",
    ("metric-quantizer", "rows-bound"): "listed-inputs",
}
"""What a proof by the design's theorem holds besides question and law: nothing for other designs."""


def verify(text: str, seconds: float = 5.0) -> Account:
    """Return the account of a file; raise NotCovered, or Refused for what cannot be a result. Work is limited to so many seconds, and one more a megabyte."""
    account = Account(len(text), seconds)
    held: Json = None
    try:
        with localcontext(prec=PLACES):
            held = reading.read(text)
            if not isinstance(held, dict) or held[""] not in (*reading.MEMBERS, "law"):
                raise NothingToCheck("a file that states no result")
            if held[""] in SEVERAL:
                SEVERAL[held[""]](held, account, result)
            elif held[""] in ALONE:
                ALONE[held[""]](held, account)
            elif held[""] in CHECKS:
                said = f"a design ({held['']}) without a result: nothing is claimed that could be checked"
                raise Refused(said)
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
    reading.standing(held, account)


def evidence(held: Json, account: Account) -> None:
    """Check the claims of the proofs of a result."""
    kind = held["design"][""]
    if kind not in CHECKS:
        raise NotCovered(UNCOVERED.get(kind, f"results of kind {kind}"))
    refuse(not isinstance(held["proofs"], list), "proofs that are no list")
    complete = are_complete(held)
    account.agrees("one proof is there of the law, one of the lower bound if one is stated", complete)
    for proof in held["proofs"]:
        given = proof.get("given")
        sort = given[""] if isinstance(given, dict) else type(given).__name__
        if sort != GIVEN.get((kind, proof[""]), "NoneType"):
            raise Refused("a proof with other numbers than its design's theorem needs")
    if complete:
        CHECKS[kind](held, account)
    neighbours(held["design"], account)
    shown = {name: values for name, _, values in held.get("duals") or ()}
    if any(str(family).startswith("model:") for family in shown.get("family", ())):
        account.given('rows "model: …" of the audit are stated by the search, and not checked')


def are_complete(held: Json) -> bool:
    """Whether each claim has one proof, of a kind that the design has, and no other proof is there. A bound may lack one if its loss is a function."""
    kind, found = held["design"][""], [proof[""] for proof in held["proofs"]]
    law, allowed = PROOFS.get(kind, ("law-proof", ("closed-bound",)))
    if held["mechanism"][""] in TABLES:
        law, allowed = "table-proof", ("rows-bound",)
    if law == "allocation-proof" and found == ["law-proof"]:
        return held["lower_bound"] is None
    loss, stated = held["design"].get("loss"), held["lower_bound"] is not None
    unknown = isinstance(loss, dict) and loss["function"] is not None
    others = [name for name in found if name != law]
    enough = len(others) == (stated and bool(allowed)) or (unknown and not others)
    return enough and len({*found}) == len(found) and law in found and {*others} <= {*allowed}


def neighbours(said: Json, account: Account) -> None:
    """State as given how one record changes the answer, which nothing in a file can show. A report of one person has no records."""
    parts = (said.get("bounds"), said.get("sensitivity"), said)
    stated = next((part for part in parts if isinstance(part, dict) and "neighbours" in part), None)
    if stated is not None and stated.get("of") != "person":
        account.given(f"the change is what one record does ({stated['neighbours']}), as stated")


def certificate(held: Json, account: Account) -> None:
    """Check the proofs of a result without its report, which states neither class nor status."""
    evidence({**held, "design": held["question"], "mechanism": held["law"]}, account)


ALONE = {"result": result, "certificate": certificate}
SEVERAL = {"comparison": comparison, "frontier": frontier}


def work(word: str) -> float:
    """Read a number of seconds, infinity included."""
    seconds = float(word)
    if seconds != seconds:
        raise ValueError
    return seconds


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m mechdesign.verifier",
        description="Check what a file claims. Exit status: 0 where all holds, 1 where a claim does not or nothing can be read, 2 where it is not covered.",
    )
    parser.add_argument(
        "file",
        help="a saved result, certificate, comparison or frontier, also as .json.gz, or a report page",
    )
    parser.add_argument("--seconds", type=work, default=5.0, help="work allowed, beside a second a megabyte")
    parser.add_argument("--json", action="store_true", help="print the claims as JSON")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    try:
        asked = arguments(words)
    except SystemExit as end:
        return 1 if end.code else 0
    try:
        with open(asked.file, "rb") as file:
            text, page = reading.file_of(asked.file, file.read(reading.LARGEST + 1))
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
    else:
        for claim, how, holds in account.rows:
            mark = ("--" if how == "claimed" else "ok") if holds else "NO"
            print(f"{mark}  {how:10} {account.margin(claim, how):>11}  {claim}")
        if page is not None:
            print("of the file that the page carries: what the page shows is not compared with it")
        print(account.summary())
    return 0 if all(holds for *_, holds in account.rows) else 1
