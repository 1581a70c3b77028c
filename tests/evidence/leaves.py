"""The leaf table: which leaf of each kind of file each checker reads, and against what it compares it.

    PYTHONPATH=tests python -m evidence.leaves

writes `docs/leaves.md` anew; a test compares the two. A leaf is a number, a text, a truth value or null, and a list of these.
Every leaf is altered, in both directions where it is a number, sealed anew, and handed to both checkers: what they answer says
whether, and with which claim, they compare it. Reads are traced besides: of the stand-alone checker by recording dictionaries and
lists, of the package by the attributes that its checks ask for.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cheap
from campaign import trees
from faults import altered

from evidence.test_doctored import MORE
from mechdesign.errors import MechdesignError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS
from mechdesign.verifier import verify

PAGE = Path(__file__).parents[2] / "docs" / "leaves.md"
NAMES = (*cheap.DESIGNS, *MORE, *altered.DESIGNS)

Path_ = tuple[Any, ...]


# -- what is altered ----------------------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """A place of a file.

    Attributes
    ----------
    design : str
        The kind of the file's design.
    owner : str
        The kind of object that holds it.
    name : str
        Where, from the result on: members by name, ``[]`` for one of a list.
    path : tuple
        In the payload.
    """

    design: str
    owner: str
    name: str
    path: Path_

    @property
    def key(self) -> tuple[str, str, str]:
        return self.design, self.owner, self.name


TAGS = {"fields", "$array", "$tuple", "$items", "$float", "$fraction", "$callable"}
STRUCTURE = {"$kind", "dtype", "shape"}
"""What a reader needs before there is a value: every other kind, type or shape is refused on reading."""


def leaves(payload: Any) -> Iterator[Leaf]:
    """Every leaf; of the members of a list the middle one stands for all that are alike."""
    design = payload["fields"]["design"]["$kind"]

    def walk(node: Any, owner: str, name: str, path: Path_) -> Iterator[Leaf]:
        if isinstance(node, dict) and "$kind" in node:
            for key, child in node["fields"].items():
                yield from walk(child, node["$kind"], f"{name}.{key}".lstrip("."), (*path, "fields", key))
        elif isinstance(node, dict) and "$law" in node:
            yield Leaf(design, owner, f"{name}.name", (*path, "$law"))
            for key in ("args", "kwds"):
                yield from walk(node[key], owner, f"{name}.{key}", (*path, key))
        elif isinstance(node, dict) and "$table" in node:
            for k, (column, _, values) in enumerate(node["$table"]):
                yield from walk(values, owner, f"{name}.{column}", (*path, "$table", k, 2))
        elif isinstance(node, dict) and "$items" in node:
            for k in range(len(node["$items"])):
                key = node["$items"][k][0]
                yield from walk(node["$items"][k][1], owner, f"{name}.{key}", (*path, "$items", k, 1))
        elif isinstance(node, dict) and (tag := next((t for t in node if t in TAGS), None)):
            yield from walk(node[tag], owner, name, (*path, tag))
        elif isinstance(node, list) and node:
            if len(node) > 1 and not isinstance(node[0], list):
                yield Leaf(design, owner, f"{name} (length)", path)
            for k in sorted({len(node) // 2} if len({shape(v) for v in node}) == 1 else range(len(node))):
                yield from walk(node[k], owner, f"{name}[]", (*path, k))
        elif not isinstance(node, (dict, list)):
            yield Leaf(design, owner, name, path)

    seen = set()
    for leaf in walk(payload, "result", "", ()):
        if leaf.key not in seen:
            seen.add(leaf.key)
            yield leaf


def shape(node: Any) -> str:
    """What objects that are alike have in common: their kind, or that they are values."""
    return str(node.get("$kind", "")) if isinstance(node, dict) else type(node).__name__


def alterations(leaf: Leaf, value: Any) -> Iterator[tuple[str, Any]]:
    """More, less, something else: each alteration with its direction."""
    match value:
        case bool():
            yield "other", not value
        case int() if abs(value) < 2**40:
            yield from (
                ("more", value + 1),
                ("less", value - 1),
                ("more", 1000 * abs(value) + 1000),
                ("less", min(value, 1)),
            )
        case int():  # a weight, or a moment in units of 2⁻¹⁶⁰: one more is another law, of which all may be true
            yield from (("more", value * 11 // 10), ("less", value * 9 // 10))
        case float():
            step = abs(value) / 10 or 0.1
            yield from (("more", value + step), ("less", value - step))
            yield from (("more", value + 1e8 * step), ("less", value * 1e-9))
        case str() if leaf.path[-1] == "$fraction":
            above, _, below = value.partition("/")
            for direction, sign in (("more", 1), ("less", -1)):
                yield (
                    direction,
                    f"{11 * int(above) + sign * (abs(int(above)) + (above == '0'))}/{11 * int(below)}",
                )
        case str() if leaf.path[-1] == "$float":
            yield "less", None  # the infinite number becomes a finite one: see `put`
        case str():
            yield "other", "x"
        case None:
            yield from (("other", 12345.5), ("other", 1e-3), ("other", 3))
        case list():
            yield from (
                ("shorter", value[:-1]),
                ("shorter", value[: len(value) // 2] + value[len(value) // 2 + 1 :]),
            )
    if value is not None and not isinstance(value, list):
        yield "null", None


def put(payload: Any, leaf: Leaf, value: Any) -> Any:
    """The payload with another value there."""
    path = leaf.path
    if path and path[-1] in ("$float", "$fraction") and value is None:  # the object around it
        return trees.put(payload, path[:-1], 1e-6 if path[-1] == "$float" else None)
    made = trees.put(payload, path, value)
    if isinstance(value, list) and path[-1] == "$array":
        owner = trees.at(made, path[:-1])
        owner["shape"] = [len(value), *owner["shape"][1:]]
    return made


# -- what the checkers answer -------------------------------------------------------------------------------------------

NUMBER = re.compile(r"-?\b(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?\b|\binf\b")


def words(claim: str) -> str:
    """A claim without its numbers."""
    claim = re.sub(r"\(.*?\)|\[.*?\]|'.*?'", "", claim.partition(" (")[0] + "")
    return " ".join(NUMBER.sub("…", claim).split())[:90]


ON_READING = "on reading"
BESIDE_A_CLAIM = "accepted beside a line that says what was not checked"


def alone(text: str) -> str | None:
    """The first claim that the stand-alone checker does not find; none if all hold; "not covered"."""
    try:
        rows = verify.verify(text).rows
    except verify.NotCovered:
        return "not covered"
    except (verify.Refused, ValueError) as error:
        said = str(error)
        return ON_READING if said.startswith("malformed") else f"refused: {words(said)}"
    if failed := [words(claim) for claim, _, holds in rows if not holds]:
        return failed[0]
    return BESIDE_A_CLAIM if any(how == "claimed" for _, how, _ in rows) else None


def package(text: str) -> str | None:
    """The first claim that the package does not find; none if all hold."""
    try:
        table = loads(text, kinds=KINDS).checks()
    except MechdesignError:
        return ON_READING
    failed = table["claim"][~table["holds"]]
    return words(failed.iloc[0]) if len(failed) else None


CHECKERS: dict[str, Callable[[str], str | None]] = {"package": package, "alone": alone}

STATED: dict[str, str] = {
    r"notes(\[\]| \(length\))?": "the design's own words",
    r"solver_report\.(solver|seconds|build_seconds|variables|constraints|iterations|requested|fallbacks.*)": "how the result was found",
    r"(duals|table)(\..*)?": "what a search tried, and the solver's multipliers: for the reader's eye",
    r"design\.(grid|levels)\..*": "where a search looked",
    r"design\.bins\.(seed|starts|exhaustive|symmetric|axes.*)": "where a search looked",
    r"design\.(input_bits|max_abs|families.*|judge|bounds.*|constraints)": "where a search looked",
    r"(design|mechanism)\.space\.unit": "a word for the distances",
    r"design\.tasks\.\w+\.clip\[\]": "what was offered: the one that was chosen is one of them",
    r"mechanism\.noises\[\]\.sensitivity\.signed": "whether changes have both signs: independent symmetric noise keeps either",
    r"design\.spanner": "which pairs the program began with",
    r"design\.(span|signed|sensitivity\.signed|participation\.fewer)": "whether more may change than the mechanism is made for: the other way is refused",
}
"""Leaves that no checker compares, each with what it is: a file can say there what it likes."""


def stated(leaf: Leaf) -> str | None:
    return next((why for pattern, why in STATED.items() if re.fullmatch(pattern, leaf.name)), None)


class Found(NamedTuple):
    """What a checker does with a leaf: refuses every other value, only more or only less of it, none, or does not cover the file."""

    how: str
    against: str


def examined(check: Callable[[str], str | None], payload: Any, leaf: Leaf) -> Found:
    """Alter a leaf and see; of a list another one where the one in the middle does not count (a multiplier of 0)."""
    found = altered_one(check, payload, leaf)
    if found.how == "accepted" and type(leaf.path[-1]) is int:
        count = len(trees.at(payload, leaf.path[:-1]))
        for k in sorted({round(j * (count - 1) / 5) for j in range(6)} - {leaf.path[-1]}):
            other = altered_one(check, payload, leaf._replace(path=(*leaf.path[:-1], k)))
            if other.how != "accepted":
                return other
    return found


def altered_one(check: Callable[[str], str | None], payload: Any, leaf: Leaf) -> Found:
    """What a checker says where this leaf is altered."""
    value = trees.at(payload, leaf.path)
    directions, refused, against, claimed = set(), set(), [], False
    for direction, other in alterations(leaf, value):
        if other == value and type(other) is type(value):
            continue
        said = check(cheap.sealed(put(payload, leaf, other)))
        if said == "not covered" and check(cheap.sealed(payload)) == "not covered":
            return Found("not covered", "")
        directions.add(direction)
        if said == BESIDE_A_CLAIM:
            claimed = True
        elif said is not None:
            refused.add(direction)
            against.append(said)
    directions.discard("null")
    left = directions - refused
    said_of = [word for word in dict.fromkeys(against) if word != ON_READING]
    words = "; ".join(said_of) or (ON_READING if against else "")
    if not left:
        return Found("compared", words)
    if claimed and leaf.name.startswith(("proofs", "design.prior")):
        return Found("claimed", words)
    if left != directions:
        return Found(f"not {'more' if 'more' in refused else 'less'}", words)
    return Found("accepted", words)


# -- what they read -----------------------------------------------------------------------------------------------------


class Recorder:
    """Notes which leaves are looked at."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def wrap(self, node: Any, name: str = "") -> Any:
        if isinstance(node, dict):
            return Members({k: self.wrap(v, f"{name}.{k}".lstrip(".")) for k, v in node.items()}, self, name)
        if isinstance(node, list):
            return Values([self.wrap(v, f"{name}[]") for v in node], self, name)
        return node

    def note(self, name: str, value: Any) -> Any:
        if not isinstance(value, (Members, Values)):
            self.read.add(name)
        return value


