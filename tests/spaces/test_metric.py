"""Metric spaces: constructors against definitions, and every bad input named."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.spaces.space import EARTH_RADIUS_KM, MetricSpace, check_distances

SPACES = {
    "euclidean": MetricSpace.euclidean(np.random.default_rng(0).random((7, 3))),
    "line": MetricSpace.line([3.0, -1.0, 0.5, 10.0]),
    "grid": MetricSpace.grid(3, 4, spacing=0.5),
    "manhattan": MetricSpace.grid(3, 3, metric="manhattan"),
    "geodesic": MetricSpace.geodesic([43.7, 43.8, -10.0, 89.0], [7.2, 7.3, 179.0, -170.0]),
    "clustered": MetricSpace.clustered(3, 4, within=0.1),
    "tree": MetricSpace.tree([2, 2, -1, 0, 0], [1.0, 2.0, 0.0, 0.5, 0.25]),
    "leaves": MetricSpace.tree([2, 2, -1, 0, 0], [1.0, 2.0, 0.0, 0.5, 0.25], points=[4, 1, 3]),
    "matrix": MetricSpace.from_matrix([[0, 1, 2], [1, 0, 1.5], [2, 1.5, 0]]),
    "named": MetricSpace.geodesic([43.7, 43.8], [7.2, 7.3], names=["Zürich", "$x$ <b>"]),
}


def shortest_paths(tails, heads, lengths, nodes):
    return dijkstra(coo_matrix((lengths, (tails, heads)), shape=(nodes, nodes)).tocsr(), directed=False)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_space_is_a_metric(space):
    d = space.distances
    assert d.shape == (space.size, space.size) == (len(space), len(space))
    check_distances(d)
    assert space.diameter == d.max()
    with pytest.raises(ValueError):
        d[0, 0] = 1.0


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_spaces_round_trip_through_files(space):
    again = loads(dumps(space))
    assert np.array_equal(again.distances, space.distances) and again.kind == space.kind
    assert dumps(again) == dumps(space)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_scaling_multiplies_every_distance(space):
    scaled = space.scaled(2.5, unit="mile")
    np.testing.assert_allclose(scaled.distances, 2.5 * space.distances, rtol=1e-14)
    assert scaled.unit == "mile" and scaled.diameter == pytest.approx(2.5 * space.diameter, rel=1e-14)


def test_tree_distances_against_networkx():
    rng = np.random.default_rng(1)
    for _ in range(20):
        nodes = int(rng.integers(2, 15))
        parents = np.array([-1] + [int(rng.integers(0, i)) for i in range(1, nodes)])
        lengths = rng.random(nodes) + 0.1
        shuffle = rng.permutation(nodes)  # parents need not come before children
        moved = np.empty(nodes, dtype=int)
        moved[shuffle] = np.where(parents < 0, -1, shuffle[parents])
        span = np.empty(nodes)
        span[shuffle] = lengths
        below = np.flatnonzero(moved >= 0)
        expected = shortest_paths(below, moved[below], span[below], nodes)
        d = MetricSpace.tree(moved, span).distances
        for i, j in itertools.product(range(nodes), repeat=2):
            assert d[i, j] == pytest.approx(expected[i, j], rel=1e-13)


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


def test_rounding_in_a_matrix_is_forgiven():
    d = SPACES["euclidean"].distances.copy()
    d[0, 1] *= 1 + 1e-13
    space = MetricSpace.from_matrix(d)
    assert np.array_equal(space.distances, space.distances.T)


@pytest.mark.parametrize(
    "call",
    [
        lambda: MetricSpace.clustered(0, 3, within=0.1),
        lambda: MetricSpace.clustered(2, 3, within=2.0),
        lambda: MetricSpace.clustered(2, 3, within=0.0),
        lambda: MetricSpace.grid(2, 2, metric="chess"),
        lambda: MetricSpace.grid(2, 2, spacing=-1),
        lambda: MetricSpace.line([1.0, 1.0]),
        lambda: MetricSpace.line([]),
        lambda: MetricSpace.euclidean([[0, 0], [0, 0]]),
        lambda: MetricSpace.euclidean([[0, 0], [1e300, 1e300]]),
        lambda: MetricSpace.line([-1e308, 1e308]),
        lambda: MetricSpace.grid(10**6, 10**6),
        lambda: MetricSpace.grid(3, 3, spacing=1e308),
        lambda: MetricSpace.line(np.arange(30_000.0)).distances,
        lambda: MetricSpace("triangle"),
        lambda: MetricSpace("line"),
        lambda: MetricSpace.euclidean(np.zeros((2, 2, 2))),
        lambda: MetricSpace.geodesic([91], [0]),
        lambda: MetricSpace.geodesic([1, 2], [0]),
        lambda: MetricSpace.tree([1, 0], [1, 1]),
        lambda: MetricSpace.tree([-1, 2, 1], [0, 1, 1]),
        lambda: MetricSpace.tree([-1, 0], [0, 0]),
        lambda: MetricSpace.tree([-1, 0], [0, 1], points=[0, 0]),
        lambda: MetricSpace.from_matrix([[0, 1], [1, 0]], points=[[1.0]]),
        lambda: SPACES["line"].scaled(0),
        lambda: SPACES["line"].indices([]),
        lambda: SPACES["line"].indices([4]),
        lambda: SPACES["line"].indices([-1]),
        lambda: SPACES["line"].indices([0.5]),
        lambda: SPACES["line"].indices([[1], [1, 2]]),
        lambda: SPACES["line"].distribution([1, 0]),
        lambda: SPACES["line"].distribution([2, -1, 0, 0]),
        lambda: SPACES["line"].distribution([2, 1, 0, 0]),
        lambda: SPACES["clustered"].nearest([[0.0]]),
        lambda: SPACES["grid"].nearest([[0.0]]),
    ],
)
def test_bad_input_is_refused_with_the_argument_named(call):
    with pytest.raises(DesignError):
        call()


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
    assert space.histogram(["a", "a", "b", "0"]).tolist() == [0.25, 0.5, 0.25]
    for items in (["c"], ["a", 1], []):
        with pytest.raises(DataError, match="items: must be"):
            space.indices(items)
    with pytest.raises(DataError):
        MetricSpace.line([0, 1]).indices(["a"])
