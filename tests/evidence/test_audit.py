"""What `mechdesign audit` says of every kind of result: it ends with 0 only where everything holds that its kind must have."""

from __future__ import annotations

import json
from pathlib import Path

import cheap
import numpy as np
import pandas as pd
import pytest

import mechdesign as md
from evidence.test_doctored import design_epsilon, no_certificate, payloads, value
from mechdesign.evidence.proofs import tightest
from mechdesign.shell.commands import audit

QUICK = [name for name in cheap.DESIGNS if name not in ("bin-search", "alphabet", "optm-search")]


@pytest.mark.parametrize("name", QUICK)
def test_every_kind_is_audited(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    cheap.solved(name).save(path)
    audit(path, rows=3, csv=tmp_path / "audit.csv")
    said = capsys.readouterr().out
    assert "every constraint of the definition holds" in said and "claim by claim" in said
    table = pd.read_csv(tmp_path / "audit.csv")
    shown = tightest(table, 3)
    families = table["family"].nunique()
    assert len(shown) >= min(len(table), max(3, families))
    least = table.groupby("family")["slack"].min()
    first = shown.head(families).set_index("family")["slack"]
    assert first.sort_index().equals(least.sort_index())
    assert first.is_monotonic_increasing


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_what_is_amiss_ends_with_an_error(name: str, tmp_path: Path) -> None:
    path, tried = tmp_path / "result.json", 0
    for doctoring in (no_certificate, value, design_epsilon):
        payload, other = (json.loads(text)["payload"] for text in payloads(name))
        if doctoring(payload["fields"], other["fields"]):
            tried += 1
            path.write_text(cheap.sealed(payload))
            with pytest.raises((md.DesignError, md.ResultFormatError)):
                audit(path, rows=3, csv=None)
    assert tried >= 2


def test_the_tightest_of_each_family_come_first() -> None:
    table = pd.DataFrame(
        {"family": list("aababb"), "slack": [3.0, 1.0, 9.0, 2.0, 7.0, 8.0], "index": range(6)}
    )
    assert tightest(table, 4)["slack"].tolist() == [1.0, 7.0, 2.0, 8.0]
    assert tightest(table, 0)["slack"].tolist() == [1.0, 7.0]
    assert len(tightest(table.assign(slack=np.nan), 2)) == 2
