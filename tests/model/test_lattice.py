"""Additive noise on a lattice as a declared problem: published and independent optima, privacy by an own check in fractions, tails."""

from __future__ import annotations

import math
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier.verify import verify
from tests.programs import least_noise

HALF = md.ApproximateDP(1.0, 0.2)


def whole(privacy, loss="squared", *rows, reach=14, change=1, tails=None):
    p = md.LatticeNoise(1, reach, sensitivity=change, integer=True, tails=tails)
    own = [row(p) for row in rows]
    return md.Problem(md.Minimize(p.expected(loss)), [p.private(privacy), *own])


def capped(p):
    return md.named("cap", p[p.side] <= 0.4)


def excess(masses: dict[int, Fraction], epsilon: float, change: int) -> Fraction:
    """The largest Σ [p_j − e^ε p_{j+s}]₊, in fractions."""
    low, none = exp_lower(epsilon), Fraction(0)
    shifts = [s for s in range(-change, change + 1) if s]
    return max(sum(max(p - low * masses.get(j + s, none), none) for j, p in masses.items()) for s in shifts)


def test_the_reference_is_the_optimum_of_another_program() -> None:
    result = whole(md.ApproximateDP(1.0, 1e-6)).solve()
    assert result.value == pytest.approx(1.84109985387, rel=1e-11)
    assert result.value == pytest.approx(
        least_noise(np.arange(-20, 21.0) ** 2, [(1.0, 1e-6)], range(1, 2)), rel=1e-9
    )


PROBLEMS = {
    "as declared": lambda: whole(md.ApproximateDP(1.0, 1e-6)),
    "with a row": lambda: whole(md.ApproximateDP(1.0, 1e-6), "squared", capped),
    "pure": lambda: whole(md.PureDP(1.0), tails=1.0, reach=6, change=2),
    "pure, with a row": lambda: whole(md.PureDP(1.0), "squared", capped, tails=1.0, reach=6, change=2),
    "two points": lambda: whole(md.TradeOff([(0, 0.3), (1, 0)]), "absolute", tails=1.0, reach=9, change=3),
    "cells": lambda: cells(),
    "cells, with rows": lambda: cells(lambda p: md.named("flat", cp.abs(p[15] - p[17]) <= 0.01)),
}


def cells(*rows):
    p = md.LatticeNoise(0.25, 4)
    return md.Problem(md.Minimize(p.expected("absolute")), [p.private(HALF), *(row(p) for row in rows)])


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_optimum_is_that_of_cvxpy_and_proved(name: str) -> None:
    problem = PROBLEMS[name]()
    result = problem.solve()
    model = problem.to_cvxpy()
    model.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert result.value == pytest.approx(float(model.value), rel=1e-7) and result.gap <= 1e-9
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)
    assert problem.solve("clarabel").value == pytest.approx(result.value, rel=1e-7)


@settings(max_examples=10, deadline=None)
@given(
    st.floats(0.2, 5.0),
    st.floats(-8, -0.7).map(lambda x: 10**x),
    st.integers(1, 4),
    st.sampled_from(["squared", "absolute"]),
)
def test_the_law_is_private_and_no_program_is_below_the_bound(epsilon, delta, change, loss) -> None:
    reach = math.ceil(change * (1.5 + math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon))
    result = whole(md.ApproximateDP(epsilon, delta), loss, capped, reach=reach, change=change).solve()
    law = result.mechanism
    masses = {law.first + j: w / law.total for j, w in enumerate(law.weights)}
    assert excess(masses, epsilon, change) <= Fraction(delta)
    assert masses[0] <= Fraction(0.4) and result.gap <= 1e-7


def test_tails_cost_what_they_are() -> None:
    """A staircase on the whole numbers, whatever the reach."""
    values = [whole(md.PureDP(1.0), tails=1.0, reach=reach, change=3).solve().value for reach in (3, 4, 9)]
    j = np.arange(400)
    costs = []
    for r in range(1, 4):
        p = np.exp(-1.0 * (j // 3 + (j % 3 >= r)))
        costs.append(2 * float(p @ j**2) / (2 * p.sum() - 1))
    assert values == pytest.approx([min(costs)] * 3, rel=1e-9)


def test_slower_tails_are_private_too() -> None:
    result = whole(md.PureDP(1.0), tails=0.5, reach=10).solve()
    assert (
        result.value > whole(md.PureDP(1.0), tails=1.0, reach=10).solve().value
        and result.certificate.verify()
    )


def test_bounds_have_a_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    """With e^ε widened by 1e-3 the bound is at most the optimum at any ε inside."""
    from mechdesign.model import declared

    stated = whole(md.ApproximateDP(1.0, 0.1)).solve().value
    monkeypatch.setattr(declared, "exp_upper", lambda x: Fraction(math.exp(float(x) + 1e-3)))
    wide = whole(md.ApproximateDP(1.0, 0.1)).solve(gap=0.5)
    inside = [whole(md.ApproximateDP(1.0 + k / 4000, 0.1)).solve().value for k in range(4)]
    assert wide.lower_bound <= min(inside) * (1 + 1e-9) and wide.lower_bound < stated


def test_what_is_refused() -> None:
    p = md.LatticeNoise(1, 10, integer=True)
    with pytest.raises(DesignError, match=r"tails=1.0"):
        p.private(md.PureDP(1.0))
    with pytest.raises(DesignError, match=r"tails=0.5"):
        md.LatticeNoise(1, 10, integer=True, tails=1.0).private(md.PureDP(0.5))
    with pytest.raises(DesignError, match="must be PureDP, ApproximateDP"):
        p.private(md.ZeroConcentratedDP(0.5))
    with pytest.raises(DesignError, match=r"step = 0\.5"):
        md.LatticeNoise(0.5, 10, integer=True)
    with pytest.raises(DesignError, match="reach = 1"):
        md.LatticeNoise(1, 1, sensitivity=3, integer=True, tails=1.0)
    with pytest.raises(
        InfeasibleError, match=r"no noise on this lattice meets 'private' and 'never'.*epsilon = "
    ):
        whole(md.PureDP(1.0), "squared", lambda p: md.named("never", p[6] >= 0.9), tails=1.0, reach=6).solve()
