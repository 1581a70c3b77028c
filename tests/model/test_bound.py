"""The theorem of the bound: true for all multipliers it admits, tight for a solver's, and rounded to the side that harms its claim."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import vipr_checker

import mechdesign as md
from mechdesign.evidence.rows import RowsBound
from mechdesign.model import exactly
from mechdesign.model.declared import Part
from mechdesign.model.exactly import admissible, fraction
from model import tables


@pytest.mark.parametrize("seed", range(40))
def test_no_multipliers_prove_more_than_a_feasible_table_costs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = tables.drawn(rng)
    try:
        result = problem.solve()
    except md.InfeasibleError:
        return
    size = problem.declared.parts[-1].end
    for spread in (0.01, 0.1, 1.0):
        rows = np.sort(rng.choice(size, min(size, 30), replace=False))
        held = admissible(
            problem.declared,
            rows,
            spread * rng.standard_exponential(len(rows)) * rng.choice([-1, 1, 1], len(rows)),
        )
        program = problem.declared.linear_bound(*held)
        if program.admissible:  # further columns may be left unpaid
            assert fraction(program.bound) <= Fraction(result.value)


def test_multipliers_of_the_wrong_sign_prove_nothing() -> None:
    P = md.Table([0, 1], [0, 1])
    result = md.Problem(md.Minimize(P.expected("error")), [P.private(md.PureDP(1.0))]).solve()
    (proof,) = (p for p in result.proofs if isinstance(p, RowsBound))
    problem: Any = result.design
    with pytest.raises(md.ResultFormatError, match="sign"):
        problem.linear_bound(proof.rows, tuple(-m for m in proof.multipliers))
    with pytest.raises(md.DesignError, match="rows"):
        problem.linear_bound(np.array([10**6]), (Fraction(1),))


@pytest.mark.parametrize("delta", [0.0, 0.05])
@pytest.mark.parametrize("inputs", [2, 4])
def test_direction(delta: float, inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With e^ε enclosed between 1 ∓ 10⁻³ of it, a law stays private of the one and a bound below the optimum of the other."""
    ends = Part.low, Part.high
    monkeypatch.setattr(Part, "low", lambda self, pair: ends[0](self, pair) * 999 / 1000)
    monkeypatch.setattr(Part, "high", lambda self, pair: ends[1](self, pair) * 1001 / 1000)

    monkeypatch.setattr(exactly, "SURE", 0.01)  # doubles do not say which rows hold

    def best(epsilon: float) -> float:
        x = np.linspace(-1, 1, inputs)
        P = md.Table(x, [-3, 0, 3])
        problem = md.Problem(
            md.Minimize(P.expected()), [P.private(md.ApproximateDP(epsilon, delta)), P.unbiased()]
        )
        model = problem.to_cvxpy()
        model.solve(solver=cp.CLARABEL)
        optimum[epsilon] = float(model.value)
        if epsilon == 1.0:
            found.append(problem.solve())
        return optimum[epsilon]

    found: list[md.Result] = []
    optimum: dict[float, float] = {}
    stricter, looser = (best(1.0 + np.log1p(side)) for side in (-1e-3, 1e-3))
    best(1.0)
    (result,) = found
    assert result.value >= stricter * (1 - 1e-7) > optimum[1.0]
    assert result.lower_bound is not None and result.lower_bound <= looser * (1 + 1e-7) < optimum[1.0]


def test_vipr() -> None:
    P = md.Table([-1, 0, 1], [-3, 0, 3])
    rows = [P.private(md.ApproximateDP(1.0, 0.01)), P.unbiased(), md.named("cap", P[:, 1] <= 0.4)]
    certificate: Any = md.Problem(md.Minimize(P.worst() + 1.0), rows).solve().certificate
    text = certificate.proofs[-1].linear_bound(certificate).text(certificate.lower_bound)
    vipr_checker.Certificate(text)  # raises where it proves nothing


def test_doctored_multipliers_fail() -> None:
    P = md.Table([-1, 0, 1], [-3, 0, 3])
    certificate: Any = (
        md.Problem(md.Minimize(P.worst()), [P.private(md.PureDP(1.0)), P.unbiased()]).solve().certificate
    )
    for k in range(len(certificate.proofs[-1].multipliers)):
        changed = copy.copy(certificate.proofs[-1])
        multipliers = list(changed.multipliers)
        multipliers[k] *= Fraction(101, 100)
        object.__setattr__(changed, "multipliers", tuple(multipliers))
        altered = md.Certificate(
            certificate.question,
            certificate.law,
            certificate.value,
            certificate.lower_bound,
            (certificate.proofs[0], changed),
        )
        assert not altered.verify()
