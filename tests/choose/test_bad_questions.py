"""Questions that contradict themselves, numbers at the edge of doubles, options at the command line that say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from commands import ended
from scipy import stats

import mechdesign as md
from mechdesign.accounting.composition import GridLoss
from mechdesign.accounting.sampling import sampled_parts


@pytest.mark.parametrize(
    ("make", "message"),
    [
        # ranked RQM best, with an error of -1.8e-17
        (lambda: md.LocalReport(bits=1, loss=np.sin), "not convex"),
        (lambda: md.LocalReport(loss=lambda t: t * np.nan), "not finite"),
        # ended in ZeroDivisionError
        (lambda: md.LocalReport(bits=1, input_range=(0, 1e-300)), "at least 1e-140 wide"),
        (lambda: md.NumericQuery(sensitivity=0.5, integer=True), "whole numbers change by 1 at least"),
        (lambda: md.NumericQuery(sampling_rate=2), r"must be in \(0, 1\]"),
        # named the law
        (lambda: md.Sensitivity(l2=1e-200), "l2 = 1e-200: must be at least 1e-140"),
        (lambda: md.calibrate("laplace", privacy=md.PureDP(1), sensitivity=1e-200), "at least 1e-140"),
        (lambda: md.compare(md.NumericQuery(), md.PureDP(1), mechanisms=[]), "must be a list of names"),
        (lambda: md.accuracy(None), "must be a result"),
        (
            lambda: md.frontier(md.Calibration("laplace", md.PureDP(1), 1.0), "epsilon", ["1"]),
            "array of finite",
        ),
        (lambda: md.OPTM([-3, 0, 3], md.PureDP(1), stats.norm(0, -2)), r"norm\(0, -2\)"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises(md.DesignError, match=message):
        make()


def test_noise_too_far_above_the_step_has_no_release() -> None:
    """Ended in OverflowError."""
    mechanism = md.calibrate("laplace", privacy=md.PureDP(1e-30), sensitivity=1).mechanism
    with pytest.raises(md.DesignError, match="raise epsilon"):
        mechanism.release(5.0)
    assert np.isfinite(md.calibrate("laplace", privacy=md.PureDP(1e-9), sensitivity=1).mechanism.release(5.0))


def test_sampled_losses_that_are_all_beyond_epsilon() -> None:
    """One value, or no mass from below, ended in OverflowError: the comparison and all its results were lost."""
    for grid in (
        GridLoss(1.0, 0, np.zeros(1), 0.0, 0.0, False),
        GridLoss(1.0, 5000, np.ones(1), 0.0, 0.0, True),
        GridLoss(1.0, 0, np.ones(1), 0.0, 0.0, True),
    ):
        for direction in sampled_parts(grid, 0.1, 10, 1.0, width=1e-2):
            assert all(np.isfinite(part.mass).all() and part.step > 0 for part, _ in direction)


@pytest.mark.parametrize(
    "options",
    [
        ["--bits", "2", "-s", "1"],
        ["--bits", "2", "--l0", "3"],
        ["--bits", "2", "--integer"],
        ["-s", "1", "--input-range", "0", "1"],
    ],
)
def test_options_that_say_nothing_beside_another(options: list[str], capsys, monkeypatch) -> None:
    code, _, said = ended(["compare", "--epsilon", "1", *options], capsys, monkeypatch)
    assert code == 1 and "contradicts" in said
