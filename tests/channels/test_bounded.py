"""Bounded counts: an independent program, the theorem of Ghosh, Roughgarden and Sundararajan, exact privacy, false bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.problem.losses import Loss
from mechdesign.typing import Status
from mechdesign.verifier.verify import verify


@pytest.mark.parametrize("loss", ["absolute", "squared"])
def test_pure_privacy_is_the_geometric_mechanism_after_a_remap(loss) -> None:
    """Ghosh, Roughgarden and Sundararajan (2012): for every prior, by the best answer for each answer of the mechanism."""
    rng, n, epsilon = np.random.default_rng(3), 15, 0.6
    a, places = math.exp(-epsilon), np.arange(n + 1)
    matrix = a ** np.abs(places[:, None] - places) * (1 - a) / (1 + a)
    matrix[:, [0, -1]] /= 1 - a
    cost = Loss.of(loss)(places[None] - places[:, None].astype(float))
    for _ in range(4):
        prior = rng.dirichlet(np.ones(n + 1))
        remapped = float((matrix.T @ (prior[:, None] * cost)).min(axis=1).sum())
        result = md.BoundedCount(n, md.PureDP(epsilon), loss, prior=prior).solve()
        assert result.value == pytest.approx(remapped, rel=1e-7)
    worst = md.BoundedCount(n, md.PureDP(epsilon), loss).solve()
    assert worst.value <= (matrix * cost).sum(axis=1).max()


def test_large_counts_approach_additive_noise_from_below() -> None:
    privacy = md.ApproximateDP(1, 0.01)
    free = md.OptimalNoise(privacy, loss="squared", integer=True).solve()
    found = [md.BoundedCount(n, privacy, "squared").solve().value for n in (5, 10, 20, 40)]
    assert found == sorted(found) and found[-1] <= free.value * (1 + 1e-9)
    assert found[-1] == pytest.approx(free.value, rel=0.01)


def test_what_a_result_says() -> None:
    result = md.BoundedCount(6, md.ApproximateDP(1, 0.05), "squared").solve()
    assert str(result.among) == "every mechanism with answers 0 to 6"
    answers = result.mechanism.release(np.full(1000, 6))
    assert answers.min() >= 0 and answers.max() <= 6
    assert result.errors().standard_deviation ** 2 == pytest.approx(result.value, rel=1e-9)
    assert "truncated geometric" in str(result.alternatives()["mechanism"].tolist())
    again = loads(dumps(result))
    assert again.certificate.verify()
    assert all(holds for *_, holds in verify(dumps(result)).rows)
    prior = md.BoundedCount(6, md.PureDP(1), prior=np.full(7, 1 / 7)).solve()
    assert all(holds for *_, holds in verify(dumps(prior)).rows)


@pytest.mark.parametrize(
    "bad",
    [
        {"n": 501},
        {"n": 4, "sensitivity": 5},
        {"n": 4, "privacy": md.PureDP(1e-9)},
        {"n": 4, "privacy": md.ZeroConcentratedDP(1.0)},
    ],
)
def test_bad_input(bad) -> None:
    with pytest.raises(DesignError):
        md.BoundedCount(**{"privacy": md.PureDP(1), **bad})


def test_a_time_limit_leaves_the_geometric_mechanism() -> None:
    result = md.BoundedCount(60, md.ApproximateDP(0.5, 1e-4)).solve(time_limit=1e-3)
    assert result.status is Status.LIMIT and result.certificate.verify() and result.lower_bound == 0


@pytest.mark.parametrize(("n", "epsilon", "at"), [(2, 15.0, 1), (6, 12.0, 0), (8, 30.0, 8), (3, 100.0, 2)])
def test_a_prior_of_one_value_is_answered_by_it(n: int, epsilon: float, at: int) -> None:
    result = md.BoundedCount(n, md.PureDP(epsilon), prior=np.eye(n + 1)[at]).solve()
    assert (result.value, result.lower_bound, result.gap) == (0, 0, 0)
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


@pytest.mark.parametrize("privacy", [md.PureDP(60.0), md.ApproximateDP(100.0, 0.01)])
def test_an_epsilon_beyond_the_solver_leaves_what_is_known(privacy: md.PureDP | md.ApproximateDP) -> None:
    result = md.BoundedCount(8, privacy, prior=[0.1] * 5 + [0.2, 0.1, 0.1, 0.1]).solve()
    assert 0 <= result.lower_bound <= result.value < 1e-20 and result.certificate.verify()


@pytest.mark.parametrize(
    ("n", "s", "epsilon", "delta"), [(9, 3, 8.0, 1e-9), (12, 2, 6.0, 1e-9), (8, 3, 10.0, 1e-8)]
)
def test_a_small_delta_keeps_the_optimum(n: int, s: int, epsilon: float, delta: float) -> None:
    result = md.BoundedCount(n, md.ApproximateDP(epsilon, delta), sensitivity=s).solve()
    assert result.gap < 1e-6 and all(holds for *_, holds in verify(dumps(result)).rows)
