"""Values of tables that are known to ten digits, from above to 1e-9, each proved; and equal to CVXPY's own optimum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import mechdesign as md
from mechdesign.errors import SolverError
from mechdesign.evidence.exact import fraction
from mechdesign.evidence.proofs import RowsBound
from mechdesign.evidence.serialize import dumps
from mechdesign.model import exactly
from mechdesign.model.declared import Declared, Part
from mechdesign.model.exactly import admissible, least_epsilon
from mechdesign.problem.spine import Clock
from mechdesign.solvers import Deadline
from mechdesign.verifier.verify import verify
from model import tables

X, Y = [-1, -0.5, 0, 0.5, 1], [-3, -0.5, 0.5, 3]
PURE = md.PureDP(1.0)


def quantizer(
    *own: Callable[[Any], Any],
    privacy: Any = PURE,
    loss: str = "absolute",
    inputs: Any = X,
    outputs: Any = Y,
    worst: bool = False,
    unbiased: bool = True,
) -> md.Problem:
    P = md.Table(inputs, outputs)
    objective = P.worst(loss) if worst else P.expected(loss)
    constraints = [P.private(privacy), *([P.unbiased()] if unbiased else []), *(one(P) for one in own)]
    return md.Problem(md.Minimize(objective), constraints)


def count(n: int, privacy: Any, *own: Callable[[Any], Any]) -> md.Problem:
    P = md.Table(range(n + 1), range(n + 1), of="data")
    rows = [P.private(privacy, between="adjacent"), *(one(P) for one in own)]
    return md.Problem(md.Minimize(P.worst("squared")), rows)


def two_requirements() -> md.Problem:
    P = md.Table(np.linspace(0, 1, 9), np.linspace(-2, 3, 11))
    constraints = [P.private(md.ApproximateDP(0.5, 0.05)), P.private(md.PureDP(2.0)), P.unbiased()]
    return md.Problem(md.Minimize(P.expected("squared")), constraints)


def channel(side: int) -> md.Problem:
    space = md.MetricSpace.grid(side, side)
    P = md.Table(space.points, space.points)
    return md.Problem(md.Minimize(P.expected()), [P.private(md.MetricDP(1.0, metric=space))])


def choice(candidates: int, votes: int) -> md.Problem:
    """The winner among candidates: least mean regret where one vote more or less is protected."""
    counts, names = list(itertools.product(range(votes + 1), repeat=candidates)), "abc"[:candidates]
    P = md.Table(counts, list(names))
    one = [(x, y) for x in counts for y in counts if x < y and sum(abs(a - b) for a, b in zip(x, y)) == 1]
    regret = P.expected(lambda x, winner: max(x) - x[names.index(winner)])
    return md.Problem(md.Minimize(regret), [P.private(PURE, between=one)])


VALUES: dict[str, tuple[Callable[[], md.Problem], float]] = {
    "as said": (quantizer, 1.7577162947),
    "capped": (lambda: quantizer(lambda P: P[:, 1] <= 0.2), 1.7687790165),
    "no interior": (lambda: quantizer(lambda P: P[:, 1] <= 0), 1.8594187089),
    "no interior, from one cell": (lambda: quantizer(lambda P: P[0, 1] == 0), 1.8594187089),
    "worst": (lambda: quantizer(worst=True), 1.9463158682),
    "delta": (lambda: quantizer(privacy=md.ApproximateDP(1, 0.01), loss="squared"), 4.4906621210),
    "metric": (lambda: quantizer(privacy=md.MetricDP(2.0)), 0.6715727999),
    "increasing": (lambda: quantizer(lambda P: P[1:, 3] >= P[:-1, 3] + 0.02), 1.7922808605),
    "stated twice": (lambda: quantizer(lambda P: 0.1 * P.bias() == 0, outputs=[-3, -0.7, 0.5, 3]), 1.7653384289),
    "count": (lambda: count(10, md.ApproximateDP(1, 0.01)), 1.3369522031),
    "count, sure of 0": (lambda: count(10, md.ApproximateDP(1, 0.01), lambda P: P[0, 0] >= 0.7), 1.3576753152),
    "hidden count": (lambda: count(14, md.ApproximateDP(1, 0.01), lambda P: P[0, 1:] == 0), 11.010005176),
    "hidden count, more": (lambda: count(23, md.ApproximateDP(1, 1e-6), lambda P: P[0, 1:] == 0), 130.36047615928),
    "channel": (lambda: channel(5), 1.228677266),
    "floors": (lambda: quantizer(inputs=np.linspace(-1, 1, 40), outputs=np.linspace(-2.5, 2.5, 40)), 1.748756999),
    "two requirements": (two_requirements, 2.442362312),
    "steep": (lambda: quantizer(lambda P: P[:, 1] <= 0.5, privacy=md.PureDP(22), loss="squared", inputs=[-1, 0, 3], outputs=[-2, 0, 4]), 2.666666669),
    "steeper": (lambda: quantizer(lambda P: P[:, 1] <= 0.5, privacy=md.PureDP(300), loss="squared", inputs=[-1, 0, 3], outputs=[-2, 0, 4]), 2.6666666667),
    "choice of two": (lambda: choice(2, 8), 0.0777164942),
    "choice of three": (lambda: choice(3, 4), 0.1890508479),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    problem, expected = VALUES[name][0](), VALUES[name][1]
    result = problem.solve()
    assert result.value == pytest.approx(expected, rel=1e-9)
    assert result.gap is not None and result.gap < 1e-10 and result.bound_how == "proved"
    assert result.certificate is not None and result.certificate.verify()
    assert tables.excess(problem, result) <= 0


@pytest.mark.parametrize("name", ["capped", "worst", "delta", "metric", "two requirements"])
def test_the_model_in_cvxpy_has_the_same_optimum(name: str) -> None:
    problem = VALUES[name][0]()
    model = problem.to_cvxpy()
    model.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.solve().value == pytest.approx(float(model.value), rel=1e-7)


@pytest.mark.parametrize(
    ("cap", "least"), [(None, math.log(2)), (0.3, 1.866264042), (0.4, 1.270196633), (0.45, math.log(3))]
)
def test_infeasible(cap: float | None, least: float) -> None:
    own = [] if cap is None else [lambda P: md.named("outer", P[:, [0, 3]] <= cap)]
    problem = quantizer(*own, privacy=md.PureDP(0.5))
    with pytest.raises(md.InfeasibleError, match="'private' and 'unbiased' together") as error:
        problem.solve()
    assert error.value.smallest_epsilon is not None and 0 <= error.value.smallest_epsilon - least <= 1.1e-6
    found = least_epsilon(problem.declared, ["private"], Clock(None))
    assert found == pytest.approx(least, rel=1e-8)


def test_the_search_for_the_least_epsilon_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the least ε HiGHS may step in place: of the table of a ring of 36 for more than 900 s."""
    answers = [SolverError("no answer", solver="highs", status="limit"), True, False]

    def feasible(declared: Declared, clock: Deadline) -> bool:
        if isinstance(answer := answers.pop(), SolverError):
            raise answer
        return answer and clock.finite

    monkeypatch.setattr(exactly, "feasible", feasible)
    assert least_epsilon(quantizer().declared, ["private"], Clock(None)) == 2.0


