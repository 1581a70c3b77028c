"""Noise of planes around a hull of too many faces: no change outside in fractions, moments, the released law counted out, doctored files."""

import contextlib
import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cheap
import numpy as np
import pytest
from scipy import optimize, stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.noise import balls
from mechdesign.noise.balls import GRAIN, Ball, Planes, hull_of, planes_around
from mechdesign.noise.knorm import KNorm
from mechdesign.noise.radial import RadialLattice
from mechdesign.solvers.deadline import Deadline
from mechdesign.verifier import verify

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
    assert all(holds for *_, holds in verify.verify(dumps(result)).rows)


def test_the_list_spans_no_coordinate_that_does_not_move(planes: None) -> None:
    vectors = np.array([[1.0, 0.0, 2.0], [3.0, 0.0, -1.0], [2.0, 0.0, 2.0]])
    law = KNorm(3, P, vectors).solve().mechanism
    assert law.widths[1] == 0 and len(law.planes[0]) == 2
    assert law.release([5.0, 7.25, 1.0])[1] == 7.25


def test_with_all_faces_moments_are_those_of_the_hull() -> None:
    vectors = np.random.default_rng(3).uniform(-1, 1, (7, 3))
    vectors /= np.abs(vectors).max(axis=0)
    hull, known = hull_of(vectors), Planes(planes_around(vectors, Deadline()))
    assert known.gauge(vectors) == pytest.approx(hull.gauge(vectors), abs=1e-6)
    assert known.volume == pytest.approx(hull.volume, rel=0.01)
    for simulated, exact in ((known.first, hull.first), (known.second, hull.second)):
        assert (simulated >= exact).all() and simulated == pytest.approx(exact, rel=0.02)
    spread = np.abs(known.points(100_000, np.random.default_rng(0))).mean(axis=0)
    assert spread == pytest.approx(hull.first, rel=0.02)


def test_a_late_program_leaves_fewer_planes_and_no_less_privacy() -> None:
    vectors = np.random.default_rng(4).normal(size=(60, 10))
    vectors /= np.abs(vectors).max(axis=0)
    none = planes_around(vectors, Deadline(1e-9))
    assert none == tuple(tuple(GRAIN * int(i == j) for j in range(10)) for i in range(10))


@pytest.mark.parametrize("inner", [None, 1])
def test_the_law_of_the_steps(inner: int | None) -> None:
    """Points of the plane, each with the mass that its norm in fractions gives it."""
    rows = ((GRAIN, 0), (0, GRAIN), (GRAIN * 3 // 4, GRAIN * 3 // 4), (GRAIN, -GRAIN // 2))
    shift, rate, size = 4, 3, 20_000
    lattice = RadialLattice(Ball(2, math.inf, hull=Planes(rows)), 1.0, shift, rate, inner, 0.0)

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
        text = cheap.sealed(altered)
        try:
            seen = not all(holds for *_, holds in verify.verify(text).rows)
        except verify.Refused:
            seen = True
        assert seen
        with contextlib.suppress(md.MechdesignError):
            assert not loads(text).certificate.verify()

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

    for change in (steeper, without_the_cube, narrower, without_noise, bounded):
        doctored(change)


def test_planes_are_of_a_plain_cube(planes: None) -> None:
    law = KNorm(3, P, np.random.default_rng(6).normal(size=(8, 3))).solve().mechanism
    for bad in (
        {"norm": 1.0},
        {"cap": 1.5},
        {"signed": False},
        {"planes": law.planes[1:]},
        {"planes": ((1, 2),)},
    ):
        with pytest.raises(md.DesignError):
            replace(law, **bad)


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
