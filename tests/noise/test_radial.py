"""Radial noise: the sheet's tables, privacy by sums of its own, the released law counted out, moments by points of a lattice."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise.balls import Ball, hull_of, short
from mechdesign.noise.knorm import KNorm
from mechdesign.noise.knorm_noise import KNormNoise
from mechdesign.noise.radial import RadialLattice, Shells, round_delta
from mechdesign.noise.release import RoundedSum
from mechdesign.problem.privacy import implied_by_pure, pure_epsilon
from mechdesign.verifier.verify import verify
from tests.campaign.bounds_oracles import changes

S = md.Sensitivity
ALARM = 1e-8  # of tests that are not seeded, by design: one false alarm in 10⁸ runs
CUBE, CROSS, ROUND = math.inf, 1.0, 2.0


def verifies(result: object) -> bool:
    """Whether the stand-alone checker accepts the file."""
    return all(holds for *_, holds in verify(dumps(result)).rows)


def radial(dimension: int, epsilon: float, gamma: float, power: int) -> mp.mpf:
    """S_{d+p}/S_d by the Lerch transcendent's series, in 40 digits."""
    with mp.workdps(40):
        q, g = mp.exp(-mp.mpf(epsilon)), mp.mpf(gamma)
        sums = [
            mp.nsum(lambda j, n=n: q**j * (j + g) ** n, [0, mp.inf]) for n in (dimension + power, dimension)
        ]
        return sums[0] / sums[1]


@pytest.mark.parametrize(
    ("dimension", "epsilon", "gain"),
    [(2, 3, 1.1687), (2, 5, 1.7035), (2, 10, 7.5845), (3, 8, 2.5359), (5, 5, 1.1323), (5, 10, 2.2673), (5, 20, 15.327)]
    + [(10, 10, 1.3434), (10, 20, 3.6931), (8, 1, 1.0)],
)  # fmt: skip
def test_gains_of_the_staircase_are_those_of_the_sheet(dimension: int, epsilon: float, gain: float) -> None:
    shells = Shells(dimension, epsilon, 2)
    moment = shells.moment(shells.gamma)
    assert float(f"{shells.exponential / moment:.5g}") == pytest.approx(gain, rel=3e-5)
    assert moment <= shells.exponential
    assert moment == pytest.approx(float(radial(dimension, epsilon, shells.gamma, 2)), rel=1e-12)


def test_the_best_step_of_the_sheet() -> None:
    shells = Shells(2, 5.0, 2)
    assert shells.gamma == pytest.approx(0.306771, abs=5e-7)
    assert shells.moment(shells.gamma) / 2 == pytest.approx(0.14088265, abs=5e-9)


def test_staircases_of_the_cross_polytope() -> None:
    """E‖T‖₁ of two numbers, Table II of the allocation paper; every additive noise of this sensitivity costs as much."""
    errors = [
        2 * KNorm(2, md.PureDP(e), S(l1=1.0), loss="absolute").solve().value for e in (0.5, 1, 1.5, 2, 2.5, 3)
    ]
    np.testing.assert_allclose(errors, [3.9962, 1.9862, 1.3050, 0.9546, 0.7366, 0.5856], atol=1e-4)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.floats(0.05, 60.0), st.sampled_from([1, 2]))
def test_no_staircase_is_below_the_bound_nor_the_best_above_the_exponential(
    dimension: int, epsilon: float, power: int
) -> None:
    shells = Shells(dimension, epsilon, power)
    best = shells.moment(shells.gamma)
    assert shells.bound <= best <= shells.exponential
    least = min(shells.moment(g) for g in np.linspace(1e-6, 1, 301))
    assert shells.bound <= least * (1 + 1e-12) and best <= least * (1 + 1e-9)
    assert shells.none_below(shells.bound) and not shells.none_below(least * (1 + 1e-6))


def hull_points(ball: Ball, steps: int) -> np.ndarray:
    """The lattice points of a ball that is so many steps in radius."""
    axis = np.arange(-steps, steps + 1)
    points = np.array(list(itertools.product(axis, repeat=ball.dimension)))
    return points[ball.gauge(points) <= steps * (1 + 1e-12)] / steps


BALLS = [
    Ball(3, CROSS),
    Ball(3, ROUND),
    Ball(3, CUBE),
    Ball(3, CUBE, 1.5),
    Ball(3, CUBE, 2.0),
    Ball(3, CUBE, signed=False),
]


@pytest.mark.parametrize("ball", BALLS, ids=str)
def test_volume_moments_and_tail_by_lattice_points(ball: Ball) -> None:
    points = hull_points(ball, 40)
    assert math.log(len(points) / 40**3) == pytest.approx(ball.log_volume, abs=0.06)
    assert np.abs(points[:, 0]).mean() == pytest.approx(ball.moment(1), rel=0.02)
    assert (points[:, 0] ** 2).mean() == pytest.approx(ball.moment(2), rel=0.03)
    assert (points[:, 0] > 0.3125).mean() == pytest.approx(float(ball.tail(0.3125)), rel=0.03)
    draws = ball.points(20_000, np.random.default_rng(1))
    assert ball.gauge(draws).max() <= 1 + 1e-12
    assert stats.kstest(ball.gauge(draws) ** 3, "uniform").pvalue > 1e-4
    assert (draws[:, 1] ** 2).mean() == pytest.approx(ball.moment(2), rel=0.03)


@pytest.mark.parametrize(("cap", "variance"), [(5, 46.12), (8, 97.60), (9, 114.68), (10, 130.14)])
def test_variances_of_hulls_are_those_of_the_sheet(cap: int, variance: float) -> None:
    result = KNorm(20, md.PureDP(1.0), S(linf=1, l0=cap)).solve()
    assert result.mechanism.cap == cap
    assert result.value == pytest.approx(variance, abs=0.006)


def test_all_that_rise_or_all_that_fall_cost_half() -> None:
    """(K + 2)(K + 3)/6ε² a number, where signed changes cost (K + 1)(K + 2)/3ε²: for one number the same."""
    for k in (2, 20, 300):
        result = KNorm(k, md.PureDP(0.5), S(linf=1, signed=False)).solve()
        assert not result.mechanism.signed
        assert result.value == pytest.approx((k + 2) * (k + 3) / 6 / 0.25, rel=1e-3)


