"""Damaged and doctored result files of every design: each ends refused, in a claim that does not hold, or changes nothing, with both checkers.

    python -m tests.campaign.mutations --files 10000 --seed 0

"Nothing" means what a result says: its design, mechanism, value and lower bound are as they were. The solver's account,
notes and multipliers may differ as long as every claim is still proved from what is in the file; so may a lower bound
that the audit calls claimed.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import cheap
import pandas as pd

import mechdesign as md
from campaign.doctorings import DOCTORINGS, doctored
from campaign.trees import at, places
from mechdesign.evidence.serialize import dumps, encode, loads
from mechdesign.files import KINDS
from mechdesign.typing import Status
from mechdesign.verifier import verify
from tests.campaign import table

LIMIT = 10.0  # processor seconds, after which a file is given up
SLOW = 5.0  # processor seconds that are a fault: of small files, which are read in 5 s and 1 s a megabyte
# Where a search looked, which no claim is about; outputs beyond `max_abs` are refused.
SEARCHED = (
    "exhaustive",
    "max_abs",
    "grid",
    "levels",
    "seed",
    "starts",
    "input_bits",
    "symmetric",
    "axes",
    "order",
    "bounds",
    "constraints",
    "families",
    "judge",
    "spanner",
    "unit",
)
WORDS = ("unit",)
SAID = ("design", "mechanism", "value", "lower_bound")


ACCEPTED = "FAULT: accepted"


class TooLong(BaseException):
    """A file that was not done with in time."""


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

    def plain(node: Any, left_out: tuple[str, ...]) -> Any:
        if isinstance(node, dict) and "$fraction" in node:
            return f"{float(Fraction(node['$fraction'])) + 0.0:.10g}"
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
    """How a file ended: "refused", "failed", "same"; anything else is a fault."""

    def stop(*_: Any) -> None:
        raise TooLong

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        result = loads(text, kinds=KINDS)
        if not isinstance(result, md.Result):
            return "refused"  # the audit says that it is no result
        return examined(result, original)
    except md.ResultFormatError:
        return "refused"
    except TooLong:
        return f"FAULT: longer than {LIMIT} s"
    except BaseException as error:
        return f"FAULT: {type(error).__name__}: {error!s:.150}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def examined(result: md.Result, original: list[str]) -> str:
    """What a reviewer of a loaded result sees."""
    try:
        table = result.audit()
        definition = table[~table["family"].astype(str).str.startswith("model:")]
        good = bool(result.checks()["holds"].all())  # always a table
        good = good and bool((definition["slack"] >= -1e-9).all())
    except (
        md.ResultFormatError
    ):  # of the audit table: `mechdesign audit` prints that the parts do not fit together
        return "failed"
    if not good:
        return "failed"
    believed = len(SAID) if "lower_bound" in result.certificate.statement else len(SAID) - 1
    now = said(result)
    same = now[:believed] == original[:believed] or weaker(result, now, original)
    return "same" if same else ACCEPTED


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


def outcome_alone(text: str, original: list[str]) -> str:
    """How a file ended with the stand-alone verifier: as `outcome`, and "not covered", or "claimed" where it says that it did not check."""

    def stop(*_: Any) -> None:
        raise TooLong

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        account = verify.verify(text)
    except verify.NotCovered:
        return "not covered"
    except (verify.Refused, ValueError, RecursionError):
        return "refused"
    except TooLong:
        return f"FAULT: longer than {LIMIT} s"
    except BaseException as error:
        return f"FAULT: {type(error).__name__}: {error!s:.150}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    if not all(holds for *_, holds in account.rows):
        return "failed"
    payload = json.loads(text)["payload"]
    if payload["$kind"] != "result":
        return "refused"  # it answers for the mechanism alone, and says so
    fields = payload["fields"]
    now, status = words_of(fields), fields["solver_report"]["fields"]["status"]
    if now == original or says_less(now, original, status in ("optimal", "best of its class")):
        return "same"
    if any(how == "claimed" for _, how, _ in account.rows):
        return "claimed"
    return ACCEPTED


OUTCOMES = "refused", "failed", "same", "proved anew", "claimed", "not covered", "FAULT"


def is_the_answer(name: str, text: str) -> bool:
    """Whether the file is the honest one of the question that it states: the package, asked that, answers with the same mechanism,
    value and lower bound. So it is where a question says more than its answer depends on, as that all coordinates rise or all fall
    does for noise of a norm.
    """
    from evidence.test_doctored import MORE

    stated = loads(text, kinds=KINDS)
    assert isinstance(stated, md.Result)
    _, options = (cheap.DESIGNS | MORE)[name]
    return said(stated.design.solve(**options))[1:] == said(stated)[1:]


@functools.cache
def honest() -> dict[str, str]:
    """An honest file of every design that the tests know."""
    from evidence.test_doctored import MORE, solved

    return {name: dumps(solved(name)) for name in (*cheap.DESIGNS, *MORE)}


def campaign(
    files: int, seed: int, show: Callable[[str], None] = print, only: range | None = None
) -> pd.DataFrame:
    """Doctor so many files; every fault is shown. Return counts by doctoring, checker and outcome."""
    documents = honest()
    package = {name: said(loads(text, kinds=KINDS)) for name, text in documents.items()}
    alone = {name: words_of(json.loads(text)["payload"]["fields"]) for name, text in documents.items()}
    whole = {*map(tuple, alone.values())}
    rows, longest = [], 0.0
    for number in only or range(files):
        rng = random.Random(f"{seed}/{number}")
        name, kind, text = mutated(rng, documents)
        ended: dict[str, str] = {}
        for checker, check, originals in (("package", outcome, package), ("alone", outcome_alone, alone)):
            started = time.process_time()
            found = ended[checker] = check(text, originals[name])
            seconds = time.process_time() - started
            longest = max(longest, seconds)
            if seconds > SLOW and not found.startswith("FAULT"):
                ended[checker] = f"FAULT: {found}, after {seconds:.2f} s"
        accepted = ACCEPTED in ended.values()
        if accepted and tuple(words_of(json.loads(text)["payload"]["fields"])) in whole:
            ended = dict.fromkeys(ended, "same")  # every part is of the other file, which is honest
        elif set(ended.values()) == {ACCEPTED} and (
            all(how == "proved" for _, how, _ in verify.verify(text).rows) or is_the_answer(name, text)
        ):
            ended = dict.fromkeys(ended, "proved anew")
        for checker, found in ended.items():
            rows.append((kind, checker, found.partition(":")[0]))
            if found.startswith("FAULT"):
                where = difference(documents[name], text)
                show(f"{name} {seed}/{number} {checker}, {kind}: {found}: {where}")
    counts = (
        pd.DataFrame(rows, columns=["doctoring", "checker", "outcome"]).value_counts().unstack(fill_value=0)
    )
    counts = counts.reindex(columns=OUTCOMES, fill_value=0).sort_index().rename_axis(columns=None)
    show(
        f"{len(rows) // 2} files, {len(set(counts.index.get_level_values(0)))} kinds of doctoring: {counts.sum().to_dict()}; "
        f"the longest took {longest:.2f} s of processor time"
    )
    return counts


def write(counts: pd.DataFrame, seed: int, longest: str, folder: Path) -> None:
    """Write mutations.csv and mutations.md."""
    folder.mkdir(parents=True, exist_ok=True)
    counts.to_csv(folder / "mutations.csv", lineterminator="\n")
    total = int(counts.to_numpy().sum()) // 2
    (folder / "mutations.md").write_text(f"""# Mutation campaign

{longest}. Seed {seed}: `python -m tests.campaign.mutations --files {total} --seed {seed}`.
{table.versions()}. Commit examined: {table.commit()}.

Outcomes, of the package and of the stand-alone verifier: *refused*, not read, or refused in a sentence; *failed*, a claim does not
hold; *same*, what the result says is unchanged, or less; *proved anew*, it says something else, of which both programs prove every claim in
exact arithmetic (a question without a cap that changed nothing), or is the very answer that the package gives to the question stated; *claimed*, accepted beside a line that says what was not checked; *not covered*.
Anything else is a fault: another exception, an execution, a second of processor time, a changed claim that is believed.

{table.markdown(counts.reset_index(level=1))}""")


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
    parser.add_argument("--table", type=Path, help="write mutations.csv and mutations.md there")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    said: list[str] = []

    def show(line: str) -> None:
        print(line, flush=True)
        said.append(line)

    counts = campaign(given.files, given.seed, show)
    bad = int(counts["FAULT"].sum())
    print(counts.to_string())
    if given.table is not None:
        write(counts, given.seed, said[-1], given.table)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
