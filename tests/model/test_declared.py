"""Declared problems of every unknown: saved, copied and extended, and solved again where a number of theirs is changed."""

import itertools
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cheap
import cvxpy as cp
import numpy as np
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.model import table_problem
from mechdesign.model.program import Program
from mechdesign.model.symmetry import Symmetry
from mechdesign.verifier.verify import verify

Entry = Callable[[Any], Any]
ENTRIES: dict[str, tuple[Entry, float, float]] = {
    "table-problem": (lambda P: P[0, 0], 0.6, 0.512),
    "scales-problem": (lambda s: s[2], 3.0, 2.49),
    "covariance-problem": (lambda S: S[0, 0], 1.5, 1.3),
    "lattice-problem": (lambda p: p[8], 0.4, 0.28),
    "selection-problem": (lambda Q: Q[2, 2], 0.4, 0.27),
}
"""A number of the unknown, a limit above what it is at the optimum, and one below."""


def limited(problem: md.Problem, name: str, limit: Any) -> md.Problem:
    return problem.subject_to(md.named("further", ENTRIES[name][0](problem.unknown) <= limit))


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_read_or_copied_is_solved_again_and_extended(name: str, tmp_path: Path) -> None:
    result: Any = cheap.solved(name)
    result.save(tmp_path / "result.json")
    loaded = md.load(tmp_path / "result.json")
    assert dumps(loaded) == dumps(result) and str(loaded) == str(result)
    for again in (loaded.design, pickle.loads(pickle.dumps(result.design))):
        assert str(again) == str(result.design) and dumps(again) == dumps(result.design)
        assert again.solve().value == pytest.approx(result.value, rel=1e-7)
        tight = limited(again, name, ENTRIES[name][2]).solve()
        assert tight.value > result.value * (1 + 1e-6) and tight.certificate.verify()


@pytest.mark.parametrize("name", ENTRIES)
def test_a_number_that_changes_is_a_parameter(name: str) -> None:
    """Each result is of the value that the parameter had."""
    free, limit = cheap.solved(name), cp.Parameter(name="limit")
    asked = limited(cheap.DESIGNS[name][0](), name, limit)
    assert "limit" in [parameter.name() for parameter in asked.parameters]
    with pytest.raises(md.DesignError, match="limit"):
        asked.solve()
    results = []
    for limit.value in ENTRIES[name][1:]:
        results.append(asked.solve())
    limit.value = 1e-3
    values = [result.value for result in results]
    assert values == [pytest.approx(free.value, rel=1e-6), pytest.approx(max(values))]
    assert values[1] > values[0]
    assert all(result.certificate.verify() and result.audit()["slack"].min() >= -1e-12 for result in results)


# -- Symmetries of a declared problem: found or given, they change neither the optimum nor what is proved, and rows that break them drop them


def counts(n: int, privacy: object, s: int = 1) -> md.Problem:
    P = md.Table(range(n + 1), range(n + 1), of="data")
    pairs = [(x, y) for x, y in itertools.combinations(range(n + 1), 2) if y - x <= s]
    return md.Problem(md.Minimize(P.worst("squared")), [P.private(privacy, between=pairs)])


def places(side: int, **options: object) -> md.Problem:
    space = md.MetricSpace.grid(side, side)
    P = md.Table(range(side * side), range(side * side))
    asked = md.MetricDP(0.7, metric=space) if not options else options["privacy"]
    return md.Problem(md.Minimize(P.expected(space.distances)), [P.private(asked)])


def unbiased(n: int) -> md.Problem:
    """Half of the rows of zero bias are mirrored onto −1 times the others, and that of 0 onto −1 times itself."""
    P = md.Table(np.linspace(-1, 1, n), np.linspace(-2.5, 2.5, n + 1))
    return md.Problem(md.Minimize(P.expected()), [P.private(md.PureDP(1.0)), P.unbiased()])


@pytest.mark.parametrize(
    ("problem", "variables"),
    [
        (counts(7, md.PureDP(1.0)), 32),
        (counts(8, md.ApproximateDP(1.0, 0.01)), 41),
        (counts(6, md.ApproximateDP(0.5, 1e-5), 3), 25),
        (places(3), 15),
        (places(5, privacy=md.PureDP(1.0)), 91),
        (unbiased(5), 15),
        (unbiased(12), 78),
        (places(3, privacy=md.TradeOff([(1.0, 0.01), (2.0, 0.0)])), 15),
    ],
)
def test_the_optimum_is_that_without_symmetry(problem: md.Problem, variables: int) -> None:
    plain, found = problem.solve(), problem.solve(symmetry="find")
    assert Symmetry.of(problem.declared, "find").cells.max() + 1 == variables
    assert found.value == pytest.approx(plain.value, rel=1e-8)
    assert found.certificate.verify() and found.gap <= 1e-8
    assert found.lower_bound <= plain.value


