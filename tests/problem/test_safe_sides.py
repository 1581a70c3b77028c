"""Numbers finer than doubles: budgets are stored rounded down, what people change rounded up."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md

FINE = st.one_of(
    st.fractions(Fraction(1, 10**6), 10**6),
    st.decimals("0.000001", "1000000", allow_nan=False),
    st.integers(2**53, 2**80),
    st.integers(2**53, 2**62).map(np.int64),
)
BUDGETS = [
    lambda v: md.PureDP(v).epsilon,
    lambda v: md.ApproximateDP(v, 1e-6).epsilon,
    lambda v: md.ZeroConcentratedDP(v).rho,
    lambda v: md.MetricChannel(md.MetricSpace.grid(1, 2), v).alpha,
]
CHANGES = [
    lambda v: md.Sensitivity(linf=v).linf,
    lambda v: md.Sensitivity(l1=v).l1,
    lambda v: md.Sensitivity(l2=v).l2,
    lambda v: md.Sensitivity(each=[v, 1]).each[0],
    lambda v: md.Calibration("laplace", md.PureDP(1), v).sensitivity,
    lambda v: md.CountsGaussian(3, 1, md.ApproximateDP(1, 1e-6), most=v).changes.most,
    lambda v: md.NoiseAllocation("laplace", [v, 1.0], md.PureDP(1)).sensitivities[0],
]


def _exact(v) -> Fraction:
    return Fraction(v.item() if isinstance(v, np.generic) else v)


@settings(max_examples=50)
@given(v=FINE)
def test_budgets_are_rounded_down_and_changes_up(v) -> None:
    for sign, places in ((1, BUDGETS), (-1, CHANGES)):
        for stored in places:
            held = Fraction(float(stored(v)))
            assert 0 <= sign * (_exact(v) - held) < held * Fraction(1, 2**51)
    assert md.PureDP(0.1).epsilon == 0.1 and md.Sensitivity(linf=0.1).linf == 0.1


def test_what_leaves_the_doubles_is_refused() -> None:
    large = Fraction(1.7976931348623157e308) + 1
    for call in (
        lambda: md.PureDP(Fraction(1, 10**400)),
        lambda: md.Sensitivity(linf=large),
        lambda: md.Sensitivity(each=[large]),
    ):
        with pytest.raises(md.DesignError, match="finite"):
            call()


def test_complex_numbers_and_masks_are_refused() -> None:
    noise = md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0)
    for value in (np.array([1 + 2j]), np.ma.array([1.0, 2.0], mask=[False, True])):
        with pytest.raises(md.DesignError):
            noise.mechanism.release(value)
