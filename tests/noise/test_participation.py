"""Streams in which one person takes part several times."""

from __future__ import annotations

import json
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import linalg

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise import Participation
from mechdesign.noise.changes import Patterns
from mechdesign.noise.strategies import banded, strategy_error
from mechdesign.solvers import Deadline
from mechdesign.verifier.verify import verify

PRIVACY = md.ApproximateDP(1.0, 1e-6)


def prefix(n: int, participation: Participation, **options: object) -> md.CorrelatedGaussian:
    return md.MatrixMechanism(md.Workload.prefix_sums(n), PRIVACY, participation=participation, **options)


def by_brute_force(n: int, k: int, b: int, *, fixed: bool, fewer: bool) -> set[tuple[int, ...]]:
    sets = [
        chosen
        for size in range(1, k + 1)
        for chosen in combinations(range(n), size)
        if all((y - x) % b == 0 if fixed else y - x >= b for x, y in zip(chosen, chosen[1:]))
    ]
    if not fewer:
        return {chosen for chosen in sets if len(chosen) == k}
    return {c for c in sets if not any(set(c) < set(other) for other in sets)}


@given(st.integers(1, 10), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.booleans())
def test_patterns_are_all_that_are_part_of_no_other(n: int, k: int, b: int, fixed: bool, fewer: bool) -> None:
    assume(k <= -(-n // b))
    asked = Participation(k, **{"every" if fixed else "apart": b}, fewer=fewer)
    found = asked.patterns(n)
    assert set(found) == by_brute_force(n, k, b, fixed=fixed, fewer=fewer)
    assert len(set(found)) == len(found)


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans())
def test_the_worst_change_is_a_vertex(n: int, k: int, b: int, fixed: bool, signed: bool) -> None:
    """Against every subset and every sign."""
    assume(k <= -(-n // b))
    asked = Participation(k, **{"every" if fixed else "apart": b})
    strategy = np.random.default_rng(n + 10 * k).normal(size=(n, n))
    gram, worst = strategy.T @ strategy, 0.0
    for full in by_brute_force(n, k, b, fixed=fixed, fewer=True):
        for size in range(1, len(full) + 1):
            for chosen in combinations(full, size):
                for code in range(2**size if signed else 1):
                    d = np.zeros(n)
                    d[list(chosen)] = [-1.0 if code >> j & 1 else 1.0 for j in range(size)]
                    worst = max(worst, float(d @ gram @ d))
    vectors = asked.vectors(n, signed=signed)
    assert ((vectors @ strategy.T) ** 2).sum(axis=1).max() == pytest.approx(worst, rel=1e-12)
    assert asked.count(n, signed=signed) >= len(vectors)


@pytest.mark.parametrize(("n", "least"), [(32, 9263.25), (64, 22193.29)])
def test_four_epochs_in_a_fixed_order(n: int, least: float) -> None:
    result = prefix(n, Participation(4, every=n // 4)).solve()
    assert result.value == pytest.approx(least, rel=1e-5)
    assert result.gap <= 1e-6
    assert result.mechanism.streams
    # group privacy for four steps: sixteen times one epoch
    once = md.MatrixMechanism(md.Workload.prefix_sums(n), PRIVACY).solve()
    assert result.value < 0.3 * 16 * once.value


@pytest.mark.parametrize(
    ("asked", "least", "patterns"),
    [
        (Participation(4, every=8, fewer=False), 5960.15, 8),
        (Participation(4, apart=8, fewer=False), 8116.08, 330),
    ],
)
def test_everybody_in_every_epoch_one_way(asked: Participation, least: float, patterns: int) -> None:
    vectors = asked.vectors(32, signed=False)
    assert len(vectors) == patterns
    result = md.CorrelatedGaussian(vectors @ np.tri(32).T, PRIVACY, span=True).solve()
    assert result.value == pytest.approx(least, rel=1e-5)


@pytest.mark.slow
def test_steps_that_are_far_enough_apart() -> None:
    asked = Participation(4, apart=8)
    assert prefix(32, asked).solve().value == pytest.approx(9474.61, rel=1e-5)
    # 8,116.08 for those who take part four times protects nobody who takes part less often
    assert prefix(32, asked, signed=False).solve().value == pytest.approx(8320.14, rel=1e-5)


@pytest.mark.parametrize(
    ("size", "often", "options", "least", "gap"),
    [
        (64, (8, 4), {}, 94_262.1, 0.119),  # the damped square root, its damping searched: 95,500
        (64, (8, 4), {"loss": "largest"}, 2_222.8, 0.25),  # 2,660
        pytest.param(64, (8, 4), {"signed": False}, 94_262.1, 0.17, marks=pytest.mark.slow),
        pytest.param(
            100, (20, 5), {}, 421_437.6, 0.08, marks=pytest.mark.slow
        ),  # the Toeplitz strategy: 467,152
        pytest.param(100, (20, 5), {"loss": "largest"}, 7_545.9, 0.025, marks=pytest.mark.slow),  # 8,459.6
        pytest.param(256, (4, 64), {}, 129_790.3, 0.044, marks=pytest.mark.slow),  # 143,214
    ],
)
def test_patterns_that_nobody_can_list(
    size: int, often: tuple[int, int], options: dict[str, object], least: float, gap: float
) -> None:
    """The better of two strategies, whose values are recorded."""
    result = prefix(size, Participation(often[0], apart=often[1]), **options).solve()
    assert not result.design.change_set.listed and result.mechanism.streams
    assert result.lower_bound < result.value < least * 1.0005 and result.gap < gap
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


def test_patterns_of_other_workloads_that_nobody_can_list() -> None:
    asked = Participation(8, apart=8)
    result = md.MatrixMechanism(md.Workload.ranges(64), PRIVACY, participation=asked).solve()
    assert not result.design.change_set.listed and result.gap < 0.051
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


@pytest.mark.parametrize("largest", [False, True])
def test_the_best_of_b_bands_is_that_of_the_semidefinite_program(largest: bool) -> None:
    """Over all X ⪰ 0 of b bands: its diagonal against windows of b steps and the whole, by a solver."""
    n, k, b = 16, 3, 5
    x, rest = cp.Variable((n, n), symmetric=True), cp.Variable((n, n), symmetric=True)
    window, whole = cp.Variable(n, nonneg=True), cp.Variable(nonneg=True)
    covered = np.tri(n) - np.tri(n, k=-b)
    held = [cp.bmat([[x, np.tri(n).T], [np.tri(n), rest]]) >> 0, cp.diag(x) <= whole + covered @ window]
    held += [x[i, j] == 0 for i in range(n) for j in range(i - b + 1)] + [cp.sum(window) + k * whole == 1]
    loss = cp.max(cp.diag(rest)) if largest else cp.trace(rest)
    least = cp.Problem(cp.Minimize(loss), held).solve(solver="CLARABEL")
    asked = Patterns(n, Participation(k, apart=b))
    asked.__dict__["listed"] = False
    sums = md.Workload.prefix_sums(n)
    strategy = banded(sums, asked, largest=largest, deadline=Deadline(60))
    found = strategy_error(sums, asked, strategy, largest=largest)
    assert least * (1 - 1e-6) <= found <= least * (1.002 if largest else 1.0001)


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_the_worst_pattern_of_a_banded_strategy(n: int, k: int, b: int, signed: bool) -> None:
    """Against the list; what has one band more is refused."""
    assume(k <= -(-n // b))
    rng = np.random.default_rng(n + 10 * k + 100 * b)
    strategy = rng.normal(size=(n, n)) * (np.tri(n) - np.tri(n, k=-b))
    asked = Patterns(n, Participation(k, apart=b), 3.0, signed)
    spent = asked.spent(strategy)
    assert spent[1]
    asked.__dict__["listed"] = False
    assert asked.spent(strategy) == spent
    if n > b:
        strategy[n - 1, n - 1 - b] = 1e-9
        assert asked.spent(strategy)[0] == np.inf


OTHERS = {
    "fixed": (12, Participation(2, every=4), ({"every": 3}, {"times": 3}, {"every": None, "apart": 4})),
    "banded": (30, Participation(8, apart=3), ({"times": 9}, {"fewer": False})),
    "Toeplitz": (64, Participation(8, apart=4), ({"fewer": False},)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_noise_for_patterns_that_consume_more_is_refused(name: str) -> None:
    from campaign import files

    size, asked, changes = OTHERS[name]
    payload = json.loads(dumps(prefix(size, asked).solve()))["payload"]
    said, law = (
        payload["fields"]["design"]["fields"]["changes"]["fields"]["participation"]["fields"],
        payload["fields"]["mechanism"],
    )
    assert all(accept(payload) for accept in files.ACCEPT.values())
    for change in changes:
        before = dict(said)
        said |= change
        assert not any(accept(payload) for accept in files.ACCEPT.values()), change
        said |= before
    if name == "banded":  # a band more
        law["fields"]["strategy"]["$array"][29][0] = 1e-9
        assert not any(accept(payload) for accept in files.ACCEPT.values())


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.data())
def test_the_first_pattern_is_the_worst_for_coefficients_that_fall(
    n: int, k: int, b: int, signed: bool, data: st.DataObject
) -> None:
    """Against the list."""
    assume(k <= -(-n // b))
    falls = data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    strategy = np.tril(linalg.toeplitz(np.cumsum(falls)[::-1]))
    asked = Patterns(n, Participation(k, apart=b), 1.0, signed)
    spent = asked.spent(strategy)[0]
    asked.__dict__["listed"] = False
    assert asked.spent(strategy)[0] == spent
    if n > b and strategy[b, 0] > 0:
        assert asked.spent(strategy + np.diag(np.ones(n - 1), -1) * (1 + falls[-1]))[0] == np.inf


def test_many_epochs_of_one_step_are_one_person_on_all_counts() -> None:
    """every=1 and times=c is l0=c."""
    one = prefix(6, Participation(2, every=1)).solve()
    other = md.MatrixMechanism(md.Workload.prefix_sums(6), PRIVACY, l0=2).solve()
    assert one.value == pytest.approx(other.value, rel=1e-6)
