"""Arguments at the ends of doubles: an answer on the safe side, or a refusal by name."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from scipy import stats

import mechdesign as md


@pytest.mark.parametrize("law", [stats.norm(scale=2.0), stats.laplace(scale=2.0), stats.logistic(scale=2.0)])
@pytest.mark.filterwarnings("error")
def test_delta_is_enclosed_at_every_sensitivity(law) -> None:
    """Seen before: an OverflowError of normal noise, from a ratio of 1e200 on or of 1e-200 down."""
    for sensitivity in (1e200, 1e300, 1e308):
        found = md.AdditiveNoise(law, sensitivity).delta_interval(1.0)
        assert found.lower >= 1 - 1e-15 and found.upper == 1.0
    for sensitivity in (1e-300, 1e-310, 5e-324):
        assert md.AdditiveNoise(law, sensitivity).delta_interval(1.0).upper <= 5e-324
    assert 0 < md.AdditiveNoise(stats.norm(), 1e-7).delta_interval(1.0).upper <= 5e-324


def test_what_is_too_small_is_named() -> None:
    with pytest.raises(md.DesignError, match="sensitivity"):
        md.AdditiveNoise(stats.laplace(scale=2.0), 5e-324).release(1.0)
    for alpha in (5e-324, 1e-310, 1e-101, 1e101):
        with pytest.raises(md.DesignError, match="item_alpha"):
            md.amplification(alpha, moved=0.1, total=1000, delta=1e-6)
    assert md.amplification(1e-100, moved=0.1, total=1000, delta=1e-6).epsilon > 0


def test_an_alpha_of_any_kind_of_number() -> None:
    space = md.MetricSpace.clustered(3, 4, within=0.1)
    asked = {"delta": 1e-6, "items": 3, "users": 10}
    plain = md.ItemwiseRelease(space, alpha=20.0, **asked)
    for alpha in (Decimal(20), Fraction(20), 20):
        assert md.ItemwiseRelease(space, alpha=alpha, **asked).item_alpha == plain.item_alpha
    with pytest.raises(md.DesignError, match="alpha"):
        md.ItemwiseRelease(space, alpha=Decimal("nan"), **asked)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "privacy", [md.ZeroConcentratedDP(1e308), md.ApproximateDP(1e308, 1e-6), md.PureDP(1e308)]
)
@pytest.mark.parametrize("noise", ["gaussian", "laplace", "staircase"])
def test_a_budget_of_no_privacy_is_refused_by_its_name(noise, privacy) -> None:
    """Seen before: "epsilon = inf: no noise of finite variance was found: raise it", asked for ρ = 1e308."""
    with pytest.raises(md.DesignError, match=r"(epsilon|rho) = 1e\+308: must be between 1e-100 and 1e100"):
        md.calibrate(noise, privacy=privacy, sensitivity=1.0)
    if noise == "gaussian" and isinstance(privacy, md.ApproximateDP):
        with pytest.raises(md.DesignError, match="epsilon"):
            md.CountsGaussian(3, 1, privacy)


def test_a_zoom_beyond_the_resolution_of_doubles() -> None:
    """Seen before: an OverflowError where the time limit left 650 levels."""
    design = md.ERM(4, md.PureDP(1.0), stats.uniform(-1, 2))
    assert design.solve(zoom=40, time_limit=0.3).certificate.verify()
    with pytest.raises(md.DesignError, match=r"zoom = 2000: must be an integer from 0 to 40"):
        design.solve(zoom=2000)
