"""Sizes that deployments have, and limits that say what they are."""

from __future__ import annotations

import numpy as np
import pytest

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier.verify import verify

ONE = md.PureDP(1.0)


@pytest.mark.parametrize("n", [2**26 + 1, 600_000_000, 10**12])
def test_means_of_any_number_of_people(n: int) -> None:
    """Their centred sums are exact doubles, of everybody at an end of the range too."""
    result = md.Plan({"age": md.Mean(0, 100, n=n)}, ONE).solve()
    assert all(holds for _, _, holds in verify(dumps(result)).rows)
    found = result.mechanism.release({"age": [100.0 * n, float(n)]})["age"]
    assert found == pytest.approx(100.0, abs=1e-3)


@pytest.mark.parametrize(("lower", "upper"), [(0, 1e308), (-1e308, 1e308), (0.0, 1e-200), (3.0, 3.0)])
def test_a_range_that_no_double_squares_is_refused_for_that(lower: float, upper: float) -> None:
    with pytest.raises(DesignError, match="by 1e-100 to 1e100"):
        md.Mean(lower, upper, n=5)


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 300.0])
def test_published_reports_need_no_table(epsilon: float) -> None:
    """k-ary response and subset selection of 5,000 categories, at any ε, proved and verified alone."""
    asked = md.LocalWorkload(md.Workload.identity(5000), md.PureDP(epsilon))
    best, simple = asked.solve(), asked.answered_by("k-ary response")
    assert best.gap < 1e-9 and best.value <= simple.value * (1 + 1e-12)
    for result in (best, simple):
        assert result.certificate.verify() and all(holds for _, _, holds in verify(dumps(result)).rows)


def test_reports_on_many_categories_are_ranked() -> None:
    """Without a matrix that has a row and a column a category; what needs one says so."""
    workload = md.Workload.prefix_sums(5000)
    rows = md.compare(md.CategoryReport(workload), ONE, mechanisms=["k-ary response", "subset selection"])
    assert len(rows.table) == 2
    for needed in (workload.gram, lambda: workload.root):
        with pytest.raises(DesignError, match="4096 counts where covariances are held in full"):
            needed()
    with pytest.raises(DesignError, match="at most 1000000"):
        md.Workload.marginals((1001, 1000), order=2)


def test_a_search_says_that_its_limits_are_its_own() -> None:
    with pytest.raises(DesignError, match=r"0.001 and 20 for a search"):
        md.LocalWorkload(np.tri(4), md.PureDP(30.0)).solve()
    table = str(md.compare(md.CategoryReport(np.tri(4)), md.PureDP(30.0)))
    assert "k-ary response" in table and "not Hadamard response: epsilon" in table
