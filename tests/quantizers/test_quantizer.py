"""Quantizers: property tests against brute force, quadrature and fractions; published bounds; bad input."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from independent import check_selection_law
from mechdesign_studies.quantizers.baselines import PiecewiseMechanism
from scipy import integrate, stats
from strategies import selections

import mechdesign as md
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.quantizers.mechanism import SelectionFamilies, rqm_family
from mechdesign.quantizers.moments import BITS, Moments
from mechdesign.quantizers.proofs import expected_upper, law_claims, worst_upper
from mechdesign.quantizers.sampling import ExactSampler
from mechdesign.quantizers.table import RationalTable

UNIFORM = stats.uniform(-1, 2)


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


# -- Continuous mechanisms, vectors, the biased extension, and the OpenDP export, each against an independent oracle


@given(st.floats(0.1, 8), st.floats(-1, 1))
def test_piecewise_mechanism(epsilon: float, x: float) -> None:
    """Normalised, unbiased, ε-LDP, with Wang et al.'s variance."""
    m = PiecewiseMechanism(epsilon)
    left = (m.reach + 1) / 2 * x - (m.reach - 1) / 2
    right = left + m.reach - 1
    low = m.high * math.exp(-epsilon)
    mass = m.high * (m.reach - 1) + low * (m.reach + 1)
    mean = m.high * (right**2 - left**2) / 2 + low * (left**2 - right**2) / 2
    assert mass == pytest.approx(1, rel=1e-12) and mean == pytest.approx(x, abs=1e-9 * m.reach)
    root = math.exp(epsilon / 2)
    variance = x * x / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
    assert m.loss_at(x, "squared") == pytest.approx(variance, rel=1e-9)
    density = lambda y: (m.high if left <= y <= right else low) * abs(y - x)  # noqa: E731
    points = sorted({p for p in (left, right, x) if -m.reach < p < m.reach})
    edges = [-m.reach, *points, m.reach]
    absolute = sum(integrate.quad(density, a, b, epsabs=1e-12)[0] for a, b in zip(edges, edges[1:]))
    assert m.loss_at(x) == pytest.approx(absolute, rel=1e-7)
    assert m.loss_at(x, np.abs) == pytest.approx(float(m.loss_at(x)), rel=1e-9)


def test_vectors_split_the_budget() -> None:
    coordinate = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).solve().mechanism
    vector = md.CoordinateQuantizer(coordinate, 10, scale=0.01)
    assert 10.0 <= vector.privacy_loss() <= 10.000001
    x = np.random.default_rng(0).uniform(-0.01, 0.01, (20_000, 10))
    y = vector.sample(x, rng=1)
    assert set(np.unique(np.round(y / 0.01, 9))) == {-3.0, -0.5, 0.5, 3.0}
    error = ((y - x) ** 2).sum(axis=1)
    assert abs(error.mean() - vector.expected_squared_error(UNIFORM)) < 4.5 * error.std() / math.sqrt(len(x))
    assert vector.release(x[:7]).shape == (7, 10)
    with pytest.raises(md.DesignError, match="last axis must be 10"):
        vector.sample(np.zeros((3, 4)))
    with pytest.raises(md.DesignError, match="dimension"):
        md.CoordinateQuantizer(coordinate, 0)


