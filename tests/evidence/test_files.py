"""The table of kinds: complete, and enough for a fresh process to read a file of every kind."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cheap
import house
import pytest

import mechdesign as md
from mechdesign.files import KINDS

# One child a file, forked before anything of the package but the table is imported.
FRESH = """
import os, sys
import cvxpy, highspy, numpy, pandas, scipy.integrate, scipy.optimize, scipy.sparse, scipy.stats
from mechdesign.files import load
loaded = set(sys.modules)
failed = 0
for path in sys.argv[1:]:
    if os.fork():
        failed += os.wait()[1] != 0
        continue
    from mechdesign.evidence.serialize import dumps
    value = load(path)
    os._exit(0 if dumps(value) == open(path).read() else 1)
assert set(sys.modules) - loaded <= {"mechdesign.evidence.serialize"}
sys.exit(failed)
"""


def declared() -> Iterator[tuple[str, str]]:
    """Kinds and laws that the package's modules register, with the module."""
    for name, path in house.modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                prefix = {"serializable": "", "register_law": "law:"}.get(node.func.id)
                if prefix is not None and isinstance(node.args[0], ast.Constant):
                    yield prefix + node.args[0].value, name


@pytest.mark.slow
def test_the_table_is_what_the_modules_register() -> None:
    pairs = list(declared())
    assert dict(pairs) == KINDS
    assert len(pairs) == len(KINDS)


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
