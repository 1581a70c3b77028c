"""Metric and approximate privacy: exactness on the continuum, bounds that hold, certificates, refusals."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from strategies import priors

import mechdesign as md
from mechdesign.evidence.exact import exp_lower, exp_upper
from mechdesign.problem.spine import Clock
from mechdesign.quantizers.metric import outermost_private
from mechdesign.quantizers.pairwise import PairwisePrivacy

UNIFORM = stats.uniform(-1, 2)
BINS = [-3.0, -0.5, 0.5, 3.0]
GRID = np.linspace(-1, 1, 9)


def design(**changes) -> md.MetricQuantizer:
    return md.MetricQuantizer(**{"bins": BINS, "privacy": md.MetricDP(2.0), "prior": UNIFORM, **changes})


SQUARED = {"privacy": md.MetricDP(3.0, "squared"), "inputs": GRID}
UNEVEN = {"bins": [-5.0, -0.75, 12.0]}  # the bound's program is beyond HiGHS's interior-point method
PLAIN = [{}, {"loss": "squared"}, {"privacy": md.MetricDP(0.7)}, {"objective": "worst"}]


@pytest.mark.parametrize("changes", [*PLAIN, SQUARED, UNEVEN, UNEVEN | {"objective": "worst"}])
def test_private_on_the_continuum_or_a_grid(changes):
    result = design(**changes).solve(gap=0.02)
    privacy = result.design.privacy
    assert result.design.epsilon_of(result.mechanism) <= privacy.epsilon
    assert 0 <= result.gap <= 0.02
    assert result.certificate.verify()
    x = changes.get("inputs", np.sort(np.random.default_rng(1).uniform(-1, 1, 300)))
    p = result.mechanism.probabilities(x)
    assert np.abs(p @ result.mechanism.bins - x).max() < 1e-13
    # Every pair of inputs, not only those next to each other.
    ratio = np.log(p[:, None, :] / p[None, :, :]).max(axis=2)
    assert np.all(ratio <= privacy.epsilon * privacy.distance(x[:, None], x) + 1e-12)


@given(st.data(), st.integers(0, 2**32 - 1))
@settings(max_examples=max(15, settings.default.max_examples // 12))
def test_bound_holds_for_mechanisms_that_are_not_interpolated(data, seed):
    """Exponential families p_i ∝ w_i exp(t_i x), debiased by two outer outputs, are metric private: none beats the bound."""
    rng = np.random.default_rng(seed)
    law = md.Prior.of(data.draw(priors(-1.0, 1.0)), (-1.0, 1.0))
    loss = md.Loss.of(["absolute", "squared"][seed % 2])
    bins = np.array([-6.0, -0.8, 0.1, 0.7, 6.0])
    t, w = rng.normal(size=3) * 0.5, rng.uniform(0.2, 1, 3)
    share = rng.uniform(0.1, 0.5)

    def rows(x):
        inner = w * np.exp(t * np.asarray(x)[:, None])
        inner = share * inner / inner.sum(axis=1, keepdims=True)
        mean = (np.asarray(x) - inner @ bins[1:4]) / (1 - share)
        high = (mean + 6.0) / 12.0 * (1 - share)
        return np.concatenate([(1 - share - high)[:, None], inner, high[:, None]], axis=1)

    x = np.linspace(-1, 1, 4001)
    p = rows(x)
    assert p.min() > 0
    epsilon = float(np.abs(np.diff(np.log(p), axis=0) / np.diff(x)[:, None]).max()) * (1 + 1e-3)
    cells = np.union1d(np.linspace(-1, 1, 201), bins[1:4])
    value = float(
        law.integrals(lambda v: np.sum(rows(v) * loss(bins - v[:, None]), axis=1)[:, None], cells).sum()
    )
    asked = md.MetricQuantizer(bins, md.MetricDP(epsilon), law, loss, input_range=(-1.0, 1.0))
    (bound,) = asked._bounded(25, Clock())
    assert 0 < bound.value <= value * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_multipliers_of_a_smaller_budget_prove_a_bound_of_this_one(objective, monkeypatch):
    """Where this one's own program fails: its floors ask for more than theirs are paid."""
    solved = md.MetricQuantizer._solved

    def failing(self, asked, *rest):
        if self is asked:
            raise md.SolverError("no answer", solver="highs", status="error")
        return solved(self, asked, *rest)

    monkeypatch.setattr(md.MetricQuantizer, "_solved", failing)
    result = design(privacy=md.PureDP(1.0), inputs=GRID, objective=objective).solve()
    assert result.certificate.verify() and result.gap < 1e-6


