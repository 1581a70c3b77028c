"""δ of one coordinate against 60 digits, far into the tails, at the ends of doubles; laws that SciPy's own tails cannot show."""

from __future__ import annotations

import math
import os

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.accounting.interval import delta_interval
from mechdesign.accounting.losses import NoiseTerm, loss_of
from mechdesign.accounting.profile import fast_profile, privacy_profile, profile_epsilon
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import excess, least_kept
from mechdesign.noise.laws import flipped_huber
from mechdesign.problem.law_moments import Tail
from tests.accounting.reference import delta, random_law

LAWS = 500 if os.environ.get("MECHDESIGN_NIGHTLY") else 25


def test_intervals_contain_the_value_to_sixty_digits() -> None:
    rng = np.random.default_rng(20)
    for _ in range(LAWS):
        law, sensitivity = random_law(rng)
        target = 10.0 ** rng.uniform(-30, -0.4)
        epsilon = profile_epsilon(law, sensitivity, target)
        epsilon = (
            rng.uniform(0, 3) if math.isinf(epsilon) else epsilon * rng.choice([1.0, rng.uniform(0.9, 1)])
        )
        loss = loss_of(law, sensitivity)
        if loss.atoms and rng.random() < 0.3:  # δ hangs on atoms that barely pass ε
            epsilon = loss.atoms[0] * (1 - 10.0 ** rng.uniform(-15, -1))
        found = delta_interval(NoiseTerm(law, sensitivity), epsilon)
        exact = delta(law, sensitivity, epsilon)
        said = law.dist.name, law.args, epsilon
        assert mp.mpf(found.lower) <= exact <= mp.mpf(found.upper), said
        assert exact <= mp.mpf(privacy_profile(law, sensitivity, epsilon)), said
        # beside an atom of the loss δ jumps in log scale
        assert abs(exact - fast_profile(law, sensitivity, epsilon)) <= 1e-6 * exact + 4e-16, said


def test_a_bounded_loss_is_seen_where_the_density_underflows() -> None:
    assert profile_epsilon(stats.hypsecant(), 0.5, 0.0) == pytest.approx(0.5, rel=1e-12)
    assert profile_epsilon(stats.dgamma(1), 0.5, 0.0) == pytest.approx(0.5, rel=1e-12)
    assert profile_epsilon(stats.gennorm(1 + 1e-3), 0.5, 0.0) == math.inf


def test_densities_that_prove_nothing() -> None:
    lopsided = lambda t: -np.where(t > 0, t, -2 * t)  # noqa: E731
    for density, word in (
        (lambda t: -np.abs(t), "total 2"),
        (lopsided, "symmetric"),
        (stats.cauchy.logpdf, "log-concave"),
    ):
        with pytest.raises(DesignError, match=word):
            Tail(density, math.inf, "law")


def test_the_end_of_a_bounded_law_is_reached() -> None:
    """An ulp of the support's end is 1e-6 of what lies within Δ of it."""
    for scale in (1e9, 1e12):
        single, double = (
            delta_interval(NoiseTerm(stats.truncnorm(-3, 3, scale=scale), 1e3, k), 0.9) for k in (1, 2)
        )
        # beyond the ends, where two coordinates have twice the mass of one but for what both have
        assert double.lower <= 2 * single.upper and (2 - single.upper) * single.lower <= double.upper
        assert double.width < 0.01
    law = stats.truncnorm(-3, 3)
    assert Tail(law.logpdf, 3.0, "truncnorm").isf(1e-200) == pytest.approx(3.0)


def test_what_is_called_proved() -> None:
    """Not what rests on estimates of quadrature errors."""
    for law in (stats.norm(), stats.laplace(), flipped_huber(2.0), stats.gennorm(1.5)):
        found = delta_interval(NoiseTerm(law, 1.0), 0.5)
        assert found.how == "proved" and found.width < 1e-12
    assert delta_interval(NoiseTerm(stats.norm(), 1.0, 5), 0.5).how == "proved"
    for term in (NoiseTerm(stats.semicircular(), 0.1), NoiseTerm(stats.laplace(), 0.1, 5)):
        assert delta_interval(term, 0.05).how == "recomputed"


@pytest.mark.parametrize("law", [stats.norm(scale=2.0), stats.laplace(scale=2.0), stats.logistic(scale=2.0)])
@pytest.mark.filterwarnings("error")
def test_delta_is_enclosed_at_every_sensitivity(law) -> None:
    for sensitivity in (1e200, 1e300, 1e308):
        found = md.AdditiveNoise(law, sensitivity).delta_interval(1.0)
        assert found.lower >= 1 - 1e-15 and found.upper == 1.0
    for sensitivity in (1e-300, 1e-310, 5e-324):
        assert md.AdditiveNoise(law, sensitivity).delta_interval(1.0).upper <= 5e-324
    assert 0 < md.AdditiveNoise(stats.norm(), 1e-7).delta_interval(1.0).upper <= 5e-324


# -- The least point at which a budget is kept: on either side of where it starts, and at the ends of the range


@pytest.mark.parametrize("start", [-5.0, 0.0, math.log(10), 7.0])
def test_it_is_kept_and_hardly_less_is_not(start: float) -> None:
    def over(u: float) -> float:
        return excess(math.exp(-u), 0.1)

    found = least_kept(over, start)
    assert over(found) <= 0 < over(found - 1e-12)


def test_a_jump_is_found() -> None:
    def over(x: float) -> float:
        return 5.0 if x < 2 else -1.0

    found = least_kept(over, 0.0, xtol=1e-12)
    assert 2 <= found <= 2 + 1e-11


def test_the_ends_of_the_range() -> None:
    assert least_kept(lambda x: 3 - x, 0.0, most=2.0) == math.inf
    assert least_kept(lambda x: -1 - x, 5.0, least=0.0) == 0.0
    assert least_kept(lambda x: 1 - x, 0.0, least=0.0, most=1.0) == pytest.approx(1.0)
