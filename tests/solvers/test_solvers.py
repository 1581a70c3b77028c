"""One conformance suite for every installed backend, and the registry's own behaviour."""

import itertools
import math
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cheap
import cvxpy as cp
import numpy as np
import pytest
from cvxpy.reductions.solvers.solving_chain import SolvingChain
from scipy import sparse

import mechdesign as md
import mechdesign.solvers.registry as registry
from mechdesign import solvers
from mechdesign.problem.spine import ModelledDesign
from mechdesign.solvers import Capabilities, LinearProgram, Solution, Solver, Status, register, unregister
from mechdesign.solvers import deadline as deadline_module
from mechdesign.solvers.registry import CvxpySolver

LP_SOLVERS = [
    name for name in solvers.available().query("installed")["solver"] if solvers.get(name).accepts("LP")
]


def lp(scale: float = 1.0, *, bound: float | None = None) -> cp.Problem:
    """min 2x + 3y s.t. x + y = 4, x − y ≤ 2, x, y ≥ 0 → (3, 1), value 9; row scale `scale`."""
    x = cp.Variable(2, nonneg=True, name="x")
    total = md.named("sum", scale * (x[0] + x[1]) == 4 * scale)
    limit = md.named("limit", scale * (x[0] - x[1]) <= 2 * scale)
    extra = [] if bound is None else [x[0] + x[1] <= bound]
    return cp.Problem(cp.Minimize(2 * x[0] + 3 * x[1]), [total, limit, *extra])


@pytest.mark.parametrize("name", LP_SOLVERS)
class TestConformance:
    def tolerance(self, name: str) -> float:
        return 100 * solvers.get(name).capabilities.accuracy

    def test_optimum_and_duals(self, name: str) -> None:
        answer = solvers.solve(lp(), name, fallback=False)
        assert answer.status is Status.OPTIMAL and answer.solver == name and answer.fallbacks == ()
        np.testing.assert_allclose(answer.primal["x"], [3, 1], atol=self.tolerance(name))
        assert answer.value == pytest.approx(9, abs=self.tolerance(name))
        # d(value)/d(rhs): 2.5 for the sum, −0.5 for the limit; CVXPY's duals carry the opposite sign.
        assert float(answer.dual["sum"]) == pytest.approx(-2.5, abs=self.tolerance(name))
        assert float(answer.dual["limit"]) == pytest.approx(0.5, abs=self.tolerance(name))

    def test_infeasible(self, name: str) -> None:
        with pytest.raises(md.InfeasibleError):
            solvers.solve(lp(bound=1.0), name, fallback=False)

    def test_unbounded(self, name: str) -> None:
        x = cp.Variable(2, nonneg=True)
        model = cp.Problem(cp.Minimize(-x[0]), [x[0] - x[1] <= 1])
        with pytest.raises(md.SolverError) as caught:
            solvers.solve(model, name, fallback=False)
        assert caught.value.solver and caught.value.status

    def test_no_solver_prints(self, name: str, capfd: pytest.CaptureFixture[str]) -> None:
        """What a library writes of its own accord would stand in the answer of a command, or in a pipe."""
        covering = np.random.default_rng(0).random((40, 30))  # too large for a presolve to solve
        x = cp.Variable(30, nonneg=True)
        solvers.solve(cp.Problem(cp.Minimize(cp.sum(x)), [covering @ x >= 1]), name, fallback=False)
        printed = capfd.readouterr()
        assert printed.out == printed.err == ""

    def test_degenerate(self, name: str) -> None:
        # Three constraints through one vertex of the plane.
        x = cp.Variable(2, nonneg=True)
        rows = [md.named("rows", row) for row in (x[0] + x[1] <= 1, x[0] <= 1, 2 * x[0] + x[1] <= 2)]
        model = cp.Problem(cp.Minimize(-2 * x[0] - x[1]), rows)
        answer = solvers.solve(model, name, fallback=False)
        assert answer.value == pytest.approx(-2, abs=self.tolerance(name))
        assert answer.dual["rows"].shape == (3,)
        assert float(answer.dual["rows"] @ [1, 1, 2]) == pytest.approx(2, abs=self.tolerance(name))

    def test_time_limit(self, name: str) -> None:
        with pytest.raises(md.SolverError, match="time limit") as caught:
            solvers.solve(lp(), name, time_limit=1e-6)
        assert caught.value.status == "limit"
        assert solvers.solve(lp(), name, time_limit=60).value == pytest.approx(9, abs=self.tolerance(name))

    @pytest.mark.parametrize("options", [{"nonsense": 1}, {"nonsense": "x", "other": None}])
    def test_unknown_options(self, name: str, options: dict[str, object]) -> None:
        with pytest.raises(md.DesignError, match=r"options = .*nonsense"):
            solvers.solve(lp(), name, **options)

    def test_badly_scaled(self, name: str) -> None:
        answer = solvers.solve(lp(scale=1e5), name, fallback=False)
        assert answer.value == pytest.approx(9, abs=1e3 * self.tolerance(name))


