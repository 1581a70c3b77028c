"""The noise laws against quadrature, 40-digit arithmetic and their own inverses."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise import families as discrete
from mechdesign.noise.families import discrete_gaussian, discrete_laplace_law, opendp_measurement
from mechdesign.noise.laws import (
    flipped_huber,
    osgt,
    staircase,
    staircase_gamma,
    staircase_law,
    truncated_laplace,
)
from mechdesign.noise.release import ExactNoise, lattice_of, noisy
from mechdesign.verifier import composition as alone
from mechdesign.verifier.verify import verify

SHAPES = [
    *((flipped_huber, (b,)) for b in (0.0, 1e-9, 1e-3, 0.1, 1.0, 3.0, 30.0, 1e4)),
    *((osgt, (b,)) for b in (0.0, 0.1, 1.0, 5.9, 6.1, 40.0, 1e4)),
    *((truncated_laplace, (c,)) for c in (0.01, 1.0, 5.0, 700.0)),
    *((staircase, p) for p in ((0.01, 0.5), (0.7, 0.3), (1.0, 0.0), (1.0, 1.0), (5.0, 0.1))),
]


def integral(f, law):
    """2∫_0^∞, broken where the laws are."""
    s, top = law.std(), law.support()[1]
    breaks = {0.0, 70 * s, *(s * k for k in (0.3, 1, 2, 4, 8, 16, 32))}
    if law.dist.name == "flipped_huber":
        breaks |= {law.args[0] * law.kwds.get("scale", 1.0)}
    if law.dist.name == "staircase":
        scale, gamma = law.kwds.get("scale", 1.0), law.args[1]
        breaks = {0.0}
        for k in range(min(int(60 * s / scale), 400) + 60):
            breaks |= {k * scale, (k + gamma) * scale}
    edges = sorted({min(b, top) for b in breaks if b <= 80 * s or law.dist.name == "staircase"})
    return 2 * math.fsum(
        integrate.quad(f, a, b, epsabs=0, epsrel=1e-12, limit=200)[0] for a, b in zip(edges[:-1], edges[1:])
    )


# A staircase of thousands of steps is no work for quadrature; its closed form is tested through sums below.
@pytest.mark.slow
@pytest.mark.parametrize(("dist", "shapes"), [s for s in SHAPES if not (s[0] is staircase and s[1][0] < 0.1)])
def test_moments_by_quadrature(dist, shapes):
    law = dist(*shapes, scale=1.7)
    assert integral(law.pdf, law) == pytest.approx(1, rel=1e-10)
    assert integral(lambda t: abs(t) * law.pdf(t), law) == pytest.approx(
        md.AdditiveNoise(law, 1.0).absolute_error, rel=1e-9
    )
    assert integral(lambda t: t * t * law.pdf(t), law) == pytest.approx(law.var(), rel=1e-9)
    kurtosis = integral(lambda t: t**4 * law.pdf(t), law) / law.var() ** 2 - 3
    assert kurtosis == pytest.approx(float(law.stats("k")), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize(("dist", "shapes"), SHAPES)
def test_distribution_and_quantile_are_inverse(dist, shapes):
    law = dist(*shapes, scale=0.3)
    q = np.array([1e-300, 1e-100, 1e-12, 1e-3, 0.1, 0.3, 0.49, 0.5, 0.6, 0.9, 0.999])
    if dist is truncated_laplace:
        q = q[q >= 1e-3]  # the support ends: quantiles cannot resolve its last units in the last place
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-11)
    np.testing.assert_allclose(law.sf(law.isf(q)), q, rtol=1e-11)
    t = law.ppf(np.array([0.01, 0.2, 0.45, 0.7, 0.98]))
    h = 1e-5 * law.std()
    if dist is not staircase:
        slope = (law.cdf(t + h) - law.cdf(t - h)) / (2 * h)
        np.testing.assert_allclose(slope, law.pdf(t), rtol=1e-5)


@pytest.mark.parametrize(
    "law", [flipped_huber(1.5, scale=2.0), osgt(0.7), staircase(0.8, 0.3), truncated_laplace(3.0)]
)
def test_samples_follow_the_law(law):
    sample = law.rvs(size=20_000, random_state=np.random.default_rng(5))
    assert stats.kstest(sample, law.cdf).pvalue > 1e-3
    assert (law.rvs(size=7, random_state=3) == law.rvs(size=7, random_state=3)).all()


@given(st.floats(0.01, 20))
def test_staircase_optimum(epsilon):
    law = staircase_law(epsilon)
    error = math.exp(epsilon / 2) / math.expm1(epsilon)
    gamma = staircase_gamma(epsilon)
    b = math.exp(-epsilon)
    half = (gamma + b * (1 - gamma)) / (1 - b)
    # Σ over steps of the first moment, in closed form, is the published optimum Δ e^{ε/2}/(e^ε − 1)
    k = np.arange(int(60 / epsilon) + 2)
    first = np.sum(b**k * ((k + gamma) ** 2 - k**2) + b ** (k + 1) * ((k + 1) ** 2 - (k + gamma) ** 2)) / 2
    assert first / half == pytest.approx(error, rel=1e-9)
    best = staircase_law(epsilon, loss="squared").var()
    assert best <= law.var() * (1 + 1e-9)
    for nudge in (-1e-3, 1e-3):
        other = min(max(staircase_gamma(epsilon, "squared") + nudge, 0), 1)
        assert staircase(epsilon, other).var() >= best * (1 - 1e-9)


def test_staircases_published_variances():
    printed = [19999.92, 4999.92, 799.92, 165.21, 31.92]
    variances = [staircase_law(e / 20, loss="squared").var() for e in (0.2, 0.4, 1, 2.2, 5)]
    np.testing.assert_allclose(variances, printed, atol=0.006)


def test_truncated_laplace_published_error():
    for epsilon, delta in ((0.3, 1e-6), (1.0, 0.1), (5.0, 0.2)):
        r = math.expm1(epsilon) / (2 * delta)
        law = truncated_laplace(math.log1p(r), scale=2.0 / epsilon)
        error = md.AdditiveNoise(law, 2.0).absolute_error
        assert error == pytest.approx(2 / epsilon * (1 - math.log1p(r) / r), rel=1e-8)


def test_discrete_laws_and_exact_samplers():
    law = discrete_gaussian(4.0)
    k = np.arange(-150, 151)
    weights = np.exp(-((k / 4.0) ** 2) / 2)
    np.testing.assert_allclose(law.pmf(k), weights / weights.sum(), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(3), (weights / weights.sum())[k <= 3].sum(), rtol=1e-12)
    pytest.importorskip("opendp")
    for exact in (law, discrete_laplace_law(3.0)):
        draw = np.array(opendp_measurement(exact)([0] * 4000))
        assert abs(draw.mean()) < 6 * exact.std() / math.sqrt(4000)
        # fourth moments bound how far a sample variance strays
        spread = exact.var() * math.sqrt((float(exact.stats("k")) + 2) / 4000)
        assert abs(draw.var() - exact.var()) < 6 * spread


@pytest.mark.parametrize("sigma", [1000.25, 3000.0])
def test_tails_of_wide_discrete_gaussian_noise(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against sums in 60 digits, in doubles, balls and the verifier's decimals."""
    for module in (discrete, alone):
        monkeypatch.setattr(module, "LISTED", 100)
    law = discrete_gaussian(sigma)
    with mp.workdps(60), localcontext() as decimals:
        decimals.prec = alone.PLACES
        weights = [mp.exp(-mp.mpf(k * k) / (2 * mp.mpf(sigma) ** 2)) for k in range(int(17 * sigma))]
        total = 2 * mp.fsum(weights) - 1
        for k in (1, int(sigma), int(6 * sigma), int(10 * sigma)):
            exact = mp.fsum(weights[k:]) / total
            assert law.sf(k - 1) == pytest.approx(float(exact), rel=1e-12)
            assert law.isf(float(exact) * (1 + 1e-9)) == k - 1
            enclosed = discrete._enclosed_upper(arb(k), arb(sigma))
            assert enclosed.lower() <= arb(str(exact)) * (1 + 1e-15)
            assert enclosed.upper() >= arb(str(exact)) * (1 - 1e-15)
            assert float(enclosed.rad()) <= 1e-13 * float(exact)
            assert abs(mp.mpf(str(alone.wide_tail(Decimal(sigma), k))) - exact) < 1e-30
        mean = 2 * mp.fsum(k * w for k, w in enumerate(weights)) / total
        assert 0 <= law.dist.mean_absolute(sigma) / mean - 1 < 1e-12
        assert 0 <= mp.mpf(str(alone.gaussian_sum_cost(1, Decimal(sigma)))) / mean - 1 < 1e-12


