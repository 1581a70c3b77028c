"""Lower bounds of the designs that search: they hold for every mechanism with outputs in the range, and are near it."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mechdesign_studies.quantizers.baselines import PiecewiseMechanism
from scipy import stats

import mechdesign as md
from mechdesign.evidence.exact import round_down
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.dual_pieces import DualPieces, OutputSpace
from mechdesign.quantizers.moments import Moments
from mechdesign.quantizers.optimal import any_outputs, loss_bounds
from mechdesign.solvers.deadline import Deadline

UNIFORM = stats.uniform(-1, 2)
LOSSES: dict[str, Any] = {
    "absolute": "absolute",
    "squared": "squared",
    "mixed": {"absolute": 1, "squared": 0.3},
}
PRIORS: dict[str, Any] = {
    "uniform": UNIFORM,
    "samples": [-1.0, -0.35, 0.1, 0.1, 0.9, 1.0],
    "clipped": md.clipped(stats.uniform(-1.4, 2.1), -1, 1),
    "histogram": stats.rv_histogram(([1, 5, 2], [-1, 0, 0.4, 1]), density=False),
}


class Asked:
    """A search of quantizers with outputs up to `reach` half widths from the centre."""

    def __init__(self, epsilon: float, loss: Any, prior: Any, reach: float, max_bias: float = 0.0) -> None:
        self.privacy, self.loss, self.prior = md.PureDP(epsilon), Loss.of(loss), Prior.of(prior)
        self.input_range, self.max_bias = (-1.0, 1.0), max_bias
        self.output_space = OutputSpace.around(self.input_range, reach)

    def optimum(self, bins: Any) -> float:
        """What a feasible mechanism with some of these outputs costs."""
        parts = {"loss": self.loss, "input_range": self.input_range, "max_bias": self.max_bias}
        return (
            md.OptimalQuantizer(bins, self.privacy, self.prior, **parts).solve(gap=1e-4, certify=False).value
        )


def bound_of(asked: Asked, duals: DualPieces, outputs: Any) -> float:
    """The bound that multipliers prove, rounded down."""
    exact = tuple(map(Fraction, np.asarray(outputs).tolist()))
    ends, places = tuple(map(Fraction, asked.input_range)), duals.places(exact)
    bias = min(asked.max_bias, float(max(ends[1] - places[0], places[-1] - ends[0])))
    moments = Moments(asked.prior)
    return round_down(
        duals.lower_bound(exact, ends, asked.privacy.epsilon, asked.loss, max_bias=bias, moments=moments)
    )


@cache
def proved(
    epsilon: float, loss: str, prior: str, reach: float, bias: float = 0.0
) -> tuple[Asked, DualPieces, float]:
    asked = Asked(epsilon, LOSSES[loss], PRIORS[prior], reach, bias)
    duals = any_outputs(asked, None, Deadline(None))
    assert duals is not None and duals.between
    return asked, duals, bound_of(asked, duals, asked.output_space.points)


@cache
def reached(*asked: Any) -> float:
    """What an existing mechanism with many outputs costs."""
    question = proved(*asked)[0]
    return question.optimum(np.linspace(*question.output_space.points, 65))


SETTINGS = st.tuples(
    st.sampled_from([0.5, 1.5, 4.0]),
    st.sampled_from(sorted(LOSSES)),
    st.sampled_from(sorted(PRIORS)),
    st.just(6.0),
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    SETTINGS,
    st.lists(st.floats(-1, 1), min_size=0, max_size=5, unique=True),
    st.floats(1, 3),
    st.floats(1, 3),
)
def test_no_outputs_do_better(asked: Any, inner: list[float], left: float, right: float) -> None:
    """The oracle is a mechanism: whatever outputs are drawn, the best one with them costs at least the bound."""
    question, _, bound = proved(*asked)
    most = question.output_space.points[1]
    least = 1 / math.tanh(question.privacy.epsilon / 2)
    low, high = -min(least * left * 1.001, most), min(least * right * 1.001, most)
    bins = np.unique([low, *(max(-low, high) * b for b in inner), high])
    bins = np.unique(np.clip(bins, low, high))
    assume(np.diff(bins).min() > 1e-6)
    assert bound <= question.optimum(bins) * (1 + 1e-12)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(SETTINGS, st.integers(0, 2**32), st.sampled_from([0.0, 1e-3, 1e-1, 1.0]), st.integers(2, 12))
def test_no_multipliers_prove_too_much(asked: Any, seed: int, size: float, few: int) -> None:
    """Whatever lines, prices and outputs the multipliers come with, what is proved is below an existing mechanism."""
    question, duals, bound = proved(*asked)
    rng = np.random.default_rng(seed)
    table, prices, outputs = duals.pieces.copy(), duals.multipliers, duals.outputs
    assert outputs is not None
    table[:, 3:] += size * rng.normal(size=(len(table), 4))
    if few < 10:  # pieces that lie across outputs
        kept = np.unique([0, *rng.integers(0, len(outputs), few), len(outputs) - 1])
        outputs, prices = outputs[kept], prices[:, kept]
    prices = np.abs(prices + size * rng.normal(size=prices.shape))
    l0 = replace(duals, pieces=table, multipliers=prices, outputs=outputs)
    assert l0.sound((), worst=False)
    least = reached(*asked)
    assert bound_of(question, l0, ()) <= min(least, 1e300)
    assert bound <= least


@pytest.mark.parametrize(("epsilon", "near"), [(0.1, 1.002), (1.0, 1.002), (2.0, 1.003), (4.0, 1.01)])
def test_it_is_near_what_any_outputs_reach(epsilon: float, near: float) -> None:
    """Against the optimum on a fine grid of outputs, which is a mechanism; and below the piecewise one of Wang et al."""
    asked, _, bound = proved(epsilon, "squared", "uniform", 6 / math.tanh(epsilon / 2))
    reach = 1.2 / math.tanh(epsilon / 4)
    assert bound <= asked.optimum(np.linspace(-reach, reach, 201)) <= near * bound
    assert bound <= PiecewiseMechanism(epsilon).expected_loss(UNIFORM, "squared")


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("prior", ["samples", "uniform"])
@pytest.mark.parametrize("few", [[-3, -0.1, 3], [-3, -0.6, 0.2, 0.7, 3]])
def test_multipliers_of_a_few_outputs_prove_less_of_those_in_between(few: Any, loss: str, prior: str) -> None:
    """Tight for the few, they would prove more than the optimum of many if nothing were taken off."""
    asked = Asked(1.5, LOSSES[loss], PRIORS[prior], 3.0)
    design = md.OptimalQuantizer(few, asked.privacy, asked.prior, asked.loss, input_range=(-1, 1))
    result = design.solve(gap=1e-6)
    duals = replace(result.proofs[-1].duals, outputs=np.array(few, dtype=float), between=True)
    many = asked.optimum(np.linspace(-3, 3, 61))
    assert many < result.value * (1 - 1e-3)
    assert bound_of(asked, duals, few) <= many
    assert bound_of(asked, replace(duals, between=False), few) > many


@pytest.mark.parametrize("prior", [UNIFORM, np.linspace(-1, 1, 30) ** 3])
def test_a_bound_does_not_depend_on_the_load_of_the_machine(
    prior: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = md.RQM(4, md.PureDP(1.5), prior, "squared", input_range=(-1.0, 1.0))
    busy = itertools.count(step=1000.0)
    quiet = [bound.value for bound in loss_bounds(asked, np.linspace(-2, 2, 4), Deadline(None))]
    monkeypatch.setattr(time, "monotonic", lambda: next(busy))
    assert quiet == [bound.value for bound in loss_bounds(asked, np.linspace(-2, 2, 4), Deadline(None))] != []
