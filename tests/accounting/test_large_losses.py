"""Losses far beyond ε beside others: from above they are infinite, from below no larger than what no other loss undoes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mechdesign.accounting.composition import composed_delta
from mechdesign.accounting.grids import discretise
from mechdesign.accounting.interval import NoiseTerm, delta_interval, joint_interval
from mechdesign.accounting.losses import AtomicLoss


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


def test_a_loss_that_is_always_infinite_tells_neighbours_apart() -> None:
    """It was taken for no loss at all."""
    grid = discretise(
        AtomicLoss(np.empty(0), np.empty(0), 1.0), 0.1, pessimistic=True, upper_tail=0.0, lower_tail=0.0
    )
    assert composed_delta([(grid, 1)], 1.0) == 1.0
