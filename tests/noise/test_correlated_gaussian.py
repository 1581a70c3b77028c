"""Correlated Gaussian noise: boxes give P3 back, one-hot and histogram queries have known optima."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechdesign.errors import DesignError
from mechdesign.files import load
from mechdesign.noise.allocation.design import NoiseAllocation
from mechdesign.noise.correlated.design import CorrelatedGaussian
from mechdesign.noise.correlated.noise import CorrelatedGaussianNoise, largest_spent
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.problem.span import span_of, spans_all

PRIVACY = ApproximateDP(1.0, 1e-6)


def box(lam: np.ndarray) -> np.ndarray:
    """Vertices of the box, one of each pair ±d."""
    return np.array(list(itertools.product([1], *[[1, -1]] * (len(lam) - 1)))) * lam


@settings(max_examples=15)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4), st.booleans(), st.integers(0, 2**32))
def test_a_box_gives_p3_back(lam, weighted, seed) -> None:
    lam = np.array(lam)
    weights = 10 ** np.random.default_rng(seed).uniform(-1, 1, len(lam)) if weighted else None
    result = CorrelatedGaussian(vectors=box(lam), privacy=PRIVACY, weights=weights).solve()
    p3 = NoiseAllocation(noise="gaussian", sensitivities=lam, privacy=PRIVACY, weights=weights).solve()
    assert result.value == pytest.approx(p3.value, rel=1e-8)
    assert result.lower_bound <= p3.value * (1 + 1e-11) and result.gap <= 1e-8
    # The trace is flat to first order around the optimum: half the digits in Σ.
    assert (
        np.abs(result.mechanism.covariance - np.diag(p3.mechanism.scales**2)).max()
        <= 1e-3 * (p3.mechanism.scales**2).max()
    )


@pytest.mark.parametrize("k", [2, 5, 9])
def test_one_hot_needs_k_times_less_than_its_profile(k) -> None:
    result = CorrelatedGaussian(vectors=np.eye(k), privacy=PRIVACY).solve()
    profile = NoiseAllocation(noise="gaussian", sensitivities=np.ones(k), privacy=PRIVACY).solve()
    assert result.value * result.design.budget == pytest.approx(k, rel=1e-8)
    assert profile.value / result.value == pytest.approx(k, rel=1e-8)


@pytest.mark.parametrize("k", [2, 4, 7])
def test_histogram_of_replaced_records(k) -> None:
    # d = e_i - e_j: by symmetry Σ = c (I - 11ᵀ/K), dᵀΣ⁺d = 2/c, so the trace is 2(K - 1)/μ₀².
    eye = np.eye(k)
    vectors = [eye[i] - eye[j] for i in range(k) for j in range(i)]
    result = CorrelatedGaussian(vectors=vectors, privacy=PRIVACY, span=True).solve()
    assert result.value * result.design.budget == pytest.approx(2 * (k - 1), rel=1e-8)
    assert "span" in result.notes[0]
    assert result.mechanism.rvs(5, random_state=0).sum(axis=1) == pytest.approx(0, abs=1e-6)


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32))
def test_budget_is_met_and_the_bound_proved(m, k, seed) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(m, k)) * 10 ** rng.uniform(-2, 2, k)
    result = CorrelatedGaussian(vectors=vectors, privacy=PRIVACY, span=True).solve()
    used = result.mechanism.mahalanobis(vectors) ** 2
    assert used.max() <= result.design.budget
    assert used.max() >= result.design.budget * (1 - 1e-8)
    assert result.gap <= 1e-6
    assert (result.audit()["slack"] >= 0).all()
    # Independent check of the bound: identical noise and any common ellipsoid cost at least as much.
    sphere = (np.linalg.norm(vectors, axis=1).max() ** 2 / result.design.budget) * k
    assert result.lower_bound <= sphere * (1 + 1e-9)
    second = vectors.T @ vectors
    ellipsoid = second + 1e-9 * np.trace(second) * np.eye(k)
    scale = np.einsum("ij,ij->i", vectors @ np.linalg.inv(ellipsoid), vectors).max() / result.design.budget
    assert result.lower_bound <= scale * np.trace(ellipsoid) * (1 + 1e-6)


def test_matrix_weights_change_variables() -> None:
    rng = np.random.default_rng(2)
    vectors, root = rng.normal(size=(6, 3)), rng.normal(size=(3, 3)) + 2 * np.eye(3)
    weighted = CorrelatedGaussian(vectors=vectors, privacy=PRIVACY, weights=root.T @ root).solve()
    plain = CorrelatedGaussian(vectors=vectors @ root.T, privacy=PRIVACY).solve()
    assert weighted.value == pytest.approx(plain.value, rel=1e-7)


def test_samples_and_round_trip(tmp_path) -> None:
    result = CorrelatedGaussian(vectors=[[1.0, 0.0], [1.0, 1.0]], privacy=ZeroConcentratedDP(0.5)).solve()
    draws = result.mechanism.rvs(40_000, random_state=3)
    assert np.cov(draws.T) == pytest.approx(
        result.mechanism.covariance, abs=0.05 * result.mechanism.covariance.max()
    )
    result.save(tmp_path / "r.json")
    assert np.array_equal(load(tmp_path / "r.json").mechanism.covariance, result.mechanism.covariance)
    assert "active" in result.summary()


def test_directions_without_noise_are_infinitely_revealing() -> None:
    law = CorrelatedGaussianNoise(covariance=np.diag([1.0, 0.0]))
    assert law.mahalanobis([[2.0, 0.0], [0.0, 1.0]]).tolist() == [2.0, np.inf]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"vectors": []}, "vectors"),
        ({"vectors": [[np.nan, 1.0]]}, "finite"),
        ({"vectors": [[0.0, 0.0]]}, "needs no noise"),
        ({"vectors": "x"}, "numbers"),
        ({"vectors": [[1e308, 1.0], [1.0, 1e308]]}, "doubles square"),
        ({"vectors": [[1.0, 2.0]], "weights": [1.0]}, "shape"),
        ({"vectors": [[1.0, 2.0]], "weights": [1.0, -1.0]}, "positive definite"),
        ({"vectors": [[1.0, 2.0]], "weights": [[1.0, 0.5], [0.0, 1.0]]}, "must be symmetric"),
        ({"vectors": [[1.0, 2.0]], "privacy": PureDP(1.0)}, "laplace"),
        ({"vectors": [[1.0, 2.0]], "privacy": ApproximateDP(1.0, 0.0)}, "delta > 0"),
    ],
)
def test_bad_input_is_named(arguments, message) -> None:
    with pytest.raises(DesignError, match=message):
        CorrelatedGaussian(**{"privacy": PRIVACY, **arguments})


@pytest.mark.parametrize(
    "vectors",
    [
        [[1e12, 0.0], [0.0, 1.0]],
        [[1e9, 0.0], [1e9, 0.01]],
        [[1e-60, 0.0], [0.0, 1e-20], [0.0, 3e-21]],
        [[1.0, 2.0, 3.0], [0.5, 1.0, 1.5 + 2**-20], [3e4, 1.0, 1.0]],
    ],
)
def test_no_direction_of_the_set_is_left_bare(vectors) -> None:
    """Singular values below 1e-10 of the largest were dropped.

    Was: covariance [[c, 0], [0, 0]] for the first, a direction without noise; rank one, spent [1, 1] and an infinite
    privacy loss for the second.
    """
    result = CorrelatedGaussian(vectors=vectors, privacy=PRIVACY, span=True).solve()
    assert result.certificate.verify()
    rank = exact_rank(vectors)
    used = result.design.spent(result.mechanism)
    assert result.mechanism.span.rank == rank and np.isfinite(used).all()
    assert used.max() == pytest.approx(1.0, rel=1e-12)
    # exact: dᵀΣ⁻¹d = |R d_P|² in rationals
    whitening = [[Fraction(x) for x in row] for row in result.mechanism.whitening.tolist()]
    for v in vectors:
        chosen = [Fraction(v[p]) for p in result.mechanism.span.coordinates]
        spent = sum(sum(a * b for a, b in zip(row, chosen)) ** 2 for row in whitening)
        assert spent <= Fraction(result.design.budget)
    assert result.gap <= 1e-8


def exact_rank(vectors) -> int:
    """Rank in rational arithmetic, by plain elimination."""
    rows = [[Fraction(x) for x in row] for row in vectors]
    rank = 0
    for column in range(len(rows[0])):
        pivot = next((r for r in rows[rank:] if r[column]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rows.insert(rank, pivot)
        rest = [[a - r[column] / pivot[column] * b for a, b in zip(r, pivot)] for r in rows[rank + 1 :]]
        rows = rows[: rank + 1] + rest
        rank += 1
    return rank


def test_prefix_counts_take_no_time_and_agree_with_the_program() -> None:
    """Was: 17 s for 20 prefix counts, by the semidefinite program."""
    vectors = np.tril(np.ones((20, 20)))
    fast = CorrelatedGaussian(vectors=vectors, privacy=PRIVACY).solve()
    assert fast.gap <= 1e-9 and fast.certificate.verify() and fast.solver_report.solver == "fixed-point"
    small = np.tril(np.ones((6, 6)))
    by_program = CorrelatedGaussian(vectors=small, privacy=PRIVACY).solve("clarabel")
    assert by_program.value == pytest.approx(
        CorrelatedGaussian(vectors=small, privacy=PRIVACY).solve().value, rel=1e-6
    )


def test_a_covered_vector_does_not_slow_the_fixed_point_down() -> None:
    vectors = [[1.0, 0.0], [0.0, 1.0], [2**-0.5, 2**-0.5]]
    result = CorrelatedGaussian(vectors=vectors, privacy=PRIVACY).solve()
    assert result.solver_report.iterations < 100 and result.gap <= 1e-9


def test_doctored_evidence_fails() -> None:
    certificate = CorrelatedGaussian(vectors=[[1.0, 0.0], [1.0, 2.0]], privacy=PRIVACY).solve().certificate
    assert certificate.verify()
    law, asked = certificate.law, certificate.question
    for changes in (
        {"law": replace(law, whitening=law.whitening * 1.001)},
        {"law": replace(law, budget=law.budget * 1.001)},
        {"value": certificate.value * 0.999},
        {"lower_bound": certificate.lower_bound * 1.001},
        {"question": replace(asked, vectors=asked.vectors * 1.001)},
        {"proofs": ()},
    ):
        assert not replace(certificate, **changes).verify(), changes


def test_prefix_counts_at_scale() -> None:
    """Was: the span of 1,024 prefix counts took 42 s, and each of 43 steps at 256 a singular value decomposition."""
    vectors = np.tril(np.ones((256, 256)))
    result = CorrelatedGaussian(vectors, PRIVACY).solve(gap=1e-6)
    assert result.gap <= 1e-6 and result.solver_report.iterations <= 30 and result.certificate.verify()
    assert result.value * result.design.budget == pytest.approx(1631.403, rel=1e-5)


def test_doubles_prove_a_span_or_say_nothing() -> None:
    near = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 2.0**-52], [0.0, 0.0, 1.0]])
    assert spans_all(np.vander(np.linspace(0.5, 1.5, 6))) and spans_all(np.diag([1e-300, 1.0, 1e300]))
    assert not spans_all(near) and not spans_all(np.ones((5, 2))) and not spans_all(np.ones((1, 2)))
    # what doubles do not prove, exact elimination decides
    assert span_of(near).rank == exact_rank(near.tolist()) == 2


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.integers(1, 5), st.integers(-3, 3), st.integers(0, 2**32))
def test_what_is_spent_is_the_exact_maximum(m, k, spread, seed) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, (m, k)) * 10.0 ** (spread * rng.integers(0, 100, k))
    whitening = rng.normal(size=(k, k)) * 10.0 ** (-spread * rng.integers(0, 100, k))
    found, exact = largest_spent(whitening, vectors)
    r = [[Fraction(x) for x in row] for row in whitening.tolist()]
    most = max(
        sum(sum((a * Fraction(b) for a, b in zip(row, v)), Fraction(0)) ** 2 for row in r)
        for v in vectors.tolist()
    )
    assert exact
    if np.isinf(found):
        assert most > Fraction(float(np.finfo(float).max))
    else:
        assert most <= Fraction(found) <= most * (1 + Fraction(1, 2**50)) + Fraction(1, 10**320)


def test_many_covered_vectors_converge() -> None:
    """Was: 20,000 steps and a gap of 7e-7; most of these 298 vectors are within the ellipsoid of the others."""
    supports = [s for c in (1, 2, 3) for s in itertools.combinations(range(12), c)]
    vectors = np.array([[1.0 * (i in s) for i in range(12)] for s in supports]) @ np.tril(np.ones((12, 12))).T
    assert CorrelatedGaussian(vectors, PRIVACY).solve().gap <= 1e-8