class Broken(Solver):
    name = "broken"
    capabilities = Capabilities(frozenset({"LP"}))
    pause = 0.0

    def available(self) -> bool:
        return True

    def solve(self, problem: cp.Problem, *, time_limit: float | None = None, **options: object) -> Solution:
        time.sleep(self.pause)
        return Solution(
            Status.FAILED, float("nan"), {}, {}, self.name, 0.0, native_status="numerical trouble"
        )


def test_failure_falls_back_and_says_so() -> None:
    solvers.register(Broken())
    try:
        answer = solvers.solve(lp(), "broken")
        assert answer.solver == "highs" and answer.requested == "broken"
        assert answer.fallbacks == ("broken: numerical trouble",)
        with pytest.raises(md.SolverError, match="numerical trouble"):
            solvers.solve(lp(), "broken", fallback=False)
    finally:
        solvers.unregister("broken")


def test_entry_points_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def load(self) -> type:
            return Broken

    registry._load_entry_points.cache_clear()
    monkeypatch.setattr("mechdesign.solvers.registry.metadata.entry_points", lambda group: [Entry()])
    try:
        assert solvers.get("broken").name == "broken"
        assert "broken" in set(solvers.available()["solver"])
    finally:
        solvers.unregister("broken")
        registry._load_entry_points.cache_clear()


