"""What the worst change spends, and mixes of changes, against all vertices listed and against programs over them."""

from __future__ import annotations

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.noise.scales_solving import worst_mix
from mechdesign.noise.separable import Changes

NAMES = [("l1",), ("l2",), ("l0", "l1"), ("l0", "l2"), ("l1", "l2"), ("l0", "l1", "l2")]
BOUNDS = st.tuples(
    st.lists(st.floats(-1.5, 1.5), min_size=2, max_size=6),
    st.sampled_from([1, 2]),
    st.sampled_from(NAMES),
    st.floats(0.3, 0.95),
    st.integers(0, 2**31),
)
PRIVACY = {"laplace": md.PureDP(0.8), "gaussian": md.ApproximateDP(1.0, 1e-6)}


def drawn_set(drawn) -> tuple[Changes, np.random.Generator]:
    logs, spend, names, part, seed = drawn
    sizes = np.exp(np.array(logs))
    top = np.sort(sizes)[::-1][: max(1, len(sizes) // 2 + 1)]
    bounds = {"l0": len(top), "l1": part * top.sum(), "l2": part * np.sqrt((top**2).sum())}
    given_ = {name: bounds[name] for name in names}
    most = min(given_.get("l1", math.inf), given_.get("l2", math.inf))
    return Changes(np.minimum(sizes, most), spend, **given_), np.random.default_rng(seed)


def corners(asked: Changes) -> np.ndarray:
    """All changes that are whole in some coordinates and take what is left in at most one or two more."""
    a, found = asked.sizes, []
    l1, l2 = asked.l1 or math.inf, asked.l2 or math.inf
    for signs in itertools.product((0.0, 1.0), repeat=len(a)):
        v = np.array(signs) * a
        number, one, two = np.count_nonzero(v), v.sum(), (v * v).sum()
        if number > (asked.l0 or len(a)) or one > l1 * (1 + 1e-12) or two > l2**2 * (1 + 1e-12):
            continue
        found.append(v)
        rest = np.flatnonzero(v == 0)
        for order in itertools.permutations(rest, min(2, len(rest), (asked.l0 or len(a)) - int(number))):
            w = v.copy()
            for i in order:
                w[i] = max(min(a[i], l1 - w.sum(), math.sqrt(max(l2**2 - (w * w).sum(), 0.0))), 0.0)
                found.append(w.copy())
            left, squares = l1 - v.sum(), l2**2 - (v * v).sum()
            if len(order) == 2 and 2 * squares > left**2 and math.isfinite(squares):  # both norms are met
                w = v.copy()
                w[list(order)] = (left + np.array([1, -1]) * math.sqrt(2 * squares - left**2)) / 2
                if w.min() >= 0 and np.all(w <= a):
                    found.append(w)
    return np.array(found)


@settings(max_examples=40, deadline=None)  # each lists hundreds of corners
@given(BOUNDS)
def test_no_change_spends_more_than_is_proved(drawn):
    """With any prices, in fractions and rounded; close to what the worst corner spends where one norm is all that is filled."""
    asked, rng = drawn_set(drawn)
    scales = asked.sizes * rng.uniform(0.5, 2.0, len(asked.sizes))
    most = float(((corners(asked) / scales) ** asked.spend).sum(axis=1).max())
    stated = [asked.l0 is not None, asked.l1 is not None, asked.l2 is not None]
    for prices in ((0.0, 0.0, 0.0), *(tuple(rng.exponential(0.5, 3) * stated) for _ in range(3))):
        assert float(asked.spent(scales, prices)) >= most * (1 - 1e-12)
        exact, rounded = asked.spent(scales, prices), asked._spent(asked.sizes, scales, *prices)
        assert exact <= rounded <= float(exact) * (1 + 1e-12) + 1e-13


@settings(max_examples=40, deadline=None)
@given(BOUNDS, st.floats(0.5, 3.0))
def test_what_prices_prove_of_changes_they_prove_of_mixes(drawn, order):
    """Of the worst mix, and of random ones; a mix that is larger is none."""
    asked, rng = drawn_set(drawn)
    if not asked.rows():
        return
    found = worst_mix(asked, order, None)
    assert asked.reached(found.mix, found.shares) and not asked.reached(found.mix * 1.001, found.shares)
    m, stated = asked.spend, [asked.l0 is not None, asked.l1 is not None, asked.l2 is not None]
    for _ in range(20):
        scales = asked.sizes * rng.uniform(0.5, 2.0, len(asked.sizes))
        prices = tuple(rng.exponential(0.5, 3) * stated)
        part = rng.uniform(0, 1, len(scales)) ** (1 / m)
        for mix in (found.mix, found.mix * part):
            assert asked.reached(mix, found.shares)
            assert ((mix / scales) ** m).sum() <= float(asked.spent(scales, prices)) * (1 + 1e-12)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(BOUNDS, st.floats(0.5, 3.0))
def test_values_lie_between_bounds_of_all_corners(drawn, order):
    """The value is not below the least noise for all corners listed, found by another program."""
    asked, _ = drawn_set(drawn)
    noise = "gaussian" if asked.spend == 2 else "laplace"
    bounds = md.Sensitivity(each=asked.sizes, l0=asked.l0, l1=asked.l1, l2=asked.l2)
    design = md.NoiseAllocation(noise, bounds, PRIVACY[noise], loss=order)
    result = design.solve()
    assert result.checks()["holds"].all() and result.certificate.verify()
    if design.bounds is None or (noise == "laplace" and asked.l2 is not None):
        return
    parts = (np.unique(corners(asked), axis=0) / result.mechanism.scales) ** asked.spend / design.budget
    assert parts.sum(axis=1).max() <= 1 + 1e-12
    u, losses = cp.Variable(len(result.mechanism.scales)), result.mechanism.scales**order
    program = cp.Problem(
        cp.Minimize(losses / losses.sum() @ cp.exp(order * u)), [parts @ cp.exp(-asked.spend * u) <= 1]
    )
    program.solve(solver="CLARABEL")
    assert program.value <= 1 + 1e-6 and result.gap <= 1e-6
    assert program.value >= 1 - 1e-5 or not asked.exact
