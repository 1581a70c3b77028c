"""Searched outputs against the reference table, brute force, and the alphabet's bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.quantizers.bins import Alphabet, BinSearch
from mechdesign.quantizers.optimal import OptimalQuantizer

UNIFORM = stats.uniform(-1, 2)


def design(bins, epsilon=1.0, **changes) -> OptimalQuantizer:
    return OptimalQuantizer(**{"bins": bins, "privacy": md.PureDP(epsilon), "prior": UNIFORM, **changes})


@pytest.mark.parametrize(("epsilon", "R", "value"), [(0.5, 6, 3.633), (1.0, 3, 1.656), (1.5, 3, 0.955)])
def test_any_number_of_bits(epsilon, R, value):
    """The reference table's last column, and what is proved about every other choice of outputs."""
    result = design(Alphabet(R, R / 60), epsilon).solve()
    assert result.value == pytest.approx(value, abs=5e-4)
    assert result.gap <= 1e-6
    least = result.design.any_outputs_bound(result)
    assert 0 < 1 - least / result.value < 2e-3


@pytest.mark.parametrize(("epsilon", "R", "value"), [(0.5, 6, 3.66754), (1.5, 3, 1.01719)])
def test_best_four_outputs(epsilon, R, value):
    result = design(BinSearch(4, R), epsilon).solve()
    assert result.value == pytest.approx(value, abs=1e-4)
    assert np.abs(result.mechanism.bins).max() == pytest.approx(R)
    assert result.gap <= 1e-6 and result.certificate.verify()
    assert result.status in ("best of its class", "gap not reached")
    assert result.design.any_outputs_bound(result) < result.value
    assert any("grid over all mirrored outputs" in note for note in result.notes)


@pytest.mark.slow
def test_best_four_outputs_at_epsilon_one_are_inside_the_range():
    """With |B| ≤ 3 the outermost mirrored outputs belong at ±2.72, not ±3: 1.6895 instead of the 1.6986 that ±3 gives."""
    result = design(BinSearch(4, 3.0, symmetric=True)).solve()
    assert result.value == pytest.approx(1.68955, abs=2e-5)
    at_the_edge = min(design([-3.0, -b, b, 3.0]).solve(gap=1e-7).value for b in np.linspace(0.02, 1.5, 75))
    assert at_the_edge == pytest.approx(1.6986, abs=2e-4)
    assert result.value < at_the_edge - 0.008
    assert result.lower_bound > result.design.any_outputs_bound(result)


def test_two_outputs_find_duchi():
    A = (math.e + 1) / (math.e - 1)
    result = design(BinSearch(2, 4.0)).solve()
    assert result.value == pytest.approx(A - 1 / (3 * A), rel=1e-5)
    assert result.mechanism.bins[-1] == pytest.approx(A, rel=1e-4)
    for scale in (0.8, 0.95, 1.1):  # masses at both ends, on which a descent stops early
        prior = md.clipped(stats.lognorm(0.8, loc=-1.5, scale=scale), -1, 1)
        found = design(BinSearch(2, 3.3, starts=1), 2.0, prior=prior, loss="squared").solve()
        assert found.value <= md.quantizers.duchi(2.0).expected_loss(prior, "squared") * (1 + 1e-6)


@pytest.mark.parametrize(("loss", "epsilon"), [("absolute", 1.0), ("squared", 1.0), ("absolute", 4.0)])
def test_coarse_alphabet_knows_that_finer_ones_are_better(loss, epsilon):
    coarse = design(Alphabet(3.0, 0.75), epsilon, loss=loss).solve()
    fine = design(Alphabet(3.0, 0.05), epsilon, loss=loss).solve()
    assert coarse.design.any_outputs_bound(coarse) <= fine.lower_bound
    assert fine.value < coarse.lower_bound
    worst = design(Alphabet(3.0, 0.75), epsilon, loss=loss, objective="worst").solve()
    better = design(Alphabet(3.0, 0.1), epsilon, loss=loss, objective="worst").solve()
    assert worst.design.any_outputs_bound(worst) <= better.value


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BinSearch(1, 3.0), "m = 1"),
        (lambda: BinSearch(4, 3.0, starts=0), "starts = 0: must be a positive integer"),
        (lambda: BinSearch(4, -1.0), "max_abs"),
        (lambda: Alphabet(3.0, 7.0), "step"),
        (lambda: Alphabet(3.0, 1e-6), "at most"),
        (lambda: design(BinSearch(4, 0.5)), "cover the input range"),
        (
            lambda: design(BinSearch(4, 3.0, symmetric=True), prior=stats.uniform(0, 1)).solve(),
            "symmetric",
        ),
    ],
)
def test_bad_searches(make, words):
    with pytest.raises(DesignError, match=words):
        make()


def test_infeasible_search_names_the_smallest_epsilon():
    with pytest.raises(InfeasibleError) as caught:
        design(BinSearch(4, 1.5), 0.5).solve()
    assert caught.value.smallest_epsilon == pytest.approx(math.log(5))


def test_a_wide_range_costs_no_resolution() -> None:
    spec = BinSearch(4, 1e5, exhaustive=False)  # four starts that mirror, and two that do not
    wide = OptimalQuantizer(spec, md.PureDP(2.0), stats.uniform(-1, 2)).solve(gap=1e-4)
    assert wide.value <= 0.6711  # 0.6897 with outputs that mirror
    assert np.sort(np.abs(wide.mechanism.bins))[1] == pytest.approx(0.83665, rel=1e-3)
