"""Sampled rounds over many numbers: each mass of a round bounds the true one, and δ keeps its relative accuracy."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mechdesign.accounting.composition import GridLoss, Tilt, composed_delta
from mechdesign.accounting.gaussian import gaussian_profile
from mechdesign.accounting.interval import NoiseTerm, delta_interval
from mechdesign.accounting.planning import plan_grid
from mechdesign.accounting.sampling import _Stretch, compose_grid


@settings(max_examples=40, deadline=None)
@given(
    masses=st.lists(st.integers(0, 50), min_size=1, max_size=4).filter(any),
    start=st.integers(-3, 2),
    count=st.integers(2, 40),
    infinite=st.sampled_from([0.0, 1e-13]),
)
def test_masses_of_a_round_bound_the_true_ones_point_by_point(
    masses: list[int], start: int, count: int, infinite: float
) -> None:
    """Exact powers of polynomials in fractions; beyond the grid is what is infinite."""
    total = sum(masses)
    one = np.array(masses) / total
    exact = [Fraction(float(m)) for m in one]
    mean = count * sum(j * m for j, m in enumerate(exact)) / sum(exact)
    power = [Fraction(1)]
    for _ in range(count):
        new = [Fraction(0)] * (len(power) + len(exact) - 1)
        for i, a in enumerate(power):
            for j, b in enumerate(exact):
                new[i + j] += a * b
        power = new
    for pessimistic in (True, False):
        grid = GridLoss(0.25, start, one, infinite, 0.0, pessimistic)
        found = compose_grid([(grid, count)])
        below, above = Fraction(0), Fraction(0)
        for j, true in enumerate(power):
            at = start * count + j - found.start
            if 0 <= at < found.mass.size:
                stated = Fraction(float(found.mass[at]))
                if pessimistic and at > 0:
                    assert stated >= true
                assert pessimistic or stated <= true
                # relative accuracy from the bulk up to where doubles see the mass, or to less than what is infinite
                if true > Fraction(1, 10**200) and j >= mean:
                    assert abs(stated - true) < true / 10**4 + count * Fraction(infinite)
            elif at < 0:
                below += true
            else:
                above += true
        if pessimistic:
            assert Fraction(float(found.mass[0])) >= below
            assert Fraction(found.infinity) >= above


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


@pytest.mark.parametrize("count", [3, 1000, 10**6])
def test_many_gaussian_coordinates_compose_to_one(count: int) -> None:
    """The transform vanishes almost everywhere; a bound that is enough is above what it stands for."""
    plan = plan_grid((NoiseTerm(stats.norm(scale=4.0 * math.sqrt(count)), 1.0, count),), 1.0, 0.01)
    exact, parts = gaussian_profile(1.0, 0.25), plan.parts(plan.step, pessimistic=True)
    upper, _ = composed_delta(parts, 1.0, guess=plan.theta)
    lower, _ = composed_delta(plan.parts(plan.step, pessimistic=False), 1.0, guess=plan.theta)
    assert lower <= exact <= upper <= lower * 1.05
    assert composed_delta(parts, 1.0, enough=exact / 1e3)[0] == pytest.approx(upper, rel=1e-12)
    assert upper <= composed_delta(parts, 1.0, enough=0.5)[0] * (1 + 1e-12)


@pytest.mark.parametrize("up", [False, True])
def test_no_mass_is_undefined_where_a_tilt_is_beyond_doubles(up: bool) -> None:
    stretch = _Stretch(Tilt(1.0, 1000.0, 0.0, 1.0), 0, np.zeros(2), 0.0, 0.0)
    found = stretch.untilted(np.array([0.0, 1e-320]), np.array([0.0, 1.0]), up=up)
    assert found[0] == 0 and (found[1] == math.inf if up else 0 <= found[1] < math.inf)
