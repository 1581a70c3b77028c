"""The payload of a result file as a tree: its places, what is put there, and what somebody would forge."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from typing import Any

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


def changed_number(rng: random.Random, value: Any) -> Any:
    changes = (
        lambda v: v * 0.9, lambda v: v * 1.1, lambda v: -v, lambda v: v + 1, lambda v: math.nextafter(v, math.inf),
        lambda v: v * (1 + 1e-9), lambda v: 0, lambda v: v * 1e300, lambda v: int(v), lambda v: v * 2,
    )  # fmt: skip
    try:
        return rng.choice(changes)(value)
    except (OverflowError, ValueError):
        return 0


def forged_part(rng: random.Random, payload: Any) -> Any:
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
                values[k] = (
                    changed_number(rng, values[k]) if type(values[k]) in (int, float) else rng.choice(ATOMS)
                )
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
