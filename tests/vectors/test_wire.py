"""Messages, byte by byte: clients in JavaScript and C, written from docs/wire.md, send what Python sends."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.vectors.coded import rounded_signs, shared_subsets, shared_words

from . import wire

CLIENT = Path(__file__).with_name("client.mjs")
NODE = shutil.which("node")
node = pytest.mark.skipif(NODE is None, reason="Node.js is absent: no JavaScript outside a browser")


def javascript(made: dict[str, Any], folder: Path) -> list[str]:
    (folder / "cases.json").write_text(json.dumps(made))
    return subprocess.run(
        [str(NODE), str(CLIENT), str(folder / "cases.json")], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def messages(made: dict[str, Any]) -> list[str]:
    return [case["message"] for case in made["cases"]]


def test_the_vectors_that_are_kept_are_what_python_makes() -> None:
    assert wire.FILE.read_text() == wire.committed()


@node
def test_javascript_makes_the_vectors_that_are_kept(tmp_path: Path) -> None:
    made = json.loads(wire.FILE.read_text())
    assert len(made["cases"]) >= 60
    assert javascript(made, tmp_path) == messages(made)


@node
def test_javascript_sends_what_python_sends(tmp_path: Path) -> None:
    made = wire.cases(list(wire.MECHANISMS), 20, start=100)
    assert javascript(made, tmp_path) == messages(made)


@pytest.mark.slow
@node
def test_javascript_sends_what_python_sends_ten_thousand_times(tmp_path: Path) -> None:
    made = wire.cases(list(wire.MECHANISMS), 1000, start=1000)
    assert len(made["cases"]) > 10_000 and javascript(made, tmp_path) == messages(made)


@node
def test_javascript_refuses_what_python_refuses(tmp_path: Path) -> None:
    made = wire.cases(["signs", "sphere", "sphere, exactly", "table"], 40, start=500)
    for case in made["cases"]:
        case["clip"] = False
    found = javascript(made, tmp_path)
    refused = 0
    for case, there in zip(made["cases"], found):
        mechanism, x = wire.MECHANISMS[case["mechanism"]], case["inputs"]
        try:
            mechanism.encode(x)
            assert there == case["message"]
        except md.DataError:
            refused += 1
            assert there.startswith("error: a")
    assert 40 < refused < 140


def test_the_stream_as_the_page_says_it() -> None:
    words = [f"{word:016x}" for word in shared_words(1, 2, 2)]
    assert words == ["451d0dd40544b02e", "cfe1c8d758c1a838"]
    assert " and ".join(words) in wire.FILE.with_name("wire.md").read_text()


def test_all_subsets_are_equally_likely() -> None:
    chosen = shared_subsets(3, 0, 12_000, 6, 3)
    assert (chosen[:, 1:] > chosen[:, :-1]).all() and chosen.min() == 0 and chosen.max() == 5
    counts = np.bincount(chosen @ [36, 6, 1])
    assert (counts > 0).sum() == 20 and stats.chisquare(counts[counts > 0]).pvalue > 1e-4


def test_signs_are_rounded_with_exact_probabilities() -> None:
    y = np.array([-1.0, -0.75, -1e-300, 0.0, 2.0**-40, 0.3, 1.0])
    up = rounded_signs(np.tile(y, (60_000, 1))).mean(axis=0)
    assert np.abs(up - (1 + y) / 2).max() < 5 * 0.5 / 60_000**0.5 and up[0] == 0.0 and up[-1] == 1.0
