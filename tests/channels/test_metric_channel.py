"""The optimal metric channel: published values, brute force, symmetry, spanners, certificates."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.channels import design as metric_channel
from mechdesign.channels.channel import Channel, Growth, Response, _surplus, check_prior, private_weights
from mechdesign.channels.responses import ClusteredResponse, HadamardResponse, KaryResponse
from mechdesign.evidence.proofs import RowsBound
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.model import table_problem
from mechdesign.model.exactly import Face
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


@pytest.mark.parametrize("alpha", [8.0, 30.0, 200.0])
def test_steep_privacy_is_still_exact(alpha: float) -> None:
    """e^{αd} far beyond what a solver tells from infinity: nearly no noise, and still certified."""
    space = md.MetricSpace.line([0.0, 1.0, 3.0, 6.0])
    result = md.MetricChannel(space, alpha=alpha, loss="squared").solve()
    assert result.certificate.verify() and result.mechanism.alpha <= alpha
    assert result.value - result.lower_bound <= 1e-12 + 1e-9 * result.value


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
    once = check_prior(np.array(weights) / math.fsum(weights), len(weights))
    assert np.array_equal(check_prior(once, len(weights)), once)
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


def test_unbiased_query() -> None:
    space = md.MetricSpace.line([0.0, 1.0, 2.0])
    reports = np.array([-8.0, -2.0, 0.0, 1.0, 2.0, 4.0, 10.0])
    loss = (np.arange(3.0)[:, None] - reports[None, :]) ** 2
    result = md.MetricChannel(space, alpha=0.8, loss=loss, unbiased=(np.arange(3.0), reports)).solve()
    assert result.mechanism.matrix @ reports == pytest.approx(np.arange(3.0), abs=1e-12)
    assert result.certificate.verify() and result.gap <= 1e-9
    spanned = md.MetricChannel(
        space, alpha=0.8, loss=loss, unbiased=(np.arange(3.0), reports), spanner=1.5
    ).solve()
    assert spanned.certificate.verify()
    assert spanned.value >= result.value * (1 - 1e-12)
    frame = result.audit()
    assert set(frame["family"]) == {"private", "sums", "unbiased"}
    with pytest.raises(md.InfeasibleError, match="'private' and 'unbiased' together"):
        md.MetricChannel(space, alpha=0.8, loss=loss[:, 2:5], unbiased=(np.arange(3.0), reports[2:5])).solve()


def test_invertible_channel_with_a_given_decoder() -> None:
    space = md.MetricSpace.clustered(2, 2, within=0.5)
    response = ClusteredResponse(space, 2.0)
    loss = np.tile((response.inverse**2).sum(axis=1), (4, 1))
    result = md.MetricChannel(space, alpha=2.5, loss=space.distances, decoder=response.inverse).solve()
    assert result.mechanism.matrix @ response.inverse == pytest.approx(np.eye(4), abs=1e-9)
    assert result.certificate.verify()
    again = md.MetricChannel(space, alpha=2.0 * (1 + 1e-9), loss=loss, decoder=response.inverse).solve()
    assert again.mechanism.matrix == pytest.approx(
        response.dense, abs=1e-8
    )  # P is the inverse's only inverse


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"space": [[0, 1], [2, 0]]}, "symmetric"),
        ({"prior": [0.5, 0.5, 0.5, 0.5]}, "must sum to 1"),
        ({"prior": [1.5, -0.5, 0.0, 0.0]}, "non-negative"),
        ({"alpha": math.nan}, "alpha"),
        ({"spanner": 0.9}, "spanner"),
        ({"loss": "absolute"}, "loss"),
        ({"decoder": np.eye(3)}, "decoder"),
        ({"unbiased": (np.arange(4.0), np.arange(3.0))}, "unbiased"),
        ({"unbiased": (np.arange(4.0), np.arange(4.0)), "decoder": np.eye(4)}, "choose one"),
    ],
)
def test_bad_input_is_named(changes: dict, named: str) -> None:
    with pytest.raises(md.DesignError, match=named):
        md.MetricChannel(**{"space": md.MetricSpace.grid(2, 2), "alpha": 0.7, **changes})


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


def test_a_long_audit_keeps_the_tightest_report_of_every_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    result = md.MetricChannel(md.MetricSpace.grid(3, 3), alpha=0.7).solve()
    whole = result.audit().query("family == 'private'")
    monkeypatch.setattr(table_problem, "MOST_LISTED", 100)
    cut = result.audit().query("family == 'private'")
    pairs = whole["index"].str.split(":").str[0]
    for column, least in (("slack", "min"), ("dual", "sum")):
        every = whole.groupby(pairs, sort=False)[column].agg(least)
        assert cut[column].to_numpy() == pytest.approx(every.to_numpy(), abs=1e-12)


# -- What doubles may decide in the proofs of a channel, and how many exponentials they enclose --------------


def test_doubles_decide_only_what_is_far_from_tight() -> None:
    """One unit in the last place of a weight is seen, wherever it is; so is a weight of zero."""
    result = md.MetricChannel(md.MetricSpace.grid(2, 3), alpha=0.7).solve()
    design, distances, rates = result.design, result.design.space.distances, Growth(0.7)
    n = len(distances)
    for x, y in itertools.product(range(n), range(n)):
        rows = [list(row) for row in result.mechanism.weights]
        for other in range(n):
            if other != x:
                rate = rates.lower(float(distances[x, other]))
                rows[x][y] = max(rows[x][y], (rate * rows[other][y] >> rates.shift) + 1)
        broken = Face(design.declared, frozenset()).broken(
            design.exact(Channel.from_weights(rows, design.space))
        )
        assert broken.keys() == naively_broken(rows, distances, rates)


def naively_broken(rows: Any, distances: Any, rates: Any) -> Any:
    """Numbers of the rows (pair, report) that do not hold."""
    n, totals, found = len(rows), [sum(row) for row in rows], set()
    pairs = ((x, other) for x in range(n) for other in range(n) if other != x)
    for k, (x, other) in enumerate(pairs):
        for y, (a, b) in enumerate(zip(rows[x], rows[other])):
            if a * totals[other] << rates.shift > rates.lower(float(distances[x, other])) * b * totals[x]:
                found.add(k * n + y)
    return found


# -- Channels of many items by reports: HiGHS as oracle, private exactly whatever the time, bounds below, large spaces


def drawn(
    seed: int, n: int, side: float, alpha: float, loss: object = "metric", **options: object
) -> md.MetricChannel:
    rng = np.random.default_rng(seed)
    if loss == "wide":
        loss = rng.random((n, n + 3))
    points = md.MetricSpace.euclidean(rng.uniform(0, side, (n, 2)))
    return md.MetricChannel(points, alpha, rng.dirichlet(np.full(n, 0.5)), loss, **options)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(4, 12),
    st.floats(0.5, 8.0),
    st.sampled_from([0.1, 1.0, 4.0]),
    st.sampled_from(["metric", "squared", "error", "wide"]),
)
def test_equals_the_simplex_method(seed: int, n: int, side: float, alpha: float, loss: str) -> None:
    design = drawn(seed, n, side, alpha, loss)
    found, exact = design.solve("interior point"), design.solve("highs")
    assert found.solver_report.solver in ("interior point", "closed form")
    assert found.value == pytest.approx(exact.value, rel=1e-4, abs=1e-7)
    assert found.lower_bound <= exact.value <= found.value * (1 + 1e-9) + 1e-12
    assert found.gap <= 1e-3 or found.value - found.lower_bound < 1e-4
    assert found.certificate.verify()


@pytest.mark.parametrize("limit", [0.02, 0.3])
def test_whenever_time_ends_there_is_a_private_channel(limit: float) -> None:
    design = drawn(1, 50, 7, 1.0)
    found = design.solve(time_limit=limit)
    assert found.certificate.verify() and found.mechanism.alpha <= 1.0
    assert found.lower_bound is None or found.lower_bound <= design.solve(time_limit=2).value


@pytest.mark.slow
def test_items_and_reports_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the memory for all: a bound from the likeliest items, a law of the reports that they are sent."""
    design = drawn(2, 40, 6, 1.0)
    whole = design.solve(gap=1e-3)
    monkeypatch.setattr(metric_channel, "_ENTRIES", 40 * 25**2)
    parts = design.solve("interior point")
    assert parts.certificate.verify()
    assert parts.lower_bound <= whole.lower_bound * (1 + 1e-3) and whole.value <= parts.value * (1 + 1e-3)
    assert parts.gap < 0.35 and parts.status == Status.GAP


