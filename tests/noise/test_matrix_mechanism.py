"""The optimal matrix mechanism: known optima, an independent program, every structured workload against its matrix."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise import Participation
from mechdesign.noise.changes import Patterns
from mechdesign.noise.release import ExactNoise
from mechdesign.noise.strategies import banded, binary_tree, square_root, strategy_error
from mechdesign.solvers import Deadline
from mechdesign.verifier.verify import verify

PRIVACY = md.ApproximateDP(1.0, 1e-6)
W = md.Workload

STRUCTURED = [
    W.identity(4),
    W.prefix_sums(5),
    W.ranges(4),
    W.marginals((2, 3, 2), order=2),
    W.marginals((2, 3, 1), order=1),
    W.marginals((2, 3), kept=[(0,), (), (0, 1)]),
    W.kron(W.prefix_sums(2), W.ranges(3)),
    W.kron(W.marginals((2, 2), order=1), W.prefix_sums(2)),
    W.stack(W.prefix_sums(4), W.identity(4), [[1.0, -1.0, 0.0, 0.0]]),
    W([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]),
]


@pytest.mark.parametrize("workload", STRUCTURED, ids=str)
@pytest.mark.parametrize("loss", ["total", "largest"])
@pytest.mark.parametrize("l0", [1, 2])
def test_every_structure_is_its_matrix(workload, loss, l0):
    """Structure saves work, and changes nothing: by the matrix and the listed changes the same value comes out."""
    dense = W(workload.dense())
    assert np.allclose(workload.gram(), dense.dense().T @ dense.dense()) and workload.count == dense.count
    l0 = min(l0, workload.size)
    result = md.MatrixMechanism(workload, PRIVACY, loss=loss, l0=l0).solve()
    plain = md.MatrixMechanism(dense, PRIVACY, loss=loss, l0=l0).solve()
    assert result.value == pytest.approx(plain.value, rel=3e-6)
    assert result.gap <= 1e-6 and result.certificate.verify()
    # independent: the variances of the answers, and what each listed change spends
    law, matrix = result.mechanism, workload.dense()
    second = np.linalg.pinv(law.strategy.T @ law.strategy)
    assert np.diag(matrix @ second @ matrix.T) == pytest.approx(law.variances, rel=1e-6)
    assert result.value == pytest.approx(
        law.variances.sum() if loss == "total" else law.variances.max(), rel=1e-9
    )
    assert law.mse == pytest.approx(law.variances.sum(), rel=1e-9)
    assert np.allclose(matrix @ np.linalg.pinv(law.strategy) @ law.strategy, matrix)
    for places in itertools.combinations(range(workload.size), l0):
        for signs in itertools.product((1.0, -1.0), repeat=l0):
            d = np.zeros(workload.size)
            d[list(places)] = signs
            assert (law.strategy @ d) @ (law.strategy @ d) <= law.budget * (1 + 1e-12)


def test_prefix_sums_and_the_published_factorizations():
    """The square root's constants are in closed form: Σ_t Σ_k≤t c_k² in total, squared norms of the same rows at most."""
    result = md.MatrixMechanism(W.prefix_sums(64), PRIVACY).solve()
    table = result.alternatives().set_index("mechanism")["error"]
    c = np.array([1.0, *np.cumprod([(2 * k - 1) / (2 * k) for k in range(1, 64)])])
    assert np.allclose(square_root(64) @ square_root(64), np.tri(64))
    norms = np.cumsum(c**2)
    assert table["square root factorization"] * result.design.budget == pytest.approx(norms[-1] * norms.sum())
    # each count is in one interval a level; a prefix is as many of them as its length has binary ones
    ones = sum(bin(t).count("1") for t in range(1, 65))
    assert table["binary tree"] * result.design.budget == pytest.approx(7 * ones)
    assert binary_tree(64).shape == (127, 64)
    assert table["binary tree, least squares"] < table["binary tree"]
    order = [
        f"{result.bound_how} lower bound of this family (any Gaussian noise of any covariance)",
        "this mechanism",
        "square root factorization",
        "binary tree",
    ]
    assert list(table[order]) == sorted(table[order])
    assert table["lower bound of the singular values"] < result.lower_bound


def test_largest_error_of_prefix_sums():
    """γ₂ of the prefix sums: the best factorization is below the square root's and above (log n)/π, as is proved for it."""
    result = md.MatrixMechanism(W.prefix_sums(128), PRIVACY, loss="largest").solve()
    norm = (result.value * result.design.budget) ** 0.5
    c = square_root(128)[-1]
    assert np.log(2 * 128 / 3 + 1) / np.pi <= norm <= (c**2).sum()
    spread = result.mechanism.variances
    assert spread.max() == pytest.approx(result.value) and result.gap <= 1e-6


def test_known_optima():
    result = md.MatrixMechanism(W.marginals((3, 4, 5), order=2), PRIVACY).solve()
    table = result.alternatives().set_index("mechanism")["error"]
    assert table["lower bound of the singular values"] == pytest.approx(result.value, rel=1e-9)
    assert "rank 36" in str(result.notes) and result.solver_report.iterations == 0
    for signed, value in ((False, 1039.4379), (True, 1070.8747)):
        result = md.MatrixMechanism(W.identity(20), PRIVACY, l0=3, signed=signed).solve()
        assert result.value == pytest.approx(value, abs=1e-3) and result.certificate.verify()


def test_spent_in_rationals_and_above():
    for n, how in ((20, "rational"), (80, "rounded up")):
        result = md.MatrixMechanism(W.prefix_sums(n), PRIVACY, most=0.1).solve()
        assert any(how in claim for claim in result.certificate.checks()["claim"])
        columns = [[Fraction(x) for x in column] for column in result.mechanism.strategy.T.tolist()]
        worst = (
            max(sum(x * x for x in column) for column in columns)
            * Fraction(result.design.change_set.most) ** 2
        )
        assert worst <= Fraction(result.design.budget) <= worst * (1 + Fraction(1, 10**9))


def test_answers_are_streamed_as_they_are_released(monkeypatch):
    law = md.MatrixMechanism(W.prefix_sums(6), PRIVACY).solve().mechanism
    assert law.streams and law.triangular
    counts, at = np.array([3.0, 0.0, 5.0, 1.0, 1.0, 2.0]), itertools.count()
    monkeypatch.setattr(ExactNoise, "draw", lambda self, size: np.arange(size, dtype=np.int64) * 2**31)
    whole = law.release(counts)
    one_by_one = lambda self, size: np.array([next(at) * 2**31 for _ in range(size)], dtype=np.int64)  # noqa: E731
    monkeypatch.setattr(ExactNoise, "draw", one_by_one)
    assert np.fromiter(law.stream(iter(counts)), float) == pytest.approx(whole, rel=1e-12)
    with pytest.raises(md.DesignError, match="more than the 6"):
        list(law.stream([1] * 7))
    with pytest.raises(md.DesignError, match="step by step"):
        md.MatrixMechanism(W.ranges(3), PRIVACY).solve().mechanism.stream([1])


# -- Streams in which one person takes part several times ----------------------------------------------------


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
    spent = asked.consumed(strategy)
    assert spent[1]
    asked.__dict__["listed"] = False
    assert asked.consumed(strategy) == spent
    if n > b:
        strategy[n - 1, n - 1 - b] = 1e-9
        assert asked.consumed(strategy)[0] == np.inf


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