@pytest.mark.parametrize(
    "name", [*(n for n in LP_SOLVERS if isinstance(solvers.get(n), CvxpySolver)), "scipy"]
)
def test_the_limit_is_handed_to_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it where the clock stands still, what is left of it where time has passed before."""
    handed: dict[str, object] = {}
    monkeypatch.setattr(CvxpySolver, "_run", lambda self, problem, settings: handed.update(settings))
    for clock, left in (([0.0] * 99, 7.0), ([0.0, *[4.0] * 99], 3.0)):
        moments = iter(clock)
        with monkeypatch.context() as patch:
            patch.setattr(
                deadline_module, "time", SimpleNamespace(monotonic=lambda moments=moments: next(moments))
            )
            solvers.get(name).solve(lp(), time_limit=7.0)
        inner = [
            v for value in handed.values() for v in (value.values() if isinstance(value, dict) else [value])
        ]
        assert left in inner


TRANSLATED = {
    "optimal": Status.OPTIMAL, "optimal_inaccurate": Status.INACCURATE, "infeasible": Status.INFEASIBLE,
    "unbounded": Status.UNBOUNDED, "user_limit": Status.LIMIT,
    # what is not certain proves nothing
    "infeasible_inaccurate": Status.FAILED, "unbounded_inaccurate": Status.FAILED, "nonsense": Status.FAILED,
}  # fmt: skip


@pytest.mark.parametrize("native", TRANSLATED)
def test_what_a_library_says_is_translated(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, status = CvxpySolver._run, TRANSLATED[native]

    def ended(self: CvxpySolver, problem: cp.Problem, settings: dict[str, object]) -> None:
        run(self, problem, settings)
        problem._status = native

    monkeypatch.setattr(CvxpySolver, "_run", ended)
    answer = solvers.get("highs").solve(lp())
    assert answer.status is status and answer.native_status == native
    assert math.isnan(answer.value) == (status not in (Status.OPTIMAL, Status.INACCURATE))


def random_program(rng: np.random.Generator) -> LinearProgram:
    """Two families of columns and three of rows, feasible and bounded."""
    program = LinearProgram("random program")
    program.add_columns("x", rng.normal(size=(2, 2)), upper=2.0)
    program.add_columns("y", rng.normal(size=3), lower=-1.0, upper=1.0)
    program.add_rows("sum", {"x": np.ones((1, 4))}, lower=1.0, upper=1.0)
    program.add_rows("mixed", {"y": rng.normal(size=(2, 3)), "x": rng.normal(size=(2, 4))}, upper=3.0)
    program.add_rows("least", {"x": sparse.eye_array(4)}, lower=0.01)
    return program


def test_a_linear_program_is_what_cvxpy_declares_of_it() -> None:
    """Values and duals by family against Clarabel on the declared model, in one sign; and the bound of each's duals."""
    rng = np.random.default_rng(7)
    for _ in range(5):
        program = random_program(rng)
        answer, model = program.answer(), program.to_cvxpy()
        other = solvers.solve(model, "clarabel")
        assert answer.value == pytest.approx(other.value, abs=1e-7)
        for name, value in answer.primal.items():
            np.testing.assert_allclose(other.primal[name], value, atol=1e-6)
        for name in ("sum", "mixed"):
            np.testing.assert_allclose(other.dual[name], answer.dual[name], atol=1e-6)


def test_a_linear_programs_ends() -> None:
    """No point, no bound, no time, no such option."""
    program = random_program(np.random.default_rng(0))
    program.add_rows("none", {"x": np.ones((1, 4))}, lower=5.0)
    with pytest.raises(md.InfeasibleError):
        program.solve()
    free = LinearProgram("free program")
    free.add_columns("x", [-1.0])
    with pytest.raises(md.SolverError, match="free program ended with 'Unbounded'"):
        free.solve()
    late = LinearProgram(deadline=solvers.Deadline(1e-9))
    late.add_columns("x", [1.0])
    assert late.solve() is Status.LIMIT
    with pytest.raises(md.SolverError, match="in time"):
        late.answer()
    again = LinearProgram(interior=True)  # what failed once is tried again
    again.add_columns("x", [1.0])
    again.add_rows("cap", {"x": [[1.0]]}, upper=-1.0)
    with pytest.raises(md.InfeasibleError):
        again.solve()
    again.change_rows("cap", upper=1.0)
    assert again.solve() is Status.OPTIMAL and again.highs.getOptionValue("solver")[1] == "ipm"
    with pytest.raises(md.DesignError, match="nonsense"):
        LinearProgram(nonsense=1)
    with pytest.raises(md.DesignError, match="solver = 'gurbi'"):
        LinearProgram(solver="gurbi")


# -- A solver that fails is named in the result, with what was used instead; it never makes a design infeasible

