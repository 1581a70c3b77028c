"""The Flower example runs, or says what it lacks."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "studies" / "examples" / "flower_digits.py"


def test_flower_example(capsys: pytest.CaptureFixture[str]) -> None:
    module: dict[str, Any] = runpy.run_path(str(EXAMPLE))
    assert module["main"](["--rounds", "1", "--epsilon", "20"]) == 0
    said = capsys.readouterr().out
    if importlib.util.find_spec("flwr") is None:
        assert "skipped" in said and "mechdesign[flower,learning]" in said
    else:
        assert "accuracy" in said and "34 bytes" in said
