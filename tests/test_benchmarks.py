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


@pytest.mark.slow
def test_runs_are_remembered_and_a_bar_that_is_missed_again_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(FOLDER.parent.parent)
    run = import_module("studies.benchmarks.run")
    ratio = import_module("studies.benchmarks.turns").Ratio
    assert {f"bench_{name}" for name in run.NAMES} == set(NAMES)  # each states a bar
    for k in range(12):
        now = {"a": ratio("a", 1.0 + k / 20, 2.0), "b": ratio("b", 3.0, 2.0), "c": ratio("c", 3.0, 2.0, True)}
        run.remember(now, tmp_path, stamp=f"20260101-{k:06}", commit="")
    assert [path.stem[-2:] for path in sorted(tmp_path.glob("*.json"))] == [f"{k:02}" for k in range(2, 12)]
    assert (tmp_path / "ratios.svg").exists()
    before = run.remembered(tmp_path)
    assert before[-1] == now and len(before) == 10
    late = {
        "a": ratio("a", 2.5, 2.0),
        "b": now["b"],
        "c": ratio("c", 1.0, 2.0, True),
        "new": ratio("new", 3.0, 2.0),
    }
    assert [line.split(":")[0] for line in run.missed_again(late, before)] == ["a", "c"]
    assert run.missed_again(now, before) == []
