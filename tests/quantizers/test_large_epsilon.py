"""Budgets beyond what doubles resolve: a mechanism for a smaller ε is one for a larger one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md

UNIFORM = stats.uniform(-1, 2)
NARROW = 1 + 1e-12  # the outermost bins hardly cover the range: no mechanism below epsilon = 28.324


@pytest.mark.parametrize("epsilon", [30.0, 36.0, 40.0, 200.0])
@pytest.mark.parametrize(
    ("bins", "options"),
    [
        ([-3, -0.5, 0.5, 3], {}),
        ([-4, -0.67, 0.67, 4], {}),
        ([-3, -0.5, 0.6, 3], {"constraints": "across-outputs"}),
        ([-3, -1, 0, 1, 3], {}),
    ],
)
def test_what_is_feasible_at_a_smaller_epsilon_is_feasible_and_no_worse(
    bins: list[float], options: dict[str, str], epsilon: float
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        less = md.OPTM(bins, md.PureDP(12.0), UNIFORM, **options).solve()
        more = md.OPTM(bins, md.PureDP(epsilon), UNIFORM, **options).solve()
        assert more.audit() is not None
    assert more.value <= less.value
    assert more.certificate is not None and more.certificate.verify()
    assert more.mechanism.privacy_loss() <= epsilon


def test_a_tolerance_that_loses_an_exact_mechanism_is_no_reason_to_refuse() -> None:
    values = [
        md.OPTM([-3, -0.5, 0.6, 3], md.PureDP(epsilon), UNIFORM, constraints="across-outputs").solve().value
        for epsilon in (12.0, 20.0)
    ]
    assert values[1] <= values[0]


@pytest.mark.parametrize("bins", [[-NARROW, -0.5, 0.5, NARROW], [-NARROW, -0.5, 0, 0.5, NARROW]])
@pytest.mark.parametrize("design", [md.OPTM, md.OptimalQuantizer])
@pytest.mark.parametrize("epsilon", [30.0, 40.0, 200.0])
def test_bins_that_hardly_cover_the_range_are_answered_beyond_their_least_epsilon(
    design: type, bins: list[float], epsilon: float
) -> None:
    result = design(bins, md.PureDP(epsilon), UNIFORM).solve()
    assert result.certificate.verify() and result.value < 0.67
    assert result.lower_bound is None or result.lower_bound <= result.value


def test_rows_of_the_program_are_the_privacy_asked_for_or_stricter() -> None:
    program = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).program
    low, high = np.full((2, program.width), 0.5), np.ones((2, program.width))
    rows = program.rows
    lower, upper = (rows.factors(low, high)[:, which] for which in (rows.smallest, ~rows.smallest))
    for epsilon in (1.0, 29.0, 31.0, 200.0):
        found = rows.coefficients(epsilon, low, high)
        assert np.isfinite(found).all() and np.abs(found).max() <= 1.001e13
        np.testing.assert_array_equal(found[:, ~rows.smallest], upper)
        assert (-found[:, rows.smallest] <= lower * np.exp(min(epsilon, 700.0))).all()
        assert (-found[:, rows.smallest] >= lower * np.exp(min(epsilon, 29.9))).all()


@pytest.mark.slow
@pytest.mark.parametrize("design", [md.ERM, md.RQM])
def test_default_grids_propose_bins_that_cover_the_range_and_do_no_worse_at_a_larger_epsilon(
    design: type,
) -> None:
    values = [
        design(4, md.PureDP(epsilon), UNIFORM).solve().value for epsilon in (4.0, 5.0, 12.0, 20.0, 200.0)
    ]
    assert values == sorted(values, reverse=True)


HUGE = [-1e200, 0, 1e200]


@pytest.mark.parametrize(
    "design",
    [
        lambda p: md.OPTM(HUGE, p, UNIFORM),
        lambda p: md.OptimalQuantizer(HUGE, p, UNIFORM),
        lambda p: md.MetricQuantizer(HUGE, p, UNIFORM, inputs=[-1, 0, 1]),
        lambda p: md.MVU(3, p, (-1, 1), 3, bins=HUGE),
        lambda p: md.MVU(3, p, (-1e200, 1e200), 3),
        lambda p: md.ERM(4, p, stats.uniform(-1e200, 2e200)),
        lambda p: md.RQM(4, p, stats.uniform(-1e200, 2e200)),
        lambda p: md.BiasedSelection(4, p, stats.uniform(-1e200, 2e200)),
    ],
)
def test_what_no_double_holds_the_square_of_is_refused_alike(design: Any) -> None:
    with pytest.raises(md.DesignError, match=r"(bins|input_range) = .*must be within ±1e\+100"):
        design(md.PureDP(1.0))


def test_bounds_of_many_outputs_are_exact_at_large_budgets() -> None:
    """Seen before: floats and their margin, which costs of e^ε exceed: a certificate that did not verify."""
    prior = md.truncated(stats.norm(0.2, 0.5), -1, 1)
    result = md.OptimalQuantizer(np.linspace(-1.5, 1.5, 96), md.PureDP(18.0), prior).solve()
    assert result.certificate.verify()
