"""Optimal quantizers for priors, ranges, budgets and losses at the edge of doubles: certified, or refused in words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.problem.law_moments import law_integrals, law_moments
from mechdesign.quantizers.optimal import OptimalQuantizer
from mechdesign.typing import Status

UNIFORM = stats.uniform(-1, 2)
BINS = [-3.0, -0.5, 0.5, 3.0]


def design(**changes) -> OptimalQuantizer:
    return OptimalQuantizer(**{"bins": BINS, "privacy": md.PureDP(1.0), "prior": UNIFORM, **changes})


def absolute(t):
    return np.abs(t)


def certified(result) -> bool:
    """Optimal in the sense of the rules: finite value and bound, the gap as asked, a certificate that verifies."""
    return (
        result.status is Status.OPTIMAL
        and math.isfinite(result.value)
        and result.value * (1 - 1e-6) <= result.lower_bound <= result.value
        and result.certificate.verify()
    )


# -- priors of little width, and of mass at their ends ----------------------------------------------------------------------------


def spiked():
    mass = np.zeros(200)
    mass[[37, 96]] = 1.0
    return stats.rv_histogram((mass, np.linspace(-1, 1, 201)))()


def test_narrow_law_under_a_callable_loss():
    prior = md.truncated(stats.norm(0.31, 0.001), -1, 1)
    result = design(prior=prior, loss=absolute).solve()
    assert result.value == pytest.approx(design(prior=prior).solve().value, rel=1e-6)
    assert certified(result)
    assert prior.integrals(lambda x: (x**2)[:, None], [-1.0, 1.0])[0, 0] == pytest.approx(
        0.31**2 + 1e-6, rel=1e-12
    )


def test_mass_piled_up_at_the_ends_under_a_callable_loss():
    law = stats.beta(0.05, 0.05, -1, 2)
    result = design(prior=law, loss=absolute).solve()
    assert result.value == pytest.approx(design(prior=law).solve().value, rel=1e-6)
    below, above = law_moments(law, np.array([-1.0, 0.1, 1.0]))
    exact = above[1] - 0.1 * above[0] - below[1] + 0.1 * below[0]
    found = law_integrals(law, lambda x: np.abs(x - 0.1)[:, None], np.array([-1.0, 1.0]))
    assert found[0, 0] == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(
    "law",
    [
        spiked(),
        stats.beta(0.05, 0.3, -1, 2),
        stats.norm(0.31, 1e-6),
        stats.t(1.5, 0.2, 0.01),
        stats.arcsine(-1, 2),
        stats.triang(0.3, -1, 2),
    ],
    ids=lambda law: law.dist.name,
)
def test_mass_of_every_cell_is_the_distribution_functions(law):
    edges = np.sort(np.append(np.random.default_rng(3).uniform(-1, 1, 40), [-1, 0.31, 1]))
    mass = law_integrals(law, lambda x: np.ones((len(x), 1)), edges)[:, 0]
    assert mass == pytest.approx(np.diff(law.cdf(edges)), abs=1e-11)


class _Rising(stats.rv_continuous):
    def _pdf(self, x):
        return 2 * x

    def _cdf(self, x):
        return x * x


def test_a_law_that_calls_itself_uniform():
    law = _Rising(a=0, b=1, name="uniform")()
    assert md.Prior.of(law).moments([0, 0.5, 1])[:, 0] == pytest.approx([0.25, 0.75], abs=1e-13)


def test_a_density_that_contradicts_its_distribution_function_is_refused():
    class Broken(_Rising):
        def _cdf(self, x):
            return x

    with pytest.raises(md.DesignError, match="disagree"):
        md.Prior.of(Broken(a=0, b=1, name="broken")()).moments([0, 0.5, 1])


def test_far_tails():
    prior = md.truncated(stats.norm(-9, 1), -1, 1)
    assert prior.moments([-1, 1])[0, 0] == pytest.approx(1, abs=1e-14)
    hazard = stats.norm.pdf(8) / (stats.norm.sf(8) - stats.norm.sf(10))
    assert prior.mean == pytest.approx(-9 + hazard - stats.norm.pdf(10) / stats.norm.sf(8), rel=1e-12)
    assert certified(design(prior=prior).solve())
    result = design(prior=stats.truncnorm(-110, -90, 10, 0.1)).solve()
    assert certified(result)
    assert result.value == pytest.approx(result.mechanism.loss_at(1 - 0.1 / 90), abs=1e-5)
    assert md.truncated(stats.norm(-40, 1), -1, 1).moments([-1, 1])[0, 0] == pytest.approx(1)


@pytest.mark.parametrize("centre", [1.7e9, 1e9, -3e8])
def test_inputs_far_from_zero(centre):
    bins = centre + np.array(BINS)
    result = design(bins=bins, prior=stats.uniform(centre - 1, 2)).solve()
    assert result.value == pytest.approx(1.7005434, abs=1e-6)
    assert certified(result)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_do_not_matter(unit):
    prior = stats.uniform(-unit, 2 * unit)
    result = design(bins=unit * np.array(BINS), prior=prior).solve()
    assert result.value / unit == pytest.approx(1.7005434, abs=1e-6)
    assert certified(result)


# -- bounds -----------------------------------------------------------------------------------------------


def test_worst_case_of_a_callable_is_an_upper_bound():
    result = design(loss=lambda t: np.maximum(-2 * t - 1, np.maximum(0.5 * t, 0)), objective="worst").solve()
    at = result.mechanism.loss_at(
        np.linspace(-1, 1, 20001), lambda t: np.maximum(-2 * t - 1, np.maximum(0.5 * t, 0))
    )
    assert at.max() <= result.value <= at.max() * (1 + 1e-6)


# -- the edge of what is feasible ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"objective": "worst"}, {"max_bias": 0.1}, {"max_mse": 0.5}])
def test_budgets_beyond_double_precision(changes):
    found = [design(privacy=md.PureDP(e), **changes).solve() for e in (20.0, 40.0, 100.0, 200.0)]
    for result in found:
        assert result.value <= found[0].value * (1 + 1e-6)
        assert result.certificate.verify()
        assert "max_mse" in changes or certified(result)
        assert str(result)


# -- losses that grow --------------------------------------------------------------------------------


def test_a_loss_that_returns_a_scalar():
    with pytest.raises(md.DesignError, match="map an array of errors to one of its shape"):
        design(loss=lambda z: 1.0)
