"""Channels that broke the promise once: spaces out of the doubles' reach, and files that were doctored."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.channels import exact, program
from mechdesign.channels.channel import Channel, Response
from mechdesign.channels.design import MetricChannel
from mechdesign.channels.responses import ClusteredResponse, HadamardResponse, KaryResponse
from mechdesign.errors import DesignError, ResultFormatError
from mechdesign.evidence.serialize import dumps, encode, loads
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Status
from mechdesign.user_level.itemwise import ItemwiseRelease
from mechdesign.user_level.linear_release import LinearQuery, LinearRelease


def test_far_points_do_not_underflow() -> None:
    """Returned before: status "optimal", channel.alpha = inf, certificate.verify() = False (e^{-1000} was 0)."""
    result = MetricChannel(MetricSpace.line([0, 1, 2, 1000, 1001, 1002]), alpha=1.0).solve()
    assert result.mechanism.alpha <= 1.0
    assert result.status is Status.OPTIMAL and result.gap < 1e-9 and result.certificate.verify()


@pytest.mark.parametrize("near", [1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6])
def test_near_points_are_private_with_a_true_gap(near: float) -> None:
    """Returned before: a gap of .2 at 1e-10 with the status "optimal". Repair costs what a solver leaves, over αd."""
    result = MetricChannel(MetricSpace.line([0, near, 1, 2]), alpha=1.0).solve()
    assert result.lower_bound <= 0.41038 + 1e-5 and result.value >= 0.41038 - 1e-5
    assert result.certificate.verify()
    assert (result.status is Status.OPTIMAL) == (result.gap <= 1e-6)
    assert result.gap < 1e-6 or near < 1e-8


@pytest.mark.parametrize("unit", [1e-13, 1e-6, 1e6, 1e13])
def test_the_unit_of_distance_does_not_matter(unit: float) -> None:
    """In units of 1e-13 losses were below the solver's tolerances."""
    result = MetricChannel(MetricSpace.line(np.array([0, 1, 3, 4]) * unit), alpha=1 / unit).solve()
    assert result.value / unit == pytest.approx(0.45689018, abs=1e-8)
    assert result.status is Status.OPTIMAL and result.gap < 1e-12


@pytest.mark.parametrize("unit", [1e-250, 1e-90, 1e200])
def test_the_unit_of_loss_does_not_matter(unit: float) -> None:
    """The gap was 1 for losses below 1e-77: the bound was accumulated in units of 2^-256."""
    space = MetricSpace.grid(2, 3)
    result = MetricChannel(space, alpha=0.7, loss=space.distances * unit).solve()
    plain = MetricChannel(space, alpha=0.7).solve()
    assert result.value / unit == pytest.approx(plain.value, rel=1e-9)
    assert result.status is Status.OPTIMAL and result.gap < 1e-9 and result.certificate.verify()


def test_an_item_far_off_is_not_given_away() -> None:
    """Claimed before: α = 3.5489 for a channel whose exact loss is infinite (e^{-1000} was 0)."""
    release = ItemwiseRelease(
        MetricSpace.line([0.0, 1.0, 1000.0]), item_alpha=1.0, delta=1e-6, items=5, users=100
    )
    assert release.channel.metric_loss() <= 1.0
    assert release.guarantee.alpha == pytest.approx(5.0)
    assert (release.channel.dense > 0).all()


def test_a_clustered_release_is_read_back_as_fast_as_it_is_built() -> None:
    """Took 43 s before (2.5 s to build): the loss of a closed form was recomputed from the dense matrix."""
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
    """Raised before: MemoryError, 18.6 GiB for the matrix of distances."""
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