@pytest.mark.parametrize("privacy", [md.MetricDP(2.0), md.PureDP(1.0)])
def test_value_of_a_callable_loss_is_the_loss_of_the_mechanism(privacy):
    def loss(error):
        return np.abs(error) ** 1.5

    mean = design(privacy=privacy, loss=loss, inputs=GRID).solve()
    assert mean.value == pytest.approx(mean.mechanism.expected_loss(UNIFORM, loss), rel=1e-9)
    worst = design(privacy=privacy, loss=loss, inputs=GRID, objective="worst").solve()
    assert worst.value == pytest.approx(worst.mechanism.worst_case_loss(loss)[0], rel=1e-9)
    assert mean.value < worst.value and max(mean.gap, worst.gap) < 1e-4


def test_grid_metric_is_looser_than_the_continuum():
    grid = design(inputs=np.linspace(-1, 1, 33)).solve()
    everywhere = design().solve(knots=33)
    assert grid.value <= everywhere.value
    assert grid.design.epsilon_of(grid.mechanism) <= 2.0


def test_approximate_privacy():
    values = []
    for delta in (0.0, 1e-4, 1e-2, 0.1):
        result = design(privacy=md.ApproximateDP(1.0, delta), inputs=GRID).solve()
        values.append(result.value)
        assert result.gap < 1e-6 and result.certificate.verify()
        p = result.mechanism.probabilities(GRID)
        excess = np.maximum(p[:, None, :] - math.e * p[None, :, :], 0.0).sum(axis=2)
        assert excess.max() <= delta + 1e-15
        between = result.mechanism.probabilities(np.random.default_rng(0).uniform(-1, 1, 60))
        excess = np.maximum(between[:, None, :] - math.e * between[None, :, :], 0.0).sum(axis=2)
        assert excess.max() <= delta + 1e-12  # dithering keeps it off the grid
    assert values == sorted(values, reverse=True) and values[3] < values[0] * 0.95
    pure = design(privacy=md.PureDP(1.0), inputs=GRID).solve()
    assert values[0] == pytest.approx(pure.value, rel=1e-5)


def test_pure_privacy_on_a_grid_approaches_the_optimal_quantizer():
    exact = md.OptimalQuantizer(bins=BINS, privacy=md.PureDP(1.0), prior=UNIFORM).solve()
    knots = np.unique(np.concatenate([np.linspace(-1, 1, 65), [-0.5, 0.5]]))
    grid = design(privacy=md.PureDP(1.0), inputs=knots).solve()
    assert exact.lower_bound <= grid.value <= exact.value * (1 + 1e-3)


def test_infeasible_names_the_smallest_epsilon():
    for changes in (
        {"privacy": md.MetricDP(0.3)},
        {"privacy": md.MetricDP(0.3), "inputs": GRID},
        {"privacy": md.MetricDP(1.0, "squared"), "inputs": GRID},
        {"privacy": md.PureDP(0.3), "inputs": GRID},
    ):
        with pytest.raises(md.InfeasibleError) as caught:
            design(**changes).solve()
        least = caught.value.smallest_epsilon
        assert least is not None
        metric = getattr(changes["privacy"], "metric", None)
        looser, tighter = (
            {**changes, "privacy": type(changes["privacy"])(least * by, *([metric] if metric else []))}
            for by in (1.001, 0.999)
        )
        assert design(**looser).solve(gap=0.5).certificate.verify()
        with pytest.raises(md.InfeasibleError):
            design(**tighter).solve(gap=0.5)


# -- The outermost outputs, the edge of what is feasible, sizes and large budgets of metric quantizers -------


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=settings.default.max_examples // 25)  # four programs each
def test_the_outermost_outputs_decide(seed):
    """Whether anything is feasible, against the linear program; far from the edge, where the program is able to tell."""
    rng = np.random.default_rng(seed)
    bins = np.sort(np.concatenate([[-1.1 - 3 * rng.random(), 1.1 + 3 * rng.random()], rng.uniform(-1, 1, 3)]))
    grid = np.sort(np.concatenate([[-1.0, 1.0], rng.uniform(-1, 1, 3)]))
    epsilon = rng.uniform(0.1, 5.0)
    metric = [md.MetricDP(epsilon), md.MetricDP(epsilon, "squared")]
    for privacy in (*metric, md.PureDP(epsilon), md.ApproximateDP(epsilon, 0.1)):
        notion = PairwisePrivacy(privacy)
        least = notion.smallest_epsilon(grid, bins[0], bins[-1])
        assume(abs(least / epsilon - 1) > 1e-6)
        private = outermost_private(notion, bins, grid)
        assert private == (least < epsilon)
        problem = md.MetricQuantizer(bins, privacy, UNIFORM, inputs=grid).problem().subject_to()
        if private:
            assert problem.solve(certify=False).value > 0
        else:
            with pytest.raises(md.InfeasibleError):
                problem.solve(certify=False)


