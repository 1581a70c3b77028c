"""Random tables with mixed requirements and constraints of their own: private in other people's fractions, tight, and refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.model.exactly import closed, near
from mechdesign.verifier.verify import verify
from model import tables


def check(seed: int, *, hard: bool = False) -> float:
    """The gap of a random problem; 0 where it is proved infeasible."""
    problem = tables.drawn(np.random.default_rng(seed), hard=hard)
    try:
        result = problem.solve()
    except md.InfeasibleError as error:
        assert "proved in rationals" in str(error)
        return 0.0
    assert tables.excess(problem, result) <= 0
    if all(isinstance(c, md.model.Private) or c.expr.is_affine() for c in problem.constraints):
        equal, over = tables.residual(problem, result)
        assert equal <= 1e-12 and over <= 0
    assert result.certificate is not None and result.certificate.verify() and result.gap is not None
    assert all(holds for *_, holds in verify(dumps(result)).rows)
    return result.gap


@pytest.mark.parametrize("seed", [*range(24), 70])  # 70: a ray with rounding in rows of further columns
def test_few(seed: int) -> None:
    assert check(seed) <= 1e-8


@pytest.mark.parametrize("seed", range(6))
def test_least_columns_above_any_table_are_private_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(3, 9)), int(rng.integers(2, 7))
    P = md.Table(range(n), range(m))
    between = [(x, x + 1) for x in range(n - 1)] if seed % 2 else "all"
    private = P.private(md.PureDP(float(rng.uniform(0.05, 4))), between=between)
    declared = md.Problem(md.Minimize(P.expected()), [private]).declared
    table = rng.dirichlet(np.full(m, 0.2), size=n).ravel()
    ((_, _, before),), ((_, _, after),) = near(declared, [table]), near(declared, [closed(declared, table)])
    assert before and not after


@pytest.mark.slow
@pytest.mark.parametrize("block", range(12))
def test_many(block: int) -> None:
    assert max(check(seed) for seed in range(25 * block, 25 * (block + 1))) <= 1e-8


@pytest.mark.slow
def test_hard() -> None:
    gaps = [check(seed, hard=True) for seed in range(1000, 1100)]
    assert np.sort(gaps)[94] <= 1e-6 and max(gaps) < 1e-3
