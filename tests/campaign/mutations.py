"""Damaged and doctored result files: each ends in `ResultFormatError`, in a claim that does not hold, or changes nothing.

    python -m tests.campaign.mutations --files 10000 --seed 0

"Nothing" means what a result says: its design, mechanism, value and lower bound are as they were. The solver's account,
notes and multipliers may differ as long as every claim is still proved from what is in the file; so may a lower bound
that the audit calls claimed.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cheap
import pandas as pd

import mechdesign as md
from mechdesign.evidence.serialize import dumps, encode, loads
from mechdesign.files import KINDS
from mechdesign.typing import Status
from tests.campaign import table

LIMIT = 10.0  # processor seconds, after which a file is given up
SLOW = 1.0  # processor seconds that are a fault
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
)
SAID = ("design", "mechanism", "value", "lower_bound")
ATOMS: list[Any] = [
    None, True, False, 0, 1, -1, 2**63, 10**30, 1e308, -0.0, 5e-324, 0.5, "", "x", "nan", "\ud800", "__import__('os')",
    [], [[]], {}, {"$float": "nan"}, {"$float": "inf"}, {"$float": "1e5"}, {"$fraction": "1/0"}, {"$fraction": "1/1"},
    {"$fraction": "9" * 5000 + "/1"}, {"$tuple": []}, {"$tuple": [1, 2]}, {"$items": []}, {"$items": [[[], 1]]},
    {"$table": []}, {"$table": [["a", "float64", [1.0]], ["a", "float64", [1.0]]]}, {"$table": [["a", "category", ["b"]]]},
    {"$array": [1.0], "dtype": "float64", "shape": [10**12]}, {"$array": [], "dtype": "float64", "shape": [0, 10**18]},
    {"$array": ["1"], "dtype": "float64", "shape": [1]}, {"$array": [1.5], "dtype": "object", "shape": [1]},
    {"$law": "test", "args": [], "kwds": {"$items": []}}, {"$law": "rv_histogram", "args": [[1], [0, 1]], "kwds": {"$items": []}},
    {"$law": "norm", "args": ["a"], "kwds": {"$items": []}}, {"$law": "norm", "args": [], "kwds": {"$items": [["seed", 1]]}},
    {"$law": "uniform", "args": [-2, 4], "kwds": {"$items": []}}, {"$callable": "os.system"}, {"$kind": "nonesuch", "fields": {}},
    {"$kind": "pure-dp", "fields": {"epsilon": 2.0}}, {"$kind": "pure-dp", "fields": {"epsilon": 2.0, "x": 1}},
    {"$kind": "grid", "fields": {"axes": {"$items": [["a", [1.0]]]}}}, {"$kind": ["pure-dp"], "fields": {}},
]  # fmt: skip


class TooLong(BaseException):
    """A file that was not done with in time."""


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every node of a payload."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


def at(payload: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        payload = payload[key]
    return payload


def put(payload: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The payload with another node at `path`."""
    if not path:
        return value
    payload = copy.deepcopy(payload)
    at(payload, path[:-1])[path[-1]] = value
    return payload


def _number(rng: random.Random, value: Any) -> Any:
    changes = (
        lambda v: v * 0.9, lambda v: v * 1.1, lambda v: -v, lambda v: v + 1, lambda v: math.nextafter(v, math.inf),
        lambda v: v * (1 + 1e-9), lambda v: 0, lambda v: v * 1e300, lambda v: int(v), lambda v: v * 2,
    )  # fmt: skip
    try:
        return rng.choice(changes)(value)
    except (OverflowError, ValueError):
        return 0


def node_mutation(rng: random.Random, payload: Any, other: Any, paths: list[Any], others: list[Any]) -> Any:
    """Another value, a changed number, a node taken from elsewhere, a key that is gone or added, an order changed, a forgery."""
    path = rng.choice(paths)
    node = at(payload, path)
    match rng.randrange(7):
        case 6:
            return forgery(rng, payload)
        case 0:
            return put(payload, path, copy.deepcopy(rng.choice(ATOMS)))
        case 1 | 2:
            numbers = [
                p for p in rng.sample(paths, min(60, len(paths))) if type(at(payload, p)) in (int, float)
            ]
            if numbers:
                path = rng.choice(numbers)
                return put(payload, path, _number(rng, at(payload, path)))
        case 3:
            return put(payload, path, copy.deepcopy(at(other, rng.choice(others))))
        case 4:
            return put(payload, path, copy.deepcopy(at(payload, rng.choice(paths))))
        case 5:
            node = copy.deepcopy(node)
            if isinstance(node, dict) and node:
                key = rng.choice(list(node))
                node = {
                    **{k: v for k, v in node.items() if k != key},
                    **({f"{key}s": 1} if rng.random() < 0.5 else {}),
                }
            elif isinstance(node, list) and node:
                change: Callable[[], Any] = rng.choice([node.pop, node.reverse, lambda: node.append(node[0])])
                change()
            return put(payload, path, node)
    return put(payload, path, copy.deepcopy(rng.choice(ATOMS)))