# -- Channels on spaces out of the doubles' reach, what their proofs hold to, and limits ---------------------


def test_far_points_do_not_underflow() -> None:
    """Where e^{-1000} is 0 in doubles."""
    result = md.MetricChannel(md.MetricSpace.line([0, 1, 2, 1000, 1001, 1002]), alpha=1.0).solve()
    assert result.mechanism.alpha <= 1.0
    assert result.status is Status.OPTIMAL and result.gap < 1e-9 and result.certificate.verify()


@pytest.mark.parametrize("near", [1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6])
def test_near_points_are_private_with_a_true_gap(near: float) -> None:
    """Repair costs what a solver leaves, over αd; the status says which gap that is."""
    result = md.MetricChannel(md.MetricSpace.line([0, near, 1, 2]), alpha=1.0).solve()
    assert result.lower_bound <= 0.41038 + 1e-5 and result.value >= 0.41038 - 1e-5
    assert result.certificate.verify()
    assert (result.status is Status.OPTIMAL) == (result.gap <= 1e-6)
    assert result.gap < 1e-6 or near < 1e-8


@pytest.mark.parametrize("unit", [1e-13, 1e-6, 1e6, 1e13])
def test_the_unit_of_distance_does_not_matter(unit: float) -> None:
    result = md.MetricChannel(md.MetricSpace.line(np.array([0, 1, 3, 4]) * unit), alpha=1 / unit).solve()
    assert result.value / unit == pytest.approx(0.45689018, abs=1e-8)
    assert result.status is Status.OPTIMAL and result.gap < 1e-12


