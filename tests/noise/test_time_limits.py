"""Limits that pass at any question: what is returned then is private, certified, and says that time was short."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.accounting import composition
from mechdesign.accounting.interval import NoiseTerm, delta_interval, epsilon_bound
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status

APPROXIMATE = md.ApproximateDP(1.0, 1e-6)
DESIGNS: dict[str, Any] = {
    "gennorm": lambda: md.Calibration("gennorm", APPROXIMATE, 1.0, dimension=5),
    "hypsecant": lambda: md.Calibration(stats.hypsecant(), APPROXIMATE, 1.0, dimension=3),
    "bounds": lambda: md.Calibration("osgt", APPROXIMATE, md.Sensitivity(linf=1, l1=3, l2=2), dimension=9),
    "sampled": lambda: md.Calibration("laplace", APPROXIMATE, 1.0, rounds=100, sampling_rate=0.01),
    "truncated": lambda: md.Calibration("truncated_laplace", APPROXIMATE, 1.0, rounds=10, sampling_rate=0.1),
    "many": lambda: md.OptimalNoise(APPROXIMATE, dimension=3),
}


def spent_of(result: Any) -> Any:
    return result.proofs[0].given


def passing_after(monkeypatch: pytest.MonkeyPatch, questions: int) -> None:
    """Every finite deadline is over once all of them together were asked so often."""
    asked = itertools.count()
    monkeypatch.setattr(
        Deadline,
        "left",
        property(lambda self: (1.0 if next(asked) < questions else 0.0) if self.finite else math.inf),
    )


@pytest.mark.parametrize("name", sorted(DESIGNS))
@pytest.mark.parametrize("questions", [0, 9])
def test_whenever_time_is_up_the_answer_is_private(
    name: str, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing_after(monkeypatch, questions)
    result = DESIGNS[name]().solve(time_limit=1.0)
    assert result.status is Status.LIMIT
    monkeypatch.undo()
    assert result.certificate.verify()
    if name != "many":
        assert spent_of(result).upper <= result.design.privacy.delta


def test_an_interval_that_is_not_refined_still_encloses(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = NoiseTerm(stats.laplace(scale=20.0), 1.0, 20)
    for options in ({}, {"sampling_rate": 0.1, "rounds": 50}):
        tight = delta_interval(terms, 0.4, width=1e-3, **options)
        for questions in (0, 1, 2, 3, 5):
            with monkeypatch.context() as patch:
                passing_after(patch, questions)
                wide = delta_interval(terms, 0.4, width=1e-3, time_limit=1.0, **options)
            assert wide.lower <= tight.upper and tight.lower <= wide.upper < 1.0
            assert wide.upper >= tight.upper * (1 - 1e-3)


@pytest.mark.slow
def test_an_epsilon_at_the_limit_is_not_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = NoiseTerm(stats.laplace(scale=20.0), 1.0, 20)
    least = epsilon_bound(terms, 1e-6)
    found = []
    for questions in (0, 12, 30):
        with monkeypatch.context() as patch:
            passing_after(patch, questions)
            try:
                found.append(epsilon_bound(terms, 1e-6, time_limit=1.0))
            except md.SolverError as error:
                assert error.status == "limit"
    assert found and min(found) >= least * (1 - 1e-6)
    with pytest.raises(md.DesignError, match="time_limit"):
        epsilon_bound(terms, 1e-6, time_limit=0)


def test_a_bound_of_many_periods_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """(0.001, 1e-15) asks for 41,000 periods, five times over: past the limit no further one is tried."""
    result = md.OptimalNoise(md.ApproximateDP(1e-3, 1e-15)).solve(gap=1e-6)
    assert result.status is Status.OPTIMAL and result.gap < 1e-6
    passing_after(monkeypatch, 0)
    late = md.OptimalNoise(md.ApproximateDP(1e-3, 1e-15)).solve(gap=1e-6, time_limit=1.0)
    assert late.status is Status.LIMIT and late.value == result.value


@pytest.mark.parametrize("name", ["gennorm", "sampled", "truncated"])
def test_little_is_composed_after_the_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not interrupted, these compose 100 times and more; a release at a coarse scale has to be found, not a fine one."""
    counted: list[int] = []
    composed = composition.convolve
    monkeypatch.setattr(composition, "convolve", lambda *a: counted.append(1) or composed(*a))
    passing_after(monkeypatch, 0)
    DESIGNS[name]().solve(time_limit=1.0, certify=False)
    # the sampled rounds alone have no closed form that answers at once
    assert len(counted) <= 45 and (counted or name != "sampled")


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_one_evaluation_takes_some_of_the_time_that_is_left(
    left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10⁹ rounds, and noise that ends: where time is short, on a wider grid and with no digits beyond those of doubles."""
    made: list[tuple[int, type]] = []
    composed = composition.convolve

    def counted(parts: Any, tilt: Any, kind: Any = float, *most: Any) -> Any:
        found = composed(parts, tilt, kind, *most)
        made.append((found[1].size, kind))
        return found

    monkeypatch.setattr(composition, "convolve", counted)
    cases = [
        (stats.logistic(scale=100.0), 0.005, {"rounds": 10**9, "sampling_rate": 1e-5}),
        (stats.laplace(scale=2e3), 250.0, {"rounds": 10**9}),
        (stats.truncnorm(-8, 8, scale=0.1), 1e-3, {"rounds": 1000, "sampling_rate": 1e-9}),
    ]
    for law, epsilon, options in cases:
        term = NoiseTerm(law, 1.0)
        with monkeypatch.context() as patch:
            patch.setattr(Deadline, "left", property(lambda self: left if self.finite else math.inf))
            wide = delta_interval(term, epsilon, time_limit=1.0, points=2**18, **options)
        assert 0 <= wide.lower <= wide.upper <= 1
    assert (
        made and max(size for size, _ in made) <= 2**18 and all(kind is not np.longdouble for _, kind in made)
    )
