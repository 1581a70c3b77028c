"""What cannot be declared or solved is refused in one sentence that names it, and nothing is released."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Status

P, OTHER = md.Table([0, 1, 2], [0, 1, 2]), md.Table([0, 1, 2], [0, 1, 2])
COPY = copy.deepcopy(P)
TWO = md.MetricSpace.line([0, 1], names=["a", "c"])
PRIVATE, LEAST = P.private(md.PureDP(1.0)), md.Minimize(P.expected())


def of(*constraints: Any, objective: Any = LEAST) -> md.Problem:
    return md.Problem(objective, [PRIVATE, *constraints])


BOTH = md.Minimize((P.expected() - 2 * -OTHER.worst() + 1) / 2)


def parts(*constraints: Any, objective: Any = BOTH) -> tuple[md.Problem, ...]:
    own = (PRIVATE, OTHER.private(md.PureDP(2.0)), P[:, 0] <= 0.3, *constraints)
    return md.Problem.separate(objective, own)


def test_a_sum_over_two_tables_is_two_problems() -> None:
    first, second = parts()
    assert first.unknown is P and second.unknown is OTHER and len(first.own) == 1 and not second.own
    found = first.solve(), second.solve()
    assert found[0].value == pytest.approx(of(P[:, 0] <= 0.3).solve().value / 2 + 0.5, rel=1e-9)
    alone = md.Problem(md.Minimize(OTHER.worst()), [OTHER.private(md.PureDP(2.0))]).solve()
    assert found[1].value == pytest.approx(alone.value, rel=1e-9)
    assert all(one.certificate.verify() for one in found)


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "maximize": (lambda: of(objective=cp.Maximize(P.expected())), "Maximize"),
    "no objective": (lambda: of(objective="least"), "objective"),
    "no privacy": (lambda: md.Problem(LEAST, [P[0, 0] <= 0.5]), "no privacy"),
    "own variable": (lambda: of(cp.Variable(name="t") <= 1), r"'t'.*cp\.max"),
    "boolean variable": (lambda: of(P[0, 0] <= cp.Variable(boolean=True, name="b")), "'b'.*boolean"),
    "two tables": (lambda: of(OTHER[0, 0] <= 0.5), r"unknowns = 2.*Problem\.separate"),
    "two tables in a row": (lambda: parts(OTHER[0, 0] <= P[0, 0]), r"P\[0, 0\] <= P\[0, 0\]"),
    "two tables in a term": (lambda: parts(objective=md.Minimize(cp.max(P + OTHER))), "term = .*several"),
    "a part without privacy": (lambda: md.Problem.separate(BOTH, [PRIVATE]), "no privacy"),
    "no unknown": (lambda: md.Problem(md.Minimize(0), []), "no unknown"),
    "copy of the table": (lambda: of(COPY[0, 0] <= 0.5), "copy"),
    "not convex": (lambda: of(md.named("odd", cp.abs(P[0, 0] - 0.5) >= 0.1)), "'odd'.*convex.*abs"),
    "not convex objective": (lambda: of(objective=md.Minimize(cp.sqrt(P[0, 0]))), "objective.*convex"),
    "cone": (lambda: of(cp.PowCone3D(*P[0], 0.5)), "is a cone"),
    "quadratic equality": (lambda: of(md.named("length", cp.norm(P[0]) == 0.9)), "'length'.*convex"),
    "not a number": (lambda: of(md.named("cap", P[:, 0] <= np.nan)), "'cap'.*finite"),
    "complex": (lambda: of(md.named("turned", 1j * P[0, 0] == 0)), "'turned'.*complex"),
    "NaN times a norm": (lambda: of(md.named("cap", np.nan * cp.norm(P[0]) <= 1)), "'cap'.*finite"),
    "matrix": (lambda: of(cp.quad_form(P[0], -np.eye(3)) <= 1), "not convex by[^\n]*$"),
    "name of the objective": (
        lambda: of(md.named("objective", P[0, 0] <= 0.5), objective=md.Minimize(P.worst())),
        "'objective': is the name",
    ),
    "no constraint": (lambda: of("cap"), "constraints"),
    "parameter": (lambda: of(P[0, 0] <= cp.Parameter(name="cap")).solve(), "'cap': has no value"),
    "loss of another shape": (lambda: P.expected(np.ones((2, 3))), r"\(2, 3\)"),
    "loss that is no number": (lambda: P.expected(lambda x, y: "a"), "loss"),
    "unknown loss": (lambda: P.expected("cubed"), "loss"),
    "costs beyond doubles": (
        lambda: md.LatticeNoise(1e200, 8e200, sensitivity=2e200).expected("squared"),
        "larger units",
    ),
    "loss of names": (lambda: md.Table(["a", "b"], ["a"]).expected(), "name"),
    "prior": (lambda: P.expected("absolute", [1, 2]), "prior"),
    "target": (lambda: P.unbiased([1, 2]), "target"),
    "decoder": (lambda: P.decoded([[1, 2]]), "decoder"),
    "decoder that is none": (lambda: P.decoded(np.ones((3, 3))), "decoder"),
    "name of nothing": (lambda: md.named("cap", 3), "constraint"),
    "concentrated": (lambda: P.private(md.ZeroConcentratedDP(0.5)), "TradeOff"),
    "Gaussian": (lambda: P.private(md.GaussianDP(0.5)), "TradeOff"),
    "privacy of nothing": (lambda: P.private(1.0), "PureDP"),
    "pairs that are none": (lambda: P.private(md.PureDP(1.0), between=[(0, 5)]), "between"),
    "unknown pairs": (lambda: P.private(md.PureDP(1.0), between="near"), "between"),
    "space of other points": (lambda: md.Table([-1, 0], [0]).private(md.MetricDP(1.0, TWO)), "than the 2"),
    "space of other names": (lambda: md.Table(["a", "b"], [0]).private(md.MetricDP(1.0, TWO)), "than the 2"),
    "equal inputs": (lambda: md.Table([0, 0], [1, 2]), "differ"),
    "one input": (lambda: md.Table([0], [1, 2]), "two at least"),
    "no outputs": (lambda: md.Table([0, 1], []), "outputs"),
    "mixed labels": (lambda: md.Table([0, "a"], [1, 2]), "inputs"),
    "too large": (lambda: md.Table(range(1001), range(1000)), "1001000.*1000000"),
    "loss of an error": (lambda: P.expected(lambda error: abs(error)), "loss = .*function of the two"),
    "ragged losses": (lambda: P.expected([[1.0], [1.0, 2.0]]), "loss = .*each input and output"),
    "whose": (lambda: md.Table([0, 1], [0, 1], of="nobody"), "of = "),
    "unknown solver": (lambda: of().solve("nonesuch"), "nonesuch"),
    "solver for other models": (lambda: of().solve("closed-form"), "closed-form"),
    "limit of a norm": (lambda: of(cp.norm(P[0]) <= math.inf).solve(), "finite numbers"),
    "slack that is nan": (lambda: of(cp.norm(P[0]) <= math.nan).solve(), "finite numbers"),
    "no time to check": (lambda: of().solve().certificate.verify(time_limit=0), "time_limit"),
    "unknown option": (lambda: of().solve(nonsense=3), "nonsense"),
    "too many rows to write": (lambda: _large().write("model.mps"), "rows"),
}


def _large() -> md.Problem:
    table = md.Table(range(100), range(50))
    return md.Problem(md.Minimize(table.expected()), [table.private(md.MetricDP(1.0))])


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str) -> None:
    make, words = CASES[case]
    with pytest.raises(md.DesignError, match=f"(?s){words}"):
        make()


def test_limit() -> None:
    late = of().solve(time_limit=1e-9)
    certificate: Any = late.certificate
    assert certificate.verify() and late.mechanism.release(P.inputs[0]) in P.outputs
    with pytest.raises(md.SolverError) as error:
        of(P.unbiased()).solve(time_limit=1e-9)
    assert "limit" in f"{error.value} {error.value.status}"


def test_a_parameter_stays_where_a_table_was_declared() -> None:
    P.value = np.eye(3)
    _ = of(P[0, 0] <= 0.5).declared
    assert P.value is not None and np.array_equal(P.value, np.eye(3))


@pytest.mark.parametrize("alpha", np.geomspace(2e-10, 1e-8, 5))
def test_a_feasible_table_is_never_called_impossible(alpha: float) -> None:
    """Equal probabilities are inside at every alpha, by less than a solver's tolerance at the least."""
    problem = md.MetricChannel(md.MetricSpace.line([0.0, 1.0, 3.0]), alpha=alpha).problem()
    for row in (problem.unknown[0, 0] >= 1 / 3, cp.sum(problem.unknown[:, 0]) == 1.0):
        with suppress(md.SolverError):
            assert problem.subject_to(md.named("own", row)).solve().certificate.verify()


