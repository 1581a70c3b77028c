"""Losses far beyond ε beside others: from above they are infinite, from below no larger than what no other loss undoes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mechdesign.accounting.composition import composed_delta, plan_grid
from mechdesign.accounting.grids import discretise
from mechdesign.accounting.interval import NoiseTerm, delta_interval, joint_interval
from mechdesign.accounting.losses import AtomicLoss, loss_of
from mechdesign.accounting.sampling import SampledRounds
from mechdesign.noise.laws import flipped_huber

LAWS = [stats.norm(scale=0.3), stats.laplace(scale=0.4), flipped_huber(1.0, scale=0.4), stats.dlaplace(1.5)]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("most", [0.4, 2.0, math.inf])
def test_the_curve_is_enclosed_wherever_losses_are_merged(law: object, most: float) -> None:
    term = NoiseTerm(law, 1.0)  # type: ignore[arg-type]
    rounds = SampledRounds((term,), 1, 0.3)
    for step in (0.05, 1.0):
        for epsilon in (0.0, 0.3, 1.9, 2.5, 6.0):
            plain = delta_interval(term, epsilon)
            sampled = delta_interval(term, epsilon, sampling_rate=0.3)
            for exact, both in ((plain, None), (sampled, rounds)):
                below, above = (
                    discretise(
                        loss_of(term.law, 1.0),
                        step,
                        pessimistic=up,
                        upper_tail=1e-9,
                        lower_tail=1e-9,
                        most=most,
                    )
                    if both is None
                    else both.grids(step, 1e-9, most, pessimistic=up)[0]
                    for up in (False, True)
                )
                low, high = (composed_delta([(grid, 1)], epsilon) for grid in (below, above))
                assert low <= exact.upper * (1 + 1e-9) and exact.lower <= high * (1 + 1e-9)


@pytest.mark.parametrize(
    ("large", "epsilon"),
    [(stats.laplace(scale=0.01), 90.0), (stats.norm(scale=0.1), 40.0), (stats.norm(scale=0.01), 1.0)],
)
def test_tiny_losses_hide_no_large_one(large: object, epsilon: float) -> None:
    """A hundred losses of at most 1e-6 beside one of 100: nothing was known from below."""
    tiny, one = NoiseTerm(stats.laplace(scale=1e6), 1.0, 100), NoiseTerm(large, 1.0)  # type: ignore[arg-type]
    least, most = delta_interval(one, epsilon + 1e-4).lower, delta_interval(one, epsilon - 1e-4).upper
    found = delta_interval([tiny, one], epsilon)
    assert found.lower <= most and least <= found.upper and found.width < 0.01
    seen = -math.expm1(10 * math.log1p(-0.1))
    if epsilon == 1:
        sampled = delta_interval([tiny, one], epsilon, rounds=10, sampling_rate=0.1)
        assert sampled.lower <= seen <= sampled.upper * (1 + 1e-9) and sampled.width < 0.02
        return
    both = joint_interval([((NoiseTerm(stats.norm(scale=1e6), 1.0),), 1000, 0.1), ((one,), 1, 1.0)], epsilon)
    assert both.lower <= most * (1 + 1e-3) and least * (1 - 1e-3) <= both.upper and both.width < 0.01


@pytest.mark.parametrize(("law", "change"), [(stats.laplace(), 0.5), (stats.dlaplace(1e-4), 5000.0)])
@pytest.mark.parametrize("below", [pytest.param(1e-5, marks=pytest.mark.slow), 1e-3, 0.3, 1.0])
def test_losses_that_no_other_lifts_over_epsilon_are_left_out(
    law: object, change: float, below: float
) -> None:
    """δ is that of all losses, of a few thousand points just below the largest sum: a calibration took 15 s there."""
    tiny = (NoiseTerm(stats.laplace(), 1e-4, 2), NoiseTerm(stats.dlaplace(1e-6), 1.0))
    epsilon = 0.500201 * (1 - below)
    plan = plan_grid((NoiseTerm(law, change), *tiny), epsilon, 1e-3)  # type: ignore[arg-type]
    for up in (True, False):
        whole, left = (plan.parts(plan.step, pessimistic=up, epsilon=e) for e in (-1.0, epsilon))
        wanted = composed_delta(whole, epsilon)
        for found in (composed_delta(left, epsilon), plan.delta(epsilon, plan.step, pessimistic=up)):
            assert found == pytest.approx(wanted, rel=1e-4, abs=1e-13)
        if below < 0.01:
            assert left[0][0].mass.size < 10_000 < whole[0][0].mass.size


def test_a_loss_that_is_always_infinite_tells_neighbours_apart() -> None:
    """It was taken for no loss at all."""
    grid = discretise(
        AtomicLoss(np.empty(0), np.empty(0), 1.0), 0.1, pessimistic=True, upper_tail=0.0, lower_tail=0.0
    )
    assert composed_delta([(grid, 1)], 1.0) == 1.0
