"""What a hostile author can put into a file, or a caller into an argument: refused by the package's own errors.

Each docstring says what the commit before the fix (cf7c94e) did.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cheap
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.evidence.serialize import FORMAT, dumps, loads
from mechdesign.files import KINDS
from mechdesign.shell.cli import main

ENVELOPE = '{"format": "%s", "version": 2, "sha256": "x", "payload": %s}'


@pytest.mark.parametrize("name", ["test", "rv_continuous", "make_distribution", "bootstrap", "__name__"])
def test_a_file_calls_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Was: ``{"$law": "test", "args": ["full"]}`` ran ``scipy.stats.test("full")``, SciPy's test runner."""
    called: list[Any] = []
    monkeypatch.setattr(
        stats, "test", lambda *args, **kwds: called.append(args) or stats.norm(), raising=False
    )
    law = {"$law": name, "args": ["full"], "kwds": {"$items": []}}
    for payload in (law, {"$kind": "prior-law", "fields": {"law": law}}):
        with pytest.raises(md.ResultFormatError):
            loads(cheap.sealed(payload), kinds=KINDS)
    assert called == []


@pytest.mark.parametrize(
    "text",
    [
        ENVELOPE % (FORMAT, "NaN"),
        '{"a": ' + "9" * 5000 + "}",
        cheap.sealed({"$fraction": "9" * 5000 + "/1"}),
        "[" * 100_000,
        '{"a":' * 50_000,
        cheap.sealed({"$fraction": "1/0"}),
        ENVELOPE % (FORMAT, '"\\ud800"'),
    ],
    ids=["NaN", "digits", "fraction", "deep list", "deep dict", "1/0", "surrogate"],
)
def test_malformed_files(text: str, tmp_path: Path) -> None:
    """Was: ValueError for NaN and for 5,000 digits, RecursionError, ZeroDivisionError, UnicodeEncodeError."""
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(md.ResultFormatError) as caught:
        md.load(path)
    assert "\n" not in str(caught.value)


def test_an_uncertified_mechanism_over_its_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Was: "exact loss: 1.0000000000000053 > OVER budget 1.0", then "every constraint of the definition holds", exit 0."""
    result = md.OPTM(cheap.BINS, cheap.PURE, cheap.UNIFORM).solve(certify=False)
    path = tmp_path / "r.json"
    result.save(path)
    monkeypatch.setattr(sys, "argv", ["mechdesign", "audit", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == 1 and "every constraint" not in shown.out + shown.err
    assert not result.checks()["holds"].all()


def test_a_channels_weights_are_those_of_the_table_shown() -> None:
    """Was: integer weights replaced by the identity in a resealed file, the matrix shown untouched, passed the audit."""
    design = md.MetricChannel(md.MetricSpace.line([0.0, 1.0, 2.0]), alpha=1.0)
    payload = json.loads(dumps(design.solve()))["payload"]
    found = payload["fields"]["mechanism"]["fields"]["weights"]
    rows = found["$tuple"] if isinstance(found, dict) else found
    for i, row in enumerate(rows):
        cells = row["$tuple"] if isinstance(row, dict) else row
        cells[:] = [int(i == j) for j in range(len(cells))]
    with contextlib.suppress(md.ResultFormatError):
        assert not loads(cheap.sealed(payload), kinds=KINDS).checks()["holds"].all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: md.EMDPrivacy("a"),  # type: ignore[arg-type]
        lambda: md.MVU(4, cheap.PURE, 5),
        lambda: md.RQM(4, cheap.PURE, cheap.UNIFORM, input_range=3),
        lambda: md.noise.KNormNoise(2, "x"),  # type: ignore[arg-type]
        lambda: md.clipped([0.1, 0.2], -1, 1),
        lambda: md.frontier(
            md.OptimalQuantizer(cheap.BINS, cheap.PURE, cheap.UNIFORM),
            "epsilon",
            values=3,  # type: ignore[arg-type]
        ),
        lambda: md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)).sample("a"),
    ],
    ids=["EMDPrivacy", "MVU", "RQM", "KNormNoise", "clipped", "frontier", "sample"],
)
def test_arguments_of_another_type(call: Callable[[], Any]) -> None:
    """Was: ValueError "could not convert string to float", TypeError "'int' object is not iterable" (or subscriptable),
    and a prior made of a list of samples that failed when it was integrated."""
    with pytest.raises(md.DesignError):
        call()
