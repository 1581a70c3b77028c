"""Sampled rounds on grids: chords above, tangents below, near what other code has found, and never wider where more is asked."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.accounting.composition import composed_delta, plan_grid
from mechdesign.accounting.gaussian import gaussian_profile
from mechdesign.accounting.interval import (
    NoiseTerm,
    delta_interval,
    joint_interval,
    lower_delta,
    upper_delta,
    verified_delta,
)
from mechdesign.accounting.sampling import SampledPlan, SampledRounds
from mechdesign.noise import discrete_gaussian
from mechdesign.solvers.deadline import Deadline

REFERENCE = [  # σ, q, rounds, ε, an upper end on a uniform grid, computed apart from this package
    (1.0, 0.01, 1000, 1.0, 0.00261250),
    (0.5, 1e-4, 10**5, 2.0, 1.18014e-5),
    (2.0, 0.1, 500, 1.0, 0.193120),
    (10.0, 0.05, 10**5, 4.0, 0.0168133),
    (4.0, 3.3e-4, 10**4, 0.02, 2.459e-5),
    # where sums of an FFT without a tilt are off by 3e-13: masses in 40 digits, tilted, on steps of 2.5e-4; 5.60099e-13 on 5e-4
    (0.35285407888677905, 3.768664862275257e-05, 2145, 12.739612219163643, 5.60088e-13),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "rate", "rounds", "epsilon", "upper"), REFERENCE)
def test_an_interval_is_as_narrow_as_known_bounds(
    sigma: float, rate: float, rounds: int, epsilon: float, upper: float
) -> None:
    term = NoiseTerm(stats.norm(scale=sigma), 1.0)
    found = delta_interval(term, epsilon, rounds=rounds, sampling_rate=rate, width=1e-3)
    assert found.upper <= upper * (1 + 1e-3)
    assert upper * (1 - 2e-2) <= found.lower <= upper * (1 + 1e-4)  # the reference has five digits


@pytest.mark.parametrize("count", [1, 2])
def test_rounds_of_whole_noise_are_within_the_interval(count: int) -> None:
    """Every pair of answers of two rounds listed."""
    rate, law, numbers = 0.3, stats.dlaplace(0.8), np.arange(-30, 32)
    q, p = law.pmf(numbers), law.pmf(numbers - 1)
    if count == 2:
        q, p = np.outer(q, q).ravel(), np.outer(p, p).ravel()
        q, p = (np.bincount(np.unique(np.round(np.log(p / q), 9), return_inverse=True)[1], v) for v in (q, p))
    mixed = rate * p + (1 - rate) * q
    for epsilon in (0.0, 0.2, 0.5):
        sides = [
            float(np.maximum(np.outer(a, a) - math.exp(epsilon) * np.outer(b, b), 0).sum())
            for a, b in ((mixed, q), (q, mixed))
        ]
        found = delta_interval(NoiseTerm(law, 1.0, count), epsilon, rounds=2, sampling_rate=rate, width=1e-3)
        assert found.lower <= max(sides) * (1 + 1e-9) and max(sides) <= found.upper * (1 + 1e-9)
        assert found.width <= 0.01


@pytest.mark.parametrize("sampled", [False, True])
def test_no_interval_is_wider_where_more_is_asked(sampled: bool) -> None:
    rng, laws = np.random.default_rng(5), (stats.norm, stats.laplace, stats.logistic)
    for _ in range(12):
        law = laws[int(rng.integers(3))](scale=rng.uniform(0.7, 4.0))
        term, rounds = NoiseTerm(law, 1.0, int(rng.integers(1, 4))), int(rng.integers(2, 200))
        seen = {"rounds": rounds, "sampling_rate": 10 ** rng.uniform(-3, -0.3) if sampled else 1.0}
        epsilon = rng.uniform(0, 2)
        found = [delta_interval(term, epsilon, width=w, closed_form=False, **seen) for w in (0.3, 0.02, 3e-3)]
        assert sorted(found, key=lambda one: (one.lower, -one.upper)) == found
        assert sorted(found, key=lambda one: (-one.upper, one.lower)) == found


def test_the_smallest_deltas_take_no_fine_grid() -> None:
    """One for 2·10⁵ rounds took 1.3 s; of 5 rounds, whose Chernoff bound is no guide to δ (one large loss with four small ones), 20 s."""
    term, began = NoiseTerm(stats.norm(scale=1.376), 1.0), time.process_time()
    found = delta_interval(term, 16.0, rounds=226_398, sampling_rate=1.092e-4, told_from=1e-15)
    assert 0 < upper_delta(term, 16.0, rounds=226_398, sampling_rate=1.092e-4) < 1e-200
    once, few = (delta_interval(term, 1.5, rounds=n, sampling_rate=1.4e-5) for n in (1, 5))
    assert few.width < 0.01 and few.upper == pytest.approx(5 * once.upper, rel=0.01)
    assert found.upper < 1e-15 and time.process_time() - began < 1.0


def test_an_upper_bound_is_as_near_as_planned_where_half_of_all_losses_exceed_epsilon() -> None:
    """There Chernoff's tilt is 0, and tells nothing of what a step costs."""
    term, seen = NoiseTerm(stats.norm(scale=0.687), 1.0), {"rounds": 857, "sampling_rate": 0.11}
    lower = delta_interval(term, 19.77, width=2e-4, **seen).lower
    assert lower <= upper_delta(term, 19.77, **seen) <= 1.001 * lower


