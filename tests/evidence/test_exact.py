"""The rational bounds of the exponential, against mpmath at 100 digits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
from hypothesis import given
from hypothesis import strategies as st

from mechdesign.evidence.exact import exp_lower, exp_upper, log_lower, log_upper


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
