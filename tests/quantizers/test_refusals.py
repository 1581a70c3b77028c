"""What no quantizer can be asked is refused in a sentence that names it; budgets at the ends of doubles are answered."""

import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from cheap import BINS, PURE, UNIFORM
from scipy import stats

import mechdesign as md
from mechdesign.quantizers.table import LARGEST_EPSILON
from mechdesign.typing import Status

GRID = np.linspace(-1, 1, 9)
HUGE = [-1e200, 0, 1e200]


def optimal(**changes: Any) -> md.OptimalQuantizer:
    return md.OptimalQuantizer(**{"bins": BINS, "privacy": PURE, "prior": UNIFORM, **changes})


def metric(**changes: Any) -> md.MetricQuantizer:
    return md.MetricQuantizer(**{"bins": BINS, "privacy": md.MetricDP(2.0), "prior": UNIFORM, **changes})


def optm(**changes: Any) -> md.OPTM:
    return md.OPTM(**{"bins": BINS, "privacy": PURE, "prior": UNIFORM, **changes})


def required(change: Callable[[md.Selection], Any]) -> md.Problem:
    Q = md.Selection(BINS, (-1, 1))
    return md.Problem(md.Minimize(Q.lemma1(UNIFORM)), [change(Q)])


def concave(t: Any) -> Any:
    return -np.abs(t)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: optimal(bins=[-3, 0.5, 0.5, 3]), "repeated"),
    (lambda: optimal(bins=[-0.5, 3.0]), "cover the input range"),
    (lambda: optimal(bins=md.Alphabet(0.5, 0.1)), "cover the input range"),
    (lambda: optimal(bins=md.BinSearch(4, 3.0, symmetric=True), prior=stats.uniform(0, 1)).solve(), "symmetric"),
    (lambda: optimal(privacy=md.MetricDP(1.0)), "MetricQuantizer"),
    (lambda: optimal(max_mse=4.0, objective="worst"), "mean"),
    (lambda: optimal(loss=concave), "not convex"),
    (lambda: optimal(loss=lambda z: 1.0), "map an array of errors to one of its shape"),
    (lambda: optimal(prior=stats.norm()), "unbounded"),
    (lambda: optimal().solve("highs", knots=1), "knots"),
    (lambda: optimal(prior=[-1.0, 0.2, 1.0], input_range=(-1, 1)).solve("newton"), "density"),
    (lambda: optimal(objective="worst").solve("newton"), "exchange"),
    (lambda: md.BinSearch(4, 3.0, starts=0), "starts = 0: must be a positive integer"),
    (lambda: md.BinSearch(4, -1.0), "max_abs"),
    (lambda: md.Alphabet(3.0, 7.0), "step"),
    (lambda: md.Alphabet(3.0, 1e-6), "at most"),
    (lambda: metric(privacy=md.MetricDP(1.0, "squared")), "constant mechanism"),
    (lambda: metric(privacy=md.ApproximateDP(1.0, 1e-3)), "inputs"),
    (lambda: metric(inputs=[0.5, -0.5]), "increase strictly"),
    (lambda: metric(inputs=GRID, input_range=(-2, 1)), "input_range"),
    (lambda: metric(bins=np.linspace(-3, 3, 64), privacy=md.ApproximateDP(1.0, 1e-3), inputs=np.linspace(-1, 1, 129)).solve(),
     "8256 inputs times outputs are too many"),
    (lambda: optm(bins=[-0.9, 0.5, 3]), "cover the input range"),
    (lambda: optm(bins=[-4, 0.2, 0.6, 4], constraints="theorem6"), "Theorem 6 needs bins and range that mirror"),
    (lambda: optm(bins=[-4, 0.2, 0.6, 4], families="symmetric"), "mirror about 0"),
    (lambda: optm(input_range=(-0.5, 0.5)), "mass outside the input range"),
    (lambda: optm(privacy=md.ApproximateDP(1.0, 0.1)), "must be a PureDP"),
    (lambda: optm(box=(np.full((3, 3), 0.5), np.full((3, 3), 0.2))), "need 0 <= o <= u"),
    (lambda: optm(box=(np.zeros((2, 2)), np.ones((2, 2)))), "shapes"),
    (lambda: required(lambda Q: Q.private(md.ApproximateDP(1.0, 0.1))), "PureDP"),
    (lambda: required(lambda Q: Q.private(PURE, theorem="theorem7")), "theorem = 'theorem7'"),
    (lambda: required(lambda Q: Q.private(PURE, box=(np.ones((2, 2)), np.ones((2, 2))))), "shape of the unknown"),
    (lambda: required(lambda Q: Q.private(PURE, box=Q.box()[::-1])), "need 0 <= o <= u"),
    (lambda: required(lambda Q: Q.private(PURE, box=md.Grid(height=[0.5]))), "axis level"),
    (lambda: md.MVU(4, PURE, (-1, 1), max_abs=2.0), r"max_abs = 2\.0: must be at least 2\.16395"),
    (lambda: md.OPTM(HUGE, PURE, UNIFORM), r"bins = .*must be within ±1e\+100"),
    (lambda: metric(bins=HUGE, inputs=[-1, 0, 1]), r"bins = .*must be within ±1e\+100"),
    (lambda: md.MVU(3, PURE, (-1, 1), 3, bins=HUGE), r"bins = .*must be within ±1e\+100"),
    (lambda: md.ERM(4, PURE, stats.uniform(-1e200, 2e200)), r"input_range = .*must be within ±1e\+100"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "words"), REFUSED, ids=range(len(REFUSED)))
