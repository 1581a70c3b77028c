"""The rotated simplex and the cap: the published table, exact errors against runs, exact probabilities, rotations."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

import mechdesign as md
from mechdesign.evidence.exact import exp_upper
from mechdesign.vectors.cap import PrivUnit, cap_depth, cap_error
from mechdesign.vectors.sphere import (
    ExactRotation,
    FastRotation,
    chi_mean,
    top_squares,
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


@pytest.mark.parametrize("inputs", ["ball", "sphere"])
@pytest.mark.parametrize("kind", ["sphere", "cap"])
@pytest.mark.parametrize("length", [0.0, 1.0])
def test_exact_error_at_every_length(inputs: str, kind: str, length: float) -> None:
    privacy, radius = md.PureDP(1.5), 2.0
    mechanism: Any = (
        md.PrivUnit(6, privacy, inputs, radius)
        if kind == "cap"
        else md.SphereQuantizer(6, 2, privacy, inputs, radius)
    )
    x = np.zeros((2_000, 6))
    x[:, 1] = radius * length
    if inputs == "sphere" and length < 1:
        with pytest.raises(md.DesignError, match="length"):
            mechanism.sample(x)
        return
    answers = mechanism.sample(x, rng=3)
    error = ((answers - x) ** 2).sum(axis=1)
    assert within(error, mechanism.squared_error(x[0]))
    assert within(answers[:, 1], radius * length) and within(answers[:, 0], 0.0)
    assert mechanism.error >= mechanism.squared_error(x[0]) * (1 - 1e-12)


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


@pytest.mark.parametrize("k", [1, 3, 7])
def test_order_statistics_against_quadrature(k: int) -> None:
    """The sum of the k largest of M normals, from the densities of the order statistics."""
    m = 8

    def moment(power: int) -> float:
        def density(x: float, i: int) -> float:
            logs = special.log_ndtr(x) * (m - i) + special.log_ndtr(-x) * (i - 1) + stats.norm.logpdf(x)
            return math.exp(logs) * math.exp(-special.betaln(m - i + 1, i)) * x**power

        return sum(integrate.quad(density, -12, 12, args=(i,))[0] for i in range(1, k + 1))

    assert top_sum(m, k) == pytest.approx(moment(1), rel=1e-9)
    assert top_squares(m, k) == pytest.approx(moment(2), rel=1e-9)


@pytest.mark.parametrize("d", [2, 7, 299, 300, 5000])
def test_lengths_of_normal_vectors(d: int) -> None:

    exact = mpmath.sqrt(2) * mpmath.gamma((mpmath.mpf(d) + 1) / 2) / mpmath.gamma(mpmath.mpf(d) / 2)
    assert chi_mean(d) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize(
    ("d", "epsilon"), [(2, 30.0), (2, 400.0), (3, 60.0), (10, 100.0), (500, 500.0), (7, 1e-12)]
)
def test_tiny_errors_of_caps_are_not_lost_to_cancellation(d: int, epsilon: float) -> None:
    """1/s² − 1 in doubles: 3 in place of 1e-9 digits at (2, 30), a negative error at (3, 60)."""
    with mpmath.workdps(100 + 3 * int(epsilon)):
        half, gain = mpmath.mpf(d - 1) / 2, mpmath.expm1(mpmath.mpf(epsilon))

        def at(w: Any) -> Any:  # 1/s² − 1 at t = 1 − 2w
            across = 4 * w * (1 - w)
            mass = mpmath.betainc(half, 0.5, 0, across, regularized=True) / 2
            return ((gain * mass + 1) * (d - 1) * mpmath.beta(half, 0.5) / (gain * across**half)) ** 2 - 1

        near = at(mpmath.mpf(cap_depth(d, math.expm1(epsilon))))
        assert cap_error(d, epsilon) == pytest.approx(float(near), rel=1e-11, abs=0)
        for by in (1.001, 0.999):
            assert at(mpmath.mpf(cap_depth(d, math.expm1(epsilon))) * by) >= near
    for inputs in ("ball", "sphere"):
        assert PrivUnit(d, md.PureDP(epsilon), inputs).error > 0


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


def test_clipping_shortens() -> None:
    mechanism = md.SphereQuantizer(4, 2, md.PureDP(3.0), radius=0.1)
    x = np.full((2_000, 4), 1e200)
    assert mechanism.sample(x, rng=0, clip=True).mean(axis=0) == pytest.approx(np.full(4, 0.05), abs=0.035)
    sphere = md.SphereQuantizer(4, 2, md.PureDP(3.0), inputs="sphere")
    with pytest.raises(md.DesignError, match="clip=True"):
        sphere.sample(np.zeros(4))
    # a refusal would say what the value is
    assert np.isfinite(sphere.sample(np.zeros(4), rng=0, clip=True)).all()