# Privacy by sums of their own -----------------------------------------------------------------------------------


def gauge(z: list[Fraction], norm: float, cap: Fraction | None, signed: bool) -> Fraction:
    """The norm in rational numbers; of ℓ₂ its square root to 30 digits."""
    if not signed:
        return max(*z, Fraction(0)) - min(*z, Fraction(0))
    sizes = [abs(x) for x in z]
    if norm == 2:
        square = sum(x * x for x in sizes)
        return Fraction(math.isqrt(int(square * 10**60)), 10**30)
    if norm == 1:
        return sum(sizes, Fraction(0))
    return max(max(sizes), sum(sizes, Fraction(0)) / cap if cap else Fraction(0))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_no_change_loses_more_than_epsilon(seed: int) -> None:
    """Random (d, ε, norm): the levels at z and at z + v by the norm's own rational numbers, 40 changes of the largest size each."""
    rng = np.random.default_rng(seed)
    d, epsilon = int(rng.integers(1, 7)), float(np.exp(rng.uniform(-1.5, 3)))
    norm = float(rng.choice([1.0, 2.0, math.inf]))
    kind = str(rng.choice(["plain", "cap", "rising"])) if d > 1 and norm == math.inf else "plain"
    bounds = {
        "plain": {1.0: S(l1=1.0), 2.0: S(l2=1.0), math.inf: S(linf=1.0)}[norm],
        "cap": S(linf=1.0, l1=float(rng.uniform(1.05, max(d, 2) - 0.05))),
        "rising": S(linf=1.0, signed=False),
    }[kind]
    design = KNorm(d, md.PureDP(epsilon), bounds)
    law = design.noise(norm) if kind == "plain" else design.laws()[-1]
    cap = None if law.cap is None else Fraction(law.cap)
    largest, scale = Fraction(law.largest), Fraction(law.scale)
    assert largest <= epsilon * scale

    def exponent(z: list[Fraction]) -> Fraction:
        length = gauge(z, law.norm, cap, law.signed)
        if law.gamma is None:
            return length / scale
        return max(math.ceil(length / largest - Fraction(law.gamma)), 0) * largest / scale

    worst = Fraction(0)
    for _ in range(40):
        v = rng.uniform(-1, 1, d) if rng.random() < 0.5 else rng.choice([-1.0, 0.0, 1.0], d)
        v = np.abs(v) * rng.choice([-1, 1]) if kind == "rising" else v
        change = [Fraction(x) for x in v]
        sizes = [abs(x) for x in change]
        length = (
            gauge(change, norm, None, True)
            if norm != 2
            else gauge(change, 2.0, None, True) + Fraction(1, 10**25)
        )
        if kind == "cap":
            length = max(length, sum(sizes) / Fraction(bounds.l1))
        if not length:
            continue
        change = [x / length for x in change]
        z = [Fraction(x) for x in rng.uniform(-1, 1, d) * float(scale) * rng.gamma(d + 1)]
        worst = max(worst, abs(exponent([a + b for a, b in zip(z, change)]) - exponent(z)))
    assert worst <= Fraction(epsilon) * (1 + Fraction(law.norm == 2, 10**20))


LISTED = Ball(2, CUBE, hull=hull_of(np.array([[1, 0.75], [-0.5, 1], [0.75, -0.25]])))
FLAT = [Ball(2, b.norm, b.cap, b.signed) for b in BALLS if b.cap != 2]


@pytest.mark.parametrize("ball", [*FLAT, LISTED], ids=str)
@pytest.mark.parametrize("gamma", [None, 0.375])
def test_densities_integrate_to_one_and_have_the_stated_moments(ball: Ball, gamma: float | None) -> None:
    cap = None if ball.cap is None else ball.cap
    vertices = None if ball.hull is None else ball.hull.vertices
    law = KNormNoise(2, 0.8, ball.norm, 1.5, gamma, cap, ball.signed, (1.0, 0.5), vertices)
    x, y = np.meshgrid(
        np.linspace(-15.0071, 15.0123, 1501), np.linspace(-8.0037, 8.0061, 1601), indexing="ij"
    )
    z = np.stack([x, y], axis=-1)
    mass = np.exp(law.log_density(z)) * (x[1, 0] - x[0, 0]) * (y[0, 1] - y[0, 0])
    assert mass.sum() == pytest.approx(1, abs=1e-2)
    assert ((x**2 + y**2) / 2 * mass).sum() == pytest.approx(law.variance, rel=1e-2)
    assert ((np.abs(x) + np.abs(y)) / 2 * mass).sum() == pytest.approx(law.absolute_error, rel=1e-2)
    width = law.errors().half_width
    assert (((np.abs(x) > width) * mass).sum() + ((np.abs(y) > width) * mass).sum()) / 2 == pytest.approx(
        0.05, abs=2e-3
    )
    draws = law.sample(40_000, rng=0)
    assert (draws**2).mean() == pytest.approx(law.variance, rel=0.05)


# The released law ----------------------------------------------------------------------------------------------


