"""The mean where the number of people is private: what one person changes, its error, and what it costs at least."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.choose.clipping import ClippedMean
from mechdesign.noise.noise_bounds import paired_staircases
from mechdesign.quantizers.mechanism import duchi

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
    parts, step = 2**20, best.mechanism.parameters["gamma"]
    draws = np.array([paired_staircases(epsilon, step, parts) for _ in range(10_000)]) / parts
    assert (draws**2).mean(axis=0) == pytest.approx(best.value, rel=0.2)
    assert np.all(draws.sum(axis=1) % 1 == 0)
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


# -- The mean of clients' clipped reports: its error by formula, by simulation and in closed form; ranges against grids; files and refusals

SAMPLES = np.random.default_rng(4).gamma(2.0, size=40)
PRIORS = {
    "normal": stats.norm(0.3, 2),
    "t": stats.t(3.5),
    "lognormal": stats.lognorm(0.8),
    "Laplace": stats.laplace(5, 0.1),
    "bounded": stats.beta(2, 5),
    "clipped": md.clipped(stats.norm(), -1, 4),
    "truncated": md.truncated(stats.norm(), -1, 4),
    "samples": SAMPLES,
}


def clipped(
    prior: object, clients: int, epsilon: float = 1.0, bits: int = 2, **options: object
) -> md.Comparison:
    question = md.LocalReport(bits, prior=prior, clients=clients)
    options = {"mechanisms": ["optimal, searched outputs"], **options}
    return md.compare(question, md.PureDP(epsilon), progress=False, **options)


@pytest.mark.parametrize("name", PRIORS)
def test_parts_of_the_error_agree_with_integrals_of_their_own(name: str) -> None:
    prior, (low, high) = md.Prior.of(PRIORS[name], unbounded=True), (0.2, 1.1)
    mechanism = md.Quantizer.rqm((low + high) / 2 + np.array([-1.2, -0.4, 0.4, 1.2]), 0.3, (low, high))
    got = ClippedMean(prior, 1).of(mechanism)
    assert got.noise.item() == pytest.approx(
        mechanism.expected_loss(prior.clip(low, high), "squared"), rel=1e-9
    )
    if name == "samples":
        ends = [np.maximum(low - SAMPLES, 0), np.maximum(SAMPLES - high, 0)]
        means, squares = [e.mean() for e in ends], [(e**2).mean() for e in ends]
    else:  # of what is clipped or truncated, the part up to its end
        law = getattr(prior, "_source", PRIORS[name])
        law = getattr(law, "law", law)
        factor = getattr(prior, "_factor", 1.0)
        start, stop = prior.support
        means, squares = np.zeros(2), np.zeros(2)
        for k, (a, b, at) in enumerate(((start, low, low), (high, stop, high))):
            if b <= a:
                continue
            for power, into in ((1, means), (2, squares)):
                into[k] = factor * law.expect(
                    lambda x, p=power, c=at: abs(x - c) ** p, lb=a, ub=b, epsabs=1e-14
                )
        if name == "clipped":
            for k, (end, mass, at) in enumerate(((start, law.cdf(start), low), (stop, law.sf(stop), high))):
                means[k] += mass * abs(end - at)
                squares[k] += mass * (end - at) ** 2
    assert [got.under.item(), got.over.item()] == pytest.approx(list(means), rel=1e-7, abs=1e-12)
    assert got.square.item() == pytest.approx(sum(squares), rel=1e-6)


@pytest.mark.parametrize("name", ["normal", "lognormal", "samples"])
def test_the_error_is_that_of_a_simulation(name: str) -> None:
    """Under the prior itself: `exact`; where only one end clips, the stated one too."""
    prior, clients, runs = md.Prior.of(PRIORS[name], unbounded=True), 50, 20_000
    rng = np.random.default_rng(1)
    for low, high in ((-0.5, 1.5), (0.0, 1.2)):
        shape = duchi(2.0)
        mechanism = md.Quantizer(
            (low + high) / 2 + (high - low) / 2 * shape.bins, [low, high], shape.starts, shape.ends
        )
        x = prior.sample((runs, clients), rng=rng)
        off = mechanism.sample(x, rng=rng, clip=True).mean(axis=1) - x.mean(axis=1)
        stated = ClippedMean(prior, clients).of(mechanism)
        squared, exact = stated.squared(clients).item(), stated.exact(clients).item()
        assert abs((off**2).mean() - exact) < 4 * (off**2).std() / math.sqrt(runs)
        assert exact <= squared * (1 + 1e-12)
        if prior.support[0] >= low:
            assert exact == pytest.approx(squared)


@pytest.mark.slow
def test_one_bit_on_laplace_and_uniform_inputs_in_closed_form() -> None:
    """Two outputs ±Ah on [−h, h]: noise A²h² − E c(X)². Laplace: E(X − h)₊ = e^−h/2, E(X − h)₊² = e^−h."""
    n, reach = 5000, 1 / math.tanh(0.5)

    def laplace(h: float) -> float:
        kept = 2 - 2 * (1 + h) * math.exp(-h)  # E c(X)²
        return (reach**2 * h * h - kept + 2 * math.exp(-h)) / n + (1 - 1 / n) * math.exp(-2 * h) / 4

    def uniform(h: float) -> float:
        beyond = (1 - h) ** 2 / 4
        kept = h**3 / 3 + (1 - h) * h * h
        return (reach**2 * h * h - kept + (1 - h) ** 3 / 3) / n + (1 - 1 / n) * beyond**2

    for law, error, most in ((stats.laplace(), laplace, 20.0), (stats.uniform(-1, 2), uniform, 1.0)):
        result = clipped(law, n, bits=1).best
        low, high = result.mechanism.input_range
        grid = np.linspace(0, most, 200_001)[1:]
        values = [error(h) for h in grid]
        assert low == pytest.approx(-high)
        assert high == pytest.approx(grid[int(np.argmin(values))], rel=2e-3)
        got = md.LocalReport(1, prior=law, clients=n).error(result)
        assert got == pytest.approx(error(high), rel=1e-6)
        assert got <= min(values) * (1 + 1e-5)


@pytest.mark.slow
def test_no_range_of_a_grid_of_196_does_better_for_a_skewed_prior() -> None:
    question = md.LocalReport(1, prior=PRIORS["lognormal"], clients=1000)
    result = clipped(PRIORS["lognormal"], 1000, 2.0, bits=1).best
    low, high = result.mechanism.input_range
    centre, a = PRIORS["lognormal"].mean(), np.geomspace(0.5, 2, 14)
    lows, highs = np.meshgrid(centre - a * (centre - low), centre + a * (high - centre))
    least = question.mean.errors(duchi(2.0), lows.ravel(), highs.ravel()).squared(1000).min()
    assert question.error(result) <= 1.001 * least
