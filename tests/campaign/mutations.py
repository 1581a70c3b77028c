"""Damaged and doctored result files of every design: each ends refused, in a claim that does not hold, or changes nothing, with all checkers.

    python -m tests.campaign.mutations --files 10000 --seed 0 --store mutations.jsonl
    python -m tests.campaign.mutations --files 10000 --seed 0 --store mutations.jsonl --table results/campaign

The checkers are the package and the stand-alone verifier. What is done is stored, and a killed campaign continues where it was.

"Nothing" means what a result says: its design, mechanism, value and lower bound are as they were. The solver's account,
notes and multipliers may differ as long as every claim is still proved from what is in the file; so may a lower bound
that the audit calls claimed.
"""

import argparse
import functools
import json
import math
import random
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import cheap
import pandas as pd

import mechdesign as md
from campaign import files
from campaign.doctorings import DOCTORINGS, doctored
from campaign.trees import at, places
from mechdesign.evidence.results import OF_SEARCH
from mechdesign.evidence.serialize import encode, loads
from mechdesign.model.grid import Store
from mechdesign.typing import Status
from mechdesign.verifier import verify
from tests.campaign import table

# Where a search looked, which no claim is about; outputs beyond `max_abs` are refused.
SEARCHED = [
    "exhaustive", "max_abs", "grid", "levels", "seed", "starts", "input_bits", "symmetric", "axes", "order", "bounds",
    "constraints", "families", "judge", "spanner", "unit", "names",
]  # fmt: skip
WORDS = ["unit", "names"]
SAID = ("design", "mechanism", "value", "lower_bound")


ACCEPTED = "FAULT: accepted"
AUTHORED = "as its author named it"  # an objective, which no checker holds for more than that


class TooLong(BaseException):
    """A file that was not done with in time."""


def allowed(text: str) -> float:
    """Processor seconds after which a file of this size is given up: twice what a checker counts its work by."""
    return 2 * (5 + len(text) / 1e6)


def text_mutation(rng: random.Random, text: str) -> str:
    """Cut, repeated, replaced or inserted characters."""
    start = rng.randrange(len(text))
    stop = min(len(text), start + rng.choice((1, 1, 3, 40, 1000)))
    match rng.randrange(6):
        case 0:
            return text[:start]
        case 1:
            return text[:start] + text[stop:]
        case 2:
            return text[:stop] + text[start:]
        case 3:
            return text[:start] + rng.choice('0123456789eE.-{}[]",:\\ \x00é\ud800') + text[start + 1 :]
        case 4:
            return (
                text[:start]
                + rng.choice(["NaN", "Infinity", "9" * 5000, "[" * 100_000, '{"a":' * 50_000, "1e999"])
                + text[start:]
            )
    return text.replace(text[start:stop], rng.choice(["", "1", "null"]), 1)


DAMAGED = "damaged text"


def mutated(rng: random.Random, documents: dict[str, str]) -> tuple[str, str, str]:
    """The name of a result, what is done to its file, and the text after it; every kind of doctoring is as likely."""
    name = rng.choice(list(documents))
    if rng.random() < 1 / (len(DOCTORINGS) + 1):
        return name, DAMAGED, text_mutation(rng, documents[name])
    payload = json.loads(documents[name])["payload"]
    alike = [n for n in documents if n != name and kind_of(documents[n]) == kind_of(documents[name])]
    other = rng.choice(alike if alike and rng.random() < 0.7 else list(documents))
    kind, made = next(doctored(rng, payload, json.loads(documents[other])["payload"]))
    try:
        return name, kind, cheap.sealed(made)
    except UnicodeEncodeError:  # a lone surrogate has no checksum
        return name, kind, json.dumps({**json.loads(documents[name]), "payload": made})


@functools.cache
def kind_of(text: str) -> str:
    """The kind of design of a file."""
    return str(json.loads(text)["payload"]["fields"]["design"]["$kind"])


def said(result: md.Result) -> list[str]:
    """What a result says, as text: numbers to ten digits, and without how a search looked for it."""
    return words_of({part: encode(getattr(result, part)) for part in SAID})


