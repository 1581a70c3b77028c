"""OPTM's model as the paper states it, extended and searched: rows, published boxes, own constraints, both checkers, bad input."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from independent import check_selection_law
from scipy import stats

import mechdesign as md
from mechdesign.evidence.exact import exp_lower
from mechdesign.quantizers.selection_problem import BoxSearch
from mechdesign.quantizers.selection_program import authors_levels
from mechdesign.verifier.verify import verify

UNIFORM = stats.uniform(-1, 2)
BINS = [-3, -0.5, 0.5, 3]
DESIGNS = {
    "theorem5": lambda: md.OPTM(BINS, md.PureDP(1.0), UNIFORM),
    "two families": lambda: md.OPTM([-4, 0.2, 0.6, 4], md.PureDP(1.0), UNIFORM),
    "across outputs": lambda: md.OPTM(
        [-4, 0.2, 0.6, 4], md.PureDP(1.0), UNIFORM, constraints="across-outputs"
    ),
    "theorem6": lambda: md.OPTM(np.linspace(-2, 2, 8), md.PureDP(4.0), UNIFORM, constraints="theorem6"),
}


def by_hand(bins: np.ndarray, epsilon: float, o: float, u: float) -> cp.Problem:
    """The paper's program at m = 4, by another hand: products q_2(i) q_2(k) with the first factor in [o, u] and [1 - u, 1 - o]."""
    b1, b2, b3, b4 = bins
    q2, q3, rho = cp.Variable(2, nonneg=True), cp.Variable(3, nonneg=True), np.exp(epsilon)

    def p1(x: float, bound: float | None) -> cp.Expression:
        """Output 1 left of x: from the first interval exactly q_3, in the middle one a product, at the end q_3 alone."""
        if bound is None and x <= b2:
            return q3[0] * (b4 - x) / (b4 - b1) + q3[1] * (b3 - x) / (b3 - b1) + q3[2] * (b2 - x) / (b2 - b1)
        if bound is None:
            return q3[0] * (b4 - x) / (b4 - b1)
        return bound * (q2[0] * (b4 - x) / (b4 - b1) + q2[1] * (b3 - x) / (b3 - b1))

    largest = [p1(-1, None), p1(b2, u), p1(b3, None)]
    smallest = [p1(b2, None), p1(b3, o), p1(1, None)]
    p2_at_3 = (1 - u) * (q2[0] * (b4 - b3) / (b4 - b2))
    p2_at_end = q3[1] * (b4 - 1) / (b4 - b2)
    p3_at_end = q3[2] * (b4 - 1) / (b4 - b3)
    pairs = [(z, w) for z in largest for w in smallest]
    pairs += [(z, w) for z in (q2[1], q3[2]) for w in (p2_at_3, p2_at_end)]
    pairs += [(z, p3_at_end) for z in (q3[2], q2[1])]
    rows = [cp.sum(q2) == 1, cp.sum(q3) == 1, q3[1] <= q2[1], q2[0] >= o, q2[0] <= u]
    rows += [z <= rho * w for z, w in pairs]
    rows += [q2[1] >= 1 - u, q2[1] <= 1 - o]
    middle, side = (b3 - b2) / 2, (1 - b3) / 2
    zeta2 = q2[0] * (b2 - b1)
    zeta3 = q3[0] * (b3 - b1) + q3[1] * (b3 - b2)
    cost = middle / 2 * (2 * zeta2 + b3 - b2) + 2 * side / 2 * (zeta3 + b4 - b3)
    return cp.Problem(cp.Minimize(cost), rows)


