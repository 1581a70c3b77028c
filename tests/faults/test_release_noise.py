"""What a release betrays besides its answer: by its time, by a refusal, by a count that doubles cannot hold, by no noise at all."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.noise.correlated_noise import released
from mechdesign.noise.release import ExactNoise, noisy, noisy_parts
from mechdesign.noise.vector_noise import IndependentNoise, MixedNoise

PRIVACY = md.ApproximateDP(1.0, 1e-6)


class NoNoise:
    def draw(self, size: int) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)


@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.sampled_from([-300, -20, 0, 20, 90]),
    st.sampled_from([-3, 0, 100]),
)
def test_whitened_answers_are_rounded_exactly(seed: int, size: int, power: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    whitening = rng.normal(size=(size, size)) * 10.0 ** (spread * rng.integers(-1, 2, size))
    held = rng.normal(size=(3, size)) * 10.0 ** (power + rng.integers(-8, 9, size))
    held[0, 0] = 0.0
    step = 2.0**-40
    found = released(whitening, held, step, NoNoise())
    for row, out in zip(held.tolist(), found):
        for line, value in zip(whitening.tolist(), out.tolist()):
            image = sum((Fraction(a) * Fraction(b) for a, b in zip(line, row)), Fraction(0))
            assert value == float(math.floor(image / Fraction(step) + Fraction(1, 2)) * Fraction(step))


@given(
    st.floats(-1e100, 1e100),
    st.floats(0, 8),
    st.floats(1e-60, 1e60),
    st.integers(-(2**61), 2**61),
    st.booleans(),
)
def test_answers_of_any_size_are_rounded_to_neighbouring_steps(x, share, scale, draw, power_of_two) -> None:
    """What leaves is made of q(x) + Z alone, and q moves by at most λ/h + 2 steps, ⌈λ/h⌉ where h is a power of two."""
    step = math.ldexp(1.0, math.frexp(scale)[1]) if power_of_two else scale
    y = x + share * step
    steps = []
    for value in (x, y):
        far, near = noisy_parts(value, step)
        unit = round(Fraction(math.ldexp(1.0, math.frexp(step)[1] + 48)) / Fraction(step))
        steps.append(int(far) * unit + int(near))
    moved, apart = steps[1] - steps[0], (Fraction(y) - Fraction(x)) / Fraction(step)
    if power_of_two:
        assert abs(moved) <= math.ceil(abs(apart))
        exact = (math.floor(Fraction(x) / Fraction(step) + Fraction(1, 2)) + draw) * Fraction(step)
        assert float(noisy(np.array([x]), step, np.array([draw]))[0]) == pytest.approx(
            float(exact), rel=1e-15
        )
    else:
        assert abs(moved - apart) <= 2 + abs(apart) * Fraction(1, 2**48)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    "release",
    [
        md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1).mechanism.release,
        md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1e-9).mechanism.release,
        md.OptimalNoise(md.PureDP(1.0)).solve(gap=0.9).mechanism.release,
        lambda x: IndependentNoise("laplace", np.array([1e-9, 3.0]), np.array([1e-9, 1.0])).release([x, x])[1],
        lambda x: md.CountsGaussian(2, 1, PRIVACY).solve().mechanism.release([x, x])[0],
        lambda x: next(
            md.MatrixMechanism(md.Workload.prefix_sums(2), PRIVACY).solve().mechanism.stream([x])
        ),
    ],
    ids=["laplace", "narrow laplace", "optimal", "independent", "counts", "stream"],
)  # fmt: skip
def test_no_magnitude_of_an_answer_is_refused(release) -> None:
    for x in (0.0, 5e-324, 1e-310, 1.5, 2.0**51, -(2.0**60), 1e17, -1e100):
        assert release(x) == pytest.approx(x, abs=200, rel=1e-9)
    for x in (1e300, -1.7e308):
        assert np.sign(release(x)) == np.sign(x)


@pytest.mark.parametrize("epsilon", [5.0, 20.0, 25.0, 60.0, 200.0])
def test_staircases_are_drawn_at_any_epsilon(epsilon: float) -> None:
    """Nearly all that is proposed may lie beyond γ."""
    law = md.calibrate("staircase", privacy=md.PureDP(epsilon), sensitivity=1.0).mechanism
    drawn = np.abs(law.release(np.zeros(10_000)))
    gamma = float(law.law.ppf(0.75)) * 2
    assert (drawn > 1.5 * gamma + law.lattice.step).mean() == pytest.approx(
        2 * law.law.sf(1.5 * gamma), abs=0.01
    )
    if epsilon <= 25:
        assert stats.kstest(drawn, lambda t: 1 - 2 * law.law.sf(t)).pvalue > 1e-6


def test_a_coordinate_that_never_changes_gets_noise_of_its_type() -> None:
    """Laplace noise on a coordinate of sensitivity 0 was released as Gaussian noise, of half the variance."""
    law = MixedNoise([1.0, 2.0, 3.0], [True, False, True], [1.0, 1.0, 0.0])
    drawn = law.release(np.zeros((20_000, 3)))
    for column, own in zip(drawn.T, (stats.laplace(), stats.norm(scale=2), stats.laplace(scale=3))):
        assert stats.kstest(column, own.cdf).pvalue > 1e-6


@pytest.mark.parametrize("beta", [0.5, 0.9])
def test_a_tail_above_every_geometric_hat_is_refused(beta: float) -> None:
    """Beyond the quantile of 1e-7 the hat fell below the density: the tail was cut, another law than the one stated."""
    with pytest.raises(md.DesignError, match="log-concave"):
        md.AdditiveNoise(stats.gennorm(beta), 1.0).release(0.0)
    assert ExactNoise(stats.gennorm(1.0)).draw(3).shape == (3,)


@pytest.mark.parametrize(("kind", "change"), [("gaussian", 1e-170), ("laplace", 1e-320)])
def test_changes_far_below_the_lattice_are_refused(kind: str, change: float) -> None:
    """The square of 1e-170 is 0 in doubles: the noise was not widened for a lattice whose steps are 2⁻³⁰."""
    with pytest.raises(md.DesignError, match="above the sensitivit"):
        IndependentNoise(kind, np.array([1.0, 2.0]), np.array([change, 0.0])).release([0.0, 0.0])
