"""The mean where the number of people is private: what one person changes, its error, and what it costs at least."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.errors import DataError
from mechdesign.noise.staircase_dual import first_step, paired_staircases

AGES = md.PrivateMean(-20, 80, about=1_000)
PURE = md.PureDP(1.0)


def found(*names, privacy=PURE):
    return md.compare(AGES.query, privacy, mechanisms=list(names), progress=False)


def pair_law(m: int, g: int, fall, levels: int) -> dict:
    """The pair's weights from the definition of its sets S_j: E^j on every point, j up to `levels`."""
    weights = {}
    for j in range(levels):
        for i in range(j + 1):
            for a in range(-(j - i) * m - g, i * m + g + 1):
                point = a, (2 * i - j) * m - a
                weights[point] = weights.get(point, 0) + fall**j
    return weights


@pytest.mark.parametrize(
    "m, g, fall", [(1, 0, Fraction(1, 3)), (3, 1, Fraction(1, 2)), (4, 3, Fraction(2, 7))]
)
def test_a_pair_is_as_private_as_each_of_it_and_each_is_a_staircase(m, g, fall):
    weights = pair_law(m, g, fall, 26)
    inner = {p: w for p, w in weights.items() if abs(p[0]) + abs(p[1]) <= 8 * m}
    ends = fall**25  # what levels left out may weigh
    for (a, b), w in inner.items():
        for y in range(m + 1):
            for sign in (1, -1):
                there = weights[a + sign * y, b + sign * (m - y)]
                assert w * fall <= there + 2 * ends and there * fall <= w + 2 * ends
    for of in (0, 1):
        alone = {}
        for point, w in weights.items():
            alone[point[of]] = alone.get(point[of], 0) + w
        for a in range(3 * m):
            level = max(0, math.ceil((abs(a) - g) / m))
            assert float(alone[a] / alone[0]) == pytest.approx(float(fall**level), rel=1e-5)
            assert alone[a] == alone[-a]


def test_pairs_are_drawn_from_that_law():
    epsilon, m = 0.9, 4
    weights = pair_law(m, 2, math.exp(-epsilon), 40)
    total = sum(weights.values())
    draws = Counter(paired_staircases(epsilon, 0.5, m) for _ in range(4_000))
    assert set(draws) <= set(weights)
    common = [p for p, w in weights.items() if w / total > 2e-3]
    seen, share = [draws[p] for p in common], [weights[p] / total for p in common]
    seen, share = [*seen, 4_000 - sum(seen)], [*share, 1 - sum(share)]
    assert stats.chisquare(seen, 4_000 * np.array(share)).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_best_mean_costs_what_one_number_costs_at_least(epsilon):
    best = AGES.solve(md.PureDP(epsilon))
    assert best.gap <= 1e-6 and best.status == "optimal"
    parts, step = 2**20, first_step(best.mechanism)
    draws = np.array([paired_staircases(epsilon, step, parts) for _ in range(10_000)]) / parts
    assert ((draws**2).mean(axis=0) == pytest.approx(best.value, rel=0.2)) and np.all(
        draws.sum(axis=1) % 1 == 0
    )
    assert abs(draws.mean()) < 6 * math.sqrt(best.value / 20_000)
    assert best.value <= found("laplace", "k-norm", privacy=md.PureDP(epsilon)).best.value
    absolute = md.PrivateMean(-20, 80, 1_000, "absolute").solve(md.PureDP(epsilon))
    assert absolute.value == pytest.approx(1 / (2 * math.sinh(epsilon / 2)), rel=1e-6)  # Geng and Viswanath


def test_gaussian_noise_is_taken_where_it_has_less_error():
    some = AGES.solve(md.ZeroConcentratedDP(0.125))
    assert some.value == pytest.approx(4.0) and AGES.release([30.0] * 5000, some) == pytest.approx(30, abs=1)
    little = AGES.solve(md.ApproximateDP(1.0, 1e-6))
    assert little.design.privacy.epsilon == pytest.approx(1.0, abs=1e-5) and little.value < 1.9182


