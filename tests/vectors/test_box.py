"""Vectors of a box: the bound that corners give, against what densities on corners can do, and signs sent together."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.vectors.cap import corner_reach


def test_corner_reach_grows_and_is_nearly_met() -> None:
    found = [corner_reach(e) for e in np.linspace(0.01, 100, 400)]
    assert (np.diff(found) > 0).all()
    assert corner_reach(math.log(3)) == pytest.approx(0.5)
    assert corner_reach(math.log(3) + 1e-9) == pytest.approx(0.5, rel=1e-6)
    for epsilon in (20.0, 80.0, 400.0):  # the tail of the normal law
        assert 0.8 < corner_reach(epsilon) / math.sqrt(2 * epsilon) < 1


# -- signs sent together ------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 9.0])
def test_the_law_of_signs(bits: int, epsilon: float) -> None:
    """All texts, all answers, in fractions: within the budget, unbiased with the stated stretch, j the best."""
    made = md.SampledSigns(10, bits, md.PureDP(epsilon))
    more, less = made.probabilities
    assert made.near * more + (made.outputs - made.near) * less == 1
    with mpmath.workdps(60):
        power = mpmath.exp(mpmath.mpf(epsilon))
        assert mpmath.mpf((more / less).numerator) / (more / less).denominator <= power
    places = [bin(v).count("1") for v in range(made.outputs)]
    mean = sum((more if p <= made.flips else less) * (bits - 2 * p) for p in places) / bits
    assert mean == made.agreement and sum(p <= made.flips for p in places) == made.near
    assert made.stretch * float(mean) * bits == pytest.approx(10, rel=1e-14)
    assert all(made._agreement(j) <= mean for j in range((bits + 1) // 2))


@pytest.mark.parametrize("exact", [True, False])
def test_runs_of_signs(exact: bool) -> None:
    made = md.SampledSigns(6, 5, md.PureDP(3.0), radius=2.0)
    x = np.tile([2.0, -2.0, 0.5, 0.0, -1.1, 1.9], (8_000, 1))
    found = made.release(x) if exact else made.sample(x, rng=1)
    error = ((found - x) ** 2).sum(axis=1)
    wanted = float(made.squared_error(x[0]))
    assert abs(error.mean() - wanted) <= 5 * error.std() / math.sqrt(8_000)
    assert np.abs(found.mean(axis=0) - x[0]).max() <= 5 * found.std(axis=0).max() / math.sqrt(8_000)
    assert made.error == pytest.approx(made.squared_error(np.zeros(6))) and made.error > wanted


def test_codes_of_signs_follow_their_law() -> None:
    made = md.SampledSigns(4, 4, md.PureDP(2.5))
    x = np.tile([1.0, -1.0, 1.0, 1.0], (20_000, 1))  # all coordinates are sent: the text is 0b1101
    codes = made.codes(x, seed=3)[:, 0]
    more, less = map(float, made.probabilities)
    law = [more if bin(v ^ 0b1101).count("1") <= made.flips else less for v in range(16)]
    assert stats.chisquare(np.bincount(codes, minlength=16), np.array(law) * len(x)).pvalue > 1e-6


@pytest.mark.parametrize(
    "bad", [{"bits": 0}, {"bits": 17}, {"bits": 9}, {"dimension": 1}, {"radius": 0.0}, {"privacy": 1.0}]
)
def test_bad_arguments_of_signs(bad: dict[str, Any]) -> None:
    with pytest.raises(md.DesignError):
        md.SampledSigns(**{"dimension": 8, "bits": 4, "privacy": md.PureDP(1.0), **bad})
