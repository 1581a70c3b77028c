"""Disparity measures against their definitions, and what majorization says about the loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechdesign.errors import DesignError
from mechdesign.noise.allocation import NoiseAllocation
from mechdesign.noise.allocation_page import disparity, gini, layer_profile, majorizes
from mechdesign.problem.privacy import ApproximateDP, PureDP

profiles = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30).filter(lambda v: max(v) > 1e-3)


@given(profiles)
def test_gini_is_its_double_sum(lam) -> None:
    x = np.array(lam)
    expected = np.abs(x[:, None] - x).sum() / (2 * len(x) * x.sum())
    assert gini(lam) == pytest.approx(expected, abs=1e-12)
    assert 1 / len(x) - 1e-12 <= disparity(lam) <= 1 + 1e-12


@given(profiles, st.integers(0, 2**32))
def test_a_robin_hood_transfer_is_majorized(lam, seed) -> None:
    rng = np.random.default_rng(seed)
    x = np.array(lam)
    i, j = rng.integers(0, len(x), 2)
    y, share = x.copy(), rng.uniform(0, 0.5)
    y[i], y[j] = x[i] + share * (x[j] - x[i]), x[j] + share * (x[i] - x[j])
    assert majorizes(x, y)
    assert gini(y) <= gini(x) + 1e-9


def test_majorization_orders_the_loss() -> None:
    """Squares with equal sums: the Gaussian loss depends on ‖λ‖₁ alone, Schur-concave in λ²."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = rng.dirichlet(np.ones(6))
        y = np.sort(x)[::-1].copy()
        y[0], y[-1] = y[0] - 0.3 * (y[0] - y[-1]), y[-1] + 0.3 * (y[0] - y[-1])
        assert majorizes(x, y) and not majorizes(y, x)
        one, other = (
            NoiseAllocation("gaussian", np.sqrt(v), ApproximateDP(1.0, 1e-6)).solve() for v in (x, y)
        )
        assert one.value < other.value


def test_extremes() -> None:
    assert disparity(np.ones(5)) == 1 and gini(np.ones(5)) == 0
    assert disparity([0, 0, 0, 1]) == 0.25 and gini([0, 0, 0, 1]) == 0.75
    assert not majorizes([3, 0], [1, 1])


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, 4.0, np.inf])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_layers_cover_every_change_within_the_clip(norm, noise) -> None:
    """Flat changes, changes of one coordinate, and random ones."""
    clips, sizes = [1.0, 2.0], [20, 3]
    profile, groups = layer_profile(clips, sizes, norm=norm, noise=noise)
    privacy = ApproximateDP(1.0, 1e-6) if noise == "gaussian" else PureDP(1.0)
    result = NoiseAllocation(noise=noise, sensitivities=profile, privacy=privacy, groups=groups).solve()
    spend = 2 if noise == "gaussian" else 1
    rng = np.random.default_rng(0)
    worst = 0.0
    for clip, size, group in zip(clips, sizes, groups):
        changes = np.vstack([np.eye(size), np.ones((1, size)), rng.exponential(size=(50, size)) ** 3])
        changes *= clip / np.linalg.norm(changes, norm, axis=1, keepdims=True)
        spent = ((np.abs(changes) / result.mechanism.scales[group]) ** spend).sum(axis=1)
        assert spent.max() <= ((profile[group] / result.mechanism.scales[group]) ** spend).sum() * (1 + 1e-12)
        worst += spent.max()
    assert worst <= result.design.budget * (1 + 1e-12)


def test_unequal_scales_in_a_clipped_layer_are_refused() -> None:
    """A change along one coordinate then spends more than the profile says."""
    profile, groups = layer_profile([1.0, 2.0], [4, 1])
    uneven = {"weights": [1.0, 2, 3, 4, 5]}
    made = NoiseAllocation(
        noise="gaussian", sensitivities=profile, privacy=ApproximateDP(1.0, 1e-6), **uneven
    )
    assert [g.tolist() for g in made.groups] == [g.tolist() for g in groups]
    assert np.ptp(made.solve().mechanism.scales[:4]) == 0
    for other in ([[0, 1], [2, 3], [4]], [[0], [1], [2], [3], [4]]):
        with pytest.raises(DesignError, match="together"):
            replace(made, sensitivities=profile, groups=other)
