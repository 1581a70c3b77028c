"""Answers from few of a grid's inputs, and the lower bound in closed form: against the whole program, by another solver."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse, stats

import mechdesign as md
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.metric.closed import Multipliers
from mechdesign.quantizers.metric.notion import PairwisePrivacy
from mechdesign.quantizers.metric.stages import Stages
from mechdesign.quantizers.optimal.model import hat_costs
from mechdesign.solvers.deadline import Deadline

UNIFORM = stats.uniform(-1, 2)
LAWS = {"uniform": UNIFORM, "beta": stats.beta(0.7, 2, -1, 2), "samples": [-1, -0.2, 0.11, 0.11, 0.9]}
NOTIONS = {
    "pure": md.PureDP(1.3),
    "pure, wide": md.PureDP(6.0),
    "absolute": md.MetricDP(3.0),
    "squared": md.MetricDP(60.0, "squared"),
    "approximate": md.ApproximateDP(1.3, 1e-4),
}


def oracle(bins, knots, privacy, prior, loss, objective) -> float:
    """The whole linear program, all pairs of inputs, written down here and solved by SciPy."""
    n, m = len(knots), len(bins)
    index = np.arange(n * m).reshape(n, m)
    delta = getattr(privacy, "delta", 0.0)
    pairs = list(itertools.permutations(range(n), 2))
    width = n * m + 1 + (len(pairs) * m if delta else 0)
    rows = []
    for number, (k, l) in enumerate(pairs):
        if isinstance(privacy, md.MetricDP):
            power = privacy.epsilon * float(privacy.distance(knots[k], knots[l]))
            if power > 6:  # follows from nearer pairs, and large ratios mislead the solver
                continue
            ratio = np.exp(power)
        else:
            ratio = np.exp(privacy.epsilon)
        for i in range(m):
            row = {index[k, i]: 1.0, index[l, i]: -ratio}
            if delta:
                row[n * m + 1 + number * m + i] = -1.0
            rows.append((row, 0.0))
        if delta:
            rows.append(({n * m + 1 + number * m + i: 1.0 for i in range(m)}, delta))
    cost = np.zeros(width)
    constant = 0.0
    if objective == "worst":
        cost[n * m] = 1.0
        for k in range(n):
            row = {index[k, i]: float(c) for i, c in enumerate(loss(bins - knots[k]))}
            row[n * m] = -1.0
            rows.append((row, 0.0))
    else:
        costs, constant = hat_costs(bins, knots, prior, loss)
        cost[: n * m] = costs.ravel()
    upper = sparse.dok_matrix((len(rows), width))
    for at, (row, _) in enumerate(rows):
        for column, value in row.items():
            upper[at, column] = value
    equal = sparse.dok_matrix((2 * n, width))
    for k in range(n):
        for i in range(m):
            equal[k, index[k, i]] = 1.0
            equal[n + k, index[k, i]] = bins[i]
    found = optimize.linprog(
        cost,
        upper.tocsr(),
        [right for _, right in rows],
        equal.tocsr(),
        np.concatenate([np.ones(n), knots]),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun) + constant


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("name", NOTIONS)
def test_few_inputs_enclose_the_whole_program(name, objective):
    """Value above, bound below, near each other; and the law private for all inputs, exactly."""
    privacy = NOTIONS[name]
    bins, knots = np.linspace(-3, 3, 13), np.linspace(-1, 1, 15 if name != "approximate" else 9)
    for law in LAWS.values() if objective == "mean" else [UNIFORM]:
        design = md.MetricQuantizer(bins, privacy, law, inputs=knots, objective=objective)
        best = oracle(bins, knots, privacy, design.prior, design.loss, objective)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mechdesign.quantizers.metric.stages._FEW", 0)
            patch.setattr("mechdesign.quantizers.metric.stages._FIRST", 5)
            found = list(Stages(design, None, Deadline(1000.0), {})._few_inputs(each=True))
        assert found
        for answer in found:
            stated = design._result(answer, True)
            assert stated.certificate.verify() and stated.audit()["slack"].min() > -1e-12
            assert answer.bound <= best * (1 + 1e-9) and best <= answer.value * (1 + 1e-9)
        assert law is not UNIFORM or found[-1].gap < (0.5 if name == "pure, wide" else 0.3)


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("name", NOTIONS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=max(15, settings.default.max_examples // 4))
def test_no_multipliers_prove_more_than_is_true(name, objective, seed):
    """Whatever the multipliers: the bound is below the loss of the outermost outputs, and of a private mixture."""
    rng = np.random.default_rng(seed)
    bins = np.sort(np.concatenate([[-9.0, 9.0], rng.uniform(-2, 2, 4)]))
    knots = np.linspace(-1, 1, 7) + np.concatenate([[0.0], rng.uniform(-0.1, 0.1, 5), [0.0]])
    question = Prior.of(UNIFORM), Loss.of(rng.choice(["absolute", "squared"])), objective
    notion = PairwisePrivacy(NOTIONS[name])
    places = rng.uniform(-1, 1, 2) if objective == "worst" else np.zeros(0)
    count = Multipliers.count(knots, places, objective)
    values = rng.normal(size=count) * 10.0 ** rng.uniform(-3, 1)
    if objective == "worst" and rng.random() < 0.8:
        values[2 * len(knots) :] = -rng.dirichlet(np.ones(len(knots) + len(places)))
    multipliers = Multipliers(bins, knots, notion, question, places, values)
    settled = multipliers.settled().bound
    rows = np.zeros((len(knots), len(bins)))
    rows[:, -1] = (knots + 9) / 18
    rows[:, 0] = 1 - rows[:, -1]
    if objective == "worst":
        every = np.concatenate([knots, places])
        spread = np.stack([np.interp(every, knots, rows[:, i]) for i in range(len(bins))], axis=1)
        truth = (spread * question[1](bins - every[:, None])).sum(axis=1).max()
    else:
        costs, constant = hat_costs(bins, knots, *question[:2])
        truth = (rows * costs).sum() + constant
    assert multipliers.bound <= settled <= truth * (1 + 1e-12)


@pytest.mark.slow
def test_a_thousand_inputs_are_answered_at_a_limit():
    """Was: gap .99, the two outermost outputs; and seven times the limit for pure privacy."""
    bins, knots = np.linspace(-8, 8, 128), np.linspace(-1, 1, 1000)
    result = md.MetricQuantizer(bins, md.PureDP(1.0), UNIFORM, inputs=knots).solve(time_limit=20.0, gap=0.05)
    assert result.gap < 0.05 and result.checks()["holds"].all()
    assert len(result.certificate.multipliers) == 2 * len(knots)


LARGE = {
    "pure": (md.PureDP(45.0), [-1.01, -0.71, 0.07, 1.01], [-1, -0.84, 1]),
    "pure, many": (md.PureDP(20.0), np.linspace(-3, 3, 17), np.linspace(-1, 1, 9)),
    "squared": (md.MetricDP(700.0, "squared"), np.linspace(-3, 3, 17), np.linspace(-1, 1, 9)),
    "some pairs": (
        md.MetricDP(12.0, lambda x, y: np.sqrt(np.abs(x - y))),
        np.linspace(-3, 3, 17),
        np.linspace(-1, 1, 9),
    ),
    "small": (md.PureDP(1.0), np.linspace(-3, 3, 9), np.linspace(-1, 1, 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["absolute", "squared"])
@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("name", LARGE)
def test_value_and_bound_meet_at_large_ratios_and_between_inputs(name, objective, loss):
    """Was: .92 beside .147 at ε = 45, a worst case between the inputs beside the bound of that at the inputs alone."""
    privacy, bins, knots = LARGE[name]
    result = md.MetricQuantizer(bins, privacy, UNIFORM, inputs=knots, objective=objective, loss=loss).solve()
    assert result.gap < 2e-4 and result.checks()["holds"].all()
    if objective == "worst":  # by another route: many inputs at once, the rows that are not implied
        every = np.unique(np.concatenate([np.linspace(-1, 1, 801), knots]))
        m = result.mechanism
        rows = np.vstack([m.starts, m.ends[-1:]])
        spread = np.stack([np.interp(every, m.knots, rows[:, i]) for i in range(len(m.bins))], axis=1)
        lost = (spread * result.design.loss(m.bins - every[:, None])).sum(axis=1)
        assert result.value * (1 - 1e-3) <= lost.max() <= result.value * (1 + 1e-9)
        assert len(result.certificate.places) and result.lower_bound <= lost.max() * (1 + 1e-3)


def test_places_that_are_no_inputs_are_refused():
    """Whoever edits the inputs of a bound's worst case proves nothing."""
    privacy, bins, knots = LARGE["pure"]
    result = md.MetricQuantizer(bins, privacy, UNIFORM, inputs=knots, objective="worst").solve()
    stated = result.certificate
    assert stated.verify() and len(stated.places)
    for places in (stated.places + 3.0, stated.places * np.nan, stated.places[:-1], np.ones((1, 1)), None):
        assert not replace(stated, places=places).verify()
    assert not replace(stated, places=stated.places + 3.0).checks()["holds"].all()
