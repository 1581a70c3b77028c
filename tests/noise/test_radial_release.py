"""Radial noise as it is released: laws counted out point by point, rounded neighbours, answers that do not change."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.noise import radial
from mechdesign.noise.balls import Ball, hull_of
from mechdesign.noise.knorm import KNorm
from mechdesign.noise.radial import RadialLattice, Shells
from mechdesign.noise.release import RoundedSum, noisy
from noise.norms import ALARM, faces_of, gauge, gauge_of

S = md.Sensitivity
CROSS, CUBE = 1.0, math.inf
HULLS = [[[1, 1], [1, 0], [0, 1]], [[4, 1], [-1, 3], [2, 4], [3, -3]]]
BALLS = [
    *(Ball(d, norm) for norm in (CROSS, CUBE) for d in (2, 3)),
    Ball(2, CUBE, 1.5),
    Ball(3, CUBE, 2.0),
    Ball(2, CUBE, signed=False),
    Ball(3, CUBE, signed=False),
    *(Ball(2, CUBE, hull=hull_of(np.array(vectors) / 4)) for vectors in HULLS),
]


def levels(
    lattice: RadialLattice, points: list[tuple[int, ...]], vectors: list[list[int]] | None
) -> np.ndarray:
    """What the released density is the exponential of, by the norm in rational numbers."""
    ball, faces = lattice.ball, None
    if vectors is not None:
        faces = faces_of([[Fraction(x, 4) for x in v] for v in vectors])
    cap = None if ball.cap is None else Fraction(ball.cap)
    found = []
    for point in points:
        z = [Fraction(x) for x in point]
        length = math.ceil(gauge_of(faces, z) if faces else gauge(z, ball.norm, cap, ball.signed))
        if lattice.inner is None:
            found.append(-length / lattice.rate)
        else:
            found.append(
                -max(0, -(-(length - lattice.inner) // lattice.shift)) * lattice.shift / lattice.rate
            )
    return np.array(found)


def counted_out(lattice: RadialLattice, size: int, vectors: list[list[int]] | None = None) -> float:
    """The p-value of draws at all points of a box, and outside it, under the law stated."""
    d = lattice.ball.dimension
    points = list(itertools.product(range(-3, 4), repeat=d))
    reach = 40 if d == 3 else 120
    wide = np.array(list(itertools.product(range(-reach, reach + 1), repeat=d)))
    # far out the norm in doubles is enough: what lies there is counted together
    steps = np.ceil(lattice.ball.gauge(wide) - 1e-9)
    if lattice.inner is not None:
        steps = np.maximum(0, np.ceil((steps - lattice.inner) / lattice.shift)) * lattice.shift
    total = np.exp(-steps / lattice.rate).sum()
    expected = np.exp(levels(lattice, points, vectors)) / total * size
    counts = Counter(map(tuple, lattice.draw(size).tolist()))
    seen = np.array([counts[p] for p in points], dtype=float)
    rare = expected < 5
    seen = np.append(seen[~rare], size - seen[~rare].sum())
    expected = np.append(expected[~rare], size - expected[~rare].sum())
    return float(stats.chisquare(seen, expected).pvalue)


@pytest.mark.parametrize(("shift", "rate", "inner"), [(2, 2, None), (4, 3, 1)])
@pytest.mark.parametrize("ball", range(len(BALLS)))
def test_the_law_of_the_steps(ball: int, shift: int, rate: int, inner: int | None) -> None:
    lattice = RadialLattice(BALLS[ball], 1.0, shift, rate, inner, 0.0)
    vectors = HULLS[ball - len(BALLS)] if BALLS[ball].hull is not None else None
    assert counted_out(lattice, 20_000, vectors) > ALARM


def test_coins_settled_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every coin by its fraction: the same law; and a test that sees another one."""
    lattice = RadialLattice(Ball(2, CUBE), 1.0, 1, 1, None, 0.0)
    monkeypatch.setattr(radial, "_DOUBT", 1.0)
    assert counted_out(lattice, 5000) > ALARM
    monkeypatch.setattr(radial, "bernoulli", lambda near, error, exact: np.ones(near.shape, dtype=bool))
    assert counted_out(lattice, 20_000) < ALARM


