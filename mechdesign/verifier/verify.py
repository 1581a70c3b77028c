"""Check a result file of mechdesign with Python's standard library alone.

    python -m mechdesign.verifier result.json

Every claim is printed as *proved* (exact or outward-rounded arithmetic), *recomputed* (doubles) or *claimed* (not checked
here). Exit code 0: all that is checked holds; 1: something does not, or the file is damaged; 2: not covered, too large to check, or
nothing to check. Covered are results, comparisons and frontiers (each result within, its claims under its name) and certificates. Not
covered, by name: biased selections, histograms of users, comparisons of those, of local reports of categories and of means of clients,
zero-concentrated privacy of noise that is not Gaussian, samples of records of which one is replaced, functions and laws of the user's own. A file that states no result (a budget, a space, a mechanism that is saved alone) claims nothing. The
package reads the text of files by `mechdesign.verifier.reading` and shares no other code: it is a second opinion. Fields of files: docs/format.md.

**Several results in one file**: comparisons, frontiers, and what a comparison's ranking and least error rest on.

*Noise for numbers* answers a question if it is for the same numbers, rounds, sample of the people, neighbours and loss, and for the changes that the question
allows, no more and no fewer: the same bounds bind, or a list of changes is that of the corners, up to sign. Noise on the whole numbers is for whole numbers only.
*A report* is unbiased, has the question's range, prior and loss, and no more outputs than its bits tell apart; *a channel* is on its space, for its prior and loss.
The error shown is the result's value where that is of the question's loss. Every other result is marked in the table, and no bound is taken from it.

What is said to be the least error is a lower bound of every mechanism that is proved of a result that answers the question, by the name of these
mechanisms. Of reports it is found by a search of its own: it is claimed, and must not exceed what one of the results costs.

Not covered: questions that list their changes, or of samples of records of which one is replaced, reports of categories, means of clients, histograms of users.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable
from decimal import localcontext

from mechdesign.verifier import calibration, reading
from mechdesign.verifier.allocation import allocation
from mechdesign.verifier.arithmetic import OPERATIONS, allowed, charge
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
QUANTIZERS = "metric-quantizer", "optimal-quantizer", "optm", "optm-search", "rqm", "erm", "mvu"
NOISE = "calibration", "knorm", "optimal-noise", "noise-allocation", "correlated-gaussian"
BOUNDS = dict.fromkeys(("linf", "l1", "l2", "l0", "each")) | {"neighbours": "add-remove", "signed": True}
ANY_SIGNS = {"signed": None}
CLOSE = 1e-5
OTHER = "made for another question"


def bounds(sensitivity: Json) -> Json:
    """Return all bounds of a sensitivity, a single number bounding every coordinate."""
    given = sensitivity if isinstance(sensitivity, dict) else {"linf": sensitivity}
    return {**BOUNDS, **{name: given[name] for name in BOUNDS if name in given}}


def changes_of(design: Json) -> tuple[int, Json]:
    """Return how many numbers noise is for, and their bounds or the list of their changes."""
    kind, changes = design[""], design.get("changes") or design.get("sensitivity")
    if isinstance(changes, list):
        return len(changes[0]), changes
    if kind == "correlated-gaussian":
        return changes["size"], bounds({**changes, "linf": changes["most"]})
    if kind == "knorm":
        return design["dimension"], bounds(changes)
    if kind == "noise-allocation":
        each = design["sensitivities"]
        return len(each), bounds(design["bounds"] or {"each": each}) | ANY_SIGNS
    if kind == "optimal-noise":
        changes = {"linf": changes, "l0": design["l0"]}
    return design["dimension"], bounds(changes) | ANY_SIGNS


def same_changes(design: Json, question: Json) -> bool:
    """Whether noise is for the very changes of a question: the same bounds bind, or the list is that of the corners, up to sign."""
    dimension, asked = question["dimension"], bounds(question["sensitivity"])
    size, held = changes_of(design)
    if size != dimension:
        return False
    charge(30 * size, 3000)
    if isinstance(held, list):
        each = calibration.widths(asked, dimension)
        known = {tuple(sign * x for x in v) for v in held for sign in (1, -1)}
        alike = len(known) == 2 * box(each, asked)[2]
        return alike and all(corner in known for corner in corners(each, asked))
    found = binding(held, dimension)
    return found == binding(asked, dimension) and (
        found[-1] == 1 or held["signed"] in (asked["signed"], None)
    )


def binding(changes: Json, dimension: int) -> tuple[Json, ...]:
    """Return the bounds of changes, each as far as a change reaches it, and how many numbers change."""
    sizes, l1, l2 = calibration.bounds_of(changes, dimension)
    longest = calibration.filled(sizes, l1)
    square = longest if l2 is None else min(longest, l2**2)
    reached = calibration.reached(1, sizes, l1, l2)
    return calibration.widths(changes, dimension), reached, square, sum(n for _, n in sizes)


def answers_numbers(design: Json, law: Json, question: Json) -> bool:
    """Whether noise is made for the numbers of a question, its changes, rounds, sample and loss; on the integers for whole numbers only."""
    often = (design.get("rounds", 1), design.get("sampling_rate", 1.0))
    if design[""] not in NOISE or often != (question["rounds"], question["sampling_rate"]):
        return False
    minimised = design[""] == "noise-allocation" or design.get("loss") in (question["loss"], "total")
    stated = design.get("neighbours") or bounds(design["sensitivity"])["neighbours"]
    near = stated == bounds(question["sensitivity"])["neighbours"]
    fits = minimised and near and is_whole(design) <= question["integer"]
    return fits and same_changes(design, question)


def is_whole(design: Json) -> bool:
    """Whether a design asks for noise on the integers."""
    noise = design.get("noise")
    family = noise["name"] if isinstance(noise, dict) else noise
    return bool(design.get("integer", False)) or family in (*reading.DISCRETE, "dlaplace")


def answers_reports(design: Json, law: Json, question: Json) -> bool:
    """Whether a result is an unbiased quantizer of the range, prior and loss of a question, with no more outputs than its bits tell apart."""
    loss = question["prior"], question["loss"]
    if design[""] not in (*QUANTIZERS, "biased-selection") or design.get("max_bias"):
        return False
    bins = law["selection"]["bins"] if law[""] == "biased-quantizer" else law["bins"]
    mean = design.get("objective", "mean") == "mean" and design["input_range"] == question["input_range"]
    return mean and (design["prior"], design["loss"]) == loss and len(bins) <= 2 ** question["bits"]


def shares(prior: Json, size: int) -> list[float]:
    weights = [1.0] * size if prior is None else prior
    return [w / math.fsum(weights) for w in weights]


def answers_points(design: Json, law: Json, question: Json) -> bool:
    """Whether a channel is on the space of a question, for its prior and loss."""
    if design[""] != "metric-channel" or repr(design["space"]) != repr(question["space"]):
        return False
    size = math.prod(design["space"]["shape"])
    own, asked = (shares(given["prior"], size) for given in (design, question))
    alike = len(own) == len(asked) and all(abs(p - q) <= 1e-12 for p, q in zip(own, asked))
    return alike and bool(design["loss"] == question["loss"])


def answers_choices(design: Json, law: Json, question: Json) -> bool:
    """Whether a design chooses among the candidates of a question, for its neighbours: by scores of any size, or by its counts."""
    if design[""] != "private-choice":
        return False
    counts = () if design["largest"] is None else ("largest", "objective")
    return all(design[name] == question[name] for name in ("candidates", "neighbours", "spread", *counts))


ANSWERS: dict[str, Callable[[Json, Json, Json], bool]] = {
    "numeric-query": answers_numbers,
    "local-report": answers_reports,
    "metric-report": answers_points,
    "choice-question": answers_choices,
}


def privacy_of(design: Json) -> Json:
    if "privacy" in design:
        return design["privacy"]
    return {"": "metric-dp", "epsilon": design.get("alpha"), "metric": "absolute"}


def uncovered(question: Json) -> str:
    """What a comparison is of, where it is not covered; "" elsewhere."""
    if question[""] == "numeric-query":
        if isinstance(question["sensitivity"], list):
            return "for listed changes"
        replaced = (
            question["sampling_rate"] < 1 and bounds(question["sensitivity"])["neighbours"] == "replace"
        )
        return "of samples of records of which one is replaced" if replaced else ""
    if question[""] == "local-report":
        return "of means of clients" if question["clients"] else ""
    named = {"category-report": "of reports of categories", "histogram-of-users": "of histograms of users"}
    return named.get(question[""], "")


def comparison(held: Json, account: Account, check: Check) -> None:
    """Check results for one question at one privacy, their ranking, and the least error; the other cells of the table are claimed."""
    results, question = dict(held["results"]), held["question"]
    if of := uncovered(question):
        raise NotCovered(f"comparisons {of}")
    each(results.items(), account, check)
    same = all(privacy_of(one["design"]) == held["privacy"] for one in results.values())
    account.agrees("every result is at the privacy stated", same)
    table = {name: values for name, _, values in held["table"]}
    ranked = zip(table["mechanism"], table["error"], table["assumes"])
    shown = {
        name: (error, said) for name, error, said in ranked if isinstance(error, float) and error == error
    }
    account.agrees("every mechanism that the table ranks has a result", sorted(shown) == sorted(results))
    if not all(holds for *_, holds in account.rows):
        return
    # where whole numbers are asked for, whole answers come first
    whole = bool(question.get("integer"))
    order = [(whole > is_whole(results[name]["design"]), error) for name, (error, _) in shown.items()]
    account.agrees("the table begins with the least error", order == sorted(order))
    answers = ANSWERS[question[""]]
    own = {name: one for name, one in results.items() if answers(one["design"], one["mechanism"], question)}
    marked = {name for name, (_, said) in shown.items() if OTHER in str(said)}
    account.agrees(
        "every result answers the question, or is marked as made for another", {*own} ^ marked == {*shown}
    )
    near = all(
        abs(shown[name][0] - one["value"]) <= CLOSE * abs(one["value"])
        for name, one in own.items()
        if alike(one, question)
    )
    account.agrees("an error of the question's loss is the value of its result", near)
    account.claimed("the other cells of the table follow from the results")
    least(held, [*own.values()], account)


def alike(one: Json, question: Json) -> bool:
    """Whether the value of a result that answers a question is an error of the question's loss."""
    if question[""] == "numeric-query":
        return one["design"][""] in ("calibration", "knorm", "optimal-noise")
    return question[""] != "choice-question" or bool(one["design"]["largest"] == question["largest"])


