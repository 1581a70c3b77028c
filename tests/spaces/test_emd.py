"""EMD against a linear program written from the definition, closed forms against POT, and the metric's laws."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from mechdesign.errors import DesignError
from mechdesign.spaces.earth_mover import emd, emd_multisets
from mechdesign.spaces.space import MetricSpace
from spaces.test_metric import SPACES


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


def test_batches_broadcast():
    space = SPACES["euclidean"]
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(7), (4, 1)), rng.dirichlet(np.ones(7), (3,))
    got = emd(p, q, space)
    assert got.shape == (4, 3)
    assert got[2, 1] == emd(p[2, 0], q[1], space) and isinstance(emd(p[2, 0], q[1], space), float)
    assert emd_multisets(np.zeros((4, 1, 3), int), np.ones((2, 3), int), space).shape == (4, 2)


def test_bad_input():
    space = MetricSpace.line([0.0, 1.0])
    for p, q in (([0.5, 0.6], [1, 0]), ([1, 0, 0], [1, 0]), ([1.5, -0.5], [1, 0])):
        with pytest.raises(DesignError):
            emd(p, q, space)
    for xs, ys in (([], [0]), ([0, 2], [0, 1]), (0, 1), ([0], ["a"])):
        with pytest.raises(DesignError):
            emd_multisets(xs, ys, space)
