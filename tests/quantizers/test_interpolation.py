"""Costs of interpolated rows: from below, and next to the exact integrals of each hat function times each loss."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.moments import PointMasses, interpolated_costs


def exactly(bins, knots, atoms, share, loss):
    """∫ h_k ℓ(B_i − x) dF of a uniform density of mass `share` and of point masses; by Simpson's rule, which is exact for cubics."""
    first, second = Fraction(loss.absolute), Fraction(loss.squared)
    x, b = list(map(Fraction, knots)), list(map(Fraction, bins))
    edges = sorted({*x, *(v for v in b if x[0] < v < x[-1])})

    def weighted(k, i, at):
        hat = max(Fraction(0), 1 - max((at - x[k]) / (x[k + 1] - x[k]) if k + 1 < len(x) and at > x[k] else Fraction(0),
                                       (x[k] - at) / (x[k] - x[k - 1]) if k and at < x[k] else Fraction(0)))  # fmt: skip
        return hat * (first * abs(b[i] - at) + second * (b[i] - at) ** 2)

    def integral(k, i):
        total = sum((w * weighted(k, i, at) for at, w in atoms), Fraction(0))
        for u, v in pairwise(edges):
            three = weighted(k, i, u) + 4 * weighted(k, i, (u + v) / 2) + weighted(k, i, v)
            total += share * (v - u) / (x[-1] - x[0]) * three / 6
        return total

    return [[integral(k, i) for i in range(len(b))] for k in range(len(x))]


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.5, 1e3, -1e6]),
    st.sampled_from(["density", "samples", "weights"]),
)
def test_costs_are_from_below_and_near(seed, centre, kind):
    rng = np.random.default_rng(seed)
    knots = centre + np.sort(np.concatenate([[-1.0, 1.0], rng.uniform(-1, 1, rng.integers(0, 4))]))
    bins = centre + np.sort(rng.uniform(-2, 2, rng.integers(2, 5)))
    loss = Loss.of({"absolute": float(rng.uniform(0, 2)), "squared": float(rng.choice([0.0, 0.7]))})
    x = rng.uniform(knots[0], knots[-1], 3)
    masses, atoms, share = None, [], Fraction(1)
    prior = Prior.ranged(stats.uniform(knots[0], knots[-1] - knots[0]), None)[0]
    if kind == "samples":
        prior, share, atoms = (
            Prior.of(x, (knots[0], knots[-1])),
            Fraction(0),
            [(Fraction(v), Fraction(1, 3)) for v in x],
        )
    elif kind == "weights":
        weights = tuple(Fraction(int(n), 100) for n in rng.integers(0, 34, 3))
        masses, share, atoms = PointMasses(x, weights), Fraction(0), list(zip(map(Fraction, x), weights))
    costs, constant = interpolated_costs(bins, knots, loss, prior, masses)
    whole = exactly(bins, knots, atoms, share, loss)
    # every table of rows that sum to 1: the constant is charged once, the square of the input to no output
    for _ in range(4):
        rows = [[Fraction(int(n)) for n in rng.integers(0, 50, len(bins)) + 1] for _ in knots]
        rows = [[p / sum(row) for p in row] for row in rows]
        exact = sum((c * p for r, q in zip(whole, rows) for c, p in zip(r, q)), Fraction(0))
        found = Fraction(constant) + sum(
            (Fraction(c) * p for r, q in zip(costs.tolist(), rows) for c, p in zip(r, q)), Fraction(0)
        )
        assert 0 <= exact - found <= Fraction(1e-10 if abs(centre) > 1 else 1e-12)


def test_a_function_is_integrated_as_the_polynomial_that_it_is():
    bins, knots, prior = np.array([-2.0, 0.3, 2.0]), np.linspace(-1, 1, 5), Prior.of(stats.uniform(-1, 2))
    known, constant = interpolated_costs(bins, knots, Loss.of("squared"), prior)
    found, none = interpolated_costs(bins, knots, Loss.of(np.square), prior)
    rows = np.full((5, 3), 1 / 3)
    assert none == 0 and (found * rows).sum() == pytest.approx((known * rows).sum() + constant, rel=1e-10)
