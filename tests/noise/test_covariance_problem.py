"""Problems on a covariance: against CVXPY's own optimum, with rows of one's own, and the directions of every bound."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.noise import CovarianceBound
from mechdesign.noise.correlated_noise import CorrelatedGaussianNoise, inverse_rows, most_consumed
from mechdesign.noise.covariance_bound import cost_between, dual_below, factor_below, is_below, polar
from mechdesign.verifier.verify import verify
from tests.programs import refused

PRIVACY = md.ApproximateDP(1.0, 1e-6)
CHANGES = np.random.default_rng(1).standard_normal((6, 4))
TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)


def problem(loss: str, changes: np.ndarray = CHANGES) -> md.Problem:
    S = md.Covariance(changes)
    size = changes.shape[1]
    losses = {
        "total": lambda: S.total(),
        "largest": lambda: S.largest(),
        "sums": lambda: S.total(md.Workload.prefix_sums(size)),
        "largest sum": lambda: S.largest(np.tri(size)),
        "sizes": lambda: cp.sum(cp.abs(S)),  # its weights are singular at the optimum
    }
    return md.Problem(md.Minimize(losses[loss]()), [S.private(PRIVACY)])


def own(asked: md.Problem, kind: str) -> md.Problem:
    """With a row that the optimum without it breaks."""
    S, best = asked.unknown, asked.solve().mechanism.covariance
    rows = {
        "cap": lambda: md.named("cap", S[0, 0] <= 0.95 * best[0, 0]),
        "equal": lambda: md.named("equal", S[0, 0] == 1.05 * S[1, 1]),
        "sum": lambda: md.named("sum", S[0, 0] + S[2, 2] <= 0.97 * (best[0, 0] + best[2, 2])),
        "between": lambda: md.named("between", cp.abs(S[0, 1]) <= 0.5 * abs(best[0, 1])),
    }
    return asked.subject_to(rows[kind]())


FUNCTIONS = {
    "largest": lambda S, best: cp.lambda_max(S) - 0.99 * np.linalg.eigvalsh(best).max(),
    "size": lambda S, best: cp.norm(S, "fro") - 0.9995 * np.linalg.norm(best),
    "deviations": lambda S, best: cp.sum_squares(cp.diag(S)) - 0.999 * (np.diag(best) ** 2).sum(),
    "row": lambda S, best: cp.norm(S[0], 2) - 0.95 * np.linalg.norm(best[0]),
}


@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e4])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_convex_rows_that_are_not_piecewise_linear(kind: str, unit: float) -> None:
    """The optimum of the convex program, kept by the function itself; what tangents show is not called proved."""
    asked = problem("total", unit * CHANGES)
    S, best = asked.unknown, asked.solve()
    function = FUNCTIONS[kind](S, best.mechanism.covariance)
    asked = asked.subject_to(md.named(kind, function <= 0))
    result = asked.solve()
    if unit == 1.0:
        program: Any = asked.to_cvxpy()
        program.solve(solver="CLARABEL", **TIGHT)
        assert result.value == pytest.approx(program.value, rel=1e-6)
    assert accepted(result) and result.gap < 1e-7 and result.value > best.value
    rows = result.mechanism.rows
    S.save_value(np.linalg.inv(rows.T @ rows))
    assert function.value <= 1e-12 * unit**2
    assert result.certificate.bound_how == "recomputed"
    again = loads(dumps(result))
    assert again.certificate.verify() and again.certificate.bound_how == "claimed"
    better = replace(best, design=result.design, proofs=result.proofs, lower_bound=best.value)
    assert not better.certificate.verify()


@pytest.mark.parametrize("loss", ["total", "sizes"])
@pytest.mark.parametrize("unit", [1e-8, 1e2, 1e8])
def test_a_further_variable_has_the_unit_of_its_row(unit: float, loss: str) -> None:
    """A row of ratios, and one in the unit of the answers: the optimum scales, and neither is refused."""
    found = []
    for size in (1.0, unit):
        asked = problem(loss, size * CHANGES)
        S = asked.unknown
        rows = [
            md.named("even", cp.abs(S[0, 1] / size**2 - 0.5) <= 0.1),
            md.named("near", cp.abs(S[0, 2]) <= 0.3 * size**2),
        ]
        found.append(asked.subject_to(*rows).solve())
        assert accepted(found[-1]) and found[-1].gap < 1e-7
    assert found[1].value == pytest.approx(found[0].value * unit**2, rel=1e-6)


def accepted(result: md.Result) -> bool:
    return result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


@pytest.mark.parametrize("loss", ["total", "largest", "sums", "largest sum"])
@pytest.mark.parametrize("kind", [None, "cap", "equal", "sum", "between"])
def test_the_optimum_is_that_of_the_program_in_cvxpy(loss: str, kind: str | None) -> None:
    asked = problem(loss) if kind is None else own(problem(loss), kind)
    result = asked.solve()
    # in a unit in which the numbers are next to 1: Clarabel's tolerances are absolute as well
    program, S = asked.to_cvxpy(), asked.unknown
    by_cvxpy = cp.Problem(cp.Minimize(program.objective.expr / result.value), program.constraints)
    by_cvxpy.solve(solver="CLARABEL", **TIGHT)
    assert result.gap <= 1e-7 and accepted(result)
    assert result.value == pytest.approx(result.value * by_cvxpy.value, rel=2e-6)
    assert S.shape == (4, 4)
    assert {
        how for claim, how, *_ in result.certificate.checks().to_numpy() if "cost" in claim or "hold" in claim
    } == {"proved"}


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32))
def test_random_problems_are_private_and_proved(seed: int) -> None:
    """Privacy in fractions by other code; the bound below what any covariance within the rows costs."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 5))
    changes = rng.normal(size=(int(rng.integers(size, 3 * size + 1)), size)) * 10 ** rng.uniform(-1, 1, size)
    asked = problem(str(rng.choice(["total", "largest", "sums"])), changes)
    free = asked.solve()
    g = rng.normal(size=(size, size))
    g, S = g + g.T, asked.unknown
    at = float((g * free.mechanism.covariance).sum())
    limited = asked.subject_to(md.named("own", cp.sum(cp.multiply(g, S)) <= at - 0.02 * abs(at)))
    try:
        result = limited.solve()
    except (md.InfeasibleError, md.SolverError):
        assume(False)
    assert result.gap <= 1e-7 and accepted(result)
    assert result.value >= free.value * (1 - 1e-7)
    rows = [[fmpq(*x.as_integer_ratio()) for x in row] for row in result.mechanism.whitening.tolist()]
    r = fmpq_mat(rows)
    covariance = (r.transpose() * r).inv()
    for v in changes.tolist():
        image = r * fmpq_mat([[fmpq(*x.as_integer_ratio())] for x in v])
        spent = (image.transpose() * image)[0, 0]
        assert spent <= fmpq(*result.design.budget.as_integer_ratio())
    held = sum(
        (
            fmpq(*float(g[i, j]).as_integer_ratio()) * covariance[i, j]
            for i in range(size)
            for j in range(size)
        ),
        fmpq(0),
    )
    assert float(held) <= at - 0.02 * abs(at) + 1e-12 * abs(at)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_a_cost_lies_between_its_ends(seed: int, size: int) -> None:
    """Against rationals, of weights of any sign and rows of any size."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(size, size)) + 2 * np.eye(size)
    weights = rng.normal(size=(size, size))
    exact = fmpq_mat([[fmpq(*x.as_integer_ratio()) for x in row] for row in rows.tolist()])
    inverse = (exact.transpose() * exact).inv()
    true = sum(
        (
            fmpq(*float(weights[i, j]).as_integer_ratio()) * inverse[i, j]
            for i in range(size)
            for j in range(size)
        ),
        fmpq(0),
    )
    low, high = cost_between(CorrelatedGaussianNoise(rows, 1.0), weights) or (0, 0)
    assert low <= Fraction(int(true.p), int(true.q)) <= high
    assert high - low <= 1e-40 * np.abs(inverse_rows(rows)).max() ** 2 * np.abs(weights).max()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_the_numbers_of_a_proof_its_bound_is_one(seed: int) -> None:
    """Any roots, any Q, any X below the weights; and a wider budget, so that a rounding to the wrong side shows."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 5))
    changes = rng.normal(size=(2 * size, size))
    root = rng.normal(size=(size, size))
    weights = root.T @ root + 0.1 * np.eye(size)
    factor = factor_below(weights)
    assert factor is not None
    exact = [[Fraction(x) for x in row] for row in weights.tolist()]
    assert is_below(factor, exact) and not is_below(factor * (1 + 1e-9), exact)
    roots = rng.uniform(0, 1, 2 * size)
    best = polar(roots[:, None] * changes, factor)
    for contraction in (best, rng.normal(size=best.shape), best * 1.001):
        bounds = [
            dual_below(changes, roots, factor, contraction, most)
            for most in (Fraction(1), Fraction(1001, 1000))
        ]
        assert bounds[1] <= bounds[0]
        for k in range(20):  # covariances that keep a budget between the two
            s = rng.normal(size=(size, size))
            s = s @ s.T + 1e-3 * np.eye(size)
            s *= np.einsum("ki,ij,kj->k", changes, np.linalg.inv(s), changes).max() / (1 + k / 2e4)
            assert float(bounds[1]) <= float((weights * s).sum()) * (1 + 1e-12)