class Members(dict[str, Any]):
    """A dictionary that notes what is read of it."""

    def __init__(self, members: dict[str, Any], recorder: Recorder, name: str) -> None:
        super().__init__(members)
        self.recorder, self.name = recorder, name

    def __getitem__(self, key: str) -> Any:
        return self.recorder.note(f"{self.name}.{key}".lstrip("."), super().__getitem__(key))

    def get(self, key: str, default: Any = None) -> Any:
        return self.recorder.note(f"{self.name}.{key}".lstrip("."), super().get(key, default))

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class Values(list[Any]):
    """A list that notes what is read of it."""

    def __init__(self, values: Iterable[Any], recorder: Recorder, name: str) -> None:
        super().__init__(values)
        self.recorder, self.name = recorder, name

    def __iter__(self) -> Iterator[Any]:
        for value in super().__iter__():
            yield self.recorder.note(f"{self.name}[]", value)

    def __getitem__(self, k: Any) -> Any:
        found = super().__getitem__(k)
        return [*map(self._note, found)] if isinstance(k, slice) else self._note(found)

    def _note(self, value: Any) -> Any:
        return self.recorder.note(f"{self.name}[]", value)

    def __eq__(self, other: object) -> bool:
        return [*self] == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return repr([*self])


def read_alone(text: str) -> set[str] | None:
    """The leaves that the stand-alone checker looks at; None where it does not cover the file."""
    recorder, original = Recorder(), verify.read
    verify.read = lambda text: recorder.wrap(original(text))  # type: ignore[assignment]
    try:
        verify.verify(text)
    except verify.NotCovered:
        return None
    finally:
        verify.read = original
    return recorder.read


