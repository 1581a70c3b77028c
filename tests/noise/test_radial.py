"""Radial noise: the sheet's tables, privacy by sums of its own, the released law counted out, moments by points of a lattice."""

import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from campaign import files
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise import balls, radial
from mechdesign.noise.balls import GRAIN, Ball, CappedCube, Hull, Planes, hull_of
from mechdesign.noise.knorm import KNorm
from mechdesign.noise.knorm_noise import KNormNoise
from mechdesign.noise.radial import RadialLattice, Shells, round_delta
from mechdesign.noise.release import RoundedSum, noisy
from mechdesign.problem.privacy import implied_by_pure, pure_epsilon
from mechdesign.verifier.verify import verify
from tests.campaign.noise_oracles import k_norm_gauge

S = md.Sensitivity
CUBE, CROSS, ROUND = math.inf, 1.0, 2.0


def verifies(result: object) -> bool:
    """Whether the stand-alone checker accepts the file."""
    return all(holds for *_, holds in verify(dumps(result)).rows)


def lerch(dimension: int, epsilon: float, gamma: float, power: int) -> mp.mpf:
    """S_{d+p}/S_d by the Lerch transcendent's series, in 40 digits."""
    with mp.workdps(40):
        q, g = mp.exp(-mp.mpf(epsilon)), mp.mpf(gamma)
        sums = [
            mp.nsum(lambda j, n=n: q**j * (j + g) ** n, [0, mp.inf]) for n in (dimension + power, dimension)
        ]
        return sums[0] / sums[1]


GAINS = [
    (2, 3, 1.1687), (2, 5, 1.7035), (2, 10, 7.5845), (3, 8, 2.5359), (5, 5, 1.1323), (5, 20, 15.327),
    (10, 20, 3.6931), (8, 1, 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("dimension", "epsilon", "gain"), GAINS)
def test_gains_of_the_staircase_are_those_of_the_sheet(dimension: int, epsilon: float, gain: float) -> None:
    shells = Shells(dimension, epsilon, 2)
    moment = shells.moment(shells.gamma)
    assert float(f"{shells.exponential / moment:.5g}") == pytest.approx(gain, rel=3e-5)
    assert moment <= shells.exponential
    assert moment == pytest.approx(float(lerch(dimension, epsilon, shells.gamma, 2)), rel=1e-12)


def test_staircases_of_the_cross_polytope() -> None:
    """E‖T‖₁ of two numbers, Table II of the allocation paper; every additive noise of this sensitivity costs as much."""
    errors = [
        2 * KNorm(2, md.PureDP(e), S(l1=1.0), loss="absolute").solve().value for e in (0.5, 1, 1.5, 2, 2.5, 3)
    ]
    np.testing.assert_allclose(errors, [3.9962, 1.9862, 1.3050, 0.9546, 0.7366, 0.5856], atol=1e-4)


BALLS = [
    Ball(3, CROSS),
    Ball(3, ROUND),
    Ball(3, CUBE),
    CappedCube(3, cap=1.5),
    CappedCube(3, cap=2.0),
    Ball(3, CUBE, signed=False),
]


@pytest.mark.parametrize(("cap", "variance"), [(5, 46.12), (8, 97.60), (9, 114.68), (10, 130.14)])
def test_variances_of_hulls_are_those_of_the_sheet(cap: int, variance: float) -> None:
    result = KNorm(20, md.PureDP(1.0), S(linf=1, l0=cap)).solve()
    assert result.mechanism.cap == cap
    assert result.value == pytest.approx(variance, abs=0.006)


# Privacy by sums of their own -----------------------------------------------------------------------------------


LISTED = hull_of(np.array([[1, 0.75], [-0.5, 1], [0.75, -0.25]]))
FLAT = [replace(b, dimension=2) for b in BALLS if getattr(b, "cap", 0) != 2]


@pytest.mark.parametrize("ball", [*FLAT, LISTED], ids=str)
@pytest.mark.parametrize("gamma", [None, 0.375])
def test_densities_integrate_to_one_and_have_the_stated_moments(ball: Ball, gamma: float | None) -> None:
    cap, vertices = getattr(ball, "cap", None), getattr(ball, "vertices", None)
    law = KNormNoise(2, 0.8, ball.norm, 1.5, gamma, cap, ball.signed, (1.0, 0.5), vertices)
    x, y = np.meshgrid(np.linspace(-15.0071, 15.0123, 751), np.linspace(-8.0037, 8.0061, 801), indexing="ij")
    z = np.stack([x, y], axis=-1)
    mass = np.exp(law.log_density(z)) * (x[1, 0] - x[0, 0]) * (y[0, 1] - y[0, 0])
    assert mass.sum() == pytest.approx(1, abs=1e-2)
    assert ((x**2 + y**2) / 2 * mass).sum() == pytest.approx(law.variance, rel=1e-2)
    assert ((np.abs(x) + np.abs(y)) / 2 * mass).sum() == pytest.approx(law.absolute_error, rel=1e-2)
    width = law.errors().half_width
    assert (((np.abs(x) > width) * mass).sum() + ((np.abs(y) > width) * mass).sum()) / 2 == pytest.approx(
        0.05, abs=2e-3
    )
    draws = law.sample(np.zeros((40_000, 2)), rng=0)
    assert (draws**2).mean() == pytest.approx(law.variance, rel=0.05)


# What pure privacy implies --------------------------------------------------------------------------------------


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


# Under approximate privacy --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "epsilon", "most"),
    [
        (2, 1, 4.0), (8, 1, 30.0), (10, 3, 4.89), (20, 1, 154), (20, 5, 6.16), (50, 1, 771.22), (200, 1, 3439.93),
    ],
)  # fmt: skip
def test_the_table_of_small_delta(k: int, epsilon: float, most: float) -> None:
    """Pure noise up to 20 numbers, noise of ℓ₂ by its own δ from there on."""
    result = KNorm(k, md.ApproximateDP(epsilon, 1e-6)).solve()
    assert result.value <= most and result.certificate.verify()