@pytest.mark.parametrize("unit", [1e-250, 1e-90, 1e200])
def test_the_unit_of_loss_does_not_matter(unit: float) -> None:
    space = md.MetricSpace.grid(2, 3)
    result = md.MetricChannel(space, alpha=0.7, loss=space.distances * unit).solve()
    plain = md.MetricChannel(space, alpha=0.7).solve()
    assert result.value / unit == pytest.approx(plain.value, rel=1e-9)
    assert result.status is Status.OPTIMAL and result.gap < 1e-9 and result.certificate.verify()


def test_an_item_far_off_is_not_given_away() -> None:
    """What is impossible in doubles has a probability all the same."""
    release = md.ItemwiseRelease(
        md.MetricSpace.line([0.0, 1.0, 1000.0]), item_alpha=1.0, delta=1e-6, items=5, users=100
    )
    assert release.channel.metric_loss() <= 1.0
    assert release.guarantee.alpha == pytest.approx(5.0)
    assert (release.channel.dense > 0).all()


def test_a_clustered_release_is_read_back_without_a_matrix() -> None:
    """The loss of a closed form needs no dense matrix."""
    release = md.ItemwiseRelease(
        md.MetricSpace.clustered(40, 30, within=0.05), item_alpha=4.0, delta=1e-6, items=10, users=1000
    )
    text = dumps(release)
    again = loads(text)
    assert again.item_alpha == release.channel.metric_loss()
    assert again.guarantee.alpha <= release.guarantee.alpha
    assert isinstance(again.channel, ClusteredResponse)
    assert not any("distances" in vars(s) for s in (again.space, again.channel.space))


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


@pytest.fixture(scope="module")
def unbiased() -> md.Result:
    reports = np.array([-8.0, -2.0, 0.0, 1.0, 2.0, 4.0, 10.0])
    loss = (np.arange(3.0)[:, None] - reports[None, :]) ** 2
    return md.MetricChannel(
        md.MetricSpace.line([0.0, 1.0, 2.0]), 0.8, loss=loss, unbiased=(np.arange(3.0), reports)
    ).solve()


def test_equalities_are_not_ignored(unbiased: md.Result) -> None:
    """Other inputs, reports or multipliers of the equalities prove nothing."""
    good, (proof, dual) = unbiased.certificate, unbiased.proofs
    query, reports = (np.asarray(part) for part in good.question.unbiased)
    assert good.verify()
    for asked in ((query + 0.01, reports), (query, reports * 1.01), (query * 100, reports), None):
        assert not replace(good, question=replace(good.question, unbiased=asked)).verify(), asked
    more = tuple(multiplier * 2 for multiplier in dual.multipliers)
    assert not replace(good, proofs=(proof, replace(dual, multipliers=more))).verify()


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


def test_priors_are_read_by_name() -> None:
    """A Series in another order once gave another design."""
    space = md.MetricSpace.line([0.0, 1.0, 3.0])
    named = replace(space, names=["a", "b", "c"])
    assert md.MetricChannel(named, 1.0, prior=pd.Series([0.25, 0.25, 0.5])).weights.tolist()[2] == 0.5
    assert md.BoundedCount(2, md.PureDP(1.0), prior=pd.Series({2: 0.5, 0: 0.3, 1: 0.2})).prior.tolist() == [
        0.3,
        0.2,
        0.5,
    ]
    P = md.Table(["x", "y"], ["x", "y"])
    one, other = (P.expected("error", prior) for prior in ([0.25, 0.75], {"y": 0.75, "x": 0.25}))
    P.save_value(np.array([[0.9, 0.1], [0.5, 0.5]]))
    assert one.value == other.value


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [1e-15, 1e-8, 0.3])
def test_the_surplus_of_rows_is_the_least_that_is_private(seed: int, size: float) -> None:
    """Doubles choose the pairs, integers decide; by brute force over all pairs the same number."""
    rng = np.random.default_rng(seed)
    distances = md.MetricSpace.line(np.sort(rng.uniform(0, 10.0 ** rng.integers(-6, 3), 7))).distances
    sums = [(1 << 120) + int(x) for x in rng.uniform(0, size * 2.0**120, 7)]
    if seed % 3 == 0:
        sums[1:4] = [max(sums)] * 3
    rates = Growth(1.3)
    deficits, unit, need = [max(sums) - s for s in sums], 1 << rates.shift, 0
    for (x, a), (other, b) in itertools.permutations(enumerate(deficits), 2):
        rate = rates.lower(float(distances[x, other]))
        need = max(need, -(-(a * unit - rate * b) // (rate - unit)))
    assert _surplus(sums, distances, Growth(1.3)) == need
