"""The searches over OPTM's bounds and bins, RQM and ERM: published bins, resumed, shared and limited."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import Selection
from mechdesign.quantizers.optm.search import OPTMSearch
from mechdesign.quantizers.parameter_search import SelectionLine
from mechdesign.typing import Status

UNIFORM = stats.uniform(-1, 2)
POINTS = np.linspace(-1, 1, 51)
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


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_a_line_of_members_values_them_as_the_mechanisms_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, centre = int(rng.integers(2, 9)), float(rng.choice([0.0, 30.0]))
    ends = centre - 1, centre + 1
    bins = centre + np.sort(np.append(rng.uniform(-2, 2, m - 2), [-2.5, 2.5]))
    left, right = (np.tril(rng.uniform(0.05, 1, (m - 1, m - 1))) for _ in range(2))
    left, right = left / left.sum(axis=1)[:, None], right / right.sum(axis=1)[:, None]
    laws = [
        stats.uniform(centre - 1, 2),
        md.clipped(stats.norm(centre, 1), *ends),
        [ends[0], centre, ends[1]],
    ]
    prior = Prior.of(laws[seed % 3], ends)
    loss = Loss.of([{"absolute": 0.3, "squared": 2.0}, "absolute", lambda t: np.abs(t) ** 1.5][seed % 4 % 3])
    line = SelectionLine(bins, ends, prior, loss)
    privacy, value = line.losses(left, right)
    mechanism = Quantizer.of_selection(Selection(bins, left, right), ends)
    assert privacy == mechanism.privacy_loss()
    assert value == pytest.approx(mechanism.expected_loss(prior, loss), rel=1e-12)
    assert line.losses(left, right, budget=0.9 * privacy) == (privacy, np.inf)


@pytest.mark.slow
def test_the_order_of_the_axes_says_which_is_on_the_budget() -> None:
    axes = {"delta": [1.0, 2.0], "inner": [0.2, 0.5], "gamma": [0.1, 1.0]}
    for order in itertools.permutations(axes):
        design = md.ERM(4, md.PureDP(1.5), UNIFORM, grid=md.Grid(**{name: axes[name] for name in order}))
        found = design.solve(zoom=1, starts=1)
        assert found.mechanism.privacy_loss() <= 1.5
        assert found.value == pytest.approx(found.mechanism.expected_loss(UNIFORM), rel=1e-14)


@pytest.mark.slow
def test_search_finds_the_published_bins_in_parallel_too(tmp_path: Path) -> None:
    search = OPTMSearch(md.PureDP(1.0), UNIFORM, **SEARCH)
    one = search.solve(store=tmp_path / "one.jsonl")
    assert one.mechanism.bins.tolist() == [-3.0, -0.5, 0.5, 3.0] and one.table["programs"].sum() == 135
    two = search.solve(store=tmp_path / "two.jsonl", jobs=2)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert two.value == one.value


@pytest.mark.slow
def test_killed_search_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    """kill -9 in the middle, a half-written line, a second run: the same file as without the kill."""
    script = textwrap.dedent(
        """
        import sys, numpy as np, mechdesign as md
        from scipy import stats
        from mechdesign.quantizers.optm.search import OPTMSearch, authors_bins
        levels = md.Grid(level=np.arange(1, 100) / 100, width=[0.01])
        OPTMSearch(md.PureDP(1.0), stats.uniform(-1, 2), bins=authors_bins(), levels=levels).solve(store=sys.argv[1])
        """
    )
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    subprocess.run([sys.executable, "-c", script, str(whole)], check=True)
    process = subprocess.Popen([sys.executable, "-c", script, str(killed)])
    while not killed.exists() or killed.read_bytes().count(b"\n") < 10:
        time.sleep(0.002)
        assert process.poll() is None, "the search ended before it could be killed"
    process.kill()
    process.wait()
    done = killed.read_bytes()
    assert len(done) < len(whole.read_bytes())
    with killed.open("ab") as file:
        file.write(b'{"chunk":')  # as if killed in the middle of a line
    subprocess.run([sys.executable, "-c", script, str(killed)], check=True)
    assert killed.read_bytes() == whole.read_bytes()


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
    assert found.solver_report.seconds > 0


@pytest.mark.slow
def test_a_search_that_reaches_its_limit_resumes(tmp_path: Path) -> None:
    """What was reached is kept in the store and answered; bins that were not reached are not called infeasible."""
    bins = md.Grid(delta=np.arange(20, 9, -1) / 10, inner=np.arange(10, 0, -1) / 10)
    search, store = OPTMSearch(md.PureDP(1.0), UNIFORM, bins=bins), tmp_path / "s.jsonl"
    first = search.solve(store=store, time_limit=0.1)
    assert first.status is Status.LIMIT and 0 < len(first.table) < 110
    assert store.read_bytes().count(b"\n") == len(first.table) + 1
    second = search.solve(store=store)
    assert second.status is Status.FEASIBLE and len(second.table) == 110 and second.value <= first.value


def test_heuristic_searches_never_say_optimal() -> None:
    """The README's result said "highs, optimal" of a search over bounds, and RQM's grid "optimal"."""
    assert md.OPTM(**GOOD).solve().status is Status.FEASIBLE
    assert md.OPTM(**GOOD).solve(certify=False).status is Status.UNCERTIFIED
    rqm = md.RQM(4, md.PureDP(1.5), UNIFORM, grid=md.Grid(delta=[1.6], q=[0.4, 0.5]))
    assert rqm.solve().status is Status.FEASIBLE and rqm.solve(certify=False).status is Status.UNCERTIFIED
    assert not hasattr(rqm, "model")


@pytest.mark.slow
def test_two_searches_on_one_store(tmp_path: Path) -> None:
    """The lines of two searches alternated in one file, which neither could continue afterwards."""
    store, search = tmp_path / "s.jsonl", OPTMSearch(md.PureDP(1.0), UNIFORM)
    errors: list[Exception] = []

    def run() -> None:
        try:
            search.solve(store=store)
        except md.MechdesignError as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 1
    assert len(search.solve(store=store).table) == 110  # and the file is whole
    text = tmp_path / "notes.txt"
    text.write_text("my notes\nof ten years\n")
    with pytest.raises(md.ResultFormatError):
        search.solve(store=text)
    assert text.read_text() == "my notes\nof ten years\n"


def test_store_refuses_another_search(tmp_path: Path) -> None:
    store = tmp_path / "s.jsonl"
    OPTMSearch(
        md.PureDP(1.0), UNIFORM, bins=md.Grid(delta=[2.0], inner=[0.5]), levels=SEARCH["levels"]
    ).solve(store=store)
    with pytest.raises(md.ResultFormatError, match="another search"):
        OPTMSearch(
            md.PureDP(2.0), UNIFORM, bins=md.Grid(delta=[2.0], inner=[0.5]), levels=SEARCH["levels"]
        ).solve(store=store)
    lines = store.read_text().splitlines()
    store.write_text("\n".join([lines[0], '{"chunk": 5, "rows": []}']) + "\n")
    with pytest.raises(md.ResultFormatError, match="damaged"):
        OPTMSearch(
            md.PureDP(1.0), UNIFORM, bins=md.Grid(delta=[2.0], inner=[0.5]), levels=SEARCH["levels"]
        ).solve(store=store)


@pytest.mark.slow
def test_values_are_verified() -> None:
    """OPTM's value set to 0.1 in a file passed the audit; certificates of RQM and of searches knew no value either."""
    grid = md.Grid(delta=[1.6], q=[0.4, 0.5])
    found = [
        md.OPTM(**GOOD).solve(),
        md.OPTM(np.linspace(-2, 2, 6), md.PureDP(1.5), UNIFORM).solve(),
        md.RQM(4, md.PureDP(1.5), UNIFORM, grid=grid).solve(),
        OPTMSearch(md.PureDP(1.0), UNIFORM, **SEARCH).solve(),
    ]
    for result in found:
        assert result.checks()["holds"].all() and "claimed" not in set(result.checks()["how"])
        assert not replace(result, value=0.1).checks()["holds"].all()
        assert not replace(result.certificate, value=0.1).verify()
        other = replace(result, design=replace(result.design, privacy=md.PureDP(0.9)))
        assert not other.checks()["holds"].all()
    floats = md.OPTM(**GOOD).solve(certify=False)
    assert not floats.checks()["holds"].all()  # it said "every constraint holds" of floats over their budget
