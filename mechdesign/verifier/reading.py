"""What every check needs: the text of a file or of the page that carries it, its plain values, the claims that are made of it, and the class that a bound speaks of.

A design seeks the best of every mechanism that answers its question, of independent noise of one law, of one family or of one
menu. Its lower bound speaks of the same class, unless the theorem of its proof says more. Both follow from the kinds of design
and proof; what the file states is compared with that. "Optimal" is a result whose design seeks the best of every mechanism and whose value
is as close to the bound as was asked; in a smaller class it is "best of its class".
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import io
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from importlib import resources
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""A plain value of a file: an object is a dictionary with its kind under the empty key (`Members`)."""
INDEX: dict[str, dict[str, Json]] = json.loads(
    resources.files("mechdesign").joinpath("evidence", "kinds.json").read_text(encoding="utf-8")
)
MEMBERS: dict[str, dict[str, str]] = {
    kind: held for kinds in INDEX.values() for kind, held in kinds.items() if not kind.startswith("law:")
}
"""What a file says of each kind of object, no less and no more, and what each member may be: data, made of the package's dataclasses."""
NEAR = 1e-9
LOST = Fraction(1, 10**12)
"""The share of what a law costs that doubles may have lost of it."""


PARTS = {"$kind": {"fields"}, "$array": {"dtype", "shape"}, "$law": {"args", "kwds"}}
TAGS = {"$kind", "$array", "$law", "$table", "$tuple", "$items", "$fraction", "$float", "$callable"}
WORDED = {
    "$fraction": re.compile(r"-?[0-9]{1,4300}/[0-9]{1,4300}", re.ASCII),
    "$float": re.compile("nan|inf|-inf"),
}
DTYPE = re.compile(r"(u?int(8|16|32|64)|float(32|64)|bool|object|str|<U[0-9]{1,4})")
NUMBERS: dict[str, set[type]] = {"f": {int, float}, "i": {int}, "u": {int}, "b": {bool}, "<": {str}}
FORMAT, VERSION, DEPTH, LIMIT = "mechdesign-result", 2, 100, 2**26


class NotCovered(Exception):
    """No check of this kind of result is written here."""

    before = "not covered: "

    @property
    def said(self) -> str:
        return f"{self.before}{self}"


class NothingToCheck(NotCovered):
    """The file states no result."""

    before = "nothing to check: "


class TooLarge(NotCovered):
    """Checking would take longer than a file of this size may take, or no grid decides."""

    before = ""


class Refused(Exception):
    """The file is not what mechdesign writes; says where, once that is known."""

    def __init__(self, said: str, *, placed: bool = False) -> None:
        super().__init__(said)
        self.placed = placed

    def at(self, place: str, word: str = "at") -> Refused:
        return self if self.placed or not place else Refused(f"{self} ({word} {place})", placed=True)


def refuse(when: object, said: str) -> None:
    """Raise Refused if what a file must not hold is there."""
    if when:
        raise Refused(said)


class Members(dict[str, Json]):
    """The members of an object of a file. All objects of a file share `last`, the place that was read last, which refusals name."""

    def __init__(self, said: dict[str, Json], place: str, last: list[str]) -> None:
        super().__init__(said)
        self.place, self.last = place, last

    def __getitem__(self, name: str) -> Json:
        self.last[:] = [f"{self.place}.{name}" if name else self.place]
        return super().__getitem__(name)


def lowest(values: Iterable[float]) -> float:
    """The least of some numbers; NaN where one of them is."""
    return min(values, key=lambda x: (x == x, x))


