"""The result file that a page carries: saved as it was written, never checked by the page, and said once to be left out where it is too large."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
from pathlib import Path
from typing import Any

import cheap
import pytest
from outline import Outline

import mechdesign as md
from mechdesign.evidence import page as pages
from mechdesign.evidence.page import Section, page


def carried(text: str) -> bytes:
    """The file that the page's link saves, unpacked."""
    [link] = [a for a in Outline(text).named("a") if "download" in a]
    head, _, data = str(link["href"]).partition(",")
    assert (link["download"], head) == ("result.json.gz", "data:application/gzip;base64")
    return gzip.decompress(base64.b64decode(data, validate=True))


@pytest.mark.parametrize("name", ["optimal-quantizer", "noise-allocation"])
def test_the_link_saves_the_bytes_that_save_writes(name: str, tmp_path: Path) -> None:
    result: Any = cheap.solved(name)
    result.report(tmp_path / "page.html")
    result.save(tmp_path / "result.json")
    text, saved = (tmp_path / "page.html").read_text(), (tmp_path / "result.json").read_bytes()
    assert carried(text) == saved
    assert text.count(hashlib.sha256(saved).hexdigest()) == 1
    said = "".join(Outline(text).texts)
    assert "as computed by mechdesign" in said and "opening it checks nothing" in said
    assert said.count("result.json.gz") == 2  # the link, and the command that unpacks it


def test_a_page_of_a_quantizer_is_light_and_its_script_sorts_only(tmp_path: Path) -> None:
    cheap.solved("optimal-quantizer").report(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size <= 90_000
    script = (Path(pages.__file__).parent / "templates" / "page.js").read_text()
    found = Outline((tmp_path / "page.html").read_text())
    assert len(found.named("script")) == 1 and script in found.texts and script.count("\n") <= 40
    assert [p.name for p in Path(md.__file__).parent.rglob("*.*js")] == ["page.js"]


def test_a_file_that_is_too_large_is_said_once_to_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    text = random.Random(0).randbytes(3000).hex()
    section = Section("Check it yourself", file=("result.json", text))
    assert carried(page("t", [section])) == text.encode()
    monkeypatch.setattr(pages, "LARGEST_FILE", 2999)
    without = page("t", [section])
    assert "download" not in without and without.count("does not carry") == 1
    assert without.count(hashlib.sha256(text.encode()).hexdigest()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("megabytes", "is_carried"), [(19, True), (25, False)])
def test_twenty_megabytes_are_carried(megabytes: int, is_carried: bool) -> None:
    text = base64.b64encode(random.Random(0).randbytes(megabytes * 1_000_000)).decode()  # gzip undoes that
    made = page("t", [Section("Check it yourself", file=("result.json", text))])
    assert ("download" in made) == is_carried and made.count("does not carry") == (not is_carried)
    assert not is_carried or carried(made) == text.encode()
