"""Noise of the hull of a list of changes: faces by brute force, moments in all directions, privacy in fractions."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.noise.balls import hull_of
from mechdesign.noise.knorm import KNorm
from mechdesign.noise.knorm_noise import KNormNoise
from noise.norms import ALARM, faces_of, gauge_of


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


def test_a_law_takes_only_all_faces_of_its_hull() -> None:
    law = KNormNoise(2, 1.0, math.inf, vertices=[[1, 0], [0, 1], [1, 1]], largest=1.0)
    assert law.vertices == ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0)) and law.simplices == ((1, -2), (1, 3), (2, 3))
    faces = (
        {"simplices": law.simplices[1:]},
        {"simplices": ((1, 2), *law.simplices[1:])},
        {"simplices": ((1, 9),)},
    )
    vertices = ({"vertices": ((2.0, 0.0), (0.0, 1.0), (1.0, 1.0))}, {"vertices": None})
    for bad in (*faces, *vertices, {"norm": 1.0}, {"cap": 1.5}, {"signed": False}):
        with pytest.raises(md.DesignError):
            replace(law, **bad)
    assert law.release([0.0, 5.0]).shape == (2,)
