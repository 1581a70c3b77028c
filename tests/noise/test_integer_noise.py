"""Optimal noise on the whole numbers: the sheet's values, an independent program, every discrete family, exact release."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps
from mechdesign.noise import CellProduct, IntegerNoise, OptimalNoise
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.typing import Status
from mechdesign.verifier.verify import verify
from tests.programs import least_noise


def privacy(epsilon: float, delta: float) -> PureDP | ApproximateDP:
    return ApproximateDP(epsilon, delta) if delta else PureDP(epsilon)


def own_delta(law: IntegerNoise, epsilon: float, reach: int) -> float:
    """max_s Σ [p_j − e^ε p_{j+s}]₊ in doubles, over shifts of both signs, from the probabilities alone."""
    p = law.pmf(np.arange(-reach, reach + 1))
    moved = [np.roll(np.pad(p, law.change), s) for s in range(-law.change, law.change + 1) if s]
    return max(float(np.maximum(np.pad(p, law.change) - math.exp(epsilon) * q, 0).sum()) for q in moved)


@pytest.mark.parametrize(
    "epsilon, delta, change, variance",
    [
        (1, 0.01, 1, 1.5163),
        (1, 0.1, 1, 0.7976),
        (0.5, 0.05, 1, 2.955),
        (2, 0.01, 1, 0.3300),
        (1, 0.05, 3, 9.895),
        (1, 1e-6, 1, 1.8411),
    ],
)
def test_reference_table(epsilon, delta, change, variance) -> None:
    result = OptimalNoise(privacy(epsilon, delta), change, "squared", integer=True).solve(time_limit=2.0)
    assert result.value == pytest.approx(variance, rel=1e-4) and result.gap <= 1e-6
    assert result.status is Status.OPTIMAL and result.certificate.verify()
    assert result.mechanism.var() == pytest.approx(result.value, rel=1e-9)
    account = verify(dumps(result))
    assert all(holds for *_, holds in account.rows)
    assert str(result.among) == "every additive whole-number noise"


@pytest.mark.parametrize(
    "epsilon, delta, change, loss",
    [
        (1, 0.05, 2, "squared"),
        (0.7, 0.2, 3, "absolute"),
        (2, 1e-3, 2, {"absolute": 1, "squared": 0.3}),
        (1.5, 0.01, 1, lambda t: np.maximum(3 * t, -t)),
        (1, 0.02, 2, lambda t: np.abs(t) ** 1.5),
    ],
)
def test_an_independent_program_finds_the_same(epsilon, delta, change, loss) -> None:
    result = OptimalNoise(privacy(epsilon, delta), change, loss, integer=True).solve(gap=1e-6)
    places = np.arange(-15 * change, 15 * change + 1.0)
    found = least_noise(Loss.of(loss)(places), [(epsilon, delta)], range(1, change + 1))
    assert result.value == pytest.approx(found, rel=2e-6) and result.lower_bound <= found * (1 + 1e-7)


@pytest.mark.parametrize("epsilon, change", [(1.0, 3), (0.3, 5), (4.0, 4)])
def test_pure_noise_is_the_discrete_staircase(epsilon, change) -> None:
    """Geng and Viswanath (2016): the best first fall of the staircase on the whole numbers."""
    j = np.arange(200 * change)
    costs = []
    for r in range(1, change + 1):
        p = np.exp(-epsilon * (j // change + (j % change >= r)))
        costs.append(2 * float(p @ j**2) / (2 * p.sum() - 1))
    result = OptimalNoise(PureDP(epsilon), change, "squared", integer=True).solve(gap=1e-6)
    assert result.value == pytest.approx(min(costs), rel=1e-8) and result.gap <= 1e-5


QUESTIONS = st.tuples(
    st.floats(0.1, 4.0), st.one_of(st.just(0.0), st.floats(-9, -0.5).map(lambda x: 10**x)), st.integers(1, 6)
)


@settings(max_examples=8)  # discrete families are searched for by scale
@given(QUESTIONS)
def test_no_discrete_family_is_better_and_none_is_below_the_bound(question) -> None:
    epsilon, delta, change = question
    asked = privacy(epsilon, delta)
    result = OptimalNoise(asked, change, "squared", integer=True).solve(gap=1e-6)
    law = result.mechanism
    for family in ("discrete_laplace", "discrete_gaussian") if delta else ("discrete_laplace",):
        other = md.calibrate(family, privacy=asked, sensitivity=change).mechanism.variance
        # 1e-9: the law has rational weights next to a transcendental optimum
        assert result.lower_bound <= other * (1 + 1e-9) and result.value <= other * (1 + 1e-9)
    assert result.gap <= 2e-5 and law.exact_delta(epsilon) <= Fraction(delta)
    reach = max(abs(law.first), 1) + 3 * change if not law.decay else math.ceil(40 * change / epsilon)
    own = own_delta(law, epsilon, reach)
    assert own <= delta * (1 + 1e-9) + 1e-12 and (own >= delta * 0.5 or law.decay)


def test_noise_that_is_not_whole_may_cost_less_than_the_bound() -> None:
    """±½ with equal probability keeps (1, ½) at changes by 1 and costs ¼; no whole-number noise does."""
    result = OptimalNoise(ApproximateDP(1, 0.5), loss="squared", integer=True).solve()
    assert result.lower_bound == pytest.approx(1 / (1 + math.e), rel=1e-9) and result.lower_bound > 0.25


def test_release_is_exact_whatever_the_size() -> None:
    law = IntegerNoise((1, 2, 4, 2, 1), -2, 1)
    for x in (0, -(10**40), 2**63 - 1, 2**200):
        y = law.release(x)
        assert type(y) is int and abs(y - x) <= 2
    drawn = law.release(np.full(100_000, 2**60)) - 2**60
    assert drawn.dtype == np.int64
    seen = np.bincount(drawn + 2, minlength=5) / drawn.size
    assert seen == pytest.approx(np.array([1, 2, 4, 2, 1]) / 10, abs=0.01)
    assert law.release(np.array([2**64 - 1], dtype=np.uint64))[0] >= 2**62 - 2
    assert law.release(np.array([1.0, 5.0])).dtype == float
    assert [abs(y - 10**30) <= 2 for y in law.release([10**30, 10**30])] == [True, True]
    for x in (1.5, [0.5], float("nan"), "1", True):
        with pytest.raises(DesignError):
            law.release(x)


def test_tails_are_drawn_as_they_are_stated() -> None:
    law = OptimalNoise(PureDP(0.5), 2, integer=True).solve().mechanism
    drawn = law.release(np.zeros(200_000, dtype=np.int64))
    assert law.decay and abs(drawn.mean()) < 0.1 and np.var(drawn) == pytest.approx(law.var(), rel=0.05)
    for t in (-3, 0, 4):
        assert (drawn <= t).mean() == pytest.approx(float(law.cdf(t)), abs=0.01)
    assert law.ppf(law.cdf(3.0) - 1e-12) == 3 and law.cdf(3.0) + law.sf(3.0) == pytest.approx(1)
    assert law.rvs(5, random_state=0).shape == (5,) and law.support() == (-math.inf, math.inf)


def test_several_numbers() -> None:
    two = OptimalNoise(PureDP(2.0), loss="squared", dimension=2, integer=True).solve()
    one = OptimalNoise(PureDP(1.0), loss="squared", integer=True).solve()
    assert two.value == pytest.approx(one.value, rel=1e-9)
    assert isinstance(two.mechanism, CellProduct) and two.among.scope.value == "independent noise of one law"
    assert all(type(v) is int for v in two.mechanism.release([3, 4]).tolist())
    asked, few = ApproximateDP(1.0, 1e-6), md.Sensitivity(linf=1, l0=3)
    some = OptimalNoise(asked, few, "squared", 10, integer=True).solve()
    for name in ("discrete_laplace", "discrete_gaussian"):
        other = md.calibrate(name, privacy=asked, sensitivity=few, dimension=10).mechanism.variance
        assert 0 < some.lower_bound <= some.value <= other * (1 + 1e-9)
    for result in (two, some):
        assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


def test_compare_ranks_it_first_and_states_its_bound() -> None:
    names = ["laplace", "optimal noise", "discrete_gaussian", "optimal integer noise"]
    query = md.NumericQuery(integer=True, loss="absolute")
    found = md.compare(query, ApproximateDP(1, 0.5), mechanisms=names, progress=False)
    assert found.names[0] == "optimal integer noise" and "whole-number noise" in found.least_name
    assert found.table["error"].min() >= found.least * (1 - 1e-9) == found.best.lower_bound * (1 - 1e-9)
    # of squares continuous noise costs less than any whole-number noise there, and no bound is said to hold of both
    counts = md.NumericQuery(sensitivity=1.5, integer=True)  # whole numbers change by 1 at most
    squares = md.compare(counts, ApproximateDP(1, 0.5), mechanisms=names[1::2], progress=False)
    assert squares.least is None and squares.results["optimal integer noise"].mechanism.change == 1


@pytest.mark.parametrize(("epsilon", "change"), [(22.0, 3), (30.0, 1), (200.0, 3)])
def test_a_large_epsilon_has_its_optimum(epsilon: float, change: int) -> None:
    result = md.OptimalNoise(md.PureDP(epsilon), change, "squared", integer=True).solve(gap=1e-6)
    a = math.exp(-epsilon)
    # the staircase of one level at 0, and one for every change
    masses = {k: a ** math.ceil(abs(k) / change) for k in range(-6 * change, 6 * change + 1)}
    least = sum(k * k * m for k, m in masses.items()) / sum(masses.values())
    assert result.gap <= 1e-6 and result.value == pytest.approx(least, rel=1e-6)
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


def test_value_and_bound_meet_at_a_small_delta_or_a_large_epsilon() -> None:
    for epsilon, delta, change, gap in (
        (8.0, 1e-7, 3, 1e-6),
        (20.0, 1e-9, 3, 1e-6),
        (30.0, 1e-6, 1, 1e-5),
        (30.0, 0.1, 3, 1e-9),
        (30.0, 0.75, 2, 1e-9),
        (40.0, 0.9, 3, 1e-9),
    ):
        result = md.OptimalNoise(md.ApproximateDP(epsilon, delta), change, "squared", integer=True).solve(
            gap=1e-7
        )
        assert result.gap <= gap and all(holds for *_, holds in verify(dumps(result)).rows)
        pure = md.OptimalNoise(md.PureDP(epsilon), change, "squared", integer=True).solve().value
        assert result.value <= (1 - delta) * pure * (1 + 1e-9)
