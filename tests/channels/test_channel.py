"""Channels: the exact metric loss, exact sampling, structured responses, planar Laplace."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import mechdesign as md
from mechdesign.channels.channel import integer_rows
from mechdesign.channels.responses import ClusteredResponse, HadamardResponse, KaryResponse, planar_laplace
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Status

mpmath.mp.dps = 40


def exact_loss(channel: md.Channel, distances: np.ndarray) -> mpmath.mpf:
    """Metric loss of the exact rational rows, in 40 digits."""
    rows = channel.weights if channel.weights is not None else integer_rows(channel.matrix)
    worst = mpmath.mpf(0)
    for x, row in enumerate(rows):
        for k, other in enumerate(rows):
            if k == x:
                continue
            for a, b in zip(row, other):
                if a and not b:
                    return mpmath.inf
                if a:
                    ratio = Fraction(a, sum(row)) / Fraction(b, sum(other))
                    log = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
                    worst = max(worst, log / mpmath.mpf(float(distances[x, k])))
    return worst


@st.composite
def channels(draw: st.DrawFn) -> md.Channel:
    n, k = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    matrix = rng.dirichlet(np.full(k, draw(st.sampled_from([0.2, 1.0, 50.0]))), size=n)
    if draw(st.booleans()):
        matrix[:, rng.integers(k)] = 0.0
        matrix += (matrix.sum(axis=1, keepdims=True) == 0) / k
        matrix /= matrix.sum(axis=1, keepdims=True)
    return md.Channel(matrix, MetricSpace.euclidean(rng.random((n, 2))))


@given(channels())
def test_metric_loss_is_an_upper_bound_and_tight(channel: md.Channel) -> None:
    assert channel.space is not None
    exact = exact_loss(channel, channel.space.distances)
    if exact == mpmath.inf:
        assert channel.alpha == math.inf
    else:
        assert mpmath.mpf(channel.alpha) >= exact
        # The least double above it: the next one below is already too small.
        assert exact == 0 or mpmath.mpf(math.nextafter(channel.alpha, 0.0)) < exact


@given(channels(), st.integers(0, 2**32 - 1))
def test_remapping_is_post_processing_and_never_loses(channel: md.Channel, seed: int) -> None:
    prior = np.random.default_rng(seed).dirichlet(np.ones(channel.size))
    again = channel.remapped(prior=prior)
    assert again.metric_loss(channel.space) <= channel.alpha * (1 + 1e-12) + 1e-12
    losses = channel.space.distances
    best = sum(  # every report to its best guess, one by one
        min(sum(prior[x] * channel.matrix[x, y] * losses[x, z] for x in range(channel.size))
            for z in range(channel.size))
        for y in range(channel.outputs)
    )  # fmt: skip
    assert again.expected_loss(prior=prior) == pytest.approx(best, abs=1e-12)


RESPONSES = [
    KaryResponse(5, 1.0),
    ClusteredResponse(MetricSpace.clustered(3, 4, within=0.2), 3.0),
    ClusteredResponse(MetricSpace.clustered(4, 1, within=0.2), 3.0),
    HadamardResponse(6, 1.3),
    HadamardResponse(8, 0.5),
    md.Channel.exponential(MetricSpace.grid(2, 3), 1.0),
]


@pytest.mark.parametrize("response", RESPONSES, ids=lambda r: type(r).__name__ + str(r.size))
def test_samplers_draw_from_the_matrix(response) -> None:
    matrix = response.dense
    assert np.allclose(matrix.sum(axis=1), 1, atol=1e-14)
    for item in (0, response.size - 1):
        fast = np.bincount(response.sample(np.full(100_000, item), rng=item), minlength=response.outputs)
        exact = np.bincount(response.release(np.full(20_000, item)), minlength=response.outputs)
        assert stats.chisquare(fast, matrix[item] * fast.sum()).pvalue > 1e-5
        assert stats.chisquare(exact, matrix[item] * exact.sum()).pvalue > 1e-7  # fresh randomness every run


@pytest.mark.parametrize("response", RESPONSES, ids=lambda r: type(r).__name__ + str(r.size))
def test_transforms_equal_the_matrices(response) -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((3, response.size))
    reports = rng.random((3, response.outputs))
    assert np.allclose(response.apply(rows), rows @ response.dense, atol=1e-12)
    assert np.allclose(response.unbias(reports), reports @ response.inverse, atol=1e-11)
    assert np.allclose(response.dense @ response.inverse, np.eye(response.size), atol=1e-11)
    assert np.allclose(response.inverse.sum(axis=1), 1, atol=1e-11)
    if hasattr(response, "unbias_squares"):
        assert np.allclose(response.unbias_squares(reports), reports @ response.inverse**2, atol=1e-10)


# Shapes of clustered spaces with two points or more.
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 5)).filter(lambda shape: shape != (1, 1))


@given(SHAPES, st.floats(0.01, 1.0), st.floats(1e-3, 60.0))
def test_metric_response_is_private_exactly(shape: tuple[int, int], within: float, alpha: float) -> None:
    clusters, size = shape
    space = MetricSpace.clustered(clusters, size, within=within)
    response = ClusteredResponse(space, alpha)
    own, near, far = response.levels
    # Exact: integers against a 40-digit exponential of the rational α·d.
    growth_near = mpmath.exp(mpmath.mpf(alpha) * mpmath.mpf(within))
    growth_far = mpmath.exp(mpmath.mpf(alpha) * mpmath.mpf(space.across))
    tiny = 1 + mpmath.mpf(10) ** -38
    assert size == 1 or mpmath.mpf(own) / near <= growth_near * tiny
    assert clusters == 1 or mpmath.mpf(own) / far <= growth_far * tiny
    assert response.metric_loss() <= alpha
    # Nothing is given away but the rounding of a level to the next integer.
    shortfall = max(1 / near / within if size > 1 else 0.0, 1 / far if clusters > 1 else 0.0)
    assert response.metric_loss() >= alpha * (1 - 1e-12) - shortfall


def test_large_responses_never_build_a_matrix() -> None:
    space = MetricSpace.clustered(1000, 1000, within=0.01)
    response = ClusteredResponse(space, 500.0)
    histogram = np.zeros(space.size)
    histogram[[3, 999_999]] = 0.5
    assert np.allclose(response.unbias(response.apply(histogram)), histogram, atol=1e-9)
    wide = HadamardResponse(100_000, 1.0)
    one = np.zeros(wide.size)
    one[77] = 1.0
    assert np.allclose(wide.unbias(wide.apply(one)), one, atol=1e-9)


@settings(max_examples=20)
@given(st.floats(0.3, 3.0), st.integers(0, 3), st.integers(0, 3))
def test_planar_laplace_cells(alpha: float, a: int, b: int) -> None:
    """One inner and one corner cell against SciPy's quadrature in polar form."""
    channel = planar_laplace(MetricSpace.grid(4, 4), alpha)
    edges = [-np.inf, 0.5, 1.5, 2.5, np.inf]

    def radial(angle: float, item: tuple[int, int]) -> float:
        # Along a ray the density integrates in closed form between its entry into the cell and its exit.
        low, high = 0.0, np.inf
        for centre, k, direction in zip(item, (a, b), (math.cos(angle), math.sin(angle))):
            if direction == 0:
                continue
            ends = sorted(((edges[k] - centre) / direction, (edges[k + 1] - centre) / direction))
            low, high = max(low, ends[0]), min(high, ends[1])
        if low >= high:
            return 0.0

        def tail(r: float) -> float:
            return 0.0 if math.isinf(r) else math.exp(-alpha * r) * (1 + alpha * r)

        return (tail(low) - tail(high)) / (2 * math.pi)

    corners = [math.atan2(v - 2, u - 1) for u in (0.5, 1.5, 2.5) for v in (0.5, 1.5, 2.5)]
    cuts = sorted({*corners, -math.pi, -math.pi / 2, 0.0, math.pi / 2, math.pi})
    mass = sum(
        integrate.quad(radial, u, v, args=((1, 2),), epsabs=1e-13, epsrel=1e-11)[0]
        for u, v in zip(cuts, cuts[1:])
    )
    assert channel.matrix[1 * 4 + 2, a * 4 + b] == pytest.approx(mass, rel=1e-8, abs=1e-12)
    assert channel.alpha <= alpha * (1 + 1e-12)


