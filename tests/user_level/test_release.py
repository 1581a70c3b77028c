"""Deployment: numbers on a lattice from integers, private for exactly what is stated, and nothing betrayed by their digits."""

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechdesign_studies.user_level.linear_baselines import norm_program, simulated_second_moment
from scipy import optimize, stats
from shuffle_oracle import divergence, multisets, random_channel, random_space, shuffled_laws
from spaces.test_metric import SPACES

import mechdesign as md
from mechdesign.accounting.gaussian import gaussian_profile
from mechdesign.channels.responses import ClusteredResponse, KaryResponse
from mechdesign.noise.knorm_noise import KNormNoise
from mechdesign.noise.release import RoundedSum
from mechdesign.spaces.space import emd
from mechdesign.user_level.frequency import LaplaceHistogram
from mechdesign.user_level.itemwise import ReducedRelease, SamplingReduction
from mechdesign.user_level.linear_release import DiscreteEMDPrivacy, LinearQuery, LinearRelease, group_privacy
from tests.campaign.oracles import gaussian_delta

LINE = md.MetricSpace.line([0.0, 1.0, 3.0])
FALSE_ALARM = 1e-10  # of each statistical test: randomness is the system's, and fresh in every run


def test_linear_releases_are_unbiased_and_take_histograms_or_counts() -> None:
    query = LinearQuery(LINE, [[0.1, 1.0], [0.7, -2.0], [-0.3, 0.5]])
    local = LinearRelease(query, alpha=3.0, model="local")
    assert local.lattice.scale == local.scale
    got = local.release(np.tile([1, 2, 4], (100_000, 1)))
    truth = np.array([1, 2, 4]) / 7 @ query.values
    deviation = math.sqrt(2) * local.lattice.scale / math.sqrt(len(got))
    assert (np.abs(got.mean(axis=0) - truth) < 7 * deviation).all()
    assert stats.kstest((got - truth).ravel(), stats.laplace(scale=local.scale).cdf).pvalue > FALSE_ALARM
    central = LinearRelease(query, alpha=3.0, users=4)
    for data in ([0.2, 0.3, 0.5], np.full((4, 3), 2), [[1, 0, 0]] * 4):
        assert central.release(data).shape == (2,)
    for bad in ([0.2, 0.3, 0.1], [[1, 0, 0]] * 3, [0, 0, 0], [-1, 1, 1], "a", [1, 2]):
        with pytest.raises(md.DesignError):
            central.release(bad)


KINDS = [
    (1, math.inf, False), (2, 2.0, False), (3, math.inf, False), (2, 2.0, True), (1, 2.0, True), (5, 2.0, False),
]  # fmt: skip


@pytest.mark.parametrize(("dimension", "norm", "gaussian"), KINDS)
def test_rounded_sums_are_the_continuous_law_rounded(dimension: int, norm: float, gaussian: bool) -> None:
    noise, size = RoundedSum(dimension, 0.3, norm, gaussian), 50_000
    third = Fraction(1, 3) / Fraction(noise.step)
    got = noise.release(
        np.full(size * dimension, float(third)), np.full(size * dimension, 1e-9), lambda i: third
    )
    assert (got / noise.step == np.rint(got / noise.step)).all()
    moved = got.reshape(size, dimension) - 1 / 3
    if gaussian:
        assert stats.kstest(moved.ravel(), stats.norm(scale=0.3).cdf).pvalue > FALSE_ALARM
        return
    law = KNormNoise(dimension, 0.3, norm)
    assert (
        stats.kstest(np.linalg.norm(moved, ord=norm, axis=1), stats.gamma(dimension, scale=0.3).cdf).pvalue
        > FALSE_ALARM
    )
    zeros = np.zeros((size, dimension))
    assert stats.ks_2samp(moved[:, 0], law.sample(zeros, rng=0)[:, 0]).pvalue > FALSE_ALARM
    assert stats.ks_2samp(moved.sum(axis=1), law.sample(zeros, rng=1).sum(axis=1)).pvalue > FALSE_ALARM