@settings(max_examples=60)
@given(st.integers(2, 7), st.floats(0.1, 0.9), st.floats(0, 4), st.floats(0, 2), st.integers(0, 2**32 - 1))
def test_biased_mechanisms(m: int, q: float, beta: float, delta: float, seed: int) -> None:
    """Rows sum to 1; no sampled pair exceeds the exact loss; the pairwise formula agrees; the error is the quadrature's."""
    family = rqm_family(m, q)
    bins = np.linspace(-1 - delta, 1 + delta, m)
    mechanism = md.quantizers.BiasedQuantizer(SelectionFamilies(bins, family, family), beta, (-1, 1))
    x = np.random.default_rng(seed).uniform(-1, 1, 50)
    p = mechanism.probabilities(x)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    sampled = np.log(p.max(axis=0) / p.min(axis=0)).max()
    assert sampled <= mechanism.privacy_loss() + 1e-12
    if math.isfinite(mechanism.privacy_loss()):
        assert sampled - 1e-12 <= mechanism.proved_loss() <= mechanism.privacy_loss() + 1e-12
    k = int(np.argmin(np.abs(x)))
    j = min(int(np.sum(bins <= x[k])), m - 1)
    naive = np.zeros(m)
    for l in range(1, j + 1):
        for r in range(j + 1, m + 1):
            weights = np.exp(-beta * np.abs(np.array([bins[l - 1], bins[r - 1]]) - x[k]))
            pair = family[j - 1, l - 1] * family[m - j - 1, m - r]
            naive[[l - 1, r - 1]] += pair * weights / weights.sum()
    np.testing.assert_allclose(p[k], naive, atol=1e-12)
    assert np.abs(mechanism.bias(x)).max() <= mechanism.max_bias() + 1e-3
    edges = np.unique(np.clip(np.concatenate([[-1, 1], bins]), -1, 1))
    true = sum(
        integrate.quad(lambda t: (mechanism.probabilities(t) @ np.abs(bins - t)) / 2, a, b)[0]
        for a, b in zip(edges, edges[1:])
    )
    assert mechanism.expected_loss(UNIFORM) == pytest.approx(true, rel=1e-6)


# -- MVU as a design: Table 1, more outputs, its programs against the optimum on the grid --------------------

POINTS = np.linspace(-1, 1, 51)


@pytest.mark.parametrize(
    ("epsilon", "near", "far", "error"),
    [(0.5, 3.60, 4.34, 3.959), (1.0, 1.69, 2.42, 1.930), (1.5, 1.11, 1.83, 1.254)],
)
def test_mvu_reproduces_table_1(epsilon: float, near: float, far: float, error: float) -> None:
    result = md.MVU(m=4, privacy=md.PureDP(epsilon), input_range=(-1, 1)).solve(starts=1)
    np.testing.assert_allclose(result.mechanism.bins, [-far, -near, near, far], rtol=0.01)
    assert result.mechanism.loss_at(POINTS).mean() == pytest.approx(error, rel=0.01)
    assert result.certificate.verify() and result.mechanism.privacy_loss() <= epsilon


# -- Certificates: what they prove is true, and nothing false verifies


CLIPPED = md.clipped(stats.norm(0.3, 0.4), -1, 1)
CASES: dict[str, dict[str, Any]] = {
    "uniform": {"bins": [-3, -0.5, 0.5, 3], "prior": UNIFORM},
    "squared": {"bins": np.linspace(-2.5, 2.5, 16), "prior": UNIFORM, "loss": "squared"},
    "beta": {"bins": [-3, -0.5, 0.6, 3], "prior": stats.beta(2, 3, -1, 2), "loss": {"absolute": 1, "squared": 0.3}},
    "clipped": {"bins": [-2.5, -0.3, 0.4, 2.2], "prior": CLIPPED},
    "truncated": {"bins": [-2.5, -0.3, 0.3, 2.5], "prior": md.truncated(stats.norm(0, 0.4), -1, 1)},
    "samples": {"bins": [-2.5, -0.3, 0.4, 2.2], "prior": [-1, -0.3, 0.2, 0.2, 0.9, 1.0], "input_range": (-1, 1)},
    "symmetric samples": {"bins": [-2.5, -0.3, 0.3, 2.5], "prior": [-1, -0.3, 0, 0.3, 1.0], "input_range": (-1, 1)},
    "many samples": {"bins": np.linspace(-2.5, 2.4, 8), "prior": np.sin(np.arange(60.0)), "input_range": (-1, 1)},
    "histogram": {
        "bins": [-2.5, -0.3, 0.4, 2.2],
        "prior": stats.rv_histogram((np.array([1.0, 3, 2]), np.array([-1, -0.2, 0.3, 1])), density=False)(),
    },
    "worst case": {"bins": [-2.5, -0.3, 0.4, 2.2], "prior": UNIFORM, "objective": "worst"},
    "symmetric worst case": {"bins": [-2.5, -0.3, 0.3, 2.5], "prior": UNIFORM, "objective": "worst", "loss": "squared"},
    "cap": {"bins": np.linspace(-2.5, 2.5, 8), "prior": UNIFORM, "max_mse": 2.0},
    "cap with point masses": {"bins": np.linspace(-2.5, 2.5, 6), "prior": CLIPPED, "max_mse": 2.2},
    "bias": {"bins": [-2.5, -0.3, 0.4, 2.2], "prior": UNIFORM, "max_bias": 0.1},
    "symmetric bias": {"bins": [-2.5, -0.3, 0.3, 2.5], "prior": UNIFORM, "max_bias": 0.3, "loss": "squared"},
    "far from zero": {"bins": [1.7e9 - 3, 1.7e9, 1.7e9 + 3], "prior": stats.uniform(1.7e9 - 1, 2)},
    "two outputs": {"bins": [-2.5, 2.5], "prior": CLIPPED},
}  # fmt: skip