def levels(lattice: RadialLattice, points: np.ndarray) -> np.ndarray:
    """What the released density is the exponential of, by the norm in rational numbers."""
    ball, found = lattice.ball, []
    cap = None if ball.cap is None else Fraction(ball.cap)
    for point in points.tolist():
        z = [Fraction(x) for x in point]
        length = math.ceil(gauge(z, ball.norm, cap, ball.signed))
        if lattice.inner is None:
            found.append(-length / lattice.rate)
        else:
            steps = max(0, -(-(length - lattice.inner) // lattice.shift))
            found.append(-steps * lattice.shift / lattice.rate)
    return np.array(found)


LATTICES = [
    RadialLattice(ball, 1.0, shift, rate, inner, 0.0)
    for ball in (
        Ball(2, CROSS),
        Ball(2, CUBE),
        Ball(2, CUBE, 1.5),
        Ball(3, CUBE, 2.0),
        Ball(3, CUBE, 1.5),
        Ball(3, CUBE, signed=False),
        Ball(2, CUBE, signed=False),
    )
    for shift, rate, inner in ((2, 2, None), (4, 4, 2), (4, 7, 1), (2, 1, 0))
]


@pytest.mark.slow
@pytest.mark.parametrize("lattice", LATTICES, ids=str)
def test_the_law_of_the_steps(lattice: RadialLattice) -> None:
    size, reach = (40_000, 60) if lattice.ball.dimension == 2 else (120_000, 40)
    axis = np.arange(-reach, reach + 1)
    points = np.array(list(itertools.product(axis, repeat=lattice.ball.dimension)))
    near = np.abs(points).max(axis=1) <= 4
    lengths = lattice.ball.radius(points)
    logs = -lengths / lattice.rate
    if lattice.inner is not None:
        logs = -np.maximum(0, -(-(lengths - lattice.inner) // lattice.shift)) * lattice.shift / lattice.rate
    assert np.array_equal(logs[near], levels(lattice, points[near]))
    law = np.exp(logs)
    expected = law[near] / law.sum() * size
    place = {tuple(p): i for i, p in enumerate(points[near].tolist())}
    counts = np.zeros(len(expected) + 1)
    for row, times in zip(*np.unique(lattice.draw(size), axis=0, return_counts=True), strict=True):
        counts[place.get(tuple(row.tolist()), -1)] += times
    expected = np.append(expected, size - expected.sum())
    rare = np.append(expected[:-1] < 5, True)  # what is rare is counted with what lies outside
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    assert stats.chisquare(counts, expected).pvalue > ALARM


@pytest.mark.slow
@pytest.mark.parametrize(("dimension", "epsilon"), [(1, 2.0), (3, 4.0), (3, 0.5), (20, 5.0)])
@pytest.mark.parametrize("settled", [False, True])
def test_rounded_noise_of_a_round_ball(
    dimension: int, epsilon: float, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths by the masses of the balls, directions by their mean; where no double decides as well."""
    size = 20_000
    if settled:
        size = 150 if dimension > 3 else 1000
        monkeypatch.setattr(
            RoundedSum, "_doubles", lambda self, words, far: (np.zeros((len(words), dimension)), np.inf)
        )
    law = KNorm(dimension, md.PureDP(epsilon), S(l2=1.0)).solve().mechanism
    out = law.release(np.zeros((size, dimension)))
    if law.gamma is None:
        chances = stats.gamma(dimension, scale=law.scale).cdf(np.linalg.norm(out, axis=1))
    else:
        ends, masses = Shells(dimension, epsilon, 2).masses(law.gamma)
        chances = np.array(
            [masses @ np.minimum(1, (x / ends) ** dimension) for x in np.linalg.norm(out, axis=1)]
        )
    assert stats.kstest(chances, "uniform").pvalue > ALARM
    assert np.abs((out / np.linalg.norm(out, axis=1, keepdims=True)).mean(axis=0)).max() < 6 / math.sqrt(size)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rounded_neighbours_are_no_further_apart_than_said(seed: int) -> None:
    """Answers v apart, rounded, lie at most `shift` steps apart in the norm, and that loses no more than ε."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 7))
    each = rng.uniform(0.3, 1, d).round(3)
    bounds = [
        S(linf=0.7), S(linf=0.7, signed=False), S(linf=0.7, l0=2), S(l2=0.7), S(l1=0.7), S(each=each), S(each=each, l0=2),
        S(each=each, signed=False), S(linf=1.0, l1=1.7),
    ][int(rng.integers(9))]  # fmt: skip
    design = KNorm(d, md.PureDP(float(np.exp(rng.uniform(-2, 2.5)))), bounds)
    for law in design.laws():
        lattice = law.lattice
        assert Fraction(lattice.shift, lattice.rate) <= Fraction(design.privacy.epsilon)
        assert 0 <= lattice.cost < 1e-3
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
        rounded = [_steps(law, y) for y in (x, x + v)]
        apart = lattice.ball.gauge(rounded[1] - rounded[0])
        assert apart.max() <= lattice.shift * (1 + 1e-15)


def _steps(law: KNormNoise, x: np.ndarray) -> np.ndarray:
    """Answers in steps, as `release` rounds them."""
    from mechdesign.noise.release import noisy

    step = law.lattice.step * (1.0 if law.widths is None else np.array(law.widths))
    return np.rint(noisy(x, step, np.zeros(x.shape, dtype=np.int64)) / step).astype(np.int64)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_balls_hold_the_changes(seed: int) -> None:
    """Of every norm that is tried, for all bounds together: changes that fill them up, and random ones."""
    rng = random.Random(seed)
    d = rng.randint(2, 7)
    each = [rng.choice([0.0, 0.5, 1.0, rng.uniform(0.1, 3)]) for _ in range(d - 1)] + [1.0]
    more = {
        "l0": rng.randint(1, d),
        "l1": sum(each) * rng.uniform(0.2, 1),
        "l2": math.hypot(*each) * rng.uniform(0.3, 1),
    }
    kept = {name: bound for name, bound in more.items() if rng.random() < 0.5}
    most = {"each": each} if rng.random() < 0.7 else {"linf": 1.0}
    bounds = S(**most, **kept, signed=rng.random() < 0.6)
    laws = KNorm(d, md.PureDP(2.0), bounds).laws()
    assert len(laws) >= 3
    for v in changes(bounds, d, rng, 30):
        for law in laws:
            assert float(law.norm_of([float(x) for x in v])[()]) <= law.largest * (1 + 1e-12), law


def test_coordinates_that_do_not_change_are_returned_as_they_are() -> None:
    law = KNorm(3, md.PureDP(1.0), S(each=[1.0, 0.0, 2.0])).solve().mechanism
    x = np.array([[0.1, 0.7, 1e300], [3.0, -2.5, 0.0]])
    given = x.copy()
    out = law.release(x)
    assert np.array_equal(out[:, 1], x[:, 1]) and (out[:, 0] != x[:, 0]).all() and np.array_equal(x, given)
    assert (law.sample(5, rng=0)[:, 1] == 0).all()


# What pure privacy implies --------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-4, 30.0), st.floats(1e-12, 0.99))
def test_pure_privacy_implies_approximate_privacy(epsilon: float, delta: float) -> None:
    asked = md.ApproximateDP(epsilon, delta)
    x = pure_epsilon(asked)
    assert x >= epsilon and implied_by_pure(asked, Fraction(x))
    with mp.workdps(40):
        exact = mp.log((mp.exp(mp.mpf(epsilon)) + mp.mpf(delta)) / (1 - mp.mpf(delta)))
        assert exact * (1 - mp.mpf("1e-14")) <= x <= exact
    assert not implied_by_pure(asked, Fraction(x) * (1 + Fraction(1, 10**12)))


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-6, 50.0), st.floats(0, 2))
def test_pure_privacy_implies_concentrated_privacy(rho: float, xi: float) -> None:
    """Randomized response, which is further apart than any other laws of that loss, at orders from 1 to 10⁴."""
    asked = md.ZeroConcentratedDP(rho, xi)
    x = pure_epsilon(asked)
    assert implied_by_pure(asked, Fraction(x))
    with mp.workdps(40):
        for alpha in (mp.mpf("1.000001"), mp.mpf("1.1"), 2, 3, 10, 100, 10**4):
            apart = mp.log(mp.cosh((alpha - mp.mpf("0.5")) * x) / mp.cosh(mp.mpf(x) / 2)) / (alpha - 1)
            assert apart <= (mp.mpf(xi) + mp.mpf(rho) * alpha) * (1 + mp.mpf("1e-25"))
        if not xi:
            assert mp.mpf(x) * mp.tanh(mp.mpf(x) / 2) == pytest.approx(rho, rel=1e-12)


# In comparisons --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "epsilon", "most"),
    [
        (2, 1, 4.0),
        (5, 1, 14.0),
        (8, 1, 30.0),
        (10, 3, 4.89),
        (20, 1, 154),
        (20, 5, 6.16),
        (50, 1, 771.22),
        (70, 1, 1125.03),
        (100, 1, 1658.04),
        (200, 1, 3439.93),
    ],
)
def test_compare_reproduces_the_table(k: int, epsilon: float, most: float) -> None:
    found = md.compare(
        md.NumericQuery(k), md.ApproximateDP(epsilon, 1e-6), mechanisms=["k-norm"], progress=False
    )
    assert found.table["error"][0] <= most
    assert found.best.certificate.verify()


@pytest.mark.slow
def test_compare_says_what_noise_drawn_together_wins() -> None:
    found = md.compare(
        md.NumericQuery(8),
        md.ApproximateDP(1.0, 1e-6),
        mechanisms=["laplace", "gennorm", "k-norm"],
        progress=False,
    )
    assert "The best independent noise, gennorm, has 3.906 times the error of k-norm." in str(found)
    assert "The best independent noise" in found.to_html()
    bound = found.bounds["symmetric log-concave noise"]
    assert f"lower bound of symmetric log-concave noise: {bound:.5g}" in str(found)
    ball = md.NumericQuery(4, S(l2=1.0))
    alone = md.compare(ball, md.PureDP(4.0), mechanisms=["laplace", "k-norm"], progress=False)
    assert alone.least == alone[
        "k-norm"
    ].lower_bound and "no additive noise for a real-valued query does better" in str(alone)
    with pytest.raises(md.InfeasibleError, match="staircase"):
        md.compare(md.NumericQuery(), md.PureDP(1.0), mechanisms=["k-norm"], progress=False)
    many = md.compare(
        md.NumericQuery(100), md.ApproximateDP(0.1, 0.01), mechanisms=["gaussian", "k-norm"], progress=False
    )
    assert many.best is many["gaussian"] and "The best independent" not in str(many)


def test_classes_of_bounds() -> None:
    def said(*asked: object, **more: object) -> str:
        return KNorm(*asked, **more).among.scope.value  # type: ignore[arg-type]

    pure = md.PureDP(1.0)
    assert (
        said(3, pure, S(l2=1.0))
        == said(3, pure, S(l1=2.0), loss="absolute")
        == said(3, pure, S(l1=2.0, signed=False), loss="absolute")
        == said(1, pure)
        == "every mechanism"
    )
    for other in (
        said(3, pure), said(3, pure, S(l2=1.0), loss="absolute"), said(3, pure, S(l2=1.0), rounds=2),
        said(3, pure, S(l2=1.0), norm=1), said(3, pure, S(l2=1.0, signed=False)), said(3, md.ApproximateDP(1, 1e-6), S(l2=1.0)), said(3, pure, S(l2=1.0, linf=0.9)),
    ):  # fmt: skip
        assert other == "this menu"
    # of two numbers that rise or fall together within a disc the hull, two quarters of it and two triangles, costs 13% less
    hull = (math.pi / 4 + 1 / 3) / (math.pi / 2 + 1) / 2 * 12
    assert hull < 0.88 * KNorm(2, pure, S(l2=1.0, signed=False)).solve().lower_bound
    ball = KNorm(3, pure, S(l2=1.0)).solve()
    assert ball.status == "optimal" and ball.mechanism.deployable
    assert ball.value < 4.0 * (1 - 1e-5)  # (d + 1)Δ²/ε² of the exponential
    disc = KNorm(2, md.PureDP(5.0), S(l2=1.0)).solve()
    assert 2 * disc.value == pytest.approx(0.14088265, abs=5e-9)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_no_noise_is_below_a_bound_of_every_additive_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, epsilon = int(rng.integers(2, 9)), float(np.exp(rng.uniform(-1, 2.5)))
    loss, bounds = [("squared", S(l2=1.3)), ("absolute", S(l1=0.7))][int(rng.integers(2))]
    names = ["laplace", "gennorm", "staircase", "logistic", "k-norm"]
    query = md.NumericQuery(k, bounds, loss=loss)
    found = md.compare(query, md.PureDP(epsilon), mechanisms=names, progress=False)
    assert found.least is not None and (found.table["error"].dropna() >= found.least).all()
    assert found.least == found["k-norm"].lower_bound


def by_distances(d: int, t: float, epsilon: float) -> mp.mpf:
    """P(L > ε) − e^ε P'(L > ε) of ℓ₂ noise of scale 1, from the distance r to a centre and the angle: the distance to the other is r + ε there."""
    d, t, epsilon = mp.mpf(d), mp.mpf(t), mp.mpf(epsilon)

    def share(c: mp.mpf) -> mp.mpf:  # of directions whose cosine with the change is at most c
        part = mp.betainc((d - 1) / 2, 0.5, 0, 1 - c * c, regularized=True) / 2
        return mp.mpf(c > 1) if abs(c) >= 1 else part if c < 0 else 1 - part

    def near(r: mp.mpf) -> mp.mpf:
        return r ** (d - 1) * mp.exp(-r) * share((t * t - 2 * epsilon * r - epsilon**2) / (2 * r * t))

    def far(r: mp.mpf) -> mp.mpf:
        return r ** (d - 1) * mp.exp(-r) * share((epsilon**2 - 2 * epsilon * r - t * t) / (2 * r * t))

    bend, end = (t - epsilon) / 2, d + 40 * mp.sqrt(d) + 80
    places = [d / 2, d - mp.sqrt(d), d, d + mp.sqrt(d), d + 5 * mp.sqrt(d)]
    first = mp.quad(near, sorted([mp.mpf(0), bend, *(p for p in places if p > 0), end]))
    second = mp.quad(far, sorted([epsilon + bend, *(p for p in places if p > epsilon + bend), end]))
    return (first - mp.exp(epsilon) * second) / mp.gamma(d)


@pytest.mark.parametrize(
    ("d", "t", "epsilon"),
    [(2, 2.0, 1.0), (3, 2.5, 0.5), (4, 9.0, 4.0), (7, 1.01, 1.0), (51, 1.8, 1.0)],
)
def test_delta_of_round_noise_by_distances(d: int, t: float, epsilon: float) -> None:
    found = round_delta(d, Fraction(t), epsilon)
    assert found.rad() < 1e-12 * found.mid()
    assert float(found) == pytest.approx(float(by_distances(d, t, epsilon)), rel=1e-9)


def test_delta_of_round_noise_grows_with_the_change_and_falls_with_epsilon() -> None:
    for d in (2, 5, 40, 2000):
        deltas = [round_delta(d, Fraction(t), 1.0) for t in (0.5, 1.0, 1.0 + 1e-9, 1.5, 3.0, 40.0)]
        assert deltas[0] == deltas[1] == 0 and all(a < b for a, b in itertools.pairwise(deltas[1:]))
        assert round_delta(d, Fraction(3), 1.1) < round_delta(d, Fraction(3), 1.0)
    assert round_delta(3, Fraction(10**300), 1.0).contains(1)


@pytest.mark.parametrize(("k", "t", "norm", "epsilon"), [(3, 2.0, ROUND, 0.7), (12, 2.5, ROUND, 0.7)])
def test_delta_of_round_noise_by_draws(k: int, t: float, norm: float, epsilon: float) -> None:
    """Of every change of the cube, vertices lose most; Hoeffding's bound at one false alarm in 10⁸."""
    law, rng = KNormNoise(k, 1.0, norm), np.random.default_rng(5)
    draws, room = law.sample(400_000, rng), math.sqrt(math.log(2 / ALARM) / 2 / 400_000)
    vertex, exact = np.full(k, t / math.sqrt(k)), float(round_delta(k, Fraction(t), epsilon))
    for change in (vertex, vertex * rng.choice([-1, 1], k), vertex * rng.uniform(-1, 1, k)):
        lost = law.norm_of(draws + change) - law.norm_of(draws)
        seen = np.maximum(1 - np.exp(epsilon - lost), 0).mean()
        assert seen <= exact + room
        if np.abs(change).min() == vertex[0]:
            assert seen >= exact - room


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize(
    ("k", "epsilon", "delta", "changes"),
    [
        (60, 1.0, 1e-6, S(linf=1)),
        (30, 1.0, 1e-6, S(l2=2)),
        (100, 3.0, 1e-9, S(linf=1, l0=60)),
        (4, 0.1, 0.1, S(l2=1)),
    ],
)
def test_round_noise_keeps_its_delta_and_no_smaller_scale_does(
    k: int, epsilon: float, delta: float, changes: md.Sensitivity, loss: str
) -> None:
    design = KNorm(k, md.ApproximateDP(epsilon, delta), changes, loss=loss)
    result = design.solve()
    law = result.mechanism
    assert (law.norm, law.gamma, result.status) == (ROUND, None, "best of its class")
    change = Fraction(design.largest(ROUND)) / Fraction(law.scale)
    assert round_delta(k, change, epsilon) <= delta < round_delta(k, change * Fraction(1 + 1e-11), epsilon)
    gaussian = md.calibrate("gaussian", privacy=design.privacy, sensitivity=changes, dimension=k, loss=loss)
    assert (result.value < gaussian.value) == (delta < 0.01)  # at a large δ the Gaussian costs less
    assert result.certificate.verify() and float(result.audit()["slack"][0]) >= 0
    narrow = replace(result, mechanism=replace(law, scale=law.scale * (1 - 1e-10)))
    assert not narrow.certificate.verify()
    assert not replace(
        result, lower_bound=result.value * (1 + 1e-6), value=result.value * 1.1
    ).certificate.verify()
    lattice = law.lattice  # the rounded answers are no further apart, in scales, than the answers
    assert Fraction(lattice.shift, lattice.rate) <= change and np.isfinite(law.release(np.zeros(k))).all()


@pytest.mark.parametrize(
    "design",
    [
        KNorm(2001, md.ApproximateDP(1.0, 1e-6)),
        KNorm(60, md.ApproximateDP(1.0, 1e-6), norm=math.inf),
        KNorm(60, md.ZeroConcentratedDP(0.1)),
        KNorm(1, md.ApproximateDP(1.0, 1e-6)),
    ],
)
def test_where_delta_is_not_counted_losses_are(design: KNorm) -> None:
    law = design.solve().mechanism
    loss = Fraction(law.largest) * design.rounds / Fraction(law.scale)
    assert not design.counts_delta and implied_by_pure(design.privacy, loss)


@pytest.mark.parametrize(
    ("k", "epsilon", "delta", "rounds", "same"),
    [
        (50, 1.0, 0.51, 1, (1.0, 0.5)),
        (8, 1.0, 0.999, 1, (1.0, 0.5)),
        (200, 65.0, 1e-6, 1, (64.0, 1e-6)),
        (60, 1.0, 1e-6, 2, (0.5, 5e-7)),
        (60, 128.0, 0.8, 4, (16.0, 0.125)),
        (2, 1.0, 1e-300, 3, (1.0 / 3, 1e-300 / 3)),
    ],
)
def test_delta_is_counted_within_less(
    k: int, epsilon: float, delta: float, rounds: int, same: tuple[float, float]
) -> None:
    """Beyond ε = 64 and δ = ½ and for several rounds losses alone were: 19 times the variance at (50, 1, .51)."""
    result = KNorm(k, md.ApproximateDP(epsilon, delta), rounds=rounds).solve()
    law, known = result.mechanism, KNorm(k, md.ApproximateDP(*same)).solve()
    assert result.value <= known.value * (1 + 1e-9) and result.certificate.verify()
    assert verifies(result) and result.gap < 1e-9
    pure = Fraction(law.largest) * rounds / Fraction(law.scale)
    if not implied_by_pure(result.design.privacy, pure):
        own = round_delta(k, Fraction(law.largest) / Fraction(law.scale), epsilon / rounds)
        assert float(own) * rounds <= delta
        narrow = replace(result, mechanism=replace(law, scale=law.scale * (1 - 1e-10)))
        assert not narrow.certificate.verify() and not verifies(narrow)


def test_more_privacy_budget_never_costs_more() -> None:
    found = [KNorm(50, md.ApproximateDP(1.0, d)).solve().value for d in (0.4, 0.5, 0.51, 0.9)]
    assert found == sorted(found, reverse=True)
    high = [KNorm(300, md.ApproximateDP(e, 1e-6)).solve().value for e in (60.0, 64.0, 65.0, 400.0)]
    assert high == sorted(high, reverse=True)


def test_where_no_delta_is_counted_the_result_says_so() -> None:
    result = KNorm(2001, md.ApproximateDP(1.0, 1e-6)).solve()
    assert "Gaussian noise may cost less" in " ".join(result.notes)


def test_a_loss_is_no_larger_than_the_budget() -> None:
    for epsilon in (1.0, 0.1, 3.0, 1 / 3):
        law = KNorm(2, md.PureDP(epsilon)).solve().mechanism
        assert law.loss(law.largest) <= epsilon and law.loss(law.largest) > epsilon * (1 - 1e-15)
    assert law.loss(0.0) == 0


def test_caps_are_rounded_up() -> None:
    assert [short(Fraction(x)) for x in ("5", "7/3", "4097/2")] == [5.0, 2.333984375, 2049.0]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (
            lambda: KNorm(2, md.PureDP(1.0), [[1.0, 1.0], [1.0, 0.0]], norm=2),
            "norm = 2.0: is that of the hull",
        ),
        (lambda: KNormNoise(3, 1.0, math.inf, 1.0, cap=3.5), "cap"),
        (lambda: KNormNoise(3, 1.0, 1, 1.0, cap=2.0), "cap"),
        (lambda: KNormNoise(3, 1.0, math.inf, 1.0, cap=2.00001), "cap"),
        (lambda: KNormNoise(900, 1.0, math.inf, 1.0, cap=2.0), "cap"),
        (lambda: KNormNoise(3, 1.0, 1, 1.0, signed=False), "signed"),
        (lambda: KNormNoise(3, 1.0, math.inf, 1.0, gamma=1.5), "gamma"),
        (lambda: KNormNoise(3, 1.0, math.inf, 1.0, gamma=0.4), "20 bits"),
        (lambda: KNormNoise(3, 1.0, math.inf, gamma=0.5), "largest"),
        (lambda: KNormNoise(3, 1e9, math.inf, 1.0, gamma=0.5), "gamma"),
        (lambda: KNormNoise(3, 1.0, math.inf, widths=(1.0, 2.0)), "widths"),
        (lambda: KNormNoise(2, 1.0, math.inf, widths=(0.0, 0.0)), "widths"),
        (lambda: KNormNoise(2, 1.0, math.inf, 1.0, widths=(1.0, 1e-300)).lattice, "widths"),
        (lambda: KNormNoise(300, 1.0, math.inf, 1.0, cap=110.0).release(np.zeros(300)), "norm=inf"),
    ],
)
def test_what_is_refused(make: object, word: str) -> None:
    with pytest.raises(md.DesignError, match=word):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(("dimension", "epsilon"), [(100, 746.0), (50, 1e4), (20, 800.0)])
