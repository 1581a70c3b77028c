"""The payload of a result file as a tree: its places, what is put there, and what somebody would forge."""

import copy
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mechdesign.verifier.reading import MEMBERS

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
    made = copy.copy(payload)  # what is beside the path is shared
    made[path[0]] = put(payload[path[0]], path[1:], value)
    return made


_NO_NUMBER = {"$float": "inf"}, {"$float": "nan"}, None
ELSEWHERE: dict[type, Callable[[Any], list[Any]]] = {
    int: lambda n: [-abs(n) or -1, 0, n - 1, n + 1, n * 1000, 10**9, 10**400, n + 0.5, None],
    float: lambda x: [-abs(x) or -1, 0.0, x * 1e3, x / 1e3, x * 1e200, x * 1e-200, 10**400, *_NO_NUMBER],
    str: lambda word: ["nonesuch", "", None],
    bool: lambda flag: [not flag],
    list: lambda values: [[], values[:1], values * 2, values[::-1]],
    type(None): lambda _: [
        -1,
        0,
        0.5,
        1,
        2,
        1e-3,
        1e3,
        10**9,
        {"$tuple": []},
        {"$tuple": [1.0]},
        *_NO_NUMBER[:2],
    ],
}
"""What is put in the place of a value."""


def resized(payload: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The payload with another node at `path`; an array is of its shape."""
    made = put(payload, path, value)
    if isinstance(value, list) and path[-1] == "$array":
        owner = at(made, path[:-1])
        owner["shape"] = [len(value), *owner["shape"][1:]]
    return made


class Leaf(NamedTuple):
    """A number, text, truth value or null of a file, or the length of a list.

    Attributes
    ----------
    owner : str
        The kind of object that holds it.
    name : str
        Members by name from the payload on, ``[]`` for one of a list.
    path : tuple
        Where it is.
    """

    owner: str
    name: str
    path: tuple[Any, ...]


def lists(payload: Any) -> dict[str, tuple[Any, ...]]:
    """A list of each name, and where it is, of design, mechanism and proofs."""
    found = {}
    for part in ("design", "mechanism", "proofs"):
        for path in places(payload["fields"][part], ("fields", part)):
            if isinstance(at(payload, path), list) and at(payload, path) and path[-1] != "shape":
                steps = ("[]" if isinstance(key, int) else f".{key}" for key in path if key not in _TAGS)
                found["".join(steps)[1:]] = path
    return found


def cuts(values: list[Any], k: int) -> Iterator[list[Any]]:
    """A list emptied, one shorter at each end and at a place, and with the values there and at its end twice."""
    yield []
    yield from (values[:j] + values[j + 1 :] for j in {0, k, len(values) - 1} if len(values) > 1)
    yield from (values[: j + 1] + values[j:] for j in {k, len(values) - 1})


_WORDS = (
    ("optimal", "best of its class", "feasible"),
    ("every mechanism", "this family", "this menu", "independent noise of one law"),
    ("gaussian", "laplace", "mixed"),
    ("norm", "laplace", "logistic"),
    *(("proved", "recomputed"), ("add-remove", "replace"), ("mean", "worst"), ("average", "worst"), ("absolute", "squared")),
    *(("total", "largest"), ("ball", "sphere", "box"), ("identity", "total", "prefix"), ("central", "local"), ("l1", "l2")),
)  # fmt: skip
"""Words that may stand in each other's place."""
_WORD = re.compile("'([^']*)'")
_TAGS = ("fields", "$array", "$tuple", "$items", "$float", "$fraction", "$callable")


def leaves(payload: Any) -> Iterator[Leaf]:
    """Every leaf of another name; the middle one of a list stands for those that are alike."""

    def shape(node: Any) -> str:
        return str(node.get("$kind", "")) if isinstance(node, dict) else type(node).__name__

    def walk(node: Any, owner: str, name: str, path: tuple[Any, ...]) -> Iterator[Leaf]:
        if isinstance(node, dict) and "$kind" in node:
            for key, child in node["fields"].items():
                yield from walk(child, node["$kind"], f"{name}.{key}".lstrip("."), (*path, "fields", key))
        elif isinstance(node, dict) and "$law" in node:
            yield Leaf(owner, f"{name}.name", (*path, "$law"))
            for key in ("args", "kwds"):
                yield from walk(node[key], owner, f"{name}.{key}", (*path, key))
        elif isinstance(node, dict) and "$table" in node:
            for k, (column, _, values) in enumerate(node["$table"]):
                yield from walk(values, owner, f"{name}.{column}", (*path, "$table", k, 2))
        elif isinstance(node, dict) and "$items" in node:
            for k, (key, child) in enumerate(node["$items"]):
                yield from walk(child, owner, f"{name}.{key}", (*path, "$items", k, 1))
        elif isinstance(node, dict) and (tag := next((t for t in _TAGS if t in node), None)):
            yield from walk(node[tag], owner, name, (*path, tag))
        elif isinstance(node, list) and node:
            if len(node) > 1 and not isinstance(node[0], list):
                yield Leaf(owner, f"{name} (length)", path)
            for k in sorted({len(node) // 2} if len({*map(shape, node)}) == 1 else range(len(node))):
                yield from walk(node[k], owner, f"{name}[]", (*path, k))
        elif not isinstance(node, (dict, list)):
            yield Leaf(owner, name, path)

    return iter({(leaf.owner, leaf.name): leaf for leaf in walk(payload, "", "", ())}.values())


def words_of(leaf: Leaf) -> list[str | None]:
    """The words of its kind that its member may be: none where it is no member, or no word."""
    member = leaf.path[-1] if leaf.path[-2:-1] == ("fields",) else None
    allowed = MEMBERS.get(leaf.owner, {}).get(str(member), "")
    found: list[str | None] = [*_WORD.findall(allowed)]
    return [*found, *[None] * ("null" in allowed.split("|"))] if found else []


def alterations(rng: random.Random, payload: Any, leaf: Leaf) -> Iterator[tuple[str, Any]]:
    """The payload with more (+) and with less (-) in place of a number, something else in place of a text, fewer values of a list."""
    value, path = at(payload, leaf.path), leaf.path
    match value:
        case bool():
            others: list[Any] = [not value]
        case int() if abs(value) < 2**40:
            others = [value + rng.choice([1, 7, 1000]), value - rng.choice([1, 7])]
        case int():  # of a weight one more is another law, of which all may be true
            others = [value * 11 // 10, value * 9 // 10]
        case float():
            step = rng.choice([1e-4, 0.1, 1e7]) * abs(value) or 0.1
            others = [value + step, value - step]
        case str() if path[-1] == "$fraction":
            above, _, below = value.partition("/")
            part = abs(int(above)) + (above == "0")
            others = [f"{11 * int(above) + sign * part}/{11 * int(below)}" for sign in (1, -1)]
        case str() if path[-1] == "$float":
            path, others = path[:-1], [rng.choice([1e-6, 1.0, 1e6])]
        case str():
            near = [word for words in _WORDS if value in words for word in rng.sample(words, 2)]
            others = [word for word in dict.fromkeys(["x", *near, *words_of(leaf)]) if word != value]
        case None:
            others = [rng.choice([12345.5, 1e-3, 3]), *filter(None, words_of(leaf))]
        case _:
            k = rng.randrange(len(value))
            others = [value[:k] + value[k + 1 :]]
    numbers = len(others) == 2 and (type(value) in (int, float) or path[-1] == "$fraction")
    for sign, other in zip("+-" if numbers else "~" * len(others), others, strict=True):
        yield sign, resized(payload, path, other)