def test_classes_of_bounds() -> None:
    def said(*asked: object, **more: object) -> str:
        return KNorm(*asked, **more).mechanism_class.scope.value  # type: ignore[arg-type]

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
    [(2, 2.0, 1.0), *(pytest.param(*far, marks=pytest.mark.slow) for far in ((4, 9.0, 4.0), (51, 1.8, 1.0)))],
)
def test_delta_of_round_noise_by_distances(d: int, t: float, epsilon: float) -> None:
    found = round_delta(d, Fraction(t), epsilon)
    assert found.rad() < 1e-12 * found.mid()
    assert float(found) == pytest.approx(float(by_distances(d, t, epsilon)), rel=1e-9)


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
    lattice = law.lattice  # the rounded answers are no further apart, in scales, than the answers
    assert Fraction(lattice.shift, lattice.rate) <= change and np.isfinite(law.release(np.zeros(k))).all()


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
    """Beyond ε = 64 and δ = ½, and for several rounds."""
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


# -- Norms in rational numbers, and the faces of hulls by brute force ----------------------------------------

ALARM = 1e-8
"""Of tests that are not seeded, by design: one false alarm in 10⁸ runs."""


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


# -- Noise of the hull of a list of changes: faces by brute force, moments in all directions, privacy in fractions


def lists(dimension: int, most: int = 6) -> st.SearchStrategy[list[list[int]]]:
    row = st.lists(st.integers(-4, 4), min_size=dimension, max_size=dimension)
    return st.lists(row, min_size=dimension, max_size=most).filter(
        lambda v: np.linalg.matrix_rank(np.array(v)) == dimension
    )


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


# -- Radial noise as it is released: laws counted out point by point, rounded neighbours, answers that do not change

HULLS = [[[1, 1], [1, 0], [0, 1]], [[4, 1], [-1, 3], [2, 4], [3, -3]]]
RELEASED = [
    *(Ball(d, norm) for norm in (CROSS, CUBE) for d in (2, 3)),
    CappedCube(2, cap=1.5),
    CappedCube(3, cap=2.0),
    Ball(2, CUBE, signed=False),
    Ball(3, CUBE, signed=False),
    *(hull_of(np.array(vectors) / 4) for vectors in HULLS),
]


