"""Budgets beyond what doubles resolve: a mechanism for a smaller ε is one for a larger one."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from scipy import stats

import mechdesign as md

UNIFORM = stats.uniform(-1, 2)
NARROW = 1 + 1e-12  # the outermost bins hardly cover the range: no mechanism below epsilon = 28.324


@pytest.mark.parametrize("epsilon", [36.0, 200.0])
@pytest.mark.parametrize(
    ("bins", "options"),
    [
        ([-3, -0.5, 0.5, 3], {}),
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


@pytest.mark.parametrize("bins", [[-NARROW, -0.5, 0.5, NARROW], [-NARROW, -0.5, 0, 0.5, NARROW]])
@pytest.mark.parametrize("design", [md.OPTM, md.OptimalQuantizer])
@pytest.mark.parametrize("epsilon", [30.0, 200.0])
def test_bins_that_hardly_cover_the_range_are_answered_beyond_their_least_epsilon(
    design: type, bins: list[float], epsilon: float
) -> None:
    result = design(bins, md.PureDP(epsilon), UNIFORM).solve()
    assert result.certificate.verify() and result.value < 0.67
    assert result.lower_bound is None or result.lower_bound <= result.value


HUGE = [-1e200, 0, 1e200]


@pytest.mark.parametrize(
    "design",
    [
        lambda p: md.OPTM(HUGE, p, UNIFORM),
        lambda p: md.OptimalQuantizer(HUGE, p, UNIFORM),
        lambda p: md.MetricQuantizer(HUGE, p, UNIFORM, inputs=[-1, 0, 1]),
        lambda p: md.MVU(3, p, (-1, 1), 3, bins=HUGE),
        lambda p: md.ERM(4, p, stats.uniform(-1e200, 2e200)),
    ],
)
def test_what_no_double_holds_the_square_of_is_refused_alike(design: Any) -> None:
    with pytest.raises(md.DesignError, match=r"(bins|input_range) = .*must be within ±1e\+100"):
        design(md.PureDP(1.0))
