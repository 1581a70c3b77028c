"""The optimal metric channel: published values, brute force, symmetry, spanners, certificates."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.channels import design as metric_channel
from mechdesign.channels.channel import Channel, Response, check_prior, private_weights
from mechdesign.channels.responses import ClusteredResponse, HadamardResponse, KaryResponse
from mechdesign.evidence.proofs import RowsBound
from mechdesign.spaces.space import graph_stretch, greedy_spanner
from mechdesign.typing import Status
from mechdesign.user_level.linear_release import LinearQuery, LinearRelease


@pytest.mark.parametrize(("side", "published"), [(3, 1.0188318618), (4, 1.2543731042), (5, 1.4481974068)])
@pytest.mark.parametrize("solver", ["highs", "highs-ipm"])
def test_published_values(side: int, published: float, solver: str) -> None:
    result = md.MetricChannel(md.MetricSpace.grid(side, side), alpha=0.7).solve(solver)
    assert result.value == pytest.approx(published, abs=1e-9)
    assert result.certificate.verify()
    assert result.gap <= 1e-9
    assert result.lower_bound <= result.value
    assert result.mechanism.alpha <= 0.7


@pytest.mark.parametrize(
    ("points", "options", "value"),
    [
        ([[0.234, 0.304], [1.62, 2.632]], {"loss": [[0.5], [0.5]]}, 0.5),  # no rows of privacy
        ([[2.594, 2.566], [2.433, 0.784], [0.232, 2.839]], {"prior": [0, 0, 1.0], "loss": "squared"}, 0.0),
    ],
)
def test_a_bound_is_at_least_the_least_loss_of_each_item(points, options, value) -> None:
    result = md.MetricChannel(md.MetricSpace.euclidean(points), 0.7, **options).solve()
    assert result.value == result.lower_bound == value and result.status is Status.OPTIMAL


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
def test_lower_bound_holds_for_any_multipliers_and_any_private_channel(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = md.MetricSpace.euclidean(rng.random((4, 2)))
    loss, prior = rng.random((4, 4)), rng.dirichlet(np.ones(4))
    channel = Channel(rng.dirichlet(np.full(4, 5.0), size=4), space)
    design = md.MetricChannel(space, channel.alpha, prior, loss)
    numbers = np.sort(rng.choice(4 * 3 * 4, 3, replace=False))  # of rows (pair, report)
    multipliers = tuple(Fraction(x) for x in (rng.random(3) * 0.1).tolist())
    law = design.repaired(channel.matrix)
    bound = design.linear_bound(numbers, multipliers).bound
    assert float(bound) <= channel.expected_loss(loss, prior) + 1e-15
    assert law.value == pytest.approx(channel.expected_loss(loss, prior), rel=1e-12)
    proofs = (*law.proofs, RowsBound(numbers, multipliers))
    for above, holds in ((-1e-12, True), (1e-9, False)):
        stated = float(bound) + above * (1 + abs(float(bound)))
        assert md.Certificate(design, law.mechanism, law.value, stated, proofs).verify() is holds


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1e-9, 1e-15]))
def test_repair_makes_any_table_private_exactly(seed: int, error: float) -> None:
    rng = np.random.default_rng(seed)
    space = md.MetricSpace.grid(2, 2)
    private = Channel.exponential(space, 1.0).matrix
    broken = np.maximum(private + error * rng.standard_normal(private.shape), 0.0)
    weights = private_weights(broken, space.distances, 1.0, space.distances / 4)
    rho = {d: mpmath.exp(mpmath.mpf(d)) for d in np.unique(space.distances).tolist()}
    assert len({sum(row) for row in weights}) == 1
    for x in range(4):
        for other in range(4):
            bound = rho[float(space.distances[x, other])]
            for a, b in zip(weights[x], weights[other]):
                assert mpmath.mpf(a) <= bound * b * (
                    1 + mpmath.mpf(10) ** -14
                )  # 15 digits of mpmath's default
    moved = np.abs(Channel.from_weights(weights).matrix - private).max()
    assert moved <= 20 * error + 1e-14


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=9))
def test_a_prior_is_divided_once(weights: list[float]) -> None:
    """A prior that is read from a file stays what it is, to the last bit."""
    once = check_prior("prior", np.array(weights) / math.fsum(weights), len(weights))
    assert np.array_equal(check_prior("prior", once, len(weights)), once)
    assert math.fsum(once.tolist()) == pytest.approx(1.0, abs=5e-16)


@pytest.mark.parametrize("stretch", [1.0, 1.1, 1.5])
def test_spanner_keeps_its_guarantee(stretch: float) -> None:
    space = md.MetricSpace.grid(4, 4)
    exact = md.MetricChannel(space, alpha=0.7).solve()
    result = md.MetricChannel(space, alpha=0.7, spanner=stretch).solve()
    looser = md.MetricChannel(space, alpha=0.7 / stretch).solve()
    assert exact.value <= result.value * (1 + 1e-12)
    assert result.value <= looser.value * (1 + 1e-9)
    assert result.lower_bound <= exact.value * (1 + 1e-12)
    assert result.certificate.verify() and result.mechanism.alpha <= 0.7


@given(st.integers(0, 2**32 - 1), st.floats(1.0, 3.0))
@settings(max_examples=50)
def test_greedy_spanner_has_its_stretch(seed: int, stretch: float) -> None:
    space = md.MetricSpace.euclidean(np.random.default_rng(seed).random((9, 2)))
    edges = greedy_spanner(space.distances, stretch)
    assert graph_stretch(space.distances, edges) <= stretch * (1 + 1e-12)
    # Greedy keeps no edge it could do without: dropping any breaks the stretch.
    for k in range(len(edges)):
        rest = np.delete(edges, k, axis=0)
        assert graph_stretch(space.distances, rest) > stretch * (1 - 1e-12)


def unbiased_channel(space: md.MetricSpace, loss: np.ndarray, reports: np.ndarray) -> md.Result:
    problem = md.MetricChannel(space, alpha=0.8, loss=loss).problem()
    row = md.named("unbiased", problem.unknown @ reports == np.arange(3.0))
    return problem.subject_to(row).solve()


def test_unbiased_query() -> None:
    space = md.MetricSpace.line([0.0, 1.0, 2.0])
    reports = np.array([-8.0, -2.0, 0.0, 1.0, 2.0, 4.0, 10.0])
    loss = (np.arange(3.0)[:, None] - reports[None, :]) ** 2
    result = unbiased_channel(space, loss, reports)
    assert result.to_frame().to_numpy()[:, -len(reports) :].astype(float) @ reports == pytest.approx(
        np.arange(3.0), abs=1e-12
    )
    assert result.certificate.verify() and result.gap <= 1e-9
    frame = result.audit()
    assert set(frame["family"]) == {"private", "sums", "unbiased"}
    with pytest.raises(md.InfeasibleError, match="'private' and 'unbiased' together"):
        unbiased_channel(space, loss[:, 2:5], reports[2:5])


def test_named_places() -> None:
    names = ["Mitte", "$Wedding", "<b>", "Pankow"]
    points = [52.520, 52.530, 52.505, 52.550], [13.405, 13.385, 13.440, 13.430]
    spaces = [md.MetricSpace.geodesic(*points, names=given) for given in (names, (), names[::-1])]
    found, plain, _ = (md.MetricChannel(space, 1.0, [0.1, 0.2, 0.4, 0.3]).solve() for space in spaces)
    assert found.value == plain.value and (found.mechanism.matrix == plain.mechanism.matrix).all()
    assert "places: <b>, Pankow, $Wedding, Mitte\n" in str(found)
    assert found.to_frame()["item"].tolist() == names
    assert {"Mitte, $Wedding: <b>", "<b>"} <= set(found.audit()["index"])
    assert {text.get_text() for text in found.plot().axes[0].texts} == set(names)
    report = found.mechanism.sample(["Mitte"] * 50 + ["Pankow"] * 50, rng=3)
    assert report.tolist() == [names[y] for y in plain.mechanism.sample([0] * 50 + [3] * 50, rng=3)]
    assert found.release([["Mitte"]])[0, 0] in names and found.release(3).dtype.kind == "i"
    fit = md.FrequencyEstimate(found.mechanism).fit
    assert (fit(report).estimate == fit([names.index(y) for y in report]).estimate).all()


# -- What doubles may decide in the proofs of a channel, and how many exponentials they enclose --------------


# -- Channels of many items by reports: HiGHS as oracle, private exactly whatever the time, bounds below, large spaces


def drawn(
    seed: int, n: int, side: float, alpha: float, loss: object = "metric", **options: object
) -> md.MetricChannel:
    rng = np.random.default_rng(seed)
    if loss == "wide":
        loss = rng.random((n, n + 3))
    points = md.MetricSpace.euclidean(rng.uniform(0, side, (n, 2)))
    return md.MetricChannel(points, alpha, rng.dirichlet(np.full(n, 0.5)), loss, **options)


@pytest.mark.parametrize("limit", [0.02, 0.3])
def test_whenever_time_ends_there_is_a_private_channel(limit: float) -> None:
    design = drawn(1, 50, 7, 1.0)
    found = design.solve(time_limit=limit)
    assert found.certificate.verify() and found.mechanism.alpha <= 1.0
    assert found.lower_bound is None or found.lower_bound <= design.solve(time_limit=2).value


@pytest.mark.slow
def test_items_and_reports_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the memory for all: a bound from the likeliest items, a law of some reports."""
    design = drawn(2, 40, 6, 1.0)
    whole = design.solve(gap=1e-3)
    monkeypatch.setattr(metric_channel, "_ENTRIES", 40 * 25**2)
    parts = design.solve("interior point")
    assert parts.certificate.verify() and parts.status == Status.GAP
    assert parts.lower_bound <= whole.lower_bound * (1 + 1e-3) and whole.value <= parts.value * (1 + 1e-3)
    assert parts.gap < 0.35


