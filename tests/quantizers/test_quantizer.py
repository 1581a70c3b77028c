"""Quantizers: property tests against brute force, quadrature and fractions; published bounds; bad input."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from independent import check_selection_law
from scipy import integrate, stats
from strategies import priors, selections

import mechdesign as md
from mechdesign.evidence.exact import exp_lower
from mechdesign.quantizers.exact_law import RationalTable
from mechdesign.quantizers.mechanism import duchi
from mechdesign.quantizers.proofs import law_claims
from mechdesign.quantizers.sampling import ExactSampler

UNIFORM = stats.uniform(-1, 2)


@pytest.mark.slow
@given(selections(), st.data(), st.sampled_from(["absolute", "squared", {"absolute": 1, "squared": 0.3}]))
def test_exact_error_equals_quadrature(drawn, data, loss) -> None:
    """Against double-exponential quadrature of the density on every cell, and sums over atoms."""
    bins, left, right, (lower, upper) = drawn
    mechanism = md.Quantizer.from_selection(bins, left, right, (lower, upper))
    prior = md.Prior.of(data.draw(priors(lower, upper)), (lower, upper))
    edges = np.unique(np.clip(np.concatenate([bins, [lower, upper]]), lower, upper))
    found = integrate.tanhsinh(
        lambda t: mechanism.loss_at(np.clip(t, lower, upper), loss) * prior.pdf(t),
        edges[:-1],
        edges[1:],
        atol=1e-13,
    )
    total = float(found.integral.sum())
    points, weights = prior.atoms
    total += float(np.sum(weights * mechanism.loss_at(points, loss))) if points.size else 0.0
    assert mechanism.expected_loss(prior, loss) == pytest.approx(total, rel=1e-9, abs=1e-10)


@pytest.mark.slow
@given(selections())
def test_worst_case_is_the_supremum(drawn) -> None:
    bins, left, right, input_range = drawn
    mechanism = md.Quantizer.from_selection(bins, left, right, input_range)
    x = np.linspace(*input_range, 301)
    for loss in ("absolute", "squared"):
        worst, where = mechanism.worst_case_loss(loss)
        assert mechanism.loss_at(x, loss).max() <= worst * (1 + 1e-12)
        assert input_range[0] <= where <= input_range[1]
    assert mechanism.worst_case_loss(lambda t: np.abs(t))[0] == pytest.approx(
        mechanism.worst_case_loss()[0], rel=1e-9
    )


@pytest.mark.slow
@given(selections(most=6))
def test_certified_mechanisms_pass_the_independent_checker(drawn) -> None:
    bins, left, right, input_range = drawn
    mechanism = md.Quantizer.from_selection(bins, left, right, input_range).certified()
    loss = mechanism.privacy_loss()
    assert check_selection_law(mechanism.law, exp_lower(loss))
    assert not check_selection_law(mechanism.law, exp_lower(loss - 1e-12))
    assert all(claim.holds for claim in law_claims(mechanism.law, 0.0))


@pytest.mark.slow
@given(st.integers(4, 12), st.floats(0.1, 8), st.floats(0.05, 4))
def test_erm_respects_its_theorems(m: int, gamma: float, delta: float) -> None:
    """Theorem 1: ε < γ + log(2m(c+Δ)/c), true for Δ ≥ c. Theorem 2: error ≤ (4/γ) log(m)(c+Δ) + (2c+2Δ)/(m−1)."""
    mechanism = md.Quantizer.erm(np.linspace(-1 - delta, 1 + delta, m), gamma, (-1, 1))
    if delta >= 1:
        assert mechanism.privacy_loss() < gamma + math.log(2 * m * (1 + delta))
    worst, _ = mechanism.worst_case_loss()
    assert worst <= 4 / gamma * math.log(m) * (1 + delta) + (2 + 2 * delta) / (m - 1)


def test_theorem_1_of_erm_fails_as_printed_for_small_margins() -> None:
    """At Δ = c/4, m = 4, γ = 1 the exact loss is 3.4486, the printed bound 3.3026: p(c, 1) vanishes with Δ."""
    mechanism = md.Quantizer.erm(np.linspace(-1.25, 1.25, 4), 1.0, (-1, 1)).certified()
    assert mechanism.privacy_loss() > 1 + math.log(2 * 4 * 1.25) + 0.14


@given(st.integers(3, 12), st.floats(0.02, 0.9), st.floats(0.05, 4))
def test_rqm_respects_its_bound(m: int, q: float, delta: float) -> None:
    """log(2(1−q)²(c+Δ)/Δ) + m log 1/(1−q)."""
    mechanism = md.Quantizer.rqm(np.linspace(-1 - delta, 1 + delta, m), q, (-1, 1))
    assert (
        mechanism.privacy_loss()
        <= math.log(2 * (1 - q) ** 2 * (1 + delta) / delta) + m * math.log(1 / (1 - q)) + 1e-12
    )


def test_published_parameters() -> None:
    """RQM and ERM rows of Table 1: 51-point means to three decimals, exact means and exact ε to 1e-4."""
    points = np.linspace(-1, 1, 51)
    rows = [
        (md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.220, (-1, 1)), 1.9929, 1.9973, 0.99877),
        (md.Quantizer.rqm([-2.6, -2.6 / 3, 2.6 / 3, 2.6], 0.498, (-1, 1)), 1.3101, 1.3139, 1.49964),
        (md.Quantizer.erm([-5.1, -0.1, 0.1, 5.1], 0.026, (-1, 1)), 2.2160, 2.2062, 0.99974),
        (md.Quantizer.erm([-2.7, -0.4, 0.4, 2.7], 0.043, (-1, 1)), 1.3035, 1.2982, 1.49978),
    ]
    for mechanism, fifty_one, exact, loss in rows:
        assert mechanism.loss_at(points).mean() == pytest.approx(fifty_one, abs=5e-4)
        assert mechanism.expected_loss(UNIFORM) == pytest.approx(exact, abs=1e-4)
        assert mechanism.privacy_loss() == pytest.approx(loss, abs=1e-4)
        assert mechanism.certified().privacy_loss() == pytest.approx(mechanism.privacy_loss(), abs=1e-12)


@given(st.integers(0, 10_000))
def test_a_table_in_floats_has_a_rational_law_next_to_it(seed: int) -> None:
    """Rows sum to 1, what is unbiased stays so, what is impossible stays impossible, and nothing moves by more than rounding."""
    rng = np.random.default_rng(seed)
    m, segments = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    bins, knots = np.sort(rng.normal(size=m)) * 3, np.sort(rng.uniform(-1, 1, segments + 1))
    tables = rng.dirichlet(np.full(m, rng.choice([0.1, 1.0])), (2, segments))
    tables *= rng.random(tables.shape) < 0.9
    assume(np.diff(bins).min() > 1e-3 and np.diff(knots).min() > 1e-3 and (tables.sum(axis=2) > 0).all())
    tables /= tables.sum(axis=2, keepdims=True)
    own = md.Quantizer(bins, knots, *tables)
    law = own.certified().law
    assert isinstance(law, RationalTable)
    for exact, floats in ((law.starts, own.starts), (law.ends, own.ends)):
        for row, given_row in zip(exact, floats):
            assert sum(row) == 1 and min(row) >= 0
            assert [p == 0 for p in row] == [p == 0 for p in given_row]
            assert np.allclose([float(p) for p in row], given_row, rtol=1e-12, atol=1e-15)


def test_an_unbiased_table_is_exactly_unbiased_when_it_is_made_exact() -> None:
    for made in (md.Quantizer.erm([-2.5, -0.5, 0.1, 0.6, 2.0], 0.8, (-1, 1)), duchi(0.3)):
        law = md.Quantizer(made.bins, made.knots, made.starts, made.ends).certified().law
        assert all(claim.holds for claim in law_claims(law, 0.0))
    biased = md.Quantizer([-1.0, 0.0, 1.0], [-1.0, 1.0], [[0.2, 0.5, 0.3]], [[0.2, 0.5, 0.3]])
    assert biased.certified().privacy_loss() == 0.0
    assert md.vectors.IntegerTable.of(biased).bias() == pytest.approx(1.1)


def test_impossible_outputs_lose_everything() -> None:
    # On [-1, 0) the output 1 needs the right index 3, whose weight is zero there.
    left = [[1.0, 0.0], [0.5, 0.5]]
    right = [[1.0, 0.0], [0.0, 1.0]]
    assert md.Quantizer.from_selection([-1.0, 0.0, 1.0], left, right, (-1, 1)).privacy_loss() == math.inf


def test_a_fresh_zero_probability_that_never_occurs_is_no_loss() -> None:
    mechanism = md.Quantizer.interpolated([-2, 0, 2], [-1, 1], [[0.75, 0, 0.25], [0.25, 0, 0.75]])
    assert mechanism.privacy_loss() == pytest.approx(math.log(3), abs=1e-13)


def test_callable_loss_is_integrated() -> None:
    mechanism = md.Quantizer.rqm([-2, -1, 1, 2], 0.4, (-1, 1))
    for prior in (UNIFORM, md.clipped(stats.norm(0.3, 0.6), -1, 1), np.array([-0.5, 0.25, 1.0])):
        assert mechanism.expected_loss(prior, np.square) == pytest.approx(
            mechanism.expected_loss(prior, "squared"), rel=1e-10
        )
        assert mechanism.expected_loss(
            prior, lambda t: np.maximum(0, np.abs(t) - 1)
        ) < mechanism.expected_loss(prior)


def test_metric_loss() -> None:
    rows = [[0.75, 0.25], [0.25, 0.75]]
    assert md.Quantizer.interpolated([-2, 2], [-1, 1], rows).metric_loss() == pytest.approx(1.0)
    assert (
        md.Quantizer.erm([-2, -0.5, 0.5, 2], 0.4, (-1, 1)).metric_loss() == math.inf
    )  # it jumps at the bins


def chi_square(mechanism: md.Quantizer, x: float, draws: np.ndarray) -> float:
    counts = np.array([(draws == b).sum() for b in mechanism.bins])
    assert counts.sum() == len(draws)
    return float(stats.chisquare(counts, mechanism.probabilities(x) * len(draws)).pvalue)


@pytest.mark.parametrize("x", [-1.0, -0.5, 0.123, 0.7, 1.0])
def test_samplers_follow_the_law(x: float) -> None:
    """χ² at 10⁶ draws, fast and exact; and every mean is the input."""
    mechanism = md.Quantizer.erm([-2.5, -0.5, 0.1, 0.6, 2.0], 0.8, (-1, 1)).certified()
    fast = mechanism.sample(np.full(10**6, x), rng=7)
    assert chi_square(mechanism, x, fast) > 1e-4
    exact = mechanism.release(np.full(10**6, x))
    # Not seeded, by design: one false alarm in 10⁸ runs.
    assert chi_square(mechanism, x, exact) > 1e-8


def test_exact_sampler_uses_the_certified_weights() -> None:
    law = md.Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)).certified().law
    sampler = ExactSampler(law)
    sampler.draw(np.zeros(8))
    for segment in range(len(law.knots) - 1):
        for end in (0, 1):
            weights = sampler.weights(segment, end)
            assert [Fraction(w, sum(weights)) for w in weights] == law.row(segment, end)


def test_sampling_is_reproducible_and_keeps_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = md.Quantizer.rqm(np.linspace(-2, 2, 16), 0.3, (-1, 1))
    x = np.random.default_rng(0).uniform(-1, 1, (3, 4, 5))
    assert mechanism.sample(x, rng=1).shape == x.shape == mechanism.certified().release(x).shape
    assert np.array_equal(mechanism.sample(x, rng=1), mechanism.sample(x, rng=np.random.default_rng(1)))
    big = np.random.default_rng(0).uniform(-1, 1, 600_000)
    assert np.array_equal(mechanism.sample(big, rng=5), mechanism.sample(big, rng=5))
    assert abs(np.mean(mechanism.sample(big, rng=5) - big)) < 5 * 2 / math.sqrt(len(big))
    drawn = mechanism.sample(big, rng=5)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert np.array_equal(mechanism.sample(big, rng=5), drawn)
    for bad in (math.nan, 1.5, np.nextafter(-1, -2)):
        big[[-7, -3]] = bad, 2.0
        with pytest.raises(md.DesignError, match="x: inputs must be"):
            mechanism.sample(big, rng=5)


def test_bad_inputs() -> None:
    mechanism = md.Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1))
    with pytest.raises(md.DesignError, match=r"x: inputs must be in \[-1, 1\]; or pass clip=True"):
        mechanism.sample([0.0, 1.5])
    with pytest.raises(md.DesignError, match="x: inputs must be in"):
        mechanism.sample(-1.0000001)
    assert mechanism.probabilities(7.0, clip=True).tolist() == mechanism.probabilities(1.0).tolist()
    with pytest.raises(md.DesignError, match="x: inputs must be finite"):
        mechanism.sample([0.0, float("nan")], clip=True)
    with pytest.raises(md.DesignError, match="cover the input range"):
        md.Quantizer.rqm([-2, -1, 0.5], 0.5, (-1, 1))
    with pytest.raises(md.DesignError, match="no exact law"):
        mechanism.release(0.0)
    for bins, said in (
        ([1.0, 0.0, 2.0], "out of order"),
        ([-1.0, 0.0, 0.0, 1.0], "repeated"),
        ("abc", "finite numbers"),
    ):
        with pytest.raises(md.DesignError, match=said):
            md.Quantizer.rqm(bins, 0.3, (-1, 1))
    for end in (1e-310, 1e308):
        with pytest.raises(md.DesignError, match="other units"):
            md.Quantizer.interpolated([-end, end], [-end, end], [[1, 0], [0, 1]])
    assert mechanism.sample([], rng=0).shape == (0,)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_tensors(seed: int) -> None:
    torch = pytest.importorskip("torch")
    mechanism = md.Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1))
    x = torch.full((20_000,), 0.3, dtype=torch.float32)
    y = mechanism.sample(x, rng=seed)
    assert y.dtype == x.dtype and y.device == x.device and y.shape == x.shape
    counts = np.array([(y == float(b)).sum().item() for b in mechanism.bins])
    assert stats.chisquare(counts, mechanism.probabilities(0.3) * len(x)).pvalue > 1e-6
    with pytest.raises(md.DesignError, match="clip=True"):
        mechanism.sample(x * 10, rng=seed)
