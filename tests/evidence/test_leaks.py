"""What leaves the machine does not show by its digits what it was added to; samples in doubles do.

Under Laplace noise in doubles the event "|y| < 1/2 and y is no multiple of 2⁻⁵³" has probability 0.27 for one neighbour and 0
for the other. Every mechanism with a `release` of numbers is drawn 10⁶ times for two neighbours, and for this event and
others of low digits neither count may be more than e^ε times the other, but for what sampling allows: seven standard
deviations, so that fewer than one run in 10⁹ is a false alarm.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.evidence import sampling
from mechdesign.evidence.exact import exp_lower, exp_upper, log_upper
from mechdesign.evidence.sampling import (
    IntegerRows,
    IntegerWeights,
    bernoulli,
    exponential_coins,
    geometric,
    uniform_below,
    uniform_integers,
)
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


def lattice(privacy: Any, loss: Any = "absolute") -> tuple[Draw, Draw]:
    law = md.OptimalNoise(privacy=privacy, loss=loss).solve(gap=0.05).mechanism
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
    "lattice noise with tails": (lambda: lattice(md.PureDP(1.0), np.abs), UNIT, 0.0),
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
        md.OptimalNoise(privacy=BUDGET).solve(),
    ]
    for result in results:
        assert "released on multiples of" in str(result)
    assert max(result.mechanism.lattice_cost for result in results[1:-1]) < 1e-3
    noise = md.OptimalNoise(privacy=md.ApproximateDP(1.0, 0.1)).solve(gap=0.1)
    assert "lattice of step" in str(noise) and noise.mechanism.step / noise.mechanism.std() < 1e-3
    query = md.user_level.LinearQuery.histogram(md.MetricSpace.line([0.0, 1.0, 3.0]))
    for options in ({}, {"norm": 2}, {"norm": math.inf}, {"gaussian": True, "delta": 1e-6}):
        release = md.LinearRelease(query, alpha=1.0, **options)
        lattice = release.lattice
        assert 1 <= lattice.scale / release.scale < 1.001 and lattice.step / release.scale < 2e-3


# -- Exact sampling: the laws are those of the integers, ties draw further bits, and impossible outcomes stay impossible


# Not seeded, by design: one false alarm in 10⁸ runs.
ALARM = 1e-8


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 3 << 61, 1 << 63])
def test_uniform_integers(bound: int) -> None:
    draws = uniform_integers(bound, 50_000)
    assert draws.min() >= 0 and int(draws.max()) < bound
    cells = min(bound, 8)
    counts = np.bincount([int(d) * cells // bound for d in draws], minlength=cells)
    expected = [
        (-(-(c + 1) * bound // cells) + (-c * bound // cells)) / bound * len(draws) for c in range(cells)
    ]
    if cells > 1:
        assert stats.chisquare(counts, expected).pvalue > ALARM


def test_uniform_below_each_bound() -> None:
    bounds = np.array([1, 2, 3, 7, 3 << 61, (1 << 63) - 1])
    draws = uniform_below(np.broadcast_to(bounds, (20_000, 6)))
    assert draws.min() >= 0 and (draws < bounds).all() and not draws[:, 0].any()
    for column, bound, cells in zip(draws.T[1:], bounds[1:].tolist(), (2, 3, 7, 8, 7), strict=True):
        counts = np.bincount([int(d) * cells // bound for d in column], minlength=cells)
        assert stats.chisquare(counts).pvalue > ALARM


def test_coins_and_counts_of_an_exponential() -> None:
    for u, d in ((0, 1), (1, 1), (1, 3), (2, 3), (999, 1000)):
        heads = int(exponential_coins(np.full(40_000, u), d).sum())
        chance = float(np.exp(-u / d))
        assert heads == 40_000 if u == 0 else stats.binomtest(heads, 40_000, chance).pvalue > ALARM
    for rate in (1, 4, 1 << 20):
        draws = geometric(rate, 40_000)
        width = max(1, rate // 2)
        counts = np.bincount(np.minimum(draws // width, 9), minlength=10)
        edges = -np.expm1(-np.arange(10) * width / rate)
        assert stats.chisquare(counts, np.diff(np.append(edges, 1.0)) * 40_000).pvalue > ALARM
    for rate in (0, -1, (1 << 50) + 1):
        with pytest.raises(md.DesignError, match="rate"):
            geometric(rate, 2)


LAWS = [[1, 2, 0, 5, 0], [3**90, 0, 1, 2 * 3**90], [7], [1] * 9]


@pytest.mark.parametrize("rare", [0.7, 0.1, 1e-3, 1e-12])
def test_streaks_have_a_geometric_law_and_take_few_words(
    rare: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 1e-12, the rate of noise at that ε, each took 10¹² words."""
    calls = iter(range(400))
    words = sampling.random_words
    monkeypatch.setattr(sampling, "random_words", lambda count: next(calls) is not None and words(count))
    draws, law = sampling.streaks(1 - Fraction(rare), 40_000), stats.geom(rare, loc=-1)
    edges = np.unique(law.ppf(np.linspace(0.05, 0.95, 19)))
    expected = np.diff([0.0, *law.cdf(edges), 1.0]) * draws.size
    counts = np.bincount(np.searchsorted(edges, draws), minlength=edges.size + 1)
    assert stats.chisquare(counts, expected).pvalue > 1e-6


