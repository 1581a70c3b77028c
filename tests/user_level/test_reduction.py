"""From unbounded to bounded: Chernoff's bound, and exact divergences of sampled releases."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from shuffle_oracle import divergence, multisets, random_channel, random_space, shuffled_laws

from mechdesign.errors import DesignError
from mechdesign.spaces.earth_mover import emd
from mechdesign.user_level.itemwise import ItemwiseRelease
from mechdesign.user_level.linear_release import LinearQuery, LinearRelease
from mechdesign.user_level.reduction import ReducedRelease, sampling_reduction


def sampled_laws(histograms, sets):
    """Multinomial law over `sets` of s draws from each histogram, shape (rows, sets)."""
    n = histograms.shape[1]
    counts = np.array([np.bincount(row, minlength=n) for row in sets])
    ways = np.array(
        [math.factorial(sets.shape[1]) / math.prod(map(math.factorial, c)) for c in counts.tolist()]
    )
    return ways * np.prod(histograms[:, None, :] ** counts[None], axis=2)


def random_datasets(rng, n, rows=12):
    """Histograms of datasets of different sizes, near and far pairs among them."""
    sizes = rng.integers(1, 30, rows)
    base = rng.dirichlet(np.ones(n))
    laws = [rng.multinomial(m, base if rng.random() < 0.7 else np.eye(n)[rng.integers(n)]) / m for m in sizes]
    return np.array(laws)


@pytest.mark.parametrize("seed", range(24))
def test_no_small_reduced_item_release_exceeds_its_guarantee(seed):
    rng = np.random.default_rng(seed)
    space = random_space(rng, int(rng.integers(2, 5)))
    users, samples = ((1, 4), (1, 3), (2, 2), (1, 2))[seed % 4]
    channel = random_channel(rng, space, outputs=space.size)
    bounded = ItemwiseRelease(
        space,
        channel=channel,
        delta=float(10 ** rng.uniform(-3, -1)),
        items=samples,
        users=users,
        model="central" if users > 1 else "local",
    )
    radius, failure = float(rng.uniform(0.02, 0.4)) * space.diameter, float(10 ** rng.uniform(-3, -0.5))
    guarantee = ReducedRelease(bounded, radius=radius, failure=failure).guarantee
    sets = multisets(space.size, samples)
    rest = rng.integers(space.size, size=(1, (users - 1) * samples)).repeat(len(sets), axis=0)
    inner = shuffled_laws(channel.dense, np.hstack([sets, rest]))
    histograms = random_datasets(rng, space.size)
    laws = sampled_laws(histograms, sets) @ inner
    distance = emd(histograms[:, None], histograms[None], space)
    for i, j in itertools.permutations(range(len(histograms)), 2):
        epsilon, delta = guarantee.at(distance[i, j])
        assert divergence(laws[i], laws[j], np.array(epsilon)) <= delta + 1e-13


@pytest.mark.parametrize("seed", range(20))
def test_no_small_reduced_linear_release_exceeds_its_guarantee(seed):
    """Sampled means plus Laplace noise are mixtures of Laplace laws: their divergence on a fine grid of bins.

    Probabilities of bins come from exact distribution functions, and binning is post-processing that loses little.
    """
    rng = np.random.default_rng(1000 + seed)
    space = random_space(rng, int(rng.integers(2, 4)))
    query = LinearQuery(space, rng.normal(size=space.size))
    bounded = LinearRelease(query, float(10 ** rng.uniform(-0.5, 1)) / space.diameter, model="local")
    samples = int(rng.integers(1, 5))
    radius, failure = float(rng.uniform(0.02, 0.4)) * space.diameter, float(10 ** rng.uniform(-3, -0.5))
    guarantee = ReducedRelease(bounded, radius=radius, samples=samples, failure=failure).guarantee
    sets = multisets(space.size, samples)
    centres = query(space.histogram(sets)).ravel()
    edges = np.r_[-np.inf, np.linspace(centres.min() - 1, centres.max() + 1, 4001), np.inf]
    inner = np.diff(stats.laplace.cdf(edges[None] - centres[:, None], scale=bounded.scale), axis=1)
    histograms = random_datasets(rng, space.size, rows=8)
    laws = sampled_laws(histograms, sets) @ inner
    distance = emd(histograms[:, None], histograms[None], space)
    for i, j in itertools.permutations(range(len(histograms)), 2):
        epsilon, delta = guarantee.at(distance[i, j])
        assert divergence(laws[i], laws[j], np.array(epsilon)) <= delta + 1e-12


@given(st.floats(1e-4, 0.9), st.integers(1, 5000), st.floats(-30, -0.1), st.floats(0.1, 50))
def test_chernoff_holds_for_the_worst_coupling_and_is_solved_tightly(share, samples, log_failure, diameter):
    failure = 10**log_failure
    reduction = sampling_reduction(1.0, share * diameter, samples, failure, diameter=diameter)
    a = reduction.stretched / diameter
    assert share < a <= 1
    if a == 1:
        assert samples * math.log(1 / share) <= math.log(1 / failure) * (1 + 1e-9)
        assert reduction.guarantee.delta == 0
        return
    # Distances 0 or the diameter: the sum is binomial, and its exact tail from a on is within the failure.
    assert stats.binom.sf(math.ceil(a * samples * (1 + 1e-12)) - 1, samples, share) <= failure * (1 + 1e-9)
    kl = a * math.log(a / share) + (1 - a) * math.log1p((share - a) / (1 - share))
    assert math.exp(-samples * kl) <= failure * (1 + 1e-9)
    assert kl * samples == pytest.approx(math.log(1 / failure), rel=1e-6, abs=1e-6)
    assert reduction.guarantee.delta == failure


def test_more_samples_cost_less_and_the_target_inverts():
    values = [sampling_reduction(5.0, 0.1, s).guarantee.alpha for s in (50, 200, 1000, 10**6)]
    assert values == sorted(values, reverse=True) and values[-1] == pytest.approx(5.0, rel=0.03)
    reduction = sampling_reduction(5.0, 0.1)
    alpha = reduction.required_alpha(20.0)
    assert sampling_reduction(alpha, 0.1).guarantee.alpha <= 20.0 * (1 + 1e-14)


def test_sampling_is_with_replacement_from_each_user_own_items():
    reduction = sampling_reduction(1.0, 0.1, samples=20_000)
    drawn = reduction.sample([[3], [1, 1, 2], np.array([0, 4])], rng=0)
    assert (drawn[0] == 3).all() and set(drawn[1]) == {1, 2} and set(drawn[2]) == {0, 4}
    assert (drawn[1] == 1).mean() == pytest.approx(2 / 3, abs=4 * math.sqrt(2 / 9 / 20_000))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sampling_reduction(1, 0), "radius"),
        (lambda: sampling_reduction(1, 1.0), "radius"),
        (lambda: sampling_reduction(1, 0.1).sample([[1], []]), "datasets: must be integers"),
        (lambda: sampling_reduction(1, 0.1).sample([]), "empty"),
        (lambda: sampling_reduction(1, 0.1, model="x").guarantee, "model"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(DesignError, match=message):
        call()
