"""Matrix mechanisms that do not wait: narrow inverses, bounds at once, and no step begun that would end too late."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.noise.correlated.fixed_point import Balance, balance, iterate
from mechdesign.noise.correlated.span import span_of
from mechdesign.noise.correlated.whitened import column_spent
from mechdesign.noise.matrix import solving
from mechdesign.noise.matrix.chain import Chain
from mechdesign.noise.matrix.changes import Changes
from mechdesign.noise.matrix.solving import proved_bound, solve_strategy
from mechdesign.solvers import Deadline
from mechdesign.typing import Status

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
    # every count made to spend the same: measured from the matrices themselves
    even, worth = chain.evened(found)
    lengths = (even**2).sum(axis=0)
    assert lengths == pytest.approx(np.full(size, lengths[0]), rel=1e-9)
    spread = ((answers @ np.linalg.inv(even)) ** 2).sum(axis=1) * lengths[0]
    assert worth * known.lower_bound == pytest.approx(spread.max() if largest else spread.sum(), rel=1e-9)


@pytest.mark.parametrize(("kind", "largest"), CHAINS)
def test_the_long_way_finds_the_same(kind, largest, monkeypatch):
    loss = "largest" if largest else "total"
    quick = md.MatrixMechanism(kind(90), PRIVACY, loss=loss).solve(gap=1e-8)
    monkeypatch.setattr(solving, "_LISTED", 10**9)
    long = md.MatrixMechanism(kind(90), PRIVACY, loss=loss).solve(gap=1e-8)
    assert quick.value == pytest.approx(long.value, rel=1e-8) and quick.certificate.verify()
    assert quick.lower_bound <= long.value and long.lower_bound <= quick.value


def test_a_gap_closer_than_a_chain_tells_is_closed_by_the_matrix(monkeypatch):
    known = Chain.lower_bound
    monkeypatch.setattr(Chain, "lower_bound", lambda *a: known(*a) * (1 - 1e-7))
    result = md.MatrixMechanism(W.prefix_sums(80), PRIVACY).solve(gap=1e-8)
    assert result.gap <= 1e-8 and result.status is Status.OPTIMAL and result.certificate.verify()
    assert md.MatrixMechanism(W.prefix_sums(80), PRIVACY).solve().gap >= 1e-7  # that will do


class _Slow:
    """A problem of whose balances each takes a second by a clock of its own."""

    sure, equal = 1.0, np.zeros(6)

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.asked = 0.0, 0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def at(self, logs: np.ndarray) -> Balance:
        self.now, self.asked = self.now + 1.0, self.asked + 1
        return balance(np.tri(6), np.exp(logs))


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 7.1])
def test_nothing_is_begun_that_ends_too_late(seconds, monkeypatch):
    slow = _Slow(monkeypatch)
    deadline = Deadline(seconds)
    found = iterate(slow, 1e-15, deadline)
    assert found.late and slow.asked == max(1, int(seconds)) and found.slowest == 1.0
    assert not iterate(slow, 0.9, Deadline(100.0)).late


@pytest.mark.parametrize(("kind", "largest"), CHAINS)
@pytest.mark.parametrize("seconds", [0.0, np.inf])
def test_a_chain_with_no_time_at_all(kind, largest, seconds, monkeypatch):
    """The square root factorization, its counts evened, is within a tenth of the best; ranges have the counts alone."""
    monkeypatch.setattr(Deadline, "left", property(lambda self: 0.0 if self.finite else np.inf))
    monkeypatch.setattr(solving, "seconds_for", lambda size: seconds)
    design = md.MatrixMechanism(kind(300), PRIVACY, loss="largest" if largest else "total")
    result = design.solve(time_limit=1.0)
    assert result.status is Status.LIMIT and result.solver_report.iterations == 0
    assert result.gap < (0.15 if kind is W.prefix_sums else 0.99)
    monkeypatch.undo()
    assert result.certificate.verify()


@pytest.mark.parametrize("loss", ["total", "largest"])
@pytest.mark.parametrize("changes", [{}, {"changed": 2}, {"changed": 2, "signed": False}])
@pytest.mark.parametrize("shape", [(9, 9), (5, 9), (20, 9)])
def test_a_matrix_with_no_time_for_a_decomposition(shape, changes, loss, monkeypatch):
    design = md.MatrixMechanism(np.random.default_rng(1).normal(size=shape), PRIVACY, loss=loss, **changes)
    best = design.solve()
    counted = []
    monkeypatch.setattr(np.linalg, "svd", lambda *a, **k: counted.append(1))
    monkeypatch.setattr(solving, "seconds_for", lambda size: np.inf)
    result = design.solve(time_limit=9.0)
    monkeypatch.undo()
    assert not counted and result.status is Status.LIMIT
    assert 0 < result.lower_bound <= best.value <= result.value and result.gap < 0.9
    assert result.certificate.verify()
    # the weights prove no less than was claimed of them
    found = solve_strategy(
        design.workload, design.changes, largest=design.largest, gap=0.1, deadline=Deadline(None)
    )
    assert found.lower_bound <= best.value * best.design.budget


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.booleans(), st.integers(0, 2**32))
def test_a_bound_at_once_is_below_that_of_its_weights(n, c, signed, seed):
    rng = np.random.default_rng(seed)
    changes = Changes(n, min(c, n), 1.0, signed)
    v = changes.vectors()
    alpha, beta = changes.moments
    assert v.T @ v / len(v) == pytest.approx(alpha * np.eye(n) + beta * np.ones((n, n)))
    workload = W(rng.normal(size=(rng.integers(1, 9), n)))
    for largest in (False, True):
        quick = solving._at_once(workload, changes, largest)
        full = proved_bound(workload, changes, quick.multipliers, largest=largest, wanted=np.inf)
        assume(full > 0)  # a list of fewer changes than queries says nothing
        assert quick.lower_bound <= full * (1 + 1e-12)


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
        "mechdesign.noise.matrix.workload.span_of", lambda rows: pytest.fail("the span was looked for")
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