def levels(
    lattice: RadialLattice, points: list[tuple[int, ...]], vectors: list[list[int]] | None
) -> np.ndarray:
    """What the released density is the exponential of, by the norm in rational numbers."""
    ball, faces = lattice.ball, None
    if vectors is not None:
        faces = faces_of([[Fraction(x, 4) for x in v] for v in vectors])
    body = SimpleNamespace(widths=None, signed=ball.signed, norm=ball.norm, cap=getattr(ball, "cap", None))
    found = []
    for point in points:
        z = [Fraction(x) for x in point]
        length = math.ceil(gauge_of(faces, z) if faces else k_norm_gauge(body, z))
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
@pytest.mark.parametrize("ball", range(len(RELEASED)))
def test_the_law_of_the_steps(ball: int, shift: int, rate: int, inner: int | None) -> None:
    lattice = RadialLattice(RELEASED[ball], 1.0, shift, rate, inner, 0.0)
    vectors = HULLS[ball - len(RELEASED)] if isinstance(RELEASED[ball], Hull) else None
    assert counted_out(lattice, 20_000, vectors) > ALARM


def test_coins_settled_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every coin by its fraction: the same law; and a test that sees another one."""
    lattice = RadialLattice(Ball(2, CUBE), 1.0, 1, 1, None, 0.0)
    monkeypatch.setattr(radial, "_DOUBT", 1.0)
    assert counted_out(lattice, 5000) > ALARM
    monkeypatch.setattr(
        radial.sampling, "bernoulli", lambda near, error, exact: np.ones(near.shape, dtype=bool)
    )
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
    directions = out / np.maximum(lengths, 1e-300)[:, None]  # a draw may be rounded to 0
    assert np.abs(directions.mean(axis=0)).max() < 6 / math.sqrt(size)


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


def test_coordinates_that_do_not_change_are_returned_as_they_are() -> None:
    law = KNorm(3, md.PureDP(1.0), S(each=[1.0, 0.0, 2.0])).solve().mechanism
    x = np.array([[0.1, 0.7, 1e300], [3.0, -2.5, 0.0]])
    given = x.copy()
    out = law.release(x)
    assert np.array_equal(out[:, 1], x[:, 1]) and (out[:, 0] != x[:, 0]).all() and np.array_equal(x, given)
    assert (law.sample(x, rng=0)[:, 1] == x[:, 1]).all()


# -- Planes around a hull of too many faces: no change outside in fractions, moments, the released law counted out, doctored files


P = md.PureDP(1.0)


@pytest.fixture
def planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hulls have too many faces; a few stand for all."""
    monkeypatch.setattr(balls, "PLANES", 24)
    monkeypatch.setattr(balls, "_DIRECTIONS", 1 << 14)
    monkeypatch.setattr(balls, "_MOST_NUMBERS", 1)


def norm_of(z: np.ndarray, vectors: np.ndarray) -> float:
    """The norm of the hull, by SciPy: the least Σ|w| of z = Σ w v."""
    both = np.vstack([vectors, -vectors])
    return float(optimize.linprog(np.ones(len(both)), A_eq=both.T, b_eq=z).fun)


def exact_norm(law: Any, change: np.ndarray) -> Fraction:
    """The norm of a change, by its planes in fractions."""
    units = [Fraction(x) / Fraction(w) for x, w in zip(change.tolist(), law.widths) if w]
    return max(abs(sum(n * u for n, u in zip(plane, units))) for plane in law.planes) / GRAIN