@pytest.mark.parametrize(
    ("dimension", "epsilon"),
    [(3, 4.0), *(pytest.param(d, e, marks=pytest.mark.slow) for d, e in ((1, 2.0), (3, 0.5), (20, 5.0)))],
)
@pytest.mark.parametrize("settled", [False, True])
def test_rounded_noise_of_a_round_ball(
    dimension: int, epsilon: float, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths by the masses of the balls, directions by their mean; where no double decides as well."""
    size = 20_000
    if settled:
        size = 150
        monkeypatch.setattr(
            RoundedSum, "_doubles", lambda self, words, far: (np.zeros((len(words), dimension)), np.inf)
        )
    law = KNorm(dimension, md.PureDP(epsilon), S(l2=1.0)).solve().mechanism
    out = law.release(np.zeros((size, dimension)))
    lengths = np.linalg.norm(out, axis=1)
    if law.gamma is None:
        chances = stats.gamma(dimension, scale=law.scale).cdf(lengths)
    else:
        ends, masses = Shells(dimension, epsilon, 2).masses(law.gamma)
        chances = np.array([masses @ np.minimum(1, (x / ends) ** dimension) for x in lengths])
    assert stats.kstest(chances, "uniform").pvalue > ALARM
    assert np.abs((out / lengths[:, None]).mean(axis=0)).max() < 6 / math.sqrt(size)


@settings(max_examples=50, deadline=None)  # each tries three norms and more, with 50 answers
@given(st.integers(0, 2**32 - 1))
def test_rounded_neighbours_are_no_further_apart_than_said(seed: int) -> None:
    """Answers v apart, rounded, lie at most `shift` steps apart in the norm, and that loses no more than ε in all rounds."""
    rng = np.random.default_rng(seed)
    d, rounds = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    each = rng.uniform(0.3, 1, d).round(3)
    bounds = [
        S(linf=0.7), S(linf=0.7, signed=False), S(linf=0.7, l0=2), S(l2=0.7), S(l1=0.7), S(each=each), S(each=each, l0=2),
        S(each=each, signed=False), S(linf=1.0, l1=1.7),
    ][int(rng.integers(9))]  # fmt: skip
    design = KNorm(d, md.PureDP(float(np.exp(rng.uniform(-2, 2.5)))), bounds, rounds=rounds)
    for law in design.laws():
        lattice = law.lattice
        assert Fraction(lattice.shift, lattice.rate) * rounds <= Fraction(design.privacy.epsilon)
        assert 0 <= lattice.cost < 1e-3 and math.frexp(lattice.step)[0] == 0.5
        x = rng.normal(size=(50, d)) * 100
        v = np.where(
            np.arange(50)[:, None] % 2, rng.uniform(-1, 1, (50, d)), rng.choice([-1.0, 1.0], (50, d))
        )
        v *= bounds.widths(d)
        v = np.abs(v) if not bounds.signed else v
        if bounds.l0 is not None:
            v[:, 2:] = 0
        for order, most in ((1, bounds.l1), (2, bounds.l2)):
            if most is not None:
                v *= most / np.maximum(most, np.linalg.norm(v, ord=order, axis=1, keepdims=True))
        v *= 1 - 1e-12
        step = lattice.step * (1.0 if law.widths is None else np.array(law.widths))
        zero = np.zeros(x.shape, dtype=np.int64)
        rounded = [np.rint(noisy(y, step, zero) / step).astype(np.int64) for y in (x, x + v)]
        assert lattice.ball.gauge(rounded[1] - rounded[0]).max() <= lattice.shift * (1 + 1e-15)


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


def test_coordinates_that_do_not_change_are_returned_as_they_are() -> None:
    law = KNorm(3, md.PureDP(1.0), S(each=[1.0, 0.0, 2.0])).solve().mechanism
    x = np.array([[0.1, 0.7, 1e300], [3.0, -2.5, 0.0]])
    given = x.copy()
    out = law.release(x)
    assert np.array_equal(out[:, 1], x[:, 1]) and (out[:, 0] != x[:, 0]).all() and np.array_equal(x, given)
    assert (law.sample(x, rng=0)[:, 1] == x[:, 1]).all()