@pytest.mark.parametrize(
    ("row", "error", "words"),
    [
        (cp.sqrt(P[0] - 0.5) >= 0.1, md.InfeasibleError, "no table meets 'own'"),
        (cp.inv_pos(P[0, 0] - 1) <= 3, md.SolverError, "'own'.*allow a millionth more"),
        (cp.inv_pos(P[0, 0] - 0.45) <= 30, None, ""),
    ],
)
def test_a_function_without_a_value_at_equal_probabilities(row: Any, error: Any, words: str) -> None:
    problem = of(md.named("own", row))
    if error is None:
        assert problem.solve().certificate.verify()
        return
    with pytest.raises(error, match=words):
        problem.solve()


NOISE = md.LatticeNoise(1, 6, integer=True, tails=1.0)
SELECTION = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), stats.uniform(-1, 2))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: md.search(lambda q: of(P[0, 0] <= q), md.Grid(q=[0.4, 0.5])),
        md.Problem(md.Minimize(NOISE.expected("squared")), [NOISE.private(md.PureDP(1.0))]).solve,
    ],
)
def test_what_is_impossible_is_proved_and_not_a_solvers_word(
    ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinearProgram, "run", lambda self: Status.INFEASIBLE)
    with pytest.raises(md.SolverError):
        ask()


@pytest.mark.parametrize(
    "design",
    [
        md.MetricChannel(md.MetricSpace.grid(3, 4), alpha=1.0),
        md.BoundedCount(12, md.ApproximateDP(1.0, 0.01)),
        SELECTION.problem(),
        replace(SELECTION, bins=[-1.3, -0.5, 0.5, 1.3], privacy=md.PureDP(4.0), constraints="theorem6"),
    ],
)
def test_a_law_in_closed_form_outlives_a_solver_that_fails(
    design: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinearProgram, "run", lambda self: Status.INFEASIBLE)
    found = design.solve()
    assert found.certificate.verify() and "highs failed" in found.notes[-1] and found.gap != 0