def weighed(row: bool) -> md.Problem:
    """36 places whose farther ones hardly count, by their probability or by the size of their rows."""
    P, weights = (
        md.Table(range(36), range(-3 * row, 36 + 3 * row)),
        np.exp(-np.arange(36.0) / (1 if row else 2)),
    )
    rows = [P.private(md.ApproximateDP(1.0, 0.01) if row else md.PureDP(12.0), between="adjacent")]
    rows += [cp.multiply(weights, P.bias()) == 0] if row else []
    return md.Problem(md.Minimize(P.expected("squared") if row else P.expected("absolute", weights)), rows)


def curved(row: bool) -> md.Problem:
    """A square under a maximum, or a divergence, whose slope is infinite where a cell is 0."""
    P, weights = (
        (md.Table(range(9), range(10)), np.ones(9) / 9)
        if row
        else (md.Table(range(3), range(3)), np.array([0.5, 0.3, 0.2]))
    )
    errors = cp.sum(cp.multiply(np.abs(np.subtract.outer(P.inputs, P.outputs)), P), axis=1)
    asked = weights @ errors if row else weights @ errors + cp.max(cp.square(errors)) / 3
    privacy = md.ApproximateDP(8.0, 0.05) if row else md.PureDP(0.3)
    rows = [P.private(privacy, between="adjacent")] + ([cp.sum(cp.kl_div(P[0], P[8])) <= 0.05] if row else [])
    return md.Problem(md.Minimize(asked), rows)


@pytest.mark.parametrize("row", [False, True])
@pytest.mark.parametrize("problem", [weighed, curved])
def test_what_is_small_or_curved_is_bounded(problem: Callable[[bool], md.Problem], row: bool) -> None:
    assert problem(row).solve().gap < 1e-8


def test_what_a_solver_hardly_sees_is_bounded() -> None:
    """Tails of a prior make a chain of duals below 1e-14; a norm costs 500 times the room that it is left."""
    P, tails = md.Table(range(41), range(41)), np.cumprod(np.append(np.exp(-4.0), 4 / np.arange(1, 41)))
    private = P.private(md.PureDP(2.0), between="adjacent")
    assert md.Problem(md.Minimize(P.expected("absolute", tails)), [private]).solve().gap < 3e-8
    P = md.Table(range(11), np.linspace(0, 10, 4))
    rows = [P.private(md.ApproximateDP(8.0, 0.001), between="adjacent"), cp.norm(P[:, 0]) <= 0.8457]
    asked = P.expected("absolute", np.arange(11.0, 0, -1))
    assert md.Problem(md.Minimize(asked), rows).solve().gap < 1e-9


def test_a_row_that_breaks_a_permutation_drops_it() -> None:
    problem, turned = counts(6, md.ApproximateDP(1.0, 0.01)), np.arange(7)[::-1]
    assert not problem.solve(symmetry=[(turned, turned)]).notes
    assert problem.solve(symmetry=[]).solver_report.variables == problem.solve().solver_report.variables
    P = problem.unknown
    capped = problem.subject_to(md.named("cap", P[0, 0] >= 0.7))
    found = capped.solve(symmetry=[(turned, turned)])
    assert "1 of the permutations" in found.notes[0]
    assert found.value == pytest.approx(capped.solve().value, rel=1e-8)
    both = capped.subject_to(md.named("the same at the other end", P[6, 6] >= 0.7))
    assert not both.solve(symmetry=[(turned, turned)]).notes
    for bad in (True, [(turned,)], [(turned * 1.0, turned)], [([6, [5]], turned)], [(turned, turned[1:])]):
        with pytest.raises(md.DesignError, match="list of permutations"):
            problem.solve(symmetry=bad)


def test_a_large_table_on_a_metric_has_a_variable_for_each_orbit() -> None:
    assert places(6).solve().solver_report.variables < 200


