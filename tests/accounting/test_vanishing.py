"""Compositions whose transform vanishes almost everywhere, and those whose bound is enough, are still bounds."""

import math

import pytest
from scipy import stats

from mechdesign.accounting.composition import composed_delta
from mechdesign.accounting.gaussian import gaussian_profile
from mechdesign.accounting.interval import plan_grid
from mechdesign.accounting.losses import NoiseTerm


@pytest.mark.parametrize("count", [3, 1000, 10**6])
def test_many_gaussian_coordinates_compose_to_one(count: int) -> None:
    law = stats.norm(scale=4.0 * math.sqrt(count))
    terms = (NoiseTerm(law, 1.0, count),)
    plan = plan_grid(terms, 1.0, 0.01)
    exact = gaussian_profile(1.0, 0.25)
    upper, _ = composed_delta(plan.parts(plan.step, pessimistic=True), 1.0, guess=plan.theta)
    lower, _ = composed_delta(plan.parts(plan.step, pessimistic=False), 1.0, guess=plan.theta)
    assert lower <= exact <= upper <= lower * 1.05


def test_a_bound_that_is_enough_is_above_what_it_stands_for() -> None:
    terms = (NoiseTerm(stats.norm(scale=8.0), 1.0, 4),)
    plan = plan_grid(terms, 3.0, 0.01)
    parts = plan.parts(plan.step, pessimistic=True)
    exact, _ = composed_delta(parts, 3.0)
    for enough in (1e-300, exact / 1e3):
        assert composed_delta(parts, 3.0, enough=enough)[0] == exact
    assert exact <= composed_delta(parts, 3.0, enough=1e-3)[0] <= 1.001e-3
