"""Losses of SciPy's laws in closed form, the inverse of the others, and compositions that need no transform."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mechdesign.accounting import composition
from mechdesign.accounting.composition import GridLoss, composed_delta, contract, discretise_atoms
from mechdesign.accounting.interval import NoiseTerm, delta_interval, upper_delta
from mechdesign.accounting.log_concave import inverse_of
from mechdesign.accounting.losses import AtomicLoss, loss_of
from mechdesign.noise.laws.staircase import staircase_law
from mechdesign.noise.laws.symmetric import osgt


@pytest.mark.parametrize("law", [stats.hypsecant(scale=2.0), stats.truncnorm(-3, 3, scale=2.0)])
@pytest.mark.parametrize("size", [1e-6, 0.5, 3.0])
def test_the_closed_loss_is_that_of_the_density(law: Any, size: float) -> None:
    loss = loss_of(law, size)
    t = np.linspace(-0.9, 0.9, 41) * min(loss.edge, 16.0)
    differenced = law.logpdf(t - size / 2) - law.logpdf(t + size / 2)
    assert loss.loss(t) == pytest.approx(differenced, rel=1e-9, abs=1e-14)
    assert loss.inverse(loss.loss(t)) == pytest.approx(t, rel=1e-7, abs=1e-7)
    assert loss.sf(t) == pytest.approx(law.sf(t), rel=1e-9)


def test_the_tail_of_a_truncated_normal_law_to_its_end() -> None:
    loss = loss_of(stats.truncnorm(-3, 3), 1.0)
    with mpmath.workdps(40):
        for u in (0.0, 1.0, 2.9, 2.999999, 3 - 1e-12):
            mass = (mpmath.erf(3 / mpmath.sqrt(2)) - mpmath.erf(mpmath.mpf(u) / mpmath.sqrt(2))) / 2
            exact = float(mass / mpmath.erf(3 / mpmath.sqrt(2)))
            assert float(loss.sf(u)) == pytest.approx(exact, rel=1e-12)
    assert loss.edge == 2.5 and math.isinf(loss.loss(2.6))


@given(st.floats(1.01, 8.0), st.floats(1e-8, 30.0), st.integers(1, 700))
@settings(max_examples=60, deadline=None)
def test_the_inverse_is_one(power: float, r: float, count: int) -> None:
    def loss(t: Any) -> Any:
        t = np.asarray(t, dtype=float)
        return np.abs(t + r / 2) ** power - np.abs(t - r / 2) ** power

    levels = np.linspace(-1, 1, count) * float(loss(3.0 + r))
    off = np.abs(loss(inverse_of(loss, 1.0)(levels)) - levels)
    # the loss itself is a difference, rounded
    assert off.max() <= 1e-12 * levels.max(initial=1e-300) + 8e-16 * (3.0 + 1.5 * r) ** power + 1e-14


def test_an_inverse_across_a_jump() -> None:
    inverse = inverse_of(lambda t: np.where(np.abs(t) <= 2, t, np.copysign(np.inf, t)), 1.0, 2.0)
    assert inverse(np.array([-9.0, -1.0, 0.0, 1.5, 2.5])) == pytest.approx(
        [-2.0, -1.0, 0.0, 1.5, 2.0], abs=1e-13
    )


@pytest.mark.slow
@pytest.mark.parametrize(("dimension", "epsilon", "delta"), [(3, 1e-3, 1e-15), (1000, 50.0, 1e-12)])
def test_a_lower_grid_of_rounding_errors_is_no_larger_than_its_cells(
    dimension: int, epsilon: float, delta: float
) -> None:
    """Asked for 878 TiB: where a shift is 1e-13 of the noise, the mass of a cell is its error."""
    scale = 0.008 * dimension / delta
    found = delta_interval(NoiseTerm(stats.truncnorm(-3, 3, scale=scale), 1.0, dimension), epsilon)
    assert 0 <= found.lower <= found.upper < 10 * delta


def test_cells_beyond_the_window_move_down_or_are_dropped() -> None:
    p = np.array([0.2, 0.3, 0.1, 0.2])
    q = p * np.exp(-np.array([500.0, 0.1, 0.0, -500.0]))
    found = contract(p, q, 0.1, window=(-1, 2))
    assert found.mass.sum() == pytest.approx(0.6) and found.points.max() == pytest.approx(0.2)
    for epsilon in (0.0, 0.05, 0.15):
        true = np.maximum(p - math.exp(epsilon) * q, 0).sum()
        assert composed_delta([(found, 1)], epsilon)[0] <= true


def test_noise_far_too_small_for_its_rounds_is_not_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Was a transform of 51 million points, at the steepest step that a calibration asks about."""
    composed: list[int] = []
    convolve = composition.convolve
    monkeypatch.setattr(composition, "convolve", lambda *a: composed.append(1) or convolve(*a))
    terms = NoiseTerm(osgt(3000.0, scale=1 / 690), 1.0)
    assert upper_delta(terms, 1.0, rounds=10**5, sampling_rate=0.01) == 1.0
    assert delta_interval(terms, 1.0, rounds=10**5, sampling_rate=0.01).upper == 1.0
    assert not composed


