"""Deployment: numbers on a lattice from integers, private for exactly what is stated, and nothing betrayed by their digits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from scipy import stats

from mechdesign.channels.responses import ClusteredResponse
from mechdesign.errors import DesignError
from mechdesign.noise.knorm_noise import KNormNoise
from mechdesign.noise.release import RoundedSum
from mechdesign.spaces.space import MetricSpace
from mechdesign.user_level.frequency import LaplaceHistogram
from mechdesign.user_level.itemwise import ItemwiseRelease
from mechdesign.user_level.linear_release import LinearQuery, LinearRelease
from mechdesign.user_level.reduction import ReducedRelease

LINE = MetricSpace.line([0.0, 1.0, 3.0])
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
        with pytest.raises(DesignError):
            central.release(bad)


KINDS = [
    (1, math.inf, False),
    (2, 2.0, False),
    (3, math.inf, False),
    (2, 2.0, True),
    (1, 2.0, True),
    (5, 2.0, False),
]


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
    assert stats.kstest(np.linalg.norm(moved, ord=norm, axis=1), law.norm_law.cdf).pvalue > FALSE_ALARM
    zeros = np.zeros((size, dimension))
    assert stats.ks_2samp(moved[:, 0], law.sample(zeros, rng=0)[:, 0]).pvalue > FALSE_ALARM
    assert stats.ks_2samp(moved.sum(axis=1), law.sample(zeros, rng=1).sum(axis=1)).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("dimension", "norm", "gaussian"), KINDS)
def test_rounded_sums_in_doubles_are_within_their_error(dimension: int, norm: float, gaussian: bool) -> None:
    """Wherever in their cells the uniform numbers are: at an end, or anywhere."""
    noise, rng = RoundedSum(dimension, 0.3, norm, gaussian), np.random.default_rng(0)
    words = rng.integers(1, 2**32, (60, noise._uniforms), dtype=np.uint32)
    words[:10] >>= np.uint32(24)
    words[10:15] |= np.uint32(0xFFFFFFF0)
    with np.errstate(all="ignore"):
        about, error = (np.broadcast_to(v, (60, dimension)) for v in noise._doubles(words))
    with ctx.workdps(50):
        for row, near, room in zip(words.tolist(), about, error):
            for place in (0, 1, rng.random()):
                u = [(w + arb(place)) / 2**32 for w in row]
                if min(u) > 0 and max(u) < 1:
                    exact = noise._balls(u)
                    assert all(abs(z - float(n)) <= e for z, n, e in zip(exact, near, room) if e < 1e300)
    assert (error < 1e-6).mean() > 0.5
    assert not np.isfinite(noise._doubles(np.zeros((1, noise._uniforms), np.uint32))[1]).any()


def test_answers_far_above_their_noise_are_released() -> None:
    far = LinearRelease(LinearQuery(LINE, [1e90, 1e90, -1e70]), alpha=1.0, model="local")
    got = far.release([0.5, 0.5, 0.0])
    assert abs(got[0] - 1e90) < 100 * far.scale


def test_released_histograms() -> None:
    space = MetricSpace.clustered(2, 3, within=0.2)
    truth = np.array([0.4, 0.1, 0.1, 0.2, 0.1, 0.1])
    release = LaplaceHistogram(space, epsilon=1.0, users=50)
    assert release.scale < release.lattice.scale <= release.scale * (1 + 1e-12)
    fits = [release.release(truth) for _ in range(3000)]
    mean = np.mean([fit.estimate for fit in fits], axis=0)
    assert (np.abs(mean - truth) < 7 * fits[0].standard_errors / math.sqrt(len(fits))).all()
    assert np.mean([fit.emd(truth) for fit in fits]) < fits[0].error_bound


def test_averages_that_are_off_by_more_than_is_counted_are_refused() -> None:
    """The sensitivity counts rounding up to 3·10⁻¹⁵, and no more."""
    release = LaplaceHistogram(LINE, epsilon=1.0, users=50)
    release.release([0.1, 0.2, 0.7])
    with pytest.raises(DesignError, match="rounding of doubles"):
        release.release([0.1, 0.2, 0.7 + 5e-10])


@pytest.mark.parametrize("model", ["central", "local"])
def test_itemwise_releases_shuffle_exactly(model: str) -> None:
    space = MetricSpace.clustered(2, 2, within=0.5)
    users = 2000 if model == "central" else 1
    release = ItemwiseRelease(
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
    space = MetricSpace.line([0.0, 0.5, 1.0])
    linear = LinearRelease(LinearQuery.average(space), 50.0, users=2)
    reduced = ReducedRelease(linear, radius=0.1, samples=20)
    got = np.array([reduced.release([[0], [1, 1, 2, 2]])[0] for _ in range(2000)])
    assert abs(got.mean() - 0.375) < 7 * got.std() / math.sqrt(len(got))
    item = ReducedRelease(ItemwiseRelease(space, item_alpha=1.0, delta=1e-6, items=5, users=2), radius=0.1)
    assert item.release([[0], [1, 2]]).shape == (10,)