# -- Channels on spaces out of the doubles' reach, what their proofs hold to, and limits ---------------------


@pytest.mark.parametrize("rare", [None, 1e-15, 1e-17, 3e-19])
def test_far_points_and_rare_items_do_not_underflow(rare: float | None) -> None:
    """Where e^{-1000} is 0 in doubles, or 1 less a probability is 1."""
    far = [0, 1, 2, 1000, 1001, 1002], 1.0, None
    line, alpha, prior = far if rare is None else ([0, 1], 0.1, [rare, 1 - rare])
    result = md.MetricChannel(md.MetricSpace.line(line), alpha, prior=prior).solve()
    assert result.mechanism.alpha <= 1.0 and result.certificate.verify()
    assert result.gap < 1e-9 if rare is None else result.value <= rare


@pytest.mark.parametrize("unit", [1e-13, 1e-6, 1e6, 1e13])
def test_the_unit_of_distance_does_not_matter(unit: float) -> None:
    result = md.MetricChannel(md.MetricSpace.line(np.array([0, 1, 3, 4]) * unit), alpha=1 / unit).solve()
    assert result.value / unit == pytest.approx(0.45689018, abs=1e-8)
    assert result.status is Status.OPTIMAL and result.gap < 1e-12


def test_an_item_far_off_is_not_given_away() -> None:
    """What is impossible in doubles has a probability all the same."""
    release = md.ItemwiseRelease(
        md.MetricSpace.line([0.0, 1.0, 1000.0]), item_alpha=1.0, delta=1e-6, items=5, users=100
    )
    assert release.channel.metric_loss() <= 1.0
    assert release.guarantee.alpha == pytest.approx(5.0)
    assert (release.channel.dense > 0).all()