def test_a_smaller_width_takes_the_same_steps_and_then_more() -> None:
    """Where atoms happen to lie on a grid its lower end is best: the last grid depended on the width asked for."""
    term = NoiseTerm(stats.dlaplace(0.05933725438099942), 1.0)
    options: dict[str, Any] = {"rounds": 3245, "sampling_rate": 0.14981249106636563}
    wide, narrow = (delta_interval(term, 2.220291188696945, width=w, **options) for w in (0.01, 0.003))
    assert wide.lower <= narrow.lower <= narrow.upper <= wide.upper


@pytest.mark.parametrize("rate", [1e-9, 0.1])
@pytest.mark.parametrize(("sigma", "rounds"), [(1e5, 3), (1e5, 10**6), (1e15, 3)])
def test_a_sample_is_a_small_change_under_noise_far_wider(rate: float, sigma: float, rounds: int) -> None:
    """A test accepts beyond t < 37σ: a change by Δ of a share q moves that as one by qΔ, but for a factor of 1 ± 38Δ/σ."""
    term, mu = NoiseTerm(stats.norm(scale=sigma), 1.0), math.sqrt(rounds) * rate / sigma
    for epsilon in (0.0, 1.5 * mu, 6 * mu):
        found = delta_interval(term, epsilon, rounds=rounds, sampling_rate=rate)
        below, above = (gaussian_profile(epsilon, mu * (1 + off)) for off in (-38 / sigma, 38 / sigma))
        assert found.lower <= above and below <= found.upper and found.width < 0.02


@pytest.mark.parametrize("rate", [1e-9, 0.1, 1.0])
@pytest.mark.parametrize("scale", [1e5, 1e9])
def test_laplace_noise_far_wider_than_a_change_tosses_coins(rate: float, scale: float) -> None:
    """Each round loses nearly q/b or −q/b, so that δ is a sum of binomial probabilities: exact, but for a factor of 1 ± 10/b."""
    term, unit = NoiseTerm(stats.laplace(scale=scale), 1.0), rate / scale
    for level in (0.0, 2.5, 7.5):
        gained = math.fsum(math.comb(10, k) * max(2 * k - 10 - level, 0) for k in range(11)) / 2**10
        found = delta_interval(term, level * unit, rounds=10, sampling_rate=rate)
        assert found.lower <= gained * unit * (1 + 10 / scale)
        assert gained * unit * (1 - 10 / scale) <= found.upper and found.width < 0.01