def test_refused(ask: Callable[[], Any], words: str) -> None:
    with pytest.raises(md.DesignError, match=words):
        ask()


NARROW = 1 + 1e-12  # the outermost bins hardly cover the range: no mechanism below epsilon = 28.324
BUDGETS: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[float, ...]]] = {
    "OPTM": (optm, {}, (12.0, 36.0, 200.0)),
    "OPTM, across outputs": (optm, {"bins": [-3, -0.5, 0.6, 3], "constraints": "across-outputs"}, (12.0, 36.0, 200.0)),
    "OPTM, five outputs": (optm, {"bins": [-3, -1, 0, 1, 3]}, (12.0, 36.0, 200.0)),
    "OPTM, a bounded program that simplex calls unbounded": (optm, {"bins": [-1.001, -0.99, 0.7, 1.001]}, (30.0, 36.0)),
    "OPTM, bins that hardly cover": (optm, {"bins": [-NARROW, -0.5, 0.5, NARROW]}, (30.0, 200.0)),
    "OPTM, five that hardly cover": (optm, {"bins": [-NARROW, -0.5, 0, 0.5, NARROW]}, (30.0, 200.0)),
    "optimal": (optimal, {}, (12.0, 40.0, 100.0, 200.0)),
    "optimal, worst": (optimal, {"objective": "worst"}, (20.0, 40.0, 100.0, 200.0)),
    "optimal, biased": (optimal, {"max_bias": 0.1}, (20.0, 40.0, 100.0, 200.0)),
    "optimal, capped": (optimal, {"max_mse": 0.5}, (20.0, 40.0, 100.0, 200.0)),
    "optimal, bins that hardly cover": (optimal, {"bins": [-NARROW, -0.5, 0.5, NARROW]}, (30.0, 200.0)),
    "optimal, five that hardly cover": (optimal, {"bins": [-NARROW, -0.5, 0, 0.5, NARROW]}, (30.0, 200.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", BUDGETS)
def test_a_larger_budget_is_answered_and_costs_no_more(name: str) -> None:
    """A mechanism for a smaller ε is one for a larger, also beyond what doubles resolve."""
    make, changes, budgets = BUDGETS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = [make(**changes, privacy=md.PureDP(epsilon)).solve() for epsilon in budgets]
        assert all(len(result.audit()) and str(result) for result in found)
    assert all(more.value <= less.value * (1 + 1e-6) for less, more in pairwise(found))
    for result, epsilon in zip(found, budgets):
        assert result.certificate.verify() and result.mechanism.privacy_loss() <= epsilon
        assert result.lower_bound is None or result.lower_bound <= result.value
        assert "hardly cover" not in name or result.value < 0.67
        if make is optimal and epsilon < LARGEST_EPSILON and "capped" not in name:
            assert result.status is Status.OPTIMAL and result.gap <= 1e-6


@pytest.mark.parametrize("epsilon", [25.0, 50.0, 200.0])
def test_metric_budgets_beyond_what_doubles_hold(epsilon: float) -> None:
    for changes in (
        {"privacy": md.PureDP(epsilon), "inputs": GRID},
        {"privacy": md.ApproximateDP(epsilon, 1e-3), "inputs": GRID},
        {"privacy": md.MetricDP(epsilon, "squared"), "inputs": GRID},
        {"privacy": md.MetricDP(epsilon)},
        {"privacy": md.MetricDP(epsilon), "objective": "worst"},
    ):
        result = metric(**changes).solve()
        assert result.gap <= result.design.default_gap and result.certificate.verify()
        assert metric(**changes).solve(time_limit=1e-9).lower_bound <= result.value


def test_a_small_budget() -> None:
    A = (math.exp(0.01) + 1) / math.expm1(0.01)
    result = optimal(bins=[-1.5 * A, -0.4, 0.4, 1.5 * A], privacy=md.PureDP(0.01)).solve()
    assert result.certificate.verify() and result.lower_bound <= result.value and result.gap <= 1e-5


@pytest.mark.parametrize("centre", [1.7e9, 1e9, -3e8, 1e3])
def test_inputs_far_from_zero(centre: float) -> None:
    bins, prior = centre + np.array(BINS), stats.uniform(centre - 1, 2)
    far = optimal(bins=bins, prior=prior).solve()
    assert far.value == pytest.approx(1.7005434, abs=1e-6)
    assert far.status is Status.OPTIMAL and far.certificate.verify()
    if centre < 1e7:
        near, far = (metric(**given).solve(knots=33) for given in ({}, {"bins": bins, "prior": prior}))
        assert far.value == pytest.approx(near.value, rel=1e-7) and far.certificate.verify()
        assert far.lower_bound == pytest.approx(near.lower_bound, rel=1e-6)
