"""The page of every kind of result: complete, light, correct to read aloud, and true to its result."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outline import Outline
from scipy import stats

import mechdesign as md

UNIFORM = stats.uniform(-1, 2)
GRID = md.Grid(delta=[0.5, 1.0], q=[0.3, 0.6], beta=[0.1, 0.5])
MAKES: dict[str, Callable[[], Any]] = {
    "optimal quantizer": lambda: md.OptimalQuantizer([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).solve(),
    "many outputs": lambda: md.OptimalQuantizer(np.linspace(-2, 2, 33), md.PureDP(3.0), UNIFORM).solve(),
    "optm": lambda: md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).solve(),
    "rqm": lambda: md.RQM(4, md.PureDP(1.0), UNIFORM).solve(zoom=0, starts=1),
    "metric quantizer": lambda: md.MetricQuantizer([-3, -0.5, 0.5, 3], md.MetricDP(2.0), UNIFORM).solve(
        gap=0.02
    ),
    "biased": lambda: md.BiasedSelection(4, md.PureDP(1.0), UNIFORM, grid=GRID).solve(),
    "search": lambda: md.OPTMSearch(
        md.PureDP(1.0),
        UNIFORM,
        bins=md.Grid(delta=[1.9, 2.0], inner=[0.5]),
        levels=md.Grid(level=[0.66, 0.67], width=[0.01]),
    ).solve(),
    "calibration": lambda: md.calibrate("laplace", privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1.0),
    "discrete": lambda: md.calibrate("discrete_laplace", privacy=md.PureDP(1.0), sensitivity=1.0),
    "optimal noise": lambda: md.OptimalNoise(md.ApproximateDP(1.0, 0.1)).solve(gap=0.02),
    "allocation": lambda: md.NoiseAllocation("laplace", [1.0, 8.0, 3.0], md.PureDP(1.0)).solve(),
    "large allocation": lambda: md.NoiseAllocation("laplace", np.linspace(1, 9, 500), md.PureDP(1.0)).solve(),
    "correlated": lambda: md.CorrelatedGaussian(np.tri(3), md.ApproximateDP(0.5, 1e-6)).solve(),
    "channel": lambda: md.MetricChannel(md.MetricSpace.grid(3, 3), alpha=0.7).solve(),
}
kinds = pytest.mark.parametrize("name", MAKES)


@cache
def made(name: str) -> Any:
    return MAKES[name]()


@pytest.mark.slow
@kinds
def test_every_kind_of_result_has_a_page(name: str, tmp_path: Path) -> None:
    result = made(name)
    result.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    found = Outline(text)
    assert len(text.encode()) < 500_000
    words = "".join(found.texts)
    assert len(found.named("svg")) + len(found.named("img")) == 2
    for claim in result.checks()["claim"]:
        assert claim in words
    titles = [s.title for s in result.sections()]
    assert (
        titles[:3] == ["What was asked", "The mechanism", "What an attacker gains"]
        and "Check it yourself" in titles
    )
    assert "unit of privacy" in words and "verify.pyz" in words and "scipy" in words
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


SAID = {
    "dataset": "visits <2026> & more",
    "author": "A. Turing\n- proved: yes",
    "purpose": "</section><script>x</script>",
}


@pytest.mark.parametrize("name", ["result", "comparison"])
def test_a_page_repeats_what_its_author_says_and_no_file_holds_it(name: str, tmp_path: Path) -> None:
    handed: Any = {
        "result": lambda: made("calibration"),
        "comparison": lambda: md.compare(
            md.NumericQuery(), md.PureDP(1.0), mechanisms=["laplace", "staircase"]
        ),
    }[name]()
    handed.report(plain := tmp_path / "plain.html")
    assert "Said by whoever" not in plain.read_text()
    handed.report(page := tmp_path / "page.html", date="2026-11-23", **SAID)
    text = page.read_text()
    words = " ".join("".join(Outline(text).texts).split())
    for key, given in SAID.items():
        assert f"{'data set' if key == 'dataset' else key}: {' '.join(given.split())}" in words
    assert "visits &lt;2026&gt; &amp; more" in text and "<script>x" not in text
    assert "date: 2026-11-23" in words and "no file holds it, and nothing below proves it" in words.lower()
    assert text.count("<section") == plain.read_text().count("<section") + 1
    handed.save(file := tmp_path / "held.json")
    assert "2026" not in file.read_text()
    handed.report(page, author="A. Turing")
    assert f"date: {datetime.date.today()}" in page.read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": 3}, "dataset = 3: must be a text that is not empty"),
        ({"author": " "}, "author = ' ': must be a text"),
        ({"date": "tomorrow"}, "date = 'tomorrow': must be a date"),
    ],
)
def test_what_an_author_says_is_text(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(md.DesignError, match=re.escape(message)):
        made("calibration").report(tmp_path / "page.html", **given)
    assert not list(tmp_path.iterdir())


@kinds
def test_the_alternatives_are_no_better_than_what_is_proved(name: str) -> None:
    """A rival below the proved least of what contains it would be a contradiction on one page."""
    result = made(name)
    table = result.alternatives()
    assert list(table.columns) == ["mechanism", "error", "relative"]
    if len(table):
        assert table["error"].iloc[0] == pytest.approx(result.value) and (table["error"] > 0).all()
    if name in ("optimal noise", "allocation", "large allocation", "correlated", "channel"):
        assert result.lower_bound is not None
        assert (table["error"] >= result.lower_bound * (1 - 1e-12)).all() and len(table) >= 2


def test_a_result_without_a_certificate_says_so(tmp_path: Path) -> None:
    result = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).solve(certify=False)
    result.report(tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert 'class="no"' in text and "Warning" in text and "do not deploy" in text
    assert (
        "innocents finds at most" not in text
    )  # what an attacker gains from such a law is not what was asked


def test_a_claim_that_fails_is_seen(tmp_path: Path) -> None:
    result = made("allocation")
    replace(result, value=result.value / 2).report(tmp_path / "a.html")
    text = "".join(Outline((tmp_path / "a.html").read_text()).texts)
    assert "do not deploy" in text
    held = re.search(r"Claims that hold(\d+) of (\d+)", text)
    assert held is not None and int(held[1]) < int(held[2])


def test_outputs_that_never_come_are_told() -> None:
    result = md.OptimalQuantizer([-30, -3, -0.5, 0.5, 3, 30], md.PureDP(3.0), UNIFORM).solve()
    most = result.mechanism.extremes()[1]
    rare = [b for b, p in zip(result.mechanism.bins, most) if p < 1e-6]
    assert bool(rare) == ("practically never" in str(result))
    channel = md.MetricChannel(md.MetricSpace.grid(4, 4), alpha=0.7).solve()
    assert "reports that never come: 0, 1" in str(channel)
