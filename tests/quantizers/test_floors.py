"""The block fill against a linear program, finite differences, quadrature and exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats
from strategies import priors

import mechdesign as md
from mechdesign.errors import InfeasibleError
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.mechanism.exact_law import BlockFillLaw, ExactLaw
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.table import loss_at, loss_peaks
from mechdesign.quantizers.optimal.bin_search import bin_slopes
from mechdesign.quantizers.optimal.cutting_planes import cutting_planes, expected_planes
from mechdesign.quantizers.optimal.floors import (
    FloorProblem,
    block_fill,
    interior_floors,
    pieces,
    range_constraints,
    smallest_epsilon,
)
from mechdesign.quantizers.optimal.methods import expected
from mechdesign.quantizers.optimal.newton import newton
from mechdesign.quantizers.optimal.solution import exact_block_fill, lower_bound


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


@given(cases(), st.integers(0, 2**32 - 1), st.data())
@runs(0.3)
def test_any_duals_bound_any_mechanism(case, seed, data):
    """Duals from one set of floors bound the loss of the fill of another."""
    bins, floors, rho, lower, upper = case
    law = data.draw(priors(lower, upper))
    rng = np.random.default_rng(seed)
    problem = FloorProblem(bins, rho, lower, upper, Prior.of(law), Loss.of(LOSSES[seed % 3]))
    other = interior_floors(bins, rho, lower, upper)
    found = expected_planes(problem, pieces(problem, floors), np.array([lower, upper]))
    constant, gradient = found.constants, found.gradients
    value = expected(problem, other)
    assert constant[0] + gradient[0] @ other <= value + 1e-10 * (1 + value)
    assert constant[0] + gradient[0] @ floors == pytest.approx(expected(problem, floors), rel=1e-9, abs=1e-9)
    nu = rng.uniform(0, 1, len(problem.constraints[1]))
    assert lower_bound(problem, float(constant[0]), gradient[0], nu)[0] <= value


@pytest.mark.slow
@given(cases(least=3), st.integers(0, 4), st.sampled_from(["uniform", "beta", "truncated"]))
@runs(0.3)
def test_derivatives(case, which, kind):
    """Gradient and Hessian of the expected loss against central differences."""
    bins, floors, rho, lower, upper = case
    width = upper - lower
    law = {
        "uniform": stats.uniform(lower, width),
        "beta": stats.beta(2.5, 3.5, lower, width),
        "truncated": md.truncated(stats.norm(lower + 0.4 * width, 0.5 * width), lower, upper),
    }[kind]
    inside = interior_floors(bins, rho, lower, upper)
    floors = 0.5 * floors + 0.5 * inside
    problem = FloorProblem(bins, rho, lower, upper, Prior.of(law), Loss.of(LOSSES[which]))
    part = problem.continuum(floors)
    assert part.constant + floors @ part.gradient == pytest.approx(expected(problem, floors), rel=1e-9)
    step = 1e-6 * floors.min()
    C, b = problem.constraints
    assume(step >= 1e-10 and (C @ floors - b).min() >= 10 * step * np.abs(C).max())
    H = (part.directions.T * part.weights) @ part.directions
    size = np.abs(H).max() + 1

    def at(a):
        return problem.continuum(a)

    scale = 1 + np.abs(part.gradient).max()
    for e in np.random.default_rng(which).uniform(-step, step, (3, len(bins))):
        up, down = at(floors + e), at(floors - e)
        rise = up.constant - down.constant + (floors + e) @ up.gradient - (floors - e) @ down.gradient
        assert rise / 2 == pytest.approx(part.gradient @ e, abs=1e-12 * scale + 1e-5 * step * scale)
        # A central difference of G is off by its own second derivative, and by kinks of H within the step.
        curve = (up.gradient - down.gradient) / 2
        assert np.abs(curve - H @ e).max() <= 1e-12 * scale + 2e-3 * step * size


@given(cases(least=3), st.integers(0, 2))
@runs(0.125)
def test_value_by_quadrature(case, which):
    """F(a) against SciPy's adaptive quadrature of the rows' expected loss."""
    bins, floors, rho, lower, upper = case
    law = stats.beta(2, 3, lower, upper - lower)
    loss = Loss.of(LOSSES[which])
    problem = FloorProblem(bins, rho, lower, upper, Prior.of(law), loss)
    table = pieces(problem, floors)
    breaks = np.unique(np.concatenate([table.edges, bins]))
    breaks = breaks[(breaks > lower) & (breaks < upper)]
    expected_loss, _ = integrate.quad(
        lambda x: float(loss_at(table.table, np.array([x]), loss)[0]) * law.pdf(x),
        lower,
        upper,
        points=breaks if breaks.size else None,
        limit=200,
    )
    assert expected(problem, floors) == pytest.approx(expected_loss, rel=1e-7)


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


@given(cases())
@runs(0.4)
def test_range_constraints_are_the_reachable_means(case):
    bins, floors, rho, lower, upper = case
    fill = block_fill(bins, floors, rho)
    C, b = range_constraints(bins, rho, lower, upper)
    slack = (C @ floors - b)[2:]
    m = len(bins)
    assert slack[:m].min() == pytest.approx(fill.means[-1] - upper, abs=1e-9)
    assert slack[m:].min() == pytest.approx(lower - fill.means[0], abs=1e-9)


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


def test_exact_fill_refuses_what_it_cannot_reach():
    F = Fraction
    with pytest.raises(InfeasibleError, match="reach the means"):
        BlockFillLaw((F(-2), F(0), F(2)), (F(1, 5),) * 3, F(3), F(-1), F(1))
    with pytest.raises(InfeasibleError, match="cannot be completed"):
        BlockFillLaw((F(-2), F(2)), (F(1, 9), F(1, 9)), F(3), F(-1), F(1))
    with pytest.raises(InfeasibleError) as caught:
        exact_block_fill(np.array([-2.0, 2.0]), np.array([0.1, 0.1]), 1.0, -1.0, 1.0)
    assert caught.value.smallest_epsilon == pytest.approx(np.log(3))


@pytest.mark.slow
@given(cases(least=3, most=6), st.floats(0.01, 0.5), st.integers(0, 4))
@runs(0.2)
def test_bias_budget_is_used_optimally(case, share, which):
    """Rows of the biased fill against a program with |mean − x| ≤ b."""
    bins, floors, rho, lower, upper = case
    bias = share * (upper - lower)
    loss = Loss.of(LOSSES[which])
    problem = FloorProblem(
        bins, rho, lower, upper, Prior.of(stats.uniform(lower, upper - lower)), loss, bias=bias
    )
    table = pieces(problem, floors)
    start, end = table.rows
    x = np.linspace(lower, upper, 12)[1:-1]
    rows = table.rows_at(x, table.at(x))
    assert np.abs(rows @ bins - x).max() <= bias + 1e-12
    for value, row in zip(x, rows):
        cost = loss(bins - value)
        best = optimize.linprog(
            cost,
            A_eq=np.ones((1, len(bins))),
            b_eq=[1.0],
            A_ub=np.stack([bins, -bins]),
            b_ub=[value + bias, bias - value],
            bounds=np.stack([floors, rho * floors], axis=1),
            method="highs",
        )
        assert row @ cost == pytest.approx(best.fun, abs=1e-7)
    # The plane through these floors is tight there.
    found = expected_planes(problem, table, np.array([lower, upper]))
    constant, gradient = found.constants, found.gradients
    cells = np.unique(np.concatenate([table.edges, bins[(bins > lower) & (bins < upper)]]))
    if loss.polynomial:
        nodes, weights = np.polynomial.legendre.leggauss(3)
        points = ((cells[1:] + cells[:-1]) / 2)[:, None] + (np.diff(cells) / 2)[:, None] * nodes
        at = table.at(points.ravel())
        t = ((points.ravel() - table.edges[at]) / np.diff(table.edges)[at])[:, None]
        values = np.einsum(
            "nk,nk->n", (1 - t) * start[at] + t * end[at], loss(bins - points.reshape(-1, 1))
        ).reshape(points.shape)
        total = float((values @ weights * np.diff(cells) / 2).sum()) / (upper - lower)
        assert constant[0] + gradient[0] @ floors == pytest.approx(total, rel=1e-9, abs=1e-10)
        assert expected(problem, floors) == pytest.approx(total, rel=1e-9, abs=1e-10)


@given(cases(least=2), st.integers(0, 2))
@runs(0.3)
def test_local_maxima_are_maxima(case, which):
    bins, floors, rho, lower, upper = case
    problem = FloorProblem(bins, rho, lower, upper, Prior.of([0.0]), Loss.of(LOSSES[which]))
    table = pieces(problem, floors).table
    where, height = loss_peaks(table, problem.loss)
    grid = loss_at(table, np.linspace(lower, upper, 400), problem.loss)
    assert grid.max() <= height.max() * (1 + 1e-12)
    assert loss_at(table, where, problem.loss) == pytest.approx(height, rel=1e-9, abs=1e-12)


def test_bin_slopes_against_differences():
    bins = np.array([-2.6, -1.1, 0.3, 0.9, 2.4])
    for law, method in (
        (stats.uniform(-1, 2), newton),
        (md.clipped(stats.norm(0.3, 0.4), -1, 1), newton),
        (np.linspace(-0.93, 0.97, 7) ** 3, cutting_planes),
    ):
        for name in ("absolute", "squared"):
            problem = FloorProblem(bins, np.exp(1.3), -1.0, 1.0, Prior.of(law), Loss.of(name))
            slopes = bin_slopes(problem, method(problem, gap=1e-10))
            for k, e in enumerate(np.eye(5) * 1e-5):
                ends = [
                    method(
                        FloorProblem(bins + s * e, np.exp(1.3), -1.0, 1.0, Prior.of(law), Loss.of(name)),
                        gap=1e-11,
                    )
                    for s in (1, -1)
                ]
                # Values are known to 1e-11 relative: differences over 2e-5 to 1e-6.
                assert (ends[0].value - ends[1].value) / 2e-5 == pytest.approx(slopes[k], abs=2e-5)