@contextmanager
def noted(parts: dict[int, str], read: set[str], classes: set[type]) -> Iterator[None]:
    """Note the attributes that are asked of these objects."""
    originals = {cls: cls.__getattribute__ for cls in classes}

    def noting(original: Any) -> Any:
        def ask(self: Any, attribute: str) -> Any:
            if (name := parts.get(id(self))) is not None:
                read.add(f"{name}.{attribute}".lstrip("."))
            return original(self, attribute)

        return ask

    for cls, original in originals.items():
        cls.__getattribute__ = noting(original)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for cls in originals:
            del cls.__getattribute__  # the inherited one is found again


def read_package(text: str) -> set[str]:
    """The attributes of the parts of a result that the package's checks ask for."""
    result = loads(text, kinds=KINDS)
    parts: dict[int, str] = {}
    classes: set[type] = set()

    def walk(value: Any, name: str) -> None:
        if isinstance(value, (tuple, list)):
            for each in value:
                walk(each, f"{name}[]")
        elif type(value).__module__.startswith("mechdesign") and hasattr(value, "__dict__"):
            if "__getattribute__" in vars(type(value)) or id(value) in parts:
                return
            parts[id(value)] = name
            classes.add(type(value))
            for key, each in list(vars(value).items()):
                walk(each, f"{name}.{key}".lstrip("."))

    for part in ("design", "mechanism", "proofs", "solver_report"):
        walk(getattr(result, part), part)
    walk(result, "")
    read: set[str] = set()
    with noted(parts, read, classes):
        result.checks()
    return read


