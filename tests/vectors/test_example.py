"""The Flower example runs, or says what it lacks."""

from __future__ import annotations

import importlib.util
import os
import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "studies" / "examples" / "flower_digits.py"


def test_flower_example(capsys: pytest.CaptureFixture[str]) -> None:
    module: dict[str, Any] = runpy.run_path(str(EXAMPLE))
    assert module["main"](["--rounds", "2", "--clients", "300", "--epsilon", "20", "--loop"]) == 0
    said = capsys.readouterr().out
    if importlib.util.find_spec("flwr") is None:
        assert "skipped" in said and "mechdesign[flower,learning]" in said
    else:
        assert "150 clients in one process" in said and "34 bytes" in said


@pytest.mark.skipif(not os.environ.get("MECHDESIGN_NIGHTLY"), reason="starts a Ray cluster: a minute")
def test_flowers_own_simulation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr", reason="Flower is absent: pip install 'mechdesign[flower]'")
    pytest.importorskip("ray", reason="Ray is absent: pip install 'flwr[simulation]'")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "0")
    module: dict[str, Any] = runpy.run_path(str(EXAMPLE))
    assert module["main"](["--rounds", "2", "--clients", "12", "--epsilon", "20"]) == 0
    assert "6 clients in Flower's simulation" in capsys.readouterr().out