def test_exponential_is_calibrated_to_its_real_loss() -> None:
    space = MetricSpace.grid(4, 4)
    plain, tight = (md.Channel.exponential(space, 0.7, calibrated=c) for c in (False, True))
    assert plain.alpha < tight.alpha <= 0.7
    assert tight.alpha > 0.7 * (1 - 1e-9)
    assert tight.expected_loss() < plain.expected_loss()


# -- Bounded counts: an independent program, the theorem of Ghosh, Roughgarden and Sundararajan, exact privacy, false bounds


@pytest.mark.parametrize("loss", ["absolute", "squared"])
def test_pure_privacy_is_the_geometric_mechanism_after_a_remap(loss) -> None:
    """Ghosh, Roughgarden and Sundararajan (2012): for every prior, by the best answer for each answer of the mechanism."""
    rng, n, epsilon = np.random.default_rng(3), 15, 0.6
    a, places = math.exp(-epsilon), np.arange(n + 1)
    matrix = a ** np.abs(places[:, None] - places) * (1 - a) / (1 + a)
    matrix[:, [0, -1]] /= 1 - a
    cost = md.Loss.of(loss)(places[None] - places[:, None].astype(float))
    for _ in range(4):
        prior = rng.dirichlet(np.ones(n + 1))
        remapped = float((matrix.T @ (prior[:, None] * cost)).min(axis=1).sum())
        result = md.BoundedCount(n, md.PureDP(epsilon), loss, prior=prior).solve()
        assert result.value == pytest.approx(remapped, rel=1e-7)
    worst = md.BoundedCount(n, md.PureDP(epsilon), loss).solve()
    assert worst.value <= (matrix * cost).sum(axis=1).max()


def test_large_counts_approach_additive_noise_from_below() -> None:
    privacy = md.ApproximateDP(1, 0.01)
    free = md.OptimalNoise(privacy, loss="squared", integer=True).solve()
    found = [md.BoundedCount(n, privacy, "squared").solve().value for n in (5, 10, 20, 40)]
    assert found == sorted(found) and found[-1] <= free.value * (1 + 1e-9)
    assert found[-1] == pytest.approx(free.value, rel=0.01)


def test_a_time_limit_leaves_the_geometric_mechanism() -> None:
    result = md.BoundedCount(60, md.ApproximateDP(0.5, 1e-4)).solve(time_limit=1e-3)
    assert result.status is Status.LIMIT and result.certificate.verify() and result.lower_bound is None