@pytest.mark.parametrize("rounds", [1, 9])
def test_a_large_table_on_a_metric_is_solved_by_rounds(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """By an interior-point method: with rows still missing the law is private all the same, and the bound below."""
    problem = places(4)
    problem = problem.subject_to(md.named("cap", problem.unknown[5, 5] <= 0.3))
    exact = problem.solve()
    monkeypatch.setattr(table_problem, "_SIMPLEX", 0)
    grown = Program.grown
    left = iter(range(rounds - 1))
    monkeypatch.setattr(Program, "grown", lambda self: grown(self) if next(left, None) is not None else 0)
    found = problem.solve(gap=1e-6)
    assert found.certificate.verify()
    assert found.lower_bound <= exact.value <= found.value * (1 + 1e-9)
    assert found.gap <= (1e-6 if rounds > 1 else 0.2)


# -- Convex functions that are no linear rows: solved as cones, bounded by tangents, and called recomputed ---

P = md.Table([-1, -0.5, 0, 0.5, 1], [-3, -0.5, 0.5, 3])
PRIVATE = [P.private(md.PureDP(1.0)), P.unbiased()]
NOISE = md.LatticeNoise(1, 30, integer=True)
CASES: dict[str, tuple[Any, list[Any]]] = {
    "noise": (NOISE.expected("squared"), [md.named("peak", cp.norm(NOISE) <= 0.4)]),
    "noise, entropy": (NOISE.expected("squared"), [md.named("entropy", cp.sum(cp.entr(NOISE)) >= 1.9)]),
    "objective": (cp.sum_squares(P), []),
    "entropy": (-cp.sum(cp.entr(P)), []),
    "largest of several": (cp.max(cp.sum(cp.square(P), axis=1)), []),
    "row": (P.expected() + cp.sum_largest(P, 3), [md.named("spread", cp.norm(P[:, 1]) <= 0.3), cp.sum_largest(P[:, 2:], 2) <= 0.95]),
    "rows without a name": (P.expected("squared"), [cp.sum(cp.square(P), axis=1) <= 0.4, cp.abs(P[0, 0] - 0.4) <= 0.1]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_optimum_and_claims(case: str, tmp_path: Path) -> None:
    objective, rows = CASES[case]
    table = not case.startswith("noise")
    private = PRIVATE if table else [NOISE.private(md.ApproximateDP(1.0, 1e-6))]
    problem = md.Problem(md.Minimize(objective), [*private, *rows])
    result = problem.solve()
    problem.unknown.save_value(None)  # CVXPY fails at sum_largest of a table with values
    reference: Any = problem.to_cvxpy()
    reference.solve(solver=cp.CLARABEL, **dict.fromkeys(("tol_gap_rel", "tol_gap_abs", "tol_feas"), 1e-10))
    # a solver's tolerance of masses is no small part of δ = 1e-6
    near = 1e-7 if table else 1e-5
    assert result.value == pytest.approx(reference.value, rel=near) and result.gap < near
    assert result.certificate.verify()
    held = result.checks().set_index("claim")["how"].to_dict()
    assert next(how for claim, how in held.items() if claim.startswith("private: ")) == "proved"
    assert next(how for claim, how in held.items() if claim.startswith("no ")) == "recomputed"
    cells: Any = problem.exact(result.mechanism)  # type: ignore[attr-defined]
    problem.unknown.save_value(np.reshape([float(x) for x in cells], problem.unknown.shape))
    assert all(np.max(one.expr.value) < 1e-8 for one in rows)

    path = tmp_path / "table.json"
    result.save(path)
    again = md.load(path)
    assert again.certificate.verify() and all(holds for *_, holds in verify(path.read_text()).rows)
    held = again.checks().set_index("claim")["how"].to_dict()
    assert next(how for claim, how in held.items() if claim.startswith("no ")) == "claimed"
    with pytest.raises(md.DesignError, match="declare them again"):
        again.design.subject_to(again.design.unknown <= 0.9)


def test_a_convex_row_is_measured_by_its_own_size() -> None:
    """It is the same row in any unit: of small ones an absolute room would hold for laws that break it."""
    for unknown, asked, goal, part, limit in (
        (NOISE, md.ApproximateDP(1.0, 1e-6), NOISE.expected("squared"), NOISE, 0.4),
        (P, md.PureDP(1.0), P.expected("absolute"), P[0], 0.55),
    ):
        private, row = unknown.private(asked), cp.norm(part) - limit
        one, *others = (
            md.Problem(md.Minimize(goal), [private, c * row <= 0]).solve() for c in (1.0, 1e-9, 1e9)
        )
        for other in others:
            assert other.value == pytest.approx(one.value, rel=1e-6) and other.certificate.verify()
            assert other.gap < 1e-5


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_a_convex_objective_has_its_optimum_in_any_unit(size: float) -> None:
    one, other = (md.Problem(md.Minimize(c * cp.sum_squares(P - 0.25)), PRIVATE).solve() for c in (1.0, size))
    assert other.value == pytest.approx(size * one.value, rel=1e-9) and other.gap < 1e-7


PAIR, WIDE, THREE = (md.Table(range(n), range(m)) for n, m in ((5, 2), (3, 5), (3, 3)))
INVERSE = ((1.0, 1e8), (10.0, 1e6), (14.0, 1e3), (14.0, 1e8))
STEEP: list[tuple[float, md.Table, Any, Any]] = [
    *((1e-6, THREE, md.PureDP(epsilon), cp.sum(cp.inv_pos(THREE)) <= most) for epsilon, most in INVERSE),
    (1e-6, WIDE, md.MetricDP(14.0), cp.sum(cp.inv_pos(WIDE)) <= 1e5),
    # the cone solver finds nothing; of the second, 1e-9 or .15 by the last digits of tangents
    (1e-7, PAIR, md.MetricDP(18.3), cp.norm(PAIR[:, 0]) <= 0.9),
    (0.5, PAIR, md.ApproximateDP(14.0, 3e-5), cp.sum(cp.rel_entr(PAIR[0], PAIR[-1])) <= 0.1),
]


@pytest.mark.parametrize(("gap", "table", "privacy", "row"), STEEP)
def test_steep_functions_keep_a_small_gap(gap: float, table: md.Table, privacy: Any, row: Any) -> None:
    """A cone solver's tolerances decide nothing there: of the best law inside, the way to the tangents' optimum does."""
    result = md.Problem(md.Minimize(table.expected()), (table.private(privacy), row)).solve()
    assert result.certificate.verify() and result.gap < gap


@pytest.mark.slow
def test_roots_bind_and_spare_laws_with_probabilities_of_0() -> None:
    """A root has no slope at 0, where the best law has masses."""
    privacy, goal = [NOISE.private(md.ApproximateDP(1.0, 0.01))], md.Minimize(NOISE.expected("squared"))
    free, spared, bound = (
        md.Problem(goal, [*privacy, *(cp.sum(cp.sqrt(NOISE)) >= least for least in limits)]).solve()
        for limits in ((), (1.0,), (3.0,))
    )
    assert spared.value == pytest.approx(free.value, rel=1e-9)
    assert bound.value > 1.1 * free.value and max(spared.gap, bound.gap) < 1e-5


def test_a_cone_is_the_inequality_that_it_states() -> None:
    goal, gap, rare = md.Minimize(P.expected()), 0.1 * np.eye(4) - P[:4], P[0, 0] - 0.7
    free = md.Problem(goal, [PRIVATE[0]]).solve()
    for cone, stated in (
        (cp.SOC(np.full(5, 0.62), P, axis=1), cp.norm(P, 2, axis=1) <= 0.62),
        (gap << 0, cp.lambda_max((gap + gap.T) / 2) <= 0),
        (cp.ExpCone(rare, P[0, 1], P[0, 2]), rare + cp.rel_entr(P[0, 1], P[0, 2]) <= 0),
    ):
        one, other = (md.Problem(goal, [PRIVATE[0], row]).solve() for row in (cone, stated))
        assert one.value == pytest.approx(other.value, rel=1e-9) and one.bound_how == "recomputed"
        assert one.value > free.value * (1 + 1e-6)


def test_a_linear_row_that_shares_its_name_with_a_convex_one_is_kept() -> None:
    rows = [cp.norm(P[0]) <= 0.75, P[1, 0] <= 0.2]
    goal, private = md.Minimize(P.expected("absolute")), P.private(md.PureDP(1.0))
    alike, apart = (
        md.Problem(goal, [private, *(md.named(name, row) for name, row in zip(names, rows))]).solve()
        for names in (("cap", "cap"), ("one", "other"))
    )
    assert alike.value == pytest.approx(apart.value, rel=1e-7) and alike.gap < 1e-6


def test_labels_of_tangents_are_labels_of_families() -> None:
    numbers = md.Problem(md.Minimize(P.expected()), [*PRIVATE, cp.norm(P[0]) <= 0.75]).declared
    for curved in ((None,), ("other",), (1e308,)):
        with pytest.raises(md.DesignError, match="curved: must be labels of families"):
            replace(numbers, curved=curved)


def test_infeasible_families_are_named() -> None:
    """Those of linear rows are proved in rationals whatever the objective is; convex functions contradict by tangents."""
    private, goal = P.private(md.PureDP(1.0)), md.Minimize(cp.sum_squares(P))
    near = md.named("near", P.expected("absolute") <= 0.4)
    with pytest.raises(md.InfeasibleError, match=r"'private' and 'near' together \(proved in .*; some"):
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