def refused_by_both(result: md.Result) -> bool:
    """By the package and by the verifier, each on its own, whatever the status says."""
    checks = result.certificate.checks()
    failed = checks["claim"][~checks["holds"]], refused(dumps(result.certificate))
    return all(any(not claim.startswith("status") for claim in claims) for claims in failed)


def test_a_bound_is_refused_that_its_numbers_do_not_prove() -> None:
    result = own(problem("largest"), "cap").solve()
    dearer = replace(result, value=result.value * 1.001)  # no bound is refused for being above its value
    proof, bound = sorted(result.proofs, key=lambda proof: isinstance(proof, CovarianceBound))
    cap = int(np.flatnonzero(result.design.declared.family == 0)[0])
    twice = tuple(2 * nu if i == cap else nu for i, nu in enumerate(bound.multipliers))
    for forged in (
        replace(bound, factor=bound.factor * 1.001),
        replace(bound, contraction=bound.contraction * 1.001),
        replace(bound, roots=np.sqrt(np.maximum(bound.roots**2 - 0.1, 0.0))),
        replace(bound, multipliers=twice),
        replace(bound, multipliers=tuple(1.001 * nu for nu in map(float, bound.multipliers))),
    ):
        assert refused_by_both(
            replace(dearer, lower_bound=result.lower_bound * 1.0005, proofs=(proof, forged))
        )