def test_what_is_infinite_hides_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded noise in many rounds: δ is what lies beyond its end, and no transform is needed to see that."""
    composed: list[int] = []
    convolve = composition.convolve
    monkeypatch.setattr(composition, "convolve", lambda *a: composed.append(1) or convolve(*a))
    terms = NoiseTerm(stats.truncnorm(-3, 3, scale=44493.0), 1.0)
    found = delta_interval(terms, 1.0, rounds=10**4, sampling_rate=1e-3)
    beyond = float(loss_of(terms.law, 1.0).sf(3 * 44493.0 - 1.0))
    assert -math.expm1(1e4 * math.log1p(-1e-3 * beyond)) in found and found.width < 1e-8
    assert not composed


@given(st.floats(0.01, 0.99), st.integers(200, 3000), st.floats(0.05, 3.0))
@settings(max_examples=30, deadline=None)
def test_a_certain_loss_agrees_with_its_composition(share: float, rounds: int, epsilon: float) -> None:
    """Two losses, 0 and 1: the composed one is binomial."""
    for pessimistic in (True, False):
        grid = GridLoss(1.0, 0, np.array([1 - share, share]), 0.0, 0.0, pessimistic)
        found = composed_delta([(grid, rounds)], epsilon)[0]
        k = np.arange(rounds + 1)
        true = float(np.sum(stats.binom.pmf(k, rounds, share) * -np.expm1(np.minimum(epsilon - k, 0.0))))
        assert found == pytest.approx(true, rel=1e-9)
        assert found >= true * (1 - 1e-11) if pessimistic else found <= true * (1 + 1e-11)


def test_sampled_losses_that_differ_in_their_tenth_digit() -> None:
    """From below nine gigabytes of steps were tried, to put two values a hair apart on one grid."""
    terms = NoiseTerm(stats.norm(scale=0.04261), 1.0)
    found = delta_interval(terms, 5.0, sampling_rate=0.01, width=0.01)
    assert 0.009 < found.lower <= found.upper < 0.0101


def test_atoms_on_the_grid_are_there_to_rounding() -> None:
    """Three staircases of a third of ε each are private: "calibration check failed: [0, 4.1e-12] is spent, 1e-12 allowed"."""
    for epsilon in (50 / 3, 1 / 3, 0.7):
        law = staircase_law(epsilon * (1 - 4e-15), 1.0)
        assert upper_delta(NoiseTerm(law, 1.0, 3), 3 * epsilon) < 1e-12
    loss = AtomicLoss(np.array([-1.0 - 1e-10, 1.0 + 1e-10]), np.array([0.25, 0.75]))
    grid = discretise_atoms(loss, 0.5, pessimistic=True)  # nearly on it: what lies above its point is slop
    assert 1e-10 <= grid.slop < 1.001e-10
    assert composed_delta([(grid, 2)], 1.0)[0] >= 0.75**2 * -math.expm1(1.0 - 2 * (1 + 1e-10))
