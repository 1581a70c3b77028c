"""Correlated Gaussian noise: boxes give P3 back, one-hot, histogram and counting queries have known optima."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise.allocation import NoiseAllocation
from mechdesign.noise.correlated import CorrelatedGaussian
from mechdesign.noise.correlated_noise import CorrelatedGaussianNoise, largest_spent
from mechdesign.problem.privacy import ApproximateDP

PRIVACY = ApproximateDP(1.0, 1e-6)


def box(lam: np.ndarray) -> np.ndarray:
    """Vertices of the box, one of each pair ±d."""
    return np.array(list(itertools.product([1], *[[1, -1]] * (len(lam) - 1)))) * lam


@settings(max_examples=15)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4), st.booleans(), st.integers(0, 2**32))
def test_a_box_gives_p3_back(lam, weighted, seed) -> None:
    lam = np.array(lam)
    weights = 10 ** np.random.default_rng(seed).uniform(-1, 1, len(lam)) if weighted else None
    result = CorrelatedGaussian(changes=box(lam), privacy=PRIVACY, weights=weights).solve()
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
    result = CorrelatedGaussian(changes=np.eye(k), privacy=PRIVACY).solve()
    profile = NoiseAllocation(noise="gaussian", sensitivities=np.ones(k), privacy=PRIVACY).solve()
    assert result.value * result.design.budget == pytest.approx(k, rel=1e-8)
    assert profile.value / result.value == pytest.approx(k, rel=1e-8)


@pytest.mark.parametrize("k", [2, 4, 7])
def test_histogram_of_replaced_records(k) -> None:
    # d = e_i - e_j: by symmetry Σ = c (I - 11ᵀ/K), dᵀΣ⁺d = 2/c, so the trace is 2(K - 1)/μ₀².
    eye = np.eye(k)
    vectors = [eye[i] - eye[j] for i in range(k) for j in range(i)]
    result = CorrelatedGaussian(changes=vectors, privacy=PRIVACY, span=True).solve()
    assert result.value * result.design.budget == pytest.approx(2 * (k - 1), rel=1e-8)
    assert "span" in result.notes[0]
    assert result.mechanism.sample(np.zeros((5, k)), rng=0).sum(axis=1) == pytest.approx(0, abs=1e-6)


def test_matrix_weights_change_variables() -> None:
    rng = np.random.default_rng(2)
    vectors, root = rng.normal(size=(6, 3)), rng.normal(size=(3, 3)) + 2 * np.eye(3)
    weighted = CorrelatedGaussian(changes=vectors, privacy=PRIVACY, weights=root.T @ root).solve()
    plain = CorrelatedGaussian(changes=vectors @ root.T, privacy=PRIVACY).solve()
    assert weighted.value == pytest.approx(plain.value, rel=1e-7)


@pytest.mark.parametrize(
    ("vectors", "rank"),
    [
        ([[1e12, 0.0], [0.0, 1.0]], 2),
        ([[1e9, 0.0], [1e9, 0.01]], 2),
        ([[1e-60, 0.0], [0.0, 1e-20], [0.0, 3e-21]], 2),
        ([[1.0, 2.0, 3.0], [0.5, 1.0, 1.5 + 2**-20], [3e4, 1.0, 1.0]], 3),
        ([[1.0, 1.0, 0.0], [1.0, 1.0, 2.0**-52], [0.0, 0.0, 1.0]], 2),
    ],
)
def test_no_direction_of_the_set_is_left_bare(vectors, rank) -> None:
    result = CorrelatedGaussian(changes=vectors, privacy=PRIVACY, span=True).solve()
    assert result.certificate.verify()
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


def test_prefix_counts_agree_with_the_program() -> None:
    design = CorrelatedGaussian(np.tri(6), PRIVACY)
    by_program, own = design.solve("clarabel"), design.solve()
    assert by_program.value == pytest.approx(own.value, rel=1e-6)
    assert own.gap <= 1e-9 and own.certificate.verify() and own.solver_report.solver == "fixed-point"
    many = CorrelatedGaussian(np.tri(128), PRIVACY).solve(gap=1e-6)
    assert many.gap <= 1e-6 and many.solver_report.iterations <= 30 and many.certificate.verify()
    stream = md.MatrixMechanism(md.Workload.prefix_sums(128), PRIVACY).solve()
    assert many.value == pytest.approx(stream.value, rel=2e-6)


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


# Counts of which one person changes a few ----------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 10))
def test_as_the_listed_set(n, c, most):
    c = min(c, n)
    result = md.CountsGaussian(n, c, PRIVACY, most=most, signed=False).solve()
    vectors = most * np.array([v for v in itertools.product((0.0, 1.0), repeat=n) if 0 < sum(v) <= c])
    listed = md.CorrelatedGaussian(vectors, PRIVACY).solve()
    assert result.value == pytest.approx(listed.value, rel=1e-7)
    assert (result.mechanism.mahalanobis(vectors) ** 2).max() <= result.design.budget * (1 + 1e-12)
    assert result.lower_bound <= listed.value * (1 + 1e-9)


def test_signed_against_every_pattern():
    result = md.CountsGaussian(4, 2, PRIVACY, signed=True).solve()
    vectors = np.array([v for v in itertools.product((-1.0, 0.0, 1.0), repeat=4) if 0 < np.abs(v).sum() <= 2])
    assert (result.mechanism.mahalanobis(vectors) ** 2).max() <= result.design.budget * (1 + 1e-12)
    assert result.value == pytest.approx(md.CorrelatedGaussian(vectors, PRIVACY).solve().value, rel=1e-6)


@given(st.floats(-99.0, 99.0))
@settings(max_examples=15)
def test_no_unit_breaks_the_budget(power):
    result = md.CountsGaussian(5, 2, md.ApproximateDP(1.0, 1e-6), most=10.0**power).solve()
    assert result.certificate.verify() and result.gap < 1e-9


def test_what_is_released_is_of_the_coordinates_that_are_proved():
    """Each coordinate once, in order; a lift has a row for each number and a column for each coordinate."""
    from campaign import files

    result = md.CorrelatedGaussian(np.eye(5), PRIVACY).solve()
    payload = json.loads(dumps(result))["payload"]
    for order in ((0, 0, 0, 0, 0), (0, 2, 2, 3, 4), (4, 3, 2, 1, 0), (0, 1, 2, 3)):
        with pytest.raises(md.DesignError, match="coordinates"):
            replace(result.mechanism, coordinates=order)
        payload["fields"]["mechanism"]["fields"]["coordinates"] = {"$tuple": list(order)}
        assert not any(accept(payload) for accept in files.ACCEPT.values())
    law = md.CorrelatedGaussian([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]], PRIVACY, span=True).solve().mechanism
    assert law.lift is not None and replace(law).release(np.ones(3)).shape == (3,)
    for lift in (
        None,
        law.lift[:-1],
        tuple(row[:-1] for row in law.lift),
        tuple((0.5, 0.5) for _ in law.lift),
    ):
        with pytest.raises(md.DesignError, match=r"lift|coordinates"):
            replace(law, lift=lift)


def test_directions_without_noise_are_infinitely_revealing() -> None:
    law = CorrelatedGaussianNoise(covariance=np.diag([1.0, 0.0]))
    assert law.mahalanobis([[2.0, 0.0], [0.0, 1.0]]).tolist() == [2.0, np.inf]
