"""Item-wise release: the object's own guarantee against exact divergences, calibration both ways, sampling, errors."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from shuffle_oracle import divergence, multisets, random_channel, random_space, shuffled_laws
from spaces.test_metric import SPACES

import mechdesign as md
from mechdesign.channels import channel as channel_module
from mechdesign.channels.channel import Channel
from mechdesign.channels.exact import metric_loss
from mechdesign.channels.responses import ClusteredResponse, KaryResponse
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS
from mechdesign.solvers import Deadline
from mechdesign.spaces.earth_mover import emd_multisets
from mechdesign.spaces.space import MetricSpace
from mechdesign.user_level.itemwise import ItemwiseRelease

LINE = MetricSpace.line([0.0, 1.0, 2.5])


@pytest.mark.parametrize("seed", range(100))
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


@pytest.mark.slow
def test_calibration_and_its_comparison():
    space = SPACES["clustered"]
    options = {"delta": 1e-6, "items": 30, "users": 1000}
    by_accounting = {}
    for accounting in ("numerical", "closed-form", "composition"):
        release = ItemwiseRelease(space, alpha=20.0, accounting=accounting, **options)
        by_accounting[accounting] = release.item_alpha
        assert release.guarantee.alpha <= 20.0
    table = release.compare().set_index("accounting")["item_alpha"]
    for accounting, value in by_accounting.items():
        assert table[accounting] == pytest.approx(value, rel=1e-4)
    assert by_accounting["numerical"] > by_accounting["closed-form"] > by_accounting["composition"]
    assert isinstance(release.channel, ClusteredResponse)
    assert ItemwiseRelease(space, alpha=2.0, accounting="composition", items=3).guarantee.delta == 0
    # Local: 30 items hide little among themselves, the closed form has nothing to say.
    with pytest.raises(DesignError, match='accounting="numerical"'):
        ItemwiseRelease(space, alpha=20.0, delta=1e-6, items=30, model="local", accounting="closed-form")


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


def test_units_scale_with_the_space():
    options = {"delta": 1e-6, "items": 5, "users": 200}
    one = ItemwiseRelease(LINE, alpha=2.0, **options)
    miles = ItemwiseRelease(LINE.scaled(10.0), alpha=0.2, **options)
    assert miles.item_alpha == pytest.approx(one.item_alpha / 10, rel=1e-4)
    np.testing.assert_allclose(miles.channel.dense, one.channel.dense, rtol=1e-3)


def test_own_channels_use_their_exact_losses():
    """k-ary response is far better against far points than α₀ · diameter: the clones count its real ε₀."""
    space = MetricSpace.line(np.arange(6.0))
    kary = KaryResponse(6, 1.0)
    release = ItemwiseRelease(space, channel=kary, delta=1e-6, items=2, users=500)
    assert release.item_alpha == pytest.approx(1.0, rel=1e-9)  # neighbours at distance 1
    naive = ItemwiseRelease(space, item_alpha=release.item_alpha, delta=1e-6, items=2, users=500)
    assert release.alpha < 0.5 * naive.alpha


def test_it_round_trips():
    release = ItemwiseRelease(LINE, alpha=2.0, delta=1e-6, items=5, users=200)
    again = loads(dumps(release))
    data = np.zeros((200, 5), dtype=int)
    assert np.array_equal(again.sample(data, rng=3), release.sample(data, rng=3))
    assert again.guarantee.alpha <= 2.0


def test_users_of_different_sizes_are_sent_to_the_reduction():
    release = ItemwiseRelease(LINE, alpha=2.0, delta=1e-6, items=2, users=3)
    with pytest.raises(DesignError, match="sampling_reduction"):
        release.sample([[0, 1], [2], [1, 1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": None}, "exactly one"),
        ({"item_alpha": 1.0}, "exactly one"),
        ({"alpha": -1}, "alpha"),
        ({"delta": 0.0}, 'accounting="composition"'),
        ({"items": 0}, "items"),
        ({"users": 1.5}, "users"),
        ({"model": "local"}, "users"),
        ({"model": "shuffle"}, "model"),
        ({"accounting": "rdp"}, "accounting"),
        ({"alpha": None, "channel": Channel(np.eye(2))}, "one point per item"),
        ({"alpha": None, "channel": Channel(np.eye(3))}, "∞"),
    ],
)
def test_bad_designs(change, message):
    arguments = {"alpha": 2.0, "delta": 1e-6, "items": 2, "users": 3, **change}
    with pytest.raises(DesignError, match=message):
        ItemwiseRelease(LINE, **arguments)


@pytest.mark.parametrize(
    "data", [[], [[0, 1], [1, 3], [0, 0]], [[0, 1], [0, 1]], [0, 1], [[0.5, 1], [0, 0], [0, 1]]]
)
def test_bad_data(data):
    with pytest.raises(DesignError):
        ItemwiseRelease(LINE, alpha=2.0, delta=1e-6, items=2, users=3).sample(data)


@pytest.mark.slow
def test_a_wide_line_is_calibrated_on_its_own_guarantee():
    """0.244 was all that any channel may lose; this one loses less on far pairs, and 0.38 stays within α = 5."""
    line = MetricSpace.line(np.arange(20) * 20 / 19)
    release = ItemwiseRelease(line, alpha=5.0, delta=1e-6, items=30, users=1000)
    assert release.item_alpha >= 0.38 and release.channel.metric_loss(line) <= release.item_alpha
    again = ItemwiseRelease(line, channel=release.channel, delta=1e-6, items=30, users=1000)
    assert again.alpha <= release.alpha * (1 + 1e-9) <= 5.0 * (1 + 1e-9)
    row = release.compare().set_index("accounting").loc["numerical"]
    assert (row["item_alpha"], row["alpha"]) == (release.item_alpha, release.alpha)


PLANE = MetricSpace.euclidean(np.random.default_rng(3).normal(size=(25, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("questions", [0, 1, 4, 10, 26, 40, 60, 90])
@pytest.mark.parametrize("space", [PLANE, MetricSpace.clustered(3, 4, within=0.1)], ids=["plane", "clusters"])
@pytest.mark.parametrize("radius", [None, 0.05])
def test_whenever_time_is_up_the_release_keeps_alpha(questions, space, radius, monkeypatch):
    asked = itertools.count()
    given = {"alpha": 20.0, "delta": 1e-6, "items": 30, "users": 1000, "radius": radius}
    free = ItemwiseRelease(space, **given)
    monkeypatch.setattr(
        Deadline,
        "left",
        property(lambda self: (1.0 if next(asked) < questions else 0.0) if self.finite else math.inf),
    )
    try:
        late = ItemwiseRelease(space, **given, time_limit=1.0)
    except md.SolverError as error:
        assert space is PLANE and error.status == "limit" and "clustered" in str(error)
        return
    monkeypatch.undo()
    # what it says of itself is what its channel has, worked out anew; and at least what composition allows
    assert late.channel_loss == late.channel.metric_loss(space)
    again = ItemwiseRelease(space, **{**given, "alpha": None, "channel": late.channel})
    assert again.alpha <= late.alpha * (1 + 1e-12) <= 20.0 * (1 + 1e-12)
    assert late.item_alpha * (1 + 1e-9) >= 20.0 / 30 * (1 - 1e-9) and late.item_alpha <= 1.2 * free.item_alpha
    assert dumps(loads(dumps(late), kinds=KINDS)) == dumps(late)


def test_a_limit_is_a_number_of_seconds():
    for bad in (0, -1, math.nan, "a", True):
        with pytest.raises(md.DesignError, match="time_limit"):
            ItemwiseRelease(PLANE, alpha=1.0, time_limit=bad, accounting="composition")
        with pytest.raises(md.DesignError, match="time_limit"):
            Channel.exponential(PLANE, 1.0, time_limit=bad)


def test_all_losses_come_from_one_table_of_quotients(monkeypatch):
    counted = []
    taken = channel_module.largest_quotients
    monkeypatch.setattr(channel_module, "largest_quotients", lambda *a: counted.append(1) or taken(*a))
    channel = Channel.exponential(PLANE, 3.0)
    release = ItemwiseRelease(PLANE, channel=channel, delta=1e-6, items=5, users=9)
    assert counted == [1] and release.channel_loss == channel.alpha <= 3.0
    assert channel.epsilon == metric_loss(channel.matrix, np.ones((25, 25)), channel.weights)
    assert not channel.quotients().flags.writeable


@pytest.mark.parametrize("accounting", ["numerical", "closed-form", "composition"])
def test_a_search_does_not_end_below_the_least_double(accounting: str) -> None:
    """At α = 5e-324 an item has α₀ = 0, at which the search for a smaller one stood still, past its time limit."""
    line = MetricSpace.line([0.0, 1.0, 2.0, 5.0])
    options = {"items": 2, "users": 1000, "accounting": accounting, "time_limit": 1.0}
    delta = 0.0 if accounting == "composition" else 0.01
    for alpha in (5e-324, 1e-310, 1e-101):
        with pytest.raises(md.DesignError, match=r"alpha = .* must be between 1e-100 and 1e100"):
            ItemwiseRelease(line, alpha, delta, **options)
    assert 0 < ItemwiseRelease(line, 1e-100, delta, **options).alpha <= 1e-100


def test_the_least_delta_has_a_release_or_a_reason() -> None:
    """δ = 5e-324 ended in a math domain error."""
    line = MetricSpace.line([0.0, 1.0, 2.0, 5.0])
    assert ItemwiseRelease(line, 1.0, 1.001e-100, items=2, users=100).guarantee.alpha <= 1.0
    with pytest.raises(md.DesignError, match="delta = 5e-324"):
        ItemwiseRelease(line, 1.0, 5e-324, items=2, users=100)
    with pytest.raises(md.DesignError, match="the closed form needs"):
        ItemwiseRelease(line, 1.0, 1.001e-100, items=2, users=100, accounting="closed-form")
