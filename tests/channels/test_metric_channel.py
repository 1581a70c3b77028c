"""The optimal metric channel: published values, brute force, symmetry, spanners, certificates."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechdesign.channels.channel import Channel, check_prior
from mechdesign.channels.design import MetricChannel
from mechdesign.channels.exact import integer_rows, private_weights
from mechdesign.channels.responses import ClusteredResponse
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.proofs import Certificate
from mechdesign.evidence.rows import RowsBound
from mechdesign.model import printing
from mechdesign.spaces.space import MetricSpace
from mechdesign.spaces.spanner import graph_stretch, greedy_spanner
from mechdesign.user_level.frequency import FrequencyEstimate


@pytest.mark.parametrize(("side", "published"), [(3, 1.0188318618), (4, 1.2543731042), (5, 1.4481974068)])
@pytest.mark.parametrize("solver", ["highs", "highs-ipm"])
def test_published_values(side: int, published: float, solver: str) -> None:
    result = MetricChannel(MetricSpace.grid(side, side), alpha=0.7).solve(solver)
    assert result.value == pytest.approx(published, abs=1e-9)
    assert result.certificate.verify()
    assert result.gap <= 1e-9
    assert result.lower_bound <= result.value
    assert result.mechanism.alpha <= 0.7


@pytest.mark.parametrize("alpha", [8.0, 30.0, 200.0])
def test_steep_privacy_is_still_exact(alpha: float) -> None:
    """e^{αd} far beyond what a solver tells from infinity: nearly no noise, and still certified."""
    space = MetricSpace.line([0.0, 1.0, 3.0, 6.0])
    result = MetricChannel(space, alpha=alpha, loss="squared").solve()
    assert result.certificate.verify() and result.mechanism.alpha <= alpha
    assert result.value - result.lower_bound <= 1e-12 + 1e-9 * result.value


@given(st.integers(0, 2**32 - 1))
def test_lower_bound_holds_for_any_multipliers_and_any_private_channel(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = MetricSpace.euclidean(rng.random((4, 2)))
    loss, prior = rng.random((4, 4)), rng.dirichlet(np.ones(4))
    channel = Channel(rng.dirichlet(np.full(4, 5.0), size=4), space)
    design = MetricChannel(space, channel.alpha, prior, loss)
    numbers = np.sort(rng.choice(4 * 3 * 4, 3, replace=False))  # of rows (pair, report)
    multipliers = tuple(Fraction(x) for x in (rng.random(3) * 0.1).tolist())
    law = design.repaired(channel.matrix)
    bound = design.linear_bound(numbers, multipliers).bound
    assert float(bound) <= channel.expected_loss(loss, prior) + 1e-15
    assert law.value == pytest.approx(channel.expected_loss(loss, prior), rel=1e-12)
    proofs = (*law.proofs, RowsBound(numbers, multipliers))
    for above, holds in ((-1e-12, True), (1e-9, False)):
        stated = float(bound) + above * (1 + abs(float(bound)))
        assert Certificate(design, law.mechanism, law.value, stated, proofs).verify() is holds


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1e-9, 1e-15]))
def test_repair_makes_any_table_private_exactly(seed: int, error: float) -> None:
    rng = np.random.default_rng(seed)
    space = MetricSpace.grid(2, 2)
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
    space = MetricSpace.grid(4, 4)
    exact = MetricChannel(space, alpha=0.7).solve()
    result = MetricChannel(space, alpha=0.7, spanner=stretch).solve()
    looser = MetricChannel(space, alpha=0.7 / stretch).solve()
    assert exact.value <= result.value * (1 + 1e-12)
    assert result.value <= looser.value * (1 + 1e-9)
    assert result.lower_bound <= exact.value * (1 + 1e-12)
    assert result.certificate.verify() and result.mechanism.alpha <= 0.7


@given(st.integers(0, 2**32 - 1), st.floats(1.0, 3.0))
@settings(max_examples=50)
def test_greedy_spanner_has_its_stretch(seed: int, stretch: float) -> None:
    space = MetricSpace.euclidean(np.random.default_rng(seed).random((9, 2)))
    edges = greedy_spanner(space.distances, stretch)
    assert graph_stretch(space.distances, edges) <= stretch * (1 + 1e-12)
    # Greedy keeps no edge it could do without: dropping any breaks the stretch.
    for k in range(len(edges)):
        rest = np.delete(edges, k, axis=0)
        assert graph_stretch(space.distances, rest) > stretch * (1 - 1e-12)


def test_unbiased_query() -> None:
    space = MetricSpace.line([0.0, 1.0, 2.0])
    reports = np.array([-8.0, -2.0, 0.0, 1.0, 2.0, 4.0, 10.0])
    loss = (np.arange(3.0)[:, None] - reports[None, :]) ** 2
    result = MetricChannel(space, alpha=0.8, loss=loss, unbiased=(np.arange(3.0), reports)).solve()
    assert result.mechanism.matrix @ reports == pytest.approx(np.arange(3.0), abs=1e-12)
    assert result.certificate.verify() and result.gap <= 1e-9
    spanned = MetricChannel(
        space, alpha=0.8, loss=loss, unbiased=(np.arange(3.0), reports), spanner=1.5
    ).solve()
    assert spanned.certificate.verify()
    assert spanned.value >= result.value * (1 - 1e-12)
    frame = result.audit()
    assert set(frame["family"]) == {"private", "sums", "unbiased"}
    with pytest.raises(InfeasibleError, match="'private' and 'unbiased' together"):
        MetricChannel(space, alpha=0.8, loss=loss[:, 2:5], unbiased=(np.arange(3.0), reports[2:5])).solve()


def test_invertible_channel_with_a_given_decoder() -> None:
    space = MetricSpace.clustered(2, 2, within=0.5)
    response = ClusteredResponse(space, 2.0)
    loss = np.tile((response.inverse**2).sum(axis=1), (4, 1))
    result = MetricChannel(space, alpha=2.5, loss=space.distances, decoder=response.inverse).solve()
    assert result.mechanism.matrix @ response.inverse == pytest.approx(np.eye(4), abs=1e-9)
    assert result.certificate.verify()
    again = MetricChannel(space, alpha=2.0 * (1 + 1e-9), loss=loss, decoder=response.inverse).solve()
    assert again.mechanism.matrix == pytest.approx(
        response.dense, abs=1e-8
    )  # P is the inverse's only inverse


def test_audit_recomputes_every_pair() -> None:
    result = MetricChannel(MetricSpace.grid(3, 3), alpha=0.7).solve()
    frame = result.audit()
    privacy = frame[frame["family"] == "private"]
    assert len(privacy) == 72 * 9 and privacy["slack"].min() > -1e-12 and privacy["active"].sum() > 20
    assert (privacy.loc[~privacy["active"], "dual"] == 0).all()
    assert len(result.to_frame()) == 9 and "(proved)" in str(result)
    assert integer_rows(result.mechanism.matrix)[0]


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
    with pytest.raises(DesignError, match=named):
        MetricChannel(**{"space": MetricSpace.grid(2, 2), "alpha": 0.7, **changes})


def test_named_places() -> None:
    names = ["Mitte", "$Wedding", "<b>", "Pankow"]
    points = [52.520, 52.530, 52.505, 52.550], [13.405, 13.385, 13.440, 13.430]
    spaces = [MetricSpace.geodesic(*points, names=given) for given in (names, (), names[::-1])]
    found, plain, _ = (MetricChannel(space, 1.0, [0.1, 0.2, 0.4, 0.3]).solve() for space in spaces)
    assert found.value == plain.value and (found.mechanism.matrix == plain.mechanism.matrix).all()
    assert "places: <b>, Pankow, $Wedding, Mitte\n" in str(found)
    assert found.to_frame()["item"].tolist() == names
    assert {"Mitte, $Wedding: <b>", "<b>"} <= set(found.audit()["index"])
    assert {text.get_text() for text in found.plot().axes[0].texts} == set(names)
    report = found.mechanism.sample(["Mitte"] * 50 + ["Pankow"] * 50, rng=3)
    assert report.tolist() == [names[y] for y in plain.mechanism.sample([0] * 50 + [3] * 50, rng=3)]
    assert found.release([["Mitte"]])[0, 0] in names and found.release(3).dtype.kind == "i"
    fit = FrequencyEstimate(found.mechanism).fit
    assert (fit(report).estimate == fit([names.index(y) for y in report]).estimate).all()


def test_a_long_audit_keeps_the_tightest_report_of_every_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    result = MetricChannel(MetricSpace.grid(3, 3), alpha=0.7).solve()
    whole = result.audit().query("family == 'private'")
    monkeypatch.setattr(printing, "MOST_LISTED", 100)
    cut = result.audit().query("family == 'private'")
    pairs = whole["index"].str.split(":").str[0]
    for column, least in (("slack", "min"), ("dual", "sum")):
        every = whole.groupby(pairs, sort=False)[column].agg(least)
        assert cut[column].to_numpy() == pytest.approx(every.to_numpy(), abs=1e-12)