def test_a_negative_multiplier_of_an_inequality_proves_nothing() -> None:
    """Of a cap that does not bind it would charge for what is left, and V' is positive definite."""
    asked = problem("total")
    best = asked.solve()
    result = asked.subject_to(asked.unknown[0, 0] <= 10 * best.mechanism.covariance[0, 0]).solve()
    weights = np.eye(4)
    weights[0, 0] -= 0.1
    factor, roots = factor_below(weights), result.proofs[1].roots
    assert factor is not None
    proofs = {isinstance(proof, CovarianceBound): proof for proof in result.proofs}
    roots = proofs[True].roots
    exact = Fraction(weights[0, 0]) - 1
    forged = CovarianceBound((exact,), roots, factor, polar(roots[:, None] * CHANGES, factor))
    assert refused_by_both(replace(result, lower_bound=result.value, proofs=(proofs[False], forged)))


@pytest.mark.parametrize("equal", [False, True])
def test_a_law_is_refused_that_breaks_a_row_alone(equal: bool) -> None:
    asked = problem("total")
    S, best = asked.unknown, asked.solve().mechanism.covariance
    limit = 0.95 * best[0, 0]
    result = asked.subject_to(md.named("own", S[0, 0] == limit if equal else S[0, 0] <= limit)).solve()
    wider = replace(result.mechanism, whitening=result.mechanism.whitening * (1 - 1e-7))
    failed = replace(result, mechanism=wider, value=result.value * 1.001)
    assert refused_by_both(failed)
    assert [
        claim
        for claim, holds in failed.certificate.checks()[["claim", "holds"]].to_numpy()
        if not holds and not claim.startswith("status")
    ] == ["'own' holds"]