def words_of(fields: dict[str, Any]) -> list[str]:
    """The same, of the members of a file."""

    def plain(node: Any, left_out: list[str]) -> Any:
        if isinstance(node, dict) and "$fraction" in node:
            return f"{float(Fraction(node['$fraction'])) + 0.0:.10g}"
        if isinstance(node, dict) and node.get("$kind") == "cell-noise":  # in proportion
            cells = dict(node["fields"])
            weights = cells.pop("weights")["$tuple"]
            total = sum(weights) + cells["spike"]
            shares = [w / total for w in [*weights, cells.pop("spike")]]
            return [plain(cells, left_out), plain(shares, left_out)]
        if isinstance(node, dict) and node.get("$kind") == "selection-law":  # each row in proportion
            law = dict(node["fields"])
            rows = [row["$tuple"] for side in ("left", "right") for row in law.pop(side)["$tuple"]]
            return [plain(law, left_out), plain([[w / sum(row) for w in row] for row in rows], left_out)]
        if (
            isinstance(node, dict)
            and node.get("$kind") in ("table-mechanism", "channel")
            and node["fields"]["weights"]
        ):
            held = dict(node["fields"])  # each row in proportion
            rows = [row["$tuple"] for row in held.pop("weights")["$tuple"]]
            return [plain(held, left_out), plain([[w / sum(row) for w in row] for row in rows], left_out)]
        if isinstance(node, dict) and node.get("$kind") == "knorm-noise" and node["fields"]["simplices"]:
            faces = node["fields"]["simplices"]["$tuple"]  # sets of vertices
            sets = [sorted(face["$tuple"]) for face in faces]
            return plain({**node, "$kind": "", "fields": {**node["fields"], "simplices": sets}}, left_out)
        if isinstance(node, dict) and [*node] == ["$items"]:  # in any order
            return {str(k): plain(v, left_out) for k, v in sorted(node["$items"], key=str)}
        if isinstance(node, dict):
            return {k: plain(v, left_out) for k, v in node.items() if k not in left_out}
        if isinstance(node, list):
            return [plain(v, left_out) for v in node]
        if type(node) is float and abs(node) < 1e-300:
            return "0"
        return f"{node + 0.0:.10g}" if type(node) in (int, float) and abs(node) < 1e300 else node

    parts = ((part, SEARCHED if part == "design" else WORDS) for part in SAID)
    return [json.dumps(plain(fields[part], left_out)) for part, left_out in parts]


def outcome(text: str, original: list[str]) -> str:
    """How a file ended: "refused", "failed", "same", "less"; anything else is a fault."""

    def stop(*_: Any) -> None:
        raise TooLong

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, allowed(text))
    try:
        result = loads(text)
        if not isinstance(result, md.Result):
            return "refused"  # the audit says that it is no result
        return examined(result, original)
    except md.ResultFormatError:
        return "refused"
    except TooLong:
        return "FAULT: too long"
    except BaseException as error:
        return f"FAULT: {type(error).__name__}: {error!s:.150}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def examined(result: md.Result, original: list[str]) -> str:
    """What a reviewer of a loaded result sees."""
    try:
        if not result.checks()["holds"].all():  # always a table
            return "failed"
        table = result.audit()
        definition = table[~table["family"].astype(str).str.startswith("model:")]
        good = bool((definition["slack"] >= -1e-9).all())
    except (
        md.ResultFormatError
    ):  # of the audit table: `mechdesign audit` prints that the parts do not fit together
        return "failed"
    if not good:
        return "failed"
    now = said(result)
    if now[: len(SAID)] == original[: len(SAID)]:
        return "same"
    if weaker(result, now, original):
        return "less"
    own = any(claim.endswith(AUTHORED) for claim in result.checks()["claim"])
    return "claimed" if own and now[0] != original[0] else ACCEPTED


def weaker(result: Any, now: list[str], original: list[str]) -> bool:
    """Whether a file says less than the honest one, and so is true: the same mechanism at a higher value, beside a lower
    bound, for the same question or for one that it answers without being called optimal. Value and bound stand once in such a file.
    """
    return says_less(now, original, result.status in (Status.OPTIMAL, Status.BEST))


BUDGET = re.compile(r'"(epsilon|delta|rho|alpha)": "([^"]*)"')


