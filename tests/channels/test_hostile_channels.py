"""Channels on spaces out of the doubles' reach, what their proofs hold to, and limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import mechdesign as md
from mechdesign.channels.channel import Channel, Response
from mechdesign.channels.design import MetricChannel
from mechdesign.channels.responses import ClusteredResponse, HadamardResponse, KaryResponse
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Status
from mechdesign.user_level.itemwise import ItemwiseRelease
from mechdesign.user_level.linear_release import LinearQuery, LinearRelease


def test_far_points_do_not_underflow() -> None:
    """Where e^{-1000} is 0 in doubles."""
    result = MetricChannel(MetricSpace.line([0, 1, 2, 1000, 1001, 1002]), alpha=1.0).solve()
    assert result.mechanism.alpha <= 1.0
    assert result.status is Status.OPTIMAL and result.gap < 1e-9 and result.certificate.verify()


@pytest.mark.parametrize("near", [1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6])
def test_near_points_are_private_with_a_true_gap(near: float) -> None:
    """Repair costs what a solver leaves, over αd; the status says which gap that is."""
    result = MetricChannel(MetricSpace.line([0, near, 1, 2]), alpha=1.0).solve()
    assert result.lower_bound <= 0.41038 + 1e-5 and result.value >= 0.41038 - 1e-5
    assert result.certificate.verify()
    assert (result.status is Status.OPTIMAL) == (result.gap <= 1e-6)
    assert result.gap < 1e-6 or near < 1e-8


@pytest.mark.parametrize("unit", [1e-13, 1e-6, 1e6, 1e13])
def test_the_unit_of_distance_does_not_matter(unit: float) -> None:
    result = MetricChannel(MetricSpace.line(np.array([0, 1, 3, 4]) * unit), alpha=1 / unit).solve()
    assert result.value / unit == pytest.approx(0.45689018, abs=1e-8)
    assert result.status is Status.OPTIMAL and result.gap < 1e-12


@pytest.mark.parametrize("unit", [1e-250, 1e-90, 1e200])
def test_the_unit_of_loss_does_not_matter(unit: float) -> None:
    space = MetricSpace.grid(2, 3)
    result = MetricChannel(space, alpha=0.7, loss=space.distances * unit).solve()
    plain = MetricChannel(space, alpha=0.7).solve()
    assert result.value / unit == pytest.approx(plain.value, rel=1e-9)
    assert result.status is Status.OPTIMAL and result.gap < 1e-9 and result.certificate.verify()


def test_an_item_far_off_is_not_given_away() -> None:
    """What is impossible in doubles has a probability all the same."""
    release = ItemwiseRelease(
        MetricSpace.line([0.0, 1.0, 1000.0]), item_alpha=1.0, delta=1e-6, items=5, users=100
    )
    assert release.channel.metric_loss() <= 1.0
    assert release.guarantee.alpha == pytest.approx(5.0)
    assert (release.channel.dense > 0).all()


def test_a_clustered_release_is_read_back_without_a_matrix() -> None:
    """The loss of a closed form needs no dense matrix."""
    release = ItemwiseRelease(
        MetricSpace.clustered(40, 30, within=0.05), item_alpha=4.0, delta=1e-6, items=10, users=1000
    )
    text = dumps(release)
    again = loads(text)
    assert (
        again.item_alpha == release.channel.metric_loss() and again.guarantee.alpha <= release.guarantee.alpha
    )
    assert isinstance(again.channel, ClusteredResponse)
    assert not any("distances" in vars(s) for s in (again.space, again.channel.space))


def test_fifty_thousand_points_on_a_line_need_no_matrix() -> None:
    """What needs no matrix answers; what needs one says its size."""
    line = MetricSpace.line(np.arange(50_000.0))
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
        with pytest.raises(DesignError, match="GiB"):
            matrix()


# ---------------------------------------------------------------------- what a certificate proves


@pytest.fixture(scope="module")
def unbiased() -> md.Result:
    reports = np.array([-8.0, -2.0, 0.0, 1.0, 2.0, 4.0, 10.0])
    loss = (np.arange(3.0)[:, None] - reports[None, :]) ** 2
    return MetricChannel(
        MetricSpace.line([0.0, 1.0, 2.0]), 0.8, loss=loss, unbiased=(np.arange(3.0), reports)
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
