"""What a calibrated law costs at least: in closed form for all symmetric laws, from a smaller scale for one law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import mechdesign as md
from mechdesign.noise.calibration_evaluation import unit_cost

APPROXIMATE = md.ApproximateDP(1.0, 1e-6)
SEVERAL = md.Sensitivity(linf=1, l1=3, l2=2)


def cheapest_symmetric(epsilon: float, delta: float, cells: int, periods: int) -> float:
    """The least ∫ 4tS(t) dt of a survival function on a lattice, S falling, S(t + 1) ≥ e^−ε(S(t) − δ): from above no less."""
    n = cells * periods
    left = np.arange(n) / cells
    costs = 2 * ((left + 1 / cells) ** 2 - left**2)
    rows, sides = [], []
    for i in range(n - 1):
        row = np.zeros(n)
        row[i], row[i + 1] = -1, 1
        rows.append(row)
        sides.append(0.0)
    for i in range(n):
        row = np.zeros(n)
        row[i] = 1.0
        if i + cells < n:
            row[i + cells] = -math.exp(epsilon)
        rows.append(row)
        sides.append(delta)
    found = optimize.linprog(
        costs, A_ub=np.array(rows), b_ub=sides, A_eq=np.eye(1, n), b_eq=[0.5], bounds=(0, 0.5), method="highs"
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.5, 1e-2), (1.0, 1e-3), (2.0, 1e-6), (4.0, 0.1), (1.0, 0.45)]
)
def test_no_survival_function_costs_less_than_the_bound(epsilon: float, delta: float) -> None:
    least = cheapest_symmetric(epsilon, delta, 20, 2 + math.ceil(min(20, -math.log(delta) + 2) / epsilon))
    assert unit_cost(epsilon, delta, "squared", log_concave=False) <= least * (1 + 1e-9)


@given(st.floats(1e-6, 300.0), st.floats(1e-15, 0.49))
@settings(max_examples=40, deadline=None)
def test_optimal_laws_are_above_the_bound_and_near(epsilon: float, delta: float) -> None:
    """Truncated Laplace noise of Geng et al. is private; Laplace noise is optimal among log-concave laws without δ."""
    law = md.noise.truncated_laplace_law(epsilon, delta)
    assert unit_cost(epsilon, delta, "squared") <= law.var() * (1 + 1e-12)
    pure = 2 / epsilon**2
    assert 0.99 * pure < unit_cost(epsilon, 0.0, "squared") <= pure
    assert 0.99 / epsilon < unit_cost(epsilon, 0.0, "absolute") <= 1 / epsilon
    if epsilon < 1 and delta < 0.1 * epsilon:
        assert unit_cost(epsilon, delta, "squared") > 0.95 * law.var()


@pytest.mark.slow
@pytest.mark.parametrize(
    "design",
    [
        md.Calibration("gaussian", md.ZeroConcentratedDP(0.1), SEVERAL, 9),
        md.Calibration("laplace", md.ZeroConcentratedDP(0.1), 1.0),
        md.Calibration("laplace", APPROXIMATE, 1.0, rounds=100, sampling_rate=0.05),
        md.Calibration(stats.truncnorm(-3, 3), APPROXIMATE, 1.0, dimension=3),
        md.Calibration(stats.hypsecant(), APPROXIMATE, SEVERAL, dimension=9),
    ],
    ids=["zcdp bounds", "zcdp", "sampled", "truncnorm", "hypsecant"],
)
def test_scales_are_enclosed(design: md.Calibration) -> None:
    result = design.solve()
    # under zCDP with several bounds ρ is known from above alone: the closed form, tight where ρ is small
    assert result.gap < (0.2 if isinstance(design.sensitivity, md.Sensitivity) else 0.05)
    assert result.certificate.verify() and result.bound_how == "recomputed"
    assert "lower bound" in str(result)


def test_discrete_laws_have_no_bound() -> None:
    result = md.Calibration("discrete_laplace", APPROXIMATE, 1.0, dimension=2).solve()
    assert result.lower_bound is None and result.gap is None and result.checks()["holds"].all()
