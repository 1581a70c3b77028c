"""The outermost outputs, the edge of what is feasible, sizes and large budgets of metric quantizers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.exact import exp_lower, exp_upper
from mechdesign.quantizers.metric import MetricQuantizer
from mechdesign.quantizers.metric_rows import PairwisePrivacy, outermost_private

UNIFORM = stats.uniform(-1, 2)
BINS = [-3.0, -0.5, 0.5, 3.0]
GRID = np.linspace(-1, 1, 9)


def design(**changes) -> MetricQuantizer:
    return MetricQuantizer(**{"bins": BINS, "privacy": md.MetricDP(2.0), "prior": UNIFORM, **changes})


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=settings.default.max_examples // 25)  # four programs each
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
        problem = MetricQuantizer(bins, privacy, UNIFORM, inputs=grid).problem().subject_to()
        if private:
            assert problem.solve(certify=False).value > 0
        else:
            with pytest.raises(InfeasibleError):
                problem.solve(certify=False)


def test_at_the_edge_the_outermost_outputs_are_the_answer():
    """The least ε, and a hair above: doubles find the program infeasible there, which it is not.

    The bound jumps there, from that of the outermost two to that of all outputs: doubles do not resolve it.
    """
    for privacy in (md.PureDP, md.MetricDP, lambda e: md.ApproximateDP(e, 0.1)):
        least = design(privacy=privacy(1.0), inputs=GRID).notion.smallest_epsilon(GRID, -3.0, 3.0)
        for above in (1e-15, 1e-13, 1e-11, 1e-9):
            result = design(privacy=privacy(least * (1 + above)), inputs=GRID).solve()
            assert result.certificate.verify()
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


@pytest.mark.parametrize("epsilon", [25.0, 50.0, 200.0])
def test_budgets_beyond_what_doubles_hold(epsilon):
    for changes in (
        {"privacy": md.PureDP(epsilon), "inputs": GRID},
        {"privacy": md.ApproximateDP(epsilon, 1e-3), "inputs": GRID},
        {"privacy": md.MetricDP(epsilon, "squared"), "inputs": GRID},
        {"privacy": md.MetricDP(epsilon)},
        {"privacy": md.MetricDP(epsilon), "objective": "worst"},
    ):
        result = design(**changes).solve()
        assert result.gap <= result.design.default_gap and result.certificate.verify()
        limited = design(**changes).solve(time_limit=1e-9)
        assert limited.lower_bound <= result.value


def test_a_question_too_large_is_refused_by_its_size():
    large = design(
        bins=np.linspace(-3, 3, 64), privacy=md.ApproximateDP(1.0, 1e-3), inputs=np.linspace(-1, 1, 129)
    )
    with pytest.raises(DesignError, match="8256 inputs times outputs are too many"):
        large.solve()


def test_distances_that_are_declared_point_outward():
    """Of a grid from above, as its rows bound every mechanism; of a continuum's knots from below, as its law is to be private."""
    x = np.sort(np.random.default_rng(0).uniform(-1, 1, 40))
    grid = np.concatenate([[-1.0], x, [1.0]])
    for metric, power in (("absolute", 1), ("squared", 2)):
        problem = design(privacy=md.MetricDP(2.0, metric), inputs=grid).problem()
        held = problem.declared.privacy[0].distances
        exact = [abs(Fraction(a) - Fraction(b)) ** power for a, b in pairwise(grid.tolist())]
        assert all(Fraction(d) >= e for d, e in zip(np.diag(held, 1).tolist(), exact, strict=True))
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
    assert len(result.proofs[-1].places)
