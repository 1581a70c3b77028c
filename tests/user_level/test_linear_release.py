"""Linear queries: exact sensitivity against linear programs, exact ball sampling, privacy by exact divergences."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from shuffle_oracle import multisets, random_space
from spaces.test_metric import SPACES

from mechdesign.accounting.gaussian import gaussian_profile
from mechdesign.errors import DesignError
from mechdesign.spaces.earth_mover import emd, emd_multisets
from mechdesign.spaces.space import MetricSpace
from mechdesign.user_level.linear_release import LinearQuery, LinearRelease
from tests.campaign.oracles import gaussian_delta

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
    space = MetricSpace.euclidean(np.random.default_rng(0).random((8, 2)))
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


# ---------------------------------------------------------------------- K-norm noise


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
    distance = emd_multisets(sizes[0][:, None], sizes[1][None], space)
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
    space = MetricSpace.line([0.0, diameter])
    delta = 10**log_delta
    release = LinearRelease(LinearQuery.average(space), alpha, model="local", gaussian=True, delta=delta)
    t = np.concatenate([np.geomspace(1e-6, 1, 200), np.linspace(0.9, 1, 50)]) * diameter
    profile = gaussian_profile(alpha * t, t / release.scale)
    assert profile.max() == profile[-1] or profile[-1] >= profile.max() * (1 - 1e-12)
    assert profile[-1] <= delta
    # No smaller σ will do.
    assert gaussian_profile(alpha * diameter, diameter / (release.scale * (1 - 1e-9))) > delta


def test_scales_are_those_of_the_theorem():
    space = MetricSpace.line([0.0, 1.0, 3.0])
    query = LinearQuery.average(space)
    assert LinearRelease(query, 5.0, model="local").scale == pytest.approx(1 / 5)
    assert LinearRelease(query, 5.0, users=1000).scale == pytest.approx(1 / 5000)
    wide = LinearRelease(LinearQuery.histogram(space), 5.0, users=10, norm=1)
    assert wide.error() == pytest.approx(3 * wide.scale) and wide.scale == pytest.approx(2 / 50)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gaussian": True}, "delta > 0"),
        ({"delta": 1e-6}, "gaussian=True"),
        ({"model": "local"}, "users"),
        ({"norm": 3}, "norm"),
        ({"query": LinearQuery(SPACES["line"], np.ones(4))}, "constant"),
    ],
)
def test_bad_releases(change, message):
    arguments = {"query": LinearQuery.average(SPACES["line"]), "alpha": 1.0, "users": 2, **change}
    with pytest.raises(DesignError, match=message):
        LinearRelease(**arguments)
