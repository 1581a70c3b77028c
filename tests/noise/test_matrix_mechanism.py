"""The optimal matrix mechanism: known optima, an independent program, every structured workload against its matrix."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.noise.changes import Changes
from mechdesign.noise.release import ExactNoise
from mechdesign.noise.strategies import binary_tree, published, square_root

PRIVACY = md.ApproximateDP(1, 1e-6)
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


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.booleans(), st.integers(0, 2**32))
def test_the_list_of_changes_is_complete(n, c, signed, seed):
    c = min(c, n)
    changes = Changes(n, c, 1.0, signed)
    vectors = changes.vectors()
    assert len(vectors) == changes.count and (np.abs(vectors).sum(axis=1) <= c).all()
    # no change allowed spends more than the worst of the list
    rng = np.random.default_rng(seed)
    strategy, d = rng.normal(size=(n, n)), rng.uniform(-1 if signed else 0, 1, n)
    d[rng.permutation(n)[c:]] = 0
    assert ((strategy @ d) ** 2).sum() <= changes.spent(strategy)[0]


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


def test_noise_has_the_covariance_stated():
    law = md.MatrixMechanism(W.marginals((2, 3), order=1), PRIVACY).solve().mechanism
    most = law.covariance.max()
    assert np.cov(law.sample(np.zeros((40_000, 6)), rng=0).T) == pytest.approx(
        law.covariance, abs=0.03 * most
    )
    released = np.array([law.release([4, 0, 1, 2, 2, 5]) for _ in range(300)])
    assert released.mean(axis=0) == pytest.approx([5, 9, 6, 2, 6], abs=4 * most**0.5 / 300**0.5)
    # tables from one release agree on the total, as no independent noise does
    assert released[:, :2].sum(axis=1) == pytest.approx(released[:, 2:].sum(axis=1))


def test_published_strategies_for_every_workload():
    for workload in STRUCTURED:
        own = md.MatrixMechanism(workload, PRIVACY).solve()
        for name, error in published(workload, own.design.change_set, largest=False).items():
            assert error / own.design.budget >= own.lower_bound, (workload, name)


@pytest.mark.parametrize(
    ("workload", "factor"),
    [
        ([[1.0, 1.0], [1.0, 1.0 + 2.0**-52]], 2.0),
        (np.diag([1e-90, 1.0, 1e90]), 1e180),
        ([[3.0]], 9.0),
        (np.ones((5, 3)), 5.0),
        ([[1, 0, 1], [0, 0, 1]], None),
    ],
)
def test_graded_and_singular_matrices(workload, factor):
    """One answer a hundred million million times another, rows all but equal, counts that nobody asks for."""
    result = md.MatrixMechanism(workload, PRIVACY).solve()
    assert result.gap <= 1e-6 and result.certificate.verify() and result.checks()["holds"].all()
    if factor is not None:
        assert result.value * result.design.budget == pytest.approx(factor, rel=1e-6)
    assert np.isfinite(result.mechanism.release(np.zeros(np.shape(workload)[1]))).all()
