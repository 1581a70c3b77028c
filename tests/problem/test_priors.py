"""Partial moments against quadrature and mpmath; every kind of prior; bad priors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from strategies import priors

import mechdesign as md
from mechdesign.problem.law_moments import law_moments

LAWS = [
    stats.uniform(-1, 2), stats.norm(0.3, 0.5), stats.truncnorm(-2, 1.5, loc=0.1, scale=0.7), stats.beta(2, 3.5, loc=-1, scale=2),
    stats.triang(0.3, loc=-1, scale=2), stats.arcsine(loc=-1, scale=2), stats.semicircular(), stats.laplace(0, 0.4),
]  # fmt: skip


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.dist.name)
def test_partial_moments(law) -> None:
    """Closed forms and quadrature of the distribution function, against quadrature of the density at 1e-11."""
    edges = np.array([-1.0, -0.71, -0.2, 0.05, 0.9, 1.0])
    table = law_moments(law, edges)
    for k, (a, b) in enumerate(zip(edges[:-1], edges[1:])):
        for order in range(3):
            ends, kinks = (a, b), [p for p in (-0.4, 0.0) if a < p < b] or None
            moment = lambda t, n=order: t**n * law.pdf(t)  # noqa: E731
            if law.dist.name == "arcsine":  # its density is infinite at ±1: substitute x = cos
                ends, kinks, moment = np.arccos((b, a)), None, lambda t, n=order: np.cos(t) ** n / np.pi
            assert table[k, order] == pytest.approx(
                integrate.quad(moment, *ends, epsabs=1e-14, points=kinks)[0], abs=1e-12
            )


@settings(max_examples=30)
@given(st.data())
def test_cells_add_up(data) -> None:
    prior = md.Prior.of(data.draw(priors(-1.0, 0.7)), (-1.0, 0.7))
    edges = np.unique([-1.0, 0.7, *data.draw(st.lists(st.floats(-1, 0.7), max_size=5))])
    moments = prior.moments(edges)
    assert moments[:, 0].sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(moments.sum(axis=0), prior.moments(np.array([-1.0, 0.7]))[0], atol=1e-12)
    np.testing.assert_allclose(
        prior.integrals(lambda x: np.stack([x**0, x, x**2], 1), edges), moments, atol=1e-10
    )
    draws = prior.sample(4000, 3)
    assert draws.min() >= -1 and draws.max() <= 0.7
    assert abs(draws.mean() - prior.mean) < 5 * draws.std() / np.sqrt(4000) + 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (lambda prior=prior: md.Prior.of(prior, (-1.0, 1.0)), message)
            for prior, message in (
                (stats.norm(), "unbounded support"),
                (stats.uniform(-2, 4), "mass outside the input range"),
                ([0.0, float("nan")], "finite numbers"),
                ([], "non-empty"),
                ("uniform", "frozen scipy.stats law"),
                (stats.poisson(3), "continuous"),
            )
        ),
        (lambda: md.clipped(stats.norm(), 1, -1), "lower < upper"),
        (lambda: md.truncated(stats.uniform(0, 1), 5, 6), "no mass"),
        (lambda: md.Loss.of("mae"), 'must be "absolute"'),
        (lambda: md.Loss.of({"absolute": -1}), "absolute = -1: must be a finite number of at least 0"),
        (lambda: md.Loss.of({"absolute": 0}), "one must be positive"),
        (lambda: md.Loss.of({"cubic": 1}), "a dict of the two"),
        (lambda: md.Loss.of(3), "callable"),
        (
            lambda: md.Loss.of(lambda t: np.sqrt(np.abs(t))).check_convex(np.array([-2.0, 2.0]), -1, 1),
            "not convex near the error",
        ),
    ],
)
def test_bad_priors_and_losses(call, message: str) -> None:
    with pytest.raises(md.DesignError, match=message):
        call()
