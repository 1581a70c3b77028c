"""Private principal components: the exact query, the noise of least variance, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.accounting import gaussian_mu
from mechdesign.learning import PrivatePCA
from mechdesign.learning.pca import second_moments

DP = md.ApproximateDP(1.0, 1e-6)
X = np.random.default_rng(2).standard_normal((3000, 4)) * [3.0, 1.0, 0.2, 0.1]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-300, 1e-3, 0.9999999, 1.0, 1e3, 1e300]),
    rows=st.sampled_from([1, 63, 64, 4096]),
    norm=st.sampled_from([0.3, 1.0, 7.0]),
)
def test_another_record_adds_its_own_matrix_of_norm_at_most_one(
    seed: int, size: float, rows: int, norm: float
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows + 1, 3))
    x[-1] *= size * norm / np.linalg.norm(x[-1])
    with_it, unit = second_moments(x, norm)
    without, _ = second_moments(x[:-1], norm)
    change = with_it - without
    diagonal, off = change[np.diag_indices(3)], change[np.triu_indices(3, 1)]
    exact = sum(int(v) ** 2 for v in diagonal) + 2 * sum(int(v) ** 2 for v in off)
    assert exact <= unit**2
    root = np.clip(
        x[-1] / norm / max(1.0, np.linalg.norm(x[-1] / np.abs(x[-1]).max()) * np.abs(x[-1]).max() / norm),
        -1,
        1,
    )
    np.testing.assert_allclose((change / unit).astype(float), np.outer(root, root), atol=4e-6)


def test_the_gaussian_spends_its_budget_at_every_record_of_full_norm() -> None:
    model = PrivatePCA(privacy=DP, bounds=2.0, random_state=0).fit(X)
    diagonal, off = model.noise_scales_
    budget = gaussian_mu(DP.epsilon, DP.delta) ** 2
    z = np.random.default_rng(0).standard_normal((1000, 4))
    z *= 2.0 / np.linalg.norm(z, axis=1, keepdims=True)
    outer = np.einsum("ni,nj->nij", z, z)
    upper = np.triu_indices(4)
    scale = np.where(upper[0] == upper[1], diagonal, off)
    spent = ((outer[:, upper[0], upper[1]] / scale) ** 2).sum(axis=1)
    np.testing.assert_allclose(spent, budget, rtol=1e-6)
    assert spent.max() <= budget * (1 + 1e-12)
    assert model.privacy_.certificate.verify()


def test_pure_laplace_has_the_derived_scale() -> None:
    model = PrivatePCA(privacy=md.PureDP(2.0), noise="laplace", bounds=3.0, random_state=0).fit(X)
    wanted = (4 + 1) / 2 * 9.0 / 2.0 * math.sqrt(2)
    assert model.noise_scales_ == (pytest.approx(wanted), pytest.approx(wanted))


@pytest.mark.parametrize("seed", [0, None])
def test_noise_has_the_stated_scales(seed: int | None) -> None:
    exact, unit = second_moments(X, 2.0)
    exact = (exact / unit).astype(float) * 4.0
    first = PrivatePCA(privacy=DP, bounds=2.0, random_state=seed).fit(X)
    states = [None] * 150 if seed is None else list(range(150))
    options = {"privacy": DP, "bounds": 2.0, "noise": first.privacy_}
    off = np.array([PrivatePCA(random_state=s, **options).fit(X).second_moments_ - exact for s in states])
    for (i, j), scale in (((0, 0), first.noise_scales_[0]), ((0, 2), first.noise_scales_[1])):
        assert off[:, i, j].std() == pytest.approx(scale, rel=0.25)
        assert abs(off[:, i, j].mean()) < 4 * scale / math.sqrt(150)
    np.testing.assert_array_equal(off, off.transpose(0, 2, 1))


def test_components_are_those_of_the_noisy_matrix() -> None:
    model = PrivatePCA(2, privacy=md.ApproximateDP(20.0, 1e-3), bounds=6.0, random_state=0).fit(X)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-12)
    assert abs(model.components_[0, 0]) > 0.999 and abs(model.components_[1, 1]) > 0.999
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(X)), X @ model.components_.T @ model.components_, atol=1e-9
    )
    assert 0 < model.explained_variance_ratio_.sum() <= 1 and model.get_feature_names_out().size == 2


def test_bounds_of_columns_are_those_of_the_farthest_corner() -> None:
    """What lies beyond is clipped; the noise is that of the distance to a corner, from the middle or a centre that is given."""
    low, high = np.array([-1.0, 0.0, -2.0, 5.0]), np.array([1.0, 4.0, 2.0, 6.0])
    for center, far in ((None, [1, 2, 2, 0.5]), ([0.0] * 4, [1, 4, 2, 6])):
        wide, one = (
            PrivatePCA(privacy=md.ApproximateDP(20.0, 1e-3), bounds=b, center=center, random_state=0).fit(x)
            for b, x in (((low, high), 100 * X), (float(np.linalg.norm(far)), X))
        )
        assert wide.noise_scales_ == pytest.approx(one.noise_scales_, rel=1e-9)
        clipped = np.clip(100 * X, low, high) - wide.mean_
        assert wide.mean_ == pytest.approx([0, 2, 0, 5.5] if center is None else center)
        assert np.abs(wide.second_moments_ - clipped.T @ clipped).max() < 6 * wide.noise_scales_[
            0
        ] + 1e-5 * len(X)


def test_bad_input_is_named() -> None:
    holes = X.copy()
    holes[0, 0] = math.inf
    for changes, data, word in (
        ({"bounds": None}, X, "bounds = None: must be stated"),
        ({"n_components": 5}, X, "n_components"),
        ({"allocation": "spr"}, X, "allocation"),
        ({"center": [0.0]}, X, "center"),
        ({"noise": "discrete_laplace"}, X, "whole answers"),
        ({}, holes, "infinite"),
    ):
        with pytest.raises(ValueError, match=word):
            PrivatePCA(**{"privacy": DP, "bounds": 1.0, **changes}).fit(data)
