"""K-norm noise drawn exactly: whole numbers against the law counted out, the lattice against ε in rational numbers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.noise import radial
from mechdesign.noise.balls import Ball
from mechdesign.noise.radial import RadialLattice, radial_lattice
from mechdesign.noise.release import noisy

# Not seeded, by design: one false alarm in 10⁸ runs.
ALARM = 1e-8


def steps(dimension: int, rate: int, rows: int, norm: float) -> np.ndarray:
    return RadialLattice(Ball(dimension, norm), 1.0, 1, rate, None, 0.0).draw(rows)


def counted_out(dimension: int, rate: float, norm: float, size: int, found: np.ndarray) -> float:
    """The p-value of all points of a box and the rest, against weights summed shell by shell."""
    points = list(itertools.product(range(-3, 4), repeat=dimension))
    radii = np.arange(2000)
    if norm == math.inf:
        shells = (2.0 * radii + 1) ** dimension - np.maximum(2.0 * radii - 1, 0) ** dimension
    else:
        shells = np.where(radii == 0, 1.0, 4.0 * radii if dimension == 2 else 4.0 * radii**2 + 2)
    total = float((shells * np.exp(-radii / rate)).sum())
    expected = np.array([math.exp(-np.linalg.norm(p, ord=norm) / rate) / total for p in points]) * size
    place = {p: i for i, p in enumerate(points)}
    counts = np.zeros(len(points) + 1)
    for row, times in zip(*np.unique(found, axis=0, return_counts=True), strict=True):
        counts[place.get(tuple(row.tolist()), -1)] += times
    expected = np.append(expected, size - expected.sum())
    # what is rare is counted with what lies outside the box
    rare = np.append(expected[:-1] < 5, True)
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    return float(stats.chisquare(counts, expected).pvalue)


@pytest.mark.parametrize("norm", [1.0, math.inf])
@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("rate", [1, 2])
def test_the_law_of_the_steps(norm: float, dimension: int, rate: int) -> None:
    found = steps(dimension, rate, 60_000, norm)
    assert found.shape == (60_000, dimension)
    assert counted_out(dimension, rate, norm, 60_000, found) > ALARM


def test_coins_settled_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every coin by its fraction: the same law; and a test that sees another one."""
    monkeypatch.setattr(radial, "_DOUBT", 1.0)
    assert counted_out(2, 1, math.inf, 8000, steps(2, 1, 8000, math.inf)) > ALARM
    assert counted_out(2, 1, math.inf, 8000, steps(2, 1, 8000, 1.0)) < ALARM
    always = lambda near, error, exact: np.ones(near.shape, dtype=bool)  # noqa: E731
    monkeypatch.setattr(radial, "bernoulli", always)
    assert counted_out(3, 1, math.inf, 20_000, steps(3, 1, 20_000, math.inf)) < ALARM


def test_one_coordinate_is_discrete_laplace_noise() -> None:
    for norm in (1.0, math.inf):
        found = steps(1, 3, 50_000, norm)[:, 0]
        near = np.abs(found) < 12
        counts = np.append(np.bincount(found[near] + 11, minlength=23), (~near).sum())
        law = stats.dlaplace(1 / 3)
        mass = law.pmf(np.arange(-11, 12))
        assert stats.chisquare(counts, np.append(mass, 1 - mass.sum()) * 50_000).pvalue > ALARM, norm


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 5000),
    st.floats(1e-3, 700.0),
    st.floats(1e-100, 1e100),
    st.sampled_from([1.0, math.inf]),
    st.integers(1, 9),
)
def test_the_lattice_keeps_epsilon(
    dimension: int, epsilon: float, size: float, norm: float, rounds: int
) -> None:
    """In rational numbers: rounded answers of neighbours lie at most `shift` steps apart, and lose at most ε in all rounds."""
    design = md.noise.KNorm(dimension, md.PureDP(epsilon), size, norm=norm, rounds=rounds)
    law = design.solve().mechanism
    lattice = law.lattice
    assert Fraction(lattice.shift, lattice.rate) * rounds <= Fraction(epsilon)
    step, change = Fraction(lattice.step), Fraction(design.largest(norm))
    least = change / step + dimension if norm == 1 and dimension > 1 else change / step
    assert lattice.shift >= math.floor(least) and lattice.shift >= change / step
    assert math.frexp(lattice.step)[0] == 0.5
    assert 0 <= lattice.cost < 1e-4


def test_rounded_neighbours_are_no_further_apart_than_said() -> None:
    rng = np.random.default_rng(0)
    for norm in (1.0, math.inf):
        lattice = radial_lattice(Ball(5, norm), 0.7, 0.3, None)
        x = rng.normal(size=(2000, 5)) * 100
        v = rng.uniform(-1, 1, size=(2000, 5))
        v *= 0.3 * (1 - 1e-12) / np.linalg.norm(v, ord=norm, axis=1, keepdims=True)
        apart = (noisy(x + v, lattice.step, 0) - noisy(x, lattice.step, 0)) / lattice.step
        assert np.linalg.norm(apart, ord=norm, axis=1).max() <= lattice.shift


@pytest.mark.parametrize("norm", [1.0, math.inf])
def test_releases(norm: float) -> None:
    result = md.noise.KNorm(20, md.PureDP(1.0), norm=norm).solve()
    law = result.mechanism
    out = law.release(np.full((3000, 20), 7.25))
    assert out.shape == (3000, 20) and law.release(np.zeros(20)).shape == (20,)
    assert np.array_equal(out / law.lattice.step, np.rint(out / law.lattice.step))
    norms = np.linalg.norm(out - 7.25, ord=norm, axis=1)
    assert stats.kstest(norms, law.norm_law.cdf).pvalue > ALARM
    assert (out - 7.25).var() == pytest.approx(result.value, rel=0.15)
    assert np.array_equal(law.release(np.full(20, 1e30)), np.full(20, 1e30))
    assert md.noise.KNorm(1000, md.PureDP(1.0), norm=norm).solve().mechanism.release(np.zeros(1000)).any()


def test_bounds_together_and_what_has_no_release() -> None:
    few = md.Sensitivity(linf=1, l0=3)
    law = md.noise.KNorm(20, md.PureDP(1.0), few, norm=1).solve().mechanism
    assert law.norm == 1 and law.largest == 3.0 and law.deployable
    assert law.release(np.zeros(20)).shape == (20,)
    ball = md.noise.KNorm(4, md.PureDP(1.0), md.Sensitivity(l2=1.0)).solve()
    assert ball.mechanism.norm == 2 and ball.mechanism.release(np.zeros(4)).shape == (4,)
    for call, word in (
        (lambda: md.noise.KNormNoise(3, 1.0, math.inf).release(np.zeros(3)), "largest change"),
        (lambda: law.release(np.zeros(19)), "20 coordinates"),
        (lambda: law.release([math.nan] * 20), "x"),
        (lambda: md.noise.KNormNoise(3, 1e9, math.inf, 1e-9).release(np.zeros(3)), "raise epsilon"),
        (lambda: md.noise.KNormNoise(3, 1.0, math.inf, -1.0), "largest"),
    ):
        with pytest.raises(md.DesignError, match=word):
            call()
