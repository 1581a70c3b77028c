"""What leaves the machine: integers of the right law, the guarantee of the lattice, nothing of the input's last bits."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.noise.families import discrete_gaussian, discrete_laplace_law
from mechdesign.noise.laws import flipped_huber, osgt, staircase, truncated_laplace
from mechdesign.noise.release import ExactNoise, lattice_of, noisy

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
    # and counts of cells
    step = 2.0 ** math.floor(math.log2(law.std()))
    k = np.arange(-40, 41)
    counts = (np.rint(draws / step) == k[:, None]).sum(axis=1)
    expected = (law.cdf((k + 0.5) * step) - law.cdf((k - 0.5) * step)) * len(draws)
    common = expected > 25
    rest = len(draws) - counts[common].sum(), len(draws) - expected[common].sum()
    assert stats.chisquare([*counts[common], rest[0]], [*expected[common], rest[1]]).pvalue > 1e-6


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


def test_calibrated_noise_is_released_and_says_on_which_lattice() -> None:
    result = md.calibrate("gaussian", privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=2.0, dimension=3)
    out = result.mechanism.release(np.zeros((4000, 3)))
    assert out.std() == pytest.approx(result.mechanism.standard_deviation, rel=0.05)
    assert "released on multiples of" in str(result)
    whole = md.calibrate("discrete_laplace", privacy=md.PureDP(1.0), sensitivity=1)
    assert float(whole.mechanism.release(7)).is_integer()
    with pytest.raises(md.DesignError, match="whole numbers"):
        whole.mechanism.release(0.5)
    with pytest.raises(md.DesignError, match="3 coordinates"):
        result.mechanism.release(1.0)


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
