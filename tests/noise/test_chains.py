"""Chains: narrow inverses of Gram matrices; workloads by their structure."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.noise.correlated.fixed_point import balance
from mechdesign.noise.correlated.noise import column_spent
from mechdesign.noise.matrix import solving
from mechdesign.noise.matrix.solving import Chain
from mechdesign.problem.span import span_of

PRIVACY = md.ApproximateDP(1, 1e-6)
W = md.Workload
CHAINS = [(W.prefix_sums, False), (W.prefix_sums, True), (W.ranges, False)]


@pytest.mark.parametrize(("kind", "largest"), CHAINS)
@pytest.mark.parametrize("size", [2, 7, 40])
def test_a_chain_is_its_matrix(kind, largest, size):
    rng = np.random.default_rng(size)
    workload = kind(size)
    logs = rng.normal(size=size * (2 if largest else 1))
    chain = Chain(workload, largest)
    weights, loads = chain.split(logs)
    found, answers = chain.at(logs), workload.dense()
    if largest:
        known = balance(np.eye(size), weights, answers, loads)
        assert found.burden == pytest.approx(known.burden, rel=1e-9)
        second = known.whitening.T @ known.whitening
    else:
        root = workload.root
        known = balance(np.ascontiguousarray(root.T), weights)
        second = (known.whitening @ root).T @ (known.whitening @ root)
    assert found.share == pytest.approx(known.share, rel=1e-9)
    assert found.whitening.T @ found.whitening == pytest.approx(second, rel=1e-8, abs=1e-9 * second.max())
    bound = chain.lower_bound(weights, loads)
    assert known.lower_bound * (1 - 1e-10) <= bound <= known.lower_bound * (1 + 1e-14)


@pytest.mark.parametrize(("kind", "largest"), CHAINS)
def test_the_long_way_finds_the_same(kind, largest, monkeypatch):
    loss = "largest" if largest else "total"
    quick = md.MatrixMechanism(kind(90), PRIVACY, loss=loss).solve(gap=1e-8)
    monkeypatch.setattr(solving, "_chain", lambda *_, **__: None)
    long = md.MatrixMechanism(kind(90), PRIVACY, loss=loss).solve(gap=1e-8)
    assert quick.value == pytest.approx(long.value, rel=1e-8) and quick.certificate.verify()
    assert quick.lower_bound <= long.value and long.lower_bound <= quick.value


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(-150, 140), st.floats(1e-3, 1e3), st.integers(0, 2**32))
def test_columns_spend_no_more_than_is_said(rows, exponent, most, seed):
    strategy = np.random.default_rng(seed).normal(size=(rows, 3)) * 10.0**exponent
    said = column_spent(strategy, most)
    worst = max(sum(Fraction(x) ** 2 for x in column) for column in strategy.T.tolist()) * Fraction(most) ** 2
    assert worst <= Fraction(said) <= worst * (1 + Fraction(1, 10**12)) + Fraction(1, 10**280)


def test_columns_that_overflow_spend_everything():
    assert column_spent(np.full((2, 2), 1e200), 1.0) == np.inf


def test_independent_queries_need_no_exact_span(monkeypatch):
    """30 random queries on 60 counts took rational numbers of thousands of digits; they are a root of their own."""
    monkeypatch.setattr(
        "mechdesign.problem.workload.span_of", lambda rows: pytest.fail("the span was looked for")
    )
    rows = np.random.default_rng(4).normal(size=(30, 60))
    assert np.array_equal(W(rows).root, rows)
    monkeypatch.undo()
    twice = np.concatenate([rows[:5, :8], rows[:5, :8]])
    root = W(twice).root
    assert root.shape == (5, 8) and root.T @ root == pytest.approx(twice.T @ twice)
    assert span_of(twice).rank == 5


def test_workloads_alike():
    ones = [
        W.prefix_sums(4),
        W.ranges(4),
        W.prefix_sums(5),
        W(np.tri(4)),
        W(np.eye(4)),
        W.kron([[1.0]], np.tri(4)),
    ]
    for i, a in enumerate(ones):
        for j, b in enumerate(ones):
            assert a.same(b) == (i == j)
    assert W(np.tri(4)).same(W(np.tri(4)))
    assert W.stack(W.identity(2), W.identity(2)).same(W.stack(W.identity(2), W.identity(2)))
    assert not W.stack(W.identity(2), W.identity(2)).same(W.identity(2))
