"""δ near 1: exact answers most of the time, and a cost in proportion to 1 - δ."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, sparse

import mechdesign as md
from mechdesign.noise.optimal import refine, spiked
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status

MIXED = {"absolute": 0.5, "squared": 1.0}


def solved(epsilon: float, delta: float, loss: object, **options: object) -> md.noise.OptimalNoiseResult:
    return md.OptimalNoise(md.ApproximateDP(epsilon, delta), sensitivity=0.5, loss=loss).solve(**options)


def overlap_cost(epsilon: float, loss: str, n: int) -> float:
    """Least ∫ℓq with ∫min(q(t), e^ε q(t + d)) dt ≥ 1 for all d up to 1, q constant on cells of width 1/n: another program."""
    side = 2 * n
    count, growth = 2 * side + 1, math.exp(epsilon)
    a, b = (np.arange(-side, side + 1) + k for k in (-0.5, 0.5))
    if loss == "squared":
        costs = (b**3 - a**3) / (3 * n**2)
    else:
        costs = (b * np.abs(b) - a * np.abs(a)) / (2 * n)
    rows, signs = [], [s for k in range(1, n + 1) for s in (k, -k)]
    least = len(signs) * count  # a variable for every min(q_j, e^ε q_{j+s})
    one = sparse.identity(count, format="csr")
    for i, s in enumerate(signs):
        mins = sparse.csr_matrix((count, least), dtype=float).tolil()
        mins[np.arange(count), i * count + np.arange(count)] = 1.0
        moved = sparse.diags_array(np.ones(count - abs(s)), offsets=s, shape=(count, count))
        rows += [sparse.hstack([-one, mins]), sparse.hstack([-growth * moved, mins])]
    sums = sparse.kron(sparse.identity(len(signs)), np.ones((1, count)))
    sums = sparse.hstack([sparse.csr_matrix((len(signs), count)), -sums])
    found = optimize.linprog(
        np.append(costs, np.zeros(least)),
        A_ub=sparse.vstack([*rows, sums]),
        b_ub=np.append(np.zeros(2 * len(signs) * count), -np.ones(len(signs))),
        method="highs",
    )
    return float(found.fun)


@pytest.mark.parametrize(
    "epsilon, loss", [(1e-6, "squared"), (1.0, "absolute"), (3.0, "squared"), (1.0, MIXED)]
)
def test_what_it_costs_is_in_proportion(epsilon: float, loss: object) -> None:
    found = [solved(epsilon, delta, loss) for delta in (0.999, 1 - 1e-9, 1 - 2.0**-53)]
    for result in found:
        left = 1 - Fraction(result.design.privacy.delta)
        assert result.status is Status.OPTIMAL and result.gap <= 0.01 and result.certificate.verify()
        assert result.law.exact_delta(epsilon) <= 1 - left
        for of in (lambda r: r.value, lambda r: r.lower_bound):
            first = Fraction(of(found[0])) / (1 - Fraction(found[0].design.privacy.delta))
            assert float(Fraction(of(result)) / left) == pytest.approx(float(first), rel=1e-3)


@pytest.mark.parametrize("epsilon, loss", [(1.0, "squared"), (2.0, "absolute")])
def test_the_program_of_overlaps_agrees(epsilon: float, loss: str) -> None:
    """It is solved by another solver, in another form, at δ = 1 in the limit."""
    cost = overlap_cost(epsilon, loss, 8)
    result = solved(epsilon, 1 - 1e-4, loss)
    unit = 0.5 if loss == "absolute" else 0.25
    assert result.lower_bound <= cost * unit * 1e-4 * (1 + 1e-9)
    assert result.value <= cost * unit * 1e-4 * 1.01
    assert result.lower_bound >= cost * unit * 1e-4 * 0.96  # its cells are wide


@pytest.mark.parametrize("epsilon, loss", [(8.0, "absolute"), (12.0, "squared"), (8.0, MIXED)])
def test_ladders_keep_their_distance(epsilon: float, loss: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spiked, "_FINENESS", (2,))
    kept = []
    for delta in (0.999, 1 - 1e-12):
        q = md.OptimalNoise(md.ApproximateDP(epsilon, delta), loss=loss)._question(0.01, None, "centred")
        found = spiked.spiked(q, refine._known(q, Deadline(None)), Deadline(None), max_cells=256)
        assert found.law.exact_delta(epsilon) <= Fraction(delta)
        kept.append(found.gap)
    assert kept[1] == pytest.approx(kept[0], abs=1e-3) and kept[0] < 0.3


def test_multipliers_as_large_as_doubles_are() -> None:
    """In units of 2⁻¹²⁰ they are no doubles any more: an OverflowError."""
    result = md.OptimalNoise(md.ApproximateDP(1.0, 0.99), sensitivity=1e99, loss="squared").solve()
    assert result.gap <= 0.01 and result.certificate.verify() and result.value > 1e195


def test_no_ladder_is_built_where_steps_are_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """At ε = 200 one has 10⁴³ cells: dividing it did not end."""
    monkeypatch.setattr(spiked, "_on_ladder", lambda *_: pytest.fail("a ladder"))
    for epsilon in (28.0, 200.0):
        q = md.OptimalNoise(md.ApproximateDP(epsilon, 0.99))._question(0.01, None, "centred")
        start = refine._known(q, Deadline(None))
        assert spiked.spiked(q, start, Deadline(None), max_cells=256) is start


def test_the_first_lattices_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon time is up there is an answer; three lattices of at most 32 cells are enough for a percent."""
    sizes: list[int] = []
    held = spiked._held
    monkeypatch.setattr(spiked, "_held", lambda q, n, d: sizes.append(n) or held(q, n, d))
    assert solved(1.0, 0.9999, "squared").gap <= 0.01 and max(sizes) <= 32
    for questions in (0, 5, 20):
        asked = itertools.count()
        with monkeypatch.context() as patch:
            patch.setattr(
                Deadline,
                "left",
                property(
                    lambda self, a=asked, q=questions: (
                        (1.0 if next(a) < q else 0.0) if self.finite else math.inf
                    )
                ),
            )
            late = solved(1.0, 0.9999, "squared", time_limit=1.0)
        assert late.certificate.verify() and 0 < late.lower_bound <= late.value
