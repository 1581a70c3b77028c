"""Frequency estimation: unbiasedness, exact variances, proved error bounds, projections."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechdesign.channels.channel import Channel, Response
from mechdesign.channels.responses import ClusteredResponse, HadamardResponse, KaryResponse
from mechdesign.errors import DesignError
from mechdesign.spaces.earth_mover import emd
from mechdesign.spaces.space import MetricSpace
from mechdesign.user_level.frequency import (
    FrequencyEstimate,
    LaplaceHistogram,
    emd_error_bound,
    metric_response_error_bound,
    simplex_projection,
)

SPACE = MetricSpace.clustered(4, 3, within=0.2)
TRUTH = np.array([30, 5, 5, 20, 10, 0, 0, 0, 10, 15, 3, 2]) / 100
CHANNELS: dict[str, Response] = {
    "metric": ClusteredResponse(SPACE, 6.0),
    "k-ary": KaryResponse(12, 1.0),
    "hadamard": HadamardResponse(12, 1.0),
    "dense": Channel.exponential(SPACE, 5.0),
    "rectangular": Channel(
        np.hstack([Channel.exponential(SPACE, 5.0).matrix * 0.9, np.full((12, 2), 0.05)]), SPACE
    ),
}


def items_of(histogram: np.ndarray, count: int) -> np.ndarray:
    return np.repeat(np.arange(len(histogram)), np.rint(histogram * count).astype(int))


@pytest.mark.parametrize("name", CHANNELS)
def test_unbiased_within_four_standard_errors(name: str) -> None:
    channel = CHANNELS[name]
    items = items_of(TRUTH, 100_000)
    fit = FrequencyEstimate(channel, space=SPACE).fit(channel.sample(items, rng=7))
    # Exact standard error given the data: Var = (f·P·Q² − f)/N.
    variance = (TRUTH @ channel.dense @ channel.inverse**2 - TRUTH) / len(items)
    assert (np.abs(fit.estimate - TRUTH) <= 4 * np.sqrt(variance)).all()
    assert fit.estimate.sum() == pytest.approx(1, abs=1e-12)
    assert fit.standard_errors == pytest.approx(np.sqrt(variance), rel=0.1, abs=1e-4)


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("project", [False, True])
def test_measured_error_is_under_the_bound(name: str, project: bool) -> None:
    channel = CHANNELS[name]
    items = items_of(TRUTH, 1000)
    estimator = FrequencyEstimate(channel, space=SPACE, project=project)
    rng = np.random.default_rng(11)
    fits = [estimator.fit(channel.sample(items, rng=rng)) for _ in range(40)]
    errors = [fit.emd(TRUTH) for fit in fits]
    assert np.mean(errors) <= fits[0].error_bound
    assert np.mean(errors) >= fits[0].error_bound / 12  # the bound is of the right order
    if project:
        assert all((fit.histogram >= 0).all() and abs(fit.histogram.sum() - 1) < 1e-12 for fit in fits)
        assert errors[0] == pytest.approx(emd(fits[0].histogram, TRUTH, SPACE), abs=1e-12)


@pytest.mark.parametrize("name", CHANNELS)
def test_second_moments_by_enumeration(name: str) -> None:
    """Σ_x Var f̂_x from all outcomes of one report, against the closed forms."""
    channel = CHANNELS[name]
    points, clusters = channel.second_moments(SPACE)
    inverse, labels = channel.inverse, np.repeat(np.arange(4), 3)
    sums = np.array([inverse[:, labels == a].sum(axis=1) for a in range(4)]).T
    largest = largest_sums = 0.0
    for x in range(12):
        mean = channel.dense[x] @ inverse
        assert mean == pytest.approx(np.eye(12)[x], abs=1e-9)
        largest = max(largest, float(channel.dense[x] @ ((inverse - mean) ** 2).sum(axis=1)))
        centred = sums - channel.dense[x] @ sums
        largest_sums = max(largest_sums, float(channel.dense[x] @ (centred**2).sum(axis=1)))
    assert points - 1 == pytest.approx(largest, rel=1e-9)
    assert clusters - 1 == pytest.approx(largest_sums, rel=1e-9)


# Shapes of clustered spaces with two points or more.
SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6)).filter(lambda shape: shape != (1, 1))


@given(
    SHAPES,
    st.floats(0.01, 1.0),
    st.floats(0.1, 30.0),
    st.integers(1, 10**6),
)
def test_both_theorems_agree(shape: tuple[int, int], within: float, alpha: float, reports: int) -> None:
    """Theorem 6.5 from dense matrices, and Theorem 6.6 in closed form."""
    clusters, size = shape
    space = MetricSpace.clustered(clusters, size, within=within)
    response = ClusteredResponse(space, alpha)
    closed = metric_response_error_bound(space, alpha, reports=reports)
    dense = emd_error_bound(Channel(response.dense, space), space, reports=reports)
    assert closed == pytest.approx(dense, rel=1e-5, abs=1e-6)
    fast = emd_error_bound(response, space, reports=reports)
    assert closed == pytest.approx(fast, rel=1e-9, abs=1e-8)
    assert emd_error_bound(response, space, reports=reports, population=True) >= fast - 1e-12


@pytest.mark.parametrize("space", [MetricSpace.grid(3, 3), MetricSpace.line([0.0, 1.0, 4.0, 5.0])])
@pytest.mark.parametrize("project", [False, True])
def test_bounds_on_other_spaces(space: MetricSpace, project: bool) -> None:
    channel = Channel.exponential(space, 1.5)
    items = np.arange(400) % 2
    truth = space.histogram(items)
    estimator = FrequencyEstimate(channel, project=project)
    rng = np.random.default_rng(8)
    errors = [estimator.fit(channel.sample(items, rng=rng)).emd(truth) for _ in range(40)]
    assert np.mean(errors) <= estimator.error_bound(400)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), SHAPES)
def test_projection_is_nearest_in_emd_on_clusters(seed: int, shape: tuple[int, int]) -> None:
    clusters, size = shape
    rng = np.random.default_rng(seed)
    space = MetricSpace.clustered(clusters, size, within=0.3)
    estimate = rng.standard_normal(space.size)
    estimate += (1 - estimate.sum()) / space.size
    p = simplex_projection(estimate, space)
    assert (p >= 0).all() and p.sum() == pytest.approx(1, abs=1e-12)
    q = cp.Variable(space.size, nonneg=True)
    near = 0.3
    grouped = [cp.abs(cp.sum((q - estimate)[a * size : (a + 1) * size])) for a in range(clusters)]
    cost = near / 2 * cp.norm1(q - estimate) + (1 - near) / 2 * sum(grouped)
    best = cp.Problem(cp.Minimize(cost), [cp.sum(q) == 1]).solve(solver=cp.HIGHS)
    mine = (
        near / 2 * np.abs(p - estimate).sum()
        + (1 - near) / 2 * np.abs((p - estimate).reshape(clusters, size).sum(axis=1)).sum()
    )
    assert mine == pytest.approx(best, abs=1e-7)


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_euclidean_projection_meets_its_optimality_condition(seed: int, size: int) -> None:
    vector = np.random.default_rng(seed).standard_normal(size) * 2
    p = simplex_projection(vector)
    assert (p >= 0).all() and p.sum() == pytest.approx(1, abs=1e-12)
    # p is the projection iff (v − p)·(q − p) <= 0 for every vertex q of the simplex.
    assert ((vector - p) @ (np.eye(size) - p).T <= 1e-9).all()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: FrequencyEstimate(Channel([[0.5, 0.5], [0.5, 0.5]])), "singular"),
        (lambda: FrequencyEstimate(KaryResponse(3, 1.0), space=MetricSpace.grid(2, 2)), "space"),
        (lambda: FrequencyEstimate(KaryResponse(3, 1.0)).fit([0, 3]), "reports: must be integers in 0..2"),
        (lambda: FrequencyEstimate(KaryResponse(3, 1.0)).fit([]), "one at least"),
        (lambda: LaplaceHistogram(SPACE, epsilon=0.0, users=3), "epsilon"),
        (lambda: LaplaceHistogram(SPACE, epsilon=1.0, users=3).sample(np.ones(12)), "sum to 1"),
    ],
)
def test_bad_input_is_named(make, named: str) -> None:
    with pytest.raises(DesignError, match=named):
        make()


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("reports", [1, 3, 40])
def test_standard_errors_of_absent_items_are_not_zero(name: str, reports: int) -> None:
    """Of items that nobody holds, few reports and all: within the range of what some histogram's data have."""
    channel = CHANNELS[name]
    fit = FrequencyEstimate(channel, space=SPACE).fit(channel.sample(np.zeros(reports, dtype=int), rng=3))
    one = channel.dense @ channel.inverse**2 - np.eye(12)  # row x: the variances where all hold item x
    assert (fit.standard_errors**2 * reports >= one.min(axis=0) * (1 - 1e-9)).all()
    assert (fit.standard_errors**2 * reports <= one.max(axis=0) * (1 + 1e-9)).all()
    assert (fit.standard_errors > 0).all()
