"""What a kind consists of is said once, by its class; the JSON Schema holds for every saved object and for no other structure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cheap
import jsonschema
import pytest
from campaign import files

from evidence import kinds
from mechdesign.evidence.serialize import result_schema

VALIDATOR = jsonschema.Draft202012Validator(result_schema())


def document(kind: str) -> Any:
    return json.loads(cheap.documents()[kind])


@pytest.mark.parametrize("path", kinds.TEXTS, ids=lambda path: path.name)
def test_schema_verifier_and_documentation_list_the_members_of_the_classes(path: Path) -> None:
    """After a change of a class: ``cd tests && python -m evidence.kinds``."""
    assert path.read_text(encoding="utf-8") == kinds.TEXTS[path]()


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(result_schema())


@pytest.mark.parametrize("kind", kinds.members())
def test_every_kind_validates_with_its_members_alone(kind: str) -> None:
    good = document(kind)
    VALIDATOR.validate(good)
    held = good["payload"]["fields"]
    others = [{k: v for k, v in held.items() if k != name} for name in held] + [held | {"further": 1}]
    for fields in others:
        assert not VALIDATOR.is_valid({**good, "payload": {"$kind": kind, "fields": fields}})


@pytest.mark.parametrize("name", files.DESIGNS)
def test_every_result_validates(name: str) -> None:
    assert list(VALIDATOR.iter_errors(json.loads(files.text(name)))) == []


DAMAGES: list[tuple[str, Any]] = [
    ("$fraction", "1/0"), ("$fraction", 1), ("$tuple", {}), ("$array", "text"), ("dtype", "complex128"), ("shape", [-1]), ("$kind", "nonesuch"),
    ("$kind", None), ("$law", 3), ("kwds", {}), ("epsilon", -1.0), ("prior", 0.5), ("status", "perfect"), ("value", "1"), ("notes", "text"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), DAMAGES)
def test_damaged_structure_does_not(key: str, value: Any) -> None:
    text = files.text("beta")
    start = text.index(f'"{key}": ')
    at = start + len(f'"{key}": ')
    _, length = json.JSONDecoder().raw_decode(text[at:])
    assert not VALIDATOR.is_valid(json.loads(text[:at] + json.dumps(value) + text[at + length :]))


@pytest.mark.parametrize(
    "change", [{"format": "other"}, {"version": True}, {"sha256": "0"}, {"payload": 3}, {"further": 1}]
)
def test_damaged_envelopes_do_not(change: dict[str, Any]) -> None:
    good = document("pure-dp")
    assert not VALIDATOR.is_valid(good | change)
    assert not any(VALIDATOR.is_valid({k: v for k, v in good.items() if k != key}) for key in good)
