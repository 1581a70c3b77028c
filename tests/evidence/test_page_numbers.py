"""What a page says of the mechanism in numbers and sentences: its table, its prior, its privacy, and between which inputs."""

import dataclasses
import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mechdesign as md

SPACE = md.MetricSpace.geodesic(
    [52.520, 52.530, 52.505], [13.405, 13.385, 13.440], names=["Mitte", "Wedding", "Kreuzberg"]
)


def page(result: Any, path: Path) -> str:
    """Its words, without markup; numbers of tables by their full digits."""
    result.report(path / "page.html")
    text = html.unescape((path / "page.html").read_text(encoding="utf-8"))
    cells = re.sub(r'<td[^>]*data-value="([^"]*)"[^>]*>[^<]*', r" \1 ", text)
    return " ".join(
        re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style|svg).*?</\1>", "", cells, flags=re.S)).split()
    )


@pytest.mark.parametrize("own", [False, True])
def test_a_channel_shows_its_table_its_prior_and_between_whom_privacy_is(own: bool, tmp_path: Path) -> None:
    design = md.MetricChannel(SPACE, alpha=1.0, prior=[0.5, 0.3, 0.2])
    capped = design.problem()
    result = (capped.subject_to(capped.unknown[:, 0] <= 0.6) if own else design).solve()
    said, law = page(result, tmp_path), result.mechanism
    for p in np.ravel(law.probabilities if own else law.matrix).tolist():
        assert f" {p!r} " in said
    assert "the prior (0.5, 0.3, 0.2)" in said and "times likelier" in said and "per km" in said
    assert "between any two inputs, the two that are farthest apart too" in said
    if own:
        assert "Metric differential privacy with ε = 1 per km: for any two inputs" in said
        assert "Each person holds one of the inputs and sends one of the outputs" in said


def test_a_table_under_one_epsilon_speaks_of_no_distance(tmp_path: Path) -> None:
    for of, who in (("person", "Each person holds"), ("data", "The input is a statistic of a data set")):
        P = md.Table([0, 1, 2], [0, 1, 2], of=of)
        result = md.Problem(md.Minimize(P.expected("absolute")), [P.private(md.PureDP(1.0))]).solve()
        said = page(result, tmp_path)
        assert who in said and "farthest apart" not in said
        assert "ε-differential privacy with ε = 1: for any two inputs, no answer" in said


def test_scales_with_own_rows_are_on_the_page_and_their_shares_of_the_budget(tmp_path: Path) -> None:
    problem = md.NoiseAllocation("gaussian", [1.0, 2.0, 0.0, 0.7], md.ApproximateDP(1.0, 1e-6)).problem()
    result = problem.subject_to(md.named("cap", problem.unknown[1] <= 9)).solve()
    table = result.design.describe(result).table
    said = page(result, tmp_path)
    assert all(f" {s!r} " in said for s in result.mechanism.scales.tolist())
    assert table["share of the budget"].tolist()[2] == 0
    assert table["share of the budget"].sum() == pytest.approx(1, abs=1e-6)


def test_a_covariance_is_on_the_page(tmp_path: Path) -> None:
    S = md.Covariance([[1.0, 0.5], [0.0, 1.0]])
    asked = [S.private(md.GaussianDP(1.0)), md.named("cap", S[0, 0] <= 1.5)]
    result = md.Problem(md.Minimize(S[0, 0] + S[1, 1]), asked).solve()
    said = page(result, tmp_path)
    assert all(f" {v!r} " in said for v in np.ravel(result.mechanism.covariance).tolist())


def test_a_headline_says_which_way_it_is_rounded(tmp_path: Path) -> None:
    result = md.NoiseAllocation("gaussian", [1.0, 2.0, 0.5], md.ApproximateDP(1.0, 1e-6)).solve()
    result = dataclasses.replace(result, value=result.value + 1e-12)
    said = page(result, tmp_path)
    assert "(rounded up)" in said and "(rounded down)" in said