def test_answers_far_above_their_noise_are_released() -> None:
    far = LinearRelease(LinearQuery(LINE, [1e90, 1e90, -1e70]), alpha=1.0, model="local")
    got = far.release([0.5, 0.5, 0.0])
    assert abs(got[0] - 1e90) < 100 * far.scale


def test_released_histograms() -> None:
    space = md.MetricSpace.clustered(2, 3, within=0.2)
    truth = np.array([0.4, 0.1, 0.1, 0.2, 0.1, 0.1])
    release = LaplaceHistogram(space, epsilon=1.0, users=50)
    assert release.scale < release.lattice.scale <= release.scale * (1 + 1e-12)
    fits = [release.release(truth) for _ in range(3000)]
    mean = np.mean([fit.estimate for fit in fits], axis=0)
    assert (np.abs(mean - truth) < 7 * fits[0].standard_errors / math.sqrt(len(fits))).all()
    assert np.mean([fit.emd(truth) for fit in fits]) < fits[0].error_bound


@pytest.mark.parametrize("model", ["central", "local"])
def test_itemwise_releases_shuffle_exactly(model: str) -> None:
    space = md.MetricSpace.clustered(2, 2, within=0.5)
    users = 2000 if model == "central" else 1
    release = md.ItemwiseRelease(
        space, channel=ClusteredResponse(space, 40.0), delta=1e-6, items=3, users=users, model=model
    )
    data = np.tile([0, 1, 3], (2000, 1))
    got = release.release(data)
    assert got.shape == ((6000,) if model == "central" else (2000, 3))
    counts = np.bincount(got.ravel(), minlength=4)
    assert stats.chisquare(counts, release.channel.dense[[0, 1, 3]].sum(axis=0) * 2000).pvalue > FALSE_ALARM
    first = got.reshape(-1, 3)[:, 0]  # every place holds every item alike
    assert stats.chisquare(np.bincount(first, minlength=4)[[0, 1, 3]]).pvalue > FALSE_ALARM


def test_reduced_releases_draw_with_replacement() -> None:
    space = md.MetricSpace.line([0.0, 0.5, 1.0])
    linear = LinearRelease(LinearQuery.average(space), 50.0, users=2)
    reduced = ReducedRelease(linear, radius=0.1, samples=20)
    got = np.array([reduced.release([[0], [1, 1, 2, 2]])[0] for _ in range(2000)])
    assert abs(got.mean() - 0.375) < 7 * got.std() / math.sqrt(len(got))
    item = ReducedRelease(md.ItemwiseRelease(space, item_alpha=1.0, delta=1e-6, items=5, users=2), radius=0.1)
    assert item.release([[0], [1, 2]]).shape == (10,)


