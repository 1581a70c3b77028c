"""The rotated simplex and the cap: the published table, exact errors against runs, exact probabilities, rotations."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.evidence.exact import exp_upper
from mechdesign.vectors.cap import cap_error
from mechdesign.vectors.sphere import (
    ExactRotation,
    FastRotation,
    top_sum,
    vertex_products,
    weighted_sums,
)

# Isik et al. 2023 and Asi et al. 2022, recomputed: (d, ε) → the cap, then 1, 2, 4, 6, 8 bits.
TABLE = {
    (500, 2.0): (807.033, 1351.72, 933.82, 857.36, 818.58, 809.61),
    (500, 4.0): (216.943, 843.26, 407.29, 252.18, 226.10, 218.79),
    (1000, 4.0): (434.603, 1688.37, 815.98, 505.61, 453.42, 438.79),
}


@pytest.mark.parametrize("key", TABLE)
def test_the_table_to_its_digits(key: tuple[int, float]) -> None:
    d, epsilon = key
    cap, *simplex = TABLE[key]
    assert round(md.PrivUnit(d, md.PureDP(epsilon), inputs="sphere").error, 3) == cap
    found = [md.SphereQuantizer(d, b, md.PureDP(epsilon), inputs="sphere").error for b in (1, 2, 4, 6, 8)]
    assert [round(error, 2) for error in found] == simplex


def test_a_shared_rotation_leaves_an_error() -> None:
    assert round(md.SphereQuantizer(500, 8, md.PureDP(4.0), inputs="sphere").shared_error, 2) == 6.38


def within(found: Any, wanted: float, errors: float = 4.0) -> bool:
    """Whether the mean of draws is within that many standard errors; 3 are missed once in 370 tests."""
    return bool(abs(found.mean() - wanted) <= errors * found.std(ddof=1) / math.sqrt(found.size))


def test_release_has_the_exact_law() -> None:
    mechanism = md.SphereQuantizer(5, 2, md.PureDP(2.0), inputs="sphere")
    x = np.zeros((2500, 5))
    x[:, 0] = 1.0
    error = ((mechanism.release(x) - x) ** 2).sum(axis=1)
    assert within(error, mechanism.error, 5.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 300), st.floats(1e-6, 60), st.integers(1, 8), st.sampled_from(["ball", "sphere"]))
def test_probabilities_are_exact(d: int, epsilon: float, bits: int, inputs: str) -> None:
    bits = min(bits, (d + (inputs == "ball") + 1).bit_length() - 1)
    mechanism = md.SphereQuantizer(d, bits, md.PureDP(epsilon), inputs)
    more, less = mechanism.probabilities
    assert isinstance(more, Fraction) and more / less <= exp_upper(Fraction(epsilon)) and more > less > 0
    assert mechanism.near * more + (mechanism.outputs - mechanism.near) * less == 1
    assert math.log(more / less) == pytest.approx(epsilon, rel=1e-9)
    # The near vertices are the best number of them, by trying all.
    m = mechanism.outputs
    gain = math.expm1(epsilon)
    worth = [top_sum(m, k) / (k * gain + m) for k in range(1, m)]
    assert worth[mechanism.near - 1] >= max(worth) * (1 - 1e-12)
    # Nothing unbiased is better than the cap.
    assert mechanism.error >= cap_error(d, epsilon) * (1 - 1e-9)


def test_the_draw_is_of_the_integers() -> None:
    """Near vertices come with probability kE / (kE + M − k), equally often each."""
    mechanism = md.SphereQuantizer(9, 3, md.PureDP(1.0), inputs="sphere")
    ranks = mechanism._ranks(40_000, None)
    more, less = map(float, mechanism.probabilities)
    wanted = np.where(np.arange(8) < mechanism.near, more, less) * ranks.size
    assert stats.chisquare(np.bincount(ranks, minlength=8), wanted).pvalue > 1e-6


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 140),
    st.integers(1, 140),
    st.sampled_from([ExactRotation, FastRotation]),
    st.integers(0, 2**128 - 1),
)
def test_rotations_are_orthogonal(d: int, kept: int, kind: Any, seed: int) -> None:
    kept = min(kept, d)
    rotation, keys = kind(d, kept), [(seed, 0), (seed, 2**40)]
    z = np.random.default_rng(0).normal(size=(2, kept))
    x = rotation.turned_back(z, keys)
    assert (x**2).sum(axis=1) == pytest.approx((z**2).sum(axis=1), rel=1e-6)
    assert rotation.turned(x, keys) == pytest.approx(z, abs=1e-6)


def test_rotations_have_the_uniform_law() -> None:
    """Second moments of Q e₁ over seeds; each draw of its own."""
    turned = np.array([ExactRotation(4, 3).turned(np.eye(4)[:1], [(9, i)])[0] for i in range(4000)])
    assert turned.T @ turned / len(turned) == pytest.approx(np.eye(3) / 4, abs=0.02)
    assert turned.mean(axis=0) == pytest.approx(np.zeros(3), abs=0.03)


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_vertices_are_a_regular_simplex(n: int) -> None:
    v = weighted_sums(np.eye(n + 1))
    gram = np.full((n + 1, n + 1), -1 / n)
    np.fill_diagonal(gram, 1.0)
    assert v @ v.T == pytest.approx(gram, abs=1e-12)
    z = np.random.default_rng(0).normal(size=(3, n))
    assert vertex_products(z) == pytest.approx(z @ v.T, abs=1e-12)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"bits": 0}, "bits"),
    ({"bits": 6}, "at most 5"),
    ({"dimension": 1}, "OptimalQuantizer"),
    ({"radius": 0}, "radius"),
    ({"privacy": md.PureDP(1e-300)}, "epsilon"),
    ({"dimension": 1 << 24, "bits": 16}, "rotation='fast'"),
    ({"privacy": md.PureDP(900.0)}, "epsilon"),
    ({"rotation": "hadamard"}, "rotation"),
]


@pytest.mark.parametrize("changes,word", BAD)
def test_designs_that_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(md.DesignError, match=word):
        md.SphereQuantizer(**{"dimension": 40, "bits": 3, "privacy": md.PureDP(1.0), **changes})


@pytest.mark.parametrize(
    "x",
    [
        [math.nan] * 4,
        ["a"] * 4,
        [1j, 0, 0, 0],
        [True] * 4,
        [2.0, 0, 0, 0],
        [0.0] * 3,
        0.5,
        None,
        [[1], [2, 3]],
    ],
)
def test_vectors_that_are_refused(x: Any) -> None:
    mechanism, cap = md.SphereQuantizer(4, 2, md.PureDP(1.0)), md.PrivUnit(4, md.PureDP(1.0))
    for call in (mechanism.sample, cap.sample, mechanism.release, mechanism.encode):
        with pytest.raises(md.DesignError):
            call(x)
    with pytest.raises(md.DesignError, match="SphereQuantizer"):
        cap.release(np.zeros(4))