@pytest.mark.parametrize(("dimension", "count", "seed"), [(2, 5, 0), (3, 9, 1), (5, 40, 2)])
def test_no_listed_change_is_outside(planes: None, dimension: int, count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, dimension)) * np.geomspace(1, 100, dimension)
    result = KNorm(dimension, P, vectors).solve()
    law = result.mechanism
    most = max(exact_norm(law, v) for v in vectors)
    assert 1 <= most <= Fraction(law.largest) < 1 + 1e-6 and law.vertices is None
    assert Fraction(law.largest) / Fraction(law.scale) <= 1
    z = np.random.default_rng(9).normal(size=(50, dimension))
    around = law.norm_of(z * np.array(law.widths))
    hull = np.array([norm_of(x, vectors / np.array(law.widths)) for x in z])
    assert (around <= hull * (1 + 1e-6)).all() and (around > 0.5 * hull).all()
    assert result.lower_bound is None and result.certificate.verify()
    assert all(holds for *_, holds in verify(dumps(result)).rows)


@pytest.mark.parametrize("inner", [None, 1])
def test_the_law_of_planes(inner: int | None) -> None:
    """Points of the plane, each with the mass that its norm in fractions gives it."""
    rows = ((GRAIN, 0), (0, GRAIN), (GRAIN * 3 // 4, GRAIN * 3 // 4), (GRAIN, -GRAIN // 2))
    shift, rate, size = 4, 3, 20_000
    lattice = RadialLattice(Planes(2, planes=rows), 1.0, shift, rate, inner, 0.0)

    def level(point: tuple[int, int]) -> int:
        length = max(-(-abs(sum(n * z for n, z in zip(plane, point))) // GRAIN) for plane in rows)
        return length if inner is None else max(0, -(-(length - inner) // shift)) * shift

    box = list(itertools.product(range(-60, 61), repeat=2))
    mass = np.exp(-np.array([level(p) for p in box]) / rate)
    expected = size * mass / mass.sum()
    drawn = Counter(map(tuple, lattice.draw(size).tolist()))
    seen = np.array([drawn[p] for p in box], dtype=float)
    often = expected >= 5
    seen, expected = (np.append(x[often], size - x[often].sum()) for x in (seen, expected))
    assert stats.chisquare(seen, expected).pvalue > 1e-4


def test_a_doctored_plane_is_seen(planes: None) -> None:
    """A smaller ball, planes that are none, a bound that nobody proved: neither checker believes it."""
    vectors = np.random.default_rng(5).normal(size=(8, 3))
    payload = json.loads(dumps(KNorm(3, P, vectors).solve()))["payload"]

    def doctored(change: Any) -> None:
        altered = json.loads(json.dumps(payload))
        change(altered["fields"])
        assert not files.package_accepts(altered) and not files.alone_accepts(altered)

    def steeper(fields: Any) -> None:
        rows = fields["mechanism"]["fields"]["planes"]["$tuple"]
        rows[-1]["$tuple"] = [2 * n for n in rows[-1]["$tuple"]]

    def without_the_cube(fields: Any) -> None:
        del fields["mechanism"]["fields"]["planes"]["$tuple"][0]

    def narrower(fields: Any) -> None:
        fields["mechanism"]["fields"]["widths"]["$tuple"][1] /= 2

    def without_noise(fields: Any) -> None:
        fields["mechanism"]["fields"]["largest"] *= 1 - 1e-6

    def bounded(fields: Any) -> None:
        fields["lower_bound"] = fields["value"]

    def cheaper(fields: Any) -> None:
        fields["value"] /= 4

    for change in (steeper, without_the_cube, narrower, without_noise, bounded, cheaper):
        doctored(change)


@pytest.mark.parametrize(("dimension", "count"), [(3, 9), (6, 20)])
def test_a_list_takes_round_noise_where_its_delta_is_large(planes: None, dimension: int, count: int) -> None:
    """As bounds do: the hull's own noise needs 1.6 and 1.9 times as much."""
    changes, asked = (
        np.random.default_rng(dimension).normal(size=(count, dimension)),
        md.ApproximateDP(1.0, 0.3),
    )
    result = KNorm(dimension, asked, changes).solve()
    bounds = KNorm(dimension, asked, S(l2=S.of_list(changes).l2)).solve()
    assert result.mechanism.norm == 2 and result.value == pytest.approx(bounds.value, rel=1e-12)
    assert result.certificate.verify() and verifies(result)


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize(("dimension", "count"), [(3, 9), (6, 20)])
def test_an_error_below_that_of_laplace_noise_for_each_number_alone_is_refused(
    planes: None, dimension: int, count: int, loss: str
) -> None:
    """That much is proved of a body of which no moments are known; the honest error, simulated, is more."""
    changes = np.random.default_rng(dimension).normal(size=(count, dimension))
    result = KNorm(dimension, P, changes, loss=loss).solve()
    scale = result.mechanism.scale / result.mechanism.largest * np.abs(changes).max(axis=0)
    least = float((2 * scale**2 if loss == "squared" else scale).mean())
    for value, holds in ((result.value, True), (1.001 * least, True), (0.999 * least, False)):
        rows = verify(dumps(replace(result, value=value))).rows
        assert all(held for claim, _, held in rows if "simulated" in claim) == holds


@pytest.mark.slow
def test_differences_of_sixty_answers_cost_a_quarter_of_round_noise() -> None:
    """1,770 changes of ten numbers, which were refused; a seventh above the hull's own norm at most."""
    answers = np.random.default_rng(7).normal(size=(60, 16))
    answers = (
        answers
        / np.linalg.norm(answers, axis=1, keepdims=True)
        @ np.random.default_rng(8).normal(size=(16, 10))
    )
    first, second = np.triu_indices(60, 1)
    changes = answers[first] - answers[second]
    result = KNorm(10, P, changes).solve()
    law = result.mechanism
    assert law.planes is not None and result.certificate.verify()
    ball = KNorm(10, P, md.Sensitivity.of_list(changes), norm=2).solve()
    assert result.value < ball.value / 3
    rng = np.random.default_rng(0)
    points = law.body.points(300, rng)
    points /= law.body.gauge(points)[:, None]
    ratios = np.array([norm_of(z, changes / np.array(law.widths)) for z in points])
    assert (ratios >= 1 - 1e-6).all()
    shares = ratios**-10
    squares = ((points * np.array(law.widths)) ** 2).sum(axis=1)
    inside = (shares * ratios**-2 * squares).sum() / shares.sum()
    assert squares.mean() < 1.2 * inside
    sent = np.array([law.release(np.zeros(10)) for _ in range(40)])
    assert 0.5 < (sent**2).mean() / result.value < 1.6


@pytest.mark.parametrize(
    ("size", "bounds"), [(3, {"linf": 1, "l0": 2}), (5, {"linf": 1, "l0": 2}), (3, {"each": [1, 2, 3], "l0": 2}), (3, {"each": [1, 2, 3], "l0": 1})],
)  # fmt: skip
@pytest.mark.parametrize("privacy", [md.PureDP(1), md.ApproximateDP(1, 1e-6)], ids=str)
def test_bounds_cost_no_more_than_the_list_of_their_corners(size: int, bounds: Any, privacy: Any) -> None:
    changes = S(**bounds, signed=False)
    found, listed = (KNorm(size, privacy, asked).solve() for asked in (changes, changes.corners(size)))
    assert found.value == pytest.approx(listed.value, rel=1e-9) and found.lower_bound <= listed.value
    assert verifies(found) and found.certificate.verify()
    doctored = json.loads(dumps(found))["payload"]
    doctored["fields"]["design"]["fields"]["sensitivity"]["fields"]["l0"] = size
    assert not files.package_accepts(doctored) and not files.alone_accepts(doctored)


def test_a_bound_names_the_norms_that_it_is_of() -> None:
    capped = KNorm(2, md.PureDP(1), S(linf=1, l1=1.3)).solve()
    assert "the larger of norm inf and norm 1 over 1.30029" in str(capped.certificate.mechanism_class)
    claims = [claim for claim, *_ in verify(dumps(capped)).rows if "no radial noise" in claim]
    assert claims[0].startswith(
        "no radial noise of norm 1; 2; inf; inf and 1 over 1.30029296875, the larger costs"
    )