def test_several_requirements_are_kept_at_once() -> None:
    S = md.Covariance(CHANGES)
    both = md.Problem(
        md.Minimize(S.total()), [S.private(PRIVACY), md.named("zcdp", S.private(md.ZeroConcentratedDP(0.01)))]
    ).solve()
    alone = md.Problem(md.Minimize(S.total()), [S.private(md.ZeroConcentratedDP(0.01))]).solve()
    assert both.value == pytest.approx(alone.value, rel=1e-7) and accepted(both)


@pytest.mark.parametrize("above", [pytest.param(0.0, marks=pytest.mark.slow), 1e-2, 1e-4])
def test_a_cap_near_its_floor(above: float) -> None:
    """Where S[0, 0] is 1 the other variance is infinite; near it solvers lose their digits in the coordinates of the loss."""
    S = md.Covariance([[1.0, 0.0], [1.0, 1.0]])
    asked = md.Problem(
        md.Minimize(S.total()),
        [S.private(md.ZeroConcentratedDP(0.5)), md.named("floor", S[0, 0] <= 1 + above)],
    )
    if not above:
        with pytest.raises(md.SolverError, match="'floor': leave no covariance inside"):
            asked.solve()
        return
    result = asked.solve()
    assert accepted(result) and result.gap < 1e-9 / above**2
    assert result.lower_bound <= 1 + above + (1 + above) / (4 * above) + 0.5 and result.value > 0.2 / above


@pytest.mark.parametrize("loss", ["total", "largest"])
@pytest.mark.parametrize(
    "workload",
    [md.Workload.prefix_sums(4), md.Workload.marginals((2, 2), order=1), md.Workload.ranges(3)],
    ids=str,
)
def test_a_design_is_its_problem(workload: md.Workload, loss: str) -> None:
    """By the fixed point, by a registered solver, and as the problem that it declares."""
    design = md.MatrixMechanism(workload, PRIVACY, loss=loss)
    values = [design.solve(gap=1e-9).value, design.solve("clarabel").value, design.problem().solve().value]
    asked = design.problem()
    free = asked.subject_to(md.named("wide", asked.unknown[0, 0] <= 1e6)).solve()
    assert [*values, free.value] == pytest.approx([values[0]] * 4, rel=1.1e-6)
    assert accepted(free)


# -- Correlated Gaussian noise: boxes give P3 back, one-hot, histogram and counting queries have known optima


def box(lam: np.ndarray) -> np.ndarray:
    """Vertices of the box, one of each pair ±d."""
    return np.array(list(itertools.product([1], *[[1, -1]] * (len(lam) - 1)))) * lam


@settings(max_examples=15)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4), st.booleans(), st.integers(0, 2**32))
def test_a_box_gives_p3_back(lam, weighted, seed) -> None:
    lam = np.array(lam)
    weights = 10 ** np.random.default_rng(seed).uniform(-1, 1, len(lam)) if weighted else None
    result = md.CorrelatedGaussian(changes=box(lam), privacy=PRIVACY, weights=weights).solve()
    p3 = md.NoiseAllocation(noise="gaussian", sensitivities=lam, privacy=PRIVACY, weights=weights).solve()
    assert result.value == pytest.approx(p3.value, rel=1e-8)
    assert result.lower_bound <= p3.value * (1 + 1e-11) and result.gap <= 1e-8
    # The trace is flat to first order around the optimum: half the digits in Σ.
    assert (
        np.abs(result.mechanism.covariance - np.diag(p3.mechanism.scales**2)).max()
        <= 1e-3 * (p3.mechanism.scales**2).max()
    )


