"""The papers' coordinate descent, in its study, and the plans of noise that it shares with users: exact budgets, best allocations."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechdesign_studies.learning.data import Problem
from mechdesign_studies.learning.private_descent import fit, noise_plan, proximal

import mechdesign as md
from mechdesign.accounting import gaussian_mu
from mechdesign.learning import PrivatePCA
from mechdesign.learning.second_moments import second_moments

DP = md.ApproximateDP(1.0, 1e-6)
RNG = np.random.default_rng(1)
X = RNG.uniform(-1, 1, (400, 3)) * [1.0, 2.0, 5.0]
Y = X @ [1.0, -0.5, 0.1] + 0.05 * RNG.standard_normal(400)
LASSO = Problem("squares", X, Y, "l1", 1e-2)
RIDGE = Problem("classes", X, np.where(Y > 0.3, 1.0, -1.0), "l2", 1e-2)
CLIPS = np.array([0.1, 0.5, 3.0])


@pytest.mark.parametrize("p", [LASSO, RIDGE], ids=["lasso", "logistic"])
def test_without_noise_it_is_plain_coordinate_descent(p: Problem) -> None:
    clips = np.sqrt(p.smoothness / p.smoothness.sum())
    theta, path = np.zeros(3), []
    for _ in range(4):
        for i in range(3):
            score = X @ theta
            slope = score - p.y if p.lasso else -p.y / (1 + np.exp(p.y * score))
            g, step = np.clip(slope * X[:, i], -clips[i], clips[i]).mean(), 1 / p.smoothness[i]
            theta[i] = proximal(theta[i] - step * g, step * p.alpha, 1 if p.lasso else 2)
        path.append(theta.copy())
    found = fit(p, 0, privacy=md.ZeroConcentratedDP(1e20), clip=1.0, passes=4)
    np.testing.assert_allclose(found.path, path, rtol=1e-6, atol=1e-8)


def test_the_descent_ends_at_the_least_objective_and_says_when_it_diverges() -> None:
    found = fit(LASSO, 0, privacy=md.ZeroConcentratedDP(1e15), clip=1e3, passes=200)
    assert LASSO.objective(found.path[-1]) == pytest.approx(LASSO.least(), rel=1e-4)
    with pytest.raises(md.DesignError, match="diverged"):
        fit(LASSO, 0, privacy=DP, clip=1e200, passes=9, learning_rate=1e200)


KINDS = ("iid", "scale-perturb-rescale", "least-variance")


@pytest.mark.parametrize("allocation", KINDS)
@pytest.mark.parametrize("noise_on", ["gradient", "update"])
def test_all_passes_spend_the_gaussian_budget(allocation: str, noise_on: str) -> None:
    plan = noise_plan(LASSO, DP, CLIPS, 7, "gaussian", allocation, noise_on)
    spent = ((2 * CLIPS / len(X) / plan.scales) ** 2).sum()
    budget = gaussian_mu(DP.epsilon, DP.delta) ** 2
    assert budget * (1 - 1e-6) < spent <= budget * (1 + 1e-12)
    assert plan.calibration.certificate.verify() and plan.calibration.design.rounds == 7


def test_each_allocation_is_the_best_at_what_it_is_named_for() -> None:
    def variances(allocation: str, noise_on: str) -> np.ndarray:
        return noise_plan(LASSO, DP, CLIPS, 3, "gaussian", allocation, noise_on).scales[0] ** 2

    found = {k: variances(k, "gradient") for k in KINDS}
    update = {k: variances(k, "update") / LASSO.smoothness**2 for k in KINDS}
    assert min(KINDS, key=lambda k: found[k].sum()) == "least-variance"
    assert min(KINDS, key=lambda k: update[k].sum()) == "least-variance"
    assert np.ptp(found["iid"]) < 1e-9 * found["iid"][0] and np.ptp(update["iid"]) < 1e-9 * update["iid"][0]
    table = np.array([[4.0, 4.0, 4.0], [1.0, 1.0, 1.0]])
    changing = noise_plan(LASSO, DP, CLIPS, 2, "gaussian", table, "gradient").scales
    np.testing.assert_allclose(changing[0], 4 * changing[1], rtol=1e-12)


# -- plans of noise, which are public ----------------------------------------------------------------------------


def plan(**changes: Any) -> md.learning.NoisePlan:
    options = {"noise": "laplace", "privacy": DP, "sensitivities": CLIPS, "rounds": 2, **changes}
    return md.learning.noise_plan(options.pop("noise"), **options)


def test_pure_laplace_matches_the_allocation_design() -> None:
    found = plan(privacy=md.PureDP(1.0), rounds=4)
    design = md.NoiseAllocation("laplace", 4 * CLIPS, md.PureDP(1.0)).solve()
    np.testing.assert_allclose(found.scales[0], math.sqrt(2) * design.mechanism.scales, rtol=1e-9)


# -- Private principal components: the exact query, the noise of least variance, bad input -------------------

STRETCHED = np.random.default_rng(2).standard_normal((3000, 4)) * [3.0, 1.0, 0.2, 0.1]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-300, 1e-3, 0.9999999, 1.0, 1e3, 1e150]),
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
    model = PrivatePCA(privacy=DP, bounds=2.0, random_state=0).fit(STRETCHED)
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
    model = PrivatePCA(privacy=md.PureDP(2.0), noise="laplace", bounds=3.0, random_state=0).fit(STRETCHED)
    wanted = (4 + 1) / 2 * 9.0 / 2.0 * math.sqrt(2)
    assert model.noise_scales_ == (pytest.approx(wanted), pytest.approx(wanted))


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), None])
def test_noise_has_the_stated_scales(seed: int | None) -> None:
    exact, unit = second_moments(STRETCHED, 2.0)
    exact = (exact / unit).astype(float) * 4.0
    first = PrivatePCA(privacy=DP, bounds=2.0, random_state=seed).fit(STRETCHED)
    states = [None] * 150 if seed is None else list(range(150))
    options = {"privacy": DP, "bounds": 2.0, "noise": first.privacy_}
    off = np.array(
        [PrivatePCA(random_state=s, **options).fit(STRETCHED).second_moments_ - exact for s in states]
    )
    for (i, j), scale in (((0, 0), first.noise_scales_[0]), ((0, 2), first.noise_scales_[1])):
        assert off[:, i, j].std() == pytest.approx(scale, rel=0.25)
        assert abs(off[:, i, j].mean()) < 4 * scale / math.sqrt(150)
    np.testing.assert_array_equal(off, off.transpose(0, 2, 1))


def test_components_are_those_of_the_noisy_matrix() -> None:
    model = PrivatePCA(2, privacy=md.ApproximateDP(20.0, 1e-3), bounds=6.0, random_state=0).fit(STRETCHED)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-12)
    assert abs(model.components_[0, 0]) > 0.999 and abs(model.components_[1, 1]) > 0.999
    np.testing.assert_allclose(
        model.transform(STRETCHED), (STRETCHED - model.mean_) @ model.components_.T, atol=1e-9
    )
    assert 0 < model.explained_variance_ratio_.sum() <= 1 and model.get_feature_names_out().size == 2


def test_bounds_of_columns_are_those_of_the_farthest_corner() -> None:
    """What lies beyond is clipped; the noise is that of the distance to a corner, from the middle or a centre that is given."""
    low, high = np.array([-1.0, 0.0, -2.0, 5.0]), np.array([1.0, 4.0, 2.0, 6.0])
    for center, far in ((None, [1, 2, 2, 0.5]), ([0.0] * 4, [1, 4, 2, 6])):
        wide, one = (
            PrivatePCA(privacy=md.ApproximateDP(20.0, 1e-3), bounds=b, center=center, random_state=0).fit(x)
            for b, x in (((low, high), 100 * STRETCHED), (float(np.linalg.norm(far)), STRETCHED))
        )
        assert wide.noise_scales_ == pytest.approx(one.noise_scales_, rel=1e-9)
        clipped = np.clip(100 * STRETCHED, low, high) - wide.mean_
        assert wide.mean_ == pytest.approx([0, 2, 0, 5.5] if center is None else center)
        assert np.abs(wide.second_moments_ - clipped.T @ clipped).max() < 6 * wide.noise_scales_[
            0
        ] + 1e-5 * len(STRETCHED)
