"""Private coordinate descent: scikit-learn's conventions, exact sensitivities, the noise that was accounted, bad input."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import mechdesign as md
from learning.test_counted import EXPECTED_FAILURES
from mechdesign.accounting import gaussian_mu
from mechdesign.accounting.interval import DeltaInterval
from mechdesign.learning import (
    PrivacyLeakWarning,
    PrivateCoordinateDescentClassifier,
    PrivateCoordinateDescentRegressor,
    PrivatePCA,
    noise_plan,
)
from mechdesign.learning.coordinate_descent import NoisyAnswers, descend, largest_whole, objective

DP = md.ApproximateDP(1.0, 1e-6)
ESTIMATORS = (PrivateCoordinateDescentRegressor, PrivateCoordinateDescentClassifier, PrivatePCA)
RNG = np.random.default_rng(1)
X = RNG.uniform(-1, 1, (400, 3)) * [1.0, 2.0, 5.0]
Y = X @ [1.0, -0.5, 0.1] + 0.05 * RNG.standard_normal(400)


def regressor(**changes: Any) -> PrivateCoordinateDescentRegressor:
    return PrivateCoordinateDescentRegressor(
        **{"privacy": DP, "smoothness": [1 / 3, 4 / 3, 25 / 3], "clip": 1.0, "random_state": 0, **changes}
    )


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_scikit_learn_accepts_it(kind: type) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        public = {"norm": 1.0} if kind is PrivatePCA else {"clip": 1.0}
        found = check_estimator(
            kind(privacy=DP, **public), expected_failed_checks=EXPECTED_FAILURES, on_skip=None
        )
    assert sum(r["status"] == "passed" for r in found) > 30


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_there_is_no_default_budget(kind: type) -> None:
    with pytest.raises(TypeError, match="privacy"):
        kind()
    with pytest.raises(md.DesignError, match="privacy"):
        kind(privacy=None).fit(X, np.sign(Y))


@settings(max_examples=60)
@given(
    loss=st.sampled_from(["squared", "logistic"]),
    clip=st.floats(1e-6, 1e6),
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1.0, 1e-8, 1e8, 1e99]),
)
def test_a_replaced_record_moves_each_sum_by_no_more_than_is_accounted(
    loss: str, clip: float, seed: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    x, x_other = (size * rng.standard_normal((7, 2)) for _ in range(2))
    x_other[1:] = x[1:]
    y = np.sign(rng.standard_normal(7)) if loss == "logistic" else size * rng.standard_normal(7)
    y_other = y.copy()
    y_other[0] = -y[0]
    answers = [rng.normal() for _ in range(6)]  # what was released before is the same for both
    seen: list[list[tuple[int, int]]] = []
    for features, target in ((x, y), (x_other, y_other)):
        totals: list[tuple[int, int]] = []

        def answer(l: int, i: int, total: int, change: int, totals: list[tuple[int, int]] = totals) -> float:
            totals.append((total, change))
            return answers[2 * l + i]

        descend(
            features, target, loss=loss, clips=np.full(2, clip), steps=np.full(2, 0.1), penalty=np.zeros(2),
            power=2, passes=3, answer=answer,
        )  # fmt: skip
        seen.append(totals)
    whole = largest_whole(7)
    for (a, change), (b, _) in zip(*seen):
        assert change == 2 * whole and abs(a - b) <= change
        assert abs(a) <= 7 * whole <= 2**52


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("power", [1, 2])
def test_without_noise_it_is_plain_coordinate_descent(loss: str, power: int) -> None:
    y = Y if loss == "squared" else np.where(Y > 0.3, 1.0, -1.0)
    smooth = (X * X).mean(axis=0) * (1 if loss == "squared" else 0.25)
    clips, steps, penalty = np.array([0.3, 0.4, 2.0]), 1 / smooth, np.array([0.1, 0.02, 0.0])
    theta, path = np.zeros(3), []
    for _ in range(4):
        for i in range(3):
            score = X @ theta
            slope = score - y if loss == "squared" else -y / (1 + np.exp(y * score))
            g = np.clip(slope * X[:, i], -clips[i], clips[i]).mean()
            moved = theta[i] - steps[i] * g
            weight = steps[i] * penalty[i]
            theta[i] = np.sign(moved) * max(abs(moved) - weight, 0) if power == 1 else moved / (1 + weight)
        path.append(theta.copy())
    found = descend(
        X, y, loss=loss, clips=clips, steps=steps, penalty=penalty, power=power, passes=4,
        answer=lambda l, i, total, change: total / change * 2 * clips[i] / len(X),
    )  # fmt: skip
    np.testing.assert_allclose(found, path, rtol=1e-8, atol=1e-10)


@given(total=st.integers(-(2**52), 2**52), shift=st.floats(1e-6, 1.0), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_exact_answers_are_nearest_multiples_of_the_lattice(total: int, shift: float, seed: int) -> None:
    plan = noise_plan("gaussian", privacy=DP, sensitivities=[1.0, shift], scales=[1.0, 1.0])
    noisy = NoisyAnswers(plan)
    step, change = Fraction(plan.calibration.mechanism.lattice.step), 2**40
    for i, unit in enumerate((1.0, shift)):
        exact = Fraction(total) * Fraction(plan.shifts[0, i]) / change
        nearest = math.floor(exact / step + Fraction(1, 2))
        wanted = float((nearest + noisy._drawn[0][i]) * step) * plan.units[0, i]
        assert noisy.answer(0, i, total, change) == wanted
        assert plan.units[0, i] * plan.shifts[0, i] == pytest.approx(unit, rel=1e-15)


@pytest.mark.parametrize("allocation", ["iid", "scale-perturb-rescale", "least-variance", "least-harm"])
@pytest.mark.parametrize("noise_on", ["gradient", "update"])
def test_all_passes_spend_the_gaussian_budget(allocation: str, noise_on: str) -> None:
    model = regressor(allocation=allocation, noise_on=noise_on, passes=7, clip=[0.1, 0.5, 3.0]).fit(X, Y)
    spent = ((2 * model.clips_ / len(X) / model.noise_scales_) ** 2).sum()
    budget = gaussian_mu(DP.epsilon, DP.delta) ** 2
    assert budget * (1 - 1e-6) < spent <= budget * (1 + 1e-12)
    assert model.privacy_.certificate.verify() and model.privacy_.mechanism.epsilon(DP.delta) <= DP.epsilon
    assert model.privacy_.design.rounds == 7


def variances(**changes: Any) -> np.ndarray:
    return regressor(passes=3, **changes).fit(X, Y).noise_scales_[0] ** 2


def test_each_allocation_is_the_best_at_what_it_is_named_for() -> None:
    clips = [0.1, 0.5, 3.0]
    kinds = ("iid", "scale-perturb-rescale", "least-variance", "least-harm")
    smooth = np.array([1 / 3, 4 / 3, 25 / 3])
    found = {k: variances(allocation=k, clip=clips) for k in kinds}
    update = {k: variances(allocation=k, clip=clips, noise_on="update") / smooth**2 for k in kinds}
    assert min(kinds, key=lambda k: found[k].sum()) == "least-variance"
    assert min(kinds, key=lambda k: update[k].sum()) == "least-variance"
    assert min(kinds, key=lambda k: (found[k] / smooth).sum()) == "least-harm"
    assert np.ptp(found["iid"]) < 1e-9 * found["iid"][0] and np.ptp(update["iid"]) < 1e-9 * update["iid"][0]


def test_least_harm_is_scale_perturb_rescale_with_clips_shared_out_by_smoothness() -> None:
    np.testing.assert_allclose(
        variances(allocation="least-harm"), variances(allocation="scale-perturb-rescale"), rtol=1e-12
    )


def test_pure_laplace_matches_the_allocation_design() -> None:
    clips = np.array([0.1, 0.5, 3.0])
    options = {"privacy": md.PureDP(1.0), "noise": "laplace", "clip": clips, "passes": 4}
    model = regressor(allocation="least-variance", **options).fit(X, Y)
    design = md.NoiseAllocation(
        noise="laplace", sensitivities=4 * 2 * clips / len(X), privacy=md.PureDP(1.0)
    ).solve()
    np.testing.assert_allclose(model.noise_scales_[0], math.sqrt(2) * design.mechanism.scales, rtol=1e-9)


def test_scales_may_differ_from_pass_to_pass() -> None:
    table = np.array([[4.0, 4.0, 4.0], [1.0, 1.0, 1.0]])
    model = regressor(allocation=table, passes=2).fit(X, Y)
    np.testing.assert_allclose(model.noise_scales_[0], 4 * model.noise_scales_[1], rtol=1e-12)
    spent = ((2 * model.clips_ / len(X) / model.noise_scales_) ** 2).sum()
    assert spent <= gaussian_mu(DP.epsilon, DP.delta) ** 2 * (1 + 1e-12)


def test_noise_is_drawn_with_the_stated_scales() -> None:
    first = regressor(passes=1, random_state=None, alpha=0.0).fit(X, Y)
    again = [clone(first).set_params(noise=first.privacy_).fit(X, Y) for _ in range(200)]
    steps = 1 / first.smoothness_
    moves = np.array([m.path_[0][0] for m in again])
    assert np.std(moves) == pytest.approx(steps[0] * first.noise_scales_[0, 0], rel=0.25)
    assert len(set(moves)) > 190


def test_a_seed_repeats_and_its_absence_does_not() -> None:
    one, two = regressor().fit(X, Y), regressor().fit(X, Y)
    np.testing.assert_array_equal(one.path_, two.path_)
    assert np.any(
        regressor(random_state=None).fit(X, Y).path_ != regressor(random_state=None).fit(X, Y).path_
    )


def test_objective_and_predictions() -> None:
    model = regressor(fit_intercept=True, privacy=md.ApproximateDP(50.0, 1e-2)).fit(X, Y + 3)
    assert model.intercept_ == model.path_[-1, 3] and model.coef_.shape == (3,)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)
    by_hand = np.mean((model.predict(X) - Y - 3) ** 2) / 2 + 1e-3 * np.sum(model.coef_**2) / 2
    assert model.objectives(X, Y + 3)[-1] == pytest.approx(by_hand, rel=1e-12)
    y = np.array([1.0, -1.0])
    value = objective(X[:2], y, np.ones(3), loss="logistic", penalty=np.full(3, 2.0), power=1)
    assert value == pytest.approx(np.mean(np.log1p(np.exp(-y * (X[:2] @ np.ones(3))))) + 6, rel=1e-12)


def test_probabilities() -> None:
    labels = np.where(Y > 0, "b", "a")
    model = PrivateCoordinateDescentClassifier(
        privacy=md.ApproximateDP(30.0, 1e-3), smoothness=[1 / 12, 1 / 3, 25 / 12], random_state=0, passes=30
    ).fit(X, labels)
    chance = model.predict_proba(X)
    np.testing.assert_allclose(chance.sum(axis=1), 1.0)
    assert np.all((chance[:, 1] > 0.5) == (model.predict(X) == "b")) and model.score(X, labels) > 0.9


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "clip": ({"clip": 0.0}, "clip"),
    "clips": ({"clip": [1.0, 0.0, 1.0]}, "clip"),
    "too few clips": ({"clip": [1.0, 1.0]}, "clip"),
    "nan clip": ({"clip": math.nan}, "clip"),
    "passes": ({"passes": 0}, "passes"),
    "rate": ({"learning_rate": -1.0}, "learning_rate"),
    "alpha": ({"alpha": -1.0}, "alpha"),
    "penalty": ({"penalty": "elastic"}, "penalty"),
    "allocation": ({"allocation": "best"}, "allocation"),
    "no allocation": ({"allocation": None}, "allocation"),
    "scales": ({"allocation": [1.0, 0.0, 1.0]}, "scales"),
    "table": ({"allocation": np.ones((2, 3)), "passes": 3}, "scales"),
    "smoothness": ({"smoothness": [1.0, 1.0]}, "smoothness"),
    "infinite": ({"smoothness": [1.0, 1.0, math.inf]}, "smoothness"),
    "privacy": ({"privacy": 1.0}, "privacy"),
    "noise": ({"noise": "cauchy"}, "noise"),
    "discrete": ({"noise": "discrete_gaussian"}, "whole answers"),
    "pure gaussian": ({"privacy": md.PureDP(1.0)}, "delta"),
    "noise_on": ({"noise_on": "labels"}, "noise_on"),
    "intercept": ({"fit_intercept": "yes"}, "fit_intercept"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_are_named(name: str) -> None:
    changes, word = BAD[name]
    with pytest.raises(md.DesignError, match=word):
        regressor(**changes).fit(X, Y)


def test_bad_data_are_named() -> None:
    holes = X.copy()
    holes[3, 1] = math.nan
    with pytest.raises(md.DataError, match="missing"):
        regressor().fit(holes, Y)
    with pytest.raises(md.DesignError, match="only one class"):
        PrivateCoordinateDescentClassifier(privacy=DP).fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match="Only binary"):
        PrivateCoordinateDescentClassifier(privacy=DP).fit(X, np.arange(len(X)) % 3)


def test_what_leaks_is_warned_of() -> None:
    with pytest.warns(PrivacyLeakWarning, match="second moments"):
        regressor(smoothness=None).fit(X, Y)
    model = regressor().fit(X, Y)
    with pytest.warns(PrivacyLeakWarning, match="fitted again"):
        model.fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor().fit(X, Y)


def test_a_calibration_is_used_again_for_its_own_question_only() -> None:
    first = regressor(noise="laplace", passes=2).fit(X, Y)
    again = regressor(noise=first.privacy_, passes=2).fit(X, Y)
    assert again.privacy_ is first.privacy_
    for changes in ({"passes": 3}, {"privacy": md.ApproximateDP(0.5, 1e-6)}, {"allocation": "iid"}):
        with pytest.raises(md.DesignError, match="another question"):
            regressor(noise=first.privacy_, **{"passes": 2, **changes}).fit(X, Y)


def test_a_calibration_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    first = regressor(noise="laplace", passes=2).fit(X, Y).privacy_
    first.save(tmp_path / "noise.json")
    loaded = md.load(tmp_path / "noise.json")
    assert regressor(noise=loaded, passes=2).fit(X, Y).privacy_ is loaded
    narrow = replace(first.mechanism, law=stats.laplace(scale=first.mechanism.law.std() / 10))
    inside = replace(first.proofs[0], spent=DeltaInterval(0.0, first.proofs[0].spent.lower / 2))
    for doctored in (
        replace(first, mechanism=narrow),
        replace(first, mechanism=narrow, proofs=(inside,)),
        replace(first, proofs=(inside, *first.proofs[1:])),
    ):
        with pytest.raises(md.DesignError, match="own checks"):
            regressor(noise=doctored, passes=2).fit(X, Y)
    with pytest.raises(md.DesignError, match="not certified"):
        regressor(noise=replace(first, proofs=()), passes=2).fit(X, Y)


def test_without_scikit_learn_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import mechdesign as md\n"
        "try: md.learning.PrivatePCA\n"
        "except md.MissingExtra as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "mechdesign[learning]" in out