def test_fifty_thousand_points_on_a_line_need_no_matrix() -> None:
    """What needs no matrix answers; what needs one says its size."""
    line = md.MetricSpace.line(np.arange(50_000.0))
    release = LinearRelease(LinearQuery.average(line), alpha=1.0, users=10)
    assert release.scale == pytest.approx(0.1)
    assert LinearQuery.distance_to(line, 3).lipschitz() == pytest.approx(1.0)
    assert LinearQuery.region(line, [0, 1], bandwidth=4.0).lipschitz() == pytest.approx(0.25)
    assert math.isfinite(md.user_level.LaplaceHistogram(line, 1.0, 100).error_bound)
    assert release.release(line.histogram([5, 5, 6])).shape == (1,)
    for matrix in (
        lambda: line.distances,
        lambda: Channel.exponential(line, 1.0),
        lambda: LinearQuery.histogram(line),
    ):
        with pytest.raises(md.DesignError, match="GiB"):
            matrix()


# ---------------------------------------------------------------------- what a certificate proves


def test_losses_of_few_levels_are_those_of_the_matrix() -> None:
    """On any space: the closed forms against the matrix's exact loss, from above and by less than a hair."""
    rng = np.random.default_rng(3)
    own = md.MetricSpace.clustered(3, 4, within=0.2)
    spaces = [
        md.MetricSpace.line(rng.uniform(0, 1, 12)), md.MetricSpace.clustered(4, 3, within=0.3, across=0.7),
        md.MetricSpace.clustered(3, 4, within=0.1, across=2.0), md.MetricSpace.grid(3, 4, spacing=0.1), own,
        md.MetricSpace.from_matrix(own.distances), md.MetricSpace.clustered(1, 12, within=0.5),
    ]  # fmt: skip
    for channel in (ClusteredResponse(own, 3.0), KaryResponse(12, 1.0), HadamardResponse(12, 1.0)):
        for space in spaces:
            dense = Response.metric_loss(channel, space)
            assert dense * (1 - 1e-12) <= channel.metric_loss(space) <= dense * (1 + 1e-9), (channel, space)