def test_the_rows_are_those_of_the_paper() -> None:
    """23 rows; the best of 99 boxes as published; the same program written out by hand."""
    problem = DESIGNS["theorem5"]().problem()
    rows = {one.label: one.size for one in problem.to_cvxpy().constraints}
    assert rows == {"normalisation": 3, "lower bounds": 2, "upper bounds": 2, "dominance": 1, "privacy": 15}
    assert problem.box[0][1, :2] == pytest.approx([0.67, 0.32])
    assert problem.to_cvxpy().solve(solver=cp.HIGHS) == pytest.approx(2.263621912687842, abs=1e-9)
    for level in (0.6, 0.67, 0.8):
        o, u = problem.unknown.box([level, 0.99 - level], [level + 0.01, 1 - level], row=2)
        stated = md.Problem(problem.objective, [problem.unknown.private(md.PureDP(1.5), box=(o, u))])
        other = by_hand(np.array(BINS, float), 1.5, level, level + 0.01)
        assert stated.to_cvxpy().solve(solver=cp.HIGHS) == pytest.approx(
            other.solve(solver=cp.HIGHS), abs=1e-8
        )


@pytest.mark.parametrize("name", DESIGNS)
def test_variables_and_numbers_are_one_statement(name: str) -> None:
    """What CVXPY solves at the box that is handed out is what the sweep solves there; other boxes too."""
    problem = DESIGNS[name]().problem()
    boxes = BoxSearch(problem).first_boxes()
    for low, high in (problem.box, (boxes[0][..., -1] * 0.5, problem.unknown.open * 1.0)):
        for parameter, value in zip(problem.parameters, (low, high)):
            parameter.value = value
        stated = problem.to_cvxpy()
        stated.solve(solver=cp.HIGHS)
        try:
            numbers = problem.programs.at((low[..., None], high[..., None])).program().answer().value
        except md.InfeasibleError:
            assert stated.status == "infeasible"
            continue
        assert numbers == pytest.approx(stated.value, rel=1e-8)


def test_an_own_constraint_is_kept_exactly_and_proved_by_both_checkers(tmp_path: Path) -> None:
    problem = DESIGNS["theorem5"]().problem()
    Q = problem.unknown
    capped = problem.subject_to(
        md.named("cap", Q[:, 1] <= 0.2),
        md.named("tie", Q[2, 1] == 0.75 * Q[2, 2]),
        cp.abs(Q[2, 0] - 0.5) <= 0.2,
    )
    result = capped.solve()
    left = [[Fraction(w, sum(row)) for w in row] for row in result.mechanism.law.left]
    assert (
        left[1][1] <= Fraction(0.2)
        and left[2][1] * 4 == left[2][2] * 3
        and abs(left[2][0] - Fraction(1, 2)) <= Fraction(0.2)
    )
    assert check_selection_law(result.mechanism.law, exp_lower(1.0)) and result.certificate.verify()
    assert result.value > DESIGNS["theorem5"]().solve().value and "unbiased mechanism" in str(result.among)
    assert set(result.audit().query("family in ('cap', 'tie')")["active"]) == {True, False}
    assert set(result.release([0.3, -0.2])) <= set(BINS)
    assert "cap: q_1(2) <= 0.2 (3 rows, the first)" in str(capped) and "array" in capped._repr_latex_()
    result.report(tmp_path / "capped.html")
    assert "also meets tie: q_3(2) - 0.75 q_3(3) = 0 (1 row)" in (tmp_path / "capped.html").read_text()
    result.save(tmp_path / "capped.json")
    again = md.load(tmp_path / "capped.json")
    assert again.certificate.verify() and again.value == result.value
    account = verify((tmp_path / "capped.json").read_text())
    assert all(holds for *_, holds in account.rows)
    assert "rows called 'tie' hold" in [claim for claim, *_ in account.rows]
    solved = result.problem()
    assert np.array_equal(solved.box[0], result.box[0]) and solved.solve().value == pytest.approx(
        result.value, rel=1e-6
    )


def test_a_law_outside_an_own_row_is_refused(tmp_path: Path) -> None:
    """The uncapped mechanism under the capped question."""
    problem = DESIGNS["theorem5"]().problem()
    capped = problem.subject_to(md.named("cap", problem.unknown[:, 1] <= 0.2)).solve()
    free = DESIGNS["theorem5"]().solve()
    mixed = replace(capped.certificate, law=free.mechanism, value=free.value)
    assert not mixed.verify()
    assert "rows called 'cap' hold" in mixed.checks().query("not holds")["claim"].tolist()


