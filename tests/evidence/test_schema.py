"""The JSON Schema of result files: every saved object validates, and nothing of another structure does."""

from __future__ import annotations

import copy
import json
from typing import Any

import cheap
import jsonschema
import pytest

from evidence import kinds
from evidence.test_doctored import MORE, nodes, solved
from mechdesign.evidence.serialize import dumps, result_schema
from mechdesign.files import KINDS

SCHEMA = result_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
OBJECTS = [kind for kind in KINDS if not kind.startswith("law:")]


def document(kind: str) -> Any:
    return json.loads(cheap.documents()[kind])


def test_it_is_a_schema_of_every_kind() -> None:
    """A new kind, or member: one line of `evidence.kinds`, which then writes the schema."""
    assert set(kinds.KINDS) == set(OBJECTS)
    assert kinds.PATH.read_text() == kinds.schema_text()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["$defs"]["kinds"]) == set(OBJECTS)
    assert SCHEMA["$defs"]["kind"]["properties"]["$kind"]["enum"] == list(SCHEMA["$defs"]["kinds"])
    assert len(SCHEMA["$defs"]["kind"]["allOf"]) == len(OBJECTS)


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_kind_validates_and_has_exactly_the_members_that_are_required(kind: str) -> None:
    good = document(kind)
    VALIDATOR.validate(good)
    members = good["payload"]["fields"]
    assert sorted(members) == SCHEMA["$defs"]["kinds"][kind]["required"]
    for name in members:
        bad = copy.deepcopy(good)
        del bad["payload"]["fields"][name]
        assert not VALIDATOR.is_valid(bad), name
    for key, value in (("further", 1), ("$kind", kind)):
        bad = copy.deepcopy(good)
        bad["payload"]["fields"][key] = value
        assert not VALIDATOR.is_valid(bad)


@pytest.mark.parametrize("name", [*cheap.DESIGNS, *MORE])
def test_every_result_validates(name: str) -> None:
    assert list(VALIDATOR.iter_errors(json.loads(dumps(solved(name))))) == []


DAMAGES: list[tuple[str, Any]] = [
    ("$fraction", "1/0"),
    ("$fraction", "0.5"),
    ("$fraction", 1),
    ("$float", 1.0),
    ("$tuple", {}),
    ("$array", "text"),
    ("dtype", "complex128"),
    ("dtype", "O"),
    ("shape", [-1]),
    ("shape", [1.5]),
    ("$kind", "nonesuch"),
    ("$kind", ["pure-dp"]),
    ("$kind", None),
    ("$law", 3),
    ("kwds", {}),
    ("args", {"$items": []}),
    ("epsilon", -1.0),
    ("epsilon", "1"),
    ("prior", 0.5),
    ("law", {"$kind": "pure-dp", "fields": {"epsilon": 1.0}}),
    ("status", "perfect"),
    ("solver_report", None),
    ("value", "1"),
    ("notes", "text"),
]


@pytest.mark.parametrize(("key", "value"), DAMAGES)
def test_damaged_structure_does_not(key: str, value: Any) -> None:
    tried = 0
    for text in (dumps(solved(name)) for name in ("beta", "pure-noise", "metric-grid")):
        good = json.loads(text)
        owners = list(nodes(good["payload"], key))
        for at in {0, len(owners) - 1} if owners else ():
            bad = json.loads(text)
            list(nodes(bad["payload"], key))[at][key] = value
            if bad != good:
                tried += 1
                assert not VALIDATOR.is_valid(bad), (key, value, at)
    assert tried or key == "$float"


@pytest.mark.parametrize(
    "change",
    [{"format": "other"}, {"version": 1}, {"version": True}, {"sha256": "0"}, {"payload": 3}, {"further": 1}],
)
def test_damaged_envelopes_do_not(change: dict[str, Any]) -> None:
    good = document("pure-dp")
    VALIDATOR.validate(good)
    assert not VALIDATOR.is_valid(good | change)
    for key in good:
        assert not VALIDATOR.is_valid({k: v for k, v in good.items() if k != key})