def test_a_cap_next_to_the_least_worst_loss_is_met() -> None:
    """The room that it leaves is less than HiGHS's error, that of a refined table is not."""
    P, off = md.Table(range(12), range(12)), np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    private = P.private(md.ApproximateDP(0.5, 0.02), between="adjacent")
    worst = P.worst(np.minimum(off, 5))
    least = md.Problem(md.Minimize(worst), [private]).solve().value
    result = md.Problem(md.Minimize(P.expected("error")), [private, worst <= least * (1 + 1e-9)]).solve()
    assert result.gap < 1e-9 and result.certificate.verify()


def test_infeasible_noise_says_from_where_on_there_is_some() -> None:
    """At (7.999007, δ) of a reach of two: where HiGHS ends without a word its error hid what was proved."""
    noise = md.LatticeNoise(1, 2, integer=True)
    private = noise.private(md.ApproximateDP(1.0759888360307772e-4, 1.1268332224511409e-07))
    with pytest.raises(md.InfeasibleError, match="proved in rationals") as error:
        md.Problem(md.Minimize(noise.expected()), [private]).solve()
    assert error.value.smallest_epsilon == pytest.approx(-math.log(1.1268332224511409e-07) / 2, abs=1e-3)


def test_families_that_contradict_each_other_without_privacy() -> None:
    problem = quantizer(lambda P: md.named("high", P[0, 0] >= 0.6), lambda P: md.named("low", P[0, 0] <= 0.1))
    with pytest.raises(md.InfeasibleError, match="'high' and 'low' together") as error:
        problem.solve()
    assert "private" not in str(error.value) and error.value.smallest_epsilon is None


