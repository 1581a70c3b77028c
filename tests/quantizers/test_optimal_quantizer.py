"""The optimal quantizer: published and reference numbers, every option, every refusal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.quantizers.bins import Alphabet
from mechdesign.quantizers.optimal import OptimalQuantizer

UNIFORM = stats.uniform(-1, 2)
BINS = [-3.0, -0.5, 0.5, 3.0]


def design(**changes) -> OptimalQuantizer:
    return OptimalQuantizer(**{"bins": BINS, "privacy": md.PureDP(1.0), "prior": UNIFORM, **changes})


# -- numbers ------------------------------------------------------------------------------------------------

REFERENCE = [
    (0.5, [-6, -0.4, 0.4, 6], 3.67751),
    (1.0, [-3, -0.5, 0.5, 3], 1.70054),
    (1.5, [-3, -0.5, 0.5, 3], 1.03289),
]


@pytest.mark.parametrize(("epsilon", "bins", "value"), REFERENCE)
def test_reference_table(epsilon, bins, value):
    result = design(bins=bins, privacy=md.PureDP(epsilon)).solve(gap=1e-6)
    assert result.value == pytest.approx(value, abs=1e-5)
    assert result.gap <= 1e-6
    assert result.certificate.verify()
    assert result.mechanism.privacy_loss() <= epsilon


def test_sixteen_outputs():
    result = design(bins=np.linspace(-2, 2, 16), privacy=md.PureDP(5.0)).solve()
    assert result.value == pytest.approx(0.1246, abs=5e-5)
    assert result.gap <= 1e-6 and result.certificate.verify()


@pytest.mark.parametrize(("sigma", "value"), [(0.1, 1.4476), (0.3, 1.5526)])
def test_clipped_normal_table(sigma, value):
    result = design(bins=[-4, 0.2, 0.6, 4], prior=md.clipped(stats.norm(0.5, sigma), -1, 1)).solve()
    assert result.value == pytest.approx(value, abs=2e-4)
    assert result.gap <= 1e-6


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_duchi(epsilon):
    """Two outputs ±A sit exactly at the smallest feasible ε: MAE A − 1/(3A), MSE A² − 1/3."""
    A = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    wide = A * (1 + 1e-12)
    for loss, value in (("absolute", A - 1 / (3 * A)), ("squared", A * A - 1 / 3)):
        result = design(bins=[-wide, wide], privacy=md.PureDP(epsilon), loss=loss).solve()
        assert result.value == pytest.approx(value, rel=1e-11)
        assert result.gap <= 1e-6 and result.certificate.verify()
    exact = design(bins=[-A, A], privacy=md.PureDP(epsilon)).solve()
    assert exact.value == pytest.approx(A - 1 / (3 * A), rel=1e-12)
    assert exact.mechanism.law is not None


def test_piecewise_hybrid_mechanism_rediscovered():
    """Wang et al. 2019: at ε = 1 the hybrid mechanism's MSE, averaged over uniform inputs, against Duchi's 4.349."""
    result = design(bins=Alphabet(max_abs=4.0, step=0.05), loss="squared").solve()
    assert result.value == pytest.approx(3.887, abs=1.5e-3)
    assert result.design.any_outputs_bound(result) <= result.lower_bound
    assert result.value - result.design.any_outputs_bound(result) <= 0.05**2 / 4 + 2e-6 * result.value


# -- options against the reference program -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "worst"},
        {"objective": "worst", "loss": "squared", "bins": [-2.5, -1, 0, 0.7, 2.8]},
        {"objective": "worst", "max_bias": 0.2},
        {"max_bias": 0.1},
        {"max_bias": 0.3, "loss": "squared", "bins": [-2.5, -1, 0, 0.7, 2.8]},
        {"max_mse": 4.481},
        {"max_mse": 3.9, "max_bias": 0.1},
        {"loss": {"absolute": 1, "squared": 0.1}},
        {"bins": [-2.5, -0.3, 0.9, 2.9], "prior": stats.beta(2, 4, -1, 2)},
        {"bins": [-1.0, 0.5, 2.0, 4.0], "prior": stats.uniform(0, 1.5), "privacy": md.PureDP(2.0)},
        {
            "bins": [-2.5, -0.3, 0.9, 2.9],
            "prior": np.array([-0.9, -0.2, 0.1, 0.1, 0.8]),
            "input_range": (-1, 1),
        },
    ],
    ids=lambda v: str(v).split(" at 0x")[0],
)
def test_options_against_the_program(changes):
    wanted = design(**changes)
    result = wanted.solve()
    assert result.gap <= 1e-6 and result.certificate.verify()
    assert result.mechanism.privacy_loss() <= wanted.privacy.epsilon
    lower, upper = wanted.input_range
    grid = np.linspace(lower, upper, 301)
    assert np.abs(result.mechanism.bias(grid)).max() <= wanted.max_bias + 1e-13
    program = wanted.problem(257).subject_to().solve().value
    # The program is a restriction on the mean (its rows are interpolated), a relaxation in the worst case
    # (its epigraph is over knots); both are within O(h²) or, at jumps and kinks, O(h) of the optimum.
    if wanted.objective == "mean":
        assert program >= result.lower_bound - 1e-8
    else:
        assert program <= result.value + 1e-8
    assert program == pytest.approx(result.value, rel=2e-4)
    if wanted.max_mse is not None:
        assert result.mechanism.expected_loss(wanted.prior, "squared") <= wanted.max_mse * (1 + 1e-12)


def test_callable_loss_equal_to_a_named_one():
    named = design().solve().value
    given = design(loss=lambda t: np.abs(t)).solve()
    assert given.value == pytest.approx(named, rel=2e-6)
    assert given.gap <= 1e-6
    assert any("quadratures" in note for note in given.notes)


def test_solvers_agree():
    one = design().solve(solver="newton")
    two = design().solve(solver="cutting-planes")
    three = design().solve(solver="highs", knots=17)
    for a in (one, two, three):
        assert a.gap <= 1e-6
        assert a.value == pytest.approx(one.value, rel=2e-6)
    assert two.solver_report.solver == "cutting-planes"
    assert three.solver_report.solver == "highs on 17 knots + cutting-planes"


def test_newton_needs_a_density():
    with pytest.raises(md.DesignError, match="density"):
        design(prior=[-1.0, 0.2, 1.0], input_range=(-1, 1)).solve("newton")


def test_the_exchange_is_for_the_worst_case_and_only_it():
    for changes, solver in (({}, "exchange"), ({"objective": "worst"}, "newton")):
        with pytest.raises(md.DesignError, match="exchange"):
            design(**changes).solve(solver)


# -- files, audit, import cost ---------------------------------------------------------------------------------------


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bins": [-3, 0.5, 0.5, 3]}, "repeated"),
        ({"bins": [-0.5, 3.0]}, "cover the input range"),
        ({"privacy": md.MetricDP(1.0)}, "MetricQuantizer"),
        ({"max_mse": -1.0}, "max_mse"),
        ({"max_mse": 4.0, "objective": "worst"}, "mean"),
        ({"loss": lambda t: -np.abs(t)}, "not convex"),
        ({"prior": stats.norm()}, "unbounded"),
        ({"prior": stats.uniform(-2, 4), "input_range": (-1, 1)}, "outside the input range"),
        ({"bins": Alphabet(0.5, 0.1)}, "cover the input range"),
    ],
    ids=lambda v: str(v).split(" at 0x")[0][:40],
)
def test_bad_designs(changes, words):
    with pytest.raises(DesignError, match=words):
        design(**changes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"solver": "highs", "knots": 1}, "knots"),
        ({"solver": "gurobbi"}, "solver"),
        ({"solver": "newton", "nonsense": 5}, "nonsense"),
    ],
    ids=lambda v: str(v).split(" at 0x")[0],
)
def test_bad_solves(options, words):
    with pytest.raises(DesignError, match=words):
        design().solve(**options)


def test_infeasible_epsilon_names_the_smallest():
    with pytest.raises(InfeasibleError) as caught:
        design(privacy=md.PureDP(0.5)).solve()
    least = caught.value.smallest_epsilon
    assert least == pytest.approx(math.log(2), rel=1e-12)
    assert f"{least:.9g}" in str(caught.value)
    assert design(privacy=md.PureDP(least * (1 + 1e-6))).solve().certificate.verify()
    with pytest.raises(InfeasibleError, match="widen the outputs"):
        design(bins=[-1.0, 1.0]).solve()
    with pytest.raises(InfeasibleError, match="smallest feasible"):
        design(bins=Alphabet(1.2, 0.1), privacy=md.PureDP(0.2)).solve()


def test_infeasible_mse_names_the_least():
    with pytest.raises(InfeasibleError) as caught:
        design(max_mse=1.0).solve()
    least = design(loss="squared").solve()
    assert caught.value.least == pytest.approx(least.value, rel=1e-6)
    assert "max_mse = 1" in str(caught.value)
    capped = design(max_mse=caught.value.least * (1 + 1e-6)).solve()
    assert capped.mechanism.expected_loss(UNIFORM, "squared") <= capped.design.max_mse


def test_gap_below_machine_precision_is_answered_with_what_was_proved():
    result = design().solve(gap=1e-300)
    assert result.status == "gap not reached"
    assert result.gap < 1e-9


@pytest.mark.parametrize("epsilon", [0.01, 12.0, 30.0])
def test_extreme_budgets(epsilon):
    A = (math.exp(epsilon) + 1) / math.expm1(epsilon)
    result = design(bins=[-1.5 * A, -0.4, 0.4, 1.5 * A], privacy=md.PureDP(epsilon)).solve()
    assert result.certificate.verify()
    assert result.lower_bound <= result.value
    assert result.gap <= 1e-5
