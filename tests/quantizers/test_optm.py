"""OPTM, its searches, RQM, ERM and MVU as designs: published numbers, certificates, bad input."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from independent import check_selection_law
from scipy import stats
from scipy.optimize import linprog

import mechdesign as md
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import dumps
from mechdesign.model.exactly import refuted
from mechdesign.quantizers.families import SelectionFamilies
from mechdesign.quantizers.selection_problem import BoxSearch
from mechdesign.quantizers.selection_program import authors_boxes
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Status
from mechdesign.verifier.verify import verify

UNIFORM = stats.uniform(-1, 2)
POINTS = np.linspace(-1, 1, 51)


@pytest.mark.parametrize(
    ("epsilon", "bins", "fifty_one", "exact"),
    [
        (0.5, [-6, -0.4, 0.4, 6], 3.9041, 3.8978),
        (1.0, [-3, -0.5, 0.5, 3], 1.8818, 1.8785),
        (1.5, [-3, -0.5, 0.5, 3], 1.1794, 1.1737),
    ],
)
def test_published_rows(epsilon: float, bins: list[float], fifty_one: float, exact: float) -> None:
    """51-point means to ±0.0005, exact means to 1e-4, certified loss within the budget exactly."""
    result = md.OPTM(bins=bins, privacy=md.PureDP(epsilon), prior=UNIFORM).solve("highs")
    assert result.mechanism.loss_at(POINTS).mean() == pytest.approx(fifty_one, abs=5e-4)
    assert result.value == pytest.approx(exact, abs=1e-4)
    assert result.mechanism.privacy_loss() <= epsilon and result.certificate.verify()
    assert check_selection_law(result.mechanism.law, exp_lower(epsilon))
    floats = md.OPTM(bins=bins, privacy=md.PureDP(epsilon), prior=UNIFORM).solve("highs", certify=False)
    assert floats.mechanism.privacy_loss() == pytest.approx(epsilon, abs=1e-4)
    assert result.value <= floats.value * (1 + 1e-9)


def test_program_objective_bounds_the_loss_and_its_bilinear_form_is_exact() -> None:
    rng = np.random.default_rng(1)
    for loss in ("absolute", "squared"):
        for prior in (UNIFORM, md.clipped(stats.norm(0.5, 0.4), -1, 1), np.array([-1, -0.5, 0.2, 0.5, 1.0])):
            design = md.OPTM([-2, -0.5, 0.5, 2.5], md.PureDP(1.0), prior, loss, input_range=(-1, 1))
            table = np.tril(rng.uniform(0.1, 1, (3, 3)))
            table /= table.sum(axis=1, keepdims=True)
            mechanism = md.Quantizer.from_selection(design.bins, table, table, (-1, 1))
            problem = design.problem()
            Q = problem.unknown
            Q.value = q = np.concatenate([table, table])[: Q.shape[0]]
            exact = mechanism.expected_loss(prior, loss)
            assert Q.expected(q[None], Q.lemma1(problem.prior, problem.loss).question)[0] == pytest.approx(
                exact, rel=1e-12
            )
            assert problem.objective.value >= exact - 1e-12


@pytest.mark.slow
def test_theorem_5_with_more_bins_and_theorem_6() -> None:
    """Successive linearisation is no worse than RQM, a member of the family; the compact program gives § 3's 3.73 and 0.508."""
    bins, privacy = np.linspace(-2, 2, 8), md.PureDP(2.0)
    member = (
        md.RQM(8, privacy, UNIFORM, grid=md.Grid(delta=[1.0], q=np.linspace(0.05, 0.9, 18)))
        .solve(zoom=0)
        .mechanism
    )
    result = md.OPTM(bins, privacy, UNIFORM).solve()
    assert result.value <= member.expected_loss(UNIFORM) * (1 + 1e-9)
    assert result.mechanism.privacy_loss() <= 2.0
    sixteen = md.OPTM(np.linspace(-2, 2, 16), md.PureDP(5.0), UNIFORM, constraints="theorem6").solve()
    assert sixteen.value == pytest.approx(0.508, abs=2e-3)
    assert sixteen.mechanism.privacy_loss() == pytest.approx(3.73, abs=1e-2)


def test_more_than_four_outputs_around_all_inputs() -> None:
    """One family of each side answers everybody."""
    result = md.OPTM(np.linspace(-30, 30, 6), md.PureDP(0.08), UNIFORM).solve()
    assert result.certificate.verify() and result.gap < 0.02