def test_an_epsilon_that_only_just_suffices() -> None:
    P = md.Table([0, 1], [0, 1])
    rows = [P.private(md.PureDP(math.log(3))), P[0, 0] == 0.75, P[1, 0] == 0.25]  # the double is above
    assert md.Problem(md.Minimize(P.expected("error")), rows).solve().mechanism.weights == ((3, 1), (1, 3))


@pytest.mark.parametrize("size", [1e-200, 1e-10, 1e16, 4e307])
def test_units_of_rows_and_losses_do_not_matter(size: float) -> None:
    """A solver's tolerances are absolute: rows and costs reach it in units of their own."""
    P = md.Table([-1, -0.5, 0, 0.5, 1], [-3, -0.5, 0.5, 3])
    cap, near = size * cp.max(P[:, 1]) <= size * 0.2, size * cp.norm1(P[0] - P[1]) <= size * 0.4
    rows = [P.private(md.PureDP(1.0)), P.unbiased(), md.named("cap", cap), md.named("near", near)]
    for objective in (P.expected(), P.expected(size * P.losses()), P.worst(size * P.losses())):
        result = md.Problem(md.Minimize(objective), rows).solve()
        assert result.gap is not None and result.gap < 1e-9
    plain = md.Problem(md.Minimize(P.expected()), rows).solve()
    assert plain.value == pytest.approx(1.7687790165, rel=1e-9)


def test_inequalities_without_room_become_equalities() -> None:
    """Facial reduction: two opposite rows are tight in every table, and the others have slack in common on that face."""
    P = md.Table([0, 1, 2], [0, 1, 2])
    rows = [md.named("up", P[0, 1] <= P[2, 1]), md.named("down", P[2, 1] <= P[0, 1])]
    declared = md.Problem(md.Minimize(P.expected()), [P.private(md.PureDP(1.0)), *rows]).declared
    face, point = exactly.interior(declared, Deadline(None), None)
    assert face.tight == {0, 1}
    assert point[1] == point[7] and not face.broken(point) and min(point) > 0


def test_losses_beyond_all_enclosures_are_kept_by_the_largest() -> None:
    """e^{16384} is below e^ε: a certificate of its own result once failed."""
    P = md.Table([0, 1, 2], [0, 1, 2])
    rows = [P.private(md.PureDP(20_000.0)), P[0, 0] <= 0.9]
    result = md.Problem(md.Minimize(P.expected()), rows).solve()
    assert result.certificate.verify() and result.value == pytest.approx(0.1 / 3) and result.gap < 1e-7
    far = md.MetricSpace.line([0.0, 473.0])
    assert md.MetricChannel(far, alpha=100.0, prior=[0.75, 0.25]).solve().certificate.verify()


# -- Random tables with mixed requirements and constraints of their own: private in other people's fractions, tight, and refused by name


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


