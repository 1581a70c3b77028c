"""Bounded counts: an independent program, the theorem of Ghosh, Roughgarden and Sundararajan, exact privacy, false bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.problem.losses import Loss
from mechdesign.typing import Status
from mechdesign.verifier.verify import verify


def least(design: md.BoundedCount) -> float:
    """The whole program for scipy: a table, an excess for each ordered pair of neighbours and answer, and the worst loss."""
    n, s, delta = design.n, design.sensitivity, design.delta
    places, size = np.arange(n + 1), (n + 1) ** 2
    cost = Loss.of(design.loss)(places[None] - places[:, None].astype(float))
    pairs = [(x, z) for x in places for z in places if 0 < abs(x - z) <= s]
    extra = len(pairs) * (n + 1)
    upper, sides = [], []
    for k, (x, z) in enumerate(pairs):
        rows = sparse.lil_array((n + 1, size + extra + 1))
        for y in places:
            rows[y, x * (n + 1) + y] = 1
            rows[y, z * (n + 1) + y] = -math.exp(design.privacy.epsilon)
            rows[y, size + k * (n + 1) + y] = -1
        total = sparse.lil_array((1, size + extra + 1))
        total[0, size + k * (n + 1) : size + (k + 1) * (n + 1)] = 1
        upper += [rows, total]
        sides += [0.0] * (n + 1) + [delta]
    objective = np.zeros(size + extra + 1)
    if design.prior is None:
        objective[-1] = 1
        for x in places:
            row = sparse.lil_array((1, size + extra + 1))
            row[0, x * (n + 1) : (x + 1) * (n + 1)] = cost[x]
            row[0, size + extra] = -1
            upper.append(row)
            sides.append(0.0)
    else:
        objective[:size] = (design.prior[:, None] * cost).ravel()
    sums = sparse.hstack(
        [sparse.kron(sparse.eye_array(n + 1), np.ones((1, n + 1))), sparse.csr_array((n + 1, extra + 1))]
    )
    found = optimize.linprog(objective, sparse.vstack(upper).tocsr(), sides, sums, np.ones(n + 1))
    return float(found.fun)


LOSSES = ["absolute", "squared", {"absolute": 1, "squared": 0.2}, lambda t: np.maximum(2 * t, -t)]


def problem(seed: int) -> md.BoundedCount:
    """A random problem; half have a prior, a quarter of these with zeros, and a third is pure."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    epsilon, delta = float(np.exp(rng.uniform(-2.3, 1.5))), float(10 ** rng.uniform(-6, -0.5))
    privacy = md.PureDP(epsilon) if seed % 3 == 0 else md.ApproximateDP(epsilon, delta)
    prior = None
    if seed % 2:
        prior = rng.dirichlet(np.ones(n + 1))
        if seed % 4 == 1 and n > 2:
            prior[0] = 0
            prior /= prior.sum()
    return md.BoundedCount(n, privacy, LOSSES[seed % 4], int(rng.integers(1, min(n, 4) + 1)), prior)


@pytest.mark.parametrize("seed", range(50))
def test_an_independent_program_finds_the_same(seed) -> None:
    design = problem(seed)
    result, found = design.solve(), least(design)
    assert result.value == pytest.approx(found, rel=1e-6, abs=1e-7)
    assert result.lower_bound <= found * (1 + 1e-7) + 1e-8 and result.gap <= 1e-6
    assert result.status is Status.OPTIMAL and result.certificate.verify()


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_it_is_private_by_own_sums(seed) -> None:
    design = problem(seed)
    matrix, growth = design.solve().mechanism.matrix, math.exp(design.privacy.epsilon)
    for k in range(1, design.sensitivity + 1):
        for a, b in ((matrix[k:], matrix[:-k]), (matrix[:-k], matrix[k:])):
            assert np.maximum(a - growth * b, 0).sum(axis=1).max() <= design.delta + 1e-12


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
