"""A solver that fails is named in the result, with what was used instead; it never makes a design infeasible."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import cheap
import cvxpy as cp
import numpy as np
import pytest

import mechdesign as md
from mechdesign.problem.spine import ModelledDesign
from mechdesign.solvers import Capabilities, Solution, Solver, register, unregister
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Status

WAYS = {
    "raises": None,
    "unknown status": "sideways",
    "not a number": Status.OPTIMAL,
    "no variables": Status.OPTIMAL,
    "another shape": Status.OPTIMAL,
    "no solution": None,
    "limit": Status.LIMIT,
    "inaccurate": Status.INACCURATE,
    "infeasible": Status.INFEASIBLE,
    "unbounded": Status.UNBOUNDED,
}
MODELLED = [name for name, (made, _) in cheap.DESIGNS.items() if isinstance(made(), ModelledDesign)]


class Failing(Solver):
    """Fails in one way at everything."""

    name = "failing"
    capabilities = Capabilities(frozenset({"LP", "QP", "SOCP", "SDP", "EXP"}))

    def __init__(self, way: str) -> None:
        self.way = way

    def available(self) -> bool:
        return True

    def solve(self, problem: cp.Problem, *, time_limit: float | None = None, **options: Any) -> Solution:
        if self.way == "raises":
            raise RuntimeError("the library crashed")
        if self.way == "no solution":
            return None  # type: ignore[return-value]
        value = math.nan if self.way == "not a number" else 0.0
        primal = {v.name(): np.full(v.shape, value) for v in problem.variables()}
        if self.way == "no variables":
            primal = {}
        if self.way == "another shape":
            primal = {name: np.zeros(np.size(x) + 1) for name, x in primal.items()}
        status: Any = WAYS[self.way]
        return Solution(status, value, primal, {}, self.name, 0.0, native_status=self.way)


@pytest.fixture(params=WAYS)
def failing(request: pytest.FixtureRequest) -> Iterator[str]:
    register(Failing(request.param))
    yield request.param
    unregister("failing")


@pytest.mark.parametrize("name", [name for name in MODELLED if name != "bin-search"])
def test_a_solver_that_fails_is_named(name: str, failing: str) -> None:
    made, options = cheap.DESIGNS[name]
    try:
        result = made().solve("failing", **options)
    except md.SolverError as error:
        assert "failing" in f"{error} {error.solver}"
    except md.DesignError as error:
        assert "solver" in str(error)  # the design takes none of others
    else:
        if result.solver_report.solver in (
            "closed form",
            "symmetry",
        ):  # proved best before any solver is asked
            return
        said = [*result.notes, *result.solver_report.lines()]
        assert any("failing" in line for line in said) and "failing" in str(result)
        assert result.certificate.verify()
        assert result.value == pytest.approx(cheap.solved(name).value, rel=1e-3)


@pytest.mark.parametrize("status", [Status.FAILED, Status.INFEASIBLE, Status.UNBOUNDED])
@pytest.mark.parametrize("name", ["bounded-count", "metric-channel", "mvu", "optimal-quantizer", "optimal-noise",
                                  "optimal-integer-noise", "rqm", "biased-selection", "alphabet"])  # fmt: skip
def test_no_failure_of_highs_is_an_infeasibility(
    name: str, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinearProgram, "run", lambda self: status)
    made, options = cheap.DESIGNS[name]
    try:
        result = made().solve(**options)
    except md.SolverError as error:
        assert error.status != "limit"
    else:
        assert result.certificate.verify()
        # where the free search needs no program nothing has failed
        failed = any("failed" in note for note in result.notes)
        assert failed or result.value == pytest.approx(cheap.solved(name).value, rel=1e-6)
        assert failed or result.lower_bound is not None


def test_boxes_that_failed_are_not_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    run, count = LinearProgram.run, iter(range(1000))
    monkeypatch.setattr(LinearProgram, "run", lambda self: run(self) if next(count) % 2 else Status.FAILED)
    result = md.OPTM(cheap.BINS, cheap.PURE, cheap.UNIFORM).solve()
    assert any("HiGHS failed in" in note for note in result.notes)
    monkeypatch.setattr(LinearProgram, "run", lambda self: Status.FAILED)
    with pytest.raises(md.SolverError, match="failed"):
        md.OPTM(cheap.BINS, cheap.PURE, cheap.UNIFORM).solve()


def test_a_metric_quantizer_says_why_it_stays_with_two_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashed(*words: Any, **options: Any) -> Solution:
        raise md.SolverError("the library crashed", solver="clarabel", status="crashed")

    monkeypatch.setattr("mechdesign.solvers.solve", crashed)
    result = md.MetricQuantizer(cheap.BINS, md.MetricDP(2.0), cheap.UNIFORM).solve(gap=0.05)
    assert sum("clarabel failed (the library crashed)" in note for note in result.notes) > 0
    assert "the library crashed" in str(result)


def test_two_solvers_must_agree_that_nothing_is_feasible() -> None:
    x = cp.Variable(name="x")
    feasible = cp.Problem(cp.Minimize(x), [x >= 1])
    empty = cp.Problem(cp.Minimize(x), [x >= 1, x <= 0])
    register(Failing("infeasible"))
    try:
        found = md.solvers.solve(feasible, "failing")
        assert found.value == pytest.approx(1.0) and found.fallbacks == ("failing: infeasible",)
        with pytest.raises(md.InfeasibleError):
            md.solvers.solve(empty, "failing")
    finally:
        unregister("failing")
