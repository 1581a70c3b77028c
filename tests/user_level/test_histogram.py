"""Histograms of users: privacy against enumerated data and transport by linear programming, errors against simulation, lower bounds against programs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

import mechdesign as md
from mechdesign.user_level.frequency import signed_emd
from mechdesign.user_level.histogram import TreeHistogram, UserHistogram

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


def test_with_delta_no_bound_is_said():
    result = UserHistogram(LINE, md.EMDPrivacy(3.0, 1e-6), 4, 50).solve()
    assert result.lower_bound is None and result.certificate.verify() and "optimal" not in str(result)


def test_counts_of_all_users_need_their_sizes():
    law = UserHistogram(LINE, md.EMDPrivacy(1.0), 3, 4).solve().mechanism
    law.release([12, 0, 0, 0], sizes=3)
    law.release([9, 3, 0, 0], sizes=[3, 3, 3, 3])
    for counts, sizes in (
        ([12, 0, 0, 0], None),
        ([12, 0, 0, 0], [3, 3, 3, 4]),
        ([13, 0, 0, 0], 3),
        ([13, -1, 0, 0], 3),
    ):
        with pytest.raises((md.DesignError, md.DataError)):
            law.release(counts, sizes=sizes)
    with pytest.raises(md.DesignError, match="equal sizes"):
        law.release([[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0]])


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: UserHistogram(md.MetricSpace.line([1.0]), md.EMDPrivacy(1.0), 1, 1), "2 to 500"),
        (lambda: UserHistogram(LINE, md.EMDPrivacy(1e300), 1, 1), "alpha"),
        (lambda: UserHistogram(LINE, md.EMDPrivacy(1.0, sizes="unbounded"), 1, 1), "how many items"),
        (lambda: UserHistogram(LINE, md.EMDPrivacy(1.0), 10**9, 10**9), "2^50"),
        (
            lambda: UserHistogram(md.MetricSpace.line([0.0, 1e-300, 1.0]), md.EMDPrivacy(1.0), 1, 1),
            "shortest",
        ),
        (lambda: UserHistogram(LINE, md.EMDPrivacy(1.0), 1, 1, "gaussian").solve(), "delta"),
        (lambda: TreeHistogram(LINE, 1, 1, (-1, 0, 1, -1), (0, 1, 1, 1)), "root"),
        (lambda: TreeHistogram(LINE, 1, 1, (-1, 2, 1, 0), (0, 1, 1, 1)), "tree"),
        (lambda: md.compare(md.HistogramOfUsers(LINE, items=1, users=1), md.PureDP(1.0)), "EMDPrivacy"),
    ],
)
def test_bad_input(call, word):
    with pytest.raises(md.DesignError) as caught:
        call()
    assert word in str(caught.value) and "\n" not in str(caught.value)
