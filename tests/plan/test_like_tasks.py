"""Like tasks are one: solved, printed and verified once, however many there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import verify


def office(counts: int) -> md.Plan:
    """Counts, histograms, means and sums of four kinds."""
    tasks = {f"count {k}": md.Count() for k in range(counts)}
    tasks |= {f"bins {k}": md.Histogram(12) for k in range(3)}
    tasks |= {"age": md.Mean(0, 100, n=500), "size": md.Mean(0, 100, n=500), "spent": md.Sum(10.0)}
    return md.Plan(tasks, md.ApproximateDP(1.0, 1e-6), families=("gaussian", "laplace"))


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
    assert all(f" count {k}" + ("," if k < 149 else ":") in page for k in range(1, 150))
    assert page.count("(150 tasks)") <= 8
    assert all(holds for *_, holds in verify.verify(dumps(result)).rows)
    assert result.certificate is not None and result.certificate.verify()


def test_like_choices_and_parts_of_like_tasks_are_told_once() -> None:
    tasks = {f"mean {k}": md.Mean(0, 100, n=500) for k in range(6)}
    tasks |= {f"best {k}": md.PrivateChoice(4, md.PureDP(0.05)) for k in range(5)}
    result = md.Plan(tasks, md.PureDP(1.0)).solve()
    text = str(result)
    assert len(text.splitlines()) < 12
    assert "mean 0, mean 1, … mean 5 (6 tasks): sum: " in text and text.count("of the budget each") == 2
    assert "best 0, best 1, … best 4 (5 tasks): permute-and-flip among 4 candidates" in text
    words = result.question()
    assert f"{', '.join(f'mean {k}' for k in range(6))}: sum: 1 number" in words
    assert f"{', '.join(f'best {k}' for k in range(5))}: permute-and-flip" in words
    assert any("mean 0: sum and 5 more" in t.get_text() for t in result.plot().axes[0].get_yticklabels())
