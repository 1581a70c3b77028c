"""What a metric quantizer's solve passes through: stages by a deadline, the outermost outputs, the edge of what is feasible."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign import solvers
from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.exact import exp_lower
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.metric.design import MetricQuantizer
from mechdesign.quantizers.metric.known import Stage, outermost_private
from mechdesign.quantizers.metric.notion import PairwisePrivacy
from mechdesign.quantizers.metric.program import row_model
from mechdesign.quantizers.metric.stages import Stages
from mechdesign.solvers.deadline import Deadline

UNIFORM = stats.uniform(-1, 2)
BINS = [-3.0, -0.5, 0.5, 3.0]
GRID = np.linspace(-1, 1, 9)


def design(**changes) -> MetricQuantizer:
    return MetricQuantizer(**{"bins": BINS, "privacy": md.MetricDP(2.0), "prior": UNIFORM, **changes})


LIMITED = {
    "continuum": {"bins": np.linspace(-3, 3, 17)},
    "continuum, worst": {"bins": np.linspace(-3, 3, 17), "objective": "worst"},
    "any convex loss": {"inputs": GRID, "bins": np.linspace(-3, 3, 40), "loss": lambda t: np.abs(t) ** 1.5},
    "squared": {"inputs": np.linspace(-1, 1, 31), "privacy": md.MetricDP(9.0, "squared"), "bins": np.linspace(-3, 3, 40)},
    "approximate": {"inputs": GRID, "privacy": md.ApproximateDP(1.0, 1e-3), "bins": np.linspace(-3, 3, 40)},
    "approximate, worst": {
        "inputs": GRID, "privacy": md.ApproximateDP(1.0, 1e-3), "bins": np.linspace(-3, 3, 40), "objective": "worst",
    },
    "only approximate": {"inputs": GRID, "privacy": md.ApproximateDP(0.5, 0.2), "bins": np.linspace(-3, 3, 40)},
    "pure": {"inputs": np.linspace(-1, 1, 31), "privacy": md.PureDP(1.0), "bins": np.linspace(-3, 3, 40)},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LIMITED))
def test_whenever_time_is_up_there_is_an_answer_and_a_bound(name, monkeypatch):
    """At 2 s, 18 of 45 designs raised and others had no bound. Values fall and bounds rise with the stages that end."""
    case = design(**LIMITED[name])
    values, bounds = [], []
    for stages in range(3):
        with monkeypatch.context() as patch:
            done = itertools.count()
            at = Stages._at

            def counted(self, stage, at=at, done=done, stages=stages):
                if next(done) >= stages:
                    self.deadline._started -= 2000.0
                    raise SolverError("time", solver="any", status="limit")
                return at(self, stage)

            patch.setattr(Stages, "_at", counted)
            result = case.solve(time_limit=1000.0)
        assert result.certificate.verify() and result.certificate.value is not None
        assert 0 <= result.gap < 1
        assert (result.status == "optimal") == (
            stages >= len(list(Stages(case, None, Deadline(9.0), {})._plan(None)))
        )
        values.append(result.value)
        bounds.append(result.lower_bound)
    assert values == sorted(values, reverse=True) and bounds == sorted(bounds) and max(bounds) <= min(values)
    assert values[-1] < values[0]


def test_pure_multipliers_bound_approximate_privacy():
    """At a small δ they are nearly best, and at none above what is best."""
    for delta, most in ((1e-7, 1e-5), (1e-3, 0.05), (0.05, 1.0)):
        case = design(inputs=GRID, privacy=md.ApproximateDP(1.0, delta), bins=np.linspace(-3, 3, 12))
        stages = Stages(case, None, Deadline(), {})
        pure = PairwisePrivacy(md.PureDP(1.0))
        found = stages._at(Stage(GRID, np.arange(12), pure, False))
        best = case.solve()
        assert 0 <= found.bound <= best.lower_bound * (1 + 1e-9) and best.value <= found.value * (1 + 1e-9)
        assert found.gap <= most


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=max(15, settings.default.max_examples // 12))
def test_the_outermost_outputs_decide(seed):
    """Whether anything is feasible, against the linear program; far from the edge, where the program is able to tell."""
    rng = np.random.default_rng(seed)
    bins = np.sort(np.concatenate([[-1.1 - 3 * rng.random(), 1.1 + 3 * rng.random()], rng.uniform(-1, 1, 3)]))
    grid = np.sort(np.concatenate([[-1.0, 1.0], rng.uniform(-1, 1, 3)]))
    epsilon = rng.uniform(0.1, 5.0)
    kinds = (
        md.MetricDP(epsilon),
        md.MetricDP(epsilon, "squared"),
        md.PureDP(epsilon),
        md.ApproximateDP(epsilon, 0.1),
    )
    for privacy in kinds:
        notion = PairwisePrivacy(privacy)
        least = notion.smallest_epsilon(grid, bins[0], bins[-1])
        assume(abs(least / epsilon - 1) > 1e-6)
        private = outermost_private(notion, bins, grid)
        assert private == (least < epsilon)
        model = row_model(bins, grid, notion, Prior.of(UNIFORM), Loss.of("absolute"), "mean")
        if private:
            assert solvers.solve(model, "highs").status == "optimal"
        else:
            with pytest.raises(InfeasibleError):
                solvers.solve(model, "highs")


def test_squares_of_far_inputs_are_implied():
    """Ratios of e^40 beside e^.4 took 20 s of solves that doubles could not end, and then an InfeasibleError."""
    grid = np.linspace(-1, 1, 11)
    result = MetricQuantizer(
        [-1.5001, -0.25, 0.03, 0.5, 0.95, 1.1, 1.33, 1.5001],
        md.MetricDP(10.0, "squared"),
        UNIFORM,
        "squared",
        inputs=grid,
    ).solve()
    assert result.gap < 1e-6 and result.certificate.verify()
    rows = [result.certificate.law.row(0, 0), *(result.certificate.law.row(k, 1) for k in range(10))]
    floats = np.log(np.array(rows, dtype=float) + 1e-300)
    far = np.abs(floats[:, None] - floats[None]).max(axis=2)
    assert (far <= 10.0 * np.subtract.outer(grid, grid) ** 2 + 1e-9).all()


def test_at_the_edge_the_outermost_outputs_are_the_answer():
    """The least ε, and a hair above: doubles find the program infeasible there, which it is not.

    The bound jumps there, from that of the outermost two to that of all outputs: doubles do not resolve it.
    """
    for privacy in (md.PureDP, md.MetricDP, lambda e: md.ApproximateDP(e, 0.1)):
        least = design(privacy=privacy(1.0), inputs=GRID).notion.smallest_epsilon(GRID, -3.0, 3.0)
        for above in (1e-15, 1e-13, 1e-11, 1e-9):
            result = design(privacy=privacy(least * (1 + above)), inputs=GRID).solve()
            assert result.certificate.verify() and result.gap < 0.5
    with pytest.raises(InfeasibleError, match="smallest feasible"):
        design(privacy=md.ApproximateDP(0.3, 0.1), inputs=GRID).solve()


@given(st.integers(0, 2**32 - 1))
def test_excesses_that_are_left_out_are_negative(seed):
    """The sum over a pair's excesses, in fractions, with entries of all sizes."""
    rng = np.random.default_rng(seed)
    rows = [
        [Fraction(float(10.0 ** rng.uniform(-320, 0))) * rng.integers(0, 2) for _ in range(4)]
        for _ in range(3)
    ]
    for epsilon in (1e-3, 1.0, 800.0):
        notion = PairwisePrivacy(md.ApproximateDP(epsilon, 0.5))
        ratio = exp_lower(Fraction(epsilon))
        excess = max(
            sum((max(p - ratio * q, Fraction(0)) for p, q in zip(a, b)), Fraction(0))
            for a in rows
            for b in rows
        )
        assert notion.exact_slack([Fraction(k) for k in range(3)], rows) == Fraction(0.5) - excess


