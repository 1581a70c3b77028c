"""Exact sampling: the laws are those of the integers, ties draw further bits, and impossible outcomes stay impossible."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.evidence import sampling
from mechdesign.evidence.exact import exp_lower, exp_upper, log_lower, log_upper
from mechdesign.evidence.sampling import (
    IntegerRows,
    IntegerWeights,
    bernoulli,
    exponential_coins,
    geometric,
    uniform_below,
    uniform_integers,
)

# Not seeded, by design: one false alarm in 10⁸ runs.
ALARM = 1e-8


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 3 << 61, 1 << 63])
def test_uniform_integers(bound: int) -> None:
    draws = uniform_integers(bound, 50_000)
    assert draws.min() >= 0 and int(draws.max()) < bound
    cells = min(bound, 8)
    counts = np.bincount([int(d) * cells // bound for d in draws], minlength=cells)
    expected = [
        (-(-(c + 1) * bound // cells) + (-c * bound // cells)) / bound * len(draws) for c in range(cells)
    ]
    if cells > 1:
        assert stats.chisquare(counts, expected).pvalue > ALARM


@pytest.mark.parametrize("bound", [0, -3, (1 << 63) + 1])
def test_uniform_integers_refuse_other_bounds(bound: int) -> None:
    with pytest.raises(md.DesignError, match="bound"):
        uniform_integers(bound, 3)


def test_uniform_below_each_bound() -> None:
    bounds = np.array([1, 2, 3, 7, 3 << 61, (1 << 63) - 1])
    draws = uniform_below(np.broadcast_to(bounds, (20_000, 6)))
    assert draws.min() >= 0 and (draws < bounds).all() and not draws[:, 0].any()
    for column, bound, cells in zip(draws.T[1:], bounds[1:].tolist(), (2, 3, 7, 8, 7), strict=True):
        counts = np.bincount([int(d) * cells // bound for d in column], minlength=cells)
        assert stats.chisquare(counts).pvalue > ALARM


def test_coins_and_counts_of_an_exponential() -> None:
    for u, d in ((0, 1), (1, 1), (1, 3), (2, 3), (999, 1000)):
        heads = int(exponential_coins(np.full(40_000, u), d).sum())
        chance = float(np.exp(-u / d))
        assert heads == 40_000 if u == 0 else stats.binomtest(heads, 40_000, chance).pvalue > ALARM
    for rate in (1, 4, 1 << 20):
        draws = geometric(rate, 40_000)
        width = max(1, rate // 2)
        counts = np.bincount(np.minimum(draws // width, 9), minlength=10)
        edges = -np.expm1(-np.arange(10) * width / rate)
        assert stats.chisquare(counts, np.diff(np.append(edges, 1.0)) * 40_000).pvalue > ALARM
    for rate in (0, -1, (1 << 50) + 1):
        with pytest.raises(md.DesignError, match="rate"):
            geometric(rate, 2)


LAWS = [[1, 2, 0, 5, 0], [3**90, 0, 1, 2 * 3**90], [7], [1] * 9]


def test_integer_weights_alone_and_in_rows() -> None:
    rows = np.tile(np.arange(len(LAWS)), 100_000)
    together = IntegerRows(LAWS.__getitem__, len(LAWS)).draw(rows)
    for row, weights in enumerate(LAWS):
        law = np.array([w / sum(weights) for w in weights])
        for draws in (IntegerWeights(weights).draw(100_000), together[rows == row]):
            counts, often = np.bincount(draws, minlength=len(weights)), law > 1e-6
            assert len(counts) == len(weights)
            assert (counts[~often] <= 1).all() and (counts[law == 0] == 0).all()
            expected = law[often] / law[often].sum() * counts[often].sum()
            assert often.sum() == 1 or stats.chisquare(counts[often], expected).pvalue > ALARM


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1, 2]])
def test_integer_weights_refuse_what_is_no_law(weights: list[int]) -> None:
    with pytest.raises(md.DesignError, match="weights"):
        IntegerWeights(weights)


def _words(monkeypatch: pytest.MonkeyPatch, first: int, rest: int) -> None:
    """Make the operating system answer `first`, then `rest` for ever."""
    words = iter([first])
    monkeypatch.setattr(sampling, "random_words", lambda n: np.full(n, next(words, rest), dtype=np.uint64))


@pytest.mark.parametrize(("rest", "below"), [(0, True), (2**64 - 1, False)])
def test_ties_draw_further_bits(monkeypatch: pytest.MonkeyPatch, rest: int, below: bool) -> None:
    """64 bits equal to those of 1/3 do not decide U < 1/3: the next ones do."""
    third = Fraction(1, 3)
    _words(monkeypatch, int(third * 2**64), rest)
    assert bernoulli(np.array([1 / 3]), np.zeros(1), lambda _: third).tolist() == [below]
    _words(monkeypatch, int(third * 2**64), rest)
    assert IntegerWeights([1, 2]).draw(1).tolist() == [0 if below else 1]
    _words(monkeypatch, int(third * 2**64), rest)
    assert IntegerRows([[1], [1, 2], [1, 1, 1]].__getitem__, 3).draw(np.array([1])).tolist() == [
        0 if below else 1
    ]


def test_the_last_word_does_not_reach_an_impossible_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    _words(monkeypatch, 2**64 - 1, 2**64 - 1)
    assert IntegerWeights([1, 2, 0]).draw(1).tolist() == [1]
    _words(monkeypatch, 2**64 - 1, 2**64 - 1)
    assert IntegerRows([[1, 2, 0]].__getitem__, 1).draw(np.zeros(1, dtype=int)).tolist() == [1]


def test_surplus_words_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """2⁶⁴ mod 3 = 1: the last word would make one remainder likelier."""
    _words(monkeypatch, 2**64 - 1, 5)
    assert uniform_integers(3, 1).tolist() == [2]


# -- The rational bounds of the exponential, against mpmath at 100 digits ------------------------------------


@given(st.floats(-40, 500, allow_subnormal=False))
def test_bounds_enclose_the_exponential(x: float) -> None:
    with mpmath.workdps(300):
        true = mpmath.exp(mpmath.mpf(x))
        low, high = exp_lower(x), exp_upper(x)
        assert mpmath.mpf(low.numerator) / low.denominator <= true
        assert mpmath.mpf(high.numerator) / high.denominator >= true
    assert (high - low) / low < Fraction(1, 10**55)


@given(st.fractions(min_value=1, max_value=10**6))
def test_logarithm_rounds_outward(ratio: Fraction) -> None:
    with mpmath.workdps(80):
        true = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert mpmath.mpf(log_upper(ratio)) >= true >= mpmath.mpf(log_lower(ratio))
    assert log_upper(ratio) - log_lower(ratio) <= 4 * math.ulp(log_upper(ratio))
