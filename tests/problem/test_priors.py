"""Partial moments against quadrature and mpmath; every kind of prior; bad priors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from strategies import priors

import mechdesign as md
from mechdesign.problem.law_moments import law_integrals, law_moments

LAWS = [
    stats.uniform(-1, 2),
    stats.norm(0.3, 0.5),
    stats.truncnorm(-2, 1.5, loc=0.1, scale=0.7),
    stats.beta(2, 3.5, loc=-1, scale=2),
    stats.triang(0.3, loc=-1, scale=2),
    stats.arcsine(loc=-1, scale=2),
    stats.semicircular(),
    stats.laplace(0, 0.4),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.dist.name)
def test_partial_moments(law) -> None:
    """Closed forms and quadrature of the distribution function, against quadrature of the density at 1e-11."""
    edges = np.array([-1.0, -0.71, -0.2, 0.05, 0.9, 1.0])
    table = law_moments(law, edges)
    for k, (a, b) in enumerate(zip(edges[:-1], edges[1:])):
        for order in range(3):
            # the density of the arcsine law is infinite at ±1: substitute x = cos
            if law.dist.name == "arcsine":
                true = integrate.quad(
                    lambda t, n=order: np.cos(t) ** n / np.pi, np.arccos(b), np.arccos(a), epsabs=1e-14
                )[0]
            else:
                true = integrate.quad(
                    lambda t, n=order: t**n * law.pdf(t),
                    a,
                    b,
                    epsabs=1e-14,
                    points=[p for p in (-0.4, 0.0) if a < p < b] or None,
                )[0]
            assert table[k, order] == pytest.approx(true, abs=1e-12)


@pytest.mark.slow
@given(st.data())
def test_cells_add_up(data) -> None:
    prior = md.Prior.of(data.draw(priors(-1.0, 0.7)), (-1.0, 0.7))
    edges = np.sort(np.concatenate([[-1.0, 0.7], data.draw(st.lists(st.floats(-1, 0.7), max_size=5))]))
    edges = np.unique(edges)
    total = prior.moments(edges).sum(axis=0)
    assert total[0] == pytest.approx(1, abs=1e-12)
    whole = prior.moments(np.array([-1.0, 0.7]))[0]
    np.testing.assert_allclose(total, whole, atol=1e-12)
    np.testing.assert_allclose(
        prior.integrals(lambda x: np.stack([x**0, x, x**2], 1), edges), prior.moments(edges), atol=1e-10
    )
    draws = prior.sample(4000, 3)
    assert draws.min() >= -1 and draws.max() <= 0.7
    assert abs(draws.mean() - prior.mean) < 5 * draws.std() / np.sqrt(4000) + 1e-12


def test_integrals_of_kinks() -> None:
    got = law_integrals(stats.uniform(-1, 2), lambda x: np.abs(x - 0.123)[:, None], np.array([-1.0, 1.0]))
    assert got[0, 0] == pytest.approx(((1.123) ** 2 + (0.877) ** 2) / 4, abs=1e-11)


def test_symmetry_is_recognised() -> None:
    assert md.Prior.of(stats.uniform(-1, 2)).symmetric()
    assert md.clipped(stats.norm(0, 1), -1, 1).symmetric()
    assert not md.clipped(stats.norm(0.01, 1), -1, 1).symmetric()
    assert md.Prior.of([-1.0, 0.0, 1.0]).symmetric() and not md.Prior.of([-1.0, 0.5, 1.0]).symmetric()


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (stats.norm(), "unbounded support"),
        (stats.uniform(-2, 4), "mass outside the input range"),
        ([0.0, float("nan")], "finite numbers"),
        ([], "non-empty"),
        ("uniform", "frozen scipy.stats law"),
        (stats.poisson(3), "continuous"),
        ([0.0, 3.0], "mass outside"),
    ],
)
def test_bad_priors(prior, message: str) -> None:
    with pytest.raises(md.DesignError, match=message):
        md.Prior.of(prior, (-1.0, 1.0))


def test_bad_cuts() -> None:
    with pytest.raises(md.DesignError, match="lower < upper"):
        md.clipped(stats.norm(), 1, -1)
    with pytest.raises(md.DesignError, match="no mass"):
        md.truncated(stats.uniform(0, 1), 5, 6)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("mae", 'must be "absolute"'),
        ({"absolute": -1}, "absolute = -1: must be a finite number of at least 0"),
        ({"absolute": 0}, "one must be positive"),
        ({"cubic": 1}, "a dict of the two"),
        ({}, "a dict of the two"),
        (3, "callable"),
    ],
)
def test_bad_losses(loss, message: str) -> None:
    with pytest.raises(md.DesignError, match=message):
        md.Loss.of(loss)


def test_non_convex_loss_is_named() -> None:
    with pytest.raises(md.DesignError, match="not convex near the error"):
        md.Loss.of(lambda t: np.sqrt(np.abs(t))).check_convex(np.array([-2.0, 2.0]), -1, 1)
    md.Loss.of(np.cosh).check_convex(np.array([-2.0, 0.0, 2.0]), -1, 1)
