"""Metric spaces: constructors against definitions, and every bad input named."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from mechdesign.channels.channel import Channel
from mechdesign.errors import DataError, DesignError
from mechdesign.spaces.space import EARTH_RADIUS_KM, MetricSpace, check_distances, emd, emd_multisets

SPACES = {
    "euclidean": MetricSpace.euclidean(np.random.default_rng(0).random((7, 3))),
    "line": MetricSpace.line([3.0, -1.0, 0.5, 10.0]),
    "grid": MetricSpace.grid(3, 4, spacing=0.5),
    "manhattan": MetricSpace.grid(3, 3, metric="manhattan"),
    "geodesic": MetricSpace.geodesic([43.7, 43.8, -10.0, 89.0], [7.2, 7.3, 179.0, -170.0]),
    "clustered": MetricSpace.clustered(3, 4, within=0.1),
    "matrix": MetricSpace.from_matrix([[0, 1, 2], [1, 0, 1.5], [2, 1.5, 0]]),
    "named": MetricSpace.geodesic([43.7, 43.8], [7.2, 7.3], names=["Zürich", "$x$ <b>"]),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_space_is_a_metric(space):
    d = space.distances
    assert d.shape == (space.size, space.size)
    check_distances(d)
    assert space.diameter == d.max()
    with pytest.raises(ValueError):
        d[0, 0] = 1.0


@given(st.integers(1, 3), st.integers(-900, 900))
def test_distances_in_any_unit_are_the_same(dimension, power):
    points = np.random.default_rng(dimension).random((5, dimension))
    ours = MetricSpace.euclidean(points * 2.0**power).distances
    np.testing.assert_allclose(ours * 2.0**-power, MetricSpace.euclidean(points).distances, rtol=1e-15)


def test_geodesic_quarter_meridian_and_antipodes():
    space = MetricSpace.geodesic([0, 90, 0], [0, 0, 180])
    np.testing.assert_allclose(space.distances[0, 1], EARTH_RADIUS_KM * np.pi / 2, rtol=1e-14)
    np.testing.assert_allclose(space.distances[0, 2], EARTH_RADIUS_KM * np.pi, rtol=1e-14)
    assert space.unit == "km"


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_a_broken_triangle_is_found_and_named(n, seed):
    rng = np.random.default_rng(seed)
    d = MetricSpace.euclidean(rng.random((n + 1, 2))).distances.copy()
    x, z, y = (int(v) for v in rng.choice(n + 1, 3, replace=False))
    d[x, y] = d[y, x] = (d[x, z] + d[z, y]) * 1.01
    with pytest.raises(DesignError, match="triangle inequality broken at") as error:
        MetricSpace.from_matrix(d)
    i, k, j = (int(v) for v in str(error.value).split("(")[1].split(")")[0].split(","))
    assert d[i, j] > d[i, k] + d[k, j]
    assert {x, y} <= {i, j, k}


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0, -1], [-1, 0]], "negative"),
        ([[0, 1], [2, 0]], "symmetric"),
        ([[1, 1], [1, 0]], "diagonal"),
        ([[0, 0], [0, 0]], "distance 0"),
        ([[0, np.nan], [1, 0]], "finite"),
        ([[0, 1, 1]], "square"),
        ([["a"]], "numbers"),
        (np.zeros((0, 0)), "at least one point"),
    ],
)
def test_bad_matrices(matrix, message):
    with pytest.raises(DesignError, match=message):
        MetricSpace.from_matrix(matrix)


def test_histograms_count():
    space = SPACES["grid"]
    items = np.random.default_rng(2).integers(0, space.size, (3, 5, 8))
    got = space.histogram(items)
    assert got.shape == (3, 5, space.size)
    for index in np.ndindex(3, 5):
        np.testing.assert_array_equal(got[index] * 8, np.bincount(items[index], minlength=space.size))


def test_nearest_snaps():
    grid = MetricSpace.grid(3, 3)
    assert grid.nearest([[0.1, 1.9], [2.4, 0.4]]).tolist() == [2, 6]
    city = SPACES["geodesic"]
    assert city.nearest([[-11.0, -179.0]]).tolist() == [2]  # across the date line


@pytest.mark.parametrize(
    ("latitude", "longitude"), [([0, 0], [0, 360]), ([10, 10], [-180, 180]), ([90, 1, 90], [0, 3, 50])]
)
def test_one_place_under_two_names_is_refused(latitude: list[float], longitude: list[float]) -> None:
    with pytest.raises(DesignError, match=r"longitude = .*is the same place as point 0; merge them"):
        MetricSpace.geodesic(latitude, longitude)


def test_points_are_known_by_their_names():
    space = MetricSpace.euclidean([[0, 0], [3, 4], [6, 8]], names=np.array(["b", "a", "0"]))
    assert space.names == ("b", "a", "0") == space.scaled(2.0).names
    assert space.indices([["a", "0"], ["b", "a"]]).tolist() == [[1, 2], [0, 1]]
    assert space.indices("0") == 2 and space.indices(0) == 0
    other = MetricSpace.euclidean([[6, 8], [0, 0], [3, 4]], names=["0", "b", "a"])
    channel = Channel.exponential(space, 0.3)
    assert channel.metric_loss(other) == channel.metric_loss()
    assert space.histogram(["a", "a", "b", "0"]).tolist() == [0.25, 0.5, 0.25]
    for items in (["c"], ["a", 1], []):
        with pytest.raises(DataError, match="items: must be"):
            space.indices(items)
    with pytest.raises(DataError):
        MetricSpace.line([0, 1]).indices(["a"])


# -- EMD against a linear program written from the definition, closed forms against POT, and the metric's laws


def transport_program(p, q, d):
    n = len(p)
    rows = np.kron(np.eye(n), np.ones(n))
    columns = np.kron(np.ones(n), np.eye(n))
    result = linprog(d.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.r_[p, q], method="highs")
    return result.fun


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_against_the_linear_program_and_pot(space):
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.full(space.size, 0.5), 20)
    q = rng.dirichlet(np.full(space.size, 0.5), 20)
    got = emd(p, q, space)
    for i in range(20):
        assert got[i] == pytest.approx(transport_program(p[i], q[i], space.distances), rel=1e-8, abs=1e-10)
        assert got[i] == pytest.approx(ot.emd2(p[i], q[i], space.distances), rel=1e-11, abs=1e-14)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@settings(max_examples=30)  # of each space
@given(seed=st.integers(0, 2**32 - 1))
def test_it_is_a_metric_bounded_by_the_diameter(space, seed):
    rng = np.random.default_rng(seed)
    p, q, r = rng.dirichlet(np.full(space.size, 0.3), 3)
    pq, qp, pr, rq = emd([p, q, p, r], [q, p, r, q], space)
    assert pq == pytest.approx(qp, rel=1e-12, abs=1e-14)
    assert pq <= (pr + rq) * (1 + 1e-12) + 1e-14
    assert 0 <= pq <= space.diameter * (1 + 1e-12)
    assert emd(p, p, space) == 0.0
    i, j = rng.integers(space.size, size=2)
    assert emd(np.eye(space.size)[i], np.eye(space.size)[j], space) == pytest.approx(
        space.distances[i, j], rel=1e-13
    )


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_multisets_are_an_assignment(space):
    rng = np.random.default_rng(4)
    xs, ys = rng.integers(space.size, size=(2, 6, 5))
    got = emd_multisets(xs, ys, space)
    np.testing.assert_allclose(
        got, emd(space.histogram(xs), space.histogram(ys), space), rtol=1e-11, atol=1e-14
    )
    # Different sizes, and repeating a multiset does not change it.
    assert emd_multisets(xs[0], np.tile(ys[0], 3), space) == pytest.approx(got[0], rel=1e-11)
    many = rng.integers(space.size, size=(2, 500))
    assert emd_multisets(*many, space) == pytest.approx(emd(*space.histogram(many), space), rel=1e-11)