@pytest.mark.parametrize("law", [stats.norm, stats.laplace, stats.logistic, stats.hypsecant])
@pytest.mark.parametrize("scale", [30.0, 1e4, 1e6])
def test_grids_of_one_round_hold_its_closed_form(law: stats.rv_continuous, scale: float) -> None:
    terms = (NoiseTerm(law(scale=scale), 1.0),)
    for rate in (1e-8, 0.3):
        for level in (0.0, 0.3, 0.9):
            exact = delta_interval(terms, level * rate / scale, sampling_rate=rate)
            rounds = SampledRounds.of(terms, 1, rate, level * rate / scale)
            plan = replace(SampledPlan.of((rounds,), level * rate / scale, 0.01), upper_tail=1e-40)
            step = plan.align(plan.step / 4)
            low, high = (plan.delta(level * rate / scale, step, pessimistic=up) for up in (False, True))
            assert low <= exact.upper and exact.lower <= high <= low * 1.01


@pytest.mark.parametrize("law", [stats.laplace, stats.logistic, stats.hypsecant])
def test_no_grid_says_that_losses_exceed_their_largest(law: stats.rv_continuous) -> None:
    """Were 2.2e-4 where nothing is lost: a coarse grid has points above all losses."""
    for scale in (3.74, 3.8, 4.0, 4.7):
        term, epsilon = (
            NoiseTerm(law(scale=scale), 1.0),
            7 * math.log1p(0.5 * math.expm1(1 / scale)) * (1 + 1e-9),
        )
        assert upper_delta(term, epsilon, width=0.03, rounds=7, sampling_rate=0.5) < 1e-200
    steps = [NoiseTerm(law(scale=6.0), step, 2) for step in (1.0, 2.0)]
    assert delta_interval(steps, 1.0).upper == upper_delta(steps, 1.0) == 0 < upper_delta(steps, 0.999)


# -- One sampled round against its definition, both directions


def _by_definition(sigma: float, shift: float, rate: float, epsilon: float, *, whole: bool) -> mpmath.mpf:
    """The larger of both hockey-stick divergences: what is positive, summed or integrated where it is."""
    with mpmath.workdps(120):
        s, q, e = mpmath.mpf(sigma), mpmath.mpf(rate), mpmath.exp(epsilon)

        def weight(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.exp(-(x**2) / (2 * s**2))

        def mixed(x: mpmath.mpf) -> mpmath.mpf:
            return (1 - q) * weight(x) + q * weight(x - shift)

        gains = (lambda x: mixed(x) - e * weight(x)), (lambda x: weight(x) - e * mixed(x))
        if whole:
            points = [mpmath.mpf(i) for i in range(-60, 61)]
            unit = sum(map(weight, points))
            return max(sum(max(gain(x), 0) for x in points) for gain in gains) / unit
        where = s**2 / shift * mpmath.log1p((e - 1) / q) + mpmath.mpf(shift) / 2
        found = [q * mpmath.ncdf((shift - where) / s) - (e - 1 + q) * mpmath.ncdf(-where / s)]
        if e * (1 - q) < 1:
            back = s**2 / shift * mpmath.log((1 / e - 1 + q) / q) + mpmath.mpf(shift) / 2
            found.append((1 - e + e * q) * mpmath.ncdf(back / s) - e * q * mpmath.ncdf((back - shift) / s))
        return max(found)


@pytest.mark.parametrize("rate", [1e-6, 0.1, 0.4, 0.999])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0, 6.0])
@pytest.mark.parametrize("whole", [False, True])
def test_a_sampled_round_is_known_to_doubles(rate: float, epsilon: float, whole: bool) -> None:
    law, shift = (discrete_gaussian(1.25), 3.0) if whole else (stats.norm(scale=0.8), 1.0)
    true = _by_definition(1.25 if whole else 0.8, shift, rate, epsilon, whole=whole)
    found = delta_interval(NoiseTerm(law, shift), epsilon, sampling_rate=rate)
    assert found.lower <= true <= found.upper <= found.lower * (1 + 1e-9)


