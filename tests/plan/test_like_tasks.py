"""Like tasks are one: solved, printed and verified once, however many there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.plan import search
from mechdesign.plan.menu import Item
from mechdesign.verifier import verify


def office(counts: int) -> md.Plan:
    """Counts, histograms, means and sums of four kinds."""
    tasks = {f"count {k}": md.Count() for k in range(counts)}
    tasks |= {f"bins {k}": md.Histogram(12) for k in range(3)}
    tasks |= {"age": md.Mean(0, 100, n=500), "size": md.Mean(0, 100, n=500), "spent": md.Sum(10.0)}
    return md.Plan(tasks, md.ApproximateDP(1.0, 1e-6), families=("gaussian", "laplace"))


@pytest.mark.slow
def test_a_search_weighs_like_tasks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    best = Item.best
    monkeypatch.setattr(Item, "best", lambda self, *given: asked.append(0) or best(self, *given))
    calls = []
    for counts in (4, 60):
        asked.clear()
        office(counts).solve()
        calls.append(len(asked))
    assert calls[1] < 2 * calls[0]


def test_a_like_task_costs_what_it_costs_alone() -> None:
    """Forty counts by name cost what one histogram of forty whose bins all may move costs."""
    privacy = md.ApproximateDP(1.0, 1e-6)
    names = {f"c{k}": md.Count() for k in range(40)}
    together = md.Plan({"all": md.Histogram(40, contribution=40)}, privacy, weights={"all": 1.0}).solve()
    apart = md.Plan(names, privacy, weights=dict.fromkeys(names, 1.0)).solve()
    assert apart.value == pytest.approx(together.value, rel=1e-4)
    assert np.ptp(apart.to_frame()["scale"]) == 0


@pytest.mark.slow
def test_many_tasks_are_told_by_kind_and_verified(tmp_path: Path) -> None:
    result = office(150).solve()
    text = str(result)
    assert len(text.splitlines()) < 14 and "count 0, count 1, … count 149 (150 tasks): " in text
    assert len(result.to_frame()) == 150 + 3 + 4 + 1
    result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("(150 tasks)") <= 8
    assert all(holds for *_, holds in verify.verify(dumps(result)).rows)
    assert result.certificate is not None and result.certificate.verify()


@pytest.mark.slow
def test_a_limit_reaches_the_search_for_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different histograms under weights: past the limit one candidate is brought within the budget, and that is all."""
    tasks = {f"bins {k}": md.Histogram(5 + k) for k in range(12)}
    design = md.Plan(tasks, md.ApproximateDP(1.0, 1e-6), weights=dict.fromkeys(tasks, 1.0))
    asked: list[float] = []
    composed = search.composed
    monkeypatch.setattr(search, "composed", lambda *given: asked.append(0) or composed(*given))
    calls = []
    for limit in (1e-3, None):
        asked.clear()
        assert design.solve(time_limit=limit).certificate.verify()
        calls.append(len(asked))
    assert calls[0] < calls[1] / 2
