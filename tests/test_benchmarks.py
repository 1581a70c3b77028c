"""Every benchmark runs as its docstring says: it names its command, and that module imports and has a `main`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "studies" / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("bench_*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs_as_its_docstring_says(name: str, monkeypatch) -> None:
    monkeypatch.syspath_prepend(FOLDER.parent.parent)
    module = import_module(f"studies.benchmarks.{name}")
    assert f"python -m studies.benchmarks.{name}" in module.__doc__
    assert callable(module.main)
