"""Certified δ-intervals: contain the truth, are narrow, agree with the library and with the paper's integrals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mechdesign.accounting.composition import composed_delta, plan_grid
from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.accounting.grids import discretise_atoms
from mechdesign.accounting.interval import delta_interval, epsilon_bound
from mechdesign.accounting.losses import AtomicLoss, NoiseTerm, loss_of, merged
from mechdesign.errors import DesignError
from mechdesign.noise.families import discrete_gaussian
from mechdesign.noise.laws import flipped_huber, osgt, staircase, truncated_laplace


@pytest.mark.parametrize("delta", [1e-4, 1e-7, 1e-10, 1e-60, 1e-200])
@pytest.mark.parametrize("dimension", [20, 1000])
def test_width_down_to_tiny_deltas(dimension, delta):
    mu = gaussian_mu(1.0, delta)
    law = flipped_huber(0.3, scale=math.sqrt(dimension) / mu)
    assert delta_interval(NoiseTerm(law, 1.0, dimension), 1.0).width <= 0.01


LAWS = [
    flipped_huber(0.4, scale=22.0),
    flipped_huber(3.5, scale=70.0),
    stats.laplace(scale=20.0),
    osgt(0.3, scale=25.0),
    truncated_laplace(28.0, scale=20.0),
    staircase(0.05, 0.3),
    stats.logistic(scale=14.0),
    stats.gennorm(1.5, scale=25.0),
    stats.dlaplace(0.05),
    discrete_gaussian(22.0),
]


@pytest.mark.parametrize("dimension", [2, 20, 150])
def test_laplace_against_the_library(dimension):
    scale = 4.0 * math.sqrt(dimension)
    above = library.from_laplace_mechanism(scale, value_discretization_interval=2e-5).self_compose(dimension)
    for epsilon in (0.2, 0.6, 1.2):
        upper = above.get_delta_for_epsilon(epsilon)
        interval = delta_interval(NoiseTerm(stats.laplace(scale=scale), 1.0, dimension), epsilon)
        assert interval.lower <= upper + 1e-14
        if upper > 1e-10:
            assert upper <= interval.upper * 1.02


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 1)), min_size=1, max_size=6),
    st.floats(0.05, 2.0),
    st.integers(1, 3),
    st.floats(0, 4),
)
def test_atoms_on_a_grid_bound_their_delta_from_both_sides(atoms, step, rounds, epsilon):
    """Every sum of losses listed."""
    values, mass = (np.array(v) for v in zip(*sorted(dict(atoms).items())))
    loss, sums = AtomicLoss(values, mass / mass.sum()), [(0.0, 1.0)]
    for _ in range(rounds):
        sums = [(s + v, p * m) for s, p in sums for v, m in zip(values, loss.mass)]
    truth = math.fsum(p * max(-math.expm1(epsilon - s), 0.0) for s, p in sums)
    for pessimistic in (True, False):
        grid = discretise_atoms(loss, step, pessimistic=pessimistic)
        delta = composed_delta([(grid, rounds)], epsilon)
        assert delta >= truth * (1 - 1e-9) if pessimistic else delta <= truth * (1 + 1e-9)


@pytest.mark.parametrize(
    ("sigma", "rate", "rounds", "epsilon", "truth"),
    [
        (1.0, 0.01, 1000, 1.0, 0.002612420578626924),
        (10.0, 0.05, 10**5, 4.0, 0.016808628959410838),
        (2.0, 0.1, 500, 1.0, 0.19312015036406188),
        (2.3165599398674837, 0.7761031570173051, 24, 10.352758610308904, 2.9494528215689713e-08),
        (0.8020231880655958, 0.859557739611464, 37, 0.0, 0.9983599310436193),
    ],
)
def test_sampled_rounds_hold_what_inversion_finds(sigma, rate, rounds, epsilon, truth):
    """The moment functions inverted on the line through the saddle point, in long doubles, to a relative 1e-11."""
    noise = NoiseTerm(stats.norm(scale=sigma), 1.0)
    found = delta_interval(noise, epsilon, rounds=rounds, sampling_rate=rate, width=1e-3)
    assert truth in found and found.width < 1e-3


@pytest.mark.parametrize("at", [2, *(pytest.param(i, marks=pytest.mark.slow) for i in (0, 1, 3, 4))])
def test_epsilon_bound_is_safe_and_tight(at):
    term = NoiseTerm(LAWS[at], 1.0, 20)
    epsilon = epsilon_bound(term, 1e-6)
    assert delta_interval(term, epsilon).upper <= 1e-6
    assert delta_interval(term, epsilon * 0.999).upper > 1e-6
    assert epsilon_bound(NoiseTerm(truncated_laplace(3.0, scale=20.0), 1.0, 20), 1e-9) == math.inf


@pytest.mark.parametrize("limit", [None, 1e-3])
def test_bounded_losses_have_a_finite_epsilon(limit):
    """Was infinite where they sum to more than 2²⁰, and where time was short; at their sum δ is 0."""
    term, seen = NoiseTerm(stats.laplace(scale=0.25), 1.0, 20), {"rounds": 65536, "sampling_rate": 0.5}
    assert epsilon_bound(term, 1e-10, time_limit=limit, **seen) <= 80 * 65536


def test_a_grid_of_one_loss_takes_no_more_points_than_there_is_time_for():
    plan = plan_grid((NoiseTerm(stats.laplace(scale=2e4), 1.0, 10**13),), 0.0, 0.01)
    with pytest.raises(DesignError, match="single loss"):
        plan.delta(0.0, plan.finest(1000) / 2, pessimistic=True, most=1000)


# -- Compositions that need no transform


def test_bounded_noise_in_many_rounds_loses_what_lies_beyond_its_end() -> None:
    """And noise far too small for its rounds loses everything."""
    terms = NoiseTerm(stats.truncnorm(-3, 3, scale=44493.0), 1.0)
    found = delta_interval(terms, 1.0, rounds=10**4, sampling_rate=1e-3)
    beyond = float(loss_of(terms.law, 1.0).sf(3 * 44493.0 - 1.0))
    assert -math.expm1(1e4 * math.log1p(-1e-3 * beyond)) in found and found.width < 1e-8
    steep = NoiseTerm(osgt(3000.0, scale=1 / 690), 1.0)
    assert delta_interval(steep, 1.0, rounds=10**5, sampling_rate=0.01).upper == 1.0
    with np.errstate(over="ignore"):
        assert delta_interval([NoiseTerm(stats.norm(scale=1e-160), 1.0), steep], 1.0).upper == 1.0
    # as many numbers: one of all their loss took up to 9 times as long
    assert [t.count for t in merged((NoiseTerm(stats.norm(scale=60.0), 1.0, 1000), steep))] == [1, 1000]


def test_rare_large_losses_need_no_wide_window():
    """Of rounds that hardly ever lose, δ is that of one round which loses much: its window is as wide as few such rounds."""
    rare = delta_interval(
        NoiseTerm(stats.norm(scale=0.5887), 1.0), 2.496, rounds=725, sampling_rate=1.1184e-4
    )
    assert rare.width < 1e-3 and rare.lower > 2.6e-11 and rare.upper < 2.8e-11