@pytest.mark.parametrize("count", [1, 6])
def test_every_bound_of_a_sampled_round_lies_on_its_side(count: int) -> None:
    """Several coordinates that move by 1 are one that moves by √6."""
    terms = NoiseTerm(stats.norm(scale=2.0), 1.0, count)
    true = _by_definition(2.0, count**0.5, 0.3, 0.5, whole=False)
    for upper in (upper_delta, verified_delta):
        assert true <= upper(terms, 0.5, sampling_rate=0.3) <= true * 1.01
    assert true * 0.99 <= lower_delta(terms, 0.5, sampling_rate=0.3) <= true
    composed = delta_interval(terms, 0.5, sampling_rate=0.3, closed_form=False)
    assert composed.lower <= true <= composed.upper
    for upper in (upper_delta, verified_delta):
        assert upper(terms, 90.0, sampling_rate=0.3) > 0  # of 1e-4000 too


def test_points_of_a_curve_are_kept_by_one_sampled_round() -> None:
    curve = md.TradeOff([(0, 0.08), (1, 1e-5), (3, 0.5)])
    found = md.calibrate("gaussian", privacy=curve, sensitivity=1.0, sampling_rate=0.1)
    shares = [found.mechanism.delta_interval(e).upper / d for e, d in curve.points]
    assert 1 - 1e-6 < max(shares) <= 1


# -- Many numbers: each mass of a round bounds the true one, and δ keeps its relative accuracy


@pytest.mark.parametrize("count", [7, 10**6])
@pytest.mark.parametrize("family", [stats.norm, lambda scale: stats.gennorm(2.0, scale=math.sqrt(2) * scale)])
def test_normal_noise_on_many_numbers_is_that_on_one(count: int, family: Any) -> None:
    """A rotation makes one coordinate of them, which changes by √K."""
    law = stats.norm(scale=2.0 * math.sqrt(count))
    alike = family(scale=2.0 * math.sqrt(count))
    one = delta_interval(NoiseTerm(law, math.sqrt(count)), 0.5, rounds=100, sampling_rate=0.01, width=2e-3)
    many = delta_interval(NoiseTerm(alike, 1.0, count), 0.5, rounds=100, sampling_rate=0.01, width=2e-3)
    assert many.lower <= one.upper and one.lower <= many.upper
    assert many.width < 0.02


def _enumerated(scale: float, count: int, rate: float, epsilon: float) -> Any:
    """δ of one sampled round of geometric noise, in 60 digits: a loss of ±a on each coordinate, the worse direction."""
    with mpmath.workdps(60):
        a, q, level = mpmath.mpf(scale), mpmath.mpf(rate), mpmath.mpf(epsilon)
        up = 1 / (1 + mpmath.exp(-a))
        removed = added = mpmath.mpf(0)
        for j in range(count + 1):
            loss = (count - 2 * j) * a
            mass = math.comb(count, j) * up ** (count - j) * (1 - up) ** j
            seen = mpmath.log(1 - q + q * mpmath.exp(loss))
            both = q * mass + (1 - q) * mass * mpmath.exp(-loss)
            removed += both * max(1 - mpmath.exp(level - seen), 0)
            added += mass * max(1 - mpmath.exp(level + mpmath.log(1 - q + q * mpmath.exp(-loss))), 0)
        return max(removed, added)


@settings(max_examples=30, deadline=None)
@given(
    scale=st.floats(0.05, 8.0),
    count=st.integers(1, 7),
    log_rate=st.floats(-14, -0.01),
    which=st.integers(0, 7),
    log_below=st.floats(-16, -0.1),
)
def test_rare_samples_near_the_largest_loss_are_enclosed(
    scale: float, count: int, log_rate: float, which: int, log_below: float
) -> None:
    """log(1 − q + q e^l) is close to q(e^l − 1)."""
    rate = 10**log_rate
    with mpmath.workdps(60):
        loss = max(count - 2 * which, 1) * mpmath.mpf(scale)
        seen = float(mpmath.log(1 - mpmath.mpf(rate) + rate * mpmath.exp(loss)))
    epsilon = seen * (1 - 10**log_below)
    found = delta_interval(NoiseTerm(stats.dlaplace(scale), 1.0, count), epsilon, sampling_rate=rate)
    assert found.lower <= _enumerated(scale, count, rate, epsilon) <= found.upper