def forgery(rng: random.Random, payload: Any) -> Any:
    """What one who knows the format would try: an enclosure moved, a cell of a table, a member left out, a key twice, true for 1."""
    payload = copy.deepcopy(payload)
    owners = [n for n in (at(payload, p) for p in places(payload)) if isinstance(n, dict)]
    rng.shuffle(owners)
    kinds = ["spent", "cell", "missing", "twice", "true"]
    for kind in rng.sample(kinds, len(kinds)):
        for owner in owners:
            if kind == "spent" and owner.get("$kind") == "delta-interval":
                ends = owner["fields"]
                low, high = ends["lower"], ends["upper"]
                forged = [
                    (low, low),
                    (high, high),
                    (-5.0, high),
                    (low, 1.0),
                    (low, high * (1 - 1e-9)),
                    (0.0, low / 2),
                ]
                ends["lower"], ends["upper"] = rng.choice(forged)
                return payload
            if kind == "cell" and any(values for _, _, values in owner.get("$table", [])):
                values = rng.choice([values for _, _, values in owner["$table"] if values])
                k = rng.randrange(len(values))
                values[k] = _number(rng, values[k]) if type(values[k]) in (int, float) else rng.choice(ATOMS)
                return payload
            if kind == "missing" and owner.get("fields"):
                del owner["fields"][rng.choice(list(owner["fields"]))]
                return payload
            if kind == "twice" and owner.get("$items"):
                owner["$items"].append([rng.choice(owner["$items"])[0], 5.97])
                return payload
            if kind == "true" and (
                numbers := [k for k, v in owner.items() if v in (0, 1) and type(v) is not bool]
            ):
                owner[rng.choice(numbers)] = True
                return payload
            if (
                kind == "true"
                and (row := owner.get("$array", owner.get("$tuple")))
                and owner.get("dtype") != "bool"
            ):
                while isinstance(row[0], list) and row[0]:
                    row = row[0]
                if type(row[0]) in (int, float):
                    row[0] = True
                    return payload
    return payload


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


def mutated(rng: random.Random, documents: dict[str, str]) -> tuple[str, str]:
    """The name of a result, and the text of its file after one mutation."""
    name, other = rng.choice(list(documents)), rng.choice(list(documents))
    if rng.random() < 0.2:
        return name, text_mutation(rng, documents[name])
    payload, foreign = (json.loads(documents[n])["payload"] for n in (name, other))
    l0 = node_mutation(rng, payload, foreign, list(places(payload)), list(places(foreign)))
    try:
        return name, cheap.sealed(l0)
    except UnicodeEncodeError:  # a lone surrogate has no checksum
        return name, json.dumps({**json.loads(documents[name]), "payload": l0})


def said(result: md.Result) -> list[str]:
    """What a result says, as text: numbers to ten digits, and without how a search looked for it."""

    def plain(node: Any, left_out: tuple[str, ...]) -> Any:
        if isinstance(node, dict):
            return {k: plain(v, left_out) for k, v in node.items() if k not in left_out}
        if isinstance(node, list):
            return [plain(v, left_out) for v in node]
        return f"{node + 0.0:.10g}" if type(node) in (int, float) and abs(node) < 2**53 else node

    parts = ((part, SEARCHED if part == "design" else ()) for part in SAID)
    return [json.dumps(plain(encode(getattr(result, part)), left_out)) for part, left_out in parts]


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
    return "same" if same else "FAULT: accepted"


def weaker(result: Any, now: list[str], original: list[str]) -> bool:
    """Whether a file says less than the honest one, and so is true: the same mechanism at a higher value, beside a lower
    bound, for the same question or for one that it answers without being called optimal. Value and bound stand once in such a file.
    """
    if now[1] != original[1]:
        return False
    value, bound = (float(json.loads(text) or -math.inf) for text in now[2:])
    least, most = (float(json.loads(text) or -math.inf) for text in original[2:])
    if value < least or bound > most:
        return False
    # a mechanism that is not called optimal may stand beside any question that it answers
    return now[0] == original[0] or result.status is not Status.OPTIMAL


def campaign(files: int, seed: int, show: Callable[[str], None] = print) -> pd.DataFrame:
    """Mutate so many files; every fault is shown. Return counts by result and outcome."""
    documents = {name: dumps(cheap.solved(name)) for name in cheap.DESIGNS}
    originals = {name: said(loads(text, kinds=KINDS)) for name, text in documents.items()}
    rows, longest = [], 0.0
    for number in range(files):
        rng = random.Random(f"{seed}/{number}")
        name, text = mutated(rng, documents)
        started = time.process_time()
        found = outcome(text, originals[name])
        seconds = time.process_time() - started
        longest = max(longest, seconds)
        if seconds > SLOW and not found.startswith("FAULT"):
            found = f"FAULT: {found}, after {seconds:.2f} s"
        rows.append((name, found.partition(":")[0]))
        if found.startswith("FAULT"):
            show(f"{name} {seed}/{number}: {found}: {difference(documents[name], text)}")
    counts = pd.DataFrame(rows, columns=["result", "outcome"]).value_counts().unstack(fill_value=0)
    counts = counts.reindex(columns=["refused", "failed", "same", "FAULT"], fill_value=0).rename_axis(
        columns=None
    )
    show(f"{files} files: {counts.sum().to_dict()}; the longest took {longest:.2f} s of processor time")
    return counts


def write(counts: pd.DataFrame, seed: int, longest: str, folder: Path) -> None:
    """Write mutations.csv and mutations.md."""
    folder.mkdir(parents=True, exist_ok=True)
    counts.to_csv(folder / "mutations.csv", lineterminator="\n")
    total = int(counts.to_numpy().sum())
    counts.loc["all"] = counts.sum()
    (folder / "mutations.md").write_text(f"""# Mutation campaign

{longest}. Seed {seed}: `python -m tests.campaign.mutations --files {total} --seed {seed}`.
{table.versions()}. Commit examined: {table.commit()}.

Outcomes: *refused*, `ResultFormatError`; *failed*, a claim does not hold; *same*, what the result says is unchanged. Anything
else is a fault: another exception, an execution, a second of processor time, a changed claim that is believed.

{table.markdown(counts)}""")


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
