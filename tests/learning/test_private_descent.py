"""The papers' coordinate descent, in its study, and the plans of noise that it shares with users: exact budgets, best allocations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mechdesign_studies.learning.data import Problem
from mechdesign_studies.learning.private_descent import fit, noise_plan, proximal

import mechdesign as md
from mechdesign.accounting import gaussian_mu

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