@pytest.mark.parametrize("outer", [1.51, 3.0, 30.0])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 20.0])
def test_theorem_6_contradicts_itself_at_every_epsilon_where_the_outer_bins_are_far(
    outer: float, epsilon: float
) -> None:
    """With m = 4 its order asks for (B_4 - B_3) / (B_4 - B_2) <= q_2(1) <= 1/2."""
    with pytest.raises(md.InfeasibleError, match="infeasible at every epsilon") as caught:
        md.OPTM([-outer, -0.5, 0.5, outer], md.PureDP(epsilon), UNIFORM, constraints="theorem6").solve()
    assert caught.value.smallest_epsilon is None and "log 3" not in str(caught.value)


@pytest.mark.parametrize(
    "bins", [[-3, -0.5, 0.5, 3], [-3, -1.2, 0.1, 0.7, 3.5], [-1, -0.3, 0, 0.3, 1], [-2, 2]]
)
def test_probability_of_an_output_is_bounded_whatever_the_selection_is(bins: list[float]) -> None:
    """At any input and at each; exact inside the range where no bin is likelier elsewhere than at itself, and at two bins."""
    Q, draws = md.Selection(bins, (-1, 1)), np.random.default_rng(7)
    m, x = len(bins), np.append(np.linspace(-1, 1, 81), np.clip(bins, -1, 1))
    for k in range(20):
        q = draws.random(Q.shape) ** 3 * Q.open
        if k == 0:  # every bin likeliest at itself
            q = np.tile(np.eye(m - 1), (len(q) // (m - 1), 1)) + 1e-3 * Q.open
        q /= q.sum(axis=1, keepdims=True)
        Q.save_value(q)
        families = SelectionFamilies(np.array(bins, float), q[: m - 1], q[-(m - 1) :])
        sent = md.Quantizer.of_selection(families, Q.input_range).probabilities(x)
        most = np.concatenate(families.segments(Q.input_range)[1:]).max(axis=0)  # limits from both sides
        for y in range(m):
            assert Q.probability(y).value >= most[y] - 1e-12
            at = np.array([Q.probability(y, place).value for place in x[::8]])
            assert (at >= sent[::8, y] - 1e-12).all() and at.max() <= Q.probability(y).value + 1e-12
            if m == 2 or (k == 0 and -1 <= bins[y] <= 1):
                assert Q.probability(y).value == pytest.approx(most[y])


def test_a_cap_on_an_output_is_met_and_proved() -> None:
    problem = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).problem()
    Q = problem.unknown
    for output, most in ((1, 0.25), (0, 0.5)):
        result = problem.subject_to(md.named("cap", Q.probability(output) <= most)).solve()
        assert result.mechanism.probabilities(np.linspace(-1, 1, 401))[:, output].max() == pytest.approx(most)
        assert all(holds for *_, holds in verify(dumps(result)).rows) and result.certificate.verify()
    for wrong in (lambda: Q.probability(4), lambda: Q.probability(0, 1.1), lambda: Q.probability(1.5)):
        with pytest.raises(md.DesignError, match=r"output|x ="):
            wrong()
    with pytest.raises(md.DesignError, match="not convex"):  # nothing bounds it from below
        problem.subject_to(Q.probability(1) >= 0.2)


# -- The searches over OPTM's bounds and bins, RQM and ERM: published bins, resumed, shared and limited ------

SEARCH = {
    "bins": md.Grid(delta=[1.8, 1.9, 2.0], inner=[0.4, 0.5, 0.6]),
    "boxes": md.Grid(level=np.arange(60, 75) / 100, width=[0.01]),
}


def test_a_grid_outside_the_budget_names_the_smallest_loss() -> None:
    with pytest.raises(md.InfeasibleError, match="smallest loss met"):
        md.ERM(4, md.PureDP(0.01), UNIFORM, grid=md.Grid(delta=[1], inner=[0.5], gamma=[0.5, 1])).solve()


@pytest.mark.slow
def test_search_finds_the_published_bins_in_parallel_too(tmp_path: Path) -> None:
    search = md.OPTMSearch(md.PureDP(1.0), UNIFORM, **SEARCH)
    one = search.solve(store=tmp_path / "one.jsonl")
    assert one.mechanism.bins.tolist() == [-3.0, -0.5, 0.5, 3.0] and one.table["programs"].sum() == 135
    two = search.solve(store=tmp_path / "two.jsonl", jobs=2)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert two.value == one.value


def test_a_search_delivers_the_best_of_its_table() -> None:
    found = md.OPTMSearch(md.PureDP(1.0), UNIFORM, **SEARCH).solve()
    assert found.status is Status.FEASIBLE and 0 < found.gap < 0.2 and found.certificate.verify()
    box = md.Grid(level=[found.table.loc[0, "level"]], width=[0.01])
    again = md.OPTM(found.mechanism.bins, md.PureDP(1.0), UNIFORM, box=box).solve()
    assert found.value == pytest.approx(found.table["value"].min(), rel=1e-9) == pytest.approx(again.value)
    assert set(found.duals["family"]) >= {"model: privacy", "model: lower bounds"}


# -- OPTM's model as the paper states it, extended and searched: rows, published boxes, own constraints, both checkers, bad input

BINS = [-3, -0.5, 0.5, 3]
THEOREM_5 = md.OPTM(BINS, md.PureDP(1.0), UNIFORM)


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
    problem = THEOREM_5.problem()
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


def test_an_own_constraint_is_kept_exactly_and_proved_by_both_checkers() -> None:
    problem = THEOREM_5.problem()
    Q = problem.unknown
    capped = problem.subject_to(
        md.named("cap", Q[:, 1] <= 0.2),
        md.named("tie", Q[2, 1] == 0.75 * Q[2, 2]),
        cp.abs(Q[2, 0] - 0.5) <= 0.2,
    )
    result = capped.solve()
    left = [[Fraction(w, sum(row)) for w in row] for row in result.mechanism.law.left]
    assert left[1][1] <= Fraction(0.2) and left[2][1] * 4 == left[2][2] * 3
    assert abs(left[2][0] - Fraction(1, 2)) <= Fraction(0.2)
    assert check_selection_law(result.mechanism.law, exp_lower(1.0)) and result.certificate.verify()
    assert result.value > THEOREM_5.solve().value and "unbiased mechanism" in str(result.mechanism_class)
    assert set(result.audit().query("family in ('cap', 'tie')")["active"]) == {True, False}
    assert "cap: q_1(2) <= 0.2 (3 rows, the first)" in str(capped) and "array" in capped._repr_latex_()
    account = verify(dumps(result))
    assert all(holds for *_, holds in account.rows)
    assert "rows called 'tie' hold" in [claim for claim, *_ in account.rows]
    solved = result.problem()
    assert np.array_equal(solved.box[0], result.box[0])
    assert solved.solve().value == pytest.approx(result.value, rel=1e-6)


@pytest.mark.parametrize("families", ["symmetric", pytest.param("separate", marks=pytest.mark.slow)])
def test_what_rows_with_further_columns_forbid_is_proved(
    families: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """q_1(1) = 1, so that a limit on the largest two of the first row is at least 1; the same multipliers prove nothing beyond."""
    problem = md.OPTM(BINS, md.PureDP(1.0), stats.uniform(-1, 2), families=families).problem()
    most, box = cp.Parameter(value=0.9), [side[..., None] for side in problem.box]
    limited = problem.subject_to(md.named("largest", cp.sum_largest(problem.unknown[0], 2) <= most))
    others = md.named("harmless", problem.unknown[2, 0] <= 0.99), md.named("free", problem.unknown[0, 0] >= 0)
    with pytest.raises(md.InfeasibleError, match=r"no selection meets 'largest' \(proved in rationals\)$"):
        limited.subject_to(*others).solve()
    ray = BoxSearch(limited).programs(box).program().ray()
    monkeypatch.setattr(LinearProgram, "ray", lambda self: ray)
    for value, proved in ((0.9, True), (1 - 1e-9, True), (1.0, False), (1.1, False)):
        most.value = value
        assert refuted(BoxSearch(limited).programs(box).program()) is proved


def test_boxes_and_bins_are_searched_in_three_lines() -> None:
    level = cp.Parameter(name="level", bounds=[0.01, 0.99])  # 0 and 1, where the box is read, are outside

    def build(delta: float, inner: float, by: object = level) -> md.Problem:
        Q = md.Selection([-1 - delta, -inner, inner, 1 + delta], (-1, 1))
        box = Q.box_at(by) if isinstance(by, cp.Parameter) else by
        return md.Problem(md.Minimize(Q.lemma1(UNIFORM)), [Q.private(md.PureDP(1.0), box=box)])

    found = md.search(build, md.Grid(delta=[1.9, 2.0], inner=[0.4, 0.5], level=authors_boxes().axes["level"]))
    design = md.OPTMSearch(md.PureDP(1.0), UNIFORM, bins=md.Grid(delta=[1.9, 2.0], inner=[0.4, 0.5])).solve()
    assert found.value == pytest.approx(design.value, abs=1e-9) and len(found.table) == 4 * 99
    assert found.mechanism.bins.tolist() == design.mechanism.bins.tolist()
    assert found.table.loc[0, "level"] == design.table.loc[0, "level"]
    assert found.table["value"].isna().sum() == 4 * 99 - int(design.table["feasible"].sum())
    boxes = md.search(lambda inner: build(2.0, inner, None), md.Grid(inner=[0.4, 0.5]))
    assert (boxes.value, len(boxes.table)) == (pytest.approx(found.value, abs=1e-9), 2)
    with pytest.raises(md.DesignError, match="axis = 'levels'"):
        md.search(build, md.Grid(delta=[2.0], inner=[0.5], levels=[0.6]))


# -- The selection family as blocks, and successive linearisation: identities, an exhaustive oracle, certificates


def best_of_four_bins(near: float, far: float, epsilon: float, shares: np.ndarray) -> float:
    """Oracle: for fixed q_2 the problem is a linear program in q_3; scan q_2(1). Uniform inputs, absolute loss.

    Written from § 2 of the specification for bins ±near, ±far: unknowns q_3(1..3) and one floor per mirrored pair.
    """
    b = np.array([-far, -near, near, far])
    rho = math.exp(epsilon)

    def outer_rows(x: float) -> np.ndarray:
        """p(x, ·) on [−1, −near) as rows in q_3: the left index is 1 for sure, r = 2, 3, 4 has q_3(5 − r)."""
        rows = np.zeros((4, 3))
        for r in (1, 2, 3):
            share = (b[r] - x) / (b[r] - b[0])
            rows[0, 3 - r] += share
            rows[r, 3 - r] += 1 - share
        return rows

    cost = np.zeros(3)
    for r in (1, 2, 3):  # ∫ 2 (x − B_1)(B_r − x)/(B_r − B_1) dx/2 over [−1, −near], and its mirror image
        cost[3 - r] = 2 * _integral(b[0], b[r], -1.0, -near) / (b[r] - b[0])
    best = math.inf
    for share in shares:
        q = np.array([share, 1 - share])  # of the far and of the near bin, both sides alike
        centre, value = np.zeros((2, 4)), 0.0
        for i in (0, 1):
            for r in (0, 1):
                low, high, weight = b[i], b[3 - r], q[i] * q[r]
                value += weight * _integral(low, high, -near, near) / (high - low)
                for k, x in enumerate((-near, near)):
                    centre[k, i] += weight * (high - x) / (high - low)
                    centre[k, 3 - r] += weight * (x - low) / (high - low)
        matrix, rhs = [], []
        for x in (-1.0, -near):
            for i, row in enumerate(outer_rows(x)):
                pair = min(i, 3 - i)
                for sign, factor in ((1.0, rho), (-1.0, 1.0)):
                    line = np.zeros(5)
                    line[:3] = sign * row
                    line[3 + pair] = -sign * factor
                    matrix.append(line)
                    rhs.append(0.0)
        for row in centre:
            for i, p in enumerate(row):
                for sign, factor in ((1.0, rho), (-1.0, 1.0)):
                    line = np.zeros(5)
                    line[3 + min(i, 3 - i)] = -sign * factor
                    matrix.append(line)
                    rhs.append(-sign * p)
        answer = linprog(
            np.append(cost, [0, 0]), A_ub=matrix, b_ub=rhs, A_eq=[[1, 1, 1, 0, 0]], b_eq=[1], method="highs"
        )
        if answer.status == 0:
            best = min(best, answer.fun + value)
    return best


def _integral(low: float, high: float, start: float, end: float) -> float:
    """∫ (x − low)(high − x) dx from start to end: twice the mean of 2 (…)(…) against the density 1/2 is taken by the caller."""

    def primitive(x: float) -> float:
        return -(x**3) / 3 + (low + high) * x * x / 2 - low * high * x

    return primitive(end) - primitive(start)


@pytest.mark.slow
@pytest.mark.parametrize(("near", "far", "epsilon"), [(0.4, 6.0, 0.5), (0.5, 3.0, 1.0), (0.5, 3.0, 1.5)])
def test_four_bins_against_an_exhaustive_scan(near: float, far: float, epsilon: float) -> None:
    """The global optimum of the family, by a scan over its only product; at most the paper's program's value."""
    bins = [-far, -near, near, far]
    found = md.OPTM(bins, md.PureDP(epsilon), UNIFORM, box="successive").solve()
    coarse = best_of_four_bins(near, far, epsilon, np.linspace(0.005, 0.995, 199))
    assert found.value <= coarse * (1 + 1e-6)
    share = found.to_frame().query("side == 'left' and interval == 2 and bin == 1")["probability"].item()
    fine = best_of_four_bins(near, far, epsilon, share + np.linspace(-0.005, 0.005, 41))
    assert found.value == pytest.approx(fine, rel=1e-5)
    assert found.value <= md.OPTM(bins, md.PureDP(epsilon), UNIFORM).solve().value
    assert found.mechanism.privacy_loss() <= epsilon
    assert check_selection_law(found.mechanism.law, exp_lower(epsilon))


def test_infeasible_exactly_where_nothing_is_unbiased() -> None:
    bins = [-1.5, -0.5, 0.0, 0.5, 1.5]
    with pytest.raises(md.InfeasibleError, match=r"smallest feasible epsilon is 1\.60943791") as caught:
        md.OPTM(bins, md.PureDP(1.6), UNIFORM).solve()
    assert caught.value.smallest_epsilon == pytest.approx(math.log(5))
    assert md.OPTM(bins, md.PureDP(1.61), UNIFORM).solve().mechanism.privacy_loss() <= 1.61
    with pytest.raises(md.DesignError, match="outputs = 2: must be an integer of at least 4"):
        md.OPTM(bins, md.PureDP(2.0), UNIFORM).solve(outputs=2)


def test_the_audit_has_the_program_with_its_multipliers() -> None:
    """Every limit against its floor; multipliers only where a limit is active, and the costs of privacy add up."""
    result = md.OPTM(np.linspace(-2, 2, 6), md.PureDP(1.5), UNIFORM).solve()
    audit = result.audit()
    model = audit[audit["family"].str.startswith("model")]
    assert set(model["family"]) == {"model: floor", "model: ceiling"}
    assert (model["slack"] >= -1e-12).all() and model["index"].str.match(r"p\(-?[\d.]+[+-], \d\)").all()
    ceiling = model[model["family"] == "model: ceiling"]
    assert (ceiling.loc[ceiling["dual"] > 1e-6, "slack"] <= 1e-6).all()
    priced = float((ceiling["dual"] * ceiling["rhs"]).sum())
    more = md.OPTM(np.linspace(-2, 2, 6), md.PureDP(1.501), UNIFORM).solve()
    assert (result.value - more.value) / 1e-3 == pytest.approx(priced, rel=0.02)


def test_a_law_outside_an_own_row_is_refused() -> None:
    """The uncapped mechanism under the capped question."""
    problem = THEOREM_5.problem()
    capped = problem.subject_to(md.named("cap", problem.unknown[:, 1] <= 0.2)).solve()
    free = THEOREM_5.solve()
    mixed = replace(capped.certificate, law=free.mechanism, value=free.value)
    assert not mixed.verify()
    assert "rows called 'cap' hold" in mixed.checks().query("not holds")["claim"].tolist()


@pytest.mark.slow
def test_convex_rows_with_little_room() -> None:
    law = stats.uniform(-1, 2)
    problem = md.OPTM([-2.5, -0.4, 0.4, 2.5], md.PureDP(1.5), law, families="separate").problem()
    near = cp.sum(cp.sqrt(problem.unknown[1, :2])) >= 1.41421  # √2 is the most
    assert problem.subject_to(near).solve().certificate.verify()
    problem = md.OPTM([-4, -2, -0.7, 0.7, 2, 4], md.PureDP(2.0), law).problem()
    few = cp.norm(problem.unknown[2]) <= 0.7965  # outputs that rows leave out stay out
    assert problem.subject_to(few).solve().certificate.verify()


def test_a_convex_row_that_is_not_piecewise_linear(tmp_path: Path) -> None:
    """By tangents, to the optimum of CVXPY in the same box; a file holds the tangents only."""
    model = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.2), stats.uniform(-1, 2)).problem()
    small, found, large = (
        model.subject_to(md.named("even", size * cp.norm(model.unknown[2]) <= size * 0.59)).solve()
        for size in (1e-300, 1.0, 1e300)
    )
    assert small.value == pytest.approx(found.value) and large.value == pytest.approx(found.value)
    assert found.certificate.verify() and {"tangents of even", "even"} <= set(found.audit()["family"])
    reference: Any = found.problem().to_cvxpy()
    reference.solve(solver=cp.CLARABEL)
    chosen = found.mechanism.selection.left
    model.unknown.save_value(chosen)
    assert np.linalg.norm(chosen[2]) <= 0.59
    assert model.objective.expr.value == pytest.approx(reference.value, rel=1e-5)
    found.save(tmp_path / "optm.json")
    assert all(holds for *_, holds in verify((tmp_path / "optm.json").read_text()).rows)
    loaded = md.load(tmp_path / "optm.json").design
    with pytest.raises(md.DesignError, match="declare them again"):
        loaded.subject_to(loaded.unknown <= 0.9)