def test_one_person_changes_the_two_counts_by_one_in_all():
    rng = np.random.default_rng(1)
    steps = rng.integers(0, 2**20 + 1, 200_000)  # of which the rounding takes none to another
    values = -20 + 100 * steps / 2**20
    everybody = [Fraction(v) for v in AGES.numbers(values)]
    assert sum(everybody) == len(values) and everybody[0] == Fraction(int(steps.sum()), 2**20)
    for k in (0, 17, 199_999):
        rest = [Fraction(v) for v in AGES.numbers(np.delete(values, k))]
        change = [a - b for a, b in zip(everybody, rest)]
        assert change == [Fraction(int(steps[k]), 2**20), 1 - Fraction(int(steps[k]), 2**20)]
    outside = AGES.numbers([-1e300, 1e300, 1e300])
    assert outside.tolist() == [2.0, 1.0]


def test_rounding_is_without_bias_and_within_a_person():
    third = AGES.numbers(np.full(100_000, -20 + 100 / 3))[0]
    assert abs(third - 100_000 / 3) < 6 * math.sqrt(100_000) / 2**21
    assert AGES.mean(AGES.numbers([12.0] * 1000)) == pytest.approx(12.0, abs=1e-4)


@pytest.mark.parametrize("share, of_worst", [(1.0, 1.0), (0.0, 1.0), (0.5, 0.5)])
def test_error_is_that_of_one_number_at_the_bounds_and_less_between(share, of_worst):
    result = found("laplace")["laplace"]
    assert result.value == pytest.approx(2.0)
    stated = AGES.errors(result)
    assert stated.standard_deviation == pytest.approx(100 * math.sqrt(2) / 1000)
    counts = np.array([1000 * share, 1000 * (1 - share)])
    noise = result.mechanism.sample(np.tile(counts, (40_000, 1)), rng=3)
    high, total = noise[:, 0], noise.sum(axis=1)
    off = 100 * (high / total - share)
    assert (off**2).mean() == pytest.approx(of_worst * stated.standard_deviation**2, rel=0.05)
    if share == 1.0:
        assert np.abs(off).mean() == pytest.approx(stated.absolute_error, rel=0.03)
        assert np.quantile(np.abs(off), 0.95) == pytest.approx(stated.half_width, rel=0.05)


def test_noise_on_the_two_counts_is_private_for_every_change():
    """By the density itself, at the changes ±(y, 1 − y): no more than ε, and ε at the worst."""
    law = found("k-norm").best.mechanism
    at = np.random.default_rng(5).normal(0, 2, (2000, 2))
    y = np.linspace(0, 1, 21)
    losses = [
        law.log_density(at) - law.log_density(at + sign * np.array([v, 1 - v])) for v in y for sign in (1, -1)
    ]
    assert np.max(losses) == pytest.approx(1.0, abs=1e-9)


def test_release():
    result = AGES.solve(PURE)
    values = np.random.default_rng(2).uniform(0, 40, 50_000)
    assert AGES.release(values, result) == pytest.approx(values.mean(), abs=0.05)
    assert all(-20 <= AGES.release([30.0], result) <= 80 for _ in range(30))
    assert (
        AGES.mean([-1.0, 0.5]) == 30.0 and AGES.mean([3.0, -1.0]) == 80.0 and AGES.mean([-1.0, 3.0]) == -20.0
    )
    assert -20 <= AGES.release([], result) <= 80


@pytest.mark.parametrize(
    ("lower", "upper", "about"),
    [(1, 1, 10), (0, 1, 0), (math.nan, 1, 1), (0, math.inf, 1), (-1e300, 1e300, 5)],
)
def test_bounds_and_numbers_of_people_that_are_none(lower, upper, about):
    with pytest.raises(md.DesignError):
        md.PrivateMean(lower, upper, about)


def test_refusals():
    result = found("laplace").best
    for values, said in (([1.0, math.nan], "finite"), ([True, False], "true and false are none")):
        with pytest.raises(DataError, match=said) as refused:
            AGES.release(values, result)
        assert "nan" not in str(refused.value)
    for values in ([[30.0, 31.0]], 30.0):
        with pytest.raises(md.DesignError, match=r"values.*one a person"):
            AGES.release(values, result)
    other = md.calibrate("laplace", privacy=PURE, sensitivity=0.5, dimension=2)
    for one, said in ((md.OptimalNoise(PURE, 0.5).solve(), "dimension"), (other, "sensitivity")):
        with pytest.raises(md.DesignError, match=said):
            AGES.release([1.0], one)
    with pytest.raises(md.DesignError, match="sensitivity"):
        AGES.errors(other)