@pytest.mark.parametrize("k", [2, 5, 9])
def test_one_hot_needs_k_times_less_than_its_profile(k) -> None:
    result = md.CorrelatedGaussian(changes=np.eye(k), privacy=PRIVACY).solve()
    profile = md.NoiseAllocation(noise="gaussian", sensitivities=np.ones(k), privacy=PRIVACY).solve()
    assert result.value * result.design.budget == pytest.approx(k, rel=1e-8)
    assert profile.value / result.value == pytest.approx(k, rel=1e-8)


@pytest.mark.parametrize(
    ("vectors", "rank"),
    [
        ([[1e12, 0.0], [0.0, 1.0]], 2),
        ([[1e9, 0.0], [1e9, 0.01]], 2),
        ([[1e-60, 0.0], [0.0, 1e-20], [0.0, 3e-21]], 2),
        ([[1.0, 2.0, 3.0], [0.5, 1.0, 1.5 + 2**-20], [3e4, 1.0, 1.0]], 3),
        ([[1.0, 1.0, 0.0], [1.0, 1.0, 2.0**-52], [0.0, 0.0, 1.0]], 2),
        # what is lifted of the largest entries cancels
        (
            [[-7e2, -30, 1e-3, 1e-3], [0.015, 2e-4, 0.06, -1.5e-3], [-7e11, -30.0, 1.5e6, 1e-3]],
            3,
        ),
    ],
)
def test_no_direction_of_the_set_is_left_bare(vectors, rank) -> None:
    result = md.CorrelatedGaussian(changes=vectors, privacy=PRIVACY, span=True).solve()
    assert accepted(result)
    used = result.design.consumed(result.mechanism)
    assert result.mechanism.span.rank == rank and np.isfinite(used).all()
    assert used.max() == pytest.approx(1.0, rel=1e-12)
    # exact: dᵀΣ⁻¹d = |R d_P|² in rationals
    whitening = [[Fraction(x) for x in row] for row in result.mechanism.whitening.tolist()]
    for v in vectors:
        chosen = [Fraction(v[p]) for p in result.mechanism.span.coordinates]
        spent = sum(sum(a * b for a, b in zip(row, chosen)) ** 2 for row in whitening)
        assert spent <= Fraction(result.design.budget)
    assert result.gap <= 1e-8


def test_prefix_counts_agree_with_the_program() -> None:
    design = md.CorrelatedGaussian(np.tri(6), PRIVACY)
    by_program, own = design.solve("clarabel"), design.solve()
    assert by_program.value == pytest.approx(own.value, rel=1e-6)
    assert own.gap <= 1e-9 and own.certificate.verify() and own.solver_report.solver == "fixed-point"
    many = md.CorrelatedGaussian(np.tri(128), PRIVACY).solve(gap=1e-6)
    assert many.gap <= 1e-6 and many.solver_report.iterations <= 30 and many.certificate.verify()
    stream = md.MatrixMechanism(md.Workload.prefix_sums(128), PRIVACY).solve()
    assert many.value == pytest.approx(stream.value, rel=2e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.integers(1, 5), st.integers(-3, 3), st.integers(0, 2**32))
def test_what_is_spent_is_the_exact_maximum(m, k, spread, seed) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, (m, k)) * 10.0 ** (spread * rng.integers(0, 100, k))
    whitening = rng.normal(size=(k, k)) * 10.0 ** (-spread * rng.integers(0, 100, k))
    found, exact = most_consumed(whitening, vectors)
    r = [[Fraction(x) for x in row] for row in whitening.tolist()]
    most = max(
        sum(sum((a * Fraction(b) for a, b in zip(row, v)), Fraction(0)) ** 2 for row in r)
        for v in vectors.tolist()
    )
    assert exact
    if np.isinf(found):
        assert most > Fraction(float(np.finfo(float).max))
    else:
        assert most <= Fraction(found) <= most * (1 + Fraction(1, 2**50)) + Fraction(1, 10**320)