def test_numbers_are_read_by_name() -> None:
    """A Series or a DataFrame in another order once gave another design."""
    named = md.MetricSpace.line([0.0, 1.0, 3.0], names=["a", "b", "c"])
    assert md.MetricChannel(named, 1.0, prior=pd.Series([0.25, 0.25, 0.5])).weights.tolist()[2] == 0.5
    count = md.BoundedCount(2, md.PureDP(1.0), prior=pd.Series({2: 0.5, 0: 0.3, 1: 0.2}))
    assert count.prior.tolist() == [0.3, 0.2, 0.5]
    N, names = md.Table(["a", "b", "c"], ["x", "y"]), ["c", "a", "b"]
    held = np.array([[0.0, 1.0], [1.0, 0.0], [0.25, 0.75]])
    given = pd.DataFrame(held[[2, 0, 1]][:, ::-1], index=names, columns=["y", "x"])
    assert (N.losses(given) == held).all() and (N.losses(pd.DataFrame(held)) == held).all()
    assert (md.MetricChannel(named, 1.0, loss=given[["x", "y"]]).losses == held).all()
    T = md.Table(["a", "b", "c"], [-1, 3])
    T.save_value(np.full((3, 2), 0.5))
    assert T.bias(pd.Series([5, 0, 1], index=names)).value.tolist() == [1, 0, -4]
    with pytest.raises(md.DesignError, match=r"loss.*must have a number for each"):
        N.losses(given.rename(index={"c": "d"}))
    assert named.distribution(pd.Series([0.5, 0.3, 0.2], index=names)).tolist() == [0.3, 0.2, 0.5]
    P = md.Table(["x", "y"], ["x", "y"])
    one, other = (P.expected("error", prior) for prior in ([0.25, 0.75], {"y": 0.75, "x": 0.25}))
    P.save_value(np.array([[0.9, 0.1], [0.5, 0.5]]))
    assert one.value == other.value
