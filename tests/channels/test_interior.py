"""Channels of many items by reports: HiGHS as oracle, private exactly whatever the time, bounds below, large spaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechdesign.channels import design as metric_channel
from mechdesign.channels.design import MetricChannel
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Status
from mechdesign.verifier.verify import verify


def drawn(
    seed: int, n: int, side: float, alpha: float, loss: object = "metric", **options: object
) -> MetricChannel:
    rng = np.random.default_rng(seed)
    if loss == "wide":
        loss = rng.random((n, n + 3))
    points = MetricSpace.euclidean(rng.uniform(0, side, (n, 2)))
    return MetricChannel(points, alpha, rng.dirichlet(np.full(n, 0.5)), loss, **options)


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


def test_items_and_reports_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the memory for all: a bound from the likeliest items, a law of the reports that they are sent."""
    design = drawn(2, 40, 6, 1.0)
    whole = design.solve(gap=1e-3)
    monkeypatch.setattr(metric_channel, "_ENTRIES", 40 * 25**2)
    parts = design.solve("interior point")
    assert parts.certificate.verify()
    assert parts.lower_bound <= whole.lower_bound * (1 + 1e-3) and whole.value <= parts.value * (1 + 1e-3)
    assert parts.gap < 0.35 and parts.status == Status.GAP


@pytest.mark.parametrize("stretch", [1.0, 1.3])
def test_a_spanner_keeps_its_guarantee(stretch: float) -> None:
    design, looser = (drawn(3, 30, 5, alpha) for alpha in (1.0, 1.0 / stretch))
    found = drawn(3, 30, 5, 1.0, spanner=stretch).solve()
    assert found.certificate.verify()
    assert found.value <= looser.solve().value * (1 + 0.02)
    assert found.lower_bound <= design.solve().value


def test_the_same_file_is_checked_alone(tmp_path) -> None:
    found = drawn(4, 30, 5, 1.0).solve(gap=1e-3)
    found.save(tmp_path / "places.json")
    rows = verify((tmp_path / "places.json").read_text(encoding="utf-8")).rows
    bound = f"no channel between the points costs less than {found.lower_bound!r}"
    assert (bound, "proved", True) in rows and all(holds for _, _, holds in rows)