def solved(name: str, epsilon: float = 1.5) -> Any:
    return md.OptimalQuantizer(privacy=md.PureDP(epsilon), **CASES[name]).solve()


@pytest.mark.parametrize("name", CASES)
def test_all_four_are_proved(name: str) -> None:
    """Privacy, bias, value and lower bound: proved, and tight to 1e-11."""
    result = solved(name)
    certificate = result.certificate
    table = certificate.checks()
    assert certificate.verify() and table["holds"].all() and set(table["how"]) == {"proved"}
    # Normal and beta laws are stated too.
    stated = sum(getattr(proof, "moments", None) is not None for proof in certificate.proofs)
    assert stated == 2 * (CASES[name]["prior"] is CLIPPED or name in ("beta", "truncated"))
    assert len(table) == 9 + ("cap" in name) + (stated > 0)  # one claim for both
    # A histogram's moments are floats of quadrature where the design is solved.
    loose = 1e-8 if name == "histogram" else 1e-11
    tight = table["claim"].str.contains("expected loss|worst-case loss|costs less than")
    assert tight.sum() == 2 and table["margin"][tight].max() <= loose * result.value
    assert certificate.value == result.value


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["squared", "cap", "bias", "worst case", "samples", "beta"]))
def test_no_multipliers_prove_too_much(data: st.DataObject, name: str) -> None:
    """Whatever the lines and multipliers are, the bound is below the value of a mechanism that exists."""
    result = solved(name)
    bound, worst, bins = result.proofs[-1], name == "worst case", result.mechanism.law.bins
    held = bound.duals
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    size = data.draw(st.sampled_from([0.0, 1e-6, 1e-2, 1.0]))
    table = held.pieces.copy()
    table[:, 3:] += size * rng.normal(size=(len(table), 4))
    if worst:
        table[:, 3:] = np.repeat(table[:, [3, 5]], 2, axis=1)
    prices = np.abs(held.multipliers + size * rng.normal(size=held.multipliers.shape))
    duals = replace(held, pieces=table, multipliers=prices)
    assert duals.sound(bins, worst=worst)
    assert replace(bound, duals=duals).proved(result.design, bins) <= result.value