def least(held: Json, own: list[Json], account: Account) -> None:
    """Check that the least error is a lower bound of the mechanisms named, of a result that answers the question."""
    stated, name, question = held["least"], held["least_name"], held["question"]
    if stated is None:
        account.agrees("no least error is named", name == "")
    elif question[""] == "local-report":
        most = min((one["value"] for one in own), default=math.inf) * (1 + CLOSE)
        account.claimed(f"{name}: the least error is {stated!r}", 0 < stated <= most, most - stated)
    else:
        bounds = [
            one["lower_bound"]
            for one in own
            if one["bound_class"] == reading.EVERY
            and alike(one, question)
            and is_whole(one["design"]) == question.get("integer", False)
        ]
        noun = {
            "metric-report": "channel between the points",
            "choice-question": f"choice by counts of 0 to {question.get('largest')}",
        }
        # noise that is not whole may answer whole numbers: the bound of whole noise is one of all where the loss is linear between them
        kind = "whole-number noise" if question.get("integer") and question["loss"] == "absolute" else ""
        kind = kind if question.get("integer") else "noise for a real-valued query"
        among = noun.get(question[""], kind and f"additive {kind}")
        fits = bool(among) and name == f"no {among} does better"
        account.agrees(
            "the least error is the lower bound of a result for this very question, by the name of its class",
            fits and stated in bounds,
        )


def each(results: Iterable[tuple[str, Json]], account: Account, check: Check) -> None:
    """Check every result, and name it in each claim."""
    for name, one in results:
        own = Account()
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
    table, over, results = {name: values for name, _, values in held["table"]}, held["over"], held["results"]
    rows = list(zip(table[over], table["value"], table["lower_bound"], results, strict=True))
    points = [(x, one) for x, *_, one in rows if one is not None]
    each(((f"{over} = {x:.12g}", one) for x, one in points), account, check)
    stated = [
        [math.nan if one is None or one[name] is None else one[name] for one in results]
        for name in ("value", "lower_bound")
    ]
    shown = repr(stated) == repr([table["value"], table["lower_bound"]])
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
    account = Account()
    held: Json = None
    try:
        with localcontext(prec=PLACES), allowed(OPERATIONS * (seconds + len(text) / 1e6)):
            held = reading.Reader().read(text)
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
            text, page = reading.file_of(asked.file, file.read(reading.LIMIT + 1))
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
