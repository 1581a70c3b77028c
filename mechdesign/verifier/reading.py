"""What every check needs: the claims it makes, the plain values of a file, and bounds of the exponential function."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from fractions import Fraction
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""A plain value of a file: an object is a dictionary with its kind under the empty key."""
NEAR = 1e-9


class NotCovered(Exception):
    """No check of this kind of result is written here."""


class Refused(Exception):
    """The file is not what mechdesign writes."""


class Account:
    """Claims, each with how it was checked and whether it holds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, bool]] = []
        self.agreeing = 0

    def agrees(self, claim: str, holds: Json) -> None:
        """Not a claim about the mechanism: that it is a law, and that the file does not contradict itself."""
        self.agreeing += 1
        self.proved(claim, holds)

    def summary(self) -> str:
        counts = Counter(how for _, how, _ in self.rows) - Counter(proved=self.agreeing)
        said = ", ".join(f"{counts[how]} {how}" for how in ("proved", "recomputed", "claimed"))
        of = f"{counts.total()} claims ({said}) and {self.agreeing} checks that the file agrees with itself"
        return f"{sum(not holds for *_, holds in self.rows) or 'none'} fail of {of}"

    def proved(self, claim: str, holds: Json) -> None:
        self.rows.append((claim, "proved", bool(holds)))

    def claimed(self, claim: str, holds: bool = True) -> None:
        self.rows.append((claim, "claimed", bool(holds)))

    def bounds(self, claim: str, low: Json, high: Json, room: Json = 0) -> None:
        """Whether low ≤ high, exactly; within the `room` that floats may have lost, it is only recomputed."""
        low, high = Fraction(low), Fraction(high)
        self.rows.append((claim, "recomputed" if high < low <= high + room else "proved", low <= high + room))


def read(text: str) -> Json:
    """The payload of a file as plain values: objects are dictionaries with their kind under ""."""
    document = json.loads(text, object_pairs_hook=once)
    canonical = json.dumps(
        document["payload"], sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )
    if document["format"] != "mechdesign-result" or document["version"] != 2 or len(text) > 2**26:
        raise Refused("not a mechdesign-result file of version 2")
    if hashlib.sha256(canonical.encode()).hexdigest() != document["sha256"]:
        raise Refused("the checksum does not match")
    return plain(document["payload"])


def once(pairs: list[tuple[str, Json]]) -> Json:
    if len({key for key, _ in pairs}) < len(pairs):
        raise Refused("a key stands twice in one object")
    return dict(pairs)


def plain(node: Json) -> Json:
    if isinstance(node, list):
        return [child if type(child) is float else plain(child) for child in node]
    if not isinstance(node, dict):
        return node
    if "$kind" in node:
        return {"": node["$kind"], **{key: plain(child) for key, child in node["fields"].items()}}
    numbers = flat(node["$array"]) if node.get("dtype") not in (None, "bool") else node.get("args", [])[:2]
    keys = {json.dumps(key) for key, _ in node.get("$items", [])}
    if bool in map(type, numbers) or len(keys) < len(node.get("$items", [])):
        raise Refused("true or false among numbers, or a key that stands twice")
    if "$law" in node:
        return {**dict(plain(node["kwds"])), "": "law", "name": node["$law"], "args": plain(node["args"])}
    meant = {"$fraction": Fraction, "$float": float}
    return next((meant.get(tag, plain)(node[tag]) for tag in node if tag.startswith("$")), None)


def exp_bounds(x: Json, bits: int = 320) -> tuple[Fraction, Fraction]:
    """Rationals below and above e^x: a Taylor interval of x / 2^k, squared k times with outward rounding."""
    x = Fraction(x)
    if abs(x) > 2**14:
        raise NotCovered("an exponent beyond 16384")
    if x < 0:
        low_power, high_power = exp_bounds(-x, bits)
        return 1 / high_power, 1 / low_power
    k = max(0, math.ceil(math.log2(x + 1)) + 2)
    small, bits = x / 2**k, bits + 2 * k
    unit, total, term = 1 << bits, Fraction(0), Fraction(1)
    for n in range(1, 60):
        total += term
        term = Fraction(math.floor(term * small / n * unit * 2**20), unit * 2**20)
    low, high = math.floor(total * unit), math.floor((total + 2 * term) * unit) + 64
    for _ in range(k):
        low, high = (low * low) >> bits, ((high * high) >> bits) + 1
    return Fraction(low, unit), Fraction(high, unit)


def flat(nested: Json) -> list[Json]:
    return [x for part in nested for x in flat(part)] if isinstance(nested, list) else [nested]