HARD = (21, 5066)


# 70: a ray with rounding in rows of further columns; 21: a cell of 0 leaves its column at most δ = 1e-9; 5066: a ray after an unknown status
@pytest.mark.parametrize(
    ("seed", "hard"), [*((k, False) for k in (*range(24), 70)), *((k, True) for k in HARD)]
)
def test_few(seed: int, hard: bool) -> None:
    assert check(seed, hard=hard) <= (1e-7 if hard else 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(12))
def test_many(block: int) -> None:
    assert max(check(seed) for seed in range(25 * block, 25 * (block + 1))) <= 1e-8


@pytest.mark.slow
def test_hard() -> None:
    gaps = [check(seed, hard=True) for seed in range(1000, 1100)]
    assert np.sort(gaps)[94] <= 1e-6 and max(gaps) < 1e-3


# -- The theorem of the bound: true for all multipliers it admits, tight for a solver's, and rounded to the side that harms its claim


@pytest.mark.parametrize("seed", range(40))
def test_no_multipliers_prove_more_than_a_feasible_table_costs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = tables.drawn(rng)
    try:
        result = problem.solve()
    except md.InfeasibleError:
        return
    size = problem.declared.parts[-1].end
    for spread in (0.01, 0.1, 1.0):
        rows = np.sort(rng.choice(size, min(size, 30), replace=False))
        held = admissible(
            problem.declared,
            rows,
            spread * rng.standard_exponential(len(rows)) * rng.choice([-1, 1, 1], len(rows)),
        )
        program = problem.declared.linear_bound(*held)
        if program.admissible:  # further columns may be left unpaid
            assert fraction(program.bound) <= Fraction(result.value)


def test_multipliers_of_the_wrong_sign_prove_nothing() -> None:
    P = md.Table([0, 1], [0, 1])
    result = md.Problem(md.Minimize(P.expected("error")), [P.private(md.PureDP(1.0))]).solve()
    (proof,) = (p for p in result.proofs if isinstance(p, RowsBound))
    problem: Any = result.design
    with pytest.raises(md.ResultFormatError, match="sign"):
        problem.linear_bound(proof.rows, tuple(-m for m in proof.multipliers))
    with pytest.raises(md.DesignError, match="rows"):
        problem.linear_bound(np.array([10**6]), (Fraction(1),))


@pytest.mark.parametrize("delta", [0.0, 0.05])
@pytest.mark.parametrize("inputs", [2, 4])
def test_direction(delta: float, inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With e^ε enclosed between 1 ∓ 10⁻³ of it, a law stays private of the one and a bound below the optimum of the other."""
    ends = Part.low, Part.high
    monkeypatch.setattr(Part, "low", lambda self, pair: ends[0](self, pair) * 999 / 1000)
    monkeypatch.setattr(Part, "high", lambda self, pair: ends[1](self, pair) * 1001 / 1000)

    monkeypatch.setattr(exactly, "SURE", 0.01)  # doubles do not say which rows hold

    def best(epsilon: float) -> float:
        x = np.linspace(-1, 1, inputs)
        P = md.Table(x, [-3, 0, 3])
        problem = md.Problem(
            md.Minimize(P.expected()), [P.private(md.ApproximateDP(epsilon, delta)), P.unbiased()]
        )
        model = problem.to_cvxpy()
        model.solve(solver=cp.CLARABEL)
        optimum[epsilon] = float(model.value)
        if epsilon == 1.0:
            found.append(problem.solve())
        return optimum[epsilon]

    found: list[md.Result] = []
    optimum: dict[float, float] = {}
    stricter, looser = (best(1.0 + np.log1p(side)) for side in (-1e-3, 1e-3))
    best(1.0)
    (result,) = found
    assert result.value >= stricter * (1 - 1e-7) > optimum[1.0]
    assert result.lower_bound is not None and result.lower_bound <= looser * (1 + 1e-7) < optimum[1.0]