@pytest.mark.parametrize(
    "asked",
    [
        {"privacy": md.ApproximateDP(1.0, 1e-6), "sensitivity": 10**5},
        {"privacy": md.ApproximateDP(1e-3, 1e-9), "sensitivity": 1000},
        {"privacy": md.ZeroConcentratedDP(0.5), "sensitivity": 10**9},
        pytest.param(
            {"privacy": md.ApproximateDP(1.0, 1e-6), "sensitivity": 30_000, "rounds": 3},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_discrete_gaussian_noise_of_any_width(asked: dict) -> None:
    """As much as normal noise, whole, proved by both checkers; with 1e-4 less of it, by neither."""
    found, real = (md.calibrate(name, **asked) for name in ("discrete_gaussian", "gaussian"))
    assert found.value == pytest.approx(real.value, rel=3e-5)
    assert found.mechanism.release([3] * 9).dtype.kind in "if"
    less = md.AdditiveNoise(
        discrete_gaussian(found.mechanism.law.args[0] * (1 - 1e-4)),
        found.mechanism.sensitivity,
        rounds=found.mechanism.rounds,
    )
    for law, holds in ((found.mechanism, True), (less, False)):
        made = replace(found, mechanism=law)
        assert made.certificate.verify() == holds == all(row[2] for row in verify(dumps(made)).rows)


# -- What leaves the machine: integers of the right law, the guarantee of the lattice, nothing of the input's last bits


CONTINUOUS = [
    stats.norm(scale=3.0),
    stats.laplace(scale=0.2),
    stats.logistic(),
    stats.gennorm(1.3, scale=2.0),
    stats.hypsecant(scale=0.5),
    stats.truncnorm(-4.0, 4.0),
    flipped_huber(1.5, scale=2.0),
    osgt(0.7),
    truncated_laplace(3.0),
    staircase(0.8, 0.3),
]
DISCRETE = [
    discrete_laplace_law(2.0),
    discrete_laplace_law(0.4),
    discrete_gaussian(0.6),
    discrete_gaussian(40.0),
]


@pytest.mark.parametrize("law", CONTINUOUS, ids=lambda law: law.dist.name)
@pytest.mark.parametrize("beyond", [None, 0.1])
def test_draws_follow_the_law(law, beyond) -> None:
    """Also where the tail, of which cells are drawn by coins, begins early."""
    noise = ExactNoise(law)
    if beyond and math.isinf(law.support()[1]):
        noise.__dict__["_reach"] = float(law.isf(beyond))
    draws = noise.draw(50_000) * (2 * noise.half_step)
    assert stats.kstest(draws, law.cdf).pvalue > 1e-6


@pytest.mark.parametrize("law", DISCRETE, ids=lambda law: law.dist.name)
@pytest.mark.parametrize("beyond", [None, 0.1])
def test_discrete_draws_follow_the_law(law, beyond) -> None:
    noise, k = ExactNoise(law), np.arange(-200, 201)
    if beyond:
        noise.__dict__["_reach"] = max(float(law.isf(beyond)), 1.0)
    draws, expected = noise.draw(100_000), law.pmf(k) * 100_000
    common = expected > 25
    counts = (draws == k[:, None]).sum(axis=1)[common]
    rest = 100_000 - counts.sum(), max(100_000 - expected[common].sum(), 1e-3)
    assert stats.chisquare([*counts, rest[0]], [*expected[common], rest[1]], sum_check=False).pvalue > 1e-6


@pytest.mark.parametrize("law", CONTINUOUS + DISCRETE, ids=lambda law: law.dist.name)
def test_probabilities_in_doubles_are_within_their_doubt_of_those_to_60_digits(law) -> None:
    noise = ExactNoise(law)
    heights, _, log_heights = noise._hat
    rng = np.random.default_rng(0)
    for cell in rng.integers(0, len(heights) - 1, 12):
        k = int(noise._left[cell] + rng.integers(0, 1 << noise._sizes[cell]))
        exact = float(noise._exact(k, int(cell)))
        ends = [
            np.exp(noise._log_ratio(np.array([j * noise.half_step])) - log_heights[cell])[0]
            for j in (k, k + 1)
        ]
        low, high = (ends[0], ends[0]) if noise.discrete else (min(ends), max(ends))
        assert low - 1e-11 <= exact <= min(high + 1e-11, 1.0)
        # what falls surely is below every probability of the cell
        assert noise._sure[cell] / 2.0**noise._spare <= exact


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e6), st.floats(0, 1), st.sampled_from(CONTINUOUS[:4]))
def test_rounded_answers_are_within_the_shift_that_is_accounted(x, sensitivity, share, law) -> None:
    lattice = lattice_of(law, sensitivity)
    low, high = (
        float(noisy(np.array(v), lattice.step, 0)) / lattice.step for v in (x, x + share * sensitivity)
    )
    exact = Fraction(x + share * sensitivity) - Fraction(x)
    assert abs(high - low) <= max(lattice.shift, math.ceil(exact / Fraction(lattice.step)))
    # the widened law at the lattice's shift is as private as the law at the sensitivity
    widened = Fraction(lattice.law.kwds["scale"]) if "scale" in lattice.law.kwds else Fraction(1)
    scale = Fraction(law.kwds.get("scale", 1.0))
    assert widened / scale >= lattice.shift * Fraction(lattice.step) / Fraction(sensitivity)
    assert 0 <= lattice.cost < 1e-3


def both(law) -> object:
    """A release of two answers, of which the last is given."""
    return lambda x: law.release([0, x] if np.ndim(x) == 0 else np.append(x, x))


RELEASES = {
    "discrete laplace": lambda: (
        md.calibrate("discrete_laplace", privacy=md.PureDP(30), sensitivity=1).mechanism.release
    ),
    "laplace": lambda: md.calibrate("laplace", privacy=md.PureDP(30), sensitivity=1).mechanism.release,
    "optimal": lambda: md.OptimalNoise(md.PureDP(1), 1.0).solve(gap=0.9).mechanism.release,
    "allocation": lambda: both(md.NoiseAllocation("laplace", [1.0, 2.0], md.PureDP(30)).solve().mechanism),
    "correlated": lambda: both(md.CorrelatedGaussian(np.eye(2), md.ApproximateDP(1, 1e-6)).solve().mechanism),
    "quantizer": lambda: (
        md.Quantizer.rqm(2.0**60 * np.array([-3, -1, 1, 3]), 0.2, (-(2.0**60), 2.0**60)).certified().release
    ),
}


@pytest.mark.parametrize("name", RELEASES)
def test_whole_numbers_that_doubles_would_round_are_refused(name) -> None:
    """As doubles 2⁵³ + 1 and 2⁵³ + 2 are 2 apart."""
    release, odd = RELEASES[name](), 2**53 + 1
    for x in (odd, -odd, [odd], np.array([odd], dtype=np.uint64), Fraction(2 * odd - 1), Decimal(odd)):
        with pytest.raises(md.DesignError, match=r"beyond 2\^53 and would be rounded"):
            release(x)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_allocations_are_released(noise) -> None:
    privacy = md.ApproximateDP(1.0, 1e-6) if noise == "gaussian" else md.PureDP(1.0)
    law = md.NoiseAllocation(noise=noise, sensitivities=[1.0, 0.0, 8.0], privacy=privacy).solve().mechanism
    answers = np.array([1.5, 1 / 3, 1e15])
    out = np.array([law.release(answers) for _ in range(3)])
    assert (out[:, 1] == 1 / 3).all() and (out[:, 0] != 1.5).all()
    many = law.release(np.zeros((20_000, 3)))
    assert many.std(axis=0) == pytest.approx(np.sqrt(law.variance), rel=0.05)
    steps = many[:, [0, 2]] / (law.scales[[0, 2]] * 2.0**-30)
    assert np.array_equal(np.rint(steps) * (law.scales[[0, 2]] * 2.0**-30), many[:, [0, 2]])
    # what the lattice spends is within the budget that the scales were made for
    m, h = (2, 2.0**-30) if noise == "gaussian" else (1, 2.0**-30)
    lam, needed = law.sensitivities, law.scales > 0
    wider = law.exact.scale
    spent = ((lam[needed] / law.scales[needed] + 2 * h) ** m).sum() / wider**m
    assert spent <= ((lam[needed] / law.scales[needed]) ** m).sum()
    assert wider < 1.0005


def test_correlated_noise_is_released_in_its_span_and_keeps_what_is_public() -> None:
    eye = np.eye(3)
    vectors = [eye[i] - eye[j] for i in range(3) for j in range(i)]
    result = md.CorrelatedGaussian(changes=vectors, privacy=md.ApproximateDP(1.0, 1e-6), span=True).solve()
    out = result.mechanism.release([1.0, 2.0, 0.25])
    assert out.sum() == pytest.approx(3.25, abs=1e-9)
    draws = result.mechanism.release(np.zeros((4000, 3)))
    assert np.cov(draws.T) == pytest.approx(
        result.mechanism.covariance, abs=0.1 * result.mechanism.covariance.max()
    )
