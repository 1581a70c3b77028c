"""Histograms of users: privacy against enumerated data and transport by linear programming, errors against simulation, lower bounds against programs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

import mechdesign as md
from mechdesign.channels.channel import Channel, Response
from mechdesign.channels.responses import ClusteredResponse, HadamardResponse, KaryResponse
from mechdesign.user_level.frequency import emd_error_bound, signed_emd
from mechdesign.user_level.histogram import UserHistogram

LINE = md.MetricSpace.line([0.0, 1.0, 1.5, 4.0])
TOWNS = md.MetricSpace.clustered(3, 2, within=0.1)


@pytest.mark.parametrize(("space", "alpha", "items"), [(LINE, 2.0, 3), (LINE, 4.0, 2), (TOWNS, 8.0, 4)])
def test_simulated_distance_is_the_value(space, alpha, items):
    law = UserHistogram(space, md.EMDPrivacy(alpha), items, 20).solve().mechanism
    data, rng = np.random.default_rng(1).integers(0, space.size, (20, items)), np.random.default_rng(2)
    truth = np.bincount(data.ravel(), minlength=space.size) / data.size
    fits = [law.sample(data, rng=rng) for _ in range(3000)]
    far = np.array([signed_emd(fit.estimate - truth, space) for fit in fits])
    error = 4 * far.std() / math.sqrt(len(far))
    assert far.mean() < fits[0].error_bound + error
    if space is LINE:
        assert far.mean() > fits[0].error_bound - error
        made = UserHistogram(space, md.EMDPrivacy(alpha), items, 20)
        errors = made.errors(made.solve())
        squares = far**2
        assert abs(squares.mean() - errors.standard_deviation**2) < 4 * squares.std() / math.sqrt(len(far))
        assert (far <= errors.half_width).mean() >= 0.95
    estimates = np.array([fit.estimate for fit in fits])
    spread = estimates.std(axis=0)
    assert np.all(np.abs(estimates.mean(axis=0) - truth) < 5 * spread / math.sqrt(len(far)))
    squares = (estimates - truth) ** 2
    room = 4.5 * squares.std(axis=0) / math.sqrt(len(far))
    assert np.all(np.abs(squares.mean(axis=0) - fits[0].standard_errors ** 2) < room)


@pytest.mark.parametrize("by", ["linear", "gaussian", "itemwise"])
def test_other_mechanisms_are_within_their_bounds(by):
    design = UserHistogram(TOWNS, md.EMDPrivacy(20.0, 1e-6), 2, 200, by)
    result, data = design.solve(), np.random.default_rng(1).integers(0, 6, (200, 2))
    truth = np.bincount(data.ravel(), minlength=6) / data.size
    far = [signed_emd(design.fit(data, result).estimate - truth, TOWNS) for _ in range(60)]
    assert 0.2 * result.value < np.mean(far) < result.value


def least(data, outputs, truths, alpha, far, errors) -> float:
    """Least worst expected error of an unbiased mechanism with these outputs, by a linear program."""
    n, k = len(data), len(outputs)
    cost = np.zeros(n * k + 1)
    cost[-1] = 1
    equal, right, under = [], [], []
    for x in range(n):
        row = np.zeros(n * k + 1)
        row[x * k : (x + 1) * k] = 1
        equal.append(row)
        right.append(1.0)
        for axis in range(outputs.shape[1]):
            row = np.zeros(n * k + 1)
            row[x * k : (x + 1) * k] = outputs[:, axis]
            equal.append(row)
            right.append(truths[x, axis])
        row = np.zeros(n * k + 1)
        row[x * k : (x + 1) * k] = errors[x]
        row[-1] = -1
        under.append(row)
        for z in range(n):
            if z != x:
                block = np.zeros((k, n * k + 1))
                block[:, x * k : (x + 1) * k] = np.eye(k)
                block[:, z * k : (z + 1) * k] = -math.exp(alpha * far[x, z]) * np.eye(k)
                under.extend(block)
    found = optimize.linprog(
        cost, A_ub=np.array(under), b_ub=np.zeros(len(under)), A_eq=np.array(equal), b_eq=right
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("alpha", [0.7, 2.0, 5.0])
def test_no_unbiased_mechanism_is_below_the_bound_of_a_line(alpha):
    """Two points, one user of two items: all mechanisms with answers on a fine grid far out."""
    space = md.MetricSpace.line([0.0, 1.0])
    design = UserHistogram(space, md.EMDPrivacy(alpha), 2, 1)
    truths = np.array([[0.0], [0.5], [1.0]])
    outputs = np.arange(-60, 65)[:, None] / 4
    far = np.abs(truths - truths.T)
    found = least(range(3), outputs, truths, alpha, far, np.abs(outputs.T - truths))
    assert design.floor * (1 - 1e-6) <= found <= design.solve().value * (1 + 1e-3)
    assert found < design.floor * 1.02


@pytest.mark.parametrize("alpha", [0.5, 1.5])
def test_no_unbiased_mechanism_is_below_the_bound_of_any_space(alpha):
    """Three points apart alike, one user of one item; signed histograms on a grid."""
    space = md.MetricSpace.clustered(1, 3, within=1.0)
    design = UserHistogram(space, md.EMDPrivacy(alpha), 1, 1)
    grid = np.arange(-4, 6)
    outputs = np.array([(a, b, 1 - a - b) for a in grid for b in grid if -4 <= 1 - a - b <= 5], dtype=float)
    truths, far = np.eye(3), 1 - np.eye(3)
    errors = np.abs(outputs[None] - truths[:, None]).sum(axis=2) / 2
    found = least(range(3), outputs[:, :2], truths[:, :2], alpha, far, errors)
    assert design.floor <= found <= design.solve().value * (1 + 1e-6)
    assert found < 8 * design.floor


def test_the_line_is_optimal_and_what_the_bound_counts():
    design = UserHistogram(LINE, md.EMDPrivacy(3.0), 4, 50)
    result = design.solve()
    stated = sum(gap / math.sinh(3 * gap / 4) for gap in (1.0, 0.5, 2.5)) / 200
    assert result.status == "optimal" and result.value == pytest.approx(stated, rel=1e-10)
    few = UserHistogram(LINE, md.EMDPrivacy(3.0), 1, 2)  # two items serve two edges
    terms = sorted(gap / math.sinh(3 * gap) for gap in (1.0, 0.5, 2.5))
    assert few.floor == pytest.approx(sum(terms[-2:]) / 2, rel=1e-10) and few.solve().status != "optimal"


# -- Frequency estimation: unbiasedness, exact variances, proved error bounds, projections -------------------

SPACE = md.MetricSpace.clustered(4, 3, within=0.2)
CHANNELS: dict[str, Response] = {
    "metric": ClusteredResponse(SPACE, 6.0),
    "k-ary": KaryResponse(12, 1.0),
    "hadamard": HadamardResponse(12, 1.0),
    "dense": Channel.exponential(SPACE, 5.0),
    "rectangular": Channel(
        np.hstack([Channel.exponential(SPACE, 5.0).matrix * 0.9, np.full((12, 2), 0.05)]), SPACE
    ),
}


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


@given(SHAPES, st.floats(0.01, 1.0), st.floats(0.1, 30.0), st.integers(1, 10**6))
def test_both_theorems_agree(shape: tuple[int, int], within: float, alpha: float, reports: int) -> None:
    """Theorem 6.5 from dense matrices, and Theorem 6.6 in closed form."""
    clusters, size = shape
    space = md.MetricSpace.clustered(clusters, size, within=within)
    response = ClusteredResponse(space, alpha)
    dense = emd_error_bound(Channel(response.dense, space), space, reports=reports)
    fast = emd_error_bound(response, space, reports=reports)
    assert fast == pytest.approx(dense, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("reports", [1, 3, 40])
def test_standard_errors_of_absent_items_are_not_zero(name: str, reports: int) -> None:
    """Of items that nobody holds, few reports and all: within the range of what some histogram's data have."""
    channel = CHANNELS[name]
    fit = md.FrequencyEstimate(channel, space=SPACE).fit(channel.sample(np.zeros(reports, dtype=int), rng=3))
    one = channel.dense @ channel.inverse**2 - np.eye(12)  # row x: the variances where all hold item x
    assert (fit.standard_errors**2 * reports >= one.min(axis=0) * (1 - 1e-9)).all()
    assert (fit.standard_errors**2 * reports <= one.max(axis=0) * (1 + 1e-9)).all()
    assert (fit.standard_errors > 0).all()
