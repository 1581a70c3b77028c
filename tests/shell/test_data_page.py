"""The page of data sets: every file that a study asks for, and the sums of those that are here."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "data.rst").read_text(encoding="utf-8")
SUMS = {name: total for total, name in re.findall(r"^   ([0-9a-f]{64})  (\S+)$", PAGE, re.MULTILINE)}
FOLDER = Path(os.environ.get("MECHDESIGN_DATA", "nowhere"))


def test_every_file_that_a_study_asks_for_is_on_the_page_with_its_sum() -> None:
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "studies").rglob("*.py"))
    asked = set(re.findall(r'"(\w+\.(?:csv|bin)\.gz)"', code))
    assert 'report.data(f"mnist_{split}-{part}-ubyte.gz")' in code
    asked |= {
        f"mnist_{split}-{part}-ubyte.gz"
        for split in ("train", "t10k")
        for part in ("images-idx3", "labels-idx1")
    }
    assert asked == set(SUMS) == set(re.findall(r"^   \* - ``(\S+)``$", PAGE, re.MULTILINE))


@pytest.mark.skipif(not FOLDER.is_dir(), reason="MECHDESIGN_DATA is not set")
@pytest.mark.parametrize("name", SUMS)
def test_files_that_are_here_are_those_of_the_page(name: str) -> None:
    if not (FOLDER / name).exists():
        pytest.skip(f"no {name}")
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == SUMS[name]