STEEP = [
    ([-2, -0.95, 1, 2], [-1, -0.9, 1], (14, 15, 16, 20, 40)),
    ([-2, -1.48, -1.34, -0.4, -0.04, 0.88, 1.25, 1.75], [-1.5, -1.25, 1.25], (8.5, 9, 10, 12, 100)),
]


@pytest.mark.parametrize(("bins", "inputs", "budgets"), STEEP)
@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_a_larger_budget_costs_no_more(bins, inputs, budgets, objective):
    """A program failed, or its law its own check, at a moderate ε, and the two outermost outputs cost 38 times as much."""
    common = {"bins": bins, "prior": inputs, "inputs": inputs, "loss": "squared", "objective": objective}
    results = [design(privacy=md.MetricDP(epsilon), **common).solve() for epsilon in budgets]
    assert all(b.value <= a.value * (1 + 1e-6) for a, b in pairwise(results))
    for found in results:
        assert found.checks().holds.all() and found.gap <= 1e-6


def test_at_the_least_epsilon_no_smaller_one_is_tried():
    """Each lattice tried 13: minutes, and four times the time limit."""
    found = design(bins=[-2, 0, 2], privacy=md.MetricDP(1.0)).solve()
    assert found.value == pytest.approx(11 / 6) and str(found.notes).count("highs failed") == 1


def test_distances_that_are_declared_point_outward():
    """Of a grid from above, as its rows bound every mechanism; of a continuum's knots from below, as its law is to be private."""
    x = np.sort(np.random.default_rng(0).uniform(-1, 1, 40))
    grid = np.concatenate([[-1.0], x, [1.0]])
    for metric, power in (("absolute", 1), ("squared", 2)):
        problem = design(privacy=md.MetricDP(2.0, metric), inputs=grid).problem()
        held = problem.declared.privacy[0].distances
        exact = [abs(Fraction(a) - Fraction(b)) ** power for a, b in pairwise(grid.tolist())]
        assert all(Fraction(d) >= e for d, e in zip(np.diag(held, 1).tolist(), exact, strict=True))
    asked = design(privacy=md.MetricDP(2.0), inputs=grid).solve().question()
    assert "between any two inputs of the grid" in asked
    for epsilon in (1e-6, 0.7, 50.0):
        problem = design(privacy=md.MetricDP(epsilon)).problem(knots=33)
        (asked,) = problem.declared.privacy
        step = Fraction(problem.declared.inputs[1]) - Fraction(problem.declared.inputs[0])
        loss = Fraction(epsilon) * Fraction(float(asked.distances[0, 1]))
        assert exp_upper(loss) <= 1 + Fraction(epsilon) * step


def test_the_law_itself_loses_no_more_between_the_inputs():
    """The ends decide the optimum, which many tables have: the one that is deployed lost 1.4% more at 0.25."""
    result = design(privacy=md.PureDP(1.0), inputs=np.linspace(-1, 1, 5), objective="worst").solve()
    assert result.gap <= 1e-6 and result.value == pytest.approx(1.9463158682, rel=1e-6)


def test_a_worst_case_between_the_inputs_is_in_the_bound_too():
    result = design(
        bins=[-1.1, -0.71, 0.07, 1.1], privacy=md.PureDP(5.0), inputs=[-1, -0.84, 1], objective="worst"
    ).solve(gap=1e-4)
    assert result.gap < 1e-4 and result.checks()["holds"].all()
    every = np.unique(np.concatenate([np.linspace(-1, 1, 801), result.mechanism.knots]))
    lost = result.mechanism.loss_at(every)
    assert result.value * (1 - 1e-3) <= lost.max() <= result.value * (1 + 1e-9)
    assert len(result.proofs[-1].given.places) and "at 3 inputs" in str(result.design.problem())


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
