"""Published systems: one false optimum, and explanations that are wrong. Faults 26 to 32 of the audits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mechdesign as md

P, BINS = md.PureDP(1.0), (-3.0, -0.5, 0.5, 3.0)
ROOT = Path(__file__).parents[2]


# 26, 27: allocation, models in the papers' variables --------------------------------------------------------------------


def test_corollary_6_is_allocated_under_its_own_name() -> None:
    design = md.NoiseAllocation("laplace", np.ones(20), md.ApproximateDP(1.0, 1e-6))
    result = design.solve()
    assert result.value == pytest.approx(15_999.968, rel=1e-6)
    assert result.status.value != "optimal"


@pytest.mark.parametrize(
    ("noise", "privacy"), [("laplace", md.PureDP(1.0)), ("gaussian", md.ApproximateDP(1.0, 1e-6))]
)
def test_the_model_of_an_allocation_is_the_papers(noise: str, privacy: Any) -> None:
    """Its optimum is that of the design; it was 1, at scales of 1, for every question."""
    design = md.NoiseAllocation(noise, [1.0, 2.0], privacy)
    problem = design.model().problem
    problem.solve()
    assert problem.value == pytest.approx(design.solve().value, rel=1e-4)


# 28 to 31: what the pages say -------------------------------------------------------------------------------------------


def errata() -> str:
    """The page of errata, with the tables that it includes, on one line."""
    page = ROOT / "docs/theory/errata.rst"
    text = page.read_text()
    for name in re.findall(r"(?m)^\.\. (?:csv-table|include)::.*\n(?:\s+:file:\s*(\S+))?", text):
        if name:
            text += (page.parent / name).read_text()
    for name in re.findall(r"(?m)^\.\. (?:include|literalinclude)::\s*(\S+)", text):
        if (page.parent / name).exists():
            text += (page.parent / name).read_text()
    return " ".join(re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.replace("−", "-")).split())


def errata_have(*words: str) -> bool:
    """Whether the page has every one of these numbers or words."""
    page = errata()
    return all(re.search(rf"(?<![\d.]){re.escape(word)}(?!\d)", page) for word in words)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("7.04", "7.28"), id="figure 4a"),
        pytest.param(("2.066", "2.042", "2.010"), id="table 2"),
        pytest.param(("1.961", "1.950", "1.937"), id="true values of table 2"),
        pytest.param(("1.0868", "1.1794"), id="table 1"),
    ],
)
def test_the_errata_say_how_optm_comes_to_lead(words: tuple[str, ...]) -> None:
    assert errata_have(*words)


def test_the_amplification_is_a_ninth_to_a_third() -> None:
    table = (ROOT / "results/user-level-tables/amplification.csv").read_text().splitlines()[1:]
    factors = [float(row.split(",")[-1]) for row in table if row.split(",")[-1]]
    assert (round(max(factors)), round(min(factors))) == (9, 3)
    assert "a ninth to a third" in errata()
    assert "a fifth to a third" not in errata()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("3.4486", "3.3026", "13 of 45"), id="ERM, Theorem 1"),
        pytest.param(("Theorem 6", "infeasible"), id="Theorem 6"),
        pytest.param(("2.0003", "2.6890"), id="Theorem 5"),
        pytest.param(("14.243", "14.432"), id="decibels"),
        pytest.param(("1.7", "2.22"), id="gain from three to five dimensions"),
        pytest.param(("Lemma 5", "Theorem 8"), id="Lemma 5"),
        pytest.param(("Lemma 7",), id="Lemma 7"),
    ],
)
def test_the_errata_have_the_row(words: tuple[str, ...]) -> None:
    assert errata_have(*words)


# 32 ---------------------------------------------------------------------------------------------------------------------
