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

from mechdesign import ApproximateDP, Calibration
from mechdesign.accounting.composition import GridLoss, convolve, find_tilt
from mechdesign.accounting.interval import NoiseTerm, delta_interval, upper_delta
from mechdesign.accounting.sampling import compose_grid
from mechdesign.errors import DesignError


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


@pytest.mark.parametrize("count", [7, 1000, 10**6])
@pytest.mark.parametrize("family", [stats.norm, lambda scale: stats.gennorm(2.0, scale=math.sqrt(2) * scale)])
def test_normal_noise_on_many_numbers_is_that_on_one(count: int, family: Any) -> None:
    """A rotation makes one coordinate of them, which changes by √K."""
    law = stats.norm(scale=2.0 * math.sqrt(count))
    alike = family(scale=2.0 * math.sqrt(count))
    one = delta_interval(NoiseTerm(law, math.sqrt(count)), 0.5, rounds=100, sampling_rate=0.01, width=2e-3)
    many = delta_interval(NoiseTerm(alike, 1.0, count), 0.5, rounds=100, sampling_rate=0.01, width=2e-3)
    assert many.lower <= one.upper and one.lower <= many.upper
    assert many.width < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-2, 1e-9), (0.1, 1e-12)])
@pytest.mark.parametrize("family", ["laplace", "discrete_laplace"])
def test_a_thousand_numbers_lose_less_than_their_normal_limit_and_hardly_less(
    family: str, epsilon: float, delta: float
) -> None:
    """Losses of many numbers are nearly normal: of variance K E[l²], and their scale follows the Gaussian's by it."""
    asked: dict[str, Any] = {"rounds": 100, "sampling_rate": 0.01, "dimension": 1000}
    gauss = Calibration("gaussian", ApproximateDP(epsilon, delta), 1, **asked).solve()
    found = Calibration(family, ApproximateDP(epsilon, delta), 1, **asked).solve()
    # Laplace loses Δ/b a coordinate, a Gaussian of the same variance 1/√2 of that
    assert 1.9 < found.value / gauss.value < 2.1
    assert found.certificate is not None and found.certificate.verify()


def test_tiny_losses_of_many_sampled_rounds_are_seen() -> None:
    """K rounds of errors of the whole round, 8e-8 of them, once hid every smaller δ."""
    law = stats.laplace(scale=20 * 205.0)
    one = upper_delta(NoiseTerm(law, 1.0, 1000), 0.01, rounds=100, sampling_rate=0.01)
    assert one < 1e-20


@pytest.mark.parametrize("count", [10**4, 10**6])
def test_a_transform_summed_term_by_term_is_more_certain(count: int) -> None:
    """Masses of a million numbers are certain to 1e-9 and less, and have the total and the mean of the exact law."""
    one = np.array([0.25, 0.0, 0.5, 0.25])
    parts = [(GridLoss(1.0 / count, -1, one, 0.0, 0.0, True), count)]
    tilt = find_tilt(parts, -1.0)
    assert tilt.theta == 0
    first, mass, _, each, outside = convolve(parts, tilt)
    points = first + np.arange(mass.size)
    assert each < 1e-9 and outside < 1e-15
    assert abs(mass.sum() - 1) < mass.size * each + 4e-16
    mean = float(mass @ (points / count))
    assert mean == pytest.approx(-0.25 + 0.5 + 0.5, rel=1e-6)


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


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
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
    """log(1 − q + q e^l) is close to q(e^l − 1): roundings of it as of a loss of 1 hid up to all of δ."""
    rate = 10**log_rate
    with mpmath.workdps(60):
        loss = max(count - 2 * which, 1) * mpmath.mpf(scale)
        seen = float(mpmath.log(1 - mpmath.mpf(rate) + rate * mpmath.exp(loss)))
    epsilon = seen * (1 - 10**log_below)
    found = delta_interval(NoiseTerm(stats.dlaplace(scale), 1.0, count), epsilon, sampling_rate=rate)
    assert found.lower <= _enumerated(scale, count, rate, epsilon) <= found.upper


@pytest.mark.slow
def test_what_no_double_holds_is_not_nothing() -> None:
    term = NoiseTerm(stats.dlaplace(0.0005692803059431021), 1.0, 10**6)
    found = delta_interval(term, 34.61395533424619, sampling_rate=0.9)
    assert found.lower == 0 < found.upper < 1e-280


@pytest.mark.parametrize(
    ("law", "count", "rounds", "delta"),
    [
        (stats.norm(scale=2.9056761e7), 1, 10**5, 1e-30),
        (stats.logistic(scale=9.71927e7 * math.sqrt(3) / math.pi), 100, 10**4, 1e-30),
    ],
)
def test_the_loss_of_a_record_that_no_round_leaves_out_widens_no_grid(
    law: Any, count: int, rounds: int, delta: float
) -> None:
    """Almost no mass has the loss log 10 of a record added to nine of ten; a grid that reached it had bounds of 10⁻⁵."""
    found = upper_delta(NoiseTerm(law, 1.0, count), 1e-4, rounds=rounds, sampling_rate=0.9)
    assert found == pytest.approx(delta, rel=0.1)


@pytest.mark.parametrize("sampling_rate", [0.1, 0.9])
def test_two_losses_next_to_each_other_are_one(sampling_rate: float) -> None:
    term = NoiseTerm(stats.laplace(scale=0.01), 1.0)
    found = delta_interval(term, 1.0, sampling_rate=sampling_rate)
    assert sampling_rate in found and found.width < 1e-6


def test_more_points_than_are_taken_are_refused() -> None:
    term = NoiseTerm(stats.norm(scale=1e5), 1.0)
    with pytest.raises(DesignError, match=r"10000000000000 privacy losses.*grid points"):
        delta_interval(term, 1.0, rounds=10**13, closed_form=False)
