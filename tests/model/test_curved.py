"""Convex functions that are no linear rows: solved as cones, bounded by tangents, and called recomputed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import mechdesign as md
from mechdesign.verifier.verify import verify

P = md.Table([-1, -0.5, 0, 0.5, 1], [-3, -0.5, 0.5, 3])
PRIVATE = [P.private(md.PureDP(1.0)), P.unbiased()]
CASES: dict[str, tuple[Any, list[Any]]] = {
    "objective": (cp.sum_squares(P), []),
    "entropy": (-cp.sum(cp.entr(P)), []),
    "largest of several": (cp.max(cp.sum(cp.square(P), axis=1)), []),
    "row": (P.expected(), [md.named("spread", cp.norm(P[:, 1]) <= 0.3)]),
    "rows without a name": (
        P.expected("squared"),
        [cp.sum(cp.square(P), axis=1) <= 0.4, cp.abs(P[0, 0] - 0.4) <= 0.1],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_optimum_and_claims(case: str, tmp_path: Path) -> None:
    objective, rows = CASES[case]
    problem = md.Problem(md.Minimize(objective), [*PRIVATE, *rows])
    result = problem.solve()
    reference: Any = problem.to_cvxpy()
    reference.solve(solver=cp.CLARABEL, tol_gap_rel=1e-11, tol_gap_abs=1e-11, tol_feas=1e-11)
    assert result.value == pytest.approx(reference.value, rel=1e-7)
    assert result.gap is not None and result.gap < 1e-7
    assert result.certificate is not None and result.certificate.verify()
    held = result.checks().set_index("claim")["how"].to_dict()
    assert held["private: ε = 1, all pairs of inputs"] == "proved"
    assert next(how for claim, how in held.items() if "no table within" in claim) == "recomputed"
    P.save_value(result.mechanism.probabilities)
    assert all(np.max(one.expr.value) < 1e-8 for one in rows)

    path = tmp_path / "table.json"
    result.save(path)
    again = md.load(path)
    assert again.certificate.verify() and all(holds for *_, holds in verify(path.read_text()).rows)
    held = again.checks().set_index("claim")["how"].to_dict()
    assert next(how for claim, how in held.items() if "no table within" in claim) == "claimed"
    with pytest.raises(md.DesignError, match="declare them again"):
        again.design.subject_to(again.design.unknown[:, 0] <= 0.5)


def test_missed_rows_are_not_delivered() -> None:
    with pytest.raises((md.InfeasibleError, md.SolverError)):
        md.Problem(md.Minimize(P.expected()), [*PRIVATE, cp.norm(P[0]) <= 0.3]).solve()


def test_infeasible_families_are_named() -> None:
    """Those of linear rows are proved in rationals whatever the objective is; convex functions contradict by tangents."""
    private, goal = P.private(md.PureDP(1.0)), md.Minimize(cp.sum_squares(P))
    near = md.named("near", P.expected("absolute") <= 0.4)
    with pytest.raises(
        md.InfeasibleError, match=r"'private' and 'near' together \(proved in rationals\); some"
    ):
        md.Problem(goal, [private, near]).solve()
    even = md.named("even", cp.norm(P[0]) <= 0.6)
    sure = md.named("sure", P[0, 1] >= 0.7)
    with pytest.raises(md.InfeasibleError, match=r"'even' and 'sure' together \(recomputed by tangents\)"):
        md.Problem(md.Minimize(P.expected()), [private, even, sure]).solve()


@pytest.mark.parametrize("certify", [True, False])
def test_out_of_time_a_constant_output_keeps_the_functions_themselves(certify: bool) -> None:
    """Tangents lie below: an output that keeps them alone may break its row, and costs more than they say."""
    private = P.private(md.PureDP(1.0))
    late = md.Problem(md.Minimize(cp.sum_squares(P)), [private]).solve(time_limit=1e-9, certify=certify)
    assert late.value == pytest.approx(5.0)  # each of five inputs is answered surely
    half = md.named("half", cp.norm(P[:, 0] - 0.5) <= 0.4)
    with pytest.raises(md.SolverError, match="time limit"):
        md.Problem(md.Minimize(P.expected()), [private, half]).solve(time_limit=1e-9, certify=certify)