@st.composite
def hostile(draw: st.DrawFn) -> MetricChannel:
    """Spacings over twenty orders of magnitude, any α, lopsided priors."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(2, 7))
    if draw(st.booleans()):
        space = MetricSpace.line(np.cumsum(10.0 ** rng.uniform(-12, 4, n)))
    else:
        space = MetricSpace.euclidean(rng.normal(size=(n, 2)) * 10.0 ** rng.uniform(-9, 4, (n, 1)))
    prior = rng.dirichlet(np.full(n, draw(st.sampled_from([0.1, 1.0]))))
    loss = draw(st.sampled_from(["metric", "squared", "error"]))
    return MetricChannel(space, alpha=10.0 ** draw(st.floats(-3, 3)), prior=prior, loss=loss)


@pytest.mark.slow
@settings(max_examples=60)
@given(hostile())
def test_no_false_claim_on_hostile_spaces(design: MetricChannel) -> None:
    result = design.solve()
    assert result.certificate.verify() and result.mechanism.alpha <= design.alpha
    # The bound holds for a channel that has nothing to do with the solver.
    other = Channel.exponential(design.space, design.alpha, calibrated=False).remapped(
        design.loss, design.weights
    )
    assert result.lower_bound <= other.expected_loss(design.loss, design.weights) * (1 + 1e-12)
    assert result.status is (Status.OPTIMAL if result.gap <= 1e-6 else Status.GAP)


# ---------------------------------------------------------------------- what a certificate proves


@pytest.fixture(scope="module")
def unbiased() -> md.Result:
    reports = np.array([-8.0, -2.0, 0.0, 1.0, 2.0, 4.0, 10.0])
    loss = (np.arange(3.0)[:, None] - reports[None, :]) ** 2
    return MetricChannel(
        MetricSpace.line([0.0, 1.0, 2.0]), 0.8, loss=loss, unbiased=(np.arange(3.0), reports)
    ).solve()


@pytest.fixture(scope="module")
def sixteen() -> md.Result:
    return MetricChannel(MetricSpace.grid(4, 4), alpha=0.7, prior=np.arange(1, 17) / 136).solve()


def test_checks_name_what_is_proved(unbiased: md.Result) -> None:
    table = unbiased.certificate.checks()
    assert len(table) == 4 and set(table["how"]) == {"proved"} and table["holds"].all()
    assert (table["margin"] >= 0).all()
    statement = unbiased.certificate.statement
    assert statement["alpha"] == 0.8 and statement["value"] == unbiased.value
    assert {"space", "prior", "loss", "unbiased", "decoder"} <= set(statement)


def test_equalities_are_not_ignored(unbiased: md.Result) -> None:
    """verify() answered True before for any inputs, reports and free: value 0.552 with a lower bound of 300.55."""
    good, (proof, dual) = unbiased.certificate, unbiased.proofs
    query, reports = (np.asarray(part) for part in good.question.unbiased)
    assert good.verify()
    for asked in ((query + 0.01, reports), (query, reports * 1.01), (query * 100, reports), None):
        assert not replace(good, question=replace(good.question, unbiased=asked)).verify(), asked
    for free in (dual.free * 1.5, dual.free[:, [0, 0]], None):
        assert not replace(good, proofs=(proof, replace(dual, free=free))).verify()


@pytest.mark.parametrize(
    "changes",
    [
        {"value": 0.5},
        {"lower_bound": 1.5},
        {"value": 1.6, "lower_bound": 1.55},
        {"alpha": 0.69},
        {"alpha": 0.71},
        {"prior": np.full(16, 1 / 16)},
        {"loss": MetricSpace.grid(4, 4).distances * 0.9},
        {"loss": MetricSpace.grid(4, 4).distances * 1.1},
        {"space": MetricSpace.grid(4, 4, spacing=0.99)},
        {"proofs": "half"},
        {"proofs": "negative"},
        {"law": "identity"},
        {"law": "swapped"},
        {"law": "elsewhere"},
    ],
    ids=str,
)
def test_doctored_certificates_fail(sixteen: md.Result, changes: dict[str, Any]) -> None:
    good, (proof, dual) = sixteen.certificate, sixteen.proofs
    weights, space = good.law.weights, good.law.space
    total = sum(weights[0])
    special = {
        "half": (proof, replace(dual, multipliers=dual.multipliers / 2)),
        "negative": (proof, replace(dual, multipliers=-dual.multipliers)),
        "identity": Channel.from_weights([[total * (x == y) for y in range(16)] for x in range(16)], space),
        "swapped": Channel.from_weights((weights[1], weights[0], *weights[2:]), space),
        "elsewhere": Channel.from_weights(weights, MetricSpace.grid(4, 4, spacing=3.0)),
    }
    taken = {k: special.get(v, v) if isinstance(v, str) else v for k, v in changes.items()}
    asked = {k: taken.pop(k) for k in ("alpha", "prior", "loss", "space") if k in taken}
    assert good.verify() and not replace(good, question=replace(good.question, **asked), **taken).verify()


def doctored(result: md.Result, path: list[str], change: Any) -> str:
    """The result's file with one entry changed, sealed again."""
    payload = encode(result)
    node = payload
    for step in path[:-1]:
        node = node[int(step) if step.isdigit() else step]
    node[path[-1]] = change(node[path[-1]])
    return sealed(payload)


def sealed(payload: Any) -> str:
    """A file around a payload, with the checksum that belongs to it."""
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    document = json.loads(dumps(0))
    return json.dumps({**document, "payload": payload, "sha256": hashlib.sha256(text.encode()).hexdigest()})


IDENTITY = {"$tuple": [{"$tuple": [int(x == y) for y in range(16)]} for x in range(16)]}


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("value", lambda v: v / 2),
        ("value", lambda v: v * 2),
        ("lower_bound", lambda v: v * 1.01),
        ("proofs", lambda v: {"$tuple": []}),
        ("proofs", lambda v: {"$tuple": v["$tuple"][1:]}),
        ("proofs $tuple 1 fields multipliers $array", lambda v: v[:-1]),
        ("mechanism fields weights", lambda v: IDENTITY),
        ("mechanism fields weights", lambda v: None),
        ("mechanism fields matrix $array", lambda v: np.eye(16).tolist()),
        ("mechanism", lambda v: None),
        ("design fields alpha", lambda v: v / 2),
        ("design fields prior $array", lambda v: [1 / 16] * 16),
        ("design fields loss", lambda v: "error"),
        ("design", lambda v: None),
        ("solver_report fields status", lambda v: "wonderful"),
    ],
)
def test_doctored_files_are_refused_or_do_not_verify(sixteen: md.Result, path: str, change: Any) -> None:
    """Passed the audit before: weights replaced by the identity under an untouched matrix, another α, value and bound
    changed together, another prior, the evidence removed."""
    assert loads(doctored(sixteen, ["fields", "value"], lambda v: v)).checks()["holds"].all()
    text = doctored(sixteen, ["fields", *path.split()], change)
    with contextlib.suppress(ResultFormatError):
        assert not loads(text).checks()["holds"].all()