# -- From unbounded to bounded: Chernoff's bound, and exact divergences of sampled releases ------------------


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
    bounded = md.ItemwiseRelease(
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


@given(st.floats(1e-4, 0.9), st.integers(1, 5000), st.floats(-30, -0.1), st.floats(0.1, 50))
def test_chernoff_holds_for_the_worst_coupling_and_is_solved_tightly(share, samples, log_failure, diameter):
    failure = 10**log_failure
    reduction = SamplingReduction(1.0, share * diameter, samples, failure, diameter=diameter)
    a = reduction.stretched / diameter
    assert share < a <= 1
    loss = pytest.approx(a * diameter)  # of draws that far apart, at α = 1
    assert reduction.guarantee.at(share * diameter) == (loss, 0 if a == 1 else failure)
    if a == 1:
        assert samples * math.log(1 / share) <= math.log(1 / failure) * (1 + 1e-9)
        return
    # Distances 0 or the diameter: the sum is binomial, and its exact tail from a on is within the failure.
    assert stats.binom.sf(math.ceil(a * samples * (1 + 1e-12)) - 1, samples, share) <= failure * (1 + 1e-9)
    kl = a * math.log(a / share) + (1 - a) * math.log1p((share - a) / (1 - share))
    assert math.exp(-samples * kl) <= failure * (1 + 1e-9)
    assert kl * samples == pytest.approx(math.log(1 / failure), rel=1e-6, abs=1e-6)


# -- Item-wise release: the object's own guarantee against exact divergences, calibration both ways, sampling, errors

SPACED = md.MetricSpace.line([0.0, 1.0, 2.5])


@pytest.mark.parametrize("seed", range(30))
def test_no_small_release_exceeds_its_guarantee(seed):
    """Random channels at their exact α₀ and calibrated ones: all pairs of one user's datasets, the others at random."""
    rng = np.random.default_rng(seed)
    space = random_space(rng, int(rng.integers(2, 5)))
    users, items = ((1, 4), (2, 2), (4, 1), (1, 3), (3, 1))[seed % 5]
    accounting = "composition" if seed % 8 > 5 else "numerical"  # the closed form needs many items
    delta = 0.0 if accounting == "composition" else float(10 ** rng.uniform(-4, -0.5))
    options = {
        "accounting": accounting,
        "delta": delta,
        "items": items,
        "users": users,
        "model": "central" if users > 1 else "local",
    }
    if seed % 2:
        channel = random_channel(rng, space, outputs=space.size)
        release = md.ItemwiseRelease(space, channel=channel, **options)
        assert release.item_alpha == channel.alpha
    else:
        release = md.ItemwiseRelease(space, alpha=float(rng.uniform(0.3, 8)) / space.diameter, **options)
        assert release.channel.alpha <= release.item_alpha
    own = multisets(space.size, items)
    rest = rng.integers(space.size, size=(1, (users - 1) * items)).repeat(len(own), axis=0)
    laws = shuffled_laws(release.channel.dense, np.hstack([own, rest]))
    radius = float(rng.uniform(0.1, 0.6)) * space.diameter
    near = md.ItemwiseRelease(space, channel=release.channel, radius=radius, **options)
    distance = emd(space.histogram(own)[:, None], space.histogram(own)[None], space)
    guarantee = release.guarantee
    assert divergence(laws[:, None], laws[None], guarantee.alpha * distance).max() <= guarantee.delta + 1e-13
    # The discrete guarantee of the same channel, and its own word on the farthest pair.
    within = distance <= radius
    epsilon, delta = near.guarantee.at(radius)
    exact = divergence(laws[:, None], laws[None], np.full(distance.shape, epsilon))
    assert exact[within].max() <= delta + 1e-13
    i, j = np.unravel_index(distance.argmax(), distance.shape)
    epsilon, delta = release.loss(distance[i, j])
    assert divergence(laws[i], laws[j], np.array(epsilon)) <= delta + 1e-13


def test_a_radius_buys_a_larger_item_budget():
    space = SPACED.scaled(10.0)
    options = {"delta": 1e-6, "items": 30, "users": 1000}
    everywhere = md.ItemwiseRelease(space, alpha=6.0, **options)
    near = md.ItemwiseRelease(space, alpha=6.0, radius=1 / 6, **options)
    assert near.item_alpha > 1.3 * everywhere.item_alpha
    assert near.guarantee.at(1 / 6)[0] <= 1.0 and near.guarantee.sizes == "bounded"
    assert near.loss(1 / 6)[0] <= 1.0 + 1e-9
    with pytest.raises(md.DesignError, match="beyond radius"):
        near.guarantee.at(0.5)
    with pytest.raises(md.DesignError, match="radius"):
        md.ItemwiseRelease(space, alpha=6.0, radius=-1.0, **options)


def test_own_channels_use_their_exact_losses():
    """k-ary response is far better against far points than α₀ · diameter: the clones count its real ε₀."""
    space = md.MetricSpace.line(np.arange(6.0))
    kary = KaryResponse(6, 1.0)
    release = md.ItemwiseRelease(space, channel=kary, delta=1e-6, items=2, users=500)
    assert release.item_alpha == pytest.approx(1.0, rel=1e-9)  # neighbours at distance 1
    naive = md.ItemwiseRelease(space, item_alpha=release.item_alpha, delta=1e-6, items=2, users=500)
    assert release.alpha < 0.5 * naive.alpha


# -- Linear queries: exact sensitivity against linear programs, exact ball sampling, privacy by exact divergences


ORDERS = (1, 2, math.inf)


def largest_change(space, weights):
    """max w·(F(p) − F(q)) over histograms p, q at EMD(p, q) = 1 unit, as a linear program over p, q and the plan.

    Histograms at EMD exactly one unit need not exist; the ratio does not change with the size of the move, so p and
    q share a total mass that is free.
    """
    n = space.size
    plan = n * n
    # Variables: plan (n²), p (n), q (n). Marginals tie them; the cost of the plan is at most 1.
    marginals = np.zeros((2 * n, plan + 2 * n))
    marginals[:n, :plan] = np.kron(np.eye(n), np.ones(n))
    marginals[n:, :plan] = np.kron(np.ones(n), np.eye(n))
    marginals[:n, plan : plan + n] = -np.eye(n)
    marginals[n:, plan + n :] = -np.eye(n)
    cost = np.r_[space.distances.ravel(), np.zeros(2 * n)][None]
    result = optimize.linprog(
        -np.r_[np.zeros(plan), weights, -weights],
        A_ub=cost,
        b_ub=[1.0],
        A_eq=marginals,
        b_eq=np.zeros(2 * n),
        bounds=(0, 1e6),
        method="highs",
    )
    return -result.fun


@pytest.mark.parametrize("seed", range(45))
def test_lipschitz_is_the_largest_ratio_over_histograms(seed):
    rng = np.random.default_rng(seed)
    space = random_space(rng, int(rng.integers(2, 6)))
    query = LinearQuery(space, rng.normal(size=(space.size, int(rng.integers(1, 4)))))
    k = query.dimension
    order = ORDERS[seed % 3]
    if order == 1:  # dual ball: sign vectors
        directions = [np.array(s) for s in itertools.product((-1, 1), repeat=k)]
    elif order == math.inf:
        directions = [sign * e for e in np.eye(k) for sign in (-1, 1)]
    else:  # no finite dual ball; the maximum is at the direction of some pair, and no direction exceeds it
        gaps = query.values[:, None] - query.values[None]
        i, j = np.triu_indices(space.size, 1)
        directions = [g / np.linalg.norm(g) for g in gaps[i, j]]
    best = max(largest_change(space, query.values @ w) for w in directions)
    got = query.lipschitz(order)
    assert got == pytest.approx(best, rel=1e-9)
    p, q = rng.dirichlet(np.ones(space.size), 2)
    assert np.linalg.norm(query(p) - query(q), ord=order) <= got * emd(p, q, space) * (1 + 1e-9)


def test_ready_made_queries():
    space = md.MetricSpace.euclidean(np.random.default_rng(0).random((8, 2)))
    average = LinearQuery.average(space)
    assert average.lipschitz(2) == pytest.approx(1.0, rel=1e-12)
    assert 1.0 <= average.lipschitz(1) <= math.sqrt(2) * (1 + 1e-12)
    assert LinearQuery.distance_to(space, 3).lipschitz() <= 1 + 1e-12
    region = LinearQuery.region(space, [0, 1], bandwidth=0.5)
    assert region.values[:2].ravel().tolist() == [1, 1] and region.lipschitz() <= 2 * (1 + 1e-12)
    v = np.random.default_rng(1).normal(size=(3, 2))
    assert LinearQuery.embedding(space, v).lipschitz(2) <= np.linalg.norm(v, 2) * (1 + 1e-12)
    assert np.abs(LinearQuery.similarity(space, v).values).max() <= math.sqrt(2)
    histogram = LinearQuery.histogram(space)
    nearest = (space.distances + np.eye(8) * 9).min()
    assert histogram.lipschitz(1) == pytest.approx(2 / nearest, rel=1e-12)
    assert histogram.spread(1) == pytest.approx(2.0, rel=1e-12)


# ---------------------------------------------------------------------- releases


@pytest.mark.parametrize("seed", range(45))
def test_no_small_linear_release_exceeds_its_claim(seed):
    """Every pair of datasets over at most 4 points and 4 items: Laplace exactly, Gaussian in 40 digits."""
    rng = np.random.default_rng(seed)
    space = random_space(rng, int(rng.integers(2, 5)))
    query = LinearQuery(space, rng.normal(size=(space.size, int(rng.integers(1, 3)))))
    alpha, users = float(10 ** rng.uniform(-1, 1.5)) / space.diameter, int(rng.integers(1, 5))
    model = {"model": "central", "users": users} if users > 1 else {"model": "local"}
    sizes = [multisets(space.size, int(m)) for m in rng.integers(1, 5, 2)]  # of two sizes: unbounded
    shift = (query(space.histogram(sizes[0]))[:, None] - query(space.histogram(sizes[1]))[None]) / users
    distance = emd(space.histogram(sizes[0])[:, None], space.histogram(sizes[1])[None], space)
    order = ORDERS[seed % 3]
    pure = LinearRelease(query, alpha, norm=order, **model)
    loss = np.linalg.norm(shift, ord=order, axis=-1) / pure.scale
    assert (
        loss <= alpha * distance * (1 + 1e-12) + 1e-13
    ).all()  # the K-norm's exact loss, reached in its tail
    delta = float(10 ** rng.uniform(-9, -1))
    gaussian = LinearRelease(query, alpha, gaussian=True, delta=delta, **model)
    length = np.linalg.norm(shift, axis=-1)
    moved = length > 0
    exact = np.zeros_like(length)
    exact[moved] = gaussian_profile(alpha * distance[moved], length[moved] / gaussian.scale)
    assert exact.max() <= delta * (1 + 1e-12)
    worst = np.unravel_index(exact.argmax(), exact.shape)
    if exact[worst] > 0:
        assert gaussian_delta(alpha * distance[worst], (length[worst] / gaussian.scale) ** 2) <= delta * (
            1 + 1e-12
        )


@settings(max_examples=50)
@given(st.floats(0.05, 20), st.floats(-12, -0.5), st.floats(0.1, 10))
def test_the_gaussian_supremum_is_at_the_diameter(alpha, log_delta, diameter):
    space = md.MetricSpace.line([0.0, diameter])
    delta = 10**log_delta
    release = LinearRelease(LinearQuery.average(space), alpha, model="local", gaussian=True, delta=delta)
    t = np.concatenate([np.geomspace(1e-6, 1, 200), np.linspace(0.9, 1, 50)]) * diameter
    profile = gaussian_profile(alpha * t, t / release.scale)
    assert profile.max() == profile[-1] or profile[-1] >= profile.max() * (1 - 1e-12)
    assert profile[-1] <= delta
    # No smaller σ will do.
    assert gaussian_profile(alpha * diameter, diameter / (release.scale * (1 - 1e-9))) > delta


def test_releases_are_unbiased_with_the_stated_error():
    space = SPACES["euclidean"]
    query = LinearQuery.average(space)
    p = np.random.default_rng(3).dirichlet(np.ones(space.size))
    for options in ({"norm": 1}, {"norm": 2}, {"norm": math.inf}, {"gaussian": True, "delta": 1e-5}):
        release = LinearRelease(query, 3.0, model="local", **options)
        answers = release.sample(np.tile(p, (100_000, 1)), rng=5)
        noise = answers - query(p)
        deviation = release.rms() / math.sqrt(query.dimension)
        assert np.abs(noise.mean(axis=0)).max() <= 4.5 * deviation / math.sqrt(len(noise))
        order = 2 if "gaussian" in options else options["norm"]
        length = np.linalg.norm(noise, ord=order, axis=1)
        assert abs(length.mean() - release.error()) <= 4.5 * length.std() / math.sqrt(len(noise))
        assert (noise**2).sum(axis=1).mean() == pytest.approx(release.rms() ** 2, rel=0.03)


# -- The printed baseline of linear queries, Hardt and Talwar's body: the linear program of its norm against bodies known in closed form


def test_norm_of_unit_vectors_is_that_of_l1_and_its_noise_is_laplace_noise() -> None:
    norm = norm_program(np.eye(10))
    for theta in np.random.default_rng(0).normal(size=(20, 10)):
        assert norm(theta) == pytest.approx(np.abs(theta).sum())
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 10)))[
        0
    ].T  # a body that does not fill the space
    mean, deviation = simulated_second_moment(3 * turned, 800, np.random.default_rng(2))
    assert deviation < 0.15 * 180 and abs(mean - 9 * 2 * 10) < 4 * deviation