@settings(max_examples=40, deadline=None)
@given(selections(most=5), st.sampled_from(["absolute", "squared", {"absolute": 1, "squared": 0.3}]))
def test_exact_losses(drawn: Any, loss: Any) -> None:
    """Against the definition in fractions: the mean over samples, and the largest over a grid."""
    bins, left, right, (lower, upper) = drawn
    mechanism = md.Quantizer.from_selection(bins, left, right, (lower, upper)).certified()
    held = np.clip([*np.linspace(lower, upper, 7), *bins, bins[0], -1e-200, 0.3], lower, upper)
    chosen, samples, law = md.Loss.of(loss), held, mechanism.law

    def at(x: float) -> Fraction:
        exact = Fraction(x)
        k = min(max(sum(exact >= v for v in law.knots) - 1, 0), len(law.knots) - 2)
        t = (exact - law.knots[k]) / (law.knots[k + 1] - law.knots[k])
        row = [(1 - t) * p + t * q for p, q in zip(law.row(k, 0), law.row(k, 1))]
        w1, w2 = Fraction(chosen.absolute), Fraction(chosen.squared)
        return sum(
            (p * (w1 * abs(b - exact) + w2 * (b - exact) ** 2) for b, p in zip(law.bins, row)), Fraction(0)
        )

    mean = sum(map(at, samples.tolist()), Fraction(0)) / len(samples)
    above = expected_upper(law, Moments(md.Prior.of(samples)), chosen) - mean
    assert 0 <= above < Fraction(1, 10**20)
    worst = worst_upper(law, chosen)
    assert all(at(x) <= worst for x in np.linspace(lower, upper, 41).tolist())
    assert float(worst) == pytest.approx(mechanism.worst_case_loss(loss)[0], rel=1e-12)


def beta_density(x: Any) -> Any:
    return (
        ((x + 1) / 2) ** mpmath.mpf(1.5) * ((1 - x) / 2) ** (mpmath.mpf(0.7) - 1) / mpmath.beta(2.5, 0.7) / 2
    )


@pytest.mark.parametrize(
    ("prior", "density"),
    [
        (md.truncated(stats.norm(0.3, 0.4), -0.9, 0.9), lambda x: mpmath.npdf(x, 0.3, 0.4)),
        (md.truncated(stats.norm(-9, 1), -0.9, 0.9), lambda x: mpmath.npdf(x, -9, 1)),
        (md.truncated(stats.beta(2.5, 0.7, -1, 2), -0.9, 0.9), beta_density),
        (md.truncated(UNIFORM, -0.9, 0.9), lambda x: mpmath.mpf(0.5)),
        (md.clipped(UNIFORM, -0.9, 0.9), None),
        (md.clipped(stats.norm(-2.385, 1e-4), -0.9, 0.9), None),
    ],
)
def test_enclosed_moments(prior: Any, density: Any) -> None:
    """Against quadrature with mpmath; together with the point masses they are one."""
    cells = [-0.9, -0.3, 0.2, 0.9]
    moments = Moments(md.Prior.of(prior))
    found = moments.density([Fraction(x) for x in cells])
    masses = [n[0] for n in found] + [weight for _, weight in moments.atoms]
    assert sum(low for low, _ in masses) <= 2**BITS <= sum(high for _, high in masses)
    if density is None:
        return
    with mpmath.workdps(50):
        share = sum(mpmath.quad(density, pair) for pair in zip(cells, cells[1:]))
        ends = [mpmath.mpf(x) for x in cells]
        for (u, v), cell in zip(zip(ends, ends[1:]), found):
            for k, (low, high) in enumerate(cell):
                true = (
                    mpmath.quad(lambda x, k=k, u=u, v=v: density(x) * ((x - u) / (v - u)) ** k, [u, v])
                    / share
                )
                assert low <= true * 2**BITS <= high
                assert 0 <= high - low <= 2 ** (BITS - 90)


def test_histograms_are_priors_that_files_keep() -> None:
    counts, edges = np.histogram(np.sin(np.arange(300.0)), 9)
    scaled = stats.rv_histogram((counts, edges), density=True)(loc=0.5, scale=2.0)
    for law in (stats.rv_histogram((counts, edges)), scaled):
        low, high = md.Prior.of(law).support
        result = md.OptimalQuantizer([low - 3, (low + high) / 2, high + 3], md.PureDP(2.0), law).solve()
        text = dumps(result)
        again = loads(text)
        assert dumps(again) == text and again.certificate.verify()
        assert again.design.prior.pdf(low + 0.1) == result.design.prior.pdf(low + 0.1)
        assert set(again.certificate.checks()["how"]) == {"proved"}