WAYS = {
    "raises": None,
    "unknown status": "sideways",
    "not a number": Status.OPTIMAL,
    "no variables": Status.OPTIMAL,
    "another shape": Status.OPTIMAL,
    "complex": Status.OPTIMAL,
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
        if self.way == "complex":
            primal = {name: x + 1j for name, x in primal.items()}
        if self.way == "another shape":
            primal = {name: np.zeros(np.size(x) + 1) for name, x in primal.items()}
        status: Any = WAYS[self.way]
        return Solution(status, value, primal, {}, self.name, 0.0, native_status=self.way)


@pytest.fixture
def failing(request: pytest.FixtureRequest) -> Iterator[str]:
    register(Failing(request.param))
    yield request.param
    unregister("failing")


# what an answer must be is checked in one place; how a solve ended each design takes in its own way
ENDS = "raises", "limit", "inaccurate", "infeasible"
FAILS = [
    (name, way)
    for name in MODELLED
    for way in WAYS
    if name != "bin-search" and (way in ENDS or name in ("table-problem", "optimal-quantizer"))
]


@pytest.mark.parametrize(("name", "failing"), FAILS, indirect=["failing"])
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


@pytest.mark.parametrize("name", ["table-problem", "bounded-count", "metric-channel"])
def test_a_solver_without_duals_finds_the_law_and_no_bound(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve, made = CvxpySolver.solve, cheap.DESIGNS[name][0]
    monkeypatch.setattr(CvxpySolver, "solve", lambda *args, **given: replace(solve(*args, **given), dual={}))
    result = made().solve("clarabel")
    assert result.value == pytest.approx(cheap.solved(name).value, rel=1e-6) and result.certificate.verify()


OTHERS = ["bounded-count", "mvu", "optimal-quantizer", "optimal-noise", "optimal-integer-noise", "rqm", "biased-selection", "alphabet"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("metric-channel", Status.INFEASIBLE),
        *itertools.product(OTHERS, (Status.FAILED, Status.INFEASIBLE, Status.UNBOUNDED)),
    ],
)
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


# -- how far a search is, off a terminal --------------------------------------------------------------------


def test_an_interrupt_ends_a_run_of_highs_and_not_the_program() -> None:
    """Python sees it only once HiGHS returns, with an optimum: it is HiGHS that must stop."""
    rng, n = np.random.default_rng(0), 160
    program = LinearProgram()
    program.add_columns("x", rng.random(n * n))
    for name, rows in (("a", (np.eye(n), np.ones((1, n)))), ("b", (np.ones((1, n)), np.eye(n)))):
        program.add_rows(name, {"x": sparse.kron(*rows)}, lower=1.0, upper=1.0)
    cuts = sparse.csr_array(rng.random((150, n * n)) * (rng.random((150, n * n)) < 0.05))
    program.add_rows("c", {"x": cuts}, upper=2.4)
    threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        program.run()
    assert "nterrupt" in program.word
    assert program.run() is Status.OPTIMAL


def test_solves_in_threads_leave_the_library_as_it_was() -> None:
    """Clarabel is asked to look for an interrupt in the main thread alone: others that took turns left it changed for good."""
    import clarabel

    made = clarabel.DefaultSolver

    def work() -> None:
        for _ in range(6):
            x = cp.Variable(20)
            solvers.solve(cp.Problem(cp.Minimize(cp.norm(x - 2.0)), [x >= 1]), "clarabel")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    assert clarabel.DefaultSolver is made


def test_an_interrupt_ends_the_wait_for_a_library_and_not_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library of CVXPY's does not look for it, and Python saw it only once the library returned."""
    x = cp.Variable(2, nonneg=True, name="x")
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) == 1])
    let, left, said = threading.Event(), threading.Event(), list[str]()
    via = SolvingChain.solve_via_data

    def slow(*given: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        let.wait(1.0)
        found = via(*given)
        said.append(str(getattr(found, "status", "")))
        left.set()
        return found

    for name in ("clarabel", "scs"):
        with monkeypatch.context() as patch:
            patch.setattr(SolvingChain, "solve_via_data", slow)
            with pytest.raises(KeyboardInterrupt):
                solvers.get(name).solve(problem)
        assert left.is_set() == (name == "clarabel")  # which is stopped, and waited for
        let.set()
        left.wait(60.0)
        assert x.value is None  # nobody asks what is found
        let.clear()
        left.clear()
    assert "Callback" in said[0]
    assert solvers.get("clarabel").solve(problem).primal["x"] == pytest.approx([0.5, 0.5], abs=1e-4)
