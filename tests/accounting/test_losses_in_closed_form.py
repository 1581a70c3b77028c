"""Losses of SciPy's laws in closed form, the inverse of the others, and compositions that need no transform."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mechdesign.accounting import composition
from mechdesign.accounting.composition import GridLoss, composed_delta
from mechdesign.accounting.interval import NoiseTerm, delta_interval, upper_delta
from mechdesign.accounting.losses import loss_of
from mechdesign.noise.laws import osgt, staircase_law
from mechdesign.problem.law_moments import inverse_of


@pytest.mark.parametrize("law", [stats.hypsecant(scale=2.0), stats.truncnorm(-3, 3, scale=2.0)])
@pytest.mark.parametrize("size", [1e-6, 0.5, 3.0])
def test_the_closed_loss_is_that_of_the_density(law: Any, size: float) -> None:
    loss = loss_of(law, size)
    t = np.linspace(-0.9, 0.9, 41) * min(loss.edge, 16.0)
    differenced = law.logpdf(t - size / 2) - law.logpdf(t + size / 2)
    assert loss.loss(t) == pytest.approx(differenced, rel=1e-9, abs=1e-14)
    assert loss.inverse(loss.loss(t)) == pytest.approx(t, rel=1e-7, abs=1e-7)
    assert loss.sf(t) == pytest.approx(law.sf(t), rel=1e-9)


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


def test_what_is_infinite_hides_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded noise in many rounds: δ is what lies beyond its end; and noise far too small for its rounds: no transform is needed."""
    monkeypatch.setattr(composition, "convolve", lambda *a: pytest.fail("a transform was made"))
    terms = NoiseTerm(stats.truncnorm(-3, 3, scale=44493.0), 1.0)
    found = delta_interval(terms, 1.0, rounds=10**4, sampling_rate=1e-3)
    beyond = float(loss_of(terms.law, 1.0).sf(3 * 44493.0 - 1.0))
    assert -math.expm1(1e4 * math.log1p(-1e-3 * beyond)) in found and found.width < 1e-8
    steep = NoiseTerm(osgt(3000.0, scale=1 / 690), 1.0)
    assert upper_delta(steep, 1.0, rounds=10**5, sampling_rate=0.01) == 1.0


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


def test_atoms_on_the_grid_are_there_to_rounding() -> None:
    """Three staircases of a third of ε each are private."""
    for epsilon in (50 / 3, 1 / 3, 0.7):
        law = staircase_law(epsilon * (1 - 4e-15), 1.0)
        assert upper_delta(NoiseTerm(law, 1.0, 3), 3 * epsilon) < 1e-12
