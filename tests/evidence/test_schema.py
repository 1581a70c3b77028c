"""What a kind consists of is said once, by its class; the JSON Schema holds for every saved object and for no other structure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cheap
import jsonschema
import pytest
from campaign import files

import mechdesign as md
from evidence import kinds
from mechdesign.evidence.serialize import KINDS, result_schema

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
    at = text.index(f'"{key}":') + len(f'"{key}":')
    _, length = json.JSONDecoder().raw_decode(text[at:])
    assert not VALIDATOR.is_valid(json.loads(text[:at] + json.dumps(value) + text[at + length :]))


@pytest.mark.parametrize(
    "change", [{"format": "other"}, {"version": True}, {"sha256": "0"}, {"payload": 3}, {"further": 1}]
)
def test_damaged_envelopes_do_not(change: dict[str, Any]) -> None:
    good = document("pure-dp")
    assert not VALIDATOR.is_valid(good | change)
    assert not any(VALIDATOR.is_valid({k: v for k, v in good.items() if k != key}) for key in good)


# -- The index of kinds: enough for a fresh process to read a file of every kind -----------------------------

# One child a file, forked before anything of the package but the table is imported.
FRESH = """
import os, sys
import cvxpy, highspy, numpy, pandas, scipy.integrate, scipy.optimize, scipy.sparse, scipy.stats
from mechdesign.evidence.serialize import dumps, load
loaded = set(sys.modules)
failed = 0
for path in sys.argv[1:]:
    if os.fork():
        failed += os.wait()[1] != 0
        continue
    value = load(path)
    os._exit(0 if dumps(value) == open(path).read() else 1)
assert set(sys.modules) == loaded
sys.exit(failed)
"""


@pytest.mark.slow
def test_a_fresh_process_reads_every_kind(tmp_path: Path) -> None:
    documents = cheap.documents()
    assert set(KINDS) <= set(documents), f"no cheap instance of {sorted(set(KINDS) - set(documents))}"
    paths = []
    for number, kind in enumerate(KINDS):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(documents[kind])
    run = subprocess.run([sys.executable, "-c", FRESH, *map(str, paths)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("path", [3, None, ["a"], "a\0b", object(), ".", b"\xff"])
def test_what_is_no_path(path: object) -> None:
    with pytest.raises((md.DesignError, md.ResultFormatError)):
        md.load(path)  # type: ignore[arg-type]
    with pytest.raises((md.DesignError, OSError)):
        cheap.solved("noise-allocation").save(path)  # type: ignore[arg-type]
