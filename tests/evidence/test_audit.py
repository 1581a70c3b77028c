"""What `mechdesign audit` says of every kind of result: it ends with 0 only where everything holds that its kind must have."""

from __future__ import annotations

from pathlib import Path

import cheap
import numpy as np
import pandas as pd
import pytest
from campaign import files, trees

import mechdesign as md
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


def test_the_tightest_of_each_family_come_first() -> None:
    table = pd.DataFrame(
        {"family": list("aababb"), "slack": [3.0, 1.0, 9.0, 2.0, 7.0, 8.0], "index": range(6)}
    )
    assert tightest(table, 4)["slack"].tolist() == [1.0, 7.0, 2.0, 8.0]
    assert tightest(table, 0)["slack"].tolist() == [1.0, 7.0]
    assert len(tightest(table.assign(slack=np.nan), 2)) == 2


@pytest.mark.parametrize(
    "place", [("value",), ("proofs", "$tuple"), ("design", "fields", "privacy", "fields", "epsilon")]
)
def test_what_is_amiss_ends_with_an_error(place: tuple[str, ...], tmp_path: Path) -> None:
    payload, path = files.payload("optimal-quantizer"), tmp_path / "result.json"
    was = trees.at(payload, ("fields", *place))
    path.write_text(
        cheap.sealed(trees.put(payload, ("fields", *place), 0.5 * was if type(was) is float else []))
    )
    with pytest.raises((md.DesignError, md.ResultFormatError)):
        audit(path, rows=3, csv=None)


def test_an_uncertified_mechanism_over_its_budget_ends_with_an_error(tmp_path: Path) -> None:
    result = md.OPTM(cheap.BINS, cheap.PURE, cheap.UNIFORM).solve(certify=False)
    result.save(path := tmp_path / "r.json")
    with pytest.raises(md.DesignError):
        audit(path, rows=3, csv=None)
    assert not result.checks()["holds"].all()
