"""Twelve programs, one of each unknown as declared and with a constraint of one's own: committed values, CVXPY's own optima, both checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier.verify import verify

PURE, APPROXIMATE = md.PureDP(1.0), md.ApproximateDP(1.0, 0.01)
TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)
CHANGES = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
Row = Callable[[Any], Any]


def table(privacy: md.PureDP | md.ApproximateDP, *rows: Row) -> md.Problem:
    P = md.Table([-1, -0.5, 0, 0.5, 1], [-3, -0.5, 0.5, 3])
    return md.Problem(
        md.Minimize(P.expected("absolute")), [P.private(privacy), P.unbiased(), *(row(P) for row in rows)]
    )


def selection(*rows: Row) -> md.Problem:
    problem = md.OPTM([-3, -0.5, 0.5, 3], PURE, stats.uniform(-1, 2)).problem()
    return problem.subject_to(*(row(problem.unknown) for row in rows)) if rows else problem


def scales(*rows: Row) -> md.Problem:
    s = md.Scales([1.0, 1.0, 1.0, 0.5], "laplace")
    return md.Problem(
        md.Minimize(s.expected("absolute", [1, 2, 0.5, 1])), [s.private(PURE), *(row(s) for row in rows)]
    )


def covariance(*rows: Row) -> md.Problem:
    S = md.Covariance(CHANGES)
    return md.Problem(
        md.Minimize(S.total()), [S.private(md.ZeroConcentratedDP(0.5)), *(row(S) for row in rows)]
    )


def lattice(*rows: Row) -> md.Problem:
    p = md.LatticeNoise(1, 14, integer=True)
    privacy = md.ApproximateDP(1.0, 1e-6)
    return md.Problem(md.Minimize(p.expected("squared")), [p.private(privacy), *(row(p) for row in rows)])


def cap(unknown: Any) -> Any:
    return md.named("cap", unknown[:, 1] <= 0.2)


def same(s: Any) -> Any:
    return md.named("same", s[0] == s[1])


def variance(S: Any) -> Any:
    return md.named("variance", S[0, 0] <= 1.45)


def rare(p: Any) -> Any:
    return md.named("rarely right", p[14] <= 0.4)


PROGRAMS: dict[str, tuple[Callable[[], md.Problem], float]] = {
    "table, pure": (lambda: table(PURE), 1.7577162947),
    "table, pure, own row": (lambda: table(PURE, cap), 1.7687790165),
    "table, approximate": (lambda: table(APPROXIMATE), 1.7161858392),
    "table, approximate, own row": (lambda: table(APPROXIMATE, cap), 1.7280128068),
    "selection": (lambda: selection(), 2.263621912687842),
    "selection, own row": (lambda: selection(cap), 2.3982522308),
    "scales": (lambda: scales(), 14.65685425),
    "scales, own row": (lambda: scales(same), 14.92820323),
    "covariance": (lambda: covariance(), 4.5),
    "covariance, own row": (lambda: covariance(variance), 4.51111111111),
    "lattice noise": (lambda: lattice(), 1.84109985387),
    "lattice noise, own row": (lambda: lattice(rare), 2.0537463792),
}


def delivered(problem: md.Problem, result: md.Result) -> float:
    """What the mechanism costs in the declared objective: of a selection Lemma 1's bound, which is not its exact loss."""
    if not isinstance(problem.unknown, md.Selection):
        return result.value
    law = result.mechanism.law
    held = np.zeros(problem.unknown.shape)
    for q, row in zip(held, law.left):
        q[: len(row)] = [w / sum(row) for w in row]
    problem.unknown.save_value(held)
    return float(problem.objective.expr.value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_optimum(name: str) -> None:
    make, value = PROGRAMS[name]
    problem = make()
    result = problem.solve()
    found = delivered(problem, result)
    # in a unit in which the numbers are next to 1: Clarabel's tolerances are absolute as well
    program = result.problem().to_cvxpy()
    alone = cp.Problem(cp.Minimize(program.objective.expr / found), program.constraints)
    alone.solve(solver=cp.CLARABEL, **TIGHT)
    assert alone.value == pytest.approx(1.0, abs=1e-7)
    assert found == pytest.approx(value, rel=1e-8)
    assert result.certificate is not None and result.certificate.verify()
    assert all(holds for *_, holds in verify(dumps(result)).rows)
    if not isinstance(problem.unknown, md.Selection):  # whose bound is of every unbiased mechanism
        assert result.gap is not None and result.gap <= 1e-7
