"""Linear queries: exact sensitivity against linear programs, exact ball sampling, privacy by exact divergences."""

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechdesign_studies.user_level.linear_baselines import (
    ConvexHull,
    body_second_moment,
    norm_program,
    simulated_second_moment,
)
from scipy import optimize
from shuffle_oracle import multisets, random_space
from spaces.test_metric import SPACES

import mechdesign as md
from mechdesign.accounting.gaussian import gaussian_profile
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.spaces.earth_mover import emd, emd_multisets
from mechdesign.user_level.linear_release import LinearQuery, LinearRelease
from mechdesign.user_level.privacy import DiscreteEMDPrivacy, ItemPrivacy, alpha_from_semantics, group_privacy
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
    space = md.MetricSpace.line([0.0, diameter])
    delta = 10**log_delta
    release = LinearRelease(LinearQuery.average(space), alpha, model="local", gaussian=True, delta=delta)
    t = np.concatenate([np.geomspace(1e-6, 1, 200), np.linspace(0.9, 1, 50)]) * diameter
    profile = gaussian_profile(alpha * t, t / release.scale)
    assert profile.max() == profile[-1] or profile[-1] >= profile.max() * (1 - 1e-12)
    assert profile[-1] <= delta
    # No smaller σ will do.
    assert gaussian_profile(alpha * diameter, diameter / (release.scale * (1 - 1e-9))) > delta


def test_scales_are_those_of_the_theorem():
    space = md.MetricSpace.line([0.0, 1.0, 3.0])
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


def released(**change):
    return LinearRelease(**{"query": LinearQuery.average(SPACES["line"]), "alpha": 1.0, "users": 2, **change})


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


def test_second_moment_by_directions_is_that_of_the_faces() -> None:
    vectors = np.random.default_rng(0).normal(size=(9, 3)) * [1.0, 5.0, 0.2]
    exact = body_second_moment(ConvexHull(np.vstack([vectors, -vectors])))
    mean, deviation = simulated_second_moment(vectors, 800, np.random.default_rng(1))
    assert deviation < 0.05 * exact and abs(mean - exact) < 4 * deviation


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
    assert got[0] == pytest.approx(steps * epsilon)
    assert got[1] == pytest.approx(float(total), rel=1e-9, abs=1e-300)


def test_semantics():
    assert alpha_from_semantics(1.0, fraction=0.5, distance=4.0) == 0.5
    # The paper's example in its own unit: the strictest of two statements.
    assert alpha_from_semantics([1.0, 1.0], fraction=[1 / 30, 1], distance=[60, 3]) == pytest.approx(1 / 3)
    alpha = alpha_from_semantics(0.3, fraction=0.2, distance=5.0)
    assert md.EMDPrivacy(alpha).epsilon(0.2 * 5.0) == pytest.approx(0.3)


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


def test_conversions_and_files():
    assert ItemPrivacy(0.5).composed(4) == md.EMDPrivacy(2.0)
    assert ItemPrivacy(0.5).item_level(SPACE).epsilon == 1.5
    assert md.EMDPrivacy(2.0, 1e-6).user_level(SPACE).epsilon == 6.0
    for value in (ItemPrivacy(0.5), md.EMDPrivacy(2.0, 1e-6, "central"), DiscreteEMDPrivacy(1.0, 0.1)):
        assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: released(gaussian=True), "delta > 0"),
        (lambda: released(delta=1e-6), "gaussian=True"),
        (lambda: released(model="local"), "users"),
        (lambda: released(norm=3), "norm"),
        (lambda: released(query=LinearQuery(SPACES["line"], np.ones(4))), "constant"),
        (lambda: md.EMDPrivacy(1, 1), "delta"),
        (lambda: md.EMDPrivacy(1).epsilon(-1), "emd"),
        (lambda: DiscreteEMDPrivacy(1, 0), "radius"),
        (lambda: ItemPrivacy(1).composed(0), "items"),
        (lambda: group_privacy(1, 0, 0), "steps"),
        (lambda: alpha_from_semantics(1, fraction=1.5, distance=1), "fraction"),
        (lambda: alpha_from_semantics([], fraction=[], distance=[]), "epsilon"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(md.DesignError, match=message):
        call()
