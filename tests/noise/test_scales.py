"""Problems on scales: reference values, own rows against CVXPY alone, exact laws, bounds of any multipliers, what is refused, files."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import cheap
import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.noise.lagrangian import Multipliers, lower_bound
from mechdesign.problem.law_moments import absolute_moment
from mechdesign.verifier.verify import verify

WEIGHTS, PARTS = np.array([1, 2, 0.5, 1]), np.array([1, 1, 1, 0.5])
REFERENCE = {
    ("gaussian", 1): (8.133576325, 8.033209243),
    ("gaussian", 2): (14.92820323, 14.65685425),
    ("gaussian", 0.5): (6.032680996, 5.987549854),
    ("laplace", 1): (16.44615242, 14.65685425),
    ("laplace", 2): (60.48329093, 49.98170443),
    ("laplace", 0.5): (8.593280047, 8.033209243),
}
"""With s₀ = s₁, s₂ ≤ 3, and without; of weights that take the moment E|T|^p out."""


def allocation(noise: str, order: float) -> md.NoiseAllocation:
    """Budget Σ a/s^m ≤ 1."""
    laplace = noise == "laplace"
    privacy = md.PureDP(1.0) if laplace else md.GaussianDP(1.0)
    weights = WEIGHTS / absolute_moment(noise, order)
    return md.NoiseAllocation(noise, PARTS if laplace else PARTS**0.5, privacy, loss=order, weights=weights)


@pytest.mark.parametrize(("noise", "order"), REFERENCE)
def test_two_equal_and_one_at_most_three(noise: str, order: float) -> None:
    problem = allocation(noise, order).problem()
    s = problem.unknown
    result = problem.subject_to(md.named("same", s[0] == s[1]), md.named("cap", s[2] <= 3)).solve()
    plain = problem.subject_to().solve()
    u = cp.Variable(4)
    power = 2 if noise == "gaussian" else 1
    rows = [PARTS @ cp.exp(-power * u) <= 1, u[0] == u[1], u[2] <= np.log(3)]
    for found, given_, kept in zip((result, plain), REFERENCE[noise, order], (rows, rows[:1])):
        alone = cp.Problem(cp.Minimize(WEIGHTS @ cp.exp(order * u)), kept)
        alone.solve(solver="CLARABEL", **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11))
        assert found.value == pytest.approx(given_, rel=2e-9) == alone.value
        assert found.gap <= 1e-8 and (found.checks()["how"] == "proved").all() and found.certificate.verify()
        assert all(holds and how != "recomputed" for _, how, holds in verify(dumps(found)).rows)
    scales = result.mechanism.scales
    assert scales[0] == scales[1] and scales[2] <= 3
    lam = map(Fraction, problem.design.sensitivities.tolist())
    assert sum((v / Fraction(x)) ** power for v, x in zip(lam, scales.tolist())) <= 1
    assert list(result.audit()["family"]) == ["privacy", "same", "cap"]
    assert set(np.shape(result.release([0.0] * 4))) == {4}


def drawn(seed: int) -> tuple[Any, list[Any], float, np.ndarray]:
    """Scales with one or two requirements and rows of one's own that the unlimited optimum is near."""
    rng = np.random.default_rng(seed)
    size, noise, order = (
        int(rng.integers(2, 7)),
        str(rng.choice(["gaussian", "laplace"])),
        float(rng.choice([0.5, 1, 2, 3.5])),
    )
    lam, weights = 10 ** rng.uniform(-6, 6) * np.exp(rng.normal(size=size)), np.exp(rng.normal(size=size))
    privacy = md.ApproximateDP(10 ** rng.uniform(-1, 0.5), 10 ** rng.uniform(-8, -2))
    free = md.NoiseAllocation(noise, lam, privacy, loss=order, weights=weights).solve().mechanism.scales
    s = md.Scales(lam, noise)
    rows = [s.private(privacy)]
    if rng.random() < 0.4:
        rows.append(
            md.named("second", s.private(md.ApproximateDP(1.5, 1e-3), lam * np.exp(rng.normal(size=size))))
        )
    i, j = rng.choice(size, 2, replace=False)
    kinds = {
        "same": s[i] == s[j],
        "cap": s[i] <= free[i] * 1.3,
        "floor": s[i] >= free[i] * 1.2,
        "ratio": s[i] <= 2 * s[j],
        "sum": cp.sum(s) <= 4 * free.sum(),
        "difference": s[i] - s[j] >= 0.1 * free[i],
        "affine": s[i] + 2 * s[j] == 4 * (free[i] + free[j]),
    }
    names = list(kinds)[: 5 if order < 1 else None]
    rows += [md.named(name, kinds[name]) for name in rng.choice(names, 2, replace=False).tolist()]
    return s, rows, order, weights


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_own_rows_are_kept_exactly_and_the_gap_is_closed(seed: int) -> None:
    s, rows, order, weights = drawn(seed)
    try:
        result = md.Problem(md.Minimize(s.expected(order, weights)), rows).solve()
    except md.InfeasibleError:
        return
    assert result.gap <= 1e-7 and result.certificate.verify()
    assert all(holds for *_, holds in verify(dumps(result)).rows)
    scales = [Fraction(x) for x in result.mechanism.scales.tolist()]
    for asked in result.design.asked:
        spent = sum(
            (Fraction(v) / x) ** asked.exponent for v, x in zip(asked.sensitivities.tolist(), scales) if v
        )
        assert spent <= Fraction(asked.budget)
    s.value = result.mechanism.scales
    for row in rows[len(result.design.asked) :]:
        side = float(np.max(row.expr.value))
        assert (
            abs(side) <= 1e-11 * max(s.value)
            if row.label in ("same", "affine")
            else side <= 1e-15 * max(s.value)
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_no_multiplier_proves_more_than_the_optimum(seed: int) -> None:
    s, rows, order, weights = drawn(seed)
    problem = md.Problem(md.Minimize(s.expected(order, weights)), rows)
    try:
        result = problem.solve()
    except md.InfeasibleError:
        return
    [proof], declared, rng = result.proofs, problem.declared, np.random.default_rng(seed)
    for spread in (1e-9, 1e-3, 0.3, 3.0):
        held = np.zeros(len(declared.coupled)) if proof.rows is None else proof.rows
        found = Multipliers(
            proof.multipliers * np.exp(spread * rng.normal(size=len(proof.multipliers))),
            held * np.exp(spread * rng.normal(size=len(held))),
        )
        try:
            bound = lower_bound(declared, found)
        except md.ResultFormatError:  # they prove nothing
            continue
        assert float(bound) <= result.value


def test_several_bounds_and_equal_scales_of_one_problem() -> None:
    few = md.Sensitivity(each=[1.0, 2.0, 3.0, 0.5, 1.0], l0=2, l1=4.0)
    s = md.Scales(few, "laplace")
    problem = md.Problem(md.Minimize(s.expected(1)), [s.private(md.PureDP(1.0))])
    plain = md.NoiseAllocation("laplace", few, md.PureDP(1.0), loss=1).solve()
    assert problem.solve().value == pytest.approx(plain.value, rel=1e-6)
    result = problem.subject_to(
        md.named("same", s[0] == s[4]), md.named("cap", s[2] <= 0.9 * plain.mechanism.scales[2])
    ).solve()
    assert result.gap < 1e-6 and result.value > plain.value and result.certificate.verify()
    assert not [claim for claim, _, holds in verify(dumps(result)).rows if not holds]


def test_a_mix_of_changes_that_have_one_bound_a_number_proves_nothing() -> None:
    """Of those the sensitivities are the profile, whatever a file states."""
    plain = md.NoiseAllocation("laplace", [1.0, 2.0], md.PureDP(1.0)).solve()
    rows = cheap.scales().solve()
    for result in (plain, rows):
        [proof] = result.proofs
        sizes = np.array([one.sensitivities for one in result.design.asked])
        mixes = np.array(sizes if proof.mixes is None else proof.mixes)
        mixes[0] *= 10
        multipliers = proof.multipliers.copy()
        multipliers[0] = max(multipliers)
        for held in (proof.multipliers, multipliers):
            false = replace(
                result,
                lower_bound=result.lower_bound * (1 + 1e-9),
                value=result.value * 2,
                proofs=(replace(proof, mixes=mixes, multipliers=held),),
            )
            assert not false.certificate.verify()
            assert not all(holds for *_, holds in verify(dumps(false)).rows)


def test_a_linear_loss_beside_a_convex_row_alone() -> None:
    """No budget binds, so that optima of tangents are far from that of the row; the row's limit is a parameter."""
    s, most = md.Scales([1.0, 2.0, 0.5, 1.0], "laplace"), cp.Parameter()
    problem = md.Problem(
        md.Minimize(s.expected(1)), [s.private(md.PureDP(1.0)), cp.sum(cp.inv_pos(s)) <= most]
    )
    for most.value, value in ((0.8, 20.0), (0.4, 40.0)):
        result = problem.solve()
        assert result.value == pytest.approx(value, rel=1e-7) and result.gap <= 1e-7
        assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


LAM = np.array([1.0, 2.0, 3.0, 1.0])
CONVEX: dict[str, Any] = {
    "largest": lambda s, at: cp.max(s) - 0.97 * at.max(),
    "power": lambda s, at: cp.sum_squares(s[:2]) - 0.9 * (at[:2] ** 2).sum(),
    "norm": lambda s, at: cp.norm(s[1:3]) - 0.95 * float(np.linalg.norm(at[1:3])),
    "precision": lambda s, at: cp.sum(cp.inv_pos(s)) - 0.95 * (1 / at).sum(),
    "even": lambda s, at: cp.abs(s[0] - s[1]) - 0.1 * at[0],
    "geometric": lambda s, at: 1.05 * float(np.exp(np.log(at).mean())) - cp.geo_mean(s),
}


@pytest.mark.parametrize("name", CONVEX)
@pytest.mark.parametrize(
    ("noise", "order", "unit"), [("gaussian", 2, 1.0), ("laplace", 1, 1e-6), ("laplace", 2, 1e5)]
)
def test_convex_rows_that_are_not_affine(name: str, noise: str, order: float, unit: float) -> None:
    """The optimum of the convex program, kept by the function itself; what tangents show is not called proved."""
    privacy = md.PureDP(1.0) if noise == "laplace" else md.ApproximateDP(1.0, 1e-6)
    solved = []
    for size in (1.0, unit):
        s = md.Scales(size * LAM, noise)
        plain = md.Problem(md.Minimize(s.expected(order)), [s.private(privacy)]).solve()
        function = CONVEX[name](s, plain.mechanism.scales)
        problem = md.Problem(
            md.Minimize(s.expected(order)), [s.private(privacy), md.named(name, function <= 0)]
        )
        solved.append(problem.solve())
        if size == 1.0:
            program: Any = problem.to_cvxpy()
            program.solve(solver="CLARABEL")
            assert solved[0].value == pytest.approx(program.value, rel=3e-7)
    result = solved[-1]
    assert result.value == pytest.approx(solved[0].value * unit**order, rel=1e-5)  # `at` is near the optimum
    assert result.gap < 1e-6 and result.value > plain.value and result.certificate.verify()
    s.save_value(result.mechanism.scales)
    assert function.value <= 0
    ratios = [
        Fraction(v) / Fraction(x) for v, x in zip((unit * LAM).tolist(), result.mechanism.scales.tolist())
    ]
    assert sum(r if noise == "laplace" else r * r for r in ratios) <= Fraction(problem.asked[0].budget)  # type: ignore[attr-defined]
    audit = result.audit().set_index("family")
    row, most = audit.loc[name], -float(function.value)
    assert (
        row["rhs"] - row["lhs"]
        == row["slack"]
        == pytest.approx(most, rel=1e-6, abs=1e-9 * abs(row["lhs"]) + 1e-15)
    )
    assert row["dual"] > 0 and row["active"] and set(audit.index) == {"private", name, f"tangents of {name}"}
    assert result.certificate.bound_how == "recomputed"
    again = loads(dumps(result))
    assert again.certificate.verify() and again.certificate.bound_how == "claimed"
    assert all(
        holds and (how == "claimed" or "no scales" not in claim)
        for claim, how, holds in verify(dumps(result)).rows
    )
    with pytest.raises(md.DesignError, match="declare them again"):
        again.design.subject_to(again.design.unknown <= 1.0)
    s.save_value(plain.mechanism.scales)
    missed = float(function.value)
    closer: Any = md.Problem(
        problem.objective, [s.private(privacy), md.named(name, function <= -0.01 * missed)]
    )
    closer.__dict__["_declared"] = result.design.declared  # the tangents hold, the function does not
    assert not replace(result, design=closer).certificate.verify()


def test_a_ledger_counts_the_largest_requirement() -> None:
    s, b = md.Scales([1.0, 2.0]), md.Scales([1.0, 2.0], "laplace")
    result = md.Problem(
        md.Minimize(s.expected()),
        [s.private(md.ZeroConcentratedDP(0.1)), s.private(md.ZeroConcentratedDP(0.2), [0.1, 0.1])],
    ).solve()
    assert result.design.consumption(result).rho == pytest.approx(0.2, rel=1e-9)
    wide = [b.private(md.PureDP(1.0)), b.private(md.PureDP(2.0), [3.0, 4.0])]
    stated = md.Problem(md.Minimize(b.expected()), wide).solve()
    spent = stated.design.consumption(stated)
    assert (spent.epsilon, spent.statement) == (2.0, (2.0, 0.0))
