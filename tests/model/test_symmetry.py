"""Symmetries of a declared problem: found or given, they change neither the optimum nor what is proved, and rows that break them drop them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mechdesign as md
from mechdesign.model import table_problem
from mechdesign.model.program import Program
from mechdesign.model.symmetry import Symmetry


def counts(n: int, privacy: object, s: int = 1) -> md.Problem:
    P = md.Table(range(n + 1), range(n + 1), of="data")
    pairs = [(x, y) for x, y in itertools.combinations(range(n + 1), 2) if y - x <= s]
    return md.Problem(md.Minimize(P.worst("squared")), [P.private(privacy, between=pairs)])


def places(side: int, **options: object) -> md.Problem:
    space = md.MetricSpace.grid(side, side)
    P = md.Table(range(side * side), range(side * side))
    asked = md.MetricDP(0.7, metric=space) if not options else options["privacy"]
    return md.Problem(md.Minimize(P.expected(space.distances)), [P.private(asked)])


@pytest.mark.parametrize(
    ("problem", "variables"),
    [
        (counts(7, md.PureDP(1.0)), 32),
        (counts(8, md.ApproximateDP(1.0, 0.01)), 41),
        (counts(6, md.ApproximateDP(0.5, 1e-5), 3), 25),
        (places(3), 15),
        (places(3, privacy=md.PureDP(1.0)), 15),
        (places(3, privacy=md.TradeOff([(1.0, 0.01), (2.0, 0.0)])), 15),
    ],
)
def test_the_optimum_is_that_without_symmetry(problem: md.Problem, variables: int) -> None:
    plain, found = problem.solve(), problem.solve(symmetry="find")
    assert Symmetry.of(problem.declared, "find").cells.max() + 1 == variables
    assert found.value == pytest.approx(plain.value, rel=1e-8)
    assert found.certificate.verify() and found.gap <= 1e-8
    assert found.lower_bound <= plain.value


def test_a_row_that_breaks_a_permutation_drops_it() -> None:
    problem, turned = counts(6, md.ApproximateDP(1.0, 0.01)), np.arange(7)[::-1]
    assert not problem.solve(symmetry=[(turned, turned)]).notes
    P = problem.unknown
    capped = problem.subject_to(md.named("cap", P[0, 0] >= 0.7))
    found = capped.solve(symmetry=[(turned, turned)])
    assert "1 of the permutations" in found.notes[0]
    assert found.value == pytest.approx(capped.solve().value, rel=1e-8)
    both = capped.subject_to(md.named("the same at the other end", P[6, 6] >= 0.7))
    assert not both.solve(symmetry=[(turned, turned)]).notes


@pytest.mark.parametrize("asked", ["all", [([0, 1], [0, 1])], [(range(7), [0] * 7)]])
def test_what_is_no_permutation_is_refused(asked: object) -> None:
    with pytest.raises(md.DesignError, match="symmetry"):
        counts(6, md.PureDP(1.0)).solve(symmetry=asked)


@pytest.mark.parametrize("rounds", [1, 9])
def test_a_large_table_on_a_metric_is_solved_by_rounds(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """By an interior-point method: with rows still missing the law is private all the same, and the bound below."""
    problem = places(4)
    problem = problem.subject_to(md.named("cap", problem.unknown[5, 5] <= 0.3))
    exact = problem.solve()
    monkeypatch.setattr(table_problem, "_SIMPLEX", 0)
    grown = Program.grown
    left = iter(range(rounds - 1))
    monkeypatch.setattr(Program, "grown", lambda self: grown(self) if next(left, None) is not None else 0)
    found = problem.solve(gap=1e-6)
    assert found.certificate.verify()
    assert found.lower_bound <= exact.value <= found.value * (1 + 1e-9)
    assert found.gap <= (1e-6 if rounds > 1 else 0.2)
