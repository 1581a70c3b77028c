"""Item-wise release: the object's own guarantee against exact divergences, calibration both ways, sampling, errors."""

import numpy as np
import pytest
from scipy import stats
from shuffle_oracle import divergence, multisets, random_channel, random_space, shuffled_laws

import mechdesign as md
from mechdesign.channels.channel import Channel
from mechdesign.channels.responses import KaryResponse
from mechdesign.errors import DesignError
from mechdesign.spaces.earth_mover import emd_multisets
from mechdesign.spaces.space import MetricSpace
from mechdesign.user_level.itemwise import ItemwiseRelease

LINE = MetricSpace.line([0.0, 1.0, 2.5])


@pytest.mark.parametrize("seed", range(30))
def test_no_small_release_exceeds_its_guarantee(seed):
    """Random channels at their exact α₀ and calibrated ones: all pairs of one user's datasets, the others at random."""
    rng = np.random.default_rng(seed)
    space = random_space(rng, int(rng.integers(2, 5)))
    users, items = ((1, 4), (2, 2), (4, 1), (1, 3), (3, 1))[seed % 5]
    delta = float(10 ** rng.uniform(-4, -0.5))
    options = {"delta": delta, "items": items, "users": users, "model": "central" if users > 1 else "local"}
    if seed % 2:
        channel = random_channel(rng, space, outputs=space.size)
        release = ItemwiseRelease(space, channel=channel, **options)
        assert release.item_alpha == channel.alpha
    else:
        release = ItemwiseRelease(space, alpha=float(rng.uniform(0.3, 8)) / space.diameter, **options)
        assert release.channel.alpha <= release.item_alpha
    own = multisets(space.size, items)
    rest = rng.integers(space.size, size=(1, (users - 1) * items)).repeat(len(own), axis=0)
    laws = shuffled_laws(release.channel.dense, np.hstack([own, rest]))
    radius = float(rng.uniform(0.1, 0.6)) * space.diameter
    near = ItemwiseRelease(space, channel=release.channel, radius=radius, **options)
    distance = emd_multisets(own[:, None], own[None], space)
    guarantee = release.guarantee
    assert divergence(laws[:, None], laws[None], guarantee.alpha * distance).max() <= guarantee.delta + 1e-13
    # The discrete guarantee of the same channel, and its own word on the farthest pair.
    within = distance <= radius
    epsilon, delta = near.guarantee.at(radius)
    exact = divergence(laws[:, None], laws[None], np.full(distance.shape, epsilon))
    assert exact[within].max() <= delta + 1e-13
    i, j = np.unravel_index(distance.argmax(), distance.shape)
    epsilon, delta = release.loss(distance[i, j])
    assert divergence(laws[i], laws[j], np.array(epsilon)) <= delta + 1e-13


def test_reports_follow_the_channel_and_forget_the_order():
    release = ItemwiseRelease(LINE, item_alpha=1.0, delta=1e-6, items=4, users=5)
    data = np.random.default_rng(0).integers(3, size=(5, 4))
    rng = np.random.default_rng(1)
    reports = np.array([release.sample(data, rng=rng) for _ in range(4000)])
    assert reports.shape == (4000, 20)
    expected = release.channel.dense[data.ravel()].mean(axis=0)
    for position in (0, 7, 19):  # every place of the release is a uniformly chosen report
        counts = np.bincount(reports[:, position], minlength=3)
        assert stats.chisquare(counts, expected * len(reports)).pvalue > 1e-4


def test_local_rows_are_shuffled_one_by_one():
    sure = Channel(np.eye(3) * 0.998 + 0.002 / 3, LINE)
    release = ItemwiseRelease(LINE, channel=sure, delta=1e-6, items=3, model="local")
    assert release.total == 3
    got = release.sample(np.tile([0, 1, 2], (3000, 1)), rng=0)
    assert got.shape == (3000, 3)
    assert (np.sort(got, axis=1) == [0, 1, 2]).all(axis=1).mean() > 0.98
    assert np.abs(np.bincount(got[:, 0], minlength=3) / 3000 - 1 / 3).max() < 0.04
    assert release.sample([0, 1, 2], rng=0).shape == (3,)


def test_a_radius_buys_a_larger_item_budget():
    space = LINE.scaled(10.0)
    options = {"delta": 1e-6, "items": 30, "users": 1000}
    everywhere = ItemwiseRelease(space, alpha=6.0, **options)
    near = ItemwiseRelease(space, alpha=6.0, radius=1 / 6, **options)
    assert near.item_alpha > 1.3 * everywhere.item_alpha
    assert near.guarantee.at(1 / 6)[0] <= 1.0 and near.guarantee.sizes == "bounded"
    assert near.loss(1 / 6)[0] <= 1.0 + 1e-9
    with pytest.raises(DesignError, match="beyond radius"):
        near.guarantee.at(0.5)
    with pytest.raises(DesignError, match="radius"):
        ItemwiseRelease(space, alpha=6.0, radius=-1.0, **options)


def test_own_channels_use_their_exact_losses():
    """k-ary response is far better against far points than α₀ · diameter: the clones count its real ε₀."""
    space = MetricSpace.line(np.arange(6.0))
    kary = KaryResponse(6, 1.0)
    release = ItemwiseRelease(space, channel=kary, delta=1e-6, items=2, users=500)
    assert release.item_alpha == pytest.approx(1.0, rel=1e-9)  # neighbours at distance 1
    naive = ItemwiseRelease(space, item_alpha=release.item_alpha, delta=1e-6, items=2, users=500)
    assert release.alpha < 0.5 * naive.alpha


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": None}, "exactly one"),
        ({"item_alpha": 1.0}, "exactly one"),
        ({"delta": 0.0}, 'accounting="composition"'),
        ({"model": "local"}, "users"),
        ({"alpha": None, "channel": Channel(np.eye(2))}, "one point per item"),
        ({"alpha": None, "channel": Channel(np.eye(3))}, "∞"),
    ],
)
def test_bad_designs(change, message):
    arguments = {"alpha": 2.0, "delta": 1e-6, "items": 2, "users": 3, **change}
    with pytest.raises(DesignError, match=message):
        ItemwiseRelease(LINE, **arguments)


@pytest.mark.parametrize("accounting", ["numerical", "closed-form", "composition"])
def test_a_search_does_not_end_below_the_least_double(accounting: str) -> None:
    line = MetricSpace.line([0.0, 1.0, 2.0, 5.0])
    options = {"items": 2, "users": 1000, "accounting": accounting, "time_limit": 1.0}
    delta = 0.0 if accounting == "composition" else 0.01
    for alpha in (5e-324, 1e-310, 1e-101):
        with pytest.raises(md.DesignError, match=r"alpha = .* must be between 1e-100 and 1e100"):
            ItemwiseRelease(line, alpha, delta, **options)
    assert 0 < ItemwiseRelease(line, 1e-100, delta, **options).alpha <= 1e-100