# Counts of which one person changes a few ----------------------------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.floats(-99, 99))
def test_counts_need_what_all_their_patterns_do(signed: bool, n: int, c: int, power: float) -> None:
    """In any unit."""
    n = min(n, 4) if signed else n
    c, most = min(c, n), 10.0**power
    result = md.CountsGaussian(n, c, PRIVACY, most=most, signed=signed).solve()
    patterns = itertools.product((-1.0, 0.0, 1.0) if signed else (0.0, 1.0), repeat=n)
    vectors = np.array([v for v in patterns if 0 < sum(map(abs, v)) <= c])
    listed = md.CorrelatedGaussian(vectors, PRIVACY).solve()
    assert result.value / most**2 == pytest.approx(listed.value, rel=1e-6 if signed else 1e-7)
    consumed = ((most * vectors @ result.mechanism.whitening.T) ** 2).sum(axis=1)
    assert consumed.max() <= result.design.budget * (1 + 1e-12)
    assert result.lower_bound / most**2 <= listed.value * (1 + 1e-9)
    assert result.gap < 1e-7 and result.certificate.verify()


def test_what_is_released_is_of_the_coordinates_that_are_proved():
    """Each coordinate once, in order; a lift has a row for each number and a column for each coordinate."""
    from campaign import files

    result = md.CorrelatedGaussian(np.eye(5), PRIVACY).solve()
    payload = json.loads(dumps(result))["payload"]
    for order in ((0, 0, 0, 0, 0), (0, 2, 2, 3, 4), (4, 3, 2, 1, 0), (0, 1, 2, 3)):
        with pytest.raises(md.DesignError, match="coordinates"):
            replace(result.mechanism, coordinates=order)
        payload["fields"]["mechanism"]["fields"]["coordinates"] = {"$tuple": list(order)}
        assert not any(accept(payload) for accept in files.ACCEPT.values())
    spanned = md.CorrelatedGaussian([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]], PRIVACY, span=True).solve()
    law = spanned.mechanism
    assert law.lift is not None and replace(law).release(np.ones(3)).shape == (3,)
    for lift in (tuple(row[:-1] for row in law.lift), tuple((0.5, 0.5) for _ in law.lift)):
        with pytest.raises(md.DesignError, match=r"lift|coordinates"):
            replace(law, lift=lift)
    for lift in (None, law.lift[:-1]):  # noise on two numbers
        assert refused_by_both(replace(spanned, mechanism=replace(law, lift=lift)))


@given(st.floats(-99.0, 99.0))
@settings(max_examples=15)
def test_no_unit_breaks_the_budget(power):
    result = md.CountsGaussian(5, 2, md.ApproximateDP(1.0, 1e-6), most=10.0**power).solve()
    assert result.certificate.verify() and result.gap < 1e-9


@pytest.mark.parametrize("further", [0.0, 0.5])
def test_the_least_largest_variance_where_some_loads_are_zero(further: float) -> None:
    """The weights then leave the covariance open: without a program of its own the noise was up to 10^13 times too large."""
    changes = [[0.53, -0.7, -0.97, -1.18], [0.05, -0.45, 0.05, -0.28], [-1, 0.23, -1.63, -0.92]]
    first = np.array([0.5, -0.05, 0.31, -0.93])
    listed = [*changes, further * first, first] if further else [first, *changes]
    result = md.CorrelatedGaussian(listed, md.GaussianDP(1.0), loss="largest").solve()
    assert result.gap <= 1e-8 and result.value == pytest.approx(2.66506704, rel=1e-7)
    assert result.certificate.verify()
