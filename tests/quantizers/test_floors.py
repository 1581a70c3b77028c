"""The block fill against a linear program, finite differences, quadrature and exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.exact_law import ExactLaw
from mechdesign.quantizers.floors import (
    FloorProblem,
    interior_floors,
    pieces,
    range_constraints,
    smallest_epsilon,
)
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.quantizers.solution import exact_block_fill


def quartic(t):
    return np.asarray(t) ** 4 / 10 + np.abs(t)


def hinge(t):
    """Convex, with kinks away from zero, and not symmetric."""
    return np.maximum(np.maximum(-2 * np.asarray(t) - 1, 0.5 * np.asarray(t)), 0.0)


def runs(share):
    """That share of the profile's examples (200 normally, 2,000 nightly)."""
    return settings(max_examples=int(settings.default.max_examples * share))


LOSSES = ["absolute", "squared", {"absolute": 1, "squared": 0.3}, quartic, hinge]


@st.composite
def cases(draw, *, least: int = 2, most: int = 8):
    """(bins, floors, ρ, lower, upper) with floors inside the polytope, some of them zero."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.integers(least, most))
    lower, upper = -rng.uniform(0.3, 1.5), rng.uniform(0.3, 1.5)
    width = upper - lower
    bins = np.sort(
        np.concatenate(
            [
                [lower - rng.uniform(0.1, 2) * width, upper + rng.uniform(0.1, 2) * width],
                rng.uniform(lower - width, upper + width, m - 2).clip(
                    lower - 0.1 * width, upper + 0.1 * width
                ),
            ]
        )
    )
    bins = np.unique(bins)
    rho = float(np.exp(smallest_epsilon(bins, lower, upper) + rng.uniform(0.05, 3)))
    inside = interior_floors(bins, rho, lower, upper)
    C, b = range_constraints(bins, rho, lower, upper)
    direction = rng.normal(size=len(bins)) * inside
    floors = inside + direction * rng.uniform(0, 1)
    for _ in range(200):
        if floors.min() >= 0 and (C @ floors - b).min() >= 1e-12:
            break
        direction *= 0.7
        floors = inside + direction
    else:
        floors = inside
    return bins, floors, rho, lower, upper


def row_program(bins, floors, rho, x, cost):
    """The best row at x by HiGHS."""
    answer = optimize.linprog(
        cost,
        A_eq=np.stack([np.ones(len(bins)), bins]),
        b_eq=[1.0, x],
        bounds=np.stack([floors, rho * floors], axis=1),
        method="highs",
    )
    return answer


@given(cases(), st.integers(0, 4), st.floats(0, 1))
@runs(0.75)
def test_fill_is_the_best_row(case, which, share):
    bins, floors, rho, lower, upper = case
    loss = Loss.of(LOSSES[which])
    problem = FloorProblem(bins, rho, lower, upper, Prior.of([0.0]), loss)
    x = np.array([lower + share * (upper - lower)])
    table = pieces(problem, floors)
    at = table.at(x)
    lam, mu = problem.slopes(x, table.left[at], table.right[at])
    row = table.rows_at(x, at)[0]
    cost = loss(bins - x[0])
    assert row.sum() == pytest.approx(1, abs=1e-14)
    assert row @ bins == pytest.approx(x[0], abs=1e-13)
    assert np.all(row >= floors * (1 - 1e-15)) and np.all(row <= rho * floors * (1 + 1e-15))
    best = row_program(bins, floors, rho, x[0], cost)
    assert best.status == 0
    assert row @ cost == pytest.approx(best.fun, abs=1e-7)
    # Strong duality with the chord as the proof.
    dual = lam[0] + mu[0] * x[0] + float(floors @ problem.reduced(x, lam, mu)[0])
    assert dual == pytest.approx(row @ cost, abs=1e-10 * (1 + abs(dual)))


@given(cases(), st.floats(0.01, 0.999) | st.floats(1.001, 5))
@runs(0.4)
def test_smallest_epsilon_decides_feasibility(case, factor):
    """Against a program that asks for rows at both ends."""
    bins, _, _, lower, upper = case
    epsilon = smallest_epsilon(bins, lower, upper) * factor
    m, rho = len(bins), np.exp(epsilon)
    eye, zero = np.eye(m), np.zeros((m, m))
    less = np.block([[eye, -eye, zero], [eye, zero, -eye], [-rho * eye, eye, zero], [-rho * eye, zero, eye]])
    equal = np.zeros((4, 3 * m))
    equal[0, m : 2 * m], equal[1, 2 * m :] = 1, 1
    equal[2, m : 2 * m], equal[3, 2 * m :] = bins, bins
    answer = optimize.linprog(
        np.zeros(3 * m),
        A_ub=less,
        b_ub=np.zeros(4 * m),
        A_eq=equal,
        b_eq=[1, 1, lower, upper],
        method="highs",
    )
    assert (answer.status == 0) == (factor > 1)


@given(cases(), st.integers(0, 2**16))
@runs(0.3)
def test_exact_fill(case, seed):
    """Every constraint in fractions, at knots and between; shortcuts equal the definitions."""
    bins, floors, rho, lower, upper = case
    epsilon = float(np.log(rho))
    law = exact_block_fill(bins, floors, epsilon, lower, upper)
    a = law.floors
    assert law.rho <= Fraction(rho) * (1 + Fraction(1, 10**14))
    for k in range(len(law.knots) - 1):
        for end in (0, 1):
            row = law.row(k, end)
            assert sum(row) == 1
            assert sum(b * p for b, p in zip(law.bins, row)) == law.knots[k + end]
            assert all(f <= p <= law.rho * f for f, p in zip(a, row))
    assert law.extremes() == ExactLaw.extremes(law)
    for fast, slow in zip(law.tables(), ExactLaw.tables(law)):
        assert np.array_equal(fast, slow)
    x = np.random.default_rng(seed).uniform(lower, upper, 20)
    problem = FloorProblem(bins, rho, lower, upper, Prior.of([0.0]), Loss.of("absolute"))
    rows = pieces(problem, floors).table.probabilities(x)
    assert np.abs(Quantizer.of_law(law).probabilities(x) - rows).max() < 1e-7
