"""The index of kinds: enough for a fresh process to read a file of every kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cheap
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import KINDS

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