@pytest.mark.parametrize("count", [1000, 10**6])
def test_many_gaussian_coordinates_compose_to_one(count: int) -> None:
    """The transform vanishes almost everywhere; a bound that is enough is above what it stands for."""
    plan = plan_grid((NoiseTerm(stats.norm(scale=4.0 * math.sqrt(count)), 1.0, count),), 1.0, 0.01)
    exact, parts = gaussian_profile(1.0, 0.25), plan.parts(plan.step, pessimistic=True)
    upper = composed_delta(parts, 1.0, guess=plan.theta)
    assert composed_delta(plan.parts(plan.step, pessimistic=False), 1.0) <= exact <= upper <= exact * 1.05
    assert composed_delta(parts, 1.0, enough=exact / 1e3) == pytest.approx(upper, rel=1e-12)


def test_no_grid_is_too_wide_for_a_bound() -> None:
    """Between equal points the rounding of a bounded law's tail, divided by no width, was a mass of −1e255."""
    rounds = SampledRounds.of((NoiseTerm(stats.truncnorm(-8, 8, scale=137943.0), 1.0),), 1247, 0.011, 0.0)
    plan = SampledPlan.of((rounds,), 0.0, 0.01)
    for step in plan.step * 2.0 ** np.arange(6, 24, 3):
        assert plan.delta(0.0, step, pessimistic=False) <= 1.1254e-6
        assert plan.delta(0.0, step, pessimistic=True) >= 1.1228e-6


FAR_APART = [  # what a sample shows of a record, it shows for certain: δ is the probability that it is in one
    (NoiseTerm(stats.truncnorm(-8, 8, scale=1e-3), 1.0, 5), 4e-11, 10**7),
    (NoiseTerm(stats.norm(scale=1e-5), 1.0), 1e-3, 10**4),
    (NoiseTerm(stats.laplace(scale=1e-160), 1.0), 0.1, 10),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("term", "rate", "rounds"), FAR_APART, ids=range(len(FAR_APART)))
def test_neighbours_far_apart_are_told_from_both_sides(term: NoiseTerm, rate: float, rounds: int) -> None:
    exact = -math.expm1(rounds * math.log1p(-rate))
    seen = (NoiseTerm(stats.laplace(scale=1e9), 1.0),), 1, 1.0
    for found in (
        delta_interval(term, 0.5, rounds=rounds, sampling_rate=rate, time_limit=5),
        joint_interval([((term,), rounds, rate), seen], 0.5, deadline=Deadline(5)),
    ):
        assert found.lower <= exact * (1 + 1e-15) and exact <= found.upper


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("noise", "rate", "rounds", "options"),
    [
        (stats.norm(scale=1e292), 1e-106, 10**17, {}),
        (stats.laplace(scale=1e165), 1.0, 10**11, {}),
        (stats.norm(scale=1e250), 1e-223, 10**6, {"neighbours": "replace"}),
        (stats.norm(scale=580.0), 1e-52, 10**17, {"neighbours": "replace"}),
        (stats.norm(scale=8e71), 6e-320, 10**8, {}),
        (stats.norm(scale=0.015), 4e-311, 10**15, {}),
        (stats.laplace(scale=0.004), 2e-31, 51, {}),
        (stats.norm(scale=77.0), 2e-12, 10**18, {}),
        (stats.norm(scale=0.0023), 1.3e-42, 31_879, {}),
    ],
)
def test_whatever_doubles_hold_has_an_interval(noise: Any, rate: float, rounds: int, options: Any) -> None:
    for epsilon in (0.0, 1.6e-70, 1e-5, 1e300):
        options = {**options, "time_limit": 0.1}
        found = delta_interval(NoiseTerm(noise, 1.0), epsilon, rounds=rounds, sampling_rate=rate, **options)
        assert 0 <= found.lower <= found.upper <= 1