def test_levels_that_no_double_resolves_are_not_taken(dimension: int, epsilon: float) -> None:
    """Their sums were 0 and divided by; nor does a sum of 0 prove a bound."""
    result = md.noise.KNorm(dimension, md.PureDP(epsilon)).solve()
    assert 0 < result.value < 1e-5 and result.lower_bound == 0.0 and result.certificate.verify()
    with pytest.raises(md.DesignError, match="gamma"):
        replace(result.mechanism, dimension=10_000, gamma=2.0**-24)


# The hull of a list of changes ----------------------------------------------------------------------------------


def solved(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """n with n·v = 1 for every row v, by Cramer's rule."""

    def det(m: list[list[Fraction]]) -> Fraction:
        if not m:
            return Fraction(1)
        minors = ([row[:j] + row[j + 1 :] for row in m[1:]] for j in range(len(m)))
        return sum(((-1) ** j * m[0][j] * det(minor) for j, minor in enumerate(minors)), Fraction(0))

    whole = det(rows)
    if not whole:
        return None
    one = Fraction(1)
    return [det([row[:j] + [one] + row[j + 1 :] for row in rows]) / whole for j in range(len(rows))]


def faces_of(vectors: list[list[Fraction]]) -> set[tuple[Fraction, ...]]:
    """Both normals of all faces of a hull: planes through d vectors or negatives that have the others on one side."""
    found = set()
    for subset in itertools.combinations(vectors, len(vectors[0])):
        for signs in itertools.product((1, -1), repeat=len(subset)):
            n = solved([[s * x for x in v] for s, v in zip(signs, subset)])
            if n and all(abs(sum(a * x for a, x in zip(n, v))) <= 1 for v in vectors):
                found.add(tuple(n))
    return found


def gauge_of(faces: set[tuple[Fraction, ...]], z: list[Fraction]) -> Fraction:
    return max(sum(a * x for a, x in zip(n, z)) for n in faces)


def lists(dimension: int, most: int = 6) -> st.SearchStrategy[list[list[int]]]:
    row = st.lists(st.integers(-4, 4), min_size=dimension, max_size=dimension)
    return st.lists(row, min_size=dimension, max_size=most).filter(
        lambda v: np.linalg.matrix_rank(np.array(v)) == dimension
    )


@settings(deadline=None, max_examples=60)
@given(st.one_of(lists(2, 8), lists(3), lists(4, 5)))
def test_faces_of_a_hull_are_those_of_brute_force(vectors: list[list[int]]) -> None:
    """Degenerate lists too: repeated, parallel, inner vectors, faces of many vertices. Each is met from both sides of a ridge."""
    hull, faces = hull_of(np.array(vectors) / 4), faces_of([[Fraction(x, 4) for x in v] for v in vectors])
    met = {tuple(Fraction(s * a, m) for a in n) for *n, m in hull.rows for s in (1, -1)}
    assert met == faces
    assert hull.sound and hull.over == 0
    assert not replace(hull, simplices=hull.simplices[1:]).sound
    point = np.random.default_rng(0).normal(size=len(vectors[0]))
    assert hull.gauge(point[None])[0] == pytest.approx(
        float(gauge_of(faces, [Fraction(x) for x in point.tolist()])), rel=1e-12
    )


@settings(deadline=None, max_examples=25)
@given(lists(2, 8))
def test_moments_of_a_hull_in_the_plane(vectors: list[list[int]]) -> None:
    """In polar coordinates: area, E|u_j|, E u_j², a piece at a time."""
    hull = hull_of(np.array(vectors) / 4)
    faces = np.array(
        [[float(a) for a in n] for n in faces_of([[Fraction(x, 4) for x in v] for v in vectors])]
    )
    angles = np.arctan2(*np.array(vectors).T[::-1])
    cuts = np.unique(np.concatenate([angles % math.pi, [0, math.pi / 2, math.pi]]))

    def integral(power: int, j: int) -> float:
        total = 0.0
        for low, high in itertools.pairwise(cuts):
            nodes, weights = np.polynomial.legendre.leggauss(60)
            turn = low + (high - low) * (nodes + 1) / 2
            along = np.stack([np.cos(turn), np.sin(turn)])
            radius = 1 / (faces @ along).max(axis=0)
            total += (
                weights @ (np.abs(along[j]) ** power * radius ** (power + 2)) * (high - low) / (power + 2)
            )
        return float(total)

    area = integral(0, 0)
    assert hull.volume == pytest.approx(area, rel=1e-9)
    for power in (1, 2):
        expected = [integral(power, j) / area for j in (0, 1)]
        assert (hull.first, hull.second)[power - 1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [3, 4, 9])
def test_moments_of_a_hull_in_space(count: int) -> None:
    """Of radii in all directions, and of points that are drawn."""
    vectors = np.random.default_rng(count).integers(-8, 9, (count, 3)) / 8
    hull, faces = hull_of(vectors), faces_of([[Fraction(x) for x in v] for v in vectors.tolist()])
    height, turn = np.meshgrid((np.arange(400) + 0.5) / 200 - 1, (np.arange(800) + 0.5) * math.pi / 400)
    flat = np.sqrt(1 - height**2)
    along = np.stack([flat * np.cos(turn), flat * np.sin(turn), height]).reshape(3, -1)
    radius = 1 / (np.array(list(faces), dtype=float) @ along).max(axis=0)
    volume = (radius**3).mean() / 3
    assert hull.volume == pytest.approx(4 * math.pi * volume, rel=1e-3)
    points = hull.points(100_000, np.random.default_rng(0))
    for power in (1, 2):
        expected = [(np.abs(x) ** power * radius ** (3 + power)).mean() / (3 + power) / volume for x in along]
        assert (hull.first, hull.second)[power - 1] == pytest.approx(expected, rel=2e-3)
        spread = (np.abs(points) ** power).std(axis=0) / math.sqrt(len(points))
        assert (
            (np.abs(points) ** power).mean(axis=0) - (hull.first, hull.second)[power - 1] < 6 * spread
        ).all()
    assert stats.kstest(hull.gauge(points) ** 3, "uniform").pvalue > ALARM


@settings(deadline=None, max_examples=25)
@given(st.one_of(lists(2, 8), lists(3)), st.floats(0.3, 8), st.integers(0, 2**32))
def test_listed_changes_are_private(vectors: list[list[int]], epsilon: float, seed: int) -> None:
    """No change has a larger norm, in fractions; densities fall by the levels of the norm that brute force finds, and by ε at most."""
    law = KNorm(len(vectors[0]), md.PureDP(epsilon), vectors).solve().mechanism
    assert law.vertices is not None and law.widths is not None and law.largest is not None
    widths = [Fraction(w) for w in law.widths]
    faces = faces_of([[Fraction(x) for x in v] for v in law.vertices])
    for v in vectors:
        assert gauge_of(faces, [Fraction(x) / w for x, w in zip(v, widths)]) <= Fraction(law.largest)
    assert Fraction(law.largest) / Fraction(law.scale) <= Fraction(epsilon)
    points = np.random.default_rng(seed).normal(size=(50, len(widths))) * 3 * np.array(law.widths)
    norms = [float(gauge_of(faces, [Fraction(x) / w for x, w in zip(p, widths)])) for p in points.tolist()]
    top = law.log_density(np.zeros(len(widths)))
    fall = np.array(norms) / law.scale
    if law.gamma is not None:
        fall = np.maximum(np.ceil(np.array(norms) / law.largest - law.gamma), 0) * law.largest / law.scale
    assert law.log_density(points) == pytest.approx(top - fall, rel=1e-9)
    for v in vectors:
        assert (np.abs(law.log_density(points + v) - law.log_density(points)) <= epsilon + 1e-9).all()


def test_what_doubles_do_not_decide_is_decided_exactly() -> None:
    vectors = [[1.0, 0.3, 0.1], [0.2, 1.0, -0.7], [0.5, -0.9, 1.0], [1.0, 1.0, 0.9]]
    hull, faces = hull_of(np.array(vectors)), faces_of([[Fraction(x) for x in v] for v in vectors])
    z = np.random.default_rng(0).integers(-(2**50), 2**50, (200, 3))
    exact = [gauge_of(faces, [Fraction(x) for x in row]) for row in z.tolist()]
    above, below = (np.array([f(x) for x in exact]) for f in (math.ceil, math.floor))
    assert hull.within(z, above).all() and not hull.within(z, below).any()
    assert hull.within(np.zeros((1, 3), dtype=int), np.zeros(1, dtype=int)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "rate", "inner"), [(2, 2, None), (4, 7, 1), (2, 1, 0)])