def says_less(now: list[str], original: list[str], best: bool) -> bool:
    if now[1] != original[1]:
        return False
    value, bound = (float(json.loads(text) or -math.inf) for text in now[2:])
    least, most = (float(json.loads(text) or -math.inf) for text in original[2:])
    if value < least or bound > most:
        return False
    # A mechanism that is not called the best may stand beside any question that it answers; one that is, beside a smaller budget
    # that it keeps, under which no other mechanism is better than before.
    budgets, others = ([float(m[1]) for m in BUDGET.findall(text)] for text in (now[0], original[0]))
    same = BUDGET.sub("", now[0]) == BUDGET.sub("", original[0])
    return not best or (same and all(a <= b for a, b in zip(budgets, others, strict=True)))


def rows_of(text: str) -> list[tuple[str, str, bool]]:
    """The verifier's claims, without what every question takes for granted, and what no mechanism rests on."""
    rows = verify.verify(text).rows
    return [row for row in rows if not row[0].startswith(("the change is what one record does", OF_SEARCH))]


def outcome_alone(text: str, original: list[str]) -> str:
    """How a file ended with the stand-alone verifier: as `outcome`, and "not covered", or "claimed" where it says that it did not check."""

    def stop(*_: Any) -> None:
        raise TooLong

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, allowed(text))
    try:
        rows = rows_of(text)
        if words_of(json.loads(text)["payload"]["fields"])[0] == original[0]:
            rows = [row for row in rows if not row[0].endswith(AUTHORED)]
    except verify.NotCovered:
        return "not covered"
    except (verify.Refused, ValueError, RecursionError):
        return "refused"
    except TooLong:
        return "FAULT: too long"
    except BaseException as error:
        return f"FAULT: {type(error).__name__}: {error!s:.150}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    return believed([(how, holds) for _, how, holds in rows], text, original)


def believed(rows: list[tuple[str, bool]], text: str, original: list[str]) -> str:
    """What is said by a file whose claims are these, each by how it was checked and whether it holds."""
    if not all(holds for _, holds in rows):
        return "failed"
    payload = json.loads(text)["payload"]
    if payload["$kind"] != "result":
        return "refused"  # it answers for the mechanism alone, and says so
    fields = payload["fields"]
    now, status = words_of(fields), fields["solver_report"]["fields"]["status"]
    if now == original:
        return "same"
    if says_less(now, original, status in ("optimal", "best of its class")):
        return "less"
    return "claimed" if any(how == "claimed" for how, _ in rows) else ACCEPTED


OUTCOMES = "refused", "failed", "same", "less", "proved anew", "claimed", "not covered", "FAULT"


def proved_anew(name: str, text: str, original: list[str]) -> bool:
    """Whether a file says something else that is true: every claim is proved in exact arithmetic; or the question, value and bound
    are the honest file's, and all that is claimed of the other mechanism is computed, which leaves the bound and the status that rests on it; or it is the honest file of its question.
    """
    try:
        rows, now = rows_of(text), words_of(json.loads(text)["payload"]["fields"])
    except verify.NotCovered:
        return is_the_answer(name, text)
    computed = all(how != "claimed" or claim.startswith(("no ", "status ")) for claim, how, _ in rows)
    alike = [now[0], *now[2:]] == [original[0], *original[2:]]
    return all(how == "proved" for _, how, _ in rows) or (computed and alike) or is_the_answer(name, text)


def is_the_answer(name: str, text: str) -> bool:
    """Whether the file is the honest one of the question that it states: the package, asked that, answers with the same mechanism,
    value and lower bound. So it is where a question says more than its answer depends on, as which neighbours they are does for
    noise of a norm.
    """
    stated = loads(text)
    assert isinstance(stated, md.Result)
    _, options = files.DESIGNS[name]
    return said(stated.design.solve(**options))[1:] == said(stated)[1:]


def honest() -> dict[str, str]:
    """An honest file of every design that the tests know."""
    return {name: files.text(name) for name in files.DESIGNS}


