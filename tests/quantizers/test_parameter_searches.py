"""The searches over OPTM's bounds and bins, RQM and ERM: published bins, resumed, shared and limited."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.quantizers.optm import OPTMSearch
from mechdesign.typing import Status

UNIFORM = stats.uniform(-1, 2)
SEARCH = {
    "bins": md.Grid(delta=[1.8, 1.9, 2.0], inner=[0.4, 0.5, 0.6]),
    "levels": md.Grid(level=np.arange(60, 75) / 100, width=[0.01]),
}
GOOD = {"bins": [-3, -0.5, 0.5, 3], "privacy": md.PureDP(1.0), "prior": UNIFORM}


@pytest.mark.slow
def test_rqm_and_erm_searches_do_not_lose_to_the_print() -> None:
    assert md.ERM(4, md.PureDP(1.5), UNIFORM).solve(zoom=2, starts=6).value <= 1.2982
    assert md.ERM(4, md.PureDP(0.5), UNIFORM).solve(zoom=1, starts=2).mechanism.privacy_loss() <= 0.5
    assert md.RQM(4, md.PureDP(1.0), UNIFORM).solve().value <= 1.9973
    assert md.ERM(4, md.PureDP(1.0), UNIFORM, grid=md.Grid(delta=[2, 2.4, 4.1], inner=[0.1, 1, 1.4], gamma=[0.01, 0.02, 0.05, 0.1])).solve(
        zoom=1
    ).value <= 2.2062  # fmt: skip
    with pytest.raises(md.InfeasibleError, match="smallest loss met"):
        md.ERM(4, md.PureDP(0.01), UNIFORM, grid=md.Grid(delta=[1], inner=[0.5], gamma=[0.5, 1])).solve()


@pytest.mark.slow
def test_search_finds_the_published_bins_in_parallel_too(tmp_path: Path) -> None:
    search = OPTMSearch(md.PureDP(1.0), UNIFORM, **SEARCH)
    one = search.solve(store=tmp_path / "one.jsonl")
    assert one.mechanism.bins.tolist() == [-3.0, -0.5, 0.5, 3.0] and one.table["programs"].sum() == 135
    two = search.solve(store=tmp_path / "two.jsonl", jobs=2)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert two.value == one.value


def levels_of(found: md.Result) -> md.Grid:
    return md.Grid(level=[found.table.loc[0, "level"]], width=[0.01])


def test_a_search_is_a_result_like_the_others(tmp_path: Path) -> None:
    """The table of the search, the best design, the certified mechanism; all of it comes back from a file."""
    found = OPTMSearch(md.PureDP(1.0), UNIFORM, **SEARCH).solve()
    assert found.status is Status.FEASIBLE and 0 < found.gap < 0.2 and found.certificate.verify()
    assert (
        found.value
        == pytest.approx(found.table["value"].min(), rel=1e-9)
        == pytest.approx(
            md.OPTM(found.mechanism.bins, md.PureDP(1.0), UNIFORM, bounds=levels_of(found)).solve().value
        )
    )
    assert set(found.duals["family"]) >= {"model: privacy", "model: lower bounds"}
    found.save(tmp_path / "search.json")
    again = md.load(tmp_path / "search.json")
    assert dumps(again) == dumps(found) and str(again) == str(found) and again.table["programs"].sum() == 135


@pytest.mark.slow
def test_a_search_that_reaches_its_limit_resumes(tmp_path: Path) -> None:
    """What was reached is kept in the store and answered; bins that were not reached are not called infeasible."""
    bins = md.Grid(delta=np.arange(20, 9, -1) / 10, inner=np.arange(10, 0, -1) / 10)
    search, store = OPTMSearch(md.PureDP(1.0), UNIFORM, bins=bins), tmp_path / "s.jsonl"
    first = search.solve(store=store, time_limit=0.1)
    assert first.status is Status.LIMIT and 0 < len(first.table) < 110
    kept = [json.loads(line)["rows"] for line in store.read_text().splitlines()[1:]]
    assert sum(map(len, kept)) == len(first.table)
    second = search.solve(store=store)
    assert second.status is Status.FEASIBLE and len(second.table) == 110 and second.value <= first.value


def test_heuristic_searches_never_say_optimal() -> None:
    assert md.OPTM(**GOOD).solve().status is Status.FEASIBLE
    assert md.OPTM(**GOOD).solve(certify=False).status is Status.UNCERTIFIED
    rqm = md.RQM(4, md.PureDP(1.5), UNIFORM, grid=md.Grid(delta=[1.6], q=[0.4, 0.5]))
    assert rqm.solve().status is Status.FEASIBLE and rqm.solve(certify=False).status is Status.UNCERTIFIED
    assert not hasattr(rqm, "model")