def test_of_one_query_the_published_baseline_is_laplace_noise() -> None:
    table = pd.read_csv(Path(__file__).parents[2] / "results" / "user-level-tables" / "table2a.csv")
    one = table[(table["queries"] == 1) & (table["model"] == "central")].set_index("mechanism")["error"]
    for label in ("PrivEMDLinear", "user-level"):
        assert one[f"{label} K-norm"] == pytest.approx(one[f"{label} ℓ1"], rel=1e-9)
    several = table[(table["model"] == "central") & (table["queries"] > 1)]
    for _, cell in several.groupby(["alpha", "users", "queries", "dimension"]):
        errors = cell.groupby("mechanism")["error"].first()  # less than noise of a norm whose ball is larger
        assert errors["user-level K-norm"] < errors.filter(like="user-level ℓ").min()


# -- Definitions and conversions of user-level metric privacy ------------------------------------------------

SPACE = md.MetricSpace.line([0.0, 3.0])


@given(st.floats(0.01, 3), st.floats(0, 1e-3), st.integers(1, 30))
def test_group_privacy_is_the_induction(epsilon, delta, steps):
    """In fractions, as the least doubles keep few digits."""
    total = Fraction(0)
    for _ in range(steps):
        total = Fraction(math.exp(epsilon)) * total + Fraction(delta)
    got = group_privacy(epsilon, delta, steps)
    assert 0 <= Fraction(got[0]) - steps * Fraction(epsilon) <= 1e-15 * got[0]
    assert got[1] == pytest.approx(float(total), rel=1e-9, abs=1e-300)


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_losses_are_not_below_privacy_times_distance(alpha, t):
    line, least = md.MetricSpace.line([0.0, t]), Fraction(alpha) * Fraction(t)
    item, user = md.user_level.ItemPrivacy(alpha), md.EMDPrivacy(alpha, 1e-9)
    implied = user.user_level(line), user.discrete(t).user_level(line)
    assert min(item.epsilon(t), user.epsilon(t), *(found.epsilon for found in implied)) >= least


def test_discrete_privacy_rounds_up_to_steps():
    discrete = md.EMDPrivacy(2.0, 1e-6, sizes="unbounded").discrete(0.5)
    assert discrete == DiscreteEMDPrivacy(2.0, 0.5, 1e-6)
    assert discrete.at(0.0) == discrete.at(0.5) == (1.0, 1e-6)
    assert discrete.at(0.51) == group_privacy(1.0, 1e-6, 2)
    assert discrete.at(3 * 0.1 * 5) == group_privacy(
        1.0, 1e-6, 3
    )  # 1.5000000000000002: three steps, not four
    assert discrete.user_level(SPACE).epsilon == 6.0
    with pytest.raises(md.DesignError, match="lower delta"):
        md.EMDPrivacy(20.0, 1e-6, sizes="unbounded").discrete(0.5).user_level(SPACE)
    with pytest.raises(md.DesignError, match="beyond radius"):
        md.EMDPrivacy(2.0, 1e-6).discrete(0.5).at(0.6)
    assert DiscreteEMDPrivacy(300.0, 1.0, 1e-6).at(3.0)[1] == float("inf")
