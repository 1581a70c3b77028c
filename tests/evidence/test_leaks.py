"""What leaves the machine does not show by its digits what it was added to; samples in doubles do.

Under Laplace noise in doubles the event "|y| < 1/2 and y is no multiple of 2⁻⁵³" has probability 0.27 for one neighbour and 0
for the other. Every mechanism with a `release` of numbers is drawn 10⁶ times for two neighbours, and for this event and
others of low digits neither count may be more than e^ε times the other, but for what sampling allows: seven standard
deviations, so that fewer than one run in 10⁹ is a false alarm.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.noise.laws import flipped_huber, osgt, staircase, truncated_laplace

SIZE = 10**6
BUDGET = md.ApproximateDP(1.0, 1e-6)
Draw = Callable[[float], np.ndarray]


def events(y: np.ndarray) -> Iterator[np.ndarray]:
    near = np.abs(y) < 0.5
    with np.errstate(over="ignore"):
        for bits in (20, 30, 40, 53):  # multiples of 2^-bits
            fine = np.ldexp(y, bits)
            yield near & (fine != np.rint(fine))
        for bits in (8, 12, 30, 53):  # their parity
            yield near & (np.floor(np.ldexp(y, bits)) % 2 == 0)
    yield near
    yield y == 0


def told_apart(draw: Draw, epsilon: float, delta: float = 0.0) -> bool:
    """Whether some event shows which of the answers 0 and 1 was given."""
    for here, there in zip(events(draw(0.0)), events(draw(1.0))):
        for a, b in ((int(here.sum()), int(there.sum())), (int(there.sum()), int(here.sum()))):
            slack = 7 * math.sqrt(a + math.exp(2 * epsilon) * b + 1)
            if a > math.exp(epsilon) * b + delta * SIZE + slack:
                return True
    return False


def both(law: Any, *shape: int) -> tuple[Draw, Draw]:
    """What is released of so many equal answers, and what is sampled."""

    def answers(x: float) -> np.ndarray:
        return np.full(shape or SIZE, x)

    return lambda x: law.release(answers(x)).ravel(), lambda x: law.sample(answers(x), rng=int(x)).ravel()


def additive(law: Any) -> tuple[Draw, Draw]:
    return both(md.AdditiveNoise(law, 1.0))


def linear(**options: Any) -> tuple[Draw, Draw]:
    two = md.MetricSpace.line([0.0, 1.0])
    values = np.array([[0.0, 0.0], [1.0, 0.0]]) if "norm" in options else np.array([[0.0], [1.0]])
    query = md.user_level.LinearQuery(two, values)
    release = md.LinearRelease(query, alpha=1.0, model="local", **options)

    def data(x: float) -> np.ndarray:
        return np.tile([1 - x, x], (SIZE, 1))

    return (lambda x: release.release(data(x))[:, 0], lambda x: release.sample(data(x), rng=int(x))[:, 0])


def allocation(noise: str) -> tuple[Draw, Draw]:
    notion = md.PureDP(1.0) if noise == "laplace" else BUDGET
    two = md.NoiseAllocation(noise=noise, sensitivities=[1.0, 1.0], privacy=notion)
    return both(two.solve().mechanism, SIZE // 2, 2)


def knorm(norm: float) -> tuple[Draw, Draw]:
    return both(md.noise.KNorm(2, md.PureDP(1.0), norm=norm).solve().mechanism, SIZE // 2, 2)


def correlated() -> tuple[Draw, Draw]:
    return both(md.CorrelatedGaussian(changes=[[1.0]], privacy=BUDGET).solve().mechanism, SIZE, 1)


def lattice(privacy: Any) -> tuple[Draw, Draw]:
    law = md.OptimalNoise(privacy=privacy).solve(gap=0.05).mechanism
    return (lambda x: law.release(np.full(SIZE, x)), lambda x: x + law.rvs(SIZE, random_state=int(x)))


def calibrated() -> tuple[Draw, Draw]:
    return both(md.calibrate("gaussian", privacy=BUDGET, sensitivity=1.0).mechanism)


def histogram() -> tuple[Draw, Draw]:
    space = md.MetricSpace.line([0.0, 1.0])
    release = md.user_level.LaplaceHistogram(space, epsilon=1.0, users=1)

    def many(draw: Callable[[Any], Any], x: float) -> np.ndarray:
        # Without the mean that post-processing takes off: what is lattice, and what is doubles.
        return np.concatenate([draw(x) for _ in range(200)])

    lattice, width = release.lattice, SIZE // 200

    def released(x: float) -> np.ndarray:
        near = np.full(width, x / lattice.step)
        return lattice.release(near, np.zeros(width), lambda i: int(near[i]))

    rng = np.random.default_rng(3)
    return lambda x: many(released, x), lambda x: many(lambda v: v + rng.laplace(0, release.scale, width), x)


UNIT = 1.0
MECHANISMS: dict[str, tuple[Callable[[], tuple[Draw, Draw]], float, float]] = {
    "laplace": (lambda: additive(stats.laplace(scale=1.0)), UNIT, 0.0),
    "gaussian": (lambda: additive(stats.norm(scale=4.3)), UNIT, 1e-5),
    "logistic": (lambda: additive(stats.logistic(scale=1.0)), UNIT, 0.0),
    "generalized normal": (lambda: additive(stats.gennorm(1.0, scale=1.0)), UNIT, 0.0),
    "flipped Huber": (lambda: additive(flipped_huber(1.5, scale=4.0)), UNIT, 1e-3),
    "osgt": (lambda: additive(osgt(0.7, scale=4.0)), UNIT, 1e-3),
    "truncated Laplace": (lambda: additive(truncated_laplace(8.0)), UNIT, 1e-3),
    "staircase": (lambda: additive(staircase(1.0, 0.4)), UNIT, 0.0),
    "calibrated": (calibrated, UNIT, 1e-6),
    "allocation, Laplace": (lambda: allocation("laplace"), UNIT, 0.0),
    "allocation, Gaussian": (lambda: allocation("gaussian"), UNIT, 1e-6),
    "K-norm, l1": (lambda: knorm(1), UNIT, 0.0),
    "K-norm, l-infinity": (lambda: knorm(math.inf), UNIT, 0.0),
    "K-norm, l2": (lambda: knorm(2), UNIT, 0.0),
    "correlated Gaussian": (correlated, UNIT, 1e-6),
    "lattice noise": (lambda: lattice(md.ApproximateDP(1.0, 0.05)), UNIT, 0.05),
    "lattice noise with tails": (lambda: lattice(md.PureDP(1.0)), UNIT, 0.0),
    "linear release": (linear, UNIT, 0.0),
    "linear release, l2": (lambda: linear(norm=2), UNIT, 0.0),
    "linear release, l-infinity": (lambda: linear(norm=math.inf), UNIT, 0.0),
    "linear release, Gaussian": (lambda: linear(gaussian=True, delta=1e-6), UNIT, 1e-6),
    "Laplace histogram": (histogram, UNIT, 0.0),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "laplace")) for name in MECHANISMS]
)
def test_released_digits_tell_nothing_and_simulated_ones_do(name: str) -> None:
    made, epsilon, delta = MECHANISMS[name]
    release, simulate = made()
    assert not told_apart(release, epsilon, delta)
    assert told_apart(simulate, epsilon, delta)


def test_the_lattice_costs_less_than_a_thousandth_and_the_result_says_so() -> None:
    """Relative increase of the scale, and the variance of rounding over that of the noise."""
    laws = [
        stats.laplace(scale=1.0), stats.norm(scale=4.3), stats.logistic(), stats.gennorm(1.3), flipped_huber(1.5),
        osgt(0.7), truncated_laplace(8.0), staircase(1.0, 0.4),
    ]  # fmt: skip
    for law in laws:
        for sensitivity in (1e-3, 1.0, 1e6):
            lattice = md.AdditiveNoise(law, sensitivity).lattice
            assert lattice.cost + (lattice.step / law.std()) ** 2 < 1e-3
    results = [
        md.calibrate("gaussian", privacy=BUDGET, sensitivity=1.0),
        md.NoiseAllocation(noise="gaussian", sensitivities=np.ones(2000), privacy=BUDGET).solve(),
        md.NoiseAllocation(noise="laplace", sensitivities=[1.0, 1e-9], privacy=md.PureDP(1.0)).solve(),
        md.CorrelatedGaussian(changes=np.eye(3), privacy=BUDGET).solve(),
    ]
    for result in results:
        assert "released on multiples of" in str(result)
    assert max(result.mechanism.lattice_cost for result in results[1:]) < 1e-3
    noise = md.OptimalNoise(privacy=BUDGET).solve(gap=0.1)
    assert "lattice of step" in str(noise) and noise.mechanism.step / noise.mechanism.std() < 1e-3
    query = md.user_level.LinearQuery.histogram(md.MetricSpace.line([0.0, 1.0, 3.0]))
    for options in ({}, {"norm": 2}, {"norm": math.inf}, {"gaussian": True, "delta": 1e-6}):
        release = md.LinearRelease(query, alpha=1.0, **options)
        lattice = release.lattice
        assert 1 <= lattice.scale / release.scale < 1.001 and lattice.step / release.scale < 2e-3