@functools.cache
def originals() -> dict[str, tuple[list[str], list[str]]]:
    """What each honest file says, as the package says it and as it is written."""
    return {
        name: (said(loads(text)), words_of(json.loads(text)["payload"]["fields"]))
        for name, text in honest().items()
    }


def verdicts(name: str, text: str) -> dict[str, str]:
    """How a file made of the honest one of a design ended with each checker."""
    by_package, as_written = originals()[name]
    ended = {"package": outcome(text, by_package), "alone": outcome_alone(text, as_written)}
    accepted = {checker for checker, found in ended.items() if found == ACCEPTED}
    if accepted and tuple(words_of(json.loads(text)["payload"]["fields"])) in {
        tuple(words) for _, words in originals().values()
    }:
        ended |= dict.fromkeys(accepted, "same")  # every part is of the other file, which is honest
    elif (
        "package" in accepted
        and ended["alone"] in (ACCEPTED, "claimed", "not covered")
        and proved_anew(name, text, as_written)
    ):
        ended |= dict.fromkeys(accepted, "proved anew")
    return ended


def judged(number: int, seed: int) -> dict[str, Any]:
    """One doctored file: what was done to it, and how it ended with each checker."""
    documents = honest()
    name, kind, text = mutated(random.Random(f"{seed}/{number}"), documents)
    ended = verdicts(name, text)
    return {
        "number": number,
        "file": name,
        "doctoring": kind,
        "ended": ended,
        "where": difference(documents[name], text) if any("FAULT" in e for e in ended.values()) else "",
        "commit": table.commit(),
    }


def campaign(
    numbers: Iterable[int], seed: int, show: Callable[[str], None] = print, store: Store | None = None
) -> list[dict[str, Any]]:
    """Doctor these files, storing what becomes of each; every fault is shown."""
    rows = []
    for number in numbers:
        rows.append(row := judged(number, seed))
        if store is not None:
            store.append(row)
        for checker, found in row["ended"].items():
            if found.startswith("FAULT"):
                show(f"{row['file']} {seed}/{number} {checker}, {row['doctoring']}: {found}: {row['where']}")
    return rows


def counts(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Files by doctoring, checker and outcome."""
    ended = [
        (row["doctoring"], checker, found.partition(":")[0])
        for row in rows
        for checker, found in row["ended"].items()
    ]
    found = pd.DataFrame(ended, columns=["doctoring", "checker", "outcome"]).value_counts()
    wide = found.unstack(fill_value=0).reindex(columns=OUTCOMES, fill_value=0)
    return wide.sort_index().rename_axis(columns=None)


def difference(before: str, after: str) -> str:
    """The first place where two payloads differ."""
    try:
        a, b = (json.loads(text)["payload"] for text in (before, after))
    except (ValueError, KeyError, TypeError):
        return "text"
    for path in places(a):
        try:
            other = at(b, path)
        except (KeyError, IndexError, TypeError):
            return f"{path}: gone"
        if not isinstance(at(a, path), (dict, list)) and at(a, path) != other:
            return f"{path}: {at(a, path)!r:.40} -> {other!r:.40}"
        if isinstance(other, (dict, list)) and len(other) != len(at(a, path)):
            return f"{path}: {other!r:.100}"
    return "elsewhere"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", help="file that finished files are kept in; a killed campaign continues")
    parser.add_argument("--only", type=int, nargs="+", help="examine these numbers (again)")
    parser.add_argument("--again", action="store_true", help="examine again what was at fault")
    parser.add_argument("--table", type=Path, help="write mutations.csv of all there")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    store = None if given.store is None else Store(given.store, {"mutations": 1, "seed": given.seed})
    rows = {} if store is None else {row["number"]: row for row in store.chunks}
    todo: Iterable[int] = given.only or [n for n in range(given.files) if n not in rows]
    if given.again:
        todo = [n for n, row in rows.items() if any("FAULT" in found for found in row["ended"].values())]
    rows |= {row["number"]: row for row in campaign(todo, given.seed, store=store)}
    found = counts([*rows.values()])
    print(found.to_string())
    if given.table is not None:
        found.to_csv(given.table / "mutations.csv", lineterminator="\n")
    sys.exit(1 if found["FAULT"].sum() else 0)


if __name__ == "__main__":
    main()
