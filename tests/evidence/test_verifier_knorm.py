"""The stand-alone check of K-norm noise: sound and doctored files, and the largest norms against a search and the package."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import mechdesign as md
from mechdesign.noise.radial import round_delta as known_delta
from mechdesign.verifier.changes import bounds_of, covers, reached
from mechdesign.verifier.knorm import round_delta
from mechdesign.verifier.reading import Account

S = md.Sensitivity


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 300),
    st.floats(1e-3, 1.0),
    st.floats(1e-3, 12.0),
    st.sampled_from([1e-9, 0.01, 0.3, 0.9, 0.999]),
)
def test_both_sides_count_the_same_delta(d: int, part: float, size: float, edge: float) -> None:
    """Ball arithmetic with the library's Bessel and beta functions, and decimals with sums of their own."""
    change = Fraction(size * part)
    epsilon = float(change) * edge
    found = round_delta(d, change, Decimal(epsilon), Account(10**6))
    assert abs(arb(str(found)) / known_delta(d, change, epsilon) - 1) < 1e-15


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31))
def test_the_largest_norms_are_those_of_a_search_and_of_the_package(seed: int) -> None:
    rnd = random.Random(seed)
    size = rnd.randint(1, 5)
    each = [rnd.choice([1.0, 2.0, rnd.uniform(0.1, 3)]) for _ in range(size)]
    asked = {
        "l0": rnd.randint(1, size),
        "l1": sum(each) * rnd.uniform(0.3, 1),
        "l2": math.hypot(*each) * rnd.uniform(0.4, 1),
    }
    sensitivity = S(each=each, **{name: bound for name, bound in asked.items() if rnd.random() < 0.5})
    plain = {name: getattr(sensitivity, name) for name in ("linf", "l1", "l2", "l0", "each")}
    bounds, l1, l2 = bounds_of(plain, size)
    for norm, package in (
        (1.0, sensitivity.largest_l1),
        (2.0, sensitivity.largest_l2),
        (math.inf, sensitivity.largest_linf),
    ):
        largest = package(size)
        assert covers(norm, bounds, l1, l2, Fraction(largest))
        assert not covers(norm, bounds, l1, l2, Fraction(largest) * (1 - Fraction(1, 10**9)))
        assert math.isclose(reached(norm, bounds, l1, l2), largest, rel_tol=1e-12)
    if sensitivity.l0 is None and sensitivity.l2 is not None:
        limit = [{"type": "ineq", "fun": lambda v: sensitivity.l2**2 - float(v @ v)}]
        if sensitivity.l1 is not None:
            limit.append({"type": "ineq", "fun": lambda v: sensitivity.l1 - float(v.sum())})
        start = np.full(size, 0.01)
        found = optimize.minimize(lambda v: -v.sum(), start, bounds=[(0, b) for b in each], constraints=limit)
        assert covers(1.0, bounds, l1, l2, Fraction(-found.fun * (1 + 1e-6)))