# -- the table ----------------------------------------------------------------------------------------------------------


@functools.cache
def text(name: str) -> str:
    return altered.text(name) if name in altered.DESIGNS else dumps(solved(name))


def solved(name: str) -> Any:
    from evidence.test_doctored import solved as other

    return other(name)


class Row(NamedTuple):
    leaf: Leaf
    package: Found
    alone: Found


def rows(names: Iterable[str], seen: set[tuple[str, str, str]] | None = None) -> Iterator[Row]:
    """A row for every leaf of these files, each kind of file's own once."""
    seen = set() if seen is None else seen
    warnings.simplefilter("ignore")
    for name in names:
        payload = json.loads(text(name))["payload"]
        best = payload["fields"]["solver_report"]["fields"]["status"] in ("optimal", "best of its class")
        for leaf in leaves(payload):
            if leaf.name == "asked_gap" and not best:  # of a status that claims nothing about the best
                continue
            if leaf.key not in seen and stated(leaf) is None:
                seen.add(leaf.key)
                yield Row(leaf, *(examined(check, payload, leaf) for check in CHECKERS.values()))


@functools.cache
def every_row() -> tuple[Row, ...]:
    """Those of all files: minutes."""
    return tuple(rows(NAMES))


HOW = {
    "accepted": "**not compared**",
    "claimed": "claimed",
    "not less": "at least",
    "not more": "at most",
    "compared": "equal",
    "not covered": "not covered",
}
"""What the page says of a leaf, the weakest first: of a leaf of several files the weakest is shown, "not covered" where none is."""

HEAD = """# The leaf table

Every leaf of result files: who reads it, and against what. A leaf is a number, a text, a truth value or null, or a list of
these. The table is made by altering each leaf of an honest file, sealing the file anew and asking both checkers
(`tests/evidence/leaves.py`; a test makes it again): *equal*, every other value is refused; *at most* and *at least*, only larger or
only smaller ones, as the smaller or larger say less; *claimed*, accepted beside a printed line that says what was not checked;
*not covered*, the stand-alone checker says so and exits with 2. After it, the claim that no longer holds.

"""


def page() -> str:
    """The text of `docs/leaves.md`."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in every_row():
        member = row.leaf.name.partition(" (length)")[0].rpartition(".")[2].replace("[]", "")
        found.setdefault((row.leaf.owner, member), []).append(row)
    lines = [HEAD + "| object | member | package | stand-alone |", "|---|---|---|---|"]
    for (owner, member), held in sorted(found.items()):
        cells = (cell([getattr(row, checker) for row in held]) for checker in CHECKERS)
        lines.append(f"| `{owner}` | `{member}` | {' | '.join(cells)} |")
    lines += [
        "",
        "## Not verified",
        "",
        "Nobody reads these, and pages show them as the file's own words:",
        "",
    ]
    lines += [f"- `{pattern.replace(chr(92), '')}`: {why}" for pattern, why in SHOWN.items()]
    return "\n".join(lines) + "\n"


SHOWN = {
    "notes": "the design's own words",
    "solver_report": "solver, seconds, iterations, sizes, fall-backs: how the result was found (its status is compared)",
    "duals, table": "what a search tried, and the solver's multipliers of its model",
    "grid, levels, seed, starts, exhaustive, symmetric, input_bits, max_abs, families, judge, bounds, constraints": "where a search looked",
    "spanner": "which pairs a channel's program began with",
    "unit, names": "words for the distances and the points of a space (question and mechanism have the same)",
}


def cell(found: list[Found]) -> str:
    covered = [each for each in found if each.how != "not covered"] or found
    how = next(how for how in HOW if any(each.how == how for each in covered))
    against = list(dict.fromkeys(part for each in covered for part in each.against.split("; ") if part))
    said = "; ".join(part for part in against if part != ON_READING)[:120] or "; ".join(against)
    return HOW[how] + (f": {said}" if said else "").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
