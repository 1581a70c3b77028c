"""Continuous mechanisms, vectors, the biased extension, and the OpenDP export, each against an independent oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechdesign_studies.quantizers.baselines import HybridMechanism, PiecewiseMechanism
from scipy import integrate, stats

import mechdesign as md
from mechdesign.quantizers.selection import SelectionFamilies, rqm_family

UNIFORM = stats.uniform(-1, 2)


@given(st.floats(0.1, 8), st.floats(-1, 1))
def test_piecewise_mechanism(epsilon: float, x: float) -> None:
    """Normalised, unbiased, ε-LDP, with Wang et al.'s variance."""
    m = PiecewiseMechanism(epsilon)
    left = (m.reach + 1) / 2 * x - (m.reach - 1) / 2
    right = left + m.reach - 1
    low = m.high * math.exp(-epsilon)
    mass = m.high * (m.reach - 1) + low * (m.reach + 1)
    mean = m.high * (right**2 - left**2) / 2 + low * (left**2 - right**2) / 2
    assert mass == pytest.approx(1, rel=1e-12) and mean == pytest.approx(x, abs=1e-9 * m.reach)
    root = math.exp(epsilon / 2)
    variance = x * x / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
    assert m.loss_at(x, "squared") == pytest.approx(variance, rel=1e-9)
    density = lambda y: (m.high if left <= y <= right else low) * abs(y - x)  # noqa: E731
    points = sorted({p for p in (left, right, x) if -m.reach < p < m.reach})
    edges = [-m.reach, *points, m.reach]
    absolute = sum(integrate.quad(density, a, b, epsabs=1e-12)[0] for a, b in zip(edges, edges[1:]))
    assert m.loss_at(x) == pytest.approx(absolute, rel=1e-7)
    assert m.loss_at(x, np.abs) == pytest.approx(float(m.loss_at(x)), rel=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [
        PiecewiseMechanism(1.0),
        HybridMechanism(2.0),
        HybridMechanism(0.5),
        md.quantizers.duchi(1.0),
    ],
)
def test_continuous_samplers_are_unbiased_and_have_their_error(mechanism) -> None:
    for x in (-1.0, 0.3, 1.0):
        y = mechanism.sample(np.full(200_000, x), rng=5)
        errors = y - x
        assert abs(errors.mean()) < 4.5 * errors.std() / math.sqrt(len(y))
        squared = errors**2
        assert abs(squared.mean() - mechanism.loss_at(x, "squared")) < 4.5 * squared.std() / math.sqrt(len(y))


def test_vectors_split_the_budget() -> None:
    coordinate = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).solve().mechanism
    vector = md.CoordinateQuantizer(coordinate, 10, scale=0.01)
    assert 10.0 <= vector.privacy_loss() <= 10.000001
    x = np.random.default_rng(0).uniform(-0.01, 0.01, (20_000, 10))
    y = vector.sample(x, rng=1)
    assert set(np.unique(np.round(y / 0.01, 9))) == {-3.0, -0.5, 0.5, 3.0}
    error = ((y - x) ** 2).sum(axis=1)
    assert abs(error.mean() - vector.expected_squared_error(UNIFORM)) < 4.5 * error.std() / math.sqrt(len(x))
    assert vector.release(x[:7]).shape == (7, 10)
    with pytest.raises(md.DesignError, match="last axis must be 10"):
        vector.sample(np.zeros((3, 4)))
    with pytest.raises(md.DesignError, match="dimension"):
        md.CoordinateQuantizer(coordinate, 0)


@settings(max_examples=60)
@given(st.integers(2, 7), st.floats(0.1, 0.9), st.floats(0, 4), st.floats(0, 2), st.integers(0, 2**32 - 1))
def test_biased_mechanisms(m: int, q: float, beta: float, delta: float, seed: int) -> None:
    """Rows sum to 1; no sampled pair exceeds the exact loss; the pairwise formula agrees; the error is the quadrature's."""
    family = rqm_family(m, q)
    bins = np.linspace(-1 - delta, 1 + delta, m)
    mechanism = md.quantizers.BiasedQuantizer(SelectionFamilies(bins, family, family), beta, (-1, 1))
    x = np.random.default_rng(seed).uniform(-1, 1, 50)
    p = mechanism.probabilities(x)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    sampled = np.log(p.max(axis=0) / p.min(axis=0)).max()
    assert sampled <= mechanism.privacy_loss() + 1e-12
    if math.isfinite(mechanism.privacy_loss()):
        assert sampled - 1e-12 <= mechanism.proved_loss() <= mechanism.privacy_loss() + 1e-12
    k = int(np.argmin(np.abs(x)))
    j = min(int(np.sum(bins <= x[k])), m - 1)
    naive = np.zeros(m)
    for l in range(1, j + 1):
        for r in range(j + 1, m + 1):
            weights = np.exp(-beta * np.abs(np.array([bins[l - 1], bins[r - 1]]) - x[k]))
            pair = family[j - 1, l - 1] * family[m - j - 1, m - r]
            naive[[l - 1, r - 1]] += pair * weights / weights.sum()
    np.testing.assert_allclose(p[k], naive, atol=1e-12)
    assert np.abs(mechanism.bias(x)).max() <= mechanism.max_bias() + 1e-3
    edges = np.unique(np.clip(np.concatenate([[-1, 1], bins]), -1, 1))
    true = sum(
        integrate.quad(lambda t: (mechanism.probabilities(t) @ np.abs(bins - t)) / 2, a, b)[0]
        for a, b in zip(edges, edges[1:])
    )
    assert mechanism.expected_loss(UNIFORM) == pytest.approx(true, rel=1e-6)


def test_biased_design() -> None:
    grid = md.Grid(delta=[0.5, 1.0, 2.0], q=[0.3, 0.6], beta=[0.0, 0.1, 0.4, 1.0])
    free = md.BiasedSelection(4, md.PureDP(1.0), UNIFORM, grid=grid).solve()
    assert free.mechanism.privacy_loss() <= 1.0 and free.value == free.to_frame()["value"].min()
    with pytest.raises(md.InfeasibleError, match="least bias within the privacy budget"):
        md.BiasedSelection(4, md.PureDP(1.0), UNIFORM, max_bias=1e-6, grid=grid).solve()
    with pytest.raises(md.DesignError, match="max_bias"):
        md.BiasedSelection(4, md.PureDP(1.0), UNIFORM, max_bias=-1)


def test_opendp_measurement() -> None:
    """The measurement releases outputs of the mechanism and states the certified loss."""
    pytest.importorskip("opendp")
    result = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).solve()
    measurement = result.mechanism.to_opendp()
    assert measurement.map(1) == result.mechanism.privacy_loss() <= 1.0 and measurement.map(0) == 0.0
    draws = [measurement(0.25) for _ in range(400)]
    assert set(draws) <= {-3.0, -0.5, 0.5, 3.0}
    counts = np.array([draws.count(b) for b in (-3.0, -0.5, 0.5, 3.0)])
    assert stats.chisquare(counts, result.mechanism.probabilities(0.25) * 400).pvalue > 1e-8