def test_boxes_and_bins_are_searched_in_three_lines() -> None:
    level = cp.Parameter(name="level")

    def build(delta: float, inner: float, by: object = level) -> md.Problem:
        Q = md.Selection([-1 - delta, -inner, inner, 1 + delta], (-1, 1))
        box = Q.levels(by) if isinstance(by, cp.Parameter) else by
        return md.Problem(md.Minimize(Q.lemma1(UNIFORM)), [Q.private(md.PureDP(1.0), box=box)])

    found = md.search(
        build, md.Grid(delta=[1.9, 2.0], inner=[0.4, 0.5], level=authors_levels().axes["level"])
    )
    design = md.OPTMSearch(md.PureDP(1.0), UNIFORM, bins=md.Grid(delta=[1.9, 2.0], inner=[0.4, 0.5])).solve()
    assert found.value == pytest.approx(design.value, abs=1e-9) and len(found.table) == 4 * 99
    assert found.mechanism.bins.tolist() == design.mechanism.bins.tolist()
    assert found.table.loc[0, "level"] == design.table.loc[0, "level"]
    assert found.table["value"].isna().sum() == 4 * 99 - int(design.table["feasible"].sum())
    boxes = md.search(lambda inner: build(2.0, inner, None), md.Grid(inner=[0.4, 0.5]))
    assert (boxes.value, len(boxes.table)) == (pytest.approx(found.value, abs=1e-9), 2)
    with pytest.raises(md.DesignError, match="build = 5"):
        md.search(lambda delta: 5, md.Grid(delta=[2.0]))
    with pytest.raises(md.DesignError, match="axis = 'levels'"):
        md.search(build, md.Grid(delta=[2.0], inner=[0.5], levels=[0.6]))


def test_changed_parameters_are_used() -> None:
    problem = DESIGNS["theorem5"]().problem()
    low, high = problem.unknown.box([0.67, 0.325], [0.675, 0.33], row=2)
    for parameter, narrower in zip(problem.parameters, (low.value, high.value)):
        parameter.value = narrower
    result = problem.solve()
    assert not problem.searched and np.array_equal(result.box[0], low.value) and result.certificate.verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Q, box: Q.private(md.ApproximateDP(1.0, 0.1)), "PureDP"),
        (lambda Q, box: Q.private(md.PureDP(1.0), theorem="theorem7"), "theorem = 'theorem7'"),
        (
            lambda Q, box: Q.private(md.PureDP(1.0), box=(np.ones((2, 2)), np.ones((2, 2)))),
            "shape of the unknown",
        ),
        (lambda Q, box: Q.private(md.PureDP(1.0), box=(box[1], box[0])), "need 0 <= o <= u"),
        (lambda Q, box: Q.private(md.PureDP(1.0), box=md.Grid(height=[0.5])), "axis level"),
    ],
)
def test_bad_requirements(change, message: str) -> None:
    Q = md.Selection(BINS, (-1, 1))
    with pytest.raises(md.DesignError, match=message):
        md.Problem(md.Minimize(Q.lemma1(UNIFORM)), [change(Q, Q.box())])


def test_what_cannot_be_met_is_said_with_its_rows() -> None:
    problem = DESIGNS["theorem5"]().problem()
    Q = problem.unknown
    with pytest.raises(md.InfeasibleError, match="with 'outer' is infeasible at epsilon = 1") as caught:
        problem.subject_to(md.named("outer", Q[2, 0] <= 0.3)).solve()
    assert caught.value.smallest_epsilon > 1.0
    with pytest.raises(md.DesignError, match="lemma1"):
        md.Problem(md.Minimize(cp.sum(Q)), [Q.private(md.PureDP(1.0))])