@pytest.mark.parametrize("vectors", [[[1, 1], [1, 0], [0, 1]], [[4, 1], [-1, 3], [2, 4], [3, -3]]])
def test_the_law_of_the_steps_of_a_hull(
    vectors: list[list[int]], shift: int, rate: int, inner: int | None
) -> None:
    faces = faces_of([[Fraction(x, 4) for x in v] for v in vectors])
    points = np.array(list(itertools.product(range(-60, 61), repeat=2)))
    lengths = np.array([math.ceil(gauge_of(faces, [Fraction(x) for x in p])) for p in points.tolist()])
    logs = -lengths / rate if inner is None else -np.maximum(0, -(-(lengths - inner) // shift)) * shift / rate
    near = np.abs(points).max(axis=1) <= 3
    law = np.exp(logs) / np.exp(logs).sum()
    lattice = RadialLattice(Ball(2, CUBE, hull=hull_of(np.array(vectors) / 4)), 1.0, shift, rate, inner, 0.0)
    draws = [tuple(p) for p in lattice.draw(40_000).tolist()]
    expected = np.append(law[near], 1 - law[near].sum()) * len(draws)
    counts = [draws.count(tuple(p)) for p in points[near].tolist()]
    assert stats.chisquare([*counts, len(draws) - sum(counts)], expected).pvalue > ALARM


@pytest.mark.slow
def test_a_list_costs_no_more_than_what_bounds_of_it_do() -> None:
    """And a list of the corners of the cube as much as the cube."""
    corners = list(itertools.product((1, -1), repeat=3))
    cube = KNorm(3, md.PureDP(2.0), norm=math.inf).solve()
    assert KNorm(3, md.PureDP(2.0), corners).solve().value == pytest.approx(cube.value, rel=1e-12)
    query = md.NumericQuery(2, [[1, 1], [1, 0], [0, 1]])
    found = md.compare(query, md.PureDP(1.0))
    assert found.best is found.results["k-norm"] and found.least is None and not found.bounds
    for epsilon, delta in ((1.0, 0), (2.0, 1e-6), (0.3, 1e-3)):
        privacy = md.ApproximateDP(epsilon, delta) if delta else md.PureDP(epsilon)
        best = KNorm(2, privacy, query.sensitivity).solve()
        assert best.value < KNorm(2, privacy).solve().value
        assert md.accuracy("k-norm", query, privacy).standard_deviation ** 2 == pytest.approx(best.value)
        least = md.least_epsilon("k-norm", query, error=math.sqrt(best.value), delta=delta)
        assert least == pytest.approx(epsilon, rel=1e-3)
        with pytest.raises(md.DesignError, match="does not cover"):
            md.accuracy(best, md.NumericQuery(2, [[1, 1], [1, 0], [0, 1], [1, -1]]))


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ([[1, 1, 0], [1, 0, 1]], "spans 2 of the 3 dimensions"),
        (np.eye(13), "2 to 12 numbers change"),
        ([[1.0], [2.0]], "2 to 12 numbers change"),
        ([[1, 1], [1, 0.9999999]], "fills 5e-08 of the box"),
        (np.random.default_rng(0).normal(size=(60, 9)), "more than 10000 pairs of faces"),
        (np.random.default_rng(0).normal(size=(30, 8)), "times the work that a check may"),
        ([[1, math.nan], [0, 1]], "sensitivity"),
    ],
)
def test_lists_that_have_no_noise_of_their_hull(vectors: object, said: str) -> None:
    with pytest.raises(md.DesignError, match=said):
        KNorm(np.shape(vectors)[1], md.PureDP(1.0), vectors).solve()


def test_a_law_takes_only_all_faces_of_its_hull() -> None:
    law = KNormNoise(2, 1.0, math.inf, vertices=[[1, 0], [0, 1], [1, 1]], largest=1.0)
    assert law.vertices == ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0)) and law.simplices == ((1, -2), (1, 3), (2, 3))
    for bad in (
        {"simplices": law.simplices[1:]},
        {"simplices": ((1, 2), *law.simplices[1:])},
        {"simplices": ((1, 9),)},
        {"vertices": ((2.0, 0.0), (0.0, 1.0), (1.0, 1.0))},
        {"vertices": None},
        {"norm": 1.0},
        {"cap": 1.5},
        {"signed": False},
    ):
        with pytest.raises(md.DesignError):
            replace(law, **bad)
    assert law.release([0.0, 5.0]).shape == (2,)
    with pytest.raises(md.DesignError, match="norm"):
        KNorm(2, md.PureDP(1.0), [[1, 0], [0, 1]], norm=1)