def test_verifying_solves_nothing_and_encloses_each_exponential_once(
    sixteen: md.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What sixteen points take a fraction of a second for: sums of integers, and an exponential a distance."""
    certificate = loads(dumps(sixteen)).certificate
    enclosed: list[Fraction] = []

    def counted(of: Any) -> Any:
        return lambda x, *rest: (enclosed.append(x), of(x, *rest))[1]

    def refused(*args: Any, **options: Any) -> Any:
        raise AssertionError("a program is solved")

    monkeypatch.setattr(exact, "exp_lower", counted(exact.exp_lower))
    monkeypatch.setattr(exact, "exp_upper", counted(exact.exp_upper))
    monkeypatch.setattr("mechdesign.solvers.solve", refused)
    monkeypatch.setattr("cvxpy.Problem.solve", refused)
    assert certificate.verify()
    distances = set(certificate.question.space.distances.ravel().tolist())
    assert 0 < len(enclosed) <= 2 * len(distances)


def test_a_time_limit_is_handed_to_every_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """One clock goes to all that is solved."""
    seen: list[Any] = []
    solve = program.ChannelProgram.solve

    def watched(self: Any, solver: Any, deadline: Any) -> Any:
        seen.append(deadline)
        return solve(self, solver, deadline)

    monkeypatch.setattr(program.ChannelProgram, "solve", watched)
    result = MetricChannel(MetricSpace.grid(4, 4), alpha=0.6, spanner=1.2).solve(time_limit=60.0)
    assert result.status is Status.GAP and result.certificate.verify()
    assert len(seen) == 2 and seen[0] is seen[1] and seen[0].seconds == 60.0
    with pytest.raises(md.SolverError, match="limit"):
        MetricChannel(MetricSpace.line([0.0, 1.0, 3.0]), alpha=3.0).solve(time_limit=1e-9)


def test_a_limit_between_two_programs_returns_the_first_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spanner's channel is private; the relaxation that would bound it came too late."""
    solve, calls = program.ChannelProgram.solve, []

    def late(self: Any, *args: Any) -> Any:
        calls.append(self)
        if len(calls) == 2:
            raise md.SolverError("late", solver="highs", status="limit")
        return solve(self, *args)

    monkeypatch.setattr(program.ChannelProgram, "solve", late)
    result = MetricChannel(MetricSpace.grid(3, 3), alpha=0.6, spanner=1.2).solve(time_limit=60.0)
    assert result.lower_bound is None and result.certificate.verify() and len(calls) == 2


def test_without_a_certificate_nothing_is_claimed() -> None:
    result = MetricChannel(MetricSpace.grid(3, 3), alpha=0.7).solve(certify=False)
    assert result.status is Status.UNCERTIFIED and result.lower_bound is None and result.certificate is None
    assert result.value == pytest.approx(1.0188318618, abs=1e-8)
    assert loads(dumps(result)).status is Status.UNCERTIFIED and len(result.audit())


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


def test_many_points_on_a_line_build_no_matrix() -> None:
    """50,000 points once asked for 18.6 GiB: what needs no matrix answers, what needs one says so first."""
    n = 50_000
    line, kary = md.MetricSpace.line(np.arange(float(n))), KaryResponse(n, 1.0)
    for channel in (kary, HadamardResponse(n, 1.0)):
        assert channel.metric_loss(line) == pytest.approx(1.0)
        release = md.ItemwiseRelease(line, channel=channel, delta=1e-6, items=3, users=100, radius=5.0)
        assert release.item_alpha == pytest.approx(1.0)
        fit = md.FrequencyEstimate(channel, line, project=True).fit(channel.sample(np.arange(n), rng=1))
        assert math.isfinite(fit.emd(np.full(n, 1 / n)))
        for asked in ("dense", "inverse"):
            with pytest.raises(md.DesignError, match="GiB; merge points"):
                getattr(channel, asked)
    assert md.MetricSpace.grid(200, 250).diameter == pytest.approx(math.hypot(199, 249))
    for refused in (
        lambda: md.ItemwiseRelease(line, alpha=1.0, delta=1e-6, items=3, users=100),
        lambda: Channel.exponential(line, 1.0),
        lambda: md.MetricChannel(line, alpha=1.0).solve(),
    ):
        with pytest.raises(md.DesignError, match="GiB; merge points"):
            refused()


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (3, 1), (2, 7)])
def test_the_diameter_of_a_grid_is_its_matrix_s(shape: tuple[int, int]) -> None:
    grid = md.MetricSpace.grid(*shape, spacing=0.1)
    assert grid.diameter == grid.distances.max()