class Account:
    """Claims, each with how it was checked and whether it holds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, bool]] = []
        self.margins: dict[str, float] = {}
        self.agreeing, self.taken = 0, set[str]()

    def join(self, name: str, own: Account) -> None:
        """Add the claims of a part, under its name."""
        self.rows += [(f"{name}: {claim}", how, holds) for claim, how, holds in own.rows]
        self.margins |= {f"{name}: {claim}": margin for claim, margin in own.margins.items()}
        self.agreeing += own.agreeing

    def add(self, claim: str, how: str, holds: Json, left: Json = None) -> None:
        """Add a claim; `left`: how far it is from failing, where it compares numbers."""
        if left is not None and left == left:
            self.margins[claim] = float(max(min(left, 10**300), -(10**300)))
        self.rows.append((claim, how, bool(holds)))

    def agrees(self, claim: str, holds: Json, left: Json = None) -> None:
        """Not a claim about the mechanism: that it is a law, and that the file does not contradict itself."""
        self.agreeing += 1
        self.add(claim, "proved", holds, left)

    def summary(self) -> str:
        counts = Counter(how for _, how, _ in self.rows) - Counter(proved=self.agreeing)
        said = ", ".join(f"{counts[how]} {how}" for how in ("proved", "recomputed", "claimed"))
        of = f"{counts.total()} claims ({said}) and {self.agreeing} checks that the file agrees with itself"
        return f"{sum(not holds for *_, holds in self.rows) or 'none'} fail of {of}"

    def proved(self, claim: str, holds: Json, left: Json = None) -> None:
        self.add(claim, "proved", holds, left)

    def claimed(self, claim: str, holds: bool = True, left: Json = None) -> None:
        self.add(claim, "claimed", holds, left)

    def given(self, claim: str) -> None:
        """What the question takes for granted, and no claim rests on less for."""
        self.taken.add(claim)
        self.claimed(claim)

    def margin(self, claim: str, how: str) -> str:
        """What is left before a claim fails, in words where nothing is measured."""
        if how == "claimed":
            return "not checked"
        return f"{self.margins[claim]:.3g}" if claim in self.margins else "yes or no"

    @property
    def weakest(self) -> str:
        """How all that was claimed so far was checked, by the weakest of the three words."""
        found = {how for claim, how, _ in self.rows if claim not in self.taken}
        return next((how for how in ("claimed", "recomputed") if how in found), "proved")

    def bounds(self, claim: str, low: Json, high: Json, room: Json = 0, sure: bool = True) -> None:
        """Whether low ≤ high, exactly; within the `room` that floats may have lost, it is only recomputed; where one is not `sure`, claimed."""
        low, high = Fraction(low), Fraction(high)
        left = high + room - low
        how = "recomputed" if high < low and left >= 0 else "proved"
        self.add(claim, how if sure else "claimed", left >= 0, left)

    def costs(self, claim: str, cost: Json, value: Json) -> None:
        """Whether a law costs at most its value."""
        self.bounds(claim, cost, value, Fraction(value) * LOST)

    def at_most(self, claim: str, low: Json, high: Json, how: str = "proved") -> None:
        """Whether low ≤ high, as both are; what is left is the margin."""
        self.add(claim, how, low <= high, high - low)


def payload_of(text: str) -> Json:
    """The payload of a file, once all around it is as it should be."""
    if len(text) > LIMIT:
        raise TooLarge("too large to check: more than 2^26 characters")
    try:
        document = json.loads(text, object_pairs_hook=once)
        if not isinstance(document, dict) or set(document) != {"format", "version", "sha256", "payload"}:
            raise Refused("an envelope with other parts than format, version, sha256 and payload")
        version = document["version"]
        if document["format"] != FORMAT or type(version) is not int or version != VERSION:
            raise Refused(f"not a {FORMAT} file of version {VERSION}")
        canonical = canonical_of(document["payload"]).encode()
    except RecursionError:
        raise Refused("too many levels") from None
    except json.JSONDecodeError as error:
        raise Refused(f"no JSON at character {error.pos}") from None
    except UnicodeEncodeError:
        raise Refused("half of a surrogate pair") from None
    except ValueError:
        raise Refused("a number that is not finite, or an integer of more than 4300 digits") from None
    refuse(hashlib.sha256(canonical).hexdigest() != document["sha256"], "the checksum does not match")
    return document["payload"]


def canonical_of(payload: Json) -> str:
    """The text of a payload that its checksum is of."""
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def once(pairs: list[tuple[str, Json]]) -> Json:
    found = dict(pairs)
    refuse(len(found) < len(pairs), "a key stands twice in one object")
    return found


class Reader:
    """Makes of the values of one file what they are used as, and refuses what mechdesign does not write so.

    Here objects and laws become `Members`, arrays and tuples lists. The package, which reads by the same rules, makes its own objects.
    """

    sequence: Callable[[Json], Json] = list
    pairs: Callable[[Json], Json] = list
    arrays: type = list

    def __init__(self) -> None:
        self.last = list[str]()

    def read(self, text: str) -> Json:
        """The payload of a file."""
        payload = payload_of(text)
        kind = payload.get("$kind") if isinstance(payload, dict) else None
        return self.value(payload, str(kind or "payload")[:40])

    def value(self, node: Json, place: str, depth: int = 0) -> Json:
        """A value as it is used. `place`: where it stands, so many levels deep."""
        if not isinstance(node, (list, dict)):
            return node
        refuse(depth >= DEPTH, f"more than {DEPTH} levels")
        if isinstance(node, list):
            if bool in (kinds := {*map(type, node)}) and kinds & {int, float}:
                raise Refused(f"truth values among numbers (at {place})", placed=True)
            return [
                child if type(child) in (float, int) else self.value(child, f"{place}[{k}]", depth + 1)
                for k, child in enumerate(node)
            ]
        self.last[:] = [place]
        try:
            tag = next((key for key in node if key in TAGS), "")
            if not tag or set(node) != {tag, *PARTS.get(tag, ())}:
                raise Refused(f"an object that means nothing, with the members {sorted(node)!s:.80}")
            return self.tagged(tag, node, place, depth + 1)
        except Refused as error:
            raise error.at(place) from None
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise Refused(self.malformed(error, place), placed=True) from None

    def tagged(self, tag: str, node: Json, place: str, depth: int) -> Json:
        value, inner = node[tag], partial(self.value, place=place, depth=depth)
        if tag == "$kind":
            fields, held = node["fields"], self.members(value)
            if held is not None and held.keys() != fields.keys():
                raise Refused(
                    f"{value} with other members than its own: {sorted(held.keys() ^ fields)!s:.80}"
                )
            for name, words in (held or {}).items():
                if not any(is_what(word, fields[name]) for word in words.split("|")):
                    raise Refused(f"{value}: its {name} is none of {words}")
                held_in = fields[name] if "|null" in words and isinstance(fields[name], dict) else {}
                if [] in (held_in.get("$array"), held_in.get("$items")):
                    raise Refused(f"{value}: its {name} is empty, which would be taken for missing")
            said = {name: self.value(child, f"{place}.{name}", depth) for name, child in fields.items()}
            return self.made(value, said, place)
        if tag == "$table":
            names = {name for name, *_ in value if isinstance(name, str)}
            if len({len(held) for *_, held in value}) > 1 or len(names) < len(value):
                raise Refused("a table of columns of unequal lengths, or without names of their own")
            columns = ((name, kind, self.array(inner(held), kind, [len(held)])) for name, kind, held in value)
            return self.table([*columns])
        if tag == "$array":
            return self.array(inner(value), node["dtype"], node["shape"])
        if tag == "$law":
            refuse(not isinstance(value, str), "a law without a name")
            args, named = inner(node["args"]), dict(inner(node["kwds"]))
            numbers = args[:2] if value == "histogram" else args
            if not {*map(type, numbers)} - {self.arrays} | {*map(type, named.values())} <= {int, float}:
                raise Refused("a law with a parameter that is no number")
            refuse({"", "name", "args"} & {*named}, "a law with a parameter that has no name of its own")
            return self.law(value, args, named, place)
        if tag in WORDED:
            if not isinstance(value, str) or not WORDED[tag].fullmatch(value):
                raise Refused(f"a number written as {value!s:.40}")
            return Fraction(*map(int, value.split("/"))) if tag == "$fraction" else float(value)
        if tag == "$callable":
            refuse(not isinstance(value, str), "a function without a name")
            return self.function(value)
        refuse(not isinstance(value, list), "values that are not listed")
        if tag == "$tuple":
            return self.sequence(inner(value))
        found = self.pairs((key, held) for key, held in inner(value))
        if len(found) < len(value) or len({json.dumps(key) for key, _ in value}) < len(value):
            raise Refused("a key that stands twice")
        return found

    def malformed(self, error: Exception, place: str) -> str:
        return f"malformed at {place}: mechdesign writes nothing so"

    def members(self, kind: str) -> dict[str, str] | None:
        """What the members of a kind may be."""
        if kind not in MEMBERS:
            raise NotCovered(f"a kind that mechdesign does not have, or a newer one: {kind!s:.80}")
        return MEMBERS[kind]

    def made(self, kind: str, said: dict[str, Json], place: str) -> Json:
        if kind in TOGETHER and not TOGETHER[kind][0](said):
            raise Refused(TOGETHER[kind][1])
        return Members({"": kind, **said}, place, self.last)

    def table(self, columns: list[tuple[str, str, Json]]) -> Json:
        return columns

    def array(self, values: Json, dtype: str, shape: list[int]) -> Json:
        shaped(values, dtype, shape)
        return values

    def law(self, name: str, args: list[Json], named: dict[str, Json], place: str) -> Json:
        return Members({**named, "": "law", "name": name, "args": args}, place, self.last)

    def function(self, name: str) -> Json:
        return name


def is_axis(values: Json) -> bool:
    return bool(values) and all(type(x) in (int, float) and math.isfinite(x) for x in values)


def is_clipped(said: dict[str, Json]) -> bool:
    """Whether a clip is offered, whole for whole numbers, and several only if the values are known."""
    clips, known = flat(said["clip"]), (said["values"] is None, said["n"] is None)
    sized = clips and all(1e-140 <= clip <= 1e150 and (clip % 1 == 0 or not said["whole"]) for clip in clips)
    return bool(sized) and (not any(known) or (known[0] and not isinstance(said["clip"], list)))


def is_reached(said: dict[str, Json]) -> bool:
    """Whether outputs within this reach can be unbiased at both ends of the inputs."""
    low, high = map(float, said["input_range"])
    reach: float = 2 * said["max_abs"] * math.tanh(said["privacy"]["epsilon"] / 2)
    return reach >= (high - low) * (1 - 1e-12)


def is_clustered(said: dict[str, Json]) -> bool:
    """Whether a space is of a known kind, and states distances within and across clusters if it has clusters."""
    within, across = said["within"], said["across"]
    if said["kind"] == "clustered":
        return bool(0 < within <= across < math.inf)
    return said["kind"] in SPACES and within != within and across != across


def are_labels(labels: Json) -> bool:
    """Whether inputs or outputs are numbers, points or names, no two of them equal."""
    held = [tuple(flat(label)) for label in labels]
    kinds = {*map(type, flat(labels))}
    alike = kinds == {str} or (kinds <= {int, float} and all(map(math.isfinite, flat(labels))))
    return alike and len({*held}) == len(held) and len({*map(len, held)}) == 1


def is_chosen(said: dict[str, Json]) -> bool:
    """Whether candidates are distinct names or a number of them, and no more of them are chosen."""
    names = said["candidates"]
    named = type(names) is int or (are_labels(names) and isinstance(names[0], str))
    return bool(named and 1 <= said["choose"] <= (names if type(names) is int else len(names)) <= 10**7)


SPACES = "matrix", "euclidean", "line", "grid", "geodesic", "clustered"
VECTORS = "vector-design sphere-quantizer random-directions sampled-signs sampled-coordinates priv-unit"
BUDGETED = (
    lambda said: 1e-30 < said["privacy"]["epsilon"] <= 500,
    "a budget for which no vector mechanism is made",
)
LABELLED = (
    lambda said: are_labels(said["inputs"]) and are_labels(said["outputs"]),
    "inputs or outputs that are not told apart",
)
TOGETHER: dict[str, tuple[Callable[[Json], Json], str]] = {
    "loss": (lambda said: any(said.values()), "a loss whose weights are all zero"),
    "sensitivity": (
        lambda said: (
            (said["own"] is None or said["neighbours"] == "replace")
            and all(x == 0 or 1e-140 <= x <= 1e150 for x in said["each"] or ())
        ),
        "what one record does by itself, where the bounds say it, or bounds that doubles do not hold",
    ),
    "participation": (
        lambda said: (said["apart"] is None) != (said["every"] is None),
        "steps that are both apart and the same of every epoch, or neither",
    ),
    "mvu": (lambda said: said["max_abs"] is None or is_reached(said), "outputs that reach too little"),
    "metric-space": (is_clustered, "a space that is none"),
    "queries": (
        lambda said: (said["kind"] == "matrix") == (said["matrix"] is not None),
        "queries with a matrix that is not theirs, or without their own",
    ),
    "grid": (
        lambda said: said["axes"] and all(isinstance(name, str) and is_axis(x) for name, x in said["axes"]),
        "a grid without axes, or with one that is no numbers",
    ),
    "prior-samples": (lambda said: is_axis(said["samples"]), "samples that are no numbers"),
    **dict.fromkeys(("table-mechanism", "choice-table", "table-problem"), LABELLED),
    "choice-rule": (is_chosen, "candidates that are none, or fewer than are chosen"),
    "quantile-rule": (
        lambda said: not isinstance(said["candidates"], list) or is_axis(said["candidates"]),
        "candidates that are no numbers",
    ),
    "cell-noise": (
        lambda said: math.isfinite(said["start"]) and (said["spike_width"] > 0 or not said["spike"]),
        "cells without an end, or a spike of no width",
    ),
    **dict.fromkeys(VECTORS.split(), BUDGETED),
    "sum-task": (is_clipped, "clips that no sum is offered"),
}
"""What members say together, of kinds where not every one of them may stand beside every other, and what else is refused."""


def is_what(word: str, node: Json) -> bool:
    """Whether a member is what a word of `MEMBERS` says: an object of a kind, this text, or a value of a type."""
    if word[0] == "@":
        return isinstance(node, dict) and node.get("$kind") == word[1:]
    if word[0] == "'":
        return bool(node == word.strip("'"))
    if word[0] in "[(" or ".." in word:
        return is_within(word, node)
    if word in TAGGED:
        return isinstance(node, dict) and TAGGED[word] in node
    if word in LISTED:
        held = node.get("$tuple") if isinstance(node, dict) else None
        return isinstance(held, list) and all(is_what(LISTED[word], each) for each in held)
    if word == "pair":
        return is_what("nums", node) and len(node["$tuple"]) == 2
    return VALUES[word](node)


def is_within(word: str, node: Json) -> bool:
    """Whether a number is between two ends: integers "1..9", "2..", numbers "[0,1)"."""
    if ".." in word:
        least, most = word.split("..")
        return type(node) is int and is_number(node) and int(least) <= node <= int(most or node)
    low, high = map(float, word[1:-1].split(","))
    inside = is_number(node) and low <= node <= high
    return inside and (word[0] == "[" or node > low) and (word[-1] == "]" or node < high)


def is_number(node: Json) -> bool:
    """Whether a double holds it."""
    return type(node) is float or (type(node) is int and abs(node) < 10**308)


TAGGED = {
    "frac": "$fraction",
    "arr": "$array",
    "table": "$table",
    "law": "$law",
    "fun": "$callable",
    "items": "$items",
}
LISTED = {
    "nums": "num",
    "ints": "int",
    "fracs": "frac",
    "texts": "text",
    "rows": "fracs",
    "irows": "ints",
    "vectors": "nums",
    "pairs": "pair",
}
"""What the values of a tuple are."""
VALUES: dict[str, Callable[[Json], bool]] = {
    "any": lambda node: True,
    "null": lambda node: node is None,
    "cells": lambda node: is_what("arr", node) and node["shape"][1:] == [2],
    "flag": lambda node: isinstance(node, bool),
    "text": lambda node: isinstance(node, str),
    "int": lambda node: type(node) is int,
    "count": lambda node: is_within("0..", node),
    "some": lambda node: is_within("1..", node),
    "num": lambda node: is_number(node) or (isinstance(node, dict) and "$float" in node),
    "nn": lambda node: is_number(node) and node >= 0,
    "pos": lambda node: is_number(node) and node > 0,
}


def shaped(values: Json, dtype: str, shape: list[int]) -> list[Json]:
    """Return the values of an array in one list; refuse them unless they have its shape and its type."""
    sized = isinstance(shape, list) and bool(shape) and all(type(n) is int and n >= 0 for n in shape)
    if not isinstance(dtype, str) or not DTYPE.fullmatch(dtype) or not sized:
        raise Refused(f"an array of type {dtype!s:.40} and shape {shape!s:.40}")
    layer = [values]
    for length in shape:
        if not all(isinstance(part, list) and len(part) == length for part in layer):
            raise Refused(f"an array that is not of its shape {shape!s:.40}")
        layer = [child for part in layer for child in part]
    held = {*map(type, layer)}
    if dtype[0] in NUMBERS and (not held <= NUMBERS[dtype[0]] or (dtype[0] == "f" and held == {int})):
        raise Refused(f"an array of type {dtype} that holds something else")
    bits = int(dtype.lstrip("uint")) if dtype[0] in "iu" else 0
    least = 0 if dtype[0] == "u" else -(1 << bits) // 2
    fits = all(least <= x < least + (1 << bits) for x in layer) if bits else True
    fits = fits and (dtype[0] != "<" or all(len(x) <= int(dtype[2:]) for x in layer))
    if not fits or (dtype[0] == "f" and not all(map(is_number, layer))):
        raise Refused(f"an array of type {dtype} that holds larger values")
    return layer


def proofs_of(result: Json) -> dict[str, Json]:
    """The proofs of a result, by their kinds."""
    return {proof[""]: proof for proof in result["proofs"]}


def counts_of(workload: Json) -> int:
    """Return the number of counts that every block of a workload asks about."""
    sizes = [[part["size"] for part in block] for block in workload["blocks"]]
    refuse(any(block != sizes[0] for block in sizes), "blocks of a workload on other counts")
    return math.prod(sizes[0])


def flat(nested: Json) -> list[Json]:
    return [x for part in nested for x in flat(part)] if isinstance(nested, list) else [nested]


def points_of(privacy: Json) -> list[tuple[float, float]]:
    """Return the points (ε, δ) that are asked at once, each once and in order; refuse infinite ones."""
    if privacy[""] == "membership-advantage":
        return [(0.0, privacy["eta"])]
    given = privacy.get("points") or [(privacy["epsilon"], privacy.get("delta", 0.0))]
    points: list[tuple[float, float]] = sorted({(e, d) for e, d in given})
    refuse(not all(0 <= e < math.inf and 0 <= d <= 1 for e, d in points), "no point (epsilon, delta)")
    return points


def asked(privacy: Json) -> str:
    """What is asked, in symbols."""
    for name in ("rho", "mu"):
        if name in privacy:
            return f"{name} = {privacy[name]!r}"
    return "; ".join(f"epsilon = {e!r}, delta = {d!r}" for e, d in points_of(privacy))


EVERY, FAMILY, MENU = "every mechanism", "this family", "this menu"
INDEPENDENT, LOG_CONCAVE = "independent noise of one law", "symmetric log-concave noise"
STAIRS = "staircase", "answering_staircase"
SEARCHED_SHAPES = "flipped_huber", "osgt", "gennorm", "truncated_laplace", "staircase"
DISCRETE = "discrete_laplace", "discrete_gaussian"
OF_EVERY = "metric-quantizer metric-channel bounded-count local-workload table-problem lattice-problem"


def sought(design: Json) -> str:
    """The class of which a design seeks the best."""
    kind, bins = design[""], design.get("bins")
    if kind == "optimal-quantizer":
        return MENU if isinstance(bins, dict) and bins.get("") == "bin-search" else EVERY
    if kind == "optimal-noise":
        return EVERY if design["dimension"] == 1 else INDEPENDENT
    counted = kind == "private-choice" and design["largest"] is not None
    if counted or kind in OF_EVERY.split() or (kind == "knorm" and grows_with_the_norm(design)):
        return EVERY
    return MENU if kind in ("knorm", "vector-design", "plan") else FAMILY


def grows_with_the_norm(design: Json) -> bool:
    """Whether one round is asked under pure privacy, of one number, or of an ℓ₂ ball with all its signs by squared or ℓ₁ ball by absolute error."""
    if design["privacy"][""] != "pure-dp" or design["rounds"] != 1:
        return False
    order, s = 2 if design["loss"] == "squared" else 1, design["sensitivity"]
    if design["dimension"] == 1:
        return True
    alone = isinstance(s, dict) and all(s[name] is None for name in ("linf", "each", "l0", f"l{3 - order}"))
    return alone and (s["signed"] or order == 1) and design["norm"] in (None, order)


def spoken_of(result: Json) -> str:
    """The class of which the lower bound speaks."""
    design = result["design"]
    for proof in result["proofs"]:
        if proof[""] == "quantizer-dual-bound" and result["mechanism"][""] == "quantizer":
            duals = proof["duals"]
            if duals["outputs"] is None:
                return MENU if sought(design) == MENU else EVERY
            return EVERY if duals["between"] else MENU
        if proof[""] == "closed-bound" and design[""] == "calibration":
            refuse(not 0 <= proof["given"] <= 1, "a share of the scale that is none")
            if proof["given"] and design["noise"] not in (*SEARCHED_SHAPES, *DISCRETE):
                return FAMILY
            return INDEPENDENT if result["mechanism"]["law"]["name"] in STAIRS else LOG_CONCAVE
        if proof[""] == "subset-bound" and design[""] == "optimal-noise":
            return INDEPENDENT
    if design[""] == "vector-design":
        return EVERY
    return sought(design)


def standing(result: Json, account: Account) -> None:
    """Check the class stated, and the status."""
    value, bound, stated = (result[name] for name in ("value", "lower_bound", "bound_class"))
    if bound is not None or stated is not None:
        holds = bound is not None and stated == spoken_of(result)
        account.agrees(f"the lower bound is of {stated or 'no class that is stated'}", holds)
    status, asked = result["solver_report"]["status"], result["asked_gap"]
    holds = math.isfinite(value) and (bound is None or -math.inf < bound <= value)
    if status not in ("optimal", "best of its class"):
        account.agrees(f"status {status!r}: no optimum is claimed", holds)
        return
    left = None if None in (bound, asked) else asked - max(0.0, value - bound) / max(abs(value), 1e-300)
    holds = holds and left is not None and left >= 0 and asked <= 1
    holds = holds and (status == "optimal") == (sought(result["design"]) == EVERY)
    how = account.weakest  # it rests on what is said of the mechanism, the value and the bound
    account.agreeing += how == "proved"
    account.add(f"status {status!r}: value and lower bound are as close as was asked", how, holds, left)


FILE = re.compile(r'href="data:application/gzip;base64,([A-Za-z0-9+/=]*)"')


def file_of(name: str, data: bytes) -> tuple[str, str | None]:
    """The text of a result file, and the page that carried it, if one did; Refused or TooLarge says in a sentence why there is none."""
    said = f"{name} is a picture or a printed page: give the result file or the report page itself"
    refuse(data[:2] in (b"\x89P", b"\xff\xd8", b"GI") or data[:4] == b"%PDF", said)
    if data[:2] == b"\x1f\x8b":
        data = unpacked(name, data)
    text = text_of(name, data)
    if "<html" not in text[:2000].lower():
        return text, None
    carried = FILE.search(text)
    if carried is None:
        raise Refused(f"{name} is a page that carries no result file: ask whoever sent it for the file")
    try:
        packed = base64.b64decode(carried[1], validate=True)
    except (binascii.Error, ValueError):
        raise Refused(f"{name} carries a file that is damaged") from None
    return text_of(name, unpacked(name, packed)), text


def text_of(name: str, data: bytes) -> str:
    """Decode the text; refuse more than is checked."""
    if len(data) > LIMIT:
        raise TooLarge(f"{name} holds more than 64 MiB: so much is not checked")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{name} is no text: give a result file (JSON) or a report page (HTML)") from None


def unpacked(name: str, packed: bytes) -> bytes:
    """Unpack a gzip file, up to one byte more than is checked."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            return file.read(LIMIT + 1)
    except (OSError, EOFError, zlib.error):
        raise Refused(f"{name} holds a file that is damaged") from None
