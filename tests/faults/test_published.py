"""Published systems: one false optimum, and explanations that are wrong. Faults 26 to 32 of the audits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import mechdesign as md
from faults.altered import BINS, P

ROOT = Path(__file__).parents[2]


# 26, 27: allocation, models in the papers' variables --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "privacy", "most"),
    [
        (20, md.ApproximateDP(1.0, 1e-6), 12_082.0),
        (10, md.ApproximateDP(1.0, 1e-3), 1_158.5),
        (50, md.ApproximateDP(2.0, 1e-5), 18_475.0),
    ],
    ids=["20", "10", "50"],
)
def test_laplace_noise_is_allocated_under_exact_composition(
    count: int, privacy: md.ApproximateDP, most: float
) -> None:
    """Identical Laplace noise with the same (ε, δ) costs 12,081.2, 1,158 and 18,450; the allocation 15,999.97, 1,996, 62,499."""
    assert md.NoiseAllocation("laplace", np.ones(count), privacy).solve().value <= most


def test_the_lower_bound_of_an_allocation_is_one() -> None:
    privacy = md.ApproximateDP(1.0, 1e-6)
    identical = md.calibrate("laplace", privacy=privacy, sensitivity=1.0, dimension=20).value * 20
    bound = md.NoiseAllocation("laplace", np.ones(20), privacy).solve().lower_bound
    assert bound is None or bound <= identical


def test_corollary_6_is_allocated_under_its_own_name() -> None:
    design = md.NoiseAllocation("laplace", np.ones(20), md.ApproximateDP(1.0, 1e-6), accounting="corollary6")
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


def test_the_model_of_optm_names_its_rows() -> None:
    variables = md.OPTM(BINS, P, cheap.UNIFORM).model().variables
    assert list(variables) == ["q_1", "q_2", "q_3"]
    separate = md.OPTM([-3.0, -0.4, 0.5, 3.0], P, cheap.UNIFORM).model().variables
    assert list(separate) == [f"q_{n} {side}" for side in ("left", "right") for n in (1, 2, 3)]


def test_a_page_shows_how_a_study_is_run_from_python() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*/*.rst"), *(ROOT / "docs").glob("*/*.md")]
    assert any(re.search(r"\brun_study\(|\bstud(y|ies)\.run\(", page.read_text()) for page in pages)


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


def test_the_errata_are_a_table() -> None:
    """Paper, place, printed, true, how computed."""
    text = errata().lower()
    assert "table::" in text
    assert all(column in text for column in ("paper", "place", "printed", "true", "computed"))


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


def test_the_tables_study_says_that_the_ranking_reverses() -> None:
    opening = (ROOT / "results/quantizer-tables/README.md").read_text().split("\n## ")[0]
    assert "MVU" in opening and "OPTM" in opening


def test_the_gradients_are_trained_with_the_authors_settings() -> None:
    """Those of the authors' program: two logits, first weights of deviation .05, Adam at 1e-3, a running mean over the epoch.

    The 92.9, 88.9, 89.2 and 88.5% that were once taken for these settings are of first weights of 0.
    """
    folder = ROOT / "results/quantized-sgd"
    opening = (folder / "README.md").read_text().split("![")[0]
    words = ("a logit for each class", "0.05", "Adam", "1e-3", "standardised", "70%", "running mean")
    assert all(word in opening for word in words)
    table = pd.read_csv(folder / "logits-breast-cancer.csv")
    table = table[table["unit of the bins"] == "the clip"].set_index("mechanism")
    audited = pd.Series({"clipping alone": 92.9, "OPTM": 88.9, "MVU": 89.2, "RQM": 88.5})
    from_zero = table[table["first weights' deviation"] == 0]["accuracy %"]
    drawn = table[table["first weights' deviation"] == 0.05]["accuracy %"]
    assert (abs(from_zero - audited) < 1.5).all() and (drawn < audited - 9).all()


@pytest.mark.parametrize(
    "data, other, least, most",
    [
        ("breast-cancer", "MVU", -1, 0.5),
        ("breast-cancer", "RQM", 0.2, 2),
        ("mnist", "MVU", -1, 0.5),
        ("mnist", "RQM", 0.4, 2),
    ],
)
def test_optm_is_level_with_mvu_and_ahead_of_rqm(data: str, other: str, least: float, most: float) -> None:
    table = pd.read_csv(ROOT / f"results/quantized-sgd/printed-{data}.csv")
    row = table[table["printed"].str.endswith(other)].iloc[0]
    assert least < row.iloc[1] < most
    assert (row.iloc[3] < row.iloc[4]) == (other == "RQM")  # the noise has that order


def test_the_printed_557_is_not_explained_by_a_search_box() -> None:
    page = (ROOT / "results/flipped-huber/README.md").read_text()
    assert "finite search box stops" not in page
    assert "1290.6" in page.replace(",", "")


def test_the_amplification_is_a_ninth_to_a_third() -> None:
    table = (ROOT / "results/user-level-tables/amplification.csv").read_text().splitlines()[1:]
    factors = [float(row.split(",")[-1]) for row in table if row.split(",")[-1]]
    assert (round(max(factors)), round(min(factors))) == (9, 3)
    assert "a ninth to a third" in errata()
    assert "a fifth to a third" not in errata()


def test_the_excess_of_the_authors_program_is_not_said_to_be_printed() -> None:
    assert "The printed OPTM tables for ε = 1 and 1.5 have privacy losses" not in errata()


def test_the_baseline_of_coordinate_descent_is_not_said_to_be_found() -> None:
    """California: 1.22 ± .10 or 1.48 for the printed 1.88."""
    assert "The printed baseline is found (California" not in errata()


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


def test_the_graph_study_is_of_private_connections() -> None:
    from mechdesign_studies.user_level import graph

    assert graph.__doc__ is not None
    assert "connections" in graph.__doc__ and "street" not in graph.__doc__


def delta(epsilon: float, mu: float) -> float:
    """δ of Gaussian noise whose means are mu standard deviations apart."""
    normal = stats.norm()
    return float(normal.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu))


def test_the_layer_that_reaches_delta_063_has_100_coordinates() -> None:
    """A clip in ℓ1 shared over K coordinates: a change of one alone is √K times what was accounted for."""
    mu = (
        1 / md.calibrate("gaussian", privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1.0).mechanism.law.std()
    )
    assert delta(1.0, mu * 100**0.5) == pytest.approx(0.63, abs=0.005)
    assert delta(1.0, mu * 20**0.5) == pytest.approx(0.148, abs=0.0005)
    page = (ROOT / "tests/noise/test_allocation_disparity.py").read_text()
    assert not re.search(r"20 coordinates it reached delta = \.63", page)