def test_integer_weights_alone_and_in_rows() -> None:
    rows = np.tile(np.arange(len(LAWS)), 100_000)
    together = IntegerRows(LAWS.__getitem__, len(LAWS)).draw(rows)
    for row, weights in enumerate(LAWS):
        law = np.array([w / sum(weights) for w in weights])
        for draws in (IntegerWeights(weights).draw(100_000), together[rows == row]):
            counts, often = np.bincount(draws, minlength=len(weights)), law > 1e-6
            assert len(counts) == len(weights)
            assert (counts[~often] <= 1).all() and (counts[law == 0] == 0).all()
            expected = law[often] / law[often].sum() * counts[often].sum()
            assert often.sum() == 1 or stats.chisquare(counts[often], expected).pvalue > ALARM


def _words(monkeypatch: pytest.MonkeyPatch, first: int, rest: int) -> None:
    """Make the operating system answer `first`, then `rest` for ever."""
    words = iter([first])
    monkeypatch.setattr(sampling, "random_words", lambda n: np.full(n, next(words, rest), dtype=np.uint64))


@pytest.mark.parametrize(("rest", "below"), [(0, True), (2**64 - 1, False)])
def test_ties_draw_further_bits(monkeypatch: pytest.MonkeyPatch, rest: int, below: bool) -> None:
    """64 bits equal to those of 1/3 do not decide U < 1/3: the next ones do."""
    third = Fraction(1, 3)
    _words(monkeypatch, int(third * 2**64), rest)
    assert bernoulli(np.array([1 / 3]), np.zeros(1), lambda _: third).tolist() == [below]
    _words(monkeypatch, int(third * 2**64), rest)
    assert sampling.coins(lambda: arb(1) / 3, 1).tolist() == [below]
    _words(monkeypatch, int(third * 2**64), rest)
    assert IntegerWeights([1, 2]).draw(1).tolist() == [0 if below else 1]
    _words(monkeypatch, int(third * 2**64), rest)
    assert IntegerRows([[1], [1, 2], [1, 1, 1]].__getitem__, 3).draw(np.array([1])).tolist() == [
        0 if below else 1
    ]


def test_the_last_word_does_not_reach_an_impossible_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    _words(monkeypatch, 2**64 - 1, 2**64 - 1)
    assert IntegerWeights([1, 2, 0]).draw(1).tolist() == [1]
    _words(monkeypatch, 2**64 - 1, 2**64 - 1)
    assert IntegerRows([[1, 2, 0]].__getitem__, 1).draw(np.zeros(1, dtype=int)).tolist() == [1]


def test_surplus_words_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """2⁶⁴ mod 3 = 1: the last word would make one remainder likelier."""
    _words(monkeypatch, 2**64 - 1, 5)
    assert uniform_integers(3, 1).tolist() == [2]


# -- The rational bounds of the exponential, against mpmath at 100 digits ------------------------------------


@given(st.floats(-40, 500, allow_subnormal=False))
def test_bounds_enclose_the_exponential(x: float) -> None:
    with mpmath.workdps(300):
        true = mpmath.exp(mpmath.mpf(x))
        low, high = exp_lower(x), exp_upper(x)
        assert mpmath.mpf(low.numerator) / low.denominator <= true
        assert mpmath.mpf(high.numerator) / high.denominator >= true
    assert (high - low) / low < Fraction(1, 10**55)


@given(st.fractions(min_value=1, max_value=10**6))
def test_logarithm_rounds_outward(ratio: Fraction) -> None:
    with mpmath.workdps(80):
        true = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert true <= mpmath.mpf(log_upper(ratio)) <= true + 2 * math.ulp(log_upper(ratio))