@pytest.mark.parametrize("epsilon", [25.0, 50.0, 800.0, 1e300])
def test_budgets_beyond_what_doubles_hold(epsilon):
    """From ε = 33 on the answer was an error, or twice the loss: coefficients of e^33 and probabilities below 2^-80."""
    for changes in (
        {"privacy": md.PureDP(epsilon), "inputs": GRID},
        {"privacy": md.ApproximateDP(epsilon, 1e-3), "inputs": GRID},
        {"privacy": md.MetricDP(epsilon, "squared"), "inputs": GRID},
        {"privacy": md.MetricDP(epsilon)},
        {"privacy": md.MetricDP(epsilon), "objective": "worst"},
    ):
        result = design(**changes).solve()
        assert result.status == "optimal" and result.gap <= 1e-2 and result.certificate.verify()
        assert result.epsilon <= epsilon
        limited = design(**changes).solve(time_limit=1e-9)
        assert limited.lower_bound is None or limited.lower_bound <= result.value


LARGE = {
    "three inputs": ({"bins": [-1.01, -0.71, 0.07, 1.01], "privacy": md.PureDP(45.0), "inputs": [-1, -0.84, 1]}, {}),
    "interior point": (
        {"bins": np.linspace(-3, 3, 17), "privacy": md.ApproximateDP(45.0, 0.1), "inputs": GRID},
        {"solver": "highs-ipm"},
    ),
    "callable": (
        {"privacy": md.MetricDP(12.0, lambda x, y: np.sqrt(np.abs(x - y))), "inputs": GRID, "bins": np.linspace(-3, 3, 17)},
        {},
    ),
    "squares": ({"privacy": md.MetricDP(700.0, "squared"), "inputs": GRID}, {}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("name", LARGE)
def test_large_ratios_do_not_make_a_program_unbounded(name, objective):
    """Was: "the model is unbounded" of probabilities, where ratios are beyond a solver's tolerance."""
    changes, options = LARGE[name]
    inputs = changes["inputs"]
    result = design(**{"prior": inputs, **changes}, objective=objective).solve(**options)
    assert result.certificate.verify() and result.lower_bound >= 0
    two = MetricQuantizer([changes.get("bins", BINS)[0], changes.get("bins", BINS)[-1]], changes["privacy"], inputs,
                          objective=objective, inputs=inputs).solve()  # fmt: skip
    assert result.value < 0.95 * two.value


@pytest.mark.parametrize("wrong", ["infeasible", "unbounded", "not finite"])
@pytest.mark.parametrize("failing", [1, 99])
def test_a_solver_that_calls_a_program_infeasible_or_unbounded_has_failed(wrong, failing, monkeypatch):
    """Was: what the first solver said was the answer, even of a program that is neither."""
    asked = itertools.count()
    solve = solvers.solve

    def broken(model, *args, **kwargs):
        if next(asked) >= failing:
            return solve(model, *args, **kwargs)
        if wrong == "infeasible":
            raise InfeasibleError("no feasible point")
        if wrong == "unbounded":
            raise SolverError("the model is unbounded", solver="any", status="Unbounded")
        answer = solve(model, *args, **kwargs)
        return answer.tagged(
            primal={name: np.nan * value for name, value in answer.primal.items()}, row_dual=None
        )

    monkeypatch.setattr(solvers, "solve", broken)
    result = design(inputs=GRID).solve()
    assert result.checks()["holds"].all()
    if failing == 1:
        assert result.gap < 1e-6 and not any("no solver" in note for note in result.notes)
    else:
        assert result.lower_bound >= 0 and any("no solver answered" in note for note in result.notes)
        assert result.status != "optimal"


def test_a_bound_is_never_missing_nor_below_zero(monkeypatch):
    """Was: None at 50 ms, and -0.0004 where an interior point had hardly begun."""
    monkeypatch.setattr(Deadline, "passed", property(lambda self: self.finite))
    for case in (design(loss="squared"), design(loss="squared", inputs=GRID), design(objective="worst")):
        result = case.solve(time_limit=1.0)
        assert result.lower_bound >= 0.0 and result.status == "limit"
    monkeypatch.undo()
    monkeypatch.setattr("mechdesign.quantizers.metric.stages.proved_bound", lambda *_, **__: -4e-4)
    result = design(loss="squared").solve(knots=5)
    stated = result.certificate
    assert result.lower_bound == stated.lower_bound == 0.0 and result.bound_how == "proved"
    assert result.checks()["holds"].all()
    assert replace(stated, lower_bound=1e-9).bound_how == "claimed"
